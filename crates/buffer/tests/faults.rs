//! Failing calls, flipped bits, missing pieces: clear errors, other pages usable, nothing acknowledged lost.

mod rig;

use myriad_base::page::{page_lsn, seal, PageKind, HEADER_BYTES};
use myriad_base::{Error, Lsn, PageId, PageNo, SpaceId};
use myriad_buffer::{BufferPool, FailingWrites, Level, Mtr, PoolConfig};
use myriad_io::{CallKind, Fault, Io, OpenMode};
use rig::{create, create_as, id, open, open_forced, small, work_elsewhere, DIR, OTHER, SPACE};
use std::path::Path;
use std::time::{Duration, Instant};

fn put(pool: &BufferPool, page: u32, value: u64, new: bool) {
    let mut mtr = Mtr::start(pool).unwrap();
    let at = if new { mtr.init(id(page), PageKind::Index).unwrap() } else { mtr.fix(id(page)).unwrap() };
    mtr.write(at, HEADER_BYTES, &value.to_le_bytes());
    mtr.commit().unwrap();
}

fn get(pool: &BufferPool, page: u32) -> Result<u64, Error> {
    let page = pool.fix_shared(id(page))?;
    Ok(u64::from_le_bytes(page[HEADER_BYTES..HEADER_BYTES + 8].try_into().unwrap()))
}

