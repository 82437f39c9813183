//! `myriad bench`: the embedded engine under load, no server involved.
//!
//! One table of `--rows` rows: an 8-byte key, a secondary index on a 4-byte number, a value of `--value` bytes. Each
//! operation is a transaction of its own. Prints one line for each load and number of threads.

use crate::out;
use clap::ValueEnum;
use myriad::{
    ApplyMode, Cursor, CursorOptions, Engine, EngineConfig, FlushAtCommit, IndexSpec, Isolation, Lock, Op, OpKind,
    Seek, Session, Table, TableSpec, Wait,
};
use myriad_base::random::Random;
use rand_distr::{Distribution, Zipf};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// One row by its key.
    Point,
    /// A hundred rows from a key on.
    Range,
    /// One row's value.
    Update,
    /// One row's value and its secondary index entry.
    UpdateIndex,
    /// A new row.
    Insert,
    /// Eight points, one range, one update.
    Mixed,
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keys {
    /// All alike.
    Uniform,
    /// Few of them most of the time (Zipf, exponent 0.99).
    Zipf,
}

/// What the command line asks for.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// A folder for the data; it must not hold a data directory yet.
    pub dir: PathBuf,
    /// Loads to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Load::Point, Load::Range, Load::Update, Load::Insert, Load::Mixed])]
    pub loads: Vec<Load>,
    /// Numbers of threads, 1 to 4096.
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 2, 4, 8, 16])]
    pub threads: Vec<usize>,
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Bytes of a row's value.
    #[arg(long, default_value_t = 120)]
    pub value: usize,
    /// Buffer pool in MiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    pub pool_mib: u64,
    /// Partitions of the pool; 0 = the engine's choice.
    #[arg(long, default_value_t = 0)]
    pub instances: usize,
    /// How keys are drawn.
    #[arg(long, value_enum, default_value_t = Keys::Uniform)]
    pub keys: Keys,
    /// Seconds a run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// The table is in memory alone.
    #[arg(long)]
    pub in_memory: bool,
    /// Its look-ups go by hash first.
    #[arg(long, requires = "in_memory")]
    pub hash: bool,
    /// Commits wait for the disk.
    #[arg(long)]
    pub durable: bool,
    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Line {
    load: Load,
    threads: usize,
    ops_per_s: f64,
    us_per_op: f64,
    failed: u64,
}

/// More take longer to start than to run.
const THREADS_MAX: usize = 4096;
const RANGE_ROWS: usize = 100;
const ROWS_PER_LOAD_TRX: u64 = 1000;

fn text(e: myriad::Error) -> String {
    e.to_string()
}

/// Runs the loads; always true: there is nothing to find.
///
/// # Errors
/// A sentence, where the engine fails.
pub fn run(args: &BenchArgs) -> Result<bool, String> {
    if let Some(threads) = args.threads.iter().find(|n| !(1..=THREADS_MAX).contains(*n)) {
        return Err(format!("--threads {threads}: 1 to {THREADS_MAX}"));
    }
    if args.dir.join("#myriad").exists() {
        return Err(format!("{} holds a data directory already", args.dir.display()));
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| format!("cannot create {}: {e}", args.dir.display()))?;
    let mut config = EngineConfig::new(&args.dir);
    config.buffer_pool_bytes = args.pool_mib << 20;
    config.buffer_pool_instances = args.instances;
    config.memory_tables_bytes = config.buffer_pool_bytes / 4 * 3;
    config.flush_at_commit = if args.durable { FlushAtCommit::Sync } else { FlushAtCommit::Lazy };
    let engine = Engine::open_with(config, None).map_err(text)?;
    engine.start_background();
    let indexes = [IndexSpec::UNIQUE, IndexSpec::PLAIN].map(|spec| IndexSpec { hash: args.hash, ..spec });
    let spec = TableSpec { indexes: &indexes, in_memory: args.in_memory, ..TableSpec::default() };
    engine.create_table("bench/t", &spec).map_err(text)?;
    let table = engine.open_table("bench/t").map_err(text)?;
    load_rows(&engine, &table, args)?;
    let next_key = AtomicU64::new(args.rows);
    for &load in &args.loads {
        for &threads in &args.threads {
            let line = run_load(&engine, &table, args, load, threads, &next_key);
            if args.json {
                out::line(&serde_json::to_string(&line).expect("plain values"))?;
            } else {
                out::line(&format!(
                    "{:<12} {:>3} threads {:>12.0} ops/s {:>9.2} us/op {:>6} failed",
                    format!("{:?}", line.load),
                    line.threads,
                    line.ops_per_s,
                    line.us_per_op,
                    line.failed
                ))?;
            }
        }
    }
    for latch in engine.latches() {
        if latch.contended > 0 {
            out::aside(&format!(
                "{:<14} {:>14} acquired {:>10} contended ({:.3} %), hottest partition {} with {:.0} %",
                latch.name,
                latch.acquired,
                latch.contended,
                latch.contended_percent,
                latch.hottest,
                latch.hottest_percent
            ));
        }
    }
    drop(table);
    engine.close(myriad::CloseMode::LogOnly).map_err(text)?;
    Ok(true)
}

