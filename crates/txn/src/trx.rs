//! A transaction: its life, savepoints, two-phase commit.

use crate::index::Index;
use crate::lock::{Inheritance, TrxLocks, WaitOutcome, WaitToken};
use crate::overtaken::Overtaken;
use crate::place::Place;
use crate::purge::PurgeShare;
use crate::read::{Versions, View};
use crate::snapshot::{SnapshotSlot, SnapshotWatch};
use crate::system::{FlushPolicy, TrxSystem, Work};
use crate::undo::record::{self, LogState};
use crate::undo::space::UndoLog;
use crate::write::Scratch;
use myriad_base::{Csn, Error, Lsn, Result, TrxId};
use myriad_buffer::{Level, Mtr};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Longest transaction name in bytes.
const XID_BYTES_MAX: usize = 255;

/// Isolation level, with InnoDB's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Newest versions, committed or not.
    ReadUncommitted,
    /// A snapshot per statement; no gap locks.
    ReadCommitted,
    /// A snapshot per transaction; gap locks.
    RepeatableRead,
    /// As REPEATABLE READ; to lock or change a row that another transaction has changed since the snapshot was opened is
    /// [`Error::RecordChanged`].
    Snapshot,
    /// As REPEATABLE READ; the caller asks for shared locks in plain reads.
    Serializable,
}

/// What to do where a row is locked by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait up to the transaction's limit.
    Wait,
    /// [`Error::LockWaitTimeout`] at once.
    NoWait,
    /// Pass over the row.
    SkipLocked,
}

/// What an [`Op`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A new entry; a delete-marked one with the key comes back to life.
    Insert,
    /// New payload for an existing entry, which the transaction has locked exclusively.
    Update,
    /// Delete-marks an existing entry, which the transaction has locked exclusively.
    Delete,
}

/// One change of one index entry.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// What to do.
    pub kind: OpKind,
    /// Where.
    pub index: &'a Index,
    /// The entry's key, without the index id.
    pub key: &'a [u8],
    /// INSERT: no other live entry may have this prefix of the key; 0 = no check.
    pub unique_len: usize,
    /// INSERT, UPDATE: the payload.
    pub payload: &'a [u8],
    /// How many of the payload's first bytes are its head, which stays in the entry where the payload as a whole is too
    /// long for one. What is behind it goes to overflow pages, and an update that leaves it as it was keeps those.
    pub head_len: usize,
}

/// Why [`Trx::apply`] failed. Nothing of the row was changed.
#[derive(Debug)]
pub struct ApplyError {
    /// Position of the failed operation.
    pub op: usize,
    /// What happened.
    pub error: Error,
}

/// How durable a commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As [`crate::FlushPolicy`] says.
    Configured,
    /// Durable on return.
    Sync,
    /// Somebody else (the binlog) will recover it.
    None,
}

/// A point to roll back to. Valid in its transaction until an earlier one was rolled back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(pub u64);

impl Isolation {
    fn from_u8(n: u8) -> Isolation {
        use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};
        [ReadUncommitted, ReadCommitted, RepeatableRead, Snapshot, Serializable][usize::from(n.min(4))]
    }

    /// Whether locking reads lock gaps.
    pub(crate) fn locks_gaps(self) -> bool {
        self >= Isolation::RepeatableRead
    }

    pub(crate) fn inheritance(self) -> Inheritance {
        if self.locks_gaps() {
            Inheritance::All
        } else {
            Inheritance::SharedOnly
        }
    }
}

/// A row as read: key without index id, and payload.
#[derive(Clone, Debug, Default)]
pub struct RowBuf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) key_len: usize,
    pub(crate) lock_is_new: bool,
}

/// Bytes that a session's buffer keeps from one statement to the next.
const KEPT_BYTES: usize = 1 << 20;

