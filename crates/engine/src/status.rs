//! Reports: SHOW ENGINE STATUS, metrics, and the rows of the INFORMATION_SCHEMA tables.

use crate::backup::{BackupProgress, BackupStage};
use crate::config::DuplicateCheck;
use crate::engine::Engine;
use crate::reports::{CheckFinding, CheckStatus, LatchInfo, LockInfo, SpaceInfo, StartupPhase, TrxInfo};
use crate::shares::KnownIndex;
use myriad_base::latch::{latch_stats, ALL_CLASSES};
use myriad_base::waits;
use myriad_base::{Result, SpaceId};
use myriad_catalog::Reclaiming;
use myriad_txn::{Isolation, Listing, TrxState};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

/// Waits within the engine that SHOW ENGINE STATUS lists.
const WAITS_SHOWN: Duration = Duration::from_secs(1);
/// Waits for row locks that it lists.
const LOCK_WAITS_SHOWN: usize = 10;
/// Snapshots that it lists.
const SNAPSHOTS_SHOWN: usize = 3;
/// Failures of page writes that are shown.
const FAILING_SHOWN: usize = 10;

fn state_name(info: &myriad_txn::TrxInfo) -> &'static str {
    match info.state {
        _ if info.waiting => "LOCK WAIT",
        TrxState::Idle | TrxState::Active => "ACTIVE",
        TrxState::Prepared => "PREPARED",
        TrxState::Committing => "COMMITTING",
        TrxState::RollingBack => "ROLLING BACK",
    }
}

fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "READ UNCOMMITTED",
        Isolation::ReadCommitted => "READ COMMITTED",
        Isolation::RepeatableRead => "REPEATABLE READ",
        Isolation::Snapshot => "SNAPSHOT",
        Isolation::Serializable => "SERIALIZABLE",
    }
}

fn lock_row(known: Option<&KnownIndex>, lock: &myriad_txn::LockInfo) -> LockInfo {
    LockInfo {
        trx_id: lock.trx_id,
        mode: lock.mode.name(),
        granted: lock.granted,
        table: known.map(|(def, ..)| def.name.clone()).unwrap_or_default(),
        index_no: known.map_or(0, |&(.., no)| no as u32),
        index_name: known.and_then(|(_, names, no)| names.get(*no)),
        key: if lock.supremum { b"supremum".to_vec() } else { lock.key.get(4..).unwrap_or(&[]).to_vec() },
        waiting_for_trx_id: 0,
    }
}

/// A section's title, as wide as the text.
fn title(out: &mut String, text: &str) {
    let line = "-".repeat(text.len());
    let _ = writeln!(out, "{line}\n{text}\n{line}");
}

macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        // Writing to a string cannot fail.
        let _ = writeln!($out, $($arg)*);
    }};
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

impl Engine {
    /// `SHOW ENGINE MYRIAD STATUS`.
    pub fn status_text(&self) -> String {
        let mut out = String::with_capacity(4096);
        self.status_engine(&mut out);
        self.status_rates(&mut out);
        self.status_check(&mut out);
        self.status_backup(&mut out);
        self.status_log(&mut out);
        self.status_pool(&mut out);
        self.status_files(&mut out);
        self.status_transactions(&mut out);
        self.status_locks(&mut out);
        self.status_purge(&mut out);
        self.status_latches(&mut out);
        line!(out, "END OF MYRIAD STATUS");
        out
    }

    fn status_engine(&self, out: &mut String) {
        title(out, "ENGINE");
        let config = &self.parts.config;
        line!(out, "Version {}, format {}", env!("CARGO_PKG_VERSION"), crate::format::FORMAT_VERSION);
        line!(out, "Folder {}", config.data_dir.join(crate::format::FOLDER).display());
        line!(out, "Page size {} bytes, I/O by {}", self.pool().page_size(), self.parts.io.name());
        if let Err(e) = self.pool().check_poison() {
            line!(out, "STOPPED: {e}");
        }
        let (definitions, bytes) = self.catalog().cache_usage();
        line!(out, "Definition cache: {definitions} tables, {bytes} bytes");
        line!(out, "Tables open {}, files open {}", self.shares().all().len(), self.parts.spaces.open_files());
        for phase in self.startup() {
            line!(
                out,
                "Start: {:<20} {:>10.3} ms {:>14} bytes read",
                phase.phase,
                phase.microseconds as f64 / 1000.0,
                phase.bytes_read
            );
        }
    }

