//! Many threads on a pool much smaller than the data, with background threads.

mod rig;

use myriad_base::codec::get_u64;
use myriad_base::page::{PageKind, HEADER_BYTES, OFF_KIND};
use myriad_base::random::Random;
use myriad_base::waits::until_killed;
use myriad_base::Error;
use myriad_buffer::{BufferPool, Mtr, PoolConfig, PoolStats};
use myriad_io::Io;
use myriad_log::{LogConfig, LogCopy};
use rig::{create, create_with, id, init_pages, open, small};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGES: u64 = 300;
const AT: usize = HEADER_BYTES + 40;
const TWIN: usize = 4096 - 8;

fn config() -> PoolConfig {
    PoolConfig { background_threads: true, page_cleaners: 2, ..small(64) }
}

fn sum(pool: &BufferPool) -> u64 {
    (1..=PAGES).map(|p| get_u64(&pool.fix_shared(id(p as u32)).unwrap(), AT)).sum()
}

/// Adds 1 to two pages; both ends of each page always agree.
fn add(pool: &BufferPool, random: &mut Random) {
    let (a, b) = (1 + random.below(PAGES), 1 + random.below(PAGES));
    let mut mtr = Mtr::start(pool).unwrap();
    for page in [a.min(b), a.max(b)] {
        let at = mtr.fix(id(page as u32)).unwrap();
        let next = (get_u64(mtr.page(at), AT) + 1).to_le_bytes();
        mtr.write(at, AT, &next);
        mtr.write(at, TWIN, &next);
    }
    mtr.commit().unwrap();
}

fn look(pool: &BufferPool, random: &mut Random) {
    let page = id(1 + random.below(PAGES) as u32);
    if random.one_in(2) {
        let seen = pool.fix_shared(page).unwrap();
        assert_eq!(get_u64(&seen, AT), get_u64(&seen, TWIN));
        let (frame, version) = (seen.frame(), seen.version());
        let value = get_u64(&seen, AT);
        drop(seen);
        if let Some(again) = pool.try_reuse(frame, page, version) {
            assert_eq!(get_u64(&again, AT), value);
        }
        return;
    }
    let seen = pool.optimistic(page).unwrap();
    let (a, b) = (seen.u64(AT), seen.u64(TWIN));
    let mut copy = [0u8; 8];
    seen.copy_to(&mut copy, AT, 8);
    if seen.validate() {
        assert_eq!(a, b);
        assert_eq!(a.to_le_bytes(), copy);
    }
    if let Some(held) = seen.lock_shared() {
        assert_eq!(get_u64(&held, AT), a);
    }
}

#[test]
fn no_update_is_lost() {
    let rig = create(1, &config());
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (rig, added) = (&rig, &added);
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                for i in 0..3_000u64 {
                    if i % 3 == 0 {
                        look(&rig.pool, &mut random);
                    } else {
                        add(&rig.pool, &mut random);
                        added.fetch_add(2, Ordering::Relaxed);
                    }
                    if i % 1000 == 999 && t == 0 {
                        rig.pool.checkpoint_now().unwrap();
                    }
                    if i % 100 == 0 {
                        let ids: Vec<_> = (0..16).map(|_| id(1 + random.below(PAGES) as u32)).collect();
                        if t % 2 == 0 {
                            rig.pool.prefetch(&ids);
                        } else {
                            rig.pool.read_together(&ids);
                        }
                    }
                }
            });
        }
    });
    let expected = added.load(Ordering::Relaxed);
    assert_eq!(sum(&rig.pool), expected);
    let stats = rig.pool.stats();
    assert!(stats.evictions > 0 && stats.writes > 0 && stats.checkpoints > 0, "{stats:?}");
    // A crash without a shutdown, then a clean one.
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
    rig.pool.stop_background();
    let sim = rig.sim.crash(9);
    drop(rig);
    let rig = open(sim, &config()).unwrap();
    rig.pool.redo_in_background(2).unwrap();
    assert_eq!(sum(&rig.pool), expected);
    rig.pool.checkpoint_now().unwrap();
    rig.pool.stop_background();
    let sim = rig.sim.crash(9);
    drop(rig);
    let rig = open(sim, &config()).unwrap();
    assert_eq!(rig.recovered.mtrs, 0);
    assert_eq!(sum(&rig.pool), expected);
}

