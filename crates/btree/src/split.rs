//! Making room: splits, where the neighbour has none to share ([`crate::share`]).
//!
//! A split is one mini-transaction: parent X, page X, new right sibling, bitmap. The parent needs room for one separator;
//! if it has none it is split first, by the same function one level up, and all begins again. A full root moves its
//! content into a new child and becomes that child's parent, so that its page number stays.

use crate::alloc::{self, Candidate, Found};
use crate::page::{self, Direction, Fences, Latched, Target, LEFTMOST, RIGHTMOST, ROOT};
use crate::redo::{self, Bounds};
use crate::share::{self, To};
use crate::tree::{expect_order, Owner, Tree};
use myriad_base::limits::key_bytes_max;
use myriad_base::page::PageKind;
use myriad_base::{Error, PageId, PageNo, Result};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr, PageRef};
use smallvec::SmallVec;

/// What needs room on a page of some level, on the way to a key.
#[derive(Clone, Copy)]
pub(crate) enum Need<'k> {
    /// A leaf entry of the key, with a value this long.
    Entry { key: &'k [u8], value_len: usize },
    /// A separator on an inner page.
    Separator { key: &'k [u8] },
}

impl<'k> Need<'k> {
    pub(crate) fn key(&self) -> &'k [u8] {
        match *self {
            Need::Entry { key, .. } | Need::Separator { key } => key,
        }
    }

    fn fits(&self, p: &[u8]) -> Result<bool> {
        if !self.key().starts_with(page::prefix(p)) {
            return Err(Error::invalid("the key does not belong to the tree"));
        }
        Ok(match *self {
            Need::Entry { key, value_len } => match page::find(p, key) {
                Ok(slot) => page::fits_replace(p, slot, value_len),
                Err(_) => page::fits_leaf(p, key.len(), value_len),
            },
            Need::Separator { key } => page::fits_inner(p, key.len()),
        })
    }
}

/// Where a page is to be split: `left_end` slots stay; the new page has those from `right_first` on.
pub(crate) struct SplitPoint {
    pub left_end: usize,
    pub right_first: usize,
    pub separator: Vec<u8>,
}

/// How often an index may move while room is made for one entry. It gets a root of its own, or is dropped; a leaf that is not where
/// the page above it says looks as if it moved for ever.
pub(crate) const MOVES_MAX: usize = 1000;

/// How [`Tree::make_room_at`] ended.
#[derive(Clone, Copy, Debug)]
enum Room {
    /// There is room. `leaves` is that of [`Tree::make_room`].
    Made { leaves: u32 },
    /// The key's index has a root of its own by now: begin again there.
    Moved,
}

/// What [`Tree::grow_root`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    /// There is room.
    Fits,
    /// There is a level more now.
    Raised,
    /// The root is of another level, or the tree has lost it.
    OtherLevel,
}

impl Tree {
    /// Splits until an entry of `key` with a value of `value_len` bytes fits its leaf; for a longer replacement of an
    /// entry that exists, the same call makes the room. The caller holds no latch and no mini-transaction, and seeks
    /// again afterwards (others may have used the room meanwhile: loop).
    ///
    /// Returns how many leaves the key's index has beside the leaf that was split, as far as their parent shows it
    /// (`u32::MAX` if that has no other index's): the moment to think of [`Tree::promote`]. 0 where the index has a root of
    /// its own, or no leaf was split.
    ///
    /// # Errors
    /// [`myriad_base::Error::TooLong`] beyond [`crate::page::entry_bytes_max`]; [`myriad_base::Error::DiskFull`] before
    /// anything is changed; the pool's.
    pub fn make_room(&self, pool: &BufferPool, key: &[u8], value_len: usize) -> Result<u32> {
        let (key_max, max) = (key_bytes_max(pool.page_size()), page::entry_bytes_max(pool.page_size()));
        if key.len() > key_max {
            return Err(Error::TooLong { what: "key", len: key.len(), max: key_max });
        }
        if key.len() + value_len > max {
            return Err(Error::TooLong { what: "index entry", len: key.len() + value_len, max });
        }
        for _ in 0..MOVES_MAX {
            let owner = self.owner_of(pool, key)?;
            if let Room::Made { leaves } = owner.make_room_at(pool, 0, Need::Entry { key, value_len })? {
                return Ok(leaves);
            }
        }
        let leaf = self.leaf_and_owner(pool, key)?.0.id();
        Err(Error::corrupt(leaf, "it is not where the level above says"))
    }

