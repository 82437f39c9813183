//! A log and data files of different moments: a DBA put back one without the other.

use super::*;
use myriad_io::OpenMode;

const FOLDER: &str = "/data/#myriad";
const LOG: &str = "redo.log";

/// The files, without what the engine makes anew.
fn files(io: &SimIo) -> Vec<(String, Vec<u8>)> {
    let names = io.list_dir(Path::new(FOLDER)).unwrap().into_iter();
    let read = |name: String| {
        let file = io.open(&Path::new(FOLDER).join(&name), OpenMode::READ).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        (name, bytes)
    };
    names.filter(|name| name != "myriad.lock").map(read).collect()
}

/// A disk with the log of one moment and the other files of another.
fn together(log: &[(String, Vec<u8>)], data: &[(String, Vec<u8>)]) -> SimIo {
    let io = SimIo::new(1);
    io.create_dir(Path::new("/data")).unwrap();
    io.create_dir(Path::new(FOLDER)).unwrap();
    let data = data.iter().filter(|file| file.0 != LOG);
    for (name, bytes) in log.iter().filter(|file| file.0 == LOG).chain(data) {
        io.open(&Path::new(FOLDER).join(name), OpenMode::NEW).unwrap().write_at(bytes, 0).unwrap();
    }
    io
}

fn refusal(io: &SimIo) -> String {
    let before = files(io);
    match open_sim(io, sim_config()).err() {
        Some(error @ Error::LogMismatch { .. }) => {
            let now = files(io);
            let changed = before.iter().find(|file| !now.contains(file));
            assert!(changed.is_none(), "{} was changed", changed.unwrap().0);
            error.to_string()
        }
        Some(other) => panic!("{other}"),
        None => panic!("opened"),
    }
}

/// One run more: some rows, by one transaction each.
fn run(io: &SimIo, from: u32) -> Arc<Engine> {
    let engine = open_sim(io, sim_config()).unwrap();
    if from == 0 {
        engine.create_table("d/t", &spec()).unwrap();
    }
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    for i in from..from + 100 {
        session.insert(&table, &i.to_be_bytes(), &[i as u8; 500]).unwrap();
        session.commit().unwrap();
    }
    drop((session, table));
    engine.flush_log().unwrap();
    engine
}

type Files = Vec<(String, Vec<u8>)>;

/// Stops after three runs, and what a crash in the run after each leaves, before and after a checkpoint.
fn moments() -> [Vec<Files>; 3] {
    let io = SimIo::new(61);
    let (mut stopped, mut flushed, mut crashed) = (Vec::new(), Vec::new(), Vec::new());
    for no in 0..3 {
        run(&io, no * 100).close(CloseMode::Clean).unwrap();
        stopped.push(files(&io));
        let io = io.crash(u64::from(no));
        let engine = run(&io, no * 100 + 100);
        flushed.push(files(&io.kill(1)));
        engine.checkpoint_now().unwrap();
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        session.update(&table, &1u32.to_be_bytes(), b"after the checkpoint").unwrap();
        session.commit().unwrap();
        crashed.push(files(&io.kill(1)));
        std::mem::forget((engine, table, session));
    }
    [stopped, flushed, crashed]
}

#[test]
fn a_log_of_another_run_than_the_files_is_refused() {
    let [stopped, flushed, crashed] = moments();
    for (log, of_log) in flushed.iter().enumerate() {
        for (data, of_data) in stopped.iter().enumerate() {
            let io = together(of_log, of_data);
            // No page was written since; and what the log's run wrote in its end.
            if log == data || log + 1 == data {
                assert_eq!(rows(&open_sim(&io, sim_config()).unwrap(), "d/t").len(), log * 100 + 200);
            } else {
                let text = refusal(&io);
                let newer = text.contains("they are newer") || text.contains("has LSN");
                assert!(if log < data { newer } else { text.contains("they are older") }, "{text}");
            }
        }
    }
    for (log, of_log) in (0..3).map(|no| (no, &stopped[no])).chain((0..3).map(|no| (no + 1, &crashed[no]))) {
        for (data, of_data) in stopped.iter().enumerate() {
            if log == data {
                continue;
            }
            let text = refusal(&together(of_log, of_data));
            let said = if log < data { "they are newer" } else { "they are older" };
            assert!(text.contains(said) || log < data && text.contains("but the doublewrite file's copy"), "{text}");
        }
    }
    for (no, of_both) in stopped.iter().enumerate() {
        let engine = open_sim(&together(of_both, of_both), sim_config()).unwrap();
        assert_eq!(rows(&engine, "d/t").len(), no * 100 + 100);
    }
    for (no, of_both) in crashed.iter().enumerate() {
        let engine = open_sim(&together(of_both, of_both), sim_config()).unwrap();
        assert_eq!(rows(&engine, "d/t").len(), no * 100 + 200);
    }
    let forced = EngineConfig { force_recovery: true, ..sim_config() };
    drop(open_sim(&together(&stopped[2], &stopped[1]), forced).unwrap());
}

