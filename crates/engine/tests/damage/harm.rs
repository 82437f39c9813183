//! The damage.

use crate::directory::{Directory, PAGE};
use myriad_base::codec::{get_u16, get_u32, put_u16, put_u32};
use myriad_base::page::{seal, PageKind, OFF_KIND};
use myriad_base::random::Random;
use std::path::PathBuf;

/// Offsets from `docs/format.md`.
const SLOTS: usize = 48;

struct Page {
    path: PathBuf,
    no: u32,
    bytes: Vec<u8>,
}

/// Damages a page of the directory, and says how.
pub fn damage(directory: &Directory, seed: u64) -> String {
    let mut random = Random::from_seed(seed ^ 0x9e37_79b9);
    let mut pages = Vec::new();
    for path in directory.files() {
        let bytes = directory.read(&path);
        let all = bytes.chunks_exact(PAGE).map(<[u8]>::to_vec);
        pages.extend((0..).zip(all).map(|(no, bytes)| Page { path: path.clone(), no, bytes }));
    }
    pages.retain(|p| p.bytes[..24].iter().any(|&b| b != 0));
    // Of every kind as often, of index pages three times: leaves, inner pages, roots of the catalog's and the pack trees.
    let wanted = random.below(9);
    let is_wanted = |p: &Page| match wanted {
        0 => p.bytes[OFF_KIND] == PageKind::Bitmap as u8,
        1 => p.bytes[OFF_KIND] == PageKind::Overflow as u8,
        2 | 3 => p.bytes[OFF_KIND] == PageKind::Undo as u8,
        4 => p.bytes[OFF_KIND] == PageKind::UndoDirectory as u8 && p.no == 1,
        5 => p.bytes[OFF_KIND] == PageKind::Index as u8 && p.bytes[13] == 0,
        6 => p.bytes[OFF_KIND] == PageKind::Index as u8 && p.bytes[13] > 0,
        7 => p.bytes[OFF_KIND] == PageKind::Index as u8 && p.path.ends_with("system.myr"),
        _ => p.no > 0,
    };
    let chosen: Vec<usize> = (0..pages.len()).filter(|&i| is_wanted(&pages[i])).collect();
    let at = chosen[random.below(chosen.len() as u64) as usize];
    let others: Vec<u32> = pages.iter().filter(|p| p.path == pages[at].path).map(|p| p.no).collect();
    let page = &mut pages[at];
    let before = page.bytes.clone();
    for _ in 0..if random.one_in(3) { 1 + random.below(3) } else { 1 } {
        harm(&mut random, &mut page.bytes, &others);
    }
    page.bytes[4..12].copy_from_slice(&before[4..12]);
    page.bytes[16..24].copy_from_slice(&before[16..24]);
    seal(&mut page.bytes);
    let changed: Vec<usize> = (12..PAGE).filter(|&i| page.bytes[i] != before[i]).collect();
    let shown: Vec<_> = changed.iter().take(8).map(|&i| (i, before[i], page.bytes[i])).collect();
    directory.io.scribble(&page.path, u64::from(page.no) * PAGE as u64, &page.bytes).expect("damage");
    format!("{} page {} kind {} changed {} {shown:?}", page.path.display(), page.no, before[OFF_KIND], changed.len())
}

fn number(random: &mut Random, old: u32, others: &[u32]) -> u32 {
    match random.below(8) {
        0..=3 => others[random.below(others.len() as u64) as usize],
        4 => old.wrapping_add(1),
        5 => old.wrapping_sub(1),
        6 => [0, 1, u32::MAX, u32::MAX - 1, 1 << 31][random.below(5) as usize],
        _ => random.next_u64() as u32,
    }
}

fn short(random: &mut Random, old: u16) -> u16 {
    match random.below(6) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => [0, 1, u16::MAX, 4095, 4096][random.below(5) as usize],
        3 => old ^ 1 << random.below(16),
        4 => random.below(64) as u16,
        _ => random.next_u64() as u16,
    }
}

