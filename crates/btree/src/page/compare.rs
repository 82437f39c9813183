//! Comparing bytes that may lie at a page's end.
//!
//! Not by `memcmp`, as slices do: glibc's (2.36) for AVX-512 reads 32 bytes where there are fewer to compare, with a mask. Fences
//! lie at their page's end, so such a read reaches into the frame behind. If that has not been used yet, so that the kernel has
//! given it no memory, the processor takes a microsecond to find that the mask leaves it out.

use std::cmp::Ordering;

/// What is longer is read unmasked, and so by `memcmp`.
const SHORT_MAX: usize = 32;

#[inline]
fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

#[inline]
fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// How two byte strings compare.
#[inline]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let n = a.len().min(b.len());
    if n > SHORT_MAX {
        return a.cmp(b);
    }
    // The last step looks at some bytes again that are equal.
    let order = if n >= 8 {
        let mut at = 0;
        loop {
            let order = eight(a, at).cmp(&eight(b, at));
            if order.is_ne() || at + 8 == n {
                break order;
            }
            at = (at + 8).min(n - 8);
        }
    } else if n >= 4 {
        four(a, 0).cmp(&four(b, 0)).then_with(|| four(a, n - 4).cmp(&four(b, n - 4)))
    } else {
        a[..n].iter().cmp(&b[..n])
    };
    order.then_with(|| a.len().cmp(&b.len()))
}

/// Whether `bytes` begins with `start`.
#[inline]
pub fn begins_with(bytes: &[u8], start: &[u8]) -> bool {
    bytes.len() >= start.len() && compare(&bytes[..start.len()], start).is_eq()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn compares_as_slices_do(start in prop::collection::vec(0u8..3, 0..40), a in prop::collection::vec(any::<u8>(), 0..12), b in prop::collection::vec(any::<u8>(), 0..12)) {
            let (a, b) = ([&start[..], &a].concat(), [&start[..], &b].concat());
            prop_assert_eq!(compare(&a, &b), a.cmp(&b));
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
            prop_assert_eq!(begins_with(&a, &b), a.starts_with(&b));
            prop_assert!(begins_with(&a, &start) && begins_with(&a, &a));
        }
    }
}
