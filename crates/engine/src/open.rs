//! Opening a data directory: creation on first use, else recovery.
//!
//! The order: lock, format file, log (headers), pool, analysis of the log, transactions, catalog, leftovers of a crash.
//! Nothing here depends on the number of tables or tablespaces: pages are redone when they are first used and by
//! background workers, tablespaces are opened when they are first used. But a crash may leave the log so full that nothing
//! can be appended before pages are redone: then they are, between catalog and leftovers.

use crate::check::{Checker, EngineSpaces};
use crate::config::{check_log_capacity, row_locks_max, DuplicateCheck, EngineConfig, Setting};
use crate::engine::{flush_policy, Engine, Parts};
use crate::format::{self, Format, Found};
use crate::reports::StartupPhase;
use myriad_base::random::Random;
use myriad_base::{page, Error, Lsn, Result, SpaceId};
use myriad_buffer::{BufferPool, Level, PoolConfig, RedoTable};
use myriad_catalog::{Catalog, CatalogConfig};
use myriad_io::{AlignedBuf, CpuList, FileLock, FileWatch, Io, OnCpus};
use myriad_log::{Log, LogConfig};
use myriad_space::SpaceRegistry;
use myriad_txn::{TrxConfig, TrxSystem};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SYSTEM_FILE: &str = "system.myr";
pub(crate) const UNDO_FILE: &str = "undo.myr";

/// Measures the start.
pub(crate) struct Phases<'a> {
    config: &'a EngineConfig,
    at: Duration,
    pub(crate) done: Vec<StartupPhase>,
}

impl Phases<'_> {
    pub(crate) fn begin(config: &EngineConfig) -> Phases<'_> {
        Phases { config, at: config.clock.now(), done: Vec::new() }
    }

    pub(crate) fn end(&mut self, phase: &'static str, bytes_read: u64) {
        let now = self.config.clock.now();
        let microseconds = now.saturating_sub(self.at).as_micros() as u64;
        self.at = now;
        self.done.push(StartupPhase { phase, microseconds, bytes_read });
    }
}

pub(crate) fn random_seed() -> u64 {
    // The standard library seeds this from the operating system.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn redo_table() -> RedoTable {
    let mut table = RedoTable::new();
    myriad_btree::register(&mut table);
    myriad_txn::redo_table_register(&mut table);
    table
}

/// UUID of one of the engine's own tablespaces.
pub(crate) fn own_uuid(directory: [u8; 16], space: SpaceId) -> [u8; 16] {
    let mut uuid = directory;
    uuid[15] ^= space.0 as u8 + 1;
    uuid
}

/// The log and the pool of a data directory.
pub(crate) struct Storage {
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) spaces: Arc<SpaceRegistry>,
    /// Whether the last stop has noted that every transaction had ended, and nothing was logged since.
    pub(crate) all_ended: bool,
    /// Where the log goes on behind its end, if it does.
    pub(crate) log_beyond: Option<Lsn>,
}

impl Engine {
    /// Opens a data directory with settings; creates it on first use. `io` overrides the configured method. Rollback of
    /// interrupted transactions, purge and reclaiming wait for [`Engine::start_background`].
    ///
    /// # Errors
    /// [`Error::DirectoryLocked`] if another engine has it; [`Error::Format`] if it is of another format;
    /// [`Error::CorruptLog`]; those of reading and writing files.
    pub fn open_with(config: EngineConfig, io: Option<Arc<dyn Io>>) -> Result<Arc<Engine>> {
        Engine::open_files(config, io).map_err(naming_own_file)
    }

