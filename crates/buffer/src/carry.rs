//! What keeps the checkpoint from waiting for a file that cannot be written, or not even read: when the log grows old, what such a
//! file needs of it is logged once more, and what was logged before is needed no more.
//!
//! - A page in memory is logged whole (IMAGE): redo needs nothing before that, and no page read.
//! - Of a page whose changes are in the change buffer these are logged, as one record (CARRIED). It stands for all records of the page
//!   since the first of them: analysis leaves those out, and redo makes the changes on the page as its file has it.

use crate::cleaner::CLEANER_PAGES;
use crate::guard::ExclusivePage;
use crate::mtr::Mtr;
use crate::ops::OP_CARRIED;
use crate::pool::BufferPool;
use crate::stats::Counter;
use myriad_base::codec::push_varint;
use myriad_base::{Lsn, PageId, Result};
use std::sync::atomic::Ordering;

/// What is logged beside a page or its changes, at most.
const EXTRA: usize = 256;
/// Pages whose changes are carried forward at a time.
const CHANGED_PAGES: usize = 512;

/// Changes that were logged once more.
struct Carried {
    id: PageId,
    /// Since when the page was changed.
    first: Lsn,
    /// Where the record begins and ends.
    start: Lsn,
    end: Lsn,
}

impl BufferPool {
    /// Logs once more what tablespaces that cannot be written or read need of the log before `limit`, so that the checkpoint need not wait for
    /// them. Returns of how many pages. Does nothing where that is so much that the log would fill with it.
    pub(crate) fn carry_forward(&self, limit: Lsn) -> Result<usize> {
        if !self.failing.any_hinders() {
            return Ok(0);
        }
        // One at a time: what is carried forward twice takes twice the room.
        let Some(_one) = self.failing.carrying.try_lock() else { return Ok(0) };
        let carried = self.carry_pages(limit)? + self.carry_changes(limit)?;
        self.counters.add_many(Counter::Carried, carried as u64);
        Ok(carried)
    }

    /// Of pages in memory, the oldest of each partition, as far as those cannot be written. None while nobody knows how many they are.
    fn carry_pages(&self, limit: Lsn) -> Result<usize> {
        if !self.failing.any() || !self.failing.are_counted() || self.too_many_to_carry() {
            return Ok(0);
        }
        let mut frames = Vec::new();
        for shard in &self.shards {
            shard.dirty().collect(self.frames(), limit, CLEANER_PAGES.div_ceil(self.shards.len()), &mut frames);
        }
        self.collect_noted(limit, CLEANER_PAGES, &mut frames);
        frames.retain(|&at| self.failing.contains(self.frames().get(at).page().space));
        let mut logged = Vec::with_capacity(frames.len());
        let mut end = Lsn(0);
        let size = self.page_size();
        for at in frames {
            let Some(mut mtr) = Mtr::start_if_room(self, (size + EXTRA) as u64)? else { break };
            let Some((page, since)) = self.latch_dirty(at) else { continue };
            let id = page.id();
            let noted = self.changes.first_of(id);
            let page = mtr.adopt(page);
            mtr.image(page, size..size, |_| ());
            end = mtr.commit_and(|start, _| logged.push((at, id, since, noted, start)))?;
        }
        // Before it is durable what was logged earlier is needed.
        self.log().flush_to(end)?;
        let carried = logged.into_iter().filter(|&(at, id, since, noted, start)| {
            let mut dirty = self.shard_of(at).dirty();
            // It may have been written by now, and the frame have another page, taken to be as old (`DirtyList::position`): with the
            // list locked a page that has changes stays where it is.
            let advanced = self.frames().get(at).holds(id.to_u64()) && dirty.advance(self.frames(), at, since, start);
            drop(dirty);
            if let (true, Some(first)) = (advanced, noted) {
                self.changes.forget_first(id, first);
            }
            advanced
        });
        Ok(carried.count())
    }

    /// Of pages that are not in memory, the oldest.
    fn carry_changes(&self, limit: Lsn) -> Result<usize> {
        let ids = self.changes.old_pages(limit, usize::MAX, false, |space| self.failing.hinders(space));
        let bytes = ids.iter().filter_map(|&id| Some(self.changes.shard(id).get(id)?.record_bytes())).sum();
        if self.too_much_to_carry(bytes) {
            return Ok(0);
        }
        let mut logged = Vec::new();
        for &id in ids.iter().take(CHANGED_PAGES) {
            logged.extend(self.log_changes(id, limit)?);
        }
        // Before it is durable what was logged earlier is needed.
        let Some(last) = logged.last() else { return Ok(0) };
        self.log().flush_to(last.end)?;
        Ok(logged.iter().filter(|c| self.changes.advance(c.id, c.first, c.start)).count())
    }

    /// Logs the page's changes once more, if it is not in memory, they began before `limit`, and the log has room.
    fn log_changes(&self, id: PageId, limit: Lsn) -> Result<Option<Carried>> {
        // While it is locked nobody brings the page into memory, adds a change, or makes what is there.
        let mut shard = self.changes.shard(id);
        let Some(changes) = shard.get_mut(id).filter(|c| !c.in_memory && c.first < limit) else { return Ok(None) };
        let bytes = changes.record_bytes() + EXTRA;
        if bytes > self.log().body_bytes_max() {
            return Ok(None);
        }
        let Some(mut mtr) = Mtr::start_if_room(self, bytes as u64)? else { return Ok(None) };
        let (first, mut since, mut start) = (changes.first, Vec::new(), Lsn(0));
        push_varint(&mut since, first.0);
        mtr.record_of(id, OP_CARRIED, &[&since, changes.records()]);
        let end = mtr.commit_and(|at, _| start = at)?;
        // The page will have all of what the record stands for, and the record as such.
        changes.last = end;
        Ok(Some(Carried { id, first, start, end }))
    }

    /// The frame's page, if it has changes, is not being written and can be latched at once; and since when it has changes.
    fn latch_dirty(&self, at: u32) -> Option<(ExclusivePage<'_>, Lsn)> {
        let frame = self.frames().get(at);
        if !frame.latch.try_exclusive() {
            return None;
        }
        let id = PageId::from_u64(frame.page_id.load(Ordering::Relaxed));
        // Released when it goes.
        let page = ExclusivePage::from_held(self, at, id);
        let since = self.shard_of(at).dirty().since(self.frames(), at)?;
        Some((page, since))
    }
}
