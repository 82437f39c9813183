//! Backups: what they do with pages that cannot be read, with space given back, and when they come to nothing. That they
//! hold what they should is tested in `tests/simulation/hot.rs` and, on a server, in `tests/backup`.

use super::*;
use myriad_io::{CallKind, Fault, OpenMode};
use std::time::Instant;

type Said = Arc<Mutex<Vec<String>>>;

/// A configuration that notes warnings and errors.
fn listening(config: EngineConfig) -> (EngineConfig, Said) {
    let said = Said::default();
    let into = Arc::clone(&said);
    let report: Reporter = Arc::new(move |level, text: &str| {
        if level != Level::Info {
            into.lock().unwrap().push(text.into());
        }
    });
    // A busy machine is told of as a slow device.
    (EngineConfig { report, clock: Arc::new(ManualClock::default()), ..config }, said)
}

/// Small files, each row in a page of its own nearly.
fn simulated(background_threads: bool) -> (SimIo, Arc<Engine>, Said) {
    let io = SimIo::new(1);
    let log_capacity_bytes = 32 << 20;
    let (config, said) =
        listening(EngineConfig { page_size: 4096, log_capacity_bytes, background_threads, ..sim_config() });
    let engine = open_sim(&io, config).unwrap();
    (io, engine, said)
}

fn fill_pages(engine: &Arc<Engine>, table: &str, n: u32, byte: u8) {
    let table = engine.open_table(table).unwrap();
    let mut session = engine.session();
    for i in 0..n {
        session.insert(&table, &i.to_be_bytes(), &[byte; 1500]).unwrap();
    }
    session.commit().unwrap();
}

fn overwrite(engine: &Arc<Engine>, table: &str, n: u32, byte: u8) {
    let table = engine.open_table(table).unwrap();
    let mut session = engine.session();
    for i in 0..n {
        session.update(&table, &i.to_be_bytes(), &[byte; 1501]).unwrap();
    }
    session.commit().unwrap();
}

fn copy_all(backup: &mut Backup) -> Result<()> {
    backup.copy_all(&mut |_| true)
}

fn open_copy(io: &SimIo) -> Result<(Arc<Engine>, Said)> {
    let (config, said) = listening(EngineConfig { data_dir: "/copy".into(), ..sim_config() });
    let engine = Engine::open_with(config, Some(Arc::new(io.crash(3))))?;
    engine.checkpoint_now()?;
    Ok((engine, said))
}

#[test]
fn others_see_how_far_a_backup_is() {
    let (_io, engine, _) = simulated(false);
    for table in ["a/t", "b/t"] {
        engine.create_table(table, &spec()).unwrap();
        fill_pages(&engine, table, 500, 1);
    }
    engine.checkpoint_now().unwrap();
    let shown = |engine: &Engine| {
        let status = engine.backup_status().map(|b| (b.stage, b.progress));
        assert_eq!(engine.metric("backup_running"), Some(u64::from(status.is_some())));
        assert_eq!(engine.metric("backup_bytes"), Some(status.map_or(0, |(_, progress)| progress.bytes)));
        (status, engine.status_text())
    };
    assert!(matches!(shown(&engine), (None, text) if text.contains("None is made")));
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    let (status, text) = shown(&engine);
    assert_eq!(status, Some((BackupStage::Copying, BackupProgress::default())));
    assert!(text.contains("To /copy, for ") && text.contains("copying files"), "{text}");
    let told = backup.copy_some().unwrap().unwrap();
    assert_eq!(shown(&engine).0, Some((BackupStage::Copying, told)));
    copy_all(&mut backup).unwrap();
    let (status, text) = shown(&engine);
    let (stage, BackupProgress { files, files_total, bytes, .. }) = status.unwrap();
    assert_eq!((stage, files), (BackupStage::Following, files_total));
    assert!(files >= 4 && bytes > 500 * 1500 * 2, "{files} files, {bytes} bytes");
    assert!(text.contains(&format!("{files} of {files} files, 0 % of the one under way; {bytes} bytes")), "{text}");
    backup.finish(&mut |_| true).unwrap();
    assert!(shown(&engine).0.is_none());
    drop(engine.backup(Path::new("/other")).unwrap());
    assert!(shown(&engine).0.is_none());
}

