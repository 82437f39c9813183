//! Trees in a real buffer pool, against a model.

use crate::*;
use myriad_base::random::Random;
use myriad_base::{IndexId, Lsn, PageId, Result, SpaceId};
use myriad_buffer::{BufferPool, Mtr, PoolConfig, RedoTable, Reporter};
use myriad_io::{Io, ThreadIo};
use myriad_log::{Log, LogConfig};
use myriad_space::SpaceRegistry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

pub const SPACE: SpaceId = SpaceId(16);
const UUID: [u8; 16] = [7; 16];

/// A pool over a directory of its own, which goes with it.
pub struct Rig {
    pub pool: Arc<BufferPool>,
    dir: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.pool.stop_background();
        // What cannot be removed is left to the system's clean-up.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn config(frames: usize) -> PoolConfig {
    PoolConfig { bytes: frames * 4096, instances: 2, page_size: 4096, doublewrite: false, ..PoolConfig::default() }
}

/// The pool over existing files, and where their log ended.
pub fn open_pool(io: Arc<dyn Io>, dir: &Path, config: &PoolConfig) -> Result<(Arc<BufferPool>, Lsn)> {
    let log_config = LogConfig { capacity_bytes: 64 << 20, buffer_bytes: 4 << 20 };
    let log = Arc::new(Log::open(&io, dir, log_config)?);
    let spaces = Arc::new(SpaceRegistry::new(Arc::clone(&io), dir, config.page_size, 16));
    spaces.register(SPACE, "a.myr", Some(UUID));
    let reporter: Reporter = Arc::new(|level, text: &str| eprintln!("{level:?}: {text}"));
    let mut redo = RedoTable::new();
    register(&mut redo);
    let pool = BufferPool::new(config.clone(), io, dir, log, spaces, redo, reporter)?;
    let recovered = pool.recover(false)?;
    pool.start_background().unwrap();
    Ok((pool, recovered.end_lsn))
}

pub fn create_files(io: &Arc<dyn Io>, dir: &Path, page_size: usize) {
    io.create_dir(&dir.join("#myriad")).unwrap();
    io.sync_dir(dir).unwrap();
    Log::create(io, dir, LogConfig { capacity_bytes: 64 << 20, buffer_bytes: 4 << 20 }, UUID).unwrap();
    let spaces = SpaceRegistry::new(Arc::clone(io), dir, page_size, 16);
    spaces.create(SPACE, "a.myr", UUID, Lsn(0)).unwrap();
}

pub fn rig(frames: usize) -> Rig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let no = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("myriad-btree-{}-{no}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let io: Arc<dyn Io> = Arc::new(ThreadIo::new());
    create_files(&io, &dir, 4096);
    let (pool, _) = open_pool(io, &dir, &config(frames)).unwrap();
    alloc::create_space_layout(&pool, SPACE).unwrap();
    Rig { pool, dir }
}

/// Inserts or replaces. Returns the end of the change in the log.
pub fn put(pool: &BufferPool, tree: Tree, key: &[u8], value: &[u8]) -> Result<Lsn> {
    loop {
        {
            let mut mtr = Mtr::start(pool)?;
            let leaf = tree.seek_exclusive(pool, key)?;
            match leaf.find(key) {
                Ok(slot) if leaf.fits_replace(slot, value.len()) => {
                    let old = leaf.value(slot);
                    let same = old.len() == value.len() && value.len() > 2;
                    let leaf = leaf.into_mtr(&mut mtr);
                    if same {
                        leaf.patch_value(&mut mtr, slot, 1, &value[1..])?;
                        leaf.patch_value(&mut mtr, slot, 0, &value[..1])?;
                    } else {
                        leaf.replace_value(&mut mtr, slot, value)?;
                    }
                    return mtr.commit();
                }
                Err(slot) if leaf.fits(key.len(), value.len()) => {
                    let leaf = leaf.into_mtr(&mut mtr);
                    leaf.insert(&mut mtr, slot, key, value)?;
                    return mtr.commit();
                }
                _ => {}
            }
        }
        tree.make_room(pool, key, value.len())?;
    }
}

