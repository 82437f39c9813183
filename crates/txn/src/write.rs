//! Row operations.
//!
//! An attempt latches the entry's leaf exclusively and asks for all that may stand in its way: locks, room in the leaf,
//! room in the undo page, the key behind the gap. If anything is missing it lets go of the leaf, gets it, and attempts
//! again; otherwise undo record and entry change are one mini-transaction.

use crate::buffered::Change;
use crate::gap::{after, After, Edge};
use crate::get::{grant_gap, Locked, Locker};
use crate::index::Index;
use crate::lock::{
    hash_key, Extent, Inheritance, LockKey, LockMode, LockOutcome, Strength, TrxLocks, WaitOutcome, WaitPolicy,
    WaitToken,
};
use crate::place::{found, Place};
use crate::read::View;
use crate::system::TrxSystem;
use crate::trx::{trim, ApplyError, Op, OpKind, Trx};
use crate::undo::record::{self, Target};
use crate::undo::space::UndoLog;
use crate::value::{self, Entry, OverflowRef};
use myriad_base::{Csn, Error, IndexId, Result, RollPtr, SpaceId, TrxId};
use myriad_btree::page::{begins_with, compare, entry_bytes_max};
use myriad_btree::{overflow, Leaf, LeafExclusive};
use myriad_buffer::{Beyond, BeyondLimit, Mtr};
use std::sync::Arc;
use std::time::Duration;

/// Buffers of a transaction object, kept to avoid allocation.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The full key of the operation.
    pub key: Vec<u8>,
    /// The neighbouring key.
    pub other: Vec<u8>,
    value: Vec<u8>,
    record: Vec<u8>,
    pub edge: Edge,
}

impl Scratch {
    pub fn trim(&mut self) {
        trim(&mut self.value);
        trim(&mut self.record);
    }
}

/// A payload as it is stored: in the entry or, but for its head, in overflow pages.
pub(crate) enum Stored<'a> {
    Inline(&'a [u8]),
    /// In new overflow pages.
    Chain(OverflowRef, Vec<u8>),
    /// In those of the version that its transaction and roll pointer name.
    Kept {
        of: (TrxId, RollPtr),
        body: Vec<u8>,
    },
}

