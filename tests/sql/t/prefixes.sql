-- Row ids read from an index of prefixes alone, without the rows: rowid filters and merged indexes. The server compares the
-- end of a range with columns of which an entry has no more than a weight.
CREATE TABLE company (id INT PRIMARY KEY AUTO_INCREMENT, kind VARCHAR(255), firm BIGINT, name VARCHAR(255), note VARCHAR(255) DEFAULT '',
  body TEXT, raw BLOB, KEY nd (name(10), note(10)), KEY fk (firm, kind(10)), KEY body (body(5)), KEY raw (raw(3), firm))
  CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
INSERT INTO company (kind, firm, name, body, raw) VALUES ('Firm', 1, '37signals', 'x', 'z'), ('Client', 1, 'Summit', 'y', 'y'),
  ('Client', 1, 'Microsoft', 'z', 'x'), ('Firm', NULL, 'Flamboyant', NULL, NULL), ('Client', 4, 'Ex Nihilo', 'abcdefgh', 'abcdefgh'),
  (NULL, NULL, 'Leetsoft', '', ''), ('Client', 4, 'Ex Nihilo Part Deux', 'abcdeF', 'abcdeF'), ('Client', 1, 'Apex', 'zz', 'zz'),
  ('Dependent', NULL, 'Core', 'q', 'q'), ('Dependent', 7, 'Core', 'q', 'q');
SET optimizer_switch = 'rowid_filter=on';
-- sort
SELECT id FROM company WHERE kind IN ('Client', 'SpecialClient', 'VerySpecialClient') AND firm = 1 AND name = 'Microsoft';
-- sort
SELECT id FROM company WHERE kind IN ('Client', 'SpecialClient', 'VerySpecialClient') AND firm = 1 AND name = 'Summit';
SELECT COUNT(*) FROM company WHERE kind IN ('Client', 'SpecialClient') AND firm = 4 AND name = 'Ex Nihilo Part Deux';
-- sort
SELECT id FROM company WHERE kind = 'Client' AND firm = 1 AND name = 'Microsoft';
INSERT INTO company (kind, firm, name, note, body, raw) SELECT CONCAT('Kind ', seq % 40), seq % 50, CONCAT('Name ', seq % 300),
  CONCAT('Note ', seq % 7), CONCAT(CHAR(97 + seq % 26), seq % 90), CONCAT(CHAR(97 + seq % 26), seq % 90) FROM seq_1_to_3000;
ANALYZE TABLE company PERSISTENT FOR ALL;
-- sort
SELECT id FROM company WHERE firm = 3 AND kind IN ('Kind 3', 'Kind 13', 'Kind 33') AND name BETWEEN 'Name 1' AND 'Name 2';
-- sort
SELECT id FROM company WHERE firm = 3 AND kind > 'Kind 13' AND name = 'Name 103';
-- sort
SELECT id FROM company WHERE body >= 'q1' AND body < 'q5' AND name BETWEEN 'Name 1' AND 'Name 3';
-- sort
SELECT id FROM company WHERE raw >= 'q1' AND raw < 'q5' AND name LIKE 'Name 1%';
SET optimizer_switch = 'rowid_filter=off,index_merge_sort_intersection=on';
-- sort
SELECT id FROM company FORCE INDEX (nd, fk) WHERE name = 'Name 103' AND firm = 3 AND kind < 'Kind 30';
-- sort
SELECT id FROM company FORCE INDEX (nd, fk) WHERE name = 'Name 103' OR (firm = 3 AND kind BETWEEN 'Kind 13' AND 'Kind 14');
-- sort
SELECT id FROM company FORCE INDEX (nd, fk) WHERE (name = 'Name 103' AND note = 'Note 5') OR (firm = 3 AND kind = 'Kind 13');
-- sort
SELECT id FROM company FORCE INDEX (nd, raw) WHERE (name = 'Name 103' AND note = 'Note 5') AND (raw = 'z5' AND firm = 3);
SELECT COUNT(*) FROM company FORCE INDEX (body);
-- sort
DELETE FROM company WHERE name = 'Name 103' OR (firm = 3 AND kind BETWEEN 'Kind 13' AND 'Kind 14');
SELECT COUNT(*), SUM(id) FROM company;
DROP TABLE company;
-- A filter beside a range over prefixes: the end of the range is compared before the row is read.
CREATE TABLE part (id INT PRIMARY KEY, name VARCHAR(100) NOT NULL DEFAULT 'ZZZ', k INT, pad CHAR(100) DEFAULT 'x', KEY name (name(6)),
  KEY k (k)) CHARACTER SET latin1;
