//! The queues of a shard, those of neighbouring keys together.
//!
//! A scan that locks row after row would make a queue for each. Where neighbours (see [`group_of`]) are locked by one
//! transaction alone, all in the same mode, they are a *run*: a bit for each key. As soon as anybody asks for anything else,
//! the run is set apart into queues.

use super::key::{group_of, member_of, NEIGHBOURS};
use super::queue::{Lock, Queue, ShownKey};
use super::{Extent, LockKey, LockMode, TrxLocks};
use smallvec::{smallvec, SmallVec};
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Groups are named by hashes already; but for the bits that they lack.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys");
    }
    fn write_u64(&mut self, group: u64) {
        self.0 = group.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Locks of one transaction in one mode on neighbouring keys.
struct Run {
    trx: Arc<TrxLocks>,
    mode: LockMode,
    /// A bit for each member.
    members: u16,
    /// The member whose key is kept.
    first: u8,
    key: ShownKey,
}

const _: () = assert!(NEIGHBOURS as u32 == u16::BITS);

impl Run {
    fn members(&self) -> impl Iterator<Item = u8> + '_ {
        (0..NEIGHBOURS).filter(|m| self.members & 1 << m != 0)
    }

    /// The queue of a member as it would be by itself.
    fn queue(&self, member: u8) -> Queue {
        let lock = Lock { trx: Arc::clone(&self.trx), mode: self.mode, waiting: false };
        Queue { key: self.key.neighbour(member ^ self.first), locks: smallvec![lock] }
    }
}

enum Group {
    Run(Run),
    Apart(Vec<(u8, Queue)>),
}

impl Group {
    /// The queues of a group; a run becomes such.
    fn set_apart(&mut self, group: u64) -> &mut Vec<(u8, Queue)> {
        if let Group::Run(run) = self {
            run.trx.note_apart(group, run.members.count_ones() as usize - 1);
            let queues = run.members().map(|m| (m, run.queue(m))).collect();
            *self = Group::Apart(queues);
        }
        match self {
            Group::Apart(queues) => queues,
            Group::Run(_) => unreachable!("it was set apart"),
        }
    }
}

/// What can be said about a request without looking at a queue.
pub(super) enum Quick {
    /// The transaction has the lock, or a stronger one.
    Held,
    /// Nothing conflicts, and nothing was to be stored.
    Free,
    /// Stored, in a new group.
    Begun,
    /// Stored, in a run of the transaction.
    Joined,
    /// The queue must be asked.
    Queue,
}

/// What became of a prepared transaction's locks in a group.
#[derive(Default)]
pub(super) struct ReadsReleased {
    /// How many went.
    pub(super) locks: usize,
    /// Whether others are left.
    pub(super) keeps_any: bool,
    /// Whether the group went.
    pub(super) group_gone: bool,
}

/// The queues of a shard.
#[derive(Default)]
pub(super) struct Groups {
    map: HashMap<u64, Group, BuildHasherDefault<Spread>>,
}

impl Groups {
    /// Answers a request where the transaction is alone among the neighbours, or nobody is there.
    pub(super) fn quick(&mut self, trx: &Arc<TrxLocks>, key: &LockKey<'_>, mode: LockMode, store: bool) -> Quick {
        let member = member_of(key.hash());
        let run = match self.map.entry(group_of(key.hash())) {
            Entry::Vacant(_) if !store => return Quick::Free,
            Entry::Vacant(place) => {
                let run = Run { trx: Arc::clone(trx), mode, members: 1 << member, first: member, key: key.into() };
                place.insert(Group::Run(run));
                return Quick::Begun;
            }
            Entry::Occupied(group) => match group.into_mut() {
                Group::Run(run) => run,
                Group::Apart(queues) if store || queues.iter().any(|(m, _)| *m == member) => return Quick::Queue,
                Group::Apart(_) => return Quick::Free,
            },
        };
        let (own, locked) = (Arc::ptr_eq(&run.trx, trx), run.members & 1 << member != 0);
        if own && locked && mode.extent != Extent::InsertIntention && run.mode.covers(mode) {
            Quick::Held
        } else if !store && (own || !locked) {
            Quick::Free
        } else if own && !locked && run.mode == mode {
            run.members |= 1 << member;
            Quick::Joined
        } else {
            Quick::Queue
        }
    }

    /// Takes a lock out of a run: `Some` if it was there, with whether that was the last of the run and its group is gone.
    pub(super) fn leave(&mut self, trx: &Arc<TrxLocks>, hash: u64, mode: LockMode) -> Option<bool> {
        let Entry::Occupied(mut group) = self.map.entry(group_of(hash)) else { return None };
        let Group::Run(run) = group.get_mut() else { return None };
        let member = 1 << member_of(hash);
        if !Arc::ptr_eq(&run.trx, trx) || run.mode != mode || run.members & member == 0 {
            return None;
        }
        run.members &= !member;
        let last = run.members == 0;
        if last {
            group.remove();
        }
        Some(last)
    }

    /// Whether there is a lock on the key with this hash or a neighbour.
    pub(super) fn has_group(&self, hash: u64) -> bool {
        self.map.contains_key(&group_of(hash))
    }

    /// The queue with this hash. A run is set apart only if the key is in it.
    pub(super) fn queue_mut(&mut self, hash: u64) -> Option<&mut Queue> {
        let (group, member) = (group_of(hash), member_of(hash));
        let found = self.map.get_mut(&group)?;
        if matches!(found, Group::Run(run) if run.members & 1 << member == 0) {
            return None;
        }
        let queues = found.set_apart(group);
        queues.iter_mut().find(|(m, _)| *m == member).map(|(_, q)| q)
    }

