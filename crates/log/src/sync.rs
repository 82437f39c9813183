//! Atomics, which a test with `--cfg loom` replaces by ones whose every interleaving it explores.

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::atomic::{fence, AtomicBool, AtomicU64},
    sync::Mutex,
    thread::yield_now,
};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(crate) use {
    parking_lot::Mutex,
    std::sync::atomic::{fence, AtomicBool, AtomicU64},
    std::thread::yield_now,
};
