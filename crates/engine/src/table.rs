//! Open tables.

use crate::engine::Engine;
use crate::index_keys::IndexKey;
use crate::share::TableShare;
use crate::stats::{self, Sampled};
use myriad_base::{Error, Result};
use myriad_catalog::IndexSpec;
use myriad_txn::{Durability, Isolation, RowCount, ValueCheck};
use std::ops::Bound;
use std::sync::Arc;

/// An open table. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(crate) engine: Arc<Engine>,
    pub(crate) share: Arc<TableShare>,
    /// See [`Table::with_index_keys`].
    pub(crate) index_keys: Option<Arc<[IndexKey]>>,
}

shown!(Table, |t| [("name", &t.name())]);

/// What [`Table::info`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Estimated rows; 0 only if there is none.
    pub rows: u64,
    /// Bytes of the clustered index; with [`Detail::Sizes`] of its overflow pages, too.
    pub data_bytes: u64,
    /// Bytes of the other indexes.
    pub index_bytes: u64,
    /// Bytes free inside its tablespace; 0 = not known.
    pub free_bytes: u64,
    /// Mean bytes of a row, of which the same holds.
    pub mean_row_bytes: u64,
    /// Seconds since 1970; 0 unknown.
    pub create_time_s: u64,
    /// When a transaction that changed it committed last, in seconds since 1970; 0 = not known. The filling of a table by a
    /// [`crate::TableCopy`] is no change.
    pub update_time_s: u64,
    /// Next AUTO_INCREMENT value; 0 without such a column.
    pub auto_increment_next: u64,
}

/// How much [`Table::info_of`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Times and the AUTO_INCREMENT counter: no page is looked at.
    Counters,
    /// As well what the clustered index tells, which is what a plan needs.
    Rows,
    /// All.
    Sizes,
    /// All, from more pages, which are read where they are not in memory. The others tell the same for a moment.
    Closely,
}

impl Table {
    /// `db/table`, as it was when the table was opened.
    pub fn name(&self) -> &str {
        &self.share.def.name
    }

    /// What [`NewDefinition::row_layouts`](crate::NewDefinition::row_layouts) said last; empty if never.
    pub fn row_layouts(&self) -> &[u8] {
        &self.share.def.row_layouts
    }

    /// Whether its indexes are as many and as unique as these.
    pub fn has_indexes(&self, specs: &[IndexSpec]) -> bool {
        self.share.def.indexes.iter().map(|i| i.spec.unique).eq(specs.iter().map(|s| s.unique))
    }

    /// Gives its indexes names, in their order, for [`LockInfo::index_name`](crate::LockInfo::index_name) and what
    /// [`Table::check`] finds. They hold for all who have the table open, until they are set again or the definition changes.
    pub fn set_index_names(&self, names: &[&str]) {
        self.share.set_index_names(names);
    }

    /// False once dropped or redefined since it was opened.
    pub fn is_current(&self) -> bool {
        self.share.is_current()
    }

    /// Whether the table is in memory alone and the last start has emptied it; true once in a run, and for one of the
    /// partitions of a table only: those whose names (`db/t#P#p0`) are alike up to `#P#`.
    pub fn take_emptied(&self) -> bool {
        self.engine.take_emptied(&self.share)
    }

