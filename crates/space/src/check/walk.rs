//! The files under a folder, one by one: the names of one buffer of each open folder are in memory, never all.

use super::{text_of, Problem};
use crate::check::Finding;
use std::fs::ReadDir;
use std::path::{Path, PathBuf};

/// Folders inside each other, at most: deeper ones are reported, not read.
const DEPTH_MAX: usize = 32;

/// The extension of tablespace files.
pub const EXTENSION: &str = "myr";

/// Walks a folder and those below it. Symbolic links are not followed.
pub(super) struct Walk {
    root: PathBuf,
    open: Vec<(PathBuf, ReadDir)>,
}

/// What [`Walk::next`] comes upon.
pub(super) enum Step {
    /// A file with the extension, absolute.
    File(PathBuf),
    /// Something that cannot be a tablespace, or could not be looked at.
    Odd(Finding),
}

impl Walk {
    /// Begins at `root`.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(super) fn new(root: &Path) -> std::io::Result<Walk> {
        Ok(Walk { root: root.into(), open: vec![(root.into(), std::fs::read_dir(root)?)] })
    }

    fn odd(&self, path: &Path, problem: Problem, detail: String) -> Option<Step> {
        let text = text_of(path.strip_prefix(&self.root).unwrap_or(path));
        Some(Step::Odd(Finding { space: None, file: path.into(), path: text, problem, other: None, detail }))
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        loop {
            let (folder, entries) = self.open.last_mut()?;
            let entry = match entries.next() {
                None => {
                    self.open.pop();
                    continue;
                }
                Some(Ok(entry)) => entry,
                Some(Err(e)) => {
                    let folder = folder.clone();
                    self.open.pop();
                    return self.odd(&folder, Problem::Unreadable, format!("the folder cannot be listed: {e}"));
                }
            };
            let path = entry.path();
            let named = path.extension().is_some_and(|x| x == EXTENSION);
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                // Gone since it was listed, or unknown; the latter matters only for a tablespace.
                Err(_) if !named => continue,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return self.odd(&path, Problem::Unreadable, format!("cannot be looked at: {e}")),
            };
            if kind.is_dir() {
                if self.open.len() == DEPTH_MAX {
                    return self.odd(&path, Problem::Unreadable, "the folder lies too deep: not looked into".into());
                }
                match std::fs::read_dir(&path) {
                    Ok(entries) => self.open.push((path, entries)),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    Err(e) => return self.odd(&path, Problem::Unreadable, format!("the folder cannot be listed: {e}")),
                }
            } else if named && kind.is_file() {
                return Some(Step::File(path));
            } else if named && kind.is_symlink() {
                return self.odd(&path, Problem::Link, "is a symbolic link: not followed".into());
            } else if named {
                return self.odd(&path, Problem::Damaged, "is neither a file nor a folder".into());
            }
        }
    }
}
