//! The locks and requests on one key, in the order of their arrival, and the rules of waiting. No concurrency here: a queue
//! is used under its shard's mutex.

use super::park::{WaitCell, WaitState};
use super::{Extent, LockKey, LockMode, TrxLocks, KEY_BYTES_SHOWN};
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

/// What people are shown of a key.
pub(super) struct ShownKey {
    pub(super) index: IndexId,
    pub(super) supremum: bool,
    pub(super) bytes: SmallVec<[u8; 16]>,
}

impl From<&LockKey<'_>> for ShownKey {
    fn from(key: &LockKey<'_>) -> ShownKey {
        let bytes = key.bytes();
        let shown = &bytes[..bytes.len().min(KEY_BYTES_SHOWN)];
        ShownKey { index: key.index(), supremum: key.is_supremum(), bytes: SmallVec::from_slice(shown) }
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
        trx: &Arc<TrxLocks>,
        mode: LockMode,
        position: usize,
        mut visit: impl FnMut(&'q Lock) -> bool,
    ) {
        for (i, l) in self.locks.iter().enumerate() {
            let ahead = !l.waiting || i < position;
            if ahead && mode.conflicts_with(l.mode) && !Arc::ptr_eq(&l.trx, trx) && !visit(l) {
                return;
            }
        }
    }

    /// Whether a request of `trx` at `position` has to wait.
    pub(super) fn is_blocked(&self, trx: &Arc<TrxLocks>, mode: LockMode, position: usize) -> bool {
        let mut blocked = false;
        self.each_blocker(trx, mode, position, |_| {
            blocked = true;
            false
        });
        blocked
    }

    /// Where the waiting request of `trx` stands.
    pub(super) fn waiting_position(&self, trx: &Arc<TrxLocks>) -> Option<usize> {
        self.locks.iter().position(|l| l.waiting && Arc::ptr_eq(&l.trx, trx))
    }

    /// Adds a granted lock. The caller notes it with the transaction.
    pub(super) fn push_granted(&mut self, trx: &Arc<TrxLocks>, mode: LockMode) {
        self.locks.push(Lock { trx: Arc::clone(trx), mode, waiting: false });
    }

    /// Adds a granted lock for a transaction that may be asleep. If it is, those who now wait for it as well must look for
    /// deadlocks again; if it is not, it will look itself before it sleeps.
    pub(super) fn push_granted_foreign(&mut self, trx: &Arc<TrxLocks>, mode: LockMode, wake: &mut WakeList) {
        self.push_granted(trx, mode);
        if WaitCell::is_waiting(trx.wait.word()) {
            for l in &self.locks {
                if l.waiting && l.mode.conflicts_with(mode) && !Arc::ptr_eq(&l.trx, trx) {
                    l.trx.wait.poke();
                    wake.push(Arc::clone(&l.trx));
                }
            }
        }
    }

    /// Grants, in order of arrival, whatever need not wait any more. Insert intentions are dropped when granted.
    pub(super) fn grant(&mut self, hash: u64, wake: &mut WakeList) {
        let mut i = 0;
        while i < self.locks.len() {
            let l = &self.locks[i];
            if !l.waiting || self.is_blocked(&l.trx, l.mode, i) {
                i += 1;
                continue;
            }
            let stored = l.mode.extent != Extent::InsertIntention;
            if stored {
                // Before the wait ends: its owner may see the end at once, and release all that is on its list.
                l.trx.add_held(hash);
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
                i += 1;
            } else {
                self.locks.remove(i);
            }
        }
    }
}
