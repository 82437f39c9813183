//! Definitions.

use crate::engine::placement;
use crate::error::guard;
use crate::foreign_keys::{change, foreign_keys, names, OwnedChange};
use crate::types::{
    bytes, maybe_bytes, name, CAlteration, CCloneCalls, CCloneVerdict, CFolderFile, CIndexSpec, CNewDefinition,
    CTableSpec, EngineHandle, Status, TextFn,
};
use myriad::{Alteration, Error, FolderFile, IndexSpec, Judge, NewDefinition, Result, TableSpec, Verdict};
use std::ffi::{c_char, c_void, CString};

/// # Safety
/// `specs` must be valid for `count` elements.
pub(crate) unsafe fn index_specs(specs: *const CIndexSpec, count: u32) -> Vec<IndexSpec> {
    if specs.is_null() {
        return Vec::new();
    }
    // SAFETY: valid by contract.
    let specs = unsafe { std::slice::from_raw_parts(specs, count as usize) };
    specs.iter().map(|s| IndexSpec { unique: s.unique, hash: s.hash }).collect()
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
        let (table, frm, indexes, keys, kept_of, kept) = unsafe {
            (
                name(table)?,
                bytes(s.frm, s.frm_len),
                index_specs(s.indexes, s.index_count),
                foreign_keys(s.foreign_keys, s.foreign_key_count)?,
                if s.kept_of.is_null() { None } else { Some(name(s.kept_of)?) },
                names(s.kept_keys, s.kept_key_count)?,
            )
        };
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
            foreign_keys: &keys,
            kept_keys: kept_of.map(|table| (table, kept.as_slice())),
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

/// Drops all tables whose names begin so.
#[no_mangle]
pub unsafe extern "C" fn myriad_drop_tables_with_prefix(e: *mut EngineHandle, prefix: *const c_char) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    // SAFETY: a valid name by contract.
    guard(Some(&e.engine), || e.engine.drop_tables_with_prefix(unsafe { name(prefix) }?).map(|()| Status::Ok))
}

/// Renames a table; never overwrites.
#[no_mangle]
pub unsafe extern "C" fn myriad_rename_table(
    e: *mut EngineHandle,
    from: *const c_char,
    to: *const c_char,
    replaced: *const c_char,
    old_prefix: *const c_char,
    new_prefix: *const c_char,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: valid names by contract, or null where that is said.
        let (from, to, replaced, prefix) = unsafe {
            let replaced = if replaced.is_null() { None } else { Some(name(replaced)?) };
            (name(from)?, name(to)?, replaced, (name(old_prefix)?, name(new_prefix)?))
        };
        e.engine.rename_table_as(from, to, replaced, Some(prefix)).map(|()| Status::Ok)
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

/// Sees a copied database's note, name and files.
type CloneFn = unsafe extern "C" fn(*mut c_void, u32, *const c_char, *const CFolderFile, usize);

/// The caller's decisions about a copy's tables.
struct CJudge<'a> {
    from: &'a str,
    calls: &'a CCloneCalls,
}

impl CJudge<'_> {
    fn refused(&self, table: &str) -> Error {
        Error::NotSupported { what: format!("a copy of {}/{table}", self.from) }
    }
}

impl Judge for CJudge<'_> {
    fn table(&mut self, table: &str, image: Option<&[u8]>) -> Result<Verdict> {
        let name = CString::new(table).map_err(|_| Error::invalid("table name"))?;
        let (ptr, len) = image.map_or((std::ptr::null(), 0), |i| (i.as_ptr(), i.len()));
        let Some(call) = self.calls.table else { return Ok(Verdict::default()) };
        let mut verdict = CCloneVerdict { first_row: false, image: std::ptr::null(), image_len: 0 };
        // SAFETY: the callback is the caller's.
        if !unsafe { call(self.calls.arg, name.as_ptr(), ptr, len, &mut verdict) } {
            return Err(self.refused(table));
        }
        let image = (!verdict.image.is_null()).then(|| {
            // SAFETY: the image is the caller's, and valid until the next call.
            unsafe { std::slice::from_raw_parts(verdict.image, verdict.image_len) }.to_vec()
        });
        Ok(Verdict { first_row: verdict.first_row, image })
    }

    fn first_row(&mut self, table: &str, row: &mut [u8]) -> Result<()> {
        let name = CString::new(table).map_err(|_| Error::invalid("table name"))?;
        let Some(call) = self.calls.first_row else { return Ok(()) };
        // SAFETY: the callback is the caller's; it may change the bytes, not their number.
        match unsafe { call(self.calls.arg, name.as_ptr(), row.as_mut_ptr(), row.len()) } {
            true => Ok(()),
            false => Err(self.refused(table)),
        }
    }
}

