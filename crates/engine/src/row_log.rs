//! Which rows transactions change while indexes are built from a snapshot, and what has become of them.
//!
//! Writers note the keys alone, after the change and before the commit. What a row was and what it is comes from two snapshots:
//! the one that the indexes show so far, and a newer one. So rollbacks need no note, and it does not matter how often a row
//! was changed.

use crate::session::{Isolation, Lock, Row, Session, Wait};
use crate::share::TableShare;
use crate::sort::{temporary_stem, Sorter};
use crate::table::Table;
use myriad_base::{Error, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of keys that wait in memory: who notes the one too many sorts them and writes them to a file, and the others
/// wait for it.
const MEMORY_BYTES_MAX: u64 = 8 << 20;

/// Clustered keys of rows that were changed, each once or more.
pub(crate) struct RowLog {
    keys: Mutex<Keys>,
}

struct Keys {
    sorter: Sorter,
    noted: Result<()>,
}

impl RowLog {
    /// Notes rows. If that fails, whoever builds indexes is told, not the writer.
    pub(crate) fn note<'k>(&self, rows: impl Iterator<Item = &'k [u8]>) {
        let Keys { sorter, noted } = &mut *self.keys.lock();
        for key in rows {
            if noted.is_ok() {
                *noted = sorter.add(key, 0, &[]);
            }
        }
    }

    /// What was noted since the last time.
    fn take(&self) -> Result<Sorter> {
        let mut keys = self.keys.lock();
        let taken = keys.sorter.take();
        std::mem::replace(&mut keys.noted, Ok(())).map(|()| taken)
    }
}

/// A row that may have changed; whole rows, with their clustered keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange<'a> {
    /// As it was, if it was there.
    pub old: Option<Row<'a>>,
    /// As it is, if it is there.
    pub new: Option<Row<'a>>,
}

/// Follows what transactions do to a table's rows from [`RowChanges::begin`] until it is dropped, for
/// [`IndexBuild`](crate::IndexBuild): read the rows with one snapshot, then let [`RowChanges::visit`] tell what has changed since, as
/// often as is worth while, and once more when nobody changes the table until the index is adopted.
#[must_use = "it follows the table until it is dropped"]
pub struct RowChanges {
    table: Table,
    log: Arc<RowLog>,
}

shown!(RowChanges, |c| [("table", &c.table.name())]);

impl RowChanges {
    /// Begins, and gives `before` a snapshot. Keys of changed rows are kept in `memory_bytes`, at most 8 MiB, and in files in
    /// `tmp_dir` beyond. Nobody may have changes of the table that are not committed, nor make any until this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] if somebody follows the table already; those of [`Session::rollback`].
    pub fn begin(before: &mut Session, table: &Table, tmp_dir: &Path, memory_bytes: u64) -> Result<RowChanges> {
        let stem = temporary_stem(tmp_dir, table.share.def.id.0);
        let sorter = Sorter::new(table.engine.io(), stem, memory_bytes.min(MEMORY_BYTES_MAX));
        let log = Arc::new(RowLog { keys: Mutex::new(Keys { sorter, noted: Ok(()) }) });
        table.share.set_row_log(Some(Arc::clone(&log)))?;
        let changes = RowChanges { table: table.clone(), log };
        open_new_snapshot(before)?;
        Ok(changes)
    }

    /// Gives `now` a new snapshot, and `visit` each row that differs, or may differ, between what `before` shows and what `now`
    /// shows, once each and in key order; how many they were. `apart`: all old rows come first, the new ones after them. The next
    /// visit's `before` is this one's `now`.
    ///
    /// # Errors
    /// Those of `visit`, of temporary files and of reading rows. What was told may not be all then: the index is of no use.
    pub fn visit(
        &mut self,
        before: &mut Session,
        now: &mut Session,
        apart: bool,
        visit: &mut dyn FnMut(RowChange<'_>) -> Result<()>,
    ) -> Result<u64> {
        open_new_snapshot(now)?;
        // After the snapshot: whoever has committed before it has noted his rows before.
        let mut keys = self.log.take()?;
        let (table, log) = (&self.table, &self.log);
        let clustered = table.share.index(0)?;
        let count = each_key(&mut keys, &mut |key| {
            // Somebody has changed it who has not committed for `now`, and will not note it again.
            if !now.trx.sees_newest(clustered, key)? {
                log.note(std::iter::once(key));
            }
            let old = before.get(table, 0, key, false, Lock::None, Wait::Wait)?;
            match apart {
                false => visit(RowChange { old, new: now.get(table, 0, key, false, Lock::None, Wait::Wait)? }),
                true if old.is_some() => visit(RowChange { old, new: None }),
                true => Ok(()),
            }
        })?;
        if apart {
            each_key(&mut keys, &mut |key| match now.get(table, 0, key, false, Lock::None, Wait::Wait)? {
                None => Ok(()),
                new => visit(RowChange { old: None, new }),
            })?;
        }
        Ok(count)
    }
}

/// Gives each key once; how many they are.
fn each_key(keys: &mut Sorter, give: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let (mut count, mut last): (u64, Option<Vec<u8>>) = (0, None);
    keys.finish(&mut |entry| {
        if last.as_deref() == Some(entry.key) {
            return Ok(());
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(entry.key);
        count += 1;
        give(entry.key)
    })?;
    Ok(count)
}

fn open_new_snapshot(session: &mut Session) -> Result<()> {
    session.rollback()?;
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    session.open_snapshot()
}

impl Drop for RowChanges {
    fn drop(&mut self) {
        // It is this one's: nobody else could begin.
        let _ = self.table.share.set_row_log(None);
    }
}

impl TableShare {
    /// Lets the table's writers note what they change, or no longer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do so already.
    fn set_row_log(&self, log: Option<Arc<RowLog>>) -> Result<()> {
        let mut slot = self.row_log.lock();
        if slot.is_some() && log.is_some() {
            return Err(Error::invalid(format!("changes of table {} are followed already", self.def.name)));
        }
        self.has_row_log.store(log.is_some(), std::sync::atomic::Ordering::Release);
        *slot = log;
        Ok(())
    }
}
