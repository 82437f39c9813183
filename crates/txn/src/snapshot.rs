//! Which snapshots are open: one padded word for each session, so that opening a snapshot writes no shared line.

use crate::sync::{fence, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use myriad_base::latch::{read_counted, write_counted, LatchClass};
use myriad_base::members::Members;
use myriad_base::Csn;
use parking_lot::RwLock;
use std::sync::Arc;

const CLOSED: u64 = u64::MAX;

type Slot = Arc<CachePadded<AtomicU64>>;

/// All sessions' words, and the counter of commits.
pub struct Snapshots {
    /// The first number that a commit took.
    first: Csn,
    next_csn: CachePadded<AtomicU64>,
    slots: RwLock<Members<Slot>>,
}

/// A session's word. Holds at most one snapshot at a time.
pub struct SnapshotSlot {
    word: Slot,
    number: u64,
    registry: Arc<Snapshots>,
}

/// What other threads see of a session's word.
pub(crate) struct SnapshotWatch {
    word: Slot,
    registry: Arc<Snapshots>,
}

impl SnapshotWatch {
    /// How many transactions have ended since the snapshot was opened, which is what purge keeps for it; `None`: none is open.
    pub(crate) fn age(&self) -> Option<u64> {
        let csn = self.word.load(Ordering::Acquire);
        (csn != CLOSED).then(|| self.registry.newest().0.saturating_sub(csn))
    }
}

impl Snapshots {
    /// No session; the next commit takes `first`.
    pub fn new(first: Csn) -> Arc<Snapshots> {
        let next_csn = CachePadded::new(AtomicU64::new(first.0));
        Arc::new(Snapshots { first, next_csn, slots: RwLock::default() })
    }

    /// The counter that commits take their numbers from.
    pub fn next_csn(&self) -> &AtomicU64 {
        &self.next_csn
    }

    /// Numbers taken so far: by transactions that had begun to write and have ended, one way or the other.
    pub fn ended(&self) -> u64 {
        self.next_csn.load(Ordering::Acquire) - self.first.0
    }

    /// A snapshot opened now sees commits below.
    pub fn newest(&self) -> Csn {
        Csn(self.next_csn.load(Ordering::Acquire))
    }

    /// A new session's word.
    pub fn register(self: &Arc<Snapshots>) -> SnapshotSlot {
        let word: Slot = Arc::new(CachePadded::new(AtomicU64::new(CLOSED)));
        let number = write_counted(&self.slots, LatchClass::TrxSystem).join(Arc::clone(&word));
        SnapshotSlot { word, number, registry: Arc::clone(self) }
    }

    /// Commits below are seen by every open snapshot and by all that will be opened.
    pub fn oldest(&self) -> Csn {
        let mut oldest = self.next_csn.load(Ordering::Acquire);
        // Whoever is not seen below has yet to load the counter, and gets at least what was just loaded.
        fence(Ordering::SeqCst);
        for slot in read_counted(&self.slots, LatchClass::TrxSystem).iter() {
            oldest = oldest.min(slot.load(Ordering::Acquire));
        }
        Csn(oldest)
    }
}

impl SnapshotSlot {
    /// For other threads.
    pub(crate) fn watch(&self) -> SnapshotWatch {
        SnapshotWatch { word: Arc::clone(&self.word), registry: Arc::clone(&self.registry) }
    }

    /// Opens a snapshot: it sees commits below the number returned.
    #[inline]
    pub fn open(&self) -> Csn {
        let next = &self.registry.next_csn;
        self.word.store(next.load(Ordering::Acquire), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Csn(next.load(Ordering::Acquire))
    }

    /// Closes it.
    #[inline]
    pub fn close(&self) {
        self.word.store(CLOSED, Ordering::Release);
    }
}

impl Drop for SnapshotSlot {
    fn drop(&mut self) {
        write_counted(&self.registry.slots, LatchClass::TrxSystem).leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_never_passes_an_open_snapshot() {
        let all = Snapshots::new(Csn(2));
        std::thread::scope(|s| {
            for _ in 0..3 {
                let slot = all.register();
                let all = &all;
                s.spawn(move || {
                    for _ in 0..20_000 {
                        let csn = slot.open();
                        assert!(all.oldest() <= csn);
                        slot.close();
                    }
                });
            }
            s.spawn(|| {
                let mut last = Csn(0);
                for _ in 0..20_000 {
                    all.next_csn().fetch_add(1, Ordering::AcqRel);
                    let now = all.oldest();
                    assert!(now >= last || now.0 + 1 >= last.0.saturating_sub(20_000));
                    last = now;
                }
            });
        });
        assert_eq!(all.oldest(), Csn(20_002));
    }
}
