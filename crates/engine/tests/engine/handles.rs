//! Handles that outlived what they were opened for: a definition, an engine.

use super::*;

fn is_changed<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::DefinitionChanged { .. })), "{result:?}");
}

#[test]
fn what_was_dropped_or_emptied_is_not_written_to() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    for change in ["drop", "truncate", "rename"] {
        engine.create_table("d/t", &spec()).unwrap();
        fill(&engine, "d/t", 10);
        let table = engine.open_table("d/t").unwrap();
        let mut session = engine.session();
        let mut cursor = Cursor::open(&mut session, &table, 0, CursorOptions::default()).unwrap();
        match change {
            "drop" => engine.drop_table("d/t").unwrap(),
            "truncate" => engine.truncate_table("d/t", 1).unwrap(),
            _ => engine.rename_table("d/t", "d/u").unwrap(),
        }
        is_changed(session.insert(&table, b"new", b"1"));
        is_changed(session.find(&table, b"new"));
        is_changed(session.remove(&table, b"new"));
        is_changed(session.count_rows(&table));
        is_changed(cursor.seek(&mut session, Seek::First, b"").map(|row| row.is_some()));
        session.commit().unwrap();
        while engine.background_step().unwrap() {}
        match change {
            "truncate" => {
                assert_eq!(rows(&engine, "d/t"), []);
                engine.drop_table("d/t").unwrap();
            }
            "rename" => assert_eq!(rows(&engine, "d/u").len(), 10),
            _ => assert!(!engine.table_exists("d/t").unwrap()),
        }
    }
    engine.close(CloseMode::Clean).unwrap();
}

#[test]
fn a_table_of_another_engine_is_refused() {
    let (io, other_io) = (SimIo::new(1), SimIo::new(2));
    let (engine, other) = (open_sim(&io, sim_config()).unwrap(), open_sim(&other_io, sim_config()).unwrap());
    for engine in [&engine, &other] {
        engine.create_table("d/t", &spec()).unwrap();
        fill(engine, "d/t", 3);
    }
    let table = other.open_table("d/t").unwrap();
    let mut session = engine.session();
    let refused = |result: Result<()>| assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
    refused(session.insert(&table, b"stray", b"1"));
    refused(session.find(&table, b"stray").map(drop));
    let mut cursor = Cursor::open(&mut session, &table, 0, CursorOptions::default()).unwrap();
    refused(cursor.seek(&mut session, Seek::First, b"").map(drop));
    let mut its_own = other.session();
    cursor.seek(&mut its_own, Seek::First, b"").unwrap();
    refused(cursor.next(&mut session).map(drop));
    refused(cursor.prev(&mut session).map(drop));
    session.commit().unwrap();
    assert_eq!((rows(&engine, "d/t").len(), rows(&other, "d/t").len()), (3, 3));
}

#[test]
fn a_closed_engine_takes_nothing_more() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, EngineConfig { flush_at_commit: FlushAtCommit::Lazy, ..sim_config() }).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 3);
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.insert(&table, b"open", b"1").unwrap();
    engine.close(CloseMode::Clean).unwrap();
    assert_eq!(session.commit(), Err(Error::ShuttingDown), "of what is not there after the next start");
    assert_eq!(session.insert(&table, b"late", b"1"), Err(Error::ShuttingDown));
    assert_eq!(engine.create_table("d/late", &spec()), Err(Error::ShuttingDown));
    assert_eq!(engine.truncate_table("d/t", 1), Err(Error::ShuttingDown));
    // The directory would be taken for one that a crash has ruined.
    assert_eq!(engine.set(Setting::RedoLog(false)), Err(Error::ShuttingDown));
    assert_eq!(engine.checkpoint_now(), Err(Error::ShuttingDown));
    assert_eq!(engine.background_step(), Err(Error::ShuttingDown));
    assert_eq!(engine.commit_by_xid(b"x"), Err(Error::ShuttingDown));
    assert_eq!(engine.rollback_by_xid(b"x"), Err(Error::ShuttingDown));
    assert!(matches!(engine.backup(Path::new("/backup")), Err(Error::ShuttingDown)));
    drop((session, table, engine));
    let engine = open_sim(&io, sim_config()).unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(rows(&engine, "d/t").len(), 3);
}