#[test]
fn space_is_not_given_back_while_the_log_of_a_copy_has_changes_to_it() {
    let (io, engine, _) = simulated(true);
    for table in ["a/kept", "z/dropped", "z/kept"] {
        engine.create_table(table, &spec()).unwrap();
        fill_pages(&engine, table, 1000, 1);
    }
    while engine.background_step().unwrap() {}
    engine.checkpoint_now().unwrap();
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    // Changes in the log of the copy, to pages that are free before they are copied: "a" comes first.
    overwrite(&engine, "z/dropped", 1000, 2);
    backup.copy_some().unwrap().expect("more to copy");
    engine.checkpoint_now().unwrap();
    engine.drop_table("z/dropped").unwrap();
    let punched = io.calls(CallKind::Punch);
    for _ in 0..3 {
        while engine.background_step().unwrap() {}
        let progress = backup.copy_some().unwrap().expect("more to copy");
        assert_eq!(progress.files, 0, "the first file only");
        engine.checkpoint_now().unwrap();
    }
    while engine.background_step().unwrap() {}
    assert_eq!(io.calls(CallKind::Punch), punched, "given back");
    copy_all(&mut backup).unwrap();
    let summary = backup.finish(&mut |_| true).unwrap();
    assert_eq!(summary.files, 4);
    let (copy, said) = open_copy(&io).unwrap();
    assert_eq!(*said.lock().unwrap(), [""; 0]);
    assert_eq!(rows(&copy, "z/kept").len(), 1000);
    // Afterwards it is.
    engine.checkpoint_now().unwrap();
    while engine.background_step().unwrap() {}
    assert!(io.calls(CallKind::Punch) > punched, "never given back");
}

/// Writes nonsense over a page in its file.
fn damage(io: &SimIo, name: &str, page: u64) {
    let folder = Path::new("/data/#myriad");
    let file = io.list_dir(folder).unwrap().into_iter().find(|f| f.starts_with(name)).expect("file");
    let file = io.open(&folder.join(file), OpenMode::WRITE).unwrap();
    file.write_at(&[0x5a; 4096], page * 4096).unwrap();
    file.sync().unwrap();
}

/// A page of the table's last rows, and one of its file that is not in use.
fn pages(io: &SimIo) -> (u64, u64) {
    let folder = Path::new("/data/#myriad");
    let name = io.list_dir(folder).unwrap().into_iter().find(|f| f.starts_with("d.")).expect("file");
    let file = io.open(&folder.join(name), OpenMode::READ).unwrap();
    let count = file.len().unwrap() / 4096;
    let kind = |page: u64| {
        let mut bytes = vec![0; 4096];
        file.read_at(&mut bytes, page * 4096).unwrap();
        (bytes[12], bytes[13], bytes.iter().all(|&b| b == 0))
    };
    let leaf = (3..count).rev().find(|&p| kind(p) == (3, 0, false)).expect("a leaf");
    let unused = (leaf..count).rev().find(|&p| kind(p).2).expect("a page never used");
    (leaf, unused)
}

#[test]
fn a_damaged_page_ends_a_backup_unless_it_is_in_memory_or_not_in_use() {
    let (io, engine, _) = simulated(false);
    engine.create_table("d/t", &spec()).unwrap();
    fill_pages(&engine, "d/t", 100, 1);
    engine.checkpoint_now().unwrap();
    let (leaf, unused) = pages(&io);
    // All of it is in memory.
    damage(&io, "d.", leaf);
    let backup = engine.backup(Path::new("/copy")).unwrap();
    backup.finish(&mut |_| true).unwrap();
    let (copy, said) = open_copy(&io).unwrap();
    assert_eq!((rows(&copy, "d/t").len(), said.lock().unwrap().len()), (100, 0));
    drop((copy, engine));

    let io = io.kill(1);
    let (config, said) = listening(EngineConfig { page_size: 4096, ..sim_config() });
    let engine = open_sim(&io, config).unwrap();
    let mut backup = engine.backup(Path::new("/second")).unwrap();
    let refused = copy_all(&mut backup).expect_err("a damaged page");
    assert!(matches!(&refused, Error::CorruptPage { page, .. } if u64::from(page.page.0) == leaf), "{refused}");
    drop(backup);
    assert_eq!(io.list_dir(Path::new("/second/#myriad")).unwrap(), ["INCOMPLETE"]);
    assert_eq!(*said.lock().unwrap(), [""; 0]);

    // The leaf is whole again; what nobody uses does not matter.
    let whole = io.open(&Path::new("/copy/#myriad").join(name_of(&io)), OpenMode::READ).unwrap();
    let file = io.open(&Path::new("/data/#myriad").join(name_of(&io)), OpenMode::WRITE).unwrap();
    let mut bytes = vec![0; 4096];
    whole.read_at(&mut bytes, leaf * 4096).unwrap();
    file.write_at(&bytes, leaf * 4096).unwrap();
    damage(&io, "d.", unused);
    let backup = engine.backup(Path::new("/second")).unwrap();
    backup.finish(&mut |_| true).unwrap();
    let said = said.lock().unwrap();
    assert!(said.len() == 1 && said[0].contains("not in use"), "{said:?}");
}

