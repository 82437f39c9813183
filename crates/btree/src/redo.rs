//! Log operations of index, bitmap and overflow pages: how each is written, and the function that repeats it.
//!
//! All are deterministic functions of the page and the payload. `varint` is LEB128, other integers are little endian;
//! a suffix is a key without the page's prefix.
//!
//! | op | payload |
//! |---|---|
//! | [`FORMAT`] | bounds: level u8, flags u8, leftmost child u32, low and high fence with varint length |
//! | [`LOAD`] | bounds as above, then entries as in APPEND: the page's new content |
//! | [`APPEND`] | entries behind the last slot: suffix length varint; leaf: value length varint; inner: child u32; suffix; leaf: value |
//! | [`INSERT`] | slot u16, suffix length varint, suffix, value |
//! | [`REMOVE`] | slot u16, and number of slots u16 unless it is 1 |
//! | [`REPLACE`] | slot u16, value |
//! | [`PATCH`] | slot u16, offset in the value varint, bytes |
//! | [`REFENCE`] | first kept slot u16, end u16, bounds (the level stays) |
//! | [`INSERT_CHILD`] | slot u16, child u32, suffix |
//! | [`SET_CHILD`] | number of the child u16, child u32 |
//! | [`INSERT_KEY`] | key with varint length, value: a leaf entry, in its place; where the key is, its value is replaced |
//! | [`RELEASE`] | nothing: the page is freed |
//! | [`ALLOCATE`], [`FREE`] | bitmap page: word u16, mask u64 of its bits |
//! | [`OVERFLOW_LOAD`] | next page u32, bytes |
//! | [`OVERFLOW_LINK`] | next page u32 |

use crate::page::{self, Fences};
use crate::{alloc, overflow};
use myriad_base::codec::{push_bytes, push_varint, Reader};
use myriad_base::limits::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use myriad_base::page::{PageKind, HEADER_BYTES, OFF_KIND};
use myriad_base::{Error, PageNo, Result};
use myriad_buffer::RedoTable;

/// Makes an empty index page.
pub const FORMAT: u8 = 16;
/// Makes an index page with content.
pub const LOAD: u8 = 17;
/// Adds entries behind the last.
pub const APPEND: u8 = 18;
/// Inserts a leaf entry.
pub const INSERT: u8 = 19;
/// Removes slots.
pub const REMOVE: u8 = 20;
/// Replaces a leaf entry's value.
pub const REPLACE: u8 = 21;
/// Overwrites part of a leaf entry's value.
pub const PATCH: u8 = 22;
/// Gives new bounds and drops entries outside.
pub const REFENCE: u8 = 23;
/// Inserts a separator and its child.
pub const INSERT_CHILD: u8 = 24;
/// Changes a child pointer.
pub const SET_CHILD: u8 = 25;
/// Makes any page a free one.
pub const RELEASE: u8 = 26;
/// Inserts a leaf entry without naming its slot: for pages that are not in memory.
pub const INSERT_KEY: u8 = 27;
/// Operations on the entries of an index page.
pub const ON_ENTRIES: [u8; 9] = [APPEND, INSERT, INSERT_KEY, REMOVE, REPLACE, PATCH, REFENCE, INSERT_CHILD, SET_CHILD];
/// Sets bits of a bitmap page.
pub const ALLOCATE: u8 = 32;
/// Clears bits of a bitmap page.
pub const FREE: u8 = 33;
/// Fills an overflow page.
pub const OVERFLOW_LOAD: u8 = 40;
/// Sets an overflow page's successor.
pub const OVERFLOW_LINK: u8 = 41;

/// Registers this room's redo function.
pub fn register(table: &mut RedoTable) {
    // None that there is not: a log with one that is not known is refused at the start.
    for ops in [FORMAT..INSERT_KEY + 1, ALLOCATE..FREE + 1, OVERFLOW_LOAD..OVERFLOW_LINK + 1] {
        table.register(ops, redo);
    }
    table.check_before(&ON_ENTRIES);
    table.register_check(PageKind::Index, page::check_read);
    table.register_room(PageKind::Index, |p| (page::level(p) == 0).then(|| page::free_bytes(p)));
}

