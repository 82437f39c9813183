//! Many threads.

use super::resize::resize;
use super::*;
use myriad_base::Error;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

/// Threads append frames of random sizes and flush now and then; a checkpointer makes room. Everything that was appended
/// is found, in order.
fn storm(threads: u64, frames_each: u64, len_max: u64, config: LogConfig, seed: u64) {
    storm_beside(threads, frames_each, len_max, config, seed, |_, _| {});
}

/// Beside it `other` runs, once.
fn storm_beside(
    threads: u64,
    frames_each: u64,
    len_max: u64,
    config: LogConfig,
    seed: u64,
    other: impl FnOnce(&SimIo, &Log),
) {
    let io = disk(seed, config);
    let (log, _) = open(&io, config);
    let appended = Mutex::new(BTreeMap::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (log, appended, done) = (&log, &appended, &done);
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || {
                    let mut random = Random::from_seed(seed * 1000 + t);
                    for _ in 0..frames_each {
                        let _admission = log.reserve_check().unwrap();
                        let frame = append(log, &body(&mut random, len_max));
                        let end = Lsn(frame.end);
                        appended.lock().unwrap().insert(frame.start, frame);
                        if random.one_in(3) {
                            log.flush_to(end).unwrap();
                            assert!(log.durable_lsn() >= end);
                        } else if random.one_in(20) {
                            log.write_to(end).unwrap();
                        }
                    }
                })
            })
            .collect();
        let checkpointer = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                if log.age() > log.capacity() / 2 {
                    log.checkpoint(log.contiguous_lsn(), b"").unwrap();
                }
                std::thread::yield_now();
            }
        });
        other(&io, log);
        for w in workers {
            w.join().unwrap();
        }
        done.store(true, Ordering::Release);
        checkpointer.join().unwrap();
    });
    assert_eq!(log.contiguous_lsn(), log.end_lsn());
    log.flush_to(log.end_lsn()).unwrap();
    let appended = appended.into_inner().unwrap();
    assert_eq!(log.stats().appends, threads * frames_each);
    let mut expected = crate::log::FIRST_LSN;
    for frame in appended.values() {
        assert_eq!(frame.start, expected, "no gap, no overlap");
        expected = frame.end;
    }
    let (_, found) = open(&io.crash(seed), config);
    let (from, _) = log.last_checkpoint();
    let kept: Vec<Frame> = appended.into_values().filter(|f| f.start >= from.0).collect();
    assert_eq!(found.len(), kept.len());
    assert!(found == kept);
}

#[test]
fn small_frames() {
    storm(8, 3000, 100, config(1 << 20, 64 << 10), 1);
}

#[test]
fn a_ring_that_grows_and_shrinks() {
    let small = 256 << 10;
    for seed in 0..8 {
        storm_beside(4, 1500, 600, config(small, 64 << 10), 10 + seed, |io, log| {
            for times in [2, 4, 1, 5] {
                let before = log.end_lsn().0;
                while log.end_lsn().0 < before + small && log.stats().appends < 4500 {
                    std::thread::yield_now();
                }
                resize(io, log, times * small + 4096).unwrap();
            }
        });
    }
}

#[test]
fn frames_as_large_as_the_ring_allows() {
    storm(4, 300, 16_000, config(512 << 10, 64 << 10), 2);
}

#[test]
fn more_threads_than_slots() {
    storm(100, 60, 500, config(512 << 10, 64 << 10), 3);
}

#[test]
fn one_sync_serves_many() {
    let config = config(4 << 20, 1 << 20);
    let io = disk(9, config);
    let (log, _) = open(&io, config);
    std::thread::scope(|scope| {
        for t in 0..16 {
            let log = &log;
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                for _ in 0..200 {
                    let frame = append(log, &body(&mut random, 200));
                    log.flush_to(Lsn(frame.end)).unwrap();
                }
            });
        }
    });
    let stats = log.stats();
    assert_eq!(stats.appends, 3200);
    assert!(stats.syncs <= 3200);
    let before = log.stats();
    log.flush_to(log.end_lsn()).unwrap();
    assert_eq!(log.stats(), before, "nothing to do costs nothing");
}

/// The sync of a checkpoint's header is told that frames were lost, the sync of the commit that wrote them is not.
#[test]
fn a_failed_sync_of_the_header_is_no_success_of_a_commit() {
    let config = config(1 << 20, 64 << 10);
    let io = disk(31, config);
    let (log, _) = open(&io, config);
    let sure = append(&log, b"durable");
    log.flush_to(Lsn(sure.end)).unwrap();
    let lost = io.lose_write("redo.log");
    std::thread::scope(|s| {
        let commit = s.spawn(|| log.flush_to(Lsn(append(&log, &[7; 20_000]).end)));
        lost.wait();
        let checkpoint = log.checkpoint(Lsn(sure.end), b"");
        assert!(matches!(checkpoint, Err(Error::Poisoned { .. })), "{checkpoint:?}");
        let commit = commit.join().unwrap();
        assert!(matches!(commit, Err(Error::Poisoned { .. })), "{commit:?}");
    });
    assert_eq!(log.durable_lsn(), Lsn(sure.end));
}

/// The other way round: what the checkpoint wrote is lost, and the commit is told.
#[test]
fn a_failed_sync_of_a_commit_is_no_success_of_a_checkpoint() {
    let config = config(1 << 20, 64 << 10);
    let io = disk(32, config);
    let (log, _) = open(&io, config);
    let sure = append(&log, b"durable");
    log.flush_to(Lsn(sure.end)).unwrap();
    let before = log.last_checkpoint();
    let lost = io.lose_write("redo.log");
    std::thread::scope(|s| {
        let checkpoint = s.spawn(|| log.checkpoint(Lsn(sure.end), b""));
        lost.wait();
        let commit = log.flush_to(Lsn(append(&log, b"lost").end));
        assert!(matches!(commit, Err(Error::Poisoned { .. })), "{commit:?}");
        let checkpoint = checkpoint.join().unwrap();
        assert!(matches!(checkpoint, Err(Error::Poisoned { .. })), "{checkpoint:?}");
    });
    assert_eq!(log.last_checkpoint(), before);
}
