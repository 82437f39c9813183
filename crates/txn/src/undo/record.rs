//! Undo records.
//!
//! On the page a record is framed by its total length (u16) in front and behind, so that rollback walks backwards and
//! purge forwards. Its body begins with its kind:
//!
//! - *log header*: kind, state u8, xid record's page u32 and offset u16 (0 = none), transaction u48;
//! - *xid*: kind, the bytes;
//! - *insert*, *modify*: kind, flags u8, tablespace varint, root varint, length of key varint, key; of a secondary entry
//!   the length of the clustered key that its key ends with (varint);
//! - *modify* goes on with the older version: entry flags u8, transaction u48, roll pointer u48, length of the prefix and
//!   of the suffix that its body shares with the newer version's (varints), and what is between them.

use crate::value::{self, Entry};
use myriad_base::codec::{get_u16, push_bytes, push_varint, put_u16, put_u32, put_u48, Reader};
use myriad_base::{PageNo, RollPtr, SpaceId, TrxId};
use myriad_btree::Tree;

/// Bytes around a body.
pub const FRAME_BYTES: usize = 4;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    LogHeader = 1,
    Insert = 2,
    Modify = 3,
    Xid = 4,
}

/// Flag of a modification: the newer version is delete-marked.
pub const NEW_DELETED: u8 = 1;
/// Flag of a modification: the older version's overflow chain is not the newer one's.
pub const OLD_CHAIN: u8 = 2;
/// Flag of a modification: purge has begun to free that chain.
pub const CHAIN_FREED: u8 = 4;
/// Flag: the length of the row's clustered key follows the key.
pub const ROW_KEY: u8 = 8;

/// Flag of a modification: the older version was seen by everybody and had the newer one's body; nothing else of it is known.
pub const BODY_KEPT: u8 = 16;

/// State of a transaction's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogState {
    Active = 0,
    Prepared = 1,
    /// Committed, or rolled back completely: nothing to do at start.
    Committed = 2,
}

/// Where the state is in a header's body.
pub const LOG_STATE_OFFSET: usize = 1;
/// Bytes of the state with the xid record's place.
pub const LOG_STATE_BYTES: usize = 7;
/// Bytes of a header's body.
pub const LOG_HEADER_BYTES: usize = 14;

/// A log's header.
#[derive(Clone, Copy, Debug)]
pub struct LogHeader {
    pub state: LogState,
    pub xid: RollPtr,
    pub trx: TrxId,
}

/// The body of a new log's header.
pub fn log_header(trx: TrxId) -> [u8; LOG_HEADER_BYTES] {
    let mut b = [0; LOG_HEADER_BYTES];
    b[0] = Kind::LogHeader as u8;
    put_u48(&mut b, 8, trx.0);
    b
}

/// State and place of the xid record, as they are stored.
pub fn log_state(state: LogState, xid: RollPtr) -> [u8; LOG_STATE_BYTES] {
    let mut b = [0; LOG_STATE_BYTES];
    b[0] = state as u8;
    put_u32(&mut b, 1, xid.page().0);
    put_u16(&mut b, 5, xid.offset());
    b
}

/// Decodes a log header's body.
pub fn parse_log_header(body: &[u8]) -> Option<LogHeader> {
    let mut r = Reader::new(body);
    if body.len() != LOG_HEADER_BYTES || r.u8()? != Kind::LogHeader as u8 {
        return None;
    }
    let state = match r.u8()? {
        0 => LogState::Active,
        1 => LogState::Prepared,
        2 => LogState::Committed,
        _ => return None,
    };
    let xid = RollPtr::new(PageNo(r.u32()?), r.u16()?);
    Some(LogHeader { state, xid, trx: TrxId(r.u48()?) })
}

/// Start of the body and the body of the record at `at`, if the frame is whole.
pub fn frame_at(page: &[u8], at: usize, end: usize) -> Option<(usize, &[u8])> {
    if at + FRAME_BYTES >= end || end > page.len() {
        return None;
    }
    let total = usize::from(get_u16(page, at));
    if total <= FRAME_BYTES || at + total > end || usize::from(get_u16(page, at + total - 2)) != total {
        return None;
    }
    Some((at + 2, &page[at + 2..at + total - 2]))
}

/// Offset of the record that ends at `end`.
pub fn start_of_last(page: &[u8], end: usize) -> Option<usize> {
    if end < super::page::BODY + FRAME_BYTES || end > page.len() {
        return None;
    }
    let total = usize::from(get_u16(page, end - 2));
    let start = end.checked_sub(total)?;
    (start >= super::page::BODY && frame_at(page, start, end).is_some()).then_some(start)
}

