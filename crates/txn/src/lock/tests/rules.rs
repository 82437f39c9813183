//! Conflicts, queue order, upgrades, deadlocks, time-outs, kills, implicit locks, inheritance, listing.

use super::super::deadlock::HOLDERS_LOOKED_AT;
use super::*;
use myriad_base::Error;

const ALL: [LockMode; 7] = [
    LockMode::S_RECORD,
    LockMode::X_RECORD,
    LockMode::S_GAP,
    LockMode::X_GAP,
    LockMode::S_NEXT_KEY,
    LockMode::X_NEXT_KEY,
    LockMode::INSERT_INTENTION,
];

#[test]
fn the_table_follows_the_matrix() {
    for held in ALL {
        for asked in ALL {
            let table = table();
            let (a, b) = (trx(1), trx(2));
            assert!(try_lock(&table, &a, 1, held));
            // Insert intentions leave nothing behind.
            let conflict = asked.conflicts_with(held) && held.extent != Extent::InsertIntention;
            assert_eq!(try_lock(&table, &b, 1, asked), !conflict, "{asked} behind {held}");
            assert!(try_lock(&table, &b, 2, asked), "another key");
            table.release_all(&b);
            assert!(try_lock(&table, &a, 1, asked), "nobody waits for himself");
            done(&table, &[&a, &b]);
        }
    }
}

#[test]
fn held_locks_cover_weaker_requests() {
    let covers = |held: &[LockMode], asked: LockMode| {
        let table = table();
        let a = trx(1);
        for &mode in held {
            assert!(try_lock(&table, &a, 1, mode));
        }
        let LockOutcome::Granted { new } = ask(&table, &a, 1, asked) else { panic!("own lock") };
        done(&table, &[&a]);
        !new
    };
    use LockMode as M;
    assert!(covers(&[M::X_NEXT_KEY], M::S_RECORD));
    assert!(covers(&[M::X_NEXT_KEY], M::X_GAP));
    assert!(covers(&[M::X_RECORD, M::S_GAP], M::S_NEXT_KEY));
    assert!(!covers(&[M::X_RECORD, M::S_GAP], M::X_NEXT_KEY));
    assert!(!covers(&[M::X_RECORD], M::X_NEXT_KEY));
    assert!(!covers(&[M::S_RECORD], M::X_RECORD));
    assert!(!covers(&[M::X_GAP], M::S_RECORD));
}

#[test]
fn first_come_first_served() {
    let table = table();
    let (a, b, c, d) = (trx(1), trx(2), trx(3), trx(4));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert!(!try_lock(&table, &c, 1, LockMode::S_RECORD), "not past the waiting X");
    let tc = queue(&table, &c, 1, LockMode::S_RECORD);
    let td = queue(&table, &d, 1, LockMode::S_NEXT_KEY);
    table.release_all(&a);
    assert_eq!(granted_modes(&table, 1), [(2, "X,REC_NOT_GAP")]);
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Granted);
    table.release_all(&b);
    assert_eq!(granted_modes(&table, 1), [(3, "S,REC_NOT_GAP"), (4, "S")], "both readers at once");
    assert_eq!(table.wait(&c, tc, LONG), WaitOutcome::Granted);
    assert_eq!(table.wait(&d, td, LONG), WaitOutcome::Granted);
    done(&table, &[&c, &d]);
}

/// As InnoDB of MariaDB 10.11: one could let the upgrade pass, but the outcome would be another.
#[test]
fn an_upgrade_behind_a_waiter_is_a_deadlock_that_the_waiter_loses() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&b);
    let ta = queue(&table, &a, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&a, ta, LONG), WaitOutcome::Granted);
    assert_eq!(sb.join().unwrap(), WaitOutcome::Deadlock);
    done(&table, &[&a, &b]);
}

#[test]
fn two_upgrades_are_a_deadlock() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 1, LockMode::S_RECORD));
    let ta = queue(&table, &a, 1, LockMode::X_RECORD);
    let sleeping = sleeper(&table, &a, ta);
    until_waiting(&a);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Deadlock, "equal weights: the requester");
    table.release_all(&b);
    assert_eq!(sleeping.join().unwrap(), WaitOutcome::Granted);
    done(&table, &[&a]);
    assert_eq!(table.stats().deadlocks, 1);
}

