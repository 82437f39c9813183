//! Counters, sharded by thread.

use myriad_base::latch::thread_no;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Counter {
    Hits,
    Misses,
    Reads,
    Writes,
    WriteErrors,
    Carried,
    Evictions,
    EvictedUnwritten,
    FreeWaits,
    Batches,
    DoublewriteBatches,
    Checkpoints,
    Redone,
    Mtrs,
    ChangesBuffered,
    ChangesMerged,
    Merges,
    ReadsTogether,
}

const COUNTERS: usize = 18;
const _: () = assert!(Counter::ReadsTogether as usize + 1 == COUNTERS);
const SHARDS: usize = 64;

#[repr(align(128))]
#[derive(Default)]
struct Shard([AtomicU64; COUNTERS]);

/// Threads that share a shard may lose a count: figures, not a ledger.
pub(crate) struct Counters {
    shards: Box<[Shard; SHARDS]>,
}

impl Counters {
    pub fn new() -> Counters {
        Counters { shards: Box::new(std::array::from_fn(|_| Shard::default())) }
    }

    #[inline]
    pub fn add(&self, counter: Counter) {
        let c = &self.shards[thread_no() % SHARDS].0[counter as usize];
        c.store(c.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn add_many(&self, counter: Counter, n: u64) {
        self.shards[thread_no() % SHARDS].0[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub fn sum(&self, counter: Counter) -> u64 {
        self.shards.iter().map(|s| s.0[counter as usize].load(Ordering::Relaxed)).sum()
    }
}
