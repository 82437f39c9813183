//! The log: its state, creation and opening.

use crate::behind::Behind;
use crate::calls::Calls;
use crate::copy::Reader;
use crate::flush::{Waiter, Writer};
use crate::header::{Generation, Header, BLOCK, GENERATIONS_MAX, RING_START};
use crate::resize::resized_path;
use crate::ring::Ring;
use crate::scan::{FileRing, FrameBeyond};
use crate::slots::Slots;
use crate::waiters::{Waiters, Waiting};
use crate::{frame, CapacityHook, FrameVisitor};
use crossbeam_utils::CachePadded;
use myriad_base::{Error, Lsn, Result};
use myriad_io::{AlignedBuf, Create, File, Io, OpenMode, SyncMark, Syncs};
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The first LSN of a data directory. Not 0: a page without changes has LSN 0.
pub(crate) const FIRST_LSN: u64 = BLOCK;
/// Bytes written with zeros at creation; the rest is set aside only, and written by the first lap. On ext4 a sync of 4 KiB
/// into space merely set aside takes twice as long as into space once written (190 against 90 us here), because it also
/// has to note the space as written.
const ZEROED_BYTES: u64 = 1 << 30;
const CAPACITY_MIN: u64 = 256 << 10;
const BUFFER_MIN: u64 = 64 << 10;
const BUFFER_MAX: u64 = 1 << 30;

/// Sizes of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Bytes of the ring in the file; rounded up to 4 KiB, at least 256 KiB.
    pub capacity_bytes: u64,
    /// Bytes of the ring in memory; rounded up to a power of two, at least 64 KiB, at most 1 GiB and the capacity.
    pub buffer_bytes: usize,
}

impl LogConfig {
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity_bytes.max(CAPACITY_MIN).next_multiple_of(BLOCK)
    }

    fn buffer(&self) -> u64 {
        let fits = 1 << self.capacity().ilog2();
        (self.buffer_bytes as u64).clamp(BUFFER_MIN, BUFFER_MAX).next_power_of_two().min(fits)
    }
}

/// Figures since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Frames appended (exact when nobody appends).
    pub appends: u64,
    /// Their bytes with headers and padding.
    pub appended_bytes: u64,
    /// Writes to the file.
    pub writes: u64,
    /// Bytes written to the file.
    pub written_bytes: u64,
    /// Syncs of the file for those who wait.
    pub syncs: u64,
    /// Calls of [`Log::flush_to`] that found work to do or to wait for.
    pub flush_waits: u64,
    /// Nanoseconds that they waited for a write and sync of others.
    pub flush_wait_ns: u64,
    /// Calls of [`Log::reserve_check`] that were slowed down or waited.
    pub capacity_waits: u64,
    /// Appends that found the ring in memory full.
    pub buffer_waits: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Bytes between the checkpoint and the end.
    pub age_bytes: u64,
    /// [`Log::capacity`].
    pub capacity_bytes: u64,
}

/// Counters off the hot path.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) flush_waits: AtomicU64,
    pub(crate) flush_wait_ns: AtomicU64,
    pub(crate) capacity_waits: AtomicU64,
    pub(crate) buffer_waits: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

