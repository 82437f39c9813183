//! The operating system's backends on real files.

use crate::{open_io, AlignedBuf, Create, Io, IoMethod, IoRequest, OpenMode, ThreadIo, UringIo};
use myriad_base::random::Random;
use myriad_base::Error;
use std::path::Path;
use std::sync::Arc;

/// Both backends, or one where the kernel refuses io_uring.
fn backends() -> Vec<Arc<dyn Io>> {
    let mut all: Vec<Arc<dyn Io>> = vec![Arc::new(ThreadIo::new())];
    match UringIo::new() {
        Ok(io) => all.push(Arc::new(io)),
        Err(Error::NotSupported { what }) => eprintln!("not tested: {what}"),
        Err(e) => panic!("{e}"),
    }
    all
}

fn for_each(test: impl Fn(&dyn Io, &Path)) {
    for io in backends() {
        let dir = tempfile::tempdir().unwrap();
        test(&*io, dir.path());
    }
}

#[test]
fn auto_always_gives_a_backend() {
    assert!(["uring", "threads"].contains(&open_io(IoMethod::Auto).unwrap().name()));
    assert_eq!(open_io(IoMethod::Threads).unwrap().name(), "threads");
}

#[test]
fn files() {
    for_each(|io, dir| {
        let path = dir.join("f");
        assert!(matches!(io.open(&path, OpenMode::READ), Err(Error::Io { op: "open", errno: 2, .. })));
        let f = io.open(&path, OpenMode::NEW).unwrap();
        assert!(matches!(io.open(&path, OpenMode::NEW), Err(Error::Io { errno: 17, .. })));
        f.write_at(b"hello", 10).unwrap();
        f.sync().unwrap();
        assert_eq!(f.len().unwrap(), 15);
        let mut buf = [9; 20];
        assert_eq!(f.read_at(&mut buf, 5).unwrap(), 10);
        assert_eq!(&buf[..10], b"\0\0\0\0\0hello");
        assert_eq!(f.read_at(&mut buf, 15).unwrap(), 0);
        f.allocate(0, 100_000).unwrap();
        assert_eq!(f.len().unwrap(), 100_000);
        f.allocate(0, 10).unwrap();
        assert_eq!(f.len().unwrap(), 100_000);
        f.set_len(12).unwrap();
        assert_eq!(f.read_at(&mut buf, 10).unwrap(), 2);
        f.write_at(&[7; 65536], 0).unwrap();
        f.punch_hole(4096, 8192).unwrap();
        let mut all = vec![0; 65536];
        assert_eq!(f.read_at(&mut all, 0).unwrap(), 65536);
        assert!(all[4096..12288].iter().all(|&b| b == 0 || b == 7));
        let read_only = io.open(&path, OpenMode::READ).unwrap();
        assert!(matches!(read_only.write_at(b"x", 0), Err(Error::Io { op: "write", .. })));
    });
}

/// Such as one to a file system that is not mounted.
#[test]
fn a_folder_that_cannot_be_made_is_told_apart() {
    for_each(|io, dir| {
        let (file, link) = (dir.join("file"), dir.join("link"));
        std::fs::write(&file, b"x").unwrap();
        let text = io.create_dir(&file).unwrap_err().to_string();
        assert!(text.contains("Not a directory"), "{text}");
        std::os::unix::fs::symlink("away", &link).unwrap();
        let text = io.create_dir(&link).unwrap_err().to_string();
        assert!(text.contains("link is a link to away, where no folder is"), "{text}");
        std::fs::create_dir(dir.join("away")).unwrap();
        io.create_dir(&link).unwrap();
    });
}

#[test]
fn names() {
    for_each(|io, dir| {
        let sub = dir.join("sub");
        io.create_dir(&sub).unwrap();
        io.create_dir(&sub).unwrap();
        assert!(io.create_dir(&dir.join("no/such")).is_err());
        let mode = OpenMode { create: Create::IfMissing, direct: false, write: true };
        io.open(&sub.join("a"), mode).unwrap();
        io.open(&sub.join("a"), mode).unwrap();
        io.rename(&sub.join("a"), &sub.join("b")).unwrap();
        io.sync_dir(&sub).unwrap();
        assert_eq!(io.list_dir(&sub).unwrap(), ["b"]);
        assert!(!io.exists(&sub.join("a")).unwrap() && io.exists(&sub.join("b")).unwrap());
        io.remove_file(&sub.join("b")).unwrap();
        io.remove_file(&sub.join("b")).unwrap();
        assert!(io.list_dir(&sub).unwrap().is_empty());
        assert!(io.rename(&sub.join("b"), &sub.join("c")).is_err());
        let lock = io.lock_file(&dir.join("lock")).unwrap();
        assert!(matches!(io.lock_file(&dir.join("lock")), Err(Error::DirectoryLocked { .. })));
        drop(lock);
        io.lock_file(&dir.join("lock")).unwrap();
    });
}

