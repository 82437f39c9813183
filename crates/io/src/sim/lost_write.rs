//! A write that is lost by somebody else's failed sync, for tests of what its writer believes.

use crate::sim::{CallKind, Fault, SimIo};
use myriad_base::Result;
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begin,
    Written,
    SyncFailed,
}

/// What the simulated files ask.
pub(super) struct Holdup {
    path: String,
    stage: Mutex<Stage>,
    moved: Condvar,
}

impl Holdup {
    fn concerns(&self, path: &Path) -> bool {
        path.to_string_lossy().contains(&self.path)
    }

    fn wait_for(&self, wanted: Stage) {
        let mut stage = self.stage.lock();
        self.moved.wait_while(&mut stage, |stage| *stage < wanted);
    }

    /// Moves on from a stage; false if it was another.
    fn pass(&self, from: Stage, to: Stage) -> bool {
        let mut stage = self.stage.lock();
        let passed = *stage == from;
        if passed {
            *stage = to;
            self.moved.notify_all();
        }
        passed
    }

    pub(super) fn after_write(&self, path: &Path) {
        if self.concerns(path) && self.pass(Stage::Begin, Stage::Written) {
            self.wait_for(Stage::SyncFailed);
        }
    }

    pub(super) fn after_sync(&self, path: &Path, result: &Result<()>) {
        if self.concerns(path) && result.is_err() && self.pass(Stage::Written, Stage::SyncFailed) {
            // Time enough for the writer to draw a wrong conclusion from his own sync.
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

/// See [`SimIo::lose_write`].
pub struct LostWrite(Arc<Holdup>);

impl LostWrite {
    /// Waits until the write has been made.
    pub fn wait(&self) {
        self.0.wait_for(Stage::Written);
    }
}

impl SimIo {
    /// The next write to a file whose path contains `path` is made, but its writer is told only once a sync of such a file, by
    /// another thread, has failed with `EIO`; who called that is told a little later. Syncs after it succeed.
    pub fn lose_write(&self, path: &str) -> LostWrite {
        let holdup = Holdup { path: path.into(), stage: Mutex::new(Stage::Begin), moved: Condvar::new() };
        let holdup = Arc::new(holdup);
        let mut disk = self.disk.lock();
        disk.inject(CallKind::Sync, path, 0, Fault::Eio, false);
        disk.holdup = Some(Arc::clone(&holdup));
        LostWrite(holdup)
    }
}
