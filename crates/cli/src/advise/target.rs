//! What the measurement reads: a temporary file of its own, or the files that are there.
//!
//! The temporary file has no name (or loses it at once), so the kernel removes it however the process ends.

use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::{fcntl_getfl, fcntl_setfl, Advice, OFlags, SeekFrom};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Reads start at multiples of this many bytes, or of the device's block where that is larger.
const ALIGN: u64 = 4096;
/// Files of others kept open at most.
const FILES_MAX: usize = 256;
/// Written parts of a file that are looked for at most.
const PARTS_MAX: usize = 64;
const MIB: u64 = 1 << 20;

/// Where reads may go.
pub struct Target {
    files: Vec<File>,
    /// File's number, start and length of written parts, each at least the largest read long.
    parts: Vec<(usize, u64, u64)>,
    align: u64,
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// What it is, for people.
    pub what: String,
    /// A path by which an own file can be opened again.
    pub own_path: Option<PathBuf>,
}

impl Target {
    /// A temporary file of `bytes` on the file system of `dir`, written with contents that cannot be compressed.
    ///
    /// # Errors
    /// What the system said; [`ErrorKind::StorageFull`] also where the file would leave less free than it takes.
    pub fn temporary(dir: &Path, bytes: u64, align: u64) -> std::io::Result<Target> {
        let room = rustix::fs::statvfs(dir)?;
        let mut file = tempfile::tempfile_in(dir)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < bytes.saturating_mul(2) {
            return Err(ErrorKind::StorageFull.into());
        }
        let mut random = rand::rngs::SmallRng::seed_from_u64(1);
        let mut chunk = vec![0u8; MIB as usize];
        for _ in 0..bytes.div_ceil(MIB) {
            random.fill_bytes(&mut chunk);
            file.write_all(&chunk)?;
        }
        file.sync_data()?;
        let direct = set_direct(&file);
        let own_path = Some(PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))));
        let what = format!("a temporary file of {} MiB, removed again", bytes.div_ceil(MIB));
        let parts = vec![(0, 0, bytes)];
        Ok(Target { files: vec![file], parts, align: align.max(ALIGN), direct, what, own_path })
    }

    /// The written parts of existing files, read only; those of at least `read_bytes_max` bytes.
    ///
    /// # Errors
    /// A sentence, where none can be read.
    pub fn existing(dir: &Path, paths: &[PathBuf], read_bytes_max: u64, align: u64) -> Result<Target, String> {
        let align = align.max(ALIGN);
        let step = paths.len().div_ceil(FILES_MAX).max(1);
        let (mut files, mut parts, mut direct, mut why) = (Vec::new(), Vec::new(), true, None);
        for path in paths.iter().step_by(step) {
            let (file, is_direct) = match open_existing(path) {
                Ok(opened) => opened,
                Err(e) => {
                    why.get_or_insert(format!("{}: {e}", path.display()));
                    continue;
                }
            };
            let found = written_parts(&file, read_bytes_max, align);
            if !found.is_empty() {
                direct &= is_direct;
                parts.extend(found.into_iter().map(|(start, len)| (files.len(), start, len)));
                files.push(file);
            }
        }
        if parts.is_empty() {
            let why = why.map_or(String::new(), |w| format!(" ({w})"));
            return Err(format!(
                "{} holds no tablespace file with {} KiB of data to read{why}",
                dir.display(),
                read_bytes_max >> 10
            ));
        }
        let total: u64 = parts.iter().map(|p| p.2).sum();
        let what = format!("{} existing files with {} KiB of data, read only", files.len(), total >> 10);
        Ok(Target { files, parts, align, direct, what, own_path: None })
    }

    /// Somewhere to read `bytes` from.
    pub fn pick(&self, random: &mut impl Rng, bytes: usize) -> (&File, u64) {
        let (file, start, len) = self.parts[random.random_range(0..self.parts.len())];
        let places = (len - bytes as u64) / self.align + 1;
        (&self.files[file], start + random.random_range(0..places) * self.align)
    }
}

/// Bypasses the page cache from here on; false where the file system refuses.
fn set_direct(file: &File) -> bool {
    fcntl_getfl(file).is_ok_and(|flags| fcntl_setfl(file, flags | OFlags::DIRECT).is_ok())
}

/// Opens a file for reading, bypassing the page cache where possible (then true).
fn open_existing(path: &Path) -> std::io::Result<(File, bool)> {
    let open = |flags: i32| File::options().read(true).custom_flags(flags).open(path);
    // O_NOATIME is the owner's alone.
    let file = open(libc::O_NOATIME).or_else(|_| open(0))?;
    let direct = set_direct(&file);
    if !direct {
        // Advice: without it the figures only look better.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    }
    Ok((file, direct))
}

/// Start and length of the parts of a file that hold data: a hole would be read without the device.
fn written_parts(file: &File, bytes_min: u64, align: u64) -> Vec<(u64, u64)> {
    let len = file.metadata().map_or(0, |m| m.size());
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < len && parts.len() < PARTS_MAX {
        let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len).min(len);
        let first = start.next_multiple_of(align);
        if first + bytes_min <= end {
            parts.push((first, end - first));
        }
        at = end.max(start + 1);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_temporary_file_has_no_name_and_reads_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::temporary(dir.path(), 2 * MIB, 512).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(target.files[0].metadata().unwrap().len(), 2 * MIB);
        let mut random = rand::rngs::SmallRng::seed_from_u64(7);
        for bytes in [4096, 32768] {
            for _ in 0..1000 {
                let (_, at) = target.pick(&mut random, bytes);
                assert!(at % 4096 == 0 && at + bytes as u64 <= 2 * MIB);
            }
        }
    }

    #[test]
    fn a_file_larger_than_half_the_free_space_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Target::temporary(dir.path(), u64::MAX / 4, 512).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn holes_of_existing_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ibd");
        let file = File::create(&path).unwrap();
        file.write_all_at(&[1; 65536], MIB).unwrap();
        file.set_len(4 * MIB).unwrap();
        file.sync_all().unwrap();
        let target = Target::existing(dir.path(), &[path], 32768, 512).unwrap();
        let mut random = rand::rngs::SmallRng::seed_from_u64(7);
        for _ in 0..200 {
            let (_, at) = target.pick(&mut random, 32768);
            assert!((MIB..=MIB + 32768).contains(&at), "read at {at}");
        }
        let none = Target::existing(dir.path(), &[], 32768, 512).err().unwrap();
        assert!(none.contains("holds no tablespace file"), "{none}");
    }
}
