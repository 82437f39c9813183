-- What a sequence is must show also while the server has not opened it: mariadb-dump asks with SHOW FULL TABLES.
CREATE SEQUENCE s START WITH 5;
CREATE SEQUENCE `größe/2`;
CREATE TABLE t (a INT DEFAULT (NEXT VALUE FOR s));
CREATE VIEW v AS SELECT 1;
FLUSH TABLES;
SHOW FULL TABLES;
FLUSH TABLES;
-- sort
SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE();
FLUSH TABLES;
SHOW FULL TABLES WHERE table_type = 'SEQUENCE';
FLUSH TABLES;
SHOW TABLES LIKE 's%';
DROP VIEW v;
DROP TABLE t;
DROP SEQUENCE s;
DROP SEQUENCE `größe/2`;
SHOW FULL TABLES;
