//! `myriad_engine_*`.

use crate::error::{guard, guard_value};
use crate::types::{commit_order, name, reporter, tell_of_sleep, tell_of_threads, Config, EngineHandle, Status};
use myriad::{
    CloseMode, DuplicateCheck, Engine, EngineConfig, Error, FlushAtCommit, IoMethod, Placement, Result, Setting,
};
use std::time::Duration;

/// How long a server's start waits for another process that holds the data directory.
const LOCK_WAIT: Duration = Duration::from_secs(30);

fn flush_at_commit(v: u64) -> Result<FlushAtCommit> {
    match v {
        0 => Ok(FlushAtCommit::Lazy),
        1 => Ok(FlushAtCommit::Sync),
        2 => Ok(FlushAtCommit::Write),
        _ => Err(Error::invalid(format!("flush_log_at_trx_commit = {v}"))),
    }
}

pub(crate) fn placement(v: u64) -> Result<Placement> {
    u8::try_from(v).ok().and_then(Placement::from_u8).ok_or_else(|| Error::invalid(format!("tablespace_per = {v}")))
}

/// # Safety
/// `c` must be as the header says.
unsafe fn convert(c: &Config) -> Result<EngineConfig> {
    // SAFETY: NUL-terminated by contract.
    let mut config = EngineConfig::new(unsafe { name(c.data_dir) }?);
    config.buffer_pool_bytes = c.buffer_pool_size;
    config.memory_tables_bytes = c.memory_tables_size;
    config.row_locks_bytes = c.row_locks_size;
    config.buffer_pool_instances = c.buffer_pool_instances as usize;
    config.page_cleaners = c.page_cleaners.max(1) as usize;
    config.io_capacity = c.io_capacity;
    config.io_capacity_max = c.io_capacity_max;
    config.change_buffer_max_size = c.change_buffer_max_size;
    config.io_method = match c.io_method {
        0 => IoMethod::Auto,
        1 => IoMethod::Uring,
        2 => IoMethod::Threads,
        other => return Err(Error::invalid(format!("io_method = {other}"))),
    };
    config.page_size = c.page_size as usize;
    config.log_capacity_bytes = c.log_capacity;
    config.flush_at_commit = flush_at_commit(u64::from(c.flush_log_at_trx_commit))?;
    config.redo_log = c.redo_log;
    config.force_recovery = c.force_recovery;
    config.doublewrite = c.doublewrite;
    config.deadlock_detect = c.deadlock_detect;
    config.print_all_deadlocks = c.print_all_deadlocks;
    config.lock_wait = LOCK_WAIT;
    config.max_open_files = c.max_open_files as usize;
    config.placement = placement(u64::from(c.tablespace_per))?;
    config.duplicate_check = match c.duplicate_check {
        0 => DuplicateCheck::Off,
        1 => DuplicateCheck::Online,
        2 => DuplicateCheck::Blocking,
        other => return Err(Error::invalid(format!("tablespace_duplicate_check = {other}"))),
    };
    config.duplicate_check_threads = c.duplicate_check_threads;
    config.duplicate_check_light = c.duplicate_check_light;
    config.duplicate_check_fadvise = c.duplicate_check_fadvise;
    config.report = reporter(c.report);
    config.warm_up = c.buffer_pool_warm_up;
    // SAFETY: NUL-terminated by contract.
    config.background_cpus = unsafe { name(c.background_cpus) }?.into();
    config.commit_order = commit_order(c);
    tell_of_sleep(c);
    tell_of_threads(c);
    Ok(config)
}

/// Creates the data directory's files on first use, else recovers.
#[no_mangle]
pub unsafe extern "C" fn myriad_engine_open(config: *const Config, out: *mut *mut EngineHandle) -> Status {
    guard(None, || {
        // SAFETY: a valid configuration by contract.
        let config = unsafe { convert(&*config) }?;
        let engine = Engine::open_with(config, None)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = Box::into_raw(Box::new(EngineHandle { engine })) };
        Ok(Status::Ok)
    })
}

/// Starts rollback of losers, purge and background drops.
#[no_mangle]
pub unsafe extern "C" fn myriad_engine_start_background(e: *mut EngineHandle) {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), (), || e.engine.start_background());
}

/// Page size in bytes.
#[no_mangle]
pub unsafe extern "C" fn myriad_page_size(e: *const EngineHandle) -> u32 {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(None, 0, || e.engine.page_size() as u32)
}

/// Size of the log in bytes, which may not be the configured one.
#[no_mangle]
pub unsafe extern "C" fn myriad_log_capacity(e: *const EngineHandle) -> u64 {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(None, 0, || e.engine.log_capacity())
}

/// Stops the engine and frees the handle.
#[no_mangle]
pub unsafe extern "C" fn myriad_engine_close(e: *mut EngineHandle, fast: u32) -> Status {
    // SAFETY: a live engine by contract, given up here.
    let e = unsafe { Box::from_raw(e) };
    guard(None, || {
        let mode = match fast {
            0 => CloseMode::Purged,
            1 => CloseMode::Clean,
            _ => CloseMode::LogOnly,
        };
        e.engine.close(mode)?;
        drop(e);
        Ok(Status::Ok)
    })
}

/// Changes a setting.
#[no_mangle]
pub unsafe extern "C" fn myriad_engine_set(e: *mut EngineHandle, setting: u32, value: u64) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        let setting = match setting {
            0 => Setting::FlushAtCommit(flush_at_commit(value)?),
            1 => Setting::IoCapacity(small(value)),
            2 => Setting::IoCapacityMax(small(value)),
            3 => Setting::DeadlockDetect(value != 0),
            4 => Setting::BufferPoolBytes(value),
            5 => Setting::MaxOpenFiles(small(value) as usize),
            6 => Setting::Placement(placement(value)?),
            7 => Setting::BufferPoolBytesCheck(value),
            8 => Setting::MemoryTablesBytes(value),
            9 => Setting::RedoLog(value != 0),
            10 => Setting::ChangeBufferMaxSize(small(value)),
            11 => Setting::RowLocksBytes(value),
            12 => Setting::LogCapacityBytes(value),
            13 => Setting::PrintAllDeadlocks(value != 0),
            other => return Err(Error::invalid(format!("setting {other}"))),
        };
        e.engine.set(setting).map(|()| Status::Ok)
    })
}

/// Makes all that is in the log durable.
#[no_mangle]
pub unsafe extern "C" fn myriad_flush_log(e: *mut EngineHandle) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || e.engine.flush_log().map(|()| Status::Ok))
}
