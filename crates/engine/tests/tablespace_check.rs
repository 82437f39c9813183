//! The tablespace check inside an engine, on real files.

use myriad::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ONE_INDEX: &[IndexSpec] = &[IndexSpec::UNIQUE];

fn config(dir: &Path, mode: DuplicateCheck) -> EngineConfig {
    EngineConfig {
        buffer_pool_bytes: 4 << 20,
        log_capacity_bytes: 8 << 20,
        log_buffer_bytes: 1 << 20,
        duplicate_check: mode,
        start_pause: Duration::ZERO,
        ..EngineConfig::new(dir)
    }
}

fn open(dir: &Path, mode: DuplicateCheck) -> Arc<Engine> {
    Engine::open_with(config(dir, mode), None).unwrap()
}

fn create(engine: &Arc<Engine>, name: &str) {
    engine.create_table(name, &TableSpec { indexes: ONE_INDEX, ..Default::default() }).unwrap();
    write(engine, name, b"first").unwrap();
}

fn write(engine: &Arc<Engine>, name: &str, key: &[u8]) -> Result<()> {
    let table = engine.open_table(name)?;
    let mut session = engine.session();
    session.insert(&table, key, b"value")?;
    session.commit()
}

/// A data directory with tables `d/t` and `e/t`, each with a row.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), DuplicateCheck::Off);
    for name in ["d/t", "e/t"] {
        create(&engine, name);
    }
    engine.close(CloseMode::Clean).unwrap();
    dir
}

fn file(dir: &Path, database: &str) -> PathBuf {
    let begin = format!("{database}.");
    let entries = fs::read_dir(dir.join("#myriad")).unwrap().map(|e| e.unwrap());
    entries.map(|e| e.path()).find(|p| p.file_name().unwrap().to_str().unwrap().starts_with(&begin)).unwrap()
}

fn wait(engine: &Arc<Engine>) {
    let begin = Instant::now();
    while matches!(engine.check_status().state, "WAITING" | "RUNNING") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", engine.check_status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn problems(engine: &Arc<Engine>) -> Vec<&'static str> {
    let mut all: Vec<_> = engine.check_findings().iter().map(|f| f.problem).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_sound_directory_is_found_sound() {
    let dir = directory();
    for mode in [DuplicateCheck::Online, DuplicateCheck::Blocking] {
        let engine = open(dir.path(), mode);
        engine.start_background();
        wait(&engine);
        let status = engine.check_status();
        assert_eq!((status.state, status.files, status.expected, status.findings), ("DONE", 4, 4, 0), "{status:?}");
        assert!(engine
            .startup()
            .iter()
            .any(|p| p.phase.starts_with("tablespace check") && (4 * 4096..=8 * 4096).contains(&p.bytes_read)));
        assert!(engine.status_text().contains(&format!("Mode {}, state DONE", mode.name())));
        engine.close(CloseMode::Clean).unwrap();
    }
    let engine = open(dir.path(), DuplicateCheck::Off);
    engine.start_background();
    assert_eq!(engine.check_status().state, "OFF");
}

#[test]
fn a_tablespace_with_a_twin_is_refused_and_others_work() {
    let dir = directory();
    let twin = dir.path().join("#myriad/twin.myr");
    fs::copy(file(dir.path(), "d"), &twin).unwrap();
    let before = (fs::read(&twin).unwrap(), fs::read(file(dir.path(), "d")).unwrap());
    for mode in [DuplicateCheck::Blocking, DuplicateCheck::Online] {
        let engine = open(dir.path(), mode);
        engine.start_background();
        wait(&engine);
        assert_eq!(problems(&engine), ["DUPLICATE"]);
        let refused = write(&engine, "d/t", b"x").unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Error::TablespaceUnavailable { .. }), "{text}");
        assert!(
            text.contains("#myriad/d.") && text.contains("twin.myr") && text.contains("remove the wrong one"),
            "{text}"
        );
        write(&engine, "e/t", format!("{mode:?}").as_bytes()).unwrap();
        engine.close(CloseMode::Clean).unwrap();
        assert!(
            before == (fs::read(&twin).unwrap(), fs::read(file(dir.path(), "d")).unwrap()),
            "neither was written to"
        );
    }
    let engine = open(dir.path(), DuplicateCheck::Blocking);
    engine.start_background();
    assert!(write(&engine, "d/t", b"x").is_err());
    fs::remove_file(&twin).unwrap();
    write(&engine, "d/t", b"x").expect("free again without a restart");
}

