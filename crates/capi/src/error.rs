//! Errors and panics to statuses.

use crate::types::Status;
use myriad::{Engine, Error, Result};
use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The calling thread's last error, NUL-terminated; valid until its next failing call.
#[no_mangle]
pub extern "C" fn myriad_last_error() -> *const c_char {
    LAST_ERROR.try_with(|e| e.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn remember(text: String) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A thread on its way out has no place to keep the sentence.
    let _ = LAST_ERROR.try_with(|e| *e.borrow_mut() = text);
}

/// The status of an error.
pub(crate) fn status_of(e: &Error) -> Status {
    match e {
        Error::DuplicateKey { .. } => Status::DuplicateKey,
        Error::LockWaitTimeout => Status::LockWaitTimeout,
        Error::Deadlock => Status::Deadlock,
        Error::RecordChanged => Status::RecordChanged,
        Error::Interrupted => Status::Interrupted,
        Error::NoSuchTable { .. } => Status::NoSuchTable,
        Error::TableExists { .. } => Status::TableExists,
        Error::DefinitionChanged { .. } => Status::DefinitionChanged,
        Error::TooLong { .. } => Status::TooLong,
        Error::Io { .. } => Status::Io,
        Error::DiskFull { .. } => Status::DiskFull,
        Error::CorruptPage { .. } | Error::CorruptLog { .. } | Error::CorruptFile { .. } => Status::Corrupt,
        Error::TablespaceUnavailable { .. } => Status::Tablespace,
        Error::Format { .. } | Error::LogMismatch { .. } | Error::Unlogged { .. } => Status::Format,
        Error::DirectoryLocked { .. } => Status::DirectoryLocked,
        Error::BufferPoolExhausted => Status::BufferPool,
        Error::MemoryFull { .. } => Status::MemoryFull,
        Error::LockTableFull { .. } => Status::LockTableFull,
        Error::Poisoned { .. } => Status::Poisoned,
        Error::NotSupported { .. } => Status::NotSupported,
        Error::Invalid { .. } => Status::Invalid,
        Error::ShuttingDown => Status::ShuttingDown,
    }
}

/// Remembers the error's sentence; gives its status.
#[cold]
pub(crate) fn fail(e: &Error) -> Status {
    remember(e.to_string());
    status_of(e)
}

/// As [`fail`]; a damaged page's sentence names the file, too.
#[cold]
fn fail_in(engine: Option<&Engine>, e: &Error) -> Status {
    let status = fail(e);
    if let (Some(engine), Error::CorruptPage { page, .. }) = (engine, e) {
        if let Ok(Some(file)) = catch_unwind(AssertUnwindSafe(|| engine.file_of(page.space))) {
            remember(format!("{e}; its file is {file}"));
        }
    }
    status
}

#[cold]
fn panicked(engine: Option<&Engine>, panic: Box<dyn std::any::Any + Send>) -> Status {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic");
    let reason = format!("internal error: {what}");
    if let Some(engine) = engine {
        // The engine's own poisoning must not panic through us either.
        let _ = catch_unwind(AssertUnwindSafe(|| engine.poison(&reason)));
    }
    remember(reason);
    // A panic's payload may panic when dropped.
    std::mem::forget(panic);
    Status::Poisoned
}

/// Runs `f`; an error becomes its status, a panic poisons the engine.
#[inline]
pub(crate) fn guard(engine: Option<&Engine>, f: impl FnOnce() -> Result<Status>) -> Status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(status)) => status,
        Ok(Err(e)) => fail_in(engine, &e),
        Err(panic) => panicked(engine, panic),
    }
}

/// As [`guard`], for functions that give something else: `fallback` after a panic.
#[inline]
pub(crate) fn guard_value<T>(engine: Option<&Engine>, fallback: T, f: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(v) => v,
        Err(panic) => {
            panicked(engine, panic);
            fallback
        }
    }
}
