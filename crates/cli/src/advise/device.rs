//! What the system says of the file system and device under a folder.

use rustix::fs::{major, minor};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Block sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocks {
    /// The file system's preferred block (`st_blksize`).
    pub preferred: u64,
    /// The file system's unit of space (`f_frsize`).
    pub file_system: u64,
    /// The device's logical block: the least it reads. `None` where no block device is known (network, overlay).
    pub logical: Option<u64>,
}

/// The block sizes under `dir`.
///
/// # Errors
/// What the system said.
pub fn blocks(dir: &Path) -> std::io::Result<Blocks> {
    let meta = dir.metadata()?;
    let sys = format!("/sys/dev/block/{}:{}", major(meta.dev()), minor(meta.dev()));
    // A partition's queue is its disk's.
    let logical = ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("{sys}/{queue}/logical_block_size")).ok()?.trim().parse().ok()
    });
    Ok(Blocks { preferred: meta.blksize(), file_system: rustix::fs::statvfs(dir)?.f_frsize, logical })
}

impl Blocks {
    /// Why reads of `bytes` cost as much as larger ones here, if they do.
    pub fn warning(&self, bytes: u64) -> Option<String> {
        let kib = |b: u64| format!("{} KiB", b as f64 / 1024.0);
        let (what, block) = [
            ("the device's logical block", self.logical.unwrap_or(0)),
            ("the file system's block", self.file_system),
            ("the file system's preferred block", self.preferred),
        ]
        .into_iter()
        .max_by_key(|b| b.1)?;
        (block > bytes).then(|| {
            format!(
                "{what} is {}: a read of {} may cost as much as one of {0}, so a light check may gain nothing",
                kib(block),
                kib(bytes)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_larger_than_the_read_is_told_whoever_has_it() {
        let fine = Blocks { preferred: 4096, file_system: 4096, logical: Some(512) };
        assert_eq!(fine.warning(4096), None);
        assert_eq!(Blocks { logical: None, ..fine }.warning(4096), None);
        for bad in [
            Blocks { preferred: 131_072, ..fine },
            Blocks { file_system: 131_072, ..fine },
            Blocks { logical: Some(131_072), ..fine },
        ] {
            let text = bad.warning(4096).unwrap();
            assert!(text.contains("128 KiB") && text.contains("4 KiB"), "{text}");
        }
    }

    #[test]
    fn every_folder_has_blocks() {
        let blocks = blocks(Path::new("/")).unwrap();
        assert!(blocks.preferred >= 512 && blocks.file_system >= 512);
    }
}
