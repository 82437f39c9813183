//! The undo tablespace: its directory, slots and free pages.
//!
//! A slot is a chain of pages that holds the logs of successive transactions one after the other. Its tail belongs to one
//! transaction at a time (or waits in the free stack), its head to purge. Latch order here: directory pages, then undo
//! pages from the head of a chain to its tail.

use super::page::{self, undo_page};
use super::record::{self, LogState};
use super::shrink::Shrinking;
use crossbeam_utils::CachePadded;
use myriad_base::codec::{get_u32, get_u64};
use myriad_base::latch::{lock_counted, thread_no, LatchClass};
use myriad_base::page::PageKind;
use myriad_base::{Error, Lsn, PageId, PageNo, Result, RollPtr, SpaceId, TrxId};
use myriad_buffer::{BufferPool, Level, Mtr, PageRef, Reporter, SharedPage};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub(super) const FREE_LISTS: usize = 16;

/// The writing end of a slot.
#[derive(Clone)]
pub struct Tail {
    /// The slot.
    pub slot: u32,
    /// Its other end.
    pub purge: Arc<PurgeSlot>,
    /// Its last page; `PageNo::NONE` before the first.
    pub page: PageNo,
    /// End of the records there.
    pub end: usize,
}

/// A transaction's undo log.
#[derive(Clone)]
pub struct UndoLog {
    /// Where it goes on.
    pub tail: Tail,
    /// Its transaction.
    pub trx: TrxId,
    /// Its header; none before the first record.
    pub header: RollPtr,
    /// Records of changes it holds.
    pub records: u64,
    /// Its xid record, if it was prepared.
    pub xid: RollPtr,
}

/// Where purge stands in a slot.
#[derive(Clone, Copy, Debug)]
pub struct PurgePosition {
    /// The chain's head; `PageNo::NONE` until the slot has a page.
    pub page: PageNo,
    /// Offset of the next record.
    pub offset: usize,
    /// The log that position is in.
    pub log: Option<TrxId>,
    /// The transaction at whose log purge stopped last, as it had not ended or a snapshot needed it: while that is so its page
    /// need not be looked at.
    pub blocked_by: Option<TrxId>,
    /// Purge has not passed all ended logs of the slot since start: [`PurgeSlot::pending`] does not count all of them yet.
    pub catching_up: bool,
    /// When purge's threads try it again, after a failure; zero if there was none.
    pub again: Duration,
}

impl PurgePosition {
    /// Of a slot that has no page.
    pub(crate) fn without_page() -> PurgePosition {
        PurgePosition {
            page: PageNo::NONE,
            offset: page::BODY,
            log: None,
            blocked_by: None,
            catching_up: false,
            again: Duration::ZERO,
        }
    }
}

/// Purge's end of a slot.
pub struct PurgeSlot {
    /// The slot.
    pub no: u32,
    /// Finished logs not yet purged.
    pub pending: AtomicU64,
    /// Where purge stands.
    pub position: Mutex<PurgePosition>,
}

/// A transaction that had not ended when the engine stopped.
pub struct Unfinished {
    /// Its log.
    pub log: UndoLog,
    /// Its id if it was prepared.
    pub xid: Option<Vec<u8>>,
}

/// A slot that is set aside because a page of it cannot be read: nobody writes to it, and purge leaves it alone.
pub struct Unreadable {
    pub slot: u32,
    /// The last transaction that wrote to it, where that can be read.
    pub trx: Option<TrxId>,
    /// Why.
    pub error: Error,
}

/// What [`UndoSpace::open`] finds.
pub struct Opened {
    pub space: UndoSpace,
    /// Transaction ids below may have been given out.
    pub limit: TrxId,
    pub unfinished: Vec<Unfinished>,
    pub unreadable: Vec<Unreadable>,
}

/// See the module.
pub struct UndoSpace {
    pub(super) pool: Arc<BufferPool>,
    pub(super) report: Reporter,
    /// The free page that could not be read when one was wanted last; [`PageNo::NONE`] if none.
    unreadable_free: AtomicU32,
    /// Slots without a transaction, each in the list of the thread that used it last.
    free: [CachePadded<Mutex<Vec<Tail>>>; FREE_LISTS],
    slots: RwLock<Vec<Arc<PurgeSlot>>>,
    /// How many; every commit looks at it, without the lock.
    slot_count: CachePadded<AtomicUsize>,
    pub(super) pages_in_use: AtomicU64,
    has_set_aside: bool,
    pub(super) shrinking: Mutex<Shrinking>,
}

