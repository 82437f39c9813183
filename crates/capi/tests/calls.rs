//! A table's life through the C functions, as the shim calls them.

use myriad_capi::*;
use std::ffi::{c_void, CStr, CString};
use std::ptr::{null, null_mut};

unsafe extern "C" fn collect(arg: *mut c_void, text: *const std::ffi::c_char, len: usize) {
    // SAFETY: the tests pass a `Vec<u8>` as argument, the functions valid bytes.
    unsafe { (*arg.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(text.cast(), len)) };
}

unsafe extern "C" fn collect_name(arg: *mut c_void, name: *const std::ffi::c_char, _len: usize) -> bool {
    // SAFETY: as above; names are NUL-terminated.
    unsafe { (*arg.cast::<Vec<String>>()).push(CStr::from_ptr(name).to_str().unwrap().into()) };
    true
}

unsafe extern "C" fn collect_index(arg: *mut c_void, lock: *const CLockInfo) -> bool {
    // SAFETY: as above; a lock's name is null or NUL-terminated.
    unsafe {
        let name = (*lock).index_name;
        let name = if name.is_null() { "unknown".into() } else { CStr::from_ptr(name).to_str().unwrap().into() };
        (*arg.cast::<Vec<String>>()).push(name);
    }
    true
}

fn config(dir: &CStr) -> Config {
    Config {
        data_dir: dir.as_ptr(),
        buffer_pool_size: 8 << 20,
        memory_tables_size: 0,
        row_locks_size: 0,
        buffer_pool_instances: 0,
        page_cleaners: 1,
        io_capacity: 1000,
        io_capacity_max: 2000,
        change_buffer_max_size: 10,
        io_method: 2,
        page_size: 16384,
        log_capacity: 8 << 20,
        flush_log_at_trx_commit: 1,
        redo_log: true,
        force_recovery: false,
        doublewrite: true,
        deadlock_detect: true,
        print_all_deadlocks: false,
        max_open_files: 100,
        tablespace_per: 0,
        background_cpus: c"".as_ptr(),
        buffer_pool_warm_up: false,
        duplicate_check: 1,
        duplicate_check_threads: -1,
        duplicate_check_light: true,
        duplicate_check_fadvise: true,
        report: None,
        about_to_wait: None,
        need_ordering: None,
        victim_preference: None,
        falls_asleep: None,
        wakes_up: None,
        thread_begins: None,
        thread_ends: None,
    }
}

fn insert_op(key: &[u8], value: &[u8]) -> COp {
    COp {
        kind: 0,
        index_no: 0,
        key: key.as_ptr(),
        key_len: key.len(),
        unique_len: key.len(),
        value: value.as_ptr(),
        value_len: value.len(),
        head_len: 0,
    }
}

const EMPTY: CRow = CRow { key: null(), key_len: 0, value: null(), value_len: 0 };

