//! Rows that a transaction changed although its snapshot does not see the version it changed.
//!
//! Every entry of every index is versioned by itself, so a consistent read of a secondary index never asks the clustered
//! one. That goes wrong in one case: another transaction changes a row and commits, then this one, whose snapshot is older,
//! changes the same row. Its own version of the row is what it must see, in every index; but the secondary entries that the
//! other one replaced are still in the snapshot. So the clustered keys of such rows are noted, and of a secondary entry
//! that ends with one of them the newest version is shown: the row is locked by this transaction, nobody else can have
//! written it. How long the clustered key at the end is, the entry's writer has noted in the undo record: one row's key may
//! be the end of another's.

use crate::index::Index;
use crate::read::View;
use crate::trx::Trx;
use crate::value::Entry;
use myriad_base::{IndexId, PageId, Result};
use myriad_btree::KeyParts;
use std::collections::HashSet;

/// A table (by its clustered index) and a row's clustered key.
type RowKey = (IndexId, Box<[u8]>);

/// See the module's description. Empty for nearly every transaction.
#[derive(Default)]
pub(crate) struct Overtaken {
    rows: HashSet<RowKey>,
    /// In the order of their changes, with the number of undo records before each: for partial rollback.
    order: Vec<(u64, RowKey)>,
    /// Lengths that occur among the keys.
    lengths: Vec<usize>,
}

impl Overtaken {
    /// Whether there is any.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Notes a row; `records` undo records come before its change.
    pub fn add(&mut self, clustered: &Index, key: &[u8], records: u64) {
        let row: RowKey = (clustered.table, key.into());
        if self.rows.insert(row.clone()) {
            if !self.lengths.contains(&key.len()) {
                self.lengths.push(key.len());
            }
            self.order.push((records, row));
        }
    }

    /// Changes beyond the first `records` have been undone.
    pub fn roll_back_to(&mut self, records: u64) {
        while self.order.last().is_some_and(|(before, _)| *before >= records) {
            if let Some((_, row)) = self.order.pop() {
                self.rows.remove(&row);
            }
        }
    }

    /// The transaction or its snapshot has ended.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            *self = Overtaken::default();
        }
    }

    /// Whether the secondary entry with this key (with the index id) belongs to such a row. `row_key_len`: the length of
    /// the clustered key at its end; 0 = not known, then any of the rows' lengths is tried.
    fn covers(&self, index: &Index, key: &[u8], row_key_len: usize) -> bool {
        let ends_with_row = |&len: &usize| {
            let at = key.len().checked_sub(len).filter(|&at| at >= 4);
            at.is_some_and(|at| self.rows.contains(&(index.table, key[at..].into())))
        };
        match row_key_len {
            0 => self.lengths.iter().any(ends_with_row),
            len => ends_with_row(&len),
        }
    }
}

impl Trx {
    /// How an entry on the latched leaf `page` is to be read; its key, with the index id, is given in two parts.
    #[inline(never)]
    pub(crate) fn view_of(
        &self,
        view: View,
        index: &Index,
        key: KeyParts<'_>,
        entry: &Entry<'_>,
        page: PageId,
    ) -> Result<View> {
        if self.overtaken.is_empty() || index.clustered || self.sys.sees(view, self.id(), entry.trx) {
            return Ok(view);
        }
        let key = key.joined();
        let covered = self.overtaken.covers(index, &key, 0)
            && self.overtaken.covers(index, &key, self.sys.row_key_len(entry, page)?);
        Ok(if covered { View::Newest } else { view })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::SpaceId;
    use myriad_btree::Tree;

    #[test]
    fn rows_are_known_by_the_end_of_secondary_keys() {
        let tree = Tree::pack(SpaceId(16));
        let clustered = Index { id: IndexId(7), tree, clustered: true, table: IndexId(7), hash: false, private: false };
        let second = Index { id: IndexId(8), clustered: false, ..clustered };
        let other = Index { id: IndexId(9), clustered: false, table: IndexId(5), ..clustered };
        let mut o = Overtaken::default();
        assert!(!o.covers(&second, b"\0\0\0\x08blue1", 0));
        o.add(&clustered, b"1", 0);
        o.add(&clustered, b"22", 3);
        assert!(o.covers(&second, b"\0\0\0\x08blue1", 0));
        assert!(o.covers(&second, b"\0\0\0\x08red22", 0));
        assert!(!o.covers(&second, b"\0\0\0\x08red2", 0));
        assert!(o.covers(&second, b"\0\0\0\x08red22", 2) && !o.covers(&second, b"\0\0\0\x08red21", 2));
        assert!(!o.covers(&other, b"\0\0\0\x09blue1", 0));
        o.roll_back_to(3);
        assert!(o.covers(&second, b"\0\0\0\x08blue1", 0) && !o.covers(&second, b"\0\0\0\x08red22", 0));
        o.roll_back_to(0);
        assert!(o.is_empty());
    }
}