/// Formats the directory of a new undo tablespace.
pub fn create(pool: &BufferPool) -> Result<()> {
    pool.spaces().get(SpaceId::UNDO)?.ensure_pages(page::FIRST)?;
    let mut mtr = Mtr::start(pool)?;
    for no in 1..page::FIRST {
        let p = mtr.init(undo_page(PageNo(no)), PageKind::UndoDirectory)?;
        if no == 1 {
            mtr.write(p, page::DIR_MAGIC, &page::MAGIC);
            mtr.write(p, page::DIR_TRX_LIMIT, &1u64.to_le_bytes());
            mtr.write(p, page::DIR_HIGH_WATER, &page::FIRST.to_le_bytes());
            mtr.write(p, page::DIR_FREE_HEAD, &PageNo::NONE.0.to_le_bytes());
        }
    }
    mtr.commit()?;
    Ok(())
}

/// The directory's first page.
pub const FIRST_PAGE: PageId = page::DIRECTORY;

/// Where the log's generation began in which the engine last ran, as a copy of [`FIRST_PAGE`] tells; `None` if earlier versions
/// alone have written it.
pub fn noted_run(directory: &[u8]) -> Option<Lsn> {
    Some(Lsn(get_u64(directory, page::DIR_RUN))).filter(|run| run.0 != 0)
}

/// Notes where the log's generation began in which the engine runs now. Whatever this generation logs comes later: so a directory
/// in whose file this note is missing is older than a checkpoint that was taken in it.
pub fn note_run(pool: &BufferPool, run: Lsn) -> Result<()> {
    let mut mtr = Mtr::start(pool)?;
    let dir = mtr.fix(page::DIRECTORY)?;
    mtr.write(dir, page::DIR_RUN, &run.0.to_le_bytes());
    mtr.commit()?;
    Ok(())
}

/// Pages from the file's begin that have been formatted. They lie in the file and hold something, those in the free list, too.
pub fn pages_formatted(pool: &BufferPool) -> Result<u32> {
    Ok(get_u32(&pool.fix_shared(page::DIRECTORY)?, page::DIR_HIGH_WATER))
}

impl UndoSpace {
    /// Reads the directory and each slot's tail. A slot that cannot be read is no error: the caller decides what that means.
    pub fn open(pool: Arc<BufferPool>, report: Reporter) -> Result<Opened> {
        let dir = pool.fix_shared(page::DIRECTORY)?;
        if dir[page::DIR_MAGIC..page::DIR_MAGIC + 8] != page::MAGIC {
            return Err(Error::corrupt(page::DIRECTORY, "it is not an undo directory"));
        }
        let limit = TrxId(get_u64(&dir, page::DIR_TRX_LIMIT));
        let slots = get_u32(&dir, page::DIR_SLOT_COUNT);
        let used = get_u32(&dir, page::DIR_HIGH_WATER).saturating_sub(get_u32(&dir, page::DIR_FREE_COUNT));
        drop(dir);
        if !(1..1 << 48).contains(&limit.0) {
            return Err(Error::corrupt(page::DIRECTORY, format!("transactions below {limit}")));
        }
        let chains = chains(&pool, slots)?;
        let mut space = UndoSpace {
            pool,
            report,
            unreadable_free: AtomicU32::new(PageNo::NONE.0),
            free: Default::default(),
            slots: RwLock::default(),
            slot_count: CachePadded::default(),
            pages_in_use: AtomicU64::new(used.into()),
            has_set_aside: false,
            shrinking: Mutex::default(),
        };
        let (mut unfinished, mut unreadable) = (Vec::new(), Vec::new());
        for (no, (head, tail)) in (0..).zip(chains) {
            let position = PurgePosition { page: head, catching_up: true, ..PurgePosition::without_page() };
            let pending = AtomicU64::new(u64::from(head != PageNo::NONE));
            let purge = Arc::new(PurgeSlot { no, pending, position: Mutex::new(position) });
            space.add_slot(&purge);
            let mut tail = Tail { slot: no, purge, page: tail, end: 0 };
            let mut trx = None;
            match space.open_slot(&mut tail, head, &mut trx) {
                Ok(Some(u)) => unfinished.push(u),
                Ok(None) => space.release(tail),
                Err(error) if is_unreadable(&error) => {
                    // For purge there is nothing in it.
                    tail.purge.pending.store(0, Ordering::Relaxed);
                    unreadable.push(Unreadable { slot: no, trx, error });
                }
                Err(error) => return Err(error),
            }
            if let Some(trx) = trx.filter(|&trx| trx >= limit) {
                let text = format!("transactions below {limit}, but undo slot {no} has {trx}");
                return Err(Error::corrupt(page::DIRECTORY, text));
            }
        }
        space.has_set_aside = !unreadable.is_empty();
        Ok(Opened { space, limit, unfinished, unreadable })
    }

