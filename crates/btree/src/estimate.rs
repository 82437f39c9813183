//! Estimates for the optimizer.

use crate::leaf::{Leaf, LeafShared};
use crate::page::{self, Latched, Target, Unlatched};
use crate::read_ahead::{Scan, Together};
use crate::tree::{Note, Step, Tree};
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{PageNo, Result};
use myriad_buffer::{BufferPool, OptimisticPage, SeenPage, SharedPage};
use smallvec::SmallVec;
use std::ops::Range;

/// Pages between the two ends of a range that are looked at to count exactly.
const EXACT_PAGES_MAX: u64 = 8;
/// Pages that a sample needs to learn how much one has.
const SAMPLED_PAGES: u64 = 4;
/// Pages looked at for a sample when only those in memory count.
const SAMPLE_LOOKS: u64 = 32;
/// Pages spread over a long range that tell how much the others have.
const SPREAD_PAGES: u32 = 4;
/// Entries of a page at an end of which some tell how large others are.
const SIZED_ENTRIES: usize = 32;
/// Fewer say less than a page of many.
const FEW_ENTRIES: usize = 4;
/// Entries that tell how large those are that they stand among.
const MEASURED_ENTRIES: usize = 8;
/// How often a range is looked at if the tree is changed just then.
const TRIES_MAX: usize = 4;

/// The way from the root to a leaf.
type Path = SmallVec<[Step; 8]>;

/// How closely a range of many pages is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Pages looked at on a level, spread over the range. An odd multiple of another number looks at the same ones, and more.
    pub pages: u32,
    /// Whether those that are not in memory are read.
    pub read: bool,
}

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
    /// Whether pages spread over the range were looked at, not just those at its ends.
    pub spread: bool,
}

/// The leaves of a range whose entries were counted: none if they were not, or if it is not certain that these are all. While
/// all of them are unchanged ([`BufferPool::is_unchanged`]) the count holds.
pub type SeenLeaves = SmallVec<[SeenPage; EXACT_PAGES_MAX as usize + 2]>;

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

/// What the pages of one level hold that were looked at.
#[derive(Clone, Copy, Default)]
struct Sample {
    /// Pages, and their room for entries in bytes.
    pages: u64,
    room: u64,
    /// Entries that tell how large others are, and the bytes that these take.
    entries: u64,
    bytes: u64,
    /// Pages that say how full others are, and the bytes of their room that are in use.
    typical: u64,
    used: u64,
    /// What pages spread over the range have, if enough of them were found: this counts then, and nothing else.
    spread: Option<Spread>,
}

/// What pages spread over a range hold, each weighted by how many it stands for; or what one holds.
#[derive(Clone, Copy, Default)]
struct Spread {
    pages: f64,
    entries: f64,
    bytes: f64,
}

impl Sample {
    /// Adds a page, all of whose entries are the index's.
    fn add(&mut self, p: &[u8]) {
        let used = self.add_fill(p);
        self.add_size(page::count(p), used);
    }

    /// Adds a page at an end of the range: entries from slot `at` on, or those `before` it, tell how large others are.
    fn add_end(&mut self, p: &[u8], own: Range<usize>, at: usize, before: bool) {
        self.add_fill(p);
        // Where there are next to none of them within the range, those beside it count, too.
        let sized = if before {
            let end = at.max(own.start + FEW_ENTRIES).min(own.end);
            end.saturating_sub(SIZED_ENTRIES).max(own.start)..end
        } else {
            let first = at.min(own.end.saturating_sub(FEW_ENTRIES)).max(own.start);
            first..own.end.min(first + SIZED_ENTRIES)
        };
        let (entries, bytes) = measured(p, sized);
        self.add_size(entries, bytes);
    }

    /// Adds the bytes of a page's entries. A page of small ones counts as much as one of large ones, unless it has next to none.
    fn add_size(&mut self, entries: usize, bytes: usize) {
        let counts_as = (entries * SIZED_ENTRIES / FEW_ENTRIES).min(SIZED_ENTRIES);
        self.entries += counts_as as u64;
        self.bytes += (bytes * counts_as / entries.max(1)) as u64;
    }

