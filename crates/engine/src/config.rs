//! What an engine is opened with, and what can be changed while it runs.

use myriad_base::clock::{Clock, SystemClock};
use myriad_base::{limits, Error, Result};
pub use myriad_buffer::{Level, Reporter};
pub use myriad_catalog::Placement;
pub use myriad_io::IoMethod;
pub use myriad_txn::{CommitOrder, Unordered, Victim};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushAtCommit {
    /// Nothing; the log is written and synced about once a second.
    Lazy,
    /// The log is durable.
    Sync,
    /// The log is written to the operating system; synced about once a second.
    Write,
}

/// How an engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Purges everything first, then makes all changes and writes all pages; the next start has nothing to redo.
    Purged,
    /// Writes all pages that are in memory, and makes the changes of those that are not, if these are so few that `io_capacity_max`
    /// allows to read them in a second; else the next start makes them.
    Clean,
    /// Makes the log durable and leaves the pages to the next start's recovery; while the log is off, as [`CloseMode::Clean`].
    LogOnly,
}

/// When the files of all tablespaces are checked for two with one id, missing, foreign and damaged ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateCheck {
    /// Never; each file is checked by itself when it is opened.
    Off,
    /// Beside the workload, from [`crate::Engine::start_background`] on.
    Online,
    /// Before the engine is open.
    Blocking,
}

impl DuplicateCheck {
    /// The setting's name.
    pub fn name(self) -> &'static str {
        match self {
            DuplicateCheck::Off => "OFF",
            DuplicateCheck::Online => "ONLINE",
            DuplicateCheck::Blocking => "BLOCKING",
        }
    }
}

/// How to open an engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Files go under `data_dir/#myriad/`. It is created if its parent is there. A relative one is taken from the process's folder at
    /// the open.
    pub data_dir: PathBuf,
    /// Buffer pool in bytes; 32 pages at least are taken.
    pub buffer_pool_bytes: u64,
    /// What in-memory tables may take of the buffer pool, in bytes, at most three quarters of it; 0 = a quarter.
    pub memory_tables_bytes: u64,
    /// What row locks may take of memory beside the pool, in bytes; 0 = half as much as the pool, 1 GiB at least.
    pub row_locks_bytes: u64,
    /// Partitions of the pool; 0 = a number that fits the machine.
    pub buffer_pool_instances: usize,
    /// Threads that write pages.
    pub page_cleaners: usize,
    /// Pages a second that background writing may use when nothing presses.
    pub io_capacity: u32,
    /// Pages a second at most.
    pub io_capacity_max: u32,
    /// Most memory for buffered changes of secondary indexes, in percent of the buffer pool; 0 = none.
    pub change_buffer_max_size: u32,
    /// Way of reads and writes.
    pub io_method: IoMethod,
    /// Page size of a new data directory in bytes; an existing one keeps its own.
    pub page_size: usize,
    /// Size of the redo log in bytes; 1 TiB at most.
    pub log_capacity_bytes: u64,
    /// The log's buffer in memory in bytes; four pages at least are taken.
    pub log_buffer_bytes: usize,
    /// What a commit waits for.
    pub flush_at_commit: FlushAtCommit,
    /// Whether changes are logged. Without, see [`Setting::RedoLog`], only a clean stop leaves a data directory that can be
    /// opened.
    pub redo_log: bool,
    /// Opens the directory although pages cannot be read that tell which transactions had not ended: their changes may look
    /// committed. For saving what is there, never to go on.
    pub force_recovery: bool,
    /// Protects pages against torn writes.
    pub doublewrite: bool,
    /// Finds deadlocks at once; else they end by timeout.
    pub deadlock_detect: bool,
    /// Whether the error log is told of each deadlock.
    pub print_all_deadlocks: bool,
    /// How long an open waits for another process that holds the data directory.
    pub lock_wait: Duration,
    /// Tablespace files kept open at most.
    pub max_open_files: usize,
    /// Where a new table goes.
    pub placement: Placement,
    /// See [`DuplicateCheck`]. Looks at the operating system's files only, never at a simulated disk.
    pub duplicate_check: DuplicateCheck,
    /// Threads or rings of that check; -1 = chosen by the engine.
    pub duplicate_check_threads: i32,
    /// Whether it reads 4 KiB of each file rather than its first pages.
    pub duplicate_check_light: bool,
    /// Whether it tells the kernel not to read ahead.
    pub duplicate_check_fadvise: bool,
    /// An index with about so many bytes of leaves in its tablespace's shared tree gets a root of its own.
    pub promote_bytes: u64,
    /// Error log: gets what is to be told and how grave it is, from any thread, and must not call the engine.
    pub report: Reporter,
    /// CPUs of the engine's own threads, such as `0,2-3`; empty: any. Read by [`myriad_io::CpuList::parse`].
    pub background_cpus: String,
    /// Whether pages in use before the last stop are read again in the background.
    pub warm_up: bool,
    /// How long reading that nobody waits for, the warm-up and the check of tablespaces that runs beside the workload,
    /// leaves the device to the start of others, once the engine is open.
    pub start_pause: Duration,
    /// Who fixes the order of commits; its numbers are the owners given to [`crate::Engine::session_for`].
    pub commit_order: Arc<dyn CommitOrder>,
    /// Whether the engine has threads of its own. Without them (simulation) [`crate::Engine::background_step`] does their
    /// work.
    pub background_threads: bool,
    /// Memory for cached definitions in bytes.
    pub definition_cache_bytes: usize,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where the UUIDs of new tablespaces come from; `None` = the operating system.
    pub seed: Option<u64>,
}

