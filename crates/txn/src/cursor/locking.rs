//! Reading with locks, an entry at a time.

use super::{Cursor, Direction, Position, Row};
use crate::gap::{after, After};
use crate::get::Locked;
use crate::lock::{Extent, LockKey, LockMode, Strength, WaitPolicy};
use crate::place::Place;
use crate::read::View;
use crate::system::TrxSystem;
use crate::trx::{LockWait, Trx};
use crate::value::{Entry, DELETED, OVERFLOW};
use myriad_base::{Error, PageId, Result};
use myriad_btree::{Leaf, LeafShared};
use std::sync::Arc;

/// A scan that has locked so many entries is long: the locks of further ones are kept in spans.
const SPANS_FROM: u32 = 64;

/// What a look at one entry came to.
enum Looked {
    /// The entry is the row.
    Row,
    /// It is none, go on.
    Pass,
    /// There is none.
    End,
    /// A wait is over or the leaf has changed: look again.
    Again,
}

/// The entry that comes next from `slot` in the direction.
#[inline]
fn next_slot(leaf: &LeafShared<'_>, slot: usize, direction: Direction) -> Option<usize> {
    match direction {
        Direction::Forward => Some(slot).filter(|&slot| slot < leaf.len()),
        Direction::Backward => slot.checked_sub(1),
    }
}

#[inline]
fn is_deleted_at(leaf: &LeafShared<'_>, slot: usize, direction: Direction) -> bool {
    let flags = next_slot(leaf, slot, direction).and_then(|at| leaf.value(at).first());
    flags.is_some_and(|flags| flags & DELETED != 0)
}

/// What a scan has locked since it went to a key.
#[derive(Default)]
pub(super) struct EntriesLocked {
    entries: u32,
    /// Hash of the last one's key.
    last: u64,
    /// Whether the last one was a neighbour of the one before.
    beside: bool,
}

impl EntriesLocked {
    /// Adds an entry; whether neither it nor the last one is a neighbour of the one before.
    fn add(&mut self, key: LockKey<'_>) -> bool {
        let beside = key.is_neighbour(self.last);
        let scattered = !beside && !self.beside;
        *self = EntriesLocked { entries: self.entries.saturating_add(1), last: key.hash(), beside };
        scattered
    }
}

impl Cursor {
    /// Locks the gap above the position, before a scan goes down from it.
    pub(super) fn lock_gap_above(&mut self, trx: &mut Trx) -> Result<()> {
        let strength = self.options.lock.expect("a locking cursor");
        loop {
            let sys = Arc::clone(&trx.sys);
            let leaf = self.index.tree.seek_before(sys.pool(), &self.position.key)?;
            let slot = leaf.find(&self.position.key).unwrap_or_else(|s| s);
            if trx.lock_gap(leaf, slot, &self.index, strength)? {
                return Ok(());
            }
        }
    }

    /// Goes to the next row in the direction and locks it. `again`: the current row is to be read again, with its lock, if it
    /// is still there.
    pub(super) fn step_locking(&mut self, trx: &mut Trx, direction: Direction, again: bool) -> Result<bool> {
        self.position.inclusive |= again;
        if again {
            self.position.hint = None;
        }
        // Not counted for each row: all threads do.
        let sys = self.sys.take().unwrap_or_else(|| Arc::clone(&trx.sys));
        let found = self.step_locking_in(&sys, trx, direction, again);
        self.sys = Some(sys);
        found
    }

