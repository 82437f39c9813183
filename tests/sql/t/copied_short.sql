-- Columns before, between and behind long ones: rows are copied as far as a statement reads them.
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), name VARCHAR(100) CHARACTER SET utf8mb4, body TEXT, z INT, KEY (a), KEY (z));
INSERT INTO t SELECT seq, seq % 7, NULLIF(CONCAT('b', seq % 5), 'b3'), IF(seq % 4, REPEAT('n', seq % 100), REPEAT('ü', 30 + seq % 70)), REPEAT(CHAR(65 + seq % 26), seq * 13 % 9100), seq % 11 FROM seq_1_to_700;
INSERT INTO t SELECT seq, seq % 7, 'long', REPEAT('ä', 100), REPEAT('L', 30000), seq % 11 FROM seq_701_to_720;
SELECT SUM(id) FROM t WHERE id > 0;
SELECT SUM(a), COUNT(*) FROM t IGNORE INDEX (a) WHERE a <> 3;
SELECT COUNT(b), MAX(b), SUM(a) FROM t;
SELECT COUNT(name), SUM(CRC32(name)) FROM t;
SELECT SUM(CRC32(body)), SUM(LENGTH(body)) FROM t;
SELECT SUM(z), MIN(name) FROM t IGNORE INDEX (z);
SELECT SUM(CRC32(CONCAT_WS(',', id, a, b, name, body, z))) FROM t;
SELECT SUM(CRC32(name)) FROM t FORCE INDEX (a) WHERE a = 2;
SELECT SUM(CRC32(name)), SUM(a) FROM (SELECT name, a FROM t ORDER BY id DESC LIMIT 500) x;
SELECT SUM(x.a), SUM(CRC32(y.name)) FROM t x JOIN t y ON y.id = x.id + 1;
SELECT id, a, CRC32(body) FROM t ORDER BY b, name, id LIMIT 600, 5;
SELECT id, CRC32(name) FROM t WHERE a = 3 OR z = 4 ORDER BY id LIMIT 100, 3;
SELECT COUNT(*) FROM t x WHERE a = (SELECT MIN(a) FROM t y WHERE y.id BETWEEN x.id AND x.id + 3);
-- What a statement reads may be more for the rows that it changes.
CREATE TABLE log (id INT PRIMARY KEY, crc BIGINT);
CREATE TRIGGER t_del AFTER DELETE ON t FOR EACH ROW INSERT INTO log VALUES (OLD.id, CRC32(CONCAT_WS(',', OLD.name, OLD.body)));
DELETE FROM t WHERE b = 'b4' AND id % 3 = 0;
UPDATE t JOIN t u ON u.id = t.id + 1 SET t.z = LENGTH(u.body) WHERE u.a = 5;
SELECT COUNT(*), SUM(crc) FROM log;
SELECT SUM(CRC32(CONCAT_WS(',', id, a, b, name, body, z))) FROM t;
HANDLER t OPEN;
HANDLER t READ `PRIMARY` FIRST;
HANDLER t READ `PRIMARY` NEXT WHERE a = 4 LIMIT 2;
HANDLER t READ `PRIMARY` LAST;
HANDLER t CLOSE;
-- Levels without one snapshot, and locks.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT SUM(CRC32(name)), COUNT(b) FROM t;
SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
SELECT SUM(CRC32(name)), COUNT(b) FROM t;
SELECT SUM(CRC32(name)), COUNT(b) FROM t LOCK IN SHARE MODE;
-- Rows of several layouts.
ALTER TABLE t ADD COLUMN first_of_all INT DEFAULT 5 FIRST, ADD COLUMN c VARCHAR(30) DEFAULT 'c' AFTER a;
INSERT INTO t (id, a, body) SELECT 1000 + seq, seq, REPEAT('x', seq * 700) FROM seq_1_to_20;
SELECT SUM(first_of_all), MAX(c), COUNT(b), SUM(a) FROM t;
ALTER TABLE t DROP COLUMN b;
SELECT SUM(first_of_all), MAX(c), SUM(a), SUM(CRC32(name)) FROM t;
SELECT SUM(CRC32(CONCAT_WS(',', first_of_all, id, a, c, name, body, z))) FROM t;
-- Older versions.
-- connection old
START TRANSACTION WITH CONSISTENT SNAPSHOT;
-- connection new
UPDATE t SET a = a + 100, name = CONCAT('new ', LEFT(name, 90)), c = NULL;
-- connection old
SELECT SUM(a), SUM(CRC32(name)), COUNT(c) FROM t;
SELECT SUM(a) FROM t IGNORE INDEX (a);
COMMIT;
SELECT SUM(a), SUM(CRC32(name)), COUNT(c) FROM t;
DROP TABLE t, log;