    /// Adds how full a page is; the bytes of its room that are in use.
    fn add_fill(&mut self, p: &[u8]) -> usize {
        let room = room(p);
        let used = room.saturating_sub(page::free_bytes(p));
        self.pages += 1;
        self.room += room as u64;
        // One that has less was left by deletions between neighbours that it could not be merged with. So these have more.
        if used * 4 >= room {
            self.typical += 1;
            self.used += used as u64;
        }
        used
    }

    /// Entries of pages that were not looked at. They are as full as the typical ones; a page that is four fifths full counts
    /// as one of these unless there are enough.
    fn entries_of(&self, pages: u64) -> u64 {
        if let Some(spread) = &self.spread {
            return (pages as f64 * spread.entries / spread.pages) as u64;
        }
        let (mut typical, mut used) = (self.typical, self.used);
        if typical < SAMPLED_PAGES {
            typical += 1;
            used += self.room * 4 / 5 / self.pages.max(1);
        }
        let entries = u128::from(pages) * u128::from(self.entries) * u128::from(used);
        (entries / u128::from(typical * self.bytes.max(1))) as u64
    }

    fn bytes_of(&self, entries: u64) -> u64 {
        if let Some(spread) = &self.spread {
            return (entries as f64 * spread.bytes / spread.entries.max(1.0)) as u64;
        }
        (u128::from(self.bytes) * u128::from(entries) / u128::from(self.entries.max(1))) as u64
    }
}

/// Bytes of a page for entries and their slots.
fn room(p: &[u8]) -> usize {
    page::capacity(p.len(), page::low_stored(p), page::high_stored(p))
}

/// The slots of a page that belong to the index that `key` is of. A leaf of a shared tree may have others', too.
fn slots_of_index(p: &[u8], key: &[u8]) -> Range<usize> {
    let count = page::count(p);
    let place = |key: &[u8]| page::find(p, key).unwrap_or_else(|slot| slot);
    match key.first_chunk::<4>() {
        Some(id) if page::prefix_len(p) < id.len() => {
            let next = u32::from_be_bytes(*id).checked_add(1);
            place(id)..next.map_or(count, |next| place(&next.to_be_bytes()))
        }
        _ => 0..count,
    }
}

/// How many entries these are, and their bytes by those of some.
fn measured(p: &[u8], slots: Range<usize>) -> (usize, usize) {
    let entries = slots.len();
    let some = slots.step_by(entries.div_ceil(MEASURED_ENTRIES).max(1));
    let count = some.len();
    let bytes: usize = some.map(|slot| page::slot_entry_bytes(p, slot) + page::SLOT_BYTES).sum();
    (entries, bytes * entries / count.max(1))
}

/// A range from one slot of a leaf to another.
fn within(leaf: &LeafShared<'_>, from: usize, to: usize) -> RangeEstimate {
    let entries = to.saturating_sub(from);
    let entry_bytes = if entries == leaf.len() {
        room(leaf.bytes()).saturating_sub(page::free_bytes(leaf.bytes()))
    } else {
        // The others may be another index's.
        measured(leaf.bytes(), from..to).1
    };
    let (entries, entry_bytes) = (entries as u64, entry_bytes as u64);
    RangeEstimate { entries, leaf_pages: 1, entry_bytes, exact: true, spread: false }
}

/// The steps of a way.
struct Noted<'k> {
    root: PageNo,
    steps: Path,
    range: Option<Together<'k>>,
}

impl Note for Noted<'_> {
    fn step(&mut self, step: Step) {
        if step.page == self.root || step.is_promoted_root() {
            self.steps.clear();
        }
        if !step.is_promoted_root() {
            self.steps.push(step);
        }
    }

    fn arriving(&mut self, tree: &Tree, pool: &BufferPool, parent: &Unlatched<'_>, at: usize) {
        if let Some(range) = &mut self.range {
            range.arriving(tree, pool, parent, at);
        }
    }
}

