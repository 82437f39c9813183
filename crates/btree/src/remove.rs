//! Removing ranges and whole trees, in bounded steps.

use crate::alloc;
use crate::leaf::Leaf;
use crate::page::{self, Fences, Latched, Target, RIGHTMOST};
use crate::redo::{self, Bounds};
use crate::tree::{RemoveProgress, Tree};
use myriad_base::{Error, PageId, PageNo, Result};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr, PageRef};

/// Pages freed in one mini-transaction.
const BATCH: usize = 16;

/// Sees the key and the value of an entry that goes.
type OnEntry<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

impl Tree {
    /// Removes all entries with `lo <= key < hi` (`hi` empty: to the end), physically and unseen by any transaction: for
    /// dropped indexes. At most about `budget` leaves a call. `on_entry(key, value)` sees each entry just before it goes,
    /// with the leaf latched: it may only take notes (overflow pages to free).
    ///
    /// # Errors
    /// The pool's.
    pub fn remove_range(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        budget: usize,
        on_entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<RemoveProgress> {
        let mut at = lo.to_vec();
        let mut budget = budget.max(1);
        loop {
            if budget == 0 {
                return Ok(RemoveProgress::More);
            }
            let dropped = self.owner(pool, &at)?.remove_leaves(pool, &at, lo, hi, on_entry)?;
            if dropped > 0 {
                budget = budget.saturating_sub(dropped);
                continue;
            }
            budget -= 1;
            let next = self.remove_in_leaf(pool, &at, hi, on_entry)?;
            match self.merge_if_sparse(pool, &at) {
                // Of a neighbour, which may be another index's: that it cannot be read keeps nothing from being removed.
                Err(Error::CorruptPage { .. } | Error::Io { .. }) => {}
                done => done?,
            }
            if next.is_empty() || !hi.is_empty() && &next[..] >= hi {
                return Ok(RemoveProgress::Done);
            }
            at = next;
        }
    }

    /// Empties the run of leaves that begins with the one at `at` (or the one after it) and lies wholly within the range
    /// and under one parent: the first stays, empty, and covers all of it. Returns how many were freed.
    fn remove_leaves(
        &self,
        pool: &BufferPool,
        at: &[u8],
        lo: &[u8],
        hi: &[u8],
        on_entry: &mut OnEntry<'_>,
    ) -> Result<usize> {
        let mut mtr = Mtr::start(pool)?;
        let Some(parent) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(at), 1)? else { return Ok(0) };
        let (first, end) = covered_children(&parent, at, lo, hi);
        // A mini-transaction holds them all, and few frames may be left beside in-memory tables.
        let end = end.min(first + BATCH.min(pool.frames_left() / 4).max(2));
        if end < first + 2 {
            return Ok(0);
        }
        let parent = mtr.adopt(parent);
        let mut leaves: Vec<(PageId, PageRef)> = Vec::with_capacity(end - first);
        for i in first..end {
            let id = self.id(page::child(mtr.page(parent), i));
            let leaf = mtr.fix(id)?;
            self.expect(mtr.page(leaf), id, 0)?;
            leaves.push((id, leaf));
        }
        let mut ids: Vec<PageId> = leaves[1..].iter().map(|l| l.0).collect();
        let freeing = prepare_free_all(&mut mtr, &mut ids)?;
        // The first leaf stays, and none may go twice.
        if ids.contains(&leaves[0].0) || ids.windows(2).any(|two| two[0] == two[1]) {
            return Err(Error::corrupt(mtr.page_id(parent), "two of its children are one page"));
        }
        let mut key = Vec::new();
        for &(_, leaf) in &leaves {
            report(mtr.page(leaf), 0..page::count(mtr.page(leaf)), &mut key, on_entry);
        }
        let refence = {
            let (head, tail) = (mtr.page(leaves[0].1), mtr.page(leaves[leaves.len() - 1].1));
            let flags = head[page::OFF_FLAGS] & !RIGHTMOST | tail[page::OFF_FLAGS] & RIGHTMOST;
            let fences = Fences { low: page::low_stored(head), high: page::high_stored(tail), flags };
            redo::refence_payload(0, 0, &Bounds { level: 0, left: PageNo(0), fences })
        };
        mtr.apply(leaves[0].1, redo::REFENCE, &refence)?;
        mtr.apply(parent, redo::REMOVE, &remove_payload(first, end - first - 1))?;
        for f in freeing {
            alloc::free(&mut mtr, f)?;
        }
        mtr.commit()?;
        Ok(end - first - 1)
    }

    /// Removes what one leaf has of the range, and returns its high fence.
    fn remove_in_leaf(&self, pool: &BufferPool, at: &[u8], hi: &[u8], on_entry: &mut OnEntry<'_>) -> Result<Vec<u8>> {
        let mut mtr = Mtr::start(pool)?;
        let leaf = self.seek_exclusive(pool, at)?;
        let next = leaf.next_from(at)?.to_vec();
        let slot_of = |key: &[u8]| leaf.find(key).unwrap_or_else(|slot| slot);
        let first = slot_of(at);
        let end = if hi.is_empty() { leaf.len() } else { slot_of(hi) };
        if first >= end {
            return Ok(next);
        }
        report(leaf.bytes(), first..end, &mut Vec::new(), on_entry);
        let leaf = leaf.into_mtr(&mut mtr);
        mtr.apply(leaf.page_ref(), redo::REMOVE, &remove_payload(first, end - first))?;
        mtr.commit()?;
        Ok(next)
    }

