//! Time through a trait, so that a simulation can own it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Wall-clock time in microseconds since 1970, for people.
    fn wall_us(&self) -> u64;
}

/// The operating system's clock.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts at zero now.
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    }
}

/// A clock that moves only when told.
#[derive(Default)]
pub struct ManualClock {
    us: AtomicU64,
}

impl ManualClock {
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.us.fetch_add(by.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.us.load(Ordering::Relaxed))
    }

    fn wall_us(&self) -> u64 {
        self.us.load(Ordering::Relaxed)
    }
}
