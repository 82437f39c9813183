//! External merge sort of index entries in bounded memory.
//!
//! Entries are collected in one buffer; when it is full they are sorted and written behind one another to a temporary file, as
//! a *run*. At the end the runs are merged. An entry in a run: key length, unique length, value length (LEB128), key, value.
//!
//! A sorter has one file, however many runs, and the file has no name: a process that is killed leaves nothing behind.

use myriad_base::codec::{push_varint, Reader};
use myriad_base::{Error, Result};
use myriad_io::{File, Io, OpenMode};
use myriad_txn::{Index, TrxSystem};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Takes an entry's key and stored value.
pub(crate) type Push<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// An entry of the sorted stream.
pub(crate) struct SortedEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) unique_len: usize,
    pub(crate) value: &'a [u8],
}

#[derive(Clone, Copy)]
struct Entry {
    /// The key's first bytes: most comparisons need no more, and look at no memory elsewhere.
    head: u64,
    at: usize,
    key_len: u16,
    unique_len: u16,
    value_len: u32,
}

/// The first eight bytes as a number that orders as they do, where they differ.
fn head_of(key: &[u8]) -> u64 {
    if let Some(eight) = key.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut eight = [0; 8];
    eight[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(eight)
}

/// Collects entries in any order.
pub(crate) struct Sorter {
    io: Arc<dyn Io>,
    /// Path of the temporary file but for its number.
    stem: PathBuf,
    memory_bytes: usize,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Opened for the first run.
    file: Option<Arc<dyn File>>,
    /// In the order in which they lie in the file.
    runs: Vec<Run>,
}

/// Smallest buffer in bytes.
const MEMORY_BYTES_MIN: usize = 1 << 20;
/// Bytes of a write to a temporary file.
const WRITE_BYTES: usize = 1 << 20;
/// Most runs merged at once; more are merged into longer ones first.
const MERGE_WIDTH: usize = 64;

impl Sorter {
    /// A temporary file is called `stem` with a number behind it, for the moment that it has a name.
    pub(crate) fn new(io: &Arc<dyn Io>, stem: PathBuf, memory_bytes: u64) -> Sorter {
        let mut sorter = Sorter {
            io: Arc::clone(io),
            stem,
            memory_bytes: 0,
            bytes: Vec::new(),
            entries: Vec::new(),
            file: None,
            runs: Vec::new(),
        };
        sorter.set_memory(memory_bytes);
        sorter
    }

    /// How much memory it may use from now on; what it has at hand beyond goes to a file with the next entry.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        self.memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(MEMORY_BYTES_MIN);
    }

    /// What was added; it goes on with nothing, as it was made.
    pub(crate) fn take(&mut self) -> Sorter {
        let empty = Sorter::new(&self.io, self.stem.clone(), self.memory_bytes as u64);
        std::mem::replace(self, empty)
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, key: &[u8], unique_len: usize, value: &[u8]) -> Result<()> {
        let size = key.len() + value.len() + std::mem::size_of::<Entry>();
        let used = self.bytes.len() + self.entries.len() * std::mem::size_of::<Entry>();
        if !self.entries.is_empty() && used + size > self.memory_bytes {
            self.spill()?;
        }
        if !self.has_room(key.len() + value.len()) {
            self.use_less(used)?;
            if !self.has_room(key.len() + value.len()) {
                return Err(Error::no_memory(&format!("an entry of {size} bytes to be sorted")));
            }
        }
        let too_long = |what, len, max| Error::TooLong { what, len, max };
        let key_len = u16::try_from(key.len()).map_err(|_| too_long("key", key.len(), u16::MAX.into()))?;
        self.entries.push(Entry {
            head: head_of(key),
            at: self.bytes.len(),
            key_len,
            unique_len: key_len.min(u16::try_from(unique_len).unwrap_or(u16::MAX)),
            value_len: u32::try_from(value.len()).map_err(|_| too_long("value", value.len(), u32::MAX as usize))?,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Whether the system gives the memory for one more entry, with so many bytes.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes.try_reserve(bytes).is_ok() && self.entries.try_reserve(1).is_ok()
    }

    /// The system has less memory than was allowed: half of what is in use has to do from now on, so that others have some.
    fn use_less(&mut self, used: usize) -> Result<()> {
        self.memory_bytes = (used / 2).max(MEMORY_BYTES_MIN);
        if !self.entries.is_empty() {
            self.spill()?;
        }
        self.bytes = Vec::new();
        self.entries = Vec::new();
        Ok(())
    }

    fn sort(&mut self) {
        let Sorter { bytes, entries, .. } = self;
        let key = |e: &Entry| &bytes[e.at..e.at + e.key_len as usize];
        entries.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))));
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut out = self.begin_run()?;
        for e in &self.entries {
            out.push(&entry(&self.bytes, e))?;
        }
        self.runs.push(out.finish()?);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// A run behind the last one.
    fn begin_run(&mut self) -> Result<RunWriter> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(open_unnamed(&*self.io, &self.stem)?),
        };
        let at = self.runs.last().map_or(0, |run| run.end);
        Ok(RunWriter { file: Arc::clone(file), run: Run { start: at, end: at }, buffer: Vec::new() })
    }

    /// Bytes of all entries added, if they are still in memory.
    pub(crate) fn in_memory(&self) -> Option<usize> {
        self.runs.is_empty().then_some(self.bytes.len())
    }

    /// Gives all entries in key order, as often as it is called.
    pub(crate) fn finish(&mut self, visit: &mut dyn FnMut(&SortedEntry<'_>) -> Result<()>) -> Result<()> {
        if !self.runs.is_empty() && !self.entries.is_empty() {
            self.spill()?;
        }
        let Some(file) = self.file.clone().filter(|_| !self.runs.is_empty()) else {
            self.sort();
            for e in &self.entries {
                visit(&entry(&self.bytes, e))?;
            }
            return Ok(());
        };
        self.bytes = Vec::new();
        self.entries = Vec::new();
        while self.runs.len() > MERGE_WIDTH {
            let mut out = self.begin_run()?;
            let first: Vec<Run> = self.runs.drain(..MERGE_WIDTH).collect();
            merge(&*file, &first, self.memory_bytes, &mut |e| out.push(e))?;
            self.runs.push(out.finish()?);
            let (start, end) = (first[0].start, first[MERGE_WIDTH - 1].end);
            // Where it fails their room stays taken until the end.
            let _ = file.punch_hole(start, end - start);
        }
        merge(&*file, &self.runs, self.memory_bytes, visit)
    }

    /// Hands the entries to `push` in key order, as frozen ones of `index` with its id in front of the key.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], the key without the index id is in `duplicate` then; those of reading and of `push`.
    pub(crate) fn write(
        &mut self,
        trx: &TrxSystem,
        index: &Index,
        duplicate: &mut Vec<u8>,
        push: Push<'_>,
    ) -> Result<()> {
        let (mut key, mut stored, mut last): (Vec<u8>, Vec<u8>, Vec<u8>) = Default::default();
        key.extend_from_slice(&index.id.0.to_be_bytes());
        self.finish(&mut |e| {
            if e.unique_len > 0 {
                let prefix = &e.key[..e.unique_len];
                if last == prefix {
                    duplicate.clear();
                    duplicate.extend_from_slice(e.key);
                    return Err(Error::DuplicateKey { index: index.id });
                }
                last.clear();
                last.extend_from_slice(prefix);
            }
            key.truncate(4);
            key.extend_from_slice(e.key);
            trx.frozen_value(index, e.key.len(), e.value, &mut stored)?;
            push(&key, &stored)
        })
    }
}

