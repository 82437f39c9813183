//! What the command does where its output goes nowhere.

use std::fs::File;
use std::process::{Command, Stdio};

/// Exit code and standard error of `myriad ARGUMENTS... DIRECTORY` with this standard output.
fn run(arguments: &[&str], dir: &std::path::Path, out: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    let done = command.args(arguments).arg(dir).stdout(out).stderr(Stdio::piped()).output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let bench = ["bench", "--rows", "100", "--threads", "1", "--seconds", "1", "--loads", "point"];
    let full = || File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run(&bench, folder.path(), Stdio::null()).0, Some(0));
    for arguments in [&["verify"][..], &["verify", "--json"], &["inspect"], &["prepare"], &["check-tablespaces"]] {
        let (code, text) = run(arguments, folder.path(), full());
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains("cannot write to standard output: No space left"), "{arguments:?}: {text}");
    }
    // Nor does standard error have to have a reader.
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    let done = command.args(["verify", "/nonexistent"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(done.code(), Some(2));
    // What was recovered is, whoever reads of it.
    assert_eq!(run(&["verify"], folder.path(), Stdio::null()).0, Some(0));
}

#[test]
fn a_benchmark_of_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    for arguments in [["bench", "--rows", "0"], ["bench", "--threads", "0"], ["bench", "--seconds", "0"]] {
        assert_eq!(run(&arguments, &dir, Stdio::null()).0, Some(2));
        assert!(!dir.exists(), "{arguments:?}");
    }
}

/// A path that is mistyped is not clean.
#[test]
fn a_folder_without_tablespaces_is_no_clean_one() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(&["check-tablespaces"], folder.path(), Stdio::null());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no tablespace files under"), "{text}");
}

#[test]
fn a_folder_that_is_no_data_directory_is_told_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["verify"][..], &["inspect"], &["inspect", "--space", "0", "--page", "0"]] {
        let (code, text) = run(arguments, folder.path(), Stdio::null());
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        let wanted = format!("{} is not a Myriad data directory", folder.path().display());
        assert!(text.contains(&wanted), "{arguments:?}: {text}");
    }
}
