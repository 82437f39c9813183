//! Pages with a right checksum and wrong contents: errors that name the page, and no wait or loop without an end.

use crate::tests::{get, put, rig, SPACE};
use crate::*;
use myriad_base::codec::get_u32;
use myriad_base::{Error, IndexId, PageId, PageNo};
use myriad_buffer::{BufferPool, Mtr};

#[test]
fn a_chain_that_comes_back_to_itself_is_corrupt() {
    let rig = rig(256);
    let pool = &rig.pool;
    for back_to_first in [true, false] {
        let first = overflow::write_overflow(pool, SPACE, &[1; 20_000]).unwrap();
        let next_of = |page| PageNo(get_u32(&pool.fix_shared(PageId::new(SPACE, page)).unwrap(), 24));
        let second = next_of(first);
        let third = next_of(second);
        let mut mtr = Mtr::start(pool).unwrap();
        let page = mtr.fix(PageId::new(SPACE, third)).unwrap();
        let to = if back_to_first { first } else { second };
        mtr.apply(page, crate::redo::OVERFLOW_LINK, &to.0.to_le_bytes()).unwrap();
        mtr.commit().unwrap();
        let freed = overflow::free_overflow(pool, SPACE, first);
        assert!(matches!(freed, Err(Error::CorruptPage { page, .. }) if page.page == to), "{freed:?}");
    }
}

/// Nobody waits for a page that the caller has latched, nor reads the pages of a circle as often as a damaged length says.
#[test]
fn a_chain_of_other_pages_or_in_a_circle_is_read_to_no_end_but_an_error() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    let leaf = tree.seek_exclusive(pool, &77u32.to_be_bytes()).unwrap();
    let first = overflow::write_overflow(pool, SPACE, &[1; 20_000]).unwrap();
    let second = PageNo(get_u32(&pool.fix_shared(PageId::new(SPACE, first)).unwrap(), 24));
    let link = |to: PageNo| damage(pool, PageId::new(SPACE, second), 24, &to.0.to_le_bytes());
    for to in [leaf.page_id().page, alloc::PACK_ROOT, PageNo(1), second, first] {
        link(to);
        let mut out = Vec::new();
        let read = overflow::read_overflow(pool, leaf.page_id(), first, u32::MAX as usize, usize::MAX, &mut out);
        assert!(matches!(read, Err(Error::CorruptPage { page, .. }) if page.page == to), "{read:?}");
        assert!(out.len() < 50_000, "{} bytes", out.len());
        let same = overflow::holds(pool, leaf.page_id(), first, &[1; 20_000]);
        assert!(matches!(same, Err(Error::CorruptPage { page, .. }) if page.page == to), "{same:?}");
        let checked = overflow::check(pool, leaf.page_id(), first, 20_000, &mut |_, _| Ok(()));
        assert!(matches!(checked, Err(Error::CorruptPage { page, .. }) if page.page == to), "{checked:?}");
    }
    damage(pool, PageId::new(SPACE, first), 28, &1u32.to_le_bytes());
    let read = overflow::read_overflow(pool, leaf.page_id(), first, 20_000, usize::MAX, &mut Vec::new());
    assert!(matches!(read, Err(Error::CorruptPage { page, .. }) if page.page == first), "{read:?}");
}

/// Of the index 77.
fn key(n: u32) -> Vec<u8> {
    [77u32.to_be_bytes(), n.to_be_bytes()].concat()
}

/// A tree of that index with so many entries, each tenth number a key.
fn tree_of_tens(pool: &BufferPool, entries: u32) -> Tree {
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    (0..entries).for_each(|i| _ = put(pool, tree, &key(i * 10), &[1; 100]).unwrap());
    tree
}

/// Overwrites bytes of a page as no code would.
fn damage(pool: &BufferPool, id: PageId, at: usize, bytes: &[u8]) {
    let mut mtr = Mtr::start(pool).unwrap();
    let page = mtr.fix(id).unwrap();
    mtr.write(page, at, bytes);
    mtr.commit().unwrap();
}

