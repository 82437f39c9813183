//! A secondary index or a whole table built anew while clients change the table, a step at a time.

use crate::model::{by_tag, by_value};
use crate::rows::{op, scan};
use crate::world::{End, World};
use myriad::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Indexes that were built to the end and are in use, in all runs.
pub(crate) static ADOPTED: AtomicU64 = AtomicU64::new(0);
/// Tables, likewise.
pub(crate) static REBUILT: AtomicU64 = AtomicU64::new(0);
/// What tables built anew are called meanwhile.
pub(crate) const COPY: &str = "#sql-copy";

/// A build that goes on.
pub(crate) struct Rebuild {
    pub(crate) table: String,
    changes: RowChanges,
    what: What,
    /// Applies what has no transaction.
    builder: Session,
    before: Session,
    finished: bool,
}

/// What is built.
enum What {
    Index(usize, Box<IndexBuild>),
    Table(Box<Copy>),
}

struct Copy {
    engine: Arc<Engine>,
    table: Table,
    copy: TableCopy,
}

impl Copy {
    fn begin(
        engine: &Arc<Engine>,
        of: &str,
        placement: Option<Placement>,
        in_memory: bool,
        tmp: &Path,
    ) -> Result<Copy> {
        let name = format!("{}/{COPY}", of.split_once('/').map_or("", |(db, _)| db));
        // One that a full disk kept from being dropped.
        if engine.table_exists(&name)? {
            engine.drop_table(&name)?;
        }
        let indexes = &[IndexSpec::UNIQUE, IndexSpec::PLAIN, IndexSpec::UNIQUE];
        engine.create_table(
            &name,
            &TableSpec { indexes, auto_increment_next: Some(1), placement, in_memory, ..Default::default() },
        )?;
        let table = engine.open_table(&name)?;
        let copy = TableCopy::begin(&table, Some((tmp, 3 << 20)))?;
        Ok(Copy { engine: Arc::clone(engine), table, copy })
    }

    fn apply(&mut self, builder: &mut Session, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        let (second, third) = (by_value(key, value), by_tag(key, value));
        let inserts = kind == OpKind::Insert;
        let [whole, two] = [key.len(), 2].map(|len| if inserts { len } else { 0 });
        let value = if inserts { value } else { b"" };
        let ops = [op(kind, 0, key, whole, value), op(kind, 1, &second, 0, b""), op(kind, 2, &third, two, b"")];
        self.copy.apply(builder, ops.into_iter())
    }
}

impl Drop for Copy {
    /// It is no more if it was adopted, and goes at the next start if that fails.
    fn drop(&mut self) {
        let _ = self.engine.drop_table(self.table.name());
    }
}

impl Rebuild {
    fn entry(index: usize, row: Row<'_>) -> (Vec<u8>, usize) {
        match index {
            1 => (by_value(row.key, row.value), 0),
            _ => (by_tag(row.key, row.value), 2),
        }
    }

    fn read_all(&mut self, table: &Table) -> Result<()> {
        for (key, value) in scan(&mut self.before, table, 0)? {
            match &mut self.what {
                What::Index(index, build) => {
                    let (key, unique_len) = Rebuild::entry(*index, Row { key: &key, value: &value });
                    build.add(&key, unique_len, b"")?;
                }
                What::Table(copy) => copy.apply(&mut self.builder, OpKind::Insert, &key, &value)?,
            }
        }
        self.finished = true;
        match &mut self.what {
            What::Index(_, build) => build.finish(),
            What::Table(copy) => {
                copy.copy.finish(&mut self.builder)?;
                copy.copy = TableCopy::begin(&copy.table, None)?;
                Ok(())
            }
        }
    }

    fn catch_up(&mut self, engine: &Arc<Engine>) -> Result<()> {
        let mut now = engine.session();
        let (what, builder) = (&mut self.what, &mut self.builder);
        let apart = matches!(what, What::Table(_));
        self.changes.visit(&mut self.before, &mut now, apart, &mut |RowChange { old, new }| match what {
            What::Index(index, build) => {
                let [old, new] = [old, new].map(|row| row.map(|row| Rebuild::entry(*index, row)));
                if let Some((key, _)) = old {
                    build.remove(&key)?;
                }
                new.map_or(Ok(()), |(key, unique_len)| build.add(&key, unique_len, b""))
            }
            What::Table(copy) => {
                old.map_or(Ok(()), |row| copy.apply(builder, OpKind::Delete, row.key, row.value))?;
                new.map_or(Ok(()), |row| copy.apply(builder, OpKind::Insert, row.key, row.value))
            }
        })?;
        self.before = now;
        match &mut self.what {
            What::Index(_, build) => build.catch_up(),
            What::Table(_) => Ok(()),
        }
    }
}

