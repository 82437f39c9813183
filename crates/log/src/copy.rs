//! A copy of the log, made elsewhere while the log goes on: what a backup needs to bring the pages that it copied to one
//! moment.
//!
//! The copy begins at a checkpoint and follows what is written. A checkpoint waits, for a time, until what it gives up has
//! been copied; then it goes on and the copy has failed: it may be late, but it never holds the log up for long. In the copy
//! positions are as in any log, `lsn % capacity`. Its ring begins as large as the original's and is doubled before it is
//! three quarters full; then what lies in odd laps of the smaller ring moves into the new half.

use crate::header::{Header, BLOCK, RING_START};
use crate::log::{self, log_path, Log};
use myriad_base::{Error, Lsn, Result};
use myriad_io::{AlignedBuf, File, Io, OpenMode, Syncs};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// How long a checkpoint sleeps before it looks again.
const LOOK: Duration = Duration::from_millis(10);
/// No copy is being made.
const NOBODY: u64 = u64::MAX;

/// What the log knows of the copy that is being made of it.
pub(crate) struct Reader {
    /// Where the copy begins.
    from: AtomicU64,
    /// From here on the log is still needed. Moves forward only, while a copy is being made.
    at: AtomicU64,
    /// A checkpoint has given up what was not copied.
    lost: AtomicBool,
    /// How long a checkpoint waits.
    patience: Mutex<Duration>,
    moved: Condvar,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            from: AtomicU64::new(NOBODY),
            at: AtomicU64::new(NOBODY),
            lost: AtomicBool::new(false),
            patience: Mutex::new(Duration::ZERO),
            moved: Condvar::new(),
        }
    }
}

impl Reader {
    fn advance(&self, at: u64) {
        // Under the latch, so that nobody is between his look and his sleep.
        let _patience = self.patience.lock();
        if !self.is_lost() {
            self.at.store(at, Ordering::Release);
        }
        self.moved.notify_all();
    }

    /// A checkpoint gives up what was not copied. The copy is still being made, for nothing, until whoever makes it knows: another
    /// one that began before would be taken for it.
    fn lose(&self) {
        let _patience = self.patience.lock();
        self.lost.store(true, Ordering::Release);
        self.at.store(NOBODY, Ordering::Release);
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.advance(NOBODY);
        self.from.store(NOBODY, Ordering::Release);
    }
}

/// A copy being made. Begun by [`LogCopy::begin`], ended by [`LogCopy::finish`] or [`LogCopy::give_up`].
pub struct LogCopy {
    file: Arc<dyn File>,
    /// The copy's.
    header: Header,
    /// Capacity of the original's ring.
    source_capacity: u64,
    /// Whether the copy's ring is to hold all from `header.checkpoint` on.
    doubles: bool,
    /// Everything before is copied.
    at: u64,
    buffer: AlignedBuf,
}

impl LogCopy {
    /// Begins a copy at the last checkpoint, in the file `#myriad/redo.log` under `dir`, which must not exist. A checkpoint
    /// waits for it as long as `patience`. One copy at a time.
    ///
    /// # Errors
    /// [`Error::NotSupported`] while the log is off, or has not been switched on wholly; [`Error::Invalid`] if another copy
    /// is being made; [`Error::DiskFull`], [`Error::Io`], [`Error::Poisoned`].
    pub fn begin(log: &Log, io: &Arc<dyn Io>, dir: &Path, patience: Duration) -> Result<LogCopy> {
        let file = io.open(&log_path(dir), OpenMode::NEW.with_direct(true))?;
        let copy = LogCopy::into_file(log, file, None, patience)?;
        match copy.set_aside(copy.header.capacity) {
            Ok(()) => Ok(copy),
            Err(e) => {
                copy.give_up(log);
                Err(e)
            }
        }
    }

