//! The locks of long scans, which are kept in spans with their transaction until somebody else comes to one.
//!
//! A span's lock is a lock as any other, only that its key's queue does not have it: whoever may have to wait for it, or hands it
//! on, brings it into the queue first. All that concerns one key happens under the mutex of its shard. Who may have spans in an
//! index is listed, so that nobody looks for spans where there are none.

use super::groups::Groups;
use super::spans::KEY_BYTES_MAX;
use super::{Extent, LockInfo, LockKey, LockMode, LockTable, Strength, TrxLocks};
use crossbeam_utils::CachePadded;
use myriad_base::IndexId;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Indexes whose ids have the same remainder share their lists.
const LISTS: usize = 256;
/// No more transactions than these are in one list: all who lock a key in the index pass it.
const SCANNERS_MAX: u32 = 4;

/// A transaction that has spans of one strength in the indexes of one list.
pub(super) struct Scanner {
    trx: Arc<TrxLocks>,
    /// Between these [`place`]s are the keys. Written under the mutex of a key's shard, before the key is added.
    low: AtomicU64,
    high: AtomicU64,
}

impl Scanner {
    /// Tells others that it will have a key there.
    pub(super) fn reach(&self, place: u64) {
        if place < self.low.load(Ordering::Relaxed) {
            self.low.store(place, Ordering::Relaxed);
        }
        if place > self.high.load(Ordering::Relaxed) {
            self.high.store(place, Ordering::Relaxed);
        }
    }

    fn reaches(&self, place: u64) -> bool {
        (self.low.load(Ordering::Relaxed)..=self.high.load(Ordering::Relaxed)).contains(&place)
    }
}

#[derive(Default)]
struct List {
    /// How many are in `scanners`, or about to be.
    len: AtomicU32,
    scanners: RwLock<SmallVec<[Arc<Scanner>; SCANNERS_MAX as usize]>>,
}

impl List {
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

/// All who have spans: a list for each strength and remainder of an index's id.
pub(super) struct Scanners {
    lists: Box<[CachePadded<[List; 2]>]>,
}

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ListNo(u32);

impl ListNo {
    fn of(index: IndexId, strength: Strength) -> ListNo {
        ListNo(index.0 % LISTS as u32 * 2 + strength as u32)
    }

    /// For [`TrxLocks::scans`]: never 0.
    pub(super) fn mark(self) -> u32 {
        self.0 + 1
    }
}

impl Default for Scanners {
    fn default() -> Scanners {
        Scanners { lists: (0..LISTS).map(|_| CachePadded::default()).collect() }
    }
}

impl Scanners {
    fn list(&self, no: ListNo) -> &List {
        &self.lists[no.0 as usize / 2][no.0 as usize % 2]
    }

    fn of(&self, index: IndexId) -> &[List; 2] {
        &self.lists[index.0 as usize % LISTS]
    }

    /// Whether nobody has spans in the index. The caller holds the latch of the leaf of a key, or its shard's mutex.
    #[inline]
    pub(super) fn none_in(&self, index: IndexId) -> bool {
        self.of(index).iter().all(List::is_empty)
    }

    /// Adds the transaction, if there is room.
    fn add(&self, trx: &Arc<TrxLocks>, no: ListNo) -> Option<Arc<Scanner>> {
        let list = self.list(no);
        let grow = |len| (len < SCANNERS_MAX).then_some(len + 1);
        list.len.fetch_update(Ordering::AcqRel, Ordering::Relaxed, grow).ok()?;
        let (low, high) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let scanner = Arc::new(Scanner { trx: Arc::clone(trx), low, high });
        list.scanners.write().push(Arc::clone(&scanner));
        Some(scanner)
    }

    /// Of a transaction whose spans are gone.
    pub(super) fn remove(&self, no: ListNo, scanner: &Arc<Scanner>) {
        let list = self.list(no);
        list.scanners.write().retain(|s| !Arc::ptr_eq(s, scanner));
        list.len.fetch_sub(1, Ordering::AcqRel);
    }

    /// Calls `f` with the transactions that may have the key in a span of this strength, until it gives false.
    fn each_at(&self, key: &LockKey<'_>, strength: Strength, mut f: impl FnMut(&Arc<TrxLocks>) -> bool) {
        let list = self.list(ListNo::of(key.index(), strength));
        if list.is_empty() {
            return;
        }
        let place = place(key);
        let scanners = list.scanners.read();
        let _ = scanners.iter().filter(|s| s.reaches(place)).all(|s| f(&s.trx));
    }
}

/// The strengths that do not go together with this one.
fn conflicting(strength: Strength) -> &'static [Strength] {
    match strength {
        Strength::S => &[Strength::X],
        Strength::X => &[Strength::S, Strength::X],
    }
}