    fn status_rates(&self, out: &mut String) {
        title(out, "RATES");
        let Some(r) = self.marks.rates(self) else { return line!(out, "None yet: no time has passed") };
        line!(out, "Each a second, over the last {:.1} s", r.seconds);
        line!(out, "{:.2} commits, {:.2} lock waits, {:.2} undo records purged", r.commits, r.lock_waits, r.purged);
        line!(out, "{:.2} log syncs, {:.0} log bytes", r.log_syncs, r.log_bytes);
        line!(
            out,
            "{:.2} page accesses (hit rate {:.2} %), {:.2} pages read, {:.2} written, {:.2} evicted, {:.2} waits for a frame",
            r.accesses,
            r.hit_percent,
            r.reads,
            r.writes,
            r.evictions,
            r.frame_waits
        );
    }

    fn status_check(&self, out: &mut String) {
        title(out, "TABLESPACE CHECK");
        let s = self.check_status();
        let seconds = s.microseconds as f64 / 1e6;
        line!(out, "Mode {}, state {}", s.mode, s.state);
        line!(out, "{} files of {} known, {} bytes read, {seconds:.3} s", s.files, s.expected, s.bytes);
        line!(out, "{} findings", s.findings);
        if let Some(error) = &s.error {
            line!(out, "Failed: {error}");
        }
    }

    fn status_backup(&self, out: &mut String) {
        title(out, "BACKUP");
        let Some(backup) = self.backup_status() else { return line!(out, "None is made") };
        let seconds = self.clock().now().saturating_sub(backup.since).as_secs_f64();
        let stage = match backup.stage {
            BackupStage::Copying => "copying files",
            BackupStage::Following => {
                "all files copied; copies the log, and files that come, until its end is asked for"
            }
            BackupStage::Completing => "completing",
        };
        line!(out, "To {}, for {seconds:.1} s: {stage}", backup.dir.display());
        let BackupProgress { files, files_total, file_permille, bytes } = backup.progress;
        line!(out, "{files} of {files_total} files, {} % of the one under way; {bytes} bytes", file_permille / 10);
    }

    fn status_log(&self, out: &mut String) {
        title(out, "LOG");
        let log = self.pool().log();
        let s = log.stats();
        if log.is_unlogged() {
            line!(out, "OFF: nothing is written to the log; a crash now loses the data directory");
        }
        line!(out, "End LSN      {}", log.end_lsn());
        line!(out, "Durable to   {}", log.durable_lsn());
        line!(out, "Checkpoint   {}", log.last_checkpoint().0);
        line!(
            out,
            "Age {} of {} bytes ({:.1} %)",
            s.age_bytes,
            s.capacity_bytes,
            percent(s.age_bytes, s.capacity_bytes)
        );
        line!(
            out,
            "{} appends, {} bytes; {} writes, {} bytes; {} syncs",
            s.appends,
            s.appended_bytes,
            s.writes,
            s.written_bytes,
            s.syncs
        );
        line!(
            out,
            "Waits: {} for durability, {} for capacity, {} for buffer",
            s.flush_waits,
            s.capacity_waits,
            s.buffer_waits
        );
    }

