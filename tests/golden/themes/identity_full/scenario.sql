-- REPLICA IDENTITY FULL: the whole old row comes; test_decoding leaves out its nulls. With and without a primary key.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE keyed (id int PRIMARY KEY, v text, n numeric);
ALTER TABLE keyed REPLICA IDENTITY FULL;
CREATE TABLE keyless (a int, b text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE PUBLICATION golden FOR TABLE keyed, keyless;
-- @changes
INSERT INTO keyed VALUES (1, 'x', 1.50), (2, NULL, NULL);
UPDATE keyed SET v = 'y' WHERE id = 2;
UPDATE keyed SET id = 3 WHERE id = 1;
DELETE FROM keyed WHERE id = 2;
INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
UPDATE keyless SET b = 'y' WHERE a IS NULL;
UPDATE keyless SET b = NULL WHERE ctid = '(0,1)';
DELETE FROM keyless WHERE a = 1;
DELETE FROM keyless;
