//! Which files a backup has copied and which it has to copy yet.

use super::file::FileCopy;
use super::BackupProgress;
use crate::engine::Engine;
use crate::format;
use myriad_base::{Result, SpaceId};
use myriad_buffer::Level;
use myriad_io::{File, IoRequest};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that are made durable together at most: of many small ones the syncs take longer than the copies.
const SYNCED_TOGETHER_MAX: usize = 64;

/// The tablespace files of a backup.
pub(crate) struct Files {
    engine: Arc<Engine>,
    /// `#myriad/` of the copy.
    folder: PathBuf,
    waiting: VecDeque<String>,
    current: Option<FileCopy>,
    /// Names of the copy's files, whole ones.
    copied: BTreeSet<String>,
    /// Of these, those that are not durable yet. None once all files are copied.
    unsynced: Vec<Arc<dyn File>>,
    bytes: u64,
}

impl Files {
    pub(crate) fn new(engine: &Arc<Engine>, folder: &Path) -> Files {
        Files {
            engine: Arc::clone(engine),
            folder: folder.into(),
            waiting: VecDeque::new(),
            current: None,
            copied: BTreeSet::new(),
            unsynced: Vec::new(),
            bytes: 0,
        }
    }

    /// Files as they are now. Those created later are noted by the registry.
    pub(crate) fn list(&mut self) -> Result<()> {
        // None of them is just being created.
        let _held = self.engine.parts.spaces.hold_names();
        let names = self.engine.io().list_dir(&self.source())?;
        self.waiting = names.into_iter().filter(|name| is_tablespace(name)).collect();
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.engine.parts.config.data_dir.join(format::FOLDER)
    }

    /// Whether all files that it knows of are copied.
    pub(crate) fn is_done(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Asks which files have come and gone meanwhile.
    pub(crate) fn look(&mut self) -> Result<()> {
        let changed = self.engine.parts.spaces.hold_names().changed().to_vec();
        self.catch_up(&changed)
    }

    /// What came and went: files that are gone leave the copy, new ones are to be copied.
    pub(crate) fn catch_up(&mut self, changed: &[String]) -> Result<()> {
        for name in changed {
            let exists = self.engine.io().exists(&self.source().join(name))?;
            if !exists && self.copied.remove(name) {
                self.engine.io().remove_file(&self.folder.join(name))?;
            } else if exists && !self.copied.contains(name) && is_tablespace(name) {
                self.waiting.push_back(name.clone());
            }
        }
        Ok(())
    }

    /// Copies an extent of the file under way, or of the next one.
    pub(crate) fn copy_part(&mut self) -> Result<()> {
        self.copy_extent()?;
        if self.unsynced.len() >= SYNCED_TOGETHER_MAX || self.is_done() {
            self.sync_copied()?;
        }
        self.engine.note_backup(|backup| backup.progress = self.progress());
        Ok(())
    }

    /// Makes the copies durable, their names not.
    fn sync_copied(&mut self) -> Result<()> {
        let copied = std::mem::take(&mut self.unsynced);
        let mut syncs: Vec<IoRequest<'_>> = copied.iter().map(|file| IoRequest::sync(&**file)).collect();
        self.engine.io().submit(&mut syncs);
        syncs.into_iter().try_for_each(|sync| sync.result.map(drop))
    }

    fn copy_extent(&mut self) -> Result<()> {
        let mut copy = match self.current.take() {
            Some(copy) => copy,
            None => {
                let Some(name) = self.waiting.pop_front() else { return Ok(()) };
                match FileCopy::begin(self.engine.io(), &self.source(), &self.folder, name, self.engine.page_size())? {
                    Some(copy) => {
                        self.tell_if_missed(copy.space());
                        copy
                    }
                    None => return Ok(()), // dropped meanwhile
                }
            }
        };
        self.bytes += copy.copy_extent(&self.engine)?;
        if copy.is_done()? {
            self.unsynced.push(copy.finish()?);
            self.copied.insert(copy.name);
        } else {
            self.current = Some(copy);
        }
        Ok(())
    }

    /// A file that cannot be used is copied as it is, and cannot be used in the copy.
    fn tell_if_missed(&self, space: SpaceId) {
        if let Err(e) = self.engine.parts.spaces.check_missed(space) {
            (self.engine.parts.report)(Level::Warning, &format!("backup: {e}; its file is copied as it is"));
        }
    }

    pub(crate) fn progress(&self) -> BackupProgress {
        let current = u64::from(self.current.is_some());
        let files = self.copied.len() as u64;
        BackupProgress {
            files,
            files_total: files + current + self.waiting.len() as u64,
            file_permille: self.current.as_ref().map_or(0, FileCopy::permille),
            bytes: self.bytes,
        }
    }

    /// Copies no more.
    pub(crate) fn close(&mut self) {
        self.current = None;
        self.unsynced.clear();
    }
}

fn is_tablespace(name: &str) -> bool {
    name.ends_with(".myr")
}
