-- A partitioned table published as its root: rows of all partitions, moves between them, other column orders.
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=2 streaming=on
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE TABLE root (id int, area text, v text, PRIMARY KEY (id, area)) PARTITION BY LIST (area);
CREATE TABLE root_a PARTITION OF root FOR VALUES IN ('a');
CREATE TABLE root_b (v text, junk int, area text NOT NULL, id int NOT NULL, PRIMARY KEY (id, area));
ALTER TABLE root_b DROP COLUMN junk;
ALTER TABLE root ATTACH PARTITION root_b FOR VALUES IN ('b');
CREATE TABLE root_c PARTITION OF root FOR VALUES IN ('c', 'd') PARTITION BY RANGE (id);
CREATE TABLE root_c1 PARTITION OF root_c FOR VALUES FROM (0) TO (100);
CREATE PUBLICATION golden FOR TABLE root WITH (publish_via_partition_root = true);
-- @changes
INSERT INTO root VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z');
UPDATE root SET v = 'w' WHERE id = 2;
UPDATE root SET id = 4 WHERE id = 3;
UPDATE root SET area = 'b' WHERE id = 1;
UPDATE root SET area = 'd' WHERE id = 4;
DELETE FROM root WHERE id = 2;
INSERT INTO root_b VALUES ('into the partition', 'b', 5);
BEGIN;
INSERT INTO root VALUES (6, 'a', NULL);
UPDATE root SET area = 'c', v = 'moved' WHERE id = 6;
COMMIT;
