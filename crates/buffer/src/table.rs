//! The page table: page id -> frame.
//!
//! A bucket is the head of a chain through the frames' `hash_next` and a lock. A look-up first walks the chain without
//! the lock. Such a walk may go astray while frames change hands, so what it finds is only a candidate, checked by the
//! caller under the frame's latch, and what it does not find is looked for again under the lock. Insertion and removal
//! take the lock; both happen only when pages enter or leave memory.

use crate::frame::{Frames, NIL, NO_PAGE};
use myriad_base::latch::{lock_counted, LatchClass};
use myriad_base::PageId;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// Steps of a walk without the lock; chains are short, a longer walk has gone astray.
const STEPS_MAX: usize = 16;

struct Bucket {
    head: AtomicU32,
    lock: Mutex<()>,
}

/// Buckets of a segment: the smallest one, in bits.
const SEGMENT_BITS_MIN: u32 = 6;
const SEGMENTS: usize = 32;

/// Grows bucket by bucket (linear hashing: W. Litwin, "Linear hashing", 1980). Segment `i` beyond the first has as many
/// buckets as all before it, so a bucket never moves.
pub(crate) struct PageTable {
    segments: [OnceLock<Box<[Bucket]>>; SEGMENTS],
    /// Buckets in use. While one is being split, its lock and the new one's are held.
    count: AtomicU32,
}

impl PageTable {
    /// A table for `frames` frames.
    pub fn new(frames: usize) -> PageTable {
        let table = PageTable { segments: std::array::from_fn(|_| OnceLock::new()), count: AtomicU32::new(0) };
        let count = PageTable::buckets_for(frames);
        (0..=PageTable::place(count - 1).0).for_each(|segment| table.make(segment));
        table.count.store(count, Ordering::Release);
        table
    }

    fn buckets_for(frames: usize) -> u32 {
        (frames * 2).next_power_of_two().max(1 << SEGMENT_BITS_MIN) as u32
    }

    /// Segment of a bucket, and its place there.
    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let bits = u32::BITS - (number >> SEGMENT_BITS_MIN).leading_zeros();
        let first = if bits == 0 { 0 } else { 1 << (bits + SEGMENT_BITS_MIN - 1) };
        (bits as usize, (number - first) as usize)
    }

    /// Makes the segment if it is not there.
    fn make(&self, segment: usize) {
        self.segments[segment].get_or_init(|| {
            let len = 1usize << (SEGMENT_BITS_MIN + (segment as u32).saturating_sub(1));
            (0..len).map(|_| Bucket { head: AtomicU32::new(NIL), lock: Mutex::new(()) }).collect()
        });
    }

    #[inline]
    fn at(&self, number: u32) -> &Bucket {
        let (segment, place) = PageTable::place(number);
        &self.segments[segment].get().expect("a bucket in use was made")[place]
    }

    /// The number of the id's bucket when there are `count`.
    #[inline]
    fn number(id: PageId, count: u32) -> u32 {
        let size = count.next_power_of_two();
        let number = (id.hash() & u64::from(size - 1)) as u32;
        if number < count {
            number
        } else {
            number - size / 2
        }
    }

    /// The id's bucket, locked.
    fn lock(&self, id: PageId) -> (&Bucket, MutexGuard<'_, ()>) {
        loop {
            let number = PageTable::number(id, self.count.load(Ordering::Acquire));
            let bucket = self.at(number);
            let held = lock_counted(&bucket.lock, LatchClass::PageTable.part(number as usize));
            // It may have been split before we had the lock.
            if PageTable::number(id, self.count.load(Ordering::Acquire)) == number {
                return (bucket, held);
            }
        }
    }

    /// Makes the table large enough for `frames` frames, beside its users. One caller at a time. It never shrinks.
    pub fn grow(&self, frames: &Frames, wanted: usize) {
        while self.count.load(Ordering::Relaxed) < PageTable::buckets_for(wanted) {
            self.split(frames);
        }
    }

    /// Adds a bucket and moves into it what belongs there.
    fn split(&self, frames: &Frames) {
        let new = self.count.load(Ordering::Relaxed);
        let old = new - (new + 1).next_power_of_two() / 2;
        self.make(PageTable::place(new).0);
        let (from, to) = (self.at(old), self.at(new));
        let _from = lock_counted(&from.lock, LatchClass::PageTable.part(old as usize));
        let _to = lock_counted(&to.lock, LatchClass::PageTable.part(new as usize));
        self.count.store(new + 1, Ordering::Release);
        let mut before: Option<u32> = None;
        let mut at = from.head.load(Ordering::Relaxed);
        while at != NIL {
            let frame = frames.get(at);
            let next = frame.hash_next.load(Ordering::Relaxed);
            if PageTable::number(frame.page(), new + 1) == new {
                match before {
                    Some(before) => frames.get(before).hash_next.store(next, Ordering::Release),
                    None => from.head.store(next, Ordering::Release),
                }
                frame.hash_next.store(to.head.load(Ordering::Relaxed), Ordering::Release);
                to.head.store(at, Ordering::Release);
            } else {
                before = Some(at);
            }
            at = next;
        }
    }

    /// The frame that holds `id` or is about to, to be checked under its latch.
    #[inline]
    pub fn find(&self, frames: &Frames, id: PageId) -> Option<u32> {
        let bucket = self.at(PageTable::number(id, self.count.load(Ordering::Acquire)));
        let mut at = bucket.head.load(Ordering::Acquire);
        for _ in 0..STEPS_MAX {
            if at == NIL {
                break;
            }
            let frame = frames.get(at);
            if frame.holds(id.to_u64()) {
                return Some(at);
            }
            at = frame.hash_next.load(Ordering::Acquire);
        }
        self.find_locked(frames, id)
    }

    #[cold]
    fn find_locked(&self, frames: &Frames, id: PageId) -> Option<u32> {
        let (bucket, _held) = self.lock(id);
        walk(frames, bucket, id).map(|(_, frame)| frame)
    }

    /// Puts `id` into `frame`, whose X latch the caller holds, unless another frame has it: then false.
    pub fn insert(&self, frames: &Frames, id: PageId, frame: u32) -> bool {
        let (bucket, _held) = self.lock(id);
        if walk(frames, bucket, id).is_some() {
            return false;
        }
        let new = frames.get(frame);
        assert_eq!(new.page_id.load(Ordering::Relaxed), NO_PAGE, "frame {frame} is in use");
        new.hash_next.store(bucket.head.load(Ordering::Relaxed), Ordering::Release);
        new.page_id.store(id.to_u64(), Ordering::Release);
        bucket.head.store(frame, Ordering::Release);
        true
    }

    /// Moves `id` from the frame `old` to the empty frame `new`, whose X latches the caller holds. A look-up finds one of the
    /// two: it takes the lock before it says that there is none.
    pub fn replace(&self, frames: &Frames, id: PageId, old: u32, new: u32) {
        let (bucket, _held) = self.lock(id);
        unlink(frames, bucket, id, old);
        let frame = frames.get(new);
        assert_eq!(frame.page_id.load(Ordering::Relaxed), NO_PAGE, "frame {new} is in use");
        frame.hash_next.store(bucket.head.load(Ordering::Relaxed), Ordering::Release);
        frame.page_id.store(id.to_u64(), Ordering::Release);
        bucket.head.store(new, Ordering::Release);
    }

    /// Takes `id` out of `frame`, whose X latch the caller holds.
    pub fn remove(&self, frames: &Frames, id: PageId, frame: u32) {
        let (bucket, _held) = self.lock(id);
        unlink(frames, bucket, id, frame);
    }
}

