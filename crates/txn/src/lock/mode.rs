//! Lock modes and the conflict rule.

use super::LockKey;
use std::fmt;

/// How strong a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// Shared.
    S,
    /// Exclusive.
    X,
}

/// What a lock covers: the entry with the key, the gap before it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The entry alone (InnoDB: `REC_NOT_GAP`).
    Record,
    /// The open interval between the previous entry and this one.
    Gap,
    /// The entry and the gap before it.
    NextKey,
    /// A request to insert into the gap before the entry. Never kept once granted.
    InsertIntention,
}

/// A lock's strength and extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockMode {
    /// How strong.
    pub strength: Strength,
    /// What it covers.
    pub extent: Extent,
}

impl LockMode {
    /// Shared lock of an entry.
    pub const S_RECORD: LockMode = LockMode::new(Strength::S, Extent::Record);
    /// Exclusive lock of an entry.
    pub const X_RECORD: LockMode = LockMode::new(Strength::X, Extent::Record);
    /// Shared lock of a gap.
    pub const S_GAP: LockMode = LockMode::new(Strength::S, Extent::Gap);
    /// Exclusive lock of a gap (the same as a shared one: gap locks only keep inserts out).
    pub const X_GAP: LockMode = LockMode::new(Strength::X, Extent::Gap);
    /// Shared lock of an entry and the gap before it.
    pub const S_NEXT_KEY: LockMode = LockMode::new(Strength::S, Extent::NextKey);
    /// Exclusive lock of an entry and the gap before it.
    pub const X_NEXT_KEY: LockMode = LockMode::new(Strength::X, Extent::NextKey);
    /// An insert into the gap before the key.
    pub const INSERT_INTENTION: LockMode = LockMode::new(Strength::X, Extent::InsertIntention);

    /// Joins the two.
    pub const fn new(strength: Strength, extent: Extent) -> LockMode {
        LockMode { strength, extent }
    }

    /// Whether a request of this mode must wait for a lock `held` by another transaction on the same key.
    ///
    /// InnoDB's rule (`lock_rec_has_to_wait`): shared locks go together; a gap lock waits for nothing; an insert waits for
    /// whatever covers the gap; nothing waits for an insert intention, nor a record lock for a gap lock.
    pub const fn conflicts_with(self, held: LockMode) -> bool {
        if matches!((self.strength, held.strength), (Strength::S, Strength::S)) {
            return false;
        }
        match self.extent {
            Extent::Gap => false,
            Extent::InsertIntention => matches!(held.extent, Extent::Gap | Extent::NextKey),
            Extent::Record | Extent::NextKey => matches!(held.extent, Extent::Record | Extent::NextKey),
        }
    }

    /// The mode as it is meant on `key`: the supremum has a gap, but no entry.
    #[inline]
    pub(super) fn on(self, key: &LockKey<'_>) -> LockMode {
        if !key.is_supremum() {
            return self;
        }
        match self.extent {
            Extent::Record => panic!("a record lock on the supremum"),
            Extent::NextKey => LockMode::new(self.strength, Extent::Gap),
            Extent::Gap | Extent::InsertIntention => self,
        }
    }

    /// Whether a lock of this mode makes another unnecessary.
    pub(super) fn covers(self, other: LockMode) -> bool {
        self.strength >= other.strength
            && (self.covers_record() || !other.covers_record())
            && (self.covers_gap() || !other.covers_gap())
    }

    /// Whether the mode covers the entry itself.
    pub const fn covers_record(self) -> bool {
        matches!(self.extent, Extent::Record | Extent::NextKey)
    }

    /// Whether the mode keeps inserts out of the gap.
    pub const fn covers_gap(self) -> bool {
        matches!(self.extent, Extent::Gap | Extent::NextKey)
    }

    /// What is left of a lock whose transaction reads no more: that of a record which it may have changed.
    pub(super) fn without_reads(self) -> Option<LockMode> {
        (self.strength == Strength::X && self.covers_record()).then_some(LockMode::X_RECORD)
    }

    /// The name users see, as InnoDB's: "S", "X,REC_NOT_GAP", "X,GAP,INSERT_INTENTION".
    pub const fn name(self) -> &'static str {
        match (self.strength, self.extent) {
            (Strength::S, Extent::Record) => "S,REC_NOT_GAP",
            (Strength::S, Extent::Gap) => "S,GAP",
            (Strength::S, Extent::NextKey) => "S",
            (Strength::S, Extent::InsertIntention) => "S,GAP,INSERT_INTENTION",
            (Strength::X, Extent::Record) => "X,REC_NOT_GAP",
            (Strength::X, Extent::Gap) => "X,GAP",
            (Strength::X, Extent::NextKey) => "X",
            (Strength::X, Extent::InsertIntention) => "X,GAP,INSERT_INTENTION",
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: the request; columns: the lock held by another. `1` waits. Order of both:
    /// S record, X record, S gap, X gap, S next-key, X next-key, insert intention.
    const MODES: [LockMode; 7] = [
        LockMode::S_RECORD,
        LockMode::X_RECORD,
        LockMode::S_GAP,
        LockMode::X_GAP,
        LockMode::S_NEXT_KEY,
        LockMode::X_NEXT_KEY,
        LockMode::INSERT_INTENTION,
    ];
    const WAITS: [[u8; 7]; 7] = [
        [0, 1, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1, 1, 0],
    ];

    #[test]
    fn the_matrix_is_innodbs() {
        for (r, request) in MODES.iter().enumerate() {
            for (h, held) in MODES.iter().enumerate() {
                assert_eq!(request.conflicts_with(*held), WAITS[r][h] == 1, "{request} behind {held}");
            }
        }
    }
}