/// Removes, if it is there. Returns the end of the change in the log.
pub fn take(pool: &BufferPool, tree: Tree, key: &[u8]) -> Result<Option<Lsn>> {
    let (sparse, end) = {
        let mut mtr = Mtr::start(pool)?;
        let leaf = tree.seek_exclusive(pool, key)?;
        let Ok(slot) = leaf.find(key) else { return Ok(None) };
        let sparse = leaf.is_sparse_without(slot);
        leaf.into_mtr(&mut mtr).remove(&mut mtr, slot)?;
        (sparse, mtr.commit()?)
    };
    if sparse {
        tree.merge_if_sparse(pool, key)?;
    }
    Ok(Some(end))
}

pub fn get(pool: &BufferPool, tree: Tree, key: &[u8]) -> Option<Vec<u8>> {
    let leaf = tree.seek(pool, key).unwrap();
    assert!(leaf.covers(key));
    leaf.find(key).ok().map(|slot| leaf.value(slot).to_vec())
}

/// Every entry, forwards.
pub fn scan(pool: &BufferPool, tree: Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut at = Vec::new();
    loop {
        let leaf = tree.seek(pool, &at).unwrap();
        let mut key = Vec::new();
        // A leaf may have got entries of its neighbour's since.
        for slot in leaf.find(&at).unwrap_or_else(|s| s)..leaf.len() {
            leaf.key_into(slot, &mut key);
            out.push((key.clone(), leaf.value(slot).to_vec()));
        }
        if leaf.is_last() {
            return out;
        }
        at = leaf.high_fence().to_vec();
    }
}

/// Every key, backwards.
pub fn scan_back(pool: &BufferPool, tree: Tree) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut leaf = LeafShared::new(tree.at_level(pool, page::Target::Last, 0).unwrap().unwrap());
    loop {
        for slot in (0..leaf.len()).rev() {
            let mut key = Vec::new();
            leaf.key_into(slot, &mut key);
            out.push(key);
        }
        if leaf.is_first() {
            return out;
        }
        let at = leaf.low_fence().to_vec();
        drop(leaf);
        leaf = tree.seek_before(pool, &at).unwrap();
    }
}

/// How full the leaves are, in percent.
fn fill_percent(report: &CheckReport) -> u64 {
    report.leaf_used_bytes * 100 / (report.leaf_pages * 4096)
}

pub fn check_whole(pool: &BufferPool, tree: Tree) -> CheckReport {
    let report = tree.check(pool, &[], &[], &mut |_| Ok(())).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    report
}

pub fn check_model(pool: &BufferPool, tree: Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let report = check_whole(pool, tree);
    assert_eq!(report.entries, model.len() as u64);
    let got = scan(pool, tree);
    assert!(got.iter().map(|(k, v)| (k, v)).eq(model.iter()), "a forward scan differs");
    assert!(scan_back(pool, tree).iter().eq(model.keys().rev()), "a backward scan differs");
    for (k, v) in model.iter().step_by(7) {
        assert_eq!(get(pool, tree, k).as_ref(), Some(v));
    }
}

fn random_key(random: &mut Random, space: u64, long: bool) -> Vec<u8> {
    let n = random.below(space);
    let mut key = vec![0, 0, (n % 3) as u8, 7];
    key.extend_from_slice(format!("{:06}", n.wrapping_mul(7919) % 1_000_000).as_bytes());
    if long {
        key.resize(10 + (n * n % 880) as usize, (n % 251) as u8);
    }
    key
}

fn against_model(seed: u64, steps: u64, space: u64, value_max: u64, long: bool) {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let mut random = Random::from_seed(seed);
    let mut model = BTreeMap::new();
    for step in 0..steps {
        let key = random_key(&mut random, space, long);
        // Grows, then shrinks.
        if random.below(steps) > step {
            let value = vec![step as u8; random.below(value_max) as usize];
            put(pool, tree, &key, &value).unwrap();
            model.insert(key, value);
        } else {
            assert_eq!(take(pool, tree, &key).unwrap().is_some(), model.remove(&key).is_some());
        }
        if step % (steps / 4) == 0 {
            check_model(pool, tree, &model);
        }
    }
    check_model(pool, tree, &model);
    for key in model.keys() {
        assert!(take(pool, tree, key).unwrap().is_some());
    }
    assert!(check_whole(pool, tree).leaf_pages <= 1 + model.len() as u64 / 10);
}

