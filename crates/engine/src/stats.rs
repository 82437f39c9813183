//! Table statistics and samples, from the trees themselves.

use crate::engine::Engine;
use crate::share::TableShare;
use crate::table::TableStats;
use myriad_base::{IndexId, Result};
use myriad_btree::{Leaf, Looks, RangeEstimate};
use myriad_txn::Index;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Large tables' statistics, kept a little while: the optimizer asks at every statement. Estimates, so it does not matter
/// that a reader may see some of an older set beside some of a newer one.
#[derive(Default)]
pub(crate) struct CachedStats {
    /// When they were taken, in microseconds of the engine's clock, plus 1; 0 = never.
    taken_us: AtomicU64,
    rows: AtomicU64,
    data_bytes: AtomicU64,
    index_bytes: AtomicU64,
    mean_row_bytes: AtomicU64,
    /// Rows of a thousand leaves when leaves spread over the table were last in memory, or read; 0 = never. Not renewed
    /// with the others, as it is better than what the ends tell.
    rows_per_1000_leaves: AtomicU64,
}

impl CachedStats {
    fn load(&self, now: Duration, create_time_s: u64) -> Option<TableStats> {
        let taken_us = self.taken_us.load(Ordering::Relaxed).checked_sub(1)?;
        let age_us = (now.as_micros() as u64).saturating_sub(taken_us);
        (age_us < KEPT.as_micros() as u64).then(|| TableStats {
            rows: self.rows.load(Ordering::Relaxed),
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            index_bytes: self.index_bytes.load(Ordering::Relaxed),
            mean_row_bytes: self.mean_row_bytes.load(Ordering::Relaxed),
            create_time_s,
            ..TableStats::default()
        })
    }

    fn store(&self, now: Duration, stats: &TableStats) {
        self.rows.store(stats.rows, Ordering::Relaxed);
        self.data_bytes.store(stats.data_bytes, Ordering::Relaxed);
        self.index_bytes.store(stats.index_bytes, Ordering::Relaxed);
        self.mean_row_bytes.store(stats.mean_row_bytes, Ordering::Relaxed);
        self.taken_us.store(now.as_micros() as u64 + 1, Ordering::Relaxed);
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

/// Tables up to this many leaves are looked at every time.
const SMALL_LEAVES: u64 = 4;
/// How long a larger one's statistics are kept.
const KEPT: Duration = Duration::from_millis(500);
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

fn estimate(engine: &Engine, index: &Index) -> Result<RangeEstimate> {
    let (lo, hi) = bounds(index.id);
    index.tree.estimate_range(engine.pool(), &lo, &hi)
}

/// Mean bytes of the entries in an index's first leaf.
fn mean_entry_bytes(engine: &Engine, index: &Index) -> Result<u64> {
    let (lo, hi) = bounds(index.id);
    let leaf = index.tree.seek(engine.pool(), &lo)?;
    let from = leaf.find(&lo).unwrap_or_else(|slot| slot);
    let to = leaf.find(&hi).unwrap_or_else(|slot| slot);
    let bytes: usize = (from..to).map(|slot| leaf.key_len(slot) + leaf.value(slot).len()).sum();
    Ok((bytes / (to - from).max(1)) as u64)
}

/// Statistics of a table.
pub(crate) fn table_stats(engine: &Engine, share: &TableShare) -> Result<TableStats> {
    let now = engine.clock().now();
    let mut stats = match share.stats.load(now, share.def.create_time_s) {
        Some(stats) => stats,
        None => fresh_stats(engine, share, now, NOW_AND_THEN)?,
    };
    complete(&mut stats, share);
    Ok(stats)
}

/// Statistics of a table, taken with more care. They are kept as others are.
pub(crate) fn analyze(engine: &Engine, share: &TableShare) -> Result<TableStats> {
    let mut stats = fresh_stats(engine, share, engine.clock().now(), CLOSELY)?;
    complete(&mut stats, share);
    Ok(stats)
}

/// Adds what is known without a look at the trees.
fn complete(stats: &mut TableStats, share: &TableShare) {
    stats.update_time_s = share.update_time_s();
    stats.auto_increment_next = share.auto_increment().map_or(0, |a| a.next());
}

fn fresh_stats(engine: &Engine, share: &TableShare, now: Duration, looks: Looks) -> Result<TableStats> {
    let page_bytes = engine.pool().page_size() as u64;
    let clustered = {
        let index = &share.indexes[0];
        let (lo, hi) = bounds(index.id);
        let looked = index.tree.estimate_looking(engine.pool(), &lo, &hi, looks)?;
        let is_known = looked.exact || looked.spread || share.stats.knows_leaves();
        if looked.leaf_pages <= LARGE_LEAVES || is_known {
            looked
        } else {
            // A page that cannot be read is of no concern to who may not want it.
            index.tree.estimate_looking(engine.pool(), &lo, &hi, Looks { read: true, ..looks }).unwrap_or(looked)
        }
    };
    let empty = clustered.exact && clustered.entries == 0;
    let mut index_bytes = 0;
    for index in &share.indexes[1..] {
        index_bytes += estimate(engine, index)?.leaf_pages.max(1) * page_bytes;
    }
    let rows = if empty { 0 } else { share.stats.rows(&clustered).max(1) };
    let data_bytes = clustered.leaf_pages.max(1) * page_bytes;
    let small = clustered.leaf_pages <= SMALL_LEAVES;
    let mean_row_bytes = match rows {
        0 => 0,
        _ if small => mean_entry_bytes(engine, &share.indexes[0])?,
        rows => data_bytes / rows,
    };
    let stats = TableStats {
        rows,
        data_bytes,
        index_bytes,
        free_bytes: 0,
        mean_row_bytes,
        create_time_s: share.def.create_time_s,
        ..TableStats::default()
    };
    if !small {
        share.stats.store(now, &stats);
    }
    Ok(stats)
}

/// Bit of an entry's first byte: delete-marked (see `myriad_txn`).
const DELETE_MARK: u8 = 1;

/// Live entries of up to `pages` leaves spread over an index, in key order.
pub(crate) fn sample(
    engine: &Engine,
    index: &Index,
    pages: usize,
    visit: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Result<()> {
    let (lo, hi) = bounds(index.id);
    let mut keys = Vec::new();
    let mut ends = Vec::new();
    for start in index.tree.sample_leaves(engine.pool(), &lo, &hi, pages)? {
        keys.clear();
        ends.clear();
        {
            let start = if start.as_slice() < lo.as_slice() { &lo[..] } else { &start };
            let leaf = index.tree.seek(engine.pool(), start)?;
            let from = leaf.find(start).unwrap_or_else(|slot| slot);
            let to = leaf.find(&hi).unwrap_or_else(|slot| slot);
            let mut key = Vec::new();
            for slot in from..to {
                if leaf.value(slot).first().is_some_and(|flags| flags & DELETE_MARK == 0) {
                    leaf.key_into(slot, &mut key);
                    keys.extend_from_slice(key.get(lo.len()..).unwrap_or(&[]));
                    ends.push(keys.len());
                }
            }
        }
        // The latch is gone: the visitor may take its time.
        let mut at = 0;
        for (i, &end) in ends.iter().enumerate() {
            if !visit(&keys[at..end], i == 0) {
                return Ok(());
            }
            at = end;
        }
    }
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
