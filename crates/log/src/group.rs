//! Group commit: one thread leads, the others wait for it or for their turn to lead. Who joins takes no mutex: with more
//! threads than processors its holder could lose the processor, and with it all who commit.

use crate::sync::{current, fence, park, Arc, AtomicBool, AtomicPtr, AtomicU32, Ordering, Thread};
use parking_lot::Mutex;
use std::ptr::null_mut;

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// What it waited for has been done.
    Served,
    /// It is the leader now.
    Lead,
}

const WAITING: u32 = 0;
const SERVED: u32 = 1;
const LEAD: u32 = 2;

/// A thread that waits. Made anew for each wait, so that nothing that is told late meets another wait.
pub(crate) struct Waiter {
    /// The LSN before which all must be done.
    lsn: u64,
    told: AtomicU32,
    thread: Thread,
    /// Who joined before.
    next: AtomicPtr<Waiter>,
}

impl Waiter {
    /// Sleeps until told.
    pub(crate) fn wait(&self) -> Told {
        loop {
            match self.told.load(Ordering::Acquire) {
                WAITING => park(),
                LEAD => return Told::Lead,
                _ => return Told::Served,
            }
        }
    }

    fn tell(&self, told: u32) {
        self.told.store(told, Ordering::Release);
        self.thread.unpark();
    }
}

/// Who leads and who waits.
pub(crate) struct Group {
    /// Whether somebody leads.
    led: AtomicBool,
    /// Those who joined since the leader looked last, the last first; each holds a count of its `Arc`.
    joined: AtomicPtr<Waiter>,
    /// Those who joined earlier, the first first. Touched by the leader alone.
    waiting: Mutex<Vec<Arc<Waiter>>>,
}

impl Group {
    pub(crate) fn new() -> Group {
        Group { led: AtomicBool::new(false), joined: AtomicPtr::new(null_mut()), waiting: Mutex::new(Vec::new()) }
    }

    /// Makes the caller the leader (`None`) if there is none; else one who waits for `lsn`. A leader must call
    /// [`Group::hand_on`] after its work.
    pub(crate) fn join(&self, lsn: u64) -> Option<Arc<Waiter>> {
        if self.take_lead() {
            return None;
        }
        let next = AtomicPtr::new(null_mut());
        let waiter = Arc::new(Waiter { lsn, told: AtomicU32::new(WAITING), thread: current(), next });
        let shown = Arc::into_raw(Arc::clone(&waiter)).cast_mut();
        let mut last = self.joined.load(Ordering::Relaxed);
        loop {
            waiter.next.store(last, Ordering::Relaxed);
            match self.joined.compare_exchange_weak(last, shown, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        // Who led may have looked before that. It gives the lead up first and looks again then, so one of the two sees the
        // other. If the caller leads now its own `hand_on` takes its waiter out.
        fence(Ordering::SeqCst);
        (!self.take_lead()).then_some(waiter)
    }

    fn take_lead(&self) -> bool {
        !self.led.load(Ordering::Relaxed)
            && self.led.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The leader's work is done up to the LSN that `done` gives: makes the first who needs more the next leader, if there
    /// is one, and then wakes those who need no more.
    pub(crate) fn hand_on(&self, done: impl Fn() -> u64) {
        let mut served = Vec::new();
        let next = loop {
            let next = self.sort_out(done(), &mut served);
            if next.is_some() {
                break next;
            }
            self.led.store(false, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.joined.load(Ordering::Relaxed).is_null() || !self.take_lead() {
                break None;
            }
        };
        // The next leader first: the device waits for it.
        if let Some(next) = next {
            next.tell(LEAD);
        }
        served.iter().for_each(|w| w.tell(SERVED));
    }

    /// Takes out those for whom `done` is enough, and the first of the others.
    fn sort_out(&self, done: u64, served: &mut Vec<Arc<Waiter>>) -> Option<Arc<Waiter>> {
        let mut waiting = self.waiting.lock();
        let known = waiting.len();
        let mut at = self.joined.swap(null_mut(), Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: from `into_raw` in `join`, and taken out of the list by the swap, so nobody else makes an `Arc` of it.
            let waiter = unsafe { Arc::from_raw(at) };
            at = waiter.next.load(Ordering::Relaxed);
            waiting.push(waiter);
        }
        waiting[known..].reverse();
        waiting.retain(|w| {
            if w.lsn <= done {
                served.push(Arc::clone(w));
            }
            w.lsn > done
        });
        (!waiting.is_empty()).then(|| waiting.remove(0))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::AtomicU64;
    use loom::cell::UnsafeCell;

    struct Shared {
        group: Group,
        written: AtomicU64,
        durable: AtomicU64,
        /// What only a leader touches; loom finds two at a time.
        device: UnsafeCell<u64>,
    }

    // SAFETY: that is what the test is about.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl Shared {
        fn commit(&self) {
            let lsn = self.written.fetch_add(1, Ordering::AcqRel) + 1;
            while self.durable.load(Ordering::Acquire) < lsn {
                if self.group.join(lsn).is_some_and(|w| w.wait() == Told::Served) {
                    assert!(self.durable.load(Ordering::Acquire) >= lsn);
                    continue;
                }
                let end = self.written.load(Ordering::Acquire);
                // SAFETY: the leader's alone.
                self.device.with_mut(|syncs| unsafe { *syncs += 1 });
                self.durable.fetch_max(end, Ordering::AcqRel);
                self.group.hand_on(|| self.durable.load(Ordering::Acquire));
            }
        }
    }

    /// Nobody sleeps for ever (loom says so if all do), one leads at a time, who is told to be served is.
    fn explore(preemptions: usize, commits: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let zero = || AtomicU64::new(0);
            let device = UnsafeCell::new(0);
            let shared = Arc::new(Shared { group: Group::new(), written: zero(), durable: zero(), device });
            let threads: Vec<_> = commits
                .iter()
                .map(|&count| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || (0..count).for_each(|_| shared.commit()))
                })
                .collect();
            for t in threads {
                t.join().unwrap();
            }
            assert!(shared.group.joined.load(Ordering::Relaxed).is_null());
            assert!(shared.group.waiting.lock().is_empty());
        });
    }

    #[test]
    fn two_commit_twice() {
        explore(3, &[2, 2]);
    }

    #[test]
    fn three_commit() {
        explore(2, &[1, 1, 1]);
    }
}
