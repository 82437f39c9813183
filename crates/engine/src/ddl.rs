//! Definitions: the catalog's changes, and word of them to who has the tables open.

use crate::build::IndexBuild;
use crate::engine::Engine;
use crate::share::TableShare;
use crate::table::Table;
use myriad_base::{Error, Result};
use myriad_catalog::{
    Changed, CloneNote, Cloned, FolderFile, ForeignKey, IndexSource, IndexSpec, Judge, NewDefinition, TableChange,
    TableSpec,
};
use std::sync::Arc;

/// What [`Engine::alter_tables`] makes of one table.
pub struct Alteration<'a> {
    /// `db/table`.
    pub name: &'a str,
    /// What its definition says.
    pub to: NewDefinition<'a>,
    /// Its indexes, each with the number that it has today, `None` for the next one of `builds`; empty = as they are.
    pub indexes: &'a [(IndexSpec, Option<u32>)],
    /// Its indexes that are new.
    pub builds: Vec<&'a mut IndexBuild>,
    /// A table that nobody else sees, whose rows and indexes it gets instead of its own, and which is no more then.
    pub contents: Option<&'a str>,
}

impl Engine {
    /// Creates a table. Durable when this returns, as every change of a definition.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::Invalid`] for an impossible specification; those of writing.
    pub fn create_table(&self, name: &str, spec: &TableSpec<'_>) -> Result<()> {
        self.check_open()?;
        self.catalog().create_table(name, spec).map(|_| ())
    }

    fn outdate(&self, changed: Result<Changed>) -> Result<()> {
        let changed = changed?;
        self.shares().outdate(changed.old.id.0);
        // What fails is tried again, and told, in the background.
        let _ = self.catalog().reclaim_memory(&changed.old);
        self.wake_reclaimer();
        Ok(())
    }

