//! Room `engine`, crate `myriad`: the storage engine as a library.
//!
//! Holds the order in which an engine opens, recovers and closes ([`Engine`]), sessions and their transactions
//! ([`Session`]), open tables and their counters ([`Table`]), iterators and cursors, [keys](key), in-place index builds, backups and
//! reports. Rows and keys are byte strings; keys sort by `memcmp`. Knows nothing of SQL, and holds no page, lock or log logic of its own.
//!
//! Invariants:
//! - A data directory is used by one engine at a time (lock file).
//! - Nothing loops over all tables or tablespaces at open or close, but the check of [`DuplicateCheck::Blocking`], and
//!   [`CloseMode::Purged`] after definitions were changed.
//! - An AUTO_INCREMENT counter is in the log before the commit that moved it.
//!
//! ```
//! use myriad::key::{decode, encode};
//! use myriad::{CloseMode, Engine, IndexSpec, Result, TableSpec};
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let engine = Engine::open(folder)?;
//! engine.create_table("bank/accounts", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! let accounts = engine.open_table("bank/accounts")?;
//! let mut session = engine.session();
//! session.transaction(|s| -> Result<()> {
//!     s.insert(&accounts, &encode("Ada"), &encode(&7i64))?;
//!     s.insert(&accounts, &encode("Bob"), &encode(&0i64))
//! })?;
//!
//! // A transfer: whoever is in its way, it is made as a whole or not at all.
//! session.transaction(|s| -> Result<()> {
//!     for (name, change) in [("Ada", -5), ("Bob", 5)] {
//!         let balance: i64 = decode(&s.find_for_update(&accounts, &encode(name))?.expect("an account"))?;
//!         s.update(&accounts, &encode(name), &encode(&(balance + change)))?;
//!     }
//!     Ok(())
//! })?;
//!
//! for row in session.range(&accounts, 0, encode("A")..encode("C"))? {
//!     let (name, balance) = row?;
//!     println!("{}: {}", decode::<String>(&name)?, decode::<i64>(&balance)?);
//! }
//! # assert_eq!(session.find(&accounts, &encode("Bob"))?, Some(encode(&5i64)));
//! session.commit()?;
//! engine.close(CloseMode::Clean)
//! # }
//! ```
//!
//! # What a program should know
//!
//! - **Rows.** A table has one clustered index (number 0, unique) and may have others. A key has at most 7/32 of a page and at most
//!   7 KiB, less four bytes: 3,580 bytes at 16 KiB; a value 4 GiB less one byte. What a value's bytes mean is the program's: any
//!   serializer does.
//! - **Short calls.** [`Session::insert`], [`Session::put`], [`Session::update`], [`Session::remove`], [`Session::find`],
//!   [`Session::find_for_update`] and the iterators ([`Session::rows`], [`Session::range`], [`Session::prefix`]) are a statement each, at
//!   REPEATABLE READ unless [`Session::set_options`] says otherwise. One that fails has changed nothing; with [`Error::Deadlock`],
//!   [`Error::RecordChanged`] and [`Error::LockTableFull`] the whole transaction has been rolled back.
//! - **Transactions.** [`Session::transaction`] runs a closure as one, again after a deadlock. Outside of it a short call begins a
//!   transaction where there is none and leaves it open: end it, also after reads, with [`Session::commit`] or [`Session::rollback`].
//! - **Conflicts.** [`Session::find`] reads a snapshot: who changes what he has read uses [`Session::find_for_update`]. Any call may fail
//!   with [`Error::Deadlock`] or, after a wait of 50 seconds or what the options say, [`Error::LockWaitTimeout`].
//! - **Snapshots.** A transaction reads what was committed at its first read. While it is open, what others replace is kept for it, in
//!   `undo.myr`, and 8 bytes of memory for each transaction that changes anything.
//! - **Threads.** [`Engine`] and [`Table`] are shared; a [`Session`] is one thread's at a time, may go from one to another, and has at
//!   most one transaction, which a dropped session rolls back, also amid a panic. A [`Cursor`] is used with its own session and ends
//!   with the transaction. After `fork` the child has the files but none of the engine's threads: it must use none of these and drop
//!   none ([`std::process::Command`] is safe).
//! - **Other indexes** are kept by themselves once the handle knows what they sort by ([`Table::with_index_keys`]). A queue:
//!
//! ```
//! # use myriad::key::{decode_first, encode};
//! # use myriad::{Engine, IndexSpec, Isolation, Lock, Result, Session, Table, TableSpec, TransactionOptions, Wait};
//! const BY_DATE: usize = 1;
//!
//! /// The job that is due first and that nobody else is at; it is gone when the transaction commits.
//! fn take(session: &mut Session, jobs: &Table) -> Result<Option<Vec<u8>>> {
//!     let first = session.rows(jobs, BY_DATE)?.locked(Lock::Exclusive, Wait::SkipLocked).next().transpose()?;
//!     let Some((number, job)) = first else { return Ok(None) };
//!     session.remove(jobs, &number)?;
//!     Ok(Some(job))
//! }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let engine = Engine::open(folder.path())?;
//! engine.create_table("q/jobs", &TableSpec { indexes: &[IndexSpec::UNIQUE, IndexSpec::PLAIN], ..Default::default() })?;
//! // A job is when it is due and what is to be done.
//! let jobs = engine.open_table("q/jobs")?.with_index_keys([|job| Ok(encode(&decode_first::<u64>(job.value)?.0))])?;
//! let (mut session, mut other) = (engine.session(), engine.session());
//! session.insert(&jobs, &encode(&1u32), &encode(&(20u64, "late")))?;
//! session.insert(&jobs, &encode(&2u32), &encode(&(10u64, "early")))?;
//! session.commit()?;
//!
//! // Takes no locks of gaps, so that new jobs need not wait.
//! let options = TransactionOptions { isolation: Isolation::ReadCommitted, ..Default::default() };
//! session.set_options(options);
//! other.set_options(options);
//! assert_eq!(take(&mut session, &jobs)?, Some(encode(&(10u64, "early"))));
//! assert_eq!(take(&mut other, &jobs)?, Some(encode(&(20u64, "late"))));
//! # other.rollback()?;
//! # session.commit()?;
//! # assert_eq!(take(&mut session, &jobs)?, Some(encode(&(20u64, "late"))));
//! # assert_eq!(take(&mut session, &jobs)?, None);
//! # session.commit()?;
//! # jobs.check(&mut |finding| panic!("{finding}"))
//! # }
//! ```
//!
//! - **All that there is.** What the short calls do not offer do [`Session::statement_begin`], the reads ([`Session::get`], [`Cursor`])
//!   and changes ([`Session::apply`], for which the program makes the entries of all indexes) of one statement, and
//!   [`Session::statement_end`], or after an error [`Session::statement_rollback`], after one of the three above [`Session::rollback`].
//! - **Definitions** have no locks of their own: the program sees to it that no call uses a table that is dropped or altered.
//! - **Durability.** A commit is durable when it returns, unless [`EngineConfig::flush_at_commit`] says otherwise;
//!   [`Session::commit_later`] and [`Engine::when_durable`] wait for it without a thread. After a crash, or without [`Engine::close`],
//!   the next open recovers; a folder is open once.
//! - **Errors** name what they are about. A full disk passes: roll the transaction back and go on when there is room.
//!   [`Error::Poisoned`] does not: close, drop what there is of the engine, and open it again, which recovers. What the engine has to
//!   say beside goes to [`EngineConfig::report`], by default nowhere.
//! - **Files** can be the program's own, or a disk in memory that crashes when a test wants it ([`io`]).
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