    fn open_files(mut config: EngineConfig, io: Option<Arc<dyn Io>>) -> Result<Arc<Engine>> {
        if !format::valid_page_size(config.page_size) {
            let text = format!("page size {}: it has to be a power of two from 4096 to 65536", config.page_size);
            return Err(Error::invalid(text));
        }
        // Files are opened later, too, when the program may have gone to another folder.
        config.data_dir = std::path::absolute(&config.data_dir)
            .map_err(|e| Error::invalid(format!("the data directory {:?}: {e}", config.data_dir)))?;
        check_log_capacity(config.log_capacity_bytes)?;
        // Every thread of ours is started by this one, here or in `start_background`, or by one that was.
        let _cpus = background_cpus(&config)?;
        let io = match io {
            Some(io) => io,
            None => open_io(&config)?,
        };
        let report = Arc::clone(&config.report);
        let files = FileWatch::new(Arc::clone(&config.clock), move |text| report(Level::Warning, text));
        let io = files.watch(io);
        let begun = config.clock.now();
        let mut phases = Phases::begin(&config);
        let folder = config.data_dir.join(format::FOLDER);
        create_data_dir(&io, &config.data_dir)?;
        io.create_dir(&folder)?;
        let lock = lock(&config, &io, &folder)?;
        let mut random = Random::from_seed(config.seed.unwrap_or_else(random_seed));
        if config.seed.is_none() {
            myriad_txn::lock::seed_hashes([random_seed(), random_seed(), random_seed()]);
        }
        let found = format::look(&io, &folder)?;
        phases.end("lock and format", 0);

        let storage = match found {
            Found::Existing(format) => recover(&config, &io, format, &mut phases)?,
            Found::New => create(&config, &io, &folder, &mut random, &mut phases)?,
        };
        let opened = open_transactions(&config, &storage, random, &mut phases).and_then(|opened| {
            // Before anything is logged. As the redo in the background it asks each file whose it is.
            if storage.pool.make_room_after_crash()? {
                phases.end("redo of a full log", 0);
            }
            let run = storage.pool.log().generation_starts().last().copied().unwrap_or_default();
            myriad_txn::note_run(&storage.pool, run)?;
            finish_interrupted(&config, &opened.1)?;
            phases.end("interrupted work", 0);
            Ok(opened)
        });
        let (trx, catalog) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                storage.pool.stop_background();
                return Err(e);
            }
        };
        let checker = new_checker(&config, &io, &trx, &catalog, &storage);
        checker.run_blocking();
        if config.duplicate_check == DuplicateCheck::Blocking {
            phases.end("tablespace check", checker.status().bytes);
        }
        start_threads(&config, &storage.pool, &trx)?;
        let total = config.clock.now().saturating_sub(begun);
        let startup = std::mem::take(&mut phases.done);
        (config.report)(Level::Info, &format!("opened {} in {} ms", folder.display(), total.as_millis()));
        let parts = Parts {
            catalog,
            trx,
            pool: storage.pool,
            spaces: storage.spaces,
            io,
            files,
            clock: Arc::clone(&config.clock),
            report: Arc::clone(&config.report),
            config,
            _lock: lock,
        };
        let redo_log = parts.config.redo_log;
        let engine = Arc::new(Engine::new(parts, startup, checker));
        engine.marks.begin(&engine);
        engine.listen_for_deadlocks();
        if !redo_log {
            engine.set(Setting::RedoLog(false))?;
        }
        Ok(engine)
    }
}

/// A start meets damaged pages of the engine's own files, and there is nobody yet to ask for a tablespace's file.
fn naming_own_file(e: Error) -> Error {
    let file = match &e {
        Error::CorruptPage { page, .. } if page.space == SpaceId::SYSTEM => SYSTEM_FILE,
        Error::CorruptPage { page, .. } if page.space == SpaceId::UNDO => UNDO_FILE,
        _ => return e,
    };
    match e {
        Error::CorruptPage { page, reason } => {
            Error::CorruptPage { page, reason: format!("{reason}; its file is {}/{file}", format::FOLDER) }
        }
        other => other,
    }
}

/// Starts the threads that the engine cannot do without and that do not run yet, or none.
fn start_threads(config: &EngineConfig, pool: &Arc<BufferPool>, trx: &Arc<TrxSystem>) -> Result<()> {
    let mut started = pool.redo_in_background(2);
    if config.background_threads {
        started = started.and_then(|()| trx.spawn_background());
    }
    if started.is_err() {
        // Nothing is purged, so nothing can fail.
        let _ = trx.shutdown(false);
        pool.stop_background();
    }
    started
}

