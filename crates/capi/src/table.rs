//! Open tables.

use crate::ddl::index_specs;
use crate::error::{guard, guard_value};
use crate::session::{parts, SessionHandle};
use crate::types::{maybe_bytes, name, CIndexSpec, CTableStats, EngineHandle, Status, TextFn};
use myriad::{Detail, Engine, Table};
use std::ffi::{c_char, c_void, CStr};
use std::ops::Bound;
use std::sync::Arc;

/// `myriad_table`.
pub struct TableHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Table,
}

/// Opens a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_open(
    e: *mut EngineHandle,
    table: *const c_char,
    out: *mut *mut TableHandle,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let table = e.engine.open_table(unsafe { name(table) }?)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(TableHandle { engine: Arc::clone(&e.engine), table })) };
        Ok(Status::Ok)
    })
}

/// Closes it.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_close(t: *mut TableHandle) {
    if t.is_null() {
        return;
    }
    // SAFETY: a live table by contract, given up here.
    let t = unsafe { Box::from_raw(t) };
    let engine = Arc::clone(&t.engine);
    guard_value(Some(&engine), (), || drop(t));
}

/// Whether the table's indexes are as many and as unique as these.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_has_indexes(
    t: *const TableHandle,
    indexes: *const CIndexSpec,
    count: u32,
) -> bool {
    // SAFETY: a live table and a valid array by contract.
    let (t, specs) = unsafe { (&*t, index_specs(indexes, count)) };
    guard_value(Some(&t.engine), false, || t.table.has_indexes(&specs))
}

/// Gives the table's indexes names, in their order, for the lists of locks.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_name_indexes(t: *const TableHandle, names: *const *const c_char, count: u32) {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard_value(Some(&t.engine), (), || {
        // A name that is not UTF-8 is for people to read all the same.
        // SAFETY: an array of `count` NUL-terminated strings by contract.
        let names = (0..count as usize).map(|i| unsafe { CStr::from_ptr(*names.add(i)) }.to_string_lossy());
        let names: Vec<_> = names.collect();
        t.table.set_index_names(&names.iter().map(|n| &**n).collect::<Vec<&str>>());
    });
}

/// False once dropped or redefined since it was opened.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_is_current(t: *const TableHandle) -> bool {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard_value(Some(&t.engine), false, || t.table.is_current())
}

/// True once for a table that the start has emptied.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_take_emptied(t: *const TableHandle) -> bool {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard_value(Some(&t.engine), false, || t.table.take_emptied())
}

/// Statistics.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_info(t: *mut TableHandle, detail: i32, out: *mut CTableStats) -> Status {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard(Some(&t.engine), || {
        let s = t.table.info_of(match detail {
            0 => Detail::Counters,
            1 => Detail::Rows,
            2 => Detail::Sizes,
            _ => Detail::Closely,
        })?;
        let stats = CTableStats {
            rows: s.rows,
            data_bytes: s.data_bytes,
            index_bytes: s.index_bytes,
            free_bytes: s.free_bytes,
            mean_row_bytes: s.mean_row_bytes,
            create_time_s: s.create_time_s,
            update_time_s: s.update_time_s,
            auto_increment_next: s.auto_increment_next,
        };
        // SAFETY: `out` is valid by contract.
        unsafe { *out = stats };
        Ok(Status::Ok)
    })
}

/// Keys from places spread over an index, in order, and separators of its tree.
#[no_mangle]
pub unsafe extern "C" fn myriad_sample_index(
    t: *mut TableHandle,
    index_no: u32,
    pages: u32,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const u8, usize, u8, u8) -> bool>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard(Some(&t.engine), || {
        let Some(visit) = visit else { return Ok(Status::Ok) };
        t.table.sample_index(index_no as usize, pages, &mut |key, kind, level| {
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, key.as_ptr(), key.len(), kind as u8, level) }
        })?;
        Ok(Status::Ok)
    })
}

/// Keeps what was learned from samples.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_keep_samples(t: *mut TableHandle, numbers: *const u64, count: usize) {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    // SAFETY: an array of `count` numbers by contract.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, count) };
    guard_value(Some(&t.engine), (), || t.table.keep_samples(numbers));
}

