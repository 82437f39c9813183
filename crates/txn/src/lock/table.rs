//! The lock table: shards of queues, requests, releases, inheritance.

use super::groups::{Groups, Quick};
use super::key::group_of;
use super::park::{WaitCell, WaitState};
use super::queue::{Queue, ShownKey, WakeList};
use super::scans::Scanners;
use super::{
    CommitOrder, DeadlockInfo, DeadlockListener, Extent, ImplicitHolder, Inheritance, Listing, LockInfo, LockKey,
    LockMode, LockOutcome, LockStats, Strength, TrxLocks, WaitPolicy, WaitToken,
};
use crossbeam_utils::CachePadded;
use myriad_base::clock::Clock;
use myriad_base::ids::mix;
use myriad_base::latch::{lock_counted, LatchClass};
use myriad_base::{Error, IndexId, Result, TrxId};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const SHARDS: usize = 256;
/// Counters of transactions by index, in each stripe.
const INDEX_COUNTERS: usize = 2048;
/// A transaction counts in one of them: two in one index rarely write the same cache line.
const STRIPES: usize = 8;
const FILTER_BITS: u32 = 16;
/// An empty shard's map is given back if it has grown beyond this.
const KEEP_GROUPS: usize = 4096;
/// Most locks released while a shard's mutex is held.
const RELEASE_RUN: usize = 64;
/// What a group takes in memory, about: its place in the map, its queue, a key of some 40 bytes, its place in the
/// transaction's list.
pub(super) const GROUP_BYTES: u64 = 200;
/// More sleepers than these are woken before all locks are released.
const WAKE_AT_ONCE: usize = 64;

pub(super) type ShardGuard<'s> = MutexGuard<'s, Groups>;

/// All locks.
///
/// Order of its mutexes: detection, then one shard (several in the order of their numbers), then one `TrxLocks::held`. They
/// are taken below page latches, and nothing else is taken below them, but for what [`CommitOrder`] takes.
pub struct LockTable {
    shards: Box<[CachePadded<Mutex<Groups>>]>,
    /// Groups of keys by 16 bits of their hash: zero means that there is no lock.
    filter: Box<[AtomicU32]>,
    /// Transactions that have, had or want locks in an index, by stripe and hash of its id.
    by_index: Box<[AtomicU32]>,
    pub(super) scanners: Scanners,
    /// Groups in the hands of transactions that have many, and how many there may be. For a moment below zero when a
    /// transaction ends before what it got from another thread is counted.
    counted: CachePadded<AtomicI64>,
    counted_max: AtomicI64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) order: Arc<dyn CommitOrder>,
    pub(super) detect: AtomicBool,
    /// Number of the last search for deadlocks. Held during one; taken by those who are about to sleep, nobody else.
    pub(super) search: CachePadded<Mutex<u64>>,
    pub(super) totals: CachePadded<Totals>,
    /// Below the search's mutex; nothing is taken below it.
    pub(super) last_deadlock: Mutex<Option<DeadlockInfo>>,
    pub(super) listener: OnceLock<DeadlockListener>,
}

/// See [`LockStats`].
#[derive(Default)]
pub(super) struct Totals {
    pub(super) waits: AtomicU64,
    pub(super) wait_us: AtomicU64,
    pub(super) wait_us_max: AtomicU64,
    pub(super) waiting_now: AtomicU64,
    pub(super) deadlocks: AtomicU64,
    pub(super) timeouts: AtomicU64,
}

/// Wakes them all.
pub(super) fn wake_all(wake: &mut WakeList) {
    for trx in wake.drain(..) {
        trx.wait.wake();
    }
}

pub(super) fn shard_no(hash: u64) -> usize {
    // Not the bits by which the map places and tags its entries (low and high).
    (hash >> 32) as usize % SHARDS
}

fn index_counter(index: IndexId) -> u16 {
    (mix(u64::from(index.0)) % INDEX_COUNTERS as u64) as u16
}

