//! Where the order of commits is fixed by somebody else: a parallel replica.

use super::*;
use myriad_base::waits::{self, Sleepers};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Writes down who waits for whom; the commits of thds below `fixed_below` have an order; prefers the largest thd as victim.
#[derive(Default)]
struct Notes {
    waits: Mutex<Vec<(usize, usize)>>,
    fixed_below: usize,
    prefers: bool,
}

impl CommitOrder for Notes {
    fn waits(&self, waiter: usize, holder: usize) {
        self.waits.lock().push((waiter, holder));
    }

    fn is_fixed(&self, waiter: usize, holder: usize) -> bool {
        waiter.max(holder) < self.fixed_below && waiter.min(holder) > 0
    }

    fn victim(&self, first: usize, second: usize) -> Option<Victim> {
        // Those of 100 and above are nobody's business.
        let cares = self.prefers && first.max(second) < 100;
        cares.then_some(if first > second { Victim::First } else { Victim::Second })
    }
}

fn noted(notes: Notes) -> (Arc<Notes>, Arc<LockTable>) {
    let notes = Arc::new(notes);
    let order: Arc<dyn CommitOrder> = notes.clone();
    (notes, Arc::new(LockTable::new(Arc::new(SystemClock::new()), true, order)))
}

/// A transaction whose id is its thd.
fn owned(thd: usize) -> Arc<TrxLocks> {
    let t = trx(thd as u64);
    t.set_owner(thd, 0);
    t
}

#[test]
fn every_blocker_is_reported_once() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 1, LockMode::S_RECORD));
    assert!(try_lock(&table, &b, 1, LockMode::S_NEXT_KEY));
    assert!(!try_lock(&table, &c, 1, LockMode::X_RECORD));
    assert_eq!(*notes.waits.lock(), [], "who does not wait is not reported");
    let token = queue(&table, &c, 1, LockMode::X_RECORD);
    assert_eq!(table.wait(&c, token, Duration::from_millis(1)), WaitOutcome::Timeout);
    assert_eq!(*notes.waits.lock(), [(3, 1), (3, 2)]);
    done(&table, &[&a, &b, &c]);
}

#[test]
fn only_sleepers_are_reported_asleep() {
    /// Writes down what the calling thread does: falls asleep (true), wakes up.
    struct Told;
    thread_local! {
        static SLEEPS: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    impl Sleepers for Told {
        fn falls_asleep(&self) {
            SLEEPS.with_borrow_mut(|s| s.push(true));
        }
        fn wakes_up(&self) {
            SLEEPS.with_borrow_mut(|s| s.push(false));
        }
    }
    waits::tell(Box::new(Told));
    let (_, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &a, 1, LockMode::X_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let tc = queue(&table, &c, 1, LockMode::X_RECORD);
    SLEEPS.take();
    assert_eq!(table.wait(&c, tc, Duration::ZERO), WaitOutcome::Timeout);
    assert_eq!(SLEEPS.take(), [], "who finds the wait over has not slept");
    assert_eq!(table.wait(&b, tb, Duration::from_millis(1)), WaitOutcome::Timeout);
    let sleeps = SLEEPS.take();
    assert!(!sleeps.is_empty() && sleeps.chunks(2).all(|pair| pair == [true, false]), "{sleeps:?}");
    done(&table, &[&a, &b, &c]);
}

#[test]
fn a_waiter_ahead_is_reported() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &a, 1, LockMode::S_RECORD));
    let tb = queue(&table, &b, 1, LockMode::X_RECORD);
    let tc = queue(&table, &c, 1, LockMode::S_RECORD);
    assert_eq!(*notes.waits.lock(), [(2, 1), (3, 2)]);
    table.release_all(&a);
    assert_eq!(*notes.waits.lock(), [(2, 1), (3, 2)], "a grant to the one ahead is no news");
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Granted);
    table.cancel(&c, tc);
    done(&table, &[&b, &c]);
}

#[test]
fn a_gap_lock_granted_later_is_reported() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &c, 1, LockMode::S_GAP));
    let ta = queue(&table, &a, 1, LockMode::INSERT_INTENTION);
    assert_eq!(std::mem::take(&mut *notes.waits.lock()), [(1, 3)]);
    assert!(try_lock(&table, &b, 1, LockMode::X_RECORD), "of no interest to an insert");
    assert_eq!(*notes.waits.lock(), []);
    assert!(try_lock(&table, &b, 1, LockMode::X_GAP), "gap locks pass waiting inserts");
    assert_eq!(*notes.waits.lock(), [(1, 2)]);
    table.release_all(&b);
    table.release_all(&c);
    assert_eq!(table.wait(&a, ta, LONG), WaitOutcome::Granted);
    done(&table, &[&a]);
}