/// The write-ahead log of one data directory.
pub struct Log {
    /// Changes under `header` and `writer`, see `resize.rs`.
    pub(crate) file: RwLock<Arc<LogFile>>,
    // What is written often stands on cache lines of its own: the rest is read by every append.
    pub(crate) slots: Slots,
    pub(crate) ring: Ring,
    /// End of what has reached the operating system. Grows under `writer`.
    pub(crate) written: CachePadded<AtomicU64>,
    pub(crate) durable: CachePadded<AtomicU64>,
    /// Everything before is complete; grows only.
    pub(crate) contiguous: CachePadded<AtomicU64>,
    /// The checkpoint's LSN, as in `header` unless that is marked.
    pub(crate) checkpoint_lsn: AtomicU64,
    /// [`Log::reserve_check`] returns at once, and counts nobody, while the end is below this.
    pub(crate) throttle_at: AtomicU64,
    /// Those whom [`Log::reserve_check`] counts, until they have appended.
    pub(crate) admitted: AtomicU64,
    /// Bytes of the ring in the file; changes in `resume_at` and in `resize`, there under `header` and `writer`.
    pub(crate) file_capacity: AtomicU64,
    /// The ring that appenders keep to: the file's, or a smaller one that is to take its place.
    pub(crate) appender_capacity: AtomicU64,
    /// Generation of frames appended now.
    pub(crate) generation: AtomicU32,
    /// Nothing is written to the file, see `unlogged.rs`. Changes under `header` and `writer`.
    pub(crate) off: AtomicBool,
    /// Frames from here on are in the file; a checkpoint before it leaves the mark. Changes under `header`.
    pub(crate) resumed_from: AtomicU64,
    resumed: AtomicBool,
    poisoned: AtomicBool,
    poison_reason: Mutex<String>,
    /// See [`Log::refuse`].
    refusal: OnceLock<String>,
    pub(crate) writer: CachePadded<Mutex<Writer>>,
    pub(crate) behind: Behind,
    /// Who copies the log.
    pub(crate) reader: Reader,
    pub(crate) waiters: Waiters<Waiter>,
    /// Those a leader is about to tell.
    pub(crate) served: Mutex<Vec<Waiting<Waiter>>>,
    pub(crate) calls: Calls,
    /// The header as it is in the file.
    pub(crate) header: Mutex<Header>,
    /// Signalled at each checkpoint.
    pub(crate) room: Mutex<()>,
    pub(crate) room_made: Condvar,
    pub(crate) hook: RwLock<Option<Arc<CapacityHook>>>,
    pub(crate) counters: CachePadded<Counters>,
    /// LSN at which this run of the engine began to append.
    start_lsn: AtomicU64,
    pub(crate) config: LogConfig,
}

/// The file, and those who sync it.
pub(crate) struct LogFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) syncs: Syncs,
}

impl LogFile {
    pub(crate) fn new(file: Arc<dyn File>) -> LogFile {
        LogFile { file, syncs: Syncs::default() }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.syncs.sync(&*self.file, SyncMark::START)
    }

    pub(crate) fn write_header(&self, header: &Header) -> Result<()> {
        header.write(&*self.file, &self.syncs)
    }
}

pub(crate) fn log_path(dir: &Path) -> PathBuf {
    dir.join("#myriad").join("redo.log")
}

/// Makes the file `len` bytes long. If the device has less, none of it stays taken: most file systems leave what they found to the
/// file, and who sees to the full disk would not look for it in a start that was refused.
pub(crate) fn set_aside(file: &dyn File, len: u64) -> Result<()> {
    let before = file.len()?;
    file.allocate(0, len).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = file.set_len(before);
    })
}

/// As [`set_aside`] for the file of such a ring, and what is needed first is written.
pub(crate) fn set_ring_aside(file: &dyn File, capacity: u64) -> Result<()> {
    set_aside(file, RING_START + capacity)?;
    zero(file, capacity, 0, capacity.min(ZEROED_BYTES))
}

