//! When each transaction committed: chunks of atomics indexed by transaction id.
//!
//! A word is 0 while its transaction is active, [`COMMITTING`] for the instant in which it takes its commit number, then
//! the number. Ids below [`CommitTable::low_limit`] are visible to every snapshot and need no look-up, nor do ids whose
//! chunk has been retired because that holds for all of it. Chunks are recycled, never freed, so that readers need no
//! protection: a chunk carries the id it begins with, checked before and after the read. `loom` explores this.
//!
//! A chunk's place in the directory is its number modulo the directory's length. While one transaction stays, only its own
//! chunk does; the ids of later ones that would come to the same place are never given out.

use crate::sync::{fence, spin_loop, AtomicPtr, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use myriad_base::{Csn, Error, Result, TrxId};
use parking_lot::Mutex;

/// Transaction ids of a chunk; also the size of the persistent reservation of ids.
pub const CHUNK_IDS: u64 = if cfg!(all(test, loom)) { 2 } else { 8192 };
/// Chunks at a time.
pub(crate) const DIRECTORY: u64 = if cfg!(all(test, loom)) { 2 } else { 1 << 16 };
const COMMITTING: u64 = u64::MAX;
const NO_BASE: u64 = u64::MAX;
/// Commit number of everything older than this start of the engine.
pub const ANCIENT: Csn = Csn(1);

struct Chunk {
    base: AtomicU64,
    csn: [AtomicU64; CHUNK_IDS as usize],
}

struct Chunks {
    /// Every chunk ever made; the pointers in the directory and in `free` come from here.
    all: Vec<Box<Chunk>>,
    /// Indexes into `all`.
    free: Vec<usize>,
    /// Base -> index into `all` of the live ones, ascending.
    live: std::collections::BTreeMap<u64, usize>,
    /// Base of the live chunk looked at last while the oldest was stuck.
    looked_at: u64,
}

/// What became of a chunk that was to get its place.
#[derive(PartialEq, Eq)]
enum Placed {
    New,
    Before,
    /// Another chunk is there.
    Taken,
}

/// See the module.
pub struct CommitTable {
    directory: Box<[AtomicPtr<Chunk>]>,
    low_limit: CachePadded<AtomicU64>,
    chunks: Mutex<Chunks>,
}

fn base_of(id: TrxId) -> u64 {
    id.0 & !(CHUNK_IDS - 1)
}

fn slot_of(base: u64) -> usize {
    (base / CHUNK_IDS % DIRECTORY) as usize
}

impl CommitTable {
    /// A table in which all ids below `next` are committed, except `active`.
    pub fn new(next: TrxId, active: &[TrxId]) -> CommitTable {
        let low = active.iter().copied().min().unwrap_or(next).min(next);
        let table = CommitTable {
            directory: (0..DIRECTORY).map(|_| AtomicPtr::default()).collect(),
            low_limit: CachePadded::new(AtomicU64::new(low.0)),
            chunks: Mutex::new(Chunks {
                all: Vec::new(),
                free: Vec::new(),
                live: std::collections::BTreeMap::new(),
                looked_at: 0,
            }),
        };
        for &id in active.iter().chain([&next]) {
            if table.place(&mut table.chunks.lock(), base_of(id)) == Placed::New {
                for i in base_of(id)..(base_of(id) + CHUNK_IDS).min(next.0) {
                    table.word(TrxId(i)).expect("just made").store(ANCIENT.0, Ordering::Relaxed);
                }
            }
        }
        for &id in active {
            if let Some(w) = table.word(id) {
                w.store(0, Ordering::Relaxed);
            }
        }
        table
    }

    /// Ids below are visible to every snapshot.
    #[inline]
    pub fn low_limit(&self) -> TrxId {
        TrxId(self.low_limit.load(Ordering::Relaxed))
    }

    /// Makes the chunk of the first id from `next` on that may be given out, all active; returns that id. It is `next` but where
    /// the chunk's place is taken.
    ///
    /// # Errors
    /// [`Error::NotSupported`] when a snapshot has been open for half a billion transactions.
    pub fn ensure(&self, next: TrxId) -> Result<TrxId> {
        let mut c = self.chunks.lock();
        let behind = (1..DIRECTORY).map(|n| TrxId(base_of(next) + n * CHUNK_IDS));
        let found = std::iter::once(next).chain(behind).find(|id| self.place(&mut c, base_of(*id)) != Placed::Taken);
        found.ok_or_else(|| Error::NotSupported {
            what: format!("more than {} transactions during one snapshot", DIRECTORY * CHUNK_IDS),
        })
    }

    /// Makes the chunk that begins with `base`, all active.
    fn place(&self, c: &mut Chunks, base: u64) -> Placed {
        if c.live.contains_key(&base) {
            return Placed::Before;
        }
        if !self.directory[slot_of(base)].load(Ordering::Acquire).is_null() {
            return Placed::Taken;
        }
        let at = match c.free.pop() {
            Some(at) => at,
            None => {
                c.all.push(Box::new(Chunk {
                    base: AtomicU64::new(NO_BASE),
                    csn: std::array::from_fn(|_| AtomicU64::new(0)),
                }));
                c.all.len() - 1
            }
        };
        let chunk = &c.all[at];
        // A reader that still has the chunk under its former base must see NO_BASE after any of the zeros.
        chunk.base.store(NO_BASE, Ordering::Relaxed);
        fence(Ordering::Release);
        for w in &chunk.csn {
            w.store(0, Ordering::Relaxed);
        }
        chunk.base.store(base, Ordering::Release);
        self.directory[slot_of(base)].store(std::ptr::from_ref(&**chunk).cast_mut(), Ordering::Release);
        c.live.insert(base, at);
        Placed::New
    }

    #[inline]
    fn chunk(&self, base: u64) -> Option<&Chunk> {
        let p = self.directory[slot_of(base)].load(Ordering::Acquire);
        // SAFETY: chunks live as long as the table; they are never moved (boxed) nor freed.
        unsafe { p.as_ref() }
    }

    fn word(&self, id: TrxId) -> Option<&AtomicU64> {
        let c = self.chunk(base_of(id))?;
        (c.base.load(Ordering::Acquire) == base_of(id)).then(|| &c.csn[(id.0 % CHUNK_IDS) as usize])
    }

    /// The transaction's commit number; `None` while it is active.
    #[inline]
    pub fn csn(&self, id: TrxId) -> Option<Csn> {
        if id < self.low_limit() {
            return Some(ANCIENT);
        }
        let base = base_of(id);
        let Some(c) = self.chunk(base) else { return Some(ANCIENT) };
        loop {
            if c.base.load(Ordering::Acquire) != base {
                return Some(ANCIENT);
            }
            let w = c.csn[(id.0 % CHUNK_IDS) as usize].load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if c.base.load(Ordering::Relaxed) != base {
                return Some(ANCIENT);
            }
            match w {
                0 => return None,
                COMMITTING => spin_loop(),
                csn => return Some(Csn(csn)),
            }
        }
    }

    /// Takes the next commit number from `next_csn` for `id` so that a snapshot taken from the same counter sees the
    /// commit if and only if its number is greater.
    pub fn commit(&self, id: TrxId, next_csn: &AtomicU64) -> Csn {
        let word = self.word(id).expect("an active transaction's chunk is live");
        // A snapshot that includes our number was loaded from the counter after our addition, and so sees this store.
        word.store(COMMITTING, Ordering::Relaxed);
        let csn = next_csn.fetch_add(1, Ordering::AcqRel);
        word.store(csn, Ordering::Release);
        Csn(csn)
    }

    /// Moves the low limit past ids that committed before `oldest` and retires chunks, a bounded portion a call.
    pub fn advance(&self, oldest: Csn, next: TrxId) {
        let Some(mut c) = self.chunks.try_lock() else { return };
        let mut low = self.low_limit.load(Ordering::Relaxed);
        let stop = next.0.min(low + 4 * CHUNK_IDS);
        while low < stop {
            let base = low & !(CHUNK_IDS - 1);
            match c.live.get(&base).copied() {
                None => low = (base + CHUNK_IDS).min(stop),
                Some(at) => {
                    let w = c.all[at].csn[(low % CHUNK_IDS) as usize].load(Ordering::Acquire);
                    if w == 0 || w >= oldest.0 {
                        break;
                    }
                    low += 1;
                }
            }
        }
        self.low_limit.store(low, Ordering::Release);
        while let Some((&base, &at)) = c.live.first_key_value() {
            if base + CHUNK_IDS > low {
                break;
            }
            self.retire(&mut c, base, at);
        }
        self.retire_one_later(&mut c, oldest, next);
    }

    /// One long transaction must not keep the chunks of all later ones.
    fn retire_one_later(&self, c: &mut Chunks, oldest: Csn, next: TrxId) {
        let from = c.looked_at + 1;
        let Some((base, at)) = c.live.range(from..).next().map(|(b, a)| (*b, *a)) else {
            c.looked_at = 0;
            return;
        };
        c.looked_at = base;
        if base + CHUNK_IDS > next.0 {
            return;
        }
        let done = c.all[at].csn.iter().all(|w| {
            let w = w.load(Ordering::Acquire);
            w != 0 && w < oldest.0
        });
        if done {
            self.retire(c, base, at);
        }
    }

    fn retire(&self, c: &mut Chunks, base: u64, at: usize) {
        self.directory[slot_of(base)].store(std::ptr::null_mut(), Ordering::Release);
        c.live.remove(&base);
        c.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_limit_follows_the_oldest_snapshot_and_stops_at_active_ones() {
        let t = CommitTable::new(TrxId(100), &[TrxId(40)]);
        assert_eq!(t.low_limit(), TrxId(40));
        assert_eq!(t.csn(TrxId(40)), None);
        assert_eq!(t.csn(TrxId(41)), Some(ANCIENT));
        let next = AtomicU64::new(10);
        for id in 100..200 {
            t.commit(TrxId(id), &next);
        }
        t.advance(Csn(50), TrxId(300));
        assert_eq!(t.low_limit(), TrxId(40));
        t.commit(TrxId(40), &next);
        t.advance(Csn(50), TrxId(300));
        assert_eq!(t.low_limit(), TrxId(40), "its number is not below the oldest snapshot");
        t.advance(Csn(1000), TrxId(300));
        assert_eq!(t.low_limit(), TrxId(200));
        assert_eq!(t.csn(TrxId(199)), Some(ANCIENT));
        assert_eq!(t.csn(TrxId(200)), None);
    }

    #[test]
    fn chunks_behind_a_long_transaction_are_retired_and_recycled() {
        let t = CommitTable::new(TrxId(1), &[]);
        let next = AtomicU64::new(2);
        for id in 1..CHUNK_IDS * 20 {
            t.ensure(TrxId(id)).unwrap();
            if id != 5 {
                t.commit(TrxId(id), &next);
            }
            if id % 100 == 0 {
                t.advance(Csn(next.load(Ordering::Relaxed)), TrxId(id + 1));
            }
        }
        assert_eq!(t.low_limit(), TrxId(5));
        assert_eq!(t.csn(TrxId(5)), None);
        assert!(t.csn(TrxId(CHUNK_IDS * 3)).is_some());
        assert!(t.chunks.lock().all.len() < 8);
    }

    /// Two transactions stay in neighbouring chunks; the ids that come to their places later, now or after a restart, are passed
    /// over: those never given out count as committed and keep nothing back.
    #[test]
    fn ids_whose_place_is_taken_are_passed_over() {
        const ROUND: u64 = DIRECTORY * CHUNK_IDS;
        let stay = [TrxId(5), TrxId(CHUNK_IDS + 7)];
        for from in [ROUND - CHUNK_IDS, ROUND] {
            let t = CommitTable::new(TrxId(from), &stay);
            let next = AtomicU64::new(2);
            let commit_chunk = |first: TrxId| {
                assert_eq!(first.0 % CHUNK_IDS, 0);
                for id in first.0..first.0 + CHUNK_IDS {
                    assert_eq!(t.csn(TrxId(id)), None);
                    t.commit(TrxId(id), &next);
                }
                first.0 + CHUNK_IDS
            };
            let mut end = from;
            while end < ROUND {
                let first = t.ensure(TrxId(end)).unwrap();
                assert_eq!(first, TrxId(end));
                end = commit_chunk(first);
            }
            let first = t.ensure(TrxId(ROUND)).unwrap();
            assert_eq!(first, TrxId(ROUND + 2 * CHUNK_IDS));
            assert_eq!(t.ensure(TrxId(ROUND)).unwrap(), first, "as after a reservation that failed");
            end = commit_chunk(first);
            for never in [ROUND, ROUND + 5, ROUND + CHUNK_IDS + 7] {
                assert_eq!(t.csn(TrxId(never)), Some(ANCIENT));
            }
            assert_eq!((t.csn(stay[0]), t.csn(stay[1]), t.low_limit()), (None, None, stay[0]));
            for id in stay {
                t.commit(id, &next);
            }
            let mut low = t.low_limit();
            while low.0 < end {
                t.advance(Csn(next.load(Ordering::Relaxed)), TrxId(end));
                assert!(t.low_limit() > low, "nothing is waited for at {low}");
                low = t.low_limit();
            }
            assert!(t.chunks.lock().live.is_empty());
            assert_eq!(t.ensure(TrxId(2 * ROUND)).unwrap(), TrxId(2 * ROUND), "the places are free again");
        }
    }

    #[test]
    fn a_snapshot_is_consistent_under_commits() {
        let t = CommitTable::new(TrxId(1), &[]);
        let next = AtomicU64::new(2);
        for b in 0..8 {
            t.ensure(TrxId(b * CHUNK_IDS)).unwrap();
        }
        std::thread::scope(|s| {
            for w in 0..2u64 {
                let (t, next) = (&t, &next);
                s.spawn(move || {
                    for i in 1..CHUNK_IDS * 3 {
                        t.commit(TrxId(i * 2 + w), next);
                    }
                });
            }
            s.spawn(|| {
                for i in 1..20_000u64 {
                    let id = TrxId(i % (CHUNK_IDS * 4) + 2);
                    let snapshot = next.load(Ordering::Acquire);
                    let first = t.csn(id).is_some_and(|c| c.0 < snapshot);
                    std::hint::spin_loop();
                    let second = t.csn(id).is_some_and(|c| c.0 < snapshot);
                    assert_eq!(first, second);
                }
            });
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::snapshot::{SnapshotSlot, Snapshots};
    use loom::sync::atomic::AtomicBool;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        commits: CommitTable,
        snapshots: std::sync::Arc<Snapshots>,
        /// Pages have what the transaction of the second chunk wrote.
        written: AtomicBool,
    }

    const FIRST: [TrxId; 2] = [TrxId(2), TrxId(3)];
    const LATER: TrxId = TrxId(4);

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                commits: CommitTable::new(FIRST[0], &[]),
                snapshots: Snapshots::new(Csn(ANCIENT.0 + 1)),
                written: AtomicBool::new(false),
            })
        }

        fn commit(&self, id: TrxId) {
            self.commits.commit(id, self.snapshots.next_csn());
        }

        /// Gives up the first chunk as soon as every snapshot sees all of it; the next one is made of it.
        fn recycle(&self) {
            self.commits.advance(self.snapshots.oldest(), LATER);
            assert_eq!(self.commits.ensure(LATER), Ok(LATER));
            self.written.store(true, Ordering::Release);
            self.commit(LATER);
        }

        /// Every look through one snapshot sees the same, and no commit without those before it.
        fn read(&self, session: &SnapshotSlot) {
            let snapshot = session.open();
            let look = |id| self.commits.csn(id).is_some_and(|csn| csn < snapshot);
            let is_written = self.written.load(Ordering::Acquire);
            let later = is_written && look(LATER);
            let second = look(FIRST[1]);
            let first = look(FIRST[0]);
            assert!(first >= second && second >= later, "{first} {second} {later}");
            assert_eq!((look(FIRST[0]), look(FIRST[1])), (first, second));
            assert!(!is_written || look(LATER) == later);
            session.close();
        }
    }

    #[test]
    fn loom_a_snapshot_sees_the_same_while_chunks_are_recycled() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Shared::new();
            let session = shared.snapshots.register();
            let writer = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                FIRST.into_iter().for_each(|id| writer.commit(id));
                writer.recycle();
            });
            shared.read(&session);
            writer.join().unwrap();
            assert!(shared.commits.low_limit() >= FIRST[0]);
        });
    }

    #[test]
    fn loom_of_two_who_commit_a_snapshot_sees_each_or_not() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Shared::new();
            let session = shared.snapshots.register();
            let running = FIRST.map(|id| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.commit(id))
            });
            let snapshot = session.open();
            let look = |id| shared.commits.csn(id).is_some_and(|csn| csn < snapshot);
            let seen = FIRST.map(look);
            assert_eq!(FIRST.map(look), seen);
            running.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(FIRST.map(look), seen);
            assert_eq!(seen.iter().filter(|&&seen| seen).count() as u64, snapshot.0 - ANCIENT.0 - 1);
        });
    }
}
