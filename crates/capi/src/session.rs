//! `myriad_session_*` and transactions.

use crate::error::{guard, guard_value};
use crate::table::TableHandle;
use crate::types::{bytes, EngineHandle, Status};
use myriad::{Engine, Isolation, KillHandle, Savepoint, Session};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// `myriad_session`. `kill` is apart from `session`, because another thread may use it while the session works.
pub struct SessionHandle {
    pub(crate) engine: Arc<Engine>,
    kill: KillHandle,
    pub(crate) session: Session,
}

/// A new session.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_new(
    e: *mut EngineHandle,
    thd: *mut c_void,
    thread_id: u64,
    out: *mut *mut SessionHandle,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        let session = e.engine.session_for(thd as usize, thread_id);
        let handle = SessionHandle { engine: Arc::clone(&e.engine), kill: session.kill_handle(), session };
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(handle)) };
        Ok(Status::Ok)
    })
}

/// Another connection uses the session from now on, or none.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_set_owner(s: *mut SessionHandle, thd: *mut c_void, thread_id: u64) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.set_owner(thd as usize, thread_id));
}

/// Rolls back what is active; a prepared transaction is detached.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_free(s: *mut SessionHandle) {
    if s.is_null() {
        return;
    }
    // SAFETY: a live session by contract, given up here.
    let s = unsafe { Box::from_raw(s) };
    let engine = Arc::clone(&s.engine);
    guard_value(Some(&engine), (), || drop(s));
}

/// Wakes a lock wait; any thread.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_kill(s: *mut SessionHandle) {
    // SAFETY: a live session by contract; `kill` is never written after creation and may be shared between threads.
    let kill = unsafe { &(*s).kill };
    guard_value(None, (), || kill.kill());
}

/// Forgets a kill.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_reset_kill(s: *mut SessionHandle) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.reset_kill());
}

/// The session behind a handle, without touching `kill`.
///
/// # Safety
/// A live session, used by this thread only.
#[inline]
pub(crate) unsafe fn parts<'a>(s: *mut SessionHandle) -> (&'a Engine, &'a mut Session) {
    // SAFETY: by contract; the two fields are disjoint, and `engine` is never written after creation.
    unsafe { (&*Arc::as_ptr(&(*s).engine), &mut (*s).session) }
}

/// Start of a statement that uses the engine.
#[no_mangle]
pub unsafe extern "C" fn myriad_statement_begin(
    s: *mut SessionHandle,
    isolation: u32,
    autocommit: bool,
    lock_wait_ms: u64,
) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || {
        let isolation = match isolation {
            0 => Isolation::ReadUncommitted,
            1 => Isolation::ReadCommitted,
            2 => Isolation::RepeatableRead,
            3 => Isolation::Snapshot,
            _ => Isolation::Serializable,
        };
        session.statement_begin(isolation, autocommit, Duration::from_millis(lock_wait_ms));
    });
}

/// Keeps the statement's changes.
#[no_mangle]
pub unsafe extern "C" fn myriad_statement_end(s: *mut SessionHandle) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.statement_end());
}

/// Undoes the statement's changes.
#[no_mangle]
pub unsafe extern "C" fn myriad_statement_rollback(s: *mut SessionHandle) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.statement_rollback().map(|()| Status::Ok))
}

/// `START TRANSACTION WITH CONSISTENT SNAPSHOT`.
#[no_mangle]
pub unsafe extern "C" fn myriad_open_snapshot(s: *mut SessionHandle) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.open_snapshot().map(|()| Status::Ok))
}

/// Whether the transaction has changed anything.
#[no_mangle]
pub unsafe extern "C" fn myriad_has_changes(s: *const SessionHandle) -> bool {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { (&(*s).engine, &(*s).session) };
    guard_value(Some(engine), true, || session.has_changes())
}

/// Marks a point to roll back to.
#[no_mangle]
pub unsafe extern "C" fn myriad_savepoint(s: *mut SessionHandle, out: *mut u64) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || {
        let savepoint = session.savepoint()?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = savepoint.0 };
        Ok(Status::Ok)
    })
}

/// Undoes all that was done since.
#[no_mangle]
pub unsafe extern "C" fn myriad_rollback_to(s: *mut SessionHandle, savepoint: u64) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.rollback_to(Savepoint(savepoint)).map(|()| Status::Ok))
}

/// Undoes the transaction.
#[no_mangle]
pub unsafe extern "C" fn myriad_rollback(s: *mut SessionHandle) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.rollback().map(|()| Status::Ok))
}

/// Whole commit: visible, and durable as configured.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit(s: *mut SessionHandle) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.commit().map(|()| Status::Ok))
}

