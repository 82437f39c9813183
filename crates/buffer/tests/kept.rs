//! Pages that leave memory unwritten: whatever comes then, none of their changes is lost, and none is made twice.

mod rig;

use myriad_base::codec::push_varint;
use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn};
use myriad_buffer::{BufferPool, Mtr, PoolConfig, PoolStats};
use myriad_io::{CallKind, Fault};
use rig::{create, id, init_pages, next, number, open, small, work_elsewhere, Rig, OTHER, ROOM, WRITE};

const PAGES: u32 = 200;

/// Pages 1 to 200 in a pool with room for a quarter of them, each with the number `rounds`. What comes is what a small pool always has
/// to do: pages with changes make room.
fn filled(seed: u64, config: &PoolConfig, rounds: u8) -> Rig {
    let rig = create(seed, config);
    init_pages(&rig.pool, PAGES);
    rig.pool.checkpoint_now().unwrap();
    for round in 0..rounds {
        (1..=PAGES).for_each(|page| next(&rig.pool, page, round));
    }
    rig
}

/// One that has left memory with changes.
fn away(pool: &BufferPool) -> u32 {
    let evicted = pool.stats().evicted_unwritten;
    assert!(evicted > 0, "no page leaves unwritten: the test does not test");
    (1..=PAGES).find(|&page| !pool.is_resident(id(page))).expect("not all have room")
}

#[test]
fn pages_changed_again_and_again_are_written_once() {
    let (config, before) = (small(64), |rig: &Rig| rig.pool.stats());
    let rig = filled(1, &config, 1);
    let first: PoolStats = before(&rig);
    for round in 1..6 {
        (1..=PAGES).for_each(|page| next(&rig.pool, page, round));
    }
    let s = rig.pool.stats();
    assert_eq!(s.writes, first.writes, "none need be written while its changes are few and young");
    assert!(s.evicted_unwritten - first.evicted_unwritten > 4 * u64::from(PAGES), "{s:?}");
    assert!(s.change_buffer_pages > 100 && s.change_buffer_changes == 0, "{s:?}");
    // Then everything reaches its file.
    rig.pool.checkpoint_now().unwrap();
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_pages, s.change_buffer_bytes, s.checkpoint_age, s.dirty_pages), (0, 0, 0, 0));
    let sim = rig.sim.crash(1);
    drop(rig);
    let rig = open(sim, &config).unwrap();
    assert_eq!(rig.recovered.mtrs, 0);
    assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 6));
}

#[test]
fn a_crash_finds_their_changes_in_the_log() {
    let config = small(64);
    let rig = filled(2, &config, 5);
    let _ = away(&rig.pool);
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    let sim = rig.sim.crash(2);
    drop(rig);
    let rig = open(sim, &config).unwrap();
    assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 5));
}

/// Many of them are not read again for a stop: the next start makes their changes.
#[test]
fn a_stop_leaves_many_to_the_next_start() {
    for (seed, max, few) in [(10, 199, true), (11, 20, false)] {
        let config = small(64);
        let rig = filled(seed, &config, 5);
        let (pool, _) = (&rig.pool, away(&rig.pool));
        pool.set_io_capacity(10, max);
        let (unread, reads) = (pool.stats().change_buffer_pages, pool.stats().reads);
        let left = pool.checkpoint_at_stop().unwrap() as u64;
        let s = pool.stats();
        match few {
            true => assert_eq!((left, s.checkpoint_age, s.change_buffer_pages), (0, 0, 0)),
            false => assert_eq!((left, s.reads, s.change_buffer_pages), (unread, reads, unread)),
        }
        assert_eq!(s.dirty_pages, 0);
        let sim = rig.sim.crash(seed);
        drop(rig);
        let rig = open(sim, &config).unwrap();
        assert_eq!(rig.recovered.mtrs == 0, few);
        assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 5));
    }
}

