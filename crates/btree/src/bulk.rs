//! Bulk loading of sorted entries.

use crate::alloc::{self, Found};
use crate::leaf::{Leaf, LeafMut};
use crate::page::{self, Fences, Latched, Target, LEFTMOST, RIGHTMOST};
use crate::redo::{self, Bounds};
use crate::split::{expect_between, insert_separator};
use crate::tree::Tree;
use myriad_base::limits::key_bytes_max;
use myriad_base::page::PageKind;
use myriad_base::{Error, IndexId, PageNo, Result, SpaceId};
use myriad_buffer::{BufferPool, ExclusivePage, Mtr};

/// Bytes that an entry and its slot take on a leaf whose prefix is `prefix` bytes long.
fn leaf_entry_bytes(prefix: usize, key: &[u8], value: &[u8]) -> usize {
    page::entry_bytes(0, key.len() - prefix, value.len()) + page::SLOT_BYTES
}

/// Entries in key order, waiting to be written.
#[derive(Default)]
pub struct SortedEntries {
    bytes: Vec<u8>,
    /// End of the key and end of the value of each entry.
    ends: Vec<(usize, usize)>,
}

impl SortedEntries {
    /// Adds an entry, whose key is above all before it; both in two parts.
    ///
    /// # Errors
    /// [`Error::TooLong`]; [`Error::Invalid`] for a key out of order.
    pub fn push_parts(&mut self, page_size: usize, key: [&[u8]; 2], value: [&[u8]; 2]) -> Result<()> {
        check_lengths(page_size, key[0].len() + key[1].len(), value[0].len() + value[1].len())?;
        let start = self.bytes.len();
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let key_end = self.bytes.len();
        if !self.is_empty() && self.key(self.len() - 1) >= &self.bytes[start..] {
            self.bytes.truncate(start);
            return Err(out_of_order());
        }
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push((key_end, self.bytes.len()));
        Ok(())
    }

    /// Keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|at| (self.key(at), self.value(at)))
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all entries; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 {
            0
        } else {
            self.ends[at - 1].1
        }
    }

    fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at].0]
    }

    fn value(&self, at: usize) -> &[u8] {
        &self.bytes[self.ends[at].0..self.ends[at].1]
    }

    /// Bytes that the first `n` entries take on a leaf whose prefix is `prefix` bytes long.
    fn bytes_on_leaf(&self, n: usize, prefix: usize) -> usize {
        (0..n).map(|i| leaf_entry_bytes(prefix, self.key(i), self.value(i))).sum()
    }

    /// Drops the first `n` entries.
    fn drain(&mut self, n: usize) {
        let cut = self.start(n);
        self.bytes.drain(..cut);
        self.ends.drain(..n);
        for e in &mut self.ends {
            *e = (e.0 - cut, e.1 - cut);
        }
    }

    fn check(&self, page_size: usize, key: &[u8], value: &[u8]) -> Result<()> {
        check_lengths(page_size, key.len(), value.len())?;
        if !self.is_empty() && self.key(self.len() - 1) >= key {
            return Err(out_of_order());
        }
        Ok(())
    }

    /// How many entries from `at` on go behind the last one of the leaf `p`, which covers the first of them, so that
    /// [`room_left`] stays: `payload` is that of [`redo::APPEND`].
    fn behind(&self, at: usize, p: &[u8], payload: &mut Vec<u8>) -> usize {
        payload.clear();
        let slots = page::count(p);
        if slots > 0 && page::cmp_key(p, slots - 1, self.key(at)).is_ge() {
            return 0;
        }
        let prefix = page::prefix_len(p);
        let mut free = page::free_bytes(p).saturating_sub(room_left(p.len()));
        let mut end = at;
        while end < self.len() {
            let (key, value) = (self.key(end), self.value(end));
            if !page::covers(p, key) {
                break;
            }
            let bytes = leaf_entry_bytes(prefix, key, value);
            if bytes > free {
                break;
            }
            free -= bytes;
            redo::push_leaf_entry(payload, &key[prefix..], value);
            end += 1;
        }
        end - at
    }

    /// The payload of [`redo::LOAD`] for a leaf of the first `n` entries.
    fn load_payload(&self, n: usize, fences: Fences<'_>) -> Vec<u8> {
        let prefix = page::shared_prefix_len(fences.low, fences.high);
        let mut out = Vec::with_capacity(self.start(n) + n * 4 + fences.low.len() + fences.high.len() + 16);
        redo::push_bounds(&mut out, &Bounds { level: 0, left: PageNo(0), fences });
        for i in 0..n {
            redo::push_leaf_entry(&mut out, &self.key(i)[prefix..], self.value(i));
        }
        out
    }
}

