//! The files under a folder, one by one: some thousands of names are in memory, never all.

use super::{text_of, FileSystem, Named, Problem};
use crate::check::Finding;
use std::fs::ReadDir;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// Folders inside each other, at most: deeper ones are reported, not read.
const DEPTH_MAX: usize = 32;

/// The extension of tablespace files.
pub const EXTENSION: &str = "myr";

/// What some file systems have in their root, for themselves.
pub const LOST_AND_FOUND: &str = "lost+found";

/// Files given in the order of their inodes; see [`NextFile`](super::NextFile).
const BATCH: usize = 8192;

/// Walks a folder and those below it. Symbolic links are not followed.
pub(super) struct Walk {
    root: PathBuf,
    file_system: FileSystem,
    /// Folders being read, each in the one before it.
    open: Vec<Folder>,
    /// Files come upon, with their inodes' numbers.
    batch: Vec<(u64, Named)>,
    /// Whether the batch is being given, the last of it first.
    giving: bool,
}

struct Folder {
    /// Relative to the root.
    path: PathBuf,
    entries: ReadDir,
    /// Whether it is in the root's file system.
    same: bool,
}

/// What [`Walk::next`] comes upon.
pub(super) enum Step {
    /// A file with the extension.
    File(Named),
    /// Something that cannot be a tablespace, or could not be looked at.
    Odd(Finding),
}

impl Walk {
    /// Begins at `root`.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(super) fn new(root: &Path) -> std::io::Result<Walk> {
        let open = vec![Folder { path: PathBuf::new(), entries: std::fs::read_dir(root)?, same: true }];
        Ok(Walk { root: root.into(), file_system: FileSystem::of(root), open, batch: Vec::new(), giving: false })
    }

    fn odd(&self, path: &Path, problem: Problem, detail: String) -> Option<Finding> {
        let file = self.root.join(path);
        Some(Finding { space: None, file, path: text_of(path), problem, other: None, detail })
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        if !self.giving {
            while self.batch.len() < BATCH && !self.open.is_empty() {
                if let Some(finding) = self.read_entry() {
                    return Some(Step::Odd(finding));
                }
            }
            self.batch.sort_unstable_by_key(|file| std::cmp::Reverse(file.0));
        }
        let file = self.batch.pop();
        self.giving = !self.batch.is_empty();
        file.map(|file| Step::File(file.1))
    }

    /// Reads on in the innermost folder: a file goes to the batch, what is odd to the caller.
    fn read_entry(&mut self) -> Option<Finding> {
        let folder = self.open.last_mut()?;
        let entry = match folder.entries.next() {
            None => {
                self.open.pop();
                return None;
            }
            Some(Ok(entry)) => entry,
            Some(Err(e)) => {
                let folder = self.open.pop()?.path;
                return self.odd(&folder, Problem::Unreadable, format!("the folder cannot be listed: {e}"));
            }
        };
        let (path, same) = (folder.path.join(entry.file_name()), folder.same);
        let named = path.extension().is_some_and(|x| x == EXTENSION);
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            // Gone since it was listed, or unknown; the latter matters only for a tablespace.
            Err(_) if !named => return None,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            Err(e) => return self.odd(&path, Problem::Unreadable, format!("cannot be looked at: {e}")),
        };
        if kind.is_dir() {
            if self.open.len() == 1 && path.as_os_str() == LOST_AND_FOUND {
                return None;
            }
            if self.open.len() == DEPTH_MAX {
                return self.odd(&path, Problem::Unreadable, "the folder lies too deep: not looked into".into());
            }
            match std::fs::read_dir(self.root.join(&path)) {
                Ok(entries) => {
                    let same = self.file_system.holds(&self.root.join(&path));
                    self.open.push(Folder { path, entries, same });
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return self.odd(&path, Problem::Unreadable, format!("the folder cannot be listed: {e}")),
            }
        } else if named && kind.is_file() {
            let inode = entry.ino();
            self.batch.push((inode, Named { path, inode: same.then_some(inode) }));
        } else if named && kind.is_symlink() {
            return self.odd(&path, Problem::Link, "is a symbolic link: not followed".into());
        } else if named {
            return self.odd(&path, Problem::Damaged, "is neither a file nor a folder".into());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn every_file_comes_once_and_in_the_order_of_inodes() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a", "b", "b/c"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
            for number in 0..BATCH / 2 {
                std::fs::write(dir.path().join(format!("{folder}/{number}.myr")), []).unwrap();
            }
        }
        std::fs::write(dir.path().join("no"), []).unwrap();
        let mut walk = Walk::new(dir.path()).unwrap();
        let mut files = Vec::new();
        while let Some(Step::File(named)) = walk.next() {
            assert_eq!(named.inode, Some(dir.path().join(&named.path).metadata().unwrap().ino()));
            files.push(named);
        }
        assert!(walk.next().is_none());
        for batch in files.chunks(BATCH) {
            assert!(batch.is_sorted_by_key(|named| named.inode));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup();
        assert_eq!(files.len(), BATCH / 2 * 3);
    }
}
