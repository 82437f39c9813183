//! The second look at what seems wrong, against the catalog as it is now.

use super::expected::Expected;
use super::heads::is_want;
use super::{judge_head, read_head, text_of, CheckOptions, Finding, Known, KnownSpace, Problem};
use crate::header::SpaceHeader;
use myriad_base::page::verify;
use myriad_base::{Error, PageId, PageNo, Result, SpaceId};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) struct Confirm<'a> {
    pub(super) root: &'a Path,
    pub(super) known: &'a dyn Known,
    pub(super) options: CheckOptions,
    pub(super) expected: &'a Expected,
    pub(super) found: &'a (dyn Fn(Finding) + Sync),
    /// Why the catalog could not be asked, or no file be opened, the first time.
    pub(super) failure: Mutex<Option<Error>>,
    /// Descriptors or memory are wanting, and have been for a while: the check ends.
    pub(super) starved: AtomicBool,
}

/// Attempts to open a file while descriptors or memory are wanting, and the pause between two.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The id in a file's name, `<database>.<id>.myr`, or that of one of the engine's own files.
fn id_in_name(path: &str) -> Option<SpaceId> {
    match path.rsplit('/').next()?.strip_suffix(".myr")? {
        "system" => Some(SpaceId::SYSTEM),
        "undo" => Some(SpaceId::UNDO),
        stem => stem.rsplit('.').next()?.parse().ok().map(SpaceId),
    }
}

