//! A ring of another size while the log goes on.

use super::{append, body, config, disk, dyn_io, open, Frame, PATH};
use crate::{Log, LogCopy};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn, Result};
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::path::Path;
use std::time::Duration;

const SMALL: u64 = 256 << 10;
/// Not a multiple of it: the same LSN lies elsewhere.
const LARGE: u64 = (900 << 10) + 4096;
const RESIZED: &str = "/d/#myriad/redo.log.new";

pub(super) fn resize(io: &SimIo, log: &Log, capacity: u64) -> Result<()> {
    log.resize(&dyn_io(io), Path::new("/d"), capacity, &|| log.checkpoint(log.contiguous_lsn(), &[]))
}

/// Frames of up to `len_max` bytes from a checkpoint somewhere in the third lap of a ring of `capacity` to the end, of which some are
/// not yet written.
fn some_frames(log: &Log, random: &mut Random, capacity: u64, len_max: u64) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let laps = 2 * capacity + random.below(capacity);
    while log.end_lsn().0 < laps || random.below(50) > 0 {
        frames.push(append(log, &body(random, len_max)));
        if log.age() > log.capacity() * 3 / 4 {
            let at = random.below(frames.len() as u64) as usize;
            log.checkpoint(Lsn(frames[at].start), &[]).unwrap();
            frames.drain(..at);
        }
    }
    frames
}

/// The longest frames of either ring.
fn len_max(capacity: u64) -> u64 {
    capacity / 16 - 16
}

/// Changes the size from `before` to `after` and goes on beyond what either ring holds; the power fails somewhere amid it.
fn fail_amid(before: u64, after: u64) {
    let (mut kept, mut resized) = (0, 0);
    for seed in 0..240 {
        let mut random = Random::from_seed(seed);
        let config = config(before, 128 << 10);
        let io = disk(seed, config);
        let (log, _) = open(&io, config);
        let mut frames = some_frames(&log, &mut random, before, len_max(before));
        log.flush_to(log.end_lsn()).unwrap();
        let mut sure = frames.len();
        frames.push(append(&log, b"not asked for"));
        io.power_off_after(seed % 60);
        let mut alive = resize(&io, &log, after).is_ok();
        while alive {
            frames.push(append(&log, &body(&mut random, len_max(before.min(after)))));
            alive = log.flush_to(log.end_lsn()).is_ok();
            if alive {
                sure = frames.len();
                let full = log.age() > after / 2;
                alive = log.end_lsn().0 < before * 3 + after * 3
                    && (!full || log.checkpoint(Lsn(frames[sure - 9].start), &[]).is_ok());
            }
        }
        let io = io.crash(seed);
        let (log, found) = open(&io, config);
        let (from, _) = log.last_checkpoint();
        let from = frames.iter().take_while(|f| f.start < from.0).count();
        assert!(from + found.len() >= sure, "seed {seed}: an acknowledged frame is lost");
        assert!(found[..] == frames[from..][..found.len()], "seed {seed}: found what was not appended");
        assert!(!io.exists(Path::new(RESIZED)).unwrap(), "seed {seed}");
        match log.ring_bytes() == before {
            true => kept += 1,
            false => resized += 1,
        }
    }
    assert!(kept > 20 && resized > 20, "{kept} {resized}");
}

#[test]
fn power_failures_leave_the_smaller_file_or_the_larger() {
    fail_amid(SMALL, LARGE);
}

#[test]
fn power_failures_leave_the_larger_file_or_the_smaller() {
    fail_amid(LARGE, SMALL);
}

#[test]
fn a_failure_leaves_the_log_as_it_was() {
    for (before, after) in [(SMALL, LARGE), (LARGE, SMALL)] {
        let config = config(before, 128 << 10);
        for (kind, fault) in [
            (CallKind::Open, Fault::Eio),
            (CallKind::Allocate, Fault::Enospc),
            (CallKind::Write, Fault::Eio),
            (CallKind::Sync, Fault::Eio),
            (CallKind::Rename, Fault::Eio),
        ] {
            for nth in 0..3 {
                let io = disk(1, config);
                let (log, _) = open(&io, config);
                let mut frames = some_frames(&log, &mut Random::from_seed(nth), before, 2000);
                io.inject(kind, "redo.log.new", nth, fault, true);
                let failed = resize(&io, &log, after);
                io.clear_faults();
                if failed.is_ok() {
                    assert!(nth > 0, "{kind:?}");
                    continue;
                }
                assert!(!io.exists(Path::new(RESIZED)).unwrap(), "{kind:?} {nth}");
                assert_eq!((log.ring_bytes(), log.capacity()), (before, before - before / 8));
                frames.push(append(&log, &vec![5; len_max(before) as usize]));
                log.flush_to(log.end_lsn()).unwrap();
                resize(&io, &log, after).unwrap();
                let (from, _) = log.last_checkpoint();
                frames.retain(|f| f.start >= from.0);
                let (_, found) = open(&io.crash(nth), config);
                assert!(found == frames, "{kind:?} {nth}");
            }
        }
    }
}