/// A reduction that cannot finish gives way to whatever size is set next: a smaller one, one in between, and a larger one.
#[test]
fn a_reduction_gives_way_to_another_size() {
    let config = PoolConfig { bytes: 4096 * 200, bytes_max: 4096 * 300, ..config() };
    let rig = create(5, &config);
    let pool = &rig.pool;
    init_pages(pool, 150);
    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed().as_secs() < 60, "{what}: {:?}", pool.stats());
            std::thread::yield_now();
        }
    };
    let now = || (pool.stats().frames, pool.stats().frames_shrinking_to, pool.stats().frames_to_free);
    // Whoever uses these keeps their frames from being emptied.
    let held: Vec<_> =
        (1..=150).map(|page| pool.fix_shared(id(page)).unwrap()).filter(|p| p.frame().0 >= 100).collect();
    let held_from = |first: u32| held.iter().filter(|p| p.frame().0 >= first).count() as u64;
    assert!(held_from(150) > 0 && held_from(100) > held_from(150));
    for frames in [100u32, 64, 150, 80, 120, 90] {
        pool.resize(frames as usize * 4096).unwrap();
        wait_for("all but the held ones are empty", &|| now() == (200, u64::from(frames), held_from(frames.max(100))));
    }
    pool.resize(200 * 4096).unwrap();
    assert_eq!(now(), (200, 0, 0));
    wait_for("no frame is lost", &|| pool.stats().free_frames + resident(pool, 150) == 200);
    pool.resize(90 * 4096).unwrap();
    pool.resize(300 * 4096).unwrap();
    assert_eq!(now(), (300, 0, 0));
    wait_for("no frame is lost", &|| pool.stats().free_frames + resident(pool, 150) == 300);
    pool.resize(64 * 4096).unwrap();
    wait_for("all but the held ones are empty", &|| now() == (300, 64, held_from(64)));
    drop(held);
    wait_for("the reduction ends", &|| now() == (64, 0, 0));
    rig.pool.stop_background();
}

fn resident(pool: &BufferPool, pages: u32) -> u64 {
    (1..=pages).filter(|&page| pool.is_resident(id(page))).count() as u64
}

