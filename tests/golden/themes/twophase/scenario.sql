-- Prepared transactions: committed, rolled back, committed by another session after others, open at the end of the WAL.
-- @read pgoutput proto_version=1
-- @read 15 pgoutput proto_version=3 two_phase=on
-- @read 16 pgoutput proto_version=4 two_phase=on
-- @read 15 pgoutput two_phase_slot proto_version=3
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
-- @read test_decoding two_phase_slot include-timestamp=1
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE PUBLICATION golden FOR TABLE t;
-- @changes
BEGIN;
INSERT INTO t VALUES (1, 'prepared and committed');
SAVEPOINT s;
INSERT INTO t VALUES (2, 'rolled back');
ROLLBACK TO s;
UPDATE t SET v = v || '!';
PREPARE TRANSACTION 'one';
COMMIT PREPARED 'one';
BEGIN;
INSERT INTO t VALUES (3, 'rolled back');
PREPARE TRANSACTION 'two''s gid';
BEGIN;
INSERT INTO t VALUES (4, 'committed last');
PREPARE TRANSACTION 'three';
INSERT INTO t VALUES (5, 'in between');
ROLLBACK PREPARED 'two''s gid';
BEGIN;
INSERT INTO t VALUES (6, 'not decoded at PREPARE');
PREPARE TRANSACTION 'six_nodecode';
-- @session b
UPDATE t SET v = 'seen' WHERE id = 5;
COMMIT PREPARED 'three';
COMMIT PREPARED 'six_nodecode';
BEGIN;
PREPARE TRANSACTION 'empty';
COMMIT PREPARED 'empty';
BEGIN;
INSERT INTO t VALUES (7, 'open at the end');
PREPARE TRANSACTION 'open';
INSERT INTO t VALUES (8, 'the last');
