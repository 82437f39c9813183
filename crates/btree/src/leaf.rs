//! Leaves in the hand: latched shared, latched exclusively, and inside a mini-transaction.

use crate::page::{self, Entries, KeyParts};
use crate::redo;
use myriad_base::{Error, PageId, Result};
use myriad_buffer::{ExclusivePage, FrameNo, Mtr, PageRef, SeenPage, SharedPage};
use std::cmp::Ordering;

/// Reading a leaf. Slots are numbered from 0 in key order; a slot number beyond [`Leaf::len`] panics.
pub trait Leaf {
    /// The page's bytes.
    fn bytes(&self) -> &[u8];

    /// Which page it is.
    fn page_id(&self) -> PageId;

    /// Number of entries.
    #[inline]
    fn len(&self) -> usize {
        page::count(self.bytes())
    }

    /// Whether there is no entry. An empty leaf is legal anywhere.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of `key`, or (`Err`) the slot where it would be inserted.
    #[inline]
    fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        page::find(self.bytes(), key)
    }

    /// As [`Leaf::find`], for who came here by a seek of `key`.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] if the key is not this leaf's: it would be taken for absent, and inserted where nobody finds it.
    #[inline]
    fn find_sought(&self, key: &[u8]) -> Result<std::result::Result<usize, usize>> {
        match self.find(key) {
            // Between two of its entries it is.
            Err(slot) if (slot == 0 || slot == self.len()) && !self.covers(key) => Err(not_covered(self.page_id())),
            found => Ok(found),
        }
    }

    /// Compares the slot's key with `key`.
    #[inline]
    fn cmp_key(&self, slot: usize, key: &[u8]) -> Ordering {
        page::cmp_key(self.bytes(), slot, key)
    }

    /// Length of the slot's key in bytes.
    #[inline]
    fn key_len(&self, slot: usize) -> usize {
        self.key_parts(slot).len()
    }

    /// The slot's key, without copying.
    #[inline]
    fn key_parts(&self, slot: usize) -> KeyParts<'_> {
        page::key_parts(self.bytes(), slot)
    }

    /// Replaces `out` by the slot's key.
    #[inline]
    fn key_into(&self, slot: usize, out: &mut Vec<u8>) {
        out.clear();
        self.key_parts(slot).append_to(out);
    }

    /// The slot's value.
    #[inline]
    fn value(&self, slot: usize) -> &[u8] {
        page::value(self.bytes(), slot)
    }

    /// The entries, to read many of them.
    #[inline]
    fn entries(&self) -> Entries<'_> {
        page::entries(self.bytes())
    }

    /// No key of this leaf is below. Empty for the tree's first leaf (see [`Leaf::is_first`]). To be compared by [`page::compare`].
    #[inline]
    fn low_fence(&self) -> &[u8] {
        page::low_fence(self.bytes())
    }

    /// Every key of this leaf is below; the next leaf is `tree.seek(high_fence)`. Empty for the tree's last leaf.
    /// To be compared by [`page::compare`].
    #[inline]
    fn high_fence(&self) -> &[u8] {
        page::high_fence(self.bytes())
    }

    /// The high fence, for who came here by a seek of `from` and goes on there; empty for the last leaf.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] if it is not above `from`: the way on would lead back here for ever.
    #[inline]
    fn next_from(&self, from: &[u8]) -> Result<&[u8]> {
        let fence = self.high_fence();
        if page::compare(fence, from).is_le() && !self.is_last() {
            return Err(not_covered(self.page_id()));
        }
        Ok(fence)
    }

    /// As [`Leaf::next_from`] for who goes down from a seek of what is before `from`: the low fence.
    ///
    /// # Errors
    /// As [`Leaf::next_from`].
    #[inline]
    fn next_before(&self, from: &[u8]) -> Result<&[u8]> {
        let fence = self.low_fence();
        if page::compare(fence, from).is_ge() && !self.is_first() {
            return Err(not_covered(self.page_id()));
        }
        Ok(fence)
    }

    /// Whether no leaf precedes this one.
    #[inline]
    fn is_first(&self) -> bool {
        page::is_leftmost(self.bytes())
    }

    /// Whether no leaf follows this one.
    #[inline]
    fn is_last(&self) -> bool {
        page::is_rightmost(self.bytes())
    }

    /// Whether `key` belongs to this leaf.
    #[inline]
    fn covers(&self, key: &[u8]) -> bool {
        page::covers(self.bytes(), key)
    }

    /// Whether an entry with a key and a value of these lengths can be inserted without a split.
    #[inline]
    fn fits(&self, key_len: usize, value_len: usize) -> bool {
        page::fits_leaf(self.bytes(), key_len, value_len)
    }

    /// Whether the slot's value can be replaced by one of this length without a split.
    #[inline]
    fn fits_replace(&self, slot: usize, value_len: usize) -> bool {
        page::fits_replace(self.bytes(), slot, value_len)
    }

    /// Bytes that entries, slots and fences use, of the page size.
    #[inline]
    fn used_bytes(&self) -> usize {
        self.bytes().len() - page::free_bytes(self.bytes())
    }

    /// Whether the removal of the slot's entry makes it worth to look for a merge ([`crate::Tree::merge_if_sparse`]): at every
    /// sixteenth of a page below the half, and when nothing is left.
    fn is_sparse_without(&self, slot: usize) -> bool {
        let page_size = self.bytes().len();
        let before = self.used_bytes();
        let after = before - page::removed_bytes(self.bytes(), slot);
        self.len() == 1 || after < page_size / 2 && after / (page_size / 16) != before / (page_size / 16)
    }
}

