//! A larger ring while the log goes on.
//!
//! It takes a file of its own, `redo.log.new`, into which a copy (`copy.rs`) follows the log. When little is left, writers and
//! checkpoints wait for a moment: the rest is copied, the header written, all of it synced, and the file gets the log's name. Before
//! that name is durable nothing is written, so a crash finds the one file or the other, each with all that was
//! acknowledged. The next opening removes a `redo.log.new`.
//!
//! A smaller ring has to wait for a start with nothing to redo: a frame may be as long as a sixteenth of the ring that it was
//! appended to, and a scan of a smaller one would take it for the log's end.

use crate::copy::LogCopy;
use crate::log::{log_path, set_ring_aside, Log, LogConfig, LogFile};
use myriad_base::{Error, Result};
use myriad_io::{File, Io, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a checkpoint waits for the copy.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn grown_path(dir: &Path) -> PathBuf {
    dir.join("#myriad").join("redo.log.new")
}

impl Log {
    /// Gives the log of `dir` a ring of `capacity_bytes`, rounded as in [`LogConfig`]. Others go on meanwhile, but for
    /// some syncs at the end. After an error but [`Error::Poisoned`] the log is as before.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a ring smaller than the log has, and while the log is off; [`Error::Invalid`] while a copy of the log is
    /// being made, or if it was overwritten faster than it could be copied; [`Error::DiskFull`], [`Error::Io`],
    /// [`Error::Poisoned`].
    pub fn grow(&self, io: &Arc<dyn Io>, dir: &Path, capacity_bytes: u64) -> Result<()> {
        let capacity = LogConfig { capacity_bytes, ..self.config }.capacity();
        let now = self.file_capacity.load(Ordering::Acquire);
        if capacity < now {
            let what = format!("a redo log smaller than its {now} bytes before a restart");
            return Err(Error::NotSupported { what });
        }
        if capacity == now {
            return Ok(());
        }
        let path = grown_path(dir);
        io.remove_file(&path)?;
        let grown = self.grow_into(io, dir, capacity);
        if grown.is_err() && self.check_poison().is_ok() {
            // The first error is the one to tell; the next opening tries again.
            let _ = io.remove_file(&path);
        }
        grown
    }

    fn grow_into(&self, io: &Arc<dyn Io>, dir: &Path, capacity: u64) -> Result<()> {
        let file = io.open(&grown_path(dir), OpenMode::NEW.with_direct(true))?;
        set_ring_aside(&*file, capacity)?;
        file.sync()?;
        let mut copy = LogCopy::into_file(self, Arc::clone(&file), Some(capacity), PATIENCE)?;
        let moved = self.move_to(file, &mut copy, io, dir, capacity);
        copy.give_up(self);
        moved
    }

    fn move_to(
        &self,
        file: Arc<dyn File>,
        copy: &mut LogCopy,
        io: &Arc<dyn Io>,
        dir: &Path,
        capacity: u64,
    ) -> Result<()> {
        copy.catch_up(self)?;
        // The last sync, for which others wait, finds little to do.
        file.sync()?;
        copy.catch_up(self)?;
        let mut header = self.header.lock();
        let _writer = self.writer.lock();
        while copy.advance(self)? {}
        let mut next = header.clone();
        next.capacity = capacity;
        next.sequence += 1;
        next.first_slot = 0;
        LogFile::new(Arc::clone(&file)).write_header(&next)?;
        let (path, log_path) = (grown_path(dir), log_path(dir));
        let folder = log_path.parent().expect("the log is in a folder");
        // It is opened for this: where the process may open no more files, that is told while the log is as before.
        io.sync_dir(folder)?;
        if let Err(e) = io.rename(&path, &log_path) {
            let renamed = !io.exists(&path).unwrap_or(false);
            return Err(if renamed { self.poison(&format!("which file is the log is not known: {e}")) } else { e });
        }
        self.must(io.sync_dir(folder))?;
        // Through the operating system's cache, as always, and under the name that errors tell; the copy was written past it.
        let file = io.open(&log_path, OpenMode::WRITE).unwrap_or(file);
        *self.file.write() = Arc::new(LogFile::new(file));
        self.file_capacity.store(capacity, Ordering::Release);
        *header = next;
        self.set_throttle();
        Ok(())
    }
}
