//! Changes of definitions.

use crate::model::{Definition, Model, TableModel};
use crate::world::{End, World, DATABASES};
use myriad::*;

/// The database that copies of others become.
const CLONE: &str = "d";

const KEY_NAMES: [&str; 3] = ["k0", "k1", "k2"];
/// Of foreign keys, here and there.
const COLUMNS: [&str; 3] = ["a", "b", "c"];

/// All names that tables have.
fn parents() -> Vec<String> {
    let tables = ["r0", "r1", "t0", "t1", "t2"];
    DATABASES.iter().flat_map(|db| tables.map(|table| format!("{db}/{table}"))).collect()
}

/// What a new definition makes of a table's foreign keys.
#[derive(Debug)]
struct KeyChange {
    dropped: Vec<String>,
    added: Vec<ForeignKey>,
    renamed: Vec<(String, String)>,
}

impl KeyChange {
    fn as_change(&self) -> ForeignKeyChange<'_> {
        ForeignKeyChange { dropped: &self.dropped, added: &self.added, renamed: &self.renamed }
    }

    fn rename(&self, column: &mut String) {
        if let Some((_, to)) = self.renamed.iter().find(|(from, _)| from == column) {
            column.clone_from(to);
        }
    }

    fn make(&self, model: &mut Model, name: &str) {
        for (table, t) in &mut model.tables {
            t.definition.keys.retain(|key| table != name || !self.dropped.contains(&key.name));
            for key in &mut t.definition.keys {
                for (own, referenced) in &mut key.columns {
                    if table == name {
                        self.rename(own);
                    }
                    if key.parent == name {
                        self.rename(referenced);
                    }
                }
            }
        }
        let keys = &mut model.tables.get_mut(name).expect("the caller has seen it").definition.keys;
        keys.extend_from_slice(&self.added);
        keys.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// What was done, how it went, and the tables as they are if it went well.
type Defined = (String, Result<()>, Model);

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
        let done = match self.random.below(17) {
            0..=5 => self.define_create(&name),
            6..=7 if !self.in_use(&name) => self.define_drop_one(&name),
            8 if !self.in_use(&name) => self.define_truncate(&name),
            9..=10 if !self.in_use(&name) => self.define_rename(&name),
            11 if self.rebuild.is_none() => self.define_clone_one(db),
            12 => self.define_drop_all_of(db),
            13..=15 if !self.in_use(&name) => self.define_redefine(name),
            16 => self.define_adopt(&name),
            _ => None,
        };
        let Some((what, result, after)) = done else { return End::Fine };
        self.defined(&what, result, after)
    }

    fn define_create(&mut self, name: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let what = format!("create {name}");
        let in_memory = self.random.one_in(4);
        let hash = in_memory && self.random.one_in(2);
        let indexes = [true, false, true].map(|unique| IndexSpec { unique, hash });
        let placements = [None, None, Some(Placement::Server), Some(Placement::Table)];
        let (frm, keys) = (self.image(), self.some_foreign_keys());
        let definition = Definition::new(frm.clone(), keys.clone());
        after.tables.insert(name.to_string(), TableModel::empty(in_memory, definition));
        let spec = TableSpec {
            frm: &frm,
            indexes: &indexes,
            in_memory,
            auto_increment_next: Some(1),
            foreign_keys: &keys,
            placement: placements[self.random.below(4) as usize],
            ..Default::default()
        };
        say!(self, "{what}, in memory: {in_memory}");
        let result = self.engine().create_table(name, &spec);
        Some((what, result, after))
    }

    fn define_drop_one(&mut self, name: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let what = format!("drop {name}");
        after.tables.remove(name);
        say!(self, "{what}");
        let result = self.engine().drop_table(name);
        Some((what, result, after))
    }

    fn define_truncate(&mut self, name: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let what = format!("truncate {name}");
        if let Some(table) = after.tables.get_mut(name) {
            *table = table.emptied();
        }
        say!(self, "{what}");
        let result = self.engine().truncate_table(name, 1);
        Some((what, result, after))
    }

    /// At times as a copy that takes the place of another table.
    fn define_rename(&mut self, name: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let to = format!("{}/r{}", DATABASES[self.random.below(3) as usize], self.random.below(2));
        if self.in_use(&to) {
            return None;
        }
        let what = format!("rename {name} to {to}");
        let replaced = self.random.one_in(4).then(|| self.some_parent());
        let replaced = replaced.as_deref();
        let prefix = [None, None, Some(("k0", "k1")), Some(("k", "k1"))][self.random.below(4) as usize];
        if !after.tables.contains_key(&to) {
            after.rename(name, &to, replaced, prefix);
        }
        say!(self, "{what}, as {replaced:?}, {prefix:?}");
        let result = self.engine().rename_table_as(name, &to, replaced, prefix);
        Some((what, result, after))
    }

    fn define_clone_one(&mut self, db: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let (from, to) = (format!("{db}/"), format!("{CLONE}/"));
        let copies = |name: &str| name.strip_prefix(&from).map(|table| format!("{to}{table}"));
        let tables = self.model.tables.iter();
        let mut tables: Vec<_> = tables.filter_map(|(n, t)| Some((copies(n)?, t.emptied()))).collect();
        for key in tables.iter_mut().flat_map(|(_, t)| &mut t.definition.keys) {
            key.parent = copies(&key.parent).unwrap_or_else(|| key.parent.clone());
        }
        if tables.is_empty() || self.model.tables.keys().any(|name| name.starts_with(&to)) {
            return None;
        }
        let what = format!("clone {db}");
        after.tables.extend(tables);
        say!(self, "{what}");
        let engine = self.engine();
        let result =
            engine.clone_database(db, CLONE, &[], &mut AsItIs).and_then(|cloned| engine.finish_clone(cloned.note));
        Some((what, result, after))
    }

    fn define_drop_all_of(&mut self, db: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let db = if self.random.one_in(2) { CLONE } else { db };
        if self.database_in_use(db) {
            return None;
        }
        let what = format!("drop database {db}");
        let prefix = format!("{db}/");
        after.tables.retain(|name, _| !name.starts_with(&prefix));
        say!(self, "{what}");
        let expected = (self.model.tables.len() - after.tables.len()) as u64;
        let result = self.engine().drop_database(db).map(|n| assert_eq!(n, expected, "{what}"));
        Some((what, result, after))
    }

    /// One table or two: all of them or none.
    fn define_redefine(&mut self, name: String) -> Option<Defined> {
        let mut after = self.model.clone();
        let other = format!("{}/t{}", DATABASES[self.random.below(3) as usize], self.random.below(3));
        let two = other != name && !self.in_use(&other) && self.random.one_in(3);
        let names = if two { vec![name, other] } else { vec![name] };
        let what = format!("redefine {}", names.join(" and "));
        let there = names.iter().all(|name| after.tables.contains_key(name));
        let mut changes = Vec::new();
        for name in &names {
            let (frm, change) = (self.image(), self.some_change_of_keys(&after, name));
            if let Some(table) = after.tables.get_mut(name).filter(|_| there) {
                table.definition.image = Definition::new(frm.clone(), Vec::new()).image;
                change.make(&mut after, name);
            }
            changes.push((frm, change));
        }
        say!(self, "{what}: {changes:?}");
        let mut alterations = Vec::new();
        for (name, (frm, change)) in names.iter().zip(&changes) {
            let to = NewDefinition { frm, keys: change.as_change(), ..Default::default() };
            alterations.push(Alteration { name, to, indexes: &[], builds: Vec::new(), contents: None });
        }
        let result = self.engine().alter_tables(&mut alterations);
        Some((what, result, after))
    }

    fn define_adopt(&mut self, name: &str) -> Option<Defined> {
        let mut after = self.model.clone();
        let what = format!("adopt an image of {name}");
        let frm = self.image();
        // The first stays.
        if let Some(table) = after.tables.get_mut(name).filter(|t| t.definition.image.is_empty()) {
            table.definition.image = Definition::new(frm.clone(), Vec::new()).image;
        }
        say!(self, "{what}");
        let result = self.engine().adopt_image(name, &frm);
        Some((what, result, after))
    }

    /// One of few, so that tables share shapes; or none yet.
    fn image(&mut self) -> Vec<u8> {
        let len = if self.random.one_in(6) { 0 } else { 100 + self.random.below(3) };
        (0..len).map(|i| i as u8).collect()
    }

    fn some_foreign_keys(&mut self) -> Vec<ForeignKey> {
        let names = &KEY_NAMES[..self.random.below(3) as usize];
        names.iter().map(|name| self.foreign_key(name)).collect()
    }

    /// A table that there may be, or not.
    fn some_parent(&mut self) -> String {
        let mut parents = parents();
        parents.swap_remove(self.random.below(parents.len() as u64) as usize)
    }

    /// To such a table.
    fn foreign_key(&mut self, name: &str) -> ForeignKey {
        let parent = self.some_parent();
        let mut some = |of: u64| self.random.below(of) as usize;
        ForeignKey {
            name: name.into(),
            parent,
            on_delete: ReferenceAction::Cascade,
            on_update: ReferenceAction::Restrict,
            columns: vec![(COLUMNS[some(3)].into(), COLUMNS[some(3)].into())],
        }
    }

    fn some_change_of_keys(&mut self, model: &Model, name: &str) -> KeyChange {
        let own = model.tables.get(name).map_or(&[][..], |t| &t.definition.keys);
        let (mut dropped, mut added) = (Vec::new(), Vec::new());
        for key in KEY_NAMES {
            let is_there = own.iter().any(|own| own.name == key);
            match self.random.below(3) {
                0 if is_there => dropped.push(key.to_string()),
                0 => added.push(self.foreign_key(key)),
                // Another one of this name.
                1 if is_there && self.random.one_in(2) => {
                    dropped.push(key.to_string());
                    added.push(self.foreign_key(key));
                }
                _ => {}
            }
        }
        let mut renamed = Vec::new();
        if self.random.one_in(3) {
            let column = self.random.below(2) as usize;
            renamed.push((COLUMNS[column].to_string(), COLUMNS[column + 1].to_string()));
        }
        KeyChange { dropped, added, renamed }
    }

    /// Both sides of the tables' foreign keys.
    pub(crate) fn check_references(&self) {
        let engine = self.engine();
        for parent in parents() {
            let found = engine.references_to(&parent).expect("references");
            assert_eq!(found, self.model.references_to(&parent), "what refers to {parent}");
        }
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
                    self.hardened();
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
