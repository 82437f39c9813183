//! Room `txn`: transactions, read views, undo, purge, record and gap locks, deadlock detection, savepoints, XA.
//!
//! Holds everything that makes index entries versioned: the entry header ([`value`]), undo pages, the commit table,
//! snapshots, row operations, consistent and locking reads, rollback, purge and the recovery of unfinished
//! transactions. Knows nothing of tables, columns or SQL: it sees indexes and byte strings.
//!
//! Invariants (the page: `docs/txn.md`):
//! - The newest version of an entry is in its leaf; older ones are reached through undo records while a snapshot may
//!   need them.
//! - An entry whose writer is active is X-locked by that writer (implicit lock).
//! - An undo record and the entry change that it undoes are one mini-transaction.
//! - No latch is held while waiting for a lock.
//! - Latch order: index leaves left to right, then undo pages.
//!
//! Entry points: [`TrxSystem::open`], [`TrxSystem::begin`], [`Trx::apply`], [`Trx::get`], [`Cursor`], [`Trx::commit`].

pub mod lock;
mod losers;

mod buffered;
mod check;
mod commit_table;
mod count;
mod cursor;
mod gap;
mod get;
mod hash;
mod index;
mod overtaken;
mod place;
mod prepared;
mod promote;
mod purge;
mod read;
mod rollback;
mod snapshot;
mod sync;
mod system;
mod trx;
mod undo;
mod undo_batch;
mod unsettled;
mod unversioned;
pub mod value;
mod write;

pub use check::ValueCheck;
pub use count::RowCount;
pub use cursor::{Cursor, CursorOptions, Excerpt, Seek};
pub use index::{Index, Tree};
pub use lock::{
    CommitOrder, DeadlockInfo, DeadlockListener, Listing, LockInfo, LockStats, Strength, Unordered, Victim,
};
pub use place::Place;
pub use system::{
    create_undo, redo_table_register, undo_pages_wanted, FlushPolicy, IndexAlive, IndexDropped, PurgeStats, TrxConfig,
    TrxSystem,
};
pub use trx::{
    ApplyError, Durability, Isolation, LockWait, Op, OpKind, RowBuf, Savepoint, Trx, TrxHandle, TrxInfo, TrxState,
};
pub use undo::space::{note_run, noted_run, FIRST_PAGE as UNDO_FIRST_PAGE};

#[cfg(test)]
mod tests;
