//! What dropped tables leave in a file that others live on in goes back to the file system: planned when the last page of
//! an index is free, done when a checkpoint has passed the plan. Nothing of it is durable: after a crash the next drop in
//! the same tablespace makes up for it.

use crate::store::Catalog;
use myriad_base::{Error, Result, SpaceId};
use myriad_btree::alloc::{plan_punch, PunchPlan, Punched};
use std::collections::BTreeMap;

/// Plans that came to nothing, because pages were allocated or freed before the checkpoint, before a tablespace is given
/// up until the next drop in it.
const ATTEMPTS_MAX: u32 = 10;

/// Tablespaces with free extents.
#[derive(Default)]
pub(crate) struct Punching {
    /// To be planned, and how many plans came to nothing.
    wanted: BTreeMap<SpaceId, u32>,
    /// Waiting for a checkpoint.
    planned: BTreeMap<SpaceId, (PunchPlan, u32)>,
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
    /// Pages of the tablespace were freed.
    pub(crate) fn want_punch(&self, space: SpaceId) {
        if space == SpaceId::MEMORY {
            return;
        }
        self.punching.lock().wanted.insert(space, 0);
    }

    /// Whether space waits for the next checkpoint, after which [`Catalog::reclaim_step`] gives it back.
    pub fn awaits_checkpoint(&self) -> bool {
        !self.punching.lock().planned.is_empty()
    }

    /// Plans for a tablespace, if one is to be planned for; else carries out the plans that a checkpoint has passed.
    /// Whether anything was done.
    ///
    /// # Errors
    /// The pool's and the file's; it is tried again at the next drop in the tablespace.
    pub fn punch_step(&self) -> Result<bool> {
        let next = self.punching.lock().wanted.pop_first();
        if let Some((space, attempts)) = next {
            if let Some(Some(plan)) = unless_gone(plan_punch(&self.pool, space))? {
                self.punching.lock().planned.insert(space, (plan, attempts));
            }
            return Ok(true);
        }
        let planned = std::mem::take(&mut self.punching.lock().planned);
        let (mut done, mut failed) = (false, None);
        for (space, (plan, attempts)) in planned {
            match unless_gone(plan.punch(&self.pool)) {
                Ok(Some(Punched::TooEarly)) => {
                    self.punching.lock().planned.entry(space).or_insert((plan, attempts));
                }
                Ok(Some(Punched::Pages(pages))) if pages < plan.pages() && attempts + 1 < ATTEMPTS_MAX => {
                    self.punching.lock().wanted.entry(space).or_insert(attempts + 1);
                    done = true;
                }
                Ok(Some(Punched::Pages(_)) | None) => done = true,
                // The other tablespaces' plans are carried out all the same.
                Err(e) => drop(failed.get_or_insert(e)),
            }
        }
        failed.map_or(Ok(done), Err)
    }
}
