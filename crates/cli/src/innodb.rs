//! Page 0 of an InnoDB tablespace: what its header says and whether its checksum holds.
//!
//! Covers MySQL 5.7 to 9 and MariaDB 10 and 11: page sizes 4 to 64 KiB, compressed (`ROW_FORMAT=COMPRESSED`), page
//! compressed and encrypted tables, and the checksum algorithms crc32, innodb, none and full_crc32.
//!
//! | offset | bytes | field (big endian) |
//! |---|---|---|
//! | 0 | 4 | checksum (full_crc32: the space's page number field moved, see below) |
//! | 4 | 4 | page number, 0 here |
//! | 16 | 8 | LSN of the last change |
//! | 24 | 2 | page type: 8 = space header |
//! | 26 | 8 | flush LSN, or MariaDB's key version (4 bytes) |
//! | 34 | 4 | space id |
//! | 38 | 4 | space id again |
//! | 46 | 4 | size in pages |
//! | 54 | 4 | flags |
//! | end - 8 | 4 | old-style checksum |
//! | end - 4 | 4 | low half of the LSN (full_crc32: the checksum of all before it) |
//!
//! Sources: the InnoDB documentation of both servers and the headers `fil0fil.h`, `fsp0types.h`.

use myriad_base::crc32c;
use serde::Serialize;

/// Bytes of page 0 that hold every header field: enough for a light check.
pub const HEAD_BYTES: usize = 4096;
const TYPE_SPACE_HEADER: u16 = 8;
const MAGIC_NONE: u32 = 0xdead_beef;

/// MariaDB's marker of the full_crc32 format in the flags.
const FLAG_FULL_CRC32: u32 = 1 << 4;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// Space id.
    pub space_id: u32,
    /// Bytes of a page in memory.
    pub page_size: usize,
    /// Bytes of a page in the file: less for `ROW_FORMAT=COMPRESSED`.
    pub physical_size: usize,
    /// Pages the file should have.
    pub size_pages: u32,
    /// MariaDB's full_crc32 format.
    pub full_crc32: bool,
    /// `ROW_FORMAT=COMPRESSED`.
    pub compressed: bool,
    /// The contents are encrypted (page 0 itself never is in MySQL; in MariaDB it is not either).
    pub encrypted: bool,
    /// The raw flags.
    pub flags: u32,
}

/// Why a page 0 is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Fewer bytes than a header has.
    #[error("is {0} bytes long: too short for a tablespace")]
    Short(usize),
    /// Nothing but zeros: damage, or a file whose page 0 waits in a running server's memory.
    #[error("page 0 is all zero, as in a table that a running server made since its last checkpoint")]
    Zero,
    /// The header's fields contradict each other.
    #[error("{0}")]
    Field(String),
    /// No known algorithm gives the stored checksum.
    #[error("checksum {stored:#010x} matches no algorithm")]
    Checksum {
        /// The value in the first field.
        stored: u32,
    },
}

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(b[at..at + 2].try_into().expect("two bytes"))
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

/// Reads the header fields from the first [`HEAD_BYTES`] (or more) of a file.
///
/// # Errors
/// A [`Fault`] where they cannot be an InnoDB file-per-table tablespace's.
pub fn parse(head: &[u8]) -> Result<Header, Fault> {
    if head.len() < HEAD_BYTES {
        return Err(Fault::Short(head.len()));
    }
    if head.iter().all(|&b| b == 0) {
        return Err(Fault::Zero);
    }
    let flags = be32(head, 54);
    let space_id = be32(head, 38);
    if be32(head, 4) != 0 {
        return Err(Fault::Field(format!("page 0 says it is page {}", be32(head, 4))));
    }
    if be32(head, 34) != space_id {
        return Err(Fault::Field(format!(
            "space id {} in the page header, {space_id} in the space header",
            be32(head, 34)
        )));
    }
    if be16(head, 24) != TYPE_SPACE_HEADER {
        return Err(Fault::Field(format!("page 0 has type {}, not a space header", be16(head, 24))));
    }
    let mut header = if flags & FLAG_FULL_CRC32 != 0 && flags & 0xffff_ff00 == 0 {
        parse_full_crc32(flags)?
    } else {
        parse_flags(flags)?
    };
    header.space_id = space_id;
    header.size_pages = be32(head, 46);
    if header.size_pages == 0 {
        return Err(Fault::Field("the space header says 0 pages".into()));
    }
    Ok(header)
}

/// MariaDB 10.4 and later: page size in bits 0 to 3, marker bit 4, compression algorithm in bits 5 to 7.
fn parse_full_crc32(flags: u32) -> Result<Header, Fault> {
    let page_size = shift_size(flags & 0xf)?;
    Ok(Header {
        space_id: 0,
        page_size,
        physical_size: page_size,
        size_pages: 0,
        full_crc32: true,
        compressed: flags >> 5 & 7 != 0,
        encrypted: false,
        flags,
    })
}

/// MySQL, and MariaDB's older format: compressed page size in bits 1 to 4, page size in bits 6 to 9, encryption in bit 13
/// (MySQL). 0 in the page size means 16 KiB, or Antelope's only size.
fn parse_flags(flags: u32) -> Result<Header, Fault> {
    let zip = flags >> 1 & 0xf;
    let ssize = flags >> 6 & 0xf;
    let page_size = if ssize == 0 { 16 << 10 } else { shift_size(ssize)? };
    let physical_size = if zip == 0 { page_size } else { 512usize << zip };
    if zip > 5 || physical_size > page_size {
        return Err(Fault::Field(format!("flags {flags:#x} say a compressed page of {physical_size} bytes")));
    }
    Ok(Header {
        space_id: 0,
        page_size,
        physical_size,
        size_pages: 0,
        full_crc32: false,
        compressed: zip != 0,
        encrypted: flags >> 13 & 1 != 0,
        flags,
    })
}

