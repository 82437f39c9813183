//! The change buffer: changes of pages that are not in memory.
//!
//! A change that needs no look at its page (an entry that certainly is not there yet) and is sure to fit need not read it.
//! It is logged like any other; its record is kept here too, and made when the page is read for whatever reason, as
//! recovery redoes pages on first touch. So the log is all that makes it durable: it bounds the checkpoint until its page
//! has been written, and after a crash recovery finds it among the page's records. Many changes of a page cost one read and
//! one write.
//!
//! Whether a change fits is known from the moment when the page left memory: its room is noted then ([`Rooms`]), and what
//! is buffered is taken from it. Of a page that has not been in memory since the start nothing is known.
//!
//! Changes of pages that are in memory may be kept here, too, so that such a page can leave memory unwritten (`kept.rs`).
//!
//! No change is lost between a page's reader and somebody who buffers: the reader publishes its frame in the page table
//! before it looks here; who buffers looks at the page table while it holds the lock here.

use crate::background::IDLE;
use crate::cleaner::CLEANER_PAGES;
use crate::config::Level;
use crate::kept::Kept;
use crate::mtr::Mtr;
use crate::ops::{changes, push_change};
use crate::pool::BufferPool;
use crate::stats::Counter;
use crate::usage::USAGE_UNWANTED;
use myriad_base::codec::varint_len;
use myriad_base::latch::{lock_counted, LatchClass};
use myriad_base::page::{set_page_lsn, OFF_KIND};
use myriad_base::{Error, Lsn, PageId, Result, SpaceId};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const SHARDS: usize = 512;
/// Bytes counted for a page beside its records.
const PAGE_BYTES: usize = 128;
/// Pages merged in one batch.
const MERGE_PAGES: usize = 64;
/// All pages with changes have to be read before the log is full, or at a slow stop: they are as many as `io_capacity_max` allows in
/// so many seconds.
const READ_SECONDS: u64 = 10;

pub(crate) struct ChangeBuffer {
    shards: Box<[Mutex<Shard>]>,
    rooms: OnceLock<Rooms>,
    /// Memory held.
    bytes: AtomicUsize,
    /// Pages that are not in memory and have changes.
    pages: AtomicUsize,
    /// Changes that have been made nowhere.
    changes: AtomicU64,
    /// Most memory, in percent of the pool's; 0 = nothing is buffered.
    percent: AtomicU32,
    /// End of the newest mini-transaction that freed a page and so forgot its changes.
    freed: AtomicU64,
    /// For changes of pages in memory.
    pub kept: Kept,
}

#[derive(Default)]
pub(crate) struct Shard {
    pages: FxHashMap<PageId, Changes>,
    /// Those that are not in memory, and those that are, by their first change.
    away: BTreeSet<(Lsn, PageId)>,
    in_memory: BTreeSet<(Lsn, PageId)>,
}

/// What is to be done to a page as its file has it, in order.
pub(crate) struct Changes {
    /// Start of the first change's mini-transaction.
    pub first: Lsn,
    /// End of the last one's.
    pub last: Lsn,
    /// Bytes that the page has left at least, without those that changes give.
    pub room: usize,
    /// The most that changes give.
    pub given: usize,
    /// How many have been made nowhere.
    count: u64,
    /// The page is in memory, with all of these changes, and dirty because of them: they are kept in case it leaves.
    pub in_memory: bool,
    /// It left memory with changes, and nothing came of that yet: neither has it been changed again nor read for its changes' sake.
    pub left: bool,
    /// Operation u8, payload length varint, payload; again and again.
    records: Vec<u8>,
}

impl Changes {
    fn new(start: Lsn, in_memory: bool) -> Changes {
        Changes { first: start, last: start, room: 0, given: 0, count: 0, in_memory, left: false, records: Vec::new() }
    }

    fn bytes(&self) -> usize {
        PAGE_BYTES + self.records.capacity()
    }

    /// Bytes of the records.
    pub fn record_bytes(&self) -> usize {
        self.records.len()
    }

    /// The records, as [`crate::ops::changes`] reads them.
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    pub fn push(&mut self, op: u8, payload: &[u8]) {
        // Not to twice the size: memory is what limits the number of changes.
        let (more, records) = (1 + varint_len(payload.len() as u64) + payload.len(), &mut self.records);
        if records.capacity() - records.len() < more {
            records.reserve_exact(more.max(records.len() / 4));
        }
        push_change(records, op, payload);
    }
}

