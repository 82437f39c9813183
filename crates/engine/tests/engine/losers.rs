//! Rollback after a crash of what changed a tablespace whose file is away.

use super::*;
use myriad_io::{CallKind, Fault};

const FILE: &str = "/data/#myriad/away";

/// A crash while one transaction had changed `d/t`, and another `e/t`; then d's file is moved away. Returns its path.
fn away(seed: u64) -> (SimIo, String) {
    let io = SimIo::new(seed);
    let engine = open_sim(&io, sim_config()).unwrap();
    let mut sessions = Vec::new();
    for db in ["d", "e"] {
        let name = format!("{db}/t");
        engine.create_table(&name, &spec()).unwrap();
        fill(&engine, &name, 20);
        let (table, mut session) = (engine.open_table(&name).unwrap(), engine.session());
        session.insert(&table, b"uncommitted", b"x").unwrap();
        session.remove(&table, &7u32.to_be_bytes()).unwrap();
        sessions.push(session);
    }
    engine.checkpoint_now().unwrap();
    let path = format!("/data/{}", engine.spaces().unwrap()[2].path);
    let io = io.crash(seed);
    std::mem::forget((sessions, engine));
    io.rename(Path::new(&path), Path::new(FILE)).unwrap();
    (io, path)
}

/// Ids of what is being rolled back.
fn losers(engine: &Arc<Engine>) -> Vec<u64> {
    engine.transactions().iter().filter(|t| t.recovered).map(|t| t.trx_id).collect()
}

#[test]
fn what_cannot_be_rolled_back_yet_stays_locked_and_is_rolled_back_later() {
    let (io, path) = away(21);
    for mode in [CloseMode::Clean, CloseMode::Purged] {
        let (config, warnings) = told(Level::Warning);
        let engine = open_sim(&io, config).unwrap();
        settle(&engine);
        assert_eq!(losers(&engine).len(), 1, "that of e is done");
        assert_eq!(rows(&engine, "e/t").len(), 20);
        settle(&engine);
        let told = warnings.lock().unwrap().iter().filter(|w| w.contains("rollback of transaction")).count();
        assert_eq!(told, 1, "{:?}", warnings.lock().unwrap());
        engine.close(mode).unwrap();
    }
    io.rename(Path::new(FILE), Path::new(&path)).unwrap();
    let engine = open_sim(&io, sim_config()).unwrap();
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    let locked = session.get(&table, 0, b"uncommitted", false, Lock::Exclusive, Wait::NoWait);
    assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{locked:?}");
    session.rollback().unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(losers(&engine), []);
    let found = rows(&engine, "d/t");
    assert_eq!((found.len(), found.iter().any(|r| r.0 == b"uncommitted")), (20, false));
}

/// The error log tells of what is left to roll back at a stop, and when nothing is.
#[test]
fn rollback_after_a_crash_is_told_to_its_end() {
    let (io, path) = away(25);
    let run = |mode| {
        let (config, notes) = told(Level::Info);
        let engine = open_sim(&io, config).unwrap();
        settle(&engine);
        engine.close(mode).unwrap();
        let notes = notes.lock().unwrap();
        let count = |part: &str| notes.iter().filter(|n| n.contains(part)).count();
        (
            count("1 transactions are left to roll back (2 changes)"),
            count("all unfinished transactions are rolled back"),
        )
    };
    assert_eq!(run(CloseMode::Clean), (1, 0));
    io.rename(Path::new(FILE), Path::new(&path)).unwrap();
    assert_eq!(run(CloseMode::Clean), (0, 1));
    assert_eq!(run(CloseMode::Clean), (0, 0));
}

#[test]
fn a_file_that_comes_back_needs_no_restart() {
    let (io, path) = away(22);
    let engine = open_sim(&io, sim_config()).unwrap();
    settle(&engine);
    assert_eq!(losers(&engine).len(), 1);
    io.rename(Path::new(FILE), Path::new(&path)).unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(losers(&engine), []);
    assert_eq!(rows(&engine, "d/t").len(), 20);
}

#[test]
fn drop_ends_what_cannot_be_rolled_back() {
    for whole in [false, true] {
        let (io, path) = away(23);
        let engine = open_sim(&io, sim_config()).unwrap();
        settle(&engine);
        assert_eq!(losers(&engine).len(), 1);
        match whole {
            true => assert_eq!(engine.drop_database("d").unwrap(), 1),
            false => engine.drop_table("d/t").unwrap(),
        }
        settle(&engine);
        assert_eq!(losers(&engine), []);
        if whole {
            continue;
        }
        // The file comes back, with room for a table of the same name and nothing in it.
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        io.rename(Path::new(FILE), Path::new(&path)).unwrap();
        let engine = open_sim(&io, sim_config()).unwrap();
        while engine.background_step().unwrap() {}
        engine.create_table("d/t", &spec()).unwrap();
        assert_eq!(rows(&engine, "d/t"), []);
        fill(&engine, "d/t", 20);
        assert_eq!(rows(&engine, "d/t").len(), 20);
    }
}

/// What the log has of a tablespace that was dropped since is passed over without a word.
#[test]
fn a_dropped_tablespace_is_no_warning() {
    let io = SimIo::new(24);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 20);
    let path = format!("/data/{}", engine.spaces().unwrap()[2].path);
    engine.drop_database("d").unwrap();
    // No page is written, so no checkpoint is taken.
    io.inject(CallKind::Write, "doublewrite", 0, Fault::Eio, true);
    assert!(engine.background_step().is_err());
    assert!(!io.exists(Path::new(&path)).unwrap());
    let io = io.crash(24);
    std::mem::forget(engine);
    let (config, warnings) = told(Level::Warning);
    let engine = open_sim(&io, config).unwrap();
    settle(&engine);
    assert_eq!(*warnings.lock().unwrap(), [""; 0]);
}

/// What can be neither purged nor reclaimed keeps a slow shutdown from nothing else.
#[test]
fn a_slow_shutdown_writes_all_it_can() {
    for unlogged in [false, true] {
        let (io, _) = away(3);
        let (config, warnings) = told(Level::Warning);
        let config = EngineConfig { flush_at_commit: FlushAtCommit::Lazy, ..config };
        let engine = open_sim(&io, config).unwrap();
        engine.drop_table("d/t").unwrap();
        settle(&engine);
        if unlogged {
            engine.set(Setting::RedoLog(false)).unwrap();
        }
        let (table, mut session) = (engine.open_table("e/t").unwrap(), engine.session());
        session.insert(&table, b"acknowledged", b"x").unwrap();
        session.commit().unwrap();
        drop((session, table));
        engine.close(CloseMode::Purged).unwrap();
        assert!(warnings.lock().unwrap().iter().any(|w| w.contains("has not come to its end")), "{warnings:?}");
        drop(engine);
        let engine = open_sim(&io.crash(5), sim_config()).unwrap();
        let rows = rows(&engine, "e/t");
        assert!(rows.iter().any(|(key, _)| key == b"acknowledged"), "unlogged {unlogged}: {rows:?}");
    }
}
