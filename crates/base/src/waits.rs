//! Who waits inside the engine, for what and since when: what a report tells of an engine that stands still.
//!
//! A thread notes a wait just before it goes to sleep, in a slot of its own; nobody else writes there. Waits for rows' locks are not
//! among them, as those are the users' doing. Both are told to whoever has work for the processor meanwhile ([`Sleepers`]).

use crate::latch::{LatchClass, ALL_CLASSES};
use crate::members::Members;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A latch.
    Latch(LatchClass),
    /// The log up to some point being durable.
    LogSync,
    /// A checkpoint that makes room in the log.
    LogRoom,
    /// A frame of the buffer pool for a page.
    Frame,
    /// Other mini-transactions ending, as too many would latch all frames.
    Turn,
    /// Its own read of a file.
    FileRead,
    /// Its own write.
    FileWrite,
    /// Its own sync.
    FileSync,
    /// The sync of a file that another thread makes.
    SyncTurn,
    /// A table that another thread opens.
    TableOpen,
    /// Rollback and purge leaving the trees of dropped tables.
    TreeUsers,
}

/// What is no latch, with the name users see.
const OTHERS: [(WaitFor, &str); 10] = [
    (WaitFor::LogSync, "log_sync"),
    (WaitFor::LogRoom, "log_room"),
    (WaitFor::Frame, "frame"),
    (WaitFor::Turn, "turn"),
    (WaitFor::FileRead, "file_read"),
    (WaitFor::FileWrite, "file_write"),
    (WaitFor::FileSync, "file_sync"),
    (WaitFor::SyncTurn, "sync_turn"),
    (WaitFor::TableOpen, "table_open"),
    (WaitFor::TreeUsers, "tree_users"),
];

impl WaitFor {
    fn place(self) -> usize {
        OTHERS.iter().position(|&(what, _)| what == self).expect("all but latches are listed")
    }

    /// The name users see.
    pub fn name(self) -> &'static str {
        match self {
            WaitFor::Latch(class) => class.name(),
            other => OTHERS[other.place()].1,
        }
    }

    /// A number above 0.
    fn code(self) -> u64 {
        1 + match self {
            WaitFor::Latch(class) => class as u64,
            other => (ALL_CLASSES.len() + other.place()) as u64,
        }
    }

    /// Whether it is long enough to let others work meanwhile. Most latches are not held for as long as that takes.
    fn is_sleep(self) -> bool {
        match self {
            WaitFor::Latch(class) => class == LatchClass::PageRead,
            _ => true,
        }
    }

    fn of_code(code: u64) -> Option<WaitFor> {
        let at = (code as usize).checked_sub(1)?;
        let latch = ALL_CLASSES.get(at).map(|&class| WaitFor::Latch(class));
        latch.or_else(|| Some(OTHERS.get(at - ALL_CLASSES.len())?.0))
    }
}

/// Bits of [`Slot::wait`] that say what for; the others are the microseconds from [`BEGIN`] to the wait's begin.
const CODE_BITS: u32 = 6;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;

struct Slot {
    thread: String,
    /// 0 while it does not wait.
    wait: AtomicU64,
}

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
static SLOTS: Mutex<Members<Arc<Slot>>> = Mutex::new(Members::new());

/// A thread's place in [`SLOTS`], until it ends.
struct Own {
    slot: Arc<Slot>,
    number: u64,
}

impl Own {
    fn new() -> Own {
        let current = std::thread::current();
        let id = std::fs::read_link("/proc/thread-self").ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned()));
        let thread = match (current.name(), id) {
            (Some(name), Some(id)) => format!("{name} ({id})"),
            (None, Some(id)) => id,
            (name, None) => name.unwrap_or("unknown").to_owned(),
        };
        let slot = Arc::new(Slot { thread, wait: AtomicU64::new(0) });
        let number = SLOTS.lock().join(Arc::clone(&slot));
        Own { slot, number }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        SLOTS.lock().leave(self.number);
    }
}

thread_local! {
    static OWN: Own = Own::new();
}

