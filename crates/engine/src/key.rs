//! Keys that sort as the values that they are made of: integers, floating-point numbers, strings, byte strings, options and tuples.
//!
//! [`encode`] makes the bytes, [`decode`] reads them. No encoding is the beginning of another one of the same type, so that a tuple is
//! its parts one after the other, sorts by the first, then the second, and [`Session::prefix`](crate::Session::prefix) with the
//! encoding of the first parts finds all that begin with them. What a key is made of is not stored: it is read as the type that was
//! written.
//!
//! ```
//! use myriad::key::{decode, encode};
//!
//! let key = encode(&("Ada", -7i32));
//! assert!(key < encode(&("Ada", 3i32)) && key < encode(&("Adam", -8i32)));
//! assert!(key.starts_with(&encode("Ada")));
//! assert_eq!(decode::<(String, i32)>(&key)?, ("Ada".to_string(), -7));
//! # Ok::<(), myriad::Error>(())
//! ```
//!
//! | type | bytes |
//! |---|---|
//! | `u8` to `u128` | most significant first |
//! | `i8` to `i128` | the same, sign bit inverted |
//! | `bool`, `char` | as `u8`, as `u32` |
//! | `f32`, `f64` | in the order of `total_cmp`: negative ones inverted, of the others the sign bit |
//! | `str`, `String`, `[u8]`, `Vec<u8>` | each byte 0 followed by 255; then 0, 1 |
//! | `[u8; N]` | as it is |
//! | `Option<T>` | 0; or 1 and the value |
//! | [`Reverse<T>`](Reverse) | inverted |
//! | tuples of up to eight | their parts |

use myriad_base::{Error, Result};
use std::cmp::Reverse;

/// The bytes of a key; see the [module](self).
pub fn encode<T: ToKey + ?Sized>(value: &T) -> Vec<u8> {
    let mut key = Vec::new();
    value.to_key(&mut key);
    key
}

/// What [`encode`] has made of a value of this type.
///
/// # Errors
/// [`Error::Invalid`] for other bytes.
pub fn decode<T: FromKey>(key: &[u8]) -> Result<T> {
    match decode_first(key)? {
        (value, []) => Ok(value),
        _ => Err(not_a_key::<T>(key)),
    }
}

/// As [`decode`], of the key's first part; and the rest.
///
/// # Errors
/// As [`decode`].
pub fn decode_first<T: FromKey>(key: &[u8]) -> Result<(T, &[u8])> {
    let mut rest = key;
    match T::from_key(&mut rest) {
        Some(value) => Ok((value, rest)),
        None => Err(not_a_key::<T>(key)),
    }
}

#[cold]
fn not_a_key<T>(key: &[u8]) -> Error {
    Error::invalid(format!("{} bytes that are no key made of {}", key.len(), std::any::type_name::<T>()))
}

/// A value that keys are made of.
pub trait ToKey {
    /// Appends its bytes: they sort as it does, and are not the beginning of another value's.
    fn to_key(&self, out: &mut Vec<u8>);
}

/// A value that is read from keys.
pub trait FromKey: Sized {
    /// Reads what [`ToKey::to_key`] has written and moves `bytes` behind it; `None` if it is nothing of the kind.
    fn from_key(bytes: &mut &[u8]) -> Option<Self>;
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty;)*) => {$(
        impl ToKey for $unsigned {
            fn to_key(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }

        impl FromKey for $unsigned {
            fn from_key(bytes: &mut &[u8]) -> Option<$unsigned> {
                take(bytes).map(<$unsigned>::from_be_bytes)
            }
        }

        impl ToKey for $signed {
            fn to_key(&self, out: &mut Vec<u8>) {
                (*self ^ <$signed>::MIN).cast_unsigned().to_key(out);
            }
        }

        impl FromKey for $signed {
            fn from_key(bytes: &mut &[u8]) -> Option<$signed> {
                <$unsigned>::from_key(bytes).map(|n| n.cast_signed() ^ <$signed>::MIN)
            }
        }
    )*};
}

integers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
    u128, i128;
}

macro_rules! floats {
    ($($float:ty, $signed:ty;)*) => {$(
        impl ToKey for $float {
            fn to_key(&self, out: &mut Vec<u8>) {
                let bits = self.to_bits().cast_signed();
                (if bits < 0 { bits ^ <$signed>::MAX } else { bits }).to_key(out);
            }
        }

        impl FromKey for $float {
            fn from_key(bytes: &mut &[u8]) -> Option<$float> {
                let bits = <$signed>::from_key(bytes)?;
                Some(<$float>::from_bits((if bits < 0 { bits ^ <$signed>::MAX } else { bits }).cast_unsigned()))
            }
        }
    )*};
}

