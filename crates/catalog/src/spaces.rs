//! Tablespaces of databases: creation and removal that a crash cannot tear.
//!
//! Creation: the tablespace's row and a pending row are made durable, then the file is created and laid out, then one
//! transaction removes the pending row and makes the tablespace known to its users. After a crash in between, the pending
//! row says which file to remove. Removal: the transaction that drops the tablespace leaves a pending row; the file and
//! both rows go after its commit, in this order, and again after a crash.

use crate::def::Placement;
use crate::rows::{self, Pending, SpaceRow, SpaceState};
use crate::store::{index, Catalog, Counter};
use myriad_base::{Error, Result, SpaceId};
use myriad_txn::{Index, LockWait, Op, OpKind, RowBuf, Strength, Trx};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;

/// Applies one change of the catalog.
pub(crate) fn apply_one(trx: &mut Trx, kind: OpKind, index: &Index, key: &[u8], payload: &[u8]) -> Result<()> {
    let unique_len = if kind == OpKind::Insert { key.len() } else { 0 };
    trx.apply(&[Op { kind, index, key, unique_len, payload, head_len: 0 }]).map_err(|e| e.error)
}

/// Notes work for later as part of the transaction.
pub(crate) fn add_pending(trx: &mut Trx, pending: Pending) -> Result<()> {
    apply_one(trx, OpKind::Insert, &index(rows::PENDING), &pending.key(), &pending.value())
}

/// The newest committed row with this key, locked.
pub(crate) fn get_locked(trx: &mut Trx, index: &Index, key: &[u8], lock: Strength) -> Result<Option<Vec<u8>>> {
    let mut row = RowBuf::new();
    let found = trx.get(index, key, false, Some(lock), LockWait::Wait, &mut row)?;
    Ok(found.then(|| row.value().to_vec()))
}

/// Of [`rows::SHARED_DATABASE`], too.
pub(crate) fn database_key(database: &str) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    match database {
        rows::SHARED_DATABASE => key.extend([database.as_bytes(), &[0]].concat()),
        _ => rows::push_database_key(&mut key, database)?,
    }
    Ok(key)
}

/// Names being worked on: the second who wants one waits for the first. Held across syncs, so not a latch.
#[derive(Default)]
pub(crate) struct Turns {
    busy: Mutex<HashSet<String>>,
    freed: Condvar,
}

/// A name taken from [`Turns`]; given back when dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    name: String,
}

impl Turns {
    fn take(&self, name: &str) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while busy.contains(name) {
            self.freed.wait(&mut busy);
        }
        busy.insert(name.into());
        Turn { turns: self, name: name.into() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.busy.lock().remove(&self.name);
        self.turns.freed.notify_all();
    }
}

impl Catalog {
    /// The tablespace of a database (or of all), created if there is none; its row is locked against removal for the
    /// rest of the transaction.
    pub(crate) fn space_for(&self, trx: &mut Trx, database: &str, placement: Placement) -> Result<SpaceId> {
        let database = if placement == Placement::Server { rows::SHARED_DATABASE } else { database };
        let key = database_key(database)?;
        loop {
            if let Some(value) = get_locked(trx, &index(rows::DATABASES), &key, Strength::S)? {
                let space = space_number(&value)?;
                // What is created there could never be used.
                self.spaces.check_missed(space)?;
                return Ok(space);
            }
            self.create_database_space(database, &key)?;
        }
    }

    /// Creates the tablespace of a database unless somebody else has; in a transaction of its own.
    fn create_database_space(&self, database: &str, key: &[u8]) -> Result<()> {
        let _turn = self.creating_space.take(database);
        let mut value = Vec::new();
        if self.trx.get_newest(&index(rows::DATABASES), key, &mut value)? {
            return Ok(());
        }
        let (space, row) = self.create_space_file(database)?;
        let done = self.change(|trx| {
            self.finish_space(trx, space, &row)?;
            apply_one(trx, OpKind::Insert, &index(rows::DATABASES), key, &rows::encode_number(u64::from(space.0)))
        });
        match done {
            Ok(()) => Ok(()),
            Err(e) => {
                self.abandon_space(space);
                match e {
                    // A removal of the database's old tablespace was rolled back meanwhile.
                    Error::DuplicateKey { .. } => Ok(()),
                    e => Err(e),
                }
            }
        }
    }

    /// Creates a tablespace's file and layout. The caller makes it known with [`Catalog::finish_space`] or gives it up
    /// with [`Catalog::abandon_space`].
    pub(crate) fn create_space_file(&self, database: &str) -> Result<(SpaceId, SpaceRow)> {
        let space = SpaceId(self.allocate(Counter::Space, 1)?);
        let uuid = self.random_bytes();
        let stem = if database == rows::SHARED_DATABASE { "server" } else { database };
        let row = SpaceRow {
            state: SpaceState::Creating,
            uuid,
            guests: 0,
            path: rows::file_name(stem, space),
            database: database.into(),
        };
        let pending = Pending::SpaceCreate(space);
        self.trx.put_unversioned(&index(rows::PENDING), &pending.key(), &pending.value())?;
        self.trx.put_unversioned(&index(rows::SPACES), &space.0.to_be_bytes(), &row.encode())?;
        let log = self.pool.log();
        log.flush_to(log.end_lsn())?;
        let created = self
            .spaces
            .create(space, &row.path, uuid, log.end_lsn())
            .and_then(|_| myriad_btree::alloc::create_space_layout(&self.pool, space));
        if let Err(e) = created {
            self.abandon_space(space);
            return Err(e);
        }
        Ok((space, row))
    }

