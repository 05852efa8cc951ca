"""Tables that are compacted without Spark: every row stays as it was. And tables that are not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan, nan
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction

from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.own_commit import commit_info, create_table, write_commit
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.plain_table import compacted, has_known_columns, plain_table, small_files

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(38, 10)), ("s", pa.string())),
        *(("b", pa.binary()), ("day", pa.date32()), ("local", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))),
    ]
)


def _row(number: int, year: int) -> dict[str, object]:
    moment = datetime(year, 1, 2, 3, 4, 5, 678901)
    text, amount = f"{number}\x00ü", Decimal(f"{number}.0000000001")
    return dict(
        zip(
            SCHEMA.names,
            (number, nan, amount, text, b"\xff", date(year, 1, 1), moment, moment.replace(tzinfo=UTC)),
            strict=True,
        )
    )


def _rows(path: Path) -> list[tuple[object, ...]]:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT * FROM t ORDER BY id").read_all()
    rows = pa.table(found).to_pylist()
    assert all(row["f"] is None or isnan(row["f"]) for row in rows)
    return [tuple(value for name, value in row.items() if name != "f") for row in rows]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of four files: one has fewer columns, one is as Spark writes it, one has nothing but nulls."""
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"id": pa.array([0], pa.int64())}))
    whole = pa.Table.from_pylist([_row(1, 1), _row(2, 9999)], SCHEMA)
    write_deltalake(str(path), whole, mode="append", schema_mode="merge")
    theirs = pa.Table.from_pylist([_row(3, 1600), _row(4, 9999)], SCHEMA)
    instants = theirs.select(["local"]).rename_columns(["at"])
    # Spark has no such form for a time without a zone
    both = theirs.drop_columns(["at"]).append_column("at", instants.column("at"))
    pq.write_table(both, path / "spark.parquet", use_deprecated_int96_timestamps=True)
    nulls = [{"id": 5, **dict.fromkeys(SCHEMA.names[1:])}]
    write_deltalake(str(path), pa.Table.from_pylist(nulls, SCHEMA), mode="append")
    table = plain_table(Location.of(str(path)))
    assert table is not None
    size = (path / "spark.parquet").stat().st_size
    table.with_replaced([], [AddAction("spark.parquet", size, {}, 0, True, "{}")])
    return path


def test_compacted_rows_are_as_they_were(path: Path) -> None:
    before = _rows(path)
    assert len(before) == 6
    table = plain_table(Location.of(str(path)))
    assert table is not None
    assert len(small_files(table)) == 4
    done = compacted(table, small_files(table))
    assert len(done.files) == 1
    assert small_files(done) == ()
    assert plain_table(Location.of(str(path))) is not None
    assert _rows(path) == before
    (commit,) = DeltaTable(str(path)).history(1)
    assert commit["operation"] == "OPTIMIZE"
    (stats,) = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True)).to_pylist()
    assert (stats["num_records"], stats["min.id"], stats["max.id"]) == (6, 0, 5)
    assert len([*path.glob("*.parquet")]) == 5, "older versions still need them"


def test_tables_that_ask_more_of_a_writer_are_left_to_spark(path: Path) -> None:
    table = plain_table(Location.of(str(path)))
    assert table is not None
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    name = next(iter(table.files))
    replaced = [{"add": {**table.files[name], "deletionVector": vector}}, {"remove": {"path": name}}]
    others = {
        "deletion vectors": replaced,
        "deletion vectors of an older version": [{"remove": {"path": name, "deletionVector": vector}}],
        "partitions": [{"metaData": {**table.metadata, "partitionColumns": ["id"]}}],
        "a clone": [{"add": {**table.files[name], "path": "file:/lake/other/part.parquet"}}],
        **{
            feature: [{"protocol": protocol | {"readerFeatures": [feature], "writerFeatures": [feature]}}]
            for feature in ("columnMapping", "typeWidening", "v2Checkpoint")
        },
        **{
            feature: [{"protocol": protocol | {"readerFeatures": [], "writerFeatures": [feature]}}]
            for feature in ("changeDataFeed", "clustering", "rowTracking", "inCommitTimestamp")
        },
    }
    log = path / "_delta_log" / f"{table.version + 1:020}.json"
    for why, actions in others.items():
        supported = {"protocol": protocol | features}
        assert write_commit(Location.of(str(path)), table.version + 1, [commit_info("TEST", {}), supported, *actions])
        assert plain_table(Location.of(str(path))) is None, why
        log.unlink()
    assert write_commit(
        Location.of(str(path)), table.version + 1, [commit_info("TEST", {}), {"protocol": protocol | features}]
    )
    assert plain_table(Location.of(str(path))) is not None, "the feature alone does no harm"


def test_structs_are_put_together_by_spark(tmp_path: Path) -> None:
    path = Location.of(str(tmp_path))
    assert plain_table(path) is None, "there is no table"
    field = {"name": "a", "nullable": True, "metadata": {}}
    array = {"type": "array", "elementType": "string", "containsNull": True}
    struct = {"type": "struct", "fields": [{**field, "type": "string"}]}
    for name, told, is_known in (("text", "string", True), ("array", array, True), ("struct", struct, False)):
        transaction = Transaction("a", 1)
        assert create_table(
            path / name, [{**field, "type": told}], {}, (), transaction, features=(), user_metadata="{}", rows=0
        )
        table = plain_table(path / name)
        assert table is not None
        assert has_known_columns(table) is is_known
    (tmp_path / "text" / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"protocol": {}})[:-3])
    assert plain_table(path / "text") is None, "it is damaged"