INSERT INTO part (id, name, k) SELECT seq, CONCAT('N', seq % 3000), seq % 1000 FROM seq_1_to_20000;
INSERT INTO part VALUES (999999, 'ZZZZZZZZ', 1, '');
ANALYZE TABLE part PERSISTENT FOR ALL;
SET optimizer_switch = 'rowid_filter=on,mrr=off,index_merge_sort_intersection=off';
SELECT id, name FROM part ORDER BY id DESC LIMIT 1;
-- sort
SELECT id, pad FROM part USE INDEX (name, k) WHERE name BETWEEN 'N10' AND 'N1020' AND k BETWEEN 10 AND 30;
-- sort
SELECT id, pad FROM part USE INDEX (name, k) WHERE name BETWEEN 'N10' AND 'N1020' AND k BETWEEN 10 AND 30 FOR UPDATE;
DROP TABLE part;
-- The order of partitions' rows is compared by columns of which an entry has no more than a weight.
CREATE TABLE parts (id INT PRIMARY KEY, c BLOB, k INT, w VARCHAR(50) AS (CONCAT('w', k % 13, IFNULL(LEFT(c, 2), ''))) VIRTUAL, KEY i (c(1) DESC, w, k DESC))
  PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO parts (id, c, k) SELECT seq, CONCAT(CHAR(97 + seq % 7), seq), seq FROM seq_1_to_300;
-- sort
SELECT w, id FROM parts FORCE INDEX (i);
-- sort
SELECT w, id FROM parts FORCE INDEX (i) WHERE c > 'c' AND w > 'w3';
SET join_cache_level = 4;
-- sort
SELECT t.id, COUNT(u.id) FROM parts t LEFT JOIN parts u ON t.w = u.w AND u.w IS NOT NULL WHERE t.c < 'ax' AND t.k < 15 GROUP BY t.id;
SET join_cache_level = DEFAULT;
DROP TABLE parts;
-- Conditions on whole columns beside prefixes are checked before the row is read, and so is the end of the range, by weights where
-- it is on a prefix.
SET optimizer_switch = DEFAULT;
CREATE TABLE pushed (id INT PRIMARY KEY, name VARCHAR(100) NOT NULL DEFAULT 'ZZZ', st INT, body TEXT, d INT,
  KEY name (name(4), st), KEY body (body(6) DESC, st, name), KEY st (st, name(2), d)) CHARACTER SET latin1;