/// The pool grows and shrinks under its users, also before it has reached the last size; nothing is lost, and memory follows.
#[test]
fn the_pool_changes_its_size_under_load() {
    let config = PoolConfig { bytes_max: 4096 * 400, ..config() };
    let rig = create(3, &config);
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    let (added, running) = (AtomicU64::new(0), std::sync::atomic::AtomicBool::new(true));
    let settled = |frames: u64| {
        let begin = std::time::Instant::now();
        let reached = |s: PoolStats| s.frames + s.frames_lent == frames && s.frames_shrinking_to == 0;
        while !reached(rig.pool.stats()) {
            assert!(begin.elapsed().as_secs() < 60, "{:?}", rig.pool.stats());
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for t in 0..3 {
            let (rig, added, running) = (&rig, &added, &running);
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                while running.load(Ordering::Relaxed) {
                    look(&rig.pool, &mut random);
                    add(&rig.pool, &mut random);
                    added.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        for frames in [400u64, 64, 333, 70, 400, 64] {
            rig.pool.resize(frames as usize * 4096).unwrap();
            settled(frames);
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        let mut random = Random::from_seed(9);
        for _ in 0..300 {
            rig.pool.resize((64 + random.below(337)) as usize * 4096).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
        rig.pool.resize(64 * 4096).unwrap();
        settled(64);
        running.store(false, Ordering::Relaxed);
    });
    assert_eq!(sum(&rig.pool), added.load(Ordering::Relaxed));
    for (bytes, why) in [(4096 * 63, "too small"), (4096 * 401, "reserved at the start"), (0, "too small")] {
        let message = rig.pool.resize(bytes).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }
    rig.pool.checkpoint_now().unwrap();
    let stats = rig.pool.stats();
    assert_eq!((stats.frames + stats.frames_lent, stats.dirty_pages), (64, 0));
    rig.pool.stop_background();
}

/// The error that a thread gets which holds all frames and waits for one more, once `end` has been called.
fn end_of_the_wait_for_a_frame(killed: &AtomicBool, end: impl FnOnce(&BufferPool)) -> Error {
    let rig = create(4, &config());
    let pool = &rig.pool;
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    let (held_now, waits) = (AtomicU64::new(0), AtomicU64::new(0));
    let error = std::thread::scope(|scope| {
        let hold = || {
            let mut held = Vec::new();
            loop {
                waits.store(pool.stats().free_waits, Ordering::Release);
                held_now.store(held.len() as u64, Ordering::Release);
                match pool.fix_shared(id(held.len() as u32 + 1)) {
                    Ok(page) => held.push(page),
                    Err(error) => return error,
                }
            }
        };
        let holder = scope.spawn(move || until_killed(&|| killed.load(Ordering::Acquire), hold));
        while held_now.load(Ordering::Acquire) < 64 || pool.stats().free_waits == waits.load(Ordering::Acquire) {
            assert!(!holder.is_finished());
            std::thread::sleep(Duration::from_millis(1));
        }
        end(pool);
        holder.join().unwrap()
    });
    pool.stop_background();
    error
}

#[test]
fn stopping_the_threads_ends_the_wait_for_a_frame() {
    let error = end_of_the_wait_for_a_frame(&AtomicBool::new(false), BufferPool::stop_background);
    assert_eq!(error, Error::ShuttingDown);
}

#[test]
fn a_kill_ends_the_wait_for_a_frame() {
    let killed = AtomicBool::new(false);
    assert_eq!(end_of_the_wait_for_a_frame(&killed, |_| killed.store(true, Ordering::Release)), Error::Interrupted);
}

#[test]
fn a_pool_without_threads_changes_its_size_at_once_or_not_at_all() {
    let config = PoolConfig { bytes_max: 4096 * 200, ..small(100) };
    let rig = create(4, &config);
    let pool = &rig.pool;
    for page in 1..=90 {
        let mut mtr = Mtr::start(pool).unwrap();
        mtr.init(id(page), PageKind::Index).unwrap();
        mtr.write(mtr.find(id(page)).unwrap(), AT, &[page as u8]);
        mtr.commit().unwrap();
    }
    // Somebody holds a page beyond the new end.
    let held: Vec<_> = (1..=90).map(|page| pool.fix_shared(id(page)).unwrap()).filter(|p| p.frame().0 >= 64).collect();
    assert!(!held.is_empty());
    assert!(matches!(pool.resize(64 * 4096), Err(Error::BufferPoolExhausted)));
    assert_eq!((pool.stats().frames, pool.stats().frames_shrinking_to), (100, 0));
    drop(held);
    pool.resize(64 * 4096).unwrap();
    assert_eq!((pool.stats().frames, pool.stats().frames_to_free), (64, 0));
    assert!((1..=90).all(|page| pool.fix_shared(id(page)).unwrap()[AT] == page as u8));
    pool.resize(200 * 4096).unwrap();
    assert!((1..=90).all(|page| pool.fix_shared(id(page)).unwrap()[AT] == page as u8));
    assert!((1..=90).all(|page| pool.is_resident(id(page))));
    assert_eq!(pool.stats().free_frames, 110);
}

/// Pages in use are read again after a restart; a damaged list is ignored; what a stop kept from being read is not lost.
#[test]
fn pages_in_use_are_read_again_after_a_restart() {
    use std::path::Path;
    let config = PoolConfig { bytes: 4096 * 512, ..config() };
    let restarted = |rig: rig::Rig| {
        rig.pool.checkpoint_now().unwrap();
        rig.pool.save_hot_pages().unwrap();
        rig.pool.stop_background();
        let sim = rig.sim.crash(1);
        drop(rig);
        open(sim, &config).unwrap()
    };
    let resident = |pool: &BufferPool| (1..=PAGES).filter(|&p| pool.is_resident(id(p as u32))).count();
    let wait_for = |pool: &BufferPool, pages: usize| {
        let begin = std::time::Instant::now();
        while resident(pool) != pages {
            assert!(begin.elapsed().as_secs() < 60, "{} of {pages} pages", resident(pool));
            std::thread::yield_now();
        }
    };
    let rig = create(5, &config);
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    let mut rig = restarted(rig);
    // Stopped before it began, and before it read any: the list of the next start is that of this one.
    for begins in [false, true] {
        if !begins {
            rig.pool.stop_warm_up();
        }
        rig.pool.start_warm_up(Duration::from_secs(3600));
        std::thread::sleep(Duration::from_millis(20));
        rig.pool.stop_background();
        rig.pool.save_hot_pages().unwrap();
        assert_eq!(resident(&rig.pool), 0);
        let sim = rig.sim.crash(1);
        drop(rig);
        rig = open(sim, &config).unwrap();
    }
    rig.pool.start_warm_up(Duration::ZERO);
    wait_for(&rig.pool, PAGES as usize);
    let rig = restarted(rig);
    rig.pool.start_warm_up(Duration::ZERO);
    wait_for(&rig.pool, PAGES as usize);
    assert!(rig.messages.lock().unwrap().iter().all(|(level, _)| *level == myriad_buffer::Level::Info));
    let rig = restarted(rig);
    let path = Path::new(rig::DIR).join("#myriad/hot_pages");
    let io: &dyn myriad_io::Io = &rig.sim;
    io.open(&path, myriad_io::OpenMode::WRITE).unwrap().write_at(b"?", 40).unwrap();
    rig.pool.start_warm_up(Duration::ZERO);
    let begin = std::time::Instant::now();
    while !rig
        .messages
        .lock()
        .unwrap()
        .iter()
        .any(|(_, text)| text.contains("hot_pages is ignored: its pages are damaged"))
    {
        assert!(begin.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    assert_eq!(resident(&rig.pool), 0);
    rig.pool.stop_background();
}

/// What a stop kept from being read and what was used instead are more pages than there can be frames.
#[test]
fn a_list_of_pages_in_use_is_no_longer_than_one_that_is_read() {
    let config = PoolConfig { background_threads: true, ..small(64) };
    let mut rig = create(7, &config);
    init_pages(&rig.pool, 128);
    rig.pool.checkpoint_now().unwrap();
    for first in [1, 65, 1] {
        rig.pool.start_warm_up(Duration::from_secs(3600));
        std::thread::sleep(Duration::from_millis(20));
        (first..first + 64).for_each(|page| drop(rig.pool.fix_shared(id(page)).unwrap()));
        rig.pool.stop_background();
        rig.pool.save_hot_pages().unwrap();
        let told = rig.messages.lock().unwrap().clone();
        assert!(!told.iter().any(|(level, _)| *level == myriad_buffer::Level::Warning), "{told:?}");
        let sim = rig.sim.crash(1);
        drop(rig);
        rig = open(sim, &config).unwrap();
    }
}

/// The background's own saving may be under way when the pool is closed.
#[test]
fn lists_of_pages_in_use_are_saved_one_at_a_time() {
    let rig = create(6, &config());
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..5_000).for_each(|_| rig.pool.save_hot_pages().unwrap()));
        }
    });
}

#[test]
fn optimistic_reads_equal_latched_reads() {
    let rig = create(2, &config());
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let at = mtr.init(id(1), PageKind::Index).unwrap();
    let mut random = Random::from_seed(5);
    let bytes: Vec<u8> = (0..4096 - HEADER_BYTES).map(|_| random.next_u64() as u8).collect();
    mtr.write(at, HEADER_BYTES, &bytes);
    mtr.commit().unwrap();
    let held = rig.pool.fix_shared(id(1)).unwrap();
    let seen = rig.pool.optimistic(id(1)).unwrap();
    for _ in 0..20_000 {
        let at = random.below(4096 - 8) as usize;
        let len = random.below(60) as usize;
        assert_eq!(seen.u64(at), get_u64(&held, at));
        assert_eq!(seen.u32(at), get_u64(&held, at) as u32);
        assert_eq!(seen.u16(at), get_u64(&held, at) as u16);
        assert_eq!(seen.u8(at), held[at]);
        let end = (at + len).min(4096);
        let mut out = vec![0; 60];
        assert_eq!(seen.copy_to(&mut out, at, len), end - at);
        assert_eq!(out[..end - at], held[at..end]);
        let mut other = held[at..end].to_vec();
        assert_eq!(seen.compare(at, len, &other), std::cmp::Ordering::Equal);
        if !other.is_empty() && random.one_in(2) {
            let i = random.below(other.len() as u64) as usize;
            other[i] ^= 1 << random.below(8);
        } else {
            other.push(0);
        }
        assert_eq!(seen.compare(at, len, &other), held[at..end].cmp(&other[..]));
        // Offsets of torn data stay within the page.
        let wild = random.next_u64() as usize;
        let _ = (seen.u8(wild), seen.u16(wild), seen.u32(wild), seen.u64(wild), seen.compare(wild, wild, b"abc"));
        assert!(seen.copy_to(&mut out, wild, usize::MAX) <= 60);
    }
    assert!(seen.validate());
}

/// Threads that latch pages in one order never wait for each other, though the frame of a page that one of them is about to
/// latch is given to another page meanwhile.
#[test]
fn a_frame_that_changes_hands_leads_nobody_into_a_deadlock() {
    let rig = create(4, &PoolConfig { background_threads: true, ..small(24) });
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    std::thread::scope(|scope| {
        for t in 0..8 {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                for _ in 0..4_000 {
                    add(&rig.pool, &mut random);
                }
            });
        }
    });
    assert_eq!(sum(&rig.pool), 2 * 8 * 4_000);
}