#[test]
fn a_page_out_of_order_is_not_split_and_stops_nothing() {
    // The root alone, a leaf filled in random order (which would give to its neighbour), one filled in order.
    for (entries, random) in [(32, true), (3_000, true), (3_000, false)] {
        for slot in [1, 7] {
            let rig = rig(400);
            let pool = &rig.pool;
            let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
            for i in 0..entries {
                let n = if random { myriad_base::ids::mix(u64::from(i)) as u32 % 100_000 } else { i * 10 };
                put(pool, tree, &key(n), &[1; 100]).unwrap();
            }
            let wanted = if entries == 32 { key(50_000) } else { key(14_999) };
            let leaf = tree.seek(pool, &wanted).unwrap().page_id();
            damage(pool, leaf, page::SLOTS + page::SLOT_BYTES * slot + 4, &[0xff; 4]);
            let refused = tree.make_room(pool, &wanted, 1_700);
            assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == leaf), "{refused:?}");
            pool.check_poison().unwrap();
            assert!(put(pool, tree, &key(200_000), &[1; 100]).is_ok() || entries == 32, "other pages are fine");
        }
    }
}

/// A tree of an index with three leaves in its midst of which little is left, and the low fence of the second.
fn three_sparse_leaves(pool: &BufferPool) -> (Tree, [PageId; 3], Vec<u8>) {
    let tree = tree_of_tens(pool, 3_000);
    let leaf = tree.seek(pool, &key(15_000)).unwrap();
    let (id, low, high) = (leaf.page_id(), leaf.low_fence().to_vec(), leaf.high_fence().to_vec());
    drop(leaf);
    let leaves = [tree.seek_before(pool, &low).unwrap().page_id(), id, tree.seek(pool, &high).unwrap().page_id()];
    for n in (10_000..20_000).step_by(10).filter(|n| n % 200 != 0) {
        let leaf = tree.seek_exclusive(pool, &key(n)).unwrap();
        if !leaves.contains(&leaf.page_id()) {
            continue;
        }
        let mut mtr = Mtr::start(pool).unwrap();
        let slot = leaf.find(&key(n)).unwrap();
        let leaf = leaf.into_mtr(&mut mtr);
        leaf.remove(&mut mtr, slot).unwrap();
        mtr.commit().unwrap();
    }
    (tree, leaves, low)
}

#[test]
fn a_page_out_of_order_is_not_merged_and_stops_nothing() {
    for damaged_neighbour in [false, true] {
        let rig = rig(400);
        let pool = &rig.pool;
        let (tree, [left, id, _], low) = three_sparse_leaves(pool);
        let bad = if damaged_neighbour { left } else { id };
        damage(pool, bad, page::SLOTS + 4, &[0xff; 4]);
        let refused = tree.merge_if_sparse(pool, &low);
        assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == bad), "{refused:?}");
        pool.check_poison().unwrap();
        put(pool, tree, &key(200_000), &[1; 100]).unwrap();
    }
}

/// The fences of two pages and the separator between them, one of which is another one's.
#[test]
fn pages_that_are_no_neighbours_are_not_merged() {
    enum Wrong {
        Fence,
        SeparatorBelow,
        SeparatorAbove,
    }
    for wrong in [Wrong::Fence, Wrong::SeparatorBelow, Wrong::SeparatorAbove] {
        let rig = rig(400);
        let pool = &rig.pool;
        let (tree, [left, id, _], low) = three_sparse_leaves(pool);
        let root = tree.root_id();
        let slot = page::find(&pool.fix_shared(root).unwrap(), &low).unwrap();
        let separator = |head: u32| damage(pool, root, page::SLOTS + page::SLOT_BYTES * slot + 4, &head.to_le_bytes());
        let before = page::low_stored(&pool.fix_shared(left).unwrap()).to_vec();
        let sought = match wrong {
            Wrong::Fence => {
                let p = pool.fix_shared(id).unwrap();
                let at = p.len() - page::high_stored(&p).len() - 1;
                let last = p[at];
                drop(p);
                damage(pool, id, at, &[last + 1]);
                low
            }
            Wrong::SeparatorBelow => {
                separator(0);
                low
            }
            Wrong::SeparatorAbove => {
                separator(u32::MAX);
                before
            }
        };
        let refused = tree.merge_if_sparse(pool, &sought);
        assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == id), "{refused:?}");
        pool.check_poison().unwrap();
    }
}

