//! Which files come, go and get other names while a backup copies them, and holding that still for a moment.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;

/// Taken shared by who creates, removes or renames a file, over the file system's part of it.
#[derive(Default)]
pub(crate) struct Names {
    still: RwLock<()>,
    /// Paths that changed since it was asked for; `None` while nobody wants to know.
    changed: Mutex<Option<BTreeSet<String>>>,
}

/// While this lives no file of a tablespace comes, goes or gets another name.
pub struct NamesHeld<'a> {
    changed: Vec<String>,
    _still: RwLockWriteGuard<'a, ()>,
}

impl NamesHeld<'_> {
    /// Paths under `#myriad/` that changed since they were last asked for.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }
}

impl Names {
    /// To be held while files of these paths come or go. Once for each thread.
    pub(crate) fn changing(&self, paths: &[&str]) -> RwLockReadGuard<'_, ()> {
        let guard = self.still.read();
        if let Some(changed) = &mut *self.changed.lock() {
            changed.extend(paths.iter().map(|&path| path.to_owned()));
        }
        guard
    }

    /// From now on changes are noted.
    pub(crate) fn watch(&self) {
        *self.changed.lock() = Some(BTreeSet::new());
    }

    pub(crate) fn end_watch(&self) {
        *self.changed.lock() = None;
    }

    /// Waits for changes under way, which are noted before they are made.
    pub(crate) fn hold(&self) -> NamesHeld<'_> {
        let still = self.still.write();
        let paths = self.changed.lock().as_mut().map(std::mem::take).unwrap_or_default();
        NamesHeld { changed: paths.into_iter().collect(), _still: still }
    }
}