    /// Completes the tail from its page; what was unfinished there. `last_trx` becomes the last transaction that wrote there, as
    /// soon as it is known.
    fn open_slot(&self, tail: &mut Tail, head: PageNo, last_trx: &mut Option<TrxId>) -> Result<Option<Unfinished>> {
        if tail.page == PageNo::NONE {
            return Ok(None);
        }
        let p = self.pool.fix_shared(undo_page(tail.page))?;
        if page::slot(&p) != tail.slot {
            return Err(Error::corrupt(undo_page(tail.page), format!("it is not of undo slot {}", tail.slot)));
        }
        tail.end = page::end(&p)?;
        let last = page::last_log(&p);
        drop(p);
        let Some((header, trx)) = last else { return Ok(None) };
        *last_trx = Some(trx);
        if head == tail.page && header.page() != head {
            return Ok(None); // The header's page has been purged, so the transaction had committed.
        }
        if header.page().0 >= pages_formatted(&self.pool)? {
            return Ok(None); // It was purged, and is behind the end by now: perhaps the file was cut.
        }
        let p = self.pool.fix_shared(undo_page(header.page()))?;
        let found = record::frame_at(&p, usize::from(header.offset()), p.len()).map(|f| f.1);
        let found = found.and_then(record::parse_log_header).filter(|h| h.trx == trx);
        drop(p);
        // A header that is no longer there has been purged, too.
        let Some(h) = found.filter(|h| h.state != LogState::Committed) else { return Ok(None) };
        let mut log = UndoLog { tail: tail.clone(), trx, header, records: 0, xid: h.xid };
        log.records = self.count_records(&log)?;
        let xid = match h.state {
            LogState::Prepared => Some(self.read_xid(h.xid)?),
            _ => None,
        };
        Ok(Some(Unfinished { log, xid }))
    }

    /// Records of changes in an unfinished log. Its tail page tells how many there are before it, unless an earlier version
    /// wrote that page: then the pages before are read, too, back to one that tells it or to the log's header.
    fn count_records(&self, log: &UndoLog) -> Result<u64> {
        let pages = pages_formatted(&self.pool)?.min(self.pool.spaces().get(SpaceId::UNDO)?.pages_in_file());
        let (mut no, mut n) = (log.tail.page, 0);
        for _ in 0..pages {
            let p = self.pool.fix_shared(undo_page(no))?;
            if page::slot(&p) != log.tail.slot {
                return Err(Error::corrupt(p.id(), format!("it is not of undo slot {}", log.tail.slot)));
            }
            let first = if no == log.header.page() { usize::from(log.header.offset()) } else { page::BODY };
            n += changes_from(&p, first)?;
            if no == log.header.page() {
                return Ok(n);
            }
            if let Some(before) = page::changes_before(&p) {
                return Ok(n + before);
            }
            no = page::prev(&p);
            if no == PageNo::NONE {
                return Err(Error::corrupt(p.id(), "an undo log without a beginning"));
            }
        }
        Err(Error::corrupt(undo_page(log.header.page()), "its chain of undo pages runs in a circle"))
    }

