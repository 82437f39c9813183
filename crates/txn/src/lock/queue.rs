//! The locks and requests on one key, in the order of their arrival, and the rules of waiting. No concurrency here: a queue
//! is used under its shard's mutex.

use super::park::{WaitCell, WaitState};
use super::{CommitOrder, Extent, LockKey, LockMode, TrxLocks, KEY_BYTES_SHOWN};
use myriad_base::IndexId;
use smallvec::SmallVec;
use std::sync::Arc;

/// Transactions to wake when no shard mutex is held any more.
pub(super) type WakeList = SmallVec<[Arc<TrxLocks>; 4]>;

/// A lock, or a request that waits.
pub(super) struct Lock {
    pub(super) trx: Arc<TrxLocks>,
    pub(super) mode: LockMode,
    pub(super) waiting: bool,
}

impl Lock {
    /// Whether a request of `trx` for `mode` has to wait for this lock: if another transaction's conflicts with it. Where the
    /// order of commits is fixed already, an insert need not wait for the gap (InnoDB's rule, `lock_rec_has_to_wait`).
    fn holds_up(&self, order: &dyn CommitOrder, trx: &Arc<TrxLocks>, mode: LockMode) -> bool {
        mode.conflicts_with(self.mode)
            && !Arc::ptr_eq(&self.trx, trx)
            && !(mode.extent == Extent::InsertIntention && order.is_fixed(trx.thd(), self.trx.thd()))
    }
}

/// What people are shown of a key.
pub(super) struct ShownKey {
    pub(super) index: IndexId,
    pub(super) supremum: bool,
    /// Whether `bytes` is all of it.
    pub(super) whole: bool,
    pub(super) bytes: SmallVec<[u8; 16]>,
}

impl From<&LockKey<'_>> for ShownKey {
    fn from(key: &LockKey<'_>) -> ShownKey {
        let bytes = key.bytes();
        let shown = &bytes[..bytes.len().min(KEY_BYTES_SHOWN)];
        let whole = shown.len() == bytes.len();
        ShownKey { index: key.index(), supremum: key.is_supremum(), whole, bytes: SmallVec::from_slice(shown) }
    }
}

/// All locks on one key. Never empty between calls of the lock table.
///
/// Granted locks of different transactions never conflict with a granted record part; each transaction has at most one
/// waiting entry in the whole table.
pub(super) struct Queue {
    pub(super) key: ShownKey,
    pub(super) locks: SmallVec<[Lock; 1]>,
}

impl Queue {
    pub(super) fn new(key: &LockKey<'_>) -> Queue {
        Queue { key: key.into(), locks: SmallVec::new() }
    }

    /// Whether granted locks of `trx` cover `mode`, each part by one as strong or stronger. Insert intentions are never
    /// covered.
    pub(super) fn covers(&self, trx: &Arc<TrxLocks>, mode: LockMode) -> bool {
        if mode.extent == Extent::InsertIntention {
            return false;
        }
        let (mut record, mut gap) = (!mode.covers_record(), !mode.covers_gap());
        for l in self.locks.iter().filter(|l| !l.waiting && Arc::ptr_eq(&l.trx, trx)) {
            if l.mode.strength >= mode.strength {
                record |= l.mode.covers_record();
                gap |= l.mode.covers_gap();
            }
        }
        record && gap
    }

    /// Calls `visit` with each lock that a request of `trx` at `position` has to wait for, until it gives `false`: granted
    /// ones anywhere, and waiting ones further ahead.
    pub(super) fn each_blocker<'q>(
        &'q self,
        order: &dyn CommitOrder,
        trx: &Arc<TrxLocks>,
        mode: LockMode,
        position: usize,
        mut visit: impl FnMut(&'q Lock) -> bool,
    ) {
        for (i, l) in self.locks.iter().enumerate() {
            let ahead = !l.waiting || i < position;
            if ahead && l.holds_up(order, trx, mode) && !visit(l) {
                return;
            }
        }
    }

    /// Whether a request of `trx` at `position` has to wait.
    pub(super) fn is_blocked(
        &self,
        order: &dyn CommitOrder,
        trx: &Arc<TrxLocks>,
        mode: LockMode,
        position: usize,
    ) -> bool {
        let mut blocked = false;
        self.each_blocker(order, trx, mode, position, |_| {
            blocked = true;
            false
        });
        blocked
    }

