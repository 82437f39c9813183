//! Changes of definitions. Each is one transaction, committed durably before the call returns. What follows the commit
//! cannot fail: an error says that nothing has changed, unless the log itself has failed.

use crate::def::{IndexDef, IndexSpec, NewDefinition, Placement, TableDef, TableRef, TableSpec};
use crate::references::{has_twins, is_followed, renamed_keys, Follows};
use crate::rows::{self, Pending, SpaceState};
use crate::spaces::{add_pending, apply_one, get_locked, space_number};
use crate::store::{index, scan_options, seek_prefix, Catalog, Counter};
use myriad_base::{Error, IndexId, PageNo, Result, ShapeId, SpaceId, TableId};
use myriad_btree::alloc::PACK_ROOT;
use myriad_txn::{OpKind, Strength, Trx};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Indexes a table can have: the server's 64 keys, a hidden one, the counter's.
pub const INDEXES_MAX: usize = 66;

/// What [`Catalog::alter_tables`] makes of one table.
pub struct TableChange<'a> {
    /// `db/table`.
    pub name: &'a str,
    /// What its definition says.
    pub to: NewDefinition<'a>,
    /// Its indexes, each with where it comes from; empty = as they are.
    pub indexes: &'a [(IndexSpec, IndexSource)],
    /// A table whose rows and indexes it gets instead of its own, and which is no more then.
    pub contents: Option<&'a str>,
}

/// Where a table's new list of indexes gets one from.
#[derive(Clone, Copy, Debug)]
pub enum IndexSource {
    /// The table's index of this number.
    Old(usize),
    /// One built under [`Catalog::begin_build`].
    Built(IndexDef),
}

impl IndexSource {
    fn built(&self) -> Option<IndexId> {
        match self {
            IndexSource::Built(built) => Some(built.id),
            IndexSource::Old(_) => None,
        }
    }
}

/// How often DROP DATABASE begins anew after a deadlock or a lock wait that took too long: its caller may be past the point
/// where failing is easy.
const DROP_TRIES: u32 = 3;

/// What the server calls tables that it makes to take another's place.
pub(crate) const COPY_PREFIX: &str = "#sql";

fn table_key(name: &str) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    rows::push_table_key(&mut key, name)?;
    Ok(key)
}

/// Only the tablespace of in-memory tables has hash look-up.
fn check_hash<'a>(mut specs: impl Iterator<Item = &'a IndexSpec>, in_memory: bool) -> Result<()> {
    match specs.any(|s| s.hash) && !in_memory {
        true => Err(Error::invalid("an index with hash look-up in a table that is not in memory")),
        false => Ok(()),
    }
}

/// What a change of one table leaves behind.
pub struct Changed {
    /// The definition as it was; its open tables are no longer current.
    pub old: TableRef,
    /// The definition as it is; `None` once dropped.
    pub new: Option<TableRef>,
}

/// Tables of a dropped database that are forgotten by their names. If there are more, a look at all definitions in memory
/// costs no more.
const NAMES_MAX: usize = 10_000;

/// The tables of a dropped database.
#[derive(Default)]
struct DroppedTables {
    ids: Vec<TableId>,
    /// Of the first [`NAMES_MAX`].
    names: Vec<String>,
    /// Whether any had foreign keys.
    references: bool,
    in_memory: Vec<TableDef>,
}

