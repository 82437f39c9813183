//! The engine end to end, on real files and on the simulated disk.

mod backup;
mod clones;
mod copies;
mod damaged_catalog;
mod damaged_rows;
mod damaged_undo;
mod estimates;
mod full_log;
mod handles;
mod indexes;
mod losers;
mod mismatch;
mod missed;
mod online;
mod programs;
mod space;
mod statements;
mod unused;

use myriad::*;
use myriad_base::clock::ManualClock;
use myriad_base::{PageId, PageNo, SpaceId};
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ONE_INDEX: &[IndexSpec] = &[IndexSpec::UNIQUE];

fn spec() -> TableSpec<'static> {
    TableSpec { indexes: ONE_INDEX, ..Default::default() }
}

fn config(dir: impl AsRef<Path>) -> EngineConfig {
    EngineConfig {
        buffer_pool_bytes: 4 << 20,
        log_capacity_bytes: 4 << 20,
        log_buffer_bytes: 1 << 20,
        seed: Some(1),
        ..EngineConfig::new(dir.as_ref())
    }
}

fn sim_config() -> EngineConfig {
    EngineConfig { background_threads: false, ..config("/data") }
}

fn rows(engine: &Arc<Engine>, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = engine.open_table(table).unwrap();
    let mut session = engine.session();
    let rows = session.rows(&table, 0).unwrap().collect::<Result<_>>().unwrap();
    session.commit().unwrap();
    rows
}

fn fill(engine: &Arc<Engine>, table: &str, n: u32) {
    let table = engine.open_table(table).unwrap();
    let mut session = engine.session();
    for i in 0..n {
        session.insert(&table, &i.to_be_bytes(), format!("value {i}").as_bytes()).unwrap();
    }
    session.commit().unwrap();
}

/// Opens on a simulated disk; the data directory itself is the server's to create.
fn open_sim(io: &SimIo, config: EngineConfig) -> Result<Arc<Engine>> {
    io.create_dir(Path::new("/data")).unwrap();
    Engine::open_with(config, Some(Arc::new(io.clone())))
}

type Told = Arc<Mutex<Vec<String>>>;

/// A configuration whose reports of this level are kept. Its clock stands still: a busy machine is told of as a slow device.
fn told(level: Level) -> (EngineConfig, Told) {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let report: Reporter = Arc::new(move |l, text: &str| {
        if l == level {
            heard.lock().unwrap().push(text.into());
        }
    });
    (EngineConfig { report, clock: Arc::new(ManualClock::default()), ..sim_config() }, told)
}

/// Background work, until all is done or what cannot be done was tried a few times.
fn settle(engine: &Arc<Engine>) {
    for _ in 0..200 {
        match engine.background_step() {
            Ok(true) | Err(Error::TablespaceUnavailable { .. }) => {}
            Ok(false) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn rows_survive_clean_close_crash_and_reopen() {
    let mut io = SimIo::new(1);
    for round in 0..3u64 {
        let engine = open_sim(&io, sim_config()).unwrap();
        let table = format!("d/t{round}");
        engine.create_table(&table, &spec()).unwrap();
        fill(&engine, &table, 500);
        // What was not committed is gone after the crash.
        let open = engine.open_table(&table).unwrap();
        let mut session = engine.session();
        session.insert(&open, b"uncommitted", b"x").unwrap();
        session.remove(&open, &7u32.to_be_bytes()).unwrap();
        engine.flush_log().unwrap();
        io = io.crash(round);
        let engine = open_sim(&io, sim_config()).unwrap();
        assert_eq!(rows(&engine, &table).len(), 500, "before the rollback");
        while engine.background_step().unwrap() {}
        assert_eq!(rows(&engine, &table).len(), 500, "after the rollback");
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let engine = open_sim(&io, sim_config()).unwrap();
        for r in 0..=round {
            assert_eq!(rows(&engine, &format!("d/t{r}")).len(), 500);
        }
        engine.close(CloseMode::Purged).unwrap();
    }
}

/// The folder's own name is made durable before anything in it is told to be.
#[test]
fn the_first_directory_to_be_synced_is_the_one_with_the_folder() {
    let io = SimIo::new(1);
    io.inject(CallKind::SyncDir, "/data", 0, Fault::Eio, false);
    match open_sim(&io, sim_config()) {
        Err(Error::Io { path, .. }) => assert_eq!(path, "/data"),
        other => panic!("{:?}", other.err()),
    }
    open_sim(&io, sim_config()).unwrap();
}

/// A process that was killed may not be gone yet.
#[test]
fn an_open_waits_for_the_process_that_has_the_directory() {
    let io = SimIo::new(1);
    let told = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&told);
    let report: Reporter = Arc::new(move |_, text: &str| heard.lock().unwrap().push_str(text));
    let waiting = |wait| EngineConfig { lock_wait: wait, report: Arc::clone(&report), ..sim_config() };
    let engine = open_sim(&io, sim_config()).unwrap();
    let refused = open_sim(&io, waiting(Duration::from_millis(150)));
    assert!(matches!(refused, Err(Error::DirectoryLocked { .. })));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| open_sim(&io, waiting(Duration::from_secs(300))));
        while !told.lock().unwrap().contains("waiting up to 300 s") {
            assert!(!other.is_finished());
            std::thread::sleep(Duration::from_millis(1));
        }
        // Longer than it rests between two tries.
        std::thread::sleep(Duration::from_millis(200));
        assert!(!other.is_finished());
        drop(engine);
        other.join().unwrap().unwrap();
    });
}