/// A change of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub kind: Kind,
    pub flags: u8,
    pub tree: Tree,
    pub key: &'a [u8],
    /// Of a secondary entry: length of the clustered key at the key's end; 0 = not known.
    pub row_key_len: usize,
    /// Of a modification.
    pub old: Option<Old<'a>>,
}

impl Change<'_> {
    /// The older version's overflow chain, if the newer one has not got it.
    pub fn replaced_chain(&self) -> Option<value::OverflowRef> {
        let body = self.old.filter(|_| self.flags & OLD_CHAIN != 0)?.own_body()?;
        value::OverflowRef::get(body)
    }
}

/// The older version.
#[derive(Clone, Copy, Debug)]
pub struct Old<'a> {
    pub flags: u8,
    pub trx: TrxId,
    pub roll: RollPtr,
    prefix: usize,
    suffix: usize,
    middle: &'a [u8],
    body_kept: bool,
}

impl<'a> Old<'a> {
    /// The older version of `newer` as an entry, with its body and the length of the row key.
    pub fn entry<'b>(&self, newer: &Entry<'_>, row_key_len: usize, body: &'b [u8]) -> Entry<'b> {
        let row_key_len = u8::try_from(row_key_len).unwrap_or(0);
        let flags = if self.body_kept { newer.flags & value::OVERFLOW } else { self.flags };
        Entry { flags, trx: self.trx, roll: self.roll, row_key_len, body }
    }

    /// The older version's body from the newer one's; `false` if they do not belong together.
    pub fn body_into(&self, newer: &[u8], out: &mut Vec<u8>) -> bool {
        if self.body_kept {
            out.clear();
            out.extend_from_slice(newer);
            return true;
        }
        let Some(shared) = self.prefix.checked_add(self.suffix) else { return false };
        if shared > newer.len() {
            return false;
        }
        out.clear();
        out.extend_from_slice(&newer[..self.prefix]);
        out.extend_from_slice(self.middle);
        out.extend_from_slice(&newer[newer.len() - self.suffix..]);
        true
    }

    /// The body of an older version that shares nothing with the newer one (as those of [`OLD_CHAIN`] do).
    pub fn own_body(&self) -> Option<&'a [u8]> {
        (self.prefix == 0 && self.suffix == 0 && !self.body_kept).then_some(self.middle)
    }
}

/// Decodes an insert or modification.
pub fn parse_change(body: &[u8]) -> Option<Change<'_>> {
    let mut r = Reader::new(body);
    let kind = match r.u8()? {
        2 => Kind::Insert,
        3 => Kind::Modify,
        _ => return None,
    };
    let flags_of_record = r.u8()?;
    let space = SpaceId(u32::try_from(r.varint()?).ok()?);
    let root = PageNo(u32::try_from(r.varint()?).ok()?);
    let key = r.bytes()?;
    let row_key_len = if flags_of_record & ROW_KEY != 0 { usize::try_from(r.varint()?).ok()? } else { 0 };
    let old = if kind == Kind::Modify {
        let (flags, trx, roll) = (r.u8()?, TrxId(r.u48()?), RollPtr(r.u48()?));
        let (prefix, suffix) = (usize::try_from(r.varint()?).ok()?, usize::try_from(r.varint()?).ok()?);
        let body_kept = flags_of_record & BODY_KEPT != 0;
        Some(Old { flags, trx, roll, prefix, suffix, middle: r.rest(), body_kept })
    } else {
        None
    };
    Some(Change { kind, flags: flags_of_record, tree: Tree { space, root }, key, row_key_len, old })
}

/// The entry that a record is about.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub tree: Tree,
    /// Its full key.
    pub key: &'a [u8],
    /// See [`Change::row_key_len`].
    pub row_key_len: usize,
}

fn push_head(out: &mut Vec<u8>, kind: Kind, flags: u8, target: Target<'_>) {
    out.clear();
    let known = target.row_key_len > 0;
    out.extend_from_slice(&[kind as u8, flags | if known { ROW_KEY } else { 0 }]);
    push_varint(out, u64::from(target.tree.space.0));
    push_varint(out, u64::from(target.tree.root.0));
    push_bytes(out, target.key);
    if known {
        push_varint(out, target.row_key_len as u64);
    }
}

/// The body of an insert's record.
pub fn encode_insert(out: &mut Vec<u8>, target: Target<'_>) {
    push_head(out, Kind::Insert, 0, target);
}

