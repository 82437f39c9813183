use super::*;

fn args(dir: &Path) -> AdviseArgs {
    AdviseArgs {
        dir: dir.to_path_buf(),
        files: None,
        size_mib: 1,
        existing: false,
        seconds: 0.01,
        chart: None,
        json: false,
    }
}

/// A folder with `n` files of a page each that are called tablespaces.
fn folder_of(n: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("db")).unwrap();
    for i in 0..n {
        std::fs::write(dir.path().join("db").join(format!("t{i}.ibd")), vec![7; 64 << 10]).unwrap();
    }
    dir
}

#[test]
fn a_folder_is_measured_told_drawn_and_left_as_it_was() {
    let dir = folder_of(3);
    let advice = advise(&args(dir.path())).unwrap();
    assert_eq!((advice.files_found, advice.cost.files, advice.mysql_threads), (3, 3, 1));
    assert!(advice.cost.cpu_us > 0.0);
    assert!(advice.curves.iter().all(|m| m.curve.points.len() == DEPTHS.len() && m.saturation.capacity_iops > 0.0));
    let best = advice.checks[1].best();
    assert!(advice.recommended.seconds <= best * 1.06, "{:?}", advice.recommended);

    let text = print::text(&advice);
    for part in ["myriad_tablespace_duplicate_check_threads = ", "MySQL's rule (1)", "32 KiB", "64 threads", "#"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let page = chart::page(&advice).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("16 KiB, threads") && page.contains("MySQL's rule"));
    let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&advice).unwrap()).unwrap();
    assert_eq!(json["curves"][0]["read_bytes"], 4096);
    assert!(json["recommended"]["threads"].is_i64());

    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["db"]);
    assert_eq!(std::fs::read_dir(dir.path().join("db")).unwrap().count(), 3);
}

#[test]
fn existing_files_are_read_without_writing() {
    let dir = folder_of(2);
    for i in 0..2 {
        // Delayed allocation: without a sync the file has no blocks yet.
        std::fs::File::open(dir.path().join(format!("db/t{i}.ibd"))).unwrap().sync_all().unwrap();
    }
    let advice = advise(&AdviseArgs { existing: true, files: Some(80_000), ..args(dir.path()) }).unwrap();
    assert!(advice.read_from.contains("2 existing files"), "{}", advice.read_from);
    assert_eq!((advice.files_found, advice.cost.files), (2, 80_000));
    let empty = tempfile::tempdir().unwrap();
    let why = advise(&AdviseArgs { existing: true, ..args(empty.path()) }).err().unwrap();
    assert!(why.contains("holds no tablespace file"), "{why}");
}

#[test]
fn what_cannot_be_run_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let why = |args: AdviseArgs| advise(&args).err().unwrap();
    let gone = why(args(&dir.path().join("gone")));
    assert!(gone.contains("gone") && gone.contains("No such file"), "{gone}");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(why(args(&file)).contains("Not a directory"));
    assert!(why(AdviseArgs { seconds: 0.0, ..args(dir.path()) }).contains("--seconds"));
    let full = why(AdviseArgs { size_mib: 1 << 43, ..args(dir.path()) });
    assert!(full.contains("too full") && full.contains("--existing"), "{full}");
}

#[test]
fn an_empty_folder_gets_an_example_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let advice = advise(&args(dir.path())).unwrap();
    assert_eq!(advice.cost.files, FILES_EXAMPLE);
    assert!(advice.warnings.iter().any(|w| w.contains("no tablespace file")));
}

#[test]
fn a_ring_as_good_as_any_number_of_threads_is_recommended() {
    let check = |by_ring| Predicted {
        light: false,
        read_bytes: PAGE,
        by_threads: vec![(1, 64.0), (32, 2.0), (64, 1.99)],
        by_ring,
        mysql: 4.0,
    };
    let r = recommend(&check(Some(2.0)));
    assert_eq!((r.threads, r.threads_blocking), (-1, 32));
    assert_eq!(recommend(&check(Some(5.0))).threads, 32);
    assert_eq!(recommend(&check(None)).threads, 32);
}
