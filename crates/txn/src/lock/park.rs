//! How a transaction sleeps and is woken: the state of its wait in one word, and a parker.
//!
//! The word holds a wait's number and state. Whoever ends a wait changes the word by compare-exchange, so a wait ends in
//! exactly one way, and *then* wakes; the sleeper consumes the wake-up and *then* looks at the word again. Hence no wake-up
//! is lost, and a stale one costs a look. `loom` explores this protocol (see the tests).

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// State of a wait: the low two bits of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum WaitState {
    /// Not waiting: never began, withdrawn, or its end was taken note of.
    Idle = 0,
    /// The request is queued.
    Waiting = 1,
    /// The request was granted or its entry is gone.
    Granted = 2,
    /// Chosen as a deadlock's victim; the request is still queued.
    Victim = 3,
}

const STATE: u64 = 3;
const ONE_WAIT: u64 = 4;

fn state_of(word: u64) -> WaitState {
    match word & STATE {
        0 => WaitState::Idle,
        1 => WaitState::Waiting,
        2 => WaitState::Granted,
        _ => WaitState::Victim,
    }
}

/// A transaction's wait: begun by its thread, ended by anyone.
pub(super) struct WaitCell {
    word: AtomicU64,
    killed: AtomicBool,
    poked: AtomicBool,
    parker: Parker,
}

impl WaitCell {
    pub(super) fn new() -> WaitCell {
        WaitCell {
            word: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            poked: AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// Begins a wait and gives its word. By the owner, under the mutex of the shard where it queues.
    pub(super) fn begin(&self) -> u64 {
        let old = self.word.load(Ordering::Relaxed);
        assert!(state_of(old) == WaitState::Idle, "a transaction waits for one lock at a time");
        let word = (old & !STATE) + ONE_WAIT + WaitState::Waiting as u64;
        self.poked.store(false, Ordering::Relaxed);
        self.word.store(word, Ordering::Release);
        word
    }

    /// The present word.
    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// The state of the wait that began with `word`; the owner's only, so that no other wait can have followed.
    pub(super) fn state(&self, word: u64) -> WaitState {
        let now = self.word();
        assert!(now & !STATE == word & !STATE, "a token serves one wait");
        state_of(now)
    }

    /// Whether `word` stands for a wait that goes on.
    pub(super) fn is_waiting(word: u64) -> bool {
        state_of(word) == WaitState::Waiting
    }

    /// Ends the wait `word` in state `to` if it still goes on. The caller then wakes the owner, unless it is the owner.
    pub(super) fn end(&self, word: u64, to: WaitState) -> bool {
        debug_assert!(Self::is_waiting(word));
        let ended =
            self.word.compare_exchange(word, (word & !STATE) + to as u64, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // Widens the window in which the owner has seen the end and the one who made it is not done yet.
        #[cfg(all(test, not(loom)))]
        std::thread::yield_now();
        ended
    }

    /// The owner has taken note of the wait's end.
    pub(super) fn finish(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(!Self::is_waiting(word));
        self.word.store(word & !STATE, Ordering::Release);
    }

    /// Asks the owner to look for deadlocks again; to be followed by [`WaitCell::wake`].
    pub(super) fn poke(&self) {
        self.poked.store(true, Ordering::Release);
    }

    /// Whether the owner was poked since it last asked.
    pub(super) fn take_poke(&self) -> bool {
        self.poked.swap(false, Ordering::AcqRel)
    }

    /// Sets the mark that the owner is to be interrupted, and wakes it.
    pub(super) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    /// Clears the mark. Whatever its setter did before is visible to the owner then, who may want to set it again: a plain
    /// store might not reach memory before the owner's look at that.
    pub(super) fn reset_kill(&self) {
        if self.killed.load(Ordering::Relaxed) {
            self.killed.swap(false, Ordering::AcqRel);
        }
    }

    /// Whether the mark is set.
    pub(super) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Wakes the owner, now or when it next sleeps.
    pub(super) fn wake(&self) {
        self.parker.wake();
    }

    /// Sleeps until woken or until `deadline` (none: for ever). May return for no reason.
    pub(super) fn sleep(&self, deadline: Option<Instant>) {
        self.parker.sleep(deadline);
    }
}

#[cfg(all(loom, test))]
use on_loom::Parker;
#[cfg(not(all(loom, test)))]
use on_parking_lot::Parker;

#[cfg(not(all(loom, test)))]
mod on_parking_lot {
    use parking_lot::{Condvar, Mutex};
    use std::time::Instant;

    /// One remembered wake-up and a place to sleep.
    pub(super) struct Parker {
        woken: Mutex<bool>,
        cv: Condvar,
    }

    impl Parker {
        pub(super) const fn new() -> Parker {
            Parker { woken: Mutex::new(false), cv: Condvar::new() }
        }

        pub(super) fn wake(&self) {
            *self.woken.lock() = true;
            self.cv.notify_one();
        }

        pub(super) fn sleep(&self, deadline: Option<Instant>) {
            let mut woken = self.woken.lock();
            while !*woken {
                match deadline {
                    None => self.cv.wait(&mut woken),
                    Some(d) => {
                        if self.cv.wait_until(&mut woken, d).timed_out() {
                            break;
                        }
                    }
                }
            }
            *woken = false;
        }
    }
}

#[cfg(all(loom, test))]
mod on_loom {
    use loom::sync::{Condvar, Mutex};
    use std::time::Instant;

    /// The same with loom's parts and without a clock.
    pub(super) struct Parker {
        woken: Mutex<bool>,
        cv: Condvar,
    }

    impl Parker {
        pub(super) fn new() -> Parker {
            Parker { woken: Mutex::new(false), cv: Condvar::new() }
        }

        pub(super) fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.cv.notify_one();
        }

        pub(super) fn sleep(&self, _deadline: Option<Instant>) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.cv.wait(woken).unwrap();
            }
            *woken = false;
        }
    }
}

