//! A note that a stop leaves with its last checkpoint: every transaction had ended. The next start need not trust undo pages then.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 |
//! | 1 | 8 | LSN of the log's end |
//!
//! It holds for the first start after it only, which takes it away before anything is logged, and only if the log ends at the
//! checkpoint.

use crate::engine::Parts;
use myriad_base::codec::put_u64;
use myriad_base::{Lsn, Result};

const KIND: u8 = 1;

fn note(end: Lsn) -> [u8; 9] {
    let mut bytes = [KIND; 9];
    put_u64(&mut bytes, 1, end.0);
    bytes
}

/// Whether the payload of the log's last checkpoint is the note for a log that ends there.
pub(crate) fn is_note(payload: &[u8], end: Lsn) -> bool {
    payload == note(end)
}

/// Leaves the note, if it is true. Nothing has to be logged any more.
pub(crate) fn leave(parts: &Parts) -> Result<()> {
    let end = parts.pool.log().end_lsn();
    // Nobody wrote while their list was read: so whoever is not in it had ended before `end`.
    match parts.trx.all_ended() && parts.pool.log().end_lsn() == end {
        true => parts.pool.note_at_end(end, &note(end)),
        false => Ok(()),
    }
}
