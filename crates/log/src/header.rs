//! The log file's header: two slots of 4 KiB with the same contents, written one after the other. Only the sequence number of the
//! one that is written last is larger by one, so that it is known which that was.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `MYRIADLG` |
//! | 8 | 4 | format version |
//! | 12 | 4 | number of generations |
//! | 16 | 16 | UUID of the data directory |
//! | 32 | 8 | capacity of the ring in bytes |
//! | 40 | 8 | sequence number of this header |
//! | 48 | 8 | checkpoint LSN |
//! | 56 | 4 | length of the checkpoint's payload |
//! | 60 | 4 | flags: 1 the log is not whole, see `unlogged.rs`; others zero |
//! | 64 | 1024 | payload |
//! | 1088 | 12 each | generations: first LSN (8), number (4), by LSN |
//! | 4092 | 4 | CRC-32C of bytes 0 to 4092 |
//!
//! A generation begins at each opening of the log. It is part of every frame's checksum, so that what was written, but
//! never found again, before a crash (after a hole) cannot be taken for frames later. Generations that end before the
//! checkpoint are forgotten.
//!
//! The format version is 1 without flags and 2 with any: a program that does not know them must not open the log.

use myriad_base::codec::{get_u32, get_u64, put_u32, put_u64};
use myriad_base::limits::CHECKPOINT_BYTES_MAX;
use myriad_base::{crc32c, Error, Result};
use myriad_io::{AlignedBuf, File, SyncMark, Syncs};

/// Bytes of a slot, and the unit in which the file is written.
pub(crate) const BLOCK: u64 = 4096;
/// Where the ring begins in the file.
pub(crate) const RING_START: u64 = 2 * BLOCK;
/// Generations that a header holds.
pub(crate) const GENERATIONS_MAX: usize = (OFF_CRC - OFF_GENERATIONS) / GENERATION_BYTES;

const MAGIC: &[u8; 8] = b"MYRIADLG";
const FORMAT_VERSION: u32 = 1;
/// Of a header with flags.
const FORMAT_VERSION_FLAGS: u32 = 2;
const FLAG_UNLOGGED: u32 = 1;
const OFF_PAYLOAD: usize = 64;
const OFF_GENERATIONS: usize = OFF_PAYLOAD + CHECKPOINT_BYTES_MAX;
const GENERATION_BYTES: usize = 12;
const OFF_CRC: usize = BLOCK as usize - 4;

/// From `first_lsn` on, frames carry this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) first_lsn: u64,
    pub(crate) number: u32,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) uuid: [u8; 16],
    pub(crate) capacity: u64,
    pub(crate) sequence: u64,
    pub(crate) checkpoint: u64,
    pub(crate) payload: Vec<u8>,
    /// Changes were made that are in no frame of the file: it is of no use for recovery.
    pub(crate) unlogged: bool,
    /// Not empty; by `first_lsn`; the first is at or before the checkpoint.
    pub(crate) generations: Vec<Generation>,
    /// Not in the file: the slot to be written first, because the other one is surer to be whole.
    pub(crate) first_slot: u64,
}

impl Header {
    /// What is to be written next, as it is so far. Each write takes two numbers.
    pub(crate) fn next(&self) -> Header {
        Header { sequence: self.sequence + 2, ..self.clone() }
    }

    fn encode(&self, block: &mut [u8]) {
        assert!(self.payload.len() <= CHECKPOINT_BYTES_MAX);
        assert!((1..=GENERATIONS_MAX).contains(&self.generations.len()));
        block.fill(0);
        block[..8].copy_from_slice(MAGIC);
        put_u32(block, 8, if self.unlogged { FORMAT_VERSION_FLAGS } else { FORMAT_VERSION });
        put_u32(block, 12, self.generations.len() as u32);
        block[16..32].copy_from_slice(&self.uuid);
        put_u64(block, 32, self.capacity);
        put_u64(block, 40, self.sequence);
        put_u64(block, 48, self.checkpoint);
        put_u32(block, 56, self.payload.len() as u32);
        put_u32(block, 60, if self.unlogged { FLAG_UNLOGGED } else { 0 });
        block[OFF_PAYLOAD..OFF_PAYLOAD + self.payload.len()].copy_from_slice(&self.payload);
        for (i, g) in self.generations.iter().enumerate() {
            let at = OFF_GENERATIONS + i * GENERATION_BYTES;
            put_u64(block, at, g.first_lsn);
            put_u32(block, at + 8, g.number);
        }
        let crc = crc32c(&block[..OFF_CRC]);
        put_u32(block, OFF_CRC, crc);
    }

