//! The transaction system: what all transactions share.

use crate::commit_table::{CommitTable, ANCIENT, CHUNK_IDS};
use crate::hash::LeafHash;
use crate::lock::{CommitOrder, ImplicitHolder, Inheritance, LockKey, LockTable, TrxLocks};
use crate::losers::Losers;
use crate::prepared::PreparedTrxs;
use crate::promote::Promotion;
use crate::purge::{PurgeControl, PurgeShare};
use crate::snapshot::Snapshots;
use crate::trx::{Isolation, Trx, TrxInfo, TrxShared, TrxState};
use crate::undo::record::LogState;
use crate::undo::space::{Opened, UndoLog, UndoSpace, Unfinished, Unreadable};
use crate::undo::{page, space};
use crate::undo_batch::Batches;
use crate::unsettled::Unsettled;
use crossbeam_utils::CachePadded;
use myriad_base::clock::Clock;
use myriad_base::latch::{lock_counted, LatchClass};
use myriad_base::members::Members;
use myriad_base::waits::{self, WaitFor};
use myriad_base::{Csn, Error, IndexId, Lsn, Result, SpaceId, TrxId};
use myriad_buffer::{BufferPool, Level, Mtr, RedoTable, Reporter};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Registers this room's redo functions.
pub fn redo_table_register(table: &mut RedoTable) {
    page::register(table);
    crate::buffered::register(table);
}

/// Formats the undo tablespace, whose file exists already; at the creation of a data directory.
///
/// # Errors
/// Those of the buffer pool.
pub fn create_undo(pool: &BufferPool) -> Result<()> {
    space::create(pool)
}

/// Pages that the undo tablespace's file must have; none of them is zero when the log has been applied.
///
/// # Errors
/// Those of reading the undo directory.
pub fn undo_pages_wanted(pool: &BufferPool) -> Result<u32> {
    space::pages_formatted(pool)
}

/// What a commit waits for (`flush_log_at_trx_commit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushPolicy {
    /// 0: nothing; the log is synced about once a second.
    EverySecond,
    /// 1: durable.
    Sync,
    /// 2: handed to the operating system; synced about once a second.
    Write,
}

impl FlushPolicy {
    /// From the variable's number.
    pub fn from_number(n: u32) -> Option<FlushPolicy> {
        [FlushPolicy::EverySecond, FlushPolicy::Sync, FlushPolicy::Write].get(n as usize).copied()
    }
}

/// Settings of a [`TrxSystem`].
pub struct TrxConfig {
    /// What commits wait for.
    pub flush: FlushPolicy,
    /// Purge threads started by [`TrxSystem::start_background`]; 0 picks a number.
    pub purge_threads: usize,
    /// Look for deadlocks at each wait.
    pub deadlock_detect: bool,
    /// Who fixes the order of commits.
    pub commit_order: Arc<dyn CommitOrder>,
    /// An index that has about so many bytes of leaves in its tablespace's pack tree gets a root of its own.
    pub promote_bytes: u64,
    /// At the last stop every transaction had ended, and nothing was logged since: undo slots that cannot be read do no harm.
    pub all_ended: bool,
    /// Opens although an undo slot cannot be read in which a transaction may not have ended; its changes look committed then.
    pub force: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Error log.
    pub reporter: Reporter,
}

/// Purge's debt and work.
#[derive(Clone, Copy, Debug, Default)]
pub struct PurgeStats {
    /// Committed transactions whose undo logs are still kept.
    pub history: u64,
    /// Undo pages in use.
    pub undo_pages: u64,
    /// Undo records purged since start.
    pub records_purged: u64,
    /// Shares of purge's work that commits have taken since start.
    pub shares: u64,
    /// Delete-marked entries removed since start.
    pub entries_removed: u64,
}

const ACTIVE_SHARDS: usize = 64;
const UNIQUE_GUARDS: usize = 1024;

type ActiveTrxs = Vec<(TrxId, Arc<TrxLocks>)>;

/// Transactions that took a commit number and are no commits.
#[derive(Default)]
struct Endings {
    rolled_back: AtomicU64,
    /// Of which nothing is left: those rolled back, and others.
    unchanged: AtomicU64,
}

/// A transaction without a session: prepared and detached, or to be rolled back.
pub(crate) struct Work {
    pub log: UndoLog,
    pub locks: Arc<TrxLocks>,
    pub xid: Option<Vec<u8>>,
    pub start_wall_us: u64,
    pub isolation: Isolation,
    pub recovered: bool,
    /// Of one whose rollback failed: when to try again, and the error that was told.
    pub retry_at: Duration,
    pub told: Option<Error>,
}

