//! The doublewrite file: each page of a batch is written and synced here before it goes to its place, so that a write
//! torn by a crash can be repaired.
//!
//! The file is a header and a row of areas of [`BATCH_PAGES`] pages; a batch fills one from its start. The header says whose
//! the copies are: tablespace ids are alike in all data directories. Pages name themselves, so
//! there is no directory. After a crash a copy is usable when its LSN is beyond the checkpoint's: then the log has
//! everything that came after the copy, whether or not it is the newest. A page whose write was in flight was dirty from
//! before its copy's LSN, so the checkpoint is older, so its copy is usable; older leftovers are not.
//!
//! Areas with usable copies are not written again until recovery has finished and its pages are durable: a second crash
//! finds the same copies.
//!
//! On a full disk pages must still reach their places, which have their room: so the file has, from the start, that of one area more
//! than there are threads that write, and of one more than were ever used, for when all of these have usable copies.

use myriad_base::codec::{get_u32, put_u32};
use myriad_base::page::{self, page_lsn};
use myriad_base::{crc32c, Error, Lsn, PageId, Result};
use myriad_io::{AlignedBuf, Create, File, Io, OpenMode, SyncMark, Syncs};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Pages of a batch at most.
pub(crate) const BATCH_PAGES: usize = 128;

// The header, at the file's start; the first area begins one page later.
//
// | offset | bytes | field |
// |---|---|---|
// | 0 | 8 | magic `MYRIADDW` |
// | 8 | 4 | format version |
// | 12 | 4 | page size in bytes |
// | 16 | 16 | UUID of the data directory |
// | 4092 | 4 | CRC-32C of bytes 0 to 4092 |
const HEADER_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"MYRIADDW";
const FORMAT_VERSION: u32 = 1;
const OFF_CRC: usize = HEADER_BYTES - 4;

pub(crate) struct Doublewrite {
    file: Arc<dyn File>,
    syncs: Syncs,
    page_size: usize,
    state: Mutex<State>,
    /// Held by who makes the file longer.
    growing: Mutex<()>,
    /// Whether [`State::copies`] has any.
    any_copies: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Areas nobody uses.
    free: BTreeSet<u64>,
    /// Areas with copies that recovery may need.
    held: BTreeSet<u64>,
    /// All areas from here on were never used in this run and have no copies that recovery may need.
    next: u64,
    /// Areas that the file has room for.
    room: u64,
    /// Pages whose write in place failed, possibly half done: the area with the copy that would repair it.
    owed: HashMap<PageId, u64>,
    /// Areas that [`State::owed`] names, and for how many pages.
    owing: HashMap<u64, usize>,
    /// Usable copies of pages that have not been whole in memory since the start: LSN and offset of the newest.
    copies: HashMap<PageId, (Lsn, u64)>,
}

