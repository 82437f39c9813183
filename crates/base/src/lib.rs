//! Room `base`: the words every other room speaks.
//!
//! Holds identifiers, the engine's one error type, little codecs, checksums, limits, the clock and random traits, and
//! latches with counters, who waits for what, who is there, and how the other rooms start threads. Knows nothing of files, pages' contents or
//! transactions, and has no threads of its own.

pub mod checksum;
pub mod circle;
pub mod clock;
pub mod codec;
pub mod error;
pub mod ids;
pub mod latch;
pub mod limits;
pub mod members;
pub mod page;
pub mod random;
pub mod threads;
pub mod waits;
pub mod work;

pub use checksum::crc32c;
pub use error::{Error, Result};
pub use ids::{Csn, IndexId, Lsn, PageId, PageNo, RollPtr, ShapeId, SpaceId, TableId, TrxId};
