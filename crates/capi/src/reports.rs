//! Reports.

use crate::error::{guard, guard_value};
use crate::types::{
    name, CCheckInfo, CLatchInfo, CLockInfo, CPartitionInfo, CSpaceInfo, CStartupInfo, CTrxInfo, CWork, EngineHandle,
    Status, TextFn,
};
use std::ffi::{c_char, c_void, CString};

fn c_string(s: &str) -> CString {
    CString::new(s.replace('\0', " ")).unwrap_or_default()
}

/// `SHOW ENGINE MYRIAD STATUS`.
#[no_mangle]
pub unsafe extern "C" fn myriad_status_text(e: *mut EngineHandle, give: Option<TextFn>, arg: *mut c_void) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let text = c_string(&e.engine.status_text());
        if let Some(give) = give {
            // SAFETY: the callback is the caller's.
            unsafe { give(arg, text.as_ptr(), text.as_bytes().len()) };
        }
    });
}

/// Counters and gauges.
#[no_mangle]
pub unsafe extern "C" fn myriad_metrics(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u64, bool)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        e.engine.metrics(&mut |name, value, is_gauge| {
            let name = c_string(name);
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, name.as_ptr(), value, is_gauge) };
        });
    });
}

/// Transactions.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_trx(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CTrxInfo)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for t in e.engine.transactions() {
            let (state, isolation) = (c_string(t.state), c_string(t.isolation));
            let info = CTrxInfo {
                trx_id: t.trx_id,
                start_wall_us: t.start_wall_us,
                undo_records: t.undo_records,
                locks_held: t.locks_held,
                wait_start_wall_us: t.wait_start_wall_us,
                thread_id: t.thread_id,
                state: state.as_ptr(),
                isolation: isolation.as_ptr(),
                recovered: t.recovered,
                has_snapshot: t.snapshot_age.is_some(),
                snapshot_age: t.snapshot_age.unwrap_or(0),
            };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
    });
}

/// Locks, until the callback gives false, or there were about `rows_max`.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_locks(
    e: *mut EngineHandle,
    waits_only: bool,
    rows_max: usize,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CLockInfo) -> bool>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        e.engine.each_lock(waits_only, rows_max, &mut |l| {
            let (mode, table) = (c_string(l.mode), c_string(&l.table));
            let index_name = l.index_name.as_deref().map(c_string);
            let info = CLockInfo {
                trx_id: l.trx_id,
                mode: mode.as_ptr(),
                granted: l.granted,
                table: table.as_ptr(),
                index_no: l.index_no,
                index_name: index_name.as_ref().map_or(std::ptr::null(), |n| n.as_ptr()),
                key: l.key.as_ptr(),
                key_len: l.key.len(),
                waiting_for_trx_id: l.waiting_for_trx_id,
            };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) }
        });
    });
}

/// The buffer pool's partitions, in order.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_partitions(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CPartitionInfo)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for p in e.engine.partitions() {
            let info = CPartitionInfo {
                frames: p.frames,
                free_frames: p.free_frames,
                dirty_pages: p.dirty_pages,
                oldest_change_age: p.oldest_change_age,
            };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
    });
}

/// Latch classes.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_latches(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CLatchInfo)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for l in e.engine.latches() {
            let name = c_string(l.name);
            let info = CLatchInfo {
                name: name.as_ptr(),
                acquired: l.acquired,
                contended: l.contended,
                wait_ns: l.wait_ns,
                contended_percent: l.contended_percent,
                hottest_percent: l.hottest_percent,
                hottest: l.hottest,
            };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
    });
}

/// Tablespaces whose ids are no less than `first_id`, in order, the first `most` of them.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_spaces(
    e: *mut EngineHandle,
    first_id: u32,
    most: usize,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CSpaceInfo)>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        let Some(visit) = visit else { return Ok(Status::Ok) };
        for s in e.engine.spaces_from(first_id, most)? {
            let (path, database) = (c_string(&s.path), c_string(&s.database));
            let info =
                CSpaceInfo { space_id: s.space_id, path: path.as_ptr(), database: database.as_ptr(), open: s.open };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
        Ok(Status::Ok)
    })
}

/// The size of a tablespace's file in bytes.
#[no_mangle]
pub unsafe extern "C" fn myriad_space_bytes(e: *mut EngineHandle, space_id: u32, path: *const c_char) -> u64 {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    // SAFETY: a C string by contract.
    guard_value(Some(&e.engine), 0, || unsafe { name(path) }.map_or(0, |path| e.engine.space_bytes(space_id, path)))
}

/// What the start did.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_startup(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CStartupInfo)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for p in e.engine.startup() {
            let phase = c_string(p.phase);
            let info = CStartupInfo { phase: phase.as_ptr(), microseconds: p.microseconds, bytes_read: p.bytes_read };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
    });
}

/// What the tablespace check found.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_check(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const CCheckInfo)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for f in e.engine.check_findings() {
            let (path, problem, detail) = (c_string(&f.path), c_string(f.problem), c_string(&f.detail));
            let other = f.other_path.as_deref().map(c_string);
            let info = CCheckInfo {
                has_space_id: f.space_id.is_some(),
                space_id: f.space_id.unwrap_or(0),
                path: path.as_ptr(),
                problem: problem.as_ptr(),
                other_path: other.as_ref().map_or(std::ptr::null(), |o| o.as_ptr()),
                detail: detail.as_ptr(),
                found_wall_us: f.found_wall_us,
            };
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, &info) };
        }
    });
}

/// Pages that the calling thread has read from their files since it began.
#[no_mangle]
pub extern "C" fn myriad_thread_pages_read() -> u64 {
    myriad::work::pages_read()
}

/// What the calling thread has done since it began.
#[no_mangle]
pub unsafe extern "C" fn myriad_thread_work(out: *mut CWork) {
    let work = myriad::work::of_thread();
    let done = CWork {
        pages_accessed: work.pages_accessed,
        pages_updated: work.pages_updated,
        pages_read: work.pages_read,
        read_ns: work.read_ns,
        pages_prefetched: work.pages_prefetched,
        undo_records_read: work.undo_records_read,
    };
    // SAFETY: `out` is valid by contract.
    unsafe { *out = done };
}
