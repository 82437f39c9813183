//! Purge: removes what no snapshot needs any more.
//!
//! Each slot's logs are read from the chain's head. A log whose transaction committed before the oldest snapshot is
//! worked through: entries that it left delete-marked are removed, overflow chains that it replaced are freed; then its
//! pages are. The order between slots does not matter: a record is acted on only if its entry still names it, and a
//! replaced chain belongs to one record alone. Where purge stands is not stored; after a restart it reads again from the
//! head page and finds most of it done.

use crate::buffered;
use crate::commit_table::ANCIENT;
use crate::gap::Edge;
use crate::losers::TELL_EVERY;
use crate::rollback::{index_of, LeftOver};
use crate::system::{FlushPolicy, PurgeStats, TrxSystem};
use crate::undo::page::{self, undo_page};
use crate::undo::record::{self, Change, Kind, LogState, CHAIN_FREED, NEW_DELETED, OLD_CHAIN};
use crate::undo::space::{PurgePosition, PurgeSlot, UndoLog};
use crate::value::Entry;
use crossbeam_utils::CachePadded;
use myriad_base::clock::Every;
use myriad_base::threads::{self, told_of};
use myriad_base::{Csn, Error, IndexId, PageId, PageNo, Result, RollPtr, SpaceId, TrxId};
use myriad_btree::{overflow, Leaf, Tree};
use myriad_buffer::{Event, Level, Mtr};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Undo records of one slot worked on before the next slot gets its turn.
const RECORDS_PER_TURN: usize = 512;
/// Finished logs of a slot, and each time as many more, at which a commit wakes a sleeping purge thread. A power of two.
const PENDING_TO_WAKE: u64 = 256;
/// Finished logs from which on purge threads do not keep up, and those who add to them take a share: each slot is looked at by
/// itself, for its part of that many. Later the pages that are to be purged would have left memory.
const PENDING_TO_SHARE: u64 = 2048;
/// The least of such a part: slots stay when those who wrote at once are gone.
const PENDING_TO_SHARE_MIN: u64 = 8;
/// Records of a share, at least. Few: who commits waits for them, and for the pages that they may want read.
const SHARE_RECORDS_MIN: u64 = 8;
/// Every so many commits to a slot one that takes a share looks how far snapshots let purge go.
const COMMITS_PER_LIMIT: u64 = 8;
/// Below this many records in a turn looking for them costs more than they do: let some gather first.
const RECORDS_WORTH_A_TURN: u64 = 128;
const GATHER_WAIT: Duration = Duration::from_millis(10);
const IDLE_WAIT: Duration = Duration::from_millis(50);
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// How long pages of a tablespace that cannot be read are waited for, and after how long without a failure they are again.
const UNREAD_MAX: Duration = Duration::from_secs(60);
const UNREAD_FORGOTTEN: Duration = Duration::from_secs(600);
/// Time between looks whether `undo.myr` can be made smaller.
const SHRINK_LOOK: Duration = Duration::from_secs(1);
const SYNC_EVERY: Duration = Duration::from_secs(1);
const SYNC_LOOK: Duration = Duration::from_millis(200);

/// What a session purges itself, because the threads do not keep up.
pub(crate) struct PurgeShare {
    slot: Arc<PurgeSlot>,
    records: usize,
    /// Whether it looks first how far snapshots let purge go; else what was last seen holds.
    looks: bool,
}

/// When it is looked again whether `undo.myr` can be made smaller, and what came in the way.
struct ShrinkLooks {
    next: Every,
    told: Option<Error>,
}

impl ShrinkLooks {
    fn look(&mut self, system: &TrxSystem) {
        if !self.next.is_due(system.clock()) {
            return;
        }
        let failed = system.undo.shrink_step().err();
        if let Some(e) = failed.as_ref().filter(|e| self.told.as_ref() != Some(*e)) {
            system.report(Level::Warning, &format!("undo.myr cannot be made smaller: {e}"));
        }
        self.told = failed.or(self.told.take());
    }
}

