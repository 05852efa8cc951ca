CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
CREATE TABLE account (id bigint PRIMARY KEY, v text, amount numeric(12, 2), ok bool);
CREATE TABLE line (a int, b text, v text, doc text, PRIMARY KEY (b, a));
ALTER TABLE line ALTER doc SET STORAGE EXTERNAL;
CREATE TABLE whole (id int PRIMARY KEY, v text, doc text);
ALTER TABLE whole ALTER doc SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE coded (id int PRIMARY KEY, v text, code text NOT NULL);
CREATE UNIQUE INDEX coded_code ON coded (code);
ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code;
CREATE TABLE part (id int, area int, v text, PRIMARY KEY (id, area)) PARTITION BY LIST (area);
CREATE TABLE part_0 PARTITION OF part FOR VALUES IN (0);
CREATE TABLE part_1 (v text, gone int, area int NOT NULL, id int NOT NULL, PRIMARY KEY (id, area));
ALTER TABLE part_1 DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES IN (1);
CREATE TABLE part_2 PARTITION OF part DEFAULT;
CREATE TABLE "Odd ""Table" ("K ey" int PRIMARY KEY, "select" text, "a:b[c]" jsonb);
CREATE TABLE kinds (id int PRIMARY KEY, i2 smallint, f8 float8, f4 real, n numeric, d date, ts timestamp,
  tz timestamptz, t time, iv interval, b bytea, u uuid, a int[], ta text[], j json, e mood, bits bit(4),
  r int4range, ip inet, c char(5));
CREATE TABLE scrap (id int PRIMARY KEY, v text);
-- with a TOAST table, for test_decoding: without one a TRUNCATE in a subtransaction asks for a snapshot
CREATE TABLE scrap_line (id int PRIMARY KEY, scrap_id int REFERENCES scrap, note text);
