//! Hash look-up for indexes of in-memory tables: which leaf covered a key when it was last looked for.
//!
//! The trees stay what holds the entries. Here is a page number for a key's hash, which is believed only of a page that is
//! in memory and, under its latch, is a leaf whose fences hold the key. All indexes of in-memory tables share one pack tree,
//! where a key has one such leaf; elsewhere this would not do.

use crate::index::Index;
use crate::lock::hash_key;
use myriad_base::{PageId, PageNo, Result, SpaceId};
use myriad_btree::{Leaf, LeafExclusive, LeafShared};
use myriad_buffer::BufferPool;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// Slots of a bucket, which is a cache line.
const BUCKET: usize = 8;
/// Slots of the first table; each further one has twice as many.
const SLOTS_MIN: usize = 1 << 12;
/// Most tables, one after the other: 2^34 slots.
const TABLES_MAX: usize = 23;
/// A slot for so many bytes of in-memory tables' pages, at most.
const PAGE_BYTES_OF_SLOT: usize = 256;
/// Keys that differ in no more than their last bits share a slot: they are in one leaf nearly always, and numbers given in
/// a row take a quarter of the slots.
const NEIGHBOUR_BITS: u32 = 2;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; BUCKET]);

/// A hash table from keys to page numbers, which doubles as it fills and forgets what has no room.
pub(crate) struct LeafHash {
    /// Only the last one made is used; the ones before, together as large, stay for those who still read them.
    tables: [OnceLock<Box<[Bucket]>>; TABLES_MAX],
    current: AtomicUsize,
    /// Slots in use of the current one.
    used: AtomicUsize,
}

/// What a slot holds: the upper half of the hash that the slot's place does not tell, and a page number.
#[derive(Clone, Copy)]
struct Place<'t> {
    bucket: &'t Bucket,
    tag: u64,
}

impl LeafHash {
    pub fn new() -> LeafHash {
        let tables = [const { OnceLock::new() }; TABLES_MAX];
        LeafHash { tables, current: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    fn table(&self, number: usize) -> &[Bucket] {
        self.tables[number].get_or_init(|| (0..(SLOTS_MIN << number) / BUCKET).map(|_| Bucket::default()).collect())
    }

    fn place(&self, hash: u64) -> Place<'_> {
        let (hash, table) = (hash >> NEIGHBOUR_BITS, self.table(self.current.load(Ordering::Acquire)));
        Place { bucket: &table[hash as usize & (table.len() - 1)], tag: hash >> 30 << 32 }
    }

    /// Notes that the key of this place is in `page`.
    fn note(&self, place: Place<'_>, page: PageId, pool: &BufferPool) {
        let slots = &place.bucket.0;
        let free = || slots.iter().find(|s| s.load(Ordering::Relaxed) == 0);
        let slot = place.own().or_else(free).unwrap_or(&slots[page.page.0 as usize % BUCKET]);
        if slot.swap(place.tag | u64::from(page.page.0), Ordering::Relaxed) == 0 {
            self.grow(self.used.fetch_add(1, Ordering::Relaxed) + 1, pool);
        }
    }

    /// Goes on to a larger table, an empty one, if this one is half full and there is much to be looked up.
    fn grow(&self, used: usize, pool: &BufferPool) {
        let number = self.current.load(Ordering::Relaxed);
        let slots = SLOTS_MIN << number;
        let enough = slots >= pool.memory_tables_bytes() / PAGE_BYTES_OF_SLOT || number + 1 == TABLES_MAX;
        if used <= slots / 2 || enough {
            return;
        }
        self.table(number + 1);
        if self.current.compare_exchange(number, number + 1, Ordering::Release, Ordering::Relaxed).is_ok() {
            self.used.store(0, Ordering::Relaxed);
        }
    }

    /// As [`myriad_btree::Tree::seek`], for an index with hash look-up.
    pub fn seek<'p>(&self, pool: &'p BufferPool, index: &Index, key: &[u8]) -> Result<LeafShared<'p>> {
        let place = self.place(hash_key(key));
        if let Some(leaf) = place.page().and_then(|id| LeafShared::holding(pool.resident_shared(id)?, key)) {
            return Ok(leaf);
        }
        let leaf = index.tree.seek(pool, key)?;
        self.note(place, leaf.page_id(), pool);
        Ok(leaf)
    }

    /// As [`LeafHash::seek`], latched exclusively.
    pub fn seek_exclusive<'p>(&self, pool: &'p BufferPool, index: &Index, key: &[u8]) -> Result<LeafExclusive<'p>> {
        let place = self.place(hash_key(key));
        if let Some(leaf) = place.page().and_then(|id| LeafExclusive::holding(pool.resident_exclusive(id)?, key)) {
            return Ok(leaf);
        }
        let leaf = index.tree.seek_exclusive(pool, key)?;
        self.note(place, leaf.page_id(), pool);
        Ok(leaf)
    }
}

impl<'t> Place<'t> {
    /// The page that a slot in use names, if it is the key's.
    #[inline]
    fn page_in(&self, slot: &AtomicU64) -> Option<PageId> {
        let noted = slot.load(Ordering::Relaxed);
        (noted != 0 && noted >> 32 << 32 == self.tag).then(|| PageId::new(SpaceId::MEMORY, PageNo(noted as u32)))
    }

    /// The key's slot.
    fn own(&self) -> Option<&'t AtomicU64> {
        self.bucket.0.iter().find(|s| self.page_in(s).is_some())
    }

    /// The page noted for the key.
    #[inline]
    fn page(&self) -> Option<PageId> {
        self.bucket.0.iter().find_map(|s| self.page_in(s))
    }
}
