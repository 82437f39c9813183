//! The tables that a transaction has changed.

use crate::share::TableShare;
use std::collections::HashMap;
use std::sync::Arc;

/// The table changed last is kept beyond the transaction's end: one after the other changes the same, and the count of a table's
/// users is a cache line that all who change it would write.
#[derive(Default)]
pub(crate) struct Changed {
    last: Option<Arc<TableShare>>,
    /// Whether the transaction has changed `last`.
    any: bool,
    /// The others that it has changed, by their address.
    others: HashMap<usize, Arc<TableShare>>,
}

impl Changed {
    /// The transaction has changed the table.
    #[inline]
    pub fn note(&mut self, share: &Arc<TableShare>) {
        if self.any && self.is_last(share) {
            return;
        }
        self.note_other(share);
    }

    fn is_last(&self, share: &Arc<TableShare>) -> bool {
        self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, share))
    }

    fn note_other(&mut self, share: &Arc<TableShare>) {
        if !self.is_last(share) {
            let noted = self.others.remove(&address(share)).unwrap_or_else(|| Arc::clone(share));
            let before = self.last.replace(noted);
            if let Some(before) = before.filter(|_| self.any) {
                self.others.insert(address(&before), before);
            }
        }
        self.any = true;
    }

    /// Whether it has changed any.
    pub fn any(&self) -> bool {
        self.any
    }

    /// It has committed: all are updated now.
    pub fn stamp(&mut self, now_s: u64) {
        for share in self.last.iter().filter(|_| self.any).chain(self.others.values()) {
            share.stats.set_update_time(now_s);
        }
        self.forget();
    }

    /// It has ended.
    pub fn forget(&mut self) {
        self.others.clear();
        self.any = false;
        // A table that was dropped or redefined is not kept in memory.
        if self.last.as_ref().is_some_and(|last| !last.is_current()) {
            self.last = None;
        }
    }
}

fn address(share: &Arc<TableShare>) -> usize {
    Arc::as_ptr(share) as usize
}
