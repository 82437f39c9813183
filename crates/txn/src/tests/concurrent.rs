//! Threads.

use super::*;
use myriad_base::random::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn balance(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

/// Money moves between accounts, and accounts come and go; every snapshot sees the same total.
#[test]
fn totals_stay_the_same_in_every_snapshot() {
    let rig = Rig::new(2, 300, true);
    const ACCOUNTS: u64 = 200;
    let mut t = rig.trx();
    for i in 0..ACCOUNTS {
        rig.insert(&mut t, &key(i), &100u64.to_le_bytes()).unwrap();
    }
    t.commit(Durability::Configured).unwrap();
    rig.start_background();
    let stop = AtomicBool::new(false);
    let (done, deadlocks, reads) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let rig = &rig;
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..4u64)
            .map(|w| {
                let (done, deadlocks, reads) = (&done, &deadlocks, &reads);
                s.spawn(move || {
                    let mut random = Random::from_seed(w);
                    let mut t = rig.sys.begin(Isolation::RepeatableRead);
                    let mut tried = 0;
                    // On a busy machine the reader may begin last.
                    let waits = |tried| reads.load(Ordering::Relaxed) == 0 && tried < 70_000 * scale();
                    while tried < 700 * scale() || waits(tried) {
                        tried += 1;
                        match transfer(rig, &mut t, &mut random, ACCOUNTS) {
                            Ok(()) => {
                                t.commit(Durability::None).unwrap();
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::Deadlock) => {
                                t.rollback().unwrap();
                                deadlocks.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            })
            .collect();
        let reader = s.spawn(|| {
            let mut t = rig.sys.begin(Isolation::RepeatableRead);
            while !stop.load(Ordering::Relaxed) {
                for forward in [true, false] {
                    let rows = rig.scan(&mut t, &rig.rows, forward);
                    assert_eq!(rows.iter().map(|r| balance(&r.1)).sum::<u64>(), ACCOUNTS * 100);
                }
                t.commit(Durability::None).unwrap();
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        for w in workers {
            w.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert!(done.load(Ordering::Relaxed) > 1000, "{deadlocks:?} deadlocks");
    rig.sys.shutdown(true).unwrap();
    assert_eq!(rig.sys.purge_stats().history, 0);
    let mut t = rig.trx();
    assert_eq!(rig.entries() as u64, t.count(&rig.rows).unwrap());
    assert_eq!(rig.sys.locks().stats().waiting_now, 0);
}

fn transfer(rig: &Rig, t: &mut Trx, random: &mut Random, accounts: u64) -> Result<()> {
    let (from, to) = (key(random.below(accounts)), key(random.below(accounts)));
    let mut row = RowBuf::new();
    if from == to || !t.get(&rig.rows, &from, false, Some(Strength::X), LockWait::Wait, &mut row)? {
        return Ok(());
    }
    let amount = balance(row.value()).min(random.below(20));
    let left = balance(row.value()) - amount;
    if left == 0 {
        rig.delete(t, &from)?;
    } else {
        let mut payload = left.to_le_bytes().to_vec();
        payload.resize(8 + random.below(60) as usize, 1);
        rig.update(t, &from, &payload)?;
    }
    if t.get(&rig.rows, &to, false, Some(Strength::X), LockWait::Wait, &mut row)? {
        let sum = balance(row.value()) + amount;
        rig.update(t, &to, &sum.to_le_bytes())
    } else {
        rig.insert(t, &to, &amount.to_le_bytes())
    }
}

/// Each transaction counts a range with locks, inserts into it, and counts again: nobody else may have got in between.
#[test]
fn no_phantoms_in_locked_ranges() {
    let rig = Rig::new(4, 400, true);
    let mut t = rig.trx();
    for i in 0..300u64 {
        rig.insert(&mut t, &key(i * 1000), &[0; 150]).unwrap();
    }
    t.commit(Durability::Configured).unwrap();
    rig.start_background();
    let rig = &rig;
    let finished = AtomicU64::new(0);
    std::thread::scope(|s| {
        for w in 0..4u64 {
            let finished = &finished;
            s.spawn(move || {
                let mut random = Random::from_seed(w + 100);
                let mut t = rig.sys.begin(Isolation::RepeatableRead);
                for _ in 0..250 * scale() {
                    match phantom_try(rig, &mut t, &mut random, w) {
                        Ok(()) => {
                            finished.fetch_add(1, Ordering::Relaxed);
                            t.commit(Durability::None).unwrap();
                        }
                        Err(Error::Deadlock) => t.rollback().unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert!(finished.load(Ordering::Relaxed) > 50);
    rig.sys.shutdown(true).unwrap();
}

fn phantom_try(rig: &Rig, t: &mut Trx, random: &mut Random, worker: u64) -> Result<()> {
    let low = random.below(299) * 1000;
    let high = low + 1 + random.below(20) * 1000;
    let mut cursor = Cursor::new(rig.rows, CursorOptions { lock: Some(Strength::X), ..plain() });
    let mut count = |t: &mut Trx| -> Result<Vec<Vec<u8>>> {
        let mut rows = vec![];
        let mut more = cursor.seek(t, Seek::Gt, &key(low))?;
        while more && cursor.key() <= &key(high)[..] {
            rows.push(cursor.key().to_vec());
            more = cursor.next(t)?;
        }
        Ok(rows)
    };
    let before = count(t)?;
    let mine = key(low + 1 + random.below(high - low - 1) / 8 * 8 + worker);
    std::thread::yield_now();
    let mut expect = before.clone();
    match before.iter().position(|k| *k == mine) {
        Some(at) => {
            rig.delete(t, &mine)?;
            expect.remove(at);
        }
        None => {
            match rig.insert(t, &mine, &[9; 100]) {
                Err(Error::DuplicateKey { .. }) => {}
                other => other?,
            }
            if mine > key(low) && mine <= key(high) {
                expect.push(mine);
                expect.sort();
            }
        }
    }
    assert_eq!(count(t)?, expect);
    if random.one_in(3) {
        t.rollback()?;
    }
    Ok(())
}

/// Many threads insert the same names; each name gets in once.
#[test]
fn unique_prefixes_stay_unique() {
    let rig = Rig::new(5, 300, true);
    rig.start_background();
    let rig = &rig;
    std::thread::scope(|s| {
        for w in 0..4u64 {
            s.spawn(move || {
                let mut random = Random::from_seed(w);
                let mut t = rig.sys.begin(Isolation::ReadCommitted);
                for i in 0..1500 * scale() {
                    let mut k = key(random.below(400));
                    k.extend_from_slice(&key(w << 32 | i));
                    let done = match rig.one(&mut t, OpKind::Insert, &rig.names, &k, 8, &[1; 60]) {
                        Ok(()) if random.one_in(2) => rig.one(&mut t, OpKind::Delete, &rig.names, &k, 0, &[]),
                        other => other,
                    };
                    match done {
                        Ok(()) if random.one_in(4) => t.rollback().unwrap(),
                        Ok(()) | Err(Error::DuplicateKey { .. }) => t.commit(Durability::None).unwrap(),
                        Err(Error::Deadlock) => t.rollback().unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    let mut t = rig.trx();
    let rows = rig.scan(&mut t, &rig.names, true);
    assert!(rows.len() > 100);
    assert!(rows.windows(2).all(|w| w[0].0[..8] != w[1].0[..8]));
    drop(t);
    rig.sys.shutdown(true).unwrap();
    assert_eq!(rig.entries(), rows.len());
}

/// The secondary key of a row: a byte of its payload, then its key.
fn name(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut n = vec![payload[0]];
    n.extend_from_slice(key);
    n
}

fn change_row(rig: &Rig, t: &mut Trx, random: &mut Random) -> Result<()> {
    let k = key(random.below(300));
    let long = if random.one_in(40) { 9000 } else { 300 };
    let payload = vec![random.next_u64() as u8; 1 + random.below(long) as usize];
    let mut row = RowBuf::new();
    let found = t.get(&rig.rows, &k, false, Some(Strength::X), LockWait::Wait, &mut row)?;
    let payload = if found { maybe_same_tail(random, row.value(), payload) } else { payload };
    let op = |kind, index, key, payload| Op { kind, index, key, unique_len: 0, payload, head_len: head_len(payload) };
    let (old, new) = (if found { name(&k, row.value()) } else { vec![] }, name(&k, &payload));
    let mut ops = vec![];
    if !found {
        ops.push(Op { unique_len: 8, ..op(OpKind::Insert, &rig.rows, &k, &payload) });
        ops.push(op(OpKind::Insert, &rig.names, &new, &payload[..1]));
    } else if random.one_in(3) {
        ops.push(op(OpKind::Delete, &rig.rows, &k, &[]));
        ops.push(op(OpKind::Delete, &rig.names, &old, &[]));
    } else {
        ops.push(op(OpKind::Update, &rig.rows, &k, &payload));
        if old != new {
            ops.push(op(OpKind::Delete, &rig.names, &old, &[]));
            ops.push(op(OpKind::Insert, &rig.names, &new, &payload[..1]));
        }
    }
    match t.apply(&ops) {
        Err(ApplyError { error: Error::DuplicateKey { .. }, .. }) => Ok(()),
        other => other.map_err(|e| e.error),
    }
}

/// Every snapshot sees a row and its secondary entry together or neither, and the same at each look.
#[test]
fn indexes_agree_in_every_snapshot() {
    let rig = Rig::new(6, 150, true);
    rig.start_background();
    let rig = &rig;
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..4u64)
            .map(|w| {
                s.spawn(move || {
                    let mut random = Random::from_seed(seed() + w);
                    let level = if w % 2 == 0 { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
                    let mut t = rig.sys.begin(level);
                    for _ in 0..400 * scale() {
                        let mut fate = Ok(());
                        for _ in 0..=random.below(8) {
                            let sp = t.savepoint();
                            fate = change_row(rig, &mut t, &mut random);
                            if fate.is_err() {
                                break;
                            }
                            if random.one_in(10) {
                                t.rollback_to(sp).unwrap();
                            }
                        }
                        match fate {
                            Ok(()) if !random.one_in(5) => t.commit(Durability::None).unwrap(),
                            Ok(()) | Err(Error::Deadlock) => t.rollback().unwrap(),
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            s.spawn(|| {
                let mut t = rig.sys.begin(Isolation::RepeatableRead);
                while !stop.load(Ordering::Relaxed) {
                    let rows = rig.scan(&mut t, &rig.rows, true);
                    let mut expect: Vec<_> = rows.iter().map(|(k, v)| (name(k, v), v[..1].to_vec())).collect();
                    expect.sort();
                    assert_eq!(rig.scan(&mut t, &rig.names, false), expect);
                    assert_eq!(rig.scan(&mut t, &rig.rows, false), rows);
                    assert_eq!(t.count(&rig.names).unwrap(), expect.len() as u64);
                    t.commit(Durability::None).unwrap();
                }
            });
        }
        for w in writers {
            w.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    rig.sys.shutdown(true).unwrap();
    assert_eq!(rig.sys.purge_stats().history, 0);
    let mut t = rig.trx();
    assert_eq!(rig.entries() as u64, 2 * t.count(&rig.rows).unwrap());
    for (k, _) in rig.scan(&mut t, &rig.rows, true) {
        rig.delete(&mut t, &k).unwrap();
    }
    for (k, _) in rig.scan(&mut t, &rig.names, true) {
        rig.one(&mut t, OpKind::Delete, &rig.names, &k, 0, &[]).unwrap();
    }
    t.commit(Durability::None).unwrap();
    rig.purge_all();
    assert_eq!(rig.entries(), 0);
    let pages = myriad_btree::alloc::pages_in_use(rig.sys.pool(), SPACE).unwrap();
    // A promoted index keeps a root, and its neighbours in the pack tree a page for each level.
    let bound = 8 + 3 * rig.sys.promotions();
    assert!(pages <= bound, "{pages} pages for nothing: overflow pages leak");
}

fn seed() -> u64 {
    super::crash::seeds(1).start
}

/// MYRIAD_SCALE makes it longer.
pub(crate) fn scale() -> u64 {
    std::env::var("MYRIAD_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}
