//! The simulated server: sessions, definitions, faults, crashes, and the comparison with the model.

use crate::model::{by_tag, by_value, Changes, Definition, Model, Rows, TableModel};
use crate::rebuild::Rebuild;
use crate::rows::{assert_keys, scan};
use crate::unlogged::Backup;
use myriad::*;
use myriad_base::clock::ManualClock;
use myriad_base::codec::get_u32;
use myriad_base::random::Random;
use myriad_base::SpaceId;
use myriad_io::{Io, OpenMode, SimIo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DATABASES: [&str; 4] = ["a", "b", "c", "d"];

/// Changes that the change buffer took, in all runs.
pub(crate) static BUFFERED: AtomicU64 = AtomicU64::new(0);
/// Pages that left memory unwritten, of engines that crashed.
pub(crate) static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// Pages in use in a tablespace without tables.
const EMPTY_PAGES: u32 = 3;

pub(crate) type Snapshot = BTreeMap<String, Rows>;
/// Tables with their rows and what their definitions say.
type Found = BTreeMap<String, (Rows, Definition)>;

pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) isolation: Isolation,
    pub(crate) open: bool,
    pub(crate) changes: Changes,
    pub(crate) touched: BTreeSet<String>,
    pub(crate) savepoints: Vec<(Savepoint, Changes)>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) auto: BTreeMap<String, u64>,
    /// Indexes that are newer than the snapshot.
    pub(crate) outdated: BTreeSet<(String, usize)>,
}

#[derive(Clone)]
pub(crate) struct PreparedTrx {
    pub(crate) xid: Vec<u8>,
    pub(crate) changes: Changes,
    /// Whether the engine acknowledged it; else it may be gone after a crash.
    pub(crate) acknowledged: bool,
    /// Whether it may have been committed by a call that failed.
    pub(crate) maybe_committed: bool,
}

pub struct World {
    pub(crate) random: Random,
    pub(crate) loud: bool,
    pub(crate) io: SimIo,
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) tables: HashMap<String, Table>,
    pub(crate) model: Model,
    /// What the contents may be instead, after a change whose outcome is not known.
    pub(crate) alternatives: Vec<Model>,
    /// What a crash may leave: since each of them no commit has waited for the log.
    pub(crate) lazy: Vec<Model>,
    /// Prepared ones, committed since without a wait for the log: a crash may leave them prepared.
    pub(crate) undone: Vec<PreparedTrx>,
    pub(crate) prepared: Vec<PreparedTrx>,
    /// Whether transactions that a crash ended may not be rolled back yet.
    pub(crate) losers: bool,
    pub(crate) faulty: bool,
    /// The disk may be full.
    pub(crate) full: bool,
    pub(crate) next_xid: u32,
    pub(crate) crashes: u64,
    pub(crate) page_size: usize,
    /// Pages in memory.
    pub(crate) frames: usize,
    /// The log's size in halves of the smallest.
    pub(crate) log_parts: u64,
    pub(crate) log_buffer_bytes: usize,
    /// Tables outgrow the memory.
    pub(crate) large: bool,
    /// So small that most tables are promoted; or out of reach.
    pub(crate) promote_bytes: u64,
    /// The data directory.
    pub(crate) dir: String,
    /// A backup being made, and where.
    pub(crate) hot: Option<(myriad::Backup, String)>,
    pub(crate) rebuild: Option<Rebuild>,
    /// There while the log is off, or may be.
    pub(crate) backup: Option<Backup>,
    /// Whether the engine said that the log is off, and nothing since.
    pub(crate) surely_off: bool,
}

/// What a step ends with.
pub(crate) enum End {
    Fine,
    /// The engine cannot go on, or the outcome of something is unknown.
    Crash,
}

impl World {
    pub fn new(seed: u64, loud: bool) -> World {
        let mut random = Random::from_seed(seed);
        let io = SimIo::new(random.next_u64());
        World {
            page_size: [4 << 10, 4 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10][random.below(6) as usize],
            frames: if random.one_in(2) { 40 } else { 96 },
            log_parts: 2,
            log_buffer_bytes: 256 << 10,
            large: random.one_in(3),
            promote_bytes: [1, 16 << 10, 1 << 20][random.below(3) as usize],
            random,
            loud,
            io,
            engine: None,
            clients: Vec::new(),
            tables: HashMap::new(),
            model: Model::default(),
            alternatives: Vec::new(),
            lazy: Vec::new(),
            undone: Vec::new(),
            prepared: Vec::new(),
            losers: false,
            faulty: false,
            full: false,
            next_xid: 0,
            crashes: 0,
            backup: None,
            dir: "/data".into(),
            hot: None,
            rebuild: None,
            surely_off: false,
        }
    }