/// # Safety
/// `files` must be valid for `count` elements.
unsafe fn folder_files(files: *const CFolderFile, count: usize) -> Result<Vec<FolderFile>> {
    if files.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: valid by contract.
    let files = unsafe { std::slice::from_raw_parts(files, count) };
    // SAFETY: as above, for each element.
    let owned = |f: &CFolderFile| unsafe {
        Ok(FolderFile { name: name(f.name)?.into(), contents: bytes(f.contents, f.contents_len).into() })
    };
    files.iter().map(owned).collect()
}

/// Makes a database an empty copy of another.
#[no_mangle]
pub unsafe extern "C" fn myriad_clone_database(
    e: *mut EngineHandle,
    from: *const c_char,
    to: *const c_char,
    files: *const CFolderFile,
    file_count: usize,
    calls: *const CCloneCalls,
    note: *mut u32,
    tables: *mut u64,
) -> Status {
    // SAFETY: a live engine and valid calls by contract.
    let (e, calls) = unsafe { (&*e, &*calls) };
    guard(Some(&e.engine), || {
        // SAFETY: valid names and files by contract.
        let (from, to, files) = unsafe { (name(from)?, name(to)?, folder_files(files, file_count)?) };
        let cloned = e.engine.clone_database(from, to, &files, &mut CJudge { from, calls })?;
        // SAFETY: valid by contract.
        unsafe {
            *note = cloned.note;
            *tables = cloned.tables;
        }
        Ok(Status::Ok)
    })
}

/// The copied database's folder is there.
#[no_mangle]
pub unsafe extern "C" fn myriad_finish_clone(e: *mut EngineHandle, note: u32) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || e.engine.finish_clone(note).map(|()| Status::Ok))
}

/// Copied databases whose folders may be missing.
#[no_mangle]
pub unsafe extern "C" fn myriad_unfinished_clones(
    e: *mut EngineHandle,
    visit: Option<CloneFn>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        for clone in e.engine.unfinished_clones()? {
            let c_string = |s: &str| CString::new(s).map_err(|_| Error::invalid("name in a copied database's note"));
            let database = c_string(&clone.database)?;
            let names = clone.files.iter().map(|f| c_string(&f.name)).collect::<Result<Vec<_>>>()?;
            let files: Vec<CFolderFile> = clone
                .files
                .iter()
                .zip(&names)
                .map(|(f, name)| CFolderFile {
                    name: name.as_ptr(),
                    contents: f.contents.as_ptr(),
                    contents_len: f.contents.len(),
                })
                .collect();
            if let Some(visit) = visit {
                // SAFETY: the callback is the caller's.
                unsafe { visit(arg, clone.id, database.as_ptr(), files.as_ptr(), files.len()) };
            }
        }
        Ok(Status::Ok)
    })
}

/// # Safety
/// `c` must be valid for as long as `'a`, and what it points at.
unsafe fn definition<'a>(c: &'a CNewDefinition, keys: &'a OwnedChange) -> Result<NewDefinition<'a>> {
    // SAFETY: valid by contract.
    let (frm, definition_id, row_layouts) = unsafe {
        (
            bytes(c.frm, c.frm_len),
            maybe_bytes(c.definition_id, 16).map(<[u8; 16]>::try_from),
            maybe_bytes(c.row_layouts, c.row_layouts_len),
        )
    };
    let definition_id = definition_id.transpose().map_err(|_| Error::invalid("definition id"))?;
    Ok(NewDefinition { frm, definition_id, row_layouts, keys: keys.as_change() })
}

/// New definition, same indexes.
#[no_mangle]
pub unsafe extern "C" fn myriad_redefine_table(
    e: *mut EngineHandle,
    table: *const c_char,
    to: *const CNewDefinition,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name and definition by contract.
        let (table, to, keys) = unsafe { (name(table)?, &*to, change((*to).keys)?) };
        // SAFETY: as before.
        e.engine.redefine(table, &unsafe { definition(to, &keys) }?)?;
        Ok(Status::Ok)
    })
}

