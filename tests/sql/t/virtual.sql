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
