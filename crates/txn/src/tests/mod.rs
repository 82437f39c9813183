//! Tests of the whole room on a simulated disk.

mod batches;
mod buffered;
mod check;
mod concurrent;
mod crash;
mod damage;
mod isolation;
mod losers;
mod places;
mod rows;
mod shrink;
mod speed;

use crate::*;
use myriad_base::clock::{Clock, SystemClock};
use myriad_base::{Error, IndexId, Lsn, Result, SpaceId};
use myriad_btree::LeafShared;
use myriad_buffer::{BufferPool, PoolConfig, RedoTable, Reporter};
use myriad_io::{Io, SimIo};
use myriad_log::{Log, LogConfig};
use myriad_space::SpaceRegistry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/data";
const SPACE: SpaceId = SpaceId::FIRST_USER;
const UUID: [u8; 16] = [7; 16];
const LOG: LogConfig = LogConfig { capacity_bytes: 4 << 20, buffer_bytes: 1 << 20 };

pub(crate) const ROWS: IndexId = IndexId(2000);
pub(crate) const BY_NAME: IndexId = IndexId(2001);

/// An engine's lower half on a simulated disk, with a table: a clustered index and a secondary one in the pack tree.
pub(crate) struct Rig {
    pub sim: SimIo,
    pub sys: Arc<TrxSystem>,
    pub rows: Index,
    pub names: Index,
}

fn pool_config(frames: usize, threads: bool) -> PoolConfig {
    PoolConfig {
        bytes: frames * 4096,
        instances: 2,
        page_size: 4096,
        background_threads: threads,
        ..PoolConfig::default()
    }
}

fn open(sim: &SimIo, frames: usize, threads: bool, fresh: bool) -> Arc<TrxSystem> {
    try_open(sim, frames, threads, fresh).unwrap()
}

fn try_open(sim: &SimIo, frames: usize, threads: bool, fresh: bool) -> Result<Arc<TrxSystem>> {
    try_open_at(sim, frames, threads, fresh, Arc::new(SystemClock::new()))
}

fn try_open_at(
    sim: &SimIo,
    frames: usize,
    threads: bool,
    fresh: bool,
    clock: Arc<dyn Clock>,
) -> Result<Arc<TrxSystem>> {
    let io: Arc<dyn Io> = Arc::new(sim.clone());
    let dir = Path::new(DIR);
    let config = pool_config(frames, threads);
    let log = Arc::new(Log::open(&io, dir, LOG).unwrap());
    let spaces = Arc::new(SpaceRegistry::new(Arc::clone(&io), dir, config.page_size, 16));
    spaces.register(SpaceId::UNDO, "undo.myr", Some(UUID));
    spaces.register(SPACE, "a.myr", Some(UUID));
    let reporter: Reporter = Arc::new(|level, text: &str| {
        if level == myriad_buffer::Level::Error {
            eprintln!("{level:?}: {text}");
        }
    });
    let mut redo = RedoTable::new();
    myriad_btree::register(&mut redo);
    redo_table_register(&mut redo);
    let pool = BufferPool::new(config, io, dir, log, spaces, redo, Arc::clone(&reporter)).unwrap();
    pool.recover(false).unwrap();
    pool.start_background().unwrap();
    if fresh {
        create_undo(&pool).unwrap();
        myriad_btree::alloc::create_space_layout(&pool, SPACE).unwrap();
        pool.checkpoint_now().unwrap();
    }
    let config = TrxConfig {
        flush: FlushPolicy::Sync,
        purge_threads: 2,
        deadlock_detect: true,
        commit_order: Arc::new(crate::Unordered),
        promote_bytes: 16 << 10,
        all_ended: false,
        force: false,
        clock,
        reporter,
    };
    TrxSystem::open(pool, config)
}

impl Rig {
    pub fn new(seed: u64, frames: usize, threads: bool) -> Rig {
        let sim = SimIo::new(seed);
        let io: Arc<dyn Io> = Arc::new(sim.clone());
        let dir = Path::new(DIR);
        io.create_dir(dir).unwrap();
        io.create_dir(&dir.join("#myriad")).unwrap();
        io.sync_dir(Path::new("/")).unwrap();
        io.sync_dir(dir).unwrap();
        Log::create(&io, dir, LOG, UUID).unwrap();
        let spaces = SpaceRegistry::new(Arc::clone(&io), dir, 4096, 16);
        spaces.create(SpaceId::UNDO, "undo.myr", UUID, Lsn(0)).unwrap();
        spaces.create(SPACE, "a.myr", UUID, Lsn(0)).unwrap();
        let sys = open(&sim, frames, threads, true);
        Rig::over(sim, sys)
    }

    fn over(sim: SimIo, sys: Arc<TrxSystem>) -> Rig {
        let tree = Tree::pack(SPACE);
        let rows = Index { id: ROWS, tree, clustered: true, table: ROWS, hash: false, private: false };
        let names = Index { id: BY_NAME, tree, clustered: false, table: ROWS, hash: false, private: false };
        Rig { sim, sys, rows, names }
    }

    pub fn start_background(&self) {
        self.sys.spawn_background().unwrap();
        self.sys.start_background();
    }

