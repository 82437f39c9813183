//! Changes of a page. Each is a deterministic function of the page and its arguments, and makes the whole change or gives
//! an error having changed nothing.

use super::*;
use myriad_base::codec::{put_u16, put_u32};
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{Error, Result};
use std::ops::Range;

/// Which way insertions into the page have been going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Each just after the one before.
    Ascending,
    /// Each just before the one before.
    Descending,
    /// No pattern.
    Random,
}

/// The pattern that an insertion at `slot` would follow.
pub fn direction(p: &[u8], slot: usize) -> Direction {
    const RUN_MIN: i16 = 3;
    let run = get_u16(p, OFF_RUN) as i16;
    let last = get_u16(p, OFF_LAST) as usize;
    // A page of few large entries has no room for a long run.
    let enough = RUN_MIN.min(count(p) as i16 - 1).max(1);
    if slot == count(p) && is_rightmost(p) || run >= enough && slot == last + 1 {
        Direction::Ascending
    } else if run <= -enough && slot == last {
        Direction::Descending
    } else {
        Direction::Random
    }
}

fn note_insert(p: &mut [u8], slot: usize) {
    let last = get_u16(p, OFF_LAST) as usize;
    let run = get_u16(p, OFF_RUN) as i16;
    let first = count(p) == 0;
    let run = if !first && slot == last + 1 {
        run.max(0).saturating_add(1)
    } else if !first && slot == last {
        run.min(0).saturating_sub(1)
    } else {
        0
    };
    put_u16(p, OFF_RUN, run as u16);
    put_u16(p, OFF_LAST, slot as u16);
}

fn refuse<T>(what: &str) -> Result<T> {
    Err(Error::invalid(what))
}

/// Makes an empty page with these bounds; the common header except level and flags stays.
///
/// # Errors
/// [`Error::Invalid`] when the fences are too long or out of order.
pub fn format(p: &mut [u8], level: u8, left: PageNo, f: Fences<'_>) -> Result<()> {
    let max = myriad_base::limits::key_bytes_max(p.len());
    if f.low.len() > max || f.high.len() > max {
        return refuse("fence beyond the longest key");
    }
    if f.flags & !(LEFTMOST | RIGHTMOST | ROOT) != 0 || !f.high.is_empty() && f.low >= f.high {
        return refuse("fences out of order");
    }
    if f.high.is_empty() && f.flags & RIGHTMOST == 0 {
        return refuse("no high fence on a page that others follow");
    }
    p[OFF_KIND] = PageKind::Index as u8;
    p[OFF_LEVEL] = level;
    p[OFF_FLAGS] = f.flags;
    p[OFF_FLAGS + 1] = 0;
    p[OFF_COUNT..].fill(0);
    put_u16(p, OFF_PREFIX, shared_prefix_len(f.low, f.high) as u16);
    put_u16(p, OFF_LOW, f.low.len() as u16);
    put_u16(p, OFF_HIGH, f.high.len() as u16);
    let end = p.len();
    p[end - f.high.len()..].copy_from_slice(f.high);
    p[end - f.high.len() - f.low.len()..end - f.high.len()].copy_from_slice(f.low);
    let top = heap_end(p);
    put_u32(p, OFF_HEAP_TOP, top as u32);
    put_u32(p, OFF_LEFT, left.0);
    Ok(())
}

/// Writes a value at `at`, its length in front.
fn put_value(p: &mut [u8], at: usize, value: &[u8]) {
    let start = at + value_header(value.len());
    if value.len() <= SHORT_VALUE_MAX {
        p[at] = value.len() as u8;
    } else {
        p[at..start].copy_from_slice(&(0x8000 | value.len() as u16).to_be_bytes());
    }
    p[start..start + value.len()].copy_from_slice(value);
}

/// Makes all free bytes contiguous: entries are packed in slot order. The leaf slot of `replaced` gets a new value on the
/// way, for which the caller has checked the room.
fn compact(p: &mut [u8], replaced: Option<(usize, &[u8])>) {
    let old = p.to_vec();
    let mut top = heap_end(&old);
    for slot in 0..count(&old) {
        let at = entry_offset(&old, slot);
        match replaced {
            Some((changed, value)) if changed == slot => {
                let len = suffix_len(&old, slot);
                top -= entry_bytes(0, len, value.len());
                let key_end = top + rest_len(len);
                p[top..key_end].copy_from_slice(&old[at..at + rest_len(len)]);
                put_value(p, key_end, value);
            }
            _ => {
                let bytes = slot_entry_bytes(&old, slot);
                top -= bytes;
                p[top..top + bytes].copy_from_slice(&old[at..at + bytes]);
            }
        }
        put_u16(p, slot_at(slot), top as u16);
    }
    put_u32(p, OFF_HEAP_TOP, top as u32);
    put_u16(p, OFF_DEAD, 0);
}

