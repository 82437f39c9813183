//! Giving back what a large transaction took: once purge is through with it, nearly all of `undo.myr` is free.
//!
//! Free pages are a list through the pages themselves, so none of them can be taken out of its middle. What is in use can be
//! told without it: the pages of the slots' chains, few by then. So the list is given up, and until the next start what is free
//! is known in memory: the lowest is used first, and chains move down as they grow. Slots that nobody writes to give up their
//! last page. When no page behind the first few is in use, the number of pages is lowered; the file is cut when recovery has
//! nothing to redo behind its new end. Pages in no list after a crash are found the next time.

use super::page::{self, undo_page};
use super::space::{PurgePosition, Tail, UndoSpace, FREE_LISTS};
use myriad_base::codec::get_u32;
use myriad_base::{Error, Lsn, PageNo, Result, SpaceId};
use myriad_buffer::{Level, Mtr};
use std::sync::atomic::Ordering;

/// Pages that stay, besides twice those in use: small files are left alone.
const KEEP_PAGES: u32 = if cfg!(test) { 16 } else { 512 };
/// With more pages in use it is not tried: purge is not through.
const IN_USE_MAX: u32 = 4096;
/// Looks in a row that have to find the file too large: large transactions may follow one another.
pub(crate) const LOOKS: u32 = 10;
/// Room behind its end is left to the file, as it grows by some at a time.
const SPARE_BYTES: usize = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// What the looks have found. Latched after the directory.
#[derive(Default)]
pub(super) struct Shrinking {
    /// Looks that found the file too large, one after the other.
    looks: u32,
    /// The file is to be cut when recovery begins here or later.
    cut_after: Option<Lsn>,
    /// The free pages, if they are not in the list.
    free: Option<FreePages>,
}

/// A set of page numbers.
struct FreePages {
    words: Vec<u64>,
    /// No word before it has any.
    first: usize,
}

impl FreePages {
    /// Those behind the directory and below `end` that are not in `used`.
    fn all_but(used: &[u32], end: u32) -> FreePages {
        let mut pages = FreePages { words: Vec::new(), first: 0 };
        pages.words.resize(end.div_ceil(u64::BITS) as usize, 0);
        (page::FIRST..end).for_each(|no| pages.put(PageNo(no)));
        used.iter().for_each(|&no| pages.words[no as usize / 64] &= !(1 << (no % 64)));
        pages
    }

    fn put(&mut self, no: PageNo) {
        let word = no.0 as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (no.0 % 64);
        self.first = self.first.min(word);
    }

    fn lowest(&mut self) -> Option<PageNo> {
        while *self.words.get(self.first)? == 0 {
            self.first += 1;
        }
        Some(PageNo(self.first as u32 * 64 + self.words[self.first].trailing_zeros()))
    }

    fn take_lowest(&mut self) -> Option<PageNo> {
        let no = self.lowest()?;
        self.words[self.first] &= self.words[self.first] - 1;
        Some(no)
    }
}

/// The directory's totals.
struct Totals {
    end: u32,
    in_use: u32,
}

impl Totals {
    fn of(directory: &[u8]) -> Totals {
        let end = get_u32(directory, page::DIR_HIGH_WATER);
        let free = get_u32(directory, page::DIR_FREE_COUNT);
        Totals { end, in_use: end.saturating_sub(free.saturating_add(page::FIRST)) }
    }

    /// Pages that the file is to have, if it is too large.
    fn wanted(&self) -> Option<u32> {
        let keep = page::FIRST + 2 * self.in_use.min(IN_USE_MAX) + KEEP_PAGES;
        (self.in_use <= IN_USE_MAX && self.end > 2 * keep).then_some(keep)
    }
}

impl UndoSpace {
    /// Whether there are free pages that are not in the list.
    pub(super) fn has_free_in_memory(&self) -> bool {
        self.shrinking.lock().free.as_mut().is_some_and(|free| free.lowest().is_some())
    }

