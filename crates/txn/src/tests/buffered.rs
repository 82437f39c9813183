//! Entries of secondary indexes whose leaves are not in memory.

use super::*;
use myriad_base::ids::mix;
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::random::Random;
use myriad_base::{PageId, PageNo};
use std::collections::{BTreeMap, BTreeSet};

/// Row key to the number that its name is made of.
type Rows = BTreeMap<u64, u64>;

/// The secondary key of a row: in no order, and long enough that few fit a leaf.
fn name(row: u64, number: u64) -> Vec<u8> {
    let mut n = mix(number).to_be_bytes()[..3].to_vec();
    n.extend_from_slice(&[b'n'; 60]);
    n.extend_from_slice(&key(row));
    n
}

fn op<'a>(kind: OpKind, index: &'a Index, key: &'a [u8], payload: &'a [u8]) -> Op<'a> {
    Op { kind, index, key, unique_len: 0, payload, head_len: 0 }
}

fn insert(rig: &Rig, t: &mut Trx, row: u64, number: u64) -> Result<()> {
    let (k, n) = (key(row), name(row, number));
    let payload = number.to_be_bytes();
    t.apply(&[op(OpKind::Insert, &rig.rows, &k, &payload), op(OpKind::Insert, &rig.names, &n, &[])])
        .map_err(|e| e.error)
}

fn change(rig: &Rig, t: &mut Trx, row: u64, from: u64, to: Option<u64>) {
    let (k, old) = (key(row), name(row, from));
    let delete = op(OpKind::Delete, &rig.names, &old, &[]);
    match to {
        None => t.apply(&[op(OpKind::Delete, &rig.rows, &k, &[]), delete]).unwrap(),
        Some(to) => {
            let (new, payload) = (name(row, to), to.to_be_bytes());
            let insert = op(OpKind::Insert, &rig.names, &new, &[]);
            t.apply(&[op(OpKind::Update, &rig.rows, &k, &payload), delete, insert]).unwrap();
        }
    }
}

fn check(rig: &Rig, t: &mut Trx, expect: &Rows, what: &str) {
    let rows: Vec<_> = rig.scan(t, &rig.rows, true);
    let wanted: Vec<_> = expect.iter().map(|(r, n)| (key(*r), n.to_be_bytes().to_vec())).collect();
    assert_eq!(rows, wanted, "{what}: rows");
    let names: Vec<_> = rig.scan(t, &rig.names, false).into_iter().map(|r| r.0).collect();
    let wanted: BTreeSet<_> = expect.iter().map(|(r, n)| name(*r, *n)).collect();
    assert_eq!(names, wanted.into_iter().collect::<Vec<_>>(), "{what}: names");
}

/// A table with an index larger than the pool, of whose leaves most are not in memory.
fn filled(seed: u64, frames: usize, rows: u64) -> (Rig, Rows) {
    let rig = Rig::new(seed, frames, false);
    let mut all = Rows::new();
    let mut t = rig.trx();
    for row in 0..rows {
        insert(&rig, &mut t, row * 2, row).unwrap();
        all.insert(row * 2, row);
        if row % 50 == 49 {
            t.commit(Durability::None).unwrap();
        }
    }
    t.commit(Durability::Sync).unwrap();
    (rig, all)
}

fn buffered(rig: &Rig) -> u64 {
    rig.sys.pool().stats().changes_buffered
}

/// Inserts a row whose name goes to a leaf that is not in memory, and stays in the change buffer; its key and number.
fn insert_buffered(rig: &Rig, t: &mut Trx, from: u64) -> (u64, u64) {
    for i in from..from + 2000 {
        let before = buffered(rig);
        insert(rig, t, 1_000_001 + i * 2, i).unwrap();
        if buffered(rig) > before {
            return (1_000_001 + i * 2, i);
        }
    }
    unreachable!("the index is larger than memory");
}