impl Confirm<'_> {
    fn note_failure(&self, result: Result<()>) {
        if let Err(e) = result {
            self.failure.lock().get_or_insert(e);
        }
    }

    /// Waits for descriptors and memory.
    fn read(&self, file: &Path) -> std::io::Result<(u64, Vec<u8>)> {
        for _ in 0..ATTEMPTS {
            match read_head(file, self.options.whole_bytes()) {
                Err(e) if is_want(&e) => std::thread::sleep(PAUSE),
                other => return other,
            }
        }
        read_head(file, self.options.whole_bytes())
    }

    /// Page 1 of what was read, if it is sound: it may be under way to the file just now.
    fn page_one<'b>(&self, bytes: &'b [u8], space: SpaceId) -> &'b [u8] {
        let size = self.options.page_size;
        let page = bytes.get(size..2 * size).unwrap_or(&[]);
        match page.is_empty() || verify(page, PageId::new(space, PageNo(1))).is_err() {
            true => &[],
            false => page,
        }
    }

    /// A file that is not beyond doubt; its path is relative to the root.
    pub(super) fn file(&self, path: &Path) {
        self.note_failure(self.look_at(path));
    }

    /// Something on the way that is no file.
    pub(super) fn odd(&self, finding: Finding) {
        let place = self.owner(&finding.path);
        self.note_failure(place.map(|owner| {
            let space = owner.map(|o| o.id);
            space.map(|id| self.expected.see(id));
            (self.found)(Finding { space, ..finding });
        }));
    }

    /// A tablespace whose file was not come upon.
    pub(super) fn absent(&self, id: SpaceId) {
        self.note_failure(self.look_for(id));
    }

    /// The tablespace that the catalog has at this path.
    fn owner(&self, path: &str) -> Result<Option<KnownSpace>> {
        let Some(id) = id_in_name(path) else { return Ok(None) };
        Ok(self.known.find(id)?.filter(|k| k.path == path))
    }

    fn look_at(&self, path: &Path) -> Result<()> {
        let file = &self.root.join(path);
        let path = text_of(path);
        let report = |space: Option<SpaceId>, problem, other: Option<&str>, detail: String| {
            let other = other.map(str::to_string);
            (self.found)(Finding { space, file: file.into(), path: path.clone(), problem, other, detail });
        };
        let read = self.read(file);
        if let Some(e) = read.as_ref().err().filter(|e| is_want(e)) {
            self.starved.store(true, Ordering::Relaxed);
            return Err(Error::io("open", text_of(file), e.raw_os_error().unwrap_or(0)));
        }
        if read.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        let (len, bytes) = match &read {
            Ok((len, bytes)) => (*len, Ok(bytes.as_slice())),
            Err(e) => (0, Err(e)),
        };
        let judged = judge_head(bytes, len, Some(self.options.page_size));
        let owner = self.owner(&path)?;
        // After the file was read: whatever was seen of a creation under way is told by it.
        if self.known.touched(&path) || owner.as_ref().is_some_and(|o| !o.settled) {
            return Ok(());
        }
        if let Some(owner) = &owner {
            self.expected.see(owner.id);
        }
        let header = match judged {
            Ok(header) => header,
            Err((problem, detail)) => {
                report(owner.map(|o| o.id), problem, None, detail);
                return Ok(());
            }
        };
        let Some(claimed) = self.known.find(header.id)? else {
            // A dropped file goes before its row does.
            if std::fs::symlink_metadata(file).is_ok() {
                let detail = format!("says it is tablespace {}, which the catalog does not know", header.id);
                let problem = if owner.is_some() { Problem::Foreign } else { Problem::Unknown };
                report(Some(owner.map_or(header.id, |o| o.id)), problem, None, detail);
            }
            return Ok(());
        };
        if claimed.path == path && claimed.uuid == header.uuid {
            self.expected.see(header.id);
            let page_one = bytes.map_or(&[][..], |b| self.page_one(b, header.id));
            if let Some(detail) = self.options.too_short(header.id, len, page_one) {
                report(Some(header.id), Problem::Truncated, None, detail);
            }
        } else if claimed.uuid != header.uuid {
            let detail = format!(
                "says it is tablespace {} with UUID {}; the catalog's has {}: it is of another data directory",
                header.id,
                hex(&header.uuid),
                hex(&claimed.uuid)
            );
            let space = owner.map_or(header.id, |o| o.id);
            report(Some(space), Problem::Foreign, (claimed.path != path).then_some(&*claimed.path), detail);
        } else {
            self.elsewhere(file, &path, &header, &claimed, owner.as_ref());
        }
        Ok(())
    }

    /// A file that is, by its header, a tablespace whose place is another one.
    fn elsewhere(
        &self,
        file: &Path,
        path: &str,
        header: &SpaceHeader,
        claimed: &KnownSpace,
        owner: Option<&KnownSpace>,
    ) {
        let finding = |space: SpaceId, problem, detail: String| {
            let other = Some(claimed.path.clone());
            let (space, path) = (Some(space), path.into());
            (self.found)(Finding { space, file: file.into(), path, problem, other, detail });
        };
        if let Some(owner) = owner {
            let detail = format!("is the file of tablespace {}, not of {}", header.id, owner.id);
            finding(owner.id, Problem::Foreign, detail);
            return;
        }
        if self.known.touched(&claimed.path) || !claimed.settled {
            return;
        }
        let place = self.root.join(&claimed.path);
        let there = self.read(&place);
        let rightful = there.as_ref().ok().and_then(|(len, b)| judge_head(Ok(b), *len, None).ok());
        if rightful.is_some_and(|h| h.id == header.id && h.uuid == header.uuid) {
            let detail = format!("says it is tablespace {}, as does {}", header.id, claimed.path);
            finding(header.id, Problem::Duplicate, detail);
        } else {
            let detail = format!("is tablespace {}; the catalog has it at {}", header.id, claimed.path);
            finding(header.id, Problem::Moved, detail);
        }
    }

    fn look_for(&self, id: SpaceId) -> Result<()> {
        let Some(before) = self.known.find(id)? else { return Ok(()) };
        let file = self.root.join(&before.path);
        let met = std::fs::symlink_metadata(&file);
        // In this order: the file of a tablespace that is settled after it was missed must be there.
        let Some(now) = self.known.find(id)?.filter(|now| now.settled && now.path == before.path) else {
            return Ok(());
        };
        let (problem, detail) = match met {
            Err(e) if e.kind() == ErrorKind::NotFound => (Problem::Missing, "the file is missing".to_string()),
            Err(e) => (Problem::Unreadable, format!("cannot be looked at: {e}")),
            Ok(meta) if meta.is_dir() => (Problem::Damaged, "is a folder".to_string()),
            // Came after its folder was read, or under a name without the extension.
            Ok(meta) if meta.is_file() => return self.look_at(Path::new(&before.path)),
            Ok(_) => return Ok(()),
        };
        let detail = format!("{detail}; the catalog has tablespace {id} here");
        (self.found)(Finding { space: Some(id), file, path: now.path, problem, other: None, detail });
        Ok(())
    }
}
