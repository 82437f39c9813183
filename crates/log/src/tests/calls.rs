//! Commits that nobody waits for.

use super::*;
use myriad_base::Error;
use myriad_io::{CallKind, Fault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Runs `work` beside a thread that leads for calls; what became of that.
fn beside_leader(log: &Log, work: impl FnOnce()) -> myriad_base::Result<()> {
    std::thread::scope(|s| {
        let leader = s.spawn(|| log.lead_for_calls());
        while !log.calls.is_led() {
            std::thread::yield_now();
        }
        work();
        log.stop_calls();
        leader.join().unwrap()
    })
}

#[test]
fn without_a_leader_the_caller_waits() {
    let config = config(1 << 20, 1 << 16);
    let (log, _) = open(&disk(1, config), config);
    let (say, hear) = mpsc::channel();
    let frame = append(&log, b"a");
    log.flush_later(Lsn(frame.end), move |durable| say.send(durable).unwrap()).unwrap();
    assert_eq!((hear.try_recv(), log.durable_lsn()), (Ok(true), Lsn(frame.end)));
}

#[test]
fn calls_come_once_all_is_durable() {
    let config = config(1 << 20, 1 << 16);
    let (log, _) = open(&disk(2, config), config);
    let log = Arc::new(log);
    let called = Arc::new(AtomicU64::new(0));
    let (threads, each) = (4, 200);
    let led = beside_leader(&log, || {
        std::thread::scope(|s| {
            for no in 0..threads {
                let (log, called) = (Arc::clone(&log), Arc::clone(&called));
                s.spawn(move || {
                    for i in 0..each {
                        let end = Lsn(append(&log, &[no; 40]).end);
                        // Some wait themselves.
                        if i % 5 == u32::from(no) {
                            log.flush_to(end).unwrap();
                            called.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        let (its_log, called) = (Arc::clone(&log), Arc::clone(&called));
                        let call = move |durable| {
                            assert!(durable && its_log.durable_lsn() >= end);
                            called.fetch_add(1, Ordering::Relaxed);
                        };
                        log.flush_later(end, call).unwrap();
                    }
                });
            }
        });
        let begin = std::time::Instant::now();
        while called.load(Ordering::Relaxed) < u64::from(threads) * u64::from(each) && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(called.load(Ordering::Relaxed), u64::from(threads) * u64::from(each));
    });
    assert_eq!(led, Ok(()));
    let end = append(&log, b"after the leader's end").end;
    let (say, hear) = mpsc::channel();
    log.flush_later(Lsn(end), move |durable| say.send(durable).unwrap()).unwrap();
    assert_eq!((hear.try_recv(), log.durable_lsn()), (Ok(true), Lsn(end)));
}

#[test]
fn a_call_hears_of_a_failed_sync() {
    let config = config(1 << 20, 1 << 16);
    let io = disk(3, config);
    let (log, _) = open(&io, config);
    let led = beside_leader(&log, || {
        let (say, hear) = mpsc::channel();
        io.inject(CallKind::Sync, "redo.log", 0, Fault::Eio, false);
        log.flush_later(Lsn(append(&log, b"a").end), move |durable| say.send(durable).unwrap()).unwrap();
        assert_eq!(hear.recv_timeout(LONG), Ok(false));
        let end = log.end_lsn();
        let (say, hear) = mpsc::channel();
        let refused = log.flush_later(end, move |durable| say.send(durable).unwrap());
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        assert!(hear.try_recv().is_err(), "it was called");
    });
    assert!(matches!(led, Err(Error::Poisoned { .. })), "{led:?}");
}

/// Appends more than the file has room for; all before what comes back is durable.
fn overfill(log: &Log) -> Lsn {
    while log.end_lsn().0 + 6000 < log.writable_end().0 {
        append(log, &[7; 1000]);
    }
    let begun = log.end_lsn();
    log.flush_to(begun).unwrap();
    append(log, &[8; 8000]);
    begun
}

#[test]
fn a_call_waits_for_a_checkpoint() {
    let config = config(256 << 10, 64 << 10);
    let (log, _) = open(&disk(4, config), config);
    let led = beside_leader(&log, || {
        let (say, hear) = mpsc::channel();
        let begun = overfill(&log);
        log.flush_later(log.end_lsn(), move |durable| say.send(durable).unwrap()).unwrap();
        assert!(hear.recv_timeout(Duration::from_millis(50)).is_err(), "the file is full");
        log.checkpoint(begun, b"").unwrap();
        assert_eq!(hear.recv_timeout(LONG), Ok(true));
    });
    assert_eq!(led, Ok(()));
}

#[test]
fn a_call_that_panics_keeps_nobody_from_being_told() {
    let config = config(256 << 10, 64 << 10);
    let (log, _) = open(&disk(5, config), config);
    let led = beside_leader(&log, || {
        let (say, hear) = mpsc::channel();
        let begun = overfill(&log);
        // The file is full: one sync serves both.
        log.flush_later(log.end_lsn(), |_| panic!("a call's own")).unwrap();
        log.flush_later(log.end_lsn(), move |durable| say.send(durable).unwrap()).unwrap();
        log.checkpoint(begun, b"").unwrap();
        assert_eq!(hear.recv_timeout(LONG), Ok(true));
        log.flush_to(Lsn(append(&log, b"after it").end)).unwrap();
    });
    assert_eq!(led, Ok(()));
    log.flush_later(log.durable_lsn(), |_| panic!("another's own, at once")).unwrap();
}

/// It is told to stop while one is about to leave its call. Without a leader the lead on a full log would be handed to and fro.
#[test]
fn a_leader_ends_after_the_last_call() {
    let config = config(256 << 10, 64 << 10);
    let (log, _) = open(&disk(6, config), config);
    let begun = overfill(&log);
    std::thread::scope(|s| {
        let leader = s.spawn(|| log.lead_for_calls());
        while !log.calls.begin() {
            std::thread::yield_now();
        }
        log.stop_calls();
        while log.calls.is_led() {
            std::thread::yield_now();
        }
        let (say, hear) = mpsc::channel();
        log.leave_call(log.end_lsn(), move |durable| say.send(durable).unwrap());
        // The file is full, and the leader waits for room.
        assert!(hear.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(!leader.is_finished());
        log.checkpoint(begun, b"").unwrap();
        assert_eq!(hear.recv_timeout(LONG), Ok(true));
        assert_eq!(leader.join().unwrap(), Ok(()));
        assert!(!log.calls.begin());
    });
}
