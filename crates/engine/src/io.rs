//! Files as the engine reaches them: for programs that bring their own to [`Engine::open_with`](crate::Engine::open_with), by the
//! traits [`Io`] and [`File`], and for tests that crash the program's data on a disk in memory, [`SimIo`].
//!
//! What the engine relies on: a read is short only at the end of a file, a write is whole or an error; what was written is durable when
//! [`File::sync`] has returned, a name when [`Io::sync_dir`] of its folder has; [`Io::submit`] returns when all of its requests are done.
//! The rest of what the engine cannot know is in [`EngineConfig`](crate::EngineConfig): time (`clock`), chance (`seed`), and threads
//! (`background_threads`).
//!
//! ```
//! use myriad::io::{Io, SimIo};
//! use myriad::{Engine, EngineConfig, IndexSpec, Result, TableSpec};
//! use std::{path::Path, sync::Arc};
//!
//! # fn main() -> Result<()> {
//! let config = EngineConfig { background_threads: false, ..EngineConfig::new("/data") };
//! let disk = SimIo::new(1);
//! disk.create_dir(Path::new("/data"))?;
//! let engine = Engine::open_with(config.clone(), Some(Arc::new(disk.clone())))?;
//! engine.create_table("d/t", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() })?;
//! let table = engine.open_table("d/t")?;
//! let mut session = engine.session();
//! session.transaction(|s| s.insert(&table, b"durable", b""))?;
//! session.insert(&table, b"not committed", b"")?;
//!
//! // The power fails. Of what was not synced the seed says how much is there.
//! let disk = disk.crash(2);
//! let engine = Engine::open_with(config, Some(Arc::new(disk)))?;
//! let (table, mut session) = (engine.open_table("d/t")?, engine.session());
//! assert_eq!(session.find(&table, b"durable")?, Some(vec![]));
//! assert_eq!(session.find(&table, b"not committed")?, None);
//! # session.commit()
//! # }
//! ```

pub use myriad_io::{
    open_io, AlignedBuf, CallKind, Create, Fault, File, FileLock, FileRole, Io, IoBuf, IoRequest, OpenMode, SimIo,
};
