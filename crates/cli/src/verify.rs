//! `myriad verify`: every tablespace file against the catalog, and every page against its checksum and its identity.
//!
//! The catalog is read as the next start would read it, log included, over a view of the files that changes nothing
//! ([`myriad::Inspection`]). Where that cannot be had, the files are verified by themselves, and against the log's end.

use crate::report::{reason_of, Report};
use indicatif::{ProgressBar, ProgressStyle};
use myriad::Inspection;
use myriad_base::page::{check_lost, is_zero, page_lsn, verify};
use myriad_base::{limits, Error, Lsn, PageId, PageNo, SpaceId};
use myriad_space::check::{check_tablespaces, text_of, uring_available, CheckOptions, Finding, Problem, Progress};
use myriad_space::{SpaceHeader, DIRECTORY, HEADER_READ_BYTES};
use rustix::fs::{flock, FlockOperation};
use std::collections::HashSet;
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// Pages read at a time.
const BATCH_PAGES: usize = 64;
/// Pages of a file that are named if they cannot be read; of more only the number.
const UNREADABLE_NAMED_MAX: u64 = 100;

/// Verifies all tablespaces under `dir`; true if nothing was found.
///
/// # Errors
/// A sentence, where the check could not be run: no such directory, in use by a server, unreadable.
pub fn run(dir: &Path, json: bool) -> Result<bool, String> {
    let home = crate::data_directory(dir)?;
    let _lock = lock(&home)?;
    let files = tablespace_files(&home)?;
    let total: u64 = files.iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
    let bar = if json || !std::io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new(total) };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left").expect("a constant"),
    );
    let start = Instant::now();
    let mut report = Report::default();
    Verifier::new(dir, &bar, &mut report).all(&home, &files);
    bar.finish_and_clear();
    report.seconds = start.elapsed().as_secs_f64();
    report.print(json)?;
    Ok(report.findings.is_empty())
}

fn lock(home: &Path) -> Result<File, String> {
    let path = home.join("myriad.lock");
    let file = File::open(&path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    flock(&file, FlockOperation::NonBlockingLockShared)
        .map_err(|_| format!("{} is in use by a server; stop it first", home.display()))?;
    Ok(file)
}

fn tablespace_files(home: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(home).map_err(|e| format!("cannot list {}: {e}", home.display()))?;
    let is_file = |e: &std::fs::DirEntry| e.file_type().is_ok_and(|t| t.is_file());
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .filter(is_file)
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "myr"))
        .collect();
    files.sort();
    Ok(files)
}

/// The pages of a file, to be read one after the other.
struct Pages<'a> {
    space: SpaceId,
    size: usize,
    count: u64,
    /// The file is the catalog's.
    known: bool,
    name: &'a str,
    /// Fills the bytes from the page with that number on.
    read: &'a dyn Fn(&mut [u8], u64) -> std::io::Result<()>,
}

impl Pages<'_> {
    fn id(&self, no: u64) -> PageId {
        PageId::new(self.space, PageNo(no as u32))
    }
}

struct Verifier<'a> {
    dir: &'a Path,
    bar: &'a ProgressBar,
    /// `None`: the catalog cannot be read.
    inspection: Option<Inspection>,
    /// The check of all files has read the catalog to its end. Where it could not, that is told once and not with each file.
    listed: bool,
    /// Files that are not the catalog's: their pages are verified by themselves.
    foreign: HashSet<PathBuf>,
    /// `None`: the log cannot be read.
    log_end: Option<Lsn>,
    /// Sound pages with an LSN beyond that, and the highest such LSN.
    beyond: (u64, Lsn),
    report: &'a mut Report,
}

