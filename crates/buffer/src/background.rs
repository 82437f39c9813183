//! Background duties: the page provider keeps frames free, the page cleaners keep the checkpoint's age in bounds and take
//! checkpoints. Neither waits on a timer while behind; both sleep until they are needed, at most a second.
//!
//! Thresholds of the age (log end minus oldest change not durable in its file), as parts of the log's capacity:
//!
//! | from | writing |
//! |---|---|
//! | 0 | none, but when the log has not grown for a second: everything, at `io_capacity` |
//! | [`AGE_EARLY`] | the oldest pages, at a rate between `io_capacity` and `io_capacity_max` that grows with the age |
//! | [`AGE_LATE`] | the oldest pages, as fast as the device can |

use crate::config::{Level, PoolConfig};
use crate::frame::{NO_PAGE, USAGE_COLD};
use crate::pool::BufferPool;
use crate::stats::Counter;
use myriad_base::{Error, Lsn, PageId, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Age at which old pages begin to be written, in 1/16 of the log's capacity.
const AGE_EARLY: u64 = 4;
/// Age from which nothing holds the cleaners back, in 1/16 of the log's capacity.
const AGE_LATE: u64 = 9;
/// Checkpoints are at least this far apart (1/64 of the log's capacity), unless the log is short or idle.
const CHECKPOINT_STEP: u64 = 64;
/// Pages a cleaner writes before it looks around again.
const CLEANER_PAGES: usize = crate::doublewrite::BATCH_PAGES;
/// Dirty victims the provider writes at a time.
const PROVIDER_PAGES: usize = crate::doublewrite::BATCH_PAGES / 2;
/// Longest sleep of an idle thread.
const IDLE: Duration = Duration::from_secs(1);
/// Pause after a failed write before the next try.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long a client waits for a free frame, or a checkpoint for writes that fail.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds without progress after which a pool without threads gives up.
const INLINE_ROUNDS: usize = 16;
/// Pages waiting to be prefetched at most.
const PREFETCH_MAX: usize = 4096;

/// A sleeping place for a thread; a signal that comes while nobody sleeps is kept.
pub(crate) struct Event {
    signalled: AtomicBool,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Event {
    fn new() -> Event {
        Event { signalled: AtomicBool::new(false), mutex: Mutex::new(()), condvar: Condvar::new() }
    }

    /// Wakes all sleepers. Costs a load while a signal is pending.
    pub fn signal(&self) {
        if self.signalled.load(Ordering::Relaxed) || self.signalled.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(self.mutex.lock());
        self.condvar.notify_all();
    }

    fn wait(&self, at_most: Duration) {
        let mut held = self.mutex.lock();
        if !self.signalled.load(Ordering::Acquire) && !at_most.is_zero() {
            self.condvar.wait_for(&mut held, at_most);
        }
        self.signalled.store(false, Ordering::Release);
    }
}

/// The background's shared state.
pub(crate) struct Background {
    provider: Arc<Event>,
    cleaner: Arc<Event>,
    reader: Arc<Event>,
    /// Below this many free frames the provider is woken.
    pub free_low: usize,
    /// Up to this many it frees.
    free_target: usize,
    free_mutex: Mutex<()>,
    free_condvar: Condvar,
    free_waiters: AtomicUsize,
    done_mutex: Mutex<()>,
    done_condvar: Condvar,
    /// Log end at which the cleaners want to be woken.
    wake_lsn: AtomicU64,
    last_checkpoint: AtomicU64,
    checkpoint: Mutex<()>,
    io_capacity: AtomicU64,
    io_capacity_max: AtomicU64,
    /// When paced writing may go on.
    paced: Mutex<Instant>,
    /// Log end at the last idle look, and when it was seen to move.
    idle: Mutex<(u64, Instant)>,
    last_write_error: Mutex<Option<Instant>>,
    prefetch: Mutex<VecDeque<PageId>>,
    running: AtomicBool,
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Background {
    pub fn new(config: &PoolConfig) -> Background {
        let frames = (config.bytes / config.page_size).max(PoolConfig::FRAMES_MIN);
        let free_low = (frames / 64).clamp(4, 1024);
        let now = Instant::now();
        Background {
            provider: Arc::new(Event::new()),
            cleaner: Arc::new(Event::new()),
            reader: Arc::new(Event::new()),
            free_low,
            free_target: free_low * 2,
            free_mutex: Mutex::new(()),
            free_condvar: Condvar::new(),
            free_waiters: AtomicUsize::new(0),
            done_mutex: Mutex::new(()),
            done_condvar: Condvar::new(),
            wake_lsn: AtomicU64::new(0),
            last_checkpoint: AtomicU64::new(0),
            checkpoint: Mutex::new(()),
            io_capacity: AtomicU64::new(config.io_capacity.max(1)),
            io_capacity_max: AtomicU64::new(config.io_capacity_max.max(1)),
            paced: Mutex::new(now),
            idle: Mutex::new((0, now)),
            last_write_error: Mutex::new(None),
            prefetch: Mutex::new(VecDeque::new()),
            running: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        }
    }

    fn has_threads(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    #[inline]
    pub fn wake_provider(&self) {
        self.provider.signal();
    }

    pub fn wake_all(&self) {
        self.provider.signal();
        self.cleaner.signal();
        self.reader.signal();
        let _held = self.free_mutex.lock();
        self.free_condvar.notify_all();
    }

    /// A frame became free: somebody may wait for it.
    #[inline]
    pub fn frame_freed(&self) {
        if self.free_waiters.load(Ordering::SeqCst) != 0 {
            let _held = self.free_mutex.lock();
            self.free_condvar.notify_all();
        }
    }

    /// A batch ended: somebody may wait for its pages.
    pub fn batch_done(&self) {
        let _held = self.done_mutex.lock();
        self.done_condvar.notify_all();
    }

    pub fn set_last_checkpoint(&self, lsn: Lsn) {
        self.last_checkpoint.store(lsn.0, Ordering::Release);
    }

    pub fn last_checkpoint(&self) -> Lsn {
        Lsn(self.last_checkpoint.load(Ordering::Acquire))
    }

    /// Reports a failed write, at most every ten seconds.
    pub fn report_write_error(&self, pool: &BufferPool, pages: usize, error: &Error) {
        let mut last = self.last_write_error.lock();
        if last.is_some_and(|at| at.elapsed() < Duration::from_secs(10)) {
            return;
        }
        *last = Some(Instant::now());
        drop(last);
        pool.report_failed_write(pages, error);
    }

    /// Starts a thread that calls `body` until it gives `None`; between calls it sleeps for the time `body` gives, or
    /// until `event`. The thread does not keep the pool alive.
    pub fn spawn(
        &self,
        pool: &Arc<BufferPool>,
        name: &str,
        event: Option<Arc<Event>>,
        body: fn(&BufferPool) -> Option<Duration>,
    ) {
        let weak: Weak<BufferPool> = Arc::downgrade(pool);
        let run = move || loop {
            let Some(pool) = weak.upgrade() else { return };
            if pool.background.stopping.load(Ordering::Acquire) {
                return;
            }
            let pause = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&pool)));
            let pause = match pause {
                Ok(Some(pause)) => pause,
                Ok(None) => return,
                Err(_) => return pool.poison("a background thread of the buffer pool panicked"),
            };
            drop(pool);
            match &event {
                Some(event) => event.wait(pause),
                None if pause.is_zero() => {}
                None => std::thread::sleep(pause),
            }
        };
        match std::thread::Builder::new().name(name.to_string()).spawn(run) {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => pool.report(Level::Error, &format!("cannot start thread {name}: {error}")),
        }
    }
}

/// What a look at the checkpoint's age says.
struct Duty {
    /// Pages changed before this are to be written; `None`: nothing to do.
    limit: Option<Lsn>,
    /// Pages a second, or `None` for as fast as possible.
    rate: Option<u64>,
}

impl BufferPool {
    /// Starts the page provider, the page cleaners and the read-ahead thread, unless the settings forbid threads.
    pub fn start_background(self: &Arc<Self>) {
        let background = &self.background;
        if !self.config.background_threads || background.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let cleaner = Arc::clone(&background.cleaner);
        self.log().set_capacity_hook(Box::new(move |_, _| cleaner.signal()));
        background
            .spawn(self, "myriad-provide", Some(Arc::clone(&background.provider)), |pool| Some(pool.provider_turn()));
        background.spawn(self, "myriad-read", Some(Arc::clone(&background.reader)), |pool| {
            pool.prefetch_turn();
            Some(IDLE)
        });
        for i in 0..self.config.page_cleaners.clamp(1, 64) {
            let name = format!("myriad-clean-{i}");
            background.spawn(self, &name, Some(Arc::clone(&background.cleaner)), |pool| Some(pool.cleaner_turn()));
        }
    }

    /// Stops and joins the background threads; writes nothing. [`BufferPool::checkpoint_now`] comes before it in a clean
    /// shutdown.
    pub fn stop_background(&self) {
        let background = &self.background;
        background.stopping.store(true, Ordering::Release);
        loop {
            background.wake_all();
            let Some(thread) = background.threads.lock().pop() else { break };
            // The last owner of the pool may be one of its threads.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                self.report(Level::Error, "a background thread of the buffer pool panicked");
            }
        }
        background.running.store(false, Ordering::Release);
    }

    /// Does the background threads' work once, in this call: frees frames, writes a batch of the oldest pages whatever
    /// their age, takes a checkpoint. Returns whether there was any work.
    ///
    /// # Errors
    /// When a write or the log failed; pages that could not be written stay dirty.
    pub fn step_background(&self) -> Result<bool> {
        self.check_poison()?;
        let mut worked = self.redo_if_started() != 0;
        if self.free_frames.load(Ordering::Acquire) < self.background.free_target {
            worked |= self.provide()? != 0;
        }
        worked |= self.write_oldest(Lsn(u64::MAX), CLEANER_PAGES, false)? != 0;
        worked |= self.take_checkpoint()?;
        Ok(worked)
    }

    /// Pages a second that background writing may use: while nothing presses, and when the log fills.
    pub fn set_io_capacity(&self, normal: u64, max: u64) {
        self.background.io_capacity.store(normal.max(1), Ordering::Relaxed);
        self.background.io_capacity_max.store(max.max(normal).max(1), Ordering::Relaxed);
        self.background.cleaner.signal();
    }

    // ---- Before a mini-transaction

    /// Checks that a mini-transaction may begin, wakes the cleaners if the log has grown enough, and waits for room in
    /// the log.
    #[inline]
    pub(crate) fn before_mtr(&self) -> Result<()> {
        self.check_poison()?;
        if self.log().end_lsn().0 >= self.background.wake_lsn.load(Ordering::Relaxed) {
            self.age_pressure()?;
        }
        self.log().reserve_check()
    }

    #[cold]
    fn age_pressure(&self) -> Result<()> {
        if self.background.has_threads() {
            self.background.cleaner.signal();
            return Ok(());
        }
        // Without threads whoever makes the log grow cleans up behind itself.
        let capacity = self.log().capacity();
        for _ in 0..INLINE_ROUNDS {
            let end = self.log().end_lsn();
            if end.0 - self.oldest_change().0.min(end.0) < capacity / 16 * AGE_EARLY {
                break;
            }
            self.redo_if_started();
            let limit = Lsn(end.0 - capacity / 16 * (AGE_EARLY / 2));
            self.write_oldest(limit, CLEANER_PAGES, false)?;
        }
        self.take_checkpoint()?;
        self.set_wake_lsn();
        Ok(())
    }

    /// Sets the log end at which the cleaners have to look again.
    fn set_wake_lsn(&self) {
        let step = self.log().capacity() / 16;
        let oldest = self.oldest_change().0;
        let age = self.log().end_lsn().0.saturating_sub(oldest);
        let wake = match age {
            _ if age < step * AGE_EARLY => oldest + step * AGE_EARLY,
            _ if age < step * AGE_LATE => oldest + step * AGE_LATE,
            // Beyond that the cleaners do not sleep; the pool without threads tries again before long.
            _ => self.log().end_lsn().0 + step / 16,
        };
        self.background.wake_lsn.store(wake, Ordering::Relaxed);
    }

    // ---- Page cleaner

    /// The LSN below which every change is durable in its file.
    fn oldest_change(&self) -> Lsn {
        // In this order. What is appended after the first look is no older than its result; a page that recovery
        // redoes is put on its dirty list before its records go.
        let mut oldest = self.log().contiguous_lsn();
        if let Some(lsn) = self.pending.oldest() {
            oldest = oldest.min(lsn);
        }
        for shard in &self.shards {
            if let Some(lsn) = shard.dirty().oldest(self.frames()) {
                oldest = oldest.min(lsn);
            }
        }
        oldest
    }

    /// Bytes of log since the last checkpoint.
    pub(crate) fn checkpoint_age(&self) -> u64 {
        self.log().end_lsn().0.saturating_sub(self.background.last_checkpoint().0)
    }

    fn cleaner_duty(&self) -> Duty {
        let step = (self.log().capacity() / 16).max(1);
        let end = self.log().end_lsn().0;
        let age = end.saturating_sub(self.oldest_change().0);
        let (early, late) = (step * AGE_EARLY, step * AGE_LATE);
        let normal = self.background.io_capacity.load(Ordering::Relaxed);
        let max = self.background.io_capacity_max.load(Ordering::Relaxed).max(normal);
        if age >= late {
            return Duty { limit: Some(Lsn(end - early)), rate: None };
        }
        if age >= early {
            let rate = normal + (max - normal) * (age - early) / (late - early);
            return Duty { limit: Some(Lsn(end - early)), rate: Some(rate) };
        }
        let mut idle = self.background.idle.lock();
        if idle.0 != end {
            *idle = (end, Instant::now());
        }
        if idle.1.elapsed() >= IDLE && age > 0 {
            return Duty { limit: Some(Lsn(u64::MAX)), rate: Some(normal) };
        }
        // Too much of the memory is dirty: evictions would have to wait for writes.
        if self.dirty_pages() > self.frames().len() / 4 * 3 {
            return Duty { limit: Some(Lsn(u64::MAX)), rate: Some(max) };
        }
        Duty { limit: None, rate: None }
    }

    /// One turn of a cleaner; how long it may sleep then.
    fn cleaner_turn(&self) -> Duration {
        if self.check_poison().is_err() {
            return IDLE;
        }
        let duty = self.cleaner_duty();
        let Some(limit) = duty.limit else {
            let checkpointed = self.take_checkpoint_if_due(true);
            self.set_wake_lsn();
            return if checkpointed.is_err() { RETRY_PAUSE } else { IDLE };
        };
        if duty.rate.is_some() {
            let wait = self.background.paced.lock().saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                self.set_wake_lsn();
                return wait.min(IDLE);
            }
        }
        self.redo_if_started();
        let wrote = self.write_oldest(limit, CLEANER_PAGES, false);
        let checkpointed = self.take_checkpoint_if_due(false);
        self.set_wake_lsn();
        match (wrote, checkpointed) {
            (Ok(0), Ok(())) => {
                // All that is old is latched or on its way through another batch: wait for that.
                self.wait_for_batch(Duration::from_millis(5));
                // Nothing to write at all: only new commits or pending redo hold the checkpoint.
                if self.dirty_pages() == 0 {
                    IDLE.min(Duration::from_millis(100))
                } else {
                    Duration::ZERO
                }
            }
            (Ok(pages), Ok(())) => {
                if let Some(rate) = duty.rate {
                    let mut paced = self.background.paced.lock();
                    let from = (*paced).max(Instant::now());
                    *paced = from + Duration::from_secs_f64(pages as f64 / rate as f64);
                }
                Duration::ZERO
            }
            _ => RETRY_PAUSE,
        }
    }

    /// Writes up to `max` pages changed before `limit`, oldest first in each partition. Returns how many.
    fn write_oldest(&self, limit: Lsn, max: usize, wait: bool) -> Result<usize> {
        let mut frames = Vec::with_capacity(max);
        let each = max.div_ceil(self.shards.len());
        // Latched pages are skipped when written, so look at more than are wanted.
        for shard in &self.shards {
            shard.dirty().collect(self.frames(), limit, each, &mut frames);
        }
        if frames.is_empty() {
            return Ok(0);
        }
        let result = self.write_pages(&mut frames, wait);
        match result.error {
            Some(error) => Err(error),
            None => Ok(result.written),
        }
    }

    fn wait_for_batch(&self, at_most: Duration) {
        if self.background.has_threads() {
            let mut held = self.background.done_mutex.lock();
            self.background.done_condvar.wait_for(&mut held, at_most);
        }
    }

    // ---- Checkpoints

    fn take_checkpoint_if_due(&self, idle: bool) -> Result<()> {
        let oldest = self.oldest_change().0;
        let gain = oldest.saturating_sub(self.background.last_checkpoint().0);
        let capacity = self.log().capacity();
        let short = self.checkpoint_age() > capacity / 16 * AGE_LATE;
        let step = capacity / if short { CHECKPOINT_STEP * 4 } else { CHECKPOINT_STEP };
        if gain > 0 && (idle || gain >= step) {
            self.take_checkpoint()?;
        }
        Ok(())
    }

    /// Takes a checkpoint at the oldest change that is not durable in its file; false when that gains nothing.
    fn take_checkpoint(&self) -> Result<bool> {
        let _one = self.background.checkpoint.lock();
        let lsn = self.oldest_change();
        if lsn <= self.background.last_checkpoint() {
            return Ok(false);
        }
        self.check_poison()?;
        self.log().flush_to(lsn)?;
        let (_, payload) = self.log().last_checkpoint();
        self.log().checkpoint(lsn, &payload)?;
        self.background.set_last_checkpoint(lsn);
        self.counters.add(Counter::Checkpoints);
        self.prune_discarded(lsn);
        if let Some(doublewrite) = &self.doublewrite {
            if self.pending.len() == 0 && lsn >= self.pending.recovered_end() {
                doublewrite.forget_copies();
            }
        }
        Ok(true)
    }

    /// Finishes redo, writes every page changed so far and takes a checkpoint; waits. After it, with no change since,
    /// the log has nothing to redo. The caller holds no latch. Reports progress when it takes long.
    ///
    /// # Errors
    /// When the log fails, or writes have kept failing for 30 s.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.check_poison()?;
        self.redo_all();
        let target = self.log().end_lsn();
        let start = Instant::now();
        let mut last_progress = start;
        let mut last_report = start;
        let mut idle_rounds = 0;
        while self.oldest_dirty().is_some_and(|oldest| oldest < target) {
            self.check_poison()?;
            // Latches are waited for only after trying without: the rest need not wait for one page.
            match self.write_oldest(target, CLEANER_PAGES * 2, idle_rounds > 0) {
                Ok(0) => {
                    idle_rounds += 1;
                    self.wait_for_batch(Duration::from_millis(10));
                    if !self.background.has_threads() && idle_rounds > INLINE_ROUNDS {
                        return Err(Error::BufferPoolExhausted);
                    }
                }
                Ok(_) => {
                    idle_rounds = 0;
                    last_progress = Instant::now();
                }
                Err(error) => {
                    if !self.background.has_threads() || last_progress.elapsed() >= PATIENCE {
                        return Err(error);
                    }
                    std::thread::sleep(RETRY_PAUSE);
                }
            }
            if last_report.elapsed() >= Duration::from_secs(5) {
                last_report = Instant::now();
                let left = self.dirty_pages();
                self.report(Level::Info, &format!("checkpoint: {left} dirty pages left to write"));
            }
        }
        self.take_checkpoint()?;
        Ok(())
    }

    fn oldest_dirty(&self) -> Option<Lsn> {
        self.shards.iter().filter_map(|s| s.dirty().oldest(self.frames())).min()
    }

    // ---- Page provider

    /// One turn of the provider; how long it may sleep then.
    fn provider_turn(&self) -> Duration {
        if self.check_poison().is_err() || self.free_frames.load(Ordering::Acquire) >= self.background.free_target {
            return IDLE;
        }
        match self.provide() {
            Ok(0) => {
                // Everything is latched or being written by others.
                self.wait_for_batch(Duration::from_millis(5));
                Duration::ZERO
            }
            Ok(_) => Duration::ZERO,
            Err(_) => RETRY_PAUSE,
        }
    }

    /// Sweeps the clock hands until enough frames are free or every partition has been round twice. Returns how many
    /// became free.
    pub(crate) fn provide(&self) -> Result<usize> {
        let mut freed = 0;
        let mut dirty = Vec::with_capacity(PROVIDER_PAGES);
        for _ in 0..3 {
            for shard in &self.shards {
                for _ in 0..shard.frames.len() {
                    if self.free_frames.load(Ordering::Relaxed) >= self.background.free_target {
                        break;
                    }
                    freed += usize::from(self.look_at_victim(shard.next_by_hand(), &mut dirty));
                    if dirty.len() == PROVIDER_PAGES {
                        freed += self.write_victims(&mut dirty)?;
                    }
                }
                freed += self.write_victims(&mut dirty)?;
            }
            if freed != 0 {
                break;
            }
        }
        Ok(freed)
    }

    /// Gives the frame a second chance, frees it, or notes it for writing. Returns whether it became free.
    fn look_at_victim(&self, at: u32, dirty: &mut Vec<u32>) -> bool {
        let frame = self.frames().get(at);
        let id = frame.page_id.load(Ordering::Relaxed);
        if id == NO_PAGE || PageId::from_u64(id).is_in_memory() || frame.is_writing() {
            return false;
        }
        let usage = frame.usage.load(Ordering::Relaxed);
        if usage != USAGE_COLD {
            frame.usage.store(usage - 1, Ordering::Relaxed);
            return false;
        }
        if frame.is_dirty() {
            dirty.push(at);
            return false;
        }
        self.try_evict(at)
    }

    /// Writes dirty victims, then frees those that nobody has touched meanwhile.
    fn write_victims(&self, dirty: &mut Vec<u32>) -> Result<usize> {
        if dirty.is_empty() {
            return Ok(0);
        }
        let victims = dirty.clone();
        let result = self.write_pages(dirty, false);
        let freed = victims.into_iter().filter(|&at| self.try_evict(at)).count();
        match result.error {
            Some(error) if freed == 0 => Err(error),
            _ => Ok(freed),
        }
    }

    /// Waits until a frame is free.
    #[cold]
    pub(crate) fn wait_for_frame(&self, id: PageId) -> Result<u32> {
        self.counters.add(Counter::FreeWaits);
        let background = &self.background;
        if !background.has_threads() {
            for _ in 0..INLINE_ROUNDS {
                // A failed write may have left clean victims.
                let provided = self.provide();
                if let Some(at) = self.try_alloc_frame(id) {
                    return Ok(at);
                }
                provided?;
            }
            return Err(Error::BufferPoolExhausted);
        }
        let start = Instant::now();
        background.free_waiters.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if let Some(at) = self.try_alloc_frame(id) {
                break Ok(at);
            }
            if let Err(error) = self.check_poison() {
                break Err(error);
            }
            if start.elapsed() >= PATIENCE {
                break Err(Error::BufferPoolExhausted);
            }
            background.wake_provider();
            let mut held = background.free_mutex.lock();
            if self.free_frames.load(Ordering::SeqCst) == 0 {
                background.free_condvar.wait_for(&mut held, Duration::from_millis(50));
            }
        };
        background.free_waiters.fetch_sub(1, Ordering::SeqCst);
        found
    }

    // ---- Read-ahead

    /// Starts to read pages that will be wanted soon; without background threads reads them now. Never waits for a free
    /// frame, and failures are left to whoever fixes the page.
    pub fn prefetch(&self, ids: &[PageId]) {
        if !self.background.has_threads() {
            return self.load_batch(ids);
        }
        {
            let mut queue = self.background.prefetch.lock();
            let room = PREFETCH_MAX - queue.len().min(PREFETCH_MAX);
            queue.extend(ids.iter().copied().filter(|&id| !self.is_resident(id)).take(room));
        }
        self.background.reader.signal();
    }

    fn prefetch_turn(&self) {
        loop {
            let ids: Vec<PageId> = {
                let mut queue = self.background.prefetch.lock();
                let n = queue.len().min(PROVIDER_PAGES);
                queue.drain(..n).collect()
            };
            if ids.is_empty() || self.background.stopping.load(Ordering::Acquire) {
                return;
            }
            self.load_batch(&ids);
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.stop_background();
    }
}
