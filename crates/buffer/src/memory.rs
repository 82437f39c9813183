//! Pages of in-memory tables: tablespace [`SpaceId::MEMORY`](myriad_base::SpaceId::MEMORY). They live in frames alone: never
//! logged, never dirty, never evicted, and a page that is freed gives its frame back. So the frames they hold are bounded.

use crate::pool::BufferPool;
use myriad_base::latch::LatchClass;
use myriad_base::page::OFF_KIND;
use myriad_base::{Error, PageId, Result};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What may take pages beyond the limit, and until which part of the pool's frames, in sixteenths: the rest is for pages of
/// files, without which nobody gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beyond {
    /// A deletion, which makes room in the end.
    Deletion = 13,
    /// A rollback, which must not fail for what others, deletions among them, have taken.
    Rollback = 14,
}

thread_local! {
    static BEYOND_LIMIT: Cell<Option<Beyond>> = const { Cell::new(None) };
}

/// While it lives, its thread may take pages for in-memory tables beyond the limit: for what must not fail because the
/// memory is used up, such as rollback and deletions, which are what makes room.
#[must_use]
pub struct BeyondLimit {
    before: Option<Beyond>,
}

impl BeyondLimit {
    /// From now on.
    pub fn new(what: Beyond) -> BeyondLimit {
        let before = BEYOND_LIMIT.get();
        BEYOND_LIMIT.set(before.max(Some(what)));
        BeyondLimit { before }
    }
}

impl Drop for BeyondLimit {
    fn drop(&mut self) {
        BEYOND_LIMIT.set(self.before);
    }
}

/// The memory of in-memory tables.
#[derive(Default)]
pub(crate) struct MemoryPages {
    /// Frames that hold such pages.
    held: AtomicUsize,
    /// In bytes, as it was set; 0 = a quarter of the pool.
    limit_bytes: AtomicU64,
}

impl MemoryPages {
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A frame was given to the page, if it is of an in-memory table.
    #[inline]
    pub fn entered(&self, id: PageId) {
        if id.is_in_memory() {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Such a page has left its frame.
    #[inline]
    pub fn left(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BufferPool {
    /// Sets the memory that in-memory tables may hold, in bytes; 0 = a quarter of the pool. What is beyond three quarters
    /// of the pool does not count: other pages need frames, too. Less than they hold now keeps them from growing.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.memory.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The memory that in-memory tables may hold, in pages.
    pub(crate) fn memory_pages_max(&self) -> usize {
        self.memory_pages_set().min(self.limit() as usize / 4 * 3)
    }

    /// The same without regard to what buffered changes have taken from the pool.
    pub(crate) fn memory_pages_set(&self) -> usize {
        let size = self.size();
        match self.memory.limit_bytes.load(Ordering::Relaxed) {
            0 => size / 4,
            bytes => usize::try_from(bytes / self.page_size() as u64).unwrap_or(usize::MAX).min(size / 4 * 3),
        }
    }

    /// Frames that in-memory tables leave to other pages.
    pub fn frames_left(&self) -> usize {
        (self.limit() as usize).saturating_sub(self.memory.held())
    }

    /// The pages that in-memory tables hold, in bytes.
    pub fn memory_tables_bytes(&self) -> usize {
        self.memory.held() * self.page_size()
    }

    /// Before a new page of an in-memory table is given a frame.
    ///
    /// # Errors
    /// [`Error::MemoryFull`], with the limit beyond the limit where the thread may go there.
    pub(crate) fn check_memory_limit(&self) -> Result<()> {
        // Of a pool that shrinks: its frames beyond the new end hold pages that must find a place before it.
        let beyond = BEYOND_LIMIT.get().map_or(0, |what| self.limit() as usize * what as usize / 16);
        let max = self.memory_pages_max().max(beyond);
        if self.memory.held() < max {
            return Ok(());
        }
        Err(Error::MemoryFull { limit_bytes: (max * self.page_size()) as u64 })
    }

    /// Frees the frame of a page of an in-memory table that has become free. The caller keeps the page from being given
    /// out again meanwhile. Nothing if somebody looks at the page just now: then the frame waits for the page's next life.
    pub(crate) fn drop_memory_page(&self, id: PageId) {
        let Some(at) = self.frame_of(id) else { return };
        let latch = &self.frames().get(at).latch;
        if !latch.try_exclusive() {
            return;
        }
        if self.frames().get(at).holds(id.to_u64()) {
            self.withdraw(id, at);
        } else {
            latch.unlock_exclusive_unchanged();
        }
    }

    /// Moves a page of an in-memory table to another frame, since the pool shrinks and nothing else can empty this one.
    /// Whether it has.
    pub(crate) fn move_memory_page(&self, at: u32) -> bool {
        let old = self.frames().get(at);
        if !old.latch.try_exclusive() {
            return false;
        }
        let id = old.page();
        let Some(to) = Some(id).filter(|id| id.is_in_memory()).and_then(|id| self.try_alloc_frame(id)) else {
            old.latch.unlock_exclusive_unchanged();
            return false;
        };
        let new = self.frames().get(to);
        // Only a reader that was led astray can hold it, and that waits for nothing.
        new.latch.lock_exclusive(LatchClass::OtherPage.part(self.partition(to)));
        // SAFETY: both frames' X latches are held, and no reference is lent.
        let (from, bytes) = unsafe { (self.frames().bytes(at), self.frames().bytes_mut(to)) };
        bytes.copy_from_slice(from);
        new.set_kind(bytes[OFF_KIND]);
        new.usage.store(self.now.mark(), Ordering::Relaxed);
        self.table().replace(self.frames(), id, at, to);
        new.latch.unlock_exclusive();
        old.latch.unlock_exclusive_unwanted();
        self.free_frame(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_nests() {
        for before in [Beyond::Rollback, Beyond::Deletion] {
            let outer = BeyondLimit::new(before);
            for what in [Beyond::Rollback, Beyond::Deletion] {
                let inner = BeyondLimit::new(what);
                assert_eq!(BEYOND_LIMIT.get(), Some(before.max(what)));
                drop(inner);
                assert_eq!(BEYOND_LIMIT.get(), Some(before));
            }
            drop(outer);
        }
        assert_eq!(BEYOND_LIMIT.get(), None);
    }
}
