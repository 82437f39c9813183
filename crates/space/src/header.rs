//! A tablespace file's first page, and how it identifies the file.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 24 | common page header ([`myriad_base::page`]), kind [`PageKind::SpaceHeader`] |
//! | 24 | 8 | magic `MYRIADTS` |
//! | 32 | 4 | format version |
//! | 36 | 4 | tablespace id |
//! | 40 | 16 | UUID |
//! | 56 | 4 | page size in bytes |
//! | 60 | 8 | LSN at creation |
//! | 68 | 4 | CRC-32C of bytes 24 to 68 |
//! | 72 | | reserved, zero |
//! | 256 | | room `btree`'s |
//!
//! The fields have a checksum of their own, so that the first 4 KiB identify a file whatever its page size, also while
//! the rest of the page is being written. They never change after creation.

use crate::Uuid;
use myriad_base::codec::{get_u32, get_u64, put_u32, put_u64};
use myriad_base::page::{self, PageKind};
use myriad_base::{crc32c, Error, Lsn, PageId, PageNo, Result, SpaceId};

/// Version of a tablespace file's format.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes at a file's start that identify it.
pub const HEADER_READ_BYTES: usize = 4096;
/// Where page 0 is free for room `btree`.
pub const OFF_FREE_USE: usize = 256;

const MAGIC: &[u8; 8] = b"MYRIADTS";
const OFF_MAGIC: usize = 24;
const OFF_VERSION: usize = 32;
const OFF_SPACE: usize = 36;
const OFF_UUID: usize = 40;
const OFF_PAGE_SIZE: usize = 56;
const OFF_CREATION_LSN: usize = 60;
const OFF_CRC: usize = 68;
const _: () = assert!(OFF_MAGIC == page::HEADER_BYTES && OFF_CRC + 4 <= OFF_FREE_USE);

/// What a tablespace file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceHeader {
    /// Its id.
    pub id: SpaceId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Bytes of a page.
    pub page_size: u32,
    /// End of the log when it was created.
    pub creation_lsn: Lsn,
}

impl SpaceHeader {
    /// Makes `page` (of the header's page size) the tablespace's page 0, checksums included.
    pub fn format(&self, page: &mut [u8]) {
        assert_eq!(page.len(), self.page_size as usize);
        page::format(page, PageId::new(self.id, PageNo(0)), PageKind::SpaceHeader);
        page[OFF_MAGIC..OFF_MAGIC + 8].copy_from_slice(MAGIC);
        put_u32(page, OFF_VERSION, FORMAT_VERSION);
        put_u32(page, OFF_SPACE, self.id.0);
        page[OFF_UUID..OFF_UUID + 16].copy_from_slice(&self.uuid);
        put_u32(page, OFF_PAGE_SIZE, self.page_size);
        put_u64(page, OFF_CREATION_LSN, self.creation_lsn.0);
        let crc = crc32c(&page[OFF_MAGIC..OFF_CRC]);
        put_u32(page, OFF_CRC, crc);
        page::seal(page);
    }

    /// Reads the header from a file's first bytes; `path` is for the error.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if it is none or damaged, [`Error::Format`] if its version is not ours.
    pub fn parse(bytes: &[u8], path: &str) -> Result<SpaceHeader> {
        let corrupt = |reason: String| Error::CorruptFile { path: path.into(), reason };
        if bytes.len() < OFF_CRC + 4 {
            return Err(corrupt(format!("{} bytes: too short for a tablespace", bytes.len())));
        }
        if &bytes[OFF_MAGIC..OFF_MAGIC + 8] != MAGIC {
            return Err(corrupt("not a tablespace: the magic is missing".into()));
        }
        let (stored, computed) = (get_u32(bytes, OFF_CRC), crc32c(&bytes[OFF_MAGIC..OFF_CRC]));
        if stored != computed {
            return Err(corrupt(format!("header checksum {stored:#010x} stored, {computed:#010x} computed")));
        }
        let version = get_u32(bytes, OFF_VERSION);
        if version != FORMAT_VERSION {
            let reason = format!("version {version}, this engine reads version {FORMAT_VERSION}");
            return Err(Error::Format { path: path.into(), reason });
        }
        Ok(SpaceHeader {
            id: SpaceId(get_u32(bytes, OFF_SPACE)),
            uuid: bytes[OFF_UUID..OFF_UUID + 16].try_into().expect("16 bytes"),
            page_size: get_u32(bytes, OFF_PAGE_SIZE),
            creation_lsn: Lsn(get_u64(bytes, OFF_CREATION_LSN)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let h = SpaceHeader { id: SpaceId(77), uuid: [9; 16], page_size: 16384, creation_lsn: Lsn(123) };
        let mut page = vec![0u8; 16384];
        h.format(&mut page);
        page::verify(&page, PageId::new(SpaceId(77), PageNo(0))).unwrap();
        assert_eq!(SpaceHeader::parse(&page[..4096], "x").unwrap(), h);
        for at in 24..72 {
            page[at] ^= 16;
            assert!(matches!(SpaceHeader::parse(&page, "x"), Err(Error::CorruptFile { .. })), "byte {at}");
            page[at] ^= 16;
        }
        assert!((0..OFF_CRC + 4).all(|len| SpaceHeader::parse(&page[..len], "x").is_err()));
        for version in [0, FORMAT_VERSION + 1] {
            put_u32(&mut page, OFF_VERSION, version);
            let crc = crc32c(&page[OFF_MAGIC..OFF_CRC]);
            put_u32(&mut page, OFF_CRC, crc);
            assert!(matches!(SpaceHeader::parse(&page, "x"), Err(Error::Format { .. })), "version {version}");
        }
    }
}
