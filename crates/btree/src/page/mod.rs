//! The slotted page of a tree, leaf or inner: layout, search, and the changes that [`crate::redo`] logs.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 13 | 1 | level; 0 = leaf |
//! | 14 | 1 | flags: 1 = the tree's leftmost page of its level, 2 = rightmost, 4 = root of an index promoted out of the pack tree |
//! | 24 | 2 | number of slots |
//! | 26 | 2 | bytes of the prefix that all keys of the page share: the beginning of the low fence |
//! | 28 | 4 | heap top: offset of the lowest byte of the heap |
//! | 32 | 2 | dead bytes in the heap |
//! | 34 | 2 | length of the low fence |
//! | 36 | 2 | length of the high fence |
//! | 38 | 2 | slot of the last insertion |
//! | 40 | 2 | signed: insertions in a row at ascending (+) or descending (-) neighbouring places |
//! | 44 | 4 | leftmost child (inner pages) |
//! | 48 | 8 each | slots in key order: entry offset u16, key suffix length u16, head u32 |
//! | heap top | | entries, growing down |
//! | end - fences | | low fence, high fence |
//!
//! The head is the first four bytes of the key suffix as a big-endian number (zero padded), stored little endian, so that
//! heads compare as the keys do. These bytes are nowhere else: entries hold the suffix without them, its *rest*, which is
//! empty for a suffix of up to four bytes. A leaf entry is rest, value length, value. An inner entry is child page number
//! u32, rest, padded to four bytes; its child covers the keys from its own to the next entry's. A value length below 128
//! takes one byte; others two, big endian, with the highest bit set.
//!
//! A leftmost page's low fence and a rightmost page's high fence do not bound anything outside the tree; when the tree
//! has an index of its own they still say what all its keys begin with.

mod compare;
mod edit;
mod key;
mod route;
#[cfg(test)]
mod tests;
mod verify;

pub use compare::{begins_with, compare};
pub(crate) use edit::forget_pattern;
pub use edit::{
    capacity, direction, format, insert, insert_child, patch, patched, refence, refenced_bytes, remove, replace,
    set_child, Direction,
};
pub use key::{KeyParts, LeafEntry, Suffix};
pub use route::{live_bytes, route, routed_child, Latched, PageRead, Target, Unlatched};
pub use verify::{check_content, check_layout, check_order, check_read};

use key::{cmp_by_length, rest_len, rest_of};
use myriad_base::codec::{get_u16, get_u32};
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::PageNo;
use std::cmp::Ordering;

/// Offset of the level.
pub const OFF_LEVEL: usize = 13;
/// Offset of the flags.
pub const OFF_FLAGS: usize = 14;
/// Offset of the number of slots.
pub const OFF_COUNT: usize = 24;
/// Offset of the prefix length.
pub const OFF_PREFIX: usize = 26;
/// Offset of the heap top.
pub const OFF_HEAP_TOP: usize = 28;
/// Offset of the number of dead bytes.
pub const OFF_DEAD: usize = 32;
/// Offset of the low fence's length.
pub const OFF_LOW: usize = 34;
/// Offset of the high fence's length.
pub const OFF_HIGH: usize = 36;
const OFF_LAST: usize = 38;
const OFF_RUN: usize = 40;
/// Offset of the leftmost child.
pub const OFF_LEFT: usize = 44;
/// Where slots begin.
pub const SLOTS: usize = 48;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8;
/// Bytes of a key suffix that are in its slot.
pub const HEAD_BYTES: usize = 4;
/// Bytes of the index id in front of every key.
const INDEX_ID_BYTES: usize = 4;
/// Longest value of a leaf entry that its length has room for.
pub const VALUE_BYTES_MAX: usize = 0x7fff;
/// Longest value whose length takes one byte.
const SHORT_VALUE_MAX: usize = 0x7f;

/// Flag: no page of this level precedes.
pub const LEFTMOST: u8 = 1;
/// Flag: no page of this level follows.
pub const RIGHTMOST: u8 = 2;
/// Flag: the root of a promoted index, at whatever level (see [`crate::Tree::promote`]).
pub const ROOT: u8 = 4;

const _: () = assert!(SLOTS & 7 == 0 && OFF_LEFT & 3 == 0 && OFF_HEAP_TOP & 3 == 0);
const _: () = assert!(OFF_COUNT == myriad_base::page::HEADER_BYTES);
const _: () = assert!(entry_bytes_max(myriad_base::limits::PAGE_SIZE_MAX) <= VALUE_BYTES_MAX);

/// Longest key and value of a leaf entry together, in bytes: a page always has room for one beside its two fences.
pub const fn entry_bytes_max(page_size: usize) -> usize {
    page_size * 7 / 16
}