impl LockTable {
    /// An empty table. `clock` tells when waits begin, for listings; time-outs are the operating system's.
    pub fn new(clock: Arc<dyn Clock>, deadlock_detect: bool, order: Arc<dyn CommitOrder>) -> LockTable {
        LockTable {
            shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Groups::default()))).collect(),
            filter: (0..1usize << FILTER_BITS).map(|_| AtomicU32::new(0)).collect(),
            by_index: (0..STRIPES * INDEX_COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            scanners: Scanners::default(),
            counted: CachePadded::default(),
            counted_max: AtomicI64::new(i64::MAX),
            clock,
            order,
            detect: AtomicBool::new(deadlock_detect),
            search: CachePadded::default(),
            totals: CachePadded::default(),
            last_deadlock: Mutex::new(None),
            listener: OnceLock::new(),
        }
    }

    /// Whether there may be a lock on the key. False positives only. Three relaxed loads: the caller's latch of the leaf that
    /// covers the key orders them after the requests of earlier holders of that latch.
    #[inline]
    pub fn may_have_locks(&self, key: &LockKey<'_>) -> bool {
        self.may_have_group(key.hash()) || !self.scanners.none_in(key.index())
    }

    /// Whether there may be a group with this hash's key in the queues.
    #[inline]
    pub(super) fn may_have_group(&self, hash: u64) -> bool {
        self.filter_slot(hash).load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn filter_slot(&self, hash: u64) -> &AtomicU32 {
        &self.filter[(hash >> (64 - FILTER_BITS)) as usize]
    }

    /// Whether a transaction that goes on may have explicit locks in the index. False positives only. Whoever gets a lock
    /// counts from before then on, so it is counted for all who come to a leaf's frame after it.
    pub fn may_have_locks_in(&self, index: IndexId) -> bool {
        let counter = usize::from(index_counter(index));
        self.by_index.iter().skip(counter).step_by(INDEX_COUNTERS).any(|n| n.load(Ordering::Acquire) != 0)
    }

    /// Limits what row locks may take of memory. No limit at first.
    pub fn set_memory_max(&self, bytes: u64) {
        let groups = i64::try_from(bytes / GROUP_BYTES).unwrap_or(i64::MAX);
        self.counted_max.store(groups, Ordering::Relaxed);
    }

    /// Refuses more locks to a transaction that has many, once there are as many as there may be. Others go on. To be asked
    /// before each step that locks, as the requests do not look.
    ///
    /// # Errors
    /// [`Error::LockTableFull`].
    #[inline]
    pub fn check_room(&self, trx: &TrxLocks) -> Result<()> {
        let max = self.counted_max.load(Ordering::Relaxed);
        if trx.counted() == 0 || self.counted.load(Ordering::Relaxed) < max {
            return Ok(());
        }
        Err(Error::LockTableFull { limit_bytes: (max as u64).saturating_mul(GROUP_BYTES) })
    }

    pub(super) fn count(&self, more: usize) {
        if more > 0 {
            self.counted.fetch_add(more as i64, Ordering::Relaxed);
        }
    }

    fn uncount(&self, fewer: usize) {
        if fewer > 0 {
            self.counted.fetch_sub(fewer as i64, Ordering::Relaxed);
        }
    }

    fn by_index_of(&self, trx: &TrxLocks, counter: u16) -> &AtomicU32 {
        &self.by_index[trx.stripe % STRIPES * INDEX_COUNTERS + usize::from(counter)]
    }

    /// The transaction is about to ask for a lock in the index.
    #[inline]
    pub(super) fn note_index(&self, trx: &TrxLocks, index: IndexId) {
        let counter = index_counter(index);
        if trx.note_index(counter) {
            self.count_index(trx, counter);
        }
    }

    fn count_index(&self, trx: &TrxLocks, counter: u16) {
        self.by_index_of(trx, counter).fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn shard(&self, hash: u64) -> ShardGuard<'_> {
        self.lock_shard(shard_no(hash))
    }

    pub(super) fn lock_shard(&self, no: usize) -> ShardGuard<'_> {
        lock_counted(&self.shards[no], LatchClass::LockTable.part(no))
    }

    /// The queue of `key`, made if there is none.
    pub(super) fn queue_of<'s>(&self, queues: &'s mut Groups, key: &LockKey<'_>) -> &'s mut Queue {
        let (queue, new_group) = queues.queue_or_new(key);
        if new_group {
            self.filter_slot(key.hash()).fetch_add(1, Ordering::Relaxed);
        }
        queue
    }

    /// Changes the queue with this hash, if there is one, grants what has become free, and removes it if it is empty.
    fn change_queue(&self, queues: &mut Groups, hash: u64, wake: &mut WakeList, change: impl FnOnce(&mut Queue)) {
        let Some(queue) = queues.queue_mut(hash) else { return };
        change(queue);
        queue.grant(&*self.order, hash, wake);
        if queue.locks.is_empty() && queues.remove(hash) {
            self.group_gone(queues, hash);
        }
    }

    fn group_gone(&self, queues: &mut Groups, hash: u64) {
        self.filter_slot(hash).fetch_sub(1, Ordering::Relaxed);
        queues.shrink_if_empty(KEEP_GROUPS);
    }

    /// Asks for a lock.
    ///
    /// On the supremum, next-key means gap, and a record lock is a caller's mistake (panics). An insert intention is never
    /// stored unless it has to wait. Of a next-key lock whose record part the transaction has, the gap alone is taken, which
    /// waits for nobody.
    pub fn request(&self, trx: &Arc<TrxLocks>, key: LockKey<'_>, mode: LockMode, policy: WaitPolicy) -> LockOutcome {
        let mode = mode.on(&key);
        if mode.extent != Extent::InsertIntention {
            self.note_index(trx, key.index());
            self.ask(trx, key, mode, policy, true)
        } else if self.may_have_locks(&key) {
            self.ask(trx, key, mode, policy, false)
        } else {
            LockOutcome::Granted { new: false }
        }
    }

    /// Asks for an exclusive record lock for somebody who is about to write its id into the entry under the latch it holds:
    /// the entry's header will be the lock (implicit), so nothing is stored if nothing conflicts. The caller has made sure
    /// that no other active transaction has an implicit lock ([`LockTable::convert_implicit`] where one has).
    #[inline]
    pub fn request_implicit(&self, trx: &Arc<TrxLocks>, key: LockKey<'_>, policy: WaitPolicy) -> LockOutcome {
        if !self.may_have_locks(&key) || trx.has_exclusive(key.hash()) {
            return LockOutcome::Granted { new: false };
        }
        self.ask(trx, key, LockMode::X_RECORD.on(&key), policy, false)
    }

    fn ask(
        &self,
        trx: &Arc<TrxLocks>,
        key: LockKey<'_>,
        mut mode: LockMode,
        policy: WaitPolicy,
        store: bool,
    ) -> LockOutcome {
        let hash = key.hash();
        let mut queues = self.shard(hash);
        if !self.scanners.none_in(key.index()) && self.bring_in_for(&mut queues, trx, &key, mode) {
            trx.note_exclusive(hash, mode);
            return LockOutcome::Granted { new: false };
        }
        match queues.quick(trx, &key, mode, store) {
            Quick::Free => return LockOutcome::Granted { new: false },
            Quick::Held => {
                trx.note_exclusive(hash, mode);
                return LockOutcome::Granted { new: false };
            }
            Quick::Begun => {
                self.filter_slot(hash).fetch_add(1, Ordering::Relaxed);
                self.count(trx.add_held(hash));
                trx.note_exclusive(hash, mode);
                return LockOutcome::Granted { new: true };
            }
            Quick::Joined => {
                trx.note_joined();
                trx.note_exclusive(hash, mode);
                return LockOutcome::Granted { new: true };
            }
            Quick::Queue => {}
        }
        let queue = self.queue_of(&mut queues, &key);
        if queue.covers(trx, mode) {
            trx.note_exclusive(hash, mode);
            return LockOutcome::Granted { new: false };
        }
        if mode.extent == Extent::NextKey && queue.covers(trx, LockMode::new(mode.strength, Extent::Record)) {
            mode.extent = Extent::Gap;
        }
        let order = &*self.order;
        if queue.is_blocked(order, trx, mode, queue.locks.len()) {
            if policy == WaitPolicy::NoWait {
                return LockOutcome::WouldBlock;
            }
            if mode.extent != Extent::InsertIntention {
                // Once granted it is kept, also where without a wait nothing would have been stored.
                self.note_index(trx, key.index());
            }
            trx.waiting_on.store(hash, Ordering::Relaxed);
            let word = trx.wait.begin();
            queue.push_waiting(order, trx, mode);
            return LockOutcome::Waiting(WaitToken { hash, word });
        }
        if store {
            queue.push_granted(order, trx, mode);
            self.count(trx.add_held(hash));
            trx.note_exclusive(hash, mode);
        }
        LockOutcome::Granted { new: store }
    }

    /// Removes the waiting request of `trx` from the queue with this hash and grants what it held up.
    pub(super) fn withdraw(&self, queues: &mut Groups, trx: &Arc<TrxLocks>, hash: u64, wake: &mut WakeList) {
        self.change_queue(queues, hash, wake, |queue| {
            if let Some(at) = queue.waiting_position(trx) {
                queue.locks.remove(at);
            }
        });
    }

    /// The entry's last writer, `holder` (transaction `holder_id`), was found active: gives it an explicit X record lock
    /// unless it has one. The caller holds the latch of the entry's leaf.
    pub fn convert_implicit(&self, holder: &Arc<TrxLocks>, holder_id: TrxId, key: LockKey<'_>) -> ImplicitHolder {
        let hash = key.hash();
        let mode = LockMode::X_RECORD.on(&key);
        let mut wake = WakeList::new();
        let mut queues = self.shard(hash);
        // A run of the holder's must be set apart before its list of locks is taken.
        queues.set_apart(hash);
        self.bring_in_all(&mut queues, &key);
        let counter = index_counter(key.index());
        let active = holder.add_if_active(
            holder_id,
            hash,
            counter,
            || self.count_index(holder, counter),
            || {
                let queue = self.queue_of(&mut queues, &key);
                let missing = !queue.covers(holder, mode);
                if missing {
                    queue.push_granted_foreign(&*self.order, holder, mode, &mut wake);
                }
                missing
            },
        );
        drop(queues);
        wake_all(&mut wake);
        if active {
            ImplicitHolder::Active
        } else {
            ImplicitHolder::Finished
        }
    }

    /// An entry was inserted before `successor`: who covers the gap there (or waits for it) covers both halves from now on.
    /// The caller holds the latch of the new entry's leaf exclusively.
    pub fn inherit_on_insert(&self, new_key: LockKey<'_>, successor: LockKey<'_>) {
        if !self.may_have_locks(&successor) {
            return;
        }
        self.inherit(&successor, &new_key, |_, mode| mode.covers_gap(), false);
    }

    /// An entry was removed (purge, rollback of an insert): its locks, granted or not, become gap locks on `successor`; those
    /// who wait for it are woken to look again. Which locks of a transaction at READ COMMITTED: see [`Inheritance`].
    ///
    /// The caller holds the latch of the removed entry's leaf exclusively.
    pub fn inherit_on_remove(&self, removed: LockKey<'_>, successor: LockKey<'_>) {
        if !self.may_have_locks(&removed) {
            return;
        }
        let inherits = |trx: &TrxLocks, mode: LockMode| {
            mode.extent != Extent::InsertIntention
                && match trx.inheritance() {
                    Inheritance::All => true,
                    Inheritance::SharedOnly => mode.strength == Strength::S,
                    Inheritance::ExclusiveOnly => mode.strength == Strength::X,
                }
        };
        self.inherit(&removed, &successor, inherits, true);
    }

    /// Gives the heir's queue a gap lock for each of the donor's locks that `inherits`; empties the donor's queue if asked.
    ///
    /// Both shards are held at once: a transaction whose lock is seen in the donor's queue cannot finish its release, so it
    /// is the same transaction when the heir's lock is added.
    fn inherit(
        &self,
        donor: &LockKey<'_>,
        heir: &LockKey<'_>,
        inherits: impl Fn(&TrxLocks, LockMode) -> bool,
        empty_donor: bool,
    ) {
        debug_assert_ne!(donor.hash(), heir.hash());
        let mut wake = WakeList::new();
        let (d, h) = (shard_no(donor.hash()), shard_no(heir.hash()));
        let mut low = self.lock_shard(d.min(h));
        let mut high = (d != h).then(|| self.lock_shard(d.max(h)));
        let mut heirs: SmallVec<[(Arc<TrxLocks>, Strength); 4]> = SmallVec::new();
        let mut waiting: SmallVec<[Arc<TrxLocks>; 4]> = SmallVec::new();
        let donors = if d <= h { &mut *low } else { high.as_deref_mut().expect("two shards") };
        self.bring_in_all(donors, donor);
        let Some(queue) = donors.queue_mut(donor.hash()) else { return };
        for l in queue.locks.iter().filter(|l| inherits(&l.trx, l.mode)) {
            heirs.push((Arc::clone(&l.trx), l.mode.strength));
        }
        if empty_donor {
            self.change_queue(donors, donor.hash(), &mut wake, |queue| {
                let gone = queue.locks.drain(..).inspect(|l| l.trx.forget_exclusive());
                waiting.extend(gone.filter(|l| l.waiting).map(|l| l.trx));
            });
        }
        let queues = if h <= d { &mut *low } else { high.as_deref_mut().expect("two shards") };
        self.bring_in_all(queues, heir);
        for (trx, strength) in heirs {
            let mode = LockMode::new(strength, Extent::Gap);
            let covered = queues.queue_mut(heir.hash()).is_some_and(|q| q.covers(&trx, mode));
            if covered {
                continue;
            }
            let mut quick = Quick::Queue;
            let added = trx.add_inherited(heir.hash(), || {
                quick = queues.quick(&trx, heir, mode, true);
                matches!(quick, Quick::Joined)
            });
            let Some(more) = added else { continue };
            self.count(more);
            match quick {
                Quick::Begun => {
                    self.filter_slot(heir.hash()).fetch_add(1, Ordering::Relaxed);
                }
                Quick::Joined => {}
                _ => self.queue_of(queues, heir).push_granted_foreign(&*self.order, &trx, mode, &mut wake),
            }
        }
        // Last, while the donor's shard is still held: a waiter let go earlier could be in its next transaction by now.
        for trx in waiting {
            let word = trx.wait.word();
            if WaitCell::is_waiting(word) && trx.wait.end(word, WaitState::Granted) {
                wake.push(trx);
            }
        }
        drop(high);
        drop(low);
        wake_all(&mut wake);
    }

    /// Gives back one *new* lock before the transaction's end (READ COMMITTED: the row does not match). `mode` is the one
    /// that was asked for.
    pub fn release_one(&self, trx: &Arc<TrxLocks>, key: LockKey<'_>, mode: LockMode) {
        let hash = key.hash();
        let mode = mode.on(&key);
        let mut wake = WakeList::new();
        let mut queues = self.shard(hash);
        match queues.leave(trx, hash, mode) {
            Some(true) => {
                self.group_gone(&mut queues, hash);
                trx.forget_held(hash);
                return;
            }
            Some(false) => {
                trx.note_left();
                return;
            }
            None => {}
        }
        self.change_queue(&mut queues, hash, &mut wake, |queue| {
            let at = queue.locks.iter().rposition(|l| !l.waiting && l.mode == mode && Arc::ptr_eq(&l.trx, trx));
            if let Some(at) = at {
                queue.locks.remove(at);
                trx.forget_held(hash);
            }
        });
        drop(queues);
        wake_all(&mut wake);
    }

    /// The transaction outlives the session it began in: its owner is asked and told nothing about it any more, not even by
    /// calls that are on their way when this returns.
    pub fn disown(&self, trx: &TrxLocks) {
        trx.set_owner(0, 0);
        for no in 0..SHARDS {
            drop(self.lock_shard(no));
        }
    }

    /// The transaction ends: all its locks go; then those who got theirs are woken. One load if it took none and has no id.
    ///
    /// A writer has made its commit visible, or has rolled back, before.
    pub fn release_all(&self, trx: &Arc<TrxLocks>) {
        self.withdraw_if_waiting(trx);
        let Some(hashes) = trx.close() else { return };
        let mut wake = WakeList::new();
        self.each_in_shards(&hashes, &mut wake, |queues, hash, wake| self.release_in(queues, trx, hash, wake));
        for (no, scanner) in trx.take_scanners() {
            self.scanners.remove(no, &scanner);
        }
        for counter in trx.take_indexes() {
            self.by_index_of(trx, counter).fetch_sub(1, Ordering::AcqRel);
        }
        self.uncount(trx.closed(hashes));
        wake_all(&mut wake);
    }

    /// The transaction is prepared, so it reads no more, and may stay so for long: its shared locks and its gaps go, and of
    /// its next-key locks the gaps. Its exclusive record locks stay, as do the implicit ones.
    pub fn release_reads(&self, trx: &Arc<TrxLocks>) {
        let mut wake = WakeList::new();
        let groups = trx.take_groups();
        let (mut left, mut locks) = (Vec::new(), 0);
        self.each_in_shards(&groups, &mut wake, |queues, group, wake| {
            let order = &*self.order;
            let released = queues.release_reads(trx, group, |queue, member| queue.grant(order, member, wake));
            locks += released.locks;
            if released.keeps_any {
                left.push(group);
            }
            if released.group_gone {
                self.group_gone(queues, group);
            }
        });
        // Each once: from now on they go all together.
        left.sort_unstable_by_key(|&group| (shard_no(group), group));
        left.dedup();
        self.uncount(trx.give_back_groups(left, locks));
        wake_all(&mut wake);
    }

    /// Calls `f` with each of the hashes, its shard's mutex held; wakes those whom it puts on the list when they are many.
    fn each_in_shards(&self, hashes: &[u64], wake: &mut WakeList, mut f: impl FnMut(&mut Groups, u64, &mut WakeList)) {
        let mut rest = hashes;
        while let Some(&first) = rest.first() {
            // Locks that a scan took one after the other are mostly in the same shard.
            let no = shard_no(first);
            let run = rest.iter().take(RELEASE_RUN).take_while(|&&hash| shard_no(hash) == no).count();
            let mut queues = self.lock_shard(no);
            rest[..run].iter().for_each(|&hash| f(&mut queues, hash, wake));
            drop(queues);
            rest = &rest[run..];
            if wake.len() > WAKE_AT_ONCE {
                wake_all(wake);
            }
        }
    }

    /// Removes all locks of `trx` from the group of the key with this hash.
    fn release_in(&self, queues: &mut Groups, trx: &Arc<TrxLocks>, hash: u64, wake: &mut WakeList) {
        let order = &*self.order;
        if queues.release(trx, group_of(hash), |queue, member| queue.grant(order, member, wake)) {
            self.group_gone(queues, hash);
        }
    }

    /// Locks and requests, shard by shard (not one moment's picture of the whole), until `f` gives false. `f` is called
    /// without any mutex.
    pub fn list(&self, what: Listing, f: &mut dyn FnMut(&LockInfo) -> bool) {
        let (mut infos, mut left) = (Vec::new(), what.rows_max);
        let all = (0..SHARDS).all(|no| {
            let add = |queue: &Queue| self.add_infos(queue, what, &mut left, &mut infos);
            let queues = self.lock_shard(no);
            if what.waits_only {
                queues.each_apart(add);
            } else {
                queues.each(add);
            }
            drop(queues);
            infos.drain(..).all(|info| f(&info)) && left > 0
        });
        if all && !what.waits_only {
            self.list_spans(f);
        }
    }

    /// Those of one queue, `left` rows at most: its shard is locked meanwhile.
    fn add_infos(&self, queue: &Queue, what: Listing, left: &mut usize, infos: &mut Vec<LockInfo>) {
        let mut seen = HashSet::new();
        for (at, l) in queue.locks.iter().enumerate().filter(|(_, l)| l.waiting || !what.waits_only) {
            if *left == 0 {
                return;
            }
            let mut blockers = Vec::new();
            if l.waiting {
                let most = what.blockers_max.min(*left);
                seen.clear();
                queue.each_blocker(&*self.order, &l.trx, l.mode, at, |b| {
                    let id = b.trx.shown_id();
                    if seen.insert(id) {
                        blockers.push(id);
                    }
                    blockers.len() < most
                });
            }
            *left -= blockers.len().max(1);
            let ShownKey { index, supremum, ref bytes, .. } = queue.key;
            infos.push(LockInfo {
                trx_id: l.trx.shown_id(),
                thread_id: l.trx.thread_id(),
                mode: l.mode,
                granted: !l.waiting,
                index,
                key: bytes.to_vec(),
                supremum,
                blockers,
            });
        }
    }

    /// Totals.
    pub fn stats(&self) -> LockStats {
        let t = &self.totals;
        LockStats {
            waits: t.waits.load(Ordering::Relaxed),
            wait_us: t.wait_us.load(Ordering::Relaxed),
            wait_us_max: t.wait_us_max.load(Ordering::Relaxed),
            waiting_now: t.waiting_now.load(Ordering::Relaxed),
            deadlocks: t.deadlocks.load(Ordering::Relaxed),
            timeouts: t.timeouts.load(Ordering::Relaxed),
            memory_bytes: self.counted.load(Ordering::Relaxed).max(0) as u64 * GROUP_BYTES,
            memory_bytes_max: (self.counted_max.load(Ordering::Relaxed) as u64).saturating_mul(GROUP_BYTES),
        }
    }

    /// Switches deadlock detection on or off. Switched on, those who wait already look for deadlocks at once.
    pub fn set_deadlock_detect(&self, on: bool) {
        let was = self.detect.swap(on, Ordering::Relaxed);
        if !on || was {
            return;
        }
        let mut wake = WakeList::new();
        for no in 0..SHARDS {
            let queues = self.lock_shard(no);
            queues.each_apart(|queue| {
                for l in queue.locks.iter().filter(|l| l.waiting) {
                    l.trx.wait.poke();
                    wake.push(Arc::clone(&l.trx));
                }
            });
            drop(queues);
            wake_all(&mut wake);
        }
    }

    /// Number of groups of neighbouring keys with locks; zero when nobody holds or wants a lock.
    pub fn queues(&self) -> usize {
        (0..SHARDS).map(|no| self.lock_shard(no).len()).sum()
    }
}
