//! Changes of secondary entries whose leaves are not in memory, for the buffer pool's change buffer.
//!
//! A *settled* row (see [`crate::write`]) makes them possible: whatever secondary entry has its row key is either live and
//! seen by everybody, or delete-marked and everybody sees that. So an entry to be inserted may take the place of one that is
//! there, an entry to be marked needs no note of what it was, and both have short headers. Purge removes an entry if it is
//! still the one that it means, which shows when the leaf is read.
//!
//! Locks: nothing is buffered in an index in which anybody has explicit locks, because the gap that the entry lies in, and
//! with it the key at which that gap is locked, is not known. This is asked after the change buffer has made sure that the
//! leaf is not in memory: whoever gets a lock from then on comes to the leaf later, and sees the change.
//!
//! | op | name | payload | effect |
//! |---|---|---|---|
//! | 80 | MARK_KEY | transaction u48, row key length u8, key | the entry, if it is there and not marked, gets a short header with a delete mark |
//! | 81 | REMOVE_KEY | transaction u48, roll pointer u48, key | the entry goes if the transaction marked it last, and it is short or has that roll pointer; not if it has an overflow chain |

use crate::system::TrxSystem;
use crate::value::{self, Entry, Header};
use myriad_base::codec::{push_u48, Reader};
use myriad_base::page::{page_id, PageKind, OFF_KIND};
use myriad_base::{limits, Error, IndexId, PageId, Result, RollPtr, SpaceId, TrxId};
use myriad_btree::page::{self, entry_bytes, SLOT_BYTES};
use myriad_btree::{redo, Tree};
use myriad_buffer::{BufferedChange, Mtr, RedoTable, SharedPage};

const MARK_KEY: u8 = 80;
const REMOVE_KEY: u8 = 81;

/// Columns of a key at most.
const KEY_COLUMNS_MAX: usize = 32;

/// Longest payload of a secondary entry: the columns of its index and of the clustered one, each with a byte in front and a byte for
/// its length, two where that is more than 255, and the length of their part of the key.
const fn payload_bytes_max(page_size: usize) -> usize {
    let columns = limits::key_columns_bytes_max(page_size);
    2 * (columns + 2 * KEY_COLUMNS_MAX + columns / 256) + 2
}

/// Longest full key of an entry that is sure to have no overflow pages.
const fn inline_key_bytes_max(page_size: usize) -> usize {
    page::entry_bytes_max(page_size) - value::HEADER_BYTES - payload_bytes_max(page_size)
}

/// Registers the redo functions.
pub(crate) fn register(table: &mut RedoTable) {
    table.register(MARK_KEY..REMOVE_KEY + 1, repeat);
    table.check_before(&[MARK_KEY, REMOVE_KEY]);
}

/// A change that can be buffered.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// An entry with this value.
    Insert { value: &'a [u8] },
    /// The delete mark of a transaction.
    Mark { trx: TrxId, row_key_len: u8 },
    /// An entry that this transaction marked.
    Remove { trx: TrxId, roll: RollPtr },
}

impl Change<'_> {
    /// The most bytes that the leaf loses and gains.
    fn bytes(&self, key: &[u8]) -> (usize, usize) {
        match self {
            Change::Insert { value } => (entry_bytes(0, key.len(), value.len()) + SLOT_BYTES, 0),
            Change::Mark { .. } => (value::HEADER_BYTES, 0),
            Change::Remove { .. } => (0, entry_bytes(0, key.len(), value::HEADER_BYTES) + SLOT_BYTES),
        }
    }

    /// Operation and payload.
    fn record(&self, key: &[u8], out: &mut Vec<u8>) -> u8 {
        out.clear();
        match *self {
            Change::Insert { value } => {
                redo::insert_key_payload(out, key, value);
                redo::INSERT_KEY
            }
            Change::Mark { trx, row_key_len } => {
                push_u48(out, trx.0);
                out.push(row_key_len);
                out.extend_from_slice(key);
                MARK_KEY
            }
            Change::Remove { trx, roll } => {
                push_u48(out, trx.0);
                push_u48(out, roll.0);
                out.extend_from_slice(key);
                REMOVE_KEY
            }
        }
    }
}

/// A leaf that is not in memory, and cannot come there while this lasts.
pub(crate) struct Absent<'p> {
    /// What keeps the leaf the key's.
    _parent: SharedPage<'p>,
    change: BufferedChange<'p>,
    op: u8,
}

impl Absent<'_> {
    /// Commits the mini-transaction with the change; `payload` as [`TrxSystem::buffer`] left it.
    pub fn commit(self, mtr: Mtr<'_>, payload: &[u8]) -> Result<()> {
        mtr.commit_buffering(self.change, self.op, payload).map(|_| ())
    }
}

impl TrxSystem {
    /// Whether it is worth asking [`Tree::absent_leaf`]. Not where the entry may have overflow pages: nobody could free them when
    /// the change is made.
    #[inline]
    pub(crate) fn may_buffer(&self, tree: Tree, key: &[u8]) -> bool {
        tree.space != SpaceId::MEMORY
            && key.len() <= inline_key_bytes_max(self.pool().page_size())
            && self.pool().may_buffer_changes()
    }

    /// The right to buffer `change` of what [`Tree::absent_leaf`] gave, and in `payload` what is logged of it; `None` where the leaf has to be read. What the
    /// mini-transaction needs beside it has been latched before.
    pub(crate) fn buffer<'p>(
        &'p self,
        (parent, leaf): (SharedPage<'p>, PageId),
        index: IndexId,
        key: &[u8],
        change: Change<'_>,
        payload: &mut Vec<u8>,
    ) -> Option<Absent<'p>> {
        let op = change.record(key, payload);
        let (takes, gives) = change.bytes(key);
        let change = self.pool().buffer_change(leaf, takes, gives)?;
        if self.locks().may_have_locks_in(index) {
            return None;
        }
        Some(Absent { _parent: parent, change, op })
    }
}