fn shift_size(ssize: u32) -> Result<usize, Fault> {
    match ssize {
        3..=7 => Ok(512usize << ssize),
        _ => Err(Fault::Field(format!("the flags say a page size of 512 << {ssize}"))),
    }
}

/// Verifies the checksum of a whole page 0.
///
/// # Errors
/// [`Fault::Checksum`] if no algorithm of the header's format gives the stored one.
pub fn verify_checksum(page: &[u8], header: &Header) -> Result<(), Fault> {
    let page = &page[..header.physical_size.min(page.len())];
    if page.len() < header.physical_size {
        return Err(Fault::Short(page.len()));
    }
    let n = page.len();
    let stored = be32(page, 0);
    let ok = if header.full_crc32 {
        crc32c(&page[..n - 4]) == be32(page, n - 4)
    } else if header.compressed {
        stored == MAGIC_NONE || stored == zip_crc32(page) || stored == zip_adler32(page)
    } else {
        let old = be32(page, n - 8);
        let crc = crc32c(&page[4..26]) ^ crc32c(&page[38..n - 8]);
        (stored == MAGIC_NONE && old == MAGIC_NONE)
            || stored == crc
            || stored == fold_checksum(page)
            || (old == fold_old_checksum(page) && stored == be32(page, 16))
    };
    if ok {
        Ok(())
    } else {
        Err(Fault::Checksum { stored })
    }
}

/// A compressed page's crc32: header fields without the flush LSN, then the body without the space id.
fn zip_crc32(page: &[u8]) -> u32 {
    crc32c(&page[4..16]) ^ crc32c(&page[24..26]) ^ crc32c(&page[34..])
}

/// The older checksum of compressed pages: Adler-32 over the same bytes.
fn zip_adler32(page: &[u8]) -> u32 {
    let mut adler = adler2::Adler32::from_checksum(0);
    adler.write_slice(&page[4..16]);
    adler.write_slice(&page[24..26]);
    adler.write_slice(&page[34..]);
    adler.checksum()
}

const FOLD_MASK_1: u32 = 1_463_735_687;
const FOLD_MASK_2: u32 = 1_653_893_711;

/// InnoDB's own pairwise fold, in 32 bits as its checksum uses it.
fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |h, &b| {
        let mixed = (h ^ u32::from(b) ^ FOLD_MASK_2) << 8;
        (mixed.wrapping_add(h) ^ FOLD_MASK_1).wrapping_add(u32::from(b))
    })
}

fn fold_checksum(page: &[u8]) -> u32 {
    fold(&page[4..26]).wrapping_add(fold(&page[38..page.len() - 8]))
}

fn fold_old_checksum(page: &[u8]) -> u32 {
    fold(&page[..26])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put32(p: &mut [u8], at: usize, v: u32) {
        p[at..at + 4].copy_from_slice(&v.to_be_bytes());
    }

    fn page(size: usize, flags: u32) -> Vec<u8> {
        let mut p: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
        put32(&mut p, 4, 0);
        p[24..26].copy_from_slice(&TYPE_SPACE_HEADER.to_be_bytes());
        put32(&mut p, 34, 77);
        put32(&mut p, 38, 77);
        put32(&mut p, 46, 7);
        put32(&mut p, 54, flags);
        p
    }

    #[test]
    fn every_algorithm_and_page_size_is_known_and_a_flipped_bit_is_found() {
        for ssize in 3..=7u32 {
            let size = 512usize << ssize;
            let old_flags = 1 | 1 << 5 | ssize << 6;
            let mut pages = Vec::new();
            let mut p = page(size, FLAG_FULL_CRC32 | ssize);
            let crc = crc32c(&p[..size - 4]);
            put32(&mut p, size - 4, crc);
            pages.push(p);
            let mut p = page(size, old_flags);
            let crc = crc32c(&p[4..26]) ^ crc32c(&p[38..size - 8]);
            put32(&mut p, 0, crc);
            pages.push(p);
            let mut p = page(size, old_flags);
            let sum = fold_checksum(&p);
            put32(&mut p, 0, sum);
            pages.push(p);
            if (4..=6).contains(&ssize) {
                let mut p = page(size / 2, 1 | (ssize - 1) << 1 | 1 << 5 | ssize << 6);
                let crc = zip_crc32(&p);
                put32(&mut p, 0, crc);
                if p.len() >= HEAD_BYTES {
                    pages.push(p);
                }
            }
            for mut p in pages {
                let header = parse(&p).unwrap();
                assert_eq!((header.space_id, header.page_size, header.physical_size), (77, size, p.len()));
                verify_checksum(&p, &header).unwrap();
                p[300] ^= 1;
                assert!(matches!(verify_checksum(&p, &header), Err(Fault::Checksum { .. })));
            }
        }
    }

    #[test]
    fn checksum_none_is_accepted() {
        let mut p = page(16384, 1 | 1 << 5);
        put32(&mut p, 0, MAGIC_NONE);
        put32(&mut p, 16384 - 8, MAGIC_NONE);
        verify_checksum(&p, &parse(&p).unwrap()).unwrap();
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        assert_eq!(parse(&[1; 10]), Err(Fault::Short(10)));
        assert_eq!(parse(&[0; 4096]), Err(Fault::Zero));
        assert!(matches!(parse(&[0xff; 4096]), Err(Fault::Field(_))));
        let mut p = page(16384, 1 | 1 << 5);
        put32(&mut p, 34, 78);
        assert!(parse(&p).unwrap_err().to_string().contains("space id"));
    }
}
