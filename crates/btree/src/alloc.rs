//! Allocation of pages in a tablespace: bitmap pages, one 64-bit word for each extent of 64 pages.
//!
//! A group is as many pages as one bitmap page has bits; group `g` begins at page `g * group` and its bitmap page is the
//! second page of the group: page 1 for the first. Bitmap page, after the common header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 4 | every word below this number is full |
//! | 28 | 4 | pages in use |
//! | 32 | 4 | number of groups (first bitmap page only) |
//! | 36 | 4 | reserved, zero |
//! | 40 | 8 each | words; bit set = page in use |
//!
//! Small trees take single pages, a growing tree the pages next to its own, and then whole free extents, while few pages of
//! the extents in use are free.
//!
//! To allocate inside a mini-transaction: [`find`] latches a bitmap page and names a free page, changing nothing; if the
//! file must grow first, the caller drops its latches, calls [`grow`] and begins again; then [`take`]. So a full disk or a
//! full buffer pool shows before anything is changed. A bitmap page is the last latch that a mini-transaction takes, but
//! for new pages, which nobody else can reach.

use crate::page::{self, Fences};
use crate::redo;
use myriad_base::codec::{get_u32, get_u64, put_u32, put_u64};
use myriad_base::limits::EXTENT_PAGES;
use myriad_base::page::{PageKind, OFF_KIND};
use myriad_base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use myriad_buffer::{Beyond, BeyondLimit, BufferPool, Mtr, PageRef, SharedPage};
use myriad_space::Space;
use std::ops::Range;
use std::sync::Arc;

/// Root page of a tablespace's pack tree.
pub const PACK_ROOT: PageNo = PageNo(2);

const OFF_HINT: usize = 24;
const OFF_USED: usize = 28;
const OFF_GROUPS: usize = 32;
const WORDS: usize = 40;

/// Extents that are partly used are filled before another is begun when their free pages are more than this part of the
/// pages in use.
const SPARE_SHARE: u32 = 16;

/// Pages that one bitmap page describes.
pub const fn group_pages(page_size: usize) -> u32 {
    (word_count(page_size) * EXTENT_PAGES as usize) as u32
}

const fn word_count(page_size: usize) -> usize {
    (page_size - WORDS) / 8
}

/// The bitmap page of a group.
fn bitmap_page(page_size: usize, group: u32) -> PageNo {
    PageNo(group * group_pages(page_size) + 1)
}

fn word(p: &[u8], at: usize) -> u64 {
    get_u64(p, WORDS + at * 8)
}

fn word_is_free(p: &[u8], at: usize) -> bool {
    word(p, at) == 0
}

/// A free page that [`find`] has found; its bitmap page is latched.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    bitmap: PageRef,
    word: u16,
    bit: u8,
    page: PageId,
}

impl Candidate {
    /// Which page it is.
    pub fn page(&self) -> PageId {
        self.page
    }
}

/// What [`find`] says.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// This one.
    Page(Candidate),
    /// Drop all latches, call [`grow`] with this, and begin again.
    Grow(Growth),
}

/// How a tablespace must grow.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    pages: u64,
    group: Option<u32>,
    /// Nothing that is in the file will do.
    last_resort: bool,
}

/// Sets or clears bits of a bitmap page: the effect of [`redo::ALLOCATE`] and [`redo::FREE`].
pub(crate) fn change_bits(p: &mut [u8], at: usize, mask: u64, set: bool) -> Result<()> {
    if p[OFF_KIND] != PageKind::Bitmap as u8 || at >= word_count(p.len()) {
        return Err(Error::invalid("no such word of a bitmap page"));
    }
    let old = word(p, at);
    let n = mask.count_ones();
    let used = get_u32(p, OFF_USED);
    if set {
        if old & mask != 0 {
            return Err(Error::invalid("the page is in use already"));
        }
        put_u64(p, WORDS + at * 8, old | mask);
        put_u32(p, OFF_USED, used.wrapping_add(n));
        let mut hint = get_u32(p, OFF_HINT) as usize;
        while hint < word_count(p.len()) && word(p, hint) == u64::MAX {
            hint += 1;
        }
        put_u32(p, OFF_HINT, hint as u32);
    } else {
        if old & mask != mask {
            return Err(Error::invalid("the page is free already"));
        }
        put_u64(p, WORDS + at * 8, old & !mask);
        put_u32(p, OFF_USED, used.wrapping_sub(n));
        put_u32(p, OFF_HINT, get_u32(p, OFF_HINT).min(at as u32));
    }
    Ok(())
}

