//! Data directories with something of everything in them.

use myriad::*;
use myriad_base::clock::ManualClock;
use myriad_io::{Io, OpenMode, SimIo};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const PAGE: usize = 4096;
pub const TABLES: [&str; 4] = ["a/pack", "a/large", "b/own", "c/empty"];
const INDEXES: [IndexSpec; 3] = [IndexSpec::UNIQUE, IndexSpec::PLAIN, IndexSpec::UNIQUE];

pub fn config(force_recovery: bool) -> EngineConfig {
    EngineConfig {
        buffer_pool_bytes: (PAGE * 128) as u64,
        buffer_pool_instances: 1,
        log_capacity_bytes: 4 << 20,
        log_buffer_bytes: 256 << 10,
        page_size: PAGE,
        promote_bytes: 16 << 10,
        background_threads: false,
        clock: Arc::new(ManualClock::default()),
        seed: Some(1),
        force_recovery,
        ..EngineConfig::new("/data")
    }
}

/// A data directory on a disk of its own.
pub struct Directory {
    pub io: SimIo,
}

impl Directory {
    pub fn open(&self, force_recovery: bool) -> Result<Arc<Engine>> {
        Engine::open_with(config(force_recovery), Some(Arc::new(self.io.clone())))
    }

    /// The tablespaces' files.
    pub fn files(&self) -> Vec<PathBuf> {
        let folder = Path::new("/data/#myriad");
        let mut names = self.io.list_dir(folder).expect("folder");
        names.retain(|name| name.ends_with(".myr"));
        names.sort();
        names.iter().map(|name| folder.join(name)).collect()
    }

    pub fn read(&self, path: &Path) -> Vec<u8> {
        let file = self.io.open(path, OpenMode::READ).expect("file");
        let mut bytes = vec![0; file.len().expect("length") as usize];
        let n = file.read_at(&mut bytes, 0).expect("read");
        bytes.truncate(n / PAGE * PAGE);
        bytes
    }
}

/// Directories as they were left: after a clean stop, after a crash at once, after a crash long after a checkpoint.
pub struct States(Vec<SimIo>);

impl States {
    pub fn new() -> States {
        States((0..3).map(make).collect())
    }

    /// A copy of one of them.
    pub fn copy(&self, seed: u64) -> Directory {
        Directory { io: self.0[(seed % self.0.len() as u64) as usize].kill(seed) }
    }
}

pub fn op<'a>(kind: OpKind, index_no: usize, key: &'a [u8], unique_len: usize, value: &'a [u8]) -> Op<'a> {
    Op { kind, index_no, key, unique_len, value, head_len: value.len().min(20) }
}

/// Keys of the secondary indexes: one of them long.
fn keys_of(key: &[u8], value: &[u8]) -> [Vec<u8>; 2] {
    [[&value[..3], &[b'v'; 60], key].concat(), [&value[..4], key].concat()]
}

