//! Rows: the hot calls. No allocation, no lock of their own.

use crate::error::{guard, guard_value};
use crate::session::{parts, SessionHandle};
use crate::table::TableHandle;
use crate::types::{bytes, lock, maybe_bytes, wait, CBytes, CCursorOptions, COp, CRow, Status};
use myriad::{ApplyMode, Cursor, CursorOptions, Engine, Error, Excerpt, Op, OpKind, Result, Row, Seek, Session};
use std::ffi::c_void;

const APPLY_DUPLICATE_X: u32 = 1;

/// # Safety
/// The operation's pointers must be valid for `'a`.
#[inline]
pub(crate) unsafe fn op<'a>(op: &COp) -> Op<'a> {
    Op {
        kind: match op.kind {
            0 => OpKind::Insert,
            1 => OpKind::Update,
            _ => OpKind::Delete,
        },
        index_no: op.index_no as usize,
        // SAFETY: valid by contract.
        key: unsafe { bytes(op.key, op.key_len) },
        unique_len: op.unique_len,
        // SAFETY: valid by contract.
        value: unsafe { bytes(op.value, op.value_len) },
        head_len: op.head_len,
    }
}

/// After [`Error::DuplicateKey`]: the number that goes with the duplicate, and its key.
///
/// # Safety
/// `number` and `key` are null or valid, `key_len` is valid where `key` is.
pub(crate) unsafe fn give_duplicate(
    error: &Error,
    duplicate: (usize, &[u8]),
    number: *mut u32,
    key: *mut *const u8,
    key_len: *mut usize,
) {
    if !matches!(error, Error::DuplicateKey { .. }) {
        return;
    }
    // SAFETY: by contract.
    unsafe {
        if !number.is_null() {
            *number = duplicate.0 as u32;
        }
        if !key.is_null() {
            *key = duplicate.1.as_ptr();
            *key_len = duplicate.1.len();
        }
    }
}

/// All of the row's operations or none.
#[no_mangle]
pub unsafe extern "C" fn myriad_apply(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    ops: *const COp,
    count: u32,
    flags: u32,
    failed: *mut u32,
    dup_key: *mut *const u8,
    dup_key_len: *mut usize,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        if count == 0 {
            return Ok(Status::Ok);
        }
        // SAFETY: valid for `count` operations by contract.
        let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
        let mode = ApplyMode { duplicate_exclusive: flags & APPLY_DUPLICATE_X != 0 };
        // SAFETY: the operations' bytes are valid during the call by contract.
        match session.apply(&t.table, ops.iter().map(|o| unsafe { op(o) }), mode) {
            Ok(()) => Ok(Status::Ok),
            Err(e) => {
                // SAFETY: valid by contract.
                unsafe { give_duplicate(&e, session.last_duplicate(), failed, dup_key, dup_key_len) };
                Err(e)
            }
        }
    })
}

#[inline]
pub(crate) fn c_row(row: Row<'_>) -> CRow {
    CRow { key: row.key.as_ptr(), key_len: row.key.len(), value: row.value.as_ptr(), value_len: row.value.len() }
}

/// # Safety
/// `out` must be valid.
#[inline]
unsafe fn give(row: Option<Row<'_>>, out: *mut CRow) -> Status {
    match row {
        Some(row) => {
            // SAFETY: valid by contract.
            unsafe { *out = c_row(row) };
            Status::Ok
        }
        None => Status::End,
    }
}

/// # Safety
/// `new_lock` must be null or valid.
#[inline]
unsafe fn note_new_lock(session: &Session, status: Status, new_lock: *mut bool) {
    if !new_lock.is_null() {
        // SAFETY: valid by contract.
        unsafe { *new_lock = status == Status::Ok && session.lock_is_new() };
    }
}

/// The row with this key.
#[no_mangle]
pub unsafe extern "C" fn myriad_get(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    index_no: u32,
    key: *const u8,
    key_len: usize,
    prefix: bool,
    lock_mode: u32,
    wait_mode: u32,
    out: *mut CRow,
    new_lock: *mut bool,
) -> Status {
    // SAFETY: a live session, a live table and a valid key by contract.
    let ((engine, session), t, key) = unsafe { (parts(s), &*t, bytes(key, key_len)) };
    guard(Some(engine), || {
        let row = session.get(&t.table, index_no as usize, key, prefix, lock(lock_mode), wait(wait_mode))?;
        // SAFETY: `out` is valid by contract.
        let status = unsafe { give(row, out) };
        // SAFETY: null or valid by contract.
        unsafe { note_new_lock(session, status, new_lock) };
        Ok(status)
    })
}

