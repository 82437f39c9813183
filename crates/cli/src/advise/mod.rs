//! `myriad advise`: what the device under a folder can do, and what that says about the tablespace check.
//!
//! `t` blocking threads on a device of latency `l` reach `t / l` reads a second, so a device of capacity `c` needs `c * l`
//! requests in flight. This command measures `l` and `c` with random reads past the page cache, predicts the check's time
//! for every setting and recommends one. It writes nothing but a temporary file without a name.

mod chart;
mod device;
mod measure;
mod model;
mod print;
mod target;

use crate::check;
use crate::out;
use crate::report::Report;
use device::Blocks;
use indicatif::{ProgressBar, ProgressStyle};
use model::{Cost, Curve, Point, Saturation, Way};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::Target;

/// What the command line asks for.
#[derive(clap::Args, Debug)]
pub struct AdviseArgs {
    /// A data directory, or any folder on the device.
    pub dir: PathBuf,
    /// Predict for so many tablespace files rather than for those that are there.
    #[arg(long)]
    pub files: Option<u64>,
    /// Size of the temporary file that is read.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub size_mib: u64,
    /// Read the tablespace files that are there and write nothing (so it is where the folder cannot be written).
    #[arg(long)]
    pub existing: bool,
    /// Seconds of each measurement; there are 28 of each way of reading.
    #[arg(long, default_value_t = 0.25)]
    pub seconds: f64,
    /// Write a page with charts to this file.
    #[arg(long)]
    pub chart: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Bytes of a light check's read, and of a page check's.
const LIGHT: usize = 4 << 10;
const PAGE: usize = 16 << 10;
const READ_SIZES: [usize; 4] = [LIGHT, 8 << 10, PAGE, 32 << 10];
/// Requests in flight that are measured; also the numbers of threads the check is predicted for.
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// What is predicted for where no tablespace is found.
const FILES_EXAMPLE: u64 = 100_000;
/// Files opened to learn the processor's share; with fewer than the least, the temporary file is opened instead.
const CPU_SAMPLE: usize = 2000;
const CPU_SAMPLE_MIN: usize = 100;
/// Each measurement is the median of so many, taken in turns, so that a moment's disturbance does not stand in it.
const ROUNDS: usize = 3;

/// Everything the command found out.
#[derive(Debug, Serialize)]
struct Advice {
    dir: String,
    /// What was read.
    read_from: String,
    /// Whether the page cache was bypassed.
    direct: bool,
    cores: usize,
    blocks: Blocks,
    curves: Vec<Measured>,
    /// Tablespace files under the folder.
    files_found: u64,
    cost: Cost,
    checks: Vec<Predicted>,
    mysql_threads: usize,
    recommended: Recommended,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    curve: Curve,
    saturation: Saturation,
}

/// The predicted times of one kind of check.
#[derive(Debug, Serialize)]
struct Predicted {
    light: bool,
    read_bytes: usize,
    /// (threads, seconds)
    by_threads: Vec<(usize, f64)>,
    /// With one io_uring; `None` where there is none.
    by_ring: Option<f64>,
    /// With MySQL's number of threads, each reading a page of its own format.
    mysql: f64,
}

#[derive(Debug, Serialize)]
struct Recommended {
    /// For `myriad_tablespace_duplicate_check_threads`, and `--threads` of the check.
    threads: i32,
    /// The same where io_uring is not used.
    threads_blocking: usize,
    /// Seconds of a page check with that.
    seconds: f64,
    why: String,
}

/// Measures and advises; true, as there are no findings.
///
/// # Errors
/// A sentence, where it could not be run.
pub fn run(args: &AdviseArgs) -> Result<bool, String> {
    // Created first, so that a wrong path is told before the measurement, not after it.
    let mut page = None;
    if let Some(path) = &args.chart {
        let file = std::fs::File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        page = Some((path, file));
    }
    let advice = advise(args)?;
    if let Some((path, mut file)) = page {
        let written = file.write_all(chart::page(&advice)?.as_bytes());
        written.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    if args.json {
        out::line(&serde_json::to_string_pretty(&advice).expect("plain values"))?;
    } else {
        out::all(&print::text(&advice))?;
        if let Some(path) = &args.chart {
            out::line(&format!("chart in {}", path.display()))?;
        }
    }
    Ok(true)
}

fn advise(args: &AdviseArgs) -> Result<Advice, String> {
    if !(0.01..=60.0).contains(&args.seconds) {
        return Err(format!("--seconds {}: 0.01 to 60", args.seconds));
    }
    let dir = &args.dir;
    let blocks = device::blocks(dir).map_err(|e| format!("cannot look at {}: {e}", dir.display()))?;
    // Files that cannot be looked at are the check's findings, not ours.
    let files = check::find_files(dir, check::Format::Auto, &mut Report::default())?;
    let paths: Vec<PathBuf> = files.iter().map(|file| dir.join(&file.path)).collect();
    let quiet = args.json || !std::io::stderr().is_terminal();
    if !quiet && !args.existing {
        out::aside(&format!(
            "writing a temporary file of {} MiB, which has no name and goes with this process",
            args.size_mib
        ));
    }
    let target = open_target(args, &paths, blocks.logical.unwrap_or(0))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut warnings: Vec<String> = blocks.warning(LIGHT as u64).into_iter().collect();
    if !target.direct {
        warnings.push("the file system refuses O_DIRECT: the figures contain its cache and may be far too good".into());
    }
    let curves = measure_all(&target, Duration::from_secs_f64(args.seconds), quiet, &mut warnings)?;
    let cost = cost_of_check(args.files, &paths, &target, cores, &mut warnings);
    let mysql_threads = model::mysql_threads(cost.files, cores);
    let checks: Vec<Predicted> = [LIGHT, PAGE].map(|bytes| predict(&curves, bytes, cost, mysql_threads)).into();
    if checks[0].best() > 0.95 * checks[1].best() {
        warnings.push("a light check gains less than 5% here".into());
    }
    let curves = curves.into_iter().map(|curve| Measured { saturation: curve.saturation(), curve }).collect();
    Ok(Advice {
        dir: dir.display().to_string(),
        read_from: target.what.clone(),
        direct: target.direct,
        cores,
        blocks,
        curves,
        files_found: paths.len() as u64,
        cost,
        recommended: recommend(&checks[1]),
        checks,
        mysql_threads,
        warnings,
    })
}

fn open_target(args: &AdviseArgs, paths: &[PathBuf], align: u64) -> Result<Target, String> {
    let dir = &args.dir;
    let existing = || Target::existing(dir, paths, READ_SIZES[3] as u64, align);
    if args.existing {
        return existing();
    }
    Target::temporary(dir, args.size_mib << 20, align).or_else(|e| match e.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            existing().map_err(|why| format!("{} cannot be written ({e}), and {why}", dir.display()))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Err(format!(
            "the disk under {} is too full for a temporary file of {} MiB (twice that must be free): use --existing, \
             or --size-mib with less",
            dir.display(),
            args.size_mib
        )),
        _ => Err(format!("cannot write a temporary file in {}: {e}", dir.display())),
    })
}

fn measure_all(target: &Target, time: Duration, quiet: bool, warnings: &mut Vec<String>) -> Result<Vec<Curve>, String> {
    let mut ways = vec![Way::Threads];
    match io_uring::IoUring::new(2) {
        Ok(_) => ways.insert(0, Way::Uring),
        Err(e) => warnings.push(format!("io_uring is not available to this process ({e}): blocking threads only")),
    }
    let mut cells: Vec<(Way, usize, usize, Vec<Point>)> = Vec::new();
    for &way in &ways {
        cells.extend(READ_SIZES.iter().flat_map(|&bytes| DEPTHS.map(|depth| (way, bytes, depth, Vec::new()))));
    }
    let bar = progress((ROUNDS * cells.len()) as u64, quiet);
    for _ in 0..ROUNDS {
        for (way, bytes, depth, points) in &mut cells {
            points.push(measure::measure(target, *way, *bytes, *depth, time / ROUNDS as u32).map_err(|e| {
                format!("reading {} KiB with {depth} in flight ({}) failed: {e}", *bytes >> 10, print::way(*way))
            })?);
            bar.inc(1);
        }
    }
    let curve = |cells: &[(Way, usize, usize, Vec<Point>)]| Curve {
        way: cells[0].0,
        read_bytes: cells[0].1,
        points: cells.iter().map(|cell| model::median(&cell.3)).collect(),
    };
    let curves = cells.chunks(DEPTHS.len()).map(curve).collect();
    bar.finish_and_clear();
    Ok(curves)
}

fn progress(steps: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} measurements").expect("a constant"));
    bar.tick();
    bar
}

