//! Undo pages that cannot be read: what a start makes of them.

use super::*;
use myriad_io::OpenMode;

const UNDO: &str = "/data/#myriad/undo.myr";
const PAGE: usize = 16384;
const NONE: u32 = u32::MAX;

type Told = Arc<Mutex<Vec<(Level, String)>>>;

fn open(io: &SimIo, force_recovery: bool) -> (Result<Arc<Engine>>, Told) {
    let told = Told::default();
    let noted = Arc::clone(&told);
    let report: Reporter = Arc::new(move |level, text| {
        if level != Level::Info {
            noted.lock().unwrap().push((level, text.into()));
        }
    });
    // A busy machine is told of as a slow device.
    let clock = Arc::new(ManualClock::default());
    (open_sim(io, EngineConfig { report, clock, force_recovery, ..sim_config() }), told)
}

/// The message of a start that is refused.
fn refusal(io: &SimIo) -> String {
    let refused = open(io, false).0.expect_err("refused").to_string();
    assert!(refused.contains("myriad_force_recovery=1"), "{refused}");
    refused
}

fn file(io: &SimIo) -> Vec<u8> {
    let file = io.open(Path::new(UNDO), OpenMode::WRITE).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// First and last page of each slot that has any.
fn slots(io: &SimIo) -> Vec<(u32, u32)> {
    let bytes = file(io);
    let slots = (0..u32_at(&bytes, PAGE + 52) as usize).map(|no| PAGE + 64 + 8 * no);
    slots.map(|at| (u32_at(&bytes, at), u32_at(&bytes, at + 4))).filter(|slot| slot.0 != NONE).collect()
}

fn damage(io: &SimIo, page: u32) {
    io.flip_bit(Path::new(UNDO), page as u64 * PAGE as u64 + 9000, 3).unwrap();
}

fn log_end(engine: &Engine) -> u64 {
    let text = engine.status_text();
    let line = text.lines().find(|l| l.starts_with("End LSN")).expect("as the status text has it");
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// A table of 200 rows, some of them changed, with versions to purge.
fn filled(seed: u64) -> (SimIo, Arc<Engine>) {
    let io = SimIo::new(seed);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 200);
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for i in 0..20u32 {
        session.remove(&table, &i.to_be_bytes()).unwrap();
    }
    session.commit().unwrap();
    drop((table, session));
    (io, engine)
}

fn insert(engine: &Arc<Engine>, key: u32) {
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    session.insert(&table, &key.to_be_bytes(), b"new").unwrap();
    session.commit().unwrap();
}

/// All had ended, and the stop has noted it: nothing in the undo log is needed.
#[test]
fn after_a_clean_stop_no_undo_page_is_needed() {
    for (seed, mode) in [(1, CloseMode::Clean), (2, CloseMode::Purged)] {
        let (io, engine) = filled(seed);
        engine.close(mode).unwrap();
        drop(engine);
        let found = slots(&io);
        assert!(!found.is_empty());
        found.iter().for_each(|slot| damage(&io, slot.1));
        // A second time, too: the slots are set aside again, and what was written since is in others.
        for round in 0..2u32 {
            let (engine, told) = open(&io, false);
            let engine = engine.unwrap();
            assert_eq!(rows(&engine, "d/t").len(), 180 + round as usize);
            insert(&engine, 1000 + round);
            while engine.background_step().unwrap() {}
            let aside = told.lock().unwrap().iter().filter(|t| t.1.contains("is set aside; every")).count();
            assert_eq!(aside, found.len(), "{:?}", told.lock().unwrap());
            assert!(told.lock().unwrap().iter().all(|t| t.0 == Level::Warning));
            engine.close(mode).unwrap();
        }
    }
}

/// Nor where the stop has left changes of other pages in the log.
#[test]
fn after_a_stop_that_reads_no_pages_no_undo_page_is_needed() {
    for whole in [true, false] {
        let io = SimIo::new(9);
        let (config, told) = told(Level::Info);
        let engine = open_sim(&io, EngineConfig { io_capacity_max: 10, ..config }).unwrap();
        engine.create_table("d/t", &spec()).unwrap();
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        for key in 0..20_000u32 {
            session.insert(&table, &key.to_be_bytes(), &[7; 500]).unwrap();
        }
        session.commit().unwrap();
        // Two slots, of which the log has only one's pages.
        session.insert(&table, b"first", &[7; 500]).unwrap();
        insert(&engine, 1 << 20);
        engine.checkpoint_now().unwrap();
        for key in (0..20_000u32).step_by(32) {
            session.update(&table, &key.to_be_bytes(), &[8; 500]).unwrap();
        }
        session.commit().unwrap();
        drop((table, session));
        engine.close(CloseMode::Clean).unwrap();
        assert!(told.lock().unwrap().iter().any(|t| t.contains("which the next start makes from the log")));
        if !whole {
            // It ends earlier than the stop has noted.
            let at = 8192 + (log_end(&engine) - 8) % (4 << 20);
            io.scribble(Path::new("/data/#myriad/redo.log"), at, &[255; 4]).unwrap();
        }
        drop(engine);
        slots(&io).iter().for_each(|slot| damage(&io, slot.1));
        if !whole {
            refusal(&io);
            continue;
        }
        let (engine, told) = open(&io, false);
        let engine = engine.unwrap();
        let updated = rows(&engine, "d/t").iter().filter(|row| row.1[0] == 8).count();
        assert_eq!(updated, 625);
        assert!(told.lock().unwrap().iter().any(|t| t.1.contains("is set aside; every")));
    }
}

/// The note is of one stop: after the next start nobody knows any more what a slot holds, whatever the log has lost.
#[test]
fn the_note_of_a_clean_stop_does_not_outlive_the_next_start() {
    for (seed, log_lost) in [(3, false), (4, true)] {
        let (io, engine) = filled(seed);
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let engine = open(&io, false).0.unwrap();
        let end = log_end(&engine);
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        session.insert(&table, b"uncommitted", b"x").unwrap();
        engine.flush_log().unwrap();
        let io = io.crash(seed);
        std::mem::forget((session, table, engine));
        if log_lost {
            let at = 8192 + end % (4 << 20);
            io.scribble(Path::new("/data/#myriad/redo.log"), at, &[0; 64]).unwrap();
        }
        slots(&io).iter().for_each(|slot| damage(&io, slot.1));
        refusal(&io);
    }
}

/// What was unfinished may be in a slot that cannot be read: no start takes it for committed unless it is told to.
#[test]
fn a_slot_in_doubt_refuses_the_start_unless_forced() {
    // A transaction that a crash interrupts, with the damage in its last or in its first page; one that stays prepared.
    for (seed, first, prepared) in [(5, false, false), (6, true, false), (7, false, true)] {
        let (mut io, engine) = filled(seed);
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        for i in 100..200u32 {
            session.insert(&table, &(1000 + i).to_be_bytes(), &[7; 2000]).unwrap();
            session.update(&table, &(1000 + i).to_be_bytes(), &[8; 2000]).unwrap();
        }
        if prepared {
            session.prepare(b"x").unwrap();
            session.detach_prepared();
            drop((session, table));
            engine.close(CloseMode::Purged).unwrap();
            drop(engine);
        } else {
            engine.checkpoint_now().unwrap();
            io = io.crash(seed);
            std::mem::forget((session, table, engine));
        }
        let long = slots(&io).into_iter().find(|slot| slot.0 != slot.1).expect("a chain of pages");
        damage(&io, if first { long.0 } else { long.1 });
        let whose = refusal(&io);
        assert_eq!(whose.contains("(one with an id below"), !first, "{whose}");
        // Also after a forced start that ended cleanly.
        for _ in 0..2 {
            let (engine, told) = open(&io, true);
            let engine = engine.unwrap();
            assert_eq!(rows(&engine, "d/t").len(), 280, "its changes look committed");
            assert!(engine.prepared().is_empty());
            while engine.background_step().unwrap() {}
            let told = told.lock().unwrap();
            let aside: Vec<_> = told.iter().filter(|t| t.1.contains("is set aside. If")).collect();
            assert!(aside.len() == 1 && aside[0].0 == Level::Error && aside[0].1.contains("Dump"), "{told:?}");
            engine.close(CloseMode::Clean).unwrap();
            drop(engine);
            refusal(&io);
        }
    }
}

/// A free page that cannot be read costs the room of those behind it. No writer fails.
#[test]
fn a_damaged_free_page_stops_no_writer() {
    let (io, engine) = filled(8);
    let long = |engine: &Arc<Engine>, n: u32, rows: u32| {
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        for i in 0..rows {
            session.insert(&table, &(n + i).to_be_bytes(), &[7; 2000]).unwrap();
            session.update(&table, &(n + i).to_be_bytes(), &[8; 2000]).unwrap();
            session.remove(&table, &(n + i).to_be_bytes()).unwrap();
        }
        session.commit().unwrap();
    };
    long(&engine, 10_000, 300);
    engine.close(CloseMode::Purged).unwrap();
    drop(engine);
    let free = u32_at(&file(&io), PAGE + 44);
    assert_ne!(free, NONE, "free pages");
    damage(&io, free);
    for round in 1..3 {
        let (engine, told) = open(&io, false);
        let engine = engine.unwrap();
        long(&engine, round * 20_000, 300 / round);
        assert_eq!(rows(&engine, "d/t").len(), 180);
        let told = told.lock().unwrap();
        let grows = told.iter().filter(|t| t.1.contains("undo.myr grows")).count();
        // The second time there are pages in front of it.
        assert_eq!(grows, usize::from(round == 1), "{told:?}");
        engine.close(CloseMode::Purged).unwrap();
    }
}
