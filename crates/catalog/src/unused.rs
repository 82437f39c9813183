//! Removal of what no row names any more: shapes, and notes of destroyed indexes.
//!
//! A sweep reads all tables' rows with one snapshot, and then removes the shapes that it has not met and that nobody was given
//! meanwhile. So a shape stays that is
//! - in a row that the snapshot sees, or that was moved or copied from such a row;
//! - in a row committed later: [`Catalog::intern`] gave it after the sweep had begun, which keeps it (no change that interns is
//!   under way when a sweep begins, see [`Catalog::defining`]), or a copy of a database took it from a row that it read;
//! - in a row that a rollback restores: the snapshot has seen that one.
//!
//! The way to a shape goes before the shape, so that a crash in between leaves none that leads nowhere; it costs the space of one.

use crate::rows::{self, Pending};
use crate::store::{index, Catalog};
use myriad_base::{Error, IndexId, Result, ShapeId, SpaceId};
use myriad_btree::alloc::PACK_ROOT;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Shapes stored since the last sweep at which the next one is due, where there are few tables.
const SHAPES_TO_SWEEP: u32 = 1000;
/// Where there are many: one for so many tables, so that reading their rows costs little beside making the shapes.
const TABLES_PER_SHAPE: u32 = 16;
/// How long a sweep waits for changes of definitions under way, which wait as long if they come later.
const PATIENCE: Duration = Duration::from_millis(100);
/// Shapes removed while no definition can be changed.
const BATCH: usize = 32;
/// Rows between two looks at whether the sweep is to end.
const ROWS_PER_LOOK: u32 = 256;

/// What sweeps share with those who change definitions.
pub(crate) struct Sweeps {
    /// Shapes given to somebody since the sweep under way began; `None` while there is none.
    kept: Mutex<Option<HashSet<ShapeId>>>,
    /// Held by the one sweep.
    one: Mutex<()>,
    /// Shapes stored since the last sweep, and at how many the next is due.
    stored: AtomicU32,
    due_at: AtomicU32,
    /// Whether a shape was stored, or a table that had one has gone or changed, since the last sweep of this run.
    changed: AtomicBool,
    /// The background's sweep is to end.
    stop: AtomicBool,
}

impl Default for Sweeps {
    fn default() -> Sweeps {
        Sweeps {
            kept: Mutex::default(),
            one: Mutex::default(),
            stored: AtomicU32::new(0),
            due_at: AtomicU32::new(SHAPES_TO_SWEEP),
            changed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }
}

impl Sweeps {
    /// A shape is given to somebody who will put it into a row.
    pub fn keep(&self, id: ShapeId) {
        if let Some(kept) = &mut *self.kept.lock() {
            kept.insert(id);
        }
    }

    pub fn note_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
        self.note_change();
    }

    /// Tables with a shape have gone, or have another one now.
    pub fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

/// Takes back what a sweep has noted, however it ends.
struct Ending<'a> {
    sweeps: &'a Sweeps,
    complete: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.sweeps.kept.lock() = None;
        // Also after an error: not again at once.
        self.sweeps.stored.store(0, Ordering::Relaxed);
        if !self.complete {
            self.sweeps.note_change();
        }
    }
}

