//! What a caller holds while it looks at a page.

use crate::frame::{Frame, FrameNo};
use crate::pool::BufferPool;
use myriad_base::PageId;
use std::cmp::Ordering as Cmp;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page whose frame is latched shared. Derefs to the page's bytes.
#[must_use]
pub struct SharedPage<'p> {
    pool: &'p BufferPool,
    frame: u32,
    id: PageId,
}

/// A page whose frame is latched exclusively. Derefs to the page's bytes; they change only inside a mini-transaction,
/// into which [`crate::Mtr::adopt`] takes the page. Dropped before that, the page is released unchanged.
#[must_use]
pub struct ExclusivePage<'p> {
    pool: &'p BufferPool,
    frame: u32,
    id: PageId,
}

/// A page with the contents that it had when somebody looked at it; see [`BufferPool::is_unchanged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenPage {
    /// The page.
    pub id: PageId,
    /// The frame that it was in.
    pub frame: FrameNo,
    /// The version of the frame's latch.
    pub version: u64,
}

impl<'p> SharedPage<'p> {
    /// Wraps a shared hold that the caller has on the frame.
    #[inline]
    pub(crate) fn from_held(pool: &'p BufferPool, frame: u32, id: PageId) -> SharedPage<'p> {
        SharedPage { pool, frame, id }
    }

    #[inline]
    fn descriptor(&self) -> &'p Frame {
        self.pool.frames().get(self.frame)
    }

    /// The page.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its frame, for [`BufferPool::try_reuse`].
    #[inline]
    pub fn frame(&self) -> FrameNo {
        FrameNo(self.frame)
    }

    /// The version of the frame's latch: unchanged as long as the frame holds this page with these contents.
    #[inline]
    pub fn version(&self) -> u64 {
        self.descriptor().latch.version()
    }

    /// The page as it is now.
    #[inline]
    pub fn seen(&self) -> SeenPage {
        SeenPage { id: self.id, frame: self.frame(), version: self.version() }
    }

    /// Gives up the latch and goes on as an optimistic reader of the same contents.
    pub fn into_optimistic(self) -> OptimisticPage<'p> {
        OptimisticPage { pool: self.pool, frame: self.frame, id: self.id, version: self.version() }
    }

    /// The pool the page is in.
    pub fn pool(&self) -> &'p BufferPool {
        self.pool
    }
}

impl Deref for SharedPage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the shared latch is held until drop.
        unsafe { self.pool.frames().bytes(self.frame) }
    }
}

impl Drop for SharedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.descriptor().latch.unlock_shared();
    }
}

impl<'p> ExclusivePage<'p> {
    /// Wraps an exclusive hold that the caller has on the frame.
    #[inline]
    pub(crate) fn from_held(pool: &'p BufferPool, frame: u32, id: PageId) -> ExclusivePage<'p> {
        ExclusivePage { pool, frame, id }
    }

    /// Hands the hold over to the caller.
    #[inline]
    pub(crate) fn into_held(self) -> (u32, PageId) {
        let page = ManuallyDrop::new(self);
        (page.frame, page.id)
    }

    /// The page.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its frame.
    #[inline]
    pub fn frame(&self) -> FrameNo {
        FrameNo(self.frame)
    }

    /// The version of the frame's latch; it grows when the page is released after a change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.pool.frames().get(self.frame).latch.version()
    }

    /// The pool the page is in.
    pub fn pool(&self) -> &'p BufferPool {
        self.pool
    }
}

impl Deref for ExclusivePage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the exclusive latch is held until drop, and only `Mtr`, which consumes this, changes pages.
        unsafe { self.pool.frames().bytes(self.frame) }
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.frames().get(self.frame).latch.unlock_exclusive_unchanged();
    }
}

/// A frame that a page is read into, latched exclusively. Dropped, as an error or a panic does, it gives the page up: whoever sleeps
/// for the page would else do so for ever.
pub(crate) struct ReadFrame<'p> {
    pool: &'p BufferPool,
    pub id: PageId,
    pub at: u32,
}

impl<'p> ReadFrame<'p> {
    /// Wraps an exclusive hold that the caller has on the frame.
    pub fn from_held(pool: &'p BufferPool, at: u32, id: PageId) -> ReadFrame<'p> {
        ReadFrame { pool, id, at }
    }

    /// The frame keeps the page; its latch is the caller's.
    pub fn keep(self) -> u32 {
        ManuallyDrop::new(self).at
    }
}

impl Drop for ReadFrame<'_> {
    fn drop(&mut self) {
        self.pool.withdraw(self.id, self.at);
    }
}

impl BufferPool {
    /// The page, latched exclusively, if `frame` still holds it with the contents of `version`; else `None`.
    #[inline]
    pub fn try_reuse_exclusive(&self, frame: FrameNo, id: PageId, version: u64) -> Option<ExclusivePage<'_>> {
        if frame.0 as usize >= self.frames().len() {
            return None;
        }
        OptimisticPage::new(self, frame.0, id, version).lock_exclusive()
    }

    /// Whether the page is still in memory, where it was, and nobody has changed it since, or is about to. Latches nothing.
    #[inline]
    pub fn is_unchanged(&self, seen: &SeenPage) -> bool {
        if seen.frame.0 as usize >= self.frames().len() {
            return false;
        }
        let frame = self.frames().get(seen.frame.0);
        frame.holds(seen.id.to_u64()) && frame.latch.validate(seen.version)
    }
}

/// A page read without a latch. Every accessor may return torn data until [`OptimisticPage::validate`] has said true;
/// none reads outside the page, whatever offset torn data gave: offsets are clamped to the page.
///
/// The loads are relaxed atomic loads of aligned words.
#[derive(Clone, Copy)]
pub struct OptimisticPage<'p> {
    pool: &'p BufferPool,
    frame: u32,
    id: PageId,
    version: u64,
}

