//! The doublewrite file: each page of a batch is written and synced here before it goes to its place, so that a write
//! torn by a crash can be repaired.
//!
//! The file is a row of areas of [`BATCH_PAGES`] pages; a batch fills one from its start. Pages name themselves, so
//! there is no directory. After a crash a copy is usable when its LSN is beyond the checkpoint's: then the log has
//! everything that came after the copy, whether or not it is the newest. A page whose write was in flight was dirty from
//! before its copy's LSN, so the checkpoint is older, so its copy is usable; older leftovers are not.
//!
//! Areas with usable copies are not written again until recovery has finished and its pages are durable: a second crash
//! finds the same copies.

use myriad_base::page::{self, page_lsn};
use myriad_base::{Error, Lsn, PageId, Result};
use myriad_io::{AlignedBuf, Create, File, Io, OpenMode};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages of a batch at most.
pub(crate) const BATCH_PAGES: usize = 128;

pub(crate) struct Doublewrite {
    file: Arc<dyn File>,
    page_size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Areas nobody uses.
    free: BTreeSet<u64>,
    /// Areas with copies that recovery may need.
    held: BTreeSet<u64>,
    /// First area never used in this run.
    next: u64,
    /// Pages whose write in place failed, possibly half done: the area with the copy that would repair it.
    owed: HashMap<PageId, u64>,
    /// Areas that [`State::owed`] names, and for how many pages.
    owing: HashMap<u64, usize>,
    /// Usable copies: LSN and offset of the newest.
    copies: HashMap<PageId, (Lsn, u64)>,
}

impl Doublewrite {
    /// The file's path.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("#myriad").join("doublewrite")
    }

    /// Opens or creates `#myriad/doublewrite` under `dir`.
    pub fn open(io: &Arc<dyn Io>, dir: &Path, page_size: usize) -> Result<Doublewrite> {
        let path = Doublewrite::path(dir);
        let existed = io.exists(&path)?;
        let mode = OpenMode { create: Create::IfMissing, direct: true, write: true };
        let file = io.open(&path, mode)?;
        if !existed {
            io.sync_dir(&dir.join("#myriad"))?;
        }
        Ok(Doublewrite { file, page_size, state: Mutex::default() })
    }

    fn area_bytes(&self) -> u64 {
        (BATCH_PAGES * self.page_size) as u64
    }

    /// Looks for copies newer than `checkpoint` and no newer than the log's `end`. Before the first batch. Returns how
    /// many there are, and the newest copy beyond the log's end, which there is only if the log was damaged.
    pub fn find_copies(&self, checkpoint: Lsn, end: Lsn) -> Result<(usize, Option<(Lsn, PageId)>)> {
        let mut beyond = None;
        let mut state = self.state.lock();
        let mut buf = AlignedBuf::new(BATCH_PAGES * self.page_size);
        let mut area = 0;
        loop {
            let offset = area * self.area_bytes();
            let read = self.file.read_at(&mut buf, offset)?;
            for (i, copy) in buf[..read].chunks_exact(self.page_size).enumerate() {
                let (id, lsn) = (page::page_id(copy), page_lsn(copy));
                if lsn <= checkpoint || page::verify(copy, id).is_err() {
                    continue;
                }
                if lsn > end {
                    beyond = beyond.max(Some((lsn, id)));
                    continue;
                }
                state.held.insert(area);
                let newest = state.copies.entry(id).or_insert((lsn, 0));
                if lsn >= newest.0 {
                    *newest = (lsn, offset + (i * self.page_size) as u64);
                }
            }
            if read < buf.len() {
                break;
            }
            area += 1;
        }
        Ok((state.copies.len(), beyond))
    }

    /// Reads the usable copy of `id` into `page`; false when there is none.
    pub fn restore(&self, id: PageId, page: &mut [u8]) -> Result<bool> {
        let Some((lsn, offset)) = self.state.lock().copies.get(&id).copied() else { return Ok(false) };
        let read = self.file.read_at(page, offset)?;
        if read < page.len() || page::verify(page, id).is_err() || page_lsn(page) != lsn {
            return Err(Error::corrupt(id, "its copy in the doublewrite file changed since the start".to_string()));
        }
        Ok(true)
    }

    /// Recovery is over and everything it brought back is durable: the copies have served.
    pub fn forget_copies(&self) {
        let mut state = self.state.lock();
        state.copies = HashMap::new();
        let held = std::mem::take(&mut state.held);
        state.free.extend(held);
    }

    /// Makes copies of `pages` (sealed, one after the other, at most [`BATCH_PAGES`]) durable. The area is the caller's
    /// until [`Doublewrite::settle`].
    pub fn write(&self, pages: &[u8]) -> Result<u64> {
        assert!(pages.len() as u64 <= self.area_bytes(), "a batch larger than an area");
        let area = {
            let mut state = self.state.lock();
            state.free.pop_first().unwrap_or_else(|| {
                while state.held.contains(&state.next) {
                    state.next += 1;
                }
                state.next += 1;
                state.next - 1
            })
        };
        let done = self.file.write_at(pages, area * self.area_bytes()).and_then(|()| self.file.sync());
        if let Err(error) = done {
            self.state.lock().free.insert(area);
            return Err(error);
        }
        Ok(area)
    }

    /// Says which pages of the batch in `area` are durable in their places. An area stays reserved while it has the
    /// newest copy of a page whose write failed.
    pub fn settle(&self, area: u64, pages: impl Iterator<Item = (PageId, bool)>) {
        let mut state = self.state.lock();
        for (id, durable) in pages {
            if let Some(older) = state.owed.remove(&id) {
                let left = state.owing.get_mut(&older).expect("an owed page has an area");
                *left -= 1;
                if *left == 0 {
                    state.owing.remove(&older);
                    state.free.insert(older);
                }
            }
            if !durable {
                state.owed.insert(id, area);
                *state.owing.entry(area).or_insert(0) += 1;
            }
        }
        if !state.owing.contains_key(&area) {
            state.free.insert(area);
        }
    }
}
