//! Record, gap, next-key and insert-intention locks with deadlock detection. Page: `docs/locks.md`.
//!
//! A lock is on the *key* of an index entry (the index id is part of it), not on a page: splits and merges move no locks.
//! Whoever inserts or removes an entry calls [`LockTable::inherit_on_insert`] or [`LockTable::inherit_on_remove`].
//!
//! The rules for callers:
//! 1. Call [`LockTable::request`] and its siblings while holding the latch of the leaf that covers the key; never
//!    [`LockTable::wait`].
//! 2. After [`WaitOutcome::Granted`], seek again and *request again*: the entry may be gone, and insert intentions are not
//!    kept. Where the lock was granted, the repetition finds it.
//! 3. A writer makes its commit visible in the commit table before [`LockTable::release_all`].

mod deadlock;
mod groups;
mod key;
mod mode;
mod order;
mod park;
mod queue;
mod scans;
mod spans;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod trx;
mod wait;

pub use key::{hash_key, seed_hashes, LockKey, KEY_BYTES_SHOWN};
pub use mode::{Extent, LockMode, Strength};
pub use order::{CommitOrder, Unordered, Victim};
pub use table::LockTable;
pub use trx::TrxLocks;

use myriad_base::IndexId;

/// What to do where a lock is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Queue up.
    Wait,
    /// Give [`LockOutcome::WouldBlock`] (NOWAIT, SKIP LOCKED).
    NoWait,
}

/// Outcome of a request.
#[must_use]
#[derive(Debug)]
pub enum LockOutcome {
    /// The transaction has the lock. `new` is false if it (or a stronger one) was held before, or nothing needed storing:
    /// only a new lock may be given back with [`LockTable::release_one`].
    Granted {
        /// Whether a lock was added.
        new: bool,
    },
    /// The request is queued. Release the latches, then pass the token to [`LockTable::wait`] (or
    /// [`LockTable::cancel`]).
    Waiting(WaitToken),
    /// Not granted and not queued.
    WouldBlock,
}

/// A queued request, to be waited for or cancelled.
#[must_use]
#[derive(Debug)]
pub struct WaitToken {
    hash: u64,
    word: u64,
}

/// How a wait ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The way is free: seek and request again.
    Granted,
    /// The time is over; the request is withdrawn.
    Timeout,
    /// The transaction was chosen as a deadlock's victim: roll it back whole. The request is withdrawn.
    Deadlock,
    /// Killed; the request is withdrawn.
    Interrupted,
}

/// Outcome of [`LockTable::convert_implicit`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImplicitHolder {
    /// The writer is active and now has an explicit lock: a conflicting request will queue up behind it.
    Active,
    /// The writer has released its locks: look at the entry and the commit table again.
    Finished,
}

/// Which of a transaction's locks on a removed entry go on as gap locks on its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Inheritance {
    /// All: REPEATABLE READ and SERIALIZABLE.
    All = 0,
    /// Shared ones, which come from duplicate checks: READ COMMITTED and READ UNCOMMITTED.
    SharedOnly = 1,
    /// Exclusive ones: the same levels while REPLACE or ON DUPLICATE KEY UPDATE runs, whose duplicate checks lock so.
    ExclusiveOnly = 2,
}

/// What [`LockTable::list`] gives.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Requests that wait alone.
    pub waits_only: bool,
    /// Of those that a request waits for, the first so many: where very many wait for one row, all of them are very many.
    pub blockers_max: usize,
    /// At about this number it ends: one for each lock or request, or for each that a request waits for.
    pub rows_max: usize,
}

impl Listing {
    /// Everything.
    pub const ALL: Listing = Listing { waits_only: false, blockers_max: usize::MAX, rows_max: usize::MAX };
}

/// A lock or request, for INFORMATION_SCHEMA.
#[derive(Clone, Debug)]
pub struct LockInfo {
    /// The transaction; for one without an id, a large number that stays the same while it lives.
    pub trx_id: u64,
    /// Its connection; 0 if it has none.
    pub thread_id: u64,
    /// Its mode.
    pub mode: LockMode,
    /// Whether it is granted; else its transaction waits.
    pub granted: bool,
    /// The index.
    pub index: IndexId,
    /// The key's first [`KEY_BYTES_SHOWN`] bytes, index id included; empty for the supremum.
    pub key: Vec<u8>,
    /// Whether it is on the supremum.
    pub supremum: bool,
    /// The transactions it waits for.
    pub blockers: Vec<u64>,
}

/// A deadlock that was found.
#[derive(Clone, Debug)]
pub struct DeadlockInfo {
    /// When, in microseconds of wall-clock time since 1970.
    pub wall_us: u64,
    /// The transaction that was made to give way.
    pub victim: u64,
    /// What each of them waited for; its blocker is the next one of the circle.
    pub waits: Vec<LockInfo>,
}

/// Told of each deadlock that is found, with no lock of a queue held; others who look for deadlocks wait for it.
pub type DeadlockListener = Box<dyn Fn(&DeadlockInfo) + Send + Sync>;

/// Totals since the table was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockStats {
    /// Waits begun.
    pub waits: u64,
    /// Time spent in waits that have ended, in microseconds.
    pub wait_us: u64,
    /// Longest wait in microseconds.
    pub wait_us_max: u64,
    /// Transactions waiting now.
    pub waiting_now: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Waits that ended by timeout.
    pub timeouts: u64,
    /// What the locks take of memory, as it is counted, and what they may take.
    pub memory_bytes: u64,
    /// See `memory_bytes`.
    pub memory_bytes_max: u64,
}