fn name_of(io: &SimIo) -> String {
    let names = io.list_dir(Path::new("/data/#myriad")).unwrap();
    names.into_iter().find(|f| f.starts_with("d.")).expect("file")
}

#[test]
fn a_backup_that_is_stopped_or_too_slow_leaves_nothing_usable() {
    let (io, engine, _) = simulated(false);
    engine.create_table("d/t", &spec()).unwrap();
    fill_pages(&engine, "d/t", 100, 1);
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    assert!(matches!(engine.backup(Path::new("/other")), Err(Error::NotSupported { .. })), "one at a time");
    assert!(matches!(engine.set(Setting::RedoLog(false)), Err(Error::NotSupported { .. })));
    assert_eq!(backup.copy_all(&mut |_| false), Err(Error::Interrupted));
    drop(backup);
    assert!(matches!(open_copy(&io), Err(Error::Format { .. })));
    assert_eq!(io.list_dir(Path::new("/copy/#myriad")).unwrap(), ["INCOMPLETE"]);

    // The log goes on without it: on this engine nobody copies it between the calls.
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    copy_all(&mut backup).unwrap();
    overwrite(&engine, "d/t", 100, 2);
    engine.checkpoint_now().unwrap();
    let slow = backup.finish(&mut |_| true).expect_err("the log is gone");
    assert!(slow.to_string().contains("overwritten before it was copied"), "{slow}");
    assert!(matches!(open_copy(&io), Err(Error::Format { .. })));
    assert_eq!(rows(&engine, "d/t").len(), 100);

    // A stop does not wait for a backup, which fails then.
    let backup = engine.backup(Path::new("/copy")).unwrap();
    engine.close(CloseMode::Clean).unwrap();
    assert!(backup.finish(&mut |_| true).is_err());
    assert!(matches!(open_copy(&io), Err(Error::Format { .. })));
}

/// Waits until there is such a file in the copy.
fn wait_for_copy(io: &SimIo, name: &str) {
    let begun = std::time::Instant::now();
    while !io.list_dir(Path::new("/copy/#myriad")).unwrap().iter().any(|f| f.starts_with(name)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} is left for the end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_that_come_after_the_copy_are_not_left_for_the_end() {
    let (io, engine, said) = simulated(true);
    engine.create_table("a/old", &spec()).unwrap();
    fill_pages(&engine, "a/old", 100, 1);
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    copy_all(&mut backup).unwrap();
    backup.keep_up().unwrap();
    engine.create_table("new/t", &spec()).unwrap();
    wait_for_copy(&io, "new.");
    // The log has what comes into it.
    fill_pages(&engine, "new/t", 1000, 1);
    engine.create_table("newer/t", &spec()).unwrap();
    wait_for_copy(&io, "newer.");
    assert_eq!(backup.finish(&mut |_| true).unwrap().files, 5);
    let (copy, told) = open_copy(&io).unwrap();
    assert_eq!((rows(&copy, "new/t").len(), rows(&copy, "newer/t").len(), rows(&copy, "a/old").len()), (1000, 0, 100));
    assert_eq!((said.lock().unwrap().len(), told.lock().unwrap().len()), (0, 0));
}

#[test]
fn a_new_file_that_cannot_be_copied_ends_the_backup_at_once() {
    let (io, engine, said) = simulated(true);
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    copy_all(&mut backup).unwrap();
    backup.keep_up().unwrap();
    io.inject(CallKind::Write, "/copy/#myriad/new.", 0, Fault::Enospc, true);
    engine.create_table("new/t", &spec()).unwrap();
    let begun = std::time::Instant::now();
    while said.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the error log knows nothing of it");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(said.lock().unwrap()[0].contains("the backup has failed"), "{:?}", said.lock().unwrap());
    assert!(matches!(backup.finish(&mut |_| true), Err(Error::DiskFull { .. })));
    assert_eq!(io.list_dir(Path::new("/copy/#myriad")).unwrap(), ["INCOMPLETE"]);
    fill_pages(&engine, "new/t", 10, 1);
}

#[test]
fn the_end_of_a_backup_can_be_interrupted() {
    let (io, engine, _) = simulated(false);
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    copy_all(&mut backup).unwrap();
    engine.create_table("new/t", &spec()).unwrap();
    fill_pages(&engine, "new/t", 1000, 1);
    let mut parts = 0;
    let stopped = backup.finish(&mut |_| {
        parts += 1;
        parts < 2
    });
    assert_eq!((stopped, parts), (Err(Error::Interrupted), 2));
    assert_eq!(io.list_dir(Path::new("/copy/#myriad")).unwrap(), ["INCOMPLETE"]);
    engine.create_table("newer/t", &spec()).unwrap();
    engine.backup(Path::new("/copy")).unwrap().finish(&mut |_| true).unwrap();
    let (copy, _) = open_copy(&io).unwrap();
    assert_eq!((rows(&copy, "new/t").len(), rows(&copy, "newer/t").len()), (1000, 0));
}

#[test]
fn refused_places() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let engine = Engine::open_with(config(&data), None).unwrap();
    std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
    for bad in [data.clone(), data.join("x/y"), dir.path().join("link/x"), data.join("../data/x"), "x".into()] {
        assert!(matches!(engine.backup(&bad), Err(Error::Invalid { .. })), "{}", bad.display());
    }
    drop(engine);
    // The engine's folder on another disk.
    let disk = dir.path().join("disk");
    std::fs::rename(data.join("#myriad"), &disk).unwrap();
    std::os::unix::fs::symlink(&disk, data.join("#myriad")).unwrap();
    let linked = dir.path().join("linked");
    std::fs::create_dir_all(disk.join("empty")).unwrap();
    std::fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(disk.join("empty"), linked.join("#myriad")).unwrap();
    let engine = Engine::open_with(config(&data), None).unwrap();
    for bad in [disk.clone(), disk.join("backup"), linked] {
        assert!(matches!(engine.backup(&bad), Err(Error::Invalid { .. })), "{}", bad.display());
    }
    assert!(!disk.join("backup").exists());
    let taken = dir.path().join("taken");
    std::fs::create_dir_all(taken.join("#myriad")).unwrap();
    std::fs::write(taken.join("#myriad/mine"), "kept").unwrap();
    assert!(matches!(engine.backup(&taken), Err(Error::Invalid { .. })));
    assert_eq!(std::fs::read(taken.join("#myriad/mine")).unwrap(), b"kept");
    assert_eq!(std::fs::read_dir(taken.join("#myriad")).unwrap().count(), 1);
    engine.set(Setting::RedoLog(false)).unwrap();
    assert!(matches!(engine.backup(&dir.path().join("off")), Err(Error::NotSupported { .. })));
    assert!(!dir.path().join("off").exists());
    engine.set(Setting::RedoLog(true)).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 1000);
    engine.backup(&dir.path().join("good")).unwrap().finish(&mut |_| true).unwrap();
    let copy = Engine::open_with(config(dir.path().join("good")), None).unwrap();
    assert_eq!(rows(&copy, "d/t").len(), 1000);
}

