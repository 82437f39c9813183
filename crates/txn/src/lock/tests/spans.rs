//! Locks of long scans, in spans: to others they are as any.

use super::*;
use crate::lock::spans::Spans;
use myriad_base::random::Random;
use myriad_base::Error;
use std::collections::BTreeMap;

/// Locks keys one behind the other, as a scan does.
fn scan(table: &LockTable, trx: &Arc<TrxLocks>, keys: impl IntoIterator<Item = u32>, mode: LockMode) {
    for key in keys {
        assert!(table.add_to_span(trx, LockKey::entry(&key_bytes(key)), mode), "{key}");
    }
}

fn remove(table: &LockTable, key: u32, successor: u32) {
    table.inherit_on_remove(LockKey::entry(&key_bytes(key)), LockKey::entry(&key_bytes(successor)));
}

#[test]
fn a_span_is_a_lock_on_each_of_its_keys() {
    use LockMode as M;
    for held in [M::S_RECORD, M::X_RECORD, M::S_NEXT_KEY, M::X_NEXT_KEY] {
        for asked in [M::S_RECORD, M::X_RECORD, M::S_NEXT_KEY, M::X_NEXT_KEY, M::X_GAP, M::INSERT_INTENTION] {
            let table = table();
            let (a, b) = (trx(1), trx(2));
            scan(&table, &a, (1_000..6_000).step_by(10), held);
            assert_eq!((table.queues(), a.locks_held()), (0, 500));
            for key in [1_000, 1_500, 5_990] {
                assert!(table.may_have_locks(&LockKey::entry(&key_bytes(key))));
                assert_eq!(try_lock(&table, &b, key, asked), !asked.conflicts_with(held), "{asked} behind {held}");
                assert!(granted_modes(&table, key).contains(&(1, held.name())));
            }
            for key in [990, 1_505, 6_000] {
                assert!(try_lock(&table, &b, key, asked));
            }
            done(&table, &[&a, &b]);
        }
    }
}

#[test]
fn who_waits_for_a_span_gets_the_lock_at_its_end() {
    let table = table();
    let (a, b, c) = (trx(1), trx(2), trx(3));
    scan(&table, &a, 100..200, LockMode::S_NEXT_KEY);
    scan(&table, &b, 150..250, LockMode::S_NEXT_KEY);
    assert_eq!(table.queues(), 0);
    let tc = queue(&table, &c, 170, LockMode::X_RECORD);
    assert_eq!(granted_modes(&table, 170), [(1, "S"), (2, "S")]);
    table.release_all(&a);
    assert!(!table.add_to_span(&a, LockKey::entry(&key_bytes(170)), LockMode::S_RECORD), "behind the one that waits");
    assert!(!try_lock(&table, &a, 170, LockMode::S_RECORD));
    table.release_all(&b);
    assert_eq!(table.wait(&c, tc, LONG), WaitOutcome::Granted);
    assert_eq!(granted_modes(&table, 170), [(3, "X,REC_NOT_GAP")]);
    done(&table, &[&a, &b, &c]);
}

#[test]
fn a_key_in_anothers_span_is_added_only_if_both_are_shared() {
    use LockMode as M;
    for (held, added) in [(M::S_RECORD, M::S_RECORD), (M::S_RECORD, M::X_RECORD), (M::X_RECORD, M::S_RECORD)] {
        let table = table();
        let (a, b) = (trx(1), trx(2));
        scan(&table, &a, 100..200, held);
        let taken = table.add_to_span(&b, LockKey::entry(&key_bytes(150)), added);
        assert_eq!(taken, !added.conflicts_with(held), "{added} behind {held}");
        assert!(table.add_to_span(&b, LockKey::entry(&key_bytes(200)), added));
        done(&table, &[&a, &b]);
    }
}

