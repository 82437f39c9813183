//! In-place index build.

use crate::engine::Engine;
use crate::session::{KillHandle, Session};
use crate::sort::{temporary_stem, Push, Sorter};
use crate::table::Table;
use myriad_base::{Error, Result, SpaceId};
use myriad_btree::{BulkBuilder, Tree};
use myriad_catalog::{IndexDef, IndexSpec};
use myriad_txn::{Index, Isolation, Op, OpKind, Place, Trx};
use std::path::Path;
use std::sync::Arc;

/// Up to this many bytes of entries go into the tablespace's pack tree; more get a tree of their own.
const PACKED_BYTES_MAX: usize = 256 << 10;

/// A new index under construction. What it has written is reclaimed unless [`Engine::alter_tables`] adopts it, also after
/// a crash.
#[must_use = "what was built is reclaimed unless a table adopts it"]
pub struct IndexBuild {
    engine: Arc<Engine>,
    pub(crate) table_id: u32,
    space: SpaceId,
    def: IndexDef,
    /// Of the session that builds.
    builder: KillHandle,
    sorter: Sorter,
    duplicate: Vec<u8>,
    /// Set once all rows of the first reading are in the tree.
    edits: Option<Edits>,
    noted: bool,
    pub(crate) adopted: bool,
}

shown!(IndexBuild, |b| [("table_id", &b.table_id), ("index", &b.def)]);

/// Makes changes to an index that nobody else sees.
struct Edits {
    /// Lends its buffers; has nothing to commit.
    trx: Trx,
    removed_at: Vec<Option<Place>>,
    inserted_at: Vec<Option<Place>>,
}

impl IndexBuild {
    /// Begins the build of an index of `table`; entries are sorted in `memory_bytes`, and in files in `tmp_dir` beyond.
    /// A kill of the session ends the build. Until the index is adopted the table must not change, or
    /// [`RowChanges`](crate::RowChanges) has to tell how, and [`IndexBuild::remove`] and [`IndexBuild::catch_up`] repeat it.
    ///
    /// # Errors
    /// Those of writing the catalog.
    pub fn begin(
        session: &mut Session,
        table: &Table,
        unique: bool,
        tmp_dir: &Path,
        memory_bytes: u64,
    ) -> Result<IndexBuild> {
        session.check_usable(table)?;
        let engine = Arc::clone(session.engine());
        let id = engine.catalog().begin_build()?;
        let sorter = Sorter::new(engine.io(), temporary_stem(tmp_dir, id.0), memory_bytes);
        let spec = IndexSpec { unique, ..IndexSpec::PLAIN };
        Ok(IndexBuild {
            table_id: table.share.def.id.0,
            space: table.share.def.space,
            def: IndexDef { id, root: Tree::pack(table.share.def.space).root, spec },
            engine,
            builder: session.kill_handle(),
            sorter,
            duplicate: Vec::new(),
            edits: None,
            noted: false,
            adopted: false,
        })
    }

    /// Adds an entry, in any order; it is in the index after [`IndexBuild::finish`] or [`IndexBuild::catch_up`]. In a unique
    /// index no two entries may share their first `unique_len` bytes (0 = no check).
    ///
    /// # Errors
    /// Those of temporary files; [`Error::TooLong`].
    pub fn add(&mut self, key: &[u8], unique_len: usize, value: &[u8]) -> Result<()> {
        let max = myriad_base::limits::key_bytes_max(self.engine.pool().page_size()) - 4;
        if key.len() > max {
            return Err(Error::TooLong { what: "key", len: key.len(), max });
        }
        self.sorter.add(key, unique_len, value)
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.def.spec.unique
    }

    /// Sorts, checks and writes.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`IndexBuild::duplicate`]; [`Error::Interrupted`]; those of writing.
    pub fn finish(&mut self) -> Result<()> {
        if self.noted {
            return Err(Error::invalid("index build finished twice"));
        }
        self.write_tree()?;
        self.sorter.take();
        let trx = self.engine.trx_system().begin(Isolation::ReadUncommitted);
        self.edits = Some(Edits { trx, removed_at: Vec::new(), inserted_at: Vec::new() });
        Ok(())
    }

