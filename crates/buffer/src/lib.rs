//! Room `buffer`: pages in memory.
//!
//! Holds the frames, the page table, mini-transactions, the page provider, the page cleaner, the doublewrite file, the
//! checkpointer and redo recovery. Knows nothing of what pages mean: other rooms register redo functions for their
//! operations. Never holds a latch while it waits for a sync, and never writes a page before the log that describes it
//! is durable. The design and its invariants: `docs/buffer.md`.
//!
//! Entry points: [`BufferPool::new`], [`BufferPool::recover`], [`BufferPool::start_background`] in this order;
//! [`BufferPool::fix_shared`], [`BufferPool::fix_exclusive`], [`BufferPool::optimistic`] to look at pages, [`Mtr`] to
//! change them; [`BufferPool::checkpoint_now`], [`BufferPool::stop_background`] to shut down.

mod all_ended;
mod background;
mod carry;
mod change_buffer;
mod cleaner;
mod config;
mod doublewrite;
mod event;
mod failing;
mod flush;
mod frame;
mod guard;
mod kept;
mod memory;
mod mtr;
mod ops;
mod pool;
mod provider;
mod recovery;
mod resize;
mod shard;
mod stats;
mod sync;
mod table;
mod together;
mod turns;
mod unlogged;
mod usage;
mod warm_up;

pub use change_buffer::BufferedChange;
pub use config::{Level, PartitionStats, PoolConfig, PoolStats, Reporter};
pub use event::Event;
pub use failing::FailingWrites;
pub use frame::FrameNo;
pub use guard::{ExclusivePage, OptimisticPage, SeenPage, SharedPage};
pub use memory::{Beyond, BeyondLimit};
pub use mtr::{Mtr, PageRef};
pub use ops::{CheckFn, RedoFn, RedoTable, RoomFn};
pub use pool::BufferPool;
pub use recovery::RecoverySummary;