#[test]
fn a_twin_found_while_the_tablespace_is_in_use_stops_new_work_only() {
    let dir = directory();
    let engine = open(dir.path(), DuplicateCheck::Online);
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.insert(&table, b"under way", b"value").unwrap();
    fs::copy(file(dir.path(), "d"), dir.path().join("#myriad/twin.myr")).unwrap();
    engine.start_background();
    wait(&engine);
    assert_eq!(problems(&engine), ["DUPLICATE"]);
    for _ in 0..2 {
        assert!(matches!(session.insert(&table, b"new", b"v"), Err(Error::TablespaceUnavailable { .. })));
        assert!(matches!(session.find(&table, b"first"), Err(Error::TablespaceUnavailable { .. })));
    }
    session.rollback().expect("what is under way can be undone");
    engine.checkpoint_now().expect("pages changed before reach the file");
    write(&engine, "e/t", b"x").unwrap();
    engine.close(CloseMode::Clean).unwrap();
}

#[test]
fn crash_recovery_beside_a_twin_loses_nothing() {
    let dir = directory();
    let engine = open(dir.path(), DuplicateCheck::Off);
    write(&engine, "d/t", b"in the log").unwrap();
    write(&engine, "e/t", b"in the log").unwrap();
    engine.close(CloseMode::LogOnly).unwrap();
    drop(engine);
    let (path, twin) = (file(dir.path(), "d"), dir.path().join("#myriad/twin.myr"));
    fs::copy(&path, &twin).unwrap();
    let before = fs::read(&twin).unwrap();
    let engine = open(dir.path(), DuplicateCheck::Blocking);
    engine.start_background();
    assert!(write(&engine, "d/t", b"x").is_err());
    write(&engine, "e/t", b"x").unwrap();
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    assert!(fs::read(&twin).unwrap() == before);
    fs::remove_file(&twin).unwrap();
    let engine = open(dir.path(), DuplicateCheck::Off);
    let table = engine.open_table("d/t").unwrap();
    assert!(engine.session().find(&table, b"in the log").unwrap().is_some(), "an acknowledged commit");
}

#[test]
fn every_other_problem_has_its_row() {
    let dir = directory();
    let other = directory();
    let home = dir.path().join("#myriad");
    let engine = open(dir.path(), DuplicateCheck::Off);
    for name in ["f/t", "g/t", "h/t"] {
        create(&engine, name);
    }
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    fs::rename(file(dir.path(), "d"), home.join("elsewhere.myr")).unwrap();
    fs::copy(file(other.path(), "e"), file(dir.path(), "e")).unwrap();
    fs::write(file(dir.path(), "f"), b"").unwrap();
    fs::remove_file(file(dir.path(), "g")).unwrap();
    let cut = file(dir.path(), "h");
    fs::File::options().write(true).open(&cut).unwrap().set_len(20_000).unwrap();
    fs::write(home.join("stray.txt"), "of no concern").unwrap();
    std::os::unix::fs::symlink(&cut, home.join("link.myr")).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let report: Reporter = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, text| lines.lock().unwrap().push(text.to_string()))
    };
    let config = EngineConfig { report, ..config(dir.path(), DuplicateCheck::Blocking) };
    let engine = Engine::open_with(config, None).unwrap();
    assert_eq!(problems(&engine), ["DAMAGED", "FOREIGN", "LINK", "MISSING", "MISSING", "MOVED", "TRUNCATED"]);
    let told = lines.lock().unwrap().iter().filter(|l| l.starts_with("tablespace check: ")).count();
    assert_eq!(told, 8, "a line for each finding and one for the whole");
    for name in ["d/t", "e/t", "f/t", "g/t"] {
        assert!(write(&engine, name, b"x").is_err(), "{name}");
    }
    create(&engine, "i/t");
    engine.close(CloseMode::Clean).unwrap();
    assert_eq!(fs::read(&cut).unwrap().len(), 20_000);
}

#[test]
fn dropping_a_database_leaves_another_directorys_file_alone() {
    let (dir, other) = (directory(), directory());
    let place = file(dir.path(), "d");
    fs::copy(file(other.path(), "e"), &place).unwrap();
    let before = fs::read(&place).unwrap();
    let engine = open(dir.path(), DuplicateCheck::Online);
    engine.start_background();
    wait(&engine);
    engine.drop_database("d").unwrap();
    engine.close(CloseMode::Purged).unwrap();
    assert!(fs::read(&place).unwrap() == before);
    drop(engine);
    let engine = open(dir.path(), DuplicateCheck::Blocking);
    assert_eq!(problems(&engine), ["FOREIGN"]);
    create(&engine, "d/t");
}

