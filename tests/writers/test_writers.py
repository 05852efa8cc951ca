"""Conformance of the writers, without a source: whoever says that it can write a change leaves the rows that plain
Python computes, in one commit that has the next number, says where it comes from, and describes its files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from pydantic import SecretStr

from spark_jobs.configuration import Lake, MergeEngine, Pipeline, Source
from spark_jobs.delta.data_files import DataFiles
from spark_jobs.delta.files import create_local_folder
from spark_jobs.delta.table import delta_identifier
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.lake.generation import Generation
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import CommitColumn, Form, Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import NetColumns, arrow_schema, ddl, value, value_fields
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import named_columns
from spark_jobs.writers.net_source import NetSource, key_range_of
from spark_jobs.writers.table_commit import Provenance, commit_without_rows, committing_session
from spark_jobs.writers.table_writer import WrittenTable, write_net
from spark_jobs.writers.with_arrow.opened_table import opened_table
from spark_jobs.writers.with_arrow.rewritten_rows import rows_of_snapshot, with_snapshot
from spark_jobs.writers.with_arrow.rows_of_table import readable_table, rows_of_table
from spark_jobs.writers.with_arrow.whole_table import WholeTable
from spark_jobs.writers.with_spark.delta_table import replace_table, table_at, with_metadata
from spark_jobs.writers.with_spark.past_rows import rows_with_past, snapshot_rows
from tests.at_night import at_night

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
NAME, ORIGINAL = QualifiedName("public", "t"), QualifiedName("public", "original")
SNAPSHOT_AT = 1_700_000_000_000_000
SNAPSHOT = Moment(Lsn(16), SNAPSHOT_AT)
SNAPSHOT_COMMIT = int(SNAPSHOT.lsn), datetime.fromtimestamp(SNAPSHOT_AT / 1e6, UTC)
REWRITES = WriteLimits(rewritten_rows=0, rewritten_share=0.0, streamed_share=0.0)
INSTANT = datetime(2024, 3, 31, 0, 59, 59, 999999, UTC)

# the type of a key, and key number n
KEYS: dict[str, tuple[str, Callable[[int], object]]] = {
    "int": ("int", lambda n: n - 10),
    "bigint": ("bigint", lambda n: n * 4_000_000_000),
    "date": ("date", lambda n: date(1582, 10, 1) + timedelta(n)),
    "text": ("string", lambda n: f"Grüße '{n}'"),
    "decimal": ("decimal(38,4)", lambda n: Decimal(f"{n}.1250")),
    "bytes": ("binary", lambda n: bytes([0, n])),
    "instant": ("timestamp", lambda n: INSTANT + timedelta(hours=n)),
    "double": ("double", lambda n: (float("nan"), -0.0, float("inf"))[n] if n < 3 else n / 3),
}
VALUES: dict[str, tuple[str, Callable[[int], object]]] = {
    "flag": ("boolean", lambda n: n % 2 == 0),
    "small": ("smallint", lambda n: n - 32768),
    "big": ("bigint", lambda n: -(2**63) + n),
    "single": ("float", lambda n: float("nan") if n % 3 else 0.5),
    "precise": ("double", lambda n: float("-inf") if n % 3 else -0.0),
    "amount": ("decimal(38,4)", lambda n: Decimal(f"{10**34 - 1}.{n:04}")),
    "day": ("date", lambda n: date(1, 1, 1) + timedelta(n)),
    "local": ("timestamp_ntz", lambda n: datetime(9999, 12, 31, 23, 59, 59, n)),
    "moment": ("timestamp", lambda n: INSTANT + timedelta(microseconds=n)),
    "raw": ("binary", lambda n: bytes(range(n))),
    "te;xt (s)": ("string", lambda n: "😀\x01'" * (n % 4)),
}
FEATURES: dict[str, str] = {
    "deletion vectors": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "a change data feed": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "row tracking": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "type widening": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    "appends only": "ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "a column of others": "ALTER TABLE {} ADD COLUMN theirs int",
    "partitions": "",
    "percent in the path": "",
    "a shallow clone": "",
}
COMMITS = "commit columns"
STEPS = ("append", "merge", "keep", "rewrite", "overwrite")
# the steps that the driver's process writes; all others are Spark's
BY_DRIVER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*KEYS, "two columns", "arrays", "deletion vectors", COMMITS), STEPS),
    "appends only": ("append",),
    # the merge in between leaves no file of the other table
    "a shallow clone": ("append", "keep", "rewrite", "overwrite"),
}
ARRAYS: dict[str, tuple[str, Callable[[int], object]]] = {
    "numbers": ("array<int>", lambda n: [n, None][: n % 3]),
    "reals": ("array<double>", lambda n: [float("nan"), -0.0] * (n % 2)),
    "moments": ("array<timestamp>", lambda n: [INSTANT + timedelta(n)]),
    "texts": ("array<string>", lambda n: ["", "😀", None, f"{n}"]),
}
# what Spark merges in place of a rewrite: their readers follow single rows, nobody knows how many rows they have, or
# others have added a column
MERGED = ("a change data feed", "row tracking", "percent in the path", "a column of others")


def shape_of(kind: str) -> TableShape:
    keys = ("text", "int") if kind == "two columns" else (kind if kind in KEYS else "int",)
    typed = [("id" if place == 0 else "part", KEYS[key][0]) for place, key in enumerate(keys)]
    typed += [(name, sql) for name, (sql, _) in values_of(kind).items()]
    columns = []
    for number, (name, sql) in enumerate(typed, 1):
        lake_type = LakeType.of_sql(sql)
        assert lake_type is not None
        columns.append(LakeColumn(name, number, lake_type, number <= len(keys) and not kind.startswith("no key")))
    shape = TableShape(5, NAME, tuple(columns))
    return shape.with_commit_columns(get_args(CommitColumn)) if kind.endswith(COMMITS) else shape


def values_of(kind: str) -> dict[str, tuple[str, Callable[[int], object]]]:
    return ARRAYS | VALUES if kind.endswith("arrays") else VALUES


def row_of(kind: str, n: int, version: int = 0) -> Row:
    keys = ("text", "int") if kind == "two columns" else (kind if kind in KEYS else "int",)
    values = (
        None if (n + place) % 5 == 4 else of(n + version) for place, (_, of) in enumerate(values_of(kind).values())
    )
    commit = (100 + version, INSTANT + timedelta(days=version)) if version else SNAPSHOT_COMMIT
    return (*(KEYS[key][1](n) for key in keys), *values, *(commit if kind.endswith(COMMITS) else ()))


@dataclass
class Table:
    """A table in the lake, and the ``rows`` that it should have."""

    spark: SparkSession
    kind: str
    lake: Path
    mode: Mode
    rows: list[Row]
    commits: int = 1

    @property
    def shape(self) -> TableShape:
        return shape_of(self.kind)

    @property
    def read(self) -> TableShape:
        """The table as a snapshot reads it."""
        return replace(self.shape, columns=self.shape.source_columns)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline("t", Source(SecretStr(""), "slot", "publication"), Lake(str(self.lake)))

    def log(self) -> TransactionLog:
        log = TransactionLog.open(self.pipeline.lake.table(NAME))
        assert log is not None
        return log

    @property
    def form(self) -> Form:
        return Form(self.mode, get_args(CommitColumn) if self.kind.endswith(COMMITS) else ())

    def provenance(self) -> Provenance:
        ends = (self.commits, self.commits, Lsn(16 * self.commits), Lsn(16 * self.commits + 8))
        return Provenance(7, "slot", Generation(SNAPSHOT.lsn, mode=self.mode), *ends, self.shape.relid, self.commits)

    def create(self, engine: MergeEngine) -> None:
        """With ``auto`` by the driver's process where that can be, as a snapshot is."""
        path = self.pipeline.lake.table(NAME)
        made = self.pipeline.lake.table(ORIGINAL) if self.kind == "a shallow clone" else path
        names = value_fields(self.read)
        rows = pa.Table.from_pylist([_named(row[: len(names)]) for row in self.rows], arrow_schema(names))
        whole = WholeTable.of(made, self.shape, self.provenance()) if engine == "auto" else None
        if whole is None:
            self._create_by_spark(rows, made)
        else:
            create_local_folder(made)
            files = DataFiles(made, whole.layout)
            files.write_all(rows_of_snapshot(batch, self.form, SNAPSHOT) for batch in rows.to_batches())
            whole.commit(files.actions, rows.num_rows, self.provenance())
        at = SNAPSHOT_COMMIT
        past: dict[Mode, Row] = {"mirror": (), "soft_delete": (None,), "history": (*at, None, None)}
        past["append"] = ("snapshot", at[0], -1, at[1], None, None)
        self.rows = [(*row, *past[self.mode]) for row in self.rows]
        if self.kind == "partitions":
            again = table_at(self.spark, path).write.format("delta").mode("overwrite").partitionBy("flag")
            again.option("overwriteSchema", "true").save(path)
        if self.kind == "a shallow clone":
            self.spark.sql(f"CREATE TABLE {delta_identifier(path)} SHALLOW CLONE {delta_identifier(made)}")
            commit_without_rows(self.spark, path, self.provenance())
        if statement := FEATURES.get(self.kind):
            self.spark.sql(statement.format(delta_identifier(path)))
        if self.kind == "deletion vectors":
            self.spark.sql(f"DELETE FROM {delta_identifier(path)} WHERE id = -7")
            self.rows = [row for row in self.rows if row[0] != -7]

    def _create_by_spark(self, rows: pa.Table, path: Location) -> None:
        columns = self.read.columns
        with committing_session(self.spark, path, self.provenance()) as own:
            frame = own.createDataFrame(rows, schema=ddl(value_fields(self.read))).selectExpr(*named_columns(columns))
            frame = snapshot_rows(frame, self.form, SNAPSHOT)
            replace_table(with_metadata(frame, columns, self.form), path)

    def write(self, net: NetSource, engine: MergeEngine, limits: WriteLimits = WriteLimits()) -> str:  # noqa: B008
        """Returns the writer, after a look at the commit."""
        path, before = self.pipeline.lake.table(NAME), self.log().version
        pipeline = replace(self.pipeline, merge_engine=engine, writes=limits)
        self.commits += 1
        provenance = self.provenance()
        table = WrittenTable(pipeline, NAME, lambda: self.spark, "failed", opened_table(path, before))
        written = write_net(table, net, provenance)
        log = self.log()
        commit = next(log.commits())
        assert (written.version, log.version) == (before + 1, before + 1)
        assert [(each.app_id, each.version) for each in commit.transactions] == [("pgcdc:7:slot:table", self.commits)]
        assert commit.id == provenance.id
        assert commit.user_metadata == json.loads(replace(provenance, strategy=written.way.strategy).user_metadata())
        assert not [*commit.actions("protocol"), *commit.actions("metaData")]
        for add in commit.actions("add"):
            assert json.loads(add["stats"])["numRecords"] >= 0
            assert (add["dataChange"], "%25" in add["path"]) == (True, False)
        if written.way.writer == "deltalake":
            state = written.provenance.state(NAME, written.version)
            assert (state.version, state.commits, state.mode) == (written.version, self.commits, self.mode)
        if written.way.strategy in ("append", "rewrite") and not net.keeps_values:  # nobody commits this number again
            with pytest.raises(OvertakenError):
                write_net(replace(table, opened=opened_table(path, log.version)), net, provenance)
        return f"{written.way.writer} {written.way.strategy}"

    def assert_rows(self, *, by_spark: bool = True) -> None:
        """As Spark reads them, or between two steps ``deltalake``, which takes a tenth of the time, where it can."""
        path = self.pipeline.lake.table(NAME)
        names = [column.name for column in self.shape.columns] + [column.name for column in mode_columns(self.mode)]
        quick = None if by_spark else readable_table(path)
        if quick is not None:
            read = rows_of_table(quick).select(names).to_pydict()
        else:
            quoted = (f"`{name.replace('`', '``')}`" for name in names)
            read = table_at(self.spark, path).select(*quoted).toArrow().to_pydict()
        assert Counter(map(_printed, zip(*read.values(), strict=True))) == Counter(map(_printed, self.rows))