impl Work {
    pub fn info(&self, state: TrxState) -> TrxInfo {
        TrxInfo {
            shown_id: self.log.trx.0,
            state,
            waiting: false,
            start_wall_us: self.start_wall_us,
            wait_start_wall_us: 0,
            undo_records: self.log.records,
            locks_held: self.locks.locks_held() as u64,
            thread_id: 0,
            isolation: self.isolation,
            recovered: self.recovered,
            snapshot_age: None,
        }
    }
}

/// Answers whether an index still exists.
pub type IndexAlive = Box<dyn Fn(IndexId) -> bool + Send + Sync>;

/// Answers whether an index that cannot be reached has been dropped for good, alone or with the tablespace.
pub type IndexDropped = Box<dyn Fn(IndexId, SpaceId) -> bool + Send + Sync>;

/// The transaction system of an open data directory. Aligned: all read it, and the count of its users is written often.
#[repr(align(128))]
pub struct TrxSystem {
    pool: Arc<BufferPool>,
    config: TrxConfig,
    flush: AtomicU8,
    commits: CommitTable,
    snapshots: Arc<Snapshots>,
    locks: LockTable,
    next_id: CachePadded<AtomicU64>,
    /// First id of this run.
    first_id: TrxId,
    /// Ids below are reserved on disk and have their place in the commit table.
    id_limit: CachePadded<AtomicU64>,
    id_growth: Mutex<()>,
    active: Box<[CachePadded<Mutex<ActiveTrxs>>]>,
    unique_guards: Box<[CachePadded<Mutex<()>>]>,
    pub(crate) undo: UndoSpace,
    pub(crate) purge: PurgeControl,
    pub(crate) promotion: Promotion,
    pub(crate) leaf_hash: LeafHash,
    pub(crate) losers: Losers,
    pub(crate) batches: Batches,
    pub(crate) prepared: PreparedTrxs,
    sessions: Mutex<Members<Weak<TrxShared>>>,
    endings: CachePadded<Endings>,
    index_alive: OnceLock<IndexAlive>,
    index_dropped: OnceLock<IndexDropped>,
    /// Held shared by whoever follows undo records into trees that no table definition protects.
    tree_users: CachePadded<RwLock<()>>,
    /// A slot was set aside of which nobody knows whether its last transaction had ended.
    undo_in_doubt: bool,
    /// Merges that wait for transactions to end.
    pub(crate) unsettled: Unsettled,
}

impl TrxSystem {
    /// Reads the undo directory; finds unfinished and prepared transactions, whose changes stay locked until they end.
    ///
    /// # Errors
    /// Those of reading undo pages, but see [`TrxConfig::all_ended`] and [`TrxConfig::force`].
    pub fn open(pool: Arc<BufferPool>, config: TrxConfig) -> Result<Arc<TrxSystem>> {
        let Opened { space: undo, limit, unfinished, unreadable } =
            UndoSpace::open(Arc::clone(&pool), Arc::clone(&config.reporter))?;
        let undo_in_doubt = set_aside(&pool, &config, limit, unreadable)?;
        // All ids of the last reservation may have been given out.
        let next = limit;
        let active: Vec<TrxId> = unfinished.iter().map(|u| u.log.trx).collect();
        let locks = LockTable::new(Arc::clone(&config.clock), config.deadlock_detect, Arc::clone(&config.commit_order));
        let promotion = Promotion::new(config.promote_bytes, pool.page_size());
        let system = Arc::new(TrxSystem {
            pool,
            flush: AtomicU8::new(config.flush as u8),
            commits: CommitTable::new(next, &active),
            snapshots: Snapshots::new(Csn(ANCIENT.0 + 1)),
            locks,
            next_id: CachePadded::new(AtomicU64::new(next.0)),
            first_id: next,
            id_limit: CachePadded::new(AtomicU64::new(limit.0)),
            id_growth: Mutex::default(),
            active: (0..ACTIVE_SHARDS).map(|_| CachePadded::default()).collect(),
            unique_guards: (0..UNIQUE_GUARDS).map(|_| CachePadded::default()).collect(),
            undo,
            purge: PurgeControl::new(config.purge_threads),
            promotion,
            leaf_hash: LeafHash::new(),
            losers: Losers::default(),
            batches: Batches::default(),
            prepared: PreparedTrxs::default(),
            sessions: Mutex::default(),
            endings: CachePadded::default(),
            index_alive: OnceLock::new(),
            index_dropped: OnceLock::new(),
            tree_users: CachePadded::default(),
            undo_in_doubt,
            unsettled: Unsettled::default(),
            config,
        });
        system.adopt_unfinished(unfinished);
        Ok(system)
    }

