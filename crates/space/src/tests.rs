//! Tests of registry and files on the simulated disk.

use crate::{Space, SpaceHeader, SpaceRegistry, Uuid, DIRECTORY, HEADER_READ_BYTES};
use myriad_base::page::{self, PageKind};
use myriad_base::random::Random;
use myriad_base::{Error, Lsn, PageId, PageNo, SpaceId};
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

const PAGE: usize = 4096;
const DIR: &str = "/d";

fn file(name: &str) -> PathBuf {
    Path::new(DIR).join(DIRECTORY).join(name)
}

fn disk() -> SimIo {
    let io = SimIo::new(1);
    io.create_dir(&Path::new(DIR).join(DIRECTORY)).unwrap();
    io.sync_dir(Path::new(DIR)).unwrap();
    io
}

fn registry(io: &SimIo, max_open: usize) -> SpaceRegistry {
    SpaceRegistry::new(Arc::new(io.clone()), Path::new(DIR), PAGE, max_open)
}

fn uuid(id: u32) -> Uuid {
    let mut u = *b"space uuid 0000 ";
    u[11..15].copy_from_slice(&id.to_be_bytes());
    u
}

fn create(r: &SpaceRegistry, id: u32) -> Arc<Space> {
    r.create(SpaceId(id), &format!("s{id}.myr"), uuid(id), Lsn(77)).unwrap()
}

fn sealed(id: u32, no: u32, fill: u8) -> Vec<u8> {
    let mut p = vec![0; PAGE];
    page::format(&mut p, PageId::new(SpaceId(id), PageNo(no)), PageKind::Index);
    p[100..].fill(fill);
    page::seal(&mut p);
    p
}

fn reason(e: Error) -> String {
    match e {
        Error::TablespaceUnavailable { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_created_tablespace_survives_and_identifies_itself() {
    for seed in 0..20 {
        let io = disk();
        let space = create(&registry(&io, 10), 20);
        assert_eq!(space.path(), "s20.myr");
        assert!(space.pages_in_file() >= 1);
        let io = io.crash(seed);
        let r = registry(&io, 10);
        r.register(SpaceId(20), "s20.myr", Some(uuid(20)));
        let space = r.get(SpaceId(20)).unwrap();
        assert_eq!((space.is_open(), io.calls(CallKind::Open)), (false, 0), "nothing is opened before it is used");
        let mut p = vec![0; PAGE];
        space.read_page(PageNo(0), &mut p).unwrap();
        page::verify(&p, PageId::new(SpaceId(20), PageNo(0))).unwrap();
        assert!(space.pages_in_file() >= 1);
        let header = SpaceHeader::parse(&p[..HEADER_READ_BYTES], "").unwrap();
        assert_eq!(header, SpaceHeader { id: SpaceId(20), uuid: uuid(20), page_size: 4096, creation_lsn: Lsn(77) });
    }
}

#[test]
fn pages_are_read_back_and_what_lies_past_the_end_is_zero() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    space.ensure_pages(10).unwrap();
    space.write_page(PageNo(9), &sealed(20, 9, 5)).unwrap();
    space.sync().unwrap();
    let after_crash = registry(&io.crash(1), 10);
    after_crash.register(SpaceId(20), "s20.myr", None);
    let mut durable = vec![0; PAGE];
    after_crash.get(SpaceId(20)).unwrap().read_page(PageNo(9), &mut durable).unwrap();
    assert_eq!(durable, sealed(20, 9, 5));
    let mut p = vec![1; PAGE];
    space.read_page(PageNo(9), &mut p).unwrap();
    assert_eq!(p, sealed(20, 9, 5));
    space.read_page(PageNo(3), &mut p).unwrap();
    assert!(page::is_zero(&p));
    p.fill(1);
    space.read_page(PageNo(5_000_000), &mut p).unwrap();
    assert!(page::is_zero(&p));
    space.punch(PageNo(8), 2).unwrap();
    space.read_page(PageNo(9), &mut p).unwrap();
    assert!(page::is_zero(&p));
}

#[test]
fn unaligned_buffers_reach_direct_files_by_a_detour() {
    let io = disk();
    let r = registry(&io, 10);
    r.set_direct(true);
    let space = create(&r, 20);
    let mut memory = vec![0; PAGE + 8];
    let odd = usize::from((memory.as_ptr() as usize).is_multiple_of(2));
    let p = &mut memory[odd..odd + PAGE];
    p.copy_from_slice(&sealed(20, 2, 6));
    space.write_page(PageNo(2), p).unwrap();
    p.fill(0);
    space.read_page(PageNo(2), p).unwrap();
    assert_eq!(p, sealed(20, 2, 6));
}

#[test]
fn growth_is_ahead_of_use_and_a_full_disk_is_told_in_time() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    space.ensure_pages(3).unwrap();
    let before = io.calls(CallKind::Allocate);
    space.ensure_pages(3).unwrap();
    space.ensure_pages(1).unwrap();
    assert_eq!(io.calls(CallKind::Allocate), before, "nothing to do, nothing done");
    for n in 1..=20_000 {
        space.ensure_pages(n).unwrap();
        assert!(space.pages_in_file() >= n);
    }
    let calls = io.calls(CallKind::Allocate) - before;
    assert!(calls < 60, "{calls} calls");
    assert!(io.used_bytes() < 20_000 * PAGE as u64 + (5 << 20));
    // No room for a generous step, but for what is needed.
    let room = space.pages_in_file();
    io.set_capacity(Some(io.used_bytes() + 2 * PAGE as u64));
    space.ensure_pages(room + 2).unwrap();
    assert!(!space.was_full_lately());
    let full = || matches!(space.ensure_pages(room + 3), Err(Error::DiskFull { .. }));
    assert!(full() && space.pages_in_file() == room + 2);
    let told = (0..10_000).take_while(|_| space.was_full_lately()).count();
    assert!((1..10_000).contains(&told), "{told} times: then it is time to try again");
    assert!(full() && space.was_full_lately());
    io.set_capacity(None);
    space.ensure_pages(room + 3).unwrap();
    assert!(!space.was_full_lately());
}

#[test]
fn a_file_that_was_cut_grows_again() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    space.ensure_pages(1000).unwrap();
    let pages = |count: u32| {
        assert_eq!(space.file().unwrap().len().unwrap(), u64::from(count) * PAGE as u64);
        space.pages_in_file() == count
    };
    space.write_page(PageNo(12), &sealed(20, 12, 5)).unwrap();
    space.cut(20).unwrap();
    assert!(pages(20));
    for already_shorter in [20, 21, 5000] {
        space.cut(already_shorter).unwrap();
        assert!(pages(20));
    }
    let mut p = vec![0; PAGE];
    space.read_page(PageNo(12), &mut p).unwrap();
    assert_eq!(p, sealed(20, 12, 5));
    space.cut(12).unwrap();
    space.ensure_pages(13).unwrap();
    assert!(pages(space.pages_in_file()) && space.pages_in_file() >= 13);
    space.read_page(PageNo(12), &mut p).unwrap();
    assert!(page::is_zero(&p), "what was cut off does not come back");
}

