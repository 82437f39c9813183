"""Statements that random_queries.py draws: each a list, of which all answers are compared, the table that a hint is of, and whether
the order of the rows is defined. Whatever else a plan could decide (which rows a LIMIT leaves, which of equal texts is told) is fixed by
`id`, or not asked for."""

NUMBER, TEXT, BYTES, DATE = "number", "text", "bytes", "date"


def near(chance, table, wide=300):
    """A condition on id that leaves few rows: InnoDB's table has no other index."""
    low = chance.randrange(table.rows)
    return f"id BETWEEN {low} AND {low + chance.randrange(1, wide)}"


def exact(column):
    """Of a text that is the least of equal ones what does not depend on which."""
    return (lambda value: f"HEX(WEIGHT_STRING(RTRIM({value})))") if column.family == TEXT else (lambda value: value)


def directions(chance, names):
    """An ORDER BY of these, the last of which is unique."""
    return f"ORDER BY {', '.join(name + chance.choice(['', ' DESC']) for name in names)}"


def limit(chance):
    return f"LIMIT {chance.choice([1, 2, 10, 100, 1000])}"


def in_key_order(tables, chance):
    """Rows as an index has them, or nearly."""
    t = chance.choice(tables)
    way = chance.choice(["", " DESC"])
    parts = chance.choice(t.keys)
    order = ", ".join(f"{name}{' DESC' if down != (way != '') else ''}" for name, down in parts)
    what = chance.choice(["*", "id", ", ".join(["id"] + [name for name, _ in parts if t.column(name).family != TEXT])])
    where = chance.choice(["", f"WHERE {t.condition(chance)}"])
    lock = chance.choice(["", "", "", " FOR UPDATE", " LOCK IN SHARE MODE"])
    return [f"SELECT {what} FROM {t.name}{{hint}} {where} ORDER BY {order}, id{way} {limit(chance)} "
            f"OFFSET {chance.choice([0, 0, 3, 500])}{lock}"], t, True


def loose_scan(tables, chance):
    """Of each group of an index's first columns the least, the greatest or how many."""
    t = chance.choice(tables)
    parts = [t.column(name) for name, _ in chance.choice(t.keys)]
    first = parts[:chance.randrange(1, len(parts) + 1)]
    by = ", ".join(c.name for c in first)
    shown = ", ".join(exact(c)(f"MIN({c.name})") for c in first)
    last = chance.choice(parts + t.all)
    where = chance.choice(["", "", f"WHERE {t.condition(chance)}", f"WHERE {first[0].name} > {first[0].value(chance, t.rows)}"])
    ends = ", ".join(exact(last)(f"{f}({last.name})") for f in chance.choice([["MIN"], ["MAX"], ["MIN", "MAX"]]))
    one = f"{last.name} = {last.value(chance, t.rows)}"
    return [chance.choice([
        f"SELECT {shown}, {ends} FROM {t.name}{{hint}} {where} GROUP BY {by}",
        f"SELECT {shown}, {ends} FROM {t.name}{{hint}} WHERE {one} GROUP BY {by}",
        f"SELECT {ends} FROM {t.name}{{hint}} {where}",
        f"SELECT COUNT(*) FROM (SELECT DISTINCT {by} FROM {t.name}{{hint}} {where}) d",
        f"SELECT COUNT(DISTINCT {by}), SUM(DISTINCT id) FROM {t.name}{{hint}} {where}",
        f"SELECT COUNT(DISTINCT {by}) FROM {t.name}{{hint}} {where}",
        f"SELECT {shown}, COUNT(*), SUM(id) FROM {t.name}{{hint}} {where} GROUP BY {by} WITH ROLLUP",
        f"SELECT {shown}, {ends} FROM {t.name}{{hint}} {where} GROUP BY {by} HAVING MIN({last.name}) > {last.value(chance, t.rows)}",
    ])], t, False


def window(tables, chance):
    t = chance.choice(tables)
    a, b = chance.choice(t.all), chance.choice(t.all)
    over = f"(PARTITION BY {a.name} {directions(chance, [b.name, 'id'])})"
    what = chance.choice(["ROW_NUMBER()", "LAG(id, 2)", "SUM(id)", "FIRST_VALUE(id)", "LEAD(g)", "NTILE(3)"])
    where = t.condition(chance)
    if chance.random() < 0.3:
        return [f"SELECT * FROM (SELECT id, ROW_NUMBER() OVER {over} n FROM {t.name}{{hint}} WHERE {where}) d WHERE n <= 2"], t, False
    return [f"SELECT id, {what} OVER {over} FROM {t.name}{{hint}} WHERE {where} AND {near(chance, t, 2000)}"], t, False


