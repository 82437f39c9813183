//! The check of values: damage is found, and nothing else.

use super::concurrent::scale;
use super::damage::{damage, full};
use super::*;
use crate::value::Entry;
use myriad_base::codec::get_u32;
use myriad_base::page::OFF_KIND;
use myriad_base::random::Random;
use myriad_base::{PageId, PageNo};
use myriad_btree::Leaf;

const OFF_NEXT: usize = 24;
const OFF_LEN: usize = 28;
const OFF_BITMAP: usize = 40;

fn findings(rig: &Rig) -> Vec<(PageId, String)> {
    let mut values = ValueCheck::new(&rig.sys);
    let mut all = Vec::new();
    for index in [&rig.rows, &rig.names] {
        let (lo, hi) = (index.id.0.to_be_bytes(), (index.id.0 + 1).to_be_bytes());
        let report =
            index.tree.check(rig.sys.pool(), &lo, &hi, &mut |leaf| values.check_leaf(index, leaf, &|| false)).unwrap();
        all.extend(report.findings);
        all.extend(values.take_findings());
    }
    all
}

/// The overflow pages of a row.
fn chain(rig: &Rig, key: &[u8]) -> Vec<PageId> {
    let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(key)).unwrap();
    let entry = Entry::parse(leaf.value(leaf.find(&full(key)).unwrap()), leaf.page_id()).unwrap();
    let (mut pages, mut next) = (Vec::new(), entry.overflow().unwrap().first);
    while next != PageNo::NONE {
        pages.push(PageId::new(SPACE, next));
        next = PageNo(get_u32(&rig.sys.pool().fix_shared(pages[pages.len() - 1]).unwrap(), OFF_NEXT));
    }
    pages
}

#[test]
fn damaged_chains_are_found() {
    type Damage = fn(&Rig, &[PageId], &[PageId]) -> PageId;
    let cases: [(&str, Damage); 9] = [
        ("kind 0, where", |rig, a, _| {
            damage(rig, a[3], OFF_KIND, &[0]);
            a[3]
        }),
        ("not allocated", |rig, a, _| {
            let (bitmap, at) = (PageId::new(SPACE, PageNo(1)), OFF_BITMAP + a[3].page.0 as usize / 8);
            let byte = rig.sys.pool().fix_shared(bitmap).unwrap()[at];
            damage(rig, bitmap, at, &[byte & !(1 << (a[3].page.0 % 8))]);
            a[3]
        }),
        ("lacks", |rig, a, _| {
            relink(rig, a[3], PageNo::NONE);
            a[3]
        }),
        ("goes on", |rig, a, b| {
            relink(rig, a[a.len() - 1], b[0].page);
            a[a.len() - 1]
        }),
        ("of 5 bytes", |rig, a, _| {
            damage(rig, a[3], OFF_LEN, &5u32.to_le_bytes());
            a[3]
        }),
        ("in use twice", |rig, a, b| {
            relink(rig, a[3], b[4].page);
            b[4]
        }),
        ("comes back", |rig, a, _| {
            relink(rig, a[3], a[2].page);
            a[2]
        }),
        ("comes back", |rig, a, _| {
            let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(100))).unwrap().page_id();
            relink(rig, a[3], leaf.page);
            leaf
        }),
        ("", |rig, a, _| {
            relink(rig, a[3], PageNo(1 << 24));
            PageId::new(SPACE, PageNo(1 << 24))
        }),
    ];
    for (reason, make) in cases {
        // A delete-marked entry has its chain as well.
        for deleted in [false, true] {
            let rig = Rig::small();
            let mut t = rig.trx();
            (0..100).for_each(|i| rig.insert(&mut t, &key(i), &[1; 200]).unwrap());
            (100..102).for_each(|i| rig.insert(&mut t, &key(i), &[2; 40_000]).unwrap());
            t.commit(Durability::Sync).unwrap();
            let mut reader = rig.trx();
            assert!(rig.get(&mut reader, &key(100)).is_some());
            if deleted {
                rig.delete(&mut t, &key(100)).unwrap();
                t.commit(Durability::Sync).unwrap();
                rig.purge_all();
            }
            let (a, b) = (chain(&rig, &key(100)), chain(&rig, &key(101)));
            assert!(a.len() == b.len() && a.len() > 8);
            assert_eq!(findings(&rig), Vec::new());
            let page = make(&rig, &a, &b);
            let found = findings(&rig);
            assert!(
                found.len() == 1 && found[0].0 == page && found[0].1.contains(reason),
                "{reason}: {page}: {found:?}"
            );
        }
    }
}

