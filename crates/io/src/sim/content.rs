//! A simulated file's bytes, and the changes to them that are not durable yet.

use myriad_base::random::Random;
use std::collections::HashMap;

const BLOCK: usize = 4096;
/// What the device writes whole or not at all.
const SECTOR: u64 = 512;

/// Bytes, kept in blocks; a missing block is zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    blocks: HashMap<u64, Box<[u8]>>,
    pub(super) len: u64,
}

impl Content {
    /// Calls `f(block number, offset in it, range of the request)` for the blocks of `[off, off + len)`.
    fn pieces(off: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = off + done as u64;
            let within = (at % BLOCK as u64) as usize;
            let n = (BLOCK - within).min(len - done);
            f(at / BLOCK as u64, within, done..done + n);
            done += n;
        }
    }

    /// Copies what is at `off`; the number of bytes before the end.
    pub(super) fn read(&self, off: u64, out: &mut [u8]) -> usize {
        let n = self.len.saturating_sub(off).min(out.len() as u64) as usize;
        Content::pieces(off, n, |block, at, range| {
            let out = &mut out[range];
            match self.blocks.get(&block) {
                Some(bytes) => out.copy_from_slice(&bytes[at..at + out.len()]),
                None => out.fill(0),
            }
        });
        n
    }

    pub(super) fn write(&mut self, off: u64, data: &[u8]) {
        Content::pieces(off, data.len(), |block, at, range| {
            let bytes = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK].into());
            bytes[at..at + range.len()].copy_from_slice(&data[range]);
        });
        self.len = self.len.max(off + data.len() as u64);
    }

    fn zero(&mut self, off: u64, len: u64) {
        let end = off.saturating_add(len);
        self.blocks.retain(|&block, bytes| {
            let start = block * BLOCK as u64;
            let (from, to) = (off.max(start), end.min(start + BLOCK as u64));
            if from < to {
                bytes[(from - start) as usize..(to - start) as usize].fill(0);
            }
            from > start || to < start + BLOCK as u64
        });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, u64::MAX - len);
        }
        self.len = len;
    }
}

/// A change that a sync makes durable.
#[derive(Clone)]
pub(super) enum Pending {
    Write {
        off: u64,
        data: Box<[u8]>,
    },
    SetLen(u64),
    /// The file becomes at least this long.
    Grow(u64),
    Punch {
        off: u64,
        len: u64,
    },
}

impl Pending {
    /// The length of a file of `len` bytes after this.
    pub(super) fn len_after(&self, len: u64) -> u64 {
        match self {
            Pending::Write { off, data } => len.max(off + data.len() as u64),
            Pending::SetLen(to) => *to,
            Pending::Grow(to) => len.max(*to),
            Pending::Punch { .. } => len,
        }
    }

    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Pending::Write { off, data } => content.write(*off, data),
            Pending::SetLen(len) => content.set_len(*len),
            Pending::Grow(len) => content.len = content.len.max(*len),
            Pending::Punch { off, len } => content.zero(*off, *len),
        }
    }

    /// Applies some sectors of a write.
    fn apply_torn(&self, content: &mut Content, random: &mut Random) {
        let Pending::Write { off, data } = self else { return self.apply(content) };
        let mut at = 0;
        while at < data.len() {
            let to_boundary = SECTOR - (off + at as u64) % SECTOR;
            let n = (data.len() - at).min(to_boundary as usize);
            if random.one_in(2) {
                content.write(off + at as u64, &data[at..at + n]);
            }
            at += n;
        }
    }
}

/// How much of what was not durable survives.
#[derive(Clone, Copy)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// Each change by itself, one in four of them torn.
    Some,
}

impl Survival {
    pub(super) fn pick(random: &mut Random) -> Survival {
        match random.below(5) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            _ => Survival::Some,
        }
    }

    pub(super) fn apply(self, pending: &[Pending], content: &mut Content, random: &mut Random) {
        for change in pending {
            match self {
                Survival::Nothing => {}
                Survival::Everything => change.apply(content),
                Survival::Some => match random.below(8) {
                    0..=2 => {}
                    3 | 4 => change.apply_torn(content, random),
                    _ => change.apply(content),
                },
            }
        }
    }
}
