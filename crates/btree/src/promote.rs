//! Promotion: an index that has outgrown the pack tree gets a root of its own, and gives it back when it is empty.
//!
//! The pack tree is cut at both ends of the index's keys, level by level from the leaves up, until one page covers exactly
//! these keys. That page becomes the root: one mini-transaction sets its flag [`ROOT`]. The parent in the pack tree keeps
//! pointing to it, so whoever still descends from the pack root arrives as before. From then on the page grows and shrinks
//! as roots do, whatever the level of its neighbours.

use crate::alloc::{self, Found, PACK_ROOT};
use crate::page::{self, Fences, Latched, Target, ROOT};
use crate::redo::{self, Bounds};
use crate::split::{split, SplitPoint, MOVES_MAX};
use crate::tree::{expect_order, Owner, Step, Tree, HEIGHT_MAX};
use myriad_base::{Error, IndexId, Result};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr, PageRef, SharedPage};

/// Merges may undo a cut; then it is tried again, so many times in all.
const ATTEMPTS: usize = 3;

/// How an attempt to promote ended.
enum Attempt {
    /// The index has this root.
    Root(Tree),
    /// It is not worth a root, or there is no room for the cut.
    Declined,
    /// Somebody has merged over a cut.
    Again,
}

impl Tree {
    /// The tree to descend for `key`: of a promoted index its own, else this one. What [`Tree::seek`] and its neighbours
    /// find is the same from either; a descent from the index's own root is shorter.
    ///
    /// # Errors
    /// The pool's.
    pub fn owner(&self, pool: &BufferPool, key: &[u8]) -> Result<Tree> {
        Ok(self.owner_of(pool, key)?.tree)
    }

    /// As [`Tree::owner`], for who will change the tree's shape.
    pub(crate) fn owner_of(&self, pool: &BufferPool, key: &[u8]) -> Result<Owner> {
        Ok(self.leaf_and_owner(pool, key)?.1)
    }

    /// The leaf that covers `key`, and the tree that it belongs to.
    pub(crate) fn leaf_and_owner<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<(SharedPage<'p>, Owner)> {
        let mut promoted = None;
        let leaf = self.leaf_noting(pool, Target::At(key), &mut |step: Step| {
            if step.is_promoted_root() {
                promoted = Some(step);
            } else if step.page == self.root {
                promoted = None;
            }
        })?;
        let owner = match promoted {
            None => Owner { tree: *self, home_level: None },
            Some(step) => Owner { tree: Tree { space: self.space, root: step.page }, home_level: Some(step.at as u8) },
        };
        Ok((leaf, owner))
    }

