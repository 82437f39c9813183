//! Table statistics and samples, from the trees themselves.

use crate::engine::Engine;
use crate::share::TableShare;
use crate::table::{Detail, TableStats};
use myriad_base::latch::HybridLatch;
use myriad_base::{IndexId, PageId, Result};
use myriad_btree::overflow::bytes_per_page;
use myriad_btree::{Leaf, LeafShared, Looks, RangeEstimate, SeenLeaves};
use myriad_buffer::{BufferPool, FrameNo, SeenPage};
use myriad_txn::value::{self, Entry};
use myriad_txn::Index;
use parking_lot::Mutex;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A table's statistics, kept because the optimizer asks at every statement. They outlive the [`TableShare`], see
/// [`crate::shares::Shares`].
#[derive(Default)]
pub(crate) struct CachedStats {
    kept: KeptRows,
    /// When these sizes were taken, in microseconds of the engine's clock, plus 1; 0 = never. Who reads an older size beside
    /// a newer time does no harm.
    sized_us: AtomicU64,
    index_bytes: AtomicU64,
    overflow_bytes: AtomicU64,
    /// Rows of a thousand leaves when leaves spread over the table were last in memory, or read; 0 = never. Not renewed
    /// with the others, as it is better than what the ends tell.
    rows_per_1000_leaves: AtomicU64,
    /// See [`crate::Table::keep_samples`].
    pub(crate) samples: Mutex<Box<[u64]>>,
    /// See [`crate::TableStats::update_time_s`].
    update_time_s: AtomicU64,
}

/// What the clustered index told.
#[derive(Clone, Copy, Default)]
struct Rows {
    rows: u64,
    data_bytes: u64,
    mean_row_bytes: u64,
    /// When, in microseconds of the engine's clock.
    taken_us: u64,
    /// The leaves of a small table: it holds while they are unchanged. Else it holds for a time.
    leaves: [Option<SeenPage>; SMALL_LEAVES],
}

/// The newest [`Rows`], or older ones. Who reads them writes nothing, as many may use a table at once.
#[derive(Default)]
struct KeptRows {
    /// Held by who changes what follows; its version tells a reader whether all belongs to one moment. 0: nothing is kept.
    latch: HybridLatch,
    rows: AtomicU64,
    data_bytes: AtomicU64,
    mean_row_bytes: AtomicU64,
    taken_us: AtomicU64,
    leaves: [KeptLeaf; SMALL_LEAVES],
}

/// A [`SeenPage`]; version 0: none.
#[derive(Default)]
struct KeptLeaf {
    page: AtomicU64,
    version: AtomicU64,
    frame: AtomicU32,
}

impl Rows {
    fn hold(&self, pool: &BufferPool, now_us: impl Fn() -> u64) -> bool {
        match self.leaves[0] {
            Some(_) => self.leaves.iter().flatten().all(|leaf| pool.is_unchanged(leaf)),
            None => is_fresh(self.taken_us, now_us()),
        }
    }
}

fn is_fresh(taken_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(taken_us) < KEPT.as_micros() as u64
}

impl KeptRows {
    fn load(&self) -> Option<Rows> {
        let version = self.latch.optimistic().filter(|&version| version > 0)?;
        let rows = Rows {
            rows: self.rows.load(Ordering::Relaxed),
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            mean_row_bytes: self.mean_row_bytes.load(Ordering::Relaxed),
            taken_us: self.taken_us.load(Ordering::Relaxed),
            leaves: self.leaves.each_ref().map(KeptLeaf::load),
        };
        self.latch.validate(version).then_some(rows)
    }

    fn store(&self, rows: &Rows) {
        // Whoever does the same just now has seen as much.
        if !self.latch.try_exclusive() {
            return;
        }
        self.rows.store(rows.rows, Ordering::Relaxed);
        self.data_bytes.store(rows.data_bytes, Ordering::Relaxed);
        self.mean_row_bytes.store(rows.mean_row_bytes, Ordering::Relaxed);
        self.taken_us.store(rows.taken_us, Ordering::Relaxed);
        for (kept, leaf) in self.leaves.iter().zip(&rows.leaves) {
            kept.store(leaf.as_ref());
        }
        self.latch.unlock_exclusive();
    }
}

impl KeptLeaf {
    fn load(&self) -> Option<SeenPage> {
        let version = self.version.load(Ordering::Relaxed);
        (version > 0).then(|| SeenPage {
            id: PageId::from_u64(self.page.load(Ordering::Relaxed)),
            frame: FrameNo(self.frame.load(Ordering::Relaxed)),
            version,
        })
    }

