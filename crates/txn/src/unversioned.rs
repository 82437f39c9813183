//! Entries without version or undo: counters, bulk loads, index builds.

use crate::index::Index;
use crate::place::{found, Place};
use crate::rollback::LeftOver;
use crate::system::TrxSystem;
use crate::trx::{ApplyError, Op, OpKind, Trx};
use crate::value::{self, Entry};
use crate::write::{check_writable, set_full_key, unique_prefix, Stored};
use myriad_base::{Error, Result, TrxId};
use myriad_btree::page::{begins_with, entry_bytes_max};
use myriad_btree::{BulkAppender, Leaf, SortedEntries, Tree};
use myriad_buffer::Mtr;
use smallvec::SmallVec;

/// Keys and values without versions up to this length take no allocation.
const PLAIN_BYTES: usize = 64;

/// What to do with an entry that has no versions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Insert,
    Put,
    Update,
    Remove,
}

impl Trx {
    /// Changes of a table that nobody else sees yet: no undo, no locks, entries frozen. Not rolled back. `places` says where
    /// the operations before were, and is kept for those that follow.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], those of the tree.
    pub fn apply_bulk(
        &mut self,
        ops: &[Op<'_>],
        places: &mut Vec<Option<Place>>,
    ) -> std::result::Result<(), ApplyError> {
        check_writable(&self.sys, ops).map_err(|error| ApplyError { op: 0, error })?;
        places.resize(places.len().max(ops.len()), None);
        // There is no undo to take back the row's first entries, so every duplicate must show before the first change.
        for (i, op) in ops.iter().enumerate() {
            set_full_key(&mut self.scratch.key, op.index, op.key);
            self.bulk_unique(op, &ops[..i], &mut places[i]).map_err(|error| ApplyError { op: i, error })?;
        }
        for (i, op) in ops.iter().enumerate() {
            let what = match op.kind {
                OpKind::Insert => Plain::Insert,
                OpKind::Update => Plain::Update,
                OpKind::Delete => Plain::Remove,
            };
            set_full_key(&mut self.scratch.key, op.index, op.key);
            let stored = (op.payload, op.head_len);
            if let Err(error) = self.sys.plain(&mut places[i], op.index, &self.scratch.key, stored, what) {
                if matches!(error, Error::DuplicateKey { .. }) && self.duplicate.is_empty() {
                    self.duplicate.extend_from_slice(&self.scratch.key);
                }
                return Err(ApplyError { op: i, error });
            }
        }
        Ok(())
    }

    /// An entry that an operation `before` it removes is no duplicate.
    fn bulk_unique(&mut self, op: &Op<'_>, before: &[Op<'_>], place: &mut Option<Place>) -> Result<()> {
        self.duplicate.clear();
        let Some(len) = unique_prefix(op) else { return Ok(()) };
        let mut from: SmallVec<[u8; PLAIN_BYTES]> = SmallVec::from_slice(&self.scratch.key[..len]);
        loop {
            let (pool, tree) = (self.sys.pool(), op.index.tree);
            let leaf = match place.and_then(|place| place.shared(pool, tree, &from)) {
                Some(leaf) => leaf,
                None => tree.seek(pool, &from)?,
            };
            let slot = leaf.find(&from).unwrap_or_else(|s| s);
            *place = Some(Place::read(tree, &leaf, slot));
            if slot < leaf.len() {
                leaf.key_into(slot, &mut self.scratch.other);
                if self.scratch.other.get(..len) != Some(&self.scratch.key[..len]) {
                    return Ok(());
                }
                let goes = |b: &Op<'_>| {
                    b.kind == OpKind::Delete && b.index.id == op.index.id && self.scratch.other[4..] == *b.key
                };
                if before.iter().any(goes) {
                    return Ok(());
                }
                self.duplicate.clear();
                self.duplicate.extend_from_slice(&self.scratch.other);
                return Err(Error::DuplicateKey { index: op.index.id });
            }
            if leaf.is_last() || !begins_with(leaf.high_fence(), &self.scratch.key[..len]) {
                return Ok(());
            }
            from = SmallVec::from_slice(leaf.next_from(&from)?);
        }
    }
}

impl TrxSystem {
    /// Lets `fill` add frozen entries ([`TrxSystem::frozen_value`]) in key order to a tree that others use. None of them may
    /// exist yet.
    ///
    /// # Errors
    /// Those of `fill` and of [`BulkAppender::flush`].
    pub fn append_sorted(&self, tree: Tree, fill: impl FnOnce(&mut BulkAppender<'_>) -> Result<()>) -> Result<()> {
        let make_room = |key: &[u8], value_len: usize| self.make_room(tree, key, value_len);
        let mut appender = BulkAppender::new(self.pool(), tree, &make_room);
        fill(&mut appender)?;
        appender.flush()
    }

    /// Whether an entry is stored in its leaf, without overflow pages; `key_len` counts the key without the index id.
    pub fn is_stored_whole(&self, key_len: usize, payload_len: usize) -> bool {
        key_len + 4 + value::HEADER_BYTES + payload_len <= entry_bytes_max(self.pool().page_size())
    }

    /// Adds a frozen entry that is stored whole to those that wait for [`TrxSystem::append_entries`].
    ///
    /// # Errors
    /// Those of [`SortedEntries::push_parts`].
    pub fn push_frozen(&self, entries: &mut SortedEntries, index: &Index, key: &[u8], payload: &[u8]) -> Result<()> {
        entries.push_parts(self.pool().page_size(), [&index.id.0.to_be_bytes(), key], [&[0], payload])
    }

    /// Puts the entries into a tree that others use; none of them may exist yet. None wait afterwards.
    ///
    /// # Errors
    /// Those of [`BulkAppender::append`].
    pub fn append_entries(&self, tree: Tree, entries: &mut SortedEntries) -> Result<()> {
        let make_room = |key: &[u8], value_len: usize| self.make_room(tree, key, value_len);
        BulkAppender::new(self.pool(), tree, &make_room).append(entries)?;
        entries.clear();
        Ok(())
    }

    /// Stores an entry without version or undo (counters, bulk loads), whether or not there is one.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn put_unversioned(&self, index: &Index, key: &[u8], payload: &[u8]) -> Result<()> {
        self.put_unversioned_at(&mut None, index, key, payload)
    }