/// Purge's threads and figures.
pub(crate) struct PurgeControl {
    threads: usize,
    begun: AtomicBool,
    stop: AtomicBool,
    /// Where each purge thread sleeps until there is work.
    worthwhile: Box<[Event]>,
    /// Where the thread sleeps that rolls back what others have left to it.
    pub abandoned: Event,
    gate: Mutex<()>,
    wake_up: Condvar,
    handles: Mutex<Vec<std::thread::JoinHandle<()>>>,
    records: CachePadded<AtomicU64>,
    shares: AtomicU64,
    entries: CachePadded<AtomicU64>,
    /// Every log of a commit below may have been purged.
    limit: CachePadded<AtomicU64>,
    /// Damaged pages that were met. Each may have thousands of old versions, and is told once.
    damaged: Mutex<BTreeSet<PageId>>,
    /// Tablespaces of which a page could not be read.
    unread: Mutex<BTreeMap<SpaceId, Unread>>,
}

/// See [`PurgeControl::unread`].
struct Unread {
    since: Duration,
    last: Duration,
    told: bool,
}

impl PurgeControl {
    pub fn new(threads: usize) -> PurgeControl {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = if threads == 0 { (cores / 2).clamp(1, 8) } else { threads };
        PurgeControl {
            threads,
            begun: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            worthwhile: (0..threads).map(|_| Event::new()).collect(),
            abandoned: Event::new(),
            gate: Mutex::default(),
            wake_up: Condvar::new(),
            handles: Mutex::default(),
            records: CachePadded::default(),
            shares: AtomicU64::new(0),
            entries: CachePadded::default(),
            limit: CachePadded::new(AtomicU64::new(ANCIENT.0 + 1)),
            damaged: Mutex::default(),
            unread: Mutex::default(),
        }
    }

    /// Every log of a commit below may have been purged. Never goes back.
    pub fn limit(&self) -> Csn {
        Csn(self.limit.load(Ordering::Acquire))
    }

    /// A transaction with a log in the slot has ended. How many have that are not yet purged.
    pub fn note_finished(&self, slot: &PurgeSlot) -> u64 {
        let pending = slot.pending.fetch_add(1, Ordering::Relaxed) + 1;
        if pending & (PENDING_TO_WAKE - 1) == 0 {
            self.worthwhile[self.thread_of(slot)].signal();
        }
        pending
    }

    /// Number of the purge thread that the slot is left to.
    fn thread_of(&self, slot: &PurgeSlot) -> usize {
        slot.no as usize % self.threads
    }

    /// Wakes the background threads, but none that waits for work.
    pub fn wake(&self) {
        let _gate = self.gate.lock();
        self.wake_up.notify_all();
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits for [`TrxSystem::start_background`]; false if the stop comes first.
    fn await_begin(&self) -> bool {
        let mut gate = self.gate.lock();
        while !self.begun.load(Ordering::Acquire) && !self.stopping() {
            self.wake_up.wait(&mut gate);
        }
        !self.stopping()
    }

    /// Ends the background threads.
    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        self.worthwhile.iter().chain([&self.abandoned]).for_each(Event::signal);
    }

    /// Until the time is over, or [`PurgeControl::wake`].
    pub fn sleep(&self, time: Duration) {
        let mut gate = self.gate.lock();
        if !self.stopping() {
            self.wake_up.wait_for(&mut gate, time);
        }
    }

    /// As a purge thread that has found no more: until the time is over, or commits have left it work since it looked.
    fn sleep_until_worthwhile(&self, thread: usize, time: Duration) {
        self.worthwhile[thread].wait(time);
    }
}