impl Shard {
    pub fn get(&self, id: PageId) -> Option<&Changes> {
        self.pages.get(&id)
    }

    pub fn get_mut(&mut self, id: PageId) -> Option<&mut Changes> {
        self.pages.get_mut(&id)
    }

    fn by_first(&mut self, in_memory: bool) -> &mut BTreeSet<(Lsn, PageId)> {
        match in_memory {
            true => &mut self.in_memory,
            false => &mut self.away,
        }
    }

    /// The oldest change.
    fn oldest(&self) -> Option<Lsn> {
        [&self.away, &self.in_memory].iter().filter_map(|pages| Some(pages.first()?.0)).min()
    }
}

/// How many bytes each of many pages could take when it left memory. Exact or silent: pages that share a place drive each
/// other out.
struct Rooms {
    /// The upper part of the page id's hash, which with the place is the whole hash and so the page; the room.
    places: Box<[AtomicU64]>,
    /// Number of hash bits that name the place.
    bits: u32,
}

impl Rooms {
    const ROOM_BITS: u32 = 16;

    /// A place for each of about `pages` pages.
    fn new(pages: usize) -> Rooms {
        let bits = pages.next_power_of_two().trailing_zeros().max(Rooms::ROOM_BITS);
        Rooms { places: (0..1usize << bits).map(|_| AtomicU64::new(0)).collect(), bits }
    }

    fn place(&self, id: PageId) -> (&AtomicU64, u64) {
        let hash = id.hash();
        (&self.places[(hash & ((1 << self.bits) - 1)) as usize], hash >> self.bits << Rooms::ROOM_BITS)
    }

    fn note(&self, id: PageId, room: usize) {
        let (place, tag) = self.place(id);
        place.store(tag | room.min((1 << Rooms::ROOM_BITS) - 1) as u64, Ordering::Release);
    }

    fn forget(&self, id: PageId) {
        let (place, tag) = self.place(id);
        let found = place.load(Ordering::Acquire);
        if found >> Rooms::ROOM_BITS << Rooms::ROOM_BITS == tag {
            let _ = place.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// 0 where nothing is known.
    fn get(&self, id: PageId) -> usize {
        let (place, tag) = self.place(id);
        let found = place.load(Ordering::Acquire);
        if found >> Rooms::ROOM_BITS << Rooms::ROOM_BITS == tag {
            (found & ((1 << Rooms::ROOM_BITS) - 1)) as usize
        } else {
            0
        }
    }
}

/// The right to buffer one change of a page that is not in memory. While it lasts nobody can begin to use the page.
#[must_use]
pub struct BufferedChange<'p> {
    buffer: &'p ChangeBuffer,
    shard: MutexGuard<'p, Shard>,
    id: PageId,
    /// As in [`Changes`], with this change.
    room: usize,
    given: usize,
}

impl BufferedChange<'_> {
    /// The page.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The change was logged from `start` to `end`; the range still holds the checkpoint back.
    fn add(mut self, start: Lsn, end: Lsn, op: u8, payload: &[u8]) {
        let (room, given) = (self.room, self.given);
        self.buffer.change(&mut self.shard, self.id, start, false, |changes| {
            changes.last = end;
            changes.room = room;
            changes.given = given;
            changes.count += 1;
            changes.push(op, payload);
        });
        self.buffer.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl ChangeBuffer {
    pub fn new(percent: u32) -> ChangeBuffer {
        ChangeBuffer {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            rooms: OnceLock::new(),
            bytes: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            percent: AtomicU32::new(percent),
            freed: AtomicU64::new(0),
            kept: Kept::default(),
        }
    }

    /// Changes what there is of the page, which is in memory or not; from `start` on if that is nothing.
    pub fn change(&self, shard: &mut Shard, id: PageId, start: Lsn, in_memory: bool, how: impl FnOnce(&mut Changes)) {
        let before = match shard.pages.get(&id) {
            Some(changes) => changes.bytes(),
            None => {
                shard.by_first(in_memory).insert((start, id));
                shard.pages.insert(id, Changes::new(start, in_memory));
                self.pages.fetch_add(usize::from(!in_memory), Ordering::Relaxed);
                0
            }
        };
        let changes = shard.pages.get_mut(&id).expect("there by now");
        debug_assert_eq!(changes.in_memory, in_memory, "{id}");
        how(changes);
        self.bytes.fetch_add(changes.bytes() - before, Ordering::Relaxed);
    }

    /// The page comes into memory, or leaves it.
    pub fn moved(&self, shard: &mut Shard, id: PageId, in_memory: bool) {
        let Some(changes) = shard.pages.get_mut(&id) else { return };
        debug_assert!(changes.in_memory != in_memory, "{id}");
        changes.in_memory = in_memory;
        let at = (changes.first, id);
        shard.by_first(!in_memory).remove(&at);
        shard.by_first(in_memory).insert(at);
        match in_memory {
            true => self.pages.fetch_sub(1, Ordering::Relaxed),
            false => self.pages.fetch_add(1, Ordering::Relaxed),
        };
    }

    pub fn shard(&self, id: PageId) -> MutexGuard<'_, Shard> {
        self.lock(ChangeBuffer::shard_no(id))
    }

    fn shard_no(id: PageId) -> usize {
        (id.hash() >> 40) as usize % SHARDS
    }

    fn lock(&self, no: usize) -> MutexGuard<'_, Shard> {
        lock_counted(&self.shards[no], LatchClass::ChangeBuffer.part(no))
    }

    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The oldest change that is not on its page bounds the checkpoint.
    pub fn oldest(&self) -> Option<Lsn> {
        // A change is in its shard before the checkpoint may pass its place in the log, so none is overlooked.
        (0..SHARDS).filter_map(|no| self.lock(no).oldest()).min()
    }

