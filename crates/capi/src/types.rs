//! The header's types. Field order and widths are the header's.

use crate::build::BuildHandle;
use myriad::{CommitOrder, Engine, Level, Lock, Victim, Wait};
use myriad_base::threads::{self, Threads};
use myriad_base::waits::{self, Sleepers};
use std::ffi::{c_char, c_void, CString};
use std::sync::Arc;

/// The header's `myriad_status`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    Ok = 0,
    End,
    DuplicateKey,
    LockWaitTimeout,
    Deadlock,
    Interrupted,
    NoSuchTable,
    TableExists,
    DefinitionChanged,
    TooLong,
    Io,
    DiskFull,
    Corrupt,
    Tablespace,
    Format,
    DirectoryLocked,
    BufferPool,
    Poisoned,
    NotSupported,
    Invalid,
    ShuttingDown,
    XaUnknown,
    RecordChanged,
    MemoryFull,
    LockTableFull,
}

/// `myriad_engine`.
pub struct EngineHandle {
    pub(crate) engine: Arc<Engine>,
}

/// Told of two thds.
pub type ReportWait = unsafe extern "C" fn(*mut c_void, *mut c_void);
/// `void (*)(void *waiter_thd)`.
pub type ReportSleep = unsafe extern "C" fn();
/// Asked about two thds.
pub type CompareThds = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;

/// `myriad_config`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Config {
    pub data_dir: *const c_char,
    pub buffer_pool_size: u64,
    pub memory_tables_size: u64,
    pub row_locks_size: u64,
    pub buffer_pool_instances: u32,
    pub page_cleaners: u32,
    pub io_capacity: u32,
    pub io_capacity_max: u32,
    pub change_buffer_max_size: u32,
    pub io_method: u32,
    pub page_size: u32,
    pub log_capacity: u64,
    pub flush_log_at_trx_commit: u32,
    pub redo_log: bool,
    pub force_recovery: bool,
    pub doublewrite: bool,
    pub deadlock_detect: bool,
    pub print_all_deadlocks: bool,
    pub max_open_files: u32,
    pub tablespace_per: u32,
    pub background_cpus: *const c_char,
    pub buffer_pool_warm_up: bool,
    pub duplicate_check: u32,
    pub duplicate_check_threads: i32,
    pub duplicate_check_light: bool,
    pub duplicate_check_fadvise: bool,
    pub report: Option<unsafe extern "C" fn(i32, *const c_char)>,
    pub about_to_wait: Option<ReportWait>,
    pub need_ordering: Option<CompareThds>,
    pub victim_preference: Option<CompareThds>,
    pub falls_asleep: Option<ReportSleep>,
    pub wakes_up: Option<ReportSleep>,
    pub thread_begins: Option<unsafe extern "C" fn(*const c_char)>,
    pub thread_ends: Option<unsafe extern "C" fn()>,
}

/// `myriad_index_spec`.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy)]
pub struct CIndexSpec {
    pub unique: bool,
    pub hash: bool,
}

/// `myriad_folder_file`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CFolderFile {
    pub name: *const c_char,
    pub contents: *const u8,
    pub contents_len: usize,
}

/// `myriad_clone_verdict`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CCloneVerdict {
    pub first_row: bool,
    pub image: *const u8,
    pub image_len: usize,
}

/// `myriad_clone_calls`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CCloneCalls {
    pub arg: *mut c_void,
    pub table: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const u8, usize, *mut CCloneVerdict) -> bool>,
    pub first_row: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut u8, usize) -> bool>,
}

/// `myriad_foreign_key`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CForeignKey {
    pub name: *const c_char,
    pub parent: *const c_char,
    pub on_delete: u32,
    pub on_update: u32,
    pub columns: *const *const c_char,
    pub parent_columns: *const *const c_char,
    pub column_count: u32,
}

/// `myriad_foreign_key_change`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CForeignKeyChange {
    pub dropped: *const *const c_char,
    pub dropped_count: u32,
    pub added: *const CForeignKey,
    pub added_count: u32,
    pub old_names: *const *const c_char,
    pub new_names: *const *const c_char,
    pub renamed_count: u32,
}

/// `myriad_new_definition`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CNewDefinition {
    pub frm: *const u8,
    pub frm_len: usize,
    pub definition_id: *const u8,
    pub row_layouts: *const u8,
    pub row_layouts_len: usize,
    pub keys: *const CForeignKeyChange,
}

/// `myriad_alteration`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CAlteration {
    pub name: *const c_char,
    pub to: *const CNewDefinition,
    pub indexes: *const CIndexSpec,
    pub old_index_of_new: *const i32,
    pub index_count: u32,
    pub builds: *const *mut BuildHandle,
    pub build_count: u32,
    pub contents: *const c_char,
}