#[test]
fn rows_that_are_only_locked_weigh_little_against_changes() {
    for (rows_locked, reader_loses) in [(40, true), (400, false)] {
        let table = table();
        let (reader, writer) = (trx(1), trx(2));
        writer.set_weight(3);
        for row in 0..rows_locked {
            assert!(try_lock(&table, &reader, 1000 + row, LockMode::X_RECORD));
        }
        assert!(try_lock(&table, &writer, 1, LockMode::X_RECORD));
        let t = queue(&table, &reader, 1, LockMode::X_RECORD);
        let reading = sleeper(&table, &reader, t);
        until_waiting(&reader);
        let t = queue(&table, &writer, 1000, LockMode::X_RECORD);
        let writing = sleeper(&table, &writer, t);
        let (first, second) = if reader_loses {
            ((reading, &reader), (writing, &writer))
        } else {
            ((writing, &writer), (reading, &reader))
        };
        assert_eq!(first.0.join().unwrap(), WaitOutcome::Deadlock, "{rows_locked} rows locked");
        table.release_all(first.1);
        assert_eq!(second.0.join().unwrap(), WaitOutcome::Granted);
        done(&table, &[second.1]);
    }
}

#[test]
fn the_lightest_is_the_victim() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    b.set_weight(100);
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    assert!(try_lock(&table, &b, 2, LockMode::X_RECORD));
    let ta = queue(&table, &a, 2, LockMode::X_RECORD);
    let sleeping = sleeper(&table, &a, ta);
    until_waiting(&a);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let other = sleeper(&table, &b, tb);
    assert_eq!(sleeping.join().unwrap(), WaitOutcome::Deadlock);
    table.release_all(&a);
    assert_eq!(other.join().unwrap(), WaitOutcome::Granted);
    done(&table, &[&b]);
}

#[test]
fn rings_are_deadlocks_at_once() {
    for n in 2..=12u32 {
        for lightest in [0, n / 2, n - 1] {
            let table = table();
            let trxs: Vec<_> = (0..n).map(|i| trx(u64::from(i) + 1)).collect();
            for (i, t) in (0..).zip(&trxs) {
                t.set_weight(if i == lightest { 1 } else { 10 });
                assert!(try_lock(&table, t, i, LockMode::X_NEXT_KEY));
            }
            let start = Instant::now();
            let mut threads = Vec::new();
            for (i, t) in (0..).zip(&trxs) {
                let token = queue(&table, t, (i + 1) % n, LockMode::S_RECORD);
                let (table, t) = (Arc::clone(&table), Arc::clone(t));
                threads.push(std::thread::spawn(move || {
                    let outcome = table.wait(&t, token, LONG);
                    table.release_all(&t);
                    outcome
                }));
            }
            let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            for (i, &outcome) in (0..).zip(&outcomes) {
                let expected = if i == lightest { WaitOutcome::Deadlock } else { WaitOutcome::Granted };
                assert_eq!(outcome, expected, "ring of {n}, member {i}");
            }
            elapsed_below(start, LONG / 2);
            done(&table, &[]);
        }
    }
}

