//! The check over real folders, with a catalog made of a list.

use super::*;
use myriad_base::Lsn;
use std::fs;

const PAGE: usize = 4096;

type Meanwhile = Box<dyn FnOnce(&List) + Send>;

/// A catalog.
#[derive(Default)]
struct List {
    spaces: Mutex<Vec<KnownSpace>>,
    touched: Mutex<Vec<String>>,
    /// Done at the first `find`.
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Known for List {
    fn list(&self, visit: &mut dyn FnMut(KnownSpace) -> bool) -> Result<()> {
        let all = self.spaces.lock().clone();
        let _ = all.into_iter().all(visit);
        Ok(())
    }
    fn find(&self, id: SpaceId) -> Result<Option<KnownSpace>> {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(f) = meanwhile {
            f(self);
        }
        Ok(self.spaces.lock().iter().find(|s| s.id == id).cloned())
    }
    fn touched(&self, path: &str) -> bool {
        self.touched.lock().iter().any(|t| t == path)
    }
}

fn bytes(id: u32, uuid: u8) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    SpaceHeader { id: SpaceId(id), uuid: [uuid; 16], page_size: PAGE as u32, creation_lsn: Lsn(7) }.format(&mut page);
    page.resize(4 * PAGE, 0);
    page
}

struct Place {
    dir: tempfile::TempDir,
    list: List,
}

const PLAIN: CheckOptions = CheckOptions {
    page_size: PAGE,
    light: true,
    fadvise: false,
    threads: 1,
    uring: false,
    files_max: usize::MAX,
    pages_wanted: None,
};

impl Place {
    /// Tablespaces 16 to 19, `d.<id>.myr` with UUIDs of their ids.
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap(), list: List::default() };
        for id in 16..20 {
            place.write(&format!("d.{id}.myr"), &bytes(id, id as u8));
            place.know(id, true);
        }
        place
    }

    fn know(&self, id: u32, settled: bool) {
        let path = format!("d.{id}.myr");
        self.list.spaces.lock().push(KnownSpace { id: SpaceId(id), path, uuid: [id as u8; 16], settled });
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.at(name), bytes).unwrap();
    }

    /// Findings as `id path problem other`, in order, the same by all ways of reading.
    fn check(&self) -> Vec<String> {
        let mut last = None;
        for (uring, threads, light) in [(false, 1, true), (false, 3, false), (true, -1, true), (true, 2, false)] {
            if uring && !uring_available() {
                continue;
            }
            let options = CheckOptions { light, fadvise: true, threads, uring, ..PLAIN };
            let lines = Mutex::new(Vec::new());
            check_tablespaces(self.dir.path(), &self.list, options, &Progress::default(), &|f| {
                assert!(!f.detail.is_empty());
                let id = f.space.map_or("-".into(), |s| s.to_string());
                let other = f.other.map(|o| format!(" {o}")).unwrap_or_default();
                lines.lock().push(format!("{id} {} {}{other}", f.path, f.problem.name()));
            })
            .unwrap();
            let mut lines = lines.into_inner();
            lines.sort();
            assert!(last.as_ref().is_none_or(|l| *l == lines), "{last:?} differs from {lines:?}");
            last = Some(lines);
        }
        last.unwrap()
    }
}

#[test]
fn a_sound_folder_gives_nothing() {
    let place = Place::new();
    for name in ["FORMAT", "redo.log", "what.txt", "d.16.myr.bak"] {
        place.write(name, b"whatever");
    }
    // A file system's own, in its root.
    fs::create_dir_all(place.at("lost+found")).unwrap();
    place.write("lost+found/d.16.myr", &bytes(16, 16));
    assert!(place.check().is_empty());
    fs::create_dir_all(place.at("below/lost+found")).unwrap();
    place.write("below/lost+found/d.16.myr", &bytes(16, 16));
    assert_eq!(place.check(), ["16 below/lost+found/d.16.myr DUPLICATE d.16.myr"]);
}

#[test]
fn each_problem_has_its_name() {
    let place = Place::new();
    place.write("copy.myr", &bytes(16, 16));
    fs::rename(place.at("d.17.myr"), place.at("other.myr")).unwrap();
    place.write("d.18.myr", &bytes(18, 99));
    place.write("stray.myr", &bytes(77, 1));
    fs::remove_file(place.at("d.19.myr")).unwrap();
    assert_eq!(
        place.check(),
        [
            "16 copy.myr DUPLICATE d.16.myr",
            "17 d.17.myr MISSING",
            "17 other.myr MOVED d.17.myr",
            "18 d.18.myr FOREIGN",
            "19 d.19.myr MISSING",
            "77 stray.myr UNKNOWN",
        ]
    );
}

