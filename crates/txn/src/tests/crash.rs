//! Power failures: what was acknowledged is there, what was not finished is gone, what was prepared waits.

use super::*;
use myriad_base::random::Random;
use myriad_base::TrxId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn check(rig: &Rig, expect: &Rows, what: &str) {
    let mut t = rig.trx();
    assert_eq!(rig.scan(&mut t, &rig.rows, true), expect.clone().into_iter().collect::<Vec<_>>(), "{what}");
    let by_name = rig.scan(&mut t, &rig.names, false);
    let names: BTreeSet<Vec<u8>> = expect.iter().map(|(k, v)| name(k, v)).collect();
    assert_eq!(by_name.into_iter().map(|r| r.0).collect::<Vec<_>>(), names.into_iter().collect::<Vec<_>>(), "{what}");
}

/// The secondary key of a row: first byte of its payload, then its key.
fn name(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut n = vec![payload.first().copied().unwrap_or(0)];
    n.extend_from_slice(key);
    n
}

fn change(rig: &Rig, t: &mut Trx, rows: &mut Rows, random: &mut Random) {
    let k = key(random.below(120));
    change_row(rig, t, rows, random, k);
}

/// Inserts the row, or changes or deletes it.
pub(super) fn change_row(rig: &Rig, t: &mut Trx, rows: &mut Rows, random: &mut Random, k: Vec<u8>) {
    let long = if random.one_in(20) { 6000 } else { 200 };
    let payload = vec![random.next_u64() as u8; random.below(long) as usize];
    let op = |kind, index, key, payload| Op { kind, index, key, unique_len: 0, payload, head_len: head_len(payload) };
    match rows.get(&k).cloned() {
        None => {
            let n = name(&k, &payload);
            t.apply(&[op(OpKind::Insert, &rig.rows, &k, &payload), op(OpKind::Insert, &rig.names, &n, &[])]).unwrap();
            rows.insert(k, payload);
        }
        Some(old) if random.one_in(3) => {
            let n = name(&k, &old);
            t.apply(&[op(OpKind::Delete, &rig.rows, &k, &[]), op(OpKind::Delete, &rig.names, &n, &[])]).unwrap();
            rows.remove(&k);
        }
        Some(old) => {
            let payload = maybe_same_tail(random, &old, payload);
            let (from, to) = (name(&k, &old), name(&k, &payload));
            let mut ops = vec![op(OpKind::Update, &rig.rows, &k, &payload)];
            if from != to {
                ops.push(op(OpKind::Delete, &rig.names, &from, &[]));
                ops.push(op(OpKind::Insert, &rig.names, &to, &[]));
            }
            t.apply(&ops).unwrap();
            rows.insert(k, payload);
        }
    }
}

/// Transactions one after the other; some are not waited for, some rolled back, some left unfinished at a crash.
fn crash_loop(seed: u64) {
    let mut random = Random::from_seed(seed);
    let mut rig = Rig::new(seed, 80, false);
    let mut acknowledged = Rows::new();
    for round in 0..5 {
        // States committed since the last acknowledged one, any of which may be what survives.
        let mut possible = vec![acknowledged.clone()];
        let mut now = acknowledged.clone();
        for _ in 0..random.below(60) {
            let mut t = rig.trx();
            let mut next = now.clone();
            for _ in 0..=random.below(12) {
                change(&rig, &mut t, &mut next, &mut random);
            }
            match random.below(10) {
                0 => t.rollback().unwrap(),
                1..=4 => {
                    t.commit(Durability::Sync).unwrap();
                    now = next;
                    possible = vec![now.clone()];
                }
                5 => {
                    let sp = t.savepoint();
                    let mut scrap = next.clone();
                    change(&rig, &mut t, &mut scrap, &mut random);
                    t.rollback_to(sp).unwrap();
                    t.commit(Durability::None).unwrap();
                    now = next;
                    possible.push(now.clone());
                }
                _ => {
                    t.commit(Durability::None).unwrap();
                    now = next;
                    possible.push(now.clone());
                }
            }
            match random.below(12) {
                0 => drop(rig.sys.pool().step_background().unwrap()),
                1 => rig.sys.pool().checkpoint_now().unwrap(),
                2..=6 => drop(rig.sys.purge_step().unwrap()),
                _ => {}
            }
        }
        // One is caught in the middle.
        let mut t = rig.trx();
        let mut scrap = now.clone();
        for _ in 0..random.below(40) {
            change(&rig, &mut t, &mut scrap, &mut random);
        }
        if random.one_in(2) {
            rig.sys.flush_log().unwrap();
            possible = vec![now.clone()];
        }
        if random.one_in(4) {
            rig.sys.pool().checkpoint_now().unwrap();
            possible = vec![now.clone()];
        }
        let next = rig.crashed(random.next_u64(), 80 + random.below(40) as usize);
        drop(t); // Undone on the disk that is gone.
        rig = next;
        if random.one_in(2) {
            // A second failure while losers are rolled back.
            let _ = rig.sys.rollback_losers_step().unwrap();
            if random.one_in(2) {
                rig.sys.flush_log().unwrap();
            }
            rig = rig.crashed(random.next_u64(), 100);
        }
        let mut reader = rig.trx();
        let found: Rows = rig.scan(&mut reader, &rig.rows, true).into_iter().collect();
        drop(reader);
        assert!(possible.contains(&found), "seed {seed} round {round}: {} states possible", possible.len());
        while rig.sys.rollback_losers_step().unwrap() {}
        check(&rig, &found, &format!("seed {seed} round {round}"));
        if random.one_in(2) {
            rig.purge_all();
            assert_eq!(rig.entries(), 2 * found.len(), "seed {seed} round {round}");
            assert_eq!(rig.sys.purge_stats().history, 0);
        }
        acknowledged = found;
        rig.sys.flush_log().unwrap();
    }
}

