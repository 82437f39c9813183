//! Frames: one mapped region of page-sized slots, and a descriptor of one cache line for each.

use myriad_base::latch::{HybridLatch, LatchClass};
use myriad_base::page::PageKind;
use myriad_base::{Error, PageId, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

/// A frame's number within the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameNo(pub u32);

/// "No frame" in links and chains.
pub(crate) const NIL: u32 = u32::MAX;
/// "No page" in a frame: page number [`myriad_base::PageNo::NONE`] of a tablespace that never exists.
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// A frame untouched since the clock hand last passed: the next victim.
pub(crate) const USAGE_COLD: u8 = 0;
/// Read once.
pub(crate) const USAGE_WARM: u8 = 1;
/// Fixed again while in memory.
pub(crate) const USAGE_HOT: u8 = 2;

/// A write of the page is under way; the frame stays on its dirty list until the write is durable.
pub(crate) const STATE_WRITING: u32 = 1;
/// Of two places on the dirty list the second is the older one. Changed under the dirty list lock.
pub(crate) const STATE_SECOND: u32 = 2;

/// Descriptor of a frame. What guards what:
///
/// | field | changed under | read |
/// |---|---|---|
/// | `page_id` | frame X latch (and the page table's bucket lock) | anywhere, to be re-checked under the latch |
/// | `hash_next` | bucket lock of the page in the frame | anywhere, to be re-checked under the latch |
/// | `recovery_mark`, `dirty_*` | the shard's dirty list lock | `recovery_mark` anywhere |
/// | `state` WRITING | set under frame S latch, cleared under the dirty list lock | anywhere |
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

    /// The counters' row for this frame's latch.
    #[inline]
    pub fn latch_class(&self) -> LatchClass {
        match self.class.load(Ordering::Relaxed) {
            0 => LatchClass::IndexPage,
            1 => LatchClass::UndoPage,
            _ => LatchClass::OtherPage,
        }
    }

    /// Remembers the latch class that goes with a page kind.
    pub fn set_kind(&self, kind: u8) {
        let class = match PageKind::from_u8(kind) {
            Some(PageKind::Index) => LatchClass::IndexPage,
            Some(PageKind::Undo) => LatchClass::UndoPage,
            _ => LatchClass::OtherPage,
        };
        self.class.store(class as u8, Ordering::Relaxed);
    }

    /// Marks a use. Writes only when that changes something, so a hot frame's cache line stays shared.
    #[inline]
    pub fn touch(&self) {
        if self.usage.load(Ordering::Relaxed) != USAGE_HOT {
            self.usage.store(USAGE_HOT, Ordering::Relaxed);
        }
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

/// The region and its descriptors.
pub(crate) struct Frames {
    base: *mut u8,
    region_bytes: usize,
    page_size: usize,
    page_shift: u32,
    all: Box<[Frame]>,
}

// SAFETY: the region is plain memory, owned until drop; who may touch which bytes is governed by the frames' latches.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Maps `count` frames of `page_size` bytes (a power of two). The kernel gives memory at first touch.
    pub fn new(count: usize, page_size: usize) -> Result<Frames> {
        assert!(page_size.is_power_of_two() && count > 0 && count < NIL as usize / 2);
        let region_bytes =
            count.checked_mul(page_size).ok_or_else(|| Error::invalid("buffer pool size beyond the address space"))?;
        use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
        // SAFETY: a new anonymous private mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), region_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .map_err(|e| Error::io("mmap", "buffer pool", e.raw_os_error()))?
        .cast::<u8>();
        // SAFETY: the range is the mapping just made; the advice changes no contents. Huge pages save TLB misses; where
        // the kernel refuses them nothing is lost.
        let _ = unsafe { rustix::mm::madvise(base.cast(), region_bytes, rustix::mm::Advice::LinuxHugepage) };
        let all = (0..count).map(|_| Frame::new()).collect();
        Ok(Frames { base, region_bytes, page_size, page_shift: page_size.trailing_zeros(), all })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    #[inline]
    pub fn get(&self, frame: u32) -> &Frame {
        &self.all[frame as usize]
    }

    /// Address of the frame's page.
    #[inline]
    pub fn ptr(&self, frame: u32) -> *mut u8 {
        debug_assert!((frame as usize) < self.all.len());
        // SAFETY: the frame number is below the count, so the slot lies inside the mapping.
        unsafe { self.base.add((frame as usize) << self.page_shift) }
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

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every guard borrows the pool that owns this.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.region_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
