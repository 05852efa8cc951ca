"""Checks every precondition on both sides without changing anything, and says how to meet each."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.checks import Check, Diagnosis, Verdict, fail, ok
from spark_jobs.errors import CdcError, SourceError
from spark_jobs.spark.provider import SparkProvider

__all__ = ["Check", "Diagnosis", "Verdict", "diagnose", "diagnose_source"]


def diagnose(pipeline: Pipeline, spark: SparkProvider | None = None) -> Diagnosis:
    """Check source, tables, lake and Spark; a check that cannot be made is a failure like any other. With ``spark`` the
    lake is also written through it."""
    return Diagnosis(pipeline.name, tuple(_checks(pipeline, spark)))


def diagnose_source(pipeline: Pipeline) -> Diagnosis:
    """Of the same, only what concerns the source and its tables."""
    return Diagnosis(pipeline.name, tuple(_source(pipeline)))


def _checks(pipeline: Pipeline, spark: SparkProvider | None) -> Iterator[Check]:
    from spark_jobs.doctor.lake_checks import lake_path_check
    from spark_jobs.doctor.log_check import change_log_check
    from spark_jobs.doctor.spark_checks import spark_checks

    yield ok("configuration", pipeline.name, "read and understood")
    yield from _source(pipeline)
    yield lake_path_check(pipeline.lake)
    yield from change_log_check(pipeline)
    yield from spark_checks(pipeline.spark)
    if spark is not None:
        from spark_jobs.doctor.lake_by_spark import lake_checks_by_spark

        yield from lake_checks_by_spark(pipeline.lake, spark)


def _source(pipeline: Pipeline) -> Iterator[Check]:
    from spark_jobs.doctor.source_checks import (
        AREA,
        plugin_check,
        replication_check,
        role_check,
        server_checks,
        slot_checks,
        slots_free_check,
    )
    from spark_jobs.doctor.table_checks import publication_and_table_checks
    from spark_jobs.postgres.connection import connected, conninfo
    from spark_jobs.postgres.pooler import pooler_of
    from spark_jobs.postgres.privileges import role_privileges, server_settings
    from spark_jobs.postgres.slot import find_slot

    try:
        if (pooler := pooler_of(conninfo(pipeline.source.dsn))) is not None:
            yield fail(AREA, "connection", f"through {pooler.name}", pooler.hint)
            return
        with connected(pipeline.source.dsn) as connection:
            yield ok(AREA, "connection", f"{connection.info.host}, database {connection.info.dbname}")
            settings, role = server_settings(connection), role_privileges(connection)
            yield from server_checks(settings)
            yield plugin_check(pipeline.source, settings)
            yield role_check(role, settings.provider)
            if role.may_replicate and settings.free_wal_senders:  # otherwise other checks say that they are missing
                yield replication_check(pipeline.source)
            yield from slot_checks(connection, pipeline.source, pipeline.health)
            yield slots_free_check(settings, find_slot(connection, pipeline.source.slot) is not None)
            yield from publication_and_table_checks(connection, pipeline, role)
    except CdcError as error:
        if not isinstance(error, SourceError):
            raise
        yield fail(AREA, "connection", error.what, error.hint)
