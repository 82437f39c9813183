//! What this room needs to know of an index.

use crate::system::TrxSystem;
use myriad_base::{IndexId, Result};
pub use myriad_btree::Tree;
use myriad_btree::{LeafExclusive, LeafShared};

/// An index. Keys given to and got from this room are *without* the index id; the room puts it in front.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// Its id, the first four bytes (big endian) of its keys in the tree.
    pub id: IndexId,
    /// The tree that holds it, maybe among others.
    pub tree: Tree,
    /// Whether each whole key is one row of the table (the clustered index): exact reads lock no gap.
    pub clustered: bool,
    /// The table it belongs to, by its clustered index. A secondary index's keys end with the clustered key.
    pub table: IndexId,
    /// Look-ups of whole keys go by hash first. Only in the tablespace of in-memory tables.
    pub hash: bool,
}

impl Index {
    /// The leaf that covers `key`, which has the index id in front, latched shared.
    #[inline]
    pub(crate) fn seek<'p>(&self, sys: &'p TrxSystem, key: &[u8]) -> Result<LeafShared<'p>> {
        match self.hash {
            false => self.tree.seek(sys.pool(), key),
            true => sys.leaf_hash.seek(sys.pool(), self, key),
        }
    }

    /// As [`Index::seek`], latched exclusively.
    #[inline]
    pub(crate) fn seek_exclusive<'p>(&self, sys: &'p TrxSystem, key: &[u8]) -> Result<LeafExclusive<'p>> {
        match self.hash {
            false => self.tree.seek_exclusive(sys.pool(), key),
            true => sys.leaf_hash.seek_exclusive(sys.pool(), self, key),
        }
    }
}
