-- REPLICA IDENTITY NOTHING: only a publication of inserts lets such a table be updated; test_decoding has no old row.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
-- @publish insert truncate
CREATE TABLE bare (id int PRIMARY KEY, v text);
ALTER TABLE bare REPLICA IDENTITY NOTHING;
CREATE TABLE keyless (a int, b text);
CREATE PUBLICATION golden FOR TABLE bare, keyless WITH (publish = 'insert, truncate');
-- @changes
INSERT INTO bare VALUES (1, 'x'), (2, NULL);
UPDATE bare SET v = 'y' WHERE id = 1;
UPDATE bare SET id = 3 WHERE id = 1;
DELETE FROM bare WHERE id = 2;
INSERT INTO keyless VALUES (1, 'x');
UPDATE keyless SET b = 'y';
DELETE FROM keyless;
TRUNCATE bare;
