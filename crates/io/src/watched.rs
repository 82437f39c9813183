//! How long files take: every read, write and sync is counted and timed, and one that takes a second is told of.

use crate::{File, FileLock, Io, IoBuf, IoRequest, OpenMode};
use myriad_base::clock::Clock;
use myriad_base::latch::thread_no;
use myriad_base::waits::{self, WaitFor};
use myriad_base::Result;
use parking_lot::Mutex;
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A call that takes so long is told of.
pub const SLOW: Duration = Duration::from_secs(1);
/// Not more often than this.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Calls of one kind whose begin is noted while they run; further ones are only counted.
const BEGIN_SLOTS: usize = 32;

/// What a file is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FileRole {
    /// The write-ahead log.
    Log,
    /// The doublewrite file.
    Doublewrite,
    /// A tablespace.
    Tablespace,
    /// Any other.
    Other,
}

impl FileRole {
    /// By the file's name.
    fn of(path: &Path) -> FileRole {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("redo.log") => FileRole::Log,
            Some("doublewrite") => FileRole::Doublewrite,
            _ if path.extension().is_some_and(|e| e == "myr") => FileRole::Tablespace,
            _ => FileRole::Other,
        }
    }
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FileCall {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A sync.
    Sync,
}

const ROLES: [(FileRole, &str); 4] = [
    (FileRole::Log, "log"),
    (FileRole::Doublewrite, "doublewrite"),
    (FileRole::Tablespace, "tablespace"),
    (FileRole::Other, "other"),
];
const CALLS: [(FileCall, &str); 3] = [(FileCall::Read, "read"), (FileCall::Write, "write"), (FileCall::Sync, "sync")];

/// Figures of one kind of call on the files of one role.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileStats {
    /// The files, for people: `log`, `doublewrite`, `tablespace`, `other`.
    pub files: &'static str,
    /// The call, for people: `read`, `write`, `sync`.
    pub call: &'static str,
    /// Calls that have ended, failed ones too.
    pub ended: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// What they took in all, in nanoseconds; each request of a batch counts as long as its batch.
    pub ns: u64,
    /// What the longest took, in nanoseconds.
    pub longest_ns: u64,
    /// How many took [`SLOW`] or longer.
    pub slow: u64,
    /// How many have begun and not ended.
    pub running: u64,
    /// For how long the oldest of these has been waited for, in nanoseconds.
    pub waiting_ns: u64,
}

