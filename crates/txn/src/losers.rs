//! Transactions that nobody but the background rolls back: found unfinished at the start, or left by a session.
//!
//! One that cannot be rolled back now (a page cannot be read, a tablespace's file is away) keeps its locks and what is left
//! to undo; it is tried again later, and after the next start. The others do not wait for it.

use crate::lock::TrxLocks;
use crate::system::{TrxSystem, Work};
use crate::trx::{TrxInfo, TrxState};
use crate::undo::record::LogState;
use myriad_base::clock::Every;
use myriad_base::{Error, Result, SpaceId, TrxId};
use myriad_buffer::Level;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Records undone between two looks at whether a rollback is to stop.
const PORTION_RECORDS: u64 = 32;
const IDLE_WAIT: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(10);
/// Time between two lines of the error log that tell how far a long rollback is, or purge before a shutdown.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Lists {
    /// The last one is next; those that failed are first.
    waiting: Vec<Work>,
    /// Being rolled back, as reports tell of them.
    working: Vec<(TrxInfo, Arc<TrxLocks>)>,
}

#[derive(Default)]
pub(crate) struct Losers {
    lists: Mutex<Lists>,
    /// One has left `working`.
    ended: Condvar,
    /// Of those found at the start how many are left.
    found: AtomicUsize,
}

impl Losers {
    pub fn add(&self, work: Work) {
        self.lists.lock().waiting.push(work);
    }

    /// The waiting ones are those found at the start.
    pub fn note_found(&self) -> usize {
        let found = self.waiting();
        self.found.store(found, Ordering::Relaxed);
        found
    }

    pub fn waiting(&self) -> usize {
        self.lists.lock().waiting.len()
    }

    /// Undo records left of those that wait.
    fn records_waiting(&self) -> u64 {
        self.lists.lock().waiting.iter().map(|w| w.log.records).sum()
    }

    /// All of them, for reports.
    pub fn list(&self) -> Vec<TrxInfo> {
        let lists = self.lists.lock();
        let working = lists.working.iter().map(|(info, locks)| {
            let locks_held = locks.locks_held() as u64;
            TrxInfo { locks_held, ..info.clone() }
        });
        lists.waiting.iter().map(|w| w.info(TrxState::RollingBack)).chain(working).collect()
    }

    /// The next one, or the next whose time has come.
    fn take(&self, now: Option<Duration>) -> Option<Work> {
        let mut lists = self.lists.lock();
        let at = lists.waiting.iter().rposition(|w| now.is_none_or(|now| w.retry_at <= now))?;
        let work = lists.waiting.remove(at);
        lists.working.push((work.info(TrxState::RollingBack), Arc::clone(&work.locks)));
        Some(work)
    }

    /// Notes one that was in no list as being rolled back.
    fn begin(&self, work: &Work) {
        self.lists.lock().working.push((work.info(TrxState::RollingBack), Arc::clone(&work.locks)));
    }

    fn note_left(&self, trx: TrxId, records: u64) {
        let mut lists = self.lists.lock();
        if let Some((info, _)) = lists.working.iter_mut().find(|(info, _)| info.shown_id == trx.0) {
            info.undo_records = records;
        }
    }

    /// It is rolled back, or `left` for later, last in turn.
    fn end(&self, trx: TrxId, left: Option<Work>) {
        let mut lists = self.lists.lock();
        lists.working.retain(|(info, _)| info.shown_id != trx.0);
        left.into_iter().for_each(|work| lists.waiting.insert(0, work));
        drop(lists);
        self.ended.notify_all();
    }

    /// Returns when none is being rolled back. A panic may have left one there for good: `check` says whether to go on.
    fn wait_for_working(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut lists = self.lists.lock();
        while !lists.working.is_empty() {
            check()?;
            self.ended.wait_for(&mut lists, IDLE_WAIT);
        }
        Ok(())
    }
}

impl TrxSystem {
    /// Leaves a transaction to the background, which rolls it back.
    pub(crate) fn abandon(&self, work: Work) {
        self.losers.add(work);
        self.purge.abandoned.signal();
    }

    /// Rolls back one unfinished transaction, whether or not it was tried before; whether there was one.
    ///
    /// # Errors
    /// Those of the buffer pool; the transaction is tried again, after the others.
    pub fn rollback_losers_step(&self) -> Result<bool> {
        let Some(work) = self.losers.take(None) else { return Ok(false) };
        self.roll_back_taken(work, false).map(|()| true)
    }

    /// Rolls back what can be, before a shutdown that leaves as little as possible. What cannot was told, and waits for the
    /// next start.
    pub(crate) fn rollback_losers(&self) -> Result<()> {
        self.losers.wait_for_working(|| self.pool().check_poison())?;
        for _ in 0..self.losers.waiting() {
            if self.rollback_losers_step().is_err() {
                self.pool().check_poison()?;
            }
        }
        Ok(())
    }