#[test]
fn on_real_files_with_threads() {
    let dir = tempfile::tempdir().unwrap();
    {
        let engine = Engine::open_with(config(dir.path()), None).unwrap();
        engine.start_background();
        engine.create_table("d/t", &spec()).unwrap();
        fill(&engine, "d/t", 20_000);
        assert!(matches!(Engine::open_with(config(dir.path()), None), Err(Error::DirectoryLocked { .. })));
        engine.close(CloseMode::LogOnly).unwrap();
    }
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.start_background();
    assert_eq!(rows(&engine, "d/t").len(), 20_000);
    let table = engine.open_table("d/t").unwrap();
    let stats = table.info().unwrap();
    assert!((10_000..40_000).contains(&stats.rows), "{stats:?}");
    let n = table.records_in_range(0, Some(&100u32.to_be_bytes()), Bound::Included(&199u32.to_be_bytes())).unwrap();
    assert!((50..200).contains(&n), "{n}");
    let few = |high| table.records_in_range(0, Some(&100u32.to_be_bytes()), high).unwrap();
    assert_eq!((few(Bound::Included(&103u32.to_be_bytes())), few(Bound::Excluded(&103u32.to_be_bytes()))), (4, 3));
    let mut session = engine.session();
    assert_eq!(session.count_rows(&table).unwrap(), 20_000);
    session.commit().unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
    let mut last = Vec::new();
    let mut sampled = Vec::new();
    table
        .sample_index(0, 5, &mut |key, kind, level| {
            assert!(kind == Sampled::First || last.as_slice() < key);
            last = key.to_vec();
            sampled.push((kind, level));
            true
        })
        .unwrap();
    let count = |kind, level| sampled.iter().filter(|&&found| found == (kind, level)).count();
    assert_eq!((count(Sampled::First, 0), count(Sampled::Fence, 0)), (5, 4));
    assert_eq!(count(Sampled::First, 1), 1);
    assert!(count(Sampled::Fence, 1) > 10);
    let text = engine.status_text();
    for section in ["ENGINE", "LOG", "BUFFER POOL", "TRANSACTIONS", "LOCKS", "PURGE"] {
        assert!(text.contains(section), "{section} is missing in\n{text}");
    }
    let mut names = 0;
    engine.metrics(&mut |_, _, _| names += 1);
    assert!(names > 20);
    assert_eq!(engine.spaces().unwrap().len(), 3);
    drop((table, session));
    engine.close(CloseMode::Purged).unwrap();
}

#[test]
fn definitions_change_atomically_and_survive() {
    let io = SimIo::new(2);
    let engine = open_sim(&io, sim_config()).unwrap();
    let frm: Vec<u8> = (0..500u32).map(|i| i as u8).collect();
    let mut other = frm.clone();
    other[70] ^= 0xff;
    engine.create_table("a/t", &TableSpec { frm: &frm, ..spec() }).unwrap();
    engine.create_table("a/u", &TableSpec { frm: &other, ..spec() }).unwrap();
    assert!(matches!(engine.create_table("a/t", &spec()), Err(Error::TableExists { .. })));
    assert_eq!(engine.frm("a/t").unwrap(), frm);
    assert_eq!(engine.frm("a/u").unwrap(), other);
    fill(&engine, "a/t", 100);

    let open = engine.open_table("a/t").unwrap();
    engine.rename_table("a/t", "b/t").unwrap();
    assert!(!open.is_current());
    assert!(matches!(engine.rename_table("b/t", "a/u"), Err(Error::TableExists { .. })));
    assert!(matches!(engine.rename_table("a/t", "a/x"), Err(Error::NoSuchTable { .. })));
    assert_eq!(rows(&engine, "b/t").len(), 100);

    // The renamed table lives in the file of its old database and survives its end.
    assert_eq!(engine.drop_database("a").unwrap(), 1);
    while engine.background_step().unwrap() {}
    assert_eq!(rows(&engine, "b/t").len(), 100);
    assert!(!engine.table_exists("a/u").unwrap());
    engine.create_table("a/again", &spec()).unwrap();
    fill(&engine, "a/again", 10);

    let io = io.crash(3);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(rows(&engine, "b/t").len(), 100);
    assert_eq!(rows(&engine, "a/again").len(), 10);
    assert_eq!(engine.frm("b/t").unwrap(), frm);
    engine.truncate_table("b/t", 1).unwrap();
    assert_eq!(rows(&engine, "b/t").len(), 0);
    fill(&engine, "b/t", 5);
    engine.redefine("b/t", &NewDefinition { frm: &other, ..Default::default() }).unwrap();
    assert_eq!(engine.frm("b/t").unwrap(), other);
    assert_eq!(engine.open_table("b/t").unwrap().row_layouts(), b"");
    let with_layouts = NewDefinition { frm: &other, row_layouts: Some(b"layouts"), ..Default::default() };
    engine.redefine("b/t", &with_layouts).unwrap();
    engine.redefine("b/t", &NewDefinition { frm: &other, ..Default::default() }).unwrap();
    let io = io.crash(4);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(engine.open_table("b/t").unwrap().row_layouts(), b"layouts");
    assert_eq!(rows(&engine, "b/t").len(), 5);
    let mut names = Vec::new();
    engine
        .list_tables("b", &mut |name| {
            names.push(name.to_string());
            true
        })
        .unwrap();
    assert_eq!(names, ["t"]);
    engine.drop_table("b/t").unwrap();
    assert!(matches!(engine.drop_table("b/t"), Err(Error::NoSuchTable { .. })));
    while engine.background_step().unwrap() {}
    // The last guest is gone, and with it the file of the database dropped before.
    assert_eq!(engine.spaces().unwrap().iter().filter(|s| s.space_id >= 16).count(), 1);
}

