//! Random locks by many threads: exclusion, progress, nothing left behind.

use super::*;
use crate::lock::park::WaitCell;
use myriad_base::random::Random;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What the lock table allows, checked by counters: positive = readers, -1 = a writer.
struct Guarded {
    state: AtomicI64,
}

impl Guarded {
    fn enter(&self, x: bool) {
        if x {
            assert_eq!(self.state.fetch_sub(1, Ordering::SeqCst), 0, "a writer is alone");
        } else {
            assert!(self.state.fetch_add(1, Ordering::SeqCst) >= 0, "no writer among readers");
        }
    }

    fn upgrade(&self) {
        assert_eq!(self.state.swap(-1, Ordering::SeqCst), 1, "the only reader becomes the writer");
    }

    fn leave(&self, x: bool) {
        self.state.fetch_add(if x { 1 } else { -1 }, Ordering::SeqCst);
    }
}

struct World {
    table: LockTable,
    keys: Vec<Guarded>,
    commits: AtomicU64,
    deadlocks: AtomicU64,
    kills: AtomicU64,
}

/// One transaction: locks a few keys in random order and modes, then lets all go. Gives false if it was a victim.
fn transaction(world: &World, locks: &Arc<TrxLocks>, id: u64, random: &mut Random) -> bool {
    locks.begin(TrxId(id), Inheritance::All);
    locks.reset_kill();
    locks.set_weight(random.below(4));
    let mut held: Vec<(usize, bool)> = Vec::new();
    let mut committed = true;
    'steps: for _ in 0..1 + random.below(5) {
        let at = random.below(world.keys.len() as u64) as usize;
        let k = key_bytes(at as u32);
        let key = LockKey::entry(&k);
        let mode = match random.below(8) {
            0..=2 => LockMode::S_RECORD,
            3..=4 => LockMode::X_RECORD,
            5 => LockMode::S_NEXT_KEY,
            6 => LockMode::X_NEXT_KEY,
            _ => LockMode::INSERT_INTENTION,
        };
        let in_span = mode.covers_record() && random.one_in(2) && world.table.add_to_span(locks, key, mode);
        loop {
            if in_span {
                break;
            }
            match world.table.request(locks, key, mode, WaitPolicy::Wait) {
                LockOutcome::Granted { .. } => break,
                LockOutcome::Waiting(token) => match world.table.wait(locks, token, LONG) {
                    WaitOutcome::Granted => {}
                    WaitOutcome::Deadlock => {
                        world.deadlocks.fetch_add(1, Ordering::Relaxed);
                        committed = false;
                        break 'steps;
                    }
                    WaitOutcome::Interrupted => {
                        world.kills.fetch_add(1, Ordering::Relaxed);
                        committed = false;
                        break 'steps;
                    }
                    WaitOutcome::Timeout => panic!("no progress: {}", dump(&world.table)),
                },
                LockOutcome::WouldBlock => unreachable!(),
            }
        }
        if mode.covers_record() {
            let x = mode.strength == Strength::X;
            match held.iter_mut().find(|(h, _)| *h == at) {
                None => {
                    world.keys[at].enter(x);
                    held.push((at, x));
                }
                Some((_, was_x)) if x && !*was_x => {
                    world.keys[at].upgrade();
                    *was_x = true;
                }
                Some(_) => {}
            }
        }
        if random.one_in(8) {
            std::thread::yield_now();
        }
    }
    for (at, x) in held {
        world.keys[at].leave(x);
    }
    world.table.release_all(locks);
    committed
}

fn dump(table: &LockTable) -> String {
    let mut text = String::new();
    table.list(Listing::ALL, &mut |l| {
        text += &format!("\n{} {} {:?} granted {} behind {:?}", l.trx_id, l.mode, l.key, l.granted, l.blockers);
        true
    });
    text
}

