//! What becomes of a table's rows while indexes are built.

use crate::error::{guard, guard_value};
use crate::rows::c_row;
use crate::session::{parts, SessionHandle};
use crate::table::TableHandle;
use crate::types::{name, CRow, Status};
use myriad::{Engine, Error, RowChanges};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

/// `myriad_row_changes`.
pub struct RowChangesHandle {
    engine: Arc<Engine>,
    changes: RowChanges,
}

/// `myriad_row_change_fn`.
pub type RowChangeFn = unsafe extern "C" fn(*mut c_void, *const CRow, *const CRow) -> Status;

/// Begins to follow the table.
#[no_mangle]
pub unsafe extern "C" fn myriad_row_changes_begin(
    before: *mut SessionHandle,
    t: *mut TableHandle,
    tmp_dir: *const c_char,
    memory_bytes: u64,
    out: *mut *mut RowChangesHandle,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, before), t) = unsafe { (parts(before), &*t) };
    guard(Some(engine), || {
        // SAFETY: NUL-terminated by contract.
        let tmp_dir = Path::new(unsafe { name(tmp_dir) }?);
        let changes = RowChanges::begin(before, &t.table, tmp_dir, memory_bytes)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(RowChangesHandle { engine: Arc::clone(&t.engine), changes })) };
        Ok(Status::Ok)
    })
}

/// Tells what has changed.
#[no_mangle]
pub unsafe extern "C" fn myriad_row_changes_visit(
    c: *mut RowChangesHandle,
    before: *mut SessionHandle,
    now: *mut SessionHandle,
    apart: bool,
    visit: Option<RowChangeFn>,
    arg: *mut c_void,
    count: *mut u64,
) -> Status {
    // SAFETY: live handles by contract, the sessions different ones.
    let (RowChangesHandle { engine, changes }, (_, before), (_, now)) = unsafe { (&mut *c, parts(before), parts(now)) };
    guard(Some(engine), || {
        let Some(visit) = visit else { return Err(Error::invalid("nobody to tell of changed rows")) };
        let mut refused = Status::Ok;
        let told = changes.visit(before, now, apart, &mut |change| {
            let (old, new) = (change.old.map(c_row), change.new.map(c_row));
            let at = |row: &Option<CRow>| row.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the callback is the caller's; the rows are valid during the call.
            refused = unsafe { visit(arg, at(&old), at(&new)) };
            // Whatever it is called, it ends the visit.
            if refused == Status::Ok {
                Ok(())
            } else {
                Err(Error::Interrupted)
            }
        });
        if refused != Status::Ok {
            return Ok(refused);
        }
        // SAFETY: valid by contract.
        unsafe { *count = told? };
        Ok(Status::Ok)
    })
}

/// Follows the table no longer.
#[no_mangle]
pub unsafe extern "C" fn myriad_row_changes_free(c: *mut RowChangesHandle) {
    if c.is_null() {
        return;
    }
    // SAFETY: a live handle by contract, given up here.
    let RowChangesHandle { engine, changes } = *unsafe { Box::from_raw(c) };
    guard_value(Some(&engine), (), || drop(changes));
}
