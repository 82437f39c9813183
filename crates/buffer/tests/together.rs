//! Pages that are read together: the same as one by one, whatever happens to some of them.

mod rig;

use myriad_base::codec::get_u64;
use myriad_base::page::{PageKind, HEADER_BYTES};
use myriad_base::{Error, PageId};
use myriad_buffer::{BufferPool, Mtr};
use myriad_io::{CallKind, Fault};
use rig::{create, id, open, small, Rig, DIR};
use std::path::Path;

const PAGES: u32 = 40;

fn put(pool: &BufferPool, page: u32, value: u64) {
    let mut mtr = Mtr::start(pool).unwrap();
    let at = mtr.init(id(page), PageKind::Index).unwrap();
    mtr.write(at, HEADER_BYTES, &value.to_le_bytes());
    mtr.commit().unwrap();
}

fn get(pool: &BufferPool, page: u32) -> Result<u64, Error> {
    Ok(get_u64(&pool.fix_shared(id(page))?, HEADER_BYTES))
}

fn ids(pages: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    pages.into_iter().map(id).collect()
}

/// A pool with nothing in memory; pages 1 to [`PAGES`] have their number as value.
fn cold(frames: usize) -> Rig {
    let rig = create(1, &small(frames));
    (1..=PAGES).for_each(|page| put(&rig.pool, page, u64::from(page)));
    rig.pool.checkpoint_now().unwrap();
    let sim = rig.sim.crash(1);
    drop(rig);
    open(sim, &small(frames)).unwrap()
}

#[test]
fn pages_come_in_once_in_any_order() {
    let rig = cold(64);
    let pool = &rig.pool;
    assert_eq!(get(pool, 7), Ok(7));
    for (pages, reads) in [
        (ids(3..9), 5), // one is there already
        (ids([12, 11, 10, 13]), 4),
        (ids([30, 20, 21, 30, 25]), 4),
        (ids([]), 0),
        (ids([3, 20]), 0),
        (ids([40]), 1),
    ] {
        let before = pool.stats().reads;
        pool.read_together(&pages);
        assert_eq!(pool.stats().reads - before, reads, "{pages:?}");
        assert!(pages.iter().all(|&page| pool.is_resident(page)));
    }
    let reads = pool.stats().reads;
    for page in (3..14).chain([20, 21, 25, 30, 40]).filter(|page| *page != 9) {
        assert_eq!(get(pool, page), Ok(u64::from(page)));
    }
    assert_eq!(pool.stats().reads, reads, "all of them were in memory");
}

#[test]
fn a_damaged_page_and_those_that_do_not_exist_harm_no_other() {
    let rig = cold(64);
    let free = rig.pool.stats().free_frames;
    let sim = rig.sim.crash(2);
    drop(rig);
    sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), 5 * 4096 + 1000, 3).unwrap();
    let rig = open(sim, &small(64)).unwrap();
    let pool = &rig.pool;
    pool.read_together(&ids(3..8));
    let there: Vec<u32> = (1..=PAGES).filter(|&page| pool.is_resident(id(page))).collect();
    assert_eq!(there, [3, 4, 6, 7]);
    assert!(matches!(get(pool, 5), Err(Error::CorruptPage { page, .. }) if page == id(5)));
    pool.read_together(&ids(70_000..70_004));
    pool.read_together(&ids([70_001, 9, 70_003]));
    assert_eq!(get(pool, 9), Ok(9));
    assert_eq!(pool.stats().free_frames, free - 5);
}

#[test]
fn failed_reads_leave_the_pages_to_whoever_fixes_them() {
    for pages in [ids(3..9), ids([3, 5, 6, 20])] {
        for nth in 0..6 {
            let rig = cold(64);
            let free = rig.pool.stats().free_frames;
            rig.sim.inject(CallKind::Read, "a.myr", nth, Fault::Eio, false);
            rig.pool.read_together(&pages);
            let there = pages.iter().filter(|&&page| rig.pool.is_resident(page)).count() as u64;
            assert_eq!(rig.pool.stats().free_frames, free - there);
            rig.sim.clear_faults();
            for page in &pages {
                assert_eq!(get(&rig.pool, page.page.0), Ok(u64::from(page.page.0)), "call {nth} of {pages:?}");
            }
        }
    }
}

#[test]
fn no_more_come_in_than_frames_are_free() {
    let rig = cold(32);
    let pool = &rig.pool;
    (1..=20).for_each(|page| assert_eq!(get(pool, page), Ok(u64::from(page))));
    pool.read_together(&ids(21..=PAGES));
    let there = (21..=PAGES).filter(|&page| pool.is_resident(id(page))).count();
    assert!((1..=12).contains(&there), "{there}");
    (1..=PAGES).for_each(|page| assert_eq!(get(pool, page), Ok(u64::from(page))));
}
