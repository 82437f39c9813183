//! A note that a stop leaves with its last checkpoint: every transaction had ended. The next start need not trust undo pages then.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 2 |
//! | 1 | 8 | LSN of the log's end |
//!
//! It stands at the beginning of the checkpoint's payload, in front of the note of tablespaces that have missed changes. It holds
//! for the first start after it only, which takes it away before anything is logged, and only if the log ends where it says.

use crate::pool::BufferPool;
use myriad_base::codec::{get_u64, put_u64};
use myriad_base::limits::CHECKPOINT_FRONT_BYTES;
use myriad_base::{Lsn, Result};

const KIND: u8 = 2;
const BYTES: usize = CHECKPOINT_FRONT_BYTES;

/// The log's end that the note in a checkpoint's payload tells, if there is one; and what follows it.
pub(crate) fn split(payload: &[u8]) -> (Option<Lsn>, &[u8]) {
    match payload.split_at_checked(BYTES) {
        Some((note, rest)) if note[0] == KIND => (Some(Lsn(get_u64(note, 1))), rest),
        _ => (None, payload),
    }
}

impl BufferPool {
    /// Notes beside the last checkpoint, durable on return, that every transaction has ended, if the log's end is `end` still; else does
    /// nothing. The next checkpoint is without the note.
    ///
    /// # Errors
    /// Those of the log.
    pub fn note_all_ended(&self, end: Lsn) -> Result<()> {
        let _one = self.background.checkpoint.lock();
        let log = self.log();
        log.flush_to(end)?;
        if log.end_lsn() != end || log.is_unlogged() {
            return Ok(());
        }
        let mut payload = vec![KIND; BYTES];
        put_u64(&mut payload, 1, end.0);
        payload.extend_from_slice(&self.spaces().missed_note());
        log.checkpoint(self.background.last_checkpoint(), &payload)
    }

    /// After [`BufferPool::recover`]: whether the last stop has noted that every transaction had ended and nothing was logged since.
    /// The note is no more then: a log that loses what comes now must not look as if nothing had come.
    ///
    /// # Errors
    /// Those of the log.
    pub fn take_all_ended(&self) -> Result<bool> {
        let (checkpoint, payload) = self.log().last_checkpoint();
        let (noted, _) = split(&payload);
        if noted.is_some() {
            self.log().checkpoint(checkpoint, &self.spaces().missed_note())?;
        }
        Ok(noted == Some(self.log().end_lsn()))
    }
}
