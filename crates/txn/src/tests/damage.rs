//! Pages with a right checksum and wrong contents: an error, nobody waits for ever, the engine goes on.

use super::*;
use crate::undo::page::{self as undo, undo_page};
use crate::undo::record;
use crate::undo::space::UndoSpace;
use crate::value::Entry;
use myriad_base::codec::{get_u16, get_u32, get_u64};
use myriad_base::{PageId, PageNo, RollPtr};
use myriad_btree::{page, Leaf};
use myriad_buffer::Mtr;

/// Overwrites bytes of a page as no code would.
pub(crate) fn damage(rig: &Rig, id: PageId, at: usize, bytes: &[u8]) {
    let mut mtr = Mtr::start(rig.sys.pool()).unwrap();
    let page = mtr.fix(id).unwrap();
    mtr.write(page, at, bytes);
    mtr.commit().unwrap();
}

pub(crate) fn full(key: &[u8]) -> Vec<u8> {
    [&ROWS.0.to_be_bytes()[..], key].concat()
}

fn is_corrupt<T: std::fmt::Debug>(done: Result<T>) -> bool {
    matches!(done, Err(Error::CorruptPage { .. }))
}

/// Rows in more than six leaves below one root; the transaction that has committed them.
fn fill(rig: &Rig) -> Trx {
    let mut t = rig.trx();
    (0..200).for_each(|i| rig.insert(&mut t, &key(i), &[1; 200]).unwrap());
    t.commit(Durability::Sync).unwrap();
    t
}

/// All rows, or the error.
fn read(t: &mut Trx, index: &Index, options: CursorOptions, forward: bool) -> Result<usize> {
    let mut cursor = Cursor::new(*index, options);
    let mut n = 0;
    let mut more = cursor.seek(t, if forward { Seek::First } else { Seek::Last }, &[])?;
    while more {
        n += 1;
        assert!(n < 10_000, "it goes round in circles");
        more = if forward { cursor.next(t) } else { cursor.prev(t) }?;
    }
    Ok(n)
}

#[test]
fn separators_that_are_not_the_fences_below_hold_nobody_up() {
    let rig = Rig::small();
    fill(&rig);
    let root = rig.rows.tree.owner(rig.sys.pool(), &full(&key(0))).unwrap().root_id();
    let slots = {
        let p = rig.sys.pool().fix_shared(root).unwrap();
        assert!(page::level(&p) == 1 && page::count(&p) > 6);
        p[page::SLOTS + 3 * page::SLOT_BYTES..page::SLOTS + 5 * page::SLOT_BYTES].to_vec()
    };
    let (third, fourth) = slots.split_at(page::SLOT_BYTES);
    damage(&rig, root, page::SLOTS + 3 * page::SLOT_BYTES, &[fourth, third].concat());
    for forward in [true, false] {
        for options in [plain(), locking(Strength::X), locking(Strength::S)] {
            let mut t = rig.trx();
            let ended = read(&mut t, &rig.rows, options, forward);
            assert!(is_corrupt(ended.clone()) || ended.clone().is_ok_and(|n| n < 200), "{forward} {ended:?}");
            t.rollback().unwrap();
        }
    }
    let mut t = rig.trx();
    assert!(is_corrupt(t.count(&rig.rows)));
    for i in 0..200 {
        // Whether it is found depends on the way there.
        let _ = rig.delete(&mut t, &key(i));
        let _ = rig.insert(&mut t, &[&key(i)[..], &[1]].concat(), &[2; 10]);
    }
    rig.sys.pool().check_poison().unwrap();
}

