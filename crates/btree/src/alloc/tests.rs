//! Allocation on the simulated disk: more than one group, full disks. A group of 4 KiB pages is 126.75 MiB; what it holds
//! is marked as in use and never written.

use super::*;
use crate::crash_tests::{check_allocation, create, quiet, DIR};
use crate::tests::{check_whole, open_pool, put, take as take_row, SPACE};
use crate::{BulkBuilder, Leaf, RemoveProgress, Tree};
use myriad_base::ids::mix;
use myriad_base::random::Random;
use myriad_base::IndexId;
use myriad_io::{CallKind, Fault, SimIo};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

const FRAMES: usize = 1_000;

fn file_len(pool: &BufferPool) -> u64 {
    file_pages(pool, SPACE).unwrap()
}

/// Pages of the file that nobody uses.
fn unused(pool: &BufferPool) -> u64 {
    file_len(pool) - pages_in_use(pool, SPACE).unwrap()
}

/// Marks all pages of these extents of the first group that are free.
fn occupy(pool: &BufferPool, extents: Range<usize>) {
    let mut mtr = Mtr::start(pool).unwrap();
    let bitmap = mtr.fix(PageId::new(SPACE, PageNo(1))).unwrap();
    for w in extents {
        let free = !word(mtr.page(bitmap), w);
        mtr.apply(bitmap, redo::ALLOCATE, &change_payload(w as u16, free)).unwrap();
    }
    mtr.commit().unwrap();
}

/// Frees extents of the first group, all pages of each.
fn vacate(pool: &BufferPool, extents: Range<u32>) {
    for w in extents {
        let mut mtr = Mtr::start(pool).unwrap();
        let pages = (w * EXTENT_PAGES..(w + 1) * EXTENT_PAGES).map(|no| PageId::new(SPACE, PageNo(no)));
        let freeing: Vec<Freeing> = pages.map(|id| prepare_free(&mut mtr, id).unwrap()).collect();
        freeing.into_iter().for_each(|f| free(&mut mtr, f).unwrap());
        mtr.commit().unwrap();
    }
}

/// Extents of the first group that are free.
fn free_extents(pool: &BufferPool) -> usize {
    let bitmap = pool.fix_shared(PageId::new(SPACE, PageNo(1))).unwrap();
    (0..word_count(bitmap.len())).filter(|&w| word_is_free(&bitmap, w)).count()
}

/// A pool whose tablespace has a full first group; what is new goes to the second. The file ends within an extent.
fn full_first_group(sim: &SimIo) -> Arc<BufferPool> {
    let pool = create(sim, &quiet(FRAMES));
    ensure_pages(&pool, SPACE, u64::from(group_pages(4096)) + 37).unwrap();
    occupy(&pool, 0..word_count(4096));
    pool
}

/// A queue: rows come at one end of a tree and go at the other.
struct Queue {
    tree: Tree,
    rows: Range<u32>,
}

impl Queue {
    fn push(&mut self, pool: &BufferPool, rows: u32) {
        for i in self.rows.end..self.rows.end + rows {
            put(pool, self.tree, &i.to_be_bytes(), &[7; 1300]).unwrap();
        }
        self.rows.end += rows;
    }

    fn pop(&mut self, pool: &BufferPool, rows: u32) {
        for i in self.rows.start..self.rows.start + rows {
            take_row(pool, self.tree, &i.to_be_bytes()).unwrap();
        }
        self.rows.start += rows;
    }
}

#[test]
fn extents_emptied_in_another_group_are_used_before_the_file_grows() {
    let pool = full_first_group(&SimIo::new(1));
    let mut queue = Queue { tree: Tree::create(&pool, SPACE).unwrap(), rows: 0..0 };
    assert!(queue.tree.root.0 >= group_pages(4096), "the first group is full");
    queue.push(&pool, 6_000);
    let grown = file_len(&pool);
    // As if the queue's older rows had been there.
    vacate(&pool, 100..130);
    queue.push(&pool, 3 * 64 * 25);
    assert!(free_extents(&pool) < 30, "the file had 16 extents ready at most");
    assert_eq!(file_len(&pool), grown);
    // Through both groups, and round again.
    for _ in 0..20 {
        queue.pop(&pool, 1_000);
        queue.push(&pool, 1_000);
    }
    assert_eq!(file_len(&pool), grown);
    assert_eq!(check_whole(&pool, queue.tree).entries, u64::from(queue.rows.end - queue.rows.start));
}

