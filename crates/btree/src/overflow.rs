//! Long values: chains of overflow pages.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | next page of the chain; [`PageNo::NONE`] at its end |
//! | 28 | 4 | bytes of the value in this page |
//! | 32 | | the bytes |
//!
//! A chain is written once and never changed. Whoever holds the entry that refers to it may read it; whoever frees it has
//! made sure that nobody can.

use crate::alloc::{self, Found};
use crate::redo;
use myriad_base::circle::Circle;
use myriad_base::codec::{get_u32, put_u32};
use myriad_base::page::{page_lsn, PageKind, OFF_KIND};
use myriad_base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use myriad_buffer::{BufferPool, Mtr, SharedPage};

const OFF_NEXT: usize = 24;
const OFF_LEN: usize = 28;
const DATA: usize = 32;
/// Pages freed in one mini-transaction.
const FREE_BATCH: usize = 32;

/// Bytes of a value that one overflow page holds.
pub const fn bytes_per_page(page_size: usize) -> usize {
    page_size - DATA
}

/// The effect of [`redo::OVERFLOW_LOAD`].
pub(crate) fn load(p: &mut [u8], next: PageNo, bytes: &[u8]) -> Result<()> {
    if bytes.len() > bytes_per_page(p.len()) {
        return Err(Error::invalid("more bytes than an overflow page holds"));
    }
    p[OFF_KIND] = PageKind::Overflow as u8;
    put_u32(p, OFF_NEXT, next.0);
    put_u32(p, OFF_LEN, bytes.len() as u32);
    p[DATA..DATA + bytes.len()].copy_from_slice(bytes);
    p[DATA + bytes.len()..].fill(0);
    Ok(())
}

/// The effect of [`redo::OVERFLOW_LINK`].
pub(crate) fn link(p: &mut [u8], next: PageNo) -> Result<()> {
    if p[OFF_KIND] != PageKind::Overflow as u8 {
        return Err(Error::invalid("not an overflow page"));
    }
    put_u32(p, OFF_NEXT, next.0);
    Ok(())
}

/// Writes `bytes` (not empty) to a new chain and returns its first page. In its own mini-transactions, so before the one
/// that stores the reference; a crash between them leaks the chain.
///
/// # Errors
/// [`myriad_base::Error::DiskFull`] (what was written is freed again); the pool's.
pub fn write_overflow(pool: &BufferPool, space: SpaceId, bytes: &[u8]) -> Result<PageNo> {
    if bytes.is_empty() {
        return Err(Error::invalid("an empty value has no overflow pages"));
    }
    let (mut first, mut last) = (None, None);
    for chunk in bytes.chunks(bytes_per_page(pool.page_size())) {
        match write_page(pool, space, last, chunk) {
            Ok(page) => {
                first = first.or(Some(page));
                last = Some(page);
            }
            Err(e) => {
                if let Some(first) = first {
                    free_overflow(pool, space, first)?;
                }
                return Err(e);
            }
        }
    }
    Ok(first.expect("the value is not empty"))
}

/// Writes one page and links it behind `previous`.
fn write_page(pool: &BufferPool, space: SpaceId, previous: Option<PageNo>, chunk: &[u8]) -> Result<PageNo> {
    loop {
        let mut mtr = Mtr::start(pool)?;
        let before = match previous {
            Some(page) => Some(mtr.fix(PageId::new(space, page))?),
            None => None,
        };
        let candidate = match alloc::find(&mut mtr, space, previous)? {
            Found::Page(candidate) => candidate,
            Found::Grow(growth) => {
                drop(mtr);
                alloc::grow(pool, space, growth)?;
                continue;
            }
        };
        let no = candidate.page().page;
        let page = alloc::take(&mut mtr, candidate, PageKind::Overflow)?;
        let next = PageNo::NONE;
        mtr.log_applied_parts(page, redo::OVERFLOW_LOAD, &[&next.0.to_le_bytes(), chunk], |p| {
            load(p, next, chunk).expect("the value was cut into pieces that fit");
        });
        if let Some(before) = before {
            mtr.apply(before, redo::OVERFLOW_LINK, &no.0.to_le_bytes())?;
        }
        mtr.commit()?;
        return Ok(no);
    }
}

