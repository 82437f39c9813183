//! A backup: a copy of the data directory made while others work with it, see docs/backup.md.
//!
//! Files are copied page by page while they change, and meanwhile the log from the checkpoint before. The copy is what a
//! crash at the moment of [`Backup::finish`] would have left, and an ordinary start recovers it. A folder that is not whole
//! has the file `INCOMPLETE`, which goes last, and no start takes it.

mod file;
mod files;

use crate::engine::Engine;
use crate::format::{self, Format};
use myriad_base::clock::Every;
use myriad_base::{threads, Error, Lsn, Result};
use myriad_buffer::Level;
use myriad_io::Io;
use myriad_log::{Log, LogCopy};
use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use files::Files;

/// How long a checkpoint waits for the copy of the log.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause of the thread that copies the log, when it has copied everything.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the error log is told how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Pause of the thread that copies new files, when it has copied all.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Rounds of copying files that were created during the round before, in [`Backup::copy_all`].
const ROUNDS_MAX: u32 = 5;

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Files copied.
    pub files: u64,
    /// Files known so far.
    pub files_total: u64,
    /// Thousandths of the file that is being copied.
    pub file_permille: u32,
    /// Bytes written, the log's not counted.
    pub bytes: u64,
}

/// What a backup is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupStage {
    /// Copies the files that there are.
    Copying,
    /// Has copied them, and follows the log and what comes.
    Following,
    /// Copies what is left, and ends.
    Completing,
}

/// A backup being made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupStatus {
    /// Its folder.
    pub dir: PathBuf,
    /// By the engine's clock.
    pub since: Duration,
    /// What it is at.
    pub stage: BackupStage,
    /// How far it is.
    pub progress: BackupProgress,
}

impl BackupStatus {
    pub(crate) fn new(dir: &Path, since: Duration) -> BackupStatus {
        BackupStatus { dir: dir.into(), since, stage: BackupStage::Copying, progress: BackupProgress::default() }
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// Tablespace files.
    pub files: u64,
    /// Bytes of them, holes left out.
    pub bytes: u64,
    /// Bytes of log that recovery of the copy reads.
    pub log_bytes: u64,
}

/// The log being copied, by a thread or, where the engine has none, in between.
struct Follower {
    /// `None` once it is finished or has failed.
    copy: Mutex<Option<LogCopy>>,
    failed: Mutex<Option<Error>>,
    /// To the thread that copies the log.
    stop: AtomicBool,
    /// To the thread that copies new files.
    stop_files: AtomicBool,
}

/// A backup being made. Dropped before [`Backup::finish`] it removes what it copied.
#[must_use = "what was copied is removed unless it is finished"]
pub struct Backup {
    engine: Arc<Engine>,
    /// `#myriad/` of the copy.
    folder: PathBuf,
    follower: Arc<Follower>,
    files: Arc<Mutex<Files>>,
    /// Copies the log.
    thread: Option<JoinHandle<()>>,
    /// Copies new files.
    keeper: Option<JoinHandle<()>>,
    checkpoint: Lsn,
    rounds: u32,
    whole: bool,
}

shown!(Backup, |b| [("folder", &b.folder), ("whole", &b.whole)]);

impl Engine {
    /// Begins a backup into `dir/#myriad/`; creates `dir`. Until it has ended the log cannot be switched off. One at a
    /// time.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `dir` is not absolute, lies in the data directory, or `dir/#myriad` holds anything;
    /// [`Error::NotSupported`] while the log is off or another backup is made; those of writing files and of the log.
    pub fn backup(self: &Arc<Self>, dir: &Path) -> Result<Backup> {
        self.check_open()?;
        check_place(self, dir)?;
        self.begin_backup(dir)?;
        // From here on its end is the backup's.
        let ending = Ending(self);
        let io = self.io();
        let folder = dir.join(format::FOLDER);
        prepare_folder(io, dir, &folder)?;
        self.parts.spaces.watch_names();
        let patience = if self.parts.config.background_threads { PATIENCE } else { Duration::ZERO };
        let log = self.pool().log();
        let copy = LogCopy::begin(log, io, dir, patience).inspect_err(|_| clear(io, &folder))?;
        let checkpoint = copy.checkpoint();
        let follower = Arc::new(Follower {
            copy: Mutex::new(Some(copy)),
            failed: Mutex::new(None),
            stop: AtomicBool::new(false),
            stop_files: AtomicBool::new(false),
        });
        let files = Arc::new(Mutex::new(Files::new(self, &folder)));
        let mut backup = Backup {
            engine: Arc::clone(self),
            folder,
            follower,
            files,
            thread: None,
            keeper: None,
            checkpoint,
            rounds: 0,
            whole: false,
        };
        std::mem::forget(ending);
        backup.follow()?;
        backup.files.lock().list()?;
        Ok(backup)
    }
}

/// Ends what [`Engine::begin_backup`] began, unless the backup does.
struct Ending<'a>(&'a Engine);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.parts.spaces.end_watch_names();
        self.0.end_backup();
    }
}