/// Repeats a change on a page: total, see [`myriad_buffer::RedoFn`].
///
/// # Errors
/// [`Error::Invalid`] having changed nothing.
pub fn redo(op: u8, p: &mut [u8], payload: &[u8]) -> Result<()> {
    if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&p.len()) {
        return Err(Error::invalid(format!("a page of {} bytes", p.len())));
    }
    let mut r = Reader::new(payload);
    match op {
        FORMAT => {
            let b = bounds(&mut r)?;
            end(&r)?;
            page::format(p, b.level, b.left, b.fences)
        }
        LOAD => load(p, &mut r),
        RELEASE => {
            end(&r)?;
            release(p);
            Ok(())
        }
        ALLOCATE | FREE => {
            let (word, mask) = (u16_of(&mut r)?, r.u64().ok_or_else(short)?);
            end(&r)?;
            alloc::change_bits(p, word, mask, op == ALLOCATE)
        }
        OVERFLOW_LOAD => {
            let next = page_no(&mut r)?;
            overflow::load(p, next, r.rest())
        }
        OVERFLOW_LINK => {
            let next = page_no(&mut r)?;
            end(&r)?;
            overflow::link(p, next)
        }
        _ if ON_ENTRIES.contains(&op) => {
            if p[OFF_KIND] != PageKind::Index as u8 {
                return Err(Error::invalid(format!("operation {op} of an index page on one of kind {}", p[OFF_KIND])));
            }
            redo_on_index(op, p, &mut r)
        }
        _ => Err(Error::invalid(format!("operation {op} is unknown"))),
    }
}

/// Operations on an index page.
fn redo_on_index(op: u8, p: &mut [u8], r: &mut Reader<'_>) -> Result<()> {
    if op == APPEND {
        return append(p, r.rest());
    }
    if op == INSERT_KEY {
        let key = bytes_of(r)?;
        return insert_key(p, key, r.rest());
    }
    let slot = u16_of(r)?;
    match op {
        INSERT => {
            let suffix = bytes_of(r)?;
            page::insert(p, slot, suffix, r.rest())
        }
        REMOVE => {
            let n = if r.is_empty() { 1 } else { u16_of(r)? };
            end(r)?;
            page::remove(p, slot, n)
        }
        REPLACE => page::replace(p, slot, r.rest()),
        PATCH => {
            let at = usize::try_from(r.varint().ok_or_else(short)?).map_err(|_| short())?;
            page::patch(p, slot, at, r.rest())
        }
        REFENCE => {
            let last = u16_of(r)?;
            let b = bounds(r)?;
            end(r)?;
            if b.level != page::level(p) {
                return Err(Error::invalid("new fences for a page of another level"));
            }
            page::refence(p, slot, last, b.left, b.fences)
        }
        INSERT_CHILD => {
            let child = page_no(r)?;
            page::insert_child(p, slot, r.rest(), child)
        }
        _ => {
            let child = page_no(r)?;
            end(r)?;
            page::set_child(p, slot, child)
        }
    }
}

fn insert_key(p: &mut [u8], key: &[u8], value: &[u8]) -> Result<()> {
    if page::level(p) != 0 || !page::covers(p, key) || !key.starts_with(page::prefix(p)) {
        return Err(Error::invalid("the key does not belong to the page"));
    }
    match page::find(p, key) {
        Ok(slot) if page::fits_replace(p, slot, value.len()) => page::replace(p, slot, value),
        Err(slot) if page::fits_leaf(p, key.len(), value.len()) => {
            let suffix = &key[page::prefix_len(p)..];
            page::insert(p, slot, suffix, value)
        }
        _ => Err(Error::invalid("the entry does not fit the page")),
    }
}

/// The payload of [`INSERT_KEY`].
pub fn insert_key_payload(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.clear();
    push_bytes(out, key);
    out.extend_from_slice(value);
}

/// Everything a page has beside its entries.
pub(crate) struct Bounds<'a> {
    pub level: u8,
    pub left: PageNo,
    pub fences: Fences<'a>,
}

fn short() -> Error {
    Error::invalid("log record ends early")
}

fn end(r: &Reader<'_>) -> Result<()> {
    if r.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid("log record is too long"))
    }
}

fn u16_of(r: &mut Reader<'_>) -> Result<usize> {
    r.u16().map(usize::from).ok_or_else(short)
}

fn page_no(r: &mut Reader<'_>) -> Result<PageNo> {
    r.u32().map(PageNo).ok_or_else(short)
}

fn bytes_of<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    r.bytes().ok_or_else(short)
}

fn bounds<'a>(r: &mut Reader<'a>) -> Result<Bounds<'a>> {
    let level = r.u8().ok_or_else(short)?;
    let flags = r.u8().ok_or_else(short)?;
    let left = page_no(r)?;
    let (low, high) = (bytes_of(r)?, bytes_of(r)?);
    Ok(Bounds { level, left, fences: Fences { low, high, flags } })
}

/// The payload of [`FORMAT`], and the beginning of that of [`LOAD`].
pub(crate) fn push_bounds(out: &mut Vec<u8>, b: &Bounds<'_>) {
    out.push(b.level);
    out.push(b.fences.flags);
    out.extend_from_slice(&b.left.0.to_le_bytes());
    push_bytes(out, b.fences.low);
    push_bytes(out, b.fences.high);
}

