//! The power fails amid an engine with all its threads, whose clients, settings, definitions and backups do not wait for each other, and
//! one of whose files cannot be written now and then.
//!
//! What a client's transaction does follows from its number, and the number is a row: so all rows that a crash or a backup has to
//! have follow from the number that it has, and that is the last one acknowledged or the one under way.

use crate::model::Rows;
use crate::rows::{assert_keys, delete, insert, scan, update};
use crate::{hot::WHOLE, model};
use myriad::*;
use myriad_base::random::Random;
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DATABASES: [&str; 3] = ["a", "b", "copy"];
const CLIENTS: [&str; 4] = ["a/0", "a/1", "b/2", "b/3"];
const KEYS: u64 = 400;
/// The file that cannot always be written.
const FAILING: &str = "/data/#myriad/b.";
const NUMBER: &[u8] = b"number";

fn spec() -> TableSpec<'static> {
    TableSpec { indexes: &[IndexSpec::UNIQUE, IndexSpec::PLAIN, IndexSpec::UNIQUE], ..Default::default() }
}

/// The changes of a client's transaction: rows, and those of them that go.
fn changes(client: usize, number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut random = Random::from_seed((client as u64) << 48 | number);
    let count = 1 + random.below(4);
    let mut changes: Vec<_> = (0..count)
        .map(|_| {
            let key = (random.below(KEYS) as u16).to_be_bytes();
            let len = if random.one_in(30) { 9000 } else { 3 + random.below(200) };
            let mut value = vec![random.below(256) as u8; len as usize];
            value[..2].copy_from_slice(&key);
            (key.to_vec(), (!random.one_in(3)).then_some(value))
        })
        .collect();
    changes.push((NUMBER.to_vec(), Some([&[0xff; 3][..], &number.to_be_bytes()].concat())));
    changes
}

/// How often a client was refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Pages that were logged whole because they could not be written.
static CARRIED: AtomicU64 = AtomicU64::new(0);

fn number_in(rows: &Rows) -> u64 {
    rows.get(NUMBER).map_or(0, |value| u64::from_be_bytes(value[3..].try_into().expect("a number")))
}

fn transaction(session: &mut Session, table: &Table, client: usize, number: u64) -> Result<()> {
    session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(20));
    for (key, value) in changes(client, number) {
        let old = session.get(table, 0, &key, false, Lock::Exclusive, Wait::Wait)?.map(|row| row.value.to_vec());
        match (old, value) {
            (None, Some(value)) => insert(session, table, &key, &value)?,
            (Some(old), Some(value)) => update(session, table, &key, &old, &value)?,
            (Some(old), None) => delete(session, table, &key, &old)?,
            (None, None) => {}
        }
    }
    session.statement_end();
    session.commit()
}

#[derive(Default)]
struct Record {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

struct Machine {
    io: SimIo,
    random: Random,
    clients: [Record; CLIENTS.len()],
}

fn config(dir: &str, pool: u64, threads: bool) -> EngineConfig {
    EngineConfig {
        buffer_pool_bytes: pool,
        buffer_pool_instances: 2,
        log_capacity_bytes: 4 << 20,
        log_buffer_bytes: 256 << 10,
        page_size: 4096,
        promote_bytes: 64 << 10,
        background_threads: threads,
        start_pause: Duration::ZERO,
        seed: Some(1),
        ..EngineConfig::new(dir)
    }
}

fn is_refused<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Io { path, .. }) if path.contains(FAILING))
}

/// Whether the power is on. What fails for another reason fails the test.
fn goes_on<T>(io: &SimIo, what: &str, result: Result<T>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(_) if io.is_off() => None,
        Err(e) => panic!("{what}: {e}"),
    }
}

fn read(session: &mut Session, table: &Table) -> Rows {
    session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(20));
    let [rows, values, tags] = [0, 1, 2].map(|index| scan(session, table, index).expect("scan"));
    session.statement_end();
    session.commit().expect("end of a read");
    assert_keys(values, &rows, model::by_value, table.name());
    assert_keys(tags, &rows, model::by_tag, table.name());
    rows
}

/// Holds all tables against what the clients were told between two moments.
fn compare(engine: &Arc<Engine>, least: [u64; CLIENTS.len()], most: [u64; CLIENTS.len()]) -> [u64; CLIENTS.len()] {
    let mut session = engine.session();
    for db in DATABASES {
        let mut names = Vec::new();
        let list = engine.list_tables(db, &mut |name| {
            names.push(format!("{db}/{name}"));
            true
        });
        list.expect("list");
        for name in names {
            let table = engine.open_table(&name).expect("open table");
            table.check(&mut |finding| panic!("{name}: {finding}")).expect("check");
        }
    }
    std::array::from_fn(|client| {
        let name = CLIENTS[client];
        let rows = read(&mut session, &engine.open_table(name).expect("open table"));
        let number = number_in(&rows);
        assert!((least[client]..=most[client]).contains(&number), "{name}: {number} of {least:?} to {most:?}");
        let mut expected = Rows::new();
        for (key, value) in (1..=number).flat_map(|number| changes(client, number)) {
            match value {
                Some(value) => drop(expected.insert(key, value)),
                None => drop(expected.remove(&key)),
            }
        }
        assert!(rows == expected, "{name} at {number}");
        number
    })
}

