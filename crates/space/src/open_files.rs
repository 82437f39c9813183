//! The bounded set of open tablespace files: a clock over the tablespaces whose file is open.

use crate::space::Space;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Stale entries of the clock that are not worth a look at all of it.
const STALE_MIN: usize = 64;
/// Files closed at a time when the process may open no more.
const ROOM_FILES: usize = 8;

pub(crate) struct OpenFiles {
    max: AtomicUsize,
    open: AtomicUsize,
    /// In the order the hand meets them, each tablespace once. An entry may be stale: dropped, or closed meanwhile.
    clock: Mutex<VecDeque<Weak<Space>>>,
}

impl OpenFiles {
    pub(crate) fn new(max: usize) -> OpenFiles {
        OpenFiles { max: AtomicUsize::new(max.max(1)), open: AtomicUsize::new(0), clock: Mutex::default() }
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max.max(1), Ordering::Relaxed);
        self.trim();
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.clock.lock().len()
    }

    /// Counts a file just opened; the caller holds its tablespace's `file` latch.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a tablespace whose file was opened into the clock; closes others when there are too many. The caller holds
    /// no file latch.
    pub(crate) fn admit(&self, space: &Arc<Space>) {
        let mut clock = self.clock.lock();
        if !space.in_clock.swap(true, Ordering::Relaxed) {
            clock.push_back(Arc::downgrade(space));
        }
        if clock.len() > 2 * self.count() + STALE_MIN {
            clock.retain(|entry| entry.upgrade().is_some_and(|space| stays(&space)));
        }
        drop(clock);
        self.trim();
    }

    /// Counts a file just closed; the caller holds its tablespace's `file` latch.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes some files that are not in use, as the process may open no more; whether there were any. The caller may hold
    /// the file latch of a tablespace that is being opened.
    pub(crate) fn make_room(&self) -> bool {
        let open = self.count();
        self.close_down_to(open.saturating_sub(ROOM_FILES));
        self.count() < open
    }

    fn trim(&self) {
        self.close_down_to(self.max.load(Ordering::Relaxed));
    }

    fn close_down_to(&self, max: usize) {
        if self.count() <= max {
            return;
        }
        let mut clock = self.clock.lock();
        // Two rounds: the first may only take marks away.
        for _ in 0..2 * clock.len() {
            if self.count() <= max {
                break;
            }
            let Some(entry) = clock.pop_front() else { break };
            let Some(space) = entry.upgrade() else { continue };
            if !stays(&space) {
                continue;
            }
            if space.used.swap(false, Ordering::Relaxed) || !space.try_close() {
                clock.push_back(entry);
            } else {
                space.in_clock.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Whether a tablespace stays in the clock: its file may be open. The caller has the clock's latch, so whoever opens the file
/// from here on finds the mark gone.
fn stays(space: &Space) -> bool {
    let stays = space.may_be_open();
    space.in_clock.store(stays, Ordering::Relaxed);
    stays
}