/// Many clients with large mini-transactions fill a small log: those already past the check for room are more than the room
/// left for them.
#[test]
fn a_log_too_small_for_its_clients_never_stops_for_good() {
    const CLIENTS: u64 = 32;
    let config = PoolConfig { background_threads: true, page_cleaners: 2, ..small(400) };
    let log = LogConfig { capacity_bytes: 256 << 10, buffer_bytes: 256 << 10 };
    let rig = create_with(log, 11, &config);
    for page in 1..=PAGES {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        mtr.init(id(page as u32), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    std::thread::scope(|scope| {
        for t in 0..CLIENTS {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                for _ in 0..100 {
                    let mut mtr = Mtr::start(&rig.pool).unwrap();
                    let at = mtr.fix(id(1 + random.below(PAGES) as u32)).unwrap();
                    let filler = random.next_u64() as u8;
                    mtr.image(at, 4000..4000, |page| page[HEADER_BYTES..4000].fill(filler));
                    let end = mtr.commit().unwrap();
                    rig.pool.log().flush_to(end).unwrap();
                }
            });
        }
    });
    rig.pool.check_poison().unwrap();
    rig.pool.checkpoint_now().unwrap();
}

/// Each latches one page and then wants another: all of them together would latch every frame.
#[test]
fn mini_transactions_do_not_latch_all_frames_together() {
    let log = LogConfig { capacity_bytes: 64 << 20, buffer_bytes: 256 << 10 };
    let rig = create_with(log, 6, &config());
    let pool = &rig.pool;
    pool.start_background().unwrap();
    for page in 1..=300 {
        let mut mtr = Mtr::start(pool).unwrap();
        mtr.init(id(page), PageKind::Index).unwrap();
        mtr.commit().unwrap();
    }
    std::thread::scope(|scope| {
        for no in 0..100 {
            scope.spawn(move || {
                let mut mtr = Mtr::start(pool).unwrap();
                for page in [no, 100 + no, 200 + no] {
                    let at = mtr.fix(id(1 + page)).unwrap();
                    mtr.write(at, AT, &[1]);
                    std::thread::sleep(Duration::from_millis(10));
                }
                mtr.commit().unwrap();
            });
        }
    });
    pool.stop_background();
}

