//! Crashes and full disks, on the simulated disk: after recovery the tree is whole and holds what the log says.

use crate::tests::{check_model, check_whole, config, create_files, open_pool, put, scan, take, SPACE};
use crate::*;
use myriad_base::random::Random;
use myriad_base::{Error, IndexId, Lsn};
use myriad_buffer::{BufferPool, PoolConfig};
use myriad_io::{Io, SimIo};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const DIR: &str = "/data";

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// What was done to the tree, with the end of each change in the log.
#[derive(Default)]
struct Model {
    history: Vec<(Lsn, Vec<u8>, Option<Vec<u8>>)>,
}

impl Model {
    /// What the tree holds if the log ends at `end`; the rest is forgotten.
    fn cut(&mut self, end: Lsn) -> Entries {
        self.history.retain(|h| h.0 <= end);
        let mut now = Entries::new();
        for (_, key, value) in &self.history {
            match value {
                Some(value) => drop(now.insert(key.clone(), value.clone())),
                None => drop(now.remove(key)),
            }
        }
        now
    }
}

pub fn quiet(frames: usize) -> PoolConfig {
    PoolConfig { background_threads: false, ..config(frames) }
}

pub fn create(sim: &SimIo, config: &PoolConfig) -> Arc<BufferPool> {
    let io: Arc<dyn Io> = Arc::new(sim.clone());
    io.create_dir(Path::new(DIR)).unwrap();
    io.sync_dir(Path::new("/")).unwrap();
    create_files(&io, Path::new(DIR), config.page_size);
    let (pool, _) = open_pool(io, Path::new(DIR), config).unwrap();
    alloc::create_space_layout(&pool, SPACE).unwrap();
    pool
}

fn life(pool: &BufferPool, tree: Tree, random: &mut Random, model: &mut Model, steps: u64) {
    let growing = random.below(10);
    for step in 0..steps {
        match random.below(60) {
            0 if random.one_in(8) => drop(tree.promote(pool, IndexId(random.below(4) as u32)).unwrap()),
            1 if random.one_in(30) => {
                let id = random.below(4) as u32;
                let (lo, hi) = (id.to_be_bytes(), (id + 1).to_be_bytes());
                while remove_noting(pool, tree, &lo, &hi, model) == RemoveProgress::More {}
                tree.demote(pool, IndexId(id)).unwrap();
            }
            0 => drop(pool.step_background().unwrap()),
            1 => pool.log().flush_to(pool.log().end_lsn()).unwrap(),
            2 if random.one_in(10) => pool.checkpoint_now().unwrap(),
            3 => drop(pool.redo_some(5)),
            _ => {
                let n = random.below(900);
                let mut key = vec![0, 0, 0, (n % 4) as u8];
                key.extend_from_slice(&myriad_base::ids::mix(n).to_be_bytes()[..5]);
                key.resize(9 + (n % 200) as usize, 3);
                if random.below(10) < growing {
                    let value = vec![step as u8; random.below(300) as usize];
                    let end = put(pool, tree, &key, &value).unwrap();
                    model.history.push((end, key, Some(value)));
                } else if let Some(end) = take(pool, tree, &key).unwrap() {
                    model.history.push((end, key, None));
                }
            }
        }
    }
}

/// Removes some of a range, durably: which of its changes the log would end with nobody could tell.
fn remove_noting(pool: &BufferPool, tree: Tree, lo: &[u8], hi: &[u8], model: &mut Model) -> RemoveProgress {
    let mut gone = Vec::new();
    let progress = tree.remove_range(pool, lo, hi, 8, &mut |key, _| gone.push(key.to_vec())).unwrap();
    let end = pool.log().end_lsn();
    pool.log().flush_to(end).unwrap();
    model.history.extend(gone.into_iter().map(|key| (end, key, None)));
    progress
}