#[test]
fn small_entries_against_a_model() {
    against_model(1, 20_000, 6_000, 60, false);
}

#[test]
fn large_entries_against_a_model() {
    against_model(2, 6_000, 800, 900, false);
}

#[test]
fn long_keys_against_a_model() {
    against_model(3, 4_000, 700, 800, true);
}

/// The merge of the last two leaves leaves the root with one child, whose place the root takes at once: nobody may come again.
#[test]
fn the_last_merge_leaves_a_root_alone() {
    let rig = rig(64);
    let (pool, tree) = (&rig.pool, Tree::pack(SPACE));
    let keys = [1u8, 2, 3].map(|i| vec![i; 8]);
    for key in &keys {
        put(pool, tree, key, &[0; 900]).unwrap();
        put(pool, tree, &[&key[..], b"more"].concat(), &[0; 900]).unwrap();
    }
    let pages = alloc::pages_in_use(pool, SPACE).unwrap();
    for key in &keys {
        for key in [key.clone(), [&key[..], b"more"].concat()] {
            let mut mtr = Mtr::start(pool).unwrap();
            let leaf = tree.seek_exclusive(pool, &key).unwrap();
            let slot = leaf.find(&key).unwrap();
            leaf.into_mtr(&mut mtr).remove(&mut mtr, slot).unwrap();
            mtr.commit().unwrap();
        }
    }
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), pages, "nothing was merged yet");
    assert!(pages > 4, "{pages} pages are no tree of two leaves");
    tree.merge_if_sparse(pool, &keys[0]).unwrap();
    let left = alloc::pages_in_use(pool, SPACE).unwrap();
    assert_eq!(left, 3, "of {pages} pages");
}

/// Of 12,000 entries all go but one in `kept`: upwards, downwards and in no order. `look` gets the tree as it was and as it is.
fn remove_but_one_in(kept: u32, look: impl Fn(CheckReport, CheckReport)) {
    const N: u32 = 12_000;
    let rig = rig(1024);
    let pool = &rig.pool;
    let orders: [&dyn Fn(u32) -> u32; 3] = [&|i| i, &|i| N - 1 - i, &|i| i * 7919 % N];
    for (no, order) in (0u32..).zip(orders) {
        let tree = Tree::create_for(pool, SPACE, IndexId(no + 5)).unwrap();
        let key = |i: u32| [(no + 5).to_be_bytes(), i.to_be_bytes()].concat();
        for i in 0..N {
            put(pool, tree, &key(i), &[1; 60]).unwrap();
        }
        let before = check_whole(pool, tree);
        for i in (0..N).map(order).filter(|i| i % kept != 0) {
            take(pool, tree, &key(i)).unwrap().expect("it was there");
        }
        let report = check_whole(pool, tree);
        assert_eq!(report.entries, u64::from(N / kept));
        assert_eq!(scan(pool, tree).len(), scan_back(pool, tree).len());
        look(before, report);
    }
}

/// Each leaf keeps a few entries: whichever way the others go, what is left comes together.
#[test]
fn leaves_left_nearly_empty_are_merged_in_whatever_order_they_became_so() {
    remove_but_one_in(50, |before, report| {
        assert!(before.leaf_pages > 200 && report.leaf_pages < 15, "{report:?}, before {before:?}");
    });
}

/// What deletes everywhere leave is not spread over half-empty pages, and pages that fit are not merged to be split again soon.
#[test]
fn leaves_left_a_third_full_are_merged() {
    remove_but_one_in(3, |_, report| {
        let fill = fill_percent(&report);
        assert!((50..80).contains(&fill), "{fill} % full, {report:?}");
    });
}

