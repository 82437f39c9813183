//! Checkpoints, and how appenders are slowed down when the log fills.

use crate::header::BLOCK;
use crate::log::Log;
use crate::CapacityHook;
use myriad_base::limits::CHECKPOINT_BYTES_MAX;
use myriad_base::waits::{self, InVain, WaitFor};
use myriad_base::{Error, Lsn, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest delay of one appender while the log is between the soft and the hard limit.
const DELAY_MAX: Duration = Duration::from_millis(4);
/// How long an appender waits for a checkpoint at the hard limit before it is told.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes that a mini-transaction is taken to append when it is counted, at most; few append more.
const SHARE_MAX: u64 = 80 << 10;
/// Mini-transactions that the room above the soft limit is to hold without being counted.
const UNCOUNTED: u64 = 512;
/// Pause of one that finds the room taken by others who are under way.
const PAUSE: Duration = Duration::from_millis(1);
const ETIMEDOUT: i32 = 110;

/// Leave to append, from [`Log::reserve_check`]: to be kept until that is done.
#[must_use]
pub struct Admission<'a>(Option<&'a Log>);

impl Admission<'_> {
    /// For who appends nothing.
    pub const NONE: Admission<'static> = Admission(None);
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(log) = self.0 {
            log.admitted.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Log {
    /// Bytes of log between checkpoint and end at which appenders are stopped. The rest of the ring is for those already
    /// past [`Log::reserve_check`].
    pub fn capacity(&self) -> u64 {
        let bytes = self.appender_capacity.load(Ordering::Relaxed);
        bytes - bytes / 8
    }

    /// Size of the file's ring, in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.file_capacity.load(Ordering::Relaxed)
    }

    /// Age from which appenders are slowed down.
    fn soft_limit(&self) -> u64 {
        let bytes = self.appender_capacity.load(Ordering::Relaxed);
        bytes - bytes / 4
    }

    /// Whether appenders are slowed down or stopped.
    pub fn is_short(&self) -> bool {
        !self.is_off() && self.age() >= self.soft_limit()
    }

    /// Bytes between the last checkpoint and the end.
    pub fn age(&self) -> u64 {
        self.end_lsn().0.saturating_sub(self.checkpoint_lsn.load(Ordering::Acquire))
    }

    /// Nothing may be written at or after this: it would overwrite the block the checkpoint lies in.
    pub(crate) fn write_limit(&self) -> u64 {
        let checkpoint = self.checkpoint_lsn.load(Ordering::Acquire);
        checkpoint - checkpoint % BLOCK + self.file_capacity.load(Ordering::Relaxed)
    }

    /// What ends after this cannot be written, nor become durable, before the next checkpoint.
    pub fn writable_end(&self) -> Lsn {
        Lsn(if self.is_off() { u64::MAX } else { self.write_limit() })
    }

    /// What one mini-transaction is counted with.
    fn share(&self) -> u64 {
        (self.appender_capacity.load(Ordering::Relaxed) / 16).min(SHARE_MAX)
    }

    /// Called under `header`'s lock once there are appenders.
    pub(crate) fn set_throttle(&self) {
        let bytes = self.appender_capacity.load(Ordering::Relaxed);
        let counted = bytes.saturating_sub(UNCOUNTED * self.share());
        let at = self.checkpoint_lsn.load(Ordering::Acquire) + self.soft_limit().min(counted);
        self.throttle_at.store(if self.is_off() { u64::MAX } else { at }, Ordering::Release);
    }

    /// Who is asked for a checkpoint when room is short.
    pub fn set_capacity_hook(&self, hook: CapacityHook) {
        *self.hook.write() = Some(Arc::new(hook));
    }

    /// To be called at the start of a mini-transaction, with no latch held: slows the caller down, more and more, when
    /// the log fills, and stops it when it is full, until a checkpoint makes room. Two loads when there is room.
    ///
    /// Where the room is little, those who have it and have not appended yet are counted, so that together they stay
    /// within the file: of a page whose newest change found no room there, the oldest would keep the checkpoint for ever.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::Io`] (`ETIMEDOUT`) when no checkpoint made room for a minute.
    #[inline]
    pub fn reserve_check(&self) -> Result<Admission<'_>> {
        if self.slots.end_relaxed() < self.throttle_at.load(Ordering::Relaxed) {
            return Ok(Admission(None));
        }
        self.throttle()
    }

    #[cold]
    fn throttle(&self) -> Result<Admission<'_>> {
        self.check_poison()?;
        if self.is_off() {
            return Ok(Admission(None));
        }
        let (soft, hard) = (self.soft_limit(), self.capacity());
        let age = self.age();
        if (soft..hard).contains(&age) {
            self.counters.capacity_waits.fetch_add(1, Ordering::Relaxed);
            self.ask_for_room(DELAY_MAX.mul_f64((age - soft) as f64 / (hard - soft) as f64));
        }
        if let Some(admission) = self.admit() {
            return self.check_poison().map(|()| admission);
        }
        self.counters.capacity_waits.fetch_add(1, Ordering::Relaxed);
        let _waiting = waits::begin(WaitFor::LogRoom);
        let mut checkpoint = self.checkpoint_lsn.load(Ordering::Acquire);
        let mut vain = InVain::since(Instant::now());
        loop {
            self.check_awaited()?;
            if self.is_off() {
                return Ok(Admission(None));
            }
            if self.age() >= hard {
                self.ask_for_room(Duration::from_millis(20));
            } else {
                self.room_made.wait_for(&mut self.room.lock(), PAUSE);
            }
            if let Some(admission) = self.admit() {
                return self.check_poison().map(|()| admission);
            }
            let now = self.checkpoint_lsn.load(Ordering::Acquire);
            if now != checkpoint {
                (checkpoint, vain) = (now, InVain::since(Instant::now()));
            }
            if vain.look(Instant::now()) > WAIT_MAX {
                let path = self.path();
                return Err(Error::io("waiting for a checkpoint", path, ETIMEDOUT));
            }
        }
    }

    /// As [`Log::reserve_check`] for who cannot wait, because it is he who makes room, and appends `bytes` at most: `None` if there
    /// is none. He has what is left where appenders are stopped.
    pub fn reserve_if_room(&self, bytes: u64) -> Option<Admission<'_>> {
        if self.slots.end_relaxed() < self.throttle_at.load(Ordering::Relaxed) {
            return Some(Admission(None));
        }
        self.admit_below(self.room(), bytes)
    }

    /// As [`Log::reserve_check`], for the few bytes that end a transaction, which are not counted. Its end may have been decided elsewhere (in the
    /// binary log) and cannot be refused, so it does not wait for others' pages: there is room kept for it. Should that be used
    /// up, too, it waits for a checkpoint, without a limit but [`Log::refuse`].
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    #[inline]
    pub fn reserve_end(&self) -> Result<()> {
        let mut waiting = None;
        while self.slots.end_relaxed() >= self.throttle_at.load(Ordering::Relaxed) {
            self.check_awaited()?;
            // The other half is for those who look at the same time.
            if self.is_off() || self.age() < self.room() + self.kept() / 2 {
                break;
            }
            waiting.get_or_insert_with(|| waits::begin(WaitFor::LogRoom));
            self.ask_for_room(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Bytes of the ring that only ends of transactions may use.
    fn kept(&self) -> u64 {
        self.appender_capacity.load(Ordering::Relaxed) / 64
    }

    /// Bytes of the ring for all others. The checkpoint's block is never overwritten.
    fn room(&self) -> u64 {
        self.appender_capacity.load(Ordering::Relaxed) - BLOCK - self.kept()
    }

    /// Counts an appender in, if the file has room for all who are.
    pub(crate) fn admit(&self) -> Option<Admission<'_>> {
        self.admit_below(self.capacity(), self.share())
    }

    /// Counts one in that appends `bytes`, if the age is below `limit` and the file has room for all who are in.
    fn admit_below(&self, limit: u64, bytes: u64) -> Option<Admission<'_>> {
        let others = self.admitted.fetch_add(1, Ordering::AcqRel);
        let admission = Admission(Some(self));
        // Looked at after the count: whoever is no longer in it has appended.
        let age = self.age();
        let fits = age < limit && age + others * self.share() + bytes <= self.room();
        fits.then_some(admission)
    }

    /// Asks for a checkpoint and waits for the next one, `at_most` so long.
    pub(crate) fn ask_for_room(&self, at_most: Duration) {
        let before = self.checkpoint_lsn.load(Ordering::Acquire);
        let hook = self.hook.read().clone();
        if let Some(hook) = hook {
            hook(self.age(), self.capacity());
        }
        let mut room = self.room.lock();
        if self.checkpoint_lsn.load(Ordering::Acquire) == before && self.check_poison().is_ok() {
            self.room_made.wait_for(&mut room, at_most);
        }
    }

    /// Makes a checkpoint durable: recovery will begin at `lsn`, and what precedes it may be overwritten. The caller
    /// answers for every change before `lsn` being durable in the data files. `lsn` must be a frame's start, such as
    /// [`Log::contiguous_lsn`] or a `start` given to `while_open`; one before the last checkpoint is taken as that one.
    /// While the log is off, and for an LSN before it was resumed, nothing is written.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::TooLong`] for a payload of more than 1 KiB.
    pub fn checkpoint(&self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if payload.len() > CHECKPOINT_BYTES_MAX {
            return Err(Error::TooLong { what: "checkpoint payload", len: payload.len(), max: CHECKPOINT_BYTES_MAX });
        }
        self.flush_to(lsn)?;
        let mut header = self.header_for_checkpoint(lsn);
        self.check_poison()?;
        if header.unlogged && (self.is_off() || lsn.0 < self.resumed_from.load(Ordering::Acquire)) {
            self.checkpoint_lsn.fetch_max(lsn.0, Ordering::AcqRel);
            return Ok(());
        }
        let mut next = header.next();
        next.unlogged = false;
        next.checkpoint = lsn.0.max(header.checkpoint);
        next.payload = payload.to_vec();
        next.trim_generations();
        self.must(self.file().write_header(&next))?;
        self.checkpoint_lsn.store(next.checkpoint, Ordering::Release);
        *header = next;
        self.set_throttle();
        drop(header);
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        let _room = self.room.lock();
        self.room_made.notify_all();
        Ok(())
    }

    /// The last checkpoint: its LSN and payload. While the log is off, where it would be.
    pub fn last_checkpoint(&self) -> (Lsn, Vec<u8>) {
        let header = self.header.lock();
        (Lsn(self.checkpoint_lsn.load(Ordering::Acquire)), header.payload.clone())
    }
}