#[test]
fn buffered_entries_are_seen_and_locked_like_others() {
    let (rig, _) = filled(1, 64, 4000);
    assert!(buffered(&rig) > 500, "{} of 4000 entries were buffered", buffered(&rig));
    let find = |t: &mut Trx, options: CursorOptions, (row, number): (u64, u64)| {
        let n = name(row, number);
        let mut cursor = Cursor::new(rig.names, options);
        Ok::<bool, Error>(cursor.seek(t, Seek::Ge, &n)? && cursor.key() == n)
    };
    let (mut a, mut b, mut c) = (rig.trx(), rig.trx(), rig.trx());
    a.open_snapshot();
    let first = insert_buffered(&rig, &mut b, 0);
    assert!(find(&mut b, plain(), first).unwrap(), "one's own");
    let second = insert_buffered(&rig, &mut b, first.1 + 1);
    assert!(!find(&mut a, plain(), second).unwrap(), "not committed");
    let third = insert_buffered(&rig, &mut b, second.1 + 1);
    assert!(is_blocked(find(&mut c, locking(Strength::S), third)), "implicitly locked");
    c.rollback().unwrap();
    b.commit(Durability::Configured).unwrap();
    let fourth = insert_buffered(&rig, &mut b, third.1 + 1);
    b.commit(Durability::Configured).unwrap();
    assert!(!find(&mut a, plain(), fourth).unwrap(), "younger than the snapshot");
    assert!(find(&mut a, locking(Strength::S), fourth).unwrap(), "committed");
    a.commit(Durability::Configured).unwrap();
    assert!([first, second, third, fourth].iter().all(|&row| find(&mut a, plain(), row).unwrap()));
}

#[test]
fn duplicates_are_found_in_leaves_that_are_not_in_memory() {
    let (rig, _) = filled(5, 64, 4000);
    let mut t = rig.trx();
    for number in 0..200 {
        let row = 2_000_001 + 2 * number;
        let (k, n) = (key(row), name(row, number));
        let unique = Op { unique_len: n.len() - k.len(), ..op(OpKind::Insert, &rig.names, &n, &[]) };
        let done = t.apply(&[op(OpKind::Insert, &rig.rows, &k, b"row"), unique]);
        assert!(matches!(done.map_err(|e| e.error), Err(Error::DuplicateKey { .. })), "{number}");
        // Nothing is buffered while somebody has locks.
        t.rollback().unwrap();
    }
    assert_eq!(rig.scan(&mut t, &rig.names, true).len(), 4000);
}

#[test]
fn locked_gaps_keep_entries_out_of_leaves_that_are_not_in_memory() {
    let (rig, _) = filled(2, 64, 4000);
    let (mut reader, mut writer) = (rig.trx(), rig.trx());
    // Every gap of the index.
    let mut cursor = Cursor::new(rig.names, locking(Strength::S));
    let mut more = cursor.seek(&mut reader, Seek::First, &[]).unwrap();
    while more {
        more = cursor.next(&mut reader).unwrap();
    }
    let before = buffered(&rig);
    for i in 0..200 {
        assert!(is_blocked(insert(&rig, &mut writer, 2_000_001 + 2 * i, i)), "{i}");
        writer.rollback().unwrap();
    }
    assert_eq!(buffered(&rig), before, "nothing is buffered while somebody has locks");
    reader.commit(Durability::Configured).unwrap();
    let (row, _) = insert_buffered(&rig, &mut writer, 0);
    writer.rollback().unwrap();
    assert_eq!(rig.get(&mut reader, &key(row)), None);
    assert_eq!(rig.scan(&mut reader, &rig.names, true).len(), 4000);
}

/// A lock that a change has waited for is kept when the change is undone: nobody changes that entry unread.
#[test]
fn what_is_locked_after_a_wait_is_not_changed_unread() {
    let (rig, all) = filled(8, 64, 4000);
    rig.purge_all();
    // The index's first entry: a walk over all leaves drives its leaf out.
    let (&row, &number) = all.iter().min_by_key(|(&row, &number)| name(row, number)).unwrap();
    let (mut holder, mut waiter, mut other) = (rig.trx(), rig.trx(), rig.trx());
    change(&rig, &mut holder, row, number, None);
    holder.commit(Durability::Sync).unwrap();
    let mut cursor = Cursor::new(rig.names, locking(Strength::S));
    assert!(cursor.seek(&mut holder, Seek::Ge, &name(row, number)).unwrap());
    waiter.set_lock_wait_timeout(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| insert(&rig, &mut waiter, row, number));
        while rig.sys.locks().stats().waiting_now == 0 {
            std::thread::yield_now();
        }
        holder.commit(Durability::Sync).unwrap();
        waiting.join().unwrap().unwrap();
    });
    waiter.rollback_to(Savepoint(0)).unwrap();
    rig.leaves();
    rig.purge_all();
    assert!(is_blocked(insert(&rig, &mut other, row, number)));
}

