//! The engine object: settings, closing, and what its parts share.

use crate::backup::BackupStatus;
use crate::check::Checker;
use crate::config::{check_log_capacity, row_locks_max, CloseMode, EngineConfig, FlushAtCommit, Setting};
use crate::rates::Marks;
use crate::reclaimer::Reclaimer;
use crate::reports::StartupPhase;
use crate::session::Session;
use crate::share::TableShare;
use crate::shares::Shares;
use myriad_base::clock::Clock;
use myriad_base::{waits, Error, Lsn, Result};
use myriad_buffer::{BufferPool, Level, Reporter};
use myriad_catalog::Catalog;
use myriad_io::{FileLock, FileWatch, Io};
use myriad_space::SpaceRegistry;
use myriad_txn::{FlushPolicy, TrxSystem};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Time between looks whether somebody who waits has been killed.
const KILL_LOOK: Duration = Duration::from_millis(50);

/// An open data directory. Open it with [`Engine::open`] or [`Engine::open_with`], close it with [`Engine::close`]; one
/// that is dropped without leaves its pages to the next start's recovery, as a crash would.
pub struct Engine {
    /// Goes first: it holds some of the parts.
    checker: Arc<Checker>,
    pub(crate) parts: Parts,
    pub(crate) startup: Vec<StartupPhase>,
    shares: Shares,
    /// In-memory tables that were emptied by the start and of which somebody has been told, by name; a partitioned table
    /// is one. A name that a new table takes may stay: the start has not emptied that one.
    emptied_told: Mutex<HashSet<String>>,
    reclaimer: Reclaimer,
    closed: AtomicBool,
    /// As they were set last.
    buffer_pool_bytes: AtomicU64,
    row_locks_bytes: AtomicU64,
    io_capacity: AtomicU64,
    io_capacity_max: AtomicU64,
    /// Counters at the last reports.
    pub(crate) marks: Marks,
    /// Whether the error log is told of each deadlock.
    print_all_deadlocks: AtomicBool,
    /// Held while the log is switched off or on, or gets another size.
    redo_log_switch: Mutex<()>,
    /// The backup being made. One begins while `redo_log_switch` is held.
    backing_up: Mutex<Option<BackupStatus>>,
}

shown!(Engine, |e| [("data_dir", &e.parts.config.data_dir), ("closed", &e.closed)]);

/// What an open engine is made of, in the order in which it must go.
pub(crate) struct Parts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) trx: Arc<TrxSystem>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) spaces: Arc<SpaceRegistry>,
    pub(crate) io: Arc<dyn Io>,
    /// How long the calls to files take.
    pub(crate) files: Arc<FileWatch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) report: Reporter,
    pub(crate) config: EngineConfig,
    /// Given back last.
    pub(crate) _lock: Box<dyn FileLock>,
}

pub(crate) fn flush_policy(f: FlushAtCommit) -> FlushPolicy {
    match f {
        FlushAtCommit::Lazy => FlushPolicy::EverySecond,
        FlushAtCommit::Sync => FlushPolicy::Sync,
        FlushAtCommit::Write => FlushPolicy::Write,
    }
}

impl Engine {
    /// Opens the data directory (creating it on first use) with default settings ([`EngineConfig::new`]), and starts
    /// background work.
    ///
    /// # Errors
    /// As [`Engine::open_with`].
    pub fn open(data_dir: impl AsRef<Path>) -> Result<Arc<Engine>> {
        let engine = Engine::open_with(EngineConfig::new(data_dir.as_ref()), None)?;
        engine.start_background();
        Ok(engine)
    }

    pub(crate) fn new(parts: Parts, startup: Vec<StartupPhase>, checker: Arc<Checker>) -> Engine {
        Engine {
            io_capacity: AtomicU64::new(u64::from(parts.config.io_capacity)),
            io_capacity_max: AtomicU64::new(u64::from(parts.config.io_capacity_max)),
            buffer_pool_bytes: AtomicU64::new(parts.config.buffer_pool_bytes),
            row_locks_bytes: AtomicU64::new(parts.config.row_locks_bytes),
            print_all_deadlocks: AtomicBool::new(parts.config.print_all_deadlocks),
            marks: Marks::default(),
            parts,
            startup,
            shares: Shares::default(),
            emptied_told: Mutex::default(),
            reclaimer: Reclaimer::default(),
            checker,
            closed: AtomicBool::new(false),
            redo_log_switch: Mutex::default(),
            backing_up: Mutex::default(),
        }
    }

