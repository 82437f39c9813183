//! Filling of a table that nobody else sees yet.

use crate::error::{guard, guard_value};
use crate::rows::{give_duplicate, op};
use crate::session::{parts, SessionHandle};
use crate::table::TableHandle;
use crate::types::{name, COp, Status};
use myriad::{Engine, TableCopy};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

/// `myriad_copy`.
pub struct CopyHandle {
    engine: Arc<Engine>,
    copy: TableCopy,
}

/// Begins.
#[no_mangle]
pub unsafe extern "C" fn myriad_copy_begin(
    t: *mut TableHandle,
    tmp_dir: *const c_char,
    memory_bytes: u64,
    out: *mut *mut CopyHandle,
) -> Status {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard(Some(&t.engine), || {
        // SAFETY: NUL-terminated by contract unless null.
        let tmp_dir = if tmp_dir.is_null() { None } else { Some(Path::new(unsafe { name(tmp_dir) }?)) };
        let copy = TableCopy::begin(&t.table, tmp_dir.map(|dir| (dir, memory_bytes)))?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(CopyHandle { engine: Arc::clone(&t.engine), copy })) };
        Ok(Status::Ok)
    })
}

/// A row's operations.
#[no_mangle]
pub unsafe extern "C" fn myriad_copy_apply(
    c: *mut CopyHandle,
    s: *mut SessionHandle,
    ops: *const COp,
    count: u32,
    failed: *mut u32,
) -> Status {
    // SAFETY: a live copy and session by contract.
    let (CopyHandle { engine, copy }, (_, session)) = unsafe { (&mut *c, parts(s)) };
    guard(Some(engine), || {
        // SAFETY: valid for `count` operations by contract.
        let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
        // SAFETY: the operations' bytes are valid during the call by contract.
        match copy.apply(session, ops.iter().map(|o| unsafe { op(o) })) {
            Ok(()) => Ok(Status::Ok),
            Err(e) => {
                // SAFETY: valid by contract.
                unsafe {
                    give_duplicate(&e, session.last_duplicate(), failed, std::ptr::null_mut(), std::ptr::null_mut())
                };
                Err(e)
            }
        }
    })
}

/// Puts in what waits.
#[no_mangle]
pub unsafe extern "C" fn myriad_copy_finish(
    c: *mut CopyHandle,
    s: *mut SessionHandle,
    index_no: *mut u32,
    dup_key: *mut *const u8,
    dup_key_len: *mut usize,
) -> Status {
    // SAFETY: a live copy and session by contract.
    let (CopyHandle { engine, copy }, (_, session)) = unsafe { (&mut *c, parts(s)) };
    guard(Some(engine), || match copy.finish(session) {
        Ok(()) => Ok(Status::Ok),
        Err(e) => {
            // SAFETY: valid by contract.
            unsafe { give_duplicate(&e, copy.duplicate(), index_no, dup_key, dup_key_len) };
            Err(e)
        }
    })
}

/// Ends it; what waits is given up.
#[no_mangle]
pub unsafe extern "C" fn myriad_copy_free(c: *mut CopyHandle) {
    if c.is_null() {
        return;
    }
    // SAFETY: a live copy by contract, given up here.
    let CopyHandle { engine, copy } = *unsafe { Box::from_raw(c) };
    guard_value(Some(&engine), (), || drop(copy));
}
