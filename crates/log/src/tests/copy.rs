//! Copies of the log made while it goes on.

use super::{append, body, config, disk, dyn_io, open, open_in, Frame};
use crate::{Log, LogConfig, LogCopy};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn};
use myriad_io::{CallKind, Io, SimIo};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/c";

fn begin(io: &SimIo, log: &Log, patience: Duration) -> LogCopy {
    io.create_dir(Path::new("/c/#myriad")).unwrap();
    LogCopy::begin(log, &dyn_io(io), Path::new(DIR), patience).unwrap()
}

/// Frames that a start finds in the copy.
fn frames(io: &SimIo, config: LogConfig) -> (Lsn, Vec<Frame>, Lsn) {
    let log = Log::open(&dyn_io(io), Path::new(DIR), config).unwrap();
    let end = log.scan(log.last_checkpoint().0, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(log.frame_beyond(end).unwrap(), None, "it would be taken for a damaged one");
    let (log, frames) = open_in(io, Path::new(DIR), config);
    let ((from, _), end) = (log.last_checkpoint(), log.end_lsn());
    assert!(log.age() <= log.capacity() * 7 / 8, "room is left for the start");
    append(&log, b"one more");
    log.flush_to(log.end_lsn()).unwrap();
    (from, frames, end)
}

#[test]
fn a_copy_has_all_from_its_checkpoint_to_its_end() {
    let config = config(256 << 10, 64 << 10);
    let mut laps = 0;
    for seed in 0..60 {
        let mut random = Random::from_seed(seed);
        let io = disk(seed, config);
        let (log, _) = open(&io, config);
        let mut all: Vec<Frame> = Vec::new();
        let mut copy = None;
        let begin_at = random.below(400);
        let end_at = begin_at + random.below(1500);
        for i in 0..end_at {
            if i == begin_at {
                copy = Some(begin(&io, &log, Duration::ZERO));
            }
            all.push(append(&log, &body(&mut random, 2000)));
            if let Some(copy) = &mut copy {
                if random.one_in(3) {
                    log.write_to(log.end_lsn()).unwrap();
                    while copy.advance(&log).unwrap() {}
                }
            }
            if log.age() > log.capacity() / 2 {
                if let Some(copy) = &mut copy {
                    log.write_to(log.end_lsn()).unwrap();
                    while copy.advance(&log).unwrap() {}
                }
                let at = all.len() - 1 - random.below(20) as usize;
                log.checkpoint(Lsn(all[at].start), &[]).unwrap();
            }
        }
        let mut copy = copy.unwrap_or_else(|| begin(&io, &log, Duration::ZERO));
        // What is copied beyond the end must not be found.
        let cut = all.len() - (random.below(8) as usize).min(all.len());
        let end = all.get(cut).map_or(log.end_lsn().0, |f| f.start).max(copy.checkpoint().0);
        log.flush_to(log.end_lsn()).unwrap();
        if random.one_in(2) {
            while copy.advance(&log).unwrap() {}
        }
        let from = copy.checkpoint();
        copy.finish(&log, Lsn(end)).unwrap();
        io.sync_dir(Path::new("/c/#myriad")).unwrap();
        laps += (end - from.0) / (256 << 10);
        all.retain(|f| f.start >= from.0 && f.end <= end);
        assert_eq!(frames(&io.crash(seed), config), (from, all, Lsn(end)), "seed {seed}");
        // The log goes on.
        log.checkpoint(log.end_lsn(), &[]).unwrap();
    }
    assert!(laps > 60, "{laps} laps");
}

#[test]
fn a_copy_that_is_too_slow_fails_and_the_log_goes_on() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    let mut copy = begin(&io, &log, Duration::from_millis(30));
    assert_eq!(log.redo_start(), copy.checkpoint());
    append(&log, &[1; 10_000]);
    log.flush_to(log.end_lsn()).unwrap();
    let begun = std::time::Instant::now();
    log.checkpoint(log.end_lsn(), &[]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(30), "it waited");
    assert!(matches!(copy.advance(&log), Err(Error::Invalid { .. })));
    let second = LogCopy::begin(&log, &dyn_io(&io), Path::new(DIR), Duration::ZERO);
    assert!(matches!(second, Err(Error::Io { .. })), "the file is there");
    copy.give_up(&log);
    append(&log, &[2; 10_000]);
    log.checkpoint(log.end_lsn(), &[]).unwrap();
    assert_eq!(log.redo_start(), log.end_lsn());
}

