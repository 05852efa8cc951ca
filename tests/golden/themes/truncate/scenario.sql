-- One message lists all tables of one TRUNCATE, those reached by CASCADE too; also in mid-transaction and rolled back.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE parent (id serial PRIMARY KEY, v text);
CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent);
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE unpublished (id int PRIMARY KEY);
CREATE PUBLICATION golden FOR TABLE parent, child, other;
-- @changes
INSERT INTO parent VALUES (1, 'a'), (2, 'b');
INSERT INTO child VALUES (1, 1), (2, 2);
TRUNCATE other;
TRUNCATE parent CASCADE;
BEGIN;
INSERT INTO parent VALUES (3, 'c');
TRUNCATE child, other RESTART IDENTITY;
INSERT INTO child VALUES (3, 3);
SAVEPOINT s;
TRUNCATE parent RESTART IDENTITY CASCADE;
ROLLBACK TO s;
INSERT INTO other VALUES (1);
COMMIT;
TRUNCATE other, unpublished;
BEGIN;
TRUNCATE child;
ROLLBACK;
TRUNCATE parent, child, other RESTART IDENTITY CASCADE;
