//! Indexes built as a whole.

use super::*;

pub fn build_index(engine: &Arc<Engine>, name: &str, memory: u64, tmp: &Path, dup: bool) -> Result<()> {
    let table = engine.open_table(name)?;
    let mut session = engine.session();
    let mut build = IndexBuild::begin(&mut session, &table, dup, tmp, memory)?;
    for row in session.rows(&table, 0)? {
        let (k, v) = row?;
        let mut key: Vec<u8> = v.iter().rev().copied().collect();
        let unique_len = if dup { 1 } else { 0 };
        key.extend_from_slice(&k);
        build.add(&key, unique_len, b"")?;
    }
    session.commit()?;
    let indexes = [(IndexSpec::UNIQUE, Some(0)), (IndexSpec::PLAIN, None)];
    build.finish()?;
    let to = NewDefinition { frm: b"new image", ..Default::default() };
    engine.alter_tables(&mut [Alteration { name, to, indexes: &indexes, builds: vec![&mut build], contents: None }])
}

/// Entries of a table's second index that everybody sees.
pub fn secondary_entries(engine: &Arc<Engine>, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = engine.open_table(name).unwrap();
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(1));
    let mut cursor = Cursor::open(&mut session, &table, 1, CursorOptions::default()).unwrap();
    let mut entries = Vec::new();
    let mut entry = cursor.seek(&mut session, Seek::First, b"").unwrap();
    while let Some(found) = entry {
        entries.push((found.key.to_vec(), found.value.to_vec()));
        entry = cursor.next(&mut session).unwrap();
    }
    session.commit().unwrap();
    entries
}

#[test]
fn indexes_are_built_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.start_background();
    for (name, n, memory) in [("d/small", 50, 1 << 20), ("d/large", 30_000, 1 << 20), ("d/memory", 30_000, 64 << 20)] {
        engine.create_table(name, &spec()).unwrap();
        fill(&engine, name, n);
        build_index(&engine, name, memory, dir.path(), false).unwrap();
        let table = engine.open_table(name).unwrap();
        table.check(&mut |finding| panic!("{name}: {finding}")).unwrap();
        assert_eq!(secondary_entries(&engine, name).len(), n as usize);
        assert!(matches!(build_index(&engine, name, memory, dir.path(), true), Err(Error::DuplicateKey { .. })));
        assert_eq!(engine.frm(name).unwrap(), b"new image");
    }
    engine.close(CloseMode::Purged).unwrap();
}

/// Fills a table of two secondary indexes, the second unique in its first two bytes; in a folder: sorted.
fn copy_rows(engine: &Arc<Engine>, name: &str, n: u32, same: u32, sorted: Option<(&Path, u64)>) -> Result<()> {
    let table = engine.open_table(name)?;
    let mut session = engine.session();
    let mut copy = TableCopy::begin(&table, sorted)?;
    let kind = OpKind::Insert;
    for i in 0..n {
        let (row, value) = (i.to_be_bytes(), [i as u8; 40]);
        let plain = [&i.wrapping_mul(0x9E37_79B1).to_le_bytes()[..], &row].concat();
        let unique = [&((i % same) as u16).to_be_bytes()[..], &row].concat();
        let ops = [
            Op { kind, index_no: 0, key: &row, unique_len: 4, value: &value, head_len: 0 },
            Op { kind, index_no: 1, key: &plain, unique_len: 0, value: b"", head_len: 0 },
            Op { kind, index_no: 2, key: &unique, unique_len: 2, value: b"x", head_len: 0 },
        ];
        copy.apply(&mut session, ops.into_iter())?;
    }
    let finished = copy.finish(&mut session);
    if matches!(finished, Err(Error::DuplicateKey { .. })) {
        assert_eq!(copy.duplicate(), (2, &[0, 0, 0, 0, 0, 100][..]));
    }
    finished
}

#[test]
fn copies_sort_the_entries_of_their_secondary_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    let indexes = [IndexSpec::UNIQUE, IndexSpec::PLAIN, IndexSpec::UNIQUE];
    let spec = TableSpec { indexes: &indexes, ..Default::default() };
    let folder = dir.path();
    let cases =
        [("d/plain", 30_000, None), ("d/files", 60_000, Some((folder, 1 << 20))), ("d/few", 9, Some((folder, 0)))];
    for (name, n, sorted) in cases {
        engine.create_table(name, &spec).unwrap();
        copy_rows(&engine, name, n, 1 << 16, sorted).unwrap();
        engine.open_table(name).unwrap().check(&mut |finding| panic!("{name}: {finding}")).unwrap();
        assert_eq!(rows(&engine, name).len(), n as usize);
        assert_eq!(secondary_entries(&engine, name).len(), n as usize);
    }
    for (name, sorted) in [("d/duplicate", None), ("d/sorted_duplicate", Some((folder, 1 << 20)))] {
        engine.create_table(name, &spec).unwrap();
        assert!(matches!(copy_rows(&engine, name, 5_000, 100, sorted), Err(Error::DuplicateKey { .. })), "{name}");
        engine.drop_table(name).unwrap();
    }
    engine.close(CloseMode::Purged).unwrap();
}