/// Puts a new slot at `slot` for an entry of `bytes` bytes, whose place in the heap it returns. The caller has seen that
/// it fits.
fn open_slot(p: &mut [u8], slot: usize, bytes: usize, suffix: &[u8]) -> usize {
    if contiguous(p) < bytes + SLOT_BYTES {
        compact(p, None);
    }
    let n = count(p);
    let at = heap_top(p) - bytes;
    assert!(at >= slot_at(n + 1), "the caller has checked the room");
    p.copy_within(slot_at(slot)..slot_at(n), slot_at(slot + 1));
    put_u16(p, slot_at(slot), at as u16);
    put_u16(p, slot_at(slot) + 2, suffix.len() as u16);
    put_u32(p, slot_at(slot) + 4, head_of(suffix));
    put_u16(p, OFF_COUNT, (n + 1) as u16);
    put_u32(p, OFF_HEAP_TOP, at as u32);
    at
}

/// Inserts a leaf entry at `slot`; `suffix` is the key without the page's prefix.
///
/// # Errors
/// [`Error::Invalid`], the page being unchanged, when it does not fit.
pub fn insert(p: &mut [u8], slot: usize, suffix: &[u8], value: &[u8]) -> Result<()> {
    let bytes = entry_bytes(0, suffix.len(), value.len());
    if level(p) != 0 || slot > count(p) {
        return refuse("insertion beyond the leaf's slots");
    }
    if bytes + SLOT_BYTES > free_bytes(p) || value.len() > VALUE_BYTES_MAX {
        return refuse("the entry does not fit the leaf");
    }
    note_insert(p, slot);
    let at = open_slot(p, slot, bytes, suffix);
    let rest = rest_of(suffix);
    p[at..at + rest.len()].copy_from_slice(rest);
    put_value(p, at + rest.len(), value);
    Ok(())
}

/// Inserts a separator and the child to its right into an inner page.
///
/// # Errors
/// As [`insert`].
pub fn insert_child(p: &mut [u8], slot: usize, suffix: &[u8], child: PageNo) -> Result<()> {
    let bytes = entry_bytes(1, suffix.len(), 4);
    if level(p) == 0 || slot > count(p) {
        return refuse("insertion beyond the inner page's slots");
    }
    if bytes + SLOT_BYTES > free_bytes(p) {
        return refuse("the separator does not fit the inner page");
    }
    note_insert(p, slot);
    let at = open_slot(p, slot, bytes, suffix);
    let rest = rest_of(suffix);
    put_u32(p, at, child.0);
    p[at + 4..at + 4 + rest.len()].copy_from_slice(rest);
    p[at + 4 + rest.len()..at + bytes].fill(0);
    Ok(())
}

/// Removes `n` slots from `slot` on.
///
/// # Errors
/// [`Error::Invalid`] when they are not there.
pub fn remove(p: &mut [u8], slot: usize, n: usize) -> Result<()> {
    let total = count(p);
    if slot + n > total {
        return refuse("removal beyond the page's slots");
    }
    let bytes: usize = (slot..slot + n).map(|s| slot_entry_bytes(p, s)).sum();
    p.copy_within(slot_at(slot + n)..slot_at(total), slot_at(slot));
    put_u16(p, OFF_COUNT, (total - n) as u16);
    if total == n {
        let top = heap_end(p);
        put_u32(p, OFF_HEAP_TOP, top as u32);
        put_u16(p, OFF_DEAD, 0);
    } else {
        let dead = dead(p) + bytes;
        put_u16(p, OFF_DEAD, dead as u16);
    }
    // An insertion where the last one was removed is no pattern.
    put_u16(p, OFF_RUN, 0);
    Ok(())
}

/// Replaces the value of a leaf's slot.
///
/// # Errors
/// [`Error::Invalid`], the page being unchanged, when it does not fit.
pub fn replace(p: &mut [u8], slot: usize, value: &[u8]) -> Result<()> {
    if level(p) != 0 || slot >= count(p) {
        return refuse("replacement beyond the leaf's slots");
    }
    let (suffix_len, old_bytes) = (suffix_len(p, slot), slot_entry_bytes(p, slot));
    let bytes = entry_bytes(0, suffix_len, value.len());
    if bytes <= old_bytes {
        let at = value_at(p, slot);
        put_value(p, at, value);
        let dead = dead(p) + old_bytes - bytes;
        put_u16(p, OFF_DEAD, dead as u16);
        return Ok(());
    }
    if !fits_replace(p, slot, value.len()) {
        return refuse("the value does not fit the leaf");
    }
    if contiguous(p) < bytes {
        compact(p, Some((slot, value)));
        return Ok(());
    }
    let from = entry_offset(p, slot);
    let dead = dead(p) + old_bytes;
    let at = heap_top(p) - bytes;
    p.copy_within(from..from + rest_len(suffix_len), at);
    put_value(p, at + rest_len(suffix_len), value);
    put_u16(p, slot_at(slot), at as u16);
    put_u32(p, OFF_HEAP_TOP, at as u32);
    put_u16(p, OFF_DEAD, dead as u16);
    Ok(())
}