#[test]
fn none_takes_the_place_of_a_copy_that_has_failed_before_that_is_known() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    let mut failed = begin(&io, &log, Duration::ZERO);
    let laps = |log: &crate::Log| {
        for _ in 0..60 {
            append(log, &[1; 10_000]);
            log.checkpoint(log.end_lsn(), &[]).unwrap();
        }
        log.end_lsn()
    };
    // Nothing is kept for it any more.
    assert_eq!(laps(&log), log.redo_start());
    io.create_dir(Path::new("/e/#myriad")).unwrap();
    let begin_second = || LogCopy::begin(&log, &dyn_io(&io), Path::new("/e"), Duration::ZERO);
    assert!(matches!(begin_second(), Err(Error::Invalid { .. })), "it would have been taken for the first one");
    io.remove_file(Path::new("/e/#myriad/redo.log")).unwrap();
    assert!(matches!(failed.advance(&log), Err(Error::Invalid { .. })));
    failed.give_up(&log);
    let mut second = begin_second().unwrap();
    append(&log, b"whole");
    log.flush_to(log.end_lsn()).unwrap();
    while second.advance(&log).unwrap() {}
    second.finish(&log, log.end_lsn()).unwrap();
    assert_eq!(laps(&log), log.redo_start());
}

#[test]
fn no_ring_of_zeros_is_written_where_there_is_no_fallocate() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    io.forget_fallocate();
    let before = io.calls(CallKind::Write);
    let mut copy = begin(&io, &log, Duration::ZERO);
    assert_eq!(io.calls(CallKind::Write), before, "while the log waits for the copy");
    let mut all = Vec::new();
    for _ in 0..30 {
        all.push(append(&log, &[1; 10_000]));
        log.write_to(log.end_lsn()).unwrap();
        let before = io.calls(CallKind::Write);
        let mut steps = 0;
        while copy.advance(&log).unwrap() {
            steps += 1;
        }
        // The ring is doubled once; nothing lies in odd laps of it.
        assert_eq!(io.calls(CallKind::Write) - before, steps);
        log.checkpoint(log.end_lsn(), &[]).unwrap();
    }
    log.flush_to(log.end_lsn()).unwrap();
    let (from, end) = (copy.checkpoint(), log.end_lsn());
    copy.finish(&log, end).unwrap();
    io.sync_dir(Path::new("/c/#myriad")).unwrap();
    assert_eq!(frames(&io.crash(1), config), (from, all, end));
}

#[test]
fn a_checkpoint_waits_for_the_copy() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    let mut copy = begin(&io, &log, Duration::from_secs(60));
    append(&log, &[1; 10_000]);
    log.flush_to(log.end_lsn()).unwrap();
    std::thread::scope(|s| {
        let checkpoint = s.spawn(|| log.checkpoint(log.end_lsn(), &[]));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!checkpoint.is_finished());
        while copy.advance(&log).unwrap() {}
        checkpoint.join().unwrap().unwrap();
    });
    copy.finish(&log, log.end_lsn()).unwrap();
}

#[test]
fn a_log_that_is_off_is_not_copied() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    io.create_dir(Path::new("/c/#myriad")).unwrap();
    log.stop_writing().unwrap();
    let copy = LogCopy::begin(&log, &dyn_io(&io), Path::new(DIR), Duration::ZERO);
    assert!(matches!(copy, Err(Error::NotSupported { .. })));
    assert_eq!(log.redo_start(), log.last_checkpoint().0);
}