/// Gives back a buffer that a long value has made large; there may be very many idle sessions.
#[inline]
pub(crate) fn trim(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

impl RowBuf {
    /// An empty buffer.
    pub fn new() -> RowBuf {
        RowBuf::default()
    }

    /// Gives back the memory of a long row.
    pub fn trim(&mut self) {
        trim(&mut self.bytes);
    }

    /// Becomes a row with this key and an empty payload, to be appended to `bytes`.
    pub(crate) fn begin(&mut self, key: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(key);
        self.key_len = key.len();
        self.lock_is_new = false;
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) {
        self.begin(key);
        self.bytes.extend_from_slice(value);
    }

    /// Whether a lock was stored for this row, so that [`Trx::unlock`] may give it back.
    pub fn lock_is_new(&self) -> bool {
        self.lock_is_new
    }

    /// The key without the index id.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    /// The payload.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }
}

/// What a transaction is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TrxState {
    /// None has begun.
    Idle = 0,
    /// Begun.
    Active = 1,
    /// Prepared (XA).
    Prepared = 2,
    /// Committing.
    Committing = 3,
    /// Rolling back.
    RollingBack = 4,
}

/// A transaction, for reports.
#[derive(Clone, Debug)]
pub struct TrxInfo {
    /// As in reports of locks: a transaction that has changed nothing has one too ([`TrxLocks::shown_id`]).
    pub shown_id: u64,
    /// What it is doing.
    pub state: TrxState,
    /// Whether it waits for a lock.
    pub waiting: bool,
    /// Wall-clock time of its begin in microseconds since 1970.
    pub start_wall_us: u64,
    /// Wall-clock time at which the present lock wait began; 0: none.
    pub wait_start_wall_us: u64,
    /// Undo records written.
    pub undo_records: u64,
    /// Locks held.
    pub locks_held: u64,
    /// As set by [`Trx::set_owner`].
    pub thread_id: u64,
    /// Isolation level.
    pub isolation: Isolation,
    /// Found at start.
    pub recovered: bool,
    /// How many transactions have ended since its snapshot was opened, whose old versions purge keeps for it; `None`: it has none.
    pub snapshot_age: Option<u64>,
}

/// What other threads see of a session's transaction.
pub(crate) struct TrxShared {
    locks: Mutex<Arc<TrxLocks>>,
    state: AtomicU8,
    isolation: AtomicU8,
    start_wall_us: AtomicU64,
    undo_records: AtomicU64,
    thread_id: AtomicU64,
    snapshot: SnapshotWatch,
}

impl TrxShared {
    pub fn new(isolation: Isolation, snapshot: SnapshotWatch) -> TrxShared {
        TrxShared {
            locks: Mutex::new(TrxLocks::new()),
            state: AtomicU8::new(TrxState::Idle as u8),
            isolation: AtomicU8::new(isolation as u8),
            start_wall_us: AtomicU64::new(0),
            undo_records: AtomicU64::new(0),
            thread_id: AtomicU64::new(0),
            snapshot,
        }
    }

    pub(crate) fn kill(&self) {
        self.locks.lock().kill();
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.locks.lock().wait_start_wall_us() != 0
    }

    fn state(&self) -> TrxState {
        match self.state.load(Ordering::Relaxed) {
            1 => TrxState::Active,
            2 => TrxState::Prepared,
            3 => TrxState::Committing,
            4 => TrxState::RollingBack,
            _ => TrxState::Idle,
        }
    }

    /// `None` while idle.
    pub fn info(&self) -> Option<TrxInfo> {
        let state = self.state();
        let locks = Arc::clone(&self.locks.lock());
        let wait = locks.wait_start_wall_us();
        (state != TrxState::Idle).then(|| TrxInfo {
            shown_id: locks.shown_id(),
            state,
            waiting: wait != 0,
            start_wall_us: self.start_wall_us.load(Ordering::Relaxed),
            wait_start_wall_us: wait,
            undo_records: self.undo_records.load(Ordering::Relaxed),
            locks_held: locks.locks_held() as u64,
            thread_id: self.thread_id.load(Ordering::Relaxed),
            isolation: Isolation::from_u8(self.isolation.load(Ordering::Relaxed)),
            recovered: false,
            snapshot_age: self.snapshot.age(),
        })
    }
}

/// What other threads may do with a transaction.
#[derive(Clone)]
pub struct TrxHandle {
    shared: Arc<TrxShared>,
}

