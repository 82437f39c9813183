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
        if self.promoted_range(pool)?.is_some() {
            promoted.insert(self.root);
        } else {
            self.check_levels(pool, lo, hi, &mut report, &mut promoted, on_leaf)?;
        }
        for root in promoted {
            let own = Tree { space: self.space, root };
            let Some((low, high)) = own.promoted_range(pool)? else { continue };
            let low = if lo > &low[..] { lo } else { &low };
            let high = if !hi.is_empty() && hi < &high[..] { hi } else { &high };
            own.check_levels(pool, low, high, &mut report, &mut BTreeSet::new(), on_leaf)?;
        }
        Ok(report)
    }

    /// The keys of a promoted index's tree; `None` if it is none (any more).
    fn promoted_range(&self, pool: &BufferPool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let root = pool.fix_shared(self.root_id())?;
        let found = root[OFF_KIND] == PageKind::Index as u8 && page::is_promoted_root(&root);
        Ok(found.then(|| (page::low_fence(&root).to_vec(), page::high_stored(&root).to_vec())))
    }

    /// As [`Tree::check`], but that promoted indexes on the way are passed over and noted.
    fn check_levels(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        report: &mut CheckReport,
        promoted: &mut BTreeSet<PageNo>,
        on_leaf: &mut dyn FnMut(LeafShared<'_>) -> Result<()>,
    ) -> Result<()> {
        let top = {
            let root = pool.fix_shared(self.root_id())?;
            page::level(&root)
        };
        for level in (0..=top).rev() {
            self.check_level(pool, level, lo, hi, report, promoted, on_leaf)?;
            if report.findings.len() >= FINDINGS_MAX {
                break;
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn check_level(
        &self,
        pool: &BufferPool,
        level: u8,
        lo: &[u8],
        hi: &[u8],
        report: &mut CheckReport,
        promoted: &mut BTreeSet<PageNo>,
        on_leaf: &mut dyn FnMut(LeafShared<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = lo.to_vec();
        // Where the page before began, once there is one.
        let mut previous: Option<Vec<u8>> = None;
        for turn in 0u64.. {
            if report.findings.len() >= FINDINGS_MAX {
                break;
            }
            if level == 0 && turn % u64::from(READ_AHEAD_STEP) == 0 {
                self.read_leaves_ahead(pool, &at, hi)?;
            }
            let mut root = None;
            let found = self.at_level_noting::<SharedPage<'_>>(pool, Target::At(&at), level, &mut |step: Step| {
                root = step.is_promoted_root().then_some(step.page).or(root.filter(|_| step.page != self.root));
            });
            if let Some(root) = root {
                drop(found);
                let Some((low, high)) = (Tree { space: self.space, root }).promoted_range(pool)? else { continue };
                if low > at || high <= at {
                    if self.owner(pool, &at)?.root != root {
                        continue;
                    }
                    report.findings.push((self.id(root), "the page is not where the level above says".into()));
                    return Ok(());
                }
                promoted.insert(root);
                if !hi.is_empty() && (&high[..] >= hi || is_boundary(&high, hi)) {
                    return Ok(());
                }
                (at, previous) = (high, None);
                continue;
            }
            let next = match found {
                // The tree has become lower meanwhile.
                Ok(None) => return Ok(()),
                Ok(Some(latched)) => {
                    let id = latched.id();
                    if let Some(reason) = check_page(&latched, &at) {
                        report.findings.push((id, reason));
                    }
                    let gap = previous.is_some() && page::low_fence(&latched) != &at[..];
                    let next = page::high_fence(&latched).to_vec();
                    // While it is latched: later it may have been merged with its neighbour.
                    if !alloc::is_in_use(pool, id)? {
                        report.findings.push((id, "the page is in the tree but not allocated".into()));
                    }
                    count(report, level, LeafShared::new(latched), on_leaf)?;
                    if let (true, Some(before)) = (gap, &previous) {
                        self.check_gap(pool, level, before, &at, report)?;
                    }
                    next
                }
                Err(Error::CorruptPage { page, reason }) => {
                    report.findings.push((page, reason));
                    match self.next_by_parent(pool, level, &at)? {
                        Some(next) => next,
                        None => return Ok(()),
                    }
                }
                Err(e) => return Err(e),
            };
            if next.is_empty() || !hi.is_empty() && &next[..] >= hi {
                return Ok(());
            }
            if next <= at && !at.is_empty() {
                report.findings.push((self.root_id(), format!("level {level} does not lead on from its fences")));
                return Ok(());
            }
            previous = Some(std::mem::replace(&mut at, next));
        }
        Ok(())
    }

    /// Starts to read the leaves behind the one at `at`. A page on the way that is damaged is found when its turn comes.
    fn read_leaves_ahead(&self, pool: &BufferPool, at: &[u8], hi: &[u8]) -> Result<()> {
        match self.read_ahead(pool, at, Scan::up(hi)) {
            Err(Error::CorruptPage { .. }) => Ok(()),
            other => other,
        }
    }

    /// The page at `at` does not begin there, where the one at `before` ended: a merge since then, or damage?
    fn check_gap(
        &self,
        pool: &BufferPool,
        level: u8,
        before: &[u8],
        at: &[u8],
        report: &mut CheckReport,
    ) -> Result<()> {
        let fence = |key: &[u8], high: bool| -> Result<Option<(PageId, Vec<u8>)>> {
            let found = self.at_level::<SharedPage<'_>>(pool, Target::At(key), level)?;
            Ok(found.map(|p| (p.id(), if high { page::high_fence(&p) } else { page::low_fence(&p) }.to_vec())))
        };
        for _ in 0..3 {
            let (Some(left), Some(right)) = (fence(before, true)?, fence(at, false)?) else { return Ok(()) };
            if left.0 == right.0 || left.1 != at || right.1 == at {
                return Ok(());
            }
        }
        let id = fence(at, false)?.map_or(self.root_id(), |f| f.0);
        report.findings.push((id, "the page does not begin where the one before it ends".into()));
        Ok(())
    }

    /// Where the page behind the (unreadable) one at `at` begins, as the level above says.
    fn next_by_parent(&self, pool: &BufferPool, level: u8, at: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.at_level::<SharedPage<'_>>(pool, Target::At(at), level + 1) {
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

fn count(
    report: &mut CheckReport,
    level: u8,
    page: LeafShared<'_>,
    on_leaf: &mut dyn FnMut(LeafShared<'_>) -> Result<()>,
) -> Result<()> {
    if level > 0 {
        report.inner_pages += 1;
        return Ok(());
    }
    report.leaf_pages += 1;
    report.entries += page.len() as u64;
    report.leaf_used_bytes += page.used_bytes() as u64;
    on_leaf(page)
}
