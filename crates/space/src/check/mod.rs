//! The check of all tablespace files: which file claims which id, and whether it is the one that the catalog means.
//!
//! Every file `*.myr` under the folder is looked at once; the catalog is read once before, in its own order, and kept as
//! 16 bytes a tablespace, so that most files are settled without asking it again. Memory: that, and what is found; never
//! the files' names. What looks wrong is looked at a second time, against the catalog as it is then, before it counts:
//! tablespaces come and go while the check runs.
//!
//! Why that is exact beside a workload: a tablespace's row is there before its file and goes after it, and a file whose
//! creation has begun is *touched* ([`Known::touched`]) before it has a name. So, in this order: a file that was read, then
//! asked for in the catalog and not known, then seen again and not touched, belongs to nobody; a file that was missed, and
//! then named by a settled row, is missing.
//!
//! Nothing is changed and nothing is held open. Symbolic links are reported, not followed.

mod confirm;
mod expected;
mod heads;
mod walk;

pub use heads::{
    read_head, read_heads, thread_count, uring_available, FileSystem, Head, HeadOptions, Named, NextFile, SecondRead,
};
pub use walk::{EXTENSION, LOST_AND_FOUND};

use crate::header::{SpaceHeader, HEADER_READ_BYTES};
use crate::space::GROWTH_PAGES_MIN;
use crate::Uuid;
use confirm::Confirm;
use expected::Expected;
use myriad_base::page::verify;
use myriad_base::{Error, PageId, PageNo, Result, SpaceId};
use parking_lot::Mutex;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use walk::{Step, Walk};

/// What file systems allocate is a multiple of this.
const BLOCK_BYTES_MIN: u64 = 512;

/// What the catalog says of a tablespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSpace {
    /// Its id.
    pub id: SpaceId,
    /// Its file, relative to `#myriad/`.
    pub path: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// Whether its file must be there: it is neither being created nor being dropped.
    pub settled: bool,
}

/// The catalog, as the check sees it.
pub trait Known: Sync {
    /// Gives all tablespaces, best in order of their ids, until `visit` says false.
    ///
    /// # Errors
    /// Those of reading the catalog.
    fn list(&self, visit: &mut dyn FnMut(KnownSpace) -> bool) -> Result<()>;
    /// The newest state of one tablespace.
    ///
    /// # Errors
    /// Those of reading the catalog.
    fn find(&self, id: SpaceId) -> Result<Option<KnownSpace>>;
    /// Whether this path (relative to `#myriad/`) has been created by the engine since the check began.
    fn touched(&self, path: &str) -> bool;
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It says it is a tablespace whose file is another one, which says so too.
    Duplicate,
    /// The catalog names it, and it is not there.
    Missing,
    /// The catalog's file is not there or not the right one; this one says it is.
    Moved,
    /// A tablespace of another data directory, or another tablespace than the catalog says.
    Foreign,
    /// A tablespace that the catalog does not know.
    Unknown,
    /// Shorter than it must be.
    Truncated,
    /// Not a tablespace, or its header is damaged.
    Damaged,
    /// It cannot be opened, read or listed.
    Unreadable,
    /// A symbolic link.
    Link,
}

impl Problem {
    /// In one word, for people.
    pub fn name(self) -> &'static str {
        match self {
            Problem::Duplicate => "DUPLICATE",
            Problem::Missing => "MISSING",
            Problem::Moved => "MOVED",
            Problem::Foreign => "FOREIGN",
            Problem::Unknown => "UNKNOWN",
            Problem::Truncated => "TRUNCATED",
            Problem::Damaged => "DAMAGED",
            Problem::Unreadable => "UNREADABLE",
            Problem::Link => "LINK",
        }
    }
}