/// Takes `id` out of `frame` and the locked bucket.
fn unlink(frames: &Frames, bucket: &Bucket, id: PageId, frame: u32) {
    let (previous, found) = walk(frames, bucket, id).expect("a page in a frame is in the page table");
    assert_eq!(found, frame, "{id} is in two frames");
    let old = frames.get(frame);
    let next = old.hash_next.load(Ordering::Relaxed);
    match previous {
        Some(previous) => frames.get(previous).hash_next.store(next, Ordering::Release),
        None => bucket.head.store(next, Ordering::Release),
    }
    old.hash_next.store(NIL, Ordering::Release);
    old.page_id.store(NO_PAGE, Ordering::Release);
}

/// The frame with `id` in the locked bucket, and the one before it in the chain.
fn walk(frames: &Frames, bucket: &Bucket, id: PageId) -> Option<(Option<u32>, u32)> {
    let mut previous = None;
    let mut at = bucket.head.load(Ordering::Relaxed);
    while at != NIL {
        let frame = frames.get(at);
        if frame.holds(id.to_u64()) {
            return Some((previous, at));
        }
        previous = Some(at);
        at = frame.hash_next.load(Ordering::Relaxed);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::{PageNo, SpaceId};
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn buckets_have_places_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..1000 {
            let (segment, place) = PageTable::place(number);
            assert!(place < 1 << (SEGMENT_BITS_MIN + (segment as u32).saturating_sub(1)));
            assert!(seen.insert((segment, place)));
        }
    }

    #[test]
    fn agrees_with_a_map() {
        let frames = Frames::new(64, 64, 4096).unwrap();
        let table = PageTable::new(8);
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut free: Vec<u32> = (0..64).collect();
        let mut random = myriad_base::random::Random::from_seed(1);
        for step in 0..20_000 {
            if step % 100 == 0 {
                table.grow(&frames, 8 + step / 100);
            }
            let id = PageId::new(SpaceId(random.below(3) as u32), PageNo(random.below(40) as u32));
            match model.get(&id.to_u64()) {
                Some(&frame) => {
                    assert_eq!(table.find(&frames, id), Some(frame));
                    if random.one_in(2) {
                        table.remove(&frames, id, frame);
                        model.remove(&id.to_u64());
                        free.push(frame);
                    } else {
                        assert!(free.last().is_none_or(|&f| !table.insert(&frames, id, f)));
                    }
                }
                None => {
                    assert_eq!(table.find(&frames, id), None);
                    if let Some(frame) = free.pop() {
                        assert!(table.insert(&frames, id, frame));
                        model.insert(id.to_u64(), frame);
                    }
                }
            }
        }
    }

    #[test]
    fn pages_are_found_while_buckets_are_split() {
        const EACH: u32 = 64;
        let frames = Frames::new(3 * EACH as usize, 3 * EACH as usize, 4096).unwrap();
        let (table, grown) = (PageTable::new(8), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (frames, table, grown) = (&frames, &table, &grown);
                scope.spawn(move || {
                    let mine = thread * EACH..(thread + 1) * EACH;
                    for round in 0.. {
                        let id = |frame| PageId::new(SpaceId(thread), PageNo(round * EACH + frame));
                        for frame in mine.clone() {
                            assert!(table.insert(frames, id(frame), frame));
                        }
                        for frame in mine.clone() {
                            assert_eq!(table.find(frames, id(frame)), Some(frame));
                            table.remove(frames, id(frame), frame);
                            assert_eq!(table.find(frames, id(frame)), None);
                        }
                        if grown.load(Ordering::Acquire) {
                            break;
                        }
                    }
                });
            }
            table.grow(&frames, 1 << 18);
            grown.store(true, Ordering::Release);
        });
    }
}