/// An UPDATE of all rows of a loaded table makes each longer.
#[test]
fn entries_that_grow_one_after_the_other_do_not_halve_the_fill() {
    let rig = rig(1024);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(5)).unwrap();
    let key = |i: u32| [5u32.to_be_bytes(), i.to_be_bytes()].concat();
    for value in [&[1; 60][..], &[1; 70]] {
        for i in 0..12_000 {
            put(pool, tree, &key(i), value).unwrap();
        }
    }
    let report = check_whole(pool, tree);
    let fill = fill_percent(&report);
    assert!(fill > 70, "{fill} % full, {report:?}");
}

#[test]
fn an_ascending_load_fills_pages_and_a_descending_one_too() {
    let rig = rig(512);
    let pool = &rig.pool;
    for descending in [false, true] {
        let tree = Tree::create_for(pool, SPACE, IndexId(0x3ff)).unwrap();
        for i in 0..6_000u32 {
            let i = if descending { 6_000 - i } else { i };
            let key = [&0x3ffu32.to_be_bytes()[..], &i.to_be_bytes()].concat();
            put(pool, tree, &key, &[1; 40]).unwrap();
        }
        let report = check_whole(pool, tree);
        assert_eq!(report.entries, 6_000);
        let fill = fill_percent(&report);
        // Not 100: once a page has a high fence its prefix is longer, and its entries shorter.
        assert!(fill >= 90, "descending {descending}: {fill} % full");
        // The index id and the common bytes are stored once a page.
        let leaf = tree.seek(pool, &[0, 0, 3, 0xff, 0, 0, 4, 0]).unwrap();
        assert!(leaf.key_parts(0).prefix.len() >= 6);
    }
}

#[test]
fn a_random_load_shares_with_neighbours() {
    let rig = rig(512);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(0x3ff)).unwrap();
    let mut random = Random::from_seed(4);
    let mut model = BTreeMap::new();
    for _ in 0..20_000 {
        let key = [&0x3ffu32.to_be_bytes()[..], &random.next_u64().to_be_bytes()].concat();
        put(pool, tree, &key, &[1; 20]).unwrap();
        model.insert(key, vec![1; 20]);
    }
    check_model(pool, tree, &model);
    let report = check_whole(pool, tree);
    let fill = fill_percent(&report);
    assert!(fill >= 78, "{fill} % full");
}

#[test]
fn bulk_loads_are_packed_and_exact() {
    let rig = rig(512);
    let pool = &rig.pool;
    for (n, value_max) in [(0u32, 1), (1, 50), (70, 50), (20_000, 50), (900, 1_100)] {
        let mut random = Random::from_seed(u64::from(n));
        let mut builder = BulkBuilder::new(pool, SPACE, IndexId(900 + n)).unwrap();
        let mut model = BTreeMap::new();
        for i in 0..n {
            let mut key = (900 + n).to_be_bytes().to_vec();
            key.extend_from_slice(&(i * 3).to_be_bytes());
            if n == 900 && i % 50 == 0 {
                // Neighbours with nothing in common.
                key.truncate(4);
                key.extend_from_slice(&(i * 3).to_be_bytes());
                key.resize(600, 7);
            }
            let value = vec![i as u8; random.below(value_max) as usize];
            builder.push(&key, &value).unwrap();
            model.insert(key, value);
        }
        let tree = builder.finish().unwrap();
        check_model(pool, tree, &model);
        let report = check_whole(pool, tree);
        if n == 20_000 {
            let fill = fill_percent(&report);
            assert!((88..=97).contains(&fill), "{fill} % full");
        }
        let before = alloc::pages_in_use(pool, SPACE).unwrap();
        while tree.destroy(pool, 20).unwrap() == RemoveProgress::More {}
        let freed = before - alloc::pages_in_use(pool, SPACE).unwrap();
        assert_eq!(freed, report.leaf_pages + report.inner_pages);
    }
    let mut builder = BulkBuilder::new(pool, SPACE, IndexId(5)).unwrap();
    builder.push(&[0, 0, 0, 5, 2], b"").unwrap();
    assert!(builder.push(&[0, 0, 0, 5, 2], b"").is_err());
    assert!(builder.push(&[0, 0, 0, 6, 2], b"").is_err());
}