#[test]
fn changes_go_to_their_pages_in_the_background_and_hold_the_checkpoint_until_then() {
    let (rig, mut all) = filled(3, 64, 4000);
    let pool = rig.sys.pool();
    pool.checkpoint_now().unwrap();
    let s = pool.stats();
    assert_eq!((s.change_buffer_pages, s.change_buffer_bytes, s.changes_buffered), (0, 0, s.changes_merged));
    let mut t = rig.trx();
    let (row, number) = insert_buffered(&rig, &mut t, 0);
    all.extend((0..=number).map(|n| (1_000_001 + n * 2, n)));
    assert!(all.contains_key(&row));
    t.commit(Durability::Sync).unwrap();
    assert!(pool.stats().change_buffer_pages > 0);
    // A crash now: the log alone has them.
    let crashed = rig.crashed(1, 64);
    check(&crashed, &mut crashed.trx(), &all, "after a crash");
    while pool.step_background().unwrap() {}
    let s = pool.stats();
    assert_eq!((s.change_buffer_pages, s.checkpoint_age), (0, 0));
    pool.set_change_buffer(0);
    let before = buffered(&rig);
    for i in 0..300 {
        insert(&rig, &mut t, 3_000_001 + i * 2, i).unwrap();
        all.insert(3_000_001 + i * 2, i);
    }
    t.commit(Durability::Configured).unwrap();
    assert_eq!(buffered(&rig), before, "switched off");
    check(&rig, &mut t, &all, "at last");
}

#[test]
fn marks_and_removals_are_buffered_too() {
    let (rig, mut all) = filled(4, 64, 4000);
    rig.purge_all();
    let mut t = rig.trx();
    let remove = |t: &mut Trx, all: &mut Rows| {
        let before = buffered(&rig);
        for i in 0..300 {
            let row = i * 26;
            change(&rig, t, row, all[&row], None);
            all.remove(&row);
        }
        assert!(buffered(&rig) > before + 100, "{} marks", buffered(&rig) - before);
    };
    remove(&mut t, &mut all.clone());
    t.rollback().unwrap();
    check(&rig, &mut t, &all, "rolled back");
    t.rollback().unwrap();
    let mut old = rig.trx();
    old.open_snapshot();
    let before = all.clone();
    remove(&mut t, &mut all);
    t.commit(Durability::Sync).unwrap();
    check(&rig, &mut t, &all, "without the rows");
    check(&rig, &mut old, &before, "the old snapshot");
    t.commit(Durability::Sync).unwrap();
    drop(old);
    let before = buffered(&rig);
    rig.purge_all();
    assert!(buffered(&rig) > before + 100, "{} removals", buffered(&rig) - before);
    let crashed = rig.crashed(5, 64);
    for (rig, what) in [(&rig, "purged"), (&crashed, "after a crash")] {
        rig.purge_all();
        assert_eq!(rig.entries(), 2 * all.len(), "{what}");
        check(rig, &mut rig.trx(), &all, what);
    }
}

/// Pages of the tablespace that are in use for long values.
fn overflow_pages(rig: &Rig) -> usize {
    let pool = rig.sys.pool();
    let pages = pool.spaces().get(SPACE).unwrap().pages_in_file();
    let ids = (0..pages).map(|page| PageId::new(SPACE, PageNo(page)));
    ids.filter(|&id| {
        myriad_btree::alloc::is_in_use(pool, id).unwrap()
            && pool.fix_shared(id).unwrap()[OFF_KIND] == PageKind::Overflow as u8
    })
    .count()
}

#[test]
fn entries_with_overflow_pages_go_with_them() {
    const LONG: u64 = 100;
    let (rig, _) = filled(7, 64, 4000);
    let long = |row: u64| [&mix(row).to_be_bytes()[..3], &[b'l'; 300], &key(row)].concat();
    let mut t = rig.trx();
    for row in 10_000..10_000 + LONG {
        let insert = |index, key| Op { payload: &[1; 3000], ..op(OpKind::Insert, index, key, &[]) };
        t.apply(&[op(OpKind::Insert, &rig.rows, &key(row), &[]), insert(&rig.names, &long(row))]).unwrap();
    }
    t.commit(Durability::Sync).unwrap();
    assert_eq!(overflow_pages(&rig), LONG as usize);
    rig.purge_all();
    for row in 10_000..10_000 + LONG {
        t.apply(&[op(OpKind::Delete, &rig.rows, &key(row), &[]), op(OpKind::Delete, &rig.names, &long(row), &[])])
            .unwrap();
    }
    t.commit(Durability::Sync).unwrap();
    overflow_pages(&rig); // Other pages drive the leaves out.
    rig.purge_all();
    assert_eq!((rig.entries(), overflow_pages(&rig)), (8000, 0));
}

