//! The value of every leaf entry: a header that versions it, then its payload.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | flags: 1 delete mark, 2 versioned, 4 overflow |
//! | 6 | `trx_id` of the last writer, if versioned |
//! | 6 | `roll_ptr` to that writer's undo record, if versioned |
//! | | body: the payload; with *overflow* its length (u32) and the first page (u32) of its chain |
//!
//! An entry that is not versioned is frozen: older than every snapshot.

use myriad_base::codec::{get_u32, get_u48, put_u32, put_u48};
use myriad_base::{Error, PageId, PageNo, Result, RollPtr, TrxId};

/// Flag: deleted by its last writer.
pub const DELETED: u8 = 1;
/// Flag: has writer and roll pointer.
pub const VERSIONED: u8 = 2;
/// Flag: the payload is in an overflow chain.
pub const OVERFLOW: u8 = 4;
/// Bytes in front of a versioned entry's body.
pub const HEADER_BYTES: usize = 13;
/// Bytes of an overflow reference.
pub const OVERFLOW_REF_BYTES: usize = 8;

/// An entry's value, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The flags.
    pub flags: u8,
    /// Last writer; 0 if frozen.
    pub trx: TrxId,
    /// Its undo record; 0 if frozen.
    pub roll: RollPtr,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes a value apart; `page` is named if it makes no sense.
    ///
    /// # Errors
    /// [`Error::CorruptPage`].
    #[inline]
    pub fn parse(value: &'a [u8], page: PageId) -> Result<Entry<'a>> {
        match Entry::try_parse(value) {
            Some(e) => Ok(e),
            None => Err(Error::corrupt(page, format!("an entry's value of {} bytes has no valid header", value.len()))),
        }
    }

    #[inline]
    fn try_parse(value: &'a [u8]) -> Option<Entry<'a>> {
        let flags = *value.first()?;
        if flags & !(DELETED | VERSIONED | OVERFLOW) != 0 {
            return None;
        }
        let entry = if flags & VERSIONED != 0 {
            if value.len() < HEADER_BYTES {
                return None;
            }
            let (trx, roll) = (TrxId(get_u48(value, 1)), RollPtr(get_u48(value, 7)));
            Entry { flags, trx, roll, body: &value[HEADER_BYTES..] }
        } else {
            Entry { flags, trx: TrxId(0), roll: RollPtr::NONE, body: &value[1..] }
        };
        (flags & OVERFLOW == 0 || entry.body.len() == OVERFLOW_REF_BYTES).then_some(entry)
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
        out.push(self.flags);
        if self.flags & VERSIONED != 0 {
            let mut b = [0u8; 12];
            put_u48(&mut b, 0, self.trx.0);
            put_u48(&mut b, 6, self.roll.0);
            out.extend_from_slice(&b);
        }
        out.extend_from_slice(self.body);
    }
}

/// A payload kept in overflow pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowRef {
    /// Length of the payload in bytes.
    pub len: u32,
    /// First page of the chain.
    pub first: PageNo,
}

impl OverflowRef {
    /// Decodes the reference; `None` if it has another length than one.
    pub fn get(body: &[u8]) -> Option<OverflowRef> {
        (body.len() == OVERFLOW_REF_BYTES)
            .then(|| OverflowRef { len: get_u32(body, 0), first: PageNo(get_u32(body, 4)) })
    }

    /// Encodes the reference.
    pub fn to_bytes(self) -> [u8; OVERFLOW_REF_BYTES] {
        let mut b = [0; OVERFLOW_REF_BYTES];
        put_u32(&mut b, 0, self.len);
        put_u32(&mut b, 4, self.first.0);
        b
    }
}

/// The 13 bytes of a versioned entry's header.
#[inline]
pub fn header(flags: u8, trx: TrxId, roll: RollPtr) -> [u8; HEADER_BYTES] {
    let mut b = [0; HEADER_BYTES];
    b[0] = flags | VERSIONED;
    put_u48(&mut b, 1, trx.0);
    put_u48(&mut b, 7, roll.0);
    b
}

/// Lengths of the longest common prefix of `a` and `b`, and of the longest common suffix that does not overlap it.
pub fn common_ends(a: &[u8], b: &[u8]) -> (usize, usize) {
    let prefix = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (ra, rb) = (&a[prefix..], &b[prefix..]);
    let suffix = ra.iter().rev().zip(rb.iter().rev()).take_while(|(x, y)| x == y).count();
    (prefix, suffix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::SpaceId;
    use proptest::prelude::*;

    const PAGE: PageId = PageId::new(SpaceId(9), PageNo(9));

    proptest! {
        #[test]
        fn entries_round_trip(deleted: bool, versioned: bool, trx in 0u64..1 << 48, roll in 0u64..1 << 48, body: Vec<u8>) {
            let flags = (u8::from(deleted) * DELETED) | (u8::from(versioned) * VERSIONED);
            let mut out = Vec::new();
            Entry { flags, trx: TrxId(trx), roll: RollPtr(roll), body: &body }.write_to(&mut out);
            let e = Entry::parse(&out, PAGE).unwrap();
            prop_assert_eq!((e.flags, e.body), (flags, &body[..]));
            if versioned {
                prop_assert_eq!((e.trx.0, e.roll.0), (trx, roll));
                prop_assert_eq!(&out[..HEADER_BYTES], &header(flags, e.trx, e.roll)[..]);
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
            if let Ok(e) = Entry::parse(&bytes, PAGE) {
                let _ = e.overflow();
            }
        }

        #[test]
        fn ends_rebuild(a: Vec<u8>, b: Vec<u8>) {
            let (p, s) = common_ends(&a, &b);
            prop_assert!(p + s <= a.len() && p + s <= b.len());
            prop_assert_eq!(&a[..p], &b[..p]);
            prop_assert_eq!(&a[a.len() - s..], &b[b.len() - s..]);
        }
    }
}