/// The bounds of a page and its place in its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fences<'a> {
    /// No key of the page is below.
    pub low: &'a [u8],
    /// Every key of the page is below, unless empty.
    pub high: &'a [u8],
    /// [`LEFTMOST`], [`RIGHTMOST`] and [`ROOT`].
    pub flags: u8,
}

/// Length of what `a` and `b` have in common.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The bytes that every key in `[low, high)` begins with: a prefix of `low`. The common prefix of both; and one byte more
/// when `high` is the shortest key above all that begin with these.
pub fn shared_prefix_len(low: &[u8], high: &[u8]) -> usize {
    let n = common_prefix(low, high);
    if high.len() == n + 1 && low.len() > n && low[n].checked_add(1) == Some(high[n]) {
        n + 1
    } else {
        n
    }
}

/// The shortest key `s` with `a < s <= b`.
pub fn separator<'b>(a: &[u8], b: &'b [u8]) -> &'b [u8] {
    debug_assert!(a < b);
    &b[..(common_prefix(a, b) + 1).min(b.len())]
}

/// The first four bytes as a number that orders as they do.
#[inline]
pub fn head_of(suffix: &[u8]) -> u32 {
    if let Some(four) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*four);
    }
    let byte = |at: usize| suffix.get(at).copied().unwrap_or(0);
    u32::from_be_bytes([byte(0), byte(1), byte(2), 0])
}

/// The level; 0 = leaf.
#[inline]
pub fn level(p: &[u8]) -> u8 {
    p[OFF_LEVEL]
}

/// Number of slots.
#[inline]
pub fn count(p: &[u8]) -> usize {
    get_u16(p, OFF_COUNT) as usize
}

/// Length of the prefix all keys share.
#[inline]
pub fn prefix_len(p: &[u8]) -> usize {
    get_u16(p, OFF_PREFIX) as usize
}

#[inline]
fn heap_top(p: &[u8]) -> usize {
    get_u32(p, OFF_HEAP_TOP) as usize
}

#[inline]
fn dead(p: &[u8]) -> usize {
    get_u16(p, OFF_DEAD) as usize
}

#[inline]
fn slot_at(slot: usize) -> usize {
    SLOTS + slot * SLOT_BYTES
}

#[inline]
fn low_len(p: &[u8]) -> usize {
    get_u16(p, OFF_LOW) as usize
}

#[inline]
fn high_len(p: &[u8]) -> usize {
    get_u16(p, OFF_HIGH) as usize
}

/// The low fence as stored, whether or not it bounds.
#[inline]
pub fn low_stored(p: &[u8]) -> &[u8] {
    let end = p.len() - high_len(p);
    &p[end - low_len(p)..end]
}

/// The high fence as stored, whether or not it bounds.
#[inline]
pub fn high_stored(p: &[u8]) -> &[u8] {
    &p[p.len() - high_len(p)..]
}

/// The page's bounds as stored.
pub fn fences(p: &[u8]) -> Fences<'_> {
    Fences { low: low_stored(p), high: high_stored(p), flags: p[OFF_FLAGS] }
}

/// Whether no page of this level precedes.
#[inline]
pub fn is_leftmost(p: &[u8]) -> bool {
    p[OFF_FLAGS] & LEFTMOST != 0
}

/// Whether no page of this level follows.
#[inline]
pub fn is_rightmost(p: &[u8]) -> bool {
    p[OFF_FLAGS] & RIGHTMOST != 0
}

/// Whether the page is the root of a promoted index.
#[inline]
pub fn is_promoted_root(p: &[u8]) -> bool {
    p[OFF_FLAGS] & ROOT != 0
}

/// The low fence; empty where nothing precedes.
#[inline]
pub fn low_fence(p: &[u8]) -> &[u8] {
    if is_leftmost(p) {
        &[]
    } else {
        low_stored(p)
    }
}

/// The high fence; empty where nothing follows.
#[inline]
pub fn high_fence(p: &[u8]) -> &[u8] {
    if is_rightmost(p) {
        &[]
    } else {
        high_stored(p)
    }
}

/// What all keys of the page begin with.
#[inline]
pub fn prefix(p: &[u8]) -> &[u8] {
    let start = p.len() - high_len(p) - low_len(p);
    &p[start..start + prefix_len(p)]
}

#[inline]
fn entry_offset(p: &[u8], slot: usize) -> usize {
    get_u16(p, slot_at(slot)) as usize
}

#[inline]
fn suffix_len(p: &[u8], slot: usize) -> usize {
    get_u16(p, slot_at(slot) + 2) as usize
}

/// Where the rest of a key is in an entry.
#[inline]
fn entry_header(level: u8) -> usize {
    if level == 0 {
        0
    } else {
        4
    }
}

