//! The page table: page id -> frame.
//!
//! A bucket is the head of a chain through the frames' `hash_next` and a lock. A look-up first walks the chain without
//! the lock. Such a walk may go astray while frames change hands, so what it finds is only a candidate, checked by the
//! caller under the frame's latch, and what it does not find is looked for again under the lock. Insertion and removal
//! take the lock; both happen only when pages enter or leave memory.

use crate::frame::{Frames, NIL, NO_PAGE};
use crate::shard::lock_counted;
use myriad_base::latch::LatchClass;
use myriad_base::PageId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Steps of a walk without the lock; chains are short, a longer walk has gone astray.
const STEPS_MAX: usize = 16;

struct Bucket {
    head: AtomicU32,
    lock: Mutex<()>,
}

pub(crate) struct PageTable {
    buckets: Box<[Bucket]>,
    mask: u64,
}

impl PageTable {
    /// A table for `frames` frames.
    pub fn new(frames: usize) -> PageTable {
        let count = (frames * 2).next_power_of_two();
        let buckets = (0..count).map(|_| Bucket { head: AtomicU32::new(NIL), lock: Mutex::new(()) }).collect();
        PageTable { buckets, mask: count as u64 - 1 }
    }

    #[inline]
    fn bucket(&self, id: PageId) -> &Bucket {
        &self.buckets[(id.hash() & self.mask) as usize]
    }

    /// The frame that holds `id` or is about to, to be checked under its latch.
    #[inline]
    pub fn find(&self, frames: &Frames, id: PageId) -> Option<u32> {
        let bucket = self.bucket(id);
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
        let bucket = self.bucket(id);
        let _held = lock_counted(&bucket.lock, LatchClass::PageTable);
        walk(frames, bucket, id).map(|(_, frame)| frame)
    }

    /// Puts `id` into `frame`, whose X latch the caller holds, unless another frame has it: then false.
    pub fn insert(&self, frames: &Frames, id: PageId, frame: u32) -> bool {
        let bucket = self.bucket(id);
        let _held = lock_counted(&bucket.lock, LatchClass::PageTable);
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

    /// Takes `id` out of `frame`, whose X latch the caller holds.
    pub fn remove(&self, frames: &Frames, id: PageId, frame: u32) {
        let bucket = self.bucket(id);
        let _held = lock_counted(&bucket.lock, LatchClass::PageTable);
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

    #[test]
    fn agrees_with_a_map() {
        let frames = Frames::new(64, 4096).unwrap();
        let table = PageTable::new(8); // long chains
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut free: Vec<u32> = (0..64).collect();
        let mut random = myriad_base::random::Random::from_seed(1);
        for _ in 0..20_000 {
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
}
