//! The value of every leaf entry: a header that versions it, then its payload.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | flags: 1 delete mark, 2 versioned, 4 overflow, 8 short; upper half: length of the row key, if short |
//! | 6 | `trx_id` of the last writer, if versioned |
//! | 6 | `roll_ptr` to that writer's undo record, if versioned and not short |
//! | 1 | length of the row key, if short and the upper half of the flags is 15 |
//! | | body: the payload; with *overflow* its length (u32), the first page (u32) of its chain, and its head: the bytes that
//!  are not in the chain, maybe none |
//!
//! An entry that is not versioned is frozen: older than every snapshot.
//!
//! The older version of a *short* entry needs no undo record to be known: of a delete-marked one it is the same entry
//! without the mark, visible to everybody else; of another one there is none. The *row key* of a secondary entry is the
//! row's clustered key, with which its own key ends; its length is 0 where it is not known.

use myriad_base::codec::{get_u32, get_u48, put_u32, put_u48};
use myriad_base::{Error, PageId, PageNo, Result, RollPtr, TrxId};

/// Flag: deleted by its last writer.
pub const DELETED: u8 = 1;
/// Flag: has writer and roll pointer.
pub const VERSIONED: u8 = 2;
/// Flag: the payload, or what is behind its head, is in an overflow chain.
pub const OVERFLOW: u8 = 4;
/// Flag: versioned without roll pointer.
pub const SHORT: u8 = 8;
/// The most bytes in front of a body: those of a versioned entry with a roll pointer.
pub const HEADER_BYTES: usize = 13;
/// Bytes of flags and writer.
const SHORT_BYTES: usize = 7;
/// In the upper half of the flags: the length of the row key has a byte of its own.
const OWN_BYTE: u8 = 15;
/// Bytes of an overflow reference.
pub const OVERFLOW_REF_BYTES: usize = 8;

/// An entry's value, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The flags, without what the upper half holds.
    pub flags: u8,
    /// Last writer; 0 if frozen.
    pub trx: TrxId,
    /// Its undo record; 0 if frozen or short.
    pub roll: RollPtr,
    /// If short: length of the row key; 0 = not known.
    pub row_key_len: u8,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes a value apart; `page` is named if it makes no sense.
    ///
    /// # Errors
    /// [`Error::CorruptPage`].
    #[inline(always)]
    pub fn parse(value: &'a [u8], page: PageId) -> Result<Entry<'a>> {
        #[cold]
        fn malformed(len: usize, page: PageId) -> Error {
            Error::corrupt(page, format!("an entry's value of {len} bytes has no valid header"))
        }
        Entry::try_parse(value).ok_or_else(|| malformed(value.len(), page))
    }

    /// The same; `None` if it makes no sense.
    #[inline(always)]
    pub fn try_parse(value: &'a [u8]) -> Option<Entry<'a>> {
        let first = *value.first()?;
        let (flags, upper) = (first & 15, first >> 4);
        let entry = if flags & VERSIONED == 0 {
            Entry { flags, trx: TrxId(0), roll: RollPtr::NONE, row_key_len: 0, body: &value[1..] }
        } else if flags & SHORT == 0 {
            if value.len() < HEADER_BYTES {
                return None;
            }
            let (trx, roll) = (TrxId(get_u48(value, 1)), RollPtr(get_u48(value, 7)));
            Entry { flags, trx, roll, row_key_len: 0, body: &value[HEADER_BYTES..] }
        } else {
            let own_byte = usize::from(upper == OWN_BYTE);
            let body = value.get(SHORT_BYTES + own_byte..)?;
            let row_key_len = if own_byte == 1 { value[SHORT_BYTES] } else { upper };
            return Entry { flags, trx: TrxId(get_u48(value, 1)), roll: RollPtr::NONE, row_key_len, body }.checked();
        };
        if upper != 0 || flags & (VERSIONED | SHORT) == SHORT {
            return None;
        }
        entry.checked()
    }

    #[inline]
    fn checked(self) -> Option<Entry<'a>> {
        (self.flags & OVERFLOW == 0 || OverflowRef::get(self.body).is_some()).then_some(self)
    }

    /// Whether it has a writer but no roll pointer.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.flags & SHORT != 0
    }

    /// Whether it is delete-marked.
    #[inline]
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// The overflow chain, if it has one.
    #[inline]
    pub fn overflow(&self) -> Option<OverflowRef> {
        if self.flags & OVERFLOW == 0 {
            return None;
        }
        OverflowRef::get(self.body)
    }

    /// Header and body as one value.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&Header::of(self));
        out.extend_from_slice(self.body);
    }
}

/// A payload of which a part is in overflow pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowRef {
    /// Length of the payload in bytes.
    pub len: u32,
    /// Bytes of its head, which is in the entry; the others are in the chain.
    pub head_len: u32,
    /// First page of the chain.
    pub first: PageNo,
}

impl OverflowRef {
    /// Decodes the reference in a body; `None` if that is none.
    pub fn get(body: &[u8]) -> Option<OverflowRef> {
        let head_len = u32::try_from(body.len().checked_sub(OVERFLOW_REF_BYTES)?).ok()?;
        let o = OverflowRef { len: get_u32(body, 0), head_len, first: PageNo(get_u32(body, 4)) };
        (head_len == 0 || head_len < o.len).then_some(o)
    }

