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
//! ```
//! use myriad::{CloseMode, Engine, IndexSpec, TableSpec};
//!
//! # fn main() -> myriad::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let engine = Engine::open(folder)?;
//! engine.create_table("shop/items", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! let items = engine.open_table("shop/items")?;
//! let mut session = engine.session();
//! session.insert(&items, b"apple", b"red")?;
//! session.commit()?;
//! assert_eq!(session.find(&items, b"apple")?.as_deref(), Some(&b"red"[..]));
//! session.commit()?;
//! engine.close(CloseMode::Clean)
//! # }
//! ```
//!
//! # What a program should know
//!
//! - **Rows.** A table has one clustered index (number 0, unique) and may have others. The program makes the keys: of a secondary
//!   index what it sorts by, then the clustered key, so that no two are the same; and it changes all entries of a row with one
//!   [`Session::apply`]. [`Cursor`] reads any index both ways. A key has at most 7/32 of a page and at most 7 KiB, less four bytes:
//!   3,580 bytes at 16 KiB; a value 4 GiB less one byte.
//! - **Short calls.** [`Session::insert`], [`Session::update`], [`Session::remove`], [`Session::find`], [`Session::find_for_update`]
//!   and [`Session::scan`] are a statement each, at REPEATABLE READ, on the clustered index alone. Each begins a transaction where
//!   there is none and leaves it open: end it, also after reads, with [`Session::commit`] or [`Session::rollback`]. One that fails
//!   has changed nothing; with [`Error::Deadlock`] and [`Error::LockTableFull`] the whole transaction has been rolled back.
//! - **Snapshots.** A transaction reads what was committed at its first read. While it is open, what others replace is kept for it, in
//!   `undo.myr`, and 8 bytes of memory for each transaction that changes anything.
//! - **Threads.** [`Engine`] and [`Table`] are shared; a [`Session`] is one thread's at a time, may go from one to another, and has at
//!   most one transaction, which a dropped session rolls back, also amid a panic. A [`Cursor`] is used with its own session and ends
//!   with the transaction. After `fork` the child has the files but none of the engine's threads: it must use none of these and drop
//!   none ([`std::process::Command`] is safe).
//! - **Conflicts.** [`Session::find`] reads a snapshot: who changes what he has read uses [`Session::find_for_update`]. Any call may fail
//!   with [`Error::Deadlock`] or [`Error::LockWaitTimeout`]. After a deadlock the transaction has to begin again:
//!
//! ```
//! # use myriad::{Engine, Error, IndexSpec, Result, Session, Table, TableSpec};
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
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let engine = Engine::open(folder.path())?;
//! # engine.create_table("bank/accounts", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! # let accounts = engine.open_table("bank/accounts")?;
//! # let mut session = engine.session();
//! # for name in [b"a", b"b"] { session.insert(&accounts, name, &7i64.to_le_bytes())?; }
//! # transfer(&mut session, &accounts, b"a", b"b", 5)?;
//! # assert_eq!((number(session.find(&accounts, b"a")?), number(session.find(&accounts, b"b")?)), (2, 12));
//! # Ok(())
//! # }
//! ```
//!
//! - **Other levels and locks**: [`Session::statement_begin`], the reads and changes of one statement, and
//!   [`Session::statement_end`], or after an error [`Session::statement_rollback`]. Two indexes, and a queue ([`Wait::SkipLocked`]):
//!
//! ```
//! # use myriad::{ApplyMode, Cursor, CursorOptions, Engine, IndexSpec, Isolation, Lock, Op, OpKind, Result, Seek, Session, Table,
//! #     TableSpec, Wait};
//! # use std::time::Duration;
//! const BY_DATE: usize = 1;
//!
//! /// A job's entries: by its number, and by when it is due.
//! fn ops<'a>(kind: OpKind, job: &'a [u8], due_and_job: &'a [u8], text: &'a [u8]) -> [Op<'a>; 2] {
//!     let entry = Op { kind, index_no: 0, key: job, unique_len: job.len(), value: text, head_len: 0 };
//!     [entry, Op { index_no: BY_DATE, key: due_and_job, unique_len: 0, value: b"", ..entry }]
//! }
//!
//! /// The job that is due first and that nobody else is at; it is gone when the transaction commits.
//! fn take(session: &mut Session, jobs: &Table) -> Result<Option<Vec<u8>>> {
//!     session.statement_begin(Isolation::ReadCommitted, false, Duration::from_secs(5));
//!     let taken = take_first(session, jobs);
//!     match &taken {
//!         Ok(_) => session.statement_end(),
//!         Err(_) => session.rollback()?,
//!     }
//!     taken
//! }
//!
//! fn take_first(session: &mut Session, jobs: &Table) -> Result<Option<Vec<u8>>> {
//!     let options = CursorOptions { lock: Lock::Exclusive, wait: Wait::SkipLocked, ..Default::default() };
//!     let mut cursor = Cursor::open(session, jobs, BY_DATE, options)?;
//!     let mut row = cursor.seek(session, Seek::First, b"")?;
//!     while let Some(found) = row {
//!         let due_and_job = found.key.to_vec();
//!         let job = &due_and_job[8..];
//!         let locked = session.get(jobs, 0, job, false, Lock::Exclusive, Wait::SkipLocked)?;
//!         if let Some(text) = locked.map(|row| row.value.to_vec()) {
//!             session.apply(jobs, ops(OpKind::Delete, job, &due_and_job, b"").into_iter(), ApplyMode::default())?;
//!             return Ok(Some(text));
//!         }
//!         row = cursor.next(session)?;
//!     }
//!     Ok(None)
//! }
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let engine = Engine::open(folder.path())?;
//! # engine.create_table("q/jobs", &TableSpec { indexes: &[IndexSpec::UNIQUE, IndexSpec::PLAIN], ..Default::default() })?;
//! # let jobs = engine.open_table("q/jobs")?;
//! # let (mut session, mut other) = (engine.session(), engine.session());
//! # for (job, due, text) in [(b"1", 20u64, b"late "), (b"2", 10, b"early")] {
//! #     session.statement_begin(Isolation::ReadCommitted, false, Duration::ZERO);
//! #     let due_and_job = [&due.to_be_bytes()[..], job].concat();
//! #     session.apply(&jobs, ops(OpKind::Insert, job, &due_and_job, text).into_iter(), ApplyMode::default())?;
//! #     session.statement_end();
//! # }
//! # session.commit()?;
//! # assert_eq!(take(&mut session, &jobs)?.as_deref(), Some(&b"early"[..]));
//! # assert_eq!(take(&mut other, &jobs)?.as_deref(), Some(&b"late "[..]));
//! # other.rollback()?;
//! # session.commit()?;
//! # assert_eq!(take(&mut session, &jobs)?.as_deref(), Some(&b"late "[..]));
//! # assert_eq!(take(&mut session, &jobs)?, None);
//! # session.commit()?;
//! # jobs.check(&mut |finding| panic!("{finding}"))
//! # }
//! ```
//!
//! - **Definitions** have no locks of their own: the program sees to it that no call uses a table that is dropped or altered.
//! - **Durability.** A commit is durable when it returns, unless [`EngineConfig::flush_at_commit`] says otherwise;
//!   [`Session::commit_later`] and [`Engine::when_durable`] wait for it without a thread. After a crash, or without [`Engine::close`],
//!   the next open recovers; a folder is open once.
//! - **Errors** name what they are about. A full disk passes: roll the transaction back and go on when there is room.
//!   [`Error::Poisoned`] does not: close, drop what there is of the engine, and open it again, which recovers. What the engine has to
//!   say beside goes to [`EngineConfig::report`], by default nowhere.
//! - [`Engine::backup`] copies a directory while it is used; the copy is opened as any other:
//!
//! ```
//! # use myriad::{Engine, IndexSpec, TableSpec};
//! # fn main() -> myriad::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
//! # let engine = Engine::open(data)?;
//! # engine.create_table("d/t", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! let mut backup = engine.backup(&copy)?;
//! backup.copy_all(&mut |progress| {
//!     println!("{} of {} files", progress.files, progress.files_total);
//!     true // go on
//! })?;
//! backup.finish(&mut |_| true)?;
//! let restored = Engine::open(&copy)?;
//! # assert!(restored.table_exists("d/t")?);
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

pub use backup::{Backup, BackupProgress, BackupStage, BackupStatus, BackupSummary};
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
pub use myriad_base::{work, Error, IndexId, Lsn, PageId, PageNo, Result, SpaceId};
pub use myriad_buffer::PartitionStats;
pub use myriad_catalog::{
    CloneNote, Cloned, FolderFile, ForeignKey, ForeignKeyChange, IndexSpec, Judge, NewDefinition, ReferenceAction,
    TableSpec, Verdict,
};
pub use myriad_io::{FileStats, Io};
pub use myriad_space::check::KnownSpace;
pub use reports::{CheckFinding, CheckStatus, LatchInfo, LockInfo, SpaceInfo, StartupPhase, TrxInfo};
pub use row_log::{RowChange, RowChanges};
pub use session::{ApplyMode, Isolation, KillHandle, Lock, Op, OpKind, Row, Savepoint, Session, Wait};
pub use stats::Sampled;
pub use table::{Detail, Table, TableStats};