    fn store(&self, leaf: Option<&SeenPage>) {
        // A frame's first page gives it a version above 0.
        self.version.store(leaf.map_or(0, |leaf| leaf.version), Ordering::Relaxed);
        if let Some(leaf) = leaf {
            self.page.store(leaf.id.to_u64(), Ordering::Relaxed);
            self.frame.store(leaf.frame.0, Ordering::Relaxed);
        }
    }
}

impl CachedStats {
    /// What is still true of the table with another definition.
    pub(crate) fn for_new_definition(&self) -> CachedStats {
        CachedStats { update_time_s: self.update_time_s().into(), ..CachedStats::default() }
    }

    /// See [`crate::TableStats::update_time_s`].
    pub(crate) fn update_time_s(&self) -> u64 {
        self.update_time_s.load(Ordering::Relaxed)
    }

    /// A transaction that changed the table has committed.
    pub(crate) fn set_update_time(&self, now_s: u64) {
        // Once a second, lest every commit takes the cache line from those who read its neighbours.
        if self.update_time_s() != now_s {
            self.update_time_s.store(now_s, Ordering::Relaxed);
        }
    }

    fn knows_leaves(&self) -> bool {
        self.rows_per_1000_leaves.load(Ordering::Relaxed) > 0
    }

    /// Rows by an estimate of the whole table and what is known of an earlier one.
    fn rows(&self, whole: &RangeEstimate) -> u64 {
        let known = &self.rows_per_1000_leaves;
        if whole.spread {
            known.store(whole.entries.saturating_mul(1000) / whole.leaf_pages.max(1), Ordering::Relaxed);
        }
        match known.load(Ordering::Relaxed) {
            known if known > 0 && !whole.exact && !whole.spread => whole.leaf_pages * known / 1000,
            _ => whole.entries,
        }
    }
}

/// Tables up to this many leaves are looked at again when one of these has changed.
const SMALL_LEAVES: usize = 4;
/// How long a larger one's rows, and the sizes of all tables' secondary indexes and overflow pages, are kept.
const KEPT: Duration = Duration::from_millis(500);
/// Leaves that tell what overflow pages the rows have.
const OVERFLOW_LEAVES: usize = 8;
/// How its rows are looked at now and then.
const NOW_AND_THEN: Looks = Looks { pages: 8, read: false };
/// Of a table of more leaves than this they are read if nothing is known of it yet: less than a wrong plan would.
const LARGE_LEAVES: u64 = 128;
/// How its rows are looked at when that is asked for: the pages above are among these, and so in memory afterwards.
const CLOSELY: Looks = Looks { pages: 24, read: true };
const _: () = assert!(CLOSELY.pages.is_multiple_of(NOW_AND_THEN.pages) && CLOSELY.pages / NOW_AND_THEN.pages % 2 == 1);

/// The bounds of an index in its tree: `[lo, hi)`.
pub(crate) fn bounds(id: IndexId) -> ([u8; 4], [u8; 4]) {
    (id.0.to_be_bytes(), id.0.wrapping_add(1).to_be_bytes())
}

/// The bounds of the keys of an index between two prefixes, the lower one inclusive.
pub(crate) fn range(id: IndexId, low: Option<&[u8]>, high: Bound<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let (first, end) = bounds(id);
    let lo = [&first, low.unwrap_or(&[])].concat();
    let hi = match high {
        Bound::Unbounded => end.to_vec(),
        Bound::Included(high) => after_prefix([&first, high].concat()),
        Bound::Excluded(high) => [&first, high].concat(),
    };
    (lo, hi)
}

/// The least string above all that begin with `prefix` (whose first bytes, an index id, are never all ones).
fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.last() == Some(&0xff) {
        prefix.pop();
    }
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}

/// Statistics of a table.
pub(crate) fn table_stats(engine: &Engine, share: &TableShare, detail: Detail) -> Result<TableStats> {
    let mut stats = TableStats {
        create_time_s: share.def.create_time_s,
        update_time_s: share.stats.update_time_s(),
        auto_increment_next: share.auto_increment().map_or(0, |a| a.next()),
        ..TableStats::default()
    };
    if detail == Detail::Counters {
        return Ok(stats);
    }
    // Asked only where it matters: a statement may ask for each of a thousand partitions.
    let now_us = || engine.clock().now().as_micros() as u64;
    let is_close = detail == Detail::Closely;
    let rows = match share.stats.kept.load().filter(|rows| !is_close && rows.hold(engine.pool(), now_us)) {
        Some(rows) => rows,
        None => fresh_rows(engine, share, now_us(), if is_close { CLOSELY } else { NOW_AND_THEN })?,
    };
    (stats.rows, stats.data_bytes, stats.mean_row_bytes) = (rows.rows, rows.data_bytes, rows.mean_row_bytes);
    if detail >= Detail::Sizes {
        let (known, now_us) = (&share.stats, now_us());
        let sized_us = known.sized_us.load(Ordering::Relaxed).checked_sub(1);
        if is_close || !sized_us.is_some_and(|sized_us| is_fresh(sized_us, now_us)) {
            known.index_bytes.store(index_bytes(engine, share)?, Ordering::Relaxed);
            // Of a leaf that cannot be read, its readers hear.
            let overflow_bytes = overflow_bytes(engine, &share.indexes[0], rows.rows).unwrap_or(0);
            known.overflow_bytes.store(overflow_bytes, Ordering::Relaxed);
            known.sized_us.store(now_us + 1, Ordering::Relaxed);
        }
        stats.index_bytes = known.index_bytes.load(Ordering::Relaxed);
        let overflow_bytes = known.overflow_bytes.load(Ordering::Relaxed);
        stats.data_bytes += overflow_bytes;
        stats.mean_row_bytes += overflow_bytes / stats.rows.max(1);
    }
    Ok(stats)
}

