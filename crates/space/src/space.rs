//! One tablespace: its file, opened when first needed, and its growth.

use crate::header::{SpaceHeader, HEADER_READ_BYTES};
use crate::missed::Missed;
use crate::names::Names;
use crate::open_files::OpenFiles;
use crate::registry::InUse;
use crate::suspects::Suspects;
use crate::Uuid;
use myriad_base::{Error, Lsn, PageNo, Result, SpaceId};
use myriad_io::{AlignedBuf, File, Io, OpenMode, Syncs};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

/// Smallest step of growth in pages, and so a new file's size; and the largest step in bytes.
pub(crate) const GROWTH_PAGES_MIN: u32 = 4;
const GROWTH_BYTES_MAX: u64 = 4 << 20;
/// How often [`Space::was_full_lately`] says yes after a failure: growing is tried again after so many pages.
const FULL_FOR: u32 = 256;
/// How often a header that does not verify is read, in all.
const READS_MAX: u32 = 5;

/// What all tablespaces of a data directory share.
pub(crate) struct Shared {
    pub(crate) io: Arc<dyn Io>,
    /// `#myriad/`.
    pub(crate) root: PathBuf,
    pub(crate) page_size: usize,
    pub(crate) direct: AtomicBool,
    pub(crate) open_files: OpenFiles,
    pub(crate) suspects: Suspects,
    pub(crate) missed: Missed,
    pub(crate) names: Names,
    /// Tablespaces in which many extents have become free, see [`Space::extent_emptied`].
    pub(crate) emptied: Mutex<BTreeSet<SpaceId>>,
}

/// So many extents of a tablespace have to become free before anybody looks which can be given back: what is taken again soon need
/// not be.
const EMPTIED_MANY: u32 = 16;

impl Shared {
    /// Does what opens a file; closes others first where the process, or the machine, may open no more.
    fn with_room<T>(&self, open: impl Fn(&dyn Io) -> Result<T>) -> Result<T> {
        match open(&*self.io) {
            Err(Error::Io { errno: EMFILE | ENFILE, .. }) if self.open_files.make_room() => open(&*self.io),
            other => other,
        }
    }

    /// [`Io::sync_dir`], for which the folder is opened.
    pub(crate) fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.with_room(|io| io.sync_dir(folder))
    }
}

/// What the catalog says of a tablespace.
#[derive(Clone)]
struct Identity {
    /// Relative to `#myriad/`.
    path: String,
    /// `None`: whatever the file says.
    uuid: Option<Uuid>,
}

/// One tablespace.
pub struct Space {
    shared: Arc<Shared>,
    id: SpaceId,
    identity: Mutex<Identity>,
    /// The open file. Taken for writing to open, close, rename and drop.
    file: RwLock<Option<Arc<dyn File>>>,
    syncs: Syncs,
    dropped: AtomicBool,
    /// Whether the resolver can tell again what is known of it.
    resolved: bool,
    /// Pages that the file has room for; known once the file was open, exact under `growing`.
    room: AtomicU32,
    growing: Mutex<()>,
    /// Pages of it in memory.
    pages: AtomicU32,
    /// So many more times [`Space::was_full_lately`] says yes.
    full_for: AtomicU32,
    /// See [`Space::spare_from`].
    spare_from: AtomicU32,
    /// Extents that became free since many were told of.
    emptied: AtomicU32,
    /// See [`Space::plan_extent`]; while `has_planned`.
    planned: Mutex<BTreeSet<u32>>,
    has_planned: AtomicBool,
    /// Used since the hand of the open-file cache passed by.
    pub(crate) used: AtomicBool,
    /// Has an entry in the clock of open files; under the clock's latch.
    pub(crate) in_clock: AtomicBool,
}

impl Space {
    pub(crate) fn new(shared: &Arc<Shared>, id: SpaceId, path: &str, uuid: Option<Uuid>) -> Space {
        Space {
            shared: Arc::clone(shared),
            id,
            identity: Mutex::new(Identity { path: path.into(), uuid }),
            file: RwLock::new(None),
            syncs: Syncs::default(),
            dropped: AtomicBool::new(false),
            resolved: false,
            room: AtomicU32::new(0),
            growing: Mutex::new(()),
            pages: AtomicU32::new(0),
            full_for: AtomicU32::new(0),
            spare_from: AtomicU32::new(0),
            emptied: AtomicU32::new(0),
            planned: Mutex::default(),
            has_planned: AtomicBool::new(false),
            used: AtomicBool::new(false),
            in_clock: AtomicBool::new(false),
        }
    }