#[test]
fn a_tables_life() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().to_str().unwrap()).unwrap();
    let name = c"d/t";
    // SAFETY: every pointer given is valid for the call; handles are used by this thread and freed once.
    unsafe {
        let mut engine = null_mut();
        assert_eq!(myriad_engine_open(&config(&path), &mut engine), Status::Ok);
        myriad_engine_start_background(engine);
        let indexes = [CIndexSpec { unique: true, hash: false }];
        let spec = CTableSpec {
            frm: b"image".as_ptr(),
            frm_len: 5,
            indexes: indexes.as_ptr(),
            index_count: 1,
            hidden_row_id: false,
            has_auto_increment: true,
            auto_increment_next: 10,
            temporary: false,
            in_memory: false,
            tablespace_per: -1,
            foreign_keys: null(),
            foreign_key_count: 0,
            kept_of: null(),
            kept_keys: null(),
            kept_key_count: 0,
        };
        assert_eq!(myriad_create_table(engine, name.as_ptr(), &spec), Status::Ok);
        assert_eq!(myriad_create_table(engine, name.as_ptr(), &spec), Status::TableExists);
        assert!(CStr::from_ptr(myriad_last_error()).to_str().unwrap().contains("d/t"));
        let mut frm: Vec<u8> = Vec::new();
        assert_eq!(myriad_get_frm(engine, name.as_ptr(), Some(collect), (&raw mut frm).cast()), Status::Ok);
        assert_eq!(frm, b"image");

        let (mut session, mut table) = (null_mut(), null_mut());
        assert_eq!(myriad_session_new(engine, null_mut(), 7, &mut session), Status::Ok);
        assert_eq!(myriad_table_open(engine, name.as_ptr(), &mut table), Status::Ok);
        myriad_table_name_indexes(table, [c"PRIMARY".as_ptr()].as_ptr(), 1);
        myriad_statement_begin(session, 2, false, 1000);
        let mut first = 0;
        assert_eq!(myriad_auto_increment_reserve(session, table, 1, 1, 1, u64::MAX, &mut first), Status::Ok);
        assert_eq!(first, 10);
        let (mut failed, mut dup, mut dup_len) = (9, null(), 0);
        for key in [b"a", b"b", b"c"] {
            let op = insert_op(key, b"value");
            assert_eq!(myriad_apply(session, table, &op, 1, 0, &mut failed, &mut dup, &mut dup_len), Status::Ok);
        }
        let op = insert_op(b"b", b"again");
        assert_eq!(myriad_apply(session, table, &op, 1, 0, &mut failed, &mut dup, &mut dup_len), Status::DuplicateKey);
        assert_eq!((failed, std::slice::from_raw_parts(dup, dup_len)), (0, &b"b"[..]));
        myriad_statement_end(session);
        assert!(myriad_has_changes(session));
        assert_eq!(myriad_commit(session), Status::Ok);

        myriad_statement_begin(session, 2, true, 1000);
        let mut row = EMPTY;
        assert_eq!(myriad_check_snapshot(session, table, 0), Status::Ok);
        assert_eq!(myriad_get(session, table, 0, b"c".as_ptr(), 1, false, 0, 0, &mut row, null_mut()), Status::Ok);
        assert_eq!(std::slice::from_raw_parts(row.value, row.value_len), b"value");
        assert_eq!(myriad_get(session, table, 0, b"x".as_ptr(), 1, false, 0, 0, &mut row, null_mut()), Status::End);
        let mut cursor = null_mut();
        assert_eq!(myriad_cursor_open(session, table, 0, null(), &mut cursor), Status::Ok);
        let mut keys = Vec::new();
        let mut status = myriad_cursor_seek(cursor, 0, null(), 0, &mut row);
        while status == Status::Ok {
            keys.extend_from_slice(std::slice::from_raw_parts(row.key, row.key_len));
            status = myriad_cursor_next(cursor, &mut row);
        }
        assert_eq!((status, keys.as_slice()), (Status::End, &b"abc"[..]));
        assert_eq!(myriad_cursor_seek(cursor, 99, null(), 0, &mut row), Status::Invalid);
        myriad_cursor_close(cursor);
        assert_eq!(myriad_get(session, table, 5, b"c".as_ptr(), 1, false, 0, 0, &mut row, null_mut()), Status::Invalid);
        assert_eq!(myriad_get(session, table, 0, b"c".as_ptr(), 1, false, 2, 0, &mut row, null_mut()), Status::Ok);
        let mut indexes: Vec<String> = Vec::new();
        myriad_list_locks(engine, true, usize::MAX, Some(collect_index), (&raw mut indexes).cast());
        assert!(indexes.is_empty(), "nobody waits");
        myriad_list_locks(engine, false, usize::MAX, Some(collect_index), (&raw mut indexes).cast());
        assert_eq!(indexes, ["PRIMARY"]);
        myriad_statement_end(session);
        assert_eq!(myriad_commit(session), Status::Ok);

        let mut names: Vec<String> = Vec::new();
        myriad_list_tables(engine, c"d".as_ptr(), Some(collect_name), (&raw mut names).cast());
        assert_eq!(names, ["t"]);
        assert_eq!(myriad_commit_by_xid(engine, b"?".as_ptr(), 1), Status::XaUnknown);
        let mut text: Vec<u8> = Vec::new();
        myriad_status_text(engine, Some(collect), (&raw mut text).cast());
        assert!(text.len() > 500);
        assert!(myriad_table_is_current(table));
        assert_eq!(myriad_drop_table(engine, name.as_ptr()), Status::Ok);
        assert!(!myriad_table_is_current(table));
        assert_eq!(myriad_drop_table(engine, name.as_ptr()), Status::NoSuchTable);
        myriad_table_close(table);
        myriad_session_free(session);
        assert_eq!(myriad_engine_close(engine, 0), Status::Ok);
    }
}

