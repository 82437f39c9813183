//! When an index gets a root of its own: a split in a pack tree counts the leaves that the index has beside the one that
//! was split, which is a comparison in a page it has latched anyway; beyond the limit its thread promotes the index.

use crate::system::TrxSystem;
use myriad_base::{IndexId, Result, SpaceId};
use myriad_btree::Tree;
use myriad_buffer::Level;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Promotions of a transaction system.
pub(crate) struct Promotion {
    /// An index with so many leaves in a pack tree is promoted.
    leaves_min: u32,
    /// Held by the one who promotes; others go on without.
    one: Mutex<()>,
    done: AtomicU64,
}

impl Promotion {
    pub fn new(bytes_min: u64, page_size: usize) -> Promotion {
        let leaves_min = u32::try_from(bytes_min / page_size as u64).unwrap_or(u32::MAX).max(1);
        Promotion { leaves_min, one: Mutex::default(), done: AtomicU64::new(0) }
    }
}

impl TrxSystem {
    /// [`Tree::make_room`]; promotes the key's index if that shows it to be large.
    pub(crate) fn make_room(&self, tree: Tree, key: &[u8], value_len: usize) -> Result<()> {
        let leaves = tree.make_room(self.pool(), key, value_len)?;
        // A restart leaves in-memory tables nothing but an empty pack tree.
        if leaves >= self.promotion.leaves_min && tree.space != SpaceId::MEMORY {
            self.promote(tree, key)?;
        }
        Ok(())
    }

    #[cold]
    fn promote(&self, tree: Tree, key: &[u8]) -> Result<()> {
        let (Some(id), Some(_one)) = (key.first_chunk(), self.promotion.one.try_lock()) else { return Ok(()) };
        match tree.promote(self.pool(), IndexId(u32::from_be_bytes(*id))) {
            Ok(Some(_)) => drop(self.promotion.done.fetch_add(1, Ordering::Relaxed)),
            Ok(None) => {}
            Err(e) => {
                self.pool().check_poison()?;
                // The index stays where it is; the room was made. Another split will try again.
                self.report(Level::Warning, &format!("an index of {} is not promoted: {e}", tree.space));
            }
        }
        Ok(())
    }

    /// Indexes that were given a root of their own since start.
    pub fn promotions(&self) -> u64 {
        self.promotion.done.load(Ordering::Relaxed)
    }
}
