//! Catalog rows that are not what was written, on pages with a right checksum.

use super::*;
use myriad_base::page::seal;
use myriad_io::OpenMode;

const SYSTEM: &str = "/data/#myriad/system.myr";

/// Changes a byte of what `needle` begins, wherever it is in the catalog's file.
fn damage(io: &SimIo, needle: &[u8], at: usize) {
    let page_size = sim_config().page_size;
    let file = io.open(Path::new(SYSTEM), OpenMode::READ).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let places: Vec<usize> = bytes.windows(needle.len()).enumerate().filter(|w| w.1 == needle).map(|w| w.0).collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place + at] ^= 1;
        let start = place / page_size * page_size;
        seal(&mut bytes[start..start + page_size]);
        io.scribble(Path::new(SYSTEM), start as u64, &bytes[start..start + page_size]).unwrap();
    }
}

/// The server reads what an image says of its own lengths and offsets without looking whether they are within it.
#[test]
fn a_damaged_definition_is_not_given_to_the_server() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    let images: Vec<Vec<u8>> = (0..2u8).map(|no| (0..500u32).map(|i| (i * i / 3) as u8 ^ no).collect()).collect();
    for (name, frm) in [("d/damaged", &images[0]), ("d/sound", &images[1])] {
        engine.create_table(name, &TableSpec { frm, ..spec() }).unwrap();
    }
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    damage(&io, &images[0][200..300], 50);
    let engine = open_sim(&io, sim_config()).unwrap();
    let refused = engine.frm("d/damaged").unwrap_err().to_string();
    assert!(refused.contains("is not what was stored"), "{refused}");
    assert_eq!(engine.frm("d/sound").unwrap(), images[1]);
    // It is in nobody's way.
    engine.create_table("d/new", &TableSpec { frm: &images[0], ..spec() }).unwrap();
    assert_eq!(engine.frm("d/new").unwrap(), images[0]);
    engine.drop_table("d/damaged").unwrap();
    engine.close(CloseMode::Purged).unwrap();
}

/// Nobody knows a tablespace by its number, and while nothing is open nobody can ask.
#[test]
fn a_start_that_meets_a_damaged_page_names_its_file() {
    for name in ["system.myr", "undo.myr"] {
        let io = SimIo::new(1);
        open_sim(&io, sim_config()).unwrap().close(CloseMode::Clean).unwrap();
        let path = Path::new("/data/#myriad").join(name);
        io.truncate(&path, sim_config().page_size as u64).unwrap();
        let refused = open_sim(&io, sim_config()).map(|_| ()).unwrap_err().to_string();
        assert!(
            refused.ends_with(&format!("is corrupt: the page is all zero; its file is #myriad/{name}")),
            "{refused}"
        );
    }
}
