//! Deadlock detection: a search of the wait-for graph, from the transaction that is about to sleep.
//!
//! The graph is not stored: a waiting transaction's edges are read from the one queue in which it waits. Its shard's mutex
//! is held for that queue only, so the edges of a path may be of different moments. A cycle counts only if, at the end, all
//! its members have been waiting since before the edges *to* them were read (the words of their waits are unchanged): it is
//! an edge's target that could let it go, and a sleeping transaction releases nothing, so then all edges still stand. Who
//! runs is not followed: he searches himself before he sleeps, and may be in his next transaction by then.
//!
//! Every cycle is found by somebody. An edge appears when a request is queued: its owner searches afterwards, before it
//! sleeps. Or when a transaction is granted a lock in front of sleepers: it runs, and searches when it next waits. Or when a
//! *sleeping* transaction is given a lock by others (an implicit lock made explicit, an inherited gap): then those who now
//! wait for it are poked, and search. Searches follow one another (a mutex that nobody else takes), so of several requests
//! that close a cycle together, the last to search sees all edges.

use super::park::{WaitCell, WaitState};
use super::queue::{Lock, ShownKey};
use super::table::{shard_no, ShardGuard};
use super::{DeadlockInfo, DeadlockListener, Extent, LockInfo, LockTable, TrxLocks, Victim};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A transaction reached by the search.
struct Node {
    trx: Arc<TrxLocks>,
    /// Its wait when the edge to it was read.
    word: u64,
    /// By which node it was reached; the start points to itself.
    from: usize,
}

/// A search from one transaction.
struct Search {
    /// Its number, which marks whom it has reached.
    number: u64,
    nodes: Vec<Node>,
    /// Queues (hashes of their keys) that have nothing more to tell: whoever somebody waits for there has been reached.
    done: HashSet<u64>,
}

