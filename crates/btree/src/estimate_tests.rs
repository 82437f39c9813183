//! Estimates of ranges whose pages are not in memory but for those at the ends, which are unlike the others.

use crate::page::{self, Target};
use crate::tests::{put, rig, scan, take, Rig, SPACE};
use crate::*;
use myriad_base::random::Random;
use myriad_base::SpaceId;
use myriad_buffer::{BufferPool, Mtr, SharedPage};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn key(n: u64) -> Vec<u8> {
    [&[0, 0, 0, 5][..], &n.to_be_bytes()].concat()
}

/// Brings so many other pages in that none of other trees stays.
fn forget(pool: &BufferPool) {
    let other = Tree::create(pool, SPACE).unwrap();
    for n in 0..1200u64 {
        put(pool, other, &key(n), &[1; 1000]).unwrap();
    }
    for _ in 0..3 {
        scan(pool, other);
    }
    // So many frames are free that the provider will not wake, and take away what was just read.
    while pool.stats().free_frames < 16 {
        std::thread::yield_now();
    }
}

/// Leaves but `left` entries in the leaf that covers `key`, the first or the last ones. Merges nothing.
fn thin(pool: &BufferPool, tree: Tree, key: &[u8], left: usize, first: bool) {
    let mut mtr = Mtr::start(pool).unwrap();
    let leaf = tree.seek_exclusive(pool, key).unwrap().into_mtr(&mut mtr);
    while leaf.view(&mtr).len() > left {
        let slot = if first { left } else { 0 };
        leaf.remove(&mut mtr, slot).unwrap();
    }
    mtr.commit().unwrap();
}

/// Estimates a range with nothing in memory; the estimate by the truth, and pages read.
fn estimate_cold(rig: &Rig, tree: Tree, lo: &[u8], hi: &[u8]) -> (f64, u64) {
    let pool = &rig.pool;
    let within = |k: &[u8]| k >= lo && (hi.is_empty() || k < hi);
    let entries = scan(pool, tree).iter().filter(|(k, _)| within(k)).count();
    forget(pool);
    let reads = pool.stats().reads;
    let estimate = tree.estimate_range(pool, lo, hi).unwrap();
    (estimate.entries as f64 / entries as f64, pool.stats().reads - reads)
}

/// A queue: rows go at the front as they come at the end.
#[test]
fn a_nearly_empty_first_leaf_says_nothing_of_the_others() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in 0..30_000 {
        put(pool, tree, &key(n), &[1; 30]).unwrap();
    }
    for n in 0..10_000 {
        take(pool, tree, &key(n)).unwrap();
    }
    for left in [1, 3, 10] {
        thin(pool, tree, &key(0), left, false);
        for hi in [key(15_000), key(u64::MAX), vec![]] {
            let (ratio, reads) = estimate_cold(&rig, tree, &key(0), &hi);
            assert!((0.67..1.5).contains(&ratio), "{left} left, to {hi:?}: {ratio}");
            assert!(reads <= 6, "{reads} pages read");
        }
    }
}

/// The same in the middle of an index, where a range was deleted; and at both ends at once.
#[test]
fn leaves_at_the_edges_of_a_hole_say_nothing_of_the_others() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in (0..10_000).chain(20_000..30_000).chain(40_000..50_000) {
        put(pool, tree, &key(n), &[1; 30]).unwrap();
    }
    thin(pool, tree, &key(20_000), 1, false);
    thin(pool, tree, &key(29_999), 1, true);
    for (lo, hi) in [(15_000, 35_000), (15_000, 25_000), (25_000, 35_000), (15_000, 60_000)] {
        let (ratio, reads) = estimate_cold(&rig, tree, &key(lo), &key(hi));
        assert!((0.67..1.5).contains(&ratio), "{lo} to {hi}: {ratio}");
        assert!(reads <= 6, "{reads} pages read");
    }
}

/// Neither end has a single entry: the one leaf is read that whoever reads the range comes to next.
#[test]
fn a_range_without_entries_at_its_ends_takes_one_more_page() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in 0..10_000 {
        put(pool, tree, &key(n), &[1; 30]).unwrap();
    }
    thin(pool, tree, &key(0), 0, true);
    thin(pool, tree, &key(9_999), 0, true);
    let (ratio, reads) = estimate_cold(&rig, tree, &key(0), &[]);
    assert!((0.67..1.5).contains(&ratio), "{ratio}");
    assert!(reads <= 6, "{reads} pages read");
}

/// Leaves that have lost half of their entries everywhere are no remains of a deletion.
#[test]
fn sparse_leaves_are_taken_for_what_they_are() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in 0..30_000 {
        put(pool, tree, &key(n), &[1; 30]).unwrap();
    }
    for n in (0..30_000).filter(|n| n % 5 > 1) {
        take(pool, tree, &key(n)).unwrap();
    }
    let (ratio, _) = estimate_cold(&rig, tree, &key(5_000), &key(25_000));
    assert!((0.67..1.5).contains(&ratio), "{ratio}");
}