#[test]
fn two_upgrades_of_spans_are_a_deadlock() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    for t in [&a, &b] {
        scan(&table, t, 0..100, LockMode::S_NEXT_KEY);
    }
    let ta = queue(&table, &a, 50, LockMode::X_RECORD);
    let sleeps = sleeper(&table, &a, ta);
    until_waiting(&a);
    let tb = queue(&table, &b, 50, LockMode::X_RECORD);
    let outcome = table.wait(&b, tb, LONG);
    table.release_all(&b);
    let outcomes = [outcome, sleeps.join().unwrap()];
    assert!(outcomes.contains(&WaitOutcome::Deadlock), "{outcomes:?}");
    done(&table, &[&a, &b]);
}

#[test]
fn no_key_is_locked_twice() {
    let table = table();
    let a = trx(1);
    scan(&table, &a, 0..100, LockMode::X_NEXT_KEY);
    assert!(matches!(ask(&table, &a, 70, LockMode::S_NEXT_KEY), LockOutcome::Granted { new: false }));
    assert!(matches!(ask(&table, &a, 70, LockMode::X_GAP), LockOutcome::Granted { new: false }));
    assert!(!table.add_to_span(&a, LockKey::entry(&key_bytes(70)), LockMode::X_NEXT_KEY));
    scan(&table, &a, 200..300, LockMode::X_RECORD);
    assert_eq!((table.queues(), a.locks_held()), (0, 200));
    let _ = ask(&table, &a, 250, LockMode::X_NEXT_KEY);
    assert_eq!(granted_modes(&table, 250), [(1, "X,GAP"), (1, "X,REC_NOT_GAP")]);
    // What it has in a queue goes on as it is.
    let _ = ask(&table, &a, 400, LockMode::X_NEXT_KEY);
    assert!(!table.add_to_span(&a, LockKey::entry(&key_bytes(400)), LockMode::X_NEXT_KEY));
    assert_eq!((table.queues(), a.locks_held()), (2, 202));
    done(&table, &[&a]);
}

#[test]
fn gaps_stay_locked_where_entries_come_and_go() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    scan(&table, &a, (100..200).step_by(10), LockMode::X_NEXT_KEY);
    remove(&table, 150, 160);
    assert_eq!(granted_modes(&table, 150), []);
    assert_eq!(granted_modes(&table, 160), [(1, "X")]);
    assert!(!try_lock(&table, &b, 160, LockMode::INSERT_INTENTION));
    remove(&table, 190, 200);
    assert_eq!(granted_modes(&table, 200), [(1, "X,GAP")]);
    table.inherit_on_insert(LockKey::entry(&key_bytes(95)), LockKey::entry(&key_bytes(100)));
    assert_eq!(granted_modes(&table, 95), [(1, "X,GAP")]);
    assert!(try_lock(&table, &b, 115, LockMode::X_RECORD), "in no span");
    done(&table, &[&a, &b]);

    a.begin(TrxId(4), Inheritance::SharedOnly);
    scan(&table, &a, (100..200).step_by(10), LockMode::S_RECORD);
    remove(&table, 150, 160);
    assert_eq!(granted_modes(&table, 160), [(4, "S,GAP"), (4, "S,REC_NOT_GAP")]);
    done(&table, &[&a, &b]);
}

#[test]
fn an_implicit_lock_in_a_span_is_made_explicit_once() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    scan(&table, &a, 100..200, LockMode::X_NEXT_KEY);
    let key = key_bytes(150);
    assert_eq!(table.convert_implicit(&a, TrxId(1), LockKey::entry(&key)), ImplicitHolder::Active);
    assert_eq!((granted_modes(&table, 150), a.locks_held()), (vec![(1, "X")], 100));
    done(&table, &[&a, &b]);
}