/// Bytes that stay free on a leaf filled in key order: later changes make rows longer (by their version at least), and a full
/// leaf would split at the first one.
fn room_left(page_size: usize) -> usize {
    page_size / 16
}

fn check_lengths(page_size: usize, key: usize, value: usize) -> Result<()> {
    let (key_max, max) = (key_bytes_max(page_size), page::entry_bytes_max(page_size));
    if key > key_max {
        return Err(Error::TooLong { what: "key", len: key, max: key_max });
    }
    if key + value > max {
        return Err(Error::TooLong { what: "index entry", len: key + value, max });
    }
    Ok(())
}

fn out_of_order() -> Error {
    Error::invalid("bulk load of keys that are not in order")
}

/// Builds a tree of its own from entries in key order: leaves filled but for [`room_left`] and logged once each. The tree is whole
/// after every leaf (its last leaf is empty and waits for what comes), so one that was given up is freed by
/// [`Tree::destroy`]. Nobody else may use the tree before [`BulkBuilder::finish`].
pub struct BulkBuilder<'p> {
    pool: &'p BufferPool,
    tree: Tree,
    /// What the last leaf will hold.
    batch: SortedEntries,
    /// Bytes that it takes on a leaf whose prefix is `prefix` bytes long.
    bytes: usize,
    prefix: usize,
    /// The last leaf's low fence, and the tree's high fence.
    low: Vec<u8>,
    high: Vec<u8>,
    index: IndexId,
}

impl<'p> BulkBuilder<'p> {
    /// Creates the tree ([`Tree::create_for`]).
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn new(pool: &'p BufferPool, space: SpaceId, index: IndexId) -> Result<BulkBuilder<'p>> {
        let tree = Tree::create_for(pool, space, index)?;
        let (low, high) = {
            let root = pool.fix_shared(tree.root_id())?;
            (page::low_stored(&root).to_vec(), page::high_stored(&root).to_vec())
        };
        Ok(BulkBuilder { pool, tree, batch: SortedEntries::default(), bytes: 0, prefix: 0, low, high, index })
    }

    /// The tree that is being built: note it where a crash can find it.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// Adds an entry, whose key is above all before it.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] for a key out of order; [`myriad_base::Error::DiskFull`]; the pool's.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let page_size = self.pool.page_size();
        self.batch.check(page_size, key, value)?;
        if !key.starts_with(&self.index.0.to_be_bytes()) || key < &self.low[..] {
            return Err(Error::invalid("bulk load of keys that are not the index's, or not in order"));
        }
        let mut bytes = self.bytes_with(key, value);
        if !self.batch.is_empty() && bytes > page::capacity(page_size, &self.low, key) - room_left(page_size) {
            let n = self.batch.len();
            self.flush(n, Some(key))?;
            self.bytes = 0;
            bytes = self.bytes_with(key, value);
        }
        self.bytes = bytes;
        self.batch.push(key, value);
        Ok(())
    }

    /// Bytes that the batch takes on a leaf together with this entry, which follows: at most.
    fn bytes_with(&mut self, key: &[u8], value: &[u8]) -> usize {
        // The prefix with this key is at most the one with the separator to it: the sum is never too small.
        let prefix = page::common_prefix(&self.low, key);
        if self.prefix != prefix {
            self.prefix = prefix;
            self.bytes = self.batch.bytes_on_leaf(self.batch.len(), prefix);
        }
        self.bytes + leaf_entry_bytes(prefix, key, value)
    }

