//! Many tablespaces, few of them open, and a catalog whose pages are in the pool.

mod rig;

use myriad_base::codec::get_u64;
use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Error, Lsn, PageId, PageNo, SpaceId};
use myriad_buffer::{BufferPool, Mtr, PoolConfig};
use myriad_io::{CallKind, Fault, Io, SimIo};
use rig::{id, open, small, Rig, DIR, SPACE};
use std::path::{Path, PathBuf};
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

fn in_folder(name: &str) -> PathBuf {
    Path::new(DIR).join("#myriad").join(name)
}

fn rename(sim: &SimIo, from: &str, to: &str) {
    sim.rename(&in_folder(from), &in_folder(to)).unwrap();
    sim.sync_dir(&Path::new(DIR).join("#myriad")).unwrap();
}

fn read(pool: &BufferPool, page: PageId) -> myriad_base::Result<u64> {
    pool.fix_shared(page).map(|page| get_u64(&page, AT))
}

/// A disk after a crash; the newest change of page 1 of [`SPACE`] is in the log alone.
fn crashed(config: &PoolConfig) -> SimIo {
    let rig = rig::create(3, config);
    for n in 1..=4 {
        init(&rig.pool, id(n));
    }
    rig.pool.checkpoint_now().unwrap();
    write(&rig.pool, id(1), 7).unwrap();
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    rig.sim.crash(3)
}

/// Fills the log until it is short of room, by changes of a tablespace of its own.
fn fill_log(rig: &Rig, no: u32) {
    rig.pool.spaces().create(space(no), &path(no), uuid(no), Lsn(0)).unwrap();
    for n in (1..=9).cycle() {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let at = mtr.init(PageId::new(space(no), PageNo(n)), PageKind::Index).unwrap();
        mtr.write(at, AT, &[n as u8; 4000]);
        mtr.commit().unwrap();
        if rig.pool.log().is_short() {
            return;
        }
    }
}

fn told(rig: &Rig, text: &str) -> bool {
    rig.messages.lock().unwrap().iter().any(|m| m.1.contains(text))
}

/// The file is away in one start until the log is full, and there again in the next one: it has what was committed, or is
/// refused for good.
#[test]
fn a_file_that_has_missed_changes_is_not_used() {
    let config = small(48);
    let (mut whole, mut refused) = (0, 0);
    for power_off in 0..30 {
        let sim = crashed(&config);
        rename(&sim, "a.myr", "away");
        let rig = open(sim, &config).unwrap();
        rig.pool.checkpoint_now().unwrap();
        assert!(told(&rig, "1 pages of tablespace 16 cannot be redone yet"));
        fill_log(&rig, 1);
        rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
        rig.sim.power_off_after(power_off);
        let passed = rig.pool.checkpoint_now().is_ok();
        assert!(told(&rig, "1 pages of tablespace 16 are not redone") && !told(&rig, "earlier recovery"));
        let mut sim = rig.sim.crash(power_off);
        drop(rig);
        rename(&sim, "away", "a.myr");
        // From one checkpoint to the next, too.
        for round in 0..3 {
            let rig = open(sim, &config).unwrap();
            rig.pool.spaces().register(space(1), &path(1), Some(uuid(1)));
            match read(&rig.pool, id(1)) {
                Ok(value) => {
                    assert_eq!((value, passed), (7, false));
                    whole += 1;
                    break;
                }
                Err(Error::TablespaceUnavailable { reason, .. }) => {
                    assert!(reason.contains("missed changes"), "{reason}")
                }
                Err(e) => panic!("{e}"),
            }
            refused += 1;
            assert!(read(&rig.pool, id(2)).is_err() && write(&rig.pool, id(3), 1).is_err());
            assert_eq!(read(&rig.pool, PageId::new(space(1), PageNo(1))), Ok(0x0101010101010101));
            assert!(told(&rig, "of 1 tablespaces missed changes in an earlier recovery"));
            if round == 1 {
                rig.pool.spaces().drop_spaces(&[SPACE]).remove(0).unwrap();
                rig.pool.discard_space(SPACE);
            }
            write(&rig.pool, PageId::new(space(1), PageNo(2)), 3).unwrap();
            rig.pool.checkpoint_now().unwrap();
            assert!(rig.pool.stats().checkpoint_age < 4096);
            sim = rig.sim.crash(round);
            if round == 1 {
                assert!(!told(&open(sim, &config).unwrap(), "missed"));
                break;
            }
        }
    }
    assert!(whole > 0 && refused > 5, "{whole} {refused}");
}

/// While the log has room, a file that is away is waited for, over any number of starts.
#[test]
fn a_file_that_comes_back_in_time_misses_nothing() {
    let config = small(48);
    let mut sim = crashed(&config);
    rename(&sim, "a.myr", "away");
    for round in 0..3 {
        let rig = open(sim, &config).unwrap();
        assert!(matches!(read(&rig.pool, id(1)), Err(Error::TablespaceUnavailable { .. })));
        for _ in 0..3 {
            rig.pool.checkpoint_now().unwrap();
        }
        let waits = |m: &&(myriad_buffer::Level, String)| m.1.contains("waits for the file");
        assert_eq!(rig.messages.lock().unwrap().iter().filter(waits).count(), 1);
        if round == 2 {
            rename(&rig.sim, "away", "a.myr");
            rig.pool.checkpoint_now().unwrap();
            assert_eq!((read(&rig.pool, id(1)), rig.pool.stats().checkpoint_age), (Ok(7), 0));
        }
        sim = rig.sim.crash(round);
    }
    assert_eq!(read(&open(sim, &config).unwrap().pool, id(1)), Ok(7));
}

