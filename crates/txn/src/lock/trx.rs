//! A transaction's side of the locks.

use super::key::group_of;
use super::park::WaitCell;
use super::scans::{ListNo, Scanner};
use super::spans::Spans;
use super::table::GROUP_BYTES;
use super::{Inheritance, LockMode, Strength};
use myriad_base::{waits, TrxId};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::Arc;

/// So many locks weigh as much as a change when a deadlock's victim is chosen.
const LOCKS_PER_CHANGE: u64 = 64;

/// A transaction's locks. Made once per session (or recovered transaction) and used for its transactions one after the
/// other: [`TrxLocks::begin`], requests, [`super::LockTable::release_all`].
///
/// Requests, waits and releases are made by one thread at a time, the transaction's own. Others may give it locks
/// (implicit ones made explicit, inherited gaps), grant what it waits for, make it a victim, or kill its wait.
pub struct TrxLocks {
    pub(super) wait: WaitCell,
    /// Hash of the key it waits for; meaningful while `wait` says so. Written under that key's shard mutex.
    pub(super) waiting_on: AtomicU64,
    /// Wall-clock time at which the wait began, in microseconds; 0 if there is none.
    pub(super) wait_start_us: AtomicU64,
    /// Number of the last search for deadlocks that came by; used under the detection mutex only.
    pub(super) visited: AtomicU64,
    thd: AtomicUsize,
    thread_id: AtomicU64,
    /// Picks where it is counted; those made one after the other get different ones.
    pub(super) stripe: usize,
    trx_id: AtomicU64,
    undo_records: AtomicU64,
    /// Hash of a key on whose record it has an exclusive lock: the one it got last; 0 = not known. A scan that changes what
    /// it reads asks twice for each.
    exclusive: AtomicU64,
    inheritance: AtomicU8,
    /// One more than the counter of the index that it asked in last; 0 = none.
    last_index: AtomicU32,
    /// [`ListNo::mark`] of the list that it asked for last and is in; 0 = it is in none.
    scans: AtomicU32,
    /// How many of its groups of locks [`super::LockTable`] counts, in steps of [`COUNTED_STEP`]: few of a transaction's are
    /// not counted. Written under the mutex of `held`.
    counted: AtomicUsize,
    /// Whether there is anything to release: an id or a lock.
    used: AtomicBool,
    /// Locks that have joined or left runs, on top of [`Held::count`], wrapping: most locks of a scan do. Written by the
    /// transaction's own thread alone, without the mutex of `held`.
    joined: AtomicUsize,
    held: Mutex<Held>,
}

/// Taken after a shard mutex, never before one.
#[derive(Default)]
struct Held {
    /// The transaction whose implicit locks may be made explicit; 0 if there is none or its release has begun.
    id: u64,
    /// `release_all` has taken the list: nobody may add to it until it is done.
    closing: bool,
    /// The groups of the keys on which it has granted locks: once for a run, else once for each lock. May hold ones whose
    /// locks have moved away.
    groups: Vec<u64>,
    /// Locks that are in no queue.
    spans: Spans,
    /// Where others learn of them.
    scanners: SmallVec<[(ListNo, Arc<Scanner>); 2]>,
    /// Number of its locks but those of [`TrxLocks::joined`], wrapping.
    count: usize,
    /// Indexes in which it has, had or wants locks, by their places in [`super::LockTable`]'s counters.
    indexes: SmallVec<[u16; 4]>,
}

impl Held {
    fn add(&mut self, hash: u64) {
        self.groups.push(group_of(hash));
        self.count = self.count.wrapping_add(1);
    }

    /// What its locks take in memory, counted in groups.
    fn size(&self) -> usize {
        self.groups.len() + self.spans.bytes() / GROUP_BYTES as usize
    }
}

/// Longer lists are not kept for the next transaction.
const KEEP_GROUPS: usize = 4096;

/// Groups of locks that a transaction gets before they count.
pub(super) const COUNTED_STEP: usize = 256;

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

impl TrxLocks {
    /// Of no transaction yet.
    pub fn new() -> Arc<TrxLocks> {
        Arc::new(TrxLocks {
            wait: WaitCell::new(),
            waiting_on: AtomicU64::new(0),
            wait_start_us: AtomicU64::new(0),
            visited: AtomicU64::new(0),
            thd: AtomicUsize::new(0),
            thread_id: AtomicU64::new(0),
            stripe: NEXT_STRIPE.fetch_add(1, Ordering::Relaxed),
            trx_id: AtomicU64::new(0),
            undo_records: AtomicU64::new(0),
            exclusive: AtomicU64::new(0),
            inheritance: AtomicU8::new(Inheritance::All as u8),
            last_index: AtomicU32::new(0),
            scans: AtomicU32::new(0),
            counted: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            joined: AtomicUsize::new(0),
            held: Mutex::new(Held::default()),
        })
    }

