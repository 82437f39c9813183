//! Transactions that the background rolls back: what waits for them, and what they wait for.

use super::*;
use std::time::Instant;

const LOST: u64 = 200;

/// Rows 0 to 99 are committed; rows from 1000 on are of a transaction that a crash has interrupted.
fn with_loser() -> Rig {
    let rig = Rig::small();
    let mut t = rig.trx();
    for i in 0..100 {
        rig.insert(&mut t, &key(i), &[1; 200]).unwrap();
    }
    t.commit(Durability::Sync).unwrap();
    for i in 0..LOST {
        rig.insert(&mut t, &key(1000 + i), &[2; 10]).unwrap();
    }
    rig.sys.flush_log().unwrap();
    let next = rig.crashed(1, 400);
    std::mem::forget(t);
    next
}

/// What is left to undo of the only transaction.
fn left(rig: &Rig) -> Option<u64> {
    let mut found = Vec::new();
    rig.sys.list_trx(&mut |t| {
        assert_eq!((t.state, t.recovered), (TrxState::RollingBack, true));
        found.push(t.undo_records);
    });
    assert!(found.len() <= 1);
    found.pop()
}

fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps the background from its first record, which is the last one made.
fn hold(rig: &Rig) -> myriad_btree::LeafShared<'_> {
    let mut full = ROWS.0.to_be_bytes().to_vec();
    full.extend_from_slice(&key(1000 + LOST - 1));
    rig.rows.tree.seek(rig.sys.pool(), &full).unwrap()
}

#[test]
fn commits_are_synced_each_second_while_a_loser_is_rolled_back() {
    let rig = with_loser();
    rig.sys.set_flush_policy(FlushPolicy::EverySecond);
    let held = hold(&rig);
    rig.sys.start_background();
    let mut t = rig.trx();
    rig.update(&mut t, &key(0), &[3; 200]).unwrap();
    t.commit(Durability::Configured).unwrap();
    let log = rig.sys.pool().log();
    let end = log.end_lsn();
    wait_until("the commit is not durable", || log.durable_lsn() >= end);
    assert_eq!(left(&rig), Some(LOST), "it shows while it is rolled back");
    drop(held);
    wait_until("it is not rolled back", || left(&rig).is_none());
    rig.sys.shutdown(false).unwrap();
}

#[test]
fn a_stop_interrupts_the_rollback_of_a_loser() {
    for all in [false, true] {
        let rig = with_loser();
        let held = hold(&rig);
        rig.sys.start_background();
        wait_until("it does not begin", || rig.sys.losers.waiting() == 0);
        let stopping = std::thread::spawn({
            let sys = Arc::clone(&rig.sys);
            move || sys.shutdown(all)
        });
        if !all {
            wait_until("it does not stop", || rig.sys.purge.stopping());
        }
        drop(held);
        stopping.join().unwrap().unwrap();
        if all {
            assert_eq!(left(&rig), None, "a shutdown that purges all leaves none");
            continue;
        }
        assert!(left(&rig).is_some_and(|n| n > 0 && n < LOST), "left: {:?}", left(&rig));
        // It goes on after the restart.
        rig.sys.flush_log().unwrap();
        let next = rig.crashed(2, 400);
        assert!(left(&next).is_some_and(|n| n > 0 && n < LOST), "left: {:?}", left(&next));
        assert!(next.sys.rollback_losers_step().unwrap());
        assert_eq!(left(&next), None);
        assert_eq!(next.scan(&mut next.trx(), &next.rows, true).len(), 100);
        assert_eq!(next.entries(), 100);
    }
}
