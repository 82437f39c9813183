//! Which version of an entry a reader sees.

use crate::system::TrxSystem;
use crate::trx::trim;
use crate::undo::page::undo_page;
use crate::undo::record::{self, Kind};
use crate::value::{self, Entry, OverflowRef};
use myriad_base::circle::Circle;
use myriad_base::{work, Csn, Error, PageId, Result, TrxId};
use myriad_btree::overflow;

/// What a reader wants to see. Its own changes it sees in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    /// What was committed when the snapshot was opened.
    Snapshot(Csn),
    /// The newest committed version.
    Committed,
    /// The newest version.
    Newest,
}

/// Two buffers for rebuilding older versions, kept to avoid allocation.
#[derive(Default)]
pub(crate) struct Versions {
    body: Vec<u8>,
    spare: Vec<u8>,
}

impl Versions {
    pub fn trim(&mut self) {
        trim(&mut self.body);
        trim(&mut self.spare);
    }
}

/// A version's body and how it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Version<'a> {
    flags: u8,
    body: &'a [u8],
}

impl Version<'_> {
    /// Appends the payload to `out`. The entry's leaf must still be latched: its overflow chain could go.
    #[inline]
    pub fn payload_into(&self, sys: &TrxSystem, leaf: PageId, out: &mut Vec<u8>) -> Result<()> {
        if self.flags & value::OVERFLOW == 0 {
            out.extend_from_slice(self.body);
            return Ok(());
        }
        self.overflow_into(sys, leaf, usize::MAX, out)
    }

    #[cold]
    fn overflow_into(&self, sys: &TrxSystem, leaf: PageId, enough: usize, out: &mut Vec<u8>) -> Result<()> {
        let o = OverflowRef::get(self.body)
            .ok_or_else(|| Error::corrupt(leaf, "a version's reference to overflow pages is malformed"))?;
        let head = value::head(self.body);
        out.extend_from_slice(head);
        let enough = if head.is_empty() { usize::MAX } else { enough };
        overflow::read_overflow(sys.pool(), leaf, o.first, o.chain_len(), enough, out)
    }

    /// As [`Version::payload_into`]; of a payload with a head no more than that and the pages of the next `tail_bytes`.
    #[inline]
    pub fn read_into(&self, sys: &TrxSystem, leaf: PageId, tail_bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.flags & value::OVERFLOW == 0 {
            out.extend_from_slice(self.body);
            return Ok(());
        }
        self.overflow_into(sys, leaf, tail_bytes, out)
    }
}

impl TrxSystem {
    /// Whether `view` of transaction `own` includes a version written by `writer`.
    #[inline]
    pub(crate) fn sees(&self, view: View, own: TrxId, writer: TrxId) -> bool {
        if writer < self.commits().low_limit() || writer == own {
            return true;
        }
        match view {
            View::Snapshot(csn) => self.commits().csn(writer).is_some_and(|c| c < csn),
            View::Committed => self.commits().csn(writer).is_some(),
            View::Newest => true,
        }
    }

