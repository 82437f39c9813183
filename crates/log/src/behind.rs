//! Write-behind: a background thread writes what a long transaction appends before the ring in memory is full, so that the
//! appender need not. It never syncs.

use crate::log::Log;
use parking_lot::{Condvar, Mutex};

/// The ring is divided into so many parts; an appender that enters the next one wakes the thread.
const PARTS: u64 = 8;
const _: () = assert!(PARTS.is_power_of_two());

#[derive(Default)]
pub(crate) struct Behind {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    due: bool,
    stopped: bool,
}

impl Log {
    /// What the background thread does until [`Log::stop_write_behind`], or until the log is poisoned.
    pub fn write_behind(&self) {
        loop {
            let mut state = self.behind.state.lock();
            while !state.due && !state.stopped {
                self.behind.wake.wait(&mut state);
            }
            if state.stopped {
                return;
            }
            state.due = false;
            drop(state);
            if self.write_some().is_err() {
                // Whoever appends or waits is told.
                return;
            }
        }
    }

    /// Ends [`Log::write_behind`], also one that begins later.
    pub fn stop_write_behind(&self) {
        self.behind.state.lock().stopped = true;
        self.behind.wake.notify_all();
    }

    /// A frame was appended.
    #[inline]
    pub(crate) fn note_append(&self, start: u64, end: u64) {
        // A power of two, so that positions in one part differ in lower bits only.
        let part = self.ring.size() / PARTS;
        if start ^ end >= part {
            self.wake_write_behind();
        }
    }

    #[cold]
    fn wake_write_behind(&self) {
        self.behind.state.lock().due = true;
        self.behind.wake.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::{config, disk, open};
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_appended_is_written_behind() {
        let config = config(1 << 20, 1 << 16);
        let (log, _) = open(&disk(1, config), config);
        std::thread::scope(|s| {
            s.spawn(|| log.write_behind());
            let quarter = log.ring.size() / 4;
            while log.stats().appended_bytes < quarter {
                log.append(&[7; 100], |_, _| ()).unwrap();
            }
            let begin = Instant::now();
            while log.stats().written_bytes < quarter / 4 && begin.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            log.stop_write_behind();
        });
        let stats = log.stats();
        assert!(stats.written_bytes > 0 && stats.syncs == 0 && stats.buffer_waits == 0, "{stats:?}");
    }
}