impl FileStats {
    /// Whether an engine makes such calls as it goes: all but reads of log and doublewrite file, which are a start's, and
    /// calls on other files.
    pub fn is_usual(&self) -> bool {
        self.files == "tablespace" || (self.files != "other" && self.call != "read")
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Cell {
    ended: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
    longest_ns: AtomicU64,
    slow: AtomicU64,
    running: AtomicU64,
    /// When calls that run now began, in nanoseconds of the clock plus one; 0: free.
    begun: [AtomicU64; BEGIN_SLOTS],
}

impl Cell {
    /// Notes the begin of `n` calls; the slot that has it, if one was free.
    fn begin(&self, now_ns: u64, n: u64) -> Option<usize> {
        self.running.fetch_add(n, Ordering::Relaxed);
        let slot = thread_no() % BEGIN_SLOTS;
        let taken = self.begun[slot].compare_exchange(0, now_ns + 1, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok().then_some(slot)
    }

    fn end(&self, slot: Option<usize>, n: u64, bytes: u64, took_ns: u64) {
        if let Some(slot) = slot {
            self.begun[slot].store(0, Ordering::Relaxed);
        }
        self.running.fetch_sub(n, Ordering::Relaxed);
        self.ended.fetch_add(n, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ns.fetch_add(n * took_ns, Ordering::Relaxed);
        if took_ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
        if took_ns >= SLOW.as_nanos() as u64 {
            self.slow.fetch_add(n, Ordering::Relaxed);
        }
    }
}

/// When a slow call was last told of, and how many have been passed over since.
#[derive(Default)]
struct Told {
    at: Option<Duration>,
    since: u64,
}

/// Figures of all files of an engine.
pub struct FileWatch {
    clock: Arc<dyn Clock>,
    report: Box<dyn Fn(&str) + Send + Sync>,
    cells: [[Cell; CALLS.len()]; ROLES.len()],
    told: Mutex<Told>,
}

impl FileWatch {
    /// Nothing counted yet. `report` gets a sentence for people about slow calls, at most one a minute.
    pub fn new(clock: Arc<dyn Clock>, report: impl Fn(&str) + Send + Sync + 'static) -> Arc<FileWatch> {
        let cells = Default::default();
        Arc::new(FileWatch { clock, report: Box::new(report), cells, told: Mutex::default() })
    }

    /// A view of `io` whose calls are counted here.
    pub fn watch(self: &Arc<FileWatch>, io: Arc<dyn Io>) -> Arc<dyn Io> {
        Arc::new(WatchedIo { inner: io, watch: Arc::clone(self) })
    }

    /// The figures, a row for each kind of call on files of each role.
    pub fn stats(&self) -> Vec<FileStats> {
        let now = self.now_ns();
        let mut all = Vec::new();
        for (role, files) in ROLES {
            for (kind, call) in CALLS {
                let cell = self.cell(role, kind);
                let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let oldest = cell.begun.iter().map(of).filter(|&begun| begun != 0).min();
                all.push(FileStats {
                    files,
                    call,
                    ended: of(&cell.ended),
                    bytes: of(&cell.bytes),
                    ns: of(&cell.ns),
                    longest_ns: of(&cell.longest_ns),
                    slow: of(&cell.slow),
                    running: of(&cell.running),
                    waiting_ns: oldest.map_or(0, |begun| now.saturating_sub(begun - 1)),
                });
            }
        }
        all
    }

    fn cell(&self, role: FileRole, call: FileCall) -> &Cell {
        &self.cells[role as usize][call as usize]
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().as_nanos() as u64
    }

    /// Runs `call`, `n` calls of one kind at once, on a file; `moved` tells the bytes of the outcome.
    fn timed<R>(
        &self,
        (role, call): (FileRole, FileCall),
        path: &Path,
        n: u64,
        run: impl FnOnce() -> R,
        moved: impl FnOnce(&R) -> u64,
    ) -> R {
        let cell = self.cell(role, call);
        let begun = self.now_ns();
        let slot = cell.begin(begun, n);
        let waiting = waits::begin(match call {
            FileCall::Read => WaitFor::FileRead,
            FileCall::Write => WaitFor::FileWrite,
            FileCall::Sync => WaitFor::FileSync,
        });
        let outcome = run();
        drop(waiting);
        let took_ns = self.now_ns().saturating_sub(begun);
        cell.end(slot, n, moved(&outcome), took_ns);
        if took_ns >= SLOW.as_nanos() as u64 {
            self.tell(call, path, n, took_ns);
        }
        outcome
    }

    #[cold]
    fn tell(&self, call: FileCall, path: &Path, n: u64, took_ns: u64) {
        let now = self.clock.now();
        let mut told = self.told.lock();
        if told.at.is_some_and(|at| now.saturating_sub(at) < TELL_EVERY) {
            told.since += 1;
            return;
        }
        let passed_over = std::mem::take(&mut told.since);
        told.at = Some(now);
        drop(told);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name_of_call = CALLS[call as usize].1;
        let what = match n {
            1 => format!("a {name_of_call} of {name}"),
            n => format!("a batch of {n} {name_of_call}s, the first of {name},"),
        };
        let mut text = format!("the device is slow: {what} took {:.1} s", took_ns as f64 / 1e9);
        if passed_over > 0 {
            text += &format!("; {passed_over} more took at least {} s since this was last told", SLOW.as_secs());
        }
        (self.report)(&text);
    }
}

struct WatchedFile {
    inner: Arc<dyn File>,
    role: FileRole,
    watch: Arc<FileWatch>,
}

impl WatchedFile {
    fn timed<R>(&self, call: FileCall, run: impl FnOnce(&dyn File) -> R, moved: impl FnOnce(&R) -> u64) -> R {
        self.watch.timed((self.role, call), self.inner.path(), 1, || run(&*self.inner), moved)
    }
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize> {
        self.timed(FileCall::Read, |f| f.read_at(buf, off), |n| n.as_ref().map_or(0, |&n| n as u64))
    }
    fn read_scattered_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<usize> {
        self.timed(FileCall::Read, |f| f.read_scattered_at(bufs, off), |n| n.as_ref().map_or(0, |&n| n as u64))
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.timed(FileCall::Write, |f| f.write_at(buf, off), |r| r.as_ref().map_or(0, |()| buf.len() as u64))
    }
    fn sync(&self) -> Result<()> {
        self.timed(FileCall::Sync, |f| f.sync(), |_| 0)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, off: u64, len: u64) -> Result<()> {
        self.inner.allocate(off, len)
    }
    fn punch_hole(&self, off: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(off, len)
    }
    fn will_need(&self, off: u64, len: u64) {
        self.inner.will_need(off, len);
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
    fn raw_fd(&self) -> Option<i32> {
        self.inner.raw_fd()
    }
    fn unwatched(&self) -> Option<(&dyn File, FileRole)> {
        Some((&*self.inner, self.role))
    }
}

struct WatchedIo {
    inner: Arc<dyn Io>,
    watch: Arc<FileWatch>,
}

fn call_of(request: &IoRequest<'_>) -> FileCall {
    match request.buf {
        IoBuf::Read(_) => FileCall::Read,
        IoBuf::Write(_) => FileCall::Write,
        IoBuf::Sync => FileCall::Sync,
    }
}

impl Io for WatchedIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(WatchedFile { inner, role: FileRole::of(path), watch: Arc::clone(&self.watch) }))
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.inner.create_dir(path)
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        self.inner.remove_file(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list_dir(path)
    }
    fn lock_file(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock_file(path)
    }
    /// A batch has calls of one kind on files of one role, as the pool makes them; another is counted as its first.
    fn submit(&self, batch: &mut [IoRequest<'_>]) {
        let mut role = FileRole::Other;
        for request in batch.iter_mut().rev() {
            if let Some((inner, of)) = request.file.unwatched() {
                (request.file, role) = (inner, of);
            }
        }
        let Some(first) = batch.first() else { return };
        let (call, file, n) = (call_of(first), first.file, batch.len() as u64);
        self.watch.timed(
            (role, call),
            file.path(),
            n,
            || {
                self.inner.submit(batch);
                batch.iter().map(|r| r.result.as_ref().map_or(0, |&n| n as u64)).sum::<u64>()
            },
            |&bytes| bytes,
        );
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimIo;
    use myriad_base::clock::ManualClock;
    use std::path::PathBuf;

    /// A file whose calls take a while.
    struct SlowFile {
        inner: Arc<dyn File>,
        clock: Arc<ManualClock>,
        takes: Arc<Mutex<Duration>>,
    }

    impl SlowFile {
        fn wait(&self) {
            self.clock.advance(*self.takes.lock());
        }
    }

    impl File for SlowFile {
        fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize> {
            self.wait();
            self.inner.read_at(buf, off)
        }
        fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
            self.wait();
            self.inner.write_at(buf, off)
        }
        fn sync(&self) -> Result<()> {
            self.wait();
            self.inner.sync()
        }
        fn len(&self) -> Result<u64> {
            self.inner.len()
        }
        fn set_len(&self, len: u64) -> Result<()> {
            self.inner.set_len(len)
        }
        fn allocate(&self, off: u64, len: u64) -> Result<()> {
            self.inner.allocate(off, len)
        }
        fn punch_hole(&self, off: u64, len: u64) -> Result<()> {
            self.inner.punch_hole(off, len)
        }
        fn path(&self) -> &Path {
            self.inner.path()
        }
    }

    struct Setup {
        disk: SimIo,
        watch: Arc<FileWatch>,
        clock: Arc<ManualClock>,
        takes: Arc<Mutex<Duration>>,
        told: Arc<Mutex<Vec<String>>>,
    }

    fn setup() -> Setup {
        let clock = Arc::new(ManualClock::default());
        let takes = Arc::new(Mutex::new(Duration::ZERO));
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let as_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let watch = FileWatch::new(as_clock, move |text| heard.lock().push(text.to_owned()));
        let disk = SimIo::new(1);
        disk.create_dir(Path::new("/d")).unwrap();
        Setup { disk, watch, clock, takes, told }
    }

    /// A new file on which every call takes as long as `takes` says.
    fn slow_file(s: &Setup, name: &str) -> WatchedFile {
        let inner = s.disk.open(&PathBuf::from("/d").join(name), OpenMode::NEW).unwrap();
        let inner = SlowFile { inner, clock: Arc::clone(&s.clock), takes: Arc::clone(&s.takes) };
        WatchedFile { role: FileRole::of(inner.path()), inner: Arc::new(inner), watch: Arc::clone(&s.watch) }
    }

    fn of(watch: &FileWatch, files: &str, call: &str) -> FileStats {
        watch.stats().into_iter().find(|s| (s.files, s.call) == (files, call)).expect("a row")
    }

    #[test]
    fn calls_are_counted_by_what_the_file_is() {
        let s = setup();
        assert!(s.watch.stats().iter().all(|row| row.ended + row.running == 0));
        *s.takes.lock() = Duration::from_millis(3);
        for name in ["redo.log", "doublewrite", "shop.16.myr", "FORMAT"] {
            let file = slow_file(&s, name);
            file.write_at(&[7; 8192], 0).unwrap();
            file.sync().unwrap();
            assert_eq!(file.read_at(&mut [0; 10000], 0).unwrap(), 8192);
        }
        assert_eq!(s.watch.stats().len(), 12);
        for row in s.watch.stats() {
            assert_eq!((row.ended, row.running, row.slow, row.waiting_ns), (1, 0, 0, 0), "{row:?}");
            assert_eq!((row.ns, row.longest_ns), (3_000_000, 3_000_000), "{row:?}");
            assert_eq!(row.bytes, if row.call == "sync" { 0 } else { 8192 }, "{row:?}");
        }
        assert!(s.told.lock().is_empty());
    }

    #[test]
    fn a_batch_is_counted_once() {
        let s = setup();
        let io = s.watch.watch(Arc::new(s.disk.clone()));
        let file = io.open(Path::new("/d/shop.16.myr"), OpenMode::NEW).unwrap();
        let bytes = [1; 4096];
        let mut batch: Vec<IoRequest<'_>> = (0..5).map(|i| IoRequest::write(&*file, &bytes, i * 4096)).collect();
        io.submit(&mut batch);
        assert!(batch.iter().all(|r| r.result == Ok(4096)));
        io.submit(&mut []);
        let row = of(&s.watch, "tablespace", "write");
        assert_eq!((row.ended, row.bytes, row.running), (5, 5 * 4096, 0));
        assert_eq!(s.watch.stats().iter().map(|row| row.ended).sum::<u64>(), 5);
    }

    #[test]
    fn slow_calls_are_told_of_but_not_all() {
        let s = setup();
        let file = slow_file(&s, "redo.log");
        *s.takes.lock() = Duration::from_millis(999);
        file.sync().unwrap();
        assert!(s.told.lock().is_empty());
        *s.takes.lock() = Duration::from_millis(2500);
        file.sync().unwrap();
        assert_eq!(*s.told.lock(), ["the device is slow: a sync of redo.log took 2.5 s"]);
        for _ in 0..3 {
            file.sync().unwrap();
        }
        assert_eq!(s.told.lock().len(), 1);
        s.clock.advance(TELL_EVERY);
        file.sync().unwrap();
        assert_eq!(
            s.told.lock()[1],
            "the device is slow: a sync of redo.log took 2.5 s; 3 more took at least 1 s since this was last told"
        );
        let row = of(&s.watch, "log", "sync");
        assert_eq!((row.ended, row.slow, row.longest_ns), (6, 5, 2_500_000_000));
    }

    #[test]
    fn a_call_that_does_not_end_is_seen() {
        let s = setup();
        let watch = &s.watch;
        watch.timed(
            (FileRole::Log, FileCall::Sync),
            Path::new("/d/redo.log"),
            1,
            || {
                s.clock.advance(Duration::from_secs(40));
                let row = of(watch, "log", "sync");
                assert_eq!((row.ended, row.running, row.waiting_ns), (0, 1, 40_000_000_000));
            },
            |()| 0,
        );
        let row = of(watch, "log", "sync");
        assert_eq!((row.ended, row.running, row.waiting_ns), (1, 0, 0));
    }
}
