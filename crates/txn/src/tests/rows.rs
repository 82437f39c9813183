//! Rows: operations, versions, cursors, savepoints, purge.

use super::*;
use crate::value::Entry;
use myriad_base::random::Random;
use myriad_btree::Leaf;
use std::collections::BTreeMap;

#[test]
fn a_row_lives_and_dies() {
    let rig = Rig::small();
    let (mut a, mut b) = (rig.trx(), rig.trx());
    rig.insert(&mut a, b"k", b"one").unwrap();
    assert_eq!(rig.get(&mut a, b"k"), Some(b"one".to_vec()));
    assert_eq!(rig.get(&mut b, b"k"), None);
    a.commit(Durability::Configured).unwrap();
    assert_eq!(a.state(), TrxState::Idle);
    assert_eq!(rig.get(&mut b, b"k"), None, "b's snapshot is older");
    b.commit(Durability::Configured).unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(b"one".to_vec()));
    rig.update(&mut a, b"k", b"two and longer").unwrap();
    rig.update(&mut a, b"k", b"3").unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(b"one".to_vec()));
    a.commit(Durability::Configured).unwrap();
    rig.delete(&mut a, b"k").unwrap();
    assert_eq!(rig.get(&mut a, b"k"), None);
    assert_eq!(rig.get(&mut b, b"k"), Some(b"one".to_vec()));
    a.rollback().unwrap();
    assert_eq!(rig.get(&mut a, b"k"), Some(b"3".to_vec()));
    rig.delete(&mut a, b"k").unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(b"one".to_vec()));
    rig.purge_all();
    assert_eq!(rig.get(&mut b, b"k"), Some(b"one".to_vec()), "purge respects b's snapshot");
    assert_eq!(rig.entries(), 1);
    b.rollback().unwrap();
    rig.purge_all();
    assert_eq!(rig.entries(), 0);
    assert_eq!(rig.sys.purge_stats().history, 0);
}

/// With no purge thread at work those who commit keep the history short, but for what an open snapshot keeps; that they catch up
/// with later.
#[test]
fn commits_take_their_share_of_purge() {
    let rig = Rig::small();
    let (mut reader, mut writers) = (rig.trx(), [rig.trx(), rig.trx()]);
    let mut commit = |from: u32, to: u32| {
        for n in from..to {
            let t = &mut writers[n as usize % 2];
            let key = (n % 50).to_be_bytes();
            match n / 50 % 2 {
                0 => rig.insert(t, &key, &[7; 100]).unwrap(),
                _ => rig.delete(t, &key).unwrap(),
            }
            t.commit(Durability::Configured).unwrap();
            t.help_purge();
        }
        rig.sys.purge_stats().history
    };
    assert!(commit(0, 10_000) < 2500);
    assert!(rig.get(&mut reader, &[0; 4]).is_none());
    assert!(commit(10_000, 20_000) >= 10_000);
    reader.commit(Durability::Configured).unwrap();
    assert!(commit(20_000, 40_000) < 2500);
    rig.purge_all();
    assert_eq!((rig.sys.purge_stats().history, rig.entries()), (0, 0));
}

/// A commit is counted if something of it stays, a rollback if there was something to undo, also in the background.
#[test]
fn commits_and_rollbacks_are_counted_apart() {
    let rig = Rig::small();
    let mut t = rig.trx();
    let counts = |rig: &Rig| (rig.sys.commit_count(), rig.sys.rollback_count());
    rig.insert(&mut t, b"a", b"row").unwrap();
    t.commit(Durability::Configured).unwrap();
    assert_eq!(counts(&rig), (1, 0));
    rig.insert(&mut t, b"b", b"row").unwrap();
    t.rollback().unwrap();
    assert_eq!(counts(&rig), (1, 1));
    // Nothing is left to commit: a statement that failed, and one that was undone.
    assert!(rig.insert(&mut t, b"a", b"row").is_err());
    t.commit(Durability::Configured).unwrap();
    let savepoint = t.savepoint();
    rig.insert(&mut t, b"b", b"row").unwrap();
    t.rollback_to(savepoint).unwrap();
    t.commit(Durability::Configured).unwrap();
    rig.get(&mut t, b"a").unwrap();
    t.commit(Durability::Configured).unwrap();
    assert_eq!(counts(&rig), (1, 1));
    for (commit, expected) in [(false, (1, 2)), (true, (2, 2))] {
        rig.insert(&mut t, b"b", b"row").unwrap();
        t.prepare(b"x", Durability::Configured).unwrap();
        t.detach_prepared();
        assert!(if commit { rig.sys.commit_by_xid(b"x") } else { rig.sys.rollback_by_xid(b"x") }.unwrap());
        assert_eq!(counts(&rig), expected);
    }
    rig.insert(&mut t, b"c", b"row").unwrap();
    rig.sys.flush_log().unwrap();
    let rig = rig.crashed(1, 400);
    while rig.sys.rollback_losers_step().unwrap() {}
    assert_eq!(counts(&rig), (0, 1));
}

