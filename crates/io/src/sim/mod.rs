//! A simulated disk in memory, for tests that cut the power.
//!
//! What is written is visible at once and durable only after a sync, names only after a sync of their directory.
//! [`SimIo::crash`] gives the disk as a power failure leaves it: all that was synced, and of the rest whatever a seed
//! picks, writes possibly torn at 512-byte sectors. Faults can be injected by kind of call and path. With one thread
//! everything is a function of the seeds and the calls.
//!
//! Differences from a real file system, all on the safe side or noted: names become durable in the order of the calls
//! (as with a journal); a failed sync makes an arbitrary part of what was pending durable and forgets the rest, as Linux
//! does; a hole counts as taken room.

mod content;
mod disk;
mod lost_write;
#[cfg(test)]
mod tests;

use crate::{AlignedBuf, File, FileLock, Io, IoRequest, OpenMode};
use content::Pending;
use disk::{Disk, NodeId};
pub use lost_write::LostWrite;
use myriad_base::{Error, Result};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Kinds of calls, for faults and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CallKind {
    /// Opening or creating a file.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making a file durable.
    Sync,
    /// Setting room aside.
    Allocate,
    /// Setting the length.
    SetLen,
    /// Giving room back.
    Punch,
    /// Removing a name.
    Remove,
    /// Renaming.
    Rename,
    /// Making a directory durable.
    SyncDir,
    /// Creating a directory.
    CreateDir,
}

/// Number of [`CallKind`]s.
const CALL_KINDS: usize = 11;

/// What goes wrong in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with `EIO` and has no effect, except that a sync loses an arbitrary part.
    Eio,
    /// It fails with `ENOSPC` and has no effect.
    Enospc,
    /// It fails with `EMFILE` and has no effect: the process has as many files open as it may.
    Emfile,
    /// A write fails with `EIO` after a part of it.
    ShortWrite,
    /// It says `Ok`: a write is readable but never becomes durable, anything else does nothing.
    Lost,
    /// One bit of what is read, or written, is the wrong one.
    FlipBit,
}

/// A simulated disk. Clones share it.
#[derive(Clone)]
pub struct SimIo {
    disk: Arc<Mutex<Disk>>,
}

impl std::fmt::Debug for SimIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimIo").field("is_off", &self.is_off()).finish_non_exhaustive()
    }
}

impl SimIo {
    /// An empty disk. Directories directly under the root (`/data`) are there; others must be created.
    pub fn new(seed: u64) -> SimIo {
        SimIo { disk: Arc::new(Mutex::new(Disk::new(seed))) }
    }

    /// The disk as a power failure at this moment leaves it. This one goes on by itself and no longer matters.
    pub fn crash(&self, seed: u64) -> SimIo {
        SimIo { disk: Arc::new(Mutex::new(self.disk.lock().crash(seed))) }
    }

    /// The disk as the end of the process at this moment leaves it: as it is, without locks and faults.
    pub fn kill(&self, seed: u64) -> SimIo {
        SimIo { disk: Arc::new(Mutex::new(self.disk.lock().kill(seed))) }
    }

    /// Cuts the power at the `nth` call from now (0 = the next) that would change something: it and all later calls fail
    /// with `EIO`. A write then is among what a crash may keep.
    pub fn power_off_after(&self, nth: u64) {
        self.disk.lock().power_off_after(Some(nth));
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.disk.lock().is_off()
    }

    /// Makes a call go wrong: the `nth` from now (0 = the next) of this kind whose path contains `path`; with `sticky`
    /// all such calls after it too.
    pub fn inject(&self, kind: CallKind, path: &str, nth: u64, fault: Fault, sticky: bool) {
        self.disk.lock().inject(kind, path, nth, fault, sticky);
    }

    /// Forgets all injected faults.
    pub fn clear_faults(&self) {
        self.disk.lock().clear_faults();
    }

    /// Calls of a kind so far.
    pub fn calls(&self, kind: CallKind) -> u64 {
        self.disk.lock().calls[kind as usize]
    }

