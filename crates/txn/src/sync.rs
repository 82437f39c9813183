//! Atomics, which a test with `--cfg loom` replaces by ones whose every interleaving it explores.

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::atomic::{fence, AtomicPtr, AtomicU64},
    thread::yield_now as spin_loop,
};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicPtr, AtomicU64},
};
