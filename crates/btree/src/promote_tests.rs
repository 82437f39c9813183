//! Promotion and demotion against a model, beside threads, and at every crash point.

use crate::page::Target;
use crate::tests::{check_model, check_whole, get, put, rig, scan, take, SPACE};
use crate::*;
use myriad_base::random::Random;
use myriad_base::IndexId;
use myriad_buffer::{BufferPool, SharedPage};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ids next to each other, one that ends in a zero byte, and ones with nothing in between.
const IDS: [u32; 6] = [1, 2, 3, 0xff, 0x100, 0x4_0000];

fn key(id: u32, n: u64, len: usize) -> Vec<u8> {
    let mut key = id.to_be_bytes().to_vec();
    key.extend_from_slice(&n.to_be_bytes()[2..]);
    key.resize(key.len() + len, 7);
    key
}

fn is_promoted(pool: &BufferPool, id: u32) -> bool {
    Tree::pack(SPACE).owner(pool, &id.to_be_bytes()).unwrap() != Tree::pack(SPACE)
}

fn clear(pool: &BufferPool, id: u32) {
    let (lo, hi) = (id.to_be_bytes(), (id + 1).to_be_bytes());
    while Tree::pack(SPACE).remove_range(pool, &lo, &hi, 7, &mut |_, _| ()).unwrap() == RemoveProgress::More {}
}

/// What is seen from the index's own root is what is seen from the pack root.
fn check_index(pool: &BufferPool, id: u32, model: &Model) {
    let pack = Tree::pack(SPACE);
    let (lo, hi) = (id.to_be_bytes(), (id + 1).to_be_bytes());
    let own = pack.owner(pool, &lo).unwrap();
    let wanted = model.range(lo.to_vec()..hi.to_vec());
    let entries = wanted.clone().count() as u64;
    for (key, value) in wanted.step_by(5) {
        assert_eq!(get(pool, own, key).as_ref(), Some(value));
        assert_eq!(get(pool, pack, key).as_ref(), Some(value));
    }
    let estimate = own.estimate_range(pool, &lo, &hi).unwrap();
    assert_eq!(estimate, pack.estimate_range(pool, &lo, &hi).unwrap());
    assert!(!estimate.exact || estimate.entries == entries, "{estimate:?} of {entries}");
    assert_eq!(own.sample_leaves(pool, &lo, &hi, 5).unwrap(), pack.sample_leaves(pool, &lo, &hi, 5).unwrap());
    let report = pack.check(pool, &lo, &hi, &mut |_| Ok(())).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    if own != pack {
        assert_eq!(report.entries, entries);
        assert_eq!(own.check(pool, &lo, &hi, &mut |_| Ok(())).unwrap().findings, []);
    }
    for level in 0..4 {
        for target in [Target::At(&lo), Target::Before(&hi)] {
            let fast = pack.at_level::<SharedPage<'_>>(pool, target, level).unwrap().map(|p| p.id());
            let slow = pack.descend_latched::<SharedPage<'_>>(pool, target, level, &mut |_| ()).unwrap();
            assert_eq!(fast, slow.map(|p| p.id()), "level {level} of index {id}");
        }
    }
}

fn check_all(pool: &BufferPool, model: &Model) {
    let pack = Tree::pack(SPACE);
    check_model(pool, pack, model);
    let report = check_whole(pool, pack);
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), report.leaf_pages + report.inner_pages + 2);
    for id in IDS {
        check_index(pool, id, model);
    }
}

