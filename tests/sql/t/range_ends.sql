-- Ranges with inclusive and exclusive ends on indexes of every kind: who finds the end, the cursor or the server, must not show.
CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, s VARCHAR(20), KEY ab (a, b), KEY bd (b DESC, a), KEY s (s),
  KEY sp (s(2), b));
INSERT INTO t SELECT seq, IF(seq % 11 = 0, NULL, seq % 17), seq % 23, CONCAT(CHAR(97 + seq % 5), ' ', seq % 7, IF(seq % 2, ' ', ''))
  FROM seq_1_to_400;
SELECT id FROM t WHERE id BETWEEN 100 AND 205 ORDER BY id;
SELECT id FROM t WHERE id > 100 AND id < 205 ORDER BY id;
SELECT id FROM t WHERE id BETWEEN 390 AND 900 OR id BETWEEN -5 AND 3 OR id = 77 ORDER BY id;
SELECT a, b, id FROM t FORCE INDEX (ab) WHERE a <= 3 ORDER BY a, b, id;
SELECT a, b, id FROM t FORCE INDEX (ab) WHERE a = 3 AND b <= 9 ORDER BY b, id;
SELECT a, b, id FROM t FORCE INDEX (ab) WHERE a = 3 AND b < 9 ORDER BY b, id;
SELECT a, b, id FROM t FORCE INDEX (ab) WHERE a = 3 AND b = 9 AND id <= 230 ORDER BY id;
SELECT a, b, id FROM t FORCE INDEX (ab) WHERE (a, b) IN ((3, 4), (3, 9), (5, 1)) ORDER BY a, b, id;
SELECT b, a, id FROM t FORCE INDEX (bd) WHERE b BETWEEN 4 AND 6 ORDER BY b DESC, a, id;
SELECT b, a, id FROM t FORCE INDEX (bd) WHERE b > 4 AND b <= 6 AND a <= 5 ORDER BY b DESC, a, id;
SELECT s, id FROM t FORCE INDEX (s) WHERE s BETWEEN 'b 2' AND 'b 4' ORDER BY id;
SELECT s, id FROM t FORCE INDEX (s) WHERE s > 'b 2' AND s < 'b 4' ORDER BY id;
SELECT s, id FROM t FORCE INDEX (sp) WHERE s <= 'b 2' ORDER BY id;
SELECT s, b, id FROM t FORCE INDEX (sp) WHERE s = 'b 2' AND b <= 10 ORDER BY id;
SELECT id FROM t WHERE id BETWEEN 100 AND 110 ORDER BY id DESC;
SELECT x.id, y.id FROM t x JOIN t y ON y.id BETWEEN x.id AND x.id + 2 WHERE x.id IN (5, 398, 400) ORDER BY x.id, y.id;
HANDLER t OPEN;
HANDLER t READ ab >= (3, 9) LIMIT 3;
HANDLER t READ ab NEXT LIMIT 3;
HANDLER t READ ab PREV LIMIT 3;
HANDLER t CLOSE;
DROP TABLE t;