impl Machine {
    fn begun(&self) -> [u64; CLIENTS.len()] {
        std::array::from_fn(|client| self.clients[client].begun.load(Ordering::SeqCst))
    }

    fn acknowledged(&self) -> [u64; CLIENTS.len()] {
        std::array::from_fn(|client| self.clients[client].acknowledged.load(Ordering::SeqCst))
    }

    fn start(&mut self) -> Arc<Engine> {
        loop {
            let pool = [256 << 10, 1 << 20, 3 << 20][self.random.below(3) as usize];
            if self.random.one_in(2) {
                self.io.power_off_after(self.random.below(400));
            }
            let opened = Engine::open_with(config("/data", pool, true), Some(Arc::new(self.io.clone())));
            if let Ok(engine) = opened {
                self.io.power_off_after(u64::MAX);
                if !self.io.is_off() {
                    engine.start_background();
                    return engine;
                }
            } else {
                assert!(self.io.is_off(), "{:?}", opened.err());
            }
            self.lose_power();
        }
    }

    fn lose_power(&mut self) {
        let seed = self.random.next_u64();
        self.io = if self.random.one_in(4) { self.io.kill(seed) } else { self.io.crash(seed) };
    }

    /// Works until the power fails.
    fn epoch(&mut self) {
        let engine = self.start();
        let numbers = compare(&engine, self.acknowledged(), self.begun());
        for (record, number) in self.clients.iter().zip(numbers) {
            record.begun.store(number, Ordering::SeqCst);
            record.acknowledged.store(number, Ordering::SeqCst);
        }
        let range = 1 + self.random.below(6_000);
        self.io.power_off_after(self.random.below(range));
        let mut random = || Random::from_seed(self.random.next_u64());
        let (mut settings, mut definitions, mut backups, mut failures) = (random(), random(), random(), random());
        let this = &*self;
        std::thread::scope(|scope| {
            for client in 0..CLIENTS.len() {
                let engine = &engine;
                scope.spawn(move || this.client(engine, client));
            }
            // Of what waits for a device that is gone nothing is to be learned.
            scope.spawn(|| {
                while !this.io.is_off() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                engine.poison("the power has failed");
            });
            scope.spawn(|| while this.set(&engine, &mut settings).is_some() {});
            scope.spawn(|| this.fail(&mut failures));
            scope.spawn(|| while this.define(&engine, &mut definitions).is_some() {});
            scope.spawn(|| while this.back_up(&engine, &mut backups).is_some() {});
        });
        CARRIED.fetch_add(engine.metric("pages_carried_forward").expect("a metric"), Ordering::Relaxed);
        drop(engine);
        self.lose_power();
    }

    fn client(&self, engine: &Arc<Engine>, client: usize) {
        let Some(table) = goes_on(&self.io, "open table", engine.open_table(CLIENTS[client])) else { return };
        let (mut session, record) = (engine.session(), &self.clients[client]);
        loop {
            let number = record.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let done = loop {
                let done = transaction(&mut session, &table, client, number);
                if !is_refused(&done) {
                    break done;
                }
                REFUSED.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                if goes_on(&self.io, "rollback", session.rollback()).is_none() {
                    return;
                }
            };
            if goes_on(&self.io, CLIENTS[client], done).is_none() {
                return;
            }
            record.acknowledged.store(number, Ordering::SeqCst);
        }
    }

    /// Until the power fails.
    fn fail(&self, random: &mut Random) {
        while !self.io.is_off() {
            std::thread::sleep(Duration::from_millis(random.below(400)));
            self.io.inject(CallKind::Write, FAILING, 0, Fault::Eio, true);
            std::thread::sleep(Duration::from_millis(random.below(400)));
            self.io.clear_faults();
        }
    }