def recursive(tables, chance):
    t, u = chance.choice(tables), chance.choice(tables)
    a, b = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    return [f"WITH RECURSIVE r AS (SELECT id, {a.name} v, 0 depth FROM {t.name}{{hint}} WHERE {near(chance, t, 20)} UNION "
            f"SELECT y.id, x.{a.name}, r.depth + 1 FROM r JOIN {u.name} y ON y.{b.name} = r.v JOIN {t.name} x ON x.id = y.id "
            f"WHERE r.depth < {chance.choice([1, 2])} AND y.id < 500) SELECT COUNT(*), SUM(id), SUM(depth) FROM r"], t, False


def subquery(tables, chance):
    """Semi-joins and what else IN, EXISTS and scalar subqueries become."""
    t, u = chance.choice(tables), chance.choice(tables)
    a, b = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    p, q = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    inner = f"{u.condition(chance, 'y.')} AND y.{near(chance, u)}"
    some = chance.choice(["IN", "IN", "IN", "NOT IN"])
    tests = [
        f"x.{a.name} {some} (SELECT y.{b.name} FROM {u.name} y WHERE {inner})",
        f"(x.{a.name}, x.{p.name}) {some} (SELECT y.{b.name}, y.{q.name} FROM {u.name} y WHERE {inner})",
        f"x.{a.name} {some} (SELECT y.{b.name} FROM {u.name} y JOIN {t.name} z ON z.id = y.id WHERE {inner})",
        f"{chance.choice(['', 'NOT '])}EXISTS (SELECT * FROM {u.name} y WHERE y.{b.name} = x.{a.name} AND {inner})",
        f"x.{a.name} {chance.choice(['> ALL', '< ANY', '= ANY', '<> ALL'])} (SELECT y.{b.name} FROM {u.name} y WHERE {inner})",
        f"x.{a.name} = (SELECT {chance.choice(['MAX', 'MIN'])}(y.{b.name}) FROM {u.name} y WHERE {inner})",
        f"x.{a.name} {some} (SELECT {chance.choice(['MAX', 'MIN'])}(y.{b.name}) FROM {u.name} y WHERE {inner} GROUP BY y.{q.name})",
        f"x.id IN (SELECT y.id FROM {u.name} y WHERE {inner}) AND x.{a.name} {some} (SELECT y.{b.name} FROM {u.name} y WHERE {inner})",
    ]
    where = chance.choice(["", f" AND {t.condition(chance, 'x.')}", f" OR {t.condition(chance, 'x.')}"])
    return [f"SELECT {chance.choice(['COUNT(*), SUM(x.id)', 'x.id'])} FROM {t.name} x{{hint}} WHERE ({chance.choice(tests)}{where}) "
            f"AND x.{near(chance, t, 1500)}"], t, False


def derived(tables, chance):
    """Joins with grouped tables, into which conditions are pushed, or which are read for each row."""
    t, u = chance.choice(tables), chance.choice(tables)
    a, b = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    grouped = f"(SELECT {b.name} v, COUNT(*) n, SUM(id) total FROM {u.name} GROUP BY {b.name})"
    kind = chance.choice(["", "LEFT "])
    return [f"SELECT COUNT(*), SUM(x.id), SUM(d.n), SUM(d.total) FROM {t.name} x{{hint}} {kind}JOIN {grouped} d ON d.v = x.{a.name} "
            f"WHERE x.{near(chance, t)} AND {t.condition(chance, 'x.')}"], t, False


def joins(tables, chance):
    """Three tables, of which join buffers may hold a few rows only."""
    t, u, w = (chance.choice(tables) for _ in range(3))
    a, b = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    p, q = chance.choice([(a, b) for a in u.all for b in w.all if a.family == b.family])
    straight = chance.choice(["", "STRAIGHT_JOIN "])
    first, second = chance.choice(["", "LEFT "]), chance.choice(["", "LEFT "])
    more = chance.choice(["", "", f" AND y.{a.name if a.name in u.names else b.name} IS NOT NULL"])
    what = chance.choice(["COUNT(*), SUM(x.id), SUM(y.id), SUM(z.id)", "x.id, y.id, z.id, LENGTH(y.pad), LENGTH(z.pad)"])
    return [f"SELECT {straight}{what} FROM {t.name} x{{hint}} {first}JOIN {u.name} y ON y.{b.name} = x.{a.name}{more} AND y.{near(chance, u, 2000)} "
            f"{second}JOIN {w.name} z ON z.{q.name} = y.{p.name} AND z.{near(chance, w, 1000)} "
            f"WHERE x.{near(chance, t, 60)}"], t, False