fn against_model(seed: u64, steps: u64, value_max: u64, long: bool) {
    let rig = rig(512);
    let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
    let mut random = Random::from_seed(seed);
    let mut model = Model::new();
    let (mut promotions, mut demotions) = (0, 0);
    for step in 0..steps {
        let id = IDS[random.below(6) as usize];
        match random.below(400) {
            0 | 1 => {
                let before = is_promoted(pool, id);
                let now = pack.promote(pool, IndexId(id)).unwrap().is_some();
                assert_eq!(now, is_promoted(pool, id));
                promotions += u32::from(now && !before);
            }
            2 if random.one_in(4) => {
                demotions += u32::from(is_promoted(pool, id));
                clear(pool, id);
                pack.demote(pool, IndexId(id)).unwrap();
                model.retain(|key, _| key[..4] != id.to_be_bytes());
                assert!(!is_promoted(pool, id));
            }
            n => {
                let len = if long { random.below(700) as usize } else { 0 };
                let at = random.below(600);
                let key = key(id, at, if long { (at * 37 % 700) as usize } else { len });
                // From the pack root or the index's own.
                let tree = if n % 2 == 0 { pack } else { pack.owner(pool, &key).unwrap() };
                // Grows, then shrinks.
                if random.below(steps) > step {
                    let value = vec![step as u8; random.below(value_max) as usize];
                    put(pool, tree, &key, &value).unwrap();
                    model.insert(key, value);
                } else {
                    assert_eq!(take(pool, tree, &key).unwrap().is_some(), model.remove(&key).is_some());
                }
            }
        }
        if step % (steps / 6) == 0 {
            check_all(pool, &model);
        }
    }
    check_all(pool, &model);
    assert!(promotions > 5 && demotions > 1, "{promotions} promotions, {demotions} demotions");
    for id in IDS {
        clear(pool, id);
        pack.demote(pool, IndexId(id)).unwrap();
    }
    check_all(pool, &Model::new());
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), 3, "an empty tree is one page");
}

#[test]
fn promotion_against_a_model() {
    for seed in 0..4 {
        against_model(seed, 24_000, 120, false);
    }
}

#[test]
fn promotion_with_long_keys_against_a_model() {
    for seed in 10..14 {
        against_model(seed, 9_000, 600, true);
    }
}

