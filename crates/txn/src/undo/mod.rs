//! Undo: where older versions live, and what rollback and purge read.

pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod shrink;
pub(crate) mod space;