    fn status_pool(&self, out: &mut String) {
        title(out, "BUFFER POOL AND I/O");
        let s = self.pool().stats();
        let partitions = self.pool().partition_count();
        line!(
            out,
            "Frames {} of {} bytes in {partitions} partitions; free {}, dirty {}",
            s.frames,
            s.page_size,
            s.free_frames,
            s.dirty_pages
        );
        match s.frames_shrinking_to {
            0 => line!(
                out,
                "Size {} bytes; can grow to {}",
                (s.frames + s.frames_lent) * s.page_size,
                s.frames_max * s.page_size
            ),
            to => line!(
                out,
                "Size {} bytes; being reduced to {}, {} pages to go",
                s.frames * s.page_size,
                to * s.page_size,
                s.frames_to_free
            ),
        }
        line!(out, "Hits {}, misses {} (hit rate {:.2} %)", s.hits, s.misses, percent(s.hits, s.hits + s.misses));
        line!(
            out,
            "Pages read {}, written {}, evicted {}; write errors {}",
            s.reads,
            s.writes,
            s.evictions,
            s.write_errors
        );
        let failing = self.pool().failing_writes();
        for sentence in failing.errors.iter().take(FAILING_SHOWN) {
            line!(out, "Cannot be written: {sentence}");
        }
        if failing.errors.len() > FAILING_SHOWN {
            line!(out, "and {} more", failing.errors.len() - FAILING_SHOWN);
        }
        if failing.pages > 0 {
            let refused = if failing.refused { "; changes of their tables are refused" } else { "" };
            line!(out, "Pages in memory that cannot be written: {}{refused}", failing.pages);
        }
        line!(
            out,
            "Batches {}, of these doublewritten {}; checkpoints {}",
            s.batches,
            s.doublewrite_batches,
            s.checkpoints
        );
        line!(out, "Waits for a free frame {}", s.free_waits);
        line!(out, "Recovery: {} pages redone, {} to go", s.redone_pages, s.pending_redo_pages);
        line!(
            out,
            "Change buffer: {} pages that are not in memory, {} changes made nowhere yet, {} bytes, {} of the pool lent; so far {} changes \
             buffered, {} pages evicted unwritten, {} page reads that made changes",
            s.change_buffer_pages,
            s.change_buffer_changes,
            s.change_buffer_bytes,
            s.frames_lent * s.page_size,
            s.changes_buffered,
            s.evicted_unwritten,
            s.merges
        );
        line!(out, "In-memory tables: {} of {} bytes", s.memory_pages * s.page_size, s.memory_pages_max * s.page_size);
        line!(out, "Mini-transactions {}", s.mtrs);
    }

    fn status_files(&self, out: &mut String) {
        title(out, "FILES");
        line!(
            out,
            "{:<12}{:<6}{:>14}{:>18}{:>11}{:>13}{:>9}{:>9}{:>13}",
            "files",
            "call",
            "ended",
            "bytes",
            "mean ms",
            "longest ms",
            "over 1 s",
            "running",
            "waiting ms"
        );
        for f in self.files().iter().filter(|f| f.ended + f.running > 0) {
            let ms = |ns: u64| ns as f64 / 1e6;
            let mean = ms(f.ns) / f.ended.max(1) as f64;
            line!(
                out,
                "{:<12}{:<6}{:>14}{:>18}{mean:>11.3}{:>13.3}{:>9}{:>9}{:>13.1}",
                f.files,
                f.call,
                f.ended,
                f.bytes,
                ms(f.longest_ns),
                f.slow,
                f.running,
                ms(f.waiting_ns)
            );
        }
    }

    fn status_transactions(&self, out: &mut String) {
        title(out, "TRANSACTIONS");
        line!(out, "Next transaction id {}", self.trx_system().next_trx_id());
        let now = self.clock().wall_us();
        for t in self.transactions() {
            line!(
                out,
                "Transaction {}, {}, {:.1} s, {}, thread {}, {} undo records, {} locks{}",
                t.trx_id,
                t.state,
                now.saturating_sub(t.start_wall_us) as f64 / 1e6,
                t.isolation,
                t.thread_id,
                t.undo_records,
                t.locks_held,
                if t.recovered { ", recovered" } else { "" }
            );
        }
    }

    fn status_locks(&self, out: &mut String) {
        title(out, "LOCKS");
        let s = self.trx_system().locks().stats();
        line!(
            out,
            "Waits {} ({} now), {:.3} s in all, longest {:.3} s",
            s.waits,
            s.waiting_now,
            s.wait_us as f64 / 1e6,
            s.wait_us_max as f64 / 1e6
        );
        line!(out, "Deadlocks {}, timeouts {}", s.deadlocks, s.timeouts);
        line!(out, "Memory {} of {} bytes", s.memory_bytes, s.memory_bytes_max);
        self.status_lock_waits(out);
        match self.trx_system().locks().last_deadlock() {
            Some(deadlock) => {
                let ago = self.clock().wall_us().saturating_sub(deadlock.wall_us) as f64 / 1e6;
                line!(out, "Latest deadlock, {ago:.1} s ago:");
                out.push_str(&self.describe_deadlock(&deadlock));
            }
            None => line!(out, "No deadlock since start"),
        }
    }

