CREATE TABLE v (pk INT AUTO_INCREMENT PRIMARY KEY, n INT, k INT AS (n+n) VIRTUAL, KEY(k));
INSERT INTO v (n) VALUES (0),(5),(4),(3),(7),(42),(142),(5),(0),(3);
SELECT a.pk, a.k, b.pk FROM v a LEFT JOIN v b ON a.k=b.k WHERE b.k IN (8,10) ORDER BY a.pk, b.pk;
-- sort
SELECT a.pk, a.k, b.pk FROM v a LEFT JOIN v b ON a.k=b.k WHERE b.k IN (8,10) ORDER BY a.pk;
SELECT pk, k FROM v FORCE INDEX(k) WHERE k IN (8,10) ORDER BY pk+1;
CREATE TABLE counted (a BIGINT, b FLOAT, g INT AS (COALESCE(a,1)) STORED, s VARCHAR(20) AS (CONCAT('x',b)) STORED, v INT AS (a+1) VIRTUAL, KEY(v), KEY(g));
INSERT INTO counted (a,b) VALUES (NULL,-2.5), (7,1.5), (NULL,NULL);
CHECKSUM TABLE counted;
SELECT * FROM counted ORDER BY a, b;
CHECKSUM TABLE counted;
CREATE TABLE hashed (a INT, t TEXT, UNIQUE(t));
INSERT INTO hashed VALUES (1,'a'), (2,NULL);
CHECKSUM TABLE hashed;

# Merged scans over an index of a virtual column.
CREATE TABLE merged (id INT PRIMARY KEY, k INT NOT NULL, l INT NOT NULL, v INT AS (k % 17 + l) VIRTUAL, pad CHAR(40) DEFAULT 'p',
                     KEY (v), KEY (k));
INSERT INTO merged (id, k, l) SELECT seq, seq * 7 % 61, seq * 11 % 41 FROM seq_1_to_3000;
ANALYZE TABLE merged PERSISTENT FOR ALL;
SELECT COUNT(*), SUM(id), COUNT(pad) FROM merged FORCE INDEX (v, k) WHERE v < 3 OR k > 58;
SELECT COUNT(*), SUM(id), COUNT(pad) FROM merged FORCE INDEX (v, k) WHERE v BETWEEN 3 AND 5 OR k IN (1, 7);
SET optimizer_switch = 'index_merge_sort_intersection=on';
SELECT COUNT(*), SUM(id), COUNT(pad) FROM merged FORCE INDEX (v, k) WHERE v < 3 AND k < 3;
SELECT COUNT(*), SUM(id), COUNT(pad) FROM merged FORCE INDEX (v, k) WHERE v IN (33, 13, 43, 20) AND k IN (47, 5, 10);
SET optimizer_switch = DEFAULT;
DROP TABLE merged;

# A duplicate in an index of virtual columns that is built.
CREATE TABLE twice (id INT PRIMARY KEY, a INT, b INT, v INT AS (a + 1) VIRTUAL, s VARCHAR(20) AS (CONCAT('x', a)) VIRTUAL);
INSERT INTO twice (id, a, b) VALUES (1, 7, 1), (2, 404, 1), (3, 404, 1), (4, NULL, 1), (5, NULL, 1);
ALTER TABLE twice ADD UNIQUE u (v);
ALTER TABLE twice ADD UNIQUE u (b, s);
ALTER TABLE twice ADD UNIQUE u (s(2), b);
-- code
ALTER TABLE twice ADD w INT AS (v * 2) VIRTUAL, ADD UNIQUE u (w);
ALTER TABLE twice ADD UNIQUE u (v), FORCE;
DELETE FROM twice WHERE id = 3;
ALTER TABLE twice ADD UNIQUE u (v);
SELECT id, v FROM twice FORCE INDEX (u) WHERE v > 0;
DROP TABLE twice;

# Partitions whose rows are read where an index would do, since a prefix is in it or in the primary key: rows hold no NULL bits
# of virtual columns that were not computed when they were written, nor of an older layout.
CREATE TABLE later (id INT PRIMARY KEY, r INT, s VARCHAR(200), v BIGINT AS (r % 5) VIRTUAL, w VARCHAR(9) AS (CONCAT('w', r % 7)) VIRTUAL)
  PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO later (id, r, s) SELECT seq, NULLIF(seq, 9), seq FROM seq_1_to_50;
