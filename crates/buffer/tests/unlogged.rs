//! The log is off: what is written, what a crash leaves, and the way back.

mod rig;

use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Error, Result};
use myriad_buffer::{BufferPool, Mtr};
use myriad_io::{CallKind, Fault};
use rig::{create, id, open, small};
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts a value in every KiB of the page, so that a torn page has two.
fn try_put(pool: &BufferPool, page: u32, value: u64, new: bool) -> Result<()> {
    let mut mtr = Mtr::start(pool)?;
    let at = if new { mtr.init(id(page), PageKind::Index)? } else { mtr.fix(id(page))? };
    for offset in [HEADER_BYTES, 1024, 2048, 3072] {
        mtr.write(at, offset, &value.to_le_bytes());
    }
    mtr.commit().map(drop)
}

fn put(pool: &BufferPool, page: u32, value: u64, new: bool) {
    try_put(pool, page, value, new).unwrap();
}

fn get(pool: &BufferPool, page: u32) -> Result<u64> {
    let page = pool.fix_shared(id(page))?;
    let values: Vec<u64> = [HEADER_BYTES, 1024, 2048, 3072]
        .iter()
        .map(|&at| u64::from_le_bytes(page[at..at + 8].try_into().unwrap()))
        .collect();
    assert!(values.iter().all(|v| *v == values[0]), "torn: {values:?}");
    Ok(values[0])
}

#[test]
fn pages_are_written_once_and_only_to_make_room() {
    let config = small(200);
    let rig = create(1, &config);
    for page in 1..=40 {
        put(&rig.pool, page, 1, true);
    }
    rig.pool.checkpoint_now().unwrap();
    let before = rig.pool.stats();
    rig.pool.stop_logging().unwrap();
    // Several times the log's capacity.
    for round in 0..3000 {
        for page in 1..=40 {
            put(&rig.pool, page, round, false);
        }
    }
    assert!(rig.pool.log().stats().appended_bytes > 4 << 20);
    let after = rig.pool.stats();
    assert_eq!(after.writes, before.writes, "nothing had to go");
    rig.pool.resume_logging().unwrap();
    let on = rig.pool.stats();
    assert_eq!(on.writes, before.writes + 40);
    assert_eq!(on.doublewrite_batches, before.doublewrite_batches, "pages of that time need no second copy");
    let rig = open(rig.sim.crash(1), &config).unwrap();
    assert_eq!(rig.recovered.mtrs, 0);
    assert!((1..=40).all(|page| get(&rig.pool, page) == Ok(2999)));
}

/// A page changed after the log was resumed needs its second copy, whatever the mark says.
#[test]
fn pages_are_protected_from_where_the_log_is_resumed() {
    let config = small(48);
    let rig = create(2, &config);
    put(&rig.pool, 1, 1, true);
    put(&rig.pool, 2, 1, true);
    rig.pool.stop_logging().unwrap();
    let before = rig.pool.stats().doublewrite_batches;
    put(&rig.pool, 1, 2, false);
    rig.pool.log().resume_writing().unwrap();
    put(&rig.pool, 2, 2, false);
    assert!(rig.pool.log().is_unlogged());
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().doublewrite_batches, before + 1);
    assert!(!rig.pool.log().is_unlogged());
}

