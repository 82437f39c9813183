//! Undo pages and their redo functions.
//!
//! A page belongs to one slot's chain:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | next page of the chain (or of the free list), `PageNo::NONE` at the tail |
//! | 28 | 4 | previous page |
//! | 32 | 4 | slot number |
//! | 36 | 4 | end: offset of the first free byte |
//! | 40 | 4 | page of the header of the last log that has bytes here or before |
//! | 44 | 2 | that header's offset; 0 = none yet |
//! | 46 | 6 | that log's transaction id |
//! | 52 | 4 | 1 + changes that the last log has on the pages before; 0 = not noted |
//! | 56 | | records |
//!
//! The directory's first page (page 1) holds the totals, pages 1 to [`DIRECTORY_PAGES`] the slots:
//!
//! | offset | bytes | field (page 1) |
//! |---|---|---|
//! | 24 | 8 | magic |
//! | 32 | 8 | transaction ids below this one may have been given out |
//! | 40 | 4 | first page never used |
//! | 44 | 4 | head of the free list |
//! | 48 | 4 | free pages, in that list or not |
//! | 52 | 4 | number of slots |
//! | 56 | 8 | log position where the generation began in which the engine last ran |
//! | 64 | 8 each | slots: head page (u32), tail page (u32) |

use super::record::{self, Kind, FRAME_BYTES};
use myriad_base::codec::{get_u16, get_u32, get_u48, put_u16, put_u32, put_u48, Reader};
use myriad_base::page::HEADER_BYTES;
use myriad_base::{Error, PageId, PageNo, Result, RollPtr, SpaceId, TrxId};
use myriad_buffer::RedoTable;

pub const OFF_NEXT: usize = HEADER_BYTES;
pub const OFF_PREV: usize = 28;
const OFF_SLOT: usize = 32;
pub const OFF_END: usize = 36;
const OFF_LOG_PAGE: usize = 40;
const OFF_LOG_OFFSET: usize = 44;
const OFF_LOG_TRX: usize = 46;
pub const OFF_CHANGES_BEFORE: usize = 52;
/// Where records begin.
pub const BODY: usize = 56;

pub const MAGIC: [u8; 8] = *b"MYRUNDO1";
pub const DIR_MAGIC: usize = 24;
pub const DIR_TRX_LIMIT: usize = 32;
pub const DIR_HIGH_WATER: usize = 40;
pub const DIR_FREE_HEAD: usize = 44;
pub const DIR_FREE_COUNT: usize = 48;
pub const DIR_SLOT_COUNT: usize = 52;
pub const DIR_RUN: usize = 56;
const DIR_SLOTS: usize = 64;
const SLOT_BYTES: usize = 8;
/// The directory's entry of a slot without pages: [`PageNo::NONE`] twice.
pub const EMPTY_SLOT: [u8; SLOT_BYTES] = [0xFF; SLOT_BYTES];
/// Pages of the directory, from page 1.
pub const DIRECTORY_PAGES: u32 = 8;
/// The first page behind the directory.
pub const FIRST: u32 = 1 + DIRECTORY_PAGES;
/// The directory's first page.
pub const DIRECTORY: PageId = PageId::new(SpaceId::UNDO, PageNo(1));

const _: () = assert!(
    HEADER_BYTES == 24
        && BODY == OFF_CHANGES_BEFORE + 4
        && OFF_CHANGES_BEFORE == OFF_LOG_TRX + 6
        && DIR_SLOTS == DIR_RUN + 8
        && DIR_RUN == DIR_SLOT_COUNT + 4
);

/// Formats an undo page: slot u32, previous page u32, last log's page u32, offset u16, transaction u48.
pub const OP_FORMAT: u8 = 64;
/// Appends a record (the payload, framed here).
pub const OP_APPEND: u8 = 65;
/// Appends a log header (the payload) and makes it the page's last log.
pub const OP_BEGIN: u8 = 66;
/// Sets the end: u32.
pub const OP_TRUNCATE: u8 = 67;
/// Sets the state of the log whose header is at u16: u8, then page u32 and offset u16 of its xid record (0 = none).
pub const OP_STATE: u8 = 68;
/// Notes that the old overflow chain of the record at u16 has been given to the free space.
pub const OP_CHAIN_FREED: u8 = 69;

/// Slots of one directory page.
pub const fn slots_per_page(page_size: usize) -> usize {
    (page_size - DIR_SLOTS) / SLOT_BYTES
}

