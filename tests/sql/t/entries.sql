-- What a statement needs of the entries of a secondary index, which parts of them, and in which order.
CREATE TABLE t (
  k VARCHAR(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,
  id INT,
  a INT,
  b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,
  c CHAR(8) CHARACTER SET latin1,
  d DECIMAL(8,3) NOT NULL,
  e VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci,
  f VARBINARY(9),
  g BIT(11),
  h INT,
  PRIMARY KEY (k, id),
  KEY abc (a, b, c),
  KEY ba (b DESC, a),
  KEY ce (c, e),
  KEY de (d, e, f),
  KEY fg (f, g),
  KEY ef (e(3), a),
  KEY nothing (g)
);
INSERT INTO t SELECT
  ELT(1 + seq % 4, 'Low', 'HIGH', 'mixedCase', 'Größe'), seq, NULLIF(seq % 7, 3),
  NULLIF(ELT(1 + seq % 6, 'apple', 'PEAR', 'Fig fig', '', 'pêche', 'none'), 'none'),
  ELT(1 + seq % 5, 'x', 'X y', '', NULL, 'ÄX'), seq * 1.125,
  ELT(1 + seq % 4, 'Straße', 'strasse', 'Zoë', NULL), ELT(1 + seq % 3, 'q\0q', 'zz', NULL), NULLIF(seq % 2000, 5), seq % 11
FROM seq_1_to_300;
-- sort
SELECT a FROM t FORCE INDEX (abc);
-- sort
SELECT b FROM t FORCE INDEX (abc);
-- sort
SELECT c FROM t FORCE INDEX (abc);
-- sort
SELECT a, c FROM t FORCE INDEX (abc);
-- sort
SELECT k FROM t FORCE INDEX (abc);
-- sort
SELECT id, c FROM t FORCE INDEX (abc);
-- sort
SELECT id FROM t FORCE INDEX (ba);
-- sort
SELECT b, k FROM t FORCE INDEX (ba);
-- sort
SELECT e FROM t FORCE INDEX (ce);
-- sort
SELECT k, e FROM t FORCE INDEX (de);
-- sort
SELECT f FROM t FORCE INDEX (de);
-- sort
SELECT d, f FROM t FORCE INDEX (de);
-- sort
SELECT g FROM t FORCE INDEX (fg);
-- sort
SELECT k, g FROM t FORCE INDEX (fg);
-- sort
SELECT a FROM t FORCE INDEX (ef) WHERE a = 4;
-- sort
SELECT id FROM t FORCE INDEX (ef);
SELECT COUNT(*) FROM t FORCE INDEX (abc);
SELECT COUNT(*) FROM t FORCE INDEX (nothing);
SELECT COUNT(b), COUNT(DISTINCT c), COUNT(a) FROM t FORCE INDEX (abc);
SELECT a, COUNT(*), MIN(b), MAX(b) FROM t FORCE INDEX (abc) GROUP BY a ORDER BY a;
SELECT a, MIN(b) FROM t FORCE INDEX (abc) WHERE a > 1 GROUP BY a ORDER BY a;
SELECT DISTINCT a, b FROM t FORCE INDEX (abc) ORDER BY a, b;
SELECT b, MAX(a) FROM t FORCE INDEX (ba) GROUP BY b ORDER BY b DESC;
SELECT MIN(c), MAX(c) FROM t FORCE INDEX (ce);
SELECT c, e FROM t FORCE INDEX (ce) WHERE c >= 'x' ORDER BY c, e, id;
SELECT COUNT(*) FROM t FORCE INDEX (abc) WHERE a BETWEEN 2 AND 5 AND c = 'x';
SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (abc) WHERE a IS NULL AND k = 'low';
-- sort
SELECT id, h FROM t FORCE INDEX (abc) WHERE a = 2 AND c LIKE 'x%';
-- sort
SELECT x.id, y.id FROM t x JOIN t y FORCE INDEX (abc) ON y.a = x.h AND y.b = x.b WHERE x.id < 20;
-- sort
SELECT x.id, COUNT(y.k) FROM t x LEFT JOIN t y FORCE INDEX (ba) ON y.b = x.b AND y.a = x.a WHERE x.id < 40 GROUP BY x.id;
-- sort
SELECT id FROM t WHERE a = 4 AND f = 'zz';
-- sort
SELECT id FROM t WHERE a = 4 OR f = 'zz';
-- sort
SELECT id FROM t WHERE id IN (SELECT id FROM t FORCE INDEX (ba) WHERE b = 'pear');
SELECT EXISTS (SELECT 1 FROM t FORCE INDEX (ce) WHERE c = 'X y');
SELECT GROUP_CONCAT(e ORDER BY e, id), GROUP_CONCAT(DISTINCT c ORDER BY c) FROM t FORCE INDEX (ce) WHERE c <> '';
START TRANSACTION;
-- sort
SELECT id FROM t FORCE INDEX (ba) WHERE b = 'apple' AND a < 3 FOR UPDATE;
-- sort
SELECT a FROM t FORCE INDEX (ba) WHERE b = 'apple' LOCK IN SHARE MODE;
COMMIT;
UPDATE t SET h = h + 1 WHERE b = 'apple' ORDER BY b, a, k, id LIMIT 9;
DELETE FROM t WHERE a = 1 AND b IS NULL;
UPDATE t SET a = a + 1 WHERE a = 5 AND c = 'x';
-- sort
SELECT * FROM t;
CREATE TABLE filled AS SELECT b, c FROM t FORCE INDEX (abc) WHERE a > 2;
-- sort
SELECT * FROM filled;
DROP TABLE filled;
-- delimiter //
CREATE PROCEDURE walk()
BEGIN
  DECLARE done INT DEFAULT 0;
  DECLARE x VARCHAR(20);
  DECLARE y CHAR(8);
  DECLARE list CURSOR FOR SELECT b, c FROM t FORCE INDEX (abc) WHERE a = 6 ORDER BY b, c, id;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
  SET @seen = '';
  OPEN list;
  again: LOOP
    FETCH list INTO x, y;
    IF done THEN LEAVE again; END IF;
    SET @seen = CONCAT(@seen, IFNULL(x, '-'), '/', IFNULL(y, '-'), ' ');
  END LOOP;
  CLOSE list;
END//
-- delimiter ;
CALL walk();
SELECT @seen;
DROP PROCEDURE walk;
HANDLER t OPEN;
HANDLER t READ abc FIRST LIMIT 3;
HANDLER t READ ba = ('pear') LIMIT 2;
HANDLER t CLOSE;
DROP TABLE t;