/// Creates the data directory if it is not there.
fn create_data_dir(io: &Arc<dyn Io>, dir: &Path) -> Result<()> {
    if io.exists(dir)? {
        return Ok(());
    }
    io.create_dir(dir)?;
    match dir.parent() {
        Some(parent) if parent != Path::new("") => io.sync_dir(parent),
        _ => io.sync_dir(Path::new(".")),
    }
}

/// Pause between two tries to lock the folder.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Keeps other processes out. One that was killed may not be gone yet, one that reads the folder may be through soon.
fn lock(config: &EngineConfig, io: &Arc<dyn Io>, folder: &Path) -> Result<Box<dyn FileLock>> {
    let path = folder.join(format::LOCK_FILE);
    let begun = config.clock.now();
    let mut told = config.lock_wait.is_zero();
    loop {
        match io.lock_file(&path) {
            Err(e @ Error::DirectoryLocked { .. }) => {
                if config.clock.now().saturating_sub(begun) >= config.lock_wait {
                    return Err(e);
                }
                if !std::mem::replace(&mut told, true) {
                    let text = format!("{e}; waiting up to {} s for it", config.lock_wait.as_secs());
                    (config.report)(Level::Warning, &text);
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            other => return other,
        }
    }
}

/// Keeps this thread on the CPUs for background threads, if there are any such.
pub(crate) fn background_cpus(config: &EngineConfig) -> Result<Option<OnCpus>> {
    match config.background_cpus.trim() {
        "" => Ok(None),
        list => CpuList::parse(list)?.enter().map(Some),
    }
}

/// The operating system's files, by the configured method; the error log hears of it when that was left to us and is not
/// the faster one.
fn open_io(config: &EngineConfig) -> Result<Arc<dyn Io>> {
    let (io, why) = myriad_io::open_io_or_why(config.io_method)?;
    if let Some(why) = why {
        (config.report)(Level::Info, &format!("files are read and written by threads, without io_uring: {why}"));
    }
    Ok(io)
}

fn log_config(config: &EngineConfig, page_size: usize) -> LogConfig {
    // A mini-transaction that gives a page new contents is logged at once, and half of the buffer has to hold it.
    let buffer_bytes = config.log_buffer_bytes.max(4 * page_size);
    LogConfig { capacity_bytes: config.log_capacity_bytes, buffer_bytes }
}

/// Opens log, registry and pool; nothing is recovered yet.
fn open_storage(config: &EngineConfig, io: &Arc<dyn Io>, format: Format) -> Result<Storage> {
    let dir: &Path = &config.data_dir;
    let log = Arc::new(Log::open(io, dir, log_config(config, format.page_size))?);
    if log.uuid() != format.uuid {
        return Err(Error::Format {
            path: dir.join(format::FOLDER).join("redo.log").display().to_string(),
            reason: "the log belongs to another data directory".into(),
        });
    }
    let spaces = Arc::new(SpaceRegistry::new(Arc::clone(io), dir, format.page_size, config.max_open_files));
    // The pool is the only cache of pages; with the system's on top each would be in memory twice.
    spaces.set_direct(true);
    let memory = myriad_io::memory_bytes();
    if config.buffer_pool_bytes > memory {
        let pool = config.buffer_pool_bytes;
        let text = format!("a buffer pool of {pool} bytes is more than the machine's memory, {memory} bytes");
        (config.report)(Level::Warning, &text);
    }
    let pool_config = PoolConfig {
        bytes: usize::try_from(config.buffer_pool_bytes).unwrap_or(usize::MAX),
        bytes_max: usize::try_from(memory).unwrap_or(usize::MAX),
        instances: config.buffer_pool_instances,
        page_size: format.page_size,
        page_cleaners: config.page_cleaners,
        io_capacity: u64::from(config.io_capacity),
        io_capacity_max: u64::from(config.io_capacity_max),
        change_buffer_max_size: config.change_buffer_max_size,
        doublewrite: config.doublewrite,
        background_threads: config.background_threads,
        clock: Arc::clone(&config.clock),
        ..PoolConfig::default()
    };
    let pool = BufferPool::new(
        pool_config,
        Arc::clone(io),
        dir,
        log,
        Arc::clone(&spaces),
        redo_table(),
        Arc::clone(&config.report),
    )?;
    Ok(Storage { pool, spaces, all_ended: false, log_beyond: None })
}

/// Whether the data files are of the runs that the log tells of. The undo directory notes each run before anything else that it
/// logs.
fn check_run(storage: &Storage) -> Result<()> {
    let log = storage.pool.log();
    let mut directory = AlignedBuf::new(storage.pool.page_size());
    let id = myriad_txn::UNDO_FIRST_PAGE;
    let read = storage.spaces.get(id.space).and_then(|space| space.read_page(id.page, &mut directory));
    // What cannot be read is told by who needs it.
    if read.and_then(|()| page::verify(&directory, id)).is_err() {
        return Ok(());
    }
    let Some(run) = myriad_txn::noted_run(&directory) else { return Ok(()) };
    let (checkpoint, starts) = (log.last_checkpoint().0, log.generation_starts());
    let newest = starts.iter().copied().filter(|&start| start < checkpoint).max();
    let reason = if newest.is_some_and(|newest| newest > run) {
        "they are older, of a run that began at LSN"
    } else if starts.last().is_some_and(|&last| last < run) {
        "they are newer, of a run that began at LSN"
    } else if starts.first().is_some_and(|&first| first <= run) && !starts.contains(&run) {
        "they are of another history, with a run that began at LSN"
    } else {
        return Ok(());
    };
    let last = starts.last().copied().unwrap_or_default();
    let reason = format!("{reason} {run}; the log's last one began at {last}, its checkpoint is {checkpoint}");
    Err(Error::LogMismatch { path: log.path(), reason })
}

pub(crate) fn recover(
    config: &EngineConfig,
    io: &Arc<dyn Io>,
    format: Format,
    phases: &mut Phases<'_>,
) -> Result<Storage> {
    if format.page_size != config.page_size {
        let text = format!("the data directory keeps its page size of {} bytes", format.page_size);
        (config.report)(Level::Info, &text);
    }
    let mut storage = open_storage(config, io, format)?;
    for (id, path) in [(SpaceId::SYSTEM, SYSTEM_FILE), (SpaceId::UNDO, UNDO_FILE)] {
        storage.spaces.register(id, path, Some(own_uuid(format.uuid, id)));
    }
    if !config.force_recovery {
        check_run(&storage)?;
    }
    phases.end("open log and pool", 0);
    let summary = storage.pool.recover(config.force_recovery)?;
    storage.all_ended = storage.pool.take_all_ended()?;
    storage.log_beyond = summary.log_beyond;
    let bytes = summary.end_lsn.0 - summary.checkpoint_lsn.0;
    phases.end("log analysis", bytes);
    if summary.mtrs > 0 {
        let text = format!(
            "recovery: {bytes} bytes of log from LSN {} to {}, {} pages to redo",
            summary.checkpoint_lsn, summary.end_lsn, summary.pages
        );
        (config.report)(Level::Info, &text);
    }
    storage.pool.start_background()?;
    Ok(storage)
}

/// Creates a data directory. A crash at any point leaves one that the next start creates anew.
fn create(
    config: &EngineConfig,
    io: &Arc<dyn Io>,
    folder: &Path,
    random: &mut Random,
    phases: &mut Phases<'_>,
) -> Result<Storage> {
    (config.report)(Level::Info, &format!("creating {}", folder.display()));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    let format = Format { page_size: config.page_size, uuid };
    // The folder's own name, before anything in it counts.
    io.sync_dir(&config.data_dir)?;
    format::begin_creation(io, folder)?;
    Log::create(io, &config.data_dir, log_config(config, format.page_size), uuid)?;
    let storage = open_storage(config, io, format)?;
    let lsn = storage.pool.recover(false)?.end_lsn;
    for (id, path) in [(SpaceId::SYSTEM, SYSTEM_FILE), (SpaceId::UNDO, UNDO_FILE)] {
        storage.spaces.create(id, path, own_uuid(uuid, id), lsn)?;
    }
    storage.pool.start_background()?;
    let laid_out = lay_out(io, folder, &storage, format);
    if let Err(e) = laid_out {
        storage.pool.stop_background();
        return Err(e);
    }
    phases.end("creation", 0);
    Ok(storage)
}

fn lay_out(io: &Arc<dyn Io>, folder: &Path, storage: &Storage, format: Format) -> Result<()> {
    myriad_btree::alloc::create_space_layout(&storage.pool, SpaceId::SYSTEM)?;
    myriad_txn::create_undo(&storage.pool)?;
    storage.pool.checkpoint_now()?;
    format::end_creation(io, folder, format)
}

pub(crate) fn open_transactions(
    config: &EngineConfig,
    storage: &Storage,
    random: Random,
    phases: &mut Phases<'_>,
) -> Result<(Arc<TrxSystem>, Arc<Catalog>)> {
    storage.pool.set_memory_limit(config.memory_tables_bytes);
    myriad_btree::alloc::create_memory_space(&storage.pool)?;
    let trx = TrxSystem::open(
        Arc::clone(&storage.pool),
        TrxConfig {
            flush: flush_policy(config.flush_at_commit),
            purge_threads: 0,
            deadlock_detect: config.deadlock_detect,
            commit_order: Arc::clone(&config.commit_order),
            promote_bytes: config.promote_bytes,
            all_ended: storage.all_ended,
            force: config.force_recovery,
            clock: Arc::clone(&config.clock),
            reporter: Arc::clone(&config.report),
        },
    )?;
    trx.locks().set_memory_max(row_locks_max(config.row_locks_bytes, config.buffer_pool_bytes));
    phases.end("transactions", 0);
    let resolver = Arc::downgrade(&trx);
    storage.spaces.set_resolver(Box::new(move |space| match resolver.upgrade() {
        Some(trx) => Catalog::resolve_space(&trx, space),
        None => Err(Error::ShuttingDown),
    }));
    let catalog = Arc::new(Catalog::open(
        Arc::clone(&trx),
        Arc::clone(&storage.pool),
        Arc::clone(&storage.spaces),
        CatalogConfig {
            placement: config.placement,
            cache_bytes: config.definition_cache_bytes,
            clock: Arc::clone(&config.clock),
            random,
        },
    ));
    trx.set_index_alive(catalog.index_alive());
    trx.set_index_dropped(catalog.index_dropped());
    phases.end("catalog", 0);
    Ok((trx, catalog))
}

fn new_checker(
    config: &EngineConfig,
    io: &Arc<dyn Io>,
    trx: &Arc<TrxSystem>,
    catalog: &Arc<Catalog>,
    storage: &Storage,
) -> Arc<Checker> {
    let directory = storage.pool.log().uuid();
    let spaces = EngineSpaces::new(Arc::clone(catalog), Arc::clone(&storage.spaces), directory);
    let mut config = config.clone();
    if !matches!(io.name(), "uring" | "threads") {
        config.duplicate_check = DuplicateCheck::Off;
    }
    Arc::new(Checker::new(spaces, Arc::clone(trx), &config, io.name() == "uring"))
}

/// What a crash left to be done before there are clients.
fn finish_interrupted(config: &EngineConfig, catalog: &Catalog) -> Result<()> {
    let removed = catalog.finish_interrupted()?;
    if removed > 0 {
        (config.report)(
            Level::Info,
            &format!("removed {removed} tablespace files of interrupted or dropped databases"),
        );
    }
    Ok(())
}
