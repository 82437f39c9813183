//! `myriad verify`: every page of every tablespace against its checksum and its identity.

use crate::report::{reason_of, Report};
use indicatif::{ProgressBar, ProgressStyle};
use myriad_base::page::{is_zero, verify};
use myriad_base::{limits, PageId, PageNo};
use myriad_space::{SpaceHeader, HEADER_READ_BYTES};
use rustix::fs::{flock, FlockOperation};
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Pages read at a time.
const BATCH_PAGES: usize = 64;

/// Verifies all tablespaces under `dir`; true if nothing was found.
///
/// # Errors
/// A sentence, where the check could not be run: no such directory, in use by a server, unreadable.
pub fn run(dir: &Path, json: bool) -> Result<bool, String> {
    let home = dir.join("#myriad");
    let _lock = lock(&home)?;
    let files = tablespace_files(&home)?;
    let total: u64 = files.iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
    let bar = if json || !std::io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new(total) };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left").expect("a constant"),
    );
    let start = Instant::now();
    let mut report = Report::default();
    for path in &files {
        let name = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        report.files += 1;
        if let Err(e) = verify_file(path, &name, &mut report, &bar) {
            report.add(&name, None, format!("cannot be read: {e}"));
        }
    }
    bar.finish_and_clear();
    report.seconds = start.elapsed().as_secs_f64();
    report.print(json);
    Ok(report.findings.is_empty())
}

fn lock(home: &Path) -> Result<File, String> {
    let path = home.join("myriad.lock");
    let file = File::open(&path).map_err(|e| format!("{} is not a Myriad data directory: {e}", home.display()))?;
    flock(&file, FlockOperation::NonBlockingLockShared)
        .map_err(|_| format!("{} is in use by a server; stop it first", home.display()))?;
    Ok(file)
}

fn tablespace_files(home: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(home).map_err(|e| format!("cannot list {}: {e}", home.display()))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "myr")).collect();
    files.sort();
    Ok(files)
}

fn verify_file(path: &Path, name: &str, report: &mut Report, bar: &ProgressBar) -> std::io::Result<()> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut head = [0u8; HEADER_READ_BYTES];
    if len < head.len() as u64 {
        report.add(name, None, format!("is {len} bytes long: too short for a tablespace"));
        return Ok(());
    }
    file.read_exact_at(&mut head, 0)?;
    let header = match SpaceHeader::parse(&head, name) {
        Ok(header) => header,
        Err(e) => {
            report.add(name, Some(0), reason_of(&e));
            return Ok(());
        }
    };
    let (space, page_size) = (header.id, header.page_size as usize);
    if !page_size.is_power_of_two() || !(limits::PAGE_SIZE_MIN..=limits::PAGE_SIZE_MAX).contains(&page_size) {
        report.add(name, Some(0), format!("says its pages have {page_size} bytes"));
        return Ok(());
    }
    if !len.is_multiple_of(page_size as u64) {
        report.add(name, None, format!("ends in the middle of a page ({len} bytes)"));
    }
    let mut buf = vec![0u8; page_size * BATCH_PAGES];
    let pages = len / page_size as u64;
    let mut no = 0u64;
    while no < pages {
        let batch = (pages - no).min(BATCH_PAGES as u64) as usize;
        let bytes = &mut buf[..batch * page_size];
        file.read_exact_at(bytes, no * page_size as u64)?;
        for (i, page) in bytes.chunks_exact(page_size).enumerate() {
            let id = PageId::new(space, PageNo(no as u32 + i as u32));
            if is_zero(page) {
                continue;
            }
            if let Err(e) = verify(page, id) {
                report.add(name, Some(id.page.0), reason_of(&e));
            }
        }
        report.pages += batch as u64;
        report.bytes += bytes.len() as u64;
        bar.inc(bytes.len() as u64);
        no += batch as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::page::{format, seal, PageKind};
    use myriad_base::{Lsn, SpaceId};

    fn page(no: u32, kind: PageKind) -> Vec<u8> {
        let mut p = vec![0u8; 4096];
        if kind == PageKind::SpaceHeader {
            SpaceHeader { id: SpaceId(16), uuid: [7; 16], page_size: 4096, creation_lsn: Lsn(1) }.format(&mut p);
        } else {
            format(&mut p, PageId::new(SpaceId(16), PageNo(no)), kind);
            seal(&mut p);
        }
        p
    }

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("#myriad");
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("myriad.lock"), "").unwrap();
        let mut bytes = page(0, PageKind::SpaceHeader);
        bytes.extend(page(1, PageKind::Bitmap));
        bytes.extend([0u8; 4096]);
        bytes.extend(page(3, PageKind::Index));
        std::fs::write(home.join("a.myr"), bytes).unwrap();
        dir
    }

    fn check(dir: &Path) -> Report {
        let mut report = Report::default();
        let home = dir.join("#myriad");
        for f in tablespace_files(&home).unwrap() {
            verify_file(&f, "a.myr", &mut report, &ProgressBar::hidden()).unwrap();
        }
        report
    }

    #[test]
    fn clean_directory_is_clean() {
        let dir = directory();
        let report = check(dir.path());
        assert_eq!((report.pages, report.findings.len()), (4, 0));
        assert_eq!(run(dir.path(), true), Ok(true));
    }

    #[test]
    fn a_flipped_bit_and_a_cut_file_are_found() {
        let dir = directory();
        let path = dir.path().join("#myriad/a.myr");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3 * 4096 + 77] ^= 1;
        bytes.truncate(bytes.len());
        bytes.extend([1u8; 10]);
        std::fs::write(&path, bytes).unwrap();
        let report = check(dir.path());
        assert_eq!(report.findings.len(), 2);
        assert_eq!(report.findings[1].page, Some(3));
    }

    #[test]
    fn no_directory_is_an_error_not_a_finding() {
        assert!(run(Path::new("/nonexistent"), false).is_err());
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = directory();
        let held = File::open(dir.path().join("#myriad/myriad.lock")).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(run(dir.path(), false).unwrap_err().contains("in use"));
    }
}
