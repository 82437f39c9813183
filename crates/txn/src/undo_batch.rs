//! Undoing many changes together, in the order of their keys.
//!
//! The records of a transaction that has changed more than fits in memory name, one after the other, leaves that lie anywhere:
//! each leaf would be read and written again for every entry of it. So the newest records, as many as there is memory for, are
//! sorted first; then all that a batch does to a leaf is done at once. The records stay until all of the batch is undone, and are
//! cut off together.
//!
//! A crash, or an error, leaves any part of a batch undone, and all its records. They are undone again, perhaps in another batch or one
//! by one, and what is undone already has to be told from the entry, which does not name the record any more. So
//!
//! - no batch has two records of a key: an entry with a short header names any record that may have led to it (`names`);
//! - none has a record whose older version has an overflow chain of its own: of an entry that does not name it rollback frees
//!   that chain, which belongs to the entry by then if it was restored.
//!
//! Secondary entries are undone before clustered ones, as a rollback one by one does it for each row: others may change a row from the
//! moment when its clustered entry is restored, and take it as settled (see [`crate::write`]).

use crate::lock::hash_key;
use crate::rollback::{index_of, Progress};
use crate::system::TrxSystem;
use crate::undo::page::{self, undo_page};
use crate::undo::record::{self, Change, OLD_CHAIN};
use crate::undo::space::UndoLog;
use myriad_base::{work, PageId, PageNo, Result, RollPtr, SpaceId};
use myriad_buffer::Mtr;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer records are not worth a batch.
pub(crate) const BATCH_RECORDS_MIN: u64 = 512;
/// Memory of all batches: the part of the pool's size that it may be, and the most.
const BATCH_POOL_PART: usize = 4;
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Memory that each batch may have, however many there are.
const BATCH_BYTES_MIN: usize = 128 << 10;
/// Records whose leaves are read ahead at a time.
const AHEAD_RECORDS: usize = 64;

/// One of a batch.
struct Record {
    at: RollPtr,
    clustered: bool,
    /// In the batch's bytes: its body, and the entry's key there.
    body: Range<u32>,
    key: Range<u32>,
}

fn part<'b>(bytes: &'b [u8], range: &Range<u32>) -> &'b [u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// Memory that a record takes beside its body: its place, and its key's hash in a set that may be half empty.
const RECORD_BYTES: usize = size_of::<Record>() + 2 * size_of::<u64>();

/// The newest records of a log.
struct Batch {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// The pages that they are on, from the log's tail back; each with the offset of the oldest one there and how many there are.
    pages: Vec<(PageNo, usize, u64)>,
}

/// Batches at a time, which share the memory for them.
#[derive(Default)]
pub(crate) struct Batches(AtomicUsize);

struct OfBatches<'s>(&'s Batches);

impl Drop for OfBatches<'_> {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batches {
    fn begin(&self) -> OfBatches<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        OfBatches(self)
    }
}

impl Batch {
    fn bytes(&self) -> usize {
        self.bytes.len() + self.records.len() * RECORD_BYTES
    }

    fn add(&mut self, at: RollPtr, change: &Change<'_>, body: &[u8]) {
        let begin = self.bytes.len() as u32;
        self.bytes.extend_from_slice(body);
        let key = begin + (change.key.as_ptr() as usize - body.as_ptr() as usize) as u32;
        self.records.push(Record {
            at,
            clustered: change.row_key_len == 0,
            body: begin..self.bytes.len() as u32,
            key: key..key + change.key.len() as u32,
        });
    }
}

/// What was found when leaves were last looked for that will be changed next.
#[derive(Default)]
struct ReadAhead {
    wanted: Vec<PageId>,
    /// By this thread until then.
    pages_read: u64,
}

/// Whether a record may be in a batch, see the module. Pages of in-memory tables are in memory, and what is restored there has to
/// find room, which undoing what came later may have made. The catalog's changes are few.
fn may_be_batched(change: &Change<'_>) -> bool {
    change.flags & OLD_CHAIN == 0 && !matches!(change.tree.space, SpaceId::MEMORY | SpaceId::SYSTEM)
}

