//! Tests of the whole log, on the simulated disk.

mod calls;
mod concurrent;
mod copy;
mod crash;
mod damage;
mod resize;
mod room;
mod unlogged;

use crate::{Log, LogConfig};
use myriad_base::random::Random;
use myriad_base::Lsn;
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::path::Path;
use std::sync::Arc;

pub(super) const PATH: &str = "/d/#myriad/redo.log";
pub(super) const UUID: [u8; 16] = *b"the uuid of this";

/// A frame as a test remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) body: Vec<u8>,
}

pub(super) fn config(capacity_bytes: u64, buffer_bytes: usize) -> LogConfig {
    LogConfig { capacity_bytes, buffer_bytes }
}

pub(super) fn dyn_io(io: &SimIo) -> Arc<dyn Io> {
    Arc::new(io.clone())
}

/// A new disk with a new log.
pub(super) fn disk(seed: u64, config: LogConfig) -> SimIo {
    let io = SimIo::new(seed);
    io.create_dir(Path::new("/d/#myriad")).unwrap();
    io.sync_dir(Path::new("/d")).unwrap();
    Log::create(&dyn_io(&io), Path::new("/d"), config, UUID).unwrap();
    io
}

/// Opens, scans and resumes; also the frames found.
pub(super) fn open(io: &SimIo, config: LogConfig) -> (Log, Vec<Frame>) {
    open_in(io, Path::new("/d"), config)
}

/// As [`open`], the log of folder `dir`.
pub(super) fn open_in(io: &SimIo, dir: &Path, config: LogConfig) -> (Log, Vec<Frame>) {
    let log = Log::open(&dyn_io(io), dir, config).unwrap();
    let (from, _) = log.last_checkpoint();
    let mut frames = Vec::new();
    let end = log
        .scan(from, &mut |start, end, body| {
            frames.push(Frame { start: start.0, end: end.0, body: body.to_vec() });
            Ok(())
        })
        .unwrap();
    log.resume_at(end).unwrap();
    assert_eq!((log.end_lsn(), log.durable_lsn(), log.contiguous_lsn()), (end, end, end));
    (log, frames)
}

pub(super) fn body(random: &mut Random, len_max: u64) -> Vec<u8> {
    let len = 1 + random.below(len_max);
    let word = random.next_u64();
    (0..len).map(|i| (word >> (i % 8 * 8)) as u8 ^ i as u8).collect()
}

pub(super) fn append(log: &Log, body: &[u8]) -> Frame {
    let mut start = Lsn(0);
    let end = log.append(body, |s, _| start = s).unwrap();
    Frame { start: start.0, end: end.0, body: body.to_vec() }
}

#[test]
fn frames_survive_and_follow_each_other() {
    let config = config(1 << 20, 1 << 16);
    let io = disk(1, config);
    let (log, found) = open(&io, config);
    assert!(found.is_empty());
    assert_eq!(log.uuid(), UUID);
    let mut random = Random::from_seed(1);
    let mut expected = Vec::new();
    for _ in 0..300 {
        expected.push(append(&log, &body(&mut random, 700)));
    }
    assert!(expected.windows(2).all(|w| w[0].end == w[1].start));
    assert!(expected.iter().all(|f| f.start % 8 == 0));
    log.flush_to(log.end_lsn()).unwrap();
    assert_eq!(log.durable_lsn(), log.end_lsn());
    assert_eq!(log.stats().appends, 300);
    let (log, found) = open(&io.crash(3), config);
    assert_eq!(found, expected);
    assert_eq!(log.end_lsn().0, expected.last().unwrap().end);
}