    /// From now on the error log is told of deadlocks, if that is wanted.
    pub(crate) fn listen_for_deadlocks(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        self.parts.trx.locks().set_deadlock_listener(Box::new(move |deadlock| {
            let Some(engine) = engine.upgrade() else { return };
            if engine.print_all_deadlocks.load(Ordering::Relaxed) {
                (engine.parts.report)(Level::Info, &format!("a deadlock:\n{}", engine.describe_deadlock(deadlock)));
            }
        }));
    }

    /// Starts what must wait until the caller's own recovery of definitions is done: rollback of transactions that a crash
    /// interrupted, purge, reclaiming of dropped tables.
    pub fn start_background(self: &Arc<Self>) {
        if !self.parts.config.background_threads || self.closed.load(Ordering::Acquire) {
            return;
        }
        self.parts.trx.start_commit_calls();
        // The list was good when the engine was opened.
        let _cpus = crate::open::background_cpus(&self.parts.config);
        self.parts.trx.start_background();
        if self.parts.config.warm_up {
            self.parts.pool.start_warm_up(self.parts.config.start_pause);
        }
        let Parts { catalog, pool, report, .. } = &self.parts;
        self.reclaimer.start(Arc::clone(catalog), Arc::clone(pool), Arc::clone(report));
        self.checker.start();
    }

    /// Does a portion of every kind of background work; whether there may be more. For engines without threads.
    ///
    /// # Errors
    /// Those of the pool; the work is tried again by the next call.
    pub fn background_step(&self) -> Result<bool> {
        self.check_not_closed()?;
        let Parts { trx, catalog, pool, .. } = &self.parts;
        // What fails keeps nothing else from being done: the next call may begin with the same failure.
        let steps = [trx.rollback_losers_step(), trx.purge_step(), catalog.reclaim_step(), pool.step_background()];
        steps.into_iter().try_fold(false, |more, step| Ok(more | step?))
    }