def _printed(row: Row) -> str:
    def in_utc(each: object) -> object:
        if isinstance(each, list):
            return [*map(in_utc, each)]
        return each.astimezone(UTC) if isinstance(each, datetime) and each.tzinfo else each

    return repr(tuple(map(in_utc, row)))


def _named(row: Sequence[object], first: int = 0) -> dict[str, object]:
    return {value(place): each for place, each in enumerate(row, first)}


def net_of(
    columns: NetColumns, rows: Sequence[dict[str, object]], needs: str = "merge", ended: Moment | None = None
) -> NetSource:
    net = pa.Table.from_pylist([*rows], arrow_schema(columns.fields))
    return NetSource(
        columns,
        truncated=needs == "overwrite",
        insert_only=needs != "merge",
        key_range=None if columns.mode == "append" else key_range_of(net, columns.shape),
        read=lambda own: own.createDataFrame(net, schema=ddl(columns.fields)).coalesce(1),
        rows=net.num_rows,
        ended=ended,
        broadcast=True,
        in_memory=net,
    )


def mirrored(table: Table, step: str) -> NetSource:
    """The net change of a step; the table's rows become those that it should leave."""
    kind, shape = table.kind, table.shape
    width = len(shape.key_indices)
    changed = {
        "append": [row_of(kind, n) for n in range(20, 26)],
        "merge": [row_of(kind, n, 1) for n in (1, 3, 20, 30)],
        "keep": [row_of(kind, n, 2) for n in (4, 40, 41)],
        "rewrite": [row_of(kind, n, 3) for n in (6, 7, 8, 9, 50)],
        "overwrite": [row_of(kind, n) for n in (60, 61)],
    }[step]
    gone = {"merge": (2, 21, 99), "keep": (5,), "rewrite": (1, 40)}.get(step, ())
    held = {} if step == "overwrite" else {repr(row[:width]): row for row in table.rows}
    columns, net = NetColumns(shape), [{"op": 1, **_named(row)} for row in changed]
    if step == "keep":  # the last value is not sent: that of row 4, and that of row 5, which becomes row 40
        last = len(shape.source_columns) - 1
        columns = NetColumns(shape, (last,), shape.key_indices)
        texts = [held[repr(row_of(kind, n)[:width])][last] for n in (4, 5)]
        given = zip(changed, (*texts, changed[2][last]), strict=True)
        changed = [(*row[:last], text, *row[last + 1 :]) for row, text in given]
        for change, is_kept in zip(net, (True, True, False), strict=True):
            change |= {f"u{last}": is_kept, **({f"v{last}": None} if is_kept else {})}
        net[1] |= {f"f{place}": each for place, each in enumerate(row_of(kind, 5)[:width])}
    net += [{"op": 0, **_named(row_of(kind, n)[:width])} for n in gone]
    for n in gone:
        held.pop(repr(row_of(kind, n)[:width]), None)
    table.rows = [*(held | {repr(row[:width]): row for row in changed}).values()]
    return net_of(columns, net, step if step in ("append", "overwrite") else "merge")


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Callable[..., Table]:
    def make(kind: str, mode: Mode = "mirror", engine: MergeEngine = "auto") -> Table:
        first = [row_of(kind, n) for n in range(10)]
        if kind.startswith("no key"):
            first += first[:5]
        table = Table(spark, kind, tmp_path / ("a%20lake" if kind.startswith("percent") else "lake"), mode, first)
        table.create(engine)
        return table

    return make


