//! All that can be done with a data directory.

use crate::directory::{begin, create, delete, insert, update, value, Directory, TABLES};
use myriad::*;
use myriad_base::random::Random;
use std::ops::Bound;
use std::sync::Arc;

/// More rows than there ever are in an index.
const ROWS_MAX: usize = 3_000;
const STEPS_MAX: usize = 3_000;

struct Use {
    random: Random,
    loud: bool,
    engine: Arc<Engine>,
}

type Done = std::result::Result<(), String>;

/// Opens the directory, does everything, stops, and looks whether the next start ends.
pub fn use_all(directory: &Directory, seed: u64, loud: bool) -> Done {
    let mut random = Random::from_seed(seed);
    let opened = directory.open(false).or_else(|e| {
        say(loud, "open", &e);
        directory.open(true)
    });
    let engine = match opened {
        Ok(engine) => engine,
        Err(e) => {
            say(loud, "forced open", &e);
            return Ok(());
        }
    };
    let mut all = Use { random: Random::from_seed(random.next_u64()), loud, engine };
    all.run()?;
    let mode = [CloseMode::Clean, CloseMode::Purged, CloseMode::LogOnly][random.below(3) as usize];
    if let Err(e) = all.engine.close(mode) {
        say(loud, "close", &e);
    }
    drop(all);
    match directory.open(true) {
        Ok(engine) => {
            let mut again = Use { random, loud, engine };
            again.background();
            again.look_at_all()?;
            again.alive()
        }
        Err(e) => {
            say(loud, "second open", &e);
            Ok(())
        }
    }
}

fn say(loud: bool, what: &str, e: &Error) {
    if loud {
        eprintln!("  {what}: {e}");
    }
}

impl Use {
    fn run(&mut self) -> Done {
        let first = self.random.below(4);
        for step in 0..4 {
            match (first + step) % 4 {
                0 => self.background(),
                1 => self.look_at_all()?,
                2 => self.change_all()?,
                _ => self.check_all(),
            }
            self.alive()?;
        }
        self.background();
        self.end_prepared();
        self.look_at_all()?;
        self.check_all();
        self.alive()?;
        self.define();
        self.background();
        self.alive()?;
        let _ = self.engine.checkpoint_now().map_err(|e| say(self.loud, "checkpoint", &e));
        self.alive()
    }

    /// An error that was told stops nothing else.
    fn alive(&self) -> Done {
        match self.engine.flush_log() {
            Err(e @ Error::Poisoned { .. }) => Err(e.to_string()),
            _ => Ok(()),
        }
    }

    fn note<T>(&self, what: &str, done: Result<T>) -> Option<T> {
        done.map_err(|e| say(self.loud, what, &e)).ok()
    }