    /// `Ok(None)` if the slot is damaged or empty.
    fn decode(block: &[u8], path: &str) -> Result<Option<Header>> {
        if &block[..8] != MAGIC || get_u32(block, OFF_CRC) != crc32c(&block[..OFF_CRC]) {
            return Ok(None);
        }
        let version = get_u32(block, 8);
        let flags = get_u32(block, 60);
        let known = match version {
            FORMAT_VERSION => flags == 0,
            FORMAT_VERSION_FLAGS => flags == FLAG_UNLOGGED,
            _ => false,
        };
        if !known {
            let reason = format!(
                "log version {version} with flags {flags}, this engine reads versions {FORMAT_VERSION} and \
                 {FORMAT_VERSION_FLAGS}"
            );
            return Err(Error::Format { path: path.into(), reason });
        }
        let generations = get_u32(block, 12) as usize;
        let payload = get_u32(block, 56) as usize;
        let capacity = get_u64(block, 32);
        let checkpoint = get_u64(block, 48);
        let sane = (1..=GENERATIONS_MAX).contains(&generations)
            && payload <= CHECKPOINT_BYTES_MAX
            && capacity > 0
            && capacity.is_multiple_of(BLOCK)
            && checkpoint.is_multiple_of(8);
        if !sane {
            return Ok(None);
        }
        let generation = |i: usize| {
            let at = OFF_GENERATIONS + i * GENERATION_BYTES;
            Generation { first_lsn: get_u64(block, at), number: get_u32(block, at + 8) }
        };
        Ok(Some(Header {
            uuid: block[16..32].try_into().expect("16 bytes"),
            capacity,
            sequence: get_u64(block, 40),
            checkpoint,
            payload: block[OFF_PAYLOAD..OFF_PAYLOAD + payload].to_vec(),
            unlogged: flags & FLAG_UNLOGGED != 0,
            generations: (0..generations).map(generation).collect(),
            first_slot: 0,
        }))
    }

    /// The newest whole slot.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] when neither is whole, [`Error::Format`], [`Error::Io`].
    pub(crate) fn read(file: &dyn File) -> Result<Header> {
        let path = file.path().display().to_string();
        let mut slots = [None, None];
        for (slot, found) in (0..).zip(&mut slots) {
            let mut block = AlignedBuf::new(BLOCK as usize);
            let n = file.read_at(&mut block, slot * BLOCK)?;
            block[n..].fill(0);
            *found = Header::decode(&block, &path)?;
        }
        let (newest, first_slot) = match slots {
            [None, None] => return Err(Error::CorruptFile { path, reason: "both log headers are damaged".into() }),
            [Some(only), None] => (only, 1),
            [None, Some(only)] => (only, 0),
            // A sync may have failed since: what was written last is the less sure.
            [Some(zero), Some(one)] if zero.sequence > one.sequence => (zero, 0),
            [Some(_), Some(one)] => (one, 1),
        };
        Ok(Header { first_slot, ..newest })
    }

    /// Writes both slots, the first durable before the second is touched, so that one is always whole. Both: else a slot
    /// damaged later would leave only a checkpoint whose log is overwritten. `syncs` are the file's.
    pub(crate) fn write(&self, file: &dyn File, syncs: &Syncs) -> Result<()> {
        let mut block = AlignedBuf::new(BLOCK as usize);
        for (nth, slot) in (0..).zip([self.first_slot, 1 - self.first_slot]) {
            Header { sequence: self.sequence + nth, ..self.clone() }.encode(&mut block);
            file.write_at(&block, slot * BLOCK)?;
            syncs.sync(file, SyncMark::START)?;
        }
        Ok(())
    }

    /// Nothing is written at or after this: it would overwrite the block the checkpoint lies in.
    pub(crate) fn write_limit(&self) -> u64 {
        self.checkpoint - self.checkpoint % BLOCK + self.capacity
    }