fn change_payload(word: u16, mask: u64) -> [u8; 10] {
    let mut payload = [0; 10];
    payload[..2].copy_from_slice(&word.to_le_bytes());
    payload[2..].copy_from_slice(&mask.to_le_bytes());
    payload
}

/// Lays out a new tablespace whose file has been created: the first bitmap page and the pack tree's empty root. In its own
/// mini-transactions; the header page is room `space`'s.
///
/// # Errors
/// [`myriad_base::Error::DiskFull`] before anything is changed; the pool's.
pub fn create_space_layout(pool: &BufferPool, space: SpaceId) -> Result<()> {
    ensure_pages(pool, space, u64::from(PACK_ROOT.0) + 1)?;
    // What is in memory alone is laid out at each start, however full a crash left the log.
    let begin = if space == SpaceId::MEMORY { Mtr::start_in_memory } else { Mtr::start };
    let mut mtr = begin(pool)?;
    let bitmap = mtr.init(PageId::new(space, PageNo(1)), PageKind::Bitmap)?;
    mtr.write(bitmap, OFF_GROUPS, &1u32.to_le_bytes());
    mtr.apply(bitmap, redo::ALLOCATE, &change_payload(0, 0b111))?;
    mtr.commit()?;
    // Another mini-transaction: taking a frame can fail, which must not happen after a change.
    let mut mtr = begin(pool)?;
    let root = mtr.init(PageId::new(space, PACK_ROOT), PageKind::Index)?;
    format_root(&mut mtr, root, &[], &[])?;
    mtr.commit()?;
    Ok(())
}

/// Makes the tablespace of in-memory tables, empty; at every start.
///
/// # Errors
/// The pool's.
pub fn create_memory_space(pool: &BufferPool) -> Result<()> {
    let _room = BeyondLimit::new(Beyond::Rollback);
    create_space_layout(pool, SpaceId::MEMORY)
}

/// Formats an empty leaf that is the whole tree.
pub(crate) fn format_root(mtr: &mut Mtr<'_>, root: PageRef, low: &[u8], high: &[u8]) -> Result<()> {
    let mut payload = Vec::with_capacity(32);
    let fences = Fences { low, high, flags: page::LEFTMOST | page::RIGHTMOST };
    redo::push_bounds(&mut payload, &redo::Bounds { level: 0, left: PageNo(0), fences });
    mtr.apply(root, redo::FORMAT, &payload)
}

fn file_pages(pool: &BufferPool, space: SpaceId) -> Result<u64> {
    if space == SpaceId::MEMORY {
        // No file bounds it, the buffer pool does.
        return Ok(1 << 32);
    }
    Ok(u64::from(pool.spaces().get(space)?.pages_in_file()))
}

fn ensure_pages(pool: &BufferPool, space: SpaceId, pages: u64) -> Result<()> {
    let pages = u32::try_from(pages)
        .map_err(|_| Error::NotSupported { what: format!("tablespace {space} of more than 2^32 pages") })?;
    if space == SpaceId::MEMORY {
        return Ok(());
    }
    pool.spaces().get(space)?.ensure_pages(pages)
}

/// How far a search in a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// To the group's end: the file may have to grow.
    Group,
    /// To the file's end.
    File,
    /// To the file's last whole extent, for what the group can spare: a free extent, or a single page where those are many.
    Spare,
}

/// What a search in a group found.
enum InGroup {
    Page(Candidate),
    /// A page for which the file must have so many; whether with it an extent is begun.
    Beyond {
        pages: u64,
        new_extent: bool,
    },
    Nothing,
}

/// A bitmap page as a search sees it: pages of the group from number `end` on count as used.
#[derive(Clone, Copy)]
struct View<'p> {
    p: &'p [u8],
    end: u64,
}