    fn adopt_unfinished(&self, unfinished: Vec<Unfinished>) {
        for u in unfinished {
            let locks = TrxLocks::new();
            locks.begin(u.log.trx, Inheritance::All);
            locks.set_weight(u.log.records);
            self.add_active(u.log.trx, &locks);
            let work = Work {
                log: u.log,
                locks,
                xid: u.xid,
                start_wall_us: self.config.clock.wall_us(),
                isolation: Isolation::RepeatableRead,
                recovered: true,
                retry_at: Duration::ZERO,
                told: None,
            };
            if work.xid.is_some() {
                self.detach(work);
            } else {
                self.losers.add(work);
            }
        }
        let (losers, prepared) = (self.losers.note_found(), self.prepared.len());
        if losers + prepared > 0 {
            let text = format!("{losers} unfinished transactions to roll back, {prepared} prepared ones kept");
            (self.config.reporter)(Level::Info, &text);
        }
    }

    /// A session's transaction object; no transaction has begun yet. It serves one transaction after the other.
    pub fn begin(self: &Arc<TrxSystem>, isolation: Isolation) -> Trx {
        let snapshot = self.snapshots.register();
        let shared = Arc::new(TrxShared::new(isolation, snapshot.watch()));
        let session = lock_counted(&self.sessions, LatchClass::TrxSystem).join(Arc::downgrade(&shared));
        Trx::new(Arc::clone(self), session, shared, snapshot, isolation)
    }

    /// The session of that number is no more.
    pub(crate) fn end_session(&self, session: u64) {
        lock_counted(&self.sessions, LatchClass::TrxSystem).leave(session);
    }

    /// The lock table.
    pub fn locks(&self) -> &LockTable {
        &self.locks
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Time.
    pub fn clock(&self) -> &dyn Clock {
        &*self.config.clock
    }

    pub(crate) fn report(&self, level: Level, text: &str) {
        (self.config.reporter)(level, text);
    }

    pub(crate) fn commits(&self) -> &CommitTable {
        &self.commits
    }

    /// Changes what commits wait for.
    pub fn set_flush_policy(&self, policy: FlushPolicy) {
        self.flush.store(policy as u8, Ordering::Relaxed);
    }

    /// What commits wait for.
    pub fn flush_policy(&self) -> FlushPolicy {
        FlushPolicy::from_number(u32::from(self.flush.load(Ordering::Relaxed))).expect("only policies are stored")
    }

    /// Every snapshot sees commits below this one.
    pub fn oldest_snapshot(&self) -> Csn {
        self.snapshots.oldest()
    }

    /// A snapshot opened now sees commits below this one, and all that its caller has seen committed.
    pub fn newest_snapshot(&self) -> Csn {
        self.snapshots.newest()
    }

    /// Transactions that changed something and were committed since the start.
    pub fn commit_count(&self) -> u64 {
        // In this order: one that ends meanwhile may be counted too early, but none is counted twice.
        let unchanged = self.endings.unchanged.load(Ordering::Acquire);
        self.snapshots.ended().saturating_sub(unchanged)
    }

    /// Transactions that had begun to change something and were rolled back since the start, those found at it included.
    pub fn rollback_count(&self) -> u64 {
        self.endings.rolled_back.load(Ordering::Relaxed)
    }

    /// Whether every transaction that has written anything has ended, as far as its undo log can tell.
    pub fn all_ended(&self) -> bool {
        !self.undo_in_doubt && (0..ACTIVE_SHARDS as u64).all(|shard| self.active_shard(TrxId(shard)).is_empty())
    }

    /// The id that the next writing transaction gets.
    pub fn next_trx_id(&self) -> TrxId {
        TrxId(self.next_id.load(Ordering::Acquire))
    }

    /// Tells how to find out whether an index still exists; once, before background work starts. Undo records of indexes
    /// that do not are skipped. The function must not wait for [`TrxSystem::wait_for_tree_users`].
    pub fn set_index_alive(&self, alive: IndexAlive) {
        assert!(self.index_alive.set(alive).is_ok(), "set once");
    }

    /// Tells how to find out whether an index that cannot be reached has been dropped; once, before background work starts. A
    /// rollback leaves out the changes of those only. Where that is not known the function says no. It must not wait for
    /// [`TrxSystem::wait_for_tree_users`].
    pub fn set_index_dropped(&self, dropped: IndexDropped) {
        assert!(self.index_dropped.set(dropped).is_ok(), "set once");
    }

    /// Whether an index that cannot be reached is gone for good.
    pub(crate) fn is_dropped(&self, index: IndexId, space: SpaceId) -> bool {
        self.pool.spaces().was_dropped(space) || self.index_dropped.get().is_some_and(|f| f(index, space))
    }

    /// Whether the last restart has taken what this transaction (`None`: one of an earlier run) changed in the tablespace, so
    /// that there is nothing left to undo or purge.
    pub(crate) fn is_lost(&self, space: SpaceId, trx: Option<TrxId>) -> bool {
        space == SpaceId::MEMORY && trx.is_none_or(|trx| trx < self.first_id)
    }

    pub(crate) fn is_index_alive(&self, index: IndexId) -> bool {
        self.index_alive.get().is_none_or(|f| f(index))
    }

    /// Returns when nobody is inside a tree because of an undo record followed before the call. After an index has been
    /// marked as dropped (see [`TrxSystem::set_index_alive`]) and this has returned, its pages may be freed.
    pub fn wait_for_tree_users(&self) {
        let _waiting = waits::begin(WaitFor::TreeUsers);
        drop(self.tree_users.write());
    }

    pub(crate) fn use_trees(&self) -> RwLockReadGuard<'_, ()> {
        self.tree_users.read()
    }

