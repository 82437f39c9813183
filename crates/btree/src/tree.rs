//! Trees: names, descent and seeks. How a tree changes its shape: [`crate::split`], [`crate::merge`], [`crate::remove`].
//!
//! A descent reads inner pages without latching them (optimistic lock coupling: Leis et al., 2019): a child's number counts
//! once the parent has been validated, and a child counts once the parent has been validated again after the child was
//! latched or its version taken. After [`RESTARTS_MAX`] failures in a row it latches shared from the root, parent until
//! child.

use crate::alloc::{self, Found};
use crate::leaf::{LeafExclusive, LeafShared};
use crate::page::{self, Latched, Target, Unlatched};
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{Error, IndexId, PageId, PageNo, Result, SpaceId};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr, OptimisticPage, SharedPage};

/// Failed optimistic descents after which a descent takes latches.
const RESTARTS_MAX: usize = 16;
/// Deepest tree. With at least two children a page and 2^32 pages none is deeper; a damaged one may loop.
pub(crate) const HEIGHT_MAX: usize = 40;

/// A tree's name: its tablespace and the page number of its root, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// Tablespace.
    pub space: SpaceId,
    /// Root page.
    pub root: PageNo,
}

/// How far [`Tree::remove_range`] or [`Tree::destroy`] came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveProgress {
    /// Nothing is left in the range.
    Done,
    /// The budget is used up; call again (the same range will do).
    More,
}

/// The tree that holds a key: see [`Tree::owner_of`].
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub tree: Tree,
    /// Of a promoted index: the level that its root has in the eyes of the pack tree, which stays. The root may cease to be
    /// one at any moment, as the index may be dropped: whoever treats a page as that root sees to the flag.
    pub home_level: Option<u8>,
}

impl Owner {
    /// Whether this page, which is latched, is the tree's root; `None` if it was and is none any more.
    pub fn is_root(&self, id: PageId, p: &[u8]) -> Option<bool> {
        let is_root = id == self.tree.root_id();
        (!is_root || self.home_level.is_none() || page::is_promoted_root(p)).then_some(is_root)
    }

    /// As [`Tree::at_level`]; `None` also where what was the tree's root is no page of a tree any more.
    pub fn at_level<'p, P: Latch<'p>>(&self, pool: &'p BufferPool, target: Target<'_>, level: u8) -> Result<Option<P>> {
        match self.tree.at_level(pool, target, level) {
            // Were it damaged, the way here would have led through it.
            Err(Error::CorruptPage { page, .. }) if self.home_level.is_some() && page == self.tree.root_id() => {
                Ok(None)
            }
            found => found,
        }
    }
}

impl Tree {
    /// The pack tree of a tablespace, made by [`crate::alloc::create_space_layout`].
    pub const fn pack(space: SpaceId) -> Tree {
        Tree { space, root: crate::alloc::PACK_ROOT }
    }

    /// The root's page.
    pub fn root_id(&self) -> PageId {
        PageId::new(self.space, self.root)
    }

    /// A new, empty tree with a root of its own. In its own mini-transaction.
    ///
    /// # Errors
    /// [`myriad_base::Error::DiskFull`] and the pool's; nothing is changed then.
    pub fn create(pool: &BufferPool, space: SpaceId) -> Result<Tree> {
        Tree::create_within(pool, space, &[], &[])
    }

    /// As [`Tree::create`], for one index: every key must begin with its id, which each page then stores once.
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn create_for(pool: &BufferPool, space: SpaceId, index: IndexId) -> Result<Tree> {
        // Trailing zeros of the successor would only make it longer: no key lies between.
        let next = index.0.checked_add(1).map(u32::to_be_bytes);
        let high = next.as_ref().map_or(&[][..], |b| &b[..4 - (u32::from_be_bytes(*b).trailing_zeros() / 8) as usize]);
        Tree::create_within(pool, space, &index.0.to_be_bytes(), high)
    }

    fn create_within(pool: &BufferPool, space: SpaceId, low: &[u8], high: &[u8]) -> Result<Tree> {
        loop {
            let mut mtr = Mtr::start(pool)?;
            match alloc::find(&mut mtr, space, None)? {
                Found::Grow(growth) => {
                    drop(mtr);
                    alloc::grow(pool, space, growth)?;
                }
                Found::Page(candidate) => {
                    let root = candidate.page().page;
                    let page = alloc::take(&mut mtr, candidate, PageKind::Index)?;
                    alloc::format_root(&mut mtr, page, low, high)?;
                    mtr.commit()?;
                    return Ok(Tree { space, root });
                }
            }
        }
    }