    /// Bytes of the chain.
    pub fn chain_len(self) -> usize {
        (self.len - self.head_len) as usize
    }

    /// The body of an entry with this reference and head.
    pub fn body(self, head: &[u8]) -> Vec<u8> {
        debug_assert_eq!(head.len(), self.head_len as usize);
        let mut b = vec![0; OVERFLOW_REF_BYTES + head.len()];
        put_u32(&mut b, 0, self.len);
        put_u32(&mut b, 4, self.first.0);
        b[OVERFLOW_REF_BYTES..].copy_from_slice(head);
        b
    }
}

/// The head of a payload of which a part is in overflow pages; empty if all of it is.
pub fn head(body: &[u8]) -> &[u8] {
    body.get(OVERFLOW_REF_BYTES..).unwrap_or_default()
}

/// What is in front of a body.
#[derive(Clone, Copy)]
pub struct Header {
    bytes: [u8; HEADER_BYTES],
    len: u8,
}

impl Header {
    /// The header of a versioned entry.
    #[inline]
    pub fn long(flags: u8, trx: TrxId, roll: RollPtr) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = flags | VERSIONED;
        put_u48(&mut bytes, 1, trx.0);
        put_u48(&mut bytes, 7, roll.0);
        Header { bytes, len: HEADER_BYTES as u8 }
    }

    /// The header of a short entry.
    #[inline]
    pub fn short(flags: u8, trx: TrxId, row_key_len: u8) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        let own_byte = row_key_len >= OWN_BYTE;
        bytes[0] = flags | VERSIONED | SHORT | row_key_len.min(OWN_BYTE) << 4;
        put_u48(&mut bytes, 1, trx.0);
        if own_byte {
            bytes[SHORT_BYTES] = row_key_len;
        }
        Header { bytes, len: SHORT_BYTES as u8 + u8::from(own_byte) }
    }

    /// The header of an entry.
    pub fn of(entry: &Entry<'_>) -> Header {
        if entry.flags & VERSIONED == 0 {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = entry.flags;
            Header { bytes, len: 1 }
        } else if entry.is_short() {
            Header::short(entry.flags, entry.trx, entry.row_key_len)
        } else {
            Header::long(entry.flags, entry.trx, entry.roll)
        }
    }
}

impl std::ops::Deref for Header {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Lengths of the longest common prefix of `a` and `b`, and of the longest common suffix that does not overlap it.
pub fn common_ends(a: &[u8], b: &[u8]) -> (usize, usize) {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[8 * words..], &b[8 * words..]);
    let rest = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[rest..], &b[rest..]);
    let prefix = 8 * words + rest;
    let words = a.as_rchunks::<8>().1.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev()).take_while(|(x, y)| x == y);
    let suffix = 8 * words.count();
    let (a, b) = (&a[..a.len() - suffix], &b[..b.len() - suffix]);
    (prefix, suffix + a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::SpaceId;
    use proptest::prelude::*;

    const PAGE: PageId = PageId::new(SpaceId(9), PageNo(9));

    proptest! {
        #[test]
        fn entries_round_trip(
            deleted: bool, form in 0u8..3, trx in 1u64..1 << 48, roll in 1u64..1 << 48, row_key_len: u8, body: Vec<u8>
        ) {
            let form = [0, VERSIONED, VERSIONED | SHORT][usize::from(form)];
            let flags = (u8::from(deleted) * DELETED) | form;
            let (trx, roll) = (TrxId(trx), RollPtr(roll));
            let mut out = Vec::new();
            Entry { flags, trx, roll, row_key_len, body: &body }.write_to(&mut out);
            let e = Entry::parse(&out, PAGE).unwrap();
            prop_assert_eq!((e.flags, e.body), (flags, &body[..]));
            prop_assert_eq!(e.trx, if form == 0 { TrxId(0) } else { trx });
            prop_assert_eq!(e.roll, if form == VERSIONED { roll } else { RollPtr::NONE });
            prop_assert_eq!(e.row_key_len, if e.is_short() { row_key_len } else { 0 });
            prop_assert_eq!(out.len() - body.len(), Header::of(&e).len());
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
            if let Ok(e) = Entry::parse(&bytes, PAGE) {
                let _ = e.overflow();
            }
        }

        #[test]
        fn ends_rebuild(start: Vec<u8>, a: Vec<u8>, b: Vec<u8>, end: Vec<u8>) {
            let (a, b) = ([&start[..], &a, &end].concat(), [&start[..], &b, &end].concat());
            let (p, s) = common_ends(&a, &b);
            prop_assert!(p >= start.len() && p + s >= (start.len() + end.len()).min(a.len()).min(b.len()));
            prop_assert!(p == a.len() || p == b.len() || a[p] != b[p]);
            prop_assert!(p + s == a.len() || p + s == b.len() || a[a.len() - s - 1] != b[b.len() - s - 1]);
            prop_assert!(p + s <= a.len() && p + s <= b.len());
            prop_assert_eq!(&a[..p], &b[..p]);
            prop_assert_eq!(&a[a.len() - s..], &b[b.len() - s..]);
        }
    }
}