    /// Who waits for a row lock, the longest first.
    fn status_lock_waits(&self, out: &mut String) {
        let mut waits = Vec::new();
        let first = Listing { waits_only: true, blockers_max: 1, ..Listing::ALL };
        self.trx_system().locks().list(first, &mut |wait| {
            waits.push(wait.clone());
            true
        });
        let transactions: HashMap<u64, TrxInfo> = self.transactions().into_iter().map(|t| (t.trx_id, t)).collect();
        let now = self.clock().wall_us();
        let since = |wait: &myriad_txn::LockInfo| {
            let start = transactions.get(&wait.trx_id).map(|t| t.wait_start_wall_us);
            start.filter(|&us| us > 0).unwrap_or(now)
        };
        waits.sort_by_key(since);
        for wait in waits.iter().take(LOCK_WAITS_SHOWN) {
            let blocker = wait.blockers.first().copied().unwrap_or(0);
            let thread = transactions.get(&blocker).map_or(0, |t| t.thread_id);
            line!(
                out,
                "Transaction {}, thread {}, waits {:.1} s for transaction {blocker}, thread {thread}: {}",
                wait.trx_id,
                wait.thread_id,
                now.saturating_sub(since(wait)) as f64 / 1e6,
                self.describe_lock(wait)
            );
        }
        if waits.len() > LOCK_WAITS_SHOWN {
            line!(out, "{} more wait", waits.len() - LOCK_WAITS_SHOWN);
        }
    }

    /// Mode and place of a lock.
    fn describe_lock(&self, lock: &myriad_txn::LockInfo) -> String {
        let row = lock_row(self.shares().of_index(lock.index).as_ref(), lock);
        let index = row.index_name.unwrap_or_else(|| row.index_no.to_string());
        let key: String = row.key.iter().take(32).map(|b| format!("{b:02x}")).collect();
        let table = if row.table.is_empty() { "(closed)" } else { &row.table };
        format!("{} on table {table} index {index} key {key}", row.mode)
    }

    /// Lines that say who waited for whom, and who gave way.
    pub(crate) fn describe_deadlock(&self, deadlock: &myriad_txn::DeadlockInfo) -> String {
        let mut out = String::new();
        for wait in &deadlock.waits {
            let blocker = wait.blockers.first().copied().unwrap_or(0);
            line!(
                &mut out,
                "  transaction {}, thread {}, waits for transaction {blocker}: {}",
                wait.trx_id,
                wait.thread_id,
                self.describe_lock(wait)
            );
        }
        line!(&mut out, "  transaction {} was rolled back", deadlock.victim);
        out
    }

    fn status_purge(&self, out: &mut String) {
        title(out, "PURGE");
        let s = self.trx_system().purge_stats();
        line!(out, "History {} transactions, undo pages {}", s.history, s.undo_pages);
        line!(out, "{} undo records purged, {} entries removed", s.records_purged, s.entries_removed);
        line!(out, "{} shares of it taken by commits", s.shares);
        self.status_snapshots(out);
        self.status_dropped(out);
    }

    /// What is left to remove of what was dropped.
    fn status_dropped(&self, out: &mut String) {
        match self.catalog().reclaiming() {
            Reclaiming::Nothing => line!(out, "Dropped tables and indexes: all removed"),
            Reclaiming::Files => line!(out, "Dropped tables and indexes: removing files"),
            Reclaiming::Index { id, space, leaves } => line!(
                out,
                "Dropped tables and indexes: removing index {id} of tablespace {space}, some {leaves} leaves of it so far"
            ),
            Reclaiming::Failed(e) => line!(out, "Dropped tables and indexes: tried again each 10 s: {e}"),
        }
        match self.catalog().awaiting_checkpoint() {
            0 => {}
            spaces => line!(out, "Free space of {spaces} tablespaces goes back to the file system after a checkpoint"),
        }
    }