impl Catalog {
    /// Removes shapes that no table has, if there may be any since the last time. Reads the rows of all tables: for a stop that
    /// takes its time. Where a definition is being changed just now, some may stay.
    ///
    /// # Errors
    /// Those of reading and writing the catalog.
    pub fn remove_unused_shapes(&self) -> Result<()> {
        match self.sweeps.changed.load(Ordering::Relaxed) {
            true => self.sweep_shapes(&|| false).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Ends the sweep under way in [`Catalog::reclaim_step`], and lets none begin there.
    pub fn end_sweeps(&self) {
        self.sweeps.stop.store(true, Ordering::Release);
    }

    /// A sweep, if one is due; whether there was one.
    pub(crate) fn sweep_if_due(&self) -> Result<bool> {
        let sweeps = &self.sweeps;
        let stopping = || sweeps.stop.load(Ordering::Acquire);
        let due = sweeps.stored.load(Ordering::Relaxed) >= sweeps.due_at.load(Ordering::Relaxed);
        Ok(due && !stopping() && self.sweep_shapes(&stopping)?)
    }

    /// Removes shapes that no table has; false if it could not begin.
    fn sweep_shapes(&self, stop: &dyn Fn() -> bool) -> Result<bool> {
        let Some(_one) = self.sweeps.one.try_lock() else { return Ok(false) };
        {
            let Some(_alone) = self.defining.try_write_for(PATIENCE) else { return Ok(false) };
            *self.sweeps.kept.lock() = Some(HashSet::new());
            self.sweeps.changed.store(false, Ordering::Relaxed);
        }
        let mut ending = Ending { sweeps: &self.sweeps, complete: false };
        let Some(used) = self.shapes_in_use(stop)? else { return Ok(true) };
        let mut unused = Vec::new();
        self.scan(rows::SHAPE_HASHES, &[], &mut |key, _| {
            let (hash, id) = rows::parse_shape_hash(key)?;
            if !used.contains(&id) {
                unused.push((hash, id));
            }
            Ok(true)
        })?;
        let mut interrupted = false;
        for batch in unused.chunks(BATCH) {
            let Some(_alone) = self.defining.try_write_for(PATIENCE).filter(|_| !stop()) else {
                interrupted = true;
                break;
            };
            for &(hash, id) in batch {
                if self.sweeps.kept.lock().as_ref().is_some_and(|kept| !kept.contains(&id)) {
                    self.remove_shape(hash, id)?;
                }
            }
        }
        ending.complete = !interrupted;
        Ok(true)
    }

    /// The shapes in the tables' rows; `None` when told to stop.
    fn shapes_in_use(&self, stop: &dyn Fn() -> bool) -> Result<Option<HashSet<ShapeId>>> {
        let (mut used, mut tables, mut stopped) = (HashSet::new(), 0u32, false);
        self.scan(rows::TABLES, &[], &mut |_, value| {
            used.insert(rows::decode_table(String::new(), value)?.shape);
            tables = tables.saturating_add(1);
            stopped = tables.is_multiple_of(ROWS_PER_LOOK) && stop();
            Ok(!stopped)
        })?;
        self.sweeps.due_at.store(SHAPES_TO_SWEEP.max(tables / TABLES_PER_SHAPE), Ordering::Relaxed);
        Ok((!stopped).then_some(used))
    }

    fn remove_shape(&self, hash: u64, id: ShapeId) -> Result<()> {
        self.trx.remove_unversioned(&index(rows::SHAPE_HASHES), &rows::shape_hash_key(hash, id))?;
        self.shape_ids.invalidate(&hash);
        self.trx.remove_unversioned(&index(rows::SHAPES), &id.0.to_be_bytes())?;
        self.shapes.invalidate(&id.0);
        Ok(())
    }

    /// Forgets the destroyed indexes that no undo record names: nobody will ask whether they are alive. Only at a stop, when nobody
    /// else works any more.
    ///
    /// # Errors
    /// Those of reading and writing the catalog, and of reading undo pages.
    pub fn forget_destroyed(&self) -> Result<()> {
        let mut destroyed = Vec::new();
        self.scan(rows::DESTROYED, &[], &mut |key, _| {
            let id: [u8; 4] = key.try_into().map_err(|_| Error::invalid("key of a destroyed index"))?;
            destroyed.push(IndexId(u32::from_be_bytes(id)));
            Ok(true)
        })?;
        if destroyed.is_empty() {
            return Ok(());
        }
        let Some(named) = self.trx.indexes_in_undo()? else { return Ok(()) };
        for id in destroyed.into_iter().filter(|id| !named.contains(id)) {
            // One whose removal has not come to its end is noted as destroyed again by it.
            let pending = Pending::Index { id, space: SpaceId(0), root: PACK_ROOT };
            if !self.is_pending(pending)? {
                self.trx.remove_unversioned(&index(rows::DESTROYED), &id.0.to_be_bytes())?;
            }
        }
        Ok(())
    }
}
