//! Syncs of one file by several threads.
//!
//! Of what it could not write the operating system tells whoever syncs next, and him alone. The syncs of all others succeed
//! then, though what they wrote may be lost as well ([`File::sync`]). So those who share a file sync it through one [`Syncs`]:
//! one sync at a time, for all who ask while another is under way; and what was written is durable only if none has failed
//! since. The device is flushed less often than if each synced for himself, and would make them wait for each other anyway.

use crate::File;
use myriad_base::waits::{self, WaitFor};
use myriad_base::{Error, Result};
use parking_lot::{Condvar, Mutex};

/// What all who sync a file know of each other.
#[derive(Default)]
pub struct Syncs {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Syncs begun and ended so far. They differ by one while one is under way.
    begun: u64,
    ended: u64,
    /// How many have failed, and why the last one did.
    failures: u64,
    error: Option<Error>,
}

/// A moment before the first of the writes that a sync is to make durable.
#[derive(Clone, Copy)]
pub struct SyncMark(u64);

impl SyncMark {
    /// Before all.
    pub const START: SyncMark = SyncMark(0);
}

/// The first sync to begin from some moment on.
#[derive(Clone, Copy)]
pub struct SyncNo(u64);

/// Whose part a sync is.
pub enum Turn<'a> {
    /// It has ended.
    Done,
    /// The caller's, at once.
    Mine(Syncing<'a>),
    /// Another one is under way.
    Wait,
}

/// A sync under way; one that is dropped before its end is known counts as failed.
pub struct Syncing<'a> {
    syncs: &'a Syncs,
    error: Option<Error>,
}

impl Syncing<'_> {
    /// It has ended.
    pub fn end(mut self, result: &Result<()>) {
        self.error = result.as_ref().err().cloned();
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let mut state = self.syncs.state.lock();
        state.ended += 1;
        if let Some(error) = self.error.take() {
            state.failures += 1;
            state.error = Some(error);
        }
        drop(state);
        self.syncs.ended.notify_all();
    }
}

impl Syncs {
    /// To be asked for before the first write.
    pub fn mark(&self) -> SyncMark {
        SyncMark(self.state.lock().failures)
    }

    /// The sync that makes durable what was written so far.
    pub fn next(&self) -> SyncNo {
        SyncNo(self.state.lock().begun + 1)
    }

    /// Whether the caller is to do this sync now.
    pub fn turn(&self, sync: SyncNo) -> Turn<'_> {
        let mut state = self.state.lock();
        if state.ended >= sync.0 {
            return Turn::Done;
        }
        if state.begun > state.ended {
            return Turn::Wait;
        }
        state.begun += 1;
        Turn::Mine(Syncing { syncs: self, error: Some(Error::invalid("a sync whose end is not known")) })
    }

    /// Waits until the sync has ended, or can begin. The caller has none under way.
    pub fn wait(&self, sync: SyncNo) {
        let _waiting = waits::begin(WaitFor::SyncTurn);
        let mut state = self.state.lock();
        self.ended.wait_while(&mut state, |state| state.ended < sync.0 && state.begun > state.ended);
    }

    /// Once the sync of what was written since `mark` has ended: whether that is durable.
    ///
    /// # Errors
    /// That of the sync that failed, whoever asked for it.
    pub fn outcome(&self, mark: SyncMark) -> Result<()> {
        let state = self.state.lock();
        match &state.error {
            Some(error) if state.failures > mark.0 => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Makes what was written to `file` since `mark` durable.
    ///
    /// # Errors
    /// As [`File::sync`], whoever asked for the sync that failed.
    pub fn sync(&self, file: &dyn File, mark: SyncMark) -> Result<()> {
        let sync = self.next();
        loop {
            match self.turn(sync) {
                Turn::Done => return self.outcome(mark),
                Turn::Mine(syncing) => syncing.end(&file.sync()),
                Turn::Wait => self.wait(sync),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallKind, Fault, Io, OpenMode, SimIo};
    use std::path::Path;
    use std::sync::Arc;

    fn mine(syncs: &Syncs) -> Syncing<'_> {
        match syncs.turn(syncs.next()) {
            Turn::Mine(syncing) => syncing,
            _ => panic!("nobody syncs"),
        }
    }

    fn eio() -> Result<()> {
        Err(Error::io("fdatasync", "a", 5))
    }

    #[test]
    fn a_failed_sync_concerns_all_who_wrote_before_it() {
        let syncs = Syncs::default();
        let before = syncs.mark();
        assert_eq!(syncs.outcome(before), Ok(()));
        mine(&syncs).end(&Ok(()));
        assert_eq!(syncs.outcome(before), Ok(()));
        mine(&syncs).end(&eio());
        mine(&syncs).end(&Ok(()));
        assert_eq!(syncs.outcome(before), eio());
        assert_eq!(syncs.outcome(SyncMark::START), eio());
        assert_eq!(syncs.outcome(syncs.mark()), Ok(()), "what was written afterwards");
        let mark = syncs.mark();
        drop(mine(&syncs));
        assert!(syncs.outcome(mark).is_err(), "nobody knows how it ended");
    }

    #[test]
    fn one_sync_serves_all_who_ask_during_another() {
        let syncs = Syncs::default();
        let first = syncs.next();
        let under_way = mine(&syncs);
        let (second, also_second) = (syncs.next(), syncs.next());
        assert!(matches!(syncs.turn(second), Turn::Wait));
        under_way.end(&Ok(()));
        assert!(matches!(syncs.turn(first), Turn::Done));
        let Turn::Mine(under_way) = syncs.turn(second) else { panic!("its turn") };
        assert!(matches!(syncs.turn(also_second), Turn::Wait));
        let third = syncs.next();
        under_way.end(&Ok(()));
        assert!(matches!(syncs.turn(also_second), Turn::Done));
        assert!(matches!(syncs.turn(third), Turn::Mine(_)));
    }

    #[test]
    fn threads_write_and_sync() {
        let io = SimIo::new(1);
        let file = io.open(Path::new("/f"), OpenMode::NEW).unwrap();
        io.sync_dir(Path::new("/")).unwrap();
        io.inject(CallKind::Sync, "f", 40, Fault::Eio, false);
        let syncs = Arc::new(Syncs::default());
        let sure: Vec<Vec<u64>> = std::thread::scope(|s| {
            let work = |thread: u64| {
                let (syncs, file) = (Arc::clone(&syncs), Arc::clone(&file));
                s.spawn(move || {
                    let write = |&n: &u64| {
                        let mark = syncs.mark();
                        file.write_at(&[1], thread * 100 + n).unwrap();
                        syncs.sync(&*file, mark).is_ok()
                    };
                    (0..100).filter(write).map(|n| thread * 100 + n).collect()
                })
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let sure = sure.concat();
        assert!((396..400).contains(&sure.len()), "{}", sure.len());
        let mut bytes = [0; 400];
        let after = io.crash(2).open(Path::new("/f"), OpenMode::READ).unwrap();
        after.read_at(&mut bytes, 0).unwrap();
        assert!(sure.iter().all(|&at| bytes[at as usize] == 1));
    }
}
