//! Room `io`: files through a trait, and its backends.
//!
//! Holds the traits [`Io`] and [`File`] through which every other room reaches the disk, and three backends: [`ThreadIo`]
//! (`pread` and `pwrite`, batches spread over a few threads), [`UringIo`] (a batch is one system call) and [`SimIo`] (a
//! disk in memory, with crashes and injected faults); [`OverlayIo`], a read-only view of the operating system's files;
//! [`FileWatch`], which counts and times the calls to any of them; and [`Syncs`], by which those who share a file learn of each
//! other's failed syncs. Never looks into what it reads and writes, never retries a failed
//! call; starts no thread before it is asked for a batch.
//!
//! Invariants:
//! - A read is short only at the end of a file; a write is whole or an error. After an error the range's contents are
//!   unspecified: old, new or a mix.
//! - What was written is durable only after [`File::sync`] said so; a name only after [`Io::sync_dir`] of its directory.
//! - [`Io::submit`] returns only when no request of the batch is in flight any more.
//!
//! Entry points: [`open_io`], [`Io::submit`], [`SimIo::new`].

mod aligned;
mod machine;
mod os;
#[cfg(test)]
mod os_tests;
mod overlay;
mod sim;
mod syncs;
mod threads;
mod uring;
mod watched;

pub use aligned::AlignedBuf;
pub use machine::{memory_bytes, CpuList, OnCpus};
pub use overlay::OverlayIo;
pub use sim::{CallKind, Fault, LostWrite, SimIo};
pub use syncs::{SyncMark, SyncNo, Syncing, Syncs, Turn};
pub use threads::ThreadIo;
pub use uring::UringIo;
pub use watched::{FileCall, FileRole, FileStats, FileWatch, SLOW};

use myriad_base::Result;
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

/// Whether [`Io::open`] may create the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    No,
    /// Create it if it does not exist.
    IfMissing,
    /// It must not exist.
    New,
}

/// How to open a file.
#[derive(Clone, Copy, Debug)]
pub struct OpenMode {
    /// Whether it may or must be created.
    pub create: Create,
    /// Bypass the page cache where the file system allows it; then buffers, offsets and lengths must be multiples of 4096.
    pub direct: bool,
    /// Open for writing too.
    pub write: bool,
}

impl OpenMode {
    /// An existing file, for reading.
    pub const READ: OpenMode = OpenMode { create: Create::No, direct: false, write: false };
    /// An existing file, for reading and writing.
    pub const WRITE: OpenMode = OpenMode { create: Create::No, direct: false, write: true };
    /// A new file, for reading and writing.
    pub const NEW: OpenMode = OpenMode { create: Create::New, direct: false, write: true };

    /// The same, bypassing the page cache.
    pub const fn with_direct(self, direct: bool) -> OpenMode {
        OpenMode { direct, ..self }
    }
}

