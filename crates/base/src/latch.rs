//! Latches with counters.
//!
//! A latch is held for a short time to keep memory consistent; a lock (room `txn`) is held to a transaction's end. Each
//! latch belongs to a [`LatchClass`], whose counters are always on: acquisitions (by partition), contended acquisitions, wait
//! time.
//!
//! [`HybridLatch`] is the frames' latch: shared and exclusive, and a version that lets a reader look at the data without
//! writing to the latch's cache line and learn afterwards whether a writer came between (optimistic lock coupling: Leis
//! et al., "Optimistic Lock Coupling", 2019). The version grows with each release of an exclusive holder. `loom` explores it.

#[cfg(all(test, loom))]
mod on_loom;

use crate::waits::{self, WaitFor};
#[cfg(all(test, loom))]
use loom::sync::atomic::{fence, AtomicU64 as Word};
#[cfg(all(test, loom))]
use on_loom::{park, unpark_filter};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(all(test, loom)))]
use parking_lot_core::{park, unpark_filter};
use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkResult, DEFAULT_UNPARK_TOKEN};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{fence, AtomicU64 as Word};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a latch protects. One row of `MYRIAD_LATCHES` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LatchClass {
    /// An index page's frame.
    IndexPage,
    /// An undo page's frame.
    UndoPage,
    /// Any other page's frame (headers, bitmaps, overflow).
    OtherPage,
    /// The frame of a page that somebody is reading: who waits here waits for the device.
    PageRead,
    /// A page table bucket.
    PageTable,
    /// A partition's free list.
    FreeList,
    /// A partition's dirty list.
    DirtyList,
    /// The log's writer.
    LogWrite,
    /// A slot of the lock table.
    LockTable,
    /// The transaction system's lists.
    TrxSystem,
    /// The catalog cache.
    Catalog,
    /// A shard of the change buffer.
    ChangeBuffer,
}

/// Number of [`LatchClass`]es.
pub const LATCH_CLASSES: usize = 12;

/// All classes, in the order of their numbers.
pub const ALL_CLASSES: [LatchClass; LATCH_CLASSES] = [
    LatchClass::IndexPage,
    LatchClass::UndoPage,
    LatchClass::OtherPage,
    LatchClass::PageRead,
    LatchClass::PageTable,
    LatchClass::FreeList,
    LatchClass::DirtyList,
    LatchClass::LogWrite,
    LatchClass::LockTable,
    LatchClass::TrxSystem,
    LatchClass::Catalog,
    LatchClass::ChangeBuffer,
];

impl LatchClass {
    /// The name users see.
    pub fn name(self) -> &'static str {
        match self {
            LatchClass::IndexPage => "index_page",
            LatchClass::UndoPage => "undo_page",
            LatchClass::OtherPage => "other_page",
            LatchClass::PageRead => "page_read",
            LatchClass::PageTable => "page_table",
            LatchClass::FreeList => "free_list",
            LatchClass::DirtyList => "dirty_list",
            LatchClass::LogWrite => "log_write",
            LatchClass::LockTable => "lock_table",
            LatchClass::TrxSystem => "trx_system",
            LatchClass::Catalog => "catalog",
            LatchClass::ChangeBuffer => "change_buffer",
        }
    }
}

/// Partitions of a class that are told apart.
const PARTITIONS: usize = 64;

/// A partition of a class: what an acquisition is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatchPart {
    class: LatchClass,
    partition: u8,
}

impl LatchClass {
    /// The partition with this number; numbers that differ by a multiple of 64 are counted as one.
    #[inline]
    pub const fn part(self, number: usize) -> LatchPart {
        LatchPart { class: self, partition: (number % PARTITIONS) as u8 }
    }
}

impl From<LatchClass> for LatchPart {
    #[inline]
    fn from(class: LatchClass) -> LatchPart {
        class.part(0)
    }
}

const SHARDS: usize = 64;

/// Counters of some threads.
#[repr(align(128))]
struct Shard {
    acquired: [[AtomicU64; PARTITIONS]; LATCH_CLASSES],
    contended: [AtomicU64; LATCH_CLASSES],
    wait_ns: [AtomicU64; LATCH_CLASSES],
}

