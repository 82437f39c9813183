//! Copying the definitions of a whole database: an empty copy of a template, in one transaction.
//!
//! The server keeps a folder for each database, which no transaction covers. So the transaction leaves a note
//! ([`CloneNote`]) with the files that the folder has to hold; who finds one at start makes what is missing and removes
//! the note.

use crate::def::{IndexDef, IndexSpec, Placement, TableDef};
use crate::open_index;
use crate::rows::{self, CloneNote, FolderFile, SpaceRow};
use crate::spaces::{apply_one, database_key, get_locked, space_number};
use crate::store::{index, scan_options, Catalog, Counter};
use myriad_base::{Error, IndexId, Result, ShapeId, SpaceId, TableId};
use myriad_btree::alloc::PACK_ROOT;
use myriad_txn::{OpKind, Strength, Trx};
use std::collections::HashMap;

/// How a table is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The copy gets the template's first row, as [`Judge::first_row`] leaves it (a sequence's state), else none.
    pub first_row: bool,
    /// The server's image of the copy, if it is not the template's.
    pub image: Option<Vec<u8>>,
}

/// Decides what of a template is copied. Names are the tables' parts after the database. An error ends the copy.
pub trait Judge {
    /// Sees each table and, for the first one of each shape, the server's image (empty if it has none). The verdict on the
    /// first table holds for all of its shape.
    ///
    /// # Errors
    /// Whatever is to end the copy.
    fn table(&mut self, name: &str, image: Option<&[u8]>) -> Result<Verdict>;

    /// Turns the template's row into the copy's.
    ///
    /// # Errors
    /// Whatever is to end the copy.
    fn first_row(&mut self, name: &str, row: &mut [u8]) -> Result<()>;
}

/// A [`Verdict`] on all tables of a shape.
#[derive(Clone, Copy)]
struct ShapeVerdict {
    first_row: bool,
    shape: ShapeId,
    frm_len: u32,
}