/// What was kept, if it is as much.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_kept_samples(t: *mut TableHandle, numbers: *mut u64, count: usize) -> bool {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    // SAFETY: an array of `count` numbers by contract.
    let numbers = unsafe { std::slice::from_raw_parts_mut(numbers, count) };
    guard_value(Some(&t.engine), false, || t.table.kept_samples(numbers))
}

/// Estimated entries between two keys.
#[no_mangle]
pub unsafe extern "C" fn myriad_records_in_range(
    t: *mut TableHandle,
    index_no: u32,
    low: *const u8,
    low_len: usize,
    high: *const u8,
    high_len: usize,
    below_high: bool,
    out: *mut u64,
) -> Status {
    // SAFETY: a live table and valid keys by contract.
    let (t, low, high) = unsafe { (&*t, maybe_bytes(low, low_len), maybe_bytes(high, high_len)) };
    let high = match high {
        None => Bound::Unbounded,
        Some(high) if below_high => Bound::Excluded(high),
        Some(high) => Bound::Included(high),
    };
    guard(Some(&t.engine), || {
        let n = t.table.records_in_range(index_no as usize, low, high)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = n };
        Ok(Status::Ok)
    })
}

/// What `myriad_new_definition` said of row layouts last; valid while the table is open.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_row_layouts(t: *const TableHandle, len: *mut usize) -> *const u8 {
    // SAFETY: a live table and a valid `len` by contract.
    unsafe {
        let layouts = (*t).table.row_layouts();
        *len = layouts.len();
        layouts.as_ptr()
    }
}

/// Reserves AUTO_INCREMENT values.
#[no_mangle]
pub unsafe extern "C" fn myriad_auto_increment_reserve(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    offset: u64,
    increment: u64,
    count: u64,
    largest: u64,
    first: *mut u64,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        let value = session.auto_increment_reserve(&t.table, offset, increment, count, largest)?;
        // SAFETY: `first` is valid by contract.
        unsafe { *first = value };
        Ok(Status::Ok)
    })
}

/// An explicit value was stored.
#[no_mangle]
pub unsafe extern "C" fn myriad_auto_increment_at_least(s: *mut SessionHandle, t: *mut TableHandle, next: u64) {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard_value(Some(engine), (), || session.auto_increment_at_least(&t.table, next));
}

/// `ALTER TABLE ... AUTO_INCREMENT=`.
#[no_mangle]
pub unsafe extern "C" fn myriad_auto_increment_set(t: *mut TableHandle, next: u64) -> Status {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard(Some(&t.engine), || t.table.auto_increment_set(next).map(|()| Status::Ok))
}

/// Whether there is a counter.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_has_auto_increment(t: *const TableHandle) -> bool {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard_value(Some(&t.engine), false, || t.table.has_auto_increment())
}

/// A counter for a table that has none.
#[no_mangle]
pub unsafe extern "C" fn myriad_auto_increment_add(t: *mut TableHandle, next: u64) -> Status {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    guard(Some(&t.engine), || t.table.add_auto_increment(next).map(|()| Status::Ok))
}

/// The next hidden row id; 0 after an error.
#[no_mangle]
pub unsafe extern "C" fn myriad_next_row_id(t: *mut TableHandle) -> u64 {
    // SAFETY: a live table by contract.
    let t = unsafe { &*t };
    let mut id = 0;
    guard(Some(&t.engine), || {
        id = t.table.next_row_id()?;
        Ok(Status::Ok)
    });
    id
}

/// `CHECK TABLE`.
#[no_mangle]
pub unsafe extern "C" fn myriad_check_table(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    quick: bool,
    finding: Option<TextFn>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        session.check(&t.table, quick, &mut |text| {
            if let Some(finding) = finding {
                let text = std::ffi::CString::new(text.replace('\0', " ")).unwrap_or_default();
                // SAFETY: the callback is the caller's.
                unsafe { finding(arg, text.as_ptr(), text.as_bytes().len()) };
            }
        })?;
        Ok(Status::Ok)
    })
}