#[test]
fn a_prepared_transaction_keeps_the_exclusive_records_of_its_spans() {
    let table = table();
    let (a, b) = (trx(1), trx(2));
    scan(&table, &a, 100..200, LockMode::X_NEXT_KEY);
    scan(&table, &a, 300..400, LockMode::S_NEXT_KEY);
    for key in [110, 310] {
        assert!(!try_lock(&table, &b, key, LockMode::INSERT_INTENTION));
    }
    table.release_reads(&a);
    assert_eq!(a.locks_held(), 100);
    for key in [110, 150] {
        assert_eq!(granted_modes(&table, key), [(1, "X,REC_NOT_GAP")]);
        assert!(try_lock(&table, &b, key, LockMode::INSERT_INTENTION));
        assert!(!try_lock(&table, &b, key, LockMode::S_RECORD));
    }
    for key in [310, 350] {
        assert_eq!(granted_modes(&table, key), []);
        assert!(try_lock(&table, &b, key, LockMode::X_NEXT_KEY));
    }
    done(&table, &[&a, &b]);
}

#[test]
fn spans_count_and_are_shown() {
    let table = table();
    table.set_memory_max(1_000 * 200);
    let a = trx(1);
    scan(&table, &a, 0..10_000, LockMode::S_NEXT_KEY);
    assert_eq!((a.locks_held(), table.check_room(&a)), (10_000, Ok(())));
    let mut shown = 0;
    table.list(Listing::ALL, &mut |_| {
        shown += 1;
        true
    });
    assert_eq!(shown, 10_000);
    scan(&table, &a, 10_000..25_000, LockMode::S_NEXT_KEY);
    assert_eq!(table.check_room(&a), Err(Error::LockTableFull { limit_bytes: 1_000 * 200 }));
    let long = [&key_bytes(1)[..], &[1; 100]].concat();
    assert!(!table.add_to_span(&a, LockKey::entry(&long), LockMode::S_NEXT_KEY));
    table.release_all(&a);
    a.begin(TrxId(2), Inheritance::All);
    assert_eq!(table.check_room(&a), Ok(()));
    done(&table, &[&a]);
}

#[test]
fn few_transactions_at_a_time_have_spans_in_an_index() {
    let table = table();
    let many: Vec<_> = (1..10).map(trx).collect();
    let key = key_bytes(5);
    let with = |table: &LockTable| {
        many.iter().filter(|t| table.add_to_span(t, LockKey::entry(&key), LockMode::S_RECORD)).count()
    };
    assert_eq!(with(&table), 4);
    many.iter().for_each(|t| table.release_all(t));
    assert_eq!(with(&table), 4, "there is room again");
    done(&table, &many.iter().collect::<Vec<_>>());
}

/// Scans upwards from anywhere, in any mode, some keys taken out again, against a list of what is locked.
#[test]
fn spans_hold_what_was_added_and_nothing_else() {
    for seed in 0..300 {
        let mut random = Random::from_seed(seed);
        let mut spans = Spans::default();
        let mut locked: BTreeMap<u32, LockMode> = BTreeMap::new();
        for _ in 0..200 {
            let from = random.below(2_000) as u32;
            let mode = if random.one_in(3) { LockMode::X_RECORD } else { LockMode::S_NEXT_KEY };
            if random.one_in(3) {
                for key in from..from + random.below(20) as u32 {
                    assert_eq!(spans.take(&key_bytes(key)), locked.remove(&key), "seed {seed}, key {key}");
                }
                continue;
            }
            let step = 1 + random.below(3) as usize;
            for key in (from..from + random.below(600) as u32).step_by(step) {
                if spans.add(&key_bytes(key), mode) {
                    assert_eq!(locked.insert(key, mode), None, "seed {seed}, key {key}");
                }
            }
        }
        for key in 0..3_000 {
            assert_eq!(spans.mode(&key_bytes(key)), locked.get(&key).copied(), "seed {seed}, key {key}");
        }
        let (mut above, mut listed) = (Vec::new(), Vec::new());
        while spans.next(&mut above, |mode, key| listed.push((key.to_vec(), mode))).is_some() {}
        let all: Vec<_> = locked.iter().map(|(&key, &mode)| (key_bytes(key).to_vec(), mode)).collect();
        assert_eq!(listed, all, "seed {seed}");
        let shared = locked.values().filter(|mode| mode.strength == Strength::S).count();
        assert_eq!(spans.release_reads(), shared, "seed {seed}");
    }
}
