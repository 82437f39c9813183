use super::*;
use crate::redo;
use myriad_base::codec::put_u16;
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::random::Random;
use myriad_base::{PageId, SpaceId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SIZE: usize = 4096;

fn new_page(level: u8, f: Fences<'_>) -> Vec<u8> {
    let mut p = vec![0; SIZE];
    myriad_base::page::format(&mut p, PageId::new(SpaceId(7), PageNo(9)), PageKind::Index);
    format(&mut p, level, PageNo(3), f).unwrap();
    p
}

fn whole<'a>() -> Fences<'a> {
    Fences { low: &[], high: &[], flags: LEFTMOST | RIGHTMOST }
}

#[test]
fn prefixes_follow_from_fences() {
    assert_eq!(shared_prefix_len(b"abc1", b"abc7"), 3);
    assert_eq!(shared_prefix_len(b"abc1", b"abd"), 3);
    assert_eq!(shared_prefix_len(b"abc", b"abd"), 3);
    assert_eq!(shared_prefix_len(b"abc", b"abd0"), 2);
    assert_eq!(shared_prefix_len(b"ab", b"abd"), 2);
    assert_eq!(shared_prefix_len(b"ab\xff", b"ac"), 2);
    assert_eq!(shared_prefix_len(b"", b""), 0);
    assert_eq!(separator(b"abc", b"abdxyz"), b"abd");
    assert_eq!(separator(b"abc", b"abcd"), b"abcd");
}

#[test]
fn find_orders_short_suffixes() {
    let mut p = new_page(0, whole());
    let keys: Vec<&[u8]> = vec![b"", b"\0", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"a", b"a\0", b"abcd", b"abcde", b"b"];
    for (i, k) in keys.iter().enumerate() {
        assert_eq!(find(&p, k), Err(i));
        insert(&mut p, i, k, &[i as u8]).unwrap();
    }
    for (i, k) in keys.iter().enumerate() {
        assert_eq!(find(&p, k), Ok(i));
        assert_eq!(value(&p, i), [i as u8]);
    }
    check_content(&p).unwrap();
}

#[test]
fn patterns_of_insertion_are_seen() {
    let mut p = new_page(0, Fences { low: b"a", high: b"z", flags: 0 });
    for k in [&b"b"[..], b"y"] {
        let slot = find(&p, k).unwrap_err();
        insert(&mut p, slot, k, b"").unwrap();
    }
    assert_eq!(direction(&p, 1), Direction::Random);
    for k in [b"m1", b"m2", b"m3", b"m4", b"m5"] {
        let slot = find(&p, k).unwrap_err();
        insert(&mut p, slot, k, b"").unwrap();
    }
    assert_eq!(direction(&p, find(&p, b"m6").unwrap_err()), Direction::Ascending);
    assert_eq!(direction(&p, find(&p, b"c").unwrap_err()), Direction::Random);
    for k in [b"n9", b"n8", b"n7", b"n6", b"n5"] {
        let slot = find(&p, k).unwrap_err();
        insert(&mut p, slot, k, b"").unwrap();
    }
    assert_eq!(direction(&p, find(&p, b"n4").unwrap_err()), Direction::Descending);
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(u16),
    Patch(u16, u8),
}

/// Byte strings that are often alike or each other's beginning, zeros at the end included.
fn short(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 97, 255]), len)
}

/// The same, rarely different early.
fn long(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![5 => Just(0u8), 1 => Just(7), 1 => Just(255)], len)
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![short(0..12), short(0..6)];
    // Often at the border between value lengths of one byte and of two.
    let value_len = prop_oneof![0usize..400, 125usize..131];
    let value = (value_len, any::<u8>()).prop_map(|(n, b)| vec![b; n]);
    prop_oneof![
        4 => (key, value).prop_map(|(k, v)| Step::Put(k, v)),
        2 => any::<u16>().prop_map(Step::Remove),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(s, b)| Step::Patch(s, b)),
    ]
}