impl Log {
    /// Creates the log of a new data directory `dir` (its folder `#myriad/` must exist); file and name are durable when
    /// this returns. A log that is there already is overwritten.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn create(io: &Arc<dyn Io>, dir: &Path, config: LogConfig, uuid: [u8; 16]) -> Result<()> {
        let path = log_path(dir);
        // Past the operating system's cache: nobody needs a ring of zeros there.
        let file = io.open(&path, OpenMode { create: Create::IfMissing, direct: true, write: true })?;
        file.set_len(0)?;
        let capacity = config.capacity();
        set_ring_aside(&*file, capacity)?;
        let generations = vec![Generation { first_lsn: FIRST_LSN, number: 1 }];
        let header = Header {
            uuid,
            capacity,
            sequence: 1,
            checkpoint: FIRST_LSN,
            payload: Vec::new(),
            unlogged: false,
            generations,
            first_slot: 0,
        };
        LogFile::new(file).write_header(&header)?;
        io.sync_dir(path.parent().expect("the log is in a folder"))
    }

    /// Opens the log; reads its header only. [`Log::scan`] and [`Log::resume_at`] come next.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] when both headers are damaged or the file's end is missing, [`Error::Format`], [`Error::Io`];
    /// [`Error::Unlogged`] when the engine ended while the log was off.
    pub fn open(io: &Arc<dyn Io>, dir: &Path, config: LogConfig) -> Result<Log> {
        // Of a change of size that did not come to its end.
        if io.exists(&resized_path(dir))? {
            io.remove_file(&resized_path(dir))?;
        }
        let path = log_path(dir);
        let file = io.open(&path, OpenMode::WRITE)?;
        // One of another size may have its name from a process that was killed right then: a power failure must not bring back the one
        // before it once this one has been used.
        io.sync_dir(path.parent().expect("the log is in a folder"))?;
        let header = Header::read(&*file)?;
        if header.unlogged {
            return Err(Error::Unlogged { path: file.path().display().to_string() });
        }
        // A header is written when the file has what it tells of. Commits may have been in what is gone.
        let (len, whole) = (file.len()?, RING_START + header.capacity);
        if len < whole {
            let reason = format!("it has {len} of {whole} bytes: its end was cut off");
            return Err(Error::CorruptFile { path: file.path().display().to_string(), reason });
        }
        let log = Log {
            file: RwLock::new(Arc::new(LogFile::new(file))),
            slots: Slots::new(header.checkpoint),
            ring: Ring::new(config.buffer()),
            written: CachePadded::new(AtomicU64::new(header.checkpoint)),
            durable: CachePadded::new(AtomicU64::new(header.checkpoint)),
            contiguous: CachePadded::new(AtomicU64::new(header.checkpoint)),
            checkpoint_lsn: AtomicU64::new(header.checkpoint),
            throttle_at: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            file_capacity: AtomicU64::new(header.capacity),
            appender_capacity: AtomicU64::new(header.capacity),
            generation: AtomicU32::new(0),
            off: AtomicBool::new(false),
            resumed_from: AtomicU64::new(0),
            resumed: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            poison_reason: Mutex::new(String::new()),
            refusal: OnceLock::new(),
            writer: CachePadded::new(Mutex::new(Writer::new())),
            behind: Behind::default(),
            reader: Reader::default(),
            waiters: Waiters::new(),
            served: Mutex::new(Vec::new()),
            calls: Calls::default(),
            header: Mutex::new(header),
            room: Mutex::new(()),
            room_made: Condvar::new(),
            hook: RwLock::new(None),
            counters: CachePadded::default(),
            start_lsn: AtomicU64::new(0),
            config,
        };
        log.set_throttle();
        Ok(log)
    }

    /// The data directory's UUID, as the log has it.
    pub fn uuid(&self) -> [u8; 16] {
        self.header.lock().uuid
    }

    /// Reads the frames from `from` (a frame's start at or after the checkpoint) and calls `f(start, end, body)` for
    /// each, up to the first that is not whole; its start is returned, the end of the log. Only before
    /// [`Log::resume_at`].
    ///
    /// # Errors
    /// What `f` returns; [`Error::Io`].
    pub fn scan(&self, from: Lsn, f: &mut FrameVisitor<'_>) -> Result<Lsn> {
        assert!(!self.resumed.load(Ordering::Acquire), "the log is scanned before it is appended to");
        let header = self.header.lock().clone();
        if from.0 < header.checkpoint {
            let reason = format!("a scan before the checkpoint at {}", header.checkpoint);
            return Err(Error::CorruptLog { lsn: from, reason });
        }
        FileRing::new(&*self.file().file, &header).scan(from.0, f).map(Lsn)
    }

    /// A whole frame close behind the `end` that [`Log::scan`] gave. Then what is between was written, and is not there: a power
    /// failure kept the one and not the other, which nobody had been told is durable; or it was damaged.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn frame_beyond(&self, end: Lsn) -> Result<Option<FrameBeyond>> {
        let header = self.header.lock().clone();
        FileRing::new(&*self.file().file, &header).frame_beyond(end.0)
    }

    /// Begins to append at `end`, as given by [`Log::scan`]. What precedes it is durable when this returns. When nothing
    /// is to be redone, the file takes the size that the settings ask for.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]; [`Error::CorruptLog`] if the file no longer has what was found.
    pub fn resume_at(&self, end: Lsn) -> Result<()> {
        assert!(!self.resumed.load(Ordering::Acquire), "the log is resumed once");
        assert!(end.0.is_multiple_of(8));
        let log_file = self.file();
        let file = &*log_file.file;
        let mut header = self.header.lock();
        assert!(end.0 >= header.checkpoint);
        if end.0 > header.checkpoint {
            FileRing::new(file, &header).rewrite(end.0)?;
            // The header that says that a generation begins at `end` says, too, that all before it is on the device.
            log_file.sync()?;
        }
        // The block in which `end` lies is written again, whole.
        let block = end.0 - end.0 % BLOCK;
        let mut bytes = vec![0; (end.0 - block) as usize];
        FileRing::new(file, &header).read(block, &mut bytes)?;
        let mut next = header.next();
        if end.0 == header.checkpoint {
            next.capacity = self.config.capacity();
        }
        begin_generation(&log_file, &mut next, end.0)?;
        let (whole, wanted) = (RING_START + header.capacity, RING_START + next.capacity);
        if whole < wanted {
            // What lies behind may come from a start whose sync has failed: nobody can tell whether it is on the device.
            if file.len()? > whole {
                file.set_len(whole)?;
            }
            set_aside(file, wanted)?;
            // The header that tells this size must not be on the device before it.
            log_file.sync()?;
        }
        log_file.write_header(&next)?;
        if file.len()? > wanted {
            file.set_len(wanted)?;
        }
        // SAFETY: nobody appends yet.
        unsafe { self.ring.write(block, &bytes) };
        self.generation.store(next.generation_at(end.0), Ordering::Release);
        self.set_capacity(next.capacity);
        *header = next;
        drop(header);
        self.slots.restart(end.0);
        for position in [&*self.written, &*self.durable, &self.contiguous, &self.start_lsn] {
            position.store(end.0, Ordering::SeqCst);
        }
        self.set_throttle();
        self.resumed.store(true, Ordering::Release);
        Ok(())
    }

    /// Where the openings of the log began whose frames may be needed, ascending; the last is this one's once the log has been
    /// resumed, unless there were very many without a checkpoint.
    pub fn generation_starts(&self) -> Vec<Lsn> {
        self.header.lock().generations.iter().map(|g| Lsn(g.first_lsn)).collect()
    }

    pub(crate) fn file(&self) -> Arc<LogFile> {
        Arc::clone(&self.file.read())
    }

    /// The file's path.
    pub fn path(&self) -> String {
        self.file().file.path().display().to_string()
    }

    /// Longest body of a frame in bytes.
    pub fn body_bytes_max(&self) -> usize {
        let ring = self.ring.size() / 2;
        body_bytes_max(self.appender_capacity.load(Ordering::Acquire).min(ring * 16))
    }

    /// The ring in the file has this size now.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.file_capacity.store(capacity, Ordering::Release);
        self.appender_capacity.store(capacity, Ordering::Release);
    }

    /// End of what has been reserved.
    #[inline]
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.slots.end())
    }

    /// Everything before this is durable.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Stops the log; the first reason stays.
    #[cold]
    pub(crate) fn poison(&self, reason: &str) -> Error {
        {
            let mut kept = self.poison_reason.lock();
            if !self.poisoned.swap(true, Ordering::SeqCst) {
                kept.push_str(reason);
            }
        }
        let _room = self.room.lock();
        self.room_made.notify_all();
        self.poison_error()
    }

    #[cold]
    fn poison_error(&self) -> Error {
        Error::Poisoned { reason: self.poison_reason.lock().clone() }
    }

    /// Whether the log is still good.
    ///
    /// # Errors
    /// [`Error::Poisoned`] with the first cause.
    #[inline]
    pub fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(self.poison_error());
        }
        Ok(())
    }

    /// No checkpoint will make room any more: whoever waits for one before he appends is told why.
    pub fn refuse(&self, reason: &str) {
        let _ = self.refusal.set(reason.into());
        let _room = self.room.lock();
        self.room_made.notify_all();
    }

    /// Whether it is worth waiting for a checkpoint.
    ///
    /// # Errors
    /// [`Error::Poisoned`], also where the log itself is good ([`Log::refuse`]).
    pub(crate) fn check_awaited(&self) -> Result<()> {
        self.check_poison()?;
        self.refusal.get().map_or(Ok(()), |reason| Err(Error::Poisoned { reason: reason.clone() }))
    }

    /// Poisons the log if the file refused something.
    pub(crate) fn must<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| self.poison(&format!("the log cannot be written: {e}")))
    }

    /// Figures.
    pub fn stats(&self) -> LogStats {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let c = &self.counters;
        LogStats {
            appends: self.slots.count(),
            appended_bytes: self.slots.end().saturating_sub(get(&self.start_lsn)),
            writes: get(&c.writes),
            written_bytes: get(&c.written_bytes),
            syncs: get(&c.syncs),
            flush_waits: get(&c.flush_waits),
            flush_wait_ns: get(&c.flush_wait_ns),
            capacity_waits: get(&c.capacity_waits),
            buffer_waits: get(&c.buffer_waits),
            checkpoints: get(&c.checkpoints),
            age_bytes: self.age(),
            capacity_bytes: self.capacity(),
        }
    }
}