    /// Removes an entry from the finished index, at once.
    ///
    /// # Errors
    /// Those of the tree, also if there is no such entry; then the index is of no use.
    pub fn remove(&mut self, key: &[u8]) -> Result<()> {
        let index = self.index();
        let edits = self.edits.as_mut().ok_or_else(not_finished)?;
        let op = Op { kind: OpKind::Delete, index: &index, key, unique_len: 0, payload: b"", head_len: 0 };
        edits.trx.apply_bulk(&[op], &mut edits.removed_at).map_err(|e| e.error)
    }

    /// Puts the entries that were added since the index was finished into it. Those that they take the place of have to be
    /// removed before.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`IndexBuild::duplicate`]; [`Error::Interrupted`]; those of writing. Then the index is
    /// of no use.
    pub fn catch_up(&mut self) -> Result<()> {
        let index = self.index();
        let Edits { trx, inserted_at, .. } = self.edits.as_mut().ok_or_else(not_finished)?;
        let (duplicate, builder) = (&mut self.duplicate, &self.builder);
        self.sorter.take().finish(&mut |e| {
            check_killed(builder)?;
            let (key, unique_len, payload) = (e.key, e.unique_len, e.value);
            let op = Op { kind: OpKind::Insert, index: &index, key, unique_len, payload, head_len: 0 };
            trx.apply_bulk(&[op], inserted_at).map_err(|e| {
                duplicate.clear();
                duplicate.extend_from_slice(trx.duplicate_key());
                e.error
            })
        })
    }

    fn write_tree(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let pool = engine.pool();
        // A restart leaves in-memory tables the pack tree alone.
        if self.space == SpaceId::MEMORY || self.sorter.in_memory().is_some_and(|bytes| bytes <= PACKED_BYTES_MAX) {
            self.note()?;
            let tree = Tree { space: self.space, root: self.def.root };
            let trx = engine.trx_system();
            return trx.append_sorted(tree, |appender| self.write(&mut |key, value| appender.push(key, value)));
        }
        let mut builder = BulkBuilder::new(pool, self.space, self.def.id)?;
        self.def.root = builder.tree().root;
        self.note()?;
        self.write(&mut |key, value| builder.push(key, value))?;
        builder.finish().map(|_| ())
    }

    fn note(&mut self) -> Result<()> {
        self.noted = true;
        self.engine.catalog().note_build(self.def.id, self.space, self.def.root)
    }

    fn index(&self) -> Index {
        // Frozen entries: nobody's transaction, so the table does not matter.
        let tree = Tree { space: self.space, root: self.def.root };
        Index { id: self.def.id, tree, clustered: false, table: self.def.id, hash: false, private: false }
    }

    /// Hands the sorted entries to `push`, as they are stored.
    fn write(&mut self, push: Push<'_>) -> Result<()> {
        let (index, builder) = (self.index(), &self.builder);
        self.sorter.write(self.engine.trx_system(), &index, &mut self.duplicate, &mut |key, value| {
            check_killed(builder)?;
            push(key, value)
        })
    }

    /// After [`Error::DuplicateKey`]: the duplicate's key, without the index id.
    pub fn duplicate(&self) -> &[u8] {
        &self.duplicate
    }

    /// What was built.
    pub(crate) fn built(&self) -> Result<IndexDef> {
        if self.edits.is_some() {
            Ok(self.def)
        } else {
            Err(not_finished())
        }
    }
}

fn check_killed(builder: &KillHandle) -> Result<()> {
    if builder.is_killed() {
        return Err(Error::Interrupted);
    }
    Ok(())
}

fn not_finished() -> Error {
    Error::invalid("index build is not finished")
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        self.engine.catalog().end_build(self.def.id);
        if self.noted && !self.adopted {
            self.engine.wake_reclaimer();
        }
    }
}
