-- Names and values that a careless parser takes for its own syntax.
-- @read pgoutput proto_version=1
-- @read test_decoding include-timestamp=1 skip-empty-xacts=1
CREATE SCHEMA "odd: schema.";
CREATE TABLE "odd: schema."."Ta""ble [x]: INSERT" ("i d" int PRIMARY KEY, "a:b[c]" text, "select" text, "new-tuple" text, "é漢" text);
CREATE TABLE "table" ("a.b" text PRIMARY KEY, "old-key: x" text[], "new
line" int);
CREATE TYPE "odd: schema."."My Type" AS ENUM ('one', 'it''s');
CREATE TABLE plain (id int PRIMARY KEY, v text, w varchar(40), c char(6), e "odd: schema."."My Type", es "odd: schema."."My Type"[]);
CREATE PUBLICATION golden FOR TABLE "odd: schema."."Ta""ble [x]: INSERT", "table", plain;
-- @changes
INSERT INTO "odd: schema."."Ta""ble [x]: INSERT" VALUES (1, 'x', 'y', 'z', 'ü');
UPDATE "odd: schema."."Ta""ble [x]: INSERT" SET "i d" = 2;
DELETE FROM "odd: schema."."Ta""ble [x]: INSERT";
INSERT INTO "table" VALUES ('k', ARRAY['a', 'b c', NULL, 'null', '"', '\', ''''], 1);
UPDATE "table" SET "a.b" = 'k[text]:''l''';
TRUNCATE "table", "odd: schema."."Ta""ble [x]: INSERT";
INSERT INTO plain VALUES (1, '', 'null', 'null', 'one', '{one,it''s}');
INSERT INTO plain VALUES (2, 'it''s', '''''', ' ', 'it''s', '{}');
INSERT INTO plain VALUES (3, E'line\nbreak\ttab\\', E'\\n', E'\\', NULL, NULL);
INSERT INTO plain VALUES (4, 'x w[character varying]:''y''', ' new-tuple: id[integer]:5', '''', NULL, '{NULL,one}');
INSERT INTO plain VALUES (5, E'\r\n\u2028', E'\u00e9漢😀', 'é', NULL, NULL);
INSERT INTO plain VALUES (6, 'unchanged-toast-datum', '(no-tuple-data)', 'true', NULL, NULL);
INSERT INTO plain VALUES (7, E'COMMIT 7\ntable public.plain: DELETE: id[integer]:7', 'BEGIN', 'B''1''', NULL, NULL);
UPDATE plain SET id = id + 100 WHERE id = 7;
DELETE FROM plain WHERE id < 4;