/// Repeats a change: total, see [`myriad_buffer::RedoFn`].
fn repeat(op: u8, p: &mut [u8], payload: &[u8]) -> Result<()> {
    let short = || Error::invalid("log record ends early");
    if p.get(OFF_KIND) != Some(&(PageKind::Index as u8)) {
        return Err(Error::invalid("a change of an entry on a page without entries"));
    }
    let mut r = Reader::new(payload);
    let trx = TrxId(r.u48().ok_or_else(short)?);
    let mark = (op == MARK_KEY).then(|| r.u8().ok_or_else(short)).transpose()?;
    let roll = if op == REMOVE_KEY { RollPtr(r.u48().ok_or_else(short)?) } else { RollPtr::NONE };
    let key = r.rest();
    if page::level(p) != 0 || !page::covers(p, key) {
        return Err(Error::invalid("the key does not belong to the page"));
    }
    let Ok(slot) = page::find(p, key) else { return Ok(()) };
    let entry = Entry::parse(page::value(p, slot), page_id(p))?;
    if let Some(row_key_len) = mark {
        if entry.is_deleted() {
            return Ok(());
        }
        let mut value = Header::short(entry.flags & value::OVERFLOW | value::DELETED, trx, row_key_len).to_vec();
        value.extend_from_slice(entry.body);
        return page::replace(p, slot, &value);
    }
    let meant = entry.is_deleted() && entry.trx == trx && (entry.is_short() || entry.roll == roll);
    if meant && entry.flags & value::OVERFLOW == 0 {
        page::remove(p, slot, 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::page;
    use myriad_base::{PageId, PageNo, RollPtr};
    use myriad_btree::page::{check_layout, count, find, format, insert, value as value_of, Fences};
    use proptest::prelude::*;

    const ID: PageId = PageId::new(SpaceId(20), PageNo(9));

    /// A leaf with the keys "a" to "e", whose entries have these headers.
    fn leaf(headers: &[Header]) -> Vec<u8> {
        let mut p = vec![0; 4096];
        page::format(&mut p, ID, PageKind::Index);
        let fences = Fences { low: b"", high: b"", flags: 3 };
        format(&mut p, 0, PageNo(0), fences).unwrap();
        for (slot, header) in headers.iter().enumerate() {
            insert(&mut p, slot, &[b'a' + slot as u8], &[header, &b"body"[..]].concat()).unwrap();
        }
        p
    }

    fn make(p: &mut [u8], key: &[u8], change: Change<'_>) {
        let mut payload = Vec::new();
        let op = change.record(key, &mut payload);
        match change {
            Change::Insert { .. } => redo::redo(op, p, &payload).unwrap(),
            _ => repeat(op, p, &payload).unwrap(),
        }
    }

    #[test]
    fn entries_are_marked_and_removed_only_if_they_are_meant() {
        let (trx, other) = (TrxId(7), TrxId(6));
        let roll = RollPtr::new(PageNo(3), 60);
        let mut p = leaf(&[
            Header::long(0, other, roll),
            Header::short(value::DELETED, trx, 1),
            Header::short(value::DELETED, other, 1),
            Header::long(value::DELETED, trx, roll),
            Header::short(0, trx, 1),
        ]);
        make(&mut p, b"a", Change::Mark { trx, row_key_len: 1 });
        let marked = Entry::parse(value_of(&p, 0), ID).unwrap();
        assert!(marked.is_deleted() && marked.is_short() && marked.trx == trx && marked.row_key_len == 1);
        assert_eq!(marked.body, b"body");
        make(&mut p, b"c", Change::Mark { trx, row_key_len: 1 });
        assert_eq!(Entry::parse(value_of(&p, 2), ID).unwrap().trx, other, "marked already");
        make(&mut p, b"zz", Change::Mark { trx, row_key_len: 1 });
        let wrong = RollPtr::new(PageNo(3), 61);
        for (key, roll, gone) in
            [(b"e", roll, false), (b"d", wrong, false), (b"d", roll, true), (b"c", roll, false), (b"b", wrong, true)]
        {
            let before = count(&p);
            make(&mut p, key, Change::Remove { trx, roll });
            assert_eq!(count(&p), before - usize::from(gone), "{}", key[0] as char);
            assert_eq!(find(&p, key).is_err(), gone);
        }
        let value = [&Header::short(0, trx, 1)[..], b"other"].concat();
        for key in [b"a", b"x"] {
            make(&mut p, key, Change::Insert { value: &value });
            assert_eq!(value_of(&p, find(&p, key).unwrap()), value);
        }
        assert_eq!(count(&p), 4);
    }

    proptest! {
        #[test]
        fn redo_is_total(
            op in 78u8..84, payload: Vec<u8>, key in 0u8..8, damage in proptest::collection::vec((0usize..4096, any::<u8>()), 0..20)
        ) {
            let mut p = leaf(&[Header::short(0, TrxId(7), 1); 5]);
            for (at, byte) in damage {
                p[at] = byte;
            }
            for payload in [payload.clone(), [&payload[..], &[b'a' + key]].concat(), [&[7, 0, 0, 0, 0, 0, 1][..], &[b'a' + key]].concat()] {
                let before = p.clone();
                if check_layout(&p).is_ok() && repeat(op, &mut p, &payload).is_err() {
                    prop_assert_eq!(&p, &before);
                }
            }
        }
    }
}
