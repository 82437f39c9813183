//! What all users of an open table share: its definition, its indexes, its counters.

use crate::row_log::RowLog;
use crate::session::Op;
use crate::stats::CachedStats;
use myriad_base::{Csn, Error, Result};
use myriad_btree::Leaf;
use myriad_catalog::{open_index, IndexDef, TableRef, AUTO_INCREMENT_KEY};
use myriad_txn::{Index, Place, Trx, TrxSystem};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A row's operations; most rows' take no allocation.
pub(crate) type Operations<'a> = SmallVec<[myriad_txn::Op<'a>; 8]>;

/// The AUTO_INCREMENT counter of an open table.
pub(crate) struct AutoIncrement {
    index: Index,
    /// The next value to give.
    next: AtomicU64,
    /// The value on disk, or on its way there in the log.
    stored: AtomicU64,
    /// Keeps two writers from storing their values in the wrong order; where it was stored last.
    storing: Mutex<Option<Place>>,
}

/// The names of a table's indexes for reports, with a NUL between two: one allocation for all, as many tables may be open.
#[derive(Default)]
pub(crate) struct IndexNames(Mutex<Box<str>>);

impl IndexNames {
    fn set(&self, names: &[&str]) {
        let mut now = self.0.lock();
        if !now.split('\0').eq(names.iter().copied()) {
            *now = names.join("\0").into();
        }
    }

    /// The name of one of them, if it was told.
    pub(crate) fn get(&self, no: usize) -> Option<String> {
        self.0.lock().split('\0').nth(no).filter(|name| !name.is_empty()).map(String::from)
    }
}

/// An open table. One for each definition that somebody has open; see [`crate::shares::Shares`].
pub(crate) struct TableShare {
    pub(crate) def: TableRef,
    pub(crate) indexes: Box<[Index]>,
    auto_increment: OnceLock<AutoIncrement>,
    /// The next hidden row id; 0 = not yet known.
    row_id: AtomicU64,
    current: AtomicBool,
    /// For each index the oldest snapshot that may read it.
    contents_since: Box<[Csn]>,
    pub(crate) stats: Arc<CachedStats>,
    pub(crate) index_names: Arc<IndexNames>,
    /// Where writers note the rows that they change, while somebody wants to know.
    pub(crate) row_log: Mutex<Option<Arc<RowLog>>>,
    pub(crate) has_row_log: AtomicBool,
}

impl TableShare {
    /// Opens a definition.
    pub(crate) fn open(
        trx: &TrxSystem,
        def: TableRef,
        contents_since: Box<[Csn]>,
        stats: Arc<CachedStats>,
    ) -> Result<TableShare> {
        let indexes: Box<[Index]> = {
            // Also where a replica's workers share it: one waits for the other's commit.
            let private = def.temporary;
            let open = |i| Index { private, ..open_index(def.space, i, def.indexes[0].id) };
            def.indexes.iter().map(open).collect()
        };
        let row_id = if def.hidden_row_id { last_row_id(trx, &indexes[0])? + 1 } else { 0 };
        let share = TableShare {
            def,
            indexes,
            auto_increment: OnceLock::new(),
            row_id: AtomicU64::new(row_id),
            current: AtomicBool::new(true),
            contents_since,
            stats,
            index_names: Arc::default(),
            row_log: Mutex::default(),
            has_row_log: AtomicBool::new(false),
        };
        if let Some(counter) = &share.def.auto_increment {
            share.add_auto_increment(trx, counter)?;
        }
        Ok(share)
    }

    /// One of its indexes.
    #[inline]
    pub(crate) fn index(&self, no: usize) -> Result<&Index> {
        self.indexes.get(no).ok_or_else(|| no_index(&self.def.name, no))
    }

    /// The operations with their indexes.
    #[inline]
    pub(crate) fn operations<'s, 'a: 's>(&'s self, ops: impl Iterator<Item = Op<'a>>) -> Result<Operations<'s>> {
        let mut operations = Operations::new();
        for op in ops {
            operations.push(myriad_txn::Op {
                kind: op.kind,
                index: self.index(op.index_no)?,
                key: op.key,
                unique_len: op.unique_len,
                payload: op.value,
                head_len: op.head_len,
            });
        }
        Ok(operations)
    }

