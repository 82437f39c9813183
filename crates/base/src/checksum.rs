//! The one checksum of everything on disk: CRC-32C (polynomial of iSCSI), with the vector instructions of the processor.

use crc_fast::{crc32_iscsi, CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// CRC-32C of `head` and `rest` as if they lay one after the other.
#[inline]
pub fn crc32c_of_parts(head: &[u8], rest: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(rest);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One bit after the other, as the polynomial says.
    fn by_bits(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |c: u32, _| (c >> 1) ^ (0x82f6_3b78 & (c & 1).wrapping_neg()))
        })
    }

    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b""), 0);
    }

    proptest! {
        /// Lengths about every size from which another kernel works.
        #[test]
        fn every_length_and_alignment(bytes in prop::collection::vec(any::<u8>(), 0..3000), from in 0usize..80, cut in any::<prop::sample::Index>()) {
            let bytes = &bytes[from.min(bytes.len())..];
            let (head, rest) = bytes.split_at(cut.index(bytes.len() + 1));
            let expected = by_bits(bytes);
            prop_assert_eq!(crc32c(bytes), expected);
            prop_assert_eq!(crc32c_of_parts(head, rest), expected);
        }
    }
}
