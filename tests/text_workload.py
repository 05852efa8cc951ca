"""Tables and changes of every kind, for what must read the same through both plugins."""

from __future__ import annotations

from tests.fixtures.servers import Database

CREATE_TYPED = (
    "CREATE TABLE typed (id int PRIMARY KEY, b bool, i2 int2, o oid, f4 float4, f8 float8, n numeric, bits bit varying,"
    " t text, c char(5), vc varchar, by bytea, d date, ts timestamp, tz timestamptz, ti time, iv interval, u uuid,"
    " j json, jb jsonb, a int[], ta text[], m money, p point, r int4range, net inet, mood mood, pos positive,"
    ' pair pair, x xml, ch "char", nm name, bl bool[])'
)
INSERT_TYPED = (
    "INSERT INTO typed VALUES (1, true, -5, 4294967295, 'NaN', 1e-300, 12.50, B'', E'it''s\\n\\\\ \"x\"', 'ab', 'null',"
    " '\\x00ff27', '2024-01-01', 'infinity', '2024-01-01 00:00:00.5+03', '01:02:03', '1 mon -2 days 3 sec',"
    " 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee', '{\"a\": \"it''s\"}', '{\"k\": [1, null]}', '{1,NULL}',"
    " ARRAY['it''s', 'b c', NULL], 12.3, '(1,2)', '[1,5)', '10.0.0.1', 'it''s ok', 7, '(1,\"x y\")', '<a>''</a>', 'z',"
    " 'name', '{t,f}')"
)
SCHEMA = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s ok')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TABLE plain (id bigint PRIMARY KEY, v text, doc text)",
    "ALTER TABLE plain ALTER doc SET STORAGE EXTERNAL",
    'CREATE TABLE "Odd: T[a]ble" (id int, "user" text, "a b[]:" int[], "q""q" bit(3), PRIMARY KEY (id, "user"))',
    "CREATE TABLE whole (id int PRIMARY KEY, v text, n int, doc text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL, ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE child (id int PRIMARY KEY, plain_id bigint REFERENCES plain ON DELETE CASCADE)",
    "CREATE TABLE computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v text)",
    "CREATE TABLE parted (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
    'CREATE TABLE "Parted 2" (v text, gone int, day date NOT NULL, id int NOT NULL)',
    'ALTER TABLE "Parted 2" DROP gone',
    "ALTER TABLE parted ATTACH PARTITION \"Parted 2\" FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    "CREATE TABLE other (id int PRIMARY KEY, v text)",
    CREATE_TYPED,
)
FOLLOWED = ("plain", '"Odd: T[a]ble"', "whole", "child", "computed", "parted", "typed")
TYPED = (
    INSERT_TYPED,
    "INSERT INTO typed (id, b, f8, n, bits) VALUES (2, false, '-Infinity', 'NaN', B'10110')",
    "UPDATE typed SET t = 'unchanged-toast-datum', vc = NULL WHERE id = 1",
    "DELETE FROM typed WHERE id = 2",
)


def workload(database: Database) -> None:
    """Every kind of change, of followed tables and of others, in overlapping transactions."""
    with database.connect() as first, database.connect() as second:
        first.execute("BEGIN")
        first.execute(
            "INSERT INTO plain SELECT g, 'it''s ' || g, repeat(md5(g::text), 300) FROM generate_series(1, 40) g"
        )
        second.execute("INSERT INTO other VALUES (1, 'alone')")
        second.execute("SELECT pg_logical_emit_message(true, 'only, a message', 'x')")
        first.execute("SAVEPOINT s")
        first.execute("INSERT INTO plain VALUES (1000, 'rolled back')")
        first.execute("ROLLBACK TO s")
        second.execute(
            "BEGIN; SELECT pg_logical_emit_message(true, 'before', E'a\nb'); INSERT INTO child VALUES (99); COMMIT"
        )
        second.execute("SELECT pg_logical_emit_message(false, 'loose', 'now')")
        first.execute("INSERT INTO other VALUES (2, 'between')")
        first.execute("INSERT INTO child SELECT g, g FROM generate_series(1, 10) g")
        first.execute("COMMIT")
    database.execute(
        "UPDATE plain SET v = 'kept' WHERE id <= 10",
        "UPDATE plain SET id = -id WHERE id BETWEEN 11 AND 15",
        "DELETE FROM plain WHERE id = 1",
        """INSERT INTO "Odd: T[a]ble" VALUES (1, 'it''s', '{1,2}', B'101'), (2, ' "user"[text]:''x''', NULL, NULL)""",
        """UPDATE "Odd: T[a]ble" SET "user" = '''' WHERE id = 1""",
        'DELETE FROM "Odd: T[a]ble" WHERE id = 2',
        "INSERT INTO whole SELECT g, nullif(g % 2, 0), NULL, repeat('d', 9000) FROM generate_series(1, 6) g",
        "UPDATE whole SET n = 1 WHERE id < 4",
        "UPDATE whole SET id = 60, v = NULL WHERE id = 6",
        "DELETE FROM whole WHERE id > 3",
        "INSERT INTO computed (id, v) VALUES (1, 'a'), (2, NULL)",
        "UPDATE computed SET id = 3 WHERE id = 1",
        "INSERT INTO parted VALUES (1, '2024-01-05', 'one'), (2, '2024-02-05', 'two'), (3, '2024-02-06', NULL)",
        "UPDATE parted SET day = '2024-02-07' WHERE id = 1",
        "UPDATE parted SET v = 'x'",
        "DELETE FROM parted WHERE id = 3",
        *TYPED,
        "BEGIN; INSERT INTO child VALUES (77); TRUNCATE plain, other CASCADE; INSERT INTO plain VALUES (1, ''); COMMIT",
        "TRUNCATE parted RESTART IDENTITY",
    )