KEYS_BY_DAY = ("int", "text", "double")
# of these the choice of the writer knows no more than that it does not know them, as of a change data feed
FEATURES_BY_NIGHT = ("row tracking", "type widening")
# where ``auto`` leaves every step to Spark, ``spark`` shows nothing else
BY_SPARK_TOO = [kind for kind, steps in BY_DRIVER.items() if steps and kind != "appends only"]
BY_SPARK_BY_DAY = ("deletion vectors",)
# of these Spark writes every step, so by day two show the choice; a rewrite is the one that some of them refuse
SPARKS = [kind for kind in FEATURES if kind not in BY_DRIVER and kind not in FEATURES_BY_NIGHT]


@pytest.mark.parametrize(
    ("kind", "engine", "steps"),
    [
        *(
            (kind, "auto", STEPS)
            for kind in (*KEYS_BY_DAY, "two columns", "arrays", COMMITS, *FEATURES)
            if kind not in (*FEATURES_BY_NIGHT, *SPARKS)
        ),
        *((kind, "auto", ("merge", "rewrite")) for kind in SPARKS),
        *(at_night(kind, "auto", STEPS) for kind in (*KEYS, *FEATURES_BY_NIGHT, *SPARKS) if kind not in KEYS_BY_DAY),
        *((kind, "spark", STEPS) for kind in BY_SPARK_BY_DAY),
        *(at_night(kind, "spark", STEPS) for kind in BY_SPARK_TOO if kind not in BY_SPARK_BY_DAY),
    ],
)
def test_mirrored_rows(made: Callable[..., Table], kind: str, engine: MergeEngine, steps: Sequence[str]) -> None:
    table = made(kind, engine=engine)
    for step in steps:
        before = table.rows
        net = mirrored(table, step)
        if kind == "appends only" and step != "append":
            with pytest.raises(LakeError, match="appendOnly"):
                table.write(net, engine, REWRITES if step == "rewrite" else WriteLimits())
            table.rows, table.commits = before, table.commits - 1
            continue
        way = table.write(net, engine, REWRITES if step == "rewrite" else WriteLimits())
        writer = "deltalake" if engine == "auto" and step in BY_DRIVER.get(kind, ()) else "spark"
        strategy = "merge" if step == "keep" or (step == "rewrite" and kind in MERGED) else step
        if kind == "deletion vectors" and engine == "auto" and step == "merge":
            strategy = "rewrite"
        assert way == f"{writer} {strategy}", step
        table.assert_rows(by_spark=step == steps[-1])


