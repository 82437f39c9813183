//! A log that fills.

use super::*;
use myriad_base::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn appenders_are_slowed_down_then_stopped_until_a_checkpoint() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(1, c);
    let (log, _) = open(&io, c);
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    log.set_capacity_hook(Box::new(move |age, capacity| {
        assert!(age > capacity / 2);
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    while log.age() < log.capacity() {
        assert!(log.age() >= (256 << 10) / 4 * 3 || asked.load(Ordering::Relaxed) == 0, "asked too early");
        let _admission = log.reserve_check().unwrap();
        append(&log, &[7; 1000]);
    }
    assert!(asked.load(Ordering::Relaxed) > 0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(log.reserve_check().unwrap()));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!waiter.is_finished());
        log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        waiter.join().unwrap();
    });
    assert_eq!(log.age(), 0);
    let before = log.stats().capacity_waits;
    let _admission = log.reserve_check().unwrap();
    assert_eq!(log.stats().capacity_waits, before);
}

#[test]
fn the_hook_may_take_the_checkpoint_itself() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(2, c);
    let (log, _) = open(&io, c);
    let log = Arc::new(log);
    let weak = Arc::downgrade(&log);
    log.set_capacity_hook(Box::new(move |_, _| {
        let log = weak.upgrade().unwrap();
        log.checkpoint(log.contiguous_lsn(), b"").unwrap();
    }));
    for _ in 0..2000 {
        let _admission = log.reserve_check().unwrap();
        append(&log, &[7; 1000]);
    }
    assert!(log.stats().checkpoints > 5);
}

/// Those who do not ask for room first still never overwrite what recovery needs: their writes wait.
#[test]
fn a_full_file_is_never_overwritten() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(3, c);
    let (log, _) = open(&io, c);
    let first = append(&log, b"needed by recovery");
    log.flush_to(Lsn(first.end)).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..400 {
                let frame = append(&log, &[1; 1000]);
                log.flush_to(Lsn(frame.end)).unwrap();
            }
        });
        while log.durable_lsn().0 < 250 << 10 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        assert!(!writer.is_finished());
        let (_, found) = open(&io.crash(1), c);
        assert_eq!(found[0], first);
        assert!(found.len() > 200);
        let durable = log.durable_lsn();
        log.checkpoint(durable, b"").unwrap();
        writer.join().unwrap();
    });
}

/// Whoever needs what a full file has no room for waits for a checkpoint, and keeps nobody from what is written: a
/// checkpoint may need just that.
#[test]
fn a_full_file_makes_durable_what_it_holds() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(4, c);
    let (log, _) = open(&io, c);
    let full = log.write_limit();
    let mut whole = append(&log, &[1; 1000]);
    while log.end_lsn().0 <= full {
        let frame = append(&log, &[1; 1000]);
        if frame.end <= full {
            whole = frame;
        }
    }
    let end = log.end_lsn();
    std::thread::scope(|scope| {
        let beyond: Vec<_> = (0..3).map(|_| scope.spawn(|| log.flush_to(end))).collect();
        let waiting = || log.stats().flush_waits;
        while waiting() < 3 {
            std::thread::yield_now();
        }
        log.flush_to(Lsn(whole.end)).unwrap();
        log.checkpoint(Lsn(whole.start), b"").unwrap();
        beyond.into_iter().for_each(|b| b.join().unwrap().unwrap());
    });
    assert_eq!(log.durable_lsn(), end);
    let (_, found) = open(&io.crash(1), c);
    assert_eq!((found[0].start, found.last().unwrap().end), (whole.start, end.0));
}