#[test]
fn a_folder_copied_into_itself_is_all_duplicates() {
    let place = Place::new();
    fs::create_dir_all(place.at("a/b")).unwrap();
    for id in 16..20 {
        fs::copy(place.at(format!("d.{id}.myr")), place.at(format!("a/b/d.{id}.myr"))).unwrap();
    }
    let expected: Vec<String> = (16..20).map(|id| format!("{id} a/b/d.{id}.myr DUPLICATE d.{id}.myr")).collect();
    assert_eq!(place.check(), expected);
}

#[test]
fn swapped_files_are_foreign_at_both_places() {
    let place = Place::new();
    place.write("d.16.myr", &bytes(17, 17));
    place.write("d.17.myr", &bytes(16, 16));
    assert_eq!(place.check(), ["16 d.16.myr FOREIGN d.17.myr", "17 d.17.myr FOREIGN d.16.myr"]);
}

#[test]
fn damaged_and_short_files() {
    let place = Place::new();
    place.write("d.16.myr", b"");
    place.write("d.17.myr", b"0123456789");
    let mut damaged = bytes(18, 18);
    damaged[40] ^= 1;
    place.write("d.18.myr", &damaged);
    place.write("d.19.myr", &bytes(19, 19)[..3 * PAGE + 5]);
    place.write("none.myr", &[0; 5 * PAGE]);
    assert_eq!(
        place.check(),
        [
            "- none.myr DAMAGED",
            "16 d.16.myr DAMAGED",
            "17 d.17.myr DAMAGED",
            "18 d.18.myr DAMAGED",
            "19 d.19.myr TRUNCATED",
        ]
    );
}

