//! What statistics say of tables whose rows are not alike.

use super::*;

/// With the table in memory, read from its file at first and by ANALYZE, and by what that has told.
#[test]
fn the_first_rows_do_not_speak_for_the_others() {
    let io = SimIo::new(14);
    let config = || EngineConfig { buffer_pool_bytes: 16 << 20, ..sim_config() };
    let engine = open_sim(&io, config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    for i in 0..40_500u32 {
        session.insert(&table, &i.to_be_bytes(), if i < 500 { &[1; 3_000] } else { &[1; 4] }).unwrap();
    }
    session.commit().unwrap();
    let warm = table.info().unwrap();
    assert!((30_000..50_000).contains(&warm.rows), "{warm:?}");
    drop((table, session));
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    // Nothing is in memory: the first look reads some leaves. A close one reads more, and is what others are told for a moment.
    let engine = open_sim(&io, config()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let cold = table.info().unwrap();
    assert!((30_000..50_000).contains(&cold.rows), "{cold:?}");
    let analyzed = table.analyze().unwrap();
    assert!((35_000..45_000).contains(&analyzed.rows), "{analyzed:?}");
    assert_eq!((analyzed.data_bytes, analyzed.rows), (warm.data_bytes, table.info().unwrap().rows));
    // Nor is what was read later on; what it told is remembered.
    engine.create_table("d/others", &spec()).unwrap();
    let others = engine.open_table("d/others").unwrap();
    let mut session = engine.session();
    for i in 0..20_000u32 {
        session.insert(&others, &i.to_be_bytes(), &[1; 1_000]).unwrap();
    }
    session.commit().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let known = table.info().unwrap();
    assert!((35_000..45_000).contains(&known.rows), "{known:?}");
}