/// One thing found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The tablespace that the catalog has at this path; else the one the file says it is, if any.
    pub space: Option<SpaceId>,
    /// The file.
    pub file: PathBuf,
    /// The same for people: relative to `#myriad/`, bytes that are not UTF-8 as `\xNN`.
    pub path: String,
    /// What is wrong.
    pub problem: Problem,
    /// Another file that has to do with it.
    pub other: Option<String>,
    /// What was found and what was expected.
    pub detail: String,
}

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Page size of the data directory in bytes.
    pub page_size: usize,
    /// Reads 4 KiB of each file, and of one that has grown as much of its page 1; else these pages whole, and verifies the
    /// checksum of the first.
    pub light: bool,
    /// Tells the kernel not to read ahead.
    pub fadvise: bool,
    /// Threads or rings; -1 = chosen here.
    pub threads: i32,
    /// Whether io_uring may be used.
    pub uring: bool,
    /// Files open at a time at most.
    pub files_max: usize,
    /// How many pages a file must have at least, by its page 1, of which the beginning is given (4 KiB at least), and the
    /// page size; `None` if that page does not say.
    pub pages_wanted: Option<PagesWanted>,
}

/// See [`CheckOptions::pages_wanted`].
pub type PagesWanted = fn(SpaceId, &[u8], usize) -> Option<u64>;

impl CheckOptions {
    /// Bytes of a file's beginning for the second look.
    fn whole_bytes(&self) -> usize {
        self.page_size * if self.pages_wanted.is_some() { 2 } else { 1 }
    }

    fn heads(&self, threads: usize) -> HeadOptions {
        let (size, least) = (self.page_size, self.page_size as u64 * u64::from(GROWTH_PAGES_MIN));
        let second = SecondRead { at: size as u64, bytes: HEADER_READ_BYTES, beyond: least };
        HeadOptions {
            bytes: if self.light { HEADER_READ_BYTES } else { self.whole_bytes() },
            fadvise: self.fadvise,
            direct: true,
            threads,
            uring: self.uring,
            files_max: self.files_max,
            second: self.pages_wanted.filter(|_| self.light).map(|_| second),
        }
    }

    /// Why a file of this length cannot be whole, if it cannot. `page_one`: the beginning of its page 1, if it was read.
    fn too_short(&self, space: SpaceId, file_bytes: u64, page_one: &[u8]) -> Option<String> {
        let size = self.page_size as u64;
        let least = u64::from(GROWTH_PAGES_MIN) * size;
        if file_bytes < least {
            return Some(format!("is {file_bytes} bytes long; no tablespace has less than {least}"));
        }
        // A file that found too little room to grow may have taken some blocks of a page: nothing lies there.
        if !file_bytes.is_multiple_of(BLOCK_BYTES_MIN) {
            return Some(format!("ends in the middle of a page ({file_bytes} bytes)"));
        }
        if page_one.len() < HEADER_READ_BYTES {
            return None;
        }
        let wanted = self.pages_wanted?(space, page_one, self.page_size)? * size;
        (file_bytes < wanted).then(|| format!("is {file_bytes} bytes long, its pages in use take {wanted}"))
    }
}

/// How far a check is; also the way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files that the catalog knows; 0 until it has been read.
    pub expected: AtomicU64,
    /// Files looked at.
    pub files: AtomicU64,
    /// Bytes read of them.
    pub bytes: AtomicU64,
    /// Set to end the check at the next file.
    pub stop: AtomicBool,
}

