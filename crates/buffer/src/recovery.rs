//! Recovery: one scan of the log from the checkpoint sorts its records by page (analysis); after that the engine is
//! open. A page is redone when it is first fixed, or by the background workers, whichever comes first.
//!
//! Until a page is redone its records bound the checkpoint; redo marks the page dirty with the start of its first record
//! before it takes the records away, so the bound never has a gap.
//!
//! A page whose redo is impossible (damaged beyond its doublewrite copy, record refused) is *lost*: a page that says so
//! takes its place, dirty from the first of its records on, so that the checkpoint passes them only when that is in the
//! file. Every use of it gives the error, also after later starts, until the page is formatted anew. A tablespace whose
//! file cannot be used is waited for. When the log has no more room it is given up as a whole, which the next checkpoint
//! notes, and is not used again. Others are not affected.

use crate::all_ended;
use crate::background::PATIENCE;
use crate::config::Level;
use crate::guard::ReadFrame;
use crate::ops::{bad_record, carried, replaces_page, Records, OP_CARRIED};
use crate::pool::BufferPool;
use crate::stats::Counter;
use crate::usage::USAGE_UNWANTED;
use myriad_base::page::{self, page_lsn, set_page_lsn, PageKind};
use myriad_base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use myriad_io::AlignedBuf;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What analysis found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Where the scan began.
    pub checkpoint_lsn: Lsn,
    /// End of the valid log.
    pub end_lsn: Lsn,
    /// Where the log goes on behind that: what is between is missing.
    pub log_beyond: Option<Lsn>,
    /// Mini-transactions found.
    pub mtrs: u64,
    /// Records found.
    pub records: u64,
    /// Pages to redo.
    pub pages: u64,
    /// Usable copies in the doublewrite file.
    pub doublewrite_copies: u64,
}

/// A record to redo: where its payload lies in the retained log.
struct RedoRecord {
    end: Lsn,
    chunk: u32,
    start: u32,
    len: u32,
    op: u8,
}

/// Log bodies, many in a chunk: a long log has millions.
type Chunks = Vec<Vec<u8>>;

/// Bytes of a chunk; a longer body has one of its own.
const CHUNK_BYTES: usize = 1 << 20;

/// The records of one page, oldest first.
pub(crate) struct PageRedo {
    first: Lsn,
    records: Vec<RedoRecord>,
    chunks: Arc<Chunks>,
}

impl PageRedo {
    /// Whether the first record replaces the page, so that nothing need be read.
    pub fn replaces_page(&self) -> bool {
        self.records.first().is_some_and(|r| replaces_page(r.op))
    }

    fn payload(&self, record: &RedoRecord) -> &[u8] {
        &self.chunks[record.chunk as usize][record.start as usize..(record.start + record.len) as usize]
    }

    /// The same with a chunk of its own.
    fn alone(&self) -> PageRedo {
        let mut chunk = Vec::with_capacity(self.records.iter().map(|r| r.len as usize).sum());
        let mut records = Vec::with_capacity(self.records.len());
        for record in &self.records {
            let start = chunk.len() as u32;
            chunk.extend_from_slice(self.payload(record));
            records.push(RedoRecord { chunk: 0, start, ..*record });
        }
        PageRedo { first: self.first, records, chunks: Arc::new(vec![chunk]) }
    }
}

type PendingShard = Mutex<HashMap<PageId, Arc<PageRedo>>>;

const PENDING_SHARDS: usize = 64;
/// Failed reads of a page before the error log hears of it. It is never given up: its records are in the log alone, which
/// a checkpoint beyond them would lose.
const ATTEMPTS_QUIET: u32 = 10;
/// Pause of a background worker whose pages cannot be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pages a background worker takes at a time.
const WORKER_PAGES: usize = 32;
/// Tablespaces of which so many pages, from page 1, are held against the log's end at a start.
const FIRST_PAGES: [(SpaceId, usize); 2] = [(SpaceId::SYSTEM, 8), (SpaceId::UNDO, 64)];
/// Tablespaces named in one line of the error log, and those of which one kind of line tells singly.
const TOLD_MAX: usize = 20;

/// Pages that recovery has still to redo.
pub(crate) struct Pending {
    count: AtomicUsize,
    failed_count: AtomicUsize,
    pages: Box<[PendingShard]>,
    failed: Mutex<BTreeMap<PageId, Error>>,
    order: Mutex<Order>,
    /// All pages that recovery found, by tablespace: sorted when one is asked for.
    by_space: OnceLock<Vec<PageId>>,
    /// End of the log that recovery found.
    recovered_end: AtomicU64,
    /// Whether every tablespace can be asked for, so that redo may be driven from here.
    started: AtomicBool,
}