/// A row's parts, in buffers that are used again.
struct RowBytes {
    key: [u8; 8],
    secondary: [u8; 12],
    value: Vec<u8>,
}

impl RowBytes {
    fn new(value_bytes: usize) -> RowBytes {
        RowBytes { key: [0; 8], secondary: [0; 12], value: vec![b'v'; value_bytes.max(16)] }
    }

    fn set(&mut self, key: u64, number: u32, random: &mut Random) {
        self.key = key.to_be_bytes();
        self.secondary[..4].copy_from_slice(&number.to_be_bytes());
        self.secondary[4..].copy_from_slice(&self.key);
        self.value[..4].copy_from_slice(&number.to_be_bytes());
        self.value[8..16].copy_from_slice(&random.next_u64().to_be_bytes());
    }

    fn insert(&self) -> [Op<'_>; 2] {
        [
            Op {
                kind: OpKind::Insert,
                index_no: 0,
                key: &self.key,
                unique_len: self.key.len(),
                value: &self.value,
                head_len: 0,
            },
            Op { kind: OpKind::Insert, index_no: 1, key: &self.secondary, unique_len: 0, value: &[], head_len: 0 },
        ]
    }
}

fn load_rows(engine: &Arc<Engine>, table: &Table, args: &BenchArgs) -> Result<(), String> {
    let start = Instant::now();
    let mut session = engine.session();
    let mut random = Random::from_seed(1);
    let mut row = RowBytes::new(args.value);
    for key in 0..args.rows {
        if key % ROWS_PER_LOAD_TRX == 0 {
            session.commit().map_err(text)?;
            session.statement_begin(Isolation::RepeatableRead, false, Duration::from_secs(50));
        }
        row.set(key, random.below(args.rows) as u32, &mut random);
        session.apply(table, row.insert().into_iter(), ApplyMode::default()).map_err(text)?;
    }
    session.commit().map_err(text)?;
    let seconds = start.elapsed().as_secs_f64();
    out::aside(&format!("loaded {} rows in {seconds:.2} s, {:.0} rows/s", args.rows, args.rows as f64 / seconds));
    Ok(())
}

struct Shared<'a> {
    table: &'a Table,
    args: &'a BenchArgs,
    next_key: &'a AtomicU64,
    stop: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
    /// Why the first one failed.
    failure: OnceLock<String>,
}

fn run_load(
    engine: &Arc<Engine>,
    table: &Table,
    args: &BenchArgs,
    load: Load,
    threads: usize,
    next_key: &AtomicU64,
) -> Line {
    let shared = Shared {
        table,
        args,
        next_key,
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        failure: OnceLock::new(),
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (shared, session) = (&shared, engine.session());
            scope.spawn(move || client(shared, load, session, thread as u64));
        }
        std::thread::sleep(Duration::from_secs(args.seconds));
        shared.stop.store(true, Ordering::Relaxed);
    });
    let seconds = start.elapsed().as_secs_f64();
    if let Some(failure) = shared.failure.get() {
        out::aside(&format!("the first to fail: {failure}"));
    }
    let done = shared.done.load(Ordering::Relaxed) as f64;
    Line {
        load,
        threads,
        ops_per_s: done / seconds,
        us_per_op: if done > 0.0 { seconds * 1e6 * threads as f64 / done } else { 0.0 },
        failed: shared.failed.load(Ordering::Relaxed),
    }
}

