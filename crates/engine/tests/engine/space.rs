//! Room in tablespaces' files and on the disk.

use super::*;
use myriad_io::{CallKind, Fault, OpenMode};

#[test]
fn rows_fit_where_others_were_on_a_full_disk() {
    let io = SimIo::new(12);
    let engine = open_sim(&io, sim_config()).unwrap();
    ["d/t", "d/u"].iter().for_each(|name| engine.create_table(name, &spec()).unwrap());
    let mut session = engine.session();
    let mut insert = |table: &Table, n: u32| {
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

/// A file system that fails to take one tablespace's extents back keeps no other's from going back.
#[test]
fn one_tablespaces_trouble_keeps_no_others_holes() {
    let io = SimIo::new(13);
    let engine = open_sim(&io, sim_config()).unwrap();
    for database in ["d", "e", "f"] {
        for table in ["gone", "stays"] {
            engine.create_table(&format!("{database}/{table}"), &spec()).unwrap();
        }
        fill(&engine, &format!("{database}/stays"), 10);
        let table = engine.open_table(&format!("{database}/gone")).unwrap();
        let mut session = engine.session();
        (0..4_000u32).for_each(|i| session.insert(&table, &i.to_be_bytes(), &[1; 1000]).unwrap());
        session.commit().unwrap();
    }
    io.inject(CallKind::Punch, "#myriad/d.", 0, Fault::Eio, true);
    let settle = || std::iter::repeat_with(|| engine.background_step()).find(|done| !matches!(done, Ok(true)));
    assert_eq!(settle(), Some(Ok(false)));
    for database in ["d", "e", "f"] {
        engine.drop_table(&format!("{database}/gone")).unwrap();
    }
    let trouble = settle();
    assert!(matches!(trouble, Some(Err(Error::Io { .. }))), "{trouble:?}");
    assert!(io.calls(CallKind::Punch) >= 3, "{} calls", io.calls(CallKind::Punch));
    assert_eq!(settle(), Some(Ok(false)));
    assert_eq!(rows(&engine, "f/stays").len(), 10);
}

/// What DELETE leaves of a table goes back to the file system when purge has removed the rows, beside others who take and free pages of the
/// same file all the time; a crash finds the rest whole, and the holes are used again.
#[test]
fn deleted_rows_leave_their_room_to_the_file_system() {
    let io = SimIo::new(14);
    let config = || EngineConfig { page_size: 4096, ..sim_config() };
    let engine = open_sim(&io, config()).unwrap();
    ["d/t", "d/u"].iter().for_each(|name| engine.create_table(name, &spec()).unwrap());
    let key = |i: u32| i.to_be_bytes();
    let insert = |engine: &Arc<Engine>, name: &str, keys: std::ops::Range<u32>| {
        let (table, mut session) = (engine.open_table(name).unwrap(), engine.session());
        keys.for_each(|i| session.insert(&table, &key(i), &[i as u8; 1000]).unwrap());
        session.commit().unwrap();
    };
    let remove = |engine: &Arc<Engine>, name: &str, keys: std::ops::Range<u32>| {
        let (table, mut session) = (engine.open_table(name).unwrap(), engine.session());
        keys.for_each(|i| assert!(session.remove(&table, &key(i)).unwrap()));
        session.commit().unwrap();
    };
    insert(&engine, "d/t", 0..8_000);
    insert(&engine, "d/u", 0..10);
    engine.checkpoint_now().unwrap();
    // Extents of 64 pages that hold nothing.
    let holes = || {
        let folder = Path::new("/data/#myriad");
        let name = io.list_dir(folder).unwrap().into_iter().find(|f| f.starts_with("d.")).expect("file");
        let file = io.open(&folder.join(name), OpenMode::READ).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes.chunks_exact(64 * 4096).filter(|extent| extent.iter().all(|&b| b == 0)).count()
    };
    let before = holes();
    remove(&engine, "d/t", 500..7_500);
    // A queue: each round takes pages and frees others.
    for round in 0..40 {
        insert(&engine, "d/u", 10 + round * 20..30 + round * 20);
        remove(&engine, "d/u", round * 20..20 + round * 20);
        (0..40).for_each(|_| _ = engine.background_step().unwrap());
        engine.checkpoint_now().unwrap();
    }
    let given_back = holes() - before;
    assert!(given_back > 20, "{given_back} extents of 7 million bytes");
    for seed in 0..3 {
        let again = open_sim(&io.crash(seed), config()).unwrap();
        assert_eq!((rows(&again, "d/t").len(), rows(&again, "d/u").len()), (1_000, 10));
        insert(&again, "d/t", 500..7_500);
        assert_eq!(rows(&again, "d/t").len(), 8_000);
    }
}

/// The files of a dropped database share their syncs, in the background and at the start after a crash; one that cannot be
/// removed keeps no other.
#[test]
fn files_of_dropped_tables_go_together() {
    let mut io = SimIo::new(15);
    let mut engine = open_sim(&io, sim_config()).unwrap();
    let user_files = |engine: &Engine| engine.spaces().unwrap().iter().filter(|s| s.space_id >= 16).count();
    const FILES: u64 = 100;
    for crash in [false, true] {
        let own = TableSpec { placement: Some(Placement::Table), ..spec() };
        (0..FILES).for_each(|n| engine.create_table(&format!("d/t{n}"), &own).unwrap());
        let stuck = format!("#myriad/d.{}.", engine.spaces().unwrap().iter().map(|s| s.space_id).max().unwrap() - 50);
        io.inject(CallKind::Remove, &stuck, 0, Fault::Eio, true);
        engine.drop_database("d").unwrap();
        if crash {
            io = io.crash(1);
            io.inject(CallKind::Remove, &stuck, 0, Fault::Eio, true);
        }
        let before = io.calls(CallKind::SyncDir);
        if crash {
            engine = open_sim(&io, sim_config()).unwrap();
        } else {
            while engine.background_step().is_ok() {}
        }
        let syncs = io.calls(CallKind::SyncDir) - before;
        assert!(syncs < FILES / 10, "{syncs} syncs");
        assert_eq!(user_files(&engine), 1);
        io.clear_faults();
        while engine.background_step().unwrap() {}
        assert_eq!(user_files(&engine), 0);
    }
}

/// Overflow pages of rows that go with their table are freed, or known by their row still: a page that cannot be read in the
/// middle costs one row's at most.
#[test]
fn a_dropped_tables_long_rows_leave_no_pages_behind() {
    let io = SimIo::new(14);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/stays", &spec()).unwrap();
    fill(&engine, "d/stays", 10);
    let settle = || std::iter::repeat_with(|| engine.background_step()).find(|done| !matches!(done, Ok(true)));
    let fill_long = |name: &str| {
        engine.create_table(name, &spec()).unwrap();
        let table = engine.open_table(name).unwrap();
        let mut session = engine.session();
        for i in 0..200u32 {
            session.insert(&table, &i.to_be_bytes(), &[1; 60_000]).unwrap();
            session.commit().unwrap();
            engine.background_step().unwrap();
        }
        io.used_bytes()
    };
    let full = fill_long("d/gone");
    engine.drop_table("d/gone").unwrap();
    io.inject(CallKind::Read, "#myriad/d.", 150, Fault::Eio, false);
    let trouble = settle();
    assert!(matches!(trouble, Some(Err(Error::Io { .. }))), "{trouble:?}");
    assert_eq!(settle(), Some(Ok(false)));
    let again = fill_long("d/again");
    assert!(again < full + (2 << 20), "{again} bytes the second time, {full} the first");
}

#[test]
fn the_status_tells_what_is_left_of_a_dropped_table() {
    let engine = open_sim(&SimIo::new(14), sim_config()).unwrap();
    engine.create_table("d/gone", &spec()).unwrap();
    engine.create_table("d/stays", &spec()).unwrap();
    let table = engine.open_table("d/gone").unwrap();
    let mut session = engine.session();
    (0..4_000u32).for_each(|i| session.insert(&table, &i.to_be_bytes(), &[1; 1000]).unwrap());
    session.commit().unwrap();
    drop(table);
    while engine.background_step().unwrap() {}
    let told = || {
        let status = engine.status_text();
        let line = status.lines().find_map(|line| line.strip_prefix("Dropped tables and indexes: "));
        line.expect("a line of dropped tables").to_string()
    };
    assert_eq!(told(), "all removed");
    engine.drop_table("d/gone").unwrap();
    let mut lines = std::collections::BTreeSet::new();
    while engine.background_step().unwrap() {
        lines.insert(told());
    }
    // Of several hundred leaves 64 go with a step.
    let removing: Vec<_> = lines.iter().filter(|line| line.starts_with("removing index ")).collect();
    assert!(removing.len() > 2, "{lines:?}");
    assert!(removing.iter().any(|line| line.ends_with("some 128 leaves of it so far")), "{lines:?}");
    assert_eq!(told(), "all removed");
}

/// A table that is emptied again and again, more often than checkpoints pass, keeps from the file system neither what a dropped table has
/// left in the same file nor what deleted rows have left in another.
#[test]
fn tables_emptied_one_after_the_other_put_no_holes_off() {
    const ROWS: u32 = 8_000;
    for often in ["d/often", "e/often"] {
        let io = SimIo::new(16);
        let engine = open_sim(&io, EngineConfig { page_size: 4096, ..sim_config() }).unwrap();
        engine.create_table(often, &spec()).unwrap();
        for name in ["d/large", "e/large"] {
            engine.create_table(name, &spec()).unwrap();
            let (table, mut session) = (engine.open_table(name).unwrap(), engine.session());
            (0..ROWS).for_each(|i| session.insert(&table, &i.to_be_bytes(), &[1; 1000]).unwrap());
            session.commit().unwrap();
        }
        engine.drop_table("e/large").unwrap();
        while engine.background_step().unwrap() {}
        if often == "d/often" {
            engine.drop_table("d/large").unwrap();
        } else {
            let (table, mut session) = (engine.open_table("d/large").unwrap(), engine.session());
            (0..ROWS).for_each(|i| assert!(session.remove(&table, &i.to_be_bytes()).unwrap()));
            session.commit().unwrap();
        }
        // Tells that it is tried.
        io.inject(CallKind::Punch, "#myriad/d.", 0, Fault::Eio, true);
        let tried = (0..300).any(|_| {
            engine.truncate_table(often, 1).unwrap();
            let tried = (0..2).any(|_| engine.background_step().is_err());
            engine.checkpoint_now().unwrap();
            tried
        });
        assert!(tried, "{often}");
    }
}