#[test]
fn an_appender_fills_a_shared_tree() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let mut model = BTreeMap::new();
    for round in [0u32, 2, 1] {
        let make_room = |key: &[u8], len: usize| tree.make_room(pool, key, len).map(drop);
        let mut appender = BulkAppender::new(pool, tree, &make_room);
        for i in 0..4_000u32 {
            let key = [&round.to_be_bytes()[..], &i.to_be_bytes()].concat();
            appender.push(&key, &[round as u8; 30]).unwrap();
            model.insert(key, vec![round as u8; 30]);
        }
        appender.flush().unwrap();
    }
    check_model(pool, tree, &model);
    // Dropping the one in the middle leaves the others.
    let mut seen = 0;
    let (lo, hi) = (1u32.to_be_bytes(), 2u32.to_be_bytes());
    while tree.remove_range(pool, &lo, &hi, 5, &mut |_, _| seen += 1).unwrap() == RemoveProgress::More {}
    assert_eq!(seen, 4_000);
    model.retain(|k, _| k[3] != 1);
    check_model(pool, tree, &model);
    // All of it: a single page remains.
    while tree.remove_range(pool, &[], &[], 7, &mut |_, _| ()).unwrap() == RemoveProgress::More {}
    assert_eq!(check_whole(pool, tree), CheckReport { leaf_pages: 1, leaf_used_bytes: 48, ..CheckReport::default() });
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), 3);
}

#[test]
fn an_appender_goes_between_entries_and_refuses_one_that_exists() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let make_room = |key: &[u8], len: usize| tree.make_room(pool, key, len).map(drop);
    let mut random = Random::from_seed(5);
    let mut model = BTreeMap::new();
    let key_of = |i: u32| [&[0, 0, 0, 9][..], &i.to_be_bytes()].concat();
    // Behind all; between single ones and behind all; behind all.
    let rounds: [Vec<u32>; 3] = [
        (0..3_000).step_by(3).collect(),
        (0..9_000).filter(|i| i % 3 > 0 && i / 100 % 2 == 0).collect(),
        (9_000..12_000).collect(),
    ];
    for numbers in rounds {
        let mut entries = SortedEntries::default();
        for i in numbers {
            let (key, len) = (key_of(i), if random.below(40) == 0 { 1_500 } else { random.below(90) });
            let value = vec![i as u8; len as usize];
            entries.push_parts(pool.page_size(), [&key[..4], &key[4..]], [&value, &[]]).unwrap();
            model.insert(key, value);
        }
        BulkAppender::new(pool, tree, &make_room).append(&entries).unwrap();
        check_model(pool, tree, &model);
    }
    // One in the middle and the last one exist; what goes before is there.
    for numbers in [[4_404, 4_405], [11_999, 12_000]] {
        let mut entries = SortedEntries::default();
        for key in numbers.map(key_of) {
            entries.push_parts(pool.page_size(), [&key, &[]], [b"new", &[]]).unwrap();
        }
        let mut appender = BulkAppender::new(pool, tree, &make_room);
        assert!(appender.append(&entries).is_err());
        assert_eq!(appender.existing(), Some(&key_of(numbers[1].min(11_999))[..]));
        if numbers[0] == 4_404 {
            model.insert(key_of(4_404), b"new".to_vec());
        }
        check_model(pool, tree, &model);
    }
    let mut entries = SortedEntries::default();
    let mut push = |key: &[u8]| entries.push_parts(pool.page_size(), [key, &[]], [&[], &[]]);
    push(b"bb").unwrap();
    assert!(push(b"bb").is_err() && push(b"ba").is_err());
    push(b"bc").unwrap();
    assert_eq!(entries.iter().collect::<Vec<_>>(), [(&b"bb"[..], &b""[..]), (b"bc", b"")]);
}