impl TrxSystem {
    /// Makes the background threads, which wait for [`TrxSystem::start_background`]: a start that gets no threads can still
    /// be refused.
    ///
    /// # Errors
    /// [`Error::Io`]: the system gives not as many; [`TrxSystem::shutdown`] ends those that it gave.
    pub fn spawn_background(self: &Arc<TrxSystem>) -> Result<()> {
        let mut handles = self.purge.handles.lock();
        let mut spawn = |name: &str, no: usize, body: fn(&TrxSystem, usize)| {
            let system = Arc::clone(self);
            let run = move || {
                if system.purge.await_begin() {
                    system.pool().guard_thread(|| body(&system, no));
                }
            };
            handles.push(threads::spawn(name, run).map_err(|e| Error::no_thread(name, &e))?);
            Ok(())
        };
        for no in 0..self.purge.threads {
            spawn(&format!("myriad-purge-{no}"), no, TrxSystem::purge_thread)?;
        }
        spawn("myriad-sync", 0, |system, _| system.sync_thread())?;
        spawn("myriad-rollback", 0, |system, _| system.rollback_thread())?;
        spawn("myriad-log", 0, |system, _| system.pool().log().write_behind())
    }

    /// Begins purge, the rollback of unfinished transactions, the once-a-second sync of the log and the log's
    /// write-behind.
    pub fn start_background(&self) {
        self.purge.begun.store(true, Ordering::Release);
        self.purge.wake();
    }

    /// Starts the thread that syncs for commits that no thread waits for; without it they are waited for. It has the caller's name and
    /// CPUs: what it calls may be a server's pool, and threads which that makes inherit both.
    pub fn start_commit_calls(self: &Arc<TrxSystem>) {
        let system = Arc::clone(self);
        let run = move || {
            let lead = || _ = system.pool().heed_log(system.pool().log().lead_for_calls());
            system.pool().guard_thread(lead);
        };
        match std::thread::Builder::new().spawn(told_of("myriad-commits", run)) {
            Ok(thread) => self.purge.handles.lock().push(thread),
            Err(e) => self
                .report(Level::Warning, &format!("commits wait for the log: {}", Error::no_thread("of commits", &e))),
        }
    }

    /// Stops the background threads, a rollback of theirs between two records; with `purge_all` unfinished transactions are
    /// rolled back first, where that is possible, and everything that no snapshot needs is purged.
    ///
    /// # Errors
    /// Those of purging.
    pub fn shutdown(&self, purge_all: bool) -> Result<()> {
        let purged = if purge_all { self.purge_all() } else { Ok(()) };
        self.purge.stop();
        self.pool().log().stop_write_behind();
        self.pool().log().stop_calls();
        let handles = std::mem::take(&mut *self.purge.handles.lock());
        for h in handles {
            if h.join().is_err() {
                self.report(Level::Error, "a background thread of the transaction system has panicked");
            }
        }
        self.tell_of_losers();
        purged
    }

    fn purge_all(&self) -> Result<()> {
        let rolled_back = self.rollback_losers();
        let mut tell = Every::new(TELL_EVERY, self.clock());
        while self.purge_step()? {
            if tell.is_due(self.clock()) {
                let s = self.purge_stats();
                let text =
                    format!("purge before the shutdown: {} transactions, {} undo pages left", s.history, s.undo_pages);
                self.report(Level::Info, &text);
            }
        }
        rolled_back
    }

    fn purge_thread(&self, no: usize) {
        let mut last = None;
        let mut shrink = ShrinkLooks { next: Every::new(SHRINK_LOOK, self.clock()), told: None };
        while !self.purge.stopping() {
            if no == 0 {
                shrink.look(self);
            }
            match self.purge_turn(Some(no)) {
                Ok(0) => self.purge.sleep_until_worthwhile(no, IDLE_WAIT),
                Ok(n) if n < RECORDS_WORTH_A_TURN => self.purge.sleep_until_worthwhile(no, GATHER_WAIT),
                Ok(_) => {}
                Err(e) => {
                    if self.pool().check_poison().is_err() {
                        return;
                    }
                    if last.as_ref() != Some(&e) {
                        self.report(Level::Warning, &format!("purge will try again: {e}"));
                    }
                    last = Some(e);
                    self.purge.sleep(RETRY_WAIT);
                }
            }
        }
    }