    /// The oldest change of pages in memory.
    pub fn oldest_in_memory(&self) -> Option<Lsn> {
        (0..SHARDS).filter_map(|no| Some(self.lock(no).in_memory.first()?.0)).min()
    }

    pub fn take(&self, shard: &mut Shard, id: PageId) -> Option<Changes> {
        let changes = shard.pages.remove(&id)?;
        shard.by_first(changes.in_memory).remove(&(changes.first, id));
        self.pages.fetch_sub(usize::from(!changes.in_memory), Ordering::Relaxed);
        self.changes.fetch_sub(changes.count, Ordering::Relaxed);
        self.bytes.fetch_sub(changes.bytes(), Ordering::Relaxed);
        Some(changes)
    }

    /// The page comes into memory, or begins a new life: what was known of its room no longer holds.
    pub fn forget_room(&self, id: PageId) {
        if let Some(rooms) = self.rooms.get() {
            rooms.forget(id);
        }
    }

    /// The page's records; what is left says only since when it is changed.
    pub fn take_records(&self, changes: &mut Changes) -> Vec<u8> {
        let before = changes.bytes();
        let records = std::mem::take(&mut changes.records);
        self.bytes.fetch_sub(before - changes.bytes(), Ordering::Relaxed);
        records
    }

    /// Gives the page its records back, if it has not been forgotten meanwhile.
    fn put_records(&self, shard: &mut Shard, id: PageId, records: Vec<u8>) {
        let Some(changes) = shard.pages.get_mut(&id) else { return };
        debug_assert!(changes.records.is_empty(), "{id}");
        changes.records = records;
        self.bytes.fetch_add(changes.records.capacity(), Ordering::Relaxed);
    }

    /// The page is in memory, but without its changes, which nobody will make. They bound the checkpoint until it is written.
    pub fn give_up(&self, id: PageId) {
        if self.bytes() == 0 {
            return;
        }
        let mut shard = self.shard(id);
        if let Some(changes) = shard.pages.get_mut(&id) {
            self.changes.fetch_sub(std::mem::take(&mut changes.count), Ordering::Relaxed);
            drop(self.take_records(changes));
            self.moved(&mut shard, id, true);
        }
    }

    fn forget_if(&self, id: PageId, suits: impl FnOnce(&Changes) -> bool) {
        if self.bytes() != 0 {
            let mut shard = self.shard(id);
            if shard.pages.get(&id).is_some_and(suits) {
                self.take(&mut shard, id);
            }
        }
    }

