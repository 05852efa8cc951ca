-- REPLICA IDENTITY DEFAULT: the old key only where it changed; one column, several, out of order in the table.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE one (id int PRIMARY KEY, v text);
CREATE TABLE two (v text, b text, a int, PRIMARY KEY (a, b));
CREATE PUBLICATION golden FOR TABLE one, two;
-- @changes
INSERT INTO one VALUES (1, 'x'), (2, NULL), (3, '');
UPDATE one SET v = 'y' WHERE id = 1;
UPDATE one SET v = NULL WHERE id = 1;
UPDATE one SET id = 4 WHERE id = 2;
DELETE FROM one WHERE id = 3;
INSERT INTO two VALUES ('v', 'b', 1), (NULL, '', 2);
UPDATE two SET v = 'w';
UPDATE two SET b = 'c' WHERE a = 1;
DELETE FROM two WHERE a = 2;