    /// As [`TrxSystem::put_unversioned`], for an entry that is stored often: `place` is where it was the last time.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn put_unversioned_at(
        &self,
        place: &mut Option<Place>,
        index: &Index,
        key: &[u8],
        payload: &[u8],
    ) -> Result<()> {
        let mut full: SmallVec<[u8; PLAIN_BYTES]> = SmallVec::from_slice(&index.id.0.to_be_bytes());
        full.extend_from_slice(key);
        self.plain(place, index, &full, (payload, 0), Plain::Put)
    }

    /// Removes an entry without version or undo; whether there was one.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn remove_unversioned(&self, index: &Index, key: &[u8]) -> Result<bool> {
        let mut full = Vec::with_capacity(key.len() + 4);
        set_full_key(&mut full, index, key);
        let there = {
            let leaf = index.tree.seek(self.pool(), &full)?;
            leaf.find(&full).is_ok()
        };
        if there {
            self.plain(&mut None, index, &full, (&[], 0), Plain::Remove)?;
        }
        Ok(there)
    }

    /// Reads the newest version of an entry, committed or not, into `out`; whether there is one.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn get_newest(&self, index: &Index, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut full = Vec::with_capacity(key.len() + 4);
        set_full_key(&mut full, index, key);
        let leaf = index.tree.seek(self.pool(), &full)?;
        let Ok(slot) = leaf.find(&full) else { return Ok(false) };
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let mut versions = crate::read::Versions::default();
        let version = self.version(entry, leaf.page_id(), crate::read::View::Newest, TrxId(0), &mut versions)?;
        out.clear();
        match version {
            Some(v) => v.payload_into(self, leaf.page_id(), out).map(|()| true),
            None => Ok(false),
        }
    }

    /// The value to store in a leaf for a frozen entry with this payload, for [`myriad_btree::BulkBuilder`]: writes
    /// overflow pages where the payload is long. `key_len` counts the key without the index id.
    ///
    /// # Errors
    /// Those of the buffer pool.
    pub fn frozen_value(&self, index: &Index, key_len: usize, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let stored = Stored::new(self, index, key_len + 4, payload, 0)?;
        out.clear();
        out.push(stored.flags());
        out.extend_from_slice(stored.body());
        Ok(())
    }

    fn plain(
        &self,
        place: &mut Option<Place>,
        index: &Index,
        key: &[u8],
        (payload, head_len): (&[u8], usize),
        what: Plain,
    ) -> Result<()> {
        let stored = Stored::new(self, index, key.len(), payload, head_len)?;
        let mut value: SmallVec<[u8; PLAIN_BYTES]> = SmallVec::with_capacity(1 + stored.body().len());
        value.push(stored.flags());
        value.extend_from_slice(stored.body());
        match self.plain_entry(place, index, key, &value, what) {
            Ok(left) => self.tidy_up(index.id, index.tree, key, left, None),
            Err(e) => {
                stored.discard(self, index)?;
                Err(e)
            }
        }
    }

    /// Returns what is left to be done about the entry that was replaced or removed.
    fn plain_entry(
        &self,
        place: &mut Option<Place>,
        index: &Index,
        key: &[u8],
        value: &[u8],
        what: Plain,
    ) -> Result<LeftOver> {
        let (pool, tree) = (self.pool(), index.tree);
        loop {
            let mut mtr = Mtr::start(pool)?;
            let (leaf, slot) = match place.and_then(|place| place.exclusive(pool, tree, key)) {
                Some(known) => known,
                None => found(tree.seek_exclusive(pool, key)?, key)?,
            };
            let changed = Place::moved(tree, &leaf, slot.unwrap_or_else(|s| s));
            let mut left = LeftOver { chains: [None, None], sparse: false };
            match slot {
                Ok(slot) => {
                    let old = Entry::parse(leaf.value(slot), leaf.page_id())?;
                    if what == Plain::Insert && !old.is_deleted() {
                        return Err(Error::DuplicateKey { index: index.id });
                    }
                    left.chains[0] = old.overflow().map(|o| o.first);
                    if what != Plain::Remove && !leaf.fits_replace(slot, value.len()) {
                        drop(leaf);
                        drop(mtr);
                        self.make_room(tree, key, value.len())?;
                        continue;
                    }
                    left.sparse = what == Plain::Remove && leaf.is_sparse_without(slot);
                    let leaf = leaf.into_mtr(&mut mtr);
                    if what == Plain::Remove {
                        leaf.remove(&mut mtr, slot)?;
                    } else {
                        leaf.replace_value(&mut mtr, slot, value)?;
                    }
                }
                Err(slot) if matches!(what, Plain::Insert | Plain::Put) => {
                    if !leaf.fits(key.len(), value.len()) {
                        drop(leaf);
                        drop(mtr);
                        self.make_room(tree, key, value.len())?;
                        continue;
                    }
                    leaf.into_mtr(&mut mtr).insert(&mut mtr, slot, key, value)?;
                }
                Err(_) => return Err(TrxSystem::missing_entry(leaf.page_id(), index.id)),
            }
            mtr.commit()?;
            *place = Some(changed);
            return Ok(left);
        }
    }
}