/// Who is let in when the file is nearly full has room there, also for a page of 64 KiB and what is logged beside it.
#[test]
fn large_pages_have_room_for_all_who_are_let_in() {
    const PAGE: usize = 64 << 10;
    let c = config(4 << 20, 1 << 20);
    let io = disk(5, c);
    let (log, _) = open(&io, c);
    // A checkpoint near the end of its block, whose bytes before it are of no use.
    let small = append(&log, &[1; 4000]);
    log.checkpoint(Lsn(small.end), b"").unwrap();
    for beside in [200, 14 << 10] {
        // As many as there is room for: what is left then is less than one of them takes.
        while log.age() + 8 * (PAGE as u64) < (4 << 20) - 4096 {
            let left = (4 << 20) - 4096 - 8 * PAGE - log.age() as usize;
            append(&log, &vec![1; left.saturating_sub(64).clamp(1, 30_000)]);
        }
        let admitted: Vec<_> = std::iter::from_fn(|| log.admit()).collect();
        assert!(admitted.len() > 3, "{}", admitted.len());
        admitted.iter().for_each(|_| drop(append(&log, &vec![1; PAGE + beside])));
        drop(admitted);
        assert!(log.end_lsn() <= log.writable_end(), "{} beyond {}", log.end_lsn(), log.writable_end());
        let end = log.end_lsn();
        log.checkpoint(end, b"").unwrap();
    }
}

/// Ends of transactions wait for no checkpoint: some room is kept for them, however many others were let in before.
#[test]
fn ends_of_transactions_have_room_of_their_own() {
    for capacity in [256 << 10, 4 << 20] {
        let c = config(capacity, 64 << 10);
        let io = disk(6, c);
        let (log, _) = open(&io, c);
        let log = &log;
        while let Some(_admission) = log.admit() {
            append(log, &[1; 1000]);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(log.reserve_check().unwrap()));
            for _ in 0..capacity / 64 / 2 / 48 {
                log.reserve_end().unwrap();
                append(log, &[2; 40]);
            }
            assert!(log.end_lsn() <= log.writable_end(), "{} beyond {}", log.end_lsn(), log.writable_end());
            let end = log.end_lsn();
            log.flush_to(end).unwrap();
            assert!(!waiter.is_finished());
            // Beyond that they wait, too, rather than be refused or fill the file.
            let many = scope.spawn(|| {
                for _ in 0..capacity / 48 {
                    log.reserve_end().unwrap();
                    append(log, &[2; 40]);
                }
            });
            while log.writable_end().0 - log.end_lsn().0 > capacity / 64 / 2 + 4096 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(60));
            assert!(log.end_lsn() <= log.writable_end() && !many.is_finished());
            while !many.is_finished() || !waiter.is_finished() {
                log.checkpoint(log.contiguous_lsn(), b"").unwrap();
            }
        });
    }
}

/// Whoever would be let in by a checkpoint does not wait for one that cannot come.
#[test]
fn who_waits_for_room_is_told_that_none_will_be_made() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(7, c);
    let (log, _) = open(&io, c);
    while log.end_lsn().0 + 6000 < log.writable_end().0 {
        append(&log, &[1; 1000]);
    }
    std::thread::scope(|scope| {
        let waiters = [scope.spawn(|| log.reserve_check().map(drop)), scope.spawn(|| log.reserve_end())];
        std::thread::sleep(Duration::from_millis(60));
        assert!(!waiters.iter().any(|w| w.is_finished()));
        log.refuse("no pages are written");
        let begin = Instant::now();
        while !waiters.iter().all(|w| w.is_finished()) && begin.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        let waiting = waiters.iter().filter(|w| !w.is_finished()).count();
        log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        assert_eq!(waiting, 0);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(Error::Poisoned { reason: "no pages are written".into() }));
        }
    });
}

/// A process that was stopped for longer, or a device that stands still, is no reason to give up the log.
#[test]
fn only_a_minute_in_which_a_checkpoint_could_come_ends_the_log() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(8, c);
    let (log, _) = open(&io, c);
    let mut patience = log.patience();
    let mut now = Instant::now();
    let mut pass = |ms, is_device_awaited| {
        now += Duration::from_millis(ms);
        patience.is_over(now, is_device_awaited)
    };
    assert!(!pass(0, false));
    assert!(!pass(70_000, false), "the process was stopped");
    assert!((0..9000).all(|_| !pass(10, true)), "the device stands still");
    assert!((0..5800).all(|_| !pass(10, false)));
    append(&log, b"changes");
    log.checkpoint(log.contiguous_lsn(), b"").unwrap();
    assert!((0..5999).all(|_| !pass(10, false)), "it was waited for the next");
    assert!((0..10).any(|_| pass(10, false)));
}
