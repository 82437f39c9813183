//! Partitions: each owns every n-th run of [`RUN_FRAMES`] frames, with their free list, dirty list and clock hand. So all
//! of them grow and shrink with the pool.

use crate::frame::{Frames, NIL, STATE_SECOND, STATE_WRITING};
use crate::sync::{AtomicU32, AtomicU64};
use crate::usage::Met;
use myriad_base::latch::{lock_counted, LatchClass};
use myriad_base::Lsn;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Consecutive frames that belong to one partition.
pub(crate) const RUN_FRAMES: u32 = 32;

/// The number of the partition, of `shards`, that a frame belongs to.
#[inline]
pub(crate) fn shard_no(frame: u32, shards: u32) -> u32 {
    frame / RUN_FRAMES % shards
}

/// How many of the first `frames` frames belong to partition `number` of `shards`.
pub(crate) fn frames_of(number: u32, shards: u32, frames: u32) -> u32 {
    let round = shards * RUN_FRAMES;
    frames / round * RUN_FRAMES + (frames % round).saturating_sub(number * RUN_FRAMES).min(RUN_FRAMES)
}

/// The frame at a place among those of partition `number` of `shards`.
fn frame_at(place: u32, number: u32, shards: u32) -> u32 {
    (place / RUN_FRAMES * shards + number) * RUN_FRAMES + place % RUN_FRAMES
}

/// A partition.
#[repr(align(128))]
pub(crate) struct Shard {
    /// Its number, and how many there are.
    number: u32,
    shards: u32,
    /// Frames without a page, the longest free first: a reader that was led astray to a frame is gone before the frame
    /// is used again.
    free: Mutex<VecDeque<u32>>,
    dirty: Mutex<DirtyList>,
    /// Which of its frames is next.
    hand: AtomicU32,
    /// What the hand has met.
    pub met: Met,
}

impl Shard {
    /// Partition `number` of `shards`: its part of the pool's first `frames` frames is free.
    pub fn new(number: u32, shards: u32, frames: u32) -> Shard {
        let free = (0..frames_of(number, shards, frames)).map(|place| frame_at(place, number, shards));
        Shard {
            number,
            shards,
            hand: AtomicU32::new(0),
            met: Met::default(),
            free: Mutex::new(free.collect()),
            dirty: Mutex::new(DirtyList::EMPTY),
        }
    }

    pub fn pop_free(&self) -> Option<u32> {
        lock_counted(&self.free, LatchClass::FreeList.part(self.number as usize)).pop_front()
    }

    pub fn push_free(&self, frame: u32) {
        lock_counted(&self.free, LatchClass::FreeList.part(self.number as usize)).push_back(frame);
    }

    /// Frames on the free list.
    pub fn free_len(&self) -> usize {
        lock_counted(&self.free, LatchClass::FreeList.part(self.number as usize)).len()
    }

    pub fn dirty(&self) -> MutexGuard<'_, DirtyList> {
        lock_counted(&self.dirty, LatchClass::DirtyList.part(self.number as usize))
    }

    /// Takes the frames from `limit` on off the free list, each given to `taken`; how many there were.
    pub fn drain_free(&self, limit: u32, taken: impl Fn(u32)) -> usize {
        let mut free = lock_counted(&self.free, LatchClass::FreeList.part(self.number as usize));
        let before = free.len();
        free.retain(|&at| {
            let stays = at < limit;
            if !stays {
                taken(at);
            }
            stays
        });
        before - free.len()
    }

    /// Moves the clock hand by one, over the partition's part of the pool's first `frames` frames; the frame it pointed at. In one
    /// step: set back by a thread that was put to sleep it would age the same frames twice.
    pub fn next_by_hand(&self, frames: u32) -> u32 {
        let place = self.hand.fetch_add(1, Ordering::Relaxed) % frames_of(self.number, self.shards, frames);
        frame_at(place, self.number, self.shards)
    }
}

/// How far from an end of a dirty list a place is looked for.
const POSITION_STEPS: usize = 64;

/// Dirty frames in order of their recovery LSN, oldest at the head. A frame whose page is being written stays where it is
/// until the write is durable, so that the checkpoint never passes a change that could still be lost. A change meanwhile
/// takes the frame's second place, near the tail; when the write is durable the first place is given up. So every
/// insertion of new changes is near the tail, and every removal takes no search.
///
/// A place is named by `2 * frame + (0 or 1)`.
pub(crate) struct DirtyList {
    head: u32,
    tail: u32,
    /// Places taken.
    len: usize,
}

