//! `myriad inspect`: what is in a stopped data directory: its tablespaces, the pages of one, the contents of a page.
//!
//! Everything is shown as the next start would see it, with the log's changes, over a view of the files that changes
//! nothing ([`myriad::Inspection`]). A page that cannot be used is shown as it is in its file, as far as it can be read; so is
//! one of a directory whose log or catalog cannot be.

use crate::out;
use clap::Args;
use myriad::Inspection;
use myriad_base::codec::get_u32;
use myriad_base::page::{is_zero, page_id, page_lsn, verify, PageKind, HEADER_BYTES, OFF_KIND};
use myriad_base::{Error, PageId, PageNo, SpaceId};
use myriad_btree::page as index;
use myriad_space::{SpaceHeader, DIRECTORY, HEADER_READ_BYTES};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a key or value that are shown.
const SHOWN_BYTES: usize = 32;

#[derive(Args)]
pub struct InspectArgs {
    /// The server's data directory. The server must be stopped.
    dir: PathBuf,
    /// A tablespace's id: counts its pages by kind, and by index what its pages hold.
    #[arg(long)]
    space: Option<u32>,
    /// A page of it: shows its header and what it holds.
    #[arg(long, requires = "space")]
    page: Option<u32>,
    /// Entries of an index page that are shown.
    #[arg(long, default_value_t = 20)]
    entries: usize,
}

/// Prints what `args` ask for; true, or false where a page that was asked for cannot be used.
///
/// # Errors
/// A sentence, where there is nothing to look at: no such directory, tablespace or page, in use by a server.
pub fn run(args: &InspectArgs) -> Result<bool, String> {
    crate::data_directory(&args.dir)?;
    let page = args.space.zip(args.page).map(|(space, page)| PageId::new(SpaceId(space), PageNo(page)));
    let (text, usable) = match (Inspection::open(&args.dir), args.space, page) {
        (Ok(inspection), None, _) => (directory(&inspection)?, true),
        (Ok(inspection), Some(space), None) => (tablespace(&inspection, SpaceId(space), &args.dir)?, true),
        (Ok(inspection), _, Some(page)) => one_page(&inspection, page, &args.dir, args.entries)?,
        (Err(e), _, Some(page)) if !matches!(e, Error::DirectoryLocked { .. }) => {
            one_stored_page(page, &args.dir, args.entries, &e)?
        }
        (Err(e), ..) => return Err(format!("{}: {e}", args.dir.display())),
    };
    out::all(&text).map(|()| usable)
}

macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        // Writing to a string cannot fail.
        let _ = writeln!($out, $($arg)*);
    }};
}

/// The tablespaces, a line each.
fn directory(inspection: &Inspection) -> Result<String, String> {
    let mut out = String::new();
    line!(out, "pages of {} bytes; {} bytes of log to apply", inspection.page_size(), inspection.log_bytes());
    line!(out, "{:>10} {:>12} {:>12}  file", "id", "pages", "in use");
    for space in inspection.list().map_err(|e| e.to_string())? {
        let number = |n: myriad::Result<Option<u64>>| match n {
            Ok(Some(n)) => n.to_string(),
            Ok(None) => "-".into(),
            Err(_) => "?".into(),
        };
        let wanted = number(inspection.pages_wanted(space.id).map(Some));
        let used = number(inspection.pages_in_use(space.id));
        let note = if space.settled { "" } else { " (being created or dropped)" };
        line!(out, "{:>10} {wanted:>12} {used:>12}  {}{note}", space.id.0, space.path);
    }
    Ok(out)
}

fn file_of(inspection: &Inspection, space: SpaceId, dir: &Path) -> Result<PathBuf, String> {
    let all = match inspection.list() {
        Ok(all) => all,
        Err(e) => return file_that_says(space, dir).map(|(path, _)| path).ok_or_else(|| e.to_string()),
    };
    let known = all.into_iter().find(|known| known.id == space);
    let known = known.ok_or_else(|| format!("there is no tablespace {}", space.0))?;
    Ok(dir.join(DIRECTORY).join(known.path))
}

