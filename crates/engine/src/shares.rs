//! The open tables, found by the table's id.

use crate::share::TableShare;
use myriad_base::Result;
use myriad_catalog::{Catalog, TableRef};
use myriad_txn::TrxSystem;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

const SHARDS: usize = 16;

/// Open tables: as many as somebody has open, none kept beyond that.
#[derive(Default)]
pub(crate) struct Shares {
    shards: [Mutex<HashMap<u32, Weak<TableShare>>>; SHARDS],
}

impl Shares {
    fn shard(&self, id: u32) -> &Mutex<HashMap<u32, Weak<TableShare>>> {
        &self.shards[id as usize % SHARDS]
    }

    /// The open table with this definition, opened if nobody has it open.
    pub(crate) fn get(&self, trx: &TrxSystem, catalog: &Catalog, def: &TableRef) -> Result<Arc<TableShare>> {
        let id = def.id.0;
        let fits = |share: &TableShare| share.is_current() && share.def.version == def.version;
        if let Some(share) = self.shard(id).lock().get(&id).and_then(Weak::upgrade) {
            if fits(&share) {
                return Ok(share);
            }
        }
        // Without the latch, because it reads pages. Who comes second takes what the first has put there: two counters
        // for one table must not be.
        let opened = Arc::new(TableShare::open(trx, Arc::clone(def), catalog.contents_since(def))?);
        let mut shard = self.shard(id).lock();
        if let Some(share) = shard.get(&id).and_then(Weak::upgrade) {
            if fits(&share) {
                return Ok(share);
            }
        }
        if shard.len() >= 64 && shard.len().is_power_of_two() {
            shard.retain(|_, share| share.strong_count() > 0);
        }
        shard.insert(id, Arc::downgrade(&opened));
        Ok(opened)
    }

    /// A table was dropped or redefined: who has it open must open it again.
    pub(crate) fn outdate(&self, id: u32) {
        if let Some(share) = self.shard(id).lock().remove(&id).and_then(|s| s.upgrade()) {
            share.set_outdated();
        }
    }

    /// As [`Shares::outdate`], for all tables of a database that are open.
    pub(crate) fn outdate_database(&self, db: &str) {
        for share in self.all() {
            if share.def.database() == db {
                self.outdate(share.def.id.0);
            }
        }
    }

    /// All open tables.
    pub(crate) fn all(&self) -> Vec<Arc<TableShare>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().values().filter_map(Weak::upgrade));
        }
        all
    }
}