#[cold]
fn not_covered(leaf: PageId) -> Error {
    Error::corrupt(leaf, "its fences do not bound a key that the page above leads here for")
}

/// A leaf latched shared.
#[must_use]
pub struct LeafShared<'p> {
    pub(crate) page: SharedPage<'p>,
    /// Where the key that the leaf was looked up for is known to be.
    slot: Option<u16>,
}

/// A leaf latched exclusively, not yet part of a mini-transaction; dropped, it is released unchanged.
#[must_use]
pub struct LeafExclusive<'p> {
    pub(crate) page: ExclusivePage<'p>,
}

/// A borrowed leaf, for instance of a mini-transaction.
#[derive(Clone, Copy)]
pub struct LeafView<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) id: PageId,
}

/// A leaf inside a mini-transaction.
#[derive(Clone, Copy, Debug)]
pub struct LeafMut {
    page: PageRef,
    id: PageId,
}

impl Leaf for LeafShared<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.page
    }
    #[inline]
    fn page_id(&self) -> PageId {
        self.page.id()
    }
    #[inline]
    fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        match self.slot {
            Some(slot) if page::cmp_key(self.bytes(), slot.into(), key).is_eq() => Ok(slot.into()),
            _ => page::find(self.bytes(), key),
        }
    }
}

impl Leaf for LeafExclusive<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.page
    }
    #[inline]
    fn page_id(&self) -> PageId {
        self.page.id()
    }
}

impl Leaf for LeafView<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes
    }
    #[inline]
    fn page_id(&self) -> PageId {
        self.id
    }
}

