//! Log records of pages, the generic operations, and the table of redo functions.
//!
//! The body of a mini-transaction in the log is a sequence of records:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | operation (bits 0 to 6); bit 7: same page as the record before |
//! | varint, varint | tablespace id, page number; absent when bit 7 is set |
//! | varint | payload length |
//! | | payload |
//!
//! Generic operations (0 to 15; numbers not listed are free):
//!
//! | op | name | payload |
//! |---|---|---|
//! | 0 | INIT | kind u8. The page is formatted: all zero behind its header. |
//! | 1 | WRITE | offset varint, the bytes |
//! | 2 | FILL | offset varint, length varint, byte |
//! | 4 | IMAGE | page bytes 12..16, hole start varint, hole end varint, body without the hole |
//! | 5 | CARRIED | LSN varint, then changes: operation u8, payload length varint, payload; again and again. They stand for all records of the page that began at the LSN or later, and before this one. |
//!
//! INIT and IMAGE replace the page: redo of a page whose first record is one of them reads nothing.

use myriad_base::codec::{push_varint, Reader};
use myriad_base::page::{self, PageKind, HEADER_BYTES, OFF_KIND, OFF_LSN};
use myriad_base::{Error, Lsn, PageId, PageNo, Result, SpaceId};

pub(crate) const OP_INIT: u8 = 0;
pub(crate) const OP_WRITE: u8 = 1;
pub(crate) const OP_FILL: u8 = 2;
pub(crate) const OP_IMAGE: u8 = 4;
pub(crate) const OP_CARRIED: u8 = 5;
/// First operation of other rooms.
pub(crate) const OPS_OWN: u8 = 16;
/// Marks a record of the same page as the one before it.
const SAME_PAGE: u8 = 0x80;

/// Repeats a change on a page: `(op, page, payload)`. Total: whatever the input, it makes the whole change or gives an
/// error having changed nothing; it never panics and never reads anything but its arguments. It leaves the page's LSN
/// alone. With the operations of [`RedoTable::check_before`] the page, of whatever kind, has passed its kind's
/// [`CheckFn`]; with all it does so afterwards if it did before.
pub type RedoFn = fn(op: u8, page: &mut [u8], payload: &[u8]) -> Result<()>;

/// Says what is wrong with a page's contents, as read from its file with a good checksum; total like a [`RedoFn`]. What it
/// accepts, the room whose page it is can work on without a panic.
pub type CheckFn = fn(page: &[u8]) -> std::result::Result<(), String>;

/// How many bytes the page can take by changes that need no look at it, such as [`crate::Mtr::commit_buffering`] makes; `None`
/// if it takes none.
pub type RoomFn = fn(page: &[u8]) -> Option<usize>;

/// Page kinds that can have a [`CheckFn`].
const KINDS: usize = 16;

/// Redo functions by operation, and checks by page kind. Operations 0 to 15 are this room's.
#[derive(Clone)]
pub struct RedoTable {
    by_op: [Option<RedoFn>; 128],
    check_before: [bool; 128],
    checks: [Option<CheckFn>; KINDS],
    rooms: [Option<RoomFn>; KINDS],
}

impl RedoTable {
    /// A table with the generic operations.
    pub fn new() -> RedoTable {
        RedoTable { by_op: [None; 128], check_before: [false; 128], checks: [None; KINDS], rooms: [None; KINDS] }
    }

    /// Registers what pages of `kind` are checked with when they are read.
    ///
    /// # Panics
    /// When the kind has a check already.
    pub fn register_check(&mut self, kind: PageKind, check: CheckFn) {
        let slot = &mut self.checks[kind as usize];
        assert!(slot.is_none(), "{kind:?} pages have a check already");
        *slot = Some(check);
    }

    /// Registers what tells the room of pages of `kind`.
    pub fn register_room(&mut self, kind: PageKind, room: RoomFn) {
        self.rooms[kind as usize] = Some(room);
    }

    /// The room of a page of this kind for buffered changes.
    pub(crate) fn room(&self, kind: u8, page: &[u8]) -> Option<usize> {
        (*self.rooms.get(usize::from(kind))?)?(page)
    }

    /// Whether the contents of a page are what its kind's room can work on.
    ///
    /// # Errors
    /// [`Error::CorruptPage`].
    pub(crate) fn check(&self, id: PageId, page: &[u8]) -> Result<()> {
        match self.checks.get(usize::from(page[OFF_KIND])) {
            Some(Some(check)) => check(page).map_err(|reason| Error::corrupt(id, reason)),
            _ => Ok(()),
        }
    }

