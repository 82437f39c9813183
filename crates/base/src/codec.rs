//! Little codecs: fixed-width little-endian fields in pages, variable-length integers in log and undo records.

/// Reads a `u16` (little endian) at `at`.
#[inline]
pub fn get_u16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(b[at..at + 2].try_into().expect("two bytes"))
}

/// Reads a `u32` (little endian) at `at`.
#[inline]
pub fn get_u32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

/// Reads a `u64` (little endian) at `at`.
#[inline]
pub fn get_u64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads a 48-bit unsigned integer (little endian) at `at`.
#[inline]
pub fn get_u48(b: &[u8], at: usize) -> u64 {
    u64::from(get_u32(b, at)) | u64::from(get_u16(b, at + 4)) << 32
}

/// Writes a `u16` (little endian) at `at`.
#[inline]
pub fn put_u16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}

/// Writes a `u32` (little endian) at `at`.
#[inline]
pub fn put_u32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

/// Writes a `u64` (little endian) at `at`.
#[inline]
pub fn put_u64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_le_bytes());
}

/// Appends the low 48 bits of `v` (little endian).
#[inline]
pub fn push_u48(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes()[..6]);
}

/// Writes the low 48 bits of `v` (little endian) at `at`.
#[inline]
pub fn put_u48(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 6].copy_from_slice(&v.to_le_bytes()[..6]);
}

/// Appends `v` in LEB128: seven bits a byte, low first, high bit set on all but the last.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Length in bytes of `v` in LEB128.
#[inline]
pub fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `bytes` with their length (LEB128) in front.
#[inline]
pub fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A cursor over encoded bytes. Every read is bounds-checked and gives `None` past the end or on a malformed integer.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > self.rest.len() {
            return None;
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Some(head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// A little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| get_u16(b, 0))
    }

    /// A little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| get_u32(b, 0))
    }

    /// A little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|b| get_u64(b, 0))
    }

    /// A little-endian 48-bit integer.
    #[inline]
    pub fn u48(&mut self) -> Option<u64> {
        self.take(6).map(|b| get_u48(b, 0))
    }

    /// A LEB128 integer of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut v = 0u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            if i == 9 && byte > 1 {
                return None;
            }
            v |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Some(v);
            }
        }
        None
    }

    /// Bytes with their LEB128 length in front.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.varint()?).ok()?;
        self.take(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varint_round_trips(v: u64) {
            let mut out = Vec::new();
            push_varint(&mut out, v);
            prop_assert_eq!(out.len(), varint_len(v));
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.varint(), Some(v));
            prop_assert!(r.is_empty());
        }

        #[test]
        fn reader_survives_any_bytes(bytes: Vec<u8>) {
            let mut r = Reader::new(&bytes);
            while r.varint().is_some() && r.bytes().is_some() {}
        }

        #[test]
        fn u48_round_trips(v in 0u64..1 << 48) {
            let mut b = [0u8; 8];
            put_u48(&mut b, 1, v);
            prop_assert_eq!(get_u48(&b, 1), v);
            prop_assert_eq!((b[0], b[7]), (0, 0));
        }
    }
}