    fn step_locking_in(
        &mut self,
        sys: &TrxSystem,
        trx: &mut Trx,
        direction: Direction,
        mut again: bool,
    ) -> Result<bool> {
        loop {
            sys.locks().check_room(&trx.locks)?;
            self.read_ahead(sys)?;
            let (leaf, slot) = trx.locks.until_killed(|| self.locate_in(sys, trx.place, direction))?;
            let looked = if direction == Direction::Forward {
                self.look_forward(trx, leaf, slot, again)?
            } else {
                self.look_backward(trx, leaf, slot, again)?
            };
            match looked {
                Looked::Row => return Ok(true),
                Looked::End => return Ok(false),
                Looked::Pass => {}
                Looked::Again => self.position.hint = None,
            }
            let passed = matches!(looked, Looked::Pass);
            self.exact_first &= !passed;
            again &= !passed;
            if trx.is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    fn look_forward(&mut self, trx: &mut Trx, leaf: LeafShared<'_>, slot: usize, again: bool) -> Result<Looked> {
        let gaps = trx.isolation().locks_gaps();
        let strength = self.options.lock.expect("a locking cursor");
        let slot = if again { slot } else { self.pass_deleted(trx, &leaf, slot, Direction::Forward)? };
        if slot < leaf.len() {
            if leaf.key_parts(slot).starts_with(&self.scope) {
                return self.look_at(trx, leaf, slot, Direction::Forward, again);
            }
            return self.end_gap(trx, leaf, slot, gaps.then_some(strength));
        }
        match after(&leaf, slot, self.index.id) {
            After::Beyond => {
                let fence = leaf.next_from(&self.position.key)?.to_vec();
                let in_scope = self.fence_in_scope(&fence);
                if gaps && (!in_scope || self.locks_passed_gaps(trx)) {
                    if !trx.lock_gap(leaf, slot, &self.index, strength)? {
                        return Ok(Looked::Again);
                    }
                } else {
                    drop(leaf);
                }
                if !in_scope {
                    return Ok(Looked::End);
                }
                self.position = Position { key: fence, inclusive: true, hint: None };
                self.leaf_passed();
                Ok(Looked::Pass)
            }
            After::Here | After::Supremum => self.end_gap(trx, leaf, slot, gaps.then_some(strength)),
        }
    }

    fn end_gap(
        &mut self,
        trx: &mut Trx,
        leaf: LeafShared<'_>,
        slot: usize,
        strength: Option<Strength>,
    ) -> Result<Looked> {
        if let Some(strength) = strength {
            if !trx.lock_gap(leaf, slot, &self.index, strength)? {
                return Ok(Looked::Again);
            }
        }
        Ok(Looked::End)
    }

    fn look_backward(&mut self, trx: &mut Trx, leaf: LeafShared<'_>, slot: usize, again: bool) -> Result<Looked> {
        let slot = if again { slot } else { self.pass_deleted(trx, &leaf, slot, Direction::Backward)? };
        if slot == 0 {
            let more = self.next_leaf(&leaf, Direction::Backward)?;
            return Ok(if more { Looked::Pass } else { Looked::End });
        }
        if !leaf.key_parts(slot - 1).starts_with(&self.scope) {
            return Ok(Looked::End);
        }
        self.look_at(trx, leaf, slot - 1, Direction::Backward, again)
    }

    /// Steps over deleted entries of the leaf for which it need not wait: a queue that is emptied within one transaction has
    /// all that it has taken before its first row. The slot behind them.
    fn pass_deleted(
        &mut self,
        trx: &mut Trx,
        leaf: &LeafShared<'_>,
        mut slot: usize,
        direction: Direction,
    ) -> Result<usize> {
        // Of the first one sought no gap is locked.
        if self.exact_first && self.position.inclusive || !is_deleted_at(leaf, slot, direction) {
            return Ok(slot);
        }
        let begin = slot;
        let gaps = self.locks_passed_gaps(trx);
        let mode = LockMode::new(self.options.lock.expect("a locking cursor"), Extent::NextKey);
        let mut key = std::mem::take(&mut trx.scratch.key);
        loop {
            let at = next_slot(leaf, slot, direction).filter(|&at| leaf.key_parts(at).starts_with(&self.scope));
            let Some(at) = at else { break };
            let entry = Entry::parse(leaf.value(at), leaf.page_id())?;
            if !entry.is_deleted() || !trx.locker().is_settled(&entry) {
                break;
            }
            if gaps {
                trx.sys.locks().check_room(&trx.locks)?;
                leaf.key_into(at, &mut key);
                let upwards = direction == Direction::Forward;
                let locked = self.lock_next(trx, LockKey::entry(&key), &entry, mode, WaitPolicy::NoWait, upwards)?;
                if !matches!(locked, Locked::Held { .. }) {
                    break;
                }
            }
            slot = if direction == Direction::Forward { at + 1 } else { at };
        }
        trx.scratch.key = key;
        if slot != begin {
            self.stand_at(leaf, slot, direction)?;
        }
        Ok(slot)
    }

    /// Whether the gaps are locked that the scan passes before it comes to a live entry: those before deleted entries and at a leaf's
    /// end. Who skips locked rows may have none of these entries himself, and keeps nobody out of what he has read: such locks would
    /// outlive the entries, and keep all workers of a queue from putting back changed what they have taken.
    fn locks_passed_gaps(&self, trx: &Trx) -> bool {
        trx.isolation().locks_gaps() && self.options.wait != LockWait::SkipLocked
    }

    /// Locks the entry that the scan has come to; `span` tells whether the lock may be in one.
    fn lock_next(
        &mut self,
        trx: &Trx,
        key: LockKey<'_>,
        entry: &Entry<'_>,
        mode: LockMode,
        policy: WaitPolicy,
        span: bool,
    ) -> Result<Locked> {
        if self.index.private {
            return Ok(Locked::Held { new: false });
        }
        // Locks on neighbours are kept together as it is.
        let scattered = self.locked.add(key);
        if span && scattered && self.locked.entries > SPANS_FROM && trx.locker().add_to_span(key, entry, mode)? {
            return Ok(Locked::Held { new: false });
        }
        trx.locker().lock_entry(key, entry, mode, policy)
    }

    /// Locks the entry and, if it is a row, makes it the current one.
    fn look_at(
        &mut self,
        trx: &mut Trx,
        leaf: LeafShared<'_>,
        slot: usize,
        direction: Direction,
        again: bool,
    ) -> Result<Looked> {
        let strength = self.options.lock.expect("a locking cursor");
        let gaps = trx.isolation().locks_gaps();
        let mut key = std::mem::take(&mut trx.scratch.key);
        leaf.key_into(slot, &mut key);
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let sought = self.position.inclusive && key == self.position.key;
        let alone = self.options.record_only || self.exact_unique && self.index.clustered;
        let record_only = !gaps || alone && !entry.is_deleted() || self.exact_first && sought;
        let mode = LockMode::new(strength, if record_only { Extent::Record } else { Extent::NextKey });
        let semi = self.options.semi_consistent && !gaps && !(again && sought);
        let policy = if semi { WaitPolicy::NoWait } else { self.options.wait.policy() };
        let locked = if entry.is_deleted() && !self.locks_passed_gaps(trx) && trx.locker().is_settled(&entry) {
            Locked::Held { new: false }
        } else {
            // What may be given back early is in no span.
            let kept = gaps || !self.index.clustered && !entry.is_deleted();
            self.lock_next(trx, LockKey::entry(&key), &entry, mode, policy, kept && direction == Direction::Forward)?
        };
        let looked = match locked {
            Locked::Held { new } => {
                let row = !entry.is_deleted();
                if row {
                    self.take_row(trx, entry, leaf.page_id(), &key, View::Newest)?;
                    self.row_lock = new.then_some(mode);
                } else if new && !self.locks_passed_gaps(trx) {
                    trx.sys.locks().release_one(&trx.locks, LockKey::entry(&key), mode);
                }
                self.pass(&leaf, slot, &key, direction)?;
                if self.index.clustered {
                    trx.place = Some(Place::read(self.index.tree, &leaf, slot));
                }
                if row {
                    Looked::Row
                } else {
                    Looked::Pass
                }
            }
            Locked::Wait(token) => {
                drop(leaf);
                trx.scratch.key = key;
                trx.wait(token)?;
                return Ok(Looked::Again);
            }
            Locked::Blocked if self.options.wait == LockWait::SkipLocked => {
                self.pass(&leaf, slot, &key, direction)?;
                Looked::Pass
            }
            Locked::Blocked if semi => {
                // Keeps purge from the versions about to be read; its writer is active, so their records are still there.
                trx.snapshot();
                self.semi = self.take_row(trx, entry, leaf.page_id(), &key, View::Committed)?;
                self.pass(&leaf, slot, &key, direction)?;
                if self.semi {
                    Looked::Row
                } else {
                    Looked::Pass
                }
            }
            Locked::Blocked => {
                trx.scratch.key = key;
                return Err(Error::LockWaitTimeout);
            }
        };
        trx.scratch.key = key;
        Ok(looked)
    }

    /// Adds the entries of the leaf behind the current row to the rows, to be looked at.
    pub(super) fn add_next_entries(&mut self, sys: &TrxSystem, max: usize) {
        let Some(hint) = self.position.hint else { return };
        let Some(page) = sys.pool().try_reuse(hint.frame, hint.page, hint.version) else { return };
        let leaf = LeafShared::from_reused(page);
        for i in 0..max {
            let slot = match hint.direction {
                Direction::Forward => Some(hint.slot + i).filter(|&slot| slot < leaf.len()),
                Direction::Backward => hint.slot.checked_sub(1 + i),
            };
            let Some(slot) = slot.filter(|&slot| self.within(leaf.key_parts(slot), hint.direction)) else { return };
            let Some(entry) = Entry::try_parse(leaf.value(slot)) else { return };
            if entry.is_deleted() || entry.flags & OVERFLOW != 0 {
                continue;
            }
            let from = self.buffer.len();
            leaf.key_parts(slot).append_to(&mut self.buffer);
            let key_end = self.buffer.len();
            self.buffer.extend_from_slice(entry.body);
            self.rows.push(Row { key: from + 4..key_end, value: key_end..self.buffer.len() });
        }
    }

    /// The entry is behind the cursor now.
    fn pass(&mut self, leaf: &LeafShared<'_>, slot: usize, key: &[u8], direction: Direction) -> Result<()> {
        self.expect_beyond(leaf, slot, direction)?;
        self.position.key.clear();
        self.position.key.extend_from_slice(key);
        self.stand_by_key(leaf, if direction == Direction::Forward { slot + 1 } else { slot }, direction);
        Ok(())
    }

    /// Makes a version of the entry the current row; `false` if there is none in the view.
    fn take_row(&mut self, trx: &mut Trx, entry: Entry<'_>, page: PageId, key: &[u8], view: View) -> Result<bool> {
        let own = trx.id();
        let version = trx.sys.version(entry, page, view, own, &mut trx.versions)?;
        let Some(version) = version else { return Ok(false) };
        self.rows.clear();
        self.buffer.clear();
        self.at = 0;
        self.buffer.extend_from_slice(key);
        self.append_wanted(&trx.sys, &version, page)?;
        self.rows.push(Row { key: 4..key.len(), value: key.len()..self.buffer.len() });
        self.ended = false;
        Ok(true)
    }
}
