//! Changes of definitions.

use crate::model::{Model, TableModel};
use crate::world::{End, World, DATABASES};
use myriad::*;

/// The database that copies of others become.
const CLONE: &str = "d";

pub(crate) struct AsItIs;

impl Judge for AsItIs {
    fn table(&mut self, _: &str, _: Option<&[u8]>) -> Result<Verdict> {
        Ok(Verdict::default())
    }
    fn first_row(&mut self, _: &str, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

impl World {
    /// Whether an open or prepared transaction has used the table.
    pub(crate) fn is_touched(&self, name: &str) -> bool {
        let prepared = self.prepared.iter().any(|p| p.changes.keys().any(|(t, _)| t == name));
        prepared || self.clients.iter().any(|c| c.touched.contains(name))
    }

    pub(crate) fn in_use(&self, name: &str) -> bool {
        self.is_touched(name) || self.rebuild.as_ref().is_some_and(|r| r.table == name)
    }

    pub(crate) fn define(&mut self) -> End {
        let db = DATABASES[self.random.below(3) as usize];
        let name = format!("{db}/t{}", self.random.below(3));
        let engine = self.engine();
        let mut after = self.model.clone();
        let what;
        let result = match self.random.below(13) {
            0..=5 => {
                what = format!("create {name}");
                let in_memory = self.random.one_in(4);
                let hash = in_memory && self.random.one_in(2);
                let indexes = [true, false, true].map(|unique| IndexSpec { unique, hash });
                after.tables.insert(name.clone(), TableModel::empty(in_memory));
                let placements = [None, None, Some(Placement::Server), Some(Placement::Table)];
                let frm: Vec<u8> = (0..100 + self.random.below(3)).map(|i| i as u8).collect();
                let spec = TableSpec {
                    frm: &frm,
                    indexes: &indexes,
                    in_memory,
                    auto_increment_next: Some(1),
                    placement: placements[self.random.below(4) as usize],
                    ..Default::default()
                };
                say!(self, "{what}, in memory: {in_memory}");
                engine.create_table(&name, &spec)
            }
            6..=7 if !self.in_use(&name) => {
                what = format!("drop {name}");
                after.tables.remove(&name);
                say!(self, "{what}");
                engine.drop_table(&name)
            }
            8 if !self.in_use(&name) => {
                what = format!("truncate {name}");
                if let Some(table) = after.tables.get_mut(&name) {
                    *table = TableModel::empty(table.in_memory);
                }
                say!(self, "{what}");
                engine.truncate_table(&name, 1)
            }
            9..=10 if !self.in_use(&name) => {
                let to = format!("{}/r{}", DATABASES[self.random.below(3) as usize], self.random.below(2));
                if self.in_use(&to) {
                    return End::Fine;
                }
                what = format!("rename {name} to {to}");
                if !after.tables.contains_key(&to) {
                    if let Some(table) = after.tables.remove(&name) {
                        after.tables.insert(to.clone(), table);
                    }
                }
                say!(self, "{what}");
                engine.rename_table(&name, &to)
            }
            11 if self.rebuild.is_none() => {
                let (from, to) = (format!("{db}/"), format!("{CLONE}/"));
                let copies = |name: &str| name.strip_prefix(&from).map(|table| format!("{to}{table}"));
                let tables = self.model.tables.iter();
                let tables: Vec<_> =
                    tables.filter_map(|(n, t)| Some((copies(n)?, TableModel::empty(t.in_memory)))).collect();
                if tables.is_empty() || self.model.tables.keys().any(|name| name.starts_with(&to)) {
                    return End::Fine;
                }
                what = format!("clone {db}");
                after.tables.extend(tables);
                say!(self, "{what}");
                engine.clone_database(db, CLONE, &[], &mut AsItIs).and_then(|cloned| engine.finish_clone(cloned.note))
            }
            12 => {
                let db = if self.random.one_in(2) { CLONE } else { db };
                if self.database_in_use(db) {
                    return End::Fine;
                }
                what = format!("drop database {db}");
                let prefix = format!("{db}/");
                after.tables.retain(|name, _| !name.starts_with(&prefix));
                say!(self, "{what}");
                let expected = (self.model.tables.len() - after.tables.len()) as u64;
                engine.drop_database(db).map(|n| assert_eq!(n, expected, "{what}"))
            }
            _ => return End::Fine,
        };
        self.defined(&what, result, after)
    }

    pub(crate) fn database_in_use(&self, db: &str) -> bool {
        let prefix = format!("{db}/");
        self.model.tables.keys().any(|name| name.starts_with(&prefix) && self.in_use(name))
    }

    pub(crate) fn defined(&mut self, what: &str, result: Result<()>, after: Model) -> End {
        match result {
            Ok(()) => {
                let created = what.starts_with("create") && self.model.tables.len() == after.tables.len();
                assert!(!created, "{what}: it was there");
                self.forget_in_snapshots(what, &after);
                if self.model != after {
                    self.lazy.clear();
                }
                self.model = after;
                End::Fine
            }
            Err(Error::TableExists { .. }) | Err(Error::NoSuchTable { .. }) => {
                let same = self.model.tables.keys().eq(after.tables.keys());
                assert!(what.starts_with("create") || same || what.starts_with("rename"), "{what} found nothing to do");
                End::Fine
            }
            Err(e) => {
                assert!(self.excused(&e), "{what}: {e}");
                say!(self, "  {what}: {e}");
                self.alternatives.push(after);
                End::Crash
            }
        }
    }

    /// What open snapshots see of a table follows its definition, not its name.
    pub(crate) fn forget_in_snapshots(&mut self, what: &str, after: &Model) {
        let renamed = what.strip_prefix("rename ").and_then(|r| r.split_once(" to "));
        for client in &mut self.clients {
            if let Some((from, to)) = renamed {
                let outdated = std::mem::take(&mut client.outdated).into_iter().filter(|(name, _)| name != to);
                client.outdated = outdated.map(|(n, index)| (if n == from { to.into() } else { n }, index)).collect();
            }
        }
        for snapshot in self.clients.iter_mut().filter_map(|c| c.snapshot.as_mut()) {
            if let Some((from, to)) = renamed {
                snapshot.remove(to);
                if let Some(rows) = snapshot.remove(from) {
                    snapshot.insert(to.into(), rows);
                }
                continue;
            }
            snapshot.retain(|name, _| {
                let truncated = what.strip_prefix("truncate ") == Some(name);
                after.tables.contains_key(name) && !truncated && what.strip_prefix("create ") != Some(name)
            });
        }
    }
}
