//! `myriad check-tablespaces`: which files claim which space id, and whether each is what it says.
//!
//! Reads the head of every tablespace file under a data directory, of Myriad or of InnoDB, without changing anything.
//! Finds duplicate space ids, damaged or foreign headers, truncated and empty files.

use crate::innodb;
use crate::report::Report;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use myriad_base::limits;
use myriad_space::check::{
    judge_head, read_head, read_heads, thread_count, uring_available, FileSystem, Head, HeadOptions, Named,
};
use myriad_space::HEADER_READ_BYTES;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::fs::DirEntryExt;
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
    /// Read past the page cache where the file system can (the default).
    #[arg(long, conflicts_with = "cached")]
    pub direct: bool,
    /// Read through the page cache.
    #[arg(long)]
    pub cached: bool,
    /// Announce random access to the kernel, so that it does not read ahead. Reads past the page cache need no such word.
    #[arg(long)]
    pub fadvise: bool,
    /// How to read.
    #[arg(long, value_enum, default_value_t = IoMethod::Auto)]
    pub io: IoMethod,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    /// Bytes that are read of each file.
    fn head_bytes(&self) -> usize {
        if self.light {
            LIGHT_BYTES
        } else {
            PAGE_BYTES
        }
    }
}

const LIGHT_BYTES: usize = HEADER_READ_BYTES;
/// Files that are found one after another have names in the same blocks of their folder, mostly: this many are opened in
/// the order of their inodes, so that both blocks and inodes are at hand.
const BATCH: usize = 8192;
/// Batches share what is read of so many inodes (a power of two; 256 MiB on ext4), which memory has to hold meanwhile.
const REACH_BITS: u32 = 20;
/// What seems wrong is looked at again after this time: a running server may just be making the file.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// The first read of a page check: most files' page size. Larger pages are read again, whole.
const PAGE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Family {
    Myriad,
    Innodb,
}

/// A file's space id.
type Claim = (Family, u32, PathBuf);

/// Runs the check; true if nothing was found.
///
/// # Errors
/// A sentence, where it could not be run.
pub fn run(args: &CheckArgs) -> Result<bool, String> {
    let start = Instant::now();
    let mut report = Report::default();
    let files = find_files(&args.dir, args.format, &mut report)?;
    if files.is_empty() && report.findings.is_empty() {
        return Err(format!("no tablespace files under {}", args.dir.display()));
    }
    let options = head_options(args, files.len() as u64)?;
    let bar = progress(files.len() as u64, args.json);
    let found = Mutex::new((report, Vec::<Claim>::with_capacity(files.len()), Vec::new()));
    let queue = Mutex::new(files.into_iter());
    let next = || queue.lock().expect("no panic while taking").next();
    read_heads(&args.dir, &next, options, &|head| {
        let family = family_of(&head.path, args.format).expect("only such files were listed");
        let verdict = judge(family, &args.dir, &head, args.light);
        bar.inc(1);
        let mut guard = found.lock().expect("no panic while noting");
        let (report, claims, suspects) = &mut *guard;
        report.files += 1;
        report.bytes += head.bytes.as_ref().map_or(0, |b| b.len() as u64);
        match verdict {
            Ok(space_id) => claims.push((family, space_id, head.path)),
            Err(_) => suspects.push((family, head.path)),
        }
    })
    .map_err(|e| format!("io_uring failed: {e}; try --io threads"))?;
    bar.finish_and_clear();
    let (mut report, mut claims, suspects) = found.into_inner().expect("no panic while noting");
    if !suspects.is_empty() {
        std::thread::sleep(SECOND_LOOK);
    }
    for (family, path) in suspects {
        match judge_again(family, args, &path) {
            Some(Ok(space_id)) => claims.push((family, space_id, path)),
            Some(Err(what)) => report.add(&path.to_string_lossy(), Some(0), what),
            None => {}
        }
    }
    report_duplicates(claims, args, &mut report);
    report.findings.sort_by(|a, b| a.file.cmp(&b.file));
    report.pages = report.files;
    report.seconds = start.elapsed().as_secs_f64();
    report.print(args.json)?;
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
    let bytes = args.head_bytes();
    Ok(HeadOptions {
        bytes,
        fadvise: args.fadvise,
        direct: !args.cached,
        threads,
        uring,
        second: None,
        files_max: usize::MAX,
    })
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

/// Tablespace files under `dir`, relative to it and in the order in which the system finds them fastest (see [`BATCH`]):
/// `*.ibd` there and one folder down, `*.myr` under `#myriad`. Symbolic links are reported and not followed below `dir`.
pub(crate) fn find_files(dir: &Path, format: Format, report: &mut Report) -> Result<Vec<Named>, String> {
    let mut files = Vec::new();
    let file_system = FileSystem::of(dir);
    let mut folders = vec![PathBuf::new()];
    for entry in std::fs::read_dir(dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            folders.push(entry.file_name().into());
        }
    }
    for folder in folders {
        let entries = match std::fs::read_dir(dir.join(&folder)) {
            Ok(entries) => entries,
            Err(e) => {
                report.add(&folder.to_string_lossy(), None, format!("cannot be listed: {e}"));
                continue;
            }
        };
        let same = file_system.holds(&dir.join(&folder));
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if family_of(&path, format).is_none() {
                continue;
            }
            match entry.file_type() {
                Ok(t) if t.is_symlink() => {
                    report.add(&path.to_string_lossy(), None, "is a symbolic link: not followed");
                }
                Ok(t) if t.is_file() => {
                    let (inode, batch) = (entry.ino(), files.len() / BATCH);
                    let named = Named { path, inode: same.then_some(inode) };
                    files.push(((inode >> REACH_BITS, batch, inode), named));
                }
                _ => {}
            }
        }
    }
    files.sort_unstable_by_key(|file| file.0);
    Ok(files.into_iter().map(|file| file.1).collect())
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
fn judge(family: Family, dir: &Path, head: &Head<'_>, light: bool) -> Result<u32, String> {
    let whole = |page_size| read_page(&dir.join(&head.path), page_size).map_err(|e| format!("cannot be read: {e}"));
    match (family, &head.bytes) {
        (Family::Innodb, Ok(bytes)) => judge_innodb(bytes, head.file_bytes, light, whole),
        (Family::Innodb, Err(e)) => Err(format!("cannot be read: {e}")),
        (Family::Myriad, bytes) => judge_myriad(bytes.as_deref(), head.file_bytes, light, whole),
    }
}

