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

/// As [`check_layout`], and heads and order of the keys, and that they lie within the fences.
pub fn check_content(p: &[u8]) -> std::result::Result<(), String> {
    check_layout(p)?;
    let mut ranges: Vec<(usize, usize)> = Vec::with_capacity(count(p));
    let mut last: Vec<u8> = Vec::new();
    for slot in 0..count(p) {
        let at = entry_offset(p, slot);
        ranges.push((at, at + slot_entry_bytes(p, slot)));
        let mut this = Vec::new();
        suffix(p, slot).append_to(&mut this);
        if get_u32(p, slot_at(slot) + 4) != head_of(&this) {
            return Err(format!("head of slot {slot} goes on behind its key's end"));
        }
        if slot > 0 && last >= this {
            return Err(format!("keys of slots {} and {slot} are out of order", slot - 1));
        }
        last = this;
    }
    if count(p) > 0 {
        let (first, last) = (key(p, 0), key(p, count(p) - 1));
        if &first[..] < low_stored(p) {
            return Err("the first key is below the low fence".into());
        }
        if !high_stored(p).is_empty() && &last[..] >= high_stored(p) {
            return Err("the last key is not below the high fence".into());
        }
    }
    ranges.sort_unstable();
    if ranges.windows(2).any(|w| w[0].1 > w[1].0) {
        return Err("entries overlap".into());
    }
    Ok(())
}
