//! Foreign keys in the catalog: kept, found by their parents, and in step with every change of a definition.

use myriad::{
    Engine, EngineConfig, Error, ForeignKey, ForeignKeyChange, IndexSpec, Judge, NewDefinition, ReferenceAction,
    Result, TableSpec, Verdict,
};
use myriad_io::{CallKind, Fault, Io, SimIo};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const INDEXES: &[IndexSpec] = &[IndexSpec::UNIQUE, IndexSpec::PLAIN];

fn key(name: &str, parent: &str) -> ForeignKey {
    ForeignKey {
        name: name.into(),
        parent: parent.into(),
        on_delete: ReferenceAction::Cascade,
        on_update: ReferenceAction::SetNull,
        columns: vec![("a".into(), "id".into()), ("b".into(), "k".into())],
    }
}

fn create(engine: &Engine, name: &str, keys: &[ForeignKey]) {
    let spec = TableSpec { frm: b"image", indexes: INDEXES, foreign_keys: keys, ..TableSpec::default() };
    engine.create_table(name, &spec).expect("created");
}

/// Children and names of the foreign keys that refer to a table.
fn references(engine: &Engine, parent: &str) -> Vec<String> {
    let found = engine.references_to(parent).expect("read");
    found.into_iter().map(|(child, key)| format!("{child}:{}", key.name)).collect()
}

fn parents(engine: &Engine, table: &str) -> Vec<String> {
    engine.foreign_keys(table).expect("read").into_iter().map(|k| format!("{}>{}", k.name, k.parent)).collect()
}

fn place() -> (tempfile::TempDir, Arc<Engine>) {
    let dir = tempfile::tempdir().expect("folder");
    let engine = Engine::open(dir.path()).expect("open");
    (dir, engine)
}

#[test]
fn they_are_found_from_both_sides_and_after_a_restart() {
    let (dir, engine) = place();
    let before = engine.references_version();
    create(&engine, "d/c", &[key("one", "d/p"), key("two", "e/q")]);
    assert!(engine.references_version() > before);
    // The parent comes later.
    create(&engine, "d/p", &[]);
    create(&engine, "d/p2", &[]);
    let check = |engine: &Engine| {
        assert_eq!(engine.foreign_keys("d/c").expect("read"), [key("one", "d/p"), key("two", "e/q")]);
        assert_eq!(references(engine, "d/p"), ["d/c:one"]);
        assert_eq!(references(engine, "e/q"), ["d/c:two"]);
        assert!(references(engine, "d/p2").is_empty() && references(engine, "d/c").is_empty());
        assert_eq!(engine.reference_from_elsewhere("e").expect("read"), Some(("e/q".into(), "d/c".into())));
        assert_eq!(engine.reference_from_elsewhere("d").expect("read"), None);
    };
    check(&engine);
    engine.truncate_table("d/c", 1).expect("emptied");
    check(&engine);
    drop(engine);
    check(&Engine::open(dir.path()).expect("open"));
}

#[test]
fn renames_are_followed_but_not_to_stand_ins() {
    let (_dir, engine) = place();
    create(&engine, "d/p", &[key("p_ibfk_1", "d/p")]);
    create(&engine, "d/c", &[key("c_ibfk_1", "d/p"), key("named", "d/p")]);
    engine.rename_table("d/p", "e/q").expect("renamed");
    assert_eq!(parents(&engine, "d/c"), ["c_ibfk_1>e/q", "named>e/q"]);
    assert_eq!(parents(&engine, "e/q"), ["p_ibfk_1>e/q"]);
    assert_eq!(references(&engine, "e/q"), ["d/c:c_ibfk_1", "d/c:named", "e/q:p_ibfk_1"]);
    assert!(references(&engine, "d/p").is_empty());
    engine.rename_table_as("d/c", "d/n", None, Some(("c_ibfk_", "n_ibfk_"))).expect("renamed");
    assert_eq!(parents(&engine, "d/n"), ["n_ibfk_1>e/q", "named>e/q"]);
    // A copy takes the parent's place.
    create(&engine, "e/#sql-alter-1", &[key("p_ibfk_1", "e/q")]);
    engine.rename_table("e/q", "e/#sql-backup-1").expect("renamed");
    assert_eq!(parents(&engine, "d/n"), ["n_ibfk_1>e/q", "named>e/q"]);
    engine.rename_table("e/#sql-alter-1", "e/q").expect("renamed");
    engine.drop_table("e/#sql-backup-1").expect("dropped");
    assert_eq!(references(&engine, "e/q"), ["d/n:n_ibfk_1", "d/n:named", "e/q:p_ibfk_1"]);
    // And gets another name at that.
    create(&engine, "e/#sql-alter-2", &[key("p_ibfk_1", "e/q")]);
    engine.rename_table("e/q", "e/#sql-backup-2").expect("renamed");
    engine.rename_table_as("e/#sql-alter-2", "e/r", Some("e/q"), None).expect("renamed");
    engine.drop_table("e/#sql-backup-2").expect("dropped");
    assert_eq!(references(&engine, "e/r"), ["d/n:n_ibfk_1", "d/n:named", "e/r:p_ibfk_1"]);
    assert!(references(&engine, "e/q").is_empty());
}