/// An open file. All offsets and lengths are in bytes.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync {
    /// Reads from `off` until `buf` is full or the file ends; the number of bytes read.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize>;
    /// Reads what lies behind one another in the file from `off` into several buffers, one after the other, as
    /// [`File::read_at`]; the number of bytes read.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn read_scattered_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<usize> {
        read_one_by_one(self, bufs, off)
    }
    /// Writes all of `buf` at `off`.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`], [`myriad_base::Error::DiskFull`]; part of it may have been written.
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()>;
    /// Makes what was written durable (fdatasync).
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`]: what was written since the last sync may be lost, and a later sync's success says
    /// nothing about it. Those who share a file sync it through [`Syncs`].
    fn sync(&self) -> Result<()>;
    /// The file's length.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn len(&self) -> Result<u64>;
    /// Sets the length; a longer file reads as zeros.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves space on the device for a range and extends the file to hold it, so that writes there find room.
    ///
    /// # Errors
    /// [`myriad_base::Error::DiskFull`], [`myriad_base::Error::Io`].
    fn allocate(&self, off: u64, len: u64) -> Result<()>;
    /// Gives a range's space back to the file system; it reads as zeros. Nothing where that is not supported.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn punch_hole(&self, off: u64, len: u64) -> Result<()>;
    /// Announces that a range will be read soon, where the page cache can make use of it. Never fails, promises nothing.
    fn will_need(&self, off: u64, len: u64) {
        let _ = (off, len);
    }
    /// Its path.
    fn path(&self) -> &Path;
    /// Whether it passes the page cache by: addresses, offsets and lengths must then be multiples of
    /// [`AlignedBuf::ALIGN`].
    fn is_direct(&self) -> bool {
        false
    }
    /// The descriptor, for backends that hand it to the kernel themselves.
    fn raw_fd(&self) -> Option<i32> {
        None
    }
    /// Of a file whose calls a [`FileWatch`] counts: the one behind it, and what it is to the engine.
    fn unwatched(&self) -> Option<(&dyn File, FileRole)> {
        None
    }
}

/// [`File::read_scattered_at`] with a read for each buffer.
fn read_one_by_one<F: File + ?Sized>(file: &F, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<usize> {
    let mut done = 0;
    for buf in bufs {
        let n = file.read_at(buf, off + done as u64)?;
        done += n;
        if n < buf.len() {
            break;
        }
    }
    Ok(done)
}

/// What a request of a batch moves.
pub enum IoBuf<'a> {
    /// Read into these bytes.
    Read(&'a mut [u8]),
    /// Write these bytes.
    Write(&'a [u8]),
    /// Nothing: make what was written to the file before the batch durable, as [`File::sync`].
    Sync,
}

/// A read, write or sync of a batch. Requests of a batch run in any order: a sync says nothing of writes beside it.
pub struct IoRequest<'a> {
    /// The file.
    pub file: &'a dyn File,
    /// Where in it.
    pub off: u64,
    /// The bytes.
    pub buf: IoBuf<'a>,
    /// Filled in by [`Io::submit`]: bytes moved (fewer only for a read at the file's end, 0 by a sync), or
    /// why not.
    pub result: Result<usize>,
}

impl std::fmt::Debug for IoBuf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IoBuf::Read(buf) => write!(f, "Read({} bytes)", buf.len()),
            IoBuf::Write(buf) => write!(f, "Write({} bytes)", buf.len()),
            IoBuf::Sync => write!(f, "Sync"),
        }
    }
}

impl std::fmt::Debug for IoRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("IoRequest");
        shown.field("file", &self.file.path()).field("off", &self.off).field("buf", &self.buf);
        shown.field("result", &self.result).finish()
    }
}

impl<'a> IoRequest<'a> {
    /// A read that fills `buf`.
    pub fn read(file: &'a dyn File, buf: &'a mut [u8], off: u64) -> IoRequest<'a> {
        IoRequest { file, off, buf: IoBuf::Read(buf), result: Err(not_run(file)) }
    }

    /// A write of all of `buf`.
    pub fn write(file: &'a dyn File, buf: &'a [u8], off: u64) -> IoRequest<'a> {
        IoRequest { file, off, buf: IoBuf::Write(buf), result: Err(not_run(file)) }
    }

    /// A sync of what was written before.
    pub fn sync(file: &'a dyn File) -> IoRequest<'a> {
        IoRequest { file, off: 0, buf: IoBuf::Sync, result: Err(not_run(file)) }
    }

    /// Does it now, by the file's own calls.
    pub(crate) fn run(&mut self) {
        self.result = match &mut self.buf {
            IoBuf::Read(buf) => self.file.read_at(buf, self.off),
            IoBuf::Write(buf) => self.file.write_at(buf, self.off).map(|()| buf.len()),
            IoBuf::Sync => self.file.sync().map(|()| 0),
        };
    }
}

/// The result of a request that has not run.
fn not_run(file: &dyn File) -> myriad_base::Error {
    myriad_base::Error::invalid(format!("request on {} was not submitted", file.path().display()))
}

/// Held while this process owns the data directory; given back when dropped.
pub trait FileLock: Send + Sync {}

/// A file system.
pub trait Io: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Creates a folder; its parents must exist. No error if it is there.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes a file. No error if it is gone.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Renames a file, replacing what bears the new name.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes creations, renames and removals in a folder durable.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Whether the path exists.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Names in a folder, in no order.
    ///
    /// # Errors
    /// [`myriad_base::Error::Io`].
    fn list_dir(&self, path: &Path) -> Result<Vec<String>>;
    /// Takes a file as the sign that this process owns the directory; creates it if it is missing.
    ///
    /// # Errors
    /// [`myriad_base::Error::DirectoryLocked`] if another process has it.
    fn lock_file(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// Runs all requests of the batch, at the same time as far as the backend can, and waits for them.
    fn submit(&self, batch: &mut [IoRequest<'_>]);
    /// The backend's name for people: `uring`, `threads` or `simulation`.
    fn name(&self) -> &'static str;
}

/// Which backend to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMethod {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// Blocking calls on a pool of threads.
    Threads,
}

/// The operating system's files, with batches run as `method` says.
///
/// # Errors
/// [`myriad_base::Error::NotSupported`] with the reason if io_uring is asked for and the kernel refuses it.
pub fn open_io(method: IoMethod) -> Result<Arc<dyn Io>> {
    open_io_or_why(method).map(|opened| opened.0)
}

/// As [`open_io`]; and, if [`IoMethod::Auto`] had to do without io_uring, why.
///
/// # Errors
/// As [`open_io`].
pub fn open_io_or_why(method: IoMethod) -> Result<(Arc<dyn Io>, Option<myriad_base::Error>)> {
    choose(method, || Ok(Arc::new(UringIo::new()?)))
}

fn choose(
    method: IoMethod,
    uring: impl FnOnce() -> Result<Arc<dyn Io>>,
) -> Result<(Arc<dyn Io>, Option<myriad_base::Error>)> {
    let threads = |why| -> (Arc<dyn Io>, _) { (Arc::new(ThreadIo::new()), why) };
    Ok(match method {
        IoMethod::Threads => threads(None),
        IoMethod::Uring => (uring()?, None),
        IoMethod::Auto => match uring() {
            Ok(io) => (io, None),
            Err(why) => threads(Some(why)),
        },
    })
}
