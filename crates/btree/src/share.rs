//! Making room without a new page: a full leaf gives entries to a neighbour.
//!
//! Leaves filled in random order and split in the middle are 69 % full in the end; with this, more. One mini-transaction:
//! parent X, the two leaves X from left to right. Only the entries that move are logged, besides fences.

use crate::page::{self, Direction, Fences, Latched, Target};
use crate::redo::{self, Bounds};
use crate::split::{expect_between, Need};
use crate::tree::{expect_order, Owner};
use myriad_base::codec::push_bytes;
use myriad_base::{Error, Result};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr};
use std::ops::Range;

/// A neighbour must have this part of a page free to be worth the work.
const FREE_PART: usize = 8;

/// Which neighbour gets entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Left,
    Right,
}

/// Whether the leaf, where an entry is to go to `key`, is filled in no particular order, or the entry is there and grows.
pub(crate) fn may_share(p: &[u8], key: &[u8]) -> bool {
    page::find(p, key).map_or_else(|slot| page::direction(p, slot) == Direction::Random, |_| true)
}

impl Owner {
    /// Moves entries of the leaf that covers the key to a neighbour, if that is in memory, under the same parent, of the same
    /// index and has room. Whether it did.
    pub(crate) fn share(&self, pool: &BufferPool, need: Need<'_>, to: To) -> Result<bool> {
        let key = need.key();
        let mut mtr = Mtr::start(pool)?;
        let Some(parent) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(key), 1)? else { return Ok(false) };
        let parent = mtr.adopt(parent);
        let p = mtr.page(parent);
        let covering = page::route(&Latched(p), Target::At(key));
        if covering == if to == To::Left { 0 } else { page::count(p) } {
            return Ok(false);
        }
        // The separator between the two.
        let at = if to == To::Left { covering - 1 } else { covering };
        let (left_id, right_id) = (self.tree.id(page::child(p, at)), self.tree.id(page::child(p, at + 1)));
        if !pool.is_resident(if to == To::Left { left_id } else { right_id }) {
            return Ok(false);
        }
        let (left, right) = (mtr.fix(left_id)?, mtr.fix(right_id)?);
        for (leaf, id) in [(left, left_id), (right, right_id)] {
            if page::is_promoted_root(mtr.page(leaf)) {
                return Ok(false);
            }
            self.tree.expect(mtr.page(leaf), id, 0)?;
        }
        let (from, into) = if to == To::Left { (right, left) } else { (left, right) };
        if !is_worth_it(mtr.page(from), mtr.page(into), key) {
            return Ok(false);
        }
        for (leaf, id) in [(left, left_id), (right, right_id)] {
            expect_order(mtr.page(leaf), id)?;
        }
        let Some(plan) = Plan::new(mtr.page(left), mtr.page(right), to) else { return Ok(false) };
        if !page::fits_inner(mtr.page(parent), plan.separator.len()) {
            return Ok(false);
        }
        if page::high_stored(mtr.page(left)) != page::low_stored(mtr.page(right)) {
            return Err(Error::corrupt(right_id, "it does not begin where the leaf before it ends"));
        }
        expect_between(mtr.page(parent), mtr.page_id(parent), at..at + 1, &plan.separator)?;
        if to == To::Left {
            mtr.apply(left, redo::REFENCE, &plan.left)?;
            mtr.apply(left, redo::APPEND, &plan.moved[0])?;
            mtr.apply(right, redo::REFENCE, &plan.right)?;
        } else {
            mtr.apply(right, redo::REFENCE, &plan.right)?;
            for entry in &plan.moved {
                mtr.apply(right, redo::INSERT, entry)?;
            }
            mtr.apply(left, redo::REFENCE, &plan.left)?;
        }
        mtr.apply(parent, redo::REMOVE, &(at as u16).to_le_bytes())?;
        crate::split::insert_separator(&mut mtr, parent, at, &plan.separator, right_id.page)?;
        mtr.commit()?;
        Ok(true)
    }
}

