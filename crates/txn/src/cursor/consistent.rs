//! Reading the snapshot without locks, a batch of rows at a time.

use super::{Cursor, Direction, Row};
use crate::read::{Found, Version, Versions, View};
use crate::trx::Trx;
use crate::value::{self, Entry};
use myriad_base::{Error, PageId, Result};
use myriad_btree::page::Entries;
use myriad_btree::{Leaf, LeafShared};

/// Rows of the largest batch.
pub(super) const BATCH_ROWS_MAX: usize = 64;
/// How many times larger than the one before a batch is.
pub(super) const BATCH_GROWTH: usize = 4;
/// Bytes at which a batch ends early.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// Bytes that are copied with what is read of a value: to leave them out costs as much.
const BYTES_COPIED_IN_VAIN: usize = 128;

/// How far a look at a leaf has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeafRead {
    /// There is nothing beyond.
    End,
    /// There may be more beyond the position.
    More,
    /// As `More`; the version of the position's entry is far back.
    Far,
}

impl Cursor {
    /// Reads a batch without locks; the first row of it becomes the current one.
    pub(super) fn fill(&mut self, trx: &mut Trx, direction: Direction) -> Result<bool> {
        let view = trx.view();
        let mut versions = std::mem::take(&mut trx.versions);
        let reader: &Trx = trx;
        let filled = reader.locks.until_killed(|| self.fill_from_leaves(reader, direction, view, &mut versions));
        trx.versions = versions;
        filled
    }

