//! The tablespace check inside an open engine: what the catalog answers it, when it runs, what it found.

use crate::config::{DuplicateCheck, EngineConfig};
use crate::open::{own_uuid, SYSTEM_FILE, UNDO_FILE};
use crate::reports::{CheckFinding, CheckStatus};
use myriad_base::clock::Clock;
use myriad_base::{threads, Result, SpaceId};
use myriad_btree::alloc::file_pages_wanted;
use myriad_buffer::{Level, Reporter};
use myriad_catalog::Catalog;
use myriad_catalog::{SpaceRow, SpaceState};
use myriad_space::check::{check_tablespaces, CheckOptions, Finding, Known, KnownSpace, Problem, Progress};
use myriad_space::{SpaceRegistry, Uuid, DIRECTORY};
use myriad_txn::TrxSystem;
use parking_lot::Mutex;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of its threads.
const THREAD: &str = "myriad-check";
/// Findings kept for people to read; of more only the number.
const KEPT_MAX: usize = 10_000;
/// Findings told in the error log.
const LOGGED_MAX: u64 = 100;
/// Time between lines of progress in the error log while clients wait, and while they do not.
const TELL_BLOCKING: Duration = Duration::from_secs(1);
const TELL_ONLINE: Duration = Duration::from_secs(60);

/// The tablespaces of a data directory, by its catalog.
pub struct EngineSpaces {
    catalog: Arc<Catalog>,
    registry: Arc<SpaceRegistry>,
    directory: Uuid,
}

shown!(EngineSpaces, |s| [("directory", &s.directory)]);

impl EngineSpaces {
    pub(crate) fn new(catalog: Arc<Catalog>, registry: Arc<SpaceRegistry>, directory: Uuid) -> EngineSpaces {
        EngineSpaces { catalog, registry, directory }
    }

    fn own(&self, id: SpaceId, file: &str) -> KnownSpace {
        KnownSpace { id, path: file.into(), uuid: own_uuid(self.directory, id), settled: true }
    }
}

fn known(id: SpaceId, row: SpaceRow) -> KnownSpace {
    let settled = matches!(row.state, SpaceState::Normal | SpaceState::Orphan);
    KnownSpace { id, path: row.path, uuid: row.uuid, settled }
}

impl Known for EngineSpaces {
    fn list(&self, visit: &mut dyn FnMut(KnownSpace) -> bool) -> Result<()> {
        if visit(self.own(SpaceId::SYSTEM, SYSTEM_FILE)) && visit(self.own(SpaceId::UNDO, UNDO_FILE)) {
            self.catalog.scan_spaces(&mut |id, row| visit(known(id, row)))?;
        }
        Ok(())
    }

    fn find(&self, id: SpaceId) -> Result<Option<KnownSpace>> {
        match id {
            SpaceId::SYSTEM => Ok(Some(self.own(id, SYSTEM_FILE))),
            SpaceId::UNDO => Ok(Some(self.own(id, UNDO_FILE))),
            id => Ok(self.catalog.space_row(id)?.map(|row| known(id, row))),
        }
    }

    fn touched(&self, path: &str) -> bool {
        self.registry.was_created(path)
    }
}

/// Pages that a file must have, by the beginning of its page 1.
fn pages_wanted(space: SpaceId, page: &[u8], page_size: usize) -> Option<u64> {
    (space != SpaceId::UNDO).then(|| file_pages_wanted(page, page_size)).flatten()
}

/// Where a check is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Off,
    Waiting,
    Running { since: Duration },
    Ended { seconds_us: u64, state: &'static str },
}