#[test]
fn many_laps_with_checkpoints_and_restarts() {
    let config = config(256 << 10, 64 << 10);
    let mut io = disk(2, config);
    let mut random = Random::from_seed(2);
    let mut kept: Vec<Frame> = Vec::new();
    for round in 0..60 {
        let (log, found) = open(&io, config);
        assert_eq!(found, kept, "round {round}");
        for _ in 0..20 {
            let len_max = if random.one_in(4) { log.body_bytes_max() as u64 } else { 300 };
            kept.push(append(&log, &body(&mut random, len_max)));
            if log.age() > log.capacity() / 2 {
                let at = random.below(kept.len() as u64) as usize;
                log.checkpoint(Lsn(kept[at].start), &[round, at as u8]).unwrap();
                assert_eq!(log.last_checkpoint(), (Lsn(kept[at].start), vec![round, at as u8]));
                kept.drain(..at);
            }
        }
        log.flush_to(log.end_lsn()).unwrap();
        drop(log);
        io = if random.one_in(2) { io.crash(u64::from(round)) } else { io.kill(u64::from(round)) };
    }
    assert!(kept.last().unwrap().end > 5 * (256 << 10), "several laps");
}

#[test]
fn a_body_must_have_a_fitting_length() {
    let config = config(1 << 20, 1 << 16);
    let io = disk(3, config);
    let (log, _) = open(&io, config);
    assert!(log.append(&[], |_, _| panic!("not called")).is_err());
    let max = log.body_bytes_max();
    assert!(log.append(&vec![1; max + 1], |_, _| panic!("not called")).is_err());
    log.append(&vec![1; max], |_, _| {}).unwrap();
    log.check_poison().unwrap();
}

#[test]
fn the_slot_is_open_while_the_closure_runs() {
    let config = config(1 << 20, 1 << 16);
    let io = disk(4, config);
    let (log, _) = open(&io, config);
    let first = append(&log, b"first");
    log.append(b"second", |start, end| {
        assert_eq!(start.0, first.end);
        assert!(end > start);
        assert_eq!(log.contiguous_lsn(), start);
    })
    .unwrap();
    assert_eq!(log.contiguous_lsn(), log.end_lsn());
}

/// What a failed sync of the larger ring has lost, a start that comes after does not take to be there.
#[test]
fn a_larger_ring_is_durable_also_after_a_start_that_failed() {
    let (small, large) = (config(1 << 20, 64 << 10), config(4 << 20, 64 << 10));
    for seed in 0..20 {
        let io = disk(seed, small);
        io.inject(CallKind::Sync, "redo.log", seed % 3, Fault::Eio, false);
        let log = Log::open(&dyn_io(&io), Path::new("/d"), large).unwrap();
        let _ = log.resume_at(log.last_checkpoint().0);
        drop(log);
        let io = io.kill(seed);
        drop(open(&io, large));
        let (log, _) = open(&io.crash(seed), large);
        assert_eq!(log.ring_bytes(), 4 << 20, "seed {seed}");
    }
}

#[test]
fn the_capacity_changes_at_a_clean_start_only() {
    let (small, large) = (config(256 << 10, 64 << 10), config(1 << 20, 64 << 10));
    let io = disk(5, small);
    let (log, _) = open(&io, small);
    let frame = append(&log, b"kept");
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    // Not clean: it stays.
    let (log, found) = open(&io, large);
    assert_eq!(found, [frame]);
    assert_eq!(log.stats().capacity_bytes, (256 << 10) / 8 * 7);
    log.checkpoint(log.end_lsn(), b"").unwrap();
    drop(log);
    let mut random = Random::from_seed(5);
    for (round, (to, bytes)) in [(large, 1 << 20), (small, 256 << 10), (large, 1 << 20)].into_iter().enumerate() {
        let (log, found) = open(&io, to);
        assert!(found.is_empty());
        assert_eq!(log.stats().capacity_bytes, bytes / 8 * 7);
        let frames: Vec<Frame> = (0..40).map(|_| append(&log, &body(&mut random, 4000))).collect();
        log.flush_to(log.end_lsn()).unwrap();
        let (_, found) = open(&io.crash(round as u64), to);
        assert_eq!(found, frames);
        log.checkpoint(log.end_lsn(), b"").unwrap();
    }
}
