//! The note of a stop that every transaction had ended: it must not outlive what makes it true.

mod rig;

use myriad_base::page::PageKind;
use myriad_buffer::Mtr;
use rig::{create, id, init_pages, open, small, Rig};
use std::path::Path;

fn started_again(rig: Rig) -> (Rig, bool) {
    let sim = rig.sim.crash(1);
    drop(rig);
    let rig = open(sim, &small(48)).unwrap();
    let noted = rig.pool.take_all_ended().unwrap();
    (rig, noted)
}

fn note(rig: &Rig) {
    rig.pool.checkpoint_now().unwrap();
    rig.pool.note_all_ended(rig.pool.log().end_lsn()).unwrap();
}

fn log_something(rig: &Rig) {
    let mut mtr = Mtr::start(&rig.pool).unwrap();
    let _ = mtr.init(id(9), PageKind::Index).unwrap();
    mtr.commit().unwrap();
    rig.pool.log().flush_to(rig.pool.log().end_lsn()).unwrap();
}

#[test]
fn it_serves_one_start() {
    let rig = create(1, &small(48));
    init_pages(&rig.pool, 3);
    note(&rig);
    let (rig, noted) = started_again(rig);
    assert!(noted);
    let (rig, noted) = started_again(rig);
    assert!(!noted, "it was taken away");
    note(&rig);
    rig.pool.checkpoint_now().unwrap();
    log_something(&rig);
    let (_, noted) = started_again(rig);
    assert!(!noted, "the log has more");
}

/// A stop may leave changes to the next start: the log is longer than the checkpoint tells, and all of it counts.
#[test]
fn it_holds_where_the_log_ends_as_it_says() {
    let rig = create(2, &small(48));
    rig.pool.checkpoint_now().unwrap();
    let end = rig.pool.log().end_lsn();
    log_something(&rig);
    rig.pool.note_all_ended(end).unwrap();
    assert!(rig.pool.log().last_checkpoint().1.is_empty(), "the log is longer");
    rig.pool.note_all_ended(rig.pool.log().end_lsn()).unwrap();
    let (rig, noted) = started_again(rig);
    assert!(noted && rig.recovered.mtrs == 1);
    // The end is lost.
    log_something(&rig);
    let end = rig.pool.log().end_lsn();
    rig.pool.note_all_ended(end).unwrap();
    let (sim, ring) = (rig.sim.crash(2), rig.pool.log().ring_bytes());
    drop(rig);
    sim.scribble(Path::new("/data/#myriad/redo.log"), 8192 + (end.0 - 8) % ring, &[255; 4]).unwrap();
    let rig = open(sim, &small(48)).unwrap();
    assert!(rig.pool.log().end_lsn() < end && !rig.pool.take_all_ended().unwrap());
}
