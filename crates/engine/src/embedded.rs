//! The short way for Rust programs: one table, one index, a statement a call; see the crate's own page.

use crate::cursor::{Cursor, CursorOptions, Seek};
use crate::session::{ApplyMode, Isolation, Lock, Op, OpKind, Session, Wait};
use crate::table::Table;
use myriad_base::{Error, Result};
use std::ops::ControlFlow;
use std::time::Duration;

/// Longest wait for a lock, unless the program says otherwise.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(50);

impl Session {
    fn statement<R>(&mut self, f: impl FnOnce(&mut Session) -> Result<R>) -> Result<R> {
        self.statement_begin(Isolation::RepeatableRead, false, self.lock_wait);
        let result = f(self);
        match result {
            Ok(_) => self.statement_end(),
            // Others wait for its locks.
            Err(Error::Deadlock | Error::LockTableFull { .. }) => self.rollback()?,
            Err(_) => self.statement_rollback()?,
        }
        result
    }

    /// How long each wait for a lock may be in the calls that are a statement each; 50 seconds if this is not called. Others have it
    /// from [`Session::statement_begin`].
    pub fn set_lock_wait(&mut self, lock_wait: Duration) {
        self.lock_wait = lock_wait;
    }

    fn change(&mut self, table: &Table, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        let unique_len = if kind == OpKind::Insert { key.len() } else { 0 };
        let op = Op { kind, index_no: 0, key, unique_len, value, head_len: 0 };
        self.statement(|s| s.apply(table, std::iter::once(op), ApplyMode::default()))
    }

    /// Adds a row to the table's clustered index; rows of a table that has others are added by [`Session::apply`].
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], [`Error::TooLong`]; lock waits; those of reading and writing pages.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(table, OpKind::Insert, key, value)
    }

    /// Replaces a row's value in the clustered index; false if there is none of that key.
    ///
    /// # Errors
    /// Lock waits; those of reading and writing pages.
    pub fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change_existing(table, OpKind::Update, key, value)
    }

    /// Removes a row from the clustered index; false if there is none of that key.
    ///
    /// # Errors
    /// Lock waits; those of reading and writing pages.
    pub fn remove(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.change_existing(table, OpKind::Delete, key, &[])
    }

    fn change_existing(&mut self, table: &Table, kind: OpKind, key: &[u8], value: &[u8]) -> Result<bool> {
        let found = self.statement(|s| Ok(s.get(table, 0, key, false, Lock::Exclusive, Wait::Wait)?.is_some()))?;
        if found {
            self.change(table, kind, key, value)?;
        }
        Ok(found)
    }

    /// The newest value of the row with this key, which nobody else changes before the transaction ends: what is read by
    /// [`Session::find`] to be changed may be outdated by then.
    ///
    /// # Errors
    /// Lock waits; those of reading pages.
    pub fn find_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.statement(|s| Ok(s.get(table, 0, key, false, Lock::Exclusive, Wait::Wait)?.map(|row| row.value.to_vec())))
    }

    /// The value of the row with this key, as the transaction's snapshot sees it, which is as old as its first such read.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn find(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.statement(|s| Ok(s.get(table, 0, key, false, Lock::None, Wait::Wait)?.map(|row| row.value.to_vec())))
    }

    /// Rows from `start` on in key order, as the snapshot sees them, until `visit` breaks.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn scan(
        &mut self,
        table: &Table,
        start: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.statement(|s| {
            let mut cursor = Cursor::open(s, table, 0, CursorOptions::default())?;
            let mut row = cursor.seek(s, Seek::Ge, start)?;
            while let Some(found) = row {
                if visit(found.key, found.value).is_break() {
                    break;
                }
                row = cursor.next(s)?;
            }
            Ok(())
        })
    }
}
