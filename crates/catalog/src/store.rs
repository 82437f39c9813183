//! The catalog object: its indexes, reading, id allocation.

use crate::cache::Cache;
use crate::def::{Placement, TableDef, TableRef};
use crate::punch::Punching;
use crate::reclaim::{Reclaiming, Round};
use crate::references::Following;
use crate::rows::{self, SpaceRow};
use crate::spaces::Turns;
use crate::unused::Sweeps;
use myriad_base::clock::Clock;
use myriad_base::random::Random;
use myriad_base::{Csn, Error, IndexId, Result, ShapeId, SpaceId};
use myriad_btree::Tree;
use myriad_buffer::BufferPool;
use myriad_space::SpaceRegistry;
use myriad_txn::{Durability, Index, Isolation, LockWait, RowBuf, Strength, Trx, TrxSystem};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Sees a row's key and value; whether to go on.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

/// Settings of a [`Catalog`].
pub struct CatalogConfig {
    /// Where tables go that do not say.
    pub placement: Placement,
    /// Memory for definitions and shapes in bytes.
    pub cache_bytes: usize,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Source of tablespaces' UUIDs.
    pub random: Random,
}

/// An index of the catalog.
pub(crate) const fn index(id: IndexId) -> Index {
    Index { id, tree: Tree::pack(SpaceId::SYSTEM), clustered: true, table: id, hash: false, private: false }
}

/// A batch of reserved numbers.
#[derive(Default)]
struct Batch {
    next: u32,
    end: u32,
}

/// The counters of index [`rows::COUNTERS`].
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Index = 1,
    Space = 2,
    Shape = 3,
}

impl Counter {
    const fn first(self) -> u32 {
        match self {
            Counter::Index => rows::FIRST_INDEX,
            Counter::Space => SpaceId::FIRST_USER.0,
            Counter::Shape => 1,
        }
    }

    const fn batch(self) -> u32 {
        match self {
            Counter::Index => 1024,
            Counter::Space => 8,
            Counter::Shape => 32,
        }
    }
}

/// See [`Catalog::contents_since`].
#[derive(Default)]
struct Contents {
    /// By index id.
    indexes: HashMap<u32, Csn>,
    /// Number of indexes at which those that no snapshot is too old for are looked for again.
    prune_at: usize,
}

/// Table definitions and where everything is. One for an open data directory.
pub struct Catalog {
    pub(crate) trx: Arc<TrxSystem>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) spaces: Arc<SpaceRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    definitions: Cache<String, TableRef>,
    pub(crate) shapes: Cache<u32, Arc<[u8]>>,
    pub(crate) shape_ids: Cache<u64, ShapeId>,
    pub(crate) interning: Mutex<()>,
    /// Held shared by who interns a shape, or copies rows that have one, until the row that gets it is committed; alone, and
    /// tried for a moment only, by who removes shapes.
    pub(crate) defining: RwLock<()>,
    pub(crate) sweeps: Sweeps,
    pub(crate) creating_space: Turns,
    pub(crate) following: Following,
    pub(crate) random: Mutex<Random>,
    batches: [Mutex<Batch>; 3],
    placement: AtomicU8,
    readers: Mutex<Vec<Trx>>,
    /// Indexes that were filled as a whole, and the first snapshot that may read them, see
    /// [`Catalog::contents_since`].
    contents: Mutex<Contents>,
    /// Indexes being built: noted as pending, not to be reclaimed yet.
    pub(crate) building: Mutex<HashSet<u32>>,
    /// First index id of this run; those below were given before the last start.
    pub(crate) new_indexes_from: AtomicU32,
    /// See [`Catalog::references_version`].
    pub(crate) references_version: AtomicU64,
    /// Whether index [`rows::DESTROYED`] may have rows.
    pub(crate) destroyed: Arc<AtomicBool>,
    pub(crate) punching: Mutex<Punching>,
    pub(crate) round: Mutex<Round>,
    /// Held for a step of the removal of an index: one on disk, one in memory.
    pub(crate) removing: [Mutex<()>; 2],
    /// See [`Catalog::reclaiming`].
    pub(crate) at_work: Mutex<Reclaiming>,
}

/// Longest wait of a definition change for another one, in seconds.
const DDL_LOCK_WAIT_S: u64 = 50;
const READERS_MAX: usize = 64;
/// Indexes with new contents that may be remembered without need.
const CONTENTS_MIN: usize = 64;

