//! Many tablespaces, few of them open, and a catalog whose pages are in the pool.

mod rig;

use myriad_base::codec::get_u64;
use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Lsn, PageId, PageNo, SpaceId};
use myriad_buffer::{BufferPool, Mtr, PoolConfig};
use rig::{id, small, Rig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Pages of [`rig::SPACE`]. The catalog has the last of them; a tablespace's row is on one of these.
const PAGES: u32 = 300;
const CATALOG_PAGES: u32 = 40;
/// Frames of the pool.
const FRAMES: usize = 64;
/// Tablespaces, all in one shard of the registry.
const SPACES: u32 = 200;
const AT: usize = HEADER_BYTES;

fn space(no: u32) -> SpaceId {
    SpaceId(32 + no * 16)
}

fn page(no: u32) -> PageId {
    PageId::new(space(no), PageNo(1))
}

fn uuid(no: u32) -> [u8; 16] {
    [no as u8; 16]
}

fn path(no: u32) -> String {
    format!("t{no}.myr")
}

fn init(pool: &BufferPool, page: PageId) {
    let mut mtr = Mtr::start(pool).unwrap();
    mtr.init(page, PageKind::Index).unwrap();
    mtr.commit().unwrap();
}

fn write(pool: &BufferPool, page: PageId, value: u64) -> myriad_base::Result<()> {
    let mut mtr = Mtr::start(pool)?;
    let at = mtr.fix(page)?;
    mtr.write(at, AT, &value.to_le_bytes());
    mtr.commit().map(|_| ())
}

/// A pool after a restart: no tablespace is known but [`SPACE`]. Of others the catalog is asked, which reads its pages if
/// `reads` says so; else they are thought to be in memory.
fn restarted(config: &PoolConfig, reads: &Arc<AtomicBool>) -> Rig {
    let rig = rig::create(1, &PoolConfig { background_threads: false, ..config.clone() });
    for no in 0..SPACES {
        rig.pool.spaces().create(space(no), &path(no), uuid(no), Lsn(0)).unwrap();
        init(&rig.pool, page(no));
    }
    (1..=PAGES).for_each(|n| init(&rig.pool, id(n)));
    rig.pool.checkpoint_now().unwrap();
    let sim = rig.sim.crash(1);
    drop(rig);
    let rig = rig::open(sim, config).unwrap();
    let (pool, reads) = (Arc::downgrade(&rig.pool), Arc::clone(reads));
    rig.pool.spaces().set_max_open_files(1);
    rig.pool.spaces().set_resolver(Box::new(move |space| {
        let no = (space.0 - 32) / 16;
        let pool = pool.upgrade().expect("somebody asks");
        if reads.load(Ordering::Relaxed) {
            drop(pool.fix_shared(id(PAGES - no % CATALOG_PAGES))?);
        }
        Ok(Some((path(no), uuid(no))))
    }));
    rig
}

/// All frames are latched, or changed in tablespaces whose files were closed since. The changes must be written for a frame
/// to become free, and until then there is none for a page of the catalog, which would have to say where those files are.
#[test]
fn pages_of_closed_tablespaces_are_written_without_the_catalog() {
    let reads = Arc::new(AtomicBool::new(false));
    let rig = restarted(&small(FRAMES), &reads);
    let pool = &rig.pool;
    const CHANGED: u32 = 40;
    for no in 0..CHANGED {
        write(pool, page(no), 7).unwrap();
    }
    // Another file is open now, and a look at so many others makes the registry forget what it can.
    drop(pool.spaces().get(space(CHANGED)).unwrap().file().unwrap());
    for no in CHANGED..SPACES {
        pool.spaces().get(space(no)).unwrap();
    }
    let held: Vec<_> = (1..=FRAMES as u32 - CHANGED).map(|n| pool.fix_shared(id(n)).unwrap()).collect();
    let stats = pool.stats();
    assert_eq!((stats.dirty_pages, stats.free_frames, stats.writes), (u64::from(CHANGED), 0, 0));
    reads.store(true, Ordering::Relaxed);
    drop(pool.fix_shared(id(100)).unwrap());
    assert!(pool.stats().writes > 0);
    drop(held);
    for no in 0..CHANGED {
        assert_eq!(get_u64(&pool.fix_shared(page(no)).unwrap(), AT), 7);
    }
}

/// The registry keeps what has pages in memory, and nothing else.
#[test]
fn tablespaces_are_forgotten_when_their_pages_have_left_memory() {
    let rig = restarted(&small(FRAMES), &Arc::default());
    let (pool, registry) = (&rig.pool, rig.pool.spaces());
    let look_at_others = || (SPACES..SPACES + 1000).for_each(|no| drop(registry.get(space(no)).unwrap()));
    // Pages come in: read, read ahead, new, and some that cannot be read.
    for no in 0..18 {
        let (first, second) = (page(no), PageId::new(space(no), PageNo(2)));
        match no % 4 {
            0 => write(pool, first, 1).unwrap(),
            1 => pool.prefetch(&[first, second]),
            2 => init(pool, second),
            _ => assert!(pool.fix_shared(second).is_err(), "never written"),
        }
    }
    let known: Vec<_> = (0..18).map(|no| Arc::downgrade(&registry.get(space(no)).unwrap())).collect();
    look_at_others();
    for (no, space) in known.iter().enumerate() {
        assert_eq!(space.upgrade().is_some(), no % 4 != 3, "{no}");
    }
    // And leave.
    for n in 1..=PAGES {
        drop(pool.fix_shared(id(n)).unwrap());
    }
    assert!((0..SPACES).all(|no| !pool.is_resident(page(no))));
    look_at_others();
    assert!(known.iter().all(|space| space.upgrade().is_none()));
}

/// The same with the pool's threads and clients of all tablespaces at once: nobody waits for long.
#[test]
fn clients_of_many_closed_tablespaces_get_frames() {
    let rig = restarted(&PoolConfig { background_threads: true, ..small(FRAMES) }, &Arc::new(AtomicBool::new(true)));
    let pool = &rig.pool;
    std::thread::scope(|scope| {
        for t in 0..8u64 {
            scope.spawn(move || {
                let mut random = myriad_base::random::Random::from_seed(t);
                for i in 0..600 {
                    write(pool, page(random.below(u64::from(SPACES)) as u32), i).unwrap();
                }
            });
        }
    });
    pool.checkpoint_now().unwrap();
}
