//! In-place index build.

use crate::error::{guard, guard_value};
use crate::rows::give_duplicate;
use crate::session::{parts, SessionHandle};
use crate::table::TableHandle;
use crate::types::{bytes, name, Status};
use myriad::{Engine, IndexBuild, Result};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

/// `myriad_index_build`.
pub struct BuildHandle {
    engine: Arc<Engine>,
    pub(crate) build: IndexBuild,
}

/// Begins.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_begin(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    unique: bool,
    tmp_dir: *const c_char,
    memory_bytes: u64,
    out: *mut *mut BuildHandle,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        // SAFETY: NUL-terminated by contract.
        let tmp_dir = Path::new(unsafe { name(tmp_dir) }?);
        let build = IndexBuild::begin(session, &t.table, unique, tmp_dir, memory_bytes)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(BuildHandle { engine: Arc::clone(&t.engine), build })) };
        Ok(Status::Ok)
    })
}

/// Adds an entry, in any order.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_add(
    b: *mut BuildHandle,
    key: *const u8,
    key_len: usize,
    unique_len: usize,
    value: *const u8,
    value_len: usize,
) -> Status {
    // SAFETY: a live build and valid bytes by contract.
    let (b, key, value) = unsafe { (&mut *b, bytes(key, key_len), bytes(value, value_len)) };
    guard(Some(&b.engine), || b.build.add(key, unique_len, value).map(|()| Status::Ok))
}

/// Sorts, checks uniqueness, writes the tree.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_finish(
    b: *mut BuildHandle,
    dup_key: *mut *const u8,
    dup_key_len: *mut usize,
) -> Status {
    // SAFETY: by contract.
    unsafe { give_duplicate_of(b, IndexBuild::finish, dup_key, dup_key_len) }
}

/// Removes an entry from the finished index.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_remove(b: *mut BuildHandle, key: *const u8, key_len: usize) -> Status {
    // SAFETY: a live build and valid bytes by contract.
    let (b, key) = unsafe { (&mut *b, bytes(key, key_len)) };
    guard(Some(&b.engine), || b.build.remove(key).map(|()| Status::Ok))
}

/// Puts what was added since into the finished index.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_catch_up(
    b: *mut BuildHandle,
    dup_key: *mut *const u8,
    dup_key_len: *mut usize,
) -> Status {
    // SAFETY: by contract.
    unsafe { give_duplicate_of(b, IndexBuild::catch_up, dup_key, dup_key_len) }
}

/// # Safety
/// A live build; `dup_key` is null or valid with `dup_key_len`.
unsafe fn give_duplicate_of(
    b: *mut BuildHandle,
    run: impl FnOnce(&mut IndexBuild) -> Result<()>,
    dup_key: *mut *const u8,
    dup_key_len: *mut usize,
) -> Status {
    // SAFETY: a live build by contract.
    let b = unsafe { &mut *b };
    guard(Some(&b.engine), || {
        run(&mut b.build).map(|()| Status::Ok).inspect_err(|e| {
            // SAFETY: valid by contract.
            unsafe { give_duplicate(e, (0, b.build.duplicate()), std::ptr::null_mut(), dup_key, dup_key_len) };
        })
    })
}

/// Drops what was not adopted.
#[no_mangle]
pub unsafe extern "C" fn myriad_index_build_free(b: *mut BuildHandle) {
    if b.is_null() {
        return;
    }
    // SAFETY: a live build by contract, given up here.
    let b = unsafe { Box::from_raw(b) };
    let engine = Arc::clone(&b.engine);
    guard_value(Some(&engine), (), || drop(b));
}
