//! What this room needs to know of an index.

use crate::system::TrxSystem;
use crate::write::set_full_key;
use myriad_base::{IndexId, PageId, Result};
pub use myriad_btree::Tree;
use myriad_btree::{LeafExclusive, LeafShared};
use smallvec::SmallVec;

/// Leaves that [`Index::read_together`] reads at a time.
const LEAVES_TOGETHER: usize = 16;

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
    /// One session alone uses the table: it locks nothing of what it reads there.
    pub private: bool,
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

    /// Reads the leaves of these keys, or beginnings of keys, that are not in memory all at once: who will look them up one
    /// after the other waits for the device once. At most [`LEAVES_TOGETHER`] of them. How many keys those are of, or such as were
    /// in memory; the others are left alone.
    ///
    /// # Errors
    /// Those of reading inner pages; a leaf's are left to whoever wants it.
    pub fn read_together<'k>(&self, sys: &TrxSystem, keys: impl Iterator<Item = &'k [u8]>) -> Result<usize> {
        let mut leaves: SmallVec<[PageId; LEAVES_TOGETHER]> = SmallVec::new();
        let mut full = Vec::new();
        let mut taken = 0;
        for key in keys {
            set_full_key(&mut full, self, key);
            // Its parent's latch goes at once: a leaf that is another one by the time it is read has been read in vain.
            let absent = self.tree.absent_leaf(sys.pool(), &full)?.map(|(_, leaf)| leaf);
            if let Some(leaf) = absent.filter(|leaf| !leaves.contains(leaf)) {
                if leaves.len() == LEAVES_TOGETHER {
                    break;
                }
                leaves.push(leaf);
            }
            taken += 1;
        }
        sys.pool().read_together(&leaves);
        Ok(taken)
    }
}