#[test]
fn a_search_looks_at_the_holders_of_a_lock_once() {
    let table = table();
    const EACH: u64 = 40;
    let last = trx(1);
    assert!(try_lock(&table, &last, 3, LockMode::X_RECORD));
    let groups = [1u64, 2].map(|n| (0..EACH).map(|i| trx(n * 100 + i)).collect::<Vec<_>>());
    for (key, group) in [(1, &groups[0]), (2, &groups[1])] {
        assert!(group.iter().all(|t| try_lock(&table, t, key, LockMode::S_RECORD)));
    }
    let mut sleeping = Vec::new();
    for (key, group) in [(2, &groups[1]), (1, &groups[0])] {
        for t in group {
            let token = queue(&table, t, key + 1, LockMode::X_RECORD);
            sleeping.push(sleeper(&table, t, token));
            until_waiting(t);
        }
    }
    let first = trx(2);
    let token = queue(&table, &first, 1, LockMode::X_RECORD);
    let before = HOLDERS_LOOKED_AT.get();
    assert_eq!(table.wait(&first, token, Duration::from_millis(1)), WaitOutcome::Timeout);
    // Who holds key 1, who holds key 2, who holds key 3.
    assert_eq!(HOLDERS_LOOKED_AT.get() - before, 2 * EACH + 1);
    // And what it leaves out closes no circle: the last one waits for the first group, so all wait for each other.
    let token = queue(&table, &last, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&last, token, LONG), WaitOutcome::Deadlock);
    table.release_all(&last);
    table.release_all(&first);
    for t in groups.iter().flatten() {
        t.kill();
    }
    for thread in sleeping {
        assert_ne!(thread.join().unwrap(), WaitOutcome::Timeout);
    }
    done(&table, &groups.iter().flatten().collect::<Vec<_>>());
}

#[test]
fn waiting_behind_a_waiter_can_be_a_deadlock() {
    // c waits behind b's *waiting* X on key 1; b waits for a; a waits for c.
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    assert!(try_lock(&table, &c, 2, LockMode::X_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&b);
    let tc = queue(&table, &c, 1, LockMode::S_RECORD);
    let sc = sleeper(&table, &c, tc);
    until_waiting(&c);
    let ta = queue(&table, &a, 2, LockMode::S_RECORD);
    b.set_weight(5);
    c.set_weight(5);
    a.set_weight(5);
    // b is the lightest: it holds no lock.
    let sa = sleeper(&table, &a, ta);
    assert_eq!(sb.join().unwrap(), WaitOutcome::Deadlock);
    table.release_all(&b);
    assert_eq!(sc.join().unwrap(), WaitOutcome::Granted);
    table.release_all(&c);
    assert_eq!(sa.join().unwrap(), WaitOutcome::Granted);
    done(&table, &[&a]);
}

#[test]
fn an_inherited_gap_can_close_a_cycle() {
    // b sleeps for a's key 1 and holds a lock on 5; a sleeps as inserter before 6. Then 5 is purged: b's lock becomes a gap
    // lock on 6, and a waits for b.
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    a.set_weight(9);
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    assert!(try_lock(&table, &b, 5, LockMode::X_RECORD));
    assert!(try_lock(&table, &c, 6, LockMode::S_GAP));
    let ta = queue(&table, &a, 6, LockMode::INSERT_INTENTION);
    let sa = sleeper(&table, &a, ta);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&a);
    until_waiting(&b);
    table.inherit_on_remove(LockKey::entry(&key_bytes(5)), LockKey::entry(&key_bytes(6)));
    assert_eq!(sb.join().unwrap(), WaitOutcome::Deadlock);
    table.release_all(&b);
    table.release_all(&c);
    assert_eq!(sa.join().unwrap(), WaitOutcome::Granted);
    done(&table, &[&a]);
}

#[test]
fn an_implicit_lock_made_explicit_can_close_a_cycle() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    // b wrote entry 2 and sleeps for 1; a wants 2, which c reads as well.
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&b);
    a.set_weight(9);
    let k = key_bytes(2);
    assert_eq!(table.convert_implicit(&b, TrxId(2), LockKey::entry(&k)), ImplicitHolder::Active);
    assert_eq!(table.convert_implicit(&b, TrxId(2), LockKey::entry(&k)), ImplicitHolder::Active);
    assert_eq!(b.locks_held(), 1);
    assert!(!try_lock(&table, &c, 2, LockMode::S_RECORD));
    let ta = queue(&table, &a, 2, LockMode::X_RECORD);
    let sa = sleeper(&table, &a, ta);
    assert_eq!(sb.join().unwrap(), WaitOutcome::Deadlock);
    table.release_all(&b);
    assert_eq!(sa.join().unwrap(), WaitOutcome::Granted);
    assert_eq!(table.convert_implicit(&b, TrxId(2), LockKey::entry(&k)), ImplicitHolder::Finished);
    b.begin(TrxId(7), Inheritance::All);
    assert_eq!(
        table.convert_implicit(&b, TrxId(2), LockKey::entry(&k)),
        ImplicitHolder::Finished,
        "another transaction"
    );
    done(&table, &[&a, &b]);
}