    /// Writes the first `n` entries, in more than one leaf if they must. `next` is the key after them.
    fn flush(&mut self, n: usize, next: Option<&[u8]>) -> Result<()> {
        self.pool.check_writable(self.tree.space)?;
        let mut rest = n;
        while rest > 0 {
            let mut m = rest;
            loop {
                let after = if m < self.batch.len() { Some(self.batch.key(m)) } else { next };
                let separator = match after {
                    Some(key) => page::separator(self.batch.key(m - 1), key).to_vec(),
                    None => self.high.clone(),
                };
                let prefix = page::shared_prefix_len(&self.low, &separator);
                let capacity = page::capacity(self.pool.page_size(), &self.low, &separator);
                if self.batch.bytes_on_leaf(m, prefix) <= capacity {
                    if after.is_none() {
                        return self.write_last(m);
                    }
                    self.write_leaf(m, &separator)?;
                    self.low = separator;
                    break;
                }
                assert!(m > 1, "one entry always fits a leaf");
                m /= 2;
            }
            self.batch.drain(m);
            rest -= m;
        }
        Ok(())
    }

    /// Fills the last leaf with the first `m` entries, up to `separator`, and puts an empty last leaf behind it.
    fn write_leaf(&mut self, m: usize, separator: &[u8]) -> Result<()> {
        let (pool, tree) = (self.pool, self.tree);
        loop {
            let mut mtr = Mtr::start(pool)?;
            let Some(parent) = tree.at_level::<ExclusivePage<'_>>(pool, Target::At(separator), 1)? else {
                drop(mtr);
                tree.as_owner().raise_root(pool, 0)?;
                continue;
            };
            let parent = mtr.adopt(parent);
            if !page::fits_inner(mtr.page(parent), separator.len()) {
                drop(mtr);
                tree.as_owner().make_room_for_separator(pool, 1, separator)?;
                continue;
            }
            let child_at = page::route(&Latched(mtr.page(parent)), Target::At(separator));
            let leaf_id = tree.id(page::child(mtr.page(parent), child_at));
            let leaf = mtr.fix(leaf_id)?;
            tree.expect(mtr.page(leaf), leaf_id, 0)?;
            let p = mtr.page(leaf);
            if page::count(p) != 0 || page::low_stored(p) != &self.low[..] || !page::is_rightmost(p) {
                return Err(Error::invalid("a tree under construction was changed"));
            }
            let flags = p[page::OFF_FLAGS];
            expect_between(mtr.page(parent), mtr.page_id(parent), child_at..child_at, separator)?;
            match alloc::find(&mut mtr, tree.space, Some(leaf_id.page))? {
                Found::Grow(growth) => {
                    drop(mtr);
                    alloc::grow(pool, tree.space, growth)?;
                }
                Found::Page(candidate) => {
                    let last_no = candidate.page().page;
                    let full = Fences { low: &self.low, high: separator, flags: flags & LEFTMOST };
                    let content = self.batch.load_payload(m, full);
                    let mut empty = Vec::new();
                    let fences = Fences { low: separator, high: &self.high, flags: RIGHTMOST };
                    redo::push_bounds(&mut empty, &Bounds { level: 0, left: PageNo(0), fences });
                    let last = alloc::take(&mut mtr, candidate, PageKind::Index)?;
                    mtr.apply(last, redo::FORMAT, &empty)?;
                    mtr.apply(leaf, redo::LOAD, &content)?;
                    insert_separator(&mut mtr, parent, child_at, separator, last_no)?;
                    mtr.commit()?;
                    return Ok(());
                }
            }
        }
    }

    /// Fills the last leaf with the first `m` entries.
    fn write_last(&mut self, m: usize) -> Result<()> {
        let mut mtr = Mtr::start(self.pool)?;
        let leaf = self.tree.at_level::<ExclusivePage<'_>>(self.pool, Target::Last, 0)?;
        let leaf = mtr.adopt(leaf.expect("every tree has level 0"));
        let p = mtr.page(leaf);
        if page::count(p) != 0 || page::low_stored(p) != &self.low[..] {
            return Err(Error::invalid("a tree under construction was changed"));
        }
        let flags = p[page::OFF_FLAGS];
        let content = self.batch.load_payload(m, Fences { low: &self.low, high: &self.high, flags });
        mtr.apply(leaf, redo::LOAD, &content)?;
        mtr.commit()?;
        self.batch.drain(m);
        Ok(())
    }

    /// Writes what is left. Returns the tree.
    ///
    /// # Errors
    /// As [`BulkBuilder::push`].
    pub fn finish(mut self) -> Result<Tree> {
        while !self.batch.is_empty() {
            let n = self.batch.len();
            self.flush(n, None)?;
        }
        Ok(self.tree)
    }
}