/// The path with links resolved as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path.into()
}

fn check_place(engine: &Engine, dir: &Path) -> Result<()> {
    if !dir.is_absolute() || dir.components().any(|c| c == std::path::Component::ParentDir) {
        return Err(Error::invalid(format!("the backup's folder {} is no absolute path", dir.display())));
    }
    // `#myriad` may be a link to another disk, on either side.
    let data_dir = &engine.parts.config.data_dir;
    let ours = [resolved(data_dir), resolved(&data_dir.join(format::FOLDER))];
    let places = [resolved(dir), resolved(&dir.join(format::FOLDER))];
    if places.iter().any(|place| ours.iter().any(|own| place.starts_with(own))) {
        return Err(Error::invalid(format!("the backup's folder {} is in the data directory", dir.display())));
    }
    Ok(())
}

/// Makes the folder, with the mark that it is not whole.
fn prepare_folder(io: &Arc<dyn Io>, dir: &Path, folder: &Path) -> Result<()> {
    if !io.exists(dir)? {
        io.create_dir(dir)?;
        dir.parent().map_or(Ok(()), |parent| io.sync_dir(parent))?;
    }
    io.create_dir(folder)?;
    if let Some(name) = format::list(io, folder)?.into_iter().find(|name| name != format::INCOMPLETE_FILE) {
        return Err(Error::invalid(format!("the backup's folder {} is not empty: it has {name}", folder.display())));
    }
    format::begin_backup(io, folder)?;
    io.sync_dir(dir)
}

/// Removes what a backup that came to nothing has copied. The mark stays.
fn clear(io: &Arc<dyn Io>, folder: &Path) {
    // There already, but for a failure of the very last step.
    let _ = format::begin_backup(io, folder);
    let names = format::list(io, folder).unwrap_or_default();
    for name in names.iter().filter(|name| *name != format::INCOMPLETE_FILE) {
        // What cannot be removed is in the way of the next backup, and says so then.
        let _ = io.remove_file(&folder.join(name));
    }
}

impl Follower {
    fn step(&self, log: &Log) -> Result<bool> {
        let mut copy = self.copy.lock();
        let Some(following) = &mut *copy else { return Ok(false) };
        let done = following.advance(log);
        if let Err(e) = &done {
            self.fail(copy, log, e);
        }
        done
    }

    /// The backup has come to nothing: the log waits for its copy no longer.
    fn fail(&self, mut copy: MutexGuard<'_, Option<LogCopy>>, log: &Log, e: &Error) {
        self.failed.lock().get_or_insert_with(|| e.clone());
        if let Some(copy) = copy.take() {
            copy.give_up(log);
        }
    }

    fn run(&self, engine: &Engine) {
        while !self.stop.load(Ordering::Acquire) && self.check().is_ok() {
            match self.step(engine.pool().log()) {
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(PAUSE),
                Err(e) => {
                    let text = format!("the backup has failed: its copy of the log: {e}");
                    (engine.parts.report)(Level::Error, &text);
                }
            }
        }
    }

