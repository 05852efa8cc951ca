"""What a live server sends, decoded and netted, takes the table from its old state to its new one."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.logicalrep.messages import Begin, Delete, Insert, Truncate, Update
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation, fingerprint
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import lake_type
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from tests.fixtures.servers import Database
from tests.histories import mapped

pytestmark = pytest.mark.postgres

_BIG = "(SELECT string_agg(md5(n::text || {seed}), '') FROM generate_series(1, 400) AS n)"  # 12 kB, out of line
_ROW = tuple[object, ...]


def change_log_of(database: Database) -> tuple[pa.Table, dict[int, bytes], Relation]:
    """All changes of the slot as the change log holds them, told by the object decoder."""
    found = database.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes("
        f"'{database.name}', NULL, NULL, 'proto_version', '1', 'publication_names', '{database.name}')"
    )
    rows: list[dict[str, object]] = []
    relations: dict[int, bytes] = {}
    relation: Relation | None = None
    commit_lsn, version = 0, 0
    for ordinal, (data,) in enumerate(found):
        assert isinstance(data, bytes)
        message = read_message(data)
        if isinstance(message, Begin):
            commit_lsn = int(message.final_lsn)
        elif isinstance(message, Relation):
            relation, version = message, fingerprint(data)
            relations[version] = data
        elif isinstance(message, Insert | Update | Delete | Truncate):
            row = {"window": 1, "commit_lsn": commit_lsn, "ordinal": ordinal, "kind": chr(data[0]), "version": version}
            rows.append({**row, "data": data})
    assert relation is not None
    return pa.Table.from_pylist(rows, schema=CHANGE_LOG_SCHEMA), relations, relation


def applied(before: dict[_ROW, _ROW], rows: pa.Table, keys: list[int], *, truncated: bool) -> dict[_ROW, _ROW]:
    after = {} if truncated else dict(before)
    written: list[Mapping[str, object]] = rows.to_pylist()
    for row in written:
        if row["op"] == 0:
            del after[tuple(row[f"v{index}"] for index in keys)]
    width = sum(name.startswith("v") for name in rows.column_names)
    for row in written:
        if row["op"] == 1:
            key = tuple(row[f"v{index}"] for index in keys)
            origin = tuple(row.get(f"f{index}") for index in keys)
            held = before.get(key if origin[0] is None else origin)
            values = [row[f"v{index}"] for index in range(width)]
            for index in range(width):
                if row.get(f"u{index}"):
                    assert held is not None
                    values[index] = held[index]
            after[key] = tuple(values)
    return after


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("truncate", [False, True])
def test_old_state_to_new_state(every_database: Database, identity: str, truncate: bool) -> None:
    database = every_database
    database.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, doc text, n numeric(10,2), at timestamptz, b bytea, ok bool)",
        "ALTER TABLE t ALTER doc SET STORAGE EXTERNAL",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        f"CREATE PUBLICATION {database.name} FOR TABLE t",
        f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
        f"INSERT INTO t SELECT k, {_BIG.format(seed='k::text')}, k, '2024-01-01', NULL, true"
        " FROM generate_series(1, 8) AS k",
    )
    change_log_of(database)  # the slot moves to here
    before: dict[_ROW, _ROW] = {(row[0],): row for row in database.execute("SELECT * FROM t")}
    statements = [
        "UPDATE t SET n = n + 1 WHERE id <= 3",
        "UPDATE t SET id = 100 WHERE id = 1",
        "UPDATE t SET id = 101 WHERE id = 100",
        "UPDATE t SET id = -1 WHERE id = 4",  # a swap, as SQL must do it
        "UPDATE t SET id = 4 WHERE id = 5",
        "UPDATE t SET id = 5 WHERE id = -1",
        "DELETE FROM t WHERE id = 6",
        "INSERT INTO t VALUES (6, 'new', NULL, NULL, '\\x00ff', false)",
        f"UPDATE t SET doc = {_BIG.format(seed=7)} WHERE id = 7",
        "UPDATE t SET ok = NULL WHERE id = 7",
        "INSERT INTO t VALUES (9, '', 0, NULL, NULL, NULL)",
        "DELETE FROM t WHERE id = 9",
    ]
    if truncate:
        statements += ["TRUNCATE t", f"INSERT INTO t VALUES (50, {_BIG.format(seed=50)}, 1)", "UPDATE t SET id = 51"]
    database.execute(*statements)
    after = {(row[0],): row for row in database.execute("SELECT * FROM t")}
    rows, relations, relation = change_log_of(database)
    columns = tuple(
        LakeColumn(c.name, index + 1, lake_type(c.atttypid, c.atttypmod), c.name == "id", c.atttypid, c.atttypmod)
        for index, c in enumerate(relation.columns)
    )
    shape = TableShape(relation.relid, QualifiedName("public", "t"), columns)
    net = net_change(rows, NetRules(shape, mapped(relations, shape)))
    assert net.truncated == truncate
    assert applied(before, net.rows, [0], truncated=net.truncated) == after
    if identity == "DEFAULT" and not truncate:
        assert {"u1", "f0"} <= set(net.rows.column_names)  # the table's own documents were left where they are


def test_a_toasted_key_column(every_database: Database) -> None:
    """PostgreSQL sends the old key whenever a key column lies out of line, and 'u' in its place in the new tuple."""
    database = every_database
    # an index entry is compressed, the heap's EXTERNAL value is not: long enough for TOAST, short enough for the key
    database.execute(
        "CREATE TABLE t (id text PRIMARY KEY, n int, pad text)",
        "ALTER TABLE t ALTER id SET STORAGE EXTERNAL",
        f"CREATE PUBLICATION {database.name} FOR TABLE t",
        f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
        f"INSERT INTO t VALUES (substr({_BIG.format(seed=1)}, 1, 2500), 1, 'p')",
        "UPDATE t SET n = 2",
    )
    rows, relations, relation = change_log_of(database)
    update = read_message(rows.column("data").to_pylist()[1])
    assert isinstance(update, Update)
    assert update.old_key is not None
    assert not isinstance(update.new[0], bytes)
    columns = tuple(
        LakeColumn(c.name, index + 1, lake_type(c.atttypid, c.atttypmod), c.name == "id", c.atttypid, c.atttypmod)
        for index, c in enumerate(relation.columns)
    )
    shape = TableShape(relation.relid, QualifiedName("public", "t"), columns)
    net = net_change(rows, NetRules(shape, mapped(relations, shape)))
    expected = [{"op": 1, "v0": row[0], "v1": row[1], "v2": row[2]} for row in database.execute("SELECT * FROM t")]
    assert net.rows.to_pylist() == expected
