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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Requests in flight in one ring at most.
const RING_ENTRIES: u32 = 128;
/// Rings kept for later.
const IDLE_RINGS_MAX: usize = 16;
/// Bytes that one request moves at most; the rest of a larger one follows by plain calls.
const REQUEST_BYTES_MAX: usize = 1 << 30;
/// Pause between looks at a ring for which no call may wait any more.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Batches through io_uring; everything else as [`crate::ThreadIo`].
pub struct UringIo {
    idle: Mutex<Vec<IoUring>>,
    /// The kernel takes no more requests from rings, as under a filter of system calls that came later.
    given_up: AtomicBool,
    /// For batches when the kernel gives no further ring, or takes no more requests.
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
        Ok(UringIo { idle: Mutex::new(vec![ring]), given_up: AtomicBool::new(false), threads: WorkerPool::default() })
    }

    fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    fn take_ring(&self) -> Option<IoUring> {
        if self.has_given_up() {
            return None;
        }
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

/// Whether the call may be let through next time.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Runs up to [`RING_ENTRIES`] requests; returns when none is in flight. Whether the ring can be used again: if the kernel takes
/// no more requests from it, those that it has not taken were run by plain calls.
fn run(ring: &mut IoUring, batch: &mut [IoRequest<'_>]) -> bool {
    let mut in_flight = 0;
    for (number, request) in batch.iter_mut().enumerate() {
        let Some(entry) = entry(request, number) else {
            request.run();
            continue;
        };
        // SAFETY: file and buffer outlive the request: `batch` borrows them, and this function does not return before
        // the kernel has answered for each entry that it took.
        unsafe { ring.submission().push(&entry) }.expect("a batch is no longer than the ring");
        in_flight += 1;
    }
    let mut usable = true;
    while in_flight > 0 {
        if !usable {
            std::thread::sleep(LOOK_PAUSE);
        } else if let Err(error) = ring.submit_and_wait(in_flight) {
            // The entries stay where they are; only answers count.
            usable = is_passing(&error);
            std::thread::yield_now();
            if !usable {
                in_flight -= run_untaken(ring.submission().len(), batch);
            }
        }
        for answer in ring.completion() {
            finish(&mut batch[answer.user_data() as usize], answer.result());
            in_flight -= 1;
        }
    }
    usable
}

/// Runs the last `untaken` of the requests that were put into a ring: the kernel takes them in their order.
fn run_untaken(untaken: usize, batch: &mut [IoRequest<'_>]) -> usize {
    batch.iter_mut().rev().filter(|r| r.file.raw_fd().is_some()).take(untaken).for_each(IoRequest::run);
    untaken
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
        let Some(mut ring) = self.take_ring() else { return self.threads.submit(batch) };
        let mut usable = true;
        for part in batch.chunks_mut(RING_ENTRIES as usize) {
            match usable {
                true => usable = run(&mut ring, part),
                false => self.threads.submit(part),
            }
        }
        match usable {
            true => self.give_back(ring),
            false => self.given_up.store(true, Ordering::Relaxed),
        }
    }
    fn name(&self) -> &'static str {
        match self.has_given_up() {
            true => "threads",
            false => "uring",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From now on calls of `io_uring_enter` are refused: this thread's, or with [`libc::SECCOMP_FILTER_FLAG_TSYNC`] all threads'.
    fn refuse_io_uring_enter(flags: libc::c_ulong) {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, which lives until then.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter), 0);
        }
    }

    #[test]
    fn a_ring_whose_requests_are_refused_later_is_given_up() {
        let io = match UringIo::new() {
            Ok(io) => io,
            Err(e) => return eprintln!("not tested: {e}"),
        };
        let dir = tempfile::tempdir().unwrap();
        let file = io.open(&dir.path().join("f"), OpenMode::NEW).unwrap();
        // More than a ring holds.
        let blocks: Vec<Vec<u8>> = (0..RING_ENTRIES as usize + 9).map(|n| vec![n as u8; 4096]).collect();
        let write = || {
            let mut batch: Vec<IoRequest<'_>> =
                blocks.iter().enumerate().map(|(n, b)| IoRequest::write(&*file, b, n as u64 * 4096)).collect();
            io.submit(&mut batch);
            assert!(batch.iter().all(|r| r.result == Ok(4096)));
        };
        write();
        assert_eq!(io.name(), "uring");
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                refuse_io_uring_enter(0);
                write();
            });
        });
        assert_eq!(io.name(), "threads");
        let mut written = vec![0; 4096 * blocks.len()];
        assert_eq!(file.read_at(&mut written, 0), Ok(written.len()));
        assert!(written == blocks.concat());
        write();
        assert!(io.idle.lock().is_empty());
    }

    /// A read of a pipe is under way that nobody has written to yet. In a process of its own, whose threads are all refused.
    #[test]
    fn requests_in_flight_when_others_are_refused_are_waited_for() {
        const ALONE: &str = "MYRIAD_TEST_OF_REQUESTS_IN_FLIGHT";
        if UringIo::probe().is_err() {
            return;
        }
        if std::env::var_os(ALONE).is_none() {
            let name = "uring::tests::requests_in_flight_when_others_are_refused_are_waited_for";
            let run = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(ALONE, "1")
                .output()
                .unwrap();
            return assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        }
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing; its calls are not begun anew, so that a signal ends a wait.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let io = UringIo::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = io.open(&dir.path().join("f"), OpenMode::NEW).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let pipe = io.open(Path::new(&pipe), OpenMode::READ).unwrap();
        let (say, hear) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let submitting = scope.spawn(|| {
                // SAFETY: it has no preconditions.
                say.send(unsafe { libc::pthread_self() }).unwrap();
                let mut text = [0; 4];
                let mut batch = [IoRequest::read(&*pipe, &mut text, 0), IoRequest::write(&*file, b"to a file", 0)];
                io.submit(&mut batch);
                let results = batch.map(|request| request.result);
                (results, text)
            });
            let thread = hear.recv().unwrap();
            while file.len().unwrap() == 0 {
                std::thread::sleep(LOOK_PAUSE);
            }
            refuse_io_uring_enter(libc::SECCOMP_FILTER_FLAG_TSYNC);
            for _ in 0..50 {
                // SAFETY: the thread has not ended, as it waits for the pipe.
                assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
                std::thread::sleep(LOOK_PAUSE);
            }
            assert!(!submitting.is_finished());
            std::io::Write::write_all(&mut writer, b"text").unwrap();
            assert_eq!(submitting.join().unwrap(), ([Ok(4), Ok(9)], *b"text"));
        });
        assert_eq!(io.name(), "threads");
    }
}
