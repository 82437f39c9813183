//! Read-ahead for scans.

use crate::page::{self, Latched, Target};
use crate::tree::Tree;
use myriad_base::{PageId, Result};
use myriad_buffer::{BufferPool, SharedPage};
use smallvec::SmallVec;

/// Leaves that a scan reads between two calls of [`Tree::read_ahead`].
pub const READ_AHEAD_STEP: u32 = 32;
/// Leaves beyond the scan's place that are asked for each time.
const READ_AHEAD_LEAVES: usize = 2 * READ_AHEAD_STEP as usize;

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
}
