//! The short way for Rust programs: a statement a call; see the crate's own page.

use crate::index_keys::RowOps;
use crate::session::{ApplyMode, Isolation, Lock, Session, Wait};
use crate::table::Table;
use crate::transaction::Closure;
use myriad_base::{Error, Result};

/// Whether the transaction has to be rolled back whole.
pub(crate) fn takes_transaction(e: &Error) -> bool {
    matches!(e, Error::Deadlock | Error::RecordChanged | Error::LockTableFull { .. })
}

impl Session {
    pub(crate) fn begin_short(&mut self) -> Result<()> {
        if let Closure::Lost(e) = &self.closure {
            return Err(e.clone());
        }
        self.statement_begin(self.options.isolation, false, self.options.lock_wait);
        Ok(())
    }

    pub(crate) fn end_short<R>(&mut self, result: Result<R>) -> Result<R> {
        match &result {
            Ok(_) => self.statement_end(),
            // Others wait for its locks.
            Err(e) if takes_transaction(e) => self.rollback()?,
            Err(_) => self.statement_rollback()?,
        }
        result
    }

    fn statement<R>(&mut self, f: impl FnOnce(&mut Session) -> Result<R>) -> Result<R> {
        self.begin_short()?;
        let result = f(self);
        self.end_short(result)
    }

    /// The lock of a read that asks for none.
    pub(crate) fn plain_lock(&self) -> Lock {
        match self.options.isolation {
            Isolation::Serializable => Lock::Shared,
            _ => Lock::None,
        }
    }

    fn apply_row(&mut self, table: &Table, ops: &RowOps<'_>, duplicate_exclusive: bool) -> Result<()> {
        self.apply(table, ops.list().into_iter(), ApplyMode { duplicate_exclusive })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`Session::last_duplicate`]: its position is the index's number; [`Error::TooLong`]; lock waits;
    /// those of [`Table::with_index_keys`], and of reading and writing pages.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let ops = RowOps::new(table, key, None, Some(value))?;
        self.statement(|s| s.apply_row(table, &ops, false))
    }

    /// Adds a row, or replaces the value of the one with this key; whether there was one.
    ///
    /// # Errors
    /// Those of [`Session::insert`], [`Error::DuplicateKey`] for other indexes alone.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let ops = RowOps::new(table, key, None, Some(value))?;
        self.statement(|s| match s.apply_row(table, &ops, true) {
            // The lock on the duplicate stays.
            Err(Error::DuplicateKey { .. }) if s.failed_op == 0 => s.change_row(table, key, Some(value)),
            applied => applied.map(|()| false),
        })
    }

    /// Replaces a row's value; false if there is none of that key.
    ///
    /// # Errors
    /// Lock waits; those of [`Table::with_index_keys`], and of reading and writing pages.
    pub fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.statement(|s| s.change_row(table, key, Some(value)))
    }

    /// Removes a row; false if there is none of that key.
    ///
    /// # Errors
    /// As [`Session::update`].
    pub fn remove(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.statement(|s| s.change_row(table, key, None))
    }

    fn change_row(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>) -> Result<bool> {
        let ops = match self.get(table, 0, key, false, Lock::Exclusive, Wait::Wait)? {
            Some(old) => RowOps::new(table, key, Some(old.value), value)?,
            None => return Ok(false),
        };
        self.apply_row(table, &ops, false)?;
        Ok(true)
    }

    /// The newest value of the row with this key, which nobody else changes before the transaction ends: what is read by
    /// [`Session::find`] to be changed may be outdated by then.
    ///
    /// # Errors
    /// Lock waits; those of reading pages.
    pub fn find_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.find_locked(table, key, Lock::Exclusive)
    }

    /// The value of the row with this key, as the transaction's snapshot sees it, which is as old as its first such read. At
    /// SERIALIZABLE the newest value, which nobody else changes before the transaction ends.
    ///
    /// # Errors
    /// Those of reading pages; at SERIALIZABLE lock waits.
    pub fn find(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.find_locked(table, key, self.plain_lock())
    }

    fn find_locked(&mut self, table: &Table, key: &[u8], lock: Lock) -> Result<Option<Vec<u8>>> {
        self.statement(|s| Ok(s.get(table, 0, key, false, lock, Wait::Wait)?.map(|row| row.value.to_vec())))
    }
}
