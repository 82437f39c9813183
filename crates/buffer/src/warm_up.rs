//! Warm-up: which pages were in use is saved at a clean shutdown and every few minutes, and read again after a start.
//!
//! The file `#myriad/hot_pages` names pages; it is a hint. A bad one is ignored with a note, and a page that is gone is
//! passed over. Reading goes on in the background, in the order of the files, into frames that are free; it steps back
//! while clients miss pages of their own, and ends at once when the pool stops.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `MYRIADHP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | page size in bytes |
//! | 16 | 8 | number of pages |
//! | 24 | 4 | CRC-32C of the page ids |
//! | 28 | 4 | CRC-32C of bytes 0 to 28 |
//! | 32 | 8 each | page ids (tablespace in the upper half), ascending |

use crate::config::Level;
use crate::frame::NO_PAGE;
use crate::pool::BufferPool;
use crate::stats::Counter;
use crate::usage::is_victim;
use myriad_base::codec::{get_u32, get_u64, put_u32, put_u64};
use myriad_base::{crc32c, PageId, Result, SpaceId};
use myriad_io::{Create, OpenMode};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"MYRIADHP";
const FORMAT_VERSION: u32 = 1;
const OFF_VERSION: usize = 8;
const OFF_PAGE_SIZE: usize = 12;
const OFF_COUNT: usize = 16;
const OFF_PAGES_CRC: usize = 24;
const OFF_HEADER_CRC: usize = 28;
const HEADER_BYTES: usize = 32;
/// Pages read at a time.
const STEP_PAGES: usize = 64;
/// While clients read pages, the thread rests this many times as long as it worked.
const YIELD: u32 = 4;
/// How often the file is written while the server runs.
const SAVE_EVERY: Duration = Duration::from_secs(300);

/// What is left to do.
pub(crate) struct WarmUp {
    /// `#myriad/`.
    folder: PathBuf,
    stopped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How long to leave the device to others before the first read.
    pause: Duration,
    /// Whether the file was read.
    begun: bool,
    /// Pages still to be read.
    left: Vec<PageId>,
    /// Clients' misses at the last look.
    misses: u64,
    loaded: u64,
    since: Option<Instant>,
}

impl WarmUp {
    pub fn new(folder: PathBuf) -> WarmUp {
        WarmUp { folder, stopped: AtomicBool::new(false), state: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("hot_pages")
    }
}

fn encode(page_size: usize, pages: &[PageId]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + pages.len() * 8];
    for (i, page) in pages.iter().enumerate() {
        put_u64(&mut bytes, HEADER_BYTES + i * 8, page.to_u64());
    }
    let crc = crc32c(&bytes[HEADER_BYTES..]);
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    put_u32(&mut bytes, OFF_VERSION, FORMAT_VERSION);
    put_u32(&mut bytes, OFF_PAGE_SIZE, page_size as u32);
    put_u64(&mut bytes, OFF_COUNT, pages.len() as u64);
    put_u32(&mut bytes, OFF_PAGES_CRC, crc);
    let crc = crc32c(&bytes[..OFF_HEADER_CRC]);
    put_u32(&mut bytes, OFF_HEADER_CRC, crc);
    bytes
}

/// The pages that a file names, or why it is not used.
fn decode(page_size: usize, bytes: &[u8]) -> std::result::Result<Vec<PageId>, String> {
    if bytes.len() < HEADER_BYTES || &bytes[..MAGIC.len()] != MAGIC {
        return Err("it is not a list of pages".into());
    }
    if crc32c(&bytes[..OFF_HEADER_CRC]) != get_u32(bytes, OFF_HEADER_CRC) {
        return Err("its header is damaged".into());
    }
    let version = get_u32(bytes, OFF_VERSION);
    if version != FORMAT_VERSION {
        return Err(format!("it has format version {version}, this engine reads {FORMAT_VERSION}"));
    }
    if get_u32(bytes, OFF_PAGE_SIZE) as usize != page_size {
        return Err(format!("it is for pages of {} bytes", get_u32(bytes, OFF_PAGE_SIZE)));
    }
    let ids = &bytes[HEADER_BYTES..];
    if get_u64(bytes, OFF_COUNT).checked_mul(8) != Some(ids.len() as u64) {
        return Err(format!("it has {} bytes, not those of {} pages", bytes.len(), get_u64(bytes, OFF_COUNT)));
    }
    if crc32c(ids) != get_u32(bytes, OFF_PAGES_CRC) {
        return Err("its pages are damaged".into());
    }
    let mut pages: Vec<PageId> = (0..ids.len() / 8).map(|i| PageId::from_u64(get_u64(ids, i * 8))).collect();
    pages.sort_unstable();
    Ok(pages)
}

impl BufferPool {
    /// Begins, after the pause, to read the pages that were in use before the last stop, and to save which are in use now
    /// every few minutes. Nothing without background threads.
    pub fn start_warm_up(self: &Arc<Self>, pause: Duration) {
        if self.background.has_threads() {
            self.warm_up.state.lock().pause = pause;
            let event = Arc::clone(&self.background.warm_up);
            let started = self.background.spawn(self, "myriad-warm-up", Some(event), |pool| pool.warm_up_turn());
            if let Err(e) = started {
                self.report(Level::Error, &format!("the buffer pool is not warmed up: {e}"));
            }
        }
    }

    /// Ends reading: the server is about to stop.
    pub fn stop_warm_up(&self) {
        self.warm_up.stopped.store(true, Ordering::Release);
        self.background.warm_up.signal();
    }