    /// Bytes that all files may have together; `None` = no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk.lock().capacity = bytes;
    }

    /// From now on room is set aside as where a file system has no `fallocate`: zeros are written from the file's end on.
    pub fn forget_fallocate(&self) {
        self.disk.lock().no_fallocate = true;
    }

    /// Bytes that all files have together.
    pub fn used_bytes(&self) -> u64 {
        self.disk.lock().used_bytes()
    }

    /// Flips one bit of a file, durably.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such file.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        self.disk.lock().flip_bit(path, offset, bit)
    }

    /// Overwrites a part of a file, durably and past all faults: damage from outside.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such file.
    pub fn scribble(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        self.disk.lock().scribble(path, offset, bytes)
    }

    /// Cuts a file, durably and past all faults.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such file.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        self.disk.lock().truncate(path, len)
    }
}

impl Io for SimIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let node = self.disk.lock().open(path, mode)?;
        let file = SimFile { disk: Arc::clone(&self.disk), node, path: path.into(), mode };
        Ok(Arc::new(file))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.disk.lock().create_dir(path)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.disk.lock().remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.lock().rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.disk.lock().sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.lock().exists(path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.disk.lock().list_dir(path)
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let mut disk = self.disk.lock();
        disk.open(path, OpenMode { create: crate::Create::IfMissing, direct: false, write: true })?;
        if !disk.locks.insert(path.into()) {
            return Err(Error::DirectoryLocked { path: path.display().to_string() });
        }
        Ok(Box::new(SimLock { disk: Arc::clone(&self.disk), path: path.into() }))
    }

    fn submit(&self, batch: &mut [IoRequest<'_>]) {
        // In any order: nobody may rely on one.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        self.disk.lock().random.shuffle(&mut order);
        for i in order {
            batch[i].run();
        }
    }

    fn name(&self) -> &'static str {
        "simulation"
    }
}

struct SimLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.path);
    }
}

struct SimFile {
    disk: Arc<Mutex<Disk>>,
    node: NodeId,
    path: PathBuf,
    mode: OpenMode,
}

impl SimFile {
    fn check_alignment(&self, buf: &[u8], off: u64) {
        assert!(
            !self.mode.direct || AlignedBuf::fits(buf, off),
            "direct access to {} with address {:p}, offset {off}, length {}",
            self.path.display(),
            buf.as_ptr(),
            buf.len()
        );
    }

    /// Runs a call that changes the file.
    fn change(&self, kind: CallKind, op: &'static str, change: Pending) -> Result<()> {
        if !self.mode.write {
            const EBADF: i32 = 9;
            return Err(Error::io(op, self.path.display().to_string(), EBADF));
        }
        self.disk.lock().change(self.node, kind, op, &self.path, change)
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize> {
        self.check_alignment(buf, off);
        self.disk.lock().read(self.node, &self.path, buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.check_alignment(buf, off);
        self.change(CallKind::Write, "write", Pending::Write { off, data: buf.into() })?;
        let holdup = self.disk.lock().holdup.clone();
        if let Some(holdup) = holdup {
            holdup.after_write(&self.path);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let (result, holdup) = {
            let mut disk = self.disk.lock();
            (disk.sync(self.node, &self.path), disk.holdup.clone())
        };
        if let Some(holdup) = holdup {
            holdup.after_sync(&self.path, &result);
        }
        result
    }

    fn len(&self) -> Result<u64> {
        self.disk.lock().len(self.node, &self.path)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(CallKind::SetLen, "ftruncate", Pending::SetLen(len))
    }

    fn allocate(&self, off: u64, len: u64) -> Result<()> {
        if !self.disk.lock().no_fallocate {
            return self.change(CallKind::Allocate, "fallocate", Pending::Grow(off + len));
        }
        let mut at = self.len()?;
        while at < off + len {
            let zeros = AlignedBuf::new((off + len - at).min(256 << 10) as usize);
            self.write_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        Ok(())
    }

    fn punch_hole(&self, off: u64, len: u64) -> Result<()> {
        self.change(CallKind::Punch, "punch hole", Pending::Punch { off, len })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.mode.direct
    }
}