/// Where in the page those `len` bytes are that begin at `at` in the value of a leaf's slot; `None` if the value has none there.
#[inline]
pub fn patched(p: &[u8], slot: usize, at: usize, len: usize) -> Option<Range<usize>> {
    if level(p) != 0 || slot >= count(p) {
        return None;
    }
    let value = value_range(p, slot);
    let within = at <= value.len() && len <= value.len() - at;
    within.then(|| value.start + at..value.start + at + len)
}

/// Overwrites bytes of the value of a leaf's slot.
///
/// # Errors
/// [`Error::Invalid`] when the range is not within the value.
pub fn patch(p: &mut [u8], slot: usize, at: usize, bytes: &[u8]) -> Result<()> {
    let Some(range) = patched(p, slot, at, bytes.len()) else { return refuse("patch beyond the value") };
    p[range].copy_from_slice(bytes);
    Ok(())
}

/// Points the child number `at` (as for [`child`]) elsewhere.
///
/// # Errors
/// [`Error::Invalid`] when there is no such child.
pub fn set_child(p: &mut [u8], at: usize, child: PageNo) -> Result<()> {
    if level(p) == 0 || at > count(p) {
        return refuse("no such child");
    }
    let offset = if at == 0 { OFF_LEFT } else { entry_offset(p, at - 1) };
    put_u32(p, offset, child.0);
    Ok(())
}

/// Fills an empty page with entries of another that has the same prefix: to the same bytes as if each were inserted.
fn copy_entries(p: &mut [u8], from: &[u8], range: Range<usize>) {
    let (n, mut top) = (range.len(), heap_top(p));
    p[SLOTS..slot_at(n)].copy_from_slice(&from[slot_at(range.start)..slot_at(range.end)]);
    for (slot, source) in range.enumerate() {
        let (at, bytes) = (entry_offset(from, source), slot_entry_bytes(from, source));
        top -= bytes;
        p[top..top + bytes].copy_from_slice(&from[at..at + bytes]);
        put_u16(p, slot_at(slot), top as u16);
    }
    put_u16(p, OFF_COUNT, n as u16);
    put_u32(p, OFF_HEAP_TOP, top as u32);
}

/// Gives the page new bounds, keeping the entries `first..end` only, whose keys must lie within. `left` becomes the
/// leftmost child.
///
/// # Errors
/// [`Error::Invalid`], the page being unchanged, when the entries do not fit or do not have the new prefix.
pub fn refence(p: &mut [u8], first: usize, end: usize, left: PageNo, f: Fences<'_>) -> Result<()> {
    if first > end || end > count(p) {
        return refuse("entries beyond the page's slots");
    }
    let old = &*p;
    let level = level(old);
    let mut new = vec![0; old.len()];
    new[..myriad_base::page::HEADER_BYTES].copy_from_slice(&old[..myriad_base::page::HEADER_BYTES]);
    format(&mut new, level, left, f)?;
    let new_prefix = prefix(&new).to_vec();
    if free_bytes(&new) < refenced_bytes(old, first..end, new_prefix.len()) {
        return refuse("the entries do not fit under the new fences");
    }
    if new_prefix == prefix(old) {
        copy_entries(&mut new, old, first..end);
    } else {
        let mut whole = Vec::new();
        for slot in first..end {
            whole.clear();
            key_parts(old, slot).append_to(&mut whole);
            let Some(rest) = whole.strip_prefix(&new_prefix[..]) else {
                return refuse("an entry is not within the new fences");
            };
            if level == 0 {
                insert(&mut new, slot - first, rest, value(old, slot))?;
            } else {
                insert_child(&mut new, slot - first, rest, child(old, slot + 1))?;
            }
        }
    }
    // Only insertions of users make a pattern.
    let at = get_u16(old, OFF_LAST) as usize;
    let kept = at.checked_sub(first).filter(|&s| s < end - first);
    put_u16(&mut new, OFF_LAST, kept.unwrap_or(0) as u16);
    put_u16(&mut new, OFF_RUN, if kept.is_some() { get_u16(old, OFF_RUN) } else { 0 });
    p.copy_from_slice(&new);
    Ok(())
}

/// Bytes that the slots `range` and their entries take on a page whose prefix is `new_prefix` bytes long.
pub fn refenced_bytes(p: &[u8], range: Range<usize>, new_prefix: usize) -> usize {
    let (level, old_prefix) = (level(p), prefix_len(p));
    if new_prefix == old_prefix && range == (0..count(p)) {
        return heap_end(p) - SLOTS - free_bytes(p);
    }
    range
        .map(|slot| {
            let value_len = if level == 0 { value_len(p, slot) } else { 4 };
            let suffix = (old_prefix + suffix_len(p, slot)).saturating_sub(new_prefix);
            entry_bytes(level, suffix, value_len) + SLOT_BYTES
        })
        .sum()
}

/// Bytes that entries and slots can take on an empty page with these fences.
pub fn capacity(page_size: usize, low: &[u8], high: &[u8]) -> usize {
    ((page_size - low.len() - high.len()) & !3) - SLOTS
}

/// Clears what insertions have noted about their pattern.
pub(crate) fn forget_pattern(p: &mut [u8]) {
    put_u16(p, OFF_LAST, 0);
    put_u16(p, OFF_RUN, 0);
}