    /// Syncs the log about once a second where commits do not. Does nothing else: nobody's commit waits longer for it.
    fn sync_thread(&self) {
        let mut sync = Every::new(SYNC_EVERY, self.clock());
        while !self.purge.stopping() {
            if self.flush_policy() != FlushPolicy::Sync && sync.is_due(self.clock()) {
                if let Err(e) = self.flush_log() {
                    if self.pool().check_poison().is_err() {
                        return;
                    }
                    self.report(Level::Error, &format!("the log cannot be synced: {e}"));
                }
            }
            self.purge.sleep(SYNC_LOOK);
        }
    }

    /// One bounded portion of purge; whether there was anything to do. For simulations and slow shutdown.
    ///
    /// # Errors
    /// Those of the buffer pool; what could not be purged is tried again.
    pub fn purge_step(&self) -> Result<bool> {
        let worked = self.purge_turn(None)? > 0;
        if !worked {
            self.undo.shrink_step()?;
        }
        Ok(worked)
    }

    /// Purge's debt and work.
    pub fn purge_stats(&self) -> PurgeStats {
        PurgeStats {
            history: self.undo.purge_slots().iter().map(|s| s.pending.load(Ordering::Relaxed)).sum(),
            undo_pages: self.undo.pages_in_use(),
            records_purged: self.purge.records.load(Ordering::Relaxed),
            shares: self.purge.shares.load(Ordering::Relaxed),
            entries_removed: self.purge.entries.load(Ordering::Relaxed),
        }
    }

    /// Commits below may be purged from now on.
    fn purge_limit(&self) -> Csn {
        let oldest = self.oldest_snapshot();
        self.purge.limit.fetch_max(oldest.0, Ordering::AcqRel);
        oldest
    }

    /// What the transaction of the log, which has ended, should purge; nothing while purge threads keep up.
    pub(crate) fn purge_share(&self, log: &UndoLog) -> Option<PurgeShare> {
        if log.header.is_none() {
            return None;
        }
        let slot = &log.tail.purge;
        let pending = self.purge.note_finished(slot);
        if pending < (PENDING_TO_SHARE / self.undo.purge_slot_count() as u64).max(PENDING_TO_SHARE_MIN) {
            return None;
        }
        let records = (log.records * 2).clamp(SHARE_RECORDS_MIN, RECORDS_PER_TURN as u64) as usize;
        Some(PurgeShare { slot: Arc::clone(slot), records, looks: pending.is_multiple_of(COMMITS_PER_LIMIT) })
    }

    /// Takes a share of purge's work. Where purge is at the slot already, or something is wrong, nothing is done: its threads come
    /// there, and tell.
    pub(crate) fn take_share(&self, share: PurgeShare) {
        if let Some(mut position) = share.slot.position.try_lock().filter(|position| position.again.is_zero()) {
            let oldest = if share.looks { self.purge_limit() } else { self.purge.limit() };
            let done = self.purge_records(&share.slot, &mut position, oldest, share.records);
            self.purge.shares.fetch_add(u64::from(done.is_ok_and(|steps| steps > 0)), Ordering::Relaxed);
        }
    }

