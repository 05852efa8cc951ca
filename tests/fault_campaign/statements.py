"""The source's tables, and the random statements that change them. One seed gives one list of statements, always."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from spark_jobs.options.table_mode import Mode

# changed: merged, keys move, documents are not sent again; emptied: overwritten after a TRUNCATE; altered: DDL;
# event: no key; parts: partitioned; bulk: ranges that are staged, transactions that are spooled.
# told: not followed; which messages were committed
SCHEMA = (
    "CREATE TABLE changed (id bigint PRIMARY KEY, v text, n int, doc text)",
    "ALTER TABLE changed ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE emptied (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE altered (id bigint PRIMARY KEY, note text, n int, z text)",
    "CREATE TABLE event (kind int, note text, at timestamptz)",
    "ALTER TABLE event REPLICA IDENTITY FULL",
    "CREATE TABLE parts (part int, line bigint, v text, PRIMARY KEY (part, line)) PARTITION BY LIST (part)",
    "CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0, 2, 4)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1, 3)",
    "CREATE TABLE parts_rest PARTITION OF parts DEFAULT",
    "CREATE TABLE bulk (id bigint PRIMARY KEY, doc text)",
    "ALTER TABLE bulk ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE told (content text)",
    "INSERT INTO changed SELECT g, 'first', 0, repeat(md5(g::text), 100) FROM generate_series(1, 200) g",
    "INSERT INTO emptied SELECT g, 'first' FROM generate_series(1, 100) g",
    "INSERT INTO altered SELECT g, 'first', g, 'z' FROM generate_series(1, 200) g",
    "INSERT INTO event SELECT g % 20, 'n' || g % 3 FROM generate_series(1, 100) g",
    "INSERT INTO parts SELECT g % 8, g, 'first' FROM generate_series(1, 200) g",
)
# each in these modes
TABLES: Mapping[str, tuple[Mode, ...]] = {
    "public.changed": ("mirror", "history"),
    "public.emptied": ("mirror",),
    "public.altered": ("mirror", "soft_delete"),
    "public.event": ("mirror",),
    "public.parts": ("mirror",),
    "public.bulk": ("mirror",),
}
FIRST_ROWS = 200

# a statement and its weight; ``new`` is an id that nobody has, ``old`` one of the first rows
_Weighted = tuple[tuple[int, str], ...]


def _of_changed(new: int, old: int) -> _Weighted:
    return (
        (4, f"INSERT INTO changed SELECT g, 'later', 0 FROM generate_series({new}, {new + old % 9}) g"),
        (5, f"UPDATE changed SET n = n + 1 WHERE id BETWEEN {old} AND {old + 20}"),
        (3, f"UPDATE changed SET id = {new + 9} WHERE id = {old}"),
        (1, f"DELETE FROM changed WHERE id % 50 = {old % 50} AND id > {FIRST_ROWS}"),
        (3, f"INSERT INTO changed VALUES ({old}, 'again', 0, repeat('x', 5000)) ON CONFLICT DO NOTHING"),
    )


def _of_emptied(new: int, old: int) -> _Weighted:
    return (
        (5, f"INSERT INTO emptied SELECT g, 'later' FROM generate_series({new}, {new + 9}) g"),
        (2, f"UPDATE emptied SET v = '{new}' WHERE id > {new - 200}"),
        (1, "TRUNCATE emptied"),
        (1, f"DELETE FROM emptied WHERE id % 7 = {old % 7}"),
    )


def _of_altered(new: int, old: int) -> _Weighted:
    return (
        (4, f"INSERT INTO altered (id, n, z) VALUES ({new}, {old}, 'later')"),
        (4, f"UPDATE altered SET n = {new % 1000}, z = '{new}' WHERE id BETWEEN {old} AND {old + 9}"),
        (1, f"DELETE FROM altered WHERE id % 40 = {old % 40} AND id > {FIRST_ROWS}"),
    )


def _of_event(new: int, old: int) -> _Weighted:
    # of several equal rows one
    one = f"ctid = (SELECT min(ctid) FROM event WHERE kind = {old % 20})"
    return (
        (4, f"INSERT INTO event SELECT {old % 20}, 'n{old % 3}' FROM generate_series(1, {1 + old % 4})"),
        (2, f"UPDATE event SET note = '{new}' WHERE kind = {old % 20} AND note = 'n1'"),
        # never to what the row was: without a key that is no change, and would look like a window that was left out
        (3, f"UPDATE event SET kind = {new % 20}, note = 'm{new}' WHERE {one}"),
        (3, f"DELETE FROM event WHERE {one}"),
        (1, f"DELETE FROM event WHERE kind = {old % 20} AND note > 'n'"),
    )


def _of_parts(new: int, old: int) -> _Weighted:
    return (
        (4, f"INSERT INTO parts VALUES ({old % 10}, {new}, 'later')"),
        (3, f"UPDATE parts SET v = '{new}' WHERE line BETWEEN {old} AND {old + 9}"),
        (3, f"UPDATE parts SET part = (part + 1) % 10 WHERE line BETWEEN {old} AND {old + 5}"),
        (1, f"DELETE FROM parts WHERE line % 40 = {old % 40} AND line > {FIRST_ROWS}"),
    )


_CHANGES: Mapping[str, Callable[[int, int], _Weighted]] = {
    "changed": _of_changed,
    "emptied": _of_emptied,
    "altered": _of_altered,
    "event": _of_event,
    "parts": _of_parts,
}
NAMES = tuple(_CHANGES)

_TURN_NAME = (
    "DO $$ BEGIN IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'altered'::regclass AND attname = 'note')"
    " THEN ALTER TABLE altered RENAME note TO remark; ELSE ALTER TABLE altered RENAME remark TO note; END IF; END $$"
)


def change_of(table: str, new: int, rng: random.Random) -> str:
    weighted = _CHANGES[table](new, rng.randrange(1, FIRST_ROWS))
    return rng.choices([statement for _, statement in weighted], [weight for weight, _ in weighted])[0]


def ddl(rng: random.Random) -> str:
    """What the lake follows in place. Columns of the same name come and go."""
    column, value = f"c{rng.randrange(4)}", rng.randrange(100)
    return rng.choice(
        (
            f"ALTER TABLE altered ADD COLUMN IF NOT EXISTS {column} int DEFAULT {value}",
            f"ALTER TABLE altered ADD COLUMN IF NOT EXISTS {column} text",
            f"ALTER TABLE altered DROP COLUMN IF EXISTS {column}",
            f"ALTER TABLE event ADD COLUMN IF NOT EXISTS {column} int DEFAULT {value}",
            f"ALTER TABLE event DROP COLUMN IF EXISTS {column}",
            _TURN_NAME,
        )
    )


def rewriting_ddl(rng: random.Random) -> str:
    """What costs the table a new snapshot, unless it has that type already."""
    return f"ALTER TABLE altered ALTER n TYPE {rng.choice(('int', 'bigint', 'numeric(12,2)'))}"


def staged_rows(first: int) -> tuple[str, ...]:
    """So many rows in one range that applying stages them in files."""
    return ("TRUNCATE bulk", f"INSERT INTO bulk SELECT g, g::text FROM generate_series({first}, {first + 21_000}) g")


def spooled_rows(first: int) -> tuple[str, ...]:
    """So many bytes in one transaction that a streamed one is spooled to a file; none of them stays."""
    document = "(SELECT string_agg(md5(g::text || n::text), '') FROM generate_series(1, 140) n)"
    rows = f"generate_series({first}, {first + 2_400}) g"
    return (f"INSERT INTO bulk SELECT g, {document} FROM {rows}", f"DELETE FROM bulk WHERE id >= {first}")
