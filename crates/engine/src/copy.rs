//! Filling of a table that nobody else sees yet: an ALTER TABLE that copies, CREATE TABLE ... SELECT.

use crate::session::{Op, OpKind, Session};
use crate::share::Operations;
use crate::sort::{temporary_stem, Sorter};
use crate::table::Table;
use myriad_base::{Error, Result};
use myriad_btree::{BulkAppender, SortedEntries};
use myriad_txn::{Index, Place, TrxSystem};
use std::path::Path;

/// Bytes of rows that wait before they go into the leaves together.
const ROWS_BYTES: usize = 64 << 10;

/// Rows that go into a new table without undo and locks. Sorted, they go into their leaves many at a time while they come in
/// key order. The others, and the entries of secondary indexes, are collected and go in at the end in key order: into the
/// leaves one after the other, whatever the order of the rows.
#[must_use = "rows may wait until it is finished"]
pub struct TableCopy {
    table: Table,
    /// None: each row's entries go in with the row.
    waiting: Option<Waiting>,
    places: Vec<Option<Place>>,
    /// Index number and key.
    duplicate: (usize, Vec<u8>),
}

shown!(TableCopy, |c| [("table", &c.table.name())]);

/// What is not in the table yet.
struct Waiting {
    memory_bytes: u64,
    /// Rows in key order, which go in soon.
    rows: SortedEntries,
    /// The key of the last row that came in order.
    last: Vec<u8>,
    /// Whether a row has come out of order: from then on all wait here.
    sorting: bool,
    row_sorter: Sorter,
    /// What the secondary indexes are to have, in the order of their numbers.
    sorters: Vec<Sorter>,
}

impl TableCopy {
    /// Begins. What is sorted is so in `memory_bytes` for all indexes together (at least 1 MiB each), and in files in the
    /// folder beyond; None: not sorted.
    ///
    /// # Errors
    /// The table has no index.
    pub fn begin(table: &Table, sorted: Option<(&Path, u64)>) -> Result<TableCopy> {
        let clustered = table.share.index(0)?;
        let waiting = sorted.map(|(tmp_dir, memory_bytes)| {
            let secondary = &table.share.indexes[1..];
            let share = memory_bytes / secondary.len().max(1) as u64;
            let sorter = |index: &Index| Sorter::new(table.engine.io(), temporary_stem(tmp_dir, index.id.0), share);
            Waiting {
                memory_bytes,
                rows: SortedEntries::default(),
                last: Vec::new(),
                sorting: false,
                row_sorter: sorter(clustered),
                sorters: secondary.iter().map(sorter).collect(),
            }
        });
        Ok(TableCopy { table: table.clone(), waiting, places: Vec::new(), duplicate: (0, Vec::new()) })
    }