/// As a page that is in use and is given out again: two ways lead to it, and its fences are those of one.
#[test]
fn a_leaf_of_other_keys_is_corrupt_and_not_one_without_them() {
    let rig = Rig::small();
    fill(&rig);
    let pool = rig.sys.pool();
    let root = rig.rows.tree.owner(pool, &full(&key(0))).unwrap().root_id();
    let child = |no: usize| {
        let p = pool.fix_shared(root).unwrap();
        (usize::from(get_u16(&p, page::SLOTS + no * page::SLOT_BYTES)), page::child(&p, no + 1))
    };
    for (no, other) in [(2, 4), (5, 3)] {
        let ((at, own), (_, other)) = (child(no), child(other));
        damage(&rig, root, at, &other.0.to_le_bytes());
        let mut lost = 0;
        for i in 0..200 {
            let (mut t, mut row) = (rig.trx(), RowBuf::new());
            let read = t.get(&rig.rows, &key(i), false, None, LockWait::Wait, &mut row);
            let locked = rig.lock(&mut t, &key(i), Strength::X);
            let mut cursor = Cursor::new(rig.rows, plain());
            let sought = cursor.seek(&mut t, Seek::Exact, &key(i));
            let inserted = rig.insert(&mut t, &key(i), &[2; 10]);
            if is_corrupt(read.clone()) {
                lost += 1;
                assert!(is_corrupt(locked) && is_corrupt(sought) && is_corrupt(inserted), "{i}");
            } else {
                assert!(read.unwrap() && locked.unwrap().is_some() && sought.unwrap(), "{i}");
                assert!(matches!(inserted, Err(Error::DuplicateKey { .. })), "{i}");
            }
            t.rollback().unwrap();
        }
        assert!((3..50).contains(&lost), "{lost}");
        damage(&rig, root, at, &own.0.to_le_bytes());
    }
    pool.check_poison().unwrap();
}

#[test]
fn older_versions_in_a_circle_are_corrupt() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, &key(1), &[1; 50]).unwrap();
    t.commit(Durability::Sync).unwrap();
    let mut reader = rig.trx();
    assert!(rig.get(&mut reader, &key(1)).is_some());
    (2..7).for_each(|i| rig.update(&mut t, &key(1), &[i; 50]).unwrap());
    let older = |roll: RollPtr| {
        let p = rig.sys.pool().fix_shared(undo_page(roll.page())).unwrap();
        let (at, body) = record::frame_at(&p, usize::from(roll.offset()), p.len()).unwrap();
        (at, body.to_vec(), record::parse_change(body).unwrap().old.unwrap().roll)
    };
    let newest = {
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(1))).unwrap();
        let slot = leaf.find(&full(&key(1))).unwrap();
        Entry::parse(leaf.value(slot), leaf.page_id()).unwrap().roll
    };
    let second = older(newest).2;
    let third = older(second).2;
    let (at, body, fourth) = older(third);
    // The third leads back to the second.
    let bytes = |roll: RollPtr| roll.0.to_le_bytes()[..6].to_vec();
    let in_body = body.windows(6).rposition(|w| w == bytes(fourth)).unwrap();
    damage(&rig, undo_page(third.page()), at + in_body, &bytes(second));
    let mut row = RowBuf::new();
    assert!(is_corrupt(reader.get(&rig.rows, &key(1), false, None, LockWait::Wait, &mut row)));
    assert!(is_corrupt(read(&mut reader, &rig.rows, plain(), true)));
    rig.sys.pool().check_poison().unwrap();
}

#[test]
fn a_rollback_along_a_circle_of_undo_pages_ends() {
    let rig = Rig::small();
    let mut t = rig.trx();
    let mut keys = 0..400u64;
    let mut next_page = |t: &mut Trx| {
        let tail = |t: &Trx| t.undo.as_ref().map(|log| log.page());
        let before = tail(t);
        while tail(t) == before {
            rig.insert(t, &key(keys.next().unwrap()), &[1; 20]).unwrap();
        }
        tail(t).unwrap()
    };
    let (first, second) = (next_page(&mut t), next_page(&mut t));
    assert_ne!(first, second);
    // The first page is free, says the directory, and the list goes on where the chain does.
    damage(&rig, undo::DIRECTORY, undo::DIR_FREE_HEAD, &first.page.0.to_le_bytes());
    damage(&rig, undo::DIRECTORY, undo::DIR_FREE_COUNT, &9u32.to_le_bytes());
    assert_eq!(next_page(&mut t), first);
    assert!(is_corrupt(t.rollback()));
    rig.sys.pool().check_poison().unwrap();
}