/// While pages of it are in memory they wait for the file, however full the log, and so does redo.
#[test]
fn a_file_in_use_is_waited_for() {
    let config = small(48);
    let rig = open(crashed(&config), &config).unwrap();
    fill_log(&rig, 1);
    write(&rig.pool, id(2), 5).unwrap();
    rig.pool.spaces().set_max_open_files(1);
    rig.pool.spaces().create(space(2), &path(2), uuid(2), Lsn(0)).unwrap();
    rename(&rig.sim, "a.myr", "away");
    assert!(rig.pool.log().is_short() && rig.pool.checkpoint_now().is_err());
    assert!(matches!(read(&rig.pool, id(1)), Err(Error::TablespaceUnavailable { .. })));
    assert_eq!(rig.pool.stats().pending_redo_pages, 1);
    rename(&rig.sim, "away", "a.myr");
    rig.pool.checkpoint_now().unwrap();
    assert_eq!((read(&rig.pool, id(1)), rig.pool.stats().checkpoint_age), (Ok(7), 0));
    assert_eq!(read(&rig.pool, id(2)), Ok(5));
}

/// So are changes of pages that are not in memory.
#[test]
fn a_file_with_buffered_changes_is_waited_for() {
    let config = small(48);
    let rig = open(crashed(&config), &config).unwrap();
    assert_eq!(read(&rig.pool, id(2)), Ok(0));
    rig.pool.spaces().set_max_open_files(1);
    rig.pool.spaces().create(space(2), &path(2), uuid(2), Lsn(0)).unwrap();
    let mut others = 1..;
    let change = loop {
        init(&rig.pool, PageId::new(space(2), PageNo(others.next().unwrap())));
        while rig.pool.stats().dirty_pages > 0 {
            rig.pool.step_background().unwrap();
        }
        if let Some(change) = rig.pool.buffer_change(id(2), 8, 0) {
            break change;
        }
    };
    let mut payload = vec![AT as u8];
    payload.extend_from_slice(&5u64.to_le_bytes());
    const WRITE: u8 = 1;
    Mtr::start(&rig.pool).unwrap().commit_buffering(change, WRITE, &payload).unwrap();
    rename(&rig.sim, "a.myr", "away");
    fill_log(&rig, 1);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!((rig.pool.stats().pending_redo_pages, rig.pool.stats().change_buffer_pages), (1, 1));
    rename(&rig.sim, "away", "a.myr");
    rig.pool.checkpoint_now().unwrap();
    assert_eq!((read(&rig.pool, id(1)), read(&rig.pool, id(2))), (Ok(7), Ok(5)));
    assert_eq!(rig.pool.stats().checkpoint_age, 0);
}

/// One that is dropped is not, however long its file cannot be removed.
#[test]
fn a_dropped_file_that_cannot_be_removed_is_not_waited_for() {
    let config = small(48);
    let rig = open(crashed(&config), &config).unwrap();
    rig.sim.inject(CallKind::Remove, "a.myr", 0, Fault::Eio, true);
    assert!(matches!(rig.pool.spaces().drop_spaces(&[SPACE]).remove(0), Err(Error::Io { .. })));
    assert_eq!(rig.pool.stats().pending_redo_pages, 1);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!((rig.pool.stats().pending_redo_pages, rig.pool.stats().checkpoint_age), (0, 0));
    assert_eq!(*rig.messages.lock().unwrap(), []);
}

/// A restore that forgot a folder: the others are redone first, and the error log stays readable.
#[test]
fn many_missing_files_keep_nobody_waiting() {
    let config = small(48);
    let rig = rig::create(5, &config);
    init(&rig.pool, id(1));
    for no in 10..10 + SPACES {
        rig.pool.spaces().create(space(no), &path(no), uuid(no), Lsn(0)).unwrap();
        init(&rig.pool, page(no));
    }
    rig.pool.checkpoint_now().unwrap();
    (10..10 + SPACES).for_each(|no| write(&rig.pool, page(no), 3).unwrap());
    write(&rig.pool, id(1), 7).unwrap();
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    let sim = rig.sim.crash(5);
    drop(rig);
    (10..10 + SPACES).for_each(|no| sim.remove_file(&in_folder(&path(no))).unwrap());
    let rig = open(sim, &config).unwrap();
    (10..10 + SPACES).for_each(|no| rig.pool.spaces().register(space(no), &path(no), Some(uuid(no))));
    assert_eq!(rig.pool.stats().pending_redo_pages, u64::from(SPACES) + 1);
    assert_eq!(rig.pool.redo_some(8), 1, "the one that is there");
    let lines = |text: &str| rig.messages.lock().unwrap().iter().filter(|m| m.1.contains(text)).count();
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(lines("pages of tablespace"), 20);
    assert_eq!(lines(&format!("pages of {SPACES} tablespaces cannot be redone yet")), 1);
    fill_log(&rig, 1);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!((rig.pool.stats().pending_redo_pages, rig.pool.stats().checkpoint_age), (0, 0));
    assert_eq!(lines("1 pages of tablespace"), 40);
    assert_eq!(lines(&format!("pages of {SPACES} tablespaces are not redone")), 1);
    assert!(rig.messages.lock().unwrap().len() < 60);
}