    /// A transaction begins; `id` is `TrxId(0)` if it has none yet. The previous one must have released its locks.
    pub fn begin(&self, id: TrxId, inheritance: Inheritance) {
        assert!(!self.used.load(Ordering::Relaxed), "the previous transaction has not released its locks");
        self.undo_records.store(0, Ordering::Relaxed);
        self.set_inheritance(inheritance);
        if id != TrxId(0) {
            self.set_trx_id(id);
        }
    }

    /// The transaction gets its id: before its first change, because from then on entries that name it are its implicit
    /// locks.
    pub fn set_trx_id(&self, id: TrxId) {
        self.used.store(true, Ordering::Relaxed);
        self.trx_id.store(id.0, Ordering::Relaxed);
        self.held.lock().id = id.0;
    }

    /// The transaction's id, `TrxId(0)` if it has none.
    pub fn trx_id(&self) -> TrxId {
        TrxId(self.trx_id.load(Ordering::Relaxed))
    }

    /// The id shown to users: for a transaction without one, a number beyond all ids that stays the same while it lives.
    pub fn shown_id(&self) -> u64 {
        match self.trx_id.load(Ordering::Relaxed) {
            0 => (1 << 48) + (std::ptr::from_ref(self) as usize as u64 & ((1 << 48) - 1)),
            id => id,
        }
    }

    /// The isolation level or kind of statement changed.
    pub fn set_inheritance(&self, inheritance: Inheritance) {
        self.inheritance.store(inheritance as u8, Ordering::Relaxed);
    }

    pub(super) fn inheritance(&self) -> Inheritance {
        match self.inheritance.load(Ordering::Relaxed) {
            0 => Inheritance::All,
            1 => Inheritance::SharedOnly,
            _ => Inheritance::ExclusiveOnly,
        }
    }

    /// How much a rollback would undo: the number of undo records.
    pub fn set_weight(&self, undo_records: u64) {
        self.undo_records.store(undo_records, Ordering::Relaxed);
    }

    /// The lightest transaction of a deadlock is its victim: whose rollback loses the fewest changes. Rows that are only locked
    /// are read again soon: a page's worth of them weighs as much as one change, as with InnoDB.
    pub(super) fn weight(&self) -> (u64, u64) {
        let locks = self.locks_held() as u64;
        (self.undo_records.load(Ordering::Relaxed).saturating_add(locks / LOCKS_PER_CHANGE), locks)
    }

    /// Whose it is: the session's thd pointer for [`super::CommitOrder`], and its connection for reports; 0 if it has none.
    pub fn set_owner(&self, thd: usize, thread_id: u64) {
        self.thd.store(thd, Ordering::Relaxed);
        self.thread_id.store(thread_id, Ordering::Relaxed);
    }

    pub(super) fn thread_id(&self) -> u64 {
        self.thread_id.load(Ordering::Relaxed)
    }

    pub(super) fn thd(&self) -> usize {
        self.thd.load(Ordering::Relaxed)
    }

    /// Ends the present wait, or the next, with [`super::WaitOutcome::Interrupted`], until [`TrxLocks::reset_kill`]. Any
    /// thread.
    pub fn kill(&self) {
        self.wait.kill();
    }

    /// A new statement begins: earlier kills are forgotten.
    pub fn reset_kill(&self) {
        self.wait.reset_kill();
    }

    /// Whether [`TrxLocks::kill`] was called since [`TrxLocks::reset_kill`].
    pub fn is_killed(&self) -> bool {
        self.wait.is_killed()
    }

    /// Does what changes nothing; once [`TrxLocks::is_killed`], it does not wait for frames of the pool.
    #[inline]
    pub fn until_killed<T>(&self, read: impl FnOnce() -> T) -> T {
        waits::until_killed(&|| self.is_killed(), read)
    }

    /// Number of locks held. Locks that moved from a removed entry to its successor count twice.
    pub fn locks_held(&self) -> usize {
        self.held.lock().count.wrapping_add(self.joined.load(Ordering::Relaxed))
    }

    /// Wall-clock microseconds at which the present wait began; 0 if there is none.
    pub fn wait_start_wall_us(&self) -> u64 {
        self.wait_start_us.load(Ordering::Relaxed)
    }

    /// Notes that a lock with this mode was found or granted on the key with this hash. The caller holds its shard's mutex.
    pub(super) fn note_exclusive(&self, hash: u64, mode: LockMode) {
        if mode.strength == Strength::X && mode.covers_record() {
            self.exclusive.store(hash, Ordering::Relaxed);
        }
    }

