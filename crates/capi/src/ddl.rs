//! Definitions.

use crate::build::BuildHandle;
use crate::engine::placement;
use crate::error::guard;
use crate::types::{bytes, name, CIndexSpec, CTableSpec, EngineHandle, Status, TextFn};
use myriad::{Error, IndexSpec, Result, TableSpec};
use std::ffi::{c_char, c_void};

/// # Safety
/// `specs` must be valid for `count` elements.
unsafe fn index_specs(specs: *const CIndexSpec, count: u32) -> Vec<IndexSpec> {
    if specs.is_null() {
        return Vec::new();
    }
    // SAFETY: valid by contract.
    let specs = unsafe { std::slice::from_raw_parts(specs, count as usize) };
    specs.iter().map(|s| IndexSpec { unique: s.unique }).collect()
}

/// Creates a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_create_table(
    e: *mut EngineHandle,
    table: *const c_char,
    spec: *const CTableSpec,
) -> Status {
    // SAFETY: a live engine and a valid specification by contract.
    let (e, s) = unsafe { (&*e, &*spec) };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name, image and array by contract.
        let (table, frm, indexes) =
            unsafe { (name(table)?, bytes(s.frm, s.frm_len), index_specs(s.indexes, s.index_count)) };
        let spec = TableSpec {
            frm,
            indexes: &indexes,
            hidden_row_id: s.hidden_row_id,
            auto_increment_next: s.has_auto_increment.then_some(s.auto_increment_next),
            temporary: s.temporary,
            in_memory: s.in_memory,
            placement: match s.tablespace_per {
                -1 => None,
                v => Some(placement(u64::try_from(v).unwrap_or(u64::MAX))?),
            },
        };
        e.engine.create_table(table, &spec).map(|()| Status::Ok)
    })
}

/// Drops a table; its space is reclaimed in the background.
#[no_mangle]
pub unsafe extern "C" fn myriad_drop_table(e: *mut EngineHandle, table: *const c_char) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    // SAFETY: a valid name by contract.
    guard(Some(&e.engine), || e.engine.drop_table(unsafe { name(table) }?).map(|()| Status::Ok))
}

/// Renames a table; never overwrites.
#[no_mangle]
pub unsafe extern "C" fn myriad_rename_table(e: *mut EngineHandle, from: *const c_char, to: *const c_char) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: valid names by contract.
        let (from, to) = unsafe { (name(from)?, name(to)?) };
        e.engine.rename_table(from, to).map(|()| Status::Ok)
    })
}

/// Empties a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_truncate_table(e: *mut EngineHandle, table: *const c_char, next: u64) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    // SAFETY: a valid name by contract.
    guard(Some(&e.engine), || e.engine.truncate_table(unsafe { name(table) }?, next).map(|()| Status::Ok))
}

/// Drops all tables of a database.
#[no_mangle]
pub unsafe extern "C" fn myriad_drop_database(e: *mut EngineHandle, db: *const c_char, dropped: *mut u64) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let n = e.engine.drop_database(unsafe { name(db) }?)?;
        if !dropped.is_null() {
            // SAFETY: valid by contract.
            unsafe { *dropped = n };
        }
        Ok(Status::Ok)
    })
}

/// New image, same indexes.
#[no_mangle]
pub unsafe extern "C" fn myriad_replace_frm(
    e: *mut EngineHandle,
    table: *const c_char,
    frm: *const u8,
    frm_len: usize,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name and image by contract.
        let (table, frm) = unsafe { (name(table)?, bytes(frm, frm_len)) };
        e.engine.replace_frm(table, frm).map(|()| Status::Ok)
    })
}

/// # Safety
/// The arrays must be valid for their counts, the handles live and different.
unsafe fn alter(
    indexes: *const CIndexSpec,
    old_index_of_new: *const i32,
    index_count: u32,
    builds: *const *mut BuildHandle,
    build_count: u32,
    run: impl FnOnce(&[IndexSpec], &[Option<u32>], &mut [&mut myriad::IndexBuild]) -> Result<()>,
) -> Result<()> {
    if index_count == 0 || old_index_of_new.is_null() || (build_count > 0 && builds.is_null()) {
        return Err(Error::invalid("no indexes"));
    }
    // SAFETY: valid by contract.
    let (specs, old) = unsafe {
        (index_specs(indexes, index_count), std::slice::from_raw_parts(old_index_of_new, index_count as usize))
    };
    let old: Vec<Option<u32>> = old.iter().map(|&i| u32::try_from(i).ok()).collect();
    // SAFETY: live, different handles by contract; each is used by this call alone.
    let mut builds: Vec<&mut myriad::IndexBuild> =
        (0..build_count as usize).map(|i| unsafe { &mut (**builds.add(i)).build }).collect();
    run(&specs, &old, &mut builds)
}

/// In-place ADD/DROP INDEX.
#[no_mangle]
pub unsafe extern "C" fn myriad_alter_indexes(
    e: *mut EngineHandle,
    table: *const c_char,
    frm: *const u8,
    frm_len: usize,
    indexes: *const CIndexSpec,
    old_index_of_new: *const i32,
    index_count: u32,
    builds: *const *mut BuildHandle,
    build_count: u32,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name, image and arrays by contract.
        unsafe {
            let (table, frm) = (name(table)?, bytes(frm, frm_len));
            alter(indexes, old_index_of_new, index_count, builds, build_count, |specs, old, builds| {
                e.engine.alter_indexes(table, frm, specs, old, builds)
            })?;
        }
        Ok(Status::Ok)
    })
}

/// Whether there is such a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_exists(e: *mut EngineHandle, table: *const c_char) -> bool {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    let mut exists = false;
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        exists = e.engine.table_exists(unsafe { name(table) }?)?;
        Ok(Status::Ok)
    });
    exists
}

/// The server's image of a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_get_frm(
    e: *mut EngineHandle,
    table: *const c_char,
    give: Option<TextFn>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let frm = e.engine.frm(unsafe { name(table) }?)?;
        if let Some(give) = give {
            // SAFETY: the callback is the caller's.
            unsafe { give(arg, frm.as_ptr().cast(), frm.len()) };
        }
        Ok(Status::Ok)
    })
}

/// Table names of a database, in order, until the callback returns false.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_tables(
    e: *mut EngineHandle,
    db: *const c_char,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> bool>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let db = unsafe { name(db) }?;
        let Some(visit) = visit else { return Ok(Status::Ok) };
        let mut names = std::ffi::CString::default();
        // NUL-terminated for callers that treat it as a C string all the same.
        e.engine.list_tables(db, &mut |table| {
            names = std::ffi::CString::new(table).unwrap_or_default();
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, names.as_ptr(), table.len()) }
        })?;
        Ok(Status::Ok)
    })
}
