//! What this room needs to know of an index.

use myriad_base::IndexId;
pub use myriad_btree::Tree;

/// An index. Keys given to and got from this room are *without* the index id; the room puts it in front.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// Its id, the first four bytes (big endian) of its keys in the tree.
    pub id: IndexId,
    /// The tree that holds it, maybe among others.
    pub tree: Tree,
    /// Whether each whole key is one row of the table (the clustered index): exact reads lock no gap.
    pub clustered: bool,
    /// The table it belongs to, by its clustered index. A secondary index's keys end with the clustered key.
    pub table: IndexId,
}
