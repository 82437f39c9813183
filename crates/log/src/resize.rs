//! A ring of another size while the log goes on.
//!
//! It takes a file of its own, `redo.log.new`, into which a copy (`copy.rs`) follows the log. When little is left, writers and
//! checkpoints wait for a moment: the rest is copied, the header written, all of it synced, and the file gets the log's name. Before
//! that name is durable nothing is written, so a crash finds the one file or the other, each with all that was
//! acknowledged. The next opening removes a `redo.log.new`.
//!
//! For a smaller ring the log must have become small first. A frame may be as long as a sixteenth of the ring that it was
//! appended to, and a scan of a smaller one would take it for the log's end. So appenders keep to the smaller ring from then on
//! (`appender_capacity`), in the length of frames and in how far they go from the checkpoint, and the copy begins at a checkpoint behind
//! which all do.

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
/// Checkpoints taken for a smaller ring: before appenders keep to it, so that they need not wait while much is written, and until
/// all behind the last suits it. What holds one up holds up the next, too.
const EARLY_CHECKPOINTS: u32 = 3;
const CHECKPOINTS: u32 = 20;
/// Pause between two.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn resized_path(dir: &Path) -> PathBuf {
    dir.join("#myriad").join("redo.log.new")
}

impl Log {
    /// Gives the log of `dir` a ring of `capacity_bytes`, rounded as in [`LogConfig`]. Others go on meanwhile, but for
    /// some syncs at the end. For a smaller ring `checkpoint` is called, which takes one at no less than what is the
    /// log's end then, if it can. After an error but [`Error::Poisoned`] the log is as before.
    ///
    /// # Errors
    /// [`Error::NotSupported`] while the log is off; [`Error::Invalid`] while a copy of the log is
    /// being made, if it was overwritten faster than it could be copied, or if no checkpoint made it small enough; [`Error::DiskFull`],
    /// [`Error::Io`], [`Error::Poisoned`]; those of `checkpoint`.
    pub fn resize(
        &self,
        io: &Arc<dyn Io>,
        dir: &Path,
        capacity_bytes: u64,
        checkpoint: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let capacity = LogConfig { capacity_bytes, ..self.config }.capacity();
        let now = self.file_capacity.load(Ordering::Acquire);
        if capacity == now {
            return Ok(());
        }
        self.check_copyable(&self.header.lock())?;
        let path = resized_path(dir);
        io.remove_file(&path)?;
        let resized = self.resize_into(io, dir, capacity, checkpoint);
        if resized.is_err() && self.check_poison().is_ok() {
            self.keep_to(now);
            // The first error is the one to tell; the next opening tries again.
            let _ = io.remove_file(&path);
        }
        resized
    }

    fn resize_into(
        &self,
        io: &Arc<dyn Io>,
        dir: &Path,
        capacity: u64,
        checkpoint: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let file = io.open(&resized_path(dir), OpenMode::NEW.with_direct(true))?;
        set_ring_aside(&*file, capacity)?;
        file.sync()?;
        if capacity < self.ring_bytes() {
            self.become_small(capacity, checkpoint)?;
        }
        let mut copy = LogCopy::into_file(self, Arc::clone(&file), Some(capacity), PATIENCE)?;
        let moved = self.move_to(file, &mut copy, io, dir, capacity);
        copy.give_up(self);
        moved
    }

    /// Makes everything from the last checkpoint on suit a ring of `capacity`, and all that comes.
    fn become_small(&self, capacity: u64, checkpoint: &dyn Fn() -> Result<()>) -> Result<()> {
        for _ in 0..EARLY_CHECKPOINTS {
            if self.age() <= capacity / 2 {
                break;
            }
            checkpoint()?;
        }
        let from = self.keep_to(capacity);
        for _ in 0..CHECKPOINTS {
            checkpoint()?;
            if self.checkpoint_lsn.load(Ordering::Acquire) >= from && self.age() <= self.capacity() {
                return Ok(());
            }
            self.room_made.wait_for(&mut self.room.lock(), PAUSE);
        }
        Err(Error::invalid("no checkpoint made the redo log as small as it is to be"))
    }

    /// Appenders keep to a ring of `capacity`, as all frames do from the LSN on that is returned.
    fn keep_to(&self, capacity: u64) -> u64 {
        let _header = self.header.lock();
        self.appender_capacity.store(capacity, Ordering::Release);
        self.set_throttle();
        self.slots.pass()
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
        let mut next = header.next();
        next.capacity = capacity;
        if self.written.load(Ordering::Acquire) > next.write_limit() {
            return Err(Error::invalid("the redo log grew faster than it could be made smaller"));
        }
        next.first_slot = 0;
        LogFile::new(Arc::clone(&file)).write_header(&next)?;
        let (path, log_path) = (resized_path(dir), log_path(dir));
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
        self.set_capacity(capacity);
        *header = next;
        self.set_throttle();
        Ok(())
    }
}