#[test]
fn a_flipped_bit_harms_one_page_only() {
    let config = small(32);
    let rig = create(1, &config);
    for page in 1..=20 {
        put(&rig.pool, page, u64::from(page), true);
    }
    rig.pool.checkpoint_now().unwrap();
    let sim = rig.sim.crash(1);
    drop(rig);
    sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), 5 * 4096 + 1000, 3).unwrap();
    let rig = open(sim, &config).unwrap();
    for page in 1..=20 {
        match get(&rig.pool, page) {
            Ok(v) => assert!(v == u64::from(page) && page != 5),
            Err(Error::CorruptPage { page: p, .. }) => assert!(p == id(5) && page == 5),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(get(&rig.pool, 5).is_err(), "again an error, not a stale frame");
    // A new life of the page is fine.
    put(&rig.pool, 5, 55, true);
    assert_eq!(get(&rig.pool, 5), Ok(55));
}

#[test]
fn a_page_never_written_is_an_error_and_leaves_no_trace() {
    let rig = create(2, &small(32));
    let free = rig.pool.stats().free_frames;
    assert!(matches!(rig.pool.fix_shared(id(700)), Err(Error::CorruptPage { .. })));
    assert!(rig.pool.fix_exclusive(id(701)).is_err());
    assert!(rig.pool.optimistic(id(702)).is_err());
    rig.pool.prefetch(&[id(703), id(704)]);
    assert_eq!(rig.pool.stats().free_frames, free);
}

#[test]
fn failed_page_writes_are_retried_and_nothing_is_lost() {
    for (fault, kind) in [
        (Fault::Eio, CallKind::Write),
        (Fault::Enospc, CallKind::Write),
        (Fault::ShortWrite, CallKind::Write),
        (Fault::Eio, CallKind::Sync),
    ] {
        for file in ["a.myr", "doublewrite"] {
            for nth in 0..3 {
                let config = small(48);
                let rig = create(nth, &config);
                for page in 1..=30 {
                    put(&rig.pool, page, u64::from(page), true);
                }
                rig.pool.checkpoint_now().unwrap();
                rig.sim.inject(kind, file, nth, fault, true);
                let mut failed = false;
                for page in 1..=30 {
                    put(&rig.pool, page, u64::from(page) + 100, false);
                    failed |= rig.pool.step_background().is_err();
                }
                assert!(failed, "{fault:?} {file} {nth}");
                assert!(rig.pool.check_poison().is_ok());
                assert!(rig.messages.lock().unwrap().iter().any(|m| m.0 == Level::Error));
                let durable = rig.pool.log().end_lsn();
                rig.pool.log().flush_to(durable).unwrap();
                if nth == 0 {
                    // The device recovers.
                    rig.sim.clear_faults();
                    rig.pool.checkpoint_now().unwrap();
                    assert_eq!(rig.pool.stats().dirty_pages, 0);
                }
                // The machine goes down.
                let sim = rig.sim.crash(nth + 77);
                drop(rig);
                sim.clear_faults();
                let rig = open(sim, &config).unwrap();
                for page in 1..=30 {
                    assert_eq!(get(&rig.pool, page), Ok(u64::from(page) + 100), "{fault:?} {kind:?} {file} {nth}");
                }
            }
        }
    }
}

/// Two batches write pages of one file, or their copies; the sync of one is told that something was lost, that of the other is not.
#[test]
fn a_failed_sync_is_no_success_of_another_batch() {
    let config = small(48);
    for seed in 0..10 {
        for file in ["a.myr", "doublewrite"] {
            let rig = create(seed, &config);
            put(&rig.pool, 1, 1, true);
            put(&rig.pool, 2, 1, true);
            rig.pool.checkpoint_now().unwrap();
            put(&rig.pool, 1, 11, false);
            let lost = rig.sim.lose_write(file);
            std::thread::scope(|s| {
                let one = s.spawn(|| rig.pool.checkpoint_now());
                lost.wait();
                put(&rig.pool, 2, 22, false);
                let two = rig.pool.checkpoint_now();
                assert!(matches!(two, Err(Error::Io { .. })), "{file}: {two:?}");
                let one = one.join().unwrap();
                assert!(matches!(one, Err(Error::Io { .. })), "{file}: {one:?}");
            });
            assert_eq!(rig.pool.stats().dirty_pages, 2);
            if seed % 2 == 0 {
                rig.pool.checkpoint_now().unwrap();
            }
            let rig = open(rig.sim.crash(seed), &config).unwrap();
            assert_eq!((get(&rig.pool, 1), get(&rig.pool, 2)), (Ok(11), Ok(22)), "{file} seed {seed}");
        }
    }
}

#[test]
fn a_failed_log_write_poisons_and_no_page_is_written() {
    let config = small(48);
    let rig = create(4, &config);
    put(&rig.pool, 1, 1, true);
    rig.pool.checkpoint_now().unwrap();
    rig.sim.inject(CallKind::Write, "redo.log", 0, Fault::Eio, true);
    put(&rig.pool, 1, 2, false);
    assert!(rig.pool.log().flush_to(rig.pool.log().end_lsn()).is_err());
    assert!(rig.pool.step_background().is_err());
    assert!(rig.pool.checkpoint_now().is_err());
    let sim = rig.sim.crash(5);
    sim.clear_faults();
    drop(rig);
    let rig = open(sim, &config).unwrap();
    assert_eq!(get(&rig.pool, 1), Ok(1));
}

/// The process ends after a failed sync of the log, the operating system's cache stays; then the power goes.
#[test]
fn a_commit_behind_what_a_failed_sync_left_is_not_lost() {
    let config = small(48);
    for seed in 0..20 {
        let rig = create(seed, &config);
        put(&rig.pool, 1, 1, true);
        rig.pool.checkpoint_now().unwrap();
        for n in 0..400 {
            put(&rig.pool, 1, n, false);
        }
        rig.sim.inject(CallKind::Sync, "redo.log", 0, Fault::Eio, false);
        assert!(rig.pool.log().flush_to(rig.pool.log().end_lsn()).is_err());
        let rig = open(rig.sim.kill(seed), &config).unwrap();
        put(&rig.pool, 2, 22, true);
        rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
        let rig = open(rig.sim.crash(seed), &config).unwrap();
        assert_eq!((get(&rig.pool, 1), get(&rig.pool, 2)), (Ok(399), Ok(22)), "seed {seed}");
    }
}

/// The process ends with a page written to its file but not synced, or after that sync failed: the operating system's cache has the page,
/// the device may not.
#[test]
fn a_page_that_only_the_cache_has_is_written_again() {
    let config = small(48);
    for seed in 0..20 {
        for failed_sync in [true, false] {
            let rig = create(seed, &config);
            put(&rig.pool, 1, 1, true);
            rig.pool.checkpoint_now().unwrap();
            put(&rig.pool, 1, 2, false);
            rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
            if failed_sync {
                rig.sim.inject(CallKind::Sync, "a.myr", 0, Fault::Eio, false);
            } else {
                // The write and sync of the copy and the write of the page come before.
                rig.sim.power_off_after(3);
            }
            assert!(rig.pool.checkpoint_now().is_err());
            let rig = open(rig.sim.kill(seed), &config).unwrap();
            rig.pool.checkpoint_now().unwrap();
            let rig = open(rig.sim.crash(seed), &config).unwrap();
            assert_eq!(get(&rig.pool, 1), Ok(2), "seed {seed}, failed sync: {failed_sync}");
        }
    }
}

#[test]
fn an_abandoned_mini_transaction_poisons() {
    let rig = create(5, &small(48));
    put(&rig.pool, 1, 1, true);
    {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let _ = mtr.fix(id(1)).unwrap();
    }
    assert!(rig.pool.check_poison().is_ok(), "nothing was changed");
    {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let at = mtr.fix(id(1)).unwrap();
        mtr.write(at, 100, b"x");
    }
    assert!(matches!(rig.pool.check_poison(), Err(Error::Poisoned { .. })));
    assert!(matches!(Mtr::start(&rig.pool), Err(Error::Poisoned { .. })));
    assert!(rig.pool.checkpoint_now().is_err());
}

#[test]
fn an_end_that_waits_for_room_in_the_log_is_told_that_the_engine_is_stopped() {
    let rig = create(6, &small(64));
    let log = rig.pool.log();
    while log.end_lsn().0 + (8 << 10) < log.writable_end().0 {
        log.append(&[1; 1000], |_, _| ()).unwrap();
    }
    std::thread::scope(|scope| {
        let end = scope.spawn(|| Mtr::start_end(&rig.pool).map(drop));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!end.is_finished());
        rig.pool.poison("a test");
        let begin = Instant::now();
        while !end.is_finished() && begin.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        let told = end.is_finished();
        log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        assert!(told && matches!(end.join().unwrap(), Err(Error::Poisoned { .. })));
    });
}