    /// Where the waiting request of `trx` stands.
    pub(super) fn waiting_position(&self, trx: &Arc<TrxLocks>) -> Option<usize> {
        self.locks.iter().position(|l| l.waiting && Arc::ptr_eq(&l.trx, trx))
    }

    /// Adds a request that waits, and reports for whom.
    pub(super) fn push_waiting(&mut self, order: &dyn CommitOrder, trx: &Arc<TrxLocks>, mode: LockMode) {
        let mut holders: SmallVec<[usize; 8]> = SmallVec::new();
        self.each_blocker(order, trx, mode, self.locks.len(), |l| {
            holders.push(l.trx.thd());
            true
        });
        // Each once. There may be thousands, and the shard is locked.
        holders.sort_unstable();
        holders.dedup();
        holders.iter().for_each(|&holder| order.waits(trx.thd(), holder));
        self.locks.push(Lock { trx: Arc::clone(trx), mode, waiting: true });
    }

    /// Adds a granted lock, and reports who waits for it from now on too. The caller notes it with the transaction.
    pub(super) fn push_granted(&mut self, order: &dyn CommitOrder, trx: &Arc<TrxLocks>, mode: LockMode) {
        self.locks.push(Lock { trx: Arc::clone(trx), mode, waiting: false });
        self.held_up_by(order, self.locks.len() - 1, |_| {});
    }

    /// The lock at `position` has been granted: reports those who wait further ahead and are held up by it as well, and calls
    /// `visit` with each of them. (Those behind it have waited for it before.)
    fn held_up_by(&self, order: &dyn CommitOrder, position: usize, mut visit: impl FnMut(&Arc<TrxLocks>)) {
        let granted = &self.locks[position];
        for l in self.locks[..position].iter().filter(|l| l.waiting) {
            if granted.holds_up(order, &l.trx, l.mode) {
                order.waits(l.trx.thd(), granted.trx.thd());
                visit(&l.trx);
            }
        }
    }

    /// Adds a granted lock for a transaction that may be asleep. If it is, those who now wait for it as well must look for
    /// deadlocks again; if it is not, it will look itself before it sleeps.
    pub(super) fn push_granted_foreign(
        &mut self,
        order: &dyn CommitOrder,
        trx: &Arc<TrxLocks>,
        mode: LockMode,
        wake: &mut WakeList,
    ) {
        self.locks.push(Lock { trx: Arc::clone(trx), mode, waiting: false });
        let asleep = WaitCell::is_waiting(trx.wait.word());
        self.held_up_by(order, self.locks.len() - 1, |waiter| {
            if asleep {
                waiter.wait.poke();
                wake.push(Arc::clone(waiter));
            }
        });
    }

    /// Of the granted locks of `trx` leaves what [`LockMode::without_reads`] says; whether that changed anything.
    pub(super) fn release_reads(&mut self, trx: &Arc<TrxLocks>) -> bool {
        let mut changed = false;
        self.locks.retain_mut(|l| {
            if l.waiting || !Arc::ptr_eq(&l.trx, trx) {
                return true;
            }
            let left = l.mode.without_reads();
            changed |= left != Some(l.mode);
            l.mode = left.unwrap_or(l.mode);
            left.is_some()
        });
        changed
    }

    /// Grants, in order of arrival, whatever need not wait any more. Insert intentions are dropped when granted.
    pub(super) fn grant(&mut self, order: &dyn CommitOrder, hash: u64, wake: &mut WakeList) {
        let mut i = 0;
        while i < self.locks.len() {
            let l = &self.locks[i];
            if !l.waiting || self.is_blocked(order, &l.trx, l.mode, i) {
                i += 1;
                continue;
            }
            let stored = l.mode.extent != Extent::InsertIntention;
            if stored {
                // Before the wait ends: its owner may see the end at once, and release all that is on its list.
                l.trx.add_held_uncounted(hash);
            }
            let word = l.trx.wait.word();
            if !WaitCell::is_waiting(word) || !l.trx.wait.end(word, WaitState::Granted) {
                // A victim, about to withdraw: it will grant to those behind it then.
                if stored {
                    l.trx.forget_held(hash);
                }
                i += 1;
                continue;
            }
            wake.push(Arc::clone(&l.trx));
            if stored {
                self.locks[i].waiting = false;
                self.held_up_by(order, i, |_| {});
                i += 1;
            } else {
                self.locks.remove(i);
            }
        }
    }
}