/// Where insertions go everywhere, each would like an extent for one page: another group gives as few as one's own.
#[test]
fn another_groups_extents_are_filled_before_the_next_is_begun() {
    let pool = full_first_group(&SimIo::new(2));
    let tree = Tree::create(&pool, SPACE).unwrap();
    for i in 0..24_000u64 {
        put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
    }
    vacate(&pool, 100..400);
    let used = |group: u32| {
        let bitmap = pool.fix_shared(PageId::new(SPACE, bitmap_page(4096, group))).unwrap();
        u64::from(get_u32(&bitmap, OFF_USED))
    };
    let (grown, before) = (file_len(&pool), used(0));
    for i in 24_000..29_000u64 {
        put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
    }
    let (taken, begun) = (used(0) - before, 300 - free_extents(&pool) as u64);
    assert!(taken > 300, "{taken} pages");
    assert_eq!(file_len(&pool), grown);
    let most = taken + used(0) / u64::from(SPARE_SHARE) + u64::from(EXTENT_PAGES);
    assert!(begun * 64 <= most, "{begun} extents for {taken} pages");
}

#[test]
fn groups_with_nothing_to_spare_are_not_looked_at_again() {
    let pool = full_first_group(&SimIo::new(3));
    let mut queue = Queue { tree: Tree::create(&pool, SPACE).unwrap(), rows: 0..0 };
    let space = pool.spaces().get(SPACE).unwrap();
    queue.push(&pool, 6_000);
    assert_eq!(space.spare_from(), 2, "both groups");
    vacate(&pool, 7..8);
    assert_eq!(space.spare_from(), 0);
    queue.push(&pool, 6_000);
    assert_eq!((space.spare_from(), free_extents(&pool)), (2, 0));
    queue.pop(&pool, 600);
    assert_eq!(space.spare_from(), 1);
}

