use super::*;
use crate::IoRequest;
use std::path::Path;

const FILE: &str = "/d/f";

fn new_file(io: &SimIo) -> Arc<dyn File> {
    let f = io.open(Path::new(FILE), OpenMode::NEW).unwrap();
    io.sync_dir(Path::new("/d")).unwrap();
    f
}

fn content(io: &SimIo) -> Vec<u8> {
    let f = io.open(Path::new(FILE), OpenMode::READ).unwrap();
    let mut out = vec![0; f.len().unwrap() as usize];
    assert_eq!(f.read_at(&mut out, 0).unwrap(), out.len());
    out
}

#[test]
fn synced_data_survives_every_crash_and_unsynced_is_torn_at_sectors() {
    let mut seen_old = false;
    let mut seen_new = false;
    let mut seen_mix = false;
    for seed in 0..200 {
        let io = SimIo::new(seed);
        let f = new_file(&io);
        f.write_at(&[1; 4096], 0).unwrap();
        f.sync().unwrap();
        f.write_at(&[2; 2048], 1024).unwrap();
        assert_eq!(content(&io)[2000], 2, "visible at once");
        let after = content(&io.crash(seed));
        assert_eq!(after.len(), 4096);
        assert!(after[..1024].iter().chain(&after[3072..]).all(|&b| b == 1));
        let sectors: Vec<u8> = after[1024..3072].chunks(512).map(|s| s[0]).collect();
        assert!(after[1024..3072].chunks(512).all(|s| s.iter().all(|b| b == &s[0])));
        match (sectors.contains(&1), sectors.contains(&2)) {
            (true, true) => seen_mix = true,
            (true, false) => seen_old = true,
            _ => seen_new = true,
        }
    }
    assert!(seen_old && seen_new && seen_mix);
}

#[test]
fn the_same_seed_gives_the_same_crash() {
    let run = || {
        let io = SimIo::new(1);
        let f = new_file(&io);
        for i in 0..20 {
            f.write_at(&[i; 3000], u64::from(i) * 700).unwrap();
        }
        content(&io.crash(77))
    };
    assert_eq!(run(), run());
}

#[test]
fn names_are_durable_after_a_sync_of_their_directory() {
    let mut lost = 0;
    for seed in 0..50 {
        let io = SimIo::new(seed);
        io.open(Path::new("/d/kept"), OpenMode::NEW).unwrap().sync().unwrap();
        io.sync_dir(Path::new("/d")).unwrap();
        io.open(Path::new("/d/maybe"), OpenMode::NEW).unwrap().sync().unwrap();
        io.rename(Path::new("/d/kept"), Path::new("/d/renamed")).unwrap();
        let after = io.crash(seed);
        let names = after.list_dir(Path::new("/d")).unwrap();
        assert!(names.iter().any(|n| n == "kept") != names.iter().any(|n| n == "renamed"), "{names:?}");
        lost += usize::from(!names.iter().any(|n| n == "maybe"));
    }
    assert!((1..50).contains(&lost));
}

#[test]
fn faults_hit_the_nth_call() {
    let io = SimIo::new(3);
    let f = new_file(&io);
    io.inject(CallKind::Write, "/f", 1, Fault::Eio, false);
    f.write_at(b"a", 0).unwrap();
    assert!(matches!(f.write_at(b"b", 0), Err(Error::Io { errno: 5, .. })));
    f.write_at(b"c", 0).unwrap();
    io.inject(CallKind::Write, "/f", 0, Fault::Enospc, true);
    for _ in 0..3 {
        assert!(matches!(f.write_at(b"b", 0), Err(Error::DiskFull { .. })));
    }
    io.clear_faults();
    io.inject(CallKind::Write, "/other", 0, Fault::Eio, true);
    f.write_at(b"d", 0).unwrap();
    assert_eq!(content(&io), b"d");
    assert_eq!(io.calls(CallKind::Write), 7);
    io.inject(CallKind::Read, "/f", 0, Fault::FlipBit, false);
    let mut byte = [0];
    f.read_at(&mut byte, 0).unwrap();
    assert_eq!((byte[0] ^ b'd').count_ones(), 1);
}

