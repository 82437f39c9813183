//! The pool: fixing pages, bringing them in, and finding frames for them.

use crate::background::Background;
use crate::change_buffer::ChangeBuffer;
use crate::config::{Level, PartitionStats, PoolConfig, PoolStats, Reporter};
use crate::doublewrite::Doublewrite;
use crate::failing::Failing;
use crate::flush::BatchBuffers;
use crate::frame::{Frame, FrameNo, Frames};
use crate::guard::{ExclusivePage, OptimisticPage, ReadFrame, SharedPage};
use crate::memory::MemoryPages;
use crate::ops::RedoTable;
use crate::recovery::Pending;
use crate::resize::Resize;
use crate::shard::{frames_of, shard_no, Shard, RUN_FRAMES};
use crate::stats::{Counter, Counters};
use crate::table::PageTable;
use crate::turns::Turns;
use crate::usage::{self, Now};
use crate::warm_up::WarmUp;
use crossbeam_utils::CachePadded;
use myriad_base::latch::{LatchClass, LatchPart, Taken};
use myriad_base::page::{self, PageKind, OFF_KIND};
use myriad_base::{work, Error, Lsn, PageId, Result, SpaceId};
use myriad_io::Io;
use myriad_log::Log;
use myriad_space::{Space, SpaceRegistry};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a page that does not verify is read, in all.
const READS_MAX: u32 = 5;

/// A page's latch was waited for too long.
struct TooLate;

/// Pages that name each other as no sound ones do let those who follow them wait for each other. Not told as damage, as a device that
/// does not answer has the same effect on those who wait for whoever waits for it.
#[cold]
fn latch_timeout(id: PageId) -> Error {
    const ETIME: i32 = 62;
    Error::Io { op: "latching", path: id.to_string(), errno: ETIME }
}

/// The buffer pool. One per data directory.
pub struct BufferPool {
    frames: Frames,
    table: PageTable,
    pub(crate) shards: Box<[Shard]>,
    /// Frames without a page, in all partitions.
    pub(crate) free_frames: CachePadded<AtomicUsize>,
    pub(crate) config: PoolConfig,
    pub(crate) io: Arc<dyn Io>,
    log: Arc<Log>,
    spaces: Arc<SpaceRegistry>,
    redo: RedoTable,
    reporter: Reporter,
    poisoned: AtomicBool,
    poison_reason: Mutex<String>,
    short_log_reported: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) background: CachePadded<Background>,
    pub(crate) buffers: BatchBuffers,
    pub(crate) doublewrite: Option<Doublewrite>,
    pub(crate) pending: Pending,
    pub(crate) changes: CachePadded<ChangeBuffer>,
    pub(crate) failing: Failing,
    pub(crate) memory: MemoryPages,
    pub(crate) turns: CachePadded<Turns>,
    pub(crate) resize: Resize,
    pub(crate) warm_up: WarmUp,
    pub(crate) now: Now,
}