/// The first `n` seeds, or those from MYRIAD_SEEDS ("from..to").
pub(crate) fn seeds(n: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("MYRIAD_SEEDS").ok();
    let range = asked.as_deref().and_then(|s| s.split_once("..")).map(|(a, b)| (a.parse(), b.parse()));
    match range {
        Some((Ok(from), Ok(to))) => from..to,
        _ => 0..n,
    }
}

#[test]
fn acknowledged_transactions_survive_crashes() {
    for seed in seeds(30) {
        crash_loop(seed);
    }
}

#[test]
fn losers_keep_their_locks_until_rolled_back() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"old").unwrap();
    t.commit(Durability::Sync).unwrap();
    rig.update(&mut t, b"a", b"new").unwrap();
    rig.insert(&mut t, b"b", b"new").unwrap();
    rig.sys.flush_log().unwrap();
    let next = rig.crashed(3, 200);
    drop(t); // Undone on the disk that is gone.
    let mut u = next.trx();
    assert_eq!(next.get(&mut u, b"a"), Some(b"old".to_vec()));
    assert_eq!(next.get(&mut u, b"b"), None);
    assert!(is_blocked(next.update(&mut u, b"a", b"mine")));
    assert!(is_blocked(next.insert(&mut u, b"b", b"mine")));
    let mut n = 0;
    next.sys.list_trx(&mut |t| n += usize::from(t.recovered));
    assert_eq!(n, 1);
    assert!(next.sys.rollback_losers_step().unwrap());
    assert!(!next.sys.rollback_losers_step().unwrap());
    next.update(&mut u, b"a", b"mine").unwrap();
    next.insert(&mut u, b"b", b"mine").unwrap();
    u.commit(Durability::Sync).unwrap();
}

#[test]
fn prepared_transactions_survive_and_end_either_way() {
    for commit in [true, false] {
        let rig = Rig::small();
        let mut t = rig.trx();
        for i in 0..100u64 {
            rig.insert(&mut t, &key(i), &[3; 80]).unwrap();
        }
        t.prepare(b"xid-1", Durability::Sync).unwrap();
        assert_eq!(t.state(), TrxState::Prepared);
        let mut next = rig.crashed(9, 200);
        drop(t); // Undone on the disk that is gone.
        for _ in 0..2 {
            assert_eq!(next.sys.prepared_xids(), [b"xid-1".to_vec()]);
            assert!(!next.sys.rollback_losers_step().unwrap());
            let mut u = next.trx();
            assert_eq!(next.scan(&mut u, &next.rows, true).len(), 0);
            assert!(is_blocked(next.insert(&mut u, &key(5), b"mine")));
            drop(u);
            let again = next.crashed(10, 200);
            next = again;
        }
        assert!(!next.sys.commit_by_xid(b"xid-2").unwrap());
        if commit {
            assert!(next.sys.commit_by_xid(b"xid-1").unwrap());
        } else {
            assert!(next.sys.rollback_by_xid(b"xid-1").unwrap());
        }
        next.sys.flush_log().unwrap();
        let next = next.crashed(11, 200);
        assert!(next.sys.prepared_xids().is_empty());
        let mut u = next.trx();
        assert_eq!(next.scan(&mut u, &next.rows, true).len(), if commit { 100 } else { 0 });
    }
}