/// The first inner page has a few children left, the last one has few so far; those between have hundreds.
#[test]
fn inner_pages_at_the_ends_say_little_of_those_between() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    const LEFT: usize = 5;
    let children = |target: Target<'_>| {
        let parent = tree.at_level::<SharedPage<'_>>(pool, target, 1).unwrap().expect("two levels of inner pages");
        let count = page::count(&parent);
        (count, page::key(&parent, count.saturating_sub(LEFT)))
    };
    let mut n = 0;
    while n < 60_000 || children(Target::Last).0 > 1 {
        put(pool, tree, &key(n), &[1; 200]).unwrap();
        n += 1;
    }
    let (_, gone) = children(Target::At(&[]));
    while tree.remove_range(pool, &[], &gone, 100, &mut |_, _| ()).unwrap() == RemoveProgress::More {}
    assert!(children(Target::At(&[])).0 <= LEFT && children(Target::Last).0 <= 1);
    let (ratio, reads) = estimate_cold(&rig, tree, &key(0), &[]);
    assert!((0.6..1.7).contains(&ratio), "cold: {ratio}");
    assert!(reads <= 6, "{reads} pages read");
    // With the inner pages in memory they are counted, or nearly so.
    for at in (0..n).step_by(1000) {
        drop(tree.at_level::<SharedPage<'_>>(pool, Target::At(&key(at)), 1).unwrap());
    }
    let estimate = tree.estimate_range(pool, &key(0), &[]).unwrap();
    let entries = scan(pool, tree).len() as f64;
    assert!((0.75..1.3).contains(&(estimate.entries as f64 / entries)), "{estimate:?} of {entries}");
}

/// In a shared tree the first leaf of an index is full of others' small entries.
#[test]
fn entries_of_other_indexes_are_not_taken_for_the_index_s_own() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    for n in 0..2_000u32 {
        put(pool, tree, &[[0, 0, 0, 4], n.to_be_bytes()].concat(), b"").unwrap();
        put(pool, tree, &[[0, 0, 0, 6], n.to_be_bytes()].concat(), b"").unwrap();
    }
    for n in 0..120 {
        put(pool, tree, &key(n), &[1; 900]).unwrap();
    }
    let (lo, hi) = ([0, 0, 0, 5], [0, 0, 0, 6]);
    let (ratio, reads) = estimate_cold(&rig, tree, &lo, &hi);
    assert!((0.67..1.5).contains(&ratio), "{ratio}");
    assert!(reads <= 4, "{reads} pages read");
}

/// Entries that become ten times larger half-way: one end's leaf has ten times as many as the other's.
#[test]
fn large_entries_count_as_much_as_small_ones() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in 0..20_000 {
        put(pool, tree, &key(n), if n < 10_000 { &[1; 10] } else { &[1; 400] }).unwrap();
    }
    for (lo, hi) in [(0, 20_000), (5_000, 15_000), (10_000, 20_000), (0, 10_000)] {
        let (ratio, reads) = estimate_cold(&rig, tree, &key(lo), &key(hi));
        assert!((0.5..2.0).contains(&ratio), "{lo} to {hi}: {ratio}");
        assert!(reads <= 6, "{reads} pages read");
    }
}

/// Estimates a range with everything in memory; the estimate by the truth.
fn estimate_warm(pool: &BufferPool, tree: Tree, lo: &[u8], hi: &[u8]) -> f64 {
    let entries =
        scan(pool, tree).iter().filter(|(k, _)| k.as_slice() >= lo && (hi.is_empty() || k.as_slice() < hi)).count();
    let reads = pool.stats().reads;
    let estimate = tree.estimate_range(pool, lo, hi).unwrap();
    assert_eq!(pool.stats().reads, reads, "an estimate read pages");
    estimate.entries as f64 / entries as f64
}

/// Few large entries, then many small ones, in as many leaves; and the other way round.
#[test]
fn the_first_leaves_do_not_speak_for_the_others() {
    let rig = rig(2048);
    let pool = &rig.pool;
    for large_first in [true, false] {
        let tree = Tree::create(pool, SPACE).unwrap();
        for n in 0..1_000u64 {
            put(pool, tree, &key(if large_first { n } else { 100_000 + n }), &[1; 1200]).unwrap();
        }
        for n in 10_000..70_000 {
            put(pool, tree, &key(n), &[1; 4]).unwrap();
        }
        for (lo, hi) in [(0, u64::MAX), (500, 40_000), (500, 60_000), (40_000, 100_500)] {
            let ratio = estimate_warm(pool, tree, &key(lo), &key(hi));
            assert!((0.67..1.5).contains(&ratio), "large first {large_first}, {lo} to {hi}: {ratio}");
        }
        let looks = Looks { pages: 24, read: true };
        forget(pool);
        let reads = pool.stats().reads;
        let estimate = tree.estimate_looking(pool, &key(0), &key(u64::MAX), looks).unwrap();
        assert!((50_000..75_000).contains(&estimate.entries), "large first {large_first}: {estimate:?}");
        assert!(pool.stats().reads - reads <= 32, "{} pages read", pool.stats().reads - reads);
        // What is looked at for fewer pages is in memory now.
        let reads = pool.stats().reads;
        let estimate = tree.estimate_looking(pool, &key(0), &key(u64::MAX), Looks { pages: 8, read: false }).unwrap();
        assert!((40_000..90_000).contains(&estimate.entries), "large first {large_first}: {estimate:?}");
        assert_eq!(pool.stats().reads, reads);
    }
}

