//! Merges of leaves of in-memory tables that wait until transactions have ended: a rollback that makes rows longer again must find
//! room where they are. Without this a leaf whose rows stay would be nearly empty for good, and memory is limited.

use crate::rollback::LeftOver;
use crate::system::TrxSystem;
use myriad_base::{IndexId, PageId, Result, TrxId};
use myriad_btree::Tree;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaves remembered. Of more the room is used when rows come there, or go.
const LEAVES_MAX: usize = 4096;
/// Merges tried at a time.
const MERGES_PER_TURN: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Unsettled {
    count: AtomicUsize,
    /// By the leaf that was not settled.
    leaves: Mutex<HashMap<PageId, Merge>>,
}

struct Merge {
    index: IndexId,
    tree: Tree,
    key: Box<[u8]>,
    /// All transactions with lower ids are to have ended.
    until: TrxId,
}

impl Unsettled {
    fn take(&self, low_limit: TrxId) -> Vec<Merge> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut leaves = self.leaves.lock();
        let due = leaves.iter().filter(|(_, merge)| merge.until <= low_limit).map(|(&leaf, _)| leaf);
        let due: Vec<PageId> = due.take(MERGES_PER_TURN).collect();
        let taken = due.iter().filter_map(|leaf| leaves.remove(leaf)).collect();
        self.count.store(leaves.len(), Ordering::Relaxed);
        taken
    }
}

impl TrxSystem {
    /// The leaf is not settled: the merge at `key` is tried again when all transactions that there are now have ended.
    pub(crate) fn merge_later(&self, leaf: PageId, index: IndexId, tree: Tree, key: &[u8]) {
        let mut leaves = self.unsettled.leaves.lock();
        if leaves.len() < LEAVES_MAX || leaves.contains_key(&leaf) {
            leaves.insert(leaf, Merge { index, tree, key: key.into(), until: self.next_trx_id() });
            self.unsettled.count.store(leaves.len(), Ordering::Relaxed);
        }
    }

    /// Tries merges that were put off, as far as the transactions of then have ended. How many fewer there are.
    pub(crate) fn merge_settled(&self) -> Result<u64> {
        let before = self.unsettled.count.load(Ordering::Relaxed);
        let due = self.unsettled.take(self.commits().low_limit());
        for Merge { index, tree, key, .. } in &due {
            self.tidy_up(*index, *tree, key, LeftOver { chains: [None; 2], sparse: true }, None)?;
        }
        Ok(before.saturating_sub(self.unsettled.count.load(Ordering::Relaxed)) as u64)
    }
}
