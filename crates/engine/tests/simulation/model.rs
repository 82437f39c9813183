//! What the engine's contents should be.

use myriad::ForeignKey;
use std::collections::BTreeMap;

/// Rows of a table by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// A transaction's changes: new value or removal, by table and key.
pub type Changes = BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>;

/// What a table's definition says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The server's image, but for the bytes of [`ID`].
    pub image: Vec<u8>,
    /// In order of their names.
    pub keys: Vec<ForeignKey>,
}

/// Where images of one shape differ.
const ID: std::ops::Range<usize> = 66..82;

impl Definition {
    pub fn new(mut image: Vec<u8>, keys: Vec<ForeignKey>) -> Definition {
        if let Some(id) = image.get_mut(ID) {
            id.fill(0);
        }
        Definition { image, keys }
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableModel {
    pub rows: Rows,
    pub definition: Definition,
    /// Every AUTO_INCREMENT value of an acknowledged commit is below this.
    pub auto_floor: u64,
    /// Gone after a start.
    pub in_memory: bool,
}

impl TableModel {
    pub fn empty(in_memory: bool, definition: Definition) -> TableModel {
        TableModel { in_memory, definition, ..TableModel::default() }
    }

    /// Whether two of its foreign keys have one name.
    fn has_twins(&self) -> bool {
        self.definition.keys.windows(2).any(|two| two[0].name == two[1].name)
    }

    pub fn emptied(&self) -> TableModel {
        TableModel::empty(self.in_memory, self.definition.clone())
    }
}

/// All tables, as committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub tables: BTreeMap<String, TableModel>,
}

impl Model {
    /// Applies a transaction.
    pub fn apply(&mut self, changes: &Changes) {
        for ((table, key), value) in changes {
            let Some(table) = self.tables.get_mut(table) else { continue };
            match value {
                Some(value) => table.rows.insert(key.clone(), value.clone()),
                None => table.rows.remove(key),
            };
        }
    }

    pub fn is_in_memory(&self, table: &str) -> bool {
        self.tables.get(table).is_some_and(|t| t.in_memory)
    }

    /// What is left of it after a start.
    pub fn forget_memory(&mut self) {
        for table in self.tables.values_mut().filter(|t| t.in_memory) {
            *table = table.emptied();
        }
    }

    /// Another name for a table. Foreign keys that refer to it follow, or those that refer to the table it replaces. Names of its
    /// own that begin with the first of `prefix` begin with the second then, unless two become the same: nothing changes.
    pub fn rename(&mut self, from: &str, to: &str, replaced: Option<&str>, prefix: Option<(&str, &str)>) {
        let Some(mut table) = self.tables.get(from).cloned() else { return };
        let had_twins = table.has_twins();
        for key in &mut table.definition.keys {
            if let Some((rest, new)) = prefix.and_then(|(old, new)| Some((key.name.strip_prefix(old)?, new))) {
                key.name = format!("{new}{rest}");
            }
        }
        table.definition.keys.sort_by(|a, b| a.name.cmp(&b.name));
        if table.has_twins() && !had_twins {
            return;
        }
        self.tables.remove(from);
        self.tables.insert(to.into(), table);
        let parent = replaced.unwrap_or(from);
        for key in self.tables.values_mut().flat_map(|t| &mut t.definition.keys).filter(|key| key.parent == parent) {
            key.parent = to.into();
        }
    }

    /// Foreign keys that refer to a table, in order of those who have them.
    pub fn references_to(&self, parent: &str) -> Vec<(String, ForeignKey)> {
        let all = self.tables.iter().flat_map(|(name, t)| t.definition.keys.iter().map(move |key| (name, key)));
        all.filter(|(_, key)| key.parent == parent).map(|(name, key)| (name.clone(), key.clone())).collect()
    }

    pub fn rows(&self, table: &str) -> Rows {
        self.tables.get(table).map(|t| t.rows.clone()).unwrap_or_default()
    }
}

/// Rows as a transaction sees them: a snapshot and its own changes.
pub fn overlay(mut rows: Rows, changes: &Changes, table: &str) -> Rows {
    for ((t, key), value) in changes {
        if t == table {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
    }
    rows
}

/// Secondary index 1: the value's first three bytes, then the key. Not unique. Short keys may wait in the change buffer, long ones make
/// trees high.
pub fn by_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    let filler = if value[2].is_multiple_of(2) { 700 } else { 40 };
    [&value[..3], &[b'v'; 700][..filler], key].concat()
}

/// Secondary index 2: the value's first two bytes (unique), then the key.
pub fn by_tag(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&value[..2], key].concat()
}
