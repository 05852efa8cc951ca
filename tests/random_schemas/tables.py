"""Random tables: with every kind of row identity, and with columns of random types."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.random_schemas.values import VALUES

TYPES = ("CREATE TYPE mood AS ENUM ('good', 'so so', 'it''s bad')",)
_ROWS = 25

_Chance = random.Random


def created(chance: _Chance, name: str) -> tuple[str, ...]:
    """The statements that create one table and its first rows."""
    kind = chance.choice(tuple(_KINDS))
    columns = [
        f"c{number} {typname}" for number, typname in enumerate(chance.sample(tuple(VALUES), chance.randint(1, 5)))
    ]
    return (
        *_KINDS[kind](name, ", ".join(["id int NOT NULL", "part int NOT NULL", *columns])),
        f"INSERT INTO {name} (id, part) SELECT g, g % 4 FROM generate_series(1, {_ROWS}) g",
    )


def _with_key(name: str, columns: str) -> tuple[str, ...]:
    return (f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))",)


def _with_wide_key(name: str, columns: str) -> tuple[str, ...]:
    return (f'CREATE TABLE {name} ({columns}, "wörd" text NOT NULL DEFAULT \'w\', PRIMARY KEY ("wörd", id, part))',)


def _with_whole_rows(name: str, columns: str) -> tuple[str, ...]:
    return (*_with_key(name, columns), f"ALTER TABLE {name} REPLICA IDENTITY FULL")


def _without_key(name: str, columns: str) -> tuple[str, ...]:
    return (f"CREATE TABLE {name} ({columns})", f"ALTER TABLE {name} REPLICA IDENTITY FULL")


def _with_unique_index(name: str, columns: str) -> tuple[str, ...]:
    return (
        f"CREATE TABLE {name} ({columns})",
        f"CREATE UNIQUE INDEX {name}_identity ON {name} (part, id)",
        f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_identity",
    )


def _partitioned(name: str, columns: str) -> tuple[str, ...]:
    return (
        f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        f"CREATE TABLE {name}_low PARTITION OF {name} FOR VALUES IN (0, 1)",
        f"CREATE TABLE {name}_other PARTITION OF {name} DEFAULT",
    )


def _partitioned_under_full(name: str, columns: str) -> tuple[str, ...]:
    """The letter of an old tuple is the root's, its content the leaf's: here O over a key, and O over a whole row."""
    return (
        *_partitioned(name, columns),
        f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        f"ALTER TABLE {name}_other REPLICA IDENTITY FULL",
    )


def _partitioned_over_full(name: str, columns: str) -> tuple[str, ...]:
    """K over a whole row."""
    return (*_partitioned(name, columns), f"ALTER TABLE {name}_low REPLICA IDENTITY FULL")


_KINDS: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "with a key": _with_key,
    "with a wide key": _with_wide_key,
    "with whole rows": _with_whole_rows,
    "without a key": _without_key,
    "with a unique index": _with_unique_index,
    "partitioned": _partitioned,
    "partitioned under full": _partitioned_under_full,
    "partitioned over full": _partitioned_over_full,
}