/// Appends the `len` bytes of the chain that begins at `first`, to which page `named_by` of the same tablespace refers, to `out`; of
/// more than `enough` bytes no more than the pages that these are in. The caller has `named_by` latched, and no page else.
///
/// # Errors
/// [`myriad_base::Error::CorruptPage`] when the chain, as far as it was read, is not `len` bytes long; [`myriad_base::Error::Io`]
/// (`ENOMEM`) when there is no memory for it; the pool's.
pub fn read_overflow(
    pool: &BufferPool,
    named_by: PageId,
    first: PageNo,
    len: usize,
    enough: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    if enough == 0 {
        return Ok(());
    }
    // Not all at once: a damaged length must not exhaust the memory.
    let mut room = out.try_reserve(len.min(enough).min(1 << 20));
    let begin = out.len();
    walk(pool, named_by, first, len, &mut |bytes| {
        room = room.clone().and_then(|()| out.try_reserve(bytes.len()));
        if room.is_ok() {
            out.extend_from_slice(bytes);
        }
        room.is_ok() && out.len() - begin < enough
    })?;
    room.map_err(|_| Error::no_memory(&format!("a value of {len} bytes")))
}

/// Whether the chain that begins at `first`, of as many bytes as `bytes` has, holds these. `named_by` as for [`read_overflow`].
///
/// # Errors
/// As [`read_overflow`].
pub fn holds(pool: &BufferPool, named_by: PageId, first: PageNo, bytes: &[u8]) -> Result<bool> {
    let (mut at, mut same) = (0, true);
    walk(pool, named_by, first, bytes.len(), &mut |here| {
        same = bytes[at..at + here.len()] == *here;
        at += here.len();
        same
    })?;
    Ok(same)
}

/// A page of a chain, latched shared. What it is is looked at first: a page of a tree may be latched by somebody who waits for one
/// that the caller has latched, and `named_by` is.
fn fix(pool: &BufferPool, named_by: PageId, id: PageId) -> Result<SharedPage<'_>> {
    if id == named_by {
        return Err(Error::corrupt(id, "its chain of overflow pages comes back to it"));
    }
    loop {
        let seen = pool.optimistic(id)?;
        let kind = seen.u8(OFF_KIND);
        if kind == PageKind::Overflow as u8 {
            if let Some(page) = seen.lock_shared() {
                return Ok(page);
            }
        } else if seen.validate() {
            return Err(Error::corrupt(id, format!("kind {kind}, where an overflow page belongs")));
        }
    }
}

/// The bytes that a chain's page has, and the next page. `rest` bytes of the value are left: all pages but the last are full.
fn content(page: &[u8], id: PageId, rest: usize) -> Result<(&[u8], PageNo)> {
    let (here, expected) = (get_u32(page, OFF_LEN) as usize, rest.min(bytes_per_page(page.len())));
    if here != expected {
        return Err(Error::corrupt(id, format!("an overflow page of {here} bytes, where one of {expected} belongs")));
    }
    Ok((&page[DATA..DATA + here], PageNo(get_u32(page, OFF_NEXT))))
}

/// The pages of a chain, one after the other.
struct Chain {
    named_by: PageId,
    len: usize,
    /// Bytes behind those of the last page given.
    rest: usize,
    last: PageId,
    next: PageNo,
    circle: Circle<PageNo>,
}

impl Chain {
    fn new(named_by: PageId, first: PageNo, len: usize) -> Chain {
        Chain { named_by, len, rest: len, last: named_by, next: first, circle: Circle::default() }
    }

    /// The next page's number; `None` behind the value's last byte.
    fn next(&mut self) -> Result<Option<PageId>> {
        if self.rest == 0 {
            return Ok(None);
        }
        if self.next == PageNo::NONE {
            let text = format!("a chain of overflow pages ends here and lacks {} of {} bytes", self.rest, self.len);
            return Err(Error::corrupt(self.last, text));
        }
        let id = PageId::new(self.named_by.space, self.next);
        if self.circle.closes_at(self.next) {
            return Err(Error::corrupt(id, "its chain of overflow pages comes back to it"));
        }
        self.last = id;
        Ok(Some(id))
    }