/// Purge does not come to the end of a slot whose last log is that of a transaction that has not ended.
#[test]
fn the_history_before_a_prepared_transaction_is_counted_after_a_crash() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"1").unwrap();
    t.commit(Durability::Sync).unwrap();
    let next = rig.crashed(5, 200);
    let mut t = next.trx();
    for i in 0..20u64 {
        next.insert(&mut t, &key(i), b"row").unwrap();
        t.commit(Durability::Configured).unwrap();
    }
    next.delete(&mut t, b"a").unwrap();
    t.prepare(b"x", Durability::Configured).unwrap();
    drop(t);
    assert!(next.sys.purge_stats().history >= 20);
    next.purge_all();
    assert_eq!((next.sys.purge_stats().history, next.entries()), (0, 21));
    assert!(next.sys.commit_by_xid(b"x").unwrap());
    assert_eq!(next.sys.purge_stats().history, 1);
    next.purge_all();
    assert_eq!((next.sys.purge_stats().history, next.entries()), (0, 20));
}

#[test]
fn a_prepared_transaction_outlives_its_session() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"1").unwrap();
    t.prepare(b"x", Durability::Configured).unwrap();
    drop(t);
    assert_eq!(rig.sys.prepared_xids(), [b"x".to_vec()]);
    let mut u = rig.trx();
    assert!(is_blocked(rig.insert(&mut u, b"a", b"2")));
    assert!(rig.sys.commit_by_xid(b"x").unwrap());
    assert_eq!(rig.lock(&mut u, b"a", Strength::S).unwrap(), Some(b"1".to_vec()));
    u.rollback().unwrap();
    rig.update(&mut u, b"a", b"3").unwrap();
    u.prepare(b"y", Durability::Configured).unwrap();
    u.rollback().unwrap();
    assert_eq!(rig.get(&mut u, b"a"), Some(b"1".to_vec()));
    u.rollback().unwrap();
    rig.update(&mut u, b"a", b"4").unwrap();
    u.prepare(b"z", Durability::Configured).unwrap();
    u.commit_ordered().unwrap();
    let mut v = rig.trx();
    assert_eq!(rig.get(&mut v, b"a"), Some(b"4".to_vec()));
    u.commit_finish(Durability::Sync).unwrap();
    assert_eq!(u.state(), TrxState::Idle);
}

/// Nothing written, a duplicate refused, a change undone again: such a transaction ends with its session.
#[test]
fn a_prepared_transaction_without_changes_does_not_outlive_its_session() {
    let rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"1").unwrap();
    t.commit(Durability::Configured).unwrap();
    for kind in 0..3 {
        for detach in [false, true] {
            let mut t = rig.trx();
            rig.lock(&mut t, b"a", Strength::X).unwrap();
            match kind {
                0 => {}
                1 => assert!(matches!(rig.insert(&mut t, b"a", b"2"), Err(Error::DuplicateKey { .. }))),
                _ => {
                    let before = t.savepoint();
                    rig.insert(&mut t, b"b", b"2").unwrap();
                    t.rollback_to(before).unwrap();
                }
            }
            t.prepare(b"x", Durability::Configured).unwrap();
            if detach {
                t.detach_prepared();
                assert_eq!(t.state(), TrxState::Prepared, "nothing is there that somebody else could commit");
            }
            assert!(is_blocked(rig.lock(&mut rig.trx(), b"a", Strength::X)), "until it ends");
            drop(t);
            assert_eq!(rig.sys.prepared_xids(), Vec::<Vec<u8>>::new());
            assert!(!rig.sys.is_changed_by_prepared(ROWS).unwrap());
            assert!(!rig.sys.commit_by_xid(b"x").unwrap());
            rig.lock(&mut rig.trx(), b"a", Strength::X).unwrap();
        }
    }
}