    fn warm_up_turn(&self) -> Option<Duration> {
        if self.warm_up.stopped.load(Ordering::Acquire) || self.check_poison().is_err() {
            return None;
        }
        let mut state = self.warm_up.state.lock();
        if !state.begun {
            state.begun = true;
            state.left = self.read_hot_pages();
            state.left.reverse();
            if !state.left.is_empty() {
                return Some(state.pause);
            }
        } else if state.left.is_empty() {
            drop(state);
            self.save_hot_pages_or_report();
            return Some(SAVE_EVERY);
        }
        Some(self.warm_up_step(&mut state))
    }

    /// Reads some pages; how long to rest then.
    fn warm_up_step(&self, state: &mut State) -> Duration {
        let begin = Instant::now();
        let since = *state.since.get_or_insert(begin);
        let room = self.free_frames.load(Ordering::Acquire).saturating_sub(self.background.free.target());
        let step = STEP_PAGES.min(room).min(state.left.len());
        let rest = state.left.len() - step;
        let mut pages = state.left.split_off(rest);
        pages.reverse();
        let loaded = self.load_batch(&pages, self.now.mark());
        state.loaded += loaded as u64;
        // Without room the clients have filled the memory with what they want now.
        if room == 0 || state.left.is_empty() {
            if state.loaded > 0 {
                let took = since.elapsed().as_millis();
                self.report(Level::Info, &format!("warm-up: read {} pages again in {took} ms", state.loaded));
            }
            state.left = Vec::new();
            return SAVE_EVERY;
        }
        let misses = self.counters.sum(Counter::Misses);
        let busy = misses != std::mem::replace(&mut state.misses, misses);
        if busy {
            begin.elapsed() * YIELD
        } else {
            Duration::ZERO
        }
    }

    fn read_hot_pages(&self) -> Vec<PageId> {
        let path = self.warm_up.path();
        let read = || -> Result<Option<Vec<u8>>> {
            if !self.io.exists(&path)? {
                return Ok(None);
            }
            let file = self.io.open(&path, OpenMode::READ)?;
            // No list is longer than one of as many pages as there can be frames.
            let longest = HEADER_BYTES + self.frames().max() * 8;
            let mut bytes = vec![0; (file.len()? as usize).min(longest + 1)];
            let n = file.read_at(&mut bytes, 0)?;
            bytes.truncate(n);
            Ok(Some(bytes))
        };
        let why = match read() {
            Ok(None) => return Vec::new(),
            Ok(Some(bytes)) => match decode(self.page_size(), &bytes) {
                Ok(pages) => return pages,
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        self.report(Level::Warning, &format!("no warm-up: {} is ignored: {why}", path.display()));
        Vec::new()
    }

    /// Saves which pages are in use, for the warm-up after the next start; undo pages, which are soon purged, excepted.
    ///
    /// # Errors
    /// Those of writing the file; the one before stays then.
    pub fn save_hot_pages(&self) -> Result<()> {
        // Held to the end: all savers write the list under the same provisional name.
        let state = self.warm_up.state.lock();
        // What a warm-up cut short has not read yet was in use before, and counts again; all of it where none began, as in a start
        // that the server gives up.
        let never_began = !state.begun && self.config.background_threads;
        let left = if never_began { self.read_hot_pages() } else { state.left.clone() };
        let mut pages = Vec::new();
        for at in 0..self.frames().len() as u32 {
            let frame = self.frames().get(at);
            let id = frame.page_id.load(Ordering::Relaxed);
            if id != NO_PAGE && !is_victim(frame.usage.load(Ordering::Relaxed)) {
                pages.push(PageId::from_u64(id));
            }
        }
        pages.extend(left);
        pages.retain(|page| page.space != SpaceId::UNDO && page.space != SpaceId::MEMORY);
        // A longer list is read by nobody.
        pages.truncate(self.frames().max());
        pages.sort_unstable();
        pages.dedup();
        let path = self.warm_up.path();
        let new = self.warm_up.folder.join("hot_pages.new");
        let file = self.io.open(&new, OpenMode { create: Create::IfMissing, direct: false, write: true })?;
        let bytes = encode(self.page_size(), &pages);
        file.set_len(bytes.len() as u64)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        self.io.rename(&new, &path)?;
        self.io.sync_dir(&self.warm_up.folder)
    }

    /// As [`BufferPool::save_hot_pages`]; the error log hears of a failure.
    pub fn save_hot_pages_or_report(&self) {
        if let Err(error) = self.save_hot_pages() {
            self.report(Level::Warning, &format!("the list of pages for the next warm-up was not saved: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::PageNo;

    #[test]
    fn a_list_is_read_as_written_and_any_damage_is_noticed() {
        let pages: Vec<PageId> = (0..50).map(|i| PageId::new(SpaceId(i / 20), PageNo(i * 3))).collect();
        let good = encode(4096, &pages);
        assert_eq!(decode(4096, &good).unwrap(), pages);
        assert_eq!(decode(4096, &encode(4096, &[])).unwrap(), []);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(decode(4096, &bad).is_err(), "a flipped bit at {at}");
            assert!(decode(4096, &good[..at]).is_err(), "cut after {at}");
        }
        assert!(decode(4096, &[good.as_slice(), &[0; 8]].concat()).is_err());
        assert!(decode(8192, &good).unwrap_err().contains("pages of 4096 bytes"));
        let mut newer = good.clone();
        put_u32(&mut newer, OFF_VERSION, 2);
        let crc = crc32c(&newer[..OFF_HEADER_CRC]);
        put_u32(&mut newer, OFF_HEADER_CRC, crc);
        assert!(decode(4096, &newer).unwrap_err().contains("format version 2"));
    }
}
