//! Random reads with a given number in flight.

use super::model::{Point, Way};
use super::target::Target;
use io_uring::{opcode, types, IoUring};
use myriad_io::AlignedBuf;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reads that ended, and the sum of their times.
#[derive(Default)]
struct Tally {
    reads: u64,
    waited: Duration,
}

/// Reads `bytes` at random places for about `time`, always `depth` requests in flight.
///
/// # Errors
/// The first read's or the ring's failure.
pub fn measure(target: &Target, way: Way, bytes: usize, depth: usize, time: Duration) -> Result<Point> {
    let start = Instant::now();
    let tally = match way {
        Way::Uring => by_ring(target, bytes, depth, start + time)?,
        Way::Threads => by_threads(target, bytes, depth, start + time)?,
    };
    let iops = tally.reads as f64 / start.elapsed().as_secs_f64();
    Ok(Point { depth, iops, latency_us: tally.waited.as_secs_f64() * 1e6 / tally.reads.max(1) as f64 })
}

fn random(number: usize) -> SmallRng {
    let since = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
    SmallRng::seed_from_u64(since ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn by_threads(target: &Target, bytes: usize, depth: usize, end: Instant) -> Result<Tally> {
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(depth);
        for number in 0..depth {
            let work = move || -> Result<Tally> {
                let (mut buf, mut random, mut tally) = (AlignedBuf::new(bytes), random(number), Tally::default());
                // At least one read each, however slow the device.
                loop {
                    let (file, at) = target.pick(&mut random, bytes);
                    let begin = Instant::now();
                    file.read_at(&mut buf, at)?;
                    let now = Instant::now();
                    tally.reads += 1;
                    tally.waited += now - begin;
                    if now >= end {
                        return Ok(tally);
                    }
                }
            };
            workers.push(std::thread::Builder::new().spawn_scoped(scope, work)?);
        }
        workers.into_iter().try_fold(Tally::default(), |mut all, worker| {
            let one = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.reads += one.reads;
            all.waited += one.waited;
            Ok(all)
        })
    })
}

fn by_ring(target: &Target, bytes: usize, depth: usize, end: Instant) -> Result<Tally> {
    // Before the ring, so that it is dropped after it: the kernel writes into the buffers while the ring lives.
    let mut bufs: Vec<AlignedBuf> = (0..depth).map(|_| AlignedBuf::new(bytes)).collect();
    let mut begins = vec![Instant::now(); depth];
    let mut ring = IoUring::new(depth as u32)?;
    let (mut random, mut tally) = (random(0), Tally::default());
    let mut idle: Vec<usize> = (0..depth).collect();
    let mut open = true;
    while open || idle.len() < depth {
        while let Some(slot) = if open { idle.pop() } else { None } {
            let (file, at) = target.pick(&mut random, bytes);
            let fd = types::Fd(file.as_raw_fd());
            let read = opcode::Read::new(fd, bufs[slot].as_mut_ptr(), bytes as u32).offset(at).build();
            begins[slot] = Instant::now();
            // SAFETY: file and buffer outlive the ring, and a slot's buffer is lent to one request at a time.
            unsafe { ring.submission().push(&read.user_data(slot as u64)) }
                .map_err(|_| Error::other("the ring is smaller than its depth"))?;
        }
        match ring.submit_and_wait(1) {
            Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(e),
            _ => {}
        }
        let now = Instant::now();
        for answer in ring.completion() {
            if answer.result() < 0 {
                return Err(Error::from_raw_os_error(-answer.result()));
            }
            let slot = answer.user_data() as usize;
            tally.reads += 1;
            tally.waited += now - begins[slot];
            idle.push(slot);
        }
        open = now < end;
    }
    Ok(tally)
}

/// Processor time in microseconds to open, size, read and close one of `paths`: the mean of all. `None` if none can be
/// read.
pub fn cpu_us_of_a_file(paths: &[PathBuf], bytes: usize) -> Option<f64> {
    let mut buf = AlignedBuf::new(bytes);
    let begin = thread_cpu();
    let read = paths
        .iter()
        .filter(|path| {
            std::fs::File::open(path).and_then(|f| f.metadata().and_then(|_| f.read_at(&mut buf, 0))).is_ok()
        })
        .count();
    (read > 0).then(|| (thread_cpu() - begin).as_secs_f64() * 1e6 / read as f64)
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in a plain struct that we own.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    assert_eq!(result, 0, "Linux has a clock for each thread");
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read_and_time_their_reads() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::temporary(dir.path(), 1 << 20, 512).unwrap();
        for way in [Way::Uring, Way::Threads] {
            if way == Way::Uring && IoUring::new(2).is_err() {
                continue;
            }
            for (bytes, depth) in [(4096, 1), (32768, 8)] {
                let p = measure(&target, way, bytes, depth, Duration::from_millis(30)).unwrap();
                assert_eq!(p.depth, depth);
                assert!(p.iops > 0.0 && p.latency_us > 0.0, "{way:?} {p:?}");
                // Little's law, loosely: what is in flight is never more than the depth.
                assert!(p.iops * p.latency_us / 1e6 <= depth as f64 * 1.01, "{way:?} {p:?}");
            }
        }
    }

    #[test]
    fn the_cost_of_a_file_is_measured_on_readable_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 4096]).unwrap();
        assert!(cpu_us_of_a_file(&[path, dir.path().join("gone")], 4096).unwrap() > 0.0);
        assert_eq!(cpu_us_of_a_file(&[dir.path().join("gone")], 4096), None);
    }
}
