//! Estimates for the optimizer.

use crate::leaf::{Leaf, LeafShared};
use crate::page::{self, Latched, Target};
use crate::tree::{Step, Tree};
use myriad_base::{PageNo, Result};
use myriad_buffer::{BufferPool, SharedPage};
use smallvec::SmallVec;

/// Leaves between the two ends of a range that are looked at to count exactly.
const EXACT_LEAVES_MAX: u64 = 8;
/// Leaves that a sample needs to learn how many entries one has.
const SAMPLED_LEAVES: usize = 4;
/// Leaves looked at for a sample when only those in memory count.
const SAMPLE_LOOKS: u64 = 32;

/// The way from the root to a leaf.
type Path = SmallVec<[Step; 8]>;

/// What a key range holds, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEstimate {
    /// Entries in the range (delete-marked ones too).
    pub entries: u64,
    /// Leaves the range touches.
    pub leaf_pages: u64,
    /// Bytes of these entries on their leaves.
    pub entry_bytes: u64,
    /// Whether `entries` was counted rather than estimated.
    pub exact: bool,
}

/// A tree's shape, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Levels; 1 for a root that is a leaf.
    pub height: u32,
    /// Leaves.
    pub leaf_pages: u64,
    /// Inner pages.
    pub inner_pages: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes that entries use in leaves.
    pub entry_bytes: u64,
}

/// Running means of leaves.
#[derive(Clone, Copy, Default)]
struct Sample {
    leaves: u64,
    entries: u64,
    bytes: u64,
}

impl Sample {
    fn add(&mut self, leaf: &LeafShared<'_>) {
        self.leaves += 1;
        self.entries += leaf.len() as u64;
        self.bytes += leaf.used_bytes() as u64;
    }

    fn entries_of(&self, leaves: u64) -> u64 {
        self.entries * leaves / self.leaves.max(1)
    }

    fn bytes_of(&self, entries: u64) -> u64 {
        if self.entries == 0 {
            0
        } else {
            (u128::from(self.bytes) * u128::from(entries) / u128::from(self.entries)) as u64
        }
    }

    /// A range from one slot of a leaf to another.
    fn one_leaf(&self, from: usize, to: usize) -> RangeEstimate {
        let entries = (to as u64).saturating_sub(from as u64);
        RangeEstimate { entries, leaf_pages: 1, entry_bytes: self.bytes_of(entries), exact: true }
    }
}