/// Whoever reclaims looks for work at any moment of a build, also just before it is noted and just after it is adopted.
#[test]
fn an_index_is_not_reclaimed_under_its_builder() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/other", &spec()).unwrap();
    fill(&engine, "d/other", 1);
    let other = engine.open_table("d/other").unwrap();
    // Other builds that go on: a look passes over them, so that it takes some time.
    let _builds: Vec<IndexBuild> = std::iter::repeat_with(|| {
        let mut build = IndexBuild::begin(&mut engine.session(), &other, false, Path::new("/data"), 1 << 20).unwrap();
        build.finish().unwrap();
        build
    })
    .take(500)
    .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reclaimer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                engine.background_step().unwrap();
            }
        });
        let builder = scope.spawn(|| {
            for i in 0..1000 {
                let name = format!("d/t{i}");
                engine.create_table(&name, &spec()).unwrap();
                fill(&engine, &name, 3);
                build_index(&engine, &name, 1 << 20, Path::new("/data"), false).unwrap();
                assert_eq!(secondary_entries(&engine, &name).len(), 3, "{name}");
                engine.drop_table(&name).unwrap();
            }
        });
        let built = builder.join();
        done.store(true, Ordering::Release);
        reclaimer.join().unwrap();
        built.unwrap();
    });
}

/// A kill of the session ends a build, also while it writes the index, or brings it up to date.
#[test]
fn a_killed_build_ends() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    let add = |build: &mut IndexBuild, from: u32| {
        for i in from..from + 3_000 {
            build.add(&i.to_be_bytes(), 0, b"").unwrap();
        }
    };
    let mut build = IndexBuild::begin(&mut session, &table, false, Path::new("/data"), 1 << 20).unwrap();
    add(&mut build, 0);
    session.kill_handle().kill();
    assert_eq!(build.finish(), Err(Error::Interrupted));
    session.reset_kill();
    let mut build = IndexBuild::begin(&mut session, &table, false, Path::new("/data"), 1 << 20).unwrap();
    add(&mut build, 0);
    build.finish().unwrap();
    add(&mut build, 3_000);
    session.kill_handle().kill();
    assert_eq!(build.catch_up(), Err(Error::Interrupted));
    drop(build);
    while engine.background_step().unwrap() {}
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

#[test]
fn a_killed_check_ends() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let session = engine.session();
    let check = || session.check(&table, false, &mut |finding| panic!("{finding}"));
    assert_eq!(check(), Ok(()));
    session.kill_handle().kill();
    assert_eq!(check(), Err(Error::Interrupted));
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

#[test]
fn tables_change_together_or_not_at_all() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    for name in ["d/t#P#p0", "d/t#P#p1"] {
        engine
            .create_table(name, &TableSpec { indexes: &[IndexSpec::UNIQUE, IndexSpec::PLAIN], ..Default::default() })
            .unwrap();
    }
    let to = NewDefinition { definition_id: Some([7; 16]), row_layouts: Some(b"layouts"), ..Default::default() };
    let fewer: &[_] = &[(IndexSpec::UNIQUE, Some(0))];
    let change = |names: &[&'static str]| {
        let of = |&name: &&'static str| Alteration { name, to, indexes: fewer, builds: Vec::new(), contents: None };
        engine.alter_tables(&mut names.iter().map(of).collect::<Vec<_>>())
    };
    let state = |name: &str| {
        let table = engine.open_table(name).unwrap();
        let both = table.has_indexes(&[IndexSpec::UNIQUE, IndexSpec::PLAIN]);
        assert!(both || table.has_indexes(&[IndexSpec::UNIQUE]));
        (1 + u32::from(both), table.row_layouts().to_vec())
    };
    assert_eq!(engine.definition_id("d/t#P#").unwrap(), Some([0; 16]));
    assert_eq!(engine.definition_id("d/u#P#").unwrap(), None);
    assert!(matches!(change(&["d/t#P#p0", "d/t#P#p1", "d/t#P#p2"]), Err(Error::NoSuchTable { .. })));
    assert!(matches!(change(&[]), Err(Error::Invalid { .. })));
    for name in ["d/t#P#p0", "d/t#P#p1"] {
        assert_eq!(state(name), (2, Vec::new()));
    }
    assert_eq!(engine.definition_id("d/t#P#").unwrap(), Some([0; 16]));
    change(&["d/t#P#p0", "d/t#P#p1"]).unwrap();
    for name in ["d/t#P#p0", "d/t#P#p1"] {
        assert_eq!(state(name), (1, b"layouts".to_vec()));
        assert!(engine.frm(name).unwrap().is_empty());
    }
    assert_eq!(engine.definition_id("d/t#P#").unwrap(), Some([7; 16]));
}

