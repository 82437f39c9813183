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
    drop((session, table, engine));
    let engine = open_sim(&io, sim_config()).unwrap();
    while engine.background_step().unwrap() {}
    assert_eq!(rows(&engine, "d/t").len(), 3);
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