static NEXT_FILE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn entry<'a>(bytes: &'a [u8], e: &Entry) -> SortedEntry<'a> {
    let (key_end, end) = (e.at + e.key_len as usize, e.at + e.key_len as usize + e.value_len as usize);
    SortedEntry { key: &bytes[e.at..key_end], unique_len: e.unique_len as usize, value: &bytes[key_end..end] }
}

/// A new file without a name: it goes with the last who has it open.
fn open_unnamed(io: &dyn Io, stem: &Path) -> Result<Arc<dyn File>> {
    let mut path = stem.as_os_str().to_owned();
    path.push(format!(".{}", NEXT_FILE.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let path = PathBuf::from(path);
    // What a process of the same number left that was killed before it had taken the name away.
    io.remove_file(&path)?;
    let file = io.open(&path, OpenMode::NEW)?;
    io.remove_file(&path)?;
    Ok(file)
}

/// A sorted part of the file.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

struct RunWriter {
    file: Arc<dyn File>,
    run: Run,
    buffer: Vec<u8>,
}

impl RunWriter {
    fn push(&mut self, e: &SortedEntry<'_>) -> Result<()> {
        for n in [e.key.len(), e.unique_len, e.value.len()] {
            push_varint(&mut self.buffer, n as u64);
        }
        self.buffer.extend_from_slice(e.key);
        self.buffer.extend_from_slice(e.value);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.run.end)?;
        self.run.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Run> {
        self.write()?;
        Ok(self.run)
    }
}

/// Reads a run from start to end; holds the present entry.
struct RunReader<'a> {
    file: &'a dyn File,
    buffer: Vec<u8>,
    /// Start of the unread part of the buffer.
    at: usize,
    /// What of the run is behind the buffer's end.
    rest: Run,
    chunk: usize,
    entry: Entry,
}

impl<'a> RunReader<'a> {
    fn new(file: &'a dyn File, run: Run, chunk: usize) -> RunReader<'a> {
        let entry = Entry { head: 0, at: 0, key_len: 0, unique_len: 0, value_len: 0 };
        RunReader { file, buffer: Vec::new(), at: 0, rest: run, chunk, entry }
    }

    fn parse(&self) -> Option<(Entry, usize)> {
        let rest = &self.buffer[self.at..];
        let mut r = Reader::new(rest);
        let (key_len, unique_len) = (u16::try_from(r.varint()?).ok()?, u16::try_from(r.varint()?).ok()?);
        let value_len = u32::try_from(r.varint()?).ok()?;
        let at = self.at + rest.len() - r.rest().len();
        let head = head_of(r.take(key_len.into())?);
        r.take(value_len as usize)?;
        Some((Entry { head, at, key_len, unique_len, value_len }, self.at + rest.len() - r.rest().len()))
    }

    /// Goes to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some((entry, end)) = self.parse() {
                self.entry = entry;
                self.at = end;
                return Ok(true);
            }
            if self.rest.start == self.rest.end {
                let whole = self.at == self.buffer.len();
                return if whole { Ok(false) } else { Err(self.damaged()) };
            }
            self.fill()?;
        }
    }

    /// Reads on, keeping what has not been parsed; the entry handed out last is given up.
    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let kept = self.buffer.len();
        let wanted = (self.chunk.max(kept) as u64).min(self.rest.end - self.rest.start) as usize;
        self.buffer.resize(kept + wanted, 0);
        if self.file.read_at(&mut self.buffer[kept..], self.rest.start)? != wanted {
            return Err(self.damaged());
        }
        self.rest.start += wanted as u64;
        Ok(())
    }

    fn damaged(&self) -> Error {
        Error::CorruptFile { path: self.file.path().display().to_string(), reason: "sorted run is cut short".into() }
    }

    fn get(&self) -> SortedEntry<'_> {
        entry(&self.buffer, &self.entry)
    }
}

