//! Mini-transactions: atomic sets of page changes, and the only way to change a page.

use crate::guard::ExclusivePage;
use crate::ops::{self, is_writable, OP_FILL, OP_IMAGE, OP_INIT, OP_WRITE};
use crate::pool::BufferPool;
use crate::turns::Turn;
use myriad_base::page::{self, PageKind, HEADER_BYTES, OFF_KIND};
use myriad_base::{work, Lsn, PageId, Result};
use myriad_log::Admission;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// A page of a mini-transaction. Valid for the mini-transaction that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef(u32);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    Unchanged,
    Changed,
    Released,
}

struct MtrPage {
    id: u64,
    frame: u32,
    hold: Hold,
    /// Whether the page was as its file has it when the changes were logged.
    first: Cell<bool>,
}

/// Pages a mini-transaction holds without allocating.
const PAGES_INLINE: usize = 8;
/// A log buffer larger than this is not kept for the thread's next mini-transaction.
const BODY_KEPT_MAX: usize = 1 << 20;

thread_local! {
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A mini-transaction: the pages it holds, latched exclusively, and the log records of what it did to them. Everything
/// it changed reaches the log as one unit at [`Mtr::commit`].
///
/// Dropped without a change it releases its pages. Dropped with changes it poisons the engine: pages in memory then
/// differ from what the log says. So whatever can fail must be done before the first change.
#[must_use]
pub struct Mtr<'p> {
    pool: &'p BufferPool,
    body: Vec<u8>,
    /// Page of the last record, as an integer.
    previous: u64,
    pages: SmallVec<[MtrPage; PAGES_INLINE]>,
    /// Pages of in-memory tables that become free.
    freed: SmallVec<[u64; 2]>,
    /// Other pages that become free, and may have buffered changes.
    freed_unread: SmallVec<[u64; 2]>,
    committed: bool,
    /// Its room in the log.
    _admission: Admission<'p>,
    _turn: Turn<'p>,
}