#[test]
fn placement_decides_the_file() {
    let io = SimIo::new(3);
    let engine = open_sim(&io, sim_config()).unwrap();
    let user_files = |engine: &Engine| engine.spaces().unwrap().iter().filter(|s| s.space_id >= 16).count();
    engine.create_table("a/t1", &spec()).unwrap();
    engine.create_table("a/t2", &spec()).unwrap();
    assert_eq!(user_files(&engine), 1);
    let ids =
        |first, most| -> Vec<u32> { engine.spaces_from(first, most).unwrap().iter().map(|s| s.space_id).collect() };
    assert_eq!([ids(0, 1), ids(0, 2), ids(0, 9), ids(1, 9)], [vec![0], vec![0, 1], vec![0, 1, 16], vec![1, 16]]);
    assert_eq!([ids(1, 1), ids(2, 1), ids(16, 1), ids(17, 1)], [vec![1], vec![16], vec![16], vec![]]);
    engine.set(Setting::Placement(Placement::Server)).unwrap();
    engine.create_table("b/t", &spec()).unwrap();
    engine.create_table("c/t", &spec()).unwrap();
    assert_eq!(user_files(&engine), 2);
    engine.create_table("c/own", &TableSpec { placement: Some(Placement::Table), ..spec() }).unwrap();
    assert_eq!(user_files(&engine), 3);
    fill(&engine, "c/own", 10);
    engine.drop_table("c/own").unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(user_files(&engine), 2);
    engine.drop_database("b").unwrap();
    while engine.background_step().unwrap() {}
    assert!(engine.table_exists("c/t").unwrap());
    engine.drop_database("a").unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(user_files(&engine), 1);
    let shared = |engine: &Engine| {
        let space = engine.spaces().unwrap().into_iter().find(|s| s.database == "*").unwrap();
        (space.open, engine.space_bytes(space.space_id, &space.path))
    };
    let open = shared(&engine);
    assert!(open.0 && open.1 > 0);
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(shared(&engine), (false, open.1), "a size is told without opening the tablespace");
    assert_eq!(engine.space_bytes(4711, "#myriad/gone.4711.myr"), 0);
}

#[test]
fn temporary_tables_go_at_the_next_start() {
    let io = SimIo::new(4);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("#tmp/sql-1", &TableSpec { temporary: true, ..spec() }).unwrap();
    fill(&engine, "#tmp/sql-1", 10);
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert!(!engine.table_exists("#tmp/sql-1").unwrap());
    while engine.background_step().unwrap() {}
    assert_eq!(engine.spaces().unwrap().len(), 2);
}

#[test]
fn auto_increment_survives_a_crash() {
    let io = SimIo::new(5);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &TableSpec { auto_increment_next: Some(100), ..spec() }).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(1));
    assert_eq!(session.auto_increment_reserve(&table, 1, 1, 3, u64::MAX).unwrap(), 100);
    session.auto_increment_at_least(&table, 501);
    session.insert(&table, b"k", b"v").unwrap();
    session.commit().unwrap();
    let io = io.crash(6);
    let engine = open_sim(&io, sim_config()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    assert_eq!(table.info().unwrap().auto_increment_next, 501);
    table.auto_increment_set(7).unwrap();
    engine.truncate_table("d/t", 3).unwrap();
    let table = engine.open_table("d/t").unwrap();
    assert_eq!(table.info().unwrap().auto_increment_next, 3);
}

#[test]
fn hidden_row_ids_go_on_after_reopen() {
    let io = SimIo::new(6);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &TableSpec { hidden_row_id: true, ..spec() }).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    for _ in 0..300 {
        let id = table.next_row_id().unwrap();
        session.insert(&table, &id.to_be_bytes(), &[7; 100]).unwrap();
    }
    session.commit().unwrap();
    engine.create_table("d/next", &spec()).unwrap();
    fill(&engine, "d/next", 3);
    drop((session, table));
    let table = engine.open_table("d/t").unwrap();
    assert_eq!(table.next_row_id().unwrap(), 301);
}

