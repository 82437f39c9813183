//! Undoing changes, newest first.
//!
//! Each record is undone in one mini-transaction together with cutting the record off, so that a crash in between
//! resumes where it stopped. An entry is touched only if it still names the record: what has been undone stays undone.
//! Of many records batches are undone in another order, see [`crate::undo_batch`].

use crate::gap::{after, in_index, After, Edge};
use crate::lock::LockKey;
use crate::system::TrxSystem;
use crate::undo::page::{self, undo_page};
use crate::undo::record::{self, Change, Kind};
use crate::undo::space::UndoLog;
use crate::undo_batch::BATCH_RECORDS_MIN;
use crate::value::{self, Entry};
use myriad_base::{Error, IndexId, PageNo, Result, RollPtr, SpaceId, TrxId};
use myriad_btree::{overflow, Leaf, LeafExclusive, LeafView, Tree};
use myriad_buffer::{Beyond, BeyondLimit, Level, Mtr, SharedPage};
use smallvec::SmallVec;
use std::cell::Cell;

/// Sees how many records are left, and may stop a rollback there: it can go on later.
pub(crate) type Progress<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// The index of a full key.
pub(crate) fn index_of(key: &[u8]) -> Option<IndexId> {
    key.first_chunk::<4>().map(|b| IndexId(u32::from_be_bytes(*b)))
}

/// Whether an error says that the tree's tablespace cannot be used: dropped, or its file is away and may come back.
pub(crate) fn is_unavailable(e: &Error) -> bool {
    matches!(e, Error::TablespaceUnavailable { .. })
}

/// Whether an error may well be gone when the tree's tablespace or the tree is.
fn is_of_tablespace(e: &Error) -> bool {
    use Error::{CorruptFile, CorruptPage, Format, Io};
    is_unavailable(e) || matches!(e, CorruptPage { .. } | CorruptFile { .. } | Format { .. } | Io { .. })
}

/// Whether an entry that the record's transaction wrote last is the version that the record was written for. A short entry
/// does not say so itself; it is the only one of its kind that the transaction can have written for its key: it came from
/// nothing (or from a mark that everybody saw), or the mark came to what everybody saw.
fn names(entry: &Entry<'_>, at: RollPtr, change: &Change<'_>) -> bool {
    if !entry.is_short() {
        return entry.roll == at;
    }
    let was_there = change.old.is_some_and(|old| old.flags & value::DELETED == 0);
    was_there == entry.is_deleted()
}

/// What the removal or restoration of an entry leaves to be done without latches.
pub(crate) struct LeftOver {
    /// Chains of overflow pages that nothing refers to any more.
    pub chains: [Option<PageNo>; 2],
    /// The leaf has become so empty that a merge is worth trying.
    pub sparse: bool,
}

impl TrxSystem {
    /// Undoes the records beyond the first `keep`. `progress` sees the number left after each, and may stop it there.
    pub(crate) fn rollback_log(&self, log: &mut UndoLog, keep: u64, progress: &mut Progress<'_>) -> Result<()> {
        let mut body = Vec::new();
        // Records to be undone one by one before it is looked again whether the next ones can be a batch.
        let mut singly = 0;
        while log.records > keep {
            if singly == 0 && log.records - keep >= BATCH_RECORDS_MIN {
                singly = match self.undo_batch(log, keep, progress) {
                    Ok(true) => continue,
                    Ok(false) => BATCH_RECORDS_MIN,
                    Err(Error::ShuttingDown) => return Err(Error::ShuttingDown),
                    // All that are newer than the one that cannot be undone are.
                    Err(_) => u64::MAX,
                };
            }
            singly = singly.saturating_sub(1);
            let at = match self.last_record(log, &mut body)? {
                Some(at) => at,
                None => {
                    self.undo.drop_tail(&mut log.tail)?;
                    continue;
                }
            };
            if body[0] == Kind::Xid as u8 {
                let mut mtr = Mtr::start(self.pool())?;
                log.truncate(&mut mtr, usize::from(at.offset()))?;
                mtr.commit()?;
                log.xid = RollPtr::NONE;
                continue;
            }
            let change = record::parse_change(&body)
                .ok_or_else(|| Error::corrupt(log.page(), format!("no undo record at {}", at.offset())))?;
            let (trx, before) = (log.trx, log.records);
            // Counts the record as soon as it is cut off, whatever fails after that.
            let undone = self.undo_change(trx, at, &change, Some(log));
            if log.records < before {
                progress(log.records)?;
            }
            undone?;
        }
        Ok(())
    }

    /// The tablespace of the log's newest change.
    pub(crate) fn newest_change_in(&self, log: &mut UndoLog) -> Result<Option<SpaceId>> {
        let mut body = Vec::new();
        while log.records > 0 {
            if self.last_record(log, &mut body)?.is_some() {
                return Ok(record::parse_change(&body).map(|change| change.tree.space));
            }
            self.undo.drop_tail(&mut log.tail)?;
        }
        Ok(None)
    }