    /// Tells, once the background threads have ended, what the next start goes on with.
    pub(crate) fn tell_of_losers(&self) {
        let losers = self.losers.waiting();
        if losers > 0 {
            let changes = self.losers.records_waiting();
            let text =
                format!("{losers} transactions are left to roll back ({changes} changes): the next start goes on");
            self.report(Level::Info, &text);
        }
    }

    /// Rolls back the unfinished transactions found at start whose newest change is in this tablespace; how many. For the
    /// catalog's own transactions, which nobody may have to wait for.
    ///
    /// # Errors
    /// Those of the buffer pool; the transactions are tried again by [`TrxSystem::rollback_losers_step`].
    pub fn rollback_losers_in(&self, space: SpaceId) -> Result<u64> {
        let (mut rolled_back, mut failed) = (0, Ok(()));
        let found = std::mem::take(&mut self.losers.lists.lock().waiting);
        for mut work in found {
            match self.newest_change_in(&mut work.log) {
                Ok(Some(s)) if s == space && failed.is_ok() => match self.rollback_work(work) {
                    Ok(()) => rolled_back += 1,
                    Err(e) => failed = Err(e),
                },
                other => {
                    self.losers.add(work);
                    failed = failed.and(other.map(|_| ()));
                }
            }
        }
        failed.map(|()| rolled_back)
    }

    /// On an error the work is among the losers, last in turn.
    pub(crate) fn rollback_work(&self, work: Work) -> Result<()> {
        self.losers.begin(&work);
        self.roll_back_taken(work, false)
    }

    /// Rolls back what is noted as being rolled back. With `may_stop` the end of background work interrupts it.
    fn roll_back_taken(&self, mut work: Work, may_stop: bool) -> Result<()> {
        let (trx, records, begin) = (work.log.trx, work.log.records, self.clock().now());
        let undone = self.undo_telling(&mut work, may_stop);
        match undone.and_then(|()| self.write_state(&work.log, LogState::Committed)) {
            Ok(_) => {
                self.finish_undone(work.log, &work.locks);
                self.losers.end(trx, None);
                let took = self.clock().now().saturating_sub(begin);
                if took >= TELL_EVERY {
                    let seconds = took.as_secs_f64();
                    let text = format!("transaction {trx} is rolled back, {records} changes in {seconds:.1} s");
                    self.report(Level::Info, &text);
                }
                if work.recovered && work.xid.is_none() && self.losers.found.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.report(Level::Info, "all unfinished transactions are rolled back");
                }
                Ok(())
            }
            Err(e) => {
                if e != Error::ShuttingDown {
                    self.tell_of_failure(&mut work, &e);
                }
                work.retry_at = self.clock().now() + RETRY;
                self.losers.end(trx, Some(work));
                Err(e)
            }
        }
    }

    fn undo_telling(&self, work: &mut Work, may_stop: bool) -> Result<()> {
        let (trx, mut tell) = (work.log.trx, Every::new(TELL_EVERY, self.clock()));
        if work.xid.is_some() {
            // Before any of it is undone: whoever left it may have failed just there.
            self.write_state(&work.log, LogState::Active)?;
        }
        self.rollback_log(&mut work.log, 0, &mut |left| {
            if left % PORTION_RECORDS != 0 {
                return Ok(());
            }
            self.losers.note_left(trx, left);
            if left > 0 && may_stop && self.purge.stopping() {
                return Err(Error::ShuttingDown);
            }
            if tell.is_due(self.clock()) {
                self.report(Level::Info, &format!("rollback of transaction {trx}: {left} changes left"));
            }
            Ok(())
        })
    }

    /// Once for each reason: it may stay so for long.
    fn tell_of_failure(&self, work: &mut Work, e: &Error) {
        if work.told.as_ref() == Some(e) || self.pool().check_poison().is_err() {
            return;
        }
        work.told = Some(e.clone());
        let text = format!(
            "rollback of transaction {} cannot go on yet, what it has changed stays locked ({} changes left): {e}",
            work.log.trx, work.log.records
        );
        self.report(Level::Warning, &text);
    }

    /// Rolls losers back as they come. A stop ends that between two records; the next start finds what is left.
    pub(crate) fn rollback_thread(&self) {
        while !self.purge.stopping() {
            match self.losers.take(Some(self.clock().now())) {
                Some(work) => {
                    if self.roll_back_taken(work, true).is_err() && self.pool().check_poison().is_err() {
                        return;
                    }
                }
                None => self.purge.abandoned.wait(IDLE_WAIT),
            }
        }
    }
}
