"""Programs on an object store: processes of their own, as their JVM needs the connector's jars. ``python -m
tests.spark.on_s3 CONFIGURATION PROGRAM ...`` prints what each of them returns, as JSON."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import psycopg
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from cdc_assets import SyncReport, load_pipeline, sync
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.delta.whole_files import content_of, create_file
from spark_jobs.doctor.lake_by_spark import lake_checks_by_spark
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.maintain.maintain import maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.replay.replay import replay
from spark_jobs.run import Run
from spark_jobs.spark.session import spark_session
from spark_jobs.verify.verify import verify
from tests.fixtures.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = (
    "UPDATE \"my table\" SET v = v || '!', id = id + 100 WHERE id % 3 = 0",
    'DELETE FROM "my table" WHERE id % 5 = 0',
    "UPDATE versions SET n = n + 1 WHERE id < 4",
    "UPDATE plain SET n = n + 1",
    "DELETE FROM note WHERE a = 1",
    "ALTER TABLE versions ADD extra text DEFAULT 'e'",
    "INSERT INTO versions VALUES (900, 1, 'x')",
)
LATER = (
    'DELETE FROM "my table" WHERE id < 20',
    "INSERT INTO note VALUES (8, 'later')",
    "UPDATE versions SET n = 0",
    "INSERT INTO plain VALUES (2, 0)",
)
NOW = "SELECT pg_current_wal_insert_lsn()"
ALL_ROWS = 'SELECT id FROM "my table" ORDER BY id'
MY_TABLE, PLAIN = (QualifiedName("public", name) for name in ("my table", "plain"))


def follow(pipeline: Pipeline, spark: SparkSession) -> dict[str, Any]:
    """Snapshot, changes, DDL, TRUNCATE, maintenance; then source and lake are compared."""
    reports: list[SyncReport] = [sync(pipeline, lambda: spark)]
    for statements in (CHANGES, ("TRUNCATE note", "INSERT INTO note VALUES (7, 'last')")):
        _execute(pipeline, *statements)
        reports.append(sync(pipeline, lambda: spark))
    maintained = maintain(pipeline, lambda: spark)
    return {
        "errors": [str(error) for report in reports for error in report.errors] + list(map(str, maintained.errors)),
        "engines": sorted({table.engine for report in reports for table in report.tables if table.engine}),
        "snapshots": [len(report.snapshots) for report in reports],
        "problems": [str(problem) for problem in verify(pipeline, lambda: spark).problems],
    }


def go_back(pipeline: Pipeline, spark: SparkSession) -> dict[str, Any]:
    """Windows replayed, tables rebuilt, a copy as of an LSN, a lost slot; then source and lake are compared."""
    run = Run(pipeline, lambda: spark)
    begin, rows = _execute(pipeline, NOW)[0], _execute(pipeline, ALL_ROWS)
    _execute(pipeline, *LATER)
    capture(pipeline)
    last = ChangeLog(pipeline.lake.change_log).checkpoint()
    assert last is not None
    lo, hi = Lsn.parse(begin), last.window.hi
    replayed = replay(run, lo, hi), rebuild(run, lo, hi)
    copy = table_as_of(run, MY_TABLE, lo, f"{pipeline.lake.path}/as_of")
    copied = spark.read.format("delta").load(copy.path).orderBy("id").collect()
    _execute(pipeline, f"SELECT pg_drop_replication_slot('{pipeline.source.slot}')", "DELETE FROM note")
    recovered = recover(pipeline, lambda: spark)
    return {
        "errors": [str(error) for report in (*replayed, recovered) for error in report.errors],
        "replayed": [[table.outcome for table in report.tables] for report in replayed],
        "as of": "equal" if [str(row.id) for row in copied] == rows else len(copied),
        "snapshots": len(recovered.snapshots),
        "problems": [str(problem) for problem in verify(pipeline, lambda: spark).problems],
    }


def _execute(pipeline: Pipeline, *statements: str) -> list[str]:
    """The first column of what the last one returns."""
    with psycopg.connect(pipeline.source.dsn.get_secret_value(), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return [str(row[0]) for row in cursor] if cursor.description else []


def write_one_version_twice(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """What the LogStore that the session uses says to each of four writes of one file."""
    jvm: Any = spark._jvm
    assert spark.conf.get("spark.delta.logStore.s3.impl") == "postgres_cdc.ConditionalLogStore"
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    store = jvm.postgres_cdc.ConditionalLogStore(hadoop)
    file = jvm.org.apache.hadoop.fs.Path(f"{pipeline.lake.path}/raced/_delta_log/00000000000000000000.json")
    answers = []
    for content, overwrite in (("ours", False), ("ours", False), ("theirs", False), ("theirs", True)):
        try:
            store.write(file, jvm.java.util.Collections.singletonList(content).iterator(), overwrite, hadoop)
            answers.append("written")
        except Py4JJavaError as error:
            answers.append(error.java_exception.getClass().getSimpleName())
    return answers


def race(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """Four writers for each of six versions of a log: three with the LogStore that the session uses, one without
    Spark. Returns what is wrong."""
    with ThreadPoolExecutor(4) as writers:
        return [problem for version in range(6) for problem in _raced(pipeline, spark, writers, version)]


def _raced(pipeline: Pipeline, spark: SparkSession, writers: ThreadPoolExecutor, version: int) -> list[str]:
    jvm: Any = spark._jvm
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    store = jvm.org.apache.spark.sql.delta.storage.DelegatingLogStore(hadoop)
    log, name = pipeline.lake.root / "raced/_delta_log", f"{version:020}.json"
    log_folder, file = jvm.org.apache.hadoop.fs.Path(log), jvm.org.apache.hadoop.fs.Path(f"{log}/{name}")
    log_folder.getFileSystem(hadoop).mkdirs(log_folder)  # as Delta does
    start = Barrier(4)

    def by_spark(content: str) -> bool:
        actions = jvm.scala.jdk.javaapi.CollectionConverters.asScala(
            jvm.java.util.Collections.singletonList(content).iterator()
        )
        start.wait()
        try:
            store.write(file, actions, False, hadoop)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True

    def by_ours(content: str) -> bool:
        start.wait()
        return create_file(log, name, f"{content}\n".encode())

    contents = [f"writer {number}" for number in range(4)]
    done = list(writers.map(lambda write, content: write(content), (by_ours, *[by_spark] * 3), contents))
    entry = content_of(log, name).to_pybytes().decode().strip()
    won = [content for content, wrote in zip(contents, done, strict=True) if wrote]
    return [] if won == [entry] else [f"version {version}: {won} have written, and it has {entry}"]


def doctor(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """What its checks by Spark find."""
    return [f"{check.what}: {check.verdict}" for check in lake_checks_by_spark(pipeline.lake, lambda: spark)]


def alter(pipeline: Pipeline, spark: SparkSession) -> None:
    spark.sql(f"ALTER TABLE delta.`{pipeline.lake.table(PLAIN)}` SET TBLPROPERTIES ('by' = 'others')")


def optimize(pipeline: Pipeline, spark: SparkSession) -> None:
    spark.sql(f"OPTIMIZE delta.`{pipeline.lake.table(PLAIN)}`")


def properties(pipeline: Pipeline, spark: SparkSession) -> dict[str, str]:
    rows = spark.sql(f"SHOW TBLPROPERTIES delta.`{pipeline.lake.table(PLAIN)}`").collect()
    return {row.key: row.value for row in rows}


def sync_once(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    return list(map(str, sync(pipeline, lambda: spark).errors))


def count_requests(pipeline: Pipeline, spark: SparkSession, metrics: str, syncs: str) -> list[list[int]]:
    """What each of so many syncs of one changed table costs, for two tables: ``deltalake`` opens the second."""
    server = S3Server(pipeline.lake.storage.settings.endpoint or "", metrics)

    def cost(change: str) -> int:
        _execute(pipeline, change)
        before = server.requests()
        assert sync_once(pipeline, spark) == []
        return server.requests() - before

    changes = "UPDATE \"my table\" SET v = v || '?'", "UPDATE plain SET n = n + 1"
    return [[cost(change) for _ in range(int(syncs))] for change in changes]


def append(pipeline: Pipeline, spark: SparkSession, first: str, count: str) -> int:
    """One row per commit, as fast as it goes."""
    for number in range(int(first), int(first) + int(count)):
        rows = spark.range(number, number + 1).coalesce(1)
        rows.write.format("delta").mode("append").save(f"{pipeline.lake.path}/shared")
    return int(count)


def count(pipeline: Pipeline, spark: SparkSession) -> int:
    return spark.read.format("delta").load(f"{pipeline.lake.path}/shared").distinct().count()


PROGRAMS: dict[str, Any] = {
    run.__name__: run
    for run in (
        follow,
        go_back,
        write_one_version_twice,
        race,
        doctor,
        alter,
        optimize,
        properties,
        sync_once,
        count_requests,
        append,
        count,
    )
}

if __name__ == "__main__":
    _, file, *called = sys.argv
    pipeline = load_pipeline(Path(file))
    session = spark_session(pipeline.spark)
    returned = [PROGRAMS[name](pipeline, session, *arguments) for name, *arguments in map(str.split, called)]
    sys.stdout.write(json.dumps(returned))
