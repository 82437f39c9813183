//! Room `engine`, crate `myriad`: the storage engine as a library.
//!
//! Holds the order in which an engine opens, recovers and closes ([`Engine`]), sessions and their transactions
//! ([`Session`]), open tables and their counters ([`Table`]), cursors, in-place index builds, backups and reports. Rows and keys are
//! byte strings; keys sort by `memcmp`. Knows nothing of SQL, and holds no page, lock or log logic of its own.
//!
//! Invariants:
//! - A data directory is used by one engine at a time (lock file).
//! - Nothing loops over all tables or tablespaces at open or close, but the check of [`DuplicateCheck::Blocking`], and
//!   [`CloseMode::Purged`] after definitions were changed.
//! - An AUTO_INCREMENT counter is in the log before the commit that moved it.
//!
//! ```no_run
//! use myriad::{Engine, IndexSpec, TableSpec};
//!
//! # fn main() -> myriad::Result<()> {
//! let engine = Engine::open("/tmp/shop")?;
//! engine.create_table("shop/items", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! let items = engine.open_table("shop/items")?;
//! let mut session = engine.session();
//! session.insert(&items, b"apple", b"red")?;
//! session.commit()?;
//! assert_eq!(session.find(&items, b"apple")?.as_deref(), Some(&b"red"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # What a program should know
//!
//! - **Rows.** A table has one clustered index (number 0, unique) and may have others. The program makes the keys: of a secondary
//!   index what it sorts by, then the clustered key, so that no two are the same; and it changes all entries of a row with one
//!   [`Session::apply`]. [`Cursor`] reads any index both ways. A key has at most 7/32 of a page, less four bytes: 3,580 bytes at
//!   16 KiB; a value 4 GiB less one byte.
//! - **Threads.** [`Engine`] and [`Table`] are shared; a [`Session`] is one thread's at a time and has at most one transaction, which a
//!   dropped session rolls back. A [`Cursor`] is used with its own session and ends with the transaction.
//! - **Conflicts.** [`Session::find`] reads a snapshot: who changes what he has read uses [`Session::find_for_update`]. Any call may fail
//!   with [`Error::Deadlock`] or [`Error::LockWaitTimeout`]. After a deadlock the transaction has to begin again:
//!
//! ```no_run
//! # use myriad::{Error, Result, Session, Table};
//! # fn number(value: Option<Vec<u8>>) -> i64 { value.map_or(0, |v| i64::from_le_bytes(v.try_into().expect("8 bytes"))) }
//! fn transfer_once(session: &mut Session, accounts: &Table, from: &[u8], to: &[u8], amount: i64) -> Result<()> {
//!     for (account, change) in [(from, -amount), (to, amount)] {
//!         let balance = number(session.find_for_update(accounts, account)?);
//!         session.update(accounts, account, &(balance + change).to_le_bytes())?;
//!     }
//!     session.commit()
//! }
//!
//! fn transfer(session: &mut Session, accounts: &Table, from: &[u8], to: &[u8], amount: i64) -> Result<()> {
//!     loop {
//!         match transfer_once(session, accounts, from, to, amount) {
//!             Ok(()) => return Ok(()),
//!             Err(Error::Deadlock) => {}
//!             Err(e) => {
//!                 session.rollback()?;
//!                 return Err(e);
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! - **Other levels and locks** than these calls' REPEATABLE READ: [`Session::statement_begin`], the reads and changes of one
//!   statement, and [`Session::statement_end`], or after an error [`Session::statement_rollback`]. [`Wait::SkipLocked`] is for queues.
//! - **Definitions** have no locks of their own: the program sees to it that no call uses a table that is dropped or altered.
//! - **Durability.** A commit is durable when it returns, unless [`EngineConfig::flush_at_commit`] says otherwise. After a crash, or
//!   without [`Engine::close`], the next open recovers; a folder is open once.
//! - [`Engine::backup`] copies a directory while it is used; the copy is opened as any other.

mod backup;
mod build;
mod changed;
mod check;
mod config;
mod copy;
mod cursor;
mod ddl;
mod embedded;
mod engine;
mod format;
mod inspect;
mod open;
mod rates;
mod reclaimer;
mod reports;
mod row_log;
mod session;
mod share;
mod shares;
mod sort;
mod stats;
mod status;
mod table;

pub use backup::{Backup, BackupProgress, BackupSummary};
pub use build::IndexBuild;
pub use check::EngineSpaces;
pub use config::{
    CloseMode, CommitOrder, DuplicateCheck, EngineConfig, FlushAtCommit, IoMethod, Level, Placement, Reporter, Setting,
    Unordered, Victim,
};
pub use copy::TableCopy;
pub use cursor::{Cursor, CursorOptions, Seek};
pub use ddl::Alteration;
pub use engine::Engine;
pub use inspect::Inspection;
pub use myriad_base::clock::Clock;
pub use myriad_base::{work, Error, IndexId, Lsn, PageId, Result};
pub use myriad_buffer::PartitionStats;
pub use myriad_catalog::{
    CloneNote, Cloned, FolderFile, ForeignKey, ForeignKeyChange, IndexSpec, Judge, NewDefinition, ReferenceAction,
    TableSpec, Verdict,
};
pub use myriad_io::{FileStats, Io};
pub use reports::{CheckFinding, CheckStatus, LatchInfo, LockInfo, SpaceInfo, StartupPhase, TrxInfo};
pub use row_log::{RowChange, RowChanges};
pub use session::{ApplyMode, Isolation, KillHandle, Lock, Op, OpKind, Row, Savepoint, Session, Wait};
pub use stats::Sampled;
pub use table::{Detail, Table, TableStats};