impl TrxSystem {
    /// Starts to read the leaves of the changes that come next, while some are not in memory.
    fn read_leaves_ahead<'k>(&self, ahead: &mut ReadAhead, next: impl Iterator<Item = Change<'k>>) {
        let pages_read = work::of_thread().pages_read;
        if ahead.wanted.is_empty() && pages_read == ahead.pages_read {
            return;
        }
        ahead.pages_read = pages_read;
        ahead.wanted.clear();
        let users = self.use_trees();
        for change in next.filter(|change| index_of(change.key).is_some_and(|index| self.is_index_alive(index))) {
            // What cannot be read shows when it is undone.
            let Ok(Some((_, leaf))) = change.tree.absent_leaf(self.pool(), change.key) else { continue };
            if ahead.wanted.last() != Some(&leaf) {
                ahead.wanted.push(leaf);
            }
        }
        drop(users);
        if !ahead.wanted.is_empty() {
            self.pool().prefetch(&ahead.wanted);
        }
    }

    /// The newest records of the log beyond the first `keep`, as many as can be a batch. What cannot be read ends it.
    fn gather_batch(&self, log: &UndoLog, keep: u64) -> Batch {
        let mut batch = Batch { bytes: Vec::new(), records: Vec::new(), pages: Vec::new() };
        let mut keys = HashSet::new();
        let bytes_max = self.batch_bytes_max();
        let mut left = log.records - keep;
        let (mut no, mut end) = (log.tail.page, Some(log.tail.end));
        while left > 0 && batch.bytes() < bytes_max {
            let Ok(p) = self.pool().fix_shared(undo_page(no)) else { break };
            let Some(mut end) = end.take().or_else(|| page::end(&p).ok()) else { break };
            let before = batch.records.len();
            while left > 0 && batch.bytes() < bytes_max {
                let Some(start) = record::start_of_last(&p, end) else { break };
                let Some((_, body)) = record::frame_at(&p, start, end) else { break };
                let change = record::parse_change(body).filter(|c| may_be_batched(c) && keys.insert(hash_key(c.key)));
                let Some(change) = change else { break };
                batch.add(RollPtr::new(no, start as u16), &change, body);
                (end, left) = (start, left - 1);
            }
            let taken = (batch.records.len() - before) as u64;
            batch.pages.push((no, end, taken));
            if end > page::BODY {
                break;
            }
            no = page::prev(&p);
        }
        batch
    }

    fn batch_bytes_max(&self) -> usize {
        let all = self.pool().size() * self.pool().page_size() / BATCH_POOL_PART;
        (all.min(BATCH_BYTES_MAX) / self.batches.0.load(Ordering::Relaxed)).max(BATCH_BYTES_MIN)
    }

    /// Undoes a batch of the log's newest records beyond the first `keep` and cuts them off; `false` if too few can be one.
    ///
    /// # Errors
    /// Those of undoing them and of `progress`; the records stay then, and any part of them is undone.
    pub(crate) fn undo_batch(&self, log: &mut UndoLog, keep: u64, progress: &mut Progress<'_>) -> Result<bool> {
        let _one = self.batches.begin();
        let Batch { bytes, mut records, pages } = self.gather_batch(log, keep);
        if (records.len() as u64) < BATCH_RECORDS_MIN {
            return Ok(false);
        }
        records.sort_unstable_by(|a, b| {
            a.clustered.cmp(&b.clustered).then_with(|| part(&bytes, &a.key).cmp(part(&bytes, &b.key)))
        });
        let change_of =
            |record: &Record| record::parse_change(part(&bytes, &record.body)).expect("it was when it was gathered");
        let (mut left, mut ahead) = (log.records, ReadAhead::default());
        for (i, record) in records.iter().enumerate() {
            if i % AHEAD_RECORDS == 0 {
                let next = records[i..].iter().skip(AHEAD_RECORDS).take(AHEAD_RECORDS);
                self.read_leaves_ahead(&mut ahead, next.map(change_of));
            }
            self.undo_change(log.trx, record.at, &change_of(record), None)?;
            left -= 1;
            progress(left)?;
        }
        let last = pages.len() - 1;
        for (i, &(no, to, n)) in pages.iter().enumerate() {
            debug_assert_eq!(no, log.tail.page, "the chain of undo pages is the transaction's own");
            if i < last {
                self.undo.drop_tail(&mut log.tail)?;
            } else {
                let mut mtr = Mtr::start(self.pool())?;
                log.truncate(&mut mtr, to)?;
                mtr.commit()?;
            }
            log.records -= n;
        }
        Ok(true)
    }
}
