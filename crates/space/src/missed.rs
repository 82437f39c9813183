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
    spaces: Mutex<Spaces>,
}

/// Up to where changes are missing.
#[derive(Default)]
struct Spaces {
    noted: BTreeMap<SpaceId, Lsn>,
    /// Refused already, but perhaps in use: a checkpoint does not note them yet, as a crash would make that final.
    doubtful: BTreeMap<SpaceId, Lsn>,
    /// The note has no room for another one.
    full: bool,
    /// Since it is full, those that are gone were looked for.
    swept: bool,
}

impl Spaces {
    fn get(&self, id: SpaceId) -> Option<Lsn> {
        self.noted.get(&id).or_else(|| self.doubtful.get(&id)).copied()
    }

    fn fit(&self) -> bool {
        encode(self.noted.iter().chain(&self.doubtful)).len() <= NOTE_BYTES_MAX
    }
}

fn encode<'a>(spaces: impl IntoIterator<Item = (&'a SpaceId, &'a Lsn)>) -> Vec<u8> {
    let mut by_lsn: BTreeMap<Lsn, Vec<SpaceId>> = BTreeMap::new();
    for (&id, &lsn) in spaces {
        by_lsn.entry(lsn).or_default().push(id);
    }
    let mut note = Vec::new();
    if !by_lsn.is_empty() {
        note.push(VERSION);
    }
    for (lsn, mut ids) in by_lsn {
        ids.sort_unstable();
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
        *spaces = Spaces { noted: decode(note)?, ..Spaces::default() };
        self.any.store(!spaces.noted.is_empty(), Ordering::Release);
        Some(spaces.noted.iter().map(|(&id, &lsn)| (id, lsn)).collect())
    }

    /// The note for the next checkpoint.
    pub(crate) fn note(&self) -> Vec<u8> {
        encode(&self.spaces.lock().noted)
    }

    /// Refuses one from now on, until it is clear whether it is in use ([`Missed::settle`]); false if the note has no room for it.
    pub(crate) fn doubt(&self, id: SpaceId, lsn: Lsn) -> bool {
        let mut spaces = self.spaces.lock();
        if spaces.noted.contains_key(&id) {
            return true;
        }
        if spaces.full {
            return false;
        }
        spaces.doubtful.insert(id, lsn);
        spaces.full = !spaces.fit();
        if spaces.full {
            spaces.doubtful.remove(&id);
            return false;
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// The end of [`Missed::doubt`]: from now on it is noted, or no longer refused. Whether it is noted.
    pub(crate) fn settle(&self, id: SpaceId, missed: bool) -> bool {
        let mut spaces = self.spaces.lock();
        match spaces.doubtful.remove(&id) {
            Some(lsn) if missed => drop(spaces.noted.insert(id, lsn)),
            _ => {}
        }
        spaces.noted.contains_key(&id)
    }

    /// Whether there may be room once those that are gone are forgotten: true only once until then.
    pub(crate) fn sweep_due(&self) -> bool {
        let mut spaces = self.spaces.lock();
        spaces.full && !std::mem::replace(&mut spaces.swept, true)
    }

    /// The tablespace is gone.
    pub(crate) fn forget(&self, id: SpaceId) {
        if self.any.load(Ordering::Acquire) {
            let mut spaces = self.spaces.lock();
            if spaces.noted.remove(&id).is_some() {
                (spaces.full, spaces.swept) = (false, false);
            }
        }
    }

    /// Whether its file must not be used.
    #[inline]
    pub(crate) fn has(&self, id: SpaceId) -> bool {
        self.any.load(Ordering::Acquire) && self.spaces.lock().get(id).is_some()
    }

    /// Why its file must not be used, if it must not.
    #[inline]
    pub(crate) fn why(&self, id: SpaceId) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.spaces.lock().get(id).map(|lsn| {
            format!(
                "its file has missed changes up to LSN {lsn}: it could not be used when they were recovered. Restore a \
                 backup, or drop the database (if the file is a table's own, the table)"
            )
        })
    }

    pub(crate) fn ids(&self) -> Vec<SpaceId> {
        self.spaces.lock().noted.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(missed: &Missed, id: u32, lsn: u64) -> bool {
        let fits = missed.doubt(SpaceId(id), Lsn(lsn));
        missed.settle(SpaceId(id), true);
        fits
    }

    #[test]
    fn a_note_is_read_as_written_and_never_too_long() {
        let missed = Missed::default();
        assert_eq!(missed.note(), [0; 0]);
        assert_eq!(missed.read(&[]), Some(vec![]));
        let fitting = (0..5000).take_while(|n| add(&missed, 16 + n * 100, 1 << 40)).count();
        assert!((900..1024).contains(&fitting), "{fitting}");
        let note = missed.note();
        assert!(note.len() <= NOTE_BYTES_MAX);
        assert!(add(&missed, 16, 1 << 40), "one that is there");
        let full = 16 + fitting as u32 * 100;
        assert!(missed.why(SpaceId(full)).is_none() && missed.why(SpaceId(116)).is_some());
        assert!(missed.sweep_due() && !missed.sweep_due());
        [16, 116].iter().for_each(|&id| missed.forget(SpaceId(id)));
        assert!(missed.why(SpaceId(116)).is_none() && !missed.sweep_due() && add(&missed, full, 1 << 40));
        let again = Missed::default();
        assert_eq!(again.read(&note).unwrap().len(), fitting);
        assert!(again.has(SpaceId(116)) && !again.has(SpaceId(117)));
        assert_eq!(again.note(), note);
        assert!(add(&again, 5, 7) || again.why(SpaceId(5)).is_none());
        assert!(again.read(&[2]).is_none() && again.read(&[1, 5]).is_none());
        let too_large = [&[1, 5, 2, 1][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        assert!(again.read(&too_large).is_none());
    }

    #[test]
    fn what_is_in_doubt_is_refused_but_not_noted() {
        let missed = Missed::default();
        for is_missed in [false, true] {
            assert!(missed.doubt(SpaceId(16), Lsn(7)) && missed.has(SpaceId(16)));
            assert_eq!(missed.note(), [0; 0]);
            assert_eq!(missed.settle(SpaceId(16), is_missed), is_missed);
            assert_eq!((missed.has(SpaceId(16)), missed.note().is_empty()), (is_missed, !is_missed));
        }
        assert!(missed.doubt(SpaceId(16), Lsn(9)));
        assert!(missed.settle(SpaceId(16), false) && missed.has(SpaceId(16)), "noted already");
    }

    proptest! {
        #[test]
        fn any_note_is_read_or_refused(note: Vec<u8>) {
            let _ = decode(&note);
        }

        #[test]
        fn round_trip(spaces: BTreeMap<u32, u64>) {
            let spaces: BTreeMap<SpaceId, Lsn> = spaces.into_iter().map(|(id, lsn)| (SpaceId(id), Lsn(lsn))).collect();
            prop_assert_eq!(decode(&encode(&spaces)), Some(spaces));
        }
    }
}