    /// Registers `redo` for each operation of `ops`, a part of 16..128.
    ///
    /// # Panics
    /// When an operation is out of range or taken: two rooms disagree about the numbers.
    pub fn register(&mut self, ops: std::ops::Range<u8>, redo: RedoFn) {
        assert!(ops.start >= OPS_OWN && ops.end <= 128, "operations {ops:?} outside 16..128");
        for op in ops {
            assert!(self.by_op[op as usize].is_none(), "operation {op} registered twice");
            self.by_op[op as usize] = Some(redo);
        }
    }

    /// The redo functions of `ops` rely on the page's layout.
    pub fn check_before(&mut self, ops: &[u8]) {
        ops.iter().for_each(|&op| self.check_before[op as usize] = true);
    }

    /// Whether there is a redo function for `op`.
    pub(crate) fn knows(&self, op: u8) -> bool {
        matches!(op, OP_INIT | OP_WRITE | OP_FILL | OP_IMAGE | OP_CARRIED)
            || self.by_op.get(op as usize).is_some_and(Option::is_some)
    }

    /// To make changes of one page. `checked`: the page has passed [`RedoTable::check`] as it is.
    pub(crate) fn changes_of<'a>(&'a self, id: PageId, page: &'a mut [u8], checked: bool) -> PageChanges<'a> {
        PageChanges { table: self, id, page, checked }
    }
}

/// Repeats changes of one page, one after the other. Its contents are checked when something else than redo functions may
/// have changed them, not before each record.
pub(crate) struct PageChanges<'a> {
    table: &'a RedoTable,
    id: PageId,
    page: &'a mut [u8],
    checked: bool,
}

impl PageChanges<'_> {
    /// Makes the change of one record.
    ///
    /// # Errors
    /// [`Error::CorruptLog`] (without a position: 0) or [`Error::CorruptPage`]; the page is unchanged then.
    #[inline]
    pub fn redo(&mut self, op: u8, payload: &[u8]) -> Result<()> {
        let (id, page) = (self.id, &mut *self.page);
        if op >= OPS_OWN {
            let Some(Some(redo)) = self.table.by_op.get(op as usize) else {
                return Err(bad_record(format!("unknown operation {op} for {id}")));
            };
            if self.table.check_before[op as usize] && !self.checked {
                self.table.check(id, page)?;
                self.checked = true;
            }
            return redo(op, page, payload);
        }
        let done = match op {
            OP_INIT => redo_init(id, page, payload),
            OP_WRITE => redo_write(page, payload),
            OP_FILL => redo_fill(page, payload),
            OP_IMAGE => redo_image(id, page, payload),
            OP_CARRIED => return self.redo_carried(payload),
            _ => return Err(bad_record(format!("unknown operation {op} for {id}"))),
        };
        self.checked = false;
        done.ok_or_else(|| bad_record(format!("impossible arguments of operation {op} for {id}")))
    }

    /// Makes the changes that the record stands for: all or none.
    fn redo_carried(&mut self, payload: &[u8]) -> Result<()> {
        let before = self.page.to_vec();
        let done = carried(payload).and_then(|(_, bytes)| {
            changes(bytes).try_for_each(|change| match change? {
                (OP_CARRIED, _) => Err(bad_record(format!("carried changes of {} in carried changes", self.id))),
                (op, payload) => self.redo(op, payload),
            })
        });
        if done.is_err() {
            self.page.copy_from_slice(&before);
        }
        done
    }
}

impl Default for RedoTable {
    fn default() -> Self {
        RedoTable::new()
    }
}

/// A record that makes no sense; whoever knows its position fills it in.
pub(crate) fn bad_record(reason: String) -> Error {
    Error::CorruptLog { lsn: Lsn(0), reason }
}

/// Whether the operation replaces the page whatever it held.
pub(crate) fn replaces_page(op: u8) -> bool {
    op == OP_INIT || op == OP_IMAGE
}

/// Appends a change to those of one page.
pub(crate) fn push_change(out: &mut Vec<u8>, op: u8, payload: &[u8]) {
    out.push(op);
    push_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

/// The operations and payloads that [`push_change`] has appended. Ends after the first error.
pub(crate) fn changes(bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8])>> {
    let mut r = Reader::new(bytes);
    std::iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        let change = r.u8().and_then(|op| Some((op, r.bytes()?)));
        if change.is_none() {
            r = Reader::new(&[]);
        }
        Some(change.ok_or_else(|| bad_record("malformed change of a page".into())))
    })
}

