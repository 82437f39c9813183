//! The advice as text for a terminal.

use super::model::Way;
use super::{Advice, DEPTHS, READ_SIZES};
use std::fmt::Write;

/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 30.0;

/// A time as people say it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s => format!("{}:{:02}", s as u64 / 60, s as u64 % 60),
    }
}

/// A name of a way of reading.
pub fn way(way: Way) -> &'static str {
    match way {
        Way::Uring => "io_uring",
        Way::Threads => "threads",
    }
}

/// All of it.
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    let b = &advice.blocks;
    let logical = b.logical.map_or("unknown".into(), |l| l.to_string());
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}: {} cores; read: {}", advice.dir, advice.cores, advice.read_from);
    let _ = writeln!(
        out,
        "blocks in bytes: {} preferred, {} of the file system, {logical} of the device",
        b.preferred, b.file_system
    );
    for warning in &advice.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    saturations(advice, &mut out);
    curves(advice, &mut out);
    checks(advice, &mut out);
    let r = &advice.recommended;
    let _ = writeln!(out, "\nmyriad_tablespace_duplicate_check_threads = {}   ({})", r.threads, r.why);
    if r.threads < 0 {
        let _ = writeln!(out, "with myriad_io_method = THREADS: {}", r.threads_blocking);
    }
    out
}

fn saturations(advice: &Advice, out: &mut String) {
    let _ = writeln!(
        out,
        "\n{:>9} {:<9}{:>12}{:>14}{:>12}{:>15}",
        "read", "by", "latency ms", "most reads/s", "in flight", "saturated by"
    );
    for m in &advice.curves {
        let s = &m.saturation;
        let by = if s.reached { s.depth.to_string() } else { format!("more than {}", s.depth) };
        let _ = writeln!(
            out,
            "{:>5} KiB {:<9}{:>12.3}{:>14.0}{:>12.1}{by:>15}",
            m.curve.read_bytes >> 10,
            way(m.curve.way),
            s.latency_us / 1e3,
            s.capacity_iops,
            s.in_flight
        );
    }
    let _ = writeln!(out, "(latency of a read alone; in flight = most reads/s x latency; saturated = 90% of the most)");
}

fn curves(advice: &Advice, out: &mut String) {
    let _ = write!(out, "\nreads/s, depth");
    for depth in DEPTHS {
        let _ = write!(out, "{depth:>9}");
    }
    out.push('\n');
    for bytes in READ_SIZES {
        for m in advice.curves.iter().filter(|m| m.curve.read_bytes == bytes) {
            let _ = write!(out, "{:>2} KiB {:<8}", bytes >> 10, way(m.curve.way));
            for p in &m.curve.points {
                let _ = write!(out, "{:>9.0}", p.iops);
            }
            out.push('\n');
        }
    }
}

fn checks(advice: &Advice, out: &mut String) {
    let c = &advice.cost;
    let _ = writeln!(
        out,
        "\nPredicted time to check {} files ({} found; {:.1} us of processor time each):",
        c.files, advice.files_found, c.cpu_us
    );
    for check in &advice.checks {
        let name = if check.light { "light" } else { "page" };
        let _ = writeln!(out, "{name}, {} KiB of each", check.read_bytes >> 10);
        let longest = check.by_threads.iter().map(|s| s.1).fold(check.mysql, f64::max);
        let mut line = |label: String, seconds: f64| {
            let columns = (seconds / longest.max(f64::MIN_POSITIVE) * BAR_COLUMNS).round().max(1.0) as usize;
            let _ = writeln!(out, "  {label:<22}{:>10}  {}", time(seconds), "#".repeat(columns));
        };
        for &(threads, seconds) in &check.by_threads {
            line(format!("{threads} {}", if threads == 1 { "thread" } else { "threads" }), seconds);
        }
        if let Some(seconds) = check.by_ring {
            line("1 io_uring".into(), seconds);
        }
        line(format!("MySQL's rule ({})", advice.mysql_threads), check.mysql);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_readable() {
        for (seconds, text) in [(0.0031, "3.1 ms"), (2.5, "2.5 s"), (213.4, "3:33"), (119.96, "120.0 s")] {
            assert_eq!(super::time(seconds), text);
        }
    }
}