impl<'a> Verifier<'a> {
    fn new(dir: &'a Path, bar: &'a ProgressBar, report: &'a mut Report) -> Verifier<'a> {
        let (foreign, beyond) = (HashSet::new(), (0, Lsn(0)));
        Verifier { dir, bar, inspection: None, listed: false, foreign, log_end: None, beyond, report }
    }

    fn all(&mut self, home: &Path, files: &[PathBuf]) {
        self.check_files(home);
        for path in files {
            self.file(path);
        }
        if let (Some(end), (pages @ 1.., newest)) = (self.log_end, self.beyond) {
            let what = format!(
                "the log ends at LSN {end}, but {pages} pages are newer, up to LSN {newest}: it was damaged, cut short or \
                 replaced, and changes made after its end are lost"
            );
            self.report.add(&format!("{DIRECTORY}/redo.log"), None, what);
        }
    }

    /// The files' names, headers and lengths, against the catalog.
    fn check_files(&mut self, home: &Path) {
        let inspection = match Inspection::open(self.dir) {
            Ok(inspection) => inspection,
            Err(e) => {
                let what = format!("the catalog cannot be read, files are verified without it: {e}");
                self.log_end = Inspection::log_end_of(self.dir).ok();
                return self.report.add(DIRECTORY, None, what);
            }
        };
        self.report.log_bytes = inspection.log_bytes();
        self.log_end = Some(inspection.log_end());
        if let Some(start) = inspection.log_beyond() {
            let what = format!(
                "the log ends at LSN {}, but goes on at LSN {start}: if neither the machine nor its device has failed, it was \
                 damaged, and changes made after its end are lost",
                inspection.log_end()
            );
            self.report.add(&format!("{DIRECTORY}/redo.log"), None, what);
        }
        let options = CheckOptions {
            page_size: inspection.page_size(),
            light: true,
            fadvise: true,
            threads: -1,
            uring: uring_available(),
            files_max: usize::MAX,
            pages_wanted: None,
        };
        let found = Mutex::new(Vec::new());
        let note = |f: Finding| found.lock().expect("no panic while noting").push(f);
        match check_tablespaces(home, inspection.spaces(), options, &Progress::default(), &note) {
            Ok(_) => self.listed = true,
            Err(e) => self.report.add(DIRECTORY, None, format!("the check of all files could not go on: {e}")),
        }
        let mut found = found.into_inner().expect("no panic while noting");
        found.sort_by(|a, b| a.path.cmp(&b.path));
        for f in found {
            self.report.add(&format!("{DIRECTORY}/{}", f.path), None, f.detail);
            if f.problem != Problem::Truncated {
                self.foreign.insert(f.file);
            }
        }
        self.inspection = Some(inspection);
    }

    fn file(&mut self, path: &Path) {
        let name = text_of(path.strip_prefix(self.dir).unwrap_or(path));
        self.report.files += 1;
        if let Err(e) = self.pages(path, &name) {
            if !self.foreign.contains(path) {
                self.report.add(&name, None, format!("cannot be read: {e}"));
            }
        }
    }

    /// The catalog, for a file that is the one it names.
    fn catalog_for(&self, path: &Path) -> Option<&Inspection> {
        self.inspection.as_ref().filter(|_| !self.foreign.contains(path))
    }

    fn pages(&mut self, path: &Path, name: &str) -> std::io::Result<()> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let Some((space, page_size)) = self.header(&file, len, path, name)? else { return Ok(()) };
        let known = self.catalog_for(path).is_some();
        if !known && !len.is_multiple_of(page_size as u64) {
            self.report.add(name, None, format!("ends in the middle of a page ({len} bytes)"));
        }
        let count = len / page_size as u64;
        let read = |bytes: &mut [u8], no: u64| file.read_exact_at(bytes, no * page_size as u64);
        self.contents(&Pages { space, size: page_size, count, known, name, read: &read });
        if known && (self.listed || space == SpaceId::SYSTEM) {
            self.length(space, count, name);
        }
        Ok(())
    }

    /// What cannot be read is found, and the rest read.
    fn contents(&mut self, pages: &Pages<'_>) {
        let mut buf = vec![0u8; pages.size * BATCH_PAGES];
        let (mut no, mut unreadable) = (0, 0);
        while no < pages.count {
            let batch = (pages.count - no).min(BATCH_PAGES as u64);
            let bytes = &mut buf[..batch as usize * pages.size];
            let whole = (pages.read)(bytes, no).is_ok();
            for (no, page) in (no..).zip(bytes.chunks_exact_mut(pages.size)) {
                match if whole { Ok(()) } else { (pages.read)(page, no) } {
                    Ok(()) => self.page(page, pages.id(no), pages.known, pages.name),
                    Err(e) => {
                        unreadable += 1;
                        if unreadable <= UNREADABLE_NAMED_MAX {
                            self.damaged(pages.id(no), pages.known, pages.name, format!("cannot be read: {e}"));
                        }
                    }
                }
            }
            self.report.pages += batch;
            self.report.bytes += bytes.len() as u64;
            self.bar.inc(bytes.len() as u64);
            no += batch;
        }
        if unreadable > UNREADABLE_NAMED_MAX {
            let what = format!("{unreadable} of {} pages cannot be read, the first are named above", pages.count);
            self.report.add(pages.name, None, what);
        }
    }

