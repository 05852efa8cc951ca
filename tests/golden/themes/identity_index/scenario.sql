-- REPLICA IDENTITY USING INDEX: the old key is the index's, not the primary key's.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE indexed (id int PRIMARY KEY, code text NOT NULL, area int NOT NULL, v text);
CREATE UNIQUE INDEX indexed_code ON indexed (code, area);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code;
CREATE PUBLICATION golden FOR TABLE indexed;
-- @changes
INSERT INTO indexed VALUES (1, 'a', 1, 'x'), (2, 'b', 2, NULL);
UPDATE indexed SET v = 'y' WHERE id = 1;
UPDATE indexed SET id = 9 WHERE id = 1;
UPDATE indexed SET code = 'c' WHERE id = 9;
UPDATE indexed SET area = 3, v = 'z' WHERE id = 2;
DELETE FROM indexed WHERE id = 2;