    fn background(&self) {
        for _ in 0..STEPS_MAX {
            match self.engine.background_step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return say(self.loud, "background", &e),
            }
        }
        // What fails in the background is tried again for ever.
    }

    fn table(&self, name: &str) -> Option<Table> {
        self.note(name, self.engine.open_table(name))
    }

    fn look_at_all(&mut self) -> Done {
        let engine = Arc::clone(&self.engine);
        for name in TABLES {
            let Some(table) = self.table(name) else { continue };
            let mut session = engine.session();
            for index in 0..3 {
                for down in [false, true] {
                    for lock in [Lock::None, Lock::Exclusive] {
                        begin(&mut session);
                        let read = scan(&mut session, &table, index, down, lock);
                        match read {
                            Ok(n) if n > ROWS_MAX => {
                                return Err(format!("a scan of {name} index {index} does not end"))
                            }
                            read => drop(self.note("scan", read)),
                        }
                        self.end_statement(&mut session);
                    }
                }
                let (low, high) = (300u32.to_be_bytes(), 700u32.to_be_bytes());
                self.note("estimate", table.records_in_range(index, Some(&low), Bound::Excluded(&high)));
                self.note("sample", table.sample_index(index, 8, &mut |_, _, _| true));
            }
            for _ in 0..20 {
                let key = (self.random.below(1009) as u32).to_be_bytes();
                begin(&mut session);
                self.note("get", session.get(&table, 0, &key, false, Lock::None, Wait::Wait).map(|_| ()));
                self.end_statement(&mut session);
            }
            begin(&mut session);
            self.note("count", session.count_rows(&table));
            self.end_statement(&mut session);
            self.note("rollback", session.rollback());
            self.note("info", table.info());
            self.note("frm", engine.frm(name));
        }
        for db in ["a", "b", "c", "d"] {
            self.note("list", engine.list_tables(db, &mut |_| true));
        }
        self.note("spaces", engine.spaces());
        let _ = engine.status_text();
        Ok(())
    }

    fn end_statement(&self, session: &mut Session) {
        session.statement_end();
    }

    fn check_all(&self) {
        for name in TABLES {
            if let Some(table) = self.table(name) {
                let loud = self.loud;
                let mut told = |finding: &str| {
                    if loud {
                        eprintln!("  check {name}: {finding}");
                    }
                };
                self.note("check", table.check(&mut told));
                self.note("quick check", self.engine.session().check(&table, true, &mut told));
            }
        }
    }

    fn change_all(&mut self) -> Done {
        let engine = Arc::clone(&self.engine);
        for name in &TABLES[..3] {
            let Some(table) = self.table(name) else { continue };
            let mut session = engine.session();
            for step in 0..250u32 {
                let key = (self.random.below(1100) as u32).to_be_bytes();
                begin(&mut session);
                let old = session.get(&table, 0, &key, false, Lock::Exclusive, Wait::Wait);
                let old = old.map(|row| row.map(|row| row.value.to_vec()));
                let len = [10, 100, 400, 7_000][self.random.below(4) as usize];
                let new = value(10_000 + step, len);
                let done = match old {
                    Ok(None) => insert(&mut session, &table, &key, &new),
                    Ok(Some(old)) if old.len() < 4 => Ok(()),
                    Ok(Some(old)) if step % 3 == 0 => delete(&mut session, &table, &key, &old),
                    Ok(Some(old)) => update(&mut session, &table, &key, &old, &new),
                    Err(e) => Err(e),
                };
                if self.note("change", done).is_some() {
                    session.statement_end();
                } else {
                    self.note("undo", session.statement_rollback());
                }
                match self.random.below(12) {
                    0 => drop(self.note("commit", session.commit())),
                    1 => drop(self.note("rollback", session.rollback())),
                    2 => drop(self.note("savepoint", session.savepoint())),
                    _ => {}
                }
            }
            // A statement that changes what it scans.
            let all = self.update_scanned(&mut session, &table);
            if matches!(all, Ok(n) if n > ROWS_MAX) {
                return Err(format!("an update of {name} does not end"));
            }
            self.note("update of all", all);
            self.note("counter", session.auto_increment_reserve(&table, 1, 1, 2, u64::MAX));
            let ended = if self.random.one_in(2) { session.commit() } else { session.rollback() };
            self.note("end", ended);
        }
        Ok(())
    }

    fn update_scanned(&mut self, session: &mut Session, table: &Table) -> Result<usize> {
        begin(session);
        let options = CursorOptions { lock: Lock::Exclusive, ..Default::default() };
        let mut cursor = Cursor::open(session, table, 0, options)?;
        let (mut n, mut row) = (0, cursor.seek(session, Seek::First, b"")?);
        while let Some(found) = row {
            n += 1;
            if n > ROWS_MAX {
                break;
            }
            let (key, old) = (found.key.to_vec(), found.value.to_vec());
            if n % 3 != 0 && old.len() >= 4 {
                let mut new = old.clone();
                new.push(n as u8);
                if update(session, table, &key, &old, &new).is_err() {
                    session.statement_rollback()?;
                }
            }
            row = cursor.next(session)?;
        }
        session.statement_end();
        Ok(n)
    }

    fn end_prepared(&mut self) {
        for xid in self.engine.prepared() {
            let commit = self.random.one_in(2);
            let ended = if commit { self.engine.commit_by_xid(&xid) } else { self.engine.rollback_by_xid(&xid) };
            self.note("end of a prepared transaction", ended);
        }
    }

    fn define(&mut self) {
        let engine = Arc::clone(&self.engine);
        self.note("create", create(&engine, "a/new", Placement::Database));
        self.note("rename", engine.rename_table("a/pack", "c/pack"));
        self.note("truncate", engine.truncate_table("a/large", 1));
        self.background();
        self.note("drop", engine.drop_table("b/own"));
        self.note("drop", engine.drop_table("a/large"));
        if self.random.one_in(2) {
            self.note("drop database", engine.drop_database("a"));
        }
    }
}

fn scan(session: &mut Session, table: &Table, index: usize, down: bool, lock: Lock) -> Result<usize> {
    let options = CursorOptions { lock, wait: Wait::NoWait, full_scan: true, ..Default::default() };
    let mut cursor = Cursor::open(session, table, index, options)?;
    let (mut n, mut row) = (0, cursor.seek(session, if down { Seek::Last } else { Seek::First }, b"")?);
    while row.is_some() && n <= ROWS_MAX {
        n += 1;
        row = if down { cursor.prev(session)? } else { cursor.next(session)? };
    }
    Ok(n)
}
