//! Reading one row.

use crate::cursor::{Cursor, CursorOptions, Seek};
use crate::gap::{after, After, Edge};
use crate::index::Index;
use crate::lock::{Extent, LockKey, LockMode, LockOutcome, Strength, TrxLocks, WaitPolicy, WaitToken};
use crate::place::Place;
use crate::read::{Found, View};
use crate::system::TrxSystem;
use crate::trx::{LockWait, RowBuf, Trx};
use crate::value::Entry;
use crate::write::set_full_key;
use myriad_base::{Csn, Error, Result, TrxId};
use myriad_btree::{KeyParts, Leaf, LeafShared};
use std::sync::Arc;

/// What became of the wish to lock an entry.
pub(crate) enum Locked {
    /// It is locked; `new`: by this request, so that it can be given back.
    Held { new: bool },
    /// The request is queued.
    Wait(WaitToken),
    /// It is locked by another, and waiting was not wanted.
    Blocked,
}

impl LockWait {
    pub(crate) fn policy(self) -> WaitPolicy {
        match self {
            LockWait::Wait => WaitPolicy::Wait,
            LockWait::NoWait | LockWait::SkipLocked => WaitPolicy::NoWait,
        }
    }
}

/// What locking needs of a transaction, apart from its buffers.
#[derive(Clone, Copy)]
pub(crate) struct Locker<'t> {
    pub sys: &'t TrxSystem,
    pub locks: &'t Arc<TrxLocks>,
    pub own: TrxId,
    /// See [`Trx::binding_snapshot`].
    pub binding: Option<Csn>,
}

impl Locker<'_> {
    /// Whether nobody else may still commit or undo what the entry says. Of one that is deleted there is nothing to lock then,
    /// but the gap.
    pub fn is_settled(&self, entry: &Entry<'_>) -> bool {
        self.sys.sees(View::Committed, self.own, entry.trx)
    }

    /// Locks an entry whose leaf is latched.
    ///
    /// # Errors
    /// [`Error::RecordChanged`].
    pub fn lock_entry(
        &self,
        key: LockKey<'_>,
        entry: &Entry<'_>,
        mode: LockMode,
        policy: WaitPolicy,
    ) -> Result<Locked> {
        if self.own.0 != 0 && entry.trx == self.own {
            // The record part is held, implicitly.
            if mode.extent == Extent::NextKey {
                let gap = LockMode::new(mode.strength, Extent::Gap);
                grant_gap(self.sys.locks().request(self.locks, key, gap, WaitPolicy::Wait));
            }
            return Ok(Locked::Held { new: false });
        }
        self.sys.implicitly_locked(self.own, entry.trx, key);
        Ok(match self.sys.locks().request(self.locks, key, mode, policy) {
            LockOutcome::Granted { new } => {
                self.check_unchanged(entry)?;
                Locked::Held { new }
            }
            LockOutcome::Waiting(token) => Locked::Wait(token),
            LockOutcome::WouldBlock => Locked::Blocked,
        })
    }

    fn check_unchanged(&self, entry: &Entry<'_>) -> Result<()> {
        self.sys.check_unchanged(self.binding, self.own, entry.trx)
    }

    /// Locks an entry that a long scan upwards has come to, see [`crate::lock::LockTable::add_to_span`]. `false`: to be locked by
    /// [`Locker::lock_entry`].
    ///
    /// # Errors
    /// [`Error::RecordChanged`].
    pub fn add_to_span(&self, key: LockKey<'_>, entry: &Entry<'_>, mode: LockMode) -> Result<bool> {
        if self.own.0 != 0 && entry.trx == self.own {
            return Ok(false);
        }
        self.sys.implicitly_locked(self.own, entry.trx, key);
        if !self.sys.locks().add_to_span(self.locks, key, mode) {
            return Ok(false);
        }
        self.check_unchanged(entry)?;
        Ok(true)
    }

    /// Locks the gap that ends where `slot` of the leaf is or would be. `false`: the leaf has changed, look again.
    pub fn lock_gap(
        &self,
        edge: &mut Edge,
        leaf: LeafShared<'_>,
        slot: usize,
        index: &Index,
        strength: Strength,
    ) -> Result<bool> {
        if index.private {
            return Ok(true);
        }
        let (sys, locks) = (self.sys, self.locks);
        let mode = LockMode::new(strength, Extent::Gap);
        let lock = &mut |key: LockKey<'_>| grant_gap(sys.locks().request(locks, key, mode, WaitPolicy::Wait));
        match after(&leaf, slot, index.id) {
            After::Here => {
                lock(LockKey::entry(&leaf.key_parts(slot).joined()));
                return Ok(true);
            }
            After::Supremum => {
                lock(LockKey::supremum(index.id));
                return Ok(true);
            }
            After::Beyond => {}
        }
        let fence = leaf.high_fence().to_vec();
        let (frame, id, version) = (leaf.frame(), leaf.page_id(), leaf.version());
        drop(leaf);
        loop {
            edge.find(sys, index.tree, index.id, &fence, lock)?;
            let Some(page) = sys.pool().try_reuse(frame, id, version) else { return Ok(false) };
            let leaf = LeafShared::from_reused(page);
            if edge.verify(sys, index.tree, index.id, &leaf).is_some() {
                return Ok(true);
            }
        }
    }
}

