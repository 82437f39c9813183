//! Which tablespaces there are.

use crate::dropped::Ranges;
use crate::missed::Missed;
use crate::names::{Names, NamesHeld};
use crate::open_files::OpenFiles;
use crate::space::{Shared, Space};
use crate::suspects::Suspects;
use crate::Uuid;
use myriad_base::{Error, Lsn, Result, SpaceId};
use myriad_io::Io;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::Arc;

const SHARDS: usize = 16;
/// Of the files that may be open a batch, or the check, has one in so many beside: several are under way at a time.
const BATCH_PART: usize = 8;

/// Answers what the catalog says of a tablespace: its path under `#myriad/` and its UUID; `None` if there is none.
pub type Resolver = Box<dyn Fn(SpaceId) -> Result<Option<(String, Uuid)>> + Send + Sync>;

/// Whether something waits for a tablespace's file that this room does not know of.
pub type InUse<'a> = &'a dyn Fn() -> bool;

/// Tablespaces of a shard before it looks for some to forget.
const SWEEP_MIN: usize = 64;

/// The tablespaces whose ids are alike modulo [`SHARDS`].
#[derive(Default)]
struct Shard {
    known: HashMap<SpaceId, Arc<Space>>,
    /// Forgets idle tablespaces when there are as many as this.
    sweep_at: usize,
    /// Dropped since the start. Ids are never reused.
    dropped: Ranges,
}

impl Shard {
    fn has_dropped(&self, id: SpaceId) -> bool {
        self.dropped.contains(id.0 / SHARDS as u32)
    }

    /// Whether it is being dropped, too: its file cannot be used any more, but is there as long as it cannot be removed.
    fn drops(&self, id: SpaceId) -> bool {
        self.has_dropped(id) || self.known.get(&id).is_some_and(|space| space.is_dropped())
    }

    /// Forgets tablespaces that are closed, held by nobody, without pages in memory and known to the resolver, now and then:
    /// an idle tablespace takes no memory.
    fn sweep(&mut self) {
        if self.known.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.known.retain(|_, space| !is_idle(space));
        self.sweep_at = 2 * self.known.len();
    }
}

/// Whether a tablespace can be forgotten. Nobody can get hold of it meanwhile: that takes the shard's latch, or an `Arc`.
fn is_idle(space: &Arc<Space>) -> bool {
    if !space.is_resolved() || Arc::strong_count(space) > 1 {
        return false;
    }
    // Whoever held it counted the page that he brought in before he let it go.
    fence(Ordering::Acquire);
    !space.has_pages_in_memory() && !space.is_open()
}

/// All tablespaces known so far. A tablespace becomes known when it is created, registered, or first asked for.
pub struct SpaceRegistry {
    shared: Arc<Shared>,
    shards: [RwLock<Shard>; SHARDS],
    resolver: RwLock<Option<Arc<Resolver>>>,
}

impl SpaceRegistry {
    /// For the data directory `dir` (where `#myriad/` is), with pages of `page_size` bytes and at most `max_open_files`
    /// files open beyond those in use at a time. Touches no file.
    pub fn new(io: Arc<dyn Io>, dir: &Path, page_size: usize, max_open_files: usize) -> SpaceRegistry {
        let shared = Shared {
            io,
            root: dir.join(crate::DIRECTORY),
            page_size,
            direct: AtomicBool::new(false),
            open_files: OpenFiles::new(max_open_files),
            suspects: Suspects::default(),
            missed: Missed::default(),
            names: Names::default(),
            emptied: Mutex::default(),
        };
        SpaceRegistry { shared: Arc::new(shared), shards: Default::default(), resolver: RwLock::new(None) }
    }

    /// Whether files opened from now on pass the operating system's cache by.
    pub fn set_direct(&self, direct: bool) {
        self.shared.direct.store(direct, Ordering::Relaxed);
    }

    /// Changes how many files stay open.
    pub fn set_max_open_files(&self, max: usize) {
        self.shared.open_files.set_max(max);
    }

    /// How many files a batch of writes, or the check, may keep open beside the others: a part of those that may be open.
    pub fn files_at_once(&self) -> usize {
        self.shared.open_files.max().div_ceil(BATCH_PART)
    }

    /// Files open now.
    pub fn open_files(&self) -> usize {
        self.shared.open_files.count()
    }