#[test]
fn a_rename_gives_no_two_the_same_name() {
    let (_dir, engine) = place();
    create(&engine, "d/t1", &[key("T2_ibfk_1", "d/p"), key("t1_ibfk_1", "d/p")]);
    let prefix = Some(("t1_ibfk_", "t2_ibfk_"));
    assert!(matches!(engine.rename_table_as("d/t1", "d/t2", None, prefix), Err(Error::TableExists { .. })));
    assert_eq!(parents(&engine, "d/t1"), ["T2_ibfk_1>d/p", "t1_ibfk_1>d/p"]);
    engine.rename_table_as("d/t1", "d/t3", None, Some(("t1_ibfk_", "t3_ibfk_"))).expect("renamed");
    assert_eq!(parents(&engine, "d/t3"), ["T2_ibfk_1>d/p", "t3_ibfk_1>d/p"]);
}

/// The server takes no statement with a name of more than 64 characters: a dump of the table could not be loaded.
#[test]
fn a_rename_makes_no_name_that_is_too_long() {
    let (_dir, engine) = place();
    create(&engine, "d/t1", &[key("t1_ibfk_1", "d/p"), key("t1_ibfk_10", "d/p")]);
    let long = "ä".repeat(57);
    let prefix = format!("{long}_ibfk_");
    engine.rename_table_as("d/t1", "d/long", None, Some(("t1_ibfk_", &prefix))).expect("renamed");
    assert_eq!(parents(&engine, "d/long"), ["t1_ibfk_10>d/p".to_string(), format!("{prefix}1>d/p")]);
}

#[test]
fn alter_and_drop_keep_both_sides_in_step() {
    let (_dir, engine) = place();
    create(&engine, "d/p", &[]);
    create(&engine, "d/c", &[key("one", "d/p"), key("two", "d/p")]);
    let alter = |name: &str, keys| {
        engine.redefine(name, &NewDefinition { frm: b"new", keys, ..Default::default() }).expect("altered");
    };
    let change = ForeignKeyChange { dropped: &["one".into()], added: &[key("three", "d/x")], renamed: &[] };
    alter("d/c", change);
    assert_eq!(parents(&engine, "d/c"), ["three>d/x", "two>d/p"]);
    assert_eq!(references(&engine, "d/p"), ["d/c:two"]);
    let renamed = [("id".to_string(), "number".to_string())];
    alter("d/p", ForeignKeyChange { renamed: &renamed, ..Default::default() });
    let columns = |name: &str| {
        let keys = engine.foreign_keys("d/c").expect("read");
        keys.into_iter().find(|k| k.name == name).expect("key").columns[0].clone()
    };
    assert_eq!(columns("two"), ("a".into(), "number".into()));
    assert_eq!(columns("three"), ("a".into(), "id".into()));
    engine.drop_table("d/p").expect("dropped");
    assert_eq!(references(&engine, "d/p"), ["d/c:two"]);
    engine.drop_table("d/c").expect("dropped");
    assert!(references(&engine, "d/p").is_empty() && references(&engine, "d/x").is_empty());
    create(&engine, "d/c", &[key("one", "e/p")]);
    engine.drop_database("d").expect("dropped");
    assert!(references(&engine, "e/p").is_empty());
}

/// Copies whatever there is, without rows.
struct Plain;

impl Judge for Plain {
    fn table(&mut self, _: &str, _: Option<&[u8]>) -> Result<Verdict> {
        Ok(Verdict::default())
    }
    fn first_row(&mut self, name: &str, _: &mut [u8]) -> Result<()> {
        panic!("nobody asked for the row of {name}")
    }
}

