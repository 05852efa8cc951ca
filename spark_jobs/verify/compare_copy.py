"""Compares a table of the source with the copy of it that another tool keeps, in a Delta table of its own.

Such a copy is always a little late, so one look cannot tell a row that is wrong from one that is on its way. Rows that
differ are looked at twice, some time apart: a row that differs both times is wrong if the source did not change it in
between. Needs no slot, no change log and no lake of ours, so it can be run before anything is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from time import monotonic, sleep
from typing import TYPE_CHECKING

from spark_jobs.configuration import Pipeline
from spark_jobs.delta.files import lake_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import CdcError, ConfigurationError, LakeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected, source_errors
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.snapshot.export import ctid_ranges
from spark_jobs.snapshot.table_read import SnapshotSource, TableRead
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.verify.compare_rows import (
    IN_FLIGHT,
    comparison,
    copy_number,
    joined_rows,
    key_columns,
    source_state,
)
from spark_jobs.verify.table_verified import TableVerified, VerifyReport
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.with_spark.delta_table import table_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# types of Spark that are compared only with a column of the same type: as text, each tool writes them in its own way
_NESTED = frozenset(("array", "map", "struct", "variant"))


@dataclass(frozen=True)
class OtherCopy:
    """The Delta table at ``path``. ``columns``: its name for a column of the source that has another name there; empty:
    the column is not compared. Its other columns are its own. ``tolerance``: the seconds that it may be late."""

    path: Location
    columns: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 60.0


@dataclass(frozen=True)
class _Look:
    """The rows of both sides, joined: the source's at ``lsn``, the copy's in its ``version``, read after that."""

    lsn: Lsn
    version: int
    shape: TableShape
    joined: DataFrame


def compare_copy(
    pipeline: Pipeline,
    spark: SparkProvider,
    name: QualifiedName,
    copy: OtherCopy,
    *,
    most: int = 10,
    progress: Progress = silent,
) -> VerifyReport:
    """Compare the source's table ``name``, with all its rows, with ``copy``. Both may be written meanwhile. Types are
    those that our lake would have: what the copy has is cast to them.

    Raises ConfigurationError for a column that is missing in the copy or cannot be compared, and CdcError if a side
    cannot be read.
    """
    started = monotonic()
    failed = spark_errors(f"{name} could not be compared with {copy.path}", name=name, path=copy.path, ours=False)
    with isolated_session(spark(), {}) as own, failed:
        with _look(own, pipeline, name, copy) as look:
            result = comparison(look.joined, look.shape, most=0)
            suspects = _suspects(look).persist()
            if result.counts.differing:
                suspects.count()  # while the snapshot can be read
        if differing := result.counts.differing:
            progress(Step("verify", f"{name}: {differing:,} rows differ, and are looked at again", 1, 2, "looks"))
            sleep(max(0.0, copy.tolerance - (monotonic() - started)))
            with _look(own, pipeline, name, copy) as look:
                result = comparison(_judged(look, suspects), look.shape, most=most)
    table = TableVerified.compared(name, look.lsn, look.version, result.counts, result.rows)
    return VerifyReport((replace(table, copy=str(copy.path)),), monotonic() - started)


@contextmanager
def _look(spark: SparkSession, pipeline: Pipeline, name: QualifiedName, copy: OtherCopy) -> Iterator[_Look]:
    """The source's rows can be read until the context ends."""
    with connected(pipeline.source.dsn) as connection:
        with source_errors("no snapshot can be exported"):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchall()[0][0]
        lsn = flushed_lsn(connection)
        facts = next(iter(relation_facts(connection, names=[name], keys=pipeline.declared_keys)), None)
        facts = facts and with_options(facts, pipeline.column_options(name))
        read = TableRead.of(name, facts, ctid_ranges(connection, facts.relid) if facts else (), None)
        version = _version(copy.path)
        shape = _compared_columns(read.shape, copy)
        theirs = _as_ours(table_at(spark, copy.path, version), shape, copy)
        ours = read.rows(spark, SnapshotSource.anywhere(pipeline, snapshot))
        yield _Look(lsn, version, shape, joined_rows(ours, theirs, shape))
        with source_errors("the exported snapshot could not be kept to the end"):
            connection.execute("COMMIT")


