//! The engine's one error type. An error names the thing: table, tablespace, page, file, system call.

use crate::ids::{IndexId, Lsn, PageId};
use std::fmt;

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Expected outcomes of a statement (duplicate key, lock wait, deadlock) are listed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A unique index already holds the key.
    DuplicateKey {
        /// The index that refused it.
        index: IndexId,
    },
    /// A lock was not granted in time; the statement is rolled back, the transaction stays.
    LockWaitTimeout,
    /// The transaction was chosen as a deadlock's victim and must be rolled back whole.
    Deadlock,
    /// A row to be locked or changed is not as the transaction's snapshot shows it; the transaction must be rolled back whole.
    RecordChanged,
    /// The session was killed or its statement interrupted while it waited.
    Interrupted,
    /// No such table.
    NoSuchTable {
        /// Catalog name.
        name: String,
    },
    /// The name is taken.
    TableExists {
        /// Catalog name.
        name: String,
    },
    /// The definition changed since it was opened.
    DefinitionChanged {
        /// Catalog name.
        name: String,
    },
    /// A key, row or name beyond the engine's limit.
    TooLong {
        /// What was too long.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A system call failed.
    Io {
        /// The call: "read", "write", "sync", "open", ...
        op: &'static str,
        /// The file.
        path: String,
        /// Its `errno`.
        errno: i32,
    },
    /// No space left on the device.
    DiskFull {
        /// The file that could not grow.
        path: String,
    },
    /// A page failed verification.
    CorruptPage {
        /// Which page.
        page: PageId,
        /// What was found.
        reason: String,
    },
    /// The log is damaged before the point where it must be whole.
    CorruptLog {
        /// Where.
        lsn: Lsn,
        /// What was found.
        reason: String,
    },
    /// A file's header or contents are not what they should be.
    CorruptFile {
        /// The file.
        path: String,
        /// What was found.
        reason: String,
    },
    /// A tablespace's file is missing or may not be used.
    TablespaceUnavailable {
        /// The file or the id.
        name: String,
        /// Why.
        reason: String,
    },
    /// The data directory has another format version or page size.
    Format {
        /// The file that says so.
        path: String,
        /// What it says and what was expected.
        reason: String,
    },
    /// Log and data files are not of the same moment: with this log the files cannot be recovered.
    LogMismatch {
        /// The log.
        path: String,
        /// What says so.
        reason: String,
    },
    /// The engine ended while it ran without its log: the data directory cannot be recovered.
    Unlogged {
        /// The log.
        path: String,
    },
    /// Another process holds the data directory.
    DirectoryLocked {
        /// The lock file.
        path: String,
    },
    /// The buffer pool has no frame to give: all are latched or dirty and writing failed.
    BufferPoolExhausted,
    /// In-memory tables hold all the memory that they may.
    MemoryFull {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// Row locks hold all the memory that they may; the transaction, which has many of them, must be rolled back whole.
    LockTableFull {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The engine refuses further work after a failure it cannot survive (log write, caught panic).
    Poisoned {
        /// The first cause.
        reason: String,
    },
    /// A request the engine does not serve.
    NotSupported {
        /// What.
        what: String,
    },
    /// A caller's mistake or an unusable setting.
    Invalid {
        /// What.
        what: String,
    },
    /// The engine is shutting down.
    ShuttingDown,
}

impl Error {
    /// An [`Error::Io`] (or [`Error::DiskFull`]) from the operating system's error number.
    pub fn io(op: &'static str, path: impl Into<String>, errno: i32) -> Error {
        const EFBIG: i32 = 27;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        match errno {
            // The first is a file of the file system's greatest size: for who makes it grow the same.
            EFBIG | ENOSPC | EDQUOT => Error::DiskFull { path: path.into() },
            _ => Error::Io { op, path: path.into(), errno },
        }
    }

    /// The system gave no memory for this.
    pub fn no_memory(what: &str) -> Error {
        const ENOMEM: i32 = 12;
        Error::io("allocation", format!("memory for {what}"), ENOMEM)
    }

    /// The system gave no thread of this name.
    pub fn no_thread(name: &str, error: &std::io::Error) -> Error {
        Error::io("start", format!("thread {name}"), error.raw_os_error().unwrap_or(0))
    }

    /// A corrupt page.
    pub fn corrupt(page: PageId, reason: impl Into<String>) -> Error {
        Error::CorruptPage { page, reason: reason.into() }
    }

    /// A caller's mistake.
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::DuplicateKey { index } => write!(f, "duplicate key in index {index}"),
            Error::LockWaitTimeout => write!(f, "lock wait timeout exceeded"),
            Error::Deadlock => write!(f, "deadlock found; transaction rolled back"),
            Error::RecordChanged => write!(f, "a row has changed since the transaction's snapshot; transaction rolled back"),
            Error::Interrupted => write!(f, "interrupted"),
            Error::NoSuchTable { name } => write!(f, "table {name} does not exist"),
            Error::TableExists { name } => write!(f, "table {name} already exists"),
            Error::DefinitionChanged { name } => write!(f, "definition of table {name} has changed"),
            Error::TooLong { what, len, max } => write!(f, "{what} of {len} bytes exceeds the limit of {max}"),
            Error::Io { op, path, errno } => {
                write!(f, "{op} of {path} failed: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Error::DiskFull { path } => write!(f, "no space left on device for {path}"),
            Error::CorruptPage { page, reason } => write!(f, "{page} is corrupt: {reason}"),
            Error::CorruptLog { lsn, reason } => write!(f, "log is corrupt at LSN {lsn}: {reason}"),
            Error::CorruptFile { path, reason } => write!(f, "file {path} is corrupt: {reason}"),
            Error::TablespaceUnavailable { name, reason } => write!(f, "tablespace {name} is unavailable: {reason}"),
            Error::Format { path, reason } => write!(f, "{path} has an unusable format: {reason}"),
            Error::LogMismatch { path, reason } => write!(
                f,
                "{path} and the data files do not belong together: {reason}. Put back the log and the files of one moment, or \
                 restore a backup. With myriad_force_recovery=1 the server tries all the same, but what it shows then may be \
                 wrong: dump all tables and load them into a new data directory"
            ),
            Error::Unlogged { path } => write!(
                f,
                "the server ended while myriad_redo_log was OFF, without a shutdown: the last changes are not in {path} \
                 and files may be damaged. The data directory cannot be used; restore it from a backup"
            ),
            Error::DirectoryLocked { path } => {
                write!(f, "data directory is in use by another process (lock on {path})")
            }
            Error::BufferPoolExhausted => write!(f, "buffer pool has no free frame"),
            Error::MemoryFull { limit_bytes } => {
                write!(f, "in-memory tables are limited to {limit_bytes} bytes (myriad_memory_tables_size)")
            }
            Error::LockTableFull { limit_bytes } => {
                write!(f, "row locks are limited to {limit_bytes} bytes (myriad_row_locks_size)")
            }
            Error::Poisoned { reason } => write!(f, "engine is stopped after a failure: {reason}"),
            Error::NotSupported { what } => write!(f, "not supported: {what}"),
            Error::Invalid { what } => write!(f, "invalid: {what}"),
            Error::ShuttingDown => write!(f, "engine is shutting down"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_keeps_a_file_from_growing_is_a_full_disk() {
        for errno in [27, 28, 122] {
            assert_eq!(Error::io("fallocate", "a", errno), Error::DiskFull { path: "a".into() });
        }
        assert!(matches!(Error::io("fallocate", "a", 5), Error::Io { errno: 5, .. }));
    }
}
