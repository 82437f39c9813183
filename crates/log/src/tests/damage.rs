//! Damage from outside, and failing calls.

use super::*;
use myriad_base::Error;
use myriad_io::{CallKind, Fault, OpenMode};

const SIZE: u64 = 256 << 10;

fn offset(lsn: u64) -> u64 {
    crate::header::RING_START + lsn % SIZE
}

fn some_frames(seed: u64, count: usize) -> (SimIo, Vec<Frame>) {
    let config = config(SIZE, 64 << 10);
    let io = disk(seed, config);
    let (log, _) = open(&io, config);
    let mut random = Random::from_seed(seed);
    let frames = (0..count).map(|_| append(&log, &body(&mut random, 300))).collect();
    log.flush_to(log.end_lsn()).unwrap();
    (io, frames)
}

#[test]
fn any_damaged_byte_ends_the_scan_at_its_frame() {
    let (io, frames) = some_frames(1, 12);
    for (i, frame) in frames.iter().enumerate() {
        let used = frame.start + 8 + frame.body.len() as u64;
        for at in (frame.start..used).step_by(3) {
            let io = io.kill(1);
            io.flip_bit(Path::new(PATH), offset(at), (at % 8) as u8).unwrap();
            let (_, found) = open(&io, config(SIZE, 64 << 10));
            assert_eq!(found, frames[..i], "byte {at}");
        }
    }
}

/// Where the scan ends, and the frame behind that.
fn beyond(io: &SimIo) -> (u64, Option<crate::FrameBeyond>) {
    let log = Log::open(&dyn_io(io), Path::new("/d"), config(SIZE, 64 << 10)).unwrap();
    let end = log.scan(log.last_checkpoint().0, &mut |_, _, _| Ok(())).unwrap();
    (end.0, log.frame_beyond(end).unwrap())
}

#[test]
fn frames_behind_damage_are_found() {
    let (io, frames) = some_frames(1, 12);
    assert_eq!(beyond(&io), (frames[11].end, None));
    for (i, frame) in frames.iter().enumerate() {
        let next = frames.get(i + 1).map(|next| crate::FrameBeyond { start: Lsn(next.start), of_unknown_run: false });
        for at in (frame.start..frame.start + 12).step_by(3) {
            let io = io.kill(1);
            io.flip_bit(Path::new(PATH), offset(at), 1).unwrap();
            assert_eq!(beyond(&io), (frame.start, next), "byte {at}");
        }
    }
}

/// After a start behind damage the frames that were lost are of an earlier run, and the log's end is its end.
#[test]
fn frames_of_an_earlier_run_are_not_behind_the_end() {
    let (io, frames) = some_frames(2, 12);
    io.flip_bit(Path::new(PATH), offset(frames[4].start + 9), 1).unwrap();
    let (log, found) = open(&io, config(SIZE, 64 << 10));
    assert_eq!(found, frames[..4]);
    let last = append(&log, b"new");
    log.flush_to(Lsn(last.end)).unwrap();
    assert_eq!(beyond(&io.kill(1)), (last.end, None));
}

#[test]
fn frames_that_an_older_header_does_not_know_are_found() {
    let (io, frames) = some_frames(3, 4);
    let mut headers = [0; 8192];
    io.open(Path::new(PATH), OpenMode::READ).unwrap().read_at(&mut headers, 0).unwrap();
    let (log, _) = open(&io, config(SIZE, 64 << 10));
    let frame = append(&log, b"of the next run");
    log.flush_to(Lsn(frame.end)).unwrap();
    let io = io.kill(1);
    io.scribble(Path::new(PATH), 0, &headers).unwrap();
    let unknown = crate::FrameBeyond { start: Lsn(frame.start), of_unknown_run: true };
    assert_eq!(beyond(&io), (frames[3].end, Some(unknown)));
}

#[test]
fn random_contents_are_survived() {
    let mut random = Random::from_seed(8);
    for _ in 0..100 {
        let (io, frames) = some_frames(2, 6);
        let from = frames[3].start;
        let nonsense: Vec<u8> = (0..20_000).map(|_| random.next_u64() as u8).collect();
        io.scribble(Path::new(PATH), offset(from), &nonsense).unwrap();
        let (_, found) = open(&io, config(SIZE, 64 << 10));
        assert_eq!(found, frames[..3]);
    }
}

