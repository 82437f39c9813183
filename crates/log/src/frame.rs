//! A frame: one mini-transaction in the log.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the body in bytes, not 0 |
//! | 4 | 4 | CRC-32C of the frame's LSN (8 bytes), the generation (4), the length (4) and the body |
//! | 8 | length | body |
//! | | 0 to 7 | zero padding to a multiple of 8 |

use myriad_base::checksum::crc32c_of_parts;
use myriad_base::codec::{get_u32, put_u32, put_u64};

/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 8;

/// Bytes that a frame with this body takes.
pub(crate) fn frame_bytes(body_len: usize) -> usize {
    (HEADER_BYTES + body_len).next_multiple_of(8)
}

/// The checksum of a frame at `lsn`.
pub(crate) fn checksum(lsn: u64, generation: u32, body: &[u8]) -> u32 {
    let mut seed = [0; 16];
    put_u64(&mut seed, 0, lsn);
    put_u32(&mut seed, 8, generation);
    put_u32(&mut seed, 12, body.len() as u32);
    crc32c_of_parts(&seed, body)
}

/// The header of a frame at `lsn`.
pub(crate) fn header(lsn: u64, generation: u32, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    put_u32(&mut h, 0, body.len() as u32);
    put_u32(&mut h, 4, checksum(lsn, generation, body));
    h
}

/// Length of the body and checksum, as a header says; unverified.
pub(crate) fn parse_header(h: &[u8; HEADER_BYTES]) -> (usize, u32) {
    (get_u32(h, 0) as usize, get_u32(h, 4))
}
