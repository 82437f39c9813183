//! The log is off.

use super::*;
use myriad_base::Error;
use std::sync::atomic::{AtomicBool, Ordering};

fn refused(io: &SimIo, c: LogConfig) -> bool {
    match Log::open(&dyn_io(io), Path::new("/d"), c) {
        Ok(_) => false,
        Err(Error::Unlogged { path }) => {
            assert_eq!(path, PATH);
            true
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn nothing_is_written_and_nobody_is_stopped() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(1, c);
    let (log, _) = open(&io, c);
    let first = append(&log, b"logged");
    log.flush_to(Lsn(first.end)).unwrap();
    log.stop_writing().unwrap();
    let before = log.stats();
    // Many times what the file and the memory can hold, with nobody who takes a checkpoint.
    for _ in 0..5000 {
        let _admission = log.reserve_check().unwrap();
        let frame = append(&log, &[7; 1000]);
        log.flush_to(Lsn(frame.end)).unwrap();
        assert!(log.durable_lsn().0 >= frame.end);
    }
    let after = log.stats();
    assert_eq!((after.writes, after.written_bytes, after.syncs), (before.writes, before.written_bytes, before.syncs));
    assert_eq!(after.capacity_waits, before.capacity_waits);
    assert_eq!(after.appends, before.appends + 5000);
    // A checkpoint shortens the age, but says nothing to the next start.
    log.checkpoint(log.contiguous_lsn(), b"").unwrap();
    assert_eq!(log.age(), 0);
    assert!(log.is_unlogged() && refused(&io.crash(1), c));
}

#[test]
fn the_mark_goes_with_the_first_checkpoint_that_needs_nothing_left_out() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(1, c);
    let (log, _) = open(&io, c);
    for round in 0..3 {
        log.stop_writing().unwrap();
        for _ in 0..500 {
            append(&log, &[round; 1001]);
        }
        let last_left_out = log.contiguous_lsn();
        let from = log.resume_writing().unwrap();
        assert_eq!(from, last_left_out);
        let frames: Vec<Frame> = (0..100).map(|i| append(&log, &[i; 999])).collect();
        log.flush_to(log.end_lsn()).unwrap();
        log.checkpoint(Lsn(from.0 - 8), b"").unwrap();
        assert!(log.is_unlogged() && refused(&io.crash(1), c), "a change before the checkpoint may be missing");
        log.checkpoint(Lsn(frames[10].start), b"").unwrap();
        assert!(!log.is_unlogged());
        let (_, found) = open(&io.crash(2), c);
        assert_eq!(found, frames[10..]);
    }
}

#[test]
fn resumed_with_nothing_after_it() {
    let c = config(256 << 10, 64 << 10);
    let io = disk(1, c);
    let (log, _) = open(&io, c);
    append(&log, b"never written");
    log.stop_writing().unwrap();
    let from = log.resume_writing().unwrap();
    log.checkpoint(from, b"").unwrap();
    let io = io.crash(1);
    let (log, found) = open(&io, c);
    assert!(found.is_empty() && log.end_lsn() == from);
    let frame = append(&log, b"written");
    log.flush_to(Lsn(frame.end)).unwrap();
    assert_eq!(open(&io.crash(2), c).1, [frame]);
}

/// The power goes at any call of a life in which the log is switched off and on: either the start is refused, and then
/// the log was not on, or everything since the checkpoint is there.
#[test]
fn power_goes_at_any_call() {
    let c = config(256 << 10, 64 << 10);
    let (mut refusals, mut starts) = (0, 0);
    for calls in 0..60 {
        for seed in 0..4 {
            let io = disk(seed, c);
            let (log, _) = open(&io, c);
            io.power_off_after(calls);
            let mut on = true;
            let mut sure: Vec<Frame> = Vec::new();
            let mut random = Random::from_seed(seed);
            let mut run = || -> myriad_base::Result<()> {
                loop {
                    let frames: Vec<Frame> = (0..20).map(|_| append(&log, &body(&mut random, 900))).collect();
                    log.flush_to(log.end_lsn())?;
                    if on {
                        sure.extend(frames);
                    }
                    match (on, random.one_in(3)) {
                        (true, true) => {
                            on = false;
                            sure.clear();
                            log.stop_writing()?;
                        }
                        (false, true) => {
                            let from = log.resume_writing()?;
                            let frame = append(&log, b"while it resumes");
                            log.checkpoint(from, b"")?;
                            on = true;
                            sure.push(frame);
                            log.flush_to(log.end_lsn())?;
                        }
                        _ => {}
                    }
                    if log.age() > log.capacity() / 2 {
                        let at = log.contiguous_lsn();
                        sure.clear();
                        log.checkpoint(at, b"")?;
                    }
                }
            };
            assert!(run().is_err());
            let rest = io.crash(calls * 7 + seed);
            if refused(&rest, c) {
                assert!(!on, "calls {calls} seed {seed}: refused although the log was on");
                refusals += 1;
                continue;
            }
            let (_, found) = open(&rest, c);
            let known: Vec<&Frame> = sure.iter().filter(|f| found.iter().all(|g| g.start != f.start)).collect();
            // The frame behind the last checkpoint was not yet synced if the power went right there.
            let unsynced = known.iter().filter(|f| f.body == b"while it resumes").count();
            assert_eq!(known.len(), unsynced, "calls {calls} seed {seed}: acknowledged frames are lost");
            starts += 1;
        }
    }
    assert!(refusals > 20 && starts > 20, "{refusals} refusals, {starts} starts");
}

#[test]
fn switched_while_others_append() {
    let c = config(1 << 20, 64 << 10);
    let io = disk(1, c);
    let (log, _) = open(&io, c);
    let stop = AtomicBool::new(false);
    let last: Vec<Frame> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u8)
            .map(|t| {
                let (log, stop) = (&log, &stop);
                scope.spawn(move || {
                    let mut random = Random::from_seed(u64::from(t));
                    loop {
                        let ending = stop.load(Ordering::Acquire);
                        let _admission = log.reserve_check().unwrap();
                        let frame = append(log, &body(&mut random, 700));
                        log.flush_to(Lsn(frame.end)).unwrap();
                        assert!(log.durable_lsn().0 >= frame.end);
                        if ending {
                            return frame;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            log.stop_writing().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(300));
            let from = log.resume_writing().unwrap();
            std::thread::yield_now();
            log.checkpoint(from.max(log.contiguous_lsn()), b"").unwrap();
            assert!(!log.is_unlogged() && log.age() <= log.end_lsn().0 - from.0);
        }
        stop.store(true, Ordering::Release);
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let (_, found) = open(&io.crash(1), c);
    assert!(last.iter().all(|f| found.contains(f)), "acknowledged while the log was on");
}
