//! Rollbacks of many changes, which are undone in batches.

use super::crash::{change_row, check, seeds, Rows};
use super::*;
use myriad_base::random::Random;
use std::thread;

const KEYS: u64 = 500;

/// Numbers below `n` in a random order.
fn shuffled(random: &mut Random, n: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..n).collect();
    random.shuffle(&mut numbers);
    numbers
}

/// What is left to undo of the only transaction that has changed anything.
fn left(rig: &Rig) -> u64 {
    let mut left = 0;
    rig.sys.list_trx(&mut |t| left += t.undo_records);
    left
}

/// A power failure when no more than `records` are left to undo, or all are undone.
fn crash_at(rig: &Rig, records: u64, random: &mut Random, undo: impl FnOnce() + Send) -> Rig {
    thread::scope(|scope| {
        let undoing = scope.spawn(undo);
        while left(rig) > records && !undoing.is_finished() {
            thread::yield_now();
        }
        rig.sys.flush_log().unwrap();
        rig.crashed(random.next_u64(), 100 + random.below(100) as usize)
    })
}

fn crashes_while_it_is_rolled_back(seed: u64) {
    let mut random = Random::from_seed(seed);
    let mut rig = Rig::new(seed, 160, false);
    let (mut t, mut rows) = (rig.trx(), Rows::new());
    for k in shuffled(&mut random, KEYS).into_iter().take(300) {
        change_row(&rig, &mut t, &mut rows, &mut random, key(k));
        if k % 10 == 0 {
            t.commit(Durability::Sync).unwrap();
        }
    }
    t.commit(Durability::Sync).unwrap();
    if random.one_in(2) {
        rig.purge_all();
    }
    let mut scrap = rows.clone();
    // Each row twice: no batch has both changes.
    for k in [shuffled(&mut random, KEYS), shuffled(&mut random, KEYS)].concat() {
        change_row(&rig, &mut t, &mut scrap, &mut random, key(k));
    }
    let records = left(&rig);
    assert!(records > 4 * KEYS);
    rig = crash_at(&rig, random.below(records), &mut random, move || t.rollback().unwrap());
    for _ in 0..2 {
        let records = left(&rig);
        let sys = Arc::clone(&rig.sys);
        let undo = move || while sys.rollback_losers_step().unwrap() {};
        rig = crash_at(&rig, random.below(records + 1), &mut random, undo);
    }
    while rig.sys.rollback_losers_step().unwrap() {}
    check(&rig, &rows, &format!("seed {seed}"));
    rig.purge_all();
    assert_eq!(rig.entries(), 2 * rows.len(), "seed {seed}");
    assert_eq!(rig.sys.purge_stats().history, 0, "seed {seed}");
}

#[test]
fn a_rollback_in_batches_survives_crashes() {
    seeds(12).for_each(crashes_while_it_is_rolled_back);
}

/// Rows whose names lie anywhere, in more pages than the pool has, all of one transaction: pages read while it is undone.
#[test]
fn a_large_rollback_does_not_read_a_leaf_for_each_entry() {
    const ROWS: u64 = 12_000;
    let rig = Rig::new(3, 80, false);
    let mut random = Random::from_seed(3);
    let mut t = rig.trx();
    for i in 0..ROWS {
        let name = [&random.next_u64().to_be_bytes()[..], &key(i)].concat();
        let op = |index, key, payload| Op { kind: OpKind::Insert, index, key, unique_len: 0, payload, head_len: 0 };
        t.apply(&[op(&rig.rows, &key(i), &[1; 20]), op(&rig.names, &name, &[])]).unwrap();
        if i % 500 == 0 {
            while rig.sys.pool().step_background().unwrap() {}
        }
    }
    let leaves = rig.leaves() as u64;
    let before = rig.sys.pool().stats().reads;
    t.rollback().unwrap();
    let read = rig.sys.pool().stats().reads - before;
    assert_eq!(rig.entries(), 0);
    // One by one it reads 14 times as many as there are leaves, in batches four times.
    assert!(leaves > 200 && read < 8 * leaves, "{read} pages read, {leaves} leaves");
}