    /// Drops a table; its space is reclaimed in the background, that of one in memory at once.
    ///
    /// Handles that are open ([`Table`]) are refused from now on with [`Error::DefinitionChanged`]. The engine has no metadata
    /// locks: the program sees to it that no call uses the table meanwhile, here and in the other changes of definitions, and
    /// that no transaction that has used it is open. What such a call writes is lost, and may be in the way of a later table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_open()?;
        self.outdate(self.catalog().drop_table(name))
    }

    /// Renames a table; never overwrites.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::TableExists`]; those of writing.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.rename_table_as(from, to, None, None)
    }

    /// As [`Engine::rename_table`]. A copy may take the place of a table `replaced` of another name: foreign keys that refer
    /// to that one follow. Names of the table's own foreign keys that begin with the first of `prefix` begin with the second
    /// then.
    ///
    /// # Errors
    /// As [`Engine::rename_table`].
    pub fn rename_table_as(
        &self,
        from: &str,
        to: &str,
        replaced: Option<&str>,
        prefix: Option<(&str, &str)>,
    ) -> Result<()> {
        self.check_open()?;
        self.outdate(self.catalog().rename_table(from, to, replaced, prefix))?;
        self.rename_emptied(from, to);
        Ok(())
    }

    /// Empties a table at once; `auto_increment_next` is its first value then.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn truncate_table(&self, name: &str, auto_increment_next: u64) -> Result<()> {
        self.check_open()?;
        self.outdate(self.catalog().truncate_table(name, auto_increment_next))
    }

    /// Drops all tables of a database in one transaction; tells how many.
    ///
    /// # Errors
    /// Those of writing.
    pub fn drop_database(&self, db: &str) -> Result<u64> {
        self.check_open()?;
        let dropped = self.catalog().drop_database(db)?;
        self.shares().outdate_database(db);
        self.wake_reclaimer();
        Ok(dropped)
    }

    /// Makes database `to` an empty copy of database `from`, in one durable transaction: definitions, indexes and placement
    /// of its tables, no rows but those that `judge` asks for. `files` are kept for [`Engine::unfinished_clones`] until
    /// [`Engine::finish_clone`].
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if there is nothing to copy, [`Error::TableExists`] if `to` has tables, those of `judge` and
    /// of writing. Nothing has changed then.
    pub fn clone_database(&self, from: &str, to: &str, files: &[FolderFile], judge: &mut dyn Judge) -> Result<Cloned> {
        self.check_open()?;
        self.catalog().clone_database(from, to, files, judge)
    }

    /// Whatever goes with the tables of a copied database (a server's folder) is there: forgets its note.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn finish_clone(&self, note: u32) -> Result<()> {
        self.check_open()?;
        self.catalog().finish_clone(note)
    }

    /// Copied databases that [`Engine::finish_clone`] was not called for, in this run or before a crash.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn unfinished_clones(&self) -> Result<Vec<CloneNote>> {
        self.catalog().unfinished_clones()
    }

    /// New definition, same indexes.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn redefine(&self, name: &str, to: &NewDefinition<'_>) -> Result<()> {
        self.change_tables(&[TableChange { name, to: *to, indexes: &[], contents: None }])
    }

    /// Gives a table that has no image one. Unlike all other changes of a definition it may come while others use the table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn adopt_image(&self, name: &str, frm: &[u8]) -> Result<()> {
        self.check_open()?;
        self.catalog().adopt_image(name, frm)
    }

    /// New definitions and indexes, of all these tables or, on an error, of none.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::DefinitionChanged`]; [`Error::Invalid`] for lists that do not fit; those of writing.
    pub fn alter_tables(&self, alterations: &mut [Alteration<'_>]) -> Result<()> {
        let indexes = alterations.iter().map(|a| self.new_indexes(a)).collect::<Result<Vec<_>>>()?;
        let mut changes = Vec::with_capacity(alterations.len());
        for (a, indexes) in alterations.iter().zip(&indexes) {
            changes.push(TableChange { name: a.name, to: a.to, indexes, contents: a.contents });
        }
        self.change_tables(&changes)?;
        for build in alterations.iter_mut().flat_map(|a| &mut a.builds) {
            build.adopted = true;
        }
        Ok(())
    }

    fn new_indexes(&self, alteration: &Alteration<'_>) -> Result<Vec<(IndexSpec, IndexSource)>> {
        let Alteration { name, indexes, builds, .. } = alteration;
        let table_id = self.catalog().table(name)?.id.0;
        if builds.iter().any(|b| b.table_id != table_id) {
            return Err(Error::DefinitionChanged { name: (*name).into() });
        }
        let mut built = builds.iter();
        let source = |&(spec, old): &(IndexSpec, Option<u32>)| match old {
            Some(no) => Ok((spec, IndexSource::Old(no as usize))),
            None => {
                let build = built.next().ok_or_else(|| Error::invalid("more new indexes than were built"))?;
                Ok((spec, IndexSource::Built(build.built()?)))
            }
        };
        let indexes = indexes.iter().map(source).collect::<Result<Vec<_>>>()?;
        match built.next() {
            None => Ok(indexes),
            Some(_) => Err(Error::invalid("more indexes were built than are used")),
        }
    }

    fn change_tables(&self, changes: &[TableChange<'_>]) -> Result<()> {
        self.check_open()?;
        for changed in self.catalog().alter_tables(changes)? {
            // Contents that were another table's had its definition.
            let new = changed.new.as_ref().map(|def| def.id.0);
            new.into_iter().for_each(|id| self.shares().outdate(id));
            self.outdate(Ok(changed))?;
        }
        Ok(())
    }

    /// The definition's id that the last change in place gave to the first table whose name begins with `prefix`; `None` if
    /// there is no such table, zeros if it has none.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn definition_id(&self, prefix: &str) -> Result<Option<[u8; 16]>> {
        Ok(self.catalog().first_table_with_prefix(prefix)?.map(|def| def.frm_patch))
    }

    /// Whether there is such a table.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn table_exists(&self, name: &str) -> Result<bool> {
        Ok(self.catalog().find_table(name)?.is_some())
    }

    /// The server's image of a table; empty if it has none.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of reading the catalog.
    pub fn frm(&self, name: &str) -> Result<Vec<u8>> {
        let def = self.catalog().table(name)?;
        self.catalog().frm(&def)
    }

    /// A table's foreign keys, in order of their names; none if there is no such table.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn foreign_keys(&self, name: &str) -> Result<Vec<ForeignKey>> {
        Ok(self.catalog().find_table(name)?.map_or(Vec::new(), |def| def.foreign_keys.to_vec()))
    }

    /// Foreign keys that refer to a table, each with the table that has it. The table need not exist.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn references_to(&self, name: &str) -> Result<Vec<(String, ForeignKey)>> {
        self.catalog().references_to(name)
    }

    /// A table of another database that refers to one of this database: `(parent, child)`.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn reference_from_elsewhere(&self, db: &str) -> Result<Option<(String, String)>> {
        self.catalog().reference_from_elsewhere(db)
    }

    /// Grows with each change of any table's foreign keys. What was read before it grew may be outdated.
    pub fn references_version(&self) -> u64 {
        self.catalog().references_version()
    }

    /// Tables of a database in order, by the table part of their names, until `visit` returns false.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn list_tables(&self, db: &str, visit: &mut dyn FnMut(&str) -> bool) -> Result<()> {
        self.catalog().list_tables(db, visit)
    }

    /// Opens a table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of reading the catalog and the table's counters.
    pub fn open_table(self: &Arc<Self>, name: &str) -> Result<Table> {
        self.check_open()?;
        let def = self.catalog().table(name)?;
        let open = || TableShare::open(self.trx_system(), Arc::clone(&def), self.catalog().contents_since(&def));
        let share = self.shares().get(&def, open)?;
        Ok(Table { engine: Arc::clone(self), share })
    }
}
