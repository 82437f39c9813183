//! Range cursors.
//!
//! A consistent cursor copies the visible rows of a leaf, up to a limit that grows, under one shared latch and hands them
//! out afterwards. A locking cursor goes entry by entry: it locks the entry (with the gap before it where the isolation
//! level wants that) while its leaf is latched, and looks again after each wait. Both find their place again by the
//! frame's version or, if the leaf has changed, by key.

use crate::gap::{after, in_index, After};
use crate::get::Locked;
use crate::index::Index;
use crate::lock::{Extent, LockKey, LockMode, Strength, WaitPolicy};
use crate::place::Place;
use crate::read::{Versions, View};
use crate::system::TrxSystem;
use crate::trx::{Isolation, LockWait, Trx};
use crate::value::{self, Entry};
use crate::write::set_full_key;
use myriad_base::{Error, PageId, Result};
use myriad_btree::page::Entries;
use myriad_btree::{KeyParts, Leaf, LeafShared, READ_AHEAD_STEP};
use myriad_buffer::FrameNo;
use std::cell::RefCell;
use std::ops::Range;

/// Rows of the largest batch.
const BATCH_ROWS_MAX: usize = 64;
/// How many times larger than the one before a batch is.
const BATCH_GROWTH: usize = 4;
/// Bytes at which a batch ends early.
const BATCH_BYTES_MAX: usize = 128 << 10;

/// Where to start. Keys are prefixes: an entry that begins with the key counts as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first entry.
    First,
    /// The last entry.
    Last,
    /// The first entry at or after the key.
    Ge,
    /// The first entry after all that begin with the key.
    Gt,
    /// The last entry that is before the key or begins with it.
    Le,
    /// The last entry before all that begin with the key.
    Lt,
    /// The entry of a whole unique key: record lock only. `next` finds nothing more.
    ExactUnique,
    /// The first entry that begins with the key; `next` and `prev` stay within it.
    Exact,
}

/// How a cursor reads.
#[derive(Clone, Copy, Debug)]
pub struct CursorOptions {
    /// Lock what is read; `None` reads the snapshot.
    pub lock: Option<Strength>,
    /// What to do where a row is locked by another.
    pub wait: LockWait,
    /// At READ COMMITTED: where a row is locked, return its last committed version instead of waiting.
    pub semi_consistent: bool,
    /// All of the index will be read.
    pub full_scan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where the next entry is looked for: from `key` on (itself included or not) in the direction of travel.
struct Position {
    key: Vec<u8>,
    inclusive: bool,
    hint: Option<Hint>,
}

/// The slot to look at next, good while the frame's version stays.
#[derive(Clone, Copy)]
struct Hint {
    frame: FrameNo,
    page: PageId,
    version: u64,
    /// Forward: the next slot. Backward: one past the next slot.
    slot: usize,
    direction: Direction,
}

/// A row in the cursor's buffer.
#[derive(Clone, Default)]
struct Row {
    key: Range<usize>,
    value: Range<usize>,
}

/// The buffers of a cursor, empty. A thread keeps those of its last cursors, since most live for one short statement.
#[derive(Default)]
struct Buffers {
    scope: Vec<u8>,
    low: Vec<u8>,
    high: Vec<u8>,
    key: Vec<u8>,
    rows_bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Buffers that a thread keeps, and the most bytes of rows that one of them may have room for.
const SPARE_BUFFERS: usize = 4;
const SPARE_ROWS_BYTES: usize = 16 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

impl Buffers {
    fn take() -> Buffers {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    fn keep(mut self) {
        if self.rows_bytes.capacity() > SPARE_ROWS_BYTES {
            self.rows_bytes = Vec::new();
        }
        for bytes in [&mut self.scope, &mut self.low, &mut self.high, &mut self.key, &mut self.rows_bytes] {
            bytes.clear();
        }
        self.rows.clear();
        // A thread on its way out keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_BUFFERS {
                spare.push(self);
            }
        });
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        use std::mem::take;
        Buffers {
            scope: take(&mut self.scope),
            low: take(&mut self.low),
            high: take(&mut self.high),
            key: take(&mut self.position.key),
            rows_bytes: take(&mut self.buffer),
            rows: take(&mut self.rows),
        }
        .keep();
    }
}

