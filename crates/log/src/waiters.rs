//! Who waits for a sync, and who makes the next one: in shards, so that those who join do not wait for each other.
//!
//! At most one thread leads. Who looks for a leader has marked its shard before, and joins it if there is one. A leader looks at
//! the marks of all shards once more after it has said that its lead ends: so one of the two sees the other, and nobody is left
//! behind without a leader. It takes the mutexes of marked shards alone: with few who wait most have nobody. Who has joined is
//! told once, and waits for that: what is told late would be taken for an answer to what it waits for next. Some do not lead;
//! where only they are left, somebody has to who does not wait.

use crate::sync::{fence, AtomicBool, Mutex, Ordering};
use crossbeam_utils::CachePadded;
#[cfg(not(all(test, loom)))]
use myriad_base::latch::{lock_counted, LatchClass};

#[cfg(not(all(test, loom)))]
const SHARDS: usize = 16;
#[cfg(all(test, loom))]
const SHARDS: usize = 2;

/// An LSN that is waited for, and who waits.
pub(crate) type Waiting<P> = (u64, P);

/// Somebody who waits.
pub(crate) trait MayLead {
    /// Whether it can be told to lead.
    fn may_lead(&self) -> bool;
}

/// Who has the lead next.
pub(crate) enum Next<P> {
    Waiter(P),
    /// Who leads for those who do not.
    Calls,
    Nobody,
}

struct Shard<P> {
    /// The mark: whether somebody waits here or is about to. Written under the mutex.
    used: AtomicBool,
    waiting: Mutex<Vec<Waiting<P>>>,
}

/// Those who wait; a `P` each, by which it is told.
pub(crate) struct Waiters<P> {
    leader: CachePadded<AtomicBool>,
    shards: [CachePadded<Shard<P>>; SHARDS],
}