fn drop_unknown(pool: &BufferPool) {
    pool.spaces().drop_spaces(&[SpaceId(99)]).remove(0).unwrap();
    pool.discard_space(SpaceId(99));
}

#[test]
fn redo_for_a_missing_tablespace_does_not_stop_the_others() {
    let config = small(48);
    let rig = create(6, &config);
    let ghost = myriad_base::PageId::new(SpaceId(99), myriad_base::PageNo(1));
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let at = mtr.init(ghost, PageKind::Index).unwrap();
    mtr.write(at, 100, b"ghost");
    mtr.commit().unwrap();
    put(&rig.pool, 1, 11, true);
    drop_unknown(&rig.pool);
    put(&rig.pool, 2, 22, true);
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let at = mtr.fix(id(1)).unwrap();
    mtr.write(at, 200, b"more");
    let end = mtr.commit().unwrap();
    rig.pool.log().flush_to(end).unwrap();
    let sim = rig.sim.crash(6);
    drop(rig);
    let rig = open(sim, &config).unwrap();
    assert_eq!(rig.recovered.pages, 3);
    drop_unknown(&rig.pool);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().pending_redo_pages, 0);
    assert_eq!(rig.pool.stats().dirty_pages, 0);
    assert_eq!((get(&rig.pool, 1), get(&rig.pool, 2)), (Ok(11), Ok(22)));
}

/// What others are redoing is redone as well when all is.
#[test]
fn a_checkpoint_waits_for_what_others_redo() {
    const REDONE: u32 = 200;
    for seed in 0..20 {
        let rig = create(seed, &small(256));
        (1..=REDONE).for_each(|page| put(&rig.pool, page, u64::from(page), true));
        rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
        let rig = open(rig.sim.crash(seed), &threaded(256)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| rig.pool.redo_some(REDONE as usize));
            while rig.pool.stats().pending_redo_pages == u64::from(REDONE) {
                std::thread::yield_now();
            }
            rig.pool.checkpoint_now().unwrap();
            assert_eq!(rig.pool.stats().pending_redo_pages, 0, "seed {seed}");
        });
        rig.pool.stop_background();
    }
}

#[test]
fn dirty_pages_of_a_dropped_tablespace_are_not_written() {
    let rig = create(7, &small(48));
    for page in 1..=30 {
        put(&rig.pool, page, 1, true);
    }
    rig.pool.spaces().drop_spaces(&[SPACE]).remove(0).unwrap();
    rig.pool.discard_space(SPACE);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().dirty_pages, 0);
    assert_eq!(rig.pool.stats().writes, 0);
}