fn mark(frames: &Frames, place: u32) -> &AtomicU64 {
    &frames.get(place / 2).recovery_mark[place as usize % 2]
}

fn prev(frames: &Frames, place: u32) -> &AtomicU32 {
    &frames.get(place / 2).dirty_prev[place as usize % 2]
}

fn next(frames: &Frames, place: u32) -> &AtomicU32 {
    &frames.get(place / 2).dirty_next[place as usize % 2]
}

impl DirtyList {
    pub const EMPTY: DirtyList = DirtyList { head: NIL, tail: NIL, len: 0 };

    /// Dirty frames; those changed while being written count twice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The oldest change not durable in its file.
    pub fn oldest(&self, frames: &Frames) -> Option<Lsn> {
        (self.head != NIL).then(|| Lsn(mark(frames, self.head).load(Ordering::Relaxed) - 1))
    }

    /// The frame's places, older first, and whether each is taken.
    fn places(frames: &Frames, at: u32) -> (Option<u32>, Option<u32>) {
        let (a, b) = (2 * at, 2 * at + 1);
        let (mark_a, mark_b) = (mark(frames, a).load(Ordering::Relaxed), mark(frames, b).load(Ordering::Relaxed));
        match (mark_a, mark_b) {
            (0, 0) => (None, None),
            (_, 0) => (Some(a), None),
            (0, _) => (Some(b), None),
            // The older is the one that is being written, whatever LSN the newer was given.
            _ if frames.get(at).state.load(Ordering::Relaxed) & STATE_SECOND == 0 => (Some(a), Some(b)),
            _ => (Some(b), Some(a)),
        }
    }

    /// Notes a change that began at `start`. The caller holds the frame's X latch. Whether the page was as its file has it.
    pub fn mark(&mut self, frames: &Frames, at: u32, start: Lsn) -> bool {
        let writing = frames.get(at).state.load(Ordering::Relaxed) & STATE_WRITING != 0;
        match DirtyList::places(frames, at) {
            (None, _) => {
                self.insert(frames, 2 * at, start.0 + 1);
                return true;
            }
            (Some(first), None) if writing => {
                // Remember which of the two is the older.
                let state = &frames.get(at).state;
                if first % 2 == 0 {
                    state.fetch_and(!STATE_SECOND, Ordering::Relaxed);
                } else {
                    state.fetch_or(STATE_SECOND, Ordering::Relaxed);
                }
                self.insert(frames, first ^ 1, start.0 + 1);
            }
            _ => {}
        }
        false
    }

    /// A page with changes leaves memory, and these stay in the change buffer; the caller holds its frame's X latch. Whether it can:
    /// it has changes and is not being written.
    pub fn leave(&mut self, frames: &Frames, at: u32) -> bool {
        let Some((place, _)) = DirtyList::only_place(frames, at) else { return false };
        self.remove(frames, place);
        true
    }

    /// A write of the frame's page has become durable, or has failed: then the frame is as dirty as before.
    pub fn written(&mut self, frames: &Frames, at: u32, durable: bool) {
        let frame = frames.get(at);
        assert!(frame.state.load(Ordering::Relaxed) & STATE_WRITING != 0, "frame {at} was not being written");
        match (durable, DirtyList::places(frames, at)) {
            (true, (Some(older), _)) => self.remove(frames, older),
            (false, (Some(_), Some(newer))) => self.remove(frames, newer),
            (false, (Some(_), None)) => {}
            (_, (None, _)) => panic!("frame {at} was written without being dirty"),
        }
        // Last, and with release: who sees the flag gone sees the list as it is now.
        frame.state.fetch_and(!STATE_WRITING, Ordering::Release);
    }

    /// The place of a frame with changes that is not being written, and when the first of them was made.
    fn only_place(frames: &Frames, at: u32) -> Option<(u32, Lsn)> {
        match DirtyList::places(frames, at) {
            (Some(place), None) if !frames.get(at).is_writing() => {
                Some((place, Lsn(mark(frames, place).load(Ordering::Relaxed) - 1)))
            }
            _ => None,
        }
    }

    /// When the first change was made that is not durable, of a frame that is not being written.
    pub fn since(&self, frames: &Frames, at: u32) -> Option<Lsn> {
        DirtyList::only_place(frames, at).map(|(_, since)| since)
    }

