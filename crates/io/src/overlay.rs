//! A read-only view of the operating system's files: what is written stays in memory and is gone with the view.
//!
//! Lets a program open a data directory as the engine would, recovery included, without changing it. Memory: the blocks
//! written, 4 KiB each.

use crate::{os, Create, File, FileLock, Io, IoRequest, OpenMode};
use myriad_base::{Error, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: u64 = 4096;
/// Files that are kept open before the view looks for some that nobody uses.
const UNUSED_LOOK_MIN: usize = 128;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// The view. Locks are shared ones, taken on the file itself.
#[derive(Default)]
pub struct OverlayIo {
    names: Mutex<Names>,
}

/// What differs from the names on disk, and files in use.
#[derive(Default)]
struct Names {
    files: HashMap<PathBuf, Arc<Node>>,
    removed: HashSet<PathBuf>,
    /// Closes what nobody uses when there are as many files as this.
    look_at: usize,
}

impl Names {
    /// Closes files that nobody uses and that are as they are on disk.
    fn close_unused(&mut self) {
        self.files.retain(|path, node| Arc::strong_count(node) > 1 || node.differs(path));
        self.look_at = self.files.len() * 2;
    }
}

/// A file's contents: those on disk, and what was written over them.
struct Node {
    base: Option<Arc<dyn File>>,
    contents: Mutex<Contents>,
}

struct Contents {
    len: u64,
    /// Bytes of the file on disk that still count.
    base_len: u64,
    /// Blocks written; `None` reads as zeros.
    blocks: BTreeMap<u64, Option<Box<[u8]>>>,
}

struct OverlayFile {
    node: Arc<Node>,
    path: PathBuf,
}

impl OverlayIo {
    /// A view of the files as they are.
    pub fn new() -> OverlayIo {
        OverlayIo::default()
    }

    fn node(&self, names: &mut Names, path: &Path) -> Result<Option<Arc<Node>>> {
        if let Some(node) = names.files.get(path) {
            return Ok(Some(Arc::clone(node)));
        }
        if names.removed.contains(path) || !os::exists(path)? {
            return Ok(None);
        }
        if names.files.len() >= names.look_at.max(UNUSED_LOOK_MIN) {
            names.close_unused();
        }
        let base = os::OsFile::open(path, OpenMode::READ)?;
        let len = base.len()?;
        let node = Arc::new(Node { base: Some(base), contents: Mutex::new(Contents::new(len)) });
        names.files.insert(path.into(), Arc::clone(&node));
        Ok(Some(node))
    }
}

impl Contents {
    fn new(len: u64) -> Contents {
        Contents { len, base_len: len, blocks: BTreeMap::new() }
    }
}

impl Node {
    /// Whether its name or contents are not those on disk.
    fn differs(&self, path: &Path) -> bool {
        let contents = self.contents.lock();
        let as_on_disk = |base: &dyn File| {
            base.path() == path
                && contents.blocks.is_empty()
                && contents.len == contents.base_len
                && base.len() == Ok(contents.len)
        };
        !self.base.as_deref().is_some_and(as_on_disk)
    }

    fn read(&self, buf: &mut [u8], off: u64) -> Result<usize> {
        let contents = self.contents.lock();
        let n = contents.len.saturating_sub(off).min(buf.len() as u64) as usize;
        let buf = &mut buf[..n];
        buf.fill(0);
        let on_disk = contents.base_len.saturating_sub(off).min(n as u64) as usize;
        if let (Some(base), true) = (&self.base, on_disk > 0) {
            base.read_at(&mut buf[..on_disk], off)?;
        }
        let end = off + n as u64;
        for (&number, block) in contents.blocks.range(off / BLOCK..end.div_ceil(BLOCK)) {
            let at = number * BLOCK;
            let (from, to) = (at.max(off), (at + BLOCK).min(end));
            let target = &mut buf[(from - off) as usize..(to - off) as usize];
            match block {
                Some(bytes) => target.copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]),
                None => target.fill(0),
            }
        }
        Ok(n)
    }

    fn write(&self, buf: &[u8], off: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let (number, within) = (at / BLOCK, (at % BLOCK) as usize);
            let n = (BLOCK as usize - within).min(buf.len() - done);
            let mut block = vec![0u8; BLOCK as usize];
            if n < BLOCK as usize {
                self.read(&mut block, number * BLOCK)?;
            }
            block[within..within + n].copy_from_slice(&buf[done..done + n]);
            let mut contents = self.contents.lock();
            contents.blocks.insert(number, Some(block.into()));
            contents.len = contents.len.max(at + n as u64);
            done += n;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let cut = {
            let contents = self.contents.lock();
            contents.len.min(len.next_multiple_of(BLOCK)).saturating_sub(len)
        };
        // The rest of the last block reads as zeros when the file grows again.
        self.write(&vec![0; cut as usize], len)?;
        let mut contents = self.contents.lock();
        contents.base_len = contents.base_len.min(len);
        contents.blocks.split_off(&len.div_ceil(BLOCK));
        contents.len = len;
        Ok(())
    }
}

