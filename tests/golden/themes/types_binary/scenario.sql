-- The same values in the binary representation, where pgoutput has one; they must mean what their text means.
-- (No array of an enum: its binary form holds the enum's OID, which differs from server to server.)
-- @read pgoutput proto_version=1
-- @read pgoutput proto_version=1 binary=true
-- @read pgoutput proto_version=2 streaming=on binary=true
CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE numbers (id int PRIMARY KEY, b bool, i2 int2, i4 int4, i8 int8, o oid, f4 float4, f8 float8, n numeric, n2 numeric(12, 3), m money);
CREATE TABLE texts (id int PRIMARY KEY, t text, v varchar(20), c char(5), n name, ch "char", by bytea, x xml, j json, jb jsonb, u uuid);
CREATE TABLE times (id int PRIMARY KEY, d date, t time, tz timetz, ts timestamp, tstz timestamptz, ts3 timestamp(3), i interval);
CREATE TABLE others (id int PRIMARY KEY, bits bit(5), vb varbit, ip inet, net cidr, mac macaddr, p point, c circle, r int4range, tr tstzrange, tv tsvector, pl pg_lsn, e mood, d positive, co pair, h golden.hstore);
CREATE TABLE arrays (id int PRIMARY KEY, i int[], t text[], n numeric(6, 2)[], ts timestamptz[], b bytea[], m int[][]);
CREATE PUBLICATION golden FOR TABLE numbers, texts, times, others, arrays;
-- @changes
INSERT INTO numbers VALUES (1, true, 32767, 2147483647, 9223372036854775807, 4294967295, 3.4028235e38, 1.7976931348623157e308, 123456789012345678901234567890.123456789, 123456789.125, 12.34);
INSERT INTO numbers VALUES (2, false, -32768, -2147483648, -9223372036854775808, 0, 'NaN', '-Infinity', 'NaN', -0.001, -0.01);
INSERT INTO numbers VALUES (3, NULL, 0, 0, 0, NULL, 0.1, 1e-300, 0.00, 0, NULL);
INSERT INTO numbers VALUES (4, NULL, -1, -1, -1, 1, '-0', 'Infinity', 1e-20, 100, 0);
UPDATE numbers SET n = 1e30, n2 = 1.5 WHERE id = 3;
INSERT INTO texts VALUES (1, 'text', 'varchar', 'ch', 'name', 'x', '\x00ff5c27', '<a b="c">d</a>', '{"a":  [1, null]}', '{"b": 1, "a": "''"}', '6ecd8c99-4036-403d-bf84-cf8400f67836');
INSERT INTO texts VALUES (2, '', '', '', '', '', '', NULL, '""', 'null', NULL);
UPDATE texts SET c = 'abcde', t = NULL WHERE id = 1;
INSERT INTO times VALUES (1, '2024-02-29', '23:59:59.999999', '12:00:00.5+05:30', '2024-02-29 12:00:00', '2024-02-29 12:00:00+02', '2024-01-01 00:00:00.1235', '1 year 2 mons 3 days 04:05:06.000007');
INSERT INTO times VALUES (2, 'infinity', '24:00:00', '00:00:00-15', '-infinity', 'infinity', 'infinity', '-1 day -00:00:01');
INSERT INTO times VALUES (3, '0044-03-15 BC', '00:00', '00:00+00', '0001-01-01 00:00:00 BC', '1900-01-01 00:00:00+00', NULL, '0');
INSERT INTO times VALUES (4, '5874897-12-31', NULL, NULL, '294276-12-31 23:59:59.999999', '0001-01-01 00:00:00+00', NULL, '-178000000 years');
INSERT INTO others VALUES (1, B'10110', B'1', '192.168.1.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '(1.5,-2)', '<(0,0),1>', '[1,5)', '[2024-01-01 00:00:00+00,)', '''cat'':2 ''it''''s'':1', '16/B374D848', 'it''s ok', 7, '(1,"a ""b"", c")', '"k, 1"=>"v", n=>NULL');
INSERT INTO others VALUES (2, B'00000', B'', '::1', '::/0', NULL, NULL, NULL, 'empty', NULL, '', '0/0', 'sad', NULL, '(,)', '');
INSERT INTO arrays VALUES (1, '{1,NULL,-3}', '{a,"b c",NULL,"null",""}', '{1.50,NULL}', '{"2024-01-01 00:00:00+00",infinity}', '{"\\x00ff",NULL}', '{{1,2},{3,4}}');
INSERT INTO arrays VALUES (2, '{}', '{}', '{}', '{}', '{}', '[0:1]={5,6}');
DELETE FROM times WHERE id = 2;
