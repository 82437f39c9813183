//! Read-ahead for scans, and the leaves of a range read together.

use crate::page::{self, Latched, Target};
use crate::tree::Tree;
use myriad_base::{PageId, Result};
use myriad_buffer::{BufferPool, SharedPage};
use smallvec::SmallVec;

/// Leaves that a scan reads between two calls of [`Tree::read_ahead`].
pub const READ_AHEAD_STEP: u32 = 32;
/// Leaves beyond the scan's place that are asked for each time.
const READ_AHEAD_LEAVES: usize = 2 * READ_AHEAD_STEP as usize;
/// Leaves of a range that are read together. Of a wider range the first entries may be all that is wanted.
const TOGETHER_LEAVES: usize = 4;

impl Tree {
    /// Starts to read the leaves behind the one that covers `key` that are not in memory, as far as its parent names them.
    /// The caller holds no latch.
    ///
    /// # Errors
    /// Those of reading inner pages; a leaf's are left to whoever wants it.
    pub fn read_ahead(&self, pool: &BufferPool, key: &[u8]) -> Result<()> {
        let Some(parent) = self.at_level::<SharedPage<'_>>(pool, Target::At(key), 1)? else { return Ok(()) };
        let at = page::route(&Latched(&parent), Target::At(key));
        let mut wanted: SmallVec<[PageId; READ_AHEAD_LEAVES]> = (at + 1..=page::count(&parent))
            .take(READ_AHEAD_LEAVES)
            .map(|child| self.id(page::child(&parent, child)))
            .collect();
        drop(parent);
        wanted.retain(|id| !pool.is_resident(*id));
        if !wanted.is_empty() {
            pool.prefetch(&wanted);
        }
        Ok(())
    }

    /// Reads the leaves of a narrow range `[lo, hi)` that are not in memory, of a wide one those at its ends, all at once,
    /// so that an estimate and a scan do not wait for one after the other. Only where memory is short: it takes a descent.
    /// The caller holds no latch.
    ///
    /// # Errors
    /// Those of reading inner pages; a leaf's are left to whoever wants it.
    pub(crate) fn load_together(&self, pool: &BufferPool, lo: &[u8], hi: &[u8]) -> Result<()> {
        if !pool.is_short() {
            return Ok(());
        }
        let Some(parent) = self.at_level::<SharedPage<'_>>(pool, Target::At(lo), 1)? else { return Ok(()) };
        let first = page::route(&Latched(&parent), Target::At(lo));
        let (fence, count) = (page::high_fence(&parent), page::count(&parent));
        let ends_here = !hi.is_empty() && (fence.is_empty() || hi <= fence);
        let last = if ends_here { page::route(&Latched(&parent), Target::Before(hi)) } else { count };
        let children: SmallVec<[usize; TOGETHER_LEAVES]> =
            match (last.saturating_sub(first) < TOGETHER_LEAVES, ends_here) {
                (true, _) => (first..=last).collect(),
                (false, true) => [first, last].into_iter().collect(),
                (false, false) => return Ok(()),
            };
        let mut wanted: SmallVec<[PageId; TOGETHER_LEAVES]> =
            children.iter().map(|&child| self.id(page::child(&parent, child))).collect();
        drop(parent);
        wanted.retain(|id| !pool.is_resident(*id));
        // A single one is read by whoever fixes it.
        if wanted.len() > 1 {
            pool.load_together(&wanted);
        }
        Ok(())
    }
}
