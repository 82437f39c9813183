//! Tablespaces that must not be used, because a second file says it is the same one.
//!
//! Found while the engine runs, perhaps long after a tablespace came into use. One that has not been opened yet, and that
//! recovery does not need, is never opened. Any other stays usable below, so that no committed change is lost, pages
//! already changed reach their file and transactions can be rolled back; new work is refused above, by whoever asks
//! [`Suspects::check`].

use myriad_base::SpaceId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

#[derive(Clone)]
struct Suspect {
    reason: Arc<str>,
    /// The second file.
    other: PathBuf,
    /// Something was under way in it when it became one.
    in_use: bool,
}

#[derive(Default)]
struct Inner {
    suspects: HashMap<SpaceId, Suspect>,
    /// Opened since the watch began.
    opened: HashSet<SpaceId>,
    /// Paths created since the watch began.
    created: HashSet<String>,
}

/// See the module. One latch for all: taken when files are opened and created while a check runs, and for suspects.
#[derive(Default)]
pub(crate) struct Suspects {
    watching: AtomicBool,
    any: AtomicBool,
    inner: Mutex<Inner>,
}

impl Suspects {
    /// From now on notes which tablespaces are opened and which files created.
    pub(crate) fn begin_watch(&self) {
        self.watching.store(true, Ordering::SeqCst);
    }

    /// The check is over: no suspect is added from now on.
    pub(crate) fn end_watch(&self) {
        self.watching.store(false, Ordering::SeqCst);
        let mut inner = self.inner.lock();
        (inner.opened, inner.created) = Default::default();
    }

    /// Before a tablespace's file is created.
    pub(crate) fn creating(&self, id: SpaceId, path: &str) {
        if self.watching.load(Ordering::SeqCst) {
            let mut inner = self.inner.lock();
            inner.created.insert(path.into());
            inner.opened.insert(id);
        }
    }

    pub(crate) fn was_created(&self, path: &str) -> bool {
        self.inner.lock().created.contains(path)
    }

    /// Adds one; `reason` is for the error, `needed` whether recovery still needs it.
    pub(crate) fn add(&self, id: SpaceId, other: PathBuf, reason: &str, needed: bool) {
        let mut inner = self.inner.lock();
        let in_use = needed || inner.opened.contains(&id);
        inner.suspects.entry(id).or_insert(Suspect { reason: reason.into(), other, in_use });
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are any: one load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Before a tablespace's file is opened.
    ///
    /// # Errors
    /// Why it must not be.
    pub(crate) fn opening(&self, id: SpaceId) -> Result<(), Arc<str>> {
        if !self.watching.load(Ordering::SeqCst) && !self.any() {
            return Ok(());
        }
        match self.check(id) {
            Err((reason, false)) => Err(reason),
            Ok(()) if self.watching.load(Ordering::SeqCst) => {
                let mut inner = self.inner.lock();
                match inner.suspects.get(&id) {
                    Some(suspect) => return Err(Arc::clone(&suspect.reason)),
                    None => inner.opened.insert(id),
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether new work may use the tablespace. One that was never opened is free again when the second file is gone.
    ///
    /// # Errors
    /// Why not, and whether it is in use below.
    pub(crate) fn check(&self, id: SpaceId) -> Result<(), (Arc<str>, bool)> {
        let Some(suspect) = self.inner.lock().suspects.get(&id).cloned() else { return Ok(()) };
        if !suspect.in_use && gone(&suspect.other) {
            self.inner.lock().suspects.remove(&id);
            return Ok(());
        }
        Err((suspect.reason, suspect.in_use))
    }
}

fn gone(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_not_opened_and_free_again_when_its_twin_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let twin = dir.path().join("twin");
        std::fs::write(&twin, "").unwrap();
        let s = Suspects::default();
        let (used, unused) = (SpaceId(16), SpaceId(17));
        s.begin_watch();
        assert!(s.opening(used).is_ok() && !s.any());
        for id in [used, unused] {
            s.add(id, twin.clone(), "two files", false);
        }
        s.add(used, "/elsewhere".into(), "three files", false);
        s.end_watch();
        s.add(SpaceId(19), twin.clone(), "two files", true);
        assert!(s.opening(used).is_ok() && s.opening(SpaceId(19)).is_ok(), "their pages must reach them");
        assert_eq!(s.check(used), Err(("two files".into(), true)));
        assert_eq!(s.opening(unused), Err("two files".into()));
        assert!(s.opening(SpaceId(18)).is_ok() && s.check(SpaceId(18)).is_ok());
        std::fs::remove_file(&twin).unwrap();
        std::os::unix::fs::symlink("nowhere", &twin).unwrap();
        assert!(s.check(unused).is_err(), "it is still there");
        std::fs::remove_file(&twin).unwrap();
        assert!(s.check(unused).is_ok() && s.opening(unused).is_ok());
        assert!(s.check(used).is_err(), "it may be the removed file that is open");
    }

    #[test]
    fn creations_are_noted_while_somebody_watches() {
        let s = Suspects::default();
        s.creating(SpaceId(16), "before");
        s.begin_watch();
        s.creating(SpaceId(17), "during");
        assert!(s.was_created("during") && !s.was_created("before"));
        s.end_watch();
        assert!(!s.was_created("during"));
    }
}