/// The directory page of a slot, and the offset there.
pub fn slot_position(page_size: usize, slot: u32) -> (PageId, usize) {
    let per = slots_per_page(page_size);
    let page = 1 + slot as usize / per;
    (PageId::new(SpaceId::UNDO, PageNo(page as u32)), DIR_SLOTS + slot as usize % per * SLOT_BYTES)
}

/// An undo page's id.
pub const fn undo_page(no: PageNo) -> PageId {
    PageId::new(SpaceId::UNDO, no)
}

pub fn next(page: &[u8]) -> PageNo {
    PageNo(get_u32(page, OFF_NEXT))
}

pub fn prev(page: &[u8]) -> PageNo {
    PageNo(get_u32(page, OFF_PREV))
}

pub fn slot(page: &[u8]) -> u32 {
    get_u32(page, OFF_SLOT)
}

/// The end, checked against the page.
pub fn end(page: &[u8]) -> Result<usize> {
    let end = get_u32(page, OFF_END) as usize;
    if end < BODY || end > page.len() {
        return Err(Error::corrupt(myriad_base::page::page_id(page), format!("undo page ends at {end}")));
    }
    Ok(end)
}

/// The last log's header and transaction; `None` if the slot never had one.
pub fn last_log(page: &[u8]) -> Option<(RollPtr, TrxId)> {
    let offset = get_u16(page, OFF_LOG_OFFSET);
    let ptr = RollPtr::new(PageNo(get_u32(page, OFF_LOG_PAGE)), offset);
    (offset != 0).then(|| (ptr, TrxId(get_u48(page, OFF_LOG_TRX))))
}

/// What is noted at [`OFF_CHANGES_BEFORE`] of a page that comes after `changes` changes of its log.
pub fn changes_before_noted(changes: u64) -> u32 {
    u32::try_from(changes).ok().and_then(|n| n.checked_add(1)).unwrap_or(0)
}

/// Changes that the last log has on the pages before; `None` if an earlier version wrote this page, or they are more than
/// the field holds.
pub fn changes_before(page: &[u8]) -> Option<u64> {
    get_u32(page, OFF_CHANGES_BEFORE).checked_sub(1).map(u64::from)
}

/// The payload of [`OP_FORMAT`].
pub fn format_payload(slot: u32, prev: PageNo, last: Option<(RollPtr, TrxId)>) -> [u8; 20] {
    let mut b = [0; 20];
    put_u32(&mut b, 0, slot);
    put_u32(&mut b, 4, prev.0);
    if let Some((ptr, trx)) = last {
        put_u32(&mut b, 8, ptr.page().0);
        put_u16(&mut b, 12, ptr.offset());
        put_u48(&mut b, 14, trx.0);
    }
    b
}

/// Whether a record with this body length fits behind `end`. Offsets must stay below 64 KiB.
pub fn fits(page_size: usize, end: usize, body: usize) -> bool {
    end + body + FRAME_BYTES <= page_size && end <= usize::from(u16::MAX)
}

/// Registers the redo functions.
pub fn register(table: &mut RedoTable) {
    // None that there is not: a log with one that is not known is refused at the start.
    table.register(OP_FORMAT..OP_CHAIN_FREED + 1, redo);
}

fn bad(what: &str) -> Error {
    Error::invalid(format!("undo log record: {what}"))
}