impl View<'_> {
    fn word(self, at: usize) -> u64 {
        let before_end = self.end.saturating_sub(at as u64 * u64::from(EXTENT_PAGES)).min(u64::from(EXTENT_PAGES));
        word(self.p, at) | u64::MAX.checked_shl(before_end as u32).unwrap_or(0)
    }

    fn words(self) -> usize {
        word_count(self.p.len())
    }

    /// Every word below is full.
    fn hint(self) -> usize {
        (get_u32(self.p, OFF_HINT) as usize).min(self.words())
    }

    /// The first free page of an extent.
    fn first_of(self, at: usize) -> (usize, u32) {
        (at, (!self.word(at)).trailing_zeros())
    }

    /// Whether of the extents in use more pages are free than should be.
    fn has_spare(self) -> bool {
        let whole = self.words().min((self.end / u64::from(EXTENT_PAGES)) as usize).max(self.hint());
        let free: u32 = self.p[WORDS + self.hint() * 8..WORDS + whole * 8]
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
            .filter(|&w| w != 0)
            .map(u64::count_zeros)
            .sum();
        let last = if whole < self.words() { self.word(whole).count_zeros() } else { 0 };
        free + last > get_u32(self.p, OFF_USED) / SPARE_SHARE
    }

    /// A free extent, near word `near` if possible. The extents before word `in_file` are in the file, whole: what is free
    /// before comes first, or a table whose rows come at one end and go at the other would make the file grow for ever.
    fn free_extent(self, near: usize, in_file: usize) -> Option<(usize, u32)> {
        let free = |mut words: Range<usize>| words.find(|&w| self.word(w) == 0);
        let end = in_file.clamp(near, self.words());
        let found = free(near..end).or_else(|| free(self.hint()..near)).or_else(|| free(end..self.words()));
        found.map(|w| (w, 0))
    }

    /// A free page of an extent in use, near word `near` if possible.
    fn single_page(self, near: usize) -> Option<(usize, u32)> {
        let partly = |mut words: Range<usize>| words.find(|&w| !matches!(self.word(w), 0 | u64::MAX));
        partly(near..self.words()).or_else(|| partly(self.hint()..near)).map(|w| self.first_of(w))
    }

    /// A free page, near word and bit `near` if possible.
    fn search(self, near: Option<(usize, u32)>, in_file: usize) -> Option<(usize, u32)> {
        let Some((near_word, bit)) = near else {
            return (self.hint()..self.words()).find(|&w| self.word(w) != u64::MAX).map(|w| self.first_of(w));
        };
        let free = !self.word(near_word);
        let after = free & (u64::MAX << bit);
        if after != 0 {
            return Some((near_word, after.trailing_zeros()));
        }
        if free != 0 {
            return Some((near_word, free.trailing_zeros()));
        }
        let near = near_word.max(self.hint());
        // The neighbourhood is full. A growing tree gets an extent of its own, unless that would leave too much of the
        // file unused: where insertions go everywhere, every full extent would want another one for a single page.
        let extent = if self.has_spare() { None } else { self.free_extent(near, in_file) };
        extent.or_else(|| self.single_page(near))
    }

    /// What the group can spare for a tree that is in another one.
    fn spare(self, in_file: usize) -> Option<(usize, u32)> {
        if self.has_spare() {
            self.single_page(self.hint())
        } else {
            self.free_extent(self.hint(), in_file)
        }
    }
}

/// The bitmap page of a group, latched shared.
fn shared_bitmap(pool: &BufferPool, space: SpaceId, group: u32) -> Result<SharedPage<'_>> {
    let id = PageId::new(space, bitmap_page(pool.page_size(), group));
    let bitmap = pool.fix_shared(id)?;
    match bitmap[OFF_KIND] == PageKind::Bitmap as u8 {
        true => Ok(bitmap),
        false => Err(not_a_bitmap(id)),
    }
}

#[cold]
fn not_a_bitmap(id: PageId) -> Error {
    Error::corrupt(id, "not an allocation bitmap")
}

/// The number of groups in a tablespace's first bitmap page.
fn group_count_in(bitmap: &[u8], space: SpaceId) -> Result<u32> {
    let (groups, first) = (get_u32(bitmap, OFF_GROUPS), PageId::new(space, bitmap_page(bitmap.len(), 0)));
    // One more may be begun.
    match (1..u32::MAX / group_pages(bitmap.len())).contains(&groups) {
        true => Ok(groups),
        false => Err(Error::corrupt(first, format!("{groups} groups of pages"))),
    }
}

