//! The operating system's file system, for the backends that use it.

use crate::aligned::AlignedBuf;
use crate::{Create, File, FileLock, OpenMode};
use myriad_base::{Error, Result};
use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, CWD};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An allocation from here on is not tried where the device says that it has less.
const LARGE_BYTES: u64 = 16 << 20;

/// The error of a failed call on `path`.
pub(crate) fn error(op: &'static str, path: &Path, errno: Errno) -> Error {
    Error::io(op, path.display().to_string(), errno.raw_os_error())
}

/// Runs `f` until it is not interrupted by a signal.
fn uninterrupted<T>(mut f: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// A file of the operating system.
pub(crate) struct OsFile {
    fd: OwnedFd,
    path: PathBuf,
    direct: bool,
}

impl OsFile {
    /// Opens the file; without `O_DIRECT` where the file system does not know it.
    pub(crate) fn open(path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags |= match mode.create {
            Create::No => OFlags::empty(),
            Create::IfMissing => OFlags::CREATE,
            Create::New => OFlags::CREATE | OFlags::EXCL,
        };
        let permissions = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        let open = |flags| uninterrupted(|| fs::open(path, flags, permissions));
        let opened = if mode.direct {
            match open(flags | OFlags::DIRECT) {
                // The refusal may come after the file was created, so the second try must not insist on creating it.
                Err(Errno::INVAL) => open(flags - OFlags::EXCL).map(|fd| (fd, false)),
                other => other.map(|fd| (fd, true)),
            }
        } else {
            open(flags).map(|fd| (fd, false))
        };
        let (fd, direct) = opened.map_err(|e| error("open", path, e))?;
        Ok(Arc::new(OsFile { fd, path: path.to_path_buf(), direct }))
    }

    fn error(&self, op: &'static str, errno: Errno) -> Error {
        error(op, &self.path, errno)
    }

    /// Whether the device has what is missing to `end` bytes. Asked before much is allocated: file systems take all that they
    /// have before they find that it is too little, and meanwhile others have none.
    fn check_room(&self, end: u64) -> Result<()> {
        let stat = fs::fstat(&self.fd).map_err(|e| self.error("stat", e))?;
        let taken = stat.st_blocks as u64 * 512;
        match fs::fstatvfs(&self.fd) {
            // Some file systems do not tell.
            Ok(room) if room.f_blocks > 0 && end.saturating_sub(taken) > room.f_bfree.saturating_mul(room.f_frsize) => {
                Err(self.error("fallocate", Errno::NOSPC))
            }
            _ => Ok(()),
        }
    }

    /// Zeros from the file's end to `end`, for file systems without `fallocate`.
    fn extend_with_zeros(&self, end: u64) -> Result<()> {
        let zeros = AlignedBuf::new(256 << 10);
        let mut at = self.len()?;
        while at < end {
            let n = (end - at).min(zeros.len() as u64) as usize;
            let n = if self.direct { n.next_multiple_of(AlignedBuf::ALIGN).min(zeros.len()) } else { n };
            self.write_at(&zeros[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let n = uninterrupted(|| rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64));
            match n.map_err(|e| self.error("read", e))? {
                0 => break,
                n => done += n,
            }
            // A direct read that ends inside a block has met the file's end; the rest could not be asked for anyway.
            if self.direct && done % AlignedBuf::ALIGN != 0 {
                break;
            }
        }
        Ok(done)
    }

    fn read_scattered_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let whole: usize = bufs.iter().map(|buf| buf.len()).sum();
        let n = uninterrupted(|| rustix::io::preadv(&self.fd, bufs, offset)).map_err(|e| self.error("read", e))?;
        // Where the kernel stopped early, at the file's end or not, each buffer is asked for by itself.
        if n == whole {
            Ok(n)
        } else {
            crate::read_one_by_one(self, bufs, offset)
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let n = uninterrupted(|| rustix::io::pwrite(&self.fd, &buf[done..], offset + done as u64));
            match n.map_err(|e| self.error("write", e))? {
                0 => return Err(self.error("write", Errno::NOSPC)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        uninterrupted(|| fs::fdatasync(&self.fd)).map_err(|e| self.error("fdatasync", e))
    }

    fn len(&self) -> Result<u64> {
        let stat = fs::fstat(&self.fd).map_err(|e| self.error("fstat", e))?;
        Ok(stat.st_size as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        uninterrupted(|| fs::ftruncate(&self.fd, len)).map_err(|e| self.error("ftruncate", e))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len >= LARGE_BYTES {
            self.check_room(offset + len)?;
        }
        match uninterrupted(|| fs::fallocate(&self.fd, FallocateFlags::empty(), offset, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.extend_with_zeros(offset + len),
            other => other.map_err(|e| self.error("fallocate", e)),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        if let (false, Some(len)) = (self.direct, std::num::NonZeroU64::new(len)) {
            // Only advice: what it fails to do, the read does.
            let _ = fs::fadvise(&self.fd, offset, Some(len), fs::Advice::WillNeed);
        }
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match uninterrupted(|| fs::fallocate(&self.fd, flags, offset, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => other.map_err(|e| self.error("punch hole", e)),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

struct OsLock {
    /// The lock goes with the descriptor.
    _fd: OwnedFd,
}

impl FileLock for OsLock {}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    match fs::mkdir(path, Mode::RWXU | Mode::RWXG) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match (path.is_dir(), path.read_link()) {
            (true, _) => Ok(()),
            (_, Ok(target)) => {
                let (path, target) = (path.display(), target.display());
                Err(Error::invalid(format!("{path} is a link to {target}, where no folder is")))
            }
            (_, Err(_)) => Err(error("mkdir", path, Errno::NOTDIR)),
        },
        Err(e) => Err(error("mkdir", path, e)),
    }
}

pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::unlinkat(CWD, path, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other.map_err(|e| error("unlink", path, e)),
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|e| error("rename", from, e))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = uninterrupted(|| fs::open(dir, flags, Mode::empty())).map_err(|e| error("open", dir, e))?;
    match uninterrupted(|| fs::fsync(&fd)) {
        // Some file systems, such as folders shared with a virtual machine, cannot: names are as durable as they make them.
        Err(Errno::INVAL) => Ok(()),
        other => other.map_err(|e| error("fsync", dir, e)),
    }
}

pub(crate) fn exists(path: &Path) -> Result<bool> {
    match fs::stat(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(e) => Err(error("stat", path, e)),
    }
}

pub(crate) fn list_dir(path: &Path) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| Error::io("list", path.display().to_string(), e.raw_os_error().unwrap_or(0));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn lock_file(path: &Path) -> Result<Box<dyn FileLock>> {
    lock(path, OFlags::RDWR | OFlags::CREATE, FlockOperation::NonBlockingLockExclusive)
}

/// For readers: keeps a server out, not other readers. The file must exist.
pub(crate) fn lock_file_shared(path: &Path) -> Result<Box<dyn FileLock>> {
    lock(path, OFlags::RDONLY, FlockOperation::NonBlockingLockShared)
}

fn lock(path: &Path, flags: OFlags, operation: FlockOperation) -> Result<Box<dyn FileLock>> {
    let flags = flags | OFlags::CLOEXEC;
    let fd = uninterrupted(|| fs::open(path, flags, Mode::RUSR | Mode::WUSR)).map_err(|e| error("open", path, e))?;
    match uninterrupted(|| fs::flock(&fd, operation)) {
        Ok(()) => Ok(Box::new(OsLock { _fd: fd })),
        Err(Errno::WOULDBLOCK) => Err(Error::DirectoryLocked { path: path.display().to_string() }),
        Err(e) => Err(error("flock", path, e)),
    }
}