    /// Statistics: estimates, but for an empty table's zero.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn info(&self) -> Result<TableStats> {
        self.info_of(Detail::Sizes)
    }

    /// As [`Table::info`]; what is not asked for is 0.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn info_of(&self, detail: Detail) -> Result<TableStats> {
        stats::table_stats(&self.engine, &self.share, detail)
    }

    /// Keys from places spread over an index, in order, then separators of its tree and their levels, until `visit` returns
    /// false.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn sample_index(
        &self,
        index_no: usize,
        pages: u32,
        visit: &mut dyn FnMut(&[u8], Sampled, u8) -> bool,
    ) -> Result<()> {
        stats::sample(&self.engine, self.share.index(index_no)?, pages.max(1) as usize, visit)
    }

    /// Keeps what somebody has learned from samples, numbers that mean something to him, for who opens this definition later.
    pub fn keep_samples(&self, samples: &[u64]) {
        *self.share.stats.samples.lock() = samples.into();
    }

    /// What was kept last; `false`, and `out` is as it was, unless it is of this length.
    pub fn kept_samples(&self, out: &mut [u64]) -> bool {
        let kept = self.share.stats.samples.lock();
        let fits = !kept.is_empty() && kept.len() == out.len();
        if fits {
            out.copy_from_slice(&kept);
        }
        fits
    }

    /// Estimated entries between two prefixes of keys (the lower one inclusive; `None` = unbounded). At least 1.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn records_in_range(&self, index_no: usize, low: Option<&[u8]>, high: Bound<&[u8]>) -> Result<u64> {
        let index = self.share.index(index_no)?;
        let (lo, hi) = stats::range(index.id, low, high);
        if lo >= hi {
            return Ok(1);
        }
        Ok(index.tree.estimate_range(self.engine.pool(), &lo, &hi)?.entries.max(1))
    }

    /// Sets the AUTO_INCREMENT counter, durably. The caller sees to it that no value is given twice.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] without such a column; those of writing.
    pub fn auto_increment_set(&self, next: u64) -> Result<()> {
        self.engine.check_open()?;
        self.share.auto_increment()?.set(self.engine.trx_system(), next)?;
        self.engine.flush_log()
    }

    /// Whether it has an AUTO_INCREMENT counter.
    pub fn has_auto_increment(&self) -> bool {
        self.share.auto_increment().is_ok()
    }

    /// Gives it an AUTO_INCREMENT counter if it has none. Others may have the table open, and do the same.
    ///
    /// # Errors
    /// [`myriad_base::Error::NoSuchTable`]; those of writing.
    pub fn add_auto_increment(&self, next: u64) -> Result<()> {
        self.engine.check_open()?;
        let counter = self.engine.catalog().add_auto_increment(self.name(), next)?;
        self.share.add_auto_increment(self.engine.trx_system(), &counter)
    }

    /// The next hidden row id.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] for a table with a key of its own.
    pub fn next_row_id(&self) -> Result<u64> {
        self.share.next_row_id()
    }

    /// Verifies the structure of every index, that all hold the same number of rows, and the overflow pages of long values; each
    /// finding goes to `finding`.
    ///
    /// # Errors
    /// Those that keep the check from going on; damage is a finding.
    pub fn check(&self, finding: &mut dyn FnMut(&str)) -> Result<()> {
        self.check_until(false, &|| false, finding)
    }

    /// As [`Table::check`], `quick` without the values, but that it ends with [`Error::Interrupted`] when `stop` says so, which it asks
    /// at each page.
    pub(crate) fn check_until(
        &self,
        quick: bool,
        stop: &dyn Fn() -> bool,
        finding: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut trx = self.engine.trx_system().begin(Isolation::RepeatableRead);
        trx.start();
        trx.open_snapshot();
        let (mut sound, mut counted, mut expected) = (true, Ok(()), None);
        let mut values = ValueCheck::new(self.engine.trx_system());
        for (no, index) in self.share.indexes.iter().enumerate() {
            let (lo, hi) = stats::bounds(index.id);
            let mut count = RowCount::new(index);
            let report = index.tree.check(self.engine.pool(), &lo, &hi, &mut |leaf| {
                if stop() {
                    return Err(Error::Interrupted);
                }
                if counted.is_ok() {
                    counted = count.add(&mut trx, index, &leaf);
                }
                match quick {
                    true => drop(leaf),
                    false => values.check_leaf(index, leaf, stop)?,
                }
                if counted.is_ok() {
                    counted = count.catch_up(&mut trx, index, stop);
                }
                Ok(())
            })?;
            sound &= report.findings.is_empty();
            for (page, reason) in report.findings.into_iter().chain(values.take_findings()) {
                finding(&format!("index {}: {page}: {reason}", self.share.index_label(no)));
            }
            let (rows, expected) = (count.rows(), *expected.get_or_insert(count.rows()));
            if sound && counted.is_ok() && rows != expected {
                let index = self.share.index_label(no);
                finding(&format!("index {index} has {rows} entries, the clustered index {expected}"));
            }
        }
        trx.commit(Durability::None)?;
        if sound {
            counted?;
        }
        Ok(())
    }
}
