//! Running without the log: nothing is written to its file, and a mark in its header says so.
//!
//! While the log is off everything in memory goes on: positions are reserved, frames copied, and whoever wants them written
//! or durable is told that they are. Three states:
//!
//! | state | frames reach the file | mark in the header |
//! |---|---|---|
//! | on | yes | no |
//! | off | no | yes |
//! | resuming | from `resumed_from` on | yes, until a checkpoint at or after `resumed_from` |
//!
//! The mark is durable before the first frame is left out, and goes with the same header write that makes the checkpoint
//! durable which needs none of those frames. So a log without the mark is whole from its checkpoint to its end, and one with
//! it is refused by [`Log::open`].

use crate::log::Log;
use myriad_base::{Lsn, Result};
use std::sync::atomic::Ordering;

impl Log {
    /// Whether frames appended now are left out of the file.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire)
    }

    /// Whether the header says that the log is not whole: from before the log is off until the first checkpoint that needs
    /// nothing of what was left out.
    pub fn is_unlogged(&self) -> bool {
        self.header.lock().unlogged
    }

    /// Marks the log and stops writing to its file; frames count as durable from now on. The mark is durable when this
    /// returns. Whatever recovery found in the log must have been redone: its room in the file will be used again.
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`] if the header cannot be written.
    pub fn stop_writing(&self) -> Result<()> {
        let mut header = self.header.lock();
        self.check_poison()?;
        if !header.unlogged {
            let mut next = header.next();
            next.unlogged = true;
            self.must(self.file().write_header(&next))?;
            *header = next;
        }
        let _writer = self.writer.lock();
        self.off.store(true, Ordering::Release);
        self.set_throttle();
        Ok(())
    }

    /// Writes what is appended from now on; returns the LSN at which that begins. The mark stays until a checkpoint at or
    /// after it, which is the caller's to bring about.
    ///
    /// # Errors
    /// [`myriad_base::Error::Poisoned`].
    pub fn resume_writing(&self) -> Result<Lsn> {
        // Locked until all is set: whoever takes a checkpoint sees one state or the other.
        let _header = self.header.lock();
        let _writer = self.writer.lock();
        let end = self.contiguous_lsn();
        self.check_poison()?;
        if self.is_off() {
            self.written.fetch_max(end.0, Ordering::AcqRel);
            self.durable.fetch_max(end.0, Ordering::AcqRel);
            self.checkpoint_lsn.fetch_max(end.0, Ordering::AcqRel);
            self.resumed_from.store(end.0, Ordering::Release);
            self.off.store(false, Ordering::Release);
            self.set_throttle();
        }
        Ok(Lsn(self.resumed_from.load(Ordering::Acquire)))
    }

    /// While the log is off: makes everything before `lsn` count as durable, once it is complete. False if the log is on.
    pub(crate) fn pass_unwritten(&self, lsn: Lsn) -> Result<bool> {
        self.write_to(lsn)?;
        // Both at one moment: what is written after the log has been resumed still needs a sync.
        let _writer = self.writer.lock();
        if !self.is_off() {
            return Ok(false);
        }
        self.durable.fetch_max(self.written.load(Ordering::Acquire), Ordering::AcqRel);
        Ok(true)
    }
}
