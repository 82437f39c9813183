//! Background removal of what was dropped, in bounded steps that a crash may interrupt anywhere.

use crate::def::TableDef;
use crate::rows::{self, Pending};
use crate::store::{index, Catalog};
use myriad_base::{Error, IndexId, PageId, Result, SpaceId};
use myriad_btree::overflow::free_overflow;
use myriad_btree::{alloc::PACK_ROOT, Leaf, RemoveProgress, Tree};
#[allow(unused_imports)] // named in documentation
use myriad_txn::TrxSystem;
use myriad_txn::{value::Entry, IndexAlive, IndexDropped};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Leaves removed in a step.
const STEP_LEAVES: usize = 64;
/// Entries with overflow pages of their own that a step removes at most.
const STEP_CHAINS: usize = 16;
/// Tablespaces that are removed together: they share two syncs.
const STEP_FILES: usize = 32;
/// Rows of tablespaces set aside that a step passes over at most.
const STEP_PASSED: usize = 1000;
/// How often something may fail in a tablespace in a round, each time for another page, before the tablespace is set aside.
const FAILURES_MAX: u32 = 16;

/// What the background is at of what was dropped, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reclaiming {
    /// All that was dropped is removed.
    #[default]
    Nothing,
    /// It removes files.
    Files,
    /// It removes an index.
    Index {
        /// Which.
        id: IndexId,
        /// Where it is.
        space: SpaceId,
        /// Leaves of it that are gone, about.
        leaves: u64,
    },
    /// What could be removed is, the rest is tried again.
    Failed(Error),
}

/// What failed in a tablespace.
#[derive(Default)]
struct Failures {
    /// How often. From [`FAILURES_MAX`] on the tablespace's work is left to the next round.
    count: u32,
    /// The last damaged page: small tables, which come one after the other, share it.
    page: Option<PageId>,
}

/// A round through the pending work: what it could not do, and how far it is.
#[derive(Default)]
pub(crate) struct Round {
    failed: BTreeMap<SpaceId, Failures>,
    /// Why, for the first of them.
    error: Option<Error>,
    /// Keys of the last rows passed over: of tablespaces to be removed, and of indexes. What comes before them and is not
    /// set aside waits for the next round, which [`Round::error`] brings about.
    after: [Option<[u8; 5]>; 2],
}

impl Round {
    fn after(&self, kind: Pending) -> Option<[u8; 5]> {
        self.after[usize::from(matches!(kind, Pending::Index { .. }))]
    }

    fn pass(&mut self, pending: Pending) {
        self.after[usize::from(matches!(pending, Pending::Index { .. }))] = Some(pending.key());
    }

    fn set_aside(&mut self, pending: Pending, error: Error) {
        let failures = self.failed.entry(pending.space()).or_default();
        failures.count += match (pending, &error) {
            (Pending::Index { .. }, Error::CorruptPage { page, .. }) => {
                u32::from(failures.page.replace(*page) != Some(*page))
            }
            (Pending::Index { .. }, Error::Io { .. }) => 1,
            _ => FAILURES_MAX,
        };
        self.error.get_or_insert(error);
        self.pass(pending);
    }

    fn is_set_aside(&self, space: SpaceId) -> bool {
        self.failed.get(&space).is_some_and(|failures| failures.count >= FAILURES_MAX)
    }
}

/// See [`Catalog::next_pending`].
enum Next {
    /// To be done: an index, or tablespaces.
    Work(Vec<Pending>),
    /// Only work set aside was come upon so far.
    Look,
    /// This round is at its end.
    Nothing,
}

/// See [`Catalog::long_entries`].
struct LongEntries {
    keys: Vec<Vec<u8>>,
    /// Below it there are no others.
    end: Vec<u8>,
}

/// Whether work in other tablespaces may well succeed.
fn is_of_tablespace(error: &Error) -> bool {
    use Error::{CorruptFile, CorruptPage, Io, TablespaceUnavailable};
    matches!(error, TablespaceUnavailable { .. } | CorruptPage { .. } | CorruptFile { .. } | Io { .. })
}