    /// The queue with this hash, if anybody waits there.
    pub(super) fn queue_with_waiters(&self, hash: u64) -> Option<&Queue> {
        match self.map.get(&group_of(hash))? {
            Group::Run(_) => None,
            Group::Apart(queues) => queues.iter().find(|(m, _)| *m == member_of(hash)).map(|(_, q)| q),
        }
    }

    /// The queue of a key, made if there is none; and whether its group is new.
    pub(super) fn queue_or_new(&mut self, key: &LockKey<'_>) -> (&mut Queue, bool) {
        let (group, member) = (group_of(key.hash()), member_of(key.hash()));
        let mut new = false;
        let queues = self.map.entry(group).or_insert_with(|| {
            new = true;
            Group::Apart(Vec::with_capacity(1))
        });
        let queues = queues.set_apart(group);
        let at = queues.iter().position(|(m, _)| *m == member).unwrap_or_else(|| {
            queues.push((member, Queue::new(key)));
            queues.len() - 1
        });
        (&mut queues[at].1, new)
    }

    /// If the neighbours of the key with this hash are a run, they get queues of their own.
    pub(super) fn set_apart(&mut self, hash: u64) {
        let group = group_of(hash);
        if let Some(found) = self.map.get_mut(&group) {
            found.set_apart(group);
        }
    }

    /// Removes the queue with this hash, which is empty; whether its group went with it.
    pub(super) fn remove(&mut self, hash: u64) -> bool {
        let Entry::Occupied(mut group) = self.map.entry(group_of(hash)) else { return false };
        let Group::Apart(queues) = group.get_mut() else { return false };
        queues.retain(|(m, _)| *m != member_of(hash));
        if queues.is_empty() {
            group.remove();
            return true;
        }
        false
    }

    /// Removes all locks of `trx` in a group, if there are any; calls `changed` with each queue that others are in. Whether
    /// the group went.
    pub(super) fn release(
        &mut self,
        trx: &Arc<TrxLocks>,
        group: u64,
        mut changed: impl FnMut(&mut Queue, u64),
    ) -> bool {
        let Entry::Occupied(mut found) = self.map.entry(group) else { return false };
        let gone = match found.get_mut() {
            Group::Run(run) => Arc::ptr_eq(&run.trx, trx),
            Group::Apart(queues) => {
                queues.retain_mut(|(member, queue)| {
                    let before = queue.locks.len();
                    queue.locks.retain(|l| !Arc::ptr_eq(&l.trx, trx));
                    if !queue.locks.is_empty() && queue.locks.len() < before {
                        changed(queue, group | u64::from(*member));
                    }
                    !queue.locks.is_empty()
                });
                queues.is_empty()
            }
        };
        if gone {
            found.remove();
        }
        gone
    }

    /// Of the locks of `trx` in a group leaves what [`LockMode::without_reads`] says; calls `changed` with each queue that has
    /// changed and is not empty.
    pub(super) fn release_reads(
        &mut self,
        trx: &Arc<TrxLocks>,
        group: u64,
        mut changed: impl FnMut(&mut Queue, u64),
    ) -> ReadsReleased {
        let mut released = ReadsReleased::default();
        let Entry::Occupied(mut found) = self.map.entry(group) else { return released };
        match found.get_mut() {
            Group::Run(run) if !Arc::ptr_eq(&run.trx, trx) => {}
            Group::Run(run) => match run.mode.without_reads() {
                Some(mode) => {
                    run.mode = mode;
                    released.keeps_any = true;
                }
                None => {
                    released.locks = run.members.count_ones() as usize;
                    released.group_gone = true;
                }
            },
            Group::Apart(queues) => {
                queues.retain_mut(|(member, queue)| {
                    let before = queue.locks.len();
                    if queue.release_reads(trx) {
                        released.locks += before - queue.locks.len();
                        if !queue.locks.is_empty() {
                            changed(queue, group | u64::from(*member));
                        }
                    }
                    released.keeps_any |= queue.locks.iter().any(|l| Arc::ptr_eq(&l.trx, trx));
                    !queue.locks.is_empty()
                });
                released.group_gone = queues.is_empty();
            }
        }
        if released.group_gone {
            found.remove();
        }
        released
    }

    /// Calls `f` with each queue; those of runs are made up for it.
    pub(super) fn each(&self, mut f: impl FnMut(&Queue)) {
        for group in self.map.values() {
            match group {
                Group::Run(run) => run.members().for_each(|m| f(&run.queue(m))),
                Group::Apart(queues) => queues.iter().for_each(|(_, q)| f(q)),
            }
        }
    }

    /// Calls `f` with each queue in which anybody may wait.
    pub(super) fn each_apart(&self, mut f: impl FnMut(&Queue)) {
        for group in self.map.values() {
            if let Group::Apart(queues) = group {
                queues.iter().for_each(|(_, q)| f(q));
            }
        }
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Gives memory back if there are no locks and there is room for more than `keep` groups.
    pub(super) fn shrink_if_empty(&mut self, keep: usize) {
        if self.map.is_empty() && self.map.capacity() > keep {
            self.map = HashMap::default();
        }
    }
}

impl ShownKey {
    /// The key whose member number differs by these bits.
    fn neighbour(&self, bits: u8) -> ShownKey {
        let mut bytes: SmallVec<[u8; 16]> = self.bytes.clone();
        if self.whole {
            if let Some(last) = bytes.last_mut() {
                *last ^= bits;
            }
        }
        ShownKey { index: self.index, supremum: self.supremum, whole: self.whole, bytes }
    }
}
