//! Locks that readers and writers meet.

use super::*;

fn filled(n: u64) -> Rig {
    let rig = Rig::small();
    let mut t = rig.trx();
    for i in 0..n {
        rig.insert(&mut t, &key(i * 10), b"row").unwrap();
    }
    t.commit(Durability::Configured).unwrap();
    rig
}

/// Found, not found, and scans either way: nothing is locked, and the newest is read.
#[test]
fn a_private_table_is_read_without_locks() {
    let rig = filled(5);
    let rows = Index { private: true, ..rig.rows };
    let (mut a, mut row) = (rig.trx(), RowBuf::new());
    a.open_snapshot();
    for i in 0..5 {
        assert!(a.get(&rows, &key(i * 10), false, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
        assert!(!a.get(&rows, &key(i * 10 + 1), false, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
        rig.update(&mut a, &key(i * 10), b"new").unwrap();
    }
    rig.delete(&mut a, &key(20)).unwrap();
    for forward in [true, false] {
        let mut cursor = Cursor::new(rows, locking(Strength::X));
        let mut found = cursor.seek(&mut a, if forward { Seek::First } else { Seek::Last }, &[]).unwrap();
        let mut n = 0;
        while found {
            assert_eq!(cursor.value(), b"new");
            n += 1;
            found = if forward { cursor.next(&mut a) } else { cursor.prev(&mut a) }.unwrap();
        }
        assert_eq!(n, 4);
    }
    assert_eq!((a.locks.locks_held(), rig.sys.locks().queues()), (0, 0));
    a.commit(Durability::Configured).unwrap();
}

#[test]
fn writers_exclude_each_other() {
    let rig = filled(5);
    let (mut a, mut b) = (rig.trx(), rig.trx());
    rig.update(&mut a, &key(10), b"a").unwrap();
    assert!(is_blocked(rig.update(&mut b, &key(10), b"b")));
    assert!(is_blocked(rig.delete(&mut b, &key(10))));
    assert!(is_blocked(rig.lock(&mut b, &key(10), Strength::S)));
    assert!(is_blocked(rig.insert(&mut b, &key(10), b"b")));
    rig.delete(&mut a, &key(20)).unwrap();
    assert!(is_blocked(rig.insert(&mut b, &key(20), b"b")));
    rig.insert(&mut a, &key(21), b"a").unwrap();
    assert!(is_blocked(rig.insert(&mut b, &key(21), b"b")));
    assert_eq!(rig.get(&mut b, &key(10)), Some(b"row".to_vec()));
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.lock(&mut b, &key(10), Strength::S).unwrap(), Some(b"a".to_vec()), "the newest committed version");
    assert_eq!(rig.get(&mut b, &key(10)), Some(b"row".to_vec()), "the snapshot's");
    rig.insert(&mut b, &key(20), b"b").unwrap();
    assert!(matches!(rig.insert(&mut b, &key(21), b"b"), Err(Error::DuplicateKey { .. })));
}

/// Whatever is changed or locked, and in whatever way it is found; what only has locks, or was undone, is as it was.
#[test]
fn what_others_changed_since_the_snapshot_is_refused_with_snapshot_isolation() {
    let rig = filled(200);
    let changed = |r: Result<()>| matches!(r, Err(Error::RecordChanged));
    let scan = |t: &mut Trx, from: u64, seek: Seek| -> Result<()> {
        let mut cursor = Cursor::new(rig.rows, locking(Strength::S));
        let forward = matches!(seek, Seek::Ge);
        let mut found = cursor.seek(t, seek, &key(from))?;
        while found {
            found = if forward { cursor.next(t)? } else { cursor.prev(t)? };
        }
        Ok(())
    };
    let (mut a, mut b) = (rig.trx_at(Isolation::Snapshot), rig.trx());
    a.open_snapshot();
    rig.update(&mut b, &key(1000), b"b").unwrap();
    rig.delete(&mut b, &key(1500)).unwrap();
    rig.insert(&mut b, &key(1701), b"b").unwrap();
    assert!(is_blocked(rig.update(&mut a, &key(1000), b"a")), "nobody knows yet");
    b.commit(Durability::Configured).unwrap();
    for k in [1000, 1500, 1701] {
        assert!(changed(rig.lock(&mut a, &key(k), Strength::S).map(drop)), "{k} by its key");
        assert!(changed(scan(&mut a, k - 5, Seek::Ge)), "{k} by a scan");
        assert!(changed(scan(&mut a, k + 5, Seek::Le)), "{k} by a scan down");
        assert!(changed(rig.insert(&mut a, &key(k), b"a")), "insert {k}");
    }
    assert!(changed(scan(&mut a, 0, Seek::Ge)), "behind many others");
    assert!(changed(rig.update(&mut a, &key(1000), b"a")), "unread");
    assert!(changed(rig.delete(&mut a, &key(1701))), "unread");
    rig.update(&mut a, &key(1010), b"a").unwrap();
    rig.lock(&mut a, &key(1010), Strength::X).unwrap();
    a.rollback().unwrap();
    // Before there is a snapshot, and of its own changes, nothing is refused.
    rig.update(&mut a, &key(1000), b"a").unwrap();
    a.open_snapshot();
    scan(&mut a, 0, Seek::Ge).unwrap();
    a.rollback().unwrap();
    a.open_snapshot();
    rig.update(&mut b, &key(1000), b"undone").unwrap();
    b.rollback().unwrap();
    rig.update(&mut a, &key(1000), b"a").unwrap();
    a.commit(Durability::Configured).unwrap();
}

#[test]
fn shared_locks_go_together() {
    let rig = filled(5);
    let (mut a, mut b) = (rig.trx(), rig.trx());
    rig.lock(&mut a, &key(10), Strength::S).unwrap();
    rig.lock(&mut b, &key(10), Strength::S).unwrap();
    assert!(is_blocked(rig.update(&mut b, &key(10), b"b")));
    a.rollback().unwrap();
    rig.update(&mut b, &key(10), b"b").unwrap();
}

#[test]
fn gaps_are_locked_at_repeatable_read_only() {
    let rig = filled(5);
    let mut b = rig.trx();
    for (isolation, blocked) in [(Isolation::RepeatableRead, true), (Isolation::ReadCommitted, false)] {
        let mut a = rig.trx_at(isolation);
        // A key that is not there.
        assert_eq!(rig.lock(&mut a, &key(15), Strength::X).unwrap(), None);
        assert_eq!(is_blocked(rig.insert(&mut b, &key(13), b"b")), blocked);
        b.rollback().unwrap();
        rig.insert(&mut b, &key(9), b"b").unwrap();
        b.rollback().unwrap();
        a.rollback().unwrap();
        // A range.
        let mut c = Cursor::new(rig.rows, locking(Strength::S));
        assert!(c.seek(&mut a, Seek::Ge, &key(20)).unwrap());
        assert!(c.next(&mut a).unwrap());
        assert_eq!(c.key(), key(30));
        assert_eq!(is_blocked(rig.insert(&mut b, &key(25), b"b")), blocked);
        b.rollback().unwrap();
        rig.insert(&mut b, &key(19), b"b").unwrap();
        rig.insert(&mut b, &key(35), b"b").unwrap();
        b.rollback().unwrap();
        assert!(c.next(&mut a).unwrap() && !c.next(&mut a).unwrap());
        assert_eq!(is_blocked(rig.insert(&mut b, &key(99), b"b")), blocked, "the supremum");
        b.rollback().unwrap();
        // Downwards.
        a.rollback().unwrap();
        assert!(c.seek(&mut a, Seek::Le, &key(25)).unwrap());
        assert_eq!(c.key(), key(20));
        assert_eq!(is_blocked(rig.insert(&mut b, &key(26), b"b")), blocked);
        b.rollback().unwrap();
        assert_eq!(is_blocked(rig.insert(&mut b, &key(15), b"b")), blocked);
        b.rollback().unwrap();
        a.rollback().unwrap();
        // One whole key: no gap.
        assert!(c.seek(&mut a, Seek::ExactUnique, &key(20)).unwrap());
        rig.insert(&mut b, &key(19), b"b").unwrap();
        rig.insert(&mut b, &key(21), b"b").unwrap();
        b.rollback().unwrap();
    }
}

#[test]
fn a_gap_lock_survives_purge_and_covers_new_halves() {
    let rig = filled(5);
    let (mut a, mut b, mut c) = (rig.trx(), rig.trx(), rig.trx());
    rig.delete(&mut b, &key(20)).unwrap();
    b.commit(Durability::Configured).unwrap();
    assert_eq!(rig.lock(&mut a, &key(20), Strength::X).unwrap(), None);
    rig.purge_all();
    assert_eq!(rig.entries(), 4);
    for k in [12, 20, 25] {
        assert!(is_blocked(rig.insert(&mut b, &key(k), b"b")), "{k}");
        b.rollback().unwrap();
    }
    rig.insert(&mut a, &key(22), b"a").unwrap();
    for k in [12, 21, 25] {
        assert!(is_blocked(rig.insert(&mut c, &key(k), b"c")), "{k}");
        c.rollback().unwrap();
    }
    a.rollback().unwrap();
    rig.insert(&mut b, &key(21), b"b").unwrap();
}

#[test]
fn gaps_reach_over_leaves() {
    let rig = Rig::small();
    let mut t = rig.trx();
    for i in 0..200u64 {
        rig.insert(&mut t, &key(i * 10), &[1; 200]).unwrap();
    }
    t.commit(Durability::Configured).unwrap();
    let (mut a, mut b) = (rig.trx(), rig.trx());
    for i in 0..200u64 {
        // Each gap, among them those that leaves divide.
        assert_eq!(rig.lock(&mut a, &key(i * 10 + 5), Strength::S).unwrap(), None);
        for k in [i * 10 + 1, i * 10 + 9] {
            assert!(is_blocked(rig.insert(&mut b, &key(k), b"b")), "{k}");
            b.rollback().unwrap();
        }
        a.rollback().unwrap();
        rig.insert(&mut b, &key(i * 10 + 9), b"b").unwrap();
        b.rollback().unwrap();
    }
    let mut c = Cursor::new(rig.rows, locking(Strength::X));
    for seek in [Seek::First, Seek::Last] {
        let mut more = c.seek(&mut a, seek, &[]).unwrap();
        let mut n = 0;
        while more {
            n += 1;
            more = if seek == Seek::First { c.next(&mut a) } else { c.prev(&mut a) }.unwrap();
        }
        assert_eq!(n, 200);
        for i in 0..200u64 {
            assert!(is_blocked(rig.insert(&mut b, &key(i * 10 + 9), b"b")), "{seek:?} {i}");
            b.rollback().unwrap();
        }
        a.rollback().unwrap();
    }
}

#[test]
fn the_last_entry_with_a_prefix_is_looked_for_within_it() {
    let rig = Rig::small();
    let (mut a, mut b, mut c) = (rig.trx(), rig.trx(), rig.trx());
    for n in [100, 300, 310, 600] {
        rig.insert(&mut a, &key(n), b"row").unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    rig.lock(&mut b, &key(300), Strength::X).unwrap();
    rig.lock(&mut b, &key(310), Strength::X).unwrap();
    // The numbers from 256 to 511, which are locked, and those from 1024 on, of which there is none.
    let options = CursorOptions { wait: LockWait::SkipLocked, ..locking(Strength::X) };
    for prefix in [&key(300)[..7], &key(1024)[..7]] {
        let mut cursor = Cursor::new(rig.rows, options);
        assert!(!cursor.seek(&mut a, Seek::ExactLast, prefix).unwrap());
    }
    for n in [320, 1030] {
        assert!(is_blocked(rig.insert(&mut c, &key(n), b"c")), "the gap above");
        c.rollback().unwrap();
    }
    for n in [100, 600] {
        assert!(rig.lock(&mut c, &key(n), Strength::X).unwrap().is_some(), "{n} is not in it");
    }
}

#[test]
fn locked_rows_can_be_skipped_or_read_as_committed() {
    let rig = filled(5);
    let mut a = rig.trx();
    rig.update(&mut a, &key(10), b"new").unwrap();
    rig.delete(&mut a, &key(20)).unwrap();
    rig.insert(&mut a, &key(25), b"new").unwrap();
    let mut b = rig.trx_at(Isolation::ReadCommitted);
    let options = CursorOptions { wait: LockWait::SkipLocked, ..locking(Strength::X) };
    let all = |b: &mut Trx, options| {
        let mut c = Cursor::new(rig.rows, options);
        let mut out = vec![];
        let mut more = c.seek(b, Seek::First, &[]).unwrap();
        while more {
            out.push((u64::from_be_bytes(c.key().try_into().unwrap()), c.value().to_vec(), c.was_semi_consistent()));
            c.unlock_row(b);
            more = c.next(b).unwrap();
        }
        out
    };
    let keys = |rows: &[(u64, Vec<u8>, bool)]| rows.iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(keys(&all(&mut b, options)), [0, 30, 40]);
    let rows = all(&mut b, CursorOptions { semi_consistent: true, ..locking(Strength::X) });
    assert_eq!(keys(&rows), [0, 10, 20, 30, 40]);
    assert!(rows.iter().all(|r| r.1 == b"row"));
    assert_eq!(rows.iter().map(|r| r.2).collect::<Vec<_>>(), [false, true, true, false, false]);
    let mut c = rig.trx();
    rig.lock(&mut c, &key(30), Strength::X).unwrap();
    b.rollback().unwrap();
    let mut again = Cursor::new(rig.rows, CursorOptions { semi_consistent: true, ..locking(Strength::X) });
    assert!(again.seek(&mut b, Seek::Ge, &key(10)).unwrap() && again.was_semi_consistent());
    assert!(is_blocked(again.next(&mut b)), "the same row, locked this time");
    a.commit(Durability::Configured).unwrap();
    assert!(again.next(&mut b).unwrap() && !again.was_semi_consistent());
    assert_eq!((again.key(), again.value()), (&key(10)[..], &b"new"[..]));
    // A row that is gone when it is to be read again: the one behind it is another, and locked.
    b.rollback().unwrap();
    rig.delete(&mut a, &key(10)).unwrap();
    rig.lock(&mut a, &key(25), Strength::X).unwrap();
    assert!(again.seek(&mut b, Seek::Ge, &key(10)).unwrap() && again.was_semi_consistent());
    a.commit(Durability::Configured).unwrap();
    rig.lock(&mut a, &key(25), Strength::X).unwrap();
    assert!(again.next(&mut b).unwrap() && again.was_semi_consistent());
    assert_eq!(again.key(), key(25));
    let mut exact = Cursor::new(rig.rows, CursorOptions { semi_consistent: true, ..locking(Strength::X) });
    assert!(exact.seek(&mut b, Seek::Exact, &key(25)).unwrap() && exact.was_semi_consistent());
    a.rollback().unwrap();
    rig.delete(&mut a, &key(25)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert!(!exact.next(&mut b).unwrap());
}

#[test]
fn a_look_up_of_a_deleted_row_locks_its_key_alone() {
    let rig = filled(4);
    let (mut old, mut a, mut b) = (rig.trx(), rig.trx(), rig.trx());
    assert!(rig.get(&mut old, &key(10)).is_some());
    rig.delete(&mut a, &key(10)).unwrap();
    a.commit(Durability::Configured).unwrap();
    assert_eq!(rig.lock(&mut a, &key(10), Strength::X).unwrap(), None);
    let mut is_kept_out = |n| {
        let blocked = is_blocked(rig.insert(&mut b, &key(n), b"b"));
        b.rollback().unwrap();
        blocked
    };
    assert_eq!([9, 10, 11].map(&mut is_kept_out), [false, true, false]);
    old.rollback().unwrap();
    rig.purge_all();
    assert_eq!([9, 10, 11].map(&mut is_kept_out), [true; 3], "the entry is gone: its lock is one of the gap");
}

#[test]
fn a_looked_up_row_can_be_let_go_at_read_committed() {
    let rig = filled(3);
    let mut row = RowBuf::new();
    for (isolation, goes) in [(Isolation::ReadCommitted, true), (Isolation::RepeatableRead, false)] {
        let (mut a, mut b) = (rig.trx_at(isolation), rig.trx());
        for prefix in [false, true] {
            assert!(a.get(&rig.rows, &key(10), prefix, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
            assert!(row.lock_is_new());
            assert!(a.get(&rig.rows, &key(10), prefix, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
            assert!(!row.lock_is_new(), "it was locked before: not for this read alone");
            a.unlock(&rig.rows, &key(10), Strength::X);
            assert_eq!(is_blocked(rig.lock(&mut b, &key(10), Strength::X)), !goes);
            b.rollback().unwrap();
            if !goes {
                a.rollback().unwrap();
            }
        }
        rig.update(&mut a, &key(10), b"own").unwrap();
        assert!(a.get(&rig.rows, &key(10), false, Some(Strength::X), LockWait::Wait, &mut row).unwrap());
        assert!(!row.lock_is_new(), "its own change is its lock");
        a.rollback().unwrap();
    }
}

/// However long the scan is.
#[test]
fn rows_of_a_scan_can_be_let_go_at_read_committed() {
    for (isolation, goes) in [(Isolation::ReadCommitted, true), (Isolation::RepeatableRead, false)] {
        let rig = Rig::small();
        let mut t = rig.trx();
        (0..200).for_each(|i| rig.insert(&mut t, &key(i * 1_000), b"row").unwrap());
        t.commit(Durability::Configured).unwrap();
        let (mut a, mut b) = (rig.trx_at(isolation), rig.trx());
        let mut cursor = Cursor::new(rig.rows, locking(Strength::X));
        let mut found = cursor.seek(&mut a, Seek::First, &[]).unwrap();
        while found {
            cursor.unlock_row(&mut a);
            found = cursor.next(&mut a).unwrap();
        }
        for i in 0..200 {
            assert_eq!(is_blocked(rig.lock(&mut b, &key(i * 1_000), Strength::X)), !goes, "{isolation:?}, row {i}");
        }
    }
}

#[test]
fn read_uncommitted_reads_what_is_there() {
    let rig = filled(2);
    let (mut a, mut b) = (rig.trx(), rig.trx_at(Isolation::ReadUncommitted));
    rig.update(&mut a, &key(0), b"dirty").unwrap();
    rig.insert(&mut a, &key(5), b"dirty").unwrap();
    rig.delete(&mut a, &key(10)).unwrap();
    assert_eq!(rig.scan(&mut b, &rig.rows, true), [(key(0), b"dirty".to_vec()), (key(5), b"dirty".to_vec())]);
    a.rollback().unwrap();
    assert_eq!(rig.scan(&mut b, &rig.rows, true).len(), 2);
}

#[test]
fn unique_prefixes_wait_and_refuse() {
    let rig = Rig::small();
    let put = |t: &mut Trx, k: &[u8]| rig.one(t, OpKind::Insert, &rig.names, k, 3, b"");
    let (mut a, mut b) = (rig.trx(), rig.trx());
    put(&mut a, b"ann1").unwrap();
    assert!(is_blocked(put(&mut b, b"ann2")));
    a.rollback().unwrap();
    put(&mut b, b"ann2").unwrap();
    b.commit(Durability::Configured).unwrap();
    rig.one(&mut a, OpKind::Delete, &rig.names, b"ann2", 0, b"").unwrap();
    assert!(is_blocked(put(&mut b, b"ann3")));
    put(&mut a, b"ann4").unwrap();
    a.commit(Durability::Configured).unwrap();
    assert!(matches!(put(&mut b, b"ann3"), Err(Error::DuplicateKey { .. })));
    assert_eq!(b.duplicate_key(), b"ann4");
}

#[test]
fn a_deadlock_is_found() {
    let rig = filled(3);
    let rig = &rig;
    let barrier = std::sync::Barrier::new(2);
    let victims: usize = std::thread::scope(|s| {
        let run = |first: u64, second: u64| {
            let barrier = &barrier;
            s.spawn(move || {
                let mut t = rig.trx();
                t.set_lock_wait_timeout(Duration::from_secs(120));
                rig.update(&mut t, &key(first), b"x").unwrap();
                barrier.wait();
                match rig.update(&mut t, &key(second), b"y") {
                    Ok(()) => t.commit(Durability::Configured).map(|()| 0).unwrap(),
                    Err(Error::Deadlock) => t.rollback().map(|()| 1).unwrap(),
                    Err(e) => panic!("{e}"),
                }
            })
        };
        let (a, b) = (run(0, 10), run(10, 0));
        a.join().unwrap() + b.join().unwrap()
    });
    assert_eq!(victims, 1);
}

#[test]
fn a_killed_wait_ends() {
    let rig = filled(3);
    let (mut a, mut b) = (rig.trx(), rig.trx());
    b.set_lock_wait_timeout(Duration::from_secs(120));
    rig.update(&mut a, &key(0), b"x").unwrap();
    let handle = b.handle();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut waiting = false;
            while !waiting {
                rig.sys.list_trx(&mut |t| waiting |= t.waiting);
                std::thread::yield_now();
            }
            handle.kill();
        });
        assert!(matches!(rig.update(&mut b, &key(0), b"y"), Err(Error::Interrupted)));
    });
    b.reset_kill();
    rig.update(&mut b, &key(10), b"y").unwrap();
}

/// Inserts into the unique index, whose keys are a name of 4 bytes and the row's key.
fn insert_name(rig: &Rig, t: &mut Trx, name: &str, id: u64) -> Result<()> {
    let full = [name.as_bytes(), &key(id)[..]].concat();
    let op = Op { kind: OpKind::Insert, index: &rig.names, key: &full, unique_len: 4, payload: b"", head_len: 0 };
    t.apply(&[op]).map_err(|e| e.error)
}

/// A key is free again, its delete-marked entry still there: the check for duplicates locks that entry and the one behind
/// it, with the gaps before both, wherever the leaves' ends are.
#[test]
fn a_passed_duplicate_check_locks_the_entry_behind() {
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        for others in [0, 500] {
            let rig = Rig::small();
            let mut t = rig.trx();
            for name in ["aaaa", "cccc", "eeee", "gggg"] {
                insert_name(&rig, &mut t, name, 1).unwrap();
            }
            t.commit(Durability::Configured).unwrap();
            let mut a = rig.trx_at(isolation);
            // Many entries of the name spread it over several leaves.
            for id in 1..=others {
                insert_name(&rig, &mut a, "dddd", id).unwrap();
                let full = [&b"dddd"[..], &key(id)].concat();
                rig.one(&mut a, OpKind::Delete, &rig.names, &full, 0, b"").unwrap();
            }
            let full = [&b"cccc"[..], &key(1)].concat();
            rig.one(&mut a, OpKind::Delete, &rig.names, &full, 0, b"").unwrap();
            if others > 0 {
                insert_name(&rig, &mut a, "dddd", others + 1).unwrap();
            }
            insert_name(&rig, &mut a, "cccc", 2).unwrap();
            let mut b = rig.trx();
            for (name, blocked) in [("bbbb", true), ("dzzz", true), ("eeee", false), ("ffff", false), ("zzzz", false)] {
                let done = insert_name(&rig, &mut b, name, 9);
                if name == "eeee" {
                    assert!(matches!(done, Err(Error::DuplicateKey { .. })), "a shared lock of it is no hindrance");
                } else {
                    assert_eq!(is_blocked(done), blocked, "{name} {isolation:?} {others}");
                }
                b.rollback().unwrap();
            }
        }
    }
}

/// There is no entry behind it.
#[test]
fn a_passed_duplicate_check_locks_the_end_of_the_index() {
    let rig = Rig::small();
    let (mut a, mut b) = (rig.trx(), rig.trx());
    insert_name(&rig, &mut a, "aaaa", 1).unwrap();
    insert_name(&rig, &mut a, "cccc", 1).unwrap();
    a.commit(Durability::Configured).unwrap();
    let full = [&b"cccc"[..], &key(1)].concat();
    rig.one(&mut a, OpKind::Delete, &rig.names, &full, 0, b"").unwrap();
    insert_name(&rig, &mut a, "cccc", 2).unwrap();
    assert!(is_blocked(insert_name(&rig, &mut b, "dddd", 1)));
}

/// Deleted entries of the name fill several leaves. The live one is before or behind the new one's place.
#[test]
fn a_duplicate_is_found_in_another_leaf() {
    for live in [0, 500, 1_000] {
        let rig = Rig::small();
        let mut t = rig.trx();
        for id in (0..=1_000).step_by(2).filter(|id| *id != live) {
            insert_name(&rig, &mut t, "name", id).unwrap();
            let full = [&b"name"[..], &key(id)].concat();
            rig.one(&mut t, OpKind::Delete, &rig.names, &full, 0, b"").unwrap();
        }
        insert_name(&rig, &mut t, "name", live).unwrap();
        t.commit(Durability::Configured).unwrap();
        for id in [1, 251, 501, 751, 1_001] {
            let done = insert_name(&rig, &mut t, "name", id);
            assert!(matches!(done, Err(Error::DuplicateKey { .. })), "{id} with {live}");
            t.rollback().unwrap();
        }
    }
}

#[test]
fn equality_on_a_secondary_index_locks_the_gap_before() {
    let rig = Rig::small();
    let mut t = rig.trx();
    for name in ["aaaa", "cccc", "eeee"] {
        insert_name(&rig, &mut t, name, 1).unwrap();
    }
    t.commit(Durability::Configured).unwrap();
    for (isolation, blocked) in [(Isolation::RepeatableRead, true), (Isolation::ReadCommitted, false)] {
        let (mut a, mut b) = (rig.trx_at(isolation), rig.trx());
        let mut c = Cursor::new(rig.names, locking(Strength::X));
        assert!(c.seek(&mut a, Seek::ExactUnique, b"cccc").unwrap());
        assert_eq!(is_blocked(insert_name(&rig, &mut b, "bbbb", 1)), blocked);
        b.rollback().unwrap();
        insert_name(&rig, &mut b, "dddd", 1).unwrap();
        b.rollback().unwrap();
    }
}

#[test]
fn a_duplicate_key_locks_no_gap() {
    let rig = filled(5);
    let (mut a, mut b) = (rig.trx(), rig.trx());
    assert!(matches!(rig.insert(&mut a, &key(20), b"a"), Err(Error::DuplicateKey { .. })));
    rig.insert(&mut b, &key(15), b"b").unwrap();
    rig.insert(&mut b, &key(25), b"b").unwrap();
    assert!(is_blocked(rig.update(&mut b, &key(20), b"b")));
}

#[test]
fn a_row_changed_though_newer_than_the_snapshot_shows_so_by_every_index_and_no_other_row_does() {
    overtake(Isolation::RepeatableRead);
}

/// A statement that reads, changes and reads: in a function.
#[test]
fn so_does_one_within_a_statement_at_read_committed() {
    overtake(Isolation::ReadCommitted);
}

/// Row keys of different lengths, one the end of another.
fn overtake(isolation: Isolation) {
    let rig = Rig::small();
    let put = |t: &mut Trx, kind, row: &str, name: &str| {
        let full = [name, row].concat();
        let by_row =
            Op { kind, index: &rig.rows, key: row.as_bytes(), unique_len: 0, payload: name.as_bytes(), head_len: 0 };
        let by_name = Op { index: &rig.names, key: full.as_bytes(), payload: b"", ..by_row };
        t.apply(&[by_row, by_name]).unwrap();
    };
    let rename = |t: &mut Trx, row: &str, from: &str, to: &str| {
        let (old, new) = ([from, row].concat(), [to, row].concat());
        let by_row = Op {
            kind: OpKind::Update,
            index: &rig.rows,
            key: row.as_bytes(),
            unique_len: 0,
            payload: to.as_bytes(),
            head_len: 0,
        };
        let delete = Op { kind: OpKind::Delete, index: &rig.names, key: old.as_bytes(), payload: b"", ..by_row };
        let insert = Op { kind: OpKind::Insert, key: new.as_bytes(), ..delete };
        t.apply(&[by_row, delete, insert]).unwrap();
    };
    let names = |t: &mut Trx| -> Vec<String> {
        let rows = rig.scan(t, &rig.names, true);
        assert_eq!(rows, rig.scan(t, &rig.names, false));
        assert_eq!(t.count(&rig.names).unwrap(), rows.len() as u64);
        rows.into_iter().map(|(k, _)| String::from_utf8(k).unwrap()).collect()
    };
    let (mut a, mut b) = (rig.trx_at(isolation), rig.trx());
    for row in ["1", "21", "321"] {
        put(&mut b, OpKind::Insert, row, "x");
    }
    b.commit(Durability::Configured).unwrap();
    assert_eq!(names(&mut a), ["x1", "x21", "x321"]);
    for row in ["1", "21", "321"] {
        rename(&mut b, row, "x", "y");
    }
    b.commit(Durability::Configured).unwrap();
    assert_eq!(names(&mut a), ["x1", "x21", "x321"]);
    let before = a.savepoint();
    let touch = Op { kind: OpKind::Update, index: &rig.rows, key: b"21", unique_len: 0, payload: b"y", head_len: 0 };
    a.apply(&[touch]).unwrap();
    // Uncommitted changes of the others are nobody's business.
    rename(&mut b, "321", "y", "z");
    assert_eq!(names(&mut a), ["x1", "x321", "y21"]);
    let has = |t: &mut Trx, name: &str| {
        let mut row = RowBuf::new();
        t.get(&rig.names, name.as_bytes(), false, None, LockWait::Wait, &mut row).unwrap()
    };
    assert!(has(&mut a, "x1") && has(&mut a, "y21") && !has(&mut a, "x21") && !has(&mut a, "y1"));
    let delete = Op { kind: OpKind::Delete, payload: b"", ..touch };
    a.apply(&[delete, Op { index: &rig.names, key: b"y21", ..delete }]).unwrap();
    assert_eq!(names(&mut a), ["x1", "x321"]);
    assert!(!has(&mut a, "x21") && !has(&mut a, "y21"));
    a.rollback_to(before).unwrap();
    assert_eq!(names(&mut a), ["x1", "x21", "x321"]);
    a.commit(Durability::Configured).unwrap();
    assert_eq!(names(&mut a), ["y1", "y21", "y321"]);
}

/// Most locks of a long scan are in spans; nobody notices.
#[test]
fn a_long_scan_locks_each_entry() {
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let gaps = isolation == Isolation::RepeatableRead;
        let rig = filled(300);
        let mut t = rig.trx();
        for i in 0..300 {
            rig.one(&mut t, OpKind::Insert, &rig.names, &key(i * 20), 0, b"").unwrap();
        }
        t.commit(Durability::Configured).unwrap();
        let (mut a, mut b, mut c) = (rig.trx_at(isolation), rig.trx_at(isolation), rig.trx_at(isolation));
        let mut cursor = Cursor::new(rig.names, locking(Strength::X));
        assert!(cursor.seek(&mut a, Seek::Ge, &key(200)).unwrap());
        while cursor.key() < &key(4_000)[..] {
            assert!(cursor.next(&mut a).unwrap());
        }
        assert!(a.sys.locks().queues() < 100, "spans");
        let mut try_names = |kind, k| {
            let outcome = rig.one(&mut b, kind, &rig.names, &key(k), 0, b"b");
            b.rollback().unwrap();
            is_blocked(outcome)
        };
        for k in (200..=4_000).step_by(20) {
            assert!(try_names(OpKind::Delete, k), "{k}");
            assert_eq!(try_names(OpKind::Insert, k - 1), gaps, "before {k}");
        }
        assert!(!try_names(OpKind::Delete, 180) && !try_names(OpKind::Delete, 4_020));
        assert!(!try_names(OpKind::Insert, 179) && !try_names(OpKind::Insert, 4_001));
        if !gaps {
            // What others insert meanwhile is theirs.
            rig.one(&mut b, OpKind::Insert, &rig.names, &key(3_005), 0, b"").unwrap();
            b.commit(Durability::Configured).unwrap();
            rig.one(&mut c, OpKind::Delete, &rig.names, &key(3_005), 0, b"").unwrap();
            assert!(is_blocked(rig.one(&mut c, OpKind::Delete, &rig.names, &key(3_020), 0, b"")));
            c.rollback().unwrap();
        }
        rig.one(&mut a, OpKind::Delete, &rig.names, &key(2_000), 0, b"").unwrap();
        a.commit(Durability::Configured).unwrap();
        assert_eq!(rig.sys.locks().queues(), 0);
        rig.one(&mut b, OpKind::Delete, &rig.names, &key(2_020), 0, b"").unwrap();
        b.commit(Durability::Configured).unwrap();
    }
}

#[test]
fn too_many_row_locks_are_refused() {
    let rig = filled(2_000);
    rig.sys.locks().set_memory_max(800 * 200);
    let (mut a, mut b) = (rig.trx(), rig.trx());
    // Downwards, so that there are no spans.
    let scan = |t: &mut Trx| {
        let mut cursor = Cursor::new(rig.rows, locking(Strength::X));
        let mut found = cursor.seek(t, Seek::Last, &[])?;
        let mut rows = 0;
        while found {
            rows += 1;
            found = cursor.prev(t)?;
        }
        Ok(rows)
    };
    let full = Error::LockTableFull { limit_bytes: 800 * 200 };
    assert_eq!(scan(&mut a), Err(full.clone()));
    assert!(a.locks.locks_held() < 1_800);
    assert_eq!(rig.lock(&mut a, &key(5), Strength::S), Err(full.clone()));
    assert_eq!(rig.insert(&mut a, &key(5), b"a"), Err(full));
    rig.insert(&mut b, &key(7), b"b").unwrap();
    a.rollback().unwrap();
    b.rollback().unwrap();
    rig.sys.locks().set_memory_max(u64::MAX);
    assert_eq!(scan(&mut a), Ok(2_000));
}

/// Pages that a step of the cursor asks for.
fn pages_of<R>(step: impl FnOnce() -> R) -> (R, u64) {
    let before = myriad_base::work::of_thread().pages_accessed;
    let result = step();
    (result, myriad_base::work::of_thread().pages_accessed - before)
}

#[test]
fn deleted_entries_that_nobody_else_holds_are_passed_a_leaf_at_a_time() {
    let rig = filled(1000);
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let (mut a, mut b) = (rig.trx_at(isolation), rig.trx());
        for i in 5..995u64 {
            rig.delete(&mut a, &key(i * 10)).unwrap();
        }
        for (seek, from, found) in
            [(Seek::Ge, 50, 9950), (Seek::Gt, 40, 9950), (Seek::Le, 9940, 40), (Seek::Lt, 9950, 40)]
        {
            let mut c = Cursor::new(rig.rows, locking(Strength::X));
            let (there, pages) = pages_of(|| c.seek(&mut a, seek, &key(from)).unwrap());
            assert!(there && c.key() == key(found), "{seek:?}");
            assert!(pages < 300, "{seek:?}: {pages} pages");
        }
        for k in [55, 2055, 9945] {
            assert_eq!(is_blocked(rig.insert(&mut b, &key(k), b"b")), isolation.locks_gaps(), "{k}");
            b.rollback().unwrap();
        }
        a.rollback().unwrap();
    }
    // Those of others, where no gaps are locked.
    let (mut a, mut b) = (rig.trx(), rig.trx_at(Isolation::ReadCommitted));
    for i in 0..995u64 {
        rig.delete(&mut a, &key(i * 10)).unwrap();
    }
    let mut c = Cursor::new(rig.rows, CursorOptions { wait: LockWait::SkipLocked, ..locking(Strength::X) });
    assert!(c.seek(&mut b, Seek::First, &[]).unwrap() && c.key() == key(9950), "not yet committed");
    assert!(is_blocked(Cursor::new(rig.rows, locking(Strength::X)).seek(&mut b, Seek::First, &[])));
    a.commit(Durability::Configured).unwrap();
    let (there, pages) = pages_of(|| c.seek(&mut b, Seek::First, &[]).unwrap());
    assert!(there && c.key() == key(9950) && pages < 300, "{pages} pages");
}

/// Purge would leave them to the entry behind, which may be another worker's.
#[test]
fn who_skips_locked_rows_locks_no_gaps_on_the_way() {
    let rig = filled(1000);
    let (mut a, mut b, mut c) = (rig.trx(), rig.trx(), rig.trx());
    for i in 0..990u64 {
        rig.delete(&mut a, &key(i * 10)).unwrap();
    }
    a.commit(Durability::Configured).unwrap();
    for wait in [LockWait::SkipLocked, LockWait::Wait] {
        let mut cursor = Cursor::new(rig.rows, CursorOptions { wait, ..locking(Strength::X) });
        assert!(cursor.seek(&mut b, Seek::First, &[]).unwrap() && cursor.key() == key(9900));
        let mut locked = 0;
        for i in 0..990 {
            locked += u64::from(is_blocked(rig.insert(&mut c, &key(i * 10 + 5), b"c")));
            c.rollback().unwrap();
        }
        assert_eq!(locked, if wait == LockWait::SkipLocked { 1 } else { 990 }, "{wait:?}");
        assert!(is_blocked(rig.insert(&mut c, &key(9895), b"c")), "the gap before the row");
        c.rollback().unwrap();
        b.rollback().unwrap();
    }
}