/// The log grows, and with nobody who wants these pages they are read, written, and hold the checkpoint no more.
#[test]
fn old_ones_are_written_though_nobody_wants_them() {
    let rig = filled(3, &small(64), 2);
    let pool = &rig.pool;
    let _ = away(pool);
    let capacity = pool.log().capacity();
    for i in 0..4000_u32 {
        let mut mtr = Mtr::start(pool).unwrap();
        let p = mtr.fix(id(1)).unwrap();
        mtr.write(p, 2000, &[i as u8; 1000]);
        mtr.commit().unwrap();
        assert!(pool.stats().checkpoint_age < capacity / 4 * 3, "{i}: {:?}", pool.stats());
    }
    assert!((2..=PAGES).all(|page| number(pool, page) == 2));
}

#[test]
fn one_that_cannot_be_read_keeps_its_changes() {
    let rig = filled(4, &small(64), 3);
    let page = away(&rig.pool);
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    assert!(matches!(rig.pool.fix_shared(id(page)), Err(Error::Io { .. })));
    rig.pool.checkpoint_now().unwrap();
    assert!(rig.pool.stats().checkpoint_age > 0, "it waits for the page");
    rig.sim.clear_faults();
    assert_eq!(number(&rig.pool, page), 3);
    next(&rig.pool, page, 3);
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().checkpoint_age, 0);
    assert_eq!(number(&rig.pool, page), 4);
}

/// Read again a page takes a place on the dirty list that is later than what changed it before it left.
#[test]
fn what_changed_a_page_before_it_left_bounds_the_checkpoint_until_it_is_written() {
    let config = small(64);
    for case in 0..3 {
        let rig = filled(10 + case, &config, 1);
        let pool = &rig.pool;
        let page = away(pool);
        assert_eq!(number(pool, page), 1);
        match case {
            // No more of its changes are kept.
            1 => {
                let mut mtr = Mtr::start(pool).unwrap();
                let p = mtr.fix(id(page)).unwrap();
                mtr.write(p, 2000, &[1; 1000]);
                mtr.commit().unwrap();
            }
            2 => {
                rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
                pool.step_background().unwrap_err();
                rig.sim.clear_faults();
            }
            _ => {}
        }
        {
            // All others are written meanwhile.
            let _latched = pool.fix_exclusive(id(page)).unwrap();
            (0..20).for_each(|_| _ = pool.step_background().unwrap());
            assert_eq!(pool.stats().dirty_pages, 1);
        }
        pool.log().flush_to(pool.log().end_lsn()).unwrap();
        let sim = rig.sim.crash(10 + case);
        drop(rig);
        let rig = open(sim, &config).unwrap();
        assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 1), "case {case}");
    }
}

/// What cannot be written can leave, as long as it can be read.
#[test]
fn pages_leave_though_none_can_be_written() {
    let rig = filled(5, &small(64), 2);
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Enospc, true);
    for round in 2..5 {
        (1..=PAGES).for_each(|page| next(&rig.pool, page, round));
    }
    rig.pool.checkpoint_now().unwrap_err();
    rig.sim.clear_faults();
    rig.pool.checkpoint_now().unwrap();
    assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 5));
    let sim = rig.sim.crash(5);
    drop(rig);
    let rig = open(sim, &small(64)).unwrap();
    assert!((1..=PAGES).all(|page| number(&rig.pool, page) == 5));
}

#[test]
fn a_page_that_begins_a_new_life_loses_the_changes_of_the_old_one() {
    let rig = filled(6, &small(64), 3);
    let page = away(&rig.pool);
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let _ = mtr.init(id(page), PageKind::Index).unwrap();
    mtr.commit().unwrap();
    assert_eq!(number(&rig.pool, page), 0);
    next(&rig.pool, page, 0);
    (1..=PAGES).for_each(|page| drop(rig.pool.fix_shared(id(page)).unwrap()));
    assert_eq!(number(&rig.pool, page), 1);
}