pub fn insert(session: &mut Session, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
    let [second, third] = keys_of(key, value);
    let ops = [
        op(OpKind::Insert, 0, key, key.len(), value),
        op(OpKind::Insert, 1, &second, 0, b""),
        op(OpKind::Insert, 2, &third, 4, b""),
    ];
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

pub fn update(session: &mut Session, table: &Table, key: &[u8], old: &[u8], new: &[u8]) -> Result<()> {
    let mut ops = vec![op(OpKind::Update, 0, key, 0, new)];
    let ([second, third], [new_second, new_third]) = (keys_of(key, old), keys_of(key, new));
    if second != new_second {
        ops.extend([op(OpKind::Delete, 1, &second, 0, b""), op(OpKind::Insert, 1, &new_second, 0, b"")]);
    }
    if third != new_third {
        ops.extend([op(OpKind::Delete, 2, &third, 0, b""), op(OpKind::Insert, 2, &new_third, 4, b"")]);
    }
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

pub fn delete(session: &mut Session, table: &Table, key: &[u8], old: &[u8]) -> Result<()> {
    let [second, third] = keys_of(key, old);
    let ops = [(0, key), (1, &second), (2, &third)].map(|(no, key)| op(OpKind::Delete, no, key, 0, b""));
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

/// A row's value: its tag and so many bytes.
pub fn value(tag: u32, len: usize) -> Vec<u8> {
    let mut value = tag.to_be_bytes().to_vec();
    value.resize(4 + len, tag as u8);
    value
}

/// Length of a row's value.
fn len_of(i: u32) -> usize {
    match i % 40 {
        7 => 9_000,
        19 => 30_000,
        n => 20 + n as usize * 4,
    }
}

pub fn begin(session: &mut Session) {
    session.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
}

pub fn create(engine: &Engine, name: &str, placement: Placement) -> Result<()> {
    let frm: Vec<u8> = (0..200).map(|i| i as u8).collect();
    let spec = TableSpec {
        frm: &frm,
        indexes: &INDEXES,
        auto_increment_next: Some(1),
        placement: Some(placement),
        ..Default::default()
    };
    engine.create_table(name, &spec)
}

fn make(state: u64) -> SimIo {
    let io = SimIo::new(state);
    io.create_dir(Path::new("/data")).expect("folder");
    io.sync_dir(Path::new("/")).expect("folder");
    let directory = Directory { io: io.clone() };
    let engine = directory.open(false).expect("new");
    for (name, rows) in TABLES.into_iter().zip([60u32, 900, 300, 0]) {
        create(&engine, name, if name == "b/own" { Placement::Table } else { Placement::Database }).expect("create");
        let (table, mut session) = (engine.open_table(name).expect("open"), engine.session());
        for i in 0..rows {
            // In no order.
            let n = i * 7919 % 1009;
            begin(&mut session);
            insert(&mut session, &table, &n.to_be_bytes(), &value(n, len_of(i))).expect("insert");
            session.statement_end();
            if i % 16 == 0 {
                session.commit().expect("commit");
            }
        }
        session.commit().expect("commit");
    }
    while engine.background_step().expect("background") {}
    // Versions to purge, in slots of their own.
    let mut sessions: Vec<Session> = (0..3).map(|_| engine.session()).collect();
    for (no, session) in sessions.iter_mut().enumerate() {
        for name in &TABLES[..3] {
            change(&engine, session, name, no as u32 * 10);
        }
    }
    sessions[0].commit().expect("commit");
    if state == 0 {
        sessions[1].commit().expect("commit");
        sessions[2].rollback().expect("rollback");
        drop(sessions);
        engine.close(CloseMode::Clean).expect("close");
        return io.kill(0);
    }
    sessions[1].prepare(b"prepared").expect("prepare");
    sessions[1].detach_prepared();
    engine.flush_log().expect("flush");
    if state == 1 {
        engine.checkpoint_now().expect("checkpoint");
    }
    let left = io.kill(0);
    std::mem::forget(sessions);
    left
}

/// Changes of every kind to some rows.
fn change(engine: &Arc<Engine>, session: &mut Session, name: &str, from: u32) {
    let table = engine.open_table(name).expect("open");
    let mut at = from;
    for i in 0..24u32 {
        let key = (at % 1009).to_be_bytes();
        at += 37;
        begin(session);
        let old = session.get(&table, 0, &key, false, Lock::Exclusive, Wait::Wait);
        let old = old.ok().flatten().map(|row| row.value.to_vec());
        let done = match (old, i % 4) {
            (None, _) => insert(session, &table, &key, &value(2000 + from * 100 + i, len_of(i))),
            (Some(old), 0) => delete(session, &table, &key, &old),
            (Some(old), 1) => {
                let mut new = old.clone();
                *new.last_mut().expect("not empty") ^= 1;
                update(session, &table, &key, &old, &new)
            }
            (Some(old), _) => update(session, &table, &key, &old, &value(5000 + from * 100 + i, len_of(i * 7))),
        };
        match done {
            Ok(()) => session.statement_end(),
            // Another has it.
            Err(_) => session.statement_rollback().expect("undo"),
        }
    }
}