fn harm(random: &mut Random, p: &mut [u8], others: &[u32]) {
    let any = |random: &mut Random| 24 + random.below(PAGE as u64 - 24) as usize;
    let kind = p[OFF_KIND];
    // What the page's kind makes of its bytes is hit more often than any byte.
    let choice = random.below(10);
    if kind == PageKind::Index as u8 && choice < 8 {
        return harm_index(random, p, others, choice);
    }
    if kind == PageKind::Overflow as u8 && choice < 8 {
        let at = 24 + 4 * random.below(2) as usize;
        return put_u32(p, at, number(random, get_u32(p, at), others));
    }
    if kind == PageKind::Undo as u8 && choice < 8 {
        return harm_undo(random, p, others, choice);
    }
    if kind == PageKind::UndoDirectory as u8 && choice < 8 {
        let at = 24 + 4 * random.below(20) as usize;
        return put_u32(p, at, number(random, get_u32(p, at), others));
    }
    if kind == PageKind::Bitmap as u8 && choice < 9 {
        if choice < 3 {
            let at = 24 + 4 * random.below(3) as usize;
            return put_u32(p, at, number(random, get_u32(p, at), others));
        }
        // Bits of pages that there are.
        for _ in 0..1 + random.below(40) {
            let bit = others[random.below(others.len() as u64) as usize] as usize;
            p[40 + bit / 8] ^= 1 << (bit % 8);
        }
        return;
    }
    let at = any(random);
    match choice {
        0..=4 => p[at] ^= 1 << random.below(8),
        5..=6 => p[at] = random.next_u64() as u8,
        7 => p[OFF_KIND + random.below(3) as usize] = random.below(9) as u8,
        8 => {
            let end = (at + random.below(64) as usize).min(PAGE);
            p[at..end].fill(random.next_u64() as u8);
        }
        _ => {
            let (from, len) = (any(random), random.below(64) as usize);
            let len = len.min(PAGE - from).min(PAGE - at);
            p.copy_within(from..from + len, at);
        }
    }
}

fn harm_index(random: &mut Random, p: &mut [u8], others: &[u32], choice: u64) {
    let slots = usize::from(get_u16(p, 24)).clamp(1, (PAGE - SLOTS) / 8);
    let slot = SLOTS + 8 * random.below(slots as u64) as usize;
    let entry = usize::from(get_u16(p, slot)).min(PAGE - 40);
    let inner = p[13] > 0;
    match choice {
        0 => {
            let at = 24 + 2 * random.below(10) as usize;
            put_u16(p, at, short(random, get_u16(p, at)));
        }
        1 => put_u32(p, 44, number(random, get_u32(p, 44), others)),
        2 | 3 if inner => put_u32(p, entry, number(random, get_u32(p, entry), others)),
        // A slot's head: the order of keys.
        2 => put_u32(p, slot + 4, random.next_u64() as u32),
        3 => {
            let at = slot + 2 * random.below(2) as usize;
            put_u16(p, at, short(random, get_u16(p, at)));
        }
        // Keys and headers of values.
        4 | 5 => {
            let at = entry + random.below(40) as usize;
            p[at] = if random.one_in(2) { random.next_u64() as u8 } else { p[at] ^ 1 << random.below(8) };
        }
        6 => {
            // Two slots change places.
            let other = SLOTS + 8 * random.below(slots as u64) as usize;
            (0..8).for_each(|i| p.swap(slot + i, other + i));
        }
        // A fence.
        _ => {
            let bytes = usize::from(get_u16(p, 34)) + usize::from(get_u16(p, 36));
            if bytes > 0 && bytes < PAGE - SLOTS {
                let at = PAGE - 1 - random.below(bytes as u64) as usize;
                p[at] = if random.one_in(2) { random.next_u64() as u8 } else { p[at] ^ 1 << random.below(8) };
            } else {
                p[14] ^= 1 << random.below(3);
            }
        }
    }
}

fn harm_undo(random: &mut Random, p: &mut [u8], others: &[u32], choice: u64) {
    match choice {
        0 | 1 => {
            let at = 24 + 4 * random.below(8) as usize;
            put_u32(p, at, number(random, get_u32(p, at), others));
        }
        2 => {
            let at = 44 + 2 * random.below(4) as usize;
            put_u16(p, at, short(random, get_u16(p, at)));
        }
        _ => {
            // A record: its frame, or what it says.
            let end = (get_u32(p, 36) as usize).min(PAGE);
            let (mut at, mut records) = (56, Vec::new());
            while at + 4 < end && usize::from(get_u16(p, at)) > 4 {
                records.push(at);
                at += usize::from(get_u16(p, at));
            }
            if records.is_empty() {
                return p[56 + random.below(40) as usize] = random.next_u64() as u8;
            }
            let at = records[random.below(records.len() as u64) as usize];
            let byte = (at + random.below(if choice < 5 { 24 } else { 64 }) as usize).min(PAGE - 1);
            p[byte] = if random.one_in(2) { random.next_u64() as u8 } else { p[byte] ^ 1 << random.below(8) };
        }
    }
}