#[test]
fn rolled_back_prepared_transactions_do_not_come_back() {
    let io = SimIo::new(9);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 10);
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.insert(&table, b"one", b"v").unwrap();
    session.prepare(b"x1").unwrap();
    session.detach_prepared();
    session.insert(&table, b"two", b"v").unwrap();
    session.prepare(b"x2").unwrap();
    session.rollback().unwrap();
    let after_own = open_sim(&io.crash(1), sim_config()).unwrap();
    assert_eq!(after_own.prepared(), [b"x1"], "x2 was rolled back by its own session");
    assert!(engine.rollback_by_xid(b"x1").unwrap());
    let after_both = open_sim(&io.crash(2), sim_config()).unwrap();
    assert_eq!(after_both.prepared(), Vec::<Vec<u8>>::new());
    while after_both.background_step().unwrap() {}
    assert_eq!(rows(&after_both, "d/t").len(), 10);
}

#[test]
fn prepared_transactions_survive() {
    let io = SimIo::new(8);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 10);
    let table = engine.open_table("d/t").unwrap();
    for (key, xid) in [(b"one", b"x1"), (b"two", b"x2")] {
        let mut session = engine.session();
        session.insert(&table, key, b"v").unwrap();
        session.prepare(xid).unwrap();
        session.detach_prepared();
    }
    let io = io.crash(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    let mut xids = engine.prepared();
    xids.sort();
    assert_eq!(xids, [b"x1".to_vec(), b"x2".to_vec()]);
    assert_eq!(rows(&engine, "d/t").len(), 10);
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    let locked = session.get(&table, 0, b"one", false, Lock::Exclusive, Wait::NoWait);
    assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{locked:?}");
    session.rollback().unwrap();
    assert!(engine.commit_by_xid(b"x1").unwrap());
    assert!(engine.rollback_by_xid(b"x2").unwrap());
    assert!(!engine.commit_by_xid(b"x3").unwrap());
    assert_eq!(rows(&engine, "d/t").len(), 11);
}

#[test]
fn foreign_or_damaged_directories_are_refused() {
    let io = SimIo::new(9);
    drop(open_sim(&io, sim_config()).unwrap());
    let path = Path::new("/data/#myriad/FORMAT");
    let file = io.open(path, myriad_io::OpenMode::WRITE).unwrap();
    file.write_at(b"myriad 9", 0).unwrap();
    assert!(matches!(open_sim(&io, sim_config()), Err(Error::Format { .. })));
    io.remove_file(path).unwrap();
    assert!(matches!(open_sim(&io, sim_config()), Err(Error::Format { .. })));
}

#[test]
fn damage_stays_where_it_is() {
    let io = SimIo::new(10);
    let engine = open_sim(&io, sim_config()).unwrap();
    for db in ["a", "b", "c"] {
        engine.create_table(&format!("{db}/t"), &spec()).unwrap();
        fill(&engine, &format!("{db}/t"), 2000);
    }
    let paths: Vec<String> = engine.spaces().unwrap().into_iter().map(|s| format!("/data/{}", s.path)).collect();
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    // A flipped bit in a page of a's file, b's file missing.
    io.flip_bit(Path::new(&paths[2]), 4 * 16384 + 5000, 3).unwrap();
    io.remove_file(Path::new(&paths[3])).unwrap();
    let engine = open_sim(&io, sim_config()).unwrap();
    let scan = |name: &str| {
        let table = engine.open_table(name)?;
        let mut session = engine.session();
        let rows = session.rows(&table, 0)?;
        rows.collect::<Result<Vec<_>>>().map(|rows| rows.len())
    };
    match scan("a/t") {
        Err(Error::CorruptPage { page, .. }) => assert_eq!((page.space.0, page.page.0), (16, 4)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(scan("b/t"), Err(Error::TablespaceUnavailable { .. })));
    assert_eq!(scan("c/t").unwrap(), 2000);
    // Both can be dropped.
    assert_eq!(engine.drop_database("b").unwrap(), 1);
    assert_eq!(engine.drop_database("a").unwrap(), 1);
    while engine.background_step().unwrap() {}
    engine.close(CloseMode::Clean).unwrap();
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let io = SimIo::new(11);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    io.set_capacity(Some(12 << 20));
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    let mut inserted = 0u32;
    let full = loop {
        match session.insert(&table, &inserted.to_be_bytes(), &[1; 1000]) {
            Ok(()) => inserted += 1,
            Err(e) => break e,
        }
        if inserted.is_multiple_of(10) {
            session.commit().unwrap();
        }
        assert!(inserted < 100_000);
    };
    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
    session.rollback().unwrap();
    drop(session);
    assert_eq!(rows(&engine, "d/t").len() as u32, inserted / 10 * 10);
    io.set_capacity(None);
    let mut session = engine.session();
    session.insert(&table, b"more", b"x").unwrap();
    session.commit().unwrap();
    let io = io.crash(5);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(rows(&engine, "d/t").len() as u32, inserted / 10 * 10 + 1);
}

#[test]
fn a_pool_larger_than_the_machine_s_memory_is_told() {
    for more in [0, 1 << 26] {
        let (config, warnings) = told(Level::Warning);
        let buffer_pool_bytes = (myriad_io::memory_bytes() & !0xffff) + more;
        let config = EngineConfig { buffer_pool_bytes, page_size: 65536, ..config };
        let engine = open_sim(&SimIo::new(1), config).unwrap();
        let text = warnings.lock().unwrap().concat();
        assert_eq!(text.contains("more than the machine's memory"), more > 0, "{text}");
        engine.close(CloseMode::Clean).unwrap();
    }
}

#[test]
fn a_deadlock_ends_at_once_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 2);
    let table = engine.open_table("d/t").unwrap();
    table.set_index_names(&["PRIMARY"]);
    let barrier = std::sync::Barrier::new(2);
    let (one, two) = (0u32.to_be_bytes(), 1u32.to_be_bytes());
    let client = |first: &[u8], second: &[u8]| {
        let mut session = engine.session();
        session.update(&table, first, b"x").unwrap();
        barrier.wait();
        let result = session.update(&table, second, b"y");
        match result {
            Ok(_) => session.commit().unwrap(),
            Err(_) => session.rollback().unwrap(),
        }
        result
    };
    let results = std::thread::scope(|s| {
        let other = s.spawn(|| client(&two, &one));
        [client(&one, &two), other.join().unwrap()]
    });
    let victims = results.iter().filter(|r| matches!(r, Err(Error::Deadlock))).count();
    assert_eq!(victims, 1, "{results:?}");
    let text = engine.status_text();
    assert!(text.contains("Latest deadlock") && text.contains("on table d/t index PRIMARY key"), "{text}");
}