impl World {
    /// Begins a build, goes on with it, or ends it.
    pub(crate) fn rebuild(&mut self) -> End {
        let result = match self.rebuild.take() {
            None => self.begin_rebuild(),
            Some(rebuild) => self.go_on(rebuild),
        };
        match result {
            Err(Error::MemoryFull { .. }) => End::Fine,
            result => result.unwrap_or_else(|e| self.trouble("rebuild", e)),
        }
    }

    fn begin_rebuild(&mut self) -> Result<End> {
        let Some(name) = self.some_table().filter(|name| !self.is_touched(name)) else { return Ok(End::Fine) };
        let index = self.random.below(3) as usize;
        let placements = [None, Some(Placement::Server), Some(Placement::Table)];
        let placement = placements[self.random.below(3) as usize];
        let in_memory = self.model.is_in_memory(&name);
        say!(self, "rebuild index {index} of {name}, 0: all, {placement:?}");
        let (engine, tmp, table) = (self.engine(), self.dir.clone(), self.table(&name)?);
        let [mut before, mut builder] = [engine.session(), engine.session()];
        let tmp = Path::new(&tmp);
        let changes = RowChanges::begin(&mut before, &table, tmp, 1 << 20)?;
        let what = match index {
            0 => What::Table(Box::new(Copy::begin(&engine, &name, placement, in_memory, tmp)?)),
            _ => {
                let build = IndexBuild::begin(&mut builder, &table, index == 2, tmp, 1 << 20)?;
                What::Index(index, Box::new(build))
            }
        };
        self.rebuild = Some(Rebuild { table: name, changes, what, builder, before, finished: false });
        Ok(End::Fine)
    }

    fn go_on(&mut self, mut rebuild: Rebuild) -> Result<End> {
        let engine = self.engine();
        if !rebuild.finished {
            say!(self, "rebuild: all rows");
            let table = self.table(&rebuild.table)?;
            rebuild.read_all(&table)?;
        } else if self.is_touched(&rebuild.table) || self.random.one_in(2) {
            say!(self, "rebuild: catch up");
            rebuild.catch_up(&engine)?;
        } else {
            return self.adopt(rebuild);
        }
        self.rebuild = Some(rebuild);
        Ok(End::Fine)
    }

    fn adopt(&mut self, mut rebuild: Rebuild) -> Result<End> {
        say!(self, "rebuild: adopt");
        let engine = self.engine();
        rebuild.catch_up(&engine)?;
        let Rebuild { table, what, .. } = &mut rebuild;
        let to = NewDefinition { frm: b"rebuilt", ..Default::default() };
        let mut after = self.model.clone();
        after.tables.get_mut(table).expect("in use").definition.image = to.frm.to_vec();
        let mut indexes = [(IndexSpec::UNIQUE, Some(0)), (IndexSpec::PLAIN, Some(1)), (IndexSpec::UNIQUE, Some(2))];
        let altered = match what {
            What::Index(index, build) => {
                indexes[*index].1 = None;
                let builds = vec![&mut **build];
                engine.alter_tables(&mut [Alteration { name: table, to, indexes: &indexes, builds, contents: None }])
            }
            What::Table(copy) => {
                copy.table.auto_increment_set(engine.open_table(table)?.info()?.auto_increment_next)?;
                let contents = Some(copy.table.name());
                let builds = Vec::new();
                engine.alter_tables(&mut [Alteration { name: table, to, indexes: &[], builds, contents }])
            }
        };
        if let Err(e) = altered {
            // Done or not: the rows are the same, what may be read with older snapshots is not.
            let _ = self.trouble("adopt", e);
            self.alternatives.push(after);
            return Ok(End::Crash);
        }
        self.hardened();
        self.model = after;
        if let What::Index(index, _) = *what {
            ADOPTED.fetch_add(1, Ordering::Relaxed);
            for client in self.clients.iter_mut().filter(|client| client.snapshot.is_some()) {
                client.outdated.insert((table.clone(), index));
            }
        } else {
            REBUILT.fetch_add(1, Ordering::Relaxed);
            let after = self.model.clone();
            self.forget_in_snapshots(&format!("truncate {table}"), &after);
        }
        Ok(End::Fine)
    }
}