    /// Serializes the duplicate checks of keys with this hash, from the check to the insert.
    pub(crate) fn unique_guard(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.unique_guards[(hash % UNIQUE_GUARDS as u64) as usize].lock()
    }

    fn active_shard(&self, id: TrxId) -> MutexGuard<'_, ActiveTrxs> {
        let no = id.0 as usize % ACTIVE_SHARDS;
        lock_counted(&self.active[no], LatchClass::TrxSystem.part(no))
    }

    fn add_active(&self, id: TrxId, locks: &Arc<TrxLocks>) {
        self.active_shard(id).push((id, Arc::clone(locks)));
    }

    fn remove_active(&self, id: TrxId) {
        self.active_shard(id).retain(|a| a.0 != id);
    }

    /// A new transaction id; its holder can be found from now on.
    pub(crate) fn new_writer(&self, locks: &Arc<TrxLocks>) -> Result<TrxId> {
        let mut id = self.next_id.load(Ordering::Relaxed);
        loop {
            if id >= self.id_limit.load(Ordering::Acquire) {
                self.grow_ids()?;
            }
            match self.next_id.compare_exchange_weak(id, id + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => id = now,
            }
        }
        let id = TrxId(id);
        locks.set_trx_id(id);
        self.add_active(id, locks);
        Ok(id)
    }

    fn grow_ids(&self) -> Result<()> {
        let _one = self.id_growth.lock();
        let limit = self.id_limit.load(Ordering::Acquire);
        if self.next_id.load(Ordering::Acquire) < limit {
            return Ok(());
        }
        let first = self.commits.ensure(TrxId(limit))?.0;
        let new = (first / CHUNK_IDS + 1) * CHUNK_IDS;
        self.undo.reserve_ids(TrxId(new))?;
        // All ids below the limit have been given out, and nobody takes the next one before the new limit is there.
        self.next_id.store(first, Ordering::Release);
        self.id_limit.store(new, Ordering::Release);
        Ok(())
    }

    /// Whether the entry's writer is somebody else who is still active; gives it an explicit lock then. The caller holds
    /// the latch of the entry's leaf.
    pub(crate) fn implicitly_locked(&self, own: TrxId, writer: TrxId, key: LockKey<'_>) -> bool {
        if writer < self.commits.low_limit() || writer == own || self.commits.csn(writer).is_some() {
            return false;
        }
        let holder = self.active_shard(writer).iter().find(|a| a.0 == writer).map(|a| Arc::clone(&a.1));
        holder.is_some_and(|h| self.locks.convert_implicit(&h, writer, key) == ImplicitHolder::Active)
    }

    /// Writes a log's state. Returns the end of its log record; 0 if the transaction has written nothing.
    pub(crate) fn write_state(&self, log: &UndoLog, state: LogState) -> Result<Lsn> {
        if log.header.is_none() {
            return Ok(Lsn(0));
        }
        let mut mtr = Mtr::start_end(&self.pool)?;
        log.set_state(&mut mtr, state)?;
        mtr.commit()
    }

    /// The transaction has ended, its log says so: makes it visible, releases its locks and gives its slot back. What it should
    /// purge, if purge does not keep up.
    pub(crate) fn finish(&self, log: UndoLog, locks: &Arc<TrxLocks>) -> Option<PurgeShare> {
        self.commits.commit(log.trx, self.snapshots.next_csn());
        if log.records == 0 {
            self.endings.unchanged.fetch_add(1, Ordering::Release);
        }
        self.remove_active(log.trx);
        self.locks.release_all(locks);
        let share = self.purge_share(&log);
        self.undo.release(log.tail);
        share
    }

    /// As [`TrxSystem::finish`], for one that has been rolled back.
    pub(crate) fn finish_undone(&self, log: UndoLog, locks: &Arc<TrxLocks>) {
        self.endings.rolled_back.fetch_add(1, Ordering::Relaxed);
        self.finish(log, locks);
    }

    /// Makes everything up to `lsn` as durable as asked.
    pub(crate) fn harden(&self, lsn: Lsn, policy: FlushPolicy) -> Result<()> {
        if lsn == Lsn(0) {
            return Ok(());
        }
        match policy {
            FlushPolicy::EverySecond => Ok(()),
            FlushPolicy::Write => self.pool.heed_log(self.pool.log().write_to(lsn)),
            FlushPolicy::Sync => self.pool.heed_log(self.pool.log().flush_to(lsn)),
        }
    }

    /// Calls `call` with true when everything up to `lsn` is durable, or with false when it never will be: see [`Log::flush_later`].
    ///
    /// # Errors
    /// Those of the log; then `call` is not called.
    pub fn harden_later(&self, lsn: Lsn, call: impl FnOnce(bool) + Send + 'static) -> Result<()> {
        self.pool.heed_log(self.pool.log().flush_later(lsn, call))
    }

    fn list_sessions(&self) -> Vec<Arc<TrxShared>> {
        self.sessions.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Kills all sessions that wait for a lock: it may not come before the engine stops. Others go on, as the catalog's does.
    pub fn kill_waiting(&self) {
        self.list_sessions().iter().filter(|session| session.is_waiting()).for_each(|session| session.kill());
    }

    /// All transactions that have begun, recovered ones included.
    pub fn list_trx(&self, f: &mut dyn FnMut(&TrxInfo)) {
        for session in self.list_sessions() {
            if let Some(info) = session.info() {
                f(&info);
            }
        }
        let mut rest = self.losers.list();
        self.prepared.each(&mut |w| rest.push(w.info(TrxState::Prepared)));
        rest.iter().for_each(f);
    }

    /// Makes the whole log durable; for [`FlushPolicy::EverySecond`] and [`FlushPolicy::Write`].
    ///
    /// # Errors
    /// Those of the log.
    pub fn flush_log(&self) -> Result<()> {
        self.pool.log().flush_to(self.pool.log().end_lsn())
    }

    /// An error about an entry that a row's change needs and that is not there.
    pub(crate) fn missing_entry(page: myriad_base::PageId, index: IndexId) -> Error {
        Error::corrupt(page, format!("index {index} has no entry for a row that is to be changed"))
    }
}

