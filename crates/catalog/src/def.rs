//! Table definitions as the rest of the engine sees them.

use crate::references::ForeignKeyChange;
use myriad_base::{IndexId, PageNo, ShapeId, SpaceId, TableId};
use std::sync::Arc;

/// Where a new table's pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Placement {
    /// One file for each database, created at its first table.
    Database = 0,
    /// One file for all databases.
    Server = 1,
    /// One file for the table.
    Table = 2,
}

impl Placement {
    /// The placement of this number, if there is one.
    pub fn from_u8(v: u8) -> Option<Placement> {
        match v {
            0 => Some(Placement::Database),
            1 => Some(Placement::Server),
            2 => Some(Placement::Table),
            _ => None,
        }
    }
}

impl ForeignKey {
    fn memory_bytes(&self) -> usize {
        std::mem::size_of::<ForeignKey>()
            + self.name.capacity()
            + self.parent.capacity()
            + self.columns.iter().map(|(a, b)| 48 + a.capacity() + b.capacity()).sum::<usize>()
    }
}

/// What a new index needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSpec {
    /// No two entries with the same unique prefix.
    pub unique: bool,
    /// Look-ups of whole keys go by hash first; only in tables that are in memory alone.
    pub hash: bool,
}

impl IndexSpec {
    /// A unique index, nothing else.
    pub const UNIQUE: IndexSpec = IndexSpec { unique: true, hash: false };
    /// An index, nothing else.
    pub const PLAIN: IndexSpec = IndexSpec { unique: false, hash: false };
}

/// A table to be created.
#[derive(Clone, Debug, Default)]
pub struct TableSpec<'a> {
    /// The server's image of the table; may be empty.
    pub frm: &'a [u8],
    /// Index 0 is the clustered one, always unique.
    pub indexes: &'a [IndexSpec],
    /// The clustered key is an 8-byte counter of the engine's own.
    pub hidden_row_id: bool,
    /// First AUTO_INCREMENT value to give (0 counts as 1); `None` without such a column.
    pub auto_increment_next: Option<u64>,
    /// Gone at the next start.
    pub temporary: bool,
    /// Where it goes; `None` = the engine's setting.
    pub placement: Option<Placement>,
    /// In memory alone, empty after each start; then `placement` does not matter.
    pub in_memory: bool,
    /// Its foreign keys, in order of their names.
    pub foreign_keys: &'a [ForeignKey],
    /// Of a copy: the table that it is made of, and names of the foreign keys that both have. These refer to what the
    /// table's own do by now, but for what it refers to in itself.
    pub kept_keys: Option<(&'a str, &'a [String])>,
}

/// What happens to a child's rows when the parent's row is deleted or its referenced columns change. Whoever enforces
/// foreign keys acts on it; the engine only stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReferenceAction {
    /// The change is refused; said by nobody.
    Restrict = 0,
    /// The change is refused; said in so many words.
    NoAction = 1,
    /// They are deleted or get the new values.
    Cascade = 2,
    /// Their columns become NULL.
    SetNull = 3,
}

impl ReferenceAction {
    /// The action of this number, if there is one.
    pub fn from_u8(v: u8) -> Option<ReferenceAction> {
        match v {
            0 => Some(ReferenceAction::Restrict),
            1 => Some(ReferenceAction::NoAction),
            2 => Some(ReferenceAction::Cascade),
            3 => Some(ReferenceAction::SetNull),
            _ => None,
        }
    }
}

/// A FOREIGN KEY constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// The constraint's name.
    pub name: String,
    /// `db/table` that it refers to; it need not exist.
    pub parent: String,
    /// When the parent's row is deleted.
    pub on_delete: ReferenceAction,
    /// When the parent's columns change.
    pub on_update: ReferenceAction,
    /// The table's columns, each with the parent's that it refers to.
    pub columns: Vec<(String, String)>,
}

/// One index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// The first four bytes of its keys.
    pub id: IndexId,
    /// Root page of the tree that holds it, which it may share.
    pub root: PageNo,
    /// What it was asked to be.
    pub spec: IndexSpec,
}

/// A table's definition: immutable; a change makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDef {
    /// `db/table`, as the server encodes file names.
    pub name: String,
    /// The id of the first clustered index it had; stays when indexes or contents are replaced.
    pub id: TableId,
    /// Grows with each redefinition.
    pub version: u32,
    /// Where its pages are.
    pub space: SpaceId,
    /// Index 0 is the clustered one.
    pub indexes: Vec<IndexDef>,
    /// The clustered key is an 8-byte counter of the engine's own.
    pub hidden_row_id: bool,
    /// Where the AUTO_INCREMENT counter is kept, if there is one.
    pub auto_increment: Option<IndexDef>,
    /// Gone at the next start.
    pub temporary: bool,
    /// The tablespace holds only this table.
    pub own_space: bool,
    /// Seconds since 1970.
    pub create_time_s: u64,
    /// The interned image.
    pub shape: ShapeId,
    /// What the image has in its 16 bytes that differ from the shape's: the definition's id. Without an image, that of the
    /// last change in place, or zeros.
    pub frm_patch: [u8; 16],
    /// Length of the image in bytes; 0 = none.
    pub frm_len: u32,
    /// Its foreign keys, in order of their names. They may change without the version.
    pub foreign_keys: Box<[ForeignKey]>,
    /// How rows written under earlier definitions are read; the server's plug-in alone knows. Empty if all rows are of
    /// today's.
    pub row_layouts: Box<[u8]>,
}

impl TableDef {
    /// The database part of its name.
    pub fn database(&self) -> &str {
        self.name.split('/').next().unwrap_or("")
    }

    /// Whether its contents are in memory alone.
    pub fn is_in_memory(&self) -> bool {
        self.space == SpaceId::MEMORY
    }

    /// Approximate memory it takes in bytes.
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of::<TableDef>()
            + self.name.capacity()
            + self.indexes.capacity() * std::mem::size_of::<IndexDef>()
            + self.foreign_keys.iter().map(ForeignKey::memory_bytes).sum::<usize>()
            + self.row_layouts.len()
    }
}

/// What a change in place makes of a table's definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewDefinition<'a> {
    /// The server's image; may be empty.
    pub frm: &'a [u8],
    /// [`TableDef::frm_patch`] of a table without an image.
    pub definition_id: Option<[u8; 16]>,
    /// [`TableDef::row_layouts`]; `None` = as they are.
    pub row_layouts: Option<&'a [u8]>,
    /// Foreign keys.
    pub keys: ForeignKeyChange<'a>,
}

/// A shared definition.
pub type TableRef = Arc<TableDef>;

impl TableDef {
    pub(crate) fn set(&mut self, new: &NewDefinition<'_>, (shape, patch): (ShapeId, [u8; 16])) {
        self.shape = shape;
        self.frm_patch = if new.frm.is_empty() { new.definition_id.unwrap_or_default() } else { patch };
        // Interning has accepted the image, and values are shorter than 4 GiB.
        self.frm_len = u32::try_from(new.frm.len()).unwrap_or(u32::MAX);
        if let Some(layouts) = new.row_layouts {
            self.row_layouts = layouts.into();
        }
    }
}