/// What a CARRIED record stands for: since when, and the changes, for [`changes`].
pub(crate) fn carried(payload: &[u8]) -> Result<(Lsn, &[u8])> {
    let mut r = Reader::new(payload);
    let since = r.varint().ok_or_else(|| bad_record("carried changes of an unknown age".into()))?;
    Ok((Lsn(since), r.rest()))
}

/// Whether `at..at + len` may be changed by a generic operation: inside the page, and neither checksum nor identity nor
/// LSN.
pub(crate) fn is_writable(page_size: usize, at: usize, len: usize) -> bool {
    let Some(end) = at.checked_add(len) else { return false };
    end <= page_size && (at >= HEADER_BYTES || (at >= OFF_KIND && end <= OFF_LSN))
}

fn varint_usize(r: &mut Reader<'_>) -> Option<usize> {
    usize::try_from(r.varint()?).ok()
}

fn redo_init(id: PageId, page: &mut [u8], payload: &[u8]) -> Option<()> {
    let &[kind] = payload else { return None };
    let kind = page::PageKind::from_u8(kind)?;
    page::format(page, id, kind);
    Some(())
}

fn redo_write(page: &mut [u8], payload: &[u8]) -> Option<()> {
    let mut r = Reader::new(payload);
    let at = varint_usize(&mut r)?;
    let bytes = r.rest();
    if !is_writable(page.len(), at, bytes.len()) {
        return None;
    }
    page[at..at + bytes.len()].copy_from_slice(bytes);
    Some(())
}

fn redo_fill(page: &mut [u8], payload: &[u8]) -> Option<()> {
    let mut r = Reader::new(payload);
    let (at, len, byte) = (varint_usize(&mut r)?, varint_usize(&mut r)?, r.u8()?);
    if !is_writable(page.len(), at, len) || !r.is_empty() {
        return None;
    }
    page[at..at + len].fill(byte);
    Some(())
}

fn redo_image(id: PageId, page: &mut [u8], payload: &[u8]) -> Option<()> {
    let mut r = Reader::new(payload);
    let header = r.take(4)?;
    let kind = page::PageKind::from_u8(header[0])?;
    let (start, end) = (varint_usize(&mut r)?, varint_usize(&mut r)?);
    if start < HEADER_BYTES || start > end || end > page.len() {
        return None;
    }
    let body = r.rest();
    if body.len() != page.len() - HEADER_BYTES - (end - start) {
        return None;
    }
    page::format(page, id, kind);
    page[OFF_KIND..OFF_KIND + 4].copy_from_slice(header);
    let (before, after) = body.split_at(start - HEADER_BYTES);
    page[HEADER_BYTES..start].copy_from_slice(before);
    page[end..].copy_from_slice(after);
    Some(())
}

/// Appends a record's head, payload length included. `previous` is the page of the record before (as an integer).
#[inline]
pub(crate) fn push_record_head(out: &mut Vec<u8>, previous: u64, id: u64, op: u8, payload_len: usize) {
    debug_assert!(op < SAME_PAGE);
    if previous == id {
        out.push(op | SAME_PAGE);
    } else {
        out.push(op);
        push_varint(out, id >> 32);
        push_varint(out, id & 0xffff_ffff);
    }
    push_varint(out, payload_len as u64);
}

/// A decoded record; `payload` is a range of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub id: PageId,
    pub op: u8,
    pub payload: std::ops::Range<usize>,
}

/// Decodes the records of a body. Stops after the first error.
pub(crate) struct Records<'a> {
    body: &'a [u8],
    reader: Reader<'a>,
    page: Option<PageId>,
}

