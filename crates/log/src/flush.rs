//! Writing and syncing: a leader does both for all who wait.
//!
//! A thread that finds no leader becomes one: it writes everything contiguous and syncs. Others queue up with the LSN
//! they wait for. A leader that is done wakes those it served and makes the first of the others the next leader, so the
//! device is never idle while somebody waits, and each sync serves all who came during the one before.
//!
//! Who need not wait itself leaves a call instead (see `calls.rs`).
//!
//! Where the file is full a leader syncs what is written and hands on: what a checkpoint needs is never behind somebody who
//! waits for that checkpoint.

use crate::header::{BLOCK, RING_START};
use crate::log::Log;
use crate::waiters::{MayLead, Next};
use myriad_base::latch::{lock_counted, thread_no, LatchClass};
use myriad_base::waits::{self, InVain, WaitFor};
use myriad_base::{Lsn, Result};
use myriad_io::AlignedBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Bytes that one write takes at most.
const STAGING_BYTES: usize = 1 << 20;
/// How long a write may wait for a checkpoint to make room before the log gives up, not counting what a device or a stopped process
/// takes. Appenders are slowed down and stopped long before this can happen.
const CHECKPOINT_WAIT_MAX: Duration = Duration::from_secs(60);

/// What is needed to write; its latch orders the writes.
pub(crate) struct Writer {
    /// What is written is copied here first: blocks are padded here, and the ring is free for others at once.
    staging: AlignedBuf,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { staging: AlignedBuf::new(STAGING_BYTES) }
    }
}

pub(crate) const WAITING: u32 = 0;
const SERVED: u32 = 1;
pub(crate) const LEAD: u32 = 2;

/// A thread that can be put to sleep.
pub(crate) struct Parker {
    state: AtomicU32,
    thread: Thread,
}

impl Parker {
    /// For the calling thread.
    pub(crate) fn new() -> Parker {
        Parker { state: AtomicU32::new(WAITING), thread: std::thread::current() }
    }

    pub(crate) fn wake(&self, told: u32) {
        self.state.store(told, Ordering::Release);
        self.thread.unpark();
    }

    /// Makes the thread look again.
    pub(crate) fn unpark(&self) {
        self.thread.unpark();
    }

    /// What it has been told since it was last asked.
    pub(crate) fn told(&self) -> u32 {
        self.state.swap(WAITING, Ordering::AcqRel)
    }

    /// Sleeps until it is told something.
    fn wait(&self) -> u32 {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => std::thread::park(),
                told => return told,
            }
        }
    }
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::new(Parker::new());
}

/// Somebody to be told that the log is durable up to some point.
pub(crate) enum Waiter {
    Thread(Arc<Parker>),
    Call { since: Instant, call: Box<dyn FnOnce(bool) + Send> },
}

impl MayLead for Waiter {
    fn may_lead(&self) -> bool {
        matches!(self, Waiter::Thread(_))
    }
}

impl Log {
    /// Writes what is contiguous and not yet written; the new end of what is written. Nothing is written beyond the room
    /// that the checkpoint leaves. While the log is off what is contiguous counts as written.
    pub(crate) fn write_some(&self) -> Result<u64> {
        let mut writer = lock_counted(&self.writer, LatchClass::LogWrite.part(0));
        let written = self.written.load(Ordering::Acquire);
        let off = self.is_off();
        let contiguous = self.contiguous_lsn().0;
        let limit = if off { contiguous } else { contiguous.min(self.write_limit()) };
        // After the slots were read: an appender that failed poisons the log before it leaves its slot, so that what it
        // did not copy cannot be taken for contiguous.
        self.check_poison()?;
        if limit <= written {
            return Ok(written);
        }
        if off {
            self.written.store(limit, Ordering::Release);
            return Ok(limit);
        }
        let (file, capacity) = (self.file(), self.file_capacity.load(Ordering::Relaxed));
        let mut at = written - written % BLOCK;
        while at < limit {
            let to_ring_end = capacity - at % capacity;
            let end = limit.min(at + to_ring_end.min(STAGING_BYTES as u64));
            let len = (end - at) as usize;
            let padded = len.next_multiple_of(BLOCK as usize);
            // SAFETY: the range is contiguous, so nobody writes it, and not yet written, so nobody reserves its bytes.
            unsafe { self.ring.read(at, &mut writer.staging[..len]) };
            writer.staging[len..padded].fill(0);
            self.must(file.file.write_at(&writer.staging[..padded], RING_START + at % capacity))?;
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            self.counters.written_bytes.fetch_add(padded as u64, Ordering::Relaxed);
            self.written.store(end, Ordering::Release);
            at = end;
        }
        Ok(limit)
    }

