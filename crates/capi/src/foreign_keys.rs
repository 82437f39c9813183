//! Foreign keys: definitions in and out.

use crate::error::{guard, guard_value};
use crate::types::{name, CForeignKey, CForeignKeyChange, EngineHandle, Status};
use myriad::{Error, ForeignKey, ForeignKeyChange, ReferenceAction, Result};
use std::ffi::{c_char, c_void, CString};

/// # Safety
/// `names` must be valid for `count` NUL-terminated strings.
pub(crate) unsafe fn names(names: *const *const c_char, count: u32) -> Result<Vec<String>> {
    // SAFETY: valid by contract.
    (0..count as usize).map(|i| unsafe { name(*names.add(i)) }.map(String::from)).collect()
}

fn action(v: u32) -> Result<ReferenceAction> {
    let v = u8::try_from(v).ok().and_then(ReferenceAction::from_u8);
    v.ok_or_else(|| Error::invalid("action of a foreign key"))
}

/// # Safety
/// `keys` must be valid for `count` elements, and these for what they point at.
pub(crate) unsafe fn foreign_keys(keys: *const CForeignKey, count: u32) -> Result<Vec<ForeignKey>> {
    let mut found = Vec::with_capacity(count as usize);
    for i in 0..count as usize {
        // SAFETY: valid by contract.
        let key = unsafe {
            let k = &*keys.add(i);
            ForeignKey {
                name: name(k.name)?.into(),
                parent: name(k.parent)?.into(),
                on_delete: action(k.on_delete)?,
                on_update: action(k.on_update)?,
                columns: names(k.columns, k.column_count)?
                    .into_iter()
                    .zip(names(k.parent_columns, k.column_count)?)
                    .collect(),
            }
        };
        found.push(key);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A change with what it borrows.
#[derive(Default)]
pub(crate) struct OwnedChange {
    dropped: Vec<String>,
    added: Vec<ForeignKey>,
    renamed: Vec<(String, String)>,
}

impl OwnedChange {
    pub(crate) fn as_change(&self) -> ForeignKeyChange<'_> {
        ForeignKeyChange { dropped: &self.dropped, added: &self.added, renamed: &self.renamed }
    }
}

/// # Safety
/// `c` must be null or valid, and what it points at.
pub(crate) unsafe fn change(c: *const CForeignKeyChange) -> Result<OwnedChange> {
    if c.is_null() {
        return Ok(OwnedChange::default());
    }
    // SAFETY: valid by contract.
    unsafe {
        let c = &*c;
        let (old, new) = (names(c.old_names, c.renamed_count)?, names(c.new_names, c.renamed_count)?);
        Ok(OwnedChange {
            dropped: names(c.dropped, c.dropped_count)?,
            added: foreign_keys(c.added, c.added_count)?,
            renamed: old.into_iter().zip(new).collect(),
        })
    }
}

/// Sees a foreign key and the table that has it.
type KeyFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const CForeignKey);

fn give(visit: KeyFn, arg: *mut c_void, child: &str, key: &ForeignKey) -> Result<()> {
    let text = |s: &str| CString::new(s).map_err(|_| Error::invalid("name in a foreign key"));
    let (child, name, parent) = (text(child)?, text(&key.name)?, text(&key.parent)?);
    let columns = key.columns.iter().map(|(c, _)| text(c)).collect::<Result<Vec<_>>>()?;
    let referenced = key.columns.iter().map(|(_, r)| text(r)).collect::<Result<Vec<_>>>()?;
    let columns: Vec<_> = columns.iter().map(|c| c.as_ptr()).collect();
    let referenced: Vec<_> = referenced.iter().map(|c| c.as_ptr()).collect();
    let key = CForeignKey {
        name: name.as_ptr(),
        parent: parent.as_ptr(),
        on_delete: key.on_delete as u32,
        on_update: key.on_update as u32,
        columns: columns.as_ptr(),
        parent_columns: referenced.as_ptr(),
        column_count: columns.len() as u32,
    };
    // SAFETY: the callback is the caller's.
    unsafe { visit(arg, child.as_ptr(), &key) };
    Ok(())
}

/// A table's foreign keys.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_foreign_keys(
    e: *mut EngineHandle,
    table: *const c_char,
    visit: Option<KeyFn>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let table = unsafe { name(table) }?;
        let Some(visit) = visit else { return Ok(Status::Ok) };
        for key in e.engine.foreign_keys(table)? {
            give(visit, arg, table, &key)?;
        }
        Ok(Status::Ok)
    })
}

/// Foreign keys that refer to a table.
#[no_mangle]
pub unsafe extern "C" fn myriad_list_references(
    e: *mut EngineHandle,
    parent: *const c_char,
    visit: Option<KeyFn>,
    arg: *mut c_void,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let parent = unsafe { name(parent) }?;
        let Some(visit) = visit else { return Ok(Status::Ok) };
        for (child, key) in e.engine.references_to(parent)? {
            give(visit, arg, &child, &key)?;
        }
        Ok(Status::Ok)
    })
}

/// Whether a table of another database refers to one of this database.
#[no_mangle]
pub unsafe extern "C" fn myriad_database_is_referenced(
    e: *mut EngineHandle,
    db: *const c_char,
    out: *mut bool,
) -> Status {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard(Some(&e.engine), || {
        // SAFETY: a valid name by contract.
        let found = e.engine.reference_from_elsewhere(unsafe { name(db) }?)?;
        // SAFETY: `out` is valid by contract.
        unsafe { *out = found.is_some() };
        Ok(Status::Ok)
    })
}

/// Grows with each change of any foreign key.
#[no_mangle]
pub unsafe extern "C" fn myriad_references_version(e: *const EngineHandle) -> u64 {
    // SAFETY: a live engine by contract.
    let e = unsafe { &*e };
    guard_value(Some(&e.engine), 0, || e.engine.references_version())
}