impl<P: MayLead> Waiters<P> {
    pub(crate) fn new() -> Waiters<P> {
        Waiters {
            leader: CachePadded::new(AtomicBool::new(false)),
            shards: std::array::from_fn(|_| {
                CachePadded::new(Shard { used: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) })
            }),
        }
    }

    fn shard<T>(&self, no: usize, look: impl FnOnce(&mut Vec<Waiting<P>>) -> T) -> T {
        let shard = &self.shards[no];
        #[cfg(not(all(test, loom)))]
        let mut waiting = lock_counted(&shard.waiting, LatchClass::LogWrite.part(1 + no));
        #[cfg(all(test, loom))]
        let mut waiting = shard.waiting.lock().unwrap();
        let seen = look(&mut waiting);
        shard.used.store(!waiting.is_empty(), Ordering::Relaxed);
        seen
    }

    /// Lets `look` find out whether the caller leads, and join if it does not.
    fn look_for_lead(&self, thread: usize, look: impl FnOnce(&mut Vec<Waiting<P>>) -> bool) -> bool {
        let no = thread % SHARDS;
        self.shard(no, |waiting| {
            self.shards[no].used.store(true, Ordering::Relaxed);
            // Between the mark and the look at the leader's flag; `hand_on` has one between the two the other way round.
            fence(Ordering::SeqCst);
            look(waiting)
        })
    }

    fn is_used(&self, no: usize) -> bool {
        self.shards[no].used.load(Ordering::Relaxed)
    }

    fn take_lead(&self) -> bool {
        !self.leader.load(Ordering::Relaxed)
            && self.leader.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the caller, thread number `thread`, leads. Else it has joined with `lsn`, and will be told, once.
    pub(crate) fn lead_or_join(&self, thread: usize, lsn: u64, me: P) -> bool {
        self.look_for_lead(thread, |waiting| {
            let leads = self.take_lead();
            if !leads {
                waiting.push((lsn, me));
            }
            leads
        })
    }

    /// Joins with `lsn` as one that does not lead. Whether somebody has to lead for it: the caller has the lead, to hand it on.
    pub(crate) fn join(&self, thread: usize, lsn: u64, me: P) -> bool {
        self.look_for_lead(thread, |waiting| {
            waiting.push((lsn, me));
            self.take_lead()
        })
    }

    /// The caller's lead ends. Moves those for whom `is_served` holds to `served`; the next leader, if anybody is left.
    pub(crate) fn hand_on(&self, is_served: impl Fn(u64) -> bool, served: &mut Vec<Waiting<P>>) -> Next<P> {
        loop {
            let mut next = None;
            let mut calls_left = false;
            for no in (0..SHARDS).filter(|&no| self.is_used(no)) {
                self.shard(no, |waiting| {
                    served.extend(waiting.extract_if(.., |w| is_served(w.0)));
                    if next.is_none() {
                        let at = waiting.iter().rposition(|w| w.1.may_lead());
                        next = at.map(|at| waiting.swap_remove(at).1);
                    }
                    calls_left |= !waiting.is_empty();
                });
            }
            if let Some(next) = next {
                return Next::Waiter(next);
            }
            if calls_left {
                return Next::Calls;
            }
            self.leader.store(false, Ordering::Release);
            fence(Ordering::SeqCst);
            // Whoever joined after its shard was looked at may have found us leading still.
            if !(0..SHARDS).any(|no| self.is_used(no)) || !self.take_lead() {
                return Next::Nobody;
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
    struct Cell {
        told: Arc<AtomicU32>,
        thread: loom::thread::Thread,
        is_call: bool,
    }

    impl Cell {
        fn new(is_call: bool) -> Cell {
            Cell { told: Arc::new(AtomicU32::new(WAITING)), thread: loom::thread::current(), is_call }
        }

        fn tell(&self, told: u32) {
            assert_eq!(self.told.swap(told, Ordering::AcqRel), WAITING, "who has joined is told once");
            self.thread.unpark();
        }
    }

    impl MayLead for Cell {
        fn may_lead(&self) -> bool {
            !self.is_call
        }
    }

    struct Log {
        waiters: Waiters<Cell>,
        end: AtomicU64,
        durable: AtomicU64,
        /// Who leads for calls.
        leader: Mutex<Option<Cell>>,
        calls: AtomicU64,
    }

    impl Log {
        fn lead(&self) {
            self.durable.fetch_max(self.end.load(Ordering::Acquire), Ordering::AcqRel);
            let mut served = Vec::new();
            let durable = self.durable.load(Ordering::Acquire);
            match self.waiters.hand_on(|lsn| lsn <= durable, &mut served) {
                Next::Waiter(next) => next.tell(LEAD),
                Next::Calls => self.leader.lock().unwrap().as_ref().unwrap().tell(LEAD),
                Next::Nobody => {}
            }
            for (lsn, waiter) in served {
                assert!(lsn <= durable);
                match waiter.is_call {
                    true => _ = self.calls.fetch_sub(1, Ordering::AcqRel),
                    false => waiter.tell(SERVED),
                }
            }
        }

        fn call(&self, thread: usize) {
            let lsn = self.end.fetch_add(1, Ordering::AcqRel) + 1;
            if self.waiters.join(thread, lsn, Cell::new(true)) {
                self.leader.lock().unwrap().as_ref().unwrap().tell(LEAD);
            }
        }

        fn lead_for_calls(&self, me: &Cell) {
            while self.calls.load(Ordering::Acquire) > 0 {
                match me.told.swap(WAITING, Ordering::AcqRel) {
                    LEAD => self.lead(),
                    _ => loom::thread::yield_now(),
                }
            }
        }

        fn commit(&self, thread: usize) {
            let lsn = self.end.fetch_add(1, Ordering::AcqRel) + 1;
            let cell = Cell::new(false);
            if self.durable.load(Ordering::Acquire) < lsn {
                if self.waiters.lead_or_join(thread, lsn, cell.clone()) {
                    assert_eq!(cell.told.swap(LEAD, Ordering::AcqRel), WAITING, "who leads has not joined");
                    self.lead();
                } else {
                    loop {
                        match cell.told.load(Ordering::Acquire) {
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

    /// Threads that wait, by their shards, and calls, by theirs.
    fn explore(preemptions: usize, threads: &'static [usize], calls: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let log = Arc::new(Log {
                waiters: Waiters::new(),
                end: AtomicU64::new(0),
                durable: AtomicU64::new(0),
                leader: Mutex::new(None),
                calls: AtomicU64::new(calls.len() as u64),
            });
            let me = Cell::new(false);
            *log.leader.lock().unwrap() = Some(me.clone());
            let run = |&thread: &usize| {
                let log = Arc::clone(&log);
                loom::thread::spawn(move || log.commit(thread))
            };
            let mut running: Vec<_> = threads.iter().map(run).collect();
            running.extend(calls.iter().map(|&call| {
                let log = Arc::clone(&log);
                loom::thread::spawn(move || log.call(call))
            }));
            log.lead_for_calls(&me);
            running.into_iter().for_each(|t| t.join().unwrap());
            assert!(!log.waiters.leader.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn nobody_waits_without_a_leader() {
        explore(3, &[0, 1], &[]);
    }

    #[test]
    fn nobody_waits_without_a_leader_where_two_join_one_shard() {
        explore(2, &[0, 0, 1], &[]);
    }

    #[test]
    fn no_call_is_left_without_a_leader() {
        explore(3, &[], &[0, 1]);
        explore(3, &[0], &[0]);
        explore(2, &[0, 1], &[1]);
    }
}
