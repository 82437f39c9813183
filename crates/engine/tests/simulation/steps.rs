//! What the clients do, and the faults.

use crate::model::{by_tag, by_value, overlay, Rows};
use crate::rows::{assert_keys, delete, insert, scan, scan_range, update};
use crate::world::{End, PreparedTrx, World};
use myriad::*;
use myriad_io::{CallKind, Fault};
use std::collections::BTreeSet;
use std::time::Duration;

const KEYS: u64 = 60;

impl World {
    pub(crate) fn epoch(&mut self) {
        let steps = 30 + self.random.below(250);
        if self.random.one_in(2) {
            self.inject();
        }
        if self.random.one_in(3) {
            self.power_off_within(3_000);
        }
        for _ in 0..steps {
            if matches!(self.step(), End::Crash) || self.io.is_off() {
                return;
            }
        }
        if self.random.one_in(3) {
            self.heal();
            for client in &mut self.clients {
                if client.open && client.session.rollback().is_err() {
                    return;
                }
                client.reset();
            }
            self.settle_without_prepared();
        }
    }

    pub(crate) fn settle_without_prepared(&mut self) {
        let engine = self.engine();
        // An earlier fault may have stopped the engine for good.
        let mut steps = 0;
        loop {
            match engine.background_step() {
                Ok(true) => steps += 1,
                Ok(false) => break,
                Err(_) => return,
            }
            assert!(steps < 100_000, "background work does not end");
        }
        if self.rebuild.is_none() {
            self.drop_copies();
        }
        self.compare();
    }

    /// Cuts the power at one of the next calls that change the disk, whatever the engine is about then.
    pub(crate) fn power_off_within(&mut self, calls: u64) {
        let range = 1 + self.random.below(calls);
        let nth = self.random.below(range);
        say!(self, "power off at call {nth}");
        self.io.power_off_after(nth);
        self.faulty = true;
    }

    /// Takes back what [`World::inject`] did, and [`World::power_off_within`] if the power is still on.
    pub(crate) fn heal(&mut self) {
        self.io.clear_faults();
        self.io.power_off_after(u64::MAX);
        self.io.set_capacity(None);
        (self.faulty, self.full) = (false, false);
    }

    /// Leaves the disk room for fewer bytes.
    pub(crate) fn fill_disk(&mut self, most: u64) {
        let room = self.random.below(most);
        say!(self, "fault: the disk has room for {room} bytes");
        self.io.set_capacity(Some(self.io.used_bytes() + room));
        (self.faulty, self.full) = (true, true);
    }

    pub(crate) fn inject(&mut self) {
        if self.random.one_in(5) {
            return self.fill_disk(1 << 20);
        }
        let kinds =
            [CallKind::Write, CallKind::Sync, CallKind::Allocate, CallKind::Read, CallKind::Open, CallKind::SyncDir];
        let kind = kinds[self.random.below(kinds.len() as u64) as usize];
        let fault = match kind {
            CallKind::Write if self.random.one_in(3) => Fault::ShortWrite,
            CallKind::Write | CallKind::Allocate if self.random.one_in(2) => Fault::Enospc,
            _ => Fault::Eio,
        };
        let range = 1 + self.random.below(200);
        let nth = self.random.below(range);
        let sticky = self.random.one_in(6);
        say!(self, "fault: {kind:?} number {nth} gives {fault:?}, sticky {sticky}");
        self.io.inject(kind, "#myriad", nth, fault, sticky);
        self.faulty = true;
    }

    /// Whether an error may have come from an injected fault.
    pub(crate) fn excused(&self, e: &Error) -> bool {
        self.faulty
            && matches!(
                e,
                Error::Io { .. } | Error::DiskFull { .. } | Error::Poisoned { .. } | Error::BufferPoolExhausted
            )
    }

