//! How many mini-transactions run at a time. Each may wait for a frame while it has latched others, and a latched frame cannot
//! be emptied: too many of them would latch all frames and wait for each other.

use crate::pool::BufferPool;
use myriad_base::waits::{self, WaitFor};
use myriad_base::Result;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Frames for each mini-transaction: twice as many as those latch that touch most, for readers latch some, too. (Only the drop of an
/// index latches more, and that is done by one thread.)
const FRAMES_EACH: usize = 8;
/// Where so many may run nobody is counted.
const UNCOUNTED: usize = 1024;
/// Longest sleep before another look: the pool may have grown, or be poisoned.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Turns {
    running: AtomicUsize,
    /// Who sleeps, in order: the holder is the next to be woken.
    line: Mutex<()>,
    /// How many wait for `line` or hold it.
    in_line: AtomicUsize,
    /// Taken for the look at `running` before a sleep.
    ended: Mutex<()>,
    one_ended: Condvar,
}

/// A mini-transaction's turn, until it has released its pages.
pub(crate) struct Turn<'p>(Option<&'p BufferPool>);

impl Turn<'_> {
    /// For who is not counted.
    pub const NONE: Turn<'static> = Turn(None);
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(pool) = self.0 else { return };
        let turns = &pool.turns;
        turns.running.fetch_sub(1, Ordering::SeqCst);
        if turns.in_line.load(Ordering::SeqCst) != 0 {
            drop(turns.ended.lock());
            turns.one_ended.notify_one();
        }
    }
}

/// A place in the line.
struct Place<'p>(&'p Turns, Option<MutexGuard<'p, ()>>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.in_line.fetch_sub(1, Ordering::SeqCst);
        // To the one who has slept longest.
        self.1.take().into_iter().for_each(MutexGuard::unlock_fair);
    }
}

impl BufferPool {
    /// Waits until a mini-transaction may run. The caller holds no latch and no mini-transaction.
    ///
    /// # Errors
    /// When the engine is poisoned.
    #[inline]
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        if self.limit() as usize >= UNCOUNTED * FRAMES_EACH || !self.background.has_threads() {
            return Ok(Turn::NONE);
        }
        self.counted_turn()
    }

    fn counted_turn(&self) -> Result<Turn<'_>> {
        let turns = &self.turns;
        // Not behind those who sleep: a turn given to one of them is not used until it has woken.
        if let Some(turn) = self.try_turn() {
            return Ok(turn);
        }
        let _waiting = waits::begin(WaitFor::Turn);
        turns.in_line.fetch_add(1, Ordering::SeqCst);
        let _place = Place(turns, Some(turns.line.lock()));
        loop {
            self.check_poison()?;
            let mut ended = turns.ended.lock();
            if let Some(turn) = self.try_turn() {
                return Ok(turn);
            }
            turns.one_ended.wait_for(&mut ended, LOOK);
        }
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        // Pages of in-memory tables stay in their frames, latched or not.
        let most = ((self.limit() as usize).saturating_sub(self.memory.held()) / FRAMES_EACH).max(1);
        let more = |running| (running < most).then_some(running + 1);
        let counted = self.turns.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        counted.ok().map(|_| Turn(Some(self)))
    }
}