impl<'p> LeafShared<'p> {
    /// Wraps a leaf that [`myriad_buffer::BufferPool::try_reuse`] found unchanged.
    pub fn from_reused(page: SharedPage<'p>) -> LeafShared<'p> {
        LeafShared::new(page)
    }

    pub(crate) fn new(page: SharedPage<'p>) -> LeafShared<'p> {
        LeafShared { page, slot: None }
    }

    /// The page, if it is a leaf whose fences, both of them, hold `key`. Where all trees of a tablespace share one key space,
    /// no other leaf does.
    pub fn holding(page: SharedPage<'p>, key: &[u8]) -> Option<LeafShared<'p>> {
        page::is_leaf_holding(&page, key).then_some(LeafShared::new(page))
    }

    /// As [`LeafShared::holding`]; if `key` is in that slot, this is known without a search, now and in [`Leaf::find`].
    #[inline]
    pub fn holding_at(page: SharedPage<'p>, key: &[u8], slot: u16) -> Option<LeafShared<'p>> {
        if page::is_leaf_with(&page, key, slot.into()) {
            return Some(LeafShared { page, slot: Some(slot) });
        }
        LeafShared::holding(page, key)
    }

    /// Whether the key is where [`LeafShared::holding_at`] was told.
    #[inline]
    pub fn knows_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// The frame the leaf is in, for [`myriad_buffer::BufferPool::try_reuse`].
    pub fn frame(&self) -> FrameNo {
        self.page.frame()
    }

    /// The frame's version, for [`myriad_buffer::BufferPool::try_reuse`].
    pub fn version(&self) -> u64 {
        self.page.version()
    }

    /// The leaf as it is now, for [`myriad_buffer::BufferPool::is_unchanged`].
    pub fn seen(&self) -> SeenPage {
        self.page.seen()
    }
}

impl<'p> LeafExclusive<'p> {
    /// Wraps a leaf that [`myriad_buffer::BufferPool::try_reuse_exclusive`] found unchanged.
    pub fn from_reused(page: ExclusivePage<'p>) -> LeafExclusive<'p> {
        LeafExclusive { page }
    }

    /// As [`LeafShared::holding`].
    pub fn holding(page: ExclusivePage<'p>, key: &[u8]) -> Option<LeafExclusive<'p>> {
        page::is_leaf_holding(&page, key).then_some(LeafExclusive { page })
    }

    /// The frame the leaf is in.
    pub fn frame(&self) -> FrameNo {
        self.page.frame()
    }

    /// The frame's version; it grows when the leaf is released after a change.
    pub fn version(&self) -> u64 {
        self.page.version()
    }

    /// Makes the leaf part of `mtr`, which releases it at its end.
    pub fn into_mtr(self, mtr: &mut Mtr<'p>) -> LeafMut {
        let id = self.page.id();
        LeafMut { page: mtr.adopt(self.page), id }
    }
}

impl LeafMut {
    /// To read the leaf.
    #[inline]
    pub fn view<'a>(&self, mtr: &'a Mtr<'_>) -> LeafView<'a> {
        LeafView { bytes: mtr.page(self.page), id: self.id }
    }

    /// The page within its mini-transaction.
    pub fn page_ref(&self) -> PageRef {
        self.page
    }

    /// Which page it is.
    pub fn page_id(&self) -> PageId {
        self.id
    }

    /// Inserts an entry at `slot`, which [`Leaf::find`] gave as `Err(slot)` for `key`. Compacts the page when needed.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] if it does not fit ([`Leaf::fits`] said so) or the key is not the leaf's; nothing
    /// is changed then.
    pub fn insert(&self, mtr: &mut Mtr<'_>, slot: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let p = mtr.page(self.page);
        let prefix = page::prefix_len(p);
        if slot > page::count(p) || !page::begins_with(key, page::prefix(p)) {
            return Err(Error::invalid("the key does not belong to the leaf"));
        }
        if !page::fits_leaf(p, key.len(), value.len()) {
            return Err(Error::invalid("the entry does not fit the leaf"));
        }
        debug_assert!(page::covers(p, key) && page::find(p, key) == Err(slot));
        let suffix = &key[prefix..];
        let mut head = [0; 5];
        head[..2].copy_from_slice(&(slot as u16).to_le_bytes());
        let n = 2 + put_varint(&mut head[2..], suffix.len());
        mtr.log_applied_parts(self.page, redo::INSERT, &[&head[..n], suffix, value], |p| {
            page::insert(p, slot, suffix, value).expect("the room was checked");
        });
        Ok(())
    }

    /// Adds the entries of a payload of [`redo::APPEND`] behind the last one.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] if they do not fit; nothing is changed then.
    pub(crate) fn append(&self, mtr: &mut Mtr<'_>, payload: &[u8]) -> Result<()> {
        mtr.apply(self.page, redo::APPEND, payload)
    }

    /// Removes the slot's entry.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] for a slot that is not there.
    pub fn remove(&self, mtr: &mut Mtr<'_>, slot: usize) -> Result<()> {
        if slot >= page::count(mtr.page(self.page)) {
            return Err(Error::invalid("removal beyond the leaf's slots"));
        }
        mtr.log_applied(self.page, redo::REMOVE, &(slot as u16).to_le_bytes(), |p| {
            page::remove(p, slot, 1).expect("the slot was checked");
        });
        Ok(())
    }

    /// Replaces the slot's value by one of any length; in place when it is not longer.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] if it does not fit ([`Leaf::fits_replace`]); nothing is changed then.
    pub fn replace_value(&self, mtr: &mut Mtr<'_>, slot: usize, value: &[u8]) -> Result<()> {
        let p = mtr.page(self.page);
        if slot >= page::count(p) || !page::fits_replace(p, slot, value.len()) {
            return Err(Error::invalid("the value does not fit the leaf"));
        }
        mtr.log_applied_parts(self.page, redo::REPLACE, &[&(slot as u16).to_le_bytes(), value], |p| {
            page::replace(p, slot, value).expect("the room was checked");
        });
        Ok(())
    }

    /// Overwrites `bytes.len()` bytes of the slot's value from `at`; logs only these.
    ///
    /// # Errors
    /// [`myriad_base::Error::Invalid`] if the range is not within the value.
    pub fn patch_value(&self, mtr: &mut Mtr<'_>, slot: usize, at: usize, bytes: &[u8]) -> Result<()> {
        let Some(patched) = page::patched(mtr.page(self.page), slot, at, bytes.len()) else {
            return Err(Error::invalid("patch beyond the value"));
        };
        let mut head = [0; 5];
        head[..2].copy_from_slice(&(slot as u16).to_le_bytes());
        let n = 2 + put_varint(&mut head[2..], at);
        mtr.log_applied_parts(self.page, redo::PATCH, &[&head[..n], bytes], |p| p[patched].copy_from_slice(bytes));
        Ok(())
    }
}

/// Writes a number below 2^21 in LEB128 and returns how many bytes it took.
fn put_varint(out: &mut [u8], mut v: usize) -> usize {
    debug_assert!(v < 1 << 21);
    let mut n = 0;
    while v >= 0x80 {
        out[n] = v as u8 | 0x80;
        v >>= 7;
        n += 1;
    }
    out[n] = v as u8;
    n + 1
}
