//! Frames: a region of page-sized slots, and a descriptor of one cache line for each. Address space is reserved for the
//! largest pool there may be; memory is taken as the pool grows and given back as it shrinks.

use crate::sync::{AtomicU32, AtomicU64};
use crate::usage::USAGE_COLD;
use myriad_base::latch::{HybridLatch, LatchClass};
use myriad_base::page::PageKind;
use myriad_base::{Error, PageId, Result};
use rustix::mm::{madvise, mmap_anonymous, mprotect, munmap, Advice, MapFlags, MprotectFlags, ProtFlags};
use std::mem::size_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// A frame's number within the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameNo(pub u32);

/// Granule of memory protection and advice.
const KERNEL_PAGE: usize = 4096;
/// "No frame" in links and chains.
pub(crate) const NIL: u32 = u32::MAX;
/// "No page" in a frame: page number [`myriad_base::PageNo::NONE`] of a tablespace that never exists.
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// A write of the page is under way; the frame stays on its dirty list until the write is durable.
pub(crate) const STATE_WRITING: u32 = 1;
/// Of two places on the dirty list the second is the older one. Changed under the dirty list lock.
pub(crate) const STATE_SECOND: u32 = 2;
/// The frame is neither in use nor free: the pool is becoming smaller, and it lies beyond the new end (`resize.rs`).
const STATE_RETIRED: u32 = 4;
/// The changes that make the page dirty are kept in the change buffer, all of them (`kept.rs`).
const STATE_KEPT: u32 = 8;

/// Descriptor of a frame. What guards what:
///
/// | field | changed under | read |
/// |---|---|---|
/// | `page_id` | frame X latch (and the page table's bucket lock) | anywhere, to be re-checked under the latch |
/// | `hash_next` | bucket lock of the page in the frame | anywhere, to be re-checked under the latch |
/// | `recovery_mark`, `dirty_*` | the shard's dirty list lock | `recovery_mark` anywhere |
/// | `state` WRITING | set under frame S latch, cleared under the dirty list lock | anywhere |
/// | `state` RETIRED | set by who has the empty frame; who clears it has it then | nowhere else |
/// | `state` KEPT | set and cleared under frame X latch, cleared under S latch by who has set WRITING | under either |
/// | `usage`, `class` | anywhere / frame X latch | anywhere |
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub latch: HybridLatch,
    pub page_id: AtomicU64,
    /// The frame's two places on its dirty list, [`recovery_mark`](Frame::recovery_mark)s: one more than the start LSN
    /// of the first mini-transaction whose change has not been written; 0 when the place is empty. A clean page has none,
    /// a dirty one one; the second is for the first change after the copy that is being written.
    pub recovery_mark: [AtomicU64; 2],
    pub hash_next: AtomicU32,
    pub dirty_prev: [AtomicU32; 2],
    pub dirty_next: [AtomicU32; 2],
    pub state: AtomicU32,
    pub usage: AtomicU8,
    pub class: AtomicU8,
}

/// In a frame's `class`: its page is being read.
const CLASS_READ: u8 = LatchClass::PageRead as u8;
/// In a frame's `class`: it holds a lost page, which nobody but who formats it anew is given.
const CLASS_LOST: u8 = u8::MAX;

#[cfg(not(all(test, loom)))]
const _: () = assert!(std::mem::size_of::<Frame>() == 64);

impl Frame {
    fn new() -> Frame {
        Frame {
            latch: HybridLatch::new(),
            page_id: AtomicU64::new(NO_PAGE),
            recovery_mark: [AtomicU64::new(0), AtomicU64::new(0)],
            hash_next: AtomicU32::new(NIL),
            dirty_prev: [AtomicU32::new(NIL), AtomicU32::new(NIL)],
            dirty_next: [AtomicU32::new(NIL), AtomicU32::new(NIL)],
            state: AtomicU32::new(0),
            usage: AtomicU8::new(USAGE_COLD),
            class: AtomicU8::new(LatchClass::OtherPage as u8),
        }
    }