    /// A random UUID's worth of bytes.
    pub(crate) fn random_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let mut random = self.random.lock();
        bytes[..8].copy_from_slice(&random.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&random.next_u64().to_le_bytes());
        bytes
    }

    /// Makes a new tablespace part of the catalog, as part of the transaction.
    pub(crate) fn finish_space(&self, trx: &mut Trx, space: SpaceId, row: &SpaceRow) -> Result<()> {
        let row = SpaceRow { state: SpaceState::Normal, ..row.clone() };
        apply_one(trx, OpKind::Update, &index(rows::SPACES), &space.0.to_be_bytes(), &row.encode())?;
        apply_one(trx, OpKind::Delete, &index(rows::PENDING), &Pending::SpaceCreate(space).key(), &[])
    }

    /// Removes a tablespace that did not come to be. What fails here is done later, by the background or the next start.
    pub(crate) fn abandon_space(&self, space: SpaceId) {
        // When the log has failed nobody knows whether the transaction that made the tablespace known is durable.
        if self.pool.check_poison().is_ok() {
            let _ = self.remove_unfinished(space);
        }
    }

    /// As [`Catalog::remove_spaces`] for a tablespace whose creation was not finished; what fails becomes work of
    /// [`Catalog::reclaim_step`], which leaves creations alone. Tells whether the file is gone.
    pub(crate) fn remove_unfinished(&self, space: SpaceId) -> Result<bool> {
        let create = Pending::SpaceCreate(space);
        if self.remove_spaces(&[create])?.iter().all(Result::is_ok) {
            return Ok(true);
        }
        let drop = Pending::SpaceDrop(space);
        self.trx.put_unversioned(&index(rows::PENDING), &drop.key(), &drop.value())?;
        self.trx.remove_unversioned(&index(rows::PENDING), &create.key())?;
        Ok(false)
    }

    /// Removes tablespaces' files, their rows, and the notes that this is to be done, in this order. Idempotent. Returns how
    /// it went with each, in their order.
    ///
    /// # Errors
    /// Those of the log; then nothing was done.
    pub(crate) fn remove_spaces(&self, pending: &[Pending]) -> Result<Vec<Result<()>>> {
        // What says that the files are to go is perhaps visible and not yet durable.
        let log = self.pool.log();
        log.flush_to(log.end_lsn())?;
        let ids: Vec<SpaceId> = pending.iter().map(|each| each.space()).collect();
        let forget = |(each, removed): (&Pending, Result<()>)| {
            removed?;
            self.pool.discard_space(each.space());
            self.trx.remove_unversioned(&index(rows::SPACES), &each.space().0.to_be_bytes())?;
            self.trx.remove_unversioned(&index(rows::PENDING), &each.key()).map(|_| ())
        };
        Ok(pending.iter().zip(self.spaces.drop_spaces(&ids)).map(forget).collect())
    }

    /// A tablespace's row, locked for change.
    pub(crate) fn space_locked(&self, trx: &mut Trx, space: SpaceId) -> Result<SpaceRow> {
        let value = get_locked(trx, &index(rows::SPACES), &space.0.to_be_bytes(), Strength::X)?;
        let value = value.ok_or_else(|| Error::TablespaceUnavailable {
            name: space.to_string(),
            reason: "the catalog does not know it".into(),
        })?;
        SpaceRow::decode(&value)
    }

    /// Stores a tablespace's changed row, as part of the transaction.
    pub(crate) fn put_space(&self, trx: &mut Trx, space: SpaceId, row: &SpaceRow) -> Result<()> {
        apply_one(trx, OpKind::Update, &index(rows::SPACES), &space.0.to_be_bytes(), &row.encode())
    }

    /// Drops a tablespace as part of the transaction; its file goes after the commit.
    pub(crate) fn drop_space(&self, trx: &mut Trx, space: SpaceId, row: SpaceRow) -> Result<()> {
        self.put_space(trx, space, &SpaceRow { state: SpaceState::Dropping, ..row })?;
        add_pending(trx, Pending::SpaceDrop(space))
    }
}

/// Reads a database's row.
pub(crate) fn space_number(value: &[u8]) -> Result<SpaceId> {
    u32::try_from(rows::decode_number(value)?)
        .map(SpaceId)
        .map_err(|_| Error::CorruptFile { path: "catalog".into(), reason: "tablespace id out of range".into() })
}
