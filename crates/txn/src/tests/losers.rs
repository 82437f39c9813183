//! Transactions that the background rolls back: what waits for them, and what they wait for.

use super::*;
use crate::undo::page::undo_page;
use myriad_base::clock::ManualClock;
use myriad_io::{CallKind, Fault};
use std::sync::atomic::{AtomicU32, Ordering};
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
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
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
    rig.start_background();
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
        rig.start_background();
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

/// A client's ROLLBACK undoes all or goes on in the background: what is away for a while is not left out.
#[test]
fn a_clients_rollback_leaves_out_nothing_that_is_away() {
    const ROWS_CHANGED: u64 = 400;
    let rig = Rig::new(5, 80, false);
    let (mut t, pool) = (rig.trx(), rig.sys.pool());
    (0..ROWS_CHANGED).for_each(|i| rig.insert(&mut t, &key(i), &[1; 400]).unwrap());
    t.commit(Durability::Sync).unwrap();
    (0..ROWS_CHANGED).for_each(|i| rig.update(&mut t, &key(i), &[2; 400]).unwrap());
    pool.checkpoint_now().unwrap();
    // Its file is closed, and cannot be opened again.
    pool.spaces().set_max_open_files(1);
    pool.spaces().get(SpaceId::UNDO).unwrap().file().unwrap();
    assert!(!pool.spaces().get(SPACE).unwrap().is_open());
    let (there, away) = (Path::new(DIR).join("#myriad/a.myr"), Path::new(DIR).join("#myriad/away"));
    rig.sim.rename(&there, &away).unwrap();
    assert!(matches!(t.rollback(), Err(Error::TablespaceUnavailable { .. })));
    assert!(matches!(rig.sys.rollback_losers_step(), Err(Error::TablespaceUnavailable { .. })));
    let mut states = Vec::new();
    rig.sys.list_trx(&mut |t| states.push((t.state, t.undo_records > 0)));
    assert_eq!(states, [(TrxState::RollingBack, true)]);
    rig.sim.rename(&away, &there).unwrap();
    assert!(is_blocked(rig.update(&mut t, &key(0), &[3])));
    t.rollback().unwrap();
    while rig.sys.rollback_losers_step().unwrap() {}
    let rows = rig.scan(&mut t, &rig.rows, true);
    assert_eq!((rows.len(), rows.iter().filter(|r| r.1 != [1; 400]).count()), (ROWS_CHANGED as usize, 0));
}

#[test]
fn what_is_undone_in_part_cannot_be_committed() {
    let rig = Rig::new(5, 80, false);
    let (mut t, pool) = (rig.trx(), rig.sys.pool());
    (0..400).for_each(|i| rig.insert(&mut t, &key(i), &[1; 400]).unwrap());
    t.commit(Durability::Sync).unwrap();
    rig.update(&mut t, &key(7), &[2; 400]).unwrap();
    let before = t.savepoint();
    (0..400).for_each(|i| rig.update(&mut t, &key(i), &[3; 400]).unwrap());
    pool.checkpoint_now().unwrap();
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    assert!(matches!(t.rollback_to(before), Err(Error::Io { .. })));
    let left = t.savepoint();
    assert!(left > before);
    t.rollback_to(left).unwrap();
    for ended in [t.prepare(b"x", Durability::Sync), t.commit(Durability::Sync)] {
        assert!(matches!(ended, Err(Error::Invalid { .. })), "{ended:?}");
    }
    rig.sim.clear_faults();
    t.rollback_to(before).unwrap();
    t.commit(Durability::Sync).unwrap();
    let rows = rig.scan(&mut t, &rig.rows, true);
    let changed: Vec<_> = rows.iter().filter(|r| r.1 != [1; 400]).collect();
    assert_eq!((rows.len(), changed), (400, vec![&(key(7), vec![2; 400])]));
}

/// A prepared transaction whose rollback fails before it begins, and is interrupted in the background, is found unfinished.
#[test]
fn half_of_a_prepared_transaction_is_not_found_prepared() {
    const CHANGED: u64 = 400;
    let rig = Rig::new(5, 80, false);
    let (mut t, pool) = (rig.trx(), rig.sys.pool());
    (0..3 * CHANGED).for_each(|i| rig.insert(&mut t, &key(i), &[1; 400]).unwrap());
    t.commit(Durability::Sync).unwrap();
    (0..CHANGED).for_each(|i| rig.update(&mut t, &key(i), &[2; 400]).unwrap());
    t.prepare(b"x", Durability::Sync).unwrap();
    pool.checkpoint_now().unwrap();
    let header = undo_page(t.undo.as_ref().unwrap().header.page());
    for _ in 0..9 {
        rig.entries();
    }
    assert!(!pool.is_resident(header));
    rig.sim.inject(CallKind::Read, "undo.myr", 0, Fault::Eio, true);
    assert!(matches!(t.rollback(), Err(Error::Io { .. })));
    rig.sim.clear_faults();
    rig.sim.inject(CallKind::Read, "a.myr", 9, Fault::Eio, true);
    assert!(matches!(rig.sys.rollback_losers_step(), Err(Error::Io { .. })));
    rig.sys.flush_log().unwrap();
    let next = rig.crashed(1, 80);
    assert!(next.sys.prepared_xids().is_empty());
    assert!(left(&next).is_some_and(|n| n > 0 && n < CHANGED));
    assert!(next.sys.rollback_losers_step().unwrap());
    let rows = next.scan(&mut next.trx(), &next.rows, true);
    assert_eq!((rows.len() as u64, rows.iter().filter(|r| r.1 != [1; 400]).count()), (3 * CHANGED, 0));
}