def rows_compared(tables, chance):
    """Conditions on several columns at once, and unions."""
    t = chance.choice(tables)
    parts = [t.column(name) for name, _ in chance.choice(t.keys)]
    names = ", ".join(c.name for c in parts)

    def row():
        return f"({', '.join(c.value(chance, t.rows) for c in parts)})"
    tests = [f"({names}) IN ({', '.join(row() for _ in range(chance.randrange(2, 20)))})",
             # The server's not_null_range_scan takes later columns for not NULL.
             " AND ".join([f"({names}) {chance.choice(['>', '<=', '=', '<=>'])} {row()}"] + [f"{c.name} IS NOT NULL" for c in parts[1:]]),
             " OR ".join(f"{c.name} <=> {chance.choice(['NULL', c.value(chance, t.rows)])}" for c in parts),
             f"{parts[0].name} = {parts[0].value(chance, t.rows)} AND {t.condition(chance)}",
             f"{parts[0].name} IN (SELECT {parts[0].name} FROM {t.name} WHERE {near(chance, t, 5)})"]
    both = f"SELECT id FROM {t.name}{{hint}} WHERE {chance.choice(tests)}"
    if chance.random() < 0.4:
        kind = chance.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        both += f" {kind} SELECT id FROM {t.name} WHERE {chance.choice(tests)}"
    return [both], t, False


def concatenated(tables, chance):
    t = chance.choice(tables)
    return [f"SELECT g, COUNT(*), GROUP_CONCAT(id {directions(chance, [chance.choice(t.all).name, 'id'])} SEPARATOR ',') "
            f"FROM {t.name}{{hint}} WHERE {t.condition(chance)} AND {near(chance, t, 1000)} GROUP BY g"], t, False


def partition(tables, chance):
    t = chance.choice(tables)
    where = f"PARTITION (p{chance.randrange(2)})" if t.partitions else ""
    return [f"SELECT COUNT(*), SUM(id), SUM(LENGTH(pad)) FROM {t.name} {where}{{hint}} WHERE {t.condition(chance)}"], t, False


def prepared(tables, chance):
    t = chance.choice(tables)
    column = chance.choice(t.all)
    test = chance.choice(["BETWEEN ? AND ?", "IN (?, ?)"])
    text = f"SELECT COUNT(*), SUM(id) FROM {t.name}{{hint}} WHERE {column.name} {test} AND {t.condition(chance)}"
    statements = [f'PREPARE p FROM "{text}"']
    for _ in range(3):
        low, high = (chance.choice(["NULL", column.value(chance, t.rows)]) for _ in range(2))
        statements += [f"SET @low = {low}, @high = {high}", "EXECUTE p USING @low, @high"]
    return statements, t, False


def handler(tables, chance):
    whole = [t for t in tables if t.unique]
    if not whole:
        return in_key_order(tables, chance)
    t = chance.choice(whole)
    steps = [f"HANDLER {t.name} OPEN h"]
    first = chance.choice(["FIRST", "LAST", f"{chance.choice(['=', '>=', '<', '<=', '>'])} ({chance.randrange(t.rows)})"])
    where = chance.choice(["", f" WHERE {t.condition(chance)}"])
    steps.append(f"HANDLER h READ u {first}{where} {limit(chance)}")
    for _ in range(chance.randrange(4)):
        steps.append(f"HANDLER h READ u {chance.choice(['NEXT', 'PREV'])}{where} LIMIT {chance.choice([1, 2, 30])}")
    return steps + ["HANDLER h CLOSE"], t, True


def cursor(tables, chance):
    """A procedure that changes the rows under its cursor, and commits meanwhile."""
    t = chance.choice(tables)
    column = chance.choice(t.columns)
    change = chance.choice([f"DELETE FROM {t.name} WHERE id = i",
                            f"UPDATE {t.name} SET {column.name} = {column.value(chance, t.rows)} WHERE id = i",
                            f"UPDATE {t.name} SET g = (g + 5) % 13 WHERE id = i"])
    commit = chance.choice(["", "IF n % 7 = 0 THEN COMMIT; START TRANSACTION; END IF;", "IF n % 5 = 0 THEN ROLLBACK; START TRANSACTION; END IF;"])
    return [f"CREATE OR REPLACE PROCEDURE work() BEGIN DECLARE i, n INT DEFAULT 0; DECLARE done BOOL DEFAULT FALSE; "
            f"DECLARE c CURSOR FOR SELECT id FROM {t.name}{{hint}} WHERE {t.condition(chance)} AND {near(chance, t)} ORDER BY id; "
            f"DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE; START TRANSACTION; OPEN c; "
            f"l: LOOP FETCH c INTO i; IF done THEN LEAVE l; END IF; SET n = n + 1; {change}; {commit} END LOOP; CLOSE c; COMMIT; "
            f"SELECT n; END", "CALL work()", f"SELECT COUNT(*), SUM(id), SUM(g) FROM {t.name}"], t, False