/// The pages of an index that shrinks come together up to the roots of promoted ones, to the left and to the right.
#[test]
fn merges_stop_at_promoted_neighbours() {
    for ascending in [true, false] {
        let rig = rig(4096);
        let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
        let mut model = Model::new();
        for id in [1, 2, 3] {
            for n in 0..9_000 {
                let (key, value) = (key(id, n, 0), vec![id as u8; 200]);
                put(pool, pack, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
        for id in [1, 3] {
            assert!(pack.promote(pool, IndexId(id)).unwrap().is_some());
        }
        let before = check_whole(pool, pack);
        for n in 0..9_000 {
            let n = if ascending { n } else { 8_999 - n };
            if n % 16 != 0 {
                let key = key(2, n, 0);
                assert!(take(pool, pack, &key).unwrap().is_some() && model.remove(&key).is_some());
            }
        }
        assert!(is_promoted(pool, 1) && is_promoted(pool, 3) && !is_promoted(pool, 2));
        check_all(pool, &model);
        let after = check_whole(pool, pack);
        let (leaves, inner) = (before.leaf_pages - after.leaf_pages, before.inner_pages - after.inner_pages);
        assert!(leaves > 400 && inner >= 2, "ascending {ascending}: {before:?}, then {after:?}");
    }
}

#[test]
fn a_split_tells_when_an_index_is_large() {
    let rig = rig(512);
    let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
    let mut most = 0;
    for n in 0..4_000 {
        for id in [3u32, 4] {
            let key = key(id, n, 0);
            if id == 4 && n > 50 {
                continue;
            }
            loop {
                let mut mtr = myriad_buffer::Mtr::start(pool).unwrap();
                let leaf = pack.seek_exclusive(pool, &key).unwrap();
                let slot = leaf.find(&key).unwrap_err();
                if leaf.fits(key.len(), 100) {
                    leaf.into_mtr(&mut mtr).insert(&mut mtr, slot, &key, &[1; 100]).unwrap();
                    mtr.commit().unwrap();
                    break;
                }
                drop(leaf);
                drop(mtr);
                let leaves = pack.make_room(pool, &key, 100).unwrap();
                assert!(u64::from(leaves) <= n * 130 / 2_000 + 1 || leaves == u32::MAX, "{leaves} leaves at {n}");
                most = most.max(leaves);
            }
        }
    }
    assert!(most >= 64, "{most}");
    assert!(pack.promote(pool, IndexId(4)).unwrap().is_some());
    assert!(pack.promote(pool, IndexId(5)).unwrap().is_none(), "an index without entries needs no root");
    let own = pack.promote(pool, IndexId(3)).unwrap().unwrap();
    assert_eq!(pack.promote(pool, IndexId(3)).unwrap(), Some(own));
    assert_eq!(own.make_room(pool, &key(3, 7, 0), 1_000).unwrap(), 0);
    assert_eq!(pack.make_room(pool, &key(3, 9, 0), 1_000).unwrap(), 0);
    let before = scan(pool, pack);
    // Back where it was, as it has not grown a level since.
    pack.demote(pool, IndexId(3)).unwrap();
    assert!(!is_promoted(pool, 3) && is_promoted(pool, 4));
    for n in 0..20_000 {
        put(pool, pack, &key(9, n, 0), &[1; 100]).unwrap();
        if n == 200 {
            pack.promote(pool, IndexId(9)).unwrap().unwrap();
        }
    }
    assert!(matches!(pack.demote(pool, IndexId(9)), Err(myriad_base::Error::Invalid { .. })));
    assert!(is_promoted(pool, 9));
    let used = alloc::pages_in_use(pool, SPACE).unwrap();
    assert_eq!(scan(pool, pack).len(), before.len() + 20_000);
    check_whole(pool, pack);
    clear(pool, 9);
    pack.demote(pool, IndexId(9)).unwrap();
    assert!(!is_promoted(pool, 9));
    assert_eq!(scan(pool, pack), before);
    check_whole(pool, pack);
    assert!(alloc::pages_in_use(pool, SPACE).unwrap() < used - 500);
}

#[test]
fn readers_and_writers_go_on_during_promotion() {
    const THREADS: u64 = 3;
    let rig = rig(700);
    let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
    let done = AtomicBool::new(false);
    let model: Model = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|t| {
                scope.spawn(move || {
                    let mut random = Random::from_seed(t);
                    let mut model = Model::new();
                    let mut handles = BTreeMap::new();
                    for step in 0..16_000u64 {
                        let id = IDS[random.below(6) as usize];
                        let key = key(id, random.below(800) * THREADS + t, 0);
                        // A handle found once is used from then on: promoted roots stay.
                        let own = pack.owner(pool, &key).unwrap();
                        let handle = *handles.entry(id).or_insert(own);
                        assert!(handle == pack || handle == own, "index {id} was promoted twice");
                        let tree = if own != pack && random.one_in(2) { own } else { handle };
                        handles.insert(id, tree);
                        match random.below(10) {
                            0..=5 if step % 8_000 < 5_000 => {
                                let value = vec![step as u8; random.below(150) as usize];
                                put(pool, tree, &key, &value).unwrap();
                                model.insert(key, value);
                            }
                            0..=7 => {
                                assert_eq!(take(pool, tree, &key).unwrap().is_some(), model.remove(&key).is_some())
                            }
                            _ => assert_eq!(get(pool, tree, &key), model.get(&key).cloned()),
                        }
                    }
                    model
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = Random::from_seed(99);
            while !done.load(Ordering::Relaxed) {
                let id = IDS[random.below(6) as usize];
                let _ = pack.promote(pool, IndexId(id)).unwrap();
                if random.one_in(8) {
                    let (lo, hi) = (id.to_be_bytes(), (id + 1).to_be_bytes());
                    let report = pack.check(pool, &lo, &hi, &mut |_| Ok(())).unwrap();
                    assert!(report.findings.is_empty(), "{:?}", report.findings);
                    pack.estimate_range(pool, &lo, &hi).unwrap();
                    let keys = scan(pool, pack);
                    assert!(keys.windows(2).all(|w| w[0].0 < w[1].0));
                }
                std::thread::yield_now();
            }
        });
        let models = writers.into_iter().map(|w| w.join()).collect::<Vec<_>>();
        done.store(true, Ordering::Relaxed);
        models.into_iter().flat_map(|m| m.unwrap()).collect()
    });
    assert!(IDS.iter().filter(|id| is_promoted(pool, **id)).count() >= 4);
    check_all(pool, &model);
}

/// Purge and rollbacks in the background hold no definition: an index goes while they tidy up behind what they removed there.
#[test]
fn merges_go_on_while_an_index_is_dropped() {
    let rig = rig(700);
    let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
    for id in [1, 3] {
        (0..300).for_each(|n| _ = put(pool, pack, &key(id, n, 0), &[1; 100]).unwrap());
    }
    let before = scan(pool, pack);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mergers: Vec<_> = (0..3)
            .map(|t| {
                let done = &done;
                scope.spawn(move || {
                    let mut random = Random::from_seed(t);
                    while !done.load(Ordering::Relaxed) {
                        pack.merge_if_sparse(pool, &key(2, random.below(300), 0)).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            (0..300).for_each(|n| _ = put(pool, pack, &key(2, n, 0), &[2; 100]).unwrap());
            pack.promote(pool, IndexId(2)).unwrap();
            clear(pool, 2);
            pack.demote(pool, IndexId(2)).unwrap();
            if mergers.iter().any(|merger| merger.is_finished()) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(scan(pool, pack), before);
    check_whole(pool, pack);
}

/// Not a check: prints what promotion changes for an index among many small ones.
/// `cargo test --release -p myriad-btree promotion_speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn promotion_speed() {
    const N: u64 = 300_000;
    const LARGE: u32 = 50_000;
    for promote in [false, true] {
        let rig = rig(60_000);
        let (pool, pack) = (&rig.pool, Tree::pack(SPACE));
        for id in (1..100_000u32).filter(|id| *id != LARGE) {
            for n in 0..3 {
                put(pool, pack, &key(id, n, 0), &[1; 60]).unwrap();
            }
        }
        let time = |what: &str, n: u64, f: &mut dyn FnMut(u64)| {
            let start = std::time::Instant::now();
            (0..n).for_each(f);
            println!("promotion {promote}: {what}: {} ns", start.elapsed().as_nanos() as u64 / n);
        };
        time("ascending insert, first half", N, &mut |i| {
            put(pool, pack, &key(LARGE, 2 * i, 0), &[1; 60]).unwrap();
        });
        if promote {
            time("promotion", 1, &mut |_| assert!(pack.promote(pool, IndexId(LARGE)).unwrap().is_some()));
        }
        time("random insert, second half", N, &mut |i| {
            put(pool, pack, &key(LARGE, myriad_base::ids::mix(i) % N * 2 + 1, 0), &[1; 60]).unwrap();
        });
        let (low, own) = (key(LARGE, 0, 0), pack.owner(pool, &key(LARGE, 0, 0)).unwrap());
        let levels = |tree: Tree, key: &[u8]| {
            let mut pages = 1;
            tree.at_level_noting::<SharedPage<'_>>(pool, Target::At(key), 0, &mut |step: crate::tree::Step| {
                pages += u32::from(!step.is_promoted_root());
            })
            .unwrap();
            pages
        };
        let (small, large) = (levels(pack, &key(7, 0, 0)), levels(pack, &low));
        println!("promotion {promote}: pages on the way to a small index {small}, to the large one {large}, from its own root {}", levels(own, &low));
        for (what, tree) in [("seek from the pack root", pack), ("seek from its own root", own)] {
            for _ in 0..3 {
                time(what, N, &mut |i| {
                    let key = key(LARGE, myriad_base::ids::mix(i) % N * 2, 0);
                    let leaf = tree.seek(pool, &key).unwrap();
                    std::hint::black_box(leaf.value(leaf.find(&key).unwrap()));
                });
            }
        }
        let (pages, log) = (alloc::pages_in_use(pool, SPACE).unwrap(), pool.log().end_lsn());
        time("removal", 1, &mut |_| {
            clear(pool, LARGE);
            pack.demote(pool, IndexId(LARGE)).unwrap();
        });
        let freed = pages - alloc::pages_in_use(pool, SPACE).unwrap();
        println!("promotion {promote}: removal: {freed} pages, {} bytes of log", pool.log().end_lsn().0 - log.0);
    }
}