    /// The page that was given has so many bytes.
    fn pass(&mut self, bytes: usize, next: PageNo) {
        self.rest -= bytes;
        self.next = next;
    }
}

/// Hands the bytes of each page of a chain of `len` bytes to `visit`, until that returns `false`.
fn walk(
    pool: &BufferPool,
    named_by: PageId,
    first: PageNo,
    len: usize,
    visit: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut chain = Chain::new(named_by, first, len);
    while let Some(id) = chain.next()? {
        let page = fix(pool, named_by, id)?;
        let (bytes, next) = content(&page, id, chain.rest)?;
        if !visit(bytes) {
            return Ok(());
        }
        chain.pass(bytes.len(), next);
    }
    Ok(())
}

/// Verifies the chain of `len` bytes that begins at `first`, to which page `named_by` of the same tablespace, latched, refers: its pages are
/// readable, overflow pages, allocated, as full as they were written, and end where the value does. `visit` is told of each such page and
/// the LSN of its last change; an error of it ends the check. The chain must be kept from being freed, as for [`read_overflow`].
///
/// # Errors
/// [`Error::CorruptPage`] names the first page that is wrong; the pool's.
pub fn check(
    pool: &BufferPool,
    named_by: PageId,
    first: PageNo,
    len: usize,
    visit: &mut dyn FnMut(PageId, Lsn) -> Result<()>,
) -> Result<()> {
    let mut chain = Chain::new(named_by, first, len);
    while let Some(id) = chain.next()? {
        // Not latched while the bitmap page is asked: who allocates a page has that page first.
        let (bytes, next, changed) = {
            let page = fix(pool, named_by, id)?;
            let (bytes, next) = content(&page, id, chain.rest)?;
            (bytes.len(), next, page_lsn(&page))
        };
        if !alloc::is_in_use(pool, id)? {
            return Err(Error::corrupt(id, "the overflow page is in use but not allocated"));
        }
        visit(id, changed)?;
        chain.pass(bytes, next);
    }
    if len > 0 && chain.next != PageNo::NONE {
        let text = format!("a chain of overflow pages goes on behind its {len} bytes");
        return Err(Error::corrupt(chain.last, text));
    }
    Ok(())
}

/// Frees a chain. In its own mini-transactions; after a crash in between the rest can no longer be found through its first
/// page, which is freed last.
///
/// # Errors
/// The pool's.
pub fn free_overflow(pool: &BufferPool, space: SpaceId, first: PageNo) -> Result<()> {
    loop {
        let mut mtr = Mtr::start(pool)?;
        let head_id = PageId::new(space, first);
        let head = mtr.fix(head_id)?;
        if mtr.page(head)[OFF_KIND] != PageKind::Overflow as u8 {
            return Err(Error::corrupt(head_id, "not an overflow page"));
        }
        // The pages behind the first go first: the chain stays whole at every moment.
        let mut batch = Vec::with_capacity(FREE_BATCH);
        let mut next = PageNo(get_u32(mtr.page(head), OFF_NEXT));
        while next != PageNo::NONE && batch.len() < FREE_BATCH {
            let id = PageId::new(space, next);
            // Asked before the first page is latched again.
            if batch.contains(&id) {
                return Err(Error::corrupt(id, "its chain of overflow pages comes back to it"));
            }
            let page = fix(pool, head_id, id)?;
            batch.push(id);
            next = PageNo(get_u32(&page, OFF_NEXT));
        }
        let whole = next == PageNo::NONE;
        let mut freeing = Vec::with_capacity(batch.len() + 1);
        batch.sort_unstable();
        if whole {
            batch.push(head_id);
            batch.sort_unstable();
        }
        for &id in &batch {
            freeing.push(alloc::prepare_free(&mut mtr, id)?);
        }
        for f in freeing {
            alloc::free(&mut mtr, f)?;
        }
        if !whole {
            mtr.apply(head, redo::OVERFLOW_LINK, &next.0.to_le_bytes())?;
        }
        mtr.commit()?;
        if whole {
            return Ok(());
        }
    }
}
