//! Memory that O_DIRECT accepts.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ops::{Deref, DerefMut};

/// Zeroed bytes whose address is a multiple of 4096.
pub struct AlignedBuf {
    ptr: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

impl AlignedBuf {
    /// What addresses and lengths are multiples of.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes (at least one).
    pub fn new(len: usize) -> AlignedBuf {
        assert!(len > 0, "an aligned buffer holds something");
        let layout = AlignedBuf::layout(len);
        // SAFETY: the layout's size is not 0.
        let ptr = unsafe { alloc_zeroed(layout) };
        match std::ptr::NonNull::new(ptr) {
            Some(ptr) => AlignedBuf { ptr, len },
            None => handle_alloc_error(layout),
        }
    }

    /// Whether these bytes can go to or come from `off` of a direct file as they are.
    pub fn fits(bytes: &[u8], off: u64) -> bool {
        (bytes.as_ptr() as usize | bytes.len() | off as usize).is_multiple_of(AlignedBuf::ALIGN)
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, AlignedBuf::ALIGN).expect("a buffer's length fits the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), AlignedBuf::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that we own.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [1, 4096, 70_000] {
            let mut b = AlignedBuf::new(len);
            assert_eq!((b.as_ptr() as usize % AlignedBuf::ALIGN, b.len()), (0, len));
            assert!(b.iter().all(|&x| x == 0));
            b.fill(7);
        }
        let b = AlignedBuf::new(8192);
        assert!(AlignedBuf::fits(&b, 4096));
        assert!(!AlignedBuf::fits(&b[..512], 0));
        assert!(!AlignedBuf::fits(&b, 512));
    }
}