#[test]
fn an_extent_that_was_used_or_of_a_plan_before_is_not_planned() {
    let r = registry(&disk(), 10);
    let space = create(&r, 20);
    let planned = || (0..6).filter(|&extent| space.is_planned(extent)).collect::<Vec<u32>>();
    space.begin_plan();
    [1, 2, 3].iter().for_each(|&extent| space.plan_extent(extent));
    [2, 5].iter().for_each(|&extent| space.extent_used(extent));
    assert_eq!(planned(), [1, 3]);
    space.begin_plan();
    space.plan_extent(4);
    assert_eq!(planned(), [4]);
    space.end_plan();
    assert_eq!(planned(), []);
}

#[test]
fn tablespaces_in_which_many_extents_became_free_are_told_of() {
    let r = registry(&disk(), 10);
    let (space, other) = (create(&r, 20), create(&r, 21));
    let until_told = || {
        (1..100).find(|_| {
            space.extent_emptied();
            r.has_emptied()
        })
    };
    other.extent_emptied();
    let many = until_told();
    assert!(many.is_some_and(|many| many > 1));
    for _ in 0..2 {
        assert_eq!((r.take_emptied().into_iter().collect(), r.has_emptied()), (vec![SpaceId(20)], false));
        assert_eq!(until_told(), many, "counted anew");
    }
}

#[test]
fn groups_with_something_to_spare_are_known_by_the_first_of_them() {
    let r = registry(&disk(), 10);
    let space = create(&r, 20);
    for (group, is, from) in [(1, false, 0), (0, false, 1), (1, false, 2), (2, true, 2), (1, true, 1), (3, true, 1)] {
        if is {
            space.may_spare(group);
        } else {
            space.nothing_to_spare(group);
        }
        assert_eq!(space.spare_from(), from);
    }
}

#[test]
fn many_threads_grow_one_file() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let space = &space;
            scope.spawn(move || {
                for n in (1..4000).step_by(7) {
                    space.ensure_pages(n + t).unwrap();
                    assert!(space.pages_in_file() >= n + t);
                }
            });
        }
    });
    let f = space.file().unwrap();
    assert_eq!(f.len().unwrap(), u64::from(space.pages_in_file()) * PAGE as u64);
}

