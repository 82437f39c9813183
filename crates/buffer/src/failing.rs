//! Tablespaces whose pages cannot be written, or read, for now, and what keeps them from harming others:
//!
//! - Between two tries their pages are left alone: else all who clean and provide would try them again and again, through the
//!   doublewrite file, and have no time for the pages of others.
//! - They may take a part of the memory ([`POOL_PART`]) and a part of the log ([`LOG_PART`]). Beyond that changes of their tables
//!   are refused ([`BufferPool::check_writable`]), with the error that a write gave.
//! - No more of their pages get changes unread, or leave memory unwritten.
//! - The checkpoint does not wait for them (`carry.rs`).

use crate::background::{IDLE, RETRY_PAUSE};
use crate::cleaner::CLEANER_PAGES;
use crate::config::Level;
use crate::frame::Frame;
use crate::pool::BufferPool;
use myriad_base::{Error, Result, SpaceId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Part of the pool's pages that may wait in memory because they cannot be written.
const POOL_PART: usize = 4;
/// Part of the log's capacity that they may take when they are logged whole, each time the log has grown old: less than what is
/// left of the log where all others wait for room.
const LOG_PART: u64 = 10;
/// Of a cleaner's time, one part in so many at most is for counting them.
const LOOK_PART: u32 = 20;

struct Failed {
    /// When they are tried again.
    again: Instant,
    error: Error,
}

pub(crate) struct Failing {
    /// Whether there are any that cannot be written, so that nobody takes the lock for nothing.
    any: AtomicBool,
    spaces: Mutex<BTreeMap<SpaceId, Failed>>,
    /// The same of those that cannot be read, and when they are tried again.
    any_unreadable: AtomicBool,
    unreadable: Mutex<BTreeMap<SpaceId, Instant>>,
    /// Held by who logs once more what they need of the log.
    pub carrying: Mutex<()>,
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
            any_unreadable: AtomicBool::new(false),
            unreadable: Mutex::default(),
            carrying: Mutex::default(),
            pages: AtomicUsize::new(0),
            counted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            next_look: Mutex::new(Instant::now()),
        }
    }

    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether they have been counted since the first of them failed.
    pub fn are_counted(&self) -> bool {
        self.counted.load(Ordering::Acquire)
    }

    /// A page of the tablespace was to be read for its changes and could not be.
    pub fn note_unreadable(&self, space: SpaceId) {
        let mut unreadable = self.unreadable.lock();
        unreadable.insert(space, Instant::now() + IDLE);
        self.any_unreadable.store(true, Ordering::Relaxed);
    }

    /// Forgets those that are to be tried again.
    pub fn forget_unreadable(&self) {
        if self.any_unreadable.load(Ordering::Relaxed) {
            let now = Instant::now();
            let mut unreadable = self.unreadable.lock();
            unreadable.retain(|_, again| now < *again);
            self.any_unreadable.store(!unreadable.is_empty(), Ordering::Relaxed);
        }
    }

    /// Whether the last try to write a page of the tablespace failed, or one to read a page for its changes, a moment ago.
    #[inline]
    pub fn hinders(&self, space: SpaceId) -> bool {
        self.contains(space) || self.any_unreadable.load(Ordering::Relaxed) && self.is_unreadable(space)
    }

    #[cold]
    fn is_unreadable(&self, space: SpaceId) -> bool {
        self.unreadable.lock().get(&space).is_some_and(|&again| Instant::now() < again)
    }

    /// Whether any tablespace hinders.
    pub fn any_hinders(&self) -> bool {
        self.any() || self.any_unreadable.load(Ordering::Relaxed)
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

    fn refuses_changes(&self) -> bool {
        self.failing.pages.load(Ordering::Relaxed) > self.failing_pages_max()
    }

    /// Counts the pages that cannot be written and tries one of each tablespace again, if it is time to. Whether there are any.
    pub(crate) fn try_failing(&self) -> bool {
        self.failing.forget_unreadable();
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
    pub(crate) fn too_many_to_carry(&self) -> bool {
        self.failing.pages.load(Ordering::Relaxed) > 2 * self.log_part_in_pages()
    }

    /// Whether it would with so much that was changed on pages that are not in memory.
    pub(crate) fn too_much_to_carry(&self, bytes: usize) -> bool {
        bytes as u64 > 2 * (self.log().capacity() / LOG_PART)
    }
}