/// A transaction may stay, prepared, until the ids after it have gone once round the commit table's directory, and over restarts.
#[test]
fn a_transaction_that_stays_does_not_stop_others() {
    use crate::commit_table::{CHUNK_IDS, DIRECTORY};
    let mut rig = Rig::small();
    let mut t = rig.trx();
    rig.insert(&mut t, b"a", b"1").unwrap();
    t.prepare(b"x", Durability::Sync).unwrap();
    drop(t);
    rig.sys.undo.reserve_ids(TrxId(DIRECTORY * CHUNK_IDS)).unwrap();
    rig.sys.flush_log().unwrap();
    let mut first = DIRECTORY * CHUNK_IDS + CHUNK_IDS;
    for round in 1..4u8 {
        rig = rig.crashed(round.into(), 400);
        let (mut t, mut other) = (rig.trx(), rig.trx());
        rig.insert(&mut t, &[round], b"2").unwrap();
        assert_eq!(t.id(), TrxId(first));
        first += CHUNK_IDS;
        assert_eq!(rig.get(&mut other, &[round]), None);
        t.commit(Durability::Sync).unwrap();
        other.rollback().unwrap();
        assert_eq!(rig.get(&mut other, &[round]), Some(b"2".to_vec()));
        assert_eq!(rig.get(&mut other, b"a"), None);
        assert!(is_blocked(rig.insert(&mut other, b"a", b"3")), "of the one that stays");
        rig.purge_all();
    }
    assert!(rig.sys.commit_by_xid(b"x").unwrap());
    assert_eq!(rig.scan(&mut rig.trx(), &rig.rows, true).len(), 4);
}

/// A damaged link in the undo log of an unfinished transaction is an error, not an endless loop, where pages of an earlier
/// version do not tell how many changes come before them.
#[test]
fn undo_chain_in_a_circle_is_refused() {
    use crate::undo::page::{DIRECTORY, DIR_HIGH_WATER, OFF_CHANGES_BEFORE, OFF_NEXT, OFF_PREV};
    use myriad_base::{codec::get_u32, page::PageKind, page::OFF_KIND, PageId, PageNo};
    let rig = Rig::small();
    let mut t = rig.trx();
    for i in 0..60 {
        let (kind, key, payload) = (OpKind::Insert, key(i), [7; 10]);
        t.apply(&[Op { kind, index: &rig.rows, key: &key, unique_len: 0, payload: &payload, head_len: 0 }]).unwrap();
        let (kind, payload) = (OpKind::Update, [8; 400]);
        t.apply(&[Op { kind, index: &rig.rows, key: &key, unique_len: 0, payload: &payload, head_len: 0 }]).unwrap();
        let payload = [9; 400];
        t.apply(&[Op { kind, index: &rig.rows, key: &key, unique_len: 0, payload: &payload, head_len: 0 }]).unwrap();
    }
    let pool = rig.sys.pool();
    let high_water = get_u32(&pool.fix_shared(DIRECTORY).unwrap(), DIR_HIGH_WATER);
    let undo = |no| PageId::new(SpaceId::UNDO, PageNo(no));
    let next = |no| {
        let p = pool.fix_shared(undo(no)).unwrap();
        (p[OFF_KIND] == PageKind::Undo as u8).then(|| PageNo(get_u32(&p, OFF_NEXT))).filter(|&n| n != PageNo::NONE)
    };
    // Behind the header's page: a page that another follows follows that one, too.
    let first = (1..high_water).map(PageNo).find(|no| next(no.0).is_some()).expect("a chain of pages");
    let chain: Vec<PageNo> = std::iter::successors(Some(first), |no| next(no.0)).collect();
    let mut mtr = myriad_buffer::Mtr::start(pool).unwrap();
    for &no in &chain {
        let p = mtr.fix(undo(no.0)).unwrap();
        mtr.write(p, OFF_CHANGES_BEFORE, &[0; 4]);
    }
    let p = mtr.fix(undo(chain[1].0)).unwrap();
    mtr.write(p, OFF_PREV, &chain[2].0.to_le_bytes());
    mtr.commit().unwrap();
    rig.sys.flush_log().unwrap();
    let sim = rig.sim.crash(1);
    std::mem::forget(t);
    assert!(matches!(try_open(&sim, 400, false, false), Err(Error::CorruptPage { .. })));
}