#[test]
fn wrong_files_are_refused_and_harm_no_other() {
    let io = disk();
    let r = registry(&io, 10);
    for id in [20, 21, 22, 23, 24, 25] {
        create(&r, id);
    }
    let r = registry(&io, 10);
    r.register(SpaceId(20), "s21.myr", Some(uuid(20)));
    r.register(SpaceId(21), "s21.myr", Some(uuid(99)));
    r.register(SpaceId(22), "nowhere.myr", Some(uuid(22)));
    for id in [23, 24, 25] {
        r.register(SpaceId(id), &format!("s{id}.myr"), Some(uuid(id)));
    }
    io.flip_bit(&file("s23.myr"), 40, 1).unwrap();
    io.truncate(&file("s24.myr"), 1000).unwrap();
    let mut p = vec![0; PAGE];
    let mut read = |id| r.get(SpaceId(id)).unwrap().read_page(PageNo(0), &mut p);
    assert!(reason(read(20).unwrap_err()).contains("that of tablespace 21"));
    assert!(reason(read(21).unwrap_err()).contains("UUID"));
    assert!(reason(read(22).unwrap_err()).contains("missing"));
    let before = io.calls(CallKind::Read);
    assert!(matches!(read(23), Err(Error::CorruptFile { .. })));
    assert!(io.calls(CallKind::Read) - before > 1, "a device may err once");
    assert!(matches!(read(24), Err(Error::CorruptFile { .. })));
    read(25).unwrap();
    let other_size = SpaceRegistry::new(Arc::new(io.clone()), Path::new(DIR), 16384, 10);
    other_size.register(SpaceId(25), "s25.myr", None);
    assert!(matches!(other_size.get(SpaceId(25)).unwrap().file(), Err(Error::Format { .. })));
    // Repaired while the server runs: it can be used.
    io.flip_bit(&file("s23.myr"), 40, 1).unwrap();
    read(23).unwrap();
}

#[test]
fn open_files_are_bounded_and_the_used_ones_stay() {
    let io = disk();
    let r = registry(&io, 5);
    let spaces: Vec<_> = (100..150).map(|id| create(&r, id)).collect();
    assert_eq!(r.open_files(), 5);
    let mut random = Random::from_seed(1);
    let hot = &spaces[7];
    let mut p = vec![0; PAGE];
    let mut closed = 0;
    for _ in 0..500 {
        closed += u32::from(!hot.is_open());
        hot.read_page(PageNo(0), &mut p).unwrap();
        let before = io.calls(CallKind::Open);
        hot.read_page(PageNo(0), &mut p).unwrap();
        assert_eq!(io.calls(CallKind::Open), before);
        spaces[random.below(50) as usize].read_page(PageNo(0), &mut p).unwrap();
        assert!(r.open_files() <= 5);
    }
    assert!(closed < 20, "closed {closed} times");
    assert_eq!(spaces.iter().filter(|s| s.is_open()).count(), r.open_files());
    // A file in use goes on working although the cache closed it.
    let f = spaces[0].file().unwrap();
    for s in &spaces {
        s.read_page(PageNo(0), &mut p).unwrap();
    }
    f.read_at(&mut p, 0).unwrap();
    r.set_max_open_files(1);
    assert_eq!(r.open_files(), 1);
    r.set_max_open_files(0);
    assert_eq!((r.open_files(), r.files_at_once()), (1, 1), "one is needed");
}

/// Closed by who renames it, and so passed over when files are closed as too many.
#[test]
fn a_file_that_is_opened_again_counts_among_those_to_be_closed() {
    let r = registry(&disk(), 10);
    let spaces: Vec<_> = (20..24).map(|id| create(&r, id)).collect();
    assert!(spaces[..2].iter().all(|space| space.try_close()));
    r.set_max_open_files(1);
    for space in &spaces[..2] {
        space.file().unwrap();
        assert_eq!(r.open_files(), 1);
    }
}

#[test]
fn others_are_closed_where_the_process_may_open_no_more() {
    let io = disk();
    let r = registry(&io, 100);
    let spaces: Vec<_> = (20..40).map(|id| create(&r, id)).collect();
    assert_eq!(r.open_files(), 20);
    r.set_max_open_files(19);
    r.set_max_open_files(100);
    let closed = spaces.iter().find(|s| !s.is_open()).unwrap();
    let no_more = |sticky| io.inject(CallKind::Open, &format!("s{}.myr", closed.id()), 0, Fault::Emfile, sticky);
    no_more(false);
    closed.file().unwrap();
    assert!((1..19).contains(&r.open_files()));

    // A folder is opened to be synced.
    let no_folder = || io.inject(CallKind::SyncDir, "", 0, Fault::Emfile, false);
    no_folder();
    create(&r, 40);
    no_folder();
    r.drop_spaces(&[SpaceId(40)]).remove(0).unwrap();

    // None is left to be closed.
    r.set_max_open_files(1);
    spaces.iter().filter(|s| s.id() != closed.id()).for_each(|s| drop(s.file().unwrap()));
    let held: Vec<_> = spaces.iter().filter(|s| s.is_open()).map(|s| s.file().unwrap()).collect();
    no_more(true);
    assert!(matches!(closed.file(), Err(Error::Io { errno: 24, .. })));
    drop(held);
}

