//! Copies of databases.

use super::*;

fn names(engine: &Arc<Engine>, db: &str) -> Vec<String> {
    let mut names = Vec::new();
    engine
        .list_tables(db, &mut |name| {
            names.push(name.to_string());
            true
        })
        .unwrap();
    names
}

/// A template of several shapes and placements, with rows that a copy must not have.
fn template(engine: &Arc<Engine>) {
    let frm: Vec<u8> = (0..500u32).map(|i| i as u8).collect();
    for (name, placement) in [("plain", None), ("own", Some(Placement::Table)), ("also", None)] {
        let spec = TableSpec { frm: &frm, placement, auto_increment_next: Some(77), ..spec() };
        engine.create_table(&format!("tmpl/{name}"), &spec).unwrap();
        fill(engine, &format!("tmpl/{name}"), 10);
    }
    engine.create_table("tmpl/no image", &spec()).unwrap();
    engine.create_table("tmpl/#sql-alter-1", &spec()).unwrap();
}

/// Refuses nothing, changes nothing.
#[derive(Default)]
struct Seen(Vec<(String, Option<usize>)>);

impl Judge for Seen {
    fn table(&mut self, table: &str, image: Option<&[u8]>) -> Result<Verdict> {
        self.0.push((table.to_string(), image.map(<[u8]>::len)));
        Ok(Verdict::default())
    }
    fn first_row(&mut self, _: &str, _: &mut [u8]) -> Result<()> {
        panic!("nobody asked for a row")
    }
}

struct Refuses;

impl Judge for Refuses {
    fn table(&mut self, _: &str, _: Option<&[u8]>) -> Result<Verdict> {
        Err(Error::ShuttingDown)
    }
    fn first_row(&mut self, _: &str, _: &mut [u8]) -> Result<()> {
        Err(Error::ShuttingDown)
    }
}

/// Each table keeps its first row with another last byte, and gets a longer image.
struct Changes;

impl Judge for Changes {
    fn table(&mut self, _: &str, image: Option<&[u8]>) -> Result<Verdict> {
        let longer = |i: &[u8]| [i, b"longer"].concat();
        Ok(Verdict { first_row: true, image: image.filter(|i| !i.is_empty()).map(longer) })
    }
    fn first_row(&mut self, _: &str, row: &mut [u8]) -> Result<()> {
        *row.last_mut().unwrap() = b'!';
        Ok(())
    }
}

fn options() -> Vec<FolderFile> {
    let file = |name: &str, contents: &[u8]| FolderFile { name: name.into(), contents: contents.into() };
    vec![file("v.frm", &[7; 100_000]), file("db.opt", b"options")]
}

#[test]
fn first_rows_and_images_of_a_copy() {
    let io = SimIo::new(33);
    let engine = open_sim(&io, sim_config()).unwrap();
    template(&engine);
    assert!(engine.clone_database("tmpl", "none", &[], &mut Changes).is_err(), "a table without a row");
    fill(&engine, "tmpl/no image", 2);
    engine.clone_database("tmpl", "new", &[], &mut Changes).unwrap();
    let io = io.crash(3);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(names(&engine, "none"), [""; 0]);
    for table in ["plain", "own", "also", "no image"] {
        let (old, new) = (rows(&engine, &format!("tmpl/{table}")), rows(&engine, &format!("new/{table}")));
        assert_eq!((new.len(), &new[0].0), (1, &old[0].0), "{table}");
        assert!(new[0].1.ends_with(b"!"), "{table}");
        let (old, new) = (engine.frm(&format!("tmpl/{table}")).unwrap(), engine.frm(&format!("new/{table}")).unwrap());
        assert_eq!(new.len(), if old.is_empty() { 0 } else { 506 }, "{table}");
    }
}

/// A copy goes where the setting says when it begins.
#[test]
fn placement_may_change_meanwhile() {
    let io = SimIo::new(33);
    let engine = open_sim(&io, sim_config()).unwrap();
    template(&engine);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for placement in [Placement::Server, Placement::Database].into_iter().cycle() {
                engine.set(Setting::Placement(placement)).unwrap();
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let copies = (0..500).try_for_each(|i| {
            let cloned = engine.clone_database("tmpl", &format!("new{i}"), &[], &mut Seen::default())?;
            engine.finish_clone(cloned.note)
        });
        over.store(true, Ordering::Relaxed);
        copies.unwrap();
    });
    engine.close(CloseMode::Clean).unwrap();
}

