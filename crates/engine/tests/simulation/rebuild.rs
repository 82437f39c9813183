//! A secondary index built anew while clients change the table, a step at a time.

use crate::model::{by_tag, by_value};
use crate::rows::scan;
use crate::world::{End, World};
use myriad::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Indexes that were built to the end and are in use, in all runs.
pub(crate) static ADOPTED: AtomicU64 = AtomicU64::new(0);

/// A build that goes on.
pub(crate) struct Rebuild {
    pub(crate) table: String,
    index: usize,
    changes: RowChanges,
    build: IndexBuild,
    before: Session,
    finished: bool,
}

impl Rebuild {
    fn begin(engine: &Arc<Engine>, table: &Table, index: usize, tmp: &Path) -> Result<Rebuild> {
        let mut before = engine.session();
        let changes = RowChanges::begin(&mut before, table, tmp, 1 << 20)?;
        let build = IndexBuild::begin(&mut before, table, index == 2, tmp, 1 << 20)?;
        Ok(Rebuild { table: table.name().into(), index, changes, build, before, finished: false })
    }

    fn entry(index: usize, row: Row<'_>) -> (Vec<u8>, usize) {
        match index {
            1 => (by_value(row.key, row.value), 0),
            _ => (by_tag(row.key, row.value), 2),
        }
    }

    fn read_all(&mut self, table: &Table) -> Result<()> {
        for (key, value) in scan(&mut self.before, table, 0)? {
            let (key, unique_len) = Rebuild::entry(self.index, Row { key: &key, value: &value });
            self.build.add(&key, unique_len, b"")?;
        }
        self.finished = true;
        self.build.finish()
    }

    fn catch_up(&mut self, engine: &Arc<Engine>) -> Result<()> {
        let mut now = engine.session();
        let (index, build) = (self.index, &mut self.build);
        self.changes.visit(&mut self.before, &mut now, false, &mut |RowChange { old, new }| {
            let [old, new] = [old, new].map(|row| row.map(|row| Rebuild::entry(index, row)));
            if let Some((key, _)) = old {
                build.remove(&key)?;
            }
            new.map_or(Ok(()), |(key, unique_len)| build.add(&key, unique_len, b""))
        })?;
        self.before = now;
        self.build.catch_up()
    }
}

impl World {
    /// Begins a build, goes on with it, or ends it.
    pub(crate) fn rebuild(&mut self) -> End {
        let result = match self.rebuild.take() {
            None => self.begin_rebuild(),
            Some(rebuild) => self.go_on(rebuild),
        };
        result.unwrap_or_else(|e| self.trouble("rebuild", e))
    }

    fn begin_rebuild(&mut self) -> Result<End> {
        let Some(name) = self.some_table().filter(|name| !self.is_touched(name)) else { return Ok(End::Fine) };
        let index = 1 + self.random.below(2) as usize;
        say!(self, "rebuild index {index} of {name}");
        let table = self.table(&name)?;
        self.rebuild = Some(Rebuild::begin(&self.engine(), &table, index, Path::new(&self.dir))?);
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
        rebuild.catch_up(&self.engine())?;
        let mut indexes = [(IndexSpec::UNIQUE, Some(0)), (IndexSpec::PLAIN, Some(1)), (IndexSpec::UNIQUE, Some(2))];
        indexes[rebuild.index].1 = None;
        let to = NewDefinition { frm: b"rebuilt", ..Default::default() };
        let builds = vec![&mut rebuild.build];
        let alteration = Alteration { name: &rebuild.table, to, indexes: &indexes, builds, contents: None };
        let altered = self.engine().alter_tables(&mut [alteration]);
        if let Err(e) = altered {
            // Done or not: the contents are the same, what may be read with older snapshots is not.
            let _ = self.trouble("adopt", e);
            return Ok(End::Crash);
        }
        ADOPTED.fetch_add(1, Ordering::Relaxed);
        for client in self.clients.iter_mut().filter(|client| client.snapshot.is_some()) {
            client.outdated.insert((rebuild.table.clone(), rebuild.index));
        }
        Ok(End::Fine)
    }
}