    pub fn run(mut self) {
        self.io.create_dir(Path::new("/data")).expect("folder");
        self.io.sync_dir(Path::new("/")).expect("folder");
        self.reopen();
        for _ in 0..3 + self.random.below(4) {
            self.epoch();
            match self.random.one_in(4) {
                true => self.stop(),
                false => self.crash(),
            }
        }
        self.settle();
        self.clean_close();
        self.leave_nothing();
    }

    // ---- opening, crashing, comparing -----------------------------------------------------------------------------

    pub(crate) fn config(&self, seed: u64) -> EngineConfig {
        let loud = self.loud;
        EngineConfig {
            buffer_pool_bytes: (self.page_size * self.frames) as u64,
            buffer_pool_instances: 2,
            log_capacity_bytes: self.log_bytes(),
            log_buffer_bytes: self.log_buffer_bytes,
            page_size: self.page_size,
            promote_bytes: self.promote_bytes,
            // Some leave pages to the next start when they stop.
            io_capacity_max: [3, 20_000][seed as usize % 2],
            background_threads: false,
            clock: Arc::new(ManualClock::default()),
            seed: Some(seed),
            report: Arc::new(move |level, text| {
                if loud {
                    eprintln!("    {level:?}: {text}");
                }
            }),
            ..EngineConfig::new(&self.dir)
        }
    }

    /// All that was committed is durable.
    pub(crate) fn hardened(&mut self) {
        self.lazy.clear();
        self.undone.clear();
    }

    /// The next start is one with more or less memory, and another log.
    fn change_sizes(&mut self) {
        let mut some = |of: &[u64]| of[self.random.below(of.len() as u64) as usize];
        self.frames = some(&[40, 40, 64, 96]) as usize;
        self.log_parts = some(&[2, 2, 3, 5]);
        self.log_buffer_bytes = some(&[64 << 10, 256 << 10]) as usize;
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        (self.page_size as u64 * 64).max(1 << 20) * self.log_parts
    }

    pub(crate) fn reopen(&mut self) {
        // A start that fails for a fault, or is cut short, is tried again.
        loop {
            if self.random.one_in(4) {
                self.inject();
            }
            if self.random.one_in(3) {
                self.power_off_within(300);
            }
            let config = self.config(self.crashes);
            match Engine::open_with(config, Some(Arc::new(self.io.clone()))) {
                Ok(engine) => {
                    assert!(!self.surely_off, "opened after a crash without the log");
                    self.backup = None;
                    // The fault may have stopped it when it was open.
                    if self.faulty && (engine.flush_log().is_err() || self.io.is_off()) {
                        say!(self, "stopped at its start");
                        drop(engine);
                        self.lose_power();
                        continue;
                    }
                    self.engine = Some(engine);
                    break;
                }
                Err(Error::Unlogged { .. }) => self.restore_backup(),
                Err(e) if self.faulty => {
                    say!(self, "open failed: {e}");
                    self.lose_power();
                }
                Err(e) => panic!("open failed: {e}"),
            }
        }
        self.heal();
        self.drop_copies();
        for _ in 0..3 {
            let session = self.engine().session();
            self.clients.push(Client {
                session,
                isolation: Isolation::RepeatableRead,
                open: false,
                changes: Changes::new(),
                touched: BTreeSet::new(),
                savepoints: Vec::new(),
                snapshot: None,
                auto: BTreeMap::new(),
                outdated: BTreeSet::new(),
            });
        }
    }

    /// Drops what a build that a crash ended, or a fault, has left.
    pub(crate) fn drop_copies(&self) {
        for copy in DATABASES.map(|db| format!("{db}/{}", crate::rebuild::COPY)) {
            let dropped = self.engine().drop_table(&copy);
            assert!(matches!(dropped, Ok(()) | Err(Error::NoSuchTable { .. })), "{copy}: {dropped:?}");
        }
    }