#[test]
fn a_database_is_copied_empty() {
    let io = SimIo::new(31);
    let engine = open_sim(&io, sim_config()).unwrap();
    template(&engine);
    let mut seen = Seen::default();
    let cloned = engine.clone_database("tmpl", "new", &options(), &mut seen).unwrap();
    assert_eq!(cloned.tables, 4);
    let seen: Vec<_> = seen.0.iter().map(|(name, image)| (name.as_str(), *image)).collect();
    assert_eq!(seen, [("also", Some(500)), ("no image", Some(0)), ("own", None), ("plain", None)]);
    assert_eq!(names(&engine, "new"), ["also", "no image", "own", "plain"]);
    let (old, new) = (engine.frm("tmpl/plain").unwrap(), engine.frm("new/plain").unwrap());
    assert_eq!((&old[..66], &old[82..]), (&new[..66], &new[82..]));
    assert_ne!(old[66..82], new[66..82], "each definition has an id of its own");
    for table in ["plain", "own", "also", "no image"] {
        assert_eq!(rows(&engine, &format!("new/{table}")).len(), 0);
        fill(&engine, &format!("new/{table}"), 3);
    }
    let notes = engine.unfinished_clones().unwrap();
    assert_eq!((notes.len(), notes[0].database.as_str(), &notes[0].files), (1, "new", &options()));
    assert_eq!(notes[0].id, cloned.note);

    let taken = engine.clone_database("tmpl", "new", &[], &mut Seen::default());
    assert!(matches!(taken, Err(Error::TableExists { .. })));
    let nothing = engine.clone_database("nowhere", "other", &[], &mut Seen::default());
    assert!(matches!(nothing, Err(Error::NoSuchTable { .. })));
    let refused = engine.clone_database("tmpl", "other", &[], &mut Refuses);
    assert!(matches!(refused, Err(Error::ShuttingDown)));
    assert_eq!(names(&engine, "other"), [""; 0]);

    // Unfinished after a crash, too; a clone of the clone; finished; dropped with its note.
    let io = io.crash(7);
    let engine = open_sim(&io, sim_config()).unwrap();
    assert_eq!(rows(&engine, "new/own").len(), 3);
    assert_eq!(engine.unfinished_clones().unwrap().len(), 1);
    let second = engine.clone_database("new", "second", &[], &mut Seen::default()).unwrap();
    engine.finish_clone(cloned.note).unwrap();
    assert_eq!(engine.unfinished_clones().unwrap()[0].id, second.note);
    assert_eq!(engine.drop_database("second").unwrap(), 4);
    assert!(engine.unfinished_clones().unwrap().is_empty());
    assert_eq!(engine.drop_database("new").unwrap(), 4);
    while engine.background_step().unwrap() {}
    assert_eq!(rows(&engine, "tmpl/plain").len(), 10);
    // The template's two files are left.
    assert_eq!(engine.spaces().unwrap().iter().filter(|s| s.space_id >= 16).count(), 2);
}

#[test]
fn a_copy_is_there_wholly_or_not_at_all() {
    let (mut whole, mut nothing) = (0, 0);
    for nth in 1.. {
        let io = SimIo::new(nth);
        let engine = open_sim(&io, sim_config()).unwrap();
        template(&engine);
        io.power_off_after(nth);
        let done = engine.clone_database("tmpl", "new", &options(), &mut Seen::default());
        let off = io.is_off();
        let io = io.crash(nth);
        let engine = open_sim(&io, sim_config()).unwrap();
        let notes = engine.unfinished_clones().unwrap();
        match names(&engine, "new").len() {
            0 => {
                assert!(done.is_err() && notes.is_empty(), "lost at call {nth}");
                assert_eq!(engine.spaces().unwrap().iter().filter(|s| s.space_id >= 16).count(), 2, "call {nth}");
                nothing += 1;
            }
            n => {
                assert_eq!((n, notes.len()), (4, 1), "torn at call {nth}");
                whole += 1;
            }
        }
        assert_eq!(rows(&engine, "tmpl/own").len(), 10);
        // The name can be used all the same.
        engine.drop_database("new").unwrap();
        engine.clone_database("tmpl", "new", &[], &mut Seen::default()).unwrap();
        if !off {
            break;
        }
    }
    assert!(nothing > 5 && whole > 0, "{nothing} times nothing, {whole} times whole");
}

#[test]
fn a_dropped_database_leaves_the_definitions_of_others_cached() {
    let io = SimIo::new(1);
    io.create_dir(Path::new("/data")).unwrap();
    let engine = Engine::open_with(sim_config(), Some(Arc::new(io))).unwrap();
    // The name of the one begins with that of the other.
    for table in ["tenant/t", "tenant/u", "tenant2/t", "other/t"] {
        engine.create_table(table, &spec()).unwrap();
        engine.open_table(table).unwrap();
    }
    assert_eq!(engine.metric("definitions_cached").unwrap(), 4);
    assert_eq!(engine.drop_database("tenant").unwrap(), 2);
    assert_eq!(engine.metric("definitions_cached").unwrap(), 2);
    assert!(matches!(engine.open_table("tenant/t"), Err(Error::NoSuchTable { .. })));
}