/// Of the same run, with and without copies in the doublewrite file.
#[test]
fn pages_that_are_newer_than_the_log_refuse_the_start() {
    for doublewrite in [true, false] {
        let io = SimIo::new(62);
        let engine = run(&io, 0);
        let earlier = files(&io);
        let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
        for i in 1000..1400u32 {
            session.insert(&table, &i.to_be_bytes(), &[1; 2000]).unwrap();
        }
        session.commit().unwrap();
        engine.checkpoint_now().unwrap();
        let mut data = files(&io);
        std::mem::forget((engine, table, session));
        if !doublewrite {
            data.retain(|file| file.0 != "doublewrite");
        }
        let text = refusal(&together(&earlier, &data));
        assert!(text.contains("the log ends at LSN") && text.contains("has LSN"), "{text}");
        assert_eq!(text.contains("doublewrite"), doublewrite, "{text}");
        let engine = open_sim(&together(&data, &data), sim_config()).unwrap();
        assert_eq!(rows(&engine, "d/t").len(), 500);
    }
}

/// However a run ends before anything else is logged in it, the next one opens.
#[test]
fn starts_that_are_cut_short_leave_a_pair() {
    let io = SimIo::new(63);
    run(&io, 0).close(CloseMode::LogOnly).unwrap();
    for power_off in 0..60 {
        let mut io = io.crash(power_off);
        for again in 0..3 {
            io.power_off_after(power_off / (again + 1));
            let engine = Engine::open_with(sim_config(), Some(Arc::new(io.clone())));
            drop(engine.and_then(|engine| engine.checkpoint_now()));
            io = io.crash(power_off);
        }
        let engine = open_sim(&io, sim_config()).unwrap();
        assert_eq!(rows(&engine, "d/t").len(), 100);
    }
}

/// Flips a bit of the log's frame at `lsn`.
fn damage_log(io: &SimIo, lsn: u64) {
    let path = Path::new(FOLDER).join(LOG);
    let ring = io.open(&path, OpenMode::READ).unwrap().len().unwrap() - 8192;
    io.flip_bit(&path, 8192 + lsn % ring, 1).unwrap();
}

/// A log damaged in its middle, where no page was written that could tell: in its newest run, and before that.
#[test]
fn a_log_damaged_in_the_middle_loses_nothing_in_silence() {
    let io = SimIo::new(64);
    let engine = run(&io, 0);
    let (table, mut session) = (engine.open_table("d/t").unwrap(), engine.session());
    session.insert(&table, b"before", b"x").unwrap();
    let damaged = session.commit_later().unwrap().unwrap();
    session.insert(&table, b"behind", b"x").unwrap();
    session.commit().unwrap();
    engine.flush_log().unwrap();
    let (newest, earlier) = (io.kill(1), io.kill(1));
    std::mem::forget((engine, table, session));

    damage_log(&newest, damaged.0);
    let (config, told) = told(Level::Warning);
    assert_eq!(rows(&open_sim(&newest, config).unwrap(), "d/t").len(), 101);
    let text = format!("the log ends at LSN {damaged}, but goes on at LSN ");
    assert!(told.lock().unwrap().iter().any(|t| t.starts_with(&text)), "{:?}", told.lock().unwrap());

    let engine = run(&earlier, 1000);
    let earlier = earlier.kill(1);
    std::mem::forget(engine);
    damage_log(&earlier, damaged.0);
    let text = refusal(&earlier);
    assert!(
        text.contains(&format!("ends at LSN {damaged}, but the start of a run that its header tells of")),
        "{text}"
    );
}
