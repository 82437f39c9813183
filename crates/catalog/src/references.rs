//! FOREIGN KEY constraints: kept in the row of the table that has them, and in an index by the table they refer to.
//!
//! The catalog knows names alone; that a referenced table or column exists, and what a violation is, are the reader's
//! business. A parent is referenced by name: it may be missing, and a table of that name made later is it.

use crate::def::{ForeignKey, TableDef};
use crate::rows::{self, parse_reference_key, reference_key, reference_prefix};
use crate::spaces::{apply_one, get_locked};
use crate::store::{index, Catalog};
use myriad_base::Result;
use myriad_txn::{OpKind, Strength, Trx};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// What a change of a definition makes of foreign keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForeignKeyChange<'a> {
    /// Names of the table's own that go.
    pub dropped: &'a [String],
    /// New ones, in terms of the columns' new names.
    pub added: &'a [ForeignKey],
    /// Columns of the table that change their names: old and new. Its own foreign keys follow, and those of others that
    /// refer to them.
    pub renamed: &'a [(String, String)],
}

impl ForeignKeyChange<'_> {
    /// Whether there is anything to do.
    pub(crate) fn is_any(&self) -> bool {
        !(self.dropped.is_empty() && self.added.is_empty() && self.renamed.is_empty())
    }

    fn rename(&self, column: &mut String) {
        // As the server compares names of columns.
        let lower = column.to_lowercase();
        if let Some((_, new)) = self.renamed.iter().find(|(old, _)| old.to_lowercase() == lower) {
            column.clone_from(new);
        }
    }
}

/// Taken before a transaction that moves a child's entries to another name, or that makes a parent's children follow it: the
/// latter finds all children and changes each, and must neither miss one nor meet it under a name that it no longer has.
/// Held across syncs, so not a latch.
#[derive(Default)]
pub(crate) struct Following(RwLock<()>);

/// A part in [`Following`].
#[expect(dead_code, reason = "held, not read")]
pub(crate) enum Follows<'a> {
    /// Children may follow their parents.
    Parent(RwLockWriteGuard<'a, ()>),
    /// A child itself: many at once.
    Child(RwLockReadGuard<'a, ()>),
    /// No foreign key is concerned.
    Nobody,
}

impl Following {
    pub(crate) fn parent(&self) -> Follows<'_> {
        Follows::Parent(self.0.write())
    }

    pub(crate) fn child(&self) -> Follows<'_> {
        Follows::Child(self.0.read())
    }
}

/// What the server calls tables that stand in for others in the middle of a change: foreign keys do not follow them.
fn is_stand_in(name: &str) -> bool {
    name.split_once('/').is_some_and(|(_, table)| table.starts_with(crate::ddl::COPY_PREFIX))
}

impl Catalog {
    /// Grows with each change of any foreign key, after its commit.
    pub fn references_version(&self) -> u64 {
        self.references_version.load(Ordering::Acquire)
    }

    /// Foreign keys were changed and the change committed.
    pub(crate) fn note_references(&self) {
        self.references_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Foreign keys that refer to a table, each with the table that has it, in order of those tables' names.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn references_to(&self, parent: &str) -> Result<Vec<(String, ForeignKey)>> {
        let mut children = Vec::new();
        self.scan(rows::REFERENCES, &reference_prefix(parent)?, &mut |key, _| {
            children.push(parse_reference_key(key)?.1);
            Ok(true)
        })?;
        let mut found = Vec::new();
        for child in children {
            // Gone since: nothing refers to the parent any more.
            let Some(def) = self.find_table(&child)? else { continue };
            found.extend(def.foreign_keys.iter().filter(|f| f.parent == parent).map(|f| (child.clone(), f.clone())));
        }
        Ok(found)
    }

