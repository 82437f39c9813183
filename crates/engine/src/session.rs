//! Sessions: one client's transactions.

use crate::changed::Changed;
use crate::engine::Engine;
use crate::share::TableShare;
use crate::table::Table;
use crate::transaction::{Closure, TransactionOptions};
use myriad_base::{Error, Lsn, Result};
use myriad_buffer::Level;
use myriad_txn::{Durability, LockWait, RowBuf, Strength, Trx, TrxHandle, TrxState};
pub use myriad_txn::{Isolation, OpKind, Savepoint};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The lock that a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// None: reads its snapshot.
    None,
    /// Shared.
    Shared,
    /// Exclusive.
    Exclusive,
}

impl Lock {
    #[inline]
    pub(crate) fn strength(self) -> Option<Strength> {
        match self {
            Lock::None => None,
            Lock::Shared => Some(Strength::S),
            Lock::Exclusive => Some(Strength::X),
        }
    }
}

/// What a read does about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits.
    Wait,
    /// Fails at once with [`myriad_base::Error::LockWaitTimeout`].
    NoWait,
    /// Leaves the row out.
    SkipLocked,
}

impl Wait {
    #[inline]
    pub(crate) fn lock_wait(self) -> LockWait {
        match self {
            Wait::Wait => LockWait::Wait,
            Wait::NoWait => LockWait::NoWait,
            Wait::SkipLocked => LockWait::SkipLocked,
        }
    }
}

/// One index entry's change.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// What to do.
    pub kind: OpKind,
    /// Which index of the table.
    pub index_no: usize,
    /// Key without the index id.
    pub key: &'a [u8],
    /// Insert: this prefix of the key must be unique; 0 = no check.
    pub unique_len: usize,
    /// Insert, update: the value.
    pub value: &'a [u8],
    /// How many of the value's first bytes are its head: where a value is too long for an index page, they stay there, can
    /// be read without the rest (see [`crate::CursorOptions::tail_bytes`]), and a change of them alone does not write the rest
    /// again. 0: no head.
    pub head_len: usize,
}

/// How [`Session::apply`] works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyMode {
    /// Locks a duplicate exclusively.
    pub duplicate_exclusive: bool,
}

/// A row as stored: its key in the index read, and its value. Valid until the session's or cursor's next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Key without the index id.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// One client's way to the engine. Used by one thread at a time. Dropping it rolls back what is active; a prepared
/// transaction is left to [`Engine::commit_by_xid`].
///
/// ```
/// # use myriad::{Engine, IndexSpec, Result, TableSpec};
/// # fn main() -> Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::open(folder.path())?;
/// # engine.create_table("d/t", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
/// # let table = engine.open_table("d/t")?;
/// let mut session = engine.session();
/// session.insert(&table, b"a", b"1")?;
/// let savepoint = session.savepoint()?;
/// session.insert(&table, b"b", b"2")?;
/// session.rollback_to(savepoint)?;
/// let (told, hears) = std::sync::mpsc::channel();
/// match session.commit_later()? {
///     None => told.send(true).unwrap(),
///     Some(lsn) => engine.when_durable(lsn, move |durable| told.send(durable).unwrap())?,
/// }
/// assert!(hears.recv().unwrap(), "the commit survives a crash from here on");
/// assert_eq!((session.find(&table, b"a")?.is_some(), session.find(&table, b"b")?.is_some()), (true, false));
/// # session.commit()
/// # }
/// ```
pub struct Session {
    engine: Arc<Engine>,
    pub(crate) trx: Trx,
    row: RowBuf,
    statement: Savepoint,
    pub(crate) options: TransactionOptions,
    pub(crate) closure: Closure,
    autocommit: bool,
    pub(crate) failed_op: usize,
    /// Tables whose AUTO_INCREMENT counter the transaction has moved.
    counters: SmallVec<[Arc<TableShare>; 2]>,
    pub(crate) changed: Changed,
}

shown!(Session, |s| [("in_transaction", &s.in_transaction()), ("options", &s.options)]);

/// Interrupts a session's lock wait from any thread.
#[derive(Clone)]
pub struct KillHandle {
    trx: TrxHandle,
}

shown!(KillHandle, |k| [("is_killed", &k.is_killed())]);

impl KillHandle {
    /// Wakes a lock wait with [`myriad_base::Error::Interrupted`]; the next one fails at once, until
    /// [`Session::reset_kill`].
    pub fn kill(&self) {
        self.trx.kill();
    }