    /// A turn at every slot, or at those of one thread. How many steps it made: records, pages.
    fn purge_turn(&self, thread: Option<usize>) -> Result<u64> {
        let oldest = self.purge_limit();
        self.commits().advance(oldest, self.next_trx_id());
        let (mut steps, mut failed) = (0, None);
        if thread.is_none_or(|no| no == 0) {
            match self.merge_settled() {
                Ok(n) => steps = n,
                Err(e) => failed = Some(e),
            }
        }
        for slot in self.undo.purge_slots() {
            if thread.is_some_and(|no| self.purge.thread_of(&slot) != no) || slot.pending.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut position = slot.position.lock();
            if thread.is_some() && self.clock().now() < position.again {
                continue;
            }
            match self.purge_records(&slot, &mut position, oldest, RECORDS_PER_TURN) {
                Ok(n) => steps += n,
                // One damaged page must not keep the other slots' debt.
                Err(e) => failed = failed.or(Some(e)),
            }
            if thread.is_some() && self.purge.stopping() {
                break;
            }
        }
        match failed {
            Some(e) if steps == 0 => Err(e),
            _ => Ok(steps),
        }
    }

    /// Goes on from the slot's position, over at most `count` records. After a failure the slot is left alone for a while.
    fn purge_records(&self, slot: &PurgeSlot, position: &mut PurgePosition, oldest: Csn, count: usize) -> Result<u64> {
        let done = self.purge_next(slot, position, oldest, count);
        position.again = if done.is_ok() { Duration::ZERO } else { self.clock().now() + RETRY_WAIT };
        done
    }

    fn purge_next(&self, slot: &PurgeSlot, position: &mut PurgePosition, oldest: Csn, count: usize) -> Result<u64> {
        // Without a page access: it would keep a page of each slot in memory as long as a snapshot is open, or read it each time.
        if position.blocked_by.is_some_and(|trx| !self.is_for_purge(trx, oldest)) {
            return Ok(0);
        }
        let mut body = Vec::new();
        let mut steps = 0;
        for _ in 0..count {
            if position.page == PageNo::NONE || !self.next_record(slot, position, oldest, &mut body)? {
                break;
            }
            steps += 1;
            if body.is_empty() {
                continue;
            }
            let at = RollPtr::new(position.page, position.offset as u16);
            match self.purge_record(position.log, at, &body) {
                Err(Error::CorruptPage { page, reason }) => {
                    if self.purge.damaged.lock().insert(page) {
                        let why = Error::CorruptPage { page, reason };
                        self.report(Level::Warning, &format!("purge leaves old versions where they are: {why}"));
                    }
                }
                other => other?,
            }
            position.offset += body.len() + record::FRAME_BYTES;
            self.purge.records.fetch_add(1, Ordering::Relaxed);
        }
        Ok(steps)
    }

    /// Whether the transaction has ended and no snapshot needs what it replaced.
    fn is_for_purge(&self, trx: TrxId, oldest: Csn) -> bool {
        self.commits().csn(trx).is_some_and(|csn| csn < oldest)
    }

