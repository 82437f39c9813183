//! Changes of pages that are not in memory, in a file that cannot be read: the log does not fill for them, and none is lost or made twice.

mod rig;

use myriad_base::page::HEADER_BYTES;
use myriad_base::random::Random;
use myriad_base::{Lsn, PageId, PageNo};
use myriad_buffer::{BufferPool, PoolConfig};
use myriad_io::{AlignedBuf, CallKind, Fault, Io, OpenMode};
use myriad_log::LogConfig;
use rig::{create_with, id, init_pages, next, number, open, set_buffered, small, work_elsewhere, Rig, DIR, OTHER};
use std::path::Path;
use std::time::{Duration, Instant};

const PAGES: u32 = 200;
/// Where bytes are set, 28 of them.
const AT: usize = 1000;

/// Pages 1 to 400 in a pool with room for few of them, and a tablespace whose file always works.
fn filled(log_bytes: u64, seed: u64, config: &PoolConfig) -> Rig {
    let log = LogConfig { capacity_bytes: log_bytes, buffer_bytes: 256 << 10 };
    let rig = create_with(log, seed, config);
    rig.pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    init_pages(&rig.pool, 2 * PAGES);
    rig.pool.checkpoint_now().unwrap();
    rig
}

/// Pages that have left with changes and those that have not, while their file can be neither read nor written.
#[test]
fn they_do_not_keep_the_checkpoint() {
    let config = PoolConfig { background_threads: true, ..small(64) };
    for seed in 0..3 {
        let rig = filled(1 << 20, seed, &config);
        let pool = &rig.pool;
        (1..=PAGES).for_each(|page| next(pool, page, 0));
        // Of those in memory that have changes a few are left.
        (PAGES + 1..=2 * PAGES).for_each(|page| drop(pool.fix_shared(id(page)).unwrap()));
        for kind in [CallKind::Read, CallKind::Write] {
            rig.sim.inject(kind, "a.myr", 0, Fault::Eio, true);
        }
        let away = pool.stats().change_buffer_pages;
        assert!(away > 50, "{:?}", pool.stats());
        let end = pool.log().end_lsn().0 + 5 * pool.log().ring_bytes();
        (0..100).cycle().take_while(|_| pool.log().end_lsn().0 < end).for_each(|page| work_elsewhere(pool, 1 + page));
        let s = pool.stats();
        assert!(s.carried >= away && s.change_buffer_pages >= away, "{away} {s:?}");
        // They are tried again and again, and for a second after that no page gets more changes.
        let begin = Instant::now();
        while (1..=PAGES).any(|page| pool.buffer_change(id(page), 1, 0).is_some()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", pool.stats());
            (0..50).for_each(|page| work_elsewhere(pool, 1 + page));
        }
        flush(pool);
        let crashed = rig.sim.crash(seed);
        rig.sim.clear_faults();
        // The second for what a cleaner has carried forward during the first.
        (0..2).for_each(|_| pool.checkpoint_now().unwrap());
        assert_eq!((pool.stats().checkpoint_age, pool.stats().change_buffer_pages), (0, 0));
        assert!((1..=PAGES).all(|page| number(pool, page) == 1));
        pool.stop_background();
        drop(rig);
        let rig = open(crashed, &small(64)).unwrap();
        assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 1));
    }
}

/// The log has the changes as they were made and as they were carried forward, as something else holds the checkpoint.
#[test]
fn a_crash_finds_them_twice_and_makes_them_once() {
    for (written, damaged) in [(false, false), (true, false), (false, true)] {
        let config = small(64);
        let log = LogConfig { capacity_bytes: 256 << 10, buffer_bytes: 256 << 10 };
        let rig = create_with(log, 1, &config);
        let pool = &rig.pool;
        pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
        if !damaged {
            // So redo begins with the page as its file has it.
            init_pages(pool, PAGES);
            pool.checkpoint_now().unwrap();
        }
        // Latched it cannot be written.
        work_elsewhere(pool, 1);
        let latched = pool.fix_exclusive(PageId::new(OTHER, PageNo(1))).unwrap();
        if damaged {
            init_pages(pool, PAGES);
        }
        // What is written leaves memory without changes; the others with one each.
        (1..=PAGES).for_each(|page| next(pool, page, 0));
        let page = (1..=PAGES).find(|&page| !pool.is_resident(id(page)) && set_buffered(pool, page, AT, 1)).unwrap();
        rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
        (0..200).take_while(|_| pool.stats().carried == 0).for_each(|n| work_elsewhere(pool, 2 + n % 20));
        let s = pool.stats();
        assert!(s.carried > 0 && s.change_buffer_pages >= s.carried, "{s:?}");
        rig.sim.clear_faults();
        if written {
            // So it cannot leave unwritten again.
            pool.set_change_buffer(0);
            drop(pool.fix_shared(id(page)).unwrap());
            (1..=PAGES).cycle().take_while(|_| pool.is_resident(id(page))).for_each(|p| {
                if p != page {
                    drop(pool.fix_shared(id(p)).unwrap());
                }
            });
        }
        flush(pool);
        let crashed = rig.sim.crash(1);
        drop(latched);
        drop(rig);
        if damaged {
            let file = crashed.open(&Path::new(DIR).join("#myriad/a.myr"), OpenMode::WRITE).unwrap();
            file.write_at(&AlignedBuf::new(4096), u64::from(page) * 4096).unwrap();
        }
        let rig = open(crashed, &config).unwrap();
        let seen = rig.pool.fix_shared(id(page)).unwrap();
        assert_eq!((seen[HEADER_BYTES], seen[AT]), (1, 1), "{written} {damaged}");
    }
}