impl Catalog {
    /// Finishes, right after recovery and before any client, what a crash interrupted in the creation or removal of
    /// tablespaces, and drops the temporary tables of the last run. Tells how many files went.
    ///
    /// # Errors
    /// Those of the catalog; a file that cannot be removed is left to [`Catalog::reclaim_step`].
    pub fn finish_interrupted(&self) -> Result<u64> {
        // Their own locks must not keep clients waiting, nor us.
        self.trx.rollback_losers_in(SpaceId::SYSTEM)?;
        self.look_for_destroyed()?;
        self.note_start()?;
        let (unfinished, dropped): (Vec<Pending>, Vec<Pending>) =
            self.pending_spaces()?.into_iter().partition(|each| matches!(each, Pending::SpaceCreate(_)));
        let mut removed = 0;
        for each in unfinished {
            removed += u64::from(self.remove_unfinished(each.space())?);
        }
        for some in dropped.chunks(STEP_FILES) {
            removed += self.remove_spaces(some)?.iter().flatten().count() as u64;
        }
        self.drop_database(rows::TEMPORARY_DATABASE)?;
        Ok(removed)
    }

    /// Tablespaces that are to be removed or were not finished.
    fn pending_spaces(&self) -> Result<Vec<Pending>> {
        let mut found = Vec::new();
        // Their kinds follow the indexes', of which there may be many.
        for kind in [Pending::SpaceCreate(SpaceId(0)), Pending::SpaceDrop(SpaceId(0))] {
            self.scan(rows::PENDING, &kind.key()[..1], &mut |key, value| {
                found.push(Pending::decode(key, value)?);
                Ok(true)
            })?;
        }
        Ok(found)
    }

    /// Does one portion of the pending work; whether there may be more now (see also [`Catalog::awaits_checkpoint`]). What
    /// cannot be done because of its tablespace is set aside, with all else of that tablespace (an index alone where it may be
    /// one page), and keeps nothing else from being done.
    ///
    /// # Errors
    /// Those of the pool and of removing files, of work set aside when all else is done; it stays pending, and the next
    /// call tries again.
    pub fn reclaim_step(&self) -> Result<bool> {
        let pending = match self.next_pending()? {
            Next::Work(pending) => pending,
            Next::Look => return Ok(true),
            Next::Nothing => return self.end_round(),
        };
        self.note_work(&pending);
        let done = match pending[..] {
            [index @ Pending::Index { .. }] => vec![self.reclaim_index_step(index).map(|_| ())],
            _ => self.remove_spaces(&pending)?,
        };
        for (pending, done) in pending.into_iter().zip(done) {
            match done {
                Err(error) if is_of_tablespace(&error) && self.pool.check_poison().is_ok() => {
                    self.round.lock().set_aside(pending, error);
                }
                other => other?,
            }
        }
        Ok(true)
    }

    /// All that is pending has been tried; whether there may be more now.
    fn end_round(&self) -> Result<bool> {
        let failed = self.round.lock().error.clone();
        *self.at_work.lock() = failed.map_or(Reclaiming::Nothing, Reclaiming::Failed);
        if self.punch_step()? || self.sweep_if_due()? {
            return Ok(true);
        }
        std::mem::take(&mut *self.round.lock()).error.map_or(Ok(false), Err)
    }

    /// What [`Catalog::reclaim_step`] is at.
    pub fn reclaiming(&self) -> Reclaiming {
        self.at_work.lock().clone()
    }

    fn note_work(&self, pending: &[Pending]) {
        let mut at_work = self.at_work.lock();
        *at_work = match (pending, &*at_work) {
            (&[Pending::Index { id, space, .. }], &Reclaiming::Index { id: before, leaves, .. }) if id == before => {
                Reclaiming::Index { id, space, leaves: leaves + STEP_LEAVES as u64 }
            }
            (&[Pending::Index { id, space, .. }], _) => Reclaiming::Index { id, space, leaves: 0 },
            _ => Reclaiming::Files,
        };
    }

    /// What to do next: tablespaces first, then indexes.
    fn next_pending(&self) -> Result<Next> {
        // Taken away: no latch is held while pages are read, and two at work at once only try more than they must.
        let mut round = std::mem::take(&mut *self.round.lock());
        let next = self.next_in(&mut round);
        *self.round.lock() = round;
        next
    }

