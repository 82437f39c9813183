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
pub use myriad_base::{work, Error, Result};
pub use myriad_buffer::PartitionStats;
pub use myriad_catalog::{
    CloneNote, Cloned, FolderFile, ForeignKey, ForeignKeyChange, IndexSpec, Judge, NewDefinition, ReferenceAction,
    TableSpec, Verdict,
};
pub use myriad_io::FileStats;
pub use reports::{CheckFinding, CheckStatus, LatchInfo, LockInfo, SpaceInfo, StartupPhase, TrxInfo};
pub use row_log::{RowChange, RowChanges};
pub use session::{ApplyMode, Isolation, KillHandle, Lock, Op, OpKind, Row, Savepoint, Session, Wait};
pub use stats::Sampled;
pub use table::{Detail, Table, TableStats};