    /// As the resolver described it.
    pub(crate) fn resolved(shared: &Arc<Shared>, id: SpaceId, path: &str, uuid: Uuid) -> Space {
        Space { resolved: true, ..Space::new(shared, id, path, Some(uuid)) }
    }

    pub(crate) fn is_resolved(&self) -> bool {
        self.resolved
    }

    /// Whether the catalog says this of it.
    pub(crate) fn is_described_as(&self, path: &str, uuid: Uuid) -> bool {
        let identity = self.identity.lock();
        identity.path == path && identity.uuid == Some(uuid)
    }

    /// Its id.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// Its path relative to `#myriad/`.
    pub fn path(&self) -> String {
        self.identity.lock().path.clone()
    }

    fn full_path(&self) -> PathBuf {
        self.shared.root.join(&self.identity.lock().path)
    }

    /// Whether it has been dropped: its pages need not be written any more.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// A page of it has come into memory. Until [`crate::SpaceRegistry::page_left`] has been called for each, the tablespace
    /// is not forgotten: where a changed page is to be written is known without asking the resolver, whose answer may take
    /// memory that is free only once pages have been written.
    pub fn page_entered(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// A page of it has left memory.
    pub(crate) fn page_left(&self) {
        // Never below zero, whoever counts wrongly.
        let _ = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pages| pages.checked_sub(1));
    }

    pub(crate) fn has_pages_in_memory(&self) -> bool {
        self.pages.load(Ordering::Relaxed) != 0
    }

    /// Whether its file is open.
    pub fn is_open(&self) -> bool {
        self.file.read().is_some()
    }

    /// Whether its file is open, or is just being opened or closed.
    pub(crate) fn may_be_open(&self) -> bool {
        self.file.try_read().is_none_or(|file| file.is_some())
    }

    pub(crate) fn unavailable(&self, reason: impl Into<String>) -> Error {
        Error::TablespaceUnavailable { name: self.full_path().display().to_string(), reason: reason.into() }
    }

