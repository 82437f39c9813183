//! Standard output, where a closed pipe or a full disk is an error like others; and standard error, where nobody could be told.

use std::io::Write;

/// Writes `text` and a line's end.
///
/// # Errors
/// A sentence; with it a run ends as one that could not be done: what it found may not have arrived.
pub fn line(text: &str) -> Result<(), String> {
    all(&format!("{text}\n"))
}

/// Writes `text` as it is.
///
/// # Errors
/// As [`line`].
pub fn all(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| format!("cannot write to standard output: {e}"))
}

/// Writes a line to standard error, if somebody listens. (`eprintln!` would panic if not.)
pub fn aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
