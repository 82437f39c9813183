//! Changes of pages that are not in memory: none is lost, whoever comes for the page, and whatever fails.

mod rig;

use myriad_base::page::{page_lsn, PageKind, HEADER_BYTES};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn, PageId, PageNo};
use myriad_buffer::{BufferPool, Level, Mtr, PoolConfig};
use myriad_io::{CallKind, Fault, Io};
use rig::{create, id, init_pages, open, payload, set_buffered, small, Rig, DIR, OTHER, SPACE, WRITE};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGES: u32 = 200;

/// A pool of `frames` with pages 1 to 200, of which most have left memory.
fn filled(seed: u64, config: &PoolConfig) -> Rig {
    let rig = create(seed, config);
    init_pages(&rig.pool, PAGES);
    rig.pool.checkpoint_now().unwrap();
    rig
}

fn set(pool: &BufferPool, page: u32, at: usize, byte: u8) {
    let mut mtr = Mtr::start(pool).unwrap();
    let p = mtr.fix(id(page)).unwrap();
    mtr.write(p, at, &[byte]);
    mtr.commit().unwrap();
}

/// A page for which a change can be buffered, with that change made.
fn some_buffered(pool: &BufferPool, at: usize, byte: u8) -> u32 {
    (1..=PAGES).find(|&page| set_buffered(pool, page, at, byte)).expect("a page that is not in memory")
}

#[test]
fn a_page_that_cannot_be_read_keeps_its_changes_and_the_checkpoint_waits() {
    let config = small(48);
    let rig = filled(1, &config);
    let page = some_buffered(&rig.pool, 1000, 7);
    let age = rig.pool.stats().checkpoint_age;
    assert!(age > 0);
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    assert!(matches!(rig.pool.fix_shared(id(page)), Err(Error::Io { .. })));
    rig.pool.checkpoint_now().unwrap();
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_pages, s.changes_merged), (1, 0));
    assert!(s.checkpoint_age >= age, "{}", s.checkpoint_age);
    rig.sim.clear_faults();
    assert_eq!(rig.pool.fix_shared(id(page)).unwrap()[1000], 7);
    rig.pool.checkpoint_now().unwrap();
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_pages, s.changes_merged, s.checkpoint_age), (0, 1, 0));
}

/// A page with changes that the log may not have yet must not be written: its LSN tells.
#[test]
fn a_page_has_the_lsn_of_the_last_change_made() {
    let rig = filled(13, &small(48));
    let page = some_buffered(&rig.pool, 1000, 7);
    let mtr = Mtr::start(&rig.pool).unwrap();
    let change = rig.pool.buffer_change(id(page), 1, 0).expect("another one can be buffered");
    let last = mtr.commit_buffering(change, WRITE, &payload(1001, 8)).unwrap();
    let fixed = rig.pool.fix_shared(id(page)).unwrap();
    assert_eq!((fixed[1000], fixed[1001], page_lsn(&fixed)), (7, 8, last));
}

/// What it left memory with earlier may be taken by now.
#[test]
fn the_room_of_a_page_is_not_known_from_an_earlier_time_in_memory() {
    let rig = filled(14, &small(48));
    let pool = &rig.pool;
    pool.evict_all();
    let may_buffer = |page| pool.buffer_change(id(page), 1, 0).is_some();
    assert!(may_buffer(1) && may_buffer(2));
    pool.set_change_buffer(0);
    set(pool, 1, 1000, 7);
    pool.checkpoint_now().unwrap();
    pool.evict_all();
    assert!(!pool.is_resident(id(1)));
    pool.set_change_buffer(25);
    assert!(!may_buffer(1) && may_buffer(2));
}

/// However many of the oldest pages cannot be read, the others get their changes; and they, when they can be read again.
#[test]
fn pages_that_cannot_be_read_hold_no_others_up() {
    let rig = filled(11, &small(48));
    let pool = &rig.pool;
    pool.spaces().create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    let last = PageId::new(OTHER, PageNo(1));
    let mut mtr = Mtr::start(pool).unwrap();
    let _ = mtr.init(last, PageKind::Index).unwrap();
    mtr.commit().unwrap();
    pool.checkpoint_now().unwrap();
    // Read one after the other they drive it out.
    (1..=PAGES).for_each(|page| drop(pool.fix_shared(id(page)).unwrap()));
    let changed: Vec<u32> = (1..=PAGES).filter(|&page| set_buffered(pool, page, 1000, 7)).collect();
    let mtr = Mtr::start(pool).unwrap();
    let change = pool.buffer_change(last, 1, 0).expect("it is not in memory");
    mtr.commit_buffering(change, WRITE, &payload(1000, 7)).unwrap();
    let n = changed.len() as u64;
    assert!(n > 100 && pool.stats().change_buffer_pages == n + 1, "{n}");
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    pool.checkpoint_now().unwrap();
    let s = pool.stats();
    assert!((s.change_buffer_pages, s.changes_merged) == (n, 1) && s.checkpoint_age > 0, "{s:?}");
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    let s = pool.stats();
    assert_eq!((s.change_buffer_pages, s.changes_merged, s.checkpoint_age), (0, n + 1, 0));
    assert!(changed.iter().all(|&page| pool.fix_shared(id(page)).unwrap()[1000] == 7));
    assert_eq!(pool.fix_shared(last).unwrap()[1000], 7);
}