#[test]
fn detection_can_be_switched() {
    let table = table();
    table.set_deadlock_detect(false);
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    assert!(try_lock(&table, &b, 2, LockMode::X_RECORD));
    let ta = queue(&table, &a, 2, LockMode::X_RECORD);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, Duration::from_millis(20)), WaitOutcome::Timeout);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sa = sleeper(&table, &a, ta);
    until_waiting(&a);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&b);
    table.set_deadlock_detect(true);
    // Whichever looks first is the victim; it must be exactly one.
    let ends = [(sa, a), (sb, b)].map(|(sleeping, t)| {
        let table = Arc::clone(&table);
        std::thread::spawn(move || {
            let outcome = sleeping.join().unwrap();
            table.release_all(&t);
            outcome
        })
    });
    let victims = ends.map(|end| end.join().unwrap()).iter().filter(|&&o| o == WaitOutcome::Deadlock).count();
    assert_eq!(victims, 1);
    done(&table, &[]);
}

#[test]
fn a_timeout_frees_those_behind() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let tc = queue(&table, &c, 1, LockMode::S_RECORD);
    let sc = sleeper(&table, &c, tc);
    let start = Instant::now();
    assert_eq!(table.wait(&b, tb, Duration::from_millis(50)), WaitOutcome::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(sc.join().unwrap(), WaitOutcome::Granted);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, Duration::ZERO), WaitOutcome::Timeout);
    let stats = table.stats();
    assert_eq!((stats.waits, stats.timeouts, stats.waiting_now), (3, 2, 0));
    done(&table, &[&a, &b, &c]);
}

#[test]
fn kill_interrupts_now_and_next_time() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let sb = sleeper(&table, &b, tb);
    until_waiting(&b);
    b.kill();
    assert_eq!(sb.join().unwrap(), WaitOutcome::Interrupted);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Interrupted);
    b.reset_kill();
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, Duration::from_millis(1)), WaitOutcome::Timeout);
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    table.release_all(&a);
    b.kill();
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Granted, "the grant came first");
    b.reset_kill();
    done(&table, &[&b]);
}

#[test]
fn a_lost_token_does_not_stay_in_the_queue() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    drop(queue(&table, &b, 1, LockMode::X_RECORD));
    let tc = queue(&table, &c, 1, LockMode::X_RECORD);
    table.release_all(&b);
    table.cancel(&c, tc);
    let tc = queue(&table, &c, 1, LockMode::X_RECORD);
    table.release_all(&a);
    table.cancel(&c, tc);
    assert_eq!(granted_modes(&table, 1), [(3, "X,REC_NOT_GAP")], "granted before it was cancelled");
    done(&table, &[&c]);
}

#[test]
fn locks_on_neighbouring_keys_are_kept_together() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    for key in 0..40 {
        assert!(try_lock(&table, &a, key, LockMode::X_NEXT_KEY));
        assert!(try_lock(&table, &a, key, LockMode::X_RECORD), "covered");
    }
    assert_eq!((table.queues(), a.locks_held()), (3, 40));
    for key in 0..40 {
        assert_eq!(granted_modes(&table, key), [(1, "X")]);
    }
    // A row given back, and a group that another transaction enters.
    table.release_one(&a, LockKey::entry(&key_bytes(39)), LockMode::X_NEXT_KEY);
    assert!(try_lock(&table, &b, 39, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 39, LockMode::X_RECORD));
    assert!(!try_lock(&table, &b, 38, LockMode::S_RECORD));
    let (waits_b, waits_c) =
        (queue(&table, &b, 5, LockMode::S_RECORD), queue(&table, &c, 6, LockMode::INSERT_INTENTION));
    assert_eq!((table.queues(), a.locks_held(), b.locks_held()), (3, 39, 2));
    for key in 0..39 {
        assert_eq!(granted_modes(&table, key), [(1, "X")], "{key}");
    }
    assert!(try_lock(&table, &a, 7, LockMode::X_RECORD) && try_lock(&table, &a, 39, LockMode::X_GAP));
    assert_eq!(a.locks_held(), 40);
    table.release_all(&a);
    assert_eq!(table.wait(&b, waits_b, LONG), WaitOutcome::Granted);
    assert_eq!(table.wait(&c, waits_c, LONG), WaitOutcome::Granted);
    assert_eq!(granted_modes(&table, 5), [(2, "S,REC_NOT_GAP")]);
    assert_eq!((c.locks_held(), granted_modes(&table, 6)), (0, vec![]));
    done(&table, &[&b, &c]);
}

