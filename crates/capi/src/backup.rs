//! `myriad_backup_*`.

use crate::error::{guard, guard_value};
use crate::types::{name, EngineHandle, Status};
use myriad::{Backup, Engine, Error};
use myriad_base::waits::until_killed;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

/// `myriad_backup`.
pub struct BackupHandle {
    engine: Arc<Engine>,
    backup: Backup,
}

/// Told of files copied, files in all, thousandths of the file under way; false to stop.
pub type BackupWatch = unsafe extern "C" fn(*mut c_void, u64, u64, u32) -> bool;

/// Copies the files.
#[no_mangle]
pub unsafe extern "C" fn myriad_backup_begin(
    e: *mut EngineHandle,
    dir: *const c_char,
    watch: Option<BackupWatch>,
    arg: *mut c_void,
    out: *mut *mut BackupHandle,
) -> Status {
    // SAFETY: a live engine by contract.
    let engine = unsafe { &(*e).engine };
    guard(Some(engine), || {
        let watch = watch.ok_or_else(|| Error::invalid("no function to watch the backup"))?;
        // SAFETY: NUL-terminated by contract.
        let dir = Path::new(unsafe { name(dir) }?);
        // SAFETY: the callback is the caller's.
        let mut backup = until_killed(&|| !unsafe { watch(arg, 0, 0, 0) }, || engine.backup(dir))?;
        // SAFETY: the callback is the caller's.
        backup.copy_all(&mut |p| unsafe { watch(arg, p.files, p.files_total, p.file_permille) })?;
        backup.keep_up()?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(BackupHandle { engine: Arc::clone(engine), backup })) };
        Ok(Status::Ok)
    })
}

/// Completes the copy; frees it.
#[no_mangle]
pub unsafe extern "C" fn myriad_backup_finish(
    b: *mut BackupHandle,
    watch: Option<BackupWatch>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live backup by contract, given up here.
    let BackupHandle { engine, backup } = *unsafe { Box::from_raw(b) };
    guard(Some(&engine), || {
        let watch = watch.ok_or_else(|| Error::invalid("no function to watch the backup"))?;
        // SAFETY: the callback is the caller's.
        backup.finish(&mut |p| unsafe { watch(arg, p.files, p.files_total, p.file_permille) })?;
        Ok(Status::Ok)
    })
}

/// Removes the copy; frees it.
#[no_mangle]
pub unsafe extern "C" fn myriad_backup_abandon(b: *mut BackupHandle) {
    if b.is_null() {
        return;
    }
    // SAFETY: a live backup by contract, given up here.
    let BackupHandle { engine, backup } = *unsafe { Box::from_raw(b) };
    guard_value(Some(&engine), (), || drop(backup));
}