unsafe extern "C" fn ignore(_: *mut c_void, _: *const std::ffi::c_char, _: usize) {}

unsafe extern "C" fn judge_table(
    arg: *mut c_void,
    table: *const std::ffi::c_char,
    image: *const u8,
    len: usize,
    verdict: *mut CCloneVerdict,
) -> bool {
    // SAFETY: the test passes a `Vec<String>` as argument, the function valid bytes and a verdict to fill in.
    unsafe {
        let table = CStr::from_ptr(table).to_str().unwrap();
        (*arg.cast::<Vec<String>>()).push(format!("{table} {}", if image.is_null() { -1 } else { len as i64 }));
        (*verdict).first_row = table == "state";
        (*verdict).image = b"new image".as_ptr();
        (*verdict).image_len = 9;
        table != "refused"
    }
}

unsafe extern "C" fn judge_row(_: *mut c_void, _: *const std::ffi::c_char, row: *mut u8, _len: usize) -> bool {
    // SAFETY: the test's rows are not empty.
    unsafe { *row = b'V' };
    true
}

unsafe extern "C" fn collect_clone(
    arg: *mut c_void,
    _note: u32,
    db: *const std::ffi::c_char,
    files: *const CFolderFile,
    count: usize,
) {
    // SAFETY: the test passes a `Vec<String>` as argument, the function valid files.
    unsafe {
        let mut text = CStr::from_ptr(db).to_str().unwrap().to_string();
        for file in std::slice::from_raw_parts(files, count) {
            let contents = std::slice::from_raw_parts(file.contents, file.contents_len);
            text += &format!(" {}={}", CStr::from_ptr(file.name).to_str().unwrap(), contents.escape_ascii());
        }
        (*arg.cast::<Vec<String>>()).push(text);
    }
}

