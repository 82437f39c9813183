//! Structural verification.

use crate::leaf::{Leaf, LeafShared};
use crate::page::{self, Target};
use crate::tree::Tree;
use crate::{alloc, tree};
use myriad_base::{Error, PageId, Result};
use myriad_buffer::{BufferPool, SharedPage};

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
    /// a level follow each other without gap or overlap and are where the level above says, that they are allocated.
    /// `on_leaf` sees each leaf, latched shared, to check values. Runs beside the
    /// workload.
    ///
    /// # Errors
    /// Those that keep the check from going on; damage is a finding.
    pub fn check(
        &self,
        pool: &BufferPool,
        lo: &[u8],
        hi: &[u8],
        on_leaf: &mut dyn FnMut(&LeafShared<'_>),
    ) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let top = {
            let root = pool.fix_shared(self.root_id())?;
            page::level(&root)
        };
        for level in (0..=top).rev() {
            self.check_level(pool, level, lo, hi, &mut report, on_leaf)?;
            if report.findings.len() >= FINDINGS_MAX {
                break;
            }
        }
        Ok(report)
    }

    fn check_level(
        &self,
        pool: &BufferPool,
        level: u8,
        lo: &[u8],
        hi: &[u8],
        report: &mut CheckReport,
        on_leaf: &mut dyn FnMut(&LeafShared<'_>),
    ) -> Result<()> {
        let mut at = lo.to_vec();
        // Where the page before began, once there is one.
        let mut previous: Option<Vec<u8>> = None;
        while report.findings.len() < FINDINGS_MAX {
            let found = self.at_level::<SharedPage<'_>>(pool, Target::At(&at), level);
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
                    count(report, level, LeafShared { page: latched }, on_leaf);
                    if !alloc::is_in_use(pool, id)? {
                        report.findings.push((id, "the page is in the tree but not allocated".into()));
                    }
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

fn count(report: &mut CheckReport, level: u8, page: LeafShared<'_>, on_leaf: &mut dyn FnMut(&LeafShared<'_>)) {
    if level > 0 {
        report.inner_pages += 1;
        return;
    }
    report.leaf_pages += 1;
    report.entries += page.len() as u64;
    report.leaf_used_bytes += page.used_bytes() as u64;
    on_leaf(&page);
}
