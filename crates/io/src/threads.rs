//! The backend of worker threads: batches run by `pread` and `pwrite` on a few threads, made at the first batch.

use crate::{os, File, FileLock, Io, IoRequest, OpenMode};
use myriad_base::{threads, Result};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Worker threads; requests beyond these wait their turn.
const WORKERS: usize = 8;

/// One call of `submit`. Workers take requests by number until none is left.
struct Batch {
    /// The caller's requests, as an address; valid while `finished < count`, because the caller waits for that.
    requests: *mut IoRequest<'static>,
    count: usize,
    /// Number of the next request to run.
    next: AtomicUsize,
    /// Requests that have run.
    finished: Mutex<usize>,
    all_finished: Condvar,
}

// SAFETY: each request is touched only by the thread that drew its number from `next`, and by the caller after all have
// finished. Requests themselves may go to another thread: files are `Sync`, and buffers are plain bytes.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

impl Batch {
    /// Runs requests until none is left to be drawn.
    fn work(&self) {
        let mut ran = 0;
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.count {
                break;
            }
            // SAFETY: number `n` was drawn by this thread alone, and the caller has not returned: `n` is not finished.
            let request = unsafe { &mut *self.requests.add(n) };
            // A panic in a file must not leave the caller waiting for ever; the request keeps its "not run" error.
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| request.run()));
            drop(run);
            ran += 1;
        }
        if ran > 0 {
            let mut finished = self.finished.lock();
            *finished += ran;
            if *finished == self.count {
                self.all_finished.notify_all();
            }
        }
    }

    fn wait(&self) {
        let mut finished = self.finished.lock();
        while *finished < self.count {
            self.all_finished.wait(&mut finished);
        }
    }
}

#[derive(Default)]
struct Queue {
    batches: Vec<Arc<Batch>>,
    stopping: bool,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

/// A small pool of threads that run batches of requests.
#[derive(Default)]
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
}

impl WorkerPool {
    /// Runs the batch and waits for it. The caller works too.
    pub(crate) fn submit(&self, batch: &mut [IoRequest<'_>]) {
        if let [one] = batch {
            one.run();
            return;
        }
        if batch.is_empty() {
            return;
        }
        let shared = Arc::new(Batch {
            requests: batch.as_mut_ptr().cast(),
            count: batch.len(),
            next: AtomicUsize::new(0),
            finished: Mutex::new(0),
            all_finished: Condvar::new(),
        });
        self.start(&shared);
        shared.work();
        shared.wait();
    }

    fn start(&self, batch: &Arc<Batch>) {
        let mut queue = self.shared.queue.lock();
        let helpers = (batch.count - 1).min(WORKERS);
        while queue.workers.len() < helpers {
            let shared = Arc::clone(&self.shared);
            match threads::spawn("myriad-io", move || shared.serve()) {
                Ok(handle) => queue.workers.push(handle),
                // With fewer threads, or none, the caller runs more of the batch itself.
                Err(_) => break,
            }
        }
        for _ in 0..helpers {
            queue.batches.push(Arc::clone(batch));
        }
        drop(queue);
        for _ in 0..helpers {
            self.shared.work.notify_one();
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(batch) = queue.batches.pop() {
                drop(queue);
                batch.work();
                queue = self.queue.lock();
            } else if queue.stopping {
                return;
            } else {
                self.work.wait(&mut queue);
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let workers = {
            let mut queue = self.shared.queue.lock();
            queue.stopping = true;
            std::mem::take(&mut queue.workers)
        };
        self.shared.work.notify_all();
        for worker in workers {
            // A worker ends only when told; it catches the panics of what it runs.
            let _ = worker.join();
        }
    }
}

/// `pread` and `pwrite`; batches spread over worker threads.
#[derive(Default)]
pub struct ThreadIo {
    pool: WorkerPool,
}

impl ThreadIo {
    /// Starts no thread yet.
    pub fn new() -> ThreadIo {
        ThreadIo::default()
    }
}

impl Io for ThreadIo {
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
        self.pool.submit(batch);
    }
    fn name(&self) -> &'static str {
        "threads"
    }
}