    /// Copies files that come while the server copies other things, so that they are not left for the end.
    fn keep_up(&self, engine: &Engine, files: &Mutex<Files>) {
        while !self.stop_files.load(Ordering::Acquire) && self.check().is_ok() {
            match engine.check_open().and_then(|()| copy_new(&mut files.lock())) {
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(LOOK_EVERY),
                Err(e) => {
                    self.fail(self.copy.lock(), engine.pool().log(), &e);
                    (engine.parts.report)(Level::Error, &format!("the backup has failed: {e}"));
                }
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }
}

/// Copies a part of what has come; false if nothing has.
fn copy_new(files: &mut Files) -> Result<bool> {
    if files.is_done() {
        files.look()?;
    }
    let more = !files.is_done();
    files.copy_part().map(|()| more)
}

impl Backup {
    /// Starts the thread that copies the log.
    fn follow(&mut self) -> Result<()> {
        let (follower, engine) = (Arc::clone(&self.follower), Arc::clone(&self.engine));
        self.thread = self.start("myriad-backup", move || follower.run(&engine))?;
        Ok(())
    }

    /// From now on until [`Backup::finish`] a thread copies the files that come, where the engine has threads.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started.
    pub fn keep_up(&mut self) -> Result<()> {
        let (follower, engine, files) = (Arc::clone(&self.follower), Arc::clone(&self.engine), Arc::clone(&self.files));
        self.keeper = self.start("myriad-files", move || follower.keep_up(&engine, &files))?;
        Ok(())
    }

    fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<Option<JoinHandle<()>>> {
        if !self.engine.parts.config.background_threads {
            return Ok(None);
        }
        // The list was good when the engine was opened.
        let _cpus = crate::open::background_cpus(&self.engine.parts.config);
        let started = threads::spawn(name, work);
        started.map(Some).map_err(|e| Error::io("starting a thread", name, e.raw_os_error().unwrap_or(0)))
    }

    /// Copies a part; `None` when all files there were a moment ago are copied. What is copied is brought up to the
    /// moment of [`Backup::finish`] by the log.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] for a page that can be read from nowhere; those of files and of the log. The backup is of no
    /// use then.
    pub fn copy_some(&mut self) -> Result<Option<BackupProgress>> {
        self.check()?;
        let mut files = self.files.lock();
        let again = files.is_done();
        if !again || self.rounds < ROUNDS_MAX {
            self.rounds += u32::from(again);
            if copy_new(&mut files)? {
                return Ok(Some(files.progress()));
            }
        }
        self.engine.note_backup(|backup| backup.stage = BackupStage::Following);
        Ok(None)
    }

    /// Whether it can still become whole. Where no thread copies the log, this does.
    fn check(&self) -> Result<()> {
        if self.thread.is_none() {
            while self.follower.step(self.engine.pool().log())? {}
        }
        self.follower.check()?;
        self.engine.pool().check_poison()
    }

    /// Copies all that [`Backup::copy_some`] has to copy, while `go_on` says so.
    ///
    /// # Errors
    /// As [`Backup::copy_some`]; [`Error::Interrupted`].
    pub fn copy_all(&mut self, go_on: &mut dyn FnMut(BackupProgress) -> bool) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let mut tell = Every::new(REPORT_EVERY, engine.clock());
        while let Some(progress) = self.copy_some()? {
            if !go_on(progress) {
                return Err(Error::Interrupted);
            }
            if tell.is_due(engine.clock()) {
                let BackupProgress { files, files_total, bytes, .. } = progress;
                let text = format!("backup: {files} of {files_total} files copied, {} MiB", bytes >> 20);
                (engine.parts.report)(Level::Info, &text);
            }
        }
        Ok(())
    }

    /// Copies what is known to be left, while `go_on` says so.
    fn copy_rest(&self, go_on: &mut dyn FnMut(BackupProgress) -> bool) -> Result<()> {
        let mut files = self.files.lock();
        while !files.is_done() {
            self.check()?;
            files.copy_part()?;
            if !go_on(files.progress()) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    /// Ends the backup: it is the state of this moment, or one during this call, when it returns. Copies the
    /// files that are left, while `go_on` says so; creating, renaming and removing tablespaces waits meanwhile.
    ///
    /// # Errors
    /// As [`Backup::copy_all`]. What was copied is removed then.
    pub fn finish(mut self, go_on: &mut dyn FnMut(BackupProgress) -> bool) -> Result<BackupSummary> {
        let engine = Arc::clone(&self.engine);
        let log = engine.pool().log();
        engine.note_backup(|backup| backup.stage = BackupStage::Completing);
        self.stop_keeping_up();
        self.copy_rest(go_on)?;
        let names = engine.parts.spaces.hold_names();
        self.files.lock().catch_up(names.changed())?;
        self.copy_rest(go_on)?;
        engine.check_open()?;
        let end = log.end_lsn();
        log.flush_to(end)?;
        self.stop_following();
        self.follower.check()?;
        let copy = self.follower.copy.lock().take();
        copy.ok_or(Error::ShuttingDown)?.finish(log, end)?;
        drop(names);
        engine.pool().check_poison()?;
        let format = Format { page_size: engine.page_size(), uuid: log.uuid() };
        format::end_backup(engine.io(), &self.folder, format)?;
        self.whole = true;
        let BackupProgress { files, bytes, .. } = self.files.lock().progress();
        let log_bytes = end.0 - self.checkpoint.0;
        let text = format!(
            "backup: {} is whole: {files} files, {} MiB, and {} MiB of log",
            self.folder.display(),
            bytes >> 20,
            log_bytes >> 20
        );
        (engine.parts.report)(Level::Info, &text);
        Ok(BackupSummary { files, bytes, log_bytes })
    }

    fn stop_keeping_up(&mut self) {
        self.follower.stop_files.store(true, Ordering::Release);
        if let Some(thread) = self.keeper.take() {
            self.join(thread, "the thread that copied new files has panicked");
        }
    }

    fn stop_following(&mut self) {
        self.follower.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.join(thread, "the thread that copied the log has panicked");
        }
    }

    fn join(&self, thread: JoinHandle<()>, panicked: &str) {
        thread.thread().unpark();
        if thread.join().is_err() {
            self.follower.failed.lock().get_or_insert_with(|| Error::invalid(panicked));
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.stop_keeping_up();
        self.stop_following();
        if let Some(copy) = self.follower.copy.lock().take() {
            copy.give_up(self.engine.pool().log());
        }
        self.files.lock().close();
        if !self.whole {
            clear(self.engine.io(), &self.folder);
        }
        drop(Ending(&self.engine));
    }
}