#[test]
fn a_dropped_tablespace_is_gone_for_good() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    create(&r, 21);
    let f = space.file().unwrap();
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    assert!(space.is_dropped());
    assert!(!io.exists(&file("s20.myr")).unwrap());
    let mut p = vec![0; PAGE];
    assert!(reason(space.read_page(PageNo(0), &mut p).unwrap_err()).contains("dropped"));
    assert!(space.write_page(PageNo(1), &p).is_err());
    assert!(space.ensure_pages(1000).is_err());
    assert!(reason(r.get(SpaceId(20)).err().unwrap()).contains("dropped"));
    assert!(r.create(SpaceId(20), "again.myr", uuid(20), Lsn(0)).is_err(), "ids are never reused");
    f.read_at(&mut p, 0).unwrap();
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    r.drop_spaces(&[SpaceId(4711)]).remove(0).unwrap();
    assert_eq!(r.open_files(), 1);
    for seed in 0..10 {
        assert!(!io.crash(seed).exists(&file("s20.myr")).unwrap(), "the removal is durable");
    }
    // A failed removal can be tried again.
    io.inject(CallKind::Remove, "s21", 0, Fault::Eio, false);
    assert!(r.drop_spaces(&[SpaceId(21)]).remove(0).is_err());
    r.drop_spaces(&[SpaceId(21)]).remove(0).unwrap();
    assert!(!io.exists(&file("s21.myr")).unwrap());
    // Nor is one gone whose removal is not durable.
    for id in [22, 23] {
        create(&r, id);
    }
    io.inject(CallKind::SyncDir, "", 0, Fault::Eio, false);
    let both = [SpaceId(22), SpaceId(23)];
    assert!(r.drop_spaces(&both).iter().all(Result::is_err) && r.known() == 2);
    assert!(both.iter().all(|&id| r.was_dropped(id) && r.is_gone(id)), "it has begun");
    assert!(r.drop_spaces(&both).iter().all(Result::is_ok) && r.known() == 0);
}

/// Of a tablespace whose file nobody knows pages may be in memory, from redo; they are not to be written when it is dropped.
#[test]
fn what_was_not_known_counts_as_dropped_too() {
    let r = registry(&disk(), 10);
    assert!(!r.was_dropped(SpaceId(30)));
    r.drop_spaces(&[SpaceId(30)]).remove(0).unwrap();
    assert!(r.was_dropped(SpaceId(30)) && r.get(SpaceId(30)).is_err());
    r.drop_spaces(&[SpaceId(30)]).remove(0).unwrap();
}

#[test]
fn tablespaces_that_come_and_go_leave_nothing_in_memory() {
    let io = disk();
    let r = registry(&io, 100);
    let keep = create(&r, 19);
    for i in 0..2_000 {
        r.rename(SpaceId(19), &format!("s19.{i}.myr")).unwrap();
        keep.file().unwrap();
    }
    for id in 20..10_020 {
        drop(create(&r, id));
        r.drop_spaces(&[SpaceId(id)]).remove(0).unwrap();
    }
    assert_eq!((r.known(), r.open_files()), (1, 1));
    let (clock, dropped) = r.leftovers();
    assert!(clock < 200, "{clock} entries in the clock");
    assert!(dropped <= 16, "{dropped} ranges of ids");
    assert!((20..10_020).all(|id| r.was_dropped(SpaceId(id))) && !r.was_dropped(SpaceId(19)));
    r.set_max_open_files(1);
    create(&r, 10_020);
    assert_eq!(r.open_files(), 1, "the one with the new name is still in the clock");
    assert!(!keep.is_open());
}

#[test]
fn a_drop_leaves_another_tablespaces_file_alone() {
    let io = disk();
    let r = registry(&io, 10);
    for id in [20, 21, 22, 23] {
        create(&r, id);
    }
    let write = |name: &str, bytes: &[u8]| {
        let f = io.open(&file(name), myriad_io::OpenMode::WRITE).unwrap();
        f.write_at(bytes, 0).unwrap();
    };
    let mut page = vec![0; PAGE];
    let header = SpaceHeader { id: SpaceId(20), uuid: uuid(99), page_size: PAGE as u32, creation_lsn: Lsn(1) };
    header.format(&mut page);
    write("s20.myr", &page);
    write("s21.myr", &[0xAB; PAGE]);
    SpaceHeader { id: SpaceId(99), uuid: uuid(23), ..header }.format(&mut page);
    write("s23.myr", &page);
    for id in [20, 21, 22, 23] {
        r.drop_spaces(&[SpaceId(id)]).remove(0).unwrap();
        assert!(r.get(SpaceId(id)).is_err());
    }
    assert!(io.exists(&file("s20.myr")).unwrap(), "of another data directory");
    assert!(io.exists(&file("s23.myr")).unwrap(), "another tablespace");
    assert!(!io.exists(&file("s21.myr")).unwrap() && !io.exists(&file("s22.myr")).unwrap());
}