    /// Makes everything before `lsn` reach the operating system: it survives the end of the process.
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`] if that failed, now or before.
    pub fn write_to(&self, lsn: Lsn) -> Result<()> {
        assert!(lsn <= self.end_lsn(), "what has not been appended cannot be written");
        let mut patience = self.patience();
        while self.write_towards(lsn)? < lsn.0 {
            patience.wait_for_room()?;
        }
        self.check_poison()
    }

    /// Writes everything before `lsn`, or as much of it as the file has room for; the end of what is written.
    fn write_towards(&self, lsn: Lsn) -> Result<u64> {
        let mut patience = self.patience();
        loop {
            let before = self.written.load(Ordering::Acquire);
            if before >= lsn.0 {
                return Ok(before);
            }
            if self.write_some()? == before {
                if self.is_full() {
                    return Ok(before);
                }
                patience.wait_for_copies()?;
            }
        }
    }

    /// Whether nothing can be written before a checkpoint makes room.
    fn is_full(&self) -> bool {
        !self.is_off() && self.written.load(Ordering::Acquire) >= self.write_limit()
    }

    /// Makes everything before `lsn` durable. One load when it is.
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`] if that failed, now or before.
    #[inline]
    pub fn flush_to(&self, lsn: Lsn) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= lsn.0 {
            return Ok(());
        }
        self.flush_slowly(lsn)
    }

    fn flush_slowly(&self, lsn: Lsn) -> Result<()> {
        assert!(lsn <= self.end_lsn(), "what has not been appended cannot be flushed");
        if self.is_off() && self.pass_unwritten(lsn)? {
            return self.check_poison();
        }
        self.counters.flush_waits.fetch_add(1, Ordering::Relaxed);
        let _waiting = waits::begin(WaitFor::LogSync);
        let parker = PARKER.with(Arc::clone);
        let mut patience = self.patience();
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn.0 {
                return Ok(());
            }
            self.check_poison()?;
            parker.state.store(WAITING, Ordering::Relaxed);
            let told = match self.waiters.lead_or_join(thread_no(), lsn.0, Waiter::Thread(Arc::clone(&parker))) {
                true => LEAD,
                false => {
                    let start = Instant::now();
                    let told = parker.wait();
                    self.counters.flush_wait_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    told
                }
            };
            if told == LEAD {
                if self.lead(lsn)? {
                    return Ok(());
                }
                patience.wait_for_room()?;
            }
        }
    }

    /// Writes and syncs, then hands the lead on, whatever happened. False if the file has no room for all before `lsn`.
    pub(crate) fn lead(&self, lsn: Lsn) -> Result<bool> {
        /// Hands on also when something panics: else all others would wait for ever.
        struct Leading<'a>(&'a Log, bool);
        impl Drop for Leading<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    let _ = self.0.poison("a panic while the log was written");
                }
                self.0.hand_on();
            }
        }
        let mut leading = Leading(self, false);
        let done = self.write_and_sync(lsn);
        leading.1 = true;
        done
    }

    fn write_and_sync(&self, lsn: Lsn) -> Result<bool> {
        if self.durable.load(Ordering::Acquire) >= lsn.0 {
            return Ok(true);
        }
        let end = self.write_towards(lsn)?;
        if end >= lsn.0 || end > self.durable.load(Ordering::Acquire) {
            let end = self.written.load(Ordering::Acquire);
            // In this order: if what precedes `end` was written to a file that took the other's place, it is that one. Any failed
            // sync of it, by whomever, is the end of the log.
            self.must(self.file().sync())?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.durable.fetch_max(end, Ordering::AcqRel);
        }
        Ok(end >= lsn.0)
    }

    fn hand_on(&self) {
        // Kept between rounds, so that nothing is allocated; a leader still waking others with it does not hold us up.
        let mut kept = self.served.try_lock();
        let mut own = Vec::new();
        let served = kept.as_deref_mut().unwrap_or(&mut own);
        let poisoned = self.check_poison().is_err();
        let durable = self.durable.load(Ordering::Acquire);
        // The next leader first: the device waits for it.
        match self.waiters.hand_on(|lsn| poisoned || lsn <= durable, served) {
            Next::Waiter(Waiter::Thread(parker)) => parker.wake(LEAD),
            Next::Waiter(Waiter::Call { .. }) => unreachable!("a call does not lead"),
            Next::Calls => self.lead_calls(),
            Next::Nobody => {}
        }
        for (lsn, waiter) in served.drain(..) {
            match waiter {
                Waiter::Thread(parker) => parker.wake(SERVED),
                Waiter::Call { since, call } => {
                    self.counters.flush_wait_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    call(lsn <= durable);
                    self.calls.told();
                }
            }
        }
    }

    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { log: self, rounds: 0, since: None }
    }
}

/// How a thread waits until more can be written: until others have copied their frames, which is a matter of moments, or,
/// when the file is full, until a checkpoint.
pub(crate) struct Patience<'a> {
    log: &'a Log,
    rounds: u32,
    /// The last checkpoint, and how long the next has been waited for.
    since: Option<(u64, InVain)>,
}

impl Patience<'_> {
    pub(crate) fn wait_for_writability(&mut self) -> Result<()> {
        match self.log.is_full() {
            true => self.wait_for_room(),
            false => self.wait_for_copies(),
        }
    }

    fn wait_for_copies(&mut self) -> Result<()> {
        self.log.check_poison()?;
        self.rounds += 1;
        if self.rounds < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    pub(crate) fn wait_for_room(&mut self) -> Result<()> {
        self.log.check_poison()?;
        if self.is_over(Instant::now(), waits::is_device_awaited()) {
            return Err(self.log.poison("the log is full and no checkpoint made room in time"));
        }
        if self.log.is_full() {
            self.log.ask_for_room(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether it has been too long since the last checkpoint, looked at `now`. While the device is awaited it may be that which the
    /// checkpoint waits for.
    pub(crate) fn is_over(&mut self, now: Instant, is_device_awaited: bool) -> bool {
        let checkpoint = self.log.checkpoint_lsn.load(Ordering::Acquire);
        if self.since.is_none_or(|(before, _)| before != checkpoint) {
            self.since = Some((checkpoint, InVain::since(now)));
        }
        let (_, vain) = self.since.as_mut().expect("just set");
        if is_device_awaited {
            vain.excuse(now);
            return false;
        }
        vain.look(now) > CHECKPOINT_WAIT_MAX
    }
}