/// As long as a snapshot, or a transaction that has not ended, keeps purge from a slot it looks at none of the slot's pages again, nor
/// do those who commit.
#[test]
fn purge_looks_at_no_page_while_nothing_can_go() {
    const SLOTS: u64 = 20;
    let rig = Rig::small();
    let (mut old, mut unfinished) = (rig.trx(), rig.trx());
    old.open_snapshot();
    rig.insert(&mut unfinished, b"unfinished", b"row").unwrap();
    let mut writers: Vec<_> = (1..SLOTS).map(|_| rig.trx()).collect();
    let pages = || myriad_base::work::of_thread().pages_accessed;
    let (rounds, mut looked_at, mut asked) = (150u64, 0, 0);
    for round in 0..rounds {
        for (n, t) in (0u32..).zip(&mut writers) {
            rig.insert(t, &[&n.to_be_bytes()[..], &round.to_be_bytes()].concat(), b"row").unwrap();
        }
        for t in &mut writers {
            t.commit(Durability::Configured).unwrap();
            let before = pages();
            asked += u64::from(t.purge_share.is_some());
            t.help_purge();
            looked_at += pages() - before;
        }
    }
    let stats = rig.sys.purge_stats();
    assert_eq!((stats.history, rig.sys.undo.purge_slot_count() as u64), ((SLOTS - 1) * rounds, SLOTS));
    assert!(asked >= 2 * (SLOTS - 1) && looked_at < SLOTS, "{asked} shares, {looked_at} pages");
    assert_eq!(stats.shares, 0, "a share of nothing is none");
    rig.sys.purge.note_finished(&rig.sys.undo.purge_slots()[0]);
    let before = pages();
    for _ in 0..10 {
        assert!(!rig.sys.purge_step().unwrap());
    }
    assert!(pages() - before < SLOTS, "{} pages", pages() - before);
    old.rollback().unwrap();
    rig.purge_all();
    assert_eq!(rig.sys.purge_stats().history, 0, "one was counted though it had not ended");
    unfinished.commit(Durability::Configured).unwrap();
    rig.purge_all();
    assert_eq!((rig.sys.purge_stats().history, rig.entries() as u64), (0, (SLOTS - 1) * rounds + 1));
}

/// A commit counts its log after others see it, so that purge may have passed the log by then.
#[test]
fn a_log_counted_after_purge_has_passed_it_is_forgotten() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"one").unwrap();
    t.commit(Durability::Configured).unwrap();
    rig.purge_all();
    let slots = rig.sys.undo.purge_slots();
    let [slot] = &slots[..] else { panic!("{} undo slots", slots.len()) };
    rig.sys.purge.note_finished(slot);
    rig.insert(&mut t, b"b", b"two").unwrap();
    t.commit(Durability::Configured).unwrap();
    assert_eq!(rig.sys.purge_stats().history, 2);
    rig.purge_all();
    assert_eq!(rig.sys.purge_stats().history, 0);
}

#[test]
fn a_dead_key_comes_back() {
    let rig = Rig::small();
    let mut a = rig.trx();
    rig.insert(&mut a, b"k", b"one").unwrap();
    assert!(matches!(rig.insert(&mut a, b"k", b"two"), Err(Error::DuplicateKey { index: ROWS })));
    assert_eq!(a.duplicate_key(), b"k");
    rig.delete(&mut a, b"k").unwrap();
    rig.insert(&mut a, b"k", b"two").unwrap();
    a.commit(Durability::Configured).unwrap();
    let mut old = rig.trx();
    old.open_snapshot();
    rig.delete(&mut a, b"k").unwrap();
    a.commit(Durability::Configured).unwrap();
    rig.insert(&mut a, b"k", b"three").unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.get(&mut old, b"k"), Some(b"two".to_vec()));
    old.rollback().unwrap();
    rig.purge_all();
    assert_eq!(rig.get(&mut old, b"k"), Some(b"three".to_vec()));
}

