//! Tablespaces whose pages cannot be written for now, and what keeps them from harming others:
//!
//! - Between two tries their pages are left alone: else all who clean and provide would try them again and again, through the
//!   doublewrite file, and have no time for the pages of others.
//! - They may take a part of the memory ([`POOL_PART`]) and a part of the log ([`LOG_PART`]). Beyond that changes of their tables
//!   are refused ([`BufferPool::check_writable`]), with the error that a write gave.
//! - The checkpoint does not wait for them: when the log grows old, such a page is logged whole, and what was logged for it before
//!   is needed no more ([`BufferPool::carry_forward`]).

use crate::background::RETRY_PAUSE;
use crate::cleaner::CLEANER_PAGES;
use crate::config::Level;
use crate::frame::Frame;
use crate::guard::ExclusivePage;
use crate::mtr::Mtr;
use crate::pool::BufferPool;
use crate::stats::Counter;
use myriad_base::{Error, Lsn, PageId, Result, SpaceId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Part of the pool's pages that may wait in memory because they cannot be written.
const POOL_PART: usize = 4;
/// Part of the log's capacity that they may take when they are logged whole, each time the log has grown old: less than what is
/// left of the log where all others wait for room.
const LOG_PART: u64 = 10;
/// What is logged beside a page, at most.
const IMAGE_EXTRA: u64 = 256;
/// Of a cleaner's time, one part in so many at most is for counting them.
const LOOK_PART: u32 = 20;

struct Failed {
    /// When they are tried again.
    again: Instant,
    error: Error,
}

pub(crate) struct Failing {
    /// Whether there are any, so that nobody takes the lock for nothing.
    any: AtomicBool,
    spaces: Mutex<BTreeMap<SpaceId, Failed>>,
    /// How many pages wait for them, as counted last, and those changed first since.
    pages: AtomicUsize,
    /// Whether they have been counted since the first of them failed.
    counted: AtomicBool,
    /// Whether the error log has heard that these are too many.
    told: AtomicBool,
    /// When they are counted and tried next.
    next_look: Mutex<Instant>,
}

impl Failing {
    pub fn new() -> Failing {
        Failing {
            any: AtomicBool::new(false),
            spaces: Mutex::default(),
            pages: AtomicUsize::new(0),
            counted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            next_look: Mutex::new(Instant::now()),
        }
    }

    #[inline]
    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Of pages that were to be written, the tablespace of each and whether it is durable now; and the first error, if one
    /// is not.
    pub fn note(&self, pages: impl Iterator<Item = (SpaceId, bool)>, error: Option<&Error>) {
        if error.is_none() && !self.any() {
            return;
        }
        let mut spaces = self.spaces.lock();
        if spaces.is_empty() {
            self.counted.store(false, Ordering::Release);
            *self.next_look.lock() = Instant::now();
        }
        let again = Instant::now() + RETRY_PAUSE;
        let mut failed = BTreeSet::new();
        for (space, durable) in pages {
            match error {
                Some(error) if !durable && failed.insert(space) => {
                    spaces.insert(space, Failed { again, error: error.clone() });
                }
                _ if durable && !failed.contains(&space) => drop(spaces.remove(&space)),
                _ => {}
            }
        }
        self.any.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// A page has a change that is not durable, the first perhaps.
    #[inline]
    pub fn note_changed(&self, frame: &Frame) {
        if self.contains(frame.page().space) {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Why pages of the tablespace are left alone at the moment, if they are.
    #[inline]
    pub fn holds(&self, space: SpaceId) -> Option<Error> {
        if !self.any() {
            return None;
        }
        let spaces = self.spaces.lock();
        spaces.get(&space).filter(|failed| Instant::now() < failed.again).map(|failed| failed.error.clone())
    }

    /// Whether the last try to write a page of the tablespace failed.
    #[inline]
    pub fn contains(&self, space: SpaceId) -> bool {
        self.any() && self.spaces.lock().contains_key(&space)
    }

    /// Whether it is time for another look; the caller then has it to himself.
    fn is_due(&self) -> bool {
        let mut next_look = self.next_look.lock();
        let now = Instant::now();
        let due = *next_look <= now;
        if due {
            *next_look = now + RETRY_PAUSE;
        }
        due
    }
}

/// What pages that cannot be written come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingWrites {
    /// What the last tries failed with, of tablespaces that are still there: each sentence once.
    pub errors: BTreeSet<String>,
    /// How many pages wait in memory.
    pub pages: usize,
    /// Whether these are so many that changes of their tables are refused.
    pub refused: bool,
}

impl BufferPool {
    /// What cannot be written.
    pub fn failing_writes(&self) -> FailingWrites {
        let spaces = self.failing.spaces.lock();
        let errors: Vec<_> = spaces.iter().map(|(&space, failed)| (space, failed.error.to_string())).collect();
        drop(spaces);
        let there = errors.into_iter().filter(|&(space, _)| !self.spaces().was_dropped(space));
        let errors: BTreeSet<_> = there.map(|(_, error)| error).collect();
        if errors.is_empty() {
            return FailingWrites::default();
        }
        FailingWrites { errors, pages: self.failing.pages.load(Ordering::Relaxed), refused: self.refuses_changes() }
    }

    /// To be asked before a row of the tablespace is changed, unless the change takes back another.
    ///
    /// # Errors
    /// Why the tablespace, or undo, cannot be written, where so much waits for that already that no more may be added.
    #[inline]
    pub fn check_writable(&self, space: SpaceId) -> Result<()> {
        if !self.failing.any() || !self.refuses_changes() {
            return Ok(());
        }
        let spaces = self.failing.spaces.lock();
        let failed = [space, SpaceId::UNDO].into_iter().find_map(|space| spaces.get(&space));
        failed.map_or(Ok(()), |failed| Err(failed.error.clone()))
    }

    /// How many pages may wait.
    fn failing_pages_max(&self) -> usize {
        let of_pool = self.frames().len() / POOL_PART;
        if self.log().is_off() {
            return of_pool;
        }
        of_pool.min(self.log_part_in_pages())
    }

    fn log_part_in_pages(&self) -> usize {
        (self.log().capacity() / LOG_PART) as usize / self.page_size()
    }

    /// Whether more of the tablespace's pages than wait to be written already had better not come into memory.
    pub(crate) fn holds_too_many(&self, space: SpaceId) -> bool {
        self.failing.any() && self.refuses_changes() && self.failing.contains(space)
    }

    fn refuses_changes(&self) -> bool {
        self.failing.pages.load(Ordering::Relaxed) > self.failing_pages_max()
    }

    /// Counts the pages that cannot be written and tries one of each tablespace again, if it is time to. Whether there are any.
    pub(crate) fn try_failing(&self) -> bool {
        if !self.failing.any() {
            self.note_failing_pages(0);
            return false;
        }
        if !self.failing.is_due() {
            return true;
        }
        let begun = Instant::now();
        let mut waiting = BTreeMap::new();
        for at in 0..self.frames().len() as u32 {
            let frame = self.frames().get(at);
            if frame.is_dirty() {
                let (_, pages) = waiting.entry(frame.page().space).or_insert((at, 0));
                *pages += 1;
            }
        }
        // Of a large pool the look takes its time.
        *self.failing.next_look.lock() = Instant::now() + RETRY_PAUSE.max(begun.elapsed() * LOOK_PART);
        let mut spaces = self.failing.spaces.lock();
        // Of those dropped nothing waits.
        spaces.retain(|space, _| waiting.contains_key(space));
        waiting.retain(|space, _| spaces.contains_key(space));
        let mut tried: Vec<_> = waiting.iter().map(|(space, &(at, _))| (spaces[space].again, at)).collect();
        self.failing.any.store(!spaces.is_empty(), Ordering::Relaxed);
        drop(spaces);
        self.note_failing_pages(waiting.values().map(|&(_, pages)| pages).sum());
        self.failing.counted.store(true, Ordering::Release);
        // Those that were tried longest ago.
        tried.sort_unstable();
        tried.truncate(CLEANER_PAGES);
        // Its error is told, and noted, where it is met.
        let _ = self.write_pages(&mut tried.into_iter().map(|(_, at)| at).collect(), false);
        self.failing.any()
    }

    fn note_failing_pages(&self, pages: usize) {
        self.failing.pages.store(pages, Ordering::Relaxed);
        let refused = self.refuses_changes();
        if self.failing.told.swap(refused, Ordering::Relaxed) == refused {
            return;
        }
        if refused {
            let keeps_log = self.too_many_to_carry() && !self.log().is_off();
            let hint = match keeps_log {
                true => "; as long as the log keeps what has changed them, a larger myriad_log_capacity makes room for others",
                false => "",
            };
            let text =
                format!("{pages} pages cannot be written: changes of their tables are refused until they can be{hint}");
            self.report(Level::Error, &text);
        } else {
            self.report(Level::Info, "changes are no longer refused: pages can be written again");
        }
    }

    /// Whether the log would fill with the pages that cannot be written.
    fn too_many_to_carry(&self) -> bool {
        self.failing.pages.load(Ordering::Relaxed) > 2 * self.log_part_in_pages()
    }

    /// Logs pages changed before `limit` that cannot be written, whole, so that the checkpoint need not wait for them. Returns how
    /// many. They are the oldest of each partition, as far as those cannot be written. Does nothing where they are so many that
    /// the log would fill with them, or nobody knows yet how many they are.
    pub(crate) fn carry_forward(&self, limit: Lsn) -> Result<usize> {
        if !self.failing.any() || !self.failing.counted.load(Ordering::Acquire) {
            return Ok(0);
        }
        if self.too_many_to_carry() {
            return Ok(0);
        }
        let mut frames = Vec::new();
        for shard in &self.shards {
            shard.dirty().collect(self.frames(), limit, CLEANER_PAGES.div_ceil(self.shards.len()), &mut frames);
        }
        self.collect_noted(limit, CLEANER_PAGES, &mut frames);
        {
            let spaces = self.failing.spaces.lock();
            frames.retain(|&at| spaces.contains_key(&self.frames().get(at).page().space));
        }
        let mut logged = Vec::with_capacity(frames.len());
        let mut end = Lsn(0);
        let size = self.page_size();
        for at in frames {
            let Some(mut mtr) = Mtr::start_if_room(self, size as u64 + IMAGE_EXTRA)? else { break };
            let Some((page, since)) = self.latch_dirty(at) else { continue };
            let id = page.id();
            let noted = self.changes.first_of(id);
            let page = mtr.adopt(page);
            mtr.image(page, size..size, |_| ());
            end = mtr.commit_and(|start, _| logged.push((at, id, since, noted, start)))?;
        }
        // Before it is durable what was logged earlier is needed.
        self.log().flush_to(end)?;
        let carried = logged.into_iter().filter(|&(at, id, since, noted, start)| {
            let mut dirty = self.shard_of(at).dirty();
            // It may have been written by now, and the frame have another page, taken to be as old (`DirtyList::position`): with the
            // list locked a page that has changes stays where it is.
            let advanced = self.frames().get(at).holds(id.to_u64()) && dirty.advance(self.frames(), at, since, start);
            drop(dirty);
            if let (true, Some(first)) = (advanced, noted) {
                self.changes.forget_first(id, first);
            }
            advanced
        });
        let carried = carried.count();
        self.counters.add_many(Counter::Carried, carried as u64);
        Ok(carried)
    }

    /// The frame's page, if it has changes, is not being written and can be latched at once; and since when it has changes.
    fn latch_dirty(&self, at: u32) -> Option<(ExclusivePage<'_>, Lsn)> {
        let frame = self.frames().get(at);
        if !frame.latch.try_exclusive() {
            return None;
        }
        let id = PageId::from_u64(frame.page_id.load(Ordering::Relaxed));
        // Released when it goes.
        let page = ExclusivePage::from_held(self, at, id);
        let since = self.shard_of(at).dirty().since(self.frames(), at)?;
        Some((page, since))
    }
}