impl<'a> Stored<'a> {
    /// Writes overflow pages if the payload does not fit an entry with a full key of this length. Its first `head_len` bytes
    /// stay in the entry if they fit.
    pub fn new(
        sys: &TrxSystem,
        index: &Index,
        key_len: usize,
        payload: &'a [u8],
        head_len: usize,
    ) -> Result<Stored<'a>> {
        let page_size = sys.pool().page_size();
        let key_max = myriad_base::limits::key_bytes_max(page_size);
        if key_len > key_max {
            // Without the index id, as the caller counts.
            return Err(Error::TooLong { what: "key", len: key_len - 4, max: key_max - 4 });
        }
        if key_len + value::HEADER_BYTES + payload.len() <= entry_bytes_max(page_size) {
            return Ok(Stored::Inline(payload));
        }
        let len = u32::try_from(payload.len()).map_err(|_| Error::TooLong {
            what: "row",
            len: payload.len(),
            max: myriad_base::limits::VALUE_BYTES_MAX,
        })?;
        let (head, rest) = payload.split_at(Stored::head_that_fits(page_size, key_len, payload, head_len));
        let first = overflow::write_overflow(sys.pool(), index.tree.space, rest)?;
        let r = OverflowRef { len, head_len: head.len() as u32, first };
        Ok(Stored::Chain(r, r.body(head)))
    }

    /// The length of a payload's head in an entry with a full key of this length; 0 if it does not fit, or nothing is behind.
    fn head_that_fits(page_size: usize, key_len: usize, payload: &[u8], head_len: usize) -> usize {
        let bytes = key_len + value::HEADER_BYTES + value::OVERFLOW_REF_BYTES + head_len;
        if head_len < payload.len() && bytes <= entry_bytes_max(page_size) {
            head_len
        } else {
            0
        }
    }

    /// As [`Stored::new`] for an update of the entry with this full key: keeps its overflow pages if they hold what is behind
    /// the payload's head. The transaction `own` need not have locked the entry yet: whoever stores the payload makes sure
    /// that the version is still the newest. Another's that is not committed does not count: it may be undone, and a new one,
    /// with other pages, written with the same roll pointer.
    fn kept(sys: &TrxSystem, own: TrxId, op: &Op<'_>, key: &[u8]) -> Result<Option<Stored<'a>>> {
        let (pool, index) = (sys.pool(), op.index);
        let page_size = pool.page_size();
        if key.len() + value::HEADER_BYTES + op.payload.len() <= entry_bytes_max(page_size) {
            return Ok(None);
        }
        let head_len = Stored::head_that_fits(page_size, key.len(), op.payload, op.head_len);
        let (head, rest) = op.payload.split_at(head_len);
        let leaf = index.seek(sys, key)?;
        let Ok(slot) = leaf.find(key) else { return Ok(None) };
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        if entry.trx != own && sys.commits().csn(entry.trx).is_none() {
            return Ok(None);
        }
        let Some(chain) = entry.overflow() else { return Ok(None) };
        let (Ok(len), false) = (u32::try_from(op.payload.len()), entry.is_deleted()) else { return Ok(None) };
        if head_len == 0
            || chain.chain_len() != rest.len()
            || !overflow::holds(pool, leaf.page_id(), chain.first, rest)?
        {
            return Ok(None);
        }
        let r = OverflowRef { len, head_len: head_len as u32, first: chain.first };
        Ok(Some(Stored::Kept { of: (entry.trx, entry.roll), body: r.body(head) }))
    }

    pub fn flags(&self) -> u8 {
        match self {
            Stored::Inline(_) => 0,
            Stored::Chain(..) | Stored::Kept { .. } => value::OVERFLOW,
        }
    }

    pub fn body(&self) -> &[u8] {
        match self {
            Stored::Inline(b) => b,
            Stored::Chain(_, b) | Stored::Kept { body: b, .. } => b,
        }
    }

    /// The entry was not stored: the pages are free again.
    pub fn discard(self, sys: &TrxSystem, index: &Index) -> Result<()> {
        match self {
            Stored::Inline(_) | Stored::Kept { .. } => Ok(()),
            Stored::Chain(r, _) => overflow::free_overflow(sys.pool(), index.tree.space, r.first),
        }
    }
}

/// What an attempt came to.
enum Step {
    Done,
    /// Wait for a lock.
    Wait(WaitToken),
    /// The undo page is full.
    UndoPage,
    /// The undo page is not in memory.
    UndoAway,
    /// The leaf has no room for a value of this length.
    Room(usize),
    /// The key behind the leaf's end is needed; the leaf's high fence.
    Edge(Vec<u8>),
    /// Entries with the unique prefix may be in other leaves.
    WideCheck,
    /// The version whose overflow pages were to be kept is no longer the newest.
    NotKept,
}

/// A duplicate check's outcome for one entry or all.
enum Check {
    Pass,
    /// None so far; the next leaf must be looked at.
    Further,
    Duplicate,
    Wait(WaitToken),
}

/// Bytes in front of those that a change in place changes that are logged with the header, rather than a record of its own for
/// what is behind them: that takes six bytes and more time.
const TOGETHER_BYTES_MAX: usize = 8;

/// How often the undo page is read for an operation before it is waited for with the leaf latched: it may go each time.
const UNDO_READS_MAX: u32 = 16;

struct Writer<'t> {
    sys: &'t TrxSystem,
    locks: &'t Arc<TrxLocks>,
    log: &'t mut UndoLog,
    scratch: &'t mut Scratch,
    duplicate: &'t mut Vec<u8>,
    timeout: Duration,
    own: TrxId,
    /// Strength of locks on duplicates.
    strength: Strength,
    /// Of a secondary entry: how much of its key is the row's clustered key; 0 = not known.
    row_key_len: usize,
    /// See [`RowKeys::settled`]; told by the clustered entry's change.
    settled: &'t mut bool,
    /// See [`crate::overtaken`].
    snapshot: Option<Csn>,
    /// See [`Trx::binding_snapshot`].
    binding: Option<Csn>,
    overtook: bool,
    place: &'t mut Option<Place>,
    /// How often the undo page was read again for the operation.
    undo_reads: u32,
}