/// Each of two databases has tables in the other's tablespace; both are dropped at once.
#[test]
fn dropped_databases_with_each_others_guests_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    for _ in 0..5 {
        for (name, guest) in [("a/x", "b/guest"), ("b/y", "a/guest")] {
            engine.create_table(name, &spec()).unwrap();
            engine.rename_table(name, guest).unwrap();
            for i in 0..60 {
                engine.create_table(&format!("{name}{i}"), &spec()).unwrap();
            }
        }
        let start = std::sync::Barrier::new(2);
        let drop = |db: &str| {
            start.wait();
            engine.drop_database(db)
        };
        std::thread::scope(|s| {
            let other = s.spawn(|| drop("a"));
            assert_eq!(drop("b").unwrap(), 61);
            assert_eq!(other.join().unwrap().unwrap(), 61);
        });
    }
    assert!(!engine.status_text().contains("Latest deadlock"));
}

#[test]
fn locks_tell_the_name_that_their_index_was_given_last() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    let indexes = [IndexSpec::UNIQUE, IndexSpec::PLAIN];
    engine.create_table("d/t", &TableSpec { indexes: &indexes, ..Default::default() }).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    let options = CursorOptions { lock: Lock::Exclusive, ..Default::default() };
    let mut cursor = Cursor::open(&mut session, &table, 1, options).unwrap();
    assert!(cursor.seek(&mut session, Seek::First, b"").unwrap().is_none());
    let shown = || engine.locks().into_iter().map(|l| (l.table, l.index_no, l.index_name)).collect::<Vec<_>>();
    let named = |name: Option<&str>| vec![("d/t".to_string(), 1, name.map(String::from))];
    assert_eq!(shown(), named(None));
    table.set_index_names(&["PRIMARY", "k"]);
    assert_eq!(shown(), named(Some("k")));
    let again = engine.open_table("d/t").unwrap();
    again.set_index_names(&["PRIMARY", "renamed"]);
    drop(again);
    assert_eq!(shown(), named(Some("renamed")));
    // Who opens the table with its new definition says what they are called there.
    engine.redefine("d/t", &NewDefinition { frm: b"new", ..Default::default() }).unwrap();
    let again = engine.open_table("d/t").unwrap();
    assert_eq!(shown(), named(None));
    // The names outlast the table's users, until there is another definition.
    again.set_index_names(&["PRIMARY", "new"]);
    drop((again, cursor, table));
    assert_eq!(shown(), named(Some("new")));
    engine.redefine("d/t", &NewDefinition { frm: b"newer", ..Default::default() }).unwrap();
    assert_eq!(shown(), vec![(String::new(), 0, None)]);
}

#[test]
fn a_kill_ends_a_lock_wait() {
    ends_a_lock_wait(|engine, kill| {
        let locks = engine.locks();
        assert!(locks.iter().any(|l| !l.granted && l.table == "d/t" && l.waiting_for_trx_id != 0), "{locks:?}");
        kill.kill();
    });
}

#[test]
fn a_close_ends_a_lock_wait() {
    ends_a_lock_wait(|engine, _| engine.close(CloseMode::Clean).unwrap());
}

fn ends_a_lock_wait(end: impl FnOnce(&Engine, KillHandle)) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 1);
    let table = engine.open_table("d/t").unwrap();
    let mut holder = engine.session();
    holder.update(&table, &0u32.to_be_bytes(), b"x").unwrap();
    std::thread::scope(|s| {
        let mut waiter = engine.session();
        let kill = waiter.kill_handle();
        let (engine, table) = (&engine, &table);
        s.spawn(move || {
            let result = waiter.update(table, &0u32.to_be_bytes(), b"y");
            assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        });
        while !engine.transactions().iter().any(|t| t.state == "LOCK WAIT") {
            std::thread::yield_now();
        }
        end(engine, kill);
    });
}

