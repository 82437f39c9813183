//! Appending: reservation by one atomic add (see `slots`), copying in parallel.

use crate::frame::{self, HEADER_BYTES};
use crate::header::BLOCK;
use crate::log::Log;
use crate::slots::SlotNo;
use myriad_base::latch::thread_no;
use myriad_base::{Error, Lsn, Result};
use std::sync::atomic::Ordering;

/// A taken slot; given back when dropped.
struct Inserting<'a> {
    log: &'a Log,
    slot: SlotNo,
    complete: bool,
}

impl Drop for Inserting<'_> {
    fn drop(&mut self) {
        if !self.complete {
            // What was reserved must never become durable. After a failed write the log is poisoned already.
            let _ = self.log.poison("a panic while a frame was appended");
        }
        self.log.slots.release(self.slot);
    }
}

impl Log {
    /// Appends a frame and calls `while_open(start, end)` once it is copied, before anybody can learn that it is: until
    /// then [`Log::contiguous_lsn`] stays at or below `start`. Returns the frame's end. `while_open` must not append,
    /// flush or wait.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::TooLong`] for an empty or too long body (see [`Log::body_bytes_max`]). Then
    /// `while_open` was not called.
    #[inline]
    pub fn append(&self, body: &[u8], while_open: impl FnOnce(Lsn, Lsn)) -> Result<Lsn> {
        self.check_poison()?;
        if body.is_empty() || body.len() > self.body_bytes_max() {
            return Err(Error::TooLong { what: "log frame", len: body.len(), max: self.body_bytes_max() });
        }
        let bytes = frame::frame_bytes(body.len()) as u64;
        let mut inserting = Inserting { log: self, slot: self.slots.take(thread_no()), complete: false };
        let start = self.slots.reserve(inserting.slot, bytes);
        let end = start + bytes;
        // Again: from where appenders keep to a smaller ring on, no frame may be too long for it.
        if body.len() > self.body_bytes_max() {
            return Err(self.poison(&format!("a frame of {bytes} bytes while the log was made smaller")));
        }
        if !self.has_ring_room(end) {
            self.wait_for_ring_room(end)?;
        }
        let header = frame::header(start, self.generation.load(Ordering::Relaxed), body);
        let padding = [0u8; 8];
        let body_end = start + (HEADER_BYTES + body.len()) as u64;
        // SAFETY: the range was reserved by this thread alone, and `has_ring_room` saw that what its bytes held before
        // has been written.
        unsafe {
            self.ring.write(start, &header);
            self.ring.write(start + HEADER_BYTES as u64, body);
            self.ring.write(body_end, &padding[..(end - body_end) as usize]);
        }
        while_open(Lsn(start), Lsn(end));
        inserting.complete = true;
        drop(inserting);
        self.note_append(start, end);
        Ok(Lsn(end))
    }

    /// Whether the ring in memory can take what ends at `end`: the block in which `written` lies is still needed.
    #[inline]
    fn has_ring_room(&self, end: u64) -> bool {
        let written = self.written.load(Ordering::Acquire);
        end <= written - written % BLOCK + self.ring.size()
    }

    /// Writes the log itself until there is room. The slot that holds the smallest position always gets it: all before it
    /// is complete, and a frame is at most half the ring.
    #[cold]
    fn wait_for_ring_room(&self, end: u64) -> Result<()> {
        self.counters.buffer_waits.fetch_add(1, Ordering::Relaxed);
        let mut patience = self.patience();
        while !self.has_ring_room(end) {
            self.check_poison()?;
            let before = self.written.load(Ordering::Acquire);
            if self.write_some()? == before {
                patience.wait_for_writability()?;
            }
        }
        Ok(())
    }

    /// Everything before this is copied and its `while_open` has run: a checkpoint may rely on what those did.
    pub fn contiguous_lsn(&self) -> Lsn {
        let limit = self.slots.complete();
        Lsn(self.contiguous.fetch_max(limit, Ordering::AcqRel).max(limit))
    }
}