    fn log_done(slot: &PurgeSlot, position: &mut PurgePosition) {
        if position.log.take().is_some() && !position.catching_up {
            let _ = slot.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
    }

    /// Copies the record at the position to `body`, empty if it needs no work (the position is behind it then). `false`
    /// where purge must stop for now.
    fn next_record(
        &self,
        slot: &PurgeSlot,
        position: &mut PurgePosition,
        oldest: Csn,
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        body.clear();
        let id = undo_page(position.page);
        let p = self.pool().fix_shared(id)?;
        if page::slot(&p) != slot.no {
            return Err(Error::corrupt(id, format!("it is not of undo slot {}", slot.no)));
        }
        let end = page::end(&p)?;
        while position.offset < end {
            let Some((_, bytes)) = record::frame_at(&p, position.offset, end) else {
                return Err(Error::corrupt(id, format!("no undo record at {}", position.offset)));
            };
            if let Some(header) = record::parse_log_header(bytes) {
                Self::log_done(slot, position);
                if !self.is_for_purge(header.trx, oldest) {
                    if header.state != LogState::Committed {
                        // It is the slot's last log, and is not counted while its page is latched.
                        slot.pending.store(0, Ordering::Relaxed);
                        position.catching_up = false;
                    }
                    position.blocked_by = Some(header.trx);
                    return Ok(false);
                }
                position.log = Some(header.trx);
            } else if bytes[0] == Kind::Modify as u8 && bytes.get(1).is_some_and(|f| needs_work(*f)) {
                body.extend_from_slice(bytes);
                return Ok(true);
            }
            position.offset += bytes.len() + record::FRAME_BYTES;
        }
        if page::next(&p) == PageNo::NONE {
            // All logs have been passed, and while the page is latched none begins. The last one may have been passed
            // before it was counted: it stays counted until purge is here again.
            slot.pending.store(0, Ordering::Relaxed);
            position.log = None;
            position.catching_up = false;
            return Ok(false);
        }
        drop(p);
        position.page = self.undo.drop_head(slot.no, position.page)?;
        position.offset = page::BODY;
        Ok(true)
    }

    fn purge_record(&self, trx: Option<TrxId>, at: RollPtr, body: &[u8]) -> Result<()> {
        let bad = || Error::corrupt(undo_page(at.page()), format!("no undo record at {}", at.offset()));
        let change = record::parse_change(body).ok_or_else(bad)?;
        let index = index_of(change.key).ok_or_else(bad)?;
        if self.is_lost(change.tree.space, trx) {
            return Ok(());
        }
        // The chain is not the tree's: it did not go with the index.
        let done = self.purge_chain(at, &change).and_then(|()| {
            let left = self.purge_mark(trx, at, index, &change)?;
            left.map_or(Ok(()), |left| self.tidy_up(index, change.tree, change.key, left, None))
        });
        match done {
            // Should its file come back, entries marked as deleted stay there: they take room, nobody sees them.
            Err(e) if self.is_left(&e, change.tree.space) => Ok(()),
            other => other,
        }
    }

    /// Whether what a record says of the tablespace is passed over for this error, lest all that comes after it in its slot waits.
    fn is_left(&self, e: &Error, space: SpaceId) -> bool {
        match e {
            Error::TablespaceUnavailable { .. } | Error::CorruptFile { .. } | Error::Format { .. } => true,
            // A device may err for a moment, and the process want descriptors.
            Error::Io { .. } => {
                let now = self.clock().now();
                let mut unread = self.purge.unread.lock();
                let noted = unread.entry(space).or_insert(Unread { since: now, last: now, told: false });
                if now.saturating_sub(noted.last) > UNREAD_FORGOTTEN {
                    *noted = Unread { since: now, last: now, told: false };
                }
                noted.last = now;
                let left = now.saturating_sub(noted.since) >= UNREAD_MAX;
                if left && !std::mem::replace(&mut noted.told, true) {
                    self.report(Level::Warning, &format!("purge leaves old versions where they are: {e}"));
                }
                left
            }
            _ => false,
        }
    }

    /// Frees the overflow chain that the change replaced.
    fn purge_chain(&self, at: RollPtr, change: &Change<'_>) -> Result<()> {
        if change.flags & (OLD_CHAIN | CHAIN_FREED) == OLD_CHAIN {
            let chain = change.replaced_chain();
            let chain = chain.ok_or_else(|| Error::corrupt(undo_page(at.page()), "an undo record names no chain"))?;
            // First the note, then the pages: a crash in between loses them, it does not free them twice.
            let mut mtr = Mtr::start(self.pool())?;
            let p = mtr.fix(undo_page(at.page()))?;
            mtr.apply(p, page::OP_CHAIN_FREED, &at.offset().to_le_bytes())?;
            mtr.commit()?;
            overflow::free_overflow(self.pool(), change.tree.space, chain.first)?;
        }
        Ok(())
    }

    /// Removes what the change has marked, if its index is alive.
    fn purge_mark(
        &self,
        trx: Option<TrxId>,
        at: RollPtr,
        index: IndexId,
        change: &Change<'_>,
    ) -> Result<Option<LeftOver>> {
        if change.flags & NEW_DELETED == 0 {
            return Ok(None);
        }
        let _users = self.use_trees();
        if !self.is_index_alive(index) {
            return Ok(None);
        }
        let left = self.purge_entry(trx, at, change)?;
        self.purge.entries.fetch_add(u64::from(left.is_some()), Ordering::Relaxed);
        Ok(left)
    }

    /// Removes the entry if it is still the delete-marked one that the record was written for.
    fn purge_entry(&self, trx: Option<TrxId>, at: RollPtr, change: &Change<'_>) -> Result<Option<LeftOver>> {
        let (tree, key) = (change.tree, change.key);
        let index = index_of(key).expect("checked by the caller");
        let mut edge = Edge::default();
        if let Some(trx) = trx.filter(|_| change.row_key_len > 0 && self.may_buffer(tree, key)) {
            if self.remove_absent(tree, index, key, buffered::Change::Remove { trx, roll: at })? {
                return Ok(Some(LeftOver { chains: [None, None], sparse: false }));
            }
        }
        loop {
            let mut mtr = Mtr::start(self.pool())?;
            let leaf = tree.seek_exclusive(self.pool(), key)?;
            let Ok(slot) = leaf.find(key) else { return Ok(None) };
            let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
            if !entry.is_deleted() || !self.is_purgeable(&entry, trx, at) {
                return Ok(None);
            }
            match self.removal(&leaf, slot, tree, index, &edge) {
                Err(fence) => {
                    drop(leaf);
                    drop(mtr);
                    edge.find(self, tree, index, &fence, &mut |_| {})?;
                }
                Ok(guards) => {
                    let left = LeftOver {
                        chains: [entry.overflow().map(|o| o.first), None],
                        sparse: leaf.is_sparse_without(slot),
                    };
                    self.remove_entry(leaf, slot, key, index, &edge, guards, &mut mtr, None)?;
                    mtr.commit()?;
                    return Ok(Some(left));
                }
            }
        }
    }
}

impl TrxSystem {
    /// Leaves the removal of a secondary entry to the change buffer, if its leaf is not in memory; whether it did.
    fn remove_absent(&self, tree: Tree, index: IndexId, key: &[u8], removal: buffered::Change<'_>) -> Result<bool> {
        let mtr = Mtr::start(self.pool())?;
        let Some(leaf) = tree.absent_leaf(self.pool(), key)? else { return Ok(false) };
        let mut payload = Vec::new();
        let Some(absent) = self.buffer(leaf, index, key, removal, &mut payload) else { return Ok(false) };
        absent.commit(mtr, &payload)?;
        Ok(true)
    }