/// Groups that the tablespace has.
fn group_count(pool: &BufferPool, space: SpaceId) -> Result<u32> {
    group_count_in(&shared_bitmap(pool, space, 0)?, space)
}

/// Finds a free page, close to page `near` if one is given. Latches a bitmap page and changes nothing.
///
/// # Errors
/// The pool's.
pub fn find(mtr: &mut Mtr<'_>, space: SpaceId, near: Option<PageNo>) -> Result<Found> {
    let group_pages = group_pages(mtr.pool().page_size());
    let home = near.map_or(0, |p| p.0 / group_pages);
    let within = near.map(|p| p.0 % group_pages).map(|i| ((i / EXTENT_PAGES) as usize, i % EXTENT_PAGES));
    let mut others = home;
    match find_in_group(mtr, space, home, within, Reach::Group)? {
        InGroup::Page(candidate) => return Ok(Found::Page(candidate)),
        InGroup::Nothing => others += 1,
        InGroup::Beyond { pages, new_extent } => {
            let spare = if new_extent { find_spare(mtr, space)? } else { None };
            if let Some(candidate) = spare {
                return Ok(Found::Page(candidate));
            }
            if !mtr.pool().spaces().get(space)?.was_full_lately() {
                return Ok(Found::Grow(Growth { pages, group: None, last_resort: false }));
            }
        }
    }
    let groups = group_count(mtr.pool(), space)?;
    for group in (others..groups).chain(0..home.min(groups)) {
        let within = within.filter(|_| group == home);
        if let InGroup::Page(candidate) = find_in_group(mtr, space, group, within, Reach::File)? {
            return Ok(Found::Page(candidate));
        }
    }
    let last = groups.saturating_sub(1);
    let (pages, group) = match first_beyond_file(mtr, space, last)? {
        Some(page) => (page + 1, None),
        None => (u64::from(groups) * u64::from(group_pages) + 2, Some(groups)),
    };
    Ok(Found::Grow(Growth { pages, group, last_resort: true }))
}

/// Groups that are looked at before the file grows by an extent.
const GROUPS_LOOKED_AT: u32 = 4;

/// A page of what some group has to spare, before the file grows. Which groups have nothing is remembered until pages of
/// them become free: so looking costs little, however many groups there are.
fn find_spare(mtr: &mut Mtr<'_>, space: SpaceId) -> Result<Option<Candidate>> {
    let groups = group_count(mtr.pool(), space)?;
    if groups <= 1 {
        return Ok(None);
    }
    let from = mtr.pool().spaces().get(space)?.spare_from();
    for group in from..groups.min(from.saturating_add(GROUPS_LOOKED_AT)) {
        if let InGroup::Page(candidate) = find_in_group(mtr, space, group, None, Reach::Spare)? {
            return Ok(Some(candidate));
        }
    }
    Ok(None)
}

/// Latches a group's bitmap page.
fn fix_bitmap(mtr: &mut Mtr<'_>, space: SpaceId, group: u32) -> Result<PageRef> {
    let id = PageId::new(space, bitmap_page(mtr.pool().page_size(), group));
    let bitmap = mtr.fix(id)?;
    if mtr.page(bitmap)[OFF_KIND] != PageKind::Bitmap as u8 {
        return Err(not_a_bitmap(id));
    }
    Ok(bitmap)
}

/// Pages of a group that are in the file.
fn group_pages_in_file(pool: &BufferPool, space: SpaceId, group: u32) -> Result<u64> {
    let group_pages = u64::from(group_pages(pool.page_size()));
    Ok(file_pages(pool, space)?.saturating_sub(u64::from(group) * group_pages).min(group_pages))
}

