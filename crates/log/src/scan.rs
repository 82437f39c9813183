//! Reading the ring in the file, at start.

use crate::frame::{self, HEADER_BYTES};
use crate::header::{Header, BLOCK, RING_START};
use crate::{log, FrameVisitor};
use myriad_base::{Error, Lsn, Result};
use myriad_io::{AlignedBuf, File};

/// Bytes read at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes that the kernel is asked to read ahead of the window, at most: nothing ahead of the first window, since after a
/// clean stop that holds all there is, then twice as much each time.
const AHEAD_BYTES: u64 = 16 << 20;

/// How far behind the log's end frames are looked for that follow it no more: damage of a few sectors is less, and so are the frames
/// that it hits.
const BEYOND_BYTES: u64 = 1 << 20;
/// Bytes of what looks like a frame there that are read at most, as nonsense may look like many long ones.
const BEYOND_READ_MAX: usize = 64 << 20;

/// A whole frame behind the log's end, see [`crate::Log::frame_beyond`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBeyond {
    /// Where it is.
    pub start: Lsn,
    /// It is of a run of which the header does not know: an old header is in the place of the newest.
    pub of_unknown_run: bool,
}

/// The ring in the file, read through a window.
pub(crate) struct FileRing<'a> {
    file: &'a dyn File,
    header: &'a Header,
    window: AlignedBuf,
    /// What the window holds: `[window_start, window_end)`.
    window_start: u64,
    window_end: u64,
    /// How far ahead the kernel is asked to read at the next window.
    ahead: u64,
    /// Up to where it has been asked.
    announced: u64,
    /// What is read before this is written again, as it is.
    rewritten_to: u64,
}

impl<'a> FileRing<'a> {
    pub(crate) fn new(file: &'a dyn File, header: &'a Header) -> FileRing<'a> {
        let window = AlignedBuf::new(WINDOW_BYTES as usize);
        FileRing { file, header, window, window_start: 0, window_end: 0, ahead: 0, announced: 0, rewritten_to: 0 }
    }

    /// Writes all frames from the checkpoint to `end`, which a scan has found, to the file again. If a sync failed in an earlier
    /// life, they may be in the operating system's cache alone, which calls them clean. They are verified as they are written:
    /// the cache may have given some of them up since the scan.
    pub(crate) fn rewrite(mut self, end: u64) -> Result<()> {
        self.rewritten_to = end.next_multiple_of(BLOCK);
        let from = self.header.checkpoint;
        let found = self.scan(from, &mut |_, _, _| Ok(()))?;
        if found < end {
            let reason = format!("what the log had up to {end} cannot be read a second time");
            return Err(Error::CorruptLog { lsn: Lsn(found), reason });
        }
        Ok(())
    }

    /// Makes the window begin with the block of `lsn`. A file that was cut short reads as zeros.
    fn fill(&mut self, lsn: u64) -> Result<()> {
        let capacity = self.header.capacity;
        let start = lsn - lsn % BLOCK;
        let len = WINDOW_BYTES.min(capacity - start % capacity) as usize;
        if self.ahead > 0 && start + self.ahead / 2 >= self.announced {
            let from = self.announced.max(start);
            let to = start + self.ahead;
            // A range that goes round the ring's end is announced up to there; the rest comes with a later window.
            let len_ahead = (to - from).min(capacity - from % capacity);
            self.file.will_need(RING_START + from % capacity, len_ahead);
            self.announced = from + len_ahead;
        }
        self.ahead = (2 * self.ahead).clamp(2 * WINDOW_BYTES, AHEAD_BYTES);
        let n = self.file.read_at(&mut self.window[..len], RING_START + start % capacity)?;
        self.window[n..len].fill(0);
        if start < self.rewritten_to {
            let len = len.min((self.rewritten_to - start) as usize);
            self.file.write_at(&self.window[..len], RING_START + start % capacity)?;
        }
        (self.window_start, self.window_end) = (start, start + len as u64);
        Ok(())
    }

    /// Copies what is at `lsn`.
    pub(crate) fn read(&mut self, mut lsn: u64, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if lsn < self.window_start || lsn >= self.window_end {
                self.fill(lsn)?;
            }
            let at = (lsn - self.window_start) as usize;
            let n = out.len().min((self.window_end - lsn) as usize);
            out[..n].copy_from_slice(&self.window[at..at + n]);
            out = &mut out[n..];
            lsn += n as u64;
        }
        Ok(())
    }

    /// The first whole frame from the log's `end` on, where the scan found none, of this run or of the next one, which the header
    /// does not know. A frame's checksum has its LSN and its generation in it, so what earlier laps and runs have left is none.
    pub(crate) fn frame_beyond(mut self, end: u64) -> Result<Option<FrameBeyond>> {
        let limit = (end + BEYOND_BYTES).min(self.header.checkpoint + self.header.capacity);
        let mut bytes = vec![0; limit.saturating_sub(end) as usize];
        self.read(end, &mut bytes)?;
        let body_max = log::body_bytes_max(self.header.capacity);
        let unknown = self.header.next_generation();
        let (mut at, mut budget) = (0, BEYOND_READ_MAX);
        while let Some(header) = bytes.get(at..).and_then(|b| b.first_chunk()) {
            let (len, crc) = frame::parse_header(header);
            let body = bytes.get(at + HEADER_BYTES..).and_then(|b| b.get(..len));
            if let Some(body) = body.filter(|_| (1..=body_max).contains(&len)) {
                let start = end + at as u64;
                let is_of = |generation| frame::checksum(start, generation, body) == crc;
                let of_unknown_run = is_of(unknown);
                if of_unknown_run || is_of(self.header.generation_at(start)) {
                    return Ok(Some(FrameBeyond { start: Lsn(start), of_unknown_run }));
                }
                let Some(left) = budget.checked_sub(2 * len) else { break };
                budget = left;
            }
            at += 8;
        }
        Ok(None)
    }

    /// See [`crate::Log::scan`].
    pub(crate) fn scan(mut self, from: u64, f: &mut FrameVisitor<'_>) -> Result<u64> {
        // No more than one lap can be whole; the bound also ends the scan of a file full of nonsense.
        let limit = self.header.checkpoint + self.header.capacity;
        // All frames behind a checkpoint were written with the capacity that is in the header with it.
        let body_max = log::body_bytes_max(self.header.capacity);
        let mut body = Vec::new();
        let mut at = from;
        while at + (HEADER_BYTES as u64) < limit {
            let mut header = [0; HEADER_BYTES];
            self.read(at, &mut header)?;
            let (len, crc) = frame::parse_header(&header);
            let bytes = frame::frame_bytes(len) as u64;
            if len == 0 || len > body_max || at + bytes > limit {
                break;
            }
            body.resize(len, 0);
            self.read(at + HEADER_BYTES as u64, &mut body)?;
            if frame::checksum(at, self.header.generation_at(at), &body) != crc {
                break;
            }
            f(Lsn(at), Lsn(at + bytes), &body)?;
            at += bytes;
        }
        Ok(at)
    }
}
