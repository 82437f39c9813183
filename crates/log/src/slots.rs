//! Reservation of log positions by one atomic add, and up to where the log is complete.
//!
//! A thread first shows itself in a slot with a lower bound of the position it is about to get, then reserves by adding
//! to `next`. Whoever asks up to where the log is complete reads `next` first and the slots after. A reservation below
//! the `next` that was read is part of the chain of additions that led to it, so the slot it was made from is seen as it
//! was then, or later: it shows a bound at or below the reservation, or it was given back, and then what was copied is
//! seen as well. A slot taken over by another thread meanwhile carries that on (its new holder acquired it).

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Threads that append at the same time at most; others wait for a slot.
#[cfg(not(all(test, loom)))]
pub(crate) const SLOTS: usize = 64;
#[cfg(all(test, loom))]
pub(crate) const SLOTS: usize = 2;

/// A slot nobody uses.
const FREE: u64 = u64::MAX;

struct Slot {
    /// A lower bound of the position being copied to; [`FREE`] when nobody is.
    lower: AtomicU64,
    /// Reservations through this slot; written only by its holder.
    count: AtomicU64,
}

/// The end of the log and the slots of those who are appending.
pub(crate) struct Slots {
    next: CachePadded<AtomicU64>,
    slots: [CachePadded<Slot>; SLOTS],
}

/// A slot's number, while it is held.
#[derive(Clone, Copy)]
pub(crate) struct SlotNo(usize);

impl Slots {
    pub(crate) fn new(next: u64) -> Slots {
        let slot = |_| CachePadded::new(Slot { lower: AtomicU64::new(FREE), count: AtomicU64::new(0) });
        Slots { next: CachePadded::new(AtomicU64::new(next)), slots: std::array::from_fn(slot) }
    }

    /// Sets the end of the log; nobody is appending.
    pub(crate) fn restart(&self, next: u64) {
        self.next.store(next, Ordering::Release);
    }

    /// End of what is reserved.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// The same, good for a look only.
    #[inline]
    pub(crate) fn end_relaxed(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Takes a slot, `hint`'s if it is free.
    #[inline]
    pub(crate) fn take(&self, hint: usize) -> SlotNo {
        let mut at = hint % SLOTS;
        let mut tries = 0;
        loop {
            let slot = &*self.slots[at];
            if slot.lower.load(Ordering::Relaxed) == FREE {
                let lower = self.next.load(Ordering::Relaxed);
                if slot.lower.compare_exchange(FREE, lower, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return SlotNo(at);
                }
            }
            at = (at + 1) % SLOTS;
            tries += 1;
            if tries % SLOTS == 0 {
                crate::sync::yield_now();
            }
        }
    }

    /// Reserves `bytes`; where they begin. From here on nobody waits for this slot because of what precedes.
    #[inline]
    pub(crate) fn reserve(&self, slot: SlotNo, bytes: u64) -> u64 {
        let start = self.next.fetch_add(bytes, Ordering::AcqRel);
        let slot = &*self.slots[slot.0];
        slot.lower.store(start, Ordering::Release);
        slot.count.store(slot.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        start
    }

    /// The end of what is reserved; whoever reserves from here on sees, once he has, all that the caller did before.
    pub(crate) fn pass(&self) -> u64 {
        self.next.fetch_add(0, Ordering::AcqRel)
    }

    /// Gives the slot back: what was reserved is complete.
    #[inline]
    pub(crate) fn release(&self, slot: SlotNo) {
        self.slots[slot.0].lower.store(FREE, Ordering::Release);
    }

    /// Everything before this is complete, and what its holders did before they gave their slots back is visible. May be
    /// below what an earlier call gave.
    pub(crate) fn complete(&self) -> u64 {
        let mut limit = self.next.load(Ordering::Acquire);
        for slot in &self.slots {
            limit = limit.min(slot.lower.load(Ordering::Acquire));
        }
        limit
    }

    /// Reservations made.
    pub(crate) fn count(&self) -> u64 {
        self.slots.iter().map(|s| s.count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Shared {
        slots: Slots,
        /// One cell a position; loom finds an access that is not ordered with the write.
        bytes: [UnsafeCell<u64>; 4],
    }

    // SAFETY: that is what the test is about.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl Shared {
        fn append(&self, hint: usize) {
            let slot = self.slots.take(hint);
            let start = self.slots.reserve(slot, 1);
            // SAFETY: reserved by this thread alone.
            self.bytes[start as usize].with_mut(|p| unsafe { *p = 1 });
            self.slots.release(slot);
        }

        fn check(&self) {
            for at in 0..self.slots.complete() {
                // SAFETY: complete, so its writer is done.
                self.bytes[at as usize].with(|p| assert_eq!(unsafe { *p }, 1));
            }
        }
    }

    fn explore(preemptions: usize, hints: &'static [&'static [usize]]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let bytes = std::array::from_fn(|_| UnsafeCell::new(0));
            let shared = Arc::new(Shared { slots: Slots::new(0), bytes });
            let threads: Vec<_> = hints
                .iter()
                .map(|hints| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || hints.iter().for_each(|&h| shared.append(h)))
                })
                .collect();
            let reader = Arc::clone(&shared);
            let reader = loom::thread::spawn(move || reader.check());
            reader.join().unwrap();
            for t in threads {
                t.join().unwrap();
            }
            shared.check();
            assert_eq!(shared.slots.complete(), shared.slots.end());
        });
    }

    #[test]
    fn what_is_complete_was_copied_with_a_slot_each() {
        explore(2, &[&[0, 0], &[1]]);
    }

    #[test]
    fn what_is_complete_was_copied_with_one_slot_passed_on() {
        explore(3, &[&[0], &[0]]);
    }
}
