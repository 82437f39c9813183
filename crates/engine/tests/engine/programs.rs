//! What programs use that embed the engine: transactions by closure, iterators, indexes kept by themselves.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Barrier;

/// A program's own error.
#[derive(Debug, PartialEq)]
enum Refused {
    ByRule,
    ByEngine(Error),
}

impl From<Error> for Refused {
    fn from(e: Error) -> Refused {
        Refused::ByEngine(e)
    }
}

fn open_filled(rows: u32) -> (Arc<Engine>, Table) {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", rows);
    let table = engine.open_table("d/t").unwrap();
    (engine, table)
}

fn is_invalid<R: std::fmt::Debug>(result: Result<R>) {
    assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
}

#[test]
fn a_closure_commits_or_leaves_nothing() {
    let (engine, table) = open_filled(0);
    let mut session = engine.session();
    let done = session.transaction(|s| -> Result<u32> {
        s.insert(&table, b"a", b"1")?;
        Ok(7)
    });
    assert_eq!(done, Ok(7));
    let refused = session.transaction(|s| {
        s.insert(&table, b"b", b"1")?;
        Err::<(), _>(Refused::ByRule)
    });
    assert_eq!(refused, Err(Refused::ByRule));
    let failed = session.transaction(|s| {
        s.insert(&table, b"c", b"1")?;
        s.insert(&table, b"a", b"1")?;
        Ok::<(), Refused>(())
    });
    assert!(matches!(failed, Err(Refused::ByEngine(Error::DuplicateKey { .. }))), "{failed:?}");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        session.transaction(|s| -> Result<()> {
            s.insert(&table, b"d", b"1")?;
            panic!("of the program")
        })
    }));
    assert!(panicked.is_err() && !session.in_transaction());
    // It may take back a part, or all so far.
    session
        .transaction(|s| -> Result<()> {
            s.insert(&table, b"e", b"1")?;
            s.rollback()?;
            s.insert(&table, b"f", b"1")?;
            let savepoint = s.savepoint()?;
            s.insert(&table, b"g", b"1")?;
            s.rollback_to(savepoint)
        })
        .unwrap();
    assert!(!session.in_transaction());
    assert_eq!(rows(&engine, "d/t").into_iter().map(|row| row.0).collect::<Vec<_>>(), [b"a", b"f"]);
}

#[test]
fn a_closure_is_one_transaction() {
    let (engine, table) = open_filled(0);
    let mut session = engine.session();
    session
        .transaction(|s| -> Result<()> {
            is_invalid(s.transaction(|_| Ok::<(), Error>(())));
            s.insert(&table, b"a", b"1")?;
            is_invalid(s.commit());
            is_invalid(s.commit_later());
            is_invalid(s.commit_visible());
            is_invalid(s.commit_finish(true));
            is_invalid(s.prepare(b"x"));
            assert_eq!(engine.session().find(&table, b"a")?, None);
            Ok(())
        })
        .unwrap();
    // An open one is not the closure's to commit.
    session.find(&table, b"a").unwrap();
    is_invalid(session.transaction(|s| s.remove(&table, b"a")));
    session.commit().unwrap();
    session.transaction(|s| s.remove(&table, b"a")).unwrap();
    assert_eq!(rows(&engine, "d/t"), []);
}

/// Two sessions that change two rows, in either order, at the same time in their first attempt; how often the closures ran, and what came
/// of it.
fn deadlocked(
    options: TransactionOptions,
    change: impl Fn(&mut Session, &Table, [&[u8]; 2], &dyn Fn()) -> Result<()> + Sync,
) -> (u32, Vec<Result<()>>) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_with(config(dir.path()), None).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 2);
    let (table, barrier) = (engine.open_table("d/t").unwrap(), Barrier::new(2));
    let (a, b) = (0u32.to_be_bytes(), 1u32.to_be_bytes());
    let run = |keys: [&[u8]; 2]| {
        let (mut session, mut ran) = (engine.session(), 0);
        session.set_options(options);
        let result = session.transaction(|s| {
            ran += 1;
            let meet = || {
                if ran == 1 {
                    barrier.wait();
                }
            };
            change(s, &table, keys, &meet)
        });
        assert!(!session.in_transaction());
        (ran, result)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run([&b, &a]));
        let (mine, other) = (run([&a, &b]), other.join().unwrap());
        (mine.0 + other.0, vec![mine.1, other.1])
    })
}

