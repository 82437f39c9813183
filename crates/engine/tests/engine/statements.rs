//! What a statement that failed leaves behind.

use super::*;

/// At READ COMMITTED the next statement reads what has been committed since, whether there was anything to undo or not.
#[test]
fn an_undone_statement_leaves_no_snapshot() {
    let engine = open_sim(&SimIo::new(12), sim_config()).unwrap();
    engine.create_table("d/t", &spec()).unwrap();
    fill(&engine, "d/t", 10);
    let table = engine.open_table("d/t").unwrap();
    let (mut reader, mut other) = (engine.session(), engine.session());
    let begin = |s: &mut Session| s.statement_begin(Isolation::ReadCommitted, false, Duration::ZERO);
    for (round, changes) in [false, true, false].into_iter().enumerate() {
        let there = 10 + round as u64;
        begin(&mut reader);
        assert_eq!(reader.count_rows(&table).unwrap(), there);
        if changes {
            let op = Op { kind: OpKind::Insert, index_no: 0, key: b"mine", unique_len: 4, value: b"", head_len: 0 };
            reader.apply(&table, std::iter::once(op), ApplyMode::default()).unwrap();
            assert_eq!(reader.count_rows(&table).unwrap(), there + 1);
        }
        reader.statement_rollback().unwrap();
        other.insert(&table, &[round as u8], b"v").unwrap();
        other.commit().unwrap();
        begin(&mut reader);
        assert_eq!(reader.count_rows(&table).unwrap(), there + 1, "round {round}");
        reader.statement_end();
    }
    // At REPEATABLE READ the transaction's snapshot stays.
    reader.rollback().unwrap();
    reader.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    assert_eq!(reader.count_rows(&table).unwrap(), 13);
    reader.statement_rollback().unwrap();
    other.insert(&table, b"later", b"v").unwrap();
    other.commit().unwrap();
    reader.statement_begin(Isolation::RepeatableRead, false, Duration::ZERO);
    assert_eq!(reader.count_rows(&table).unwrap(), 13);
}