    /// A lock of the transaction goes, or moves, before its end. The caller holds its shard's mutex.
    pub(super) fn forget_exclusive(&self) {
        self.exclusive.store(0, Ordering::Relaxed);
    }

    /// Whether it is known to have an exclusive lock on the record of the key with this hash. The caller holds the latch of
    /// the entry's leaf.
    pub(super) fn has_exclusive(&self, hash: u64) -> bool {
        hash != 0 && self.exclusive.load(Ordering::Relaxed) == hash
    }

    /// Remembers a lock granted to the caller's own transaction; gives by how many groups more [`super::LockTable`] has to count
    /// (mostly 0). The caller holds its shard's mutex.
    pub(super) fn add_held(&self, hash: u64) -> usize {
        self.used.store(true, Ordering::Relaxed);
        let mut held = self.held.lock();
        held.add(hash);
        self.count(&held)
    }

    /// Remembers a lock granted to another transaction, which waits for it. Its next one counts this one too.
    pub(super) fn add_held_uncounted(&self, hash: u64) {
        self.used.store(true, Ordering::Relaxed);
        self.held.lock().add(hash);
    }

    fn count(&self, held: &Held) -> usize {
        let (before, now) = (self.counted.load(Ordering::Relaxed), held.size());
        if now < before + COUNTED_STEP {
            return 0;
        }
        self.counted.store(now, Ordering::Relaxed);
        now - before
    }

    /// How many of its groups of locks are counted.
    pub(super) fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    /// Remembers that it has, or will ask for, locks in the index with this counter; whether that is new. The caller is the
    /// transaction's own.
    pub(super) fn note_index(&self, counter: u16) -> bool {
        if self.last_index.load(Ordering::Relaxed) == u32::from(counter) + 1 {
            return false;
        }
        self.last_index.store(u32::from(counter) + 1, Ordering::Relaxed);
        let mut held = self.held.lock();
        let new = !held.indexes.contains(&counter);
        if new {
            self.used.store(true, Ordering::Relaxed);
            held.indexes.push(counter);
        }
        new
    }

