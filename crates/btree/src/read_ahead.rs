//! Reading leaves before their turn comes: those of a short range together, those of a long scan ahead.

use crate::leaf::LeafShared;
use crate::page::{self, Latched, Target, Unlatched};
use crate::tree::{Note, Step, Tree};
use myriad_base::{PageId, Result};
use myriad_buffer::{BufferPool, SharedPage};
use smallvec::SmallVec;

/// Leaves that a scan reads between two calls of [`Tree::read_ahead`].
pub const READ_AHEAD_STEP: u32 = 32;
/// Leaves beyond the scan's place that are asked for each time.
const READ_AHEAD_LEAVES: usize = 2 * READ_AHEAD_STEP as usize;
/// Leaves of a range that are read together before it is known whether all of it will be wanted. A longer one may be meant
/// for its first rows (LIMIT).
const SHORT_RANGE_LEAVES: usize = 4;
/// Leaves read together of a range that goes on.
const LEAVES_TOGETHER: usize = 8;

/// The rest of a range that begins with the leaf about to be fixed. If that is not in memory, it is read together with those
/// behind it, as far as their parent names them: a wait for the device instead of one for each.
pub(crate) struct Together<'k> {
    /// To the range's last leaf.
    last: Target<'k>,
    leaves_max: usize,
    /// Of a longer range the first leaves are read, or none.
    part: bool,
}

impl<'k> Together<'k> {
    /// All of a range, if it is short.
    pub fn all(last: Target<'k>) -> Together<'k> {
        Together { last, leaves_max: SHORT_RANGE_LEAVES, part: false }
    }

    /// As much of a range as is read at a time.
    pub fn part(last: Target<'k>) -> Together<'k> {
        Together { last, leaves_max: LEAVES_TOGETHER, part: true }
    }

    #[cold]
    fn read(&self, tree: &Tree, pool: &BufferPool, parent: &Unlatched<'_>, at: usize) {
        let wanted = (page::route(parent, self.last) + 1).saturating_sub(at);
        if wanted < 2 || wanted > self.leaves_max && !self.part {
            return;
        }
        let leaves: SmallVec<[PageId; LEAVES_TOGETHER]> =
            (at..at + wanted.min(self.leaves_max)).map(|child| tree.id(page::routed_child(parent, child))).collect();
        if parent.page.validate() {
            pool.read_together(&leaves);
        }
    }
}

impl Note for Together<'_> {
    #[inline]
    fn step(&mut self, _: Step) {}

    #[inline]
    fn arriving(&mut self, tree: &Tree, pool: &BufferPool, parent: &Unlatched<'_>, at: usize) {
        let leaf = tree.id(page::routed_child(parent, at));
        if parent.page.validate() && !pool.is_resident(leaf) {
            self.read(tree, pool, parent, at);
        }
    }
}

impl Tree {
    /// As [`Tree::seek`], for a scan of the keys up to those that begin with `last`. `begins`: with this leaf, so that of a
    /// long range only this one is surely wanted.
    ///
    /// # Errors
    /// As [`Tree::seek`].
    pub fn seek_range<'p>(
        &self,
        pool: &'p BufferPool,
        key: &[u8],
        last: &[u8],
        begins: bool,
    ) -> Result<LeafShared<'p>> {
        let last = Target::At(last);
        let mut together = if begins { Together::all(last) } else { Together::part(last) };
        match self.at_level_noting(pool, Target::At(key), 0, &mut together)? {
            Some(leaf) => Ok(LeafShared::new(leaf)),
            None => unreachable!("every tree has level 0"),
        }
    }

    /// Starts to read the leaves behind the one that covers `key`, up to the one that covers `last` (empty: the last), that
    /// are not in memory, as far as its parent names them. The caller holds no latch.
    ///
    /// # Errors
    /// Those of reading inner pages; a leaf's are left to whoever wants it.
    pub fn read_ahead(&self, pool: &BufferPool, key: &[u8], last: &[u8]) -> Result<()> {
        let Some(parent) = self.at_level::<SharedPage<'_>>(pool, Target::At(key), 1)? else { return Ok(()) };
        let at = page::route(&Latched(&parent), Target::At(key));
        let end = if last.is_empty() { Target::Last } else { Target::At(last) };
        let mut wanted: SmallVec<[PageId; READ_AHEAD_LEAVES]> = (at + 1..=page::route(&Latched(&parent), end))
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
