"""Random statements on a table as it is now. Any of them may fail, as those of people do."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.random_schemas.table_now import TableNow
from tests.random_schemas.values import RETYPES, VALUES, WIDENED, set_value, value

_Chance = random.Random


def change(chance: _Chance, table: TableNow) -> str:
    """INSERT, UPDATE, DELETE or TRUNCATE."""
    (make,) = chance.choices(tuple(_CHANGES), tuple(_CHANGES.values()))
    return make(chance, table)


def ddl(chance: _Chance, table: TableNow) -> str:
    (make,) = chance.choices(tuple(_DDL), tuple(_DDL.values()))
    return make(chance, table)


def _insert(chance: _Chance, table: TableNow) -> str:
    number = chance.randrange(100, 100_000)
    columns = [column for column in table.columns if column.name != table.number.name and chance.random() < 0.8]
    required = [column for column in table.columns if column.not_null and column not in columns]
    listed = [column for column in (*columns, *required) if column.name != table.number.name]
    values = [set_value(chance, column.type) if column.not_null else value(chance, column.type) for column in listed]
    names = ", ".join([table.number.quoted, *(column.quoted for column in listed)])
    rows = chance.choice((1, 1, 3, 40))
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {', '.join([f'g + {number}', *values])}"
        f" FROM generate_series(1, {rows}) g"
    )


def _duplicate(chance: _Chance, table: TableNow) -> str:
    """Without a key, equal rows; with one, an error unless the number moves them out of the way."""
    if table.primary_key is None and table.identity == "f":
        return f"INSERT INTO {table.name} SELECT * FROM {table.name} WHERE {_some(chance, table)}"
    others = [column.quoted for column in table.columns if column.name != table.number.name]
    number = f"{table.number.quoted} + {chance.randrange(1000, 9000)}"
    return (
        f"INSERT INTO {table.name} ({', '.join([table.number.quoted, *others])})"
        f" SELECT {', '.join([number, *others])} FROM {table.name} WHERE {_some(chance, table)}"
    )


def _update(chance: _Chance, table: TableNow) -> str:
    free = table.free_columns
    if not free:
        return _move(chance, table)
    chosen = chance.sample(free, chance.randint(1, len(free)))
    assignments = (f"{column.quoted} = {value(chance, column.type)}" for column in chosen)
    return f"UPDATE {table.name} SET {', '.join(assignments)} WHERE {_some(chance, table)}"


def _move(chance: _Chance, table: TableNow) -> str:
    """The key changes, or the row's partition."""
    column = chance.choice(
        [c for c in table.columns if c.type in ("integer", "bigint") and c.not_null] or [table.number]
    )
    by = chance.choice((1, -1, 50_000))
    return f"UPDATE {table.name} SET {column.quoted} = {column.quoted} + {by} WHERE {_some(chance, table)}"


def _delete(chance: _Chance, table: TableNow) -> str:
    return f"DELETE FROM {table.name} WHERE {_some(chance, table)}"


def _truncate(_: _Chance, table: TableNow) -> str:
    return f"TRUNCATE {table.name}"


def _some(chance: _Chance, table: TableNow) -> str:
    """A condition that holds for a share of the rows, chosen by their number alone."""
    share = chance.choice((2, 5, 11))
    return f"abs(hashint8({table.number.quoted})::bigint) % {share} = {chance.randrange(share)}"


def _add_column(chance: _Chance, table: TableNow) -> str:
    name = chance.choice(("n{}", '"Ä {}"', '"select{}"', "with_{}", '"x.`{}"')).format(chance.randrange(1000))
    typname = chance.choice(tuple(VALUES))
    constant = set_value(chance, typname)
    column = chance.choice(
        (
            f"{name} {typname}",
            f"{name} {typname}",
            f"{name} {typname} DEFAULT {constant}",
            f"{name} {typname} NOT NULL DEFAULT {constant}",
            f"{name} float8 DEFAULT random()",
        )
    )
    return f"ALTER TABLE {table.name} ADD {column}"


def _drop_column(chance: _Chance, table: TableNow) -> str:
    if not table.free_columns:
        return _add_column(chance, table)
    return f"ALTER TABLE {table.name} DROP {chance.choice(table.free_columns).quoted}"


def _rename_column(chance: _Chance, table: TableNow) -> str:
    column = chance.choice(table.columns)
    return f'ALTER TABLE {table.name} RENAME {column.quoted} TO "renamed {chance.randrange(1000)}"'


def _swap_names(chance: _Chance, table: TableNow) -> str:
    if len(table.columns) < 2:
        return _rename_column(chance, table)
    a, b = (column.quoted for column in chance.sample(table.columns, 2))
    renames = ((a, "swapped"), (b, a), ("swapped", b))
    return "; ".join(f"ALTER TABLE {table.name} RENAME {old} TO {new}" for old, new in renames)


def _retype_column(chance: _Chance, table: TableNow) -> str:
    if not table.free_columns:
        return _add_column(chance, table)
    column, typname = chance.choice(table.free_columns), chance.choice(RETYPES)
    return f"ALTER TABLE {table.name} ALTER {column.quoted} TYPE {typname} USING {column.quoted}::text::{typname}"


def _widen_column(chance: _Chance, table: TableNow) -> str:
    narrow = [column for column in table.columns if column.type in WIDENED]
    if not narrow:
        return _rename_column(chance, table)
    column = chance.choice(narrow)
    return f"ALTER TABLE {table.name} ALTER {column.quoted} TYPE {WIDENED[column.type]}"


def _set_identity(chance: _Chance, table: TableNow) -> str:
    if table.primary_key is None:
        return f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
    return f"ALTER TABLE {table.name} REPLICA IDENTITY {chance.choice(('FULL', 'DEFAULT'))}"


def _change_key(chance: _Chance, table: TableNow) -> str:
    """The primary key goes or comes; without one the whole row is its identity."""
    if table.primary_key is not None and not table.is_partitioned:
        name = table.primary_key
        return f"ALTER TABLE {table.name} DROP CONSTRAINT {name}; ALTER TABLE {table.name} REPLICA IDENTITY FULL"
    return f"ALTER TABLE {table.name} ADD PRIMARY KEY ({table.number.quoted}, part)"


def _partitions(chance: _Chance, table: TableNow) -> str:
    if not table.is_partitioned:
        return _rename_column(chance, table)
    name = f"{table.name}_{chance.randrange(10_000)}"
    return chance.choice(
        (
            f"ALTER TABLE {table.name} DETACH PARTITION {table.name}_low",
            f"ALTER TABLE {table.name} ATTACH PARTITION {table.name}_low FOR VALUES IN (0, 1)",
            f"TRUNCATE {table.name}_low",
            f"CREATE TABLE {name} PARTITION OF {table.name} FOR VALUES IN ({chance.randrange(10, 99)})",
        )
    )


_CHANGES: dict[Callable[[_Chance, TableNow], str], int] = {
    _insert: 30,
    _duplicate: 10,
    _update: 35,
    _move: 10,
    _delete: 15,
    _truncate: 2,
}
_DDL: dict[Callable[[_Chance, TableNow], str], int] = {
    _add_column: 30,
    _drop_column: 15,
    _rename_column: 15,
    _swap_names: 8,
    _retype_column: 6,
    _widen_column: 6,
    _set_identity: 8,
    _change_key: 4,
    _partitions: 10,
}
