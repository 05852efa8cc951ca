-- pg_logical_emit_message: in transactions, outside, in rolled back ones and savepoints; odd prefixes; any bytes.
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=1 messages=true
-- @read pgoutput proto_version=2 streaming=on messages=true
-- @read 16 pgoutput proto_version=4 streaming=parallel messages=true
-- @read test_decoding include-timestamp=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE filler (id int);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
SELECT golden.emit('app', 'alone in its transaction');
-- @emit_now app outside any transaction
BEGIN;
INSERT INTO t VALUES (1, 'a');
SELECT golden.emit('app', 'between rows');
-- @emit_now now before the rows of its transaction
SAVEPOINT s;
SELECT golden.emit('app', 'rolled back');
ROLLBACK TO s;
SELECT golden.emit('a, b: prefix', '');
INSERT INTO t VALUES (2, 'b');
COMMIT;
BEGIN;
SELECT golden.emit('app', 'rolled back');
-- @emit_now now in a transaction that is rolled back
ROLLBACK;
SELECT golden.emit('', 'no prefix');
BEGIN;
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
SELECT golden.emit('outbox', 'in a streamed transaction');
-- @emit_now now while another is streamed
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
INSERT INTO t VALUES (3, 'c');
COMMIT;
SELECT golden.emit('outbox', E'quotes '' and \\ and\nnewline é 漢');