#[test]
fn an_entry_outside_of_its_page_stops_no_split_half_way() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = tree_of_tens(pool, 3_000);
    let mut leaves = 0;
    let mut next = key(0);
    while !next.is_empty() {
        let leaf = tree.seek(pool, &next).unwrap();
        let (id, slots, high, at) = (leaf.page_id(), leaf.len(), leaf.high_fence().to_vec(), leaf.len() / 2);
        let wanted = [page::key(leaf.bytes(), at), vec![0]].concat();
        drop(leaf);
        for slot in [1, slots - 2] {
            damage(pool, id, page::SLOTS + page::SLOT_BYTES * slot + 4, &[0xff; 4]);
        }
        let refused = tree.make_room(pool, &wanted, 1_700);
        // The last one has the room.
        let fits = high.is_empty() && refused.is_ok();
        assert!(fits || matches!(refused, Err(Error::CorruptPage { .. })), "{refused:?}");
        pool.check_poison().unwrap();
        (leaves, next) = (leaves + 1, high);
    }
    assert!(leaves > 50);
}

#[test]
fn a_parent_of_other_separators_gets_no_new_one() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = tree_of_tens(pool, 1_000);
    let low = tree.seek(pool, &key(4_999)).unwrap().low_fence().to_vec();
    let root = tree.root_id();
    let slot = page::find(&pool.fix_shared(root).unwrap(), &low).unwrap();
    // The next page's separator comes near the beginning of this one's keys.
    let head = |slot| page::SLOTS + page::SLOT_BYTES * slot + 4;
    let begin = get_u32(&pool.fix_shared(root).unwrap(), head(slot));
    damage(pool, root, head(slot + 1), &(begin + 5).to_le_bytes());
    let refused = tree.make_room(pool, &key(begin + 1), 1_700);
    assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == root), "{refused:?}");
    // Its own comes near the end of them.
    damage(pool, root, head(slot + 1), &(begin + 300).to_le_bytes());
    damage(pool, root, head(slot), &(begin + 260).to_le_bytes());
    let refused = tree.make_room(pool, &key(begin + 261), 1_700);
    assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == root), "{refused:?}");
    pool.check_poison().unwrap();
}

#[test]
fn a_key_that_is_not_the_leafs_is_not_taken_for_absent() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = tree_of_tens(pool, 1_000);
    let leaf = tree.seek(pool, &key(5_000)).unwrap();
    let (low, high) = (leaf.low_fence().to_vec(), leaf.high_fence().to_vec());
    assert!(leaf.find_sought(&key(5_000)).unwrap().is_ok() && leaf.find_sought(&key(5_001)).unwrap().is_err());
    let last = page::key(leaf.bytes(), leaf.len() - 1);
    assert_eq!(leaf.find_sought(&[&last[..], &[0]].concat()).unwrap(), Err(leaf.len()));
    let is_not_covered =
        |found: Result<(), Error>| matches!(found, Err(Error::CorruptPage { page, .. }) if page == leaf.page_id());
    for other in [&high[..], &key(9_999), &key(0), &low[..low.len() - 1]] {
        assert!(is_not_covered(leaf.find_sought(other).map(drop)), "{other:?}");
    }
    // Nor does a way on lead back.
    assert_eq!((leaf.next_from(&key(5_000)).unwrap(), leaf.next_before(&key(5_000)).unwrap()), (&high[..], &low[..]));
    assert!(is_not_covered(leaf.next_from(&high).map(drop)) && is_not_covered(leaf.next_before(&low).map(drop)));
    drop(leaf);
    let ends = [tree.seek(pool, &key(9_999)).unwrap(), tree.seek(pool, &[]).unwrap()];
    ends[0].next_from(&key(9_999)).unwrap();
    ends[1].next_before(&[]).unwrap();
}

