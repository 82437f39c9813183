//! Measures the check of many tablespace files: `check_cost FOLDER FILES [uring|threads]`. Makes the files, sparse, if the
//! folder is not there. Prints files a second, and CPU microseconds a file of the whole process, the kernel included.

use myriad_base::{Lsn, Result, SpaceId};
use myriad_space::check::{check_tablespaces, uring_available, CheckOptions, Known, KnownSpace, Progress};
use myriad_space::SpaceHeader;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const PAGE: usize = 16384;

struct Numbered(u32);

fn space(id: u32) -> KnownSpace {
    KnownSpace { id: SpaceId(id), path: format!("db{id}.{id}.myr"), uuid: uuid(id), settled: true }
}

fn uuid(id: u32) -> [u8; 16] {
    u128::from(id).to_le_bytes()
}

impl Known for Numbered {
    fn list(&self, visit: &mut dyn FnMut(KnownSpace) -> bool) -> Result<()> {
        let _ = (16..16 + self.0).all(|id| visit(space(id)));
        Ok(())
    }
    fn find(&self, id: SpaceId) -> Result<Option<KnownSpace>> {
        Ok((16..16 + self.0).contains(&id.0).then(|| space(id.0)))
    }
    fn touched(&self, _: &str) -> bool {
        false
    }
}

fn make(folder: &Path, files: u32) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut page = vec![0; PAGE];
    for id in 16..16 + files {
        let header = SpaceHeader { id: SpaceId(id), uuid: uuid(id), page_size: PAGE as u32, creation_lsn: Lsn(1) };
        header.format(&mut page);
        let file = std::fs::File::create(folder.join(space(id).path))?;
        file.write_all_at(&page, 0)?;
        file.set_len(4 * PAGE as u64)?;
    }
    Ok(())
}

/// User and system time of this process in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, files, way @ ..] = args.as_slice() else { panic!("check_cost FOLDER FILES [uring|threads]") };
    let (folder, files) = (Path::new(folder), files.parse().expect("a number of files"));
    if !folder.exists() {
        make(folder, files).expect("files");
    }
    let uring = way.first().is_none_or(|w| w == "uring") && uring_available();
    let options = CheckOptions {
        page_size: PAGE,
        light: true,
        fadvise: true,
        threads: -1,
        uring,
        files_max: usize::MAX,
        pages_wanted: None,
    };
    let (begin, cpu, progress) = (Instant::now(), cpu_seconds(), Progress::default());
    check_tablespaces(folder, &Numbered(files), options, &progress, &|f| println!("{f:?}")).expect("a check");
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let n = f64::from(files);
    let way = if uring { "uring" } else { "threads" };
    println!("{files} files by {way}: {seconds:.2} s, {:.0} files/s, {:.1} us CPU a file", n / seconds, cpu / n * 1e6);
}