    /// The leaf that covers `key`, latched shared. The empty key is below all others.
    ///
    /// # Errors
    /// The pool's; [`myriad_base::Error::CorruptPage`].
    pub fn seek<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafShared<'p>> {
        Ok(LeafShared::new(self.leaf(pool, Target::At(key))?))
    }

    /// The leaf that covers the keys just below `key`, latched shared. For the tree's lowest bound, its first leaf.
    ///
    /// # Errors
    /// As [`Tree::seek`].
    pub fn seek_before<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafShared<'p>> {
        Ok(LeafShared::new(self.leaf(pool, Target::Before(key))?))
    }

    /// The leaf that covers `key`, latched exclusively.
    ///
    /// # Errors
    /// As [`Tree::seek`].
    pub fn seek_exclusive<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafExclusive<'p>> {
        Ok(LeafExclusive { page: self.leaf(pool, Target::At(key))? })
    }

    /// The page of the leaf that covers `key`, if it is not in memory, and the level above latched shared: while that latch
    /// is held the leaf stays the one that covers the key. `None` also where the tree's root is a page of another tree by now.
    ///
    /// # Errors
    /// As [`Tree::seek`].
    pub fn absent_leaf<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<Option<(SharedPage<'p>, PageId)>> {
        let target = Target::At(key);
        let Some(parent) = self.at_level::<SharedPage<'p>>(pool, target, 1)? else { return Ok(None) };
        if !page::covers(&parent, key) {
            return Ok(None);
        }
        let leaf = self.id(page::child(&parent, page::route(&Latched(&parent), target)));
        Ok((!pool.is_resident(leaf)).then_some((parent, leaf)))
    }

    pub(crate) fn id(&self, page: PageNo) -> PageId {
        PageId::new(self.space, page)
    }

    /// The leaf on the way to `target`, latched as `P` says.
    #[inline]
    fn leaf<'p, P: Latch<'p>>(&self, pool: &'p BufferPool, target: Target<'_>) -> Result<P> {
        self.leaf_noting(pool, target, &mut |_| ())
    }

    /// As [`Tree::leaf`]; `note` is told of the way.
    #[inline]
    pub(crate) fn leaf_noting<'p, P: Latch<'p>>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        note: &mut impl Note,
    ) -> Result<P> {
        match self.at_level_noting(pool, target, 0, note)? {
            Some(leaf) => Ok(leaf),
            None => unreachable!("every tree has level 0"),
        }
    }

    /// The page of `level` on the way to `target`, latched as `P` says; `None` if the tree is not that high.
    #[inline]
    pub(crate) fn at_level<'p, P: Latch<'p>>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<P>> {
        self.at_level_noting(pool, target, level, &mut |_| ())
    }

    /// As [`Tree::at_level`]; `note` is told of the way.
    #[inline]
    pub(crate) fn at_level_noting<'p, P: Latch<'p>>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        level: u8,
        note: &mut impl Note,
    ) -> Result<Option<P>> {
        for _ in 0..RESTARTS_MAX {
            match self.descend(pool, target, level, note)? {
                Descent::Found(page) => return Ok(Some(page)),
                Descent::TooLow => return Ok(None),
                Descent::Restart => std::hint::spin_loop(),
            }
        }
        self.descend_latched(pool, target, level, note)
    }

    /// One optimistic descent.
    fn descend<'p, P: Latch<'p>>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        level: u8,
        note: &mut impl Note,
    ) -> Result<Descent<P>> {
        let page_size = pool.page_size();
        let mut page = pool.optimistic(self.root_id())?;
        let (kind, mut here) = (page.u8(OFF_KIND), page.u8(page::OFF_LEVEL));
        if !page.validate() {
            return Ok(Descent::Restart);
        }
        if kind != PageKind::Index as u8 {
            return Err(Error::corrupt(page.id(), "the root of a tree is not an index page"));
        }
        if here < level {
            return Ok(Descent::TooLow);
        }
        if here == level {
            return Ok(P::upgrade(page).map_or(Descent::Restart, Descent::Found));
        }
        let mut promoted = false;
        loop {
            let view = Unlatched { page, page_size };
            let at = page::route(&view, target);
            let child = page::routed_child(&view, at);
            let of = usize::from(page.u16(page::OFF_COUNT)) + 1;
            if !page.validate() {
                return Ok(Descent::Restart);
            }
            note.step(Step { page: page.id().page, at, of });
            let id = self.id(child);
            here -= 1;
            if here == level {
                note.arriving(self, pool, &view, at);
                let latched = P::fix(pool, id);
                if !page.validate() {
                    return Ok(Descent::Restart);
                }
                let latched = latched?;
                if !is_root_of_other_level(&latched, level) {
                    self.expect(&latched, id, here)?;
                    note_if_promoted(&latched, id, here, note);
                    return Ok(Descent::Found(latched));
                }
            }
            let next = pool.optimistic(id);
            if !page.validate() {
                return Ok(Descent::Restart);
            }
            let next = next?;
            let [kind, level_found, flags, _] = next.u32(OFF_KIND).to_le_bytes();
            if !next.validate() {
                return Ok(Descent::Restart);
            }
            if here == level && flags & page::ROOT == 0 {
                return Ok(Descent::Restart); // it was a promoted root a moment ago
            }
            if flags & page::ROOT != 0 && kind == PageKind::Index as u8 {
                if std::mem::replace(&mut promoted, true) {
                    return Err(second_promoted_root(id));
                }
                note.step(Step::promoted_root(id.page, here));
                here = level_found;
                if here < level {
                    return Ok(Descent::TooLow);
                }
                if here == level {
                    return Ok(P::upgrade(next).map_or(Descent::Restart, Descent::Found));
                }
            } else if kind != PageKind::Index as u8 || level_found != here {
                return Err(wrong_page(id, kind, level_found, here));
            }
            page = next;
        }
    }

    /// A descent with shared latches, parent until child.
    #[cold]
    pub(crate) fn descend_latched<'p, P: Latch<'p>>(
        &self,
        pool: &'p BufferPool,
        target: Target<'_>,
        level: u8,
        note: &mut impl Note,
    ) -> Result<Option<P>> {
        for _ in 0..1_000_000 {
            let mut page = pool.fix_shared(self.root_id())?;
            let mut here = page::level(&page);
            if page[OFF_KIND] != PageKind::Index as u8 || usize::from(here) > HEIGHT_MAX {
                return Err(Error::corrupt(page.id(), "not the root of a tree"));
            }
            if here < level {
                return Ok(None);
            }
            if here == level {
                drop(page);
                let root = P::fix(pool, self.root_id())?;
                if page::level(&root) == level {
                    return Ok(Some(root));
                }
                continue;
            }
            let mut promoted = false;
            loop {
                let at = page::route(&Latched(&page), target);
                note.step(Step { page: page.id().page, at, of: page::count(&page) + 1 });
                let id = self.id(page::child(&page, at));
                if id == page.id() {
                    return Err(Error::corrupt(id, "the page is a child of its own"));
                }
                here -= 1;
                if here == level {
                    let latched = P::fix(pool, id)?;
                    if !is_root_of_other_level(&latched, level) {
                        self.expect(&latched, id, here)?;
                        note_if_promoted(&latched, id, here, note);
                        return Ok(Some(latched));
                    }
                }
                let next = pool.fix_shared(id)?;
                if page::is_promoted_root(&next) && next[OFF_KIND] == PageKind::Index as u8 {
                    if std::mem::replace(&mut promoted, true) {
                        return Err(second_promoted_root(id));
                    }
                    note.step(Step::promoted_root(id.page, here));
                    here = page::level(&next);
                    if here < level {
                        return Ok(None);
                    }
                    if here == level {
                        drop(next);
                        let root = P::fix(pool, id)?;
                        if page::level(&root) == level && page::is_promoted_root(&root) {
                            return Ok(Some(root));
                        }
                        break;
                    }
                } else if here == level {
                    break; // it was a promoted root a moment ago
                } else {
                    self.expect(&next, id, here)?;
                }
                page = next;
            }
        }
        Err(Error::corrupt(self.root_id(), "the root keeps changing its level"))
    }

    /// Checks that a page reached through its parent is what the parent says.
    pub(crate) fn expect(&self, p: &[u8], id: PageId, level: u8) -> Result<()> {
        if p[OFF_KIND] != PageKind::Index as u8 || page::level(p) != level {
            return Err(wrong_page(id, p[OFF_KIND], page::level(p), level));
        }
        Ok(())
    }
}

