//! What a thread has done, counted for whoever asks before and after a call: the page accesses of one table in one statement.

use std::cell::Cell;

/// Counts of a thread since it began.
#[derive(Default)]
pub struct Work<T> {
    /// Pages asked for, whether they were in memory or not.
    pub pages_accessed: T,
    /// Pages changed.
    pub pages_updated: T,
    /// Of the pages asked for, those that the thread read from their files itself.
    pub pages_read: T,
    /// Time for these, in nanoseconds.
    pub read_ns: T,
    /// Pages of which it asked that they be read ahead.
    pub pages_prefetched: T,
    /// Undo records read to find the version that a snapshot sees.
    pub undo_records_read: T,
}

type Cells = Work<Cell<u64>>;

thread_local! {
    static WORK: Cells = const {
        Work {
            pages_accessed: Cell::new(0),
            pages_updated: Cell::new(0),
            pages_read: Cell::new(0),
            read_ns: Cell::new(0),
            pages_prefetched: Cell::new(0),
            undo_records_read: Cell::new(0),
        }
    };
}

/// Counts `n` of what `which` picks.
#[inline]
pub fn count(which: impl FnOnce(&Cells) -> &Cell<u64>, n: u64) {
    WORK.with(|work| {
        let cell = which(work);
        cell.set(cell.get() + n);
    });
}

/// Of the calling thread's counts the pages that it read.
pub fn pages_read() -> u64 {
    WORK.with(|w| w.pages_read.get())
}

/// The calling thread's counts.
pub fn of_thread() -> Work<u64> {
    WORK.with(|w| Work {
        pages_accessed: w.pages_accessed.get(),
        pages_updated: w.pages_updated.get(),
        pages_read: w.pages_read.get(),
        read_ns: w.read_ns.get(),
        pages_prefetched: w.pages_prefetched.get(),
        undo_records_read: w.undo_records_read.get(),
    })
}
