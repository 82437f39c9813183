//! A backup: a copy of the data directory made while others work with it, see docs/backup.md.
//!
//! Files are copied page by page while they change, and meanwhile the log from the checkpoint before. The copy is what a
//! crash at the moment of [`Backup::finish`] would have left, and an ordinary start recovers it. A folder that is not whole
//! has the file `INCOMPLETE`, which goes last, and no start takes it.

mod file;

use crate::engine::Engine;
use crate::format::{self, Format};
use myriad_base::{Error, Lsn, Result, SpaceId};
use myriad_buffer::Level;
use myriad_io::Io;
use myriad_log::{Log, LogCopy};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use file::FileCopy;

/// How long a checkpoint waits for the copy of the log.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause of the thread that copies the log, when it has copied everything.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the error log is told how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Rounds of copying files that were created during the round before.
const ROUNDS_MAX: u32 = 5;

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    stop: AtomicBool,
}

/// A backup being made. Dropped before [`Backup::finish`] it removes what it copied.
pub struct Backup {
    engine: Arc<Engine>,
    /// `#myriad/` of the copy.
    folder: PathBuf,
    follower: Arc<Follower>,
    thread: Option<JoinHandle<()>>,
    checkpoint: Lsn,
    waiting: VecDeque<String>,
    current: Option<FileCopy>,
    /// Names of the copy's files, whole ones.
    copied: BTreeSet<String>,
    rounds: u32,
    bytes: u64,
    whole: bool,
}