#[test]
fn a_full_disk_leaves_no_page_unused() {
    let key = |i: u64, shape: u32| match shape {
        0 => mix(i),
        _ => i * 1_000_000,
    };
    for shape in 0..3 {
        let sim = SimIo::new(4);
        let pool = create(&sim, &quiet(FRAMES));
        let pack = Tree::pack(SPACE);
        let mut others: Vec<Tree> = (0..3).map(|_| Tree::create(&pool, SPACE).unwrap()).collect();
        for i in 0..9_000 {
            put(&pool, others[i as usize % 3], &key(i, shape).to_be_bytes(), &[7; 700]).unwrap();
        }
        if shape == 2 {
            // Some pages here and there, and whole extents.
            for i in (0..9_000u64).filter(|i| i % 400 < 40 || (3_000..6_000).contains(i)) {
                take_row(&pool, others[i as usize % 3], &key(i, shape).to_be_bytes()).unwrap();
            }
        }
        sim.set_capacity(Some(sim.used_bytes() + 100 * 4096));
        let mut failures = 0;
        for i in 0..20_000u64 {
            match put(&pool, pack, &mix(i).to_be_bytes(), &[7; 700]) {
                Ok(_) => {}
                Err(Error::DiskFull { .. }) => failures += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(failures > 0, "the disk never became full");
        assert_eq!(unused(&pool), 0, "shape {shape}: pages of {}", file_len(&pool));
        pool.check_poison().unwrap();
        check_whole(&pool, pack);
        // Room on the disk is found again, within some hundreds of pages.
        sim.set_capacity(None);
        let before = file_len(&pool);
        others.drain(..).for_each(|tree| while tree.destroy(&pool, 100).unwrap() == RemoveProgress::More {});
        for i in 0..9_000u64 {
            put(&pool, pack, &mix(i).to_be_bytes(), &[8; 1400]).unwrap();
        }
        assert!(file_len(&pool) > before);
        check_allocation(&pool, pack);
    }
}

/// Whichever group a tree is in, it gets what is free in any.
#[test]
fn a_full_disk_is_told_when_all_groups_are_full() {
    let sim = SimIo::new(5);
    let pool = full_first_group(&sim);
    let tree = Tree::create(&pool, SPACE).unwrap();
    for i in 0..2_000u64 {
        put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
    }
    sim.set_capacity(Some(sim.used_bytes()));
    let insert =
        |from: u64| (from..from + 20_000).find(|i| put(&pool, tree, &mix(*i).to_be_bytes(), &[7; 1300]).is_err());
    let first = insert(2_000).expect("a full disk");
    assert_eq!(unused(&pool), 0);
    vacate(&pool, 30..31);
    vacate(&pool, 41..42);
    let second = insert(first).expect("a full disk");
    assert_eq!(unused(&pool), 0);
    assert!(second > first + 200, "{first}, {second}");
    // A tree that begins in the first group, and chains.
    vacate(&pool, 50..51);
    let other = Tree::create(&pool, SPACE).unwrap();
    crate::overflow::write_overflow(&pool, SPACE, &[1; 4000 * 50]).unwrap();
    let full = (0..1_000u64).find(|i| put(&pool, other, &mix(*i).to_be_bytes(), &[7; 1300]).is_err());
    assert!(full.is_some_and(|rows| rows > 20), "{full:?}");
    assert_eq!(unused(&pool), 0);
    pool.check_poison().unwrap();
}

/// An extent that was given back to the file system cannot get its room on a full disk; one that was emptied later has it.
#[test]
fn a_full_disk_leaves_extents_that_have_their_room() {
    let sim = SimIo::new(6);
    let pool = full_first_group(&sim);
    let tree = Tree::create(&pool, SPACE).unwrap();
    for i in 0..3_000u64 {
        put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
    }
    sim.set_capacity(Some(sim.used_bytes()));
    let fill =
        |from: u64| (from..from + 20_000).find(|i| put(&pool, tree, &mix(*i).to_be_bytes(), &[7; 1300]).is_err());
    let mut rows = fill(3_000).expect("a full disk");
    for refused in [0, 1, 2, 3] {
        vacate(&pool, 20 + 4 * refused..24 + 4 * refused);
        (0..refused).for_each(|_| sim.inject(CallKind::Allocate, "a.myr", 0, Fault::Enospc, false));
        let before = pages_in_use(&pool, SPACE).unwrap();
        put(&pool, tree, &mix(rows).to_be_bytes(), &[7; 1300]).unwrap();
        rows = fill(rows).expect("a full disk");
        assert_eq!(pages_in_use(&pool, SPACE).unwrap() - before, 4 * 64, "{refused} refused");
        sim.clear_faults();
    }
}

/// All that a dropped tree leaves goes back to the file system, and is used again, where the file ends too.
#[test]
fn the_files_end_goes_back_to_the_file_system() {
    let sim = SimIo::new(10);
    let pool = create(&sim, &quiet(FRAMES));
    let tree = Tree::create(&pool, SPACE).unwrap();
    for i in 0..600u64 {
        put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
    }
    sim.set_capacity(Some(sim.used_bytes() + 10 * 4096));
    ensure_pages(&pool, SPACE, file_len(&pool) + 10).unwrap();
    sim.set_capacity(None);
    assert_ne!(file_len(&pool) % 64, 0, "the last extent is not whole");
    while tree.destroy(&pool, 100).unwrap() == RemoveProgress::More {}
    pool.checkpoint_now().unwrap();
    let plan = plan_punch(&pool, SPACE).unwrap().unwrap();
    pool.checkpoint_now().unwrap();
    let Punched::Pages(pages) = plan.punch(&pool).unwrap() else { panic!("the checkpoint has passed the plan") };
    assert!(pages >= file_len(&pool) - 64, "{pages} of {}", file_len(&pool));
    sim.set_capacity(Some(sim.used_bytes()));
    let tree = Tree::create(&pool, SPACE).unwrap();
    let full = (0..10_000u64).find(|i| put(&pool, tree, &mix(*i).to_be_bytes(), &[7; 1300]).is_err());
    assert!(full.is_some_and(|rows| rows > 600) && unused(&pool) == 0, "{full:?}");
    assert_eq!(check_whole(&pool, tree).entries, full.unwrap());
}

/// Of a plan what has been used since stays, also where it is free again; the rest of the same group goes.
#[test]
fn extents_used_since_the_plan_are_kept() {
    let sim = SimIo::new(11);
    let pool = create(&sim, &quiet(FRAMES));
    let fill_and_destroy = |rows: u64| {
        let tree = Tree::create(&pool, SPACE).unwrap();
        for i in 0..rows {
            put(&pool, tree, &mix(i).to_be_bytes(), &[7; 1300]).unwrap();
        }
        let used = pages_in_use(&pool, SPACE).unwrap();
        while tree.destroy(&pool, 100).unwrap() == RemoveProgress::More {}
        used
    };
    fill_and_destroy(2_000);
    let whole = plan_punch(&pool, SPACE).unwrap().unwrap();
    pool.checkpoint_now().unwrap();
    let Punched::Pages(all) = whole.punch(&pool).unwrap() else { panic!("the checkpoint has passed the plan") };
    let plan = plan_punch(&pool, SPACE).unwrap().unwrap();
    let used = fill_and_destroy(400).div_ceil(64) * 64;
    pool.checkpoint_now().unwrap();
    let Punched::Pages(some) = plan.punch(&pool).unwrap() else { panic!("the checkpoint has passed the plan") };
    assert!(some > 0 && some + 2 * used >= all && some + used / 2 <= all, "{some} of {all}, {used} used since");
    // A plan is carried out once.
    assert_eq!(plan.punch(&pool).unwrap(), Punched::Pages(0));
}

/// The disk has no room, or fails, at any of the calls that ask for some: an error at most, nothing lost, and all goes on.
#[test]
fn growth_fails_at_any_call() {
    for fault in [Fault::Enospc, Fault::Eio] {
        for (nth, sticky) in (0..24).map(|n| (n, n % 3 == 2)) {
            let config = quiet(300);
            let mut sim = SimIo::new(7);
            let mut pool = create(&sim, &config);
            let pack = Tree::pack(SPACE);
            let row = |n: u64| [&((n % 3) as u32).to_be_bytes()[..], &mix(n).to_be_bytes()].concat();
            sim.inject(CallKind::Allocate, "a.myr", nth, fault, sticky);
            let mut kept = 0;
            for n in 0..1_500 {
                match put(&pool, pack, &row(n), &[7; 300]) {
                    Ok(_) => kept += 1,
                    Err(Error::DiskFull { .. } | Error::Io { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
                if n % 500 == 250 {
                    // A promotion that has no room is tried again another time.
                    drop(pack.promote(&pool, IndexId(1)));
                }
            }
            pool.check_poison().unwrap();
            pool.log().flush_to(pool.log().end_lsn()).unwrap();
            sim = sim.crash(nth);
            drop(pool);
            (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
            check_allocation(&pool, pack);
            assert_eq!(check_whole(&pool, pack).entries, kept, "{fault:?} {nth} {sticky}");
            put(&pool, pack, &row(9_999), &[7; 300]).unwrap();
            let mut builder = BulkBuilder::new(&pool, SPACE, IndexId(50)).unwrap();
            for i in 0..2_000u32 {
                builder.push(&[&50u32.to_be_bytes()[..], &i.to_be_bytes()].concat(), &[1; 60]).unwrap();
            }
            builder.finish().unwrap();
        }
    }
}

/// A crash takes back what the file grew by; the pages are redone, and the file has room for all before the last of them.
#[test]
fn a_file_that_a_crash_made_shorter_has_room_for_its_pages_again() {
    let config = quiet(FRAMES);
    let sim = SimIo::new(9);
    let pool = create(&sim, &config);
    let pack = Tree::pack(SPACE);
    for n in 0..2_000 {
        put(&pool, pack, &mix(n).to_be_bytes(), &[7; 700]).unwrap();
    }
    pool.log().flush_to(pool.log().end_lsn()).unwrap();
    let grown = file_len(&pool);
    assert!(grown > 300, "{grown} pages");
    let crashed = (0..100).map(|seed| sim.crash(seed)).find_map(|sim| {
        let (pool, _) = open_pool(Arc::new(sim.clone()), Path::new(DIR), &config).unwrap();
        (file_len(&pool) < 10).then_some((sim, pool))
    });
    let (sim, pool) = crashed.expect("a seed that loses the growth");
    assert_eq!(check_whole(&pool, pack).entries, 2_000);
    pool.checkpoint_now().unwrap();
    let len = pool.spaces().get(SPACE).unwrap().file().unwrap().len().unwrap();
    assert!(len > 300 * 4096);
    assert_eq!(len, file_len(&pool) * 4096, "what was not set aside would count as room after the next start");
    assert!(sim.calls(CallKind::Allocate) > 0);
}

/// The power goes at any moment while a second group is begun and filled.
#[test]
fn a_group_is_begun_wholly_or_not() {
    let config = quiet(60);
    let pack = Tree::pack(SPACE);
    let mut begun = 0;
    for nth in 0..60 {
        let sim = SimIo::new(nth);
        let pool = full_first_group(&sim);
        pool.checkpoint_now().unwrap();
        sim.power_off_after(nth);
        let (mut durable, mut n) = (0, 0);
        while !sim.is_off() {
            let done = put(&pool, pack, &mix(n).to_be_bytes(), &[7; 700]);
            let flushed = done.and_then(|end| if n % 4 == 0 { pool.log().flush_to(end) } else { Ok(()) });
            n += 1;
            if flushed.is_ok() && n % 4 == 1 {
                durable = n;
            }
        }
        drop(pool);
        let (pool, _) = open_pool(Arc::new(sim.crash(nth)), Path::new(DIR), &config).unwrap();
        let report = check_whole(&pool, pack);
        assert!((durable..=n).contains(&report.entries), "{nth}: {durable}, {n}, {}", report.entries);
        // All of the first group; of the second its bitmap page, and the tree but for its root.
        let groups = group_count(&pool, SPACE).unwrap();
        let tree = report.leaf_pages + report.inner_pages;
        let used = u64::from(group_pages(4096)) + if groups == 2 { tree } else { 0 };
        assert_eq!((pages_in_use(&pool, SPACE).unwrap(), groups == 1), (used, tree == 1), "{nth}");
        begun += u32::from(groups == 2);
        for n in n..n + 50 {
            put(&pool, pack, &mix(n).to_be_bytes(), &[7; 700]).unwrap();
        }
        check_whole(&pool, pack);
    }
    assert!((10..60).contains(&begun), "{begun}");
}

/// Threads begin a group, and take and free pages in both, on a disk that is full now and then: no page is given out twice, none lost.
#[test]
fn threads_allocate_in_groups() {
    let sim = SimIo::new(8);
    let pool = full_first_group(&sim);
    vacate(&pool, 200..206);
    let used = pages_in_use(&pool, SPACE).unwrap();
    let all = Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (pool, sim, all) = (&pool, &sim, &all);
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                let mut mine: Vec<PageNo> = Vec::new();
                for step in 0..3_000 {
                    if t == 0 && step % 500 == 0 {
                        sim.set_capacity((step % 1_000 == 0).then(|| sim.used_bytes() + 20 * 4096));
                    }
                    if random.below(10) < 6 {
                        let near = mine.last().copied().filter(|_| random.below(4) != 0);
                        let Some(no) = take_one(pool, near) else { continue };
                        assert!(all.lock().unwrap().insert(no), "{no} was given out twice");
                        mine.push(no);
                    } else if !mine.is_empty() {
                        let no = mine.swap_remove(random.below(mine.len() as u64) as usize);
                        let mut mtr = Mtr::start(pool).unwrap();
                        let freeing = prepare_free(&mut mtr, PageId::new(SPACE, no)).unwrap();
                        free(&mut mtr, freeing).unwrap();
                        assert!(all.lock().unwrap().remove(&no));
                        mtr.commit().unwrap();
                    }
                }
            });
        }
    });
    pool.check_poison().unwrap();
    let all = all.into_inner().unwrap();
    // One of them is the second group's bitmap page.
    assert_eq!(pages_in_use(&pool, SPACE).unwrap() - used, all.len() as u64 + 1);
    assert!(all.iter().all(|&no| is_in_use(&pool, PageId::new(SPACE, no)).unwrap()));
    assert!(all.first().unwrap().0 < group_pages(4096) && all.last().unwrap().0 > group_pages(4096));
}

/// Takes a page; `None` if the disk is full.
fn take_one(pool: &BufferPool, near: Option<PageNo>) -> Option<PageNo> {
    loop {
        let mut mtr = Mtr::start(pool).unwrap();
        match find(&mut mtr, SPACE, near).unwrap() {
            Found::Page(candidate) => {
                take(&mut mtr, candidate, PageKind::Overflow).unwrap();
                mtr.commit().unwrap();
                return Some(candidate.page().page);
            }
            Found::Grow(growth) => {
                drop(mtr);
                match grow(pool, SPACE, growth) {
                    Ok(()) => {}
                    Err(Error::DiskFull { .. }) => return None,
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
}

/// Clears the bit of a page, as damage may.
fn forget(pool: &BufferPool, page: PageNo) {
    let mut mtr = Mtr::start(pool).unwrap();
    let bitmap = mtr.fix(PageId::new(SPACE, PageNo(1))).unwrap();
    let payload = change_payload((page.0 / EXTENT_PAGES) as u16, 1 << (page.0 % EXTENT_PAGES));
    mtr.apply(bitmap, redo::FREE, &payload).unwrap();
    mtr.commit().unwrap();
}

#[test]
fn no_page_is_given_out_that_is_surely_in_use() {
    let key = |n: u32| [77u32.to_be_bytes(), n.to_be_bytes()].concat();
    for what in 0..5 {
        let pool = create(&SimIo::new(1), &quiet(FRAMES));
        let tree = Tree::create_for(&pool, SPACE, IndexId(77)).unwrap();
        (0..100).for_each(|i| _ = put(&pool, tree, &key(i * 10), &[1; 100]).unwrap());
        occupy(&pool, 0..1);
        let leaf = tree.seek(&pool, &key(505)).unwrap().page_id().page;
        let freed = [PageNo(0), PageNo(1), PACK_ROOT, leaf, tree.root][what];
        forget(&pool, freed);
        let refused = tree.make_room(&pool, &key(505), 1_700);
        assert!(matches!(&refused, Err(Error::CorruptPage { page, .. }) if page.page == PageNo(1)), "{refused:?}");
        pool.check_poison().unwrap();
        assert!(pool.fix_shared(PageId::new(SPACE, freed)).unwrap()[OFF_KIND] != PageKind::Free as u8);
    }
}

#[test]
fn a_number_of_groups_that_cannot_be_is_corrupt() {
    for groups in [0, u32::MAX, u32::MAX / group_pages(4096)] {
        let sim = SimIo::new(1);
        let pool = full_first_group(&sim);
        let mut mtr = Mtr::start(&pool).unwrap();
        let bitmap = mtr.fix(PageId::new(SPACE, PageNo(1))).unwrap();
        mtr.write(bitmap, OFF_GROUPS, &groups.to_le_bytes());
        mtr.commit().unwrap();
        let all = [
            Tree::create(&pool, SPACE).map(|_| ()),
            pages_wanted(&pool, SPACE).map(|_| ()),
            pages_in_use(&pool, SPACE).map(|_| ()),
            plan_punch(&pool, SPACE).map(|_| ()),
        ];
        for done in all {
            assert!(matches!(&done, Err(Error::CorruptPage { page, .. }) if page.page == PageNo(1)), "{done:?}");
        }
        assert_eq!(get_u32(&pool.fix_shared(PageId::new(SPACE, PageNo(1))).unwrap(), OFF_GROUPS), groups);
    }
}
