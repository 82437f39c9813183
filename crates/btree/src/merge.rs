//! Giving back room: merges.
//!
//! A merge is one mini-transaction: parent X, two neighbours under it X from left to right, bitmap. A page goes together with its
//! left neighbour; where they do not fit, that one is let go and the right one latched. An inner root with one child takes over
//! the child's content and level. The root of a promoted index is never merged: its neighbours are other indexes' pages.

use crate::alloc;
use crate::leaf::LeafView;
use crate::page::{self, Fences, Latched, Target, LEFTMOST, RIGHTMOST, ROOT};
use crate::redo::{self, Bounds};
use crate::tree::{expect_order, Owner, Tree};
use myriad_base::{Error, PageId, Result};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr, PageRef};

/// Whether a leaf will not need more room than it does, but for what is new.
pub type Settled<'a> = &'a dyn Fn(&LeafView<'_>) -> bool;

/// Whether a page is worth a look at its neighbours, wherever they are.
fn is_sparse(p: &[u8]) -> bool {
    page::count(p) == 0 || p.len() - page::free_bytes(p) < p.len() / 4
}

/// Whether a leaf is worth a look at those of its neighbours that are in memory.
fn is_half_empty(p: &[u8]) -> bool {
    p.len() - page::free_bytes(p) < p.len() / 2
}

impl Tree {
    /// Merges the leaf that covers `key` with a neighbour if it has become half empty and both together leave some room, and so
    /// on upwards. The caller holds no latch and no mini-transaction.
    ///
    /// # Errors
    /// The pool's.
    pub fn merge_if_sparse(&self, pool: &BufferPool, key: &[u8]) -> Result<()> {
        self.merge_upwards(pool, key, &|_| true).map(|_| ())
    }

    /// As [`Tree::merge_if_sparse`], but of leaves only where `settled` holds for both.
    ///
    /// # Errors
    /// The pool's.
    pub fn merge_if_settled(&self, pool: &BufferPool, key: &[u8], settled: Settled<'_>) -> Result<()> {
        self.merge_upwards(pool, key, settled).map(|_| ())
    }

    /// Whether anything was merged.
    pub(crate) fn merge_upwards(&self, pool: &BufferPool, key: &[u8], settled: Settled<'_>) -> Result<bool> {
        let (leaf, owner) = self.leaf_and_owner(pool, key)?;
        let absent_too = is_sparse(&leaf);
        if leaf.id() == owner.tree.root_id() || !absent_too && !is_half_empty(&leaf) {
            return Ok(false);
        }
        drop(leaf);
        let (mut any, mut level) = (false, 0);
        loop {
            match owner.merge_at(pool, key, level, settled, absent_too)? {
                Merge::None => return Ok(any),
                Merge::Above => level += 1,
                Merge::LastTwo => any = true,
                Merge::Done { upwards: true } => (any, level) = (true, level + 1),
                Merge::Done { upwards: false } => return Ok(true),
            }
        }
    }
}

impl Owner {
    /// Merges the page of `level` that covers `key` with a neighbour if they fit; with one that is not in memory only if
    /// `absent_too`.
    fn merge_at(
        &self,
        pool: &BufferPool,
        key: &[u8],
        level: u8,
        settled: Settled<'_>,
        absent_too: bool,
    ) -> Result<Merge> {
        let mut mtr = Mtr::start(pool)?;
        let Some(parent) = self.at_level::<ExclusivePage<'_>>(pool, Target::At(key), level + 1)? else {
            return Ok(Merge::None);
        };
        let Some(parent_is_root) = self.is_root(parent.id(), &parent) else { return Ok(Merge::None) };
        if !parent_is_root && page::is_promoted_root(&parent) {
            // Promoted since the tree's owner was looked for: whoever comes next merges.
            return Ok(Merge::None);
        }
        let parent = mtr.adopt(parent);
        let n = page::count(mtr.page(parent));
        if n == 0 {
            return if parent_is_root { self.collapse_root(mtr, parent) } else { Ok(Merge::Above) };
        }
        let covering = page::route(&Latched(mtr.page(parent)), Target::At(key));
        let Some(Pair { at, left: (left, left_id), right: (right, right_id), plan }) =
            self.pair(&mut mtr, parent, covering, level, absent_too)?
        else {
            return Ok(Merge::None);
        };
        let is_settled = |bytes, id| settled(&LeafView { bytes, id });
        if level == 0 && !(is_settled(mtr.page(left), left_id) && is_settled(mtr.page(right), right_id)) {
            return Ok(Merge::None);
        }
        let freeing = alloc::prepare_free(&mut mtr, if plan.keep_right { left_id } else { right_id })?;
        if plan.keep_right {
            mtr.apply(right, redo::REFENCE, &plan.refence)?;
            mtr.apply(left, redo::RELEASE, &[])?;
            let mut set = Vec::from((at as u16).to_le_bytes());
            set.extend_from_slice(&right_id.page.0.to_le_bytes());
            mtr.apply(parent, redo::SET_CHILD, &set)?;
        } else {
            mtr.apply(left, redo::REFENCE, &plan.refence)?;
            mtr.apply(left, redo::APPEND, &plan.append)?;
            mtr.apply(right, redo::RELEASE, &[])?;
        }
        mtr.apply(parent, redo::REMOVE, &(at as u16).to_le_bytes())?;
        alloc::free(&mut mtr, freeing)?;
        let p = mtr.page(parent);
        let done = match (page::count(p), parent_is_root) {
            (0, true) => Merge::LastTwo,
            (_, is_root) => Merge::Done { upwards: !is_root && is_sparse(p) },
        };
        mtr.commit()?;
        Ok(done)
    }

    /// Child number `covering` of `parent` and the neighbour that it can be merged with: the left one, which who deletes upwards
    /// has left sparse, or else the right one.
    fn pair(
        &self,
        mtr: &mut Mtr<'_>,
        parent: PageRef,
        covering: usize,
        level: u8,
        absent_too: bool,
    ) -> Result<Option<Pair>> {
        let count = page::count(mtr.page(parent));
        let mut before: Option<(PageRef, PageId)> = None;
        for at in covering.saturating_sub(1)..=count.min(covering + 1) {
            let id = self.tree.id(page::child(mtr.page(parent), at));
            if !absent_too && at != covering && !mtr.pool().is_resident(id) {
                continue;
            }
            let child = mtr.fix(id)?;
            // Other indexes' pages, and those of one that was promoted since the tree's owner was looked for.
            if page::is_promoted_root(mtr.page(child)) {
                if at >= covering {
                    break;
                }
                mtr.release_unchanged(child);
                continue;
            }
            self.tree.expect(mtr.page(child), id, level)?;
            if let Some((left, left_id)) = before {
                let (left_page, right_page) = ((mtr.page(left), left_id), (mtr.page(child), id));
                if let Some(plan) = Plan::new(mtr.page(parent), at - 1, left_page, right_page)? {
                    return Ok(Some(Pair { at: at - 1, left: (left, left_id), right: (child, id), plan }));
                }
                mtr.release_unchanged(left);
            }
            before = Some((child, id));
        }
        Ok(None)
    }

    /// The root has a single child: it takes over its content, until it has more than one or is a leaf.
    fn collapse_root(&self, mut mtr: Mtr<'_>, root: PageRef) -> Result<Merge> {
        let pool = mtr.pool();
        let child_id = self.tree.id(page::left_child(mtr.page(root)));
        let level = page::level(mtr.page(root)) - 1;
        let child = mtr.fix(child_id)?;
        if page::is_promoted_root(mtr.page(child)) {
            return Ok(Merge::None);
        }
        self.tree.expect(mtr.page(child), child_id, level)?;
        expect_order(mtr.page(child), child_id)?;
        let freeing = alloc::prepare_free(&mut mtr, child_id)?;
        let own = mtr.page(root)[page::OFF_FLAGS] & ROOT;
        let p = mtr.page(child);
        let content = redo::copy_payload(p, p[page::OFF_FLAGS] | own);
        mtr.apply(root, redo::LOAD, &content)?;
        mtr.apply(child, redo::RELEASE, &[])?;
        alloc::free(&mut mtr, freeing)?;
        mtr.commit()?;
        // Again, unless somebody has given the root more children meanwhile.
        let mut mtr = Mtr::start(pool)?;
        let root = mtr.fix(self.tree.root_id())?;
        let p = mtr.page(root);
        if page::level(p) > 0 && page::count(p) == 0 && self.is_root(self.tree.root_id(), p).is_some() {
            return self.collapse_root(mtr, root);
        }
        Ok(Merge::Done { upwards: false })
    }
}

