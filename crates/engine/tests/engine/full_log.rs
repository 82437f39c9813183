//! A log that is full because so many pages cannot be written that they cannot be carried forward in it. A crash then: the next
//! start makes room in it before it needs any.

use super::*;
use myriad_base::waits::{self, Wait, WaitFor};

/// The file of the tablespace of database `d`.
const FILE: &str = "/d.";

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// What a crash amid inserts leaves.
struct Committed {
    /// Rows of `d/t`.
    held: Rows,
    /// Rows of `e/t` by the time it was over.
    rows: Rows,
    /// Of these, before it.
    before: usize,
}

/// Rows of `d/t` in [`SPREAD`] pages or more, all written.
const SPREAD: u32 = 300;

fn spread(engine: &Arc<Engine>) {
    engine.create_table("d/t", &spec()).unwrap();
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for i in 0..SPREAD {
        // No two on a page.
        session.insert(&table, &i.to_be_bytes(), &[1; 7000]).unwrap();
        session.insert(&table, &[&i.to_be_bytes()[..], b"+"].concat(), &[1; 7000]).unwrap();
        session.commit().unwrap();
    }
    engine.checkpoint_now().unwrap();
}

/// Nothing of `d` can be written from now on, and there is more of it than the log could take: the checkpoint stands still.
fn hold_checkpoint(io: &SimIo, engine: &Arc<Engine>) {
    spread(engine);
    io.inject(CallKind::Write, FILE, 0, Fault::Eio, true);
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for i in 0..SPREAD {
        session.remove(&table, &i.to_be_bytes()).unwrap();
    }
    session.commit().unwrap();
}

/// Inserts rows into a table until `done`, each a transaction; calls `committed` with each.
fn insert_until(done: &AtomicBool, engine: &Arc<Engine>, table: &str, committed: impl Fn(Vec<u8>, Vec<u8>)) {
    let (table, mut session) = (engine.open_table(table).unwrap(), engine.session());
    for i in (0u32..).take_while(|_| !done.load(Ordering::Acquire)) {
        let (key, value) = (i.to_be_bytes(), vec![i as u8; 3000]);
        session.insert(&table, &key, &value).unwrap();
        session.commit().unwrap();
        committed(key.to_vec(), value);
    }
}

fn wait_until_full(engine: &Arc<Engine>) {
    while engine.metric("log_age_bytes").unwrap() < engine.metric("log_capacity_bytes").unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A disk after a crash with a log so full that nobody may append; its rows. A checkpoint that comes late may have let some more in.
fn crashed() -> (SimIo, Committed) {
    let io = SimIo::new(1);
    let engine = open_sim(&io, EngineConfig { buffer_pool_bytes: 32 << 20, ..config("/data") }).unwrap();
    engine.create_table("e/t", &spec()).unwrap();
    hold_checkpoint(&io, &engine);
    let held = rows(&engine, "d/t");
    let committed = Mutex::new(Rows::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| insert_until(&done, &engine, "e/t", |key, value| committed.lock().unwrap().push((key, value))));
        wait_until_full(&engine);
        let before = committed.lock().unwrap().len();
        engine.flush_log().unwrap();
        let crashed = io.crash(7);
        let rows = committed.lock().unwrap().clone();
        // The engine that goes on may end.
        done.store(true, Ordering::Release);
        io.clear_faults();
        (crashed, Committed { held, rows, before })
    })
}