#[test]
fn a_ring_becomes_smaller_behind_a_checkpoint_alone() {
    let config = config(LARGE, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    let long = vec![1; log.body_bytes_max()];
    let shrink = |checkpoint: &dyn Fn() -> Result<()>| log.resize(&dyn_io(&io), Path::new("/d"), SMALL, checkpoint);
    append(&log, &long);
    // The age would do; a frame would not.
    assert!(matches!(shrink(&|| Ok(())), Err(Error::Invalid { .. })));
    assert_eq!(log.ring_bytes(), LARGE);
    append(&log, &long);
    // Frames come as long as they may until appenders keep to the smaller ring.
    let long_frames = std::cell::Cell::new(0);
    shrink(&|| {
        let longest = log.body_bytes_max();
        long_frames.set(long_frames.get() + u32::from(longest == long.len()));
        append(&log, &vec![2; longest]);
        log.checkpoint(log.contiguous_lsn(), &[])?;
        append(&log, &vec![3; log.body_bytes_max()]);
        Ok(())
    })
    .unwrap();
    assert_eq!((log.ring_bytes(), log.body_bytes_max() as u64), (SMALL, len_max(SMALL)));
    assert!(matches!(log.append(&long, |_, _| ()), Err(Error::TooLong { .. })));
    let last = append(&log, b"last");
    log.flush_to(log.end_lsn()).unwrap();
    let (log, found) = open(&io.crash(1), config);
    assert_eq!((found.len(), found.last(), log.ring_bytes()), (2, Some(&last), SMALL));
}

#[test]
fn a_folder_that_cannot_be_opened_leaves_the_log_as_it_was() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    io.inject(CallKind::SyncDir, "#myriad", 0, Fault::Emfile, false);
    assert!(matches!(resize(&io, &log, LARGE), Err(Error::Io { .. })));
    assert!(!io.exists(Path::new(RESIZED)).unwrap());
    assert_eq!(log.stats().capacity_bytes, SMALL / 8 * 7);
    resize(&io, &log, LARGE).unwrap();
}

#[test]
fn a_name_that_may_not_be_durable_poisons() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    let frames = some_frames(&log, &mut Random::from_seed(1), SMALL, 2000);
    log.flush_to(log.end_lsn()).unwrap();
    io.inject(CallKind::SyncDir, "#myriad", 1, Fault::Eio, true);
    assert!(matches!(resize(&io, &log, LARGE), Err(Error::Poisoned { .. })));
    assert!(log.append(b"x", |_, _| {}).is_err());
    io.clear_faults();
    let (_, found) = open(&io.crash(1), small);
    assert!(found == frames);
}

#[test]
fn a_full_log_gets_room_without_a_checkpoint() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    let mut frames = Vec::new();
    while log.age() < log.capacity() {
        frames.push(append(&log, &[7; 1000]));
    }
    assert!(log.is_short());
    resize(&io, &log, LARGE).unwrap();
    assert_eq!((log.is_short(), log.path()), (false, PATH.to_string()));
    let longest = vec![1; log.body_bytes_max()];
    assert!(longest.len() as u64 > SMALL / 16);
    frames.push(append(&log, &longest));
    while log.age() < log.capacity() {
        frames.push(append(&log, &[8; 1000]));
    }
    log.flush_to(log.end_lsn()).unwrap();
    let (log, found) = open(&io.crash(1), small);
    assert!(found == frames);
    assert_eq!(log.stats().capacity_bytes, LARGE - LARGE / 8);
}

#[test]
fn what_cannot_be_is_refused() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    append(&log, b"one");
    resize(&io, &log, SMALL).unwrap();
    assert!(matches!(resize(&io, &log, SMALL - 1), Ok(())), "rounded up");
    resize(&io, &log, LARGE).unwrap();
    io.create_dir(Path::new("/c/#myriad")).unwrap();
    let copy = LogCopy::begin(&log, &dyn_io(&io), Path::new("/c"), Duration::ZERO).unwrap();
    assert!(matches!(resize(&io, &log, 2 * LARGE), Err(Error::Invalid { .. })));
    copy.give_up(&log);
    log.stop_writing().unwrap();
    assert!(matches!(resize(&io, &log, 2 * LARGE), Err(Error::NotSupported { .. })));
    log.check_poison().unwrap();
}