    fn next_in(&self, round: &mut Round) -> Result<Next> {
        let mut next = Next::Nothing;
        let index = Pending::Index { id: IndexId(0), space: SpaceId(0), root: PACK_ROOT };
        for kind in [Pending::SpaceDrop(SpaceId(0)), index] {
            let (first, after) = (kind.key()[0], round.after(kind));
            let (mut passed, mut work) = (0, Vec::new());
            self.scan_after(rows::PENDING, &kind.key()[..1], after.as_ref().map(|key| &key[..]), &mut |key, value| {
                if key.first() != Some(&first) {
                    return Ok(false);
                }
                let pending = Pending::decode(key, value)?;
                // Asked after the row is read: a build's id is noted before its row is.
                if matches!(pending, Pending::Index { id, .. } if self.building.lock().contains(&id.0)) {
                    return Ok(true);
                }
                if round.is_set_aside(pending.space()) {
                    passed += 1;
                    round.pass(pending);
                    next = Next::Look;
                    return Ok(passed < STEP_PASSED);
                }
                work.push(pending);
                Ok(matches!(pending, Pending::SpaceDrop(_)) && work.len() < STEP_FILES)
            })?;
            if !work.is_empty() {
                next = Next::Work(work);
            }
            match next {
                Next::Work(_) => break,
                Next::Look if passed >= STEP_PASSED => break,
                _ => next = Next::Nothing,
            }
        }
        match next {
            Next::Work(ref pending) if !self.is_pending(pending[0])? => Ok(Next::Look),
            next => Ok(next),
        }
    }

    /// Whether the row is still there. A build may have been adopted, and have ended, between the moment at which the scan
    /// saw its row and the question whether it is being built.
    pub(crate) fn is_pending(&self, pending: Pending) -> Result<bool> {
        self.trx.get_newest(&index(rows::PENDING), &pending.key(), &mut Vec::new())
    }

    /// Frees the memory that a table in memory has given up with a change of `old`, before who changed it goes on: it may be
    /// filled anew at once. Nothing for other tables.
    ///
    /// # Errors
    /// Those of the pool; what is left is done by [`Catalog::reclaim_step`].
    pub fn reclaim_memory(&self, old: &TableDef) -> Result<()> {
        if !old.is_in_memory() {
            return Ok(());
        }
        for i in old.indexes.iter().chain(&old.auto_increment) {
            while self.reclaim_index_step(Pending::Index { id: i.id, space: old.space, root: i.root })? {}
        }
        Ok(())
    }

    /// Removes some of a dropped index, if it is one; whether there was anything left to do.
    fn reclaim_index_step(&self, pending: Pending) -> Result<bool> {
        // Who waits for memory does not wait for reads.
        let _one = self.removing[usize::from(pending.space() == SpaceId::MEMORY)].lock();
        if !self.is_pending(pending)? {
            return Ok(false);
        }
        self.reclaim_index(pending).map(|()| true)
    }

    /// Removes some of a dropped index; its note goes when nothing is left.
    fn reclaim_index(&self, pending: Pending) -> Result<()> {
        let Pending::Index { id, space, root } = pending else { return Ok(()) };
        // The whole tablespace may have gone meanwhile.
        let done = match self.space_exists(space)? {
            false => true,
            true => match self.remove_entries(Tree { space, root }, id) {
                Ok(progress) => progress == RemoveProgress::Done,
                Err(Error::TablespaceUnavailable { .. }) if !self.space_exists(space)? => true,
                Err(e) => return Err(e),
            },
        };
        if !done {
            return Ok(());
        }
        let exists = self.space_exists(space)?;
        let own_root = root != PACK_ROOT && exists;
        if root == PACK_ROOT && exists {
            Tree { space, root }.demote(&self.pool, id)?;
        }
        if own_root {
            self.trx.put_unversioned(&index(rows::DESTROYED), &id.0.to_be_bytes(), &[])?;
            self.destroyed.store(true, Ordering::Release);
        }
        // The note goes before the root: a root freed twice might be another tree's by then. A crash in between costs a page.
        self.trx.remove_unversioned(&index(rows::PENDING), &pending.key())?;
        if own_root {
            self.trx.wait_for_tree_users();
            while (Tree { space, root }).destroy(&self.pool, STEP_LEAVES)? == RemoveProgress::More {}
        }
        self.want_punch(space);
        Ok(())
    }

    /// What [`TrxSystem::set_index_alive`] wants: false for an index whose root page is no longer its own. Where that
    /// cannot be read it says true, which is safe: keys begin with the index id, so nothing is found in another's tree,
    /// and nothing buffered for it ([`Tree::absent_leaf`]).
    pub fn index_alive(self: &Arc<Self>) -> IndexAlive {
        let (trx, destroyed) = (Arc::downgrade(&self.trx), Arc::clone(&self.destroyed));
        Box::new(move |id| {
            if id.0 < rows::FIRST_INDEX || !destroyed.load(Ordering::Acquire) {
                return true;
            }
            let Some(trx) = trx.upgrade() else { return true };
            let found = trx.get_newest(&index(rows::DESTROYED), &id.0.to_be_bytes(), &mut Vec::new());
            !matches!(found, Ok(true))
        })
    }