/// Gap locks wait for nothing.
pub(crate) fn grant_gap(outcome: LockOutcome) {
    assert!(matches!(outcome, LockOutcome::Granted { .. }), "a gap lock had to wait");
}

impl Trx {
    pub(crate) fn locker(&self) -> Locker<'_> {
        Locker { sys: &self.sys, locks: &self.locks, own: self.id(), binding: self.binding_snapshot() }
    }

    /// See [`Locker::lock_gap`].
    pub(crate) fn lock_gap(
        &mut self,
        leaf: LeafShared<'_>,
        slot: usize,
        index: &Index,
        strength: Strength,
    ) -> Result<bool> {
        let mut edge = std::mem::take(&mut self.scratch.edge);
        let locked = self.locker().lock_gap(&mut edge, leaf, slot, index, strength);
        self.scratch.edge = edge;
        locked
    }

    /// Reads the row with exactly this key, or with `prefix` the first that begins with it (a unique index). With `lock`
    /// the newest committed version, locked; else the snapshot's. Whether there is one.
    ///
    /// # Errors
    /// Lock wait errors, those of the tree.
    pub fn get(
        &mut self,
        index: &Index,
        key: &[u8],
        prefix: bool,
        lock: Option<Strength>,
        wait: LockWait,
        out: &mut RowBuf,
    ) -> Result<bool> {
        self.start();
        match lock {
            None if !prefix => self.get_exact(index, key, usize::MAX, out),
            Some(strength) if !prefix => self.get_locked(index, key, strength, wait, usize::MAX, out),
            _ => {
                let options = CursorOptions { lock, wait, ..CursorOptions::PLAIN };
                let mut cursor = Cursor::new(*index, options);
                let found = cursor.seek(self, Seek::ExactUnique, key)?;
                if found {
                    out.set(cursor.key(), cursor.value());
                    out.lock_is_new = cursor.lock_is_new();
                }
                Ok(found)
            }
        }
    }

    /// As [`Trx::get`] of a whole key, and of a payload with a head in the entry no more than that and the pages of the next
    /// `tail_bytes`.
    ///
    /// # Errors
    /// As [`Trx::get`].
    pub fn get_head(
        &mut self,
        index: &Index,
        key: &[u8],
        lock: Option<Strength>,
        wait: LockWait,
        tail_bytes: usize,
        out: &mut RowBuf,
    ) -> Result<bool> {
        self.start();
        match lock {
            None => self.get_exact(index, key, tail_bytes, out),
            Some(strength) => self.get_locked(index, key, strength, wait, tail_bytes, out),
        }
    }

    /// Whether the transaction's view shows the newest version of the entry with this whole key, so that nobody who may still
    /// commit has written it; true where there is no entry.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn sees_newest(&mut self, index: &Index, key: &[u8]) -> Result<bool> {
        self.start();
        let (view, own) = (self.view(), self.id());
        set_full_key(&mut self.scratch.key, index, key);
        let leaf = index.seek(&self.sys, &self.scratch.key)?;
        let Ok(slot) = leaf.find(&self.scratch.key) else { return Ok(true) };
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        Ok(self.sys.sees(view, own, entry.trx))
    }

    /// At READ COMMITTED and below: the row with this whole key, which [`Trx::get`] has locked anew with `strength`, does not
    /// match; the lock goes.
    pub fn unlock(&mut self, index: &Index, key: &[u8], strength: Strength) {
        if self.isolation().locks_gaps() {
            return;
        }
        set_full_key(&mut self.scratch.key, index, key);
        let mode = LockMode::new(strength, Extent::Record);
        self.sys.locks().release_one(&self.locks, LockKey::entry(&self.scratch.key), mode);
    }

    fn get_exact(&mut self, index: &Index, key: &[u8], tail_bytes: usize, out: &mut RowBuf) -> Result<bool> {
        let view = self.view();
        let own = self.id();
        set_full_key(&mut self.scratch.key, index, key);
        let leaf = self.locks.until_killed(|| index.seek(&self.sys, &self.scratch.key))?;
        let page = leaf.page_id();
        let Ok(slot) = leaf.find_sought(&self.scratch.key)? else { return Ok(false) };
        let entry = Entry::parse(leaf.value(slot), page)?;
        let view = self.view_of(view, index, KeyParts::whole(&self.scratch.key), &entry, page)?;
        self.versions.leaf_latched();
        let version = match self.sys.find_version(entry, page, view, own, &mut self.versions)? {
            Found::Version(version) => version,
            Found::Far => {
                drop(leaf);
                self.sys.far_version(page, view, own, &mut self.versions, || self.locks.is_killed())?
            }
        };
        let Some(version) = version else { return Ok(false) };
        out.begin(key);
        self.locks.until_killed(|| version.read_into(&self.sys, page, (usize::MAX, tail_bytes), &mut out.bytes))?;
        Ok(true)
    }

    fn get_locked(
        &mut self,
        index: &Index,
        key: &[u8],
        strength: Strength,
        wait: LockWait,
        tail_bytes: usize,
        out: &mut RowBuf,
    ) -> Result<bool> {
        set_full_key(&mut self.scratch.key, index, key);
        let (gaps, binding) = (self.isolation().locks_gaps(), self.binding_snapshot());
        self.sys.locks().check_room(&self.locks)?;
        loop {
            let locker = Locker { sys: &self.sys, locks: &self.locks, own: self.id(), binding };
            let full = &self.scratch.key[..];
            let leaf = self.locks.until_killed(|| index.seek(locker.sys, full))?;
            let slot = match leaf.find_sought(full)? {
                Ok(slot) => slot,
                Err(behind) => {
                    if !gaps || locker.lock_gap(&mut self.scratch.edge, leaf, behind, index, strength)? {
                        return Ok(false);
                    }
                    continue;
                }
            };
            let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
            if !gaps && entry.is_deleted() && locker.is_settled(&entry) {
                return Ok(false);
            }
            // No other entry can have the key: of a deleted one, too, no gap is locked. Purge makes one of the lock.
            let mode = LockMode::new(strength, Extent::Record);
            let locked = match index.private {
                false => locker.lock_entry(LockKey::entry(full), &entry, mode, wait.policy())?,
                true => Locked::Held { new: false },
            };
            match locked {
                Locked::Held { new } if entry.is_deleted() => {
                    if new && !gaps {
                        locker.sys.locks().release_one(locker.locks, LockKey::entry(full), mode);
                    }
                    return Ok(false);
                }
                Locked::Held { new } => {
                    out.begin(key);
                    out.lock_is_new = new;
                    let page = leaf.page_id();
                    let version = locker.sys.version(entry, page, View::Newest, locker.own, &mut self.versions)?;
                    let version = version.expect("not deleted");
                    version.read_into(locker.sys, page, (usize::MAX, tail_bytes), &mut out.bytes)?;
                    if index.clustered {
                        self.place = Some(Place::read(index.tree, &leaf, slot));
                    }
                    return Ok(true);
                }
                Locked::Wait(token) => {
                    drop(leaf);
                    self.wait(token)?;
                }
                Locked::Blocked if wait == LockWait::SkipLocked => return Ok(false),
                Locked::Blocked => return Err(Error::LockWaitTimeout),
            }
        }
    }
}