    /// The lowest free page that is not in the list. The directory is latched.
    pub(super) fn take_free_in_memory(&self) -> Option<PageNo> {
        self.shrinking.lock().free.as_mut()?.take_lowest()
    }

    /// Notes that a page is free, unless free pages go to the list. The directory is latched.
    pub(super) fn put_free_in_memory(&self, no: PageNo) -> bool {
        let mut shrinking = self.shrinking.lock();
        shrinking.free.as_mut().map(|free| free.put(no)).is_some()
    }

    /// A look whether the file can be made smaller, and a step towards it. To be called about once a second, by one thread.
    ///
    /// # Errors
    /// Those of the pool and of the file. Nothing is lost, later looks go on.
    pub fn shrink_step(&self) -> Result<()> {
        let totals = Totals::of(&self.pool.fix_shared(page::DIRECTORY)?);
        self.cut_file(totals.end)?;
        let wanted = totals.wanted().filter(|_| !self.has_set_aside());
        let looks = {
            let mut shrinking = self.shrinking.lock();
            shrinking.looks = if wanted.is_some() { shrinking.looks.saturating_add(1) } else { 0 };
            shrinking.looks
        };
        let Some(keep) = wanted else { return Ok(()) };
        // Where somebody keeps a page for long, looks become rare.
        if looks == LOOKS || looks.checked_sub(LOOKS).is_some_and(u32::is_power_of_two) {
            self.empty_slots(keep)?;
            self.lower_end(keep)?;
        }
        Ok(())
    }

    /// Cuts the file, if it is longer than pages up to `end` need by more than it grows by, and recovery has nothing to redo there.
    fn cut_file(&self, end: u32) -> Result<()> {
        let spare = (SPARE_BYTES / self.pool.page_size()) as u32;
        let space = self.pool.spaces().get(SpaceId::UNDO)?;
        {
            let mut shrinking = self.shrinking.lock();
            if space.pages_in_file() <= end.saturating_add(2 * spare) {
                shrinking.cut_after = None;
                return Ok(());
            }
            // Whatever the log has about pages behind the end comes before this.
            let after = *shrinking.cut_after.get_or_insert_with(|| self.pool.log().end_lsn());
            if self.pool.log().redo_start() < after {
                return Ok(());
            }
            shrinking.cut_after = None;
        }
        // Nobody takes a page while the directory is latched. Who is about to has made sure of room for one at most.
        let directory = self.pool.fix_exclusive(page::DIRECTORY)?;
        let keep = Totals::of(&directory).end.max(end) + spare;
        let pages = space.pages_in_file().saturating_sub(keep);
        space.cut(keep)?;
        drop(directory);
        let mib = (u64::from(pages) * self.pool.page_size() as u64) >> 20;
        (self.report)(Level::Info, &format!("undo.myr: {mib} MiB that were free are given back to the file system"));
        Ok(())
    }

    /// Takes the last page from slots that nobody writes to and that purge is through with, where it lies at `keep` or behind.
    fn empty_slots(&self, keep: u32) -> Result<()> {
        for list in 0..FREE_LISTS {
            let mut looked_at = Vec::new();
            loop {
                let mut idle = self.free_list(list);
                let is_high = |t: &Tail| t.page != PageNo::NONE && t.page.0 >= keep && !looked_at.contains(&t.slot);
                let Some(at) = idle.iter().position(is_high) else { break };
                let mut tail = idle.swap_remove(at);
                drop(idle);
                looked_at.push(tail.slot);
                let emptied = self.empty_slot(&mut tail);
                // At the begin: the others come first.
                self.free_list(list).insert(0, tail);
                emptied?;
            }
        }
        Ok(())
    }

