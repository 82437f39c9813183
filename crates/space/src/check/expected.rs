//! What the catalog said when the check began, in 16 bytes a tablespace, and which files have been seen.

use super::{Known, Progress};
use crate::header::SpaceHeader;
use crate::Uuid;
use myriad_base::{Result, SpaceId};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Expected {
    /// By id: a fingerprint of path and UUID.
    spaces: Vec<(u32, u64)>,
    /// A bit for each of them.
    seen: Vec<AtomicU64>,
}

fn fingerprint(path: &[u8], uuid: &Uuid) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(uuid);
    hasher.write(path);
    hasher.finish()
}

impl Expected {
    pub(super) fn read(known: &dyn Known, progress: &Progress) -> Result<Expected> {
        let mut spaces = Vec::new();
        known.list(&mut |space| {
            spaces.push((space.id.0, fingerprint(space.path.as_bytes(), &space.uuid)));
            !progress.stopped()
        })?;
        spaces.sort_unstable();
        spaces.shrink_to_fit();
        let seen = (0..spaces.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Expected { spaces, seen })
    }

    pub(super) fn len(&self) -> usize {
        self.spaces.len()
    }

    fn position(&self, id: SpaceId) -> Option<usize> {
        self.spaces.binary_search_by_key(&id.0, |s| s.0).ok()
    }

    /// Whether the file at `path` with this header is the one that the catalog named.
    pub(super) fn matches(&self, path: &[u8], header: &SpaceHeader) -> bool {
        self.position(header.id).is_some_and(|at| self.spaces[at].1 == fingerprint(path, &header.uuid))
    }

    /// Notes that the tablespace's file has been looked at. True, for chaining.
    pub(super) fn see(&self, id: SpaceId) -> bool {
        if let Some(at) = self.position(id) {
            self.seen[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
        }
        true
    }

    /// Tablespaces whose file has not been looked at.
    pub(super) fn unseen(&self) -> impl Iterator<Item = SpaceId> + '_ {
        let seen = |at: usize| self.seen[at / 64].load(Ordering::Relaxed) & 1 << (at % 64) != 0;
        self.spaces.iter().enumerate().filter(move |(at, _)| !seen(*at)).map(|(_, space)| SpaceId(space.0))
    }
}
