//! Heads by io_uring: one thread opens the files, one after the other, and keeps many reads in flight.
//!
//! Only the reads go through the ring. An open that finds nothing in the kernel's caches is given by the ring to a worker
//! thread, and the two switches of the processor cost more than the open itself. In the order of the inodes (see
//! [`read_heads`](super::read_heads)) an open seldom waits for the device: one read of the inode table serves hundreds.

use super::{is_want, Head, HeadOptions, Named, NextFile, Opener};
use io_uring::{opcode, types, IoUring};
use myriad_io::AlignedBuf;
use std::fs::File;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Reads are handed to the kernel this many at a time: each call, and each notice to the device, costs.
const SUBMIT_READS: usize = 32;
/// Reads that the thread waits for at a time; the others are under way meanwhile.
const WAIT_READS: usize = 32;
/// Files in hand at most.
const DEPTH: usize = 128;

/// A ring. Where the kernel can, one that gives no signals and does its work when it is asked for results.
fn new_ring(entries: usize) -> Result<IoUring> {
    let entries = entries as u32;
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries).or_else(|_| IoUring::new(entries))
}

/// Whether this kernel lets us use io_uring.
pub fn uring_available() -> bool {
    IoUring::new(2).is_ok()
}

struct Slot {
    path: PathBuf,
    /// The file in hand, of which a read is under way.
    file: Option<File>,
    file_bytes: u64,
    /// What the first read gave, while the second is under way.
    first: Option<usize>,
}

/// One thread's ring and the files it has in hand. Used by the thread that made it.
pub(super) struct Ring<'a> {
    ring: IoUring,
    slots: Vec<Slot>,
    /// Room for what is read, the same for each slot.
    buffer: AlignedBuf,
    /// Whether the kernel has the buffer's pages at hand for all reads, rather than looking for them at each.
    registered: bool,
    next: NextFile<'a>,
    /// A file that could not be opened because of those in hand.
    waiting: Option<Named>,
    options: HeadOptions,
    opener: Opener<'a>,
    busy: usize,
    /// Reads that the kernel has not been given yet.
    queued: usize,
}