impl Catalog {
    /// Creates a table. Gives its definition.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::Invalid`] for an impossible specification; those of writing.
    pub fn create_table(&self, name: &str, spec: &TableSpec<'_>) -> Result<TableRef> {
        let key = table_key(name)?;
        if spec.indexes.is_empty() || spec.indexes.len() > INDEXES_MAX {
            let n = spec.indexes.len();
            return Err(Error::invalid(format!("table {name} with {n} indexes: it can have 1 to {INDEXES_MAX}")));
        }
        check_hash(spec.indexes.iter(), spec.in_memory)?;
        if self.find_table(name)?.is_some() {
            return Err(Error::TableExists { name: name.into() });
        }
        let _defining = self.defining.read();
        let (shape, frm_patch) = self.intern(spec.frm)?;
        let mut def = TableDef {
            name: name.into(),
            id: TableId(0),
            version: 1,
            space: SpaceId(0),
            indexes: Vec::new(),
            hidden_row_id: spec.hidden_row_id,
            auto_increment: None,
            temporary: spec.temporary,
            own_space: false,
            create_time_s: self.clock.wall_us() / 1_000_000,
            shape,
            frm_patch,
            frm_len: u32::try_from(spec.frm.len()).map_err(|_| Error::TooLong {
                what: "table image",
                len: spec.frm.len(),
                max: u32::MAX as usize,
            })?,
            foreign_keys: spec.foreign_keys.into(),
            row_layouts: Box::default(),
        };
        // What is kept follows renames of its parents up to here, and from here on the copy follows them by itself.
        let kept = spec.kept_keys.filter(|(_, names)| !names.is_empty());
        let _follows = kept.map_or(Follows::Nobody, |_| self.following.child());
        if let Some((table, names)) = kept {
            self.follow_kept(&mut def.foreign_keys, table, names)?;
        }
        let auto_increment = spec.auto_increment_next.is_some();
        self.give_index_ids(&mut def, spec.indexes.iter().copied(), auto_increment)?;
        def.id = TableId(def.indexes[0].id.0);
        let placement = match def.database() {
            rows::TEMPORARY_DATABASE => Placement::Database,
            _ => spec.placement.unwrap_or(self.placement()),
        };
        let created = match placement {
            _ if spec.in_memory => self.change(|trx| {
                def.space = SpaceId::MEMORY;
                self.insert_table(trx, &def, &key, spec.auto_increment_next)
            }),
            Placement::Table => self.create_in_own_space(&mut def, &key, spec),
            _ => self.change_of(name, |trx| {
                def.space = self.space_for(trx, def.database(), placement)?;
                self.insert_table(trx, &def, &key, spec.auto_increment_next)
            }),
        };
        self.forget(name);
        created.map_err(|e| exists(e, name))?;
        self.note_if(!def.foreign_keys.is_empty());
        self.contents_replaced(&def);
        Ok(Arc::new(def))
    }

    fn create_in_own_space(&self, def: &mut TableDef, key: &[u8], spec: &TableSpec<'_>) -> Result<()> {
        let (space, row) = self.create_space_file(def.database())?;
        def.space = space;
        def.own_space = true;
        let created = self.change(|trx| {
            self.finish_space(trx, space, &row)?;
            self.insert_table(trx, def, key, spec.auto_increment_next)
        });
        if created.is_err() {
            self.abandon_space(space);
        }
        created
    }

    fn insert_table(&self, trx: &mut Trx, def: &TableDef, key: &[u8], auto_increment: Option<u64>) -> Result<()> {
        apply_one(trx, OpKind::Insert, &index(rows::TABLES), key, &rows::encode_table(def))?;
        self.insert_references(trx, def)?;
        // At last: no rollback takes it away.
        self.store_auto_increment(def, auto_increment)
    }

    fn note_if(&self, references_changed: bool) {
        if references_changed {
            self.note_references();
        }
    }

    /// Gives the definition new indexes, all in the tablespace's pack tree.
    fn give_index_ids(
        &self,
        def: &mut TableDef,
        specs: impl ExactSizeIterator<Item = IndexSpec>,
        auto: bool,
    ) -> Result<()> {
        let count = specs.len() as u32;
        let first = self.allocate(Counter::Index, count + u32::from(auto))?;
        def.indexes =
            specs.zip(first..).map(|(spec, id)| IndexDef { id: IndexId(id), root: PACK_ROOT, spec }).collect();
        def.auto_increment =
            auto.then_some(IndexDef { id: IndexId(first + count), root: PACK_ROOT, spec: IndexSpec::UNIQUE });
        Ok(())
    }

    /// Stores a first AUTO_INCREMENT value other than 1, in an index nobody knows yet.
    fn store_auto_increment(&self, def: &TableDef, next: Option<u64>) -> Result<()> {
        match (def.auto_increment, next) {
            (Some(counter), Some(next)) if next > 1 => {
                let counter = crate::open_index(def.space, &counter, counter.id);
                self.trx.put_unversioned(&counter, crate::AUTO_INCREMENT_KEY, &next.to_le_bytes())
            }
            _ => Ok(()),
        }
    }

