//! Atomics and threads, which a test with `--cfg loom` replaces by ones whose every interleaving it explores.

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64},
    sync::Arc,
    thread::{current, park, yield_now, Thread},
};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64},
    sync::Arc,
    thread::{current, park, yield_now, Thread},
};