fn change_both(s: &mut Session, table: &Table, keys: [&[u8]; 2], meet: &dyn Fn()) -> Result<()> {
    s.update(table, keys[0], b"new")?;
    meet();
    s.update(table, keys[1], b"new").map(drop)
}

#[test]
fn a_closure_runs_again_after_a_deadlock() {
    assert_eq!(deadlocked(TransactionOptions::default(), change_both), (3, vec![Ok(()), Ok(())]));
    let (ran, results) = deadlocked(TransactionOptions { attempts: 0, ..Default::default() }, change_both);
    assert_eq!((ran, results.iter().filter(|r| **r == Err(Error::Deadlock)).count()), (2, 1), "{results:?}");
}

/// A part of a transaction is not committed because the closure did not look.
#[test]
fn a_deadlock_that_a_closure_ignores_is_one_all_the_same() {
    let ignoring = |s: &mut Session, table: &Table, keys: [&[u8]; 2], meet: &dyn Fn()| {
        s.update(table, keys[0], b"new")?;
        meet();
        if s.update(table, keys[1], b"new") == Err(Error::Deadlock) {
            assert_eq!(s.insert(table, b"more", b""), Err(Error::Deadlock));
            assert_eq!(s.rows(table, 0).err(), Some(Error::Deadlock));
        }
        Ok(())
    };
    assert_eq!(deadlocked(TransactionOptions::default(), ignoring), (3, vec![Ok(()), Ok(())]));
    let (ran, results) = deadlocked(TransactionOptions { attempts: 1, ..Default::default() }, ignoring);
    assert_eq!((ran, results.iter().filter(|r| **r == Err(Error::Deadlock)).count()), (2, 1), "{results:?}");
    // The same of calls that are not short.
    let long = |s: &mut Session, table: &Table, keys: [&[u8]; 2], meet: &dyn Fn()| {
        s.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(50));
        for (n, key) in keys.into_iter().enumerate() {
            let options = CursorOptions { lock: Lock::Exclusive, ..Default::default() };
            let mut cursor = Cursor::open(s, table, 0, options)?;
            let _ = cursor.seek(s, Seek::ExactUnique, key);
            if n == 0 {
                meet();
            }
        }
        s.statement_end();
        Ok(())
    };
    assert_eq!(deadlocked(TransactionOptions::default(), long), (3, vec![Ok(()), Ok(())]));
}

#[test]
fn a_closure_runs_again_for_a_row_changed_since_its_snapshot() {
    let (engine, table) = open_filled(1);
    let (mut session, mut other) = (engine.session(), engine.session());
    let key = 0u32.to_be_bytes();
    let mut ran = 0;
    let mut count = |session: &mut Session| {
        ran += 1;
        let before = session.find(&table, &key)?.unwrap_or_default();
        if ran == 1 {
            other.transaction(|s| s.update(&table, &key, b"other"))?;
        }
        session.update(&table, &key, &[&before, &b"+"[..]].concat())
    };
    session.set_options(TransactionOptions { isolation: Isolation::Snapshot, ..Default::default() });
    assert_eq!(session.transaction(&mut count), Ok(true));
    assert_eq!(ran, 2);
    assert_eq!(rows(&engine, "d/t")[0].1, b"other+");
    // Outside of closures the transaction is gone as well.
    session.find(&table, &key).unwrap();
    other.transaction(|s| s.update(&table, &key, b"other")).unwrap();
    assert_eq!(session.update(&table, &key, b"mine"), Err(Error::RecordChanged));
    assert!(!session.in_transaction());
}

#[test]
fn options_hold_for_short_calls() {
    let (engine, table) = open_filled(1);
    let (mut session, mut other) = (engine.session(), engine.session());
    let key = 0u32.to_be_bytes();
    let mut other_sees = |value: &[u8], isolation| {
        other.set_options(TransactionOptions { isolation, lock_wait: Duration::ZERO, ..Default::default() });
        let found = other.find(&table, &key);
        other.rollback().unwrap();
        assert_eq!(found, Ok(Some(value.to_vec())), "{isolation:?}");
    };
    session.update(&table, &key, b"new").unwrap();
    other_sees(b"new", Isolation::ReadUncommitted);
    other_sees(b"value 0", Isolation::ReadCommitted);
    let serializable =
        TransactionOptions { isolation: Isolation::Serializable, lock_wait: Duration::ZERO, ..Default::default() };
    other.set_options(serializable);
    assert_eq!(other.find(&table, &key), Err(Error::LockWaitTimeout));
    assert_eq!(other.rows(&table, 0).unwrap().next(), Some(Err(Error::LockWaitTimeout)));
    other.commit().unwrap();
    session.commit().unwrap();
    // And what was found stays.
    assert_eq!(other.find(&table, &key).unwrap().as_deref(), Some(&b"new"[..]));
    session.set_options(serializable);
    assert_eq!(session.update(&table, &key, b"newer"), Err(Error::LockWaitTimeout));
}

