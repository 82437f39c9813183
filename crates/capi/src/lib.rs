//! The C ABI of Myriad's core, exactly as `handler/myriad_capi.h` declares it.
//!
//! Holds conversions and nothing else: C strings and structs to Rust and back, errors to statuses with a sentence in
//! [`myriad_last_error`], panics to a poisoned engine. No panic leaves this crate. It keeps no Rust reference across calls;
//! pointers given out are valid as the header says.
//!
//! Entry points: one `extern "C"` function for each declaration of the header, grouped as there. What the header demands
//! of callers (valid pointers, one thread a session) is the safety contract of every function here.

#![allow(clippy::missing_safety_doc)] // the contract is the header's, once for all functions

mod backup;
mod build;
mod copy;
mod ddl;
mod engine;
mod error;
mod foreign_keys;
mod reports;
mod row_changes;
mod rows;
mod session;
mod table;
mod types;

pub use backup::*;
pub use build::*;
pub use copy::*;
pub use ddl::*;
pub use engine::*;
pub use error::*;
pub use foreign_keys::*;
pub use reports::*;
pub use row_changes::*;
pub use rows::*;
pub use session::*;
pub use table::*;
pub use types::*;