#[test]
fn one_damaged_header_is_replaced_by_the_other_two_are_an_error() {
    let (io, frames) = some_frames(3, 10);
    let c = config(SIZE, 64 << 10);
    let (log, _) = open(&io, c);
    log.checkpoint(Lsn(frames[4].start), b"hello").unwrap();
    drop(log);
    for slot in 0..2u64 {
        let io = io.kill(slot);
        io.scribble(Path::new(PATH), slot * 4096 + 50, &[0xAA; 8]).unwrap();
        let log = Log::open(&dyn_io(&io), Path::new("/d"), c).unwrap();
        assert_eq!(log.last_checkpoint(), (Lsn(frames[4].start), b"hello".to_vec()), "slot {slot}");
        drop(log);
        let (_, found) = open(&io, c);
        assert_eq!(found, frames[4..]);
    }
    io.scribble(Path::new(PATH), 50, &[0xAA; 8]).unwrap();
    io.scribble(Path::new(PATH), 4096 + 50, &[0xAA; 8]).unwrap();
    let opened = Log::open(&dyn_io(&io), Path::new("/d"), c);
    assert!(matches!(opened.err(), Some(Error::CorruptFile { .. })));
}

/// Acknowledged frames may have been in what is gone, and in a log that goes round they may be anywhere.
#[test]
fn a_file_cut_short_is_an_error() {
    let (io, frames) = some_frames(4, 10);
    let c = config(SIZE, 64 << 10);
    io.truncate(Path::new(PATH), offset(frames[9].end) + 20).unwrap();
    let opened = Log::open(&dyn_io(&io), Path::new("/d"), c);
    assert!(matches!(opened.err(), Some(Error::CorruptFile { .. })));
    let missing = SimIo::new(1);
    assert!(Log::open(&dyn_io(&missing), Path::new("/d"), c).is_err());
}

#[test]
fn a_failed_write_or_sync_poisons() {
    for kind in [CallKind::Write, CallKind::Sync] {
        for fault in [Fault::Eio, Fault::Enospc] {
            let c = config(SIZE, 64 << 10);
            let io = disk(5, c);
            let (log, _) = open(&io, c);
            let sure = append(&log, b"durable");
            log.flush_to(Lsn(sure.end)).unwrap();
            io.inject(kind, "redo.log", 0, fault, false);
            let lost = append(&log, b"not");
            assert!(matches!(log.flush_to(Lsn(lost.end)), Err(Error::Poisoned { .. })), "{kind:?} {fault:?}");
            // The device works again, the log does not.
            assert!(matches!(log.flush_to(Lsn(lost.end)), Err(Error::Poisoned { .. })));
            assert!(matches!(log.append(b"x", |_, _| panic!("not called")), Err(Error::Poisoned { .. })));
            assert!(matches!(log.checkpoint(Lsn(sure.end), b""), Err(Error::Poisoned { .. })));
            assert!(log.write_to(log.end_lsn()).is_err());
            log.flush_to(Lsn(sure.end)).unwrap();
            let (_, found) = open(&io.crash(1), c);
            assert_eq!(found[0], sure);
        }
    }
}

#[test]
fn all_who_wait_learn_of_a_failure() {
    let c = config(1 << 20, 64 << 10);
    let io = disk(6, c);
    let (log, _) = open(&io, c);
    io.inject(CallKind::Sync, "redo.log", 40, Fault::Eio, false);
    std::thread::scope(|scope| {
        for t in 0..12 {
            let log = &log;
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                loop {
                    let bytes = body(&mut random, 60);
                    let Ok(end) = log.append(&bytes, |_, _| {}) else { break };
                    if log.flush_to(end).is_err() {
                        break;
                    }
                    assert!(log.reserve_check().is_ok() || log.check_poison().is_err());
                }
            });
        }
    });
    assert!(matches!(log.check_poison(), Err(Error::Poisoned { .. })));
}

#[test]
fn a_panic_in_the_closure_poisons() {
    let c = config(SIZE, 64 << 10);
    let io = disk(7, c);
    let (log, _) = open(&io, c);
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.append(b"x", |_, _| panic!("as planned"))));
    assert!(panicked.is_err());
    assert!(log.check_poison().is_err());
    assert!(log.flush_to(log.end_lsn()).is_err());
}

