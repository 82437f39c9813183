//! Counting the rows that a transaction sees.

use crate::gap::{after, in_index, After};
use crate::index::Index;
use crate::read::Found;
use crate::trx::Trx;
use crate::value::Entry;
use myriad_base::{Error, PageId, Result};
use myriad_btree::page::compare;
use myriad_btree::{Leaf, LeafShared, Scan, READ_AHEAD_STEP};
use std::sync::Arc;

/// The rows of an index that a transaction sees, counted leaf after leaf.
pub struct RowCount {
    /// Those before this key have been counted.
    from: Vec<u8>,
    far: Option<Far>,
    ended: bool,
    rows: u64,
}

/// The last row before, whose version is far back and not counted yet.
struct Far {
    leaf: PageId,
    /// The leaf's high fence; the last leaf has none.
    end: Vec<u8>,
}

impl RowCount {
    /// None counted yet.
    pub fn new(index: &Index) -> RowCount {
        RowCount { from: index.id.0.to_be_bytes().to_vec(), far: None, ended: false, rows: 0 }
    }

    /// Those counted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Counts those of the next leaf in the order of keys. What has been counted in another leaf, before it was merged into this one,
    /// or before the index moved, counts once. Stops where a version is far back: give up the leaf and [`RowCount::catch_up`].
    ///
    /// # Errors
    /// Those of reading versions.
    pub fn add(&mut self, trx: &mut Trx, index: &Index, leaf: &LeafShared<'_>) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        let sys = Arc::clone(&trx.sys);
        let (view, own) = (trx.view(), trx.id());
        trx.versions.leaf_latched();
        let (page, len) = (leaf.page_id(), leaf.len());
        let first = leaf.find(&self.from).unwrap_or_else(|s| s);
        // All keys of the leaf from `first` on are the index's if the last one is.
        let whole = len > first && after(leaf, len - 1, index.id) == After::Here;
        for slot in first..len {
            if !whole && after(leaf, slot, index.id) != After::Here {
                self.ended = true;
                return Ok(());
            }
            let entry = Entry::parse(leaf.value(slot), page)?;
            let view = trx.view_of(view, index, leaf.key_parts(slot), &entry, page)?;
            match sys.find_version(entry, page, view, own, &mut trx.versions)? {
                Found::Version(seen) => self.rows += u64::from(seen.is_some()),
                Found::Far => {
                    leaf.key_into(slot, &mut self.from);
                    // What follows is behind the key with this byte.
                    self.from.push(0);
                    self.far = Some(Far { leaf: page, end: leaf.high_fence().to_vec() });
                    return Ok(());
                }
            }
        }
        let fence = leaf.high_fence();
        self.ended = leaf.is_last() || !in_index(fence, index.id);
        if compare(fence, &self.from).is_gt() {
            self.from.clear();
            self.from.extend_from_slice(fence);
        }
        Ok(())
    }

    /// Counts the rest of the leaf at which [`RowCount::add`] stopped, if it did, with none latched.
    ///
    /// # Errors
    /// Those of reading pages and versions; [`Error::Interrupted`] when `stop` says so.
    pub fn catch_up(&mut self, trx: &mut Trx, index: &Index, stop: &dyn Fn() -> bool) -> Result<()> {
        let Some(Far { leaf, end }) = self.far.take() else { return Ok(()) };
        self.add_far(trx, leaf, stop)?;
        while !self.ended && (self.from < end || end.is_empty()) {
            self.add_next(trx, index, stop)?;
        }
        Ok(())
    }

    fn add_far(&mut self, trx: &mut Trx, leaf: PageId, stop: &dyn Fn() -> bool) -> Result<()> {
        let sys = Arc::clone(&trx.sys);
        let (view, own) = (trx.view(), trx.id());
        self.rows += u64::from(sys.far_version(leaf, view, own, &mut trx.versions, stop)?.is_some());
        Ok(())
    }

    fn add_next(&mut self, trx: &mut Trx, index: &Index, stop: &dyn Fn() -> bool) -> Result<()> {
        let sys = Arc::clone(&trx.sys);
        let leaf = index.tree.seek(sys.pool(), &self.from)?;
        leaf.next_from(&self.from)?;
        self.add(trx, index, &leaf)?;
        drop(leaf);
        if let Some(Far { leaf, .. }) = self.far.take() {
            self.add_far(trx, leaf, stop)?;
        }
        match stop() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// Number of rows of the index that the transaction sees; interrupted when `stop` says so.
pub(crate) fn count(trx: &mut Trx, index: &Index, stop: &dyn Fn() -> bool) -> Result<u64> {
    let sys = Arc::clone(&trx.sys);
    let mut count = RowCount::new(index);
    for leaves in 0u64.. {
        if leaves % u64::from(READ_AHEAD_STEP) == 1 {
            index.tree.read_ahead(sys.pool(), &count.from, Scan::up(&[]))?;
        }
        count.add_next(trx, index, stop)?;
        if count.ended {
            break;
        }
    }
    Ok(count.rows)
}
