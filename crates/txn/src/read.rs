//! Which version of an entry a reader sees.

use crate::system::TrxSystem;
use crate::trx::trim;
use crate::undo::page::undo_page;
use crate::undo::record::{self, Kind};
use crate::value::{self, Entry, OverflowRef};
use myriad_base::circle::Circle;
use myriad_base::{work, Csn, Error, PageId, Result, RollPtr, TrxId};
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

/// Undo records read under one latch of a leaf, about: where the chain goes on behind the version of a transaction that has
/// ended, it is read without.
const RECORDS_LATCHED: usize = 32;
/// Undo records read between looks whether the reader has been killed.
const RECORDS_BETWEEN_LOOKS: usize = 1024;

/// Two buffers for rebuilding older versions, kept to avoid allocation, and where their chain goes on.
#[derive(Default)]
pub(crate) struct Versions {
    body: Vec<u8>,
    spare: Vec<u8>,
    roll: RollPtr,
    circle: Circle<RollPtr>,
    /// Undo records read since [`Versions::leaf_latched`].
    records: usize,
}

impl Versions {
    pub fn trim(&mut self) {
        trim(&mut self.body);
        trim(&mut self.spare);
    }

    /// A leaf has been latched whose entries' versions are wanted.
    pub fn leaf_latched(&mut self) {
        self.records = 0;
    }
}

/// What a look for the version that a snapshot sees has come to while the entry's leaf was latched.
pub(crate) enum Found<'a> {
    /// The version; `None` if there is none or it is deleted.
    Version(Option<Version<'a>>),
    /// It is far back: give up the latch and go on with [`TrxSystem::far_version`].
    Far,
}

/// A version's body and how it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Version<'a> {
    flags: u8,
    body: &'a [u8],
}

