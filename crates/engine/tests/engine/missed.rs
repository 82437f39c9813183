//! Files that were away while recovery needed them, and come back too old; pages that could not be brought back.

use super::*;

const AWAY: &str = "/data/#myriad/away";

fn path_of(engine: &Arc<Engine>, database: &str) -> String {
    let spaces = engine.spaces().unwrap();
    format!("/data/{}", spaces.iter().find(|s| s.database == database).unwrap().path)
}

/// Writes to `e` until the log has no room for what `d` waits for.
fn fill_log(engine: &Arc<Engine>, told: &Told) {
    let table = engine.open_table("e/t").unwrap();
    for i in 0..200u32 {
        let mut session = engine.session();
        for j in 0..20u32 {
            session.update(&table, &j.to_be_bytes(), &[i as u8; 2000]).unwrap();
        }
        session.commit().unwrap();
        if told.lock().unwrap().iter().any(|t| t.contains("too old")) {
            return;
        }
    }
    panic!("never given up: {:?}", told.lock().unwrap());
}

fn insert(engine: &Arc<Engine>, table: &str, keys: std::ops::Range<u32>) -> Result<()> {
    let (table, mut session) = (engine.open_table(table)?, engine.session());
    keys.into_iter().try_for_each(|i| session.insert(&table, &i.to_be_bytes(), b"later"))?;
    session.commit()
}

fn find(engine: &Arc<Engine>, table: &str) -> Result<Option<Vec<u8>>> {
    engine.session().find(&engine.open_table(table)?, &1_000_000u32.to_be_bytes())
}

/// A crash; rows of `d/t` and of `g/guest`, which lives in the same file, are in the log alone, as is an unfinished
/// transaction.
fn crashed(seed: u64) -> (SimIo, String) {
    let io = SimIo::new(seed);
    let engine = open_sim(&io, sim_config()).unwrap();
    for name in ["d/t", "d/guest", "e/t"] {
        engine.create_table(name, &spec()).unwrap();
        fill(&engine, name, 2000);
    }
    engine.rename_table("d/guest", "g/guest").unwrap();
    engine.checkpoint_now().unwrap();
    for name in ["d/t", "g/guest", "e/t"] {
        insert(&engine, name, 1_000_000..1_000_100).unwrap();
    }
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    session.insert(&table, b"uncommitted", b"x").unwrap();
    engine.flush_log().unwrap();
    let (path, io) = (path_of(&engine, "d"), io.crash(seed));
    std::mem::forget((session, engine));
    (io, path)
}