/// A repeatable read that changes a row somebody else has changed meanwhile sees its own version in every index.
#[test]
fn an_overtaken_row_shows_once_in_a_secondary_index() {
    let io = SimIo::new(12);
    let engine = open_sim(&io, sim_config()).unwrap();
    let indexes = [IndexSpec::UNIQUE, IndexSpec::PLAIN];
    engine.create_table("d/t", &TableSpec { indexes: &indexes, ..Default::default() }).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let begin = |s: &mut Session| s.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    fn op<'a>(kind: OpKind, index_no: usize, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        Op { kind, index_no, key, unique_len: 0, value, head_len: 0 }
    }
    let recolour = |s: &mut Session, old: &[u8], new: &[u8]| {
        begin(s);
        let ops = [op(OpKind::Update, 0, b"1", new), op(OpKind::Delete, 1, old, b""), op(OpKind::Insert, 1, new, b"")];
        s.apply(&table, ops.into_iter(), ApplyMode::default()).unwrap();
    };
    let colours = |s: &mut Session| {
        begin(s);
        let mut cursor = Cursor::open(s, &table, 1, CursorOptions::default()).unwrap();
        let mut found = Vec::new();
        let mut row = cursor.seek(s, Seek::First, b"").unwrap();
        while let Some(r) = row {
            found.push(String::from_utf8(r.key.to_vec()).unwrap());
            row = cursor.next(s).unwrap();
        }
        found
    };
    let (mut one, mut two) = (engine.session(), engine.session());
    begin(&mut one);
    let ops = [op(OpKind::Insert, 0, b"1", b"red1"), op(OpKind::Insert, 1, b"red1", b"")];
    one.apply(&table, ops.into_iter(), ApplyMode::default()).unwrap();
    one.commit().unwrap();

    assert_eq!(colours(&mut one), ["red1"]);
    recolour(&mut two, b"red1", b"blue1");
    two.commit().unwrap();
    assert_eq!(colours(&mut one), ["red1"]);
    let savepoint = one.savepoint().unwrap();
    recolour(&mut one, b"blue1", b"green1");
    assert_eq!(colours(&mut one), ["green1"]);
    one.rollback_to(savepoint).unwrap();
    assert_eq!(colours(&mut one), ["red1"]);
    recolour(&mut one, b"blue1", b"white1");
    assert_eq!(colours(&mut one), ["white1"]);
    one.commit().unwrap();
    assert_eq!(colours(&mut two), ["white1"]);
}

#[test]
fn a_snapshot_does_not_read_what_was_made_after_it() {
    let io = SimIo::new(13);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/old", &spec()).unwrap();
    fill(&engine, "d/old", 3);
    let mut session = engine.session();
    let old = engine.open_table("d/old").unwrap();
    assert!(session.find(&old, &0u32.to_be_bytes()).unwrap().is_some());
    engine.create_table("d/new", &spec()).unwrap();
    fill(&engine, "d/new", 3);
    let new = engine.open_table("d/new").unwrap();
    assert!(matches!(session.find(&new, &0u32.to_be_bytes()), Err(Error::DefinitionChanged { .. })));
    assert!(matches!(session.count_rows(&new), Err(Error::DefinitionChanged { .. })));
    assert!(session.find(&old, &0u32.to_be_bytes()).unwrap().is_some());
    session.commit().unwrap();
    assert!(session.find(&new, &0u32.to_be_bytes()).unwrap().is_some());
    // A plain rename changes nothing of this.
    engine.rename_table("d/old", "d/renamed").unwrap();
    let renamed = engine.open_table("d/renamed").unwrap();
    assert!(session.find(&renamed, &0u32.to_be_bytes()).unwrap().is_some());
    engine.truncate_table("d/new", 1).unwrap();
    let new = engine.open_table("d/new").unwrap();
    assert!(matches!(session.find(&new, &0u32.to_be_bytes()), Err(Error::DefinitionChanged { .. })));
    // Of an index that was added only this one.
    let dir = tempfile::tempdir().unwrap();
    indexes::build_index(&engine, "d/renamed", 1 << 20, dir.path(), false).unwrap();
    let indexed = engine.open_table("d/renamed").unwrap();
    assert!(session.find(&indexed, &0u32.to_be_bytes()).unwrap().is_some());
    session.check_snapshot(&indexed, 0).unwrap();
    let refused = session.get(&indexed, 1, b"", true, Lock::None, Wait::Wait).map(|row| row.is_some());
    assert!(matches!(refused, Err(Error::DefinitionChanged { .. })));
    assert!(matches!(session.check_snapshot(&indexed, 1), Err(Error::DefinitionChanged { .. })));
    session.commit().unwrap();
    session.check_snapshot(&indexed, 1).unwrap();
}

