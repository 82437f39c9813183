//! `undo.myr` gives back what large transactions took.

use super::*;
use crate::undo::page::{DIRECTORY, DIR_FREE_COUNT, DIR_HIGH_WATER};
use crate::undo::shrink::LOOKS;
use myriad_base::codec::get_u32;
use myriad_base::random::Random;
use std::collections::BTreeMap;

/// What the file may have in these tests when all is purged: the directory, the pages kept, a few in use.
const SMALL: u32 = 60;

impl Rig {
    /// Pages from the file's begin that have been used, and the free ones among them.
    fn undo_pages(&self) -> (u32, u32) {
        let directory = self.sys.pool().fix_shared(DIRECTORY).unwrap();
        (get_u32(&directory, DIR_HIGH_WATER), get_u32(&directory, DIR_FREE_COUNT))
    }

    fn undo_file_pages(&self) -> u32 {
        self.sys.pool().spaces().get(SpaceId::UNDO).unwrap().pages_in_file()
    }

    /// As many looks as it takes.
    fn shrink(&self) {
        self.purge_all();
        for _ in 0..4 * LOOKS {
            self.sys.undo.shrink_step().unwrap();
        }
    }
}

fn payload(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; 500 + random.below(1000) as usize];
    bytes.iter_mut().for_each(|b| *b = random.next_u64() as u8);
    bytes
}

/// Gives each of `keys` another payload, `times` times.
fn change_all(rig: &Rig, t: &mut Trx, keys: std::ops::Range<u64>, times: u64, random: &mut Random) -> Vec<u8> {
    let mut last = Vec::new();
    for _ in 0..times {
        last = payload(random);
        keys.clone().for_each(|n| rig.update(t, &key(n), &last).unwrap());
    }
    last
}

fn insert_all(rig: &Rig, keys: std::ops::Range<u64>) {
    let mut t = rig.trx();
    keys.for_each(|n| rig.insert(&mut t, &key(n), &[1; 600]).unwrap());
    t.commit(Durability::Configured).unwrap();
}

#[test]
fn what_a_large_transaction_took_is_given_back() {
    let mut random = Random::from_seed(1);
    let rig = Rig::small();
    insert_all(&rig, 0..100);
    for _ in 0..2 {
        let mut t = rig.trx();
        let last = change_all(&rig, &mut t, 0..100, 10, &mut random);
        t.commit(Durability::Configured).unwrap();
        let (end, _) = rig.undo_pages();
        assert!(end > 200, "{end}");
        rig.shrink();
        let (end, free) = rig.undo_pages();
        assert!(end <= SMALL && free > 0, "{end}, {free}");
        assert_eq!(u64::from(end - 9 - free), rig.sys.purge_stats().undo_pages - 9);
        // Recovery has something to redo behind the end until a checkpoint.
        assert!(rig.undo_file_pages() > 200);
        rig.sys.pool().checkpoint_now().unwrap();
        rig.shrink();
        assert!(rig.undo_file_pages() <= SMALL + 16, "{}", rig.undo_file_pages());
        let after = rig.crashed(random.next_u64(), 300);
        assert_eq!(after.get(&mut after.trx(), &key(7)), Some(last));
    }
}

#[test]
fn one_transaction_after_the_other_keeps_the_file() {
    let mut random = Random::from_seed(2);
    let rig = Rig::small();
    insert_all(&rig, 0..50);
    for _ in 0..6 {
        let mut t = rig.trx();
        change_all(&rig, &mut t, 0..50, 40, &mut random);
        t.commit(Durability::Configured).unwrap();
        let (end, _) = rig.undo_pages();
        assert!(end > 100, "{end}");
        rig.purge_all();
        for _ in 0..LOOKS / 2 {
            rig.sys.undo.shrink_step().unwrap();
        }
        // No look finds the file too large while purge has the next one before it.
        let mut t = rig.trx();
        change_all(&rig, &mut t, 0..50, 20, &mut random);
        rig.sys.undo.shrink_step().unwrap();
        assert_eq!(rig.undo_pages().0, end);
        t.commit(Durability::Configured).unwrap();
    }
}