    /// The page's contents no longer matter, or are durable in its file.
    pub fn forget(&self, id: PageId) {
        self.forget_if(id, |_| true);
    }

    /// The page has become free with a mini-transaction that ends at `end`. Of one in memory nothing is forgotten: it is dirty, and what
    /// is noted of it bounds the checkpoint.
    pub fn forget_freed(&self, id: PageId, end: Lsn) {
        self.forget_if(id, |changes| {
            if !changes.in_memory {
                // Before they are gone: who no longer finds them sees this.
                self.freed.fetch_max(end.0, Ordering::AcqRel);
            }
            !changes.in_memory
        });
    }

    /// Up to where the log has to be durable for what was forgotten of free pages: a crash before that brings them back.
    pub fn freed_until(&self) -> Lsn {
        Lsn(self.freed.load(Ordering::Acquire))
    }

    /// The log has the page, which is in memory, whole, and nothing that began at `first` is needed any more.
    pub fn forget_first(&self, id: PageId, first: Lsn) {
        self.forget_if(id, |changes| changes.in_memory && changes.first == first);
    }

    /// What has changed the page since `first` is in the log once more, durable, from `start` on. Whether it is still needed.
    pub fn advance(&self, id: PageId, first: Lsn, start: Lsn) -> bool {
        let mut shard = self.shard(id);
        let Some(changes) = shard.pages.get_mut(&id).filter(|changes| changes.first == first) else { return false };
        changes.first = start;
        let in_memory = changes.in_memory;
        let by_first = shard.by_first(in_memory);
        by_first.remove(&(first, id));
        by_first.insert((start, id));
        true
    }

    /// Start of the first change of a page in memory that is not durable in its file, if there is a note of it here.
    pub fn first_of(&self, id: PageId) -> Option<Lsn> {
        self.shard(id).pages.get(&id).filter(|changes| changes.in_memory).map(|changes| changes.first)
    }

    /// The tablespace is gone.
    pub fn forget_space(&self, space: SpaceId) {
        for no in 0..SHARDS {
            let mut shard = self.lock(no);
            let gone: Vec<PageId> = shard.pages.keys().copied().filter(|id| id.space == space).collect();
            for id in gone {
                self.take(&mut shard, id);
            }
        }
    }

    /// Up to `max` pages of tablespaces that suit, whose first change is older than `limit`, of those in memory or of the others.
    pub fn old_pages(&self, limit: Lsn, max: usize, in_memory: bool, suits: impl Fn(SpaceId) -> bool) -> Vec<PageId> {
        let mut found: Vec<(Lsn, PageId)> = Vec::new();
        if self.bytes() == 0 {
            return Vec::new();
        }
        for no in 0..SHARDS {
            let mut shard = self.lock(no);
            let old = shard.by_first(in_memory).iter().take_while(|(first, _)| *first < limit);
            found.extend(old.filter(|(_, id)| suits(id.space)).take(max.div_ceil(8)));
        }
        found.sort_unstable();
        found.truncate(max);
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether a page of the tablespace has changes. Looks at all that have: not for hot paths.
    pub fn has_of(&self, space: SpaceId) -> bool {
        (0..SHARDS).any(|no| self.lock(no).pages.keys().any(|id| id.space == space))
    }

    /// Start of the first and end of the last change of the page.
    pub fn range_of(&self, id: PageId) -> Option<(Lsn, Lsn)> {
        self.shard(id).pages.get(&id).map(|changes| (changes.first, changes.last))
    }

    /// Whether there are changes of the page, and it is not in memory.
    pub fn contains(&self, id: PageId) -> bool {
        self.shard(id).pages.get(&id).is_some_and(|changes| !changes.in_memory)
    }
}

impl BufferPool {
    /// Most of the pool's memory that buffered changes may take, in percent; with 0 nothing is buffered any more.
    pub fn set_change_buffer(&self, percent: u32) {
        self.changes.percent.store(percent, Ordering::Relaxed);
    }

    /// Memory that changes may take from the pool's: as much as was set, and what in-memory tables may hold must be three
    /// quarters of the rest at most.
    pub(crate) fn change_buffer_bytes_max(&self) -> usize {
        let (size, percent) = (self.size(), self.changes.percent.load(Ordering::Relaxed) as usize);
        let spare = size.saturating_sub(self.memory_pages_set() * 4 / 3);
        (size * percent / 100).min(spare) * self.page_size()
    }