/// Where the file system has `O_DIRECT`, data files are opened with it; the log is not.
#[cfg(target_os = "linux")]
#[test]
fn data_files_pass_the_systems_cache_by() {
    const O_DIRECT: u32 = 0o40_000;
    let dir = tempfile::tempdir().unwrap();
    let io = myriad_io::open_io(myriad_io::IoMethod::Threads).unwrap();
    let probe = io.open(&dir.path().join("probe"), myriad_io::OpenMode::NEW.with_direct(true)).unwrap();
    // No background threads: they open files of their own, the check of tablespaces for one.
    let engine = Engine::open_with(EngineConfig { background_threads: false, ..config(dir.path()) }, None).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 100);
    let mut seen = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(path) = std::fs::read_link(entry.path()) else { continue };
        let Ok(path) = path.strip_prefix(dir.path().canonicalize().unwrap()).map(Path::to_path_buf) else { continue };
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).unwrap();
        let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap().trim();
        let direct = u32::from_str_radix(flags, 8).unwrap() & O_DIRECT != 0;
        let data = path.extension().is_some_and(|e| e == "myr");
        if data || path.ends_with("redo.log") {
            assert_eq!(direct, data && probe.is_direct(), "{}", path.display());
            seen.push(data);
        }
    }
    assert!(seen.iter().filter(|&&data| data).count() >= 3 && seen.contains(&false), "{seen:?}");
    engine.close(CloseMode::Clean).unwrap();
}

/// What a dropped and an emptied table leave in their database's file goes back to the file system; its neighbours stay.
#[test]
fn space_of_dropped_tables_goes_back_to_the_file_system() {
    const ROWS: usize = 8_000;
    let big = |engine: &Arc<Engine>, name: &str| {
        engine.create_table(name, &spec()).unwrap();
        let table = engine.open_table(name).unwrap();
        let mut session = engine.session();
        for i in 0..ROWS as u32 {
            session.insert(&table, &i.to_be_bytes(), &[i as u8; 1000]).unwrap();
        }
        session.commit().unwrap();
    };
    let settle = |engine: &Arc<Engine>| while engine.background_step().unwrap() {};
    let dir = tempfile::tempdir().unwrap();
    let open = || Engine::open_with(EngineConfig { background_threads: false, ..config(dir.path()) }, None).unwrap();
    let used = |engine: &Arc<Engine>| {
        let path = engine.spaces().unwrap().into_iter().find(|s| s.database == "d").unwrap().path;
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(dir.path().join(path)).unwrap()) * 512
    };
    let engine = open();
    for name in ["d/a", "d/b", "d/c"] {
        big(&engine, name);
    }
    settle(&engine);
    let before = used(&engine);
    engine.drop_table("d/a").unwrap();
    engine.truncate_table("d/c", 1).unwrap();
    settle(&engine);
    let after = used(&engine);
    assert!(after + (13 << 20) <= before, "two tables with 8 MB of rows each: {before} bytes, now {after}");
    drop(engine); // As a crash: the pages are left to recovery.
    let engine = open();
    assert_eq!((rows(&engine, "d/b").len(), rows(&engine, "d/c").len()), (ROWS, 0));
    // The holes are used again, and given back when the engine is closed.
    big(&engine, "d/e");
    settle(&engine);
    assert_eq!((rows(&engine, "d/b").len(), rows(&engine, "d/e").len()), (ROWS, ROWS));
    let before = used(&engine);
    engine.drop_table("d/e").unwrap();
    engine.close(CloseMode::Purged).unwrap();
    drop(engine);
    let engine = open();
    let after = used(&engine);
    assert!(after + (6 << 20) <= before, "{before} bytes, now {after}");
    assert_eq!(rows(&engine, "d/b").len(), ROWS);
}

/// What is in overflow pages goes with the table: also old versions that purge has not come to.
#[test]
fn long_values_go_with_their_table() {
    // In the shared tree, or in one of their own.
    for promote_bytes in [1 << 30, 16 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let config = || EngineConfig { background_threads: false, promote_bytes, ..config(dir.path()) };
        // Pages in use, of all tablespaces but the engine's own; in a stopped engine.
        let pages = || {
            let found = Inspection::open(dir.path()).unwrap();
            let of = |space: SpaceId| {
                let wanted = found.pages_wanted(space).unwrap() as u32;
                (0..wanted).filter(|&no| found.is_in_use(PageId::new(space, PageNo(no))).unwrap()).count()
            };
            found.list().unwrap().iter().filter(|s| s.id >= SpaceId::FIRST_USER).map(|s| of(s.id)).sum::<usize>()
        };
        let run = |work: &dyn Fn(&Arc<Engine>)| {
            let engine = Engine::open_with(config(), None).unwrap();
            // A snapshot that keeps purge away until the index is gone.
            let mut reader = engine.session();
            if engine.table_exists("d/other").unwrap() {
                reader.find(&engine.open_table("d/other").unwrap(), b"").unwrap();
            }
            work(&engine);
            while engine.background_step().unwrap() {}
            reader.commit().unwrap();
            while engine.background_step().unwrap() {}
            drop(reader);
            engine.close(CloseMode::Clean).unwrap();
        };
        let fill = |engine: &Arc<Engine>| {
            let table = engine.open_table("d/t").unwrap();
            let mut session = engine.session();
            for (kind, nos) in [
                (OpKind::Insert, 0..40u32),
                (OpKind::Update, 0..20),
                (OpKind::Delete, 10..30),
                (OpKind::Insert, 15..20),
            ] {
                for no in nos {
                    let (key, value, head_len) =
                        (no.to_be_bytes(), vec![kind as u8; 50_000], [0, 20, 3_000][no as usize % 3]);
                    let op = Op { kind, index_no: 0, key: &key, unique_len: 4, value: &value, head_len };
                    session.apply(&table, [op].into_iter(), ApplyMode::default()).unwrap();
                }
                session.commit().unwrap();
            }
        };
        run(&|engine| {
            engine.create_table("d/other", &spec()).unwrap();
            engine.create_table("d/t", &spec()).unwrap();
        });
        let empty = pages();
        run(&|engine| {
            fill(engine);
            engine.truncate_table("d/t", 1).unwrap();
        });
        assert_eq!(pages(), empty, "after TRUNCATE; promotion at {promote_bytes}");
        run(&|engine| {
            fill(engine);
            assert_eq!(engine.metric("promotions").unwrap() > 0, promote_bytes < 1 << 30);
        });
        assert!(pages() > empty + 50);
        run(&|engine| engine.truncate_table("d/t", 1).unwrap());
        assert_eq!(pages(), empty, "after purge and TRUNCATE; promotion at {promote_bytes}");
        run(&|engine| {
            fill(engine);
            engine.drop_table("d/t").unwrap();
        });
        assert_eq!(pages(), empty, "after DROP; promotion at {promote_bytes}");
    }
}