/// The slot's key without the prefix.
#[inline]
pub fn suffix(p: &[u8], slot: usize) -> Suffix<'_> {
    assert!(slot < count(p), "slot {slot} of {}", count(p));
    let (at, len) = (entry_offset(p, slot) + entry_header(level(p)), suffix_len(p, slot));
    Suffix::new(get_u32(p, slot_at(slot) + 4), len, &p[at..at + rest_len(len)])
}

/// The slot's key, in parts.
#[inline]
pub fn key_parts(p: &[u8], slot: usize) -> KeyParts<'_> {
    KeyParts { prefix: prefix(p), suffix: suffix(p, slot) }
}

/// Bytes of a value's length in its entry.
#[inline]
fn value_header(value_len: usize) -> usize {
    1 + usize::from(value_len > SHORT_VALUE_MAX)
}

/// Where the length of a leaf slot's value is.
#[inline]
fn value_at(p: &[u8], slot: usize) -> usize {
    entry_offset(p, slot) + rest_len(suffix_len(p, slot))
}

/// Length of the value whose length is at `at`, and where the value begins.
#[inline]
fn value_start(p: &[u8], at: usize) -> (usize, usize) {
    let first = p[at];
    if first < 0x80 {
        (first as usize, at + 1)
    } else {
        (((first & 0x7f) as usize) << 8 | p[at + 1] as usize, at + 2)
    }
}

/// Length of the value of a leaf's slot.
#[inline]
fn value_len(p: &[u8], slot: usize) -> usize {
    value_start(p, value_at(p, slot)).0
}

/// Where the value of a leaf's slot lies.
#[inline]
fn value_range(p: &[u8], slot: usize) -> std::ops::Range<usize> {
    assert!(slot < count(p), "slot {slot} of {}", count(p));
    let (len, start) = value_start(p, value_at(p, slot));
    start..start + len
}

/// The value of a leaf's slot.
#[inline]
pub fn value(p: &[u8], slot: usize) -> &[u8] {
    &p[value_range(p, slot)]
}

/// The entries of a leaf, to read many of them.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    page: &'a [u8],
    prefix: &'a [u8],
}

/// The entries of a leaf.
#[inline]
pub fn entries(p: &[u8]) -> Entries<'_> {
    Entries { page: p, prefix: prefix(p) }
}

impl<'a> Entries<'a> {
    /// That of a slot.
    #[inline(always)]
    pub fn at(&self, slot: usize) -> LeafEntry<'a> {
        let p = self.page;
        assert!(slot < count(p), "slot {slot} of {}", count(p));
        let fields = &p[slot_at(slot)..][..SLOT_BYTES];
        let (at, suffix_len) = (get_u16(fields, 0) as usize, get_u16(fields, 2) as usize);
        let (len, value) = value_start(p, at + rest_len(suffix_len));
        let bytes = &p[at..value + len];
        LeafEntry { prefix: self.prefix, head: get_u32(fields, 4), suffix_len, bytes, value_at: value - at }
    }
}

/// The leftmost child of an inner page.
pub fn left_child(p: &[u8]) -> PageNo {
    PageNo(get_u32(p, OFF_LEFT))
}

/// The child number `at` of an inner page: 0 is the leftmost, `i` that of slot `i - 1`.
pub fn child(p: &[u8], at: usize) -> PageNo {
    if at == 0 {
        return left_child(p);
    }
    assert!(at <= count(p), "child {at} of {}", count(p));
    PageNo(get_u32(p, entry_offset(p, at - 1)))
}

/// The slot's whole key.
pub fn key(p: &[u8], slot: usize) -> Vec<u8> {
    let key = key_parts(p, slot);
    let mut out = Vec::with_capacity(key.len() + HEAD_BYTES);
    key.append_to(&mut out);
    out
}

#[inline]
fn heap_end(p: &[u8]) -> usize {
    let end = p.len() - high_len(p) - low_len(p);
    if level(p) == 0 {
        end
    } else {
        end & !3
    }
}

/// Bytes an entry takes in the heap of a page of this level; its slot comes on top.
#[inline]
pub fn entry_bytes(level: u8, suffix_len: usize, value_len: usize) -> usize {
    if level == 0 {
        rest_len(suffix_len) + value_header(value_len) + value_len
    } else {
        (4 + rest_len(suffix_len) + 3) & !3
    }
}

/// Bytes that become free when the slot is removed.
pub(crate) fn removed_bytes(p: &[u8], slot: usize) -> usize {
    slot_entry_bytes(p, slot) + SLOT_BYTES
}

/// Bytes the slot's entry takes in the heap.
pub(crate) fn slot_entry_bytes(p: &[u8], slot: usize) -> usize {
    let value_len = if level(p) == 0 { value_len(p, slot) } else { 4 };
    entry_bytes(level(p), suffix_len(p, slot), value_len)
}

