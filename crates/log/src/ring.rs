//! The ring in memory: LSN `l` lives at `l % size`.

use myriad_io::AlignedBuf;

/// Bytes that many threads copy into, each into the range it reserved.
pub(crate) struct Ring {
    /// Owns the memory; reached through `start` only.
    _bytes: AlignedBuf,
    start: *mut u8,
    size: u64,
}

// SAFETY: access is by the rules of `write` and `read`, whose callers own disjoint ranges.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// `size` must be a power of two.
    pub(crate) fn new(size: u64) -> Ring {
        assert!(size.is_power_of_two());
        let mut bytes = AlignedBuf::new(size as usize);
        let start = bytes.as_mut_ptr();
        Ring { _bytes: bytes, start, size }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Calls `f` for the one or two pieces of `[lsn, lsn + len)`: address and offset from `lsn`, and length.
    fn pieces(&self, lsn: u64, len: usize, mut f: impl FnMut(*mut u8, usize, usize)) {
        assert!(len as u64 <= self.size);
        let at = (lsn & (self.size - 1)) as usize;
        let first = len.min(self.size as usize - at);
        // SAFETY: `at` is inside the ring.
        f(unsafe { self.start.add(at) }, 0, first);
        if first < len {
            f(self.start, first, len - first);
        }
    }

    /// Copies `bytes` to `lsn`.
    ///
    /// # Safety
    /// Nobody else may touch the range meanwhile, and it must hold nothing that is still to be written to the file.
    pub(crate) unsafe fn write(&self, lsn: u64, bytes: &[u8]) {
        self.pieces(lsn, bytes.len(), |to, from, n| {
            // SAFETY: `pieces` stays inside the ring, and the range is the caller's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(from), to, n) }
        });
    }

    /// Copies what is at `lsn` to `out`.
    ///
    /// # Safety
    /// Nobody may write the range meanwhile.
    pub(crate) unsafe fn read(&self, lsn: u64, out: &mut [u8]) {
        let len = out.len();
        self.pieces(lsn, len, |from, to, n| {
            // SAFETY: `pieces` stays inside the ring, and nobody writes the range.
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(to), n) }
        });
    }
}