    /// Id and page size by the file's header; `None` if it has been reported.
    fn header(&mut self, file: &File, len: u64, path: &Path, name: &str) -> std::io::Result<Option<(SpaceId, usize)>> {
        // What the check of all files has found is not told twice.
        let told = self.foreign.contains(path);
        let mut head = [0u8; HEADER_READ_BYTES];
        if len < head.len() as u64 {
            if !told {
                self.report.add(name, None, format!("is {len} bytes long: too short for a tablespace"));
            }
            return Ok(None);
        }
        file.read_exact_at(&mut head, 0)?;
        let header = match SpaceHeader::parse(&head, name) {
            Ok(header) => header,
            Err(e) => {
                if !told {
                    self.report.add(name, Some(0), reason_of(&e));
                }
                return Ok(None);
            }
        };
        let page_size = header.page_size as usize;
        if !page_size.is_power_of_two() || !(limits::PAGE_SIZE_MIN..=limits::PAGE_SIZE_MAX).contains(&page_size) {
            self.report.add(name, Some(0), format!("says its pages have {page_size} bytes"));
            return Ok(None);
        }
        Ok(Some((header.id, page_size)))
    }

    /// A page as it is in the file. `known`: the file is the catalog's, so the next start may repair the page.
    fn page(&mut self, page: &[u8], id: PageId, known: bool, name: &str) {
        let inspection = self.inspection.as_ref().filter(|_| known);
        // Another directory's files have nothing to do with this log.
        let log_end = self.log_end.filter(|_| known || self.inspection.is_none());
        let problem = if is_zero(page) {
            // Set aside, given back, or lost. Where nobody can say, the damage that is why is a finding.
            match inspection.map(|i| i.is_in_use(id)) {
                Some(Ok(true)) => "is in use but holds only zeros".to_string(),
                Some(Err(Error::CorruptPage { page, .. })) if page == id => {
                    "is a bitmap page but holds only zeros".into()
                }
                _ => return,
            }
        } else {
            let lsn = page_lsn(page);
            match (verify(page, id), log_end.filter(|&end| lsn > end)) {
                (Ok(()), None) => match check_lost(page, id) {
                    Ok(()) => return,
                    // Nobody has asked for it since it became free.
                    Err(_) if inspection.is_some_and(|i| i.is_in_use(id) == Ok(false)) => return,
                    Err(e) => reason_of(&e),
                },
                (Ok(()), Some(end)) => {
                    self.beyond = (self.beyond.0 + 1, self.beyond.1.max(lsn));
                    format!("its LSN {lsn} is beyond the log's end at {end}")
                }
                (Err(e), _) => reason_of(&e),
            }
        };
        self.damaged(id, known, name, problem);
    }

    fn damaged(&mut self, id: PageId, known: bool, name: &str, problem: String) {
        match self.inspection.as_ref().filter(|_| known).map(|i| i.read_page(id)) {
            Some(Ok(())) => self.report.repaired += 1,
            _ => self.report.add(name, Some(id.page.0), problem),
        }
    }

