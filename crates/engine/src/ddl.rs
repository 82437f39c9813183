//! Definitions: the catalog's changes, and word of them to who has the tables open.

use crate::build::IndexBuild;
use crate::engine::Engine;
use crate::share::TableShare;
use crate::stats::CachedStats;
use crate::table::Table;
use myriad_base::{Error, Result};
use myriad_catalog::{
    Changed, CloneNote, Cloned, FolderFile, ForeignKey, IndexSource, IndexSpec, Judge, NewDefinition, TableChange,
    TableRef, TableSpec,
};
use std::sync::Arc;

/// What [`Engine::alter_tables`] makes of one table.
#[derive(Debug)]
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
    /// Creates a table, whose name is `db/table`: tables of one database have a file together, unless `spec` says otherwise, and
    /// [`Engine::drop_database`] drops them. Durable when this returns, as every change of a definition. Either part of the name has 1 to
    /// 1,024 bytes, none of them a slash or zero; database `*` stands for all and is refused, and `#tmp` is dropped at each start.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::Invalid`] for an impossible name or specification; those of writing.
    pub fn create_table(&self, name: &str, spec: &TableSpec<'_>) -> Result<()> {
        self.check_open()?;
        self.catalog().create_table(name, spec).map(|_| ())
    }

    fn outdate(&self, changed: Result<Changed>) -> Result<()> {
        let changed = changed?;
        let old = changed.old.id;
        match changed.new.as_ref().map(|def| def.id) {
            Some(new) if new == old => self.shares().outdate(old.0),
            // Contents that were another table's had its definition.
            new => new.into_iter().chain([old]).for_each(|id| self.shares().forget(id.0)),
        }
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

    /// As [`Engine::drop_table`], of all tables whose names begin with this, such as a server's partitions, durable together.
    ///
    /// # Errors
    /// Those of writing; then all are there.
    pub fn drop_tables_with_prefix(&self, prefix: &str) -> Result<()> {
        self.check_open()?;
        let dropped = self.catalog().drop_tables_with_prefix(prefix)?;
        dropped.into_iter().try_for_each(|changed| self.outdate(Ok(changed)))
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
        dropped.iter().for_each(|id| self.shares().forget(id.0));
        self.wake_reclaimer();
        Ok(dropped.len() as u64)
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
        self.catalog().alter_tables(changes)?.into_iter().try_for_each(|changed| self.outdate(Ok(changed)))
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

    /// Whether a prepared transaction without a session has changed the table; false if there is no such table.
    ///
    /// # Errors
    /// Those of reading the catalog and undo pages.
    pub fn is_changed_by_prepared(&self, name: &str) -> Result<bool> {
        let Some(def) = self.catalog().find_table(name)? else { return Ok(false) };
        let Some(clustered) = def.indexes.first() else { return Ok(false) };
        self.trx_system().is_changed_by_prepared(clustered.id)
    }

    /// The server's image of a table; empty if it has none.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of reading the catalog.
    pub fn frm(&self, name: &str) -> Result<Vec<u8>> {
        loop {
            let def = self.catalog().table(name)?;
            match self.catalog().frm(&def) {
                // Changed meanwhile: the image that it had may be gone.
                Err(_) if self.catalog().table(name)?.version != def.version => {}
                result => return result,
            }
        }
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
        let share = self.share(name, &|def, stats| {
            TableShare::open(self.trx_system(), Arc::clone(def), self.catalog().contents_since(def), stats)
        })?;
        Ok(Table { engine: Arc::clone(self), share, index_keys: None })
    }

    fn share(&self, name: &str, open: Opener<'_>) -> Result<Arc<TableShare>> {
        loop {
            let def = self.catalog().table(name)?;
            let share = self.shares().get(&def, |stats| open(&def, stats))?;
            // A change since found nothing to outdate. One that comes after this look finds the share.
            let now = self.catalog().find_table(name)?;
            if now.is_some_and(|now| (now.id, now.version) == (def.id, def.version)) {
                return Ok(share);
            }
            share.set_outdated();
        }
    }
}

/// Opens a definition, with the statistics that are known.
type Opener<'a> = &'a dyn Fn(&TableRef, Arc<CachedStats>) -> Result<TableShare>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CloseMode, EngineConfig};
    use crate::session::{ApplyMode, Op, OpKind};
    use myriad_base::random::Random;
    use myriad_catalog::Verdict;
    use myriad_io::{Io, SimIo};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn open(io: &SimIo, background_threads: bool) -> Arc<Engine> {
        io.create_dir(Path::new("/data")).unwrap();
        let config = EngineConfig {
            buffer_pool_bytes: 8 << 20,
            log_capacity_bytes: 4 << 20,
            background_threads,
            seed: Some(1),
            ..EngineConfig::new("/data")
        };
        Engine::open_with(config, Some(Arc::new(io.clone()))).unwrap()
    }

    fn spec(frm: &[u8]) -> TableSpec<'_> {
        TableSpec { indexes: &[IndexSpec::UNIQUE], frm, ..Default::default() }
    }

    /// A definition that changes while it is opened, or right before, is not taken for the newest.
    #[test]
    fn who_opens_a_table_meets_a_change_meanwhile() {
        let engine = open(&SimIo::new(3), false);
        engine.create_table("d/t", &spec(&image(0))).unwrap();
        let opened = std::cell::Cell::new(0);
        let open = |def: &TableRef, stats| {
            opened.set(opened.get() + 1);
            if opened.get() == 1 {
                engine.redefine("d/t", &NewDefinition { frm: &image(1), ..Default::default() }).unwrap();
            }
            TableShare::open(engine.trx_system(), Arc::clone(def), Box::default(), stats)
        };
        let share = engine.share("d/t", &open).unwrap();
        assert_eq!((opened.get(), share.is_current()), (2, true));
        assert_eq!(share.def.version, engine.catalog().table("d/t").unwrap().version);
        drop(share);
        opened.set(0);
        let open = |def: &TableRef, stats| {
            engine.rename_table("d/t", "d/other").unwrap();
            TableShare::open(engine.trx_system(), Arc::clone(def), Box::default(), stats)
        };
        engine.redefine("d/t", &NewDefinition { frm: &image(2), ..Default::default() }).unwrap();
        assert!(matches!(engine.share("d/t", &open), Err(Error::NoSuchTable { .. })));
        assert_eq!(engine.open_table("d/other").unwrap().name(), "d/other");
    }

    struct AsItIs;

    impl Judge for AsItIs {
        fn table(&mut self, _: &str, _: Option<&[u8]>) -> Result<Verdict> {
            Ok(Verdict::default())
        }
        fn first_row(&mut self, _: &str, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
    }

    /// An image; those of one number have one shape.
    fn image(no: u64) -> Vec<u8> {
        (0..200).map(|i| (no >> (i % 3 * 8)) as u8).collect()
    }

    /// What one client's tables are to be: name and number of the image.
    type Tables = BTreeMap<String, u64>;

    /// Creates, drops, renames, redefines and copies tables, few images of which are new.
    fn work(engine: &Engine, client: u64, steps: u64) -> Tables {
        let mut random = Random::from_seed(client);
        let mut tables = Tables::new();
        let mut databases = 0;
        for step in 0..steps {
            let some = tables.keys().nth(random.below(tables.len().max(1) as u64) as usize).cloned();
            let name = format!("d{client}/t{step}");
            let no = if random.one_in(4) { 1000 + client * steps + step } else { random.below(6) };
            match (random.below(7), some) {
                (0 | 1, Some(from)) => {
                    engine.drop_table(&from).unwrap();
                    tables.remove(&from);
                }
                (2, Some(from)) => {
                    engine.rename_table(&from, &name).unwrap();
                    let was = tables.remove(&from).unwrap();
                    tables.insert(name, was);
                }
                (3, Some(of)) => {
                    engine.redefine(&of, &NewDefinition { frm: &image(no), ..Default::default() }).unwrap();
                    tables.insert(of, no);
                }
                (4, Some(of)) if databases < 12 => {
                    databases += 1;
                    let (from, to) = (of.split_once('/').unwrap().0, format!("c{client}_{step}"));
                    let note = engine.clone_database(from, &to, &[], &mut AsItIs).unwrap().note;
                    engine.finish_clone(note).unwrap();
                    let of_it = |name: &String| name.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'));
                    let copied: Vec<_> = tables.iter().filter(|t| of_it(t.0)).map(|(n, &i)| (n.clone(), i)).collect();
                    tables.extend(copied.into_iter().map(|(n, i)| (n.replacen(from, &to, 1), i)));
                }
                _ => {
                    engine.create_table(&name, &spec(&image(no))).unwrap();
                    tables.insert(name, no);
                }
            }
        }
        tables
    }

    fn verify(engine: &Engine, tables: &Tables) {
        for (name, &no) in tables {
            // The patch is the table's own.
            let (mut frm, mut wanted) = (engine.frm(name).unwrap(), image(no));
            frm[66..82].fill(0);
            wanted[66..82].fill(0);
            assert_eq!(frm, wanted, "{name}");
        }
    }

    #[test]
    fn a_sweep_takes_no_shape_that_somebody_needs() {
        let io = SimIo::new(7);
        let engine = open(&io, true);
        let done = AtomicBool::new(false);
        let all: Vec<Tables> = std::thread::scope(|scope| {
            let sweeps = scope.spawn(|| {
                let mut sweeps = 0;
                while !done.load(Ordering::Acquire) {
                    engine.catalog().remove_unused_shapes().unwrap();
                    sweeps += 1;
                }
                sweeps
            });
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    scope.spawn({
                        let engine = &engine;
                        move || work(engine, client, 250)
                    })
                })
                .collect();
            let all: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Release);
            assert!(sweeps.join().unwrap() > 10);
            all.into_iter().map(|tables| tables.expect("no panic")).collect()
        });
        all.iter().for_each(|tables| verify(&engine, tables));
        engine.catalog().remove_unused_shapes().unwrap();
        let io = io.crash(8);
        let engine = open(&io, false);
        all.iter().for_each(|tables| verify(&engine, tables));
        engine.close(CloseMode::Purged).unwrap();
        drop(engine);
        let engine = open(&io, false);
        all.iter().for_each(|tables| verify(&engine, tables));
    }

    /// A crash at any point of a sweep leaves every table its definition, and a way to no shape that is gone.
    #[test]
    fn a_sweep_may_be_interrupted_anywhere() {
        for seed in 0..150 {
            let io = SimIo::new(seed);
            let engine = open(&io, false);
            let mut tables = Tables::new();
            for no in 0..90 {
                let name = format!("d/t{no}");
                engine.create_table(&name, &spec(&image(no))).unwrap();
                tables.insert(name, no);
            }
            for no in (0..90).filter(|no| no % 3 != 0) {
                let name = format!("d/t{no}");
                engine.drop_table(&name).unwrap();
                tables.remove(&name);
            }
            engine.checkpoint_now().unwrap();
            io.power_off_after(seed % 3);
            let _ = engine.catalog().remove_unused_shapes().and_then(|()| engine.flush_log());
            let io = io.crash(seed);
            let engine = open(&io, false);
            verify(&engine, &tables);
            for no in 0..90 {
                let name = format!("e/t{no}");
                engine.create_table(&name, &spec(&image(no))).unwrap();
                tables.insert(name, no);
            }
            verify(&engine, &tables);
        }
    }

    /// The note that an index had a root of its own and is gone stays as long as an undo record names it.
    #[test]
    fn destroyed_indexes_are_forgotten_when_no_undo_record_names_them() {
        let io = SimIo::new(9);
        let fill = |engine: &Arc<Engine>, name: &str, n: u32| {
            engine.create_table(name, &spec(&[])).unwrap();
            let (table, mut session) = (engine.open_table(name).unwrap(), engine.session());
            (0..n).for_each(|i| session.insert(&table, &i.to_be_bytes(), &[7; 40]).unwrap());
            session.commit().unwrap();
        };
        let settle = |engine: &Arc<Engine>| while engine.background_step().unwrap() {};
        let is_noted = |engine: &Engine, id| !engine.parts.catalog.index_alive()(id);
        let engine = open(&io, false);
        fill(&engine, "d/t", 100);
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        let mut build = IndexBuild::begin(&mut session, &table, false, Path::new("/data"), 1 << 20).unwrap();
        for i in 0..60_000u32 {
            build.add(&[&i.to_be_bytes()[..], &[1; 40]].concat(), 0, b"").unwrap();
        }
        session.commit().unwrap();
        build.finish().unwrap();
        let indexes = [(IndexSpec::UNIQUE, Some(0)), (IndexSpec::PLAIN, None)];
        let (name, to, contents) = ("d/t", NewDefinition::default(), None);
        engine
            .alter_tables(&mut [Alteration { name, to, indexes: &indexes, builds: vec![&mut build], contents }])
            .unwrap();
        drop((table, build));
        let table = engine.open_table("d/t").unwrap();
        let key = [0xff; 20];
        let op = |index_no| Op { kind: OpKind::Insert, index_no, key: &key, unique_len: 0, value: b"", head_len: 0 };
        session.apply(&table, [op(0), op(1)].into_iter(), ApplyMode::default()).unwrap();
        session.commit().unwrap();
        drop((table, session));
        let id = engine.catalog().table("d/t").unwrap().indexes[1].id;
        engine.drop_table("d/t").unwrap();
        settle(&engine);
        assert!(is_noted(&engine, id), "it had a root of its own");
        engine.close(CloseMode::Purged).unwrap();
        drop(engine);
        let engine = open(&io, false);
        assert!(is_noted(&engine, id), "the last undo page names it");
        // Undo pages enough for purge to leave that one behind.
        fill(&engine, "d/other", 1500);
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let engine = open(&io, false);
        assert!(is_noted(&engine, id), "no slow stop");
        engine.close(CloseMode::Purged).unwrap();
        drop(engine);
        let engine = open(&io, false);
        assert!(!is_noted(&engine, id));
        settle(&engine);
    }
}