/// The power goes at any call, in the middle of switching or not. The start is refused, or all is there.
#[test]
fn power_goes_at_any_call() {
    let config = small(24);
    let (mut refusals, mut starts) = (0, 0);
    for calls in (0..160).step_by(3) {
        let rig = create(calls, &config);
        for page in 1..=60 {
            put(&rig.pool, page, 0, true);
        }
        rig.pool.checkpoint_now().unwrap();
        rig.sim.power_off_after(calls);
        // What is sure, what is possible, and whether a crash now must be survived.
        let (mut sure, mut newest, mut on) = (0, 0, true);
        let mut run = || -> Result<()> {
            loop {
                newest += 1;
                for page in 1..=60 {
                    try_put(&rig.pool, page, newest, false)?;
                }
                rig.pool.log().flush_to(rig.pool.log().end_lsn())?;
                if on {
                    sure = newest;
                }
                if newest % 2 == 1 {
                    on = false;
                    rig.pool.stop_logging()?;
                } else {
                    rig.pool.resume_logging()?;
                    on = true;
                    sure = newest;
                }
            }
        };
        assert!(run().is_err());
        match open(rig.sim.crash(calls), &config) {
            Ok(rig) => {
                let values: Vec<u64> = (1..=60).map(|page| get(&rig.pool, page).unwrap()).collect();
                assert!(
                    values.iter().all(|v| (sure..=newest).contains(v)),
                    "calls {calls}: {sure} {newest} {values:?}"
                );
                starts += 1;
            }
            Err(Error::Unlogged { .. }) => {
                assert!(!on, "calls {calls}: refused although the log was on");
                refusals += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(refusals > 10 && starts > 10, "{refusals} refusals, {starts} starts");
}

#[test]
fn a_failing_device_leaves_it_off() {
    for (kind, fault) in [(CallKind::Write, Fault::Enospc), (CallKind::Write, Fault::Eio), (CallKind::Sync, Fault::Eio)]
    {
        let config = small(48);
        let rig = create(3, &config);
        for page in 1..=20 {
            put(&rig.pool, page, 1, true);
        }
        rig.pool.stop_logging().unwrap();
        put(&rig.pool, 7, 2, false);
        rig.sim.inject(kind, "a.myr", 0, fault, true);
        let error = rig.pool.resume_logging().unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. } | Error::Io { .. }), "{error}");
        assert!(rig.pool.log().is_off() && rig.pool.log().is_unlogged());
        put(&rig.pool, 8, 3, false);
        assert!(matches!(open(rig.sim.crash(1), &config).err(), Some(Error::Unlogged { .. })));
        rig.sim.clear_faults();
        rig.pool.resume_logging().unwrap();
        let rig = open(rig.sim.crash(2), &config).unwrap();
        assert_eq!((get(&rig.pool, 7), get(&rig.pool, 8), get(&rig.pool, 9)), (Ok(2), Ok(3), Ok(1)));
    }
}

/// What is still to be redone is in the log's file alone.
#[test]
fn recovery_ends_first() {
    let config = small(48);
    let rig = create(4, &config);
    for page in 1..=20 {
        put(&rig.pool, page, 1, true);
    }
    rig.pool.checkpoint_now().unwrap();
    for page in 1..=20 {
        put(&rig.pool, page, 2, false);
    }
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    let rig = open(rig.sim.crash(1), &config).unwrap();
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    let error = rig.pool.stop_logging().unwrap_err();
    assert!(matches!(error, Error::NotSupported { .. }), "{error}");
    assert!(!rig.pool.log().is_unlogged());
    rig.sim.clear_faults();
    rig.pool.stop_logging().unwrap();
    assert_eq!(rig.pool.stats().pending_redo_pages, 0);
    rig.pool.resume_logging().unwrap();
    let rig = open(rig.sim.crash(2), &config).unwrap();
    assert!((1..=20).all(|page| get(&rig.pool, page) == Ok(2)));
}

#[test]
fn switched_under_load() {
    let config = myriad_buffer::PoolConfig { background_threads: true, ..small(200) };
    let rig = create(5, &config);
    for page in 1..=400 {
        put(&rig.pool, page, 0, true);
    }
    let stop = AtomicBool::new(false);
    let rounds: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u32)
            .map(|t| {
                let (pool, stop) = (&rig.pool, &stop);
                scope.spawn(move || {
                    let mut round = 0;
                    while !stop.load(Ordering::Acquire) {
                        round += 1;
                        for page in (1..=400).filter(|page| page % 4 == t) {
                            put(pool, page, round, false);
                        }
                        pool.log().flush_to(pool.log().end_lsn()).unwrap();
                    }
                    round
                })
            })
            .collect();
        for _ in 0..30 {
            rig.pool.stop_logging().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            rig.pool.resume_logging().unwrap();
            assert!(!rig.pool.log().is_unlogged());
        }
        stop.store(true, Ordering::Release);
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    rig.pool.stop_background();
    let rig = open(rig.sim.crash(1), &config).unwrap();
    for page in 1..=400 {
        assert_eq!(get(&rig.pool, page), Ok(rounds[page as usize % 4]), "page {page}");
    }
    rig.pool.stop_background();
}
