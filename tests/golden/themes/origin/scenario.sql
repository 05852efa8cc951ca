-- Transactions replayed from elsewhere: all of one session's, one after another from two origins; filtered by origin none.
-- @read pgoutput proto_version=1
-- @read 16 pgoutput proto_version=1 origin=none
-- @read pgoutput proto_version=2 streaming=on
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1 only-local=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE PUBLICATION golden FOR TABLE t;
SELECT pg_replication_origin_create('elsewhere');
SELECT pg_replication_origin_create('Far "away"');
-- @changes
INSERT INTO t VALUES (1, 'here');
SELECT pg_replication_origin_session_setup('elsewhere');
SET golden.origin = 'elsewhere';
BEGIN;
SELECT pg_replication_origin_xact_setup('0/ABC', clock_timestamp());
INSERT INTO t VALUES (2, 'there');
UPDATE t SET v = 'there too' WHERE id = 1;
COMMIT;
-- @session b
INSERT INTO t VALUES (3, 'here, meanwhile');
-- @session a
SELECT pg_replication_origin_xact_reset();
INSERT INTO t VALUES (4, 'there, without an LSN');
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_session_setup('Far "away"');
SET golden.origin = 'Far "away"';
BEGIN;
SELECT pg_replication_origin_xact_setup('1/0', clock_timestamp());
DELETE FROM t WHERE id = 2;
COMMIT;
SELECT pg_replication_origin_session_reset();
SET golden.origin = '';
INSERT INTO t VALUES (5, 'here again');
-- @after
SELECT pg_replication_origin_drop('elsewhere');
SELECT pg_replication_origin_drop('Far "away"');
