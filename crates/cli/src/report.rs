//! Findings, told to people or to programs.

use crate::out;
use myriad_base::Error;
use serde::Serialize;

/// One thing found wrong.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The file, relative to the data directory.
    pub file: String,
    /// The page, where one is meant.
    pub page: Option<u32>,
    /// What is wrong, as a sentence.
    pub what: String,
}

/// An error's reason alone, where the finding names the file already.
pub fn reason_of(e: &Error) -> String {
    match e {
        Error::CorruptFile { reason, .. } | Error::Format { reason, .. } | Error::CorruptPage { reason, .. } => {
            reason.clone()
        }
        other => other.to_string(),
    }
}

/// What a run read and found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Files read.
    pub files: u64,
    /// Pages read.
    pub pages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of log whose changes are not in the files yet; 0 after a shutdown that left none to the next start.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_bytes: u64,
    /// Pages that are torn or missing in the files and that the next start repairs from the log and the doublewrite file.
    #[serde(skip_serializing_if = "is_zero")]
    pub repaired: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Report {
    /// Notes a finding.
    pub fn add(&mut self, file: &str, page: Option<u32>, what: impl Into<String>) {
        self.findings.push(Finding { file: file.to_string(), page, what: what.into() });
    }

    /// Prints it to standard output.
    ///
    /// # Errors
    /// A sentence, where that cannot be written.
    pub fn print(&self, json: bool) -> Result<(), String> {
        if json {
            return out::line(&serde_json::to_string_pretty(self).expect("a report of plain values"));
        }
        for f in &self.findings {
            match f.page {
                Some(page) => out::line(&format!("{} page {page}: {}", f.file, f.what))?,
                None => out::line(&format!("{}: {}", f.file, f.what))?,
            }
        }
        if self.log_bytes > 0 {
            out::line(&format!(
                "the next start has {} bytes of log to apply; {} pages wait for that repair",
                self.log_bytes, self.repaired
            ))?;
        }
        let mib = self.bytes as f64 / f64::from(1 << 20);
        let found = match self.findings.len() {
            0 => "clean".to_string(),
            1 => "1 finding".to_string(),
            n => format!("{n} findings"),
        };
        out::line(&format!(
            "{} files, {} pages, {mib:.1} MiB in {:.2} s: {found}",
            self.files, self.pages, self.seconds
        ))
    }
}