#[test]
fn a_commit_need_not_be_waited_for() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let say = |what: &'static str| {
        let said = Arc::clone(&said);
        move |durable| said.lock().unwrap().push((what, durable))
    };
    // Without a thread that syncs for others who asks waits; with one it is told soon.
    let dir = tempfile::tempdir().unwrap();
    for config in [sim_config(), config(dir.path())] {
        let threads = config.background_threads;
        let engine = match threads {
            true => Engine::open_with(config, None).unwrap(),
            false => open_sim(&SimIo::new(1), config).unwrap(),
        };
        if threads {
            engine.start_background();
        }
        engine.create_table("d/t", &spec()).unwrap();
        let table = engine.open_table("d/t").unwrap();
        let (mut a, mut b) = (engine.session(), engine.session());
        a.insert(&table, b"1", b"new").unwrap();
        let lsn = a.commit_later().unwrap().expect("it has changed something");
        assert_eq!(b.find(&table, b"1").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(b.commit_later(), Ok(None), "it has changed nothing");
        engine.when_durable(lsn, say("new")).unwrap();
        let begin = std::time::Instant::now();
        while said.lock().unwrap().is_empty() && threads && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!(std::mem::take(&mut *said.lock().unwrap()), [("new", true)]);
        engine.set(Setting::FlushAtCommit(FlushAtCommit::Lazy)).unwrap();
        a.insert(&table, b"2", b"lazy").unwrap();
        assert_eq!(a.commit_later(), Ok(None), "nobody wants to wait");
        drop((a, b, table));
        engine.close(CloseMode::Clean).unwrap();
    }
}

/// Who tries again from the beginning must not find its first half done.
#[test]
fn a_deadlock_rolls_the_whole_transaction_back() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let (mut a, mut b) = (engine.session(), engine.session());
    for key in [b"1", b"2"] {
        a.insert(&table, key, b"old").unwrap();
    }
    a.commit().unwrap();
    a.update(&table, b"1", b"a").unwrap();
    b.update(&table, b"2", b"b").unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| b.update(&table, b"1", b"b"));
        let second = a.update(&table, b"2", b"a");
        if a.in_transaction() {
            a.commit().unwrap();
        }
        let mut results = [second, first.join().unwrap()];
        results.sort_by_key(Result::is_err);
        assert_eq!(results, [Ok(true), Err(Error::Deadlock)]);
    });
    assert!(!a.in_transaction());
    if b.in_transaction() {
        b.commit().unwrap();
    }
    let values: Vec<_> = rows(&engine, "d/t").into_iter().map(|(_, value)| value).collect();
    assert!(values == [b"a", b"a"] || values == [b"b", b"b"], "{values:?}");
}

#[test]
fn a_row_found_for_update_is_the_newest_and_locked() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 1);
    let table = engine.open_table("d/t").unwrap();
    let (mut a, mut b) = (engine.session(), engine.session());
    let key = rows(&engine, "d/t")[0].0.clone();
    let old = a.find(&table, &key).unwrap();
    b.update(&table, &key, b"new").unwrap();
    b.commit().unwrap();
    assert_eq!(a.find(&table, &key).unwrap(), old);
    assert_eq!(a.find_for_update(&table, &key).unwrap().as_deref(), Some(&b"new"[..]));
    let taken = b.get(&table, 0, &key, false, Lock::Shared, Wait::NoWait).map(drop);
    assert_eq!(taken, Err(Error::LockWaitTimeout));
}

#[test]
fn a_prepared_transaction_takes_no_changes() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.insert(&table, b"before", b"1").unwrap();
    let savepoint = session.savepoint().unwrap();
    session.insert(&table, b"then", b"1").unwrap();
    session.prepare(b"x").unwrap();
    assert!(matches!(session.insert(&table, b"after", b"1"), Err(Error::Invalid { .. })));
    assert!(matches!(session.rollback_to(savepoint), Err(Error::Invalid { .. })), "what is promised stays whole");
    session.commit_finish(true).unwrap();
    assert_eq!(rows(&engine, "d/t").len(), 2);
}