/// The visible half of `myriad_commit`.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit_visible(s: *mut SessionHandle) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.commit_visible().map(|()| Status::Ok))
}

/// As `myriad_commit`; may return before it is durable.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit_later(
    s: *mut SessionHandle,
    thd: *mut c_void,
    begins: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    ends: unsafe extern "C" fn(*mut c_void, bool),
) -> Status {
    /// What `begins` gave.
    #[derive(Clone, Copy)]
    struct Pending(*mut c_void, unsafe extern "C" fn(*mut c_void, bool));
    // SAFETY: `ends` may be called by any thread, by contract.
    unsafe impl Send for Pending {}
    impl Pending {
        /// Once.
        fn end(self, durable: bool) {
            // SAFETY: by contract.
            unsafe { self.1(self.0, durable) }
        }
    }

    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || {
        let Some(lsn) = session.commit_later()? else { return Ok(Status::Ok) };
        // SAFETY: the caller's own functions, by contract.
        let pending = Pending(unsafe { begins(thd) }, ends);
        // The status tells what `ends` would have.
        engine.when_durable(lsn, move |durable| pending.end(durable)).inspect_err(|_| pending.end(true))?;
        Ok(Status::Ok)
    })
}

/// First phase; durable on return.
#[no_mangle]
pub unsafe extern "C" fn myriad_prepare(s: *mut SessionHandle, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a live session and valid bytes by contract.
    let (engine, session, xid) = unsafe {
        let (engine, session) = parts(s);
        (engine, session, bytes(xid, xid_len))
    };
    guard(Some(engine), || session.prepare(xid).map(|()| Status::Ok))
}

/// A prepared transaction's shared locks and gaps go, but at SERIALIZABLE.
#[no_mangle]
pub unsafe extern "C" fn myriad_release_reads(s: *mut SessionHandle) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.release_reads());
}

/// Second phase, fast part.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit_ordered(s: *mut SessionHandle) {
    // SAFETY: a live session by contract; the server serialises this call with the session's own.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.commit_ordered());
}

/// Second phase, slow part.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit_finish(s: *mut SessionHandle, durable: bool) -> Status {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard(Some(engine), || session.commit_finish(durable).map(|()| Status::Ok))
}

/// Leaves a prepared transaction to `myriad_commit_by_xid`.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_detach_prepared(s: *mut SessionHandle) {
    // SAFETY: a live session by contract.
    let (engine, session) = unsafe { parts(s) };
    guard_value(Some(engine), (), || session.detach_prepared());
}

/// Takes a detached transaction back, to commit it or roll it back here; false if there is none of that name.
#[no_mangle]
pub unsafe extern "C" fn myriad_session_attach_prepared(s: *mut SessionHandle, xid: *const u8, xid_len: usize) -> bool {
    // SAFETY: a live session and valid bytes by contract.
    let (engine, session, xid) = unsafe {
        let (engine, session) = parts(s);
        (engine, session, bytes(xid, xid_len))
    };
    guard_value(Some(engine), false, || session.attach_prepared(xid))
}

/// Waits, as for a lock, until no prepared transaction that belongs to no session has changed the table.
#[no_mangle]
pub unsafe extern "C" fn myriad_wait_for_prepared(s: *mut SessionHandle, t: *mut TableHandle) -> Status {
    // SAFETY: a live session and table by contract.
    let ((engine, session), t) = unsafe { (parts(s), &*t) };
    guard(Some(engine), || session.wait_for_prepared(&t.table).map(|()| Status::Ok))
}

/// Prepared transactions found at start or detached by their session.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_prepared(
    e: *mut EngineHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const u8, usize)>,
    arg: *mut c_void,
) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || {
        let Some(visit) = visit else { return };
        for xid in e.engine.prepared() {
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, xid.as_ptr(), xid.len()) };
        }
    });
}

fn known(found: bool) -> Status {
    if found {
        Status::Ok
    } else {
        Status::XaUnknown
    }
}

/// Commits a prepared transaction.
#[no_mangle]
pub unsafe extern "C" fn myriad_commit_by_xid(e: *mut EngineHandle, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a live engine and valid bytes by contract.
    let (e, xid) = unsafe { (&*e, bytes(xid, xid_len)) };
    guard(Some(&e.engine), || e.engine.commit_by_xid(xid).map(known))
}

/// Rolls a prepared transaction back.
#[no_mangle]
pub unsafe extern "C" fn myriad_rollback_by_xid(e: *mut EngineHandle, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a live engine and valid bytes by contract.
    let (e, xid) = unsafe { (&*e, bytes(xid, xid_len)) };
    guard(Some(&e.engine), || e.engine.rollback_by_xid(xid).map(known))
}