    /// Whether a delete-marked entry is the one that the record at `at` was written for, or may go as well.
    fn is_purgeable(&self, entry: &Entry<'_>, trx: Option<TrxId>, at: RollPtr) -> bool {
        match trx {
            // A transaction marks an entry briefly once: whoever else marks it sees that it is not visible to everybody.
            Some(trx) => entry.trx == trx && (entry.is_short() || entry.roll == at),
            // Without the log's header (freed before a restart) the place alone decides: the record is still there, so no
            // other version can have been written for this place.
            None if !entry.is_short() => entry.roll == at,
            None => self.commits().csn(entry.trx).is_some_and(|csn| csn < self.purge.limit()),
        }
    }
}

fn needs_work(flags: u8) -> bool {
    flags & NEW_DELETED != 0 || flags & (OLD_CHAIN | CHAIN_FREED) == OLD_CHAIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Commits that come after a purge thread has looked for work, and before it sleeps.
    #[test]
    fn a_thread_that_is_left_work_does_not_go_to_sleep() {
        let control = PurgeControl::new(2);
        let slot = PurgeSlot { no: 3, pending: AtomicU64::new(0), position: Mutex::new(PurgePosition::without_page()) };
        for _ in 0..PENDING_TO_WAKE {
            control.note_finished(&slot);
        }
        let begin = Instant::now();
        control.sleep_until_worthwhile(1, Duration::from_secs(120));
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}