/// Pages in order of their first record.
#[derive(Default)]
struct Order {
    list: Vec<(Lsn, PageId)>,
    /// Everything before is done.
    floor: usize,
    /// Next for the background workers.
    next: usize,
    /// Pages that workers have taken and are not through with.
    taken: usize,
    /// Pages to be tried again, and how often they failed.
    again: VecDeque<(PageId, u32)>,
    /// Tablespaces whose files are waited for.
    waiting: HashSet<SpaceId>,
    waiting_lines: Lines,
    /// For tablespaces given up in this run.
    given_up_lines: Lines,
}

/// Counts what the error log tells of: singly up to [`TOLD_MAX`], of all together beyond.
#[derive(Default)]
struct Lines {
    count: usize,
    told: usize,
}

impl Lines {
    /// One more. Whether a line of its own tells of it.
    fn one_more(&mut self) -> bool {
        self.count += 1;
        let singly = self.count <= TOLD_MAX;
        if singly {
            self.told = self.count;
        }
        singly
    }

    /// How many there are, if a line is to tell of all: there are too many for single ones, and they have become twice as many since
    /// the last line, or `at_rest`.
    fn together(&mut self, at_rest: bool) -> Option<usize> {
        let due = self.count >= self.told * 2 || at_rest && self.count > self.told;
        if !due || self.count <= TOLD_MAX {
            return None;
        }
        self.told = self.count;
        Some(self.count)
    }
}

/// Pages for a worker.
struct RedoWork {
    /// With how often each failed.
    pages: Vec<(PageId, u32)>,
    /// They are tried for the first time.
    is_first: bool,
}

impl Pending {
    pub fn new() -> Pending {
        Pending {
            count: AtomicUsize::new(0),
            failed_count: AtomicUsize::new(0),
            pages: (0..PENDING_SHARDS).map(|_| Mutex::default()).collect(),
            failed: Mutex::default(),
            order: Mutex::default(),
            by_space: OnceLock::new(),
            recovered_end: AtomicU64::new(0),
            started: AtomicBool::new(false),
        }
    }