/// The body of a modification's record: `old` becomes a version with `new_flags` and `new_body`. Returns how many bytes at
/// both ends of the bodies are not in the record, because they are the same.
pub fn encode_modify(
    out: &mut Vec<u8>,
    target: Target<'_>,
    old: &Entry<'_>,
    new_flags: u8,
    new_body: &[u8],
) -> (usize, usize) {
    let mut flags = 0;
    if new_flags & value::DELETED != 0 {
        flags |= NEW_DELETED;
    }
    let old_chain = old.overflow().map(|o| o.first);
    let same_chain =
        new_flags & value::OVERFLOW != 0 && value::OverflowRef::get(new_body).map(|o| o.first) == old_chain;
    let replaced = old_chain.is_some() && !same_chain;
    let (prefix, suffix) = if replaced { (0, 0) } else { value::common_ends(old.body, new_body) };
    if replaced {
        flags |= OLD_CHAIN;
    }
    push_head(out, Kind::Modify, flags, target);
    let mut b = [0u8; 13];
    b[0] = old.flags;
    put_u48(&mut b, 1, old.trx.0);
    put_u48(&mut b, 7, old.roll.0);
    out.extend_from_slice(&b);
    push_varint(out, prefix as u64);
    push_varint(out, suffix as u64);
    out.extend_from_slice(&old.body[prefix..old.body.len() - suffix]);
    (prefix, suffix)
}

/// The body of the record of a delete mark on a secondary entry that everybody sees, whatever else it is.
pub fn encode_mark(out: &mut Vec<u8>, target: Target<'_>) {
    push_head(out, Kind::Modify, NEW_DELETED | BODY_KEPT, target);
    out.extend_from_slice(&[0; 1 + 6 + 6 + 2]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn modifications_restore_the_older_version(
            key: Vec<u8>, old: Vec<u8>, new: Vec<u8>, deleted: bool, row_key_len in 0usize..300, trx in 0u64..1 << 48, roll in 0u64..1 << 48
        ) {
            let tree = Tree { space: SpaceId(20), root: PageNo(4) };
            let e = Entry { flags: value::VERSIONED, trx: TrxId(trx), roll: RollPtr(roll), row_key_len: 0, body: &old };
            let new_flags = value::VERSIONED | (u8::from(deleted) * value::DELETED);
            let mut rec = Vec::new();
            encode_modify(&mut rec, Target { tree, key: &key, row_key_len }, &e, new_flags, &new);
            let c = parse_change(&rec).unwrap();
            prop_assert_eq!((c.kind, c.tree, c.key, c.row_key_len), (Kind::Modify, tree, &key[..], row_key_len));
            prop_assert_eq!(c.flags & NEW_DELETED != 0, deleted);
            let o = c.old.unwrap();
            prop_assert_eq!((o.flags, o.trx.0, o.roll.0), (e.flags, trx, roll));
            let mut back = Vec::new();
            prop_assert!(o.body_into(&new, &mut back));
            prop_assert_eq!(back, old);
        }

        #[test]
        fn any_bytes_parse_or_not(bytes: Vec<u8>, newer: Vec<u8>) {
            let mut out = Vec::new();
            if let Some(old) = parse_change(&bytes).and_then(|c| c.old) {
                old.body_into(&newer, &mut out);
            }
            let _ = parse_log_header(&bytes);
            for at in 0..bytes.len() {
                let _ = frame_at(&bytes, at, bytes.len());
                let _ = start_of_last(&bytes, at);
            }
        }
    }

    #[test]
    fn a_replaced_chain_is_named_whole() {
        let tree = Tree { space: SpaceId(20), root: PageNo(4) };
        let target = Target { tree, key: b"k", row_key_len: 0 };
        let old = value::OverflowRef { len: 70_000, head_len: 0, first: PageNo(5) }.body(&[]);
        let new = value::OverflowRef { len: 70_000, head_len: 0, first: PageNo(6) }.body(&[]);
        let e = Entry { flags: value::OVERFLOW, trx: TrxId(0), roll: RollPtr::NONE, row_key_len: 0, body: &old };
        let mut rec = Vec::new();
        encode_modify(&mut rec, target, &e, value::VERSIONED | value::OVERFLOW, &new);
        let c = parse_change(&rec).unwrap();
        assert_eq!(c.flags, OLD_CHAIN);
        assert_eq!(c.old.unwrap().own_body(), Some(&old[..]));
        encode_modify(&mut rec, target, &e, value::VERSIONED | value::OVERFLOW | value::DELETED, &old);
        assert_eq!(parse_change(&rec).unwrap().flags, NEW_DELETED);
    }
}