#[test]
fn a_queued_next_key_lock_is_reported_when_granted() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c, d) = (owned(1), owned(2), owned(3), owned(4));
    assert!(try_lock(&table, &c, 1, LockMode::X_RECORD));
    assert!(try_lock(&table, &d, 1, LockMode::S_GAP));
    let ta = queue(&table, &a, 1, LockMode::INSERT_INTENTION);
    let tb = queue(&table, &b, 1, LockMode::X_NEXT_KEY);
    assert_eq!(std::mem::take(&mut *notes.waits.lock()), [(1, 4), (2, 3)]);
    table.release_all(&c);
    assert_eq!(*notes.waits.lock(), [(1, 2)]);
    assert_eq!(table.wait(&b, tb, LONG), WaitOutcome::Granted);
    table.cancel(&a, ta);
    done(&table, &[&a, &b, &d]);
}

#[test]
fn an_inherited_gap_is_reported_though_its_owner_is_awake() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &b, 5, LockMode::X_RECORD));
    assert!(try_lock(&table, &c, 6, LockMode::S_GAP));
    let ta = queue(&table, &a, 6, LockMode::INSERT_INTENTION);
    assert_eq!(std::mem::take(&mut *notes.waits.lock()), [(1, 3)]);
    table.inherit_on_remove(LockKey::entry(&key_bytes(5)), LockKey::entry(&key_bytes(6)));
    assert_eq!(*notes.waits.lock(), [(1, 2)]);
    table.cancel(&a, ta);
    done(&table, &[&a, &b, &c]);
}

#[test]
fn an_implicit_lock_made_explicit_is_reported() {
    let (notes, table) = noted(Notes::default());
    let (a, b, c) = (owned(1), owned(2), owned(3));
    assert!(try_lock(&table, &c, 1, LockMode::S_RECORD));
    let ta = queue(&table, &a, 1, LockMode::X_RECORD);
    assert_eq!(std::mem::take(&mut *notes.waits.lock()), [(1, 3)]);
    let k = key_bytes(1);
    assert_eq!(table.convert_implicit(&b, TrxId(2), LockKey::entry(&k)), ImplicitHolder::Active);
    assert_eq!(*notes.waits.lock(), [(1, 2)]);
    table.cancel(&a, ta);
    done(&table, &[&a, &b, &c]);
}

#[test]
fn gaps_do_not_hold_up_inserts_where_the_order_is_fixed() {
    let modes = [LockMode::S_GAP, LockMode::X_GAP, LockMode::S_NEXT_KEY, LockMode::X_NEXT_KEY];
    for held in modes {
        let (notes, table) = noted(Notes { fixed_below: 10, ..Notes::default() });
        let (a, b, stranger) = (owned(1), owned(2), owned(10));
        assert!(try_lock(&table, &b, 1, held));
        assert!(try_lock(&table, &a, 1, LockMode::INSERT_INTENTION), "past {held}");
        assert!(!try_lock(&table, &stranger, 1, LockMode::INSERT_INTENTION), "a stranger behind {held}");
        assert!(
            try_lock(&table, &a, 1, LockMode::X_RECORD) != held.covers_record(),
            "entries are locked as ever: {held}"
        );
        assert_eq!(*notes.waits.lock(), []);
        done(&table, &[&a, &b, &stranger]);
    }
}

#[test]
fn a_waiting_insert_waits_for_strangers_alone() {
    let (notes, table) = noted(Notes { fixed_below: 10, ..Notes::default() });
    let (a, b, stranger) = (owned(1), owned(2), owned(10));
    assert!(try_lock(&table, &stranger, 1, LockMode::S_GAP));
    let token = queue(&table, &a, 1, LockMode::INSERT_INTENTION);
    assert!(try_lock(&table, &b, 1, LockMode::X_NEXT_KEY));
    assert_eq!(*notes.waits.lock(), [(1, 10)]);
    table.release_all(&stranger);
    assert_eq!(table.wait(&a, token, LONG), WaitOutcome::Granted, "though b covers the gap");
    done(&table, &[&a, &b]);
}

#[test]
fn the_owner_of_the_transactions_prefers_a_victim() {
    // Weights say 1, then 100, then 2; the order of commits says 2. 100 stands between them and is nobody's business.
    let (_, table) = noted(Notes { prefers: true, ..Notes::default() });
    let trxs = [owned(1), owned(100), owned(2)];
    for (n, (t, weight)) in trxs.iter().zip([1, 5, 9]).enumerate() {
        t.set_weight(weight);
        assert!(try_lock(&table, t, n as u32, LockMode::X_RECORD));
    }
    let sleepers: Vec<_> = (0..3)
        .map(|n| {
            let token = queue(&table, &trxs[n], (n as u32 + 1) % 3, LockMode::X_RECORD);
            let (table, t) = (Arc::clone(&table), Arc::clone(&trxs[n]));
            std::thread::spawn(move || {
                let outcome = table.wait(&t, token, LONG);
                table.release_all(&t);
                outcome
            })
        })
        .collect();
    let outcomes: Vec<_> = sleepers.into_iter().map(|s| s.join().unwrap()).collect();
    assert_eq!(outcomes, [WaitOutcome::Granted, WaitOutcome::Granted, WaitOutcome::Deadlock]);
    done(&table, &[]);
}

