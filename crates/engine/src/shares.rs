//! The open tables, found by the table's id, and what they and their indexes are called, found by an index's.

use crate::share::{IndexNames, TableShare};
use crate::stats::CachedStats;
use myriad_base::waits::{self, WaitFor};
use myriad_base::{Error, IndexId, Result};
use myriad_catalog::TableRef;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

const SHARDS: usize = 16;
/// Closed tables of a shard that are remembered, if no more are open.
const CLOSED_MIN: usize = 256;

enum Entry {
    /// Somebody opens it and has read some of its counters, perhaps: who wants it waits.
    Opening,
    /// Open, or closed: then its statistics wait for who opens the same definition again, and the names of its indexes for
    /// reports about locks that are left.
    Opened { share: Weak<TableShare>, def: TableRef, stats: Arc<CachedStats>, names: Arc<IndexNames> },
    /// Redefined since it was open: what is still true of its statistics.
    Redefined(CachedStats),
}

impl Entry {
    fn share(&self) -> Option<Arc<TableShare>> {
        match self {
            Entry::Opened { share, .. } => share.upgrade(),
            Entry::Opening | Entry::Redefined(_) => None,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Entry::Opening => false,
            Entry::Opened { share, .. } => share.strong_count() == 0,
            Entry::Redefined(_) => true,
        }
    }
}

/// A table that is open, or was until lately, the names of its indexes, and the number of one of them.
pub(crate) type KnownIndex = (TableRef, Arc<IndexNames>, usize);

#[derive(Default)]
struct Tables {
    by_id: HashMap<u32, Entry>,
    /// The table's id, of each index of those that are or were open.
    by_index: HashMap<IndexId, u32>,
    /// Those that were open when they were counted last, and how many have been opened since.
    open: usize,
    openings: usize,
}

impl Tables {
    /// Gives the table's entry of before.
    fn put(&mut self, id: u32, entry: Entry) -> Option<Entry> {
        let before = self.take(id);
        if let Entry::Opened { def, .. } = &entry {
            self.by_index.extend(def.indexes.iter().map(|index| (index.id, id)));
        }
        self.by_id.insert(id, entry);
        before
    }

    fn take(&mut self, id: u32) -> Option<Entry> {
        let entry = self.by_id.remove(&id)?;
        if let Entry::Opened { def, .. } = &entry {
            def.indexes.iter().for_each(|index| _ = self.by_index.remove(&index.id));
        }
        Some(entry)
    }

    /// Whether the closed ones are more than may be remembered, by the last count of those that are open.
    fn has_many_closed(&self) -> bool {
        self.by_id.len() > self.open + self.open.max(CLOSED_MIN)
    }

    /// Before another one is opened. Counts also after as many openings as there are entries: many that were open together
    /// may have been closed since, and opening them again makes no more of them.
    fn limit_closed(&mut self) {
        self.openings += 1;
        if !self.has_many_closed() && self.openings <= self.by_id.len().max(CLOSED_MIN) {
            return;
        }
        self.openings = 0;
        self.open = self.by_id.values().filter(|entry| !entry.is_closed()).count();
        if self.has_many_closed() {
            self.by_id.retain(|_, entry| !entry.is_closed());
            self.by_id.shrink_to_fit();
            self.by_index.retain(|_, table| self.by_id.contains_key(table));
            self.by_index.shrink_to_fit();
        }
    }

    fn stats_of(&self, index: IndexId) -> Option<Arc<CachedStats>> {
        let Entry::Opened { stats, .. } = self.by_id.get(self.by_index.get(&index)?)? else { return None };
        Some(Arc::clone(stats))
    }

    fn of_index(&self, index: IndexId) -> Option<KnownIndex> {
        let Entry::Opened { def, names, .. } = self.by_id.get(self.by_index.get(&index)?)? else { return None };
        let no = def.indexes.iter().position(|its| its.id == index)?;
        Some((Arc::clone(def), Arc::clone(names), no))
    }

