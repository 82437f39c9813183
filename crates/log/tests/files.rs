//! The log on real files.

use myriad_base::random::Random;
use myriad_base::{Error, Lsn};
use myriad_io::{open_io, Io, IoMethod};
use myriad_log::{Log, LogConfig};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SMALL: LogConfig = LogConfig { capacity_bytes: 1 << 20, buffer_bytes: 256 << 10 };

struct Home {
    dir: tempfile::TempDir,
    io: Arc<dyn Io>,
}

impl Home {
    fn new(config: LogConfig) -> Home {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("#myriad")).unwrap();
        let io = open_io(IoMethod::Threads).unwrap();
        Log::create(&io, dir.path(), config, [7; 16]).unwrap();
        Home { dir, io }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.path().join("#myriad/redo.log")).unwrap()
    }

    /// Opens, reads all frames from the checkpoint and resumes.
    fn open(&self, config: LogConfig) -> (Log, BTreeMap<Lsn, Vec<u8>>, Lsn) {
        let log = Log::open(&self.io, self.path(), config).unwrap();
        let mut frames = BTreeMap::new();
        let (from, _) = log.last_checkpoint();
        let end = log
            .scan(from, &mut |start, _, body| {
                frames.insert(start, body.to_vec());
                Ok(())
            })
            .unwrap();
        log.resume_at(end).unwrap();
        (log, frames, end)
    }
}

fn append(log: &Log, body: &[u8]) -> (Lsn, Lsn) {
    let mut range = (Lsn(0), Lsn(0));
    log.append(body, |start, end| range = (start, end)).unwrap();
    range
}

fn body(random: &mut Random, max: u64) -> Vec<u8> {
    let len = 1 + random.below(max) as usize;
    (0..len).map(|_| random.next_u64() as u8).collect()
}

#[test]
fn what_threads_append_is_what_is_read_back() {
    let config = LogConfig { capacity_bytes: 64 << 20, ..SMALL };
    let home = Home::new(config);
    let (log, frames, _) = home.open(config);
    assert!(frames.is_empty());
    let appended = Mutex::new(BTreeMap::new());
    std::thread::scope(|s| {
        for t in 0..8 {
            let (log, appended) = (&log, &appended);
            s.spawn(move || {
                let mut random = Random::from_seed(t);
                for i in 0..800 {
                    let bytes = body(&mut random, if i % 50 == 0 { 60_000 } else { 700 });
                    let (start, end) = append(log, &bytes);
                    appended.lock().unwrap().insert(start, bytes);
                    if random.one_in(20) {
                        log.flush_to(end).unwrap();
                        assert!(log.durable_lsn() >= end);
                    }
                }
            });
        }
    });
    log.flush_to(log.end_lsn()).unwrap();
    let stats = log.stats();
    assert_eq!(stats.appends, 6400);
    assert_eq!(log.contiguous_lsn(), log.end_lsn());
    let end = log.end_lsn();
    drop(log);
    let (_, frames, found) = home.open(config);
    assert_eq!(found, end);
    assert!(frames == appended.into_inner().unwrap(), "every frame, at its place, with its bytes");
}

#[test]
fn many_laps_with_checkpoints_behind() {
    let home = Home::new(SMALL);
    let mut random = Random::from_seed(5);
    let mut expected: BTreeMap<Lsn, Vec<u8>> = BTreeMap::new();
    for _ in 0..12 {
        let (log, frames, end) = home.open(SMALL);
        assert_eq!(frames, expected);
        assert_eq!(end, log.end_lsn());
        for _ in 0..400 {
            let _admission = log.reserve_check().unwrap();
            let bytes = body(&mut random, 3000);
            let (start, _) = append(&log, &bytes);
            expected.insert(start, bytes);
            if log.age() > 500 << 10 {
                let at = *expected.keys().nth(expected.len() / 2).unwrap();
                log.checkpoint(at, b"payload").unwrap();
                expected.retain(|&start, _| start >= at);
            }
        }
        log.flush_to(log.end_lsn()).unwrap();
        assert!(log.end_lsn().0 > 0);
    }
    let log = Log::open(&home.io, home.path(), SMALL).unwrap();
    assert_eq!(log.last_checkpoint().1, b"payload");
    assert!(log.last_checkpoint().0 .0 > 4 << 20, "several laps");
}