    /// Whether it is worth asking [`BufferPool::buffer_change`]: changes are buffered, and pages have left memory.
    #[inline]
    pub fn may_buffer_changes(&self) -> bool {
        self.changes.rooms.get().is_some() && self.changes.percent.load(Ordering::Relaxed) != 0
    }

    /// A clean page leaves memory; the caller holds its frame's X latch.
    pub(crate) fn note_room(&self, id: PageId, page: &[u8]) {
        if self.changes.percent.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(room) = self.redo_table().room(page[OFF_KIND], page) else { return };
        // As many pages as four pools' secondary indexes have, and more.
        let rooms = self.changes.rooms.get_or_init(|| Rooms::new(self.size() * 16));
        rooms.note(id, room);
    }

    /// Whether this page is not to be left unread, too: a slow stop has to read them all, and the cleaners have to before
    /// the log is full. The older the log's oldest change, the fewer pages are left. Who changes the others reads them, which
    /// slows the log's growth, lest all have to wait for room in it.
    pub(crate) fn owes_enough_pages(&self, id: PageId) -> bool {
        self.changes.pages() as u64 >= self.background.io_capacity_max.load(Ordering::Relaxed) * READ_SECONDS
            || id.hash() % 256 < self.hurry()
    }

    /// The right to buffer a change that takes at most `takes` bytes of the page's room, or gives it at most `gives`; `None`
    /// if the page is in memory, of a dropped tablespace or may not have that room, if it could become nearly empty (whoever
    /// reads it can merge it with another), or if too much is buffered already.
    pub fn buffer_change(&self, id: PageId, takes: usize, gives: usize) -> Option<BufferedChange<'_>> {
        // (A page that recovery has still to redo has not been in memory, so its room is not known.)
        let buffer = &self.changes;
        if buffer.bytes() >= self.change_buffer_bytes_max() {
            return None;
        }
        let shard = buffer.shard(id);
        // Under the lock: whoever brings the page in, forgets the changes of a dropped tablespace, or gives up one of which there are
        // none, comes to it after this. (What cannot be written or read is not to gather more changes unseen.)
        if self.is_resident(id)
            || self.spaces().was_dropped(id.space)
            || self.spaces().has_missed(id.space)
            || self.failing.hinders(id.space)
        {
            return None;
        }
        let (room, given) = match shard.pages.get(&id) {
            Some(changes) => (changes.room, changes.given),
            None if self.owes_enough_pages(id) => return None,
            None => (buffer.rooms.get()?.get(id), 0),
        };
        if room == 0 || gives > 0 && room + given + gives > self.page_size() / 4 * 3 {
            return None;
        }
        let room = room.checked_sub(takes)?;
        Some(BufferedChange { buffer, shard, id, room, given: given + gives })
    }

    /// Makes the buffered changes of a page that has just been read; whether there were any. The caller holds its frame's X
    /// latch; recovery has nothing left for the page. `restored`: the page came from the doublewrite file.
    pub(crate) fn merge_changes(&self, id: PageId, at: u32, bytes: &mut [u8], restored: bool) -> Result<bool> {
        // The shard is not locked meanwhile: whose page is in memory, and latched, nobody else asks for its records.
        let (records, last) = {
            let mut shard = self.changes.shard(id);
            let Some(changes) = shard.pages.get_mut(&id) else { return Ok(false) };
            let taken = (self.changes.take_records(changes), changes.last);
            self.changes.moved(&mut shard, id, true);
            taken
        };
        if let Err(error) = self.make_changes(id, bytes, &records, restored) {
            let mut shard = self.changes.shard(id);
            self.changes.put_records(&mut shard, id, records);
            self.changes.moved(&mut shard, id, false);
            return Err(error);
        }
        set_page_lsn(bytes, last);
        // What there is of the page bounds the checkpoint until it is written: no place for old changes has to be found on the list.
        self.mark_dirty(at, if restored { self.background.last_checkpoint() } else { self.log().end_lsn() });
        let mut shard = self.changes.shard(id);
        let Some(changes) = shard.pages.get_mut(&id) else { return Ok(true) };
        self.counters.add(Counter::Merges);
        self.counters.add_many(Counter::ChangesMerged, changes.count);
        self.changes.changes.fetch_sub(std::mem::take(&mut changes.count), Ordering::Relaxed);
        if !restored && self.keeps_merged(id, bytes[OFF_KIND], changes.first, records.len()) {
            self.frames().get(at).set_kept(true);
            self.changes.put_records(&mut shard, id, records);
        }
        Ok(true)
    }

