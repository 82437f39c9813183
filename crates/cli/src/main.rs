//! The `myriad` command: looks at a data directory from outside the server, and measures the engine without one.
//!
//! Every subcommand is read-only but `bench`, which works in a folder of its own, `advise`, which writes a temporary file, and
//! `prepare`. Exit codes: 0 clean, 1 findings, 2 could not run.

mod advise;
mod bench;
mod check;
mod innodb;
mod inspect;
mod out;
mod prepare;
mod report;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "myriad",
    version,
    about = "Looks after Myriad data directories",
    after_help = "Exit codes: 0 clean, 1 findings, 2 could not run."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Holds the tablespace files against the catalog, reads every page and verifies checksum and identity. The server must be
    /// stopped.
    Verify {
        /// The server's data directory.
        dir: PathBuf,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Reads the head of every tablespace (Myriad's or InnoDB's) and finds duplicate ids, damaged and truncated files.
    CheckTablespaces(check::CheckArgs),
    /// Shows what is in a stopped data directory: its tablespaces, the pages of one, the contents of a page.
    Inspect(inspect::InspectArgs),
    /// Recovers a backup: the next start has nothing to redo. Needed by no start, but makes it quick.
    Prepare(prepare::PrepareArgs),
    /// Measures the device under a folder and recommends the number of threads for the tablespace check.
    Advise(advise::AdviseArgs),
    /// Runs the embedded engine under load, without a server, and prints its throughput.
    Bench(bench::BenchArgs),
    /// Writes the manual pages into a folder, for the package.
    #[command(hide = true)]
    Man {
        /// The folder.
        dir: PathBuf,
    },
}

/// The folder of the engine's files in `dir`, if there is one.
fn data_directory(dir: &Path) -> Result<PathBuf, String> {
    let home = dir.join(myriad_space::DIRECTORY);
    match home.metadata() {
        Ok(_) => Ok(home),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(format!(
            "{} is not a Myriad data directory: there is no folder {} in it",
            dir.display(),
            myriad_space::DIRECTORY
        )),
        Err(e) => Err(format!("cannot look into {}: {e}", home.display())),
    }
}

/// Writes `myriad.1` and a page for each subcommand into `dir`.
fn write_manual(dir: &Path) -> Result<bool, String> {
    clap_mangen::generate_to(Args::command(), dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(true)
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Verify { dir, json } => verify::run(&dir, json),
        Command::CheckTablespaces(args) => check::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Prepare(args) => prepare::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Man { dir } => write_manual(&dir),
    };
    match result {
        Ok(clean) => ExitCode::from(u8::from(!clean)),
        Err(why) => {
            out::aside(&format!("myriad: {why}"));
            ExitCode::from(2)
        }
    }
}