/// What cannot be read is not read all the time, and the error log tells why.
#[test]
fn pages_that_cannot_be_read_are_left_alone_between_two_tries() {
    let rig = filled(12, &PoolConfig { background_threads: true, ..small(48) });
    let pool = &rig.pool;
    let told = |what: &str| rig.messages.lock().unwrap().iter().any(|(_, text)| text.contains(what));
    rig.sim.inject(CallKind::Read, "a.myr", 0, Fault::Eio, true);
    let changed = (1..=PAGES).filter(|&page| set_buffered(pool, page, 1000, 7)).count();
    assert!(changed > 100, "{changed}");
    let (reads, begin) = (rig.sim.calls(CallKind::Read), Instant::now());
    let is_told = || told("cannot be made yet, the log keeps them: read of");
    // On a busy machine it may be told later.
    while begin.elapsed() < Duration::from_secs(3) || !is_told() && begin.elapsed() < Duration::from_secs(60) {
        pool.set_io_capacity(1000, 2000);
        std::thread::sleep(Duration::from_millis(1));
    }
    let reads = rig.sim.calls(CallKind::Read) - reads;
    let took = begin.elapsed();
    assert!(reads > 0 && (reads as f64) < 10.0 * changed as f64 * took.as_secs_f64(), "{reads} reads in {took:?}");
    assert!(is_told(), "{:?}", rig.messages.lock().unwrap());
    rig.sim.clear_faults();
    pool.checkpoint_now().unwrap();
    assert!((1..=PAGES).all(|page| pool.fix_shared(id(page)).is_ok()));
    assert_eq!(pool.stats().change_buffer_pages, 0);
    pool.stop_background();
}

#[test]
fn a_damaged_page_is_reported_and_does_not_hold_the_others_up() {
    let config = small(48);
    let rig = filled(2, &config);
    let page = some_buffered(&rig.pool, 1000, 7);
    let other = (page + 1..=PAGES).find(|&p| set_buffered(&rig.pool, p, 1000, 8)).unwrap();
    rig.sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), u64::from(page) * 4096 + 2000, 3).unwrap();
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().checkpoint_age, 0);
    assert!(matches!(rig.pool.fix_shared(id(page)), Err(Error::CorruptPage { page: p, .. }) if p == id(page)));
    assert_eq!(rig.pool.fix_shared(id(other)).unwrap()[1000], 8);
    let messages = rig.messages.lock().unwrap();
    let text = format!("buffered changes of {} cannot be made", id(page));
    assert!(messages.iter().any(|(level, m)| *level == Level::Error && m.contains(&text)), "{messages:?}");
    // Neither later, as if it had not missed its changes, when the damage is gone.
    let sim = rig.sim.crash(3);
    sim.flip_bit(&Path::new(DIR).join("#myriad/a.myr"), u64::from(page) * 4096 + 2000, 3).unwrap();
    let sound = open(sim, &config).unwrap();
    assert!(matches!(sound.pool.fix_shared(id(page)), Err(Error::CorruptPage { page: p, .. }) if p == id(page)));
    assert_eq!(sound.pool.fix_shared(id(other)).unwrap()[1000], 8);
}

/// Nobody can use it any more, however long it takes until it is gone.
#[test]
fn changes_do_not_wait_for_a_dropped_file_that_cannot_be_removed() {
    let rig = filled(12, &small(48));
    some_buffered(&rig.pool, 1000, 7);
    rig.sim.inject(CallKind::Remove, "a.myr", 0, Fault::Eio, true);
    assert!(matches!(rig.pool.spaces().drop_spaces(&[SPACE]).remove(0), Err(Error::Io { .. })));
    assert!((1..=PAGES).all(|page| rig.pool.buffer_change(id(page), 1, 0).is_none()));
    rig.pool.checkpoint_now().unwrap();
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_pages, s.checkpoint_age), (0, 0));
    assert_eq!(*rig.messages.lock().unwrap(), []);
}

