//! What dropped tables leave in a file that others live on in, and rows that are deleted, goes back to the file system: planned when
//! the last page of an index is free, or many extents have become free, done when a checkpoint has passed the plan. Nothing of it is
//! durable: after a crash the next drop in the same tablespace, or as much again that becomes free, makes up for it.

use crate::store::Catalog;
use myriad_base::{Error, Result, SpaceId};
use myriad_btree::alloc::{plan_punch, PunchPlan, Punched};
use std::collections::{BTreeMap, BTreeSet};

/// Tablespaces with free extents.
#[derive(Default)]
pub(crate) struct Punching {
    /// To be planned.
    wanted: BTreeSet<SpaceId>,
    /// Waiting for a checkpoint.
    planned: BTreeMap<SpaceId, PunchPlan>,
}

/// `None` when the tablespace is gone.
fn unless_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::TablespaceUnavailable { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Catalog {
    /// An index of the tablespace is gone.
    pub(crate) fn want_punch(&self, space: SpaceId) {
        if space == SpaceId::MEMORY {
            return;
        }
        self.punching.lock().wanted.insert(space);
    }

    /// Whether space waits for the next checkpoint, after which [`Catalog::reclaim_step`] gives it back.
    pub fn awaits_checkpoint(&self) -> bool {
        self.awaiting_checkpoint() > 0
    }

    /// Tablespaces of which space waits for the next checkpoint.
    pub fn awaiting_checkpoint(&self) -> usize {
        self.punching.lock().planned.len()
    }

    /// Whether so much space became free that [`Catalog::reclaim_step`] would give it back.
    pub fn has_emptied(&self) -> bool {
        self.pool.spaces().has_emptied()
    }

    /// Plans for a tablespace, if one is to be planned for; else carries out the plans that a checkpoint has passed.
    /// Whether anything was done.
    ///
    /// # Errors
    /// The pool's and the file's; it is tried again at the next drop in the tablespace.
    pub fn punch_step(&self) -> Result<bool> {
        let next = {
            let Punching { wanted, planned } = &mut *self.punching.lock();
            wanted.append(&mut self.pool.spaces().take_emptied());
            // While a plan waits there is no other: it would be put off as long as rows or tables are removed.
            let next = wanted.iter().find(|space| !planned.contains_key(space)).copied();
            next.inspect(|space| _ = wanted.remove(space))
        };
        if let Some(space) = next {
            if let Some(Some(plan)) = unless_gone(plan_punch(&self.pool, space))? {
                self.punching.lock().planned.insert(space, plan);
            }
            return Ok(true);
        }
        let planned = std::mem::take(&mut self.punching.lock().planned);
        let (mut done, mut failed) = (false, None);
        for (space, plan) in planned {
            match unless_gone(plan.punch(&self.pool)) {
                Ok(Some(Punched::TooEarly)) => _ = self.punching.lock().planned.entry(space).or_insert(plan),
                Ok(Some(Punched::Pages(_)) | None) => done = true,
                // The other tablespaces' plans are carried out all the same.
                Err(e) => drop(failed.get_or_insert(e)),
            }
        }
        failed.map_or(Ok(done), Err)
    }
}
