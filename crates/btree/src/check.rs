//! Structural verification.

use crate::leaf::{Leaf, LeafShared};
use crate::page::{self, Target};
use crate::promote::is_boundary;
use crate::read_ahead::{Scan, READ_AHEAD_STEP};
use crate::tree::{Step, Tree};
use crate::{alloc, tree};
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{Error, PageId, PageNo, Result};
use myriad_buffer::{BufferPool, SharedPage};
use std::collections::BTreeSet;

/// Findings after which a check of a level stops.
const FINDINGS_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Leaves read.
    pub leaf_pages: u64,
    /// Inner pages read.
    pub inner_pages: u64,
    /// Entries seen.
    pub entries: u64,
    /// Bytes that entries, slots and fences use in the leaves.
    pub leaf_used_bytes: u64,
    /// What is wrong: page and reason.
    pub findings: Vec<(PageId, String)>,
}

impl Tree {
    /// Verifies the pages that cover `[lo, hi)` (`hi` empty: to the end), level by level: layout, order, that the pages of
    /// a level follow each other without gap or overlap and are where the level above says, that they are allocated; of
    /// promoted indexes in that range likewise.
    /// `on_leaf` is given each leaf, latched shared, to check values; an error of it ends the check. Runs beside the
    /// workload: entries may come twice, where leaves have been merged meanwhile.
    ///
    /// # Errors
    /// Those that keep the check from going on, and those of `on_leaf`; damage is a finding.
    pub fn check(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        on_leaf: &mut dyn FnMut(LeafShared<'_>) -> Result<()>,
    ) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let mut promoted = BTreeSet::new();
        let mut levels = |tree: &Tree, lo: &[u8], hi: &[u8], promoted: &mut BTreeSet<PageNo>| {
            Check { tree, pool, lo, hi, report: &mut report, promoted, on_leaf: &mut *on_leaf }.levels()
        };
        if self.promoted_range(pool)?.is_some() {
            promoted.insert(self.root);
        } else {
            levels(self, lo, hi, &mut promoted)?;
        }
        for root in promoted {
            let own = Tree { space: self.space, root };
            let Some((low, high)) = own.promoted_range(pool)? else { continue };
            let low = if lo > &low[..] { lo } else { &low };
            let high = if !hi.is_empty() && hi < &high[..] { hi } else { &high };
            levels(&own, low, high, &mut BTreeSet::new())?;
        }
        Ok(report)
    }

    /// The keys of a promoted index's tree; `None` if it is none (any more).
    fn promoted_range(&self, pool: &BufferPool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let root = pool.fix_shared(self.root_id())?;
        let found = root[OFF_KIND] == PageKind::Index as u8 && page::is_promoted_root(&root);
        Ok(found.then(|| (page::low_fence(&root).to_vec(), page::high_stored(&root).to_vec())))
    }
}

/// The check of one tree, but for promoted indexes on the way: they are passed over and noted.
struct Check<'a> {
    tree: &'a Tree,
    pool: &'a BufferPool,
    lo: &'a [u8],
    hi: &'a [u8],
    report: &'a mut CheckReport,
    promoted: &'a mut BTreeSet<PageNo>,
    on_leaf: &'a mut dyn FnMut(LeafShared<'_>) -> Result<()>,
}

/// Where the check of a level goes on.
enum Next {
    /// At this key, which is where the page before ends.
    Page(Vec<u8>),
    /// At this key, behind a promoted index.
    Behind(Vec<u8>),
    /// At the same key: it was another moment's.
    Again,
    End,
}

