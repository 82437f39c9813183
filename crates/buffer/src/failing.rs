//! Tablespaces whose pages cannot be written for now. Between two tries their pages are left alone: else all who clean and
//! provide would try them again and again, through the doublewrite file, and have no time for the pages of others.

use crate::background::RETRY_PAUSE;
use crate::pool::BufferPool;
use myriad_base::{Error, SpaceId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

struct Failed {
    /// When they are tried again.
    again: Instant,
    error: Error,
}

#[derive(Default)]
pub(crate) struct Failing {
    /// Whether there are any, so that nobody takes the lock for nothing.
    any: AtomicBool,
    spaces: Mutex<BTreeMap<SpaceId, Failed>>,
}

impl Failing {
    /// Of pages that were to be written, the tablespace of each and whether it is durable now; and the first error, if one
    /// is not.
    pub fn note(&self, pages: impl Iterator<Item = (SpaceId, bool)>, error: Option<&Error>) {
        if error.is_none() && !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut spaces = self.spaces.lock();
        let again = Instant::now() + RETRY_PAUSE;
        let mut failed = BTreeSet::new();
        for (space, durable) in pages {
            match error {
                Some(error) if !durable && failed.insert(space) => {
                    spaces.insert(space, Failed { again, error: error.clone() });
                }
                _ if durable && !failed.contains(&space) => drop(spaces.remove(&space)),
                _ => {}
            }
        }
        self.any.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// Why pages of the tablespace are left alone at the moment, if they are.
    #[inline]
    pub fn holds(&self, space: SpaceId) -> Option<Error> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let spaces = self.spaces.lock();
        spaces.get(&space).filter(|failed| Instant::now() < failed.again).map(|failed| failed.error.clone())
    }
}

impl BufferPool {
    /// What the last tries to write pages failed with, of tablespaces that are still there: each sentence once.
    pub fn failing_writes(&self) -> BTreeSet<String> {
        let mut spaces = self.failing.spaces.lock();
        spaces.retain(|&space, _| !self.spaces().was_dropped(space));
        spaces.values().map(|failed| failed.error.to_string()).collect()
    }
}