/// A table that outgrows the shared tree, under an open cursor and an older snapshot; then a crash, a rollback across it,
/// TRUNCATE and DROP, each interrupted.
#[test]
fn a_promoted_table_is_a_table_like_any_other() {
    let config = || EngineConfig { page_size: 4096, promote_bytes: 64 << 10, ..sim_config() };
    let promotions = |engine: &Arc<Engine>| engine.metric("promotions").unwrap();
    let mut io = SimIo::new(3);
    let mut engine = open_sim(&io, config()).unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        engine.create_table(name, &spec()).unwrap();
        fill(&engine, name, 100);
    }
    let table = engine.open_table("d/b").unwrap();
    let mut reader = engine.session();
    reader.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    let options = CursorOptions::default();
    let mut cursor = Cursor::open(&mut reader, &table, 0, options).unwrap();
    assert!(cursor.seek(&mut reader, Seek::First, b"").unwrap().is_some());
    let before = promotions(&engine);
    let mut writer = engine.session();
    for i in 100..4_000u32 {
        writer.insert(&table, &i.to_be_bytes(), &[7; 60]).unwrap();
    }
    writer.commit().unwrap();
    assert!(promotions(&engine) > before, "4,000 rows are more than 64 KiB");
    let mut seen = 1;
    while cursor.next(&mut reader).unwrap().is_some() {
        seen += 1;
    }
    assert_eq!(seen, 100, "the snapshot is older than the rows");
    drop(cursor);
    reader.statement_end();
    reader.commit().unwrap();
    // Not committed: recovery rolls it back in the promoted tree.
    for i in 0..4_000u32 {
        if i % 2 == 0 {
            writer.remove(&table, &i.to_be_bytes()).unwrap();
        } else {
            writer.insert(&table, &(i + 4_000).to_be_bytes(), &[8; 60]).unwrap();
        }
    }
    engine.flush_log().unwrap();
    let crash = |io: &mut SimIo, engine: Arc<Engine>, seed: u64| {
        *io = io.crash(seed);
        drop(engine);
        open_sim(io, config()).unwrap()
    };
    drop((table, reader, writer));
    engine = crash(&mut io, engine, 1);
    while engine.background_step().unwrap() {}
    let table = engine.open_table("d/b").unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
    assert_eq!(rows(&engine, "d/b").len(), 4_000);
    let stats = table.info().unwrap();
    assert!((2_000..8_000).contains(&stats.rows), "{stats:?}");
    let n = table.records_in_range(0, Some(&1_000u32.to_be_bytes()), Bound::Included(&1_999u32.to_be_bytes())).unwrap();
    assert!((500..2_000).contains(&n), "{n}");
    drop(table);
    // The tree goes step by step; the work goes on after each crash.
    engine.truncate_table("d/b", 1).unwrap();
    let mut steps = 0;
    while engine.background_step().unwrap() {
        steps += 1;
        engine.flush_log().unwrap();
        engine = crash(&mut io, engine, steps);
        // What each start writes is no step.
        engine.checkpoint_now().unwrap();
        assert!(steps < 1_000);
    }
    assert!(steps > 1);
    assert!(rows(&engine, "d/b").is_empty());
    fill(&engine, "d/b", 3_000);
    engine.drop_table("d/b").unwrap();
    while engine.background_step().unwrap() {}
    for name in ["d/a", "d/c"] {
        assert_eq!(rows(&engine, name).len(), 100);
        engine.open_table(name).unwrap().check(&mut |finding| panic!("{finding}")).unwrap();
    }
    engine.close(CloseMode::Purged).unwrap();
}

#[test]
fn the_error_log_says_why_there_is_no_io_uring() {
    let dir = tempfile::tempdir().unwrap();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&messages);
    let report: Reporter = Arc::new(move |_, text: &str| sink.lock().unwrap().push(text.to_string()));
    let engine = Engine::open_with(EngineConfig { report, ..config(dir.path()) }, None).unwrap();
    engine.close(CloseMode::Clean).unwrap();
    let told = messages.lock().unwrap().iter().any(|m| m.contains("without io_uring: "));
    assert_eq!(told, myriad_io::UringIo::probe().is_err());
}