fn client(shared: &Shared<'_>, load: Load, mut session: Session, thread: u64) {
    let mut random = Random::from_seed(1000 + thread);
    let zipf = Zipf::new(shared.args.rows as f64, 0.99).expect("at least one row");
    let mut row = RowBytes::new(shared.args.value);
    let (mut done, mut failed) = (0u64, 0u64);
    while !shared.stop.load(Ordering::Relaxed) {
        let key = match shared.args.keys {
            Keys::Uniform => random.below(shared.args.rows),
            Keys::Zipf => (zipf.sample(&mut Rng(&mut random)) as u64 - 1).wrapping_mul(0x9e37_79b9) % shared.args.rows,
        };
        let this = match load {
            Load::Mixed => match random.below(10) {
                0..=7 => Load::Point,
                8 => Load::Range,
                _ => Load::Update,
            },
            other => other,
        };
        match operation(shared, this, &mut session, key, &mut row, &mut random) {
            Ok(()) => done += 1,
            Err(error) => {
                failed += 1;
                shared.failure.get_or_init(|| error.to_string());
                let _ = session.rollback();
            }
        }
    }
    shared.done.fetch_add(done, Ordering::Relaxed);
    shared.failed.fetch_add(failed, Ordering::Relaxed);
}

fn operation(
    shared: &Shared<'_>,
    load: Load,
    session: &mut Session,
    key: u64,
    row: &mut RowBytes,
    random: &mut Random,
) -> myriad::Result<()> {
    let table = shared.table;
    session.statement_begin(Isolation::RepeatableRead, true, Duration::from_secs(5));
    match load {
        Load::Point | Load::Mixed => {
            let found = session.get(table, 0, &key.to_be_bytes(), false, Lock::None, Wait::Wait)?;
            assert!(found.is_some(), "row {key} was loaded");
        }
        Load::Range => {
            let mut cursor = Cursor::open(session, table, 0, CursorOptions::default())?;
            let mut more = cursor.seek(session, Seek::Ge, &key.to_be_bytes())?.is_some();
            for _ in 1..RANGE_ROWS {
                if !more {
                    break;
                }
                more = cursor.next(session)?.is_some();
            }
        }
        Load::Update => {
            let found = session.get(table, 0, &key.to_be_bytes(), false, Lock::Exclusive, Wait::Wait)?;
            let number = found.map_or(0, |r| u32::from_be_bytes(r.value[..4].try_into().expect("four bytes")));
            row.set(key, number, random);
            let op =
                Op { kind: OpKind::Update, index_no: 0, key: &row.key, unique_len: 0, value: &row.value, head_len: 0 };
            session.apply(table, [op].into_iter(), ApplyMode::default())?;
        }
        Load::UpdateIndex => {
            let found = session.get(table, 0, &key.to_be_bytes(), false, Lock::Exclusive, Wait::Wait)?;
            let number = found.map_or(0, |r| u32::from_be_bytes(r.value[..4].try_into().expect("four bytes")));
            row.set(key, number, random);
            let old = row.secondary;
            row.set(key, number.wrapping_add(1), random);
            let ops = [
                Op { kind: OpKind::Update, index_no: 0, key: &row.key, unique_len: 0, value: &row.value, head_len: 0 },
                Op { kind: OpKind::Delete, index_no: 1, key: &old, unique_len: 0, value: &[], head_len: 0 },
                Op { kind: OpKind::Insert, index_no: 1, key: &row.secondary, unique_len: 0, value: &[], head_len: 0 },
            ];
            session.apply(table, ops.into_iter(), ApplyMode::default())?;
        }
        Load::Insert => {
            let key = shared.next_key.fetch_add(1, Ordering::Relaxed);
            row.set(key, random.below(shared.args.rows) as u32, random);
            session.apply(table, row.insert().into_iter(), ApplyMode::default())?;
        }
    }
    session.statement_end();
    session.commit()
}

/// [`Random`] as the distribution wants it.
struct Rng<'a>(&'a mut Random);

impl rand::RngCore for Rng<'_> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u64() as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, dst: &mut [u8]) {
        for chunk in dst.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}
