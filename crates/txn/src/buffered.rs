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
use myriad_base::{Error, IndexId, PageId, Result, RollPtr, SpaceId, TrxId};
use myriad_btree::page::{self, entry_bytes, SLOT_BYTES};
use myriad_btree::{redo, Tree};
use myriad_buffer::{BufferedChange, Mtr, RedoTable, SharedPage};

const MARK_KEY: u8 = 80;
const REMOVE_KEY: u8 = 81;

/// Registers the redo functions.
pub(crate) fn register(table: &mut RedoTable) {
    table.register(MARK_KEY..REMOVE_KEY + 1, repeat);
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
    /// Whether it is worth asking [`TrxSystem::absent_leaf`].
    #[inline]
    pub(crate) fn may_buffer(&self, tree: Tree) -> bool {
        tree.space != SpaceId::MEMORY && self.pool().may_buffer_changes()
    }

    /// The page of the key's leaf if that is not in memory, and its parent.
    pub(crate) fn absent_leaf(&self, tree: Tree, key: &[u8]) -> Result<Option<(SharedPage<'_>, PageId)>> {
        tree.absent_leaf(self.pool(), key)
    }

    /// The right to buffer `change`, and in `payload` what is logged of it; `None` where the leaf has to be read. What the
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
    page::check_layout(p).map_err(Error::invalid)?;
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
