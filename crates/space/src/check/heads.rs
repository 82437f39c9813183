//! Reads the first bytes of many files, as fast as the device allows.
//!
//! `t` blocking threads on a device of latency `l` reach `t / l` reads a second; one io_uring thread keeps as many in
//! flight as its queue is deep. Both hand each file's size and first bytes to the same callback. No list of the files is
//! needed: each thread asks the source for the next one. Reads the operating system's files directly, not through
//! [`myriad_io::Io`]: opening is the larger part of the work, and that trait has no batched open.

use io_uring::{opcode, types, IoUring};
use myriad_io::AlignedBuf;
use std::ffi::CString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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
    fn buffer(&self) -> AlignedBuf {
        AlignedBuf::new(self.bytes + self.second.map_or(0, |s| s.bytes))
    }

    /// The second read of a file of this length, if there is one.
    fn second_of(&self, file_bytes: u64) -> Option<SecondRead> {
        self.second.filter(|s| file_bytes > s.beyond)
    }
}

/// What was read of one file. `bytes` is shorter than asked for where the file is.
pub struct Head<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Its first bytes, or why they could not be read.
    pub bytes: std::io::Result<&'a [u8]>,
    /// What the second read gave; empty if there was none.
    pub second: &'a [u8],
}

/// Gives the files one by one, to any thread; `None` when there are no more, and from then on.
pub type NextFile<'a> = &'a (dyn Fn() -> Option<PathBuf> + Sync);

/// Requests in flight of one ring.
const DEPTH: usize = 128;
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

/// Whether this kernel lets us use io_uring.
pub fn uring_available() -> bool {
    IoUring::new(2).is_ok()
}

/// Calls `f` once for each file that `next` gives, from several threads, in no order.
///
/// # Errors
/// Only where io_uring itself or the start of a thread fails; a file's failure is in its [`Head`].
pub fn read_heads(next: NextFile<'_>, options: HeadOptions, f: &(dyn Fn(Head<'_>) + Sync)) -> std::io::Result<()> {
    // Where the kernel gives no ring after all (no memory for it), the thread reads by itself.
    let work = || match options.uring.then(|| Ring::new(next, options)) {
        Some(Ok(mut ring)) => ring.run(f),
        _ => {
            read_blocking(next, options, f);
            Ok(())
        }
    };
    std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        for _ in 1..options.threads.max(1) {
            helpers.push(std::thread::Builder::new().name("myriad-check".into()).spawn_scoped(scope, work)?);
        }
        let own = work();
        helpers
            .into_iter()
            .fold(own, |all, helper| all.and(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    })
}

/// Reads one file's size and up to `bytes` of its beginning.
///
/// # Errors
/// Those of opening and reading; a symbolic link is not followed.
pub fn read_head(path: &Path, bytes: usize) -> std::io::Result<(u64, Vec<u8>)> {
    let file = open(path, PLAIN_FLAGS)?;
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

/// A symbolic link is not followed, and a pipe does not wait for its other end.
const PLAIN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

fn open_flags(options: HeadOptions) -> i32 {
    PLAIN_FLAGS | libc::O_NOATIME | if options.direct { libc::O_DIRECT } else { 0 }
}

fn open(path: &Path, flags: i32) -> std::io::Result<File> {
    File::options().read(true).custom_flags(flags).open(path)
}

/// Whether a failed open may do without the special flags: O_NOATIME is the owner's, O_DIRECT the file system's to refuse.
fn try_plain(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPERM | libc::EINVAL))
}

fn advise_random(file: &File) {
    // Advice: a file system that refuses it loses nothing but speed.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

fn read_blocking(next: NextFile<'_>, options: HeadOptions, f: &(dyn Fn(Head<'_>) + Sync)) {
    let mut buffer = options.buffer();
    let (first, second) = buffer.split_at_mut(options.bytes);
    while let Some(path) = next() {
        let (mut file_bytes, mut again) = (0, 0);
        let result = open(&path, open_flags(options))
            .or_else(|e| if try_plain(&e) { open(&path, PLAIN_FLAGS) } else { Err(e) })
            .and_then(|file| {
                file_bytes = file.metadata()?.len();
                if options.fadvise {
                    advise_random(&file);
                }
                let n = file.read_at(first, 0)?;
                if let Some(s) = options.second_of(file_bytes) {
                    again = file.read_at(second, s.at).unwrap_or(0);
                }
                Ok(n)
            });
        f(Head { path: &path, file_bytes, bytes: result.map(|n| &first[..n]), second: &second[..again] });
    }
}

