//! Waiting for a lock, without any latch.

use super::park::WaitState;
use super::queue::WakeList;
use super::table::wake_all;
use super::{LockTable, TrxLocks, WaitOutcome, WaitToken};
use myriad_base::waits;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl LockTable {
    /// Waits for a queued request, at most `timeout`. No latch may be held.
    ///
    /// Looks for deadlocks before sleeping. Who would not sleep is in none: with a time-out of zero (NOWAIT) nobody becomes a
    /// victim for a statement that fails anyway. A grant that came first wins over a kill.
    pub fn wait(&self, trx: &Arc<TrxLocks>, token: WaitToken, timeout: Duration) -> WaitOutcome {
        let start = Instant::now();
        let totals = &self.totals;
        totals.waits.fetch_add(1, Ordering::Relaxed);
        totals.waiting_now.fetch_add(1, Ordering::Relaxed);
        trx.wait_start_us.store(self.clock.wall_us(), Ordering::Relaxed);

        let outcome = self.sleep_until_over(trx, &token, start, timeout);

        trx.wait_start_us.store(0, Ordering::Relaxed);
        totals.waiting_now.fetch_sub(1, Ordering::Relaxed);
        if outcome == WaitOutcome::Timeout {
            totals.timeouts.fetch_add(1, Ordering::Relaxed);
        }
        let us = start.elapsed().as_micros() as u64;
        totals.wait_us.fetch_add(us, Ordering::Relaxed);
        totals.wait_us_max.fetch_max(us, Ordering::Relaxed);
        outcome
    }

    fn sleep_until_over(
        &self,
        trx: &Arc<TrxLocks>,
        token: &WaitToken,
        start: Instant,
        timeout: Duration,
    ) -> WaitOutcome {
        let deadline = start.checked_add(timeout);
        let mut look = true;
        loop {
            match trx.wait.state(token.word) {
                WaitState::Granted => {
                    trx.wait.finish();
                    return WaitOutcome::Granted;
                }
                WaitState::Victim => {
                    self.give_up(trx, token);
                    return WaitOutcome::Deadlock;
                }
                WaitState::Waiting => {}
                WaitState::Idle => unreachable!("a wait is waited for once"),
            }
            let over = if trx.is_killed() {
                Some(WaitOutcome::Interrupted)
            } else if timeout.is_zero() {
                Some(WaitOutcome::Timeout)
            } else if trx.wait.take_poke() | std::mem::take(&mut look) {
                if self.detect.load(Ordering::Relaxed) {
                    self.break_deadlocks(trx, token.word);
                }
                continue;
            } else if deadline.is_some_and(|d| Instant::now() >= d) {
                Some(WaitOutcome::Timeout)
            } else {
                None
            };
            let Some(over) = over else {
                let _sleep = waits::sleep();
                trx.wait.sleep(deadline);
                continue;
            };
            // Granted or a victim in this moment: the next round sees it.
            if self.give_up(trx, token) {
                return over;
            }
        }
    }

    /// Withdraws a queued request instead of waiting for it.
    pub fn cancel(&self, trx: &Arc<TrxLocks>, token: WaitToken) {
        if !self.give_up(trx, &token) {
            // Granted in the meantime: kept to the transaction's end, as any lock. Or a victim: its request must go.
            if trx.wait.state(token.word) == WaitState::Victim {
                self.give_up(trx, &token);
            } else {
                trx.wait.finish();
            }
        }
    }

    /// Withdraws the request whose token was lost on the way, if there is one.
    pub(super) fn withdraw_if_waiting(&self, trx: &Arc<TrxLocks>) {
        let word = trx.wait.word();
        if trx.wait.state(word) != WaitState::Idle {
            self.cancel(trx, WaitToken { hash: trx.waiting_on.load(Ordering::Relaxed), word });
        }
    }

    /// Withdraws the request if it still waits or its owner is a victim; gives false if it does not (granted), or became a
    /// victim in this moment.
    fn give_up(&self, trx: &Arc<TrxLocks>, token: &WaitToken) -> bool {
        let mut wake = WakeList::new();
        let mut queues = self.shard(token.hash);
        let gone = match trx.wait.state(token.word) {
            WaitState::Waiting => trx.wait.end(token.word, WaitState::Idle),
            WaitState::Victim => {
                trx.wait.finish();
                true
            }
            WaitState::Granted | WaitState::Idle => false,
        };
        if gone {
            self.withdraw(&mut queues, trx, token.hash, &mut wake);
        }
        drop(queues);
        wake_all(&mut wake);
        gone
    }
}