#[test]
fn changes_wait_for_a_file_that_has_gone() {
    let config = small(48);
    let rig = filled(4, &config);
    let page = some_buffered(&rig.pool, 1000, 7);
    let (file, away) = (Path::new(DIR).join("#myriad/a.myr"), Path::new(DIR).join("#myriad/away"));
    let spaces = rig.pool.spaces();
    spaces.create(OTHER, "b.myr", [8; 16], Lsn(0)).unwrap();
    spaces.set_max_open_files(1);
    rig.sim.rename(&file, &away).unwrap();
    for _ in 0..2 {
        rig.pool.checkpoint_now().unwrap();
        assert!(matches!(rig.pool.fix_shared(id(page)), Err(Error::TablespaceUnavailable { .. })));
    }
    let s = rig.pool.stats();
    assert!(s.change_buffer_pages == 1 && s.checkpoint_age > 0);
    let waits = |m: &&(Level, String)| m.0 == Level::Error && m.1.contains("the log keeps them");
    assert_eq!(rig.messages.lock().unwrap().iter().filter(waits).count(), 1);
    rig.sim.rename(&away, &file).unwrap();
    rig.pool.checkpoint_now().unwrap();
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_pages, s.checkpoint_age), (0, 0));
    assert_eq!(rig.pool.fix_shared(id(page)).unwrap()[1000], 7);
}

/// 64 frames of which all but the fewest can be lent.
fn one_partition() -> PoolConfig {
    PoolConfig { instances: 1, bytes_max: 80 * 4096, ..small(64) }
}

/// Buffers changes until none more can be; the memory that pages and changes take together, in bytes.
fn fill_buffer(pool: &BufferPool) -> u64 {
    let changed = (1..=PAGES).filter(|&page| (0..10).any(|n| set_buffered(pool, page, 1000 + n, 7))).count();
    assert!(changed > 50, "{changed}");
    while pool.step_resize() {}
    let s = pool.stats();
    s.frames * s.page_size + s.change_buffer_bytes
}

#[test]
fn their_memory_is_taken_from_the_pool_and_comes_back() {
    let rig = filled(6, &one_partition());
    let size = 64 * 4096;
    let together = fill_buffer(&rig.pool);
    let s = rig.pool.stats();
    assert!(s.frames_lent >= 2 && s.frames + s.frames_lent == 64, "{s:?}");
    assert!((size..size + 4096).contains(&together), "{together} bytes");
    // The pages are all there, in fewer frames.
    for page in (1..=PAGES).rev() {
        let page = rig.pool.fix_shared(id(page)).unwrap();
        assert!([0, 7].contains(&page[1000]));
    }
    rig.pool.checkpoint_now().unwrap();
    while rig.pool.step_resize() {}
    let s = rig.pool.stats();
    assert_eq!((s.change_buffer_bytes, s.frames_lent, s.frames), (0, 0, 64));
}

#[test]
fn the_size_is_set_while_memory_is_lent() {
    let rig = filled(7, &one_partition());
    fill_buffer(&rig.pool);
    let lent = rig.pool.stats().frames_lent;
    assert!(lent > 0);
    for frames in [80, 56, 64] {
        rig.pool.resize(frames * 4096).unwrap();
        let s = rig.pool.stats();
        assert_eq!((s.frames + s.frames_lent, s.frames_shrinking_to), (frames as u64, 0));
        assert!(s.frames_lent.abs_diff(lent) <= 1, "{s:?}");
    }
    let messages = rig.messages.lock().unwrap();
    assert_eq!(messages.iter().filter(|(_, m)| m.contains("the buffer pool has")).count(), 3, "{messages:?}");
}

#[test]
fn a_size_that_cannot_be_reached_changes_nothing() {
    let rig = filled(10, &one_partition());
    // Nor can a page leave unwritten.
    rig.pool.set_change_buffer(0);
    for page in 1..=PAGES {
        set(&rig.pool, page, 1000, 1);
    }
    rig.sim.inject(CallKind::Write, "", 0, Fault::Eio, true);
    assert!(matches!(rig.pool.resize(40 * 4096), Err(Error::Io { .. })));
    let s = rig.pool.stats();
    assert_eq!((s.frames, s.frames_lent, s.frames_shrinking_to), (64, 0, 0));
    rig.sim.clear_faults();
    rig.pool.resize(40 * 4096).unwrap();
    assert_eq!(rig.pool.stats().frames, 40);
    assert!((1..=PAGES).all(|page| rig.pool.fix_shared(id(page)).unwrap()[1000] == 1));
}