#[test]
fn estimates_are_exact_nearby_and_close_far_away() {
    let rig = rig(1024);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for i in 0..30_000u64 {
        let key = myriad_base::ids::mix(i).to_be_bytes();
        put(pool, tree, &key, &[1; 30]).unwrap();
    }
    let keys: Vec<Vec<u8>> = scan(pool, tree).into_iter().map(|e| e.0).collect();
    let mut random = Random::from_seed(9);
    for width in [0usize, 1, 10, 100, 300, 3_000, 20_000] {
        for _ in 0..30 {
            let from = random.below((keys.len() - width - 1) as u64) as usize;
            let estimate = tree.estimate_range(pool, &keys[from], &keys[from + width]).unwrap();
            if estimate.exact {
                assert_eq!(estimate.entries, width as u64);
            } else {
                let ratio = estimate.entries as f64 / width as f64;
                assert!((0.5..2.0).contains(&ratio), "{width}: {estimate:?}");
            }
            assert!(estimate.exact || width > 100, "{width}: {estimate:?}");
        }
    }
    let whole = tree.estimate_range(pool, &[], &[]).unwrap();
    assert!((20_000..45_000).contains(&whole.entries), "{whole:?}");
    let (stats, report) = (tree.stats(pool).unwrap(), check_whole(pool, tree));
    assert_eq!(stats.height, 3);
    assert!(stats.leaf_pages * 2 > report.leaf_pages && stats.leaf_pages < report.leaf_pages * 2, "{stats:?}");
    assert!(stats.entries > 15_000 && stats.entries < 60_000, "{stats:?}");
    let samples = tree.sample_leaves(pool, &keys[100], &keys[29_000], 20).unwrap();
    assert_eq!(samples.len(), 20);
    assert!(samples.windows(2).all(|w| w[0] < w[1]) && samples[0] == keys[100] && samples[19] < keys[29_000]);
    let (level, few) = tree.dividing_keys(pool, &keys[100], &keys[29_000], 2).unwrap();
    let (lower, all) = tree.dividing_keys(pool, &keys[100], &keys[29_000], few.len() + 1).unwrap();
    assert_eq!((level, lower), (2, 1));
    assert!(few.iter().all(|key| all.contains(key)));
    let mut below = Vec::new();
    for start in &few {
        below.extend(tree.separators_beside(pool, 1, start, &keys[29_000]).unwrap());
    }
    below.dedup();
    assert_eq!(below, all);
}

#[test]
fn estimates_read_the_ends_alone() {
    let rig = rig(64);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    let key = |i: u64| (i * 10).to_be_bytes();
    for i in 0..30_000u64 {
        put(pool, tree, &key(i), &[1; 30]).unwrap();
    }
    let (mut random, mut reads) = (Random::from_seed(9), pool.stats().reads);
    for width in [700u64, 15_000] {
        for _ in 0..30 {
            let from = random.below(30_000 - width);
            let estimate = tree.estimate_range(pool, &key(from), &key(from + width)).unwrap();
            assert!((width * 2 / 3..width * 3 / 2).contains(&estimate.entries), "{width}: {estimate:?}");
        }
        let before = std::mem::replace(&mut reads, pool.stats().reads);
        // The leaves of the two ends, and now and then an inner page.
        assert!((30..=75).contains(&(reads - before)), "{} pages for {width}", reads - before);
    }
}

/// Rows come at one end and go at the other: the file grows to what they need at a time.
#[test]
fn extents_that_were_emptied_are_used_before_the_file_grows() {
    let rig = rig(256);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    let key = |i: u32| i.to_be_bytes();
    const LIVE: u32 = 12_000;
    for i in 0..6 * LIVE {
        put(pool, tree, &key(i), &[7; 1300]).unwrap();
        if let Some(old) = i.checked_sub(LIVE) {
            take(pool, tree, &key(old)).unwrap();
        }
    }
    let (used, file) =
        (alloc::pages_in_use(pool, SPACE).unwrap(), rig.pool.spaces().get(SPACE).unwrap().pages_in_file());
    assert!(used > 3000, "{used}");
    assert!(u64::from(file) < used * 2, "{file} pages for {used} in use");
}