impl Engine {
    /// Begins a backup into `dir/#myriad/`; creates `dir`. Until it has ended the log cannot be switched off. One at a
    /// time.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `dir` is not absolute, lies in the data directory, or `dir/#myriad` holds anything;
    /// [`Error::NotSupported`] while the log is off or another backup is made; those of writing files and of the log.
    pub fn backup(self: &Arc<Self>, dir: &Path) -> Result<Backup> {
        self.pool().check_poison()?;
        check_place(self, dir)?;
        self.begin_backup()?;
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
        let follower =
            Arc::new(Follower { copy: Mutex::new(Some(copy)), failed: Mutex::new(None), stop: AtomicBool::new(false) });
        let mut backup = Backup {
            engine: Arc::clone(self),
            folder,
            follower,
            thread: None,
            checkpoint,
            waiting: VecDeque::new(),
            current: None,
            copied: BTreeSet::new(),
            rounds: 0,
            bytes: 0,
            whole: false,
        };
        std::mem::forget(ending);
        backup.follow()?;
        backup.list()?;
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
    if let Some(name) = io.list_dir(folder)?.into_iter().find(|name| name != format::INCOMPLETE_FILE) {
        return Err(Error::invalid(format!("the backup's folder {} is not empty: it has {name}", folder.display())));
    }
    format::begin_backup(io, folder)?;
    io.sync_dir(dir)
}

/// Removes what a backup that came to nothing has copied. The mark stays.
fn clear(io: &Arc<dyn Io>, folder: &Path) {
    // There already, but for a failure of the very last step.
    let _ = format::begin_backup(io, folder);
    let names = io.list_dir(folder).unwrap_or_default();
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
            *self.failed.lock() = Some(e.clone());
            if let Some(copy) = copy.take() {
                copy.give_up(log);
            }
        }
        done
    }

    fn run(&self, engine: &Engine) {
        while !self.stop.load(Ordering::Acquire) {
            match self.step(engine.pool().log()) {
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(PAUSE),
                Err(e) => {
                    let text = format!("the backup has failed: its copy of the log: {e}");
                    return (engine.parts.report)(Level::Error, &text);
                }
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }
}

impl Backup {
    /// Files as they are now. Those created later are noted by the registry.
    fn list(&mut self) -> Result<()> {
        // None of them is just being created.
        let _held = self.engine.parts.spaces.hold_names();
        let names = self.engine.io().list_dir(&self.source())?;
        self.waiting = names.into_iter().filter(|name| is_tablespace(name)).collect();
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.engine.parts.config.data_dir.join(format::FOLDER)
    }

    /// Starts the thread that copies the log.
    fn follow(&mut self) -> Result<()> {
        if !self.engine.parts.config.background_threads {
            return Ok(());
        }
        // The list was good when the engine was opened.
        let _cpus = crate::open::background_cpus(&self.engine.parts.config);
        let (follower, engine) = (Arc::clone(&self.follower), Arc::clone(&self.engine));
        let started = std::thread::Builder::new().name("myriad-backup".into()).spawn(move || follower.run(&engine));
        let no_thread =
            |e: std::io::Error| Error::io("starting a thread", "myriad-backup", e.raw_os_error().unwrap_or(0));
        self.thread = Some(started.map_err(no_thread)?);
        Ok(())
    }

    /// Copies a part; `None` when all files there were a moment ago are copied. What is copied is brought up to the
    /// moment of [`Backup::finish`] by the log.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] for a page that can be read from nowhere; those of files and of the log. The backup is of no
    /// use then.
    pub fn copy_some(&mut self) -> Result<Option<BackupProgress>> {
        if self.thread.is_none() {
            while self.follower.step(self.engine.pool().log())? {}
        }
        self.follower.check()?;
        self.engine.pool().check_poison()?;
        if self.current.is_none() && self.waiting.is_empty() {
            if self.rounds == ROUNDS_MAX {
                return Ok(None);
            }
            self.rounds += 1;
            let changed = self.engine.parts.spaces.hold_names().changed().to_vec();
            self.catch_up(&changed)?;
            if self.waiting.is_empty() {
                return Ok(None);
            }
        }
        self.copy_part()?;
        Ok(Some(self.progress()))
    }

    /// Copies all that [`Backup::copy_some`] has to copy, while `go_on` says so.
    ///
    /// # Errors
    /// As [`Backup::copy_some`]; [`Error::Interrupted`].
    pub fn copy_all(&mut self, go_on: &mut dyn FnMut(BackupProgress) -> bool) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let mut reported = engine.clock().now();
        while let Some(progress) = self.copy_some()? {
            if !go_on(progress) {
                return Err(Error::Interrupted);
            }
            if engine.clock().now().saturating_sub(reported) >= REPORT_EVERY {
                reported = engine.clock().now();
                let BackupProgress { files, files_total, bytes, .. } = progress;
                let text = format!("backup: {files} of {files_total} files copied, {} MiB", bytes >> 20);
                (engine.parts.report)(Level::Info, &text);
            }
        }
        Ok(())
    }

    /// What came and went: files that are gone leave the copy, new ones are to be copied.
    fn catch_up(&mut self, changed: &[String]) -> Result<()> {
        for name in changed {
            let exists = self.engine.io().exists(&self.source().join(name))?;
            if !exists && self.copied.remove(name) {
                self.engine.io().remove_file(&self.folder.join(name))?;
            } else if exists && !self.copied.contains(name) && is_tablespace(name) {
                self.waiting.push_back(name.clone());
            }
        }
        Ok(())
    }

    fn copy_part(&mut self) -> Result<()> {
        let mut copy = match self.current.take() {
            Some(copy) => copy,
            None => {
                let Some(name) = self.waiting.pop_front() else { return Ok(()) };
                match FileCopy::begin(self.engine.io(), &self.source(), &self.folder, name, self.engine.page_size())? {
                    Some(copy) => {
                        self.tell_if_missed(copy.space());
                        copy
                    }
                    None => return Ok(()), // dropped meanwhile
                }
            }
        };
        self.bytes += copy.copy_extent(&self.engine)?;
        if copy.is_done()? {
            copy.finish()?;
            self.copied.insert(copy.name);
        } else {
            self.current = Some(copy);
        }
        Ok(())
    }

    /// A file that cannot be used is copied as it is, and cannot be used in the copy.
    fn tell_if_missed(&self, space: SpaceId) {
        if let Err(e) = self.engine.parts.spaces.check_missed(space) {
            (self.engine.parts.report)(Level::Warning, &format!("backup: {e}; its file is copied as it is"));
        }
    }

    fn progress(&self) -> BackupProgress {
        let current = u64::from(self.current.is_some());
        let files = self.copied.len() as u64;
        BackupProgress {
            files,
            files_total: files + current + self.waiting.len() as u64,
            file_permille: self.current.as_ref().map_or(0, FileCopy::permille),
            bytes: self.bytes,
        }
    }

    /// Ends the backup: it is the state of this moment, or one during this call, when it returns. Waits for the
    /// files that are left; creating, renaming and removing tablespaces waits meanwhile.
    ///
    /// # Errors
    /// As [`Backup::copy_some`]. What was copied is removed then.
    pub fn finish(mut self) -> Result<BackupSummary> {
        let engine = Arc::clone(&self.engine);
        let log = engine.pool().log();
        while self.current.is_some() || !self.waiting.is_empty() {
            self.copy_some()?;
        }
        let names = engine.parts.spaces.hold_names();
        self.catch_up(names.changed())?;
        while self.current.is_some() || !self.waiting.is_empty() {
            self.follower.check()?;
            self.copy_part()?;
        }
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
        let (files, log_bytes) = (self.copied.len() as u64, end.0 - self.checkpoint.0);
        let text = format!(
            "backup: {} is whole: {files} files, {} MiB, and {} MiB of log",
            self.folder.display(),
            self.bytes >> 20,
            log_bytes >> 20
        );
        (engine.parts.report)(Level::Info, &text);
        Ok(BackupSummary { files, bytes: self.bytes, log_bytes })
    }

    fn stop_following(&mut self) {
        self.follower.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                let reason = "the thread that copied the log has panicked";
                self.follower.failed.lock().get_or_insert_with(|| Error::invalid(reason));
            }
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.stop_following();
        if let Some(copy) = self.follower.copy.lock().take() {
            copy.give_up(self.engine.pool().log());
        }
        self.current = None;
        if !self.whole {
            clear(self.engine.io(), &self.folder);
        }
        drop(Ending(&self.engine));
    }
}

fn is_tablespace(name: &str) -> bool {
    name.ends_with(".myr")
}
