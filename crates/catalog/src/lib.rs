//! Room `catalog`: table definitions, shapes, placement, DDL.
//!
//! Holds the catalog's indexes in the pack tree of tablespace 0 (rows: `rows.rs`), a cache of definitions with a byte
//! budget, interned images, the placement of tables in tablespaces, DDL as transactions, and the background removal of
//! what was dropped. Knows nothing of sessions or open tables, and never loops over all tables or tablespaces but in
//! listings and where it looks for shapes that no table has.
//!
//! Invariants:
//! - A definition in the cache was committed; it is immutable, a change makes a new one under a new version.
//! - Ids of indexes, tablespaces and shapes are never given twice.
//! - A tablespace's file exists only while a durable row names it.
//! - A dropped index stays noted among the pending work until its last entry is gone.
//!
//! Entry points: [`Catalog::open`], [`Catalog::table`], [`Catalog::create_table`] and its neighbours,
//! [`Catalog::reclaim_step`]. Design: `docs/catalog.md`.

mod cache;
mod clone;
mod ddl;
mod def;
mod punch;
mod reclaim;
mod references;
mod rows;
mod shapes;
mod spaces;
mod store;
mod unused;

pub use clone::{Cloned, Judge, Verdict};
pub use ddl::{Changed, IndexSource, TableChange, INDEXES_MAX};
pub use def::{
    ForeignKey, IndexDef, IndexSpec, NewDefinition, Placement, ReferenceAction, TableDef, TableRef, TableSpec,
};
pub use reclaim::Reclaiming;
pub use references::ForeignKeyChange;
pub use rows::{CloneNote, FolderFile, SpaceRow, SpaceState};
pub use store::{Catalog, CatalogConfig};

use myriad_base::{IndexId, SpaceId};
use myriad_btree::Tree;
use myriad_txn::Index;

/// Key (after the index id) of the one entry of a table's AUTO_INCREMENT index: 8 bytes, little endian.
pub const AUTO_INCREMENT_KEY: &[u8] = &[];

/// A definition's index as room `txn` wants it.
///
/// `clustered` is the id of the table's clustered index.
pub fn open_index(space: SpaceId, index: &IndexDef, clustered: IndexId) -> Index {
    let tree = Tree { space, root: index.root };
    let hash = index.spec.hash;
    Index { id: index.id, tree, clustered: index.id == clustered, table: clustered, hash, private: false }
}