/// Whoever has the page next may wait for a page that a sleeper holds.
#[test]
fn who_sleeps_for_what_a_page_was_is_woken_when_it_becomes_free() {
    let rig = create(7, &small(64));
    let pool = &rig.pool;
    let mut mtr = Mtr::start(pool).unwrap();
    mtr.init(id(1), PageKind::Index).unwrap();
    mtr.commit().unwrap();
    let seen = pool.fix_shared(id(1)).unwrap().seen();
    let mut freed = Mtr::start(pool).unwrap();
    let page = freed.fix(id(1)).unwrap();
    let woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The longest sleeper, which is the one that other releases wake, wants the page, whatever is in it.
        let first = scope.spawn(|| {
            let _next = pool.fix_exclusive(id(1)).unwrap();
            let begin = Instant::now();
            while !woken.load(Ordering::Relaxed) && begin.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            }
            woken.load(Ordering::Relaxed)
        });
        std::thread::sleep(Duration::from_millis(50));
        scope.spawn(|| {
            assert!(pool.try_reuse(seen.frame, seen.id, seen.version).is_none());
            woken.store(true, Ordering::Relaxed);
        });
        std::thread::sleep(Duration::from_millis(50));
        freed.image(page, HEADER_BYTES..4096, |p| p[OFF_KIND] = PageKind::Free as u8);
        freed.commit().unwrap();
        assert!(first.join().unwrap(), "it slept on while another had the page");
    });
}