/// A transaction whose undo log has several pages; the first of them.
fn long_undo(rig: &Rig, commit: bool) -> PageNo {
    let mut t = rig.trx();
    (0..60).for_each(|i| rig.insert(&mut t, &key(i), &[1; 300]).unwrap());
    t.commit(Durability::Sync).unwrap();
    (0..60).for_each(|i| rig.update(&mut t, &key(i), &[2 + i as u8; 300]).unwrap());
    match commit {
        true => t.commit(Durability::Sync).unwrap(),
        false => std::mem::forget(t),
    }
    let slots = rig.sys.undo.purge_slots();
    let head = slots.iter().map(|slot| slot.position.lock().page).find(|&page| page != PageNo::NONE).unwrap();
    assert_ne!(undo::next(&rig.sys.pool().fix_shared(undo_page(head)).unwrap()), PageNo::NONE);
    head
}

#[test]
fn undo_pages_are_freed_once() {
    for to_itself in [true, false] {
        let rig = Rig::small();
        let head = long_undo(&rig, true);
        let next = undo::next(&rig.sys.pool().fix_shared(undo_page(head)).unwrap());
        let after = undo::next(&rig.sys.pool().fix_shared(undo_page(next)).unwrap());
        let to = if to_itself { head } else { after };
        damage(&rig, undo_page(head), undo::OFF_NEXT, &to.0.to_le_bytes());
        let purged = (0..1000).find_map(|_| match rig.sys.purge_step() {
            Ok(true) => None,
            ended => Some(ended),
        });
        assert!(matches!(purged, Some(Err(Error::CorruptPage { page, .. })) if page == undo_page(head)), "{purged:?}");
        let directory = rig.sys.pool().fix_shared(undo::DIRECTORY).unwrap();
        assert_eq!(get_u32(&directory, undo::DIR_FREE_COUNT), 0);
        drop(directory);
        rig.sys.pool().check_poison().unwrap();
    }
}

#[test]
fn the_undo_directory_is_no_free_page() {
    for (at, begin) in [(undo::DIR_FREE_HEAD, 1u32), (undo::DIR_HIGH_WATER, 1)] {
        let rig = Rig::small();
        long_undo(&rig, true);
        damage(&rig, undo::DIRECTORY, at, &begin.to_le_bytes());
        if at == undo::DIR_FREE_HEAD {
            damage(&rig, undo::DIRECTORY, undo::DIR_FREE_COUNT, &5u32.to_le_bytes());
        }
        let mut t = rig.trx();
        let failed = (0..200).map(|i| rig.update(&mut t, &key(i % 60), &[i as u8; 300])).find(|done| done.is_err());
        assert!(matches!(failed, Some(Err(Error::CorruptPage { page, .. })) if page == undo::DIRECTORY), "{failed:?}");
        t.rollback().unwrap();
        let directory = rig.sys.pool().fix_shared(undo::DIRECTORY).unwrap();
        assert_eq!(directory[undo::DIR_MAGIC..undo::DIR_MAGIC + 8], undo::MAGIC);
        drop(directory);
        rig.sys.pool().check_poison().unwrap();
    }
}

/// Else an unfinished transaction would look committed, or the id of another would be given out again.
#[test]
fn an_undo_directory_that_lacks_slots_or_transactions_is_corrupt() {
    let rig = Rig::small();
    long_undo(&rig, false);
    let open =
        || UndoSpace::open(Arc::clone(rig.sys.pool()), Arc::new(|_, _: &str| ())).map(|opened| opened.unfinished.len());
    assert_eq!(open(), Ok(1));
    let directory = rig.sys.pool().fix_shared(undo::DIRECTORY).unwrap();
    let (slots, limit) = (get_u32(&directory, undo::DIR_SLOT_COUNT), get_u64(&directory, undo::DIR_TRX_LIMIT));
    drop(directory);
    let damages = [
        (undo::DIR_SLOT_COUNT, (slots - 1).to_le_bytes().to_vec()),
        (undo::DIR_SLOT_COUNT, (slots + 1).to_le_bytes().to_vec()),
        (undo::DIR_SLOT_COUNT, u32::MAX.to_le_bytes().to_vec()),
        (undo::DIR_TRX_LIMIT, 2u64.to_le_bytes().to_vec()),
        (undo::DIR_TRX_LIMIT, 0u64.to_le_bytes().to_vec()),
        (undo::DIR_TRX_LIMIT, (1u64 << 48).to_le_bytes().to_vec()),
    ];
    for (at, bytes) in damages {
        damage(&rig, undo::DIRECTORY, at, &bytes);
        let opened = open();
        assert!(matches!(opened, Err(Error::CorruptPage { page, .. }) if page == undo::DIRECTORY), "{at} {opened:?}");
        damage(&rig, undo::DIRECTORY, undo::DIR_SLOT_COUNT, &slots.to_le_bytes());
        damage(&rig, undo::DIRECTORY, undo::DIR_TRX_LIMIT, &limit.to_le_bytes());
    }
}

