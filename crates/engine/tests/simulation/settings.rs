//! Settings that change while the clients work.

use crate::world::{End, World};
use myriad::*;

impl World {
    pub(crate) fn setting(&mut self) -> End {
        let pages = self.page_size as u64 * 64;
        let mut some = |of: &[u64]| of[self.random.below(of.len() as u64) as usize];
        let setting = match some(&[0, 0, 1, 2, 3, 4, 5]) {
            0 => Setting::BufferPoolBytes(some(&[1 << 20, 3 << 19, 2 << 20, 4 << 20]).max(pages)),
            1 => Setting::ChangeBufferMaxSize(some(&[0, 1, 25]) as u32),
            2 => Setting::MemoryTablesBytes(some(&[0, 64 << 10, 512 << 10])),
            3 => Setting::RowLocksBytes(some(&[0, 2_000, 20_000])),
            4 => Setting::MaxOpenFiles(some(&[1, 3, 2_000]) as usize),
            _ => Setting::Placement([Placement::Database, Placement::Server][some(&[0, 1]) as usize]),
        };
        say!(self, "{setting:?}");
        match (self.engine().set(setting), setting) {
            (Ok(()), _) => End::Fine,
            // Too much of it is in use.
            (Err(Error::BufferPoolExhausted), Setting::BufferPoolBytes(_)) => End::Fine,
            (Err(Error::Invalid { .. }), Setting::BufferPoolBytes(bytes))
                if self.metric("memory_tables_bytes") > bytes / 4 * 3 =>
            {
                End::Fine
            }
            (Err(e), _) => self.trouble("setting", e),
        }
    }
}