    /// Locks a table's row and reads it.
    fn table_locked(&self, trx: &mut Trx, name: &str, key: &[u8]) -> Result<TableRef> {
        let value = get_locked(trx, &index(rows::TABLES), key, Strength::X)?;
        let value = value.ok_or_else(|| Error::NoSuchTable { name: name.into() })?;
        Ok(Arc::new(rows::decode_table(name.into(), &value)?))
    }

    /// Changes one table's definition in place: `f` edits the copy.
    fn alter(&self, name: &str, f: impl FnOnce(&mut Trx, &mut TableDef) -> Result<()>) -> Result<Changed> {
        let changed = self.change_of(name, |trx| self.alter_in(trx, name, f));
        self.forget(name);
        changed
    }

    /// As [`Catalog::alter`], as a part of a transaction.
    fn alter_in(
        &self,
        trx: &mut Trx,
        name: &str,
        f: impl FnOnce(&mut Trx, &mut TableDef) -> Result<()>,
    ) -> Result<Changed> {
        let key = table_key(name)?;
        let old = self.table_locked(trx, name, &key)?;
        let mut new = TableDef { version: old.version.wrapping_add(1), ..(*old).clone() };
        f(trx, &mut new)?;
        apply_one(trx, OpKind::Update, &index(rows::TABLES), &key, &rows::encode_table(&new))?;
        Ok(Changed { old, new: Some(Arc::new(new)) })
    }