#[test]
fn a_table_takes_the_contents_of_another() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    for placement in [Placement::Database, Placement::Table] {
        let name = &format!("d/t{}", placement as u8);
        let spec = |auto_increment_next| TableSpec {
            indexes: &[IndexSpec::UNIQUE],
            placement: Some(placement),
            auto_increment_next,
            ..Default::default()
        };
        engine.create_table(name, &TableSpec { frm: b"image", ..spec(Some(1)) }).unwrap();
        engine.create_table("d/#sql-new", &spec(Some(1))).unwrap();
        fill(&engine, name, 10);
        fill(&engine, "d/#sql-new", 500);
        let mut reader = engine.session();
        reader.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
        reader.open_snapshot().unwrap();
        let (old, new) = (engine.open_table(name).unwrap(), engine.open_table("d/#sql-new").unwrap());
        new.auto_increment_set(77).unwrap();
        let take = |contents| {
            let to = NewDefinition { frm: b"new image", ..Default::default() };
            engine.alter_tables(&mut [Alteration { name, to, indexes: &[], builds: Vec::new(), contents }])
        };
        assert!(matches!(take(Some(&**name)), Err(Error::Invalid { .. })));
        assert!(matches!(take(Some("d/none")), Err(Error::NoSuchTable { .. })));
        assert_eq!(rows(&engine, name).len(), 10);
        take(Some("d/#sql-new")).unwrap();
        assert!(!old.is_current() && !new.is_current());
        assert!(!engine.table_exists("d/#sql-new").unwrap());
        assert_eq!(engine.frm(name).unwrap(), b"new image");
        assert_eq!(rows(&engine, name).len(), 500);
        let table = engine.open_table(name).unwrap();
        assert!(table.is_current());
        assert_eq!(table.info().unwrap().auto_increment_next, 77);
        let read = reader.get(&table, 0, b"", false, Lock::None, Wait::Wait);
        assert!(matches!(read, Err(Error::DefinitionChanged { .. })), "{read:?}");
    }
    drop(engine);
    let io = io.crash(7);
    let engine = open_sim(&io, sim_config()).unwrap();
    for name in ["d/t0", "d/t2"] {
        assert_eq!(rows(&engine, name).len(), 500);
        assert_eq!(engine.open_table(name).unwrap().info().unwrap().auto_increment_next, 77);
        fill_more(&engine, name);
    }
}

fn fill_more(engine: &Arc<Engine>, name: &str) {
    let table = engine.open_table(name).unwrap();
    let mut session = engine.session();
    session.insert(&table, b"one more", b"row").unwrap();
    session.commit().unwrap();
    assert_eq!(rows(engine, name).len(), 501);
}

/// A table may be in use when it gets the image that it lacks: one share goes on, with its counters.
#[test]
fn an_image_is_adopted_beside_users() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &TableSpec { frm: b"", auto_increment_next: Some(5), ..spec() }).unwrap();
    let before = engine.open_table("d/t").unwrap();
    engine.adopt_image("d/t", b"image").unwrap();
    engine.adopt_image("d/t", b"another, by who came too late").unwrap();
    assert_eq!(engine.frm("d/t").unwrap(), b"image");
    assert!(before.is_current());
    let after = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    assert_eq!(session.auto_increment_reserve(&before, 1, 1, 1, u64::MAX).unwrap(), 5);
    assert_eq!(session.auto_increment_reserve(&after, 1, 1, 1, u64::MAX).unwrap(), 6);
    session.insert(&after, b"k", b"v").unwrap();
    session.commit().unwrap();
    assert!(matches!(engine.adopt_image("d/none", b"image"), Err(Error::NoSuchTable { .. })));
    let io = io.crash(3);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(engine.frm("d/t").unwrap(), b"image");
    assert_eq!(engine.open_table("d/t").unwrap().info().unwrap().auto_increment_next, 7);
}

/// Users that find a table without a counter at once all get the same one.
#[test]
fn a_counter_is_added_beside_users() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let (first, second) = (engine.open_table("d/t").unwrap(), engine.open_table("d/t").unwrap());
    assert!(!first.has_auto_increment());
    first.add_auto_increment(40).unwrap();
    second.add_auto_increment(7).unwrap();
    assert!(first.is_current() && second.has_auto_increment());
    let mut session = engine.session();
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    assert_eq!(session.auto_increment_reserve(&first, 1, 1, 1, u64::MAX).unwrap(), 40);
    assert_eq!(session.auto_increment_reserve(&second, 1, 1, 1, u64::MAX).unwrap(), 41);
    session.insert(&second, b"k", b"v").unwrap();
    session.commit().unwrap();
    engine.rename_table("d/t", "d/u").unwrap();
    let table = engine.open_table("d/u").unwrap();
    table.add_auto_increment(7).unwrap();
    assert_eq!(table.info().unwrap().auto_increment_next, 42);
    let io = io.crash(3);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(engine.open_table("d/u").unwrap().info().unwrap().auto_increment_next, 42);
    engine.truncate_table("d/u", 3).unwrap();
    assert_eq!(engine.open_table("d/u").unwrap().info().unwrap().auto_increment_next, 3);
}
