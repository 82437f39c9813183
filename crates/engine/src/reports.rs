//! What people look at: rows of the reports.

/// A running transaction.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TrxInfo {
    /// Its id, as in [`LockInfo`]; until its first change a number that no other has, beyond all ids.
    pub trx_id: u64,
    /// Wall clock in microseconds.
    pub start_wall_us: u64,
    /// Undo records written.
    pub undo_records: u64,
    /// Locks held.
    pub locks_held: u64,
    /// Wall clock in microseconds; 0 if it does not wait.
    pub wait_start_wall_us: u64,
    /// The session's thread id.
    pub thread_id: u64,
    /// `ACTIVE`, `LOCK WAIT`, `PREPARED`, `ROLLING BACK`, `COMMITTING`.
    pub state: &'static str,
    /// Isolation level.
    pub isolation: &'static str,
    /// Found at start.
    pub recovered: bool,
    /// How many transactions have ended since its snapshot was opened, whose old versions purge keeps for it; `None`: it has none.
    pub snapshot_age: Option<u64>,
}

/// A lock.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LockInfo {
    /// Whose.
    pub trx_id: u64,
    /// `S`, `X`, `S,GAP`, ...
    pub mode: &'static str,
    /// Held or waited for.
    pub granted: bool,
    /// Table name, if the table is open, or was and is one of those closed last.
    pub table: String,
    /// Which of its indexes.
    pub index_no: u32,
    /// Its name, if the table is or was open and [`Table::set_index_names`](crate::Table::set_index_names) was called.
    pub index_name: Option<String>,
    /// Key without the index id.
    pub key: Vec<u8>,
    /// One of those it waits for; 0: none.
    pub waiting_for_trx_id: u64,
}

/// A latch class.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LatchInfo {
    /// Class.
    pub name: &'static str,
    /// Acquisitions.
    pub acquired: u64,
    /// Of these, had to wait.
    pub contended: u64,
    /// Nanoseconds waited in all.
    pub wait_ns: u64,
    /// How many of 100 acquisitions had to wait.
    pub contended_percent: f64,
    /// Number of the partition with most acquisitions.
    pub hottest: u32,
    /// How many of 100 acquisitions were its.
    pub hottest_percent: f64,
}

/// A tablespace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpaceInfo {
    /// Id.
    pub space_id: u32,
    /// File relative to the data directory.
    pub path: String,
    /// Database, or empty.
    pub database: String,
    /// Open now.
    pub open: bool,
}

/// Something that the tablespace check found wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckFinding {
    /// The tablespace that it is about, if any.
    pub space_id: Option<u32>,
    /// File relative to the data directory.
    pub path: String,
    /// `DUPLICATE`, `MISSING`, `MOVED`, `FOREIGN`, `UNKNOWN`, `TRUNCATED`, `DAMAGED`, `UNREADABLE`, `LINK`.
    pub problem: &'static str,
    /// Another file that has to do with it.
    pub other_path: Option<String>,
    /// What was found and what was expected.
    pub detail: String,
    /// Wall clock in microseconds.
    pub found_wall_us: u64,
}

/// How far the tablespace check is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckStatus {
    /// `OFF`, `ONLINE` or `BLOCKING`.
    pub mode: &'static str,
    /// `OFF`, `WAITING`, `RUNNING`, `DONE`, `STOPPED`, `FAILED`.
    pub state: &'static str,
    /// Time it took, or has taken so far.
    pub microseconds: u64,
    /// Files looked at.
    pub files: u64,
    /// Files that the catalog knows; 0 until it has been read.
    pub expected: u64,
    /// Bytes read of them.
    pub bytes: u64,
    /// Findings.
    pub findings: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// A phase of the start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartupPhase {
    /// Name.
    pub phase: &'static str,
    /// Duration.
    pub microseconds: u64,
    /// Bytes read.
    pub bytes_read: u64,
}
