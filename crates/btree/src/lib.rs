//! Room `btree`: B+trees on pages: search, insert, split, merge, cursors, overflow pages, extents.
//!
//! Holds the slotted page and its redo functions, trees of them, the allocation bitmaps of a tablespace, chains of
//! overflow pages, bulk loading, range estimates and the structural check. Knows nothing of transactions, versions or
//! what a value means, starts no threads, and keeps nothing in memory between calls.
//!
//! Invariants:
//! - Keys are byte strings in `memcmp` order, the index id first; every key of a page lies in `[low fence, high fence)`.
//! - A page changes only in a mini-transaction, by an operation of [`redo`].
//! - Latches go root to leaf, left to right, the allocation bitmap last; a split or merge is a mini-transaction of its
//!   own and reserves disk space before it changes anything, so that a full disk is a clean error.
//! - The page number of a tree's root never changes. There are no sibling links: the next leaf is the one that covers
//!   the high fence.
//!
//! Entry points: [`Tree`], [`Leaf`], [`LeafMut`], [`BulkBuilder`], [`overflow`], [`alloc`]. Design: `docs/btree.md`.

pub mod alloc;
mod bulk;
mod check;
mod estimate;
mod leaf;
mod merge;
pub mod overflow;
pub mod page;
mod promote;
mod read_ahead;
pub mod redo;
mod remove;
mod share;
mod split;
mod tree;

pub use bulk::{BulkAppender, BulkBuilder, MakeRoom, SortedEntries};
pub use check::CheckReport;
pub use estimate::{Looks, RangeEstimate, SeenLeaves, TreeStats};
pub use leaf::{Leaf, LeafExclusive, LeafMut, LeafShared, LeafView};
pub use merge::Settled;
pub use page::KeyParts;
pub use read_ahead::{Scan, READ_AHEAD_STEP};
pub use redo::register;
pub use tree::{RemoveProgress, Tree};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod estimate_tests;
#[cfg(test)]
mod promote_tests;
#[cfg(test)]
mod read_ahead_tests;
#[cfg(test)]
mod tests;
