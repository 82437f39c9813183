//! Prepared transactions that belong to no session: found at the start, or left by the session that prepared them.
//!
//! No table definition is protected for them, as the server's metadata locks end with the session. So whoever is about to
//! build something from a table's rows, or to empty it, asks here first whether one of them has changed it.

use crate::rollback::index_of;
use crate::system::{undo_pages_wanted, TrxSystem, Work};
use crate::undo::page::{self, undo_page};
use crate::undo::record::{self, LogState};
use myriad_base::circle::Circle;
use myriad_base::{Error, IndexId, PageNo, Result, RollPtr, TrxId};
use parking_lot::Mutex;
use std::collections::HashSet;

struct Prepared {
    xid: Vec<u8>,
    /// `None` while it is being committed.
    work: Option<Work>,
    /// The indexes it has changed, once somebody has asked.
    changed: Option<HashSet<IndexId>>,
}

/// Where the records of a prepared transaction are, to which none is added.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    trx: TrxId,
    header: RollPtr,
    last: PageNo,
}

impl Prepared {
    fn span(&self) -> Option<Span> {
        self.work.as_ref().map(|work| {
            let log = &work.log;
            Span { trx: log.trx, header: log.header, last: log.tail.page }
        })
    }
}

enum Answer {
    Known(bool),
    /// First the indexes of this one must be found.
    Unknown(Span),
}

/// See the module.
#[derive(Default)]
pub(crate) struct PreparedTrxs {
    all: Mutex<Vec<Prepared>>,
}

impl PreparedTrxs {
    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    pub fn each(&self, f: &mut dyn FnMut(&Work)) {
        self.all.lock().iter().filter_map(|p| p.work.as_ref()).for_each(f);
    }

    /// Its place in the list stays until [`PreparedTrxs::forget`] or [`PreparedTrxs::put_back`].
    fn take(&self, xid: &[u8]) -> Option<Work> {
        self.all.lock().iter_mut().find(|p| p.xid == xid && p.work.is_some())?.work.take()
    }

    fn put_back(&self, xid: &[u8], work: Work) {
        let mut all = self.all.lock();
        let place = all.iter_mut().find(|p| p.xid == xid && p.work.is_none());
        place.expect("taken by the caller").work = Some(work);
    }

    fn has_changed(&self, index: IndexId) -> Answer {
        for p in self.all.lock().iter() {
            match (&p.changed, p.span()) {
                (Some(changed), _) if !changed.contains(&index) => {}
                // One of which nothing is known ends at this moment.
                (Some(_), _) | (None, None) => return Answer::Known(true),
                (None, Some(span)) => return Answer::Unknown(span),
            }
        }
        Answer::Known(false)
    }

    /// What was found in the log of one of them. It counts only if that still is there.
    fn note_changed(&self, span: Span, found: Result<HashSet<IndexId>>) -> Result<()> {
        if let Some(p) = self.all.lock().iter_mut().find(|p| p.span() == Some(span)) {
            p.changed = Some(found?);
        }
        Ok(())
    }

    fn forget(&self, xid: &[u8]) {
        let mut all = self.all.lock();
        if let Some(at) = all.iter().position(|p| p.xid == xid && p.work.is_none()) {
            all.swap_remove(at);
        }
    }
}

impl TrxSystem {
    pub(crate) fn detach(&self, work: Work) {
        let xid = work.xid.clone().expect("prepared under a name");
        self.prepared.all.lock().push(Prepared { xid, work: Some(work), changed: None });
    }

    /// Takes a prepared transaction back from the list.
    pub(crate) fn reattach(&self, xid: &[u8]) -> Option<Work> {
        let work = self.prepared.take(xid)?;
        self.prepared.forget(xid);
        Some(work)
    }

    /// Ids of prepared transactions that belong to no session.
    pub fn prepared_xids(&self) -> Vec<Vec<u8>> {
        let mut ids = Vec::new();
        self.prepared.each(&mut |w| ids.extend(w.xid.clone()));
        ids
    }

    /// The indexes that a prepared transaction without a session has changed; none if there is none with this id.
    ///
    /// # Errors
    /// Those of reading undo pages.
    pub fn indexes_changed_by_prepared(&self, xid: &[u8]) -> Result<HashSet<IndexId>> {
        let found = {
            let all = self.prepared.all.lock();
            let Some(p) = all.iter().find(|p| p.xid == xid) else { return Ok(HashSet::new()) };
            (p.changed.clone(), p.span())
        };
        match found {
            (Some(changed), _) => Ok(changed),
            (None, span) => span.map_or(Ok(HashSet::new()), |span| self.indexes_changed_in(span)),
        }
    }