#[test]
fn a_lost_write_is_gone_after_a_crash_even_when_synced() {
    let io = SimIo::new(4);
    let f = new_file(&io);
    f.write_at(b"old", 0).unwrap();
    f.sync().unwrap();
    io.inject(CallKind::Write, "", 0, Fault::Lost, false);
    f.write_at(b"new", 0).unwrap();
    f.sync().unwrap();
    assert_eq!(content(&io), b"new");
    assert_eq!(content(&io.crash(9)), b"old");
}

#[test]
fn a_failed_sync_promises_nothing_and_the_next_one_does_not_repair() {
    let mut kept = 0;
    for seed in 0..60 {
        let io = SimIo::new(seed);
        let f = new_file(&io);
        f.set_len(3).unwrap();
        f.sync().unwrap();
        f.write_at(b"new", 0).unwrap();
        io.inject(CallKind::Sync, "", 0, Fault::Eio, false);
        assert!(f.sync().is_err());
        f.sync().unwrap();
        kept += usize::from(content(&io.crash(seed)) == b"new");
    }
    assert!((1..60).contains(&kept));
}

#[test]
fn power_goes_at_any_call() {
    let io = SimIo::new(5);
    let f = new_file(&io);
    f.write_at(b"one", 0).unwrap();
    f.sync().unwrap();
    io.power_off_after(1);
    f.write_at(b"two", 0).unwrap();
    assert!(f.sync().is_err());
    assert!(io.is_off());
    assert!(f.read_at(&mut [0; 3], 0).is_err());
    assert!(io.open(Path::new(FILE), OpenMode::READ).is_err());
    let after = content(&io.crash(1));
    assert!(after == b"one" || after == b"two");
}

#[test]
fn capacity_and_holes() {
    let io = SimIo::new(6);
    io.set_capacity(Some(10_000));
    let f = new_file(&io);
    f.allocate(0, 8192).unwrap();
    assert!(matches!(f.allocate(8192, 8192), Err(Error::DiskFull { .. })));
    f.write_at(&[5; 8192], 0).unwrap();
    f.punch_hole(0, 4096).unwrap();
    let c = content(&io);
    assert!(c[..4096].iter().all(|&b| b == 0) && c[4096..].iter().all(|&b| b == 5));
    f.set_len(4100).unwrap();
    f.set_len(8192).unwrap();
    assert_eq!(content(&io)[4099..4101], [5, 0]);
}

#[test]
fn locks_and_kill() {
    let io = SimIo::new(7);
    let lock = io.lock_file(Path::new("/d/lock")).unwrap();
    assert!(matches!(io.lock_file(Path::new("/d/lock")), Err(Error::DirectoryLocked { .. })));
    let f = new_file(&io);
    f.write_at(b"x", 0).unwrap();
    let after = io.kill(1);
    assert_eq!(content(&after), b"x");
    after.lock_file(Path::new("/d/lock")).unwrap();
    drop(lock);
    io.lock_file(Path::new("/d/lock")).unwrap();
}

#[test]
fn batches_and_alignment() {
    let io = SimIo::new(8);
    let f = new_file(&io);
    let data: Vec<u8> = (0..100).collect();
    let mut batch: Vec<_> = (0..100).map(|i| IoRequest::write(&*f, &data[i..=i], i as u64)).collect();
    io.submit(&mut batch);
    assert!(batch.iter().all(|r| r.result == Ok(1)));
    assert_eq!(content(&io), data);
    let direct = io.open(Path::new(FILE), OpenMode::WRITE.with_direct(true)).unwrap();
    direct.write_at(&AlignedBuf::new(8192), 4096).unwrap();
    let unaligned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| direct.write_at(&[0; 512], 0)));
    assert!(unaligned.is_err());
}