impl Check<'_> {
    fn levels(&mut self) -> Result<()> {
        let top = {
            let root = self.pool.fix_shared(self.tree.root_id())?;
            page::level(&root)
        };
        for level in (0..=top).rev() {
            self.level(level)?;
            if self.report.findings.len() >= FINDINGS_MAX {
                break;
            }
        }
        Ok(())
    }

    fn level(&mut self, level: u8) -> Result<()> {
        let mut at = self.lo.to_vec();
        // Where the page before began, once there is one.
        let mut previous: Option<Vec<u8>> = None;
        for turn in 0u64.. {
            if self.report.findings.len() >= FINDINGS_MAX {
                break;
            }
            if level == 0 && turn % u64::from(READ_AHEAD_STEP) == 0 {
                self.read_leaves_ahead(&at)?;
            }
            match self.step(level, &at, previous.as_deref())? {
                Next::Page(next) => previous = Some(std::mem::replace(&mut at, next)),
                Next::Behind(next) => (at, previous) = (next, None),
                Next::Again => {}
                Next::End => break,
            }
        }
        Ok(())
    }

    fn step(&mut self, level: u8, at: &[u8], previous: Option<&[u8]>) -> Result<Next> {
        let tree = self.tree;
        let mut root = None;
        let found = tree.at_level_noting::<SharedPage<'_>>(self.pool, Target::At(at), level, &mut |step: Step| {
            root = step.is_promoted_root().then_some(step.page).or(root.filter(|_| step.page != tree.root));
        });
        if let Some(root) = root {
            drop(found);
            return self.pass(root, at);
        }
        let next = match found {
            // The tree has become lower meanwhile.
            Ok(None) => return Ok(Next::End),
            Ok(Some(latched)) => self.page(level, latched, at, previous)?,
            Err(Error::CorruptPage { page, reason }) => {
                self.report.findings.push((page, reason));
                match self.next_by_parent(level, at)? {
                    Some(next) => next,
                    None => return Ok(Next::End),
                }
            }
            Err(e) => return Err(e),
        };
        if next.is_empty() || !self.hi.is_empty() && &next[..] >= self.hi {
            return Ok(Next::End);
        }
        if &next[..] <= at && !at.is_empty() {
            self.report.findings.push((tree.root_id(), format!("level {level} does not lead on from its fences")));
            return Ok(Next::End);
        }
        Ok(Next::Page(next))
    }

    /// Passes over a promoted index, whose root lies on the way to `at`.
    fn pass(&mut self, root: PageNo, at: &[u8]) -> Result<Next> {
        let own = Tree { space: self.tree.space, root };
        let Some((low, high)) = own.promoted_range(self.pool)? else { return Ok(Next::Again) };
        if &low[..] > at || &high[..] <= at {
            if self.tree.owner(self.pool, at)?.root != root {
                return Ok(Next::Again);
            }
            self.report.findings.push((own.root_id(), "the page is not where the level above says".into()));
            return Ok(Next::End);
        }
        self.promoted.insert(root);
        if !self.hi.is_empty() && (&high[..] >= self.hi || is_boundary(&high, self.hi)) {
            return Ok(Next::End);
        }
        Ok(Next::Behind(high))
    }

    /// Checks the page at `at`; tells where it ends.
    fn page(&mut self, level: u8, latched: SharedPage<'_>, at: &[u8], previous: Option<&[u8]>) -> Result<Vec<u8>> {
        let id = latched.id();
        if let Some(reason) = check_page(&latched, at) {
            self.report.findings.push((id, reason));
        }
        let gap = previous.filter(|_| page::low_fence(&latched) != at);
        let next = page::high_fence(&latched).to_vec();
        // While it is latched: later it may have been merged with its neighbour.
        if !alloc::is_in_use(self.pool, id)? {
            self.report.findings.push((id, "the page is in the tree but not allocated".into()));
        }
        self.count(level, LeafShared::new(latched))?;
        if let Some(before) = gap {
            self.check_gap(level, before, at)?;
        }
        Ok(next)
    }

    fn count(&mut self, level: u8, page: LeafShared<'_>) -> Result<()> {
        if level > 0 {
            self.report.inner_pages += 1;
            return Ok(());
        }
        self.report.leaf_pages += 1;
        self.report.entries += page.len() as u64;
        self.report.leaf_used_bytes += page.used_bytes() as u64;
        (self.on_leaf)(page)
    }

    /// Starts to read the leaves behind the one at `at`. A page on the way that is damaged is found when its turn comes.
    fn read_leaves_ahead(&self, at: &[u8]) -> Result<()> {
        match self.tree.read_ahead(self.pool, at, Scan::up(self.hi)) {
            Err(Error::CorruptPage { .. }) => Ok(()),
            other => other,
        }
    }

    /// The page at `at` does not begin there, where the one at `before` ended: a merge since then, or damage?
    fn check_gap(&mut self, level: u8, before: &[u8], at: &[u8]) -> Result<()> {
        let fence = |key: &[u8], high: bool| -> Result<Option<(PageId, Vec<u8>)>> {
            let found = self.tree.at_level::<SharedPage<'_>>(self.pool, Target::At(key), level)?;
            Ok(found.map(|p| (p.id(), if high { page::high_fence(&p) } else { page::low_fence(&p) }.to_vec())))
        };
        for _ in 0..3 {
            let (Some(left), Some(right)) = (fence(before, true)?, fence(at, false)?) else { return Ok(()) };
            if left.0 == right.0 || left.1 != at || right.1 == at {
                return Ok(());
            }
        }
        let id = fence(at, false)?.map_or(self.tree.root_id(), |f| f.0);
        self.report.findings.push((id, "the page does not begin where the one before it ends".into()));
        Ok(())
    }

    /// Where the page behind the (unreadable) one at `at` begins, as the level above says.
    fn next_by_parent(&self, level: u8, at: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.tree.at_level::<SharedPage<'_>>(self.pool, Target::At(at), level + 1) {
            Ok(Some(parent)) => {
                let next = page::route(&page::Latched(&parent), Target::At(at));
                if next < page::count(&parent) {
                    return Ok(Some(page::key(&parent, next)));
                }
                Ok(Some(page::high_fence(&parent).to_vec()).filter(|f| !f.is_empty()))
            }
            Ok(None) | Err(Error::CorruptPage { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn check_page(p: &[u8], at: &[u8]) -> Option<String> {
    if let Err(reason) = page::check_content(p) {
        return Some(reason);
    }
    if usize::from(page::level(p)) > tree::HEIGHT_MAX {
        return Some(format!("level {}", page::level(p)));
    }
    // The empty key stands for the lowest there is.
    if !at.is_empty() && !page::covers(p, at) || at.is_empty() && !page::is_leftmost(p) {
        return Some("the page is not where the level above says".into());
    }
    None
}
