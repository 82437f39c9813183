//! What a lock is on: an index entry's key, or the end of an index.

use myriad_base::ids::mix;
use myriad_base::IndexId;
use std::sync::OnceLock;

/// Key bytes kept for display, index id included.
pub const KEY_BYTES_SHOWN: usize = 64;

/// What hashes are made with unless [`seed_hashes`] was called first.
const FIXED: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7];

static SEEDS: OnceLock<[u64; 3]> = OnceLock::new();

/// Gives the process's hashes a secret, at its first engine: nobody can make keys then that share the locks of somebody
/// else's.
pub fn seed_hashes(secret: [u64; 3]) {
    let _ = SEEDS.set(secret);
}

#[inline]
fn seeds() -> &'static [u64; 3] {
    SEEDS.get_or_init(|| FIXED)
}

/// What a lock is on. Two keys with the same 64-bit hash share their locks: not to be met by chance.
#[derive(Clone, Copy, Debug)]
pub struct LockKey<'a> {
    hash: u64,
    index: IndexId,
    bytes: &'a [u8],
    supremum: bool,
}

impl<'a> LockKey<'a> {
    /// The entry with this full key, whose first four bytes are the index id (big endian).
    #[inline]
    pub fn entry(full_key: &'a [u8]) -> LockKey<'a> {
        let id = full_key.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
        LockKey { hash: hash_key(full_key), index: IndexId(id), bytes: full_key, supremum: false }
    }

    /// The end of an index: after its last entry. Has a gap, but no entry.
    #[inline]
    pub fn supremum(index: IndexId) -> LockKey<'static> {
        LockKey { hash: mix(u64::from(index.0) ^ seeds()[2]), index, bytes: &[], supremum: true }
    }

    /// Names the lock queue.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether the key with this hash is a neighbour, or this one: their locks may be kept together.
    #[inline]
    pub fn is_neighbour(&self, hash: u64) -> bool {
        group_of(self.hash) == group_of(hash)
    }

    /// The index.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Whether this is the end of the index.
    #[inline]
    pub fn is_supremum(&self) -> bool {
        self.supremum
    }

    /// The full key; empty for the supremum.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let p = u128::from(a) * u128::from(b);
    p as u64 ^ (p >> 64) as u64
}

#[inline]
fn word(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

/// Keys that differ only in the low four bits of the last byte are neighbours.
pub(super) const NEIGHBOURS: u8 = 16;

/// A quick 64-bit hash of a key. Those of neighbours differ only in the low four bits, and there by the bits in which the
/// keys differ: locks that a scan takes are kept together.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    let Some((&last, _)) = key.split_last() else { return hash_all(key, 0) };
    let low = last % NEIGHBOURS;
    hash_all(key, low) ^ u64::from(low)
}

/// What the hashes of neighbours have in common.
#[inline]
pub(super) fn group_of(hash: u64) -> u64 {
    hash & !u64::from(NEIGHBOURS - 1)
}

/// Which of the neighbours it is.
#[inline]
pub(super) fn member_of(hash: u64) -> u8 {
    hash as u8 % NEIGHBOURS
}

/// 16 bytes a step, multiplied to 128 bits and folded (the principle of wyhash). The state also goes on unmultiplied, so
/// that a zero factor forgets nothing. The last byte counts without `low`.
#[inline]
fn hash_all(key: &[u8], low: u8) -> u64 {
    let &[k0, k1, k2] = seeds();
    let mut h = k0 ^ (key.len() as u64).wrapping_mul(k1 | 1);
    let mut rest = key;
    while rest.len() > 16 {
        h = h.rotate_left(23) ^ fold(word(rest, 0) ^ h ^ k1, word(rest, 8) ^ k2);
        rest = &rest[16..];
    }
    let n = rest.len();
    let (a, b) = if n >= 8 {
        // The last byte is the highest of the second word (and of the first as well, if that is all).
        let whole = if n == 8 { u64::from(low) << 56 } else { 0 };
        (word(rest, 0) ^ whole, word(rest, n - 8) ^ u64::from(low) << 56)
    } else if n >= 4 {
        let lo = u32::from_le_bytes(rest[..4].try_into().expect("four bytes"));
        let hi = u32::from_le_bytes(rest[n - 4..].try_into().expect("four bytes"));
        let whole = if n == 4 { u32::from(low) << 24 } else { 0 };
        (u64::from(lo ^ whole), u64::from(hi ^ u32::from(low) << 24))
    } else if n > 0 {
        let at = |i: usize| u64::from(if i == n - 1 { rest[i] ^ low } else { rest[i] });
        (at(0) | at(n / 2) << 8 | at(n - 1) << 16, 0)
    } else {
        (0, 0)
    };
    mix(h.rotate_left(23) ^ fold(a ^ h ^ k1, b ^ k2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn near_keys_have_far_hashes() {
        let mut seen = HashSet::new();
        let mut shards = [0u32; 256];
        for len in 4..40 {
            for i in 0..4000u32 {
                let mut key = vec![0u8; len];
                key[len - 4..].copy_from_slice(&i.to_be_bytes());
                let h = hash_key(&key);
                assert!(seen.insert(h), "length {len}, number {i}");
                shards[(h >> 32) as usize % 256] += 1;
            }
        }
        let mean = 36 * 4000 / 256;
        assert!(shards.iter().all(|&n| n > mean / 2 && n < mean * 3 / 2), "{shards:?}");
    }

    #[test]
    fn neighbours_have_neighbouring_hashes() {
        for len in 1..40 {
            let hashes: Vec<u64> =
                (0..16u8).map(|low| [&vec![9u8; len - 1][..], &[0x50 | low]].concat()).map(|k| hash_key(&k)).collect();
            assert!(hashes.iter().all(|h| group_of(*h) == group_of(hashes[0])), "length {len}");
            assert!((0..16).all(|low| member_of(hashes[low] ^ hashes[0]) == low as u8), "length {len}");
        }
    }

    #[test]
    fn every_byte_counts() {
        for len in 1..70 {
            let base = vec![7u8; len];
            for at in 0..len {
                let mut other = base.clone();
                other[at] ^= 1;
                assert_ne!(hash_key(&base), hash_key(&other), "length {len}, byte {at}");
            }
        }
    }

    #[test]
    fn supremum_is_no_entry() {
        let s = LockKey::supremum(IndexId(5));
        assert!(s.is_supremum());
        assert_ne!(s.hash(), LockKey::entry(&5u32.to_be_bytes()).hash());
        assert_ne!(s.hash(), LockKey::supremum(IndexId(6)).hash());
        assert_eq!(LockKey::entry(&[0, 0, 1, 2, 9]).index(), IndexId(258));
    }
}