/// The second look at what seems wrong, by the file's name: its inode may be another file's since it was listed, and a
/// running server may have been writing or making it. `None`: the file is gone.
fn judge_again(family: Family, args: &CheckArgs, path: &Path) -> Option<Result<u32, String>> {
    let read;
    let (file_bytes, bytes) = match read_head(&args.dir.join(path), args.head_bytes()) {
        Ok((file_bytes, bytes)) => {
            read = bytes;
            (file_bytes, Ok(&read[..]))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        Err(e) => (0, Err(e)),
    };
    let head = Head { path: path.into(), file_bytes, bytes, second: &[] };
    Some(judge(family, &args.dir, &head, args.light))
}

fn judge_innodb(
    bytes: &[u8],
    file_bytes: u64,
    light: bool,
    read_page: impl FnOnce(usize) -> Result<Vec<u8>, String>,
) -> Result<u32, String> {
    let header = innodb::parse(bytes).map_err(|e| e.to_string())?;
    if !light {
        let whole;
        let page = if bytes.len() >= header.physical_size {
            bytes
        } else {
            whole = read_page(header.physical_size)?;
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
    bytes: Result<&[u8], &std::io::Error>,
    file_bytes: u64,
    light: bool,
    read_page: impl FnOnce(usize) -> Result<Vec<u8>, String>,
) -> Result<u32, String> {
    let header = judge_head(bytes, file_bytes, None).map_err(|(_, what)| what)?;
    let page_size = header.page_size as usize;
    if !light && (HEADER_READ_BYTES..=limits::PAGE_SIZE_MAX).contains(&page_size) {
        let whole;
        let page = match bytes {
            Ok(bytes) if bytes.len() >= page_size => bytes,
            _ => {
                whole = read_page(page_size)?;
                &whole
            }
        };
        judge_head(Ok(page), file_bytes, Some(page_size)).map_err(|(_, what)| what)?;
    }
    Ok(header.id.0)
}

/// `claims`: who claims which space id, in any order.
fn report_duplicates(mut claims: Vec<Claim>, args: &CheckArgs, report: &mut Report) {
    claims.sort_unstable();
    for same in claims.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).filter(|same| same.len() > 1) {
        let holds = |claim: &&Claim| judge_again(claim.0, args, &claim.2) == Some(Ok(claim.1));
        let names: Vec<String> =
            same.iter().filter(holds).map(|claim| claim.2.to_string_lossy().into_owned()).collect();
        for name in names.iter().filter(|_| names.len() > 1) {
            let others: Vec<&str> = names.iter().filter(|n| *n != name).map(String::as_str).take(3).collect();
            report.add(name, Some(0), format!("claims space id {} as does {}", same[0].1, others.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};
    use myriad_base::{Lsn, SpaceId};
    use myriad_space::SpaceHeader;
    use std::os::unix::fs::FileExt;

    fn check(dir: &Path) -> bool {
        let line = ["check", dir.to_str().unwrap(), "--cached", "--io", "threads", "--json"];
        let matches = CheckArgs::augment_args(clap::Command::new("check")).get_matches_from(line);
        run(&CheckArgs::from_arg_matches(&matches).unwrap()).unwrap()
    }

    /// Its pages are there before its header is.
    #[test]
    fn a_file_that_is_being_made_is_no_finding() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("#myriad")).unwrap();
        let file = std::fs::File::create(dir.path().join("#myriad/d.16.myr")).unwrap();
        file.set_len(4 << 14).unwrap();
        assert!(!check(dir.path()));
        std::thread::scope(|scope| {
            let checker = scope.spawn(|| check(dir.path()));
            std::thread::sleep(SECOND_LOOK / 2);
            let mut page = vec![0; 1 << 14];
            SpaceHeader { id: SpaceId(16), uuid: [7; 16], page_size: 1 << 14, creation_lsn: Lsn(0) }.format(&mut page);
            file.write_all_at(&page, 0).unwrap();
            assert!(checker.join().unwrap());
        });
    }
}