#[test]
fn implicit_requests_store_nothing_unless_they_wait() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    let k = key_bytes(1);
    let write = |t| table.request_implicit(t, LockKey::entry(&k), WaitPolicy::Wait);
    assert!(matches!(write(&a), LockOutcome::Granted { new: false }));
    assert_eq!(table.queues(), 0);
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    let LockOutcome::Waiting(token) = write(&b) else { panic!("a reads it") };
    table.release_all(&a);
    assert_eq!(table.wait(&b, token, LONG), WaitOutcome::Granted);
    assert!(matches!(write(&b), LockOutcome::Granted { new: false }));
    assert!(!try_lock(&table, &a, 1, LockMode::S_RECORD));
    done(&table, &[&a, &b]);
}

#[test]
fn supremum_has_only_a_gap() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    let end = LockKey::supremum(IndexId(7));
    let ask = |t, mode| table.request(t, end, mode, WaitPolicy::NoWait);
    assert!(matches!(ask(&a, LockMode::X_NEXT_KEY), LockOutcome::Granted { new: true }));
    assert!(matches!(ask(&b, LockMode::X_NEXT_KEY), LockOutcome::Granted { new: true }));
    assert!(matches!(ask(&b, LockMode::INSERT_INTENTION), LockOutcome::WouldBlock));
    table.release_one(&a, end, LockMode::X_NEXT_KEY);
    assert!(matches!(ask(&b, LockMode::INSERT_INTENTION), LockOutcome::Granted { new: false }));
    assert!(matches!(
        table.request(&a, LockKey::supremum(IndexId(8)), LockMode::INSERT_INTENTION, WaitPolicy::NoWait),
        LockOutcome::Granted { new: false }
    ));
    done(&table, &[&a, &b]);
}

#[test]
fn an_insert_splits_the_gap_for_its_lockers() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 10, LockMode::X_NEXT_KEY));
    assert!(try_lock(&table, &b, 10, LockMode::S_GAP));
    assert!(try_lock(&table, &b, 20, LockMode::X_RECORD));
    table.inherit_on_insert(LockKey::entry(&key_bytes(5)), LockKey::entry(&key_bytes(10)));
    assert_eq!(granted_modes(&table, 5), [(1, "X,GAP"), (2, "S,GAP")]);
    assert!(!try_lock(&table, &c, 5, LockMode::INSERT_INTENTION));
    assert!(try_lock(&table, &c, 5, LockMode::X_RECORD));
    table.inherit_on_insert(LockKey::entry(&key_bytes(15)), LockKey::entry(&key_bytes(20)));
    assert_eq!(granted_modes(&table, 15), [], "a record lock covers no gap");
    table.inherit_on_insert(LockKey::entry(&key_bytes(5)), LockKey::entry(&key_bytes(10)));
    assert_eq!(granted_modes(&table, 5).len(), 3, "none twice");
    done(&table, &[&a, &b, &c]);
}

