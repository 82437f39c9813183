//! Spans: keys that a long scan upwards has locked one after the other, kept together.
//!
//! A queue for each of them would cost a place in the table's map when it is locked and again when it is released. A span is a
//! list of whole keys, all locked in one mode. Of one transaction no two spans reach into each other. No concurrency here: they
//! are used under the mutex of their transaction's list of locks.

use super::{LockMode, KEY_BYTES_SHOWN};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Longer keys are in no span, so that the places in one fit into 16 bits.
pub(super) const KEY_BYTES_MAX: usize = KEY_BYTES_SHOWN;

/// Keys of the longest span, and so of the most that are moved when one is taken out.
const KEYS_MAX: usize = 256;

const _: () = assert!(KEYS_MAX * KEY_BYTES_MAX <= u16::MAX as usize);

/// What a span takes in memory beside its keys, about.
const SPAN_BYTES: usize = 200;

type Key = SmallVec<[u8; 24]>;

/// Keys in ascending order, locked in one mode.
struct Span {
    mode: LockMode,
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<u16>,
}

impl Span {
    fn new(mode: LockMode) -> Span {
        Span { mode, bytes: Vec::new(), ends: Vec::new() }
    }

    fn key(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { usize::from(self.ends[at - 1]) };
        &self.bytes[from..usize::from(self.ends[at])]
    }

    fn highest(&self) -> Option<&[u8]> {
        self.ends.len().checked_sub(1).map(|last| self.key(last))
    }

    /// Whether the key may come behind those that are there.
    fn takes(&self, key: &[u8], mode: LockMode) -> bool {
        self.mode == mode
            && self.ends.len() < KEYS_MAX
            && self.highest().is_some_and(|highest| highest < key && highest.get(..4) == key.get(..4))
    }

    fn reaches_over(&self, key: &[u8]) -> bool {
        self.highest().is_some_and(|highest| key <= highest && self.key(0) <= key)
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u16);
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn remove(&mut self, at: usize) {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        let len = self.ends.remove(at) - from;
        self.bytes.drain(usize::from(from)..usize::from(from + len));
        self.ends[at..].iter_mut().for_each(|end| *end -= len);
    }
}

/// A transaction's spans.
#[derive(Default)]
pub(super) struct Spans {
    /// The one that grows. Not in `others`; may be empty if keys were taken out.
    tail: Option<Span>,
    /// Where the tail must end: the next of the others begins there.
    ceiling: Option<Key>,
    /// By a key that is not above their lowest.
    others: BTreeMap<Key, Span>,
    bytes: usize,
}

impl Spans {
    /// Adds a key; `false` where it is between keys that were added before, or one of them.
    pub(super) fn add(&mut self, key: &[u8], mode: LockMode) -> bool {
        let below = self.ceiling.as_ref().is_none_or(|ceiling| key < &ceiling[..]);
        if let Some(tail) = self.tail.as_mut().filter(|tail| below && tail.takes(key, mode)) {
            tail.push(key);
        } else if !self.begin(key, mode) {
            return false;
        }
        self.bytes += key.len() + size_of::<u16>();
        true
    }

    /// Makes a span with the key the tail: another, or a new one.
    fn begin(&mut self, key: &[u8], mode: LockMode) -> bool {
        if let Some(tail) = self.tail.take() {
            if !tail.ends.is_empty() {
                self.others.insert(Key::from_slice(tail.key(0)), tail);
            }
        }
        let before = self.others.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let mut tail = None;
        if let Some((lowest, span)) = before {
            if span.highest().is_some_and(|highest| highest >= key) {
                return false;
            }
            if span.takes(key, mode) {
                let lowest = lowest.clone();
                tail = self.others.remove(&lowest);
            }
        }
        let next = self.others.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        self.ceiling = next.map(|(lowest, _)| lowest.clone());
        let mut tail = tail.unwrap_or_else(|| {
            self.bytes += SPAN_BYTES;
            Span::new(mode)
        });
        tail.push(key);
        self.tail = Some(tail);
        true
    }

    /// In which mode the key is locked.
    pub(super) fn mode(&self, key: &[u8]) -> Option<LockMode> {
        let span = match &self.tail {
            Some(tail) if tail.reaches_over(key) => tail,
            _ => self.others.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?.1,
        };
        span.find(key).map(|_| span.mode)
    }

    /// Takes the key out, if it is there; its mode.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<LockMode> {
        let span = match &mut self.tail {
            Some(tail) if tail.reaches_over(key) => tail,
            _ => self.others.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?.1,
        };
        let at = span.find(key)?;
        span.remove(at);
        self.bytes -= key.len() + size_of::<u16>();
        Some(span.mode)
    }

    /// The prepared transaction keeps of each lock what [`LockMode::without_reads`] says; how many locks went.
    pub(super) fn release_reads(&mut self) -> usize {
        let (mut gone, mut gone_bytes) = (0, 0);
        let mut keep = |span: &mut Span| {
            let left = span.mode.without_reads();
            if let Some(mode) = left {
                span.mode = mode;
            } else {
                gone += span.ends.len();
                gone_bytes += span.bytes.len() + span.ends.len() * size_of::<u16>();
            }
            left.is_some()
        };
        if self.tail.as_mut().is_some_and(|tail| !keep(tail)) {
            self.tail = None;
        }
        self.others.retain(|_, span| keep(span));
        self.bytes -= gone_bytes;
        gone
    }

    /// Calls `f` with the keys above `above` of the first span in key order that has such, and puts the last of them there; the
    /// span's mode.
    pub(super) fn next(&self, above: &mut Vec<u8>, mut f: impl FnMut(LockMode, &[u8])) -> Option<LockMode> {
        let has = |span: &&Span| span.highest().is_some_and(|highest| highest > &above[..]);
        let before = self.others.range::<[u8], _>((Bound::Unbounded, Bound::Included(&above[..]))).next_back();
        let behind = self.others.range::<[u8], _>((Bound::Excluded(&above[..]), Bound::Unbounded));
        let other = before.into_iter().chain(behind).map(|(_, span)| span).find(has);
        let tail = self.tail.as_ref().filter(has);
        let span = [tail, other].into_iter().flatten().min_by_key(|span| span.key(0))?;
        (0..span.ends.len()).map(|at| span.key(at)).filter(|&key| key > &above[..]).for_each(|key| f(span.mode, key));
        above.clear();
        above.extend_from_slice(span.highest()?);
        Some(span.mode)
    }

    /// What they take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
