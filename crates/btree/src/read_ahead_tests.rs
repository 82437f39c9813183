//! Ranges whose leaves are not in memory.

use crate::estimate_tests::key;
use crate::page::Target;
use crate::tests::{check_whole, put, rig, Rig, SPACE};
use crate::*;
use myriad_base::work;
use myriad_buffer::{BufferPool, SharedPage};

/// No page is in memory any more.
fn forget(pool: &BufferPool) {
    pool.checkpoint_now().unwrap();
    pool.evict_all();
}

/// A tree of rows put in order, about 17 on each of its pages.
fn tree(rig: &Rig) -> Tree {
    let tree = Tree::create(&rig.pool, SPACE).unwrap();
    for n in 0..6_000 {
        put(&rig.pool, tree, &key(n), &[1; 200]).unwrap();
    }
    tree
}

/// How many leaves of `from..=to` are in memory, and how many there are.
fn there(rig: &Rig, tree: Tree, from: u64, to: u64) -> (usize, usize) {
    let (mut at, mut there, mut all) = (key(from), 0, 0);
    loop {
        let absent = tree.absent_leaf(&rig.pool, &at).unwrap().is_some();
        all += 1;
        there += usize::from(!absent);
        let leaf = tree.seek(&rig.pool, &at).unwrap();
        if leaf.is_last() || leaf.high_fence() > &key(to)[..] {
            return (there, all);
        }
        at = leaf.high_fence().to_vec();
    }
}

/// Reads of a descent to the beginning of the range `from..=to`, which downwards is its upper end, and whether its leaves are
/// in memory then.
fn sought(rig: &Rig, tree: Tree, from: u64, to: u64, down: bool, begins: bool) -> (u64, usize, usize) {
    forget(&rig.pool);
    let begin = key(if down { to } else { from });
    // The inner pages on the way.
    drop(tree.absent_leaf(&rig.pool, &begin).unwrap());
    let reads = rig.pool.stats().reads;
    let (low, high, beyond) = (key(from), key(to), key(to + 1));
    let (at, scan) = if down { (&beyond, Scan::down(&low)) } else { (&low, Scan::up(&high)) };
    assert!(tree.seek_range(&rig.pool, at, scan, begins).unwrap().covers(&begin));
    let reads = rig.pool.stats().reads - reads;
    let (there, all) = there(rig, tree, from, to);
    (reads, there, all)
}

/// Who buffers a change of a leaf unread would spoil it: the key is none of its own.
#[test]
fn a_root_that_is_another_trees_page_by_now_leads_to_no_leaf() {
    let rig = rig(256);
    let tree = tree(&rig);
    for n in 6_000..20_000 {
        put(&rig.pool, tree, &key(n), &[1; 200]).unwrap();
    }
    let parent_of = |n| tree.at_level::<SharedPage<'_>>(&rig.pool, Target::At(&key(n)), 1).unwrap().unwrap().id();
    let [first, middle, last] = [0, 10_000, 19_999].map(parent_of);
    assert!(middle != first && middle != last);
    let stale = Tree { space: SPACE, root: middle.page };
    forget(&rig.pool);
    let leads = |n| stale.absent_leaf(&rig.pool, &key(n)).unwrap().is_some();
    assert_eq!([0, 10_000, 19_999].map(leads), [false, true, false]);
}

#[test]
fn leaves_of_a_short_range_are_read_together() {
    let rig = rig(256);
    let tree = tree(&rig);
    for down in [false, true] {
        let mut short = 0;
        // Some ranges go beyond the parent of their first leaf, whose children are all that is read then.
        for from in (100..4_000).step_by(390) {
            let (reads, there, all) = sought(&rig, tree, from, from + 40, down, true);
            assert!((2..=4).contains(&all), "{all} leaves");
            assert_eq!(reads as usize, there);
            short += usize::from(there == all);
        }
        assert!(short >= 8, "{short} of 10");
    }
}

#[test]
fn of_a_long_range_the_first_leaf_is_read_and_then_several_at_a_time() {
    let rig = rig(256);
    let tree = tree(&rig);
    for down in [false, true] {
        let (reads, _, all) = sought(&rig, tree, 1_000, 1_400, down, true);
        assert!(all > 20, "{all} leaves");
        assert_eq!(reads, 1);
        let (reads, there, _) = sought(&rig, tree, 1_000, 1_400, down, false);
        assert!(reads > 4 && there as u64 == reads, "{there} leaves, {reads} reads");
    }
}

#[test]
fn a_short_range_is_estimated_with_its_leaves_read_together_and_counted() {
    let rig = rig(256);
    let tree = tree(&rig);
    forget(&rig.pool);
    drop(tree.absent_leaf(&rig.pool, &key(2_000)).unwrap());
    let reads = rig.pool.stats().reads;
    let estimate = tree.estimate_range(&rig.pool, &key(2_000), &key(2_040)).unwrap();
    assert_eq!((estimate.entries, estimate.exact), (40, true));
    assert_eq!(rig.pool.stats().reads - reads, estimate.leaf_pages);
}

/// What lies ahead is asked for, nothing behind the end of the range, nor on the other side of its beginning.
#[test]
fn a_scan_reads_ahead_to_its_end_only() {
    let rig = rig(256);
    let tree = tree(&rig);
    let is_there = |n| tree.absent_leaf(&rig.pool, &key(n)).unwrap().is_none();
    let wait_for = |from, to| {
        let begin = std::time::Instant::now();
        while !(is_there(from) && is_there(to)) {
            assert!(begin.elapsed().as_secs() < 60, "not read");
            std::thread::yield_now();
        }
    };
    forget(&rig.pool);
    tree.read_ahead(&rig.pool, &key(500), Scan::up(&key(600))).unwrap();
    wait_for(530, 600);
    assert!(![400, 460, 700, 800].into_iter().any(is_there));
    forget(&rig.pool);
    tree.read_ahead(&rig.pool, &key(600), Scan::down(&key(500))).unwrap();
    wait_for(570, 500);
    assert!(![400, 460, 640, 700].into_iter().any(is_there));
}

/// By what it asks for: on a busy machine whoever reads ahead may come late, however often.
#[test]
fn a_check_reads_leaves_ahead() {
    let rig = rig(256);
    let tree = tree(&rig);
    forget(&rig.pool);
    let asked_for = || work::of_thread().pages_prefetched;
    let before = asked_for();
    let report = check_whole(&rig.pool, tree);
    assert!(asked_for() - before > report.leaf_pages / 2, "{} of {}", asked_for() - before, report.leaf_pages);
}