/// A transaction that fills a gap that it has locked has a lock on each of its rows.
#[test]
fn inherited_locks_of_neighbours_are_one_run() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1000, LockMode::X_NEXT_KEY));
    for key in 0..64 {
        table.inherit_on_insert(LockKey::entry(&key_bytes(key)), LockKey::entry(&key_bytes(1000)));
    }
    assert_eq!((table.queues(), a.locks_held()), (5, 65));
    for key in 0..64 {
        assert_eq!(granted_modes(&table, key), [(1, "X,GAP")]);
    }
    let waits = queue(&table, &b, 5, LockMode::INSERT_INTENTION);
    table.release_all(&a);
    assert_eq!(table.wait(&b, waits, LONG), WaitOutcome::Granted);
    done(&table, &[&a, &b]);
}

#[test]
fn who_has_many_locks_gets_no_more_when_the_memory_is_full() {
    let table = table();
    table.set_memory_max(1_000 * 200);
    let (a, b, c) = (trx(1), trx(2), trx(3));
    let full = Err(Error::LockTableFull { limit_bytes: 1_000 * 200 });
    for key in 0..900 {
        assert!(try_lock(&table, &a, key * 16, LockMode::X_RECORD));
        assert_eq!(table.check_room(&a), Ok(()));
    }
    for key in 2_000..2_050 {
        assert!(try_lock(&table, &b, key * 16, LockMode::X_RECORD));
    }
    // A run of neighbours counts once.
    for key in 100_000..101_000 {
        assert!(try_lock(&table, &c, key, LockMode::X_RECORD));
    }
    assert_eq!(table.check_room(&a), Ok(()));
    assert!(try_lock(&table, &a, 50_000, LockMode::X_NEXT_KEY));
    for key in 1_000..1_255 {
        table.inherit_on_insert(LockKey::entry(&key_bytes(key * 16)), LockKey::entry(&key_bytes(50_000)));
    }
    assert_eq!(table.check_room(&a), full, "inherited ones count");
    assert_eq!((table.check_room(&b), table.check_room(&c)), (Ok(()), Ok(())), "few locks are always to be had");
    table.release_all(&a);
    for key in 3_000..3_300 {
        assert!(try_lock(&table, &b, key * 16, LockMode::X_RECORD));
    }
    assert_eq!(table.check_room(&b), Ok(()));
    table.set_memory_max(100 * 200);
    assert!(table.check_room(&b).is_err());
    done(&table, &[&a, &b, &c]);
    a.begin(TrxId(4), Inheritance::All);
    assert_eq!(table.check_room(&a), Ok(()));
    done(&table, &[&a]);
}

#[test]
fn a_lock_that_was_waited_for_is_counted_as_often_as_it_is_given_back() {
    let table = table();
    table.set_memory_max(10_000 * 200);
    let (a, b) = (trx(1), trx(2));
    for round in 0..3 {
        for key in 0..255 {
            assert!(try_lock(&table, &a, key * 16, LockMode::X_RECORD));
        }
        assert!(try_lock(&table, &b, 50_000, LockMode::X_RECORD));
        let waits = queue(&table, &a, 50_000, LockMode::X_RECORD);
        table.release_all(&b);
        assert_eq!(table.wait(&a, waits, LONG), WaitOutcome::Granted);
        for key in 1_000..1_255 + round {
            assert!(try_lock(&table, &a, key * 16, LockMode::X_RECORD));
        }
        assert_eq!(table.check_room(&a), Ok(()));
        done(&table, &[&a, &b]);
    }
    for key in 0..300 {
        assert!(try_lock(&table, &a, key * 16, LockMode::X_RECORD));
    }
    assert_eq!(table.check_room(&a), Ok(()), "no other lock is held");
    done(&table, &[&a]);
}

