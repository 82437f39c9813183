//! Reads the first bytes of many files, as fast as the device allows.
//!
//! `t` blocking threads on a device of latency `l` reach `t / l` reads a second; one io_uring thread keeps as many in
//! flight as its queue is deep. Both hand each file's size and first bytes to the same callback. No list of the files is
//! needed: each thread asks the source for the next one. Reads the operating system's files directly, not through
//! [`myriad_io::Io`]: opening is the larger part of the work, and that trait has no batched open.

mod handle;
mod ring;

use myriad_base::threads;
use myriad_io::AlignedBuf;
use parking_lot::Mutex;
pub use ring::uring_available;
use ring::Ring;
use rustix::fs::{fcntl_getfl, fcntl_setfl, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct HeadOptions {
    /// Bytes of each file.
    pub bytes: usize,
    /// Tell the kernel that access is random, so that it does not read ahead.
    pub fadvise: bool,
    /// Bypass the page cache.
    pub direct: bool,
    /// Blocking threads, or rings.
    pub threads: usize,
    /// Use io_uring.
    pub uring: bool,
    /// What else to read of larger files.
    pub second: Option<SecondRead>,
    /// Files open at a time at most, by all threads.
    pub files_max: usize,
}

/// A second read, of files longer than `beyond` bytes.
#[derive(Clone, Copy, Debug)]
pub struct SecondRead {
    /// Where.
    pub at: u64,
    /// How much.
    pub bytes: usize,
    /// Files of this length or less are not read again.
    pub beyond: u64,
}

impl HeadOptions {
    /// Room for what is read of a file at once.
    fn buffer_bytes(&self) -> usize {
        self.bytes + self.second.map_or(0, |s| s.bytes)
    }

    /// Files that each ring may have open.
    fn ring_files(&self) -> usize {
        (self.files_max / self.threads.max(1)).max(1)
    }

    /// The second read of a file of this length, if there is one.
    fn second_of(&self, file_bytes: u64) -> Option<SecondRead> {
        self.second.filter(|s| file_bytes > s.beyond)
    }
}

/// What was read of one file. `bytes` is shorter than asked for where the file is.
pub struct Head<'a> {
    /// The file, relative to the folder.
    pub path: PathBuf,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Its first bytes, or why they could not be read.
    pub bytes: std::io::Result<&'a [u8]>,
    /// What the second read gave; empty if there was none.
    pub second: &'a [u8],
}

/// A file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where it is, relative to the folder.
    pub path: PathBuf,
    /// The number of its inode, as its folder's listing had it, where that is in the same file system as the folder. If
    /// the file is replaced after that, either is read: what is found wrong has to be looked at again by its name.
    pub inode: Option<u64>,
}

/// Gives the files one by one, to any thread; `None` when there are no more, and from then on. Best in the order of their
/// inodes, which most file systems keep together: an open that waits for an inode then brings hundreds of the next ones.
pub type NextFile<'a> = &'a (dyn Fn() -> Option<Named> + Sync);

/// The file system of a folder, by its device: inodes have their numbers within it. Of a folder that is gone, none.
pub struct FileSystem(Option<u64>);

impl FileSystem {
    /// That of `folder`.
    pub fn of(folder: &Path) -> FileSystem {
        FileSystem(folder.metadata().ok().map(|meta| meta.dev()))
    }

    /// Whether `folder` is in it.
    pub fn holds(&self, folder: &Path) -> bool {
        self.0.is_some() && FileSystem::of(folder).0 == self.0
    }
}

/// Blocking threads where the caller leaves it to us: 64,000 reads a second at 0.5 ms take 32.
const THREADS_DEFAULT: usize = 32;
/// Files for which another blocking thread is worth its start.
const FILES_PER_THREAD: u64 = 16;

/// How many threads (rings with `uring`) read `files` files when `wanted` is -1; else `wanted`.
pub fn thread_count(wanted: i32, uring: bool, files: u64) -> usize {
    match usize::try_from(wanted) {
        Ok(n) => n.max(1),
        Err(_) if uring => 1,
        Err(_) => THREADS_DEFAULT.min(files.div_ceil(FILES_PER_THREAD) as usize).max(1),
    }
}