    /// This tree, which is not a promoted index's or cannot be dropped meanwhile.
    pub(crate) fn as_owner(&self) -> Owner {
        Owner { tree: *self, home_level: None }
    }
}

impl Owner {
    fn make_room_at(&self, pool: &BufferPool, level: u8, need: Need<'_>) -> Result<Room> {
        let mut leaves = 0;
        let mut may_share = level == 0;
        loop {
            let mut mtr = Mtr::start(pool)?;
            let Some(parent) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(need.key()), level + 1)? else {
                drop(mtr);
                match self.grow_root(pool, level, |p| need.fits(p))? {
                    Root::Fits => return Ok(Room::Made { leaves }),
                    Root::Raised => continue,
                    Root::OtherLevel => return Ok(Room::Moved),
                }
            };
            let parent = mtr.adopt(parent);
            let child_at = page::route(&Latched(mtr.page(parent)), Target::At(need.key()));
            let child_id = self.tree.id(page::child(mtr.page(parent), child_at));
            let child = mtr.fix(child_id)?;
            if page::is_promoted_root(mtr.page(child))
                || self.home_level.is_some() && !page::covers(mtr.page(child), need.key())
            {
                return Ok(Room::Moved);
            }
            self.tree.expect(mtr.page(child), child_id, level)?;
            if need.fits(mtr.page(child))? {
                return Ok(Room::Made { leaves });
            }
            if std::mem::take(&mut may_share) && share::may_share(mtr.page(child), need.key()) {
                // Latches are taken anew: the left neighbour's comes first.
                drop(mtr);
                if !self.share(pool, need, To::Left)? {
                    self.share(pool, need, To::Right)?;
                }
                continue;
            }
            expect_order(mtr.page(child), child_id)?;
            let Some(point) = choose(mtr.page(child), need) else {
                return Err(Error::corrupt(child_id, "the page cannot be split"));
            };
            if !page::fits_inner(mtr.page(parent), point.separator.len()) {
                drop(mtr);
                match self.make_room_at(pool, level + 1, Need::Separator { key: &point.separator })? {
                    Room::Made { .. } => continue,
                    Room::Moved => return Ok(Room::Moved),
                }
            }
            match alloc::find(&mut mtr, self.tree.space, Some(child_id.page))? {
                Found::Grow(growth) => {
                    drop(mtr);
                    alloc::grow(pool, self.tree.space, growth)?;
                }
                Found::Page(candidate) => {
                    split(&mut mtr, parent, child_at, child, candidate, &point)?;
                    if level == 0 && self.tree.root == alloc::PACK_ROOT {
                        leaves = leaves_of_index(mtr.page(parent), need.key());
                    }
                    mtr.commit()?;
                }
            }
        }
    }

    /// Splits until a separator fits the page of `level` that covers it.
    pub(crate) fn make_room_for_separator(&self, pool: &BufferPool, level: u8, separator: &[u8]) -> Result<()> {
        // Where the index has moved the caller finds out when it begins again.
        self.make_room_at(pool, level, Need::Separator { key: separator })?;
        Ok(())
    }

    /// Puts a level above the root, if that is a page of `level`.
    pub(crate) fn raise_root(&self, pool: &BufferPool, level: u8) -> Result<()> {
        self.grow_root(pool, level, |_| Ok(false))?;
        Ok(())
    }

    /// Puts a level above the root, if that is a page of `level` and `fits` says no.
    fn grow_root(&self, pool: &BufferPool, level: u8, fits: impl Fn(&[u8]) -> Result<bool>) -> Result<Root> {
        loop {
            let mut mtr = Mtr::start(pool)?;
            let root = mtr.fix(self.tree.root_id())?;
            if page::level(mtr.page(root)) != level || self.is_root(self.tree.root_id(), mtr.page(root)).is_none() {
                return Ok(Root::OtherLevel);
            }
            if fits(mtr.page(root))? {
                return Ok(Root::Fits);
            }
            let candidate = match alloc::find(&mut mtr, self.tree.space, Some(self.tree.root))? {
                Found::Page(candidate) => candidate,
                Found::Grow(growth) => {
                    drop(mtr);
                    alloc::grow(pool, self.tree.space, growth)?;
                    continue;
                }
            };
            let child_no = candidate.page().page;
            let p = mtr.page(root);
            expect_order(p, self.tree.root_id())?;
            let content = redo::copy_payload(p, p[page::OFF_FLAGS] & !ROOT);
            let mut above = Vec::with_capacity(64);
            redo::push_bounds(&mut above, &Bounds { level: level + 1, left: child_no, fences: page::fences(p) });
            let child = alloc::take(&mut mtr, candidate, PageKind::Index)?;
            mtr.apply(child, redo::LOAD, &content)?;
            mtr.apply(root, redo::FORMAT, &above)?;
            mtr.commit()?;
            return Ok(Root::Raised);
        }
    }
}