#[test]
fn a_prepared_transaction_keeps_its_exclusive_records_alone() {
    let table = table();
    let (a, b, c, d) = (trx(1), trx(2), trx(3), trx(4));
    for key in [5, 6, 7] {
        assert!(try_lock(&table, &a, key, LockMode::X_NEXT_KEY), "a run of neighbours");
    }
    assert!(try_lock(&table, &a, 40, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 40, LockMode::S_RECORD));
    assert!(try_lock(&table, &a, 80, LockMode::X_GAP));
    let tc = queue(&table, &c, 40, LockMode::X_RECORD);
    let td = queue(&table, &d, 80, LockMode::INSERT_INTENTION);
    table.release_reads(&a);
    assert_eq!(a.locks_held(), 3);
    for key in [5, 6, 7] {
        assert_eq!(granted_modes(&table, key), [(1, "X,REC_NOT_GAP")]);
    }
    assert_eq!(granted_modes(&table, 40), [(2, "S,REC_NOT_GAP")]);
    assert_eq!(table.wait(&d, td, LONG), WaitOutcome::Granted);
    assert!(!try_lock(&table, &b, 6, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 6, LockMode::INSERT_INTENTION));
    table.release_all(&b);
    assert_eq!(table.wait(&c, tc, LONG), WaitOutcome::Granted);
    done(&table, &[&a, &b, &c, &d]);
}

#[test]
fn what_a_prepared_transaction_gives_back_others_may_have() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    table.set_memory_max(1_000 * 200);
    for key in 0..1_000 {
        assert!(try_lock(&table, &a, key * 16, LockMode::S_RECORD));
    }
    // Neighbours apart, of which one lock stays.
    for key in 20_000..20_000 + 300 * 16 {
        let mode = if key % 16 == 3 { LockMode::X_RECORD } else { LockMode::S_RECORD };
        assert!(try_lock(&table, &a, key, mode));
    }
    table.release_reads(&a);
    assert_eq!((a.locks_held(), table.queues()), (300, 300));
    for key in 0..700 {
        assert_eq!(table.check_room(&b), Ok(()));
        assert!(try_lock(&table, &b, key * 16, LockMode::X_RECORD));
    }
    table.release_all(&a);
    assert_eq!(table.check_room(&b), Ok(()));
    done(&table, &[&b]);
}

#[test]
fn a_removal_leaves_gap_locks_and_wakes_waiters() {
    let table = table();
    let (a, b, c, d) = (trx(1), trx(2), trx(3), trx(4));
    b.set_inheritance(Inheritance::SharedOnly);
    assert!(try_lock(&table, &a, 5, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 5, LockMode::S_RECORD));
    assert!(try_lock(&table, &d, 5, LockMode::X_GAP));
    d.set_inheritance(Inheritance::SharedOnly);
    let tc = queue(&table, &c, 5, LockMode::X_RECORD);
    table.inherit_on_remove(LockKey::entry(&key_bytes(5)), LockKey::entry(&key_bytes(10)));
    assert_eq!(table.wait(&c, tc, LONG), WaitOutcome::Granted);
    assert_eq!(granted_modes(&table, 5), []);
    assert_eq!(granted_modes(&table, 10), [(1, "S,GAP"), (2, "S,GAP"), (3, "X,GAP")], "d's X is not inherited");
    assert!(matches!(ask(&table, &c, 5, LockMode::X_RECORD), LockOutcome::Granted { new: true }));
    done(&table, &[&a, &b, &c, &d]);
}

#[test]
fn release_one_gives_back_just_that() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    let tb = queue(&table, &b, 1, LockMode::S_RECORD);
    table.release_one(&a, LockKey::entry(&key_bytes(1)), LockMode::X_RECORD);
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Granted);
    assert_eq!(granted_modes(&table, 1), [(1, "S,REC_NOT_GAP"), (2, "S,REC_NOT_GAP")]);
    assert_eq!(a.locks_held(), 1);
    done(&table, &[&a, &b]);
}

