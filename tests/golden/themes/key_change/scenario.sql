-- Keys move: to a free key, in a chain, swapped through a third, and to where a row was just deleted.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE pair (a int, b text, v text, PRIMARY KEY (a, b));
CREATE PUBLICATION golden FOR TABLE pair;
-- @changes
INSERT INTO pair SELECT g, 'k', 'row ' || g FROM generate_series(1, 6) g;
UPDATE pair SET a = 10 WHERE a = 1;
BEGIN;
UPDATE pair SET a = 0 WHERE a = 2;
UPDATE pair SET a = 2 WHERE a = 3;
UPDATE pair SET a = 3 WHERE a = 0;
COMMIT;
BEGIN;
UPDATE pair SET a = 11 WHERE a = 10;
UPDATE pair SET a = 12, v = 'moved twice' WHERE a = 11;
UPDATE pair SET b = 'l' WHERE a = 12;
COMMIT;
BEGIN;
DELETE FROM pair WHERE a = 4;
UPDATE pair SET a = 4 WHERE a = 5;
COMMIT;
BEGIN;
UPDATE pair SET a = 7 WHERE a = 6;
UPDATE pair SET a = 6 WHERE a = 7;
COMMIT;
