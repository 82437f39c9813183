//! Range cursors.
//!
//! A consistent cursor copies the visible rows of a leaf, up to a limit that grows, under one shared latch and hands them
//! out afterwards. A locking cursor goes entry by entry: it locks the entry (with the gap before it where the isolation
//! level wants that) while its leaf is latched, and looks again after each wait. Deleted entries that nobody else holds are
//! passed under one latch. Both find their place again by the frame's version or, if the leaf has changed, by key.

mod consistent;
mod locking;

use crate::index::Index;
use crate::lock::{LockKey, LockMode, Strength};
use crate::place::Place;
use crate::read::Version;
use crate::system::TrxSystem;
use crate::trx::{Isolation, LockWait, Trx};
use crate::write::set_full_key;
use consistent::{BATCH_GROWTH, BATCH_ROWS_MAX};
use locking::EntriesLocked;
use myriad_base::{Error, PageId, Result};
use myriad_btree::page::{begins_with, compare};
use myriad_btree::{KeyParts, Leaf, LeafShared, Scan, READ_AHEAD_STEP};
use myriad_buffer::FrameNo;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

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
    /// The last entry that begins with the key; `next` and `prev` stay within it.
    ExactLast,
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
    /// Of what is found lock the entries alone, not the gaps before them.
    pub record_only: bool,
    /// All of the index will be read.
    pub full_scan: bool,
    /// Of a payload that is all in the entry its first so many bytes are read, and maybe more.
    pub value_bytes: usize,
    /// Of a payload with a head in the entry that is read, and the pages of so many bytes behind it, see
    /// [`crate::Op::head_len`].
    pub tail_bytes: usize,
}

impl CursorOptions {
    /// A read of the snapshot.
    pub const PLAIN: CursorOptions = CursorOptions {
        lock: None,
        wait: LockWait::Wait,
        semi_consistent: false,
        record_only: false,
        full_scan: false,
        value_bytes: usize::MAX,
        tail_bytes: usize::MAX,
    };
}

/// Appends what a reader wants of a payload, no more than all of it, see [`Cursor::set_excerpt`].
pub type Excerpt = Box<dyn Fn(&[u8], &mut Vec<u8>) + Send>;

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
/// Room for rows in new ones: a statement over many partitions has a cursor in each, for a few rows.
const FIRST_ROWS_BYTES: usize = 128;

