//! Indexes with hash look-up in in-memory tables: what they find is what indexes without it find.

use myriad::*;
use myriad_base::random::Random;
use myriad_io::{Io, SimIo};
use std::path::Path;
use std::sync::Arc;

fn open(background_threads: bool) -> Arc<Engine> {
    let io = SimIo::new(1);
    io.create_dir(Path::new("/data")).unwrap();
    let config = EngineConfig {
        buffer_pool_bytes: 64 << 20,
        page_size: 4096,
        log_capacity_bytes: 16 << 20,
        log_buffer_bytes: 1 << 20,
        seed: Some(1),
        background_threads,
        ..EngineConfig::new("/data")
    };
    let engine = Engine::open_with(config, Some(Arc::new(io))).unwrap();
    if background_threads {
        engine.start_background();
    }
    engine
}

/// A row's key, and a secondary index that ends with it.
fn spec(hash: bool, in_memory: bool) -> TableSpec<'static> {
    const HASHED: &[IndexSpec] =
        &[IndexSpec { hash: true, ..IndexSpec::UNIQUE }, IndexSpec { unique: false, hash: true }];
    const PLAIN: &[IndexSpec] = &[IndexSpec::UNIQUE, IndexSpec::PLAIN];
    TableSpec { indexes: if hash { HASHED } else { PLAIN }, in_memory, ..Default::default() }
}

/// The secondary index's key.
fn second(group: u32, key: u32) -> [u8; 8] {
    ((u64::from(group) << 32) | u64::from(key)).to_be_bytes()
}

struct Row {
    key: u32,
    group: u32,
    value: Vec<u8>,
}

fn change(session: &mut Session, table: &Table, kind: OpKind, row: &Row) -> Result<()> {
    let (key, second) = (row.key.to_be_bytes(), second(row.group, row.key));
    let op = |index_no, key, unique_len, value| Op { kind, index_no, key, unique_len, value, head_len: 0 };
    let both = [op(0, &key[..], key.len(), &row.value[..]), op(1, &second[..], 0, &[][..])];
    let ops = if kind == OpKind::Update { &both[..1] } else { &both[..] };
    session.apply(table, ops.iter().copied(), ApplyMode::default())
}

/// What a look-up by key and one by group find.
fn look(session: &mut Session, table: &Table, key: u32, group: u32, lock: Lock) -> [Option<(Vec<u8>, Vec<u8>)>; 2] {
    let mut get = |no, key: &[u8], prefix| {
        let found = session.get(table, no, key, prefix, lock, Wait::Wait).unwrap();
        found.map(|row| (row.key.to_vec(), row.value.to_vec()))
    };
    [get(0, &key.to_be_bytes(), false), get(1, &group.to_be_bytes(), true)]
}

fn requests(engine: &Engine) -> u64 {
    engine.metric("buffer_pool_read_requests").unwrap()
}

#[test]
fn finds_what_other_indexes_find() {
    let engine = open(false);
    let names = [("d/hashed", true), ("d/plain", false), ("d/other", true)];
    for (name, hash) in names {
        engine.create_table(name, &spec(hash, true)).unwrap();
    }
    let mut random = Random::from_seed(7);
    for round in 0..6 {
        let tables = names.map(|(name, _)| engine.open_table(name).unwrap());
        let mut session = engine.session();
        let keys = [400, 3_000, 50, 3_000, 800, 3_000][round];
        for step in 0..8_000 {
            let (key, group) = (random.below(keys) as u32, random.below(60) as u32);
            let lock = [Lock::None, Lock::Shared, Lock::Exclusive][random.below(3) as usize];
            let value = vec![step as u8; random.below(if step % 50 == 0 { 9_000 } else { 120 }) as usize];
            let kind = [OpKind::Insert, OpKind::Insert, OpKind::Update, OpKind::Delete][random.below(4) as usize];
            let row = Row { key, group: key % 60, value };
            let made = [0, 1].map(|no| change(&mut session, &tables[no], kind, &row).is_ok());
            assert_eq!(made[0], made[1], "{kind:?} of {key}");
            let found = [0, 1].map(|no| look(&mut session, &tables[no], key, group, lock));
            assert_eq!(found[0], found[1], "{key} and group {group}");
            // Pages that one table gives up become the other's.
            let far = Row { key: key + 5_000, ..row };
            let _ = change(&mut session, &tables[2], kind, &far);
            match random.below(40) {
                0 => session.rollback().unwrap(),
                1..8 => session.commit().unwrap(),
                8 => while engine.background_step().unwrap() {},
                _ => {}
            }
        }
        session.commit().unwrap();
        tables.iter().for_each(|t| t.check(&mut |finding| panic!("{finding}")).unwrap());
        drop(tables);
        engine.truncate_table(names[2].0, 1).unwrap();
        if round % 2 == 1 {
            // Gone, with all its pages, while the hash still has their numbers.
            names.iter().for_each(|(name, _)| engine.drop_table(name).map(|_| ()).unwrap());
            names.iter().for_each(|(name, hash)| engine.create_table(name, &spec(*hash, true)).map(|_| ()).unwrap());
        }
    }
}

#[test]
fn a_repeated_look_up_reads_one_page() {
    let engine = open(false);
    engine.create_table("d/t", &spec(true, true)).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    const ROWS: u32 = 20_000;
    for key in 0..ROWS {
        change(&mut session, &table, OpKind::Insert, &Row { key, group: key, value: vec![1; 100] }).unwrap();
    }
    session.commit().unwrap();
    let pages = |session: &mut Session| {
        let before = requests(&engine);
        for key in 0..ROWS {
            assert!(session.find(&table, &key.to_be_bytes()).unwrap().is_some());
        }
        (requests(&engine) - before) as f64 / f64::from(ROWS)
    };
    // While the table of hashes grows it forgets; and a bucket holds eight.
    for _ in 0..3 {
        pages(&mut session);
    }
    let each = pages(&mut session);
    assert!(each < 1.1, "{each} pages a look-up");
}

#[test]
fn threads_look_up_what_others_move() {
    let engine = open(true);
    engine.create_table("d/t", &spec(true, true)).unwrap();
    let (writers, per_writer) = (3u32, 3_000u32);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let engine = &engine;
            scope.spawn(move || {
                let table = engine.open_table("d/t").unwrap();
                let mut session = engine.session();
                let mut random = Random::from_seed(u64::from(writer) + 1);
                let row = |i: u32| Row { key: i * writers + writer, group: writer, value: vec![i as u8; 90] };
                for i in 0..per_writer {
                    change(&mut session, &table, OpKind::Insert, &row(i)).unwrap();
                    session.commit().unwrap();
                    // Whatever splits and merges the others cause: one's own rows are where they are.
                    let old = row(random.below(u64::from(i) + 1) as u32);
                    let found = session.find(&table, &old.key.to_be_bytes()).unwrap();
                    assert!(found.is_none_or(|value| value == old.value));
                    let there = session.find(&table, &row(i).key.to_be_bytes()).unwrap();
                    assert_eq!(there, Some(row(i).value));
                    if i % 3 == 0 {
                        change(&mut session, &table, OpKind::Delete, &row(i / 3 * 2)).ok();
                    }
                    session.commit().unwrap();
                }
            });
        }
    });
    let table = engine.open_table("d/t").unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
    engine.close(CloseMode::Clean).unwrap();
}

#[test]
fn only_tables_in_memory_have_it() {
    let engine = open(false);
    let refused = engine.create_table("d/t", &spec(true, false));
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    engine.create_table("d/t", &spec(false, false)).unwrap();
}