#[test]
fn a_suspect_is_refused_by_name() {
    let io = disk();
    let r = registry(&io, 1);
    r.begin_watch();
    r.register(SpaceId(20), "s20.myr", Some(uuid(20)));
    assert!(r.check_usable(SpaceId(20)).is_ok());
    // This very folder is there, as a second file would be.
    r.suspect(SpaceId(20), Path::new("/"), "two files", false);
    for refused in [r.check_usable(SpaceId(20)), r.get(SpaceId(20)).unwrap().file().map(drop)] {
        let e = refused.unwrap_err();
        assert!(e.to_string().contains("s20.myr"), "{e}");
        assert_eq!(reason(e), "two files");
    }
    let new = create(&r, 21);
    r.suspect(SpaceId(21), Path::new("/"), "two files", false);
    assert!(new.try_close() && r.was_created("s21.myr"));
    assert!(r.check_usable(SpaceId(21)).is_err() && new.file().is_ok());
    create(&registry(&io, 1), 22);
    r.register(SpaceId(22), "s22.myr", None);
    r.suspect(SpaceId(22), Path::new("/"), "two files", true);
    assert!(r.check_usable(SpaceId(22)).is_err() && r.get(SpaceId(22)).unwrap().file().is_ok(), "recovery needs it");
}

#[test]
fn the_resolver_answers_for_unknown_ids() {
    let io = disk();
    create(&registry(&io, 10), 20);
    let r = registry(&io, 10);
    let unknown = r.get(SpaceId(20)).err().unwrap();
    assert_eq!(unknown.to_string(), "tablespace 20 is unavailable: the catalog does not know it");
    r.set_resolver(Box::new(|id| match id.0 {
        20 => Ok(Some(("s20.myr".into(), uuid(20)))),
        30 => Ok(Some(("../outside.myr".into(), uuid(30)))),
        31 => Err(Error::ShuttingDown),
        _ => Ok(None),
    }));
    r.get(SpaceId(20)).unwrap().file().unwrap();
    assert!(Arc::ptr_eq(&r.get(SpaceId(20)).unwrap(), &r.get(SpaceId(20)).unwrap()));
    assert!(matches!(r.get(SpaceId(30)), Err(Error::Invalid { .. })));
    assert_eq!(r.get(SpaceId(31)).err(), Some(Error::ShuttingDown));
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    assert!(reason(r.get(SpaceId(20)).err().unwrap()).contains("dropped"), "whatever the resolver says");
}

#[test]
fn a_tablespace_registered_without_a_uuid_keeps_the_one_that_was_found() {
    let io = disk();
    create(&registry(&io, 10), 20);
    let r = registry(&io, 10);
    r.register(SpaceId(20), "s20.myr", None);
    let space = r.get(SpaceId(20)).unwrap();
    space.file().unwrap();
    assert!(space.try_close());
    let mut page = vec![0; PAGE];
    let header = SpaceHeader { id: SpaceId(20), uuid: uuid(99), page_size: PAGE as u32, creation_lsn: Lsn(1) };
    header.format(&mut page);
    io.scribble(&file("s20.myr"), 0, &page).unwrap();
    assert!(reason(space.file().err().unwrap()).contains("UUID"));
}

/// Whoever lists the tablespaces finds one in the catalog before its file is there; that must not keep it from being made.
#[test]
fn one_that_was_asked_for_before_it_has_a_file_is_created() {
    let io = disk();
    let r = registry(&io, 10);
    r.set_resolver(Box::new(|id| Ok(Some((format!("s{id}.myr"), uuid(id.0))))));
    let early = r.get(SpaceId(20)).unwrap();
    assert_eq!((early.pages_in_file(), early.is_open()), (0, false));
    assert!(reason(early.file().err().unwrap()).contains("missing"));
    let space = create(&r, 20);
    assert!(Arc::ptr_eq(&early, &space) && Arc::ptr_eq(&space, &r.get(SpaceId(20)).unwrap()));
    assert!(early.pages_in_file() > 0 && r.open_files() == 1);
    r.get(SpaceId(21)).unwrap();
    for (path, its) in [("other.myr", uuid(21)), ("s21.myr", uuid(22))] {
        assert!(matches!(r.create(SpaceId(21), path, its, Lsn(1)), Err(Error::Invalid { .. })), "{path}");
        assert!(!io.exists(&file(path)).unwrap());
    }
    // A failure leaves nothing: it can be tried again.
    create(&registry(&io, 10), 22);
    assert!(matches!(r.create(SpaceId(22), "s22.myr", uuid(22), Lsn(1)), Err(Error::Io { .. })));
    io.remove_file(&file("s22.myr")).unwrap();
    create(&r, 22);
}

