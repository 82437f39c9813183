//! The engine without a server: open, create a table, transactions, a range scan, reopen.
//!
//! `cargo run --release -p myriad --example embedded [folder]`

use myriad::{CloseMode, Engine, Error, IndexSpec, Result, Table, TableSpec};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

fn create_and_fill(engine: &Arc<Engine>) -> Result<()> {
    // One clustered index: rows are key and value, both byte strings, in key order.
    let spec = TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() };
    match engine.create_table("shop/stock", &spec) {
        Ok(()) => println!("created shop/stock"),
        Err(Error::TableExists { .. }) => println!("shop/stock is there already"),
        Err(e) => return Err(e),
    }
    let stock = engine.open_table("shop/stock")?;

    let mut session = engine.session();
    for (item, count) in [("apple", "12"), ("banana", "7"), ("cherry", "240"), ("damson", "3")] {
        match session.insert(&stock, item.as_bytes(), count.as_bytes()) {
            Ok(()) => {}
            Err(Error::DuplicateKey { .. }) => println!("{item} is known"),
            Err(e) => return Err(e),
        }
    }
    session.commit()?;

    // Two sessions: what one has not committed, the other does not see.
    let mut other = engine.session();
    session.update(&stock, b"apple", b"11")?;
    println!("others still see {} apples", text(other.find(&stock, b"apple")?));
    other.commit()?;
    session.commit()?;

    // Thrown away.
    session.remove(&stock, b"cherry")?;
    session.rollback()
}

fn print(engine: &Arc<Engine>, table: &Table, from: &str) -> Result<()> {
    let mut session = engine.session();
    session.scan(table, from.as_bytes(), |key, value| {
        println!("  {:<8} {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        ControlFlow::Continue(())
    })?;
    session.commit()
}

fn text(value: Option<Vec<u8>>) -> String {
    value.map_or("no".into(), |v| String::from_utf8_lossy(&v).into_owned())
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("myriad-embedded"), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("folder for the data");

    let engine = Engine::open(&folder)?;
    create_and_fill(&engine)?;
    engine.close(CloseMode::Clean)?;
    drop(engine);

    let engine = Engine::open(&folder)?;
    println!("after reopening {}, from b on:", folder.display());
    let stock = engine.open_table("shop/stock")?;
    print(&engine, &stock, "b")?;
    drop(stock);
    engine.close(CloseMode::Clean)
}
