//! Which pages stay when more is read than the memory holds.

mod rig;

use myriad_base::clock::{Clock, ManualClock};
use myriad_buffer::{BufferPool, PoolConfig};
use rig::{create, id, init_pages, small, Rig};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Many beside those that the threads which free frames may free at a time, more than are wanted.
const FRAMES: usize = 1_600;
const PAGES: u32 = 12_000;

/// Each page a few times in a row, as a scan does.
fn scan(pool: &BufferPool, pages: RangeInclusive<u32>) {
    for page in pages {
        for _ in 0..4 {
            drop(pool.fix_shared(id(page)).unwrap());
        }
    }
}

fn there(pool: &BufferPool, pages: RangeInclusive<u32>) -> usize {
    pages.filter(|&page| pool.is_resident(id(page))).count()
}

/// A clock that stands still but when told: a scan takes no time, however busy the machine is.
#[derive(Default)]
struct Still {
    time: ManualClock,
    looks: AtomicU64,
}

impl Clock for Still {
    fn now(&self) -> Duration {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.time.now()
    }

    fn wall_us(&self) -> u64 {
        self.time.wall_us()
    }
}

/// A pool in which the first `hot` pages were used in several seconds, and then all others a few times each.
fn after_a_scan(hot: u32) -> Rig {
    let clock = Arc::new(Still::default());
    let rig = create(1, &PoolConfig { background_threads: true, clock: clock.clone(), ..small(FRAMES) });
    init_pages(&rig.pool, PAGES);
    rig.pool.checkpoint_now().unwrap();
    for round in 0..6 {
        // Whoever frees frames late may drive out what was read first: only what is there when it is used again is hot.
        let again = round > 0 && there(&rig.pool, 1..=hot) == hot as usize;
        scan(&rig.pool, 1..=hot);
        clock.time.advance(Duration::from_millis(2_100));
        // Each of its threads that look does so once a second: more looks than there are such threads, and one was noted.
        let looks = clock.looks.load(Ordering::SeqCst);
        while clock.looks.load(Ordering::SeqCst) < looks + 16 {
            std::thread::sleep(Duration::from_millis(10));
        }
        if again {
            break;
        }
    }
    scan(&rig.pool, hot + 1..=PAGES);
    rig
}

#[test]
fn what_is_used_again_outlasts_a_scan() {
    let rig = after_a_scan(600);
    let left = there(&rig.pool, 1..=600);
    assert!(left > 480, "{left} of 600");
}

#[test]
fn hot_pages_leave_room_for_others() {
    let rig = after_a_scan(1_320);
    let left = there(&rig.pool, 1..=1_320);
    assert!((800..1_120).contains(&left), "{left} of {FRAMES}");
}

/// Latched pages cannot go, so they say nothing about how many of the others may stay.
#[test]
fn hot_pages_leave_room_beside_latched_ones() {
    let rig = create(1, &PoolConfig { instances: 1, ..small(40) });
    init_pages(&rig.pool, 200);
    rig.pool.checkpoint_now().unwrap();
    for other in 51..=200 {
        scan(&rig.pool, 1..=20);
        scan(&rig.pool, other..=other);
    }
    assert_eq!(there(&rig.pool, 1..=20), 20);
    let _latched: Vec<_> = (21..=50).map(|page| rig.pool.fix_exclusive(id(page)).unwrap()).collect();
}