fn crash_loop(seed: u64) {
    let config = PoolConfig { doublewrite: true, ..quiet(60 + seed as usize % 3 * 40) };
    let mut random = Random::from_seed(seed);
    let mut model = Model::default();
    let mut sim = SimIo::new(seed);
    let mut pool = create(&sim, &config);
    let tree = Tree::pack(SPACE);
    pool.checkpoint_now().unwrap();
    for round in 0..6 {
        let steps = random.below(1_500);
        life(&pool, tree, &mut random, &mut model, steps);
        let durable = pool.log().durable_lsn();
        sim = sim.crash(random.next_u64());
        drop(pool);
        let end;
        (pool, end) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
        assert!(end >= durable, "seed {seed} round {round}: log durable to {durable}, recovered to {end}");
        let entries = model.cut(end);
        if !random.one_in(3) {
            check_model(&pool, tree, &entries);
            check_allocation(&pool, tree);
        }
    }
}

/// All pages in use are the tree's, the header or the bitmap: nothing leaks.
pub fn check_allocation(pool: &BufferPool, tree: Tree) {
    let report = check_whole(pool, tree);
    assert_eq!(alloc::pages_in_use(pool, SPACE).unwrap(), report.leaf_pages + report.inner_pages + 2);
}

#[test]
fn a_tree_survives_crashes() {
    for seed in 0..20 {
        crash_loop(seed);
    }
}

#[test]
fn a_full_disk_is_a_clean_error() {
    let config = quiet(200);
    let sim = SimIo::new(5);
    let pool = create(&sim, &config);
    pool.checkpoint_now().unwrap();
    let tree = Tree::pack(SPACE);
    let mut model = Entries::new();
    // Room for a few more chunks of the file.
    sim.set_capacity(Some(64 << 20 | 3 << 20));
    let mut failures = 0;
    for i in 0..6_000u64 {
        let key = myriad_base::ids::mix(i).to_be_bytes().to_vec();
        match put(&pool, tree, &key, &[7; 700]) {
            Ok(_) => drop(model.insert(key, vec![7; 700])),
            Err(Error::DiskFull { .. }) => failures += 1,
            Err(e) => panic!("{e}"),
        }
        if failures == 50 {
            break;
        }
    }
    assert!(failures > 0, "the disk never became full");
    pool.check_poison().unwrap();
    check_model(&pool, tree, &model);
    assert!(matches!(overflow::write_overflow(&pool, SPACE, &vec![1; 8 << 20]), Err(Error::DiskFull { .. })));
    check_allocation(&pool, tree);
    sim.set_capacity(None);
    put(&pool, tree, b"more", &[1; 1000]).unwrap();
    overflow::write_overflow(&pool, SPACE, &[1; 1 << 20]).unwrap();
}

