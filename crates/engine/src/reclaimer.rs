//! The thread that removes what was dropped.

use myriad_base::threads;
use myriad_buffer::{BufferPool, Level, Reporter};
use myriad_catalog::Catalog;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// After a failure (a full disk, a file that cannot be removed) the work is tried again this much later.
const RETRY: Duration = Duration::from_secs(10);
/// Time between being woken and the work: who drops table after table wakes the thread once for all of them.
const GATHER: Duration = Duration::from_millis(10);
/// Time between looks whether a checkpoint has made space ready to be given back.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(2);
/// Time between looks whether deleted rows have left much space: what is taken again until then need not be given back.
const EMPTIED_LOOK: Duration = Duration::from_secs(20);

#[derive(Default)]
struct State {
    work: bool,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Runs [`Catalog::reclaim_step`] while there is work.
#[derive(Default)]
pub(crate) struct Reclaimer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reclaimer {
    /// Starts the thread, unless it runs already.
    pub(crate) fn start(&self, catalog: Arc<Catalog>, pool: Arc<BufferPool>, report: Reporter) {
        let mut thread = self.thread.lock();
        if thread.is_some() || self.shared.state.lock().stop {
            return;
        }
        self.shared.state.lock().work = true;
        let shared = Arc::clone(&self.shared);
        let started = threads::spawn("myriad-reclaim", {
            let report = Arc::clone(&report);
            move || _ = pool.guard_thread(|| run(&shared, &catalog, &report))
        });
        match started {
            Ok(handle) => *thread = Some(handle),
            Err(e) => report(Level::Error, &format!("no thread to reclaim dropped tables: {e}")),
        }
    }

    /// There is work.
    pub(crate) fn wake(&self) {
        self.shared.state.lock().work = true;
        self.shared.changed.notify_one();
    }

    /// Stops after the present step.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // It catches its panics.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, catalog: &Catalog, report: &Reporter) {
    // The same trouble is told once.
    let mut told = String::new();
    loop {
        {
            let mut state = shared.state.lock();
            let idle = !state.work;
            while !state.work && !state.stop {
                let planned = catalog.awaits_checkpoint();
                let look = if planned { CHECKPOINT_LOOK } else { EMPTIED_LOOK };
                let timed_out = shared.changed.wait_for(&mut state, look).timed_out();
                if timed_out && (planned || catalog.has_emptied()) {
                    break;
                }
            }
            if idle && state.work && !state.stop {
                // Nobody has to wake it meanwhile.
                parking_lot::MutexGuard::unlocked(&mut state, || std::thread::sleep(GATHER));
            }
            if state.stop {
                return;
            }
            state.work = false;
        }
        match catalog.reclaim_step() {
            Ok(true) => shared.state.lock().work = true,
            Ok(false) => told = String::new(),
            Err(e) => {
                let text = format!("some dropped tables cannot be reclaimed yet: {e}");
                if text != told {
                    report(Level::Warning, &text);
                    told = text;
                }
                let mut state = shared.state.lock();
                state.work = true;
                if !state.stop {
                    shared.changed.wait_for(&mut state, RETRY);
                }
            }
        }
    }
}