impl<'a> Ring<'a> {
    pub(super) fn new(folder: &'a OwnedFd, next: NextFile<'a>, options: HeadOptions) -> Result<Ring<'a>> {
        let slot = || Slot { path: PathBuf::new(), file: None, file_bytes: 0, first: None };
        let depth = DEPTH.min(options.ring_files());
        let (ring, buffer) = (new_ring(depth)?, AlignedBuf::new(depth * options.buffer_bytes()));
        let part = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
        // SAFETY: the buffer lives as long as the ring, or longer.
        let registered = unsafe { ring.submitter().register_buffers(&[part]) }.is_ok();
        let (slots, opener) = ((0..depth).map(|_| slot()).collect(), Opener::new(folder, options));
        Ok(Ring { ring, slots, buffer, registered, next, waiting: None, options, opener, busy: 0, queued: 0 })
    }

    /// Files that are left: those in hand when the kernel took no more requests.
    pub(super) fn run(mut self, f: &(dyn Fn(Head<'_>) + Sync)) -> Vec<Named> {
        for slot in 0..self.slots.len() {
            self.take_file(slot, f);
        }
        let mut done: Vec<(u64, i32)> = Vec::with_capacity(self.slots.len());
        while self.busy > 0 {
            self.queued = 0;
            match self.ring.submit_and_wait(self.busy.min(WAIT_READS)) {
                // A signal, no memory for the moment, or answers to be taken first: the reads stay where they are.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                    std::thread::yield_now();
                }
                Err(_) => return self.in_hand(),
                Ok(_) => {}
            }
            done.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (slot, result) in done.drain(..) {
                self.completed(slot as usize, result, f);
            }
        }
        Vec::new()
    }

    fn in_hand(&mut self) -> Vec<Named> {
        let begun = self.slots.iter_mut().filter(|s| s.file.is_some());
        let begun = begun.map(|s| Named { path: std::mem::take(&mut s.path), inode: None });
        begun.chain(self.waiting.take()).collect()
    }

    /// Gives the slot the next file that can be opened, if there is one, and begins to read it. Where descriptors are wanting it
    /// stays empty, and who gives one back opens the file.
    fn take_file(&mut self, slot: usize, f: &(dyn Fn(Head<'_>) + Sync)) {
        while let Some(named) = self.waiting.take().or_else(|| (self.next)()) {
            match self.opener.open(&named) {
                Ok((file, file_bytes)) => {
                    let s = &mut self.slots[slot];
                    (s.path, s.file, s.file_bytes, s.first) = (named.path, Some(file), file_bytes, None);
                    self.busy += 1;
                    self.read(slot);
                    return;
                }
                Err(e) if self.busy > 0 && is_want(&e) => {
                    self.waiting = Some(named);
                    return;
                }
                Err(e) => f(Head { path: named.path, file_bytes: 0, bytes: Err(e), second: &[] }),
            }
        }
    }

    /// Begins the read that the slot's file is to have now.
    fn read(&mut self, slot: usize) {
        let (s, size) = (&self.slots[slot], self.options.buffer_bytes());
        let Some(file) = &s.file else { return };
        let (first, again) = self.buffer[slot * size..][..size].split_at_mut(self.options.bytes);
        let (at, part) = match (s.first, self.options.second) {
            (Some(_), Some(second)) => (second.at, again),
            _ => (0, first),
        };
        let (fd, data, len) = (types::Fd(file.as_raw_fd()), part.as_mut_ptr(), part.len() as u32);
        let read = match self.registered {
            true => opcode::ReadFixed::new(fd, data, len, 0).offset(at).build(),
            false => opcode::Read::new(fd, data, len).offset(at).build(),
        };
        let read = read.user_data(slot as u64);
        // SAFETY: the entry's pointer leads into the buffer, which lives and stays in place until the read's completion
        // has been taken: when it is not waited for (an error, a panic), `drop` leaks the buffer.
        while unsafe { self.ring.submission().push(&read) }.is_err() {
            // The queue has an entry for each slot; a full one only means that the kernel has not taken them yet.
            let _ = self.ring.submit();
        }
        self.queued += 1;
        if self.queued >= SUBMIT_READS {
            self.queued = 0;
            // What it does not take now it takes when it is waited for.
            let _ = self.ring.submit();
        }
    }

    fn completed(&mut self, slot: usize, result: i32, f: &(dyn Fn(Head<'_>) + Sync)) {
        let read = if result < 0 { Err(std::io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        let s = &mut self.slots[slot];
        let refused = read.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL));
        if refused && s.file.as_ref().is_some_and(|file| self.opener.make_plain(file)) {
            return self.read(slot);
        }
        match (s.first, read) {
            (None, Ok(n)) if self.options.second_of(s.file_bytes).is_some() => {
                s.first = Some(n);
                self.read(slot);
            }
            (None, read) => self.finish(slot, read, 0, f),
            // Without the second read there is nothing to tell from it.
            (Some(first), again) => self.finish(slot, Ok(first), again.unwrap_or(0), f),
        }
    }

    fn finish(&mut self, slot: usize, read: Result<usize>, again: usize, f: &(dyn Fn(Head<'_>) + Sync)) {
        let s = &mut self.slots[slot];
        s.file = None;
        self.busy -= 1;
        let size = self.options.buffer_bytes();
        let (first, second) = self.buffer[slot * size..][..size].split_at(self.options.bytes);
        let (path, bytes) = (std::mem::take(&mut s.path), read.map(|n| &first[..n]));
        f(Head { path, file_bytes: s.file_bytes, bytes, second: &second[..again] });
        self.take_file(slot, f);
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        if self.busy > 0 {
            // The kernel may still write to it.
            std::mem::forget(std::mem::replace(&mut self.buffer, AlignedBuf::new(1)));
        }
    }
}