/// The payload of [`LOAD`] for a page with everything that `p` has, but for the flags.
pub(crate) fn copy_payload(p: &[u8], flags: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(p.len());
    let fences = Fences { flags, ..page::fences(p) };
    push_bounds(&mut out, &Bounds { level: page::level(p), left: page::left_child(p), fences });
    push_slots(&mut out, p, 0..page::count(p), page::prefix_len(p));
    out
}

/// The payload of [`REFENCE`].
pub(crate) fn refence_payload(first: usize, end: usize, b: &Bounds<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + b.fences.low.len() + b.fences.high.len());
    out.extend_from_slice(&(first as u16).to_le_bytes());
    out.extend_from_slice(&(end as u16).to_le_bytes());
    push_bounds(&mut out, b);
    out
}

/// A leaf entry for [`LOAD`] and [`APPEND`].
pub(crate) fn push_leaf_entry(out: &mut Vec<u8>, suffix: &[u8], value: &[u8]) {
    push_varint(out, suffix.len() as u64);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(suffix);
    out.extend_from_slice(value);
}

/// An inner entry for [`LOAD`] and [`APPEND`].
pub(crate) fn push_inner_entry(out: &mut Vec<u8>, suffix: &[u8], child: PageNo) {
    push_varint(out, suffix.len() as u64);
    out.extend_from_slice(&child.0.to_le_bytes());
    out.extend_from_slice(suffix);
}

/// Appends slots `range` of page `from` as entries for a page that shares `new_prefix` bytes.
pub(crate) fn push_slots(out: &mut Vec<u8>, from: &[u8], range: std::ops::Range<usize>, new_prefix: usize) {
    let mut key = Vec::new();
    for slot in range {
        key.clear();
        page::key_parts(from, slot).append_to(&mut key);
        let suffix = &key[new_prefix..];
        if page::level(from) == 0 {
            push_leaf_entry(out, suffix, page::value(from, slot));
        } else {
            push_inner_entry(out, suffix, page::child(from, slot + 1));
        }
    }
}

fn load(p: &mut [u8], r: &mut Reader<'_>) -> Result<()> {
    let b = bounds(r)?;
    let mut new = vec![0; p.len()];
    new[..HEADER_BYTES].copy_from_slice(&p[..HEADER_BYTES]);
    page::format(&mut new, b.level, b.left, b.fences)?;
    append(&mut new, r.rest())?;
    page::forget_pattern(&mut new);
    p.copy_from_slice(&new);
    Ok(())
}

/// One entry of [`APPEND`].
enum Entry<'a> {
    Leaf(&'a [u8], &'a [u8]),
    Inner(&'a [u8], PageNo),
}

fn entry<'a>(level: u8, r: &mut Reader<'a>) -> Option<Entry<'a>> {
    let suffix_len = usize::try_from(r.varint()?).ok()?;
    if level == 0 {
        let value_len = usize::try_from(r.varint()?).ok()?;
        Some(Entry::Leaf(r.take(suffix_len)?, r.take(value_len)?))
    } else {
        let child = PageNo(r.u32()?);
        Some(Entry::Inner(r.take(suffix_len)?, child))
    }
}

fn append(p: &mut [u8], entries: &[u8]) -> Result<()> {
    let level = page::level(p);
    let mut r = Reader::new(entries);
    let (mut bytes, mut too_long) = (0, false);
    while !r.is_empty() {
        let (suffix, value) = match entry(level, &mut r).ok_or_else(short)? {
            Entry::Leaf(suffix, value) => (suffix.len(), value.len()),
            Entry::Inner(suffix, _) => (suffix.len(), 4),
        };
        bytes += page::entry_bytes(level, suffix, value) + page::SLOT_BYTES;
        too_long |= value > page::VALUE_BYTES_MAX;
    }
    if bytes > page::free_bytes(p) || too_long {
        return Err(Error::invalid("the entries do not fit the page"));
    }
    let mut r = Reader::new(entries);
    while !r.is_empty() {
        let slot = page::count(p);
        match entry(level, &mut r).ok_or_else(short)? {
            Entry::Leaf(suffix, value) => page::insert(p, slot, suffix, value)?,
            Entry::Inner(suffix, child) => page::insert_child(p, slot, suffix, child)?,
        }
    }
    Ok(())
}

fn release(p: &mut [u8]) {
    p[OFF_KIND] = PageKind::Free as u8;
    p[OFF_KIND + 1..OFF_KIND + 4].fill(0);
    p[HEADER_BYTES..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_an_operation_are_free() {
        let mut table = RedoTable::new();
        register(&mut table);
        for free in [28..32, 34..40, 42..64] {
            table.register(free, redo);
        }
    }
}