#[test]
fn renaming() {
    let io = disk();
    let r = registry(&io, 10);
    let space = create(&r, 20);
    create(&r, 21);
    r.rename(SpaceId(20), "new.myr").unwrap();
    assert_eq!(space.path(), "new.myr");
    let mut p = vec![0; PAGE];
    space.read_page(PageNo(0), &mut p).unwrap();
    assert!(r.rename(SpaceId(20), "s21.myr").is_err(), "never overwrites");
    for bad in ["", "../x", "/x", "a/../../b", "a\0b"] {
        assert!(matches!(r.rename(SpaceId(20), bad), Err(Error::Invalid { .. })), "{bad:?}");
        assert!(matches!(r.create(SpaceId(50), bad, uuid(50), Lsn(0)), Err(Error::Invalid { .. })), "{bad:?}");
    }
    let held = space.file().unwrap();
    r.rename(SpaceId(20), "newer.myr").unwrap();
    assert_eq!((space.is_open(), r.open_files()), (false, 1), "that of 21");
    drop(held);
    // From one folder to another.
    io.create_dir(&file("folder")).unwrap();
    io.sync_dir(&file("")).unwrap();
    r.rename(SpaceId(20), "folder/20.myr").unwrap();
    r.rename(SpaceId(21), "folder/21.myr").unwrap();
    r.rename(SpaceId(21), "back.myr").unwrap();
    for seed in 0..10 {
        let io = io.crash(seed);
        let there = |name: &str| io.exists(&file(name)).unwrap();
        assert!(there("folder/20.myr") && there("back.myr"), "{seed}");
        assert!(!["s20.myr", "s21.myr", "new.myr", "newer.myr", "folder/21.myr"].into_iter().any(there), "{seed}");
    }
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    assert!(reason(space.rename_file("again.myr").unwrap_err()).contains("dropped"));
}

#[test]
fn files_that_come_go_and_get_other_names_are_noted_while_somebody_watches() {
    let r = registry(&disk(), 10);
    let changed = || r.hold_names().changed().to_vec();
    create(&r, 20);
    assert_eq!(changed(), [""; 0]);
    r.watch_names();
    create(&r, 21);
    assert_eq!(changed(), ["s21.myr"]);
    r.rename(SpaceId(20), "new.myr").unwrap();
    assert_eq!(changed(), ["new.myr", "s20.myr"]);
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    assert_eq!((changed(), changed()), (vec!["new.myr".into()], vec![]));
    create(&r, 22);
    r.end_watch_names();
    assert_eq!(changed(), [""; 0]);
}

/// The n-th call of a creation fails, for every n: an error, nothing left behind, and it can be tried again.
#[test]
fn a_failed_creation_leaves_nothing() {
    for kind in [CallKind::Open, CallKind::Allocate, CallKind::Write, CallKind::Sync, CallKind::SyncDir] {
        for fault in [Fault::Eio, Fault::Enospc] {
            let io = disk();
            let r = registry(&io, 10);
            io.inject(kind, "", 0, fault, false);
            assert!(r.create(SpaceId(20), "s20.myr", uuid(20), Lsn(1)).is_err(), "{kind:?}");
            assert!(!io.exists(&file("s20.myr")).unwrap(), "{kind:?}");
            assert!(r.get(SpaceId(20)).is_err());
            assert_eq!(r.open_files(), 0);
            create(&r, 20);
        }
    }
    let io = disk();
    let r = registry(&io, 10);
    create(&r, 20);
    assert!(matches!(r.create(SpaceId(21), "s20.myr", uuid(21), Lsn(1)), Err(Error::Io { errno: 17, .. })));
    r.get(SpaceId(20)).unwrap().file().unwrap();
}

