//! In-memory tables: as other tables within one life of the engine, empty after it.

use myriad::*;
use myriad_io::{Io, SimIo};
use std::path::Path;
use std::sync::Arc;

const INDEXES: &[IndexSpec] = &[IndexSpec::UNIQUE];

fn spec(in_memory: bool) -> TableSpec<'static> {
    TableSpec { indexes: INDEXES, in_memory, auto_increment_next: Some(1), ..Default::default() }
}

fn config(pool_bytes: u64) -> EngineConfig {
    EngineConfig {
        buffer_pool_bytes: pool_bytes,
        page_size: 4096,
        log_capacity_bytes: 4 << 20,
        log_buffer_bytes: 1 << 20,
        seed: Some(1),
        background_threads: false,
        ..EngineConfig::new("/data")
    }
}

fn open(io: &SimIo) -> Arc<Engine> {
    open_with(io, 2 << 20)
}

fn open_with(io: &SimIo, pool_bytes: u64) -> Arc<Engine> {
    io.create_dir(Path::new("/data")).unwrap();
    Engine::open_with(config(pool_bytes), Some(Arc::new(io.clone()))).unwrap()
}

fn rows(session: &mut Session, table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    session.rows(table, 0).unwrap().collect::<Result<_>>().unwrap()
}

fn committed(engine: &Arc<Engine>, table: &Table) -> usize {
    let mut session = engine.session();
    let n = rows(&mut session, table).len();
    session.commit().unwrap();
    n
}

fn work(engine: &Engine) {
    while engine.background_step().unwrap() {}
}