#[test]
fn long_values_round_trip() {
    let rig = rig(256);
    let pool = &rig.pool;
    let used = alloc::pages_in_use(pool, SPACE).unwrap();
    let (mut chains, leaf) = (Vec::new(), PageId::new(SPACE, alloc::PACK_ROOT));
    for len in [1usize, 4064, 4065, 300_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
        let first = overflow::write_overflow(pool, SPACE, &bytes).unwrap();
        let mut got = b"x".to_vec();
        overflow::read_overflow(pool, leaf, first, len, usize::MAX, &mut got).unwrap();
        assert!(got[1..] == bytes[..] && got[0] == b'x');
        assert!(overflow::read_overflow(pool, leaf, first, len + 1, usize::MAX, &mut got).is_err());
        chains.push(first);
    }
    for first in chains {
        overflow::free_overflow(pool, SPACE, first).unwrap();
    }
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), used);
}

#[test]
fn too_long_and_foreign_keys_are_refused() {
    let rig = rig(64);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(77)).unwrap();
    let max = page::entry_bytes_max(4096);
    assert!(matches!(tree.make_room(pool, &[0; 897], 1), Err(myriad_base::Error::TooLong { .. })));
    assert!(matches!(tree.make_room(pool, &77u32.to_be_bytes(), max), Err(myriad_base::Error::TooLong { .. })));
    let mut mtr = Mtr::start(pool).unwrap();
    let leaf = tree.seek_exclusive(pool, b"other").unwrap();
    let slot = leaf.find(b"other").unwrap_err();
    assert!(leaf.into_mtr(&mut mtr).insert(&mut mtr, slot, b"other", b"").is_err());
    drop(mtr);
    pool.check_poison().unwrap();
}

#[test]
fn threads_share_a_tree() {
    const THREADS: u64 = 4;
    let rig = rig(300);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let models: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|t| {
                scope.spawn(move || {
                    let mut random = Random::from_seed(t);
                    let mut model = BTreeMap::new();
                    for step in 0..12_000u64 {
                        // Neighbouring keys belong to different threads.
                        let n = random.below(2_500) * THREADS + t;
                        let key = [&[0, 0, 0, 1][..], &n.to_be_bytes()].concat();
                        match random.below(10) {
                            0..=4 if step % 6_000 < 3_000 => {
                                let value = vec![step as u8; random.below(120) as usize];
                                put(pool, tree, &key, &value).unwrap();
                                model.insert(key, value);
                            }
                            0..=6 => {
                                assert_eq!(take(pool, tree, &key).unwrap().is_some(), model.remove(&key).is_some())
                            }
                            7 => {
                                tree.estimate_range(pool, &key, &[0, 0, 0, 2]).unwrap();
                                let leaf = tree.seek_before(pool, &key).unwrap();
                                assert!(leaf.is_first() || leaf.low_fence() < &key[..]);
                            }
                            _ => assert_eq!(get(pool, tree, &key), model.get(&key).cloned()),
                        }
                    }
                    model
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    let whole: BTreeMap<_, _> = models.into_iter().flatten().collect();
    check_model(pool, tree, &whole);
}

#[test]
fn threads_append_to_one_place() {
    let rig = rig(200);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(8)).unwrap();
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= 12_000 {
                    break;
                }
                let key = [&8u32.to_be_bytes()[..], &i.to_be_bytes()].concat();
                put(pool, tree, &key, &[1; 50]).unwrap();
            });
        }
        // A reader that walks the whole tree meanwhile sees a growing, gapless-at-its-start set in order.
        scope.spawn(|| {
            while next.load(Ordering::Relaxed) < 12_000 {
                let keys = scan(pool, tree);
                assert!(keys.windows(2).all(|w| w[0].0 < w[1].0));
                check_whole(pool, tree);
            }
        });
    });
    let report = check_whole(pool, tree);
    assert_eq!(report.entries, 12_000);
}