impl Catalog {
    /// The catalog of an open data directory. Reads nothing. The system tablespace's layout must be there
    /// ([`myriad_btree::alloc::create_space_layout`]); an empty tree is an empty catalog.
    pub fn open(
        trx: Arc<TrxSystem>,
        pool: Arc<BufferPool>,
        spaces: Arc<SpaceRegistry>,
        config: CatalogConfig,
    ) -> Catalog {
        Catalog {
            trx,
            pool,
            spaces,
            clock: config.clock,
            definitions: Cache::new(config.cache_bytes / 4 * 3),
            shapes: Cache::new(config.cache_bytes / 4),
            shape_ids: Cache::new(64 << 10),
            interning: Mutex::new(()),
            defining: RwLock::new(()),
            sweeps: Sweeps::default(),
            creating_space: Turns::default(),
            following: Following::default(),
            random: Mutex::new(config.random),
            batches: Default::default(),
            placement: AtomicU8::new(config.placement as u8),
            readers: Mutex::new(Vec::new()),
            contents: Mutex::default(),
            building: Mutex::new(HashSet::new()),
            new_indexes_from: AtomicU32::new(rows::FIRST_INDEX),
            punching: Mutex::default(),
            round: Mutex::default(),
            removing: Default::default(),
            at_work: Mutex::default(),
            references_version: AtomicU64::new(1),
            destroyed: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Where tables go that do not say.
    pub fn placement(&self) -> Placement {
        Placement::from_u8(self.placement.load(Ordering::Relaxed)).expect("only placements are stored")
    }

    /// Changes [`Catalog::placement`].
    pub fn set_placement(&self, placement: Placement) {
        self.placement.store(placement as u8, Ordering::Relaxed);
    }

    /// Definitions and bytes in the cache.
    pub fn cache_usage(&self) -> (usize, usize) {
        self.definitions.usage()
    }

    /// `n` consecutive numbers; the first of them. Never given again, not even after a crash.
    pub(crate) fn allocate(&self, counter: Counter, n: u32) -> Result<u32> {
        let mut batch = self.batches[counter as usize - 1].lock();
        if batch.end - batch.next < n {
            let (index, key) = (index(rows::COUNTERS), [counter as u8]);
            let next = self.next_of(counter)?;
            let end = next.checked_add(n.max(counter.batch())).ok_or_else(|| Error::invalid("ids are used up"))?;
            // In the log before anything that uses the numbers, so as durable as their use.
            self.trx.put_unversioned(&index, &key, &rows::encode_number(u64::from(end)))?;
            *batch = Batch { next, end };
        }
        let first = batch.next;
        batch.next += n;
        Ok(first)
    }

    /// The number that the counter's next batch begins with.
    fn next_of(&self, counter: Counter) -> Result<u32> {
        let mut stored = Vec::new();
        Ok(match self.trx.get_newest(&index(rows::COUNTERS), &[counter as u8], &mut stored)? {
            true => u32::try_from(rows::decode_number(&stored)?).unwrap_or(u32::MAX),
            false => counter.first(),
        })
    }

    /// Notes which indexes were there before this start. Before any is created.
    pub(crate) fn note_start(&self) -> Result<()> {
        self.new_indexes_from.store(self.next_of(Counter::Index)?, Ordering::Release);
        Ok(())
    }

    /// Whether the last start has emptied the table: it is in memory and was filled, if at all, before.
    pub fn was_emptied(&self, def: &TableDef) -> bool {
        def.is_in_memory() && def.indexes[0].id.0 < self.new_indexes_from.load(Ordering::Acquire)
    }

    /// Runs `f` with a transaction object that reads what is committed.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        let reader = self.readers.lock().pop();
        let mut trx = reader.unwrap_or_else(|| self.trx.begin(Isolation::ReadCommitted));
        trx.start();
        let result = f(&mut trx);
        trx.commit(Durability::None)?;
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(trx);
        }
        result
    }

