-- Transactions beyond logical_decoding_work_mem (64 kB here), interleaved; one rolled back; one open at the end of the WAL.
-- The rows of an unpublished table fill the memory, so that the files stay small.
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=2 streaming=on
-- @read 16 pgoutput proto_version=4 streaming=parallel
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
-- @read test_decoding stream-changes=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE filler (id int);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
BEGIN;
INSERT INTO t VALUES (1, 'a one');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session b
BEGIN;
INSERT INTO t VALUES (11, 'b one');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session a
INSERT INTO t VALUES (2, 'a two');
-- @session c
BEGIN;
INSERT INTO t VALUES (21, 'c, rolled back');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session d
INSERT INTO t VALUES (31, 'd, small');
-- @session b
UPDATE t SET v = 'b two' WHERE id = 31;
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session c
ROLLBACK;
-- @session b
DELETE FROM t WHERE id = 11;
COMMIT;
-- @session a
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
UPDATE t SET v = 'a three' WHERE id = 1;
TRUNCATE t;
INSERT INTO t VALUES (3, 'a four');
COMMIT;
-- @session e
BEGIN;
INSERT INTO t VALUES (41, 'e, open at the end');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session d
INSERT INTO t VALUES (32, 'the last');