ALTER TABLE later ADD KEY k (v, s(5));
SELECT v, COUNT(*) FROM later GROUP BY v;
SELECT COUNT(v), SUM(v) FROM later FORCE INDEX (k);
SELECT COUNT(*) FROM later WHERE v IS NOT NULL;
SELECT COUNT(*) FROM later WHERE v IS NULL;
SELECT v FROM later WHERE v IN (1, 2) ORDER BY v LIMIT 3;
SELECT MIN(v), MAX(v), COUNT(DISTINCT v) FROM later;
SELECT COUNT(*) FROM later x JOIN later y ON x.v = y.v;
CREATE TABLE copied AS SELECT v, COUNT(*) n FROM later GROUP BY v;
SELECT * FROM copied ORDER BY v;
DROP TABLE copied;
UPDATE later SET s = 'z' WHERE v = 2;
SELECT COUNT(*) FROM later WHERE s = 'z';
DELETE FROM later WHERE v = 3 AND id < 20;
ALTER TABLE later ADD added INT, DROP KEY k, ADD KEY kw (w DESC, s(2), v);
INSERT INTO later (id, r, s, added) SELECT seq, NULLIF(seq, 77), REPEAT(seq, 60), seq FROM seq_51_to_90;
SELECT w, COUNT(*) FROM later FORCE INDEX (kw) GROUP BY w;
SELECT COUNT(w), SUM(v) FROM later FORCE INDEX (kw) WHERE w > 'w2' AND v IS NOT NULL;
-- sort
SELECT id, v, w FROM later FORCE INDEX (kw) WHERE w BETWEEN 'w2' AND 'w4' FOR UPDATE;
DROP TABLE later;
CREATE TABLE later (id INT, r INT, s VARCHAR(20), v BIGINT AS (r % 10) VIRTUAL, PRIMARY KEY (id, s(3)), KEY k (v)) PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO later (id, r, s) SELECT seq, seq, seq FROM seq_1_to_500;
ALTER TABLE later ADD added INT;
SELECT COUNT(*), SUM(v) FROM later;
SELECT SUM(v), COUNT(v) FROM later WHERE v > 3;
DROP TABLE later;
# Their order in one another's midst. InnoDB has it wrong.
CREATE TABLE later (id INT PRIMARY KEY, r INT, v BIGINT AS (-r) VIRTUAL) PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO later (id, r) SELECT seq, seq FROM seq_1_to_9;
ALTER TABLE later ADD KEY k (v);
SELECT '@ENGINE@' = 'InnoDB' OR (SELECT id FROM later FORCE INDEX (k) ORDER BY v LIMIT 1) = 9;
ALTER TABLE later ADD added INT;
SELECT '@ENGINE@' = 'InnoDB' OR (SELECT GROUP_CONCAT(id) FROM (SELECT * FROM later FORCE INDEX (k) ORDER BY v LIMIT 4) l) = '9,8,7,6';
DROP TABLE later;
# The end of a range over a prefix is compared before virtual columns are computed.
CREATE TABLE later (id INT PRIMARY KEY, r INT, k INT, s VARCHAR(100), v INT AS (r % 10) VIRTUAL);
INSERT INTO later (id, r, k, s) SELECT seq, seq, seq * 7 % 1000, CONCAT('N', seq % 300) FROM seq_1_to_5000;
ALTER TABLE later ADD KEY vs (v DESC, s(3)), ADD KEY k (k), ADD added INT;
ANALYZE TABLE later PERSISTENT FOR ALL;
SET optimizer_switch = 'rowid_filter=on,index_merge_sort_intersection=on';
SELECT COUNT(*), SUM(id) FROM later FORCE INDEX (vs, k) WHERE v = 5 AND s < 'N2' AND k BETWEEN 10 AND 30;
SELECT COUNT(*), SUM(id), COUNT(added) FROM later WHERE v = 5 AND s BETWEEN 'N10' AND 'N11' AND k < 100;
SET optimizer_switch = DEFAULT;
DROP TABLE later;
-- Another expression of a virtual column.
CREATE TABLE gen (id INT PRIMARY KEY, a INT, b INT AS (a + 1) VIRTUAL, c INT AS (a * 2) VIRTUAL, d INT AS (b + 1) PERSISTENT, e VARCHAR(20) AS (a) VIRTUAL, KEY (c));
INSERT INTO gen (id, a) VALUES (1, 10), (2, 20), (3, NULL);
ALTER TABLE gen CHANGE e e VARCHAR(20) AS (a) VIRTUAL, ALGORITHM=INSTANT;
ALTER TABLE gen MODIFY e VARCHAR(20) AS (CONCAT(a, 'x')) VIRTUAL, ALGORITHM=INSTANT;
SELECT * FROM gen ORDER BY id;
ALTER TABLE gen MODIFY c INT AS (a * 3) VIRTUAL;
SELECT c FROM gen FORCE INDEX (c) WHERE c > 0 ORDER BY c;
-- InnoDB in place leaves what is computed from it as it was.
ALTER TABLE gen MODIFY b INT AS (a + 5) VIRTUAL, ALGORITHM=COPY;
SELECT * FROM gen ORDER BY id;
ALTER TABLE gen CHANGE e f VARCHAR(20) AS (CONCAT(a, 'y')) VIRTUAL FIRST, ADD KEY (f), ALGORITHM=COPY;
SELECT f FROM gen FORCE INDEX (f) WHERE f > '' ORDER BY f;
CHECK TABLE gen EXTENDED;
SHOW CREATE TABLE gen;
CREATE TABLE gen2 (a INT, b INT AS (a + 1) VIRTUAL, CHECK (b > 5));
INSERT INTO gen2 (a) VALUES (10);
ALTER TABLE gen2 MODIFY b INT AS (a - 100) VIRTUAL, ALGORITHM=COPY;
SELECT * FROM gen2;

CREATE TABLE begins (id INT PRIMARY KEY, a INT NOT NULL, b BLOB, g BLOB AS (REVERSE(b)) VIRTUAL, h VARCHAR(300) AS (CONCAT(b, 'x')) VIRTUAL,
  KEY a (a), KEY g (g(2)), KEY h (h(3) DESC));
INSERT INTO begins (id, a, b) SELECT seq, seq MOD 10, ELT(1 + seq MOD 9, '', 'a', 'aa', 'ba', 'b', 'abc', 'c', 'ff', 'zz') FROM seq_1_to_1500;
SELECT COUNT(*), SUM(id) FROM begins FORCE INDEX (a, g) WHERE a BETWEEN 3 AND 4 OR g < 'b' AND g < 'c';
SELECT COUNT(*), SUM(id) FROM begins FORCE INDEX (a, h) WHERE a BETWEEN 3 AND 4 OR h < 'c' AND h < 'd';
SET optimizer_switch = 'index_merge_sort_intersection=on';
SELECT COUNT(*), SUM(id) FROM begins FORCE INDEX (a, g) WHERE a < 3 AND g < 'b' AND g < 'c';
SET optimizer_switch = DEFAULT;
DROP TABLE begins;
