-- Prepared transactions that were streamed before: Stream Prepare; with a subtransaction rolled back after streaming.
-- @read pgoutput proto_version=1
-- @read 15 pgoutput proto_version=3 streaming=on two_phase=on
-- @read 16 pgoutput proto_version=4 streaming=parallel two_phase=on
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
-- @read test_decoding two_phase_slot
-- @read test_decoding two_phase_slot stream-changes=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE filler (id int);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
BEGIN;
INSERT INTO t VALUES (1, 'streamed, prepared');
SAVEPOINT s;
INSERT INTO t VALUES (2, 'rolled back');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
ROLLBACK TO s;
-- @session b
BEGIN;
INSERT INTO t VALUES (11, 'rolled back when prepared');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
-- @session a
INSERT INTO t VALUES (3, 'end');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
PREPARE TRANSACTION 'one';
-- @session b
PREPARE TRANSACTION 'two';
INSERT INTO t VALUES (21, 'in between');
COMMIT PREPARED 'one';
ROLLBACK PREPARED 'two';
BEGIN;
INSERT INTO t VALUES (31, 'open at the end');
INSERT INTO filler SELECT 0 FROM generate_series(1, 500);
PREPARE TRANSACTION 'open';
INSERT INTO t VALUES (22, 'the last');