/// Counts a thread out, also when it panics.
struct Ends<'a>(&'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run(threads: u64, keys: usize, transactions: u64, killer: bool) -> World {
    let world = World {
        table: LockTable::new(Arc::new(SystemClock::new()), true, Arc::new(Unordered)),
        keys: (0..keys).map(|_| Guarded { state: AtomicI64::new(0) }).collect(),
        commits: AtomicU64::new(0),
        deadlocks: AtomicU64::new(0),
        kills: AtomicU64::new(0),
    };
    let sessions: Vec<_> = (0..threads).map(|_| TrxLocks::new()).collect();
    let next_id = AtomicU64::new(1);
    let running = AtomicU64::new(threads);
    std::thread::scope(|scope| {
        for (t, locks) in (0..).zip(&sessions) {
            let (world, next_id, running) = (&world, &next_id, &running);
            scope.spawn(move || {
                let _ends = Ends(running);
                let mut random = Random::from_seed(0x10c4 + t);
                for _ in 0..transactions {
                    let id = next_id.fetch_add(1, Ordering::Relaxed);
                    if transaction(world, locks, id, &mut random) {
                        world.commits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        if killer {
            let mut random = Random::from_seed(5);
            while running.load(Ordering::Relaxed) > 0 {
                sessions[random.below(threads) as usize].kill();
                std::thread::yield_now();
            }
        }
        // Others give locks to whoever holds some, at any time.
        let mut random = Random::from_seed(77);
        while running.load(Ordering::Relaxed) > 0 {
            let a = key_bytes(random.below(keys as u64) as u32);
            let b = key_bytes(random.below(4) as u32 + 1_000_000);
            world.table.inherit_on_insert(LockKey::entry(&b), LockKey::entry(&a));
            let holder = &sessions[random.below(threads) as usize];
            let id = holder.trx_id();
            let _ = world.table.convert_implicit(holder, id, LockKey::entry(&key_bytes(2_000_000)));
            world.table.inherit_on_remove(LockKey::entry(&b), LockKey::entry(&key_bytes(3_000_000)));
            world.table.list(Listing::ALL, &mut |_| true);
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    assert_eq!(world.table.queues(), 0, "{}", dump(&world.table));
    for locks in &sessions {
        assert_eq!(locks.locks_held(), 0);
    }
    assert_eq!(world.table.stats().waiting_now, 0);
    world
}

#[test]
fn hot_keys() {
    let world = run(12, 4, 1500, false);
    assert!(world.deadlocks.load(Ordering::Relaxed) > 0);
    assert!(world.commits.load(Ordering::Relaxed) > 1000);
    assert_eq!(world.kills.load(Ordering::Relaxed), 0);
}

#[test]
fn many_keys() {
    let world = run(8, 200, 4000, false);
    assert!(world.commits.load(Ordering::Relaxed) > 16_000);
}

#[test]
fn under_kills() {
    let world = run(8, 4, 1500, true);
    assert!(world.kills.load(Ordering::Relaxed) > 0);
}

/// Who asks for one lock only is in no deadlock, however quickly those whom a search comes by end and begin again.
#[test]
fn one_lock_each_is_no_deadlock() {
    let table = LockTable::new(Arc::new(SystemClock::new()), true, Arc::new(Unordered));
    let k = key_bytes(1);
    let ids = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for t in 0..12 {
            let (table, ids, k) = (&table, &ids, &k);
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                let locks = TrxLocks::new();
                for _ in 0..1_000 {
                    locks.begin(TrxId(ids.fetch_add(1, Ordering::Relaxed)), Inheritance::All);
                    let mode = if random.one_in(2) { LockMode::S_RECORD } else { LockMode::X_RECORD };
                    while let LockOutcome::Waiting(token) =
                        table.request(&locks, LockKey::entry(k), mode, WaitPolicy::Wait)
                    {
                        assert_eq!(table.wait(&locks, token, LONG), WaitOutcome::Granted);
                    }
                    table.release_all(&locks);
                }
            });
        }
    });
    assert_eq!(table.stats().deadlocks, 0);
}

/// A transaction's locks are released while others find its entries and make its implicit locks explicit.
#[test]
fn implicit_locks_against_commit() {
    let table = LockTable::new(Arc::new(SystemClock::new()), true, Arc::new(Unordered));
    let writer = TrxLocks::new();
    let committed = AtomicU64::new(0);
    let rounds = 20_000u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 1..=rounds {
                writer.begin(TrxId(id), Inheritance::All);
                std::hint::spin_loop();
                committed.store(id, Ordering::Release);
                table.release_all(&writer);
            }
        });
        for r in 0..2u64 {
            let (table, writer, committed) = (&table, &writer, &committed);
            scope.spawn(move || {
                let reader = TrxLocks::new();
                let k = key_bytes(r as u32);
                loop {
                    let done = committed.load(Ordering::Acquire);
                    if done == rounds {
                        break;
                    }
                    reader.begin(TrxId(0), Inheritance::All);
                    let id = TrxId(done + 1);
                    let active = table.convert_implicit(writer, id, LockKey::entry(&k)) == ImplicitHolder::Active;
                    match table.request(&reader, LockKey::entry(&k), LockMode::S_RECORD, WaitPolicy::Wait) {
                        LockOutcome::Waiting(token) => {
                            assert!(active);
                            assert_eq!(table.wait(&reader, token, LONG), WaitOutcome::Granted);
                        }
                        outcome => assert!(matches!(outcome, LockOutcome::Granted { new: true })),
                    }
                    if active {
                        assert!(committed.load(Ordering::Acquire) >= id.0, "the lock was the writer's to its commit");
                    }
                    table.release_all(&reader);
                }
            });
        }
    });
    assert_eq!(table.queues(), 0);
}

/// A waiter that sees its grant at once and ends its transaction must not leave the lock behind.
#[test]
fn a_grant_against_the_grantees_commit() {
    let table = LockTable::new(Arc::new(SystemClock::new()), false, Arc::new(Unordered));
    let k = key_bytes(1);
    let ask = |locks: &Arc<TrxLocks>| table.request(locks, LockKey::entry(&k), LockMode::X_RECORD, WaitPolicy::Wait);
    let (holder, waiter) = (TrxLocks::new(), TrxLocks::new());
    let rounds = 1_000u64;
    let start = std::sync::Barrier::new(2);
    let queued = AtomicU64::new(0);
    let left = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                holder.begin(TrxId(2 * round), Inheritance::All);
                assert!(matches!(ask(&holder), LockOutcome::Granted { new: true }));
                start.wait();
                while queued.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                table.release_all(&holder);
                start.wait();
                if left.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
        });
        for round in 1..=rounds {
            waiter.begin(TrxId(2 * round + 1), Inheritance::All);
            start.wait();
            let LockOutcome::Waiting(token) = ask(&waiter) else { panic!("held") };
            queued.store(round, Ordering::Release);
            // Spins as one whom something else has woken: the grant is seen as soon as it can be.
            let patience = Instant::now();
            while WaitCell::is_waiting(waiter.wait.word()) && patience.elapsed() < Duration::from_millis(5) {
                std::thread::yield_now();
            }
            assert_eq!(table.wait(&waiter, token, LONG), WaitOutcome::Granted);
            table.release_all(&waiter);
            left.store(table.queues() as u64, Ordering::Relaxed);
            start.wait();
            if left.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
    });
    assert_eq!(left.into_inner(), 0, "locks left behind");
}