#[test]
fn every_failing_call_of_creation_is_reported() {
    let c = config(SIZE, 64 << 10);
    for kind in
        [CallKind::Open, CallKind::Write, CallKind::Sync, CallKind::SetLen, CallKind::Allocate, CallKind::SyncDir]
    {
        let io = SimIo::new(1);
        io.create_dir(Path::new("/d/#myriad")).unwrap();
        io.inject(kind, "", 0, Fault::Eio, false);
        assert!(Log::create(&dyn_io(&io), Path::new("/d"), c, UUID).is_err(), "{kind:?}");
        // And can be tried again.
        Log::create(&dyn_io(&io), Path::new("/d"), c, UUID).unwrap();
        open(&io, c);
    }
}

#[test]
fn a_log_that_the_disk_has_no_room_for_takes_none() {
    let (small, large) = (config(SIZE, 64 << 10), config(4 * SIZE, 64 << 10));
    let len = |io: &SimIo| dyn_io(io).open(Path::new(PATH), OpenMode::READ).unwrap().len().unwrap();
    let io = SimIo::new(1);
    io.create_dir(Path::new("/d/#myriad")).unwrap();
    io.forget_fallocate();
    io.set_capacity(Some(3 * SIZE));
    assert!(matches!(Log::create(&dyn_io(&io), Path::new("/d"), large, UUID), Err(Error::DiskFull { .. })));
    assert_eq!(len(&io), 0);
    Log::create(&dyn_io(&io), Path::new("/d"), small, UUID).unwrap();
    let (before, log) = (len(&io), Log::open(&dyn_io(&io), Path::new("/d"), large).unwrap());
    assert!(matches!(log.resume_at(log.last_checkpoint().0), Err(Error::DiskFull { .. })));
    assert_eq!(len(&io), before);
    drop(log);
    open(&io, small);
}

