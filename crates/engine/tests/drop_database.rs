//! What DROP DATABASE costs beside many other tables. Alone in its process, as latches are counted for all of it.

use myriad::*;
use myriad_io::{Io, SimIo};
use std::path::Path;
use std::sync::Arc;

fn spec() -> TableSpec<'static> {
    TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() }
}

fn engine() -> Arc<Engine> {
    let io = SimIo::new(1);
    io.create_dir(Path::new("/data")).unwrap();
    let config = EngineConfig {
        buffer_pool_bytes: 16 << 20,
        log_capacity_bytes: 32 << 20,
        log_buffer_bytes: 1 << 20,
        background_threads: false,
        ..EngineConfig::new("/data")
    };
    Engine::open_with(config, Some(Arc::new(io))).unwrap()
}

fn catalog_latches(engine: &Engine) -> u64 {
    engine.latches().iter().find(|latch| latch.name == "catalog").unwrap().acquired
}

#[test]
fn definitions_of_other_databases_are_not_looked_at() {
    let engine = engine();
    const TABLES: u64 = 3;
    for table in 0..TABLES {
        let name = format!("d/t{table}");
        engine.create_table(&name, &spec()).unwrap();
        engine.open_table(&name).unwrap();
    }
    let before = catalog_latches(&engine);
    assert_eq!(engine.drop_database("d").unwrap(), TABLES);
    assert_eq!(engine.drop_database("none").unwrap(), 0);
    // One for each definition.
    assert_eq!(catalog_latches(&engine) - before, TABLES);
    // So many that they are not told one by one.
    let names: Vec<String> = (0..10_001).map(|table| format!("d/t{table}")).collect();
    names.iter().for_each(|name| engine.create_table(name, &spec()).unwrap());
    names.iter().for_each(|name| drop(engine.open_table(name).unwrap()));
    assert_eq!(engine.drop_database("d").unwrap(), names.len() as u64);
    assert!(names.iter().all(|name| matches!(engine.open_table(name), Err(Error::NoSuchTable { .. }))));
}