/// The file that says it is this tablespace, and its page size, for want of a catalog.
fn file_that_says(space: SpaceId, dir: &Path) -> Option<(PathBuf, usize)> {
    std::fs::read_dir(dir.join(DIRECTORY)).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        let mut head = [0; HEADER_READ_BYTES];
        File::open(&path).ok()?.read_exact_at(&mut head, 0).ok()?;
        let header = SpaceHeader::parse(&head, "").ok().filter(|header| header.id == space)?;
        Some((path, header.page_size as usize))
    })
}

/// What the pages of an index hold, at one level.
#[derive(Default)]
struct Level {
    pages: u64,
    entries: u64,
    free_bytes: u64,
}

fn kind_name(page: &[u8]) -> &'static str {
    match PageKind::from_u8(page[OFF_KIND]) {
        Some(PageKind::Free) => "free",
        Some(PageKind::SpaceHeader) => "tablespace header",
        Some(PageKind::Bitmap) => "bitmap",
        Some(PageKind::Index) => "index",
        Some(PageKind::Overflow) => "overflow",
        Some(PageKind::Undo) => "undo",
        Some(PageKind::UndoDirectory) => "undo directory",
        Some(PageKind::Lost) => "lost",
        None => "of no known kind",
    }
}

/// Pages by kind; index pages by the index id that their low fence begins with, and level.
fn tablespace(inspection: &Inspection, space: SpaceId, dir: &Path) -> Result<String, String> {
    let path = file_of(inspection, space, dir)?;
    let size = inspection.page_size();
    let len = std::fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?.len();
    let in_file = len / size as u64;
    let pages = inspection.pages_wanted(space).map_err(|e| e.to_string())?.max(in_file);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut indexes: BTreeMap<(u32, u8), Level> = BTreeMap::new();
    for no in 0..pages as u32 {
        let id = PageId::new(space, PageNo(no));
        let kind = if no > 0 && inspection.is_in_use(id) == Ok(false) {
            "not in use"
        } else {
            match inspection.page(id) {
                Ok(page) if page[OFF_KIND] == PageKind::Index as u8 => {
                    let low = index::low_stored(&page);
                    let first = low.first_chunk::<4>().map_or(0, |id| u32::from_be_bytes(*id));
                    let level = indexes.entry((first, index::level(&page))).or_default();
                    level.pages += 1;
                    level.entries += index::count(&page) as u64;
                    level.free_bytes += index::free_bytes(&page) as u64;
                    "index"
                }
                Ok(page) => kind_name(&page),
                Err(_) => "not usable",
            }
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let mut out = String::new();
    line!(out, "{}: {len} bytes, {pages} pages", path.display());
    for (kind, n) in kinds {
        line!(out, "{n:>12} {kind}");
    }
    line!(out, "index pages by the index that they begin with (small indexes share pages):");
    line!(out, "{:>12} {:>6} {:>12} {:>14} {:>8}", "index", "level", "pages", "entries", "full %");
    for ((id, level), l) in indexes {
        let full = 100.0 - l.free_bytes as f64 * 100.0 / (l.pages * size as u64) as f64;
        line!(out, "{id:>12} {level:>6} {:>12} {:>14} {full:>8.1}", l.pages, l.entries);
    }
    Ok(out)
}

/// The first bytes in hexadecimal, and how many there are if these are not all.
fn hex(bytes: &[u8]) -> String {
    let mut out: String = bytes.iter().take(SHOWN_BYTES).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > SHOWN_BYTES {
        let _ = write!(out, "... ({} bytes)", bytes.len());
    }
    out
}

/// A page; false if it cannot be used.
fn one_page(inspection: &Inspection, id: PageId, dir: &Path, entries: usize) -> Result<(String, bool), String> {
    let path = file_of(inspection, id.space, dir)?;
    let mut out = String::new();
    line!(out, "page {} of {}", id.page.0, path.display());
    if inspection.is_in_use(id) == Ok(false) {
        line!(out, "is not in use");
    }
    match inspection.page(id) {
        Ok(page) => {
            contents(&mut out, &page, entries);
            Ok((out, true))
        }
        Err(why) => {
            line!(out, "CANNOT BE USED: {why}");
            stored(&mut out, id, &path, inspection.page_size(), entries)?;
            Ok((out, false))
        }
    }
}

/// A page of a directory that cannot be opened.
fn one_stored_page(id: PageId, dir: &Path, entries: usize, why: &Error) -> Result<(String, bool), String> {
    let (path, size) = file_that_says(id.space, dir).ok_or_else(|| format!("{}: {why}", dir.display()))?;
    let mut out = String::new();
    line!(out, "page {} of {}", id.page.0, path.display());
    line!(out, "CANNOT BE USED: {why}");
    stored(&mut out, id, &path, size, entries)?;
    Ok((out, false))
}

/// The page as the file has it.
fn stored(out: &mut String, id: PageId, path: &Path, size: usize, entries: usize) -> Result<(), String> {
    line!(out, "as it is in the file:");
    let mut page = vec![0; size];
    let offset = u64::from(id.page.0) * size as u64;
    let len = std::fs::metadata(path).map_or(u64::MAX, |m| m.len());
    if offset + size as u64 > len {
        let pages = len / size as u64;
        return Err(format!("{}: page {}: the file has {pages} pages", path.display(), id.page.0));
    }
    match File::open(path).and_then(|file| file.read_exact_at(&mut page, offset)) {
        Ok(()) if is_zero(&page) => line!(out, "all zero"),
        Ok(()) if verify(&page, id).is_ok() => contents(out, &page, entries),
        // Its fields may say anything: no more than the header is taken for what it seems.
        Ok(()) => header(out, &page),
        Err(e) => return Err(format!("{}: page {}: {e}", path.display(), id.page.0)),
    }
    Ok(())
}

fn header(out: &mut String, page: &[u8]) {
    let id = page_id(page);
    line!(out, "says it is page {} of tablespace {}, {}", id.page.0, id.space.0, kind_name(page));
    line!(out, "page LSN {}, checksum {:#010x}", page_lsn(page), get_u32(page, 0));
}

fn contents(out: &mut String, page: &[u8], entries: usize) {
    header(out, page);
    if page[OFF_KIND] != PageKind::Index as u8 {
        return line!(out, "first bytes after the header: {}", hex(&page[HEADER_BYTES..]));
    }
    let level = index::level(page);
    let count = index::count(page);
    let mark = |set: bool, name: &'static str| if set { name } else { "" };
    line!(
        out,
        "level {level}{}{}{}, {count} entries, {} bytes free, keys share {} bytes",
        mark(index::is_leftmost(page), ", leftmost"),
        mark(index::is_rightmost(page), ", rightmost"),
        mark(index::is_promoted_root(page), ", root of a promoted index"),
        index::free_bytes(page),
        index::prefix_len(page)
    );
    line!(out, "from {}", hex(index::low_stored(page)));
    line!(out, "to   {}", hex(index::high_stored(page)));
    if level > 0 {
        line!(out, "first child {}", index::left_child(page).0);
    }
    for slot in 0..count.min(entries) {
        let key = hex(&index::key(page, slot));
        match level {
            0 => line!(out, "{slot:>6} {key} = {}", hex(index::value(page, slot))),
            _ => line!(out, "{slot:>6} {key} -> {}", index::child(page, slot + 1).0),
        }
    }
    if count > entries {
        line!(out, "       and {} more", count - entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad::{CloseMode, Engine, EngineConfig, IndexSpec, TableSpec};

    const PAGE: usize = 4096;

    /// A stopped directory with a table of 1,000 rows in tablespace 16, and the lines of what is shown.
    fn directory_of_one() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            page_size: PAGE,
            buffer_pool_bytes: 2 << 20,
            log_capacity_bytes: 8 << 20,
            promote_bytes: 64 << 10,
            ..EngineConfig::new(dir.path())
        };
        let engine = Engine::open_with(config, None).unwrap();
        let spec = TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() };
        engine.create_table("d/t", &spec).unwrap();
        let table = engine.open_table("d/t").unwrap();
        let mut session = engine.session();
        for i in 0..1000u32 {
            session.insert(&table, &i.to_be_bytes(), &[7; 200]).unwrap();
        }
        session.commit().unwrap();
        drop((session, table));
        engine.close(CloseMode::LogOnly).unwrap();
        dir
    }

    #[test]
    fn directory_tablespace_and_pages_are_shown() {
        let dir = directory_of_one();
        let inspection = Inspection::open(dir.path()).unwrap();
        let text = directory(&inspection).unwrap();
        assert!(text.contains("pages of 4096 bytes") && !text.contains("; 0 bytes of log"), "{text}");
        assert!(text.lines().any(|l| l.trim().starts_with("16 ") && l.ends_with("  d.16.myr")), "{text}");

        let text = tablespace(&inspection, SpaceId(16), dir.path()).unwrap();
        let rows: u64 = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>())
            .filter(|l| l.len() == 5 && l[1] == "0")
            .map(|l| l[3].parse::<u64>().unwrap())
            .sum();
        assert_eq!(rows, 1000, "{text}");
        assert!(text.contains("1 tablespace header") && text.contains("1 bitmap"), "{text}");

        // Page 2 is the root of the shared tree; below it some leaf has the first row.
        let leaf = (2..200).find_map(|no| {
            let id = PageId::new(SpaceId(16), PageNo(no));
            let (text, usable) = one_page(&inspection, id, dir.path(), 3).ok()?;
            (usable && text.contains("level 0") && text.contains("00000000 = ")).then_some(text)
        });
        let leaf = leaf.expect("a leaf with the first row");
        assert!(leaf.contains("says it is page") && leaf.contains("more") && leaf.contains("0707"), "{leaf}");
        assert!(tablespace(&inspection, SpaceId(99), dir.path()).unwrap_err().contains("no tablespace 99"));
        let beyond = PageId::new(SpaceId::SYSTEM, PageNo(1 << 30));
        assert!(one_page(&inspection, beyond, dir.path(), 1).unwrap_err().contains(": the file has "));
    }

    #[test]
    fn a_damaged_page_is_shown_as_it_is() {
        let dir = directory_of_one();
        let engine = Engine::open(dir.path()).unwrap();
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let path = dir.path().join(DIRECTORY).join("d.16.myr");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4 * PAGE + 3000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let inspection = Inspection::open(dir.path()).unwrap();
        let page = PageId::new(SpaceId(16), PageNo(4));
        let (text, usable) = one_page(&inspection, page, dir.path(), 3).unwrap();
        assert!(!usable && text.contains("CANNOT BE USED") && text.contains("checksum"), "{text}");
        assert!(text.contains("says it is page 4 of tablespace 16"), "{text}");
        assert!(tablespace(&inspection, SpaceId(16), dir.path()).unwrap().contains("1 not usable"));
        let beyond = PageId::new(SpaceId(16), PageNo(1 << 20));
        assert!(one_page(&inspection, beyond, dir.path(), 3).is_err());
    }

    /// What `myriad inspect --space SPACE --page PAGE` ends with.
    fn inspect(dir: &Path, space: u32, page: u32) -> Result<bool, String> {
        run(&InspectArgs { dir: dir.into(), space: Some(space), page: Some(page), entries: 3 })
    }

    #[test]
    fn pages_are_shown_without_a_catalog_and_without_a_log() {
        let dir = directory_of_one();
        let engine = Engine::open(dir.path()).unwrap();
        assert!(inspect(dir.path(), 16, 2).unwrap_err().contains("is in use"), "an engine has it");
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let path = dir.path().join(DIRECTORY).join("system.myr");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[2 * PAGE + 3000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(inspect(dir.path(), 0, 2), Ok(false));
        assert!(run(&InspectArgs { dir: dir.path().into(), space: None, page: None, entries: 3 }).is_err());

        std::fs::write(dir.path().join(DIRECTORY).join("redo.log"), "damaged").unwrap();
        let why = Inspection::open(dir.path()).err().unwrap();
        for (space, page, told) in [(0, 2, "says it is page 2 of tablespace 0"), (16, 2, "entries, ")] {
            let page = PageId::new(SpaceId(space), PageNo(page));
            let (text, usable) = one_stored_page(page, dir.path(), 3, &why).unwrap();
            assert!(!usable && text.contains("CANNOT BE USED: ") && text.contains(told), "{text}");
            assert_eq!(inspect(dir.path(), space, 2), Ok(false));
        }
        assert!(inspect(dir.path(), 99, 2).unwrap_err().contains("redo.log"));
    }
}
