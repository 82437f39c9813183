//! `myriad check-tablespaces`: which files claim which space id, and whether each is what it says.
//!
//! Reads the head of every tablespace file under a data directory, of Myriad or of InnoDB, without changing anything.
//! Finds duplicate space ids, damaged or foreign headers, truncated and empty files.

use crate::innodb;
use crate::report::Report;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use myriad_base::limits;
use myriad_space::check::{judge_head, read_heads, thread_count, uring_available, Head, HeadOptions};
use myriad_space::HEADER_READ_BYTES;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Whose files to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Both, by their names.
    Auto,
    /// `*.myr` under `#myriad`.
    Myriad,
    /// `*.ibd`.
    Innodb,
}

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoMethod {
    /// io_uring where the kernel allows it.
    Auto,
    /// io_uring.
    Uring,
    /// Blocking threads.
    Threads,
}

/// What the command line asks for.
#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    /// The server's data directory; it may be running.
    pub dir: PathBuf,
    /// Whose tablespaces to check.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// Blocking threads or rings; -1 = one ring, or enough threads to fill a fast device.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub threads: i32,
    /// Read 4 KiB of each file: identity and header fields, no page checksum.
    #[arg(long, conflicts_with = "page")]
    pub light: bool,
    /// Read the whole first page and verify its checksum (the default).
    #[arg(long)]
    pub page: bool,
    /// Announce random access to the kernel, so that it does not read ahead.
    #[arg(long)]
    pub fadvise: bool,
    /// Bypass the page cache.
    #[arg(long)]
    pub direct: bool,
    /// How to read.
    #[arg(long, value_enum, default_value_t = IoMethod::Auto)]
    pub io: IoMethod,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

const LIGHT_BYTES: usize = HEADER_READ_BYTES;
/// The first read of a page check: most files' page size. Larger pages are read again, whole.
const PAGE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Family {
    Myriad,
    Innodb,
}

/// Runs the check; true if nothing was found.
///
/// # Errors
/// A sentence, where it could not be run.
pub fn run(args: &CheckArgs) -> Result<bool, String> {
    let start = Instant::now();
    let mut report = Report::default();
    let files = find_files(&args.dir, args.format, &mut report)?;
    let options = head_options(args, files.len() as u64)?;
    let bar = progress(files.len() as u64, args.json);
    let found = Mutex::new((report, HashMap::<(Family, u32), Vec<PathBuf>>::new()));
    let queue = Mutex::new(files.into_iter());
    let next = || queue.lock().expect("no panic while taking").next();
    read_heads(&next, options, &|head| {
        let family = family_of(head.path, args.format).expect("only such files were listed");
        let verdict = judge(family, &head, args.light);
        bar.inc(1);
        let mut guard = found.lock().expect("no panic while noting");
        let (report, ids) = &mut *guard;
        report.files += 1;
        report.bytes += head.bytes.as_ref().map_or(0, |b| b.len() as u64);
        match verdict {
            Ok(space_id) => ids.entry((family, space_id)).or_default().push(head.path.into()),
            Err(what) => report.add(&relative(head.path, &args.dir), Some(0), what),
        }
    })
    .map_err(|e| format!("io_uring failed: {e}; try --io threads"))?;
    bar.finish_and_clear();
    let (mut report, ids) = found.into_inner().expect("no panic while noting");
    report_duplicates(&ids, &args.dir, &mut report);
    report.findings.sort_by(|a, b| a.file.cmp(&b.file));
    report.pages = report.files;
    report.seconds = start.elapsed().as_secs_f64();
    report.print(args.json);
    Ok(report.findings.is_empty())
}

fn head_options(args: &CheckArgs, files: u64) -> Result<HeadOptions, String> {
    let uring = match args.io {
        IoMethod::Threads => false,
        IoMethod::Auto => uring_available(),
        IoMethod::Uring if uring_available() => true,
        IoMethod::Uring => return Err("io_uring is not available to this process; use --io threads".into()),
    };
    let threads = match args.threads {
        n @ (-1 | 1..=1024) => thread_count(n, uring, files),
        n => return Err(format!("--threads {n}: -1 or 1 to 1024")),
    };
    let bytes = if args.light { LIGHT_BYTES } else { PAGE_BYTES };
    Ok(HeadOptions { bytes, fadvise: args.fadvise, direct: args.direct, threads, uring, second: None })
}

