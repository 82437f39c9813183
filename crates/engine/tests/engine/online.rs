//! Indexes built while transactions change the table.

use super::indexes::secondary_entries;
use super::*;
use myriad_base::random::Random;
use std::sync::atomic::AtomicU64;

const KEYS: u64 = 3_000;

/// A table, and an index of it under construction: of rows' values, which are unique or small numbers.
struct Online {
    engine: Arc<Engine>,
    table: Table,
    changes: RowChanges,
    build: IndexBuild,
    before: Session,
    unique: bool,
}

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&value[..8], key].concat()
}

impl Online {
    /// Nobody may have changed the table and not committed.
    fn begin(engine: &Arc<Engine>, name: &str, unique: bool, tmp: &Path) -> Online {
        let table = engine.open_table(name).unwrap();
        let mut before = engine.session();
        let changes = RowChanges::begin(&mut before, &table, tmp, 1 << 20).unwrap();
        let again = RowChanges::begin(&mut engine.session(), &table, tmp, 1 << 20);
        assert!(matches!(again, Err(Error::Invalid { .. })));
        let build = IndexBuild::begin(&mut before, &table, unique, tmp, 1 << 20).unwrap();
        Online { engine: Arc::clone(engine), table, changes, build, before, unique }
    }

    fn read_all(&mut self) -> Result<()> {
        let (build, unique_len) = (&mut self.build, if self.unique { 8 } else { 0 });
        for row in self.before.rows(&self.table, 0)? {
            let (key, value) = row?;
            build.add(&entry(&key, &value), unique_len, &value[8..])?;
        }
        build.finish()
    }

    fn catch_up(&mut self) -> Result<u64> {
        let mut now = self.engine.session();
        let (build, unique_len) = (&mut self.build, if self.unique { 8 } else { 0 });
        let count = self.changes.visit(&mut self.before, &mut now, false, &mut |RowChange { old, new }| {
            if let Some(old) = old {
                build.remove(&entry(old.key, old.value))?;
            }
            new.map_or(Ok(()), |new| build.add(&entry(new.key, new.value), unique_len, &new.value[8..]))
        })?;
        self.before = now;
        self.build.catch_up()?;
        Ok(count)
    }

    fn adopt(mut self) {
        let name = self.table.name().to_string();
        let second = IndexSpec { unique: self.unique, ..IndexSpec::PLAIN };
        let to = NewDefinition { frm: b"image", ..Default::default() };
        let indexes = [(IndexSpec::UNIQUE, Some(0)), (second, None)];
        let alteration =
            Alteration { name: &name, to, indexes: &indexes, builds: vec![&mut self.build], contents: None };
        self.engine.alter_tables(&mut [alteration]).unwrap();
    }
}

/// The table's entries are those that its rows ask for.
fn check_entries(engine: &Arc<Engine>, name: &str) {
    let table = engine.open_table(name).unwrap();
    table.check(&mut |finding| panic!("{name}: {finding}")).unwrap();
    let mut expected: Vec<_> = rows(engine, name).iter().map(|(k, v)| (entry(k, v), v[8..].to_vec())).collect();
    expected.sort();
    let found = secondary_entries(engine, name);
    assert!(found == expected, "{name}: {} entries, {} rows", found.len(), expected.len());
}

/// Changes rows until `done`: transactions of some statements, some of which are rolled back, in part or as a whole.
fn write(engine: &Arc<Engine>, name: &str, seed: u64, unique: bool, next: &AtomicU64, done: &AtomicBool) {
    let table = engine.open_table(name).unwrap();
    let mut random = Random::from_seed(seed);
    let mut session = engine.session();
    while !done.load(Ordering::Acquire) {
        let mut savepoint = None;
        for _ in 0..1 + random.below(6) {
            if random.one_in(4) {
                savepoint = Some(session.savepoint().unwrap());
            }
            let key = random.below(KEYS).to_be_bytes();
            let value = |random: &mut Random| {
                let n = if unique { next.fetch_add(1, Ordering::Relaxed) } else { random.below(50) };
                let payload = vec![n as u8; random.below(200) as usize];
                [&n.to_be_bytes()[..], &payload].concat()
            };
            let changed = match random.below(4) {
                0 => session.remove(&table, &key).map(|_| ()),
                1 => session.insert(&table, &key, &value(&mut random)),
                2 => session.update(&table, &key, &value(&mut random)).map(|_| ()),
                // The row's value goes to another key: of unique ones the entry that is in the way goes first.
                _ => session
                    .get(&table, 0, &key, false, Lock::Exclusive, Wait::Wait)
                    .map(|r| r.map(|r| r.value.to_vec()))
                    .and_then(|old| {
                        let Some(old) = old else { return Ok(()) };
                        session.remove(&table, &key)?;
                        session.insert(&table, &random.below(KEYS).to_be_bytes(), &old)
                    }),
            };
            match changed {
                Ok(()) => {}
                Err(Error::DuplicateKey { .. }) if !unique => {}
                // Half of a move, or a deadlock.
                Err(Error::DuplicateKey { .. } | Error::Deadlock) => {
                    session.rollback().unwrap();
                    savepoint = None;
                }
                Err(e) => panic!("{e}"),
            }
        }
        if let Some(savepoint) = savepoint.filter(|_| random.one_in(3)) {
            session.rollback_to(savepoint).unwrap();
        }
        if random.one_in(4) { session.rollback() } else { session.commit() }.unwrap();
    }
}