impl TrxHandle {
    /// Ends the present or next lock wait with [`Error::Interrupted`].
    pub fn kill(&self) {
        self.shared.kill();
    }

    /// Forgets earlier kills.
    pub fn reset_kill(&self) {
        self.shared.locks.lock().reset_kill();
    }

    /// Whether it was killed since.
    pub fn is_killed(&self) -> bool {
        self.shared.locks.lock().is_killed()
    }
}

/// A session's transaction object: idle until its first use, then a transaction until commit or rollback, then idle
/// again. Dropping it rolls back; a prepared transaction with changes is detached instead.
pub struct Trx {
    pub(crate) sys: Arc<TrxSystem>,
    /// Its number among the sessions.
    session: u64,
    shared: Arc<TrxShared>,
    pub(crate) locks: Arc<TrxLocks>,
    thd: usize,
    isolation: Isolation,
    state: TrxState,
    lock_timeout: Duration,
    snapshot_slot: SnapshotSlot,
    snapshot: Option<Csn>,
    pub(crate) undo: Option<UndoLog>,
    xid: Option<Vec<u8>>,
    /// A rollback to this savepoint has failed on the way: what it was to undo is there in part.
    half_undone: Option<u64>,
    /// Set by `commit_ordered`: the end of the commit's log record.
    ordered: Option<Lsn>,
    /// What it should purge now that it has ended.
    pub(crate) purge_share: Option<PurgeShare>,
    /// Whether it has changed anything that outlives a restart: in-memory tables do not.
    pub(crate) lasting_changes: bool,
    /// Whether it has changed tables that the next start does not drop: prepared, it is found again then.
    pub(crate) comes_back: bool,
    /// Grows with each change: batches read ahead before are stale.
    pub(crate) changes: u64,
    pub(crate) scratch: Scratch,
    pub(crate) versions: Versions,
    pub(crate) overtaken: Overtaken,
    /// Leaf of a clustered index that was used last.
    pub(crate) place: Option<Place>,
    pub(crate) duplicate: Vec<u8>,
}

impl Trx {
    pub(crate) fn new(
        sys: Arc<TrxSystem>,
        session: u64,
        shared: Arc<TrxShared>,
        snapshot_slot: SnapshotSlot,
        isolation: Isolation,
    ) -> Trx {
        let locks = Arc::clone(&shared.locks.lock());
        Trx {
            sys,
            session,
            shared,
            locks,
            thd: 0,
            isolation,
            state: TrxState::Idle,
            lock_timeout: Duration::from_secs(50),
            snapshot_slot,
            snapshot: None,
            undo: None,
            xid: None,
            half_undone: None,
            ordered: None,
            purge_share: None,
            lasting_changes: false,
            comes_back: false,
            changes: 0,
            scratch: Scratch::default(),
            versions: Versions::default(),
            overtaken: Overtaken::default(),
            place: None,
            duplicate: Vec::new(),
        }
    }

    /// For other threads.
    pub fn handle(&self) -> TrxHandle {
        TrxHandle { shared: Arc::clone(&self.shared) }
    }

    /// The system it belongs to.
    pub fn system(&self) -> &Arc<TrxSystem> {
        &self.sys
    }

    /// For reports and [`crate::CommitOrder`].
    pub fn set_owner(&mut self, thd: usize, thread_id: u64) {
        self.thd = thd;
        self.locks.set_owner(thd, thread_id);
        self.shared.thread_id.store(thread_id, Ordering::Relaxed);
    }

    fn set_state(&mut self, state: TrxState) {
        self.state = state;
        self.shared.state.store(state as u8, Ordering::Relaxed);
    }

    /// Begins a transaction if none has. Cheap; opens no snapshot.
    pub fn start(&mut self) {
        if self.state != TrxState::Idle {
            return;
        }
        self.locks.begin(TrxId(0), self.isolation.inheritance());
        self.shared.start_wall_us.store(self.sys.clock().wall_us(), Ordering::Relaxed);
        self.set_state(TrxState::Active);
    }

    /// What it is doing.
    pub fn state(&self) -> TrxState {
        self.state
    }