    /// The log has the frame's page whole from `start` on: what was changed before counts as changed then. Only if its first
    /// change is still that of `since`. Returns whether it was.
    pub fn advance(&mut self, frames: &Frames, at: u32, since: Lsn, start: Lsn) -> bool {
        let Some((place, _)) = DirtyList::only_place(frames, at).filter(|only| only.1 == since) else { return false };
        self.unlink(frames, place);
        // However many changes have come since: to be thought older would be for nothing.
        self.link(frames, place, start.0 + 1, usize::MAX);
        true
    }

    /// Frames older than `limit` that are not being written, oldest first, at most `max`.
    pub fn collect(&self, frames: &Frames, limit: Lsn, max: usize, out: &mut Vec<u32>) {
        let mut at = self.head;
        let mut left = max;
        while at != NIL && left > 0 {
            if mark(frames, at).load(Ordering::Relaxed) > limit.0 {
                break;
            }
            if !frames.get(at / 2).is_writing() {
                out.push(at / 2);
                left -= 1;
            }
            at = next(frames, at).load(Ordering::Relaxed);
        }
    }

    /// The neighbours between which a mark belongs, or one a little older: the mark is lowered rather than its place
    /// looked for farther than `steps` from the tail.
    fn position(&self, frames: &Frames, new: &mut u64, steps: usize) -> (u32, u32) {
        let of = |place: u32| mark(frames, place).load(Ordering::Relaxed);
        // New changes belong at the tail.
        let mut before = self.tail;
        for _ in 0..steps {
            if before == NIL || of(before) <= *new {
                let after = if before == NIL { self.head } else { next(frames, before).load(Ordering::Relaxed) };
                return (before, after);
            }
            before = prev(frames, before).load(Ordering::Relaxed);
        }
        // Those of pages redone, or read with buffered changes, are old; to be thought older keeps the checkpoint back a
        // little, no more.
        let (mut before, mut after) = (NIL, self.head);
        for _ in 0..POSITION_STEPS {
            if after == NIL || of(after) > *new {
                return (before, after);
            }
            (before, after) = (after, next(frames, after).load(Ordering::Relaxed));
        }
        *new = of(before);
        (before, after)
    }

    fn insert(&mut self, frames: &Frames, at: u32, new: u64) {
        debug_assert_eq!(mark(frames, at).load(Ordering::Relaxed), 0);
        self.link(frames, at, new, POSITION_STEPS);
        self.len += 1;
    }

    /// Gives the place its neighbours and the mark, or one a little older ([`DirtyList::position`]).
    fn link(&mut self, frames: &Frames, at: u32, mut new: u64, steps: usize) {
        let (before, after) = self.position(frames, &mut new, steps);
        prev(frames, at).store(before, Ordering::Relaxed);
        next(frames, at).store(after, Ordering::Relaxed);
        match before {
            NIL => self.head = at,
            _ => next(frames, before).store(at, Ordering::Relaxed),
        }
        match after {
            NIL => self.tail = at,
            _ => prev(frames, after).store(at, Ordering::Relaxed),
        }
        mark(frames, at).store(new, Ordering::Release);
    }

    fn remove(&mut self, frames: &Frames, at: u32) {
        self.unlink(frames, at);
        mark(frames, at).store(0, Ordering::Release);
        self.len -= 1;
    }

