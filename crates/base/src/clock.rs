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

/// Says when something is to be told, or done, again.
pub struct Every {
    pause: Duration,
    last: Duration,
}

impl Every {
    /// The first time is `pause` from now.
    pub fn new(pause: Duration, clock: &dyn Clock) -> Every {
        Every { pause, last: clock.now() }
    }

    /// Whether it is time; the next is a pause later.
    pub fn is_due(&mut self, clock: &dyn Clock) -> bool {
        let now = clock.now();
        let due = now.saturating_sub(self.last) >= self.pause;
        if due {
            self.last = now;
        }
        due
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_every_so_often_waits_from_the_last_time_on() {
        let clock = ManualClock::default();
        let mut every = Every::new(Duration::from_secs(10), &clock);
        let mut due = |seconds| {
            clock.advance(Duration::from_secs(seconds));
            every.is_due(&clock)
        };
        assert_eq!([0, 9, 1, 9, 5, 9, 1].map(&mut due), [false, false, true, false, true, false, true]);
    }
}