impl Tree {
    /// The way to `target`, root first (of a promoted index its own), and the leaf at its end.
    fn path<'p>(&self, pool: &'p BufferPool, target: Target<'_>) -> Result<(Path, LeafShared<'p>)> {
        let mut steps = Path::new();
        let found = self.at_level_noting::<SharedPage<'p>>(pool, target, 0, &mut |step| {
            if step.page == self.root || step.is_promoted_root() {
                steps.clear();
            }
            if !step.is_promoted_root() {
                steps.push(step);
            }
        })?;
        let leaf = LeafShared::new(found.expect("every tree has level 0"));
        if leaf.page_id() == self.root_id() || page::is_promoted_root(leaf.bytes()) {
            steps.clear();
        }
        let at = match target {
            Target::At(key) | Target::Before(key) => leaf.find(key).unwrap_or_else(|slot| slot),
            Target::Last => leaf.len(),
        };
        steps.push(Step { page: leaf.page_id().page, at, of: leaf.len() });
        Ok((steps, leaf))
    }

    /// Entries with `lo <= key < hi` (`hi` empty: to the end), keys of one index or of a whole tree: two descents. Of the
    /// leaves between those in memory are looked at, since whoever asks may want the first few entries, or none after all.
    /// Exact when the ends are close and all leaves between are in memory.
    ///
    /// # Errors
    /// The pool's.
    pub fn estimate_range(&self, pool: &BufferPool, lo: &[u8], hi: &[u8]) -> Result<RangeEstimate> {
        if !hi.is_empty() && lo >= hi {
            return Ok(RangeEstimate { exact: true, ..RangeEstimate::default() });
        }
        let mut sample = Sample::default();
        let (low_path, leaf) = self.path(pool, Target::At(lo))?;
        sample.add(&leaf);
        let low_end = low_path[low_path.len() - 1];
        if !hi.is_empty() && (leaf.is_last() || hi <= leaf.high_fence()) {
            let high_at = leaf.find(hi).unwrap_or_else(|slot| slot);
            return Ok(sample.one_leaf(low_end.at, high_at));
        }
        let high_fence = leaf.high_fence().to_vec();
        drop(leaf);
        // The leaf with the keys just below `hi`, so that a range that ends at a fence does not touch one more.
        let high_target = if hi.is_empty() { Target::Last } else { Target::Before(hi) };
        // Both ways from the same root. A range that begins in a promoted index ends there.
        let tree = Tree { space: self.space, root: low_path[0].page };
        let (high_path, leaf) = tree.path(pool, high_target)?;
        // The last leaf of all may be all but empty.
        if !leaf.is_last() {
            sample.add(&leaf);
        }
        drop(leaf);
        let high_end = high_path[high_path.len() - 1];
        if low_end.page == high_end.page {
            return Ok(sample.one_leaf(low_end.at, high_end.at));
        }
        let ends = (low_end.of.saturating_sub(low_end.at) + high_end.at) as u64;
        let between = leaves_between(&low_path, &high_path);
        let (inner, exact) =
            if between == 0 { (0, true) } else { tree.between(pool, high_fence, high_end.page, between, &mut sample)? };
        let entries = ends + inner;
        let entry_bytes = sample.bytes_of(entries);
        Ok(RangeEstimate { entries, leaf_pages: between + 2, entry_bytes, exact })
    }

    /// Entries of the `between` leaves or so from the one at `at` up to page `last`, by those in memory, and whether they
    /// were counted.
    fn between(
        &self,
        pool: &BufferPool,
        mut at: Vec<u8>,
        last: PageNo,
        between: u64,
        sample: &mut Sample,
    ) -> Result<(u64, bool)> {
        let few = between <= EXACT_LEAVES_MAX;
        let (wanted, looks) = if few { (between, 2 * EXACT_LEAVES_MAX) } else { (SAMPLED_LEAVES as u64, SAMPLE_LOOKS) };
        let (mut looked, mut counted, mut entries) = (0, 0, 0);
        'leaves: while let Some(parent) = self.at_level::<SharedPage<'_>>(pool, Target::At(&at), 1)? {
            let first = page::route(&Latched(&parent), Target::At(&at));
            for child in first..=page::count(&parent) {
                let id = self.id(page::child(&parent, child));
                if id.page == last && few && counted == looked {
                    return Ok((entries, true));
                }
                if looked == looks || counted == wanted || id.page == last {
                    break 'leaves;
                }
                looked += 1;
                // While its parent is latched it stays what it is.
                if let Some(leaf) = pool.resident_shared(id) {
                    let leaf = LeafShared::new(leaf);
                    sample.add(&leaf);
                    entries += leaf.len() as u64;
                    counted += 1;
                }
            }
            at.clear();
            at.extend_from_slice(page::high_fence(&parent));
            if at.is_empty() {
                break;
            }
        }
        Ok((entries + sample.entries_of(between.saturating_sub(counted)), false))
    }

    /// The tree's shape from its root and a sample of paths.
    ///
    /// # Errors
    /// The pool's.
    pub fn stats(&self, pool: &BufferPool) -> Result<TreeStats> {
        let mut sample = Sample::default();
        let (first, leaf) = self.path(pool, Target::At(&[]))?;
        let height = first.len();
        sample.add(&leaf);
        drop(leaf);
        let (last, leaf) = self.path(pool, Target::Last)?;
        sample.add(&leaf);
        drop(leaf);
        let mut paths = vec![first, last];
        for key in self.sample_leaves(pool, &[], &[], SAMPLED_LEAVES)? {
            let (path, leaf) = self.path(pool, Target::At(&key))?;
            sample.add(&leaf);
            drop(leaf);
            paths.push(path);
        }
        paths.retain(|p| p.len() == height);
        // Pages of each level: those above times the mean number of children.
        let (mut pages, mut inner_pages) = (1u64, 0u64);
        for level in 0..height - 1 {
            inner_pages += pages;
            let children: u64 = paths.iter().map(|p| p[level].of as u64).sum();
            pages = (pages * children / paths.len().max(1) as u64).max(1);
        }
        let entries = sample.entries_of(pages);
        let (height, entry_bytes) = (height as u32, sample.bytes_of(entries));
        Ok(TreeStats { height, leaf_pages: pages, inner_pages, entries, entry_bytes })
    }

    /// Keys at which up to `pages` leaves begin that are spread evenly over `[lo, hi)` (`hi` empty: to the end), in key
    /// order: where to sample an index. The first is `lo`.
    ///
    /// # Errors
    /// The pool's.
    pub fn sample_leaves(&self, pool: &BufferPool, lo: &[u8], hi: &[u8], pages: usize) -> Result<Vec<Vec<u8>>> {
        let owner = self.owner(pool, lo)?;
        if owner != *self {
            return owner.sample_leaves(pool, lo, hi, pages);
        }
        let top = {
            let root = pool.fix_shared(self.root_id())?;
            page::level(&root)
        };
        let mut keys: Vec<Vec<u8>> = vec![lo.to_vec()];
        // Each level has the separators of the one above and more; it has about as many pages as that has separators, so
        // the pages read stay in proportion to the pages wanted.
        for level in (1..=top).rev() {
            if keys.len() >= pages {
                break;
            }
            self.separators(pool, level, lo, hi, &mut keys)?;
        }
        let (n, wanted) = (keys.len(), pages.max(1));
        if n > wanted {
            keys = (0..wanted).map(|i| std::mem::take(&mut keys[i * n / wanted])).collect();
        }
        Ok(keys)
    }

    /// `lo` and all separators of a level within the range.
    fn separators(&self, pool: &BufferPool, level: u8, lo: &[u8], hi: &[u8], keys: &mut Vec<Vec<u8>>) -> Result<()> {
        keys.clear();
        keys.push(lo.to_vec());
        let mut at = lo.to_vec();
        loop {
            let Some(latched) = self.at_level::<SharedPage<'_>>(pool, Target::At(&at), level)? else { return Ok(()) };
            // The end of a promoted index: its last fence may be a shorter form of `hi`.
            if !page::covers(&latched, &at) {
                keys.pop();
                return Ok(());
            }
            for slot in 0..page::count(&latched) {
                let key = page::key(&latched, slot);
                if !hi.is_empty() && &key[..] >= hi {
                    return Ok(());
                }
                if key.as_slice() > lo {
                    keys.push(key);
                }
            }
            let high = page::high_fence(&latched);
            if high.is_empty() || !hi.is_empty() && high >= hi {
                return Ok(());
            }
            at = high.to_vec();
            keys.push(at.clone());
        }
    }
}

/// Leaves strictly between the leaves of two paths.
fn leaves_between(low: &[Step], high: &[Step]) -> u64 {
    // The root changed its level between the two descents: nothing to compare; the sample decides.
    if low.len() != high.len() {
        return EXACT_LEAVES_MAX + 1;
    }
    let leaf_level = low.len() - 1;
    let mut pages: u64 = 0;
    let mut apart = false;
    for level in 0..leaf_level {
        let (l, h) = (low[level], high[level]);
        if apart || l.page != h.page {
            apart = true;
            // The children of the pages between, and those beside the two paths.
            let mean = (l.of + h.of) as u64 / 2;
            let beside = (l.of - l.at - 1) + h.at;
            pages = pages.saturating_mul(mean).saturating_add(beside as u64);
        } else if l.at != h.at {
            apart = true;
            pages = (h.at as u64).saturating_sub(l.at as u64 + 1);
        }
    }
    pages
}