/// What was decided elsewhere is not refused because pages cannot be written for a while, and nobody has to stop the engine for it.
#[test]
fn transactions_end_in_a_full_log() {
    let io = SimIo::new(3);
    let engine = open_sim(&io, EngineConfig { buffer_pool_bytes: 32 << 20, ..config("/data") }).unwrap();
    engine.create_table("e/t", &spec()).unwrap();
    engine.create_table("f/t", &spec()).unwrap();
    let table = engine.open_table("e/t").unwrap();
    let mut sessions: Vec<_> = (0..100).map(|_| engine.session()).collect();
    for (i, session) in (0u8..).zip(&mut sessions) {
        session.insert(&table, &[i], b"a row").unwrap();
        if i % 4 != 0 {
            session.prepare(&[i]).unwrap();
        }
    }
    hold_checkpoint(&io, &engine);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| insert_until(&done, &engine, "f/t", |_, _| ()));
        wait_until_full(&engine);
        let begun = std::time::Instant::now();
        let ended = (0u8..).zip(&mut sessions).try_for_each(|(i, session)| match i % 4 {
            0 => session.commit(),
            1 => {
                session.detach_prepared();
                engine.commit_by_xid(&[i]).map(|found| assert!(found))
            }
            _ => {
                session.commit_ordered();
                session.commit_finish(i % 4 == 2)
            }
        });
        let took = begun.elapsed();
        let full = engine.metric("log_age_bytes").unwrap() >= engine.metric("log_capacity_bytes").unwrap();
        let crashed = io.crash(1);
        done.store(true, Ordering::Release);
        io.clear_faults();
        ended.unwrap();
        filling.join().unwrap();
        assert!(full && took < Duration::from_secs(60), "they waited for room");
        assert_eq!(rows(&engine, "e/t").len(), 100);
        let restarted = open_sim(&crashed, sim_config()).unwrap();
        // Those that nobody waited for may be prepared still.
        let left = restarted.prepared();
        assert!(left.iter().all(|xid| xid[0] % 4 == 3), "{left:?}");
        left.iter().for_each(|xid| assert!(restarted.commit_by_xid(xid).unwrap()));
        assert_eq!(rows(&restarted, "e/t").len(), 100);
    });
}