/// `myriad_table_spec`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CTableSpec {
    pub frm: *const u8,
    pub frm_len: usize,
    pub indexes: *const CIndexSpec,
    pub index_count: u32,
    pub hidden_row_id: bool,
    pub has_auto_increment: bool,
    pub auto_increment_next: u64,
    pub temporary: bool,
    pub in_memory: bool,
    pub tablespace_per: i32,
    pub foreign_keys: *const CForeignKey,
    pub foreign_key_count: u32,
    pub kept_of: *const c_char,
    pub kept_keys: *const *const c_char,
    pub kept_key_count: u32,
}

/// `myriad_table_stats`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CTableStats {
    pub rows: u64,
    pub data_bytes: u64,
    pub index_bytes: u64,
    pub free_bytes: u64,
    pub mean_row_bytes: u64,
    pub create_time_s: u64,
    pub update_time_s: u64,
    pub auto_increment_next: u64,
}

/// `myriad_work`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CWork {
    pub pages_accessed: u64,
    pub pages_updated: u64,
    pub pages_read: u64,
    pub read_ns: u64,
    pub pages_prefetched: u64,
    pub undo_records_read: u64,
}

/// `myriad_op`.
#[repr(C)]
#[allow(missing_docs)]
pub struct COp {
    pub kind: u32,
    pub index_no: u32,
    pub key: *const u8,
    pub key_len: usize,
    pub unique_len: usize,
    pub value: *const u8,
    pub value_len: usize,
    pub head_len: usize,
}

/// `myriad_row`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CRow {
    pub key: *const u8,
    pub key_len: usize,
    pub value: *const u8,
    pub value_len: usize,
}

/// `myriad_bytes`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CBytes {
    pub data: *const u8,
    pub len: usize,
}

/// `myriad_cursor_options`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CCursorOptions {
    pub lock: u32,
    pub wait: u32,
    pub semi_consistent: bool,
    pub record_only: bool,
    pub full_scan: bool,
    pub value_bytes: usize,
    pub tail_bytes: usize,
}

/// `myriad_trx_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CTrxInfo {
    pub trx_id: u64,
    pub start_wall_us: u64,
    pub undo_records: u64,
    pub locks_held: u64,
    pub wait_start_wall_us: u64,
    pub thread_id: u64,
    pub state: *const c_char,
    pub isolation: *const c_char,
    pub recovered: bool,
    pub has_snapshot: bool,
    pub snapshot_age: u64,
}

/// `myriad_lock_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CLockInfo {
    pub trx_id: u64,
    pub mode: *const c_char,
    pub granted: bool,
    pub table: *const c_char,
    pub index_no: u32,
    pub index_name: *const c_char,
    pub key: *const u8,
    pub key_len: usize,
    pub waiting_for_trx_id: u64,
}

/// `myriad_latch_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CLatchInfo {
    pub name: *const c_char,
    pub acquired: u64,
    pub contended: u64,
    pub wait_ns: u64,
    pub contended_percent: f64,
    pub hottest_percent: f64,
    pub hottest: u32,
}

/// `myriad_partition_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CPartitionInfo {
    pub frames: u64,
    pub free_frames: u64,
    pub dirty_pages: u64,
    pub oldest_change_age: u64,
}

/// `myriad_space_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CSpaceInfo {
    pub space_id: u32,
    pub path: *const c_char,
    pub database: *const c_char,
    pub open: bool,
}

/// `myriad_startup_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CStartupInfo {
    pub phase: *const c_char,
    pub microseconds: u64,
    pub bytes_read: u64,
}

/// `myriad_check_info`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CCheckInfo {
    pub has_space_id: bool,
    pub space_id: u32,
    pub path: *const c_char,
    pub problem: *const c_char,
    pub other_path: *const c_char,
    pub detail: *const c_char,
    pub found_wall_us: u64,
}

/// `myriad_text_fn`.
pub type TextFn = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// The bytes a caller names by pointer and length; a null pointer is an empty string.
///
/// # Safety
/// `ptr` must be null or valid for `len` bytes for as long as `'a`.
#[inline]
pub(crate) unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if ptr.is_null() || len == 0 {
        &[]
    } else {
        // SAFETY: not null; valid for `len` bytes by contract.
        unsafe { std::slice::from_raw_parts(ptr, len) }
    }
}

/// As [`bytes`], with null told apart.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn maybe_bytes<'a>(ptr: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: passed on.
    (!ptr.is_null()).then(|| unsafe { bytes(ptr, len) })
}