/// A cursor over one index. Belongs to one transaction object; [`Cursor::key`] and [`Cursor::value`] are valid until the
/// next call that moves it.
pub struct Cursor {
    index: Index,
    options: CursorOptions,
    /// Rows must begin with this: the index id, or the exact key sought.
    scope: Vec<u8>,
    /// Non-locking reads stop before these; empty = none.
    low: Vec<u8>,
    high: Vec<u8>,
    exact_unique: bool,
    /// The whole key sought by GE in a clustered index: if it is there, its gap needs no lock.
    exact_first: bool,
    position: Position,
    buffer: Vec<u8>,
    rows: Vec<Row>,
    /// The current row in `rows`.
    at: usize,
    /// Where the batch's last entry stands; `position` is beyond it.
    batch_direction: Direction,
    batch_changes: u64,
    batch_rows: usize,
    /// No entry is left beyond the batch in its direction.
    ended: bool,
    semi: bool,
    /// The lock taken for the current row, if it is new and may be given back.
    row_lock: Option<LockMode>,
    /// Leaves that a forward scan has left behind, and whether the next ones should be read ahead.
    leaves_passed: u32,
    read_ahead_due: bool,
}

impl Cursor {
    /// A cursor that stands nowhere yet.
    pub fn new(index: Index, options: CursorOptions) -> Cursor {
        let Buffers { scope, low, high, key, rows_bytes, rows } = Buffers::take();
        Cursor {
            index,
            options,
            scope,
            low,
            high,
            exact_unique: false,
            exact_first: false,
            position: Position { key, inclusive: false, hint: None },
            buffer: rows_bytes,
            rows,
            at: 0,
            batch_direction: Direction::Forward,
            batch_changes: 0,
            batch_rows: 1,
            ended: true,
            semi: false,
            row_lock: None,
            leaves_passed: 0,
            read_ahead_due: false,
        }
    }

    /// Changes how the following rows are read.
    pub fn set_options(&mut self, options: CursorOptions) {
        if options.lock != self.options.lock {
            self.leave_batch();
        }
        self.options = options;
    }

    /// Non-locking reads need not go beyond these prefixes, which are inclusive; empty = none.
    pub fn set_bounds(&mut self, low: &[u8], high: &[u8]) {
        set_full_key(&mut self.low, &self.index, low);
        set_full_key(&mut self.high, &self.index, high);
    }

    /// Goes to a row; `false` if there is none.
    ///
    /// # Errors
    /// Lock wait errors, those of the tree.
    pub fn seek(&mut self, trx: &mut Trx, seek: Seek, key: &[u8]) -> Result<bool> {
        trx.start();
        self.forget_rows();
        self.batch_rows = 1;
        self.exact_unique = seek == Seek::ExactUnique;
        self.exact_first = seek == Seek::Ge && self.index.clustered && !key.is_empty();
        set_full_key(
            &mut self.scope,
            &self.index,
            if matches!(seek, Seek::Exact | Seek::ExactUnique) { key } else { &[] },
        );
        let whole = matches!(seek, Seek::First | Seek::Last);
        set_full_key(&mut self.position.key, &self.index, if whole { &[] } else { key });
        if matches!(seek, Seek::Gt | Seek::Le | Seek::Last) {
            next_prefix(&mut self.position.key);
        }
        self.position.hint = None;
        let direction =
            if matches!(seek, Seek::Last | Seek::Le | Seek::Lt) { Direction::Backward } else { Direction::Forward };
        self.position.inclusive = direction == Direction::Forward;
        self.leaves_passed = 0;
        self.batch_direction = direction;
        if self.options.lock.is_some() {
            if direction == Direction::Backward && trx.isolation().locks_gaps() {
                self.lock_gap_above(trx)?;
            }
            return self.step_locking(trx, direction, false);
        }
        self.fill(trx, direction)
    }