/// Nothing presses for the checkpoint that a quiet second brings.
#[test]
fn a_late_copy_of_the_log_is_not_given_up_while_there_is_room() {
    let rig = create(7, &config());
    let io: Arc<dyn Io> = Arc::new(rig.sim.clone());
    io.create_dir(Path::new("/copy")).unwrap();
    io.create_dir(Path::new("/copy/#myriad")).unwrap();
    let log = rig.pool.log();
    let mut copy = LogCopy::begin(log, &io, Path::new("/copy"), Duration::ZERO).unwrap();
    init_pages(&rig.pool, 20);
    for page in 1..=20 {
        let mut mtr = Mtr::start(&rig.pool).unwrap();
        let at = mtr.fix(id(page)).unwrap();
        mtr.write(at, AT, &[1; 1000]);
        mtr.commit().unwrap();
    }
    log.flush_to(log.end_lsn()).unwrap();
    let begun = Instant::now();
    let wait_while = |more: &dyn Fn() -> bool| {
        while more() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", rig.pool.stats());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_while(&|| rig.pool.stats().dirty_pages > 0 || begun.elapsed() < Duration::from_secs(3));
    assert_eq!(log.last_checkpoint().0, copy.checkpoint());
    while copy.advance(log).unwrap() {}
    wait_while(&|| log.last_checkpoint().0 < log.end_lsn());
    copy.give_up(log);
    rig.pool.stop_background();
}