/// An image for a table that has none.
#[no_mangle]
pub unsafe extern "C" fn myriad_adopt_frm(
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
        e.engine.adopt_image(table, frm).map(|()| Status::Ok)
    })
}

/// Changes of definitions and indexes in place, of all these tables or of none.
#[no_mangle]
pub unsafe extern "C" fn myriad_alter_tables(
    e: *mut EngineHandle,
    alterations: *const CAlteration,
    count: u32,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        if alterations.is_null() {
            return Err(Error::invalid("no table to change"));
        }
        // SAFETY: valid by contract, as all that they point at.
        let given = unsafe { std::slice::from_raw_parts(alterations, count as usize) };
        let mut owned = Vec::with_capacity(given.len());
        for a in given {
            // SAFETY: as before.
            owned.push(unsafe { (change((*a.to).keys)?, new_indexes(a)) });
        }
        let mut alterations = Vec::with_capacity(given.len());
        for (a, (keys, indexes)) in given.iter().zip(&owned) {
            // SAFETY: as before; the builds are live and different, each is used by this call alone.
            let (name, to, builds) = unsafe { (name(a.name)?, definition(&*a.to, keys)?, builds(a)) };
            // SAFETY: null or NUL-terminated by contract.
            let contents = if a.contents.is_null() { None } else { Some(unsafe { crate::types::name(a.contents) }?) };
            alterations.push(Alteration { name, to, indexes, builds, contents });
        }
        e.engine.alter_tables(&mut alterations)?;
        Ok(Status::Ok)
    })
}

/// # Safety
/// What `a` points at must be valid for its counts.
unsafe fn new_indexes(a: &CAlteration) -> Vec<(IndexSpec, Option<u32>)> {
    if a.old_index_of_new.is_null() {
        return Vec::new();
    }
    // SAFETY: valid by contract.
    let (specs, old) = unsafe {
        (index_specs(a.indexes, a.index_count), std::slice::from_raw_parts(a.old_index_of_new, a.index_count as usize))
    };
    specs.into_iter().zip(old.iter().map(|&no| u32::try_from(no).ok())).collect()
}

/// # Safety
/// The handles must be valid for their count, live and different.
unsafe fn builds<'a>(a: &CAlteration) -> Vec<&'a mut myriad::IndexBuild> {
    if a.builds.is_null() {
        return Vec::new();
    }
    // SAFETY: live, different handles by contract.
    (0..a.build_count as usize).map(|i| unsafe { &mut (**a.builds.add(i)).build }).collect()
}

/// Whether there is such a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_table_exists(e: *mut EngineHandle, table: *const c_char, out: *mut bool) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let exists = e.engine.table_exists(unsafe { name(table) }?)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = exists };
        Ok(Status::Ok)
    })
}

/// Whether a prepared transaction that belongs to no session has changed the table.
#[no_mangle]
pub unsafe extern "C" fn myriad_is_changed_by_prepared(
    e: *mut EngineHandle,
    table: *const c_char,
    out: *mut bool,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let changed = e.engine.is_changed_by_prepared(unsafe { name(table) }?)?;
        // SAFETY: a valid pointer by contract.
        unsafe { *out = changed };
        Ok(Status::Ok)
    })
}

/// The definition's id that the last change in place gave to the first table whose name begins so.
#[no_mangle]
pub unsafe extern "C" fn myriad_definition_id(e: *mut EngineHandle, prefix: *const c_char, out: *mut u8) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let prefix = unsafe { name(prefix) }?;
        let id = e.engine.definition_id(prefix)?.ok_or_else(|| Error::NoSuchTable { name: prefix.into() })?;
        // SAFETY: 16 bytes by contract.
        unsafe { std::ptr::copy_nonoverlapping(id.as_ptr(), out, id.len()) };
        Ok(Status::Ok)
    })
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
        let mut names = CString::default();
        // NUL-terminated for callers that treat it as a C string all the same.
        e.engine.list_tables(db, &mut |table| {
            names = CString::new(table).unwrap_or_default();
            // SAFETY: the callback is the caller's.
            unsafe { visit(arg, names.as_ptr(), table.len()) }
        })?;
        Ok(Status::Ok)
    })
}