    /// As [`LogCopy::begin`], in a file that has the room. With `capacity` the ring stays as large, and need not keep what
    /// precedes the original's last checkpoint, of which the caller sees to it that it has room for what follows.
    pub(crate) fn into_file(
        log: &Log,
        file: Arc<dyn File>,
        capacity: Option<u64>,
        patience: Duration,
    ) -> Result<LogCopy> {
        let mut header = log.begin_reading(patience)?;
        let (at, source_capacity, doubles) = (header.checkpoint, header.capacity, capacity.is_none());
        header.capacity = capacity.unwrap_or(source_capacity);
        Ok(LogCopy { file, header, source_capacity, doubles, at, buffer: AlignedBuf::new(CHUNK_BYTES as usize) })
    }

    /// Gives the file the length of such a ring, and room on the device where that costs nothing. The length first: where a
    /// file system has no `fallocate`, zeros are written from the file's end on, and the log would wait for a ring of them.
    fn set_aside(&self, capacity: u64) -> Result<()> {
        self.file.set_len(RING_START + capacity)?;
        self.file.allocate(0, RING_START + capacity)
    }

    /// The checkpoint from which recovery of the copy begins.
    pub fn checkpoint(&self) -> Lsn {
        Lsn(self.header.checkpoint)
    }

    /// Copies some of what has been written; false if that is all copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the log was overwritten first, [`Error::DiskFull`], [`Error::Io`], [`Error::Poisoned`]. The copy
    /// is of no use then.
    pub fn advance(&mut self, log: &Log) -> Result<bool> {
        log.check_poison()?;
        let written = log.written.load(Ordering::Acquire);
        if written <= self.at {
            return Ok(false);
        }
        let start = self.at - self.at % BLOCK;
        let to_ring_end = [self.source_capacity, self.header.capacity].map(|capacity| capacity - start % capacity);
        let end = written.min(start + CHUNK_BYTES.min(to_ring_end[0]).min(to_ring_end[1]));
        let padded = (end - start).next_multiple_of(BLOCK) as usize;
        let read = log.file().file.read_at(&mut self.buffer[..padded], RING_START + start % self.source_capacity)?;
        self.buffer[read..padded].fill(0);
        if log.reader.is_lost() {
            return Err(Error::invalid(
                "the log was overwritten before it was copied: the copy is slower than the log grows \
                 (see myriad_log_capacity)",
            ));
        }
        if self.doubles {
            self.make_room(end)?;
        }
        self.file.write_at(&self.buffer[..padded], RING_START + start % self.header.capacity)?;
        self.at = end;
        log.reader.advance(end - end % BLOCK);
        Ok(true)
    }

    /// Copies until less than a chunk is left: of a log that grows there is always something.
    pub(crate) fn catch_up(&mut self, log: &Log) -> Result<()> {
        while log.written.load(Ordering::Acquire) >= self.at + CHUNK_BYTES {
            self.advance(log)?;
        }
        Ok(())
    }

    /// Doubles the ring until everything before `end` fills no more than three quarters of it.
    fn make_room(&mut self, end: u64) -> Result<()> {
        let first = self.header.checkpoint - self.header.checkpoint % BLOCK;
        while end.next_multiple_of(BLOCK) - first > self.header.capacity / 4 * 3 {
            let old = self.header.capacity;
            self.set_aside(2 * old)?;
            let mut buffer = AlignedBuf::new(CHUNK_BYTES as usize);
            let (mut at, end) = (first, self.at.next_multiple_of(BLOCK));
            while at < end {
                let len = (end - at).min(old - at % old).min(CHUNK_BYTES);
                if (at / old) % 2 == 1 {
                    let bytes = &mut buffer[..len as usize];
                    let read = self.file.read_at(bytes, RING_START + at % old)?;
                    bytes[read..].fill(0);
                    self.file.write_at(bytes, RING_START + at % old + old)?;
                }
                at += len;
            }
            self.header.capacity = 2 * old;
        }
        Ok(())
    }