@pytest.mark.parametrize("engine", ["auto", at_night("spark")])
@pytest.mark.parametrize("kind", ["int", "no key"])
def test_values_in_a_column_of_others_stay(made: Callable[..., Table], kind: str, engine: MergeEngine) -> None:
    table = made(kind, engine=engine)
    path = delta_identifier(table.pipeline.lake.table(NAME))
    for statement in ("ALTER TABLE {} ADD COLUMN theirs string", "UPDATE {} SET theirs = 'value ' || id"):
        table.spark.sql(statement.format(path))
    net = mirrored(table, "rewrite") if kind == "int" else _without(table, 0)
    table.write(net, engine, REWRITES)
    theirs = {row["id"]: row["theirs"] for row in table.spark.sql(f"SELECT id, theirs FROM {path}").collect()}
    changed = {row_of(kind, n)[0] for n in (6, 7, 8, 9, 50)} if kind == "int" else set()
    assert len(theirs) > 5
    assert {n: value for n, value in theirs.items() if n not in changed and value != f"value {n}"} == {}


def _without(table: Table, n: int) -> NetSource:
    """All copies of a row of a table without a key go."""
    row = row_of(table.kind, n)
    copies = table.rows.count(row)
    return net_of(NetColumns(table.shape), [{"copies": -copies, **_named(row)}])