/// The first page of a group that is free and behind the file's end.
fn first_beyond_file(mtr: &mut Mtr<'_>, space: SpaceId, group: u32) -> Result<Option<u64>> {
    let bitmap = fix_bitmap(mtr, space, group)?;
    let in_file = group_pages_in_file(mtr.pool(), space, group)?;
    let p = mtr.page(bitmap);
    let extent = u64::from(EXTENT_PAGES);
    let free_behind = |w: usize| {
        let before = in_file.saturating_sub(w as u64 * extent);
        !word(p, w) & u64::MAX.checked_shl(before as u32).unwrap_or(0)
    };
    let first = ((in_file / extent) as usize..word_count(p.len())).find(|&w| free_behind(w) != 0);
    let first = first.map(|w| w as u64 * extent + u64::from(free_behind(w).trailing_zeros()));
    mtr.release_unchanged(bitmap);
    Ok(first.map(|page| u64::from(group) * u64::from(group_pages(mtr.pool().page_size())) + page))
}

fn find_in_group(
    mtr: &mut Mtr<'_>,
    space: SpaceId,
    group: u32,
    near: Option<(usize, u32)>,
    reach: Reach,
) -> Result<InGroup> {
    let bitmap = fix_bitmap(mtr, space, group)?;
    let in_file = group_pages_in_file(mtr.pool(), space, group)?;
    let p = mtr.page(bitmap);
    let whole_extents = (in_file / u64::from(EXTENT_PAGES)) as usize;
    let found = match reach {
        Reach::Group => View { p, end: u64::MAX }.search(near, whole_extents),
        Reach::File => View { p, end: in_file }.search(near, whole_extents),
        Reach::Spare => View { p, end: whole_extents as u64 * u64::from(EXTENT_PAGES) }.spare(whole_extents),
    };
    let first = u64::from(group) * u64::from(group_pages(p.len()));
    let page = |(at, bit): (usize, u32)| at as u64 * u64::from(EXTENT_PAGES) + u64::from(bit);
    let place = match found {
        // An extent that is begun is in the file whole: else the file would grow within it, and nobody asked other groups.
        Some((at, _)) if reach == Reach::Group && at >= whole_extents && word_is_free(p, at) => {
            let pages = first + (at as u64 + 1) * u64::from(EXTENT_PAGES);
            mtr.release_unchanged(bitmap);
            return Ok(InGroup::Beyond { pages, new_extent: true });
        }
        Some(place) if page(place) >= in_file => {
            mtr.release_unchanged(bitmap);
            return Ok(InGroup::Beyond { pages: first + page(place) + 1, new_extent: false });
        }
        Some(place) => with_room(mtr.pool(), PageId::new(space, PageNo(first as u32)), p, in_file, place, reach)?,
        None => {
            if reach == Reach::Spare {
                // While the bitmap page is latched: who frees pages of the group comes later, and notes that.
                mtr.pool().spaces().get(space)?.nothing_to_spare(group);
            }
            None
        }
    };
    let Some(place) = place else {
        mtr.release_unchanged(bitmap);
        return Ok(InGroup::Nothing);
    };
    let (word, bit) = (place.0 as u16, place.1 as u8);
    let page = PageId::new(space, PageNo((first + page(place)) as u32));
    // Pages that are in use from the start, and those that this mini-transaction holds.
    if page.page <= PACK_ROOT || page == mtr.page_id(bitmap) || mtr.find(page).is_some() {
        let text = format!("page {} is in use and free there", page.page);
        return Err(Error::corrupt(mtr.page_id(bitmap), text));
    }
    Ok(InGroup::Page(Candidate { bitmap, word, bit, page }))
}

/// Free extents of a group that are tried where the disk has no room for the one that was found.
const EXTENTS_TRIED: usize = 64;

/// The place that was found, if there is room on the device for its page: an extent that is free may have been given back to
/// the file system, and gets its room first. Else another place in the group. `p` is the bitmap page of the group that
/// begins at page `first`.
fn with_room(
    pool: &BufferPool,
    first: PageId,
    p: &[u8],
    in_file: u64,
    place: (usize, u32),
    reach: Reach,
) -> Result<Option<(usize, u32)>> {
    // Single pages of extents in use have theirs.
    if first.space == SpaceId::MEMORY || !word_is_free(p, place.0) {
        return Ok(Some(place));
    }
    let (bytes, file) = (p.len() as u64, pool.spaces().get(first.space)?.file()?);
    let has_room = |&at: &usize| {
        let before = at as u64 * u64::from(EXTENT_PAGES);
        let pages = (in_file - before).min(u64::from(EXTENT_PAGES));
        file.allocate((u64::from(first.page.0) + before) * bytes, pages * bytes).is_ok()
    };
    if has_room(&place.0) {
        return Ok(Some(place));
    }
    if reach == Reach::Spare {
        return Ok(None);
    }
    let view = View { p, end: in_file };
    let single = (0..view.words()).find(|&w| !word_is_free(p, w) && view.word(w) != u64::MAX);
    let extents = in_file.div_ceil(u64::from(EXTENT_PAGES)) as usize;
    let mut others = (0..extents).rev().filter(|&w| w != place.0 && word_is_free(p, w)).take(EXTENTS_TRIED);
    Ok(single.or_else(|| others.find(has_room)).map(|w| view.first_of(w)))
}