/// Leaves lost nearly all of their entries, and stayed: they count as what they are.
#[test]
fn leaves_that_are_all_sparse_count_as_sparse() {
    let rig = rig(1024);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for n in 0..30_000 {
        put(pool, tree, &key(n), &[1; 30]).unwrap();
    }
    let mut at = key(0);
    while !at.is_empty() {
        thin(pool, tree, &at, 3, true);
        at = tree.seek(pool, &at).unwrap().high_fence().to_vec();
    }
    for (lo, hi) in [(0, 30_000), (0, 20_000), (5_000, 25_000)] {
        let ratio = estimate_warm(pool, tree, &key(lo), &key(hi));
        assert!((0.5..2.0).contains(&ratio), "{lo} to {hi}: {ratio}");
    }
}

/// The first inner pages have few children, as their separators are long; most have many.
#[test]
fn the_first_inner_pages_do_not_speak_for_the_others() {
    let rig = rig(8192);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    // Pairs that differ in their last byte alone: half of the separators are long.
    for n in 0..1_200 {
        put(pool, tree, &[&key(n / 2)[..], &[9; 500], &[n as u8 % 2]].concat(), &[1; 700]).unwrap();
    }
    for n in 10_000..30_000 {
        put(pool, tree, &key(n), &[1; 900]).unwrap();
    }
    let ratio = estimate_warm(pool, tree, &key(0), &[]);
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// Whatever splits, merges, moves or leaves memory: while all leaves of a count are unchanged it is right.
#[test]
fn a_count_holds_while_its_leaves_are_unchanged() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let mut random = myriad_base::random::Random::from_seed(9);
    let key = |id: u32, n: u64| [&id.to_be_bytes()[..], &n.to_be_bytes()].concat();
    let mut rows: [std::collections::BTreeSet<u64>; 6] = Default::default();
    let mut kept: [Option<(u64, SeenLeaves)>; 6] = Default::default();
    let (mut held, mut leaves_max) = (0, 0);
    for step in 0..40_000 {
        let at = random.below(6) as usize;
        let (id, n) = (at as u32 + 1, random.below(100));
        // Tables grow to some leaves, and shrink to nothing.
        if random.below(100) < if step / 700 % 2 == 0 { 85 } else { 10 } {
            put(pool, tree, &key(id, n), &vec![1; random.below(300) as usize]).unwrap();
            rows[at].insert(n);
        } else {
            take(pool, tree, &key(id, n)).unwrap();
            rows[at].remove(&n);
        }
        if step % 10_000 == 9_999 {
            forget(pool);
        }
        let of = random.below(6) as usize;
        let (lo, hi) = ((of as u32 + 1).to_be_bytes(), (of as u32 + 2).to_be_bytes());
        match &kept[of] {
            Some((entries, leaves)) if leaves.iter().all(|leaf| pool.is_unchanged(leaf)) => {
                held += 1;
                leaves_max = leaves_max.max(leaves.len());
                assert_eq!(*entries, rows[of].len() as u64, "step {step}, index {of}");
            }
            _ => {
                let mut leaves = SeenLeaves::new();
                let looks = Looks { pages: 8, read: false };
                let estimate = tree.estimate_seeing(pool, &lo, &hi, looks, &mut leaves).unwrap();
                assert!(leaves.is_empty() || estimate.exact && estimate.leaf_pages == leaves.len() as u64);
                assert!(leaves.iter().all(|leaf| pool.is_unchanged(leaf)));
                kept[of] = (!leaves.is_empty()).then_some((estimate.entries, leaves));
            }
        }
    }
    assert!(held > 1_000 && leaves_max >= 3, "{held} counts held, of up to {leaves_max} leaves");
}

/// Pages of a table in memory are gone once they are merged away: whoever was about to look at one asks again.
#[test]
fn estimates_go_on_while_a_tree_in_memory_shrinks() {
    let rig = rig(4096);
    let pool = &*rig.pool;
    crate::alloc::create_memory_space(pool).unwrap();
    let tree = Tree::pack(SpaceId::MEMORY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random::from_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let from = random.below(1900);
                    tree.estimate_range(pool, &key(from), &key(from + 45 + random.below(60))).unwrap();
                }
            });
        }
        for _ in 0..100 {
            for n in 0..2000 {
                put(pool, tree, &key(n), &[1; 1000]).unwrap();
            }
            for n in 0..2000 {
                take(pool, tree, &key(n)).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
