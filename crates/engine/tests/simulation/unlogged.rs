//! Runs without the log. A crash in one is refused by the next start, and the run goes on with a copy taken before.

use crate::model::Model;
use crate::world::{End, PreparedTrx, World};
use myriad::*;
use myriad_io::SimIo;

/// What a crash would have left when the log was switched off.
pub(crate) struct Backup {
    io: SimIo,
    model: Model,
    prepared: Vec<PreparedTrx>,
    lazy: Vec<Model>,
    undone: Vec<PreparedTrx>,
}

impl World {
    /// Switches the log off, or on again.
    pub(crate) fn switch_redo_log(&mut self) -> End {
        let on = self.backup.is_some();
        say!(self, "redo log {}", if on { "on" } else { "off" });
        if !on {
            let io = self.io.crash(self.random.next_u64());
            let (model, prepared, lazy) = (self.model.clone(), self.prepared.clone(), self.lazy.clone());
            let undone = self.undone.clone();
            self.backup = Some(Backup { io, model, prepared, lazy, undone });
        }
        self.surely_off = false;
        match self.engine().set(Setting::RedoLog(on)) {
            Ok(()) => {
                self.surely_off = !on;
                if on {
                    self.backup = None;
                }
                End::Fine
            }
            // Pages that cannot be read for a fault.
            Err(Error::NotSupported { .. }) if self.faulty || self.hot.is_some() => End::Fine,
            Err(e) => self.trouble("switch", e),
        }
    }

    /// A start was refused because the log had been off.
    pub(crate) fn restore_backup(&mut self) {
        say!(self, "restored");
        let backup = self.backup.take().expect("refused although the log was never off");
        self.io = backup.io;
        // Another disk, which was full perhaps when the copy was made.
        self.heal();
        self.model = backup.model;
        self.prepared = backup.prepared;
        self.alternatives = backup.lazy;
        self.undone = backup.undone;
        self.surely_off = false;
    }
}
