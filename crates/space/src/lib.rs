//! Room `space`: tablespace files.
//!
//! Holds the header page that identifies a file, the registry that maps a [`SpaceId`](myriad_base::SpaceId) to its file,
//! the bounded set of open files, and growth ahead of use.
//!
//! Never looks into pages other than a file's header, never caches pages, and never opens a file before it is used:
//! there is no loop over all tablespaces here but the explicit [`check`].
//!
//! Invariants:
//! - A file is used only after its header named the id, the UUID and the page size that are expected of it.
//! - A tablespace that [`SpaceRegistry::create`] returned is durable: file, header and name.
//! - What [`Space::ensure_pages`] granted has room on the device, as far as the file system can promise that.
//! - Ids are never reused: what was dropped stays dropped.
//! - A file that has missed changes is not used again, whenever it comes back.
//!
//! Latch order: a shard of the registry is never held while a file is touched; `names`, a tablespace's `growing`, then its `file`,
//! then the open files' clock (which only *tries* other tablespaces' `file`).
//!
//! Entry points: [`SpaceRegistry::get`], [`Space::read_page`], [`Space::ensure_pages`].

pub mod check;
mod dropped;
mod header;
mod missed;
mod names;
mod open_files;
mod registry;
mod space;
mod suspects;
#[cfg(test)]
mod tests;

pub use header::{SpaceHeader, FORMAT_VERSION, HEADER_READ_BYTES, OFF_FREE_USE};
pub use names::NamesHeld;
pub use registry::{InUse, Resolver, SpaceRegistry};
pub use space::Space;

/// A tablespace's or data directory's name, unique over all.
pub type Uuid = [u8; 16];

/// The folder in the data directory that holds all files of the engine.
pub const DIRECTORY: &str = "#myriad";