#[test]
fn links_folders_pipes_and_names_that_are_not_text() {
    let place = Place::new();
    for id in [16, 17] {
        fs::remove_file(place.at(format!("d.{id}.myr"))).unwrap();
    }
    std::os::unix::fs::symlink(place.at("d.18.myr"), place.at("d.16.myr")).unwrap();
    std::os::unix::fs::symlink(place.dir.path(), place.at("loop")).unwrap();
    fs::create_dir(place.at("d.17.myr")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"n\xFFx.myr");
    fs::write(place.at(name), bytes(18, 18)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, place.at("pipe.myr"), rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(
        place.check(),
        ["- pipe.myr DAMAGED", "16 d.16.myr LINK", "17 d.17.myr DAMAGED", "18 n\\xFFx.myr DUPLICATE d.18.myr",]
    );
}

#[test]
fn folders_too_deep_are_told_and_left() {
    let place = Place::new();
    let mut deep = place.dir.path().to_path_buf();
    (0..40).for_each(|_| deep.push("x"));
    fs::create_dir_all(&deep).unwrap();
    let found = place.check();
    assert!(found.len() == 1 && found[0].ends_with("UNREADABLE"), "{found:?}");
}

#[test]
fn files_that_have_grown_are_held_against_their_page_one() {
    const BIG: usize = 16384;
    let place = Place::new();
    place.list.spaces.lock().truncate(2);
    let file = |id: u32, pages: usize, wanted: u32, sealed: bool| {
        let mut file = vec![0; BIG];
        let uuid = [id as u8; 16];
        SpaceHeader { id: SpaceId(id), uuid, page_size: BIG as u32, creation_lsn: Lsn(7) }.format(&mut file);
        let mut second = vec![0; BIG];
        let page = PageId::new(SpaceId(id), PageNo(1));
        myriad_base::page::format(&mut second, page, myriad_base::page::PageKind::Bitmap);
        second[28..32].copy_from_slice(&wanted.to_le_bytes());
        if sealed {
            myriad_base::page::seal(&mut second);
        }
        file.extend(second);
        file.resize(pages * BIG, 0);
        place.write(&format!("d.{id}.myr"), &file);
    };
    for id in 18..20 {
        fs::remove_file(place.at(format!("d.{id}.myr"))).unwrap();
    }
    let wanted: PagesWanted = |_, page, size| {
        assert!(size == BIG && page.len() >= HEADER_READ_BYTES);
        Some(u64::from(u32::from_le_bytes(page[28..32].try_into().unwrap())))
    };
    let check = |light, uring| {
        let found = Mutex::new(Vec::new());
        let pages_wanted = Some(wanted);
        let options = CheckOptions { page_size: BIG, light, uring, pages_wanted, ..PLAIN };
        check_tablespaces(place.dir.path(), &place.list, options, &Progress::default(), &|f| {
            found.lock().push((f.space.unwrap().0, f.problem));
        })
        .unwrap();
        found.into_inner()
    };
    let ways = [(true, false), (false, false), (true, uring_available()), (false, uring_available())];
    file(16, 5, 6, true);
    file(17, 5, 5, true);
    assert!(ways.iter().all(|&(light, uring)| check(light, uring) == [(16, Problem::Truncated)]));
    // Just being written: nothing can be told from it.
    file(16, 5, 6, false);
    assert!(ways.iter().all(|&(light, uring)| check(light, uring).is_empty()));
    // A file that has never grown is not read again unless it is read whole anyway.
    file(16, 4, 6, true);
    assert!(ways.iter().all(|&(light, uring)| check(light, uring).is_empty() == light));
}

#[test]
fn blocks_that_a_full_disk_gave_are_no_damage() {
    let place = Place::new();
    let mut file = bytes(16, 16);
    for (more, found) in [(512, 0), (PAGE - 512, 0), (10, 1)] {
        file.resize(5 * PAGE + more, 0);
        place.write("d.16.myr", &file);
        assert_eq!(place.check().len(), found, "{more} bytes of a page");
    }
}

#[test]
fn page_zero_is_verified_unless_light() {
    let place = Place::new();
    let mut page = vec![0; 4 * 16384];
    let header = SpaceHeader { id: SpaceId(16), uuid: [16; 16], page_size: 16384, creation_lsn: Lsn(7) };
    header.format(&mut page[..16384]);
    page[9000] ^= 1;
    place.write("d.16.myr", &page);
    for light in [true, false] {
        let found = Mutex::new(Vec::new());
        let options = CheckOptions { page_size: 16384, light, ..PLAIN };
        check_tablespaces(place.dir.path(), &place.list, options, &Progress::default(), &|f| {
            found.lock().push((f.space, f.problem));
        })
        .unwrap();
        assert_eq!(found.lock().contains(&(Some(SpaceId(16)), Problem::Damaged)), !light);
    }
}

#[test]
fn what_comes_and_goes_meanwhile_is_not_reported() {
    let place = Place::new();
    // Being created: touched, or its row says so; its header is not there yet.
    place.write("d.20.myr", b"");
    place.list.touched.lock().push("d.20.myr".into());
    place.write("d.21.myr", &[0; 4 * PAGE]);
    place.know(21, false);
    // Being dropped, its file is gone.
    place.know(22, false);
    assert!(place.check().is_empty());

    // Dropped between the reading of its file and the question to the catalog.
    let place = Place::new();
    place.write("d.16.myr", &bytes(16, 99));
    let path = place.at("d.16.myr");
    *place.list.meanwhile.lock() = Some(Box::new(move |list| {
        fs::remove_file(path).unwrap();
        list.spaces.lock().retain(|s| s.id != SpaceId(16));
    }));
    assert!(place.check().is_empty());

    // Dropped while its file was looked for.
    let place = Place::new();
    fs::remove_file(place.at("d.19.myr")).unwrap();
    *place.list.meanwhile.lock() = Some(Box::new(|list| list.spaces.lock().retain(|s| s.id != SpaceId(19))));
    assert!(place.check().is_empty());
}

#[test]
fn a_check_that_is_stopped_ends_and_accuses_nobody() {
    let place = Place::new();
    fs::remove_file(place.at("d.16.myr")).unwrap();
    let progress = Progress::default();
    progress.stop.store(true, Ordering::Relaxed);
    check_tablespaces(place.dir.path(), &place.list, PLAIN, &progress, &|f| panic!("{f:?}")).unwrap();
    assert_eq!(progress.files.load(Ordering::Relaxed), 0);
}

#[test]
fn errors_of_the_folder_and_the_catalog_are_told() {
    struct Broken;
    impl Known for Broken {
        fn list(&self, _: &mut dyn FnMut(KnownSpace) -> bool) -> Result<()> {
            Ok(())
        }
        fn find(&self, _: SpaceId) -> Result<Option<KnownSpace>> {
            Err(Error::ShuttingDown)
        }
        fn touched(&self, _: &str) -> bool {
            false
        }
    }
    let check = |root: &Path| check_tablespaces(root, &Broken, PLAIN, &Progress::default(), &|_| {});
    assert!(matches!(check(Path::new("/nonexistent")), Err(Error::Io { op: "list", .. })));
    assert_eq!(check(Place::new().dir.path()), Err(Error::ShuttingDown));
}

#[test]
fn files_that_may_not_be_read_are_told() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.at("d.16.myr"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(place.at("closed")).unwrap();
    fs::set_permissions(place.at("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let found = Mutex::new(Vec::new());
    // Root may read everything; as another user this thread, which does all the reading, may not.
    const NOBODY: u32 = 65534;
    // SAFETY: changes the thread's own identity for files, and nothing else.
    let before = unsafe { libc::setfsuid(NOBODY) };
    let checked = check_tablespaces(place.dir.path(), &place.list, PLAIN, &Progress::default(), &|f| {
        found.lock().push((f.path, f.problem));
    });
    // SAFETY: as above.
    unsafe { libc::setfsuid(before as u32) };
    checked.unwrap();
    let mut found = found.into_inner();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, [("closed".into(), Problem::Unreadable), ("d.16.myr".into(), Problem::Unreadable)]);
}
