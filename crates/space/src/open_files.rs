//! The bounded set of open tablespace files: a clock over the tablespaces whose file is open.

use crate::space::Space;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

pub(crate) struct OpenFiles {
    max: AtomicUsize,
    open: AtomicUsize,
    /// In the order the hand meets them. An entry may be stale: dropped, or closed meanwhile.
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

    pub(crate) fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a file just opened; the caller holds its tablespace's `file` latch.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a tablespace whose file was opened into the clock; closes others when there are too many. The caller holds
    /// no file latch.
    pub(crate) fn admit(&self, space: &Arc<Space>) {
        self.clock.lock().push_back(Arc::downgrade(space));
        self.trim();
    }

    /// Counts a file just closed; the caller holds its tablespace's `file` latch.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn trim(&self) {
        let max = self.max.load(Ordering::Relaxed);
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
            if !space.is_open() {
                continue;
            }
            if space.used.swap(false, Ordering::Relaxed) || !space.try_close() {
                clock.push_back(entry);
            }
        }
    }
}
