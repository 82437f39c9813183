//! The frames' latch on `loom`: a parking lot of its parts behind the calls of `parking_lot_core`, and what is explored.

use super::{HybridLatch, LatchClass, Taken};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken, DEFAULT_UNPARK_TOKEN};
use std::time::{Duration, Instant};

/// Who sleeps, in order.
#[derive(Default)]
struct Lot {
    sleepers: Vec<Arc<Sleeper>>,
    /// The limit of every sleep that has one has passed.
    is_late: bool,
}

struct Sleeper {
    key: usize,
    token: ParkToken,
    has_limit: bool,
    thread: thread::Thread,
    woken: AtomicBool,
    late: AtomicBool,
}

loom::lazy_static! {
    static ref LOT: Mutex<Lot> = Mutex::default();
}

fn lot() -> loom::sync::MutexGuard<'static, Lot> {
    LOT.lock().unwrap()
}

pub(super) unsafe fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(usize, bool),
    token: ParkToken,
    end: Option<Instant>,
) -> ParkResult {
    let me = {
        let mut lot = lot();
        if !validate() {
            return ParkResult::Invalid;
        }
        let me = Arc::new(Sleeper {
            key,
            token,
            has_limit: end.is_some(),
            thread: thread::current(),
            woken: AtomicBool::new(false),
            late: AtomicBool::new(end.is_some() && lot.is_late),
        });
        lot.sleepers.push(Arc::clone(&me));
        me
    };
    before_sleep();
    while !me.woken.load(Ordering::Acquire) {
        if me.late.load(Ordering::Acquire) {
            let mut lot = lot();
            let Some(at) = lot.sleepers.iter().position(|s| Arc::ptr_eq(s, &me)) else { break };
            lot.sleepers.remove(at);
            let is_last = lot.sleepers.iter().all(|s| s.key != key);
            timed_out(key, is_last);
            return ParkResult::TimedOut;
        }
        thread::park();
    }
    ParkResult::Unparked(DEFAULT_UNPARK_TOKEN)
}

pub(super) unsafe fn unpark_filter(
    key: usize,
    mut filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut result = UnparkResult::default();
    let mut woken = Vec::new();
    {
        let mut lot = lot();
        let mut stopped = false;
        lot.sleepers.retain(|sleeper| {
            if sleeper.key != key {
                return true;
            }
            let choice = if stopped { FilterOp::Stop } else { filter(sleeper.token) };
            stopped |= matches!(choice, FilterOp::Stop);
            let stays = !matches!(choice, FilterOp::Unpark);
            match stays {
                true => result.have_more_threads = true,
                false => woken.push(Arc::clone(sleeper)),
            }
            stays
        });
        result.unparked_threads = woken.len();
        callback(result);
    }
    for sleeper in woken {
        sleeper.woken.store(true, Ordering::Release);
        sleeper.thread.unpark();
    }
    result
}

/// The limit of all sleeps passes, now or at any moment from now on.
fn all_are_late() {
    let mut lot = lot();
    lot.is_late = true;
    for sleeper in lot.sleepers.iter().filter(|s| s.has_limit) {
        sleeper.late.store(true, Ordering::Release);
        sleeper.thread.unpark();
    }
}

const CLASS: LatchClass = LatchClass::OtherPage;
const LIMIT: Option<Duration> = Some(Duration::from_secs(1));

/// A page, and words as an optimistic reader sees them.
struct Page {
    latch: HybridLatch,
    writes: UnsafeCell<u64>,
    words: [AtomicU64; 2],
    unwanted: AtomicBool,
}

// SAFETY: whether the cell is touched under its latch only is what is explored.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Arc<Page> {
        Arc::new(Page {
            latch: HybridLatch::default(),
            writes: UnsafeCell::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            unwanted: AtomicBool::new(false),
        })
    }

    /// The caller holds the latch in exclusive mode.
    fn change(&self) {
        // SAFETY: see above.
        self.writes.with_mut(|p| unsafe { *p += 1 });
        self.words.iter().for_each(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    }

    /// The caller holds the latch in either mode.
    fn look(&self) -> u64 {
        // SAFETY: see above.
        let seen = self.writes.with(|p| unsafe { *p });
        self.words.iter().for_each(|word| assert_eq!(word.load(Ordering::Relaxed), seen));
        seen
    }

    fn is_wanted(&self) -> bool {
        !self.unwanted.load(Ordering::Relaxed)
    }
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Act {
    Write,
    /// Holds it exclusively and changes nothing.
    Try,
    Read,
    WriteAndRead,
    /// Wants it while it is wanted.
    WriteWanted,
    ReadWanted,
    /// With a limit.
    WriteSoon,
    ReadSoon,
    /// The limits pass.
    Clock,
}

impl Act {
    /// Returns how often it has changed the page.
    fn run(self, page: &Page) -> u64 {
        let latch = &page.latch;
        match self {
            Act::Write => {
                latch.lock_exclusive(CLASS);
                page.change();
                latch.unlock_exclusive();
                1
            }
            Act::Try => {
                latch.lock_exclusive(CLASS);
                page.look();
                latch.unlock_exclusive_unchanged();
                0
            }
            Act::Read => {
                latch.lock_shared(CLASS);
                page.look();
                latch.unlock_shared();
                0
            }
            Act::WriteAndRead => {
                latch.lock_exclusive(CLASS);
                page.change();
                latch.downgrade();
                page.look();
                latch.unlock_shared();
                1
            }
            Act::WriteWanted => {
                let held = latch.lock_exclusive_while(CLASS, || page.is_wanted());
                if held {
                    page.change();
                    latch.unlock_exclusive();
                }
                u64::from(held)
            }
            Act::ReadWanted => {
                if latch.lock_shared_while(CLASS, || page.is_wanted()) {
                    page.look();
                    latch.unlock_shared();
                }
                0
            }
            Act::WriteSoon => match latch.lock_exclusive_within(CLASS, LIMIT, || true) {
                Taken::Held => {
                    page.change();
                    latch.unlock_exclusive();
                    1
                }
                _ => 0,
            },
            Act::ReadSoon => {
                if latch.lock_shared_within(CLASS, LIMIT, || true) == Taken::Held {
                    page.look();
                    latch.unlock_shared();
                }
                0
            }
            Act::Clock => {
                all_are_late();
                0
            }
        }
    }
}

/// Every thread ends, nobody sees half a change, and nothing is left of holders.
fn explore(preemptions: usize, mine: &'static [Act], theirs: &'static [&'static [Act]]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let page = Page::new();
        let run = |acts: &'static [Act]| {
            let page = Arc::clone(&page);
            thread::spawn(move || acts.iter().map(|act| act.run(&page)).sum::<u64>())
        };
        let running: Vec<_> = theirs.iter().map(|acts| run(acts)).collect();
        let mut changes: u64 = mine.iter().map(|act| act.run(&page)).sum();
        changes += running.into_iter().map(|t| t.join().unwrap()).sum::<u64>();
        assert!(page.latch.try_exclusive());
        assert_eq!(page.look(), changes);
        assert_eq!(page.latch.version(), changes);
    });
}