    pub(crate) fn engine(&self) -> Arc<Engine> {
        Arc::clone(self.engine.as_ref().expect("open"))
    }

    pub(crate) fn lose_power(&mut self) {
        let seed = self.random.next_u64();
        // The process ends, or the power fails.
        self.io = if self.random.one_in(4) { self.io.kill(seed) } else { self.io.crash(seed) };
        // A full disk may be full after the crash, too.
        self.full = self.full && self.random.one_in(2);
        self.faulty = self.full;
        if !self.full {
            self.io.set_capacity(None);
        }
        self.crashes += 1;
    }

    pub(crate) fn crash(&mut self) {
        say!(self, "crash");
        BUFFERED.fetch_add(self.metric("change_buffer_changes"), Ordering::Relaxed);
        UNWRITTEN.fetch_add(self.metric("pages_evicted_unwritten"), Ordering::Relaxed);
        self.lose_power();
        (self.hot, self.rebuild) = (None, None);
        self.tables.clear();
        self.clients.clear();
        // What the old engine does from now on happens on a disk that nobody looks at.
        self.engine = None;
        self.start_again();
    }

    fn start_again(&mut self) {
        self.alternatives.append(&mut self.lazy);
        self.losers = true;
        self.change_sizes();
        self.reopen();
        self.forget_memory();
        self.compare();
    }

    /// A start has emptied the tables that are in memory alone.
    pub(crate) fn forget_memory(&mut self) {
        for p in self.prepared.iter_mut().chain(&mut self.undone) {
            p.changes.retain(|(table, _), _| !self.model.is_in_memory(table));
            // Without lasting changes it need not be there any more.
            p.acknowledged &= !p.changes.is_empty();
        }
        self.model.forget_memory();
        self.alternatives.iter_mut().for_each(Model::forget_memory);
    }

    /// A stop and a start, with transactions prepared.
    fn stop(&mut self) {
        let faulty = self.faulty;
        self.heal();
        (self.hot, self.rebuild) = (None, None);
        self.tables.clear();
        self.clients.clear();
        let mode = [CloseMode::Clean, CloseMode::Purged, CloseMode::LogOnly][self.random.below(3) as usize];
        say!(self, "stop: {mode:?}");
        match self.engine().close(mode) {
            Ok(()) => {
                self.hardened();
                self.surely_off = false;
            }
            Err(e) => assert!(faulty || matches!(e, Error::Poisoned { .. }), "close: {e}"),
        }
        self.engine = None;
        self.lose_power();
        self.start_again();
    }

    pub(crate) fn compare(&mut self) {
        self.match_prepared();
        let mut candidates = std::mem::take(&mut self.alternatives);
        candidates.insert(0, self.model.clone());
        let found = self.contents(&candidates);
        let same = |m: &Model| {
            let is_as_found = |(name, t): (&String, &TableModel)| {
                found.get(name).is_some_and(|(rows, definition)| (rows, definition) == (&t.rows, &t.definition))
            };
            m.tables.len() == found.len() && m.tables.iter().all(is_as_found)
        };
        let Some(i) = candidates.iter().position(same) else { self.explain(&candidates, &found) };
        // Several may have the same rows; of an emptied table the counter begins anew.
        let floor = |name: &String| candidates.iter().filter(|m| same(m)).map(|m| m.tables[name].auto_floor).min();
        let floors: Vec<_> = candidates[i].tables.keys().map(floor).collect();
        self.model = candidates.swap_remove(i);
        for (table, floor) in self.model.tables.values_mut().zip(floors) {
            table.auto_floor = floor.expect("of this one");
        }
        self.check_tables();
        self.check_references();
    }

