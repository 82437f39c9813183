//! Reads the first bytes of many files, as fast as the device allows.
//!
//! `t` blocking threads on a device of latency `l` reach `t / l` reads a second; one io_uring thread keeps as many in
//! flight as its queue is deep. Both hand each file's size and first bytes to the same callback.

use io_uring::{opcode, types, IoUring};
use std::ffi::CString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

/// What was read of one file. `bytes` is shorter than asked for where the file is.
pub struct Head<'a> {
    /// The file's number in the list.
    pub index: usize,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Its first bytes, or why they could not be read.
    pub bytes: std::io::Result<&'a [u8]>,
}

/// Requests in flight of one ring.
const DEPTH: usize = 128;
/// What O_DIRECT wants buffers aligned to.
const ALIGN: usize = 4096;

/// Whether this kernel lets us use io_uring.
pub fn uring_available() -> bool {
    IoUring::new(2).is_ok()
}

/// Calls `f` once for each file, from several threads, in no order.
///
/// # Errors
/// Only where io_uring itself fails; a file's failure is in its [`Head`].
pub fn read_heads(files: &[PathBuf], options: HeadOptions, f: &(dyn Fn(Head<'_>) + Sync)) -> std::io::Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.threads.max(1))
            .map(|_| {
                let next = &next;
                scope.spawn(move || {
                    if options.uring {
                        Ring::new(files, options, next)?.run(f)
                    } else {
                        read_blocking(files, options, next, f);
                        Ok(())
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// A zeroed buffer that O_DIRECT accepts.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let memory = vec![0u8; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Buffer { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

fn open_flags(options: HeadOptions) -> i32 {
    libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOATIME | if options.direct { libc::O_DIRECT } else { 0 }
}

fn advise_random(file: &File) {
    // Advice: a file system that refuses it loses nothing but speed.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

fn read_blocking(files: &[PathBuf], options: HeadOptions, next: &AtomicUsize, f: &(dyn Fn(Head<'_>) + Sync)) {
    let mut buffer = Buffer::new(options.bytes);
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(path) = files.get(index) else { return };
        let mut file_bytes = 0;
        let result = File::options()
            .read(true)
            .custom_flags(open_flags(options))
            .open(path)
            .or_else(|_| File::open(path)) // O_NOATIME is the owner's, O_DIRECT the file system's to refuse
            .and_then(|file| {
                file_bytes = file.metadata()?.len();
                if options.fadvise {
                    advise_random(&file);
                }
                file.read_at(buffer.bytes(), 0)
            });
        f(Head { index, file_bytes, bytes: result.map(|n| &buffer.bytes()[..n]) });
    }
}

enum Stage {
    Idle,
    Opening,
    /// Read and statx are under way; the number of completions to come.
    Reading(u8),
}

struct Slot {
    index: usize,
    path: CString,
    buffer: Buffer,
    statx: Box<MaybeUninit<libc::statx>>,
    file: Option<File>,
    stage: Stage,
    read: std::io::Result<usize>,
    plain_open: bool,
}

/// One thread's ring and the files it has in hand.
struct Ring<'a> {
    ring: IoUring,
    slots: Vec<Slot>,
    files: &'a [PathBuf],
    next: &'a AtomicUsize,
    options: HeadOptions,
    busy: usize,
}

/// Marks statx completions in the user data; the rest is the slot's number.
const STATX: u64 = 1 << 32;

impl<'a> Ring<'a> {
    fn new(files: &'a [PathBuf], options: HeadOptions, next: &'a AtomicUsize) -> std::io::Result<Ring<'a>> {
        let slots = (0..DEPTH.min(files.len().max(1)))
            .map(|_| Slot {
                index: 0,
                path: CString::default(),
                buffer: Buffer::new(options.bytes),
                statx: Box::new(MaybeUninit::zeroed()),
                file: None,
                stage: Stage::Idle,
                read: Ok(0),
                plain_open: false,
            })
            .collect();
        Ok(Ring { ring: IoUring::new(2 * DEPTH as u32)?, slots, files, next, options, busy: 0 })
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
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = self.files.get(index) else {
                self.slots[slot].stage = Stage::Idle;
                return;
            };
            match CString::new(path.as_os_str().as_bytes()) {
                Ok(path) => {
                    let s = &mut self.slots[slot];
                    (s.index, s.path, s.plain_open) = (index, path, false);
                    self.busy += 1;
                    self.open(slot);
                    return;
                }
                Err(e) => f(Head { index, file_bytes: 0, bytes: Err(e.into()) }),
            }
        }
    }

    fn open(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        s.stage = Stage::Opening;
        let flags = if s.plain_open { libc::O_RDONLY | libc::O_CLOEXEC } else { open_flags(self.options) };
        let sqe = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), s.path.as_ptr()).flags(flags).build();
        self.push(sqe.user_data(slot as u64));
    }

    fn push(&mut self, sqe: io_uring::squeue::Entry) {
        // SAFETY: every pointer in the entry leads into a slot, which lives and stays in place until the slot's
        // completions have been taken: `run` returns early only on an error of the ring, which is then dropped first.
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
                Err(_) if !self.slots[slot].plain_open => {
                    self.slots[slot].plain_open = true;
                    self.open(slot);
                }
                Err(e) => self.finish(slot, Err(e), f),
            },
            Stage::Reading(left) => {
                let s = &mut self.slots[slot];
                if user_data & STATX == 0 {
                    s.read = checked;
                } else if let Err(e) = checked {
                    s.read = Err(e);
                }
                s.stage = Stage::Reading(left - 1);
                if left == 1 {
                    let read = std::mem::replace(&mut s.read, Ok(0));
                    self.finish(slot, read, f);
                }
            }
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
        let (data, len) = (s.buffer.bytes().as_mut_ptr(), self.options.bytes as u32);
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

    fn finish(&mut self, slot: usize, read: std::io::Result<usize>, f: &(dyn Fn(Head<'_>) + Sync)) {
        let s = &mut self.slots[slot];
        // SAFETY: zeroed at the start, a plain C struct of integers.
        let file_bytes = if s.file.take().is_some() { unsafe { s.statx.assume_init_ref() }.stx_size } else { 0 };
        let index = s.index;
        f(Head { index, file_bytes, bytes: read.map(|n| &s.buffer.bytes()[..n]) });
        self.busy -= 1;
        self.take_file(slot, f);
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
        for (uring, threads) in [(false, 1), (false, 7), (true, 1), (true, 3)] {
            if uring && !uring_available() {
                continue;
            }
            let options = HeadOptions { bytes: 4096, fadvise: true, direct: false, threads, uring };
            let seen = Mutex::new(vec![0; files.len()]);
            read_heads(&files, options, &|head| {
                seen.lock().unwrap()[head.index] += 1;
                if head.index == 500 {
                    assert_eq!(head.bytes.unwrap_err().raw_os_error(), Some(libc::ENOENT));
                } else {
                    assert_eq!(head.file_bytes, head.index as u64 * 20);
                    let bytes = head.bytes.unwrap();
                    assert_eq!(bytes.len(), (head.index * 20).min(4096));
                    assert!(bytes.iter().all(|&b| b == head.index as u8));
                }
            })
            .unwrap();
            assert!(seen.into_inner().unwrap().iter().all(|&n| n == 1));
        }
    }
}
