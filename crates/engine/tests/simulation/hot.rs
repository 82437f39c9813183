//! Backups made beside the workload. When one is whole the power fails, and what a start finds in it is compared with the
//! model as it was then.

use crate::world::{End, World};
use myriad::*;
use myriad_base::random::Random;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Backups that came to their end, in all runs.
pub(crate) static WHOLE: AtomicU64 = AtomicU64::new(0);

impl World {
    /// Begins a backup, goes on with one, or ends it.
    pub(crate) fn hot_backup(&mut self) -> End {
        let Some((mut backup, dir)) = self.hot.take() else { return self.begin_hot_backup() };
        if self.random.one_in(5) {
            return self.end_hot_backup(backup, dir);
        }
        for _ in 0..1 + self.random.below(6) {
            match backup.copy_some() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(e) => return self.no_backup(&dir, e),
            }
        }
        self.hot = Some((backup, dir));
        End::Fine
    }

    fn begin_hot_backup(&mut self) -> End {
        let dir = format!("/backup{}", self.random.next_u64());
        match self.engine().backup(Path::new(&dir)) {
            Ok(backup) => {
                say!(self, "backup into {dir}");
                self.hot = Some((backup, dir));
                End::Fine
            }
            Err(Error::NotSupported { .. }) if self.backup.is_some() => End::Fine,
            Err(e) => self.trouble("backup", e),
        }
    }

    fn no_backup(&mut self, dir: &str, e: Error) -> End {
        say!(self, "backup: {e}");
        let config = EngineConfig { data_dir: dir.into(), ..self.config(0) };
        let io = self.io.crash(self.random.next_u64());
        // The power may have gone when it was whole, before anybody was told.
        let opened = Engine::open_with(config, Some(std::sync::Arc::new(io)));
        assert!(self.io.is_off() || opened.is_err(), "it is not whole");
        match e {
            // Nobody copies the log while the clients do something.
            Error::Invalid { .. } => End::Fine,
            e => self.trouble("backup", e),
        }
    }

    fn end_hot_backup(&mut self, backup: Backup, dir: String) -> End {
        if let Err(e) = backup.finish(&mut |_| true) {
            return self.no_backup(&dir, e);
        }
        say!(self, "backup whole");
        WHOLE.fetch_add(1, Ordering::Relaxed);
        let io = self.io.crash(self.random.next_u64());
        let mut copy = World {
            random: Random::from_seed(self.random.next_u64()),
            io,
            dir,
            engine: None,
            clients: Vec::new(),
            tables: Default::default(),
            model: self.model.clone(),
            alternatives: [&self.alternatives[..], &self.lazy[..]].concat(),
            lazy: Vec::new(),
            undone: self.undone.clone(),
            prepared: self.prepared.clone(),
            faulty: false,
            backup: None,
            hot: None,
            rebuild: None,
            surely_off: false,
            ..*self
        };
        copy.reopen();
        copy.forget_memory();
        copy.compare();
        copy.settle();
        End::Fine
    }
}