/// The page is damaged, and its file cannot be written: the log alone has the page that tells of it.
#[test]
fn a_lost_page_stays_lost() {
    let rig = filled(256 << 10, 1, &small(64));
    next(&rig.pool, 5, 0);
    flush(&rig.pool);
    let crashed = rig.sim.crash(1);
    drop(rig);
    crashed.scribble(&Path::new(DIR).join("#myriad/a.myr"), 5 * 4096, &[1; 4096]).unwrap();
    let rig = open(crashed, &PoolConfig { background_threads: true, ..small(64) }).unwrap();
    rig.pool.spaces().register(OTHER, "b.myr", Some([8; 16]));
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    while rig.pool.redo_some(10) > 0 {}
    let why = |rig: &Rig| {
        let text = rig.pool.fix_shared(id(5)).map(drop).unwrap_err().to_string();
        text.split_once("are lost: checksum").map(|(_, sums)| sums.to_string())
    };
    let before = why(&rig);
    assert!(before.is_some());
    let (end, begin) = (rig.pool.log().end_lsn(), Instant::now());
    (0..100).cycle().take_while(|_| rig.pool.log().last_checkpoint().0 < end).for_each(|page| {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", rig.pool.stats());
        work_elsewhere(&rig.pool, 1 + page);
    });
    assert!(rig.pool.stats().carried > 0);
    flush(&rig.pool);
    let rig = open(rig.sim.crash(2), &small(64)).unwrap();
    assert_eq!(why(&rig), before);
    while rig.pool.redo_some(10) > 0 {}
    assert_eq!(why(&rig), before);
    rig.pool.checkpoint_now().unwrap();
    let rig = open(rig.sim.crash(3), &small(64)).unwrap();
    assert_eq!(why(&rig), before);
}

/// What a page has to have.
#[derive(Clone, Copy, Default)]
struct Expected {
    number: u8,
    bytes: [u8; 28],
}

/// Makes what was logged durable.
fn flush(pool: &BufferPool) {
    pool.log().flush_to(pool.log().end_lsn()).unwrap();
}

/// Chance decides what is changed, when the file cannot be read, and when the engine ends.
#[test]
fn none_is_lost_or_made_twice() {
    let (mut carried, mut crashes) = (0, 0);
    for seed in 0..12 {
        let (mut random, config) = (Random::from_seed(seed), small(48));
        let mut rig = filled(256 << 10, seed, &config);
        let mut expected = [Expected::default(); PAGES as usize + 1];
        let mut readable = true;
        for step in 0..6000 {
            let page = 1 + random.below(u64::from(PAGES)) as u32;
            let of_page = &mut expected[page as usize];
            match random.below(if readable { 100 } else { 1000 }) {
                0 => {
                    readable = !readable;
                    match readable {
                        true => rig.sim.clear_faults(),
                        false => rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true),
                    }
                }
                1 if random.one_in(3) => {
                    carried += rig.pool.stats().carried;
                    crashes += 1;
                    let crashed = rig.sim.crash(seed + step);
                    drop(rig);
                    rig = open(crashed, &config).unwrap();
                    rig.pool.spaces().register(OTHER, "b.myr", Some([8; 16]));
                    rig.pool.redo_in_background(1).unwrap();
                    readable = true;
                }
                2..50 if readable && of_page.number < 200 => {
                    next(&rig.pool, page, of_page.number);
                    flush(&rig.pool);
                    of_page.number += 1;
                }
                50..60 if readable => {
                    let (at, byte) = (random.below(28) as usize, random.next_u64() as u8);
                    if set_buffered(&rig.pool, page, AT + at, byte) {
                        flush(&rig.pool);
                        of_page.bytes[at] = byte;
                    }
                }
                _ => work_elsewhere(&rig.pool, 1 + page),
            }
        }
        rig.sim.clear_faults();
        for page in 1..=PAGES {
            let (seen, of_page) = (rig.pool.fix_shared(id(page)).unwrap(), &expected[page as usize]);
            assert_eq!(seen[HEADER_BYTES], of_page.number, "page {page}, seed {seed}");
            assert_eq!(seen[AT..AT + 28], of_page.bytes, "page {page}, seed {seed}");
        }
        carried += rig.pool.stats().carried;
    }
    assert!(carried > 1000 && crashes > 50, "{carried} carried forward, {crashes} crashes: the test does not test");
}
