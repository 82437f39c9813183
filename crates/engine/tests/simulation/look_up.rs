//! Look-ups of single rows, reads that lock, counts, and reads of what is not committed.

use crate::model::{by_tag, by_value, overlay, Rows};
use crate::rows::scan;
use crate::world::{End, Snapshot, World};
use myriad::*;
use std::collections::BTreeSet;

impl World {
    /// What a read without locks is to see of a table, and whether the table is in its snapshot: its contents may be newer as
    /// a whole. `None`: nobody knows.
    pub(crate) fn visible(&mut self, client: usize, name: &str) -> Option<(Rows, bool)> {
        let model = &self.model;
        let c = &mut self.clients[client];
        c.touched.insert(name.into());
        let all = || model.tables.iter().map(|(n, t)| (n.clone(), t.rows.clone())).collect::<Snapshot>();
        let now = all();
        let snapshot = match c.isolation {
            Isolation::ReadUncommitted if self.losers => return None,
            Isolation::ReadUncommitted => {
                let prepared = self.prepared.iter().map(|p| &p.changes);
                let open = self.clients.iter().map(|c| &c.changes);
                return Some((prepared.chain(open).fold(model.rows(name), |rows, c| overlay(rows, c, name)), true));
            }
            Isolation::ReadCommitted => &now,
            _ => c.snapshot.get_or_insert_with(all),
        };
        let known = snapshot.contains_key(name);
        Some((overlay(snapshot.get(name).cloned().unwrap_or_default(), &c.changes, name), known))
    }

    /// A read whose outcome is not known.
    pub(crate) fn read_anything(&mut self, client: usize, table: &Table) -> End {
        let index = self.random.below(3) as usize;
        say!(self, "{client} read anything of {} index {index}", table.name());
        let session = &mut self.clients[client].session;
        match scan(session, table, index) {
            Ok(_) => {
                session.statement_end();
                End::Fine
            }
            Err(e) => self.failed(client, "read anything", e),
        }
    }

    pub(crate) fn look_up(&mut self, client: usize) -> End {
        let Some(name) = self.some_table() else { return End::Fine };
        self.begin(client);
        let table = match self.table(&name) {
            Ok(table) => table,
            Err(e) => return self.failed(client, "open table", e),
        };
        self.clients[client].touched.insert(name.clone());
        if self.random.one_in(2) {
            return self.lock_rows(client, &table, &name);
        }
        let Some((expected, known)) = self.visible(client, &name) else { return self.read_anything(client, &table) };
        let readable = |c: &crate::world::Client, index| known && !c.outdated.contains(&(name.clone(), index));
        let at = self.random.below(expected.len().max(1) as u64) as usize;
        let (key, value) = expected.iter().nth(at).map_or((vec![9; 4], vec![9; 3]), |(k, v)| (k.clone(), v.clone()));
        let what = self.random.below(3);
        say!(self, "{client} look up {name} {key:?}: {what}");
        let c = &mut self.clients[client];
        let index = if what == 1 { 2 } else { 0 };
        let result = match what {
            0 => {
                let found = c.session.get(&table, 0, &key, false, Lock::None, Wait::Wait);
                found.map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec())))
            }
            // The one with the tag.
            1 => {
                let found = c.session.get(&table, 2, &value[..2], true, Lock::None, Wait::Wait);
                found.map(|row| row.map(|row| (row.key[2..].to_vec(), value.clone())))
            }
            _ => c.session.count_rows(&table).map(|n| {
                assert_eq!((n, readable(c, 0)), (expected.len() as u64, true), "rows of {name}");
                expected.first_key_value().and(Some((key.clone(), value.clone())))
            }),
        };
        match result {
            Ok(found) => {
                assert!(readable(c, index), "{name} was looked up with an older snapshot");
                c.session.statement_end();
                let level = c.isolation;
                assert_eq!(found, expected.get(&key).map(|v| (key, v.clone())), "look-up in {name} at {level:?}");
                End::Fine
            }
            Err(e) => {
                let newer = matches!(e, Error::DefinitionChanged { .. });
                assert!(!newer || !readable(c, index), "{name} could not be looked up");
                self.failed(client, "look-up", e)
            }
        }
    }

    /// Reads entries of an index with locks: the newest ones, whatever the snapshot.
    fn lock_rows(&mut self, client: usize, table: &Table, name: &str) -> End {
        let index = self.random.below(3) as usize;
        let key_of = [|k: &[u8], _: &[u8]| k.to_vec(), by_value, by_tag][index];
        let rows = overlay(self.model.rows(name), &self.clients[client].changes, name);
        let mut entries: BTreeSet<Vec<u8>> = rows.iter().map(|(k, v)| key_of(k, v)).collect();
        let from =
            entries.iter().nth(self.random.below(rows.len().max(1) as u64) as usize).cloned().unwrap_or_default();
        let down = self.random.one_in(2);
        entries.retain(|key| if down { *key <= from } else { *key >= from });
        let most = 1 + self.random.below(20) as usize;
        let wait = [Wait::Wait, Wait::NoWait, Wait::SkipLocked][self.random.below(3) as usize];
        let lock = [Lock::Shared, Lock::Exclusive][self.random.below(2) as usize];
        let semi_consistent = self.random.one_in(4);
        let options = CursorOptions { lock, wait, semi_consistent, ..Default::default() };
        say!(self, "{client} lock {most} of {name} index {index}, {options:?}, down: {down}");
        let session = &mut self.clients[client].session;
        let mut read = || -> Result<Vec<Vec<u8>>> {
            let mut cursor = Cursor::open(session, table, index, options)?;
            let mut found = Vec::new();
            let mut row = cursor.seek(session, if down { Seek::Le } else { Seek::Ge }, &from)?;
            while let Some(Row { key, value }) = row {
                assert!(index > 0 || rows.get(key).is_some_and(|v| v == value), "locked {key:?} of {name}");
                found.push(key.to_vec());
                if found.len() == most {
                    break;
                }
                row = if down { cursor.prev(session)? } else { cursor.next(session)? };
            }
            Ok(found)
        };
        match read() {
            Ok(found) => {
                session.statement_end();
                let mut expected: Vec<_> = entries.into_iter().collect();
                if down {
                    expected.reverse();
                }
                if wait == Wait::SkipLocked {
                    let mut rest = expected.iter();
                    assert!(found.iter().all(|key| rest.any(|other| other == key)), "locked {found:?} of {name}");
                } else {
                    expected.truncate(most);
                    assert_eq!(found, expected, "locked entries of {name} index {index}");
                }
                End::Fine
            }
            Err(e) => self.failed(client, "locking read", e),
        }
    }
}