    /// Tablespaces in memory.
    pub fn known(&self) -> usize {
        self.shards.iter().map(|s| s.read().known.len()).sum()
    }

    /// A check of all tablespaces is to come: from now on it is noted which are opened and created.
    pub fn begin_watch(&self) {
        self.shared.suspects.begin_watch();
    }

    /// The check is over.
    pub fn end_watch(&self) {
        self.shared.suspects.end_watch();
    }

    /// Whether the file of this path was created since [`SpaceRegistry::begin_watch`].
    pub fn was_created(&self, path: &str) -> bool {
        self.shared.suspects.was_created(path)
    }

    /// The tablespace must not be used: the file `other` says that it is the same one. What was opened
    /// before, or is `needed` by recovery, stays usable for what is under way; see [`SpaceRegistry::check_usable`]. Between [`SpaceRegistry::begin_watch`]
    /// and [`SpaceRegistry::end_watch`].
    pub fn suspect(&self, id: SpaceId, other: &Path, reason: &str, needed: bool) {
        self.shared.suspects.add(id, other.into(), reason, needed);
    }

    /// Whether new work may use the tablespace.
    ///
    /// # Errors
    /// [`Error::TablespaceUnavailable`] with the reason given to [`SpaceRegistry::suspect`].
    #[inline]
    pub fn check_usable(&self, id: SpaceId) -> Result<()> {
        match self.shared.suspects.any() {
            false => Ok(()),
            true => self.check_suspect(id),
        }
    }

    #[cold]
    fn check_suspect(&self, id: SpaceId) -> Result<()> {
        let Err((reason, _)) = self.shared.suspects.check(id) else { return Ok(()) };
        Err(self.get(id)?.unavailable(&*reason))
    }

    /// Takes over from the last checkpoint's payload which files have missed changes, and up to which LSN; `None` if it cannot
    /// be read. Before any tablespace is used.
    pub fn read_missed(&self, note: &[u8]) -> Option<Vec<(SpaceId, Lsn)>> {
        self.shared.missed.read(note)
    }

    /// The payload of the next checkpoint. Asked for after it is known what that checkpoint passes.
    pub fn missed_note(&self) -> Vec<u8> {
        self.shared.missed.note()
    }

    /// Gives up the changes up to `lsn` that are not in the tablespace's file: it is not used from here on, nor after any
    /// later start. False, and nothing is done, while it is in use (its file is open, pages of it are in memory, or `in_use` says
    /// so, which is asked when new use is refused already) or when no more tablespaces can be noted.
    pub fn give_up(&self, id: SpaceId, lsn: Lsn, in_use: InUse<'_>) -> bool {
        self.give_up_if_unused(id, lsn, in_use) || {
            if !self.shared.missed.sweep_due() {
                return false;
            }
            // Of those that were dropped before a crash the note may be left.
            let gone: Vec<SpaceId> = self.shared.missed.ids().into_iter().filter(|&id| self.is_gone(id)).collect();
            gone.iter().for_each(|&id| self.forget_missed(id));
            !gone.is_empty() && self.give_up_if_unused(id, lsn, in_use)
        }
    }

    fn give_up_if_unused(&self, id: SpaceId, lsn: Lsn, in_use: InUse<'_>) -> bool {
        let shard = self.shard(id).write();
        match shard.known.get(&id).cloned() {
            // Nobody gets hold of it before the latch is free.
            None => {
                let fits = self.shared.missed.doubt(id, lsn);
                drop(shard);
                fits && self.shared.missed.settle(id, !in_use())
            }
            Some(space) => {
                drop(shard);
                space.give_up(lsn, in_use)
            }
        }
    }

    /// Whether its file is not to be used, as changes are missing in it.
    #[inline]
    pub fn has_missed(&self, id: SpaceId) -> bool {
        self.shared.missed.has(id)
    }

    /// Whether the tablespace's file has all its changes. Asked also after a page of it has been read.
    ///
    /// # Errors
    /// [`Error::TablespaceUnavailable`] if it has missed some.
    pub fn check_missed(&self, id: SpaceId) -> Result<()> {
        fence(Ordering::SeqCst);
        match self.shared.missed.why(id) {
            None => Ok(()),
            Some(reason) => Err(self.get(id)?.unavailable(reason)),
        }
    }

