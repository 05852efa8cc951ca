"""What a session is configured with: Spark's and Delta's own settings, for work of our kind."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from spark_jobs.configuration import SparkOptions
from spark_jobs.object_stores import store_named
from spark_jobs.spark.delta_jars import jars_conf

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
# Spark's own default, and the keys of Azure's and Google's storage
HIDDEN = r"(?i)secret|password|token|access[.]?key|account[.]key|private[.]key"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# in how many partitions Delta keeps the list of a table's files; by default 50: three stages of as many tasks for each
# commit, and one for each table that is read. Commits of large tables have more: see table_commit
LOG_PARTITIONS, FEW_LOG_PARTITIONS = "spark.databricks.delta.snapshotPartitions", ("1", "4")

# static: cannot be changed once a session exists
_STATIC_CONF = {
    "spark.app.name": "postgres-cdc",
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.redaction.regex": HIDDEN,  # Spark's pages and event logs show these values as stars
    # Delta keeps what it has read of a table for an hour, 2.6 MiB of the heap each, and of 10,000 tables by default:
    # 650 filled 2 GiB. A table that is not among these is read anew, which takes a small MERGE from 0.25 s to 0.5 s
    "spark.databricks.delta.delta.log.cacheSize": "200",
}
# our statements rely on these, whoever made the session; set again on each isolated session
RUNTIME_CONF = {
    "spark.sql.variant.allowDuplicateKeys": "false",  # otherwise the last value of a key would win silently
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a cast that fails raises; it never becomes null
    "spark.sql.variable.substitute": "false",  # a column or a path may be named ${x}, and must not be substituted
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is still INT96
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",  # 4.2.0 hangs with it (SPARK-58241)
    # writers and readers hold whole row groups and pages, and by default neither ends before it has 100 rows:
    # 200 rows of a megabyte ended in an OutOfMemoryError, with 2 GiB of heap
    "parquet.block.size": str(32 << 20),
    "parquet.block.size.row.check.min": "4",
    "parquet.page.size.row.check.min": "4",
    "spark.databricks.delta.autoCompact.minNumFiles": "8",  # see table_commit: enabled now and then only
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),  # MERGE reads whole files: 1 GB ones are slow
}
# for a statement that reads and writes little: to compile its expressions costs more than it saves
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# the JVM's thorough compiler waits for ten times as many calls as by default: most code of a session never runs often
# enough to return what compiling it costs. A first MERGE, and twenty more of ten changes, took a quarter less CPU time;
# one of 200,000 changes a sixth
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# on one machine: few, larger tasks. LOG_PARTITIONS alone takes a small MERGE from 3.6 s to 1.3 s
_LOCAL_CONF = {
    LOG_PARTITIONS: FEW_LOG_PARTITIONS[0],
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.sql.adaptive.enabled": "false",  # with so few partitions a MERGE took 6.3 s without it, 7.0 s with it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # a large MERGE takes a tenth less time than with G1, whose threads compete with the tasks for few cores
    # with the default, 21 MB, loading classes alone starts five full collections in a session's first minute: 0.8 s
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -XX:MetaspaceSize=256m {_COMPILE_LATER}",
    # tables are addressed by path; Spark still creates the folder, by default in the working directory
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "postgres-cdc-warehouse")),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def session_conf(options: SparkOptions, *, with_jars: bool = True) -> dict[str, str]:
    """Every conf of a session made for ``options``; the user's override ours. Raises SparkError if jars are missing.

    ``with_jars`` false: Delta's jars are on the class path already.
    """
    conf = {**_STATIC_CONF, **RUNTIME_CONF}
    conf |= _LOCAL_CONF if is_local(options) else {LOG_PARTITIONS: FEW_LOG_PARTITIONS[1]}
    if options.store is not None:
        conf |= store_named(options.store).spark
    if with_jars:
        conf |= jars_conf(options)
    own = dict(options.config)
    # lists: add the user's to ours
    for key in ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions"):
        if key in own and key in conf:
            own[key] = f"{conf[key]},{own[key]}"
    return conf | own


def is_local(options: SparkOptions) -> bool:
    """Whether all of Spark runs on this machine."""
    return options.remote is None and (options.master is None or options.master.startswith("local"))


def has_executors(options: SparkOptions) -> bool:
    """Whether executors are processes of their own, and not threads of the driver."""
    return not is_local(options) or (options.master or "").startswith("local-cluster")


def runs_on_driver(options: SparkOptions) -> bool:
    """Whether Spark's tasks run beside the driver, in a JVM that we have configured."""
    return not (has_executors(options) or options.handed_in)


def local_cores(options: SparkOptions) -> int:
    """How many tasks at once Spark runs on this machine for ``options``; the number of cores if it runs elsewhere."""
    match = re.fullmatch(r"local\[(\d+)(?:,.*)?\]", options.master or "")
    return int(match[1]) if match else 1 if options.master == "local" else os.cpu_count() or 1