/// A number that is not lower for a higher key of the same index: its first bytes behind the index id.
fn place(key: &LockKey<'_>) -> u64 {
    let mut first = [0; 8];
    let columns = key.bytes().get(4..).unwrap_or(&[]);
    let n = columns.len().min(first.len());
    first[..n].copy_from_slice(&columns[..n]);
    u64::from_be_bytes(first)
}

impl LockTable {
    /// Locks the entry that a long scan upwards has come to, where nobody else has or wants a lock of it: in a span, from which it
    /// is never given back early. `false`: it is to be requested, as any other.
    ///
    /// `mode` covers the record.
    pub fn add_to_span(&self, trx: &Arc<TrxLocks>, key: LockKey<'_>, mode: LockMode) -> bool {
        let no = ListNo::of(key.index(), mode.strength);
        if key.bytes().len() > KEY_BYTES_MAX || !trx.scans(no, || self.scanners.add(trx, no)) {
            return false;
        }
        self.note_index(trx, key.index());
        let hash = key.hash();
        let queues = self.shard(hash);
        if self.may_have_group(hash) && queues.has_group(hash) || self.is_in_anothers_span(trx, &key, mode) {
            return false;
        }
        let Some(more) = trx.add_to_span(key.bytes(), mode, no, place(&key)) else { return false };
        self.count(more);
        trx.note_exclusive(hash, mode);
        true
    }

    fn is_in_anothers_span(&self, trx: &Arc<TrxLocks>, key: &LockKey<'_>, mode: LockMode) -> bool {
        let mut found = false;
        for strength in conflicting(mode.strength) {
            // Mostly it is there alone.
            let own = u32::from(*strength == mode.strength);
            if self.scanners.list(ListNo::of(key.index(), *strength)).len.load(Ordering::Relaxed) > own {
                self.scanners.each_at(key, *strength, |other| {
                    found |= !Arc::ptr_eq(other, trx) && other.span_mode(key.bytes()).is_some();
                    !found
                });
            }
        }
        found
    }

    /// Brings the span's locks that a request of `trx` must look at into the key's queue. Whether it has the lock in a span
    /// itself. The caller holds the mutex of the key's shard.
    pub(super) fn bring_in_for(
        &self,
        queues: &mut Groups,
        trx: &Arc<TrxLocks>,
        key: &LockKey<'_>,
        mode: LockMode,
    ) -> bool {
        let insert = mode.extent == Extent::InsertIntention;
        if !insert && trx.has_scanned() {
            match trx.span_mode(key.bytes()) {
                Some(held) if held.covers(mode) => return true,
                Some(_) => self.bring_in(queues, trx, key),
                None => {}
            }
        }
        if mode.extent == Extent::Gap {
            return false;
        }
        for strength in conflicting(mode.strength) {
            self.scanners.each_at(key, *strength, |other| {
                if !Arc::ptr_eq(other, trx) {
                    self.bring_in(queues, other, key);
                }
                true
            });
        }
        false
    }

    /// Brings all locks that are in spans into the key's queue. The caller holds the mutex of the key's shard.
    pub(super) fn bring_in_all(&self, queues: &mut Groups, key: &LockKey<'_>) {
        for strength in [Strength::S, Strength::X] {
            self.scanners.each_at(key, strength, |trx| {
                self.bring_in(queues, trx, key);
                true
            });
        }
    }

    /// Nobody waits in the queue whom the lock holds up: who would have had to wait has brought it in before.
    fn bring_in(&self, queues: &mut Groups, trx: &Arc<TrxLocks>, key: &LockKey<'_>) {
        if let Some(mode) = trx.take_from_span(key.bytes(), key.hash()) {
            self.queue_of(queues, key).push_granted(&*self.order, trx, mode);
        }
    }

    /// Calls `f` with the locks that are in spans until it gives false. Without any mutex.
    pub(super) fn list_spans(&self, f: &mut dyn FnMut(&LockInfo) -> bool) {
        for no in (0..2 * LISTS as u32).map(ListNo) {
            let scanners = self.scanners.list(no).scanners.read().clone();
            for scanner in &scanners {
                let (trx_id, thread_id) = (scanner.trx.shown_id(), scanner.trx.thread_id());
                let (mut infos, mut above) = (Vec::new(), Vec::new());
                while let Some(mode) = scanner.trx.next_span(&mut above, |mode, key| {
                    let index = LockKey::entry(key).index();
                    let (key, blockers) = (key.to_vec(), Vec::new());
                    infos.push(LockInfo {
                        trx_id,
                        thread_id,
                        mode,
                        granted: true,
                        index,
                        key,
                        supremum: false,
                        blockers,
                    });
                }) {
                    // The spans of all lists are seen at each.
                    let infos = infos.drain(..).filter(|info| ListNo::of(info.index, mode.strength) == no);
                    if !infos.collect::<Vec<_>>().iter().all(&mut *f) {
                        return;
                    }
                }
            }
        }
    }
}