#[test]
fn a_folder_that_cannot_be_synced_is_as_durable_as_its_file_system_makes_it() {
    for_each(|io, dir| {
        assert_eq!(io.sync_dir(Path::new("/proc/self")), Ok(()));
        assert!(matches!(io.sync_dir(&dir.join("none")), Err(Error::Io { op: "open", errno: 2, .. })));
    });
}

#[test]
fn batches_larger_than_a_ring_each_request_with_its_own_result() {
    for_each(|io, dir| {
        let f = io.open(&dir.join("f"), OpenMode::NEW).unwrap();
        let read_only = io.open(&dir.join("f"), OpenMode::READ).unwrap();
        let pages: Vec<Vec<u8>> = (0..300).map(|i| vec![i as u8; 4096]).collect();
        let mut batch: Vec<_> =
            pages.iter().enumerate().map(|(i, p)| IoRequest::write(&*f, p, i as u64 * 4096)).collect();
        batch.push(IoRequest::write(&*read_only, b"x", 0));
        io.submit(&mut batch);
        assert!(batch[..300].iter().all(|r| r.result == Ok(4096)));
        assert!(matches!(batch[300].result, Err(Error::Io { op: "write", .. })));
        drop(batch);
        let mut read = vec![[0u8; 4096]; 300];
        let mut last = [1; 8192];
        let mut beyond = [1; 100];
        let mut batch: Vec<_> =
            read.iter_mut().enumerate().map(|(i, p)| IoRequest::read(&*f, p, i as u64 * 4096)).collect();
        batch.push(IoRequest::read(&*f, &mut last, 299 * 4096));
        batch.push(IoRequest::read(&*f, &mut beyond, 1 << 30));
        io.submit(&mut batch);
        assert!(batch[..300].iter().all(|r| r.result == Ok(4096)));
        assert_eq!((&batch[300].result, &batch[301].result), (&Ok(4096), &Ok(0)));
        drop(batch);
        assert!(read.iter().zip(&pages).all(|(r, p)| r[..] == p[..]));
        io.submit(&mut []);
    });
}

#[test]
fn files_of_a_batch_are_synced_each_with_its_own_result() {
    for_each(|io, dir| {
        let files: Vec<_> = (0..5).map(|i| io.open(&dir.join(format!("s{i}")), OpenMode::NEW).unwrap()).collect();
        for f in &files {
            f.write_at(b"text", 0).unwrap();
        }
        let pipe = io.open(Path::new("/proc/self/stat"), OpenMode::READ).unwrap();
        let mut batch: Vec<_> = files.iter().map(|f| IoRequest::sync(&**f)).collect();
        batch.push(IoRequest::sync(&*pipe));
        io.submit(&mut batch);
        assert!(batch[..5].iter().all(|r| r.result == Ok(0)));
        assert!(matches!(batch[5].result, Err(Error::Io { op: "fdatasync", .. })), "{:?}", batch[5].result);
    });
}

#[test]
fn many_threads_submit_at_once() {
    for_each(|io, dir| {
        let f = io.open(&dir.join("f"), OpenMode::NEW).unwrap();
        std::thread::scope(|scope| {
            for t in 0..8u64 {
                let f = &f;
                scope.spawn(move || {
                    let mut random = Random::from_seed(t);
                    for _ in 0..20 {
                        let count = 1 + random.below(40);
                        let fill = random.next_u64() as u8;
                        let data = vec![fill; 512];
                        let at = |i: u64| (t * 40 + i) * 512;
                        let mut batch: Vec<_> = (0..count).map(|i| IoRequest::write(&**f, &data, at(i))).collect();
                        io.submit(&mut batch);
                        assert!(batch.iter().all(|r| r.result == Ok(512)));
                        let mut back = vec![[0u8; 512]; count as usize];
                        let mut batch: Vec<_> =
                            back.iter_mut().zip(0..).map(|(b, i)| IoRequest::read(&**f, b, at(i))).collect();
                        io.submit(&mut batch);
                        assert!(batch.iter().all(|r| r.result == Ok(512)));
                        drop(batch);
                        assert!(back.iter().all(|b| b.iter().all(|&x| x == fill)));
                    }
                });
            }
        });
    });
}

