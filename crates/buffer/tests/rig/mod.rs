//! A pool with its log and one tablespace on a simulated disk.
#![allow(dead_code)]

use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use myriad_buffer::{BufferPool, CheckFn, Level, Mtr, PoolConfig, RecoverySummary, RedoTable, Reporter};
use myriad_io::{Io, SimIo};
use myriad_log::{Log, LogConfig};
use myriad_space::SpaceRegistry;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

pub const SPACE: SpaceId = SpaceId(16);
pub const DIR: &str = "/data";
pub const UUID: [u8; 16] = [7; 16];

/// What index pages that are read have to pass, if anything.
pub static INDEX_CHECK: OnceLock<CheckFn> = OnceLock::new();

/// What every page that leaves memory has room for.
pub const ROOM: usize = 2000;

/// The number of an operation that adds one to a page's first byte, if that is the payload.
pub const NEXT: u8 = 20;

/// The operation WRITE: overwrites bytes.
pub const WRITE: u8 = 1;

/// A tablespace beside [`SPACE`], for tests that create it.
pub const OTHER: SpaceId = SpaceId(17);

fn redo_next(_: u8, page: &mut [u8], payload: &[u8]) -> Result<()> {
    let first = &mut page[HEADER_BYTES];
    if payload != [*first] {
        return Err(Error::invalid("another number is there"));
    }
    *first += 1;
    Ok(())
}

/// An open engine room: what the tests work with.
pub struct Rig {
    pub sim: SimIo,
    pub pool: Arc<BufferPool>,
    pub recovered: RecoverySummary,
    pub messages: Arc<Mutex<Vec<(Level, String)>>>,
}

pub fn id(page: u32) -> PageId {
    PageId::new(SPACE, PageNo(page))
}

/// Makes pages 1 to `last` index pages, each in a mini-transaction of its own.
pub fn init_pages(pool: &BufferPool, last: u32) {
    for page in 1..=last {
        let mut mtr = Mtr::start(pool).unwrap();
        let _ = mtr.init(id(page), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
}

/// Adds one to the page's number, which must be `number`.
pub fn next(pool: &BufferPool, page: u32, number: u8) {
    let mut mtr = Mtr::start(pool).unwrap();
    let p = mtr.fix(id(page)).unwrap();
    mtr.apply(p, NEXT, &[number]).unwrap();
    mtr.commit().unwrap();
}

pub fn number(pool: &BufferPool, page: u32) -> u8 {
    pool.fix_shared(id(page)).unwrap()[HEADER_BYTES]
}

/// The payload of WRITE for one byte.
pub fn payload(at: usize, byte: u8) -> [u8; 3] {
    assert!((128..1 << 14).contains(&at), "an offset of two bytes");
    [at as u8 | 0x80, (at >> 7) as u8, byte]
}

/// Sets a byte of a page without reading it, if that is possible.
pub fn set_buffered(pool: &BufferPool, page: u32, at: usize, byte: u8) -> bool {
    let mtr = Mtr::start(pool).unwrap();
    let Some(change) = pool.buffer_change(id(page), 1, 0) else { return false };
    mtr.commit_buffering(change, WRITE, &payload(at, byte)).unwrap();
    true
}

/// Makes a page of the other tablespace.
pub fn work_elsewhere(pool: &BufferPool, page: u32) {
    let mut mtr = Mtr::start(pool).unwrap();
    let at = mtr.init(PageId::new(OTHER, PageNo(page)), PageKind::Index).unwrap();
    mtr.write(at, HEADER_BYTES, &[page as u8; 1000]);
    mtr.commit().unwrap();
}

/// Single-threaded, tiny, 4 KiB pages.
pub fn small(frames: usize) -> PoolConfig {
    PoolConfig {
        bytes: frames * 4096,
        instances: 2,
        page_size: 4096,
        background_threads: false,
        ..PoolConfig::default()
    }
}

pub fn log_config() -> LogConfig {
    LogConfig { capacity_bytes: 1 << 20, buffer_bytes: 256 << 10 }
}

/// Creates a data directory with a log and tablespace 16.
pub fn create(seed: u64, config: &PoolConfig) -> Rig {
    create_as(UUID, seed, config)
}

/// The same of another identity.
pub fn create_as(uuid: [u8; 16], seed: u64, config: &PoolConfig) -> Rig {
    open(new_disk(uuid, seed, log_config(), config), config).unwrap()
}

/// The same with a log of its own size.
pub fn create_with(log: LogConfig, seed: u64, config: &PoolConfig) -> Rig {
    open_with(log, new_disk(UUID, seed, log, config), config).unwrap()
}

fn new_disk(uuid: [u8; 16], seed: u64, log: LogConfig, config: &PoolConfig) -> SimIo {
    let sim = SimIo::new(seed);
    let io: Arc<dyn Io> = Arc::new(sim.clone());
    let dir = Path::new(DIR);
    io.create_dir(dir).unwrap();
    io.sync_dir(Path::new("/")).unwrap();
    io.create_dir(&dir.join("#myriad")).unwrap();
    io.sync_dir(dir).unwrap();
    Log::create(&io, dir, log, uuid).unwrap();
    let spaces = SpaceRegistry::new(Arc::clone(&io), dir, config.page_size, 16);
    spaces.create(SPACE, "a.myr", UUID, Lsn(0)).unwrap();
    sim
}

/// Opens an existing one and analyses its log.
pub fn open(sim: SimIo, config: &PoolConfig) -> Result<Rig> {
    open_with(log_config(), sim, config)
}

/// The same whatever is newer than the log.
pub fn open_forced(sim: SimIo, config: &PoolConfig) -> Result<Rig> {
    open_as(log_config(), sim, config, true)
}

fn open_with(log: LogConfig, sim: SimIo, config: &PoolConfig) -> Result<Rig> {
    open_as(log, sim, config, false)
}

fn open_as(log: LogConfig, sim: SimIo, config: &PoolConfig, force: bool) -> Result<Rig> {
    let io: Arc<dyn Io> = Arc::new(sim.clone());
    let dir = Path::new(DIR);
    let log = Arc::new(Log::open(&io, dir, log)?);
    let spaces = Arc::new(SpaceRegistry::new(Arc::clone(&io), dir, config.page_size, 16));
    spaces.register(SPACE, "a.myr", Some(UUID));
    let messages = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&messages);
    let reporter: Reporter = Arc::new(move |level, text: &str| sink.lock().unwrap().push((level, text.to_string())));
    let mut redo = RedoTable::new();
    redo.register_room(PageKind::Index, |_| Some(ROOM));
    redo.register(NEXT..NEXT + 1, redo_next);
    if let Some(check) = INDEX_CHECK.get() {
        redo.register_check(PageKind::Index, *check);
    }
    let pool = BufferPool::new(config.clone(), io, dir, log, spaces, redo, reporter)?;
    let recovered = pool.recover(force)?;
    pool.start_background().unwrap();
    Ok(Rig { sim, pool, recovered, messages })
}