    /// Operations have been tried, with success or without: notes their rows for [`crate::RowChanges`].
    #[inline]
    pub(crate) fn note_rows(&self, ops: &Operations<'_>) {
        if self.has_row_log.load(Ordering::Acquire) {
            self.note_rows_in_log(ops);
        }
    }

    #[cold]
    fn note_rows_in_log(&self, ops: &Operations<'_>) {
        let log = self.row_log.lock().clone();
        if let Some(log) = log {
            log.note(ops.iter().filter(|op| op.index.clustered).map(|op| op.key));
        }
    }

    /// Whether the transaction may read one of its indexes without locks.
    ///
    /// # Errors
    /// [`Error::DefinitionChanged`] if its snapshot is older than the index's contents.
    #[inline]
    pub(crate) fn check_snapshot(&self, trx: &Trx, index_no: usize) -> Result<()> {
        match (trx.snapshot_csn(), self.contents_since.get(index_no)) {
            (Some(csn), Some(since)) if csn < *since => Err(Error::DefinitionChanged { name: self.def.name.clone() }),
            _ => Ok(()),
        }
    }

    /// See [`crate::Table::set_index_names`].
    pub(crate) fn set_index_names(&self, names: &[&str]) {
        self.index_names.set(names);
    }

    /// The name of an index, or its number where that is not known.
    pub(crate) fn index_label(&self, no: usize) -> String {
        self.index_names.get(no).unwrap_or_else(|| no.to_string())
    }

    /// False once the definition has changed.
    pub(crate) fn is_current(&self) -> bool {
        self.current.load(Ordering::Acquire)
    }

    /// The definition has changed.
    pub(crate) fn set_outdated(&self) {
        self.current.store(false, Ordering::Release);
    }

    /// Its AUTO_INCREMENT counter.
    pub(crate) fn auto_increment(&self) -> Result<&AutoIncrement> {
        self.auto_increment
            .get()
            .ok_or_else(|| Error::invalid(format!("table {} has no AUTO_INCREMENT column", self.def.name)))
    }

    /// Its definition has got a counter. Of those who come with it at once the first one's is used.
    pub(crate) fn add_auto_increment(&self, trx: &TrxSystem, counter: &IndexDef) -> Result<()> {
        let _ = self.auto_increment.set(AutoIncrement::open(trx, open_index(self.def.space, counter, counter.id))?);
        Ok(())
    }