    /// The version of `entry` (on the latched leaf `page`) that `view` shows; `None` if there is none or it is deleted.
    #[inline]
    pub(crate) fn version<'a>(
        &self,
        entry: Entry<'a>,
        page: PageId,
        view: View,
        own: TrxId,
        scratch: &'a mut Versions,
    ) -> Result<Option<Version<'a>>> {
        if self.sees(view, own, entry.trx) {
            return Ok((!entry.is_deleted()).then_some(Version { flags: entry.flags, body: entry.body }));
        }
        self.older_version(entry, page, view, own, scratch)
    }

    /// Length of the clustered key at the end of a secondary entry's key, as the entry's writer noted it; 0 = not known. For
    /// an entry (on the latched leaf `page`) that the open snapshot does not see.
    pub(crate) fn row_key_len(&self, entry: &Entry<'_>, page: PageId) -> Result<usize> {
        if entry.is_short() {
            return Ok(usize::from(entry.row_key_len));
        }
        let roll = entry.roll;
        let p = self.pool().fix_shared(undo_page(roll.page()))?;
        let record = record::frame_at(&p, usize::from(roll.offset()), p.len());
        let change = record.and_then(|(_, body)| record::parse_change(body));
        let lost = || Error::corrupt(page, format!("an entry's undo record is not at {}:{}", p.id(), roll.offset()));
        change.map(|c| c.row_key_len).ok_or_else(lost)
    }

    /// The leaf's latch keeps rollback from cutting off the undo records read here, and the open snapshot keeps purge.
    fn older_version<'a>(
        &self,
        entry: Entry<'a>,
        page: PageId,
        view: View,
        own: TrxId,
        scratch: &'a mut Versions,
    ) -> Result<Option<Version<'a>>> {
        if entry.trx >= self.next_trx_id() {
            return Err(Error::corrupt(
                page,
                format!("an entry of transaction {}, which there was not yet", entry.trx),
            ));
        }
        if entry.is_short() {
            return Ok(entry.is_deleted().then_some(Version { flags: entry.flags, body: entry.body }));
        }
        let mut roll = entry.roll;
        let mut newest = true;
        let mut circle = Circle::default();
        loop {
            work::count(|w| &w.undo_records_read, 1);
            let p = self.pool().fix_shared(undo_page(roll.page()))?;
            let lost =
                || Error::corrupt(page, format!("an entry's older version is not at {}:{}", p.id(), roll.offset()));
            if circle.closes_at(roll) {
                return Err(Error::corrupt(
                    page,
                    format!("an entry's older versions lead back to {}:{}", p.id(), roll.offset()),
                ));
            }
            let (_, body) = record::frame_at(&p, usize::from(roll.offset()), p.len()).ok_or_else(lost)?;
            let change = record::parse_change(body).ok_or_else(lost)?;
            if change.kind == Kind::Insert {
                return Ok(None);
            }
            let old = change.old.ok_or_else(lost)?;
            let whole = if newest {
                old.body_into(entry.body, &mut scratch.spare)
            } else {
                old.body_into(&scratch.body, &mut scratch.spare)
            };
            if !whole {
                return Err(lost());
            }
            newest = false;
            let (flags, trx) = (old.flags, old.trx);
            roll = old.roll;
            drop(p);
            std::mem::swap(&mut scratch.body, &mut scratch.spare);
            let (seen, deleted) = (self.sees(view, own, trx), flags & value::DELETED != 0);
            if seen && trx == entry.trx {
                // Committed since the entry was looked at: what its writer has replaced itself never was.
                return Ok((!entry.is_deleted()).then_some(Version { flags: entry.flags, body: entry.body }));
            }
            if seen || flags & value::SHORT != 0 {
                return Ok((seen != deleted).then_some(Version { flags, body: &scratch.body }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{key, Rig};
    use crate::write::set_full_key;
    use crate::Durability;
    use myriad_btree::Leaf;

    #[test]
    fn a_writer_that_commits_meanwhile_shows_what_it_has_left() {
        let rig = Rig::small();
        let mut t = rig.trx();
        rig.insert(&mut t, &key(1), b"committed").unwrap();
        t.commit(Durability::Configured).unwrap();
        for left in [Some(&b"committed"[..]), None] {
            rig.update(&mut t, &key(1), b"never").unwrap();
            match left {
                Some(payload) => rig.update(&mut t, &key(1), payload).unwrap(),
                None => rig.delete(&mut t, &key(1)).unwrap(),
            }
            let mut full = Vec::new();
            set_full_key(&mut full, &rig.rows, &key(1));
            let leaf = rig.rows.seek(&rig.sys, &full).unwrap();
            let entry = Entry::parse(leaf.value(leaf.find(&full).unwrap()), leaf.page_id()).unwrap();
            assert!(!rig.sys.sees(View::Committed, TrxId(0), entry.trx));
            t.commit(Durability::Configured).unwrap();
            let mut versions = Versions::default();
            let shown = rig.sys.older_version(entry, leaf.page_id(), View::Committed, TrxId(0), &mut versions).unwrap();
            assert_eq!(shown.map(|version| version.body), left);
        }
    }
}