    /// Takes a table's entry out, unless it is just being opened; who has it open must open it again. Gives what is true of its
    /// statistics with another definition, too.
    fn take_outdated(&mut self, id: u32) -> Option<CachedStats> {
        match self.take(id)? {
            Entry::Opening => {
                self.put(id, Entry::Opening);
                None
            }
            Entry::Opened { share, stats, .. } => {
                if let Some(share) = share.upgrade() {
                    share.set_outdated();
                }
                Some(stats.for_new_definition())
            }
            Entry::Redefined(left) => Some(left),
        }
    }
}

#[derive(Default)]
struct Shard {
    tables: Mutex<Tables>,
    opened: Condvar,
}

/// Open tables: as many as somebody has open, none kept beyond that, but for statistics and names.
#[derive(Default)]
pub(crate) struct Shares {
    shards: [Shard; SHARDS],
    /// Tables in memory whose AUTO_INCREMENT counter found no room there: it lasts as long as they are open.
    uncounted: Mutex<Vec<Arc<TableShare>>>,
    /// When the tables of these indexes, which were not open lately, were updated: for who opens them next.
    updated: Mutex<HashMap<IndexId, u64>>,
}

/// A table being opened. Its entry goes if that fails.
struct Opening<'a> {
    shard: &'a Shard,
    id: u32,
}

impl Opening<'_> {
    fn done(&self, share: &Arc<TableShare>) {
        let mut tables = self.shard.tables.lock();
        tables.limit_closed();
        let (def, stats, names) = (Arc::clone(&share.def), Arc::clone(&share.stats), Arc::clone(&share.index_names));
        tables.put(self.id, Entry::Opened { share: Arc::downgrade(share), def, stats, names });
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut tables = self.shard.tables.lock();
        if matches!(tables.by_id.get(&self.id), Some(Entry::Opening)) {
            tables.take(self.id);
        }
        self.shard.opened.notify_all();
    }
}

impl Shares {
    fn shard(&self, id: u32) -> &Shard {
        &self.shards[id as usize % SHARDS]
    }

    /// The tables of these indexes have been updated at this time, in seconds since 1970.
    pub(crate) fn stamp(&self, indexes: impl IntoIterator<Item = IndexId>, now_s: u64) {
        for index in indexes {
            // First, for who opens it meanwhile.
            self.updated.lock().insert(index, now_s);
            let known = self.shards.iter().find_map(|shard| shard.tables.lock().stats_of(index));
            if let Some(stats) = known {
                stats.set_update_time(now_s);
                self.updated.lock().remove(&index);
            }
        }
    }

    fn stamp_opened(&self, share: &TableShare) {
        let mut updated = self.updated.lock();
        if !updated.is_empty() {
            let times = share.def.indexes.iter().filter_map(|index| updated.remove(&index.id));
            times.max().into_iter().for_each(|now_s| share.stats.set_update_time(now_s));
        }
    }

    /// Keeps a table open until its counter has been stored or its definition changes.
    pub(crate) fn keep_uncounted(&self, share: &Arc<TableShare>) {
        let mut kept = self.uncounted.lock();
        kept.retain(|other| other.is_current() && !other.is_counter_stored() && !Arc::ptr_eq(other, share));
        kept.push(Arc::clone(share));
    }

    /// The open table with this definition, opened if nobody has it open, with the statistics that it had. By one at a time: what a second one had read of its
    /// counters could be old when it is put there, because the first has used and closed the table meanwhile.
    ///
    /// # Errors
    /// Those of `open`; [`Error::DefinitionChanged`] if a newer definition is open.
    pub(crate) fn get(
        &self,
        def: &TableRef,
        open: impl FnOnce(Arc<CachedStats>) -> Result<TableShare>,
    ) -> Result<Arc<TableShare>> {
        let id = def.id.0;
        let shard = self.shard(id);
        let mut tables = shard.tables.lock();
        while let Some(entry) = tables.by_id.get(&id) {
            match entry.share().filter(|share| share.is_current()) {
                Some(share) if share.def.version == def.version => return Ok(share),
                Some(share) if share.def.version > def.version => {
                    return Err(Error::DefinitionChanged { name: def.name.clone() });
                }
                // The change has been committed, word of it is on its way.
                Some(older) => {
                    older.set_outdated();
                    break;
                }
                None if matches!(entry, Entry::Opening) => {
                    let _waiting = waits::begin(WaitFor::TableOpen);
                    shard.opened.wait(&mut tables);
                }
                None => break,
            }
        }
        let stats = match tables.put(id, Entry::Opening) {
            Some(Entry::Opened { def: known, stats, .. }) if known.version == def.version => stats,
            Some(Entry::Opened { stats, .. }) => Arc::new(stats.for_new_definition()),
            Some(Entry::Redefined(stats)) => Arc::new(stats),
            _ => Arc::default(),
        };
        drop(tables);
        let opening = Opening { shard, id };
        // Without the latch, because it reads pages.
        let share = Arc::new(open(stats)?);
        opening.done(&share);
        self.stamp_opened(&share);
        Ok(share)
    }

