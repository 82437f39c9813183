//! Pages that leave memory unwritten: their changes stay in the change buffer.
//!
//! Where data are larger than memory a page is often written for the sake of one small change, and wanted again before the log
//! needs its room. So the records of what is changed on a page that was as its file has it are kept beside it
//! ([`BufferPool::keep_changes`]), as long as they are few. When the page provider comes for it they stay and it goes, unwritten; when
//! it is read again they are made again, as those of any page in the change buffer, and go on being kept. A page is written when
//! its changes have become many or old, and then once for all of them.
//!
//! Rules:
//!
//! - What is kept of a page in memory is all of what makes it dirty, or nothing. Its frame has the mark KEPT then. It ends when the
//!   page is copied to be written; from then on, until the write is durable, only since when the page is changed is noted.
//! - What is kept bounds the checkpoint as every buffered change does, also while the page is in memory, until it is written. It is
//!   noted before the mini-transaction lets the page go, and so before the page can go from the dirty list: who looks for the oldest
//!   change looks at these lists first.
//! - Only while pages with changes have to make room, only leaves and inner pages of indexes, only while it pays: [`Kept`].

use crate::change_buffer::Changes;
use crate::frame::Frame;
use crate::ops::{replaces_page, Records};
use crate::pool::BufferPool;
use crate::stats::Counter;
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{Lsn, PageId, SpaceId};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Part of a page that the records kept of it may take.
const PAGE_PART: usize = 8;
/// Changes are kept until the log has grown by this part of its capacity without a dirty victim.
const LOG_PART: u64 = 16;
/// Of pages that do not pay one in so many leaves all the same, to see whether that has changed.
const SAMPLED: u64 = 16;
/// Outcomes from which on they count, and beyond which they are halved.
const OUTCOMES: std::ops::Range<u64> = 256..8192;

#[derive(Default)]
pub(crate) struct Kept {
    /// Changes are kept while the log's end is below.
    until: AtomicU64,
    /// How many want victims to be written now.
    refused: AtomicUsize,
    /// Good: a page left unwritten whose changes had been kept. Bad: they were kept for nothing.
    keeping: Outcomes,
    /// Good: a page that had left unwritten was changed again, which saved a write. Bad: it had to be read for nothing but its changes.
    leaving: Outcomes,
}

/// How something went lately.
#[derive(Default)]
struct Outcomes {
    good: AtomicU64,
    bad: AtomicU64,
}

impl Outcomes {
    fn note(&self, good: bool) {
        let outcome = if good { &self.good } else { &self.bad };
        outcome.fetch_add(1, Ordering::Relaxed);
        let (good, bad) = (self.good.load(Ordering::Relaxed), self.bad.load(Ordering::Relaxed));
        if good + bad >= OUTCOMES.end {
            // Should two do it at a time, much is forgotten: no harm.
            self.good.store(good / 2, Ordering::Relaxed);
            self.bad.store(bad / 2, Ordering::Relaxed);
        }
    }

    /// Whether it is worth while with this page: there is at least a good outcome for so many bad ones, or nobody knows, or it is one of
    /// those by which that is seen.
    fn pay(&self, id: PageId, bad_for_good: u64) -> bool {
        let (good, bad) = (self.good.load(Ordering::Relaxed), self.bad.load(Ordering::Relaxed));
        good * bad_for_good >= bad || good + bad < OUTCOMES.start || id.hash().is_multiple_of(SAMPLED)
    }
}

impl Kept {
    /// To keep changes costs little beside the write that it may save.
    fn pays_to_keep(&self, id: PageId) -> bool {
        self.keeping.pay(id, 4)
    }

    /// A page fetched costs a read, one changed again saved a write and its copy in the doublewrite file.
    fn pays_to_leave(&self, id: PageId) -> bool {
        self.leaving.pay(id, 1)
    }
}

/// While it lasts no page leaves unwritten.
pub(crate) struct AllWritten<'p>(&'p Kept);