/// The check of an engine: at most one in its life.
pub(crate) struct Checker {
    spaces: EngineSpaces,
    trx: Arc<TrxSystem>,
    mode: DuplicateCheck,
    start_pause: Duration,
    root: PathBuf,
    options: CheckOptions,
    clock: Arc<dyn Clock>,
    report: Reporter,
    progress: Progress,
    state: Mutex<State>,
    error: Mutex<Option<String>>,
    kept: Mutex<Vec<CheckFinding>>,
    found: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checker {
    /// For the operating system's files, read with rings if `uring`. Runs nothing yet.
    pub(crate) fn new(spaces: EngineSpaces, trx: Arc<TrxSystem>, config: &EngineConfig, uring: bool) -> Checker {
        let mode = match config.duplicate_check {
            DuplicateCheck::Online if !config.background_threads => DuplicateCheck::Off,
            mode => mode,
        };
        if mode != DuplicateCheck::Off {
            spaces.registry.begin_watch();
        }
        Checker {
            mode,
            start_pause: config.start_pause,
            root: config.data_dir.join(DIRECTORY),
            options: CheckOptions {
                page_size: trx.pool().page_size(),
                light: config.duplicate_check_light,
                fadvise: config.duplicate_check_fadvise,
                threads: config.duplicate_check_threads,
                uring,
                files_max: spaces.registry.files_at_once(),
                pages_wanted: Some(pages_wanted),
            },
            clock: Arc::clone(&config.clock),
            report: Arc::clone(&config.report),
            progress: Progress::default(),
            state: Mutex::new(if mode == DuplicateCheck::Off { State::Off } else { State::Waiting }),
            error: Mutex::default(),
            kept: Mutex::default(),
            found: AtomicU64::new(0),
            thread: Mutex::default(),
            spaces,
            trx,
        }
    }

    /// Runs the check in this call, if it is to run before clients.
    pub(crate) fn run_blocking(&self) {
        if self.mode == DuplicateCheck::Blocking {
            self.run(TELL_BLOCKING);
        }
    }

    /// Begins the check beside the workload, [`EngineConfig::start_pause`] from now, if that is its mode.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut thread = self.thread.lock();
        if self.mode != DuplicateCheck::Online || thread.is_some() || *self.state.lock() != State::Waiting {
            return;
        }
        let checker = Arc::clone(self);
        let started = threads::spawn(THREAD, move || {
            checker.pause();
            checker.run(TELL_ONLINE);
        });
        match started {
            Ok(handle) => *thread = Some(handle),
            Err(e) => self.end(self.clock.now(), Err(format!("no thread: {e}"))),
        }
    }