    fn fill_from_leaves(
        &mut self,
        trx: &Trx,
        direction: Direction,
        view: View,
        versions: &mut Versions,
    ) -> Result<bool> {
        let mut fresh = false;
        loop {
            self.read_ahead(&trx.sys)?;
            let (leaf, slot) = self.locate_in(&trx.sys, trx.place, direction)?;
            versions.leaf_latched();
            let read = self.read_leaf(trx, &leaf, slot, direction, view, versions, &mut fresh)?;
            let page = leaf.page_id();
            drop(leaf);
            if read == LeafRead::Far {
                let version = trx.sys.far_version(page, view, trx.id(), versions, || trx.is_killed())?;
                if let Some(version) = version {
                    self.add_far_row(trx, &version, page, &mut fresh)?;
                }
            }
            let more = read != LeafRead::End;
            if !more {
                self.ended = true;
            }
            if fresh {
                self.batch_changes = trx.changes;
                return Ok(true);
            }
            if !more {
                // The last row stays current.
                return Ok(false);
            }
            if trx.is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Adds the row whose entry is the position's.
    fn add_far_row(&mut self, trx: &Trx, version: &Version<'_>, page: PageId, fresh: &mut bool) -> Result<()> {
        self.begin_batch(fresh);
        let from = self.buffer.len();
        self.buffer.extend_from_slice(&self.position.key);
        let key_end = self.buffer.len();
        self.append_wanted(&trx.sys, version, page)?;
        self.rows.push(Row { key: from + 4..key_end, value: key_end..self.buffer.len() });
        Ok(())
    }

    /// Before a row is added: the first of a batch takes the place of the batch before.
    #[inline]
    fn begin_batch(&mut self, fresh: &mut bool) {
        if !*fresh {
            *fresh = true;
            self.rows.clear();
            self.buffer.clear();
            self.at = 0;
        }
    }

    /// Copies visible rows from the leaf and moves the position; `fresh` tells whether there was any.
    #[allow(clippy::too_many_arguments)]
    fn read_leaf(
        &mut self,
        trx: &Trx,
        leaf: &LeafShared<'_>,
        mut slot: usize,
        direction: Direction,
        view: View,
        versions: &mut Versions,
        fresh: &mut bool,
    ) -> Result<LeafRead> {
        let own = trx.id();
        let (entries, len, page) = (leaf.entries(), leaf.len(), leaf.page_id());
        let forward = direction == Direction::Forward;
        let start = slot;
        let limit = if self.exact_unique { 1 } else { self.batch_rows };
        // The next entries that are known to be within the bounds.
        let mut ahead = 0;
        loop {
            if ahead == 0 {
                let left = if forward { len.saturating_sub(slot) } else { slot };
                if left == 0 {
                    let more = self.next_leaf(leaf, direction)?;
                    return Ok(if more { LeafRead::More } else { LeafRead::End });
                }
                let wanted = if *fresh { limit - self.rows.len() } else { limit };
                ahead = self.count_within(leaf, slot, left.min(wanted), direction);
                if ahead == 0 {
                    if slot != start {
                        self.stand_at(leaf, slot, direction)?;
                    }
                    return Ok(LeafRead::End);
                }
            }
            if *fresh && trx.overtaken.is_empty() {
                let n = self.copy_seen(trx, &entries, slot, direction, ahead.min(limit - self.rows.len()));
                (slot, ahead) = (if forward { slot + n } else { slot - n }, ahead - n);
                if self.is_full(limit) {
                    self.stand_at(leaf, slot, direction)?;
                    return Ok(LeafRead::More);
                }
                if ahead == 0 {
                    continue;
                }
            }
            ahead -= 1;
            let here = if forward { slot } else { slot - 1 };
            let stored = entries.at(here);
            let entry = Entry::parse(stored.value(), page)?;
            let view = if trx.overtaken.is_empty() {
                view
            } else {
                trx.view_of(view, &self.index, stored.key(), &entry, page)?
            };
            let found = trx.sys.find_version(entry, page, view, own, versions)?;
            slot = if forward { slot + 1 } else { slot - 1 };
            let Found::Version(version) = found else {
                self.stand_at(leaf, slot, direction)?;
                return Ok(LeafRead::Far);
            };
            if let Some(version) = version {
                self.begin_batch(fresh);
                let from = self.buffer.len();
                stored.key().append_to(&mut self.buffer);
                let key_end = self.buffer.len();
                self.append_wanted(&trx.sys, &version, page)?;
                self.rows.push(Row { key: from + 4..key_end, value: key_end..self.buffer.len() });
            }
            if *fresh && self.is_full(limit) {
                self.stand_at(leaf, slot, direction)?;
                return Ok(LeafRead::More);
            }
        }
    }

    #[inline]
    fn is_full(&self, limit: usize) -> bool {
        self.rows.len() >= limit || self.buffer.len() > BATCH_BYTES_MAX
    }

    /// Copies the rows of the next `n` entries, up to one that everybody does not see as it stands or to the batch's last
    /// byte; how many entries it has passed. Most rows of a scan come this way.
    #[inline(never)]
    fn copy_seen(&mut self, trx: &Trx, entries: &Entries<'_>, slot: usize, direction: Direction, n: usize) -> usize {
        let (own, all_see) = (trx.id(), trx.sys.commits().low_limit());
        let value_bytes = if self.excerpt.is_some() { 0 } else { self.options.value_bytes };
        let copied_whole = value_bytes.saturating_add(BYTES_COPIED_IN_VAIN);
        let excerpt = self.excerpt.as_deref();
        let (buffer, rows) = (&mut self.buffer, &mut self.rows);
        for i in 0..n {
            let stored = entries.at(if direction == Direction::Forward { slot + i } else { slot - 1 - i });
            let Some(entry) = Entry::try_parse(stored.value()) else { return i };
            if entry.flags & value::OVERFLOW != 0 || entry.trx >= all_see && entry.trx != own {
                return i;
            }
            if entry.is_deleted() {
                continue;
            }
            let from = buffer.len();
            if entry.body.len() <= copied_whole {
                let key_end = from + stored.append_to(buffer);
                rows.push(Row { key: from + 4..key_end, value: buffer.len() - entry.body.len()..buffer.len() });
            } else {
                stored.key().append_to(buffer);
                let key_end = buffer.len();
                match excerpt {
                    Some(excerpt) => excerpt(entry.body, buffer),
                    None => buffer.extend_from_slice(&entry.body[..value_bytes]),
                }
                rows.push(Row { key: from + 4..key_end, value: key_end..buffer.len() });
            }
            if buffer.len() > BATCH_BYTES_MAX {
                return i + 1;
            }
        }
        n
    }

    /// How many of the next `n` entries are within the bounds: they come first.
    fn count_within(&self, leaf: &LeafShared<'_>, slot: usize, n: usize, direction: Direction) -> usize {
        let within = |i| {
            let here = if direction == Direction::Forward { slot + i } else { slot - 1 - i };
            self.within(leaf.key_parts(here), direction)
        };
        if within(n - 1) {
            return n;
        }
        let (mut low, mut high) = (0, n - 1);
        while low < high {
            let middle = (low + high) / 2;
            if within(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