floats! {
    f32, i32;
    f64, i64;
}

impl ToKey for bool {
    fn to_key(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl FromKey for bool {
    fn from_key(bytes: &mut &[u8]) -> Option<bool> {
        match u8::from_key(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl ToKey for char {
    fn to_key(&self, out: &mut Vec<u8>) {
        u32::from(*self).to_key(out);
    }
}

impl FromKey for char {
    fn from_key(bytes: &mut &[u8]) -> Option<char> {
        u32::from_key(bytes).and_then(char::from_u32)
    }
}

/// Follows a byte 0 of a byte string.
const ZERO: u8 = 255;
/// Follows the byte 0 that ends a byte string.
const END: u8 = 1;

impl ToKey for [u8] {
    fn to_key(&self, out: &mut Vec<u8>) {
        for &byte in self {
            out.push(byte);
            if byte == 0 {
                out.push(ZERO);
            }
        }
        out.extend_from_slice(&[0, END]);
    }
}

impl ToKey for Vec<u8> {
    fn to_key(&self, out: &mut Vec<u8>) {
        self[..].to_key(out);
    }
}

impl FromKey for Vec<u8> {
    fn from_key(bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        loop {
            match u8::from_key(bytes)? {
                0 => match u8::from_key(bytes)? {
                    ZERO => value.push(0),
                    END => return Some(value),
                    _ => return None,
                },
                byte => value.push(byte),
            }
        }
    }
}

impl ToKey for str {
    fn to_key(&self, out: &mut Vec<u8>) {
        self.as_bytes().to_key(out);
    }
}

impl ToKey for String {
    fn to_key(&self, out: &mut Vec<u8>) {
        self.as_bytes().to_key(out);
    }
}

impl FromKey for String {
    fn from_key(bytes: &mut &[u8]) -> Option<String> {
        String::from_utf8(Vec::from_key(bytes)?).ok()
    }
}

impl<const N: usize> ToKey for [u8; N] {
    fn to_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> FromKey for [u8; N] {
    fn from_key(bytes: &mut &[u8]) -> Option<[u8; N]> {
        take(bytes)
    }
}

impl<T: ToKey> ToKey for Option<T> {
    fn to_key(&self, out: &mut Vec<u8>) {
        self.is_some().to_key(out);
        if let Some(value) = self {
            value.to_key(out);
        }
    }
}

impl<T: FromKey> FromKey for Option<T> {
    fn from_key(bytes: &mut &[u8]) -> Option<Option<T>> {
        match bool::from_key(bytes)? {
            true => T::from_key(bytes).map(Some),
            false => Some(None),
        }
    }
}

fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

impl<T: ToKey> ToKey for Reverse<T> {
    fn to_key(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.0.to_key(out);
        invert(&mut out[start..]);
    }
}

impl<T: FromKey> FromKey for Reverse<T> {
    fn from_key(bytes: &mut &[u8]) -> Option<Reverse<T>> {
        let mut inverted = bytes.to_vec();
        invert(&mut inverted);
        let mut rest = &inverted[..];
        let value = T::from_key(&mut rest)?;
        *bytes = &bytes[bytes.len() - rest.len()..];
        Some(Reverse(value))
    }
}

impl<T: ToKey + ?Sized> ToKey for &T {
    fn to_key(&self, out: &mut Vec<u8>) {
        (**self).to_key(out);
    }
}

macro_rules! tuples {
    ($($($part:ident)+;)*) => {$(
        impl<$($part: ToKey),+> ToKey for ($($part,)+) {
            fn to_key(&self, out: &mut Vec<u8>) {
                #[allow(non_snake_case)] // named as their types
                let ($($part,)+) = self;
                $($part.to_key(out);)+
            }
        }

        impl<$($part: FromKey),+> FromKey for ($($part,)+) {
            fn from_key(bytes: &mut &[u8]) -> Option<($($part,)+)> {
                Some(($($part::from_key(bytes)?,)+))
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;
    use std::fmt::Debug;

    /// The bytes sort as the values, lead back to them, are no beginning of each other's, and no part of them is taken for a key.
    fn check<T: ToKey + FromKey + Debug>(a: &T, b: &T, order: Ordering) {
        let (x, y) = (encode(a), encode(b));
        assert_eq!(x.cmp(&y), order, "{a:?} {b:?}");
        assert!(order == Ordering::Equal || !y.starts_with(&x), "{a:?} {b:?}");
        let (read, rest) = decode_first::<T>(&[&x[..], b"rest"].concat()).map(|(v, rest)| (v, rest.to_vec())).unwrap();
        assert_eq!((encode(&read), &rest[..]), (x.clone(), &b"rest"[..]));
        assert_eq!(format!("{:?}", decode::<T>(&x).unwrap()), format!("{a:?}"));
        for len in 0..x.len() {
            assert!(decode::<T>(&x[..len]).is_err(), "{a:?}");
        }
    }

    fn ordered<T: ToKey + FromKey + Debug + Ord>(a: &T, b: &T) {
        check(a, b, a.cmp(b));
        check(a, a, Ordering::Equal);
    }

    /// Of few different bytes, so that they have much in common.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255), any::<u8>()], 0..6)
    }

    fn text() -> impl Strategy<Value = String> {
        "[\u{0}\u{1}a-b\u{ff}\u{10ffff}]{0,5}"
    }

    proptest! {
        #[test]
        fn integers(a: (u8, u16, u32, u64, u128), b: (u8, u16, u32, u64, u128), c: (i8, i16, i32, i64, i128),
                    d: (i8, i16, i32, i64, i128)) {
            ordered(&a, &b);
            ordered(&c, &d);
            ordered(&(a.0, c), &(b.0, d));
            ordered(&a.3, &b.3);
            ordered(&c.3, &d.3);
        }

        #[test]
        fn floats(a in proptest::num::f64::ANY, b in proptest::num::f64::ANY, c in proptest::num::f32::ANY,
                  d in proptest::num::f32::ANY) {
            check(&a, &b, a.total_cmp(&b));
            check(&c, &d, c.total_cmp(&d));
        }

        #[test]
        fn strings(a in bytes(), b in bytes(), c in text(), d in text()) {
            ordered(&a, &b);
            ordered(&c, &d);
            ordered(&(a.clone(), c.clone()), &(b.clone(), d.clone()));
            ordered(&(a.clone(), 255u8), &(b.clone(), 0u8));
            ordered(&(Reverse(a.clone()), 1i64), &(Reverse(b.clone()), -1i64));
            ordered(&Reverse((c, a)), &Reverse((d, b)));
        }

        #[test]
        fn parts(a: (bool, char, Option<u16>, [u8; 3]), b: (bool, char, Option<u16>, [u8; 3]), c in bytes(), d in bytes(),
                 e: Option<bool>, f: Option<bool>) {
            ordered(&a, &b);
            ordered(&(e, c.clone(), a.3), &(f, d.clone(), b.3));
            ordered(&(e.map(|_| c.clone()), Reverse(a.2), e), &(f.map(|_| d.clone()), Reverse(b.2), f));
        }

        #[test]
        fn anything_read_is_what_was_written(bytes in bytes()) {
            if let Ok(value) = decode::<(Option<Vec<u8>>, bool)>(&bytes) {
                prop_assert_eq!(encode(&value), bytes.clone());
            }
            if let Ok(value) = decode::<(Reverse<String>, Option<char>)>(&bytes) {
                prop_assert_eq!(encode(&value), bytes);
            }
        }
    }

    /// They are on disks: what they are must not change.
    #[test]
    fn bytes_of_each_type() {
        assert_eq!(encode(&(1u8, 0x0203u16, -1i8, i16::MIN)), [1, 2, 3, 0x7f, 0, 0]);
        assert_eq!(encode(&(1u32, -2i64)), [0, 0, 0, 1, 0x7f, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(encode(&(1.0f32, -1.0f32)), [0xbf, 0x80, 0, 0, 0x40, 0x7f, 255, 255]);
        assert_eq!(encode(&(0.0f64, -0.0f64)), [128, 0, 0, 0, 0, 0, 0, 0, 127, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(encode(&(true, 'a', "b\0c", b"d")), [1, 0, 0, 0, 97, 98, 0, 255, 99, 0, 1, 100]);
        assert_eq!(encode(&(None::<u8>, Some(5u8), Reverse("a"))), [0, 1, 5, 158, 255, 254]);
    }

    #[test]
    fn an_error_names_the_type() {
        let error = decode::<(u8, String)>(b"abc").unwrap_err().to_string();
        assert!(error.contains("3 bytes") && error.contains("(u8, alloc::string::String)"), "{error}");
    }
}