    /// Copies the newest record to `body`; `None` if the tail page is empty.
    fn last_record(&self, log: &UndoLog, body: &mut Vec<u8>) -> Result<Option<RollPtr>> {
        if log.tail.end == page::BODY {
            return Ok(None);
        }
        let p = self.pool().fix_shared(log.page())?;
        let start = record::start_of_last(&p, log.tail.end);
        let found = start.and_then(|s| Some((s, record::frame_at(&p, s, log.tail.end)?.1)));
        let Some((start, bytes)) = found else {
            return Err(Error::corrupt(log.page(), format!("no undo record ends at {}", log.tail.end)));
        };
        body.clear();
        body.extend_from_slice(bytes);
        Ok(Some(RollPtr::new(log.tail.page, start as u16)))
    }

    /// Undoes a change of the transaction. `cut`: the log whose newest record it is; without it the record stays.
    pub(crate) fn undo_change(
        &self,
        trx: TrxId,
        at: RollPtr,
        change: &Change<'_>,
        mut cut: Option<&mut UndoLog>,
    ) -> Result<()> {
        let index =
            index_of(change.key).ok_or_else(|| Error::corrupt(undo_page(at.page()), "an undo record without key"))?;
        let lost = self.is_lost(change.tree.space, Some(trx));
        let users = self.use_trees();
        let undone = match !lost && self.is_index_alive(index) {
            true => self.undo_entry(trx, at, change, index, cut.as_deref_mut()),
            false => Ok(None),
        };
        let left = match undone {
            Ok(Some(left)) => left,
            // What is only away keeps its record: the change would be there for good when the file is back.
            Err(e) if !(is_of_tablespace(&e) && self.is_dropped(index, change.tree.space)) => return Err(e),
            // The entry has gone with its index, and the newer version's chain with it.
            _ => {
                if let Some(log) = cut.as_deref_mut() {
                    let mut mtr = Mtr::start(self.pool())?;
                    log.truncate(&mut mtr, usize::from(at.offset()))?;
                    mtr.commit()?;
                }
                let older = change.replaced_chain().filter(|_| !lost);
                LeftOver { chains: [older.map(|o| o.first), None], sparse: false }
            }
        };
        if let Some(log) = cut {
            log.records -= 1;
        }
        drop(users);
        match self.tidy_up(index, change.tree, change.key, left, Some(trx)) {
            Err(e) if !is_unavailable(&e) => {
                self.report(Level::Warning, &format!("what a rollback has emptied stays allocated: {e}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// After an entry was removed or restored. The record is gone, so a failure here only leaks space. A value may have very
    /// many overflow pages: who waits for the users of trees does not wait for these.
    pub(crate) fn tidy_up(
        &self,
        index: IndexId,
        tree: Tree,
        key: &[u8],
        left: LeftOver,
        own: Option<TrxId>,
    ) -> Result<()> {
        for chain in left.chains.into_iter().flatten() {
            overflow::free_overflow(self.pool(), tree.space, chain)?;
        }
        let _users = left.sparse.then(|| self.use_trees());
        match left.sparse && self.is_index_alive(index) {
            // Rows of a table in memory that a rollback makes longer again must find room where they are: their memory is limited.
            true if tree.space == SpaceId::MEMORY => {
                let unsettled = Cell::new(None);
                tree.merge_if_settled(self.pool(), key, &|leaf| {
                    let settled = self.all_ended_in(leaf, own);
                    unsettled.set(unsettled.get().or((!settled).then(|| leaf.page_id())));
                    settled
                })?;
                unsettled.get().into_iter().for_each(|leaf| self.merge_later(leaf, index, tree, key));
                Ok(())
            }
            true => tree.merge_if_sparse(self.pool(), key),
            false => Ok(()),
        }
    }

    /// Whether the leaf's entries are all of transactions that have ended, or of `own`.
    fn all_ended_in(&self, leaf: &LeafView<'_>, own: Option<TrxId>) -> bool {
        (0..leaf.len()).all(|slot| {
            let entry = Entry::parse(leaf.value(slot), leaf.page_id());
            entry.is_ok_and(|entry| Some(entry.trx) == own || self.commits().csn(entry.trx).is_some())
        })
    }

    /// Restores the entry and cuts the record off, see [`TrxSystem::undo_change`]; `None` if the entry does not name the record
    /// (nothing done).
    fn undo_entry(
        &self,
        trx: TrxId,
        at: RollPtr,
        change: &Change<'_>,
        index: IndexId,
        cut: Option<&mut UndoLog>,
    ) -> Result<Option<LeftOver>> {
        let (tree, key) = (change.tree, change.key);
        let mut edge = Edge::default();
        let (mut body, mut value) = (Vec::new(), Vec::new());
        loop {
            let mut mtr = Mtr::start(self.pool())?;
            let leaf = tree.seek_exclusive(self.pool(), key)?;
            let Ok(slot) = leaf.find(key) else { return Ok(None) };
            let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
            if entry.trx != trx || !names(&entry, at, change) {
                return Ok(None);
            }
            let chain = entry.overflow().map(|o| o.first);
            let offset = usize::from(at.offset());
            let restored = match change.old {
                None => None,
                Some(old) => {
                    if !old.body_into(entry.body, &mut body) {
                        let text = format!("undo record at {offset} does not fit its entry");
                        return Err(Error::corrupt(undo_page(at.page()), text));
                    }
                    old.entry(&entry, change.row_key_len, &body).write_to(&mut value);
                    Some(Entry::parse(&value, undo_page(at.page()))?)
                }
            };
            let older = restored.and_then(|r| r.overflow()).map(|o| o.first);
            if restored.is_none_or(|r| self.is_purged(&r)) {
                match self.removal(&leaf, slot, tree, index, &edge) {
                    Err(fence) => {
                        drop(leaf);
                        drop(mtr);
                        edge.find(self, tree, index, &fence, &mut |_| {})?;
                        continue;
                    }
                    Ok(guards) => {
                        let sparse = leaf.is_sparse_without(slot);
                        self.remove_entry(
                            leaf,
                            slot,
                            key,
                            index,
                            &edge,
                            guards,
                            &mut mtr,
                            cut.map(|log| (log, offset)),
                        )?;
                        mtr.commit()?;
                        return Ok(Some(LeftOver { chains: [chain, older.filter(|o| chain != Some(*o))], sparse }));
                    }
                }
            }
            if !leaf.fits_replace(slot, value.len()) {
                drop(leaf);
                drop(mtr);
                let _room = BeyondLimit::new(Beyond::Rollback);
                self.make_room(tree, key, value.len())?;
                continue;
            }
            let chain = chain.filter(|c| older != Some(*c));
            if let Some(log) = &cut {
                let _ = mtr.fix(log.page())?;
            }
            let leaf = leaf.into_mtr(&mut mtr);
            leaf.replace_value(&mut mtr, slot, &value)?;
            if let Some(log) = cut {
                log.truncate(&mut mtr, offset)?;
            }
            mtr.commit()?;
            return Ok(Some(LeftOver { chains: [chain, None], sparse: false }));
        }
    }

    /// Whether purge may have passed this delete-marked version, which was not the newest then: it must not come back,
    /// since nobody would remove it. Under the latch of its leaf, so purge either comes later or its limit is seen.
    fn is_purged(&self, version: &Entry<'_>) -> bool {
        version.is_deleted() && self.commits().csn(version.trx).is_some_and(|csn| csn < self.purge.limit())
    }

    /// Prepares to remove the entry: locks on it go to the key behind it, which must be known. `Err`: the fence from where
    /// to look for that key.
    pub(crate) fn removal<'p>(
        &'p self,
        leaf: &LeafExclusive<'_>,
        slot: usize,
        tree: Tree,
        index: IndexId,
        edge: &Edge,
    ) -> std::result::Result<SmallVec<[SharedPage<'p>; 2]>, Vec<u8>> {
        let key = leaf.key_parts(slot).joined();
        if !self.locks().may_have_locks(&LockKey::entry(&key)) || after(leaf, slot + 1, index) != After::Beyond {
            return Ok(SmallVec::new());
        }
        edge.verify(self, tree, index, leaf).ok_or_else(|| leaf.high_fence().to_vec())
    }

    /// Removes the entry, hands its locks on, and cuts `cut` off.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn remove_entry<'p>(
        &'p self,
        leaf: LeafExclusive<'p>,
        slot: usize,
        key: &[u8],
        index: IndexId,
        edge: &Edge,
        guards: SmallVec<[SharedPage<'p>; 2]>,
        mtr: &mut Mtr<'p>,
        cut: Option<(&mut UndoLog, usize)>,
    ) -> Result<()> {
        debug_assert!(in_index(key, index));
        if let Some((log, _)) = &cut {
            // Before anything is changed: an error must leave the mini-transaction empty.
            let _ = mtr.fix(log.page())?;
        }
        if self.locks().may_have_locks(&LockKey::entry(key)) {
            let removed = LockKey::entry(key);
            match after(&leaf, slot + 1, index) {
                After::Here => {
                    let mut next = Vec::new();
                    leaf.key_into(slot + 1, &mut next);
                    self.locks().inherit_on_remove(removed, LockKey::entry(&next));
                }
                After::Supremum => self.locks().inherit_on_remove(removed, LockKey::supremum(index)),
                After::Beyond => self.locks().inherit_on_remove(removed, edge.lock_key()),
            }
        }
        drop(guards);
        let leaf = leaf.into_mtr(mtr);
        leaf.remove(mtr, slot)?;
        if let Some((log, to)) = cut {
            log.truncate(mtr, to)?;
        }
        Ok(())
    }
}