    /// Runs `f` in a transaction and commits it durably; rolls it back after an error.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        self.change_durably(Durability::Sync, f)
    }

    /// As [`Catalog::change`], of one table's definition: that of a temporary table ends with the server, so nobody waits for
    /// the log.
    pub(crate) fn change_of<R>(&self, table: &str, f: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        let temporary = table.split_once('/').is_some_and(|(db, _)| db == rows::TEMPORARY_DATABASE);
        self.change_durably(if temporary { Durability::None } else { Durability::Sync }, f)
    }

    fn change_durably<R>(&self, durability: Durability, f: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        let mut trx = self.trx.begin(Isolation::ReadCommitted);
        trx.set_lock_wait_timeout(Duration::from_secs(DDL_LOCK_WAIT_S));
        trx.start();
        match f(&mut trx) {
            Ok(r) => {
                trx.commit(durability)?;
                Ok(r)
            }
            Err(e) => {
                trx.rollback()?;
                Err(e)
            }
        }
    }

    /// The definition of a table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of reading the catalog.
    pub fn table(&self, name: &str) -> Result<TableRef> {
        self.find_table(name)?.ok_or_else(|| Error::NoSuchTable { name: name.into() })
    }

    /// The definition of a table, or `None`.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn find_table(&self, name: &str) -> Result<Option<TableRef>> {
        let epoch = match self.definitions.get(name) {
            Ok(def) => return Ok(Some(def)),
            Err(epoch) => epoch,
        };
        let mut key = Vec::new();
        rows::push_table_key(&mut key, name)?;
        let Some(value) = self.get_committed(rows::TABLES, &key)? else { return Ok(None) };
        let def = Arc::new(rows::decode_table(name.into(), &value)?);
        self.definitions.insert(name.into(), Arc::clone(&def), def.memory_bytes() + name.len(), epoch);
        Ok(Some(def))
    }

    /// The indexes' contents are new as a whole (created, emptied, copied, built): entries without versions, which every
    /// snapshot would see. So older snapshots must not read them. Called after the change was committed; kept while there
    /// are such snapshots, so in memory only.
    pub(crate) fn note_new_contents(&self, ids: impl Iterator<Item = IndexId>) {
        let since = self.trx.newest_snapshot();
        let oldest = self.trx.oldest_snapshot();
        let mut contents = self.contents.lock();
        contents.indexes.extend(ids.map(|id| (id.0, since)));
        // Only when it has doubled: looking through all of them at each change would be quadratic while a snapshot stays.
        if contents.indexes.len() > contents.prune_at {
            contents.indexes.retain(|_, since| *since > oldest);
            contents.indexes.shrink_to_fit();
            contents.prune_at = (2 * contents.indexes.len()).max(CONTENTS_MIN);
        }
    }

    /// For each of the table's indexes the oldest snapshot that may read it; of those left out any may.
    pub fn contents_since(&self, def: &TableDef) -> Box<[Csn]> {
        let contents = self.contents.lock();
        if contents.indexes.is_empty() {
            return Box::default();
        }
        def.indexes.iter().map(|i| contents.indexes.get(&i.id.0).copied().unwrap_or_default()).collect()
    }

    /// Forgets a cached definition; call after its change was committed or rolled back.
    pub(crate) fn forget(&self, name: &str) {
        self.definitions.invalidate(name);
    }

    /// As [`Catalog::forget`], of all tables of a database. Looks at all definitions in memory.
    pub(crate) fn forget_database(&self, db: &str) {
        self.definitions.invalidate_all(|name| name.strip_prefix(db).is_some_and(|rest| rest.starts_with('/')));
    }

    pub(crate) fn get_committed(&self, id: IndexId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|trx| {
            let mut row = RowBuf::new();
            let found = trx.get(&index(id), key, false, None, LockWait::Wait, &mut row)?;
            Ok(found.then(|| row.value().to_vec()))
        })
    }

    /// A tablespace's path (relative to the engine's directory) and UUID, by its newest row; for
    /// [`SpaceRegistry::set_resolver`]. Takes no lock and no snapshot: it is called below everything.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn resolve_space(trx: &TrxSystem, space: SpaceId) -> Result<Option<(String, [u8; 16])>> {
        let mut value = Vec::new();
        if !trx.get_newest(&index(rows::SPACES), &space.0.to_be_bytes(), &mut value)? {
            return Ok(None);
        }
        let row = SpaceRow::decode(&value)?;
        Ok(Some((row.path, row.uuid)))
    }

    /// A tablespace's newest row, committed or not. Takes no lock and no snapshot.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn space_row(&self, space: SpaceId) -> Result<Option<SpaceRow>> {
        let mut value = Vec::new();
        let found = self.trx.get_newest(&index(rows::SPACES), &space.0.to_be_bytes(), &mut value)?;
        found.then(|| SpaceRow::decode(&value)).transpose()
    }

    /// The rows of all tablespaces in order of their ids, until `visit` says false. For listings and checks.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn scan_spaces(&self, visit: &mut dyn FnMut(SpaceId, SpaceRow) -> bool) -> Result<()> {
        self.scan_spaces_from(SpaceId(0), visit)
    }

    fn scan_spaces_from(&self, first: SpaceId, visit: &mut dyn FnMut(SpaceId, SpaceRow) -> bool) -> Result<()> {
        let before = first.0.checked_sub(1).map(u32::to_be_bytes);
        self.scan_after(rows::SPACES, &[], before.as_ref().map(|key| &key[..]), &mut |key, value| {
            let id: [u8; 4] = key.try_into().map_err(|_| Error::invalid("tablespace key"))?;
            Ok(visit(SpaceId(u32::from_be_bytes(id)), SpaceRow::decode(value)?))
        })
    }

    /// The tablespaces in order of their ids, from `first` on, until `visit(id, path, database)` says false. For listings.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn list_spaces(&self, first: SpaceId, visit: &mut dyn FnMut(SpaceId, &str, &str) -> bool) -> Result<()> {
        self.scan_spaces_from(first, &mut |id, row| {
            let database = if row.state == rows::SpaceState::Orphan { "" } else { row.database.as_str() };
            visit(id, &row.path, database)
        })
    }

    /// Visits the committed rows whose key begins with `prefix`, in order, until `visit` says false.
    pub(crate) fn scan(&self, id: IndexId, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        self.scan_after(id, prefix, None, visit)
    }

    /// As [`Catalog::scan`]; where a whole key is given, the rows that follow it, whatever they begin with.
    pub(crate) fn scan_after(&self, id: IndexId, prefix: &[u8], after: Option<&[u8]>, visit: Visit<'_>) -> Result<()> {
        self.read(|trx| {
            let mut cursor = myriad_txn::Cursor::new(index(id), scan_options(None));
            let mut found = match after {
                Some(key) => cursor.seek(trx, myriad_txn::Seek::Gt, key)?,
                None => seek_prefix(&mut cursor, trx, prefix)?,
            };
            while found && visit(cursor.key(), cursor.value())? {
                found = cursor.next(trx)?;
            }
            Ok(())
        })
    }

    /// Whether there is a committed row whose key begins with `prefix`.
    pub(crate) fn has_row(&self, id: IndexId, prefix: &[u8]) -> Result<bool> {
        let mut any = false;
        self.scan(id, prefix, &mut |_, _| {
            any = true;
            Ok(false)
        })?;
        Ok(any)
    }

    /// Tables of a database in order, by the table part of their names, until `visit` says false.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn list_tables(&self, db: &str, visit: &mut dyn FnMut(&str) -> bool) -> Result<()> {
        let mut prefix = Vec::new();
        rows::push_database_key(&mut prefix, db)?;
        self.scan(rows::TABLES, &prefix, &mut |key, _| Ok(visit(rows::parse_table_key(key)?.1)))
    }

    /// The first table whose `db/table` begins with this.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn first_table_with_prefix(&self, prefix: &str) -> Result<Option<TableRef>> {
        let mut found = None;
        self.scan_tables(prefix, &mut |name, value| {
            found = Some(Arc::new(rows::decode_table(name, value)?));
            Ok(false)
        })?;
        Ok(found)
    }

    /// Visits the tables whose `db/table` begins with this, name and row, until `visit` gives false.
    pub(crate) fn scan_tables(&self, prefix: &str, visit: &mut dyn FnMut(String, &[u8]) -> Result<bool>) -> Result<()> {
        let mut key = Vec::new();
        rows::push_table_key(&mut key, prefix)?;
        key.pop();
        self.scan(rows::TABLES, &key, &mut |key, value| {
            let (db, table) = rows::parse_table_key(key)?;
            visit(format!("{db}/{table}"), value)
        })
    }

    /// The server's image of a table, empty if it has none.
    ///
    /// # Errors
    /// Those of reading the catalog.
    pub fn frm(&self, def: &TableDef) -> Result<Vec<u8>> {
        if def.frm_len == 0 {
            return Ok(Vec::new());
        }
        Ok(rows::join_image(&self.shape(def.shape)?, &def.frm_patch))
    }
}

/// How the catalog's cursors read.
pub(crate) fn scan_options(lock: Option<Strength>) -> myriad_txn::CursorOptions {
    myriad_txn::CursorOptions { lock, ..myriad_txn::CursorOptions::PLAIN }
}

/// Goes to the first row whose key begins with `prefix`.
pub(crate) fn seek_prefix(cursor: &mut myriad_txn::Cursor, trx: &mut Trx, prefix: &[u8]) -> Result<bool> {
    match prefix {
        [] => cursor.seek(trx, myriad_txn::Seek::First, &[]),
        _ => cursor.seek(trx, myriad_txn::Seek::Exact, prefix),
    }
}
