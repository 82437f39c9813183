//! The engine without a server: open, create a table, transactions, a range scan, reopen.
//!
//! `cargo run --release -p myriad --example embedded [folder]`

use myriad::key::{decode, encode};
use myriad::{CloseMode, Engine, Error, IndexSpec, Result, TableSpec};
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
    session.transaction(|s| -> Result<()> {
        for (item, count) in [("apple", 12u32), ("banana", 7), ("cherry", 240), ("damson", 3)] {
            if s.put(&stock, &encode(item), &encode(&count))? {
                println!("{item} is known");
            }
        }
        Ok(())
    })?;

    // Two sessions: what one has not committed, the other does not see.
    let mut other = engine.session();
    session.transaction(|s| -> Result<()> {
        let apples: u32 = decode(&s.find_for_update(&stock, &encode("apple"))?.expect("apples"))?;
        s.update(&stock, &encode("apple"), &encode(&(apples - 1)))?;
        let seen: u32 = decode(&other.find(&stock, &encode("apple"))?.expect("apples"))?;
        println!("{} apples, others still see {seen}", apples - 1);
        other.commit()
    })?;

    // Thrown away, as the closure says that it failed.
    let refused = session.transaction(|s| -> Result<()> {
        s.remove(&stock, &encode("cherry"))?;
        Err(Error::invalid("who would sell all cherries?"))
    });
    println!("{}", refused.expect_err("it fails"));
    Ok(())
}

fn print(engine: &Arc<Engine>) -> Result<()> {
    let (stock, mut session) = (engine.open_table("shop/stock")?, engine.session());
    for row in session.range(&stock, 0, encode("b")..)? {
        let (item, count) = row?;
        println!("  {:<8} {}", decode::<String>(&item)?, decode::<u32>(&count)?);
    }
    session.commit()
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
    print(&engine)?;
    engine.close(CloseMode::Clean)
}
