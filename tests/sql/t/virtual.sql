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
