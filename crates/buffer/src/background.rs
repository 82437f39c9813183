//! Background threads of the pool: the page provider keeps frames free (`provider.rs`), the page cleaners keep the
//! checkpoint's age in bounds and take checkpoints (`cleaner.rs`), one thread reads ahead. None waits on a timer while
//! behind; all sleep until they are needed, at most a second.

use crate::cleaner::CLEANER_PAGES;
use crate::config::{Level, PoolConfig};
use crate::event::Event;
use crate::pool::BufferPool;
use crate::provider::{FrameQueue, FreeBounds, PROVIDERS};
use crate::usage::USAGE_AHEAD;
use crossbeam_utils::CachePadded;
use myriad_base::threads;
use myriad_base::waits::{self, Wait};
use myriad_base::{work, Error, Lsn, PageId, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest sleep of an idle thread.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// Pause after a failed write before the next try.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long a client waits for a free frame, or a checkpoint for writes that fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds without progress after which a pool without threads gives up.
pub(crate) const INLINE_ROUNDS: usize = 16;
/// Pages waiting to be prefetched at most.
const PREFETCH_MAX: usize = 4096;
/// A wait that is told of.
const LONG_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks for long waits, and after one that found some.
const WAITS_LOOK: Duration = Duration::from_secs(5);
const WAITS_TELL: Duration = Duration::from_secs(60);
/// How many of them are told at a time.
const WAITS_TOLD: usize = 8;
/// Pages read ahead at a time.
const PREFETCH_PAGES: usize = crate::doublewrite::BATCH_PAGES / 2;

/// The background's shared state.
pub(crate) struct Background {
    pub provider: Arc<Event>,
    pub cleaner: Arc<Event>,
    reader: Arc<Event>,
    pub warm_up: Arc<Event>,
    /// When the provider works, and how far.
    pub free: FreeBounds,
    /// Clients that wait for a free frame.
    pub frame_queue: FrameQueue,
    done_mutex: Mutex<()>,
    done_condvar: Condvar,
    /// Log end at which the cleaners want to be woken.
    pub wake_lsn: CachePadded<AtomicU64>,
    last_checkpoint: AtomicU64,
    pub checkpoint: Mutex<()>,
    pub io_capacity: AtomicU64,
    pub io_capacity_max: AtomicU64,
    /// Held by the one provider that moves the clock hands, while it does not write.
    pub sweep: Mutex<()>,
    /// When paced writing may go on.
    pub paced: Mutex<Instant>,
    /// When buffered changes are made again, after a try that made none.
    pub merge_again: Mutex<Instant>,
    /// Log end at the last idle look, and when it was seen to move.
    pub idle: Mutex<(u64, Instant)>,
    last_wait: Mutex<Option<Instant>>,
    /// When long waits are looked for next.
    next_look: Mutex<Instant>,
    prefetch: Mutex<VecDeque<PageId>>,
    running: AtomicBool,
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Background {
    pub fn new(config: &PoolConfig) -> Background {
        let now = Instant::now();
        Background {
            provider: Arc::new(Event::new()),
            cleaner: Arc::new(Event::new()),
            reader: Arc::new(Event::new()),
            warm_up: Arc::new(Event::new()),
            free: FreeBounds::of(config.frames()),
            frame_queue: FrameQueue::default(),
            done_mutex: Mutex::new(()),
            done_condvar: Condvar::new(),
            wake_lsn: CachePadded::default(),
            last_checkpoint: AtomicU64::new(0),
            checkpoint: Mutex::new(()),
            io_capacity: AtomicU64::new(config.io_capacity.max(1)),
            io_capacity_max: AtomicU64::new(config.io_capacity_max.max(1)),
            sweep: Mutex::new(()),
            paced: Mutex::new(now),
            merge_again: Mutex::new(now),
            idle: Mutex::new((0, now)),
            last_wait: Mutex::new(None),
            next_look: Mutex::new(now),
            prefetch: Mutex::new(VecDeque::new()),
            running: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        }
    }

    pub fn has_threads(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    #[inline]
    pub fn wake_provider(&self) {
        // Who sweeps goes on until enough frames are free, or wakes another as it begins to write.
        if !self.sweep.is_locked() {
            self.provider.signal_one();
        }
    }

    pub fn wake_all(&self) {
        self.provider.signal();
        self.cleaner.signal();
        self.reader.signal();
        self.warm_up.signal();
        self.frame_queue.wake_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A batch ended: somebody may wait for its pages.
    pub fn batch_done(&self) {
        let _held = self.done_mutex.lock();
        self.done_condvar.notify_all();
    }

    /// Waits for the end of a batch.
    pub fn wait_for_batch(&self, at_most: Duration) {
        let mut held = self.done_mutex.lock();
        self.done_condvar.wait_for(&mut held, at_most);
    }

    pub fn set_last_checkpoint(&self, lsn: Lsn) {
        self.last_checkpoint.store(lsn.0, Ordering::Release);
    }

    pub fn last_checkpoint(&self) -> Lsn {
        Lsn(self.last_checkpoint.load(Ordering::Acquire))
    }

    /// Reports that something waits for a file, at most every ten seconds.
    pub fn report_rarely(&self, pool: &BufferPool, text: impl FnOnce() -> String) {
        let mut last = self.last_wait.lock();
        if last.is_some_and(|at| at.elapsed() < Duration::from_secs(10)) {
            return;
        }
        *last = Some(Instant::now());
        drop(last);
        pool.report(Level::Error, &text());
    }

    /// Starts a thread that calls `body` until it gives `None`; between calls it sleeps for the time `body` gives, or
    /// until `event`. The thread does not keep the pool alive.
    ///
    /// # Errors
    /// [`Error::Io`]: the system gives no thread.
    pub fn spawn(
        &self,
        pool: &Arc<BufferPool>,
        name: &str,
        event: Option<Arc<Event>>,
        body: fn(&BufferPool) -> Option<Duration>,
    ) -> Result<()> {
        let weak: Weak<BufferPool> = Arc::downgrade(pool);
        let run = move || loop {
            let Some(pool) = weak.upgrade() else { return };
            if pool.background.stopping.load(Ordering::Acquire) {
                return;
            }
            let Some(pause) = pool.guard_thread(|| body(&pool)).flatten() else { return };
            drop(pool);
            match &event {
                Some(event) => event.wait(pause),
                None if pause.is_zero() => {}
                None => std::thread::sleep(pause),
            }
        };
        self.threads.lock().push(threads::spawn(name, run).map_err(|e| Error::no_thread(name, &e))?);
        Ok(())
    }
}

impl BufferPool {
    /// Runs the work of a background thread. A panic there stops the engine: what it left half done nobody knows, and
    /// nobody else would do its work. `None` then.
    pub fn guard_thread<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(value) => Some(value),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
                let thread = std::thread::current();
                self.poison(&format!("thread {} panicked: {text}", thread.name().unwrap_or("of the background")));
                // A panic's payload may panic when dropped.
                std::mem::forget(panic);
                None
            }
        }
    }

    /// Of an engine that stands still the error log else says nothing. Asked by several threads, as one of them may be among those
    /// who wait.
    pub(crate) fn tell_of_long_waits(&self) {
        let now = Instant::now();
        if let Some(mut next) = self.background.next_look.try_lock().filter(|next| **next <= now) {
            *next = now + WAITS_LOOK;
            if self.tell_of_waits(LONG_WAIT) {
                *next = now + WAITS_TELL;
            }
        }
    }

    /// Tells of threads that have waited so long, if there are any.
    pub fn tell_of_waits(&self, at_least: Duration) -> bool {
        let waits = waits::list(at_least);
        if waits.is_empty() {
            return false;
        }
        let some: Vec<String> = waits.iter().take(WAITS_TOLD).map(Wait::to_string).collect();
        let more = waits.len() - some.len();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        self.report(Level::Warning, &format!("long waits: {}{more}", some.join(", ")));
        true
    }

    /// Starts the page provider, the page cleaners and the read-ahead thread, unless the settings forbid threads.
    ///
    /// # Errors
    /// [`Error::Io`]: the system gives not as many threads. None runs then: without a cleaner the log would fill up and
    /// all who write would wait for ever.
    pub fn start_background(self: &Arc<Self>) -> Result<()> {
        let background = &self.background;
        if !self.config.background_threads || background.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.spawn_all().inspect_err(|_| self.stop_background())
    }

    fn spawn_all(self: &Arc<Self>) -> Result<()> {
        let background = &self.background;
        let cleaner = Arc::clone(&background.cleaner);
        self.log().set_capacity_hook(Box::new(move |_, _| cleaner.signal()));
        for i in 0..PROVIDERS {
            let name = format!("myriad-provide-{i}");
            background.spawn(self, &name, Some(Arc::clone(&background.provider)), |pool| Some(pool.provider_turn()))?;
        }
        background.spawn(self, "myriad-read", Some(Arc::clone(&background.reader)), |pool| {
            pool.prefetch_turn();
            Some(IDLE)
        })?;
        for i in 0..self.config.cleaners() {
            let name = format!("myriad-clean-{i}");
            background.spawn(self, &name, Some(Arc::clone(&background.cleaner)), |pool| Some(pool.cleaner_turn()))?;
        }
        Ok(())
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
    /// their age, takes a checkpoint. Returns whether there was any work, freed frames aside.
    ///
    /// # Errors
    /// When a write or the log failed; pages that could not be written stay dirty.
    pub fn step_background(&self) -> Result<bool> {
        self.check_poison()?;
        let _all_written = self.write_all_victims();
        let mut worked = self.redo_if_started() != 0;
        worked |= self.merge_old(Lsn(u64::MAX), CLEANER_PAGES) != 0;
        worked |= self.step_resize();
        if self.free_frames.load(Ordering::Acquire) < self.background.free.target() {
            // No work that counts: what the next step looks at may take the frames again, and for ever so where few are left.
            self.provide()?;
        }
        worked |= self.write_oldest(Lsn(u64::MAX), CLEANER_PAGES, false)? != 0;
        worked |= self.take_checkpoint()?;
        Ok(worked)
    }

    /// The part of [`BufferPool::step_background`] that lends memory to buffered changes and takes it back; whether it did.
    pub fn step_resize(&self) -> bool {
        self.resize_turn().is_some_and(|pause| pause.is_zero())
    }

    /// Pages a second that background writing may use: while nothing presses, and when the log fills.
    pub fn set_io_capacity(&self, normal: u64, max: u64) {
        self.background.io_capacity.store(normal.max(1), Ordering::Relaxed);
        self.background.io_capacity_max.store(max.max(normal).max(1), Ordering::Relaxed);
        self.background.cleaner.signal();
    }

    // ---- Read-ahead

    /// Starts to read pages that will be wanted soon; without background threads reads them now. Never waits for a free
    /// frame, and failures are left to whoever fixes the page.
    pub fn prefetch(&self, ids: &[PageId]) {
        work::count(|w| &w.pages_prefetched, ids.len() as u64);
        if !self.background.has_threads() {
            self.load_batch(ids, USAGE_AHEAD);
            return;
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
                let n = queue.len().min(PREFETCH_PAGES);
                queue.drain(..n).collect()
            };
            if ids.is_empty() || self.background.is_stopping() {
                return;
            }
            self.load_batch(&ids, USAGE_AHEAD);
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.stop_background();
    }
}