/// Makes the file longer, and begins a new group where that was missing. Where the disk has no room for that and other pages
/// may be free, nothing is done: [`find`] will look for those. The caller holds no latch and no mini-transaction.
///
/// # Errors
/// [`Error::DiskFull`]; the pool's.
pub fn grow(pool: &BufferPool, space: SpaceId, growth: Growth) -> Result<()> {
    match ensure_pages(pool, space, growth.pages) {
        Err(Error::DiskFull { .. }) if !growth.last_resort => return Ok(()),
        done => done?,
    }
    let Some(group) = growth.group else { return Ok(()) };
    let mut mtr = Mtr::start(pool)?;
    let first = mtr.fix(PageId::new(space, bitmap_page(pool.page_size(), 0)))?;
    if get_u32(mtr.page(first), OFF_GROUPS) != group {
        return Ok(());
    }
    let bitmap = mtr.init(PageId::new(space, bitmap_page(pool.page_size(), group)), PageKind::Bitmap)?;
    mtr.apply(bitmap, redo::ALLOCATE, &change_payload(0, 0b10))?;
    mtr.write(first, OFF_GROUPS, &(group + 1).to_le_bytes());
    mtr.commit()?;
    Ok(())
}

/// Takes a page that [`find`] found: initialises it as `kind`, nothing being read, and marks it in use. On an error
/// nothing has been changed.
///
/// # Errors
/// The pool's.
pub fn take(mtr: &mut Mtr<'_>, candidate: Candidate, kind: PageKind) -> Result<PageRef> {
    let page = mtr.init(candidate.page, kind)?;
    mtr.apply(candidate.bitmap, redo::ALLOCATE, &change_payload(candidate.word, 1 << candidate.bit))?;
    if let Some(space) = mtr.pool().spaces().get_known(candidate.page.space) {
        space.extent_used(candidate.page.page.0 / EXTENT_PAGES);
    }
    Ok(page)
}

/// Pages of one extent about to be freed; their bitmap page is latched.
#[derive(Clone, Copy, Debug)]
pub struct Freeing {
    /// The extent's first page.
    extent: PageId,
    bitmap: PageRef,
    word: u16,
    mask: u64,
}

impl Freeing {
    /// Takes on the pages of `other`, if they are of the same extent.
    pub(crate) fn join(&mut self, other: &Freeing) -> bool {
        let same = self.bitmap == other.bitmap && self.word == other.word;
        if same {
            self.mask |= other.mask;
        }
        same
    }
}

/// Latches what [`free`] will change. Called before the mini-transaction changes anything, as it can fail.
///
/// # Errors
/// The pool's; [`Error::CorruptPage`] when the page is free already.
pub fn prepare_free(mtr: &mut Mtr<'_>, page: PageId) -> Result<Freeing> {
    let page_size = mtr.pool().page_size();
    let group = page.page.0 / group_pages(page_size);
    let within = page.page.0 % group_pages(page_size);
    let id = PageId::new(page.space, bitmap_page(page_size, group));
    let bitmap = mtr.fix(id)?;
    let (at, bit) = (within / EXTENT_PAGES, within % EXTENT_PAGES);
    let p = mtr.page(bitmap);
    if p[OFF_KIND] != PageKind::Bitmap as u8 || word(p, at as usize) & 1 << bit == 0 {
        return Err(Error::corrupt(id, format!("page {} is to be freed but is not in use", page.page)));
    }
    let extent = PageId::new(page.space, PageNo(page.page.0 - bit));
    Ok(Freeing { extent, bitmap, word: at as u16, mask: 1 << bit })
}

