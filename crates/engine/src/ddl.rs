//! Definitions: the catalog's changes, and word of them to who has the tables open.

use crate::build::IndexBuild;
use crate::engine::Engine;
use crate::table::Table;
use myriad_base::{Error, Result};
use myriad_catalog::{
    Changed, CloneNote, Cloned, FolderFile, ForeignKey, IndexSource, IndexSpec, Judge, NewDefinition, TableSpec,
};
use std::sync::Arc;

impl Engine {
    /// Creates a table. Durable when this returns, as every change of a definition.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::Invalid`] for an impossible specification; those of writing.
    pub fn create_table(&self, name: &str, spec: &TableSpec<'_>) -> Result<()> {
        self.pool().check_poison()?;
        self.catalog().create_table(name, spec).map(|_| ())
    }

    fn outdate(&self, changed: Result<Changed>) -> Result<()> {
        let changed = changed?;
        self.shares().outdate(changed.old.id.0);
        self.wake_reclaimer();
        Ok(())
    }

    /// Drops a table; its space is reclaimed in the background.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.pool().check_poison()?;
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
        self.pool().check_poison()?;
        self.outdate(self.catalog().rename_table(from, to, replaced, prefix))?;
        self.rename_emptied(from, to);
        Ok(())
    }

    /// Empties a table at once; `auto_increment_next` is its first value then.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn truncate_table(&self, name: &str, auto_increment_next: u64) -> Result<()> {
        self.pool().check_poison()?;
        self.outdate(self.catalog().truncate_table(name, auto_increment_next))
    }

    /// Drops all tables of a database in one transaction; tells how many.
    ///
    /// # Errors
    /// Those of writing.
    pub fn drop_database(&self, db: &str) -> Result<u64> {
        self.pool().check_poison()?;
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
        self.pool().check_poison()?;
        self.catalog().clone_database(from, to, files, judge)
    }

    /// Whatever goes with the tables of a copied database (a server's folder) is there: forgets its note.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn finish_clone(&self, note: u32) -> Result<()> {
        self.pool().check_poison()?;
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
        self.pool().check_poison()?;
        self.outdate(self.catalog().redefine(name, to))
    }

    /// New definition and indexes: `old_index_of_new[i]` is the number index i has today, `None` for the next one of `builds`.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::DefinitionChanged`]; [`Error::Invalid`] for lists that do not fit; those of writing.
    pub fn alter_indexes(
        &self,
        name: &str,
        to: &NewDefinition<'_>,
        indexes: &[IndexSpec],
        old_index_of_new: &[Option<u32>],
        builds: &mut [&mut IndexBuild],
    ) -> Result<()> {
        self.pool().check_poison()?;
        let table_id = self.catalog().table(name)?.id.0;
        if builds.iter().any(|b| b.table_id != table_id) {
            return Err(Error::DefinitionChanged { name: name.into() });
        }
        let mut built = builds.iter();
        let mut sources = Vec::with_capacity(old_index_of_new.len());
        for old in old_index_of_new {
            sources.push(match old {
                Some(no) => IndexSource::Old(*no as usize),
                None => {
                    let build = built.next().ok_or_else(|| Error::invalid("more new indexes than were built"))?;
                    IndexSource::Built(build.built()?)
                }
            });
        }
        if built.next().is_some() {
            return Err(Error::invalid("more indexes were built than are used"));
        }
        self.outdate(self.catalog().alter_indexes(name, to, indexes, &sources))?;
        for build in builds {
            build.adopted = true;
        }
        Ok(())
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
        self.pool().check_poison()?;
        let def = self.catalog().table(name)?;
        let share = self.shares().get(self.trx_system(), self.catalog(), &def)?;
        Ok(Table { engine: Arc::clone(self), share })
    }
}
