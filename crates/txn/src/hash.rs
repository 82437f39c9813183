//! Hash look-up for indexes of in-memory tables: where a key's entry was when it was last looked for.
//!
//! The trees stay what holds the entries. Here is a page number and a slot for a key's hash, which are believed only of a
//! page that is in memory and, under its latch, is a leaf that has the key in that slot, or whose fences hold the key. All
//! indexes of in-memory tables share one pack tree, where a key has one such leaf; elsewhere this would not do.

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
const PAGE_BYTES_OF_SLOT: usize = 128;
/// In the word of a slot: from here on the upper bits of the key's hash; below, from [`ENTRY_SHIFT`] on, the entry's slot in
/// its leaf, as far as it fits; below that the page number.
const TAG_SHIFT: u32 = 44;
const ENTRY_SHIFT: u32 = 32;
const ENTRY_MAX: usize = (1 << (TAG_SHIFT - ENTRY_SHIFT)) - 1;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; BUCKET]);

/// A hash table from keys to places of entries, which doubles as it fills and forgets what has no room.
pub(crate) struct LeafHash {
    /// Only the last one made is used; the ones before, together as large, stay for those who still read them.
    tables: [OnceLock<Box<[Bucket]>>; TABLES_MAX],
    current: AtomicUsize,
    /// Slots in use of the current one.
    used: AtomicUsize,
}

/// Where a key's slot is, and the part of its hash that the slot holds.
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
        let table = self.table(self.current.load(Ordering::Acquire));
        Place { bucket: &table[hash as usize & (table.len() - 1)], tag: hash >> TAG_SHIFT << TAG_SHIFT }
    }

    /// Notes where the key of this place is, or would be.
    fn note(&self, place: Place<'_>, leaf: &impl Leaf, key: &[u8], pool: &BufferPool) {
        let (page, entry) = (leaf.page_id(), leaf.find(key).unwrap_or_else(|at| at).min(ENTRY_MAX));
        let slots = &place.bucket.0;
        let free = || slots.iter().find(|s| s.load(Ordering::Relaxed) == 0);
        let slot = place.own().or_else(free).unwrap_or(&slots[page.page.0 as usize % BUCKET]);
        let word = place.tag | (entry as u64) << ENTRY_SHIFT | u64::from(page.page.0);
        if slot.swap(word, Ordering::Relaxed) == 0 {
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
        let held = place.entry().and_then(|(id, at)| LeafShared::holding_at(pool.resident_shared(id)?, key, at));
        let leaf = match held {
            Some(leaf) if leaf.knows_slot() => return Ok(leaf),
            Some(leaf) => leaf,
            None => index.tree.seek(pool, key)?,
        };
        self.note(place, &leaf, key, pool);
        Ok(leaf)
    }

    /// As [`LeafHash::seek`], latched exclusively.
    pub fn seek_exclusive<'p>(&self, pool: &'p BufferPool, index: &Index, key: &[u8]) -> Result<LeafExclusive<'p>> {
        let place = self.place(hash_key(key));
        if let Some(leaf) = place.entry().and_then(|(id, _)| LeafExclusive::holding(pool.resident_exclusive(id)?, key))
        {
            return Ok(leaf);
        }
        let leaf = index.tree.seek_exclusive(pool, key)?;
        self.note(place, &leaf, key, pool);
        Ok(leaf)
    }
}

impl<'t> Place<'t> {
    /// Page and entry that a slot in use names, if it is the key's.
    #[inline]
    fn entry_in(&self, slot: &AtomicU64) -> Option<(PageId, u16)> {
        let noted = slot.load(Ordering::Relaxed);
        let entry = (noted >> ENTRY_SHIFT) as usize & ENTRY_MAX;
        (noted != 0 && noted >> TAG_SHIFT << TAG_SHIFT == self.tag)
            .then(|| (PageId::new(SpaceId::MEMORY, PageNo(noted as u32)), entry as u16))
    }

    /// The key's slot.
    fn own(&self) -> Option<&'t AtomicU64> {
        self.bucket.0.iter().find(|s| self.entry_in(s).is_some())
    }

    /// The entry noted for the key.
    #[inline]
    fn entry(&self) -> Option<(PageId, u16)> {
        self.bucket.0.iter().find_map(|s| self.entry_in(s))
    }
}
