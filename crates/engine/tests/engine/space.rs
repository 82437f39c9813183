//! Room in tablespaces' files and on the disk.

use crate::{open_sim, rows, sim_config, spec};
use myriad_io::SimIo;

#[test]
fn rows_fit_where_others_were_on_a_full_disk() {
    let io = SimIo::new(12);
    let engine = open_sim(&io, sim_config()).unwrap();
    ["d/t", "d/u"].iter().for_each(|name| engine.create_table(name, &spec()).unwrap());
    let mut session = engine.session();
    let mut insert = |table: &myriad::Table, n: u32| {
        let done = session.insert(table, &n.to_be_bytes(), &[1; 1000]);
        // What was done before the error stays.
        session.commit().unwrap();
        done
    };
    let (t, u) = (engine.open_table("d/t").unwrap(), engine.open_table("d/u").unwrap());
    (0..6_000).for_each(|n| insert(&t, n).unwrap());
    io.set_capacity(Some(io.used_bytes() + (1 << 20)));
    let full = (0..100_000).find(|&n| insert(&u, n).is_err()).expect("a full disk");
    let mut remover = engine.session();
    (3_000..3_250u32).for_each(|n| assert!(remover.remove(&t, &n.to_be_bytes()).unwrap()));
    remover.commit().unwrap();
    while engine.background_step().unwrap() {}
    (full..full + 150).for_each(|n| insert(&u, n).unwrap());
    assert_eq!(rows(&engine, "d/u").len() as u32, full + 150);
}