    /// What [`TrxSystem::set_index_dropped`] wants: whether the catalog says, committed, that the index or its tablespace is
    /// dropped. False where the catalog cannot be read.
    pub fn index_dropped(self: &Arc<Self>) -> IndexDropped {
        let catalog = Arc::downgrade(self);
        Box::new(move |id, space| catalog.upgrade().is_some_and(|c| c.is_dropped(id, space).unwrap_or(false)))
    }

    fn is_dropped(&self, id: IndexId, space: SpaceId) -> Result<bool> {
        // Asked first: of an index whose build was adopted since, no row is found below.
        if self.building.lock().contains(&id.0) {
            return Ok(false);
        }
        let dropped = [Pending::SpaceDrop(space), Pending::Index { id, space, root: PACK_ROOT }];
        for pending in dropped {
            if self.get_committed(rows::PENDING, &pending.key())?.is_some() {
                return Ok(true);
            }
        }
        // Its row goes last.
        Ok(!self.space_exists(space)?)
    }

    /// Notes whether any index was ever destroyed.
    fn look_for_destroyed(&self) -> Result<()> {
        self.destroyed.store(self.has_row(rows::DESTROYED, &[])?, Ordering::Release);
        Ok(())
    }

    fn remove_entries(&self, tree: Tree, id: IndexId) -> Result<RemoveProgress> {
        let (lo, hi) = (id.0.to_be_bytes(), id.0.wrapping_add(1).to_be_bytes());
        let LongEntries { keys, end } = self.long_entries(tree, &lo, &hi)?;
        // One by one: a crash or an error costs the pages of one entry.
        for key in keys {
            let behind = [&key[..], &[0]].concat();
            self.remove_with_chains(tree, &key, &behind)?;
        }
        let progress = self.remove_with_chains(tree, &lo, &end)?;
        Ok(if end == hi { progress } else { RemoveProgress::More })
    }

    /// The first entries from `lo` to `hi` that have overflow pages, as many as a step may remove, among its leaves.
    fn long_entries(&self, tree: Tree, lo: &[u8], hi: &[u8]) -> Result<LongEntries> {
        let mut keys = Vec::new();
        let mut at = lo.to_vec();
        for _ in 0..STEP_LEAVES {
            let leaf = tree.seek(&self.pool, &at)?;
            let first = leaf.find(&at).unwrap_or_else(|slot| slot);
            for slot in first..leaf.len() {
                if leaf.cmp_key(slot, hi).is_ge() {
                    break;
                }
                if Entry::try_parse(leaf.value(slot)).is_some_and(|entry| entry.overflow().is_some()) {
                    let mut key = Vec::new();
                    leaf.key_into(slot, &mut key);
                    if keys.len() == STEP_CHAINS {
                        return Ok(LongEntries { keys, end: key });
                    }
                    keys.push(key);
                }
            }
            if leaf.is_last() || leaf.high_fence() >= hi {
                return Ok(LongEntries { keys, end: hi.to_vec() });
            }
            at = leaf.next_from(&at)?.to_vec();
        }
        Ok(LongEntries { keys, end: at })
    }

    /// Removes some of the entries from `lo` to `hi`, and what overflow pages they have.
    fn remove_with_chains(&self, tree: Tree, lo: &[u8], hi: &[u8]) -> Result<RemoveProgress> {
        let mut chains = Vec::new();
        let mut progress = tree.remove_range(&self.pool, lo, hi, STEP_LEAVES, &mut |_, value| {
            chains.extend(Entry::try_parse(value).and_then(|entry| entry.overflow()));
        });
        // Each of them, whatever the rest came to: nobody else knows these pages any more.
        for chain in chains {
            if let Err(e) = free_overflow(&self.pool, tree.space, chain.first) {
                progress = progress.and(Err(e));
            }
        }
        progress
    }

    fn space_exists(&self, space: SpaceId) -> Result<bool> {
        if space == SpaceId::MEMORY {
            return Ok(true);
        }
        let mut value = Vec::new();
        self.trx.get_newest(&index(rows::SPACES), &space.0.to_be_bytes(), &mut value)
    }
}