    /// The counters of all indexes in which it had locks; they are forgotten. After the locks are gone, and before
    /// [`TrxLocks::closed`].
    pub(super) fn take_indexes(&self) -> SmallVec<[u16; 4]> {
        self.last_index.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.held.lock().indexes)
    }

    /// Whether it is in the list, or finds room there (`enlist`). The caller is the transaction's own, as it is of the next three.
    pub(super) fn scans(&self, no: ListNo, enlist: impl FnOnce() -> Option<Arc<Scanner>>) -> bool {
        if self.scans.load(Ordering::Relaxed) == no.mark() {
            return true;
        }
        let listed = self.held.lock().scanners.iter().any(|(n, _)| *n == no);
        if !listed {
            let Some(scanner) = enlist() else { return false };
            self.used.store(true, Ordering::Relaxed);
            self.held.lock().scanners.push((no, scanner));
        }
        self.scans.store(no.mark(), Ordering::Relaxed);
        true
    }

    /// Whether it may have spans.
    pub(super) fn has_scanned(&self) -> bool {
        self.scans.load(Ordering::Relaxed) != 0
    }

    /// Adds a lock to a span, if its key fits in, and gives by how many groups more [`super::LockTable`] has to count. The caller
    /// holds its shard's mutex.
    pub(super) fn add_to_span(&self, key: &[u8], mode: LockMode, no: ListNo, place: u64) -> Option<usize> {
        let mut held = self.held.lock();
        let (_, scanner) = held.scanners.iter().find(|(n, _)| *n == no)?;
        scanner.reach(place);
        if !held.spans.add(key, mode) {
            return None;
        }
        held.count = held.count.wrapping_add(1);
        Some(self.count(&held))
    }

    /// All lists that it is in, once its spans are gone.
    pub(super) fn take_scanners(&self) -> SmallVec<[(ListNo, Arc<Scanner>); 2]> {
        self.scans.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.held.lock().scanners)
    }

    /// The mode of the lock that it has on this key in a span. The caller holds the key's shard's mutex.
    pub(super) fn span_mode(&self, key: &[u8]) -> Option<LockMode> {
        self.held.lock().spans.mode(key)
    }

    /// Takes the lock on this key out of its span, for a queue; its mode. The caller holds the key's shard's mutex.
    pub(super) fn take_from_span(&self, key: &[u8], hash: u64) -> Option<LockMode> {
        let mut held = self.held.lock();
        let mode = held.spans.take(key)?;
        held.groups.push(group_of(hash));
        Some(mode)
    }

    /// See [`Spans::next`].
    pub(super) fn next_span(&self, above: &mut Vec<u8>, f: impl FnMut(LockMode, &[u8])) -> Option<LockMode> {
        self.held.lock().spans.next(above, f)
    }

    /// A lock was added to a run, which is remembered. The caller holds its shard's mutex and is the transaction's own.
    pub(super) fn note_joined(&self) {
        self.add_joined(1);
    }

    /// A lock has left a run, but is not its last. The caller holds its shard's mutex and is the transaction's own.
    pub(super) fn note_left(&self) {
        self.forget_exclusive();
        self.add_joined(usize::MAX);
    }

    fn add_joined(&self, more: usize) {
        self.joined.store(self.joined.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// A run was set apart: remembers its other locks. Not while they are being released, all of a group together. The caller
    /// holds their shard's mutex.
    pub(super) fn note_apart(&self, group: u64, others: usize) {
        let mut held = self.held.lock();
        if !held.closing {
            held.groups.extend(std::iter::repeat_n(group, others));
        }
    }

    /// As [`TrxLocks::add_held`], but `None` if the transaction is releasing its locks. `joins` tells whether the lock has
    /// joined a run, which is remembered. The caller holds the shard mutex of the lock, and of another of the same transaction.
    pub(super) fn add_inherited(&self, hash: u64, joins: impl FnOnce() -> bool) -> Option<usize> {
        let mut held = self.held.lock();
        if held.closing {
            return None;
        }
        // It may have had nothing but the request that it waits with.
        self.used.store(true, Ordering::Relaxed);
        if joins() {
            held.count = held.count.wrapping_add(1);
        } else {
            held.add(hash);
        }
        Some(self.count(&held))
    }

    /// Calls `add` and remembers its lock and index (calls `new_index` if that is new), unless the transaction is no longer
    /// `id`. `add` tells whether it added one. The caller holds the lock's shard mutex.
    pub(super) fn add_if_active(
        &self,
        id: TrxId,
        hash: u64,
        index: u16,
        new_index: impl FnOnce(),
        add: impl FnOnce() -> bool,
    ) -> bool {
        let mut held = self.held.lock();
        if id == TrxId(0) || held.id != id.0 {
            return false;
        }
        if !held.indexes.contains(&index) {
            held.indexes.push(index);
            new_index();
        }
        if add() {
            held.add(hash);
        }
        true
    }

    /// Forgets one lock on the key with this hash; usually the youngest.
    pub(super) fn forget_held(&self, hash: u64) {
        self.forget_exclusive();
        let mut held = self.held.lock();
        if let Some(at) = held.groups.iter().rposition(|&g| g == group_of(hash)) {
            held.groups.remove(at);
            held.count = held.count.wrapping_sub(1);
        }
    }

    /// The groups of its locks, to be given back: meanwhile others may add to the list. Of its spans only what a prepared
    /// transaction keeps is left.
    pub(super) fn take_groups(&self) -> Vec<u64> {
        self.forget_exclusive();
        let mut held = self.held.lock();
        held.count = held.count.wrapping_sub(held.spans.release_reads());
        std::mem::take(&mut held.groups)
    }

    /// After [`TrxLocks::take_groups`] gives back those in which locks are left, once `locks` have gone; gives by how many
    /// groups fewer [`super::LockTable`] has to count.
    pub(super) fn give_back_groups(&self, groups: Vec<u64>, locks: usize) -> usize {
        let mut held = self.held.lock();
        held.groups.extend(groups);
        held.count = held.count.wrapping_sub(locks);
        let before = self.counted.load(Ordering::Relaxed);
        let now = before.min(held.size());
        self.counted.store(now, Ordering::Relaxed);
        before - now
    }

    /// The transaction ends: from now on nobody gives it a lock. `None` if there is nothing to release. Else to be followed
    /// by [`TrxLocks::closed`] when the locks are gone.
    pub(super) fn close(&self) -> Option<Vec<u64>> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.forget_exclusive();
        let mut held = self.held.lock();
        held.id = 0;
        held.closing = true;
        held.count = 0;
        self.joined.store(0, Ordering::Relaxed);
        let spans = std::mem::take(&mut held.spans);
        let groups = std::mem::take(&mut held.groups);
        drop(held);
        drop(spans);
        Some(groups)
    }

    /// All locks are gone; the list's memory may serve the next transaction. Gives how many groups were counted.
    pub(super) fn closed(&self, mut groups: Vec<u64>) -> usize {
        groups.clear();
        groups.shrink_to(KEEP_GROUPS);
        let mut held = self.held.lock();
        debug_assert!(held.closing && held.groups.is_empty());
        held.groups = groups;
        held.closing = false;
        let counted = self.counted.swap(0, Ordering::Relaxed);
        drop(held);
        self.trx_id.store(0, Ordering::Relaxed);
        self.used.store(false, Ordering::Relaxed);
        counted
    }
}
