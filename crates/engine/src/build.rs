//! In-place index build.

use crate::engine::Engine;
use crate::session::Session;
use crate::sort::{temporary_stem, Push, Sorter};
use crate::table::Table;
use myriad_base::{Error, Result, SpaceId};
use myriad_btree::{BulkBuilder, Tree};
use myriad_catalog::{IndexDef, IndexSpec};
use myriad_txn::Index;
use std::path::Path;
use std::sync::Arc;

/// Up to this many bytes of entries go into the tablespace's pack tree; more get a tree of their own.
const PACKED_BYTES_MAX: usize = 256 << 10;

/// A new index under construction. What it has written is reclaimed unless [`Engine::alter_indexes`] adopts it, also after
/// a crash.
pub struct IndexBuild {
    engine: Arc<Engine>,
    pub(crate) table_id: u32,
    space: SpaceId,
    def: IndexDef,
    sorter: Sorter,
    duplicate: Vec<u8>,
    pub(crate) finished: bool,
    noted: bool,
    pub(crate) adopted: bool,
}

impl IndexBuild {
    /// Begins the build of an index of `table`; entries are sorted in `memory_bytes`, and in files in `tmp_dir` beyond.
    /// The table must not change until the index is adopted.
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
        let engine = Arc::clone(session.engine());
        let id = engine.catalog().begin_build()?;
        let sorter = Sorter::new(engine.io(), temporary_stem(tmp_dir, id.0), memory_bytes);
        let spec = IndexSpec { unique, ..IndexSpec::PLAIN };
        Ok(IndexBuild {
            table_id: table.share.def.id.0,
            space: table.share.def.space,
            def: IndexDef { id, root: Tree::pack(table.share.def.space).root, spec },
            engine,
            sorter,
            duplicate: Vec::new(),
            finished: false,
            noted: false,
            adopted: false,
        })
    }

    /// Adds an entry, in any order. In a unique index no two entries may share their first `unique_len` bytes (0 = no
    /// check).
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

    /// Sorts, checks and writes.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], see [`IndexBuild::duplicate`]; those of writing.
    pub fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Err(Error::invalid("index build finished twice"));
        }
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

    /// Hands the sorted entries to `push`, as they are stored.
    fn write(&mut self, push: Push<'_>) -> Result<()> {
        // Frozen entries: nobody's transaction, so the table does not matter.
        let tree = Tree { space: self.space, root: self.def.root };
        let index = Index { id: self.def.id, tree, clustered: false, table: self.def.id, hash: false };
        self.sorter.write(self.engine.trx_system(), &index, &mut self.duplicate, push)
    }

    /// After [`Error::DuplicateKey`]: the duplicate's key, without the index id.
    pub fn duplicate(&self) -> &[u8] {
        &self.duplicate
    }

    /// What was built.
    pub(crate) fn built(&self) -> Result<IndexDef> {
        if self.finished && self.noted {
            Ok(self.def)
        } else {
            Err(Error::invalid("index build is not finished"))
        }
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        self.engine.catalog().end_build(self.def.id);
        if self.noted && !self.adopted {
            self.engine.wake_reclaimer();
        }
    }
}
