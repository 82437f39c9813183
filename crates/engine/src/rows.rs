//! Iterators over a table's rows, in the order of any of its indexes.

use crate::cursor::{Cursor, CursorOptions, Seek};
use crate::index_keys::sorted_len;
use crate::session::{Lock, Row, Session, Wait};
use crate::table::Table;
use myriad_base::Result;
use std::ops::{Bound, RangeBounds};

impl Session {
    /// All of the table's rows in the order of an index, see [`Session::range`].
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn rows<'s>(&'s mut self, table: &'s Table, index_no: usize) -> Result<Rows<'s>> {
        Rows::open(self, table, index_no, None, None)
    }

    /// Rows whose key in an index begins with `prefix`, see [`Session::range`].
    ///
    /// # Errors
    /// As [`Session::range`].
    pub fn prefix<'s>(&'s mut self, table: &'s Table, index_no: usize, prefix: &[u8]) -> Result<Rows<'s>> {
        Rows::open(self, table, index_no, Some(prefix.to_vec()), behind_prefix(prefix))
    }

    /// Rows whose key in an index lies within these bounds, in its order. By index 0, or a handle without index keys, these are the
    /// index's entries; by another index of a [`Table::with_index_keys`] the rows that its entries lead to, and the bounds are of what
    /// the index sorts by. The rows are those of the transaction's snapshot, at SERIALIZABLE the newest ones, locked; see
    /// [`Rows::locked`]. It is a short call that ends when the iterator is dropped.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] when there is no such index; that of a transaction that is lost, see [`Session::transaction`].
    pub fn range<'s, K: AsRef<[u8]>>(
        &'s mut self,
        table: &'s Table,
        index_no: usize,
        bounds: impl RangeBounds<K>,
    ) -> Result<Rows<'s>> {
        let behind = |key: &K| match leads_to_rows(table, index_no) {
            true => behind_prefix(key.as_ref()),
            false => Some([key.as_ref(), &[0]].concat()),
        };
        let low = match bounds.start_bound() {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => match behind(key) {
                Some(low) => Some(low),
                // Nothing can be behind it.
                None => return Rows::open(self, table, index_no, Some(Vec::new()), Some(Vec::new())),
            },
        };
        let high = match bounds.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        };
        Rows::open(self, table, index_no, low, high)
    }
}

/// Whether an index is read for the rows that its entries lead to.
fn leads_to_rows(table: &Table, index_no: usize) -> bool {
    index_no > 0 && table.index_keys.is_some()
}

/// The first key after all that begin with this; none if there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// What [`Session::range`] and the like give: key and value of one row after the other, from both ends. While it is there the session does
/// nothing else; who changes rows as he reads collects them first, or uses a [`Cursor`]. After an error it gives no more.
#[must_use = "rows are read when they are asked for"]
pub struct Rows<'s> {
    session: &'s mut Session,
    table: &'s Table,
    index_no: usize,
    options: CursorOptions,
    /// Entries from here on; none: from the first.
    low: Option<Vec<u8>>,
    /// Entries before this; none: to the last.
    high: Option<Vec<u8>>,
    front: Option<Cursor>,
    back: Option<Cursor>,
    /// The statement has ended.
    ended: bool,
}

