//! The copy of one tablespace file, extent by extent, while its pages are being written.

use crate::engine::Engine;
use myriad_base::page::{self, is_zero};
use myriad_base::{Error, PageId, PageNo, Result, SpaceId};
use myriad_btree::alloc;
use myriad_buffer::Level;
use myriad_io::{AlignedBuf, File, Io, OpenMode};
use myriad_space::{SpaceHeader, HEADER_READ_BYTES};
use std::path::Path;
use std::sync::Arc;

/// Pages copied at a time. Room in a file is given back, and taken again, by the extent.
const EXTENT_PAGES: usize = 64;
/// How often a page that does not verify is read again: it may just be being written.
const READS_MAX: u32 = 10;
const ENOENT: i32 = 2;

/// A file being copied.
pub(crate) struct FileCopy {
    pub(crate) name: String,
    space: SpaceId,
    from: Arc<dyn File>,
    to: Arc<dyn File>,
    page_size: usize,
    /// First page not copied.
    next: u32,
    buffer: AlignedBuf,
}

impl FileCopy {
    /// `None` if the file is gone.
    pub(crate) fn begin(
        io: &Arc<dyn Io>,
        source: &Path,
        folder: &Path,
        name: String,
        page_size: usize,
    ) -> Result<Option<FileCopy>> {
        // Not by the registry: its clock of open files is for those in use.
        let from = match io.open(&source.join(&name), OpenMode::READ.with_direct(true)) {
            Err(Error::Io { errno: ENOENT, .. }) => return Ok(None),
            other => other?,
        };
        let buffer = AlignedBuf::new(EXTENT_PAGES * page_size);
        let mut copy =
            FileCopy { name, space: SpaceId(0), from: Arc::clone(&from), to: from, page_size, next: 0, buffer };
        let read = copy.from.read_at(&mut copy.buffer[..HEADER_READ_BYTES], 0)?;
        let header = SpaceHeader::parse(&copy.buffer[..read], &copy.from.path().display().to_string())?;
        copy.space = header.id;
        copy.to = io.open(&folder.join(&copy.name), OpenMode::NEW.with_direct(true))?;
        Ok(Some(copy))
    }

    /// The tablespace, by the file's header.
    pub(crate) fn space(&self) -> SpaceId {
        self.space
    }

    /// Copies an extent, unless all of it is zero: then it stays a hole. Bytes written.
    pub(crate) fn copy_extent(&mut self, engine: &Engine) -> Result<u64> {
        let offset = u64::from(self.next) * self.page_size as u64;
        let read = self.from.read_at(&mut self.buffer, offset)?;
        // Pages beyond the file's end have not been used before this backup began.
        let pages = read / self.page_size;
        let mut empty = true;
        for i in 0..pages {
            let id = PageId::new(self.space, PageNo(self.next + i as u32));
            let bytes = &mut self.buffer[i * self.page_size..(i + 1) * self.page_size];
            if is_zero(bytes) {
                continue;
            }
            empty = false;
            if !is_whole(bytes, id) {
                read_again(&*self.from, engine, id, bytes)?;
            }
        }
        self.next += pages as u32;
        if empty {
            return Ok(0);
        }
        let bytes = &self.buffer[..pages * self.page_size];
        self.to.write_at(bytes, offset)?;
        Ok(bytes.len() as u64)
    }

    /// Whether the file's end is reached. The file is looked at again: it may have grown.
    pub(crate) fn is_done(&self) -> Result<bool> {
        Ok(u64::from(self.next) >= self.from.len()? / self.page_size as u64)
    }

    /// How much of the file is copied, in thousandths.
    pub(crate) fn permille(&self) -> u32 {
        let pages = self.from.len().unwrap_or(0) / self.page_size as u64;
        (u64::from(self.next) * 1000).checked_div(pages).unwrap_or(1000).min(1000) as u32
    }

    /// The whole copy, which is not durable yet.
    pub(crate) fn finish(&self) -> Result<Arc<dyn File>> {
        // A hole at the end.
        self.to.set_len(u64::from(self.next) * self.page_size as u64)?;
        Ok(Arc::clone(&self.to))
    }
}

fn is_whole(bytes: &[u8], id: PageId) -> bool {
    page::verify(bytes, id).and_then(|()| page::check_lost(bytes, id)).is_ok()
}

/// Gets a page that does not verify: it is read again some times, then asked of the pool, which has it in memory or can
/// repair it after a crash. One that is not in use may be as it is.
fn read_again(from: &dyn File, engine: &Engine, id: PageId, bytes: &mut [u8]) -> Result<()> {
    let size = bytes.len();
    let mut buffer = AlignedBuf::new(size);
    for _ in 0..READS_MAX {
        std::thread::yield_now();
        let read = from.read_at(&mut buffer, u64::from(id.page.0) * size as u64)?;
        if read == size && (is_zero(&buffer) || is_whole(&buffer, id)) {
            bytes.copy_from_slice(&buffer);
            return Ok(());
        }
    }
    if engine.parts.spaces.check_missed(id.space).is_err() {
        return Ok(()); // nobody can use any of it
    }
    match engine.pool().fix_shared(id) {
        Ok(page) => {
            bytes.copy_from_slice(&page);
            drop(page);
            page::seal(bytes);
            Ok(())
        }
        Err(e @ (Error::CorruptPage { .. } | Error::TablespaceUnavailable { .. })) => {
            let dropped = engine.parts.spaces.was_dropped(id.space);
            if !dropped && (id.space == SpaceId::UNDO || alloc::is_in_use(engine.pool(), id)?) {
                return Err(e);
            }
            if !dropped {
                let text = format!("backup: {e}; the page is not in use and is copied as it is");
                (engine.parts.report)(Level::Warning, &text);
            }
            Ok(())
        }
        Err(e) => Err(e),
    }
}