    /// Makes `end`, which must be durable, the end of the copy; the file is durable when this returns. Its name is not.
    ///
    /// # Errors
    /// As [`LogCopy::advance`].
    pub fn finish(mut self, log: &Log, end: Lsn) -> Result<()> {
        let done = self.finish_at(log, end.0);
        self.give_up(log);
        done
    }

    fn finish_at(&mut self, log: &Log, end: u64) -> Result<()> {
        assert!(log.durable_lsn().0 >= end, "what is not durable may still be lost");
        while self.at < end && self.advance(log)? {}
        assert!(self.at >= end);
        // What was copied beyond must not be found: it would look as if the log had been damaged at its end.
        self.make_room(end + BLOCK)?;
        let block = end - end % BLOCK;
        let (offset, kept) = (RING_START + block % self.header.capacity, (end - block) as usize);
        let bytes = &mut self.buffer[..BLOCK as usize];
        self.file.read_at(bytes, offset)?;
        bytes[kept..].fill(0);
        self.file.write_at(bytes, offset)?;
        log::zero(&*self.file, self.header.capacity, block + BLOCK, self.at.next_multiple_of(BLOCK))?;
        self.header.trim_generations();
        self.header.write(&*self.file, &Syncs::default())
    }

    /// The log is free again; the file stays as it is, without a header.
    pub fn give_up(self, log: &Log) {
        log.reader.end();
    }
}

impl Log {
    /// Whether a copy can be begun.
    pub(crate) fn check_copyable(&self, header: &Header) -> Result<()> {
        self.check_poison()?;
        if header.unlogged {
            return Err(Error::NotSupported { what: "a copy of the log while myriad_redo_log is OFF".into() });
        }
        match self.reader.from.load(Ordering::Acquire) {
            NOBODY => Ok(()),
            _ => Err(Error::invalid("a copy of the log is being made already")),
        }
    }

    /// Keeps what is in the log from the last checkpoint on; the header that a copy begins with.
    fn begin_reading(&self, patience: Duration) -> Result<Header> {
        let header = self.header.lock();
        self.check_copyable(&header)?;
        *self.reader.patience.lock() = patience;
        self.reader.lost.store(false, Ordering::Release);
        self.reader.from.store(header.checkpoint, Ordering::Release);
        self.reader.at.store(header.checkpoint - header.checkpoint % BLOCK, Ordering::Release);
        Ok(Header { sequence: 1, first_slot: 0, ..header.clone() })
    }

    /// Where recovery begins, of this log or of a copy that is being made: what nobody needs to redo before that can be
    /// given up for good.
    pub fn redo_start(&self) -> Lsn {
        let (checkpoint, _) = self.last_checkpoint();
        let copied_from = self.reader.from.load(Ordering::Acquire);
        if self.reader.is_lost() {
            return checkpoint;
        }
        Lsn(checkpoint.0.min(copied_from))
    }

    /// Whether a copy that is being made has all that a checkpoint at `lsn` gives up; also if none is made.
    pub fn is_copied(&self, lsn: Lsn) -> bool {
        self.reader.at.load(Ordering::Acquire) >= lsn.0 - lsn.0 % BLOCK
    }

    /// The header's latch, once what a checkpoint at `lsn` gives up has been copied, or has been waited for long enough.
    pub(crate) fn header_for_checkpoint(&self, lsn: Lsn) -> MutexGuard<'_, Header> {
        let mut since = None;
        loop {
            let header = self.header.lock();
            if self.is_copied(lsn) {
                return header;
            }
            let begun = *since.get_or_insert_with(Instant::now);
            let mut patience = self.reader.patience.lock();
            if begun.elapsed() >= *patience {
                drop(patience);
                self.reader.lose();
                return header;
            }
            drop(header);
            if !self.is_copied(lsn) {
                self.reader.moved.wait_for(&mut patience, LOOK);
            }
        }
    }
}
