//! The leaf that a transaction used last: rows are often read, changed and added one next to the other, and whoever comes
//! back to an unchanged leaf need not look for it from the root.

use myriad_base::PageId;
use myriad_btree::{Leaf, LeafExclusive, LeafShared, Tree};
use myriad_buffer::{BufferPool, FrameNo};

/// A leaf of a tree, good while its frame's version stays: leaves leave their tree, split and merge by changes only.
#[derive(Clone, Copy)]
pub struct Place {
    tree: Tree,
    frame: FrameNo,
    page: PageId,
    version: u64,
}

impl Place {
    /// A leaf that has been read.
    #[inline]
    pub(crate) fn read(tree: Tree, leaf: &LeafShared<'_>) -> Place {
        Place { tree, frame: leaf.frame(), page: leaf.page_id(), version: leaf.version() }
    }

    /// A leaf that is about to be changed, as it will be when it is released.
    #[inline]
    pub(crate) fn changed(tree: Tree, leaf: &LeafExclusive<'_>) -> Place {
        Place { tree, frame: leaf.frame(), page: leaf.page_id(), version: leaf.version() + 1 }
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

    /// As [`Place::shared`], latched exclusively.
    #[inline]
    pub(crate) fn exclusive<'p>(&self, pool: &'p BufferPool, tree: Tree, key: &[u8]) -> Option<LeafExclusive<'p>> {
        if !self.is_of(tree) {
            return None;
        }
        let leaf = LeafExclusive::from_reused(pool.try_reuse_exclusive(self.frame, self.page, self.version)?);
        leaf.covers(key).then_some(leaf)
    }
}