    /// Its id, 0 before its first change.
    #[inline]
    pub fn id(&self) -> TrxId {
        self.undo.as_ref().map_or(TrxId(0), |u| u.trx)
    }

    /// Whether it has changed anything.
    pub fn has_changes(&self) -> bool {
        self.undo.as_ref().is_some_and(|u| u.records > 0)
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Changes the isolation level of what follows.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if isolation == self.isolation {
            return;
        }
        self.isolation = isolation;
        self.shared.isolation.store(isolation as u8, Ordering::Relaxed);
        self.locks.set_inheritance(isolation.inheritance());
    }

    /// Longest wait for one lock.
    pub fn set_lock_wait_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
    }

    /// How long a lock is waited for.
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Forgets earlier kills.
    pub fn reset_kill(&mut self) {
        self.locks.reset_kill();
    }

    /// Whether it was killed since.
    pub fn is_killed(&self) -> bool {
        self.locks.is_killed()
    }

    /// Opens the snapshot now if none is open.
    pub fn open_snapshot(&mut self) {
        self.start();
        self.snapshot();
    }

    pub(crate) fn snapshot(&mut self) -> Csn {
        match self.snapshot {
            Some(csn) => csn,
            None => {
                let csn = self.snapshot_slot.open();
                self.snapshot = Some(csn);
                csn
            }
        }
    }

    /// The open snapshot: commits below this number are seen.
    #[inline]
    pub fn snapshot_csn(&self) -> Option<Csn> {
        self.snapshot
    }

    /// The snapshot that what is locked or changed has to be in: none below [`Isolation::Snapshot`].
    pub(crate) fn binding_snapshot(&self) -> Option<Csn> {
        self.snapshot.filter(|_| self.isolation == Isolation::Snapshot)
    }

    /// What a read without locks sees.
    pub(crate) fn view(&mut self) -> View {
        if self.isolation == Isolation::ReadUncommitted {
            View::Newest
        } else {
            View::Snapshot(self.snapshot())
        }
    }

    /// A statement ends: at READ COMMITTED and below the snapshot is closed.
    pub fn end_statement(&mut self) {
        self.scratch.trim();
        self.versions.trim();
        if self.isolation <= Isolation::ReadCommitted {
            self.close_snapshot();
        }
    }

    /// Closes the snapshot at any level (an autocommit read ends).
    pub fn close_snapshot(&mut self) {
        if self.snapshot.take().is_some() {
            self.snapshot_slot.close();
            self.overtaken.clear();
        }
    }

    /// Key (without index id) of the entry that the last [`Error::DuplicateKey`] was about.
    pub fn duplicate_key(&self) -> &[u8] {
        self.duplicate.get(4..).unwrap_or(&[])
    }

    /// Waits; no latch may be held. Whatever is waited for must be looked at again afterwards.
    pub(crate) fn wait(&self, token: WaitToken) -> Result<()> {
        self.locks.set_weight(self.undo.as_ref().map_or(0, |u| u.records));
        match self.sys.locks().wait(&self.locks, token, self.lock_timeout) {
            WaitOutcome::Granted => Ok(()),
            WaitOutcome::Timeout => Err(Error::LockWaitTimeout),
            WaitOutcome::Deadlock => Err(Error::Deadlock),
            WaitOutcome::Interrupted => Err(Error::Interrupted),
        }
    }

    /// Gets an id and an undo slot at the first change. No latch may be held.
    pub(crate) fn start_writing(&mut self) -> Result<()> {
        if self.undo.is_some() {
            return Ok(());
        }
        if self.ordered.is_some() {
            return Err(Error::invalid("a change in a transaction that has committed and is not yet durable"));
        }
        self.start();
        let tail = self.sys.undo.acquire()?;
        match self.sys.new_writer(&self.locks) {
            Ok(id) => {
                self.undo = Some(UndoLog::new(tail, id));
                Ok(())
            }
            Err(e) => {
                self.sys.undo.release(tail);
                Err(e)
            }
        }
    }

    /// Notes a change just made.
    pub(crate) fn count_change(&mut self) {
        self.changes += 1;
        if let Some(u) = &mut self.undo {
            u.records += 1;
            self.shared.undo_records.store(u.records, Ordering::Relaxed);
        }
    }

    /// A point to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.undo.as_ref().map_or(0, |u| u.records))
    }

    /// Undoes all changes since `savepoint`; locks stay.
    ///
    /// # Errors
    /// Those of the buffer pool; may be repeated. Until that succeeds the transaction cannot be committed. [`Error::Invalid`] if
    /// it is prepared: what was promised stays whole.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let Some(log) = &mut self.undo else { return Ok(()) };
        if log.records > savepoint.0 {
            if self.state == TrxState::Prepared {
                return Err(Error::invalid("a rollback of a part of a transaction that is prepared"));
            }
            self.changes += 1;
            let shared = &self.shared;
            let mut progress = |left| {
                shared.undo_records.store(left, Ordering::Relaxed);
                Ok(())
            };
            if let Err(e) = self.sys.rollback_log(log, savepoint.0, &mut progress) {
                self.half_undone = Some(self.half_undone.map_or(savepoint.0, |to| to.min(savepoint.0)));
                return Err(e);
            }
            self.overtaken.roll_back_to(savepoint.0);
        }
        self.half_undone = self.half_undone.filter(|to| *to < savepoint.0);
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        match self.half_undone {
            Some(_) => {
                Err(Error::invalid("a statement of the transaction could not be undone: it can only be rolled back"))
            }
            None => Ok(()),
        }
    }

    /// Undoes everything and ends the transaction. The end of a prepared one is as durable as a commit.
    ///
    /// # Errors
    /// Those of the buffer pool; then the rollback goes on in the background and this object is idle. Those of the log.
    pub fn rollback(&mut self) -> Result<()> {
        if self.state == TrxState::Idle {
            return Ok(());
        }
        if self.ordered.is_some() {
            return Err(Error::invalid("rollback of a transaction that has committed"));
        }
        let was_prepared = self.state == TrxState::Prepared;
        self.set_state(TrxState::RollingBack);
        let unprepared = match self.undo_all(was_prepared) {
            Ok(lsn) => lsn,
            Err(e) => {
                self.hand_over(|sys, work| sys.abandon(work));
                return Err(e);
            }
        };
        match self.undo.take() {
            Some(log) => self.sys.finish_undone(log, &self.locks),
            None => self.sys.locks().release_all(&self.locks),
        }
        self.become_idle();
        self.sys.harden(unprepared, self.sys.flush_policy())
    }

    /// Returns from where in the log on it does not come back as prepared; 0 if it was not.
    fn undo_all(&mut self, was_prepared: bool) -> Result<Lsn> {
        let Some(log) = &self.undo else { return Ok(Lsn(0)) };
        // Half of a prepared one may be undone from here on: it must not come back as prepared.
        let unprepared = if was_prepared { self.sys.write_state(log, LogState::Active)? } else { Lsn(0) };
        self.rollback_to(Savepoint(0))?;
        let log = self.undo.as_ref().expect("checked above");
        self.sys.write_state(log, LogState::Committed)?;
        Ok(unprepared)
    }

    fn become_idle(&mut self) {
        self.close_snapshot();
        self.undo = None;
        self.xid = None;
        self.half_undone = None;
        self.ordered = None;
        self.scratch.trim();
        self.versions.trim();
        self.lasting_changes = false;
        self.comes_back = false;
        self.changes += 1;
        self.shared.undo_records.store(0, Ordering::Relaxed);
        self.set_state(TrxState::Idle);
    }

    /// Gives the transaction, locks included, to the system; this object goes on with new ones.
    fn hand_over(&mut self, to: impl FnOnce(&TrxSystem, Work)) {
        let fresh = TrxLocks::new();
        fresh.set_owner(self.thd, self.shared.thread_id.load(Ordering::Relaxed));
        *self.shared.locks.lock() = Arc::clone(&fresh);
        let locks = std::mem::replace(&mut self.locks, fresh);
        self.sys.locks().disown(&locks);
        let log = self.undo.take();
        let xid = self.xid.take();
        match log {
            Some(log) => {
                let start_wall_us = self.shared.start_wall_us.load(Ordering::Relaxed);
                let (isolation, retry_at) = (self.isolation, Duration::ZERO);
                to(
                    &self.sys,
                    Work { log, locks, xid, start_wall_us, isolation, recovered: false, retry_at, told: None },
                );
            }
            None => self.sys.locks().release_all(&locks),
        }
        self.become_idle();
    }

    /// Makes the changes visible and durable, releases the locks and ends the transaction.
    ///
    /// # Errors
    /// Those of the log; [`Error::Invalid`] after a [`Trx::rollback_to`] that failed.
    pub fn commit(&mut self, durability: Durability) -> Result<()> {
        self.commit_ordered()?;
        self.commit_finish(durability)
    }

    /// As [`Trx::commit`], but may return before the changes are durable: the LSN for [`TrxSystem::harden_later`].
    ///
    /// # Errors
    /// Those of [`Trx::commit`].
    pub fn commit_later(&mut self, durability: Durability) -> Result<Option<Lsn>> {
        self.commit_ordered()?;
        let Some((lsn, policy)) = self.end_ordered(durability) else { return Ok(None) };
        if policy == FlushPolicy::Sync && lsn > self.sys.pool().log().durable_lsn() {
            return Ok(Some(lsn));
        }
        self.sys.harden(lsn, policy)?;
        Ok(None)
    }

    /// First phase: durable as prepared on return (with [`Durability::Sync`] or as configured). The name is for
    /// [`crate::TrxSystem::commit_by_xid`].
    ///
    /// # Errors
    /// Those of the log; [`Error::Invalid`] for a name longer than 255 bytes.
    pub fn prepare(&mut self, xid: &[u8], durability: Durability) -> Result<()> {
        if xid.len() > XID_BYTES_MAX {
            return Err(Error::TooLong { what: "transaction name", len: xid.len(), max: XID_BYTES_MAX });
        }
        if self.state == TrxState::Idle {
            self.start();
        }
        if self.state != TrxState::Active {
            return Err(Error::invalid("prepare of a transaction that is not active"));
        }
        self.check_whole()?;
        let lsn = if self.has_changes() && self.comes_back { self.write_prepared(xid)? } else { Lsn(0) };
        self.xid = Some(xid.to_vec());
        self.set_state(TrxState::Prepared);
        self.close_snapshot();
        self.sys.harden(lsn, self.policy(durability))
    }

    /// Of a prepared transaction that may stay so for long: its shared locks and gaps go, but at SERIALIZABLE.
    pub fn release_reads(&self) {
        if self.state == TrxState::Prepared && self.isolation != Isolation::Serializable {
            self.sys.locks().release_reads(&self.locks);
        }
    }

    fn write_prepared(&mut self, xid: &[u8]) -> Result<Lsn> {
        let log = self.undo.as_mut().expect("has changes");
        let mut body = Vec::with_capacity(1 + xid.len());
        body.push(record::Kind::Xid as u8);
        body.extend_from_slice(xid);
        if !log.fits(self.sys.pool().page_size(), body.len()) {
            self.sys.undo.extend(log)?;
        }
        let mut mtr = Mtr::start(self.sys.pool())?;
        // Both pages before any change: an error must leave the mini-transaction empty.
        let _ = mtr.fix(crate::undo::page::undo_page(log.header.page()))?;
        log.xid = log.append(&mut mtr, &body)?;
        log.set_state(&mut mtr, LogState::Prepared)?;
        mtr.commit()
    }

    fn policy(&self, durability: Durability) -> FlushPolicy {
        match durability {
            Durability::Configured => self.sys.flush_policy(),
            Durability::Sync => FlushPolicy::Sync,
            Durability::None => FlushPolicy::EverySecond,
        }
    }

    /// Second phase, first half: makes the changes visible and releases the locks, without a sync.
    ///
    /// # Errors
    /// Those of the log.
    pub fn commit_ordered(&mut self) -> Result<()> {
        if self.state == TrxState::Idle || self.ordered.is_some() {
            return Ok(());
        }
        self.check_whole()?;
        let lsn = match &self.undo {
            Some(log) => {
                self.shared.state.store(TrxState::Committing as u8, Ordering::Relaxed);
                self.sys.write_state(log, LogState::Committed)?
            }
            None => Lsn(0),
        };
        match self.undo.take() {
            Some(log) => self.purge_share = self.sys.finish(log, &self.locks),
            None => self.sys.locks().release_all(&self.locks),
        }
        self.ordered = Some(lsn);
        self.close_snapshot();
        Ok(())
    }

    /// Second phase, second half: durability; also does [`Trx::commit_ordered`] if nobody has. The object is idle then.
    ///
    /// # Errors
    /// Those of the log.
    pub fn commit_finish(&mut self, durability: Durability) -> Result<()> {
        self.commit_ordered()?;
        match self.end_ordered(durability) {
            Some((lsn, policy)) => self.sys.harden(lsn, policy),
            None => Ok(()),
        }
    }

    /// What is left to do of a commit, and how; the object is idle.
    fn end_ordered(&mut self, durability: Durability) -> Option<(Lsn, FlushPolicy)> {
        let lsn = self.ordered?;
        // What a restart empties need not wait for the log, but a prepared transaction would come back.
        let waits = self.lasting_changes || (self.xid.is_some() && self.comes_back);
        let policy = if waits { self.policy(durability) } else { FlushPolicy::EverySecond };
        // Those of locking reads since.
        self.sys.locks().release_all(&self.locks);
        self.become_idle();
        Some((lsn, policy))
    }

    /// Makes changes of tables that the next start drops: because of them the commit does not wait for the log, nor is the transaction
    /// found again if it is prepared.
    pub fn passing<R>(&mut self, changes: impl FnOnce(&mut Trx) -> R) -> R {
        let before = (self.lasting_changes, self.comes_back);
        let result = changes(self);
        (self.lasting_changes, self.comes_back) = before;
        result
    }

    /// After a commit: takes a share of purge's work, if its threads do not keep up with the commits.
    pub fn help_purge(&mut self) {
        if let Some(share) = self.purge_share.take() {
            self.sys.take_share(share);
        }
    }

    /// Leaves the prepared transaction to [`crate::TrxSystem::commit_by_xid`]; this object is idle then. One without changes
    /// stays here: there is nothing to commit, and no log that says that it is prepared.
    pub fn detach_prepared(&mut self) {
        if self.state == TrxState::Prepared && self.ordered.is_none() && self.has_changes() {
            self.hand_over(|sys, work| sys.detach(work));
        }
    }

    /// Takes a transaction back that [`Trx::detach_prepared`] left, to end it here; `false` if there is none of that name.
    pub fn attach_prepared(&mut self, xid: &[u8]) -> bool {
        if self.state != TrxState::Idle {
            return false;
        }
        let Some(work) = self.sys.reattach(xid) else { return false };
        work.locks.set_owner(self.thd, self.shared.thread_id.load(Ordering::Relaxed));
        *self.shared.locks.lock() = Arc::clone(&work.locks);
        self.locks = work.locks;
        self.shared.undo_records.store(work.log.records, Ordering::Relaxed);
        self.shared.start_wall_us.store(work.start_wall_us, Ordering::Relaxed);
        self.isolation = work.isolation;
        self.undo = Some(work.log);
        self.xid = work.xid;
        self.lasting_changes = true;
        self.comes_back = true;
        self.set_state(TrxState::Prepared);
        true
    }

    /// Number of rows of the index that the transaction's snapshot sees.
    ///
    /// # Errors
    /// Those of the tree; [`Error::Interrupted`].
    pub fn count(&mut self, index: &Index) -> Result<u64> {
        let locks = Arc::clone(&self.locks);
        self.start();
        crate::count::count(self, index, &|| locks.is_killed())
    }
}

impl Drop for Trx {
    fn drop(&mut self) {
        // Of a commit whose second half nobody did: visible, and in the log.
        self.end_ordered(Durability::None);
        self.detach_prepared();
        if let Err(e) = self.rollback() {
            self.sys.report(Level::Warning, &format!("a closed session's rollback goes on in the background: {e}"));
        }
        self.sys.end_session(self.session);
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Trx>();
};