/// Bytes of entries that [`BulkAppender`] collects.
const APPEND_BYTES: usize = 32 << 10;

/// Makes room for an entry with this key and so many bytes of value: [`Tree::make_room`], and what its caller has to add.
pub type MakeRoom<'p> = &'p dyn Fn(&[u8], usize) -> Result<()>;

/// Adds entries in key order to a tree that others use: many entries a mini-transaction. None of them may exist yet.
pub struct BulkAppender<'p> {
    pool: &'p BufferPool,
    tree: Tree,
    make_room: MakeRoom<'p>,
    batch: SortedEntries,
    existing: Option<Vec<u8>>,
}

impl<'p> BulkAppender<'p> {
    /// Into `tree`.
    pub fn new(pool: &'p BufferPool, tree: Tree, make_room: MakeRoom<'p>) -> BulkAppender<'p> {
        BulkAppender { pool, tree, make_room, batch: SortedEntries::default(), existing: None }
    }

    /// Adds an entry; it is in the tree after [`BulkAppender::flush`] at the latest. One dropped before that is lost.
    ///
    /// # Errors
    /// As [`BulkBuilder::push`].
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.check(self.pool.page_size(), key, value)?;
        self.batch.push(key, value);
        if self.batch.bytes.len() >= APPEND_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Puts everything into the tree.
    ///
    /// # Errors
    /// As [`BulkBuilder::push`]; [`Error::Invalid`] when an entry exists already, see [`BulkAppender::existing`].
    pub fn flush(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.append(&batch)?;
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    /// Puts these entries into the tree at once.
    ///
    /// # Errors
    /// As [`BulkAppender::flush`].
    pub fn append(&mut self, entries: &SortedEntries) -> Result<()> {
        let mut payload = Vec::new();
        let mut at = 0;
        while at < entries.len() {
            self.pool.check_writable(self.tree.space)?;
            let mut mtr = Mtr::start(self.pool)?;
            let leaf = self.tree.seek_exclusive(self.pool, entries.key(at))?.into_mtr(&mut mtr);
            let n = entries.behind(at, leaf.view(&mtr).bytes(), &mut payload);
            let lacking = if n > 0 {
                leaf.append(&mut mtr, &payload)?;
                at += n;
                None
            } else {
                self.insert_between(&mut mtr, &leaf, entries, &mut at)?
            };
            mtr.commit()?;
            if self.existing.is_some() {
                return Err(Error::invalid("bulk load of a key that exists"));
            }
            if let Some(value_len) = lacking {
                (self.make_room)(entries.key(at), value_len)?;
            }
        }
        Ok(())
    }

    /// The key that was found to exist. All entries below it are in the tree.
    pub fn existing(&self) -> Option<&[u8]> {
        self.existing.as_deref()
    }

    /// Inserts entries from `at` on into the leaf, as far as they belong there and fit, up to one that exists. If the next one
    /// belongs there too and lacks room: the length of a value for which there has to be some.
    fn insert_between(
        &mut self,
        mtr: &mut Mtr<'_>,
        leaf: &LeafMut,
        entries: &SortedEntries,
        at: &mut usize,
    ) -> Result<Option<usize>> {
        let page_size = self.pool.page_size();
        while *at < entries.len() {
            let (key, value) = (entries.key(*at), entries.value(*at));
            let view = leaf.view(mtr);
            if !view.covers(key) {
                break;
            }
            let Err(slot) = view.find(key) else {
                self.existing = Some(key.to_vec());
                break;
            };
            let last = slot == view.len();
            let room = room_left(page_size).min(page::entry_bytes_max(page_size) - key.len() - value.len());
            let value_len = value.len() + if last { room } else { 0 };
            if !view.fits(key.len(), value_len) {
                return Ok(Some(value_len));
            }
            leaf.insert(mtr, slot, key, value)?;
            *at += 1;
        }
        Ok(None)
    }
}