/// Every value length around the border between one byte and two, replaced by every other, with and without room for a new
/// entry beside the old one.
#[test]
fn values_cross_the_border_of_their_length() {
    let lengths = [0, 1, 126, 127, 128, 129, 130, 255, 256];
    for (from, to, suffix_len, tight) in lengths.iter().flat_map(|&from| {
        let rest = lengths.iter().flat_map(move |&to| (0..=5).map(move |suffix| (from, to, suffix)));
        rest.flat_map(|(from, to, suffix)| [false, true].map(|tight| (from, to, suffix, tight)))
    }) {
        let mut p = new_page(0, whole());
        let (first, second) = (vec![7; suffix_len], vec![9; from]);
        insert(&mut p, 0, &first, &second).unwrap();
        let mut n = 1;
        while tight && insert(&mut p, n, &[8, 8, 8, 8, n as u8], &[1; 40]).is_ok() {
            n += 1;
        }
        let grown = entry_bytes(0, suffix_len, to).saturating_sub(entry_bytes(0, suffix_len, from));
        let fits = grown <= free_bytes(&p);
        let before = p.clone();
        assert_eq!(fits_replace(&p, 0, to), fits);
        assert_eq!(replace(&mut p, 0, &vec![3; to]).is_ok(), fits, "{from} to {to} bytes");
        if !fits {
            assert!(p == before);
            continue;
        }
        check_content(&p).unwrap();
        assert_eq!((key(&p, 0), value(&p, 0)), (first, &vec![3; to][..]));
        assert_eq!(
            free_bytes(&p) + grown,
            free_bytes(&before) + from.saturating_sub(to) + usize::from(from > 127 && to < 128)
        );
        assert!((1..n).all(|slot| value(&p, slot) == [1; 40] && key(&p, slot) == [8, 8, 8, 8, slot as u8]));
    }
}

/// What an entry costs, its slot included.
#[test]
fn entries_are_small() {
    for (suffix_len, value_len, bytes) in
        [(0, 0, 9), (3, 10, 19), (4, 127, 136), (5, 127, 137), (5, 128, 139), (12, 400, 418)]
    {
        let mut p = new_page(0, whole());
        let before = free_bytes(&p);
        assert!(fits_leaf(&p, suffix_len, value_len));
        insert(&mut p, 0, &vec![1; suffix_len], &vec![2; value_len]).unwrap();
        assert_eq!(before - free_bytes(&p), bytes);
        assert_eq!(refenced_bytes(&p, 0..1, 0), bytes);
    }
}

/// What a page's entries take is known without a look at each, also where some were removed or became shorter.
#[test]
fn a_whole_page_takes_what_its_parts_do() {
    let bounds = Fences { low: b"pre-a", high: b"pre-z", flags: 0 };
    let mut p = new_page(0, bounds);
    for n in 0..40u8 {
        insert(&mut p, n.into(), &[b'b', n, 7, 7, n, n], &vec![n; 3 * usize::from(n)]).unwrap();
    }
    remove(&mut p, 5, 3).unwrap();
    replace(&mut p, 20, b"short").unwrap();
    let mut inner = new_page(1, bounds);
    for n in 0..9u8 {
        insert_child(&mut inner, n.into(), &vec![b'c' + n; 1 + usize::from(n)], PageNo(50)).unwrap();
    }
    for p in [p, inner] {
        let (n, prefix) = (count(&p), prefix_len(&p));
        let parts: usize = (0..n).map(|slot| refenced_bytes(&p, slot..slot + 1, prefix)).sum();
        assert_eq!(refenced_bytes(&p, 0..n, prefix), parts);
    }
}