    /// Makes the changes of these records on their page.
    fn make_changes(&self, id: PageId, bytes: &mut [u8], records: &[u8], restored: bool) -> Result<()> {
        let mut page = self.redo_table().changes_of(id, bytes, !restored);
        let done = changes(records).try_for_each(|change| change.and_then(|(op, payload)| page.redo(op, payload)));
        done.map_err(|error| Error::corrupt(id, format!("a buffered change cannot be made: {error}")))
    }

    /// Reads up to `max` pages whose first buffered change is older than `limit`, which makes their changes. Returns how many
    /// are settled: 0 when there are none, or none of those tried can be read for now.
    pub(crate) fn merge_old(&self, limit: Lsn, max: usize) -> usize {
        if self.changes.pages() == 0 {
            return 0;
        }
        self.merge_pages(&self.old_away(limit, max))
    }

    /// Up to `max` pages that are to be read because of their changes, where those in memory changed before `limit` are to be written;
    /// in the order of the files.
    fn old_away(&self, limit: Lsn, max: usize) -> Vec<PageId> {
        let mut ids = self.changes.old_pages(self.fetch_limit(limit), max, false, |space| !self.failing.hinders(space));
        ids.sort_unstable();
        // When all is to be written, that says nothing of how it would have gone on.
        if limit != Lsn(u64::MAX) {
            ids.iter().for_each(|&id| self.note_fetched(id));
        }
        ids
    }

    /// As [`BufferPool::merge_old`], by a cleaner: after a try of which nothing came it is left for a while, or the cleaner,
    /// which does not sleep while the log is old, would do nothing but read what cannot be read.
    pub(crate) fn merge_in_turn(&self, limit: Lsn) -> usize {
        if self.changes.pages() == 0 || Instant::now() < *self.background.merge_again.lock() {
            return 0;
        }
        let ids = self.old_away(limit, CLEANER_PAGES);
        let settled = self.merge_pages(&ids);
        // Those of files that cannot be read are left alone from now on.
        if settled == 0 && ids.iter().any(|id| !self.failing.hinders(id.space)) {
            *self.background.merge_again.lock() = Instant::now() + IDLE;
        }
        settled
    }

    /// As [`BufferPool::merge_old`], these pages.
    fn merge_pages(&self, ids: &[PageId]) -> usize {
        self.load_batch(ids, USAGE_UNWANTED);
        for &id in ids {
            if !self.changes.contains(id) {
                continue;
            }
            match self.fix_shared(id).map(|_| ()) {
                // Perhaps since it was tried.
                Err(_) if self.spaces().was_dropped(id.space) => self.changes.forget(id),
                Err(Error::CorruptPage { page, .. }) if page == id && self.changes.contains(id) => {
                    if let Ok(Some(error)) = self.lose_page(id) {
                        let text = format!("buffered changes of {id} cannot be made, the page cannot be used: {error}");
                        self.report(Level::Error, &text);
                    }
                }
                // The file was there when the page left memory: as of changed pages in memory nothing is lost.
                Err(
                    error @ (Error::TablespaceUnavailable { .. }
                    | Error::Io { .. }
                    | Error::CorruptPage { .. }
                    | Error::CorruptFile { .. }
                    | Error::Format { .. }),
                ) if self.changes.contains(id) => {
                    self.failing.note_unreadable(id.space);
                    let text = || format!("buffered changes of {id} cannot be made yet, the log keeps them: {error}");
                    self.background.report_rarely(self, text);
                }
                _ => {}
            }
        }
        ids.iter().filter(|&&id| !self.changes.contains(id)).count()
    }