/// Commits a large transaction; gives another one, whose only page lies behind those of the first.
fn large_and_late(rig: &Rig, random: &mut Random) -> Trx {
    insert_all(rig, 0..100);
    let mut large = rig.trx();
    change_all(rig, &mut large, 0..90, 8, random);
    let mut late = rig.trx();
    rig.update(&mut late, &key(95), b"late").unwrap();
    large.commit(Durability::Sync).unwrap();
    late
}

#[test]
fn a_chain_behind_the_new_end_grows_to_the_front() {
    let mut random = Random::from_seed(3);
    let rig = Rig::small();
    let mut late = large_and_late(&rig, &mut random);
    let (end, _) = rig.undo_pages();
    rig.shrink();
    assert_eq!(rig.undo_pages().0, end, "a page at the end is in use");
    change_all(&rig, &mut late, 91..95, 10, &mut random);
    assert_eq!(rig.undo_pages().0, end, "free pages are used first");
    let history = rig.sys.purge_stats().undo_pages;
    late.rollback().unwrap();
    assert!(rig.sys.purge_stats().undo_pages < history);
    rig.shrink();
    assert!(rig.undo_pages().0 <= SMALL, "{:?}", rig.undo_pages());
    assert_eq!(rig.get(&mut rig.trx(), &key(95)), Some(vec![1; 600]));
}

#[test]
fn pages_that_a_crash_leaves_in_no_list_are_found() {
    let mut random = Random::from_seed(4);
    let mut rig = Rig::small();
    let late = large_and_late(&rig, &mut random);
    rig.shrink();
    rig.sys.flush_log().unwrap();
    let (end, _) = rig.undo_pages();
    let used = rig.sys.purge_stats().undo_pages;
    rig = {
        let next = rig.crashed(5, 300);
        drop(late);
        next
    };
    assert_eq!(rig.undo_pages().0, end);
    assert!(rig.sys.purge_stats().undo_pages <= used, "those in no list count as free");
    rig.sys.rollback_losers().unwrap();
    rig.shrink();
    assert!(rig.undo_pages().0 <= SMALL, "{:?}", rig.undo_pages());
}

/// Purge is in the middle of a log when the process ends; the log's first page was behind the end, and the file is cut.
#[test]
fn a_log_whose_beginning_was_cut_off_had_ended() {
    let mut random = Random::from_seed(5);
    let rig = Rig::small();
    let mut late = large_and_late(&rig, &mut random);
    rig.shrink();
    // Its other pages are in front, with more for purge to do than it does at a time.
    for n in 0..600u64 {
        rig.delete(&mut late, &key(95)).unwrap();
        rig.insert(&mut late, &key(95), &n.to_be_bytes()).unwrap();
    }
    late.commit(Durability::Sync).unwrap();
    assert!(rig.sys.purge_step().unwrap());
    for _ in 0..2 {
        (0..4 * LOOKS).for_each(|_| rig.sys.undo.shrink_step().unwrap());
        rig.sys.pool().checkpoint_now().unwrap();
    }
    rig.sys.undo.shrink_step().unwrap();
    assert!(rig.undo_file_pages() <= SMALL + 16, "{}", rig.undo_file_pages());
    assert!(rig.sys.purge_stats().history > 0, "purge is through with it");
    // What was cut off may be back after a power failure.
    let sim = rig.sim.kill(6);
    let after = Rig::over(sim.clone(), open(&sim, 300, false, false));
    assert_eq!(after.get(&mut after.trx(), &key(95)), Some(599u64.to_be_bytes().to_vec()));
    after.shrink();
    assert_eq!(after.sys.purge_stats().history, 0);
}