def change_many(tables, chance):
    """Changes of several tables, or of the first rows of an order."""
    t, u = chance.choice(tables), chance.choice(tables)
    a, b = chance.choice([(a, b) for a in t.all for b in u.all if a.family == b.family])
    # What joins them stays as it is: whether rows that are changed at once join others after it depends on the plan.
    column, other = (chance.choice([c for c in table.columns if c is not a and c is not b]) for table in (t, u))
    both = f"{t.name} x{{hint}} JOIN {u.name} y ON x.{a.name} = y.{b.name}"
    few = f"WHERE {t.condition(chance, 'x.')} AND x.{near(chance, t)} AND y.{near(chance, u, 1500)}"
    where = f"WHERE {t.condition(chance)} AND {near(chance, t, 2000)}"
    order = f"{directions(chance, [chance.choice(t.all).name, 'id'])} {limit(chance)}"
    value = column.value(chance, t.rows)
    return [chance.choice([
        f"UPDATE {both} SET x.{column.name} = {value} {few}",
        f"UPDATE {both} SET x.{column.name} = {value}, y.{other.name} = {other.value(chance, u.rows)} {few}" if t is not u
        else f"UPDATE {t.name} SET g = g + 1 {where}",
        f"DELETE x FROM {both} {few}",
        f"DELETE x, y FROM {both} {few}" if t is not u else f"DELETE FROM {t.name} {where}",
        f"UPDATE {t.name} SET {column.name} = {value} {where} {order}",
        f"DELETE FROM {t.name} {where} {order}",
        f"UPDATE {t.name} SET {column.name} = {value} WHERE {near(chance, t)} AND {column.name} IN "
        f"(SELECT {column.name} FROM (SELECT * FROM {t.name} WHERE {near(chance, t, 20)}) d)",
        f"DELETE FROM {t.name} WHERE {near(chance, t)} AND id IN (SELECT y.id FROM {u.name} y WHERE {u.condition(chance, 'y.')} AND y.{near(chance, u)})",
        f"DELETE FROM {t.name} {where} AND id % 3 = 0 RETURNING id, g",
    ]), f"SELECT COUNT(*), SUM(id), SUM(g), SUM(LENGTH({column.name})) FROM {t.name}"], t, False


def insert(tables, chance):
    """New rows in the place of those of two unique keys, and rows that come from the table itself."""
    t = chance.choice(tables)
    names = [c.name for c in t.columns]
    column = chance.choice(t.columns)

    def row():
        i, w = t.id_to_insert(chance), chance.choice(["NULL", str(chance.randrange(t.rows))])
        return f"({i}, {', '.join(c.value(chance, t.rows) for c in t.columns)}, REPEAT('n', {chance.randrange(400)}), {i % 13}, 's{i * 7919 % 1000}', {w})"
    rows = ", ".join(row() for _ in range(chance.randrange(1, 40)))
    select = (f"SELECT id + {chance.choice([1, t.rows // 2])}, {', '.join(names)}, pad, g, s, w + {chance.choice([1, 40])} FROM {t.name} "
              f"WHERE {t.condition(chance)} AND {near(chance, t)} ORDER BY id")
    source = chance.choice([f"VALUES {rows}", select]) if t.id_is_unique else f"VALUES {rows}"
    update = f"ON DUPLICATE KEY UPDATE {chance.choice([f'{column.name} = {column.value(chance, t.rows)}', 'g = VALUES(g)', 'w = NULL', 'pad = VALUES(pad)'])}"
    return [chance.choice([f"INSERT INTO {t.name} ({t.listed}) {source} {update}", f"REPLACE INTO {t.name} ({t.listed}) {source}",
                           f"INSERT IGNORE INTO {t.name} ({t.listed}) {source}", f"INSERT INTO {t.name} ({t.listed}) {source}"]),
            f"SELECT COUNT(*), SUM(id), SUM(w), SUM(g) FROM {t.name}"], t, False


KINDS = {in_key_order: 10, loose_scan: 14, window: 5, recursive: 4, subquery: 14, derived: 6, joins: 12, rows_compared: 8, concatenated: 3,
         partition: 3, prepared: 3, handler: 4, cursor: 2, change_many: 8, insert: 5}
CHANGES = {cursor, change_many, insert}
