//! The page provider keeps frames free, so that a client that misses a page finds one at once.
//!
//! Its threads sweep the partitions' clock hands: a cold clean page is dropped, cold dirty ones are written in batches and
//! then dropped. Several threads, so that one's sync does not keep the device idle: while one waits for the sync of its
//! batch, the others' batches are written. One of them at a time moves the hands: to drop what need not be written takes the processor
//! alone, which the clients want.
//!
//! A client that finds no free frame looks for a clean victim itself, which costs less than waking somebody; it never
//! writes. If it finds none it queues up, and each frame that becomes free goes to the longest waiting.

use crate::background::{IDLE, INLINE_ROUNDS, PATIENCE, RETRY_PAUSE};
use crate::frame::{NIL, NO_PAGE};
use crate::pool::BufferPool;
use crate::shard::Shard;
use crate::stats::Counter;
use myriad_base::waits::{self, InVain, WaitFor};
use myriad_base::{Error, PageId, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{fence, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Threads that provide: more than the device needs, as each waits for the processor at every step when clients are many.
pub(crate) const PROVIDERS: usize = 8;
/// Dirty victims written at a time. Few, as all providers' writes and whatever a commit waits for share the device's queue.
const PROVIDER_PAGES: usize = 32;
/// Victims taken from a partition before the next one has its turn.
const TURN_VICTIMS: usize = 16;
/// Frames that a client without a frame looks at for a clean victim.
const CLIENT_SWEEP: usize = 32;

/// The provider is woken below the lower number of free frames and works up to the upper one.
pub(crate) struct FreeBounds {
    low: AtomicUsize,
    target: AtomicUsize,
    /// Counts turns: whose it is.
    turn: AtomicUsize,
}

impl FreeBounds {
    /// The bounds of a pool of `frames` frames: 1/32 and 1/16 of it.
    pub fn of(frames: usize) -> FreeBounds {
        let bounds = FreeBounds { low: AtomicUsize::new(0), target: AtomicUsize::new(0), turn: AtomicUsize::new(0) };
        bounds.set(frames);
        bounds
    }

    /// The pool has another number of frames now.
    pub fn set(&self, frames: usize) {
        let low = (frames / 32).clamp(4, 2048);
        self.low.store(low, Ordering::Relaxed);
        self.target.store(low * 2, Ordering::Relaxed);
    }

    #[inline]
    pub fn low(&self) -> usize {
        self.low.load(Ordering::Relaxed)
    }

    pub fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }
}

/// A client that waits for a frame.
struct FrameWaiter {
    /// The frame it was given, or [`NIL`].
    frame: AtomicU32,
    thread: Thread,
}

/// Those who wait for a frame, the longest waiting first.
#[derive(Default)]
pub(crate) struct FrameQueue {
    /// Length of the queue, so that nobody takes the lock for nothing.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<FrameWaiter>>>,
}

impl FrameQueue {
    fn join(&self) -> Arc<FrameWaiter> {
        let waiter = Arc::new(FrameWaiter { frame: AtomicU32::new(NIL), thread: std::thread::current() });
        let mut queue = self.queue.lock();
        queue.push_back(Arc::clone(&waiter));
        self.waiting.store(queue.len(), Ordering::SeqCst);
        waiter
    }

    /// Takes the waiter out; the frame that it was given before, if any.
    fn leave(&self, waiter: &Arc<FrameWaiter>) -> Option<u32> {
        let mut queue = self.queue.lock();
        queue.retain(|w| !Arc::ptr_eq(w, waiter));
        self.waiting.store(queue.len(), Ordering::SeqCst);
        let given = waiter.frame.load(Ordering::Acquire);
        (given != NIL).then_some(given)
    }

    /// Hands frames to those who wait, as long as `take` has any.
    fn serve(&self, mut take: impl FnMut() -> Option<u32>) {
        // Between the frame's way into its list and the look at the queue; the waiter has its fence between the two the
        // other way round, so one of the two sees the other.
        fence(Ordering::SeqCst);
        while self.waiting.load(Ordering::SeqCst) != 0 {
            let mut queue = self.queue.lock();
            if queue.is_empty() {
                return;
            }
            let Some(frame) = take() else { return };
            let waiter = queue.pop_front().expect("the queue is not empty");
            self.waiting.store(queue.len(), Ordering::SeqCst);
            waiter.frame.store(frame, Ordering::Release);
            drop(queue);
            waiter.thread.unpark();
        }
    }

    /// Lets all look around: the pool is poisoned or stops.
    pub fn wake_all(&self) {
        self.queue.lock().iter().for_each(|w| w.thread.unpark());
    }
}

/// What a look at a frame under the clock hand led to.
enum Look {
    Freed,
    Dirty,
    Spared,
    /// Dirty, and not to be written for now.
    Held(Error),
}

impl BufferPool {
    /// One turn of a provider; how long it may sleep then.
    pub(crate) fn provider_turn(&self) -> Duration {
        self.tell_of_long_waits();
        self.now.look();
        if self.check_poison().is_err() {
            return IDLE;
        }
        let resize = self.resize_turn();
        if self.free_frames.load(Ordering::Acquire) >= self.background.free.target() {
            return resize.unwrap_or(IDLE);
        }
        if self.background.sweep.is_locked() {
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

    /// Sweeps the clock hands, a few victims from each partition in turn, until enough frames are free or every partition
    /// has been round three times. Returns how many became free.
    pub(crate) fn provide(&self) -> Result<usize> {
        let Some(mut sweep) = self.begin_sweep() else { return Ok(0) };
        let mut freed = 0;
        // Of a small pool only a part may be on its way to the files at a time.
        let batch = (self.frames().len() / (8 * PROVIDERS)).clamp(8, PROVIDER_PAGES);
        let mut dirty = Vec::with_capacity(batch);
        let frames = self.frames().len() as u32;
        let mut looks = 3 * frames;
        let mut held = None;
        while looks > 0 && self.free_frames.load(Ordering::Relaxed) < self.background.free.target() {
            let turn = self.background.free.turn.fetch_add(1, Ordering::Relaxed);
            let shard = &self.shards[turn % self.shards.len()];
            let mut victims = 0;
            for _ in 0..frames / self.shards.len() as u32 {
                let at = shard.next_by_hand(frames);
                looks = looks.saturating_sub(1);
                match self.look_at_victim(shard, at) {
                    Look::Freed => freed += 1,
                    Look::Dirty => dirty.push(at),
                    Look::Spared => continue,
                    Look::Held(error) => {
                        held = Some(error);
                        continue;
                    }
                }
                victims += 1;
                if victims == TURN_VICTIMS || dirty.len() == batch {
                    break;
                }
            }
            if dirty.len() == batch {
                drop(sweep);
                freed += self.write_victims(&mut dirty)?;
                match self.begin_sweep() {
                    Some(again) => sweep = again,
                    None => return Ok(freed),
                }
            }
        }
        drop(sweep);
        freed += self.write_victims(&mut dirty)?;
        match held {
            Some(error) if freed == 0 => Err(error),
            _ => Ok(freed),
        }
    }

    /// The right to move the clock hands, unless another provider does.
    fn begin_sweep(&self) -> Option<MutexGuard<'_, ()>> {
        match self.background.has_threads() {
            true => self.background.sweep.try_lock(),
            false => Some(self.background.sweep.lock()),
        }
    }

    /// Gives the frame another chance, or frees it if it is clean.
    fn look_at_victim(&self, shard: &Shard, at: u32) -> Look {
        let frame = self.frames().get(at);
        let id = frame.page_id.load(Ordering::Relaxed);
        if id == NO_PAGE || PageId::from_u64(id).is_in_memory() || frame.is_writing() {
            return Look::Spared;
        }
        // Not counted: of so few hot pages beside many latched ones none would ever go, and no frame become free.
        if frame.latch.is_held() {
            return Look::Spared;
        }
        if !shard.met.is_victim(&frame.usage) {
            return Look::Spared;
        }
        if frame.is_dirty() {
            self.note_dirty_victim();
            if self.try_evict_unwritten(at) {
                return Look::Freed;
            }
            return match self.failing.holds(frame.page().space) {
                Some(error) => Look::Held(error),
                None => Look::Dirty,
            };
        }
        if self.try_evict(at) {
            Look::Freed
        } else {
            Look::Spared
        }
    }

    /// Writes dirty victims, then frees those that nobody has touched meanwhile.
    fn write_victims(&self, dirty: &mut Vec<u32>) -> Result<usize> {
        if dirty.is_empty() {
            return Ok(0);
        }
        if self.free_frames.load(Ordering::Relaxed) < self.background.free.target() {
            self.background.wake_provider();
        }
        let victims = dirty.clone();
        let result = self.write_pages(dirty, false);
        let freed = victims.into_iter().filter(|&at| self.try_evict(at)).count();
        match result.error {
            Some(error) if freed == 0 => Err(error),
            _ => Ok(freed),
        }
    }

    /// Drops a clean page for the caller's own need, if the clock hand meets one soon.
    fn evict_clean(&self, shard: &Shard) -> bool {
        let frames = self.frames().len() as u32;
        (0..CLIENT_SWEEP).any(|_| matches!(self.look_at_victim(shard, shard.next_by_hand(frames)), Look::Freed))
    }

    /// Hands free frames to those who wait for one.
    #[inline]
    pub(crate) fn serve_waiters(&self) {
        self.background.frame_queue.serve(|| self.pop_any_free(0));
    }

    /// Brings a frame when the free lists are empty; may wait for it.
    #[cold]
    pub(crate) fn wait_for_frame(&self, id: PageId) -> Result<u32> {
        let background = &self.background;
        if !background.has_threads() {
            self.counters.add(Counter::FreeWaits);
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
        background.wake_provider();
        if self.evict_clean(self.home_shard(id)) {
            if let Some(at) = self.try_alloc_frame(id) {
                return Ok(at);
            }
        }
        self.counters.add(Counter::FreeWaits);
        self.queue_for_frame()
    }

    fn queue_for_frame(&self) -> Result<u32> {
        let queue = &self.background.frame_queue;
        let mut vain = InVain::since(Instant::now());
        let _waiting = waits::begin(WaitFor::Frame);
        let waiter = queue.join();
        fence(Ordering::SeqCst);
        // What became free before we were in the queue.
        self.serve_waiters();
        let failed = loop {
            let given = waiter.frame.load(Ordering::Acquire);
            if given != NIL {
                return Ok(given);
            }
            if let Err(error) = self.check_poison() {
                break error;
            }
            // The provider may be gone already, and whoever stops it wait for this thread (redo after a restart).
            if self.background.is_stopping() {
                break Error::ShuttingDown;
            }
            if vain.look(Instant::now()) >= PATIENCE {
                break Error::BufferPoolExhausted;
            }
            if waits::is_killed() {
                break Error::Interrupted;
            }
            self.background.wake_provider();
            std::thread::park_timeout(Duration::from_millis(50));
            self.serve_waiters();
        };
        queue.leave(&waiter).ok_or(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_the_queue_keeps_what_it_was_given_and_is_given_no_more() {
        let queue = FrameQueue::default();
        let (first, second, third) = (queue.join(), queue.join(), queue.join());
        let mut free = vec![7];
        queue.serve(|| free.pop());
        assert_eq!((queue.leave(&second), queue.leave(&first)), (None, Some(7)));
        free = vec![9, 8];
        queue.serve(|| free.pop());
        assert_eq!((queue.leave(&third), free), (Some(8), vec![9]));
    }
}
