//! Verification of entries' values and of their overflow chains.

use crate::gap::in_index;
use crate::index::Index;
use crate::system::TrxSystem;
use crate::value::{self, Entry};
use myriad_base::limits::EXTENT_PAGES;
use myriad_base::{Error, Lsn, PageId, PageNo, Result};
use myriad_btree::{overflow, Leaf, LeafShared, Tree};
use std::collections::HashMap;

/// Findings after which no more chains are checked.
const FINDINGS_MAX: usize = 100;

/// Checks the values of a table's entries, index after index, beside the workload.
///
/// A chain is walked under the latch of its entry's leaf, as readers do, so nobody frees it meanwhile; one chain a latch, as it may be long.
/// That two values have the same page shows without latching both leaves: whatever chain it was found in was there when the check began,
/// unless the page has been written since.
pub struct ValueCheck<'s> {
    sys: &'s TrxSystem,
    /// End of the log when the check began.
    begin: Lsn,
    /// The pages, not written since then, that chains have: a bit each, by extent.
    seen: HashMap<PageId, u64>,
    /// Chains of smaller keys have been checked.
    from: Vec<u8>,
    findings: Vec<(PageId, String)>,
}

impl<'s> ValueCheck<'s> {
    /// Begins.
    pub fn new(sys: &'s TrxSystem) -> ValueCheck<'s> {
        ValueCheck {
            sys,
            begin: sys.pool().log().end_lsn(),
            seen: HashMap::new(),
            from: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// What is wrong, since this was asked last: page and reason.
    pub fn take_findings(&mut self) -> Vec<(PageId, String)> {
        std::mem::take(&mut self.findings)
    }

    /// Checks the index's entries in the leaf, which is let go. The leaves of an index come in the order of their keys, as
    /// [`Tree::check`] gives them. Ends with [`Error::Interrupted`] when `stop` says so, which it asks at each page.
    ///
    /// # Errors
    /// Those that keep the check from going on; damage is a finding.
    pub fn check_leaf(&mut self, index: &Index, leaf: LeafShared<'_>, stop: &dyn Fn() -> bool) -> Result<()> {
        if !in_index(&self.from, index.id) {
            self.from = index.id.0.to_be_bytes().to_vec();
        }
        let slot_of = |key: &[u8]| leaf.find(key).unwrap_or_else(|slot| slot);
        let end = index.id.0.checked_add(1).map_or(leaf.len(), |next| slot_of(&next.to_be_bytes()));
        let mut keys = Vec::new();
        for slot in slot_of(&self.from)..end {
            match Entry::parse(leaf.value(slot), leaf.page_id()) {
                Ok(entry) if entry.flags & value::OVERFLOW == 0 => {}
                Ok(_) => keys.push(leaf.key_parts(slot).joined()),
                Err(e) => self.note(Err(e))?,
            }
        }
        drop(leaf);
        for key in keys {
            if self.findings.len() >= FINDINGS_MAX {
                return Ok(());
            }
            let checked = self.check_chain(index.tree, &key, stop);
            self.note(checked)?;
            self.from.clear();
            self.from.extend_from_slice(&key);
            self.from.push(0);
        }
        Ok(())
    }

    fn note(&mut self, checked: Result<()>) -> Result<()> {
        match checked {
            Err(Error::CorruptPage { page, reason }) => {
                if self.findings.len() < FINDINGS_MAX {
                    self.findings.push((page, reason));
                }
                Ok(())
            }
            other => other,
        }
    }

    fn check_chain(&mut self, tree: Tree, key: &[u8], stop: &dyn Fn() -> bool) -> Result<()> {
        let pool = self.sys.pool();
        let leaf = tree.seek(pool, key)?;
        let Ok(slot) = leaf.find(key) else { return Ok(()) };
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let Some(chain) = entry.overflow() else { return Ok(()) };
        overflow::check(pool, leaf.page_id(), chain.first, chain.chain_len(), &mut |page, changed| {
            if stop() {
                return Err(Error::Interrupted);
            }
            // Of pages in memory alone no LSN tells when they were written.
            let settled = changed <= self.begin && !page.is_in_memory();
            if settled && !self.see(page) {
                return Err(Error::corrupt(page, "the overflow page is in use twice"));
            }
            Ok(())
        })
    }

    /// Whether the page is seen for the first time.
    fn see(&mut self, page: PageId) -> bool {
        let extent = PageId::new(page.space, PageNo(page.page.0 / EXTENT_PAGES));
        let (bits, bit) = (self.seen.entry(extent).or_default(), 1 << (page.page.0 % EXTENT_PAGES));
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }
}