/// Marks pages free. Their contents stay as they are: where somebody may still remember one (a cursor), the caller also
/// changes it by [`redo::RELEASE`].
///
/// # Errors
/// None after [`prepare_free`], unless the same page is freed twice.
pub fn free(mtr: &mut Mtr<'_>, freeing: Freeing) -> Result<()> {
    mtr.apply(freeing.bitmap, redo::FREE, &change_payload(freeing.word, freeing.mask))?;
    if let Some(space) = mtr.pool().spaces().get_known(freeing.extent.space) {
        space.may_spare(freeing.extent.page.0 / group_pages(mtr.pool().page_size()));
        if word_is_free(mtr.page(freeing.bitmap), usize::from(freeing.word)) {
            space.extent_emptied();
        }
    }
    let bits = (0..EXTENT_PAGES).filter(|bit| freeing.mask & 1 << bit != 0);
    bits.for_each(|bit| mtr.note_freed(PageId::new(freeing.extent.space, PageNo(freeing.extent.page.0 + bit))));
    Ok(())
}

/// Whether the bitmap says that a page is in use.
///
/// # Errors
/// The pool's.
pub fn is_in_use(pool: &BufferPool, page: PageId) -> Result<bool> {
    let group_pages = group_pages(pool.page_size());
    let within = page.page.0 % group_pages;
    let bitmap = shared_bitmap(pool, page.space, page.page.0 / group_pages)?;
    Ok(word(&bitmap, (within / EXTENT_PAGES) as usize) & 1 << (within % EXTENT_PAGES) != 0)
}

/// Pages that a file must have at least, by the beginning of a tablespace's first bitmap page (its header included): later
/// groups count by their number alone. `None` if it is no bitmap page.
pub fn file_pages_wanted(bitmap: &[u8], page_size: usize) -> Option<u64> {
    if bitmap.len() < WORDS || bitmap[OFF_KIND] != PageKind::Bitmap as u8 {
        return None;
    }
    Some(match u64::from(get_u32(bitmap, OFF_GROUPS)) {
        // The words that are not given may be of pages in use, which are counted.
        0 | 1 => group_pages_wanted(bitmap).max(u64::from(get_u32(bitmap, OFF_USED))),
        groups => (groups - 1) * u64::from(group_pages(page_size)) + 2,
    })
}

/// Pages from a group's begin to its last one in use.
fn group_pages_wanted(bitmap: &[u8]) -> u64 {
    let last = (0..word_count(bitmap.len())).rev().find(|&w| !word_is_free(bitmap, w));
    last.map_or(0, |w| (w as u64 + 1) * u64::from(EXTENT_PAGES) - u64::from(word(bitmap, w).leading_zeros()))
}

/// Pages that the tablespace's file must have for all pages that are in use.
///
/// # Errors
/// The pool's; [`Error::CorruptPage`] where a bitmap page is none.
pub fn pages_wanted(pool: &BufferPool, space: SpaceId) -> Result<u64> {
    // The last group has at least its bitmap page.
    let last = group_count(pool, space)? - 1;
    let before = u64::from(last) * u64::from(group_pages(pool.page_size()));
    Ok(before + group_pages_wanted(&shared_bitmap(pool, space, last)?))
}

/// Pages of the tablespace that are in use, as the bitmaps say.
///
/// # Errors
/// The pool's.
pub fn pages_in_use(pool: &BufferPool, space: SpaceId) -> Result<u64> {
    let used = |group| Ok(u64::from(get_u32(&shared_bitmap(pool, space, group)?, OFF_USED)));
    (0..group_count(pool, space)?).map(used).sum()
}

/// Extents of a tablespace that are to be given back to the file system, from [`plan_punch`]. The tablespace knows which they are, and
/// whoever takes a page of one takes it out ([`Space::plan_extent`]).
pub struct PunchPlan {
    /// Held, so that it is not forgotten.
    space: Arc<Space>,
    /// The log from here on has nothing about the pages of those that are still in the plan.
    lsn: Lsn,
    /// Groups that have some.
    groups: Vec<u32>,
}