impl File for OverlayFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize> {
        self.node.read(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.node.write(buf, off)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.node.contents.lock().len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.node.set_len(len)
    }
    fn allocate(&self, off: u64, len: u64) -> Result<()> {
        let mut contents = self.node.contents.lock();
        contents.len = contents.len.max(off + len);
        Ok(())
    }
    fn punch_hole(&self, off: u64, len: u64) -> Result<()> {
        let end = (off + len).min(self.len()?);
        let (first, last) = (off.div_ceil(BLOCK), end / BLOCK);
        if first >= last {
            return self.node.write(&vec![0; end.saturating_sub(off) as usize], off);
        }
        self.node.write(&vec![0; (first * BLOCK - off) as usize], off)?;
        self.node.write(&vec![0; (end - last * BLOCK) as usize], last * BLOCK)?;
        self.node.contents.lock().blocks.extend((first..last).map(|number| (number, None)));
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Io for OverlayIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        let failed = |errno| Err(Error::io("open", path.display().to_string(), errno));
        let node = match (self.node(&mut names, path)?, mode.create) {
            (Some(_), Create::New) => return failed(EEXIST),
            (Some(node), _) => node,
            (None, Create::No) => return failed(ENOENT),
            (None, _) => {
                let node = Arc::new(Node { base: None, contents: Mutex::new(Contents::new(0)) });
                names.files.insert(path.into(), Arc::clone(&node));
                node
            }
        };
        Ok(Arc::new(OverlayFile { node, path: path.into() }))
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        match path.is_dir() {
            true => Ok(()),
            false => Err(Error::io("mkdir", path.display().to_string(), ENOENT)),
        }
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut names = self.names.lock();
        names.files.remove(path);
        names.removed.insert(path.into());
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = self.names.lock();
        let Some(node) = self.node(&mut names, from)? else {
            return Err(Error::io("rename", from.display().to_string(), ENOENT));
        };
        names.files.remove(from);
        names.removed.insert(from.into());
        names.files.insert(to.into(), node);
        Ok(())
    }
    fn sync_dir(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        let names = self.names.lock();
        Ok(names.files.contains_key(path) || !names.removed.contains(path) && os::exists(path)?)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        let names = self.names.lock();
        let mut list = os::list_dir(path)?;
        list.extend(names.files.keys().filter(|p| p.parent() == Some(path)).filter_map(|p| {
            let name = p.file_name()?.to_str()?;
            Some(name.to_string())
        }));
        list.retain(|name| {
            let p = path.join(name);
            names.files.contains_key(&p) || !names.removed.contains(&p)
        });
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }
    fn lock_file(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        os::lock_file_shared(path)
    }
    fn submit(&self, batch: &mut [IoRequest<'_>]) {
        batch.iter_mut().for_each(IoRequest::run);
    }
    fn name(&self) -> &'static str {
        "overlay"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_leaves_the_disk_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let io = OverlayIo::new();
        let file = io.open(&path, OpenMode::WRITE).unwrap();
        file.write_at(&[1; 5000], 4000).unwrap();
        file.write_at(&[2; 3], 20_000).unwrap();
        let again = io.open(&path, OpenMode::READ).unwrap();
        let mut buf = vec![9u8; 30_000];
        assert_eq!(again.read_at(&mut buf, 0).unwrap(), 20_003);
        assert!(buf[..4000].iter().all(|&b| b == 7) && buf[4000..9000].iter().all(|&b| b == 1));
        assert!(buf[9000..10_000].iter().all(|&b| b == 7) && buf[10_000..20_000].iter().all(|&b| b == 0));
        assert_eq!(&buf[20_000..20_003], &[2; 3]);

        file.punch_hole(4096, 8192).unwrap();
        file.set_len(9_000).unwrap();
        file.set_len(16_384).unwrap();
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 16_384);
        assert!(buf[4000..4096].iter().all(|&b| b == 1) && buf[4096..16_384].iter().all(|&b| b == 0));
        assert_eq!(std::fs::read(&path).unwrap(), vec![7u8; 10_000]);
    }

    #[test]
    fn files_that_nobody_uses_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let io = OverlayIo::new();
        let path = |n: usize| dir.path().join(format!("f{n}"));
        (0..1_000).for_each(|n| std::fs::write(path(n), n.to_string()).unwrap());
        io.open(&path(0), OpenMode::WRITE).unwrap().write_at(b"x", 0).unwrap();
        io.open(&path(1), OpenMode::WRITE).unwrap().set_len(0).unwrap();
        io.rename(&path(2), &dir.path().join("new")).unwrap();
        let held = io.open(&path(3), OpenMode::READ).unwrap();
        for n in 4..1_000 {
            io.open(&path(n), OpenMode::READ).unwrap();
        }
        assert!(io.names.lock().files.len() <= UNUSED_LOOK_MIN);
        let read = |file: &dyn File| {
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            bytes
        };
        let expected: [(PathBuf, &[u8]); 4] =
            [(path(0), b"x"), (path(1), b""), (dir.path().join("new"), b"2"), (path(999), b"999")];
        for (path, bytes) in expected {
            assert_eq!(read(&*io.open(&path, OpenMode::READ).unwrap()), bytes, "{}", path.display());
        }
        assert_eq!(read(&*held), b"3");
        assert!(io.open(&path(2), OpenMode::READ).is_err());
    }

    #[test]
    fn names_change_in_the_view_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(at(name), name).unwrap();
        }
        let io = OverlayIo::new();
        io.remove_file(&at("a")).unwrap();
        assert!(!io.exists(&at("a")).unwrap() && io.open(&at("a"), OpenMode::READ).is_err());
        assert_eq!(io.open(&at("a"), OpenMode::NEW).unwrap().len().unwrap(), 0);
        io.rename(&at("b"), &at("c")).unwrap();
        assert!(io.open(&at("c"), OpenMode::NEW).is_err());
        assert_eq!(io.list_dir(dir.path()).unwrap(), ["a", "c"]);
        assert!(at("a").exists() && at("b").exists() && !at("c").exists());
        let _one = io.lock_file(&at("a")).unwrap();
        let _two = io.lock_file(&at("a")).unwrap();
        assert!(crate::os::lock_file(&at("a")).is_err(), "shared with readers, not with a server");
    }
}
