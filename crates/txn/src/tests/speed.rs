//! Not a check but a stopwatch: `cargo test --release -p myriad-txn speed -- --ignored --nocapture`.

use super::*;
use std::time::Instant;

fn timed(what: &str, n: u64, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    eprintln!("{what}: {:.0} ns each", start.elapsed().as_nanos() as f64 / n as f64);
}

#[test]
#[ignore = "a stopwatch"]
fn speed() {
    let rig = Rig::new(1, 40_000, true);
    rig.start_background();
    let mut t = rig.trx();
    const N: u64 = 100_000;
    let at = |i: u64| key(i.wrapping_mul(0x9e37_79b9) % N * 4);
    timed("insert ascending, one transaction", N, || {
        for i in 0..N {
            rig.insert(&mut t, &key(i * 4), &[1; 180]).unwrap();
        }
        t.commit(Durability::None).unwrap();
    });
    timed("get", N, || {
        let mut row = RowBuf::new();
        for i in 0..N {
            assert!(t.get(&rig.rows, &at(i), false, None, LockWait::Wait, &mut row).unwrap());
        }
        t.commit(Durability::None).unwrap();
    });
    timed("get, each its own transaction", N, || {
        let mut row = RowBuf::new();
        for i in 0..N {
            assert!(t.get(&rig.rows, &at(i), false, None, LockWait::Wait, &mut row).unwrap());
            t.commit(Durability::None).unwrap();
        }
    });
    timed("descent alone", N, || {
        for i in 0..N {
            let mut k = vec![0, 0, 7, 0xd0];
            k.extend_from_slice(&at(i));
            drop(rig.rows.tree.seek(rig.sys.pool(), &k).unwrap());
        }
    });
    timed("locking get", N, || {
        let mut row = RowBuf::new();
        for i in 0..N {
            assert!(t.get(&rig.rows, &at(i), false, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
        }
        t.commit(Durability::None).unwrap();
    });
    timed("update, each its own transaction", N, || {
        for i in 0..N {
            rig.update(&mut t, &at(i), &[i as u8; 180]).unwrap();
            t.commit(Durability::None).unwrap();
        }
    });
    timed("locking get and update, each its own transaction", N, || {
        let mut row = RowBuf::new();
        for i in 0..N {
            assert!(t.get(&rig.rows, &at(i), false, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
            rig.update(&mut t, &at(i), &[i as u8; 180]).unwrap();
            t.commit(Durability::None).unwrap();
        }
    });
    timed("update all, one transaction", N, || {
        for i in 0..N {
            rig.update(&mut t, &key(i * 4), &[7; 180]).unwrap();
        }
        t.commit(Durability::None).unwrap();
    });
    timed("scan", N, || assert!(scan_all(&rig, &mut t, plain()) > 0));
    timed("locking scan", N, || assert!(scan_all(&rig, &mut t, locking(Strength::X)) > 0));
    t.commit(Durability::None).unwrap();
    timed("count", N, || assert_eq!(t.count(&rig.rows).unwrap(), N));
    timed("insert in the gaps, each its own transaction", N, || {
        for i in 0..N {
            let mut k = at(i);
            k[7] += 1;
            rig.insert(&mut t, &k, &[1; 180]).unwrap();
            t.commit(Durability::None).unwrap();
        }
    });
    timed("delete, each its own transaction", N, || {
        for i in 0..N {
            rig.delete(&mut t, &at(i)).unwrap();
            t.commit(Durability::None).unwrap();
        }
    });
    timed("purge of the rest", N, || rig.purge_all());
    eprintln!("{:?}", rig.sys.purge_stats());
    rig.sys.shutdown(false).unwrap();
}

fn scan_all(rig: &Rig, t: &mut Trx, options: CursorOptions) -> u64 {
    let mut c = Cursor::new(rig.rows, options);
    let mut n = 0;
    let mut more = c.seek(t, Seek::First, &[]).unwrap();
    while more {
        n += c.value().len() as u64;
        more = c.next(t).unwrap();
    }
    n
}