#[inline]
fn contiguous(p: &[u8]) -> usize {
    heap_top(p) - slot_at(count(p))
}

/// Bytes free for entries and their slots, after a compaction.
#[inline]
pub fn free_bytes(p: &[u8]) -> usize {
    contiguous(p) + dead(p)
}

/// Whether a leaf entry of these lengths (whole key) can be inserted.
#[inline]
pub fn fits_leaf(p: &[u8], key_len: usize, value_len: usize) -> bool {
    value_len <= VALUE_BYTES_MAX
        && entry_bytes(0, key_len.saturating_sub(prefix_len(p)), value_len) + SLOT_BYTES <= free_bytes(p)
}

/// Whether a separator of this length can be inserted into an inner page.
#[inline]
pub fn fits_inner(p: &[u8], key_len: usize) -> bool {
    entry_bytes(1, key_len.saturating_sub(prefix_len(p)), 4) + SLOT_BYTES <= free_bytes(p)
}

/// Whether the value of a leaf's slot can become this long.
pub fn fits_replace(p: &[u8], slot: usize, value_len: usize) -> bool {
    let old = slot_entry_bytes(p, slot);
    value_len <= VALUE_BYTES_MAX && entry_bytes(0, suffix_len(p, slot), value_len) <= free_bytes(p) + old
}

/// Whether `key` belongs to the page.
pub fn covers(p: &[u8], key: &[u8]) -> bool {
    (is_leftmost(p) || compare(key, low_stored(p)).is_ge()) && (is_rightmost(p) || compare(key, high_stored(p)).is_lt())
}

/// Whether this page, of whatever kind, is a leaf with `key` between its fences, be they bounds or not.
pub fn is_leaf_holding(p: &[u8], key: &[u8]) -> bool {
    p[OFF_KIND] == PageKind::Index as u8
        && level(p) == 0
        && compare(key, low_stored(p)).is_ge()
        && (high_len(p) == 0 || compare(key, high_stored(p)).is_lt())
}

/// Whether this page, of whatever kind, is a leaf with `key` in that slot.
#[inline]
pub fn is_leaf_with(p: &[u8], key: &[u8], slot: usize) -> bool {
    p[OFF_KIND] == PageKind::Index as u8 && level(p) == 0 && slot < count(p) && cmp_key(p, slot, key).is_eq()
}

/// Compares the slot's key with `key`.
#[inline]
pub fn cmp_key(p: &[u8], slot: usize, key: &[u8]) -> Ordering {
    match strip_prefix(p, key) {
        Ok(rest) => suffix(p, slot).cmp_bytes(rest),
        Err(Ordering::Less) => Ordering::Greater,
        Err(_) => Ordering::Less,
    }
}

/// `key` without the page's prefix, or how `key` compares with everything that has the prefix.
#[inline]
fn strip_prefix<'k>(p: &[u8], key: &'k [u8]) -> std::result::Result<&'k [u8], Ordering> {
    let prefix = prefix(p);
    match compare(&key[..key.len().min(prefix.len())], prefix) {
        Ordering::Equal => Ok(&key[prefix.len()..]),
        unequal => Err(unequal),
    }
}

/// The slot of `key`, or the slot where it belongs.
#[inline]
pub fn find(p: &[u8], key: &[u8]) -> std::result::Result<usize, usize> {
    match strip_prefix(p, key) {
        Ok(rest) => find_suffix(p, rest),
        Err(Ordering::Less) => Err(0),
        Err(_) => Err(count(p)),
    }
}

#[inline]
fn find_suffix(p: &[u8], rest: &[u8]) -> std::result::Result<usize, usize> {
    let n = count(p);
    let header = entry_header(level(p));
    let (head, key_rest) = (head_of(rest), rest_of(rest));
    let slots = &p[SLOTS..SLOTS + n * SLOT_BYTES];
    let (mut lo, mut hi) = (0, n);
    while lo < hi {
        let mid = (lo + hi) / 2;
        let slot = &slots[mid * SLOT_BYTES..][..SLOT_BYTES];
        let order = match get_u32(slot, 4).cmp(&head) {
            Ordering::Equal => {
                let (at, len) = (get_u16(slot, 0) as usize + header, get_u16(slot, 2) as usize);
                cmp_by_length(HEAD_BYTES, len, rest.len())
                    .unwrap_or_else(|| compare(&p[at..at + rest_len(len)], key_rest))
            }
            unequal => unequal,
        };
        match order {
            Ordering::Less => lo = mid + 1,
            Ordering::Greater => hi = mid,
            Ordering::Equal => return Ok(mid),
        }
    }
    Err(lo)
}