    pub(crate) fn step(&mut self) -> End {
        let client = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(124) {
            0..=54 => self.change(client),
            55..=66 => self.read(client),
            67..=74 => self.commit(client),
            75..=77 => self.rollback(client),
            78..=81 => self.savepoint(client),
            82..=83 => self.prepare(client),
            84..=85 => self.end_prepared(),
            86..=91 => self.define(),
            92..=97 => self.background(),
            // Off for a short time, mostly: a crash in it is refused, and tests nothing else.
            98 if self.backup.is_some() || self.random.one_in(4) => self.switch_redo_log(),
            98..=99 => self.checkpoint(),
            100..=104 => self.rebuild(),
            105 => self.resize_log(),
            106..=113 => self.look_up(client),
            114..=117 => self.setting(),
            118 => self.flush(),
            119..=120 => self.commit_together(),
            _ => self.hot_backup(),
        }
    }

    pub(crate) fn background(&mut self) -> End {
        match self.engine().background_step() {
            Ok(more) => {
                self.losers &= more;
                End::Fine
            }
            Err(e) => self.trouble("background", e),
        }
    }

    /// Larger or smaller. A clean restart makes it as large as it was.
    pub(crate) fn resize_log(&mut self) -> End {
        let bytes = (2 << 20) + self.random.below(self.log_bytes());
        say!(self, "a log of {bytes} bytes");
        match self.engine().set(Setting::LogCapacityBytes(bytes)) {
            // The log is off, or a backup is made.
            Ok(()) | Err(Error::NotSupported { .. }) => End::Fine,
            // What cannot be read keeps the checkpoint back.
            Err(Error::Invalid { .. }) if self.faulty => End::Fine,
            Err(e) => self.trouble("resize", e),
        }
    }

    /// Everything in the log becomes durable.
    fn flush(&mut self) -> End {
        say!(self, "flush the log");
        match self.engine().flush_log() {
            Ok(()) if self.backup.is_none() => {
                self.hardened();
                End::Fine
            }
            Ok(()) => End::Fine,
            Err(e) => self.trouble("flush", e),
        }
    }

    /// As a server with a binary log does: several are prepared, then committed in order, and none waits for the log of the engine.
    fn commit_together(&mut self) -> End {
        let clients: Vec<usize> = (0..self.clients.len()).filter(|&c| !self.clients[c].changes.is_empty()).collect();
        let mut group = Vec::new();
        for client in clients {
            self.next_xid += 1;
            let xid = format!("xid {}", self.next_xid).into_bytes();
            say!(self, "{client} prepare {} in a group", self.next_xid);
            let c = &mut self.clients[client];
            let (prepared, changes) = (c.session.prepare(&xid), std::mem::take(&mut c.changes));
            let p = PreparedTrx { xid, changes, acknowledged: prepared.is_ok(), maybe_committed: false };
            group.push((client, p));
            if let Err(e) = prepared {
                assert!(self.excused(&e), "prepare: {e}");
                self.prepared.extend(group.into_iter().map(|(_, p)| p));
                return End::Crash;
            }
        }
        for (client, _) in &group {
            self.clients[*client].session.commit_ordered();
        }
        let mut end = End::Fine;
        for (client, p) in group {
            let before = self.model.clone();
            self.model.apply(&p.changes);
            self.lazy.push(before);
            self.undone.push(p);
            let c = &mut self.clients[client];
            let finished = c.session.commit_finish(false);
            c.reset();
            if let Err(e) = finished {
                assert!(self.excused(&e), "end of a group: {e}");
                end = End::Crash;
            }
        }
        end
    }

    pub(crate) fn checkpoint(&mut self) -> End {
        match self.engine().checkpoint_now() {
            Ok(()) => End::Fine,
            Err(e) => self.trouble("checkpoint", e),
        }
    }

    /// An error that nothing depends on: fine if a fault excuses it and the engine goes on.
    pub(crate) fn trouble(&mut self, what: &str, e: Error) -> End {
        assert!(self.excused(&e), "{what}: {e}");
        say!(self, "{what}: {e}");
        if matches!(e, Error::Poisoned { .. }) {
            End::Crash
        } else {
            End::Fine
        }
    }

