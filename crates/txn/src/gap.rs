//! The key after a gap, also where that key is in another leaf.
//!
//! A gap is locked at the key that follows it. At a leaf's end this key is in the next leaf, and no descent is allowed
//! while a leaf is latched (whoever splits the parent may wait for that leaf). So the next leaf is looked at first, and
//! whoever then holds the first leaf's latch proves by the frames' versions that nothing has changed: latching frames left
//! to right without a descent is in order.

use crate::lock::LockKey;
use crate::system::TrxSystem;
use myriad_base::{IndexId, PageId, Result};
use myriad_btree::page::compare;
use myriad_btree::{Leaf, Tree};
use myriad_buffer::{FrameNo, SharedPage};
use smallvec::SmallVec;

/// Whether a full key belongs to the index.
#[inline]
pub(crate) fn in_index(key: &[u8], index: IndexId) -> bool {
    key.get(..4) == Some(&index.0.to_be_bytes()[..])
}

/// Where the first entry behind a gap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// In the same leaf.
    Here,
    /// Nowhere: the gap ends with the index.
    Supremum,
    /// In a later leaf, if anywhere.
    Beyond,
}

/// Where the entry is that `slot` of the leaf is, or would be if the leaf went on.
pub(crate) fn after(leaf: &impl Leaf, slot: usize, index: IndexId) -> After {
    if slot < leaf.len() {
        let id = index.0.to_be_bytes();
        if leaf.key_parts(slot).starts_with(&id) {
            After::Here
        } else {
            After::Supremum
        }
    } else if leaf.is_last() || !in_index(leaf.high_fence(), index) {
        After::Supremum
    } else {
        After::Beyond
    }
}

type Seen = (FrameNo, PageId, u64);

/// What was found behind a leaf's end, and the proof that it still is so.
#[derive(Default)]
pub(crate) struct Edge {
    tree: Option<Tree>,
    fence: Vec<u8>,
    pages: SmallVec<[Seen; 2]>,
    /// The key; empty for the supremum.
    key: Vec<u8>,
    index: IndexId,
}

impl Edge {
    /// Looks for the first key at or above `fence`, the high fence of the leaf at whose end the gap begins. `at_key` is
    /// called while its leaf is latched. No latch may be held.
    pub fn find(
        &mut self,
        sys: &TrxSystem,
        tree: Tree,
        index: IndexId,
        fence: &[u8],
        at_key: &mut dyn FnMut(LockKey<'_>),
    ) -> Result<()> {
        self.tree = None;
        self.fence.clear();
        self.fence.extend_from_slice(fence);
        self.pages.clear();
        self.key.clear();
        self.index = index;
        let mut from = fence.to_vec();
        loop {
            let leaf = tree.seek(sys.pool(), &from)?;
            let next = leaf.next_from(&from)?;
            self.pages.push((leaf.frame(), leaf.page_id(), leaf.version()));
            // An entry below the fence would mean that the leaves have changed; `verify` will find out.
            let slot = leaf.find(&from).unwrap_or_else(|s| s);
            match after(&leaf, slot, index) {
                After::Here => leaf.key_into(slot, &mut self.key),
                After::Supremum => {}
                After::Beyond => {
                    from = next.to_vec();
                    continue;
                }
            }
            at_key(self.lock_key());
            self.tree = Some(tree);
            return Ok(());
        }
    }

    /// The key behind the gap.
    pub fn lock_key(&self) -> LockKey<'_> {
        if self.key.is_empty() {
            LockKey::supremum(self.index)
        } else {
            LockKey::entry(&self.key)
        }
    }

    /// Whether the key found is still the one that follows `leaf`'s last entry. The caller holds `leaf`'s latch and the
    /// pages returned stay latched shared; while both last, the answer holds.
    pub fn verify<'p>(
        &self,
        sys: &'p TrxSystem,
        tree: Tree,
        index: IndexId,
        leaf: &impl Leaf,
    ) -> Option<SmallVec<[SharedPage<'p>; 2]>> {
        if self.tree != Some(tree) || self.index != index || compare(leaf.high_fence(), &self.fence).is_ne() {
            return None;
        }
        self.pages.iter().map(|&(frame, id, version)| sys.pool().try_reuse(frame, id, version)).collect()
    }
}
