//! Reading a page panics. A process of its own: what pages have to pass is set for all pools of a process.

mod rig;

use myriad_buffer::BufferPool;
use rig::{create, id, init_pages, small};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

static PANICS: AtomicBool = AtomicBool::new(false);

#[test]
fn nobody_waits_for_a_page_whose_reader_panicked() {
    rig::INDEX_CHECK
        .set(|_| {
            assert!(!PANICS.swap(false, Ordering::Relaxed), "as the test wants it");
            Ok(())
        })
        .unwrap();
    let rig = create(1, &small(64));
    init_pages(&rig.pool, 300);
    let reads: [fn(&BufferPool, u32); 3] = [
        |pool, page| drop(pool.fix_shared(id(page))),
        |pool, page| pool.prefetch(&[id(page), id(page + 1)]),
        |pool, page| pool.read_together(&[id(page), id(page + 1)]),
    ];
    for (read, page) in reads.into_iter().zip([1, 11, 21]) {
        // Frees frames.
        rig.pool.step_background().unwrap();
        assert!(!rig.pool.is_resident(id(page)));
        PANICS.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| read(&rig.pool, page))).is_err(), "page {page} was not read");
        let (pool, (tell, told)) = (Arc::clone(&rig.pool), mpsc::channel());
        std::thread::spawn(move || {
            (page..page + 2).for_each(|page| drop(pool.fix_shared(id(page)).unwrap()));
            tell.send(()).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_secs(60)).is_ok(), "page {page} cannot be had any more");
    }
}
