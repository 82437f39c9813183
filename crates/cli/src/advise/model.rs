//! The arithmetic of the advice: what a device's figures say about the number of threads. No I/O here.

use serde::Serialize;

/// How reads were kept in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// One thread with an io_uring.
    Uring,
    /// Blocking threads, one request each.
    Threads,
}

/// What was measured with one number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Requests in flight.
    pub depth: usize,
    /// Reads a second.
    pub iops: f64,
    /// Mean time of a read in microseconds.
    pub latency_us: f64,
}

/// Reads of one size, by depth, in rising order and never empty.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// How they were kept in flight.
    pub way: Way,
    /// Bytes of a read.
    pub read_bytes: usize,
    /// The measurements.
    pub points: Vec<Point>,
}

/// Where a curve stops to rise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saturation {
    /// The most reads a second.
    pub capacity_iops: f64,
    /// Mean time of a read with nothing else in flight, in microseconds.
    pub latency_us: f64,
    /// Capacity times latency: the requests in flight that the device needs to be saturated, if their latency stayed the
    /// same (Little's law).
    pub in_flight: f64,
    /// The smallest measured depth that reaches [`SATURATED`] of the capacity.
    pub depth: usize,
    /// False if the deepest measurement was still much faster than the one before: the device can do more.
    pub reached: bool,
}

/// The share of the capacity from which on we call a device saturated.
pub const SATURATED: f64 = 0.9;
/// A setting is as good as the best if it takes at most this many times as long.
const AS_GOOD: f64 = 1.05;

impl Curve {
    /// Reads a second at any depth: measured, or a straight line between the neighbours; the last beyond the deepest.
    pub fn iops_at(&self, depth: usize) -> f64 {
        let after = self.points.iter().position(|p| p.depth >= depth);
        match after {
            None => self.points.last().map_or(0.0, |p| p.iops),
            Some(0) => self.points[0].iops,
            Some(n) => {
                let (a, b) = (self.points[n - 1], self.points[n]);
                a.iops + (b.iops - a.iops) * (depth - a.depth) as f64 / (b.depth - a.depth) as f64
            }
        }
    }

    /// Where it stops to rise.
    pub fn saturation(&self) -> Saturation {
        let capacity_iops = self.points.iter().map(|p| p.iops).fold(0.0, f64::max);
        let latency_us = self.points.first().map_or(0.0, |p| p.latency_us);
        let depth = self.points.iter().find(|p| p.iops >= SATURATED * capacity_iops).map_or(1, |p| p.depth);
        let reached = self.points.last().is_none_or(|last| depth < last.depth);
        Saturation { capacity_iops, latency_us, in_flight: capacity_iops * latency_us / 1e6, depth, reached }
    }
}

/// The measurement with the median number of reads a second (of an even number, the lower one).
pub fn median(points: &[Point]) -> Point {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    points[(points.len() - 1) / 2]
}

/// The threads that MySQL 8 and 9 use for their check: at most 16, two for each core, one for 8,000 files.
pub fn mysql_threads(files: u64, cores: usize) -> usize {
    usize::try_from(files / 8000).unwrap_or(usize::MAX).min(2 * cores).clamp(1, 16)
}

/// What a check costs beside the device's reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Files to check.
    pub files: u64,
    /// Processors.
    pub cores: usize,
    /// Processor time to open, read, judge and close one file, in microseconds.
    pub cpu_us: f64,
}

impl Cost {
    /// Seconds of the check with so many blocking threads, on a device that gives `iops` at that depth: each thread in
    /// turn computes and waits; all together never get more than the cores.
    pub fn seconds_by_threads(&self, threads: usize, iops: f64) -> f64 {
        let a_file = 1.0 / iops + self.cpu_us / 1e6 / threads as f64;
        self.files as f64 * a_file.max(self.cpu_us / 1e6 / self.cores as f64)
    }

    /// Seconds of the check with one ring: computing goes on while the device works, on one core.
    pub fn seconds_by_ring(&self, iops: f64) -> f64 {
        self.files as f64 * (1.0 / iops).max(self.cpu_us / 1e6)
    }
}