#[test]
fn a_transaction_without_a_session_is_nobodys() {
    let (notes, table) = noted(Notes { fixed_below: 10, ..Notes::default() });
    let (a, b) = (owned(1), owned(2));
    assert!(try_lock(&table, &b, 1, LockMode::S_GAP));
    table.disown(&b);
    let token = queue(&table, &a, 1, LockMode::INSERT_INTENTION);
    assert_eq!(*notes.waits.lock(), [(1, 0)]);
    table.cancel(&a, token);
    done(&table, &[&a, &b]);
}

/// A replica's workers: each transaction has a number and ends after all with smaller numbers. Who holds up an earlier one is
/// killed and does it all again.
struct Replica {
    /// Number of each worker's present transaction.
    numbers: [AtomicU64; WORKERS],
    killed: [AtomicBool; WORKERS],
    workers: [Arc<TrxLocks>; WORKERS],
    /// Transactions up to this one have ended.
    ended: Mutex<u64>,
    change: Condvar,
    kills: AtomicU64,
}

const WORKERS: usize = 4;
const TRANSACTIONS: u64 = 2_000;

impl CommitOrder for Replica {
    fn waits(&self, waiter: usize, holder: usize) {
        let (w, h) = (waiter - 1, holder - 1);
        if self.numbers[w].load(Ordering::SeqCst) < self.numbers[h].load(Ordering::SeqCst)
            && !self.killed[h].swap(true, Ordering::SeqCst)
        {
            self.kills.fetch_add(1, Ordering::Relaxed);
            self.workers[h].kill();
            let _ended = self.ended.lock();
            self.change.notify_all();
        }
    }

    fn victim(&self, first: usize, second: usize) -> Option<Victim> {
        let number = |thd: usize| self.numbers[thd - 1].load(Ordering::SeqCst);
        Some(if number(first) > number(second) { Victim::First } else { Victim::Second })
    }
}

impl Replica {
    /// Takes the locks of transaction `number`; false if it must be done again.
    fn attempt(&self, table: &LockTable, me: usize, number: u64) -> bool {
        // Nearby transactions want the same few keys, gaps in most cases.
        let modes = [LockMode::X_GAP, LockMode::INSERT_INTENTION, LockMode::S_NEXT_KEY, LockMode::X_NEXT_KEY];
        let trx = &self.workers[me];
        for step in 0..5u64 {
            let chance = (number * 31 + step).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let mode = modes[(chance % 4) as usize];
            while let LockOutcome::Waiting(token) = ask(table, trx, (chance / 4 % 3) as u32, mode) {
                match table.wait(trx, token, LONG) {
                    WaitOutcome::Granted => {}
                    WaitOutcome::Timeout => panic!("transaction {number} stalls"),
                    WaitOutcome::Deadlock | WaitOutcome::Interrupted => return false,
                }
            }
            std::thread::yield_now();
        }
        self.wait_for_prior(me, number)
    }

    /// Waits until all earlier ones have ended; false if killed.
    fn wait_for_prior(&self, me: usize, number: u64) -> bool {
        let mut ended = self.ended.lock();
        while *ended + 1 < number && !self.killed[me].load(Ordering::SeqCst) {
            assert!(!self.change.wait_for(&mut ended, LONG).timed_out(), "transaction {number} waits for ever");
        }
        *ended + 1 == number
    }

    fn work(&self, table: &LockTable, me: usize, next: &AtomicU64) {
        let trx = &self.workers[me];
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number > TRANSACTIONS {
                return;
            }
            self.numbers[me].store(number, Ordering::SeqCst);
            loop {
                trx.begin(TrxId(number), Inheritance::All);
                let complete = self.attempt(table, me, number);
                table.release_all(trx);
                // Kills come only while others see its locks.
                self.killed[me].store(false, Ordering::SeqCst);
                trx.reset_kill();
                if complete {
                    break;
                }
                // As the server does: not to be in the way of the same one again.
                assert!(self.wait_for_prior(me, number));
            }
            *self.ended.lock() = number;
            self.change.notify_all();
        }
    }
}

/// How many transactions were in the way of an earlier one.
fn replicate() -> u64 {
    let replica = Arc::new(Replica {
        numbers: Default::default(),
        killed: Default::default(),
        workers: std::array::from_fn(|n| {
            let t = TrxLocks::new();
            t.set_owner(n + 1, 0);
            t
        }),
        ended: Mutex::new(0),
        change: Condvar::new(),
        kills: AtomicU64::new(0),
    });
    let order: Arc<dyn CommitOrder> = replica.clone();
    let table = Arc::new(LockTable::new(Arc::new(SystemClock::new()), true, order));
    let next = AtomicU64::new(1);
    std::thread::scope(|s| {
        for me in 0..WORKERS {
            let (replica, table, next) = (&replica, &table, &next);
            s.spawn(move || replica.work(table, me, next));
        }
    });
    assert_eq!(*replica.ended.lock(), TRANSACTIONS);
    done(&table, &[]);
    replica.kills.load(Ordering::Relaxed)
}

#[test]
fn a_parallel_replica_never_stalls() {
    // Whether one is in the way depends on who is given the processor when.
    assert!((0..20).any(|_| replicate() > 0), "no transaction was in the way of an earlier one");
}