    /// A table of another database that refers to one of this database: `(parent, child)`.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn reference_from_elsewhere(&self, db: &str) -> Result<Option<(String, String)>> {
        let mut prefix = Vec::new();
        rows::push_database_key(&mut prefix, db)?;
        let mut found = None;
        self.scan(rows::REFERENCES, &prefix, &mut |key, _| {
            let (parent, child) = parse_reference_key(key)?;
            if child.split_once('/').is_none_or(|(child_db, _)| child_db != db) {
                found = Some((parent, child));
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// For a rename of a table: `followed` is the name whose children follow it.
    pub(crate) fn follow(&self, table: &str, followed: Option<&str>) -> Result<Follows<'_>> {
        // Those who may become children meanwhile are others' children already, or keep the table from being renamed.
        if followed.map(|name| self.has_children(name)).transpose()? == Some(true) {
            return Ok(self.following.parent());
        }
        let is_child = self.find_table(table)?.is_some_and(|def| !def.foreign_keys.is_empty());
        Ok(if is_child { self.following.child() } else { Follows::Nobody })
    }

    fn has_children(&self, parent: &str) -> Result<bool> {
        self.has_row(rows::REFERENCES, &reference_prefix(parent)?)
    }

    /// Makes foreign keys refer to what those of the same names refer to that a table has now. For who has a part in
    /// [`Following`].
    pub(crate) fn follow_kept(&self, keys: &mut [ForeignKey], table: &str, names: &[String]) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        rows::push_table_key(&mut key, table)?;
        if !self.trx.get_newest(&index(rows::TABLES), &key, &mut value)? {
            return Ok(());
        }
        let now = rows::decode_table(table.into(), &value)?;
        for f in keys.iter_mut().filter(|f| names.contains(&f.name)) {
            let Some(own) = now.foreign_keys.iter().find(|own| own.name == f.name) else { continue };
            if own.parent == table || own.columns.len() != f.columns.len() {
                continue;
            }
            f.parent.clone_from(&own.parent);
            for ((_, referenced), (_, own)) in f.columns.iter_mut().zip(&own.columns) {
                referenced.clone_from(own);
            }
        }
        Ok(())
    }

    /// Enters a table's foreign keys under their parents.
    pub(crate) fn insert_references(&self, trx: &mut Trx, def: &TableDef) -> Result<()> {
        for parent in parents(def) {
            self.put_reference(trx, parent, &def.name)?;
        }
        Ok(())
    }

    fn put_reference(&self, trx: &mut Trx, parent: &str, child: &str) -> Result<()> {
        let key = reference_key(parent, child)?;
        match get_locked(trx, &index(rows::REFERENCES), &key, Strength::X)? {
            Some(_) => Ok(()),
            None => apply_one(trx, OpKind::Insert, &index(rows::REFERENCES), &key, &rows::encode_reference()),
        }
    }

    /// Takes out what [`Catalog::insert_references`] entered.
    pub(crate) fn delete_references(&self, trx: &mut Trx, def: &TableDef) -> Result<()> {
        for parent in parents(def) {
            apply_one(trx, OpKind::Delete, &index(rows::REFERENCES), &reference_key(parent, &def.name)?, &[])?;
        }
        Ok(())
    }

    /// Edits a table's definition as part of its own change: what it says now, for it may have followed a parent since the
    /// change was planned. The row is locked, and the caller's to write. Gives the tables whose foreign keys have followed.
    pub(crate) fn change_foreign_keys(
        &self,
        trx: &mut Trx,
        def: &mut TableDef,
        change: ForeignKeyChange<'_>,
    ) -> Result<Vec<String>> {
        if !change.is_any() {
            return Ok(Vec::new());
        }
        self.delete_references(trx, def)?;
        let mut keys = def.foreign_keys.to_vec();
        keys.retain(|f| !change.dropped.contains(&f.name));
        for f in &mut keys {
            let to_itself = f.parent == def.name;
            for (column, referenced) in &mut f.columns {
                change.rename(column);
                if to_itself {
                    change.rename(referenced);
                }
            }
        }
        keys.extend_from_slice(change.added);
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        def.foreign_keys = keys.into();
        self.insert_references(trx, def)?;
        if change.renamed.is_empty() {
            return Ok(Vec::new());
        }
        let parent = def.name.as_str();
        self.edit_references(trx, parent, parent, &|f| {
            if f.parent == parent {
                f.columns.iter_mut().for_each(|(_, referenced)| change.rename(referenced));
            }
        })
    }

    /// What refers to a table called `old` refers to `new` from now on; the table called `except` sees to its own. Gives the
    /// tables that do.
    pub(crate) fn follow_rename(&self, trx: &mut Trx, old: &str, new: &str, except: &str) -> Result<Vec<String>> {
        self.edit_references(trx, old, except, &|f| {
            if f.parent == old {
                f.parent = new.into();
            }
        })
    }

    /// Edits the foreign keys of all tables but `except` that refer to `parent`. Gives those tables: their cached definitions
    /// are outdated once this is committed.
    fn edit_references(
        &self,
        trx: &mut Trx,
        parent: &str,
        except: &str,
        edit: &dyn Fn(&mut ForeignKey),
    ) -> Result<Vec<String>> {
        let mut children = Vec::new();
        self.scan(rows::REFERENCES, &reference_prefix(parent)?, &mut |key, _| {
            children.push(parse_reference_key(key)?.1);
            Ok(true)
        })?;
        children.retain(|c| c != except);
        for child in &children {
            let mut key = Vec::new();
            rows::push_table_key(&mut key, child)?;
            let Some(value) = get_locked(trx, &index(rows::TABLES), &key, Strength::X)? else { continue };
            let mut def = rows::decode_table(child.clone(), &value)?;
            self.delete_references(trx, &def)?;
            def.foreign_keys.iter_mut().for_each(edit);
            apply_one(trx, OpKind::Update, &index(rows::TABLES), &key, &rows::encode_table(&def))?;
            self.insert_references(trx, &def)?;
        }
        Ok(children)
    }
}

fn parents(def: &TableDef) -> BTreeSet<&str> {
    def.foreign_keys.iter().map(|f| f.parent.as_str()).collect()
}

/// The longest name that the server takes, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The foreign keys of a table that gets another name: those that refer to the table itself follow, and names that begin
/// with the first of `prefix` begin with the second, if they are not too long then. Nothing follows a table that stands in
/// for another.
pub(crate) fn renamed_keys(keys: &[ForeignKey], old: &str, new: &str, prefix: Option<(&str, &str)>) -> Vec<ForeignKey> {
    let mut keys = keys.to_vec();
    if !is_followed(old, new) {
        return keys;
    }
    for f in &mut keys {
        if f.parent == old {
            f.parent = new.into();
        }
        if let Some((rest, new)) = prefix.and_then(|(old, new)| Some((f.name.strip_prefix(old)?, new))) {
            let name = format!("{new}{rest}");
            if name.chars().count() <= NAME_CHARS_MAX {
                f.name = name;
            }
        }
    }
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    keys
}

/// Whether two foreign keys of a table have the same name, as the server compares them.
pub(crate) fn has_twins(keys: &[ForeignKey]) -> bool {
    let mut names = BTreeSet::new();
    !keys.iter().all(|f| names.insert(f.name.to_lowercase()))
}

/// Whether what refers to `old` follows a rename to `new`.
pub(crate) fn is_followed(old: &str, new: &str) -> bool {
    !is_stand_in(old) && !is_stand_in(new)
}

/// In a copy of a table for database `to`, what refers to its own database refers to the copy.
pub(crate) fn retarget(def: &mut TableDef, to: &str) {
    let db = def.database().to_string();
    for f in &mut def.foreign_keys {
        if let Some((parent_db, table)) = f.parent.split_once('/') {
            if parent_db == db {
                f.parent = format!("{to}/{table}");
            }
        }
    }
}