#[test]
fn a_copied_database_refers_to_itself() {
    let (_dir, engine) = place();
    create(&engine, "d/p", &[]);
    create(&engine, "d/c", &[key("one", "d/p"), key("two", "e/p")]);
    let cloned = engine.clone_database("d", "n", &[], &mut Plain).expect("copied");
    engine.finish_clone(cloned.note).expect("finished");
    assert_eq!(parents(&engine, "n/c"), ["one>n/p", "two>e/p"]);
    assert_eq!(references(&engine, "n/p"), ["n/c:one"]);
    assert_eq!(references(&engine, "e/p"), ["d/c:two", "n/c:two"]);
}

#[test]
fn a_copy_keeps_what_its_table_refers_to_by_now() {
    let (_dir, engine) = place();
    create(&engine, "d/p", &[]);
    let keys = [key("itself", "d/c"), key("kept", "d/p"), key("new", "d/p")];
    create(&engine, "d/c", &keys);
    let renamed = [("id".to_string(), "number".to_string())];
    let keys_change = ForeignKeyChange { renamed: &renamed, ..Default::default() };
    engine.redefine("d/p", &NewDefinition { frm: b"new", keys: keys_change, ..Default::default() }).expect("altered");
    engine.rename_table("d/p", "e/q").expect("renamed");
    let names = ["itself".to_string(), "kept".to_string(), "gone".to_string()];
    let spec = TableSpec {
        frm: b"image",
        indexes: INDEXES,
        foreign_keys: &keys,
        kept_keys: Some(("d/c", &names)),
        ..TableSpec::default()
    };
    engine.create_table("d/#sql-alter-1", &spec).expect("created");
    assert_eq!(parents(&engine, "d/#sql-alter-1"), ["itself>d/c", "kept>e/q", "new>d/p"]);
    let columns = &engine.foreign_keys("d/#sql-alter-1").expect("read")[1].columns;
    assert_eq!(columns[0], ("a".to_string(), "number".to_string()));
    assert_eq!(references(&engine, "e/q"), ["d/#sql-alter-1:kept", "d/c:kept", "d/c:new"]);
    assert_eq!(references(&engine, "d/p"), ["d/#sql-alter-1:new"]);
}

/// Renames a table from each number to the next.
fn rename_on(engine: &Engine, table: &str, last: u32) {
    for n in 0..last {
        engine.rename_table(&format!("d/{table}{n}"), &format!("d/{table}{}", n + 1)).expect("renamed");
    }
}

#[test]
fn parent_and_child_are_renamed_at_once() {
    const RENAMES: u32 = 2000;
    let (_dir, engine) = place();
    create(&engine, "d/p0", &[]);
    create(&engine, "d/c0", &[key("one", "d/p0")]);
    std::thread::scope(|scope| {
        scope.spawn(|| rename_on(&engine, "c", RENAMES));
        rename_on(&engine, "p", RENAMES);
    });
    assert_eq!(parents(&engine, &format!("d/c{RENAMES}")), [format!("one>d/p{RENAMES}")]);
    assert_eq!(references(&engine, &format!("d/p{RENAMES}")), [format!("d/c{RENAMES}:one")]);
}

#[test]
fn a_child_is_copied_while_its_parent_is_renamed() {
    const COPIES: u32 = 500;
    let (_dir, engine) = place();
    create(&engine, "d/p0", &[]);
    create(&engine, "d/c", &[key("one", "d/p0")]);
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut last = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..COPIES {
                let keys = engine.foreign_keys("d/c").expect("read");
                let kept_keys = Some(("d/c", &["one".to_string()][..]));
                let spec = TableSpec { indexes: INDEXES, foreign_keys: &keys, kept_keys, ..TableSpec::default() };
                engine.create_table("d/#sql-alter-1", &spec).expect("created");
                engine.rename_table("d/c", "d/#sql-backup-1").expect("aside");
                engine.rename_table("d/#sql-alter-1", "d/c").expect("in its place");
                engine.drop_table("d/#sql-backup-1").expect("dropped");
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            engine.rename_table(&format!("d/p{last}"), &format!("d/p{}", last + 1)).expect("renamed");
            last += 1;
        }
    });
    assert_eq!(parents(&engine, "d/c"), [format!("one>d/p{last}")]);
    assert_eq!(references(&engine, &format!("d/p{last}")), ["d/c:one"]);
}

/// A table with children enough for their definitions to leave the pool's few pages while they follow a change.
struct Family {
    io: SimIo,
    engine: Arc<Engine>,
    children: Vec<String>,
    /// The parent's name, the column that is referred to, and the image, with the number of the last change that went well.
    parent: String,
    column: String,
    image: Vec<u8>,
    changes: u32,
}