    /// A table was redefined: who has it open must open it again. Who is opening it just now finds out by itself
    /// ([`crate::Engine::open_table`]).
    pub(crate) fn outdate(&self, id: u32) {
        let mut tables = self.shard(id).tables.lock();
        if let Some(left) = tables.take_outdated(id) {
            tables.put(id, Entry::Redefined(left));
        }
    }

    /// As [`Shares::outdate`], of a table that is no more.
    pub(crate) fn forget(&self, id: u32) {
        let _ = self.shard(id).tables.lock().take_outdated(id);
    }

    /// The table, open or until lately, that the index is of.
    pub(crate) fn of_index(&self, index: IndexId) -> Option<KnownIndex> {
        self.shards.iter().find_map(|shard| shard.tables.lock().of_index(index))
    }

    /// All open tables.
    pub(crate) fn all(&self) -> Vec<Arc<TableShare>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.tables.lock().by_id.values().filter_map(Entry::share));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, EngineConfig, IndexSpec, TableSpec};
    use myriad_io::{Io, SimIo};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    fn engine() -> Arc<Engine> {
        let io = SimIo::new(1);
        io.create_dir(Path::new("/data")).unwrap();
        let sizes =
            EngineConfig { buffer_pool_bytes: 4 << 20, log_capacity_bytes: 4 << 20, ..EngineConfig::new("/data") };
        let config = EngineConfig { log_buffer_bytes: 1 << 20, background_threads: false, ..sizes };
        let engine = Engine::open_with(config, Some(Arc::new(io))).unwrap();
        engine.create_table("d/t", &TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() }).unwrap();
        engine
    }

    #[test]
    fn who_comes_second_waits_for_the_first() {
        let engine = engine();
        let def = engine.catalog().table("d/t").unwrap();
        let shares = Shares::default();
        let opened = AtomicU32::new(0);
        let open = |stats| {
            opened.fetch_add(1, Ordering::Relaxed);
            // Its counters are read, and the others come.
            std::thread::sleep(Duration::from_millis(50));
            TableShare::open(engine.trx_system(), Arc::clone(&def), engine.catalog().contents_since(&def), stats)
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| shares.get(&def, open).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        assert!(all.iter().all(|share| Arc::ptr_eq(share, &all[0])));
        // After a failure, and after the last one has closed it, the next one opens it.
        drop(all);
        assert!(shares.get(&def, |_| Err(Error::Interrupted)).is_err());
        assert!(shares.get(&def, open).is_ok());
    }

    #[test]
    fn closed_tables_are_remembered_up_to_a_limit() {
        let engine = engine();
        let def = engine.catalog().table("d/t").unwrap();
        let shares = Shares::default();
        let open = |id: u32| {
            let def = Arc::new(myriad_catalog::TableDef { id: myriad_base::TableId(id), ..(*def).clone() });
            let open = |stats| TableShare::open(engine.trx_system(), Arc::clone(&def), Box::default(), stats);
            shares.get(&def, open).unwrap()
        };
        let entries = || shares.shards.iter().map(|shard| shard.tables.lock().by_id.len()).sum::<usize>();
        let first = open(1);
        let stats = Arc::downgrade(&first.stats);
        let kept: Vec<_> = (2..2_000).map(open).collect();
        drop(first);
        assert!(Arc::ptr_eq(&open(1).stats, &stats.upgrade().unwrap()));
        for id in 10_000..40_000 {
            open(id);
            assert!(entries() <= kept.len() + SHARDS * (2 * CLOSED_MIN + 1));
        }
        assert!(stats.upgrade().is_none());
        drop(kept);
        (50_000..60_000).for_each(|id| drop(open(id)));
        assert!(entries() <= SHARDS * (CLOSED_MIN + 1), "{} entries", entries());
        // As after FLUSH TABLES: all that were open are closed, and the same ones are opened again.
        drop((100_000..120_000).map(open).collect::<Vec<_>>());
        assert!(entries() >= 20_000);
        (0..2).for_each(|_| (100_000..120_000).for_each(|id| drop(open(id))));
        assert!(entries() <= SHARDS * (CLOSED_MIN + 1), "{} entries", entries());
    }

    #[test]
    fn nothing_is_remembered_of_a_dropped_database() {
        let engine = engine();
        let spec = TableSpec { indexes: &[IndexSpec::UNIQUE], ..Default::default() };
        engine.create_table("d/open", &spec).unwrap();
        engine.create_table("e/t", &spec).unwrap();
        drop(engine.open_table("d/t").unwrap());
        let open = ["d/open", "e/t"].map(|name| engine.open_table(name).unwrap());
        assert_eq!(engine.drop_database("d").unwrap(), 2);
        assert_eq!(open.each_ref().map(|table| table.is_current()), [false, true]);
        let known =
            open.map(|table| engine.shares().of_index(table.share.def.indexes[0].id).map(|(def, ..)| def.name.clone()));
        assert_eq!(known, [None, Some("e/t".into())]);
    }

    /// As at ALTERs of a table that stays in use.
    #[test]
    fn indexes_of_the_last_definition_are_known() {
        let engine = engine();
        let def = engine.catalog().table("d/t").unwrap();
        let shares = Shares::default();
        let open = |version: u32| {
            let mut def = myriad_catalog::TableDef { version, ..(*def).clone() };
            let added = myriad_catalog::IndexDef { id: IndexId(1_000 + version), ..def.indexes[0] };
            def.indexes.push(added);
            let def = Arc::new(def);
            let open = |stats| TableShare::open(engine.trx_system(), Arc::clone(&def), Box::default(), stats);
            shares.get(&def, open).unwrap()
        };
        let known = |index| shares.of_index(index).map(|(def, _, no)| (def.version, no));
        let kept: Vec<_> = (def.version + 1..def.version + 100).map(open).collect();
        let last = def.version + 99;
        assert_eq!(known(def.indexes[0].id), Some((last, 0)));
        assert_eq!(known(IndexId(1_000 + last)), Some((last, 1)));
        assert_eq!(known(IndexId(1_000 + last - 1)), None);
        let indexes = || shares.shards.iter().map(|shard| shard.tables.lock().by_index.len()).sum::<usize>();
        assert_eq!(indexes(), 2);
        shares.outdate(def.id.0);
        assert_eq!((known(def.indexes[0].id), indexes()), (None, 0));
        drop(kept);
    }

    #[test]
    fn a_definition_that_was_replaced_is_not_opened_again() {
        let engine = engine();
        let def = engine.catalog().table("d/t").unwrap();
        let newer: TableRef = Arc::new(myriad_catalog::TableDef { version: def.version + 1, ..(*def).clone() });
        let shares = Shares::default();
        let open = |def: &TableRef| {
            shares.get(def, |stats| {
                TableShare::open(engine.trx_system(), Arc::clone(def), engine.catalog().contents_since(def), stats)
            })
        };
        let old = open(&def).unwrap();
        let new = open(&newer).unwrap();
        assert_eq!((old.is_current(), new.is_current()), (false, true));
        assert!(matches!(open(&def), Err(Error::DefinitionChanged { .. })));
        shares.outdate(def.id.0);
        assert!(!new.is_current());
    }
}