/// Calls `f` once for each file below `folder` that `next` gives, from several threads, in no order.
///
/// # Errors
/// Only where the folder cannot be opened or the start of a thread fails; a file's failure is in its [`Head`].
pub fn read_heads(
    folder: &Path,
    next: NextFile<'_>,
    options: HeadOptions,
    f: &(dyn Fn(Head<'_>) + Sync),
) -> std::io::Result<()> {
    let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Where the kernel gives no ring after all (no memory for it), or takes nothing from it, the thread reads by itself.
    let work = || {
        let ring = options.uring.then(|| Ring::new(&folder, next, options).ok()).flatten();
        let left = Mutex::new(ring.map(|ring| ring.run(f)).unwrap_or_default());
        let next = || {
            let left = left.lock().pop();
            left.or_else(next)
        };
        read_blocking(&folder, &next, options, f);
    };
    std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        for _ in 1..options.threads.min(options.files_max) {
            helpers.push(threads::spawn_scoped(scope, "myriad-check", work)?);
        }
        work();
        for helper in helpers {
            helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(())
    })
}

/// Whether it is descriptors or memory that is wanting: that says nothing about the file, and passes.
pub(super) fn is_want(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN))
}

/// Reads one file's size and up to `bytes` of its beginning.
///
/// # Errors
/// Those of opening and reading; a symbolic link is not followed.
pub fn read_head(path: &Path, bytes: usize) -> std::io::Result<(u64, Vec<u8>)> {
    let file = File::options().read(true).custom_flags(PLAIN_FLAGS.bits() as i32).open(path)?;
    advise_random(&file);
    let mut head = vec![0; bytes];
    let mut done = 0;
    while done < bytes {
        match file.read_at(&mut head[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    head.truncate(done);
    Ok((file.metadata()?.len(), head))
}

/// Keeps the kernel from reading ahead. A file system that refuses the advice loses nothing but speed.
fn advise_random(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

/// A symbolic link is not followed, and a pipe does not wait for its other end.
const PLAIN_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// How one thread opens files: with flags that save work, until one of them is refused.
struct Opener<'a> {
    folder: &'a OwnedFd,
    flags: OFlags,
    fadvise: bool,
    /// Whether files can be opened by their inodes; `None` until it was tried.
    by_inode: Option<bool>,
}

impl<'a> Opener<'a> {
    fn new(folder: &'a OwnedFd, options: HeadOptions) -> Opener<'a> {
        let direct = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
        Opener { folder, flags: PLAIN_FLAGS | OFlags::NOATIME | direct, fadvise: options.fadvise, by_inode: None }
    }

    /// The file and its length in bytes.
    fn open(&mut self, named: &Named) -> std::io::Result<(File, u64)> {
        let file = loop {
            match self.open_with_flags(named) {
                Err(Errno::INTR) => {}
                // The one is for the files' owner, the other is the file system's to refuse.
                Err(Errno::PERM) if self.give_up(OFlags::NOATIME) => {}
                Err(Errno::INVAL) if self.give_up(OFlags::DIRECT) => {}
                other => break File::from(other?),
            }
        };
        // Half the time of `fstat`, which gathers more than the length.
        let file_bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
        if !self.flags.contains(OFlags::DIRECT) {
            self.advise(&file);
        }
        Ok((file, file_bytes))
    }

    fn open_with_flags(&mut self, named: &Named) -> rustix::io::Result<OwnedFd> {
        if let Some(inode) = named.inode {
            if *self.by_inode.get_or_insert_with(|| handle::can_open(self.folder, &named.path, inode)) {
                match handle::open(self.folder, inode, self.flags) {
                    // Removed, perhaps replaced.
                    Err(Errno::STALE) => {}
                    other => return other,
                }
            }
        }
        rustix::fs::openat(self.folder, &named.path, self.flags, Mode::empty())
    }

    /// Opens without `flag` from now on; false if it did already.
    fn give_up(&mut self, flag: OFlags) -> bool {
        let had = self.flags.contains(flag);
        self.flags.remove(flag);
        had
    }

    fn advise(&self, file: &File) {
        if self.fadvise {
            advise_random(file);
        }
    }

    /// Lets a file be read through the page cache, as those to come: a direct read was refused, as by devices with blocks
    /// larger than 4 KiB. False if the file was not direct.
    fn make_plain(&mut self, file: &File) -> bool {
        let Some(flags) = fcntl_getfl(file).ok().filter(|flags| flags.contains(OFlags::DIRECT)) else {
            return false;
        };
        self.give_up(OFlags::DIRECT);
        self.advise(file);
        fcntl_setfl(file, flags - OFlags::DIRECT).is_ok()
    }
}

fn read_blocking(folder: &OwnedFd, next: NextFile<'_>, options: HeadOptions, f: &(dyn Fn(Head<'_>) + Sync)) {
    let mut buffer = AlignedBuf::new(options.buffer_bytes());
    let (first, second) = buffer.split_at_mut(options.bytes);
    let mut opener = Opener::new(folder, options);
    while let Some(named) = next() {
        let (mut file_bytes, mut again) = (0, 0);
        let result = opener.open(&named).and_then(|(file, len)| {
            file_bytes = len;
            let n = match file.read_at(first, 0) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && opener.make_plain(&file) => {
                    file.read_at(first, 0)?
                }
                other => other?,
            };
            if let Some(s) = options.second_of(file_bytes) {
                again = file.read_at(second, s.at).unwrap_or(0);
            }
            Ok(n)
        });
        f(Head { path: named.path, file_bytes, bytes: result.map(|n| &first[..n]), second: &second[..again] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_file_is_seen_once_whatever_the_way() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let mut files: Vec<PathBuf> =
            (0..500).map(|i| format!("{}f{i}", if i % 2 == 0 { "d/" } else { "" }).into()).collect();
        for (i, path) in files.iter().enumerate() {
            std::fs::write(dir.path().join(path), vec![i as u8; i * 20]).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join(&files[3]), dir.path().join("link")).unwrap();
        files.extend(["missing".into(), "link".into(), "nul\0".into()]);
        // Some by their inodes' numbers, where the system lets us; some with the number of a file that is gone,
        // one that no file gets.
        let gone = u64::from(u32::MAX);
        let inode = |path: &Path| dir.path().join(path).symlink_metadata().map_or(gone, |meta| meta.ino());
        let named = |(i, path): (usize, &PathBuf)| Named {
            path: path.clone(),
            inode: (i % 3 > 0 && i != 502).then(|| if i == 7 { gone } else { inode(path) }),
        };
        let named: Vec<Named> = files.iter().enumerate().map(named).collect();
        // No direct read takes 4,000 bytes.
        let ways = [(4096, true, 1), (4096, true, 4), (4096, false, 2), (4000, true, 1)];
        for ((bytes, direct, threads), uring) in ways.into_iter().flat_map(|w| [(w, false), (w, true)]) {
            if uring && !uring_available() {
                continue;
            }
            let second = Some(SecondRead { at: 4096, bytes: 4096, beyond: 6000 });
            let options = HeadOptions { bytes, fadvise: true, direct, threads, uring, second, files_max: usize::MAX };
            let seen = Mutex::new(vec![0; files.len()]);
            let queue = Mutex::new(named.clone());
            read_heads(dir.path(), &|| queue.lock().unwrap().pop(), options, &|head| {
                let index = files.iter().position(|f| *f == head.path).unwrap();
                seen.lock().unwrap()[index] += 1;
                match index {
                    500 => assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::ENOENT)),
                    501 => assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::ELOOP)),
                    502 => assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::EINVAL)),
                    _ => {
                        assert_eq!(head.file_bytes, index as u64 * 20);
                        let read = head.bytes.unwrap();
                        assert_eq!(read.len(), (index * 20).min(bytes));
                        assert!(read.iter().chain(head.second).all(|&b| b == index as u8));
                        let again = if index * 20 > 6000 { index * 20 - 4096 } else { 0 };
                        assert_eq!(head.second.len(), again.min(4096));
                    }
                }
            })
            .unwrap();
            assert!(seen.into_inner().unwrap().iter().all(|&n| n == 1));
        }
    }

    /// Runs the test above again, with system calls of its rings that fail. Nothing where no process may be traced.
    #[test]
    fn files_are_read_where_the_kernel_refuses_a_rings_requests() {
        use std::process::{Command, Stdio};
        let strace = || Command::new("strace");
        let may_trace = strace().args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
        if !uring_available() || !may_trace.is_ok_and(|status| status.success()) {
            return;
        }
        let trace = tempfile::NamedTempFile::new().unwrap();
        // The last one comes for good, amid the reads.
        for (error, when) in [("EINTR", "1+2"), ("EAGAIN", "1+2"), ("EBUSY", "1+2"), ("EPERM", "3+")] {
            let run = strace()
                .args(["-f", "-qq", "-e", "trace=io_uring_enter", "-o"])
                .arg(trace.path())
                .args(["-e", &format!("inject=io_uring_enter:error={error}:when={when}")])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "check::heads::tests::every_file_is_seen_once_whatever_the_way"])
                .output()
                .unwrap();
            assert!(run.status.success(), "{error}: {}", String::from_utf8_lossy(&run.stdout));
            let trace = std::fs::read_to_string(trace.path()).unwrap();
            assert!(trace.contains(&format!("-1 {error}")) && trace.contains("(INJECTED)"), "{error}: {trace}");
        }
    }

    fn plain(uring: bool, files_max: usize) -> HeadOptions {
        HeadOptions { bytes: 4096, fadvise: false, direct: true, threads: 1, uring, second: None, files_max }
    }

    /// Runs itself again with few descriptors.
    #[test]
    fn a_ring_that_has_all_descriptors_waits_for_its_own() {
        const AGAIN: &str = "MYRIAD_TEST_OF_FEW_DESCRIPTORS";
        if !uring_available() {
            return;
        }
        if std::env::var_os(AGAIN).is_none() {
            let run = std::process::Command::new("sh")
                .args(["-c", "ulimit -n 40; exec \"$0\" --exact check::heads::tests::a_ring_that_has_all_descriptors_waits_for_its_own"])
                .arg(std::env::current_exe().unwrap())
                .env(AGAIN, "1")
                .output()
                .unwrap();
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<String> = (0..300).map(|i| format!("f{i}")).collect();
        files.iter().for_each(|f| std::fs::write(dir.path().join(f), vec![1; 4096]).unwrap());
        for files_max in [usize::MAX, 3] {
            let (queue, seen, most) = (Mutex::new(files.clone()), Mutex::new(0), Mutex::new(0));
            let open = || std::fs::read_dir("/proc/self/fd").map_or(usize::MAX, Iterator::count);
            let before = open();
            let next = || Some(Named { path: queue.lock().unwrap().pop()?.into(), inode: None });
            read_heads(dir.path(), &next, plain(true, files_max), &|head| {
                assert_eq!(head.bytes.unwrap().len(), 4096);
                *seen.lock().unwrap() += 1;
                let mut most = most.lock().unwrap();
                *most = open().max(*most);
            })
            .unwrap();
            assert_eq!(*seen.lock().unwrap(), 300);
            if files_max == 3 {
                // The folder and the ring are open, too.
                assert!(*most.lock().unwrap() <= before + 2 + files_max);
            }
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let options = plain(false, 1);
        let error = read_heads(Path::new("/nonexistent"), &|| None, options, &|_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn threads_follow_the_wish_or_the_files() {
        assert_eq!((thread_count(5, true, 1), thread_count(0, false, 9)), (5, 1));
        assert_eq!((thread_count(-1, true, 1 << 20), thread_count(-1, false, 1 << 20)), (1, 32));
        assert_eq!((thread_count(-1, false, 0), thread_count(-1, false, 40)), (1, 3));
    }
}