/// Reads of a start after a crash behind a transaction of `rows` changes, half of which a savepoint has undone before the last
/// 50; the count of its records is compared, too.
fn reads_of_start(rows: u64) -> u64 {
    let rig = Rig::small();
    let mut t = rig.trx();
    for i in 0..rows {
        rig.insert(&mut t, &key(i), &[2; 10]).unwrap();
    }
    let savepoint = t.savepoint();
    for i in rows..2 * rows {
        rig.insert(&mut t, &key(i), &[2; 10]).unwrap();
    }
    t.rollback_to(savepoint).unwrap();
    for i in 0..50 {
        rig.insert(&mut t, &key(5000 + i), &[2; 10]).unwrap();
    }
    rig.sys.flush_log().unwrap();
    rig.sys.pool().checkpoint_now().unwrap();
    let next = rig.crashed(1, 400);
    std::mem::forget(t);
    let reads = next.sim.calls(CallKind::Read);
    let mut records = 0;
    next.sys.list_trx(&mut |t| records += t.undo_records);
    assert_eq!(records, rows + 50);
    while next.sys.rollback_losers_step().unwrap() {}
    assert_eq!(next.get(&mut next.trx(), &key(1)), None);
    reads
}

#[test]
fn a_start_does_not_read_all_that_a_loser_has_changed() {
    let (few, many) = (reads_of_start(200), reads_of_start(2000));
    assert!(many <= few + 2, "{few} reads after 200 changes, {many} after 2,000");
}

/// Panics at the `nth` look of a thread of that name.
struct PanickingClock {
    thread: &'static str,
    nth: AtomicU32,
    clock: SystemClock,
}

impl Clock for PanickingClock {
    fn now(&self) -> Duration {
        if std::thread::current().name() == Some(self.thread) && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("as the test wants");
        }
        self.clock.now()
    }
    fn wall_us(&self) -> u64 {
        self.clock.wall_us()
    }
}

#[test]
fn a_panic_in_the_background_stops_the_engine_and_holds_nobody_up() {
    // The second one's comes while it has a transaction in hand.
    for (thread, nth) in [("myriad-sync", 1), ("myriad-rollback", 2)] {
        let sim = with_loser().sim.crash(3);
        let clock = Arc::new(PanickingClock { thread, nth: AtomicU32::new(nth), clock: SystemClock::new() });
        let sys = try_open_at(&sim, 400, false, false, clock).unwrap();
        let rig = Rig::over(sim, sys);
        rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
        rig.start_background();
        wait_until("the engine goes on", || rig.sys.pool().check_poison().is_err());
        let stopped = rig.sys.shutdown(true);
        assert!(matches!(&stopped, Err(Error::Poisoned { reason }) if reason.contains(thread)), "{stopped:?}");
    }
}

/// All that comes after it in its slot would wait: for ever, where a sector cannot be read.
#[test]
fn purge_passes_over_what_it_cannot_read() {
    for damaged in [true, false] {
        let rig = Rig::small();
        let mut t = rig.trx();
        (0..50).for_each(|i| rig.insert(&mut t, &key(i), &[1; 200]).unwrap());
        t.commit(Durability::Sync).unwrap();
        (0..50).for_each(|i| rig.delete(&mut t, &key(i)).unwrap());
        t.commit(Durability::Sync).unwrap();
        rig.sys.pool().checkpoint_now().unwrap();
        let sim = rig.sim.crash(1);
        match damaged {
            true => sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), 40, 3).unwrap(),
            false => sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true),
        }
        let clock = Arc::new(ManualClock::default());
        let sys = try_open_at(&sim, 400, false, false, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let next = Rig::over(sim, sys);
        if !damaged {
            for seconds in [0, 1, 58] {
                clock.advance(Duration::from_secs(seconds));
                assert!(matches!(next.sys.purge_step(), Err(Error::Io { .. })));
            }
            clock.advance(Duration::from_secs(1));
        }
        next.purge_all();
        assert_eq!(next.sys.purge_stats().history, 0);
        next.sim.clear_faults();
        assert!(damaged || next.entries() == 50);
    }
}