/// As `myriad_get` by a whole clustered key; of a long value the head and what is wanted behind it.
#[no_mangle]
pub unsafe extern "C" fn myriad_get_head(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    key: *const u8,
    key_len: usize,
    lock_mode: u32,
    wait_mode: u32,
    tail_bytes: usize,
    out: *mut CRow,
    new_lock: *mut bool,
) -> Status {
    // SAFETY: a live session, a live table and a valid key by contract.
    let ((engine, session), t, key) = unsafe { (parts(s), &*t, bytes(key, key_len)) };
    guard(Some(engine), || {
        let row = session.get_head(&t.table, key, lock(lock_mode), wait(wait_mode), tail_bytes)?;
        // SAFETY: `out` is valid by contract.
        let status = unsafe { give(row, out) };
        // SAFETY: null or valid by contract.
        unsafe { note_new_lock(session, status, new_lock) };
        Ok(status)
    })
}

/// Reads the pages of some keys of an index together; how many keys. A hint: failures are left to whoever looks them up.
#[no_mangle]
pub unsafe extern "C" fn myriad_read_together(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    index_no: u32,
    keys: *const CBytes,
    count: u32,
) -> u32 {
    // SAFETY: a live session, a live table and `count` valid keys by contract.
    let ((engine, session), t, keys) = unsafe { (parts(s), &*t, std::slice::from_raw_parts(keys, count as usize)) };
    guard_value(Some(engine), count, || {
        // SAFETY: as above.
        let keys = keys.iter().map(|key| unsafe { bytes(key.data, key.len) });
        session.read_together(&t.table, index_no as usize, keys).map_or(count, |taken| taken as u32)
    })
}

/// Whether the session's snapshot, if one is open, may read the index.
#[no_mangle]
pub unsafe extern "C" fn myriad_check_snapshot(s: *mut SessionHandle, t: *mut TableHandle, index_no: u32) -> Status {
    // SAFETY: a live session and a live table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        session.check_snapshot(&t.table, index_no as usize)?;
        Ok(Status::Ok)
    })
}

/// At READ COMMITTED: gives back the lock that `myriad_get` took for a row that does not match.
#[no_mangle]
pub unsafe extern "C" fn myriad_unlock(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    index_no: u32,
    key: *const u8,
    key_len: usize,
    lock_mode: u32,
) -> Status {
    // SAFETY: a live session, a live table and a valid key by contract.
    let ((engine, session), t, key) = unsafe { (parts(s), &*t, bytes(key, key_len)) };
    guard(Some(engine), || {
        session.unlock(&t.table, index_no as usize, key, lock(lock_mode))?;
        Ok(Status::Ok)
    })
}

/// `myriad_cursor`.
pub struct CursorHandle {
    session: *mut SessionHandle,
    cursor: Cursor,
}

fn options(o: &CCursorOptions) -> CursorOptions {
    CursorOptions {
        lock: lock(o.lock),
        wait: wait(o.wait),
        semi_consistent: o.semi_consistent,
        record_only: o.record_only,
        full_scan: o.full_scan,
        value_bytes: o.value_bytes,
        tail_bytes: o.tail_bytes,
    }
}

/// Opens a cursor; the session and the table must outlive it.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_open(
    s: *mut SessionHandle,
    t: *mut TableHandle,
    index_no: u32,
    o: *const CCursorOptions,
    out: *mut *mut CursorHandle,
) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || {
        // SAFETY: null or valid by contract.
        let options = unsafe { o.as_ref() }.map(options).unwrap_or_default();
        let cursor = Cursor::open(session, &t.table, index_no as usize, options)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(CursorHandle { session: s, cursor })) };
        Ok(Status::Ok)
    })
}

/// Closes it.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_close(c: *mut CursorHandle) {
    if c.is_null() {
        return;
    }
    // SAFETY: a live cursor by contract, given up here.
    let c = unsafe { Box::from_raw(c) };
    guard_value(None, (), || drop(c));
}

/// The parts of a cursor and its session.
///
/// # Safety
/// A live cursor of a live session that no other thread uses.
#[inline]
unsafe fn cursor_parts<'a>(c: *mut CursorHandle) -> (&'a Engine, &'a mut Session, &'a mut Cursor) {
    // SAFETY: by contract.
    unsafe {
        let (engine, session) = parts((*c).session);
        (engine, session, &mut (*c).cursor)
    }
}

/// Changes how it reads from now on.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_set_options(c: *mut CursorHandle, o: *const CCursorOptions) {
    // SAFETY: a live cursor and valid options by contract.
    let ((engine, _, cursor), o) = unsafe { (cursor_parts(c), &*o) };
    guard_value(Some(engine), (), || cursor.set_options(options(o)));
}

/// `myriad_excerpt`.
pub type CExcerpt = unsafe extern "C" fn(of: *const c_void, value: *const u8, value_len: usize, out: *mut u8) -> usize;

/// What an excerpt is made for.
struct ExcerptOf(*const c_void);

