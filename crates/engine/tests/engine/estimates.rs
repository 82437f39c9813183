//! What statistics say of tables whose rows are not alike.

use super::*;

/// With the table in memory, read from its file at first and by ANALYZE, and by what that has told.
#[test]
fn the_first_rows_do_not_speak_for_the_others() {
    let io = SimIo::new(14);
    // What others are told for a moment is told for as long as the test wants.
    let clock = Arc::new(ManualClock::default());
    let config = || EngineConfig { buffer_pool_bytes: 16 << 20, clock: clock.clone(), ..sim_config() };
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
    let analyzed = table.info_of(Detail::Closely).unwrap();
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
    clock.advance(Duration::from_millis(600));
    let known = table.info().unwrap();
    assert!((35_000..45_000).contains(&known.rows), "{known:?}");
}

/// A plan is told of the rows' own pages alone.
#[test]
fn sizes_have_overflow_pages() {
    let engine = open_sim(&SimIo::new(16), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    for i in 0..50u32 {
        session.insert(&table, &i.to_be_bytes(), &vec![1; if i % 5 == 0 { 100_000 } else { 10 }]).unwrap();
    }
    session.commit().unwrap();
    let sizes = table.info().unwrap();
    assert!((1_000_000..1_300_000).contains(&sizes.data_bytes), "{sizes:?}");
    assert!((20_000..26_000).contains(&sizes.mean_row_bytes), "{sizes:?}");
    let rows = table.info_of(Detail::Rows).unwrap();
    assert!(rows.data_bytes < 50_000 && rows.mean_row_bytes < 1_000, "{rows:?}");
}

/// Rows as the table tells them, and that it tells them again without a look at any page.
fn told_rows(table: &Table) -> u64 {
    let stats = table.info().unwrap();
    let accessed = work::of_thread().pages_accessed;
    let mut expected = stats;
    expected.index_bytes = 0;
    assert_eq!(table.info_of(Detail::Rows).unwrap(), expected);
    assert_eq!(work::of_thread().pages_accessed, accessed, "pages accessed for statistics of an unchanged table");
    stats.rows
}

/// In a leaf of its own or one that others share, in memory alone or not.
#[test]
fn rows_of_a_small_table_are_kept_and_never_old() {
    let io = SimIo::new(15);
    let engine = open_sim(&io, sim_config()).unwrap();
    for in_memory in [false, true] {
        let indexes: &[IndexSpec] = &[IndexSpec::UNIQUE, IndexSpec::default()];
        let name = |table: &str| format!("d{}/{table}", u8::from(in_memory));
        let open = |table: &str| {
            engine.create_table(&name(table), &TableSpec { indexes, in_memory, ..spec() }).unwrap();
            engine.open_table(&name(table)).unwrap().with_index_keys([|row| Ok(row.value[..1].to_vec())]).unwrap()
        };
        let [before, table, behind] = ["a", "t", "z"].map(open);
        let mut session = engine.session();
        assert_eq!(told_rows(&table), 0);
        for (n, rows) in [(1u32, 1), (2, 2), (2, 1), (3, 2), (1, 1), (3, 0)] {
            let others = told_rows(&behind);
            if rows > told_rows(&table) {
                session.insert(&table, &n.to_be_bytes(), b"x").unwrap();
            } else {
                session.remove(&table, &n.to_be_bytes()).unwrap();
                session.commit().unwrap();
                settle(&engine);
            }
            assert_eq!(told_rows(&table), rows, "after {n}");
            assert_eq!(told_rows(&behind), others);
        }
        for n in 0..50u32 {
            session.insert(&before, &n.to_be_bytes(), &[1; 20]).unwrap();
            session.insert(&behind, &n.to_be_bytes(), &[1; 20]).unwrap();
            assert_eq!((told_rows(&before), told_rows(&table)), (u64::from(n) + 1, 0));
        }
        session.commit().unwrap();
        session.insert(&table, b"1", &[1; 3]).unwrap();
        assert!((5..50).contains(&table.info().unwrap().mean_row_bytes), "not that of others' rows");
        assert_eq!(told_rows(&table), 1);
        session.rollback().unwrap();
        settle(&engine);
        assert_eq!(told_rows(&table), 0);
        // Over splits, up to as many leaves as are remembered.
        let mut leaves_max = 0;
        for n in 0..300u32 {
            session.insert(&table, &n.to_be_bytes(), &[1; 200]).unwrap();
            let stats = table.info().unwrap();
            let leaves = stats.data_bytes / engine.page_size() as u64;
            if leaves <= 4 {
                leaves_max = leaves_max.max(leaves);
                assert_eq!(told_rows(&table), u64::from(n) + 1, "{leaves} leaves");
            }
        }
        assert!(leaves_max >= 3, "{leaves_max} leaves");
        session.commit().unwrap();
    }
}

/// Its leaf leaves memory, and is changed before anybody asks again.
#[test]
fn rows_of_a_leaf_that_was_read_again_are_counted_again() {
    let io = SimIo::new(16);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    engine.create_table("e/large", &spec()).unwrap();
    let (table, large) = (engine.open_table("d/t").unwrap(), engine.open_table("e/large").unwrap());
    let mut session = engine.session();
    for round in 0..3u8 {
        session.insert(&table, &[round], b"x").unwrap();
        session.commit().unwrap();
        assert_eq!(told_rows(&table), u64::from(round) + 1);
        for n in 0..8_000u32 {
            let key = [&[round][..], &n.to_be_bytes()].concat();
            session.insert(&large, &key, &[1; 1_000]).unwrap();
            if n % 1_000 == 0 {
                session.commit().unwrap();
            }
        }
        session.commit().unwrap();
    }
    assert_eq!(told_rows(&table), 3);
}

/// One adds rows, others ask all the time: what one of them keeps is not taken for what is true now.
#[test]
fn who_asks_beside_a_writer_spoils_no_statistics() {
    let io = SimIo::new(17);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let (stop, written) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let least = written.load(Ordering::Acquire);
                    let rows = table.info().unwrap().rows;
                    assert!(rows >= least, "{rows} rows of {least} and more");
                }
            });
        }
        let mut session = engine.session();
        for n in 0..400u32 {
            session.insert(&table, &n.to_be_bytes(), &[1; 40]).unwrap();
            written.store(u64::from(n) + 1, Ordering::Release);
            for _ in 0..10 {
                assert_eq!(table.info().unwrap().rows, u64::from(n) + 1);
            }
        }
        session.commit().unwrap();
        stop.store(true, Ordering::Release);
    });
}