#[test]
fn a_transaction_that_is_visible_takes_no_changes() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    for finished in [true, false] {
        let (mut session, mut other) = (engine.session(), engine.session());
        session.insert(&table, &[u8::from(finished)], b"1").unwrap();
        session.commit_visible().unwrap();
        assert!(matches!(session.insert(&table, b"after", b"1"), Err(Error::Invalid { .. })));
        session.find_for_update(&table, &[u8::from(finished)]).unwrap();
        match finished {
            true => session.commit_finish(true).unwrap(),
            false => drop(session),
        }
        let freed = other.get(&table, 0, &[u8::from(finished)], false, Lock::Exclusive, Wait::NoWait);
        assert!(freed.unwrap().is_some(), "a lock outlived its transaction");
    }
    assert_eq!(rows(&engine, "d/t").len(), 2);
}

#[test]
fn a_data_directory_is_created_in_a_folder_that_is_there() {
    let io = SimIo::new(1);
    let open = |io: &SimIo, dir: &str| open_sim(io, EngineConfig { data_dir: dir.into(), ..sim_config() });
    assert!(matches!(open(&io, "/data/no/shop"), Err(Error::Io { .. })));
    open(&io, "/data/shop").unwrap().create_table("d/t", &spec()).unwrap();
    assert!(open(&io.crash(1), "/data/shop").unwrap().table_exists("d/t").unwrap());
}

/// The program may go to another folder. The simulated disk does not have the one that it is in.
#[test]
fn a_relative_data_directory_is_one_of_the_folder_at_the_open() {
    let open = |dir: &str| open_sim(&SimIo::new(1), EngineConfig { data_dir: dir.into(), ..sim_config() });
    let Err(Error::Io { path, .. }) = open("shop") else { panic!("opened in no folder") };
    assert_eq!(Path::new(&path), std::env::current_dir().unwrap().join("shop"));
    assert!(matches!(open(""), Err(Error::Invalid { .. })));
}

#[test]
fn lengths_of_keys_are_told_as_the_program_counts_them() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    let Err(Error::TooLong { len: 9000, max, .. }) = session.insert(&table, &[1; 9000], b"") else {
        panic!("not refused")
    };
    session.insert(&table, &vec![1; max], b"").unwrap();
    assert_eq!(session.insert(&table, &vec![2; max + 1], b""), Err(Error::TooLong { what: "key", len: max + 1, max }));
}

#[test]
fn a_log_that_no_file_would_hold_or_no_page_fits_is_refused() {
    let io = SimIo::new(1);
    let refused = |result: Result<()>| assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
    for log_capacity_bytes in [0, (2 << 20) - 1, u64::MAX] {
        refused(open_sim(&io, EngineConfig { log_capacity_bytes, ..sim_config() }).map(drop));
        let engine = open_sim(&io, sim_config()).unwrap();
        refused(engine.set(Setting::LogCapacityBytes(log_capacity_bytes)));
    }
}

/// Each value is given once, however the users of a table come and go.
#[test]
fn counters_of_a_table_that_is_opened_and_closed_all_the_time() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &TableSpec { hidden_row_id: true, auto_increment_next: Some(1), ..spec() }).unwrap();
    let given: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let work = || {
            let mut given = Vec::new();
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_secs(2) {
                let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
                let id = table.next_row_id().unwrap();
                given.push(session.auto_increment_reserve(&table, 1, 1, 1, u64::MAX).unwrap());
                session.insert(&table, &id.to_be_bytes(), b"").unwrap();
                session.commit().unwrap();
            }
            given
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut given = given.concat();
    let all = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), all, "values were given twice");
}

/// In the catalog it is the database of the tablespace that all share: dropped, it would take the others' tables along.
#[test]
fn no_database_is_called_as_the_one_that_stands_for_all() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    let spec = TableSpec { placement: Some(Placement::Server), ..spec() };
    engine.create_table("d/t", &spec).unwrap();
    let refused = |result: Result<()>| {
        assert!(matches!(&result, Err(Error::Invalid { what }) if what.contains("all databases")), "{result:?}");
    };
    refused(engine.create_table("*/t", &spec));
    refused(engine.rename_table("d/t", "*/t"));
    refused(engine.drop_database("*").map(drop));
    engine.open_table("d/t").unwrap();
}