/// Told of sleeps by the thread that sleeps, such as a server's pool of threads, in which each works for many clients.
pub trait Sleepers: Send + Sync {
    /// The calling thread is about to sleep.
    fn falls_asleep(&self);
    /// It has woken up.
    fn wakes_up(&self);
}

static SLEEPERS: OnceLock<Box<dyn Sleepers>> = OnceLock::new();

/// From now on `sleepers` is told of all sleeps in this process. It is told for good: a later call does nothing.
pub fn tell(sleepers: Box<dyn Sleepers>) {
    let _ = SLEEPERS.set(sleepers);
}

/// A sleep of the calling thread; ends when dropped.
pub struct Sleep(());

/// The calling thread is about to sleep, and has not noted a wait.
pub fn sleep() -> Sleep {
    if let Some(sleepers) = SLEEPERS.get() {
        sleepers.falls_asleep();
    }
    Sleep(())
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(sleepers) = SLEEPERS.get() {
            sleepers.wakes_up();
        }
    }
}

/// A wait of the calling thread; ends when dropped.
pub struct Waiting {
    /// The wait that this one is a part of.
    outer: u64,
    _sleep: Option<Sleep>,
}

/// The calling thread is about to sleep.
pub fn begin(what: WaitFor) -> Waiting {
    let since = BEGIN.elapsed().as_micros() as u64;
    let outer =
        OWN.try_with(|own| own.slot.wait.swap(since << CODE_BITS | what.code(), Ordering::Relaxed)).unwrap_or(0);
    let part_of_sleep = WaitFor::of_code(outer & CODE_MASK).is_some_and(WaitFor::is_sleep);
    Waiting { outer, _sleep: (what.is_sleep() && !part_of_sleep).then(sleep) }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = OWN.try_with(|own| own.slot.wait.store(self.outer, Ordering::Relaxed));
    }
}

thread_local! {
    static KILLED: Cell<Option<&'static dyn Fn() -> bool>> = const { Cell::new(None) };
}

/// Does what changes nothing, or can be given up: a wait for a frame of the buffer pool in it, or one of a backup for the switch of
/// the log, fails soon after `killed` says so.
#[inline]
pub fn until_killed<T>(killed: &dyn Fn() -> bool, read: impl FnOnce() -> T) -> T {
    struct Outer(Option<&'static dyn Fn() -> bool>);
    impl Drop for Outer {
        fn drop(&mut self) {
            KILLED.set(self.0);
        }
    }
    // SAFETY: it is forgotten before this function ends, in whatever way, and `killed` lives that long.
    let killed = unsafe { std::mem::transmute::<&dyn Fn() -> bool, &'static dyn Fn() -> bool>(killed) };
    let _outer = Outer(KILLED.replace(Some(killed)));
    read()
}

/// Whether the calling thread does something that [`until_killed`] is to end.
pub fn is_killed() -> bool {
    KILLED.get().is_some_and(|killed| killed())
}

/// A wait that has not ended.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The thread's name, and in brackets its number in the operating system.
    pub thread: String,
    /// What it waits for.
    pub what: WaitFor,
    /// Since when.
    pub lasts: Duration,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {}: {:.1} s for {}", self.thread, self.lasts.as_secs_f64(), self.what.name())
    }
}

/// All waits in this process that have lasted so long, the longest first.
pub fn list(at_least: Duration) -> Vec<Wait> {
    let now = BEGIN.elapsed();
    let mut waits = Vec::new();
    for slot in SLOTS.lock().iter() {
        let wait = slot.wait.load(Ordering::Relaxed);
        let lasts = now.saturating_sub(Duration::from_micros(wait >> CODE_BITS));
        let what = WaitFor::of_code(wait & CODE_MASK);
        if let Some(what) = what.filter(|_| lasts >= at_least) {
            waits.push(Wait { thread: slot.thread.clone(), what, lasts });
        }
    }
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.lasts));
    waits
}

/// Whether some thread of this process is at a call that writes or syncs a file.
pub fn is_device_awaited() -> bool {
    let is_write = |wait: u64| {
        let what = WaitFor::of_code(wait & CODE_MASK);
        matches!(what, Some(WaitFor::FileWrite | WaitFor::FileSync))
    };
    SLOTS.lock().iter().any(|slot| is_write(slot.wait.load(Ordering::Relaxed)))
}