impl<'a> Version<'a> {
    /// The payload, if it is all in the entry.
    #[inline]
    pub fn whole(&self) -> Option<&'a [u8]> {
        (self.flags & value::OVERFLOW == 0).then_some(self.body)
    }

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

    /// As [`Version::payload_into`]; of a payload that is all in the entry no more than its first `value_bytes`, of one with a
    /// head no more than that and the pages of the next `tail_bytes`.
    #[inline]
    pub fn read_into(
        &self,
        sys: &TrxSystem,
        leaf: PageId,
        (value_bytes, tail_bytes): (usize, usize),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if self.flags & value::OVERFLOW == 0 {
            out.extend_from_slice(&self.body[..self.body.len().min(value_bytes)]);
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

    /// Whether the newest version, which is `writer`'s and locked, is that of the transaction's [`Trx::binding_snapshot`], or its
    /// own.
    #[inline]
    pub(crate) fn check_unchanged(&self, binding: Option<Csn>, own: TrxId, writer: TrxId) -> Result<()> {
        match binding {
            Some(csn) if !self.sees(View::Snapshot(csn), own, writer) => Err(Error::RecordChanged),
            _ => Ok(()),
        }
    }

    /// The version of `entry` (on the latched leaf `page`) that `view`, which is no snapshot, shows; `None` if there is none or it
    /// is deleted.
    #[inline]
    pub(crate) fn version<'a>(
        &self,
        entry: Entry<'a>,
        page: PageId,
        view: View,
        own: TrxId,
        scratch: &'a mut Versions,
    ) -> Result<Option<Version<'a>>> {
        match self.find_version(entry, page, view, own, scratch)? {
            Found::Version(version) => Ok(version),
            Found::Far => unreachable!("the newest version of a transaction that has ended is seen"),
        }
    }

    /// As [`TrxSystem::version`], of snapshots, too.
    #[inline]
    pub(crate) fn find_version<'a>(
        &self,
        entry: Entry<'a>,
        page: PageId,
        view: View,
        own: TrxId,
        scratch: &'a mut Versions,
    ) -> Result<Found<'a>> {
        if self.sees(view, own, entry.trx) {
            return Ok(Found::Version(shown(true, entry.flags, entry.body)));
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
    ) -> Result<Found<'a>> {
        if entry.trx >= self.next_trx_id() {
            return Err(Error::corrupt(
                page,
                format!("an entry of transaction {}, which there was not yet", entry.trx),
            ));
        }
        if entry.is_short() {
            return Ok(Found::Version(shown(false, entry.flags, entry.body)));
        }
        (scratch.roll, scratch.circle) = (entry.roll, Circle::default());
        let mut newest = Some(entry.body);
        loop {
            let Some((flags, trx)) = self.version_before(newest.take(), page, scratch)? else {
                return Ok(Found::Version(None));
            };
            let seen = self.sees(view, own, trx);
            if seen && trx == entry.trx {
                // Committed since the entry was looked at: what its writer has replaced itself never was.
                return Ok(Found::Version(shown(true, entry.flags, entry.body)));
            }
            if seen || flags & value::SHORT != 0 {
                return Ok(Found::Version(shown(seen, flags, &scratch.body)));
            }
            let far = scratch.records >= RECORDS_LATCHED && matches!(view, View::Snapshot(_));
            if far && self.commits().csn(trx).is_some() {
                return Ok(Found::Far);
            }
        }
    }

    /// Goes on where [`TrxSystem::find_version`] has found that the version is far, for the same view and with no leaf latched.
    /// Nobody rolls back what is left of the chain, as its writers have ended, nor the overflow pages that it names.
    pub(crate) fn far_version<'a>(
        &self,
        page: PageId,
        view: View,
        own: TrxId,
        scratch: &'a mut Versions,
        is_killed: impl Fn() -> bool,
    ) -> Result<Option<Version<'a>>> {
        loop {
            let Some((flags, trx)) = self.version_before(None, page, scratch)? else { return Ok(None) };
            let seen = self.sees(view, own, trx);
            if seen || flags & value::SHORT != 0 {
                return Ok(shown(seen, flags, &scratch.body));
            }
            if scratch.records.is_multiple_of(RECORDS_BETWEEN_LOOKS) && is_killed() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Makes the version before that in `scratch`, or before the entry's with this body, and moves on along the chain. Its
    /// flags and its writer; `None` if there is none.
    fn version_before(
        &self,
        newest: Option<&[u8]>,
        page: PageId,
        scratch: &mut Versions,
    ) -> Result<Option<(u8, TrxId)>> {
        work::count(|w| &w.undo_records_read, 1);
        scratch.records += 1;
        let roll = scratch.roll;
        let p = self.pool().fix_shared(undo_page(roll.page()))?;
        let at = || format!("{}:{}", p.id(), roll.offset());
        let lost = || Error::corrupt(page, format!("an entry's older version is not at {}", at()));
        if scratch.circle.closes_at(roll) {
            return Err(Error::corrupt(page, format!("an entry's older versions lead back to {}", at())));
        }
        let (_, body) = record::frame_at(&p, usize::from(roll.offset()), p.len()).ok_or_else(lost)?;
        let change = record::parse_change(body).ok_or_else(lost)?;
        if change.kind == Kind::Insert {
            return Ok(None);
        }
        let old = change.old.ok_or_else(lost)?;
        if !old.body_into(newest.unwrap_or(&scratch.body), &mut scratch.spare) {
            return Err(lost());
        }
        scratch.roll = old.roll;
        let version = (old.flags, old.trx);
        drop(p);
        std::mem::swap(&mut scratch.body, &mut scratch.spare);
        Ok(Some(version))
    }
}