fn cost_of_check(
    files: Option<u64>,
    paths: &[PathBuf],
    target: &Target,
    cores: usize,
    warnings: &mut Vec<String>,
) -> Cost {
    let files = files.unwrap_or_else(|| {
        if paths.is_empty() {
            warnings.push(format!(
                "no tablespace file is here: predicted for {FILES_EXAMPLE} (--files sets another number)"
            ));
            return FILES_EXAMPLE;
        }
        paths.len() as u64
    });
    let sample: Vec<PathBuf> = match &target.own_path {
        Some(own) if paths.len() < CPU_SAMPLE_MIN => vec![own.clone(); CPU_SAMPLE],
        _ => paths.iter().step_by(paths.len().div_ceil(CPU_SAMPLE).max(1)).cloned().collect(),
    };
    let cpu_us = measure::cpu_us_of_a_file(&sample, LIGHT).unwrap_or_else(|| {
        warnings.push("no file could be opened: the processor's share is not in the predictions".into());
        0.0
    });
    Cost { files, cores, cpu_us }
}

fn predict(curves: &[Curve], read_bytes: usize, cost: Cost, mysql_threads: usize) -> Predicted {
    let curve = |way| curves.iter().find(|c| c.way == way && c.read_bytes == read_bytes);
    let threads = curve(Way::Threads).expect("threads are always measured");
    let seconds = |t| cost.seconds_by_threads(t, threads.iops_at(t));
    Predicted {
        light: read_bytes == LIGHT,
        read_bytes,
        by_threads: DEPTHS.map(|t| (t, seconds(t))).into(),
        by_ring: curve(Way::Uring).map(|ring| cost.seconds_by_ring(ring.saturation().capacity_iops)),
        mysql: seconds(mysql_threads),
    }
}

