"""Names for the lake's tables in a catalogue that Spark knows: Hive's metastore, Unity's, or another one.

A name points to the folder of a Delta table, without columns of its own: they are those of Delta's log, so DDL of the
source needs no statement here. Spark is not started for it: the first session that a run starts gives a table its name.
https://spark.apache.org/docs/latest/sql-ref-syntax-ddl-create-table-datasource.html
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from spark_jobs.errors import CdcError, LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import has_session, isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import quoted, sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableRegistered:
    """The table ``name``, which the catalogue knows as ``registered_as``; with an ``error``, it does not."""

    name: QualifiedName
    registered_as: str
    outcome: Literal["registered", "already registered", "failed"]
    error: CdcError | None = None


class _Registered(set[QualifiedName]):
    """The tables that have their names, as far as this process knows."""


def register(run: Run, names: Sequence[QualifiedName]) -> tuple[TableRegistered, ...]:
    """Give each of these tables, which the lake has, its name of ``lake.catalog``. A table's failure is in the result.
    Raises CdcError if no session can be had."""
    with spark_errors("no table was registered"), isolated_session(run.spark(), {}) as own:
        done = tuple(_registered(own, run, name) for name in names)
    run.pipeline.lake.storage.memory(_Registered).update(table.name for table in done if table.error is None)
    return done


def register_where_possible(run: Run, names: Sequence[QualifiedName]) -> None:
    """``register`` those of ``names`` that this process has not registered yet, if ``lake.catalog`` is set and there is
    a session. A failure is a warning: the tables are right without their names, and the next run tries again."""
    known = run.pipeline.lake.storage.memory(_Registered)
    new = [name for name in names if name not in known]
    if not (run.pipeline.lake.catalog and new and has_session()):
        return
    try:
        done = register(run, new)
    except CdcError as error:
        _log.warning("%s", error)
        return
    for table in done:
        if table.error is not None:
            _log.warning("%s", table.error)


def _registered(own: SparkSession, run: Run, name: QualifiedName) -> TableRegistered:
    lake = run.pipeline.lake
    parts = lake.catalog_name(name)
    known_as, full = ".".join(parts), ".".join(map(quoted, parts))
    try:
        with spark_errors(f"{name} could not be registered as {known_as}", name=name):
            if not own.catalog.tableExists(full):
                own.sql(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(map(quoted, parts[:-1]))}")
                own.sql(f"CREATE TABLE IF NOT EXISTS {full} USING DELTA LOCATION {sql_text(lake.table(name))}")
                return TableRegistered(name, known_as, "registered")
            location = own.sql(f"DESCRIBE DETAIL {full}").collect()[0]["location"]
        _require_same(name, known_as, location, lake.table(name))
    except CdcError as error:
        return TableRegistered(name, known_as, "failed", error)
    return TableRegistered(name, known_as, "already registered")


def _require_same(name: QualifiedName, known_as: str, location: str, path: Location) -> None:
    if _plain(unquote(location)) != _plain(path):
        raise LakeError(
            f"{name} could not be registered as {known_as}: that is the table at {location}",
            hint="drop or rename that table in the catalogue, or correct lake.catalog",
        )


def _plain(path: str) -> str:
    """Without what differs between the spellings of one path: ``file:`` and its slashes, ``s3a`` and ``s3``."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/*", "/", path))