    /// Whether the page has changes that are not durable in its file.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.recovery_mark.iter().any(|m| m.load(Ordering::Acquire) != 0)
    }

    /// Whether both places on the dirty list are taken: a page changed while it is being written.
    #[inline]
    pub fn is_dirty_twice(&self) -> bool {
        self.recovery_mark.iter().all(|m| m.load(Ordering::Acquire) != 0)
    }

    #[inline]
    pub fn is_writing(&self) -> bool {
        self.state.load(Ordering::Acquire) & STATE_WRITING != 0
    }

    /// Whether the page neither has changes that are not durable nor is being written. The caller holds the X latch.
    #[inline]
    pub fn is_clean(&self) -> bool {
        // In this order: with the flag gone the dirty list's verdict is final.
        !self.is_writing() && !self.is_dirty()
    }

    /// Whether a change of the page is to be noted on its dirty list. The caller holds the X latch.
    #[inline]
    pub fn is_mark_needed(&self) -> bool {
        // In this order: with the flag gone the dirty list's verdict is final, and nobody can set it while we hold X.
        match self.is_writing() {
            false => !self.is_dirty(),
            // However the write ends, one of two places stays, and both are older than this change.
            true => !self.is_dirty_twice(),
        }
    }

    /// Begins to write the page, unless somebody else is at it. The caller holds the S latch.
    #[inline]
    pub fn begin_write(&self) -> bool {
        self.state.fetch_or(STATE_WRITING, Ordering::AcqRel) & STATE_WRITING == 0
    }

    /// Whether the page's changes are kept. The caller has the latch.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE_KEPT != 0
    }

    pub fn set_kept(&self, kept: bool) {
        match kept {
            true => self.state.fetch_or(STATE_KEPT, Ordering::Relaxed),
            false => self.state.fetch_and(!STATE_KEPT, Ordering::Relaxed),
        };
    }

    pub fn mark_retired(&self) {
        self.state.fetch_or(STATE_RETIRED, Ordering::SeqCst);
    }

    /// Takes the mark off again; whether it was there.
    pub fn take_retired(&self) -> bool {
        self.state.fetch_and(!STATE_RETIRED, Ordering::SeqCst) & STATE_RETIRED != 0
    }

    /// The counters' row for this frame's latch.
    #[inline]
    pub fn latch_class(&self) -> LatchClass {
        match self.class.load(Ordering::Relaxed) {
            0 => LatchClass::IndexPage,
            1 => LatchClass::UndoPage,
            CLASS_READ => LatchClass::PageRead,
            _ => LatchClass::OtherPage,
        }
    }

    /// Remembers the latch class that goes with a page kind.
    pub fn set_kind(&self, kind: u8) {
        let class = match PageKind::from_u8(kind) {
            Some(PageKind::Index) => LatchClass::IndexPage as u8,
            Some(PageKind::Undo) => LatchClass::UndoPage as u8,
            Some(PageKind::Lost) => CLASS_LOST,
            _ => LatchClass::OtherPage as u8,
        };
        self.class.store(class, Ordering::Relaxed);
    }

    /// Until its kind is set the frame's page is one that is being read.
    pub fn begin_read(&self) {
        self.class.store(CLASS_READ, Ordering::Relaxed);
    }

    /// Whether it holds a lost page. Certain for who has the latch.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.class.load(Ordering::Relaxed) == CLASS_LOST
    }

    #[inline]
    pub fn holds(&self, id: u64) -> bool {
        self.page_id.load(Ordering::Acquire) == id
    }

    pub fn page(&self) -> PageId {
        PageId::from_u64(self.page_id.load(Ordering::Acquire))
    }
}

const _: () = assert!(LatchClass::IndexPage as u8 == 0 && LatchClass::UndoPage as u8 == 1);

/// The region and its descriptors: two reservations of address space, of which the frames in use have memory.
pub(crate) struct Frames {
    pages: Reservation,
    descriptors: Reservation,
    page_size: usize,
    page_shift: u32,
    /// Frames that the reservations have room for.
    max: usize,
    /// Descriptors made, from the first on. They stay for good: whoever remembers a frame may look at its latch's version.
    made: AtomicU32,
    /// Frames in use.
    count: AtomicU32,
}

impl Frames {
    /// Maps `count` frames of `page_size` bytes (a power of two), and reserves address space for `max` if that can be had.
    /// The kernel gives memory at first touch.
    pub fn new(count: usize, max: usize, page_size: usize) -> Result<Frames> {
        assert!(page_size.is_power_of_two() && count > 0 && count < NIL as usize / 2);
        let reserve = |frames: usize| {
            let bytes = frames.checked_mul(page_size);
            let bytes = bytes.ok_or_else(|| Error::invalid("buffer pool size beyond the address space"))?;
            Ok((Reservation::new(bytes)?, Reservation::new(frames * size_of::<Frame>())?))
        };
        let max = max.clamp(count, NIL as usize / 2 - 1);
        // Where address space is rationed the pool does with what it needs now.
        let ((pages, descriptors), max) = match reserve(max) {
            Ok(both) => (both, max),
            Err(_) if max > count => (reserve(count)?, count),
            Err(error) => return Err(error),
        };
        let frames = Frames {
            pages,
            descriptors,
            page_size,
            page_shift: page_size.trailing_zeros(),
            max,
            made: AtomicU32::new(0),
            count: AtomicU32::new(0),
        };
        frames.grow(count)?;
        Ok(frames)
    }

