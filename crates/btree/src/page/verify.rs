//! Whether a page is what it should be.

use super::*;
use myriad_base::page::{PageKind, OFF_KIND};

/// Whether everything the other functions rely on holds: offsets and lengths within the page, sums that agree. Does not
/// look at order.
pub fn check_layout(p: &[u8]) -> std::result::Result<(), String> {
    if p[OFF_KIND] != PageKind::Index as u8 {
        return Err(format!("page kind {} is not an index page", p[OFF_KIND]));
    }
    let fence_bytes = low_len(p) + high_len(p);
    if fence_bytes > p.len() - SLOTS {
        return Err(format!("fences of {fence_bytes} bytes"));
    }
    if high_len(p) == 0 && !is_rightmost(p) {
        return Err("no high fence on a page that others follow".into());
    }
    let fence_max = myriad_base::limits::key_bytes_max(p.len());
    if low_len(p).max(high_len(p)) > fence_max || high_len(p) > 0 && low_stored(p) >= high_stored(p) {
        return Err(format!("fences of {} and {} bytes, too long or out of order", low_len(p), high_len(p)));
    }
    if p[OFF_FLAGS] & !(LEFTMOST | RIGHTMOST | ROOT) != 0 {
        return Err(format!("flags {:#x}", p[OFF_FLAGS]));
    }
    if prefix_len(p) != shared_prefix_len(low_stored(p), high_stored(p)) {
        return Err(format!("prefix of {} bytes does not follow from the fences", prefix_len(p)));
    }
    let (n, top, end) = (count(p), heap_top(p), heap_end(p));
    if slot_at(n) > top || top > end {
        return Err(format!("{n} slots and a heap from {top} to {end}"));
    }
    let header = entry_header(level(p));
    let mut sum = 0;
    for slot in 0..n {
        let at = entry_offset(p, slot);
        let key_end = at + header + rest_len(suffix_len(p, slot));
        if at < top || key_end > end || level(p) != 0 && at & 3 != 0 {
            return Err(format!("slot {slot} points to {at}"));
        }
        if level(p) == 0 {
            check_value_length(&p[key_end..end]).map_err(|what| format!("the value's length of slot {slot} {what}"))?;
        }
        let bytes = slot_entry_bytes(p, slot);
        if at + bytes > end {
            return Err(format!("the entry of slot {slot} at {at} ends beyond the heap"));
        }
        sum += bytes;
    }
    if sum + dead(p) != end - top {
        return Err(format!("{sum} live and {} dead bytes in a heap of {}", dead(p), end - top));
    }
    Ok(())
}

/// As [`check_layout`], and that every key of a leaf has room for the index id in front, as whoever reads rows expects. For
/// pages that were read.
pub fn check_read(p: &[u8]) -> std::result::Result<(), String> {
    check_layout(p)?;
    let suffix_min = INDEX_ID_BYTES.saturating_sub(prefix_len(p));
    if level(p) == 0 && suffix_min > 0 {
        if let Some(slot) = (0..count(p)).find(|&slot| suffix_len(p, slot) < suffix_min) {
            return Err(format!("the key of slot {slot} is shorter than an index id"));
        }
    }
    Ok(())
}

/// Whether a value's length is wholly there, and as short as can be.
#[inline]
fn check_value_length(heap: &[u8]) -> std::result::Result<(), &'static str> {
    match *heap {
        [] => Err("is beyond the heap"),
        [0..=0x7f, ..] => Ok(()),
        [_] => Err("ends beyond the heap"),
        [..] if value_start(heap, 0).0 <= SHORT_VALUE_MAX => Err("takes two bytes without need"),
        [..] => Ok(()),
    }
}

/// Whether the keys of a page of sound layout are in order and within its fences: what changes that move entries between
/// pages rely on.
pub fn check_order(p: &[u8]) -> std::result::Result<(), String> {
    let n = count(p);
    let mut before: Option<Suffix<'_>> = None;
    for slot in 0..n {
        let this = suffix(p, slot);
        if !this.is_zero_padded() {
            return Err(format!("head of slot {slot} goes on behind its key's end"));
        }
        if before.is_some_and(|b| b.cmp_suffix(&this).is_ge()) {
            return Err(format!("keys of slots {} and {slot} are out of order", slot - 1));
        }
        before = Some(this);
    }
    if n > 0 && cmp_key(p, 0, low_stored(p)).is_lt() {
        return Err("the first key is below the low fence".into());
    }
    if n > 0 && high_len(p) > 0 && cmp_key(p, n - 1, high_stored(p)).is_ge() {
        return Err("the last key is not below the high fence".into());
    }
    Ok(())
}

/// As [`check_layout`] and [`check_order`], and that no entries overlap.
pub fn check_content(p: &[u8]) -> std::result::Result<(), String> {
    check_layout(p)?;
    check_order(p)?;
    let range = |slot| (entry_offset(p, slot), entry_offset(p, slot) + slot_entry_bytes(p, slot));
    let mut ranges: Vec<(usize, usize)> = (0..count(p)).map(range).collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|w| w[0].1 > w[1].0) {
        return Err("entries overlap".into());
    }
    Ok(())
}
