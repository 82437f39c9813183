//! Where a background thread sleeps until there is work.
//!
//! Whoever has work makes it known and *then* signals; the thread takes the signal and *then* looks for work. A store and a later
//! load of something else may be seen the other way round, so each side has a fence between its two: one of them sees the other,
//! and no work is left to a thread that sleeps. `loom` explores this.

use std::sync::atomic::Ordering;
use std::time::Duration;
#[cfg(all(test, loom))]
use {
    loom::sync::atomic::{fence, AtomicBool},
    on_loom::{Condvar, Mutex},
};
#[cfg(not(all(test, loom)))]
use {
    parking_lot::{Condvar, Mutex},
    std::sync::atomic::{fence, AtomicBool},
};

/// A sleeping place for a thread; a signal that comes while nobody sleeps is kept.
pub struct Event {
    signalled: AtomicBool,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl Event {
    /// Without a signal.
    pub fn new() -> Event {
        Event { signalled: AtomicBool::new(false), mutex: Mutex::new(()), condvar: Condvar::new() }
    }

    /// Wakes all sleepers. Costs a fence and a load while a signal is pending.
    pub fn signal(&self) {
        if self.leave_signal() {
            self.condvar.notify_all();
        }
    }

    /// Wakes one of the sleepers: for threads of which whoever goes on to something else wakes the next.
    pub fn signal_one(&self) {
        if self.leave_signal() {
            self.condvar.notify_one();
        }
    }

    /// Whether sleepers are to be woken: no signal was pending.
    fn leave_signal(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.signalled.load(Ordering::Relaxed) || self.signalled.swap(true, Ordering::AcqRel) {
            return false;
        }
        drop(self.mutex.lock());
        true
    }

    /// Until there is a signal, which it takes, or the time is over.
    pub fn wait(&self, at_most: Duration) {
        let mut held = self.mutex.lock();
        if !self.signalled.load(Ordering::Acquire) && !at_most.is_zero() {
            self.condvar.wait_for(&mut held, at_most);
        }
        self.signalled.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The latches of loom behind the calls of `parking_lot`; nobody wakes by the clock.
#[cfg(all(test, loom))]
mod on_loom {
    use loom::sync::MutexGuard;

    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
            Some(self.0.lock().unwrap())
        }
    }

    pub(super) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn wait_for<T>(&self, held: &mut Option<MutexGuard<'_, T>>, _at_most: std::time::Duration) {
            *held = held.take().map(|guard| self.0.wait(guard).unwrap());
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicU32;
    use loom::sync::Arc;

    /// Threads that each make a piece of work known and signal; who sleeps does all of it.
    fn explore(preemptions: usize, clients: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let shared = Arc::new((Event::new(), [AtomicU32::new(0), AtomicU32::new(0)]));
            let running: Vec<_> = (0..clients as usize)
                .map(|no| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        shared.1[no].store(1, Ordering::Relaxed);
                        shared.0.signal();
                    })
                })
                .collect();
            while shared.1.iter().map(|work| work.load(Ordering::Relaxed)).sum::<u32>() < clients {
                shared.0.wait(Duration::from_secs(1));
            }
            running.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    #[test]
    fn loom_no_work_is_left_to_one_who_sleeps() {
        explore(3, 1);
        explore(2, 2);
    }
}
