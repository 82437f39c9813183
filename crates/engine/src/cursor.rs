//! Cursors over an index.

use crate::session::{of_another_engine, Lock, Row, Session, Wait};
use crate::share::TableShare;
use crate::table::Table;
use myriad_base::Result;
pub use myriad_txn::{Excerpt, Seek};
use std::sync::Arc;

/// How a cursor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorOptions {
    /// Lock taken on each row.
    pub lock: Lock,
    /// What to do about locked rows.
    pub wait: Wait,
    /// At READ COMMITTED and below: gives the last committed version of a locked row instead of waiting.
    pub semi_consistent: bool,
    /// Locks of what is found the entries alone, not the gaps before them; behind the last one the gap is locked.
    pub record_only: bool,
    /// The whole index will be read: pages come in cold, with read-ahead.
    pub full_scan: bool,
    /// Of a value that is all in its index page the first so many bytes are read, and maybe more. All by default.
    pub value_bytes: usize,
    /// Of a value that has a head in its index page that is read, and the pages of so many bytes behind it, see
    /// [`crate::Op::head_len`]. All by default.
    pub tail_bytes: usize,
}

impl Default for CursorOptions {
    fn default() -> CursorOptions {
        CursorOptions {
            lock: Lock::None,
            wait: Wait::Wait,
            semi_consistent: false,
            record_only: false,
            full_scan: false,
            value_bytes: usize::MAX,
            tail_bytes: usize::MAX,
        }
    }
}

impl CursorOptions {
    #[inline]
    fn convert(self) -> myriad_txn::CursorOptions {
        myriad_txn::CursorOptions {
            lock: self.lock.strength(),
            wait: self.wait.lock_wait(),
            semi_consistent: self.semi_consistent,
            record_only: self.record_only,
            full_scan: self.full_scan,
            value_bytes: self.value_bytes,
            tail_bytes: self.tail_bytes,
        }
    }
}

/// A position in an index. Belongs to the session it was opened with.
pub struct Cursor {
    inner: myriad_txn::Cursor,
    locks: bool,
    index_no: usize,
    /// The table's engine, by its address.
    engine: usize,
    /// Keeps the table open.
    share: Arc<TableShare>,
}

shown!(Cursor, |c| [("table", &c.share.def.name), ("index_no", &c.index_no)]);

impl Cursor {
    /// Opens a cursor, which stands nowhere yet.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] when there is no such index.
    pub fn open(_session: &mut Session, table: &Table, index_no: usize, options: CursorOptions) -> Result<Cursor> {
        let engine = Arc::as_ptr(&table.engine) as usize;
        let index = *table.share.index(index_no)?;
        let inner = myriad_txn::Cursor::new(index, options.convert());
        Ok(Cursor { inner, locks: options.lock != Lock::None, index_no, engine, share: Arc::clone(&table.share) })
    }

    /// Changes how it reads from now on.
    pub fn set_options(&mut self, options: CursorOptions) {
        self.locks = options.lock != Lock::None;
        self.inner.set_options(options.convert());
    }

    /// Of a value that is all in its index page, what `excerpt` appends of it may be read instead of
    /// [`CursorOptions::value_bytes`]. It must not wait for anything: the page is latched.
    pub fn set_excerpt(&mut self, excerpt: Option<Excerpt>) {
        self.inner.set_excerpt(excerpt);
    }

    /// Bounds of what will be read (inclusive prefixes; empty = none): bounds batches.
    pub fn set_bounds(&mut self, low: Option<&[u8]>, high: Option<&[u8]>) {
        self.inner.set_bounds(low.unwrap_or(&[]), high.unwrap_or(&[]));
    }

    #[inline]
    fn check_engine(&self, session: &Session) -> Result<()> {
        match Arc::as_ptr(session.engine()) as usize == self.engine {
            true => Ok(()),
            false => Err(of_another_engine(&self.share)),
        }
    }

    #[inline]
    fn row(&self, found: bool) -> Option<Row<'_>> {
        found.then(|| self.current())
    }

    /// The row that it stands at.
    #[inline]
    pub(crate) fn current(&self) -> Row<'_> {
        let (key, value) = self.inner.row();
        Row { key, value }
    }

    /// Goes to a key.
    ///
    /// # Errors
    /// Lock waits; those of reading pages; [`myriad_base::Error::DefinitionChanged`].
    pub fn seek(&mut self, session: &mut Session, seek: Seek, key: &[u8]) -> Result<Option<Row<'_>>> {
        self.check_engine(session)?;
        session.engine().check_usable(&self.share)?;
        if !self.locks {
            self.share.check_snapshot(&session.trx, self.index_no)?;
        }
        let found = self.inner.seek(&mut session.trx, seek, key).map_err(|e| session.note_failure(e))?;
        Ok(self.row(found))
    }

    /// The next row.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    #[allow(clippy::should_implement_trait)] // rows are borrowed from the cursor
    pub fn next(&mut self, session: &mut Session) -> Result<Option<Row<'_>>> {
        self.check_engine(session)?;
        let found = self.inner.next(&mut session.trx).map_err(|e| session.note_failure(e))?;
        Ok(self.row(found))
    }

    /// The previous row.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn prev(&mut self, session: &mut Session) -> Result<Option<Row<'_>>> {
        self.check_engine(session)?;
        let found = self.inner.prev(&mut session.trx).map_err(|e| session.note_failure(e))?;
        Ok(self.row(found))
    }

    /// How many rows behind the current one, in the direction of travel, [`Cursor::peek`] can give, of a locking read up to
    /// `max`: what they lead to may be asked for together ([`Session::read_together`]).
    pub fn look_ahead(&mut self, session: &Session, max: usize) -> usize {
        self.inner.look_ahead(session.engine().trx_system(), max)
    }

    /// The n-th row behind the current one, of those that [`Cursor::look_ahead`] counted. A locking read has not locked it,
    /// and may find it changed, or not at all.
    pub fn peek(&self, n: usize) -> Option<Row<'_>> {
        self.inner.peek(n).map(|(key, value)| Row { key, value })
    }

    /// Whether the last row was given without its lock: read it again, locked, before changing it.
    pub fn was_semi_consistent(&self) -> bool {
        self.inner.was_semi_consistent()
    }

    /// At READ COMMITTED and below: the last row does not match; its locks go.
    pub fn unlock_row(&mut self, session: &mut Session) {
        self.inner.unlock_row(&mut session.trx);
    }
}