#[test]
fn use_open_and_drop_from_many_threads() {
    let io = disk();
    let r = registry(&io, 3);
    for id in 100..140 {
        create(&r, id);
    }
    std::thread::scope(|scope| {
        for t in 0..6 {
            let r = &r;
            scope.spawn(move || {
                let mut random = Random::from_seed(t);
                let mut p = vec![0; PAGE];
                for i in 0..2000u32 {
                    let id = 100 + random.below(40) as u32;
                    if t == 0 && i % 100 == 0 {
                        r.drop_spaces(&[SpaceId(100 + i / 100)]).remove(0).unwrap();
                    }
                    match r.get(SpaceId(id)).and_then(|s| s.read_page(PageNo(0), &mut p)) {
                        Ok(()) => page::verify(&p, PageId::new(SpaceId(id), PageNo(0))).unwrap(),
                        Err(Error::TablespaceUnavailable { .. }) => assert!(id < 120),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert!(r.open_files() <= 3);
    let open = (120..140).filter(|&id| r.get(SpaceId(id)).unwrap().is_open()).count();
    assert_eq!(open, r.open_files());
}

#[test]
fn idle_tablespaces_are_forgotten() {
    let io = disk();
    create(&registry(&io, 10), 20);
    let r = registry(&io, 10);
    r.set_resolver(Box::new(|id| Ok(Some((if id.0 == 20 { "s20.myr".into() } else { format!("s{id}") }, uuid(id.0))))));
    r.register(SpaceId(36), "registered", None);
    let held = r.get(SpaceId(52)).unwrap();
    r.get(SpaceId(20)).unwrap().file().unwrap();
    for id in 100..20_000 {
        r.get(SpaceId(id)).unwrap();
    }
    assert!(r.known() < 16 * 70, "{} known", r.known());
    assert!(Arc::ptr_eq(&held, &r.get(SpaceId(52)).unwrap()));
    assert!(r.get(SpaceId(20)).unwrap().is_open());
    assert_eq!(r.get(SpaceId(36)).unwrap().path(), "registered");
}

#[test]
fn tablespaces_with_pages_in_memory_are_not_forgotten() {
    let r = registry(&disk(), 10);
    r.set_resolver(Box::new(|id| Ok(Some((format!("s{id}"), uuid(id.0))))));
    let many = || (1..2_000).for_each(|n| drop(r.get(SpaceId(20 + 16 * n)).unwrap()));
    let first = r.get(SpaceId(20)).unwrap();
    (0..2).for_each(|_| first.page_entered());
    let weak = Arc::downgrade(&first);
    drop(first);
    for left in 0..2 {
        many();
        assert!(weak.upgrade().is_some_and(|space| Arc::ptr_eq(&space, &r.get(SpaceId(20)).unwrap())), "{left} left");
        r.page_left(SpaceId(20));
    }
    many();
    assert!(weak.upgrade().is_none());
    // Of those that are not known, or count nothing, nothing is kept.
    (0..3).for_each(|n| r.page_left(SpaceId(20 + n)));
    let uncounted = Arc::downgrade(&r.get(SpaceId(20)).unwrap());
    r.page_left(SpaceId(20));
    many();
    assert!(uncounted.upgrade().is_none());
    assert!(r.known() < 200, "{}", r.known());
}

#[test]
fn tablespaces_created_in_this_run_are_forgotten_like_others() {
    let r = registry(&disk(), 10);
    create(&r, 20);
    r.set_resolver(Box::new(|id| Ok((id.0 != 20).then(|| (format!("s{id}.myr"), uuid(id.0))))));
    for n in 1..300 {
        create(&r, 20 + 16 * n);
    }
    assert!(r.known() <= 2 * 64, "{} known", r.known());
    let mut p = vec![0; PAGE];
    for n in 0..300 {
        let id = SpaceId(20 + 16 * n);
        r.get(id).unwrap().read_page(PageNo(0), &mut p).unwrap();
        page::verify(&p, PageId::new(id, PageNo(0))).unwrap();
    }
    r.drop_spaces(&[SpaceId(36)]).remove(0).unwrap();
    assert!(r.get(SpaceId(36)).is_err());
}

/// The catalog has a tablespace's row before its file is made: a listing may ask for it then, and open it a moment later.
#[test]
fn tablespaces_are_created_while_somebody_lists_them() {
    let io = disk();
    let r = registry(&io, 4);
    r.set_resolver(Box::new(|id| Ok(Some((format!("s{id}.myr"), uuid(id.0))))));
    let seen = r.get(SpaceId(20)).unwrap();
    assert!(reason(seen.file().err().unwrap()).contains("missing"));
    assert!(Arc::ptr_eq(&seen, &create(&r, 20)) && seen.file().is_ok());
    assert!(r.create(SpaceId(20), "s20.myr", uuid(20), Lsn(1)).is_err(), "twice");
    assert!(seen.file().is_ok() && r.create(SpaceId(20), "other.myr", uuid(20), Lsn(1)).is_err());
    // One whose file cannot be made is not kept, but by who knew of it.
    io.inject(CallKind::Open, "", 0, Fault::Enospc, false);
    assert!(r.create(SpaceId(21), "s21.myr", uuid(21), Lsn(1)).is_err());
    let listed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !listed.load(Ordering::Relaxed) {
                (100..160).for_each(|id| drop(r.get(SpaceId(id)).unwrap().file()));
            }
        });
        for id in 100..160 {
            let space = create(&r, id);
            assert!(Arc::ptr_eq(&space, &r.get(SpaceId(id)).unwrap()));
        }
        listed.store(true, Ordering::Relaxed);
    });
    r.set_max_open_files(1);
    assert_eq!(r.open_files(), 1, "each open file is counted once");
}

#[test]
fn a_tablespace_is_gone_when_it_was_dropped_or_the_catalog_does_not_know_it() {
    let r = registry(&disk(), 10);
    create(&r, 20);
    assert!(![20, 21].iter().any(|&id| r.is_gone(SpaceId(id))), "nobody can say that it is");
    r.set_resolver(Box::new(|id| match id.0 {
        22 => Err(Error::ShuttingDown),
        23 => Ok(Some(("s23.myr".into(), uuid(23)))),
        _ => Ok(None),
    }));
    assert_eq!([20, 21, 22, 23].map(|id| r.is_gone(SpaceId(id))), [false, true, false, false]);
    r.drop_spaces(&[SpaceId(20)]).remove(0).unwrap();
    assert!(r.is_gone(SpaceId(20)));
}

/// What the resolver says may be out of date when it has said it.
#[test]
fn one_that_is_dropped_while_the_catalog_is_asked_for_it_is_not_known_again() {
    let io = disk();
    create(&registry(&io, 10), 20);
    let r = Arc::new(registry(&io, 10));
    let (weak, asked) = (Arc::downgrade(&r), AtomicBool::new(false));
    r.set_resolver(Box::new(move |id| {
        if !asked.swap(true, Ordering::Relaxed) {
            weak.upgrade().unwrap().drop_spaces(&[id]).remove(0)?;
        }
        Ok(Some(("s20.myr".into(), uuid(20))))
    }));
    assert!(reason(r.get(SpaceId(20)).err().unwrap()).contains("dropped"));
    assert_eq!(r.known(), 0);
}

#[test]
fn a_tablespace_in_use_is_not_given_up() {
    let r = registry(&disk(), 10);
    let (id, space) = (SpaceId(20), create(&r, 20));
    let give_up = |meanwhile: &dyn Fn()| {
        let given_up = r.give_up(id, Lsn(7), &|| {
            meanwhile();
            false
        });
        assert_eq!(given_up, r.has_missed(id));
        given_up
    };
    assert!(!give_up(&|| ()), "its file is open");
    assert!(space.try_close());
    space.page_entered();
    assert!(!give_up(&|| ()), "a page is in memory");
    r.page_left(id);
    assert!(give_up(&|| ()));
}

/// There is room for so many in a checkpoint; those that are gone leave it to others.
#[test]
fn tablespaces_that_are_gone_make_room_for_others_to_be_given_up() {
    let (exist_from, asked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let r = registry(&disk(), 10);
    let (from, count) = (Arc::clone(&exist_from), Arc::clone(&asked));
    r.set_resolver(Box::new(move |id| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok((id.0 >= from.load(Ordering::Relaxed)).then(|| (format!("s{id}.myr"), uuid(id.0))))
    }));
    let give_up = |id| r.give_up(SpaceId(id), Lsn(7), &|| false);
    let last = (100..5_000).find(|&id| !give_up(id)).unwrap();
    let asked_once = asked.load(Ordering::Relaxed);
    assert!(last > 200 && !give_up(last) && asked.load(Ordering::Relaxed) == asked_once, "looked for only once");
    exist_from.store(150, Ordering::Relaxed);
    r.forget_missed(SpaceId(199));
    assert!((last..last + 40).all(give_up));
    assert!((150..199).chain(last..last + 40).all(|id| r.has_missed(SpaceId(id))));
    assert!(!(100..150).any(|id| r.has_missed(SpaceId(id))));
}

#[test]
fn a_batch_may_have_a_file_open() {
    assert_eq!([1, 8, 9, 64].map(|max| registry(&disk(), max).files_at_once()), [1, 1, 2, 8]);
}

/// A checkpoint while it is looked whether it is in use must not say that it was given up: a crash would make that final.
#[test]
fn a_file_is_noted_as_too_old_only_when_it_is_given_up() {
    let io = disk();
    let r = registry(&io, 10);
    let known = create(&r, 20);
    assert!(known.try_close() && r.get_known(SpaceId(21)).is_none());
    for id in [20, 21].map(SpaceId) {
        for is_used in [true, false] {
            let before = r.missed_note();
            let given_up = r.give_up(id, Lsn(7), &|| {
                assert!(r.has_missed(id), "new use is refused");
                assert_eq!(r.missed_note(), before);
                is_used
            });
            assert_eq!((given_up, r.has_missed(id), r.missed_note() != before), (!is_used, !is_used, !is_used));
        }
    }
    assert!(reason(known.file().err().unwrap()).contains("missed changes"));
}
