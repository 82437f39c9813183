//! Tests of the lock table by steps; random ones are in `stress`.

mod order;
mod rules;
mod spans;
mod stress;

use super::*;
use myriad_base::clock::SystemClock;
use myriad_base::TrxId;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(120);

fn table() -> Arc<LockTable> {
    Arc::new(LockTable::new(Arc::new(SystemClock::new()), true, Arc::new(Unordered)))
}

fn trx(id: u64) -> Arc<TrxLocks> {
    let t = TrxLocks::new();
    t.begin(TrxId(id), Inheritance::All);
    t
}

fn key_bytes(n: u32) -> [u8; 8] {
    let mut k = [0; 8];
    k[3] = 7;
    k[4..].copy_from_slice(&n.to_be_bytes());
    k
}

/// Asks without waiting; tells whether it was granted.
fn try_lock(table: &LockTable, trx: &Arc<TrxLocks>, key: u32, mode: LockMode) -> bool {
    match table.request(trx, LockKey::entry(&key_bytes(key)), mode, WaitPolicy::NoWait) {
        LockOutcome::Granted { .. } => true,
        LockOutcome::WouldBlock => false,
        LockOutcome::Waiting(_) => unreachable!(),
    }
}

fn ask(table: &LockTable, trx: &Arc<TrxLocks>, key: u32, mode: LockMode) -> LockOutcome {
    table.request(trx, LockKey::entry(&key_bytes(key)), mode, WaitPolicy::Wait)
}

/// Queues up; the request must not be granted at once.
fn queue(table: &LockTable, trx: &Arc<TrxLocks>, key: u32, mode: LockMode) -> WaitToken {
    match ask(table, trx, key, mode) {
        LockOutcome::Waiting(token) => token,
        other => panic!("{mode} on {key}: {other:?}"),
    }
}

/// Waits in a thread of its own.
fn sleeper(table: &Arc<LockTable>, trx: &Arc<TrxLocks>, token: WaitToken) -> std::thread::JoinHandle<WaitOutcome> {
    let (table, trx) = (Arc::clone(table), Arc::clone(trx));
    std::thread::spawn(move || table.wait(&trx, token, LONG))
}

/// Until the sleeper has looked for deadlocks and sleeps (or is about to).
fn until_waiting(trx: &TrxLocks) {
    while trx.wait_start_wall_us() == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(5));
}

fn granted_modes(table: &LockTable, key: u32) -> Vec<(u64, &'static str)> {
    let mut found = Vec::new();
    table.list(Listing::ALL, &mut |l| {
        if l.key == key_bytes(key) && l.granted {
            found.push((l.trx_id, l.mode.name()));
        }
        true
    });
    found.sort_unstable();
    found
}

fn done(table: &LockTable, trxs: &[&Arc<TrxLocks>]) {
    for t in trxs {
        table.release_all(t);
        assert_eq!(t.locks_held(), 0);
    }
    assert_eq!(table.queues(), 0, "all locks are gone");
    assert!(!table.may_have_locks(&LockKey::entry(&key_bytes(1))));
}

fn elapsed_below(start: Instant, limit: Duration) {
    assert!(start.elapsed() < limit, "took {:?}", start.elapsed());
}