/// Of values that are all in their leaf a cursor copies as much as is wanted, of their older versions, too; when more is wanted
/// than of the rows that it has copied already, it reads these again.
#[test]
fn values_are_copied_as_far_as_they_are_wanted() {
    let rig = Rig::small();
    let payload =
        |i: u64, first: u8| [vec![first; 20], vec![i as u8; if i.is_multiple_of(5) { 30 } else { 700 }]].concat();
    let mut a = rig.trx();
    for i in 0..100 {
        rig.insert(&mut a, &key(i), &payload(i, 1)).unwrap();
    }
    rig.insert(&mut a, &key(100), &[vec![1; 20], vec![2; 40_000]].concat()).unwrap();
    a.commit(Durability::Configured).unwrap();
    let mut old = rig.trx();
    old.open_snapshot();
    for i in (0..100).step_by(3) {
        rig.update(&mut a, &key(i), &payload(i, 9)).unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    for forward in [true, false] {
        let few = CursorOptions { value_bytes: 20, ..plain() };
        let mut cursor = Cursor::new(rig.rows, few);
        let mut found = cursor.seek(&mut old, if forward { Seek::First } else { Seek::Last }, &[]).unwrap();
        let mut short = 0;
        for n in 0..=100 {
            let i = if forward { n } else { 100 - n };
            assert!(found && cursor.key() == key(i), "row {i}");
            let whole = if i < 100 { payload(i, 1) } else { [vec![1; 20], vec![2; 40_000]].concat() };
            let value = cursor.value();
            assert!(value.len() >= 20 && whole.starts_with(value), "row {i}");
            short += usize::from(value.len() < whole.len());
            assert!(!(50..60).contains(&n) || value == whole, "row {i} was copied before all was wanted");
            match n {
                49 => cursor.set_options(plain()),
                59 => cursor.set_options(few),
                _ => {}
            }
            found = if forward { cursor.next(&mut old) } else { cursor.prev(&mut old) }.unwrap();
        }
        assert!(!found && short > 50, "{short} of the rows are short");
    }
}

#[test]
fn excerpts_of_values_are_read_until_they_are_not_wanted() {
    let rig = Rig::small();
    let payload = |i: u64| [vec![1; 20], vec![i as u8; if i.is_multiple_of(5) { 30 } else { 700 }]].concat();
    let mut a = rig.trx();
    for i in 0..300 {
        rig.insert(&mut a, &key(i), &payload(i)).unwrap();
    }
    rig.insert(&mut a, &key(300), &vec![2; 40_000]).unwrap();
    a.commit(Durability::Configured).unwrap();
    let first_and_last = |value: &[u8]| [&value[..1], &value[value.len() - 1..]].concat();
    for forward in [true, false] {
        let mut reader = rig.trx();
        let mut cursor = Cursor::new(rig.rows, plain());
        cursor.set_excerpt(Some(Box::new(move |value, out| out.extend_from_slice(&first_and_last(value)))));
        let mut found = cursor.seek(&mut reader, if forward { Seek::First } else { Seek::Last }, &[]).unwrap();
        let mut excerpts = 0;
        for n in 0..=300 {
            let i = if forward { n } else { 300 - n };
            assert!(found && cursor.key() == key(i), "row {i}");
            let whole = if i < 300 { payload(i) } else { vec![2; 40_000] };
            let is_excerpt = cursor.value() == first_and_last(&whole);
            assert!(cursor.value() == whole || is_excerpt && !(150..200).contains(&n), "row {i}");
            excerpts += u32::from(is_excerpt);
            match n {
                149 => cursor.set_excerpt(None),
                199 => {
                    cursor.set_excerpt(Some(Box::new(move |value, out| out.extend_from_slice(&first_and_last(value)))))
                }
                _ => {}
            }
            found = if forward { cursor.next(&mut reader) } else { cursor.prev(&mut reader) }.unwrap();
        }
        assert!(!found && excerpts > 150, "{excerpts} excerpts");
    }
}

/// What is in front of the overflow pages can be read alone, and changed without writing these again.
#[test]
fn updates_of_a_head_keep_the_overflow_pages() {
    let rig = Rig::small();
    let pages = || myriad_btree::alloc::pages_in_use(rig.sys.pool(), SPACE).unwrap();
    let chain = || {
        let full = [&rig.rows.id.0.to_be_bytes()[..], b"k"].concat();
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full).unwrap();
        let entry = Entry::parse(leaf.value(leaf.find(&full).unwrap()), leaf.page_id()).unwrap();
        entry.overflow().expect("a chain").first
    };
    let payload = |head: u8, tail: u8| [vec![head; 30], vec![tail; 40_000]].concat();
    let head = |t: &mut Trx| {
        let mut row = RowBuf::new();
        let mut starts = |tail_bytes| {
            assert!(t.get_head(&rig.rows, b"k", None, LockWait::Wait, tail_bytes, &mut row).unwrap());
            let mut cursor = Cursor::new(rig.rows, CursorOptions { tail_bytes, ..plain() });
            assert!(cursor.seek(t, Seek::First, &[]).unwrap());
            assert_eq!(cursor.value(), row.value());
            row.value().to_vec()
        };
        let head = starts(0);
        // By pages, of which the tail takes ten.
        let (whole, page) = (starts(usize::MAX), starts(1).len() - head.len());
        for tail_bytes in [1, 2, page, page + 1, 3 * page - 1, 9 * page, 40_000, 40_001] {
            let wanted = tail_bytes.next_multiple_of(page).min(40_000);
            assert_eq!(starts(tail_bytes), whole[..head.len() + wanted], "{tail_bytes} bytes of the tail");
        }
        head
    };
    let before = pages();
    let (mut a, mut b) = (rig.trx(), rig.trx());
    rig.insert(&mut a, b"k", &payload(1, 1)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(head(&mut b), vec![1; 30]);
    let is = |got: Option<Vec<u8>>, expect: Vec<u8>| got == Some(expect);
    let (first, stored) = (chain(), pages());
    for n in 2..5 {
        rig.update(&mut a, b"k", &payload(n, 1)).unwrap();
        assert_eq!((chain(), pages()), (first, stored));
    }
    a.commit(Durability::Configured).unwrap();
    // Another length of the head, the same tail; undone.
    let other = [vec![9; 20], vec![1; 40_000]].concat();
    let op = Op { kind: OpKind::Update, index: &rig.rows, key: b"k", unique_len: 0, payload: &other, head_len: 20 };
    a.apply(&[op]).unwrap();
    assert_eq!((chain(), pages(), head(&mut a)), (first, stored, vec![9; 20]));
    assert!(is(rig.get(&mut a, b"k"), other.clone()));
    rig.update(&mut a, b"k", &payload(4, 2)).unwrap();
    assert_ne!(chain(), first);
    a.rollback().unwrap();
    assert_eq!((chain(), pages()), (first, stored));
    assert!(is(rig.get(&mut a, b"k"), payload(4, 1)));
    a.rollback().unwrap();
    // A tail of the same length is another one.
    rig.update(&mut a, b"k", &payload(4, 3)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert!(is(rig.get(&mut b, b"k"), payload(1, 1)) && head(&mut b) == [1; 30]);
    b.rollback().unwrap();
    rig.purge_all();
    assert!(pages() == stored && is(rig.get(&mut b, b"k"), payload(4, 3)));
    b.rollback().unwrap();
    rig.delete(&mut a, b"k").unwrap();
    a.commit(Durability::Configured).unwrap();
    rig.purge_all();
    assert_eq!(pages(), before);
}

/// Who locks a row need not read all of it.
#[test]
fn locking_reads_leave_alone_what_is_not_wanted() {
    let rig = Rig::small();
    let mut a = rig.trx();
    rig.insert(&mut a, b"j", &[vec![1; 20], vec![2; 700]].concat()).unwrap();
    let op = Op {
        kind: OpKind::Insert,
        index: &rig.rows,
        key: b"k",
        unique_len: 1,
        payload: &[vec![3; 30], vec![4; 40_000]].concat(),
        head_len: 30,
    };
    a.apply(&[op]).unwrap();
    a.commit(Durability::Configured).unwrap();
    for strength in [Strength::S, Strength::X] {
        let mut t = rig.trx();
        let mut row = RowBuf::new();
        let mut cursor = Cursor::new(rig.rows, CursorOptions { value_bytes: 25, tail_bytes: 0, ..locking(strength) });
        assert!(cursor.seek(&mut t, Seek::First, &[]).unwrap());
        assert_eq!(cursor.value(), [vec![1; 20], vec![2; 5]].concat());
        assert!(cursor.next(&mut t).unwrap());
        assert_eq!(cursor.value(), [3; 30]);
        assert!(t.get_head(&rig.rows, b"k", Some(strength), LockWait::NoWait, 0, &mut row).unwrap());
        assert_eq!(row.value(), [3; 30]);
        assert!(t.get_head(&rig.rows, b"k", Some(strength), LockWait::NoWait, usize::MAX, &mut row).unwrap());
        assert_eq!(row.value().len(), 40_030);
        cursor.set_excerpt(Some(Box::new(|value, out| out.extend_from_slice(&value[18..22]))));
        assert!(cursor.seek(&mut t, Seek::First, &[]).unwrap());
        assert_eq!(cursor.value(), [1, 1, 2, 2]);
        let mut other = rig.trx();
        assert_eq!(rig.update(&mut other, b"j", b""), Err(Error::LockWaitTimeout));
    }
}

/// Who waits for another's change of the row keeps its overflow pages only if they are still the row's.
#[test]
fn pages_are_not_kept_over_another_change() {
    let rig = Rig::small();
    let payload = |head: u8, tail: u8| [vec![head; 30], vec![tail; 40_000]].concat();
    let mut a = rig.trx();
    rig.insert(&mut a, b"k", &payload(1, 1)).unwrap();
    a.commit(Durability::Configured).unwrap();
    for undone in [false, true] {
        rig.update(&mut a, b"k", &payload(2, 2)).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let mut b = rig.trx();
                b.set_lock_wait_timeout(std::time::Duration::from_secs(60));
                rig.update(&mut b, b"k", &payload(3, 2)).unwrap();
                b.commit(Durability::Configured).unwrap();
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            if undone {
                a.rollback().unwrap();
            } else {
                a.commit(Durability::Configured).unwrap();
            }
            waiter.join().unwrap();
        });
        rig.purge_all();
        let mut c = rig.trx();
        assert!(rig.get(&mut c, b"k") == Some(payload(3, 2)));
        c.rollback().unwrap();
        rig.update(&mut a, b"k", &payload(1, 1)).unwrap();
        a.commit(Durability::Configured).unwrap();
    }
}