    fn read_xid(&self, at: RollPtr) -> Result<Vec<u8>> {
        let p = self.pool.fix_shared(undo_page(at.page()))?;
        match record::frame_at(&p, usize::from(at.offset()), p.len()) {
            Some((_, [kind, xid @ ..])) if *kind == record::Kind::Xid as u8 => Ok(xid.to_vec()),
            _ => Err(Error::corrupt(p.id(), format!("no transaction name at {}", at.offset()))),
        }
    }

    /// Whether a slot was set aside when the space was opened.
    pub fn has_set_aside(&self) -> bool {
        self.has_set_aside
    }

    /// Undo pages in use.
    pub fn pages_in_use(&self) -> u64 {
        self.pages_in_use.load(Ordering::Relaxed)
    }

    /// Purge's ends of all slots.
    pub fn purge_slots(&self) -> Vec<Arc<PurgeSlot>> {
        self.slots.read().clone()
    }

    /// How many slots there are.
    #[inline]
    pub fn purge_slot_count(&self) -> usize {
        self.slot_count.load(Ordering::Acquire)
    }

    fn add_slot(&self, slot: &Arc<PurgeSlot>) {
        let mut slots = self.slots.write();
        slots.push(Arc::clone(slot));
        self.slot_count.store(slots.len(), Ordering::Release);
    }

    /// A slot for a transaction to write to, the one used last if there is a choice.
    pub fn acquire(&self) -> Result<Tail> {
        let mine = thread_no();
        for at in 0..FREE_LISTS {
            if let Some(tail) = self.free_list(mine + at).pop() {
                return Ok(tail);
            }
        }
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        let slot = get_u32(mtr.page(dir), page::DIR_SLOT_COUNT);
        let (id, at) = page::slot_position(self.pool.page_size(), slot);
        if id.page.0 > page::DIRECTORY_PAGES {
            return Err(Error::NotSupported { what: format!("more than {slot} writing transactions at a time") });
        }
        let p = mtr.fix(id)?;
        mtr.write(p, at, &page::EMPTY_SLOT);
        mtr.write(dir, page::DIR_SLOT_COUNT, &(slot + 1).to_le_bytes());
        let position = PurgePosition::without_page();
        // While the directory is latched: slots are pushed in the order of their numbers.
        let purge = Arc::new(PurgeSlot { no: slot, pending: AtomicU64::new(0), position: Mutex::new(position) });
        self.add_slot(&purge);
        mtr.commit()?;
        Ok(Tail { slot, purge, page: PageNo::NONE, end: 0 })
    }