impl Predicted {
    /// Seconds of the best setting.
    fn best(&self) -> f64 {
        self.by_threads.iter().map(|s| s.1).chain(self.by_ring).fold(f64::INFINITY, f64::min)
    }
}

fn recommend(check: &Predicted) -> Recommended {
    let threads_blocking = model::smallest_as_good(&check.by_threads).unwrap_or(1);
    let blocking = check.by_threads.iter().find(|s| s.0 == threads_blocking).map_or(0.0, |s| s.1);
    match check.by_ring {
        Some(seconds) if model::ring_suffices(seconds, &check.by_threads) => Recommended {
            threads: -1,
            threads_blocking,
            seconds,
            why: "one io_uring thread, which -1 means, keeps the device as busy as any number of blocking threads"
                .into(),
        },
        ring => Recommended {
            threads: threads_blocking as i32,
            threads_blocking,
            seconds: blocking,
            why: match ring {
                Some(s) => {
                    format!(
                        "one io_uring thread would take {}, {threads_blocking} blocking threads {}",
                        print::time(s),
                        print::time(blocking)
                    )
                }
                None => "more threads gain less than 5%".into(),
            },
        },
    }
}

/// A folder's name for headings.
fn short(dir: &str) -> &str {
    Path::new(dir).file_name().and_then(|n| n.to_str()).unwrap_or(dir)
}

#[cfg(test)]
mod tests;
