-- Columns come, go, change their names and types, tables are renamed, made and dropped, all between rows.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE plain (id int PRIMARY KEY, v text, gone int);
CREATE TYPE feeling AS ENUM ('sad', 'ok');
CREATE PUBLICATION golden FOR ALL TABLES;
-- @changes
INSERT INTO plain VALUES (1, 'before', 10), (2, 'before', 20);
ALTER TABLE plain ADD COLUMN added numeric(8, 2) DEFAULT 1.5;
UPDATE plain SET v = 'after add' WHERE id = 1;
ALTER TABLE plain DROP COLUMN gone;
INSERT INTO plain VALUES (3, 'after drop', 3.25);
ALTER TABLE plain RENAME COLUMN v TO renamed;
UPDATE plain SET renamed = 'after rename' WHERE id = 3;
ALTER TABLE plain ALTER id TYPE bigint;
DELETE FROM plain WHERE id = 2;
BEGIN;
INSERT INTO plain VALUES (4, 'same transaction', NULL);
ALTER TABLE plain ADD COLUMN mood feeling;
INSERT INTO plain VALUES (5, 'same transaction', NULL, 'ok');
SAVEPOINT s;
ALTER TABLE plain ADD COLUMN never int;
INSERT INTO plain VALUES (6, 'never', NULL, 'sad', 1);
ROLLBACK TO s;
INSERT INTO plain VALUES (7, 'again', NULL, 'sad');
COMMIT;
ALTER TYPE feeling ADD VALUE 'great';
UPDATE plain SET mood = 'great' WHERE id = 7;
ALTER TABLE plain RENAME TO moved;
INSERT INTO moved VALUES (8, 'other name', 0, NULL);
CREATE TABLE later (id int PRIMARY KEY);
SELECT golden.audit('later');
INSERT INTO later VALUES (1);
ALTER TABLE later ADD COLUMN v varchar(7);
UPDATE later SET v = 'x';
DROP TABLE later;
UPDATE moved SET renamed = 'end' WHERE id = 8;
