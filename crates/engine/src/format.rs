//! The file that says what a data directory is, and the directory's creation.
//!
//! `#myriad/FORMAT` is text: `myriad <version>`, `page_size <bytes>`, `uuid <32 hex digits>`, a line each. It is written
//! last when a directory is created; `CREATING` is there from the first step until then. So a crash in between leaves
//! `CREATING` without `FORMAT`, and only then the next start begins anew. A folder with
//! `INCOMPLETE` is a backup that is not whole, and refused.

use myriad_base::{limits, Error, Result};
use myriad_io::{Create, Io, OpenMode};
use myriad_space::check::LOST_AND_FOUND;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of the formats on disk.
pub(crate) const FORMAT_VERSION: u32 = 2;
pub(crate) const FORMAT_FILE: &str = "FORMAT";
const CREATING_FILE: &str = "CREATING";
/// Marks a backup that is not whole.
pub(crate) const INCOMPLETE_FILE: &str = "INCOMPLETE";
pub(crate) const LOCK_FILE: &str = "myriad.lock";
/// The engine's folder in the data directory.
pub(crate) const FOLDER: &str = "#myriad";

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) page_size: usize,
    pub(crate) uuid: [u8; 16],
}

/// What is there.
pub(crate) enum Found {
    /// A data directory.
    Existing(Format),
    /// Nothing, or a creation that was interrupted.
    New,
}

fn format_error(path: &Path, reason: String) -> Error {
    Error::Format { path: path.display().to_string(), reason }
}

/// Names in the folder, but for what the file system has there for itself if it is mounted as that folder.
pub(crate) fn list(io: &Arc<dyn Io>, folder: &Path) -> Result<Vec<String>> {
    let mut names = io.list_dir(folder)?;
    names.retain(|name| name != LOST_AND_FOUND);
    Ok(names)
}

/// Looks at the folder.
pub(crate) fn look(io: &Arc<dyn Io>, folder: &Path) -> Result<Found> {
    let path = folder.join(FORMAT_FILE);
    if io.exists(&folder.join(INCOMPLETE_FILE))? {
        return Err(format_error(folder, "it is a backup that did not come to its end".into()));
    }
    if io.exists(&path)? {
        let format = parse(&path, &read(io, &path)?)?;
        // A crash right after the creation left it: never may it say so once there are data.
        remove_marker(io, folder, CREATING_FILE)?;
        return Ok(Found::Existing(format));
    }
    if io.exists(&folder.join(CREATING_FILE))? {
        return Ok(Found::New);
    }
    let strays: Vec<String> = list(io, folder)?.into_iter().filter(|name| name != LOCK_FILE).collect();
    match strays.first() {
        None => Ok(Found::New),
        Some(name) => Err(format_error(&path, format!("the file is missing, but {name} is there"))),
    }
}