ENGINES = pytest.mark.parametrize(("engine", "writer"), [("auto", "deltalake"), ("spark", "spark")])


@pytest.mark.parametrize(
    ("kind", "engine", "writer"),
    [
        *((kind, "auto", "deltalake") for kind in ("no key", "no key, arrays")),
        ("no key", "spark", "spark"),
        at_night("no key, arrays", "spark", "spark"),  # by day rows that are almost equal have them
    ],
)
def test_rows_without_a_key(made: Callable[..., Table], kind: str, engine: MergeEngine, writer: str) -> None:
    table = made(kind, engine=engine)
    for step, copies in (
        ("append", {20: 2, 21: 1}),
        ("merge", {0: -1, 1: -2, 7: -1, 20: 1, 30: 3}),
        ("rewrite", {0: -1, 20: -2, 21: 1, 30: -1, 31: 1}),
        ("overwrite", {60: 2}),
    ):
        held = Counter() if step == "overwrite" else Counter({repr(row): table.rows.count(row) for row in table.rows})
        rows = {repr(row): row for row in (*table.rows, *(row_of(kind, n) for n in copies))}
        held.update({repr(row_of(kind, n)): count for n, count in copies.items()})
        table.rows = [rows[each] for each in held.elements()]
        net = [{"copies": count, **_named(row_of(kind, n))} for n, count in copies.items()]
        needs, limits = ("merge", REWRITES) if step == "rewrite" else (step, WriteLimits())
        assert table.write(net_of(NetColumns(table.shape), net, needs), engine, limits) == f"{writer} {step}"
        table.assert_rows(by_spark=step == "overwrite")