    /// A new hidden row id.
    pub(crate) fn next_row_id(&self) -> Result<u64> {
        if !self.def.hidden_row_id {
            return Err(Error::invalid(format!("table {} has a primary key", self.def.name)));
        }
        Ok(self.row_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether who opens the table next finds its counter as it is.
    pub(crate) fn is_counter_stored(&self) -> bool {
        self.auto_increment.get().is_none_or(AutoIncrement::is_stored)
    }

    /// Stores the counter if it has moved since it was last stored. Called before the end of each transaction that
    /// moved it.
    pub(crate) fn store_auto_increment(&self, trx: &TrxSystem) -> Result<()> {
        match self.auto_increment.get() {
            Some(counter) if self.is_current() => counter.store(trx),
            _ => Ok(()),
        }
    }
}

#[cold]
fn no_index(table: &str, no: usize) -> Error {
    Error::invalid(format!("table {table} has no index {no}"))
}

impl AutoIncrement {
    fn open(trx: &TrxSystem, index: Index) -> Result<AutoIncrement> {
        let mut stored = Vec::new();
        let next = if trx.get_newest(&index, AUTO_INCREMENT_KEY, &mut stored)? {
            let bytes: [u8; 8] = stored.as_slice().try_into().map_err(|_| Error::CorruptFile {
                path: "catalog".into(),
                reason: format!("AUTO_INCREMENT counter of {} bytes", stored.len()),
            })?;
            u64::from_le_bytes(bytes).max(1)
        } else {
            1
        };
        Ok(AutoIncrement { index, next: AtomicU64::new(next), stored: AtomicU64::new(next), storing: Mutex::new(None) })
    }

    /// The next value to give.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Reserves `count` values `increment` apart, the first of them congruent to `offset`. Saturates at the end: then
    /// `u64::MAX`, which no column takes as generated. Where no such value up to `largest` is left, the next of any kind,
    /// and none is reserved.
    pub(crate) fn reserve(&self, offset: u64, increment: u64, count: u64, largest: u64) -> u64 {
        let increment = increment.max(1);
        // As the server defines it, an offset beyond the increment counts as none.
        let offset = if offset > increment { 1 } else { offset };
        let mut next = self.next();
        loop {
            let first = align(next, offset, increment);
            if first > largest || first == u64::MAX {
                return next;
            }
            let end = increment.checked_mul(count.max(1)).and_then(|n| first.checked_add(n)).unwrap_or(u64::MAX);
            match self.next.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return first,
                Err(now) => next = now,
            }
        }
    }

    /// A value was given by hand.
    pub(crate) fn at_least(&self, next: u64) {
        if self.next() < next {
            self.next.fetch_max(next, Ordering::Relaxed);
        }
    }

    /// Sets the counter and stores it.
    pub(crate) fn set(&self, trx: &TrxSystem, next: u64) -> Result<()> {
        let mut place = self.storing.lock();
        let next = next.max(1);
        self.put(trx, next, &mut place)?;
        self.next.store(next, Ordering::Relaxed);
        Ok(())
    }

    fn is_stored(&self) -> bool {
        self.stored.load(Ordering::Acquire) >= self.next()
    }

    fn store(&self, trx: &TrxSystem) -> Result<()> {
        let wanted = self.next();
        if self.stored.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let mut place = self.storing.lock();
        if self.stored.load(Ordering::Acquire) >= wanted {
            // The one before stored ours along with its own.
            return Ok(());
        }
        self.put(trx, self.next(), &mut place)
    }

    fn put(&self, trx: &TrxSystem, value: u64, place: &mut Option<Place>) -> Result<()> {
        trx.put_unversioned_at(place, &self.index, AUTO_INCREMENT_KEY, &value.to_le_bytes())?;
        self.stored.store(value, Ordering::Release);
        Ok(())
    }
}

/// The first number >= `next` (and > 0) that is `offset` plus a multiple of `increment`; saturates.
fn align(next: u64, offset: u64, increment: u64) -> u64 {
    if next <= offset {
        return offset.max(1);
    }
    let steps = (next - offset).div_ceil(increment);
    steps.checked_mul(increment).and_then(|n| n.checked_add(offset)).unwrap_or(u64::MAX)
}

/// The largest key of an index of 8-byte counters, 0 if it is empty.
fn last_row_id(trx: &TrxSystem, index: &Index) -> Result<u64> {
    let id = index.id.0.to_be_bytes();
    let mut end = index.id.0.wrapping_add(1).to_be_bytes().to_vec();
    let mut key = Vec::new();
    loop {
        let leaf = index.tree.seek_before(trx.pool(), &end)?;
        let slot = leaf.find(&end).unwrap_or_else(|slot| slot);
        if slot > 0 {
            leaf.key_into(slot - 1, &mut key);
            return Ok(match key.strip_prefix(&id) {
                Some(counter) => counter.get(..8).map_or(0, |c| u64::from_be_bytes(c.try_into().expect("8 bytes"))),
                None => 0,
            });
        }
        // An empty leaf is legal; go on to the one before.
        if leaf.is_first() || leaf.low_fence() <= id.as_slice() {
            return Ok(0);
        }
        end = leaf.next_before(&end)?.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn alignment_follows_increment_and_offset() {
        assert_eq!(align(1, 1, 1), 1);
        assert_eq!(align(7, 1, 1), 7);
        assert_eq!(align(1, 5, 10), 5);
        assert_eq!(align(6, 5, 10), 15);
        assert_eq!(align(15, 5, 10), 15);
        assert_eq!(align(1, 0, 3), 3);
        assert_eq!(align(u64::MAX, 1, 2), u64::MAX);
        assert_eq!(align(u64::MAX - 1, 5, 10), u64::MAX);
    }
}