#[test]
fn many_files_are_durable_at_the_end_or_the_backup_fails() {
    let (io, engine, _) = simulated(false);
    let tables: Vec<String> = (0..150).map(|i| format!("d{i}/t")).collect();
    for table in &tables {
        engine.create_table(table, &spec()).unwrap();
        fill_pages(&engine, table, 1, 1);
    }
    engine.checkpoint_now().unwrap();
    for nth in [0, 63, 64, 149] {
        let mut backup = engine.backup(Path::new("/copy")).unwrap();
        io.inject(CallKind::Sync, "/copy/#myriad/d", nth, Fault::Eio, false);
        assert!(copy_all(&mut backup).is_err(), "sync {nth}");
        io.clear_faults();
        drop(backup);
        assert!(open_copy(&io).is_err());
    }
    let mut backup = engine.backup(Path::new("/copy")).unwrap();
    copy_all(&mut backup).unwrap();
    backup.finish(&mut |_| true).unwrap();
    let (copy, _) = open_copy(&io).unwrap();
    for table in &tables {
        assert_eq!(rows(&copy, table).len(), 1, "{table}");
    }
}

#[test]
fn one_that_waits_for_another_size_of_the_log_can_be_killed() {
    let (io, engine, _) = simulated(false);
    let held = io.lose_write("redo.log.new");
    std::thread::scope(|s| {
        let resize = s.spawn(|| engine.set(Setting::LogCapacityBytes(64 << 20)));
        held.wait();
        let begun = Instant::now();
        let killed = || begun.elapsed() > Duration::from_millis(20);
        let backup = myriad_base::waits::until_killed(&killed, || engine.backup(Path::new("/copy")).map(drop));
        assert_eq!(backup, Err(Error::Interrupted));
        // Lets the other go on.
        let file = io.open(&sim_config().data_dir.join("#myriad/redo.log.new"), OpenMode::WRITE).unwrap();
        assert!(file.sync().is_err());
        resize.join().unwrap().unwrap();
    });
    drop(engine.backup(Path::new("/copy")).unwrap());
}
