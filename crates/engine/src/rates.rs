//! What happened since the last report: counters a second, as a DBA reads them in `SHOW ENGINE MYRIAD STATUS`.

use crate::engine::Engine;
use parking_lot::Mutex;
use std::time::Duration;

/// A report sooner after the last one than this is still about the time before that: figures of a moment say nothing.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// Counters at a moment.
#[derive(Clone, Copy, Default)]
struct Mark {
    at: Duration,
    commits: u64,
    log_bytes: u64,
    log_syncs: u64,
    hits: u64,
    misses: u64,
    reads: u64,
    writes: u64,
    evictions: u64,
    frame_waits: u64,
    purged: u64,
    lock_waits: u64,
}

/// The last two moments asked for: the newer may be too young to compare with.
#[derive(Default)]
pub(crate) struct Marks(Mutex<(Mark, Mark)>);

/// Counters a second over `seconds`.
pub(crate) struct Rates {
    pub seconds: f64,
    pub commits: f64,
    pub log_bytes: f64,
    pub log_syncs: f64,
    pub accesses: f64,
    /// Of 100 page accesses, how many found the page in memory.
    pub hit_percent: f64,
    pub reads: f64,
    pub writes: f64,
    pub evictions: f64,
    pub frame_waits: f64,
    pub purged: f64,
    pub lock_waits: f64,
}

impl Mark {
    fn now(engine: &Engine) -> Mark {
        let (log, pool) = (engine.pool().log().stats(), engine.pool().stats());
        Mark {
            at: engine.clock().now(),
            commits: engine.trx_system().commit_count(),
            log_bytes: log.appended_bytes,
            log_syncs: log.syncs,
            hits: pool.hits,
            misses: pool.misses,
            reads: pool.reads,
            writes: pool.writes,
            evictions: pool.evictions,
            frame_waits: pool.free_waits,
            purged: engine.trx_system().purge_stats().records_purged,
            lock_waits: engine.trx_system().locks().stats().waits,
        }
    }

    /// What has happened between the two, a second; `None` if no time has passed.
    fn since(&self, earlier: &Mark) -> Option<Rates> {
        let seconds = self.at.saturating_sub(earlier.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let (hits, misses) = (each(self.hits, earlier.hits), each(self.misses, earlier.misses));
        let accesses = hits + misses;
        Some(Rates {
            seconds,
            commits: each(self.commits, earlier.commits),
            log_bytes: each(self.log_bytes, earlier.log_bytes),
            log_syncs: each(self.log_syncs, earlier.log_syncs),
            accesses,
            hit_percent: if accesses == 0.0 { 100.0 } else { hits * 100.0 / accesses },
            reads: each(self.reads, earlier.reads),
            writes: each(self.writes, earlier.writes),
            evictions: each(self.evictions, earlier.evictions),
            frame_waits: each(self.frame_waits, earlier.frame_waits),
            purged: each(self.purged, earlier.purged),
            lock_waits: each(self.lock_waits, earlier.lock_waits),
        })
    }
}

impl Marks {
    /// Figures begin now.
    pub fn begin(&self, engine: &Engine) {
        let now = Mark::now(engine);
        *self.0.lock() = (now, now);
    }

    /// Rates since the last report that is at least a second old, or since the start.
    pub fn rates(&self, engine: &Engine) -> Option<Rates> {
        let now = Mark::now(engine);
        let mut marks = self.0.lock();
        if now.at.saturating_sub(marks.1.at) >= SPAN_MIN {
            *marks = (marks.1, now);
        }
        now.since(&marks.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let earlier = Mark { at: Duration::from_secs(10), commits: 100, hits: 1000, misses: 50, ..Mark::default() };
        let now = Mark { at: Duration::from_secs(14), commits: 180, hits: 1300, misses: 150, ..Mark::default() };
        let rates = now.since(&earlier).unwrap();
        assert_eq!((rates.seconds, rates.commits, rates.accesses, rates.hit_percent), (4.0, 20.0, 100.0, 75.0));
        assert!(now.since(&now).is_none());
        // A counter that threads share may seem to go back.
        assert_eq!(Mark { commits: 99, ..now }.since(&earlier).unwrap().commits, 0.0);
    }
}