    pub(crate) fn explain(&self, candidates: &[Model], found: &Found) -> ! {
        for (i, model) in candidates.iter().enumerate() {
            let names: Vec<_> = model.tables.keys().collect();
            eprintln!("candidate {i}: tables {names:?}; found {:?}", found.keys().collect::<Vec<_>>());
            for (name, table) in &model.tables {
                let Some((rows, definition)) = found.get(name) else { continue };
                if table.definition != *definition {
                    eprintln!("  {name}: expected {:?}, found {definition:?}", table.definition);
                }
                for key in table.rows.keys().chain(rows.keys()).collect::<BTreeSet<_>>() {
                    let (want, got) = (table.rows.get(key), rows.get(key));
                    if want != got {
                        let show = |v: Option<&Vec<u8>>| v.map(|v| (v.len(), v[..v.len().min(6)].to_vec()));
                        eprintln!("  {name} {key:?}: expected {:?}, found {:?}", show(want), show(got));
                    }
                }
            }
        }
        panic!("contents differ from the model");
    }

    /// Tables found in the databases.
    pub(crate) fn contents(&mut self, candidates: &[Model]) -> Found {
        let engine = self.engine();
        let mut found = BTreeMap::new();
        for db in DATABASES {
            let mut names = Vec::new();
            engine
                .list_tables(db, &mut |name| {
                    if self.rebuild.is_none() || name != crate::rebuild::COPY {
                        names.push(format!("{db}/{name}"));
                    }
                    true
                })
                .expect("list");
            for name in names {
                assert!(candidates.iter().any(|m| m.tables.contains_key(&name)), "{name} should not be there");
                let rows = self.read_table(&name);
                let (image, keys) = (engine.frm(&name).expect("image"), engine.foreign_keys(&name).expect("keys"));
                found.insert(name, (rows, Definition::new(image, keys)));
            }
        }
        found
    }

    /// Reads a table as a new transaction sees it and holds its secondary indexes against it.
    pub(crate) fn read_table(&mut self, name: &str) -> Rows {
        let table = self.table(name).expect("open table");
        let session = &mut self.clients[0].session;
        session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
        let indexes = [0, 1, 2].map(|no| scan(session, &table, no).expect("scan"));
        session.statement_end();
        session.commit().expect("end of a read");
        let [rows, values, tags] = indexes;
        assert_keys(values, &rows, by_value, &format!("index 1 of {name}"));
        assert_keys(tags, &rows, by_tag, &format!("index 2 of {name}"));
        rows
    }

    pub(crate) fn check_tables(&mut self) {
        let names: Vec<String> = self.model.tables.keys().cloned().collect();
        for name in names {
            let table = self.table(&name).expect("open table");
            table.check(&mut |finding| panic!("{name}: {finding}")).expect("check");
            let next = table.info().expect("info").auto_increment_next;
            let floor = self.model.tables[&name].auto_floor;
            assert!(next >= floor, "{name}: AUTO_INCREMENT {next}, {floor} was acknowledged");
        }
    }

    /// Compares the prepared transactions found with those that must and may be there.
    pub(crate) fn match_prepared(&mut self) {
        let found: BTreeSet<Vec<u8>> = self.engine().prepared().into_iter().collect();
        let known = std::mem::take(&mut self.prepared);
        // If one is prepared again, what is compared is a model without it.
        let again = std::mem::take(&mut self.undone).into_iter().filter(|p| found.contains(&p.xid));
        let known: Vec<_> = known.into_iter().chain(again).collect();
        for xid in &found {
            assert!(known.iter().any(|p| p.xid == *xid), "prepared {xid:?} was never prepared or has ended");
        }
        for mut p in known {
            if found.contains(&p.xid) {
                p.acknowledged = true;
                p.maybe_committed = false;
                self.prepared.push(p);
            } else if p.maybe_committed {
                // It ended, and in no other way than committed.
                self.model.apply(&p.changes);
            } else {
                assert!(!p.acknowledged, "prepared {:?} was lost", p.xid);
            }
        }
    }

    /// Ends everything and looks again: after all background work nothing may have changed, and no file be left over.
    pub(crate) fn settle(&mut self) {
        self.heal();
        for p in std::mem::take(&mut self.prepared) {
            assert!(self.engine().commit_by_xid(&p.xid).expect("commit"), "{:?}", p.xid);
            self.model.apply(&p.changes);
        }
        (self.hot, self.rebuild) = (None, None);
        self.drop_copies();
        self.end_background_work();
        let engine = self.engine();
        self.compare();
        let listed = engine.spaces().expect("spaces");
        let listed: BTreeSet<String> = listed.iter().map(|s| s.path.replace("#myriad/", "")).collect();
        let files = self.io.list_dir(&Path::new(&self.dir).join("#myriad")).expect("folder");
        let files: BTreeSet<String> = files.into_iter().filter(|f| f.ends_with(".myr")).collect();
        assert_eq!(files, listed, "files and catalog");
    }