/// An index goes with the overflow pages that its entries name; those of older versions are freed with their undo records.
#[test]
fn overflow_pages_of_older_versions_outlive_their_index() {
    for destroyed in [false, true] {
        let rig = Rig::small();
        let pool = rig.sys.pool();
        let pages = || myriad_btree::alloc::pages_in_use(pool, SPACE).unwrap();
        let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&dropped);
        rig.sys.set_index_alive(Box::new(move |id| id != ROWS || !seen.load(std::sync::atomic::Ordering::Relaxed)));
        let before = pages();
        let mut a = rig.trx();
        rig.insert(&mut a, b"k", &[1; 40_000]).unwrap();
        a.commit(Durability::Configured).unwrap();
        rig.update(&mut a, b"k", &[2; 40_000]).unwrap();
        rig.insert(&mut a, b"l", &[2; 40_000]).unwrap();
        a.commit(Durability::Configured).unwrap();
        rig.update(&mut a, b"k", &[3; 40_000]).unwrap();
        rig.delete(&mut a, b"l").unwrap();
        rig.insert(&mut a, b"l", &[3; 40_000]).unwrap();
        // As the catalog does it.
        let (lo, hi) = (ROWS.0.to_be_bytes(), (ROWS.0 + 1).to_be_bytes());
        let mut chains = Vec::new();
        let mut note = |_: &[u8], value: &[u8]| chains.extend(Entry::try_parse(value).and_then(|e| e.overflow()));
        while rig.rows.tree.remove_range(pool, &lo, &hi, 8, &mut note).unwrap() == myriad_btree::RemoveProgress::More {}
        for chain in chains {
            myriad_btree::overflow::free_overflow(pool, SPACE, chain.first).unwrap();
        }
        dropped.store(destroyed, std::sync::atomic::Ordering::Relaxed);
        a.rollback().unwrap();
        rig.purge_all();
        assert_eq!(pages(), before, "destroyed: {destroyed}");
    }
}

/// A version of a transaction that goes on may be undone, and another one get its place: its pages are not kept.
#[test]
fn pages_are_not_kept_of_a_version_that_may_be_undone() {
    let payload = |head: u8, tail: u8| [vec![head; 30], vec![tail; 40_000]].concat();
    // What is undone while another waits, and what is done instead: heads and tails.
    type Changes = &'static [(u8, u8)];
    let cases: [(Changes, Changes, u8); 2] = [
        (&[(2, 1)], &[(4, 9)], 1),
        // The new pages are where those were that the other has seen.
        (&[(2, 5), (3, 5)], &[(4, 6), (5, 6)], 5),
    ];
    for (undone, instead, tail) in cases {
        let rig = Rig::small();
        let mut a = rig.trx();
        rig.insert(&mut a, b"k", &payload(1, 1)).unwrap();
        a.commit(Durability::Configured).unwrap();
        rig.insert(&mut a, b"other", b"").unwrap();
        let savepoint = a.savepoint();
        let change = |a: &mut Trx, to: Changes| {
            to.iter().for_each(|&(head, tail)| rig.update(a, b"k", &payload(head, tail)).unwrap());
        };
        change(&mut a, undone);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let mut b = rig.trx();
                b.set_lock_wait_timeout(std::time::Duration::from_secs(60));
                rig.update(&mut b, b"k", &payload(7, tail)).unwrap();
                b.commit(Durability::Configured).unwrap();
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            a.rollback_to(savepoint).unwrap();
            change(&mut a, instead);
            a.commit(Durability::Configured).unwrap();
            waiter.join().unwrap();
        });
        rig.purge_all();
        // Takes what pages are free.
        rig.insert(&mut a, b"new", &payload(8, 8)).unwrap();
        a.commit(Durability::Configured).unwrap();
        assert!(rig.get(&mut a, b"k") == Some(payload(7, tail)));
        a.rollback().unwrap();
    }
}