    /// Whether all pages in use lie in the file, or will when the log has been applied.
    fn length(&mut self, space: SpaceId, pages: u64, name: &str) {
        let Some(inspection) = &self.inspection else { return };
        match inspection.pages_wanted(space) {
            Ok(wanted) if wanted > pages => {
                let lost = (pages..wanted)
                    .map(|no| PageId::new(space, PageNo(no as u32)))
                    .filter(|&id| inspection.is_in_use(id) != Ok(false) && inspection.read_page(id).is_err())
                    .count();
                if lost > 0 {
                    let what = format!("is truncated: {pages} pages of {wanted}; {lost} pages in use are lost");
                    self.report.add(name, None, what);
                }
            }
            Ok(_) => {}
            Err(e @ Error::TablespaceUnavailable { .. }) => self.report.add(name, None, reason_of(&e)),
            Err(e) => self.report.add(name, None, format!("its bitmap cannot be read: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad::{CloseMode, Engine, EngineConfig, IndexSpec, TableSpec};
    use myriad_base::codec::get_u32;
    use myriad_base::page::{format_lost, page_id, seal, set_page_lsn, PageKind, OFF_KIND};

    const PAGE: usize = 4096;

    fn engine(dir: &Path) -> std::sync::Arc<Engine> {
        let config = EngineConfig {
            page_size: PAGE,
            buffer_pool_bytes: 2 << 20,
            log_capacity_bytes: 8 << 20,
            ..EngineConfig::new(dir)
        };
        Engine::open_with(config, None).unwrap()
    }

    /// Rows enough for some 50 pages in each of the tables.
    fn fill(engine: &std::sync::Arc<Engine>, tables: &[&str]) {
        for name in tables {
            let spec = TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() };
            engine.create_table(name, &spec).unwrap();
            let table = engine.open_table(name).unwrap();
            let mut session = engine.session();
            for i in 0..1000u32 {
                session.insert(&table, &i.to_be_bytes(), &[7; 200]).unwrap();
            }
            session.commit().unwrap();
        }
    }

    /// A data directory of databases `d` and `e`, shut down cleanly.
    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(dir.path());
        fill(&engine, &["d/t", "e/t"]);
        engine.close(CloseMode::Clean).unwrap();
        dir
    }

    fn file(dir: &Path, database: &str) -> PathBuf {
        let files = tablespace_files(&dir.join(DIRECTORY)).unwrap();
        let begin = format!("{database}.");
        files.into_iter().find(|f| f.file_name().unwrap().to_str().unwrap().starts_with(&begin)).unwrap()
    }

    fn check(dir: &Path) -> Report {
        let mut report = Report::default();
        let bar = ProgressBar::hidden();
        let home = dir.join(DIRECTORY);
        Verifier::new(dir, &bar, &mut report).all(&home, &tablespace_files(&home).unwrap());
        report
    }

    fn one(dir: &Path) -> String {
        let report = check(dir);
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        format!("{}: {}", report.findings[0].file, report.findings[0].what)
    }

    #[test]
    fn clean_directory_is_clean() {
        let dir = directory();
        let report = check(dir.path());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!((report.files, report.log_bytes, report.repaired), (4, 0, 0));
        assert!(report.pages > 100);
        assert_eq!(run(dir.path(), true), Ok(true));
    }

    #[test]
    fn a_directory_that_was_not_shut_down_is_verified_with_its_log() {
        let dir = directory();
        let engine = engine(dir.path());
        fill(&engine, &["f/t", "d/u"]);
        engine.close(CloseMode::LogOnly).unwrap();
        drop(engine);
        // Pages that the log has in full, and that the file does not hold.
        let before = std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap().count();
        let f = file(dir.path(), "f");
        std::fs::File::options().write(true).open(&f).unwrap().set_len(8 * PAGE as u64).unwrap();
        let bytes = std::fs::read(&f).unwrap();
        let report = check(dir.path());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert!(report.log_bytes > 100_000);
        assert_eq!(std::fs::read(&f).unwrap(), bytes, "nothing was changed");
        assert_eq!(std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap().count(), before);
    }

    #[test]
    fn a_flipped_bit_a_lost_page_and_a_cut_file_are_found() {
        let dir = directory();
        let path = file(dir.path(), "d");
        let sound = std::fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        bytes[3 * PAGE + 77] ^= 1;
        bytes[4 * PAGE..5 * PAGE].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let report = check(dir.path());
        let pages: Vec<_> = report.findings.iter().map(|f| f.page).collect();
        assert_eq!(pages, [Some(3), Some(4)], "{:?}", report.findings);

        std::fs::write(&path, &sound[..8 * PAGE]).unwrap();
        assert!(one(dir.path()).contains("is truncated: 8 pages"));
        std::fs::write(&path, &sound[..sound.len() - 10]).unwrap();
        assert!(one(dir.path()).contains("ends in the middle of a page"));
    }

    /// A device that cannot read some of a sound file's pages.
    #[test]
    fn pages_that_cannot_be_read_are_named_and_the_others_verified() {
        let dir = directory();
        let mut bytes = std::fs::read(file(dir.path(), "d")).unwrap();
        bytes[9 * PAGE + 77] ^= 1;
        let space = page_id(&bytes[..PAGE]).space;
        let count = (bytes.len() / PAGE) as u64;
        let found = |count: u64, bad: &dyn Fn(u64) -> bool| {
            let read = |page: &mut [u8], no: u64| {
                let pages = no..no + (page.len() / PAGE) as u64;
                if pages.into_iter().any(bad) {
                    return Err(std::io::Error::from_raw_os_error(5));
                }
                page.copy_from_slice(&bytes[no as usize * PAGE..][..page.len()]);
                Ok(())
            };
            let (bar, mut report) = (ProgressBar::hidden(), Report::default());
            let pages = Pages { space, size: PAGE, count, known: false, name: "d", read: &read };
            Verifier::new(dir.path(), &bar, &mut report).contents(&pages);
            assert_eq!(report.pages, count);
            report.findings
        };
        let some = found(count, &|no| [4, 7].contains(&no));
        assert_eq!(some.iter().map(|f| f.page).collect::<Vec<_>>(), [Some(4), Some(7), Some(9)], "{some:?}");
        assert!(some[0].what.starts_with("cannot be read: ") && some[2].what.contains("checksum"), "{some:?}");
        let all = found(3 * UNREADABLE_NAMED_MAX, &|_| true);
        assert_eq!(all.len() as u64, UNREADABLE_NAMED_MAX + 1);
        assert!(all.last().unwrap().what.starts_with("300 of 300 pages cannot be read"));
    }

    /// Numbers of the undo pages that hold logs, in the file's order.
    fn undo_pages(bytes: &[u8]) -> Vec<usize> {
        let is_undo = |page: &[u8]| page[OFF_KIND] == PageKind::Undo as u8;
        bytes.chunks_exact(PAGE).enumerate().filter(|(_, page)| is_undo(page)).map(|(no, _)| no).collect()
    }

    /// A directory with the history of a transaction of many undo pages, committed or rolled back; and its undo file.
    fn directory_with_history(committed: bool) -> (tempfile::TempDir, PathBuf) {
        let dir = directory();
        let engine = engine(dir.path());
        let table = engine.open_table("d/t").unwrap();
        let mut session = engine.session();
        for i in 1000..4000u32 {
            session.insert(&table, &i.to_be_bytes(), &[8; 20]).unwrap();
        }
        if committed {
            session.commit().unwrap();
        } else {
            session.rollback().unwrap();
        }
        drop((session, table));
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        assert!(check(dir.path()).findings.is_empty());
        let path = dir.path().join(DIRECTORY).join("undo.myr");
        (dir, path)
    }

    #[test]
    fn a_lost_undo_page_is_found() {
        let (dir, path) = directory_with_history(true);
        let mut bytes = std::fs::read(&path).unwrap();
        // Within the log of the transaction: the start reads its first page and its last.
        let used = undo_pages(&bytes);
        let lost = used[used.len() - 3];
        bytes[lost * PAGE..(lost + 1) * PAGE].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let found = one(dir.path());
        assert!(found.contains("undo.myr: is in use but holds only zeros"), "{used:?}, {lost}: {found}");
        assert_eq!(check(dir.path()).findings[0].page, Some(lost as u32));
    }

    /// A slot's last page cannot be read: no start opens that slot. All else is verified with the catalog, and can be looked at.
    #[test]
    fn a_damaged_undo_page_keeps_nothing_else_from_being_verified() {
        for unfinished in [false, true] {
            let (dir, path) = directory_with_history(true);
            if unfinished {
                let engine = engine(dir.path());
                let table = engine.open_table("d/t").unwrap();
                let mut session = engine.session();
                session.insert(&table, b"never committed", b"x").unwrap();
                session.prepare(b"x").unwrap();
                session.detach_prepared();
                drop((session, table));
                engine.close(CloseMode::Clean).unwrap();
            }
            let mut bytes = std::fs::read(&path).unwrap();
            let slots = get_u32(&bytes, PAGE + 52) as usize;
            let tails: Vec<u32> = (0..slots).map(|slot| get_u32(&bytes, PAGE + 64 + 8 * slot + 4)).collect();
            let tails: Vec<u32> = tails.into_iter().filter(|&page| page != PageNo::NONE.0).collect();
            assert!(!tails.is_empty());
            for &tail in &tails {
                bytes[tail as usize * PAGE + 3000] ^= 1;
            }
            std::fs::write(&path, &bytes).unwrap();
            let report = check(dir.path());
            let found: Vec<_> = report.findings.iter().filter_map(|f| f.page).collect();
            assert_eq!((found, report.findings.len()), (tails.clone(), tails.len()), "{:?}", report.findings);
            let inspection = Inspection::open(dir.path()).unwrap();
            assert_eq!(inspection.list().unwrap().len(), 4);
        }
    }

    #[test]
    fn a_cut_undo_file_is_found() {
        // Rolled back: the pages at the end are free.
        let (dir, path) = directory_with_history(false);
        let bytes = std::fs::read(&path).unwrap();
        let last = *undo_pages(&bytes).last().unwrap();
        std::fs::write(&path, &bytes[..(last - 1) * PAGE]).unwrap();
        let found = one(dir.path());
        assert!(found.contains("undo.myr: is truncated") && found.contains("; 2 pages in use are lost"), "{found}");
    }

    /// Makes the pages of the file newer than the log.
    fn make_newer(path: &Path, pages: &[usize]) {
        let mut bytes = std::fs::read(path).unwrap();
        for &no in pages {
            let page = &mut bytes[no * PAGE..(no + 1) * PAGE];
            set_page_lsn(page, Lsn(page_lsn(page).0 + 1_000_000_000));
            seal(page);
        }
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn pages_newer_than_the_log_are_found() {
        let dir = directory();
        make_newer(&file(dir.path(), "d"), &[3, 4]);
        let report = check(dir.path());
        let pages: Vec<_> = report.findings.iter().map(|f| f.page).collect();
        assert_eq!(pages, [Some(3), Some(4), None], "{:?}", report.findings);
        assert!(report.findings[1].what.contains("beyond the log's end at"));
        let log = &report.findings[2];
        assert!(log.file.ends_with("redo.log") && log.what.contains("2 pages are newer"), "{}", log.what);
        // In a file of another directory they mean nothing.
        std::fs::copy(file(dir.path(), "d"), dir.path().join(DIRECTORY).join("x.myr")).unwrap();
        assert_eq!(check(dir.path()).findings.len(), 4);
    }

    #[test]
    fn pages_newer_than_the_log_are_found_where_the_start_reads_one() {
        let dir = directory();
        let undo = dir.path().join(DIRECTORY).join("undo.myr");
        // The directory too: no start opens anything without it.
        let mut used = undo_pages(&std::fs::read(&undo).unwrap());
        used.insert(0, 1);
        make_newer(&file(dir.path(), "d"), &[3]);
        make_newer(&undo, &used);
        let report = check(dir.path());
        assert!(report.findings[0].what.contains("the catalog cannot be read"), "{:?}", report.findings);
        assert_eq!(report.findings[1].page, Some(3), "{:?}", report.findings);
        let pages: Vec<_> = report.findings[2..].iter().map_while(|f| f.page).map(|no| no as usize).collect();
        assert_eq!(pages, used);
        let what = &report.findings.last().unwrap().what;
        assert!(what.contains(&format!("{} pages are newer", used.len() + 1)), "{what}");
    }

    /// Zeros that nobody needs are not called lost for want of the catalog.
    #[test]
    fn a_damaged_catalog_page_is_found_as_that() {
        let dir = directory();
        make_newer(&dir.path().join(DIRECTORY).join("system.myr"), &[2]);
        make_newer(&file(dir.path(), "d"), &[3]);
        let report = check(dir.path());
        assert!(report.findings[0].what.contains("could not go on"), "{:?}", report.findings);
        let pages: Vec<_> = report.findings.iter().filter_map(|f| f.page).collect();
        assert_eq!(pages, [3, 2], "{:?}", report.findings);
        // What is wrong with the catalog is not told as the files' fault.
        let of_files = |f: &&crate::report::Finding| f.page.is_none() && f.file.ends_with(".myr");
        assert_eq!(report.findings.iter().filter(of_files).count(), 0, "{:?}", report.findings);
    }

    /// Replaces the page by one that says that it lost changes.
    fn lose(path: &Path, no: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        let page = &mut bytes[no * PAGE..(no + 1) * PAGE];
        let (id, lsn) = (page_id(page), page_lsn(page));
        format_lost(page, id, lsn, "a bad read");
        seal(page);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_page_that_lost_changes_is_found_while_it_is_in_use() {
        let dir = directory();
        lose(&file(dir.path(), "d"), 3);
        let found = one(dir.path());
        assert!(found.contains("are lost: a bad read"), "{found}");
        assert_eq!(check(dir.path()).findings[0].page, Some(3));
        let engine = engine(dir.path());
        engine.drop_database("e").unwrap();
        engine.create_table("f/t", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() }).unwrap();
        engine.close(CloseMode::Clean).unwrap();
        drop(engine);
        let path = file(dir.path(), "f");
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(is_zero(&bytes[3 * PAGE..4 * PAGE]), "set aside, not in use");
        let (header, unused) = bytes.split_at_mut(3 * PAGE);
        myriad_base::page::format(&mut unused[..PAGE], PageId::new(page_id(header).space, PageNo(3)), PageKind::Index);
        std::fs::write(&path, bytes).unwrap();
        lose(&path, 3);
        assert_eq!(check(dir.path()).findings.len(), 1);
    }

    #[test]
    fn a_file_that_has_missed_changes_is_found() {
        let dir = directory();
        let running = engine(dir.path());
        fill(&running, &["d/u"]);
        running.close(CloseMode::LogOnly).unwrap();
        drop(running);
        let (path, away) = (file(dir.path(), "d"), dir.path().join("away"));
        std::fs::rename(&path, &away).unwrap();
        // Until the log has no room for what the file waits for.
        let running = engine(dir.path());
        (0..40).for_each(|n| fill(&running, &[&format!("e/t{n}")]));
        running.close(CloseMode::Clean).unwrap();
        drop(running);
        std::fs::rename(&away, &path).unwrap();
        let found = one(dir.path());
        assert!(found.contains("/d.") && found.contains("missed changes up to LSN"), "{found}");
    }

    #[test]
    fn room_set_aside_beyond_the_last_bitmap_is_no_loss() {
        let dir = directory();
        let file = File::options().write(true).open(file(dir.path(), "d")).unwrap();
        file.set_len(u64::from(myriad_btree::alloc::group_pages(PAGE) + 64) * PAGE as u64).unwrap();
        assert!(check(dir.path()).findings.is_empty());
    }

    #[test]
    fn a_lost_bitmap_page_is_found_as_that() {
        let dir = directory();
        let path = file(dir.path(), "d");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[PAGE..2 * PAGE].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let report = check(dir.path());
        let pages: Vec<_> = report.findings.iter().map(|f| f.page).collect();
        assert_eq!(pages, [Some(1), None], "{:?}", report.findings);
        assert!(report.findings[1].what.contains("its bitmap cannot be read"));
    }

    #[test]
    fn files_are_held_against_the_catalog() {
        let dir = directory();
        let (d, e) = (file(dir.path(), "d"), file(dir.path(), "e"));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
        let away = dir.path().join("away");
        std::fs::rename(&d, &away).unwrap();
        assert!(one(dir.path()).starts_with(&format!("{DIRECTORY}/{}: the file is missing", name(&d))));
        let other = directory();
        std::fs::copy(file(other.path(), "d"), &d).unwrap();
        assert!(one(dir.path()).contains("another data directory") || one(dir.path()).contains("UUID"));
        std::fs::rename(&away, &d).unwrap();
        std::fs::copy(&e, dir.path().join(DIRECTORY).join("e.myr")).unwrap();
        assert!(one(dir.path()).contains(&format!("as does {}", name(&e))));
    }

    #[test]
    fn without_a_catalog_the_files_are_still_verified() {
        let dir = directory();
        let path = file(dir.path(), "d");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3 * PAGE + 77] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(dir.path().join(DIRECTORY).join("redo.log"), "no log").unwrap();
        let report = check(dir.path());
        assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
        assert!(report.findings[0].what.contains("the catalog cannot be read"));
        assert_eq!(report.findings[1].page, Some(3));
    }

    #[test]
    fn no_directory_is_an_error_not_a_finding() {
        assert!(run(Path::new("/nonexistent"), false).is_err());
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = directory();
        let held = File::open(dir.path().join(DIRECTORY).join("myriad.lock")).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(run(dir.path(), false).unwrap_err().contains("in use"));
    }
}