#[test]
fn the_list_names_blockers() {
    let table = table();
    let (a, b, c) = (trx(1), trx(0), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::X_NEXT_KEY));
    let tb = queue(&table, &b, 1, LockMode::S_RECORD);
    let tc = queue(&table, &c, 1, LockMode::X_RECORD);
    let listed = |waits_only: bool, most: usize| {
        let mut rows = Vec::new();
        let mut add = |l: &LockInfo| {
            rows.push(l.clone());
            rows.len() < most
        };
        table.list(Listing { waits_only, ..Listing::ALL }, &mut add);
        rows
    };
    let waits = listed(true, 9);
    assert!(waits.len() == 2 && waits.iter().all(|l| !l.granted));
    assert_eq!(listed(false, 1).len(), 1);
    let mut rows = listed(false, 9);
    rows.sort_by_key(|l| l.trx_id);
    assert_eq!(rows.len(), 3);
    assert!(rows[0].granted && rows[0].blockers.is_empty());
    assert_eq!((rows[1].trx_id, rows[1].granted, &rows[1].blockers), (3, false, &vec![1, b.shown_id()]));
    assert_eq!((rows[2].trx_id, &rows[2].blockers), (b.shown_id(), &vec![1]));
    assert!(b.shown_id() >= 1 << 48);
    assert!(rows.iter().all(|l| l.index == IndexId(7) && l.key == key_bytes(1)));
    table.cancel(&b, tb);
    table.cancel(&c, tc);
    done(&table, &[&a, &b, &c]);
}

#[test]
fn a_list_ends_where_many_wait_for_one_row() {
    const WAITERS: usize = 100;
    let table = table();
    let holder = trx(1);
    assert!(try_lock(&table, &holder, 1, LockMode::X_RECORD));
    let waiters: Vec<_> = (0..WAITERS).map(|i| trx(i as u64 + 2)).collect();
    let tokens: Vec<_> = waiters.iter().map(|w| queue(&table, w, 1, LockMode::X_RECORD)).collect();
    let listed = |what: Listing| {
        let (mut rows, mut pairs) = (0, 0);
        table.list(what, &mut |l| {
            rows += 1;
            pairs += l.blockers.len();
            true
        });
        (rows, pairs)
    };
    assert_eq!(listed(Listing::ALL), (WAITERS + 1, WAITERS * (WAITERS + 1) / 2));
    assert_eq!(listed(Listing { blockers_max: 1, ..Listing::ALL }), (WAITERS + 1, WAITERS));
    // Of the first so many all, of the next what is left.
    assert_eq!(listed(Listing { waits_only: true, rows_max: 1 + 2 + 3 + 1, ..Listing::ALL }), (4, 7));
    assert_eq!(listed(Listing { rows_max: 3, ..Listing::ALL }), (3, 2));
    for (waiter, token) in waiters.iter().zip(tokens) {
        table.cancel(waiter, token);
    }
    done(&table, &[&holder]);
}

#[test]
fn an_insert_waits_again_where_a_new_gap_lock_came() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    assert!(try_lock(&table, &a, 1, LockMode::S_GAP));
    let tc = queue(&table, &c, 1, LockMode::INSERT_INTENTION);
    assert!(try_lock(&table, &b, 1, LockMode::S_GAP), "gap locks do not queue behind inserts");
    table.release_all(&a);
    assert_eq!(table.wait(&c, tc, Duration::from_millis(5)), WaitOutcome::Timeout, "b covers the gap now");
    let tc = queue(&table, &c, 1, LockMode::INSERT_INTENTION);
    table.release_all(&b);
    assert_eq!(table.wait(&c, tc, LONG), WaitOutcome::Granted);
    assert_eq!(table.queues(), 0);
    done(&table, &[&c]);
}

#[test]
fn the_gap_beside_an_owned_entry_waits_for_nobody() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    let token = queue(&table, &b, 1, LockMode::X_RECORD);
    assert!(try_lock(&table, &a, 1, LockMode::X_NEXT_KEY), "only the gap is new");
    assert_eq!(granted_modes(&table, 1), [(1, "X,GAP"), (1, "X,REC_NOT_GAP")]);
    table.release_all(&a);
    assert_eq!(table.wait(&b, token, LONG), WaitOutcome::Granted);
    done(&table, &[&a, &b]);
}

#[test]
fn a_waiter_without_any_lock_releases_the_gap_that_it_inherits() {
    let table = table();
    let (a, b) = (trx(1), trx(0));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    let token = queue(&table, &b, 1, LockMode::X_RECORD);
    table.inherit_on_remove(LockKey::entry(&key_bytes(1)), LockKey::entry(&key_bytes(2)));
    assert_eq!(table.wait(&b, token, LONG), WaitOutcome::Granted, "to look again");
    done(&table, &[&a, &b]);
}