impl<'a> Records<'a> {
    pub fn new(body: &'a [u8]) -> Records<'a> {
        Records { body, reader: Reader::new(body), page: None }
    }

    fn decode(&mut self) -> Option<Record> {
        let r = &mut self.reader;
        let first = r.u8()?;
        let id = if first & SAME_PAGE != 0 {
            self.page?
        } else {
            let space = u32::try_from(r.varint()?).ok()?;
            let page = u32::try_from(r.varint()?).ok()?;
            PageId::new(SpaceId(space), PageNo(page))
        };
        self.page = Some(id);
        let len = varint_usize(r)?;
        let start = self.body.len() - r.rest().len();
        r.take(len)?;
        Some(Record { id, op: first & !SAME_PAGE, payload: start..start + len })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.reader.is_empty() {
            return None;
        }
        let at = self.body.len() - self.reader.rest().len();
        let record = self.decode();
        if record.is_none() {
            self.reader = Reader::new(&[]);
        }
        Some(record.ok_or_else(|| bad_record(format!("malformed record at byte {at} of a mini-transaction"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const ID: PageId = PageId::new(SpaceId(7), PageNo(70_000));

    #[test]
    fn records_round_trip() {
        let other = PageId::new(SpaceId(7), PageNo(3));
        let mut body = Vec::new();
        let mut previous = u64::MAX;
        for (id, op, payload) in [(ID, 1, &b"abc"[..]), (ID, 20, b""), (other, 0, b"x")] {
            push_record_head(&mut body, previous, id.to_u64(), op, payload.len());
            body.extend_from_slice(payload);
            previous = id.to_u64();
        }
        let got: Vec<_> = Records::new(&body).map(Result::unwrap).collect();
        let short: Vec<_> = got.iter().map(|r| (r.id, r.op, &body[r.payload.clone()])).collect();
        assert_eq!(short, [(ID, 1, &b"abc"[..]), (ID, 20, b""), (other, 0, b"x")]);
    }

    #[test]
    fn header_is_out_of_reach() {
        let table = RedoTable::new();
        let mut page = vec![0u8; 4096];
        page::format(&mut page, ID, page::PageKind::Index);
        for (at, len, ok) in
            [(0, 1, false), (11, 2, false), (12, 4, true), (12, 5, false), (16, 8, false), (24, 4072, true)]
        {
            let mut payload = Vec::new();
            push_varint(&mut payload, at);
            push_varint(&mut payload, len);
            payload.push(9);
            let done = table.changes_of(ID, &mut page, false).redo(OP_FILL, &payload);
            assert_eq!(done.is_ok(), ok, "{at}+{len}");
        }
        assert_eq!(page::page_id(&page), ID);
    }

    /// Operations that rely on a page's layout see it checked once, and again after a generic operation.
    #[test]
    fn layouts_are_checked_when_they_may_have_changed() {
        thread_local!(static CHECKS: Cell<usize> = const { Cell::new(0) });
        let mut table = RedoTable::new();
        table.register(20..22, |_, page, _| {
            page[100] = 1;
            Ok(())
        });
        table.check_before(&[20]);
        table.register_check(PageKind::Index, |page| {
            CHECKS.set(CHECKS.get() + 1);
            if page[200] == 0 {
                Ok(())
            } else {
                Err("bad".into())
            }
        });
        let mut page = vec![0u8; 4096];
        page::format(&mut page, ID, PageKind::Index);
        let fill = |byte: u8| [0xc8, 1, 1, byte];
        let mut changes = table.changes_of(ID, &mut page, false);
        changes.redo(21, b"").unwrap();
        assert_eq!(CHECKS.get(), 0);
        (0..3).for_each(|_| changes.redo(20, b"").unwrap());
        assert_eq!(CHECKS.get(), 1);
        changes.redo(OP_FILL, &fill(7)).unwrap();
        changes.redo(21, b"").unwrap();
        assert_eq!(CHECKS.get(), 1);
        assert!(matches!(changes.redo(20, b""), Err(Error::CorruptPage { .. })));
        changes.redo(OP_FILL, &fill(0)).unwrap();
        changes.redo(20, b"").unwrap();
        assert_eq!(CHECKS.get(), 3);
        table.changes_of(ID, &mut page, true).redo(20, b"").unwrap();
        assert_eq!(CHECKS.get(), 3);
    }

    proptest! {
        #[test]
        fn redo_is_total(op in 0u8..128, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let table = RedoTable::new();
            let mut page = vec![0u8; 4096];
            page::format(&mut page, ID, page::PageKind::Index);
            page::set_page_lsn(&mut page, Lsn(5));
            let before = page.clone();
            match table.changes_of(ID, &mut page, false).redo(op, &payload) {
                Ok(()) => prop_assert_eq!(page::page_id(&page), ID),
                // Of carried changes those before the wrong one are made.
                Err(_) => prop_assert!(op == OP_CARRIED || page == before),
            }
        }

        #[test]
        fn decoder_survives_any_bytes(body: Vec<u8>) {
            for record in Records::new(&body).flatten() {
                prop_assert!(record.payload.end <= body.len());
            }
        }
    }
}