#[cfg(test)]
std::thread_local! {
    /// How many granted locks this thread's searches have looked at.
    pub(super) static HOLDERS_LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl LockTable {
    /// Finds the deadlocks in which `start`, whose present wait is `word`, takes part, and makes victims until there is
    /// none.
    pub(super) fn break_deadlocks(&self, start: &Arc<TrxLocks>, word: u64) {
        let mut search = self.search.lock();
        while start.wait.word() == word {
            *search += 1;
            let Some(cycle) = self.find_cycle(start, word, *search) else { return };
            let waits = self.describe(&cycle);
            let Some(pinned) = self.pin(&cycle) else { continue };
            let victim = self.choose(&cycle);
            let info = DeadlockInfo { wall_us: self.clock.wall_us(), victim: victim.trx.shown_id(), waits };
            let ended = victim.trx.wait.end(victim.word, WaitState::Victim);
            drop(pinned);
            if ended {
                self.totals.deadlocks.fetch_add(1, Ordering::Relaxed);
                victim.trx.wait.wake();
                if let Some(listener) = self.listener.get() {
                    listener(&info);
                }
                *self.last_deadlock.lock() = Some(info);
            }
        }
    }

    /// Locks the shards in which the members of the cycle wait, so that no wait of theirs ends: a transaction that is alive
    /// keeps its owner alive, who is asked about the victim. `None` if it is no cycle any more.
    fn pin(&self, cycle: &[Node]) -> Option<SmallVec<[ShardGuard<'_>; 4]>> {
        let mut shards: SmallVec<[usize; 4]> =
            cycle.iter().map(|n| shard_no(n.trx.waiting_on.load(Ordering::Relaxed))).collect();
        shards.sort_unstable();
        shards.dedup();
        let guards = shards.into_iter().map(|no| self.lock_shard(no)).collect();
        cycle.iter().all(|n| n.trx.wait.word() == n.word).then_some(guards)
    }

    /// The victim of a pinned cycle, the same wherever the search began: of those whom the owner of the transactions would
    /// rather see go than another, and of nobody else if there are such, the lightest; the requester among equals.
    fn choose<'c>(&self, cycle: &'c [Node]) -> &'c Node {
        let prefers = |n: &Node, victim: Victim| {
            let mut others = cycle.iter().filter(|other| !Arc::ptr_eq(&other.trx, &n.trx));
            others.any(|other| self.order.victim(n.trx.thd(), other.trx.thd()) == Some(victim))
        };
        let rank = |n: &Node| {
            let rank = if prefers(n, Victim::Second) { 2 } else { u8::from(!prefers(n, Victim::First)) };
            (rank, n.trx.weight())
        };
        cycle.iter().min_by_key(|n| rank(n)).expect("a cycle has members")
    }

    /// What the members of a deadlock wait for, as it is shown to users.
    fn describe(&self, cycle: &[Node]) -> Vec<LockInfo> {
        let mut waits = Vec::with_capacity(cycle.len());
        for (i, n) in cycle.iter().enumerate() {
            let hash = n.trx.waiting_on.load(Ordering::Relaxed);
            let queues = self.shard(hash);
            let Some(queue) = queues.queue_with_waiters(hash) else { continue };
            let Some(position) = queue.waiting_position(&n.trx) else { continue };
            let ShownKey { index, supremum, ref bytes, .. } = queue.key;
            waits.push(LockInfo {
                trx_id: n.trx.shown_id(),
                thread_id: n.trx.thread_id(),
                mode: queue.locks[position].mode,
                granted: false,
                index,
                key: bytes.to_vec(),
                supremum,
                blockers: vec![cycle[(i + 1) % cycle.len()].trx.shown_id()],
            });
        }
        waits
    }

    /// Who is told of deadlocks, for good.
    pub fn set_deadlock_listener(&self, listener: DeadlockListener) {
        assert!(self.listener.set(listener).is_ok(), "there is one listener");
    }

    /// The last deadlock since the start.
    pub fn last_deadlock(&self) -> Option<DeadlockInfo> {
        self.last_deadlock.lock().clone()
    }

    /// The shortest cycle through `start`, which comes first; its wait is `word`.
    fn find_cycle(&self, start: &Arc<TrxLocks>, word: u64, number: u64) -> Option<Vec<Node>> {
        let nodes = vec![Node { trx: Arc::clone(start), word, from: 0 }];
        let mut search = Search { number, nodes, done: HashSet::new() };
        start.visited.store(number, Ordering::Relaxed);
        let mut at = 0;
        while at < search.nodes.len() {
            if self.follow(&mut search, at, start) {
                let mut nodes = search.nodes;
                let mut cycle = Vec::new();
                let mut i = at;
                while i != 0 {
                    let from = nodes[i].from;
                    cycle.push(nodes.swap_remove(i));
                    i = from;
                }
                cycle.push(nodes.swap_remove(0));
                cycle.reverse();
                return Some(cycle);
            }
            at += 1;
        }
        None
    }

    /// Adds the sleeping transactions for which node `at` waits, if its wait goes on; true if `start` is among them.
    ///
    /// Of those that wait in the same queue for the same mode, further ahead, no edges need be followed: they wait for what
    /// this one waits for, or less, and for locks of this one. That keeps a search linear where many wait for one hot row.
    /// Only where this one is `start`, and they wait for what it holds (an upgrade), they matter.
    ///
    /// Where all who wait in a queue want the same, and `start` is not among them, what the first one waits for is what all wait for,
    /// but for the locks that it has there itself, and it has been reached. So the queue is looked at once, which keeps a search linear
    /// where many hold a lock (on a parent, say) and wait for another. Not so for inserts: whether they wait for a gap
    /// depends on both transactions (`CommitOrder::is_fixed`).
    fn follow(&self, search: &mut Search, at: usize, start: &Arc<TrxLocks>) -> bool {
        // Widens the window between the reading of an edge and of its target's edges.
        #[cfg(test)]
        if at > 0 {
            std::thread::yield_now();
        }
        let trx = Arc::clone(&search.nodes[at].trx);
        if trx.wait.word() != search.nodes[at].word {
            return false;
        }
        let hash = trx.waiting_on.load(Ordering::Relaxed);
        if search.done.contains(&hash) {
            return false;
        }
        let queues = self.shard(hash);
        let Some(queue) = queues.queue_with_waiters(hash) else { return false };
        let Some(position) = queue.waiting_position(&trx) else { return false };
        let mode = queue.locks[position].mode;
        let upgrade = at == 0
            && queue.locks.iter().any(|l| !l.waiting && Arc::ptr_eq(&l.trx, start) && mode.conflicts_with(l.mode));
        let mut closed = false;
        queue.each_blocker(&*self.order, &trx, mode, position, |l| {
            #[cfg(test)]
            HOLDERS_LOOKED_AT.set(HOLDERS_LOOKED_AT.get() + u64::from(!l.waiting));
            closed = Arc::ptr_eq(&l.trx, start);
            let word = l.trx.wait.word();
            let follow = WaitCell::is_waiting(word) && (upgrade || !l.waiting || l.mode != mode);
            if !closed && l.trx.visited.swap(search.number, Ordering::Relaxed) != search.number && follow {
                search.nodes.push(Node { trx: Arc::clone(&l.trx), word, from: at });
            }
            !closed
        });
        let alike = |l: &Lock| !l.waiting || l.mode == mode && !Arc::ptr_eq(&l.trx, start);
        if mode.extent != Extent::InsertIntention && queue.locks.iter().all(alike) {
            search.done.insert(hash);
        }
        closed
    }
}
