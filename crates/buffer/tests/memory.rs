//! Pages of in-memory tables: not logged, not dirty, never evicted, bounded, and freed with their pages.

mod rig;

use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Error, Lsn, PageId, PageNo, SpaceId};
use myriad_buffer::{Beyond, BeyondLimit, BufferPool, Mtr, PoolConfig};
use rig::{create, id, init_pages, small};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn memory(page: u32) -> PageId {
    PageId::new(SpaceId::MEMORY, PageNo(page))
}

fn put(pool: &BufferPool, page: PageId, value: u64) -> Result<Lsn, Error> {
    let mut mtr = Mtr::start(pool)?;
    let at = if pool.is_resident(page) { mtr.fix(page)? } else { mtr.init(page, PageKind::Index)? };
    mtr.write(at, HEADER_BYTES, &value.to_le_bytes());
    assert!(mtr.has_changes());
    mtr.commit()
}

fn get(pool: &BufferPool, page: PageId) -> Result<u64, Error> {
    let page = pool.fix_shared(page)?;
    Ok(u64::from_le_bytes(page[HEADER_BYTES..HEADER_BYTES + 8].try_into().unwrap()))
}

fn free(pool: &BufferPool, page: PageId, held: bool) {
    let mut mtr = Mtr::start(pool).unwrap();
    if held {
        let _ = mtr.fix(page).unwrap();
    }
    mtr.note_freed(page);
    mtr.commit().unwrap();
}

#[test]
fn leave_no_trace_in_log_and_files_and_stay() {
    let rig = create(1, &small(64));
    let pool = &rig.pool;
    let end = pool.log().end_lsn();
    for page in 1..=10 {
        assert_eq!(put(pool, memory(page), 7), Ok(Lsn(0)));
        assert_eq!(put(pool, memory(page), u64::from(page)), Ok(Lsn(0)));
    }
    assert_eq!(pool.log().end_lsn(), end, "log bytes");
    assert_eq!((pool.stats().dirty_pages, pool.stats().memory_pages), (0, 10));
    // Far more pages than frames go through the pool.
    for round in 0..3u64 {
        for page in 1..=200 {
            put(pool, id(page), u64::from(page) + round).unwrap();
        }
        while pool.step_background().unwrap() {}
    }
    assert!(pool.stats().evictions > 200);
    assert_eq!(pool.stats().memory_pages, 10);
    for page in 1..=10 {
        assert_eq!(get(pool, memory(page)), Ok(u64::from(page)));
    }
    pool.checkpoint_now().unwrap();
    assert_eq!(pool.stats().dirty_pages, 0);
}

#[test]
fn changed_with_a_logged_page_only_that_is_logged() {
    let rig = create(2, &small(64));
    let pool = &rig.pool;
    put(pool, memory(1), 1).unwrap();
    put(pool, id(1), 1).unwrap();
    pool.checkpoint_now().unwrap();
    let end = pool.log().end_lsn();
    let mut mtr = Mtr::start(pool).unwrap();
    let lasting = mtr.fix(id(1)).unwrap();
    let fleeting = mtr.fix(memory(1)).unwrap();
    mtr.write(lasting, HEADER_BYTES, &2u64.to_le_bytes());
    mtr.write(fleeting, HEADER_BYTES, &[9; 2000]);
    assert!(mtr.commit().unwrap() > end);
    let bytes = pool.log().end_lsn().0 - end.0;
    assert!(bytes < 200, "{bytes} bytes of log");
    assert_eq!(pool.stats().dirty_pages, 1);
    assert_eq!(get(pool, memory(1)), Ok(u64::from_le_bytes([9; 8])));
}

#[test]
fn are_bounded_and_fail_before_any_change() {
    let rig = create(3, &small(64));
    let pool = &rig.pool;
    assert_eq!(pool.stats().memory_pages_max, 16, "a quarter of the pool");
    pool.set_memory_limit(20 * 4096);
    for page in 0..20 {
        put(pool, memory(page), 1).unwrap();
    }
    assert_eq!(put(pool, memory(20), 1), Err(Error::MemoryFull { limit_bytes: 20 * 4096 }));
    pool.check_poison().unwrap();
    put(pool, memory(3), 2).unwrap();
    {
        let _room = BeyondLimit::new(Beyond::Deletion);
        put(pool, memory(20), 1).unwrap();
    }
    assert!(put(pool, memory(21), 1).is_err());
    // Freed pages make room, whether or not the mini-transaction holds them.
    let frames = pool.stats().free_frames;
    free(pool, memory(5), true);
    free(pool, memory(6), false);
    assert_eq!((pool.stats().memory_pages, pool.stats().free_frames), (19, frames + 2));
    assert!(matches!(get(pool, memory(5)), Err(Error::CorruptPage { .. })), "no such page any more");
    put(pool, memory(5), 55).unwrap();
    assert_eq!(get(pool, memory(5)), Ok(55));
    pool.set_memory_limit(1 << 40);
    assert_eq!(pool.stats().memory_pages_max, 48, "other pages keep a quarter");
    // Beyond the limit is a limit, too: other pages need frames.
    for (what, held) in [(Beyond::Deletion, 52), (Beyond::Rollback, 56)] {
        let room = BeyondLimit::new(what);
        let full = (21..).find_map(|page| put(pool, memory(page), 1).err());
        assert_eq!(full, Some(Error::MemoryFull { limit_bytes: held * 4096 }));
        assert_eq!(pool.stats().memory_pages, held);
        drop(room);
    }
    for page in 21..=56 {
        free(pool, memory(page), false);
    }
    // Somebody looks at the page that is freed: its frame waits for the page's next life.
    let reader = pool.fix_shared(memory(7)).unwrap();
    free(pool, memory(7), false);
    assert_eq!(pool.stats().memory_pages, 20);
    drop(reader);
    put(pool, memory(7), 77).unwrap();
    assert_eq!(pool.stats().memory_pages, 20);
}