def _version(path: Location) -> int:
    with lake_errors(f"{path} cannot be read"):
        log = TransactionLog.open(path)
    if log is None:
        raise LakeError(f"there is no Delta table at {path}", hint="name the folder that holds its _delta_log")
    return log.version


def _compared_columns(shape: TableShape, copy: OtherCopy) -> TableShape:
    names = [column.name for column in shape.columns]
    if unknown := [name for name in copy.columns if name not in names]:
        raise ConfigurationError(f"{shape.name} has no column {unknown[0]}", hint=f"it has {', '.join(names)}")
    columns = tuple(column for column in shape.columns if copy.columns.get(column.name) != "")
    if left_out := [column.name for column in shape.columns if column.key and column not in columns]:
        raise ConfigurationError(
            f"{left_out[0]} is part of the key of {shape.name}", hint="rows are compared by their keys: name its column"
        )
    return replace(shape, columns=columns)


def _as_ours(table: DataFrame, shape: TableShape, copy: OtherCopy) -> DataFrame:
    """The copy's rows with our names and types. Raises ConfigurationError for a column that is not there, or that has
    values which our type does not have: cast, they would be null, and so equal to nulls."""
    from pyspark.sql import functions as fn

    columns: list[Column] = []
    lost: list[tuple[LakeColumn, str, Column]] = []
    types = {field.name.casefold(): field.dataType.simpleString() for field in table.schema}
    for column in shape.columns:
        theirs, ours = copy.columns.get(column.name, column.name), column.lake_type.sql
        kind = types.get(theirs.casefold())
        if kind is None:
            raise _not_comparable(copy, column, f"it has no column {theirs}")
        value = fn.col(quoted(theirs))
        if kind != ours and _NESTED & {kind.partition("<")[0], ours.partition("<")[0]}:
            raise _not_comparable(copy, column, f"its column {theirs} is {kind}, and {column.name} {ours}")
        cast = value if kind == ours else value.try_cast(ours)
        columns.append(cast.alias(column.name))
        if kind != ours and ours != "string":
            lost.append((column, theirs, fn.count(fn.when(value.isNotNull() & cast.isNull(), 1))))
    if lost:
        counts = table.agg(*(count.alias(str(place)) for place, (_, _, count) in enumerate(lost))).collect()[0]
        for (column, theirs, _), count in zip(lost, counts, strict=True):
            if count:
                raise _not_comparable(copy, column, f"{count:,} values of {theirs} are no {column.lake_type.sql}")
    return table.select(*columns)


def _not_comparable(copy: OtherCopy, column: LakeColumn, why: str) -> CdcError:
    return ConfigurationError(
        f"{copy.path} cannot be compared: {why}",
        hint=f"name the column with --column {column.name}=THEIRS, or leave it out with --column {column.name}=",
    )


def _identity(shape: TableShape) -> list[Column]:
    """What makes a row of the second look the same as one of the first."""
    values = [*key_columns(shape), copy_number(shape), source_state(shape)]
    return [value.alias(f"id{place}") for place, value in enumerate(values)]


def _suspects(look: _Look) -> DataFrame:
    from pyspark.sql import functions as fn

    return look.joined.where(fn.col("difference").isNotNull()).select(*_identity(look.shape))


def _judged(look: _Look, suspects: DataFrame) -> DataFrame:
    """The rows of the second look: a difference is one if it is among the ``suspects`` with the same state of the
    source."""
    from pyspark.sql import functions as fn

    identity = _identity(look.shape)
    names = [f"id{place}" for place in range(len(identity))]
    rows = look.joined.select("*", *identity)
    known = suspects.select(*(fn.col(name).alias(f"known_{name}") for name in names), fn.lit(True).alias("known"))
    same = reduce(and_, (fn.col(name).eqNullSafe(fn.col(f"known_{name}")) for name in names))
    again = fn.when(fn.col("difference").isNotNull() & fn.col("known").isNull(), IN_FLIGHT)
    return rows.join(known, same, "left_outer").withColumn("difference", fn.coalesce(again, fn.col("difference")))
