//! What the waits for pages are counted as. A process of its own: the counters are for all pools of a process.

mod rig;

use myriad_base::latch::{latch_stats, LatchClass};
use myriad_base::waits::{self, WaitFor};
use rig::{create, id, init_pages, small};
use std::sync::Mutex;
use std::time::{Duration, Instant};

static READS: Mutex<()> = Mutex::new(());

#[test]
fn waiting_for_a_read_is_no_contention_of_the_page() {
    rig::INDEX_CHECK
        .set(|_| {
            // A test that failed is poison.
            let _read = READS.lock();
            Ok(())
        })
        .unwrap();
    let rig = create(1, &small(64));
    init_pages(&rig.pool, 300);
    assert!(!rig.pool.is_resident(id(1)));
    let stats = || [LatchClass::PageRead, LatchClass::IndexPage].map(latch_stats);
    let wait_for = |done: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed().as_secs() < 60, "nobody waits as expected: {:?}", stats());
            std::thread::yield_now();
        }
    };
    // Who is listed has failed to take the latch, and will be counted.
    let wait_for_waiters = |class: LatchClass, threads: usize| {
        let waits = || waits::list(Duration::ZERO).iter().filter(|wait| wait.what == WaitFor::Latch(class)).count();
        wait_for(&|| waits() == threads);
        std::thread::sleep(Duration::from_millis(20));
    };
    let before = stats();
    std::thread::scope(|scope| {
        let fix = || drop(rig.pool.fix_shared(id(1)).unwrap());
        let reads = READS.lock().unwrap();
        scope.spawn(fix);
        wait_for(&|| rig.pool.is_resident(id(1)));
        (0..3).for_each(|_| drop(scope.spawn(fix)));
        wait_for_waiters(LatchClass::PageRead, 3);
        drop(reads);
    });
    let read = stats();
    assert_eq!((read[0].contended - before[0].contended, read[1].contended - before[1].contended), (3, 0));
    assert_eq!(read[0].acquired - before[0].acquired, 3);
    assert!(read[0].wait_ns - before[0].wait_ns > 3 * 10_000_000);
    let held = rig.pool.fix_exclusive(id(1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(rig.pool.fix_shared(id(1)).unwrap()));
        wait_for_waiters(LatchClass::IndexPage, 1);
        assert!(!rig.pool.tell_of_waits(Duration::from_secs(3600)), "nobody has waited for so long");
        assert!(rig.pool.tell_of_waits(Duration::from_millis(10)));
        drop(held);
    });
    let told: Vec<String> = rig.messages.lock().unwrap().drain(..).map(|(_, text)| text).collect();
    assert!(told.len() == 1 && told[0].matches("thread").count() == 1, "{told:?}");
    let lasts = told[0].strip_suffix(" s for index_page").and_then(|text| text.rsplit(": ").next());
    assert!(lasts.is_some_and(|seconds| seconds.parse::<f64>().is_ok()), "{told:?}");
    assert!(!rig.pool.tell_of_waits(Duration::ZERO), "who waits no longer is not told of");
    let held = stats();
    assert_eq!((held[0].contended - read[0].contended, held[1].contended - read[1].contended), (0, 1));
}