shown!(EngineConfig, |c| [
    ("data_dir", &c.data_dir),
    ("buffer_pool_bytes", &c.buffer_pool_bytes),
    ("page_size", &c.page_size),
    ("log_capacity_bytes", &c.log_capacity_bytes),
    ("flush_at_commit", &c.flush_at_commit),
    ("background_threads", &c.background_threads),
]);

impl EngineConfig {
    /// Sensible settings for a data directory: a 128 MiB pool, a 512 MiB log, durable commits, silent.
    pub fn new(data_dir: impl Into<PathBuf>) -> EngineConfig {
        EngineConfig {
            data_dir: data_dir.into(),
            buffer_pool_bytes: 128 << 20,
            memory_tables_bytes: 0,
            row_locks_bytes: 0,
            buffer_pool_instances: 0,
            page_cleaners: 1,
            io_capacity: 2_000,
            io_capacity_max: 20_000,
            change_buffer_max_size: 25,
            io_method: IoMethod::Auto,
            page_size: limits::PAGE_SIZE_DEFAULT,
            log_capacity_bytes: 512 << 20,
            log_buffer_bytes: 16 << 20,
            flush_at_commit: FlushAtCommit::Sync,
            redo_log: true,
            force_recovery: false,
            doublewrite: true,
            deadlock_detect: true,
            print_all_deadlocks: false,
            lock_wait: Duration::ZERO,
            max_open_files: 2_000,
            placement: Placement::Database,
            duplicate_check: DuplicateCheck::Online,
            duplicate_check_threads: -1,
            duplicate_check_light: true,
            duplicate_check_fadvise: true,
            promote_bytes: 1 << 20,
            report: Arc::new(|_, _| {}),
            background_cpus: String::new(),
            warm_up: false,
            start_pause: Duration::from_secs(2),
            commit_order: Arc::new(Unordered),
            background_threads: true,
            definition_cache_bytes: 16 << 20,
            clock: Arc::new(SystemClock::new()),
            seed: None,
        }
    }
}

/// A setting that can change while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// See [`FlushAtCommit`].
    FlushAtCommit(FlushAtCommit),
    /// Pages a second.
    IoCapacity(u32),
    /// Pages a second.
    IoCapacityMax(u32),
    /// Percent of the buffer pool.
    ChangeBufferMaxSize(u32),
    /// On or off.
    DeadlockDetect(bool),
    /// On or off.
    PrintAllDeadlocks(bool),
    /// Bytes.
    BufferPoolBytes(u64),
    /// Changes nothing: says whether [`Setting::BufferPoolBytes`] would be refused now.
    BufferPoolBytesCheck(u64),
    /// Bytes; see [`EngineConfig::memory_tables_bytes`].
    MemoryTablesBytes(u64),
    /// Bytes; see [`EngineConfig::row_locks_bytes`].
    RowLocksBytes(u64),
    /// Files.
    MaxOpenFiles(usize),
    /// For tables created from now on.
    Placement(Placement),
    /// Bytes. [`crate::Engine::set`] returns when the log has them, while others go on; for less than it has, changed pages are
    /// written first.
    LogCapacityBytes(u64),
    /// Off: nothing is written to the log and no commit waits for it; a crash leaves a data directory that cannot be opened.
    /// On: every changed page is written first, so that a crash is survived from the return of [`crate::Engine::set`] on.
    RedoLog(bool),
}

/// Refuses a log that no file would hold, or that has no room for what is logged of a large page at once.
pub(crate) fn check_log_capacity(bytes: u64) -> Result<()> {
    const BYTES: std::ops::RangeInclusive<u64> = 2 << 20..=1 << 40;
    match BYTES.contains(&bytes) {
        true => Ok(()),
        false => {
            let (least, most) = (BYTES.start(), BYTES.end());
            Err(Error::invalid(format!("a redo log of {bytes} bytes: it can have {least} to {most}")))
        }
    }
}

/// What [`EngineConfig::row_locks_bytes`] means beside such a pool.
pub(crate) fn row_locks_max(row_locks_bytes: u64, buffer_pool_bytes: u64) -> u64 {
    const AT_LEAST: u64 = 1 << 30;
    match row_locks_bytes {
        0 => (buffer_pool_bytes / 2).max(AT_LEAST),
        bytes => bytes,
    }
}
