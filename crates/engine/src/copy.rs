//! Filling of a table that nobody else sees yet: an ALTER TABLE that copies, CREATE TABLE ... SELECT.

use crate::session::{Op, OpKind, Session};
use crate::sort::{temporary_stem, Sorter};
use crate::table::Table;
use myriad_base::{Error, Result};
use myriad_txn::Place;
use std::path::Path;

/// Rows that go into a new table without undo and locks. Sorted, the entries of its secondary indexes are collected and go
/// into each index in key order at the end: into the leaves one after the other, whatever the order of the rows.
pub struct TableCopy {
    table: Table,
    /// What the secondary indexes are to have, in the order of their numbers; empty: each row's entries go in with the row.
    sorters: Vec<Sorter>,
    places: Vec<Option<Place>>,
    /// Index number and key.
    duplicate: (usize, Vec<u8>),
}

impl TableCopy {
    /// Begins. Entries are sorted in `memory_bytes` for all indexes together (at least 1 MiB each), and in files in the
    /// folder beyond; None: not sorted.
    ///
    /// # Errors
    /// No such index.
    pub fn begin(table: &Table, sorted: Option<(&Path, u64)>) -> Result<TableCopy> {
        let mut sorters = Vec::new();
        if let Some((tmp_dir, memory_bytes)) = sorted {
            let secondary = table.share.indexes.len().saturating_sub(1);
            for index in table.share.indexes.iter().skip(1) {
                let stem = temporary_stem(tmp_dir, index.id.0);
                sorters.push(Sorter::new(table.engine.io(), stem, memory_bytes / secondary as u64));
            }
        }
        Ok(TableCopy { table: table.clone(), sorters, places: Vec::new(), duplicate: (0, Vec::new()) })
    }

    /// A row's operations. Sorted: insertions alone, that of the row itself first.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`Session::last_duplicate`], after which the row is not there; any other one leaves the
    /// table of no use.
    pub fn apply<'a>(&mut self, session: &mut Session, ops: impl Iterator<Item = Op<'a>>) -> Result<()> {
        let (table, sorters) = (&self.table, &mut self.sorters);
        table.engine.check_usable(&table.share)?;
        let mut later = Vec::new();
        let now = ops.filter(|op| {
            let waits = !sorters.is_empty() && op.index_no > 0;
            if waits {
                later.push(*op);
            }
            !waits
        });
        let now = table.share.operations(now)?;
        session.trx.apply_bulk(&now, &mut self.places).map_err(|e| {
            session.failed_op = e.op;
            e.error
        })?;
        for op in later {
            match (op.kind, sorters.get_mut(op.index_no - 1)) {
                (OpKind::Insert, Some(sorter)) => sorter.add(op.key, op.unique_len, op.value)?,
                _ => return Err(Error::invalid("a sorted copy of rows takes insertions alone")),
            }
        }
        session.note_changed(&table.share);
        Ok(())
    }

    /// Fills the indexes that wait, one after the other.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`TableCopy::duplicate`]; [`Error::Interrupted`]; those of writing.
    pub fn finish(&mut self, session: &mut Session) -> Result<()> {
        let trx = self.table.engine.trx_system();
        let (duplicate_no, duplicate) = &mut self.duplicate;
        let indexes = self.table.share.indexes.iter().enumerate().skip(1);
        for (sorter, (no, index)) in self.sorters.iter_mut().zip(indexes) {
            *duplicate_no = no;
            trx.append_sorted(index.tree, |appender| {
                sorter.write(trx, index, duplicate, &mut |key, value| {
                    if session.trx.is_killed() {
                        return Err(Error::Interrupted);
                    }
                    appender.push(key, value)
                })
            })?;
        }
        self.sorters.clear();
        Ok(())
    }

    /// After [`Error::DuplicateKey`] of [`TableCopy::finish`]: the index's number and the duplicate's key, without the index
    /// id.
    pub fn duplicate(&self) -> (usize, &[u8]) {
        (self.duplicate.0, &self.duplicate.1)
    }
}