    /// Makes all changes buffered before `limit`, but for those of pages that cannot be read. Reports progress when it takes
    /// long.
    pub(crate) fn merge_all(&self, limit: Lsn) {
        let mut last_report = Instant::now();
        while self.changes.pages() != 0 {
            let mut settled = 0;
            // All, however many of the oldest cannot be read; in the order of the files, as neighbours are read with one request.
            let mut ids = self.changes.old_pages(limit, usize::MAX, false, |_| true);
            ids.sort_unstable();
            for ids in ids.chunks(MERGE_PAGES) {
                settled += self.merge_pages(ids);
                if last_report.elapsed() >= Duration::from_secs(5) {
                    last_report = Instant::now();
                    let left = self.changes.pages();
                    self.report(Level::Info, &format!("checkpoint: {left} pages with buffered changes left to read"));
                }
            }
            if settled == 0 {
                return;
            }
        }
    }
}

impl<'p> Mtr<'p> {
    /// As [`Mtr::commit`], with a change of a page that is not in memory: operation and payload as for [`Mtr::apply`].
    ///
    /// # Errors
    /// As [`Mtr::commit`].
    pub fn commit_buffering(mut self, change: BufferedChange<'_>, op: u8, payload: &[u8]) -> Result<Lsn> {
        self.record_of(change.id(), op, &[payload]);
        let pool = self.pool();
        let done = self.commit_and(|start, end| change.add(start, end, op, payload));
        pool.counters.add(Counter::ChangesBuffered);
        if pool.wants_other_frames() {
            pool.background.wake_provider();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::random::Random;
    use myriad_base::PageNo;
    use std::collections::BTreeMap;

    fn page(n: u32) -> PageId {
        PageId::new(SpaceId(7), PageNo(n))
    }

    fn add(buffer: &ChangeBuffer, id: PageId, start: u64) {
        let change = BufferedChange { buffer, shard: buffer.shard(id), id, room: 100, given: 0 };
        change.add(Lsn(start), Lsn(start + 5), 20, b"payload");
    }

    #[test]
    fn rooms_are_exact_or_unknown() {
        let rooms = Rooms::new(1000);
        for n in 0..200_000 {
            rooms.note(page(n), 1 + n as usize % 9000);
        }
        let known = (0..200_000).filter(|&n| rooms.get(page(n)) != 0);
        let mut count = 0;
        for n in known {
            assert_eq!(rooms.get(page(n)), 1 + n as usize % 9000);
            rooms.forget(page(n));
            assert_eq!(rooms.get(page(n)), 0);
            count += 1;
        }
        assert!(count > 40_000, "{count} of 65,536 places");
        assert_eq!(rooms.get(PageId::new(SpaceId(8), PageNo(3))), 0);
    }

    #[test]
    fn oldest_change_is_found_whatever_the_order() {
        let buffer = ChangeBuffer::new(10);
        for (n, start) in [(1, 500), (2, 300), (3, 400), (1, 600), (2, 700)] {
            add(&buffer, page(n), start);
        }
        assert_eq!((buffer.oldest(), buffer.pages()), (Some(Lsn(300)), 3));
        assert_eq!(buffer.old_pages(Lsn(450), 9, false, |_| true), [page(2), page(3)]);
        buffer.forget(page(2));
        assert_eq!(buffer.oldest(), Some(Lsn(400)));
        add(&buffer, page(2), 800);
        buffer.forget(page(3));
        assert_eq!(buffer.oldest(), Some(Lsn(500)));
        buffer.forget_space(SpaceId(7));
        assert_eq!((buffer.oldest(), buffer.pages(), buffer.bytes()), (None, 0, 0));
    }

    /// Several pages in each shard, in another order than in the log.
    #[test]
    fn oldest_change_is_found_among_many_pages() {
        let (buffer, mut random, mut left) = (ChangeBuffer::new(10), Random::from_seed(1), BTreeMap::new());
        for n in 0..1000 {
            // Each its own.
            let start = random.below(1 << 20) * 1000 + u64::from(n);
            add(&buffer, page(n), start);
            left.insert(start, page(n));
        }
        while let Some((start, id)) = left.pop_first() {
            assert_eq!(buffer.oldest(), Some(Lsn(start)));
            assert_eq!(buffer.old_pages(Lsn(start + 1), 9, false, |_| true), [id]);
            buffer.forget(id);
        }
        assert_eq!(buffer.oldest(), None);
    }
}