/// Repeats a change on an undo page.
pub fn redo(op: u8, page: &mut [u8], payload: &[u8]) -> Result<()> {
    let mut r = Reader::new(payload);
    match op {
        OP_FORMAT => {
            if payload.len() != 20 || page.len() < BODY {
                return Err(bad("format"));
            }
            page[HEADER_BYTES..].fill(0);
            put_u32(page, OFF_NEXT, PageNo::NONE.0);
            page[OFF_PREV..OFF_PREV + 4].copy_from_slice(&payload[4..8]);
            page[OFF_SLOT..OFF_SLOT + 4].copy_from_slice(&payload[..4]);
            put_u32(page, OFF_END, BODY as u32);
            page[OFF_LOG_PAGE..OFF_LOG_PAGE + 12].copy_from_slice(&payload[8..20]);
            Ok(())
        }
        OP_APPEND => append(page, payload),
        OP_BEGIN => {
            let trx = record::parse_log_header(payload).ok_or_else(|| bad("header"))?.trx;
            let at = end(page)?;
            append(page, payload)?;
            let no = myriad_base::page::page_id(page).page;
            put_u32(page, OFF_LOG_PAGE, no.0);
            put_u16(page, OFF_LOG_OFFSET, at as u16);
            put_u48(page, OFF_LOG_TRX, trx.0);
            Ok(())
        }
        OP_TRUNCATE => {
            let to = r.u32().ok_or_else(|| bad("truncate"))? as usize;
            if to < BODY || to > end(page)? {
                return Err(bad("truncate to outside the page"));
            }
            put_u32(page, OFF_END, to as u32);
            Ok(())
        }
        OP_STATE => {
            let at = r.u16().ok_or_else(|| bad("state"))?;
            let rest = r.rest();
            if rest.len() != record::LOG_STATE_BYTES {
                return Err(bad("state"));
            }
            let (start, body) = record::frame_at(page, usize::from(at), end(page)?).ok_or_else(|| bad("state"))?;
            record::parse_log_header(body).ok_or_else(|| bad("state of no header"))?;
            let at = start + record::LOG_STATE_OFFSET;
            page[at..at + rest.len()].copy_from_slice(rest);
            Ok(())
        }
        OP_CHAIN_FREED => {
            let at = r.u16().ok_or_else(|| bad("chain"))?;
            let (start, body) = record::frame_at(page, usize::from(at), end(page)?).ok_or_else(|| bad("chain"))?;
            if body.first() != Some(&(Kind::Modify as u8)) || body.len() < 2 {
                return Err(bad("chain of no modification"));
            }
            page[start + 1] |= record::CHAIN_FREED;
            Ok(())
        }
        _ => Err(bad("unknown operation")),
    }
}

/// What [`OP_APPEND`] does.
pub fn append(page: &mut [u8], body: &[u8]) -> Result<()> {
    let at = place_for(page, body)?;
    append_at(page, at, body);
    Ok(())
}

/// Where a record with this body goes: the page's end, if it fits there.
pub fn place_for(page: &[u8], body: &[u8]) -> Result<usize> {
    let at = end(page)?;
    if body.is_empty() || !fits(page.len(), at, body.len()) {
        return Err(bad("no room"));
    }
    Ok(at)
}

/// [`append`] at the record's place, see [`place_for`].
pub fn append_at(page: &mut [u8], at: usize, body: &[u8]) {
    let total = body.len() + FRAME_BYTES;
    put_u16(page, at, total as u16);
    page[at + 2..at + 2 + body.len()].copy_from_slice(body);
    put_u16(page, at + total - 2, total as u16);
    put_u32(page, OFF_END, (at + total) as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::page::{format, PageKind};
    use proptest::prelude::*;

    fn page() -> Vec<u8> {
        let mut p = vec![0; 4096];
        format(&mut p, undo_page(PageNo(20)), PageKind::Undo);
        redo(OP_FORMAT, &mut p, &format_payload(3, PageNo(19), None)).unwrap();
        p
    }

    #[test]
    fn records_can_be_walked_both_ways_and_cut_off() {
        let mut p = page();
        let header = record::log_header(TrxId(77));
        redo(OP_BEGIN, &mut p, &header).unwrap();
        assert_eq!(last_log(&p), Some((RollPtr::new(PageNo(20), BODY as u16), TrxId(77))));
        let mut starts = vec![];
        for i in 1..=5u8 {
            starts.push(end(&p).unwrap());
            redo(OP_APPEND, &mut p, &vec![i; usize::from(i) * 9]).unwrap();
        }
        let mut at = end(&p).unwrap();
        while let Some(start) = starts.pop() {
            assert_eq!(record::start_of_last(&p, at), Some(start));
            redo(OP_TRUNCATE, &mut p, &(start as u32).to_le_bytes()).unwrap();
            at = start;
        }
        let mut state = vec![BODY as u8, 0];
        state.extend_from_slice(&record::log_state(record::LogState::Committed, RollPtr::NONE));
        redo(OP_STATE, &mut p, &state).unwrap();
        let (_, body) = record::frame_at(&p, BODY, end(&p).unwrap()).unwrap();
        let h = record::parse_log_header(body).unwrap();
        assert_eq!((h.trx, h.state), (TrxId(77), record::LogState::Committed));
    }

    proptest! {
        #[test]
        fn redo_is_total(op in 60u8..100, payload: Vec<u8>, junk in proptest::collection::vec(any::<u8>(), 64)) {
            let mut p = page();
            let _ = redo(op, &mut p, &payload);
            p[24..88].copy_from_slice(&junk);
            let _ = redo(op, &mut p, &payload);
        }
    }
}