    /// Whose snapshots keep old versions from purge, the oldest first.
    fn status_snapshots(&self, out: &mut String) {
        let age = |t: &TrxInfo| t.snapshot_age.unwrap_or(0);
        let mut holders: Vec<TrxInfo> = self.transactions().into_iter().filter(|t| age(t) > 0).collect();
        holders.sort_by_key(|t| Reverse(age(t)));
        let now = self.clock().wall_us();
        for t in holders.iter().take(SNAPSHOTS_SHOWN) {
            line!(
                out,
                "Held back by the snapshot of transaction {}, thread {}, {}, {:.1} s: {} transactions have ended since",
                t.trx_id,
                t.thread_id,
                t.state,
                now.saturating_sub(t.start_wall_us) as f64 / 1e6,
                age(t)
            );
        }
        match holders.len() {
            0 => line!(out, "Held back by no snapshot"),
            n if n > SNAPSHOTS_SHOWN => line!(out, "{} more snapshots", n - SNAPSHOTS_SHOWN),
            _ => {}
        }
    }

    fn status_latches(&self, out: &mut String) {
        title(out, "LATCHES");
        line!(
            out,
            "{:<14}{:>16}{:>14}{:>9}{:>14}  hottest partition",
            "class",
            "acquired",
            "contended",
            "%",
            "wait ms"
        );
        for l in self.latches() {
            let (contended, wait) = (l.contended_percent, l.wait_ns as f64 / 1e6);
            let hottest = format!("{:>3} with {:.0} %", l.hottest, l.hottest_percent);
            line!(out, "{:<14}{:>16}{:>14}{contended:>9.3}{wait:>14.1}  {hottest}", l.name, l.acquired, l.contended);
        }
        let waits = waits::list(WAITS_SHOWN);
        waits.iter().for_each(|wait| line!(out, "Waiting: {wait}"));
        if waits.is_empty() {
            line!(out, "Nobody has waited for {} s or more", WAITS_SHOWN.as_secs());
        }
    }

    /// One of the [`Engine::metrics`]; `None` if there is none of this name.
    pub fn metric(&self, wanted: &str) -> Option<u64> {
        let mut found = None;
        self.metrics(&mut |name, value, _| found = found.or((name == wanted).then_some(value)));
        found
    }

    /// Counters and gauges: `visit(name, value, is a gauge)`.
    pub fn metrics(&self, visit: &mut dyn FnMut(&str, u64, bool)) {
        let (log, pool) = (self.pool().log().stats(), self.pool().stats());
        let (check, backup) = (self.check_status(), self.backup_status());
        let (purge, locks) = (self.trx_system().purge_stats(), self.trx_system().locks().stats());
        let counters = [
            ("commits", self.trx_system().commit_count()),
            ("rollbacks", self.trx_system().rollback_count()),
            ("log_appends", log.appends),
            ("log_bytes", log.appended_bytes),
            ("log_writes", log.writes),
            ("log_written_bytes", log.written_bytes),
            ("log_syncs", log.syncs),
            ("log_flush_waits", log.flush_waits),
            ("log_flush_wait_microseconds", log.flush_wait_ns / 1000),
            ("log_capacity_waits", log.capacity_waits),
            ("log_buffer_waits", log.buffer_waits),
            ("buffer_pool_read_requests", pool.hits + pool.misses),
            ("buffer_pool_misses", pool.misses),
            ("pages_read", pool.reads),
            ("pages_read_together", pool.reads_together),
            ("pages_written", pool.writes),
            ("page_write_errors", pool.write_errors),
            ("pages_carried_forward", pool.carried),
            ("pages_evicted", pool.evictions),
            ("pages_evicted_unwritten", pool.evicted_unwritten),
            ("buffer_pool_free_waits", pool.free_waits),
            ("doublewrite_batches", pool.doublewrite_batches),
            ("checkpoints", pool.checkpoints),
            ("pages_redone", pool.redone_pages),
            ("mini_transactions", pool.mtrs),
            ("promotions", self.trx_system().promotions()),
            ("change_buffer_changes", pool.changes_buffered),
            ("change_buffer_merged_changes", pool.changes_merged),
            ("change_buffer_merged_pages", pool.merges),
            ("purged_records", purge.records_purged),
            ("purged_entries", purge.entries_removed),
            ("purge_shares", purge.shares),
            ("lock_waits", locks.waits),
            ("lock_wait_us", locks.wait_us),
            ("lock_deadlocks", locks.deadlocks),
            ("lock_timeouts", locks.timeouts),
        ];
        let gauges = [
            ("log_age_bytes", log.age_bytes),
            ("log_capacity_bytes", log.capacity_bytes),
            ("redo_log_on", u64::from(!self.pool().log().is_unlogged())),
            ("buffer_pool_partitions", self.pool().partition_count() as u64),
            ("buffer_pool_pages_total", pool.frames + pool.frames_lent),
            ("buffer_pool_pages_lent", pool.frames_lent),
            ("buffer_pool_pages_free", pool.free_frames),
            ("buffer_pool_pages_dirty", pool.dirty_pages),
            ("memory_tables_bytes", pool.memory_pages * pool.page_size),
            ("memory_tables_bytes_max", pool.memory_pages_max * pool.page_size),
            ("page_size", pool.page_size),
            ("change_buffer_bytes", pool.change_buffer_bytes),
            ("change_buffer_pages", pool.change_buffer_pages),
            ("pages_to_redo", pool.pending_redo_pages),
            ("history_length", purge.history),
            ("undo_pages", purge.undo_pages),
            ("lock_waits_now", locks.waiting_now),
            ("lock_wait_us_max", locks.wait_us_max),
            ("row_locks_bytes", locks.memory_bytes),
            ("row_locks_bytes_max", locks.memory_bytes_max),
            ("backup_running", u64::from(backup.is_some())),
            ("backup_bytes", backup.map_or(0, |b| b.progress.bytes)),
            ("definitions_cached", self.catalog().cache_usage().0 as u64),
            ("open_files", self.parts.spaces.open_files() as u64),
            ("tablespace_check_running", u64::from(check.state == "RUNNING" || check.state == "WAITING")),
            ("tablespace_check_files", check.files),
            ("tablespace_check_findings", check.findings),
        ];
        for (name, value) in counters {
            visit(name, value, false);
        }
        for (name, value) in gauges {
            visit(name, value, true);
        }
        self.file_metrics(visit);
    }