#[test]
fn several_buffers_are_filled_one_after_the_other() {
    for_each(|io, dir| {
        const BLOCK: usize = AlignedBuf::ALIGN;
        let path = dir.join("f");
        let content: Vec<u8> = (0..3 * BLOCK + 100).map(|i| (i / 7) as u8).collect();
        io.open(&path, OpenMode::NEW).unwrap().write_at(&content, 0).unwrap();
        for direct in [false, true] {
            let file = io.open(&path, OpenMode::READ.with_direct(direct)).unwrap();
            for (first, blocks) in [(0, 1), (0, 3), (1, 2), (1, 5), (3, 2), (4, 2)] {
                let mut room = AlignedBuf::new(blocks * BLOCK);
                let mut bufs: Vec<_> = room.chunks_mut(BLOCK).map(std::io::IoSliceMut::new).collect();
                let read = file.read_scattered_at(&mut bufs, (first * BLOCK) as u64).unwrap();
                let expected = &content[(first * BLOCK).min(content.len())..];
                let expected = &expected[..expected.len().min(blocks * BLOCK)];
                assert_eq!(read, expected.len(), "{blocks} blocks from {first}");
                assert!(room[..read] == *expected);
            }
        }
        let f = io.open(&path, OpenMode::WRITE).unwrap();
        assert_eq!(f.read_scattered_at(&mut [], 0).unwrap(), 0);
    });
}

#[test]
fn direct_where_the_file_system_can() {
    for_each(|io, dir| {
        let f = io.open(&dir.join("f"), OpenMode::NEW.with_direct(true)).unwrap();
        let mut buf = AlignedBuf::new(16384);
        buf.fill(3);
        f.write_at(&buf, 4096).unwrap();
        let mut back = AlignedBuf::new(32768);
        assert_eq!(f.read_at(&mut back, 4096).unwrap(), 16384);
        assert_eq!(back[..16384], buf[..]);
        let mut pages: Vec<AlignedBuf> = (0..10).map(|_| AlignedBuf::new(4096)).collect();
        let mut batch: Vec<_> = pages.iter_mut().zip(0..).map(|(p, i)| IoRequest::read(&*f, p, i * 4096)).collect();
        io.submit(&mut batch);
        let moved: usize = batch.iter().map(|r| *r.result.as_ref().unwrap()).sum();
        assert_eq!(moved, 20480);
    });
}

#[test]
fn doing_without_io_uring_has_a_reason() {
    use myriad_base::Error;
    let refused = || Err(Error::NotSupported { what: "io_uring: not here".into() });
    let (io, why) = crate::choose(IoMethod::Auto, refused).unwrap();
    assert_eq!(io.name(), "threads");
    assert!(why.unwrap().to_string().contains("not here"));
    assert!(crate::choose(IoMethod::Uring, refused).is_err());
    assert!(crate::choose(IoMethod::Threads, refused).unwrap().1.is_none());
    let (io, why) = crate::open_io_or_why(IoMethod::Auto).unwrap();
    assert_eq!(io.name() == "threads", why.is_some());
}

#[test]
fn more_than_the_device_has_takes_nothing_of_it() {
    for_each(|io, dir| {
        let path = dir.join("f");
        let f = io.open(&path, OpenMode::NEW).unwrap();
        let device = rustix::fs::statvfs(dir).unwrap();
        // A file system that finds it out itself does so step by step.
        let len = device.f_bfree * device.f_frsize + (1 << 30);
        assert!(matches!(f.allocate(0, len), Err(Error::DiskFull { .. })));
        assert_eq!(rustix::fs::stat(&path).unwrap().st_blocks, 0);
        f.allocate(0, 32 << 20).unwrap();
        assert_eq!(f.len().unwrap(), 32 << 20);
    });
}