/// What passes between two looks counts for this at most.
const STEP_MAX: Duration = Duration::from_secs(1);

/// How long something has been waited for in vain, by one who looks again and again. A time in which the process was stopped, or the
/// machine, does not count: nobody could do then what is waited for.
#[derive(Clone, Copy, Debug)]
pub struct InVain {
    looked: Instant,
    sum: Duration,
}

impl InVain {
    /// From `now` on.
    pub fn since(now: Instant) -> InVain {
        InVain { looked: now, sum: Duration::ZERO }
    }

    /// Another look at `now`; how long it has been in all.
    pub fn look(&mut self, now: Instant) -> Duration {
        self.sum += now.saturating_duration_since(self.looked).min(STEP_MAX);
        self.looked = now;
        self.sum
    }

    /// Another look at `now`, in a time that does not count.
    pub fn excuse(&mut self, now: Instant) {
        self.looked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_has_not_waited() {
        let mut now = Instant::now();
        let mut vain = InVain::since(now);
        let mut pass = |vain: &mut InVain, ms| {
            now += Duration::from_millis(ms);
            vain.look(now)
        };
        assert_eq!(pass(&mut vain, 700), Duration::from_millis(700));
        assert_eq!(pass(&mut vain, 70_000), Duration::from_millis(1700));
        assert_eq!(pass(&mut vain, 0), Duration::from_millis(1700));
        now += Duration::from_millis(500);
        vain.excuse(now);
        assert_eq!(vain.look(now + Duration::from_millis(20)), Duration::from_millis(1720));
    }

    #[test]
    fn a_write_or_sync_under_way_is_seen() {
        let waiting = begin(WaitFor::FileSync);
        assert!(is_device_awaited());
        drop(waiting);
    }

    fn of_thread(name: &str) -> Vec<Wait> {
        list(Duration::ZERO).into_iter().filter(|wait| wait.thread.starts_with(name)).collect()
    }

    #[test]
    fn every_wait_has_its_code() {
        for what in ALL_CLASSES.into_iter().map(WaitFor::Latch).chain(OTHERS.map(|(what, _)| what)) {
            assert_eq!(WaitFor::of_code(what.code()), Some(what));
            assert!((1..1 << CODE_BITS).contains(&what.code()));
        }
        assert_eq!(WaitFor::of_code(0), None);
    }

    #[test]
    fn what_may_end_is_known_while_it_runs() {
        let killed = |by: bool| until_killed(&|| by, is_killed);
        assert!(killed(true) && !killed(false) && !is_killed());
        until_killed(&|| true, || assert!(!killed(false) && is_killed()));
        let panicked = std::panic::catch_unwind(|| until_killed(&|| true, || panic!("amid a read")));
        assert!(panicked.is_err() && !is_killed());
    }

    #[test]
    fn waits_are_listed_while_they_last() {
        let (say, hear) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("waits-test".into()).spawn(move || {
            let outer = begin(WaitFor::Frame);
            let inner = begin(WaitFor::Latch(LatchClass::PageRead));
            tell.send(()).unwrap();
            hear.recv().unwrap();
            drop(inner);
            tell.send(()).unwrap();
            hear.recv().unwrap();
            drop(outer);
            tell.send(()).unwrap();
            hear.recv().unwrap();
        });
        told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let waits = of_thread("waits-test (");
        assert_eq!((waits.len(), waits[0].what), (1, WaitFor::Latch(LatchClass::PageRead)));
        assert!(waits[0].lasts >= Duration::from_millis(20));
        assert!(list(Duration::from_secs(3600)).is_empty());
        say.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(of_thread("waits-test")[0].what, WaitFor::Frame);
        say.send(()).unwrap();
        told.recv().unwrap();
        assert!(of_thread("waits-test").is_empty());
        say.send(()).unwrap();
        thread.unwrap().join().unwrap();
        assert!(
            SLOTS.lock().iter().all(|slot| !slot.thread.starts_with("waits-test")),
            "a thread takes its slot along"
        );
    }
}
