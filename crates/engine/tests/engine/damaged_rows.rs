//! Pages of tables that cannot be read: what background work makes of them.

use super::*;
use myriad_io::OpenMode;

#[test]
fn purge_tells_each_damaged_page_once() {
    let io = SimIo::new(65);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 100);
    engine.checkpoint_now().unwrap();
    let path = format!("/data/{}", engine.spaces().unwrap()[2].path);
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for i in 0..40u32 {
        session.remove(&table, &i.to_be_bytes()).unwrap();
    }
    session.commit().unwrap();
    engine.flush_log().unwrap();
    let io = io.kill(1);
    std::mem::forget((engine, table, session));

    let page_size = sim_config().page_size as u64;
    let pages = io.open(Path::new(&path), OpenMode::READ).unwrap().len().unwrap() / page_size;
    for page in 2..pages {
        io.flip_bit(Path::new(&path), page * page_size + 100, 3).unwrap();
    }
    let (config, told) = told(Level::Warning);
    let engine = open_sim(&io, config).unwrap();
    while engine.background_step().unwrap() {}
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|t| t.starts_with("purge leaves old versions")).count(), 1, "{told:?}");
}

/// Damages the leaves of a file, but for the last one. In the order of their pages, as rows were added at the end.
fn damage_leaves(io: &SimIo, path: &Path) {
    let page_size = sim_config().page_size;
    let file = io.open(path, OpenMode::READ).unwrap();
    let mut page = vec![0; page_size];
    let mut is_leaf = |at: u64| file.read_at(&mut page, at).unwrap() == page_size && page[12..14] == [3, 0];
    let pages = (2..file.len().unwrap() / page_size as u64).map(|no| no * page_size as u64);
    let leaves: Vec<u64> = pages.filter(|&at| is_leaf(at)).collect();
    assert_eq!(leaves.len(), 9);
    leaves[..8].iter().for_each(|at| io.flip_bit(path, at + 100, 3).unwrap());
}

/// The next leaf of the table that is dropped is one of them.
#[test]
fn damaged_pages_of_another_table_keep_none_from_being_removed() {
    beside_damaged(66, 1);
}

/// More tables than there are damaged pages.
#[test]
fn damaged_pages_of_many_tables_keep_none_from_being_removed() {
    beside_damaged(67, 41);
}

fn beside_damaged(seed: u64, tables: u32) {
    let io = SimIo::new(seed);
    let engine = open_sim(&io, sim_config()).unwrap();
    let name = |number| format!("d/damaged{number}");
    // Five rows a leaf, and one in the last.
    for number in 0..tables {
        engine.create_table(&name(number), &spec()).unwrap();
        let (table, mut session) = (engine.open_table(&name(number)).unwrap(), engine.session());
        for i in 0..41 / tables {
            session.insert(&table, &i.to_be_bytes(), &[7; 3_000]).unwrap();
        }
        session.commit().unwrap();
    }
    let path = Path::new("/data").join(&engine.spaces().unwrap()[2].path);
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    damage_leaves(&io, &path);
    let engine = open_sim(&io, sim_config()).unwrap();
    let used = || {
        engine.checkpoint_now().unwrap();
        let mut bitmap = vec![0; sim_config().page_size];
        io.open(&path, OpenMode::READ).unwrap().read_at(&mut bitmap, sim_config().page_size as u64).unwrap();
        u32::from_le_bytes(bitmap[28..32].try_into().unwrap())
    };
    let before = used();
    engine.create_table("d/sound", &spec()).unwrap();
    fill(&engine, "d/sound", 3_000);
    assert!(used() > before + 4);
    engine.drop_table("d/sound").unwrap();
    (0..50).for_each(|_| drop(engine.background_step()));
    let status = engine.status_text();
    assert!(status.contains("indexes: all removed") && used() == before, "{status}");
    // Nor when that table is dropped, too, and its own removal fails.
    engine.create_table("d/sound", &spec()).unwrap();
    fill(&engine, "d/sound", 3_000);
    (0..tables).for_each(|number| engine.drop_table(&name(number)).unwrap());
    engine.drop_table("d/sound").unwrap();
    (0..200).for_each(|_| drop(engine.background_step()));
    assert_eq!(used(), before);
}