    fn shard(&self, id: PageId) -> &PendingShard {
        &self.pages[id.hash() as usize % PENDING_SHARDS]
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// End of the log that recovery found.
    pub fn recovered_end(&self) -> Lsn {
        Lsn(self.recovered_end.load(Ordering::Relaxed))
    }

    /// # Errors
    /// Why the page is lost, if it is.
    pub fn check_failed(&self, id: PageId) -> Result<()> {
        if self.failed_count.load(Ordering::Acquire) != 0 {
            if let Some(error) = self.failed.lock().get(&id) {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    /// The page's records, if it has any.
    ///
    /// # Errors
    /// As [`Pending::check_failed`].
    pub fn get(&self, id: PageId) -> Result<Option<Arc<PageRedo>>> {
        self.check_failed(id)?;
        if self.len() == 0 {
            return Ok(None);
        }
        Ok(self.shard(id).lock().get(&id).cloned())
    }

    fn contains(&self, id: PageId) -> bool {
        self.len() != 0 && self.shard(id).lock().contains_key(&id)
    }

    /// Whether it was still to be redone.
    fn remove(&self, id: PageId) -> bool {
        let was_there = self.shard(id).lock().remove(&id).is_some();
        self.count.fetch_sub(usize::from(was_there), Ordering::AcqRel);
        was_there
    }

    /// The page begins a new life: its records and its failure no longer matter.
    pub fn forget(&self, id: PageId) {
        if self.failed_count.load(Ordering::Acquire) != 0 && self.failed.lock().remove(&id).is_some() {
            self.failed_count.fetch_sub(1, Ordering::AcqRel);
        }
        if self.len() != 0 {
            self.remove(id);
        }
    }

    /// Those of the pages that recovery found which are of this tablespace.
    fn pages_of(&self, space: SpaceId) -> &[PageId] {
        let all = self.by_space.get_or_init(|| {
            let mut all: Vec<PageId> = self.order.lock().list.iter().map(|&(_, id)| id).collect();
            all.sort_unstable();
            all
        });
        let from = all.partition_point(|id| id.space < space);
        &all[from..from + all[from..].partition_point(|id| id.space == space)]
    }

    /// Whether recovery has pages of the tablespace still to redo.
    fn awaits(&self, space: SpaceId) -> bool {
        self.len() != 0 && self.pages_of(space).iter().any(|&id| self.contains(id))
    }

    /// The tablespace is gone, or given up. Tells how many pages of it were to be redone.
    pub fn forget_space(&self, space: SpaceId) -> usize {
        if self.failed_count.load(Ordering::Acquire) != 0 {
            let mut failed = self.failed.lock();
            let page = |no| PageId::new(space, PageNo(no));
            let of_space: Vec<PageId> = failed.range(page(0)..=page(u32::MAX)).map(|(&id, _)| id).collect();
            of_space.iter().for_each(|id| drop(failed.remove(id)));
            self.failed_count.store(failed.len(), Ordering::Release);
        }
        if self.len() == 0 {
            return 0;
        }
        self.pages_of(space).iter().filter(|&&id| self.remove(id)).count()
    }

    /// The page is lost, and the page in its place dirty: every use of it will give `error`.
    fn fail(&self, id: PageId, error: Error) {
        let mut failed = self.failed.lock();
        if failed.insert(id, error).is_none() {
            self.failed_count.fetch_add(1, Ordering::AcqRel);
        }
        drop(failed);
        self.remove(id);
    }

    /// Start of the first and end of the last of the page's records.
    fn range_of(&self, id: PageId) -> Option<(Lsn, Lsn)> {
        let redo = self.shard(id).lock().get(&id).cloned()?;
        Some((redo.first, redo.records.last()?.end))
    }

    /// What there is of the tablespace may stay for long: keeps no more of the log in memory than it needs. Number of pages.
    fn keep_alone(&self, space: SpaceId) -> usize {
        let mut count = 0;
        for &id in self.pages_of(space) {
            if let Some(redo) = self.shard(id).lock().get_mut(&id) {
                *redo = Arc::new(redo.alone());
                count += 1;
            }
        }
        count
    }

    /// The page cannot be redone yet: behind the others that wait, so that each has its turn.
    fn again(&self, id: PageId, failures: u32) {
        self.order.lock().again.push_back((id, failures));
    }

    /// The oldest record not yet redone bounds the checkpoint.
    pub fn oldest(&self) -> Option<Lsn> {
        if self.len() == 0 {
            return None;
        }
        let mut order = self.order.lock();
        while let Some(&(lsn, id)) = order.list.get(order.floor) {
            if self.contains(id) {
                return Some(lsn);
            }
            order.floor += 1;
        }
        None
    }

    /// The page that bounds the checkpoint.
    fn oldest_page(&self) -> Option<PageId> {
        self.oldest()?;
        let order = self.order.lock();
        order.list.get(order.floor).map(|&(_, id)| id)
    }

    /// Pages for a worker, oldest first, until it calls [`Pending::work_done`].
    fn take_work(&self, max: usize) -> RedoWork {
        let mut order = self.order.lock();
        let mut pages = Vec::new();
        while pages.len() < max {
            let Some(&(_, id)) = order.list.get(order.next) else { break };
            order.next += 1;
            if self.contains(id) {
                pages.push((id, 0));
            }
        }
        let is_first = !pages.is_empty();
        while pages.is_empty() && !order.again.is_empty() {
            let some = order.again.len().min(max);
            pages.extend(order.again.drain(..some).filter(|&(id, _)| self.contains(id)));
        }
        order.taken += pages.len();
        RedoWork { pages, is_first }
    }

    /// A worker is through with so many pages that it had taken.
    fn work_done(&self, pages: usize) {
        self.order.lock().taken -= pages;
    }

    /// Whether a worker has pages that it is not through with.
    fn is_worked_on(&self) -> bool {
        self.order.lock().taken != 0
    }

    /// A tablespace whose file is waited for. Whether it is a new one, and whether the error log is to hear of it alone.
    fn wait_for(&self, space: SpaceId) -> (bool, bool) {
        let order = &mut *self.order.lock();
        let is_new = order.waiting.insert(space);
        (is_new, is_new && order.waiting_lines.one_more())
    }

    /// A tablespace is given up. Whether the error log is to hear of it alone.
    fn note_given_up(&self) -> bool {
        self.order.lock().given_up_lines.one_more()
    }

    /// How many tablespaces are waited for and how many were given up, where a line is to tell of all.
    fn not_told(&self, at_rest: bool) -> (Option<usize>, Option<usize>) {
        let order = &mut *self.order.lock();
        (order.waiting_lines.together(at_rest), order.given_up_lines.together(at_rest))
    }

    fn install(&self, analysis: Analysis, end: Lsn) {
        let chunks = Arc::new(analysis.chunks);
        let mut order: Vec<(Lsn, PageId)> = Vec::with_capacity(analysis.pages.len());
        self.recovered_end.store(end.0, Ordering::Relaxed);
        self.count.store(analysis.pages.len(), Ordering::Release);
        for (id, (first, records)) in analysis.pages {
            order.push((first, id));
            self.shard(id).lock().insert(id, Arc::new(PageRedo { first, records, chunks: Arc::clone(&chunks) }));
        }
        order.sort_unstable();
        *self.order.lock() = Order { list: order, ..Order::default() };
    }
}

/// The log, sorted by page.
#[derive(Default)]
struct Analysis {
    chunks: Chunks,
    pages: FxHashMap<PageId, (Lsn, Vec<RedoRecord>)>,
    mtrs: u64,
    records: u64,
}

impl Analysis {
    /// The chunk that the next body goes to, and where it begins there.
    fn place(&mut self, len: usize) -> (u32, usize) {
        let room = self.chunks.last().map_or(0, |chunk| chunk.capacity() - chunk.len());
        if room < len || self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(len.max(CHUNK_BYTES)));
        }
        let at = self.chunks.len() - 1;
        (at as u32, self.chunks[at].len())
    }

    /// Adds a mini-transaction.
    fn add(&mut self, pool: &BufferPool, start: Lsn, end: Lsn, body: &[u8]) -> Result<()> {
        let (chunk, base) = self.place(body.len());
        for record in Records::new(body) {
            let record = record.map_err(|e| at_lsn(e, start))?;
            if !pool.redo_table().knows(record.op) {
                let reason = format!("unknown operation {} for {}", record.op, record.id);
                return Err(Error::CorruptLog { lsn: start, reason });
            }
            let page = self.pages.entry(record.id).or_insert_with(|| (start, Vec::new()));
            if replaces_page(record.op) {
                // Whatever came before no longer matters.
                *page = (start, Vec::new());
            } else if record.op == OP_CARRIED {
                let (since, _) = carried(&body[record.payload.clone()]).map_err(|e| at_lsn(e, start))?;
                page.1.truncate(page.1.partition_point(|r| r.end <= since));
                if page.1.is_empty() {
                    page.0 = start;
                }
            }
            // Bodies are far below 4 GiB: the log's buffer bounds them.
            let (payload, len) = ((base + record.payload.start) as u32, record.payload.len() as u32);
            page.1.push(RedoRecord { end, chunk, start: payload, len, op: record.op });
            self.records += 1;
        }
        self.chunks[chunk as usize].extend_from_slice(body);
        self.mtrs += 1;
        Ok(())
    }
}

/// Fills in the position of an error about a record.
fn at_lsn(error: Error, at: Lsn) -> Error {
    match error {
        Error::CorruptLog { lsn: Lsn(0), reason } => Error::CorruptLog { lsn: at, reason },
        other => other,
    }
}

/// The rooms' redo functions refuse a record that does not suit the page without a word of either. It will not suit it later: as an
/// error that may pass it would be tried again for ever, and the checkpoint wait.
fn refused(error: Error, op: u8, id: PageId) -> Error {
    match error {
        Error::Invalid { what } => bad_record(format!("operation {op} for {id}: {what}")),
        other => other,
    }
}

impl BufferPool {
    /// Analysis: reads the log from the last checkpoint and notes what each page needs; changes nothing on disk. The
    /// pool is usable afterwards, its pages are redone as they are fixed. Once, before anything else uses the pool. With `force`
    /// also where something is newer than the log, which the error log hears of.
    ///
    /// # Errors
    /// [`Error::CorruptLog`] naming the position of a record that makes no sense or has no redo function;
    /// [`Error::LogMismatch`]; [`Error::Io`].
    pub fn recover(&self, force: bool) -> Result<RecoverySummary> {
        let (checkpoint, payload) = self.log().last_checkpoint();
        self.background.set_last_checkpoint(checkpoint);
        self.read_missed(all_ended::split(&payload).1)?;
        let mut analysis = Analysis::default();
        let mut reported = checkpoint;
        let end = self.log().scan(checkpoint, &mut |start, end, body| {
            const STEP_BYTES: u64 = 256 << 20;
            if start.0 - reported.0 >= STEP_BYTES {
                reported = start;
                let mib = (start.0 - checkpoint.0) >> 20;
                self.report(Level::Info, &format!("recovery: {mib} MiB of log read"));
            }
            analysis.add(self, start, end, body)
        })?;
        let (copies, beyond) = match &self.doublewrite {
            Some(doublewrite) => doublewrite.find_copies(checkpoint, end)?,
            None => (0, None),
        };
        let beyond = match beyond {
            Some((lsn, id)) => Some((lsn, format!("the doublewrite file's copy of {id}"))),
            None => self.first_pages_beyond(end),
        };
        let log_beyond = self.log_beyond(end)?;
        let beyond = beyond.or_else(|| log_beyond.and_then(|(lsn, what)| Some((lsn, what?.to_string()))));
        // Before anything is changed: redo could replace newer pages by older ones.
        if let (Some((lsn, what)), false) = (&beyond, force) {
            let reason = format!("the log ends at LSN {end}, but {what} has LSN {lsn}");
            return Err(Error::LogMismatch { path: self.log().path(), reason });
        }
        self.log().resume_at(end)?;
        let summary = RecoverySummary {
            checkpoint_lsn: checkpoint,
            end_lsn: end,
            log_beyond: log_beyond.map(|(lsn, _)| lsn),
            mtrs: analysis.mtrs,
            records: analysis.records,
            pages: analysis.pages.len() as u64,
            doublewrite_copies: copies as u64,
        };
        self.pending.install(analysis, end);
        if let Some((lsn, what)) = beyond {
            self.report_short_log(&what, lsn);
        } else if let Some((start, _)) = log_beyond {
            let text = format!(
                "the log ends at LSN {end}, but goes on at LSN {start}: if neither the machine nor its device has failed, redo.log \
                 was damaged and what was committed after {end} is lost: restore a backup"
            );
            self.report(Level::Warning, &text);
        }
        Ok(summary)
    }

    /// Where the log goes on behind its end, and what says that it was damaged, if that is sure.
    fn log_beyond(&self, end: Lsn) -> Result<Option<(Lsn, Option<&'static str>)>> {
        // A run begins when all before it is durable.
        if let Some(&run) = self.log().generation_starts().last().filter(|&&start| start > end) {
            return Ok(Some((run, Some("the start of a run that its header tells of"))));
        }
        let frame = self.log().frame_beyond(end)?;
        Ok(frame.map(|f| (f.start, f.of_unknown_run.then_some("a frame of a run that its header does not know"))))
    }

    /// The newest of the first pages of the engine's own tablespaces that are newer than the log's end. Every transaction changes some.
    fn first_pages_beyond(&self, end: Lsn) -> Option<(Lsn, String)> {
        let mut newest = None;
        for (space, count) in FIRST_PAGES {
            let mut pages = AlignedBuf::new(count * self.page_size());
            let file = self.spaces().get(space).and_then(|space| space.file());
            // What cannot be read is told by who needs it.
            let Ok(read) = file.and_then(|file| file.read_at(&mut pages, self.page_size() as u64)) else { continue };
            for (no, bytes) in (1..).zip(pages[..read].chunks_exact(self.page_size())) {
                let id = PageId::new(space, PageNo(no));
                if page_lsn(bytes) > end && page::verify(bytes, id).is_ok() {
                    newest = newest.max(Some((page_lsn(bytes), id.to_string())));
                }
            }
        }
        newest
    }

    /// Reads from the checkpoint's payload which tablespaces earlier recoveries have given up.
    fn read_missed(&self, note: &[u8]) -> Result<()> {
        let Some(missed) = self.spaces().read_missed(note) else {
            let reason =
                "what its checkpoint notes of tablespaces cannot be read: a newer version has written it".into();
            return Err(Error::Format { path: "#myriad/redo.log".into(), reason });
        };
        if !missed.is_empty() {
            let ids: Vec<String> = missed.iter().take(TOLD_MAX).map(|(id, _)| id.to_string()).collect();
            let more = if missed.len() > TOLD_MAX { ", ..." } else { "" };
            let text = format!(
                "the files of {} tablespaces missed changes in an earlier recovery and cannot be used: {}{more}. Restore a \
                 backup, or drop their tables",
                missed.len(),
                ids.join(", ")
            );
            self.report(Level::Warning, &text);
        }
        Ok(())
    }

    /// Redoes a page whose frame the caller holds exclusively. `restored`: the page came from the doublewrite file.
    pub(crate) fn redo_page(
        &self,
        id: PageId,
        at: u32,
        bytes: &mut [u8],
        pending: &PageRedo,
        restored: bool,
    ) -> Result<()> {
        if pending.replaces_page() {
            bytes.fill(0);
        }
        let base = page_lsn(bytes);
        let mut last = base;
        let mut changes = self.redo_table().changes_of(id, bytes, !pending.replaces_page() && !restored);
        for record in &pending.records {
            if record.end <= base {
                continue;
            }
            let done = changes.redo(record.op, pending.payload(record));
            done.map_err(|error| at_lsn(refused(error, record.op, id), record.end))?;
            last = record.end;
        }
        set_page_lsn(bytes, last);
        if page::lost_reason(bytes).is_some() {
            // A lost page that could not be written and was carried forward. Sealed as if it had been read, so that its reason is found.
            page::seal(bytes);
            return page::check_lost(bytes, id);
        }
        // Also a page that has all of them: it was written in an earlier life, but may be in the operating system's or the device's
        // cache alone. Before the records go, so that the checkpoint stays behind them.
        self.mark_dirty(at, pending.first);
        self.pending.remove(id);
        self.counters.add(Counter::Redone);
        Ok(())
    }

    /// Redoes up to `max` pages that nobody has fixed yet, oldest first, and more where none of these can be read for now. Returns how
    /// many were settled, one way or the other: 0 when recovery is complete, or when none of those tried can be read for now.
    /// Background workers and simulations call this.
    pub fn redo_some(&self, max: usize) -> usize {
        let settled = self.redo_batch(max).0;
        self.report_files(settled == 0);
        settled
    }

    /// As [`BufferPool::redo_some`]; also whether it ended because no frame became free.
    fn redo_batch(&self, max: usize) -> (usize, bool) {
        loop {
            let RedoWork { pages: mut work, is_first } = self.pending.take_work(max);
            work.sort_unstable();
            let ids: Vec<PageId> = work.iter().map(|w| w.0).collect();
            self.load_batch(&ids, USAGE_UNWANTED);
            let mut exhausted = false;
            for &(id, failures) in &work {
                if !self.pending.contains(id) {
                    continue;
                }
                if exhausted {
                    // Each would wait as long again.
                    self.pending.again(id, failures);
                    continue;
                }
                if let Err(error) = self.fix_shared(id) {
                    exhausted = error == Error::BufferPoolExhausted;
                    self.redo_failed(id, failures, error);
                }
            }
            self.pending.work_done(work.len());
            let settled = work.iter().filter(|w| !self.pending.contains(w.0)).count();
            // Those of files that are there need not wait until the others are tried again.
            if settled != 0 || exhausted || !is_first || self.background.is_stopping() {
                return (settled, exhausted);
            }
        }
    }

    /// Tells of tablespaces that are waited for or were given up, where they are too many for a line each.
    fn report_files(&self, at_rest: bool) {
        let (waiting, given_up) = self.pending.not_told(at_rest);
        if let Some(n) = waiting {
            let text = format!(
                "recovery: pages of {n} tablespaces cannot be redone yet, the checkpoint waits for their files. The first \
                 {TOLD_MAX} have been named; the tablespace check names all"
            );
            self.report(Level::Warning, &text);
        }
        if let Some(n) = given_up {
            let text = format!(
                "recovery: the log has no more room, pages of {n} tablespaces are not redone. The first {TOLD_MAX} have been \
                 named. Their files are too old from now on, also if they come back: restore a backup, or drop their tables"
            );
            self.report(Level::Error, &text);
        }
    }

    fn redo_failed(&self, id: PageId, failures: u32, error: Error) {
        let later = match error {
            Error::CorruptPage { page, .. } if page == id => self.redo_lost(id, error),
            Error::CorruptLog { .. } => self.redo_lost(id, error),
            // Given up already, by an earlier recovery. Or gone, which needs no telling: the log still has what came before.
            Error::TablespaceUnavailable { .. }
                if self.spaces().check_missed(id.space).is_err() || self.spaces().is_gone(id.space) =>
            {
                self.pending.forget_space(id.space);
                None
            }
            // A damaged page is one of the catalog, which does not tell where the file is.
            Error::TablespaceUnavailable { .. }
            | Error::CorruptPage { .. }
            | Error::CorruptFile { .. }
            | Error::Format { .. } => return self.await_file(id, failures, &error),
            Error::Poisoned { .. } | Error::ShuttingDown => None,
            error => Some(error),
        };
        let Some(error) = later else { return };
        if failures + 1 == ATTEMPTS_QUIET {
            let text = format!("recovery: {id} cannot be redone yet, the checkpoint waits for it: {error}");
            self.report(Level::Error, &text);
        }
        self.pending.again(id, failures + 1);
    }

    /// Puts a lost page in the page's place; why that is left for later, if it is.
    fn redo_lost(&self, id: PageId, error: Error) -> Option<Error> {
        match self.lose_page(id) {
            Ok(Some(why @ Error::CorruptLog { .. })) => {
                self.report(Level::Error, &format!("redo of {id} failed, the page cannot be used: {why}"));
            }
            Ok(Some(why)) => self.report(Level::Error, &format!("recovery: {why}; the page cannot be used")),
            Ok(None) if self.pending.contains(id) => return Some(error),
            Ok(None) | Err(Error::Poisoned { .. } | Error::ShuttingDown) => {}
            Err(error) => return Some(error),
        }
        None
    }

    /// What is to be redone in a tablespace whose file cannot be used waits for it while the log has room: it may come back.
    /// Then it is given up, unless the file was there before: pages changed in memory wait for it, too.
    fn await_file(&self, id: PageId, failures: u32, error: &Error) {
        let space = id.space;
        let (is_new, is_told) = self.pending.wait_for(space);
        let pages = if is_new { self.pending.keep_alone(space) } else { 0 };
        if is_told {
            let text = format!(
                "recovery: {pages} pages of tablespace {space} cannot be redone yet, the checkpoint waits for the file: \
                 {error}. If it is put back before the log is full, nothing is lost"
            );
            self.report(Level::Warning, &text);
        }
        let may_go = self.log().is_short() && space != SpaceId::SYSTEM && space != SpaceId::UNDO;
        let give_up = || {
            let end = self.pending.recovered_end();
            self.spaces().give_up(space, end, &|| self.changes.has_of(space))
        };
        // In this order: a checkpoint that passes the records has the note.
        if !may_go || !give_up() {
            return self.pending.again(id, failures + 1);
        }
        let pages = self.pending.forget_space(space);
        if self.pending.note_given_up() {
            let text = format!(
                "recovery: {pages} pages of tablespace {space} are not redone, the log has no more room: {error}. Its file is \
                 too old from now on, also if it comes back: restore a backup, or drop its tables"
            );
            self.report(Level::Error, &text);
        }
    }

    /// Gives a page up that cannot be brought back, now that it has been tried once more: a page that says so takes its
    /// place, dirty since the first of the changes it has not got, and these are forgotten. Returns why; `None` if the page
    /// can be used after all, or somebody else has it at the moment. The caller holds no latch.
    ///
    /// # Errors
    /// Why it cannot be done now.
    pub(crate) fn lose_page(&self, id: PageId) -> Result<Option<Error>> {
        let space = self.spaces().get(id.space)?;
        let Some(at) = self.take_frame(id, Some(&space))? else { return Ok(None) };
        let frame = ReadFrame::from_held(self, at, id);
        let error = match self.fill(id, at, &space) {
            Ok(()) => {
                self.publish(frame.keep(), USAGE_UNWANTED);
                self.frames().get(at).latch.unlock_exclusive();
                return Ok(None);
            }
            Err(error) => error,
        };
        let of_page = match &error {
            Error::CorruptPage { page, .. } => *page == id,
            error => matches!(error, Error::CorruptLog { .. }),
        };
        let range = self.pending.range_of(id).or_else(|| self.changes.range_of(id));
        let (true, Some((first, last))) = (of_page, range) else { return Err(error) };
        // SAFETY: this call holds the frame's X latch and lends no reference.
        let bytes = unsafe { self.frames().bytes_mut(at) };
        let reason = match page::verify(bytes, id).ok().and_then(|()| page::lost_reason(bytes)) {
            // It was lost in an earlier run, and perhaps that is not durable.
            Some(reason) => reason,
            None => match &error {
                Error::CorruptPage { reason, .. } => reason.clone(),
                error => error.to_string(),
            },
        };
        page::format_lost(bytes, id, last, &reason);
        self.frames().get(frame.keep()).set_kind(PageKind::Lost as u8);
        // Before the changes go, so that the checkpoint stays behind them.
        self.mark_dirty(at, first);
        self.pending.fail(id, page::check_lost(bytes, id).err().unwrap_or_else(|| error.clone()));
        self.changes.give_up(id);
        self.forget_copy(id);
        self.publish(at, USAGE_UNWANTED);
        self.frames().get(at).latch.unlock_exclusive();
        Ok(Some(error))
    }

    /// Whether recovery has pages of this tablespace still to redo.
    pub fn awaits_redo(&self, space: SpaceId) -> bool {
        self.pending.awaits(space)
    }

    /// Redoes everything left in threads of its own (in this call without background threads). To be called once the
    /// tablespace registry can answer for every tablespace.
    ///
    /// # Errors
    /// [`Error::Io`]: the system gives not as many threads.
    pub fn redo_in_background(self: &Arc<Self>, threads: usize) -> Result<()> {
        self.pending.started.store(true, Ordering::Release);
        if self.pending.len() == 0 {
            return Ok(());
        }
        if !self.config.background_threads {
            self.redo_all();
            return Ok(());
        }
        for i in 0..threads.max(1) {
            self.background.spawn(self, &format!("myriad-redo-{i}"), None, |pool| {
                match pool.redo_some(WORKER_PAGES) {
                    0 if pool.pending.len() == 0 => None,
                    0 => Some(RETRY_PAUSE),
                    _ => Some(Duration::ZERO),
                }
            })?;
        }
        Ok(())
    }

    /// Redoes some pages, when that has been allowed: pages not redone hold the checkpoint back. Returns how many.
    pub(crate) fn redo_if_started(&self) -> usize {
        if self.pending.len() == 0 || !self.pending.started.load(Ordering::Acquire) {
            return 0;
        }
        self.redo_some(WORKER_PAGES)
    }

    /// Redoes everything left, in this call, but for what cannot be read, or finds no frame; waits for what others have begun to
    /// redo. Reports progress when it takes long.
    pub(crate) fn redo_all(&self) {
        let begun = Instant::now();
        let mut last_report = begun;
        loop {
            let rounds = self.pending.len().div_ceil(WORKER_PAGES);
            let (mut settled, mut ended) = (0, false);
            for _ in 0..rounds {
                let (pages, exhausted) = self.redo_batch(WORKER_PAGES);
                settled += pages;
                ended = exhausted;
                if ended {
                    break;
                }
                if last_report.elapsed() >= Duration::from_secs(5) {
                    last_report = Instant::now();
                    self.report(Level::Info, &format!("recovery: {} pages left to redo", self.pending.len()));
                }
            }
            if settled != 0 && !ended {
                continue;
            }
            if ended || !self.pending.is_worked_on() || begun.elapsed() >= PATIENCE || self.check_poison().is_err() {
                return self.report_files(true);
            }
            self.wait_for_batch(Duration::from_millis(1));
        }
    }

    /// Makes room where a crash left so full a log that whoever appends would wait for a checkpoint, and the checkpoint for
    /// redo: redoes all pages, writes them and takes a checkpoint. Whether that was needed. To be called once the
    /// tablespace registry can answer for every tablespace, before anything is appended.
    ///
    /// # Errors
    /// Why there is still no room to append anything: a page that can be neither redone nor given up, writes that kept
    /// failing for 30 s; [`Error::Poisoned`].
    pub fn make_room_after_crash(&self) -> Result<bool> {
        let log = self.log();
        if !log.is_short() {
            return Ok(false);
        }
        let percent = || log.age() * 100 / (log.capacity() / 7 * 8);
        let text = format!("the log is {} % full: its pages are redone and written first", percent());
        self.report(Level::Info, &text);
        self.pending.started.store(true, Ordering::Release);
        let done = self.checkpoint_now();
        if done.is_err() && self.check_poison().is_ok() {
            // For as much as could be written.
            self.take_checkpoint()?;
        }
        self.check_poison()?;
        if log.age() < log.capacity() {
            return Ok(true);
        }
        let why = match (done, self.pending.oldest_page()) {
            (Err(error), _) => error,
            (Ok(()), Some(id)) => self.fix_shared(id).err().unwrap_or(Error::BufferPoolExhausted),
            (Ok(()), None) => Error::BufferPoolExhausted,
        };
        let text = format!("the log is {} % full, and no checkpoint can make room in it: {why}", percent());
        self.report(Level::Error, &text);
        Err(why)
    }
}

/// Spaces that occur in a set of pages.
pub(crate) fn spaces_of(ids: &[PageId]) -> HashSet<SpaceId> {
    ids.iter().map(|id| id.space).collect()
}