#[test]
fn a_check_finds_nothing_wrong_while_pages_are_merged() {
    let rig = rig(300);
    let pool = &rig.pool;
    let tree = Tree::create_for(pool, SPACE, IndexId(8)).unwrap();
    let ended = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for t in 0..2u32 {
            let ended = &ended;
            scope.spawn(move || {
                let key = |i: u32| [8u32, i, t].map(u32::to_be_bytes).concat();
                for _ in 0..30 {
                    for i in 0..500 {
                        put(pool, tree, &key(i), &[1; 100]).unwrap();
                    }
                    (0..500).for_each(|i| assert!(take(pool, tree, &key(i)).unwrap().is_some()));
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while ended.load(Ordering::Relaxed) < 2 {
            check_whole(pool, tree);
        }
    });
}

#[test]
fn a_descent_with_latches_finds_the_same() {
    use crate::page::Target;
    use myriad_buffer::{ExclusivePage, SharedPage};
    let rig = rig(1_000);
    let pool = &rig.pool;
    let tree = Tree::create(pool, SPACE).unwrap();
    for i in 0..30_000u64 {
        put(pool, tree, &myriad_base::ids::mix(i).to_be_bytes(), &[1; 30]).unwrap();
    }
    for i in 0..500u64 {
        let key = myriad_base::ids::mix(i * 3 + 1).to_be_bytes();
        for target in [Target::At(&key), Target::Before(&key), Target::Last] {
            for level in 0..4 {
                let fast = tree.at_level::<SharedPage<'_>>(pool, target, level).unwrap().map(|p| p.id());
                let slow = tree.descend_latched::<SharedPage<'_>>(pool, target, level, &mut |_| ()).unwrap();
                assert_eq!(fast, slow.map(|p| p.id()));
                let slow = tree.descend_latched::<ExclusivePage<'_>>(pool, target, level, &mut |_| ()).unwrap();
                assert_eq!(fast, slow.map(|p| p.id()));
                assert_eq!(fast.is_some(), level < 3);
            }
        }
    }
}

/// Not a check: prints nanoseconds an operation. `cargo test --release -p myriad-btree speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    const N: u64 = 400_000;
    let rig = rig(40_000);
    let pool = &rig.pool;
    let tree = Tree::pack(SPACE);
    let key = |i: u64| [&[0u8, 0, 0, 1][..], &i.to_be_bytes()].concat();
    let measure = |what: &str, f: &mut dyn FnMut(u64)| {
        let start = std::time::Instant::now();
        for i in 0..N {
            f(i);
        }
        println!("{what}: {} ns", start.elapsed().as_nanos() as u64 / N);
    };
    measure("insert ascending", &mut |i| {
        put(pool, tree, &key(i), &[1; 100]).unwrap();
    });
    measure("seek and find", &mut |i| {
        let key = key(myriad_base::ids::mix(i) % N);
        let leaf = tree.seek(pool, &key).unwrap();
        std::hint::black_box(leaf.value(leaf.find(&key).unwrap()));
    });
    measure("patch", &mut |i| {
        put(pool, tree, &key(myriad_base::ids::mix(i) % N), &[2; 100]).unwrap();
    });
    measure("estimate", &mut |i| {
        let at = myriad_base::ids::mix(i) % N;
        std::hint::black_box(tree.estimate_range(pool, &key(at), &key(at + 50)).unwrap());
    });
    measure("estimate of a long range", &mut |i| {
        let at = myriad_base::ids::mix(i) % N;
        std::hint::black_box(tree.estimate_range(pool, &key(at), &key(at + 100_000)).unwrap());
    });
    let other = Tree::create_for(pool, SPACE, IndexId(9)).unwrap();
    let key = |i: u64| [&[0u8, 0, 0, 9][..], &myriad_base::ids::mix(i).to_be_bytes()].concat();
    measure("insert random", &mut |i| {
        put(pool, other, &key(i), &[1; 100]).unwrap();
    });
    measure("remove random", &mut |i| {
        take(pool, other, &key(i)).unwrap();
    });
}