// A program's own types that hold ours are to be `Debug`, and `unwrap_err` asks it of what there is instead of the error.
#![warn(missing_debug_implementations)]

/// What `{:?}` shows of a type whose insides tell nobody anything: these of its figures.
macro_rules! shown {
    ($type:ty, |$this:ident| $figures:expr) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut shown = f.debug_struct(stringify!($type));
                let figures: &[(&str, &dyn std::fmt::Debug)] = &$figures;
                for (name, figure) in figures {
                    shown.field(name, figure);
                }
                shown.finish_non_exhaustive()
            }
        }
    };
}

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
mod index_keys;
mod inspect;
pub mod io;
pub mod key;
mod open;
mod rates;
mod reclaimer;
mod reports;
mod row_log;
mod rows;
mod session;
mod share;
mod shares;
mod sort;
mod stats;
mod status;
mod table;
mod transaction;

pub use backup::{Backup, BackupProgress, BackupStage, BackupStatus, BackupSummary};
pub use build::IndexBuild;
pub use check::EngineSpaces;
pub use config::{
    CloseMode, CommitOrder, DuplicateCheck, EngineConfig, FlushAtCommit, IoMethod, Level, Placement, Reporter, Setting,
    Unordered, Victim,
};
pub use copy::TableCopy;
pub use cursor::{Cursor, CursorOptions, Excerpt, Seek};
pub use ddl::Alteration;
pub use engine::Engine;
pub use index_keys::IndexKey;
pub use inspect::Inspection;
pub use myriad_base::clock::Clock;
pub use myriad_base::{work, Error, IndexId, Lsn, PageId, PageNo, Result, SpaceId};
pub use myriad_buffer::PartitionStats;
pub use myriad_catalog::{
    CloneNote, Cloned, FolderFile, ForeignKey, ForeignKeyChange, IndexSpec, Judge, NewDefinition, ReferenceAction,
    TableSpec, Verdict,
};
pub use myriad_io::FileStats;
pub use myriad_space::check::KnownSpace;
pub use reports::{CheckFinding, CheckStatus, LatchInfo, LockInfo, SpaceInfo, StartupPhase, TrxInfo};
pub use row_log::{RowChange, RowChanges};
pub use rows::Rows;
pub use session::{ApplyMode, Isolation, KillHandle, Lock, Op, OpKind, Row, Savepoint, Session, Wait};
pub use stats::Sampled;
pub use table::{Detail, Table, TableStats};
pub use transaction::TransactionOptions;