    /// A row's operations. Sorted: insertions alone, that of the row itself first.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`Session::last_duplicate`], after which the row is not there; any other one leaves the
    /// table of no use. Of what is sorted duplicates are found in the end.
    pub fn apply<'a>(&mut self, session: &mut Session, ops: impl Iterator<Item = Op<'a>>) -> Result<()> {
        session.check_usable(&self.table)?;
        let share = &self.table.share;
        match &mut self.waiting {
            None => apply_now(session, &share.operations(ops)?, &mut self.places)?,
            Some(waiting) => {
                for op in ops {
                    let sorter = op.index_no.checked_sub(1).map(|no| waiting.sorters.get_mut(no));
                    match (op.kind, sorter) {
                        (OpKind::Insert, None) => waiting.add_row(&self.table, session, op, &mut self.places)?,
                        (OpKind::Insert, Some(Some(sorter))) => sorter.add(op.key, op.unique_len, op.value)?,
                        _ => return Err(Error::invalid("a sorted copy of rows takes insertions alone")),
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts in what waits, one index after the other.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`TableCopy::duplicate`]; [`Error::Interrupted`]; those of writing.
    pub fn finish(&mut self, session: &mut Session) -> Result<()> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        let (trx, share) = (self.table.engine.trx_system(), &self.table.share);
        let (duplicate_no, duplicate) = &mut self.duplicate;
        waiting.finish_rows(trx, session, share.index(0)?, duplicate)?;
        let indexes = share.indexes.iter().enumerate().skip(1);
        for (mut sorter, (no, index)) in waiting.sorters.into_iter().zip(indexes) {
            *duplicate_no = no;
            trx.append_sorted(index.tree, |appender| {
                sorter.write(trx, index, duplicate, &mut |key, value| push(session, appender, key, value))
            })?;
        }
        Ok(())
    }

    /// After [`Error::DuplicateKey`] of [`TableCopy::finish`]: the index's number and the duplicate's key, without the index
    /// id. The row that has it, or the first of several, is in the clustered index.
    pub fn duplicate(&self) -> (usize, &[u8]) {
        (self.duplicate.0, &self.duplicate.1)
    }
}

impl Waiting {
    fn add_row(
        &mut self,
        table: &Table,
        session: &mut Session,
        op: Op<'_>,
        places: &mut Vec<Option<Place>>,
    ) -> Result<()> {
        let (trx, index) = (table.engine.trx_system(), table.share.index(0)?);
        if op.unique_len > 0 && op.unique_len != op.key.len() {
            return Err(Error::invalid("a sorted copy takes rows that are unique by their whole keys"));
        }
        if !self.sorting && op.key <= &self.last[..] {
            self.start_sorting()?;
        }
        if !self.sorting {
            self.last.clear();
            self.last.extend_from_slice(op.key);
        }
        if !trx.is_stored_whole(op.key.len(), op.value.len()) {
            // It has pages of its own and goes in at once. A row with its key that waits is refused later.
            self.flush_rows(trx, index)?;
            return apply_now(session, &table.share.operations(std::iter::once(op))?, places);
        }
        if self.sorting {
            return self.row_sorter.add(op.key, op.key.len(), op.value);
        }
        trx.push_frozen(&mut self.rows, index, op.key, op.value)?;
        if self.rows.bytes() < ROWS_BYTES {
            return Ok(());
        }
        self.flush_rows(trx, index)
    }

    fn start_sorting(&mut self) -> Result<()> {
        self.sorting = true;
        let share = self.memory_bytes / (self.sorters.len() + 1) as u64;
        self.row_sorter.set_memory(share);
        self.sorters.iter_mut().for_each(|sorter| sorter.set_memory(share));
        for (key, value) in self.rows.iter() {
            // Without the index id and the flags, as it came.
            self.row_sorter.add(&key[4..], key.len() - 4, &value[1..])?;
        }
        self.rows.clear();
        Ok(())
    }

    fn flush_rows(&mut self, trx: &TrxSystem, index: &Index) -> Result<()> {
        trx.append_entries(index.tree, &mut self.rows)
    }

    fn finish_rows(
        &mut self,
        trx: &TrxSystem,
        session: &Session,
        index: &Index,
        duplicate: &mut Vec<u8>,
    ) -> Result<()> {
        self.flush_rows(trx, index)?;
        trx.append_sorted(index.tree, |appender| {
            let mut written =
                self.row_sorter.write(trx, index, duplicate, &mut |key, value| push(session, appender, key, value));
            if matches!(written, Ok(()) | Err(Error::DuplicateKey { .. })) {
                written = appender.flush().and(written);
            }
            if let Some(key) = appender.existing() {
                duplicate.clear();
                duplicate.extend_from_slice(&key[4..]);
                return Err(Error::DuplicateKey { index: index.id });
            }
            written
        })
    }
}

fn push(session: &Session, appender: &mut BulkAppender<'_>, key: &[u8], value: &[u8]) -> Result<()> {
    if session.trx.is_killed() {
        return Err(Error::Interrupted);
    }
    appender.push(key, value)
}

fn apply_now(session: &mut Session, ops: &Operations<'_>, places: &mut Vec<Option<Place>>) -> Result<()> {
    session.trx.apply_bulk(ops, places).map_err(|e| {
        session.failed_op = e.op;
        e.error
    })
}