impl Progress {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A path for people: bytes that are not UTF-8 as `\xNN`.
pub fn text_of(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

/// What a file's first bytes say, or what is wrong with them: its header, its length, and page 0 and 1 where they were read.
///
/// # Errors
/// The problem, and a sentence about it.
pub fn judge_head(
    bytes: std::result::Result<&[u8], &std::io::Error>,
    file_bytes: u64,
    page_size: Option<usize>,
) -> std::result::Result<SpaceHeader, (Problem, String)> {
    let bytes = bytes.map_err(|e| (Problem::Unreadable, format!("cannot be read: {e}")))?;
    if bytes.len() < HEADER_READ_BYTES {
        return Err((Problem::Damaged, format!("is {file_bytes} bytes long: too short for a tablespace")));
    }
    let header = SpaceHeader::parse(bytes, "").map_err(|e| (Problem::Damaged, reason_of(&e)))?;
    match page_size {
        Some(size) if size != header.page_size as usize => {
            let detail = format!("its pages have {} bytes, this data directory's {size}", header.page_size);
            return Err((Problem::Foreign, detail));
        }
        Some(size) if bytes.len() >= size => {
            verify(&bytes[..size], PageId::new(header.id, PageNo(0)))
                .map_err(|e| (Problem::Damaged, format!("page 0: {}", reason_of(&e))))?;
        }
        _ => {}
    }
    Ok(header)
}

/// An error's reason alone, where the file is named already.
fn reason_of(e: &Error) -> String {
    match e {
        Error::CorruptFile { reason, .. } | Error::Format { reason, .. } | Error::CorruptPage { reason, .. } => {
            reason.clone()
        }
        other => other.to_string(),
    }
}

/// Looks at all tablespace files under `root` (`#myriad/`); each finding goes to `found`, from any thread. Returns early
/// when it is told to stop.
///
/// # Errors
/// If the folder cannot be listed, the catalog cannot be read, or no thread or ring can be had.
pub fn check_tablespaces(
    root: &Path,
    known: &dyn Known,
    options: CheckOptions,
    progress: &Progress,
    found: &(dyn Fn(Finding) + Sync),
) -> Result<()> {
    let failed = |op: &'static str, e: &std::io::Error| Error::io(op, text_of(root), e.raw_os_error().unwrap_or(0));
    let expected = Expected::read(known, progress)?;
    progress.expected.store(expected.len() as u64, Ordering::Relaxed);
    let confirm = Confirm {
        root,
        known,
        options,
        expected: &expected,
        found,
        failure: Mutex::default(),
        starved: AtomicBool::new(false),
    };
    let walk = Mutex::new(Walk::new(root).map_err(|e| failed("list", &e))?);
    let next = || next_file(&walk, progress, &confirm);
    let threads = thread_count(options.threads, options.uring, expected.len() as u64);
    read_heads(root, &next, options.heads(threads), &|head| {
        progress.files.fetch_add(1, Ordering::Relaxed);
        let read = head.bytes.as_ref().map_or(0, |b| b.len()) + head.second.len();
        progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
        if !settles(&head, &expected, &options) {
            confirm.file(&head.path);
        }
    })
    .map_err(|e| failed("read", &e))?;
    for id in expected.unseen() {
        if is_over(progress, &confirm) {
            break;
        }
        confirm.absent(id);
    }
    confirm.failure.into_inner().map_or(Ok(()), Err)
}

/// Whether no further file is to be looked at.
fn is_over(progress: &Progress, confirm: &Confirm<'_>) -> bool {
    progress.stopped() || confirm.starved.load(Ordering::Relaxed)
}

fn next_file(walk: &Mutex<Walk>, progress: &Progress, confirm: &Confirm<'_>) -> Option<Named> {
    loop {
        if is_over(progress, confirm) {
            return None;
        }
        // In a statement of its own, so that the latch is not held while a finding is looked into.
        let step = walk.lock().next()?;
        match step {
            Step::File(named) => return Some(named),
            Step::Odd(finding) => confirm.odd(finding),
        }
    }
}

/// Whether the file is beyond doubt what the catalog means.
fn settles(head: &Head<'_>, expected: &Expected, options: &CheckOptions) -> bool {
    let Ok(bytes) = &head.bytes else { return false };
    let Ok(header) = judge_head(Ok(bytes), head.file_bytes, Some(options.page_size)) else { return false };
    let page_one = if options.light { head.second } else { bytes.get(options.page_size..).unwrap_or(&[]) };
    expected.matches(head.path.as_os_str().as_bytes(), &header)
        && options.too_short(header.id, head.file_bytes, page_one).is_none()
        && expected.see(header.id)
}

#[cfg(test)]
mod tests;