    /// Gives an index of this pack tree a root of its own, beside whoever reads and writes it. `None` if that is not worth
    /// it (all is in one leaf) or others kept undoing it. The caller holds no latch and no mini-transaction.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and the pool's; the tree is whole then, and the index is where it was.
    pub fn promote(&self, pool: &BufferPool, index: IndexId) -> Result<Option<Tree>> {
        let Some(next) = index.0.checked_add(1) else { return Ok(None) };
        let (low, high) = (index.0.to_be_bytes(), next.to_be_bytes());
        if self.root != PACK_ROOT {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS {
            match self.promote_once(pool, &low, &high, usize::MAX)? {
                Attempt::Root(tree) => return Ok(Some(tree)),
                Attempt::Declined => return Ok(None),
                Attempt::Again => {}
            }
        }
        Ok(None)
    }

    /// Only the first so many steps, to see what a crash after them leaves.
    #[cfg(test)]
    pub(crate) fn promote_steps(&self, pool: &BufferPool, index: IndexId, steps: usize) -> Result<()> {
        self.promote_once(pool, &index.0.to_be_bytes(), &(index.0 + 1).to_be_bytes(), steps).map(|_| ())
    }

    fn promote_once(&self, pool: &BufferPool, low: &[u8; 4], high: &[u8; 4], mut steps: usize) -> Result<Attempt> {
        for level in 0..=HEIGHT_MAX as u8 {
            let owner = self.owner_of(pool, low)?;
            if owner.home_level.is_some() {
                return Ok(Attempt::Root(owner.tree));
            }
            for (key, end) in [(low, Some(high)), (high, None)] {
                let Some(left) = steps.checked_sub(1) else { return Ok(Attempt::Declined) };
                steps = left;
                match self.cut(pool, level, key, end)? {
                    Cut::Done => {}
                    Cut::NotBelow => return Ok(Attempt::Again),
                    Cut::NoRoom => return Ok(Attempt::Declined),
                }
            }
            let mut mtr = Mtr::start(pool)?;
            let Some(page) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(low), level)? else {
                return Ok(Attempt::Again);
            };
            if page::is_promoted_root(&page) || !begins_at(&page, low) {
                return Ok(Attempt::Again);
            }
            if page::is_rightmost(&page) {
                return Ok(Attempt::Again);
            }
            let end = page::high_stored(&page);
            if !is_boundary(end, high) {
                if end > &high[..] {
                    return Ok(Attempt::Again);
                }
                continue;
            }
            if level == 0 || steps == 0 {
                return Ok(Attempt::Declined);
            }
            let root = Tree { space: self.space, root: page.id().page };
            let page = mtr.adopt(page);
            set_root_flag(&mut mtr, page, true)?;
            mtr.commit()?;
            return Ok(Attempt::Root(root));
        }
        Err(Error::corrupt(self.root_id(), "the tree is too high"))
    }

    /// Makes `key`, an index id, a boundary between two pages of `level`, as it is on the level below. The index that begins
    /// there ends at `end`; `None`: it stays in the pack tree, and its new page must not keep an extent from being free
    /// that the promoted index leaves one day.
    fn cut(&self, pool: &BufferPool, level: u8, key: &[u8; 4], end: Option<&[u8; 4]>) -> Result<Cut> {
        for _ in 0..MOVES_MAX {
            // A promoted index with this id is bounded by it up to its root's place.
            if self.owner_of(pool, key)?.home_level.is_some_and(|home_level| level <= home_level) {
                return Ok(Cut::Done);
            }
            let mut mtr = Mtr::start(pool)?;
            let Some(parent) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(key), level + 1)? else {
                drop(mtr);
                self.as_owner().raise_root(pool, level)?;
                continue;
            };
            if page::is_promoted_root(&parent) {
                continue;
            }
            let parent = mtr.adopt(parent);
            let child_at = page::route(&Latched(mtr.page(parent)), Target::At(key));
            let child_id = self.id(page::child(mtr.page(parent), child_at));
            let child = mtr.fix(child_id)?;
            let p = mtr.page(child);
            if begins_at(p, key) {
                return Ok(Cut::Done);
            }
            if page::is_promoted_root(p) {
                return Ok(Cut::NotBelow);
            }
            self.expect(p, child_id, level)?;
            expect_order(p, child_id)?;
            let Some(point) = cut_point(p, key) else { return Ok(Cut::NotBelow) };
            if !halves_fit(p, &point) {
                return Ok(Cut::NoRoom);
            }
            if !page::fits_inner(mtr.page(parent), point.separator.len()) {
                drop(mtr);
                self.as_owner().make_room_for_separator(pool, level + 1, &point.separator)?;
                continue;
            }
            let near = match end {
                None => self.root,
                Some(_) if level == 0 => child_id.page,
                Some(end) => page::child(p, page::route(&Latched(p), Target::Before(end))),
            };
            match alloc::find(&mut mtr, self.space, Some(near))? {
                Found::Grow(growth) => {
                    drop(mtr);
                    alloc::grow(pool, self.space, growth)?;
                }
                Found::Page(candidate) => {
                    split(&mut mtr, parent, child_at, child, candidate, &point)?;
                    mtr.commit()?;
                    return Ok(Cut::Done);
                }
            }
        }
        Err(Error::corrupt(self.root_id(), "the way to an index does not lead to its root"))
    }

    /// Makes the root of a promoted index an ordinary page of this pack tree again, once the index has become small enough
    /// ([`Tree::remove_range`]); nothing happens if it is not promoted. Nobody may use the index's own tree any more, but
    /// descents from the pack root go on.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and the pool's; the index is promoted still then, and the same call goes on.
    /// [`Error::Invalid`] if the index is not small enough.
    pub fn demote(&self, pool: &BufferPool, index: IndexId) -> Result<()> {
        let low = index.0.to_be_bytes();
        let own = self.owner_of(pool, &low)?;
        let Some(home_level) = own.home_level else { return Ok(()) };
        loop {
            let mut mtr = Mtr::start(pool)?;
            let root = mtr.fix(own.tree.root_id())?;
            let p = mtr.page(root);
            let level = page::level(p);
            if !page::is_promoted_root(p) {
                return Err(Error::corrupt(own.tree.root_id(), "it is no root any more"));
            }
            if level > home_level {
                return Err(Error::invalid("demotion of an index that is not empty"));
            }
            if level == home_level {
                set_root_flag(&mut mtr, root, false)?;
                mtr.commit()?;
                break;
            }
            drop(mtr);
            own.raise_root(pool, level)?;
        }
        // An empty leaf under pages with no other child: inner pages merge with their neighbours, then what is below can.
        while self.merge_upwards(pool, &low, &|_| true)? {}
        Ok(())
    }
}