    /// The rows that the transaction sees, counted in the walk of a check.
    pub fn count_in_check(&self, t: &mut Trx, index: &Index) -> u64 {
        let mut count = RowCount::new(index);
        let (lo, hi) = (index.id.0.to_be_bytes(), (index.id.0 + 1).to_be_bytes());
        let mut visit = |leaf: LeafShared<'_>| {
            count.add(t, index, &leaf)?;
            drop(leaf);
            count.catch_up(t, index, &|| false)
        };
        index.tree.check(self.sys.pool(), &lo, &hi, &mut visit).unwrap();
        count.rows()
    }

    pub fn small() -> Rig {
        Rig::new(1, 400, false)
    }

    /// What a power failure leaves.
    pub fn crashed(&self, seed: u64, frames: usize) -> Rig {
        let sim = self.sim.crash(seed);
        let sys = open(&sim, frames, false, false);
        Rig::over(sim, sys)
    }

    pub fn trx(&self) -> Trx {
        let mut t = self.sys.begin(Isolation::RepeatableRead);
        t.set_lock_wait_timeout(Duration::ZERO);
        t
    }

    pub fn trx_at(&self, isolation: Isolation) -> Trx {
        let mut t = self.trx();
        t.set_isolation(isolation);
        t
    }

    pub fn insert(&self, t: &mut Trx, key: &[u8], payload: &[u8]) -> Result<()> {
        self.one(t, OpKind::Insert, &self.rows, key, key.len(), payload)
    }

    pub fn update(&self, t: &mut Trx, key: &[u8], payload: &[u8]) -> Result<()> {
        self.one(t, OpKind::Update, &self.rows, key, 0, payload)
    }

    pub fn delete(&self, t: &mut Trx, key: &[u8]) -> Result<()> {
        self.one(t, OpKind::Delete, &self.rows, key, 0, &[])
    }

    pub fn one(
        &self,
        t: &mut Trx,
        kind: OpKind,
        index: &Index,
        key: &[u8],
        unique_len: usize,
        payload: &[u8],
    ) -> Result<()> {
        t.apply(&[Op { kind, index, key, unique_len, payload, head_len: head_len(payload) }]).map_err(|e| e.error)
    }

    pub fn get(&self, t: &mut Trx, key: &[u8]) -> Option<Vec<u8>> {
        let mut row = RowBuf::new();
        let found = t.get(&self.rows, key, false, None, LockWait::Wait, &mut row).unwrap();
        found.then(|| {
            assert_eq!(row.key(), key);
            row.value().to_vec()
        })
    }

    pub fn lock(&self, t: &mut Trx, key: &[u8], strength: Strength) -> Result<Option<Vec<u8>>> {
        let mut row = RowBuf::new();
        let found = t.get(&self.rows, key, false, Some(strength), LockWait::NoWait, &mut row)?;
        Ok(found.then(|| row.value().to_vec()))
    }

    pub fn scan(&self, t: &mut Trx, index: &Index, forward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = Cursor::new(*index, plain());
        let mut out = Vec::new();
        let mut more = cursor.seek(t, if forward { Seek::First } else { Seek::Last }, &[]).unwrap();
        while more {
            out.push((cursor.key().to_vec(), cursor.value().to_vec()));
            more = if forward { cursor.next(t) } else { cursor.prev(t) }.unwrap();
        }
        if !forward {
            out.reverse();
        }
        out
    }

    pub fn purge_all(&self) {
        while self.sys.purge_step().unwrap() {}
    }

    /// Entries in the leaves, delete-marked ones included.
    pub fn entries(&self) -> usize {
        self.count().0
    }

    /// Leaves of both indexes.
    pub fn leaves(&self) -> usize {
        self.count().1
    }

    fn count(&self) -> (usize, usize) {
        use myriad_btree::Leaf;
        let (mut entries, mut leaves) = (0, 0);
        let mut leaf = self.rows.tree.seek(self.sys.pool(), &[]).unwrap();
        loop {
            entries += leaf.len();
            leaves += 1;
            if leaf.is_last() {
                return (entries, leaves);
            }
            let fence = leaf.high_fence().to_vec();
            drop(leaf);
            leaf = self.rows.tree.seek(self.sys.pool(), &fence).unwrap();
        }
    }
}

/// The head of a test's payload.
pub(crate) fn head_len(payload: &[u8]) -> usize {
    payload.len().min(30)
}

/// A payload that differs from `old` within its head, for every other `random` number; else `new`.
pub(crate) fn maybe_same_tail(random: &mut myriad_base::random::Random, old: &[u8], new: Vec<u8>) -> Vec<u8> {
    if new.is_empty() || old.is_empty() || random.one_in(2) {
        return new;
    }
    let mut payload = old.to_vec();
    payload[0] = new[0];
    if random.one_in(2) && payload.len() > 30 {
        payload[1] = new[0];
    }
    payload
}

pub(crate) fn plain() -> CursorOptions {
    CursorOptions::PLAIN
}

pub(crate) fn locking(strength: Strength) -> CursorOptions {
    CursorOptions { lock: Some(strength), wait: LockWait::NoWait, ..CursorOptions::PLAIN }
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

pub(crate) fn is_blocked<T: std::fmt::Debug>(r: Result<T>) -> bool {
    match r {
        Err(Error::LockWaitTimeout) => true,
        Err(e) => panic!("{e}"),
        Ok(_) => false,
    }
}