fn is_refused<T: std::fmt::Debug>(result: Result<T>) {
    match result {
        Err(Error::TablespaceUnavailable { reason, .. }) => assert!(reason.contains("missed changes"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_comes_back_too_old_is_refused_until_it_is_dropped() {
    for mode in [CloseMode::Clean, CloseMode::Purged, CloseMode::LogOnly] {
        let (io, path) = crashed(51);
        io.rename(Path::new(&path), Path::new(AWAY)).unwrap();
        let (config, errors) = told(Level::Error);
        let engine = open_sim(&io, config).unwrap();
        settle(&engine);
        fill_log(&engine, &errors);
        engine.checkpoint_now().unwrap();
        engine.close(mode).unwrap();
        drop(engine);
        io.rename(Path::new(AWAY), Path::new(&path)).unwrap();
        for _ in 0..2 {
            let (config, warnings) = told(Level::Warning);
            let engine = open_sim(&io, config).unwrap();
            assert!(warnings.lock().unwrap()[0].contains("missed changes"));
            is_refused(find(&engine, "d/t"));
            is_refused(find(&engine, "g/guest"));
            is_refused(insert(&engine, "d/t", 5000..5001));
            is_refused(engine.create_table("d/new", &spec()));
            assert!(find(&engine, "e/t").unwrap().is_some());
            insert(&engine, "e/t", 5000..5001).ok();
            settle(&engine);
            engine.close(mode).unwrap();
        }
        let engine = open_sim(&io, sim_config()).unwrap();
        engine.drop_table("d/t").unwrap();
        is_refused(find(&engine, "g/guest"));
        assert_eq!(engine.drop_database("d").unwrap(), 0);
        is_refused(find(&engine, "g/guest"));
        engine.create_table("d/t", &spec()).unwrap();
        fill(&engine, "d/t", 20);
        engine.drop_table("g/guest").unwrap();
        settle(&engine);
        assert!(!io.exists(Path::new(&path)).unwrap() && engine.transactions().iter().all(|t| !t.recovered));
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let (config, warnings) = told(Level::Warning);
        let engine = open_sim(&io.crash(1), config).unwrap();
        assert_eq!((rows(&engine, "d/t").len(), warnings.lock().unwrap().len()), (20, 0));
    }
}

/// Whatever the server does meanwhile, as long as the log has room.
#[test]
fn a_file_that_comes_back_in_time_misses_nothing() {
    let (mut io, path) = crashed(52);
    io.rename(Path::new(&path), Path::new(AWAY)).unwrap();
    for mode in [Some(CloseMode::Clean), Some(CloseMode::Purged), None, Some(CloseMode::LogOnly)] {
        let (config, warnings) = told(Level::Warning);
        let engine = open_sim(&io, config).unwrap();
        settle(&engine);
        assert!(matches!(find(&engine, "d/t"), Err(Error::TablespaceUnavailable { .. })));
        let waits = |w: &&String| w.contains("waits for the file");
        assert_eq!(warnings.lock().unwrap().iter().filter(waits).count(), 1, "{:?}", warnings.lock().unwrap());
        match mode {
            Some(mode) => engine.close(mode).unwrap(),
            None => {
                engine.flush_log().unwrap();
                io = io.crash(5);
            }
        }
    }
    io.rename(Path::new(AWAY), Path::new(&path)).unwrap();
    let engine = open_sim(&io, sim_config()).unwrap();
    settle(&engine);
    assert_eq!((rows(&engine, "d/t").len(), rows(&engine, "g/guest").len()), (2100, 2100));
}

#[test]
fn a_backup_refuses_the_same_file() {
    let (io, path) = crashed(53);
    io.rename(Path::new(&path), Path::new(AWAY)).unwrap();
    let (listening, errors) = told(Level::Error);
    let engine = open_sim(&io, listening).unwrap();
    fill_log(&engine, &errors);
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    io.rename(Path::new(AWAY), Path::new(&path)).unwrap();
    let (listening, warnings) = told(Level::Warning);
    let engine = open_sim(&io, listening).unwrap();
    insert(&engine, "e/t", 5000..5100).unwrap();
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    while backup.copy_some().unwrap().is_some() {}
    backup.finish(&mut |_| true).unwrap();
    assert!(warnings.lock().unwrap().iter().any(|w| w.contains("copied as it is")), "{:?}", warnings.lock().unwrap());
    let config = EngineConfig { background_threads: false, ..config("/copy") };
    let copy = Engine::open_with(config, Some(Arc::new(io.clone()))).unwrap();
    is_refused(find(&copy, "d/t"));
    assert_eq!(rows(&copy, "e/t").len(), 2200);
}

/// A page that redo reads wrong; later it reads well.
#[test]
fn a_page_that_was_lost_stays_an_error_and_its_table_can_be_dropped() {
    use myriad_io::{CallKind, Fault};
    let (io, path) = crashed(54);
    let (config, errors) = told(Level::Error);
    // All but the header.
    io.inject(CallKind::Read, &path, 1, Fault::FlipBit, true);
    let engine = open_sim(&io, config).unwrap();
    io.clear_faults();
    assert!(
        errors.lock().unwrap().iter().any(|e| e.contains("the page cannot be used")),
        "{:?}",
        errors.lock().unwrap()
    );
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    let engine = open_sim(&io, sim_config()).unwrap();
    match find(&engine, "d/t") {
        Err(Error::CorruptPage { reason, .. }) => assert!(reason.contains("are lost"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(rows(&engine, "e/t").len(), 2100);
    engine.drop_table("d/t").unwrap();
    engine.drop_table("g/guest").unwrap();
    engine.drop_database("d").unwrap();
    settle(&engine);
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 20);
    assert_eq!(rows(&engine, "d/t").len(), 20);
}