/// Page 1 alone has changes, durable in the log, and has left memory with them.
fn with_first_away(seed: u64, config: &PoolConfig) -> Rig {
    let rig = filled(seed, config, 1);
    let pool = &rig.pool;
    pool.checkpoint_now().unwrap();
    next(pool, 1, 1);
    (2..=PAGES).for_each(|page| drop(pool.fix_shared(id(page)).unwrap()));
    assert!(!pool.is_resident(id(1)) && pool.stats().change_buffer_pages == 1, "{:?}", pool.stats());
    pool.log().flush_to(pool.log().end_lsn()).unwrap();
    rig
}

/// What ended the old life of a page may be lost in a crash, while what the page was then is not in its file yet.
#[test]
fn what_changed_a_page_in_its_old_life_bounds_the_checkpoint_until_the_new_one_is_written() {
    let config = small(64);
    let rig = with_first_away(14, &config);
    let pool = &rig.pool;
    // Not durable.
    next(pool, 2, 1);
    let mut mtr = Mtr::start(pool).unwrap();
    let _ = mtr.init(id(1), PageKind::Index).unwrap();
    mtr.commit().unwrap();
    {
        let _latched = [1, 2].map(|page| pool.fix_exclusive(id(page)).unwrap());
        (0..20).for_each(|_| _ = pool.step_background().unwrap());
    }
    let sim = rig.sim.crash(14);
    drop(rig);
    let rig = open(sim, &config).unwrap();
    assert!((2..=PAGES).all(|page| number(&rig.pool, page) == 1));
    assert_eq!(number(&rig.pool, 1), 2);
}

/// A page freed unread: its changes hold the checkpoint no more, but only when the log cannot lose that it is free.
#[test]
fn changes_of_a_page_are_passed_only_by_who_makes_its_end_durable() {
    let config = small(64);
    let rig = with_first_away(15, &config);
    let pool = &rig.pool;
    // Not durable, and in no file.
    next(pool, 2, 1);
    let mut mtr = Mtr::start(pool).unwrap();
    let bitmap = mtr.fix(id(3)).unwrap();
    mtr.write(bitmap, ROOM, &[2]);
    mtr.note_freed(id(1));
    mtr.commit().unwrap();
    let passed = {
        let _latched = [2, 3].map(|page| pool.fix_exclusive(id(page)).unwrap());
        (0..20).for_each(|_| _ = pool.step_background().unwrap());
        pool.stats().change_buffer_pages == 0
    };
    let sim = rig.sim.crash(15);
    drop(rig);
    let rig = open(sim, &config).unwrap();
    let is_free = rig.pool.fix_shared(id(3)).unwrap()[ROOM] == 2;
    assert!(passed && is_free, "{passed} {is_free}");
}

#[test]
fn pages_other_than_those_of_indexes_are_written() {
    let rig = create(7, &small(64));
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let _ = mtr.init(id(page), PageKind::Overflow).unwrap();
        mtr.commit().unwrap();
    }
    for round in 0..3 {
        (1..=PAGES).for_each(|page| next(&rig.pool, page, round));
    }
    assert_eq!(rig.pool.stats().evicted_unwritten, 0);
}

/// What more is buffered of one that left with changes has to fit.
#[test]
fn one_that_left_takes_as_much_as_it_has_room_for() {
    let rig = filled(13, &small(64), 1);
    let pool = &rig.pool;
    let page = id(away(pool));
    assert!(pool.buffer_change(page, ROOM + 1, 0).is_none());
    let mut payload = Vec::new();
    push_varint(&mut payload, 2000);
    payload.push(7);
    let change = pool.buffer_change(page, ROOM - 100, 0).unwrap();
    Mtr::start(pool).unwrap().commit_buffering(change, WRITE, &payload).unwrap();
    assert!(pool.buffer_change(page, 101, 0).is_none());
    assert!(pool.buffer_change(page, 100, 0).is_some());
    let read = pool.fix_shared(page).unwrap();
    assert_eq!((read[HEADER_BYTES], read[2000]), (1, 7));
}