// SAFETY: used with the cursor, whose session one thread uses at a time.
unsafe impl Send for ExcerptOf {}

impl ExcerptOf {
    fn get(&self) -> *const c_void {
        self.0
    }
}

/// Leaves out what it does not want of values; a null function: nothing.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_set_excerpt(c: *mut CursorHandle, excerpt: Option<CExcerpt>, of: *const c_void) {
    // SAFETY: a live cursor by contract.
    let (engine, _, cursor) = unsafe { cursor_parts(c) };
    let of = ExcerptOf(of);
    let make = excerpt.map(|excerpt| -> Excerpt {
        Box::new(move |value, out| {
            out.reserve(value.len());
            // SAFETY: `of` is good for as long as the cursor reads, by contract; there is room for all of the value.
            let len = unsafe { excerpt(of.get(), value.as_ptr(), value.len(), out.as_mut_ptr().add(out.len())) };
            assert!(len <= value.len(), "an excerpt is longer than the value");
            // SAFETY: so many bytes have been written there.
            unsafe { out.set_len(out.len() + len) };
        })
    });
    guard_value(Some(engine), (), || cursor.set_excerpt(make));
}

/// Bounds of what will be read.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_set_bounds(
    c: *mut CursorHandle,
    low: *const u8,
    low_len: usize,
    high: *const u8,
    high_len: usize,
) {
    // SAFETY: a live cursor and valid keys by contract.
    let ((engine, _, cursor), low, high) =
        unsafe { (cursor_parts(c), maybe_bytes(low, low_len), maybe_bytes(high, high_len)) };
    guard_value(Some(engine), (), || cursor.set_bounds(low, high));
}

fn seek_mode(v: u32) -> Result<Seek> {
    Ok(match v {
        0 => Seek::First,
        1 => Seek::Last,
        2 => Seek::Ge,
        3 => Seek::Gt,
        4 => Seek::Le,
        5 => Seek::Lt,
        6 => Seek::ExactUnique,
        7 => Seek::Exact,
        8 => Seek::ExactLast,
        other => return Err(Error::invalid(format!("seek mode {other}"))),
    })
}

/// Goes to a key.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_seek(
    c: *mut CursorHandle,
    seek: u32,
    key: *const u8,
    key_len: usize,
    out: *mut CRow,
) -> Status {
    // SAFETY: a live cursor and a valid key by contract.
    let ((engine, session, cursor), key) = unsafe { (cursor_parts(c), bytes(key, key_len)) };
    guard(Some(engine), || {
        let row = cursor.seek(session, seek_mode(seek)?, key)?;
        // SAFETY: `out` is valid by contract.
        Ok(unsafe { give(row, out) })
    })
}

/// The next row.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_next(c: *mut CursorHandle, out: *mut CRow) -> Status {
    // SAFETY: a live cursor by contract.
    let (engine, session, cursor) = unsafe { cursor_parts(c) };
    // SAFETY: `out` is valid by contract.
    guard(Some(engine), || Ok(unsafe { give(cursor.next(session)?, out) }))
}

/// The previous row.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_prev(c: *mut CursorHandle, out: *mut CRow) -> Status {
    // SAFETY: a live cursor by contract.
    let (engine, session, cursor) = unsafe { cursor_parts(c) };
    // SAFETY: `out` is valid by contract.
    guard(Some(engine), || Ok(unsafe { give(cursor.prev(session)?, out) }))
}

/// How many rows behind the current one can be looked at.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_look_ahead(c: *mut CursorHandle, max: u32) -> u32 {
    // SAFETY: a live cursor by contract.
    let (engine, session, cursor) = unsafe { cursor_parts(c) };
    guard_value(Some(engine), 0, || u32::try_from(cursor.look_ahead(session, max as usize)).unwrap_or(u32::MAX))
}

/// The n-th row behind the current one, if the cursor has it.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_peek(c: *const CursorHandle, n: u32, out: *mut CRow) -> bool {
    // SAFETY: a live cursor by contract.
    let cursor = unsafe { &(*c).cursor };
    // SAFETY: `out` is valid by contract.
    guard_value(None, false, || unsafe { give(cursor.peek(n as usize), out) } == Status::Ok)
}

/// Whether the last row was given without its lock.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_was_semi_consistent(c: *const CursorHandle) -> bool {
    // SAFETY: a live cursor by contract.
    let cursor = unsafe { &(*c).cursor };
    guard_value(None, false, || cursor.was_semi_consistent())
}

/// At READ COMMITTED: releases the last row's locks.
#[no_mangle]
pub unsafe extern "C" fn myriad_cursor_unlock_row(c: *mut CursorHandle) {
    // SAFETY: a live cursor by contract.
    let (engine, session, cursor) = unsafe { cursor_parts(c) };
    guard_value(Some(engine), (), || cursor.unlock_row(session));
}