    fn empty_slot(&self, tail: &mut Tail) -> Result<()> {
        let Some(mut position) = tail.purge.position.try_lock() else { return Ok(()) };
        if position.page != tail.page {
            return Ok(());
        }
        // Into memory, before others wait for the directory.
        let _ = self.pool.fix_shared(undo_page(tail.page))?;
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        let (id, at) = page::slot_position(self.pool.page_size(), tail.slot);
        let slots = mtr.fix(id)?;
        let p = mtr.fix(undo_page(tail.page))?;
        if position.offset < page::end(mtr.page(p))? || position.catching_up || position.log.is_some() {
            return Ok(());
        }
        mtr.write(slots, at, &page::EMPTY_SLOT);
        self.put_free(&mut mtr, dir, tail.page, p);
        mtr.commit()?;
        self.pages_in_use.fetch_sub(1, Ordering::Relaxed);
        *position = PurgePosition::without_page();
        (tail.page, tail.end) = (PageNo::NONE, 0);
        Ok(())
    }

    /// Makes `keep` the end, if all pages from there on are free. Else sees to it that they become so.
    fn lower_end(&self, keep: u32) -> Result<()> {
        // Into memory, before others wait for the directory. Chains may change meanwhile.
        let heads = self.chain_heads(&mut Mtr::start(&self.pool)?)?;
        let _ = self.pages_of_chains(&heads);
        let mut mtr = Mtr::start(&self.pool)?;
        let dir = mtr.fix(page::DIRECTORY)?;
        let heads = self.chain_heads(&mut mtr)?;
        let used = self.pages_of_chains(&heads)?;
        let is_low = used.iter().all(|&no| no < keep);
        let end = if is_low { keep } else { Totals::of(mtr.page(dir)).end };
        // After a crash the file may lack some of them for a while.
        let all = self.pool.spaces().get(SpaceId::UNDO)?.pages_in_file().saturating_mul(2);
        if end > all || used.iter().any(|&no| no >= end) {
            let text = format!("it tells of {end} undo pages, which are not those of the file or of the chains");
            return Err(Error::corrupt(page::DIRECTORY, text));
        }
        let Some(free) = (end - page::FIRST).checked_sub(used.len() as u32) else {
            return Err(Error::corrupt(page::DIRECTORY, "chains of undo pages share pages"));
        };
        let mut shrinking = self.shrinking.lock();
        if !is_low && shrinking.free.is_some() {
            return Ok(());
        }
        mtr.write(dir, page::DIR_HIGH_WATER, &end.to_le_bytes());
        mtr.write(dir, page::DIR_FREE_HEAD, &PageNo::NONE.0.to_le_bytes());
        mtr.write(dir, page::DIR_FREE_COUNT, &free.to_le_bytes());
        shrinking.free = Some(FreePages::all_but(&used, end));
        // An earlier one was for another end.
        shrinking.cut_after = None;
        drop(shrinking);
        mtr.commit()?;
        Ok(())
    }

    /// Slots and the first pages of their chains. Exact while the mini-transaction has the directory latched.
    fn chain_heads(&self, mtr: &mut Mtr<'_>) -> Result<Vec<(u32, PageNo)>> {
        let slots = 0..self.purge_slot_count() as u32;
        let head = |slot| {
            let (id, at) = page::slot_position(self.pool.page_size(), slot);
            let p = mtr.fix(id)?;
            Ok((slot, PageNo(get_u32(mtr.page(p), at))))
        };
        slots.map(head).collect()
    }

    /// The pages of the chains.
    fn pages_of_chains(&self, heads: &[(u32, PageNo)]) -> Result<Vec<u32>> {
        let mut pages = Vec::new();
        for &(slot, head) in heads {
            let mut no = head;
            while no != PageNo::NONE {
                if no.0 < page::FIRST {
                    return Err(Error::corrupt(undo_page(no), format!("it is in the chain of undo slot {slot}")));
                }
                let p = self.pool.fix_shared(undo_page(no))?;
                if page::slot(&p) != slot {
                    return Err(Error::corrupt(p.id(), format!("it is not of undo slot {slot}")));
                }
                if pages.len() > 2 * IN_USE_MAX as usize {
                    return Err(Error::corrupt(p.id(), "more undo pages in chains than are in use"));
                }
                pages.push(no.0);
                no = page::next(&p);
            }
        }
        Ok(pages)
    }
}
