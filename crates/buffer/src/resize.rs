//! Changing the number of frames while the pool is in use: when its size is set, and as buffered changes take memory from
//! the pool and give it back.
//!
//! Growing: frames are added at the end, the page table gets more buckets, the frames go to the free lists. Shrinking goes on
//! in the background: frames beyond the new end are no longer handed out, and the page provider empties them, by writing
//! what is dirty, whoever uses them; each that is empty is *retired*. When all are, their memory is given back. Until then
//! another size may be set: the end moves, and frames before it that are retired already become free again. Partitions stay as
//! many as they were.

use crate::background::INLINE_ROUNDS;
use crate::config::{Level, PoolConfig};
use crate::doublewrite::BATCH_PAGES;
use crate::frame::NO_PAGE;
use crate::pool::BufferPool;
use crate::shard::RUN_FRAMES;
use crate::usage::USAGE_COLD;
use myriad_base::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Memory is lent to buffered changes in such parts of the pool, at most [`LEND_BYTES`]: a huge page, which gives back what
/// it holds only as a whole.
const LEND_PARTS: usize = 64;
const LEND_BYTES: usize = 2 << 20;

/// The state of a change of size.
pub(crate) struct Resize {
    /// The pool's size as it was set, in frames. Those that are not there are lent to buffered changes.
    size: AtomicUsize,
    /// Frames from this number on are not handed out; it is the number of frames but while they become fewer.
    limit: AtomicU32,
    /// Frames beyond the limit that are neither in use nor free. Whoever finds as many as there are, with `hand` locked, knows
    /// that all of them are marked.
    retired: AtomicUsize,
    /// The next frame to empty. The lock is held by whoever changes the number of frames or empties frames.
    hand: Mutex<u32>,
    /// The size last reported.
    reported: AtomicUsize,
}

impl Resize {
    pub fn new(frames: usize) -> Resize {
        Resize {
            size: AtomicUsize::new(frames),
            limit: AtomicU32::new(frames as u32),
            retired: AtomicUsize::new(0),
            hand: Mutex::new(0),
            reported: AtomicUsize::new(frames),
        }
    }
}

impl BufferPool {
    pub(crate) fn limit(&self) -> u32 {
        self.resize.limit.load(Ordering::Acquire)
    }

    fn is_shrinking(&self) -> bool {
        (self.limit() as usize) < self.frames().len()
    }

    /// Whether an empty frame must not be used again; then it counts as retired.
    #[inline]
    pub(crate) fn retire_if_beyond(&self, at: u32) -> bool {
        at >= self.limit() && self.retire(at)
    }