INSERT INTO pushed SELECT seq, CONCAT('N', seq % 900), NULLIF(seq % 50, 3), CONCAT('text', seq % 77, REPEAT('t', seq % 5 * 70)), seq % 11 FROM seq_1_to_5000;
ANALYZE TABLE pushed PERSISTENT FOR ALL;
SELECT * FROM pushed ORDER BY name DESC, id LIMIT 1;
FLUSH STATUS;
SELECT COUNT(*), SUM(LENGTH(body)) FROM pushed FORCE INDEX (name) WHERE name LIKE 'N1%' AND st = 7;
SHOW STATUS LIKE 'Handler_icp%';
SHOW STATUS LIKE 'Handler_read_next';
SELECT COUNT(*), SUM(LENGTH(body)) FROM pushed FORCE INDEX (name) WHERE name BETWEEN 'N100' AND 'N1025' AND st IN (7, 17);
SELECT COUNT(*), SUM(LENGTH(body)) FROM pushed FORCE INDEX (name) WHERE (name < 'N11' OR name BETWEEN 'N500' AND 'N503' OR name > 'N88') AND st % 7 = 2;
SHOW STATUS LIKE 'Handler_icp_match';
-- sort
SELECT id, name, st FROM pushed FORCE INDEX (name) WHERE name >= 'N100' AND name < 'N1003' AND st IS NULL;
SELECT id, name FROM pushed FORCE INDEX (name) WHERE name > 'N87' AND st = 9 ORDER BY name DESC, id LIMIT 5;
-- sort
SELECT id, body FROM pushed FORCE INDEX (body) WHERE body > 'text3' AND body <= 'text31t' AND st + 1 = 8;
-- sort
SELECT id, body FROM pushed FORCE INDEX (body) WHERE body > 'text3' AND body <= 'text31t' AND name LIKE '%7' FOR UPDATE;
-- sort
SELECT id, d, body FROM pushed FORCE INDEX (st) WHERE st = 7 AND name < 'N2' AND d = 4;
-- sort
SELECT id, d, body FROM pushed FORCE INDEX (st) WHERE st BETWEEN 7 AND 9 AND name < 'N2' AND d = 4;
SELECT p.id, COUNT(q.id), SUM(LENGTH(q.body)) FROM pushed p JOIN pushed q FORCE INDEX (name) ON q.name = p.name AND q.st = p.st AND q.st <> 17 WHERE p.id < 30 GROUP BY p.id;
SET optimizer_switch = 'mrr=on,mrr_cost_based=off,mrr_sort_keys=on', join_cache_level = 8;
SELECT COUNT(*), SUM(LENGTH(body)) FROM pushed FORCE INDEX (name) WHERE name BETWEEN 'N100' AND 'N1025' AND st IN (7, 17);
SELECT COUNT(*), SUM(LENGTH(body)) FROM pushed FORCE INDEX (st) WHERE (st = 7 AND name < 'N2' OR st = 9 AND name BETWEEN 'N3' AND 'N7') AND d IN (4, 5);
SELECT COUNT(*), SUM(p.id), SUM(LENGTH(q.body)) FROM pushed p JOIN pushed q FORCE INDEX (name) ON q.name = p.name AND q.st = p.st AND q.st <> 17 WHERE p.id < 30;
SET optimizer_switch = DEFAULT, join_cache_level = DEFAULT;
UPDATE pushed SET d = 100 WHERE name BETWEEN 'N100' AND 'N1025' AND st = 7;
DELETE FROM pushed WHERE name LIKE 'N2%' AND st IN (1, 21);
SELECT COUNT(*), SUM(id), SUM(d) FROM pushed;
DROP TABLE pushed;

SELECT 'merged with the range of a primary key that has a prefix';
CREATE TABLE merged (id INT NOT NULL, a VARCHAR(20) NOT NULL, b INT, c INT, d INT, PRIMARY KEY (a(1), id), KEY b (b, c), KEY c (c, a(2)), KEY only_b (b), KEY only_c (c));
INSERT INTO merged SELECT seq, CONCAT(CHAR(97 + seq * 7 % 26), seq), seq % 40, seq % 30, 0 FROM seq_1_to_1500;
SELECT COUNT(*), SUM(id) FROM merged FORCE INDEX (b, PRIMARY) WHERE b = 3 OR a = 'h53';
SELECT COUNT(*), SUM(id) FROM merged FORCE INDEX (c, PRIMARY) WHERE c = 3 OR a = 'h53';
SELECT COUNT(*), SUM(id) FROM merged FORCE INDEX (b, PRIMARY) WHERE b = 3 OR a BETWEEN 'h1' AND 'h4' FOR UPDATE;
UPDATE merged FORCE INDEX (b, PRIMARY) SET d = 1 WHERE b = 3 OR a = 'h53';
DELETE FROM merged WHERE b = 4 OR a = 'i78';
SELECT COUNT(*), SUM(id) FROM merged FORCE INDEX (only_b, PRIMARY) WHERE b = 3 OR a = 'h53';
SELECT COUNT(*), SUM(id) FROM merged FORCE INDEX (only_b, only_c, PRIMARY) WHERE b = 13 AND c = 3 AND a BETWEEN 'h' AND 't';
SELECT COUNT(*), SUM(id), SUM(d) FROM merged;
DROP TABLE merged;
