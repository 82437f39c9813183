//! A slot's key as it lies in the page: in three places.

use super::compare::{begins_with, compare};
use super::{head_of, HEAD_BYTES};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// What a suffix has beyond its head.
#[inline]
pub(super) fn rest_of(suffix: &[u8]) -> &[u8] {
    suffix.get(HEAD_BYTES..).unwrap_or(&[])
}

/// Length of what a suffix of this length has beyond its head.
#[inline]
pub(super) fn rest_len(suffix_len: usize) -> usize {
    suffix_len.saturating_sub(HEAD_BYTES)
}

/// How two byte strings of these lengths compare whose first `seen` bytes, zero padded, are equal, where that says it: one of
/// them is not longer. If it is shorter, the other goes on with zeros as far as it was seen, so the one begins the other.
#[inline]
pub(super) fn cmp_by_length(seen: usize, len: usize, other: usize) -> Option<Ordering> {
    (len.min(other) <= seen).then(|| len.cmp(&other))
}

/// A slot's key without the page's prefix: the head in the slot, and the rest in the entry.
#[derive(Clone, Copy, Debug)]
pub struct Suffix<'a> {
    head: u32,
    len: usize,
    rest: &'a [u8],
}

impl<'a> Suffix<'a> {
    /// Of the slot's head and length, and `rest` from the entry, which has [`rest_len`] bytes.
    #[inline]
    pub(super) fn new(head: u32, len: usize, rest: &'a [u8]) -> Suffix<'a> {
        Suffix { head, len, rest }
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn head_len(&self) -> usize {
        self.len.min(HEAD_BYTES)
    }

    /// Compares with `other`, as byte strings.
    #[inline]
    pub fn cmp_bytes(&self, other: &[u8]) -> Ordering {
        match self.head.cmp(&head_of(other)) {
            Ordering::Equal => {
                cmp_by_length(HEAD_BYTES, self.len, other.len()).unwrap_or_else(|| compare(self.rest, rest_of(other)))
            }
            unequal => unequal,
        }
    }

    /// Compares with another one.
    #[inline]
    pub(super) fn cmp_suffix(&self, other: &Suffix<'_>) -> Ordering {
        self.head.cmp(&other.head).then_with(|| {
            cmp_by_length(HEAD_BYTES, self.len, other.len).unwrap_or_else(|| compare(self.rest, other.rest))
        })
    }

    /// Whether the head is zero behind the end of a short suffix, as it must be.
    #[inline]
    pub(super) fn is_zero_padded(&self) -> bool {
        self.len >= HEAD_BYTES || self.head << (8 * self.len) == 0
    }

    /// Whether it begins with `start`.
    #[inline]
    pub fn starts_with(&self, start: &[u8]) -> bool {
        if start.len() > self.len {
            return false;
        }
        let head = self.head.to_be_bytes();
        match start.split_first_chunk::<HEAD_BYTES>() {
            Some((first, more)) => head == *first && begins_with(self.rest, more),
            None => head.starts_with(start),
        }
    }

    /// Compares its first `bound.len()` bytes (all if it has fewer) with `bound`.
    #[inline]
    fn cmp_start(&self, bound: &[u8]) -> Ordering {
        if bound.is_empty() {
            return Ordering::Equal;
        }
        let head = self.head.to_be_bytes();
        let (first, more) = bound.split_at(bound.len().min(HEAD_BYTES));
        let rest = &self.rest[..self.rest.len().min(more.len())];
        compare(&head[..self.head_len().min(first.len())], first).then_with(|| compare(rest, more))
    }

    /// Appends it to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        // A copy of fixed length is cheaper than the right one.
        out.extend_from_slice(&self.head.to_be_bytes());
        if self.len <= HEAD_BYTES {
            out.truncate(out.len() - (HEAD_BYTES - self.len));
        } else {
            out.extend_from_slice(self.rest);
        }
    }
}

/// A slot's key: the page's prefix and the slot's suffix, without copying.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    /// What all keys of the page begin with.
    pub prefix: &'a [u8],
    /// The rest.
    pub suffix: Suffix<'a>,
}

impl<'a> KeyParts<'a> {
    /// A key that is in one piece.
    #[inline]
    pub fn whole(key: &'a [u8]) -> KeyParts<'a> {
        KeyParts { prefix: key, suffix: Suffix::new(0, 0, &[]) }
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.prefix.len() + self.suffix.len
    }

    /// Whether the key begins with `start`.
    #[inline]
    pub fn starts_with(&self, start: &[u8]) -> bool {
        if start.len() <= self.prefix.len() {
            return begins_with(self.prefix, start);
        }
        begins_with(start, self.prefix) && self.suffix.starts_with(&start[self.prefix.len()..])
    }

    /// Compares the key's first `bound.len()` bytes (all if it has fewer) with `bound`: `Greater` if it is above `bound` and
    /// does not begin with it, `Less` if it is below.
    #[inline]
    pub fn cmp_start(&self, bound: &[u8]) -> Ordering {
        let n = bound.len().min(self.prefix.len());
        let (first, more) = bound.split_at(n);
        compare(&self.prefix[..n], first).then_with(|| self.suffix.cmp_start(more))
    }

    /// Appends the key to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        self.suffix.append_to(out);
    }

    /// The key in one piece.
    pub fn joined(&self) -> SmallVec<[u8; 128]> {
        let mut out = SmallVec::with_capacity(self.len());
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(&self.suffix.head.to_be_bytes()[..self.suffix.head_len()]);
        out.extend_from_slice(self.suffix.rest);
        out
    }
}

/// An entry of a leaf as it lies in the page.
#[derive(Clone, Copy, Debug)]
pub struct LeafEntry<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) head: u32,
    pub(super) suffix_len: usize,
    /// The rest of the key, the value's length, the value.
    pub(super) bytes: &'a [u8],
    pub(super) value_at: usize,
}

impl<'a> LeafEntry<'a> {
    /// The key, in parts.
    #[inline]
    pub fn key(&self) -> KeyParts<'a> {
        let rest = &self.bytes[..rest_len(self.suffix_len)];
        KeyParts { prefix: self.prefix, suffix: Suffix::new(self.head, self.suffix_len, rest) }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[self.value_at..]
    }

    /// Appends the key and somewhere behind it, at the end, the value; gives the key's length. A copy in two pieces is
    /// cheaper than the right one.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) -> usize {
        out.reserve(self.prefix.len() + HEAD_BYTES + self.bytes.len());
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(&self.head.to_be_bytes());
        out.extend_from_slice(self.bytes);
        self.prefix.len() + self.suffix_len
    }
}
