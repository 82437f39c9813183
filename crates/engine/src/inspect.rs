//! A stopped data directory, looked at without changing it.
//!
//! Opens it as the engine does, its log's changes applied to pages as they are asked for, over a view whose writes stay
//! in memory ([`OverlayIo`]). Rolls nothing back and removes nothing.

use crate::check::EngineSpaces;
use crate::config::EngineConfig;
use crate::format::{self, Format, Found};
use crate::open::{open_transactions, random_seed, recover, Phases, Storage};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn, PageId, Result, SpaceId};
use myriad_btree::alloc;
use myriad_io::{FileLock, Io, OverlayIo};
use myriad_space::check::KnownSpace;
use myriad_txn::undo_pages_wanted;
use std::path::Path;
use std::sync::Arc;

/// Memory for the pages looked at.
const POOL_BYTES: u64 = 32 << 20;

/// A stopped data directory, looked at without changing it. Others may look at it, too; no engine can have it open meanwhile.
///
/// ```
/// # use myriad::{CloseMode, Engine, Inspection, PageId, PageNo};
/// # fn main() -> myriad::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # Engine::open(folder.path())?.close(CloseMode::Clean)?;
/// let inspection = Inspection::open(folder.path())?;
/// for space in inspection.list()? {
///     println!("{} has {} pages", space.path, inspection.pages_wanted(space.id)?);
///     inspection.read_page(PageId::new(space.id, PageNo(1)))?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Inspection {
    spaces: EngineSpaces,
    storage: Storage,
    log_bytes: u64,
    _lock: Box<dyn FileLock>,
}

shown!(Inspection, |i| [("page_size", &i.page_size()), ("log_bytes", &i.log_bytes)]);

/// A directory whose log has been read.
struct Recovered {
    config: EngineConfig,
    format: Format,
    storage: Storage,
    log_bytes: u64,
    lock: Box<dyn FileLock>,
}

impl Recovered {
    fn open(data_dir: &Path) -> Result<Recovered> {
        let io: Arc<dyn Io> = Arc::new(OverlayIo::new());
        let folder = data_dir.join(format::FOLDER);
        let lock = io.lock_file(&folder.join(format::LOCK_FILE))?;
        let Found::Existing(format) = format::look(&io, &folder)? else {
            let path = folder.join(format::FORMAT_FILE).display().to_string();
            return Err(Error::Format { path, reason: "the file is missing: the directory was never whole".into() });
        };
        let config = EngineConfig {
            buffer_pool_bytes: POOL_BYTES,
            page_size: format.page_size,
            background_threads: false,
            // What looks committed in it is shown so; nothing is changed.
            force_recovery: true,
            // The program opens files of its own beside.
            max_open_files: 100,
            ..EngineConfig::new(data_dir)
        };
        let mut phases = Phases::begin(&config);
        let storage = recover(&config, &io, format, &mut phases)?;
        let log_bytes = phases.done.iter().map(|p| p.bytes_read).sum();
        Ok(Recovered { config, format, storage, log_bytes, lock })
    }
}

impl Inspection {
    /// Opens `data_dir`, where `#myriad/` is.
    ///
    /// # Errors
    /// [`Error::DirectoryLocked`] if an engine has it; [`Error::Format`] if it is not whole; [`Error::CorruptLog`] and
    /// those of reading log and catalog.
    pub fn open(data_dir: &Path) -> Result<Inspection> {
        let Recovered { config, format, storage, log_bytes, lock } = Recovered::open(data_dir)?;
        let random = Random::from_seed(random_seed());
        let (_, catalog) = open_transactions(&config, &storage, random, &mut Phases::begin(&config))?;
        let spaces = EngineSpaces::new(catalog, Arc::clone(&storage.spaces), format.uuid);
        Ok(Inspection { spaces, storage, log_bytes, _lock: lock })
    }

    /// Where the log of `data_dir` ends. Needs no page, and so tells of directories that cannot be opened.
    ///
    /// # Errors
    /// As [`Inspection::open`], but for those of the catalog.
    pub fn log_end_of(data_dir: &Path) -> Result<Lsn> {
        Ok(Recovered::open(data_dir)?.storage.pool.log().end_lsn())
    }

    /// Where the log ends. A page with a later LSN cannot be used.
    pub fn log_end(&self) -> Lsn {
        self.storage.pool.log().end_lsn()
    }

    /// Where the log goes on behind its end: what is between was damaged, or lost with the machine's power or its device.
    pub fn log_beyond(&self) -> Option<Lsn> {
        self.storage.log_beyond
    }

    /// What the catalog knows, for [`myriad_space::check::check_tablespaces`].
    pub fn spaces(&self) -> &EngineSpaces {
        &self.spaces
    }

    /// The tablespaces, the engine's own first.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn list(&self) -> Result<Vec<KnownSpace>> {
        let mut all = Vec::new();
        myriad_space::check::Known::list(&self.spaces, &mut |space| {
            all.push(space);
            true
        })?;
        Ok(all)
    }

    /// Bytes of log since the last checkpoint: changes that the next start applies. 0 after a shutdown that left none.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> usize {
        self.storage.pool.page_size()
    }

    /// Pages that the tablespace's file must have when all changes in the log have been applied.
    ///
    /// # Errors
    /// Those of reading its bitmap pages, or the undo directory.
    pub fn pages_wanted(&self, space: SpaceId) -> Result<u64> {
        match space {
            SpaceId::UNDO => undo_pages_wanted(&self.storage.pool).map(u64::from),
            _ => alloc::pages_wanted(&self.storage.pool, space),
        }
    }

    /// Pages in use when all changes in the log have been applied; `None` for undo, which has no bitmap.
    ///
    /// # Errors
    /// Those of reading its bitmap pages.
    pub fn pages_in_use(&self, space: SpaceId) -> Result<Option<u64>> {
        match space {
            SpaceId::UNDO => Ok(None),
            _ => alloc::pages_in_use(&self.storage.pool, space).map(Some),
        }
    }

    /// Whether the page is in use when all changes in the log have been applied. An undo page is once it has been: its
    /// free list leads through it.
    ///
    /// # Errors
    /// As [`Inspection::pages_wanted`].
    pub fn is_in_use(&self, page: PageId) -> Result<bool> {
        // Room beyond may have been set aside, without bitmap pages.
        let within = u64::from(page.page.0) < self.pages_wanted(page.space)?;
        Ok(within && (page.space == SpaceId::UNDO || alloc::is_in_use(&self.storage.pool, page)?))
    }

    /// Reads a page as the next start would: from its copy in the doublewrite file if it is torn, with the log's changes.
    ///
    /// # Errors
    /// Why it could not be used then.
    pub fn read_page(&self, page: PageId) -> Result<()> {
        self.storage.pool.fix_shared(page).map(drop)
    }

    /// The bytes of a page as the next start would have it.
    ///
    /// # Errors
    /// As [`Inspection::read_page`].
    pub fn page(&self, page: PageId) -> Result<Vec<u8>> {
        Ok(self.storage.pool.fix_shared(page)?.to_vec())
    }
}