impl Doublewrite {
    /// The file's path.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("#myriad").join("doublewrite")
    }

    /// Opens or creates `#myriad/doublewrite` under `dir`, the data directory `uuid`, for so many batches `at_once`.
    ///
    /// # Errors
    /// [`Error::Format`] for a file of another data directory or version; [`Error::CorruptFile`] for one without a whole
    /// header that may have copies; those of reading and writing.
    pub fn open(io: &Arc<dyn Io>, dir: &Path, page_size: usize, uuid: [u8; 16], at_once: usize) -> Result<Doublewrite> {
        let path = Doublewrite::path(dir);
        let existed = io.exists(&path)?;
        let mode = OpenMode { create: Create::IfMissing, direct: true, write: true };
        let file = io.open(&path, mode)?;
        if !existed {
            io.sync_dir(&dir.join("#myriad"))?;
        }
        let doublewrite = Doublewrite {
            file,
            syncs: Syncs::default(),
            page_size,
            state: Mutex::default(),
            growing: Mutex::default(),
            any_copies: AtomicBool::new(false),
        };
        doublewrite.check_header(uuid)?;
        doublewrite.state.lock().room =
            doublewrite.file.len()?.saturating_sub(page_size as u64) / doublewrite.area_bytes();
        drop(doublewrite.set_aside(at_once as u64 - 1));
        Ok(doublewrite)
    }

    /// Holds the header against the data directory; writes the one of a new file.
    fn check_header(&self, uuid: [u8; 16]) -> Result<()> {
        let mut ours = AlignedBuf::new(HEADER_BYTES);
        ours[..8].copy_from_slice(MAGIC);
        put_u32(&mut ours, 8, FORMAT_VERSION);
        put_u32(&mut ours, 12, self.page_size as u32);
        ours[16..32].copy_from_slice(&uuid);
        let crc = crc32c(&ours[..OFF_CRC]);
        put_u32(&mut ours, OFF_CRC, crc);
        let mut found = AlignedBuf::new(HEADER_BYTES);
        let read = self.file.read_at(&mut found, 0)?;
        if found[..read] == ours[..] {
            return Ok(());
        }
        let path = self.file.path().display().to_string();
        let whole = read == HEADER_BYTES && get_u32(&found, OFF_CRC) == crc32c(&found[..OFF_CRC]);
        if whole && &found[..8] == MAGIC {
            let reason = match get_u32(&found, 8) {
                FORMAT_VERSION => "it belongs to another data directory; remove it if pages may stay torn".into(),
                version => format!("doublewrite version {version}, this engine reads version {FORMAT_VERSION}"),
            };
            return Err(Error::Format { path, reason });
        }
        // The header is durable before the first copy: without it a crash during the creation left nothing more.
        if self.file.len()? > self.page_size as u64 {
            let reason = "its header is damaged; remove it if pages may stay torn".into();
            return Err(Error::CorruptFile { path, reason });
        }
        self.file.write_at(&ours, 0)?;
        self.syncs.sync(&*self.file, SyncMark::START)
    }

    /// Where an area begins in the file.
    fn area_offset(&self, area: u64) -> u64 {
        self.page_size as u64 + area * self.area_bytes()
    }

    fn area_bytes(&self) -> u64 {
        (BATCH_PAGES * self.page_size) as u64
    }

    /// Sets the room of an area and of the one behind it aside, if it is missing and the disk has it. If the area's own is missing
    /// still, nobody else makes the file longer while the result lives: writing the area does, or tells.
    fn set_aside(&self, area: u64) -> Option<MutexGuard<'_, ()>> {
        let (room, wanted) = (|| self.state.lock().room, area + 2);
        if room() >= wanted {
            return None;
        }
        // One at a time: a file system without `fallocate` gets zeros from the file's end on, which must not reach an area that
        // another has filled meanwhile.
        let one = self.growing.lock();
        let mut room = room();
        if room < wanted {
            let allocate = |areas: u64| self.file.allocate(self.area_offset(room), areas * self.area_bytes()).is_ok();
            if let Some(areas) = (1..=wanted - room).rev().find(|&areas| allocate(areas)) {
                room += areas;
                self.state.lock().room = room;
            }
        }
        (room <= area).then_some(one)
    }

    /// Looks for copies newer than `checkpoint` and no newer than the log's `end`. Before the first batch. Returns how
    /// many there are, and the newest copy beyond the log's end, which there is only if the log was damaged.
    pub fn find_copies(&self, checkpoint: Lsn, end: Lsn) -> Result<(usize, Option<(Lsn, PageId)>)> {
        let mut beyond = None;
        let mut state = self.state.lock();
        let mut buf = AlignedBuf::new(BATCH_PAGES * self.page_size);
        let mut area = 0;
        loop {
            let offset = self.area_offset(area);
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
        let used = state.held.last().map_or(0, |last| last + 1);
        state.next = used;
        state.free = (0..used).filter(|area| !state.held.contains(area)).collect();
        self.any_copies.store(!state.copies.is_empty(), Ordering::Relaxed);
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

    /// The page is whole in memory. From here on the copy is older than it, and no help against damage; on disk it stays, for a
    /// second crash.
    pub fn forget_copy(&self, id: PageId) {
        if self.any_copies.load(Ordering::Relaxed) {
            self.state.lock().copies.remove(&id);
        }
    }

    /// Recovery is over and everything it brought back is durable: the copies have served.
    pub fn forget_copies(&self) {
        let mut state = self.state.lock();
        state.copies = HashMap::new();
        self.any_copies.store(false, Ordering::Relaxed);
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
                state.next += 1;
                state.next - 1
            })
        };
        let mark = self.syncs.mark();
        let written = {
            let _alone = self.set_aside(area);
            self.file.write_at(pages, self.area_offset(area))
        };
        let done = written.and_then(|()| self.syncs.sync(&*self.file, mark));
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

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::page::{set_page_lsn, PageKind};
    use myriad_base::{PageNo, SpaceId};
    use myriad_io::{CallKind, Fault, SimIo};
    use std::time::{Duration, Instant};

    const PAGE_BYTES: usize = 4096;

    fn disk() -> SimIo {
        let io = SimIo::new(1);
        io.create_dir(Path::new("/data/#myriad")).unwrap();
        io
    }

    fn id(page: u32) -> PageId {
        PageId::new(SpaceId::FIRST_USER, PageNo(page))
    }

    fn open(io: &SimIo) -> Doublewrite {
        open_for(io, 1)
    }

    fn open_for(io: &SimIo, at_once: usize) -> Doublewrite {
        let io = Arc::new(io.clone()) as Arc<dyn Io>;
        Doublewrite::open(&io, Path::new("/data"), PAGE_BYTES, [7; 16], at_once).unwrap()
    }

    fn sealed(no: u32, lsn: u64) -> AlignedBuf {
        let mut copy = AlignedBuf::new(PAGE_BYTES);
        page::format(&mut copy, id(no), PageKind::Index);
        set_page_lsn(&mut copy, Lsn(lsn));
        page::seal(&mut copy);
        copy
    }

    #[test]
    fn batches_under_way_have_areas_of_their_own_after_a_recovery() {
        // Which of the areas have usable copies.
        for usable in 0..32u32 {
            let io = disk();
            let before = open(&io);
            for area in 0..5 {
                let lsn = if usable >> area & 1 == 1 { 20 } else { 10 };
                assert_eq!(before.write(&sealed(area + 1, lsn)).unwrap(), u64::from(area));
            }
            drop(before);
            let after = open(&io);
            let found = after.find_copies(Lsn(15), Lsn(100)).unwrap();
            assert_eq!(found, (usable.count_ones() as usize, None));
            let held = |area: u64| area < 5 && usable >> area & 1 == 1;
            let first = after.write(&sealed(9, 101)).unwrap();
            assert!(!held(first), "{usable:#b}: area {first} has a copy that a second crash needs");
            after.forget_copies();
            let mut areas: Vec<u64> = (0..8).map(|_| after.write(&sealed(9, 101)).unwrap()).collect();
            areas.push(first);
            areas.sort_unstable();
            assert_eq!(areas, [0, 1, 2, 3, 4, 5, 6, 7, 8], "{usable:#b}");
        }
    }

    #[test]
    fn a_full_disk_has_room_after_a_crash_amid_all_batches() {
        let io = disk();
        let before = open_for(&io, 9);
        io.set_capacity(Some(0));
        for area in 0..9 {
            assert_eq!(before.write(&sealed(area + 1, 20)).unwrap(), u64::from(area));
        }
        drop(before);
        let after = open_for(&io, 9);
        assert_eq!(after.find_copies(Lsn(15), Lsn(100)).unwrap(), (9, None));
        for page in 1..20 {
            let area = after.write(&sealed(page, 101)).unwrap();
            assert_eq!(area, 9);
            after.settle(area, std::iter::once((id(page), true)));
        }
    }

    #[test]
    fn the_newest_whole_copy_counts() {
        let io = disk();
        let before = open_for(&io, 5);
        for lsn in [20, 22, 21, 23, 200] {
            before.write(&sealed(9, lsn)).unwrap();
        }
        // Torn ones, one of them beyond the log's end.
        for area in [3, 4] {
            io.flip_bit(&Doublewrite::path(Path::new("/data")), before.area_offset(area) + 1000, 3).unwrap();
        }
        drop(before);
        let after = open_for(&io, 5);
        assert_eq!(after.find_copies(Lsn(15), Lsn(100)).unwrap(), (1, None));
        let mut page = AlignedBuf::new(PAGE_BYTES);
        assert!(after.restore(id(9), &mut page).unwrap());
        assert_eq!(page[..], sealed(9, 22)[..]);
        // It is another since, or torn.
        let mut torn = sealed(9, 22);
        torn[1000] = 1;
        for other in [sealed(9, 30), torn] {
            after.file.write_at(&other, after.area_offset(1)).unwrap();
            assert!(after.restore(id(9), &mut page).is_err());
        }
    }

    #[test]
    fn the_newest_copy_of_a_page_that_cannot_be_written_stays() {
        let io = disk();
        let doublewrite = open(&io);
        let write = |lsn| doublewrite.write(&sealed(9, lsn)).unwrap();
        let settle = |area, pages: &[(u32, bool)]| {
            doublewrite.settle(area, pages.iter().map(|&(page, durable)| (id(page), durable)));
        };
        assert_eq!(write(20), 0);
        settle(0, &[(1, false), (2, false), (3, true)]);
        assert_eq!(write(21), 1);
        // One of two.
        settle(1, &[(1, true)]);
        assert_eq!(write(22), 1);
        // The other has a newer copy now.
        settle(1, &[(2, false)]);
        assert_eq!(write(23), 0);
        settle(0, &[(2, true)]);
        assert_eq!((write(24), write(25), write(26)), (0, 1, 2));
    }

    /// A file where there is no `fallocate`: zeros are written from its end on. The first to write them is slow, and so is, on a
    /// full disk, the first to write anything else from there on: then there is room again.
    struct Zeroed {
        inner: Arc<dyn File>,
        slow: AtomicBool,
        full: AtomicBool,
        /// There was no room for zeros.
        refused: AtomicBool,
        begun: AtomicBool,
        /// Another one's write has ended.
        other: AtomicBool,
    }

    impl Zeroed {
        fn of(doublewrite: &mut Doublewrite, full: bool) -> Arc<Zeroed> {
            let [refused, begun, other] = [false; 3].map(AtomicBool::new);
            let (slow, full) = (AtomicBool::new(true), AtomicBool::new(full));
            let file = Arc::new(Zeroed { inner: Arc::clone(&doublewrite.file), slow, full, refused, begun, other });
            doublewrite.file = Arc::clone(&file) as Arc<dyn File>;
            file
        }
    }

    fn wait_for(done: &AtomicBool, at_most: Duration) {
        let begin = Instant::now();
        while !done.load(Ordering::Acquire) && begin.elapsed() < at_most {
            std::thread::yield_now();
        }
    }

    impl File for Zeroed {
        fn read_at(&self, buf: &mut [u8], off: u64) -> Result<usize> {
            self.inner.read_at(buf, off)
        }
        fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
            if off >= self.len()? && self.full.swap(false, Ordering::AcqRel) {
                self.refused.store(true, Ordering::Release);
                wait_for(&self.begun, Duration::from_millis(300));
                self.inner.write_at(buf, off)?;
                self.other.store(true, Ordering::Release);
                return Ok(());
            }
            self.inner.write_at(buf, off)
        }
        fn sync(&self) -> Result<()> {
            self.inner.sync()
        }
        fn len(&self) -> Result<u64> {
            self.inner.len()
        }
        fn set_len(&self, len: u64) -> Result<()> {
            self.inner.set_len(len)
        }
        fn allocate(&self, off: u64, len: u64) -> Result<()> {
            if self.full.load(Ordering::Acquire) {
                return Err(Error::DiskFull { path: self.path().display().to_string() });
            }
            let mut at = self.len()?;
            if self.slow.swap(false, Ordering::AcqRel) {
                self.begun.store(true, Ordering::Release);
                wait_for(&self.other, Duration::from_millis(300));
            }
            let zeros = AlignedBuf::new(PAGE_BYTES);
            while at < off + len {
                self.inner.write_at(&zeros, at)?;
                at += zeros.len() as u64;
            }
            Ok(())
        }
        fn punch_hole(&self, off: u64, len: u64) -> Result<()> {
            self.inner.punch_hole(off, len)
        }
        fn path(&self) -> &Path {
            self.inner.path()
        }
    }

    fn write(doublewrite: &Doublewrite, area: u64) {
        assert_eq!(doublewrite.write(&sealed(area as u32, 10)).unwrap(), area);
    }

    /// With two copies; for the next no room can be set aside.
    fn without_room(io: &SimIo) -> (Doublewrite, Arc<Zeroed>) {
        let mut doublewrite = open(io);
        let file = Zeroed::of(&mut doublewrite, true);
        write(&doublewrite, 0);
        write(&doublewrite, 1);
        (doublewrite, file)
    }

    fn expect_copy(doublewrite: &Doublewrite, area: u64) {
        let mut copy = AlignedBuf::new(PAGE_BYTES);
        doublewrite.file.read_at(&mut copy, doublewrite.area_offset(area)).unwrap();
        assert_eq!(copy[..], sealed(area as u32, 10)[..]);
    }

    #[test]
    fn a_copy_stays_while_another_batch_makes_the_file_longer() {
        let io = disk();
        let mut doublewrite = open(&io);
        let file = Zeroed::of(&mut doublewrite, false);
        write(&doublewrite, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&doublewrite, 1));
            wait_for(&file.begun, Duration::from_secs(10));
            write(&doublewrite, 2);
            file.other.store(true, Ordering::Release);
        });
        expect_copy(&doublewrite, 2);
    }

    #[test]
    fn a_copy_that_found_no_room_set_aside_stays_while_another_batch_makes_the_file_longer() {
        let io = disk();
        let (doublewrite, file) = without_room(&io);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&doublewrite, 2));
            wait_for(&file.refused, Duration::from_secs(10));
            write(&doublewrite, 3);
        });
        expect_copy(&doublewrite, 2);
        expect_copy(&doublewrite, 3);
    }

    /// The operating system tells only one of those who wrote until then.
    #[test]
    fn a_copy_is_not_durable_if_a_sync_failed_since_its_write_began() {
        let io = disk();
        let (doublewrite, file) = without_room(&io);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| doublewrite.write(&sealed(2, 10)));
            wait_for(&file.refused, Duration::from_secs(10));
            doublewrite.settle(0, std::iter::empty());
            io.inject(CallKind::Sync, "doublewrite", 0, Fault::Eio, false);
            assert!(doublewrite.write(&sealed(0, 10)).is_err());
            file.begun.store(true, Ordering::Release);
            assert!(late.join().unwrap().is_err());
        });
        // Nobody has their areas.
        let mut areas: Vec<u64> = (0..2).map(|_| doublewrite.write(&sealed(0, 10)).unwrap()).collect();
        areas.sort_unstable();
        assert_eq!(areas, [0, 2]);
    }
}
