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
    /// Those left and not told yet.
    open: AtomicU64,
    /// The last LSN that one waits for.
    up_to: AtomicU64,
}

impl Calls {
    /// Whether somebody leads for them.
    pub(crate) fn is_led(&self) -> bool {
        self.has_leader.load(Ordering::SeqCst)
    }

    /// Counts one in, unless nobody leads. It is counted before that is looked at, and a leader that ends looks at the count after it
    /// has said so: one of the two sees the other.
    pub(crate) fn begin(&self) -> bool {
        self.open.fetch_add(1, Ordering::SeqCst);
        let led = self.is_led();
        if !led {
            self.told();
        }
        led
    }

    /// One has been told.
    pub(crate) fn told(&self) {
        if self.open.fetch_sub(1, Ordering::SeqCst) == 1 && self.stopped.load(Ordering::SeqCst) {
            self.unpark_leader();
        }
    }

    /// The leader takes no more; whether it is through with all that there are.
    fn end(&self) -> bool {
        self.has_leader.store(false, Ordering::SeqCst);
        self.open.load(Ordering::SeqCst) == 0
    }

    fn unpark_leader(&self) {
        if let Some(leader) = &*self.leader.lock() {
            leader.unpark();
        }
    }
}

/// Ends the lead for calls, also where something panics.
struct Leader<'a>(&'a Log, Arc<Parker>);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let calls = &self.0.calls;
        if !calls.end() {
            // Nobody would write for those that are left.
            let _ = self.0.poison("nobody leads for commits any more");
        }
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
    /// to the log. A panic of it goes no further, at once or later: others are told all the same. Waits itself where nobody leads for calls ([`Log::lead_for_calls`]).
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`]; then `call` is not called.
    pub fn flush_later(&self, lsn: Lsn, call: impl FnOnce(bool) + Send + 'static) -> Result<()> {
        let call = move |durable| _ = catch_unwind(AssertUnwindSafe(|| call(durable)));
        let at_once = self.durable_lsn() >= lsn || self.is_off() || self.check_poison().is_err();
        assert!(at_once || lsn <= self.end_lsn(), "what has not been appended cannot be flushed");
        if at_once || !self.calls.begin() {
            self.flush_to(lsn)?;
            call(true);
            return Ok(());
        }
        self.counters.flush_waits.fetch_add(1, Ordering::Relaxed);
        self.leave_call(lsn, call);
        Ok(())
    }

    /// Leaves a call that has been counted in and does not panic.
    pub(crate) fn leave_call(&self, lsn: Lsn, call: impl FnOnce(bool) + Send + 'static) {
        self.calls.up_to.fetch_max(lsn.0, Ordering::Relaxed);
        let call = Waiter::Call { since: Instant::now(), call: Box::new(call) };
        if self.waiters.join(thread_no(), lsn.0, call) {
            self.lead_calls();
        }
    }

    /// What a background thread does until [`Log::stop_calls`].
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`]. All calls have been told by then.
    pub fn lead_for_calls(&self) -> Result<()> {
        // Of its own: the thread may wait for the log as any other while it has been told to lead.
        let leader = Leader(self, Arc::new(Parker::new()));
        *self.calls.leader.lock() = Some(Arc::clone(&leader.1));
        self.calls.has_leader.store(true, Ordering::SeqCst);
        let mut patience = self.patience();
        loop {
            match leader.1.told() {
                LEAD if self.lead(Lsn(self.calls.up_to.load(Ordering::Relaxed)))? => patience = self.patience(),
                LEAD => patience.wait_for_room()?,
                _ if self.calls.stopped.load(Ordering::SeqCst) && self.calls.end() => return Ok(()),
                _ => std::thread::park(),
            }
        }
    }

    /// Ends [`Log::lead_for_calls`], also one that begins later, once all calls have been told.
    pub fn stop_calls(&self) {
        self.calls.stopped.store(true, Ordering::SeqCst);
        self.calls.unpark_leader();
    }

    /// The caller has the lead and hands it to who leads for calls.
    pub(crate) fn lead_calls(&self) {
        let leader = self.calls.leader.lock();
        match &*leader {
            Some(leader) => leader.wake(LEAD),
            None => {
                drop(leader);
                // It has ended by an error, so the log is poisoned: this tells them.
                let _ = self.lead(Lsn(self.calls.up_to.load(Ordering::Relaxed)));
            }
        }
    }
}