impl BufferPool {
    /// Makes the pool for the data directory `dir` (where `#myriad/` is). Reads nothing: [`BufferPool::recover`] comes
    /// next, then [`BufferPool::start_background`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for unusable settings; [`Error::Io`] when memory or the doublewrite file is refused.
    pub fn new(
        config: PoolConfig,
        io: Arc<dyn Io>,
        dir: &Path,
        log: Arc<Log>,
        spaces: Arc<SpaceRegistry>,
        redo: RedoTable,
        reporter: Reporter,
    ) -> Result<Arc<BufferPool>> {
        use myriad_base::limits::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
        let size = config.page_size;
        if !size.is_power_of_two() || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&size) {
            return Err(Error::invalid(format!("page size {size}")));
        }
        let count = config.frames();
        if count >= u32::MAX as usize / 2 {
            return Err(Error::invalid(format!("a buffer pool of {count} pages is too large")));
        }
        let frames = Frames::new(count, config.bytes_max / size, size)?;
        let shards = make_shards(count, config.instances);
        // Copies made by an earlier run count even if this one makes none.
        let doublewrite = if config.doublewrite || io.exists(&Doublewrite::path(dir))? {
            let at_once = if config.doublewrite { config.writers() } else { 1 };
            Some(Doublewrite::open(&io, dir, size, log.uuid(), at_once)?)
        } else {
            None
        };
        Ok(Arc::new(BufferPool {
            table: PageTable::new(count),
            shards,
            free_frames: CachePadded::new(AtomicUsize::new(count)),
            background: CachePadded::new(Background::new(&config)),
            buffers: BatchBuffers::new(size),
            doublewrite,
            pending: Pending::new(),
            changes: CachePadded::new(ChangeBuffer::new(config.change_buffer_max_size)),
            failing: Failing::new(),
            memory: MemoryPages::default(),
            turns: CachePadded::default(),
            resize: Resize::new(count),
            warm_up: WarmUp::new(dir.join("#myriad")),
            now: Now::new(Arc::clone(&config.clock)),
            counters: Counters::new(),
            poisoned: AtomicBool::new(false),
            poison_reason: Mutex::new(String::new()),
            short_log_reported: AtomicBool::new(false),
            frames,
            config,
            io,
            log,
            spaces,
            redo,
            reporter,
        }))
    }

    #[inline]
    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }

    pub(crate) fn redo_table(&self) -> &RedoTable {
        &self.redo
    }

    pub(crate) fn report(&self, level: Level, text: &str) {
        (self.reporter)(level, text);
    }

    /// The number of the partition that a frame belongs to.
    #[inline]
    pub(crate) fn partition(&self, frame: u32) -> usize {
        shard_no(frame, self.shards.len() as u32) as usize
    }

    #[inline]
    pub(crate) fn shard_of(&self, frame: u32) -> &Shard {
        &self.shards[self.partition(frame)]
    }

    /// Bytes of a page.
    #[inline]
    pub fn page_size(&self) -> usize {
        self.frames.page_size()
    }

    /// The log that describes the pages' changes.
    #[inline]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The tablespaces.
    pub fn spaces(&self) -> &SpaceRegistry {
        &self.spaces
    }

    /// The page, latched shared; read from its file if it is not in memory.
    ///
    /// # Errors
    /// [`Error::CorruptPage`], [`Error::Io`], [`Error::TablespaceUnavailable`], [`Error::BufferPoolExhausted`].
    #[inline]
    pub fn fix_shared(&self, id: PageId) -> Result<SharedPage<'_>> {
        loop {
            if let Some(at) = self.lock_resident_shared(id).map_err(|TooLate| latch_timeout(id))? {
                return Ok(SharedPage::from_held(self, at, id));
            }
            if let Some(at) = self.load(id)? {
                self.frames.get(at).latch.downgrade();
                return Ok(SharedPage::from_held(self, at, id));
            }
        }
    }

    /// The page, latched exclusively; read from its file if it is not in memory.
    ///
    /// # Errors
    /// As [`BufferPool::fix_shared`].
    #[inline]
    pub fn fix_exclusive(&self, id: PageId) -> Result<ExclusivePage<'_>> {
        loop {
            if let Some(at) = self.lock_resident(id).map_err(|TooLate| latch_timeout(id))? {
                return Ok(ExclusivePage::from_held(self, at, id));
            }
            if let Some(at) = self.load(id)? {
                return Ok(ExclusivePage::from_held(self, at, id));
            }
        }
    }

    /// The page, latched shared, if it is in memory and its latch can be had.
    #[inline]
    pub fn resident_shared(&self, id: PageId) -> Option<SharedPage<'_>> {
        self.lock_resident_shared(id).ok()?.map(|at| SharedPage::from_held(self, at, id))
    }

    /// The page, latched exclusively, if it is in memory and its latch can be had.
    #[inline]
    pub fn resident_exclusive(&self, id: PageId) -> Option<ExclusivePage<'_>> {
        self.lock_resident(id).ok()?.map(|at| ExclusivePage::from_held(self, at, id))
    }

    /// Whether it is the device that the frame's latch is waited for: that takes as long as it takes.
    #[cold]
    fn is_being_read(&self, at: u32) -> bool {
        self.frames.get(at).latch_class() == LatchClass::PageRead
    }

    /// The frame of a page in memory, latched by `lock`, which wants it while it holds the page and waits no longer than it is told.
    #[inline]
    fn lock_frame(
        &self,
        id: PageId,
        lock: impl Fn(&Frame, LatchPart, Option<Duration>) -> Taken,
    ) -> std::result::Result<Option<u32>, TooLate> {
        while let Some(at) = self.table.find(&self.frames, id) {
            let frame = self.frames.get(at);
            match lock(frame, self.latch_part(at), Some(self.config.latch_wait_max)) {
                Taken::Held => {
                    usage::touch(&frame.usage, &self.now);
                    self.count_hit();
                    return Ok(Some(at));
                }
                Taken::TooLate if !self.is_being_read(at) => return Err(TooLate),
                Taken::Unwanted | Taken::TooLate => {}
            }
        }
        Ok(None)
    }

    /// The frame of a page in memory, latched shared.
    #[inline]
    fn lock_resident_shared(&self, id: PageId) -> std::result::Result<Option<u32>, TooLate> {
        // Nobody waits for a frame that has been given to another page: whoever has that may wait for a page that the
        // caller holds.
        let lock = |f: &Frame, part, limit| f.latch.lock_shared_within(part, limit, || f.holds(id.to_u64()));
        let Some(at) = self.lock_frame(id, lock)? else { return Ok(None) };
        let frame = self.frames.get(at);
        if frame.is_lost() {
            frame.latch.unlock_shared();
            return Ok(None);
        }
        Ok(Some(at))
    }

    /// The frame of a page in memory, latched exclusively.
    #[inline]
    fn lock_resident(&self, id: PageId) -> std::result::Result<Option<u32>, TooLate> {
        let Some(at) = self.lock_frame_of(id)? else { return Ok(None) };
        let frame = self.frames.get(at);
        if frame.is_lost() {
            frame.latch.unlock_exclusive_unchanged();
            return Ok(None);
        }
        Ok(Some(at))
    }

    /// The same, also if its page is a lost one.
    #[inline]
    fn lock_frame_of(&self, id: PageId) -> std::result::Result<Option<u32>, TooLate> {
        self.lock_frame(id, |f, part, limit| f.latch.lock_exclusive_within(part, limit, || f.holds(id.to_u64())))
    }

    /// A frame for a page about to be formatted, latched exclusively; nothing is read and the contents are unspecified.
    pub(crate) fn fix_new(&self, id: PageId) -> Result<ExclusivePage<'_>> {
        loop {
            if let Some(at) = self.lock_frame_of(id).map_err(|TooLate| latch_timeout(id))? {
                let frame = self.frames.get(at);
                if frame.is_lost() {
                    frame.set_kind(PageKind::Free as u8);
                    self.pending.forget(id);
                }
                return Ok(ExclusivePage::from_held(self, at, id));
            }
            if id.is_in_memory() {
                self.check_memory_limit()?;
            }
            // Known already, as its bitmap page is in memory; that of a dropped one nobody will look for.
            let space = if id.is_in_memory() { None } else { self.spaces.get(id.space).ok() };
            if let Some(at) = self.take_frame(id, space.as_deref())? {
                let frame = self.frames.get(at);
                frame.set_kind(PageKind::Free as u8);
                frame.usage.store(self.now.mark(), Ordering::Relaxed);
                frame.latch.grow_version();
                // What recovery and the change buffer still had for the page belongs to a life that ended before this one began.
                self.pending.forget(id);
                // The log may not be durable up to that end: until then a crash brings the old life back, with its changes.
                self.changes.give_up(id);
                self.forget_copy(id);
                return Ok(ExclusivePage::from_held(self, at, id));
            }
        }
    }

    /// The page, to be read without a latch; read from its file if it is not in memory.
    ///
    /// # Errors
    /// As [`BufferPool::fix_shared`].
    #[inline]
    pub fn optimistic(&self, id: PageId) -> Result<OptimisticPage<'_>> {
        if let Some(at) = self.table.find(&self.frames, id) {
            let frame = self.frames.get(at);
            // The version first: then the page id, if right, belongs to it or `validate` says no.
            if let Some(version) = frame.latch.optimistic() {
                if frame.holds(id.to_u64()) && !frame.is_lost() {
                    usage::touch(&frame.usage, &self.now);
                    self.count_hit();
                    return Ok(OptimisticPage::new(self, at, id, version));
                }
            }
        }
        // Not in memory, or a writer is inside: wait as a shared holder.
        Ok(self.fix_shared(id)?.into_optimistic())
    }

    /// The page, to be read without a latch, if it is in memory and nobody changes it. That it is looked at keeps it there no
    /// longer.
    #[inline]
    pub fn glance(&self, id: PageId) -> Option<OptimisticPage<'_>> {
        let at = self.table.find(&self.frames, id)?;
        let frame = self.frames.get(at);
        let version = frame.latch.optimistic()?;
        frame.holds(id.to_u64()).then(|| {
            self.count_hit();
            OptimisticPage::new(self, at, id, version)
        })
    }

    /// The page, latched shared, if `frame` still holds it with the contents of `version`; else `None`.
    #[inline]
    pub fn try_reuse(&self, frame: FrameNo, id: PageId, version: u64) -> Option<SharedPage<'_>> {
        if frame.0 as usize >= self.frames.len() {
            return None;
        }
        OptimisticPage::new(self, frame.0, id, version).lock_shared().inspect(|_| self.count_hit())
    }

    #[inline]
    fn count_hit(&self) {
        self.counters.add(Counter::Hits);
        work::count(|w| &w.pages_accessed, 1);
    }

    /// What the frame's latch is counted as.
    #[inline]
    pub(crate) fn latch_part(&self, at: u32) -> LatchPart {
        self.frames.get(at).latch_class().part(self.partition(at))
    }

    /// The frame that holds the page or is about to.
    pub(crate) fn frame_of(&self, id: PageId) -> Option<u32> {
        self.table.find(&self.frames, id)
    }

    /// Whether the page is in memory now.
    pub fn is_resident(&self, id: PageId) -> bool {
        self.table.find(&self.frames, id).is_some()
    }

    /// A free frame with `id` published in it, latched exclusively; `None` when another thread was faster. `space`: the page's
    /// tablespace, which stays known while the page is in memory.
    pub(crate) fn take_frame(&self, id: PageId, space: Option<&Space>) -> Result<Option<u32>> {
        let at = self.alloc_frame(id)?;
        Ok(self.publish_in(id, at, space))
    }

    /// Publishes `id`, as a page that is being read, in a free frame and latches that exclusively; `None` when another frame has
    /// the page.
    fn publish_in(&self, id: PageId, at: u32, space: Option<&Space>) -> Option<u32> {
        let frame = self.frames.get(at);
        // A reader that was led astray may hold it for a moment; it waits for nothing meanwhile.
        frame.latch.lock_exclusive(LatchClass::OtherPage.part(self.partition(at)));
        frame.begin_read();
        if self.table.insert(&self.frames, id, at) {
            match space {
                Some(space) => space.page_entered(),
                None => self.memory.entered(id),
            }
            self.changes.forget_room(id);
            return Some(at);
        }
        frame.latch.unlock_exclusive_unchanged();
        self.free_frame(at);
        None
    }

    /// Brings a page in; its frame, latched exclusively. `None` when another thread was faster.
    #[cold]
    fn load(&self, id: PageId) -> Result<Option<u32>> {
        if id.is_in_memory() {
            // It has been freed: whoever looks for it finds out that its way there is no longer valid.
            return Err(Error::corrupt(id, "no such page of in-memory tables"));
        }
        self.pending.check_failed(id)?;
        // Before a frame is taken: of a tablespace that is not known the catalog is asked, whose pages need frames.
        let space = self.spaces.get(id.space)?;
        let Some(at) = self.take_frame(id, Some(&space))? else { return Ok(None) };
        self.counters.add(Counter::Misses);
        work::count(|w| &w.pages_accessed, 1);
        let frame = ReadFrame::from_held(self, at, id);
        self.fill(id, at, &space)?;
        self.publish(at, self.now.mark());
        Ok(Some(frame.keep()))
    }

    /// A frame's new contents are complete: its readers may come.
    pub(crate) fn publish(&self, at: u32, usage: u8) {
        let frame = self.frames.get(at);
        frame.usage.store(usage, Ordering::Relaxed);
        // An optimistic reader that saw the page id early must not take the bytes it read meanwhile for good.
        frame.latch.grow_version();
    }

    /// Gives up a frame whose page could not be read; the caller holds its X latch, which is released.
    pub(crate) fn withdraw(&self, id: PageId, at: u32) {
        self.table.remove(&self.frames, id, at);
        self.frames.get(at).latch.unlock_exclusive_unwanted();
        self.left(id);
        self.free_frame(at);
    }

    /// The page has left its frame.
    fn left(&self, id: PageId) {
        if id.is_in_memory() {
            self.memory.left();
        } else {
            self.spaces.page_left(id.space);
        }
    }

    /// Reads the page into its frame, verifies it and redoes what recovery has for it.
    pub(crate) fn fill(&self, id: PageId, at: u32, space: &Arc<Space>) -> Result<()> {
        // SAFETY: the caller holds the frame's X latch and lends no reference.
        let bytes = unsafe { self.frames.bytes_mut(at) };
        let pending = self.pending.get(id)?;
        if !pending.as_ref().is_some_and(|p| p.replaces_page()) {
            let start = Instant::now();
            space.read_page(id.page, bytes)?;
            self.counters.add(Counter::Reads);
            work::count(|w| &w.pages_read, 1);
            work::count(|w| &w.read_ns, start.elapsed().as_nanos() as u64);
        } else {
            // The log alone brings the page back. Without its file it could never be written, and would hold the checkpoint
            // back for ever.
            space.file()?;
        }
        self.finish_fill(id, at, pending)
    }

    /// The part of [`BufferPool::fill`] after the read.
    pub(crate) fn finish_fill(
        &self,
        id: PageId,
        at: u32,
        pending: Option<Arc<crate::recovery::PageRedo>>,
    ) -> Result<()> {
        // SAFETY: the caller holds the frame's X latch and lends no reference.
        let bytes = unsafe { self.frames.bytes_mut(at) };
        // Its file may have been given up since it was opened for this.
        self.spaces.check_missed(id.space)?;
        let mut restored = false;
        if !pending.as_ref().is_some_and(|p| p.replaces_page()) {
            if let Err(error) = self.verify_or_read_again(id, bytes) {
                restored = self.restore_torn(id, bytes, &error)?;
                if !restored {
                    return Err(error);
                }
                page::check_lost(bytes, id)?;
            }
        }
        match pending {
            Some(pending) => self.redo_page(id, at, bytes, &pending, restored)?,
            None if self.merge_changes(id, at, bytes, restored)? => {}
            None if restored => {
                // The file needs the page again, however old its changes.
                self.mark_dirty(at, self.background.last_checkpoint());
            }
            None => {}
        }
        self.frames.get(at).set_kind(bytes[OFF_KIND]);
        self.forget_copy(id);
        Ok(())
    }

    /// The page is whole: its copy in the doublewrite file has served.
    pub(crate) fn forget_copy(&self, id: PageId) {
        if let Some(doublewrite) = &self.doublewrite {
            doublewrite.forget_copy(id);
        }
    }

    /// As [`BufferPool::verify`]. A page that does not pass is read again a few times: a device or its cable may err once.
    fn verify_or_read_again(&self, id: PageId, bytes: &mut [u8]) -> Result<()> {
        for _ in 1..READS_MAX {
            if self.verify(id, bytes).is_ok() {
                return Ok(());
            }
            std::thread::yield_now();
            self.spaces.get(id.space)?.read_page(id.page, bytes)?;
        }
        self.verify(id, bytes)
    }

    /// Whether a page as read from its file can be used: checksum, identity, an LSN that the log has reached, and
    /// contents that its kind's room accepts (after a torn write the checksum fails first). A page from beyond the log's end has changes of which other pages may have none: the log was damaged before its end.
    fn verify(&self, id: PageId, bytes: &[u8]) -> Result<()> {
        page::verify(bytes, id)?;
        let (lsn, end) = (page::page_lsn(bytes), self.log.end_lsn());
        if lsn > end {
            self.report_short_log(&id.to_string(), lsn);
            return Err(Error::corrupt(id, format!("its LSN {lsn} is beyond the log's end at {end}")));
        }
        page::check_lost(bytes, id)?;
        self.redo.check(id, bytes)
    }

    /// Whether something was found so far that is newer than the log's end.
    pub fn has_lost_log(&self) -> bool {
        self.short_log_reported.load(Ordering::Relaxed)
    }

    /// Says, once, that the log ended before something that was written later than it.
    pub(crate) fn report_short_log(&self, what: &str, lsn: Lsn) {
        if !self.short_log_reported.swap(true, Ordering::Relaxed) {
            let end = self.pending.recovered_end();
            let text = format!(
                "the log ended at LSN {end}, but {what} has LSN {lsn}: redo.log was damaged, cut short or replaced. Changes \
                 made after {end} are lost, and pages written with them cannot be used: restore a backup"
            );
            self.report(Level::Error, &text);
        }
    }

    /// Gets the doublewrite file's copy of a page that failed verification; false when there is none.
    fn restore_torn(&self, id: PageId, bytes: &mut [u8], why: &Error) -> Result<bool> {
        let Some(doublewrite) = &self.doublewrite else { return Ok(false) };
        if !doublewrite.restore(id, bytes)? {
            return Ok(false);
        }
        self.report(Level::Warning, &format!("{why}; restored from its copy in the doublewrite file"));
        Ok(true)
    }

    /// Notes that the frame's page was changed by a mini-transaction that begins at `start`. The caller holds the X
    /// latch, and its log slot keeps the checkpoint at or below `start`. Whether the page was as its file has it.
    #[inline]
    pub(crate) fn mark_dirty(&self, at: u32, start: Lsn) -> bool {
        let frame = self.frames.get(at);
        if !frame.is_mark_needed() {
            return false;
        }
        let first = self.shard_of(at).dirty().mark(&self.frames, at, start);
        self.failing.note_changed(frame);
        first
    }

    /// Puts a frame without page and latch on its free list.
    pub(crate) fn free_frame(&self, at: u32) {
        if self.retire_if_beyond(at) {
            return;
        }
        // Counted first: the count is never below what the lists hold.
        self.free_frames.fetch_add(1, Ordering::AcqRel);
        self.shard_of(at).push_free(at);
        self.serve_waiters();
    }

    /// A free frame, from the partition of the page's extent if that has one.
    fn alloc_frame(&self, id: PageId) -> Result<u32> {
        match self.try_alloc_frame(id) {
            Some(at) => Ok(at),
            None => self.wait_for_frame(id),
        }
    }

    /// Number of the partition that the page's extent is to be in.
    fn home(&self, id: PageId) -> usize {
        (id.extent_hash() >> 32) as usize % self.shards.len()
    }

    pub(crate) fn home_shard(&self, id: PageId) -> &Shard {
        &self.shards[self.home(id)]
    }

    pub(crate) fn try_alloc_frame(&self, id: PageId) -> Option<u32> {
        self.pop_any_free(self.home(id))
    }

    /// A free frame, from the partition `home` or the next one that has any.
    pub(crate) fn pop_any_free(&self, home: usize) -> Option<u32> {
        let count = self.shards.len();
        loop {
            let at = (0..count).find_map(|i| self.shards[(home + i) % count].pop_free())?;
            let left = self.free_frames.fetch_sub(1, Ordering::AcqRel) - 1;
            if left < self.background.free.low() {
                self.background.wake_provider();
            }
            if !self.retire_if_beyond(at) {
                return Some(at);
            }
        }
    }

    /// Takes the page out of a frame that is clean, cold and not latched. Returns whether that worked.
    pub(crate) fn try_evict(&self, at: u32) -> bool {
        self.evict_if(at, |id| {
            let clean = self.frames.get(at).is_clean();
            if clean {
                // SAFETY: the frame's X latch is held.
                self.note_room(id, unsafe { self.frames.bytes(at) });
            }
            clean
        })
    }

    /// Takes the page of a file out of a frame that is cold and not latched, if it `may_go`, which is asked with the X latch held. Returns
    /// whether that worked.
    pub(crate) fn evict_if(&self, at: u32, may_go: impl FnOnce(PageId) -> bool) -> bool {
        let frame = self.frames.get(at);
        if !frame.latch.try_exclusive() {
            return false;
        }
        let id = frame.page();
        let goes = id.to_u64() != crate::frame::NO_PAGE
            && !id.is_in_memory()
            && usage::is_victim(frame.usage.load(Ordering::Relaxed))
            && may_go(id);
        if !goes {
            frame.latch.unlock_exclusive_unchanged();
            return false;
        }
        self.table.remove(&self.frames, id, at);
        frame.latch.unlock_exclusive_unwanted();
        self.left(id);
        self.free_frame(at);
        self.counters.add(Counter::Evictions);
        true
    }

    /// Takes all pages that are clean and not latched out of memory, hot ones too: for measurements that begin with none.
    pub fn evict_all(&self) {
        for at in 0..self.frames.len() as u32 {
            self.frames.get(at).usage.store(usage::USAGE_COLD, Ordering::Relaxed);
            self.try_evict(at);
        }
    }

    /// Forgets what waits for a tablespace that [`SpaceRegistry::drop_spaces`] has dropped. From then on its dirty pages are not
    /// written any more; its frames become free over time (ids of tablespaces are never reused, so nobody asks for them again).
    pub fn discard_space(&self, space: SpaceId) {
        self.pending.forget_space(space);
        self.changes.forget_space(space);
        self.spaces.forget_missed(space);
    }

    /// A free frame with `id` published in it, latched exclusively, if that needs no waiting for a frame.
    pub(crate) fn try_take_frame(&self, id: PageId, space: &Space) -> Option<u32> {
        let at = self.try_alloc_frame(id)?;
        self.publish_in(id, at, Some(space))
    }

    /// Stops the engine: nothing more is logged or written to data files. The first reason stays.
    pub fn poison(&self, reason: &str) {
        let mut kept = self.poison_reason.lock();
        if !self.poisoned.load(Ordering::Acquire) {
            kept.push_str(reason);
            self.poisoned.store(true, Ordering::Release);
            drop(kept);
            self.report(Level::Error, &format!("the engine is stopped: {reason}"));
            // No page is written from here on, so no checkpoint comes.
            self.log.refuse(reason);
            self.background.wake_all();
        }
    }

    /// Passes on what the log answered. If it has failed for good the engine is stopped, and the error log hears of it now
    /// rather than when the next page is changed or written.
    ///
    /// # Errors
    /// The answer's.
    #[inline]
    pub fn heed_log<T>(&self, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|error| {
            if let (Error::Poisoned { reason }, Err(_)) = (error, self.log.check_poison()) {
                self.poison(reason);
            }
        })
    }

    /// Whether the pool is still good.
    ///
    /// # Errors
    /// [`Error::Poisoned`] with the first cause.
    #[inline]
    pub fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::Poisoned { reason: self.poison_reason.lock().clone() });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn count_mtr(&self) {
        self.counters.add(Counter::Mtrs);
    }

    /// Pages changed and not yet durable in their file.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.shards.iter().map(|s| s.dirty().len()).sum()
    }

    /// How many partitions there are.
    pub fn partition_count(&self) -> usize {
        self.shards.len()
    }

    /// Figures of each partition.
    pub fn partition_stats(&self) -> Vec<PartitionStats> {
        let frames = self.frames.len() as u32;
        let count = self.shards.len() as u32;
        let end = self.log.end_lsn();
        let of = |number: u32| {
            let shard = &self.shards[number as usize];
            let free = shard.free_len() as u64;
            let dirty = shard.dirty();
            let oldest = dirty.oldest(&self.frames);
            PartitionStats {
                frames: u64::from(frames_of(number, count, frames)),
                free_frames: free,
                dirty_pages: dirty.len() as u64,
                oldest_change_age: oldest.map_or(0, |lsn| end.0.saturating_sub(lsn.0)),
            }
        };
        (0..count).map(of).collect()
    }

    /// Figures.
    pub fn stats(&self) -> PoolStats {
        let c = &self.counters;
        let shrinking = self.shrinking_to();
        PoolStats {
            frames: self.frames.len() as u64,
            frames_lent: self.size().saturating_sub(self.frames.len()) as u64,
            frames_max: self.frames.max() as u64,
            frames_to_free: shrinking.map_or(0, |(_, left)| left as u64),
            frames_shrinking_to: shrinking.map_or(0, |(to, _)| to as u64),
            page_size: self.page_size() as u64,
            free_frames: self.free_frames.load(Ordering::Relaxed) as u64,
            dirty_pages: self.dirty_pages() as u64,
            hits: c.sum(Counter::Hits),
            misses: c.sum(Counter::Misses),
            reads: c.sum(Counter::Reads),
            writes: c.sum(Counter::Writes),
            write_errors: c.sum(Counter::WriteErrors),
            carried: c.sum(Counter::Carried),
            evictions: c.sum(Counter::Evictions),
            evicted_unwritten: c.sum(Counter::EvictedUnwritten),
            free_waits: c.sum(Counter::FreeWaits),
            // Before the batches, of which they are a part.
            doublewrite_batches: c.sum(Counter::DoublewriteBatches),
            batches: c.sum(Counter::Batches),
            checkpoints: c.sum(Counter::Checkpoints),
            checkpoint_age: self.checkpoint_age(),
            pending_redo_pages: self.pending.len() as u64,
            redone_pages: c.sum(Counter::Redone),
            mtrs: c.sum(Counter::Mtrs),
            memory_pages: self.memory.held() as u64,
            memory_pages_max: self.memory_pages_max() as u64,
            change_buffer_bytes: self.changes.bytes() as u64,
            change_buffer_pages: self.changes.pages() as u64,
            change_buffer_changes: self.changes.changes(),
            changes_buffered: c.sum(Counter::ChangesBuffered),
            changes_merged: c.sum(Counter::ChangesMerged),
            merges: c.sum(Counter::Merges),
            reads_together: c.sum(Counter::ReadsTogether),
        }
    }
}

/// Partitions of `count` frames: `wanted`, or one for each 4,096 frames, at most 16; never below 32 frames each.
fn make_shards(count: usize, wanted: usize) -> Box<[Shard]> {
    let automatic = (count >> 12).clamp(1, 16);
    let shards =
        if wanted == 0 { automatic } else { wanted }.clamp(1, 64).min((count / RUN_FRAMES as usize).max(1)) as u32;
    (0..shards).map(|number| Shard::new(number, shards, count as u32)).collect()
}