/// A log damaged in the middle: pages from beyond its end are refused and the error log says why; the others are as the
/// log left them.
#[test]
fn pages_beyond_the_end_of_a_damaged_log_are_refused() {
    for doublewrite in [true, false] {
        let config = myriad_buffer::PoolConfig { doublewrite, ..small(48) };
        let rig = create(8, &config);
        for page in 1..=20 {
            put(&rig.pool, page, u64::from(page), true);
        }
        rig.pool.checkpoint_now().unwrap();
        let damaged = rig.pool.log().end_lsn();
        let log = Path::new(DIR).join("#myriad/redo.log");
        let mut headers = [0; 8192];
        rig.sim.open(&log, OpenMode::READ).unwrap().read_at(&mut headers, 0).unwrap();
        for page in 1..=10 {
            put(&rig.pool, page, 100, false);
        }
        rig.pool.checkpoint_now().unwrap();
        let sim = rig.sim.crash(9);
        drop(rig);
        // As after a crash between the writing of the pages and the checkpoint.
        sim.open(&log, OpenMode::WRITE).unwrap().write_at(&headers, 0).unwrap();
        sim.flip_bit(&log, 8192 + damaged.0 % (1 << 20) + 13, 2).unwrap();
        if doublewrite {
            match open(sim.clone(), &config).err() {
                Some(Error::LogMismatch { reason, .. }) => assert!(reason.contains("has LSN"), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        let rig = open_forced(sim, &config).unwrap();
        let short = |m: &(Level, String)| m.0 == Level::Error && m.1.contains("the log ended at LSN");
        if doublewrite {
            assert_eq!(rig.messages.lock().unwrap().iter().filter(|m| short(m)).count(), 1, "told at the start");
        }
        for page in 1..=10 {
            match get(&rig.pool, page) {
                Err(Error::CorruptPage { reason, .. }) => assert!(reason.contains("beyond the log's end"), "{reason}"),
                other => panic!("{page}: {other:?}"),
            }
        }
        for page in 11..=20 {
            assert_eq!(get(&rig.pool, page), Ok(u64::from(page)));
        }
        assert_eq!(rig.messages.lock().unwrap().iter().filter(|m| short(m)).count(), 1);
        put(&rig.pool, 1, 1, true);
        assert_eq!(get(&rig.pool, 1), Ok(1), "a new life");
    }
}

/// A doublewrite file with copies of pages that are in no place yet, of a data directory in which page 5 is `value`.
fn with_copies(uuid: [u8; 16], value: u64) -> myriad_io::SimIo {
    let config = small(48);
    let rig = create_as(uuid, 1, &config);
    for page in 1..=20 {
        put(&rig.pool, page, value, true);
    }
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    assert!(rig.pool.checkpoint_now().is_err());
    rig.sim.clear_faults();
    rig.sim.crash(1)
}

fn doublewrite(sim: &myriad_io::SimIo) -> std::sync::Arc<dyn myriad_io::File> {
    sim.open(&Path::new(DIR).join("#myriad/doublewrite"), OpenMode::WRITE).unwrap()
}

fn replace(sim: &myriad_io::SimIo, bytes: &[u8]) {
    let file = doublewrite(sim);
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

fn bytes(file: &dyn myriad_io::File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// A copy is for the page as recovery finds it. Damage after the page was whole again is an error, not older contents.
#[test]
fn a_copy_serves_no_longer_than_until_its_page_is_whole() {
    let rig = open(with_copies(rig::UUID, 5), &small(48)).unwrap();
    assert!(rig.recovered.doublewrite_copies > 0);
    let write_all = || while rig.pool.step_background().unwrap() {};
    assert_eq!(get(&rig.pool, 5), Ok(5));
    put(&rig.pool, 5, 50, false);
    put(&rig.pool, 6, 60, true);
    write_all();
    for page in 101..=200 {
        put(&rig.pool, page, 1, true);
        write_all();
    }
    assert!(rig.pool.stats().pending_redo_pages > 0, "recovery goes on, the copies are kept");
    let reads = rig.pool.stats().reads;
    for page in [5, 6] {
        rig.sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), page * 4096 + 1000, 3).unwrap();
        match get(&rig.pool, page as u32) {
            Err(Error::CorruptPage { page: found, .. }) => assert_eq!(found, id(page as u32)),
            other => panic!("{page}: {other:?}"),
        }
    }
    assert_eq!(rig.pool.stats().reads, reads + 2, "they had left memory");
    assert_eq!((7..=20).map(|page| get(&rig.pool, page)).filter(|v| *v != Ok(5)).count(), 0);
}

/// What has been redone needs its copies until it is durable: another crash may come first.
#[test]
fn copies_are_kept_until_what_was_redone_is_durable() {
    let rig = create(37, &small(48));
    (1..=40).for_each(|page| put(&rig.pool, page, 1, true));
    rig.pool.checkpoint_now().unwrap();
    (1..=20).for_each(|page| put(&rig.pool, page, 5, false));
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    assert!(rig.pool.checkpoint_now().is_err());
    let sim = rig.sim.crash(1);
    drop(rig);
    sim.clear_faults();
    // As if the crash had torn it.
    sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), 20 * 4096 + 1000, 3).unwrap();
    let rig = open(sim, &small(48)).unwrap();
    while rig.pool.redo_some(100) > 0 {}
    assert_eq!(rig.pool.stats().pending_redo_pages, 0);
    let latched = rig.pool.fix_exclusive(id(20)).unwrap();
    for value in [6, 7] {
        while rig.pool.step_background().unwrap() {}
        assert_eq!(rig.pool.stats().dirty_pages, 1);
        (1..=40).filter(|page| *page != 20).for_each(|page| put(&rig.pool, page, value, false));
    }
    let sim = rig.sim.crash(2);
    drop(latched);
    drop(rig);
    let rig = open(sim, &small(48)).unwrap();
    assert_eq!(get(&rig.pool, 20), Ok(5));
}

#[test]
fn copies_of_another_data_directory_are_refused() {
    let config = small(48);
    let ours = with_copies(rig::UUID, 5);
    let (mine, theirs) = (bytes(&*doublewrite(&ours)), bytes(&*doublewrite(&with_copies([8; 16], 6))));
    assert_eq!(mine.len(), theirs.len());
    replace(&ours, &theirs);
    match open(ours.clone(), &config).err() {
        Some(Error::Format { path, reason }) => {
            assert!(path.ends_with("doublewrite") && reason.contains("another data directory"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bytes(&*doublewrite(&ours)), theirs, "nothing is touched");
    // Its own is good again; with a damaged header it is not taken for an empty one.
    replace(&ours, &mine);
    assert!(open(ours.crash(1), &config).unwrap().recovered.doublewrite_copies > 0);
    let damaged = ours.crash(2);
    damaged.flip_bit(&Path::new(DIR).join("#myriad/doublewrite"), 20, 1).unwrap();
    assert!(matches!(open(damaged, &config).err(), Some(Error::CorruptFile { .. })));
    // Cut within its creation, it is new.
    for len in [0, 100, 4096] {
        let cut = ours.crash(3);
        replace(&cut, &vec![0; len]);
        let rig = open(cut, &config).unwrap();
        assert_eq!(rig.recovered.doublewrite_copies, 0);
        assert_eq!(bytes(&*doublewrite(&rig.sim))[..4096], mine[..4096]);
    }
}

/// Pages whose places have room are written on a full disk, by how many at a time ever, and after a crash there too.
#[test]
fn pages_in_the_file_are_written_on_a_full_disk() {
    let config = small(300);
    let rig = create(8, &config);
    for page in 1..=250 {
        put(&rig.pool, page, 1, true);
    }
    rig.pool.spaces().get(SPACE).unwrap().ensure_pages(251).unwrap();
    rig.sim.set_capacity(Some(rig.sim.used_bytes()));
    // Copies of all, but no page gets to its place.
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    assert!(rig.pool.checkpoint_now().is_err());
    rig.sim.clear_faults();
    let rig = open(rig.sim.crash(2), &config).unwrap();
    for page in 1..=250 {
        assert_eq!(get(&rig.pool, page), Ok(1));
        put(&rig.pool, page, 2, false);
    }
    rig.pool.checkpoint_now().unwrap();
    let rig = open(rig.sim.crash(3), &config).unwrap();
    (1..=250).for_each(|page| assert_eq!(get(&rig.pool, page), Ok(2)));
}

/// A disk after a crash; a change of page 5 is in the log alone.
fn changed(seed: u64) -> myriad_io::SimIo {
    let rig = create(seed, &small(48));
    for page in 1..=8 {
        put(&rig.pool, page, u64::from(page), true);
    }
    rig.pool.checkpoint_now().unwrap();
    put(&rig.pool, 5, 50, false);
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    rig.sim.crash(seed)
}

const ONCE: bool = false;
const EVER: bool = true;

#[test]
fn what_is_read_wrong_a_few_times_is_read_again() {
    let sim = changed(31);
    // The header, and the page.
    for first in 0..2 {
        let rig = open(sim.crash(1), &small(48)).unwrap();
        (first..first + 3).for_each(|nth| rig.sim.inject(CallKind::Read, "a.myr", nth, Fault::FlipBit, ONCE));
        rig.pool.checkpoint_now().unwrap();
        assert_eq!(get(&rig.pool, 5), Ok(50));
        assert_eq!(rig.messages.lock().unwrap().len(), 0);
    }
}

/// The page that redo cannot read is read well later: as committed, or not at all.
#[test]
fn a_page_without_its_changes_is_never_used() {
    let config = small(48);
    let (mut lost, mut kept) = (0, 0);
    for power_off in 0..40 {
        let rig = open(changed(32), &config).unwrap();
        rig.sim.inject(CallKind::Read, "a.myr", 1, Fault::FlipBit, EVER);
        rig.sim.power_off_after(power_off);
        if rig.pool.checkpoint_now().is_ok() {
            assert!(matches!(get(&rig.pool, 5), Err(Error::CorruptPage { page, .. }) if page == id(5)));
            assert!(rig.pool.fix_exclusive(id(5)).is_err() && rig.pool.optimistic(id(5)).is_err());
            assert!(rig.pool.resident_shared(id(5)).is_none() && rig.pool.resident_exclusive(id(5)).is_none());
            let told = format!("recovery: {} is corrupt", id(5));
            assert!(rig.messages.lock().unwrap().iter().any(|m| m.0 == Level::Error && m.1.contains(&told)));
        }
        // Redo that is not yet durable is done again.
        let sim = rig.sim.crash(power_off);
        for again in 0..2 {
            let rig = open(sim.crash(again), &config).unwrap();
            if again == 1 {
                rig.pool.checkpoint_now().unwrap();
            }
            match get(&rig.pool, 5) {
                Ok(value) => assert_eq!((value, { kept += 1 }), (50, ())),
                Err(Error::CorruptPage { reason, .. }) => assert!(reason.contains("are lost: checksum"), "{reason}"),
                Err(e) => panic!("{e}"),
            }
            lost += usize::from(get(&rig.pool, 5).is_err());
            assert_eq!(get(&rig.pool, 4), Ok(4));
            put(&rig.pool, 5, 500, true);
            assert_eq!(get(&rig.pool, 5), Ok(500), "a new life");
            rig.pool.checkpoint_now().unwrap();
            let rig = open(rig.sim.crash(again), &config).unwrap();
            assert_eq!(get(&rig.pool, 5), Ok(500), "a new life");
        }
    }
    assert!(lost > 4 && kept > 4, "{lost} {kept}");
}

/// Where the log has the beginning of a page's next life.
#[test]
fn a_lost_page_is_good_again_when_it_was_formatted_later() {
    let config = small(48);
    let rig = open(changed(33), &config).unwrap();
    rig.sim.inject(CallKind::Read, "a.myr", 1, Fault::FlipBit, EVER);
    while rig.pool.redo_some(10) > 0 {}
    assert!(get(&rig.pool, 5).is_err());
    put(&rig.pool, 5, 51, true);
    assert_eq!(get(&rig.pool, 5), Ok(51));
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    let rig = open(rig.sim.crash(2), &config).unwrap();
    assert_eq!(get(&rig.pool, 5), Ok(51));
}

/// As where the file has an older copy of the page: what the log says does not suit it, now or later.
#[test]
fn a_page_that_its_records_do_not_suit_is_lost_and_holds_no_checkpoint_up() {
    for used_first in [false, true] {
        let rig = create(34, &small(48));
        (1..=8).for_each(|page| put(&rig.pool, page, u64::from(page), true));
        rig.pool.checkpoint_now().unwrap();
        for (page, number) in [(4, 4), (5, 5), (5, 6)] {
            let mut mtr = Mtr::start(&rig.pool).unwrap();
            let at = mtr.fix(id(page)).unwrap();
            mtr.apply(at, rig::NEXT, &[number]).unwrap();
            mtr.commit().unwrap();
        }
        rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
        let sim = rig.sim.crash(1);
        let path = Path::new(DIR).join("#myriad/a.myr");
        let mut bytes = vec![0; 4096];
        sim.open(&path, OpenMode::READ).unwrap().read_at(&mut bytes, 5 * 4096).unwrap();
        bytes[HEADER_BYTES] = 1;
        seal(&mut bytes);
        sim.scribble(&path, 5 * 4096, &bytes).unwrap();
        let rig = open(sim, &small(48)).unwrap();
        let expect_error = || {
            let text = get(&rig.pool, 5).unwrap_err().to_string();
            assert!(text.contains(&id(5).to_string()) && text.contains("another number is there"), "{text}");
        };
        if used_first {
            expect_error();
        }
        rig.pool.checkpoint_now().unwrap();
        assert!(!rig.pool.awaits_redo(SPACE));
        expect_error();
        assert_eq!(get(&rig.pool, 4), Ok(5));
        let told = rig.messages.lock().unwrap().clone();
        assert!(told.iter().any(|m| m.0 == Level::Error && m.1.contains("the page cannot be used")), "{told:?}");
    }
}

/// It is as if it had not been tried, also to who reads the log.
#[test]
fn an_operation_that_fails_leaves_nothing_behind() {
    let rig = create(38, &small(48));
    let pool = &rig.pool;
    (1..=3).for_each(|page| put(pool, page, u64::from(page), true));
    pool.checkpoint_now().unwrap();
    let lsn = |page| page_lsn(&pool.fix_shared(id(page)).unwrap());
    let before = lsn(3);
    let mut mtr = Mtr::start(pool).unwrap();
    let [one, two, three] = [1, 2, 3].map(|page| mtr.fix(id(page)).unwrap());
    mtr.write(one, HEADER_BYTES, &[11]);
    assert!(mtr.apply(three, rig::NEXT, &[30]).is_err());
    assert!(mtr.apply(two, rig::NEXT, &[30]).is_err());
    mtr.write(two, HEADER_BYTES, &[22]);
    let end = mtr.commit().unwrap();
    assert_eq!((lsn(1), lsn(2), lsn(3), pool.stats().dirty_pages), (end, end, before, 2));
    pool.log().flush_to(end).unwrap();
    let rig = open(rig.sim.crash(1), &small(48)).unwrap();
    assert_eq!([1, 2, 3].map(|page| get(&rig.pool, page).unwrap()), [11, 22, 3]);
}

/// Here of a change that can be made but once. The page is durable with it, but another has kept the checkpoint back.
#[test]
fn changes_that_a_page_has_are_not_made_again() {
    let rig = create(36, &small(48));
    let pool = &rig.pool;
    pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    put(pool, 1, 4, true);
    pool.checkpoint_now().unwrap();
    rig.sim.inject(CallKind::Write, "b.myr", 0, Fault::Eio, true);
    let mut mtr = Mtr::start(pool).unwrap();
    let _ = mtr.init(PageId::new(OTHER, PageNo(1)), PageKind::Index).unwrap();
    mtr.commit().unwrap();
    let mut mtr = Mtr::start(pool).unwrap();
    let at = mtr.fix(id(1)).unwrap();
    mtr.apply(at, rig::NEXT, &[4]).unwrap();
    mtr.commit().unwrap();
    assert!(pool.checkpoint_now().is_err());
    assert_eq!(pool.stats().dirty_pages, 1);
    let sim = rig.sim.crash(1);
    sim.clear_faults();
    let rig = open(sim, &small(48)).unwrap();
    assert!(rig.pool.awaits_redo(SPACE));
    assert_eq!(get(&rig.pool, 1), Ok(5));
}

/// Two who wait for each other, as pages can make them that name each other by damage.
#[test]
fn a_wait_for_a_page_ends() {
    let rig = rig::create(1, &PoolConfig { latch_wait_max: Duration::from_millis(50), ..small(64) });
    rig::init_pages(&rig.pool, 3);
    let barrier = std::sync::Barrier::new(2);
    let both = |first: u32, second: u32| {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let _ = mtr.fix(id(first)).unwrap();
        barrier.wait();
        let fixed = [rig.pool.fix_shared(id(second)).map(|_| ()), mtr.fix(id(second)).map(|_| ())];
        barrier.wait();
        let new = mtr.init(id(second), PageKind::Index).map(|_| ());
        barrier.wait();
        fixed.into_iter().chain([new]).collect::<Vec<_>>()
    };
    let results = std::thread::scope(|scope| {
        let other = scope.spawn(|| both(2, 1));
        [both(1, 2), other.join().unwrap()].concat()
    });
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("latching of tablespace 16 page ") && text.contains("imer expired"), "{text}");
    }
    rig.pool.check_poison().unwrap();
    drop(rig.pool.fix_exclusive(id(1)).unwrap());
}

fn threaded(frames: usize) -> PoolConfig {
    PoolConfig { background_threads: true, ..small(frames) }
}

/// Tries follow each other slowly, whoever waits for a frame, and pages of other files are written meanwhile.
#[test]
fn pages_that_cannot_be_written_are_left_alone_between_two_tries() {
    let rig = create(3, &threaded(64));
    let pool = &rig.pool;
    let other = |page: u32| PageId::new(OTHER, PageNo(page));
    pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    (1..=40).for_each(|page| put(pool, page, u64::from(page), true));
    for page in 1..=200 {
        let mut mtr = Mtr::start(pool).unwrap();
        let _ = mtr.init(other(page), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    assert!(pool.stats().write_errors > 0, "none was to be written");
    let failing = pool.failing_writes();
    assert!(failing.errors.iter().all(|sentence| sentence.contains("a.myr")), "{failing:?}");
    assert_eq!(failing.errors.len(), 1);
    // However often the cleaner is woken, as by every change while the log is old.
    let (before, begin) = (pool.stats(), Instant::now());
    while begin.elapsed() < Duration::from_secs(3) {
        pool.set_io_capacity(1000, 2000);
        std::thread::sleep(Duration::from_millis(1));
    }
    let tries = pool.stats().batches - before.batches;
    // On a busy machine that was longer than three seconds.
    let took = begin.elapsed();
    assert!((tries as f64) < 20.0 * took.as_secs_f64(), "{tries} batches in {took:?}");
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    assert_eq!(pool.failing_writes(), FailingWrites::default());
    (1..=40).for_each(|page| assert_eq!(get(pool, page), Ok(u64::from(page))));
    pool.stop_background();
}

/// A pool with threads whose first tablespace cannot be written, another that can, and pages of the first that have changes.
fn failing(seed: u64, frames: usize, pages: u32) -> rig::Rig {
    let rig = create(seed, &threaded(frames));
    rig.pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    (1..=pages).for_each(|page| put(&rig.pool, page, 0, true));
    rig.pool.checkpoint_now().unwrap();
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    (1..=pages).for_each(|page| put(&rig.pool, page, u64::from(page), false));
    rig
}

/// Makes pages of the other tablespace until `done` says so.
fn work_until(pool: &BufferPool, mut done: impl FnMut() -> bool) {
    (1..).take_while(|_| !done()).for_each(|page| work_elsewhere(pool, 1 + page % 500));
}

/// Ten times the log's length is logged for others' pages meanwhile; what had to be kept is there after a crash.
#[test]
fn pages_that_cannot_be_written_do_not_keep_the_checkpoint() {
    for seed in 0..4 {
        let rig = failing(seed, 256, 20);
        let pool = &rig.pool;
        let (from, length) = (pool.log().end_lsn().0, pool.log().ring_bytes());
        work_until(pool, || pool.log().end_lsn().0 > from + 10 * length);
        assert_eq!(pool.failing_writes().pages, 20);
        // Of some the newest change is later than where the log has them whole.
        (1..=20).step_by(3).for_each(|page| put(pool, page, u64::from(page) + 100, false));
        let durable = pool.log().end_lsn();
        pool.log().flush_to(durable).unwrap();
        let crashed = rig.sim.crash(seed);
        if seed == 0 {
            rig.sim.clear_faults();
            pool.checkpoint_now().unwrap();
        }
        pool.stop_background();
        drop(rig);
        let rig = open(crashed, &small(256)).unwrap();
        for page in 1..=20 {
            let newest = if page % 3 == 1 { page + 100 } else { page };
            assert_eq!(get(&rig.pool, page), Ok(u64::from(newest)), "page {page}, seed {seed}");
        }
    }
}

/// They are most of the pool, and less than a fifth of the log.
#[test]
fn pages_that_cannot_be_written_do_not_keep_the_checkpoint_in_a_small_pool() {
    let rig = failing(5, 64, 40);
    let pool = &rig.pool;
    let (from, length) = (pool.log().end_lsn().0, pool.log().ring_bytes());
    work_until(pool, || pool.log().end_lsn().0 > from + 3 * length);
    assert_eq!(pool.failing_writes().pages, 40);
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    (1..=40).for_each(|page| assert_eq!(get(pool, page), Ok(u64::from(page))));
    pool.stop_background();
}

/// So fast do others fill the log that it is full before any page was found that cannot be written.
#[test]
fn pages_that_cannot_be_written_do_not_keep_a_full_log() {
    let rig = failing(4, 256, 20);
    let pool = &rig.pool;
    let from = pool.log().end_lsn().0;
    // Cleaners leave out what is latched.
    let latched: Vec<_> = (1..=20).map(|page| pool.fix_exclusive(id(page)).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| work_until(pool, || pool.log().end_lsn().0 > from + 3 * pool.log().ring_bytes()));
        while pool.log().age() < pool.log().capacity() {
            std::thread::yield_now();
        }
        assert_eq!(pool.failing_writes(), FailingWrites::default());
        drop(latched);
    });
    assert_eq!(pool.failing_writes().pages, 20);
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    (1..=20).for_each(|page| assert_eq!(get(pool, page), Ok(u64::from(page))));
    pool.stop_background();
}

/// Of more pages than a fifth of the log holds the checkpoint waits for all: then it is told what helps.
#[test]
fn who_can_give_the_log_room_is_told_so() {
    for (pages, keep_the_log) in [(30, false), (60, true)] {
        let rig = failing(2, 512, pages);
        let told = |text: &str| rig.messages.lock().unwrap().iter().any(|m| m.1.contains(text));
        let begin = Instant::now();
        let refused = || told("changes of their tables are refused");
        work_until(&rig.pool, || refused() || begin.elapsed() > Duration::from_secs(60));
        assert!(refused());
        assert_eq!(told("a larger myriad_log_capacity makes room"), keep_the_log);
        rig.sim.clear_faults();
        rig.pool.stop_background();
    }
}

#[test]
fn changes_are_refused_where_too_many_pages_cannot_be_written() {
    let rig = failing(1, 512, 20);
    let pool = &rig.pool;
    let waits = |what: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !what() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", pool.failing_writes());
            work_until(pool, || what() || begin.elapsed() > Duration::from_secs(60));
        }
    };
    waits(&|| pool.failing_writes().pages == 20);
    pool.check_writable(SPACE).unwrap();
    // A tenth of the log's capacity.
    let max = pool.log().capacity() / 10 / 4096;
    let first = (21..).inspect(|&page| put(pool, page, 0, true)).find(|_| pool.check_writable(SPACE).is_err()).unwrap();
    assert!((max..=max + 2).contains(&u64::from(first)), "{first} pages of {max}");
    match pool.check_writable(SPACE) {
        Err(Error::Io { path, .. }) => assert!(path.contains("a.myr"), "{path}"),
        other => panic!("{other:?}"),
    }
    assert!(pool.failing_writes().refused);
    pool.check_writable(OTHER).unwrap();
    let told = |text: &str| rig.messages.lock().unwrap().iter().any(|m| m.1.contains(text));
    waits(&|| told("changes of their tables are refused"));
    rig.sim.clear_faults();
    waits(&|| pool.check_writable(SPACE).is_ok());
    waits(&|| told("no longer refused"));
    pool.checkpoint_now().unwrap();
    assert_eq!(pool.failing_writes(), FailingWrites::default());
    pool.stop_background();
}
