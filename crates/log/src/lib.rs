//! Room `log`: the write-ahead log.
//!
//! Holds one preallocated circular file, the reservation of log positions and the parallel copying of frames into memory,
//! writing and syncing for all who wait (group commit), the checkpoint header, and the scan at start. See docs/log.md.
//!
//! Never looks into a frame's body, never decides when to take a checkpoint (it asks, see [`Log::set_capacity_hook`]) and
//! starts no thread (but has work for two: [`Log::write_behind`], [`Log::lead_for_calls`]).
//!
//! Invariants:
//! - An [`Lsn`](myriad_base::Lsn) is a byte position since the data directory's creation; frames follow each other
//!   without gaps and start at multiples of 8.
//! - `checkpoint <= durable <= written <= contiguous <= end`.
//! - Nothing at or after the checkpoint is ever overwritten, in memory (before it is written) or in the file.
//! - A frame verifies only at its own LSN and in its own generation: what former laps of the ring, or the unsynced end of
//!   a log before a crash, left in the file never passes for a frame.
//! - While the log is off (see `unlogged.rs`) *written* and *durable* mean complete in memory, and the header says so.
//! - After a failed write or sync the log is poisoned: nothing is appended or acknowledged any more.
//!
//! Entry points: [`Log::open`], [`Log::scan`], [`Log::resume_at`], [`Log::append`], [`Log::flush_to`],
//! [`Log::flush_later`], [`Log::checkpoint`]; [`Log::stop_writing`], [`Log::resume_writing`]; [`LogCopy::begin`]; [`Log::resize`].

mod append;
mod behind;
mod calls;
mod capacity;
mod copy;
mod flush;
mod frame;
mod header;
mod log;
mod resize;
mod ring;
mod scan;
mod slots;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod unlogged;
mod waiters;

use myriad_base::{Lsn, Result};

pub use capacity::Admission;
pub use copy::LogCopy;
pub use log::{Log, LogConfig, LogStats};
pub use scan::FrameBeyond;

/// Takes a frame's start, its end and its body.
pub type FrameVisitor<'a> = dyn FnMut(Lsn, Lsn, &[u8]) -> Result<()> + 'a;

/// Called when appenders need room, with `(age, capacity)` in bytes: asks for a checkpoint. Called often; it may take the
/// checkpoint itself where there is no background thread, and must not append.
pub type CapacityHook = Box<dyn Fn(u64, u64) + Send + Sync>;