/// What [`Tree::cut`] found.
enum Cut {
    /// The key is a boundary.
    Done,
    /// It is none on the level below, or no longer.
    NotBelow,
    /// The halves would not fit: the fences got longer. Later, after an ordinary split.
    NoRoom,
}

/// Whether a fence or separator divides the same keys as `key`, an index id: no key is shorter than four bytes, so zeros at
/// its end make no difference.
pub(crate) fn is_boundary(fence: &[u8], key: &[u8]) -> bool {
    key.len() <= 4 && key.starts_with(fence) && key[fence.len()..].iter().all(|&b| b == 0)
}

/// Whether `key` is the page's lower end.
fn begins_at(p: &[u8], key: &[u8; 4]) -> bool {
    is_boundary(page::low_stored(p), key)
}

/// Where to split a page at `key`: anywhere in a leaf, on an inner page at a child that begins there.
fn cut_point(p: &[u8], key: &[u8; 4]) -> Option<SplitPoint> {
    let slot = page::find(p, key).unwrap_or_else(|slot| slot);
    if page::level(p) == 0 {
        return Some(SplitPoint { left_end: slot, right_first: slot, separator: key.to_vec() });
    }
    let near = slot.saturating_sub(1)..page::count(p).min(slot + 1);
    let (slot, separator) = near.map(|s| (s, page::key(p, s))).find(|(_, separator)| is_boundary(separator, key))?;
    Some(SplitPoint { left_end: slot, right_first: slot + 1, separator })
}

fn halves_fit(p: &[u8], point: &SplitPoint) -> bool {
    let fits = |range: std::ops::Range<usize>, low: &[u8], high: &[u8]| {
        let bytes = page::refenced_bytes(p, range, page::shared_prefix_len(low, high));
        bytes <= page::capacity(p.len(), low, high)
    };
    fits(0..point.left_end, page::low_stored(p), &point.separator)
        && fits(point.right_first..page::count(p), &point.separator, page::high_stored(p))
}

/// Changes nothing of a page but its flag [`ROOT`].
fn set_root_flag(mtr: &mut Mtr<'_>, page: PageRef, set: bool) -> Result<()> {
    let p = mtr.page(page);
    let old = page::fences(p);
    let flags = if set { old.flags | ROOT } else { old.flags & !ROOT };
    let bounds = Bounds { level: page::level(p), left: page::left_child(p), fences: Fences { flags, ..old } };
    let payload = redo::refence_payload(0, page::count(p), &bounds);
    mtr.apply(page, redo::REFENCE, &payload)
}