    /// Retires an empty frame; false if the limit has been raised beyond it meanwhile: then it is the caller's still.
    #[cold]
    fn retire(&self, at: u32) -> bool {
        let frame = self.frames().get(at);
        frame.mark_retired();
        // Either this sees the limit raised, or who raised it saw the mark and has freed the frame, and takes it off the count,
        // to which it is added below.
        if at < self.resize.limit.load(Ordering::SeqCst) && frame.take_retired() {
            return false;
        }
        self.resize.retired.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Moves the limit up to `to`, not beyond the frames that have memory, and frees the frames before it that were retired.
    fn raise_limit(&self, to: usize) {
        let from = self.resize.limit.swap(to as u32, Ordering::SeqCst);
        self.background.free.set(to);
        for at in from..to as u32 {
            if self.frames().get(at).take_retired() {
                self.resize.retired.fetch_sub(1, Ordering::AcqRel);
                self.free_frame(at);
            }
        }
    }

    /// The pool's size as it was set, in frames.
    pub fn size(&self) -> usize {
        self.resize.size.load(Ordering::Acquire)
    }

    /// Fewest frames that there may be.
    fn frames_min(&self) -> usize {
        PoolConfig::FRAMES_MIN.max(self.shards.len() * RUN_FRAMES as usize)
    }

    /// The number of frames that there should be: the pool's size without what buffered changes hold, in whole parts.
    fn frames_wanted(&self) -> usize {
        let size = self.size();
        let part = (size / LEND_PARTS).min(LEND_BYTES / self.page_size()).max(1);
        let held = self.changes.bytes() / self.page_size() / part * part;
        let wanted = size.saturating_sub(held).max(self.frames_min());
        let now = self.limit() as usize;
        // A part that is about to be lent again is not worth taking back.
        if now < wanted && wanted < size && wanted - now <= part {
            now
        } else {
            wanted
        }
    }

    /// Whether the number of frames is to change because of what buffered changes hold.
    pub(crate) fn wants_other_frames(&self) -> bool {
        self.frames_wanted() != self.limit() as usize
    }

    /// The size that the pool is on the way to, and the frames still in use beyond it; `None` when its size is not being
    /// reduced.
    pub(crate) fn shrinking_to(&self) -> Option<(usize, usize)> {
        let (size, len) = (self.size(), self.frames().len());
        let retired = || self.resize.retired.load(Ordering::Acquire);
        let beyond = || len.saturating_sub(self.limit() as usize).saturating_sub(retired());
        (size < len).then(|| (size, beyond()))
    }

    /// The number of frames that `bytes` make.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason when [`BufferPool::resize`] would refuse that size now.
    pub fn check_size(&self, bytes: usize) -> Result<usize> {
        let (size, frames) = (self.page_size(), bytes / self.page_size());
        let least = self.frames_min();
        if frames < least {
            return Err(Error::invalid(format!(
                "a buffer pool of {bytes} bytes is too small: {} partitions take at least {}",
                self.shards.len(),
                least * size
            )));
        }
        if self.memory.held() > frames / 4 * 3 {
            return Err(Error::invalid(format!(
                "a buffer pool of {bytes} bytes is too small: in-memory tables hold {} bytes, and may hold three quarters",
                self.memory.held() * size
            )));
        }
        if frames > self.frames().max() {
            return Err(Error::invalid(format!(
                "a buffer pool of {bytes} bytes is more than the {} that were reserved at the start (the machine's memory): \
                 set it in the configuration file and restart",
                self.frames().max() * size
            )));
        }
        Ok(frames)
    }

    /// Changes the pool's memory. Growth is complete when this returns; reduction goes on in the background, until another size
    /// is set.
    ///
    /// # Errors
    /// As [`BufferPool::check_size`]; [`Error::Io`] when the system gives no memory; without background threads
    /// [`Error::BufferPoolExhausted`] when frames beyond the new size stay in use (the pool keeps its size then). On an
    /// error nothing has changed.
    pub fn resize(&self, bytes: usize) -> Result<()> {
        let mut hand = self.resize.hand.lock();
        let to = self.check_size(bytes)?;
        let (size, frames) = (self.resize.size.swap(to, Ordering::AcqRel), self.frames().len());
        if let Err(error) = self.adjust(&mut hand) {
            self.resize.size.store(size, Ordering::Release);
            return Err(error);
        }
        if self.background.has_threads() {
            drop(hand);
            self.background.wake_provider();
            return Ok(());
        }
        let mut vain = 0;
        while self.is_shrinking() {
            // Pages of in-memory tables move to frames that are free. What fails here fails below, if it is in the way.
            let _ = self.provide();
            let emptied = match vain {
                INLINE_ROUNDS => Err(Error::BufferPoolExhausted),
                _ => self.empty_some(&mut hand, usize::MAX),
            };
            match emptied {
                Ok(0) => vain += 1,
                Ok(_) => vain = 0,
                Err(error) => {
                    self.resize.size.store(size, Ordering::Release);
                    self.raise_limit(frames);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Makes the number of frames what it should be, or begins to.
    fn adjust(&self, hand: &mut u32) -> Result<()> {
        let (len, limit, to) = (self.frames().len(), self.limit() as usize, self.frames_wanted());
        if to != limit {
            *hand = to as u32;
        }
        if to < limit {
            self.background.free.set(to);
            self.resize.limit.store(to as u32, Ordering::SeqCst);
        } else if to > limit {
            self.raise_limit(to.min(len));
        }
        if to > len {
            self.grow_to(len, to)?;
        }
        self.report_size();
        Ok(())
    }

    fn grow_to(&self, from: usize, to: usize) -> Result<()> {
        self.frames().grow(to)?;
        self.table().grow(self.frames(), to);
        self.background.free.set(to);
        self.resize.limit.store(to as u32, Ordering::SeqCst);
        for at in from as u32..to as u32 {
            // Those that had memory before were retired when they lost it.
            self.frames().get(at).take_retired();
            self.free_frame(at);
        }
        Ok(())
    }

    /// A provider's part in changing the number of frames: `None` when there is nothing to do or another one does it, else
    /// how long to wait before the next part.
    pub(crate) fn resize_turn(&self) -> Option<Duration> {
        if !self.is_shrinking() && !self.wants_other_frames() {
            return None;
        }
        let mut hand = self.resize.hand.try_lock()?;
        if self.adjust(&mut hand).is_err() {
            return Some(crate::background::RETRY_PAUSE);
        }
        if !self.is_shrinking() {
            return None;
        }
        Some(match self.empty_some(&mut hand, BATCH_PAGES) {
            Ok(0) => Duration::from_millis(5),
            Ok(_) => Duration::ZERO,
            Err(_) => crate::background::RETRY_PAUSE,
        })
    }

    /// Empties frames beyond the limit, until it has met `max` dirty ones or has been round once. Returns how many it
    /// emptied.
    fn empty_some(&self, hand: &mut u32, max: usize) -> Result<usize> {
        let (limit, len) = (self.limit(), self.frames().len() as u32);
        let retire = |at| self.frames().get(at).mark_retired();
        let drained: usize = self.shards.iter().map(|shard| shard.drain_free(limit, retire)).sum();
        self.free_frames.fetch_sub(drained, Ordering::AcqRel);
        self.resize.retired.fetch_add(drained, Ordering::AcqRel);
        let mut emptied = drained;
        let mut dirty = Vec::new();
        for _ in limit..len {
            if dirty.len() >= max {
                break;
            }
            let at = *hand;
            *hand = if at + 1 < len { at + 1 } else { limit };
            let frame = self.frames().get(at);
            if frame.page_id.load(Ordering::Acquire) == NO_PAGE {
                continue;
            }
            if frame.is_dirty() {
                dirty.push(at);
            } else {
                emptied += usize::from(self.evict_whoever_uses_it(at));
            }
        }
        let victims = dirty.clone();
        let result = self.write_pages(&mut dirty, false);
        emptied += victims.into_iter().filter(|&at| self.evict_whoever_uses_it(at)).count();
        if self.resize.retired.load(Ordering::Acquire) == (len - limit) as usize {
            self.resize.retired.fetch_sub((len - limit) as usize, Ordering::AcqRel);
            self.frames().shrink(limit as usize);
            self.report_size();
        }
        match result.error {
            Some(error) if emptied == 0 => Err(error),
            _ => Ok(emptied),
        }
    }

    fn evict_whoever_uses_it(&self, at: u32) -> bool {
        self.frames().get(at).usage.store(USAGE_COLD, Ordering::Relaxed);
        self.try_evict(at) || self.move_memory_page(at)
    }

    /// Reports a size that was set and is reached.
    fn report_size(&self) {
        let size = self.size();
        if self.is_shrinking() || self.frames().len() > size {
            return;
        }
        let before = self.resize.reported.swap(size, Ordering::Relaxed);
        if before != size {
            let (now, before) = (size * self.page_size(), before * self.page_size());
            self.report(Level::Info, &format!("the buffer pool has {now} bytes now, before it had {before}"));
        }
    }
}
