//! Switching the log off for bulk work, and on again (`myriad_redo_log`).
//!
//! Off: pages are written once, to make room only, and their writers do not wait for the log. On: what is appended from now on
//! reaches the log again; then every page changed before that is written, and the checkpoint after it takes the mark away.

use crate::pool::BufferPool;
use myriad_base::{Error, Result};

impl BufferPool {
    /// Switches the log off. From here on, until [`BufferPool::resume_logging`] has returned, a crash leaves a data directory
    /// that cannot be opened. Finishes redo first.
    ///
    /// # Errors
    /// [`Error::NotSupported`] while pages found by recovery cannot be read, so that their changes are in the log alone;
    /// [`Error::Poisoned`].
    pub fn stop_logging(&self) -> Result<()> {
        self.check_poison()?;
        self.redo_all();
        let left = self.pending.len();
        if left > 0 {
            let what = format!("switching the redo log off while recovery has {left} pages left to redo");
            return Err(Error::NotSupported { what });
        }
        self.log().stop_writing()
    }

    /// Switches the log on and writes every page changed while it was off; when this returns a crash is survived again.
    /// The caller holds no latch.
    ///
    /// # Errors
    /// As [`BufferPool::checkpoint_now`]; the log is off again then, unless the engine has stopped.
    pub fn resume_logging(&self) -> Result<()> {
        if !self.log().is_unlogged() {
            return Ok(());
        }
        // Most of it while nobody can be stopped by a log that fills.
        self.checkpoint_now()?;
        self.log().resume_writing()?;
        let written = self.checkpoint_now();
        if !self.log().is_unlogged() {
            return Ok(());
        }
        let stopped = self.log().stop_writing();
        written.and(stopped)?;
        let what = "switching the redo log on while changed pages cannot be written".into();
        Err(Error::NotSupported { what })
    }
}