/// Checks, before a change that moves entries of a page to another, what that relies on.
pub(crate) fn expect_order(p: &[u8], id: PageId) -> Result<()> {
    page::check_order(p).map_err(|reason| Error::corrupt(id, reason))
}

/// Whether a page that a parent calls one of `level` is the root of a promoted index, which is of a level of its own.
#[inline]
fn is_root_of_other_level(p: &[u8], level: u8) -> bool {
    page::level(p) != level && page::is_promoted_root(p) && p[OFF_KIND] == PageKind::Index as u8
}

/// No leaf is a promoted root in the eyes of its parent: [`Tree::promote`] takes inner pages.
#[inline]
fn note_if_promoted(p: &[u8], id: PageId, level: u8, note: &mut impl Note) {
    if level > 0 && page::is_promoted_root(p) {
        note.step(Step::promoted_root(id.page, level));
    }
}

#[cold]
fn wrong_page(id: PageId, kind: u8, found: u8, expected: u8) -> Error {
    Error::corrupt(id, format!("kind {kind} level {found}, where an index page of level {expected} belongs"))
}

/// A promoted root is a child of the pack tree's pages only. Where another one takes its place the levels no longer fall at
/// each step, and a descent might never end.
#[cold]
fn second_promoted_root(id: PageId) -> Error {
    Error::corrupt(id, "the root of a promoted index within a promoted index")
}