/// Checks, before two pages become one, that they are neighbours, with `separator` between them in their parent.
fn expect_neighbours(separator: &[u8], left: &[u8], (right, right_id): (&[u8], PageId)) -> Result<()> {
    let is_above = page::is_leftmost(left) || page::low_stored(left) < separator;
    let is_below = page::is_rightmost(right) || separator < page::high_stored(right);
    let meet =
        !page::is_rightmost(left) && !page::is_leftmost(right) && page::high_stored(left) == page::low_stored(right);
    match meet && is_above && is_below {
        true => Ok(()),
        false => Err(Error::corrupt(right_id, "its fences are not those of its neighbour and their parent")),
    }
}

/// What [`Tree::merge_at`] did.
enum Merge {
    /// Nothing.
    None,
    /// Nothing here, as there is no neighbour under this parent; perhaps the level above gets one.
    Above,
    /// Two pages became one; whether the level above wants the same.
    Done { upwards: bool },
    /// Two pages became one, which is the root's only child.
    LastTwo,
}

/// Two neighbours that can be merged, latched.
struct Pair {
    /// The number of the left one.
    at: usize,
    left: (PageRef, PageId),
    right: (PageRef, PageId),
    plan: Plan,
}

/// How two neighbours become one.
struct Plan {
    /// Whether the right one stays (the left one is an empty leaf).
    keep_right: bool,
    /// New bounds of the one that stays.
    refence: Vec<u8>,
    /// What the left one gets of the right one.
    append: Vec<u8>,
}