#[cfg(all(loom, test))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn wait(cell: &WaitCell, word: u64) -> (WaitState, bool) {
        loop {
            let state = cell.state(word);
            if state != WaitState::Waiting {
                cell.finish();
                return (state, false);
            }
            if cell.is_killed() && cell.end(word, WaitState::Idle) {
                return (WaitState::Idle, true);
            }
            cell.take_poke();
            cell.sleep(None);
        }
    }

    /// Run with `RUSTFLAGS="--cfg loom" cargo test -p myriad-txn --lib loom_`.
    #[test]
    fn loom_every_end_wakes_and_only_one_wins() {
        loom::model(|| {
            let cell = Arc::new(WaitCell::new());
            let word = cell.begin();
            let granter = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    let won = cell.end(word, WaitState::Granted);
                    if won {
                        cell.wake();
                    }
                    won
                })
            };
            let detector = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    let won = cell.end(word, WaitState::Victim);
                    if won {
                        cell.wake();
                    }
                    won
                })
            };
            let (state, _) = wait(&cell, word);
            let (granted, victim) = (granter.join().unwrap(), detector.join().unwrap());
            assert!(granted != victim);
            assert_eq!(granted, state == WaitState::Granted);
            assert_eq!(victim, state == WaitState::Victim);
        });
    }

    #[test]
    fn loom_a_kill_is_never_lost() {
        loom::model(|| {
            let cell = Arc::new(WaitCell::new());
            let killer = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    cell.poke();
                    cell.wake();
                    cell.kill();
                })
            };
            let word = cell.begin();
            let (state, interrupted) = wait(&cell, word);
            assert!(interrupted && state == WaitState::Idle);
            killer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_kill_from_before_a_reset_is_seen() {
        loom::model(|| {
            let cell = Arc::new(WaitCell::new());
            let statement_killed = Arc::new(AtomicBool::new(false));
            let killer = {
                let (cell, statement_killed) = (Arc::clone(&cell), Arc::clone(&statement_killed));
                thread::spawn(move || {
                    statement_killed.store(true, Ordering::Relaxed);
                    cell.kill();
                })
            };
            cell.reset_kill();
            let seen = statement_killed.load(Ordering::Relaxed);
            killer.join().unwrap();
            assert!(seen || cell.is_killed());
        });
    }

    #[test]
    fn loom_a_stale_wake_up_ends_no_later_wait() {
        loom::model(|| {
            let cell = Arc::new(WaitCell::new());
            let first = cell.begin();
            let granter = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    assert!(cell.end(first, WaitState::Granted));
                    cell.wake();
                })
            };
            assert_eq!(wait(&cell, first).0, WaitState::Granted);
            let second = cell.begin();
            assert!(!cell.end(first, WaitState::Victim), "the first wait is over");
            let again = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    assert!(cell.end(second, WaitState::Granted));
                    cell.wake();
                })
            };
            assert_eq!(wait(&cell, second).0, WaitState::Granted);
            granter.join().unwrap();
            again.join().unwrap();
        });
    }
}