/// Fills the pool with pages of `d/t` that cannot be written, faster than that becomes known and the changes are refused; until `done`,
/// or nobody has a frame for it any more.
fn fill_pool(io: &SimIo, engine: &Arc<Engine>, session: &mut Session, done: &AtomicBool) -> Result<()> {
    let table = engine.open_table("d/t").unwrap();
    io.inject(CallKind::Write, FILE, 0, Fault::Eio, true);
    for i in (0u32..).take_while(|_| !done.load(Ordering::Acquire)) {
        match session.insert(&table, &i.to_be_bytes(), &[7; 3000]) {
            Err(Error::Io { .. }) if !done.load(Ordering::Acquire) => {
                // It was not fast enough: once more.
                io.clear_faults();
                engine.checkpoint_now()?;
                io.inject(CallKind::Write, FILE, 0, Fault::Eio, true);
            }
            Err(Error::Io { .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

/// The same where such pages fill the pool: the commit waits for the page that it needs, as long as it takes.
#[test]
fn what_is_decided_commits_when_the_pool_has_room_again() {
    let io = SimIo::new(4);
    let engine = open_sim(&io, EngineConfig { log_capacity_bytes: 64 << 20, ..config("/data") }).unwrap();
    engine.create_table("e/t", &spec()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("e/t").unwrap();
    let mut decided = engine.session();
    decided.insert(&table, b"a", b"row").unwrap();
    decided.prepare(b"x").unwrap();
    engine.checkpoint_now().unwrap();
    let mut filler = engine.session();
    std::thread::scope(|scope| {
        let fill = || fill_pool(&io, &engine, &mut filler, &AtomicBool::new(false));
        let filling = std::thread::Builder::new().name("fills-the-pool".into()).spawn_scoped(scope, fill).unwrap();
        let waits = |wait: &Wait| wait.what == WaitFor::Frame && wait.thread.starts_with("fills-the-pool");
        while !waits::list(Duration::from_secs(2)).iter().any(waits) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let committing = scope.spawn(|| {
            decided.commit_ordered();
            decided.commit_finish(true)
        });
        // Longer than anybody waits for a frame.
        std::thread::sleep(Duration::from_secs(32));
        assert_eq!(filling.join().unwrap(), Err(Error::BufferPoolExhausted));
        let waits = !committing.is_finished();
        io.clear_faults();
        committing.join().unwrap().unwrap();
        assert!(waits, "it had the page");
    });
    assert_eq!(rows(&engine, "e/t").len(), 1);
}

/// Whoever meets a log that fails tells the error log at once: nobody may come after, and a DBA would see an engine that refuses
/// everything and says nothing.
#[test]
fn a_failed_log_is_told_of_by_the_first_who_meets_it() {
    for call in [CallKind::Write, CallKind::Sync] {
        let io = SimIo::new(2);
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let report: Reporter = Arc::new(move |_, text: &str| heard.lock().unwrap().push(text.to_string()));
        let engine = open_sim(&io, EngineConfig { report, background_threads: false, ..config("/data") }).unwrap();
        engine.create_table("d/t", &spec()).unwrap();
        let table = engine.open_table("d/t").unwrap();
        let mut session = engine.session();
        session.insert(&table, b"a", b"b").unwrap();
        io.inject(call, "redo.log", 0, Fault::Eio, true);
        assert!(matches!(session.commit(), Err(Error::Poisoned { .. })));
        let told = told.lock().unwrap();
        assert!(told.iter().any(|text| text.contains("stopped") && text.contains("redo.log")), "{call:?}: {told:?}");
    }
}

/// All rows are there that were committed before the crash; those committed during it may be, and the one that was under way.
fn check_rows(engine: &Arc<Engine>, committed: &Committed) {
    let Committed { held, rows: all, before } = committed;
    assert_eq!(rows(engine, "d/t"), *held);
    let found = rows(engine, "e/t");
    let known = found.len().min(all.len());
    assert!((*before..=all.len() + 1).contains(&found.len()), "{} rows of {before} to {}", found.len(), all.len());
    assert_eq!(found[..known], all[..known]);
}

#[test]
fn a_start_makes_room_in_a_full_log() {
    let (io, expected) = crashed();
    // Also with fewer frames than there are pages to redo.
    let threads = config("/data");
    for config in [EngineConfig { buffer_pool_bytes: 2 << 20, ..threads.clone() }, threads, sim_config()] {
        let io = io.crash(1);
        let engine = open_sim(&io, config).unwrap();
        let [age, capacity] = ["log_age_bytes", "log_capacity_bytes"].map(|name| engine.metric(name).unwrap());
        assert!(age < capacity / 2, "{age} of {capacity}");
        check_rows(&engine, &expected);
        engine.create_table("d/another", &spec()).unwrap();
        fill(&engine, "d/another", 100);
        engine.close(CloseMode::Clean).unwrap();
    }
}

#[test]
fn a_full_log_whose_pages_cannot_be_written_is_a_clear_error() {
    let (io, expected) = crashed();
    io.inject(CallKind::Write, FILE, 0, Fault::Eio, true);
    match open_sim(&io, sim_config()) {
        Err(Error::Io { path, .. }) => assert!(path.contains(FILE), "{path}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
    io.clear_faults();
    io.inject(CallKind::Read, FILE, 0, Fault::Eio, true);
    match open_sim(&io, sim_config()) {
        Err(Error::Io { path, .. }) => assert!(path.contains(FILE), "{path}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
    io.clear_faults();
    let engine = open_sim(&io, sim_config()).unwrap();
    check_rows(&engine, &expected);
}

#[test]
fn a_full_log_for_a_missing_tablespace_does_not_stop_the_others() {
    for threads in [false, true] {
        let (io, _) = crashed();
        let folder = Path::new("/data/#myriad");
        let names = io.list_dir(folder).unwrap();
        let name = names.iter().find(|name| name.starts_with("d.")).unwrap();
        io.remove_file(&folder.join(name)).unwrap();
        let engine = open_sim(&io, EngineConfig { background_threads: threads, ..config("/data") }).unwrap();
        let table = engine.open_table("d/t");
        let error = table.and_then(|table| engine.session().find(&table, b"any")).err();
        assert!(matches!(error, Some(Error::TablespaceUnavailable { .. })), "{error:?}");
        engine.create_table("e/another", &spec()).unwrap();
        fill(&engine, "e/another", 100);
    }
}

/// Without threads of its own the engine writes pages when the log has grown; for a smaller log that is earlier.
#[test]
fn pages_are_written_in_time_for_a_log_made_smaller() {
    let small = sim_config().log_capacity_bytes;
    let engine = open_sim(&SimIo::new(1), EngineConfig { log_capacity_bytes: 8 * small, ..sim_config() }).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    engine.set(Setting::LogCapacityBytes(small)).unwrap();
    for i in 0..(2 * small / 3000) as u32 {
        session.insert(&table, &i.to_be_bytes(), &[1; 3000]).unwrap();
        session.commit().unwrap();
    }
}

/// The process is killed between the rename and its sync; what the next one logs must not be in a file that loses its name.
#[test]
fn a_larger_log_that_has_been_used_is_not_taken_back() {
    let io = SimIo::new(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    io.inject(CallKind::SyncDir, "#myriad", 0, Fault::Eio, false);
    let capacity = sim_config().log_capacity_bytes * 2;
    assert!(engine.set(Setting::LogCapacityBytes(capacity)).is_err());
    drop(engine);
    let io = io.kill(1);
    let engine = open_sim(&io, sim_config()).unwrap();
    fill(&engine, "d/t", 5);
    engine.checkpoint_now().unwrap();
    for seed in 0..10 {
        assert_eq!(rows(&open_sim(&io.crash(seed), sim_config()).unwrap(), "d/t").len(), 5);
    }
}

/// Where nothing can be written a killed read does not wait for a frame; a change knows nothing of a kill.
#[test]
fn a_killed_read_does_not_wait_for_a_frame() {
    let io = SimIo::new(5);
    let engine = open_sim(&io, EngineConfig { log_capacity_bytes: 64 << 20, ..config("/data") }).unwrap();
    for name in ["e/t", "d/t"] {
        engine.create_table(name, &spec()).unwrap();
    }
    // More than the pool has frames for.
    let rows = 2000u32;
    let read = engine.open_table("e/t").unwrap();
    let (mut writer, mut reader) = (engine.session(), engine.session());
    (0..rows).for_each(|i| writer.insert(&read, &i.to_be_bytes(), &[7; 3000]).unwrap());
    writer.commit().unwrap();
    engine.checkpoint_now().unwrap();
    let kills = [writer.kill_handle(), reader.kill_handle()];
    let done = AtomicBool::new(false);
    let waits = || engine.metric("buffer_pool_free_waits").unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| fill_pool(&io, &engine, &mut writer, &done));
        let mut end = 0;
        while waits() == 0 || engine.metric("log_age_bytes").unwrap() != end {
            end = engine.metric("log_age_bytes").unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        let before = waits();
        // Again and again: it may find frames that are clean still, and be given one while it waits.
        let reading = scope.spawn(|| {
            (0..rows).cycle().try_for_each(|i| {
                reader
                    .get_head(&read, &i.to_be_bytes(), myriad::Lock::None, myriad::Wait::Wait, usize::MAX)
                    .map(|row| assert!(row.is_some()))
            })
        });
        while waits() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        let begun = std::time::Instant::now();
        kills.iter().for_each(KillHandle::kill);
        assert_eq!(reading.join().unwrap(), Err(Error::Interrupted));
        let (took, waits_on) = (begun.elapsed(), !writing.is_finished());
        done.store(true, Ordering::Release);
        io.clear_faults();
        assert_eq!(writing.join().unwrap(), Ok(()));
        assert!(waits_on && took < Duration::from_secs(60), "{took:?}");
    });
}

/// However small the log's buffer is to be, it has room for what is logged of a page at once.
#[test]
fn a_buffer_smaller_than_a_page_is_made_larger() {
    let io = SimIo::new(1);
    io.create_dir(Path::new("/data")).unwrap();
    let config = EngineConfig { page_size: 64 << 10, log_buffer_bytes: 1, ..sim_config() };
    let engine = Engine::open_with(config, Some(Arc::new(io))).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    for key in 0..20u8 {
        session.insert(&table, &[key], &[key; 20_000]).unwrap();
    }
    session.commit().unwrap();
    assert_eq!(rows(&engine, "d/t").len(), 20);
}