    /// The open file, its header verified when it was opened. It stays open while the result lives.
    ///
    /// # Errors
    /// [`Error::TablespaceUnavailable`] (dropped, missing, another tablespace's), [`Error::CorruptFile`],
    /// [`Error::Format`], [`Error::Io`].
    pub fn file(self: &Arc<Self>) -> Result<Arc<dyn File>> {
        if let Some(file) = &*self.file.read() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(file));
        }
        self.open()
    }

    #[cold]
    fn open(self: &Arc<Self>) -> Result<Arc<dyn File>> {
        let mut slot = self.file.write();
        if let Some(file) = &*slot {
            return Ok(Arc::clone(file));
        }
        if self.is_dropped() {
            return Err(self.unavailable("it has been dropped"));
        }
        self.shared.suspects.opening(self.id).map_err(|reason| self.unavailable(&*reason))?;
        let path = self.full_path();
        let mode = OpenMode::WRITE.with_direct(self.shared.direct.load(Ordering::Relaxed));
        let file = self.open_file(&path, mode).map_err(|e| match e {
            Error::Io { errno: ENOENT, .. } => self.unavailable("the file is missing"),
            e => e,
        })?;
        self.verify(&*file)?;
        self.check_missed()?;
        self.note_room(&*file)?;
        *slot = Some(Arc::clone(&file));
        self.shared.open_files.opened();
        drop(slot);
        self.used.store(true, Ordering::Relaxed);
        self.shared.open_files.admit(self);
        Ok(file)
    }

    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.shared.with_room(|io| io.open(path, mode))
    }

    fn note_room(&self, file: &dyn File) -> Result<()> {
        let pages = file.len()? / self.shared.page_size as u64;
        self.room.store(u32::try_from(pages).unwrap_or(u32::MAX), Ordering::Release);
        Ok(())
    }

    /// # Errors
    /// [`Error::TablespaceUnavailable`] if the file has missed changes.
    pub(crate) fn check_missed(&self) -> Result<()> {
        self.shared.missed.why(self.id).map_or(Ok(()), |reason| Err(self.unavailable(reason)))
    }

    /// See [`crate::SpaceRegistry::give_up`].
    pub(crate) fn give_up(&self, lsn: Lsn, in_use: InUse<'_>) -> bool {
        // Nobody opens it meanwhile.
        let slot = self.file.write();
        if slot.is_some() || self.has_pages_in_memory() || !self.shared.missed.doubt(self.id, lsn) {
            return false;
        }
        // Who had it open before counts the page that he brings in, and then looks whether it was given up.
        fence(Ordering::SeqCst);
        let unused = !self.has_pages_in_memory() && !in_use();
        self.shared.missed.settle(self.id, unused)
    }

    /// The file's header. One that does not verify is read again a few times: a device may err once.
    fn read_header(&self, file: &dyn File, path: &str) -> Result<SpaceHeader> {
        let mut head = AlignedBuf::new(HEADER_READ_BYTES);
        let mut reads = 0;
        loop {
            let n = file.read_at(&mut head, 0)?;
            reads += 1;
            if n < HEADER_READ_BYTES {
                let reason = format!("{n} bytes: too short for a tablespace");
                return Err(Error::CorruptFile { path: path.into(), reason });
            }
            match SpaceHeader::parse(&head, path) {
                Err(Error::CorruptFile { .. }) if reads < READS_MAX => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Whether the file is this tablespace's.
    fn verify(&self, file: &dyn File) -> Result<()> {
        let path = file.path().display().to_string();
        let header = self.read_header(file, &path)?;
        if header.page_size as usize != self.shared.page_size {
            let reason =
                format!("pages of {} bytes, this data directory's have {}", header.page_size, self.shared.page_size);
            return Err(Error::Format { path, reason });
        }
        if header.id != self.id {
            return Err(self.unavailable(format!("the file is that of tablespace {}, not {}", header.id, self.id)));
        }
        let mut identity = self.identity.lock();
        match identity.uuid {
            Some(uuid) if uuid != header.uuid => {
                drop(identity);
                Err(self
                    .unavailable("the file's UUID is not the one in the catalog: it belongs to another data directory"))
            }
            _ => {
                identity.uuid = Some(header.uuid);
                Ok(())
            }
        }
    }

    /// Creates the file with its header page; file and name are durable when this returns.
    pub(crate) fn create_file(self: &Arc<Self>, creation_lsn: Lsn) -> Result<()> {
        let path = self.full_path();
        let identity = self.identity.lock().clone();
        let uuid = identity.uuid.expect("a new tablespace has a UUID");
        let _changing = self.shared.names.changing(&[&identity.path]);
        let mut slot = self.file.write();
        self.shared.suspects.creating(self.id, &identity.path);
        let mode = OpenMode::NEW.with_direct(self.shared.direct.load(Ordering::Relaxed));
        let file = self.open_file(&path, mode)?;
        let written = self.write_header(&*file, uuid, creation_lsn).and_then(|()| self.shared.sync_dir(parent(&path)));
        if let Err(e) = written {
            drop(file);
            // The first error is the one to tell; a file left behind is found by the next `create` (EEXIST).
            let _ = self.shared.io.remove_file(&path);
            return Err(e);
        }
        self.note_room(&*file)?;
        *slot = Some(file);
        self.shared.open_files.opened();
        drop(slot);
        self.used.store(true, Ordering::Relaxed);
        self.shared.open_files.admit(self);
        Ok(())
    }

    fn write_header(&self, file: &dyn File, uuid: Uuid, creation_lsn: Lsn) -> Result<()> {
        let page_size = self.shared.page_size;
        let mut page = AlignedBuf::new(page_size);
        SpaceHeader { id: self.id, uuid, page_size: page_size as u32, creation_lsn }.format(&mut page);
        file.allocate(0, (u64::from(GROWTH_PAGES_MIN)) * page_size as u64)?;
        file.write_at(&page, 0)?;
        file.sync()
    }

    /// Whether the file in this tablespace's place is, by a sound header, another tablespace.
    fn is_another(&self, path: &Path) -> bool {
        let mut head = AlignedBuf::new(HEADER_READ_BYTES);
        let read = self.shared.io.open(path, OpenMode::READ).and_then(|file| file.read_at(&mut head, 0));
        // Gone, a folder, unreadable: the removal says what there is to say.
        let Ok(n) = read else { return false };
        let Ok(header) = SpaceHeader::parse(&head[..n], "") else { return false };
        let uuid = self.identity.lock().uuid;
        header.id != self.id || uuid.is_some_and(|uuid| uuid != header.uuid)
    }

    /// Closes the file and removes it, unless it is another tablespace's; everything that uses the tablespace from now on
    /// gets an error. Returns the folder to be synced, which makes the removal durable.
    pub(crate) fn drop_file(&self) -> Result<PathBuf> {
        self.dropped.store(true, Ordering::Release);
        let _changing = self.shared.names.changing(&[&self.path()]);
        let mut slot = self.file.write();
        if slot.take().is_some() {
            self.shared.open_files.closed();
        }
        let path = self.full_path();
        if !self.is_another(&path) {
            self.shared.io.remove_file(&path)?;
        }
        Ok(parent(&path).into())
    }

    /// Gives the file another path; durable when this returns.
    pub(crate) fn rename_file(&self, path: &str) -> Result<()> {
        let _changing = self.shared.names.changing(&[&self.path(), path]);
        let mut slot = self.file.write();
        if self.is_dropped() {
            return Err(self.unavailable("it has been dropped"));
        }
        let (from, to) = (self.full_path(), self.shared.root.join(path));
        if self.shared.io.exists(&to)? {
            const EEXIST: i32 = 17;
            return Err(Error::io("rename", to.display().to_string(), EEXIST));
        }
        self.shared.io.rename(&from, &to)?;
        self.identity.lock().path = path.into();
        if slot.take().is_some() {
            self.shared.open_files.closed();
        }
        self.shared.sync_dir(parent(&to))?;
        if parent(&from) != parent(&to) {
            self.shared.sync_dir(parent(&from))?;
        }
        Ok(())
    }

    /// Closes the file unless somebody is opening, closing or just taking it; whoever has it keeps it open for himself.
    pub(crate) fn try_close(&self) -> bool {
        let Some(mut slot) = self.file.try_write() else { return false };
        if slot.take().is_some() {
            self.shared.open_files.closed();
        }
        true
    }

    fn offset(&self, page: PageNo) -> u64 {
        u64::from(page.0) * self.shared.page_size as u64
    }

    /// Reads a page as it is in the file, unverified; what lies past the file's end is zero.
    ///
    /// # Errors
    /// As [`Space::file`].
    pub fn read_page(self: &Arc<Self>, page: PageNo, buf: &mut [u8]) -> Result<()> {
        assert_eq!(buf.len(), self.shared.page_size);
        let file = self.file()?;
        let off = self.offset(page);
        if file.is_direct() && !AlignedBuf::fits(buf, off) {
            let mut aligned = AlignedBuf::new(buf.len());
            let n = file.read_at(&mut aligned, off)?;
            aligned[n..].fill(0);
            buf.copy_from_slice(&aligned);
            return Ok(());
        }
        let n = file.read_at(buf, off)?;
        buf[n..].fill(0);
        Ok(())
    }

    /// Writes a page, already sealed.
    ///
    /// # Errors
    /// As [`Space::file`], and [`Error::DiskFull`].
    pub fn write_page(self: &Arc<Self>, page: PageNo, buf: &[u8]) -> Result<()> {
        assert_eq!(buf.len(), self.shared.page_size);
        let file = self.file()?;
        let off = self.offset(page);
        if file.is_direct() && !AlignedBuf::fits(buf, off) {
            let mut aligned = AlignedBuf::new(buf.len());
            aligned.copy_from_slice(buf);
            return file.write_at(&aligned, off);
        }
        file.write_at(buf, off)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// As [`Space::file`].
    pub fn sync(self: &Arc<Self>) -> Result<()> {
        self.syncs.sync(&*self.file()?, self.syncs.mark())
    }

    /// Who syncs the file, however often it is closed and opened meanwhile.
    pub fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// Whole pages that the file has room for; 0 when the file cannot be used (the next access says why).
    pub fn pages_in_file(self: &Arc<Self>) -> u32 {
        if self.room.load(Ordering::Acquire) == 0 {
            let _ = self.file();
        }
        self.room.load(Ordering::Acquire)
    }

    /// Makes sure that the file has room for all pages below `count`, so that writing them later finds room on the
    /// device. One load when it has; else the file grows by at least a quarter, within bounds.
    ///
    /// # Errors
    /// [`Error::DiskFull`], and as [`Space::file`].
    pub fn ensure_pages(self: &Arc<Self>, count: u32) -> Result<()> {
        if self.room.load(Ordering::Acquire) >= count {
            return Ok(());
        }
        self.grow(count)
    }

    #[cold]
    fn grow(self: &Arc<Self>, count: u32) -> Result<()> {
        let _one = self.growing.lock();
        let file = self.file()?;
        let room = self.room.load(Ordering::Acquire);
        if room >= count {
            return Ok(());
        }
        let page_size = self.shared.page_size as u64;
        let step_max = u32::try_from(GROWTH_BYTES_MAX / page_size).unwrap_or(u32::MAX).max(GROWTH_PAGES_MIN);
        let step = (room / 4).clamp(GROWTH_PAGES_MIN, step_max);
        let generous = count.max(room.saturating_add(step));
        let allocate = |to: u32| file.allocate(self.offset(PageNo(room)), u64::from(to - room) * page_size);
        let room = match allocate(generous) {
            Err(Error::DiskFull { .. }) if generous > count => allocate(count).map(|()| count),
            done => done.map(|()| generous),
        };
        let full = matches!(room, Err(Error::DiskFull { .. }));
        self.full_for.store(if full { FULL_FOR } else { 0 }, Ordering::Release);
        self.room.store(room?, Ordering::Release);
        Ok(())
    }

    /// Gives what lies behind the first `count` pages back to the file system. They are no pages of the tablespace any more.
    ///
    /// # Errors
    /// As [`Space::file`].
    pub fn cut(self: &Arc<Self>, count: u32) -> Result<()> {
        let _one = self.growing.lock();
        let file = self.file()?;
        if self.room.load(Ordering::Acquire) > count {
            // First: nobody may count on room that is going.
            self.room.store(count, Ordering::Release);
            file.set_len(self.offset(PageNo(count)))?;
        }
        Ok(())
    }

    /// Whether the disk was too full for the file to grow. It says so a number of times after each failure: then it is time
    /// to try again.
    pub fn was_full_lately(&self) -> bool {
        self.full_for.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok()
    }

    /// Groups of pages below this one had nothing to spare when room `btree`, which knows what that means, looked. In
    /// memory only.
    pub fn spare_from(&self) -> u32 {
        self.spare_from.load(Ordering::Acquire)
    }

    /// Notes that a group has nothing to spare. Whoever frees pages of a group or says this of it has its bitmap page latched.
    pub fn nothing_to_spare(&self, group: u32) {
        // Groups below it may have something: then they come first.
        let _ = self.spare_from.compare_exchange(group, group + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes that pages of a group have become free.
    pub fn may_spare(&self, group: u32) {
        if self.spare_from.load(Ordering::Relaxed) > group {
            self.spare_from.fetch_min(group, Ordering::AcqRel);
        }
    }

    /// Notes that an extent has become wholly free. When many have, [`crate::SpaceRegistry::take_emptied`] tells of it.
    pub fn extent_emptied(&self) {
        if self.emptied.fetch_add(1, Ordering::Relaxed) + 1 >= EMPTIED_MANY {
            self.emptied.store(0, Ordering::Relaxed);
            self.shared.emptied.lock().insert(self.id);
        }
    }

    /// A new plan of what is to be given back: none so far.
    pub fn begin_plan(&self) {
        self.planned.lock().clear();
        self.has_planned.store(true, Ordering::Release);
    }

    /// An extent, by its number, that is to be given back. As for [`Space::extent_used`] and [`Space::is_planned`] its bitmap page is
    /// latched.
    pub fn plan_extent(&self, extent: u32) {
        self.planned.lock().insert(extent);
    }

    /// A page of the extent has been taken: it is in no plan any more, whatever becomes of the page.
    pub fn extent_used(&self, extent: u32) {
        if self.has_planned.load(Ordering::Acquire) {
            self.planned.lock().remove(&extent);
        }
    }

    /// Whether the extent is to be given back and was not used since that was planned.
    pub fn is_planned(&self, extent: u32) -> bool {
        self.planned.lock().contains(&extent)
    }

    /// The plan was carried out, or given up.
    pub fn end_plan(&self) {
        self.has_planned.store(false, Ordering::Release);
        *self.planned.lock() = BTreeSet::new();
    }

    /// Gives the room of `count` pages back to the file system; they read as zero afterwards where it can do that.
    ///
    /// # Errors
    /// As [`Space::file`].
    pub fn punch(self: &Arc<Self>, first: PageNo, count: u32) -> Result<()> {
        self.file()?.punch_hole(self.offset(first), u64::from(count) * self.shared.page_size as u64)
    }
}

const ENOENT: i32 = 2;
/// No descriptor left to the process, to the machine.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// The directory a file is in.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}
