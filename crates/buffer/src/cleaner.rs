//! The page cleaners keep the checkpoint's age in bounds and take checkpoints.
//!
//! Thresholds of the age (log end minus oldest change not durable in its file), as parts of the log's capacity:
//!
//! | from | writing |
//! |---|---|
//! | 0 | none, but when the log has not grown for a second: everything, at `io_capacity` |
//! | [`AGE_EARLY`] | the oldest pages, at a rate between `io_capacity` and `io_capacity_max` that grows with the age |
//! | [`AGE_LATE`] | the oldest pages, as fast as the device can |
//!
//! How much of the memory is dirty does not matter: the provider writes its victims. To write pages before they are old or
//! leave memory is to write hot ones again and again, and to read for changes that could wait for more of their page.
//! While the log is off its age means nothing: then only the first line holds.

use crate::background::{IDLE, INLINE_ROUNDS, PATIENCE, RETRY_PAUSE};
use crate::config::Level;
use crate::doublewrite::BATCH_PAGES;
use crate::pool::BufferPool;
use crate::stats::Counter;
use myriad_base::{Error, Lsn, Result};
use myriad_log::Admission;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Age at which old pages begin to be written, in 1/16 of the log's capacity.
const AGE_EARLY: u64 = 4;
/// Age from which nothing holds the cleaners back, in 1/16 of the log's capacity.
const AGE_LATE: u64 = 9;
/// Age from which pages that are not in memory are read because of their buffered changes, in 1/16 of the log's capacity. Until then
/// somebody may want them, and they need not be read for that alone.
const AGE_FETCH: u64 = 6;
/// Age from which clients leave the cleaners no pages to read for buffered changes, in 1/16 of the log's capacity.
const AGE_SPARED: u64 = 12;
/// Checkpoints are at least this far apart (1/64 of the log's capacity), unless the log is short or idle.
const CHECKPOINT_STEP: u64 = 64;
/// Pages a cleaner writes before it looks around again.
pub(crate) const CLEANER_PAGES: usize = BATCH_PAGES;

/// What a look at the checkpoint's age says.
struct Duty {
    /// Pages changed before this are to be written; `None`: nothing to do.
    limit: Option<Lsn>,
    /// Pages a second, or `None` for as fast as possible.
    rate: Option<u64>,
}

impl BufferPool {
    // ---- Before a mini-transaction