/// Whether the neighbour has the room, and the two are of the key's index: looked at first, as most neighbours are full.
fn is_worth_it(from: &[u8], into: &[u8], key: &[u8]) -> bool {
    let same_index = page::prefix(into).get(..4).is_some_and(|id| key.starts_with(id));
    page::free_bytes(into) >= into.len() / FREE_PART && same_index && page::covers(from, key)
}

/// What changes.
struct Plan {
    separator: Vec<u8>,
    /// New bounds of the left leaf, and what it keeps.
    left: Vec<u8>,
    /// The same of the right one.
    right: Vec<u8>,
    /// Records that add what moves.
    moved: Vec<Vec<u8>>,
}

impl Plan {
    /// Half of what the neighbour has free moves there, if that is enough.
    fn new(left: &[u8], right: &[u8], to: To) -> Option<Plan> {
        let (from, into) = if to == To::Left { (right, left) } else { (left, right) };
        let free = page::free_bytes(into);
        let (low, high) = (page::low_stored(left), page::high_stored(right));
        let (n, prefix) = (page::count(from), page::prefix_len(from));
        let (mut bytes, mut moving) = (0, 0);
        while moving < n && bytes < free / 2 {
            let slot = if to == To::Left { moving } else { n - 1 - moving };
            bytes += page::refenced_bytes(from, slot..slot + 1, prefix);
            moving += 1;
        }
        if moving == 0 || moving == n {
            return None;
        }
        let (cut, moved, kept) = match to {
            To::Left => (moving, 0..moving, moving..n),
            To::Right => (n - moving, n - moving..n, 0..n - moving),
        };
        let (before, behind) = (page::key(from, cut - 1), page::key(from, cut));
        let separator = page::separator(&before, &behind).to_vec();
        let (bounds_left, bounds_right) = ((low, &separator[..]), (&separator[..], high));
        let (of_from, of_into) = if to == To::Left { (bounds_right, bounds_left) } else { (bounds_left, bounds_right) };
        let all = 0..page::count(into);
        let new_prefix = page::shared_prefix_len(of_into.0, of_into.1);
        // The neighbour's prefix can become shorter: all there must still fit.
        let into_bytes =
            page::refenced_bytes(into, all.clone(), new_prefix) + page::refenced_bytes(from, moved.clone(), new_prefix);
        let kept_bytes = page::refenced_bytes(from, kept.clone(), page::shared_prefix_len(of_from.0, of_from.1));
        if into_bytes > page::capacity(into.len(), of_into.0, of_into.1)
            || kept_bytes > page::capacity(from.len(), of_from.0, of_from.1)
        {
            return None;
        }
        let refence = |p: &[u8], keep: Range<usize>, (low, high): (&[u8], &[u8])| {
            let fences = Fences { low, high, flags: p[page::OFF_FLAGS] };
            redo::refence_payload(keep.start, keep.end, &Bounds { level: 0, left: page::left_child(p), fences })
        };
        let (of_left, of_right) = if to == To::Left { (all, kept) } else { (kept, all) };
        Some(Plan {
            left: refence(left, of_left, bounds_left),
            right: refence(right, of_right, bounds_right),
            moved: if to == To::Left { append(from, moved, new_prefix) } else { inserts(from, moved, new_prefix) },
            separator,
        })
    }
}

fn append(from: &[u8], slots: Range<usize>, prefix: usize) -> Vec<Vec<u8>> {
    let mut record = Vec::new();
    redo::push_slots(&mut record, from, slots, prefix);
    vec![record]
}

fn inserts(from: &[u8], slots: Range<usize>, prefix: usize) -> Vec<Vec<u8>> {
    let record = |(to, slot)| {
        let (key, value) = (page::key(from, slot), page::value(from, slot));
        let mut record = Vec::with_capacity(4 + key.len() + value.len());
        record.extend_from_slice(&u16::to_le_bytes(to));
        push_bytes(&mut record, &key[prefix..]);
        record.extend_from_slice(value);
        record
    };
    (0u16..).zip(slots).map(record).collect()
}
