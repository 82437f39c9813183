//! Opening a file by its inode's number, which the folder's listing told, without looking its name up again.
//!
//! `open_by_handle_at(2)` takes what `name_to_handle_at(2)` gives. Where that is the inode's number and its generation, as
//! in ext4, a generation of 0 means any, so the listing is enough. Other file systems refuse it, and it takes
//! `CAP_DAC_READ_SEARCH`, which root has: whether it works is tried once.

use rustix::fs::{fstat, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel's FILEID_INO32_GEN: the inode's number and its generation, four bytes each.
const INODE_AND_GENERATION: i32 = 1;

/// `struct file_handle` with room for that type.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: u32,
    generation: u32,
}

impl Handle {
    fn of(inode: u32) -> Handle {
        Handle { bytes: 8, kind: INODE_AND_GENERATION, inode, generation: 0 }
    }
}

/// Whether files of `folder`'s file system can be opened by their inodes alone, tried with the one at `path`.
pub(super) fn can_open(folder: &OwnedFd, path: &Path, inode: u64) -> bool {
    let tried = || -> Option<bool> {
        let named = name_to_handle(folder, path).ok()?;
        if (named.kind, named.bytes, u64::from(named.inode)) != (INODE_AND_GENERATION, 8, inode) {
            return None;
        }
        let file = open(folder, inode, OFlags::NONBLOCK | OFlags::CLOEXEC).ok()?;
        let (file, folder) = (fstat(&file).ok()?, fstat(folder).ok()?);
        Some((file.st_ino, file.st_dev) == (inode, folder.st_dev))
    };
    tried().unwrap_or(false)
}

fn name_to_handle(folder: &OwnedFd, path: &Path) -> Result<Handle> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let (mut handle, mut mount) = (Handle::of(0), 0i32);
    let (to, mount_id) = (&raw mut handle, &raw mut mount);
    // SAFETY: all three pointers are valid for the call, and `bytes` says how much room the handle has.
    let done =
        unsafe { libc::syscall(libc::SYS_name_to_handle_at, folder.as_raw_fd(), path.as_ptr(), to, mount_id, 0) };
    if done < 0 {
        return Err(last_error());
    }
    Ok(handle)
}

/// The file with this inode in `folder`'s file system.
pub(super) fn open(folder: &OwnedFd, inode: u64, flags: OFlags) -> Result<OwnedFd> {
    let handle = Handle::of(u32::try_from(inode).map_err(|_| Errno::STALE)?);
    // SAFETY: the handle is valid for the call, and says its size.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, folder.as_raw_fd(), &raw const handle, flags.bits()) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call has made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