#[test]
fn tables_that_come_and_go_meanwhile_are_not_reported() {
    let dir = directory();
    for round in 0..12 {
        let engine = open(dir.path(), DuplicateCheck::Online);
        engine.set(Setting::Placement(Placement::Table)).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (engine, stop) = (&engine, &stop);
                scope.spawn(move || {
                    for i in 0.. {
                        let name = format!("w{worker}/t{round}_{i}");
                        create(engine, &name);
                        if i % 2 == 0 || i > 20 {
                            engine.drop_table(&name).unwrap();
                        }
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(30));
            engine.start_background();
            wait(&engine);
            stop.store(true, Ordering::Relaxed);
        });
        let status = engine.check_status();
        assert_eq!((status.state, status.findings), ("DONE", 0), "{:?}", engine.check_findings());
        engine.close(CloseMode::LogOnly).unwrap();
    }
}

#[test]
fn the_check_leaves_the_start_alone_and_closing_does_not_wait_for_that() {
    let dir = directory();
    let long = EngineConfig { start_pause: Duration::from_secs(3600), ..config(dir.path(), DuplicateCheck::Online) };
    let engine = Engine::open_with(long, None).unwrap();
    engine.start_background();
    write(&engine, "d/t", b"x").unwrap();
    assert_eq!((engine.check_status().state, engine.check_status().files), ("WAITING", 0));
    let begin = Instant::now();
    engine.close(CloseMode::Clean).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(600), "{:?}", begin.elapsed());
    assert_eq!((engine.check_status().state, engine.check_status().files), ("STOPPED", 0));
}

#[test]
fn closing_does_not_wait_for_the_check() {
    let dir = directory();
    let home = dir.path().join("#myriad/many");
    fs::create_dir(&home).unwrap();
    for i in 0..20_000 {
        fs::write(home.join(format!("{i}.myr")), b"").unwrap();
    }
    // One that is waited for is always done; else it is done before only where this thread does not run for a while.
    let stopped = (0..20u8).any(|round| {
        let engine = open(dir.path(), DuplicateCheck::Online);
        engine.start_background();
        write(&engine, "d/t", &[round]).unwrap();
        engine.close(CloseMode::Clean).unwrap();
        let status = engine.check_status();
        assert!(matches!(status.state, "STOPPED" | "DONE"), "{status:?}");
        status.state == "STOPPED"
    });
    assert!(stopped, "every check came to its end");

    // All are counted; the error log is not flooded, memory is bounded.
    let lines = Arc::new(Mutex::new(0));
    let report: Reporter = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, text| *lines.lock().unwrap() += usize::from(text.starts_with("tablespace check: ")))
    };
    let config = EngineConfig { report, ..config(dir.path(), DuplicateCheck::Blocking) };
    let engine = Engine::open_with(config, None).unwrap();
    assert_eq!((engine.check_status().findings, engine.check_findings().len()), (20_000, 10_000));
    assert!((100..200).contains(&*lines.lock().unwrap()));
}

#[test]
fn dropped_tables_of_an_unavailable_tablespace_hold_up_no_others() {
    const TABLES: usize = 1_200;
    let dir = directory();
    let engine = open(dir.path(), DuplicateCheck::Off);
    for n in 0..TABLES {
        engine.create_table(&format!("d/t{n}"), &TableSpec { indexes: ONE_INDEX, ..Default::default() }).unwrap();
    }
    create(&engine, "e/big");
    let (table, mut session) = (engine.open_table("e/big").unwrap(), engine.session());
    (0..2_000u32).for_each(|i| session.insert(&table, &i.to_be_bytes(), &[1; 1000]).unwrap());
    session.commit().unwrap();
    drop((session, table));
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    let twin = dir.path().join("#myriad/twin.myr");
    fs::copy(file(dir.path(), "d"), &twin).unwrap();

    let without_threads = EngineConfig { background_threads: false, ..config(dir.path(), DuplicateCheck::Blocking) };
    let engine = Engine::open_with(without_threads, None).unwrap();
    let used = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(file(dir.path(), "e")).unwrap()) * 512;
    let before = used();
    for n in 0..TABLES {
        engine.drop_table(&format!("d/t{n}")).unwrap();
    }
    engine.drop_table("e/big").unwrap();
    let settle = || loop {
        match engine.background_step() {
            Ok(true) => {}
            other => break other,
        }
    };
    for _ in 0..2 {
        assert!(matches!(settle(), Err(Error::TablespaceUnavailable { .. })));
        engine.checkpoint_now().unwrap();
    }
    let after = used();
    assert!(after + (1 << 20) <= before, "2 MB of rows: {before} bytes, now {after}");
    fs::remove_file(&twin).unwrap();
    assert_eq!(settle(), Ok(false), "all is done when the tablespace is free again");
    engine.close(CloseMode::Clean).unwrap();
}
