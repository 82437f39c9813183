//! Pages with a right checksum and wrong contents, made at random in a whole data directory: whatever is done then, start and
//! stop included, ends, with an error or without, and nothing panics nor stops the engine.
//!
//! `MYRIAD_DAMAGE_SEED=n` repeats one run and prints what it does; `MYRIAD_DAMAGE_SECONDS=n` runs new seeds for that long
//! (5 in the ordinary test; the ignored one takes 10 minutes unless told).

mod directory;
mod harm;
mod use_all;

use directory::{Directory, States};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

/// No run takes a tenth of it, on a busy machine either.
const RUN_MAX: Duration = Duration::from_secs(300);
/// Memory that the process may have, whatever lengths a page tells.
const MEMORY_MAX_KIB: u64 = 2 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The last panic's place and message.
type Panicked = Arc<Mutex<String>>;

fn note_panics() -> Panicked {
    let last = Panicked::default();
    let noted = Arc::clone(&last);
    std::panic::set_hook(Box::new(move |info| {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let ours: Vec<&str> =
            trace.lines().filter(|l| l.contains("myriad") || l.contains("crates/")).take(14).collect();
        *noted.lock().unwrap() = format!("{info}\n{}", ours.join("\n"));
    }));
    last
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// One run; what went wrong.
fn run(states: &States, seed: u64, loud: bool, panicked: &Panicked) -> Option<String> {
    let (told, result) = mpsc::channel();
    let directory: Directory = states.copy(seed);
    let harm = harm::damage(&directory, seed);
    if loud {
        eprintln!("{harm}");
    }
    let thread = std::thread::spawn(move || {
        let _ = told.send(use_all::use_all(&directory, seed, loud));
    });
    let wrong = match result.recv_timeout(RUN_MAX) {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(mpsc::RecvTimeoutError::Timeout) => return Some(format!("{harm}: it does not end")),
        Err(mpsc::RecvTimeoutError::Disconnected) => Some(format!("panic: {}", panicked.lock().unwrap())),
    };
    let _ = thread.join();
    let memory = memory_kib();
    let wrong = wrong.or((memory > MEMORY_MAX_KIB).then(|| format!("{memory} KiB of memory")));
    wrong.map(|what| format!("{harm}: {what}"))
}

fn run_for(first_seed: u64, seconds: u64) {
    let panicked = note_panics();
    let states = States::new();
    if let Some(seed) = number("MYRIAD_DAMAGE_SEED") {
        if let Some(wrong) = run(&states, seed, true, &panicked) {
            panic!("{wrong}");
        }
        return;
    }
    let budget = Duration::from_secs(number("MYRIAD_DAMAGE_SECONDS").unwrap_or(seconds));
    let (begun, mut seed, mut failures) =
        (Instant::now(), number("MYRIAD_DAMAGE_FIRST").unwrap_or(first_seed), Vec::new());
    while begun.elapsed() < budget && failures.len() < 40 {
        if let Some(wrong) = run(&states, seed, false, &panicked) {
            println!("MYRIAD_DAMAGE_SEED={seed}: {wrong}");
            failures.push(seed);
        }
        seed += 1;
    }
    println!("{} runs", seed - first_seed);
    assert!(failures.is_empty(), "failed: {failures:?}");
}

#[test]
fn damaged_pages_are_errors() {
    run_for(1, 5);
}

/// New seeds every time; part of `make test-long`.
#[test]
#[ignore = "takes minutes"]
fn damaged_pages_long() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    run_for(now.as_millis() as u64, 600);
}