/// The smallest setting whose time is as good as the best one's. `None` of nothing.
pub fn smallest_as_good(seconds: &[(usize, f64)]) -> Option<usize> {
    let best = seconds.iter().map(|s| s.1).fold(f64::INFINITY, f64::min);
    seconds.iter().find(|s| s.1 <= AS_GOOD * best).map(|s| s.0)
}

/// Whether one ring does as well as the best number of blocking threads.
pub fn ring_suffices(ring_seconds: f64, seconds: &[(usize, f64)]) -> bool {
    seconds.iter().all(|s| ring_seconds <= AS_GOOD * s.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of a fixed latency up to its capacity.
    fn ideal(capacity: f64, latency_us: f64) -> Curve {
        let points = [1, 2, 4, 8, 16, 32, 64]
            .map(|depth| Point { depth, iops: (depth as f64 * 1e6 / latency_us).min(capacity), latency_us })
            .to_vec();
        Curve { way: Way::Threads, read_bytes: 4096, points }
    }

    #[test]
    fn a_device_of_64k_iops_at_half_a_millisecond_needs_32_in_flight() {
        let s = ideal(64_000.0, 500.0).saturation();
        assert_eq!((s.capacity_iops, s.depth, s.reached), (64_000.0, 32, true));
        assert!((s.in_flight - 32.0).abs() < 1e-9);
    }

    #[test]
    fn a_device_that_64_do_not_saturate_is_told() {
        let s = ideal(1e6, 500.0).saturation();
        assert_eq!((s.depth, s.reached), (64, false));
    }

    #[test]
    fn depths_between_measurements_are_interpolated_and_those_beyond_stay() {
        let c = ideal(1e6, 1000.0);
        assert_eq!(c.iops_at(1), 1000.0);
        assert!((c.iops_at(12) - 12_000.0).abs() < 1e-6);
        assert_eq!(c.iops_at(1000), 64_000.0);
    }

    #[test]
    fn one_disturbed_measurement_does_not_count() {
        let points = [70.0, 1.0, 68.0].map(|iops| Point { depth: 1, iops, latency_us: 1.0 });
        assert_eq!(median(&points).iops, 68.0);
        assert_eq!(median(&points[..1]).iops, 70.0);
    }

    #[test]
    fn mysqls_rule() {
        for (files, cores, threads) in
            [(0, 8, 1), (7_999, 8, 1), (24_000, 8, 3), (1_000_000, 2, 4), (1_000_000, 64, 16), (u64::MAX, 1, 2)]
        {
            assert_eq!(mysql_threads(files, cores), threads, "{files} files, {cores} cores");
        }
    }

    #[test]
    fn the_time_is_the_devices_or_the_processors_whichever_is_longer() {
        let cost = Cost { files: 100_000, cores: 2, cpu_us: 10.0 };
        // One thread: 500 us of waiting and 10 us of computing for each file.
        assert!((cost.seconds_by_threads(1, 2000.0) - 51.0).abs() < 1e-6);
        // A device without limits: two cores at 10 us.
        assert!((cost.seconds_by_threads(64, 1e9) - 0.5).abs() < 1e-6);
        assert!((cost.seconds_by_ring(64_000.0) - 100_000.0 / 64_000.0).abs() < 1e-6);
        assert!((cost.seconds_by_ring(1e9) - 1.0).abs() < 1e-6);
        assert_eq!(Cost { files: 0, ..cost }.seconds_by_threads(4, 100.0), 0.0);
    }

    #[test]
    fn the_smallest_setting_as_good_as_the_best_wins() {
        let seconds = [(1, 100.0), (8, 20.0), (16, 10.2), (32, 10.0), (64, 11.0)];
        assert_eq!(smallest_as_good(&seconds), Some(16));
        assert_eq!(smallest_as_good(&[]), None);
        assert!(ring_suffices(10.4, &seconds));
        assert!(!ring_suffices(10.6, &seconds));
    }
}