    pub(super) fn free_list(&self, number: usize) -> MutexGuard<'_, Vec<Tail>> {
        let no = number % FREE_LISTS;
        lock_counted(&self.free[no], LatchClass::TrxSystem.part(no))
    }

    /// Gives a slot back after its transaction ended.
    pub fn release(&self, tail: Tail) {
        self.free_list(thread_no()).push(tail);
    }

    /// Reserves transaction ids below `limit`. Not durable by itself: the log record of a change that bears such an id
    /// comes later in the log.
    pub fn reserve_ids(&self, limit: TrxId) -> Result<()> {
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        mtr.write(dir, page::DIR_TRX_LIMIT, &limit.0.to_le_bytes());
        mtr.commit()?;
        Ok(())
    }

    /// Appends an empty page to the chain of the log's slot. The caller holds no latch and no mini-transaction.
    pub fn extend(&self, log: &mut UndoLog) -> Result<()> {
        let changes = page::changes_before_noted(log.records);
        let tail = &mut log.tail;
        loop {
            let (high_water, free) = {
                let dir = self.pool.fix_shared(page::DIRECTORY)?;
                (get_u32(&dir, page::DIR_HIGH_WATER), PageNo(get_u32(&dir, page::DIR_FREE_HEAD)))
            };
            let mut ready = high_water;
            // Into memory, before others wait for the directory.
            let unusable = !self.has_free_in_memory() && (free == PageNo::NONE || !self.is_free_page_readable(free)?);
            if unusable {
                // Disk space first: a full disk must be found before anything is changed.
                ready += 1;
                self.pool.spaces().get(SpaceId::UNDO)?.ensure_pages(ready)?;
            }
            let unusable = unusable.then_some(free);
            let mut mtr = Mtr::start(&self.pool)?;
            let dir = mtr.fix(page::DIRECTORY)?;
            let (id, at) = page::slot_position(self.pool.page_size(), tail.slot);
            let slots = mtr.fix(id)?;
            let old = if tail.page == PageNo::NONE { None } else { Some(mtr.fix(undo_page(tail.page))?) };
            let Some((no, p)) = self.take_page(&mut mtr, dir, tail, ready, unusable)? else { continue };
            let mut last = None;
            if let Some(old) = old {
                last = page::last_log(mtr.page(old));
                mtr.write(old, page::OFF_NEXT, &no.0.to_le_bytes());
            }
            mtr.apply(p, page::OP_FORMAT, &page::format_payload(tail.slot, tail.page, last))?;
            mtr.write(p, page::OFF_CHANGES_BEFORE, &changes.to_le_bytes());
            mtr.write(slots, at + 4, &no.0.to_le_bytes());
            let first = get_u32(mtr.page(slots), at) == PageNo::NONE.0;
            if first {
                mtr.write(slots, at, &no.0.to_le_bytes());
            }
            mtr.commit()?;
            self.pages_in_use.fetch_add(1, Ordering::Relaxed);
            if first {
                tail.purge.position.lock().page = no;
            }
            (tail.page, tail.end) = (no, page::BODY);
            return Ok(());
        }
    }

    /// Whether the page that the free list begins with can be read. The others behind it cannot be reached while it cannot: they
    /// are of no use, but no writer fails for it.
    fn is_free_page_readable(&self, free: PageNo) -> Result<bool> {
        match self.pool.fix_shared(undo_page(free)) {
            Ok(_) => Ok(true),
            Err(error) if is_unreadable(&error) => {
                if get_u32(&self.pool.fix_shared(page::DIRECTORY)?, page::DIR_FREE_HEAD) != free.0 {
                    return Ok(true); // The list does not begin with it any more, the file may even have been cut.
                }
                if self.unreadable_free.swap(free.0, Ordering::Relaxed) != free.0 {
                    let text = format!(
                        "undo.myr grows although it has free pages, as the first of them cannot be read: {error}"
                    );
                    (self.report)(Level::Error, &text);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A free page that is in memory only; or one from the free list, unless that begins with `unusable`, or the first never used if it is among the `ready` ones.
    fn take_page(
        &self,
        mtr: &mut Mtr<'_>,
        dir: PageRef,
        tail: &Tail,
        ready: u32,
        unusable: Option<PageNo>,
    ) -> Result<Option<(PageNo, PageRef)>> {
        if let Some(no) = self.take_free_in_memory() {
            let p = mtr.init(undo_page(no), PageKind::Undo).inspect_err(|_| _ = self.put_free_in_memory(no))?;
            let count = get_u32(mtr.page(dir), page::DIR_FREE_COUNT);
            mtr.write(dir, page::DIR_FREE_COUNT, &count.saturating_sub(1).to_le_bytes());
            return Ok(Some((no, p)));
        }
        let free = PageNo(get_u32(mtr.page(dir), page::DIR_FREE_HEAD));
        if free != PageNo::NONE && Some(free) != unusable {
            let count = get_u32(mtr.page(dir), page::DIR_FREE_COUNT);
            if free.0 < page::FIRST || free == tail.page || count == 0 {
                return Err(Error::corrupt(page::DIRECTORY, format!("undo page {free} is free and in use")));
            }
            let p = mtr.fix(undo_page(free))?;
            let next = page::next(mtr.page(p));
            mtr.write(dir, page::DIR_FREE_HEAD, &next.0.to_le_bytes());
            mtr.write(dir, page::DIR_FREE_COUNT, &(count - 1).to_le_bytes());
            return Ok(Some((free, p)));
        }
        let no = get_u32(mtr.page(dir), page::DIR_HIGH_WATER);
        if no >= ready {
            return Ok(None);
        }
        if no < page::FIRST || no == tail.page.0 {
            return Err(Error::corrupt(page::DIRECTORY, format!("undo page {no} was never used and is in use")));
        }
        let p = mtr.init(undo_page(PageNo(no)), PageKind::Undo)?;
        mtr.write(dir, page::DIR_HIGH_WATER, &(no + 1).to_le_bytes());
        Ok(Some((PageNo(no), p)))
    }

    pub(super) fn put_free(&self, mtr: &mut Mtr<'_>, dir: PageRef, no: PageNo, p: PageRef) {
        let head = get_u32(mtr.page(dir), page::DIR_FREE_HEAD);
        let count = get_u32(mtr.page(dir), page::DIR_FREE_COUNT);
        mtr.write(dir, page::DIR_FREE_COUNT, &count.saturating_add(1).to_le_bytes());
        if self.put_free_in_memory(no) {
            return;
        }
        mtr.write(p, page::OFF_NEXT, &head.to_le_bytes());
        mtr.write(dir, page::DIR_FREE_HEAD, &no.0.to_le_bytes());
    }

    /// Rollback has emptied the tail page: the chain ends at the page before from now on.
    pub fn drop_tail(&self, tail: &mut Tail) -> Result<()> {
        let prev = page::prev(&self.pool.fix_shared(undo_page(tail.page))?);
        if prev == PageNo::NONE {
            return Err(Error::corrupt(undo_page(tail.page), "an undo log without a beginning"));
        }
        // Into memory, before others wait for the directory.
        let _ = self.pool.fix_shared(undo_page(prev))?;
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        let (id, at) = page::slot_position(self.pool.page_size(), tail.slot);
        let slots = mtr.fix(id)?;
        let before = mtr.fix(undo_page(prev))?;
        if page::next(mtr.page(before)) != tail.page || page::slot(mtr.page(before)) != tail.slot {
            return Err(Error::corrupt(undo_page(prev), format!("undo page {} does not follow it", tail.page)));
        }
        let end = page::end(mtr.page(before))?;
        // A page is added when the one before it is full. In a circle of pages, as a damaged free list makes, rollback would not end.
        if end == page::BODY {
            return Err(Error::corrupt(
                undo_page(prev),
                format!("undo page {} follows it, and it is empty", tail.page),
            ));
        }
        let p = mtr.fix(undo_page(tail.page))?;
        mtr.write(before, page::OFF_NEXT, &PageNo::NONE.0.to_le_bytes());
        mtr.write(slots, at + 4, &prev.0.to_le_bytes());
        self.put_free(&mut mtr, dir, tail.page, p);
        mtr.commit()?;
        self.pages_in_use.fetch_sub(1, Ordering::Relaxed);
        (tail.page, tail.end) = (prev, end);
        Ok(())
    }

    /// Purge is through with the head page of the slot, which is not its tail: frees it. Returns the new head.
    pub fn drop_head(&self, slot: u32, head: PageNo) -> Result<PageNo> {
        let next = page::next(&self.pool.fix_shared(undo_page(head))?);
        assert!(next != PageNo::NONE, "purge frees no slot's tail");
        // Into memory, before others wait for the directory.
        let _ = self.pool.fix_shared(undo_page(next))?;
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        let (id, at) = page::slot_position(self.pool.page_size(), slot);
        let slots = mtr.fix(id)?;
        let p = mtr.fix(undo_page(head))?;
        // Purge goes on there: were it another page of the chain, or a free one, that would be freed twice.
        let after = mtr.fix(undo_page(next))?;
        if next.0 < page::FIRST || page::slot(mtr.page(after)) != slot || page::prev(mtr.page(after)) != head {
            return Err(Error::corrupt(undo_page(head), format!("undo page {next} does not follow it")));
        }
        mtr.write(slots, at, &next.0.to_le_bytes());
        self.put_free(&mut mtr, dir, head, p);
        mtr.commit()?;
        self.pages_in_use.fetch_sub(1, Ordering::Relaxed);
        Ok(next)
    }
}

/// First and last page of each slot.
fn chains(pool: &BufferPool, slots: u32) -> Result<Vec<(PageNo, PageNo)>> {
    let mut chains = Vec::new();
    for slot in 0..=slots {
        let (id, at) = page::slot_position(pool.page_size(), slot);
        if id.page.0 > page::DIRECTORY_PAGES {
            if slot == slots {
                break;
            }
            return Err(Error::corrupt(page::DIRECTORY, format!("{slots} undo slots are more than fit")));
        }
        let dir = pool.fix_shared(id)?;
        let ends = (PageNo(get_u32(&dir, at)), PageNo(get_u32(&dir, at + 4)));
        // Without its slot an unfinished transaction would look committed.
        if (slot == slots) != (ends == (PageNo(0), PageNo(0))) {
            return Err(Error::corrupt(page::DIRECTORY, format!("{slots} undo slots, but not as slot {slot} says")));
        }
        chains.push(ends);
    }
    chains.truncate(slots as usize);
    Ok(chains)
}

/// Whether an error says that an undo page cannot be had, now or for ever: it is damaged, the device does not give it, or its redo
/// was refused.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::CorruptPage { .. } | Error::Io { .. } | Error::CorruptLog { .. } | Error::Invalid { .. })
}

/// Records of changes on an undo page, from this offset to the page's end.
fn changes_from(page: &SharedPage<'_>, first: usize) -> Result<u64> {
    let (end, mut offset, mut n) = (page::end(page)?, first, 0);
    while offset < end {
        let (start, body) = record::frame_at(page, offset, end)
            .ok_or_else(|| Error::corrupt(page.id(), format!("no undo record at {offset}")))?;
        n += u64::from(record::parse_change(body).is_some());
        offset = start + body.len() + 2;
    }
    Ok(n)
}

impl UndoLog {
    /// The log of a transaction that has written nothing yet.
    pub fn new(tail: Tail, trx: TrxId) -> UndoLog {
        UndoLog { tail, trx, header: RollPtr::NONE, records: 0, xid: RollPtr::NONE }
    }

    /// Bytes that a record with this body takes, the log's header included if it is still missing.
    fn bytes(&self, body: usize) -> usize {
        let header = if self.header.is_none() { record::LOG_HEADER_BYTES + record::FRAME_BYTES } else { 0 };
        body + header
    }

    /// Whether a record with this body fits the tail page.
    pub fn fits(&self, page_size: usize, body: usize) -> bool {
        self.tail.page != PageNo::NONE && page::fits(page_size, self.tail.end, self.bytes(body))
    }

    /// The page that the next record goes to.
    pub fn page(&self) -> PageId {
        undo_page(self.tail.page)
    }

    /// Where the record that is appended next will be.
    pub fn next_ptr(&self) -> RollPtr {
        RollPtr::new(self.tail.page, (self.tail.end + self.bytes(0)) as u16)
    }

    /// Appends a record, after the log's header if that is missing. It must fit.
    pub fn append(&mut self, mtr: &mut Mtr<'_>, body: &[u8]) -> Result<RollPtr> {
        let p = mtr.fix(self.page())?;
        if self.header.is_none() {
            mtr.apply(p, page::OP_BEGIN, &record::log_header(self.trx))?;
            self.header = RollPtr::new(self.tail.page, self.tail.end as u16);
            self.tail.end += record::LOG_HEADER_BYTES + record::FRAME_BYTES;
        }
        let at = RollPtr::new(self.tail.page, self.tail.end as u16);
        let place = page::place_for(mtr.page(p), body)?;
        mtr.log_applied(p, page::OP_APPEND, body, |p| page::append_at(p, place, body));
        self.tail.end += body.len() + record::FRAME_BYTES;
        Ok(at)
    }

    /// Cuts the tail page off at `to`.
    pub fn truncate(&mut self, mtr: &mut Mtr<'_>, to: usize) -> Result<()> {
        let p = mtr.fix(self.page())?;
        mtr.apply(p, page::OP_TRUNCATE, &(to as u32).to_le_bytes())?;
        self.tail.end = to;
        Ok(())
    }

    /// Writes the log's state.
    pub fn set_state(&self, mtr: &mut Mtr<'_>, state: LogState) -> Result<()> {
        let p = mtr.fix(undo_page(self.header.page()))?;
        let mut b = [0; 2 + record::LOG_STATE_BYTES];
        b[..2].copy_from_slice(&self.header.offset().to_le_bytes());
        b[2..].copy_from_slice(&record::log_state(state, self.xid));
        mtr.apply(p, page::OP_STATE, &b)
    }
}