/// Whoever has the frame next may wait for a page that a sleeper holds.
#[test]
fn who_sleeps_for_a_page_is_woken_when_its_frame_is_given_to_another() {
    let rig = create(5, &small(64));
    let pool = &rig.pool;
    put(pool, memory(0), 1).unwrap();
    init_pages(pool, pool.stats().free_frames as u32);
    assert_eq!(pool.stats().free_frames, 0);
    for round in 0..20 {
        let (mut freed, mut next) = (Mtr::start(pool).unwrap(), Mtr::start(pool).unwrap());
        let _ = freed.fix(memory(round)).unwrap();
        let woken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert!(pool.resident_exclusive(memory(round)).is_none());
                    woken.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            freed.note_freed(memory(round));
            freed.commit().unwrap();
            next.init(memory(round + 1), PageKind::Index).unwrap();
            let begin = Instant::now();
            while woken.load(Ordering::Relaxed) < 3 && begin.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            }
            let while_held = woken.load(Ordering::Relaxed);
            next.commit().unwrap();
            assert_eq!(while_held, 3, "round {round}");
        });
    }
}

#[test]
fn an_abandoned_change_stops_the_engine() {
    let rig = create(4, &small(64));
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let page = mtr.init(memory(1), PageKind::Index).unwrap();
    mtr.write(page, HEADER_BYTES, &[1]);
    drop(mtr);
    assert!(matches!(rig.pool.check_poison(), Err(Error::Poisoned { .. })));
}

#[test]
fn reading_ahead_leaves_them_alone() {
    let rig = create(5, &small(64));
    rig.pool.prefetch(&[memory(1), memory(2)]);
    assert_eq!(rig.pool.stats().memory_pages, 0);
}

#[test]
fn a_shrinking_pool_moves_them() {
    let rig = create(6, &small(256));
    let pool = &rig.pool;
    for page in 1..=160 {
        put(pool, id(page), 1).unwrap();
    }
    for page in 0..64 {
        put(pool, memory(page), u64::from(page)).unwrap();
    }
    let seen: Vec<_> = (0..64).map(|page| pool.optimistic(memory(page)).unwrap()).collect();
    assert!(seen.iter().filter(|page| page.frame().0 >= 100).count() > 30);
    assert!(matches!(pool.resize(70 * 4096), Err(Error::Invalid { .. })), "too small for what they hold");
    pool.resize(100 * 4096).unwrap();
    assert_eq!((pool.stats().frames, pool.stats().memory_pages), (100, 64));
    assert!(seen.iter().all(|page| page.frame().0 < 100 || !page.validate()));
    for page in 0..64 {
        assert_eq!(get(pool, memory(page)), Ok(u64::from(page)));
        put(pool, memory(page), 1000).unwrap();
    }
    pool.resize(256 * 4096).unwrap();
    for page in 0..64 {
        assert_eq!(get(pool, memory(page)), Ok(1000));
    }
}

/// While a reduction cannot finish, rollback and deletions have their part of what the pool will be: with more no page of a file
/// would get a frame, nor the reduction finish.
#[test]
fn a_shrinking_pool_bounds_them_as_a_small_one() {
    let rig = create(7, &PoolConfig { background_threads: true, ..small(256) });
    let pool = &rig.pool;
    init_pages(pool, 200);
    let held = (1..=200).map(|page| pool.fix_shared(id(page)).unwrap()).find(|page| page.frame().0 >= 64).unwrap();
    pool.resize(64 * 4096).unwrap();
    let room = BeyondLimit::new(Beyond::Rollback);
    let full = (1..).find_map(|page| put(pool, memory(page), 1).err());
    assert_eq!(full, Some(Error::MemoryFull { limit_bytes: 56 * 4096 }));
    drop(room);
    assert_eq!(pool.stats().frames_shrinking_to, 64);
    drop(held);
    let begin = Instant::now();
    while pool.stats().frames > 64 {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", pool.stats());
        std::thread::yield_now();
    }
    pool.stop_background();
}