/// Bytes of the secondary indexes.
fn index_bytes(engine: &Engine, share: &TableShare) -> Result<u64> {
    let mut leaves = 0;
    for index in &share.indexes[1..] {
        let (lo, hi) = bounds(index.id);
        leaves += index.tree.estimate_range(engine.pool(), &lo, &hi)?.leaf_pages.max(1);
    }
    Ok(leaves * engine.pool().page_size() as u64)
}

/// Bytes of the overflow pages of a table's rows, if they are as long everywhere as on leaves spread over the table.
fn overflow_bytes(engine: &Engine, clustered: &Index, rows: u64) -> Result<u64> {
    let page_size = engine.pool().page_size();
    let (lo, hi) = bounds(clustered.id);
    let (mut entries, mut pages) = (0, 0);
    for start in clustered.tree.sample_leaves(engine.pool(), &lo, &hi, OVERFLOW_LEAVES)? {
        let (leaf, slots) = sampled_leaf(engine, clustered, &start)?;
        entries += slots.len() as u64;
        let chains = slots.filter_map(|slot| Entry::try_parse(leaf.value(slot))?.overflow());
        pages += chains.map(|chain| chain.chain_len().div_ceil(bytes_per_page(page_size)) as u64).sum::<u64>();
    }
    Ok((u128::from(rows) * u128::from(pages) / u128::from(entries.max(1))) as u64 * page_size as u64)
}

fn fresh_rows(engine: &Engine, share: &TableShare, now_us: u64, looks: Looks) -> Result<Rows> {
    let mut seen = SeenLeaves::new();
    let clustered = {
        let index = &share.indexes[0];
        let (lo, hi) = bounds(index.id);
        let looked = index.tree.estimate_seeing(engine.pool(), &lo, &hi, looks, &mut seen)?;
        let is_known = looked.exact || looked.spread || share.stats.knows_leaves();
        if looked.leaf_pages <= LARGE_LEAVES || is_known {
            looked
        } else {
            // A page that cannot be read is of no concern to who may not want it.
            index.tree.estimate_looking(engine.pool(), &lo, &hi, Looks { read: true, ..looks }).unwrap_or(looked)
        }
    };
    let empty = clustered.exact && clustered.entries == 0;
    let rows = if empty { 0 } else { share.stats.rows(&clustered).max(1) };
    let data_bytes = clustered.leaf_pages.max(1) * engine.pool().page_size() as u64;
    let mean_row_bytes = match rows {
        0 => 0,
        _ if clustered.leaf_pages <= SMALL_LEAVES as u64 => clustered.entry_bytes / clustered.entries.max(1),
        rows => data_bytes / rows,
    };
    let mut fresh = Rows { rows, data_bytes, mean_row_bytes, taken_us: now_us, leaves: Default::default() };
    if seen.len() <= SMALL_LEAVES {
        fresh.leaves.iter_mut().zip(seen).for_each(|(leaf, seen)| *leaf = Some(seen));
    }
    // That there are no rows is true now; in a moment it is only if the leaves say so.
    if rows > 0 || fresh.leaves[0].is_some() {
        share.stats.kept.store(&fresh);
    }
    Ok(fresh)
}

/// The leaf that begins with `start` or so, and which of its slots are the index's.
fn sampled_leaf<'p>(engine: &'p Engine, index: &Index, start: &[u8]) -> Result<(LeafShared<'p>, Range<usize>)> {
    let (lo, hi) = bounds(index.id);
    let start = start.max(&lo[..]);
    let leaf = index.tree.seek(engine.pool(), start)?;
    let from = leaf.find(start).unwrap_or_else(|slot| slot);
    let to = leaf.find(&hi).unwrap_or_else(|slot| slot);
    Ok((leaf, from..to.max(from)))
}

