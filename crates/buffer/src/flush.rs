//! Writing pages: the one path by which pages reach their files, and reading many at once.
//!
//! A batch: copy pages under S latches, log durable up to the newest change copied, seal, doublewrite, write, sync the
//! files, then take the pages off the dirty lists. No latch is held during I/O. Pages changed meanwhile stay dirty from
//! their first change after the copy.

use crate::doublewrite::BATCH_PAGES;
use crate::frame::STATE_WRITING;
use crate::guard::ReadFrame;
use crate::pool::BufferPool;
use crate::recovery::{spaces_of, PageRedo};
use crate::stats::Counter;
use myriad_base::latch::LatchClass;
use myriad_base::page::{self, page_lsn};
use myriad_base::{Error, Lsn, PageId, Result, SpaceId};
use myriad_io::{AlignedBuf, File, IoRequest, SyncMark, SyncNo, Syncing, Turn};
use myriad_space::Space;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Aligned memory for batches, one for each that is under way.
pub(crate) struct BatchBuffers {
    page_size: usize,
    free: Mutex<Vec<AlignedBuf>>,
}

impl BatchBuffers {
    pub fn new(page_size: usize) -> BatchBuffers {
        BatchBuffers { page_size, free: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> AlignedBuf {
        self.free.lock().pop().unwrap_or_else(|| AlignedBuf::new(BATCH_PAGES * self.page_size))
    }

    fn give(&self, buf: AlignedBuf) {
        self.free.lock().push(buf);
    }
}

/// A page of a batch.
struct Copied {
    at: u32,
    id: PageId,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Failed,
    Durable,
}

/// What became of a batch.
#[derive(Default)]
pub(crate) struct BatchResult {
    /// Pages that are clean now, unless changed meanwhile.
    pub written: usize,
    /// Why the others are not.
    pub error: Option<Error>,
}

/// Consecutive pages of one file, consecutive in the buffer too.
struct Run {
    first: usize,
    count: usize,
    file: usize,
    offset: u64,
}

impl BufferPool {
    /// Writes the dirty pages among `candidates` (frames; emptied), in batches. With `wait` it waits for latches: the
    /// caller then holds none. Frames that are clean, latched or being written are skipped.
    pub(crate) fn write_pages(&self, candidates: &mut Vec<u32>, wait: bool) -> BatchResult {
        let mut result = BatchResult::default();
        let mut held = None;
        candidates.retain(|&at| match self.failing.holds(self.frames().get(at).page().space) {
            Some(error) => {
                held = Some(error);
                false
            }
            None => true,
        });
        // Each key read once: frames may change hands meanwhile.
        candidates.sort_by_cached_key(|&at| self.frames().get(at).page_id.load(Ordering::Relaxed));
        let mut buf = self.buffers.take();
        let mut rest = &candidates[..];
        while !rest.is_empty() {
            let (chunk, others) = rest.split_at(self.next_batch(rest));
            rest = others;
            let mut newest = Lsn(0);
            let mut batch = self.copy_batch(chunk, &mut buf, wait, &mut newest);
            if batch.is_empty() {
                continue;
            }
            // Counted before those that are doublewritten are, which are fewer.
            self.counters.add(Counter::Batches);
            let done = self.write_batch(&mut batch, &mut buf, newest);
            for copied in &batch {
                let durable = copied.outcome == Outcome::Durable;
                if durable {
                    // First: as long as it counts as being written nobody begins to keep changes of it.
                    self.changes.forget(copied.id);
                }
                self.shard_of(copied.at).dirty().written(self.frames(), copied.at, durable);
                result.written += usize::from(durable);
            }
            // Without threads there is nobody whose tries would follow each other, and no time.
            if self.background.has_threads() {
                let outcomes = batch.iter().map(|c| (c.id.space, c.outcome == Outcome::Durable));
                self.failing.note(outcomes, done.as_ref().err());
            }
            if let Err(error) = done {
                let failed = batch.iter().filter(|c| c.outcome == Outcome::Failed).count();
                self.counters.add_many(Counter::WriteErrors, failed as u64);
                self.background
                    .report_rarely(self, || format!("{failed} pages could not be written and stay in memory: {error}"));
                result.error = Some(error);
                break;
            }
        }
        self.buffers.give(buf);
        candidates.clear();
        self.background.batch_done();
        if result.written == 0 && result.error.is_none() {
            result.error = held;
        }
        result
    }

    /// How many of these frames, in the order of their pages, make a batch: it keeps all its files open, however many others
    /// are closed meanwhile.
    fn next_batch(&self, frames: &[u32]) -> usize {
        let (mut files, files_max) = (0, self.spaces().files_at_once());
        let mut last = None;
        for (i, &at) in frames.iter().enumerate().take(BATCH_PAGES) {
            let space = PageId::from_u64(self.frames().get(at).page_id.load(Ordering::Relaxed)).space;
            if last.replace(space) == Some(space) {
                continue;
            }
            if files == files_max {
                return i;
            }
            files += 1;
        }
        frames.len().min(BATCH_PAGES)
    }

    /// Copies the dirty pages of `chunk` one after the other into `buf` and marks them as being written. Leaves out those
    /// changed where a full log has no room yet: the others of the batch may be what its checkpoint waits for.
    fn copy_batch(&self, chunk: &[u32], buf: &mut [u8], wait: bool, newest: &mut Lsn) -> Vec<Copied> {
        let size = self.page_size();
        let mut batch = Vec::with_capacity(chunk.len());
        let writable = self.log().writable_end();
        for &at in chunk {
            let frame = self.frames().get(at);
            if wait {
                frame.latch.lock_shared(LatchClass::OtherPage.part(self.partition(at)));
            } else if !frame.latch.try_shared() {
                continue;
            }
            if frame.begin_write() {
                // SAFETY: the S latch is held.
                let bytes = unsafe { self.frames().bytes(at) };
                if frame.is_dirty() && page_lsn(bytes) <= writable {
                    *newest = (*newest).max(page_lsn(bytes));
                    let slot = batch.len() * size;
                    buf[slot..slot + size].copy_from_slice(bytes);
                    batch.push(Copied { at, id: frame.page(), outcome: Outcome::Failed });
                    // Who changes it from here on does so on another page than its file has, or will have.
                    self.stop_keeping(frame);
                } else {
                    frame.state.fetch_and(!STATE_WRITING, Ordering::Release);
                }
            }
            frame.latch.unlock_shared();
        }
        batch
    }

    /// Makes the copies durable in their places and says so in each page's outcome.
    fn write_batch(&self, batch: &mut [Copied], buf: &mut [u8], newest: Lsn) -> Result<()> {
        self.log().flush_to(newest)?;
        // A change that never reached the log may be among what was copied: its latch was released after the poisoning.
        self.check_poison()?;
        let size = self.page_size();
        for (copied, page) in batch.iter().zip(buf.chunks_exact_mut(size)) {
            assert_eq!(page::page_id(page), copied.id, "a frame's page has another identity than its frame");
            page::seal(page);
        }
        let copies = &buf[..batch.len() * size];
        // A torn page is no matter while a crash leaves nothing to be recovered. Asked after the log: if it is off now, all
        // that was copied is older than where it will be resumed, and the mark stays until this batch is durable.
        let area = match &self.doublewrite {
            Some(doublewrite) if self.config.doublewrite && !self.log().is_off() => {
                let area = doublewrite.write(copies)?;
                self.counters.add(Counter::DoublewriteBatches);
                Some((doublewrite, area))
            }
            _ => None,
        };
        let done = self.write_in_place(batch, copies);
        if let Some((doublewrite, area)) = area {
            doublewrite.settle(area, batch.iter().map(|c| (c.id, c.outcome == Outcome::Durable)));
        }
        done
    }

    /// Writes sealed copies to their files and syncs these.
    fn write_in_place(&self, batch: &mut [Copied], copies: &[u8]) -> Result<()> {
        let mut first_error = None;
        let files = self.files_of(batch, &mut first_error);
        let runs = self.runs_of(batch, &files);
        let size = self.page_size();
        let marks: Vec<SyncMark> = files.list.iter().map(|(space, _)| space.syncs().mark()).collect();
        for run in &runs {
            // A file that a crash left shorter than the log says: it grows as a whole, without holes that would count as room
            // later. Where it cannot, the write says what there is to say.
            let end = run.offset / size as u64 + run.count as u64;
            let _ = u32::try_from(end).map(|end| files.list[run.file].0.ensure_pages(end));
        }
        let mut requests: Vec<IoRequest<'_>> = runs
            .iter()
            .map(|run| {
                let bytes = &copies[run.first * size..(run.first + run.count) * size];
                IoRequest::write(&*files.list[run.file].1, bytes, run.offset)
            })
            .collect();
        self.io.submit(&mut requests);
        let results: Vec<Result<usize>> = requests.into_iter().map(|r| r.result).collect();
        let synced = self.sync_files(
            &files,
            &marks,
            runs.iter().zip(&results).filter(|(_, r)| r.is_ok()).map(|(run, _)| run.file),
        );
        for (run, result) in runs.iter().zip(results) {
            let result = result.and_then(|_| synced[run.file].clone());
            match result {
                Ok(()) => {
                    batch[run.first..run.first + run.count].iter_mut().for_each(|c| c.outcome = Outcome::Durable);
                    self.counters.add_many(Counter::Writes, run.count as u64);
                }
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Syncs those files of a batch that `written` names, all at the same time: a device flushes once for all who ask
    /// together. A result for each file: whether what was written to it since its mark is durable. For those that were not named
    /// it means nothing.
    fn sync_files(&self, files: &Files, marks: &[SyncMark], written: impl Iterator<Item = usize>) -> Vec<Result<()>> {
        let syncs = |i: usize| files.list[i].0.syncs();
        let wanted: BTreeSet<usize> = written.collect();
        let mut left: Vec<(usize, SyncNo)> = wanted.iter().map(|&i| (i, syncs(i).next())).collect();
        while !left.is_empty() {
            let mut mine: Vec<(usize, Syncing<'_>)> = Vec::new();
            left.retain(|&(i, sync)| match syncs(i).turn(sync) {
                Turn::Done => false,
                Turn::Mine(syncing) => {
                    mine.push((i, syncing));
                    false
                }
                Turn::Wait => true,
            });
            let mut requests: Vec<IoRequest<'_>> =
                mine.iter().map(|(i, _)| IoRequest::sync(&*files.list[*i].1)).collect();
            self.io.submit(&mut requests);
            for ((_, syncing), request) in mine.into_iter().zip(requests) {
                syncing.end(&request.result.map(|_| ()));
            }
            // Nobody who waits for others has a sync under way.
            if let Some(&(i, sync)) = left.first() {
                syncs(i).wait(sync);
            }
        }
        (0..files.list.len()).map(|i| syncs(i).outcome(marks[i])).collect()
    }

    /// The open files of a batch. Pages of dropped tablespaces count as durable: nobody will read them.
    fn files_of(&self, batch: &mut [Copied], first_error: &mut Option<Error>) -> Files {
        let mut files = Files { list: Vec::new(), by_space: HashMap::new() };
        for copied in batch {
            let space = copied.id.space;
            let known = files.by_space.entry(space).or_insert_with(|| self.file_of(space, &mut files.list));
            match known {
                Ok(Some(_)) => {}
                Ok(None) => copied.outcome = Outcome::Durable,
                Err(error) => drop(first_error.get_or_insert_with(|| error.clone())),
            }
        }
        files
    }

    /// Opens a space's file; `None` when the space was dropped.
    fn file_of(&self, id: SpaceId, list: &mut Vec<(Arc<Space>, Arc<dyn File>)>) -> Result<Option<usize>> {
        // Asked first: a dropped one the registry knows no more, any other while pages of it are in memory. So the catalog, whose
        // pages need frames, is never asked here. A page of a dropped space may have been changed after the drop, by purge for
        // one, while it was still in memory.
        if self.spaces().was_dropped(id) {
            return Ok(None);
        }
        // Once open, the file can be written even if it is dropped from here on.
        let opened = self.spaces().get(id).map(|space| {
            let file = if space.is_dropped() { None } else { Some(space.file()) };
            (space, file)
        });
        match opened {
            Ok((space, Some(Ok(file)))) => {
                list.push((space, file));
                Ok(Some(list.len() - 1))
            }
            Ok((_, None)) => Ok(None),
            Ok((space, Some(Err(_)))) if space.is_dropped() => Ok(None),
            Err(_) if self.spaces().was_dropped(id) => Ok(None),
            Ok((_, Some(Err(error)))) | Err(error) => Err(error),
        }
    }

    /// Merges neighbours into one write each.
    fn runs_of(&self, batch: &[Copied], files: &Files) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::with_capacity(batch.len());
        for (i, copied) in batch.iter().enumerate() {
            let Some(Ok(Some(file))) = files.by_space.get(&copied.id.space) else { continue };
            let offset = u64::from(copied.id.page.0) * self.page_size() as u64;
            if let Some(last) = runs.last_mut() {
                let follows = last.file == *file
                    && last.first + last.count == i
                    && last.offset + (last.count * self.page_size()) as u64 == offset;
                if follows {
                    last.count += 1;
                    continue;
                }
            }
            runs.push(Run { first: i, count: 1, file: *file, offset });
        }
        runs
    }

    /// Reads the pages of `ids` that are not in memory, all at once, with usage mark `usage`. Takes only frames that are
    /// free now. Failures are left to whoever fixes the page. Returns how many came in.
    pub(crate) fn load_batch(&self, ids: &[PageId], usage: u8) -> usize {
        let mut loaded = 0;
        // Files first: to open one may mean to read the catalog, and no latch may be held then.
        let sources: HashMap<SpaceId, Source> = spaces_of(ids)
            .into_iter()
            .filter(|id| *id != SpaceId::MEMORY)
            .filter_map(|id| Some((id, self.source_of(id).ok()?)))
            .collect();
        for chunk in ids.chunks(BATCH_PAGES / 2) {
            let loading: Vec<Loading<'_>> = chunk.iter().filter_map(|&id| self.start_loading(id, &sources)).collect();
            let mut requests: Vec<IoRequest<'_>> = loading
                .iter()
                .filter(|l| l.read)
                .map(|l| {
                    // SAFETY: this call holds the frame's X latch and lends the page to this request only.
                    let bytes = unsafe { self.frames().bytes_mut(l.frame.at) };
                    let offset = u64::from(l.frame.id.page.0) * self.page_size() as u64;
                    IoRequest::read(&*sources[&l.frame.id.space].file, bytes, offset)
                })
                .collect();
            self.io.submit(&mut requests);
            let results: Vec<Result<usize>> = requests.into_iter().map(|r| r.result).collect();
            let mut results = results.into_iter();
            for page in loading {
                let whole = !page.read
                    || results.next().expect("a result for each request").is_ok_and(|n| n == self.page_size());
                loaded += usize::from(self.end_loading(page, whole, usage));
            }
        }
        loaded
    }

    fn source_of(&self, id: SpaceId) -> Result<Source> {
        let space = self.spaces().get(id)?;
        let file = space.file()?;
        let pages = file.len()? / self.page_size() as u64;
        Ok(Source { space, file, pages })
    }

    /// Takes a frame for a page to be read ahead, unless that is pointless or frames are scarce.
    fn start_loading(&self, id: PageId, sources: &HashMap<SpaceId, Source>) -> Option<Loading<'_>> {
        let source = sources.get(&id.space)?;
        if self.is_resident(id) || self.free_frames.load(Ordering::Relaxed) < self.background.free.low() {
            return None;
        }
        let in_file = u64::from(id.page.0) < source.pages;
        if !in_file && self.pending.get(id).ok()?.is_none() {
            return None;
        }
        self.take_for_loading(id, &source.space, in_file)
    }

    /// Takes a free frame for a page, if there is one and nobody else has the page.
    pub(crate) fn take_for_loading(&self, id: PageId, space: &Space, in_file: bool) -> Option<Loading<'_>> {
        let frame = ReadFrame::from_held(self, self.try_take_frame(id, space)?, id);
        // Asked only now: until then others may have redone the page, changed and written it.
        let pending = self.pending.get(id).ok()?;
        let read = !pending.as_ref().is_some_and(|p| p.replaces_page());
        (in_file || !read).then_some(Loading { frame, pending, read })
    }

    /// The page has been read, as a whole or not: it is published or given up. Whether it came in.
    pub(crate) fn end_loading(&self, Loading { frame, pending, read }: Loading<'_>, whole: bool, usage: u8) -> bool {
        self.counters.add_many(Counter::Reads, u64::from(read));
        let came_in = whole && self.finish_fill(frame.id, frame.at, pending).is_ok();
        if came_in {
            let at = frame.keep();
            self.publish(at, usage);
            self.frames().get(at).latch.unlock_exclusive();
        }
        came_in
    }
}

/// Where pages of a tablespace are read from.
struct Source {
    space: Arc<Space>,
    file: Arc<dyn File>,
    pages: u64,
}

/// A page being read ahead.
pub(crate) struct Loading<'p> {
    pub frame: ReadFrame<'p>,
    pending: Option<Arc<PageRedo>>,
    /// Whether it is read from its file at all.
    pub read: bool,
}

struct Files {
    list: Vec<(Arc<Space>, Arc<dyn File>)>,
    by_space: HashMap<SpaceId, Result<Option<usize>>>,
}
