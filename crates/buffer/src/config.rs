//! Settings, messages and figures of the pool.

use crate::provider::PROVIDERS;
use myriad_base::clock::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For information.
    Info,
    /// Something the user should look at.
    Warning,
    /// Something is broken.
    Error,
}

/// Takes messages for the error log. Called from any thread, never with a latch held.
pub type Reporter = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Settings of a [`crate::BufferPool`].
#[derive(Clone)]
pub struct PoolConfig {
    /// Memory for pages in bytes; rounded down to whole pages, at least [`PoolConfig::FRAMES_MIN`] of them.
    pub bytes: usize,
    /// Largest size that [`crate::BufferPool::resize`] may be asked for; below `bytes` it means `bytes`. Costs address space.
    pub bytes_max: usize,
    /// Partitions of free lists, clock hands and dirty lists; 0 picks a number.
    pub instances: usize,
    /// Page size in bytes: a power of two from 4 to 64 KiB.
    pub page_size: usize,
    /// Threads that write old dirty pages (at least 1 when `background_threads`).
    pub page_cleaners: usize,
    /// Pages a second that background writing may use while nothing presses.
    pub io_capacity: u64,
    /// Pages a second that background writing may use when the log fills.
    pub io_capacity_max: u64,
    /// Most of the pool's memory that buffered changes may take, in percent; 0 = nothing is buffered.
    pub change_buffer_max_size: u32,
    /// Write each page to the doublewrite file first.
    pub doublewrite: bool,
    /// Longest wait for the latch of a page that is in memory.
    pub latch_wait_max: Duration,
    /// Whether the pool has threads of its own. Without them (simulation) writing and eviction happen inside the calls
    /// that need them and in [`crate::BufferPool::step_background`].
    pub background_threads: bool,
    /// By which pages are found to be used again later.
    pub clock: Arc<dyn Clock>,
}

impl PoolConfig {
    /// Smallest number of frames of a pool.
    pub const FRAMES_MIN: usize = 32;

    /// Page cleaners, where there are threads.
    pub(crate) fn cleaners(&self) -> usize {
        self.page_cleaners.clamp(1, 64)
    }

    /// Threads that write batches of pages.
    pub(crate) fn writers(&self) -> usize {
        if self.background_threads {
            PROVIDERS + self.cleaners()
        } else {
            1
        }
    }

    /// Frames of the pool as it starts.
    pub(crate) fn frames(&self) -> usize {
        (self.bytes / self.page_size).max(PoolConfig::FRAMES_MIN)
    }
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            bytes: 128 << 20,
            bytes_max: 0,
            instances: 0,
            page_size: myriad_base::limits::PAGE_SIZE_DEFAULT,
            page_cleaners: 2,
            io_capacity: 2_000,
            io_capacity_max: 20_000,
            change_buffer_max_size: 25,
            doublewrite: true,
            latch_wait_max: Duration::from_secs(300),
            background_threads: true,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// A partition of the pool as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Its frames.
    pub frames: u64,
    /// Of these, without a page.
    pub free_frames: u64,
    /// Dirty pages; one changed while it is being written counts twice.
    pub dirty_pages: u64,
    /// Bytes of log since the oldest change that is not durable in its file; 0 if there is none.
    pub oldest_change_age: u64,
}

/// Figures of the pool since it was made, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames that there are.
    pub frames: u64,
    /// Frames that are missing from the pool's size, their memory lent to buffered changes.
    pub frames_lent: u64,
    /// Frames that there can be without a restart.
    pub frames_max: u64,
    /// Frames that the pool is on the way to; 0 when it is not shrinking.
    pub frames_shrinking_to: u64,
    /// Frames beyond these that are still in use.
    pub frames_to_free: u64,
    /// Bytes of a frame.
    pub page_size: u64,
    /// Frames without a page.
    pub free_frames: u64,
    /// Pages changed and not yet durable in their file.
    pub dirty_pages: u64,
    /// Accesses that found the page in memory (a lower bound).
    pub hits: u64,
    /// Accesses that had to read the page.
    pub misses: u64,
    /// Pages read from files.
    pub reads: u64,
    /// Pages written to files.
    pub writes: u64,
    /// Page writes that failed and will be retried.
    pub write_errors: u64,
    /// Pages logged once more, whole or with their changes, because they cannot be written or read.
    pub carried: u64,
    /// Pages dropped from memory to make room.
    pub evictions: u64,
    /// Of these, pages with changes, which stay in the change buffer.
    pub evicted_unwritten: u64,
    /// Times a client had to wait for a free frame.
    pub free_waits: u64,
    /// Batches that page cleaners and the page provider have begun to write.
    pub batches: u64,
    /// Batches that went through the doublewrite file.
    pub doublewrite_batches: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Bytes of log since the last checkpoint.
    pub checkpoint_age: u64,
    /// Pages that recovery has still to redo.
    pub pending_redo_pages: u64,
    /// Pages redone since the pool was opened.
    pub redone_pages: u64,
    /// Mini-transactions committed with changes.
    pub mtrs: u64,
    /// Frames that hold pages of in-memory tables.
    pub memory_pages: u64,
    /// Most of these.
    pub memory_pages_max: u64,
    /// Memory that buffered changes hold, in bytes.
    pub change_buffer_bytes: u64,
    /// Pages that have buffered changes.
    pub change_buffer_pages: u64,
    /// Changes held.
    pub change_buffer_changes: u64,
    /// Changes buffered since the pool was made.
    pub changes_buffered: u64,
    /// Of these, made when their page was read.
    pub changes_merged: u64,
    /// Pages on which buffered changes were made.
    pub merges: u64,
    /// Of the pages read, those that a reader read together with others.
    pub reads_together: u64,
}