    fn set(&self, engine: &Arc<Engine>, random: &mut Random) -> Option<()> {
        let mut some = |of: &[u64]| of[random.below(of.len() as u64) as usize];
        let setting = match some(&[0, 0, 1, 1, 2, 3]) {
            0 => Setting::LogCapacityBytes(some(&[2 << 20, 3 << 20, 9 << 20])),
            1 => Setting::BufferPoolBytes(some(&[256 << 10, 1 << 20, 3 << 20])),
            2 => Setting::ChangeBufferMaxSize(some(&[0, 25]) as u32),
            _ => Setting::MaxOpenFiles(some(&[1, 100]) as usize),
        };
        std::thread::sleep(Duration::from_millis(some(&[0, 1, 5])));
        match engine.set(setting) {
            // A backup is made; the log grows faster than it is copied.
            Err(Error::NotSupported { .. } | Error::Invalid { .. }) => Some(()),
            done => goes_on(&self.io, &format!("{setting:?}"), done),
        }
    }

    /// Tables that come and go beside the clients', so that extents are given back, and copies of a database.
    fn define(&self, engine: &Arc<Engine>, random: &mut Random) -> Option<()> {
        if random.one_in(4) {
            goes_on(&self.io, "drop database", engine.drop_database("copy"))?;
            let cloned = engine.clone_database("a", "copy", &[], &mut crate::define::AsItIs);
            let cloned = goes_on(&self.io, "clone", cloned)?;
            return goes_on(&self.io, "finish", engine.finish_clone(cloned.note));
        }
        let name = ["a/x", "b/y"][random.below(2) as usize];
        if goes_on(&self.io, "exists", engine.table_exists(name))? {
            return goes_on(&self.io, "drop", engine.drop_table(name));
        }
        let placement = random.one_in(3).then_some(Placement::Table);
        let in_memory = random.one_in(4);
        let created = engine.create_table(name, &TableSpec { placement, in_memory, ..spec() });
        if is_refused(&created) {
            return Some(());
        }
        goes_on(&self.io, "create", created)?;
        let table = goes_on(&self.io, "open", engine.open_table(name))?;
        let mut session = engine.session();
        for row in 0..random.below(600) as u16 {
            session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(20));
            let key = row.to_be_bytes();
            match insert(&mut session, &table, &key, &[&key[..], &[7; 900]].concat()) {
                Err(Error::MemoryFull { .. }) => return goes_on(&self.io, "rollback", session.rollback()),
                refused if is_refused(&refused) => return goes_on(&self.io, "rollback", session.rollback()),
                inserted => goes_on(&self.io, "insert", inserted)?,
            }
            session.statement_end();
        }
        goes_on(&self.io, "commit", session.commit())
    }

    fn back_up(&self, engine: &Arc<Engine>, random: &mut Random) -> Option<()> {
        std::thread::sleep(Duration::from_millis(random.below(30)));
        let dir = format!("/backup{}", random.next_u64());
        let mut backup = goes_on(&self.io, "backup", engine.backup(Path::new(&dir)))?;
        let copied = backup.copy_all(&mut |_| true).and_then(|()| backup.keep_up());
        goes_on(&self.io, "copy", copied)?;
        let least = self.acknowledged();
        goes_on(&self.io, "finish", backup.finish(&mut |_| true))?;
        let most = self.begun();
        let io = self.io.crash(random.next_u64());
        let copy = Engine::open_with(config(&dir, 1 << 20, false), Some(Arc::new(io))).expect("a backup that is whole");
        compare(&copy, least, most);
        WHOLE.fetch_add(1, Ordering::Relaxed);
        Some(())
    }
}

fn run(seed: u64) {
    let _seed = crate::Seed(seed);
    let mut random = Random::from_seed(seed);
    let io = SimIo::new(random.next_u64());
    io.create_dir(Path::new("/data")).expect("folder");
    let mut machine = Machine { io, random, clients: Default::default() };
    let engine = Engine::open_with(config("/data", 1 << 20, true), Some(Arc::new(machine.io.clone()))).expect("first");
    for name in CLIENTS {
        engine.create_table(name, &spec()).expect("create");
    }
    drop(engine);
    for _ in 0..4 {
        machine.epoch();
    }
    let engine = machine.start();
    compare(&engine, machine.acknowledged(), machine.begun());
    engine.close(CloseMode::Purged).expect("close");
}

/// What happens depends on the threads as well: a seed that failed need not fail again.
#[test]
fn power_failures_amid_threads() {
    let budget = Duration::from_secs(crate::number("MYRIAD_SIM_SECONDS").unwrap_or(10));
    let (begun, mut seed) = (Instant::now(), crate::number("MYRIAD_SIM_SEED").unwrap_or(1));
    let first = seed;
    while begun.elapsed() < budget {
        run(seed);
        seed += 1;
    }
    let [backups, refused, carried] = [&WHOLE, &REFUSED, &CARRIED].map(|count| count.load(Ordering::Relaxed));
    let runs = seed - first;
    println!(
        "power failures: {runs} runs, {backups} backups; {refused} changes refused, {carried} pages carried forward"
    );
}