impl Plan {
    /// The children number `at` and `at + 1` of `parent` become one, if they fit with some room left, or one is empty.
    /// That they are neighbours and in order is looked at once they fit: most do not.
    ///
    /// # Errors
    /// [`Error::CorruptPage`].
    fn new(
        parent: &[u8],
        at: usize,
        (left, left_id): (&[u8], PageId),
        (right, right_id): (&[u8], PageId),
    ) -> Result<Option<Plan>> {
        let level = page::level(left);
        let (low, high) = (page::low_stored(left), page::high_stored(right));
        let flags = left[page::OFF_FLAGS] & LEFTMOST | right[page::OFF_FLAGS] & RIGHTMOST;
        let fences = Fences { low, high, flags };
        let prefix = page::shared_prefix_len(low, high);
        let (n_left, n_right) = (page::count(left), page::count(right));
        let separator = page::key(parent, at);
        let mut bytes = page::refenced_bytes(left, 0..n_left, prefix) + page::refenced_bytes(right, 0..n_right, prefix);
        if level > 0 {
            bytes += page::entry_bytes(level, separator.len().saturating_sub(prefix), 4) + page::SLOT_BYTES;
        }
        let capacity = page::capacity(left.len(), low, high);
        let one_empty = n_left == 0 || n_right == 0;
        if bytes > if one_empty { capacity } else { capacity / 4 * 3 } {
            return Ok(None);
        }
        expect_order(left, left_id)?;
        expect_order(right, right_id)?;
        expect_neighbours(&separator, left, (right, right_id))?;
        let keep_right = level == 0 && n_left == 0;
        let bounds = Bounds { level, left: page::left_child(left), fences };
        let refence = redo::refence_payload(0, if keep_right { n_right } else { n_left }, &bounds);
        let mut append = Vec::new();
        if !keep_right {
            if level > 0 {
                redo::push_inner_entry(&mut append, &separator[prefix..], page::left_child(right));
            }
            redo::push_slots(&mut append, right, 0..n_right, prefix);
        }
        Ok(Some(Plan { keep_right, refence, append }))
    }
}