    /// Stops. Sessions should be gone; calls of those that are not fail from now on with [`Error::ShuttingDown`], commits of changes
    /// included, and those that wait for a lock with [`Error::Interrupted`]. The folder can be opened again when the last
    /// [`Session`], [`crate::Table`] and `Arc` of the engine are gone.
    ///
    /// # Errors
    /// Those of purging and of writing pages and log. The data directory is sound all the same: what was not written
    /// is recovered by the next start.
    pub fn close(&self, mode: CloseMode) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.parts.trx.kill_waiting();
        // Who switches the log off now is through with it first.
        drop(self.redo_log_switch.lock());
        self.checker.stop();
        self.parts.catalog.end_sweeps();
        self.reclaimer.stop();
        self.parts.pool.stop_warm_up();
        let stopped = self.stop(mode);
        if stopped.is_ok() && self.parts.config.warm_up {
            self.parts.pool.save_hot_pages_or_report();
        }
        self.parts.pool.stop_background();
        stopped
    }

    /// What cannot be purged or reclaimed now keeps nothing from being written: the next start goes on with it.
    fn stop(&self, mode: CloseMode) -> Result<()> {
        let logged = !self.parts.pool.log().is_unlogged();
        // What was committed first of all, whatever comes then.
        let flushed = if logged { self.flush_log() } else { Ok(()) };
        let purged = self.parts.trx.shutdown(mode == CloseMode::Purged);
        let reclaimed = if mode == CloseMode::Purged { self.reclaim_all() } else { Ok(()) };
        for (failed, what) in [(purged, "purge"), (reclaimed, "reclaiming dropped tables")] {
            if let Err(e) = failed {
                (self.parts.report)(
                    Level::Warning,
                    &format!("{what} has not come to its end, the next start goes on: {e}"),
                );
            }
        }
        let written = match mode {
            // The log alone would not do.
            _ if !logged => self.set_redo_log(true),
            CloseMode::LogOnly => return flushed.and_then(|()| self.flush_log()),
            CloseMode::Clean => self.parts.pool.checkpoint_at_stop().map(|left| self.tell_of_unread(left)),
            CloseMode::Purged => self.parts.pool.checkpoint_now(),
        };
        if written.is_ok() {
            self.punch_at_last();
            // A cleaner that goes on where pages were left would take a checkpoint without the note.
            self.parts.pool.stop_background();
            if let Err(e) = self.note_all_ended() {
                (self.parts.report)(Level::Warning, &format!("the log's header is as it was before the stop: {e}"));
            }
        }
        flushed.and(written)
    }

    fn tell_of_unread(&self, pages: usize) {
        if pages != 0 {
            let text =
                format!("{pages} pages that are not in memory have changes, which the next start makes from the log");
            (self.parts.report)(Level::Info, &text);
        }
    }

    /// Leaves the note that every transaction has ended, if that is so. Nothing has to be logged any more.
    fn note_all_ended(&self) -> Result<()> {
        let end = self.parts.pool.log().end_lsn();
        // Nobody wrote while their list was read: so whoever is not in it had ended before `end`.
        match self.parts.trx.all_ended() && self.parts.pool.log().end_lsn() == end {
            true => self.parts.pool.note_all_ended(end),
            false => Ok(()),
        }
    }

    fn reclaim_all(&self) -> Result<()> {
        while self.parts.catalog.reclaim_step()? {}
        self.parts.catalog.remove_unused_shapes()?;
        self.parts.catalog.forget_destroyed()
    }

    /// See [`Setting::RedoLog`].
    fn set_redo_log(&self, on: bool) -> Result<()> {
        let _one = self.redo_log_switch.lock();
        let pool = &self.parts.pool;
        if on != pool.log().is_unlogged() {
            return Ok(());
        }
        if !on {
            // What has been written for a stop would be marked as lost.
            self.check_not_closed()?;
        }
        if self.backing_up.lock().is_some() {
            return Err(Error::NotSupported { what: "switching the redo log off while a backup is made".into() });
        }
        if on {
            pool.resume_logging()?;
            (self.parts.report)(Level::Info, "the redo log is on; all changes are durable");
        } else {
            pool.stop_logging()?;
            let text = "the redo log is off: if the server ends in any way but a shutdown, the data directory is lost";
            (self.parts.report)(Level::Warning, text);
        }
        Ok(())
    }

    /// Size of the log, in bytes: [`EngineConfig::log_capacity_bytes`], unless it was set to another one and the engine then ended
    /// without being closed.
    pub fn log_capacity(&self) -> u64 {
        self.pool().log().ring_bytes()
    }

    /// See [`Setting::LogCapacityBytes`].
    fn set_log_capacity(&self, bytes: u64) -> Result<()> {
        check_log_capacity(bytes)?;
        // The log must not be switched off meanwhile, nor be copied by somebody else.
        let _one = self.redo_log_switch.lock();
        if self.backing_up.lock().is_some() {
            return Err(Error::NotSupported { what: "another size of the redo log while a backup is made".into() });
        }
        self.pool().resize_log(&self.parts.config.data_dir, bytes)?;
        (self.parts.report)(Level::Info, &format!("the redo log has {bytes} bytes from now on"));
        Ok(())
    }

    /// As a backup waits while the log is being switched or gets another size, which may take as long as all changed pages take to
    /// be written.
    fn await_log_switch(&self) -> Result<MutexGuard<'_, ()>> {
        loop {
            if let Some(held) = self.redo_log_switch.try_lock_for(KILL_LOOK) {
                return Ok(held);
            }
            if waits::is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// A backup begins: it needs the log.
    pub(crate) fn begin_backup(&self, dir: &Path) -> Result<()> {
        let _one = self.await_log_switch()?;
        if self.pool().log().is_unlogged() {
            return Err(Error::NotSupported { what: "a backup while myriad_redo_log is OFF".into() });
        }
        let mut now = self.backing_up.lock();
        if now.is_some() {
            return Err(Error::NotSupported { what: "a backup while another is made".into() });
        }
        *now = Some(BackupStatus::new(dir, self.clock().now()));
        Ok(())
    }

    /// Notes how far the backup is.
    pub(crate) fn note_backup(&self, change: impl FnOnce(&mut BackupStatus)) {
        if let Some(backup) = self.backing_up.lock().as_mut() {
            change(backup);
        }
    }

    pub(crate) fn end_backup(&self) {
        *self.backing_up.lock() = None;
    }

    /// The backup being made, if one is.
    pub fn backup_status(&self) -> Option<BackupStatus> {
        self.backing_up.lock().clone()
    }

    /// Whether the engine has not begun to stop and can go on.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_not_closed()?;
        self.parts.pool.check_poison()
    }

    #[inline]
    fn check_not_closed(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::ShuttingDown),
            false => Ok(()),
        }
    }

    /// Gives back what waited for the last checkpoint.
    fn punch_at_last(&self) {
        loop {
            match self.parts.catalog.punch_step() {
                Ok(true) => {}
                Ok(false) => return,
                // All is durable; the next drop in that tablespace makes up for it.
                Err(e) => return (self.parts.report)(Level::Warning, &format!("space of dropped tables is kept: {e}")),
            }
        }
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// [`myriad_base::Error::NotSupported`] for what needs a restart; for [`Setting::RedoLog`] and
    /// [`Setting::LogCapacityBytes`] those of reading and writing pages and log, and the setting stays as it was.
    pub fn set(&self, setting: Setting) -> Result<()> {
        self.check_not_closed()?;
        match setting {
            Setting::FlushAtCommit(f) => self.parts.trx.set_flush_policy(flush_policy(f)),
            Setting::IoCapacity(pages) => self.io_capacity.store(u64::from(pages), Ordering::Relaxed),
            Setting::IoCapacityMax(pages) => self.io_capacity_max.store(u64::from(pages), Ordering::Relaxed),
            Setting::ChangeBufferMaxSize(percent) => self.parts.pool.set_change_buffer(percent),
            Setting::DeadlockDetect(on) => self.parts.trx.locks().set_deadlock_detect(on),
            Setting::PrintAllDeadlocks(on) => self.print_all_deadlocks.store(on, Ordering::Relaxed),
            Setting::BufferPoolBytes(bytes) => {
                self.parts.pool.resize(usize::try_from(bytes).unwrap_or(usize::MAX))?;
                self.buffer_pool_bytes.store(bytes, Ordering::Relaxed);
            }
            Setting::BufferPoolBytesCheck(bytes) => {
                return self.parts.pool.check_size(usize::try_from(bytes).unwrap_or(usize::MAX)).map(|_| ());
            }
            Setting::MemoryTablesBytes(bytes) => self.parts.pool.set_memory_limit(bytes),
            Setting::RowLocksBytes(bytes) => self.row_locks_bytes.store(bytes, Ordering::Relaxed),
            Setting::MaxOpenFiles(files) => self.parts.spaces.set_max_open_files(files),
            Setting::Placement(placement) => self.parts.catalog.set_placement(placement),
            Setting::LogCapacityBytes(bytes) => return self.set_log_capacity(bytes),
            Setting::RedoLog(on) => return self.set_redo_log(on),
        }
        if matches!(setting, Setting::IoCapacity(_) | Setting::IoCapacityMax(_)) {
            let (normal, max) =
                (self.io_capacity.load(Ordering::Relaxed), self.io_capacity_max.load(Ordering::Relaxed));
            self.parts.pool.set_io_capacity(normal, max.max(normal));
        }
        if matches!(setting, Setting::BufferPoolBytes(_) | Setting::RowLocksBytes(_)) {
            let (locks, pool) =
                (self.row_locks_bytes.load(Ordering::Relaxed), self.buffer_pool_bytes.load(Ordering::Relaxed));
            self.parts.trx.locks().set_memory_max(row_locks_max(locks, pool));
        }
        Ok(())
    }

    /// Makes all that is in the log durable; nothing while the log is off.
    ///
    /// # Errors
    /// Those of the log; the engine is poisoned then.
    pub fn flush_log(&self) -> Result<()> {
        let log = self.parts.pool.log();
        log.flush_to(log.end_lsn())
    }

    /// Calls `call` once, with true when everything up to `lsn` ([`Session::commit_later`]) is durable or with false when it never will
    /// be: perhaps before this returns, else by a thread of the engine, which it must not keep waiting. It must not call the engine, nor
    /// have an `Arc`, [`Session`] or [`crate::Table`] of it: the last of them closes the engine, which waits for that thread. A panic of
    /// `call` ends there.
    ///
    /// # Errors
    /// Those of the log; the engine is poisoned then, and `call` is not called.
    pub fn when_durable(&self, lsn: Lsn, call: impl FnOnce(bool) + Send + 'static) -> Result<()> {
        self.parts.trx.harden_later(lsn, call)
    }

    /// Writes all dirty pages and advances the checkpoint.
    ///
    /// # Errors
    /// Those of writing pages and log.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.check_not_closed()?;
        self.parts.pool.checkpoint_now()
    }

    /// Refuses all further work: after a failure that it cannot survive.
    pub fn poison(&self, reason: &str) {
        self.parts.pool.poison(reason);
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Session {
        self.session_for(0, 0)
    }

    /// A new session of a caller that calls itself `owner` (see [`crate::CommitOrder`]) and shows up in reports under
    /// `thread_id`.
    pub fn session_for(self: &Arc<Self>, owner: usize, thread_id: u64) -> Session {
        Session::new(Arc::clone(self), owner, thread_id)
    }

    /// Ids of prepared transactions without a session: found at start, or left by [`Session::detach_prepared`].
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.parts.trx.prepared_xids()
    }

    /// Commits one of [`Engine::prepared`]; false if there is none of that id.
    ///
    /// # Errors
    /// Those of the log.
    pub fn commit_by_xid(&self, xid: &[u8]) -> Result<bool> {
        self.check_not_closed()?;
        // What its session knew of them is gone. It has to be committed also where they cannot be read.
        let changed = self.parts.trx.indexes_changed_by_prepared(xid).unwrap_or_default();
        let committed = self.parts.trx.commit_by_xid(xid)?;
        if committed {
            self.shares.stamp(changed, self.clock().wall_us() / 1_000_000);
        }
        Ok(committed)
    }

    /// Rolls one of [`Engine::prepared`] back; false if there is none of that id.
    ///
    /// # Errors
    /// Those of reading and writing pages.
    pub fn rollback_by_xid(&self, xid: &[u8]) -> Result<bool> {
        self.check_not_closed()?;
        self.parts.trx.rollback_by_xid(xid)
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> usize {
        self.pool().page_size()
    }

    #[inline]
    pub(crate) fn pool(&self) -> &BufferPool {
        &self.parts.pool
    }

    #[inline]
    pub(crate) fn trx_system(&self) -> &Arc<TrxSystem> {
        &self.parts.trx
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    pub(crate) fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Whether sessions may use a table: the engine has not stopped, the table is as it was when it was opened, and no second
    /// file claims its tablespace.
    #[inline]
    pub(crate) fn check_usable(&self, share: &TableShare) -> Result<()> {
        self.check_open()?;
        if !share.is_current() {
            return Err(Error::DefinitionChanged { name: share.def.name.to_string() });
        }
        self.parts.spaces.check_usable(share.def.space)
    }

    /// Whether the last start has emptied the table and this is the first call that tells so, for any of its partitions.
    pub(crate) fn take_emptied(&self, share: &TableShare) -> bool {
        self.catalog().was_emptied(&share.def) && self.emptied_told.lock().insert(whole_table(&share.def.name).into())
    }

    /// What has been told of a table holds under its new name too, and nothing else. Partitions are renamed one by one. A
    /// table that becomes a partition says nothing of the others.
    pub(crate) fn rename_emptied(&self, from: &str, to: &str) {
        let (old, new) = (whole_table(from), whole_table(to));
        let mut told = self.emptied_told.lock();
        if told.contains(old) {
            told.insert(new.into());
        } else if (old == from) == (new == to) {
            told.remove(new);
        }
    }

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn io(&self) -> &Arc<dyn Io> {
        &self.parts.io
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    pub(crate) fn wake_reclaimer(&self) {
        self.reclaimer.wake();
    }
}

/// The name of the table whose partition may be meant.
fn whole_table(name: &str) -> &str {
    name.split_once("#P#").map_or(name, |(table, _)| table)
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) {
            if let Err(e) = self.close(CloseMode::LogOnly) {
                (self.parts.report)(Level::Warning, &format!("engine dropped: {e}"));
            }
        }
    }
}