#[test]
fn long_values_go_to_overflow_pages_and_are_freed() {
    let rig = Rig::small();
    let tree_pages = || myriad_btree::alloc::pages_in_use(rig.sys.pool(), SPACE).unwrap();
    let before = tree_pages();
    let long = |n: u8| vec![n; 40_000];
    let (mut a, mut b) = (rig.trx(), rig.trx());
    rig.insert(&mut a, b"k", &long(1)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(long(1)));
    rig.update(&mut a, b"k", &long(2)).unwrap();
    rig.update(&mut a, b"k", b"short").unwrap();
    rig.update(&mut a, b"k", &long(3)).unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(long(1)));
    assert_eq!(rig.get(&mut a, b"k"), Some(long(3)));
    a.rollback().unwrap();
    assert_eq!(rig.get(&mut a, b"k"), Some(long(1)));
    a.rollback().unwrap();
    rig.update(&mut a, b"k", &long(4)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.get(&mut b, b"k"), Some(long(1)));
    assert_eq!(rig.scan(&mut b, &rig.rows, true), [(b"k".to_vec(), long(1))]);
    rig.delete(&mut a, b"k").unwrap();
    a.commit(Durability::Configured).unwrap();
    b.rollback().unwrap();
    rig.purge_all();
    assert_eq!(tree_pages(), before);
    rig.insert(&mut a, b"other", &long(5)).unwrap();
    assert!(rig.insert(&mut a, b"other", &long(6)).is_err());
    a.rollback().unwrap();
    assert_eq!(tree_pages(), before);
}

#[test]
fn a_row_is_changed_whole_or_not() {
    let rig = Rig::small();
    let mut a = rig.trx();
    let row = |pk: &'static [u8], full: &'static [u8]| {
        [
            Op { kind: OpKind::Insert, index: &rig.rows, key: pk, unique_len: pk.len(), payload: b"row", head_len: 0 },
            Op { kind: OpKind::Insert, index: &rig.names, key: full, unique_len: 3, payload: b"", head_len: 0 },
        ]
    };
    a.apply(&row(b"1", b"ann1")).unwrap();
    let e = a.apply(&row(b"2", b"ann2")).unwrap_err();
    assert_eq!(e.op, 1);
    assert!(matches!(e.error, Error::DuplicateKey { index: BY_NAME }));
    assert_eq!(a.duplicate_key(), b"ann1");
    assert_eq!(rig.get(&mut a, b"2"), None);
    assert_eq!(rig.scan(&mut a, &rig.names, true).len(), 1);
    a.apply(&row(b"2", b"bob2")).unwrap();
    a.commit(Durability::Configured).unwrap();
    let mut out = RowBuf::new();
    assert!(a.get(&rig.names, b"bob", true, None, LockWait::Wait, &mut out).unwrap());
    assert_eq!(out.key(), b"bob2");
    assert!(a.get(&rig.names, b"bob", true, Some(Strength::X), LockWait::Wait, &mut out).unwrap());
    assert!(!a.get(&rig.names, b"cat", true, Some(Strength::X), LockWait::Wait, &mut out).unwrap());
}

