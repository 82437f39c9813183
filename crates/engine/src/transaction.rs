//! Transactions by closure: begun, committed, rolled back and tried again by the session.

use crate::embedded::takes_transaction;
use crate::session::{Isolation, Session};
use myriad_base::{Error, Result};
use std::time::Duration;

/// How a session's short calls and [`Session::transaction`] work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// From the next call on, also within a transaction.
    pub isolation: Isolation,
    /// Longest wait for one lock.
    pub lock_wait: Duration,
    /// How often [`Session::transaction`] runs its closure at most; 0 counts as 1.
    pub attempts: u32,
}

impl Default for TransactionOptions {
    /// REPEATABLE READ, 50 seconds, 100 times.
    fn default() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::RepeatableRead, lock_wait: Duration::from_secs(50), attempts: 100 }
    }
}

/// What [`Session::transaction`] does at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closure {
    /// Nothing.
    #[default]
    None,
    /// Its closure runs.
    Runs,
    /// It runs, and a call has failed in a way that takes the whole transaction.
    Lost(Error),
}

impl Session {
    /// How short calls and [`Session::transaction`] work from now on.
    pub fn set_options(&mut self, options: TransactionOptions) {
        self.options = options;
    }

    /// Runs `f` as a transaction: commits if it returns `Ok`, rolls back if it returns an error or panics. After a call in it that failed
    /// with [`Error::Deadlock`] or [`Error::RecordChanged`] the transaction is rolled back whatever `f` returns and `f` runs again, up to
    /// [`TransactionOptions::attempts`] times, then the error is returned; so `f` should do nothing but use the session. Other errors
    /// end it at once, [`Error::LockTableFull`] also if `f` ignores it.
    ///
    /// `f` may use savepoints, roll back and go on, and use the calls that are not short. It cannot commit, prepare or begin another
    /// transaction: [`Error::Invalid`].
    ///
    /// # Errors
    /// Those of `f`, also its own; those of [`Session::commit`]; [`Error::Invalid`] if the session has a transaction open.
    pub fn transaction<R, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut Session) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.check_no_closure()?;
        if self.in_transaction() {
            return Err(Error::invalid("Session::transaction while a transaction is open").into());
        }
        let mut attempt = 1;
        loop {
            let running = Running::begin(self);
            let result = f(running.session);
            match (result, running.end()) {
                (Ok(done), None) => {
                    self.commit()?;
                    return Ok(done);
                }
                (_, Some(Error::Deadlock | Error::RecordChanged)) if attempt < self.options.attempts => attempt += 1,
                (Ok(_), Some(lost)) => {
                    self.give_up();
                    return Err(lost.into());
                }
                (Err(e), _) => {
                    self.give_up();
                    return Err(e);
                }
            }
            self.give_up();
        }
    }

    /// Whether the session may commit and begin transactions itself.
    #[inline]
    pub(crate) fn check_no_closure(&self) -> Result<()> {
        match self.closure {
            Closure::None => Ok(()),
            _ => Err(Error::invalid("a commit, or another transaction, within Session::transaction")),
        }
    }

    /// A call that has failed with `e`: [`Session::transaction`] must not commit what is left.
    #[cold]
    pub(crate) fn note_failure(&mut self, e: Error) -> Error {
        if self.closure == Closure::Runs && takes_transaction(&e) {
            self.closure = Closure::Lost(e.clone());
        }
        e
    }
}

/// The closure of [`Session::transaction`] runs; if it panics, its transaction ends.
struct Running<'s> {
    session: &'s mut Session,
}

impl<'s> Running<'s> {
    fn begin(session: &'s mut Session) -> Running<'s> {
        session.closure = Closure::Runs;
        Running { session }
    }

    /// What has taken the transaction, if anything has.
    fn end(self) -> Option<Error> {
        match std::mem::take(&mut self.session.closure) {
            Closure::Lost(e) => Some(e),
            _ => None,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.session.closure != Closure::None {
            self.session.closure = Closure::None;
            self.session.give_up();
        }
    }
}