/// A row to be copied with its table.
struct FirstRow {
    /// Number of the definition.
    def: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What [`Catalog::clone_database`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cloned {
    /// Names the note that waits for [`Catalog::finish_clone`].
    pub note: u32,
    /// Tables copied.
    pub tables: u64,
}

/// Where the copy's tables go.
enum Target {
    /// The database has a tablespace, or all databases share one: what the catalog has at `key`.
    Known { space: SpaceId, key: Vec<u8> },
    /// A tablespace made for the copy, known to nobody yet; is it the database's, or one table's?
    Made { space: SpaceId, row: SpaceRow, own: bool },
}

impl Catalog {
    /// Makes database `to` an empty copy of database `from`: every table with its definition, indexes and placement, no row
    /// but those that `judge` wants, AUTO_INCREMENT at 1. One durable transaction; `files` are kept in its note until
    /// [`Catalog::finish_clone`]. Tables that the server is about to rename (`#sql...`) are left out.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if there is nothing to copy, [`Error::TableExists`] if `to` has tables, those of `judge` and
    /// of writing. Nothing has changed then.
    pub fn clone_database(&self, from: &str, to: &str, files: &[FolderFile], judge: &mut dyn Judge) -> Result<Cloned> {
        let mut key = Vec::new();
        rows::push_database_key(&mut key, to)?;
        if let Some(table) = self.first_table(to)? {
            return Err(Error::TableExists { name: format!("{to}/{table}") });
        }
        let _defining = self.defining.read();
        let (mut defs, first_rows) = self.template(from, judge)?;
        if defs.is_empty() {
            return Err(Error::NoSuchTable { name: format!("{from}/*") });
        }
        let mut made = Vec::new();
        let cloned = self.prepare_copies(&mut defs, to, &key, &mut made).and_then(|()| {
            let note = CloneNote { id: defs[0].id.0, database: to.into(), files: files.to_vec() };
            self.change(|trx| {
                self.insert_copies(trx, &defs, &key, &made, &note)?;
                self.store_first_rows(&defs, &first_rows)
            })?;
            Ok(Cloned { note: note.id, tables: defs.len() as u64 })
        });
        match &cloned {
            Ok(_) => {
                if defs.iter().any(|d| !d.foreign_keys.is_empty()) {
                    self.note_references();
                }
                self.note_new_contents(
                    defs.iter().filter(|d| !d.temporary).flat_map(|d| d.indexes.iter().map(|i| i.id)),
                );
            }
            Err(_) => {
                for target in made {
                    if let Target::Made { space, .. } = target {
                        self.abandon_space(space);
                    }
                }
            }
        }
        // Whoever asked for one of the new names before learned nothing that is kept: only what exists is cached.
        cloned
    }

    fn first_table(&self, db: &str) -> Result<Option<String>> {
        let mut first = None;
        self.list_tables(db, &mut |table| {
            first = Some(table.to_string());
            false
        })?;
        Ok(first)
    }

    /// The definitions to copy, as one snapshot has them, and the rows that go with them.
    fn template(&self, from: &str, judge: &mut dyn Judge) -> Result<(Vec<TableDef>, Vec<FirstRow>)> {
        let mut prefix = Vec::new();
        rows::push_database_key(&mut prefix, from)?;
        let mut defs = Vec::new();
        self.scan(rows::TABLES, &prefix, &mut |key, value| {
            let (db, table) = rows::parse_table_key(key)?;
            if !table.starts_with(crate::ddl::COPY_PREFIX) {
                defs.push(rows::decode_table(format!("{db}/{table}"), value)?);
            }
            Ok(true)
        })?;
        let mut verdicts: HashMap<ShapeId, ShapeVerdict> = HashMap::new();
        let mut rows = Vec::new();
        for (no, def) in defs.iter_mut().enumerate() {
            self.sweeps.keep(def.shape);
            let table = def.name.split_once('/').map_or("", |(_, table)| table);
            let known = verdicts.get(&def.shape).copied().filter(|_| def.frm_len > 0);
            let verdict = match known {
                Some(verdict) => judge.table(table, None).map(|_| verdict)?,
                None => self.verdict(def, judge.table(table, Some(&self.frm(def)?))?)?,
            };
            verdicts.insert(def.shape, verdict);
            if verdict.first_row {
                let mut row = self.first_row(no, def)?;
                judge.first_row(table, &mut row.value)?;
                rows.push(row);
            } else {
                def.row_layouts = Box::default();
            }
            (def.shape, def.frm_len) = (verdict.shape, verdict.frm_len);
        }
        Ok((defs, rows))
    }

    fn verdict(&self, def: &TableDef, verdict: Verdict) -> Result<ShapeVerdict> {
        let (mut shape, mut frm_len) = (def.shape, def.frm_len);
        if let Some(image) = verdict.image {
            shape = self.intern(&image)?.0;
            frm_len = u32::try_from(image.len()).map_err(|_| Error::invalid("image of a copied table"))?;
        }
        Ok(ShapeVerdict { first_row: verdict.first_row, shape, frm_len })
    }

    fn first_row(&self, no: usize, def: &TableDef) -> Result<FirstRow> {
        let clustered = open_index(def.space, &def.indexes[0], def.indexes[0].id);
        self.read(|trx| {
            let mut cursor = myriad_txn::Cursor::new(clustered, scan_options(None));
            if !cursor.seek(trx, myriad_txn::Seek::First, &[])? {
                return Err(Error::invalid(format!("{} has no row", def.name)));
            }
            Ok(FirstRow { def: no, key: cursor.key().to_vec(), value: cursor.value().to_vec() })
        })
    }

    /// Stores rows in indexes that nobody knows yet.
    fn store_first_rows(&self, defs: &[TableDef], rows: &[FirstRow]) -> Result<()> {
        for row in rows {
            let def = &defs[row.def];
            let clustered = open_index(def.space, &def.indexes[0], def.indexes[0].id);
            self.trx.put_unversioned(&clustered, &row.key, &row.value)?;
        }
        Ok(())
    }

    /// Turns the template's definitions into the copies', and makes the tablespaces that they need.
    fn prepare_copies(&self, defs: &mut [TableDef], to: &str, key: &[u8], made: &mut Vec<Target>) -> Result<()> {
        let ids: usize = defs.iter().map(|d| d.indexes.len() + usize::from(d.auto_increment.is_some())).sum();
        let ids = u32::try_from(ids).map_err(|_| Error::invalid("more indexes than there are ids"))?;
        let mut next = self.allocate(Counter::Index, ids)?;
        let mut fresh = |spec| {
            let id = IndexId(next);
            next += 1;
            IndexDef { id, root: PACK_ROOT, spec }
        };
        let create_time_s = self.clock.wall_us() / 1_000_000;
        let mut shared = None;
        for def in defs {
            crate::references::retarget(def, to);
            def.name = format!("{to}/{}", def.name.split_once('/').map_or("", |(_, table)| table));
            def.indexes.iter_mut().for_each(|i| *i = fresh(i.spec));
            def.auto_increment = def.auto_increment.map(|_| fresh(IndexSpec::UNIQUE));
            def.id = TableId(def.indexes[0].id.0);
            def.version = 1;
            def.create_time_s = create_time_s;
            def.frm_patch = if def.frm_len == 0 { [0; 16] } else { self.random_bytes() };
            def.space = match (def.own_space, shared) {
                _ if def.is_in_memory() => SpaceId::MEMORY,
                (false, Some(space)) => space,
                (false, None) => *shared.insert(self.target(to, key, made)?),
                (true, _) => {
                    let (space, row) = self.create_space_file(to)?;
                    made.push(Target::Made { space, row, own: true });
                    space
                }
            };
        }
        Ok(())
    }

    /// The tablespace of the copies that have none of their own.
    fn target(&self, to: &str, key: &[u8], made: &mut Vec<Target>) -> Result<SpaceId> {
        if self.placement() == Placement::Server {
            let space = self.change(|trx| self.space_for(trx, to, Placement::Server))?;
            made.push(Target::Known { space, key: database_key(rows::SHARED_DATABASE)? });
            return Ok(space);
        }
        let mut value = Vec::new();
        if self.trx.get_newest(&index(rows::DATABASES), key, &mut value)? {
            let space = space_number(&value)?;
            made.push(Target::Known { space, key: key.to_vec() });
            return Ok(space);
        }
        let (space, row) = self.create_space_file(to)?;
        made.push(Target::Made { space, row, own: false });
        Ok(space)
    }

    fn insert_copies(
        &self,
        trx: &mut Trx,
        defs: &[TableDef],
        database: &[u8],
        targets: &[Target],
        note: &CloneNote,
    ) -> Result<()> {
        for target in targets {
            self.insert_target(trx, target, database, &note.database)?;
        }
        let mut key = Vec::new();
        for def in defs {
            key.clear();
            rows::push_table_key(&mut key, &def.name)?;
            apply_one(trx, OpKind::Insert, &index(rows::TABLES), &key, &rows::encode_table(def))
                .map_err(|e| crate::ddl::exists(e, &def.name))?;
            self.insert_references(trx, def)?;
        }
        apply_one(trx, OpKind::Insert, &index(rows::PENDING), &note.key(), &note.value())
    }

    /// A tablespace that was made becomes the copies'; one that was there has to be the same still.
    fn insert_target(&self, trx: &mut Trx, target: &Target, database: &[u8], name: &str) -> Result<()> {
        match target {
            Target::Made { space, row, own } => {
                self.finish_space(trx, *space, row)?;
                if *own {
                    return Ok(());
                }
                let number = rows::encode_number(u64::from(space.0));
                // Somebody else's first table may have come in between.
                apply_one(trx, OpKind::Insert, &index(rows::DATABASES), database, &number)
                    .map_err(|e| crate::ddl::exists(e, &format!("{name}/*")))
            }
            Target::Known { space, key } => {
                let value = get_locked(trx, &index(rows::DATABASES), key, Strength::S)?;
                match value.map(|v| space_number(&v)).transpose()? == Some(*space) {
                    true => Ok(()),
                    false => Err(Error::DefinitionChanged { name: name.into() }),
                }
            }
        }
    }

    /// The folder of a copied database is there: forgets the note. What a crash undoes of this is done again.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn finish_clone(&self, note: u32) -> Result<()> {
        self.trx.remove_unversioned(&index(rows::PENDING), &CloneNote::key_of(note)).map(|_| ())
    }

    /// Copies whose folder may be missing in part, for the start. Reads a few pages.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn unfinished_clones(&self) -> Result<Vec<CloneNote>> {
        let mut found = Vec::new();
        self.scan(rows::PENDING, &[CloneNote::KIND], &mut |key, value| {
            found.push(CloneNote::decode(key, value)?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Forgets the notes of a database that is dropped, as part of the transaction.
    pub(crate) fn drop_clone_notes(&self, trx: &mut Trx, database: &[u8]) -> Result<()> {
        for note in self.unfinished_clones()? {
            if Some(note.database.as_bytes()) == database.strip_suffix(&[0]) {
                apply_one(trx, OpKind::Delete, &index(rows::PENDING), &note.key(), &[])?;
            }
        }
        Ok(())
    }
}