/// A NUL-terminated name.
///
/// # Safety
/// `ptr` must be a NUL-terminated string, valid for as long as `'a`.
pub(crate) unsafe fn name<'a>(ptr: *const c_char) -> myriad::Result<&'a str> {
    if ptr.is_null() {
        return Err(myriad::Error::invalid("null name"));
    }
    // SAFETY: not null; NUL-terminated by contract.
    unsafe { std::ffi::CStr::from_ptr(ptr) }.to_str().map_err(|_| myriad::Error::invalid("name is not UTF-8"))
}

#[inline]
pub(crate) fn lock(v: u32) -> Lock {
    match v {
        0 => Lock::None,
        1 => Lock::Shared,
        _ => Lock::Exclusive,
    }
}

#[inline]
pub(crate) fn wait(v: u32) -> Wait {
    match v {
        0 => Wait::Wait,
        1 => Wait::NoWait,
        _ => Wait::SkipLocked,
    }
}

/// The C callbacks of a configuration as closures.
pub(crate) fn reporter(f: Option<unsafe extern "C" fn(i32, *const c_char)>) -> myriad::Reporter {
    Arc::new(move |level, text| {
        if let Some(f) = f {
            let text = std::ffi::CString::new(text.replace('\0', " ")).unwrap_or_default();
            let level = match level {
                Level::Info => 0,
                Level::Warning => 1,
                Level::Error => 2,
            };
            // SAFETY: the function and its contract come from the caller of `myriad_engine_open`.
            unsafe { f(level, text.as_ptr()) };
        }
    })
}

/// The C callbacks about the order of commits. Their contract, and that the pointers are those given to
/// `myriad_session_new`, come from the caller of `myriad_engine_open`.
struct ServersOrder {
    about_to_wait: Option<ReportWait>,
    need_ordering: Option<CompareThds>,
    victim_preference: Option<CompareThds>,
}

impl CommitOrder for ServersOrder {
    fn waits(&self, waiter: usize, holder: usize) {
        if let Some(f) = self.about_to_wait {
            // SAFETY: see the type; both thds are alive while the lock table calls.
            unsafe { f(waiter as *mut c_void, holder as *mut c_void) }
        }
    }

    fn is_fixed(&self, waiter: usize, holder: usize) -> bool {
        // SAFETY: as above.
        self.need_ordering.is_some_and(|f| unsafe { f(waiter as *mut c_void, holder as *mut c_void) } == 0)
    }

    fn victim(&self, first: usize, second: usize) -> Option<Victim> {
        // SAFETY: as above.
        match self.victim_preference.map_or(0, |f| unsafe { f(first as *mut c_void, second as *mut c_void) }) {
            0 => None,
            n if n < 0 => Some(Victim::First),
            _ => Some(Victim::Second),
        }
    }
}

pub(crate) fn commit_order(c: &Config) -> Arc<dyn CommitOrder> {
    Arc::new(ServersOrder {
        about_to_wait: c.about_to_wait,
        need_ordering: c.need_ordering,
        victim_preference: c.victim_preference,
    })
}

/// The C callbacks about sleep, which work out themselves whom the calling thread works for.
struct ServersThreads {
    falls_asleep: ReportSleep,
    wakes_up: ReportSleep,
}

impl Sleepers for ServersThreads {
    fn falls_asleep(&self) {
        // SAFETY: the function and its contract come from the caller of `myriad_engine_open`.
        unsafe { (self.falls_asleep)() }
    }

    fn wakes_up(&self) {
        // SAFETY: as above.
        unsafe { (self.wakes_up)() }
    }
}

pub(crate) fn tell_of_sleep(c: &Config) {
    if let (Some(falls_asleep), Some(wakes_up)) = (c.falls_asleep, c.wakes_up) {
        waits::tell(Box::new(ServersThreads { falls_asleep, wakes_up }));
    }
}

/// The C callbacks about the engine's threads.
struct ServersThreadList {
    begins: unsafe extern "C" fn(*const c_char),
    ends: unsafe extern "C" fn(),
}

/// What a thread does, by its name: without what is in front of all of them, and its number.
fn duty_of(name: &str) -> String {
    let name = name.strip_prefix("myriad-").unwrap_or(name);
    let duty = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    duty.replace('-', "_")
}

impl Threads for ServersThreadList {
    fn begins(&self, name: &str) {
        let duty = CString::new(duty_of(name)).unwrap_or_default();
        // SAFETY: the function and its contract come from the caller of `myriad_engine_open`.
        unsafe { (self.begins)(duty.as_ptr()) }
    }

    fn ends(&self) {
        // SAFETY: as above.
        unsafe { (self.ends)() }
    }
}

pub(crate) fn tell_of_threads(c: &Config) {
    if let (Some(begins), Some(ends)) = (c.thread_begins, c.thread_ends) {
        threads::tell(Box::new(ServersThreadList { begins, ends }));
    }
}