#[test]
fn a_damaged_byte_ends_the_log_there() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let ranges: Vec<_> = (0..20u8).map(|i| append(&log, &[i; 100])).collect();
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    home.file().write_all_at(&[0xee], 8192 + ranges[11].0 .0 + 50).unwrap();
    let (_, frames, end) = home.open(SMALL);
    assert_eq!((frames.len(), end), (11, ranges[11].0));
}

#[test]
fn what_a_crashed_run_left_behind_the_end_is_never_read() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let ranges: Vec<_> = (0..5u8).map(|i| append(&log, &[i; 100])).collect();
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    // Frame 2 is lost in the crash, 3 and 4 reached the disk. The next run writes another frame of the same size.
    let kept = {
        let mut kept = vec![0u8; 112];
        home.file().read_exact_at(&mut kept, 8192 + ranges[3].0 .0).unwrap();
        home.file().write_all_at(&[0], 8192 + ranges[2].0 .0).unwrap();
        kept
    };
    let (log, frames, _) = home.open(SMALL);
    assert_eq!(frames.len(), 2);
    assert_eq!(append(&log, &[9; 100]), ranges[2]);
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    home.file().write_all_at(&kept, 8192 + ranges[3].0 .0).unwrap();
    let (_, frames, end) = home.open(SMALL);
    assert_eq!((frames.len(), end), (3, ranges[3].0), "the old frame 3 is whole, but of an earlier run");
}

#[test]
fn one_damaged_header_is_survived_two_are_named() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let (start, end) = append(&log, b"one");
    append(&log, b"two");
    log.flush_to(log.end_lsn()).unwrap();
    log.checkpoint(start, b"a").unwrap();
    log.checkpoint(end, b"b").unwrap();
    drop(log);
    let log = Log::open(&home.io, home.path(), SMALL).unwrap();
    assert_eq!(log.last_checkpoint(), (end, b"b".to_vec()));
    drop(log);
    for slot in [0, 4096] {
        let mut block = vec![0u8; 4096];
        home.file().read_exact_at(&mut block, slot).unwrap();
        home.file().write_all_at(&[1, 2, 3], slot + 500).unwrap();
        let (log, frames, _) = home.open(SMALL);
        assert_eq!((log.last_checkpoint().0, frames.len()), (end, 1), "the other slot says the same");
    }
    home.file().write_all_at(&[0; 8192], 0).unwrap();
    assert!(matches!(Log::open(&home.io, home.path(), SMALL), Err(Error::CorruptFile { .. })));
}

#[test]
fn capacity_slows_and_then_stops_until_a_checkpoint() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let log = Arc::new(log);
    let asked = Arc::new(AtomicU64::new(0));
    let (hook_log, hook_asked) = (Arc::downgrade(&log), Arc::clone(&asked));
    log.set_capacity_hook(Box::new(move |age, capacity| {
        assert!(age <= capacity);
        if hook_asked.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            let log = hook_log.upgrade().unwrap();
            log.checkpoint(log.contiguous_lsn(), b"").unwrap();
        }
    }));
    for _ in 0..4000 {
        let _admission = log.reserve_check().unwrap();
        append(&log, &[1; 1000]);
        assert!(log.age() <= log.capacity());
    }
    assert!(asked.load(Ordering::Relaxed) > 3);
    assert!(log.stats().capacity_waits > 0);
}

#[test]
fn a_clean_log_takes_another_capacity() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let small = log.capacity();
    append(&log, b"something");
    log.flush_to(log.end_lsn()).unwrap();
    let bigger = LogConfig { capacity_bytes: 3 << 20, ..SMALL };
    drop(log);
    let (log, frames, end) = home.open(bigger);
    assert_eq!((frames.len(), log.capacity()), (1, small), "not clean: the size stays");
    log.checkpoint(end, b"clean").unwrap();
    drop(log);
    let (log, _, _) = home.open(bigger);
    assert!(log.capacity() > 2 * small);
    assert_eq!(log.last_checkpoint(), (end, b"clean".to_vec()));
    let (start, _) = append(&log, b"after");
    log.flush_to(log.end_lsn()).unwrap();
    drop(log);
    let (_, frames, _) = home.open(bigger);
    assert_eq!(frames, BTreeMap::from([(start, b"after".to_vec())]));
}

#[test]
fn too_long_a_body_is_refused() {
    let home = Home::new(SMALL);
    let (log, _, _) = home.open(SMALL);
    let max = log.body_bytes_max();
    append(&log, &vec![3; max]);
    assert!(matches!(log.append(&vec![3; max + 1], |_, _| ()), Err(Error::TooLong { .. })));
}