/// A key of a sampled index, or a separator of its tree: a key between two neighbours, as short as can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Sampled {
    /// The first live entry of a leaf, or separator of some that are neighbours.
    First,
    /// A further entry.
    Entry,
    /// A further separator, which is what the next page's entries begin at; also behind a leaf's entries.
    Fence,
}

/// Keys of a leaf's live entries, one behind the other, and what the next leaf of the index begins at; empty: there is none.
#[derive(Default)]
struct LeafKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    fence: Vec<u8>,
}

impl LeafKeys {
    fn read(&mut self, engine: &Engine, index: &Index, start: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.ends.clear();
        self.fence.clear();
        let (leaf, slots) = sampled_leaf(engine, index, start)?;
        for slot in slots {
            if leaf.value(slot).first().is_some_and(|flags| flags & value::DELETED == 0) {
                leaf.key_parts(slot).append_to(&mut self.bytes);
                self.ends.push(self.bytes.len());
            }
        }
        let behind = leaf.high_fence();
        if behind.starts_with(&bounds(index.id).0) {
            self.fence.extend_from_slice(behind);
        }
        Ok(())
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.ends.len()).map(|i| &self.bytes[i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]])
    }
}

/// Live entries, level 0, of up to `pages` leaves spread over an index, in key order, and the fences behind them. The first leaf
/// and the last are among them: what most rows have may be followed, or led by, values of one row each. Then, for each level from 1
/// on, the separators in the inner pages above these leaves, and at last those of one level that divide the whole index.
pub(crate) fn sample(
    engine: &Engine,
    index: &Index,
    pages: usize,
    visit: &mut dyn FnMut(&[u8], Sampled, u8) -> bool,
) -> Result<()> {
    let (lo, hi) = bounds(index.id);
    // Without the index's id.
    let mut show = |key: &[u8], kind, level| visit(key.get(lo.len()..).unwrap_or(&[]), kind, level);
    let wanted = pages.max(2) - 1;
    let (top, mut all) = index.tree.dividing_keys(engine.pool(), &lo, &hi, wanted)?;
    let (n, divided) = (all.len(), all.len().min(wanted));
    let mut starts: Vec<_> = (0..divided).map(|i| all[i * n / divided].clone()).collect();
    let last = index.tree.seek_before(engine.pool(), &hi)?.low_fence().to_vec();
    if pages > 1 && starts.last().is_some_and(|start| *start < last) {
        starts.push(last);
    }
    // The latch of a leaf is gone before its keys are shown: the visitor may take its time.
    let mut keys = LeafKeys::default();
    for (no, start) in starts.iter().enumerate() {
        keys.read(engine, index, start)?;
        if let Some(first) = keys.entries().next().filter(|_| no == 0) {
            // It says more than where the index begins.
            all[0] = first.to_vec();
        }
        let kind = |i| if i == 0 { Sampled::First } else { Sampled::Entry };
        let all_shown = keys.entries().enumerate().all(|(i, key)| show(key, kind(i), 0));
        let has_fence = !keys.fence.is_empty() && !keys.ends.is_empty();
        if !all_shown || has_fence && !show(&keys.fence, Sampled::Fence, 0) {
            return Ok(());
        }
    }
    if top == 0 {
        return Ok(());
    }
    let mut show_all = |level: u8, separators: &[Vec<u8>]| {
        let kind = |i| if i == 0 { Sampled::First } else { Sampled::Fence };
        separators.iter().enumerate().all(|(i, key)| show(key, kind(i), level))
    };
    for level in 1..top {
        for (no, start) in starts[..divided].iter().enumerate() {
            let mut separators = index.tree.separators_beside(engine.pool(), level, start, &hi)?;
            if no == 0 {
                separators[0].clone_from(&all[0]);
            }
            if !show_all(level, &separators) {
                return Ok(());
            }
        }
    }
    // Where the index ends is known by its last entry.
    let last_entry = keys.entries().next_back().filter(|&last| all.last().is_some_and(|start| start.as_slice() < last));
    all.extend(last_entry.map(<[u8]>::to_vec));
    show_all(top, &all);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_their_prefixes() {
        let id = IndexId(5);
        let to = |high: &'static [u8]| Bound::Included(high);
        assert_eq!(range(id, None, Bound::Unbounded), (vec![0, 0, 0, 5], vec![0, 0, 0, 6]));
        assert_eq!(range(id, Some(&[1]), to(&[1, 255])), (vec![0, 0, 0, 5, 1], vec![0, 0, 0, 5, 2]));
        assert_eq!(range(id, None, to(&[255, 255])).1, vec![0, 0, 0, 6]);
        assert_eq!(range(IndexId(255), None, to(&[])).1, vec![0, 0, 1]);
        assert_eq!(range(id, None, Bound::Excluded(&[1, 255])).1, vec![0, 0, 0, 5, 1, 255]);
    }
}