/// The log does not fill for pages that cannot be written, those too that have left and been read again: their changes are older than
/// their places on the dirty list.
#[test]
fn those_that_cannot_be_written_do_not_keep_the_checkpoint() {
    const FEW: u32 = 15;
    let config = PoolConfig { background_threads: true, instances: 2, ..small(128) };
    let rig = create(14, &config);
    let pool = &rig.pool;
    pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    init_pages(pool, 400);
    pool.checkpoint_now().unwrap();
    (1..=FEW).for_each(|page| next(pool, page, 0));
    (0..3).for_each(|_| (100..=400).for_each(|page| drop(pool.fix_shared(id(page)).unwrap())));
    assert!(pool.stats().evicted_unwritten >= u64::from(FEW) / 2, "{:?}", pool.stats());
    rig.sim.inject(CallKind::Write, "a.myr", 0, Fault::Eio, true);
    assert!((1..=FEW).all(|page| number(pool, page) == 1));
    let end = pool.log().end_lsn().0 + 4 * pool.log().ring_bytes();
    for page in (0..100).cycle().take_while(|_| pool.log().end_lsn().0 < end) {
        work_elsewhere(pool, 1 + page);
    }
    assert!(pool.stats().carried > 0, "{:?}", pool.stats());
    assert!((1..=FEW).all(|page| number(pool, page) == 1));
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    pool.stop_background();
    let sim = rig.sim.crash(14);
    drop(rig);
    let rig = open(sim, &small(128)).unwrap();
    assert!((1..=FEW).all(|page| number(&rig.pool, page) == 1));
}

/// With many pages that are changed once and not wanted again it is no use that they leave unwritten: each has to be read for that.
#[test]
fn where_it_does_not_pay_they_are_written() {
    const MANY: u32 = 9000;
    let rig = create(8, &small(512));
    init_pages(&rig.pool, MANY);
    let left = |from: u32| {
        let before = rig.pool.stats();
        for page in from..from + 1000 {
            let mut mtr = Mtr::start(&rig.pool).unwrap();
            let p = mtr.fix(id(page)).unwrap();
            mtr.write(p, 2000, &[1; 400]);
            mtr.commit().unwrap();
        }
        rig.pool.stats().evicted_unwritten - before.evicted_unwritten
    };
    let all: Vec<u64> = (0..8).map(|i| left(1 + 1000 * i)).collect();
    assert!(all[0] > 100, "{all:?}");
    assert!(all[7] < all[0] / 4, "{all:?}");
}

/// Threads change and read pages while the provider and the cleaner are at work.
#[test]
fn threads_see_every_change() {
    const MANY: u32 = 800;
    let config = PoolConfig { background_threads: true, instances: 2, ..small(96) };
    let rig = create(9, &config);
    init_pages(&rig.pool, MANY);
    rig.pool.checkpoint_now().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let pool = &rig.pool;
            scope.spawn(move || {
                let mut random = Random::from_seed(u64::from(thread));
                let mut numbers = [0u8; MANY as usize / 4];
                for _ in 0..6000 {
                    // Each has pages of its own.
                    let n = random.below(numbers.len() as u64) as usize;
                    let page = 1 + 4 * n as u32 + thread;
                    assert_eq!(number(pool, page), numbers[n], "page {page}");
                    if random.below(3) > 0 && numbers[n] < 255 {
                        next(pool, page, numbers[n]);
                        numbers[n] += 1;
                    }
                }
            });
        }
    });
    let s = rig.pool.stats();
    assert!(s.evicted_unwritten > 1000, "{s:?}");
    let before: Vec<u8> = (1..=MANY).map(|page| number(&rig.pool, page)).collect();
    rig.pool.checkpoint_now().unwrap();
    rig.pool.stop_background();
    let sim = rig.sim.crash(9);
    drop(rig);
    let rig = open(sim, &small(96)).unwrap();
    let after: Vec<u8> = (1..=MANY).map(|page| number(&rig.pool, page)).collect();
    assert_eq!(before, after);
}
