//! Pages with a right checksum and wrong contents: an error, nobody waits for ever, the engine goes on.

use super::*;
use crate::undo::page::undo_page;
use crate::undo::record;
use crate::value::Entry;
use myriad_base::{PageId, RollPtr};
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
    let mut t = rig.trx();
    (0..200).for_each(|i| rig.insert(&mut t, &key(i), &[1; 200]).unwrap());
    t.commit(Durability::Sync).unwrap();
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