use Act::{Clock, Read, ReadSoon, ReadWanted, Try, Write, WriteAndRead, WriteSoon, WriteWanted};

#[test]
fn loom_two_exclude_each_other_and_wake_each_other() {
    explore(3, &[Write, Read], &[&[Write, Read]]);
    explore(3, &[WriteAndRead, Try], &[&[Write, Read]]);
}

#[test]
fn loom_of_three_nobody_sleeps_on() {
    explore(1, &[Write], &[&[Write], &[Write]]);
    explore(1, &[Write], &[&[Read], &[Read]]);
    explore(1, &[WriteAndRead], &[&[Try], &[Read]]);
}

#[test]
fn loom_who_gives_up_leaves_nobody_asleep() {
    explore(1, &[Write], &[&[WriteSoon], &[Clock]]);
    explore(1, &[Clock, Write], &[&[ReadSoon], &[Write]]);
    explore(1, &[Clock, Write], &[&[WriteSoon], &[Read]]);
}

/// Whoever has the latch next waits for a sleeper to leave.
#[test]
fn loom_all_who_sleep_learn_that_it_is_unwanted() {
    for act in [ReadWanted, WriteWanted] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.check(move || {
            let page = Page::new();
            let latch = &page.latch;
            latch.lock_exclusive(CLASS);
            let running: Vec<_> = (0..2)
                .map(|_| {
                    let page = Arc::clone(&page);
                    thread::spawn(move || act.run(&page))
                })
                .collect();
            page.unwanted.store(true, Ordering::Relaxed);
            latch.unlock_exclusive_unwanted();
            latch.lock_exclusive(CLASS);
            running.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), 0));
            latch.unlock_exclusive();
        });
    }
}

/// A frame and what it holds, as those see it who hold no latch.
struct Frame {
    latch: HybridLatch,
    page_id: AtomicU64,
    words: [AtomicU64; 2],
}

const NO_PAGE: u64 = 0;

impl Frame {
    fn new() -> Arc<Frame> {
        let words = [AtomicU64::new(NO_PAGE), AtomicU64::new(NO_PAGE)];
        Arc::new(Frame { latch: HybridLatch::default(), page_id: AtomicU64::new(NO_PAGE), words })
    }

    /// As the buffer pool does: the page's id is seen before its bytes are.
    fn fill(&self, id: u64) {
        self.latch.lock_exclusive(CLASS);
        self.page_id.store(id, Ordering::Release);
        self.words.iter().for_each(|word| word.store(id, Ordering::Relaxed));
        self.latch.grow_version();
        self.latch.unlock_exclusive_unchanged();
    }

    fn empty(&self) {
        assert!(self.latch.try_exclusive());
        self.page_id.store(NO_PAGE, Ordering::Release);
        self.latch.unlock_exclusive_unwanted();
    }

    /// What the page has, where it was in the frame from the first look to the last.
    fn look(&self, id: u64) -> Option<[u64; 2]> {
        let version = self.latch.optimistic()?;
        if self.page_id.load(Ordering::Acquire) != id {
            return None;
        }
        let seen = [0, 1].map(|i| self.words[i].load(Ordering::Relaxed));
        self.latch.validate(version).then_some(seen)
    }
}

#[test]
fn loom_who_holds_no_latch_takes_no_other_page_for_his_own() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let frame = Frame::new();
        frame.fill(1);
        let writer = Arc::clone(&frame);
        let writer = thread::spawn(move || {
            writer.empty();
            writer.fill(2);
        });
        assert!(frame.look(1).is_none_or(|seen| seen == [1; 2]));
        writer.join().unwrap();
        assert_eq!((frame.look(1), frame.look(2)), (None, Some([2; 2])));
    });
}