    /// Commits a prepared transaction that belongs to no session; `false` if there is none with this id.
    ///
    /// # Errors
    /// Those of the log.
    pub fn commit_by_xid(&self, xid: &[u8]) -> Result<bool> {
        let Some(work) = self.prepared.take(xid) else { return Ok(false) };
        match self.write_state(&work.log, LogState::Committed) {
            Ok(lsn) => {
                self.finish(work.log, &work.locks);
                // Only now: a snapshot opened after it is gone from the list sees the changes.
                self.prepared.forget(xid);
                self.harden(lsn, self.flush_policy())?;
                Ok(true)
            }
            Err(e) => {
                self.prepared.put_back(xid, work);
                Err(e)
            }
        }
    }

    /// Rolls back a prepared transaction that belongs to no session, as durable as a commit; `false` if there is none with
    /// this id.
    ///
    /// # Errors
    /// Those of the buffer pool and the log.
    pub fn rollback_by_xid(&self, xid: &[u8]) -> Result<bool> {
        let Some(work) = self.prepared.take(xid) else { return Ok(false) };
        // From here on it must not come back as prepared: half of it may be undone.
        let unprepared = match self.write_state(&work.log, LogState::Active) {
            Ok(lsn) => lsn,
            Err(e) => {
                self.prepared.put_back(xid, work);
                return Err(e);
            }
        };
        self.prepared.forget(xid);
        self.rollback_work(work)?;
        self.harden(unprepared, self.flush_policy())?;
        Ok(true)
    }

    /// Whether a prepared transaction without a session has changed the index.
    ///
    /// # Errors
    /// Those of reading undo pages.
    pub fn is_changed_by_prepared(&self, index: IndexId) -> Result<bool> {
        loop {
            let unknown = match self.prepared.has_changed(index) {
                Answer::Known(changed) => return Ok(changed),
                Answer::Unknown(span) => span,
            };
            // Nothing is locked: a large one takes its time, and others may be ended meanwhile, or it.
            self.prepared.note_changed(unknown, self.indexes_changed_in(unknown))?;
        }
    }

    /// The indexes that the records in all undo logs are about, finished ones included that purge may read again; `None` if a slot
    /// was set aside, of which that is not known. Where purge is through it reads a page for each slot.
    ///
    /// # Errors
    /// Those of reading undo pages.
    pub fn indexes_in_undo(&self) -> Result<Option<HashSet<IndexId>>> {
        if self.undo.has_set_aside() {
            return Ok(None);
        }
        let mut found = HashSet::new();
        // A damaged link must not lead round for ever.
        let mut pages = undo_pages_wanted(self.pool())?;
        for slot in self.undo.purge_slots() {
            // While it is held, purge frees no page of the slot.
            let position = slot.position.lock();
            let mut no = position.page;
            while no != PageNo::NONE {
                let id = undo_page(no);
                pages = pages.checked_sub(1).ok_or_else(|| Error::corrupt(id, "more undo pages than there are"))?;
                let page = self.pool().fix_shared(id)?;
                let (end, mut at) = (page::end(&page)?, page::BODY);
                while at < end {
                    let (_, body) = record::frame_at(&page, at, end)
                        .ok_or_else(|| Error::corrupt(id, format!("no undo record at {at}")))?;
                    found.extend(record::parse_change(body).and_then(|change| index_of(change.key)));
                    at += body.len() + record::FRAME_BYTES;
                }
                no = page::next(&page);
            }
        }
        Ok(Some(found))
    }

    /// The indexes that the records of a log are about. If the log goes meanwhile the answer is a wrong one, or an error.
    fn indexes_changed_in(&self, log: Span) -> Result<HashSet<IndexId>> {
        let mut found = HashSet::new();
        let (first, first_at) = (log.header.page(), usize::from(log.header.offset()));
        let mut no = log.last;
        let mut circle = Circle::default();
        loop {
            let id = undo_page(no);
            if circle.closes_at(no) {
                return Err(Error::corrupt(id, "a log's undo pages lead back to it"));
            }
            let page = self.pool().fix_shared(id)?;
            let mut end = page::end(&page)?;
            let begin = if no == first { first_at } else { page::BODY };
            while end > begin {
                let body =
                    record::start_of_last(&page, end).and_then(|at| Some((at, record::frame_at(&page, at, end)?.1)));
                let (at, body) = body.ok_or_else(|| Error::corrupt(id, format!("no undo record ends at {end}")))?;
                found.extend(record::parse_change(body).and_then(|change| index_of(change.key)));
                end = at;
            }
            if no == first {
                return Ok(found);
            }
            no = page::prev(&page);
        }
    }
}