#[test]
fn when_the_log_is_old_no_further_page_is_left_unread() {
    let rig = filled(9, &small(48));
    let pool = &rig.pool;
    // While it is latched it cannot be written, so the checkpoint stays behind its change.
    set(pool, 1, 1000, 7);
    let latched = pool.fix_exclusive(id(1)).unwrap();
    let grow_old = |sixteenths: u64| {
        while pool.stats().checkpoint_age < (1 << 20) / 16 * sixteenths {
            let mut mtr = Mtr::start(pool).unwrap();
            let p = mtr.fix(id(PAGES)).unwrap();
            mtr.write(p, 2000, &[1; 1500]);
            mtr.commit().unwrap();
        }
    };
    grow_old(8);
    let page = some_buffered(pool, 1000, 7);
    let others = || (1..=PAGES).any(|p| p != page && pool.buffer_change(id(p), 1, 0).is_some());
    assert!(others());
    grow_old(13);
    assert!(!others());
    assert!(set_buffered(pool, page, 1001, 8), "this page has to be read anyway");
    drop(latched);
    pool.checkpoint_now().unwrap();
    assert!(others());
}

#[test]
fn in_memory_tables_keep_what_they_may_hold() {
    let rig = filled(8, &one_partition());
    rig.pool.set_memory_limit(48 * 4096);
    assert!((1..=PAGES).all(|page| !set_buffered(&rig.pool, page, 1000, 7)), "three quarters are theirs");
    rig.pool.set_memory_limit(45 * 4096);
    fill_buffer(&rig.pool);
    assert!(rig.pool.stats().change_buffer_bytes < 5 * 4096);
}

#[test]
fn the_log_alone_brings_changes_back() {
    let config = small(48);
    let rig = filled(3, &config);
    let page = some_buffered(&rig.pool, 1000, 7);
    assert!(set_buffered(&rig.pool, page, 1001, 8) && set_buffered(&rig.pool, page, 1000, 9));
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    // Later changes, and a checkpoint beside them.
    set(&rig.pool, PAGES, 2000, 1);
    rig.pool.step_background().unwrap();
    let sim = rig.sim.crash(1);
    let again = open(sim, &config).unwrap();
    for pool in [&rig.pool, &again.pool] {
        assert_eq!(pool.fix_shared(id(page)).unwrap()[1000..1002], [9, 8]);
    }
}

#[test]
fn room_is_used_up_and_removals_do_not_empty_a_page() {
    let rig = filled(4, &small(48));
    let page = some_buffered(&rig.pool, 1000, 7);
    let change = |takes, gives| rig.pool.buffer_change(id(page), takes, gives).is_some();
    assert!(change(rig::ROOM - 1, 0) && !change(rig::ROOM, 0), "one byte is taken");
    assert!(change(0, 4096 / 4 * 3 - rig::ROOM + 1) && !change(0, 4096 / 4 * 3 - rig::ROOM + 2));
    drop(rig.pool.fix_shared(id(page)).unwrap());
    assert!(!change(1, 0), "in memory");
    rig.pool.set_change_buffer(0);
    assert!((1..=PAGES).all(|page| rig.pool.buffer_change(id(page), 1, 0).is_none()));
}

#[test]
fn threads_that_buffer_read_and_drive_out_lose_nothing() {
    const THREADS: u64 = 4;
    const BYTES: u64 = 400;
    let rig = filled(5, &PoolConfig { background_threads: true, page_cleaners: 2, ..small(64) });
    let buffered = AtomicU64::new(0);
    // A thread has every fourth byte of each page for itself, and sets them in order.
    let at = |thread: u64, n: u64| HEADER_BYTES + 200 + (n * THREADS + thread) as usize;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, buffered) = (&rig.pool, &buffered);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread);
                let mut next = [0; PAGES as usize + 1];
                for _ in 0..20_000 {
                    let page = 1 + random.below(u64::from(PAGES)) as u32;
                    let n = &mut next[page as usize];
                    if random.one_in(4) {
                        let seen = pool.fix_shared(id(page)).unwrap();
                        assert!((0..BYTES).all(|i| seen[at(thread, i)] == u8::from(i < *n)), "page {page}");
                        continue;
                    }
                    if *n == BYTES {
                        continue;
                    }
                    if set_buffered(pool, page, at(thread, *n), 1) {
                        buffered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        set(pool, page, at(thread, *n), 1);
                    }
                    *n += 1;
                }
                for page in 1..=PAGES {
                    let seen = pool.fix_shared(id(page)).unwrap();
                    let n = next[page as usize];
                    assert!((0..BYTES).all(|i| seen[at(thread, i)] == u8::from(i < n)), "page {page} at the end");
                }
            });
        }
    });
    assert!(buffered.load(Ordering::Relaxed) > 1000, "{buffered:?} changes were buffered");
    rig.pool.checkpoint_now().unwrap();
    assert_eq!(rig.pool.stats().change_buffer_bytes, 0);
}