fn read(io: &Arc<dyn Io>, path: &Path) -> Result<Vec<u8>> {
    let file = io.open(path, OpenMode::READ)?;
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(4096);
    let mut bytes = vec![0; len];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Format> {
    let text = std::str::from_utf8(bytes).map_err(|_| format_error(path, "it is not text".into()))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::trim));
    let version = field("myriad").ok_or_else(|| format_error(path, "it does not say \"myriad\"".into()))?;
    if version.parse() != Ok(FORMAT_VERSION) {
        let reason = format!("format version {version}; this program knows version {FORMAT_VERSION}");
        return Err(format_error(path, reason));
    }
    let page_size = field("page_size").and_then(|v| v.parse().ok()).filter(|&size| valid_page_size(size));
    let page_size = page_size.ok_or_else(|| format_error(path, "no valid page size".into()))?;
    let uuid = field("uuid").and_then(parse_hex).ok_or_else(|| format_error(path, "no valid UUID".into()))?;
    Ok(Format { page_size, uuid })
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut out = [0; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

/// Whether pages may have this size.
pub(crate) fn valid_page_size(size: usize) -> bool {
    size.is_power_of_two() && (limits::PAGE_SIZE_MIN..=limits::PAGE_SIZE_MAX).contains(&size)
}

/// First step of creating a directory: removes what an interrupted creation left.
pub(crate) fn begin_creation(io: &Arc<dyn Io>, folder: &Path) -> Result<()> {
    let marker = folder.join(CREATING_FILE);
    write(io, folder, &marker, b"This folder is being created.\n")?;
    for name in list(io, folder)? {
        if name != CREATING_FILE && name != LOCK_FILE {
            io.remove_file(&folder.join(name))?;
        }
    }
    io.sync_dir(folder)
}

/// Last step: from here on the directory is whole.
pub(crate) fn end_creation(io: &Arc<dyn Io>, folder: &Path, format: Format) -> Result<()> {
    let temporary = write_new(io, folder, format)?;
    io.rename(&temporary, &folder.join(FORMAT_FILE))?;
    io.sync_dir(folder)?;
    remove_marker(io, folder, CREATING_FILE)
}

/// Writes the file under the name that it has before it counts.
fn write_new(io: &Arc<dyn Io>, folder: &Path, format: Format) -> Result<PathBuf> {
    let uuid: String = format.uuid.iter().map(|b| format!("{b:02x}")).collect();
    let text = format!("myriad {FORMAT_VERSION}\npage_size {}\nuuid {uuid}\n", format.page_size);
    let temporary = folder.join("FORMAT.new");
    write(io, folder, &temporary, text.as_bytes())?;
    Ok(temporary)
}

/// First step of a backup.
pub(crate) fn begin_backup(io: &Arc<dyn Io>, folder: &Path) -> Result<()> {
    write(io, folder, &folder.join(INCOMPLETE_FILE), b"This backup did not come to its end.\n")
}

/// Last step of a backup, all of whose files are durable: with the removal of the mark it is whole.
pub(crate) fn end_backup(io: &Arc<dyn Io>, folder: &Path, format: Format) -> Result<()> {
    // Those who only read a directory lock it, but do not make the file.
    write(io, folder, &folder.join(LOCK_FILE), b"")?;
    let temporary = write_new(io, folder, format)?;
    io.rename(&temporary, &folder.join(FORMAT_FILE))?;
    io.sync_dir(folder)?;
    remove_marker(io, folder, INCOMPLETE_FILE)
}

/// The folder is not being created any more.
fn remove_marker(io: &Arc<dyn Io>, folder: &Path, name: &str) -> Result<()> {
    let marker = folder.join(name);
    if !io.exists(&marker)? {
        return Ok(());
    }
    io.remove_file(&marker)?;
    io.sync_dir(folder)
}

fn write(io: &Arc<dyn Io>, folder: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = io.open(path, OpenMode { create: Create::IfMissing, direct: false, write: true })?;
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    io.sync_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_left_behind_goes_before_there_are_data() {
        let io: Arc<dyn Io> = Arc::new(myriad_io::SimIo::new(1));
        let folder = Path::new("/d");
        io.create_dir(folder).expect("folder");
        let format = Format { page_size: 4096, uuid: [7; 16] };
        begin_creation(&io, folder).expect("begin");
        end_creation(&io, folder, format).expect("end");
        write(&io, folder, &folder.join(CREATING_FILE), b"").expect("as a crash in between leaves it");
        assert!(matches!(look(&io, folder), Ok(Found::Existing(f)) if f == format));
        io.remove_file(&folder.join(FORMAT_FILE)).expect("lost");
        write(&io, folder, &folder.join("system.myr"), b"data").expect("data");
        assert!(matches!(look(&io, folder), Err(Error::Format { .. })));
    }

    #[test]
    fn the_folder_of_a_file_system_for_itself_is_not_ours() {
        let io: Arc<dyn Io> = Arc::new(myriad_io::SimIo::new(1));
        let folder = Path::new("/d");
        let theirs = folder.join(LOST_AND_FOUND);
        io.create_dir(&theirs).expect("folder");
        assert!(matches!(look(&io, folder), Ok(Found::New)));
        begin_creation(&io, folder).expect("begin");
        end_creation(&io, folder, Format { page_size: 4096, uuid: [7; 16] }).expect("end");
        assert!(matches!(look(&io, folder), Ok(Found::Existing(_))));
        assert!(io.exists(&theirs).expect("still there"));
    }

    #[test]
    fn text_is_checked() {
        let path = Path::new("FORMAT");
        let good = "myriad 2\npage_size 16384\nuuid 000102030405060708090a0b0c0d0eff\n";
        let format = parse(path, good.as_bytes()).expect("good");
        assert_eq!((format.page_size, format.uuid[15]), (16384, 255));
        for bad in ["", "myriad 2\npage_size 100\n", "myriad 2\npage_size 4096\nuuid zz\n", "\u{0}"] {
            assert!(matches!(parse(path, bad.as_bytes()), Err(Error::Format { .. })), "{bad:?}");
        }
        assert!(parse(path, &[0xff, 0xfe]).is_err());
        for other in ["1", "3"] {
            let text = good.replace("myriad 2", &format!("myriad {other}"));
            let error = parse(path, text.as_bytes()).expect_err("another version").to_string();
            assert!(error.contains(&format!("format version {other}")), "{error}");
        }
    }
}