/// Large and small transactions, open ones, looks, checkpoints; then a power failure.
fn crash_loop(seed: u64) -> u32 {
    let mut random = Random::from_seed(seed);
    let mut rig = Rig::new(seed, 150, false);
    insert_all(&rig, 0..40);
    let mut rows: BTreeMap<u64, Vec<u8>> = (0..40).map(|n| (n, vec![1; 600])).collect();
    let mut shrunk = 0;
    for round in 0..4 {
        for _ in 0..3 + random.below(4) {
            let log = rig.sys.pool().log();
            if log.end_lsn().0 - log.redo_start().0 > 1 << 20 {
                // Nobody else makes room in it here.
                rig.sys.pool().checkpoint_now().unwrap();
            }
            let times = if random.one_in(2) { 1 } else { 5 + random.below(10) };
            let (mut large, mut other) = (rig.trx(), rig.trx());
            let mut next = rows.clone();
            let last = change_all(&rig, &mut large, 0..20, times, &mut random);
            (0..20).for_each(|n| _ = next.insert(n, last.clone()));
            if random.one_in(2) {
                let last = change_all(&rig, &mut other, 30..32, 1 + random.below(8), &mut random);
                (30..32).for_each(|n| _ = next.insert(n, last.clone()));
            }
            large.commit(Durability::Sync).unwrap();
            if random.one_in(2) {
                rig.purge_all();
            }
            for _ in 0..random.below(u64::from(3 * LOOKS)) {
                let before = rig.undo_pages().0;
                let _ = rig.sys.purge_step().unwrap();
                rig.sys.undo.shrink_step().unwrap();
                shrunk += u32::from(rig.undo_pages().0 < before);
                match random.below(20) {
                    0 => rig.sys.pool().checkpoint_now().unwrap(),
                    1..=3 => drop(rig.sys.pool().step_background().unwrap()),
                    _ => {}
                }
            }
            other.commit(Durability::Sync).unwrap();
            rows = next;
        }
        let mut open = rig.trx();
        change_all(&rig, &mut open, 25..29, random.below(6), &mut random);
        if random.one_in(2) {
            rig.sys.flush_log().unwrap();
        }
        let next = rig.crashed(random.next_u64(), 150);
        drop(open); // Undone on the disk that is gone.
        rig = next;
        rig.sys.rollback_losers().unwrap();
        let found: BTreeMap<u64, Vec<u8>> = rig
            .scan(&mut rig.trx(), &rig.rows, true)
            .into_iter()
            .map(|(k, v)| (u64::from_be_bytes(k.try_into().unwrap()), v))
            .collect();
        assert!(found == rows, "seed {seed}, round {round}");
    }
    shrunk
}

#[test]
fn crashes_beside_shrinking() {
    let shrunk: u32 = (0..12).map(crash_loop).sum();
    assert!(shrunk > 12, "{shrunk}");
}

#[test]
fn writers_beside_shrinking() {
    let rig = Rig::new(6, 600, true);
    rig.start_background();
    let ends = std::thread::scope(|scope| {
        let rig = &rig;
        for no in 0..4u64 {
            scope.spawn(move || {
                let mut random = Random::from_seed(no);
                let keys = no * 100..no * 100 + 10;
                insert_all(rig, keys.clone());
                for round in 0..60 {
                    let mut t = rig.trx();
                    let times = if round % 6 == 0 { 25 } else { 1 };
                    let last = change_all(rig, &mut t, keys.clone(), times, &mut random);
                    if random.one_in(4) {
                        t.rollback().unwrap();
                        continue;
                    }
                    t.commit(Durability::Configured).unwrap();
                    let mut t = rig.trx();
                    assert!(keys.clone().all(|n| rig.get(&mut t, &key(n)).as_ref() == Some(&last)));
                }
            });
        }
        let mut ends = Vec::new();
        for _ in 0..400 {
            rig.sys.undo.shrink_step().unwrap();
            ends.push(rig.undo_pages().0);
            std::thread::sleep(Duration::from_millis(1));
        }
        ends
    });
    rig.sys.shutdown(true).unwrap();
    rig.shrink();
    assert!(ends.windows(2).any(|w| w[1] < w[0]) || rig.undo_pages().0 <= SMALL, "{ends:?}");
    assert!(rig.undo_pages().0 <= SMALL, "{:?}", rig.undo_pages());
}
