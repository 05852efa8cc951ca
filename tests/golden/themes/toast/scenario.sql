-- Values out of line: unchanged ones are not sent, whether or not the key moves; a key itself may lie out of line.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE doc (id int PRIMARY KEY, v text, body text);
ALTER TABLE doc ALTER body SET STORAGE EXTERNAL;
CREATE TABLE whole (id int PRIMARY KEY, v text, body text);
ALTER TABLE whole ALTER body SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE longkey (k text PRIMARY KEY, v text);
ALTER TABLE longkey ALTER k SET STORAGE EXTERNAL;
CREATE TABLE marker (id int PRIMARY KEY, v text);
CREATE PUBLICATION golden FOR TABLE doc, whole, longkey, marker;
-- @changes
INSERT INTO doc VALUES (1, 'a', repeat('x', 2100)), (2, 'b', 'short'), (3, 'c', NULL);
UPDATE doc SET v = 'kept';
UPDATE doc SET id = 10 WHERE id = 1;
UPDATE doc SET body = repeat('y', 2050) WHERE id = 2;
UPDATE doc SET v = 'kept again', id = 20 WHERE id = 2;
UPDATE doc SET body = NULL WHERE id = 10;
DELETE FROM doc WHERE id = 20;
INSERT INTO whole VALUES (1, 'a', repeat('z', 2100));
UPDATE whole SET v = 'kept';
DELETE FROM whole;
INSERT INTO longkey VALUES (repeat('k', 2100), 'a');
UPDATE longkey SET v = 'b';
DELETE FROM longkey;
INSERT INTO marker VALUES (1, 'unchanged-toast-datum'), (2, 'null'), (3, NULL);
