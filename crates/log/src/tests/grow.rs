//! A larger ring while the log goes on.

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
const GROWN: &str = "/d/#myriad/redo.log.new";

fn grow(io: &SimIo, log: &Log, capacity: u64) -> Result<()> {
    log.grow(&dyn_io(io), Path::new("/d"), capacity)
}

/// Frames from a checkpoint somewhere in the ring's third lap to the end, of which some are not yet written.
fn some_frames(log: &Log, random: &mut Random) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let laps = 2 * SMALL + random.below(SMALL);
    while log.end_lsn().0 < laps || random.below(50) > 0 {
        frames.push(append(log, &body(random, 2000)));
        if log.age() > log.capacity() * 3 / 4 {
            let at = random.below(frames.len() as u64) as usize;
            log.checkpoint(Lsn(frames[at].start), &[]).unwrap();
            frames.drain(..at);
        }
    }
    frames
}

#[test]
fn power_failures_leave_the_one_file_or_the_other() {
    let small = config(SMALL, 64 << 10);
    let (mut kept, mut grown) = (0, 0);
    for seed in 0..240 {
        let mut random = Random::from_seed(seed);
        let io = disk(seed, small);
        let (log, _) = open(&io, small);
        let mut frames = some_frames(&log, &mut random);
        log.flush_to(log.end_lsn()).unwrap();
        let mut sure = frames.len();
        frames.push(append(&log, b"not asked for"));
        io.power_off_after(seed % 40);
        let mut alive = grow(&io, &log, LARGE).is_ok();
        while alive {
            // Beyond the end of the smaller ring.
            frames.push(append(&log, &body(&mut random, 2000)));
            alive = log.age() < LARGE / 2 && log.flush_to(log.end_lsn()).is_ok();
            if alive {
                sure = frames.len();
            }
        }
        let io = io.crash(seed);
        let (log, found) = open(&io, small);
        assert!(found.len() >= sure, "seed {seed}: an acknowledged frame is lost");
        assert!(found[..] == frames[..found.len()], "seed {seed}: found what was not appended");
        assert!(!io.exists(Path::new(GROWN)).unwrap(), "seed {seed}");
        match log.stats().capacity_bytes {
            c if c == SMALL / 8 * 7 => kept += 1,
            _ => grown += 1,
        }
    }
    assert!(kept > 20 && grown > 20, "{kept} {grown}");
}

#[test]
fn a_failure_leaves_the_log_as_it_was() {
    let small = config(SMALL, 64 << 10);
    for (kind, fault) in [
        (CallKind::Open, Fault::Eio),
        (CallKind::Allocate, Fault::Enospc),
        (CallKind::Write, Fault::Eio),
        (CallKind::Sync, Fault::Eio),
        (CallKind::Rename, Fault::Eio),
    ] {
        for nth in 0..3 {
            let io = disk(1, small);
            let (log, _) = open(&io, small);
            let mut frames = some_frames(&log, &mut Random::from_seed(nth));
            io.inject(kind, "redo.log.new", nth, fault, true);
            let failed = grow(&io, &log, LARGE);
            io.clear_faults();
            if failed.is_ok() {
                assert!(nth > 0, "{kind:?}");
                continue;
            }
            assert!(!io.exists(Path::new(GROWN)).unwrap(), "{kind:?} {nth}");
            assert_eq!(log.stats().capacity_bytes, SMALL / 8 * 7);
            frames.push(append(&log, b"after it"));
            log.flush_to(log.end_lsn()).unwrap();
            grow(&io, &log, LARGE).unwrap();
            let (_, found) = open(&io.crash(nth), small);
            assert!(found == frames, "{kind:?} {nth}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_opened_leaves_the_log_as_it_was() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    io.inject(CallKind::SyncDir, "#myriad", 0, Fault::Emfile, false);
    assert!(matches!(grow(&io, &log, LARGE), Err(Error::Io { .. })));
    assert!(!io.exists(Path::new(GROWN)).unwrap());
    assert_eq!(log.stats().capacity_bytes, SMALL / 8 * 7);
    grow(&io, &log, LARGE).unwrap();
}

#[test]
fn a_name_that_may_not_be_durable_poisons() {
    let small = config(SMALL, 64 << 10);
    let io = disk(1, small);
    let (log, _) = open(&io, small);
    let frames = some_frames(&log, &mut Random::from_seed(1));
    log.flush_to(log.end_lsn()).unwrap();
    io.inject(CallKind::SyncDir, "#myriad", 1, Fault::Eio, true);
    assert!(matches!(grow(&io, &log, LARGE), Err(Error::Poisoned { .. })));
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
    grow(&io, &log, LARGE).unwrap();
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
    grow(&io, &log, SMALL).unwrap();
    assert!(matches!(grow(&io, &log, SMALL - 1), Ok(())), "rounded up");
    grow(&io, &log, LARGE).unwrap();
    assert!(matches!(grow(&io, &log, SMALL), Err(Error::NotSupported { .. })));
    io.create_dir(Path::new("/c/#myriad")).unwrap();
    let copy = LogCopy::begin(&log, &dyn_io(&io), Path::new("/c"), Duration::ZERO).unwrap();
    assert!(matches!(grow(&io, &log, 2 * LARGE), Err(Error::Invalid { .. })));
    copy.give_up(&log);
    log.stop_writing().unwrap();
    assert!(matches!(grow(&io, &log, 2 * LARGE), Err(Error::NotSupported { .. })));
    log.check_poison().unwrap();
}