/// What [`Tree::make_room`] returns, from the parent of the leaf that was split.
fn leaves_of_index(parent: &[u8], key: &[u8]) -> u32 {
    let Some(id) = key.first_chunk::<4>() else { return 0 };
    if page::prefix(parent).starts_with(id) {
        return u32::MAX;
    }
    let Some(next) = u32::from_be_bytes(*id).checked_add(1) else { return 0 };
    let first = page::route(&Latched(parent), Target::At(id));
    let last = page::route(&Latched(parent), Target::Before(&next.to_be_bytes()));
    last.saturating_sub(first) as u32
}

/// Splits `child`, the child number `child_at` of `parent`, which has the room. The child's keys are in order.
pub(crate) fn split(
    mtr: &mut Mtr<'_>,
    parent: PageRef,
    child_at: usize,
    child: PageRef,
    candidate: Candidate,
    point: &SplitPoint,
) -> Result<()> {
    expect_between(mtr.page(parent), mtr.page_id(parent), child_at..child_at, &point.separator)?;
    let p = mtr.page(child);
    let (level, n) = (page::level(p), page::count(p));
    let (low, high, flags) = (page::low_stored(p), page::high_stored(p), p[page::OFF_FLAGS]);
    let right_left = if level == 0 { PageNo(0) } else { page::child(p, point.right_first) };
    let right_fences = Fences { low: &point.separator, high, flags: flags & !LEFTMOST };
    let right_prefix = page::shared_prefix_len(&point.separator, high);
    let mut right_content = Vec::with_capacity(64 + p.len() / 2);
    redo::push_bounds(&mut right_content, &Bounds { level, left: right_left, fences: right_fences });
    redo::push_slots(&mut right_content, p, point.right_first..n, right_prefix);
    let left_fences = Fences { low, high: &point.separator, flags: flags & !RIGHTMOST };
    let left_bounds = Bounds { level, left: page::left_child(p), fences: left_fences };
    let left_content = redo::refence_payload(0, point.left_end, &left_bounds);
    let right_id: PageId = candidate.page();

    let right = alloc::take(mtr, candidate, PageKind::Index)?;
    mtr.apply(right, redo::LOAD, &right_content)?;
    mtr.apply(child, redo::REFENCE, &left_content)?;
    insert_separator(mtr, parent, child_at, &point.separator, right_id.page)
}

/// Checks that a separator may stand in the place of those of the slots `at` of an inner page.
pub(crate) fn expect_between(p: &[u8], id: PageId, at: std::ops::Range<usize>, separator: &[u8]) -> Result<()> {
    let is_above = at.start == 0 || page::cmp_key(p, at.start - 1, separator).is_lt();
    let is_below = at.end >= page::count(p) || page::cmp_key(p, at.end, separator).is_gt();
    if !separator.starts_with(page::prefix(p)) || !is_above || !is_below {
        return Err(Error::corrupt(id, "its separators are not the fences of the pages below"));
    }
    Ok(())
}

/// Puts `child` behind child number `at` of `parent`, which has the room.
pub(crate) fn insert_separator(
    mtr: &mut Mtr<'_>,
    parent: PageRef,
    at: usize,
    separator: &[u8],
    child: PageNo,
) -> Result<()> {
    let prefix = page::prefix_len(mtr.page(parent));
    let mut record = Vec::with_capacity(6 + separator.len());
    record.extend_from_slice(&(at as u16).to_le_bytes());
    record.extend_from_slice(&child.0.to_le_bytes());
    record.extend_from_slice(&separator[prefix..]);
    mtr.apply(parent, redo::INSERT_CHILD, &record)
}

/// The best place to split a page for what is needed; `None` only for a damaged page.
fn choose(p: &[u8], need: Need<'_>) -> Option<SplitPoint> {
    let n = page::count(p);
    let (slot, exists) = match page::find(p, need.key()) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    };
    // sums[i]: bytes of the first i slots.
    let mut sums: SmallVec<[usize; 512]> = SmallVec::with_capacity(n + 1);
    let prefix = page::prefix_len(p);
    sums.push(0);
    for i in 0..n {
        sums.push(sums[i] + page::refenced_bytes(p, i..i + 1, prefix));
    }
    if page::level(p) == 0 {
        choose_leaf(p, need, slot, exists, &sums)
    } else {
        choose_inner(p, slot, &sums)
    }
}