    pub(crate) fn table(&mut self, name: &str) -> Result<Table> {
        if let Some(table) = self.tables.get(name) {
            if table.is_current() {
                return Ok(table.clone());
            }
        }
        let table = self.engine().open_table(name)?;
        self.tables.insert(name.into(), table.clone());
        Ok(table)
    }

    pub(crate) fn some_table(&mut self) -> Option<String> {
        let n = self.model.tables.len() as u64;
        let at = if n == 0 { return None } else { self.random.below(n) };
        self.model.tables.keys().nth(at as usize).cloned()
    }

    pub(crate) fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(40) {
            0 => 3 + self.random.below(30_000),
            1..=8 => 3 + self.random.below(600),
            _ => 3 + self.random.below(40),
        };
        let tag = self.random.below(if self.large { 1 << 16 } else { 500 }) as u16;
        let mut value = tag.to_be_bytes().to_vec();
        let fill = self.random.below(256) as u8;
        value.resize(len as usize, fill);
        value
    }

    pub(crate) fn begin(&mut self, client: usize) {
        use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
        let levels = [RepeatableRead, ReadCommitted, Serializable, RepeatableRead, ReadCommitted, ReadUncommitted];
        let level = levels[self.random.below(6) as usize];
        let c = &mut self.clients[client];
        if !c.open {
            c.open = true;
            c.isolation = level;
        }
        c.session.statement_begin(c.isolation, false, Duration::ZERO);
    }

    /// Ends a failed statement.
    pub(crate) fn failed(&mut self, client: usize, what: &str, e: Error) -> End {
        say!(self, "  {client} {what}: {e}");
        let expected = matches!(
            e,
            Error::LockWaitTimeout
                | Error::DuplicateKey { .. }
                | Error::Deadlock
                | Error::LockTableFull { .. }
                | Error::MemoryFull { .. }
                | Error::DefinitionChanged { .. }
        );
        assert!(expected || self.excused(&e), "{what}: {e}");
        let c = &mut self.clients[client];
        let undone = if matches!(e, Error::Deadlock | Error::LockTableFull { .. }) {
            let undone = c.session.rollback();
            c.reset();
            undone
        } else {
            c.session.statement_rollback()
        };
        match undone {
            Ok(()) => End::Fine,
            Err(e) => {
                assert!(self.excused(&e), "rollback after {what}: {e}");
                End::Crash
            }
        }
    }

    /// A row's insertion, update or removal by a client.
    pub(crate) fn change(&mut self, client: usize) -> End {
        let Some(name) = self.some_table() else { return self.define() };
        self.begin(client);
        // Now and then many rows, of which some are new.
        let (many, keys_max) = if self.large { (6, KEYS * 20) } else { (25, KEYS * 5) };
        // More than the log holds, at times.
        let huge = self.random.one_in(150);
        let many = if huge { 1 } else { many };
        let (rows, keys) = match self.random.one_in(many) {
            true => (self.random.below(150), keys_max),
            false if self.large => (1, keys_max),
            false => (1, KEYS),
        };
        let table = match self.table(&name) {
            Ok(table) => table,
            Err(e) => return self.failed(client, "open table", e),
        };
        self.clients[client].touched.insert(name.clone());
        let before = self.clients[client].changes.clone();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let result = (0..rows).try_for_each(|_| {
            key = (self.random.below(keys) as u32 * 7).to_be_bytes().to_vec();
            value = self.value();
            if huge {
                value.resize(20_000, 1);
            }
            let mut kind = self.random.below(10);
            if self.large && rows > 1 {
                // No duplicates: they would undo nearly every such statement.
                let there = self.model.tables.get(&name).is_some_and(|t| t.rows.contains_key(&key));
                let mine = self.clients[client].changes.get(&(name.clone(), key.clone()));
                kind = if mine.map_or(there, Option::is_some) { 5 + kind / 2 } else { 0 };
            }
            self.change_row(client, &table, &name, &key, &value, kind)
        });
        match result {
            Ok(()) => {
                self.clients[client].session.statement_end();
                self.auto_increment(client, &table, &name);
                End::Fine
            }
            Err(e) => {
                if let Error::DuplicateKey { .. } = e {
                    self.check_duplicate(client, &name, &key, &value);
                }
                self.clients[client].changes = before;
                self.failed(client, "change", e)
            }
        }
    }

    pub(crate) fn change_row(
        &mut self,
        client: usize,
        table: &Table,
        name: &str,
        key: &[u8],
        value: &[u8],
        kind: u64,
    ) -> Result<()> {
        let c = &mut self.clients[client];
        let committed = overlay(self.model.rows(name), &c.changes, name);
        let at = (name.to_string(), key.to_vec());
        if kind < 5 {
            say!(self, "{client} insert {name} {key:?} {} {:?}", value.len(), &value[..3]);
            insert(&mut c.session, table, key, value)?;
            assert!(!committed.contains_key(key), "duplicate {key:?} was accepted in {name}");
            c.changes.insert(at, Some(value.to_vec()));
        } else {
            let old = c.session.get(table, 0, key, false, Lock::Exclusive, Wait::Wait)?.map(|r| r.value.to_vec());
            assert_eq!(old.as_ref(), committed.get(key), "locking read of {key:?} in {name}");
            let Some(old) = old else { return Ok(()) };
            if kind < 8 {
                // At times no more than what is in front of the overflow pages.
                let mut head_changed = old.clone();
                head_changed[..3].copy_from_slice(&value[..3]);
                let value = if kind == 7 { &head_changed } else { value };
                say!(self, "{client} update {name} {key:?} {} {:?}", value.len(), &value[..3]);
                update(&mut c.session, table, key, &old, value)?;
                c.changes.insert(at, Some(value.to_vec()));
            } else {
                say!(self, "{client} delete {name} {key:?}");
                delete(&mut c.session, table, key, &old)?;
                c.changes.insert(at, None);
            }
        }
        let mine = overlay(self.model.rows(name), &self.clients[client].changes, name);
        let tags: BTreeSet<&[u8]> = mine.values().map(|v| &v[..2]).collect();
        assert_eq!(tags.len(), mine.len(), "duplicate tag was accepted in {name}");
        for (i, other) in self.clients.iter().enumerate() {
            let clash = i != client && other.changes.contains_key(&(name.to_string(), key.to_vec()));
            assert!(!clash, "{key:?} of {name} changed by {client} and {i}");
        }
        Ok(())
    }

    /// A duplicate was reported: there must be one.
    pub(crate) fn check_duplicate(&mut self, client: usize, name: &str, key: &[u8], value: &[u8]) {
        let rows = overlay(self.model.rows(name), &self.clients[client].changes, name);
        let tag = rows.iter().any(|(k, v)| v[..2] == value[..2] && k != key);
        assert!(rows.contains_key(key) || tag, "no duplicate of {key:?} {:?} in {name}", &value[..2]);
        let (position, found) = self.clients[client].session.last_duplicate();
        assert!(position < 5 && !found.is_empty());
    }

    pub(crate) fn auto_increment(&mut self, client: usize, table: &Table, name: &str) {
        if self.random.one_in(4) {
            let c = &mut self.clients[client];
            let first = c.session.auto_increment_reserve(table, 1, 1, 2, u64::MAX).expect("reserve");
            c.auto.insert(name.into(), first + 2);
        }
    }

    /// A consistent read.
    pub(crate) fn read(&mut self, client: usize) -> End {
        let Some(name) = self.some_table() else { return End::Fine };
        self.begin(client);
        let table = match self.table(&name) {
            Ok(table) => table,
            Err(e) => return self.failed(client, "open table", e),
        };
        let Some((expected, known)) = self.visible(client, &name) else { return self.read_anything(client, &table) };
        let index = self.random.below(3) as usize;
        let c = &mut self.clients[client];
        let readable = known && !c.outdated.contains(&(name.clone(), index));
        let range = self.random.one_in(2).then(|| {
            let key_of = [|k: &[u8], _: &[u8]| k.to_vec(), by_value, by_tag][index];
            let mut ends = [0, 1].map(|_| {
                let row = expected.iter().nth(self.random.below(expected.len().max(1) as u64) as usize);
                row.map_or_else(|| vec![b'k'], |(k, v)| key_of(k, v))
            });
            ends.sort_unstable();
            ends
        });
        let down = self.random.one_in(2);
        say!(self, "{client} read {name} index {index}, a range: {}, down: {down}", range.is_some());
        let found = match &range {
            Some(ends) => scan_range(&mut c.session, &table, index, ends, down),
            None => scan(&mut c.session, &table, index),
        };
        match found {
            Ok(rows) => {
                assert!(readable, "{name} was read with an older snapshot");
                let within =
                    |key: &[u8]| range.as_ref().is_none_or(|[low, high]| (&low[..]..=&high[..]).contains(&key));
                let expected: Rows = match index {
                    0 => expected.into_iter().filter(|(k, _)| within(k)).collect(),
                    1 => expected.into_iter().filter(|(k, v)| within(&by_value(k, v))).collect(),
                    _ => expected.into_iter().filter(|(k, v)| within(&by_tag(k, v))).collect(),
                };
                c.session.statement_end();
                let level = c.isolation;
                match index {
                    0 => assert_eq!(rows, expected, "consistent read of {name} at {level:?}"),
                    1 => assert_keys(rows, &expected, by_value, &format!("index 1 of {name} at {level:?}")),
                    _ => assert_keys(rows, &expected, by_tag, &format!("index 2 of {name} at {level:?}")),
                }
                End::Fine
            }
            Err(e) => {
                assert!(!readable || !matches!(e, Error::DefinitionChanged { .. }), "{name} could not be read");
                self.failed(client, "read", e)
            }
        }
    }

    pub(crate) fn commit(&mut self, client: usize) -> End {
        if !self.clients[client].open {
            return End::Fine;
        }
        let (engine, lazy) = (self.engine(), self.random.one_in(6));
        let flush = |how| engine.set(Setting::FlushAtCommit(how)).expect("set");
        if lazy {
            flush([FlushAtCommit::Lazy, FlushAtCommit::Write][self.random.below(2) as usize]);
        }
        let later = lazy && self.random.one_in(3);
        let c = &mut self.clients[client];
        say!(self, "{client} commit {} changes, lazy: {lazy}, later: {later}", c.changes.len());
        let result = match later {
            true => c.session.commit_later().map(|_| ()),
            false if lazy && self.random.one_in(3) => {
                c.session.commit_visible().and_then(|()| c.session.commit_finish(false))
            }
            false => c.session.commit(),
        };
        flush(FlushAtCommit::Sync);
        let (changes, auto) = (std::mem::take(&mut c.changes), std::mem::take(&mut c.auto));
        c.reset();
        let mut after = self.model.clone();
        after.apply(&changes);
        match result {
            Ok(()) => {
                let lasting = changes.keys().any(|(table, _)| !self.model.is_in_memory(table));
                // Without such changes nothing is synced, and no value was used.
                for (name, next) in auto.into_iter().filter(|_| lasting && !lazy) {
                    if let Some(table) = after.tables.get_mut(&name) {
                        table.auto_floor = table.auto_floor.max(next);
                    }
                }
                let before = std::mem::replace(&mut self.model, after);
                match lazy {
                    true => self.lazy.push(before),
                    false if lasting => self.hardened(),
                    false => {}
                }
                End::Fine
            }
            Err(e) => {
                assert!(self.excused(&e), "commit: {e}");
                say!(self, "  {client} commit: {e}");
                self.alternatives.push(after);
                End::Crash
            }
        }
    }

    pub(crate) fn rollback(&mut self, client: usize) -> End {
        let c = &mut self.clients[client];
        if !c.open {
            return End::Fine;
        }
        say!(self, "{client} rollback");
        let result = c.session.rollback();
        c.reset();
        match result {
            Ok(()) => End::Fine,
            Err(e) => {
                assert!(self.excused(&e), "rollback: {e}");
                End::Crash
            }
        }
    }

    pub(crate) fn savepoint(&mut self, client: usize) -> End {
        let back = self.random.one_in(2);
        let c = &mut self.clients[client];
        if !c.open {
            return End::Fine;
        }
        let result = if back && !c.savepoints.is_empty() {
            let at = self.random.below(c.savepoints.len() as u64) as usize;
            c.savepoints.truncate(at + 1);
            let (savepoint, changes) = c.savepoints[at].clone();
            say!(self, "{client} back to savepoint {at}");
            c.changes = changes;
            c.session.rollback_to(savepoint)
        } else {
            say!(self, "{client} savepoint");
            c.session.savepoint().map(|s| c.savepoints.push((s, c.changes.clone())))
        };
        match result {
            Ok(()) => End::Fine,
            Err(e) => {
                assert!(self.excused(&e), "savepoint: {e}");
                End::Crash
            }
        }
    }

    pub(crate) fn prepare(&mut self, client: usize) -> End {
        let c = &mut self.clients[client];
        if !c.open || c.changes.is_empty() {
            return End::Fine;
        }
        self.next_xid += 1;
        let xid = format!("xid {}", self.next_xid).into_bytes();
        say!(self, "{client} prepare {}", self.next_xid);
        let result = c.session.prepare(&xid);
        if result.is_ok() && self.random.one_in(3) {
            c.session.release_reads();
        }
        let changes = std::mem::take(&mut c.changes);
        let acknowledged = result.is_ok();
        let mut p = PreparedTrx { xid, changes, acknowledged, maybe_committed: false };
        if let Err(e) = result {
            assert!(self.excused(&e), "prepare: {e}");
            self.prepared.push(p);
            return End::Crash;
        }
        if self.random.one_in(2) {
            c.session.detach_prepared();
            c.reset();
            self.prepared.push(p);
            return End::Fine;
        }
        let commit = !self.random.one_in(3);
        let result = if commit {
            if self.random.one_in(2) {
                c.session.commit_ordered();
            }
            c.session.commit_finish(true)
        } else {
            c.session.rollback()
        };
        c.reset();
        match result {
            Ok(()) => {
                if commit {
                    self.model.apply(&p.changes);
                }
                End::Fine
            }
            Err(e) => {
                assert!(self.excused(&e), "end of a prepared transaction: {e}");
                p.maybe_committed = commit;
                p.acknowledged = false;
                self.prepared.push(p);
                End::Crash
            }
        }
    }

    pub(crate) fn end_prepared(&mut self) -> End {
        if self.prepared.is_empty() {
            return End::Fine;
        }
        let at = self.random.below(self.prepared.len() as u64) as usize;
        let mut p = self.prepared.swap_remove(at);
        let commit = self.random.one_in(2);
        say!(self, "{} {:?}", if commit { "commit" } else { "roll back" }, p.xid);
        let engine = self.engine();
        let result = match (self.random.one_in(3), commit) {
            (false, true) => engine.commit_by_xid(&p.xid),
            (false, false) => engine.rollback_by_xid(&p.xid),
            (true, _) => {
                let mut session = engine.session();
                assert!(session.attach_prepared(&p.xid), "prepared {:?} is not known", p.xid);
                if commit { session.commit_finish(true) } else { session.rollback() }.map(|()| true)
            }
        };
        match result {
            Ok(found) => {
                assert!(found, "prepared {:?} is not known", p.xid);
                if commit {
                    self.model.apply(&p.changes);
                }
                End::Fine
            }
            Err(e) => {
                assert!(self.excused(&e), "end of a prepared transaction: {e}");
                p.maybe_committed = commit;
                p.acknowledged = false;
                self.prepared.push(p);
                End::Crash
            }
        }
    }
}