/// Who is told of a descent.
pub(crate) trait Note {
    /// A step of the way. One of the tree's root means that the way began anew.
    fn step(&mut self, step: Step);

    /// The page at the end of the way, child `at` of `parent`, is about to be fixed. No latch is held; what is read of the
    /// parent counts once it has been validated.
    #[inline]
    fn arriving(&mut self, tree: &Tree, pool: &BufferPool, parent: &Unlatched<'_>, at: usize) {
        let _ = (tree, pool, parent, at);
    }
}

impl<F: FnMut(Step)> Note for F {
    #[inline]
    fn step(&mut self, step: Step) {
        self(step);
    }
}

/// One level of the way to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub page: PageNo,
    /// The number of the child taken, and of how many; in a leaf the slot, and of how many.
    pub at: usize,
    pub of: usize,
}

impl Step {
    /// The way enters a promoted index, whose root takes the place of a page of `level` in the pack tree.
    fn promoted_root(page: PageNo, level: u8) -> Step {
        Step { page, at: usize::from(level), of: 0 }
    }

    /// Whether this is no step but the root of a promoted index, from where the levels are that index's own; `at` is then
    /// the level that it would have in the pack tree.
    pub fn is_promoted_root(&self) -> bool {
        self.of == 0
    }
}

/// Outcome of an optimistic descent.
enum Descent<P> {
    Found(P),
    /// The tree is not as high as that.
    TooLow,
    /// Somebody changed a page on the way.
    Restart,
}

/// A way to hold a page at the end of a descent.
pub(crate) trait Latch<'p>: Sized + std::ops::Deref<Target = [u8]> {
    fn fix(pool: &'p BufferPool, id: PageId) -> Result<Self>;
    fn upgrade(page: OptimisticPage<'p>) -> Option<Self>;
}

impl<'p> Latch<'p> for SharedPage<'p> {
    #[inline]
    fn fix(pool: &'p BufferPool, id: PageId) -> Result<Self> {
        pool.fix_shared(id)
    }
    #[inline]
    fn upgrade(page: OptimisticPage<'p>) -> Option<Self> {
        page.lock_shared()
    }
}

impl<'p> Latch<'p> for ExclusivePage<'p> {
    #[inline]
    fn fix(pool: &'p BufferPool, id: PageId) -> Result<Self> {
        pool.fix_exclusive(id)
    }
    #[inline]
    fn upgrade(page: OptimisticPage<'p>) -> Option<Self> {
        page.lock_exclusive()
    }
}
