//! Tablespaces whose files have missed changes: recovery could not get at the file, and the log has given the changes up.
//! Such a file is too old, whenever it comes back.
//!
//! Known by the end of the payload of the log's checkpoints, which is carried on from one to the next: so what a checkpoint gives up
//! and the note of it become durable together, and a log too full to take anything can still be made room in.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version, 1 |
//! | | for each LSN up to which changes are missing, to the end: the LSN, number of tablespaces, their ids, ascending, each less the one before it; all varints |
//!
//! Empty when there are none.

use myriad_base::codec::{push_varint, Reader};
use myriad_base::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_FRONT_BYTES};
use myriad_base::{Lsn, SpaceId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const VERSION: u8 = 1;
const NOTE_BYTES_MAX: usize = CHECKPOINT_BYTES_MAX - CHECKPOINT_FRONT_BYTES;

/// See the module.
#[derive(Default)]
pub(crate) struct Missed {
    any: AtomicBool,
    /// Up to where changes are missing.
    spaces: Mutex<BTreeMap<SpaceId, Lsn>>,
}

fn encode(spaces: &BTreeMap<SpaceId, Lsn>) -> Vec<u8> {
    let mut by_lsn: BTreeMap<Lsn, Vec<SpaceId>> = BTreeMap::new();
    for (&id, &lsn) in spaces {
        by_lsn.entry(lsn).or_default().push(id);
    }
    let mut note = Vec::new();
    if !by_lsn.is_empty() {
        note.push(VERSION);
    }
    for (lsn, ids) in by_lsn {
        push_varint(&mut note, lsn.0);
        push_varint(&mut note, ids.len() as u64);
        let mut before = 0;
        for id in ids {
            push_varint(&mut note, u64::from(id.0 - before));
            before = id.0;
        }
    }
    note
}

fn decode(note: &[u8]) -> Option<BTreeMap<SpaceId, Lsn>> {
    let mut spaces = BTreeMap::new();
    let mut r = Reader::new(note);
    if !note.is_empty() && r.u8()? != VERSION {
        return None;
    }
    while !r.is_empty() {
        let (lsn, count) = (Lsn(r.varint()?), r.varint()?);
        let mut id = 0u32;
        for _ in 0..count {
            id = id.checked_add(u32::try_from(r.varint()?).ok()?)?;
            spaces.insert(SpaceId(id), lsn);
        }
    }
    Some(spaces)
}

impl Missed {
    /// What is noted in a checkpoint's payload; `None` if that cannot be read.
    pub(crate) fn read(&self, note: &[u8]) -> Option<Vec<(SpaceId, Lsn)>> {
        let mut spaces = self.spaces.lock();
        *spaces = decode(note)?;
        self.any.store(!spaces.is_empty(), Ordering::Release);
        Some(spaces.iter().map(|(&id, &lsn)| (id, lsn)).collect())
    }

    /// The note for the next checkpoint.
    pub(crate) fn note(&self) -> Vec<u8> {
        encode(&self.spaces.lock())
    }

    /// Adds one; false if the note would be too long.
    pub(crate) fn add(&self, id: SpaceId, lsn: Lsn) -> bool {
        let mut spaces = self.spaces.lock();
        let before = spaces.insert(id, lsn);
        let fits = encode(&spaces).len() <= NOTE_BYTES_MAX;
        match before {
            _ if fits => {}
            Some(before) => drop(spaces.insert(id, before)),
            None => drop(spaces.remove(&id)),
        }
        self.any.store(!spaces.is_empty(), Ordering::Release);
        fits || before.is_some()
    }

    /// The tablespace is gone.
    pub(crate) fn forget(&self, id: SpaceId) {
        if self.any.load(Ordering::Acquire) {
            self.spaces.lock().remove(&id);
        }
    }

    /// Why its file must not be used, if it must not.
    #[inline]
    pub(crate) fn why(&self, id: SpaceId) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.spaces.lock().get(&id).map(|lsn| {
            format!(
                "its file has missed changes up to LSN {lsn}: it could not be used when they were recovered. Restore a \
                 backup, or drop the database (if the file is a table's own, the table)"
            )
        })
    }

    pub(crate) fn ids(&self) -> Vec<SpaceId> {
        self.spaces.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_note_is_read_as_written_and_never_too_long() {
        let missed = Missed::default();
        assert_eq!(missed.note(), [0; 0]);
        assert_eq!(missed.read(&[]), Some(vec![]));
        let fitting = (0..5000).take_while(|n| missed.add(SpaceId(16 + n * 100), Lsn(1 << 40))).count();
        assert!((900..1024).contains(&fitting), "{fitting}");
        let note = missed.note();
        assert!(note.len() <= NOTE_BYTES_MAX);
        assert!(missed.add(SpaceId(16), Lsn(1 << 40)), "one that is there");
        let full = SpaceId(16 + fitting as u32 * 100);
        assert!(missed.why(full).is_none() && missed.why(SpaceId(116)).is_some());
        [16, 116].iter().for_each(|&id| missed.forget(SpaceId(id)));
        assert!(missed.why(SpaceId(116)).is_none() && missed.add(full, Lsn(1 << 40)));
        let again = Missed::default();
        assert_eq!(again.read(&note).unwrap().len(), fitting);
        assert_eq!(again.note(), note);
        assert!(again.add(SpaceId(5), Lsn(7)) || again.why(SpaceId(5)).is_none());
        assert!(again.read(&[2]).is_none() && again.read(&[1, 5]).is_none());
    }

    proptest! {
        #[test]
        fn any_note_is_read_or_refused(note: Vec<u8>) {
            let _ = decode(&note);
        }

        #[test]
        fn round_trip(spaces: BTreeMap<u32, u64>) {
            let spaces = spaces.into_iter().map(|(id, lsn)| (SpaceId(id), Lsn(lsn))).collect();
            prop_assert_eq!(decode(&encode(&spaces)), Some(spaces));
        }
    }
}