#[test]
fn savepoints() {
    let rig = Rig::small();
    let mut a = rig.trx();
    for i in 0..300 {
        rig.insert(&mut a, &key(i), &[1; 100]).unwrap();
    }
    let sp = a.savepoint();
    for i in 0..300 {
        rig.update(&mut a, &key(i), &[2; 150]).unwrap();
    }
    let inner = a.savepoint();
    for i in 0..200 {
        rig.delete(&mut a, &key(i)).unwrap();
    }
    assert_eq!(rig.scan(&mut a, &rig.rows, true).len(), 100);
    a.rollback_to(inner).unwrap();
    assert!(rig.scan(&mut a, &rig.rows, true).iter().all(|r| r.1 == [2; 150]));
    a.rollback_to(sp).unwrap();
    a.rollback_to(inner).unwrap();
    let rows = rig.scan(&mut a, &rig.rows, true);
    assert_eq!(rows.len(), 300);
    assert!(rows.iter().all(|r| r.1 == [1; 100]));
    a.commit(Durability::Configured).unwrap();
    rig.purge_all();
    assert_eq!(rig.scan(&mut a, &rig.rows, false).len(), 300);
    a.rollback().unwrap();
    for i in 0..300 {
        rig.delete(&mut a, &key(i)).unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    rig.purge_all();
    assert_eq!((rig.entries(), rig.sys.purge_stats().history), (0, 0));
    assert!(rig.sys.purge_stats().undo_pages <= 12);
}

#[test]
fn cursors_find_their_way() {
    let rig = Rig::small();
    let mut a = rig.trx();
    for i in (0..2000u64).step_by(2) {
        rig.insert(&mut a, &key(i), &vec![i as u8; (i % 90) as usize]).unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    for lock in [None, Some(Strength::S)] {
        let mut c = Cursor::new(rig.rows, CursorOptions { lock, ..plain() });
        let mut at = |seek, n: u64| {
            c.seek(&mut a, seek, &key(n)).unwrap().then(|| u64::from_be_bytes(c.key().try_into().unwrap()))
        };
        assert_eq!(at(Seek::Ge, 100), Some(100));
        assert_eq!(at(Seek::Ge, 101), Some(102));
        assert_eq!(at(Seek::Gt, 100), Some(102));
        assert_eq!(at(Seek::Le, 100), Some(100));
        assert_eq!(at(Seek::Le, 101), Some(100));
        assert_eq!(at(Seek::Lt, 100), Some(98));
        assert_eq!(at(Seek::Lt, 0), None);
        assert_eq!(at(Seek::Gt, 1998), None);
        assert_eq!(at(Seek::ExactUnique, 500), Some(500));
        assert_eq!(at(Seek::ExactUnique, 501), None);
        assert_eq!(at(Seek::Exact, 501), None);
        assert_eq!(at(Seek::First, 9), Some(0));
        assert_eq!(at(Seek::Last, 9), Some(1998));
        // A prefix: 256 numbers share all but the last byte.
        assert!(c.seek(&mut a, Seek::Exact, &key(512)[..7]).unwrap());
        let mut n = 1;
        while c.next(&mut a).unwrap() {
            n += 1;
        }
        assert_eq!(n, 128);
        assert!(c.seek(&mut a, Seek::Le, &key(512)[..7]).unwrap());
        assert_eq!(c.key(), key(766));
        assert!(c.seek(&mut a, Seek::ExactLast, &key(512)[..7]).unwrap());
        assert_eq!(c.key(), key(766));
        let mut n = 1;
        while c.prev(&mut a).unwrap() {
            n += 1;
        }
        assert_eq!(n, 128);
        assert!(!c.seek(&mut a, Seek::ExactLast, &key(2048)[..7]).unwrap());
        // To and fro.
        assert!(c.seek(&mut a, Seek::Ge, &key(1000)).unwrap());
        for _ in 0..150 {
            assert!(c.next(&mut a).unwrap());
        }
        assert_eq!(c.key(), key(1300));
        for _ in 0..200 {
            assert!(c.prev(&mut a).unwrap());
        }
        assert_eq!(c.key(), key(900));
        assert!(c.next(&mut a).unwrap());
        assert_eq!(c.key(), key(902));
    }
    assert_eq!(a.count(&rig.rows).unwrap(), 1000);
    assert_eq!(a.count(&rig.names).unwrap(), 0);
    let mut c = Cursor::new(rig.rows, plain());
    c.set_bounds(&key(100), &key(200));
    assert!(c.seek(&mut a, Seek::Ge, &key(100)).unwrap());
    let mut n = 1;
    while c.next(&mut a).unwrap() {
        n += 1;
    }
    assert_eq!((n, c.key()), (51, &key(200)[..]));
}

/// A locking cursor shows what follows in its leaf without locking it, or going anywhere.
#[test]
fn a_locking_cursor_looks_ahead() {
    let rig = Rig::small();
    let mut a = rig.trx_at(Isolation::ReadCommitted);
    for i in (0..40u64).chain([60, 70, 80]) {
        rig.insert(&mut a, &key(i), format!("v{i}").as_bytes()).unwrap();
    }
    rig.delete(&mut a, &key(12)).unwrap();
    a.commit(Durability::Configured).unwrap();
    let ahead = |c: &mut Cursor, max| -> Vec<u64> {
        let there = c.look_ahead(&rig.sys, max);
        assert!(c.peek(there + 1).is_none());
        let number = |(k, v): (&[u8], &[u8])| {
            let n = u64::from_be_bytes(k.try_into().unwrap());
            assert_eq!(v, format!("v{n}").as_bytes());
            n
        };
        (1..=there).map(|n| number(c.peek(n).unwrap())).collect()
    };
    let mut c = Cursor::new(rig.rows, locking(Strength::X));
    assert!(c.seek(&mut a, Seek::Ge, &key(10)).unwrap());
    assert_eq!(ahead(&mut c, 4), [11, 13, 14], "four entries, one of them deleted");
    assert_eq!((c.key(), c.value()), (&key(10)[..], &b"v10"[..]));
    assert_eq!(ahead(&mut c, 4), [11, 13, 14], "once more");
    assert!(c.next(&mut a).unwrap());
    assert_eq!((c.key(), c.value()), (&key(11)[..], &b"v11"[..]));
    // Another has them still.
    let mut b = rig.trx_at(Isolation::ReadCommitted);
    assert!(rig.lock(&mut b, &key(14), Strength::X).is_ok());
    assert!(rig.lock(&mut b, &key(11), Strength::X).is_err());
    b.commit(Durability::Configured).unwrap();
    // Not beyond the bounds, where the cursor itself goes on.
    c.set_bounds(&[], &key(15));
    assert_eq!(ahead(&mut c, 9), [13, 14, 15]);
    assert!(c.seek(&mut a, Seek::Ge, &key(15)).unwrap());
    assert!(ahead(&mut c, 9).is_empty());
    assert!(c.next(&mut a).unwrap());
    assert_eq!(c.key(), key(16));
    c.set_bounds(&[], &[]);
    // Backward, and to the end.
    assert!(c.seek(&mut a, Seek::Le, &key(20)).unwrap());
    assert_eq!(ahead(&mut c, 3), [19, 18, 17]);
    assert!(c.prev(&mut a).unwrap());
    assert_eq!(c.key(), key(19));
    assert!(c.seek(&mut a, Seek::Ge, &key(60)).unwrap());
    assert_eq!(ahead(&mut c, 9), [70, 80]);
    // The leaf has changed: nothing is looked at before the next step.
    assert!(c.next(&mut a).unwrap());
    rig.insert(&mut a, &key(75), b"v75").unwrap();
    assert!(ahead(&mut c, 9).is_empty());
    assert!(c.next(&mut a).unwrap());
    assert_eq!(c.key(), key(75));
    assert_eq!(ahead(&mut c, 9), [80]);
}

#[test]
fn a_cursor_sees_its_own_transactions_changes() {
    let rig = Rig::small();
    let mut a = rig.trx();
    for i in 0..500u64 {
        rig.insert(&mut a, &key(i), b"x").unwrap();
    }
    let mut c = Cursor::new(rig.rows, plain());
    assert!(c.seek(&mut a, Seek::First, &[]).unwrap());
    let mut n = 1;
    while c.next(&mut a).unwrap() {
        n += 1;
        let at = u64::from_be_bytes(c.key().try_into().unwrap());
        if at % 3 == 0 && at < 499 {
            rig.delete(&mut a, &key(at + 1)).unwrap();
        }
    }
    assert_eq!(n, 334);
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Several transactions take turns in a clustered index or, its entries stored as those of a secondary one, in that; every
/// snapshot is checked against what was committed when it was opened.
fn interleaved(seed: u64, clustered: bool) {
    let mut rig = Rig::new(seed, 120, false);
    rig.rows.clustered = clustered;
    let mut random = Random::from_seed(seed);
    let mut committed = Rows::new();
    for n in (0..150).step_by(2) {
        rig.sys.put_unversioned(&rig.rows, &key(n), b"old").unwrap();
        committed.insert(key(n), b"old".to_vec());
    }
    let isolations = [Isolation::RepeatableRead, Isolation::ReadCommitted, Isolation::RepeatableRead];
    let mut trx: Vec<Trx> = isolations.iter().map(|i| rig.trx_at(*i)).collect();
    // What each sees: its snapshot with its own changes over it; and its savepoints.
    let mut seen: Vec<Option<Rows>> = vec![None; 3];
    let mut own: Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>> = vec![BTreeMap::new(); 3];
    for _ in 0..3000 {
        let i = random.below(3) as usize;
        let t = &mut trx[i];
        let k = key(random.below(150));
        match random.below(40) {
            0..=1 => {
                t.commit(Durability::None).unwrap();
                for (k, v) in std::mem::take(&mut own[i]) {
                    match v {
                        Some(v) => drop(committed.insert(k, v)),
                        None => drop(committed.remove(&k)),
                    }
                }
                seen[i] = None;
            }
            2 => {
                t.rollback().unwrap();
                own[i].clear();
                seen[i] = None;
            }
            3..=6 => {
                if t.isolation() == Isolation::ReadCommitted {
                    t.end_statement();
                    seen[i] = None;
                }
                let mut expect = seen[i].get_or_insert_with(|| committed.clone()).clone();
                for (k, v) in &own[i] {
                    match v {
                        Some(v) => drop(expect.insert(k.clone(), v.clone())),
                        None => drop(expect.remove(k)),
                    }
                }
                let got = rig.scan(t, &rig.rows, random.one_in(2));
                assert_eq!(got, expect.clone().into_iter().collect::<Vec<_>>(), "seed {seed}");
                assert_eq!(t.count(&rig.rows).unwrap(), expect.len() as u64);
                assert_eq!(rig.get(t, &k), expect.get(&k).cloned());
            }
            7..=9 => drop(rig.sys.purge_step().unwrap()),
            10 => {
                // A statement that is undone.
                let sp = t.savepoint();
                for _ in 0..random.below(5) {
                    let k = key(random.below(150));
                    if let Ok(Some(_)) = rig.lock(t, &k, Strength::X) {
                        rig.update(t, &k, b"to be undone").unwrap();
                    }
                }
                t.rollback_to(sp).unwrap();
            }
            _ => {
                let now = rig.lock(t, &k, Strength::X);
                let Ok(now) = now else { continue };
                let expect = own[i].get(&k).cloned().unwrap_or_else(|| committed.get(&k).cloned());
                assert_eq!(now, expect, "seed {seed}");
                let long = if random.one_in(30) { 3000 } else { 120 };
                let payload = vec![random.next_u64() as u8; random.below(long) as usize];
                let done = match now {
                    None => rig.insert(t, &k, &payload).map(|()| Some(payload)),
                    Some(_) if random.one_in(3) => rig.delete(t, &k).map(|()| None),
                    Some(old) => {
                        let payload = maybe_same_tail(&mut random, &old, payload);
                        rig.update(t, &k, &payload).map(|()| Some(payload))
                    }
                };
                match done {
                    Ok(v) => drop(own[i].insert(k, v)),
                    Err(Error::LockWaitTimeout) => {}
                    Err(Error::Deadlock) => {
                        t.rollback().unwrap();
                        own[i].clear();
                        seen[i] = None;
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
    for t in &mut trx {
        t.rollback().unwrap();
    }
    rig.purge_all();
    assert_eq!(rig.sys.purge_stats().history, 0);
    assert_eq!(rig.entries(), committed.len(), "seed {seed}: nothing dead is left");
    assert!(rig.sys.locks().stats().waiting_now == 0);
}

#[test]
fn interleaved_transactions_agree_with_the_model() {
    for seed in super::crash::seeds(8) {
        interleaved(seed, true);
        interleaved(seed, false);
    }
}

/// Bytes of the stored value of a key.
fn stored_bytes(rig: &Rig, index: &Index, key: &[u8]) -> Option<usize> {
    let full = [&index.id.0.to_be_bytes(), key].concat();
    let leaf = index.tree.seek(rig.sys.pool(), &full).unwrap();
    leaf.find(&full).ok().map(|slot| leaf.value(slot).len())
}

#[test]
fn secondary_entries_have_short_headers() {
    let rig = Rig::small();
    let names = &rig.names;
    let apply = |t: &mut Trx, kind, row: &[u8]| {
        let name = [b"n", row].concat();
        let op = |index, key| Op { kind, index, key, unique_len: 0, payload: &[], head_len: 0 };
        t.apply(&[op(&rig.rows, row), op(names, &name)]).unwrap();
    };
    let (mut a, long) = (rig.trx(), [b'x'; 40]);
    rig.sys.put_unversioned(&rig.rows, b"0", b"").unwrap();
    rig.sys.put_unversioned(names, b"n0", b"").unwrap();
    let mut old = rig.trx();
    old.open_snapshot();
    apply(&mut a, OpKind::Insert, b"1");
    apply(&mut a, OpKind::Insert, &long);
    assert_eq!(stored_bytes(&rig, &rig.rows, b"1"), Some(13), "a row's next version needs the room");
    assert_eq!(stored_bytes(&rig, names, b"n1"), Some(7));
    assert_eq!(stored_bytes(&rig, names, &[b"n", &long[..]].concat()), Some(8));
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.scan(&mut old, names, true).len(), 1, "the new entries' older versions are nothing");
    apply(&mut a, OpKind::Delete, b"1");
    assert_eq!(stored_bytes(&rig, names, b"n1"), Some(13), "the old snapshot does not see what was marked");
    apply(&mut a, OpKind::Delete, b"0");
    assert_eq!(stored_bytes(&rig, names, b"n0"), Some(7));
    assert_eq!(rig.scan(&mut old, names, true), [(b"n0".to_vec(), vec![])]);
    assert_eq!(rig.scan(&mut a, names, true).len(), 1);
    a.rollback().unwrap();
    assert_eq!((stored_bytes(&rig, names, b"n0"), stored_bytes(&rig, names, b"n1")), (Some(1), Some(7)));
    old.rollback().unwrap();
    rig.purge_all();
    apply(&mut a, OpKind::Delete, b"1");
    assert_eq!(stored_bytes(&rig, names, b"n1"), Some(7), "everybody sees what was marked");
    apply(&mut a, OpKind::Delete, b"0");
    let savepoint = a.savepoint();
    apply(&mut a, OpKind::Insert, b"0");
    assert_eq!(rig.scan(&mut a, names, true).len(), 2);
    a.rollback_to(savepoint).unwrap();
    a.commit(Durability::Sync).unwrap();
    drop(a);
    // Purge may have lost the logs' headers and must know the marks by themselves then.
    let rig = rig.crashed(1, 400);
    rig.purge_all();
    assert_eq!(stored_bytes(&rig, &rig.names, b"n0"), None);
    assert_eq!(stored_bytes(&rig, &rig.names, b"n1"), None);
    assert_eq!(rig.entries(), 2);
}

#[test]
fn unversioned_entries() {
    let rig = Rig::small();
    let mut out = Vec::new();
    assert!(!rig.sys.get_newest(&rig.rows, b"c", &mut out).unwrap());
    rig.sys.put_unversioned(&rig.rows, b"c", b"1").unwrap();
    rig.sys.put_unversioned(&rig.rows, b"c", b"22").unwrap();
    assert!(rig.sys.get_newest(&rig.rows, b"c", &mut out).unwrap());
    assert_eq!(out, b"22");
    let mut t = rig.trx();
    assert_eq!(rig.get(&mut t, b"c"), Some(b"22".to_vec()));
    rig.update(&mut t, b"c", b"333").unwrap();
    t.rollback().unwrap();
    assert_eq!(rig.get(&mut t, b"c"), Some(b"22".to_vec()));
    assert!(rig.sys.remove_unversioned(&rig.rows, b"c").unwrap());
    assert!(!rig.sys.remove_unversioned(&rig.rows, b"c").unwrap());
    let op = |k, key: &'static [u8]| Op { kind: k, index: &rig.names, key, unique_len: 1, payload: b"p", head_len: 0 };
    let mut places = Vec::new();
    t.apply_bulk(&[op(OpKind::Insert, b"ab"), op(OpKind::Insert, b"bb")], &mut places).unwrap();
    assert_eq!(t.apply_bulk(&[op(OpKind::Insert, b"ac")], &mut places).unwrap_err().op, 0);
    assert_eq!(t.duplicate_key(), b"ab");
    t.apply_bulk(&[op(OpKind::Delete, b"ab"), op(OpKind::Insert, b"ac")], &mut places).unwrap();
    assert_eq!(rig.scan(&mut t, &rig.names, true).len(), 2);
}

/// What a transaction that met the full disk gave back is there for the next ones.
#[test]
fn free_undo_pages_are_used_on_a_full_disk() {
    let rig = Rig::small();
    let mut a = rig.trx();
    for n in 0..20 {
        rig.insert(&mut a, &key(n), &[1; 500]).unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    rig.sim.set_capacity(Some(rig.sim.used_bytes() + 60 * 4096));
    let full = (0..100_000u64).find_map(|n| rig.update(&mut a, &key(n % 20), &[n as u8; 500]).err());
    assert!(matches!(full, Some(Error::DiskFull { .. })), "{full:?}");
    a.rollback().unwrap();
    for round in 0..10u8 {
        let mut b = rig.trx();
        for n in 0..40u64 {
            rig.update(&mut b, &key(n % 20), &[round; 500]).unwrap();
        }
        b.commit(Durability::Configured).unwrap();
        rig.purge_all();
    }
    assert_eq!(rig.get(&mut a, &key(3)), Some(vec![9; 500]));
}