impl Drop for AllWritten<'_> {
    fn drop(&mut self) {
        self.0.refused.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BufferPool {
    /// Victims are to be written while this is held: everything is to reach its file.
    pub(crate) fn write_all_victims(&self) -> AllWritten<'_> {
        // Who looks at the change buffer from here on sees all pages that have left unwritten: `leave` asks under a lock of it.
        self.changes.kept.refused.fetch_add(1, Ordering::SeqCst);
        AllWritten(&self.changes.kept)
    }

    /// A page with changes is to make room.
    pub(crate) fn note_dirty_victim(&self) {
        let until = self.log().end_lsn().0 + self.log().capacity() / LOG_PART;
        self.changes.kept.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether changes of pages in memory are kept: dirty pages have had to make room lately, and there is memory for more. Not all of the
    /// change buffer's, as changes of pages that need not be read save more.
    fn keeps(&self) -> bool {
        self.log().end_lsn().0 < self.changes.kept.until.load(Ordering::Relaxed)
            && !self.log().is_off()
            && self.changes.bytes() < self.change_buffer_bytes_max() / 4 * 3
    }

    fn kept_bytes_max(&self) -> usize {
        self.page_size() / PAGE_PART
    }

    /// Whether pages of this tablespace and kind may leave unwritten.
    fn may_leave(&self, id: PageId, kind: u8) -> bool {
        kind == PageKind::Index as u8 && !id.is_in_memory() && id.space != SpaceId::SYSTEM && id.space != SpaceId::UNDO
    }

    /// A mini-transaction, logged from `start` to `end`, changed the frame's page, which before it was as its file has it if `first`.
    /// The caller holds the X latch.
    #[inline]
    pub(crate) fn keep_changes(&self, at: u32, first: bool, start: Lsn, end: Lsn, body: &[u8]) {
        if first || self.frames().get(at).is_kept() {
            self.keep_records(at, first, start, end, body);
        }
    }

    fn keep_records(&self, at: u32, first: bool, start: Lsn, end: Lsn, body: &[u8]) {
        let frame = self.frames().get(at);
        // SAFETY: the caller holds the frame's X latch and lends the page to nobody.
        let (id, kind) = (frame.page(), unsafe { self.frames().bytes(at) }[OFF_KIND]);
        let (max, may) = (self.kept_bytes_max(), self.keeps() && self.may_leave(id, kind));
        if !may && !frame.is_kept() {
            return;
        }
        let mut shard = self.changes.shard(id);
        let mut bytes = match first {
            true => 0,
            false => shard.get(id).filter(|c| c.in_memory).map_or(usize::MAX, Changes::record_bytes),
        };
        let keeps = may
            && (!first || self.changes.kept.pays_to_keep(id))
            && body.len() <= 2 * max
            && records_of(body, id).all(|(op, payload)| {
                bytes = bytes.saturating_add(payload.len() + 4);
                !replaces_page(op) && bytes <= max
            });
        if !keeps {
            self.stop_keeping(frame);
            // What is left bounds the checkpoint until the page is written: its place on the dirty list may be that of a newer change.
            if let Some(changes) = shard.get_mut(id) {
                drop(self.changes.take_records(changes));
            }
            return;
        }
        if first {
            // Of a page that was as its file has it nothing is kept.
            self.changes.take(&mut shard, id);
            frame.set_kept(true);
        }
        self.changes.change(&mut shard, id, start, true, |changes| {
            changes.last = end;
            records_of(body, id).for_each(|(op, payload)| changes.push(op, payload));
            if std::mem::take(&mut changes.left) {
                self.changes.kept.leaving.note(true);
            }
        });
    }

    /// The changes kept of the page, if there are any, are not all of them any more, or soon will not be.
    pub(crate) fn stop_keeping(&self, frame: &Frame) {
        if frame.is_kept() {
            frame.set_kept(false);
            self.changes.kept.keeping.note(false);
        }
    }

    /// Whether the changes just made on a page that was read go on being kept.
    pub(crate) fn keeps_merged(&self, id: PageId, kind: u8, first: Lsn, bytes: usize) -> bool {
        bytes <= self.kept_bytes_max()
            && self.keeps()
            && self.changes.kept.pays_to_keep(id)
            && first >= self.early_limit()
            && self.may_leave(id, kind)
            && self.changes.kept.refused.load(Ordering::SeqCst) == 0
    }

    /// A cleaner reads the page because of its changes.
    pub(crate) fn note_fetched(&self, id: PageId) {
        let mut shard = self.changes.shard(id);
        if shard.get_mut(id).is_some_and(|changes| std::mem::take(&mut changes.left)) {
            self.changes.kept.leaving.note(false);
        }
    }

    /// Takes a page with changes that are kept out of its frame, if it is cold and not latched. Returns whether that worked.
    pub(crate) fn try_evict_unwritten(&self, at: u32) -> bool {
        let frame = self.frames().get(at);
        // Asked again with the latch: not to take it for nothing.
        if !frame.is_kept() || self.log().is_off() {
            return false;
        }
        let gone = self.evict_if(at, |id| frame.is_kept() && self.leave(at, id));
        self.counters.add_many(Counter::EvictedUnwritten, u64::from(gone));
        gone
    }

    /// The page's changes become those of one that is not in memory, if they may. The caller holds the frame's X latch and takes the
    /// page out of it then.
    fn leave(&self, at: u32, id: PageId) -> bool {
        // SAFETY: the caller holds the frame's X latch, and nobody is lent the page meanwhile.
        let bytes = unsafe { self.frames().bytes(at) };
        if !self.may_leave(id, bytes[OFF_KIND]) || self.owes_enough_pages(id) || !self.changes.kept.pays_to_leave(id) {
            return false;
        }
        let mut shard = self.changes.shard(id);
        // Under the lock, as when a change is buffered; and as who wants everything written looks at this shard after he has said so.
        // (Pages that cannot be written stay, so that they are counted: how many there may be is bounded.)
        if self.changes.kept.refused.load(Ordering::SeqCst) != 0
            || self.changes.bytes() > self.change_buffer_bytes_max()
            || self.failing.hinders(id.space)
            || self.spaces().was_dropped(id.space)
            || self.spaces().has_missed(id.space)
        {
            return false;
        }
        let early = self.early_limit();
        let Some(changes) = shard.get_mut(id).filter(|c| c.in_memory && c.first >= early) else { return false };
        if !self.shard_of(at).dirty().leave(self.frames(), at) {
            return false;
        }
        changes.left = true;
        changes.room = self.redo_table().room(bytes[OFF_KIND], bytes).unwrap_or(0);
        changes.given = 0;
        self.changes.moved(&mut shard, id, false);
        self.frames().get(at).set_kept(false);
        self.changes.kept.keeping.note(true);
        true
    }
}

/// The records of a page in a mini-transaction's body.
fn records_of(body: &[u8], id: PageId) -> impl Iterator<Item = (u8, &[u8])> {
    let of_page = Records::new(body).map(|r| r.expect("as the mini-transaction wrote it")).filter(move |r| r.id == id);
    of_page.map(|r| (r.op, &body[r.payload]))
}

/// One page that is changed, leaves, is read again and written while somebody looks for the oldest change: the steps of this file with
/// the dirty list itself.
#[cfg(all(test, loom))]
mod loom_tests {
    use crate::frame::{Frames, STATE_WRITING};
    use crate::shard::DirtyList;
    use crate::sync::AtomicU64;
    use loom::sync::{Arc, Mutex, RwLock};
    use loom::thread;
    use myriad_base::Lsn;
    use std::sync::atomic::Ordering;

    /// What the change buffer has of the page.
    #[derive(Default)]
    struct Noted {
        first: Option<u64>,
        in_memory: bool,
    }

    /// The page, the file and the log say how many changes they have. A change's LSN is its number.
    struct Shared {
        frames: Frames,
        list: Mutex<DirtyList>,
        noted: Mutex<Noted>,
        /// In place of the frame's latch; none while the page is not in memory.
        page: RwLock<Option<u64>>,
        file: AtomicU64,
        /// A lock, as loom explores orders of locks: of loads it would only look at what they may see.
        logged: Mutex<u64>,
        /// The record that stands for changes, and since when, if there is one.
        carried: Mutex<Option<(u64, u64)>>,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                frames: Frames::new(1, 1, 4096).unwrap(),
                list: Mutex::new(DirtyList::EMPTY),
                noted: Mutex::default(),
                page: RwLock::new(Some(0)),
                file: AtomicU64::new(0),
                logged: Mutex::new(0),
                carried: Mutex::new(None),
            })
        }

        fn mark(&self, lsn: u64) -> bool {
            self.frames.get(0).is_mark_needed() && self.list.lock().unwrap().mark(&self.frames, 0, Lsn(lsn))
        }

        fn change(&self) {
            let mut page = self.page.write().unwrap();
            let logged = *self.logged.lock().unwrap();
            if page.is_none() {
                // Read again, with its changes made, and at the tail of the list.
                self.noted.lock().unwrap().in_memory = true;
                self.mark(logged);
                self.frames.get(0).set_kept(true);
            }
            let changed = logged + 1;
            *page = Some(changed);
            let first = self.mark(changed);
            *self.logged.lock().unwrap() = changed;
            if first {
                *self.noted.lock().unwrap() = Noted { first: Some(changed), in_memory: true };
                self.frames.get(0).set_kept(true);
            }
        }

        fn leave(&self) {
            let mut page = self.page.write().unwrap();
            if page.is_none() || !self.frames.get(0).is_kept() {
                return;
            }
            let mut noted = self.noted.lock().unwrap();
            if noted.in_memory && self.list.lock().unwrap().leave(&self.frames, 0) {
                noted.in_memory = false;
                self.frames.get(0).set_kept(false);
                *page = None;
            }
        }

        fn write(&self) {
            let frame = self.frames.get(0);
            let copy = {
                let page = self.page.read().unwrap();
                let Some(copy) = *page else { return };
                if !frame.begin_write() {
                    return;
                }
                if !frame.is_dirty() {
                    frame.state.fetch_and(!STATE_WRITING, Ordering::Release);
                    return;
                }
                frame.set_kept(false);
                copy
            };
            self.file.store(copy, Ordering::Release);
            *self.noted.lock().unwrap() = Noted::default();
            self.list.lock().unwrap().written(&self.frames, 0, true);
        }

        /// As `BufferPool::carry_changes`.
        fn carry(&self) {
            let (first, start) = {
                let noted = self.noted.lock().unwrap();
                let (Some(first), false) = (noted.first, noted.in_memory) else { return };
                let mut logged = self.logged.lock().unwrap();
                *logged += 1;
                let mut carried = self.carried.lock().unwrap();
                // One that stands for another stands for what that one does.
                let since = carried.filter(|&(_, at)| at == first).map_or(first, |(since, _)| since);
                *carried = Some((since, *logged));
                (first, *logged)
            };
            let mut noted = self.noted.lock().unwrap();
            if noted.first == Some(first) {
                noted.first = Some(start);
            }
        }

        /// A checkpoint needs every change that the file has not, as it was logged or as it was carried forward.
        fn check(&self) {
            let logged = *self.logged.lock().unwrap();
            let on_list = self.list.lock().unwrap().oldest(&self.frames).map(|lsn| lsn.0);
            let noted = self.noted.lock().unwrap().first;
            let file = self.file.load(Ordering::Acquire);
            let carried = *self.carried.lock().unwrap();
            let oldest = [on_list, noted].into_iter().flatten().min();
            let has_all =
                |oldest| oldest <= file + 1 || carried.is_some_and(|(since, at)| since <= file + 1 && oldest <= at);
            assert!(
                logged <= file || oldest.is_some_and(has_all),
                "{logged}, {file} in the file: {oldest:?}, {carried:?}"
            );
        }
    }

    fn explore(preemptions: Option<usize>, before: &'static [fn(&Shared)], theirs: &'static [fn(&Shared)]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let shared = Shared::new();
            before.iter().for_each(|step| step(&shared));
            let run = |run: &'static fn(&Shared)| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&shared))
            };
            let running: Vec<_> = theirs.iter().map(run).collect();
            shared.check();
            running.into_iter().for_each(|t| t.join().unwrap());
            shared.check();
        });
    }

    fn change_twice(shared: &Shared) {
        (0..2).for_each(|_| shared.change());
    }

    fn change_and_leave(shared: &Shared) {
        shared.change();
        shared.leave();
    }

    fn leave_twice(shared: &Shared) {
        (0..2).for_each(|_| shared.leave());
    }

    #[test]
    fn loom_what_leaves_unwritten_is_not_before_the_checkpoint() {
        explore(None, &[], &[Shared::change, Shared::leave]);
        explore(Some(3), &[], &[change_twice, leave_twice]);
        explore(Some(3), &[], &[Shared::change, Shared::leave, Shared::write]);
        // Read again it is marked as changed later than it is.
        explore(Some(3), &[change_twice, Shared::leave], &[Shared::change, Shared::write]);
        explore(Some(3), &[change_twice, Shared::leave, Shared::change], &[Shared::leave, Shared::write]);
        // While it is carried forward it is read again, changed, leaves once more or is written.
        explore(Some(3), &[change_twice, Shared::leave], &[Shared::carry, Shared::change, Shared::write]);
        explore(Some(3), &[change_twice, Shared::leave], &[Shared::carry, change_and_leave]);
        explore(
            Some(3),
            &[change_twice, Shared::leave, Shared::carry],
            &[Shared::carry, change_and_leave, Shared::write],
        );
    }
}