/// Promotion and demotion, stopped and cut off after each of their steps: the tree is whole, nothing leaks, and the same
/// call goes on afterwards.
#[test]
fn promotion_goes_on_after_a_crash_at_any_step() {
    const ID: u32 = 2;
    let config = quiet(600);
    let low = ID.to_be_bytes();
    let key = |id: u32, n: u64| [&id.to_be_bytes()[..], &myriad_base::ids::mix(n).to_be_bytes()].concat();
    for (rows, steps) in [(400u64, 12u8), (6_000, 16)] {
        let mut promoted_at = None;
        for stop in 0..=steps {
            let mut sim = SimIo::new(7);
            let mut pool = create(&sim, &config);
            let pack = Tree::pack(SPACE);
            let mut model = Entries::new();
            for n in 0..rows {
                for id in [1, ID, 3].into_iter().filter(|id| *id == ID || n % 9 == 0) {
                    put(&pool, pack, &key(id, n), &[id as u8; 60]).unwrap();
                    model.insert(key(id, n), vec![id as u8; 60]);
                }
            }
            if stop % 2 == 0 {
                pool.checkpoint_now().unwrap();
            }
            let reopen = |sim: SimIo, pool: Arc<BufferPool>| {
                pool.log().flush_to(pool.log().end_lsn()).unwrap();
                let sim = sim.crash(u64::from(stop));
                drop(pool);
                let (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
                (sim, pool)
            };
            pack.promote_steps(&pool, IndexId(ID), usize::from(stop)).unwrap();
            (sim, pool) = reopen(sim, pool);
            check_model(&pool, pack, &model);
            check_allocation(&pool, pack);
            let promoted = pack.owner(&pool, &low).unwrap() != pack;
            promoted_at = promoted_at.or(promoted.then_some(stop));
            assert_eq!(promoted, promoted_at.is_some());
            let own = pack.promote(&pool, IndexId(ID)).unwrap().unwrap();
            (sim, pool) = reopen(sim, pool);
            assert_eq!(pack.owner(&pool, &low).unwrap(), own);
            check_model(&pool, pack, &model);
            check_allocation(&pool, pack);
            // Removal in steps, each cut off.
            let mut done = false;
            while !done {
                done = pack.remove_range(&pool, &low, &(ID + 1).to_be_bytes(), 40, &mut |_, _| ()).unwrap()
                    == RemoveProgress::Done;
                (sim, pool) = reopen(sim, pool);
                check_allocation(&pool, pack);
            }
            model.retain(|key, _| key[..4] != low);
            let owner = pack.owner_of(&pool, &low).unwrap();
            for level in 0..owner.home_level.unwrap().min(stop) {
                owner.raise_root(&pool, level).unwrap();
                (sim, pool) = reopen(sim, pool);
                check_allocation(&pool, pack);
            }
            pack.demote(&pool, IndexId(ID)).unwrap();
            (_, pool) = reopen(sim, pool);
            assert_eq!(pack.owner(&pool, &low).unwrap(), pack);
            check_model(&pool, pack, &model);
            check_allocation(&pool, pack);
        }
        assert!(promoted_at.is_some_and(|at| at > 3), "{rows} rows: {promoted_at:?}");
    }
}

#[test]
fn dropping_goes_on_after_a_crash() {
    let config = quiet(200);
    let mut sim = SimIo::new(8);
    let mut pool = create(&sim, &config);
    let shared = Tree::pack(SPACE);
    let mut builder = BulkBuilder::new(&pool, SPACE, IndexId(50)).unwrap();
    for i in 0..20_000u32 {
        builder.push(&[&50u32.to_be_bytes()[..], &i.to_be_bytes()].concat(), &[1; 60]).unwrap();
    }
    let own = builder.finish().unwrap();
    let make_room = |key: &[u8], len: usize| shared.make_room(&pool, key, len).map(drop);
    let mut appender = BulkAppender::new(&pool, shared, &make_room);
    for i in 0..9_000u32 {
        appender.push(&[&(i / 3_000).to_be_bytes()[..], &i.to_be_bytes()].concat(), &[1; 60]).unwrap();
    }
    appender.flush().unwrap();
    let mut random = Random::from_seed(1);
    let (mut own_done, mut range_done) = (false, false);
    while !(own_done && range_done) {
        for _ in 0..random.below(4) {
            if !own_done {
                own_done = own.destroy(&pool, 10).unwrap() == RemoveProgress::Done;
            }
            if !range_done {
                let (lo, hi) = (1u32.to_be_bytes(), 2u32.to_be_bytes());
                let progress = shared.remove_range(&pool, &lo, &hi, 3, &mut |_, _| ()).unwrap();
                range_done = progress == RemoveProgress::Done;
            }
        }
        // What was said to be done must stay so: its end is in the log.
        pool.log().flush_to(pool.log().end_lsn()).unwrap();
        sim = sim.crash(random.next_u64());
        drop(pool);
        (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
    }
    let left = scan(&pool, shared);
    assert_eq!(left.len(), 6_000);
    assert!(left.iter().all(|e| e.0[3] != 1));
    check_allocation(&pool, shared);
}

#[test]
fn free_extents_go_back_to_the_file_system() {
    let config = quiet(300);
    let mut sim = SimIo::new(11);
    let mut pool = create(&sim, &config);
    let build = |pool: &BufferPool, id: u32| {
        let mut builder = BulkBuilder::new(pool, SPACE, IndexId(id)).unwrap();
        for i in 0..20_000u32 {
            builder.push(&[&id.to_be_bytes()[..], &i.to_be_bytes()].concat(), &[1; 60]).unwrap();
        }
        builder.finish().unwrap()
    };
    let (gone, kept) = (build(&pool, 50), build(&pool, 51));
    assert_eq!(gone.destroy(&pool, 100_000).unwrap(), RemoveProgress::Done);
    let plan = alloc::plan_punch(&pool, SPACE).unwrap().unwrap();
    assert_eq!(plan.punch(&pool).unwrap(), alloc::Punched::TooEarly);
    pool.checkpoint_now().unwrap();
    let alloc::Punched::Pages(pages) = plan.punch(&pool).unwrap() else { panic!("the checkpoint has passed the plan") };
    assert!(pages >= 256, "{pages} pages");
    sim = sim.crash(3);
    drop(pool);
    (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
    assert_eq!(check_whole(&pool, kept).entries, 20_000);
    let plan = alloc::plan_punch(&pool, SPACE).unwrap().unwrap();
    let again = build(&pool, 52);
    pool.checkpoint_now().unwrap();
    let alloc::Punched::Pages(rest) = plan.punch(&pool).unwrap() else { panic!("the checkpoint has passed the plan") };
    assert!(rest < pages / 2, "{rest} of {pages} pages: what has been used since is kept");
    for tree in [kept, again] {
        assert_eq!(check_whole(&pool, tree).entries, 20_000);
    }
    sim = sim.crash(4);
    drop(pool);
    (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
    for tree in [kept, again] {
        assert_eq!(check_whole(&pool, tree).entries, 20_000);
    }
}

/// The pool after a crash behind a checkpoint, with a page of the file changed but of a right checksum.
fn spoilt(
    pool: Arc<BufferPool>,
    sim: &SimIo,
    config: &PoolConfig,
    id: myriad_base::PageId,
    change: impl FnOnce(&mut [u8]),
) -> Arc<BufferPool> {
    pool.checkpoint_now().unwrap();
    let sim = sim.crash(1);
    drop(pool);
    let file = sim.open(&Path::new(DIR).join("#myriad/a.myr"), myriad_io::OpenMode::WRITE).unwrap();
    let offset = u64::from(id.page.0) * config.page_size as u64;
    let mut page = vec![0; config.page_size];
    file.read_at(&mut page, offset).unwrap();
    change(&mut page);
    myriad_base::page::seal(&mut page);
    file.write_at(&page, offset).unwrap();
    open_pool(Arc::new(sim), Path::new(DIR), config).unwrap().0
}

#[test]
fn a_page_of_impossible_layout_is_corrupt_not_a_panic() {
    let config = quiet(300);
    let sim = SimIo::new(12);
    let pool = create(&sim, &config);
    let mut builder = BulkBuilder::new(&pool, SPACE, IndexId(50)).unwrap();
    for i in 0..5_000u32 {
        builder.push(&[&50u32.to_be_bytes()[..], &i.to_be_bytes()].concat(), &[1; 60]).unwrap();
    }
    let tree = builder.finish().unwrap();
    let leaf = tree.seek(&pool, &[&50u32.to_be_bytes()[..], &2_500u32.to_be_bytes()].concat()).unwrap().page_id();
    // Its first slot points out of the page; the checksum is right.
    let pool = spoilt(pool, &sim, &config, leaf, |page| {
        page[crate::page::SLOTS..crate::page::SLOTS + 2].copy_from_slice(&u16::MAX.to_le_bytes());
    });
    let key = [&50u32.to_be_bytes()[..], &2_500u32.to_be_bytes()].concat();
    for _ in 0..2 {
        match tree.seek(&pool, &key) {
            Err(myriad_base::Error::CorruptPage { page, .. }) => assert_eq!(page, leaf),
            other => panic!("{:?}", other.map(|l| l.page_id())),
        }
    }
    assert!(tree.seek(&pool, &50u32.to_be_bytes()).is_ok(), "other pages are fine");
}

#[test]
fn a_key_without_room_for_an_index_id_is_corrupt() {
    let config = quiet(300);
    let sim = SimIo::new(13);
    let pool = create(&sim, &config);
    let tree = Tree::pack(SPACE);
    let key = |id: u32| id.to_be_bytes();
    (50..60).for_each(|id| _ = put(&pool, tree, &key(id), &[1; 60]).unwrap());
    let leaf = tree.seek(&pool, &key(55)).unwrap().page_id();
    let pool = spoilt(pool, &sim, &config, leaf, |page| {
        let at = crate::page::SLOTS + 5 * crate::page::SLOT_BYTES + 2;
        // Entries have no bytes of a suffix of up to four: the sums stay right.
        assert_eq!(page[at..at + 2], [4, 0], "the page has no prefix");
        page[at] = 3;
    });
    let found = tree.seek(&pool, &key(55)).map(|leaf| leaf.page_id());
    assert!(matches!(&found, Err(e) if e.to_string().contains("shorter than an index id")), "{found:?}");
}
