//! What the catalog keeps of tables that are no more.

use super::*;
use myriad_io::OpenMode;

const IMAGE_BYTES: usize = 6000;

fn system_bytes(io: &SimIo) -> u64 {
    io.open(Path::new("/data/#myriad/system.myr"), OpenMode::WRITE).unwrap().len().unwrap()
}

fn image(no: u32) -> Vec<u8> {
    (0..IMAGE_BYTES).map(|i| (no >> (i % 4 * 8)) as u8).collect()
}

/// Creates tables and drops them, each with a definition of its own, with background work in between.
fn churn(engine: &Arc<Engine>, numbers: std::ops::Range<u32>) {
    for no in numbers {
        let name = format!("d/t{no}");
        engine.create_table(&name, &TableSpec { frm: &image(no), ..spec() }).unwrap();
        engine.drop_table(&name).unwrap();
        if no % 100 == 0 {
            while engine.background_step().unwrap() {}
        }
    }
}

#[test]
fn definitions_of_dropped_tables_are_removed() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/kept", &TableSpec { frm: &image(7), ..spec() }).unwrap();
    // In the background, after each thousand: the file holds no more than these.
    churn(&engine, 0..3300);
    assert!(system_bytes(&io) < 1300 * 8192 + (1 << 20), "{} bytes", system_bytes(&io));
    // A slow stop takes what is left.
    engine.close(CloseMode::Purged).unwrap();
    drop(engine);
    let before = system_bytes(&io);
    for round in 1..4 {
        let engine = open_sim(&io, sim_config()).unwrap();
        churn(&engine, round * 10_000..round * 10_000 + 700);
        assert_eq!(engine.frm("d/kept").unwrap(), image(7));
        engine.close(CloseMode::Purged).unwrap();
        assert!(system_bytes(&io) <= before, "{} bytes of {before}", system_bytes(&io));
    }
}