    /// Drops a table. Its space is reclaimed in the background.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn drop_table(&self, name: &str) -> Result<Changed> {
        let mut dropped = self.drop_tables(&[name.into()])?;
        Ok(dropped.pop().expect("one for each name"))
    }

    /// As [`Catalog::drop_table`], of all tables whose `db/table` begins with this, in one transaction.
    ///
    /// # Errors
    /// Those of reading and writing; then all are there.
    pub fn drop_tables_with_prefix(&self, prefix: &str) -> Result<Vec<Changed>> {
        let mut names = Vec::new();
        self.scan_tables(prefix, &mut |name, _| {
            names.push(name);
            Ok(true)
        })?;
        self.drop_tables(&names)
    }

    fn drop_tables(&self, names: &[String]) -> Result<Vec<Changed>> {
        let Some(first) = names.first() else { return Ok(Vec::new()) };
        let dropped =
            self.change_of(first, |trx| names.iter().map(|name| self.drop_in(trx, name)).collect::<Result<Vec<_>>>());
        names.iter().for_each(|name| self.forget(name));
        let has_keys = |changed: &Changed| !changed.old.foreign_keys.is_empty();
        self.note_if(dropped.as_ref().is_ok_and(|all| all.iter().any(has_keys)));
        self.sweeps.note_change();
        dropped
    }

    fn drop_in(&self, trx: &mut Trx, name: &str) -> Result<Changed> {
        let key = table_key(name)?;
        let old = self.table_locked(trx, name, &key)?;
        apply_one(trx, OpKind::Delete, &index(rows::TABLES), &key, &[])?;
        self.delete_references(trx, &old)?;
        self.release_storage(trx, &old)?;
        Ok(Changed { old, new: None })
    }

    /// Gives up what a dropped table used.
    fn release_storage(&self, trx: &mut Trx, def: &TableDef) -> Result<()> {
        let mut row = self.space_locked_if(trx, def)?;
        if let Some(row) = row.take_if(|_| def.own_space) {
            return self.drop_space(trx, def.space, row);
        }
        if let Some(mut row) = row {
            row.guests = row.guests.saturating_sub(1);
            if row.state == SpaceState::Orphan && row.guests == 0 {
                return self.drop_space(trx, def.space, row);
            }
            self.put_space(trx, def.space, &row)?;
        }
        self.release_indexes(trx, def, def.indexes.iter().chain(&def.auto_increment))
    }

    /// The row of a table's tablespace, locked, if dropping or moving the table changes it: it is the table's own, or the
    /// table is a guest.
    fn space_locked_if(&self, trx: &mut Trx, def: &TableDef) -> Result<Option<rows::SpaceRow>> {
        // Read first: a lock on the row of a shared tablespace would make its users wait for each other.
        let (path_known, is_guest) = self.space_role(def)?;
        if !path_known || !(def.own_space || is_guest) {
            return Ok(None);
        }
        self.space_locked(trx, def.space).map(Some)
    }

    /// Whether the catalog knows the table's tablespace, and whether the table is a guest there. Stable while the table's
    /// row is locked, but for the tablespace's database being dropped, which makes no difference to a guest.
    fn space_role(&self, def: &TableDef) -> Result<(bool, bool)> {
        let mut value = Vec::new();
        if !self.trx.get_newest(&index(rows::SPACES), &def.space.0.to_be_bytes(), &mut value)? {
            return Ok((false, false));
        }
        Ok((true, rows::SpaceRow::decode(&value)?.is_guest(def.database())))
    }

    fn release_indexes<'a>(
        &self,
        trx: &mut Trx,
        def: &TableDef,
        indexes: impl Iterator<Item = &'a IndexDef>,
    ) -> Result<()> {
        for i in indexes {
            add_pending(trx, Pending::Index { id: i.id, space: def.space, root: i.root })?;
        }
        Ok(())
    }

    /// Renames a table; never overwrites. Foreign keys follow: the table's own, those that refer to it, and where a copy
    /// takes the place of a table `replaced` of another name, those that refer to that one. Names of the
    /// table's own that begin with the first of `prefix` begin with the second then.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`Error::TableExists`], also where two of the foreign keys would have the same name, as with
    /// InnoDB; those of writing.
    pub fn rename_table(
        &self,
        from: &str,
        to: &str,
        replaced: Option<&str>,
        prefix: Option<(&str, &str)>,
    ) -> Result<Changed> {
        let (from_key, to_key) = (table_key(from)?, table_key(to)?);
        let followed = replaced.or(is_followed(from, to).then_some(from)).filter(|&name| name != to);
        let mut children = Vec::new();
        let _follows = self.follow(from, followed)?;
        let changed = self.change(|trx| {
            let old = self.table_locked(trx, from, &from_key)?;
            let mut new = TableDef { name: to.into(), version: old.version.wrapping_add(1), ..(*old).clone() };
            new.foreign_keys = renamed_keys(&old.foreign_keys, replaced.unwrap_or(from), to, prefix).into();
            if has_twins(&new.foreign_keys) && !has_twins(&old.foreign_keys) {
                return Err(Error::TableExists { name: to.into() });
            }
            if old.database() != new.database() && !old.own_space && !old.is_in_memory() {
                self.move_guest(trx, &old, &new)?;
            }
            apply_one(trx, OpKind::Insert, &index(rows::TABLES), &to_key, &rows::encode_table(&new))?;
            apply_one(trx, OpKind::Delete, &index(rows::TABLES), &from_key, &[])?;
            self.delete_references(trx, &old)?;
            if let Some(parent) = followed {
                children = self.follow_rename(trx, parent, to, from)?;
            }
            self.insert_references(trx, &new)?;
            Ok(Changed { old, new: Some(Arc::new(new)) })
        });
        [from, to].into_iter().chain(children.iter().map(String::as_str)).for_each(|name| self.forget(name));
        let changed = changed.map_err(|e| exists(e, to))?;
        self.note_if(!children.is_empty() || !changed.old.foreign_keys.is_empty());
        // A copy takes the place of the table it was made from.
        if from.split_once('/').is_some_and(|(_, table)| table.starts_with(COPY_PREFIX)) {
            self.contents_replaced(&changed.old);
        }
        Ok(changed)
    }

    /// A table changes its database and stays where it is: its tablespace counts its guests.
    fn move_guest(&self, trx: &mut Trx, old: &TableDef, new: &TableDef) -> Result<()> {
        let mut row = self.space_locked(trx, old.space)?;
        let (was, is) = (row.is_guest(old.database()), row.is_guest(new.database()));
        if was != is {
            row.guests = if is { row.guests + 1 } else { row.guests.saturating_sub(1) };
            self.put_space(trx, old.space, &row)?;
        }
        Ok(())
    }

    /// Empties a table: it gets new indexes, the old ones are reclaimed in the background.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn truncate_table(&self, name: &str, auto_increment_next: u64) -> Result<Changed> {
        let changed = self.alter(name, |trx, def| {
            let old = def.clone();
            self.release_indexes(trx, &old, old.indexes.iter().chain(&old.auto_increment))?;
            let auto = old.auto_increment.is_some();
            self.give_index_ids(def, old.indexes.iter().map(|i| i.spec), auto)?;
            self.store_auto_increment(def, auto.then_some(auto_increment_next))
        })?;
        if let Some(new) = &changed.new {
            self.contents_replaced(new);
        }
        Ok(changed)
    }

    /// Replaces what tables' definitions say and their lists of indexes, of all or, on an error, of none. Indexes left out
    /// are dropped; those built are adopted.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`Error::Invalid`] for a list that does not fit its table; those of writing.
    pub fn alter_tables(&self, changes: &[TableChange<'_>]) -> Result<Vec<Changed>> {
        let first = changes.first().ok_or_else(|| Error::invalid("no table to change"))?;
        let _defining = self.defining.read();
        let images = changes.iter().map(|c| self.intern(c.to.frm)).collect::<Result<Vec<_>>>()?;
        let renames = changes.iter().any(|c| !c.to.keys.renamed.is_empty());
        let _follows = if renames { self.following.parent() } else { Follows::Nobody };
        let mut children = Vec::new();
        let changed = self.change_of(first.name, |trx| {
            let one = |(change, &image)| self.alter_one(trx, change, image, &mut children);
            changes.iter().zip(&images).map(one).collect::<Result<Vec<_>>>()
        });
        let changed_names = changes.iter().flat_map(|c| [Some(c.name), c.contents]).flatten();
        changed_names.chain(children.iter().map(String::as_str)).for_each(|name| self.forget(name));
        self.sweeps.note_change();
        let changed = changed?;
        self.note_if(changes.iter().any(|c| c.to.keys.is_any()));
        let built = changes.iter().flat_map(|c| c.indexes).filter_map(|(_, from)| from.built());
        let taken = changes.iter().zip(&changed).filter(|(change, _)| change.contents.is_some());
        let taken = taken.filter_map(|(_, changed)| changed.new.as_ref()).flat_map(|def| &def.indexes).map(|i| i.id);
        let ids: Vec<IndexId> = built.chain(taken).collect();
        if !ids.is_empty() {
            self.note_new_contents(ids.into_iter());
        }
        Ok(changed)
    }

    /// Gives a table that has no image one, for the server alone: who has the table open goes on with it.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn adopt_image(&self, name: &str, frm: &[u8]) -> Result<()> {
        let _defining = self.defining.read();
        let image = self.intern(frm)?;
        let key = table_key(name)?;
        let adopted = self.change_of(name, |trx| {
            let old = self.table_locked(trx, name, &key)?;
            if old.frm_len > 0 {
                return Ok(());
            }
            let mut new = (*old).clone();
            new.set(&NewDefinition { frm, ..NewDefinition::default() }, image);
            apply_one(trx, OpKind::Update, &index(rows::TABLES), &key, &rows::encode_table(&new))
        });
        self.forget(name);
        adopted
    }

    /// Gives a table that has no AUTO_INCREMENT counter one, which nobody knows yet; tells which it has. Its users go on with
    /// the definition that they know.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn add_auto_increment(&self, name: &str, next: u64) -> Result<IndexDef> {
        let key = table_key(name)?;
        let added = self.change_of(name, |trx| {
            let mut def = (*self.table_locked(trx, name, &key)?).clone();
            if let Some(counter) = def.auto_increment {
                return Ok(counter);
            }
            let id = IndexId(self.allocate(Counter::Index, 1)?);
            let counter = IndexDef { id, root: PACK_ROOT, spec: IndexSpec::UNIQUE };
            def.auto_increment = Some(counter);
            self.store_auto_increment(&def, Some(next))?;
            apply_one(trx, OpKind::Update, &index(rows::TABLES), &key, &rows::encode_table(&def))?;
            Ok(counter)
        });
        self.forget(name);
        added
    }

    /// `children` gets those whose definitions have changed with it.
    fn alter_one(
        &self,
        trx: &mut Trx,
        change: &TableChange<'_>,
        image: (ShapeId, [u8; 16]),
        children: &mut Vec<String>,
    ) -> Result<Changed> {
        self.alter_in(trx, change.name, |trx, def| {
            match change.contents {
                Some(from) => self.take_contents(trx, def, from)?,
                None if change.indexes.is_empty() => (),
                None => self.replace_indexes(trx, def, change.indexes)?,
            }
            children.extend(self.change_foreign_keys(trx, def, change.to.keys)?);
            def.set(&change.to, image);
            Ok(())
        })
    }

    fn take_contents(&self, trx: &mut Trx, def: &mut TableDef, from: &str) -> Result<()> {
        let key = table_key(from)?;
        let copy = self.table_locked(trx, from, &key)?;
        let alike = def.is_in_memory() == copy.is_in_memory() && def.database() == copy.database();
        if !alike || !copy.foreign_keys.is_empty() || def.name == from {
            return Err(Error::invalid(format!("contents of {from} for {}", def.name)));
        }
        apply_one(trx, OpKind::Delete, &index(rows::TABLES), &key, &[])?;
        self.release_storage(trx, def)?;
        let TableDef { id, space, ref indexes, hidden_row_id, auto_increment, own_space, create_time_s, .. } = *copy;
        *def = TableDef {
            id,
            space,
            indexes: indexes.clone(),
            hidden_row_id,
            auto_increment,
            own_space,
            create_time_s,
            row_layouts: Box::default(),
            ..def.clone()
        };
        Ok(())
    }

    fn replace_indexes(&self, trx: &mut Trx, def: &mut TableDef, to: &[(IndexSpec, IndexSource)]) -> Result<()> {
        check_hash(to.iter().map(|(spec, _)| spec), def.is_in_memory())?;
        let old = std::mem::take(&mut def.indexes);
        let mut kept = vec![false; old.len()];
        for (spec, source) in to {
            let from = match *source {
                IndexSource::Old(no) => {
                    let from = old.get(no).ok_or_else(|| Error::invalid(format!("no index {no} in {}", def.name)))?;
                    if std::mem::replace(&mut kept[no], true) {
                        return Err(Error::invalid(format!("index {no} of {} named twice", def.name)));
                    }
                    *from
                }
                IndexSource::Built(built) => {
                    let pending = Pending::Index { id: built.id, space: def.space, root: built.root };
                    apply_one(trx, OpKind::Delete, &index(rows::PENDING), &pending.key(), &[])?;
                    built
                }
            };
            def.indexes.push(IndexDef { spec: *spec, ..from });
        }
        if kept.first() != Some(&true) || def.indexes.len() > INDEXES_MAX {
            return Err(Error::invalid(format!("list of indexes of {}", def.name)));
        }
        self.release_indexes(trx, def, old.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(i, _)| i))
    }

    fn contents_replaced(&self, def: &TableDef) {
        // A temporary table has one user, who may create it with a snapshot open.
        if !def.temporary {
            self.note_new_contents(def.indexes.iter().map(|i| i.id));
        }
    }

    /// An id for an index to be built for a table. What is built is reclaimed unless it is adopted by
    /// [`Catalog::alter_tables`]: call [`Catalog::note_build`] before its first page, [`Catalog::end_build`] at the end.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn begin_build(&self) -> Result<IndexId> {
        self.allocate(Counter::Index, 1).map(IndexId)
    }

    /// Notes where an index is being built, so that a crash leaves nothing behind.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn note_build(&self, id: IndexId, space: SpaceId, root: PageNo) -> Result<()> {
        self.building.lock().insert(id.0);
        let pending = Pending::Index { id, space, root };
        self.trx.put_unversioned(&index(rows::PENDING), &pending.key(), &pending.value())
    }

    /// The build is over, adopted or not.
    pub fn end_build(&self, id: IndexId) {
        self.building.lock().remove(&id.0);
    }

    /// Drops all tables of a database in one transaction; tells how many and whether its tablespace went too.
    ///
    /// # Errors
    /// Those of writing.
    pub fn drop_database(&self, db: &str) -> Result<Vec<TableId>> {
        let mut prefix = Vec::new();
        rows::push_database_key(&mut prefix, db)?;
        let mut tries = 1;
        let dropped = loop {
            let dropped = self.change(|trx| self.drop_database_in(trx, &prefix));
            if tries == DROP_TRIES || !matches!(dropped, Err(Error::Deadlock | Error::LockWaitTimeout)) {
                break dropped;
            }
            tries += 1;
        };
        match &dropped {
            Ok(tables) if tables.names.len() == tables.ids.len() => {
                tables.names.iter().for_each(|name| self.forget(name))
            }
            _ => self.forget_database(db),
        }
        let dropped = dropped?;
        self.note_if(dropped.references);
        if !dropped.ids.is_empty() {
            self.sweeps.note_change();
        }
        // What fails is tried again, and told, in the background.
        dropped.in_memory.iter().for_each(|def| drop(self.reclaim_memory(def)));
        Ok(dropped.ids)
    }

    fn drop_database_in(&self, trx: &mut Trx, prefix: &[u8]) -> Result<DroppedTables> {
        // The database's row first: it keeps new tables out.
        let space = get_locked(trx, &index(rows::DATABASES), prefix, Strength::X)?;
        let space = space.map(|value| space_number(&value)).transpose()?;
        let mut row = None;
        // In order of their ids, lest two databases that have tables in each other's tablespace wait for each other.
        for each in self.hosts(prefix)?.into_iter().chain(space).collect::<BTreeSet<_>>() {
            let locked = self.space_locked(trx, each)?;
            row = if Some(each) == space { Some(locked) } else { row };
        }
        let whole = row.as_ref().is_some_and(|row| row.guests == 0);
        let mut guests_less: BTreeMap<SpaceId, u64> = BTreeMap::new();
        let mut dropped = DroppedTables::default();
        let tables = index(rows::TABLES);
        let mut cursor = myriad_txn::Cursor::new(tables, scan_options(Some(Strength::X)));
        let mut found = seek_prefix(&mut cursor, trx, prefix)?;
        let mut key = Vec::new();
        while found {
            key.clear();
            key.extend_from_slice(cursor.key());
            let (db, table) = rows::parse_table_key(&key)?;
            let def = rows::decode_table(format!("{db}/{table}"), cursor.value())?;
            apply_one(trx, OpKind::Delete, &tables, &key, &[])?;
            self.delete_references(trx, &def)?;
            dropped.ids.push(def.id);
            if dropped.names.len() < NAMES_MAX {
                dropped.names.push(def.name.clone());
            }
            dropped.references |= !def.foreign_keys.is_empty();
            if def.own_space {
                let row = self.space_locked(trx, def.space)?;
                self.drop_space(trx, def.space, row)?;
            } else if Some(def.space) != space || !whole {
                self.release_indexes(trx, &def, def.indexes.iter().chain(&def.auto_increment))?;
                if Some(def.space) != space && self.space_role(&def)?.1 {
                    *guests_less.entry(def.space).or_default() += 1;
                }
            }
            if def.is_in_memory() {
                dropped.in_memory.push(def);
            }
            found = cursor.next(trx)?;
        }
        self.take_guests_off(trx, guests_less)?;
        self.drop_clone_notes(trx, prefix)?;
        if let (Some(space), Some(row)) = (space, row.take()) {
            apply_one(trx, OpKind::Delete, &index(rows::DATABASES), prefix, &[])?;
            if whole {
                self.drop_space(trx, space, row)?;
            } else {
                self.put_space(trx, space, &rows::SpaceRow { state: SpaceState::Orphan, ..row })?;
            }
        }
        Ok(dropped)
    }

    /// Tablespaces in which tables of the database are guests.
    fn hosts(&self, prefix: &[u8]) -> Result<BTreeSet<SpaceId>> {
        let mut tables = BTreeMap::new();
        self.scan(rows::TABLES, prefix, &mut |key, value| {
            let (db, table) = rows::parse_table_key(key)?;
            let def = rows::decode_table(format!("{db}/{table}"), value)?;
            if !def.own_space {
                tables.entry(def.space).or_insert(def);
            }
            Ok(true)
        })?;
        let mut hosts = BTreeSet::new();
        for (space, def) in tables {
            if self.space_role(&def)?.1 {
                hosts.insert(space);
            }
        }
        Ok(hosts)
    }

    fn take_guests_off(&self, trx: &mut Trx, guests_less: BTreeMap<SpaceId, u64>) -> Result<()> {
        for (space, n) in guests_less {
            let mut row = self.space_locked(trx, space)?;
            row.guests = row.guests.saturating_sub(n);
            if row.state == SpaceState::Orphan && row.guests == 0 {
                self.drop_space(trx, space, row)?;
            } else {
                self.put_space(trx, space, &row)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn exists(e: Error, name: &str) -> Error {
    match e {
        Error::DuplicateKey { .. } => Error::TableExists { name: name.into() },
        e => e,
    }
}