/// Nobody has the table open for a while, then it is opened as it was, or another one in its place.
#[test]
fn statistics_outlive_the_open_table() {
    let io = SimIo::new(18);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 100);
    let open = || engine.open_table("d/t").unwrap();
    let kept = |len: usize| {
        let mut samples = vec![0; len];
        open().kept_samples(&mut samples).then_some(samples)
    };
    assert_eq!((kept(3), open().info().unwrap().rows), (None, 100));
    open().keep_samples(&[100, 3, 1]);
    let accessed = work::of_thread().pages_accessed;
    assert_eq!((kept(3), open().info().unwrap().rows), (Some(vec![100, 3, 1]), 100));
    assert_eq!(work::of_thread().pages_accessed, accessed);
    assert_eq!(kept(2), None);
    // Many others are opened meanwhile.
    for n in 0..20 {
        engine.create_table(&format!("d/other{n}"), &spec()).unwrap();
        engine.open_table(&format!("d/other{n}")).unwrap();
    }
    assert!(kept(3).is_some());
    engine.truncate_table("d/t", 1).unwrap();
    assert_eq!((kept(3), open().info().unwrap().rows), (None, 0));
    // Not even if nobody had it open.
    open().keep_samples(&[0, 1, 1]);
    engine.truncate_table("d/t", 1).unwrap();
    assert_eq!(kept(3), None);
}