@pytest.mark.parametrize(
    ("engine", "writer", "limits"),
    [
        ("auto", "deltalake", WriteLimits()),
        ("auto", "deltalake", REWRITES),
        ("spark", "spark", WriteLimits()),
        at_night("spark", "spark", REWRITES),  # it tells rows apart as the merge does
    ],
    ids=["merge-auto", "rewrite-auto", "merge-spark", "rewrite-spark"],
)
def test_rows_that_are_almost_equal_stay(
    made: Callable[..., Table], engine: MergeEngine, writer: str, limits: WriteLimits
) -> None:
    """Zeros that differ in their sign alone, in a column and in an array; nulls in another place, or instead of
    nothing; and one of more copies than go."""
    table, kind = made("no key, arrays", engine=engine), "no key, arrays"
    names = ["id", *values_of(kind)]

    def row(**values: object) -> Row:
        return tuple(values.get(name) for name in names)

    near = [
        row(precise=0.0),
        row(precise=-0.0),
        row(reals=[0.0]),
        row(reals=[-0.0]),
        row(reals=[None]),
        row(reals=[]),
        row(texts=["a", None]),
        row(texts=[None, "a"]),
        row(id=1, small=None),
        row(id=None, small=1),
        row(raw=b""),
        row(raw=None),
        row(single=float("nan"), amount=Decimal("0.0001")),
        row(single=float("nan"), amount=Decimal("0.0002")),
    ]
    columns = NetColumns(table.shape)
    table.write(net_of(columns, [{"copies": 2, **_named(each)} for each in near], "append"), engine)
    table.write(
        net_of(columns, [{"copies": -1 - place % 2, **_named(each)} for place, each in enumerate(near)]), engine, limits
    )
    table.rows += near[::2]
    table.assert_rows()
    with pytest.raises(LakeError, match="does not have"):
        table.write(net_of(columns, [{"copies": -1, **_named(near[1])}]), engine, limits)
    table.commits -= 1
    lenient = replace(net_of(columns, [{"copies": -2, **_named(near[0])}]), lenient=True)
    assert table.write(lenient, engine, limits).startswith(writer)
    table.rows.remove(near[0])
    table.assert_rows()