/// Frames of one size fill the ring lap after lap, so that right at the log's end an older lap's whole frame begins.
#[test]
fn frames_of_former_laps_never_verify() {
    let c = config(SIZE, 64 << 10);
    let io = disk(9, c);
    let (log, _) = open(&io, c);
    for i in 0..(3 * SIZE / 1024 + 100) {
        append(&log, &[i as u8; 1016]);
        if log.age() > SIZE / 2 {
            log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        }
    }
    // To a block's end: no padding separates the laps.
    while log.end_lsn().0 % 4096 != 0 {
        append(&log, &[1; 1016]);
    }
    log.flush_to(log.end_lsn()).unwrap();
    let reopened = Log::open(&dyn_io(&io.crash(1)), Path::new("/d"), c).unwrap();
    let end = reopened.scan(reopened.last_checkpoint().0, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(end, log.end_lsn());
}

#[test]
fn a_checkpoint_makes_the_log_before_it_durable() {
    let c = config(SIZE, 64 << 10);
    let io = disk(10, c);
    let (log, _) = open(&io, c);
    let frames: Vec<Frame> = (0..10).map(|i| append(&log, &[i; 50])).collect();
    log.checkpoint(Lsn(frames[5].start), b"").unwrap();
    assert!(log.durable_lsn().0 >= frames[5].start);
    log.checkpoint(Lsn(frames[2].start), b"older").unwrap();
    assert_eq!(log.last_checkpoint(), (Lsn(frames[5].start), b"older".to_vec()), "it never goes back");
    assert!(matches!(log.checkpoint(Lsn(frames[6].start), &[0; 1025]), Err(Error::TooLong { .. })));
}

/// More starts without a checkpoint than the header holds generations, with a ring that is full but for `rest` bytes.
#[test]
fn a_full_ring_survives_more_starts_than_generations() {
    let c = config(SIZE, 64 << 10);
    let io = disk(12, c);
    let mut kept = Vec::new();
    for _ in 0..crate::header::GENERATIONS_MAX {
        let (log, found) = open(&io, c);
        assert!(found == kept);
        kept.push(append(&log, &[3; 100]));
        log.flush_to(log.end_lsn()).unwrap();
    }
    for rest in [0, 24, 4000, 4096, 4104, 9000] {
        let (io, mut kept) = (io.kill(1), kept.clone());
        {
            let (log, _) = open(&io, c);
            let end = log.writable_end().0 - rest;
            while log.end_lsn().0 < end {
                let frame = if end - log.end_lsn().0 < 2048 { end - log.end_lsn().0 } else { 1024 };
                kept.push(append(&log, &vec![4; frame as usize - 8]));
            }
            log.flush_to(log.end_lsn()).unwrap();
        }
        for start in 0..3 {
            let (log, found) = open(&io.crash(start), c);
            assert!(found == kept, "rest {rest} start {start}: {} of {} frames", found.len(), kept.len());
            drop(log);
            let (log, _) = open(&io, c);
            if rest >= 4000 {
                kept.push(append(&log, &[5; 500]));
                log.flush_to(log.end_lsn()).unwrap();
            }
        }
    }
}

/// A length that no writer of this log can have meant ends the scan before anything is taken for it.
#[test]
fn a_frame_longer_than_any_that_is_written_ends_the_scan() {
    let c = config(SIZE, 256 << 10);
    let io = disk(13, c);
    let (log, _) = open(&io, c);
    let longest = append(&log, &vec![7; log.body_bytes_max()]);
    log.flush_to(Lsn(longest.end)).unwrap();
    let generation = log.header.lock().generation_at(longest.end);
    drop(log);
    // With another ring in memory than the one it was written with.
    for buffer in [64 << 10, 1 << 20] {
        let (_, found) = open(&io.kill(1), config(SIZE, buffer));
        assert!(found == [longest.clone()]);
    }
    let body = vec![8; longest.body.len() + 1];
    let frame = [&crate::frame::header(longest.end, generation, &body)[..], &body].concat();
    io.scribble(Path::new(PATH), offset(longest.end), &frame).unwrap();
    let (_, found) = open(&io, c);
    assert!(found == [longest]);
}

/// After a failed sync the operating system's cache has what the device lacks, and calls it clean. A later life of the engine
/// that reads it there writes it again before anything behind it is acknowledged.
#[test]
fn what_a_failed_sync_left_in_the_cache_is_durable_after_the_next_start() {
    for seed in 0..60 {
        let mut random = Random::from_seed(seed);
        // A ring with room for several windows of the scan, and one that the log goes round.
        let c = if seed % 3 == 0 { config(8 << 20, 1 << 20) } else { config(SIZE, 64 << 10) };
        let io = disk(seed, c);
        let (log, _) = open(&io, c);
        let before = random.below(log.capacity() * 3 / 4);
        while log.end_lsn().0 < before {
            append(&log, &body(&mut random, 10_000));
        }
        log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        let more = log.end_lsn().0 + random.below(log.capacity() * 3 / 4);
        let mut kept = vec![append(&log, b"first")];
        while log.end_lsn().0 < more {
            kept.push(append(&log, &body(&mut random, 10_000)));
        }
        io.inject(CallKind::Sync, "redo.log", 0, Fault::Eio, false);
        assert!(log.flush_to(log.end_lsn()).is_err());
        drop(log);
        let io = io.kill(seed);
        let (log, found) = open(&io, c);
        assert!(found == kept, "seed {seed}: the cache has it all");
        kept.push(append(&log, b"acknowledged"));
        log.flush_to(log.end_lsn()).unwrap();
        drop(log);
        let (_, found) = open(&io.crash(seed), c);
        assert!(found == kept, "seed {seed}: {} of {} frames", found.len(), kept.len());
    }
}

#[test]
fn what_a_start_cannot_write_again_stops_it() {
    let c = config(SIZE, 64 << 10);
    let (io, frames) = some_frames(14, 40);
    for kind in [CallKind::Write, CallKind::Sync] {
        let io = io.kill(1);
        io.inject(kind, "redo.log", 0, Fault::Eio, false);
        let log = Log::open(&dyn_io(&io), Path::new("/d"), c).unwrap();
        let end = log.scan(log.last_checkpoint().0, &mut |_, _, _| Ok(())).unwrap();
        assert!(matches!(log.resume_at(end), Err(Error::Io { .. })), "{kind:?}");
        drop(log);
        let (_, found) = open(&io.crash(2), c);
        assert_eq!(found, frames, "{kind:?}");
    }
}
