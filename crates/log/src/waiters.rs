//! Who waits for a sync, and who makes the next one: in shards, so that those who join do not wait for each other.
//!
//! At most one thread leads. Who finds a leader joins a shard, under the mutex under which it looked. A leader looks through the
//! shards once more after it has said that its lead ends: so one of the two sees the other, and nobody is left behind without a
//! leader. Who has joined is told once, and waits for that: what is told late would be taken for an answer to what it waits for
//! next.

use crate::sync::{AtomicBool, Mutex, Ordering};
use crossbeam_utils::CachePadded;
#[cfg(not(all(test, loom)))]
use myriad_base::latch::{lock_counted, LatchClass};

#[cfg(not(all(test, loom)))]
const SHARDS: usize = 16;
#[cfg(all(test, loom))]
const SHARDS: usize = 2;

/// An LSN that is waited for, and who waits.
type Waiting<P> = (u64, P);

/// Those who wait; a `P` each, by which it is told.
pub(crate) struct Waiters<P> {
    leader: CachePadded<AtomicBool>,
    shards: [CachePadded<Mutex<Vec<Waiting<P>>>>; SHARDS],
}

impl<P> Waiters<P> {
    pub(crate) fn new() -> Waiters<P> {
        Waiters {
            leader: CachePadded::new(AtomicBool::new(false)),
            shards: std::array::from_fn(|_| CachePadded::new(Mutex::new(Vec::new()))),
        }
    }

    fn shard<T>(&self, no: usize, look: impl FnOnce(&mut Vec<Waiting<P>>) -> T) -> T {
        #[cfg(not(all(test, loom)))]
        return look(&mut lock_counted(&self.shards[no], LatchClass::LogWrite.part(1 + no)));
        #[cfg(all(test, loom))]
        return look(&mut self.shards[no].lock().unwrap());
    }

    fn take_lead(&self) -> bool {
        !self.leader.load(Ordering::SeqCst)
            && self.leader.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the caller, thread number `thread`, leads. Else it has joined with `lsn`, and will be told, once.
    pub(crate) fn lead_or_join(&self, thread: usize, lsn: u64, me: P) -> bool {
        self.shard(thread % SHARDS, |waiting| {
            let leads = self.take_lead();
            if !leads {
                waiting.push((lsn, me));
            }
            leads
        })
    }

    /// The caller's lead ends. Moves those for whom `is_served` holds to `served`; the next leader, if anybody is left.
    pub(crate) fn hand_on(&self, is_served: impl Fn(u64) -> bool, served: &mut Vec<P>) -> Option<P> {
        loop {
            let mut next = None;
            for no in 0..SHARDS {
                self.shard(no, |waiting| {
                    served.extend(waiting.extract_if(.., |w| is_served(w.0)).map(|w| w.1));
                    if next.is_none() {
                        next = waiting.pop();
                    }
                });
            }
            if let Some((_, next)) = next {
                return Some(next);
            }
            self.leader.store(false, Ordering::SeqCst);
            // Whoever joined after its shard was looked at may have found us leading still.
            if (0..SHARDS).all(|no| self.shard(no, |waiting| waiting.is_empty())) || !self.take_lead() {
                return None;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::sync::Arc;

    const WAITING: u32 = 0;
    const SERVED: u32 = 1;
    const LEAD: u32 = 2;

    #[derive(Clone)]
    struct Cell(Arc<AtomicU32>, loom::thread::Thread);

    impl Cell {
        fn tell(&self, told: u32) {
            assert_eq!(self.0.swap(told, Ordering::AcqRel), WAITING, "who has joined is told once");
            self.1.unpark();
        }
    }

    struct Log {
        waiters: Waiters<Cell>,
        end: AtomicU64,
        durable: AtomicU64,
    }

    impl Log {
        fn lead(&self) {
            self.durable.fetch_max(self.end.load(Ordering::Acquire), Ordering::AcqRel);
            let mut served = Vec::new();
            let durable = self.durable.load(Ordering::Acquire);
            let next = self.waiters.hand_on(|lsn| lsn <= durable, &mut served);
            next.iter().for_each(|c| c.tell(LEAD));
            served.iter().for_each(|c| c.tell(SERVED));
        }

        fn commit(&self, thread: usize) {
            let lsn = self.end.fetch_add(1, Ordering::AcqRel) + 1;
            let cell = Cell(Arc::new(AtomicU32::new(WAITING)), loom::thread::current());
            if self.durable.load(Ordering::Acquire) < lsn {
                if self.waiters.lead_or_join(thread, lsn, cell.clone()) {
                    assert_eq!(cell.0.swap(LEAD, Ordering::AcqRel), WAITING, "who leads has not joined");
                    self.lead();
                } else {
                    loop {
                        match cell.0.load(Ordering::Acquire) {
                            WAITING => loom::thread::park(),
                            SERVED => break,
                            _ => break self.lead(),
                        }
                    }
                }
            }
            assert!(self.durable.load(Ordering::Acquire) >= lsn);
        }
    }

    fn explore(preemptions: usize, threads: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let log = Arc::new(Log { waiters: Waiters::new(), end: AtomicU64::new(0), durable: AtomicU64::new(0) });
            let run = |&thread: &usize| {
                let log = Arc::clone(&log);
                loom::thread::spawn(move || log.commit(thread))
            };
            let threads: Vec<_> = threads.iter().map(run).collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(!log.waiters.leader.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn nobody_waits_without_a_leader() {
        explore(3, &[0, 1]);
    }

    #[test]
    fn nobody_waits_without_a_leader_where_two_join_one_shard() {
        explore(2, &[0, 0, 1]);
    }
}