@ENGINES
@pytest.mark.parametrize(("strategy", "limits"), [("merge", WriteLimits()), at_night("rewrite", REWRITES)])
def test_the_oldest_of_equal_rows_goes(
    made: Callable[..., Table], engine: MergeEngine, writer: str, strategy: str, limits: WriteLimits
) -> None:
    """Rows of the first commit were there, and some of the second come in the same net change."""
    kind = f"no key, {COMMITS}"
    table = made(kind, engine=engine)
    source = len(table.shape.source_columns)

    def come(n: int, version: int, copies: int) -> dict[str, object]:
        return {"copies": copies, **_named((*row_of(kind, n)[:source], *row_of(kind, n, version)[source:]))}

    def go(n: int, copies: int) -> dict[str, object]:
        return {"copies": -copies, **_named(row_of(kind, n)[:source])}

    def left(**versions: Sequence[int]) -> list[Row]:
        return [
            (*row_of(kind, int(n[1:]))[:source], *row_of(kind, 0, version)[source:])
            for n, of_row in versions.items()
            for version in of_row
        ]

    changed = f"{writer} {strategy}"
    others = [row for row in table.rows if row[0] not in {row_of(kind, n)[0] for n in range(3)}]
    net = [come(0, 2, 2), go(0, 1), go(1, 2), come(2, 2, 1), come(2, 3, 1), go(2, 3), come(20, 2, 1)]
    assert table.write(net_of(NetColumns(table.shape), net), engine, limits) == changed
    table.rows = [*others, *left(_0=(0, 2, 2), _2=(3,), _20=(2,))]
    table.assert_rows(by_spark=False)
    net = [come(0, 3, 1), go(0, 4), go(20, 1)]
    assert table.write(net_of(NetColumns(table.shape), net), engine, limits) == changed
    table.rows = others + left(_2=(3,))
    table.assert_rows(by_spark=False)
    with pytest.raises(LakeError, match="does not have"):
        table.write(net_of(NetColumns(table.shape), [come(2, 4, 1), go(2, 3)]), engine, limits)
    table.commits -= 1
    lenient = replace(
        net_of(NetColumns(table.shape), [come(2, 4, 1), come(2, 5, 1), go(2, 2), go(50, 1)]), lenient=True
    )
    assert table.write(lenient, engine, limits) == changed
    table.rows = others + left(_2=(5,))
    table.assert_rows(by_spark=False)
    net = [come(0, 4, 2), come(1, 4, 1), come(0, 5, 1), go(0, 2), go(1, 1)]
    assert table.write(net_of(NetColumns(table.shape), net, "overwrite"), engine) == f"{writer} overwrite"
    table.rows = left(_0=(5,))
    table.assert_rows()


WITH_COMMITS = pytest.mark.parametrize(
    ("kind", "engine", "writer"),
    [
        *((kind, "auto", "deltalake") for kind in ("int", COMMITS)),
        ("int", "spark", "spark"),
        at_night(COMMITS, "spark", "spark"),
    ],
)