impl Trx {
    /// Makes one row's changes, all or none.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] (the duplicate's key: [`Trx::duplicate_key`]), lock wait errors, those of the tree.
    /// After [`Error::Deadlock`], [`Error::RecordChanged`] and [`Error::LockTableFull`] the caller must roll back the transaction.
    pub fn apply(&mut self, ops: &[Op<'_>]) -> std::result::Result<(), ApplyError> {
        self.apply_ops(ops, Strength::S)
    }

    /// As [`Trx::apply`]; a duplicate found is locked exclusively (REPLACE, ON DUPLICATE KEY UPDATE).
    ///
    /// # Errors
    /// As [`Trx::apply`].
    pub fn apply_duplicate_x(&mut self, ops: &[Op<'_>]) -> std::result::Result<(), ApplyError> {
        self.start();
        if self.isolation().locks_gaps() {
            return self.apply_ops(ops, Strength::X);
        }
        // The locks on duplicates are exclusive, those that changes take are implicit: it is the exclusive ones that must
        // keep the place of an entry that goes away.
        self.locks.set_inheritance(Inheritance::ExclusiveOnly);
        let applied = self.apply_ops(ops, Strength::X);
        self.locks.set_inheritance(self.isolation().inheritance());
        applied
    }

    fn apply_ops(&mut self, ops: &[Op<'_>], strength: Strength) -> std::result::Result<(), ApplyError> {
        check_writable(&self.sys, ops)
            .and_then(|()| self.start_writing())
            .and_then(|()| self.sys.locks().check_room(&self.locks))
            .map_err(|error| ApplyError { op: 0, error })?;
        let before = self.savepoint();
        let mut row = RowKeys { old: None, new: None, settled: true };
        for (i, op) in ops.iter().enumerate() {
            let row_key_len = row.note(op, &ops[..i]);
            if let Err(error) = self.apply_op(op, row_key_len, &mut row.settled, strength) {
                return match self.rollback_to(before) {
                    Ok(()) => Err(ApplyError { op: i, error }),
                    Err(error) => Err(ApplyError { op: i, error }),
                };
            }
        }
        Ok(())
    }

    fn apply_op(&mut self, op: &Op<'_>, row_key_len: usize, settled: &mut bool, strength: Strength) -> Result<()> {
        let (timeout, own) = (self.lock_timeout(), self.id());
        let (snapshot, binding) = (self.snapshot_csn(), self.binding_snapshot());
        self.comes_back = true;
        self.lasting_changes |= op.index.tree.space != SpaceId::MEMORY;
        set_full_key(&mut self.scratch.key, op.index, op.key);
        let payload = if op.kind == OpKind::Delete { &[] } else { op.payload };
        let kept = match op.kind {
            OpKind::Update if op.head_len > 0 => Stored::kept(&self.sys, own, op, &self.scratch.key)?,
            _ => None,
        };
        let mut stored = match kept {
            Some(kept) => kept,
            None => Stored::new(&self.sys, op.index, op.key.len() + 4, payload, op.head_len)?,
        };
        let mut writer = Writer {
            sys: &self.sys,
            locks: &self.locks,
            log: self.undo.as_mut().expect("start_writing was called"),
            scratch: &mut self.scratch,
            duplicate: &mut self.duplicate,
            timeout,
            own,
            strength,
            row_key_len,
            settled,
            snapshot,
            binding,
            overtook: false,
            place: &mut self.place,
            undo_reads: 0,
        };
        match writer.run(op, &mut stored) {
            Ok(()) => {
                if writer.overtook {
                    let records = writer.log.records;
                    self.overtaken.add(op.index, op.key, records);
                }
                self.count_change();
                Ok(())
            }
            Err(e) => {
                stored.discard(&self.sys, op.index)?;
                Err(e)
            }
        }
    }
}

/// Operations are refused where so much of the table's file waits to be written already that no more may be added.
pub(crate) fn check_writable(sys: &TrxSystem, ops: &[Op<'_>]) -> Result<()> {
    ops.first().map_or(Ok(()), |op| sys.pool().check_writable(op.index.tree.space))
}

/// The row's clustered key before and after its change, as far as its operations have told it.
struct RowKeys<'a> {
    old: Option<&'a Op<'a>>,
    new: Option<&'a Op<'a>>,
    /// Whether everybody saw the clustered entries changed so far as they were before, or there was none. Then whatever
    /// secondary entry has their row keys is live and seen by everybody, or delete-marked and everybody sees that: its writers
    /// wrote the clustered entry as well, earlier than the one seen; a clustered entry goes only when nobody sees its row
    /// (purge) or when its row's other entries are gone (rollback).
    settled: bool,
}

impl<'a> RowKeys<'a> {
    /// Notes an operation; if it is of a secondary index, how much of its key is the row's clustered key, 0 if that is not
    /// known.
    /// `before` are the operations before it.
    fn note(&mut self, op: &'a Op<'a>, before: &[Op<'_>]) -> usize {
        if op.index.clustered {
            self.old = self.old.or(Some(op));
            self.new = Some(op);
            return 0;
        }
        // The entry that it finds is the transaction's own then.
        self.settled &= !before.iter().any(|b| b.index.id == op.index.id && b.key == op.key);
        let row = if op.kind == OpKind::Delete { self.old } else { self.new };
        row.filter(|r| r.index.table == op.index.table && op.key.ends_with(r.key)).map_or(0, |r| r.key.len())
    }
}

/// Replaces `out` by the index id and `key`.
#[inline]
pub(crate) fn set_full_key(out: &mut Vec<u8>, index: &Index, key: &[u8]) {
    out.clear();
    out.reserve(4 + key.len());
    out.extend_from_slice(&index.id.0.to_be_bytes());
    out.extend_from_slice(key);
}

/// Length of the full key's prefix that must be unique, if that is not the whole key.
pub(crate) fn unique_prefix(op: &Op<'_>) -> Option<usize> {
    (op.kind == OpKind::Insert && op.unique_len > 0 && op.unique_len < op.key.len()).then_some(op.unique_len + 4)
}

impl Writer<'_> {
    fn run<'a>(&mut self, op: &Op<'a>, stored: &mut Stored<'a>) -> Result<()> {
        let (sys, pool, tree) = (self.sys, self.sys.pool(), op.index.tree);
        let prefix = unique_prefix(op);
        let mut guard = None;
        let mut checked = prefix.is_none();
        loop {
            if !self.log.fits(pool.page_size(), self.scratch.key.len() + 24) {
                sys.undo.extend(self.log)?;
            }
            if let (Some(len), None) = (prefix, &guard) {
                guard = Some(sys.unique_guard(hash_key(&self.scratch.key[..len])));
                checked = false;
            }
            match self.attempt(op, stored, checked)? {
                Step::Done => return Ok(()),
                Step::Wait(token) => {
                    // Not held while waiting: the one waited for may need it.
                    guard = None;
                    self.wait(token)?;
                }
                Step::UndoPage => sys.undo.extend(self.log)?,
                Step::UndoAway => {
                    self.undo_reads += 1;
                    drop(pool.fix_shared(self.log.page())?);
                }
                Step::Room(len) => {
                    // A deletion makes room in the end.
                    let _room = (op.kind == OpKind::Delete).then(|| BeyondLimit::new(Beyond::Deletion));
                    // The room is made where the tree leads. Fences that are damaged may have led elsewhere.
                    *self.place = None;
                    sys.make_room(tree, &self.scratch.key, len)?;
                }
                Step::NotKept => {
                    *stored = Stored::new(sys, op.index, self.scratch.key.len(), op.payload, op.head_len)?;
                }
                Step::Edge(fence) => self.scratch.edge.find(sys, tree, op.index.id, &fence, &mut |_| {})?,
                Step::WideCheck => match self.wide_check(op, prefix.unwrap_or(4))? {
                    Check::Pass | Check::Further => checked = true,
                    Check::Duplicate => return Err(Error::DuplicateKey { index: op.index.id }),
                    Check::Wait(token) => {
                        guard = None;
                        self.wait(token)?;
                    }
                },
            }
        }
    }

    fn wait(&self, token: WaitToken) -> Result<()> {
        self.locks.set_weight(self.log.records);
        match self.sys.locks().wait(self.locks, token, self.timeout) {
            WaitOutcome::Granted => Ok(()),
            WaitOutcome::Timeout => Err(Error::LockWaitTimeout),
            WaitOutcome::Deadlock => Err(Error::Deadlock),
            WaitOutcome::Interrupted => Err(Error::Interrupted),
        }
    }

    fn attempt(&mut self, op: &Op<'_>, stored: &Stored<'_>, checked: bool) -> Result<Step> {
        let pool = self.sys.pool();
        if self.may_buffer(op, stored) {
            if let Some(step) = self.buffer(op, stored)? {
                return Ok(step);
            }
        }
        let mtr = Mtr::start(pool)?;
        let (tree, key) = (op.index.tree, &self.scratch.key);
        let place = if op.index.clustered { *self.place } else { None };
        let (leaf, slot) = match place.and_then(|p| p.exclusive(pool, tree, key)) {
            Some(known) => known,
            // A secondary index is looked up by less than the whole key.
            None if op.index.clustered => found(op.index.seek_exclusive(self.sys, key)?, key)?,
            None => found(tree.seek_exclusive(pool, key)?, key)?,
        };
        if !checked {
            let prefix = unique_prefix(op).unwrap_or(4);
            if !holds_whole_prefix(&leaf, &self.scratch.key[..prefix]) {
                return Ok(Step::WideCheck);
            }
            match self.check_leaf(op.index.id, &leaf, prefix, &mut false)? {
                Check::Pass => {}
                Check::Further => return Ok(Step::WideCheck),
                Check::Duplicate => return Err(Error::DuplicateKey { index: op.index.id }),
                Check::Wait(token) => return Ok(Step::Wait(token)),
            }
        }
        match (slot, op.kind) {
            (Ok(slot), OpKind::Insert) => {
                if let Some(step) = self.revive(op, &leaf, slot)? {
                    return Ok(step);
                }
                self.change(op, stored, leaf, slot, mtr)
            }
            (Ok(slot), _) => self.change(op, stored, leaf, slot, mtr),
            (Err(slot), OpKind::Insert) => self.insert(op, stored, leaf, slot, mtr),
            (Err(_), _) => Err(TrxSystem::missing_entry(leaf.page_id(), op.index.id)),
        }
    }

    /// Whether the operation needs no look at its leaf, and can do without.
    fn may_buffer(&self, op: &Op<'_>, stored: &Stored<'_>) -> bool {
        *self.settled
            && op.kind != OpKind::Update
            && !op.index.clustered
            && op.unique_len == 0
            && (1..=usize::from(u8::MAX)).contains(&self.row_key_len)
            && stored.flags() == 0
            && self.sys.may_buffer(op.index.tree, &self.scratch.key)
    }

    /// Makes the change if the entry's leaf is not in memory, without reading that; `None` where this cannot be done.
    fn buffer(&mut self, op: &Op<'_>, stored: &Stored<'_>) -> Result<Option<Step>> {
        let pool = self.sys.pool();
        let mut mtr = Mtr::start(pool)?;
        let Some(leaf) = op.index.tree.absent_leaf(pool, &self.scratch.key)? else { return Ok(None) };
        let target = Target { tree: op.index.tree, key: &self.scratch.key, row_key_len: self.row_key_len };
        let change = if op.kind == OpKind::Insert {
            record::encode_insert(&mut self.scratch.record, target);
            self.scratch.value.clear();
            self.scratch.value.extend_from_slice(&self.header(stored.flags(), true));
            self.scratch.value.extend_from_slice(stored.body());
            Change::Insert { value: &self.scratch.value }
        } else {
            record::encode_mark(&mut self.scratch.record, target);
            Change::Mark { trx: self.own, row_key_len: self.row_key_len as u8 }
        };
        if !self.log.fits(pool.page_size(), self.scratch.record.len()) {
            return Ok(Some(Step::UndoPage));
        }
        // Before any change: an error must leave the mini-transaction empty.
        if !self.fix_undo(&mut mtr)? {
            return Ok(Some(Step::UndoAway));
        }
        let payload = &mut self.scratch.other;
        let Some(absent) = self.sys.buffer(leaf, op.index.id, &self.scratch.key, change, payload) else {
            return Ok(None);
        };
        self.log.append(&mut mtr, &self.scratch.record)?;
        absent.commit(mtr, &self.scratch.other)?;
        Ok(Some(Step::Done))
    }

    /// An insert has found its key: `None` if the entry is delete-marked for good and may come back to life.
    fn revive(&mut self, op: &Op<'_>, leaf: &LeafExclusive<'_>, slot: usize) -> Result<Option<Step>> {
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let key = LockKey::entry(&self.scratch.key);
        if entry.trx != self.own || self.own == TrxId(0) {
            let writer_active = self.sys.implicitly_locked(self.own, entry.trx, key);
            if writer_active || !entry.is_deleted() {
                let mode = LockMode::new(self.strength, Extent::Record);
                match self.sys.locks().request(self.locks, key, mode, WaitPolicy::Wait) {
                    LockOutcome::Waiting(token) => return Ok(Some(Step::Wait(token))),
                    LockOutcome::Granted { .. } | LockOutcome::WouldBlock => {}
                }
            }
        }
        if entry.is_deleted() {
            return Ok(None);
        }
        self.sys.check_unchanged(self.binding, self.own, entry.trx)?;
        self.duplicate.clear();
        self.duplicate.extend_from_slice(&self.scratch.key);
        Err(Error::DuplicateKey { index: op.index.id })
    }

    /// Checks the leaf's entries that begin with the first `prefix` bytes of the key. Where there are such and none is a
    /// duplicate, the entry behind them is locked as well, as InnoDB does. `matched`: whether there were any, here or in
    /// leaves before.
    fn check_leaf(&mut self, index: IndexId, leaf: &impl Leaf, prefix: usize, matched: &mut bool) -> Result<Check> {
        let mut slot = leaf.find(&self.scratch.key[..prefix]).unwrap_or_else(|s| s);
        while after(leaf, slot, index) == After::Here {
            leaf.key_into(slot, &mut self.scratch.other);
            let same = self.scratch.other.get(..prefix) == Some(&self.scratch.key[..prefix]);
            if !same && !*matched {
                return Ok(Check::Pass);
            }
            *matched = true;
            let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
            if let Locked::Wait(token) = self.lock_checked(LockKey::entry(&self.scratch.other), &entry)? {
                return Ok(Check::Wait(token));
            }
            if !same {
                return Ok(Check::Pass);
            }
            if !entry.is_deleted() {
                std::mem::swap(self.duplicate, &mut self.scratch.other);
                return Ok(Check::Duplicate);
            }
            slot += 1;
        }
        if after(leaf, slot, index) == After::Supremum {
            if *matched {
                let mode = LockMode::new(self.strength, Extent::Gap);
                grant_gap(self.sys.locks().request(self.locks, LockKey::supremum(index), mode, WaitPolicy::Wait));
            }
            return Ok(Check::Pass);
        }
        let more = *matched || begins_with(leaf.high_fence(), &self.scratch.key[..prefix]);
        Ok(if more { Check::Further } else { Check::Pass })
    }

    /// A duplicate check's lock of an entry whose leaf is latched, with the gap before it at any isolation level. A duplicate is one
    /// whatever the snapshot shows.
    fn lock_checked(&self, key: LockKey<'_>, entry: &Entry<'_>) -> Result<Locked> {
        let locker = Locker { sys: self.sys, locks: self.locks, own: self.own, binding: None };
        locker.lock_entry(key, entry, LockMode::new(self.strength, Extent::NextKey), WaitPolicy::Wait)
    }

    /// The duplicate check over all leaves with the prefix; what it finds stays true while the unique guard is held.
    fn wide_check(&mut self, op: &Op<'_>, prefix: usize) -> Result<Check> {
        let mut from = self.scratch.key[..prefix].to_vec();
        let mut leaf = op.index.tree.seek(self.sys.pool(), &from)?;
        let mut matched = false;
        loop {
            match self.check_leaf(op.index.id, &leaf, prefix, &mut matched)? {
                Check::Further => {}
                other => return Ok(other),
            }
            from = leaf.next_from(&from)?.to_vec();
            drop(leaf);
            leaf = op.index.tree.seek(self.sys.pool(), &from)?;
        }
    }

    /// A new version of the entry in `slot`.
    fn change<'p>(
        &mut self,
        op: &Op<'_>,
        stored: &Stored<'_>,
        leaf: LeafExclusive<'p>,
        slot: usize,
        mut mtr: Mtr<'p>,
    ) -> Result<Step> {
        let old = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let key = LockKey::entry(&self.scratch.key);
        if op.kind != OpKind::Insert {
            // Gives the holder the explicit lock that the request will find. An insert has asked before.
            self.sys.implicitly_locked(self.own, old.trx, key);
        }
        if self.sys.locks().may_have_locks(&key) {
            match self.sys.locks().request_implicit(self.locks, key, WaitPolicy::Wait) {
                LockOutcome::Waiting(token) => return Ok(Step::Wait(token)),
                LockOutcome::Granted { .. } | LockOutcome::WouldBlock => {}
            }
        }
        if op.kind != OpKind::Insert && old.is_deleted() {
            return Err(TrxSystem::missing_entry(leaf.page_id(), op.index.id));
        }
        if matches!(stored, Stored::Kept { of, .. } if *of != (old.trx, old.roll)) {
            return Ok(Step::NotKept);
        }
        let (flags, body) = match op.kind {
            OpKind::Delete => (old.flags & value::OVERFLOW | value::DELETED, old.body),
            _ => (stored.flags(), stored.body()),
        };
        let target = Target { tree: op.index.tree, key: &self.scratch.key, row_key_len: self.row_key_len };
        let (prefix, suffix) = record::encode_modify(&mut self.scratch.record, target, &old, flags, body);
        if !self.log.fits(self.sys.pool().page_size(), self.scratch.record.len()) {
            return Ok(Step::UndoPage);
        }
        let header = self.header_of_change(op, &old, flags);
        let len = header.len() + body.len();
        if !leaf.fits_replace(slot, len) {
            return Ok(Step::Room(len));
        }
        let in_place = value::Header::of(&old).len() == header.len() && old.body.len() == body.len();
        let apart = in_place && prefix > TOGETHER_BYTES_MAX;
        self.scratch.value.clear();
        if !apart {
            self.scratch.value.extend_from_slice(&header);
        }
        let changed = if in_place { ..body.len() - suffix } else { ..body.len() };
        self.scratch.value.extend_from_slice(&body[changed][if apart { prefix } else { 0 }..]);
        let settled = old.trx < self.sys.commits().low_limit();
        self.sys.check_unchanged(self.binding, self.own, old.trx)?;
        self.overtook = match self.snapshot {
            Some(csn) if op.index.clustered => !self.sys.sees(View::Snapshot(csn), self.own, old.trx),
            _ => false,
        };
        // Before any change: an error must leave the mini-transaction empty.
        if !self.fix_undo(&mut mtr)? {
            return Ok(Step::UndoAway);
        }
        let place = Place::changed(op.index.tree, &leaf, slot);
        let leaf = leaf.into_mtr(&mut mtr);
        self.log.append(&mut mtr, &self.scratch.record)?;
        if apart {
            leaf.patch_value(&mut mtr, slot, 0, &header)?;
            if !self.scratch.value.is_empty() {
                leaf.patch_value(&mut mtr, slot, header.len() + prefix, &self.scratch.value)?;
            }
        } else if in_place {
            leaf.patch_value(&mut mtr, slot, 0, &self.scratch.value)?;
        } else {
            leaf.replace_value(&mut mtr, slot, &self.scratch.value)?;
        }
        mtr.commit()?;
        if op.index.clustered {
            *self.place = Some(place);
            *self.settled &= settled;
        }
        Ok(Step::Done)
    }

    /// Takes the undo page into the mini-transaction; false if it is to be read first, without the leaf's latch: where those who
    /// change rows are as many as the frames they would have all of them, and each wait for one more.
    fn fix_undo(&self, mtr: &mut Mtr<'_>) -> Result<bool> {
        let id = self.log.page();
        if mtr.fix_resident(id).is_some() {
            return Ok(true);
        }
        let may_wait = self.undo_reads == UNDO_READS_MAX;
        if may_wait {
            mtr.fix(id)?;
        }
        Ok(may_wait)
    }

    /// The header of an entry as this transaction writes it now; short if it may be, and the row key is not too long.
    fn header(&self, flags: u8, may_be_short: bool) -> value::Header {
        match u8::try_from(self.row_key_len) {
            Ok(row_key_len) if may_be_short => value::Header::short(flags, self.own, row_key_len),
            _ => value::Header::long(flags, self.own, self.log.next_ptr()),
        }
    }

    /// The header of a new version. Short where the old version has no roll pointer and everybody sees either its row go
    /// or its mark: then the older version follows from the newer one. Rows keep the room for their next version's pointer.
    fn header_of_change(&self, op: &Op<'_>, old: &Entry<'_>, flags: u8) -> value::Header {
        let long = old.flags & (value::VERSIONED | value::SHORT) == value::VERSIONED;
        let follows = match op.kind {
            OpKind::Delete => true,
            OpKind::Insert => !op.index.clustered,
            OpKind::Update => false,
        };
        self.header(flags, follows && !long && old.trx < self.sys.commits().low_limit())
    }

    /// A new entry at `slot`.
    fn insert<'p>(
        &mut self,
        op: &Op<'_>,
        stored: &Stored<'_>,
        leaf: LeafExclusive<'p>,
        slot: usize,
        mut mtr: Mtr<'p>,
    ) -> Result<Step>
    where
        Self: 'p,
    {
        let header = self.header(stored.flags(), !op.index.clustered);
        let len = header.len() + stored.body().len();
        if !leaf.fits(self.scratch.key.len(), len) {
            return Ok(Step::Room(len));
        }
        let index = op.index.id;
        let (successor, guards) = match after(&leaf, slot, index) {
            After::Here => {
                leaf.key_into(slot, &mut self.scratch.other);
                (LockKey::entry(&self.scratch.other), None)
            }
            After::Supremum => (LockKey::supremum(index), None),
            After::Beyond => match self.scratch.edge.verify(self.sys, op.index.tree, index, &leaf) {
                Some(guards) => (self.scratch.edge.lock_key(), Some(guards)),
                None => return Ok(Step::Edge(leaf.high_fence().to_vec())),
            },
        };
        let gap_locked = self.sys.locks().may_have_locks(&successor);
        if gap_locked {
            let outcome = self.sys.locks().request(self.locks, successor, LockMode::INSERT_INTENTION, WaitPolicy::Wait);
            if let LockOutcome::Waiting(token) = outcome {
                return Ok(Step::Wait(token));
            }
        }
        let target = Target { tree: op.index.tree, key: &self.scratch.key, row_key_len: self.row_key_len };
        record::encode_insert(&mut self.scratch.record, target);
        if !self.log.fits(self.sys.pool().page_size(), self.scratch.record.len()) {
            return Ok(Step::UndoPage);
        }
        self.scratch.value.clear();
        self.scratch.value.extend_from_slice(&header);
        self.scratch.value.extend_from_slice(stored.body());
        // Before any change: an error must leave the mini-transaction empty.
        if !self.fix_undo(&mut mtr)? {
            return Ok(Step::UndoAway);
        }
        let place = Place::moved(op.index.tree, &leaf, slot);
        if gap_locked {
            self.sys.locks().inherit_on_insert(LockKey::entry(&self.scratch.key), successor);
        }
        let leaf = leaf.into_mtr(&mut mtr);
        self.log.append(&mut mtr, &self.scratch.record)?;
        leaf.insert(&mut mtr, slot, &self.scratch.key, &self.scratch.value)?;
        mtr.commit()?;
        if op.index.clustered {
            *self.place = Some(place);
        }
        drop(guards);
        Ok(Step::Done)
    }
}

/// Whether every key that begins with `prefix` belongs to the leaf.
fn holds_whole_prefix(leaf: &impl Leaf, prefix: &[u8]) -> bool {
    let high = leaf.high_fence();
    (leaf.is_first() || compare(leaf.low_fence(), prefix).is_le())
        && (leaf.is_last() || compare(high, prefix).is_gt() && !begins_with(high, prefix))
}