/// Frames from `end` on get a number never used before.
fn begin_generation(log_file: &LogFile, header: &mut Header, end: u64) -> Result<()> {
    let number = header.next_generation();
    header.generations.retain(|g| g.first_lsn < end);
    if header.generations.len() == GENERATIONS_MAX {
        let file = &*log_file.file;
        // So many starts without one checkpoint. Remove by force what a new number would have ruled out: all whole
        // blocks up to the checkpoint's, of which a full ring has none, and the rest of the end's.
        let (from, to) = (end.next_multiple_of(BLOCK), header.write_limit());
        zero(file, header.capacity, from, to)?;
        if end < from {
            let block = from - BLOCK;
            let mut bytes = AlignedBuf::new(BLOCK as usize);
            FileRing::new(file, header).read(block, &mut bytes[..(end - block) as usize])?;
            file.write_at(&bytes, RING_START + block % header.capacity)?;
        }
        return log_file.sync();
    }
    header.generations.push(Generation { first_lsn: end, number });
    Ok(())
}

/// Longest body of a frame in a file of this capacity, whatever ring in memory its writer has.
pub(crate) fn body_bytes_max(capacity: u64) -> usize {
    (capacity / 16).min(BUFFER_MAX / 2) as usize - 2 * frame::HEADER_BYTES
}

/// Writes zeros to the file's ring of `capacity` bytes, from `lsn` up to `end`, both at blocks.
pub(crate) fn zero(file: &dyn File, capacity: u64, mut lsn: u64, end: u64) -> Result<()> {
    let zeros = AlignedBuf::new(1 << 20);
    while lsn < end {
        let at = lsn % capacity;
        let len = (end - lsn).min(capacity - at).min(zeros.len() as u64);
        file.write_at(&zeros[..len as usize], RING_START + at)?;
        lsn += len;
    }
    Ok(())
}