impl<'p> OptimisticPage<'p> {
    #[inline]
    pub(crate) fn new(pool: &'p BufferPool, frame: u32, id: PageId, version: u64) -> OptimisticPage<'p> {
        OptimisticPage { pool, frame, id, version }
    }

    #[inline]
    fn descriptor(&self) -> &'p Frame {
        self.pool.frames().get(self.frame)
    }

    /// The page.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Its frame.
    #[inline]
    pub fn frame(&self) -> FrameNo {
        FrameNo(self.frame)
    }

    /// The version all reads must prove to belong to.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether everything read so far belongs together: the frame still holds the page and nobody changed it.
    #[inline]
    #[must_use]
    pub fn validate(&self) -> bool {
        self.descriptor().latch.validate(self.version)
    }

    /// The aligned word at word index `w`, clamped.
    #[inline]
    fn word(&self, w: usize) -> u64 {
        let w = w.min(self.pool.page_size() / 8 - 1);
        // SAFETY: the index is clamped to the page, pages are 8-byte aligned, and the mapping outlives the pool's
        // borrow. Writers use plain stores: the value may be torn between them, which `validate` finds out.
        let word = unsafe { &*self.pool.frames().ptr(self.frame).cast::<AtomicU64>().add(w) };
        u64::from_le(word.load(Ordering::Relaxed))
    }

    /// Eight bytes from `at`, little endian. Near the page's end the bytes past it are unspecified.
    #[inline]
    pub fn u64(&self, at: usize) -> u64 {
        let shift = (at % 8 * 8) as u32;
        let low = self.word(at / 8);
        if shift == 0 {
            return low;
        }
        low >> shift | self.word(at / 8 + 1) << (64 - shift)
    }

    /// The byte at `at`.
    #[inline]
    pub fn u8(&self, at: usize) -> u8 {
        (self.word(at / 8) >> (at % 8 * 8)) as u8
    }

    /// A little-endian `u16` at `at`.
    #[inline]
    pub fn u16(&self, at: usize) -> u16 {
        if at % 8 <= 6 {
            (self.word(at / 8) >> (at % 8 * 8)) as u16
        } else {
            self.u64(at) as u16
        }
    }

    /// A little-endian `u32` at `at`.
    #[inline]
    pub fn u32(&self, at: usize) -> u32 {
        if at % 8 <= 4 {
            (self.word(at / 8) >> (at % 8 * 8)) as u32
        } else {
            self.u64(at) as u32
        }
    }

    /// Copies bytes from `at` into `out[..len]`; `len` is clamped to `out` and to the page's end. Returns how many.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8], at: usize, len: usize) -> usize {
        let len = len.min(out.len()).min(self.pool.page_size().saturating_sub(at));
        let mut done = 0;
        while done + 8 <= len {
            out[done..done + 8].copy_from_slice(&self.u64(at + done).to_le_bytes());
            done += 8;
        }
        if done < len {
            let last = self.u64(at + done).to_le_bytes();
            out[done..len].copy_from_slice(&last[..len - done]);
        }
        len
    }

    /// Compares the page's bytes `at..at + len` (clamped to the page) with `other`, as byte strings.
    #[inline]
    pub fn compare(&self, at: usize, len: usize, other: &[u8]) -> Cmp {
        let len = len.min(self.pool.page_size().saturating_sub(at));
        let common = len.min(other.len());
        let mut done = 0;
        while done + 8 <= common {
            let mine = self.u64(at + done).swap_bytes();
            let theirs = u64::from_be_bytes(other[done..done + 8].try_into().expect("eight bytes"));
            if mine != theirs {
                return mine.cmp(&theirs);
            }
            done += 8;
        }
        if done < common {
            let mine = self.u64(at + done).swap_bytes() >> (64 - 8 * (common - done));
            let theirs = few_bytes(&other[done..common]);
            if mine != theirs {
                return mine.cmp(&theirs);
            }
        }
        len.cmp(&other.len())
    }

    #[inline]
    fn is_current(&self) -> bool {
        let frame = self.descriptor();
        frame.latch.version() == self.version && frame.holds(self.id.to_u64())
    }

    /// Latches the page shared, if it is still the same page with the same contents.
    #[inline]
    pub fn lock_shared(self) -> Option<SharedPage<'p>> {
        // Nobody waits for whoever has the frame now, perhaps with another page in it.
        let held = self.descriptor().latch.lock_shared_while(self.pool.latch_part(self.frame), || self.is_current());
        held.then(|| SharedPage::from_held(self.pool, self.frame, self.id))
    }

    /// Latches the page exclusively, if it is still the same page with the same contents.
    #[inline]
    pub fn lock_exclusive(self) -> Option<ExclusivePage<'p>> {
        let held = self.descriptor().latch.lock_exclusive_while(self.pool.latch_part(self.frame), || self.is_current());
        held.then(|| ExclusivePage::from_held(self.pool, self.frame, self.id))
    }
}

/// Up to seven bytes as a big-endian number.
#[inline]
fn few_bytes(mut bytes: &[u8]) -> u64 {
    let mut n = 0;
    if let Some((four, rest)) = bytes.split_first_chunk::<4>() {
        n = u64::from(u32::from_be_bytes(*four));
        bytes = rest;
    }
    if let Some((two, rest)) = bytes.split_first_chunk::<2>() {
        n = n << 16 | u64::from(u16::from_be_bytes(*two));
        bytes = rest;
    }
    match *bytes {
        [last] => n << 8 | u64::from(last),
        _ => n,
    }
}