#[test]
fn a_database_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().to_str().unwrap()).unwrap();
    // SAFETY: every pointer given is valid for the call; handles are used by this thread and freed once.
    unsafe {
        let mut engine = null_mut();
        assert_eq!(myriad_engine_open(&config(&path), &mut engine), Status::Ok);
        let indexes = [CIndexSpec { unique: true, hash: false }];
        for (name, image) in [(c"d/state", &b"state"[..]), (c"d/t", b"image"), (c"d/u", b"image")] {
            let spec = CTableSpec {
                frm: image.as_ptr(),
                frm_len: image.len(),
                indexes: indexes.as_ptr(),
                index_count: 1,
                hidden_row_id: false,
                has_auto_increment: false,
                auto_increment_next: 0,
                temporary: false,
                in_memory: false,
                tablespace_per: -1,
                foreign_keys: null(),
                foreign_key_count: 0,
                kept_of: null(),
                kept_keys: null(),
                kept_key_count: 0,
            };
            assert_eq!(myriad_create_table(engine, name.as_ptr(), &spec), Status::Ok);
        }
        let (mut session, mut table) = (null_mut(), null_mut());
        assert_eq!(myriad_session_new(engine, null_mut(), 7, &mut session), Status::Ok);
        assert_eq!(myriad_table_open(engine, c"d/state".as_ptr(), &mut table), Status::Ok);
        myriad_statement_begin(session, 2, false, 1000);
        let (mut failed, mut dup, mut dup_len) = (9, null(), 0);
        let op = insert_op(b"k", b"value");
        assert_eq!(myriad_apply(session, table, &op, 1, 0, &mut failed, &mut dup, &mut dup_len), Status::Ok);
        myriad_statement_end(session);
        assert_eq!(myriad_commit(session), Status::Ok);
        myriad_table_close(table);

        let files = [
            CFolderFile { name: c"v.frm".as_ptr(), contents: b"a\nb".as_ptr(), contents_len: 3 },
            CFolderFile { name: c"db.opt".as_ptr(), contents: null(), contents_len: 0 },
        ];
        let mut seen: Vec<String> = Vec::new();
        let calls = CCloneCalls { arg: (&raw mut seen).cast(), table: Some(judge_table), first_row: Some(judge_row) };
        let (mut note, mut tables) = (0, 0);
        let (from, to) = (c"d".as_ptr(), c"e".as_ptr());
        let status = myriad_clone_database(engine, from, to, files.as_ptr(), 2, &calls, &mut note, &mut tables);
        assert_eq!((status, tables), (Status::Ok, 3));
        assert_eq!(seen, ["state 5", "t 5", "u -1"]);
        let mut frm: Vec<u8> = Vec::new();
        assert_eq!(myriad_get_frm(engine, c"e/u".as_ptr(), Some(collect), (&raw mut frm).cast()), Status::Ok);
        assert_eq!(frm, b"new image");
        let mut row = EMPTY;
        assert_eq!(myriad_table_open(engine, c"e/state".as_ptr(), &mut table), Status::Ok);
        myriad_statement_begin(session, 2, true, 1000);
        assert_eq!(myriad_get(session, table, 0, b"k".as_ptr(), 1, false, 0, 0, &mut row, null_mut()), Status::Ok);
        assert_eq!(std::slice::from_raw_parts(row.value, row.value_len), b"Value");
        myriad_statement_end(session);
        assert_eq!(myriad_commit(session), Status::Ok);
        myriad_table_close(table);
        seen.clear();
        let arg = (&raw mut seen).cast();
        assert_eq!(myriad_unfinished_clones(engine, Some(collect_clone), arg), Status::Ok);
        assert_eq!(seen, ["e v.frm=a\\nb db.opt="]);
        assert_eq!(myriad_finish_clone(engine, note), Status::Ok);
        myriad_session_free(session);
        assert_eq!(myriad_engine_close(engine, 0), Status::Ok);
    }
}

#[test]
fn a_mistake_is_an_error_not_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().to_str().unwrap()).unwrap();
    // SAFETY: as above.
    unsafe {
        let mut engine = null_mut();
        let bad = Config { page_size: 100, ..config(&path) };
        assert_eq!(myriad_engine_open(&bad, &mut engine), Status::Invalid);
        assert_eq!(myriad_engine_open(&Config { io_method: 9, ..config(&path) }, &mut engine), Status::Invalid);
        assert_eq!(myriad_engine_open(&config(&path), &mut engine), Status::Ok);
        assert_eq!(myriad_drop_table(engine, c"no slash".as_ptr()), Status::Invalid);
        assert_eq!(myriad_drop_table(engine, null()), Status::Invalid);
        let mut exists = true;
        assert_eq!(myriad_table_exists(engine, c"a/b".as_ptr(), &mut exists), Status::Ok);
        assert!(!exists);
        assert_eq!(myriad_get_frm(engine, c"a/b".as_ptr(), Some(ignore), null_mut()), Status::NoSuchTable);
        assert_eq!(myriad_engine_set(engine, 77, 0), Status::Invalid);
        assert_eq!(myriad_engine_close(engine, 1), Status::Ok);
    }
}