    /// Takes the place out of the row. It keeps its mark: the frame is not clean for a moment.
    fn unlink(&mut self, frames: &Frames, at: u32) {
        let (before, after) = (prev(frames, at).load(Ordering::Relaxed), next(frames, at).load(Ordering::Relaxed));
        match before {
            NIL => self.head = after,
            _ => next(frames, before).store(after, Ordering::Relaxed),
        }
        match after {
            NIL => self.tail = before,
            _ => prev(frames, after).store(before, Ordering::Relaxed),
        }
        prev(frames, at).store(NIL, Ordering::Relaxed);
        next(frames, at).store(NIL, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::random::Random;
    use std::collections::BTreeMap;

    #[test]
    fn the_hands_meet_every_frame_of_a_pool_that_changes() {
        let shards: Vec<Shard> = (0..3).map(|i| Shard::new(i, 3, 0)).collect();
        for frames in [96u32, 1000, 97, 640] {
            let mut seen = std::collections::BTreeMap::new();
            for (i, shard) in shards.iter().enumerate() {
                for _ in 0..2 * frames {
                    let at = shard.next_by_hand(frames);
                    assert_eq!(shard_no(at, 3), i as u32);
                    *seen.entry(at).or_insert(0) += 1;
                }
            }
            assert!((0..frames).all(|at| seen.contains_key(&at)), "{frames}");
            assert_eq!(seen.len(), frames as usize);
        }
    }

    #[test]
    fn nobody_sets_a_hand_back() {
        const FRAMES: u32 = 1000;
        const ROUNDS: u32 = 5000;
        let (shard, all_there) = (Shard::new(0, 1, 0), std::sync::Barrier::new(4));
        let looks: Vec<AtomicU32> = (0..FRAMES).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all_there.wait();
                    for _ in 0..ROUNDS * FRAMES {
                        looks[shard.next_by_hand(FRAMES) as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(looks.iter().all(|n| n.load(Ordering::Relaxed) == 4 * ROUNDS));
    }

    #[test]
    fn every_frame_belongs_to_one_partition() {
        for (shards, frames) in [(1, 100), (3, 1000), (4, 127), (16, 5000), (64, 2048)] {
            for number in 0..shards {
                let own: Vec<u32> = (0..frames).filter(|&at| shard_no(at, shards) == number).collect();
                assert_eq!(frames_of(number, shards, frames) as usize, own.len(), "{number} of {shards}, {frames}");
                let shard = Shard::new(number, shards, frames);
                assert_eq!(std::iter::from_fn(|| shard.pop_free()).collect::<Vec<_>>(), own);
            }
        }
    }

    /// A place is looked for near both ends only: a mark that belongs in the middle is taken for an older one.
    #[test]
    fn marks_of_the_middle_are_lowered() {
        let n = 4 * POSITION_STEPS as u32;
        let frames = Frames::new(n as usize + 1, n as usize + 1, 4096).unwrap();
        let shard = Shard::new(0, 1, 0);
        let mut list = shard.dirty();
        for at in 0..n {
            list.mark(&frames, at, Lsn(1000 + 10 * u64::from(at)));
        }
        let middle = 1005 + 10 * u64::from(n / 2);
        list.mark(&frames, n, Lsn(middle));
        let given = frames.get(n).recovery_mark[0].load(Ordering::Relaxed);
        assert_eq!(given, 1000 + 10 * (POSITION_STEPS as u64 - 1) + 1);
        let mut out = Vec::new();
        list.collect(&frames, Lsn(u64::MAX), usize::MAX, &mut out);
        assert_eq!(out.len(), n as usize + 1);
        let marks: Vec<u64> = out.iter().map(|&at| frames.get(at).recovery_mark[0].load(Ordering::Relaxed)).collect();
        assert!(marks.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(out.iter().position(|&at| at == n), Some(POSITION_STEPS));
    }

    /// The list against a model: order by recovery LSN, changes during a write remembered.
    #[test]
    fn dirty_list_keeps_order_and_changes_during_a_write() {
        let frames = Frames::new(40, 40, 4096).unwrap();
        let shard = Shard::new(0, 1, 0);
        let mut random = Random::from_seed(7);
        let mut model: BTreeMap<u32, (u64, bool, u64)> = BTreeMap::new(); // frame -> (recovery, writing, again)
        for step in 1..50_000u64 {
            let at = random.below(40) as u32;
            let mut list = shard.dirty();
            match random.below(5) {
                4 => {
                    let since = model.get(&at).map_or(0, |e| e.0);
                    let moved = list.advance(&frames, at, Lsn(since), Lsn(step));
                    let moves = model.get(&at).is_some_and(|e| !e.1);
                    assert_eq!(moved, moves, "step {step}");
                    if moved {
                        model.get_mut(&at).unwrap().0 = step;
                    }
                    assert!(!list.advance(&frames, at, Lsn(step + 1), Lsn(step + 2)));
                }
                0 | 1 => {
                    let lsn = if random.one_in(5) { 1 + random.below(step) } else { step };
                    let first = list.mark(&frames, at, Lsn(lsn));
                    assert_eq!(first, !model.contains_key(&at), "only of one that is not being written either");
                    let entry = model.entry(at).or_insert((lsn, false, 0));
                    if entry.1 && entry.2 == 0 {
                        entry.2 = lsn;
                    }
                }
                2 => {
                    if let Some(entry) = model.get_mut(&at) {
                        frames.get(at).state.fetch_or(STATE_WRITING, Ordering::Relaxed);
                        entry.1 = true;
                    }
                }
                _ => {
                    if let Some(&(recovery, true, again)) = model.get(&at) {
                        let durable = random.one_in(2);
                        list.written(&frames, at, durable);
                        match (durable, again) {
                            (true, 0) => drop(model.remove(&at)),
                            (true, _) => drop(model.insert(at, (again, false, 0))),
                            (false, _) => drop(model.insert(at, (recovery, false, 0))),
                        }
                    }
                }
            }
            assert_eq!(list.len(), model.values().map(|e| 1 + usize::from(e.2 != 0)).sum::<usize>());
            assert_eq!(
                list.oldest(&frames).map(|l| l.0),
                model.values().flat_map(|e| [e.0, if e.2 == 0 { u64::MAX } else { e.2 }]).min()
            );
            let mut out = Vec::new();
            list.collect(&frames, Lsn(u64::MAX), usize::MAX, &mut out);
            assert_eq!(out.len(), model.values().filter(|e| !e.1).count());
            assert!(out.iter().zip(out.iter().skip(1)).all(|(&a, &b)| model[&a].0 <= model[&b].0));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex, RwLock};
    use loom::thread;

    /// One frame: the page, the file and the log say how many changes they have. A change's LSN is its number.
    struct Shared {
        frames: Frames,
        list: Mutex<DirtyList>,
        /// In place of the frame's latch.
        page: RwLock<u64>,
        file: AtomicU64,
        logged: AtomicU64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                frames: Frames::new(1, 1, 4096).unwrap(),
                list: Mutex::new(DirtyList::EMPTY),
                page: RwLock::new(0),
                file: AtomicU64::new(0),
                logged: AtomicU64::new(0),
            })
        }

        /// As a mini-transaction does.
        fn change(&self) {
            let mut page = self.page.write().unwrap();
            *page += 1;
            if self.frames.get(0).is_mark_needed() {
                self.list.lock().unwrap().mark(&self.frames, 0, Lsn(*page));
            }
            self.logged.store(*page, Ordering::Release);
        }

        /// As a batch does that fails or not.
        fn write(&self, durable: bool) {
            let frame = self.frames.get(0);
            let copy = {
                let page = self.page.read().unwrap();
                if !frame.begin_write() {
                    return;
                }
                if !frame.is_dirty() {
                    frame.state.fetch_and(!STATE_WRITING, Ordering::Release);
                    return;
                }
                *page
            };
            if durable {
                self.file.store(copy, Ordering::Release);
            }
            self.list.lock().unwrap().written(&self.frames, 0, durable);
        }

        /// A checkpoint needs every change that the file has not.
        fn check(&self) {
            let logged = self.logged.load(Ordering::Acquire);
            let list = self.list.lock().unwrap();
            let file = self.file.load(Ordering::Acquire);
            let oldest = list.oldest(&self.frames);
            assert!(
                logged <= file || oldest.is_some_and(|o| o.0 <= file + 1),
                "{logged} logged, {file} in the file: {oldest:?}"
            );
        }

        /// What is taken for clean is in the file.
        fn evict(&self) {
            let page = self.page.write().unwrap();
            assert!(!self.frames.get(0).is_clean() || self.file.load(Ordering::Acquire) == *page);
        }
    }

    fn explore(mine: fn(&Shared), theirs: &'static [fn(&Shared)]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let shared = Shared::new();
            shared.change();
            let run = |run: &'static fn(&Shared)| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&shared))
            };
            let running: Vec<_> = theirs.iter().map(run).collect();
            mine(&shared);
            running.into_iter().for_each(|t| t.join().unwrap());
            shared.check();
            // All of it can be written in the end.
            shared.write(true);
            shared.write(true);
            shared.evict();
            assert_eq!(shared.file.load(Ordering::Relaxed), *shared.page.read().unwrap());
            assert_eq!(shared.list.lock().unwrap().len(), 0);
        });
    }

    fn write(shared: &Shared) {
        shared.write(true);
    }

    fn write_twice(shared: &Shared) {
        (0..2).for_each(|_| shared.write(true));
    }

    fn fail_and_write(shared: &Shared) {
        [false, true].into_iter().for_each(|durable| shared.write(durable));
    }

    fn change_twice(shared: &Shared) {
        (0..2).for_each(|_| shared.change());
    }

    #[test]
    fn loom_no_change_beside_a_write_is_forgotten() {
        explore(change_twice, &[write_twice]);
        explore(change_twice, &[fail_and_write]);
    }

    #[test]
    fn loom_what_the_file_lacks_is_neither_clean_nor_before_the_checkpoint() {
        explore(Shared::evict, &[write, Shared::change]);
        explore(Shared::check, &[write, Shared::change]);
        explore(Shared::check, &[fail_and_write, Shared::change]);
    }
}