    fn file_metrics(&self, visit: &mut dyn FnMut(&str, u64, bool)) {
        let files = self.files();
        for f in files.iter().filter(|f| f.is_usual()) {
            let name = format!("file_{}_{}", f.files, f.call);
            visit(&format!("{name}s"), f.ended, false);
            visit(&format!("{name}_microseconds"), f.ns / 1000, false);
            visit(&format!("{name}_microseconds_max"), f.longest_ns / 1000, true);
        }
        visit("file_calls_slow", files.iter().map(|f| f.slow).sum(), false);
        visit("file_calls_running", files.iter().map(|f| f.running).sum(), true);
        visit("file_calls_waiting_microseconds", files.iter().map(|f| f.waiting_ns / 1000).max().unwrap_or(0), true);
    }

    /// The buffer pool's partitions.
    pub fn partitions(&self) -> Vec<myriad_buffer::PartitionStats> {
        self.pool().partition_stats()
    }

    /// The calls to files and how long they take.
    pub fn files(&self) -> Vec<myriad_io::FileStats> {
        self.parts.files.stats()
    }

    /// Transactions that have begun.
    pub fn transactions(&self) -> Vec<TrxInfo> {
        let mut all = Vec::new();
        self.trx_system().list_trx(&mut |t| {
            all.push(TrxInfo {
                trx_id: t.shown_id,
                start_wall_us: t.start_wall_us,
                undo_records: t.undo_records,
                locks_held: t.locks_held,
                wait_start_wall_us: t.wait_start_wall_us,
                thread_id: t.thread_id,
                state: state_name(t),
                isolation: isolation_name(t.isolation),
                recovered: t.recovered,
                snapshot_age: t.snapshot_age,
            });
        });
        all
    }

    /// Locks held and waited for, each once.
    pub fn locks(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        self.each_lock(false, usize::MAX, &mut |row| {
            all.push(row);
            true
        });
        all
    }

