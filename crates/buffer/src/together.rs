//! Pages that one reader wants together: read by himself, neighbours in the file with one call.

use crate::flush::Loading;
use crate::pool::BufferPool;
use crate::stats::Counter;
use crate::usage::USAGE_AHEAD;
use myriad_base::{work, PageId};
use myriad_io::{File, IoRequest};
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::time::Instant;

/// Pages that most calls are for.
type Few<'p> = SmallVec<[Loading<'p>; 8]>;

impl BufferPool {
    /// Reads those of the pages, all of one tablespace, that are not in memory, all at once, and waits for them. Takes only
    /// frames that are free now; failures are left to whoever fixes the page. The caller holds no latch.
    pub fn read_together(&self, ids: &[PageId]) {
        let Some(first) = ids.first() else { return };
        // The file first: to open it may mean to read the catalog, and no latch may be held then.
        let Ok(space) = self.spaces().get(first.space) else { return };
        let Ok(file) = space.file() else { return };
        let mut loading: Few<'_> = ids
            .iter()
            .filter(|&&id| !self.is_resident(id))
            .map_while(|&id| self.take_for_loading(id, &space, true))
            .collect();
        loading.sort_unstable_by_key(|page| page.frame.id);
        let begin = Instant::now();
        let read = self.read_each(&*file, &loading);
        let pages = read.iter().filter(|&&whole| whole).count() as u64;
        work::count(|w| &w.pages_read, pages);
        if pages > 1 {
            self.counters.add_many(Counter::ReadsTogether, pages);
        }
        work::count(|w| &w.read_ns, begin.elapsed().as_nanos() as u64);
        for (page, whole) in loading.into_iter().zip(read) {
            let whole = whole || !page.read;
            self.end_loading(page, whole, USAGE_AHEAD);
        }
    }

    /// Reads pages in the order of the file into their frames; of each whether it was read as a whole.
    fn read_each(&self, file: &dyn File, loading: &[Loading<'_>]) -> SmallVec<[bool; 8]> {
        let size = self.page_size();
        let offset = |page: &Loading<'_>| u64::from(page.frame.id.page.0) * size as u64;
        // SAFETY: this call holds the frame's X latch and lends the page to one request only.
        let bytes = |page: &Loading<'_>| unsafe { self.frames().bytes_mut(page.frame.at) };
        let neighbours = loading.windows(2).all(|pair| pair[0].frame.id.page.0 + 1 == pair[1].frame.id.page.0);
        if neighbours && loading.iter().all(|page| page.read) && !loading.is_empty() {
            let mut bufs: SmallVec<[IoSliceMut<'_>; 8]> = loading.iter().map(|p| IoSliceMut::new(bytes(p))).collect();
            let read = file.read_scattered_at(&mut bufs, offset(&loading[0])).unwrap_or(0);
            return (0..loading.len()).map(|i| (i + 1) * size <= read).collect();
        }
        let mut requests: SmallVec<[IoRequest<'_>; 8]> =
            loading.iter().filter(|p| p.read).map(|p| IoRequest::read(file, bytes(p), offset(p))).collect();
        self.io.submit(&mut requests);
        let mut results = requests.into_iter().map(|request| request.result.is_ok_and(|n| n == size));
        loading.iter().map(|page| page.read && results.next().expect("a result for each request")).collect()
    }
}