fn progress(len: u64, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} files {per_sec} {eta} left").expect("a constant"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn relative(path: &Path, dir: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned()
}

/// Tablespace files under `dir`: `*.ibd` there and one folder down, `*.myr` under `#myriad`. Symbolic links are reported
/// and not followed below `dir`.
pub(crate) fn find_files(dir: &Path, format: Format, report: &mut Report) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    for entry in std::fs::read_dir(dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            folders.push(entry.path());
        }
    }
    for folder in folders {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) => {
                report.add(&relative(&folder, dir), None, format!("cannot be listed: {e}"));
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if family_of(&path, format).is_none() {
                continue;
            }
            match entry.file_type() {
                Ok(t) if t.is_symlink() => {
                    report.add(&relative(&path, dir), None, "is a symbolic link: not followed");
                }
                Ok(t) if t.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

fn family_of(path: &Path, format: Format) -> Option<Family> {
    let family = match path.extension()?.to_str()? {
        "ibd" => Family::Innodb,
        "myr" => Family::Myriad,
        _ => return None,
    };
    match (format, family) {
        (Format::Auto, _) | (Format::Innodb, Family::Innodb) | (Format::Myriad, Family::Myriad) => Some(family),
        _ => None,
    }
}

/// The space id a file rightly claims, or what is wrong with it.
fn judge(family: Family, head: &Head<'_>, light: bool) -> Result<u32, String> {
    match (family, &head.bytes) {
        (Family::Innodb, Ok(bytes)) => judge_innodb(head.path, bytes, head.file_bytes, light),
        (Family::Innodb, Err(e)) => Err(format!("cannot be read: {e}")),
        (Family::Myriad, bytes) => judge_myriad(head.path, bytes.as_deref(), head.file_bytes, light),
    }
}

fn judge_innodb(path: &Path, bytes: &[u8], file_bytes: u64, light: bool) -> Result<u32, String> {
    let header = innodb::parse(bytes).map_err(|e| e.to_string())?;
    if !light {
        let whole;
        let page = if bytes.len() >= header.physical_size {
            bytes
        } else {
            whole = read_page(path, header.physical_size).map_err(|e| format!("cannot be read: {e}"))?;
            &whole
        };
        innodb::verify_checksum(page, &header).map_err(|e| e.to_string())?;
    }
    let wanted = u64::from(header.size_pages) * header.physical_size as u64;
    if file_bytes < wanted {
        return Err(format!("is truncated: {file_bytes} bytes, {wanted} by its header"));
    }
    Ok(header.space_id)
}

fn read_page(path: &Path, len: usize) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut page = vec![0u8; len];
    std::fs::File::open(path)?.read_exact_at(&mut page, 0)?;
    Ok(page)
}

fn judge_myriad(
    path: &Path,
    bytes: Result<&[u8], &std::io::Error>,
    file_bytes: u64,
    light: bool,
) -> Result<u32, String> {
    let header = judge_head(bytes, file_bytes, None).map_err(|(_, what)| what)?;
    let page_size = header.page_size as usize;
    if !light && (HEADER_READ_BYTES..=limits::PAGE_SIZE_MAX).contains(&page_size) {
        let whole;
        let page = match bytes {
            Ok(bytes) if bytes.len() >= page_size => bytes,
            _ => {
                whole = read_page(path, page_size).map_err(|e| format!("cannot be read: {e}"))?;
                &whole
            }
        };
        judge_head(Ok(page), file_bytes, Some(page_size)).map_err(|(_, what)| what)?;
    }
    Ok(header.id.0)
}

fn report_duplicates(ids: &HashMap<(Family, u32), Vec<PathBuf>>, dir: &Path, report: &mut Report) {
    for ((_, space_id), paths) in ids.iter().filter(|(_, v)| v.len() > 1) {
        let mut names: Vec<String> = paths.iter().map(|path| relative(path, dir)).collect();
        names.sort();
        for name in &names {
            let others: Vec<&str> = names.iter().filter(|n| *n != name).map(String::as_str).take(3).collect();
            report.add(name, Some(0), format!("claims space id {space_id} as does {}", others.join(", ")));
        }
    }
}