#[test]
fn an_index_that_is_emptied_gives_its_leaves_back() {
    let (rig, all) = filled(6, 64, 4000);
    rig.purge_all();
    let mut t = rig.trx();
    for (row, number) in &all {
        change(&rig, &mut t, *row, *number, None);
        if row % 100 == 0 {
            t.commit(Durability::Sync).unwrap();
            rig.purge_all();
        }
    }
    t.commit(Durability::Sync).unwrap();
    rig.purge_all();
    rig.sys.pool().checkpoint_now().unwrap();
    assert_eq!(rig.entries(), 0);
    let leaves = rig.leaves();
    assert!(leaves < 60, "{leaves} leaves hold nothing");
}

/// One step of a random transaction: rows come, go and come back under the same key.
fn step(rig: &Rig, t: &mut Trx, rows: &mut Rows, random: &mut Random) {
    let row = random.below(6000);
    let number = random.below(1 << 30);
    match rows.get(&row).copied() {
        None => {
            insert(rig, t, row, number).unwrap();
            rows.insert(row, number);
        }
        Some(old) if random.one_in(2) => {
            change(rig, t, row, old, None);
            rows.remove(&row);
        }
        Some(old) => {
            change(rig, t, row, old, Some(number));
            rows.insert(row, number);
        }
    }
}

fn crash_loop(seed: u64) -> u64 {
    let mut random = Random::from_seed(seed);
    let (mut rig, mut all) = filled(seed, 64, 2500);
    let mut count = 0;
    for round in 0..4 {
        if random.one_in(2) {
            // All that was marked becomes seen by everybody, and its purge can be buffered.
            let _ = rig.sys.purge_step().unwrap();
        }
        let mut old = rig.trx();
        old.open_snapshot();
        let before = all.clone();
        for _ in 0..40 {
            let mut t = rig.trx();
            let mut next = all.clone();
            for _ in 0..=random.below(15) {
                step(&rig, &mut t, &mut next, &mut random);
            }
            match random.below(6) {
                0 => t.rollback().unwrap(),
                1 => {
                    let savepoint = t.savepoint();
                    let mut scrap = next.clone();
                    for _ in 0..8 {
                        step(&rig, &mut t, &mut scrap, &mut random);
                    }
                    t.rollback_to(savepoint).unwrap();
                    t.commit(Durability::Sync).unwrap();
                    all = next;
                }
                _ => {
                    t.commit(Durability::Sync).unwrap();
                    all = next;
                }
            }
            match random.below(12) {
                0 => drop(rig.sys.pool().step_background().unwrap()),
                1 => rig.sys.pool().checkpoint_now().unwrap(),
                2..=5 => drop(rig.sys.purge_step().unwrap()),
                6 => check(&rig, &mut old, &before, &format!("seed {seed} round {round}, an old snapshot")),
                _ => {}
            }
        }
        check(&rig, &mut old, &before, &format!("seed {seed} round {round}, the old snapshot"));
        drop(old);
        count += buffered(&rig);
        let mut loser = rig.trx();
        let mut scrap = all.clone();
        for _ in 0..random.below(40) {
            step(&rig, &mut loser, &mut scrap, &mut random);
        }
        rig.sys.flush_log().unwrap();
        let crashed = rig.crashed(random.next_u64(), 64);
        drop(loser); // Undone on the disk that is gone.
        rig = crashed;
        while rig.sys.rollback_losers_step().unwrap() {}
        check(&rig, &mut rig.trx(), &all, &format!("seed {seed} round {round}, after a crash"));
        if random.one_in(2) {
            rig.purge_all();
            assert_eq!(rig.entries(), 2 * all.len(), "seed {seed} round {round}");
        }
    }
    count
}

#[test]
fn rows_that_come_and_go_survive_crashes() {
    let count: u64 = super::crash::seeds(12).map(crash_loop).sum();
    assert!(count > 1000, "{count} entries were buffered");
}
