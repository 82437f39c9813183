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
/// Keys of forgotten values in a shard's queue that are not worth a look.
const LINGERING_MIN: usize = 16;

struct Slot<V> {
    value: V,
    bytes: usize,
    used: bool,
    /// Of all insertions into the shard.
    number: u64,
}

struct Shard<K, V> {
    map: HashMap<K, Slot<V>>,
    /// Keys with the numbers of their insertions. Those of forgotten values linger until they come by.
    queue: VecDeque<(K, u64)>,
    bytes: usize,
    epoch: u64,
    insertions: u64,
}

impl<K: Hash + Eq, V> Shard<K, V> {
    /// Takes out of the queue what lingers there, once that is half of it: so the cost is that of the insertions.
    fn tidy(&mut self) {
        if self.queue.len() > 2 * self.map.len() + LINGERING_MIN {
            let map = &self.map;
            self.queue.retain(|(key, number)| map.get(key).is_some_and(|slot| slot.number == *number));
        }
    }
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
        let shard = || Shard { map: HashMap::new(), queue: VecDeque::new(), bytes: 0, epoch: 0, insertions: 0 };
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            hasher: RandomState::new(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    fn shard_no<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> MutexGuard<'_, Shard<K, V>> {
        let no = self.shard_no(key);
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
        let shard = &mut *shard;
        if let Entry::Vacant(vacant) = shard.map.entry(key.clone()) {
            shard.insertions += 1;
            vacant.insert(Slot { value, bytes, used: false, number: shard.insertions });
            shard.queue.push_back((key, shard.insertions));
            shard.bytes += bytes;
        }
        while shard.bytes > self.shard_bytes_max {
            let Some((key, number)) = shard.queue.pop_front() else { break };
            let Some(slot) = shard.map.get_mut(&key).filter(|slot| slot.number == number) else { continue };
            if std::mem::take(&mut slot.used) {
                shard.queue.push_back((key, number));
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
            shard.tidy();
        }
    }

    /// As [`Cache::invalidate`], of all keys for which `gone` holds. Looks at every key.
    pub fn invalidate_all(&self, gone: impl Fn(&K) -> bool) {
        for (no, shard) in self.shards.iter().enumerate() {
            let mut shard = lock_counted(shard, LatchClass::Catalog.part(no));
            let Shard { map, bytes, epoch, .. } = &mut *shard;
            *epoch += 1;
            map.retain(|key, slot| {
                let keep = !gone(key);
                *bytes -= if keep { 0 } else { slot.bytes };
                keep
            });
            shard.tidy();
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
    }

    #[test]
    fn all_of_some_keys_are_forgotten_and_no_others() {
        let cache: Cache<u32, u32> = Cache::new(1 << 20);
        let epochs: Vec<Epoch> = (0..1000).map(|i| cache.get(&i).unwrap_err()).collect();
        (0..1000).for_each(|i| cache.insert(i, i, 10, epochs[i as usize]));
        let stale = cache.get(&1003).unwrap_err();
        cache.invalidate_all(|key| key % 2 == 1);
        assert_eq!(cache.usage(), (500, 5000));
        assert!((0..1000).all(|i| cache.get(&i).is_ok() == (i % 2 == 0)));
        cache.insert(1003, 1, 10, stale);
        assert!(cache.get(&1003).is_err());
    }

    #[test]
    fn a_value_put_in_again_has_its_second_chance() {
        let cache: Cache<u32, u32> = Cache::new(SHARDS * 1000);
        let insert = |i: u32| {
            if let Err(epoch) = cache.get(&i) {
                cache.insert(i, i, 100, epoch);
            }
        };
        insert(7);
        cache.invalidate(&7);
        insert(7);
        // Used, and then as many others as make the hand come by once.
        assert!(cache.get(&7).is_ok());
        (8..).filter(|i| cache.shard_no(i) == cache.shard_no(&7)).take(10).for_each(insert);
        assert!(cache.get(&7).is_ok());
    }
}