/// A handle whose second index sorts by the value's first byte, the third, unique, by the value's rest.
fn indexed(table: Table) -> Table {
    let first: IndexKey = |row| Ok(vec![*row.value.first().ok_or(Error::Interrupted)?]);
    table.with_index_keys([first, |row| Ok(key::encode(&row.value[1..]))]).unwrap()
}

const INDEXED: &[IndexSpec] = &[IndexSpec::UNIQUE, IndexSpec::PLAIN, IndexSpec::UNIQUE];

fn open_indexed() -> (Arc<Engine>, Table) {
    let engine = open_sim(&SimIo::new(1), sim_config()).unwrap();
    engine.create_table("d/t", &TableSpec { indexes: INDEXED, ..Default::default() }).unwrap();
    let table = indexed(engine.open_table("d/t").unwrap());
    (engine, table)
}

#[derive(Clone, Debug)]
enum Change {
    Insert(Vec<u8>, Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// Of all since the last one.
    Commit,
    RollBack,
}

fn short_bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> + Clone {
    proptest::collection::vec(prop_oneof![Just(0u8), Just(7), Just(255)], len)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let row = || (short_bytes(1..4), short_bytes(1..4));
    let change = prop_oneof![
        row().prop_map(|(key, value)| Change::Insert(key, value)),
        row().prop_map(|(key, value)| Change::Put(key, value)),
        row().prop_map(|(key, value)| Change::Update(key, value)),
        short_bytes(1..4).prop_map(Change::Remove),
        Just(Change::Commit),
        Just(Change::RollBack),
    ];
    proptest::collection::vec(change, 0..60)
}

fn bounds(of: impl Strategy<Value = Vec<u8>> + Clone) -> impl Strategy<Value = (Bound<Vec<u8>>, Bound<Vec<u8>>)> {
    let bound = prop_oneof![Just(Bound::Unbounded), of.clone().prop_map(Bound::Included), of.prop_map(Bound::Excluded)];
    (bound.clone(), bound)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the model has between these bounds of what `sort` says.
fn expected(
    model: &Model,
    bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    sort: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::RangeBounds;
    let mut rows: Vec<_> = model.iter().map(|(k, v)| (sort(k, v), k.clone(), v.clone())).collect();
    rows.retain(|row| bounds.contains(&row.0));
    rows.sort();
    rows.into_iter().map(|(_, k, v)| (k, v)).collect()
}

fn change_model(model: &mut Model, change: &Change) -> Option<bool> {
    let taken = |key: &Vec<u8>, value: &Vec<u8>| model.iter().any(|(k, v)| k != key && v[1..] == value[1..]);
    match change {
        Change::Insert(key, value) if model.contains_key(key) || taken(key, value) => None,
        Change::Put(key, value) | Change::Update(key, value)
            if taken(key, value) && (matches!(change, Change::Put(..)) || model.contains_key(key)) =>
        {
            None
        }
        Change::Update(key, _) if !model.contains_key(key) => Some(false),
        Change::Insert(key, value) | Change::Put(key, value) | Change::Update(key, value) => {
            Some(model.insert(key.clone(), value.clone()).is_some())
        }
        Change::Remove(key) => Some(model.remove(key).is_some()),
        Change::Commit | Change::RollBack => Some(true),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    /// Short calls against a map: what they answer, what the iterators give in the order of each index, from both ends.
    #[test]
    fn indexes_follow_the_rows(
        changes in changes(),
        by_key in bounds(short_bytes(0..4)),
        by_byte in bounds(short_bytes(1..2)),
        by_rest in bounds(short_bytes(0..3)),
        prefix in short_bytes(0..3),
        from_back: Vec<bool>,
        locked: bool,
    ) {
        let (engine, table) = open_indexed();
        let mut session = engine.session();
        let (mut model, mut committed) = (Model::new(), Model::new());
        for change in &changes {
            let told = match change {
                Change::Insert(key, value) => session.insert(&table, key, value).map(|()| false),
                Change::Put(key, value) => session.put(&table, key, value),
                Change::Update(key, value) => session.update(&table, key, value),
                Change::Remove(key) => session.remove(&table, key),
                Change::Commit => session.commit().map(|()| true),
                Change::RollBack => session.rollback().map(|()| true),
            };
            match change_model(&mut model, change) {
                Some(answer) => prop_assert_eq!(told, Ok(answer), "{:?}", change),
                None => prop_assert!(matches!(told, Err(Error::DuplicateKey { .. })), "{:?}: {:?}", change, told),
            }
            match change {
                Change::Commit => committed = model.clone(),
                Change::RollBack => model = committed.clone(),
                _ => {}
            }
        }
        let by_rest = (by_rest.0.map(|k| key::encode(&k)), by_rest.1.map(|k| key::encode(&k)));
        let wanted = [
            (by_key.clone(), expected(&model, &by_key, |k, _| k.to_vec())),
            (by_byte.clone(), expected(&model, &by_byte, |_, v| v[..1].to_vec())),
            (by_rest.clone(), expected(&model, &by_rest, |_, v| key::encode(&v[1..]))),
        ];
        for (index_no, (bounds, mut wanted)) in wanted.into_iter().enumerate() {
            let mut rows = session.range(&table, index_no, bounds).unwrap();
            if locked {
                rows = rows.locked(Lock::Exclusive, Wait::Wait);
            }
            let mut ends = from_back.iter().cycle();
            while !wanted.is_empty() {
                let (row, other) = match ends.next() {
                    Some(true) => (rows.next_back(), wanted.pop()),
                    _ => (rows.next(), Some(wanted.remove(0))),
                };
                prop_assert_eq!(row.transpose().unwrap(), other);
            }
            prop_assert_eq!((rows.next(), rows.next_back()), (None, None));
        }
        let mut wanted = expected(&model, &(Bound::Unbounded, Bound::Unbounded), |k, _| k.to_vec());
        wanted.retain(|row| row.0.starts_with(&prefix));
        let found: Vec<_> = session.prefix(&table, 0, &prefix).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(&found, &wanted);
        let backward = session.prefix(&table, 0, &prefix).unwrap().rev().map(Result::unwrap);
        prop_assert!(backward.eq(wanted.into_iter().rev()));
        session.commit().unwrap();
        table.check(&mut |finding| panic!("{finding}")).unwrap();
    }
}

#[test]
fn a_handle_that_does_not_know_the_indexes_changes_nothing() {
    let (engine, table) = open_indexed();
    let plain = engine.open_table("d/t").unwrap();
    let mut session = engine.session();
    session.insert(&table, b"a", b"b1").unwrap();
    is_invalid(session.insert(&plain, b"b", b"b2"));
    is_invalid(session.put(&plain, b"a", b"b2"));
    is_invalid(session.update(&plain, b"a", b"b2"));
    is_invalid(session.remove(&plain, b"a"));
    is_invalid(plain.clone().with_index_keys([|row| Ok(row.value.to_vec())]).map(drop));
    is_invalid(session.insert(&table, b"", b"b2"));
    // What a function says about a row that it cannot read.
    assert_eq!(session.insert(&table, b"b", b""), Err(Error::Interrupted));
    assert_eq!(session.update(&table, b"a", b""), Err(Error::Interrupted));
    assert_eq!(session.rows(&table, 1).unwrap().count(), 1);
    // To it they are entries.
    let entries: Vec<_> = session.rows(&plain, 1).unwrap().map(Result::unwrap).collect();
    assert_eq!(entries, [(b"ba".to_vec(), vec![1, 0])]);
    is_invalid(session.rows(&table, 3).map(drop));
    session.commit().unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

#[test]
fn a_duplicate_is_told_with_its_index() {
    let (engine, table) = open_indexed();
    let mut session = engine.session();
    session.insert(&table, b"a", b"b1").unwrap();
    for (key, value, index_no) in [(b"a", b"b2", 0), (b"b", b"b1", 2)] {
        assert!(matches!(session.insert(&table, key, value), Err(Error::DuplicateKey { .. })));
        assert_eq!(session.last_duplicate().0, index_no);
    }
    assert!(matches!(session.put(&table, b"b", b"b1"), Err(Error::DuplicateKey { .. })));
}

#[test]
fn an_index_of_rows_that_are_there_is_built_with_its_key() {
    let (engine, table) = open_filled(500);
    let by_number: IndexKey = |row| Ok(key::encode(&row.value[6..]));
    let tmp = tempfile::tempdir().unwrap();
    let mut session = engine.session();
    let mut build = IndexBuild::begin(&mut session, &table, true, tmp.path(), 1 << 20).unwrap();
    let mut rows = session.rows(&table, 0).unwrap();
    while let Some(row) = rows.next_row().unwrap() {
        build.add_row(by_number, row).unwrap();
    }
    drop(rows);
    session.commit().unwrap();
    build.finish().unwrap();
    let indexes = [(IndexSpec::UNIQUE, Some(0)), (IndexSpec::UNIQUE, None)];
    let to = NewDefinition { frm: b"", ..Default::default() };
    engine
        .alter_tables(&mut [Alteration {
            name: "d/t",
            to,
            indexes: &indexes,
            builds: vec![&mut build],
            contents: None,
        }])
        .unwrap();
    let table = engine.open_table("d/t").unwrap().with_index_keys([by_number]).unwrap();
    let by_text = session.range(&table, 1, key::encode(&b"1"[..])..key::encode(&b"11"[..])).unwrap();
    let keys: Vec<u32> = by_text.map(|row| u32::from_be_bytes(row.unwrap().0.try_into().unwrap())).collect();
    assert_eq!(keys, [1, 10, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
    assert!(matches!(session.insert(&table, b"new", b"value 7"), Err(Error::DuplicateKey { .. })));
    session.insert(&table, b"new", b"value 700").unwrap();
    session.commit().unwrap();
    table.check(&mut |finding| panic!("{finding}")).unwrap();
}

/// Each takes the first that nobody else is at.
#[test]
fn a_queue_passes_over_what_others_have_locked() {
    let (engine, table) = open_indexed();
    let mut sessions = [engine.session(), engine.session(), engine.session(), engine.session()];
    for (key, value) in [(b"a", b"3x"), (b"b", b"1y"), (b"c", b"2z")] {
        sessions[0].insert(&table, key, value).unwrap();
    }
    sessions[0].commit().unwrap();
    let take = |session: &mut Session| -> Option<Vec<u8>> {
        session.set_options(TransactionOptions { isolation: Isolation::ReadCommitted, ..Default::default() });
        let mut jobs = session.rows(&table, 1).unwrap().locked(Lock::Exclusive, Wait::SkipLocked);
        let job = jobs.next().transpose().unwrap()?.0;
        drop(jobs);
        assert!(session.remove(&table, &job).unwrap());
        Some(job)
    };
    let taken: Vec<_> = sessions.iter_mut().map(take).collect();
    assert_eq!(taken, [Some(b"b".to_vec()), Some(b"c".to_vec()), Some(b"a".to_vec()), None]);
    sessions[1].rollback().unwrap();
    assert_eq!(take(&mut sessions[3]), Some(b"c".to_vec()));
    for session in &mut sessions {
        session.commit().unwrap();
    }
    assert_eq!(rows(&engine, "d/t"), []);
}

/// At READ COMMITTED the rows behind the range are free; at REPEATABLE READ the gap in front of them is not.
#[test]
fn an_iterator_locks_what_it_gives() {
    let (engine, table) = open_filled(10);
    let (mut session, mut other) = (engine.session(), engine.session());
    let key = |n: u32| n.to_be_bytes();
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        session.set_options(TransactionOptions { isolation, ..Default::default() });
        let rows = session.range(&table, 0, key(3)..key(6)).unwrap().locked(Lock::Exclusive, Wait::Wait);
        assert_eq!(rows.rev().count(), 3);
        other.set_options(TransactionOptions { lock_wait: Duration::ZERO, ..Default::default() });
        for n in 0..10 {
            let changed = other.update(&table, &key(n), b"new").is_ok();
            if (3..6).contains(&n) || isolation == Isolation::ReadCommitted {
                assert_eq!(changed, !(3..6).contains(&n), "{n} at {isolation:?}");
            }
        }
        let between = other.insert(&table, &[0, 0, 0, 4, 0], b"new").is_ok();
        assert_eq!(between, isolation == Isolation::ReadCommitted);
        other.rollback().unwrap();
        session.rollback().unwrap();
    }
    let mut rows = session.rows(&table, 0).unwrap().locked(Lock::Shared, Wait::NoWait);
    rows.next().unwrap().unwrap();
    drop(rows);
    other.update(&table, &key(5), b"new").unwrap();
    let told: Vec<_> = session.rows(&table, 0).unwrap().locked(Lock::Shared, Wait::NoWait).collect();
    assert_eq!((told.len(), &told[5]), (6, &Err(Error::LockWaitTimeout)), "nothing follows an error");
    assert!(session.in_transaction());
}

/// Files of a program's own, made of what the crate exports.
struct Counted {
    disk: myriad::io::SimIo,
    opened: Mutex<Vec<std::path::PathBuf>>,
}

impl myriad::io::Io for Counted {
    fn open(&self, path: &Path, mode: myriad::io::OpenMode) -> Result<Arc<dyn myriad::io::File>> {
        self.opened.lock().unwrap().push(path.into());
        self.disk.open(path, mode)
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.disk.create_dir(path)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.disk.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.disk.list_dir(path)
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn myriad::io::FileLock>> {
        self.disk.lock_file(path)
    }

    fn submit(&self, batch: &mut [myriad::io::IoRequest<'_>]) {
        self.disk.submit(batch);
    }

    fn name(&self) -> &'static str {
        "counted"
    }
}

#[test]
fn a_program_brings_its_own_files() {
    let io = Arc::new(Counted { disk: SimIo::new(1), opened: Mutex::default() });
    io.create_dir(Path::new("/data")).unwrap();
    let engine = Engine::open_with(sim_config(), Some(io.clone())).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 100);
    engine.close(CloseMode::Clean).unwrap();
    drop(engine);
    assert!(io.opened.lock().unwrap().iter().any(|path| path.ends_with("redo.log")));
    let engine = Engine::open_with(sim_config(), Some(io)).unwrap();
    assert_eq!(rows(&engine, "d/t").len(), 100);
}

/// What a set of put calls at once leaves: no gap is locked where a key is new, so that they do not deadlock.
#[test]
fn new_keys_are_put_at_once() {
    let (engine, table) = open_filled(0);
    let (mut a, mut b) = (engine.session(), engine.session());
    b.set_options(TransactionOptions { lock_wait: Duration::ZERO, ..Default::default() });
    assert_eq!((a.put(&table, b"a", b"1"), b.put(&table, b"b", b"1")), (Ok(false), Ok(false)));
    assert_eq!((a.put(&table, b"c", b"1"), b.put(&table, b"d", b"1")), (Ok(false), Ok(false)));
    assert_eq!(b.put(&table, b"a", b"2"), Err(Error::LockWaitTimeout));
    a.commit().unwrap();
    assert_eq!(
        (b.put(&table, b"a", b"2"), b.put(&table, b"", b"1"), b.put(&table, b"", b"2")),
        (Ok(true), Ok(false), Ok(true))
    );
    b.commit().unwrap();
    assert_eq!(rows(&engine, "d/t").into_iter().map(|row| row.1).collect::<Vec<_>>(), [b"2", b"2", b"1", b"1", b"1"]);
}

/// The log's two headers: one is enough, without both nothing says where recovery begins.
#[test]
fn a_log_without_its_headers_is_told_by_its_name() {
    let io = SimIo::new(1);
    open_sim(&io, sim_config()).unwrap().create_table("d/t", &spec()).unwrap();
    let (io, log) = (io.crash(1), Path::new("/data/#myriad/redo.log"));
    io.scribble(log, 50, &[0xaa; 8]).unwrap();
    assert!(open_sim(&io, sim_config()).unwrap().table_exists("d/t").unwrap());
    let io = io.crash(2);
    for header in [0, 4096] {
        io.scribble(log, header + 50, &[0xaa; 8]).unwrap();
    }
    let refused = open_sim(&io, sim_config()).map(drop);
    assert!(matches!(&refused, Err(Error::CorruptFile { path, .. }) if Path::new(path) == log), "{refused:?}");
}
