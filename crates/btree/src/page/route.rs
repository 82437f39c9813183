//! The way down through inner pages, latched or not.

use super::key::{cmp_by_length, rest_len, rest_of};
use super::{head_of, slot_at, HEAD_BYTES, OFF_COUNT, OFF_DEAD, OFF_HEAP_TOP, OFF_HIGH, OFF_LEFT, OFF_LOW, OFF_PREFIX};
use super::{SLOTS, SLOT_BYTES};
use myriad_base::codec::{get_u16, get_u32, get_u64};
use myriad_base::PageNo;
use std::cmp::Ordering;

/// Reading a page that may change meanwhile, or that does not.
pub trait PageRead {
    /// Bytes of the page.
    fn size(&self) -> usize;
    /// A byte.
    fn u8(&self, at: usize) -> u8;
    /// A `u16`, little endian.
    fn u16(&self, at: usize) -> u16;
    /// A `u32`, little endian.
    fn u32(&self, at: usize) -> u32;
    /// A `u64`, little endian. Bytes beyond the page's end are unspecified.
    fn u64(&self, at: usize) -> u64;
    /// Compares `len` bytes from `at` with `other`, as byte strings.
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering;
}

/// A page that is latched.
pub struct Latched<'a>(pub &'a [u8]);

impl PageRead for Latched<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.0.len()
    }
    #[inline]
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }
    #[inline]
    fn u16(&self, at: usize) -> u16 {
        get_u16(self.0, at)
    }
    #[inline]
    fn u32(&self, at: usize) -> u32 {
        get_u32(self.0, at)
    }
    #[inline]
    fn u64(&self, at: usize) -> u64 {
        if at + 8 <= self.0.len() {
            return get_u64(self.0, at);
        }
        let mut bytes = [0; 8];
        let last = &self.0[at..];
        bytes[..last.len()].copy_from_slice(last);
        u64::from_le_bytes(bytes)
    }
    #[inline]
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering {
        super::compare(&self.0[at..at + len], other)
    }
}

/// A page read without a latch; what is read counts only once the page has been validated.
pub struct Unlatched<'p> {
    /// The page.
    pub page: myriad_buffer::OptimisticPage<'p>,
    /// Its size in bytes.
    pub page_size: usize,
}

impl PageRead for Unlatched<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.page_size
    }
    #[inline]
    fn u8(&self, at: usize) -> u8 {
        self.page.u8(at)
    }
    #[inline]
    fn u16(&self, at: usize) -> u16 {
        self.page.u16(at)
    }
    #[inline]
    fn u32(&self, at: usize) -> u32 {
        self.page.u32(at)
    }
    #[inline]
    fn u64(&self, at: usize) -> u64 {
        self.page.u64(at)
    }
    #[inline]
    fn compare(&self, at: usize, len: usize, other: &[u8]) -> Ordering {
        self.page.compare(at, len, other)
    }
}

/// Where a descent goes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// To the page that covers the key.
    At(&'k [u8]),
    /// To the page that covers the keys just below.
    Before(&'k [u8]),
    /// To the last page.
    Last,
}

/// The number (as for [`child`]) of the child of an inner page on the way to `target`.
#[inline]
pub fn route<P: PageRead>(p: &P, target: Target<'_>) -> usize {
    // Torn reads are possible: a count beyond the page is clamped, and the caller validates what comes out.
    let n = (p.u16(OFF_COUNT) as usize).min((p.size() - SLOTS) / SLOT_BYTES);
    let (key, before) = match target {
        Target::At(key) => (key, false),
        Target::Before(key) => (key, true),
        Target::Last => return n,
    };
    let prefix_len = p.u16(OFF_PREFIX) as usize;
    let prefix_at = p.size().saturating_sub(p.u16(OFF_LOW) as usize + p.u16(OFF_HIGH) as usize);
    let shared = prefix_len.min(key.len());
    if prefix_len > 0 {
        let in_page = prefix_len.min(p.size() - prefix_at);
        match p.compare(prefix_at, shared.min(in_page), &key[..shared]) {
            Ordering::Less => return n,
            Ordering::Greater => return 0,
            Ordering::Equal if shared < prefix_len => return 0,
            Ordering::Equal => {}
        }
    }
    let rest = &key[shared..];
    let (head, key_rest) = (head_of(rest), rest_of(rest));
    let second_head = second_head_of(key_rest);
    let (mut lo, mut hi) = (0, n);
    while lo < hi {
        let mid = (lo + hi) / 2;
        // A slot whole: offset, length and head.
        let slot = p.u64(slot_at(mid));
        let order = match ((slot >> 32) as u32).cmp(&head) {
            Ordering::Equal => {
                let (at, len) = (slot as u16 as usize, (slot >> 16) as u16 as usize);
                let mine = p.u64(at + 4).swap_bytes() & first_bytes(rest_len(len));
                mine.cmp(&second_head).then_with(|| {
                    cmp_by_length(HEAD_BYTES + 8, len, rest.len())
                        .unwrap_or_else(|| p.compare(at + 12, rest_len(len) - 8, &key_rest[8..]))
                })
            }
            unequal => unequal,
        };
        let goes_right = match order {
            Ordering::Less => true,
            Ordering::Equal => !before,
            Ordering::Greater => false,
        };
        if goes_right {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    lo
}

/// The first eight bytes of a rest as a number that orders as they do.
#[inline]
fn second_head_of(rest: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let n = rest.len().min(8);
    eight[..n].copy_from_slice(&rest[..n]);
    u64::from_be_bytes(eight)
}

/// The bits of the first `n` bytes of a big-endian number.
#[inline]
fn first_bytes(n: usize) -> u64 {
    u64::MAX.checked_shl(64 - 8 * n.min(8) as u32).unwrap_or(0)
}

/// Bytes that entries and their slots take on a page that may change meanwhile.
pub fn live_bytes<P: PageRead>(p: &P) -> usize {
    let slots = usize::from(p.u16(OFF_COUNT)) * SLOT_BYTES;
    let others = [OFF_LOW, OFF_HIGH, OFF_DEAD].map(|at| usize::from(p.u16(at)));
    (p.size() + slots).saturating_sub(others.iter().sum::<usize>() + p.u32(OFF_HEAP_TOP) as usize)
}

/// As [`child`], of a page that may change meanwhile.
#[inline]
pub fn routed_child<P: PageRead>(p: &P, at: usize) -> PageNo {
    if at == 0 {
        PageNo(p.u32(OFF_LEFT))
    } else {
        PageNo(p.u32(p.u16(slot_at(at - 1)) as usize))
    }
}
