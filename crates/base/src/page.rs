//! The header that every page begins with, and its checksum.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4 to the page's end |
//! | 4 | 4 | page number |
//! | 8 | 4 | tablespace id |
//! | 12 | 1 | [`PageKind`] |
//! | 13 | 3 | reserved, zero (an index page uses 13 for its level) |
//! | 16 | 8 | `page_lsn`: end LSN of the last mini-transaction that changed the page |
//! | 24 | | body |
//!
//! All integers are little endian. The checksum is computed when a page is written and verified when it is read.

use crate::codec::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::{crc32c, Error, Lsn, PageId, PageNo, Result, SpaceId};

/// Offset of the checksum.
pub const OFF_CHECKSUM: usize = 0;
/// Offset of the page number.
pub const OFF_PAGE_NO: usize = 4;
/// Offset of the tablespace id.
pub const OFF_SPACE: usize = 8;
/// Offset of the kind.
pub const OFF_KIND: usize = 12;
/// Offset of the LSN.
pub const OFF_LSN: usize = 16;
/// Where the body begins.
pub const HEADER_BYTES: usize = 24;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Allocated, not yet formatted, or freed.
    Free = 0,
    /// A tablespace's page 0.
    SpaceHeader = 1,
    /// Allocation bitmap.
    Bitmap = 2,
    /// B+tree page, leaf or inner.
    Index = 3,
    /// Overflow page of a long value.
    Overflow = 4,
    /// Undo page.
    Undo = 5,
    /// Directory of undo slots.
    UndoDirectory = 6,
    /// A page that could not be brought back: changes up to its LSN are lost, see [`format_lost`].
    Lost = 7,
}

impl PageKind {
    /// The kind with this number, if there is one.
    pub fn from_u8(v: u8) -> Option<PageKind> {
        Some(match v {
            0 => PageKind::Free,
            1 => PageKind::SpaceHeader,
            2 => PageKind::Bitmap,
            3 => PageKind::Index,
            4 => PageKind::Overflow,
            5 => PageKind::Undo,
            6 => PageKind::UndoDirectory,
            7 => PageKind::Lost,
            _ => return None,
        })
    }
}

/// The page's LSN.
#[inline]
pub fn page_lsn(page: &[u8]) -> Lsn {
    Lsn(get_u64(page, OFF_LSN))
}

/// Sets the page's LSN.
#[inline]
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) {
    put_u64(page, OFF_LSN, lsn.0);
}

/// The id the page says it has.
pub fn page_id(page: &[u8]) -> PageId {
    PageId::new(SpaceId(get_u32(page, OFF_SPACE)), PageNo(get_u32(page, OFF_PAGE_NO)))
}

/// Zeroes the page and writes its header; the LSN is 0 and the checksum not yet set.
pub fn format(page: &mut [u8], id: PageId, kind: PageKind) {
    page.fill(0);
    put_u32(page, OFF_PAGE_NO, id.page.0);
    put_u32(page, OFF_SPACE, id.space.0);
    page[OFF_KIND] = kind as u8;
}

// Body of a lost page.
//
// | offset | bytes | field |
// |---|---|---|
// | 24 | 2 | length of the reason |
// | 26 | | the reason, UTF-8 |
const OFF_REASON: usize = HEADER_BYTES + 2;
const REASON_BYTES_MAX: usize = 1000;

/// Makes it a lost page: its changes up to `lsn` could not be made, for this reason (cut to 1,000 bytes).
pub fn format_lost(page: &mut [u8], id: PageId, lsn: Lsn, reason: &str) {
    let mut len = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(len) {
        len -= 1;
    }
    format(page, id, PageKind::Lost);
    set_page_lsn(page, lsn);
    put_u16(page, HEADER_BYTES, len as u16);
    page[OFF_REASON..OFF_REASON + len].copy_from_slice(&reason.as_bytes()[..len]);
}

/// Why the page's changes could not be made, if it is a lost page.
pub fn lost_reason(page: &[u8]) -> Option<String> {
    let len = usize::from(get_u16(page, HEADER_BYTES)).min(REASON_BYTES_MAX);
    (page[OFF_KIND] == PageKind::Lost as u8)
        .then(|| String::from_utf8_lossy(&page[OFF_REASON..OFF_REASON + len]).into_owned())
}

/// Whether the page, otherwise whole, is not a lost one.
///
/// # Errors
/// [`Error::CorruptPage`] with the LSN and the reason.
pub fn check_lost(page: &[u8], id: PageId) -> Result<()> {
    let Some(reason) = lost_reason(page) else { return Ok(()) };
    let lsn = page_lsn(page);
    Err(Error::corrupt(id, format!("its changes up to LSN {lsn} are lost: {reason}")))
}

/// Computes and stores the checksum; the last step before a write.
pub fn seal(page: &mut [u8]) {
    let crc = crc32c(&page[OFF_PAGE_NO..]);
    put_u32(page, OFF_CHECKSUM, crc);
}

/// Whether the page is all zero: allocated in the file, never written.
pub fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&b| b == 0)
}

/// Verifies checksum and identity of a page as read from its file.
///
/// # Errors
/// [`Error::CorruptPage`] with the reason.
pub fn verify(page: &[u8], id: PageId) -> Result<()> {
    let stored = get_u32(page, OFF_CHECKSUM);
    let computed = crc32c(&page[OFF_PAGE_NO..]);
    if stored != computed {
        let reason = if is_zero(page) {
            "the page is all zero".to_string()
        } else {
            format!("checksum {stored:#010x} stored, {computed:#010x} computed")
        };
        return Err(Error::corrupt(id, reason));
    }
    let found = page_id(page);
    if found != id {
        return Err(Error::corrupt(id, format!("the page says it is {found}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_found() {
        let id = PageId::new(SpaceId(3), PageNo(9));
        let mut p = vec![0u8; 4096];
        format(&mut p, id, PageKind::Index);
        seal(&mut p);
        verify(&p, id).unwrap();
        for at in [0, 5, 12, 100, 4095] {
            p[at] ^= 4;
            assert!(matches!(verify(&p, id), Err(Error::CorruptPage { .. })));
            p[at] ^= 4;
        }
        assert!(verify(&p, PageId::new(SpaceId(3), PageNo(8))).is_err());
    }

    #[test]
    fn a_lost_page_says_why() {
        let id = PageId::new(SpaceId(3), PageNo(9));
        let mut p = vec![7u8; 4096];
        format(&mut p, id, PageKind::Index);
        check_lost(&p, id).unwrap();
        for reason in ["", "checksum", &"\u{e9}".repeat(700)] {
            format_lost(&mut p, id, Lsn(77), reason);
            seal(&mut p);
            verify(&p, id).unwrap();
            assert_eq!(lost_reason(&p).unwrap(), reason.chars().take(500).collect::<String>());
            let text = check_lost(&p, id).unwrap_err().to_string();
            assert!(text.contains("up to LSN 77"), "{text}");
        }
    }
}