/// The version behind which a look ends: the first that the view sees, or one that says whether there was a row before.
#[inline]
fn shown(seen: bool, flags: u8, body: &[u8]) -> Option<Version<'_>> {
    let deleted = flags & value::DELETED != 0;
    (seen != deleted).then_some(Version { flags, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{key, Rig};
    use crate::write::set_full_key;
    use crate::{Durability, LockWait, RowBuf};
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
            let found = rig.sys.older_version(entry, leaf.page_id(), View::Committed, TrxId(0), &mut versions).unwrap();
            let Found::Version(shown) = found else { panic!("the entry itself is seen") };
            assert_eq!(shown.map(|version| version.body), left);
        }
    }

    /// What a snapshot sees of rows that are changed so many times behind it, and of their neighbours.
    fn change_behind_a_snapshot(rig: &Rig, times: usize) {
        let payload = |i: u64, n: usize| [vec![n as u8; 40], vec![i as u8; if i == 3 { 9_000 } else { 100 }]].concat();
        let mut t = rig.trx();
        let rows: Vec<_> = (0..8).map(|i| (key(i), payload(i, 0))).collect();
        for (k, v) in &rows {
            rig.insert(&mut t, k, v).unwrap();
        }
        t.commit(Durability::Configured).unwrap();
        let mut old = rig.trx();
        assert_eq!(rig.scan(&mut old, &rig.rows, true), rows);
        for n in 1..=times {
            for i in [1, 3, 4, 7] {
                rig.update(&mut t, &key(i), &payload(i, n)).unwrap();
            }
            if n <= 2 {
                rig.update(&mut t, &key(5), &payload(5, n)).unwrap();
            }
            if n == times {
                rig.delete(&mut t, &key(4)).unwrap();
                rig.insert(&mut t, &key(9), b"new").unwrap();
            }
            t.commit(Durability::Configured).unwrap();
            rig.purge_all();
        }
        rig.update(&mut t, &key(9), b"newer").unwrap();
        t.commit(Durability::Configured).unwrap();
        for forward in [true, false] {
            assert_eq!(rig.scan(&mut old, &rig.rows, forward), rows);
        }
        for (k, v) in &rows {
            assert_eq!(rig.get(&mut old, k).as_ref(), Some(v));
        }
        assert_eq!(rig.get(&mut old, &key(9)), None);
        assert_eq!(old.count(&rig.rows).unwrap(), rows.len() as u64);
        assert_eq!(rig.count_in_check(&mut old, &rig.rows), rows.len() as u64);
    }

    #[test]
    fn versions_far_back_are_read_in_scans_and_one_by_one() {
        for times in [3, RECORDS_LATCHED - 1, RECORDS_LATCHED, RECORDS_LATCHED + 1, 3 * RECORDS_LATCHED] {
            change_behind_a_snapshot(&Rig::new(1, 2000, false), times);
        }
    }

    /// While a version is far, writers have the leaf: they change the row, roll back, and the version stays what it was.
    #[test]
    fn a_version_far_back_is_read_without_the_leaf() {
        let rig = Rig::small();
        let (mut t, mut old) = (rig.trx(), rig.trx());
        rig.insert(&mut t, &key(1), b"first").unwrap();
        t.commit(Durability::Configured).unwrap();
        assert_eq!(rig.get(&mut old, &key(1)).unwrap(), b"first");
        for n in 0..100u8 {
            rig.update(&mut t, &key(1), &[n; 50]).unwrap();
            t.commit(Durability::Configured).unwrap();
        }
        // Of a transaction that may still be rolled back all records are read with the leaf.
        for n in 0..100u8 {
            rig.update(&mut t, &key(1), &[n; 60]).unwrap();
        }
        let mut full = Vec::new();
        set_full_key(&mut full, &rig.rows, &key(1));
        let view = old.view();
        let leaf = rig.rows.seek(&rig.sys, &full).unwrap();
        let page = leaf.page_id();
        let entry = Entry::parse(leaf.value(leaf.find(&full).unwrap()), page).unwrap();
        let mut versions = Versions::default();
        assert!(matches!(rig.sys.find_version(entry, page, view, old.id(), &mut versions), Ok(Found::Far)));
        assert_eq!(versions.records, 100);
        drop(leaf);
        t.rollback().unwrap();
        rig.update(&mut t, &key(1), b"others").unwrap();
        t.commit(Durability::Configured).unwrap();
        rig.purge_all();
        let seen = rig.sys.far_version(page, view, old.id(), &mut versions, || false).unwrap();
        assert_eq!(seen.map(|version| version.body), Some(&b"first"[..]));
    }

    #[test]
    fn a_killed_reader_does_not_read_all_versions() {
        let rig = Rig::small();
        let (mut t, mut old) = (rig.trx(), rig.trx());
        rig.insert(&mut t, &key(1), b"first").unwrap();
        t.commit(Durability::Configured).unwrap();
        assert_eq!(rig.get(&mut old, &key(1)).unwrap(), b"first");
        for n in 0..=RECORDS_BETWEEN_LOOKS {
            rig.update(&mut t, &key(1), &n.to_be_bytes()).unwrap();
            t.commit(Durability::Configured).unwrap();
        }
        old.handle().kill();
        let got = old.get(&rig.rows, &key(1), false, None, LockWait::Wait, &mut RowBuf::new());
        assert_eq!(got, Err(Error::Interrupted));
        old.reset_kill();
        assert_eq!(rig.get(&mut old, &key(1)).unwrap(), b"first");
    }
}
