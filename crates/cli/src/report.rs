//! Findings, told to people or to programs.

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
    /// Seconds it took.
    pub seconds: f64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Notes a finding.
    pub fn add(&mut self, file: &str, page: Option<u32>, what: impl Into<String>) {
        self.findings.push(Finding { file: file.to_string(), page, what: what.into() });
    }

    /// Prints it to standard output.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string_pretty(self).expect("a report of plain values"));
            return;
        }
        for f in &self.findings {
            match f.page {
                Some(page) => println!("{} page {page}: {}", f.file, f.what),
                None => println!("{}: {}", f.file, f.what),
            }
        }
        let mib = self.bytes as f64 / f64::from(1 << 20);
        println!(
            "{} files, {} pages, {mib:.1} MiB in {:.2} s: {}",
            self.files,
            self.pages,
            self.seconds,
            match self.findings.len() {
                0 => "clean".to_string(),
                1 => "1 finding".to_string(),
                n => format!("{n} findings"),
            }
        );
    }
}
