//! A sharded cache with a byte budget and second-chance replacement.
//!
//! Each shard's map is guarded by its own latch, held for a look-up or an insertion only. A reader that loads a missing
//! value takes the shard's *epoch* first; [`Cache::invalidate`] moves the epoch on, so that a value read before a change
//! was committed is never put into the cache after it.

use myriad_base::latch::{lock_counted, LatchClass};
use parking_lot::{Mutex, MutexGuard};
use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

const SHARDS: usize = 16;

struct Slot<V> {
    value: V,
    bytes: usize,
    used: bool,
}

struct Shard<K, V> {
    map: HashMap<K, Slot<V>>,
    queue: VecDeque<K>,
    bytes: usize,
    epoch: u64,
}

/// See the module's description.
pub struct Cache<K, V> {
    shards: Vec<Mutex<Shard<K, V>>>,
    hasher: RandomState,
    shard_bytes_max: usize,
}

/// The state of a shard when a look-up missed; needed to insert.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(u64);

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache of about `bytes_max`.
    pub fn new(bytes_max: usize) -> Cache<K, V> {
        let shard = || Shard { map: HashMap::new(), queue: VecDeque::new(), bytes: 0, epoch: 0 };
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            hasher: RandomState::new(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> MutexGuard<'_, Shard<K, V>> {
        let no = self.hasher.hash_one(key) as usize % SHARDS;
        lock_counted(&self.shards[no], LatchClass::Catalog.part(no))
    }

    /// The value, or the epoch to insert it with.
    pub fn get<Q>(&self, key: &Q) -> Result<V, Epoch>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut shard = self.shard(key);
        let epoch = Epoch(shard.epoch);
        let slot = shard.map.get_mut(key).ok_or(epoch)?;
        slot.used = true;
        Ok(slot.value.clone())
    }

    /// Inserts what was read after the look-up that gave `epoch`, unless something was invalidated since.
    pub fn insert(&self, key: K, value: V, bytes: usize, epoch: Epoch) {
        let mut shard = self.shard(&key);
        if shard.epoch != epoch.0 || bytes > self.shard_bytes_max {
            return;
        }
        if let Entry::Vacant(vacant) = shard.map.entry(key.clone()) {
            vacant.insert(Slot { value, bytes, used: false });
            shard.queue.push_back(key);
            shard.bytes += bytes;
        }
        while shard.bytes > self.shard_bytes_max {
            let Some(key) = shard.queue.pop_front() else { break };
            // Keys of invalidated values linger in the queue until they come by.
            let Some(slot) = shard.map.get_mut(&key) else { continue };
            if std::mem::take(&mut slot.used) {
                shard.queue.push_back(key);
            } else if let Some(slot) = shard.map.remove(&key) {
                shard.bytes -= slot.bytes;
            }
        }
    }

    /// Forgets a value. Call after the change is committed.
    pub fn invalidate<Q>(&self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut shard = self.shard(key);
        shard.epoch += 1;
        if let Some(slot) = shard.map.remove(key) {
            shard.bytes -= slot.bytes;
            // A key must not stand in the queue twice, or a new value under it would lose its second chance.
            if shard.queue.len() > 2 * shard.map.len() + 16 {
                let Shard { map, queue, .. } = &mut *shard;
                queue.retain(|k| map.contains_key::<K>(k));
            }
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.epoch += 1;
            shard.map.clear();
            shard.queue.clear();
            shard.bytes = 0;
        }
    }

    /// Entries and bytes in it.
    pub fn usage(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(n, bytes), shard| {
            let shard = shard.lock();
            (n + shard.map.len(), bytes + shard.bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_to_its_budget_and_prefers_what_is_used() {
        let cache: Cache<u32, u32> = Cache::new(SHARDS * 1000);
        for i in 0..10_000u32 {
            if let Err(epoch) = cache.get(&i) {
                cache.insert(i, i, 100, epoch);
            }
            let _ = cache.get(&7);
        }
        let (n, bytes) = cache.usage();
        assert!(bytes <= SHARDS * 1000 && n * 100 == bytes && n > SHARDS * 5);
        assert_eq!(cache.get(&7).ok(), Some(7));
    }

    #[test]
    fn a_stale_read_is_not_inserted() {
        let cache: Cache<String, u32> = Cache::new(1 << 20);
        let epoch = cache.get("a").unwrap_err();
        cache.invalidate("a");
        cache.insert("a".into(), 1, 10, epoch);
        assert!(cache.get("a").is_err());
        let epoch = cache.get("a").unwrap_err();
        cache.insert("a".into(), 2, 10, epoch);
        assert_eq!(cache.get("a").ok(), Some(2));
        cache.clear();
        assert_eq!(cache.usage(), (0, 0));
    }
}