impl Tree {
    /// The way to `target`, root first (of a promoted index its own), and the leaf at its end.
    fn path<'p>(&self, pool: &'p BufferPool, target: Target<'_>) -> Result<(Path, LeafShared<'p>)> {
        self.path_of_range(pool, target, None)
    }

    /// As [`Tree::path`], which wants the pages of a short range of which it is the beginning together.
    fn path_of_range<'p>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        range: Option<Together<'_>>,
    ) -> Result<(Path, LeafShared<'p>)> {
        let mut noted = Noted { root: self.root, steps: Path::new(), range };
        let leaf = LeafShared::new(self.leaf_noting(pool, target, &mut noted)?);
        let mut steps = noted.steps;
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
        self.estimate_looking(pool, lo, hi, Looks { pages: SPREAD_PAGES, read: false })
    }

    /// As [`Tree::estimate_range`], more or less closely.
    ///
    /// # Errors
    /// The pool's.
    pub fn estimate_looking(&self, pool: &BufferPool, lo: &[u8], hi: &[u8], looks: Looks) -> Result<RangeEstimate> {
        self.estimate_seeing(pool, lo, hi, looks, &mut SeenLeaves::new())
    }

    /// As [`Tree::estimate_looking`]; `seen`, empty, is given the leaves that were counted.
    ///
    /// # Errors
    /// The pool's.
    pub fn estimate_seeing(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        looks: Looks,
        seen: &mut SeenLeaves,
    ) -> Result<RangeEstimate> {
        let mut tries = 1;
        loop {
            let (estimate, agree) = self.estimate_once(pool, lo, hi, looks, seen)?;
            if agree || tries == TRIES_MAX {
                return Ok(estimate);
            }
            tries += 1;
        }
    }

    /// As [`Tree::estimate_seeing`]; and whether the ways to the two ends agree, which are of different moments.
    fn estimate_once(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        looks: Looks,
        seen: &mut SeenLeaves,
    ) -> Result<(RangeEstimate, bool)> {
        if !hi.is_empty() && lo >= hi {
            return Ok((RangeEstimate { exact: true, ..RangeEstimate::default() }, true));
        }
        let range = (!hi.is_empty()).then(|| Together::all(Scan::up_to(Target::Before(hi))));
        let (low_path, leaf) = self.path_of_range(pool, Target::At(lo), range)?;
        let low_end = low_path[low_path.len() - 1];
        if !hi.is_empty() && (leaf.is_last() || page::compare(hi, leaf.high_fence()).is_le()) {
            let high_at = leaf.find(hi).unwrap_or_else(|slot| slot);
            seen.push(leaf.seen());
            return Ok((within(&leaf, low_end.at, high_at), true));
        }
        let mut sample = Sample::default();
        sample.add_end(leaf.bytes(), slots_of_index(leaf.bytes(), lo), low_end.at, false);
        let high_fence = leaf.high_fence().to_vec();
        seen.push(leaf.seen());
        drop(leaf);
        // The leaf with the keys just below `hi`, so that a range that ends at a fence does not touch one more.
        let high_target = if hi.is_empty() { Target::Last } else { Target::Before(hi) };
        // Both ways from the same root. A range that begins in a promoted index ends there.
        let tree = Tree { space: self.space, root: low_path[0].page };
        let (high_path, leaf) = tree.path(pool, high_target)?;
        let high_end = high_path[high_path.len() - 1];
        if low_end.page == high_end.page {
            seen.clear();
            return Ok((within(&leaf, low_end.at, high_end.at), false));
        }
        sample.add_end(leaf.bytes(), slots_of_index(leaf.bytes(), lo), high_end.at, true);
        let are_neighbours = page::compare(leaf.low_fence(), &high_fence).is_eq();
        seen.push(leaf.seen());
        drop(leaf);
        let ends = (low_end.of.saturating_sub(low_end.at) + high_end.at) as u64;
        let between = tree.leaves_between(pool, &low_path, &high_path, looks)?;
        tree.spread(pool, 0, (&low_path, &high_path), between, looks, &mut sample)?;
        let (inner, exact) = tree.between(pool, 0, high_fence, high_end.page, between, &mut sample, seen)?;
        let agree = low_path.len() == high_path.len() && (between > 0 || are_neighbours);
        if !exact || !agree {
            seen.clear();
        }
        let entries = ends + inner;
        let entry_bytes = sample.bytes_of(entries);
        let spread = sample.spread.is_some();
        Ok((RangeEstimate { entries, leaf_pages: between + 2, entry_bytes, exact, spread }, agree))
    }

    /// Leaves strictly between the leaves of two paths, or nearly as many.
    fn leaves_between(&self, pool: &BufferPool, low: &[Step], high: &[Step], looks: Looks) -> Result<u64> {
        // The root changed its level between the two descents: nothing to compare; the sample decides.
        if low.len() != high.len() {
            return Ok(EXACT_PAGES_MAX + 1);
        }
        let leaf_level = low.len() - 1;
        // Of the level that is looked at: the pages between the two paths.
        let mut pages: u64 = 0;
        let mut apart = false;
        for at in 0..leaf_level {
            let (l, h) = (low[at], high[at]);
            if apart || l.page != h.page {
                apart = true;
                let children = match pages {
                    0 => 0,
                    pages => self.children(pool, (leaf_level - at) as u8, (&low[..=at], &high[..=at]), pages, looks)?,
                };
                let beside = (l.of - l.at - 1) + h.at;
                pages = children.saturating_add(beside as u64);
            } else if l.at != h.at {
                apart = true;
                pages = (h.at as u64).saturating_sub(l.at as u64 + 1);
            }
        }
        Ok(pages)
    }

    /// Children of the `between` inner pages or so between the pages of one level at which two ways end.
    fn children(
        &self,
        pool: &BufferPool,
        level: u8,
        ends: (&[Step], &[Step]),
        between: u64,
        looks: Looks,
    ) -> Result<u64> {
        let (low, high) = (ends.0[ends.0.len() - 1].page, ends.1[ends.1.len() - 1].page);
        let mut sample = Sample::default();
        let mut at = Vec::new();
        for page in [high, low] {
            // In memory, as both were looked at a moment ago; but anything may be on them now.
            let Some(p) = pool.fix_shared(self.id(page)).ok().filter(|p| is_of_level(p, level)) else {
                return Ok(between);
            };
            sample.add(&p);
            at = page::high_fence(&p).to_vec();
        }
        self.spread(pool, level, ends, between, looks, &mut sample)?;
        let seen = &mut SeenLeaves::new();
        let (separators, _) = self.between(pool, level, at, high, between, &mut sample, seen)?;
        Ok(separators.saturating_add(between))
    }

    /// Looks at pages of a level that are spread over the `between` or so between the two at which these ways end, if those
    /// are too many to count their entries.
    fn spread(
        &self,
        pool: &BufferPool,
        level: u8,
        (low, high): (&[Step], &[Step]),
        between: u64,
        looks: Looks,
        sample: &mut Sample,
    ) -> Result<()> {
        // Where the ways part. They do not if the root changed its level between the two descents.
        let top = low.iter().zip(high).position(|(l, h)| l.at != h.at || l.page != h.page).unwrap_or(low.len());
        if between <= EXACT_PAGES_MAX
            || low.len() != high.len()
            || top + 1 >= low.len()
            || low[top].page != high[top].page
        {
            return Ok(());
        }
        let (from, to) = (place(&low[top..], 1.0), place(&high[top..], 0.0));
        let level_of_top = level + (low.len() - 1 - top) as u8;
        // It may have been merged away since the ways led through it; a page of a table in memory is gone then.
        let Ok(page) = pool.optimistic(self.id(low[top].page)) else { return Ok(()) };
        let top = (page, level_of_top);
        let (mut spread, mut found) = (Spread::default(), 0);
        for i in 0..looks.pages {
            let x = from + (to - from) * (f64::from(i) + 0.5) / f64::from(looks.pages);
            let Some(page) = self.page_at(pool, top, x, level, looks.read)? else { continue };
            spread.pages += page.pages;
            spread.entries += page.pages * page.entries;
            spread.bytes += page.pages * page.bytes;
            found += 1;
        }
        if found > 0 && found * 2 >= looks.pages {
            sample.spread = Some(spread);
        }
        Ok(())
    }

    /// What the page of `level` has that is at `x`, from 0 to 1, of what is under page `top` (with its level when a way led
    /// through it), all children of a page being equally wide; and how many pages there would be if all on the way had as many
    /// siblings. `None` if it is not in memory and shall not be read, or if the tree has changed.
    ///
    /// Nothing is latched, and nothing stays in memory for it: whoever asks may not want these pages.
    fn page_at(
        &self,
        pool: &BufferPool,
        top: (OptimisticPage<'_>, u8),
        mut x: f64,
        level: u8,
        read: bool,
    ) -> Result<Option<Spread>> {
        let ((mut page, mut here), mut pages) = (top, 1.0);
        loop {
            let [kind, level_found, flags, _] = page.u32(OFF_KIND).to_le_bytes();
            let count = page.u16(page::OFF_COUNT);
            let view = Unlatched { page, page_size: pool.page_size() };
            let bytes = page::live_bytes(&view);
            let of = f64::from(count) + 1.0;
            x *= of;
            let at = (x as usize).min(usize::from(count));
            x -= at as f64;
            let child = self.id(page::routed_child(&view, at));
            let is_promoted = flags & page::ROOT != 0 && page.id() != top.0.id();
            if !page.validate() || kind != PageKind::Index as u8 || level_found != here || is_promoted {
                return Ok(None);
            }
            if here == level {
                return Ok(Some(Spread { pages, entries: f64::from(count), bytes: bytes as f64 }));
            }
            pages *= of;
            here -= 1;
            let next = match pool.glance(child) {
                None if !read => return Ok(None),
                None => pool.optimistic(child),
                Some(next) => Ok(next),
            };
            if !page.validate() {
                return Ok(None);
            }
            page = next?;
        }
    }

    /// Entries of the `between` pages or so of a level from the one at `at` up to page `last`, by those in memory, and whether
    /// they were counted; then `seen` is given them. `sample` is what the two ends have.
    #[allow(clippy::too_many_arguments)]
    fn between(
        &self,
        pool: &BufferPool,
        level: u8,
        mut at: Vec<u8>,
        last: PageNo,
        between: u64,
        sample: &mut Sample,
        seen: &mut SeenLeaves,
    ) -> Result<(u64, bool)> {
        if between == 0 {
            return Ok((0, true));
        }
        if sample.spread.is_some() {
            return Ok((sample.entries_of(between), false));
        }
        let few = between <= EXACT_PAGES_MAX;
        let (wanted, looks) = if few { (between, 2 * EXACT_PAGES_MAX) } else { (SAMPLED_PAGES, SAMPLE_LOOKS) };
        let (mut looked, mut counted, mut entries) = (0, 0, 0);
        'pages: while let Some(parent) = self.at_level::<SharedPage<'_>>(pool, Target::At(&at), level + 1)? {
            let first = page::route(&Latched(&parent), Target::At(&at));
            for child in first..=page::count(&parent) {
                let id = self.id(page::child(&parent, child));
                if id.page == last && few && counted == looked {
                    return Ok((entries, true));
                }
                if looked == looks || counted == wanted || id.page == last {
                    break 'pages;
                }
                looked += 1;
                // While its parent is latched it stays what it is.
                let found = match pool.resident_shared(id) {
                    // Neither end has an entry to tell how large one is: whoever reads the range reads on, too.
                    None if sample.entries == 0 && looked == 1 => pool.fix_shared(id).ok(),
                    found => found,
                };
                if let Some(p) = found.filter(|p| is_of_level(p, level)) {
                    sample.add(&p);
                    if few {
                        seen.push(p.seen());
                    }
                    entries += page::count(&p) as u64;
                    counted += 1;
                }
            }
            at.clear();
            at.extend_from_slice(page::high_fence(&parent));
            // The next parent may have to be read, which is worth it only where this one led to next to nothing.
            if at.is_empty() || !few && looked >= SAMPLED_PAGES {
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
        sample.add(leaf.bytes());
        drop(leaf);
        let (last, leaf) = self.path(pool, Target::Last)?;
        sample.add(leaf.bytes());
        drop(leaf);
        let mut paths = vec![first, last];
        for key in self.sample_leaves(pool, &[], &[], SAMPLED_PAGES as usize)? {
            let (path, leaf) = self.path(pool, Target::At(&key))?;
            sample.add(leaf.bytes());
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
        let mut keys = self.dividing_keys(pool, lo, hi, pages)?.1;
        let (n, wanted) = (keys.len(), pages.max(1));
        if n > wanted {
            keys = (0..wanted).map(|i| std::mem::take(&mut keys[i * n / wanted])).collect();
        }
        Ok(keys)
    }

    /// `lo` and the separators in `[lo, hi)` (`hi` empty: to the end) of the highest level that has `keys` with it, or of
    /// level 1; and that level, 0 where the root is a leaf.
    ///
    /// # Errors
    /// The pool's.
    pub fn dividing_keys(&self, pool: &BufferPool, lo: &[u8], hi: &[u8], keys: usize) -> Result<(u8, Vec<Vec<u8>>)> {
        let owner = self.owner(pool, lo)?;
        if owner != *self {
            return owner.dividing_keys(pool, lo, hi, keys);
        }
        let mut at = 1 + {
            let root = pool.fix_shared(self.root_id())?;
            page::level(&root)
        };
        let mut found: Vec<Vec<u8>> = vec![lo.to_vec()];
        // Each level has the separators of the one above and more; it has about as many pages as that has separators, so
        // the pages read stay in proportion to the keys wanted.
        while at > 1 && found.len() < keys {
            at -= 1;
            self.separators(pool, at, lo, hi, &mut found)?;
        }
        Ok((if found.len() > 1 { at } else { 0 }, found))
    }

    /// `start`, what further pages below a page of `level`, the one on the way to `start`, begin with, and what is behind the
    /// page if it is within `hi` (empty: no bound).
    ///
    /// # Errors
    /// The pool's.
    pub fn separators_beside(&self, pool: &BufferPool, level: u8, start: &[u8], hi: &[u8]) -> Result<Vec<Vec<u8>>> {
        let owner = self.owner(pool, start)?;
        if owner != *self {
            return owner.separators_beside(pool, level, start, hi);
        }
        let mut keys = vec![start.to_vec()];
        let Some(latched) = self.at_level::<SharedPage<'_>>(pool, Target::At(start), level)? else { return Ok(keys) };
        let within = |key: &[u8]| hi.is_empty() || key < hi;
        let slots = (0..page::count(&latched)).map(|slot| page::key(&latched, slot));
        keys.extend(slots.filter(|key| key.as_slice() > start && within(key)));
        let behind = page::high_fence(&latched);
        if !behind.is_empty() && within(behind) {
            keys.push(behind.to_vec());
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

/// Where, from 0 to 1, the page at which a way ends begins (`plus` 0) or ends (1), all children of a page being equally wide.
fn place(way: &[Step], plus: f64) -> f64 {
    let inner = &way[..way.len() - 1];
    inner.iter().rev().fold(plus, |place, step| (step.at as f64 + place) / step.of as f64)
}

/// Whether a page that is in memory is one of a tree and of this level; the root of another index may stand in for one.
fn is_of_level(p: &[u8], level: u8) -> bool {
    p[OFF_KIND] == PageKind::Index as u8 && page::level(p) == level && !page::is_promoted_root(p)
}
