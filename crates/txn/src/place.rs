//! The leaf that a transaction used last: rows are often read, changed and added one next to the other, and whoever comes
//! back to an unchanged leaf need not look for it from the root.

use myriad_base::PageId;
use myriad_btree::{Leaf, LeafExclusive, LeafShared, Tree};
use myriad_buffer::{BufferPool, FrameNo};

/// A leaf with the slot of a key that it covers, or (`Err`) that where the key would be inserted.
pub(crate) type Found<'p> = (LeafExclusive<'p>, Result<usize, usize>);

/// Looks for the key in the leaf that was sought for it.
///
/// # Errors
/// Those of [`Leaf::find_sought`].
#[inline]
pub(crate) fn found<'p>(leaf: LeafExclusive<'p>, key: &[u8]) -> myriad_base::Result<Found<'p>> {
    let slot = leaf.find_sought(key)?;
    Ok((leaf, slot))
}

/// An entry in a leaf of a tree, good while the frame's version stays: leaves leave their tree, split and merge by changes only.
#[derive(Clone, Copy)]
pub struct Place {
    tree: Tree,
    frame: FrameNo,
    page: PageId,
    version: u64,
    slot: usize,
    /// Whether the change that led to this version has moved entries to other slots.
    moved: bool,
}

impl Place {
    /// An entry that has been read.
    #[inline]
    pub(crate) fn read(tree: Tree, leaf: &LeafShared<'_>, slot: usize) -> Place {
        let (frame, page, version) = (leaf.frame(), leaf.page_id(), leaf.version());
        Place { tree, frame, page, version, slot, moved: true }
    }

    /// An entry that is about to be changed, as it will be when its leaf is released.
    #[inline]
    pub(crate) fn changed(tree: Tree, leaf: &LeafExclusive<'_>, slot: usize) -> Place {
        let (frame, page, version) = (leaf.frame(), leaf.page_id(), leaf.version() + 1);
        Place { tree, frame, page, version, slot, moved: false }
    }

    /// As [`Place::changed`] where an entry comes or goes.
    #[inline]
    pub(crate) fn moved(tree: Tree, leaf: &LeafExclusive<'_>, slot: usize) -> Place {
        Place { moved: true, ..Place::changed(tree, leaf, slot) }
    }

    /// The version in which a page has its entries in the slots in which they were at `version`, if that is known.
    #[inline]
    pub(crate) fn version_like(&self, frame: FrameNo, page: PageId, version: u64) -> Option<u64> {
        let follows = !self.moved && self.version == version + 1;
        (follows && self.frame == frame && self.page == page).then_some(self.version)
    }

    #[inline]
    fn is_of(&self, tree: Tree) -> bool {
        self.tree.space == tree.space && self.tree.root == tree.root
    }

    /// The leaf, if it is the one of `tree` that covers `key`.
    #[inline]
    pub(crate) fn shared<'p>(&self, pool: &'p BufferPool, tree: Tree, key: &[u8]) -> Option<LeafShared<'p>> {
        if !self.is_of(tree) {
            return None;
        }
        let leaf = LeafShared::from_reused(pool.try_reuse(self.frame, self.page, self.version)?);
        leaf.covers(key).then_some(leaf)
    }

    /// As [`Place::shared`], latched exclusively, with what [`Leaf::find`] finds there.
    #[inline]
    pub(crate) fn exclusive<'p>(&self, pool: &'p BufferPool, tree: Tree, key: &[u8]) -> Option<Found<'p>> {
        if !self.is_of(tree) {
            return None;
        }
        let leaf = LeafExclusive::from_reused(pool.try_reuse_exclusive(self.frame, self.page, self.version)?);
        // A leaf that has the key covers it.
        if self.slot < leaf.len() && leaf.cmp_key(self.slot, key).is_eq() {
            return Some((leaf, Ok(self.slot)));
        }
        leaf.covers(key).then(|| {
            let slot = leaf.find(key);
            (leaf, slot)
        })
    }
}