    /// Ends the check at the next file.
    pub(crate) fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            // It catches its panics.
            let _ = thread.join();
        }
    }

    /// Waits until the server's own start should be over, or the check is to stop.
    fn pause(&self) {
        let begin = Instant::now();
        while !self.progress.stop.load(Ordering::Relaxed) && begin.elapsed() < self.start_pause {
            std::thread::park_timeout(self.start_pause.saturating_sub(begin.elapsed()));
        }
    }

    fn run(&self, tell: Duration) {
        let since = self.clock.now();
        *self.state.lock() = State::Running { since };
        let outcome = std::thread::scope(|scope| {
            let (done, ended) = channel();
            let work = threads::spawn_scoped(scope, THREAD, move || {
                let check =
                    || check_tablespaces(&self.root, &self.spaces, self.options, &self.progress, &|f| self.note(f));
                let outcome = catch_unwind(AssertUnwindSafe(check));
                let _ = done.send(outcome);
            });
            if let Err(e) = work {
                return Err(format!("no thread: {e}"));
            }
            loop {
                match ended.recv_timeout(tell) {
                    Ok(Ok(result)) => return result.map_err(|e| e.to_string()),
                    Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err("internal error".into()),
                    Err(RecvTimeoutError::Timeout) => self.tell_progress(since),
                }
            }
        });
        self.end(since, outcome);
    }

    fn end(&self, since: Duration, outcome: std::result::Result<(), String>) {
        self.spaces.registry.end_watch();
        let taken = self.clock.now().saturating_sub(since);
        let state = match &outcome {
            Err(_) => "FAILED",
            Ok(()) if self.progress.stop.load(Ordering::Relaxed) => "STOPPED",
            Ok(()) => "DONE",
        };
        *self.state.lock() = State::Ended { seconds_us: taken.as_micros() as u64, state };
        let (files, found) = (self.progress.files.load(Ordering::Relaxed), self.found.load(Ordering::Relaxed));
        let text = format!("tablespace check: {files} files in {:.3} s, {found} findings", taken.as_secs_f64());
        match outcome {
            Err(e) => {
                (self.report)(Level::Error, &format!("{text}; it could not go on: {e}"));
                *self.error.lock() = Some(e);
            }
            Ok(()) if state == "STOPPED" => (self.report)(Level::Info, &format!("{text}; stopped before its end")),
            Ok(()) if found == 0 => (self.report)(Level::Info, &text),
            Ok(()) => (self.report)(Level::Warning, &format!("{text}: see INFORMATION_SCHEMA.MYRIAD_TABLESPACE_CHECK")),
        }
    }

    fn tell_progress(&self, since: Duration) {
        let seconds = self.clock.now().saturating_sub(since).as_secs_f64();
        let files = self.progress.files.load(Ordering::Relaxed);
        let expected = self.progress.expected.load(Ordering::Relaxed);
        if expected == 0 {
            return (self.report)(
                Level::Info,
                &format!("tablespace check: reading the catalog, {seconds:.0} s so far"),
            );
        }
        // There may be more files than the catalog knows.
        let expected = expected.max(files);
        let rate = files as f64 / seconds.max(0.001);
        let left = match rate > 0.0 {
            true => format!("about {:.0} s left", expected.saturating_sub(files) as f64 / rate),
            false => "time left unknown".into(),
        };
        let text = format!("tablespace check: {files} of {expected} files, {rate:.0} files/s, {left}");
        (self.report)(Level::Info, &text);
    }

    fn note(&self, f: Finding) {
        let place = |path: &str| format!("{DIRECTORY}/{path}");
        let row = CheckFinding {
            space_id: f.space.map(|id| id.0),
            path: place(&f.path),
            problem: f.problem.name(),
            other_path: f.other.as_deref().map(place),
            detail: f.detail,
            found_wall_us: self.clock.wall_us(),
        };
        if let (Problem::Duplicate, Some(id)) = (f.problem, f.space) {
            self.suspect(id, &f.file, &row);
        }
        let number = self.found.fetch_add(1, Ordering::Relaxed) + 1;
        if number <= LOGGED_MAX {
            let level =
                if matches!(f.problem, Problem::Unknown | Problem::Link) { Level::Warning } else { Level::Error };
            let text = format!("tablespace check: {} {}: {}", row.problem, row.path, row.detail);
            (self.report)(level, &text);
        } else if number == LOGGED_MAX + 1 {
            (self.report)(Level::Warning, "tablespace check: further findings are not told here one by one");
        }
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(row);
        }
    }

    /// Two files are the same tablespace, and nobody but a person can say which is to be used. The engine's own two stay
    /// in use: without them no table could be.
    fn suspect(&self, id: SpaceId, file: &Path, row: &CheckFinding) {
        if id < SpaceId::FIRST_USER {
            return;
        }
        let own = row.other_path.as_deref().unwrap_or_default();
        let reason = format!("two files say they are tablespace {id}: {own} and {}; remove the wrong one", row.path);
        self.spaces.registry.suspect(id, file, &reason, self.recovery_needs(id));
    }

    /// Whether changes of committed or interrupted transactions must still be applied or undone in the tablespace, or
    /// may have to be. To give them up would lose them for good.
    fn recovery_needs(&self, id: SpaceId) -> bool {
        let mut unfinished = false;
        self.trx.list_trx(&mut |t| unfinished |= t.recovered);
        unfinished || self.trx.pool().awaits_redo(id)
    }

    /// How far it is.
    pub(crate) fn status(&self) -> CheckStatus {
        let (state, microseconds) = match *self.state.lock() {
            State::Off => ("OFF", 0),
            State::Waiting => ("WAITING", 0),
            State::Running { since } => ("RUNNING", self.clock.now().saturating_sub(since).as_micros() as u64),
            State::Ended { seconds_us, state } => (state, seconds_us),
        };
        CheckStatus {
            mode: self.mode.name(),
            state,
            microseconds,
            files: self.progress.files.load(Ordering::Relaxed),
            expected: self.progress.expected.load(Ordering::Relaxed),
            bytes: self.progress.bytes.load(Ordering::Relaxed),
            findings: self.found.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
        }
    }

    /// What it found, the first [`KEPT_MAX`].
    pub(crate) fn findings(&self) -> Vec<CheckFinding> {
        self.kept.lock().clone()
    }
}
