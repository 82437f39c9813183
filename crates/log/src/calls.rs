//! Commits that no thread waits for: who makes one leaves a call, and goes on.
//!
//! A call never leads; where only calls are left, or one finds no leader, a thread of their own does
//! ([`Log::lead_for_calls`]), so that nobody's thread syncs for others for longer than for itself.

use crate::flush::{Parker, Waiter, LEAD};
use crate::log::Log;
use myriad_base::latch::thread_no;
use myriad_base::{Lsn, Result};
use parking_lot::Mutex;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Calls {
    /// Who leads for them; none before it has begun and after it has ended.
    leader: Mutex<Option<Arc<Parker>>>,
    has_leader: AtomicBool,
    stopped: AtomicBool,
    /// The last LSN that one waits for.
    up_to: AtomicU64,
}

impl Calls {
    /// Whether somebody leads for them.
    pub(crate) fn is_led(&self) -> bool {
        self.has_leader.load(Ordering::Acquire)
    }
}

/// Ends the lead for calls, also where something panics.
struct Leader<'a>(&'a Log, Arc<Parker>);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let calls = &self.0.calls;
        calls.has_leader.store(false, Ordering::Release);
        *calls.leader.lock() = None;
        // Nobody can be told any more, but we may have been.
        if self.1.told() == LEAD {
            self.0.lead_calls();
        }
    }
}

impl Log {
    /// As [`Log::flush_to`], but need not wait: `call` is called once, with true when everything before `lsn` is durable or with
    /// false when it never will be. That may be at once or later, by any thread, which must neither be kept waiting nor come back
    /// to the log. If it panics there, others are told all the same. Waits itself where nobody leads for calls ([`Log::lead_for_calls`]).
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`]; then `call` is not called.
    pub fn flush_later(&self, lsn: Lsn, call: impl FnOnce(bool) + Send + 'static) -> Result<()> {
        if self.durable_lsn() >= lsn || self.is_off() || !self.calls.is_led() {
            self.flush_to(lsn)?;
            call(true);
            return Ok(());
        }
        assert!(lsn <= self.end_lsn(), "what has not been appended cannot be flushed");
        self.check_poison()?;
        self.counters.flush_waits.fetch_add(1, Ordering::Relaxed);
        self.calls.up_to.fetch_max(lsn.0, Ordering::Relaxed);
        let call = move |durable| _ = catch_unwind(AssertUnwindSafe(|| call(durable)));
        let call = Waiter::Call { since: Instant::now(), call: Box::new(call) };
        if self.waiters.join(thread_no(), lsn.0, call) {
            self.lead_calls();
        }
        Ok(())
    }

    /// What a background thread does until [`Log::stop_calls`].
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`]. All calls have been told by then.
    pub fn lead_for_calls(&self) -> Result<()> {
        // Of its own: the thread may wait for the log as any other while it has been told to lead.
        let leader = Leader(self, Arc::new(Parker::new()));
        *self.calls.leader.lock() = Some(Arc::clone(&leader.1));
        self.calls.has_leader.store(true, Ordering::Release);
        let mut patience = self.patience();
        loop {
            match leader.1.told() {
                LEAD if self.lead(Lsn(self.calls.up_to.load(Ordering::Relaxed)))? => patience = self.patience(),
                LEAD => patience.wait_for_room()?,
                _ if self.calls.stopped.load(Ordering::Acquire) => return Ok(()),
                _ => std::thread::park(),
            }
        }
    }

    /// Ends [`Log::lead_for_calls`], also one that begins later.
    pub fn stop_calls(&self) {
        self.calls.stopped.store(true, Ordering::Release);
        if let Some(leader) = &*self.calls.leader.lock() {
            leader.unpark();
        }
    }

    /// The caller has the lead and hands it to who leads for calls.
    pub(crate) fn lead_calls(&self) {
        let leader = self.calls.leader.lock();
        match &*leader {
            Some(leader) => leader.wake(LEAD),
            None => {
                drop(leader);
                // Who joined when the thread ended; they are told what comes of it.
                let _ = self.lead(Lsn(self.calls.up_to.load(Ordering::Relaxed)));
            }
        }
    }
}