#[test]
fn an_entry_of_a_transaction_that_never_was_is_corrupt() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, &key(1), &[7; 50]).unwrap();
    t.commit(Durability::Sync).unwrap();
    let (id, at) = {
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(1))).unwrap();
        let value = leaf.value(leaf.find(&full(&key(1))).unwrap());
        (leaf.page_id(), value.as_ptr() as usize - leaf.bytes().as_ptr() as usize)
    };
    let later = rig.sys.next_trx_id().0 + 5;
    damage(&rig, id, at + 1, &later.to_le_bytes()[..6]);
    let mut reader = rig.trx();
    assert!(is_corrupt(read(&mut reader, &rig.rows, plain(), true)));
}

/// Whoever changes the rows that a scan finds makes it look for its place again.
#[test]
fn a_scan_of_keys_out_of_order_does_not_go_back() {
    let rig = Rig::small();
    let mut t = rig.trx();
    (0..8).for_each(|i| rig.insert(&mut t, &key(i), &[1; 50]).unwrap());
    t.commit(Durability::Sync).unwrap();
    let id = rig.rows.tree.seek(rig.sys.pool(), &full(&key(0))).unwrap().page_id();
    let slots = {
        let p = rig.sys.pool().fix_shared(id).unwrap();
        p[page::SLOTS..page::SLOTS + 8 * page::SLOT_BYTES].to_vec()
    };
    // The sixth before the third.
    let (a, b) = (&slots[2 * 8..3 * 8], &slots[5 * 8..6 * 8]);
    damage(&rig, id, page::SLOTS, &[&slots[..2 * 8], b, &slots[3 * 8..5 * 8], a, &slots[6 * 8..]].concat());
    for forward in [true, false] {
        for options in [plain(), locking(Strength::X)] {
            let mut t = rig.trx();
            let ended = read(&mut t, &rig.rows, options, forward);
            assert!(options.lock.is_none() && ended.is_ok() || is_corrupt(ended), "{forward}");
            t.rollback().unwrap();
        }
    }
}

#[test]
fn a_low_fence_above_its_entries_leads_no_scan_back() {
    let rig = Rig::small();
    fill(&rig);
    let (id, at, last) = {
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(100))).unwrap();
        assert!(!leaf.low_fence().is_empty() && leaf.low_fence() < &full(&key(100))[..]);
        let at = leaf.low_fence().as_ptr() as usize - leaf.bytes().as_ptr() as usize;
        (leaf.page_id(), at + leaf.low_fence().len() - 1, *leaf.low_fence().last().unwrap())
    };
    damage(&rig, id, at, &[last + 2]);
    for options in [plain(), locking(Strength::X)] {
        let mut t = rig.trx();
        let ended = read(&mut t, &rig.rows, options, false);
        assert!(is_corrupt(ended.clone()), "{ended:?}");
        t.rollback().unwrap();
    }
}

/// The leaf that a transaction used last is taken for a key that only its damaged fence holds; room is made in another.
#[test]
fn an_insert_beside_a_damaged_fence_ends() {
    let rig = Rig::small();
    let mut t = fill(&rig);
    let (id, at, fence) = {
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(100))).unwrap();
        assert!(leaf.high_fence() > &full(&key(100))[..]);
        let at = leaf.high_fence().as_ptr() as usize - leaf.bytes().as_ptr() as usize;
        (leaf.page_id(), at + leaf.high_fence().len() - 1, leaf.high_fence().to_vec())
    };
    damage(&rig, id, at, &[fence.last().unwrap() + 3]);
    assert!(rig.lock(&mut t, &key(100), Strength::X).unwrap().is_some());
    let beyond = [&fence[4..], &[1]].concat();
    assert!(rig.insert(&mut t, &beyond, &[3; 1_500]).is_ok());
    t.rollback().unwrap();
    rig.sys.pool().check_poison().unwrap();
}