/// Whether `range` fits a page between these fences.
fn fits_between(p: &[u8], range: std::ops::Range<usize>, sums: &[usize], low: &[u8], high: &[u8]) -> bool {
    let bytes = sums[range.end] - sums[range.start];
    let capacity = page::capacity(p.len(), low, high);
    // The prefix only grows, so the exact sum is needed only near the limit.
    bytes <= capacity || page::refenced_bytes(p, range, page::shared_prefix_len(low, high)) <= capacity
}

/// Splits a leaf. The entry to come counts as one more at `slot`; a cut is a number of slots that stay, and whether the
/// new entry is to the left of a cut at `slot`.
fn choose_leaf(p: &[u8], need: Need<'_>, slot: usize, exists: bool, sums: &[usize]) -> Option<SplitPoint> {
    let n = page::count(p);
    let total = sums[n];
    let preferred = match page::direction(p, slot) {
        _ if exists => (middle(sums, total / 2), false),
        // Few entries behind: the new one begins the right page, and more will follow it there. Many: it ends the left.
        Direction::Ascending if total - sums[slot] <= total / 2 => (slot, false),
        Direction::Ascending => (slot, true),
        Direction::Descending if sums[slot] <= total / 2 => (slot, true),
        Direction::Descending => (slot, false),
        Direction::Random => {
            let cut = middle(sums, total / 2);
            (cut, cut == slot && sums[slot] * 2 <= total)
        }
    };
    let mut scratch = (Vec::new(), Vec::new());
    let mut attempt = |cut: usize, new_left: bool| -> Option<SplitPoint> {
        // The neighbours of the cut, the new entry included.
        let new_here = !exists && cut == slot;
        let (nothing_left, nothing_right) = (cut == 0 && !new_left, cut == n && new_left);
        if (cut == 0 || cut == n) && !new_here || nothing_left || nothing_right {
            return None;
        }
        let left: &[u8] = if new_here && new_left {
            need.key()
        } else {
            scratch.0 = page::key(p, cut - 1);
            &scratch.0
        };
        let right: &[u8] = if new_here && !new_left {
            need.key()
        } else {
            scratch.1 = page::key(p, cut);
            &scratch.1
        };
        if left >= right {
            return None;
        }
        let separator = page::separator(left, right);
        let fits = fits_between(p, 0..cut, sums, page::low_stored(p), separator)
            && fits_between(p, cut..n, sums, separator, page::high_stored(p));
        fits.then(|| SplitPoint { left_end: cut, right_first: cut, separator: separator.to_vec() })
    };
    if let Some(point) = attempt(preferred.0, preferred.1) {
        return Some(point);
    }
    for distance in 0..=n {
        for cut in [preferred.0.checked_sub(distance), preferred.0.checked_add(distance).filter(|&c| c <= n)] {
            let Some(cut) = cut else { continue };
            if let Some(point) = attempt(cut, false).or_else(|| attempt(cut, true)) {
                return Some(point);
            }
        }
    }
    None
}

/// Splits an inner page: the separator in the middle moves up, its child becomes the right page's leftmost.
fn choose_inner(p: &[u8], slot: usize, sums: &[usize]) -> Option<SplitPoint> {
    let n = page::count(p);
    if n == 0 {
        return None;
    }
    let preferred = match page::direction(p, slot) {
        Direction::Ascending if slot == n => n - 1,
        Direction::Descending if slot == 0 => 0,
        _ => middle(sums, sums[n] / 2).min(n - 1),
    };
    for distance in 0..=n {
        for cut in [preferred.checked_sub(distance), preferred.checked_add(distance).filter(|&c| c < n)] {
            let Some(cut) = cut else { continue };
            let separator = page::key(p, cut);
            if fits_between(p, 0..cut, sums, page::low_stored(p), &separator)
                && fits_between(p, cut + 1..n, sums, &separator, page::high_stored(p))
            {
                return Some(SplitPoint { left_end: cut, right_first: cut + 1, separator });
            }
        }
    }
    None
}

/// The number of slots whose bytes come closest to `wanted`.
fn middle(sums: &[usize], wanted: usize) -> usize {
    let above = sums.partition_point(|&s| s < wanted).min(sums.len() - 1);
    if above > 0 && wanted - sums[above - 1] < sums[above].saturating_sub(wanted) {
        above - 1
    } else {
        above
    }
}