    /// Gives memory to the frames up to `count`. One caller at a time.
    pub fn grow(&self, count: usize) -> Result<()> {
        assert!(count >= self.len() && count <= self.max, "{count} frames");
        let old = self.len();
        self.pages.open(old * self.page_size..count * self.page_size)?;
        let made = self.made.load(Ordering::Relaxed) as usize;
        if count > made {
            self.descriptors.open(made * size_of::<Frame>()..count * size_of::<Frame>())?;
            for at in made..count {
                // SAFETY: the slot lies in the range just opened and nobody knows of it yet.
                unsafe { self.descriptors.base.cast::<Frame>().add(at).write(Frame::new()) };
            }
            self.made.store(count as u32, Ordering::Release);
        }
        self.count.store(count as u32, Ordering::Release);
        Ok(())
    }

    /// Gives the memory of the frames from `count` on back. None of them holds a page, and none is given one from here on;
    /// a reader that was led astray to one sees zeros.
    pub fn shrink(&self, count: usize) {
        let old = self.len();
        assert!(count <= old, "{count} frames");
        self.count.store(count as u32, Ordering::Release);
        self.pages.give_back(count * self.page_size..old * self.page_size);
    }

    /// Frames in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }

    /// Frames that there can be.
    pub fn max(&self) -> usize {
        self.max
    }

    #[inline]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    #[inline]
    pub fn get(&self, frame: u32) -> &Frame {
        assert!(frame < self.made.load(Ordering::Relaxed), "frame {frame} does not exist");
        // SAFETY: the descriptor was made, and stays until drop.
        unsafe { &*self.descriptors.base.cast::<Frame>().add(frame as usize) }
    }

    /// Address of the frame's page.
    #[inline]
    pub fn ptr(&self, frame: u32) -> *mut u8 {
        debug_assert!(frame < self.made.load(Ordering::Relaxed));
        // SAFETY: a frame that was made lies inside the reservation.
        unsafe { self.pages.base.add((frame as usize) << self.page_shift) }
    }

    /// The frame's page.
    ///
    /// # Safety
    /// The caller holds the frame's latch in either mode for the whole of `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(&self, frame: u32) -> &'a [u8] {
        // SAFETY: the slot is page_size bytes of the mapping; no writer while the caller holds the latch.
        unsafe { std::slice::from_raw_parts(self.ptr(frame), self.page_size) }
    }

    /// The frame's page, to change it.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively for the whole of `'a` and has no other reference to the page.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut<'a>(&self, frame: u32) -> &'a mut [u8] {
        // SAFETY: as above, and the caller is alone.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(frame), self.page_size) }
    }
}

/// Address space of which parts have memory.
struct Reservation {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory, owned until drop; who may touch which bytes is the business of whoever reserved it.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    fn new(bytes: usize) -> Result<Reservation> {
        // SAFETY: a new anonymous private mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let base = base.map_err(|e| Error::io("mmap", "buffer pool", e.raw_os_error()))?.cast();
        Ok(Reservation { base, bytes })
    }

    /// The range, widened to the kernel's pages; a part of one that is shared with a neighbour is open already or soon.
    fn kernel_pages(&self, range: Range<usize>) -> (*mut std::ffi::c_void, usize) {
        let start = range.start / KERNEL_PAGE * KERNEL_PAGE;
        let end = range.end.next_multiple_of(KERNEL_PAGE);
        assert!(range.end <= self.bytes, "{range:?} of {}", self.bytes);
        // SAFETY: inside the reservation.
        (unsafe { self.base.add(start) }.cast(), end - start)
    }

    fn open(&self, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (at, len) = self.kernel_pages(range);
        // SAFETY: the range is ours; opening it for access harms nobody.
        unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(|e| Error::io("mprotect", "buffer pool", e.raw_os_error()))?;
        // SAFETY: as above; the advice changes no contents. Huge pages save TLB misses; where the kernel refuses them
        // nothing is lost.
        let _ = unsafe { madvise(at, len, Advice::LinuxHugepage) };
        Ok(())
    }

    fn give_back(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (at, len) = self.kernel_pages(range);
        // SAFETY: the range is ours, and the caller promises that its contents are no longer wanted. Anonymous private
        // memory reads as zero afterwards.
        let given = unsafe { madvise(at, len, Advice::LinuxDontNeed) };
        debug_assert!(given.is_ok());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever looked into it borrowed the owner.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