    pub(crate) fn metric(&self, wanted: &str) -> u64 {
        self.engine().metric(wanted).expect("a metric")
    }

    /// Does all background work. It has an end: a seed that does not come to it fails, and so is told.
    fn end_background_work(&self) {
        let mut steps = 0..100_000;
        while self.engine().background_step().expect("background") {
            assert!(steps.next().is_some(), "background work without end");
        }
    }

    /// When all tables are dropped no page is in use but those that were lost in crashes.
    fn leave_nothing(&mut self) {
        let before = self.pages_without_tables();
        let full_at_times = self.random.one_in(2);
        for _ in 0..self.random.below(200) {
            if full_at_times && self.random.one_in(5) {
                self.fill_disk(16 << 10);
            } else if self.random.one_in(10) {
                self.heal();
            }
            if matches!(self.step(), End::Crash) {
                self.survive();
            }
        }
        let after = self.pages_without_tables();
        for (path, pages) in after {
            assert_eq!(pages, before.get(&path).copied().unwrap_or(EMPTY_PAGES), "pages in use in {path}");
        }
    }

    /// Something has failed for a full disk, but the engine has not: what it was to do is done wholly or not at all.
    fn survive(&mut self) {
        say!(self, "goes on");
        assert!(self.full, "nothing can have failed");
        self.heal();
        self.engine().flush_log().expect("a full disk does not stop the engine");
        for client in &mut self.clients {
            client.session.rollback().expect("rollback");
            client.reset();
        }
        self.compare();
    }

    /// Drops all tables; pages that are in use then in each tablespace that is left.
    fn pages_without_tables(&mut self) -> BTreeMap<String, u32> {
        self.heal();
        if self.backup.is_some() {
            assert!(matches!(self.switch_redo_log(), End::Fine));
        }
        for client in &mut self.clients {
            client.session.rollback().expect("rollback");
            client.reset();
        }
        self.settle();
        self.tables.clear();
        let engine = self.engine();
        for name in std::mem::take(&mut self.model).tables.into_keys() {
            engine.drop_table(&name).expect("drop");
        }
        self.end_background_work();
        engine.checkpoint_now().expect("checkpoint");
        let mut used = BTreeMap::new();
        for space in engine.spaces().expect("spaces").iter().filter(|s| s.space_id >= SpaceId::FIRST_USER.0) {
            let file = self.io.open(&Path::new("/data").join(&space.path), OpenMode::READ).expect("file");
            let mut bitmap = vec![0; self.page_size];
            file.read_at(&mut bitmap, self.page_size as u64).expect("bitmap page");
            // See docs/format.md.
            used.insert(space.path.clone(), get_u32(&bitmap, 28));
        }
        used.insert("memory".into(), (self.metric("memory_tables_bytes") / self.page_size as u64) as u32);
        assert!(engine.locks().is_empty() && engine.transactions().is_empty(), "something goes on");
        assert_eq!(self.metric("history_length"), 0);
        used
    }

    pub(crate) fn clean_close(&mut self) {
        (self.hot, self.rebuild) = (None, None);
        if self.random.one_in(3) {
            assert!(matches!(self.switch_redo_log(), End::Fine));
            for _ in 0..self.random.below(100) {
                assert!(matches!(self.step(), End::Fine));
            }
        }
        self.tables.clear();
        self.clients.clear();
        let mode = [CloseMode::Clean, CloseMode::Purged, CloseMode::LogOnly][self.random.below(3) as usize];
        self.engine().close(mode).expect("close");
        self.backup = None;
        self.surely_off = false;
        self.engine = None;
        self.hardened();
        self.lose_power();
        self.start_again();
    }
}

impl Client {
    /// The transaction has ended.
    pub(crate) fn reset(&mut self) {
        self.open = false;
        self.changes.clear();
        self.touched.clear();
        self.savepoints.clear();
        self.snapshot = None;
        self.auto.clear();
        self.outdated.clear();
    }
}
