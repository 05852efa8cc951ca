"""Whether little is ahead of a pipeline's tables, so that the JVM that does it need not become fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.apply.plan import Plan, plan_apply
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.lake.opened_table import opened_table
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.slot import flushed_lsn
from spark_jobs.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bytes of changes, and of the tables that they are merged into. A sync of 900,000 changes of a table of a million rows
# took 15.6 s with a JVM that compiles its code once, and 17.1 s with the usual one, which takes the lead later
_LITTLE_CHANGES = 128 << 20
_SMALL_TABLES = 256 << 20


def has_little_ahead(pipeline: Pipeline, *, captures: bool) -> bool:
    """Ask when the first table is about to be written. False too if it cannot be told, or if a table has no snapshot.
    ``captures``: what the source has not sent yet is ahead as well.

    It is a guess: a table that turns out to need a new snapshot is read all the same, only more slowly.
    """
    try:
        plan = plan_apply(Run(pipeline, _nothing_is_written))
        if plan.ledger.errors:
            return False
        changes = sum(relation.bytes for marker in plan.ahead for relation in marker.relations)
        if captures:
            with connected(pipeline.source.dsn) as connection:
                changes += flushed_lsn(connection) - plan.last.window.hi
    except CdcError:
        return False
    return changes <= _LITTLE_CHANGES and _written_bytes(plan) <= _SMALL_TABLES


def _nothing_is_written() -> SparkSession:
    raise AssertionError("a plan needs no Spark")


def _written_bytes(plan: Plan) -> int:
    """The size of the tables that have changes ahead; a table that only Spark can open counts as large."""
    total = 0
    for work in plan.work:
        opened = opened_table(work.path, work.state.version)
        if opened is None:
            return _SMALL_TABLES + 1
        total += sum(opened.files.column("size_bytes").to_pylist())
    return total