enum Stage {
    Idle,
    Opening,
    /// Read and statx are under way; the number of completions to come.
    Reading(u8),
    /// The second read is under way.
    ReadingAgain,
}

struct Slot {
    path: PathBuf,
    c_path: CString,
    buffer: AlignedBuf,
    statx: Box<MaybeUninit<libc::statx>>,
    file: Option<File>,
    stage: Stage,
    read: std::io::Result<usize>,
    plain_open: bool,
}

impl Slot {
    /// The file's length, once statx has answered.
    fn file_bytes(&self) -> u64 {
        // SAFETY: zeroed at the start, a plain C struct of integers.
        unsafe { self.statx.assume_init_ref() }.stx_size
    }
}

/// One thread's ring and the files it has in hand.
struct Ring<'a> {
    ring: IoUring,
    slots: Vec<Slot>,
    next: NextFile<'a>,
    options: HeadOptions,
    busy: usize,
}

/// Marks statx completions in the user data; the rest is the slot's number.
const STATX: u64 = 1 << 32;

impl<'a> Ring<'a> {
    fn new(next: NextFile<'a>, options: HeadOptions) -> std::io::Result<Ring<'a>> {
        let slots = (0..DEPTH)
            .map(|_| Slot {
                path: PathBuf::new(),
                c_path: CString::default(),
                buffer: options.buffer(),
                statx: Box::new(MaybeUninit::zeroed()),
                file: None,
                stage: Stage::Idle,
                read: Ok(0),
                plain_open: false,
            })
            .collect();
        Ok(Ring { ring: IoUring::new(2 * DEPTH as u32)?, slots, next, options, busy: 0 })
    }

    fn run(&mut self, f: &(dyn Fn(Head<'_>) + Sync)) -> std::io::Result<()> {
        for slot in 0..self.slots.len() {
            self.take_file(slot, f);
        }
        let mut done: Vec<(u64, i32)> = Vec::with_capacity(2 * DEPTH);
        while self.busy > 0 {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(e),
                _ => {}
            }
            done.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (user_data, result) in done.drain(..) {
                self.completed(user_data, result, f);
            }
        }
        Ok(())
    }

    /// Gives the slot the next file, if there is one.
    fn take_file(&mut self, slot: usize, f: &(dyn Fn(Head<'_>) + Sync)) {
        while let Some(path) = (self.next)() {
            match CString::new(path.as_os_str().as_bytes()) {
                Ok(c_path) => {
                    let s = &mut self.slots[slot];
                    (s.path, s.c_path, s.plain_open) = (path, c_path, false);
                    self.busy += 1;
                    self.open(slot);
                    return;
                }
                Err(e) => f(Head { path: &path, file_bytes: 0, bytes: Err(e.into()), second: &[] }),
            }
        }
        self.slots[slot].stage = Stage::Idle;
    }

    fn open(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        s.stage = Stage::Opening;
        let flags =
            libc::O_RDONLY | libc::O_CLOEXEC | if s.plain_open { PLAIN_FLAGS } else { open_flags(self.options) };
        let sqe = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), s.c_path.as_ptr()).flags(flags).build();
        self.push(sqe.user_data(slot as u64));
    }

    fn push(&mut self, sqe: io_uring::squeue::Entry) {
        // SAFETY: every pointer in the entry leads into a slot, which lives and stays in place until the slot's
        // completions have been taken: when they are not waited for (an error, a panic), `drop` leaks the slots.
        while unsafe { self.ring.submission().push(&sqe) }.is_err() {
            // The queue holds two entries a slot; a full one only means that the kernel has not taken them yet.
            let _ = self.ring.submit();
        }
    }

    fn completed(&mut self, user_data: u64, result: i32, f: &(dyn Fn(Head<'_>) + Sync)) {
        let slot = (user_data & (STATX - 1)) as usize;
        let checked = if result < 0 { Err(std::io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        match self.slots[slot].stage {
            Stage::Opening => match checked {
                Ok(fd) => self.opened(slot, fd as i32),
                Err(e) if !self.slots[slot].plain_open && try_plain(&e) => {
                    self.slots[slot].plain_open = true;
                    self.open(slot);
                }
                Err(e) => self.finish(slot, Err(e), 0, f),
            },
            Stage::Reading(left) => {
                let s = &mut self.slots[slot];
                if user_data & STATX == 0 {
                    s.read = checked;
                } else if let Err(e) = checked {
                    s.read = Err(e);
                }
                s.stage = Stage::Reading(left - 1);
                if left == 1 && !self.read_again(slot) {
                    self.read_all(slot, 0, f);
                }
            }
            // Without it there is nothing to tell from it.
            Stage::ReadingAgain => self.read_all(slot, checked.unwrap_or(0), f),
            Stage::Idle => {}
        }
    }

    fn opened(&mut self, slot: usize, fd: i32) {
        let s = &mut self.slots[slot];
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        if self.options.fadvise {
            advise_random(&file);
        }
        s.stage = Stage::Reading(2);
        s.read = Ok(0);
        let (data, len) = (s.buffer.as_mut_ptr(), self.options.bytes as u32);
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), data, len).offset(0).build().user_data(slot as u64);
        let statx = opcode::Statx::new(types::Fd(file.as_raw_fd()), c"".as_ptr(), s.statx.as_mut_ptr().cast())
            .flags(libc::AT_EMPTY_PATH)
            .mask(libc::STATX_SIZE)
            .build()
            .user_data(slot as u64 | STATX);
        s.file = Some(file);
        self.push(read);
        self.push(statx);
    }

    /// Begins the second read, if the file is to have one.
    fn read_again(&mut self, slot: usize) -> bool {
        let first = self.options.bytes;
        let s = &mut self.slots[slot];
        let (Some(file), Ok(_), Some(second)) = (&s.file, &s.read, self.options.second_of(s.file_bytes())) else {
            return false;
        };
        s.stage = Stage::ReadingAgain;
        let data = s.buffer[first..].as_mut_ptr();
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), data, second.bytes as u32).offset(second.at);
        self.push(read.build().user_data(slot as u64));
        true
    }

    fn read_all(&mut self, slot: usize, again: usize, f: &(dyn Fn(Head<'_>) + Sync)) {
        let read = std::mem::replace(&mut self.slots[slot].read, Ok(0));
        self.finish(slot, read, again, f);
    }

    fn finish(&mut self, slot: usize, read: std::io::Result<usize>, again: usize, f: &(dyn Fn(Head<'_>) + Sync)) {
        let s = &mut self.slots[slot];
        let file_bytes = if s.file.take().is_some() { s.file_bytes() } else { 0 };
        let (first, second) = s.buffer.split_at(self.options.bytes);
        f(Head { path: &s.path, file_bytes, bytes: read.map(|n| &first[..n]), second: &second[..again] });
        self.busy -= 1;
        self.take_file(slot, f);
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        if self.busy > 0 {
            // The kernel may still write to what the slots point to.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_file_is_seen_once_whatever_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for i in 0..500usize {
            let path = dir.path().join(format!("f{i}"));
            std::fs::write(&path, vec![i as u8; i * 20]).unwrap();
            files.push(path);
        }
        files.push(dir.path().join("missing"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&files[3], &link).unwrap();
        files.push(link);
        for (uring, threads) in [(false, 1), (false, 7), (true, 1), (true, 3)] {
            if uring && !uring_available() {
                continue;
            }
            let second = Some(SecondRead { at: 4096, bytes: 4096, beyond: 6000 });
            let options = HeadOptions { bytes: 4096, fadvise: true, direct: false, threads, uring, second };
            let seen = Mutex::new(vec![0; files.len()]);
            let queue = Mutex::new(files.clone());
            read_heads(&|| queue.lock().unwrap().pop(), options, &|head| {
                let index = files.iter().position(|f| f == head.path).unwrap();
                seen.lock().unwrap()[index] += 1;
                match index {
                    500 => assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::ENOENT)),
                    501 => assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::ELOOP)),
                    _ => {
                        assert_eq!(head.file_bytes, index as u64 * 20);
                        let bytes = head.bytes.unwrap();
                        assert_eq!(bytes.len(), (index * 20).min(4096));
                        assert!(bytes.iter().chain(head.second).all(|&b| b == index as u8));
                        let again = if index * 20 > 6000 { index * 20 - 4096 } else { 0 };
                        assert_eq!(head.second.len(), again.min(4096));
                    }
                }
            })
            .unwrap();
            assert!(seen.into_inner().unwrap().iter().all(|&n| n == 1));
        }
    }

    #[test]
    fn threads_follow_the_wish_or_the_files() {
        assert_eq!((thread_count(5, true, 1), thread_count(0, false, 9)), (5, 1));
        assert_eq!((thread_count(-1, true, 1 << 20), thread_count(-1, false, 1 << 20)), (1, 32));
        assert_eq!((thread_count(-1, false, 0), thread_count(-1, false, 40)), (1, 3));
    }
}
