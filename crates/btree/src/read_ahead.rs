//! Reading leaves before their turn comes: those of a short range together, those of a long scan ahead.

use crate::leaf::LeafShared;
use crate::page::{self, Latched, PageRead, Target, Unlatched};
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

/// The direction of a scan, and where its last leaf is found.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'k> {
    down: bool,
    end: Target<'k>,
}

impl<'k> Scan<'k> {
    /// Upwards, to the keys that begin with `last`; empty: to the tree's last.
    pub fn up(last: &'k [u8]) -> Scan<'k> {
        Scan::up_to(if last.is_empty() { Target::Last } else { Target::At(last) })
    }

    pub(crate) fn up_to(end: Target<'k>) -> Scan<'k> {
        Scan { down: false, end }
    }

    /// Downwards, to the key `first`; empty: to the tree's first.
    pub fn down(first: &'k [u8]) -> Scan<'k> {
        Scan { down: true, end: Target::At(first) }
    }

    /// Where the next leaf is found when everything on this side of `key` has been read.
    fn next<'t>(self, key: &'t [u8]) -> Target<'t> {
        if self.down {
            Target::Before(key)
        } else {
            Target::At(key)
        }
    }

    /// The children of an inner page from `at` to the one on the way to the scan's end.
    fn children(self, parent: &impl PageRead, at: usize) -> impl ExactSizeIterator<Item = usize> {
        let end = page::route(parent, self.end);
        let (from, to) = if self.down { (end, at) } else { (at, end) };
        (0..(to + 1).saturating_sub(from)).map(move |i| if self.down { at - i } else { at + i })
    }
}

/// The rest of a range that begins with the leaf about to be fixed. If that is not in memory, it is read together with those
/// behind it, as far as their parent names them: a wait for the device instead of one for each.
pub(crate) struct Together<'k> {
    scan: Scan<'k>,
    leaves_max: usize,
    /// Of a longer range the first leaves are read, or none.
    part: bool,
}

impl<'k> Together<'k> {
    /// All of a range, if it is short.
    pub fn all(scan: Scan<'k>) -> Together<'k> {
        Together { scan, leaves_max: SHORT_RANGE_LEAVES, part: false }
    }

    /// As much of a range as is read at a time.
    pub fn part(scan: Scan<'k>) -> Together<'k> {
        Together { scan, leaves_max: LEAVES_TOGETHER, part: true }
    }

    #[cold]
    fn read(&self, tree: &Tree, pool: &BufferPool, parent: &Unlatched<'_>, at: usize) {
        let wanted = self.scan.children(parent, at);
        if wanted.len() < 2 || wanted.len() > self.leaves_max && !self.part {
            return;
        }
        let leaves: SmallVec<[PageId; LEAVES_TOGETHER]> =
            wanted.take(self.leaves_max).map(|child| tree.id(page::routed_child(parent, child))).collect();
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
    /// The next leaf of a scan that has read everything on this side of `key`: as [`Tree::seek`] upwards, as
    /// [`Tree::seek_before`] downwards. `begins`: with this leaf, so that of a long range only this one is surely wanted.
    ///
    /// # Errors
    /// As [`Tree::seek`].
    pub fn seek_range<'p>(
        &self,
        pool: &'p BufferPool,
        key: &[u8],
        scan: Scan<'_>,
        begins: bool,
    ) -> Result<LeafShared<'p>> {
        let mut together = if begins { Together::all(scan) } else { Together::part(scan) };
        Ok(LeafShared::new(self.leaf_noting(pool, scan.next(key), &mut together)?))
    }

    /// Starts to read those leaves of a scan behind the one that [`Tree::seek_range`] would give that are not in memory, as
    /// far as its parent names them. The caller holds no latch.
    ///
    /// # Errors
    /// Those of reading inner pages; a leaf's are left to whoever wants it.
    pub fn read_ahead(&self, pool: &BufferPool, key: &[u8], scan: Scan<'_>) -> Result<()> {
        let next = scan.next(key);
        let Some(parent) = self.at_level::<SharedPage<'_>>(pool, next, 1)? else { return Ok(()) };
        let view = Latched(&parent);
        let mut wanted: SmallVec<[PageId; READ_AHEAD_LEAVES]> = scan
            .children(&view, page::route(&view, next))
            .skip(1)
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