#[allow(clippy::declare_interior_mutable_const)]
const ZERO: AtomicU64 = AtomicU64::new(0);
#[allow(clippy::declare_interior_mutable_const)]
const ZEROS: [AtomicU64; PARTITIONS] = [ZERO; PARTITIONS];
#[allow(clippy::declare_interior_mutable_const)]
const EMPTY_SHARD: Shard =
    Shard { acquired: [ZEROS; LATCH_CLASSES], contended: [ZERO; LATCH_CLASSES], wait_ns: [ZERO; LATCH_CLASSES] };
static SHARD: [Shard; SHARDS] = [EMPTY_SHARD; SHARDS];
static NEXT_THREAD: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD_NO: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) as usize;
}

/// A small number for the calling thread, given in order of first use. Picks shards.
#[inline]
pub fn thread_no() -> usize {
    THREAD_NO.with(|n| *n)
}

/// Counts an acquisition. Load and store rather than an atomic add: threads that share a shard may lose a count.
#[inline]
fn count_acquired(part: LatchPart) {
    let c = &SHARD[thread_no() % SHARDS].acquired[part.class as usize][part.partition as usize % PARTITIONS];
    c.store(c.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Locks, with the class's counters.
#[inline]
pub fn lock_counted<T>(mutex: &Mutex<T>, part: impl Into<LatchPart>) -> MutexGuard<'_, T> {
    take_counted(part.into(), || mutex.try_lock(), || mutex.lock())
}

/// As [`lock_counted`], shared.
pub fn read_counted<T>(lock: &RwLock<T>, part: impl Into<LatchPart>) -> RwLockReadGuard<'_, T> {
    take_counted(part.into(), || lock.try_read(), || lock.read())
}

/// As [`lock_counted`], exclusive.
pub fn write_counted<T>(lock: &RwLock<T>, part: impl Into<LatchPart>) -> RwLockWriteGuard<'_, T> {
    take_counted(part.into(), || lock.try_write(), || lock.write())
}

#[inline]
fn take_counted<G>(part: LatchPart, attempt: impl FnOnce() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    count_acquired(part);
    if let Some(guard) = attempt() {
        return guard;
    }
    let start = Instant::now();
    let guard = {
        let _waiting = waits::begin(WaitFor::Latch(part.class));
        wait()
    };
    count_contended(part.class, start);
    guard
}

/// Counts an acquisition that had to wait since `start`.
#[cold]
fn count_contended(class: LatchClass, start: Instant) {
    let s = &SHARD[thread_no() % SHARDS];
    s.contended[class as usize].fetch_add(1, Ordering::Relaxed);
    s.wait_ns[class as usize].fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
}

/// A class's counters since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatchStats {
    /// Acquisitions (a lower bound).
    pub acquired: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    /// Their total wait in nanoseconds.
    pub wait_ns: u64,
    /// The partition with most acquisitions.
    pub hottest: usize,
    /// Its acquisitions.
    pub hottest_acquired: u64,
}

/// Reads a class's counters.
pub fn latch_stats(class: LatchClass) -> LatchStats {
    let mut sum = LatchStats::default();
    for partition in 0..PARTITIONS {
        let acquired = SHARD.iter().map(|s| s.acquired[class as usize][partition].load(Ordering::Relaxed)).sum();
        sum.acquired += acquired;
        if acquired > sum.hottest_acquired {
            (sum.hottest, sum.hottest_acquired) = (partition, acquired);
        }
    }
    for s in &SHARD {
        sum.contended += s.contended[class as usize].load(Ordering::Relaxed);
        sum.wait_ns += s.wait_ns[class as usize].load(Ordering::Relaxed);
    }
    sum
}

/// Holders of the latch in shared mode: bits 0 to 15.
const SHARED: u64 = 0xffff;
/// Held in exclusive mode.
const EXCLUSIVE: u64 = 1 << 16;
/// Somebody sleeps until the latch is free; newcomers that would share it queue up behind.
const PARKED: u64 = 1 << 17;
/// Somebody was woken and has not looked yet: no release wakes another.
const WOKEN: u64 = 1 << 18;
const VERSION_SHIFT: u32 = 19;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;
/// Looks at the latch before sleeping. The pause between them doubles up to `PAUSES_MAX`: 5 to 15 microseconds in all, more than
/// most holds take, and about what it costs to put a thread to sleep and wake it.
const LOOKS: u32 = if cfg!(all(test, loom)) { 0 } else { 9 };
const PAUSES_MAX: u32 = 128;
const WANTS_SHARED: ParkToken = ParkToken(0);
const WANTS_EXCLUSIVE: ParkToken = ParkToken(1);