    /// Frees all pages of a tree with a root of its own, about `budget` pages a call; `Done` once the root is free. Nobody
    /// may use the tree any more. After a crash it can be called again, unless it had said `Done`. Does not read leaves:
    /// overflow pages that their values own are the caller's ([`Tree::remove_range`] shows them).
    ///
    /// # Errors
    /// The pool's.
    pub fn destroy(&self, pool: &BufferPool, budget: usize) -> Result<RemoveProgress> {
        let mut budget = budget.max(1);
        while budget > 0 {
            match self.destroy_step(pool)? {
                None => return Ok(RemoveProgress::Done),
                Some(freed) => budget = budget.saturating_sub(freed),
            }
        }
        Ok(RemoveProgress::More)
    }

    /// Frees the last children of the first page on the rightmost path whose last child has none itself; a page that has
    /// lost all its children becomes an empty page of level 0. Returns how many were freed, `None` when the root was.
    fn destroy_step(&self, pool: &BufferPool) -> Result<Option<usize>> {
        let mut mtr = Mtr::start(pool)?;
        let root = self.root_id();
        let mut node = mtr.fix(root)?;
        let level = page::level(mtr.page(node));
        self.expect(mtr.page(node), root, level)?;
        if level == 0 {
            let freeing = alloc::prepare_free(&mut mtr, root)?;
            mtr.apply(node, redo::RELEASE, &[])?;
            alloc::free(&mut mtr, freeing)?;
            mtr.commit()?;
            return Ok(None);
        }
        let first_to_free = loop {
            let p = mtr.page(node);
            let (level, n) = (page::level(p), page::count(p));
            if level == 1 {
                break (n + 1).saturating_sub(BATCH);
            }
            let last = self.id(page::child(p, n));
            let child = mtr.fix(last)?;
            let child_level = page::level(mtr.page(child));
            self.expect(mtr.page(child), last, child_level)?;
            if child_level == 0 {
                mtr.release_unchanged(child);
                break n;
            }
            if child_level >= level {
                return Err(Error::corrupt(last, "a child is not below its parent"));
            }
            mtr.release_unchanged(node);
            node = child;
        };
        let p = mtr.page(node);
        let n = page::count(p);
        let mut ids: Vec<PageId> = (first_to_free..=n).map(|i| self.id(page::child(p, i))).collect();
        let mut empty = Vec::new();
        redo::push_bounds(&mut empty, &Bounds { level: 0, left: PageNo(0), fences: page::fences(p) });
        let freeing = prepare_free_all(&mut mtr, &mut ids)?;
        if first_to_free == 0 {
            mtr.apply(node, redo::FORMAT, &empty)?;
        } else {
            mtr.apply(node, redo::REMOVE, &remove_payload(first_to_free - 1, n + 1 - first_to_free))?;
        }
        for f in freeing {
            alloc::free(&mut mtr, f)?;
        }
        mtr.commit()?;
        Ok(Some(ids.len()))
    }
}

fn remove_payload(slot: usize, n: usize) -> [u8; 4] {
    let mut payload = [0; 4];
    payload[..2].copy_from_slice(&(slot as u16).to_le_bytes());
    payload[2..].copy_from_slice(&(n as u16).to_le_bytes());
    payload
}

fn prepare_free_all(mtr: &mut Mtr<'_>, ids: &mut [PageId]) -> Result<Vec<alloc::Freeing>> {
    // Bitmap pages are latched in their order.
    ids.sort_unstable();
    let mut all: Vec<alloc::Freeing> = Vec::new();
    for &id in ids.iter() {
        let one = alloc::prepare_free(mtr, id)?;
        if !all.last_mut().is_some_and(|last| last.join(&one)) {
            all.push(one);
        }
    }
    Ok(all)
}

fn report(p: &[u8], slots: std::ops::Range<usize>, key: &mut Vec<u8>, on_entry: &mut OnEntry<'_>) {
    for slot in slots {
        key.clear();
        page::key_parts(p, slot).append_to(key);
        on_entry(key, page::value(p, slot));
    }
}

/// The children of a level-1 page, from the one at `at` or its successor on, that lie wholly within `[lo, hi)`.
fn covered_children(parent: &[u8], at: &[u8], lo: &[u8], hi: &[u8]) -> (usize, usize) {
    let n = page::count(parent);
    let starts_within = |i: usize| {
        if i == 0 {
            lo.is_empty() || !page::is_leftmost(parent) && page::low_stored(parent) >= lo
        } else {
            page::cmp_key(parent, i - 1, lo).is_ge()
        }
    };
    let ends_within = |i: usize| {
        if hi.is_empty() {
            true
        } else if i == n {
            !page::is_rightmost(parent) && page::high_stored(parent) <= hi
        } else {
            page::cmp_key(parent, i, hi).is_le()
        }
    };
    let mut first = page::route(&Latched(parent), Target::At(at));
    if !starts_within(first) {
        first += 1;
    }
    let mut end = first;
    while end <= n && ends_within(end) {
        end += 1;
    }
    (first, end)
}
