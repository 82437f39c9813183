//! The power goes.

use super::*;
use myriad_base::Error;

/// Runs until the power goes at call `at`, then restarts, several times over. What was acknowledged is found; what is
/// found is a prefix of what was appended.
fn lives(seed: u64) {
    let sizes = [256 << 10, 1 << 20].map(|capacity| config(capacity, 64 << 10));
    let mut random = Random::from_seed(seed);
    let mut io = disk(seed, sizes[0]);
    // Of the frames since the checkpoint in effect: all that were appended in the last life, and how many are sure.
    let mut appended: Vec<Frame> = Vec::new();
    let mut sure = 0;
    let mut possible_checkpoints: Vec<u64> = vec![crate::log::FIRST_LSN];
    for life in 0..12 {
        let config = sizes[random.below(2) as usize];
        if random.one_in(3) {
            // Also during recovery.
            io.power_off_after(random.below(8));
            if let Ok(log) = Log::open(&dyn_io(&io), Path::new("/d"), config) {
                let end = log.scan(log.last_checkpoint().0, &mut |_, _, _| Ok(()));
                if let Ok(end) = end {
                    let _ = log.resume_at(end);
                }
            }
            io = io.crash(random.next_u64());
        }
        let (log, found) = open(&io, config);
        let checkpoint = log.last_checkpoint().0 .0;
        assert!(possible_checkpoints.contains(&checkpoint), "seed {seed} life {life}");
        let skipped = appended.iter().take_while(|f| f.start < checkpoint).count();
        let expected = &appended[skipped..];
        assert!(found.len() + skipped >= sure, "seed {seed} life {life}: an acknowledged frame is lost");
        assert!(found[..] == expected[..found.len()], "seed {seed} life {life}: found what was not appended");
        appended = found;
        sure = appended.len();
        possible_checkpoints = vec![checkpoint];
        io.power_off_after(random.below(60));
        loop {
            if random.one_in(10) && !appended.is_empty() {
                let at = random.below(appended.len() as u64) as usize;
                let lsn = appended[at].start;
                possible_checkpoints.push(lsn);
                match log.checkpoint(Lsn(lsn), b"") {
                    Ok(()) => {
                        appended.drain(..at);
                        sure = sure.max(at) - at;
                        possible_checkpoints = vec![lsn];
                    }
                    Err(_) => break,
                }
            }
            if log.age() >= log.capacity() - 20_000 {
                if log.checkpoint(log.contiguous_lsn(), b"").is_err() {
                    possible_checkpoints.push(log.contiguous_lsn().0);
                    break;
                }
                appended.clear();
                sure = 0;
                possible_checkpoints = vec![log.contiguous_lsn().0];
            }
            let mut start = Lsn(0);
            let len_max = if random.one_in(5) { 9000 } else { 500 };
            let bytes = body(&mut random, len_max);
            // A failed append may have been written in part, or whole: then the scan may find it.
            match log.append(&bytes, |s, _| start = s) {
                Ok(end) => appended.push(Frame { start: start.0, end: end.0, body: bytes }),
                Err(_) => break,
            }
            let end = log.end_lsn();
            let done = match random.below(4) {
                0 => log.flush_to(end).map(|()| sure = appended.len()),
                1 => log.write_to(end),
                _ => Ok(()),
            };
            if done.is_err() {
                break;
            }
        }
        assert!(matches!(log.append(b"x", |_, _| {}), Err(Error::Poisoned { .. })));
        assert!(log.checkpoint(log.durable_lsn(), b"").is_err());
        io = io.crash(random.next_u64());
    }
}

#[test]
fn acknowledged_frames_survive_power_failures() {
    for seed in 0..150 {
        lives(seed);
    }
}

/// A hole before frames that did reach the disk ends the log; the frames after it stay dead although new frames may end
/// exactly where one of them begins.
#[test]
fn what_lies_after_a_hole_never_comes_back() {
    let config = config(256 << 10, 64 << 10);
    let io = disk(1, config);
    let (log, _) = open(&io, config);
    let bodies = [[1u8; 4088], [2; 4088], [3; 4088]];
    let frames: Vec<Frame> = bodies.iter().map(|b| append(&log, b)).collect();
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    let offset = |lsn: u64| crate::header::RING_START + lsn % (256 << 10);
    io.flip_bit(Path::new(PATH), offset(frames[1].start) + 100, 3).unwrap();
    let (log, found) = open(&io, config);
    assert_eq!(found, frames[..1]);
    let new = append(&log, &[9; 4088]);
    assert_eq!((new.start, new.end), (frames[1].start, frames[1].end));
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    let (_, found) = open(&io, config);
    assert_eq!(found, [frames[0].clone(), new]);
}

#[test]
fn many_restarts_without_a_checkpoint() {
    let config = config(256 << 10, 64 << 10);
    let mut io = disk(1, config);
    let mut expected = Vec::new();
    for i in 0..600u64 {
        let (log, found) = open(&io, config);
        assert!(found == expected, "start {i}");
        expected.push(append(&log, &i.to_le_bytes()));
        log.flush_to(log.end_lsn()).unwrap();
        // Never synced, so perhaps there and perhaps not; dead either way once the next life has begun elsewhere.
        append(&log, b"unsynced");
        if i % 2 == 0 {
            let _ = log.write_to(log.end_lsn());
            drop(log);
            io = io.crash(i);
            let mut last = None;
            let log = Log::open(&dyn_io(&io), Path::new("/d"), config).unwrap();
            log.scan(log.last_checkpoint().0, &mut |s, e, b| {
                last = Some(Frame { start: s.0, end: e.0, body: b.to_vec() });
                Ok(())
            })
            .unwrap();
            if last.as_ref() != expected.last() {
                expected.extend(last);
            }
        }
    }
}