fn relink(rig: &Rig, from: PageId, to: PageNo) {
    damage(rig, from, OFF_NEXT, &to.0.to_le_bytes());
}

/// Entries that a merge brings to a leaf behind come again.
#[test]
fn a_leaf_that_comes_twice_is_no_damage() {
    let rig = Rig::small();
    let mut t = rig.trx();
    (0..3).for_each(|i| rig.insert(&mut t, &key(i), &[2; 40_000]).unwrap());
    t.commit(Durability::Sync).unwrap();
    let (mut values, mut count, mut t) = (ValueCheck::new(&rig.sys), RowCount::new(&rig.rows), rig.trx());
    t.start();
    t.open_snapshot();
    for _ in 0..2 {
        let leaf = rig.rows.tree.seek(rig.sys.pool(), &full(&key(0))).unwrap();
        count.add(&mut t, &rig.rows, &leaf).unwrap();
        values.check_leaf(&rig.rows, leaf, &|| false).unwrap();
        assert_eq!(values.take_findings(), Vec::new());
        assert_eq!(count.rows(), 3);
    }
}

/// Rows that a snapshot sees, counted on the walk of a check beside writers, and one leaf after the other.
fn assert_counted(rig: &Rig) {
    let mut t = rig.trx();
    t.start();
    t.open_snapshot();
    for index in [&rig.rows, &rig.names] {
        assert_eq!(rig.count_in_check(&mut t, index), t.count(index).unwrap());
    }
}

/// Rows come, change and go, with their pages, which others get; some are in overflow pages, and those of a secondary index, too.
#[test]
fn nothing_is_found_beside_writers_and_purge() {
    const KEYS: u64 = 60;
    let rig = Rig::new(5, 150, true);
    rig.start_background();
    std::thread::scope(|s| {
        let work = |worker| {
            let mut random = Random::from_seed(worker);
            let mut t = rig.trx();
            for _ in 0..1000 * scale() {
                for _ in 0..1 + random.below(3) {
                    match write(&rig, &mut t, &mut random, KEYS) {
                        Ok(()) | Err(Error::DuplicateKey { .. } | Error::LockWaitTimeout) => {}
                        Err(Error::Deadlock) => t.rollback().unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                }
                if random.one_in(4) {
                    t.rollback().unwrap();
                } else {
                    t.commit(Durability::None).unwrap();
                }
            }
        };
        let workers: Vec<_> = (0..3).map(|worker| s.spawn(move || work(worker))).collect();
        while !workers.iter().all(|w| w.is_finished()) {
            assert_eq!(findings(&rig), Vec::new());
            assert_counted(&rig);
        }
    });
    rig.sys.shutdown(true).unwrap();
    assert_eq!(findings(&rig), Vec::new());
}

fn write(rig: &Rig, t: &mut Trx, random: &mut Random, keys: u64) -> Result<()> {
    let (index, key) = (if random.one_in(4) { rig.names } else { rig.rows }, key(random.below(keys)));
    let mut row = RowBuf::new();
    let found = t.get(&index, &key, false, Some(Strength::X), LockWait::NoWait, &mut row)?;
    let len_max = if random.one_in(3) { 200 } else { 25_000 };
    let new = vec![random.below(256) as u8; random.below(len_max) as usize];
    match (found, random.below(3)) {
        (false, _) => rig.one(t, OpKind::Insert, &index, &key, key.len(), &new),
        (true, 0) => rig.one(t, OpKind::Delete, &index, &key, 0, &[]),
        (true, _) => rig.one(t, OpKind::Update, &index, &key, 0, &maybe_same_tail(random, row.value(), new)),
    }
}