/// How an attempt to take a latch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is held.
    Held,
    /// What it guards is no longer wanted.
    Unwanted,
    /// It was waited for as long as may be.
    TooLate,
}

/// Shared/exclusive latch with a version word. Not reentrant; guards are the caller's (see room `buffer`).
#[derive(Default)]
pub struct HybridLatch {
    state: Word,
}

impl HybridLatch {
    /// A free latch.
    #[cfg(not(all(test, loom)))]
    pub const fn new() -> HybridLatch {
        HybridLatch { state: Word::new(0) }
    }

    /// The version to be passed to [`HybridLatch::validate`] after reading, or `None` while a writer is inside.
    #[inline]
    pub fn optimistic(&self) -> Option<u64> {
        let s = self.state.load(Ordering::Acquire);
        (s & EXCLUSIVE == 0).then_some(s >> VERSION_SHIFT)
    }

    /// Whether no writer has been inside since `version` was taken. What was read before may be used only if so.
    #[inline]
    pub fn validate(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        let s = self.state.load(Ordering::Relaxed);
        s & EXCLUSIVE == 0 && s >> VERSION_SHIFT == version
    }

    /// The current version; stable while the caller holds the latch in either mode.
    #[inline]
    pub fn version(&self) -> u64 {
        self.state.load(Ordering::Relaxed) >> VERSION_SHIFT
    }

