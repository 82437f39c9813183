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
