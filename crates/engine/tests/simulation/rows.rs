//! Rows of a table with two secondary indexes, as operations on its entries.

use crate::model::{by_tag, by_value, Rows};
use myriad::*;
use std::collections::BTreeSet;

/// Asserts that a secondary index holds the keys that belong to the rows.
pub(crate) fn assert_keys(found: Rows, rows: &Rows, key: fn(&[u8], &[u8]) -> Vec<u8>, what: &str) {
    let expected: BTreeSet<Vec<u8>> = rows.iter().map(|(k, v)| key(k, v)).collect();
    let found: BTreeSet<Vec<u8>> = found.into_keys().collect();
    let (missing, extra): (Vec<_>, Vec<_>) =
        (expected.difference(&found).collect(), found.difference(&expected).collect());
    assert!(missing.is_empty() && extra.is_empty(), "{what}: missing {missing:?}, too many {extra:?}");
}

pub(crate) fn op<'a>(kind: OpKind, index_no: usize, key: &'a [u8], unique_len: usize, value: &'a [u8]) -> Op<'a> {
    Op { kind, index_no, key, unique_len, value, head_len: value.len().min(20) }
}

pub(crate) fn insert(session: &mut Session, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
    let (second, third) = (by_value(key, value), by_tag(key, value));
    let ops = [
        op(OpKind::Insert, 0, key, key.len(), value),
        op(OpKind::Insert, 1, &second, 0, b""),
        op(OpKind::Insert, 2, &third, 2, b""),
    ];
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

pub(crate) fn update(session: &mut Session, table: &Table, key: &[u8], old: &[u8], new: &[u8]) -> Result<()> {
    let (second, third) = (by_value(key, old), by_tag(key, old));
    let (new_second, new_third) = (by_value(key, new), by_tag(key, new));
    let mut ops = vec![op(OpKind::Update, 0, key, 0, new)];
    if second != new_second {
        ops.push(op(OpKind::Delete, 1, &second, 0, b""));
        ops.push(op(OpKind::Insert, 1, &new_second, 0, b""));
    }
    if third != new_third {
        ops.push(op(OpKind::Delete, 2, &third, 0, b""));
        ops.push(op(OpKind::Insert, 2, &new_third, 2, b""));
    }
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

pub(crate) fn delete(session: &mut Session, table: &Table, key: &[u8], old: &[u8]) -> Result<()> {
    let (second, third) = (by_value(key, old), by_tag(key, old));
    let ops = [
        op(OpKind::Delete, 0, key, 0, b""),
        op(OpKind::Delete, 1, &second, 0, b""),
        op(OpKind::Delete, 2, &third, 0, b""),
    ];
    session.apply(table, ops.into_iter(), ApplyMode::default())
}

pub(crate) fn scan(session: &mut Session, table: &Table, index: usize) -> Result<Rows> {
    let mut cursor = Cursor::open(session, table, index, CursorOptions { full_scan: true, ..Default::default() })?;
    let mut rows = Rows::new();
    let mut row = cursor.seek(session, Seek::First, b"")?;
    while let Some(found) = row {
        let before = rows.insert(found.key.to_vec(), found.value.to_vec());
        assert!(before.is_none(), "key {:?} twice in a scan", found.key);
        row = cursor.next(session)?;
    }
    Ok(rows)
}

/// The entries from one key to another, whose pages are asked for together before; `down`: from the last to the first.
pub(crate) fn scan_range(
    session: &mut Session,
    table: &Table,
    index: usize,
    [low, high]: &[Vec<u8>; 2],
    down: bool,
) -> Result<Rows> {
    // As the model has it: the statement's first look, which may fail, is not at its snapshot.
    session.open_snapshot()?;
    session.read_together(table, index, [low, high].into_iter().map(|key| &key[..]))?;
    let mut cursor = Cursor::open(session, table, index, CursorOptions::default())?;
    cursor.set_bounds(Some(low), Some(high));
    let mut rows = Rows::new();
    let (from, begin) = if down { (Seek::Le, high) } else { (Seek::Ge, low) };
    let mut row = cursor.seek(session, from, begin)?;
    while let Some(found) = row {
        rows.insert(found.key.to_vec(), found.value.to_vec());
        row = if down { cursor.prev(session)? } else { cursor.next(session)? };
    }
    Ok(rows)
}