fn builds_under_writers(rows_before: u64, unique: bool) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.start_background();
    engine.create_table("d/t", &spec()).unwrap();
    let table = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    for i in 0..rows_before {
        let value = [&i.to_be_bytes()[..], &[7; 30]].concat();
        session.insert(&table, &(KEYS / 2 + i).to_be_bytes(), &value).unwrap();
    }
    session.commit().unwrap();
    let mut online = Online::begin(&engine, "d/t", unique, dir.path());
    let (next, done) = (AtomicU64::new(1 << 32), AtomicBool::new(false));
    let caught_up = std::thread::scope(|scope| {
        for seed in 1..=3 {
            let (engine, next, done) = (&engine, &next, &done);
            scope.spawn(move || write(engine, "d/t", seed, unique, next, done));
        }
        std::thread::sleep(Duration::from_millis(50));
        let caught_up = online.read_all().and_then(|()| {
            let (mut rows, begin) = (0, std::time::Instant::now());
            for round in 1.. {
                std::thread::sleep(Duration::from_millis(20));
                rows += online.catch_up()?;
                // On a busy machine the writers come to it late.
                if round >= 20 && rows > 100 || begin.elapsed().as_secs() >= 60 {
                    break;
                }
            }
            Ok(rows)
        });
        done.store(true, Ordering::Release);
        caught_up.unwrap()
    });
    assert!(caught_up > 100, "{caught_up} rows have changed");
    online.catch_up().unwrap();
    assert_eq!(online.catch_up().unwrap(), 0, "nobody changes anything now");
    online.adopt();
    check_entries(&engine, "d/t");
    engine.close(CloseMode::Purged).unwrap();
}

#[test]
fn an_index_follows_the_table_while_it_is_built() {
    for rows in [0, 500, 20_000] {
        builds_under_writers(rows, false);
        builds_under_writers(rows, true);
    }
}

/// A transaction that is open during a visit is told once it has committed, however early its rows were noted.
#[test]
fn an_open_transaction_counts_when_it_commits() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let mut online = Online::begin(&engine, "d/t", true, Path::new("/data"));
    let (mut one, mut other) = (engine.session(), engine.session());
    one.insert(&online.table, b"kept", b"00000001").unwrap();
    other.insert(&online.table, b"gone", b"00000002").unwrap();
    online.read_all().unwrap();
    for _ in 0..3 {
        assert_eq!(online.catch_up().unwrap(), 2);
    }
    one.commit().unwrap();
    other.rollback().unwrap();
    assert_eq!(online.catch_up().unwrap(), 2);
    assert_eq!(online.catch_up().unwrap(), 0);
    online.adopt();
    check_entries(&engine, "d/t");
    assert_eq!(rows(&engine, "d/t").len(), 1);
}

/// Two rows that are alike for a snapshot are an error; two that were so between two snapshots are not.
#[test]
fn a_duplicate_is_found_when_it_is_committed() {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    let mut online = Online::begin(&engine, "d/t", true, Path::new("/data"));
    online.read_all().unwrap();
    let mut session = engine.session();
    for (key, remove) in [(b"a", false), (b"b", true), (b"c", false)] {
        session.insert(&online.table, key, b"00000001").unwrap();
        session.commit().unwrap();
        if remove {
            assert!(session.remove(&online.table, key).unwrap());
            session.commit().unwrap();
        }
        if key != b"c" {
            online.catch_up().unwrap();
        }
    }
    assert!(matches!(online.catch_up(), Err(Error::DuplicateKey { .. })));
    assert_eq!(online.build.duplicate(), b"00000001a");
    // What was not adopted is reclaimed, and the table is as it was.
    drop(online);
    while engine.background_step().unwrap() {}
    let table = engine.open_table("d/t").unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
    assert_eq!(rows(&engine, "d/t").len(), 2);
}