    /// The tablespace is gone: nobody will ask for it again.
    pub fn forget_missed(&self, id: SpaceId) {
        self.shared.missed.forget(id);
    }

    /// From now on it is noted whose files come, go and get other names, until [`SpaceRegistry::end_watch_names`].
    pub fn watch_names(&self) {
        self.shared.names.watch();
    }

    /// Nobody wants to know any more.
    pub fn end_watch_names(&self) {
        self.shared.names.end_watch();
    }

    /// Keeps all files where they are while the result lives: whoever creates, removes or renames one waits. He may hold
    /// latches of the catalog's DDL, so no catalog is asked and nothing is changed meanwhile.
    pub fn hold_names(&self) -> NamesHeld<'_> {
        self.shared.names.hold()
    }

    fn shard(&self, id: SpaceId) -> &RwLock<Shard> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// Makes a tablespace known without touching its file. `path` is relative to `#myriad/`. With no UUID given, the
    /// file's own is taken at its first opening. One that is known already stays as it is.
    pub fn register(&self, id: SpaceId, path: &str, uuid: Option<Uuid>) {
        self.insert(id, path, uuid);
    }

    fn insert(&self, id: SpaceId, path: &str, uuid: Option<Uuid>) -> Arc<Space> {
        let mut shard = self.shard(id).write();
        let space = shard.known.entry(id).or_insert_with(|| Arc::new(Space::new(&self.shared, id, path, uuid)));
        Arc::clone(space)
    }

    /// Who answers for ids that are not known.
    pub fn set_resolver(&self, resolver: Resolver) {
        *self.resolver.write() = Some(Arc::new(resolver));
    }

    fn resolve(&self, id: SpaceId) -> Result<Option<(String, Uuid)>> {
        let resolver = self.resolver.read().clone();
        match resolver {
            Some(resolver) => resolver(id),
            None => Ok(None),
        }
    }

    /// Creates the tablespace's file with its header page; durable when this returns. A resolver can tell of it already: when it
    /// is idle it is forgotten like any other.
    ///
    /// # Errors
    /// [`Error::Io`] with `EEXIST` if there is such a file; [`Error::Invalid`] for an id in use or a path that leaves
    /// `#myriad/`; [`Error::DiskFull`], [`Error::Io`]. Nothing is left behind then.
    pub fn create(&self, id: SpaceId, path: &str, uuid: Uuid, creation_lsn: Lsn) -> Result<Arc<Space>> {
        check_path(path)?;
        let (space, is_new) = self.about_to_create(id, path, uuid)?;
        let created = space.create_file(creation_lsn);
        if created.is_err() && is_new {
            self.shard(id).write().known.remove(&id);
        }
        created.map(|()| space)
    }

    /// The tablespace whose file is about to be created, known from now on so that there is never a second one, and whether it
    /// was not yet: who lists the catalog may have come upon its row before.
    fn about_to_create(&self, id: SpaceId, path: &str, uuid: Uuid) -> Result<(Arc<Space>, bool)> {
        let resolver_knows = self.resolver.read().is_some();
        let mut shard = self.shard(id).write();
        shard.sweep();
        match shard.known.get(&id) {
            Some(space) if space.is_resolved() && space.is_described_as(path, uuid) => Ok((Arc::clone(space), false)),
            None if !shard.has_dropped(id) => {
                let space = Arc::new(match resolver_knows {
                    true => Space::resolved(&self.shared, id, path, uuid),
                    false => Space::new(&self.shared, id, path, Some(uuid)),
                });
                shard.known.insert(id, Arc::clone(&space));
                Ok((space, true))
            }
            _ => Err(Error::invalid(format!("tablespace id {id} is in use"))),
        }
    }

    /// The tablespace. Opens no file: that happens at its first use.
    ///
    /// # Errors
    /// [`Error::TablespaceUnavailable`] if it is not known or was dropped; what the resolver gives.
    pub fn get(&self, id: SpaceId) -> Result<Arc<Space>> {
        {
            let shard = self.shard(id).read();
            if let Some(space) = shard.known.get(&id) {
                return Ok(Arc::clone(space));
            }
            if shard.has_dropped(id) {
                return Err(unavailable(id, "it has been dropped"));
            }
        }
        match self.resolve(id)? {
            Some((path, uuid)) => {
                check_path(&path)?;
                let mut shard = self.shard(id).write();
                if shard.has_dropped(id) {
                    return Err(unavailable(id, "it has been dropped"));
                }
                shard.sweep();
                let space = shard.known.entry(id);
                Ok(Arc::clone(space.or_insert_with(|| Arc::new(Space::resolved(&self.shared, id, &path, uuid)))))
            }
            None => Err(unavailable(id, "the catalog does not know it")),
        }
    }

    /// A page of the tablespace has left memory: the end of what [`Space::page_entered`] began.
    pub fn page_left(&self, id: SpaceId) {
        if let Some(space) = self.shard(id).read().known.get(&id) {
            space.page_left();
        }
    }

    /// The tablespace, if it is in memory.
    pub fn get_known(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.shard(id).read().known.get(&id).cloned()
    }

    /// Whether [`SpaceRegistry::take_emptied`] has any to tell of.
    pub fn has_emptied(&self) -> bool {
        !self.shared.emptied.lock().is_empty()
    }

    /// Tablespaces in which many extents have become wholly free since this was last asked.
    pub fn take_emptied(&self) -> BTreeSet<SpaceId> {
        std::mem::take(&mut self.shared.emptied.lock())
    }

    /// Entries of the clock of open files, and ranges of dropped ids.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> (usize, usize) {
        let dropped = self.shards.iter().map(|s| s.read().dropped.len()).sum();
        (self.shared.open_files.entries(), dropped)
    }

    /// Whether the tablespace is gone for good: dropped ([`SpaceRegistry::was_dropped`]), or, as ids are never reused, not
    /// known to the resolver any more.
    pub fn is_gone(&self, id: SpaceId) -> bool {
        let shard = self.shard(id).read();
        let (known, dropped) = (shard.known.contains_key(&id), shard.drops(id));
        drop(shard);
        dropped || !known && self.resolver.read().is_some() && self.resolve(id) == Ok(None)
    }

    /// Whether it was dropped while this registry was open, or [`SpaceRegistry::drop_spaces`] has begun to.
    pub fn was_dropped(&self, id: SpaceId) -> bool {
        self.shard(id).read().drops(id)
    }

    /// Closes the tablespaces and removes their files, durably, with one sync for all. Whoever still holds one gets errors
    /// from now on, as does who asks for one that was not known. Dropping what is dropped, or not known, is no error; after an error
    /// it can be tried again. Returns how it went with each, in their order.
    pub fn drop_spaces(&self, ids: &[SpaceId]) -> Vec<Result<()>> {
        let remove = |&id| match self.get(id) {
            Ok(space) => space.drop_file().map(Some),
            Err(Error::TablespaceUnavailable { .. }) => Ok(None),
            Err(e) => Err(e),
        };
        let removed: Vec<Result<Option<PathBuf>>> = ids.iter().map(remove).collect();
        let folders: BTreeSet<&PathBuf> = removed.iter().flatten().flatten().collect();
        let synced = folders.into_iter().try_for_each(|folder| self.shared.sync_dir(folder));
        let forget = |(&id, removed): (&SpaceId, Result<Option<PathBuf>>)| {
            if removed?.is_some() {
                synced.clone()?;
            }
            let mut shard = self.shard(id).write();
            shard.known.remove(&id);
            shard.dropped.insert(id.0 / SHARDS as u32);
            Ok(())
        };
        ids.iter().zip(removed).map(forget).collect()
    }

    /// Gives the tablespace's file another path under `#myriad/`, durably.
    ///
    /// # Errors
    /// [`Error::TablespaceUnavailable`], [`Error::Invalid`] for a path that leaves `#myriad/`, [`Error::Io`] (`EEXIST` if
    /// the path is taken).
    pub fn rename(&self, id: SpaceId, path: &str) -> Result<()> {
        check_path(path)?;
        self.get(id)?.rename_file(path)
    }
}

fn unavailable(id: SpaceId, reason: &str) -> Error {
    Error::TablespaceUnavailable { name: id.to_string(), reason: reason.into() }
}

/// Paths come from names that users choose, and must stay inside `#myriad/`.
fn check_path(path: &str) -> Result<()> {
    let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
    if path.is_empty() || !plain || path.contains('\0') {
        return Err(Error::invalid(format!("tablespace path {path:?}")));
    }
    Ok(())
}