/// Says what it means that these slots cannot be read; whether a transaction may be in doubt because of one.
fn set_aside(pool: &BufferPool, config: &TrxConfig, limit: TrxId, slots: Vec<Unreadable>) -> Result<bool> {
    // A log that has lost its end cannot tell either what came after the note.
    let all_ended = config.all_ended && !pool.has_lost_log();
    let mut in_doubt = false;
    for Unreadable { slot, trx, error } in slots {
        let whose = match trx {
            Some(trx) => format!("transaction {trx}"),
            None => format!("one with an id below {limit}"),
        };
        if all_ended {
            let text = format!("undo slot {slot} is set aside; every transaction in it had ended: {error}");
            (config.reporter)(Level::Warning, &text);
        } else if config.force {
            in_doubt = true;
            let text = format!(
                "undo slot {slot} is set aside. If its last transaction ({whose}) had not ended, its changes are not rolled back \
                 and look committed, and a prepared one is not known any more. Dump all tables and load them into a new data \
                 directory: {error}"
            );
            (config.reporter)(Level::Error, &text);
        } else {
            let hint = format!(
                "undo slot {slot} cannot be read. If its last transaction ({whose}) had not ended, its changes would look \
                 committed. Restore a backup, or set myriad_force_recovery=1 to start without this slot and dump the tables"
            );
            return Err(match error {
                Error::CorruptPage { page, reason } => Error::CorruptPage { page, reason: format!("{reason}; {hint}") },
                Error::Io { ref path, .. } => {
                    Error::CorruptFile { path: path.clone(), reason: format!("{error}; {hint}") }
                }
                other => Error::CorruptFile { path: "undo.myr".into(), reason: format!("{other}; {hint}") },
            });
        }
    }
    Ok(in_doubt)
}