thread_local! {
    static SPARE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

impl Buffers {
    fn take() -> Buffers {
        let room = || Buffers { rows_bytes: Vec::with_capacity(FIRST_ROWS_BYTES), ..Buffers::default() };
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(room)
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
    excerpt: Option<Excerpt>,
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
    /// Of a locking one, once it has moved.
    sys: Option<Arc<TrxSystem>>,
    locked: EntriesLocked,
    /// Leaves that a scan has left behind, and whether the next ones should be read ahead.
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
            excerpt: None,
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
            sys: None,
            locked: EntriesLocked::default(),
            leaves_passed: 0,
            read_ahead_due: false,
        }
    }

    /// Changes how the following rows are read: those, too, that have been copied already, if too little of them has.
    pub fn set_options(&mut self, options: CursorOptions) {
        let more = options.value_bytes > self.options.value_bytes;
        if options.lock != self.options.lock || options.lock.is_none() && more {
            self.leave_batch();
        }
        self.options = options;
    }

    /// Of payloads that are all in their entries, what `excerpt` appends of them may be read instead of
    /// [`CursorOptions::value_bytes`]. It is called with the entry's leaf latched. Rows that the one before has made excerpts of and
    /// that the cursor has not come to are read again.
    pub fn set_excerpt(&mut self, excerpt: Option<Excerpt>) {
        if self.excerpt.is_some() && self.options.lock.is_none() {
            self.leave_batch();
        }
        self.excerpt = excerpt;
    }

    /// Appends to the rows what is wanted of a version's payload, whose leaf is latched.
    #[inline]
    fn append_wanted(&mut self, sys: &TrxSystem, version: &Version<'_>, leaf: PageId) -> Result<()> {
        if let (Some(excerpt), Some(payload)) = (&self.excerpt, version.whole()) {
            excerpt(payload, &mut self.buffer);
            return Ok(());
        }
        version.read_into(sys, leaf, (self.options.value_bytes, self.options.tail_bytes), &mut self.buffer)
    }

    /// Non-locking reads need not go beyond these prefixes, which are inclusive; empty = none. Locking ones do, but do not look
    /// ahead there.
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
            if matches!(seek, Seek::Exact | Seek::ExactLast | Seek::ExactUnique) { key } else { &[] },
        );
        let whole = matches!(seek, Seek::First | Seek::Last);
        set_full_key(&mut self.position.key, &self.index, if whole { &[] } else { key });
        if matches!(seek, Seek::Gt | Seek::Le | Seek::Last | Seek::ExactLast) {
            next_prefix(&mut self.position.key);
        }
        self.position.hint = None;
        let direction = match seek {
            Seek::Last | Seek::Le | Seek::Lt | Seek::ExactLast => Direction::Backward,
            _ => Direction::Forward,
        };
        self.position.inclusive = direction == Direction::Forward;
        self.locked = EntriesLocked::default();
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

    #[inline(never)]
    fn step_slow(&mut self, trx: &mut Trx, direction: Direction) -> Result<bool> {
        trx.start();
        if self.exact_unique && !self.semi {
            return Ok(false);
        }
        // Not all loops of the server look: the one that copies partitions does not.
        if trx.is_killed() {
            return Err(Error::Interrupted);
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
        self.row().0
    }

    /// The row's payload.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.row().1
    }

    /// Key and payload.
    #[inline]
    pub fn row(&self) -> (&[u8], &[u8]) {
        let bytes = &self.buffer[..];
        self.rows.get(self.at).map_or((&[], &[]), |r| (&bytes[r.key.clone()], &bytes[r.value.clone()]))
    }

    /// How many rows behind the current one [`Cursor::peek`] can give: without locks those that have been read already, with
    /// locks up to `max` entries that follow in the leaf, as they stand and not locked.
    pub fn look_ahead(&mut self, sys: &TrxSystem, max: usize) -> usize {
        if self.options.lock.is_some() && self.rows.len() == self.at + 1 {
            self.add_next_entries(sys, max);
        }
        self.rows.len().saturating_sub(self.at + 1)
    }

    /// Key and payload of the n-th row behind the current one, of those that [`Cursor::look_ahead`] counted.
    pub fn peek(&self, n: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(self.at + n)?;
        Some((&self.buffer[row.key.clone()], &self.buffer[row.value.clone()]))
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
            // Whoever has just changed the row it stands on need not look for that again.
            let version = place.and_then(|place| place.version_like(h.frame, h.page, h.version));
            if let Some(page) = pool.try_reuse(h.frame, h.page, version.unwrap_or(h.version)) {
                return Ok((LeafShared::from_reused(page), h.slot));
            }
        }
        let tree = self.index.tree;
        match direction {
            Direction::Forward => {
                let leaf = match place.and_then(|place| place.shared(pool, tree, &p.key)) {
                    Some(leaf) => leaf,
                    None if self.high().is_some() => self.seek_range(sys, direction)?,
                    None if p.inclusive => self.index.seek(sys, &p.key)?,
                    None => tree.seek(pool, &p.key)?,
                };
                let slot = leaf.find_sought(&p.key)?.map_or_else(|s| s, |s| if p.inclusive { s } else { s + 1 });
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
        let leaf = if self.low().is_some() {
            self.seek_range(sys, Direction::Backward)?
        } else {
            self.index.tree.seek_before(sys.pool(), &self.position.key)?
        };
        let slot = leaf.find(&self.position.key).unwrap_or_else(|s| s);
        Ok((leaf, slot))
    }

    fn seek_range<'p>(&self, sys: &'p TrxSystem, direction: Direction) -> Result<LeafShared<'p>> {
        let begins = self.leaves_passed == 0;
        self.index.tree.seek_range(sys.pool(), &self.position.key, self.scan(direction), begins)
    }

    /// The way to go, as far as it is known.
    fn scan(&self, direction: Direction) -> Scan<'_> {
        match direction {
            Direction::Forward => Scan::up(self.high().unwrap_or_default()),
            Direction::Backward => Scan::down(self.low().unwrap_or(&self.scope)),
        }
    }

    /// The bounds that are more than the index.
    #[inline]
    fn low(&self) -> Option<&[u8]> {
        (self.low.len() > 4).then_some(&self.low)
    }

    #[inline]
    fn high(&self) -> Option<&[u8]> {
        (self.high.len() > 4).then_some(&self.high)
    }

    /// The entries on this side of `slot` have been read.
    fn stand_at(&mut self, leaf: &LeafShared<'_>, slot: usize, direction: Direction) -> Result<()> {
        let last = if direction == Direction::Forward { slot - 1 } else { slot };
        self.expect_beyond(leaf, last, direction)?;
        leaf.key_into(last, &mut self.position.key);
        self.stand_by_key(leaf, slot, direction);
        Ok(())
    }

    /// A scan over keys out of order that looks for its place again by key, as after changes, might go round in circles.
    fn expect_beyond(&self, leaf: &LeafShared<'_>, slot: usize, direction: Direction) -> Result<()> {
        let beyond = if direction == Direction::Forward { Ordering::Greater } else { Ordering::Less };
        let order = leaf.cmp_key(slot, &self.position.key);
        if order == beyond || self.position.inclusive && order.is_eq() {
            return Ok(());
        }
        Err(Error::corrupt(
            leaf.page_id(),
            format!("the key of slot {slot} is not beyond that of the entry read before it"),
        ))
    }

    /// As [`Cursor::stand_at`], where the position has the key already.
    fn stand_by_key(&mut self, leaf: &LeafShared<'_>, slot: usize, direction: Direction) {
        self.position.inclusive = false;
        self.position.hint =
            Some(Hint { frame: leaf.frame(), page: leaf.page_id(), version: leaf.version(), slot, direction });
    }

    /// The leaf has been read to its end: the position moves to its fence. Whether the next leaf may hold more.
    fn next_leaf(&mut self, leaf: &LeafShared<'_>, direction: Direction) -> Result<bool> {
        let sought_below = self.position.hint.take().is_none() && !self.position.inclusive;
        let forward = direction == Direction::Forward;
        let fence = if forward { leaf.high_fence() } else { leaf.low_fence() };
        let last = if forward { leaf.is_last() } else { leaf.is_first() };
        // Backward the keys wanted are below the fence: it may be the scope's upper end itself.
        if last || forward && !self.fence_in_scope(fence) || !forward && compare(fence, &self.scope).is_le() {
            return Ok(false);
        }
        if forward && self.high().is_some_and(|high| compare(fence, high).is_gt() && !begins_with(fence, high)) {
            return Ok(false);
        }
        if !forward && self.low().is_some_and(|low| compare(fence, low).is_le()) {
            return Ok(false);
        }
        // Where the fence is not beyond the position that was sought, the way on leads back here. Backward the leaf of the
        // position's own entry may begin with it; the next is then sought below.
        if forward {
            leaf.next_from(&self.position.key)?;
        } else if sought_below || compare(fence, &self.position.key).is_gt() {
            leaf.next_before(&self.position.key)?;
        }
        self.position.key.clear();
        self.position.key.extend_from_slice(fence);
        self.position.inclusive = forward;
        self.leaf_passed();
        Ok(true)
    }

    /// A scan goes to the next leaf. One of the whole index will want those behind it at once, another only when
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
            self.index.tree.read_ahead(sys.pool(), &self.position.key, self.scan(self.batch_direction))?;
        }
        Ok(())
    }

    /// Whether keys at or above the fence can begin with the scope.
    fn fence_in_scope(&self, fence: &[u8]) -> bool {
        compare(fence, &self.scope).is_le() || begins_with(fence, &self.scope)
    }

    /// Whether a key is in the scope and within the bounds.
    #[inline]
    fn within(&self, key: KeyParts<'_>, direction: Direction) -> bool {
        if !key.starts_with(&self.scope) {
            return false;
        }
        match direction {
            Direction::Forward => self.high().is_none_or(|high| key.cmp_start(high).is_le()),
            Direction::Backward => self.low().is_none_or(|low| key.cmp_start(low).is_ge()),
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
