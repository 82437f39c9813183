//! What an engine is opened with, and what can be changed while it runs.

use myriad_base::clock::{Clock, SystemClock};
use myriad_base::limits;
pub use myriad_buffer::{Level, Reporter};
pub use myriad_catalog::Placement;
pub use myriad_io::IoMethod;
use std::path::PathBuf;
use std::sync::Arc;

/// Called before a session starts to wait for a transaction of another: `(waiter, holder)`, the owners given to
/// [`crate::Engine::session_for`]; 0 where there is none.
pub type AboutToWait = Arc<dyn Fn(usize, usize) + Send + Sync>;

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
    /// Purges everything first, then as [`CloseMode::Clean`].
    Purged,
    /// Writes all pages; the next start has nothing to redo.
    Clean,
    /// Makes the log durable and leaves the pages to the next start's recovery.
    LogOnly,
}

/// How to open an engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Files go under `data_dir/#myriad/`.
    pub data_dir: PathBuf,
    /// Buffer pool in bytes.
    pub buffer_pool_bytes: u64,
    /// Partitions of the pool; 0 = a number that fits the machine.
    pub buffer_pool_instances: usize,
    /// Threads that write pages.
    pub page_cleaners: usize,
    /// Pages a second that background writing may use when nothing presses.
    pub io_capacity: u32,
    /// Pages a second at most.
    pub io_capacity_max: u32,
    /// Way of reads and writes.
    pub io_method: IoMethod,
    /// Page size of a new data directory in bytes; an existing one keeps its own.
    pub page_size: usize,
    /// Size of the redo log in bytes.
    pub log_capacity_bytes: u64,
    /// The log's buffer in memory in bytes.
    pub log_buffer_bytes: usize,
    /// What a commit waits for.
    pub flush_at_commit: FlushAtCommit,
    /// Protects pages against torn writes.
    pub doublewrite: bool,
    /// Finds deadlocks at once; else they end by timeout.
    pub deadlock_detect: bool,
    /// Tablespace files kept open at most.
    pub max_open_files: usize,
    /// Where a new table goes.
    pub placement: Placement,
    /// Error log.
    pub report: Reporter,
    /// See [`AboutToWait`].
    pub about_to_wait: Option<AboutToWait>,
    /// CPUs of the engine's own threads, such as `0,2-3`; empty: any. Read by [`myriad_io::CpuList::parse`].
    pub background_cpus: String,
    /// Whether pages in use before the last stop are read again in the background.
    pub warm_up: bool,
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

impl EngineConfig {
    /// Sensible settings for a data directory: a 128 MiB pool, a 512 MiB log, durable commits, silent.
    pub fn new(data_dir: impl Into<PathBuf>) -> EngineConfig {
        EngineConfig {
            data_dir: data_dir.into(),
            buffer_pool_bytes: 128 << 20,
            buffer_pool_instances: 0,
            page_cleaners: 1,
            io_capacity: 2_000,
            io_capacity_max: 20_000,
            io_method: IoMethod::Auto,
            page_size: limits::PAGE_SIZE_DEFAULT,
            log_capacity_bytes: 512 << 20,
            log_buffer_bytes: 16 << 20,
            flush_at_commit: FlushAtCommit::Sync,
            doublewrite: true,
            deadlock_detect: true,
            max_open_files: 2_000,
            placement: Placement::Database,
            report: Arc::new(|_, _| {}),
            about_to_wait: None,
            background_cpus: String::new(),
            warm_up: false,
            background_threads: true,
            definition_cache_bytes: 16 << 20,
            clock: Arc::new(SystemClock::new()),
            seed: None,
        }
    }
}

/// A setting that can change while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// See [`FlushAtCommit`].
    FlushAtCommit(FlushAtCommit),
    /// Pages a second.
    IoCapacity(u32),
    /// Pages a second.
    IoCapacityMax(u32),
    /// On or off.
    DeadlockDetect(bool),
    /// Bytes.
    BufferPoolBytes(u64),
    /// Changes nothing: says whether [`Setting::BufferPoolBytes`] would be refused now.
    BufferPoolBytesCheck(u64),
    /// Files.
    MaxOpenFiles(usize),
    /// For tables created from now on.
    Placement(Placement),
    /// On or off.
    Doublewrite(bool),
}