impl<'p> Mtr<'p> {
    /// Begins. May wait for room in the log, and in a small pool for others to end, so the caller holds no latch.
    ///
    /// # Errors
    /// When the engine is poisoned.
    pub fn start(pool: &'p BufferPool) -> Result<Mtr<'p>> {
        let turn = pool.turn()?;
        let admission = pool.before_mtr()?;
        Ok(Mtr::admitted(pool, admission, turn))
    }

    /// Begins one that logs a transaction's end and nothing else: it does not wait for room in the log, some is kept for it.
    ///
    /// # Errors
    /// When the engine is poisoned.
    pub fn start_end(pool: &'p BufferPool) -> Result<Mtr<'p>> {
        pool.before_end_mtr()?;
        Ok(Mtr::admitted(pool, Admission::NONE, Turn::NONE))
    }

    /// Begins one that logs `bytes` at most and must not wait for room in the log: `None` if there is none.
    ///
    /// # Errors
    /// When the engine is poisoned.
    pub(crate) fn start_if_room(pool: &'p BufferPool, bytes: u64) -> Result<Option<Mtr<'p>>> {
        pool.check_poison()?;
        Ok(pool.log().reserve_if_room(bytes).map(|admission| Mtr::admitted(pool, admission, Turn::NONE)))
    }

    /// Begins one that logs nothing: pages of in-memory tables alone. Never waits for room in the log.
    ///
    /// # Errors
    /// When the engine is poisoned.
    pub fn start_in_memory(pool: &'p BufferPool) -> Result<Mtr<'p>> {
        pool.check_poison()?;
        let turn = pool.turn()?;
        Ok(Mtr::admitted(pool, Admission::NONE, turn))
    }

    fn admitted(pool: &'p BufferPool, admission: Admission<'p>, turn: Turn<'p>) -> Mtr<'p> {
        let mut body = BODY.take();
        body.clear();
        Mtr {
            pool,
            body,
            previous: u64::MAX,
            pages: SmallVec::new(),
            freed: SmallVec::new(),
            freed_unread: SmallVec::new(),
            committed: false,
            _admission: admission,
            _turn: turn,
        }
    }

    /// The pool.
    pub fn pool(&self) -> &'p BufferPool {
        self.pool
    }

    fn push_page(&mut self, frame: u32, id: PageId) -> PageRef {
        self.pages.push(MtrPage { id: id.to_u64(), frame, hold: Hold::Unchanged, first: Cell::new(false) });
        PageRef(self.pages.len() as u32 - 1)
    }

    /// The reference to a page that the mini-transaction holds.
    pub fn find(&self, id: PageId) -> Option<PageRef> {
        let id = id.to_u64();
        let at = self.pages.iter().position(|p| p.id == id && p.hold != Hold::Released)?;
        Some(PageRef(at as u32))
    }

    /// Takes a latched page into the mini-transaction, which releases it at its end.
    pub fn adopt(&mut self, page: ExclusivePage<'p>) -> PageRef {
        assert!(std::ptr::eq(page.pool(), self.pool), "page of another pool");
        let (frame, id) = page.into_held();
        self.push_page(frame, id)
    }

    /// The page, latched exclusively; the same reference if the mini-transaction has it already.
    ///
    /// # Errors
    /// As [`BufferPool::fix_exclusive`].
    pub fn fix(&mut self, id: PageId) -> Result<PageRef> {
        if let Some(page) = self.find(id) {
            return Ok(page);
        }
        let page = self.pool.fix_exclusive(id)?;
        Ok(self.adopt(page))
    }

    /// As [`Mtr::fix`], but `None` if the page is not in memory.
    pub fn fix_resident(&mut self, id: PageId) -> Option<PageRef> {
        let held = self.find(id);
        held.or_else(|| self.pool.resident_exclusive(id).map(|page| self.adopt(page)))
    }

    /// A new page: nothing is read; formatted, all zero behind its header; logged.
    ///
    /// # Errors
    /// [`myriad_base::Error::BufferPoolExhausted`]; nothing was changed then.
    pub fn init(&mut self, id: PageId, kind: PageKind) -> Result<PageRef> {
        let page = match self.find(id) {
            Some(page) => page,
            None => {
                let page = self.pool.fix_new(id)?;
                self.adopt(page)
            }
        };
        self.record(page, OP_INIT, &[&[kind as u8]]);
        page::format(self.bytes_mut(page), id, kind);
        self.pool.frames().get(self.pages[page.0 as usize].frame).set_kind(kind as u8);
        Ok(page)
    }

    #[inline]
    fn held(&self, page: PageRef) -> &MtrPage {
        let held = &self.pages[page.0 as usize];
        assert!(held.hold != Hold::Released, "page was released");
        held
    }

    /// The page's bytes.
    #[inline]
    pub fn page(&self, page: PageRef) -> &[u8] {
        let frame = self.held(page).frame;
        // SAFETY: the mini-transaction holds the frame's X latch, and changes need `&mut self`.
        unsafe { self.pool.frames().bytes(frame) }
    }

    /// Which page it is.
    pub fn page_id(&self, page: PageRef) -> PageId {
        PageId::from_u64(self.held(page).id)
    }

    /// The page's bytes, to change them; marks the page changed.
    #[inline]
    fn bytes_mut(&mut self, page: PageRef) -> &mut [u8] {
        let held = &mut self.pages[page.0 as usize];
        assert!(held.hold != Hold::Released, "page was released");
        held.hold = Hold::Changed;
        // SAFETY: the mini-transaction holds the frame's X latch, and `&mut self` makes this the only reference.
        unsafe { self.pool.frames().bytes_mut(held.frame) }
    }

    /// Appends a record; none for a page of an in-memory table.
    #[inline]
    fn record(&mut self, page: PageRef, op: u8, parts: &[&[u8]]) {
        let id = PageId::from_u64(self.held(page).id);
        if !id.is_in_memory() {
            self.record_of(id, op, parts);
        }
    }

    /// Appends a record.
    #[inline]
    pub(crate) fn record_of(&mut self, id: PageId, op: u8, parts: &[&[u8]]) {
        let id = id.to_u64();
        let len = parts.iter().map(|p| p.len()).sum();
        ops::push_record_head(&mut self.body, self.previous, id, op, len);
        for part in parts {
            self.body.extend_from_slice(part);
        }
        self.previous = id;
    }

    /// Logs `op` with `payload` and changes the page by its redo function. On an error nothing was logged or changed.
    ///
    /// # Errors
    /// The redo function's.
    pub fn apply(&mut self, page: PageRef, op: u8, payload: &[u8]) -> Result<()> {
        let (pool, id) = (self.pool, self.page_id(page));
        let (length, previous) = (self.body.len(), self.previous);
        let hold = self.held(page).hold;
        self.record(page, op, &[payload]);
        // Checked when it was read, and changed by redo functions alone since: so only builds with debug assertions look again.
        let checked = !cfg!(debug_assertions);
        let done = pool.redo_table().changes_of(id, self.bytes_mut(page), checked).redo(op, payload);
        if done.is_err() {
            self.body.truncate(length);
            self.previous = previous;
            self.pages[page.0 as usize].hold = hold;
        }
        done
    }

    /// Logs `op` with `payload` and changes the page by `f`, which must have exactly the redo function's effect on every
    /// byte of the page (builds with debug assertions check that).
    #[inline]
    pub fn log_applied(&mut self, page: PageRef, op: u8, payload: &[u8], f: impl FnOnce(&mut [u8])) {
        self.log_applied_parts(page, op, &[payload], f);
    }

    /// As [`Mtr::log_applied`]; the payload is the concatenation of `parts`.
    #[inline]
    pub fn log_applied_parts(&mut self, page: PageRef, op: u8, parts: &[&[u8]], f: impl FnOnce(&mut [u8])) {
        self.record(page, op, parts);
        if cfg!(debug_assertions) {
            let (pool, id) = (self.pool, self.page_id(page));
            let payload = parts.concat();
            let mut expected = self.page(page).to_vec();
            let redone = pool.redo_table().changes_of(id, &mut expected, false).redo(op, &payload);
            f(self.bytes_mut(page));
            assert!(redone.is_ok(), "redo of operation {op} on {id} refuses what was logged: {redone:?}");
            let got = self.page(page);
            if let Some(at) = (0..got.len()).find(|&i| got[i] != expected[i]) {
                panic!("operation {op} on {id} differs from its redo function at byte {at}");
            }
        } else {
            f(self.bytes_mut(page));
        }
    }

    /// Overwrites bytes of the page.
    ///
    /// # Panics
    /// When the range is outside the page or touches checksum, identity or LSN; so does the next.
    pub fn write(&mut self, page: PageRef, at: usize, bytes: &[u8]) {
        assert!(is_writable(self.pool.page_size(), at, bytes.len()), "write at {at}+{}", bytes.len());
        let mut head = VarintBuf::new();
        head.push(at);
        self.record(page, OP_WRITE, &[head.bytes(), bytes]);
        self.bytes_mut(page)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Fills bytes of the page.
    pub fn fill(&mut self, page: PageRef, at: usize, len: usize, byte: u8) {
        assert!(is_writable(self.pool.page_size(), at, len), "fill of {at}+{len}");
        let mut head = VarintBuf::new();
        head.push(at);
        head.push(len);
        self.record(page, OP_FILL, &[head.bytes(), &[byte]]);
        self.bytes_mut(page)[at..at + len].fill(byte);
    }

    /// Rebuilds the page by `f` and logs its image without `hole`, which becomes zero. For pages filled at once. `f` may
    /// change the kind, bytes 13 to 15 and the body.
    pub fn image(&mut self, page: PageRef, hole: Range<usize>, f: impl FnOnce(&mut [u8])) {
        let page_size = self.pool.page_size();
        assert!(HEADER_BYTES <= hole.start && hole.start <= hole.end && hole.end <= page_size, "hole {hole:?}");
        let id = self.page_id(page);
        let bytes = self.bytes_mut(page);
        f(bytes);
        bytes[hole.clone()].fill(0);
        debug_assert_eq!(page::page_id(bytes), id, "the image changed the page's identity");
        assert!(PageKind::from_u8(bytes[OFF_KIND]).is_some(), "unknown page kind {}", bytes[OFF_KIND]);
        let kind = bytes[OFF_KIND];
        if id.is_in_memory() {
            return self.pool.frames().get(self.pages[page.0 as usize].frame).set_kind(kind);
        }
        let mut head = VarintBuf::new();
        head.push(hole.start);
        head.push(hole.end);
        let payload_len = 4 + head.bytes().len() + page_size - HEADER_BYTES - hole.len();
        let MtrPage { id: raw_id, frame, .. } = self.pages[page.0 as usize];
        ops::push_record_head(&mut self.body, self.previous, raw_id, OP_IMAGE, payload_len);
        // SAFETY: the mini-transaction holds the frame's X latch.
        let bytes = unsafe { self.pool.frames().bytes(frame) };
        self.body.extend_from_slice(&bytes[OFF_KIND..OFF_KIND + 4]);
        self.body.extend_from_slice(head.bytes());
        self.body.extend_from_slice(&bytes[HEADER_BYTES..hole.start]);
        self.body.extend_from_slice(&bytes[hole.end..]);
        self.previous = raw_id;
        self.pool.frames().get(frame).set_kind(kind);
    }

    /// Releases a page that was not changed; the reference is no longer valid.
    ///
    /// # Panics
    /// When the page was changed.
    pub fn release_unchanged(&mut self, page: PageRef) {
        let held = &mut self.pages[page.0 as usize];
        assert!(held.hold == Hold::Unchanged, "page was changed or released");
        held.hold = Hold::Released;
        self.pool.frames().get(held.frame).latch.unlock_exclusive_unchanged();
    }

    /// Notes that a page becomes free with this mini-transaction, which has its bitmap page: one of an in-memory table
    /// gives its frame back. Of others the buffered changes are forgotten: only a dropped index has pages freed unread.
    pub fn note_freed(&mut self, id: PageId) {
        if id.is_in_memory() {
            self.freed.push(id.to_u64());
        } else if self.pool.changes.bytes() != 0 {
            self.freed_unread.push(id.to_u64());
        }
    }

    /// Whether anything has been changed.
    pub fn has_changes(&self) -> bool {
        !self.body.is_empty() || self.pages.iter().any(|p| p.hold == Hold::Changed)
    }

    /// Bytes logged so far.
    pub fn log_bytes(&self) -> usize {
        self.body.len()
    }

    /// Appends the changes to the log, marks the pages dirty and releases them. Returns the end LSN: the changes are durable
    /// once the log is, up to there. 0 if there is nothing to log: no changes, or those of in-memory tables alone.
    ///
    /// # Errors
    /// When the log fails; the engine is poisoned then.
    pub fn commit(self) -> Result<Lsn> {
        self.commit_and(|_, _| ())
    }

    /// As [`Mtr::commit`]; `logged` is told the LSNs of start and end while the log still holds the checkpoint at the start.
    #[inline]
    pub(crate) fn commit_and(mut self, logged: impl FnOnce(Lsn, Lsn)) -> Result<Lsn> {
        if self.body.is_empty() {
            if self.has_changes() {
                self.pool.check_poison()?;
                self.pool.count_mtr();
            }
            self.committed = true;
            return Ok(Lsn(0));
        }
        let (pool, pages, body) = (self.pool, &self.pages, &self.body[..]);
        pool.check_poison()?;
        let lasting = |p: &&MtrPage| p.hold == Hold::Changed && !PageId::from_u64(p.id).is_in_memory();
        let mut start_lsn = Lsn(0);
        let appended = pool.log().append(body, |start, end| {
            start_lsn = start;
            for held in pages.iter().filter(lasting) {
                // SAFETY: the mini-transaction holds the frame's X latch and lends no other reference now.
                let bytes = unsafe { pool.frames().bytes_mut(held.frame) };
                page::set_page_lsn(bytes, end);
                held.first.set(pool.mark_dirty(held.frame, start));
            }
            logged(start, end);
        });
        match appended {
            Ok(end) => {
                // Not while the log waits for this mini-transaction, only before its pages are let go.
                for held in pages.iter().filter(lasting) {
                    pool.keep_changes(held.frame, held.first.get(), start_lsn, end, body);
                }
                self.freed_unread.iter().for_each(|&id| pool.changes.forget_freed(PageId::from_u64(id), end));
                self.committed = true;
                pool.count_mtr();
                Ok(end)
            }
            Err(error) => {
                pool.poison(&format!("a mini-transaction could not be logged: {error}"));
                Err(error)
            }
        }
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if !self.committed && self.has_changes() {
            // Before the latches go: from here on nobody may write these pages.
            self.pool.poison("a mini-transaction with changes was abandoned");
        }
        if self.committed {
            // Before the latches go: the bitmap page's keeps a freed page from being given out again.
            for &id in &self.freed {
                if !self.pages.iter().any(|p| p.id == id && p.hold != Hold::Released) {
                    self.pool.drop_memory_page(PageId::from_u64(id));
                }
            }
        }
        for held in &self.pages {
            if self.committed && held.hold != Hold::Released && self.freed.contains(&held.id) {
                self.pool.withdraw(PageId::from_u64(held.id), held.frame);
                continue;
            }
            let latch = &self.pool.frames().get(held.frame).latch;
            match held.hold {
                Hold::Unchanged => latch.unlock_exclusive_unchanged(),
                Hold::Changed => {
                    work::count(|w| &w.pages_updated, 1);
                    // SAFETY: the frame's X latch is held, and no other reference is lent.
                    let kind = unsafe { self.pool.frames().bytes(held.frame) }[OFF_KIND];
                    if kind == PageKind::Free as u8 {
                        // Whoever has the page next may latch it before pages that those hold who sleep for what it was.
                        latch.unlock_exclusive_unwanted();
                    } else {
                        latch.unlock_exclusive();
                    }
                }
                Hold::Released => {}
            }
        }
        if self.body.capacity() <= BODY_KEPT_MAX {
            BODY.set(std::mem::take(&mut self.body));
        }
    }
}

/// A few varints on the stack.
struct VarintBuf {
    bytes: SmallVec<[u8; 16]>,
}

impl VarintBuf {
    fn new() -> VarintBuf {
        VarintBuf { bytes: SmallVec::new() }
    }

    fn push(&mut self, v: usize) {
        let mut v = v as u64;
        while v >= 0x80 {
            self.bytes.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.bytes.push(v as u8);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