    /// The number of the next generation to begin.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generations.iter().map(|g| g.number).max().expect("there is one").wrapping_add(1)
    }

    /// The generation of a frame at `lsn`.
    pub(crate) fn generation_at(&self, lsn: u64) -> u32 {
        let after = self.generations.partition_point(|g| g.first_lsn <= lsn);
        self.generations[after.saturating_sub(1)].number
    }

    /// Forgets the generations that end before the checkpoint. One that ends at it tells which run the data files are of.
    pub(crate) fn trim_generations(&mut self) {
        let current = self.generations.partition_point(|g| g.first_lsn < self.checkpoint).saturating_sub(1);
        self.generations.drain(..current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            uuid: [3; 16],
            capacity: 1 << 20,
            sequence: 9,
            checkpoint: 5000,
            payload: b"payload".to_vec(),
            unlogged: false,
            generations: [(4096, 1), (5000, 2), (6000, 5)]
                .map(|(first_lsn, number)| Generation { first_lsn, number })
                .to_vec(),
            first_slot: 0,
        }
    }

    #[test]
    fn round_trip_and_damage() {
        let mut block = vec![0; BLOCK as usize];
        header().encode(&mut block);
        assert_eq!(Header::decode(&block, "l").unwrap(), Some(header()));
        for at in (0..BLOCK as usize).step_by(7) {
            block[at] ^= 32;
            assert_eq!(Header::decode(&block, "l").unwrap(), None, "byte {at}");
            block[at] ^= 32;
        }
        assert_eq!(Header::decode(&[0; BLOCK as usize], "l").unwrap(), None);
    }

    #[test]
    fn flags_and_versions() {
        let mut block = vec![0; BLOCK as usize];
        let marked = Header { unlogged: true, ..header() };
        marked.encode(&mut block);
        assert_eq!(get_u32(&block, 8), 2, "a program of version 1 refuses it");
        assert_eq!(Header::decode(&block, "l").unwrap(), Some(marked));
        for (version, flags) in [(1, 1), (2, 0), (2, 2), (2, 3), (3, 0), (3, 1)] {
            put_u32(&mut block, 8, version);
            put_u32(&mut block, 60, flags);
            let crc = crc32c(&block[..OFF_CRC]);
            put_u32(&mut block, OFF_CRC, crc);
            assert!(matches!(Header::decode(&block, "l"), Err(Error::Format { .. })), "{version} {flags}");
        }
    }

    #[test]
    fn the_newer_slot_counts() {
        use myriad_io::{Io, OpenMode, SimIo};
        for newer in 0..2 {
            let io = SimIo::new(1);
            let file = io.open(std::path::Path::new("/l"), OpenMode::NEW).unwrap();
            for slot in 0..2 {
                let mut block = AlignedBuf::new(BLOCK as usize);
                let sequence = 7 + u64::from(slot == newer);
                Header { sequence, ..header() }.encode(&mut block);
                file.write_at(&block, slot * BLOCK).unwrap();
            }
            assert_eq!(Header::read(&*file).unwrap().sequence, 8);
        }
    }

    #[test]
    fn one_slot_survives_failed_syncs_and_power_failures_in_a_row() {
        use myriad_io::{CallKind, Fault, Io, OpenMode, SimIo};
        let path = std::path::Path::new("/l");
        for seed in 0..300 {
            let mut io = SimIo::new(seed);
            let file = io.open(path, OpenMode::NEW).unwrap();
            header().write(&*file, &Syncs::default()).unwrap();
            io.sync_dir(std::path::Path::new("/")).unwrap();
            for round in 0..4 {
                let file = io.open(path, OpenMode::WRITE).unwrap();
                let found = Header::read(&*file).unwrap_or_else(|e| panic!("seed {seed} round {round}: {e}"));
                io.inject(CallKind::Sync, "l", (seed >> round) & 1, Fault::Eio, false);
                assert!(found.next().write(&*file, &Syncs::default()).is_err());
                // The machine goes on, or does not.
                let end = if (seed >> (4 + round)) & 1 == 0 { SimIo::crash } else { SimIo::kill };
                io = end(&io, seed * 10 + round);
            }
            let file = io.crash(seed).open(path, OpenMode::READ).unwrap();
            Header::read(&*file).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }

    #[test]
    fn generations() {
        let mut h = header();
        let at = [4096, 4999, 5000, 5999, 6000, 1 << 40].map(|l| h.generation_at(l));
        assert_eq!(at, [1, 1, 2, 2, 5, 5]);
        h.trim_generations();
        assert_eq!(h.generations.len(), 3, "one ends at the checkpoint");
        h.checkpoint = 5008;
        h.trim_generations();
        assert_eq!(h.generations.len(), 2);
        assert_eq!(h.generation_at(5000), 2);
        h.checkpoint = 7000;
        h.trim_generations();
        assert_eq!(h.generations, [Generation { first_lsn: 6000, number: 5 }]);
    }
}
