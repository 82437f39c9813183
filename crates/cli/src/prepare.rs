//! `myriad prepare`: recovers a backup, so that the next start has nothing to do, whatever its settings.

use crate::out;
use clap::Args;
use myriad::{CloseMode, DuplicateCheck, Engine, EngineConfig, Level};
use myriad_space::DIRECTORY;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub struct PrepareArgs {
    /// The folder that `#myriad` is in.
    dir: PathBuf,
    /// Memory for pages, in MiB; the log since the backup began is in memory beside it.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    buffer_pool: u64,
}

/// Recovers the directory and closes it cleanly.
///
/// # Errors
/// A sentence: no backup, one that is not whole, or damaged.
pub fn run(args: &PrepareArgs) -> Result<bool, String> {
    let folder = args.dir.join(DIRECTORY);
    match folder.join("FORMAT").try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(format!("{} is no whole backup: it has no file FORMAT", folder.display())),
        Err(e) => return Err(format!("cannot look into {}: {e}", folder.display())),
    }
    let config = EngineConfig {
        buffer_pool_bytes: args.buffer_pool << 20,
        duplicate_check: DuplicateCheck::Off,
        report: Arc::new(|level, text| match level {
            // A reader that has gone does not end a recovery.
            Level::Info => drop(out::line(text)),
            _ => out::aside(&format!("{level:?}: {text}")),
        }),
        ..EngineConfig::new(&args.dir)
    };
    let engine = Engine::open_with(config, None).map_err(|e| e.to_string())?;
    // A stop alone would leave many pages to the next start.
    engine.checkpoint_now().and_then(|()| engine.close(CloseMode::Clean)).map_err(|e| e.to_string())?;
    out::line(&format!("{} is prepared", folder.display())).map(|()| true)
}