#[test]
fn a_range_is_not_removed_beyond_a_leaf_that_leads_back() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = tree_of_tens(pool, 1_000);
    let leaf = tree.seek(pool, &key(5_000)).unwrap();
    let (id, fence, page_size) = (leaf.page_id(), leaf.high_fence().to_vec(), leaf.bytes().len());
    drop(leaf);
    damage(pool, id, page_size - fence.len() + 4, &vec![0; fence.len() - 4]);
    let removed = tree.remove_range(pool, &key(5_000), &[&fence[..], &[1]].concat(), 100, &mut |_, _| ());
    assert!(matches!(removed, Err(Error::CorruptPage { page, .. }) if page == id), "{removed:?}");
    pool.check_poison().unwrap();
}

#[test]
fn a_roots_only_child_out_of_order_is_not_taken_over() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    (0..4).for_each(|i| _ = put(pool, tree, &key(i), &[1; 100]).unwrap());
    tree.as_owner().raise_root(pool, 0).unwrap();
    let leaf = tree.seek(pool, &key(1)).unwrap().page_id();
    assert_ne!(leaf, tree.root_id());
    damage(pool, leaf, page::SLOTS + 4, &[0xff; 4]);
    let refused = tree.merge_if_sparse(pool, &key(1));
    assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == leaf), "{refused:?}");
    pool.check_poison().unwrap();
}

#[test]
fn a_descent_through_promoted_roots_in_a_circle_ends() {
    use crate::page::Target;
    use myriad_buffer::SharedPage;
    let rig = rig(400);
    let (pool, tree) = (&rig.pool, Tree::pack(SPACE));
    let key = |n: u32| [5u32.to_be_bytes(), n.to_be_bytes()].concat();
    (0..2_000).for_each(|i| _ = put(pool, tree, &key(i), &[1; 100]).unwrap());
    let own = tree.promote(pool, IndexId(5)).unwrap().unwrap();
    // Its first child is itself.
    let mut mtr = Mtr::start(pool).unwrap();
    let root = mtr.fix(own.root_id()).unwrap();
    let set = [&[0; 2][..], &own.root.0.to_le_bytes()].concat();
    mtr.apply(root, crate::redo::SET_CHILD, &set).unwrap();
    mtr.commit().unwrap();
    for from in [tree, own] {
        let found = from.seek(pool, &key(0)).map(|leaf| leaf.page_id());
        assert!(matches!(found, Err(Error::CorruptPage { page, .. }) if page == own.root_id()), "{found:?}");
        let at = key(0);
        let found = from.descend_latched::<SharedPage<'_>>(pool, Target::At(&at), 0, &mut |_| ());
        assert!(matches!(found, Err(Error::CorruptPage { page, .. }) if page == own.root_id()));
    }
    assert_eq!(get(pool, tree, &key(1_999)).unwrap(), [1; 100], "other pages are fine");
}

#[test]
fn a_pack_root_that_calls_itself_promoted_is_not_cut_for_ever() {
    let rig = rig(400);
    let (pool, tree) = (&rig.pool, Tree::pack(SPACE));
    let key = |n: u32| [(n % 3 + 5).to_be_bytes(), n.to_be_bytes()].concat();
    (0..2_000).for_each(|i| _ = put(pool, tree, &key(i), &[1; 100]).unwrap());
    let flags = pool.fix_shared(tree.root_id()).unwrap()[page::OFF_FLAGS];
    damage(pool, tree.root_id(), page::OFF_FLAGS, &[flags | page::ROOT]);
    let promoted = tree.promote(pool, IndexId(6));
    assert!(matches!(promoted, Err(Error::CorruptPage { page, .. }) if page == tree.root_id()), "{promoted:?}");
    pool.check_poison().unwrap();
}