shown!(Rows<'_>, |r| [("table", &r.table.name()), ("index_no", &r.index_no)]);

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl<'s> Rows<'s> {
    fn open(
        session: &'s mut Session,
        table: &'s Table,
        index_no: usize,
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
    ) -> Result<Rows<'s>> {
        session.check_usable(table)?;
        table.share.index(index_no)?;
        session.begin_short()?;
        let options = CursorOptions { lock: session.plain_lock(), ..Default::default() };
        Ok(Rows { session, table, index_no, options, low, high, front: None, back: None, ended: false })
    }

    /// Locks what it gives from here on, and at REPEATABLE READ and above the gaps between: the newest rows, which nobody else changes
    /// before the transaction ends. `wait` says what to do about one that somebody else has locked.
    pub fn locked(mut self, lock: Lock, wait: Wait) -> Rows<'s> {
        self.options = CursorOptions { lock, wait, ..self.options };
        for cursor in [&mut self.front, &mut self.back].into_iter().flatten() {
            cursor.set_options(self.options);
        }
        self
    }

    /// The next row without a copy of it; valid until the iterator's next call.
    ///
    /// # Errors
    /// Those of reading pages; lock waits if it locks; [`myriad_base::Error::DefinitionChanged`].
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>> {
        self.row(End::Front)
    }

    /// As [`Rows::next_row`], from the other end.
    ///
    /// # Errors
    /// As there.
    pub fn next_row_back(&mut self) -> Result<Option<Row<'_>>> {
        self.row(End::Back)
    }

    fn row(&mut self, end: End) -> Result<Option<Row<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let found = self.find(end);
        if !matches!(found, Ok(true)) {
            self.ended = true;
            self.session.end_short(found)?;
            return Ok(None);
        }
        if leads_to_rows(self.table, self.index_no) {
            return Ok(Some(self.session.last_row()));
        }
        let cursor = if end == End::Front { &self.front } else { &self.back };
        Ok(cursor.as_ref().map(Cursor::current))
    }

    fn find(&mut self, end: End) -> Result<bool> {
        if matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high) {
            return Ok(false);
        }
        while self.step(end)? {
            let (here, other) = match end {
                End::Front => (&mut self.front, &self.back),
                End::Back => (&mut self.back, &self.front),
            };
            let Some(here) = here else { return Ok(false) };
            let entry = here.current();
            let met = other.as_ref().map(|other| other.current().key);
            let inside = match end {
                End::Front => self.high.as_deref().into_iter().chain(met).all(|bound| entry.key < bound),
                End::Back => {
                    self.low.as_ref().is_none_or(|low| entry.key >= &low[..]) && met.is_none_or(|met| entry.key > met)
                }
            };
            if !inside {
                here.unlock_row(self.session);
                return Ok(false);
            }
            if !leads_to_rows(self.table, self.index_no) {
                return Ok(true);
            }
            let key = &entry.key[sorted_len(self.table, entry)?..];
            let CursorOptions { lock, wait, .. } = self.options;
            if self.session.get(self.table, 0, key, false, lock, wait)?.is_some() {
                return Ok(true);
            }
            // Passed over, as somebody has the row locked.
            here.unlock_row(self.session);
        }
        Ok(false)
    }

    /// To the next entry, whatever it is.
    fn step(&mut self, end: End) -> Result<bool> {
        let cursor = if end == End::Front { &mut self.front } else { &mut self.back };
        let found = match cursor {
            Some(cursor) if end == End::Front => cursor.next(self.session)?,
            Some(cursor) => cursor.prev(self.session)?,
            None => {
                let cursor = cursor.insert(Cursor::open(self.session, self.table, self.index_no, self.options)?);
                cursor.set_bounds(self.low.as_deref(), self.high.as_deref());
                let (seek, key) = match (end, &self.low, &self.high) {
                    (End::Front, Some(low), _) => (Seek::Ge, &low[..]),
                    (End::Front, None, _) => (Seek::First, &b""[..]),
                    (End::Back, _, Some(high)) => (Seek::Lt, &high[..]),
                    (End::Back, _, None) => (Seek::Last, &b""[..]),
                };
                cursor.seek(self.session, seek, key)?
            }
        };
        Ok(found.is_some())
    }

    fn owned(row: Result<Option<Row<'_>>>) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        row.map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec()))).transpose()
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        Rows::owned(self.next_row())
    }
}

impl DoubleEndedIterator for Rows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Rows::owned(self.next_row_back())
    }
}

impl std::iter::FusedIterator for Rows<'_> {}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.session.statement_end();
        }
    }
}