    /// Whether it was killed since.
    pub fn is_killed(&self) -> bool {
        self.trx.is_killed()
    }
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, owner: usize, thread_id: u64) -> Session {
        let mut trx = engine.trx_system().begin(Isolation::RepeatableRead);
        trx.set_owner(owner, thread_id);
        let statement = trx.savepoint();
        Session {
            engine,
            trx,
            row: RowBuf::new(),
            statement,
            options: TransactionOptions::default(),
            closure: Closure::default(),
            autocommit: true,
            failed_op: 0,
            counters: SmallVec::new(),
            changed: Changed::default(),
        }
    }

    /// Whose session it is from now on, as in [`Engine::session_for`]; 0 and 0: nobody's.
    pub fn set_owner(&mut self, owner: usize, thread_id: u64) {
        self.trx.set_owner(owner, thread_id);
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Whether this session may use the table now.
    #[inline]
    pub(crate) fn check_usable(&self, table: &Table) -> Result<()> {
        if !Arc::ptr_eq(&self.engine, &table.engine) {
            return Err(of_another_engine(&table.share));
        }
        self.engine.check_usable(&table.share)
    }

    /// Whether what was changed may still become durable.
    fn check_commit(&self) -> Result<()> {
        match self.trx.has_changes() {
            true => self.engine.check_open(),
            false => Ok(()),
        }
    }

    /// Begins a statement; begins a transaction where there is none. `isolation` holds from here on, also if the transaction began at
    /// another; no single wait for a lock of the statement is longer than `lock_wait`. With `autocommit` the statement's snapshot ends
    /// with the statement at any isolation level; the transaction does not.
    pub fn statement_begin(&mut self, isolation: Isolation, autocommit: bool, lock_wait: Duration) {
        if self.trx.isolation() != isolation {
            self.trx.set_isolation(isolation);
        }
        self.trx.set_lock_wait_timeout(lock_wait);
        self.trx.start();
        self.autocommit = autocommit;
        self.statement = self.trx.savepoint();
    }

    /// Ends a statement and keeps its changes.
    pub fn statement_end(&mut self) {
        self.row.trim();
        self.trx.end_statement();
        if self.autocommit {
            self.trx.close_snapshot();
        }
    }

    /// Ends a statement and undoes its changes.
    ///
    /// # Errors
    /// Those of reading and writing pages; the undoing may be repeated, the statement has ended.
    pub fn statement_rollback(&mut self) -> Result<()> {
        let undone = self.trx.rollback_to(self.statement);
        self.statement_end();
        undone
    }

    /// Fixes the transaction's snapshot now; begins a transaction where there is none.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn open_snapshot(&mut self) -> Result<()> {
        self.engine.pool().check_poison()?;
        self.trx.start();
        self.trx.open_snapshot();
        Ok(())
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.trx.state() != TrxState::Idle
    }

    /// Whether the transaction has changed anything.
    pub fn has_changes(&self) -> bool {
        self.trx.has_changes()
    }

    /// Marks a point to roll back to.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        self.engine.pool().check_poison()?;
        Ok(self.trx.savepoint())
    }

    /// Undoes all that was done since; locks stay. The savepoint is one of this transaction, and none that came after one that was
    /// rolled back to: it is not checked.
    ///
    /// # Errors
    /// Those of reading and writing pages; may be repeated. [`Error::Invalid`] after [`Session::prepare`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.trx.rollback_to(savepoint)
    }

    /// Undoes the transaction.
    ///
    /// # Errors
    /// Those of reading and writing pages; the rollback goes on in the background then.
    pub fn rollback(&mut self) -> Result<()> {
        // The counters are not rolled back; to store them is a courtesy that must not keep the rollback from happening.
        let stored = self.store_counters();
        self.changed.forget();
        self.trx.rollback()?;
        stored
    }

    /// [`Session::rollback`] where something else has failed, which the caller is told of.
    pub(crate) fn give_up(&mut self) {
        self.changed.forget();
        if let Err(failed) = self.trx.rollback() {
            let text = format!("the rollback of a transaction that failed goes on in the background: {failed}");
            (self.engine.parts.report)(Level::Warning, &text);
        }
    }

    /// Makes the transaction visible, and durable as configured.
    ///
    /// # Errors
    /// Those of the log, by which the engine is poisoned; others, and [`Error::Invalid`] after a rollback of a part that
    /// failed. Then the transaction is rolled back: it must not be committed with what the session does next.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_by(|trx| trx.commit(Durability::Configured))?;
        self.trx.help_purge();
        Ok(())
    }

    /// The first half of [`Session::commit`]: visible, in the log, not yet durable. [`Session::commit_finish`] is the other one, and
    /// what has to come next: changes are refused with [`Error::Invalid`].
    ///
    /// # Errors
    /// Those of [`Session::commit`].
    pub fn commit_visible(&mut self) -> Result<()> {
        self.commit_by(Trx::commit_ordered)
    }

    /// As [`Session::commit`], but does not wait for the log: with an LSN the transaction is visible but not yet durable. Nobody may
    /// be told of the commit before [`Engine::when_durable`] says so.
    ///
    /// # Errors
    /// Those of [`Session::commit`].
    pub fn commit_later(&mut self) -> Result<Option<Lsn>> {
        let lsn = self.commit_by(|trx| trx.commit_later(Durability::Configured))?;
        self.trx.help_purge();
        Ok(lsn)
    }

    fn commit_by<R>(&mut self, commit: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        self.check_no_closure()?;
        self.row.trim();
        let stored = self.check_commit().and_then(|()| self.store_counters());
        match stored.and_then(|()| commit(&mut self.trx)) {
            Ok(done) => {
                self.stamp_changed();
                Ok(done)
            }
            Err(e) => {
                self.give_up();
                Err(e)
            }
        }
    }

    /// First phase: durable, undecided. `xid`, 255 bytes at most, is what [`Engine::prepared`] lists after a crash: no two prepared
    /// transactions may have the same, which is not checked. [`Session::commit`] or [`Session::rollback`] decides.
    ///
    /// # Errors
    /// Those of the log; [`Error::TooLong`], [`Error::Invalid`] if it is prepared already, [`Error::ShuttingDown`].
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        self.check_no_closure()?;
        self.check_commit()?;
        self.store_counters()?;
        self.trx.prepare(xid, Durability::Configured)
    }

    /// After [`Session::prepare`] of a transaction that may stay prepared for long: shared locks and gaps go, but at
    /// SERIALIZABLE; what it has changed stays locked.
    pub fn release_reads(&self) {
        self.trx.release_reads();
    }

    /// Second phase, fast part: visible, no sync. An error shows in [`Session::commit_finish`].
    pub fn commit_ordered(&mut self) {
        loop {
            match self.trx.commit_ordered() {
                Ok(()) => break,
                // What is decided cannot be refused, and pages that fill the pool because they cannot be written are some time.
                Err(Error::BufferPoolExhausted) if self.engine.parts.config.background_threads => {}
                Err(e) => {
                    self.engine.poison(&format!("commit failed: {e}"));
                    break;
                }
            }
        }
        self.stamp_changed();
    }

    /// Second phase, slow part: durable as configured unless somebody else sees to it; does the fast part if it was not done.
    ///
    /// # Errors
    /// Those of the log.
    pub fn commit_finish(&mut self, durable: bool) -> Result<()> {
        self.check_no_closure()?;
        self.row.trim();
        self.trx.commit_finish(if durable { Durability::Configured } else { Durability::None })?;
        self.trx.help_purge();
        self.stamp_changed();
        Ok(())
    }

    /// Leaves a prepared transaction to [`Engine::commit_by_xid`]. One without changes stays the session's.
    pub fn detach_prepared(&mut self) {
        self.changed.forget();
        self.trx.detach_prepared();
    }

    /// Takes a transaction back that [`Session::detach_prepared`] left, to end it here; false if there is none of that name.
    pub fn attach_prepared(&mut self, xid: &[u8]) -> bool {
        self.trx.attach_prepared(xid)
    }

    /// Waits until no prepared transaction without a session has changed the table: before its rows are copied, indexed or
    /// all removed. Such a transaction ends when somebody says so, hence the lock wait's time limit.
    ///
    /// # Errors
    /// [`Error::LockWaitTimeout`], [`Error::Interrupted`]; those of reading undo pages.
    pub fn wait_for_prepared(&mut self, table: &Table) -> Result<()> {
        self.check_usable(table)?;
        const PAUSE: Duration = Duration::from_millis(20);
        let index = table.share.index(0)?.id;
        let begun = Instant::now();
        while self.engine.trx_system().is_changed_by_prepared(index)? {
            if self.trx.is_killed() {
                return Err(Error::Interrupted);
            }
            if begun.elapsed() >= self.trx.lock_timeout() {
                return Err(Error::LockWaitTimeout);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// To interrupt this session's waits.
    pub fn kill_handle(&self) -> KillHandle {
        KillHandle { trx: self.trx.handle() }
    }

    /// Forgets a kill; at the start of a statement.
    pub fn reset_kill(&mut self) {
        self.trx.reset_kill();
    }

    /// The row with exactly this key, or with `prefix` the first whose key begins with it (for unique indexes).
    ///
    /// # Errors
    /// Lock waits; those of reading pages.
    pub fn get(
        &mut self,
        table: &Table,
        index_no: usize,
        key: &[u8],
        prefix: bool,
        lock: Lock,
        wait: Wait,
    ) -> Result<Option<Row<'_>>> {
        self.check_usable(table)?;
        let index = table.share.index(index_no)?;
        if lock == Lock::None {
            table.share.check_snapshot(&self.trx, index_no)?;
        }
        let found = self.trx.get(index, key, prefix, lock.strength(), wait.lock_wait(), &mut self.row);
        let found = found.map_err(|e| self.note_failure(e))?;
        Ok(found.then(|| self.last_row()))
    }

    /// What [`Session::get`] has found last.
    #[inline]
    pub(crate) fn last_row(&self) -> Row<'_> {
        Row { key: self.row.key(), value: self.row.value() }
    }

    /// As [`Session::get`] of the row with this clustered key, and of a value that has a head in its index page no more than that
    /// and the pages of the next `tail_bytes`, see [`Op::head_len`].
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn get_head(
        &mut self,
        table: &Table,
        key: &[u8],
        lock: Lock,
        wait: Wait,
        tail_bytes: usize,
    ) -> Result<Option<Row<'_>>> {
        self.check_usable(table)?;
        let index = table.share.index(0)?;
        if lock == Lock::None {
            table.share.check_snapshot(&self.trx, 0)?;
        }
        let found = self.trx.get_head(index, key, lock.strength(), wait.lock_wait(), tail_bytes, &mut self.row);
        let found = found.map_err(|e| self.note_failure(e))?;
        Ok(found.then(|| self.last_row()))
    }

    /// Reads the index pages of these keys, or beginnings of keys, that are not in memory all at once, before they are looked up
    /// one after the other; 16 pages at most. Of how many keys, from the first on. Changes no answer.
    ///
    /// # Errors
    /// Those of reading pages above them; [`Error::Invalid`] when there is no such index.
    pub fn read_together<'k>(
        &mut self,
        table: &Table,
        index_no: usize,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<usize> {
        self.check_usable(table)?;
        table.share.index(index_no)?.read_together(self.engine.trx_system(), keys)
    }

    /// Whether the open snapshot, if there is one, may read the index. Reads without locks check it themselves; a program may
    /// want to refuse locking ones as well, which would give the newest rows.
    ///
    /// # Errors
    /// [`Error::DefinitionChanged`] if it is older than the index's contents.
    pub fn check_snapshot(&self, table: &Table, index_no: usize) -> Result<()> {
        table.share.check_snapshot(&self.trx, index_no)
    }

    /// Whether the last [`Session::get`] stored a lock for the row it found.
    pub fn lock_is_new(&self) -> bool {
        self.row.lock_is_new()
    }

    /// At READ COMMITTED and below: the row with this whole key of the index, for which [`Session::get`] stored a lock, does
    /// not match; the lock goes.
    ///
    /// # Errors
    /// No such index.
    pub fn unlock(&mut self, table: &Table, index_no: usize, key: &[u8], lock: Lock) -> Result<()> {
        let index = table.share.index(index_no)?;
        if let Some(strength) = lock.strength() {
            self.trx.unlock(index, key, strength);
        }
        Ok(())
    }

    /// All of the operations or none.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`Session::last_duplicate`]; lock waits; [`Error::Invalid`] between [`Session::prepare`] and
    /// the end of the transaction; those of reading and writing pages. An entry to be changed or removed that is not there is
    /// [`Error::CorruptPage`]: who changes a row has read it with [`Lock::Exclusive`] before. After [`Error::Deadlock`],
    /// [`Error::RecordChanged`] and [`Error::LockTableFull`] the transaction has to be rolled back.
    pub fn apply<'a>(
        &mut self,
        table: &Table,
        ops: impl ExactSizeIterator<Item = Op<'a>>,
        mode: ApplyMode,
    ) -> Result<()> {
        self.check_usable(table)?;
        if self.trx.state() == TrxState::Prepared {
            return Err(Error::invalid("a change in a transaction that is prepared"));
        }
        let converted = table.share.operations(ops)?;
        let apply = |trx: &mut Trx| match mode {
            ApplyMode { duplicate_exclusive: true } => trx.apply_duplicate_x(&converted),
            ApplyMode { duplicate_exclusive: false } => trx.apply(&converted),
        };
        let applied = if table.share.def.temporary { self.trx.passing(apply) } else { apply(&mut self.trx) };
        table.share.note_rows(&converted);
        applied.map_err(|e| {
            self.failed_op = e.op;
            self.note_failure(e.error)
        })?;
        self.changed.note(&table.share);
        Ok(())
    }

    /// The tables that the transaction has changed have been updated now.
    fn stamp_changed(&mut self) {
        if self.changed.any() {
            self.changed.stamp(self.engine.clock().wall_us() / 1_000_000);
        }
    }

    /// After [`Error::DuplicateKey`]: the position of the operation and the key (without the index id) that is there
    /// already.
    pub fn last_duplicate(&self) -> (usize, &[u8]) {
        (self.failed_op, self.trx.duplicate_key())
    }

    /// Rows the session's snapshot sees.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn count_rows(&mut self, table: &Table) -> Result<u64> {
        self.check_usable(table)?;
        table.share.check_snapshot(&self.trx, 0)?;
        self.trx.count(table.share.index(0)?)
    }

    /// [`Table::check`], which a kill of this session ends; `quick` without the values.
    ///
    /// # Errors
    /// As there; [`Error::Interrupted`].
    pub fn check(&self, table: &Table, quick: bool, finding: &mut dyn FnMut(&str)) -> Result<()> {
        table.check_until(quick, &|| self.trx.is_killed(), finding)
    }

    /// Reserves `count` AUTO_INCREMENT values, `increment` apart; the first of them, which is `offset` plus a multiple of
    /// `increment`, and at most `largest`. `u64::MAX` when they are used up; another value, which is not reserved, when
    /// no such number is left.
    ///
    /// # Errors
    /// [`Error::Invalid`] without such a column; [`Error::DefinitionChanged`].
    pub fn auto_increment_reserve(
        &mut self,
        table: &Table,
        offset: u64,
        increment: u64,
        count: u64,
        largest: u64,
    ) -> Result<u64> {
        self.check_usable(table)?;
        let first = table.share.auto_increment()?.reserve(offset, increment, count, largest);
        self.note_counter(&table.share);
        Ok(first)
    }

    /// An explicit value was stored: the counter goes on from `next` at least. Nothing without such a column.
    pub fn auto_increment_at_least(&mut self, table: &Table, next: u64) {
        if !Arc::ptr_eq(&self.engine, &table.engine) {
            return;
        }
        if let Ok(counter) = table.share.auto_increment() {
            counter.at_least(next);
            self.note_counter(&table.share);
        }
    }

    #[inline]
    fn note_counter(&mut self, share: &Arc<TableShare>) {
        if !self.counters.iter().any(|s| Arc::ptr_eq(s, share)) {
            self.counters.push(Arc::clone(share));
        }
    }

    /// Stores the AUTO_INCREMENT counters that the transaction has moved, ahead of its commit in the log.
    fn store_counters(&mut self) -> Result<()> {
        if self.counters.is_empty() {
            return Ok(());
        }
        for share in &self.counters {
            match share.store_auto_increment(self.engine.trx_system()) {
                // Of a table in memory: no reason to lose what the transaction has changed elsewhere.
                Err(Error::MemoryFull { .. }) => self.engine.shares().keep_uncounted(share),
                stored => stored?,
            }
        }
        self.counters.clear();
        Ok(())
    }
}

/// A table's handle was opened in one engine, the session or cursor is of another.
#[cold]
pub(crate) fn of_another_engine(share: &TableShare) -> Error {
    Error::invalid(format!("table {} was opened in another engine", share.def.name))
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.trx.state() == TrxState::Active {
            // Whatever fails here is rolled back in the background or by the next start.
            let _ = self.rollback();
        }
    }
}
