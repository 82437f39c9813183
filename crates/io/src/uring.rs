//! The io_uring backend: a batch is one system call, run by the kernel all at once.
//!
//! A batch takes a ring of its own from a small pool, so that batches of different threads never wait for each other. A
//! single request is a plain `pread` or `pwrite`: a ring would only add to its cost.

use crate::threads::WorkerPool;
use crate::{os, File, FileLock, Io, IoBuf, IoRequest, OpenMode};
use io_uring::{opcode, squeue, types, IoUring};
use myriad_base::{Error, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Requests in flight in one ring at most.
const RING_ENTRIES: u32 = 128;
/// Rings kept for later.
const IDLE_RINGS_MAX: usize = 16;
/// Bytes that one request moves at most; the rest of a larger one follows by plain calls.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Batches through io_uring; everything else as [`crate::ThreadIo`].
pub struct UringIo {
    idle: Mutex<Vec<IoUring>>,
    /// For batches when the kernel gives no further ring, and for files that are not the system's.
    threads: WorkerPool,
}

impl UringIo {
    /// Whether this kernel gives us a ring that reads, writes and syncs.
    ///
    /// # Errors
    /// [`Error::NotSupported`] with the reason.
    pub fn probe() -> Result<()> {
        UringIo::new().map(drop)
    }

    /// The backend.
    ///
    /// # Errors
    /// As [`UringIo::probe`].
    pub fn new() -> Result<UringIo> {
        let mut ring = new_ring()?;
        try_out(&mut ring)?;
        Ok(UringIo { idle: Mutex::new(vec![ring]), threads: WorkerPool::default() })
    }

    fn take_ring(&self) -> Option<IoUring> {
        let idle = self.idle.lock().pop();
        idle.or_else(|| new_ring().ok())
    }

    fn give_back(&self, ring: IoUring) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_RINGS_MAX {
            idle.push(ring);
        }
    }
}

fn refused(what: String) -> Error {
    Error::NotSupported { what }
}

/// Sends a request that does nothing. A filter of system calls may allow a ring and not its use, and requests that have been
/// put into a ring cannot be taken back.
fn try_out(ring: &mut IoUring) -> Result<()> {
    // SAFETY: the request names no memory and no file.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("a new ring has room");
    loop {
        match ring.submit_and_wait(1) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(refused(format!("io_uring: the kernel takes no requests: {e}"))),
            Ok(_) => break,
        }
    }
    ring.completion().for_each(drop);
    Ok(())
}

fn new_ring() -> Result<IoUring> {
    let ring = IoUring::new(RING_ENTRIES).map_err(|e| refused(format!("io_uring: the kernel gives no ring: {e}")))?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|e| refused(format!("io_uring: cannot be asked: {e}")))?;
    if ![opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE].iter().all(|code| probe.is_supported(*code)) {
        return Err(refused("io_uring: this kernel's rings do not read, write and sync".into()));
    }
    Ok(ring)
}

/// The ring's form of a request; `None` if its file is not the system's.
fn entry(request: &mut IoRequest<'_>, number: usize) -> Option<squeue::Entry> {
    let fd = types::Fd(request.file.raw_fd()?);
    let entry = match &mut request.buf {
        IoBuf::Read(buf) => {
            let len = buf.len().min(REQUEST_BYTES_MAX) as u32;
            opcode::Read::new(fd, buf.as_mut_ptr(), len).offset(request.off).build()
        }
        IoBuf::Write(buf) => {
            let len = buf.len().min(REQUEST_BYTES_MAX) as u32;
            opcode::Write::new(fd, buf.as_ptr(), len).offset(request.off).build()
        }
        IoBuf::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    };
    Some(entry.user_data(number as u64))
}

/// Turns what the kernel answered into the request's result; finishes by plain calls what it did in part.
fn finish(request: &mut IoRequest<'_>, answer: i32) {
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    let done = match usize::try_from(answer) {
        Ok(done) => done,
        Err(_) if answer == -EINTR || answer == -EAGAIN => return request.run(),
        Err(_) => {
            let op = match request.buf {
                IoBuf::Read(_) => "read",
                IoBuf::Write(_) => "write",
                IoBuf::Sync => "fdatasync",
            };
            request.result = Err(Error::io(op, request.file.path().display().to_string(), -answer));
            return;
        }
    };
    let off = request.off + done as u64;
    request.result = match &mut request.buf {
        IoBuf::Read(buf) if done < buf.len() => {
            // The end of the file, or not: a direct read stops in the middle of a block only at the end.
            if request.file.is_direct() && done % crate::AlignedBuf::ALIGN != 0 {
                Ok(done)
            } else {
                request.file.read_at(&mut buf[done..], off).map(|n| done + n)
            }
        }
        IoBuf::Write(buf) if done < buf.len() => request.file.write_at(&buf[done..], off).map(|()| buf.len()),
        _ => Ok(done),
    };
}

/// Runs up to [`RING_ENTRIES`] requests; returns when none is in flight.
fn run(ring: &mut IoUring, batch: &mut [IoRequest<'_>]) {
    let mut in_flight = 0;
    for (number, request) in batch.iter_mut().enumerate() {
        let Some(entry) = entry(request, number) else {
            request.run();
            continue;
        };
        // SAFETY: file and buffer outlive the request: `batch` borrows them, and this function does not return before
        // the kernel has answered for each entry.
        unsafe { ring.submission().push(&entry) }.expect("a batch is no longer than the ring");
        in_flight += 1;
    }
    while in_flight > 0 {
        // An error (a signal, or no memory for the moment) leaves the entries where they are; only answers count.
        if ring.submit_and_wait(in_flight).is_err() {
            std::thread::yield_now();
        }
        for answer in ring.completion() {
            finish(&mut batch[answer.user_data() as usize], answer.result());
            in_flight -= 1;
        }
    }
}

impl Io for UringIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        os::OsFile::open(path, mode)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        os::create_dir(path)
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        os::remove_file(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        os::rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        os::sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        os::exists(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        os::list_dir(path)
    }
    fn lock_file(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        os::lock_file(path)
    }
    fn submit(&self, batch: &mut [IoRequest<'_>]) {
        if let [one] = batch {
            return one.run();
        }
        match self.take_ring() {
            Some(mut ring) => {
                for part in batch.chunks_mut(RING_ENTRIES as usize) {
                    run(&mut ring, part);
                }
                self.give_back(ring);
            }
            None => self.threads.submit(batch),
        }
    }
    fn name(&self) -> &'static str {
        "uring"
    }
}