    /// As [`Engine::locks`], one by one until `visit` gives false, or there were about `rows_max`; there can be very many.
    /// `waits_only`: those waited for, one row for each transaction that a wait is for.
    pub fn each_lock(&self, waits_only: bool, rows_max: usize, visit: &mut dyn FnMut(LockInfo) -> bool) {
        let mut indexes = HashMap::new();
        let mut show = |l: &myriad_txn::LockInfo| {
            let known = indexes.entry(l.index).or_insert_with(|| self.shares().of_index(l.index));
            let row = lock_row(known.as_ref(), l);
            if l.granted || l.blockers.is_empty() {
                return visit(row);
            }
            l.blockers.iter().all(|&b| visit(LockInfo { waiting_for_trx_id: b, ..row.clone() }))
        };
        let blockers_max = if waits_only { usize::MAX } else { 1 };
        self.trx_system().locks().list(Listing { waits_only, blockers_max, rows_max }, &mut show);
    }

    /// Latch classes.
    pub fn latches(&self) -> Vec<LatchInfo> {
        let info = |class: &myriad_base::latch::LatchClass| {
            let s = latch_stats(*class);
            LatchInfo {
                name: class.name(),
                acquired: s.acquired,
                contended: s.contended,
                wait_ns: s.wait_ns,
                contended_percent: percent(s.contended, s.acquired),
                hottest: s.hottest as u32,
                hottest_percent: percent(s.hottest_acquired, s.acquired),
            }
        };
        ALL_CLASSES.iter().map(info).collect()
    }

    /// Tablespaces, the engine's own included. Opens none.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn spaces(&self) -> Result<Vec<SpaceInfo>> {
        self.spaces_from(0, usize::MAX)
    }

    /// Of [`Engine::spaces`] those whose ids are no less than `first`, in order, the first `most` of them.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn spaces_from(&self, first: u32, most: usize) -> Result<Vec<SpaceInfo>> {
        let mut all = Vec::new();
        let mut add = |id: myriad_base::SpaceId, path: &str, database: &str| {
            // Those that nobody has used are not made known for this: a listing leaves nothing in memory.
            let open = self.parts.spaces.get_known(id).is_some_and(|s| s.is_open());
            let path = format!("{}/{path}", crate::format::FOLDER);
            all.push(SpaceInfo { space_id: id.0, path, database: database.into(), open });
            all.len() < most
        };
        let mut more = most > 0;
        for id in [myriad_base::SpaceId::SYSTEM, myriad_base::SpaceId::UNDO] {
            if more && id.0 >= first {
                more = add(id, &self.parts.spaces.get(id)?.path(), "");
            }
        }
        if more {
            self.catalog().list_spaces(myriad_base::SpaceId(first), &mut add)?;
        }
        Ok(all)
    }

    /// The size in bytes of a tablespace's file, `path` as in [`SpaceInfo`]; 0 if it was dropped meanwhile or is missing.
    /// Asks the file system unless the tablespace is open.
    pub fn space_bytes(&self, space_id: u32, path: &str) -> u64 {
        match self.parts.spaces.get_known(myriad_base::SpaceId(space_id)).filter(|s| s.is_open()) {
            Some(space) => u64::from(space.pages_in_file()) * self.pool().page_size() as u64,
            None => {
                let path = self.parts.config.data_dir.join(path);
                let bytes = self.io().open(&path, myriad_io::OpenMode::READ).and_then(|file| file.len());
                bytes.unwrap_or(0)
            }
        }
    }

    /// What the start did, and the tablespace check that runs beside the workload or has.
    pub fn startup(&self) -> Vec<StartupPhase> {
        let mut all = self.startup.clone();
        let check = self.check_status();
        if check.mode == DuplicateCheck::Online.name() && check.state != "WAITING" {
            let phase =
                if check.state == "RUNNING" { "tablespace check (running)" } else { "tablespace check (online)" };
            all.push(StartupPhase { phase, microseconds: check.microseconds, bytes_read: check.bytes });
        }
        all
    }

    /// The file of a tablespace that has been used since the start, relative to the data directory.
    pub fn file_of(&self, space: SpaceId) -> Option<String> {
        self.parts.spaces.get_known(space).map(|space| format!("{}/{}", crate::format::FOLDER, space.path()))
    }

    /// How far the tablespace check is.
    pub fn check_status(&self) -> CheckStatus {
        self.checker().status()
    }

    /// What the tablespace check found: the first 10,000.
    pub fn check_findings(&self) -> Vec<CheckFinding> {
        self.checker().findings()
    }
}
