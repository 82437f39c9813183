//! Atomics, which a test with `--cfg loom` replaces by ones whose every interleaving it explores.

#[cfg(all(test, loom))]
pub(crate) use loom::{sync::atomic::AtomicU64, thread::yield_now};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(crate) use std::{sync::atomic::AtomicU64, thread::yield_now};