/// Orders the readers in the heap by their present key.
struct ByKey<'a>(RunReader<'a>);

impl PartialEq for ByKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for ByKey<'_> {}
impl PartialOrd for ByKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        a.entry.head.cmp(&b.entry.head).then_with(|| a.get().key.cmp(b.get().key))
    }
}

fn merge(
    file: &dyn File,
    runs: &[Run],
    memory_bytes: usize,
    visit: &mut dyn FnMut(&SortedEntry<'_>) -> Result<()>,
) -> Result<()> {
    let chunk = (memory_bytes / runs.len().max(1)).clamp(64 << 10, 4 << 20);
    let mut heap = BinaryHeap::new();
    for &run in runs {
        let mut reader = RunReader::new(file, run, chunk);
        if reader.advance()? {
            heap.push(Reverse(ByKey(reader)));
        }
    }
    while let Some(mut top) = heap.peek_mut() {
        visit(&top.0 .0.get())?;
        if !top.0 .0.advance()? {
            std::collections::binary_heap::PeekMut::pop(top);
        }
    }
    Ok(())
}

/// A stem for temporary files in `dir` that no other process uses.
pub(crate) fn temporary_stem(dir: &Path, id: u32) -> PathBuf {
    dir.join(format!("#myriad-sort-{}-{id}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::random::Random;
    use myriad_io::{CallKind, SimIo};

    fn sorts(memory: u64, count: u64, seed: u64) {
        let dir = tempfile::tempdir().expect("folder");
        let io = myriad_io::open_io(myriad_io::IoMethod::Threads).expect("io");
        let mut random = Random::from_seed(seed);
        let mut sorter = Sorter::new(&io, temporary_stem(dir.path(), 1), memory);
        sorter.memory_bytes = memory as usize;
        let mut expected = Vec::new();
        for i in 0..count {
            let key: Vec<u8> = (0..random.below(12)).map(|_| random.below(4) as u8).chain(i.to_be_bytes()).collect();
            let value = vec![i as u8; random.below(300) as usize];
            sorter.add(&key, 1, &value).expect("add");
            expected.push((key, value));
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("folder").count(), 0, "files with names");
        expected.sort();
        let mut got = Vec::new();
        sorter
            .finish(&mut |e| {
                assert_eq!(e.unique_len, 1);
                got.push((e.key.to_vec(), e.value.to_vec()));
                Ok(())
            })
            .expect("finish");
        assert_eq!(got, expected);
    }

    #[test]
    fn in_memory_and_in_runs() {
        sorts(1 << 20, 1000, 1);
        sorts(4000, 3000, 2);
        // More runs than are merged at once.
        sorts(1000, 2000, 3);
        sorts(1000, 0, 4);
    }

    #[test]
    fn many_runs_have_one_file() {
        let disk = SimIo::new(1);
        let io: Arc<dyn Io> = Arc::new(disk.clone());
        let mut sorter = Sorter::new(&io, temporary_stem(Path::new("/tmp"), 1), 0);
        sorter.memory_bytes = 100;
        for i in (0..1000_u64).rev() {
            sorter.add(&i.to_be_bytes(), 8, &[1; 90]).expect("add");
        }
        assert_eq!((sorter.runs.len(), disk.calls(CallKind::Open)), (999, 1));
        // What follows a table's changes reads them twice.
        for _ in 0..2 {
            let mut next = 0_u64;
            let visited = sorter.finish(&mut |e| {
                assert_eq!(e.key, next.to_be_bytes());
                next += 1;
                Ok(())
            });
            visited.expect("finish");
            assert_eq!(next, 1000);
        }
        assert_eq!(disk.calls(CallKind::Open), 1);
        // 64 become one, fifteen times.
        assert_eq!((sorter.runs.len(), disk.calls(CallKind::Punch)), (55, 15));
        assert!(disk.list_dir(Path::new("/tmp")).expect("list").is_empty());
    }

    #[test]
    fn takes_the_place_of_a_file_left_behind() {
        let io: Arc<dyn Io> = Arc::new(SimIo::new(1));
        let stem = temporary_stem(Path::new("/tmp"), 7);
        let next = NEXT_FILE.load(std::sync::atomic::Ordering::Relaxed);
        for no in next..next + 100 {
            io.open(Path::new(&format!("{}.{no}", stem.display())), OpenMode::NEW).expect("open");
        }
        let file = open_unnamed(&*io, &stem).expect("open");
        file.write_at(b"x", 0).expect("write");
        assert_eq!(file.len().expect("length"), 1);
        assert_eq!(io.list_dir(Path::new("/tmp")).expect("list").len(), 99);
    }
}