/// A tree of index 77 with a level of leaves, and where its root has the number of each child but the first.
fn one_level(pool: &BufferPool, tree: Tree) -> Vec<usize> {
    (0..400u32).for_each(|i| _ = put(pool, tree, &[77u32.to_be_bytes(), i.to_be_bytes()].concat(), &[1; 100]).unwrap());
    let root = pool.fix_shared(tree.owner(pool, &77u32.to_be_bytes()).unwrap().root_id()).unwrap();
    assert_eq!(page::level(&root), 1);
    let offset = |slot| usize::from(u16::from_le_bytes([root[slot], root[slot + 1]]));
    (0..page::count(&root)).map(|slot| offset(page::SLOTS + slot * page::SLOT_BYTES)).collect()
}

#[test]
fn leaves_that_change_places_make_no_room_for_ever() {
    let rig = rig(400);
    let (pool, tree) = (&rig.pool, Tree::pack(SPACE));
    (0..400)
        .for_each(|i| _ = put(pool, tree, &[78u32.to_be_bytes(), u32::to_be_bytes(i)].concat(), &[1; 100]).unwrap());
    (0..100)
        .for_each(|i| _ = put(pool, tree, &[77u32.to_be_bytes(), u32::to_be_bytes(i)].concat(), &[1; 100]).unwrap());
    let own = tree.promote(pool, IndexId(77)).unwrap().unwrap();
    let children = one_level(pool, tree);
    let child = |at: usize| get_u32(&pool.fix_shared(own.root_id()).unwrap(), children[at]);
    let (one, other) = (child(3), child(5));
    damage(pool, own.root_id(), children[3], &other.to_le_bytes());
    damage(pool, own.root_id(), children[5], &one.to_le_bytes());
    let key = page::key(&pool.fix_shared(own.root_id()).unwrap(), 3);
    for (from, told) in [(tree, other), (own, own.root.0)] {
        let refused = from.make_room(pool, &[&key[..], &[0]].concat(), 1_700);
        assert!(matches!(&refused, Err(Error::CorruptPage { page, .. }) if page.page.0 == told), "{refused:?}");
    }
    pool.check_poison().unwrap();
}

#[test]
fn a_leaf_that_stays_is_not_freed_with_the_others() {
    let rig = rig(400);
    let pool = &rig.pool;
    for twice in [false, true] {
        let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
        let children = one_level(pool, tree);
        // The first or the second child in another's place.
        let first =
            get_u32(&pool.fix_shared(tree.root_id()).unwrap(), if twice { children[0] } else { page::OFF_LEFT });
        damage(pool, tree.root_id(), children[3], &first.to_le_bytes());
        let used = alloc::pages_in_use(pool, SPACE).unwrap();
        let refused = tree.remove_range(pool, &[], &[], 100, &mut |_, _| ());
        assert!(matches!(refused, Err(Error::CorruptPage { page, .. }) if page == tree.root_id()), "{refused:?}");
        assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), used);
        pool.check_poison().unwrap();
    }
}

#[test]
fn a_page_that_is_its_own_child_is_corrupt() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    let children = one_level(pool, tree);
    let key = page::key(&pool.fix_shared(tree.root_id()).unwrap(), 3);
    damage(pool, tree.root_id(), children[3], &tree.root.0.to_le_bytes());
    let begun = std::time::Instant::now();
    let sought = [tree.seek(pool, &key).map(|_| ()), tree.seek_exclusive(pool, &key).map(|_| ())];
    for found in sought.into_iter().chain([tree.make_room(pool, &key, 100).map(|_| ())]) {
        assert!(matches!(found, Err(Error::CorruptPage { page, .. }) if page == tree.root_id()), "{found:?}");
    }
    assert!(begun.elapsed().as_secs() < 60, "nobody waits for the latch");
}

#[test]
fn an_estimate_takes_no_other_page_for_a_leaf() {
    let rig = rig(400);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    let children = one_level(pool, tree);
    let chain = overflow::write_overflow(pool, SPACE, &[0xee; 4064]).unwrap();
    children[1..].iter().for_each(|&at| damage(pool, tree.root_id(), at, &chain.0.to_le_bytes()));
    for high in [50, 100, 399] {
        let _ = tree.estimate_range(pool, &key(0), &key(high));
    }
    let _ = tree.estimate_range(pool, &key(0), &[]);
}