    /// Checks that a mini-transaction may begin, wakes the cleaners if the log has grown enough, and waits for room in
    /// the log.
    #[inline]
    pub(crate) fn before_mtr(&self) -> Result<Admission<'_>> {
        self.check_poison()?;
        if self.log().end_lsn().0 >= self.background.wake_lsn.load(Ordering::Relaxed) {
            self.age_pressure()?;
        }
        self.heed_log(self.log().reserve_check())
    }

    /// As [`BufferPool::before_mtr`], for one that ends a transaction: it waits for nobody's pages.
    pub(crate) fn before_end_mtr(&self) -> Result<()> {
        self.check_poison()?;
        self.heed_log(self.log().reserve_end())
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
            let age = end.0 - self.oldest_change().0.min(end.0);
            if self.log().is_off() || age < capacity / 16 * AGE_EARLY {
                break;
            }
            self.redo_if_started();
            let _all_written = self.write_all_victims();
            let limit = Lsn(end.0 - capacity / 16 * (AGE_EARLY / 2));
            self.failing.forget_unreadable();
            self.merge_old(limit, CLEANER_PAGES);
            if age >= capacity / 16 * AGE_LATE {
                self.carry_forward(limit)?;
            }
            self.write_oldest(limit, CLEANER_PAGES, false)?;
        }
        self.take_checkpoint()?;
        self.set_wake_lsn();
        Ok(())
    }

    /// Gives the log of `dir` a ring of another size, and cleans for that from then on.
    ///
    /// # Errors
    /// Those of [`myriad_log::Log::resize`] and of [`BufferPool::checkpoint_now`].
    pub fn resize_log(&self, dir: &Path, bytes: u64) -> Result<()> {
        self.log().resize(&self.io, dir, bytes, &|| self.checkpoint_now())?;
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
    pub(crate) fn oldest_change(&self) -> Lsn {
        // In this order. What is appended after the first look is no older than its result; a page that recovery redoes is put on its
        // dirty list before its records go, and one that leaves memory unwritten is noted by the change buffer before it goes from the
        // list. What the change buffer notes of a page stays until that is written.
        let mut oldest = self.log().contiguous_lsn();
        if let Some(lsn) = self.pending.oldest() {
            oldest = oldest.min(lsn);
        }
        for shard in &self.shards {
            if let Some(lsn) = shard.dirty().oldest(self.frames()) {
                oldest = oldest.min(lsn);
            }
        }
        self.changes.oldest().map_or(oldest, |lsn| oldest.min(lsn))
    }

    /// Bytes of log since the last checkpoint.
    pub(crate) fn checkpoint_age(&self) -> u64 {
        self.log().end_lsn().0.saturating_sub(self.background.last_checkpoint().0)
    }

    /// How much work the cleaners had better be spared, in 1/256: none up to [`AGE_LATE`], all from [`AGE_SPARED`] on. By the
    /// last checkpoint, which is cheap to ask for.
    pub(crate) fn hurry(&self) -> u64 {
        if self.log().is_off() {
            return 0;
        }
        let step = (self.log().capacity() / 16).max(1);
        let over = self.checkpoint_age().saturating_sub(step * AGE_LATE);
        (over * 256 / (step * (AGE_SPARED - AGE_LATE))).min(256)
    }

    /// From here on changes are younger than `age`, in 1/16 of the log's capacity.
    fn younger_than(&self, age: u64) -> Lsn {
        Lsn(self.log().end_lsn().0.saturating_sub(self.log().capacity() / 16 * age))
    }

    /// From here on changes are younger than [`AGE_EARLY`].
    pub(crate) fn early_limit(&self) -> Lsn {
        self.younger_than(AGE_EARLY)
    }

    /// Of pages that are not in memory those with changes before this are to be read, if those in memory changed before `limit` are to be
    /// written.
    pub(crate) fn fetch_limit(&self, limit: Lsn) -> Lsn {
        if limit == Lsn(u64::MAX) {
            return limit;
        }
        limit.min(self.younger_than(AGE_FETCH))
    }

    fn cleaner_duty(&self) -> Duty {
        let step = (self.log().capacity() / 16).max(1);
        let end = self.log().end_lsn().0;
        let age = end.saturating_sub(self.oldest_change().0);
        let (early, late) = (step * AGE_EARLY, step * AGE_LATE);
        let normal = self.background.io_capacity.load(Ordering::Relaxed);
        let max = self.background.io_capacity_max.load(Ordering::Relaxed).max(normal);
        let bounded = !self.log().is_off();
        if bounded && age >= late {
            return Duty { limit: Some(Lsn(end - early)), rate: None };
        }
        if bounded && age >= early {
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
        Duty { limit: None, rate: None }
    }

    /// One turn of a cleaner; how long it may sleep then.
    pub(crate) fn cleaner_turn(&self) -> Duration {
        self.tell_of_long_waits();
        if self.check_poison().is_err() {
            return IDLE;
        }
        let pause = self.clean();
        if self.try_failing() {
            return pause.min(RETRY_PAUSE);
        }
        pause
    }

    fn clean(&self) -> Duration {
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
        // When nothing presses everything is written: what was read for that is not to leave again before.
        let _all_written = (limit == Lsn(u64::MAX)).then(|| self.write_all_victims());
        let merged = self.merge_in_turn(limit);
        // First: behind those that cannot be written there may be others.
        let carried = if duty.rate.is_none() { self.carry_forward(limit) } else { Ok(0) };
        let wrote = match carried {
            Ok(0) => self.write_oldest(limit, CLEANER_PAGES, false).map(|written| written.max(merged)),
            carried => carried,
        };
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
    pub(crate) fn write_oldest(&self, limit: Lsn, max: usize, wait: bool) -> Result<usize> {
        let mut frames = Vec::with_capacity(max);
        self.collect_noted(limit, max, &mut frames);
        let each = (max - frames.len()).div_ceil(self.shards.len());
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

    /// Frames of up to `max` pages of which the change buffer notes that they were changed before `limit`.
    pub(crate) fn collect_noted(&self, limit: Lsn, max: usize, frames: &mut Vec<u32>) {
        let noted = self.changes.old_pages(limit, max, true, |_| true);
        frames.extend(noted.into_iter().filter_map(|id| self.frame_of(id)));
        frames.sort_unstable();
        frames.dedup();
    }

    pub(crate) fn wait_for_batch(&self, at_most: Duration) {
        if self.background.has_threads() {
            self.background.wait_for_batch(at_most);
        }
    }

    // ---- Checkpoints

    fn take_checkpoint_if_due(&self, idle: bool) -> Result<()> {
        let oldest = self.oldest_change().0;
        let gain = oldest.saturating_sub(self.background.last_checkpoint().0);
        let capacity = self.log().capacity();
        let short = self.checkpoint_age() > capacity / 16 * AGE_LATE;
        let step = capacity / if short { CHECKPOINT_STEP * 4 } else { CHECKPOINT_STEP };
        // A copy of the log that is late is given up for want of room alone.
        let may_go = short || self.log().is_copied(Lsn(oldest));
        if gain > 0 && (idle || gain >= step) && may_go {
            self.take_checkpoint()?;
        }
        Ok(())
    }

    /// Takes a checkpoint at the oldest change that is not durable in its file; false when that gains nothing.
    pub(crate) fn take_checkpoint(&self) -> Result<bool> {
        let _one = self.background.checkpoint.lock();
        let lsn = self.oldest_change();
        // A log that was off waits for its first checkpoint, even at an LSN that was one in memory.
        let resuming = !self.log().is_off() && self.log().is_unlogged();
        if lsn <= self.background.last_checkpoint() && !resuming {
            return Ok(false);
        }
        self.check_poison()?;
        // Asked for after `lsn` is known: what freed pages, whose changes hold it back no more, has been noted before.
        self.log().flush_to(lsn.max(self.changes.freed_until()))?;
        // Likewise, whose records hold it back no more.
        self.log().checkpoint(lsn, &self.spaces().missed_note())?;
        self.background.set_last_checkpoint(lsn);
        self.counters.add(Counter::Checkpoints);
        if let Some(doublewrite) = &self.doublewrite {
            if self.pending.len() == 0 && lsn >= self.pending.recovered_end() {
                doublewrite.forget_copies();
            }
        }
        Ok(true)
    }

    /// Finishes redo, makes all buffered changes, writes every page changed so far and takes a checkpoint; waits. After it, with no change since,
    /// the log has nothing to redo. The caller holds no latch. Reports progress when it takes long.
    ///
    /// # Errors
    /// When the log fails, or writes have kept failing for 30 s.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.check_poison()?;
        self.redo_all();
        let _all_written = self.write_all_victims();
        let target = self.log().end_lsn();
        self.merge_all(target);
        self.write_and_checkpoint(target)
    }

    /// As [`BufferPool::checkpoint_now`], for a stop that is not to take long: where more pages would have to be read for their changes
    /// than `io_capacity_max` allows in a second, they are left to the next start, and with them the log. Returns how many.
    ///
    /// # Errors
    /// As [`BufferPool::checkpoint_now`].
    pub fn checkpoint_at_stop(&self) -> Result<usize> {
        let unread = self.pending.len() + self.changes.pages();
        if unread as u64 <= self.background.io_capacity_max.load(Ordering::Relaxed) {
            return self.checkpoint_now().map(|()| 0);
        }
        self.check_poison()?;
        let _all_written = self.write_all_victims();
        self.write_and_checkpoint(self.log().end_lsn()).map(|()| unread)
    }

    /// Writes every page in memory that was changed before `target` and takes a checkpoint; waits.
    fn write_and_checkpoint(&self, target: Lsn) -> Result<()> {
        let start = Instant::now();
        let mut last_progress = start;
        let mut last_report = start;
        let mut idle_rounds = 0;
        while self.oldest_in_memory().is_some_and(|oldest| oldest < target) {
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

    fn oldest_in_memory(&self) -> Option<Lsn> {
        let on_lists = self.shards.iter().filter_map(|s| s.dirty().oldest(self.frames()));
        on_lists.chain(self.changes.oldest_in_memory()).min()
    }
}