@WITH_COMMITS
def test_soft_delete(made: Callable[..., Table], kind: str, engine: MergeEngine, writer: str) -> None:
    table = made(kind, "soft_delete", engine)
    columns, source = NetColumns(table.shape, mode="soft_delete"), len(table.shape.source_columns)
    has_commits = kind == COMMITS
    for changed, gone, ended in (
        ((1, 30), (2, 3), None),
        ((2, 4), (5, 99), None),
        ((6, 61), (), Moment(Lsn(99), SNAPSHOT_AT + 7)),
    ):
        lsn, at = 1000 * table.commits, INSTANT + timedelta(days=table.commits)
        commit = (lsn, at) if has_commits else ()
        held = {row[0]: row for row in table.rows}
        if ended is not None:
            over = datetime.fromtimestamp(SNAPSHOT_AT // 10**6, UTC) + timedelta(microseconds=7)
            marks = ((99, over) if has_commits else ()) + (over,)
            held = {key: (*row[:source], *marks) if row[-1] is None else row for key, row in held.items()}
        held |= {(row := row_of(kind, n, 1))[0]: (*row, None) for n in changed}
        for n in gone:
            if (there := held.get(row_of(kind, n)[0])) is not None:
                held[there[0]] = (*there[:source], *commit, at)
        table.rows = [*held.values()]
        net = [{"op": 1, **_named(row_of(kind, n, 1))} for n in changed]
        net += [{"op": 0, **_named(row_of(kind, n)[:1]), **_named(commit, source), "deleted_at": at} for n in gone]
        assert table.write(net_of(columns, net, ended=ended), engine) == f"{writer} merge"
        table.assert_rows(by_spark=ended is not None)


@WITH_COMMITS
def test_history(made: Callable[..., Table], kind: str, engine: MergeEngine, writer: str) -> None:
    table = made(kind, "history", engine)
    columns, source = NetColumns(table.shape, mode="history"), len(table.shape.source_columns)

    def named(*commit: object) -> Row:
        return commit if kind == COMMITS else ()

    for changed, gone, ended in (
        ((1, 30), (2,), None),
        ((1, 2), (3,), None),
        ((61,), (), Moment(Lsn(99), None)),
    ):
        lsn, at = 1000 * table.commits, INSTANT + timedelta(days=table.commits)
        ends = {row_of(kind, n)[0] for n in (*changed, *gone)}
        held = []
        for row in table.rows:
            over = (lsn, at) if row[0] in ends else None if ended is None else (99, None)
            is_over = row[-2] is None and over is not None
            held.append((*row[:source], *named(*over), *row[-4:-2], *over) if is_over and over else row)
        new = [(*row_of(kind, n, table.commits)[:source], *named(lsn, at), lsn, at, None, None) for n in changed]
        table.rows = [*held, *new]
        net = [{"op": 1, **_named(row[:-4]), "from_lsn": lsn, "from_at": at} for row in new]
        net += [
            {"op": 0, "v0": key, **_named(named(lsn, at), source), "to_lsn": lsn, "to_at": at} for key in sorted(ends)
        ]
        assert table.write(net_of(columns, net, ended=ended), engine) == f"{writer} merge"
        table.assert_rows(by_spark=ended is not None)


@ENGINES
def test_changes_as_rows(made: Callable[..., Table], engine: MergeEngine, writer: str) -> None:
    table = made("no key", "append", engine)
    columns = NetColumns(table.shape, mode="append")
    kept = ("insert", 99, 3, INSTANT, 12, ["te;xt (s)"])
    new = [row_of("no key", n) for n in (1, 2)]
    table.rows += [(*row, *kept) for row in new]
    names = [column.net for column in mode_columns("append")]
    net = [{**_named(row), **dict(zip(names, kept, strict=True))} for row in new]
    assert table.write(net_of(columns, net, "append"), engine) == f"{writer} append"
    table.assert_rows()


@pytest.mark.parametrize("kind", ["double", COMMITS])
@pytest.mark.parametrize("mode", ["soft_delete", "history"])
def test_the_past_beside_a_new_snapshot(made: Callable[..., Table], kind: str, mode: Mode) -> None:
    """As Spark computes it: of rows that are equal, that differ, that are gone or new, and of past ones."""
    table = made(kind, mode)
    own, at, source = NetColumns(table.shape, mode=mode), INSTANT, table.read.columns
    ends = {"deleted_at": at} if mode == "soft_delete" else {"to_lsn": 99, "to_at": at}
    commit = _named((99, at) if kind == COMMITS else (), len(source))
    net = [{"op": 0, **_named(row_of(kind, n)[:1]), **commit, **ends} for n in (3, 4)]
    table.write(net_of(own, net), "auto")
    path, later = table.pipeline.lake.table(NAME), Moment(Lsn(999), SNAPSHOT_AT + 10**6)
    rows_read = [row_of(kind, n, n // 7)[: len(source)] for n in (0, 1, 2, 3, 5, 7, 8, 20)]
    values = pa.Table.from_pylist([*map(_named, rows_read)], arrow_schema(value_fields(table.read)))
    held = readable_table(path)
    assert held is not None
    rows = pa.Table.from_batches([rows_of_snapshot(batch, table.form, later) for batch in values.to_batches()])
    found = with_snapshot(rows_of_table(held), rows, table.shape, mode, later)
    frame = table.spark.createDataFrame(values, schema=ddl(value_fields(table.read)))
    by_spark = rows_with_past(
        frame.selectExpr(*named_columns(source)), path, table.read, table.form, later, by_number=True
    )
    wanted = by_spark.toArrow().select(found.column_names)
    assert found.num_rows == (11 if mode == "soft_delete" else 14)
    assert Counter(map(_printed, zip(*found.to_pydict().values(), strict=True))) == Counter(
        map(_printed, zip(*wanted.to_pydict().values(), strict=True))
    )