#[test]
fn a_value_longer_than_its_length_can_say_is_refused() {
    let mut p = vec![0; 65536];
    format(&mut p, 0, PageNo(0), whole()).unwrap();
    let (longest, longer) = (vec![1; VALUE_BYTES_MAX], vec![1; VALUE_BYTES_MAX + 1]);
    assert!(!fits_leaf(&p, 1, longer.len()) && insert(&mut p, 0, b"k", &longer).is_err());
    let mut entries = Vec::new();
    redo::push_leaf_entry(&mut entries, b"a", b"");
    redo::push_leaf_entry(&mut entries, b"k", &longer);
    let before = p.clone();
    assert!(redo::redo(redo::APPEND, &mut p, &entries).is_err() && p == before);
    insert(&mut p, 0, b"k", &longest).unwrap();
    check_content(&p).unwrap();
    assert_eq!(value(&p, 0), longest);
    assert!(!fits_replace(&p, 0, longer.len()) && replace(&mut p, 0, &longer).is_err());
    assert_eq!(value(&p, 0), longest);
}

/// Each kind of damage to what an entry holds, by name.
#[test]
fn damaged_lengths_are_found() {
    let mut p = new_page(0, whole());
    insert(&mut p, 0, b"abcdef", &[5; 200]).unwrap();
    insert(&mut p, 1, b"b", &[6; 3]).unwrap();
    check_content(&p).unwrap();
    let damaged = |change: &dyn Fn(&mut [u8])| {
        let mut q = p.clone();
        change(&mut q);
        check_content(&q).unwrap_err()
    };
    let (first, second) = (value_at(&p, 0), value_at(&p, 1));
    assert!(damaged(&|q| q[first + 1] = 201).contains("ends beyond the heap"));
    assert!(damaged(&|q| q[first..first + 2].copy_from_slice(&[0x80, 100])).contains("without need"));
    assert!(damaged(&|q| q[first] = 100).contains("live and"));
    assert!(damaged(&|q| q[second] = 4).contains("live and"));
    assert!(damaged(&|q| q[slot_at(0) + 2] = 5).contains("live and"));
    assert!(damaged(&|q| q[slot_at(0) + 3] = 0x70).contains("points to"));
    // A value's length at the very end of the heap, and one that is only half there.
    let end = heap_end(&p);
    let to_end = |q: &mut [u8], at: usize| put_u16(q, slot_at(1), at as u16);
    assert!(damaged(&|q| to_end(q, end)).contains("is beyond the heap"));
    assert!(damaged(&|q| {
        to_end(q, end - 1);
        q[end - 1] = 0x81;
    })
    .contains("ends beyond the heap"));
    // The head goes on behind the key's end.
    assert!(damaged(&|q| q[slot_at(1) + 4] = 1).contains("head of slot 1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A key in parts answers as the key in one piece does.
    #[test]
    fn key_parts_are_the_key(suffixes in prop::collection::btree_set(short(0..7), 1..12), probe in short(0..10),
                             fence in 0usize..3, level in 0u8..2) {
        let low = vec![97u8; fence];
        let mut high = low.clone();
        if let Some(last) = high.last_mut() {
            *last += 1;
        }
        let flags = if fence == 0 { LEFTMOST | RIGHTMOST } else { 0 };
        let mut p = new_page(level, Fences { low: &low, high: &high, flags });
        for (slot, s) in suffixes.iter().enumerate() {
            prop_assert_eq!(find(&p, &[&low[..], s].concat()), Err(slot));
            if level == 0 {
                insert(&mut p, slot, s, b"v").unwrap();
            } else {
                insert_child(&mut p, slot, s, PageNo(3)).unwrap();
            }
        }
        check_content(&p).unwrap();
        for (slot, s) in suffixes.iter().enumerate() {
            let whole = [&low[..], s].concat();
            let parts = key_parts(&p, slot);
            let mut appended = b"x".to_vec();
            parts.append_to(&mut appended);
            prop_assert_eq!(&appended[1..], &whole[..]);
            prop_assert_eq!(&parts.joined()[..], &whole[..]);
            prop_assert_eq!((parts.len(), parts.suffix.len()), (whole.len(), s.len()));
            prop_assert_eq!(key(&p, slot), whole.clone());
            prop_assert_eq!(find(&p, &whole), Ok(slot));
            for probe in suffixes.iter().chain([&probe]).flat_map(|q| [q.clone(), [&low[..], q].concat()]) {
                prop_assert_eq!(parts.suffix.cmp_bytes(&probe), s.cmp(&probe));
                prop_assert_eq!(parts.suffix.starts_with(&probe), s.starts_with(&probe));
                prop_assert_eq!(cmp_key(&p, slot, &probe), whole.cmp(&probe));
                prop_assert_eq!(parts.starts_with(&probe), whole.starts_with(&probe));
                let start = &whole[..whole.len().min(probe.len())];
                prop_assert_eq!(parts.cmp_start(&probe), start.cmp(&probe[..]));
                prop_assert_eq!(KeyParts::whole(&whole).cmp_start(&probe), start.cmp(&probe[..]));
                prop_assert_eq!(KeyParts::whole(&whole).starts_with(&probe), whole.starts_with(&probe));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A leaf under random changes holds what a map holds; the same records on a copy give the same bytes.
    #[test]
    fn a_leaf_is_a_map(steps in prop::collection::vec(step(), 1..200), fence in 0usize..4) {
        let low = vec![97u8; fence];
        let mut high = low.clone();
        if let Some(last) = high.last_mut() {
            *last += 1;
        }
        let flags = if fence == 0 { LEFTMOST | RIGHTMOST } else { 0 };
        let mut p = new_page(0, Fences { low: &low, high: &high, flags });
        prop_assert_eq!(prefix_len(&p), fence);
        let mut copy = p.clone();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for s in steps {
            let (op, payload) = match s {
                Step::Put(rest, v) => {
                    let k = [&low[..], &rest].concat();
                    match find(&p, &k) {
                        Ok(slot) => {
                            let fits = fits_replace(&p, slot, v.len());
                            prop_assert_eq!(replace(&mut p, slot, &v).is_ok(), fits);
                            if !fits { continue; }
                            model.insert(k, v.clone());
                            (redo::REPLACE, [&(slot as u16).to_le_bytes()[..], &v].concat())
                        }
                        Err(slot) => {
                            let fits = fits_leaf(&p, k.len(), v.len());
                            prop_assert_eq!(insert(&mut p, slot, &rest, &v).is_ok(), fits);
                            if !fits { continue; }
                            model.insert(k, v.clone());
                            let mut payload = (slot as u16).to_le_bytes().to_vec();
                            myriad_base::codec::push_bytes(&mut payload, &rest);
                            payload.extend_from_slice(&v);
                            (redo::INSERT, payload)
                        }
                    }
                }
                Step::Remove(s) if count(&p) > 0 => {
                    let slot = s as usize % count(&p);
                    model.remove(&key(&p, slot));
                    remove(&mut p, slot, 1).unwrap();
                    (redo::REMOVE, (slot as u16).to_le_bytes().to_vec())
                }
                Step::Patch(s, b) if count(&p) > 0 => {
                    let slot = s as usize % count(&p);
                    let len = value(&p, slot).len();
                    if len == 0 { continue; }
                    patch(&mut p, slot, len - 1, &[b]).unwrap();
                    *model.get_mut(&key(&p, slot)).unwrap().last_mut().unwrap() = b;
                    let mut payload = (slot as u16).to_le_bytes().to_vec();
                    myriad_base::codec::push_varint(&mut payload, len as u64 - 1);
                    payload.push(b);
                    (redo::PATCH, payload)
                }
                _ => continue,
            };
            check_content(&p).unwrap();
            redo::redo(op, &mut copy, &payload).unwrap();
            prop_assert!(p == copy, "redo of {op} differs");
        }
        prop_assert_eq!(count(&p), model.len());
        for (slot, (k, v)) in model.iter().enumerate() {
            prop_assert_eq!(&key(&p, slot), k);
            prop_assert_eq!(find(&p, k), Ok(slot));
            prop_assert_eq!(value(&p, slot), &v[..]);
            let entry = entries(&p).at(slot);
            prop_assert_eq!((&entry.key().joined()[..], entry.value()), (&k[..], &v[..]));
            let mut copy = b"before".to_vec();
            let key_end = 6 + entry.append_to(&mut copy);
            prop_assert_eq!(&copy[6..key_end], &k[..]);
            prop_assert!(copy[key_end..].ends_with(v));
        }
    }

    /// Narrower fences keep the entries between them.
    #[test]
    fn refencing_keeps_entries(n in 1usize..60, cut in 0usize..60) {
        let mut p = new_page(0, whole());
        for i in 0..n {
            insert(&mut p, i, format!("key{i:04}").as_bytes(), &vec![i as u8; i % 40]).unwrap();
        }
        let cut = cut.min(n);
        let high = format!("key{cut:04}");
        let before = p.clone();
        refence(&mut p, 0, cut, PageNo(0), Fences { low: b"", high: high.as_bytes(), flags: LEFTMOST }).unwrap();
        check_content(&p).unwrap();
        prop_assert_eq!(count(&p), cut);
        for i in 0..cut {
            prop_assert_eq!(key(&p, i), key(&before, i));
            prop_assert_eq!(value(&p, i), value(&before, i));
        }
        if cut < n {
            p = before.clone();
            refence(&mut p, cut, n, PageNo(0), Fences { low: high.as_bytes(), high: b"kez", flags: 0 }).unwrap();
            check_content(&p).unwrap();
            prop_assert_eq!(prefix_len(&p), if high.as_bytes()[2] == b'y' { 3 } else { 2 });
            for i in cut..n {
                prop_assert_eq!(key(&p, i - cut), key(&before, i));
            }
        }
    }

    /// The same bytes, whether entries are copied, as where the prefix stays, or inserted.
    #[test]
    fn refenced_is_as_inserted(level in 0u8..2, n in 1usize..60, first in 0usize..60, end in 0usize..60, low in 0usize..2) {
        let end = end.min(n);
        let first = first.min(end);
        let key_of = |i: usize| [&b"key"[..], &vec![b'a' + i as u8; 1 + i % 9]].concat();
        let add = |p: &mut [u8], slot: usize, i: usize| {
            let suffix = &key_of(i)[prefix_len(p)..];
            match level {
                0 => insert(p, slot, suffix, &vec![i as u8; i % 40]).unwrap(),
                _ => insert_child(p, slot, suffix, PageNo(i as u32)).unwrap(),
            }
        };
        let mut p = new_page(level, Fences { low: b"key", high: b"kez", flags: 0 });
        // Out of order: the heap is not.
        for i in (0..n).rev() {
            add(&mut p, 0, i);
        }
        let fences = Fences { low: [&b"key"[..], b"kew"][low], high: b"kez", flags: 0 };
        let mut expected = new_page(level, fences);
        for i in first..end {
            add(&mut expected, i - first, i);
        }
        refence(&mut p, first, end, PageNo(3), fences).unwrap();
        check_content(&p).unwrap();
        for pattern in [OFF_LAST, OFF_RUN] {
            put_u16(&mut p, pattern, 0);
            put_u16(&mut expected, pattern, 0);
        }
        prop_assert!(p == expected);
    }

    /// Any bytes as a log record: an error or a page that is still sound, never a panic, and no change with an error.
    #[test]
    fn redo_is_total(seed: u64, op in 14u8..66, payload in prop::collection::vec(any::<u8>(), 0..80), damage in 0usize..40) {
        let mut random = Random::from_seed(seed);
        let mut p = new_page(random.below(2) as u8, Fences { low: b"k", high: b"l", flags: 0 });
        for i in 0..20u32 {
            let n = count(&p);
            if level(&p) == 0 {
                insert(&mut p, n, &i.to_be_bytes(), &[1; 9]).unwrap();
            } else {
                insert_child(&mut p, n, &i.to_be_bytes(), PageNo(i)).unwrap();
            }
        }
        match random.below(8) {
            0 => p[12] = random.below(8) as u8,
            1 => random_bytes(&mut random, &mut p),
            _ => {}
        }
        for _ in 0..damage {
            let at = if random.one_in(2) { 12 + random.below(100) } else { random.below(SIZE as u64) };
            p[at as usize] = random.next_u64() as u8;
        }
        let before = p.clone();
        if checked_redo(op, &mut p, &payload).is_err() {
            prop_assert!(p == before);
        }
        // And payloads that make some sense.
        for op in 16..42u8 {
            let mut q = before.clone();
            let mut payload = (random.below(24) as u16).to_le_bytes().to_vec();
            payload.push(random.below(12) as u8);
            payload.push(0);
            payload.extend_from_slice(&random.next_u64().to_le_bytes()[..random.below(9) as usize]);
            if checked_redo(op, &mut q, &payload).is_err() {
                prop_assert!(q == before);
            }
        }
    }

    /// The way down agrees with a search in a sorted list.
    #[test]
    fn routes_agree(keys in prop::collection::btree_set(prop_oneof![long(1..8), long(9..16)], 1..40),
                    probe in prop_oneof![long(0..8), long(9..16)]) {
        let mut p = new_page(1, whole());
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        for (i, k) in keys.iter().enumerate() {
            insert_child(&mut p, i, k, PageNo(100 + i as u32)).unwrap();
        }
        check_content(&p).unwrap();
        let at = keys.partition_point(|k| *k <= probe);
        prop_assert_eq!(route(&Latched(&p), Target::At(&probe)), at);
        prop_assert_eq!(routed_child(&Latched(&p), at), child(&p, at));
        let before = keys.partition_point(|k| *k < probe);
        prop_assert_eq!(route(&Latched(&p), Target::Before(&probe)), before);
        prop_assert_eq!(route(&Latched(&p), Target::Last), keys.len());
    }
}

fn random_bytes(random: &mut Random, p: &mut [u8]) {
    for b in p.iter_mut() {
        *b = random.next_u64() as u8;
    }
}

/// As the redo table does: entries of pages of a bad layout are not touched, and redo leaves none.
fn checked_redo(op: u8, p: &mut [u8], payload: &[u8]) -> myriad_base::Result<()> {
    let check = |p: &[u8]| if p[OFF_KIND] == PageKind::Index as u8 { check_layout(p) } else { Ok(()) };
    let checked = check(p);
    if redo::ON_ENTRIES.contains(&op) {
        checked.clone().map_err(myriad_base::Error::invalid)?;
    }
    redo::redo(op, p, payload)?;
    if checked.is_ok() {
        check(p).unwrap_or_else(|what| panic!("operation {op}: {what}"));
    }
    Ok(())
}

/// Whatever a page holds: the check says no, or everything that reads it stays within it. And it costs little beside the
/// read that precedes it.
#[test]
fn what_the_layout_check_accepts_can_be_read() {
    let mut random = Random::from_seed(5);
    let mut p = new_page(0, whole());
    let mut n = 0;
    while let Ok(()) = insert(&mut p, n, &(n as u32 * 7).to_be_bytes(), &[9; 40]) {
        n += 1;
    }
    check_layout(&p).unwrap();
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(check_layout(std::hint::black_box(&p))).unwrap();
    }
    println!("layout check of {n} slots: {} ns", start.elapsed().as_nanos() / 1000);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut q = p.clone();
        for _ in 0..=random.below(3) {
            let at = if random.one_in(2) { random.below(32) + 24 } else { random.below(SIZE as u64 - 24) + 24 };
            q[at as usize] ^= 1 << random.below(8);
        }
        if random.one_in(8) {
            q[OFF_LEVEL] ^= 1;
        }
        if check_layout(&q).is_err() {
            refused += 1;
            continue;
        }
        accepted += 1;
        for slot in 0..count(&q) {
            let parts = key_parts(&q, slot);
            std::hint::black_box((key(&q, slot), parts.joined(), parts.len()));
            std::hint::black_box((parts.starts_with(b"\0\0\0\0\0"), parts.cmp_start(b"\0\0\0\0\0")));
            if level(&q) == 0 {
                let entry = entries(&q).at(slot);
                std::hint::black_box((value(&q, slot), entry.key(), entry.append_to(&mut Vec::new())));
            }
        }
        let _ = std::hint::black_box(find(&q, &77u32.to_be_bytes()));
        std::hint::black_box((low_fence(&q), high_fence(&q), prefix(&q)));
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}
