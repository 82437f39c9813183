//! Tables filled while nobody else sees them.

use super::*;
use myriad_base::random::Random;
use std::collections::BTreeMap;

const KEYS: u32 = 3_000;

/// Keys in an order that a SELECT may give.
fn orders(random: &mut Random) -> Vec<(&'static str, Vec<u32>)> {
    let ascending = || 1..=KEYS;
    let mut shuffled: Vec<u32> = ascending().collect();
    random.shuffle(&mut shuffled);
    let mut twice: Vec<u32> = ascending().collect();
    for _ in 0..40 {
        let at = random.below(u64::from(KEYS)) as usize;
        let back = [0, 1, 2, 20, 1_000][random.below(5) as usize];
        twice.insert(at + 1, twice[at.saturating_sub(back)]);
    }
    let halves = ascending().map(|i| if i % 2 == 0 { i / 2 } else { KEYS + i });
    vec![
        ("ascending", ascending().collect()),
        ("descending", ascending().rev().collect()),
        ("two sequences in turns", halves.collect()),
        ("no order", shuffled),
        ("some twice", twice.clone()),
        ("some twice, descending", twice.into_iter().rev().collect()),
    ]
}

/// Rows of any length, some too long for a page.
fn row(i: u32, random: &mut Random) -> Vec<u8> {
    let len = if random.below(150) == 0 { 6_000 + random.below(9_000) } else { random.below(200) };
    vec![i as u8; len as usize]
}

/// Fills the table as a copy does, all of `keys` or up to the first that comes twice.
fn copy_in_order(engine: &Arc<Engine>, name: &str, keys: &[u32], sorted: Option<(&Path, u64)>) {
    let mut random = Random::from_seed(7);
    let mut model = BTreeMap::new();
    let table = engine.open_table(name).unwrap();
    let mut session = engine.session();
    let mut copy = TableCopy::begin(&table, sorted).unwrap();
    let kind = OpKind::Insert;
    let mut twice = Vec::new();
    for &i in keys {
        let key = i.to_be_bytes();
        let (value, entry) = (row(i, &mut random), [(i % 97).to_be_bytes(), key].concat());
        let ops = [
            Op { kind, index_no: 0, key: &key, unique_len: 4, value: &value, head_len: value.len() / 9 },
            Op { kind, index_no: 1, key: &entry, unique_len: 0, value: b"e", head_len: 0 },
        ];
        match copy.apply(&mut session, ops.into_iter()) {
            Ok(()) => {}
            Err(Error::DuplicateKey { .. }) => {
                assert!(model.contains_key(&key[..]), "{name}: {i} was refused");
                assert_eq!(session.last_duplicate(), (0, &key[..]));
                return;
            }
            Err(e) => panic!("{name}: {e}"),
        }
        if model.insert(key.to_vec(), value).is_some() {
            twice.push(key);
        }
    }
    match copy.finish(&mut session) {
        Ok(()) => assert_eq!(twice, [[0; 4]; 0], "{name}"),
        Err(Error::DuplicateKey { .. }) => {
            let (no, key) = copy.duplicate();
            assert_eq!((no, Some(key)), (0, twice.iter().min().map(|k| &k[..])), "{name}");
            let found = session.get(&table, 0, key, false, Lock::None, Wait::Wait).unwrap();
            assert!(found.is_some(), "{name}: the row is not there");
            session.commit().unwrap();
            return;
        }
        Err(e) => panic!("{name}: {e}"),
    }
    session.commit().unwrap();
    table.check(&mut |finding| panic!("{name}: {finding}")).unwrap();
    assert!(rows(engine, name).into_iter().eq(model), "{name}");
}

#[test]
fn copies_take_rows_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig { buffer_pool_bytes: 64 << 20, ..config(dir.path()) };
    let engine = Engine::open_with(config, None).unwrap();
    let mut random = Random::from_seed(3);
    let indexes = [IndexSpec::UNIQUE, IndexSpec::PLAIN];
    for (what, keys) in orders(&mut random) {
        for (how, sorted) in [("sorted", Some((dir.path(), 1 << 20))), ("by row", None)] {
            for in_memory in [false, true] {
                let name = format!("d/{what}, {how}, {in_memory}");
                let spec = TableSpec { indexes: &indexes, in_memory, ..Default::default() };
                engine.create_table(&name, &spec).unwrap();
                copy_in_order(&engine, &name, &keys, sorted);
                engine.drop_table(&name).unwrap();
            }
        }
    }
    engine.close(CloseMode::Purged).unwrap();
}
