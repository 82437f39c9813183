//! Secondary indexes that are kept by themselves: their keys are functions of the row.
//!
//! An entry's key is what the function gives and the row's key behind it, so that no two are the same. Its value is the length of the
//! first part, two bytes, least first: that is how the row is found.

use crate::build::IndexBuild;
use crate::session::{Op, OpKind, Row};
use crate::table::Table;
use myriad_base::{Error, Result};
use smallvec::SmallVec;
use std::sync::Arc;

/// What an index sorts a row by, see [`Table::with_index_keys`]. An error is that of the call that changes the row.
pub type IndexKey = fn(Row<'_>) -> Result<Vec<u8>>;

impl Table {
    /// A handle by which the short calls keep the table's other indexes, 1 and up, whose keys are these functions of the row, and by
    /// which [`Session::range`](crate::Session::range) finds the rows that such an index leads to. Each row has one entry in each
    /// index. The keys are made by [`key::encode`](crate::key::encode), or all of one length: none may be the beginning of another; rows
    /// have keys that are not empty.
    /// All changes have to use the same functions for as long as the table lives; those of other handles to a table with more than one
    /// index are refused.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one function for each index behind the first.
    pub fn with_index_keys<const N: usize>(mut self, keys: [IndexKey; N]) -> Result<Table> {
        let indexes = self.share.indexes.len();
        if N + 1 != indexes {
            let name = self.name();
            return Err(Error::invalid(format!("{N} index keys for table {name}, which has {indexes} indexes")));
        }
        self.index_keys = Some(Arc::new(keys));
        Ok(self)
    }
}

impl IndexBuild {
    /// As [`IndexBuild::add`], with the entry of a row as a handle with this [`Table::with_index_keys`] keeps it.
    ///
    /// # Errors
    /// Those of [`IndexBuild::add`] and of `key`.
    pub fn add_row(&mut self, key: IndexKey, row: Row<'_>) -> Result<()> {
        let entry = Entry::new(key, row)?;
        let unique_len = entry.unique_len(self.is_unique());
        self.add(&entry.key, unique_len, &entry.value)
    }
}

#[derive(PartialEq, Eq)]
struct Entry {
    /// With the row's key.
    key: Vec<u8>,
    value: [u8; 2],
}

impl Entry {
    fn new(key: IndexKey, row: Row<'_>) -> Result<Entry> {
        if row.key.is_empty() {
            // Its entry would be the beginning of others: a unique index would not find the duplicate.
            return Err(Error::invalid("an empty key in a table with index keys"));
        }
        let mut key = key(row)?;
        let len = u16::try_from(key.len());
        let len = len.map_err(|_| Error::TooLong { what: "index key", len: key.len(), max: usize::from(u16::MAX) })?;
        key.extend_from_slice(row.key);
        Ok(Entry { key, value: len.to_le_bytes() })
    }

    fn unique_len(&self, unique: bool) -> usize {
        if unique {
            usize::from(u16::from_le_bytes(self.value))
        } else {
            0
        }
    }
}

/// How long the part of an entry's key is that its index sorts by; the row's key is behind it.
///
/// # Errors
/// [`Error::Invalid`] if it was made by somebody else.
pub(crate) fn sorted_len(table: &Table, entry: Row<'_>) -> Result<usize> {
    let len = entry.value.try_into().map(u16::from_le_bytes).map(usize::from);
    len.ok().filter(|&len| len <= entry.key.len()).ok_or_else(|| {
        Error::invalid(format!("an entry of table {} that Table::with_index_keys has not made", table.name()))
    })
}

/// What has to be done to all indexes for one row.
pub(crate) struct RowOps<'a> {
    row: Op<'a>,
    entries: SmallVec<[EntryOp; 2]>,
}

struct EntryOp {
    kind: OpKind,
    index_no: usize,
    unique_len: usize,
    entry: Entry,
}

impl<'a> RowOps<'a> {
    /// For the row with this key, which is to have the value `new` or none, and has the value `old` or is not there.
    pub fn new(table: &Table, key: &'a [u8], old: Option<&[u8]>, new: Option<&'a [u8]>) -> Result<RowOps<'a>> {
        let (kind, unique_len) = match (old, new) {
            (None, _) => (OpKind::Insert, key.len()),
            (_, Some(_)) => (OpKind::Update, 0),
            (_, None) => (OpKind::Delete, 0),
        };
        let row = Op { kind, index_no: 0, key, unique_len, value: new.unwrap_or_default(), head_len: 0 };
        let mut ops = RowOps { row, entries: SmallVec::new() };
        match &table.index_keys {
            Some(keys) => ops.add_entries(table, keys, old, new)?,
            None if table.share.indexes.len() == 1 => {}
            None => {
                let name = table.name();
                return Err(Error::invalid(format!("table {name} has several indexes: Table::with_index_keys")));
            }
        }
        Ok(ops)
    }

    fn add_entries(&mut self, table: &Table, keys: &[IndexKey], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<()> {
        for (no, &index_key) in keys.iter().enumerate() {
            let index_no = no + 1;
            let entry = |value| Entry::new(index_key, Row { key: self.row.key, value });
            let (old, new) = (old.map(entry).transpose()?, new.map(entry).transpose()?);
            if old == new {
                continue;
            }
            if let Some(entry) = old {
                self.entries.push(EntryOp { kind: OpKind::Delete, index_no, unique_len: 0, entry });
            }
            if let Some(entry) = new {
                let unique_len = entry.unique_len(table.share.def.indexes[index_no].spec.unique);
                self.entries.push(EntryOp { kind: OpKind::Insert, index_no, unique_len, entry });
            }
        }
        Ok(())
    }

    /// The row's own first.
    pub fn list(&self) -> SmallVec<[Op<'_>; 3]> {
        let entries = self.entries.iter().map(|e| Op {
            kind: e.kind,
            index_no: e.index_no,
            key: &e.entry.key,
            unique_len: e.unique_len,
            value: &e.entry.value,
            head_len: 0,
        });
        std::iter::once(self.row).chain(entries).collect()
    }
}