impl Family {
    fn new() -> Family {
        let io = SimIo::new(1);
        io.create_dir(Path::new("/data")).expect("folder");
        let config = EngineConfig {
            page_size: 4096,
            buffer_pool_bytes: 32 * 4096,
            buffer_pool_instances: 1,
            log_capacity_bytes: 4 << 20,
            background_threads: false,
            seed: Some(1),
            ..EngineConfig::new("/data")
        };
        let engine = Engine::open_with(config, Some(Arc::new(io.clone()))).expect("open");
        create(&engine, "d/p0", &[]);
        // Long names that have little in common fill pages.
        let name = |n: u64| format!("d/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) + &"x".repeat(46);
        let children: Vec<_> = (1..=900).map(name).collect();
        children.iter().for_each(|child| create(&engine, child, &[key("k", "d/p0")]));
        let (parent, column) = ("d/p0".to_string(), "id".to_string());
        Family { io, engine, children, parent, column, image: b"image".to_vec(), changes: 0 }
    }

    /// Renames the column, or the table; whether that went well. An error says that nothing has changed, else all has.
    fn change(&mut self, renames_table: bool) -> bool {
        let n = self.changes + 1;
        let table = self.engine.open_table(&self.parent).expect("open");
        let (mut parent, mut column, mut image) = (self.parent.clone(), self.column.clone(), self.image.clone());
        let result = if renames_table {
            parent = format!("d/p{n}");
            self.engine.rename_table(&self.parent, &parent)
        } else {
            (column, image) = (format!("id{n}"), format!("image {n}").into_bytes());
            let renamed = [(self.column.clone(), column.clone())];
            let keys = ForeignKeyChange { renamed: &renamed, ..Default::default() };
            self.engine.redefine(&self.parent, &NewDefinition { frm: &image, keys, ..Default::default() })
        };
        self.io.clear_faults();
        if result.is_ok() {
            (self.parent, self.column, self.image, self.changes) = (parent, column, image, n);
        }
        assert_eq!(table.is_current(), result.is_err());
        assert_eq!(self.engine.frm(&self.parent).expect("the table has its name"), self.image);
        let refers = |name| {
            let key = self.engine.foreign_keys(name).expect("read").remove(0);
            (key.parent, key.columns.into_iter().next().expect("column").1)
        };
        let referred: BTreeSet<_> = self.children.iter().map(|name| refers(name)).collect();
        assert_eq!(referred, BTreeSet::from([(self.parent.clone(), self.column.clone())]));
        while self.engine.background_step().expect("purge") {}
        result.is_ok()
    }
}

/// Whichever read of a page fails, the first one, the second one, and so on until none is left.
#[test]
fn an_error_says_that_nothing_has_changed() {
    let mut family = Family::new();
    for renames_table in [false, true] {
        assert!(family.change(renames_table));
        let (mut nth, mut failed, mut in_a_row) = (0, 0, 0);
        while in_a_row < 10 {
            family.io.inject(CallKind::Read, ".myr", nth, Fault::Eio, false);
            if family.change(renames_table) {
                in_a_row += 1;
            } else {
                (failed, in_a_row) = (failed + 1, 0);
            }
            nth += 1;
        }
        assert!(failed > 20, "{failed} changes failed");
    }
}

#[test]
fn a_table_that_comes_to_nothing_leaves_no_counter() {
    let (dir, engine) = place();
    let next = 0x1122_3344_5566_7788_u64;
    // The name of a parent that makes a longer key than there can be.
    let keys = [key("k", &format!("d/{}", "x".repeat(5000)))];
    let spec = TableSpec { frm: b"image", indexes: INDEXES, auto_increment_next: Some(next), ..TableSpec::default() };
    create(&engine, "d/c", &[]);
    assert!(engine.create_table("d/t", &TableSpec { foreign_keys: &keys, ..spec }).is_err());
    let is_stored = |engine: &Engine| {
        engine.checkpoint_now().expect("written");
        let space = engine.spaces().expect("listed").into_iter().find(|s| s.database == "d").expect("there");
        let bytes = std::fs::read(dir.path().join(space.path)).expect("read");
        bytes.windows(8).any(|at| at == next.to_le_bytes())
    };
    assert!(!is_stored(&engine));
    engine.create_table("d/t", &spec).expect("created");
    assert!(is_stored(&engine));
}