/// What [`PunchPlan::punch`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Punched {
    /// No checkpoint has passed the plan yet: try later.
    TooEarly,
    /// This many pages were given back.
    Pages(u64),
}

/// Runs of extents punched while the bitmap page is latched.
const PUNCH_BATCH: usize = 8;

/// Notes the extents of a tablespace that are wholly free, for [`PunchPlan::punch`], in place of those noted before. `None` if there
/// are none.
///
/// # Errors
/// The pool's.
pub fn plan_punch(pool: &BufferPool, id: SpaceId) -> Result<Option<PunchPlan>> {
    if id == SpaceId::MEMORY {
        return Ok(None);
    }
    let space = pool.spaces().get(id)?;
    space.begin_plan();
    let groups = plan_groups(pool, &space);
    if groups.as_ref().map_or(true, Vec::is_empty) {
        space.end_plan();
        return groups.map(|_| None);
    }
    let lsn = pool.log().end_lsn();
    Ok(Some(PunchPlan { space, lsn, groups: groups? }))
}

/// The groups that have wholly free extents, which are in the plan now.
fn plan_groups(pool: &BufferPool, space: &Space) -> Result<Vec<u32>> {
    let (id, page_size) = (space.id(), pool.page_size());
    let file_extents = file_extents(pool, id)?;
    let mut groups = Vec::new();
    let (mut group, mut group_count) = (0, 1);
    while group < group_count {
        let bitmap = shared_bitmap(pool, id, group)?;
        if group == 0 {
            group_count = group_count_in(&bitmap, id)?;
        }
        let first = group * word_count(page_size) as u32;
        let mut some = false;
        for w in (0..words_in_file(page_size, file_extents, group)).filter(|&w| word_is_free(&bitmap, w as usize)) {
            space.plan_extent(first + w);
            some = true;
        }
        if some {
            groups.push(group);
        }
        group += 1;
    }
    Ok(groups)
}

/// Extents of the file; it may end within the last of them.
fn file_extents(pool: &BufferPool, space: SpaceId) -> Result<u64> {
    Ok(file_pages(pool, space)?.div_ceil(u64::from(EXTENT_PAGES)))
}

/// Words of a group's bitmap page whose extents are in a file of so many.
fn words_in_file(page_size: usize, file_extents: u64, group: u32) -> u32 {
    let words = word_count(page_size) as u64;
    file_extents.saturating_sub(u64::from(group) * words).min(words) as u32
}

impl PunchPlan {
    /// Gives the extents that nobody has used since back to the file system, if a checkpoint has passed the plan (recovery, also of a
    /// backup being made, then has nothing to redo on them). They get room on the device again when they are allocated, before anything
    /// is changed.
    ///
    /// # Errors
    /// The pool's and the file's.
    pub fn punch(&self, pool: &BufferPool) -> Result<Punched> {
        if pool.log().redo_start() < self.lsn {
            return Ok(Punched::TooEarly);
        }
        let punched = self.punch_groups(pool);
        self.space.end_plan();
        punched.map(Punched::Pages)
    }

    fn punch_groups(&self, pool: &BufferPool) -> Result<u64> {
        let page_size = pool.page_size();
        // One that was dropped is not opened.
        pool.spaces().get(self.space.id())?;
        let file_extents = file_extents(pool, self.space.id())?;
        let mut pages = 0;
        for &group in &self.groups {
            let id = PageId::new(self.space.id(), bitmap_page(page_size, group));
            let first = group * word_count(page_size) as u32;
            let end = first + words_in_file(page_size, file_extents, group);
            let mut at = first;
            while at < end {
                // Nobody allocates here while the bitmap page is latched.
                let _bitmap = pool.fix_exclusive(id)?;
                for _ in 0..PUNCH_BATCH {
                    let planned = |extent: &u32| self.space.is_planned(*extent);
                    let Some(from) = (at..end).find(planned) else {
                        at = end;
                        break;
                    };
                    at = (from..end).find(|extent| !planned(extent)).unwrap_or(end);
                    self.space.punch(PageNo(from * EXTENT_PAGES), (at - from) * EXTENT_PAGES)?;
                    pages += u64::from((at - from) * EXTENT_PAGES);
                }
            }
        }
        Ok(pages)
    }
}

#[cfg(test)]
mod tests;
