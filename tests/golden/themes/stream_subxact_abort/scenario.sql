-- Subtransactions of streamed transactions: rolled back after they were streamed, before, nested, and released.
-- (No stream-changes of test_decoding here: in it 18.4 crashes about every other time.)
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=2 streaming=on
-- @read 16 pgoutput proto_version=4 streaming=parallel
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE filler (id int);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
BEGIN;
INSERT INTO t VALUES (1, 'top');
SAVEPOINT a;
INSERT INTO t VALUES (2, 'a, rolled back after it was streamed');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session b
BEGIN;
SAVEPOINT x;
INSERT INTO t VALUES (11, 'other transaction');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
RELEASE x;
-- @session a
ROLLBACK TO a;
INSERT INTO t VALUES (2, 'a again');
SAVEPOINT b;
INSERT INTO t VALUES (3, 'b');
SAVEPOINT c;
INSERT INTO t VALUES (4, 'c, in b');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
RELEASE c;
INSERT INTO t VALUES (5, 'b');
ROLLBACK TO b;
INSERT INTO t VALUES (3, 'b again');
SAVEPOINT d;
INSERT INTO t VALUES (6, 'd, never streamed');
ROLLBACK TO d;
SAVEPOINT e;
INSERT INTO t VALUES (7, 'e');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
SAVEPOINT f;
INSERT INTO t VALUES (8, 'f, in e');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
ROLLBACK TO f;
UPDATE t SET v = 'e twice' WHERE id = 7;
RELEASE e;
COMMIT;
-- @session b
SAVEPOINT y;
DELETE FROM t WHERE id = 1;
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
ROLLBACK;