    /// Goes to the next row; `false` if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn next(&mut self, trx: &mut Trx) -> Result<bool> {
        self.step(trx, Direction::Forward)
    }

    /// Goes to the previous row; `false` if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn prev(&mut self, trx: &mut Trx) -> Result<bool> {
        self.step(trx, Direction::Backward)
    }

    #[inline]
    fn step(&mut self, trx: &mut Trx, direction: Direction) -> Result<bool> {
        if self.options.lock.is_none() && self.batch_direction == direction && self.at + 1 < self.rows.len() {
            if self.batch_changes == trx.changes {
                self.at += 1;
                return Ok(true);
            }
            self.leave_batch();
        }
        self.step_slow(trx, direction)
    }

    fn step_slow(&mut self, trx: &mut Trx, direction: Direction) -> Result<bool> {
        trx.start();
        if self.exact_unique && !self.semi {
            return Ok(false);
        }
        if self.batch_direction != direction {
            self.leave_batch();
            self.batch_direction = direction;
            self.position.hint = None;
        }
        if self.options.lock.is_some() {
            let again = std::mem::take(&mut self.semi);
            self.row_lock = None;
            return self.step_locking(trx, direction, again);
        }
        if self.ended {
            return Ok(false);
        }
        self.batch_rows = (self.batch_rows * BATCH_GROWTH).min(BATCH_ROWS_MAX);
        self.fill(trx, direction)
    }

    /// The row's key, without the index id.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.rows.get(self.at).map_or(&[], |r| &self.buffer[r.key.clone()])
    }

    /// The row's payload.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.rows.get(self.at).map_or(&[], |r| &self.buffer[r.value.clone()])
    }

    /// Whether the last row was not locked: `next` (or `prev`) reads it again, with its lock, unless
    /// [`Cursor::unlock_row`] is called.
    pub fn was_semi_consistent(&self) -> bool {
        self.semi
    }

    /// Whether a lock was stored for the last row.
    pub(crate) fn lock_is_new(&self) -> bool {
        self.row_lock.is_some()
    }

    /// At READ COMMITTED and below: the last row does not match; locks taken for it go.
    pub fn unlock_row(&mut self, trx: &mut Trx) {
        self.semi = false;
        self.position.inclusive = false;
        let Some(mode) = self.row_lock.take() else { return };
        if trx.isolation() <= Isolation::ReadCommitted {
            trx.sys.locks().release_one(&trx.locks, LockKey::entry(&self.position.key), mode);
        }
    }

    fn forget_rows(&mut self) {
        self.rows.clear();
        self.buffer.clear();
        self.at = 0;
        self.ended = false;
        self.semi = false;
        self.row_lock = None;
    }

    /// The rest of the batch will not be used: the position goes back to the current row.
    fn leave_batch(&mut self) {
        if let Some(row) = self.rows.get(self.at) {
            let key = &self.buffer[row.key.clone()];
            set_full_key(&mut self.position.key, &self.index, key);
            self.position.inclusive = false;
            self.position.hint = None;
            self.rows.truncate(self.at + 1);
            self.ended = false;
        }
    }

    /// The leaf and slot of the next entry in the direction. Backward the slot is one past it: 0 means that the leaf holds
    /// none.
    fn locate_in<'p>(
        &self,
        sys: &'p TrxSystem,
        place: Option<Place>,
        direction: Direction,
    ) -> Result<(LeafShared<'p>, usize)> {
        let pool = sys.pool();
        let p = &self.position;
        if let Some(h) = p.hint.filter(|h| h.direction == direction) {
            if let Some(page) = pool.try_reuse(h.frame, h.page, h.version) {
                return Ok((LeafShared::from_reused(page), h.slot));
            }
        }
        let tree = self.index.tree;
        match direction {
            Direction::Forward => {
                let leaf = match place.and_then(|place| place.shared(pool, tree, &p.key)) {
                    Some(leaf) => leaf,
                    None if p.inclusive => self.index.seek(sys, &p.key)?,
                    None => tree.seek(pool, &p.key)?,
                };
                let slot = leaf.find(&p.key).map_or_else(|s| s, |s| if p.inclusive { s } else { s + 1 });
                Ok((leaf, slot))
            }
            Direction::Backward if p.inclusive => {
                let leaf = tree.seek(pool, &p.key)?;
                if let Ok(slot) = leaf.find(&p.key) {
                    return Ok((leaf, slot + 1));
                }
                drop(leaf);
                self.seek_below(sys)
            }
            Direction::Backward => self.seek_below(sys),
        }
    }

    fn seek_below<'p>(&self, sys: &'p TrxSystem) -> Result<(LeafShared<'p>, usize)> {
        let leaf = self.index.tree.seek_before(sys.pool(), &self.position.key)?;
        let slot = leaf.find(&self.position.key).unwrap_or_else(|s| s);
        Ok((leaf, slot))
    }

    /// Reads a batch without locks; the first row of it becomes the current one.
    fn fill(&mut self, trx: &mut Trx, direction: Direction) -> Result<bool> {
        let view = trx.view();
        let mut versions = std::mem::take(&mut trx.versions);
        let filled = self.fill_from_leaves(trx, direction, view, &mut versions);
        trx.versions = versions;
        filled
    }

    fn fill_from_leaves(
        &mut self,
        trx: &Trx,
        direction: Direction,
        view: View,
        versions: &mut Versions,
    ) -> Result<bool> {
        let mut fresh = false;
        loop {
            self.read_ahead(&trx.sys)?;
            let (leaf, slot) = self.locate_in(&trx.sys, trx.place, direction)?;
            let more = self.read_leaf(trx, &leaf, slot, direction, view, versions, &mut fresh)?;
            if !more {
                self.ended = true;
            }
            if fresh {
                self.batch_changes = trx.changes;
                return Ok(true);
            }
            if !more {
                // The last row stays current.
                return Ok(false);
            }
            drop(leaf);
            if trx.is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Copies visible rows from the leaf and moves the position; `fresh` tells whether there was any. Whether there may
    /// be more beyond.
    #[allow(clippy::too_many_arguments)]
    fn read_leaf(
        &mut self,
        trx: &Trx,
        leaf: &LeafShared<'_>,
        mut slot: usize,
        direction: Direction,
        view: View,
        versions: &mut Versions,
        fresh: &mut bool,
    ) -> Result<bool> {
        let own = trx.id();
        let (entries, len, page) = (leaf.entries(), leaf.len(), leaf.page_id());
        let forward = direction == Direction::Forward;
        let start = slot;
        let limit = if self.exact_unique { 1 } else { self.batch_rows };
        // The next entries that are known to be within the bounds.
        let mut ahead = 0;
        loop {
            if ahead == 0 {
                let left = if forward { len.saturating_sub(slot) } else { slot };
                if left == 0 {
                    return Ok(self.next_leaf(leaf, direction));
                }
                let wanted = if *fresh { limit - self.rows.len() } else { limit };
                ahead = self.count_within(leaf, slot, left.min(wanted), direction);
                if ahead == 0 {
                    if slot != start {
                        self.stand_at(leaf, slot, direction);
                    }
                    return Ok(false);
                }
            }
            if *fresh && trx.overtaken.is_empty() {
                let n = self.copy_seen(trx, &entries, slot, direction, ahead.min(limit - self.rows.len()));
                (slot, ahead) = (if forward { slot + n } else { slot - n }, ahead - n);
                if self.is_full(limit) {
                    self.stand_at(leaf, slot, direction);
                    return Ok(true);
                }
                if ahead == 0 {
                    continue;
                }
            }
            ahead -= 1;
            let here = if forward { slot } else { slot - 1 };
            let stored = entries.at(here);
            let entry = Entry::parse(stored.value(), page)?;
            let view = if trx.overtaken.is_empty() {
                view
            } else {
                trx.view_of(view, &self.index, stored.key(), &entry, page)?
            };
            if let Some(version) = trx.sys.version(entry, page, view, own, versions)? {
                if !*fresh {
                    *fresh = true;
                    self.rows.clear();
                    self.buffer.clear();
                    self.at = 0;
                }
                let from = self.buffer.len();
                stored.key().append_to(&mut self.buffer);
                let key_end = self.buffer.len();
                version.payload_into(&trx.sys, self.index.tree.space, &mut self.buffer)?;
                self.rows.push(Row { key: from + 4..key_end, value: key_end..self.buffer.len() });
            }
            slot = if forward { slot + 1 } else { slot - 1 };
            if *fresh && self.is_full(limit) {
                self.stand_at(leaf, slot, direction);
                return Ok(true);
            }
        }
    }

    #[inline]
    fn is_full(&self, limit: usize) -> bool {
        self.rows.len() >= limit || self.buffer.len() > BATCH_BYTES_MAX
    }

    /// Copies the rows of the next `n` entries, up to one that everybody does not see as it stands or to the batch's last
    /// byte; how many entries it has passed. Most rows of a scan come this way.
    #[inline(never)]
    fn copy_seen(&mut self, trx: &Trx, entries: &Entries<'_>, slot: usize, direction: Direction, n: usize) -> usize {
        let (own, all_see) = (trx.id(), trx.sys.commits().low_limit());
        let (buffer, rows) = (&mut self.buffer, &mut self.rows);
        for i in 0..n {
            let stored = entries.at(if direction == Direction::Forward { slot + i } else { slot - 1 - i });
            let Some(entry) = Entry::try_parse(stored.value()) else { return i };
            if entry.flags & value::OVERFLOW != 0 || entry.trx >= all_see && entry.trx != own {
                return i;
            }
            if entry.is_deleted() {
                continue;
            }
            let from = buffer.len();
            let key_end = from + stored.append_to(buffer);
            rows.push(Row { key: from + 4..key_end, value: buffer.len() - entry.body.len()..buffer.len() });
            if buffer.len() > BATCH_BYTES_MAX {
                return i + 1;
            }
        }
        n
    }

    /// How many of the next `n` entries are within the bounds: they come first.
    fn count_within(&self, leaf: &LeafShared<'_>, slot: usize, n: usize, direction: Direction) -> usize {
        let within = |i| {
            let here = if direction == Direction::Forward { slot + i } else { slot - 1 - i };
            self.within(leaf.key_parts(here), direction)
        };
        if within(n - 1) {
            return n;
        }
        let (mut low, mut high) = (0, n - 1);
        while low < high {
            let middle = (low + high) / 2;
            if within(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The entries on this side of `slot` have been read.
    fn stand_at(&mut self, leaf: &LeafShared<'_>, slot: usize, direction: Direction) {
        let last = if direction == Direction::Forward { slot - 1 } else { slot };
        leaf.key_into(last, &mut self.position.key);
        self.position.inclusive = false;
        self.position.hint =
            Some(Hint { frame: leaf.frame(), page: leaf.page_id(), version: leaf.version(), slot, direction });
    }

    /// The leaf has been read to its end: the position moves to its fence. Whether the next leaf may hold more.
    fn next_leaf(&mut self, leaf: &LeafShared<'_>, direction: Direction) -> bool {
        self.position.hint = None;
        let forward = direction == Direction::Forward;
        let fence = if forward { leaf.high_fence() } else { leaf.low_fence() };
        let last = if forward { leaf.is_last() } else { leaf.is_first() };
        // Backward the keys wanted are below the fence: it may be the scope's upper end itself.
        if last || forward && !self.fence_in_scope(fence) || !forward && fence <= &self.scope[..] {
            return false;
        }
        if forward && self.high.len() > 4 && fence > &self.high[..] && !fence.starts_with(&self.high) {
            return false;
        }
        if !forward && self.low.len() > 4 && fence <= &self.low[..] {
            return false;
        }
        self.position.key.clear();
        self.position.key.extend_from_slice(fence);
        self.position.inclusive = forward;
        if forward {
            self.leaf_passed();
        }
        true
    }

    /// A forward scan goes to the next leaf. One of the whole index will want those behind it at once, another only when
    /// it has shown that it is long.
    #[inline]
    fn leaf_passed(&mut self) {
        let first = if self.options.full_scan { 1 } else { 3 };
        self.leaves_passed = self.leaves_passed.wrapping_add(1);
        self.read_ahead_due |= self.leaves_passed % READ_AHEAD_STEP == first;
    }

    #[inline]
    fn read_ahead(&mut self, sys: &TrxSystem) -> Result<()> {
        if std::mem::take(&mut self.read_ahead_due) {
            self.index.tree.read_ahead(sys.pool(), &self.position.key)?;
        }
        Ok(())
    }

    /// Whether keys at or above the fence can begin with the scope.
    fn fence_in_scope(&self, fence: &[u8]) -> bool {
        fence <= &self.scope[..] || fence.starts_with(&self.scope)
    }

    /// Whether a key is in the scope and within the bounds.
    #[inline]
    fn within(&self, key: KeyParts<'_>, direction: Direction) -> bool {
        if !key.starts_with(&self.scope) {
            return false;
        }
        match direction {
            Direction::Forward if self.high.len() > 4 => key.cmp_start(&self.high).is_le(),
            Direction::Backward if self.low.len() > 4 => key.cmp_start(&self.low).is_ge(),
            _ => true,
        }
    }
}

/// Replaces `key` by the least byte string above all that begin with it.
pub(crate) fn next_prefix(key: &mut Vec<u8>) {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return;
        }
    }
    unreachable!("an index id is never the largest");
}

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

impl Cursor {
    /// Locks the gap above the position, before a scan goes down from it.
    fn lock_gap_above(&mut self, trx: &mut Trx) -> Result<()> {
        let strength = self.options.lock.expect("a locking cursor");
        loop {
            let sys = std::sync::Arc::clone(&trx.sys);
            let leaf = self.index.tree.seek_before(sys.pool(), &self.position.key)?;
            let slot = leaf.find(&self.position.key).unwrap_or_else(|s| s);
            if trx.lock_gap(leaf, slot, &self.index, strength)? {
                return Ok(());
            }
        }
    }

    /// Goes to the next row in the direction and locks it. `again`: the current row is to be read again, with its lock.
    fn step_locking(&mut self, trx: &mut Trx, direction: Direction, again: bool) -> Result<bool> {
        self.position.inclusive |= again;
        if again {
            self.position.hint = None;
        }
        let sys = std::sync::Arc::clone(&trx.sys);
        loop {
            self.read_ahead(&sys)?;
            let (leaf, slot) = self.locate_in(&sys, trx.place, direction)?;
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
            self.exact_first &= !matches!(looked, Looked::Pass);
            if trx.is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    fn look_forward(&mut self, trx: &mut Trx, leaf: LeafShared<'_>, slot: usize, again: bool) -> Result<Looked> {
        let gaps = trx.isolation().locks_gaps();
        let strength = self.options.lock.expect("a locking cursor");
        if slot < leaf.len() {
            if leaf.key_parts(slot).starts_with(&self.scope) {
                return self.look_at(trx, leaf, slot, Direction::Forward, again);
            }
            return self.end_gap(trx, leaf, slot, gaps.then_some(strength));
        }
        match after(&leaf, slot, self.index.id) {
            After::Beyond => {
                let fence = leaf.high_fence().to_vec();
                let in_scope = self.fence_in_scope(&fence);
                if gaps {
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
        if slot == 0 {
            let more = self.next_leaf(&leaf, Direction::Backward);
            return Ok(if more { Looked::Pass } else { Looked::End });
        }
        if !leaf.key_parts(slot - 1).starts_with(&self.scope) {
            return Ok(Looked::End);
        }
        self.look_at(trx, leaf, slot - 1, Direction::Backward, again)
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
        let record_only = !gaps
            || self.exact_unique && self.index.clustered && !entry.is_deleted()
            || self.exact_first && key == self.position.key && self.position.inclusive;
        let mode = LockMode::new(strength, if record_only { Extent::Record } else { Extent::NextKey });
        let semi = self.options.semi_consistent && !gaps && !again;
        let policy = if semi { WaitPolicy::NoWait } else { self.options.wait.policy() };
        let locked = if !gaps && entry.is_deleted() && !self.is_foreign(trx, &entry) {
            // Deleted for good: without gaps there is nothing to lock.
            Locked::Held { new: false }
        } else {
            trx.lock_entry(LockKey::entry(&key), &entry, mode, policy)
        };
        let looked = match locked {
            Locked::Held { new } => {
                let row = !entry.is_deleted();
                if row {
                    self.take_row(trx, &leaf, slot, &key, View::Newest)?;
                    self.row_lock = new.then_some(mode);
                } else if new && !gaps {
                    trx.sys.locks().release_one(&trx.locks, LockKey::entry(&key), mode);
                }
                self.pass(&leaf, slot, direction);
                if self.index.clustered {
                    trx.place = Some(Place::read(self.index.tree, &leaf));
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
                self.pass(&leaf, slot, direction);
                Looked::Pass
            }
            Locked::Blocked if semi => {
                // Keeps purge from the versions about to be read; its writer is active, so their records are still there.
                trx.snapshot();
                self.semi = self.take_row(trx, &leaf, slot, &key, View::Committed)?;
                self.pass(&leaf, slot, direction);
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

    fn is_foreign(&self, trx: &Trx, entry: &Entry<'_>) -> bool {
        entry.trx != trx.id() && !trx.sys.sees(View::Committed, trx.id(), entry.trx)
    }

    /// The entry is behind the cursor now.
    fn pass(&mut self, leaf: &LeafShared<'_>, slot: usize, direction: Direction) {
        self.stand_at(leaf, if direction == Direction::Forward { slot + 1 } else { slot }, direction);
    }

    /// Makes a version of the entry the current row; `false` if there is none in the view.
    fn take_row(&mut self, trx: &mut Trx, leaf: &LeafShared<'_>, slot: usize, key: &[u8], view: View) -> Result<bool> {
        let entry = Entry::parse(leaf.value(slot), leaf.page_id())?;
        let own = trx.id();
        let version = trx.sys.version(entry, leaf.page_id(), view, own, &mut trx.versions)?;
        let Some(version) = version else { return Ok(false) };
        self.rows.clear();
        self.buffer.clear();
        self.at = 0;
        self.buffer.extend_from_slice(key);
        version.payload_into(&trx.sys, self.index.tree.space, &mut self.buffer)?;
        self.rows.push(Row { key: 4..key.len(), value: key.len()..self.buffer.len() });
        self.ended = false;
        Ok(true)
    }
}

/// Number of rows of the index that the transaction sees.
pub(crate) fn count(trx: &mut Trx, index: &Index) -> Result<u64> {
    let view = trx.view();
    let own = trx.id();
    let sys = std::sync::Arc::clone(&trx.sys);
    let mut from = index.id.0.to_be_bytes().to_vec();
    let mut rows = 0;
    let mut leaves = 0u32;
    loop {
        if leaves % READ_AHEAD_STEP == 1 {
            index.tree.read_ahead(sys.pool(), &from)?;
        }
        leaves = leaves.wrapping_add(1);
        let leaf = index.tree.seek(sys.pool(), &from)?;
        let (page, len) = (leaf.page_id(), leaf.len());
        let first = leaf.find(&from).unwrap_or_else(|s| s);
        // All keys of the leaf from `first` on are the index's if the last one is.
        let whole = len > first && after(&leaf, len - 1, index.id) == After::Here;
        for slot in first..len {
            if !whole && after(&leaf, slot, index.id) != After::Here {
                return Ok(rows);
            }
            let entry = Entry::parse(leaf.value(slot), page)?;
            let view = trx.view_of(view, index, leaf.key_parts(slot), &entry, page)?;
            let seen = sys.version(entry, page, view, own, &mut trx.versions)?;
            rows += u64::from(seen.is_some());
        }
        let fence = leaf.high_fence();
        if leaf.is_last() || fence > &from[..] && !in_index(fence, index.id) {
            return Ok(rows);
        }
        from.clear();
        from.extend_from_slice(fence);
        drop(leaf);
        if trx.is_killed() {
            return Err(Error::Interrupted);
        }
    }
}