#[test]
fn transactions_work_as_for_other_tables() {
    let engine = open_with(&SimIo::new(1), 64 << 20);
    engine.create_table("d/m", &spec(true)).unwrap();
    let table = engine.open_table("d/m").unwrap();
    let (mut a, mut b) = (engine.session(), engine.session());
    for i in 0..2000u32 {
        a.insert(&table, &i.to_be_bytes(), &[1; 100]).unwrap();
    }
    assert_eq!(b.find(&table, &7u32.to_be_bytes()).unwrap(), None, "not committed");
    a.commit().unwrap();
    assert_eq!(b.find(&table, &7u32.to_be_bytes()).unwrap(), None, "the snapshot is older");
    b.commit().unwrap();
    assert_eq!(rows(&mut b, &table).len(), 2000);
    // Versions: the snapshot keeps what others change and remove.
    a.update(&table, &7u32.to_be_bytes(), &[2; 300]).unwrap();
    a.remove(&table, &8u32.to_be_bytes()).unwrap();
    let savepoint = a.savepoint().unwrap();
    a.insert(&table, b"later", &[3; 20_000]).unwrap();
    a.update(&table, &7u32.to_be_bytes(), b"short").unwrap();
    a.rollback_to(savepoint).unwrap();
    assert_eq!(a.find(&table, b"later").unwrap(), None);
    assert_eq!(a.find(&table, &7u32.to_be_bytes()).unwrap(), Some(vec![2; 300]));
    // Row locks.
    let mut wait = |key: u32| b.get(&table, 0, &key.to_be_bytes(), false, Lock::Exclusive, Wait::NoWait).map(|_| ());
    assert_eq!(wait(7), Err(Error::LockWaitTimeout));
    assert_eq!(wait(9), Ok(()));
    a.commit().unwrap();
    assert_eq!(b.find(&table, &7u32.to_be_bytes()).unwrap(), Some(vec![1; 100]));
    assert_eq!(rows(&mut b, &table).len(), 2000);
    b.commit().unwrap();
    // Rollback of everything, long values among it.
    for i in 0..2000u32 {
        a.remove(&table, &i.to_be_bytes()).unwrap();
        a.insert(&table, &(i + 10_000).to_be_bytes(), &vec![4; i as usize * 5]).unwrap();
    }
    a.rollback().unwrap();
    work(&engine);
    assert_eq!(committed(&engine, &table), 1999);
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

/// Leaves that a rollback empties but for rows of others are merged once these have ended: nobody else may come there again.
#[test]
fn leaves_are_merged_when_others_have_ended() {
    let engine = open_with(&SimIo::new(1), 64 << 20);
    engine.create_table("d/m", &spec(true)).unwrap();
    let table = engine.open_table("d/m").unwrap();
    let (mut a, mut b) = (engine.session(), engine.session());
    for i in 0..4000u32 {
        let who = if i % 40 == 0 { &mut b } else { &mut a };
        who.insert(&table, &i.to_be_bytes(), &[1; 100]).unwrap();
    }
    a.rollback().unwrap();
    work(&engine);
    let bytes = engine.metric("memory_tables_bytes").unwrap();
    b.commit().unwrap();
    work(&engine);
    let left = engine.metric("memory_tables_bytes").unwrap();
    assert!(left * 4 < bytes, "{left} of {bytes}");
    assert_eq!(committed(&engine, &table), 100);
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

#[test]
fn rows_stay_out_of_log_and_files() {
    let engine = open(&SimIo::new(2));
    for (name, in_memory) in [("d/m", true), ("d/t", false)] {
        engine.create_table(name, &spec(in_memory)).unwrap();
    }
    engine.checkpoint_now().unwrap();
    let mut logged = Vec::new();
    for name in ["d/m", "d/t"] {
        let table = engine.open_table(name).unwrap();
        let before = engine.metric("log_bytes").unwrap();
        let mut session = engine.session();
        for i in 0..500u32 {
            session.insert(&table, &i.to_be_bytes(), &[7; 500]).unwrap();
        }
        let syncs = engine.metric("log_syncs").unwrap();
        session.commit().unwrap();
        assert_eq!(engine.metric("log_syncs").unwrap() > syncs, name == "d/t", "a commit of {name} waits for the log");
        logged.push(engine.metric("log_bytes").unwrap() - before);
    }
    assert!(logged[0] < 500 * 60, "undo records only: {} bytes", logged[0]);
    assert!(logged[1] > 500 * 500);
    // A transaction with lasting changes waits, too.
    let (memory, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
    let mut session = engine.session();
    session.insert(&lasting, b"x", b"x").unwrap();
    session.insert(&memory, b"x", b"x").unwrap();
    let syncs = engine.metric("log_syncs").unwrap();
    session.commit().unwrap();
    assert!(engine.metric("log_syncs").unwrap() > syncs);
}

#[test]
fn empty_after_clean_stop_and_after_crash_and_nothing_else_harmed() {
    let mut io = SimIo::new(3);
    let mut engine = open_with(&io, 32 << 20);
    engine.create_table("d/m", &spec(true)).unwrap();
    engine.create_table("d/t", &spec(false)).unwrap();
    for round in 0..6u64 {
        let (memory, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
        assert_eq!(memory.take_emptied(), round > 0, "told once a run");
        assert!(!memory.take_emptied() && !lasting.take_emptied());
        assert_eq!(memory.info().unwrap().auto_increment_next, 1);
        assert_eq!(committed(&engine, &memory), 0, "round {round}");
        assert_eq!(committed(&engine, &lasting), 100 * round as usize);
        let mut session = engine.session();
        let base = round as u32 * 100;
        for i in base..base + 100 {
            session.insert(&lasting, &i.to_be_bytes(), b"v").unwrap();
            session.insert(&memory, &i.to_be_bytes(), &vec![1; i as usize * 50]).unwrap();
            session.insert(&memory, &(i % 10 + 1_000_000 + base).to_be_bytes(), b"v").ok();
        }
        assert!(session.auto_increment_reserve(&memory, 1, 1, 5, u64::MAX).unwrap() == 1);
        session.commit().unwrap();
        // Old versions, replaced long values and delete marks wait for purge when the engine goes.
        for i in base..base + 50 {
            session.update(&memory, &i.to_be_bytes(), &[2; 9000]).unwrap();
            session.remove(&memory, &(i + 50).to_be_bytes()).unwrap();
        }
        session.commit().unwrap();
        // A loser that has changed both, and a prepared transaction.
        let mut loser = engine.session();
        loser.insert(&memory, b"loser", &[5; 9000]).unwrap();
        loser.update(&memory, &base.to_be_bytes(), &[6; 9000]).unwrap();
        loser.insert(&lasting, b"loser", b"x").unwrap();
        let mut prepared = engine.session();
        prepared.insert(&memory, b"prepared", &[5; 9000]).unwrap();
        prepared.update(&memory, &(base + 1).to_be_bytes(), &[6; 9000]).unwrap();
        prepared.prepare(b"x").unwrap();
        prepared.detach_prepared();
        engine.flush_log().unwrap();
        if round % 2 == 0 {
            io = io.crash(round);
        } else {
            engine.close(CloseMode::LogOnly).unwrap();
        }
        drop((memory, lasting, session, loser, prepared, engine));
        engine = open_with(&io, 32 << 20);
        // The table is in use again, on the same pages, before rollback and purge come by.
        let memory = engine.open_table("d/m").unwrap();
        let mut session = engine.session();
        for i in base..base + 60 {
            session.insert(&memory, &i.to_be_bytes(), &vec![9; 100 * (i - base) as usize]).unwrap();
        }
        session.commit().unwrap();
        assert!(if round % 3 == 0 { engine.commit_by_xid(b"x") } else { engine.rollback_by_xid(b"x") }.unwrap());
        work(&engine);
        assert_eq!(committed(&engine, &memory), 60);
        for (key, value) in rows(&mut session, &memory) {
            let i = u32::from_be_bytes(key.try_into().unwrap());
            assert_eq!(value, vec![9; 100 * (i - base) as usize]);
        }
        session.commit().unwrap();
        memory.check(&mut |finding| panic!("{finding}")).unwrap();
        drop((memory, session));
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        engine = open_with(&io, 32 << 20);
    }
}

/// Its changes are gone after a crash, and so must it be: who prepared it has forgotten it.
#[test]
fn a_prepared_transaction_that_has_ended_does_not_come_back() {
    let mut io = SimIo::new(1);
    open(&io).create_table("d/m", &spec(true)).unwrap();
    for commit in [true, false] {
        let engine = open(&io);
        let (table, mut session) = (engine.open_table("d/m").unwrap(), engine.session());
        session.insert(&table, b"k", b"v").unwrap();
        session.prepare(b"x").unwrap();
        if commit { session.commit_finish(true) } else { session.rollback() }.unwrap();
        io = io.crash(1);
        assert!(open(&io).prepared().is_empty(), "committed: {commit}");
        io = io.crash(1);
    }
}

#[test]
fn full_memory_is_an_error_and_deletions_make_room() {
    let engine = open(&SimIo::new(4));
    engine.set(Setting::MemoryTablesBytes(400 << 10)).unwrap();
    engine.create_table("d/m", &spec(true)).unwrap();
    engine.create_table("d/t", &spec(false)).unwrap();
    let table = engine.open_table("d/m").unwrap();
    let mut session = engine.session();
    for round in 0..3u32 {
        let mut n = 0u32;
        let full = loop {
            match session.insert(&table, &n.to_be_bytes(), &[round as u8; 200]) {
                Ok(()) => n += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full, Error::MemoryFull { limit_bytes: 400 << 10 });
        assert!(n > 500, "{n} rows of 200 bytes in 400 KiB");
        // Long values and the rollback of a statement, too; what was there stays.
        assert!(session.insert(&table, b"long", &vec![1; 100_000]).is_err());
        assert_eq!(rows(&mut session, &table).len(), n as usize);
        if round == 1 {
            session.rollback().unwrap();
        } else {
            session.commit().unwrap();
            for i in 0..n {
                assert!(session.remove(&table, &i.to_be_bytes()).unwrap());
            }
            session.commit().unwrap();
        }
        work(&engine);
        assert_eq!(committed(&engine, &table), 0);
        assert!(
            engine.metric("memory_tables_bytes").unwrap() < 20 << 12,
            "{}",
            engine.metric("memory_tables_bytes").unwrap()
        );
    }
    // Other tables have not noticed.
    let lasting = engine.open_table("d/t").unwrap();
    for i in 0..5000u32 {
        session.insert(&lasting, &i.to_be_bytes(), &[1; 200]).unwrap();
    }
    session.commit().unwrap();
    assert_eq!(committed(&engine, &lasting), 5000);
}

/// A commit of other changes does not fail for it, and no value is given twice.
#[test]
fn a_counter_that_finds_no_room_lasts_all_the_same() {
    let engine = open(&SimIo::new(9));
    engine.set(Setting::MemoryTablesBytes(80 << 10)).unwrap();
    for (name, in_memory) in [("d/m", true), ("d/full", true), ("d/t", false)] {
        engine.create_table(name, &spec(in_memory)).unwrap();
    }
    let mut session = engine.session();
    let full = engine.open_table("d/full").unwrap();
    // So small that no leaf has room for a counter.
    let refused = (0..).find_map(|i: u32| session.insert(&full, &i.to_be_bytes(), b"").err());
    assert!(matches!(refused, Some(Error::MemoryFull { .. })));
    session.commit().unwrap();
    for round in 0..3u64 {
        let (table, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
        assert_eq!(session.auto_increment_reserve(&table, 1, 1, 1, u64::MAX), Ok(round + 1));
        session.insert(&lasting, &round.to_be_bytes(), b"").unwrap();
        session.commit().unwrap();
    }
    assert_eq!(committed(&engine, &engine.open_table("d/t").unwrap()), 3);
}

/// A table that has been emptied or dropped can be filled again at once, whatever else waits to be reclaimed.
#[test]
fn memory_is_back_when_a_table_is_emptied() {
    let engine = open(&SimIo::new(9));
    engine.set(Setting::MemoryTablesBytes(400 << 10)).unwrap();
    engine.create_table("d/t", &spec(false)).unwrap();
    let mut session = engine.session();
    let mut fill = |name: &str| {
        let table = engine.open_table(name).unwrap();
        let n = (0..5000u32).find(|n| session.insert(&table, &n.to_be_bytes(), &[1; 200]).is_err());
        session.commit().unwrap();
        n
    };
    assert_eq!(fill("d/t"), None);
    engine.drop_table("d/t").unwrap();
    engine.create_table("d/m", &spec(true)).unwrap();
    let n = fill("d/m").expect("full");
    engine.truncate_table("d/m", 1).unwrap();
    assert_eq!(fill("d/m"), Some(n));
    engine.drop_table("d/m").unwrap();
    engine.create_table("d/n", &spec(true)).unwrap();
    assert_eq!(fill("d/n"), Some(n));
    engine.drop_database("d").unwrap();
    engine.create_table("e/m", &spec(true)).unwrap();
    assert_eq!(fill("e/m"), Some(n));
}

/// What a rollback brings back may be more than there is room for: it does not take the frames of all other tables, and goes
/// on when others have made room.
#[test]
fn a_rollback_without_room_leaves_frames_to_other_tables() {
    let engine = open(&SimIo::new(8));
    engine.set(Setting::MemoryTablesBytes(1 << 20)).unwrap();
    engine.create_table("d/m", &spec(true)).unwrap();
    engine.create_table("d/t", &spec(false)).unwrap();
    let (memory, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
    let (mut session, mut shortens) = (engine.session(), engine.session());
    let mut n = 0u32;
    while session.insert(&memory, &(2 * n).to_be_bytes(), &[1; 200]).is_ok() {
        n += 1;
    }
    session.commit().unwrap();
    for i in 0..n {
        shortens.update(&memory, &(2 * i).to_be_bytes(), b"").unwrap();
    }
    // Into the room that it gave.
    let between: Vec<u32> = (0..n).map(|i| 2 * i + 1).collect();
    let between: Vec<_> =
        between.iter().filter(|i| session.insert(&memory, &i.to_be_bytes(), &[1; 200]).is_ok()).collect();
    session.commit().unwrap();
    assert!(between.len() as u32 > n / 2, "{n} rows, {} between them", between.len());
    let limit_bytes = (2 << 20) / 16 * 14;
    assert_eq!(shortens.rollback(), Err(Error::MemoryFull { limit_bytes }));
    assert_eq!(engine.metric("memory_tables_bytes").unwrap(), limit_bytes);
    let mut session = engine.session();
    for i in 0..500u32 {
        session.insert(&lasting, &i.to_be_bytes(), &[1; 2000]).unwrap();
    }
    session.commit().unwrap();
    assert_eq!(committed(&engine, &lasting), 500);
    for i in between {
        assert!(session.remove(&memory, &i.to_be_bytes()).unwrap());
    }
    session.commit().unwrap();
    // Purge makes room, a portion at a time.
    let done = (0..1000).any(|_| engine.background_step() == Ok(false));
    assert!(done, "{:?}", engine.background_step());
    assert_eq!(committed(&engine, &memory), n as usize);
    assert!(rows(&mut session, &memory).iter().all(|(_, value)| value[..] == [1; 200]));
    session.commit().unwrap();
    memory.check(&mut |finding| panic!("{finding}")).unwrap();
}

#[test]
fn definitions_change_as_for_other_tables() {
    let io = SimIo::new(5);
    let engine = open(&io);
    engine.create_table("d/m", &spec(true)).unwrap();
    let table = engine.open_table("d/m").unwrap();
    let mut session = engine.session();
    for i in 0..500u32 {
        session.insert(&table, &i.to_be_bytes(), &[1; 200]).unwrap();
    }
    session.commit().unwrap();
    drop(table);
    let used = engine.metric("memory_tables_bytes").unwrap();
    engine.rename_table("d/m", "e/n").unwrap();
    let table = engine.open_table("e/n").unwrap();
    assert_eq!(committed(&engine, &table), 500);
    drop(table);
    engine.truncate_table("e/n", 1).unwrap();
    let table = engine.open_table("e/n").unwrap();
    assert_eq!(committed(&engine, &table), 0);
    work(&engine);
    assert!(engine.metric("memory_tables_bytes").unwrap() < used / 4);
    session.insert(&table, b"k", b"v").unwrap();
    session.commit().unwrap();
    engine.create_table("e/t", &spec(false)).unwrap();
    assert_eq!(engine.drop_database("e").unwrap(), 2);
    work(&engine);
    engine.create_table("d/gone", &spec(true)).unwrap();
    engine.close(CloseMode::Clean).unwrap();
    drop((table, session, engine));
    let engine = open(&io);
    assert!(!engine.table_exists("e/n").unwrap());
    engine.drop_table("d/gone").unwrap();
    work(&engine);
    assert_eq!(engine.spaces().unwrap().iter().filter(|s| s.space_id == 2).count(), 0);
}

/// What is in overflow pages goes with the rows, also of old versions that purge has not come to.
#[test]
fn long_values_go_with_their_table() {
    let engine = open_with(&SimIo::new(7), 32 << 20);
    engine.create_table("d/m", &spec(true)).unwrap();
    let fill = || {
        let table = engine.open_table("d/m").unwrap();
        let mut session = engine.session();
        for (kind, value) in [(OpKind::Insert, [1; 9000]), (OpKind::Update, [2; 9000])] {
            for i in 0..100u32 {
                let (key, head_len) = (i.to_be_bytes(), [0, 20][i as usize % 2]);
                let op = Op { kind, index_no: 0, key: &key, unique_len: 4, value: &value, head_len };
                session.apply(&table, [op].into_iter(), ApplyMode::default()).unwrap();
            }
            session.commit().unwrap();
        }
    };
    let used = || engine.metric("memory_tables_bytes").unwrap();
    work(&engine);
    let before = used();
    for drop in [false, true] {
        fill();
        assert!(used() > before + (100 * 18_000));
        if drop {
            engine.drop_table("d/m").unwrap();
        } else {
            engine.truncate_table("d/m", 1).unwrap();
        }
        work(&engine);
        assert_eq!(used(), before);
    }
}

#[test]
fn survive_pressure_of_other_tables() {
    let engine = open(&SimIo::new(6));
    engine.create_table("d/m", &spec(true)).unwrap();
    engine.create_table("d/t", &spec(false)).unwrap();
    let (memory, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
    let mut session = engine.session();
    for i in 0..1000u32 {
        session.insert(&memory, &i.to_be_bytes(), &i.to_le_bytes()).unwrap();
    }
    session.commit().unwrap();
    // Five times the pool.
    for i in 0..10_000u32 {
        session.insert(&lasting, &i.to_be_bytes(), &[1; 1000]).unwrap();
        if i % 100 == 0 {
            session.commit().unwrap();
            work(&engine);
        }
    }
    session.commit().unwrap();
    assert!(engine.metric("pages_evicted").unwrap() > 1000);
    for (i, (key, value)) in rows(&mut session, &memory).into_iter().enumerate() {
        assert_eq!((key, value), ((i as u32).to_be_bytes().to_vec(), (i as u32).to_le_bytes().to_vec()));
    }
}

/// Though they leave hardly more frames than are to be free: what background work itself reads is no work, and removing what a dropped table
/// leaves takes no more frames at once than there are.
#[test]
fn background_work_ends_beside_full_memory() {
    for (frames, instances) in [(40, 1), (40, 2), (48, 2), (96, 2)] {
        let config = EngineConfig { buffer_pool_instances: instances, ..config(frames * 4096) };
        let io = SimIo::new(7);
        io.create_dir(Path::new("/data")).unwrap();
        let engine = Engine::open_with(config, Some(Arc::new(io))).unwrap();
        engine.set(Setting::MemoryTablesBytes(frames * 4096)).unwrap();
        engine.create_table("d/m", &spec(true)).unwrap();
        engine.create_table("d/t", &spec(false)).unwrap();
        let (memory, lasting) = (engine.open_table("d/m").unwrap(), engine.open_table("d/t").unwrap());
        let mut session = engine.session();
        for i in 0..500u32 {
            session.insert(&lasting, &i.to_be_bytes(), &[1; 200]).unwrap();
        }
        session.commit().unwrap();
        for i in 0u32.. {
            if session.insert(&memory, &i.to_be_bytes(), &[1; 200]).is_err() {
                break;
            }
        }
        session.commit().unwrap();
        drop(lasting);
        engine.drop_table("d/t").unwrap();
        let steps = (0..1000).take_while(|_| engine.background_step().unwrap()).count();
        assert!(steps < 1000, "{frames} frames in {instances} parts");
    }
}