    /// Whether somebody has the latch, in either mode; a hint.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (EXCLUSIVE | SHARED) != 0
    }

    /// Takes the latch in shared mode if that needs no waiting.
    #[inline]
    pub fn try_shared(&self) -> bool {
        self.share_unless(EXCLUSIVE | PARKED)
    }

    /// Takes the latch in shared mode unless one of these marks is set.
    #[inline]
    fn share_unless(&self, marks: u64) -> bool {
        let mut s = self.state.load(Ordering::Relaxed);
        while s & marks == 0 && s & SHARED != SHARED {
            match self.state.compare_exchange_weak(s, s + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => s = now,
            }
        }
        false
    }

    /// Takes the latch in exclusive mode if that needs no waiting.
    #[inline]
    pub fn try_exclusive(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        let taken = s & (EXCLUSIVE | SHARED) == 0
            && self.state.compare_exchange(s, s | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // An optimistic reader that sees any of our changes must see the mark too (no instruction on x86).
        fence(Ordering::Release);
        taken
    }

    /// Takes the latch in shared mode.
    #[inline]
    pub fn lock_shared(&self, part: impl Into<LatchPart>) {
        self.lock_shared_within(part, None, || true);
    }

    /// Takes the latch in exclusive mode.
    #[inline]
    pub fn lock_exclusive(&self, part: impl Into<LatchPart>) {
        self.lock_exclusive_within(part, None, || true);
    }

    /// Takes the latch in shared mode, unless (`false`) what it guards is no longer `wanted`, now or after a while of waiting.
    /// That may change under an exclusive hold only, which then ends with [`HybridLatch::unlock_exclusive_unwanted`] lest those who
    /// sleep find it out late; it is asked while others wait, so it must be a plain look.
    #[inline]
    pub fn lock_shared_while(&self, part: impl Into<LatchPart>, wanted: impl Fn() -> bool) -> bool {
        self.lock_shared_within(part, None, wanted) == Taken::Held
    }

    /// As [`HybridLatch::lock_shared_while`], in exclusive mode.
    #[inline]
    pub fn lock_exclusive_while(&self, part: impl Into<LatchPart>, wanted: impl Fn() -> bool) -> bool {
        self.lock_exclusive_within(part, None, wanted) == Taken::Held
    }

    /// As [`HybridLatch::lock_shared_while`], with a limit to the wait.
    #[inline]
    pub fn lock_shared_within(
        &self,
        part: impl Into<LatchPart>,
        limit: Option<Duration>,
        wanted: impl Fn() -> bool,
    ) -> Taken {
        let part = part.into();
        count_acquired(part);
        if !self.try_shared() {
            match self.wait(part.class, WANTS_SHARED, limit, &wanted) {
                Taken::Held => {}
                other => return other,
            }
        }
        if wanted() {
            return Taken::Held;
        }
        self.unlock_shared();
        Taken::Unwanted
    }

    /// As [`HybridLatch::lock_shared_within`], in exclusive mode.
    #[inline]
    pub fn lock_exclusive_within(
        &self,
        part: impl Into<LatchPart>,
        limit: Option<Duration>,
        wanted: impl Fn() -> bool,
    ) -> Taken {
        let part = part.into();
        count_acquired(part);
        if !self.try_exclusive() {
            match self.wait(part.class, WANTS_EXCLUSIVE, limit, &wanted) {
                Taken::Held => {}
                other => return other,
            }
        }
        if wanted() {
            return Taken::Held;
        }
        self.unlock_exclusive_unchanged();
        Taken::Unwanted
    }

    /// Gives back a shared hold.
    #[inline]
    pub fn unlock_shared(&self) {
        let old = self.state.fetch_sub(1, Ordering::Release);
        debug_assert!(old & SHARED != 0 && old & EXCLUSIVE == 0);
        if old & SHARED == 1 {
            self.wake_after(old);
        }
    }

    /// Gives back the exclusive hold; the version grows.
    #[inline]
    pub fn unlock_exclusive(&self) {
        let old = self.state.fetch_add(VERSION_ONE - EXCLUSIVE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        self.wake_after(old);
    }

    /// Gives back the exclusive hold of somebody who has made what the latch guards unwanted for those who wait. All of them are
    /// woken: whoever takes the latch next may wait for what one of them holds.
    pub fn unlock_exclusive_unwanted(&self) {
        let old = self.state.fetch_add(VERSION_ONE - EXCLUSIVE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        if old & PARKED != 0 {
            self.wake_those(|_| FilterOp::Unpark);
        }
    }

    /// Gives back the exclusive hold of somebody who changed nothing; the version stays.
    #[inline]
    pub fn unlock_exclusive_unchanged(&self) {
        let old = self.state.fetch_sub(EXCLUSIVE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        self.wake_after(old);
    }

    /// Makes the version grow under the exclusive hold, which goes on: whoever read before now will not validate, however
    /// the hold ends.
    pub fn grow_version(&self) {
        let old = self.state.fetch_add(VERSION_ONE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0);
    }

    /// Turns the exclusive hold into a shared one; the version grows.
    pub fn downgrade(&self) {
        let old = self.state.fetch_add(VERSION_ONE - EXCLUSIVE + 1, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        self.wake_after(old);
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Takes the latch for somebody who has waited for it.
    fn try_waited(&self, token: ParkToken) -> bool {
        match token {
            WANTS_EXCLUSIVE => self.try_exclusive(),
            _ => self.share_unless(EXCLUSIVE),
        }
    }

    #[cold]
    fn wait(&self, class: LatchClass, token: ParkToken, limit: Option<Duration>, wanted: &dyn Fn() -> bool) -> Taken {
        let start = Instant::now();
        let end = limit.map(|limit| start + limit);
        let (mut looks, mut pauses, mut woken) = (0, 1, false);
        let mut waiting = None;
        let taken = loop {
            let s = self.state.load(Ordering::Relaxed);
            // Whoever finds it free takes it, even if others sleep: the one who was woken may need long to come.
            let free = s & (EXCLUSIVE | SHARED) == 0;
            if (free || woken || s & PARKED == 0) && self.try_waited(token) {
                break Taken::Held;
            }
            if !wanted() {
                break Taken::Unwanted;
            }
            if looks < LOOKS {
                looks += 1;
                (0..pauses).for_each(|_| std::hint::spin_loop());
                pauses = (pauses * 2).min(PAUSES_MAX);
                continue;
            }
            let s = self.state.load(Ordering::Relaxed);
            if s & (EXCLUSIVE | SHARED) == 0
                || s & PARKED == 0
                    && self.state.compare_exchange(s, s | PARKED, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            waiting.get_or_insert_with(|| waits::begin(WaitFor::Latch(class)));
            // SAFETY: the address is ours alone, and the closures neither panic nor call back into the parking lot.
            let slept = unsafe {
                park(
                    self.address(),
                    || {
                        // What a release before made unwanted is seen to be.
                        let s = self.state.load(Ordering::Acquire);
                        s & PARKED != 0 && s & (EXCLUSIVE | SHARED) != 0 && wanted()
                    },
                    || {},
                    |_, last| {
                        if last {
                            self.state.fetch_and(!PARKED, Ordering::Relaxed);
                        }
                    },
                    token,
                    end,
                )
            };
            if slept == ParkResult::TimedOut {
                break if self.try_waited(token) { Taken::Held } else { Taken::TooLate };
            }
            if slept.is_unparked() {
                // Before the next look: a release after it wakes again, and one before it is seen.
                self.state.fetch_and(!WOKEN, Ordering::Relaxed);
                (looks, pauses, woken) = (0, 1, true);
            }
        };
        if taken != Taken::Held && woken {
            let s = self.state.load(Ordering::Relaxed);
            if s & PARKED != 0 && s & (EXCLUSIVE | SHARED) == 0 {
                // We leave without a release that would wake the next.
                self.wake();
            }
        }
        count_contended(class, start);
        taken
    }

    /// After a release that found this state: wakes somebody, if anybody sleeps and nobody is on the way.
    #[inline]
    fn wake_after(&self, old: u64) {
        if old & (PARKED | WOKEN) == PARKED {
            self.wake();
        }
    }

    /// Wakes the writer that has slept longest, or all readers if one of them has.
    #[cold]
    fn wake(&self) {
        let mut first = None;
        self.wake_those(|token| match first {
            None => {
                first = Some(token);
                FilterOp::Unpark
            }
            Some(WANTS_SHARED) if token == WANTS_SHARED => FilterOp::Unpark,
            Some(WANTS_SHARED) => FilterOp::Skip,
            Some(_) => FilterOp::Stop,
        });
    }

    #[cold]
    fn wake_those(&self, choose: impl FnMut(ParkToken) -> FilterOp) {
        let mark = |woken: UnparkResult| {
            if woken.unparked_threads > 0 {
                self.state.fetch_or(WOKEN, Ordering::Relaxed);
            }
            if !woken.have_more_threads {
                self.state.fetch_and(!PARKED, Ordering::Relaxed);
            }
            DEFAULT_UNPARK_TOKEN
        };
        // SAFETY: the address is ours alone, and the closures neither panic nor call back into the parking lot.
        unsafe {
            unpark_filter(self.address(), choose, mark);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicBool;
    use std::sync::Arc;

    #[test]
    fn counters_tell_classes_and_their_hottest_partition() {
        let mutex = Mutex::new(());
        let before = latch_stats(LatchClass::Catalog);
        for (partition, times) in [(3, 5), (64 + 7, 20), (7, 20)] {
            (0..times).for_each(|_| drop(lock_counted(&mutex, LatchClass::Catalog.part(partition))));
        }
        let free = latch_stats(LatchClass::Catalog);
        assert_eq!((free.acquired - before.acquired, free.contended - before.contended), (45, 0));
        assert_eq!((free.hottest, free.hottest_acquired), (7, 40));
        let held = mutex.lock();
        std::thread::scope(|s| {
            s.spawn(|| drop(lock_counted(&mutex, LatchClass::Catalog)));
            // Who is listed has failed to take the latch.
            while !waits::list(Duration::ZERO).iter().any(|wait| wait.what == WaitFor::Latch(LatchClass::Catalog)) {
                std::thread::yield_now();
            }
            drop(held);
        });
        let waited = latch_stats(LatchClass::Catalog);
        assert!(waited.contended == free.contended + 1 && waited.wait_ns > free.wait_ns);
    }

    struct Cell(HybridLatch, UnsafeCell<[u64; 2]>);
    // SAFETY: the cell is only touched under its latch.
    unsafe impl Sync for Cell {}

    #[test]
    fn writers_exclude_each_other_and_readers() {
        let cell = Arc::new(Cell(HybridLatch::new(), UnsafeCell::new([0; 2])));
        let threads: Vec<_> = (0..6)
            .map(|t| {
                let cell = Arc::clone(&cell);
                std::thread::spawn(move || {
                    for i in 0..20_000 {
                        if (i + t) % 3 == 0 {
                            cell.0.lock_exclusive(LatchClass::OtherPage);
                            // SAFETY: exclusive latch held.
                            let v = unsafe { &mut *cell.1.get() };
                            v[0] += 1;
                            v[1] += 1;
                            cell.0.unlock_exclusive();
                        } else {
                            cell.0.lock_shared(LatchClass::OtherPage);
                            // SAFETY: shared latch held.
                            let v = unsafe { *cell.1.get() };
                            assert_eq!(v[0], v[1]);
                            cell.0.unlock_shared();
                        }
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        // SAFETY: all threads are gone.
        let v = unsafe { *cell.1.get() };
        assert_eq!(v[0], cell.0.version());
        assert_eq!(v[0], v[1]);
    }

    #[test]
    fn nobody_sleeps_on_when_who_was_woken_turns_away() {
        // Holds that outlast all looks, so that everybody sleeps; a third of the writers makes the page unwanted for a while.
        let latch = HybridLatch::new();
        let unwanted = AtomicU64::new(0);
        std::thread::scope(|s| {
            for t in 0..12u64 {
                let (latch, unwanted) = (&latch, &unwanted);
                s.spawn(move || {
                    for i in 0..300 {
                        let wanted = || unwanted.load(Ordering::Relaxed) % 2 == 0;
                        if (i + t) % 3 == 0 {
                            if latch.lock_shared_while(LatchClass::OtherPage, wanted) {
                                std::thread::yield_now();
                                latch.unlock_shared();
                            }
                        } else if t % 3 == 0 {
                            latch.lock_exclusive(LatchClass::OtherPage);
                            unwanted.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_micros(20));
                            latch.unlock_exclusive();
                        } else if latch.lock_exclusive_while(LatchClass::OtherPage, wanted) {
                            std::thread::sleep(std::time::Duration::from_micros(20));
                            latch.unlock_exclusive_unchanged();
                        }
                    }
                });
            }
        });
        // Nothing is left of holders; a mark of sleepers may be.
        assert!(latch.try_exclusive());
        assert_eq!(latch.version(), unwanted.load(Ordering::Relaxed));
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let latch = HybridLatch::new();
        let limit = Some(Duration::from_millis(20));
        latch.lock_exclusive(LatchClass::OtherPage);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    assert_eq!(latch.lock_shared_within(LatchClass::OtherPage, limit, || true), Taken::TooLate);
                    assert_eq!(latch.lock_exclusive_within(LatchClass::OtherPage, limit, || true), Taken::TooLate);
                });
            }
        });
        latch.unlock_exclusive();
        assert!(latch.try_shared(), "nothing is left of those who waited");
        latch.unlock_shared();
    }

    #[test]
    fn nobody_sleeps_for_what_is_no_longer_wanted() {
        let latch = HybridLatch::new();
        let wanted = AtomicBool::new(true);
        let turned_away = AtomicU64::new(0);
        std::thread::scope(|s| {
            latch.lock_exclusive(LatchClass::OtherPage);
            for _ in 0..4 {
                s.spawn(|| {
                    if !latch.lock_exclusive_while(LatchClass::OtherPage, || wanted.load(Ordering::Acquire)) {
                        turned_away.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // All of them sleep by then.
            std::thread::sleep(std::time::Duration::from_millis(50));
            wanted.store(false, Ordering::Release);
            latch.unlock_exclusive_unwanted();
            latch.lock_exclusive(LatchClass::OtherPage);
            let begin = Instant::now();
            while turned_away.load(Ordering::Relaxed) < 4 && begin.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            }
            let while_held = turned_away.load(Ordering::Relaxed);
            latch.unlock_exclusive_unwanted();
            assert_eq!(while_held, 4);
        });
    }

    #[test]
    fn optimistic_reader_learns_of_a_writer() {
        let latch = HybridLatch::new();
        let v = latch.optimistic().unwrap();
        assert!(latch.validate(v));
        latch.lock_exclusive(LatchClass::OtherPage);
        assert!(latch.optimistic().is_none());
        assert!(!latch.validate(v));
        latch.unlock_exclusive();
        assert!(!latch.validate(v));
        let v = latch.optimistic().unwrap();
        latch.lock_shared(LatchClass::OtherPage);
        assert!(latch.validate(v), "shared holders do not disturb readers");
        latch.unlock_shared();
        latch.lock_exclusive(LatchClass::OtherPage);
        latch.unlock_exclusive_unchanged();
        assert!(latch.validate(v));
    }
}
