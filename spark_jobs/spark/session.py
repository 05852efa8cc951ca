"""The Spark session: built here, or taken from the caller; quiet; with workers that find this package.

Only this file and ``own_jvm`` may use what Spark Connect does not have (marked below); all other code works with
Connect.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import spark_jobs
from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError
from spark_jobs.spark.delta_jars import jars_conf
from spark_jobs.spark.java import find_java
from spark_jobs.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
# Spark's own default, and the keys of Azure's and Google's storage
_HIDDEN = r"(?i)secret|password|token|access[.]?key|account[.]key|private[.]key"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# static: cannot be changed once a session exists
_STATIC_CONF = {
    "spark.app.name": "postgres-cdc",
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
    "spark.redaction.regex": _HIDDEN,  # Spark's pages and event logs show these values as stars
}
# our statements rely on these, whoever made the session; set again on each isolated session
_RUNTIME_CONF = {
    "spark.sql.variant.allowDuplicateKeys": "false",  # else the last value of a key would win silently
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
# on one machine: few, larger tasks. snapshotPartitions alone takes a small MERGE from 3.6 s to 1.3 s
_LOCAL_CONF = {
    "spark.databricks.delta.snapshotPartitions": "1",
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


def session_conf(options: SparkOptions) -> dict[str, str]:
    """Every conf of a session made for ``options``; the user's override ours. Raises SparkError if jars are missing."""
    conf = {**_STATIC_CONF, **_RUNTIME_CONF}
    if is_local(options):
        conf |= _LOCAL_CONF
    conf |= dict(jars_conf(options.jars))
    own = dict(options.config)
    for key in ("spark.jars", "spark.jars.packages", "spark.sql.extensions"):  # lists: add the user's to ours
        if key in own and key in conf:
            own[key] = f"{conf[key]},{own[key]}"
    return conf | own


def spark_session(options: SparkOptions) -> SparkSession:
    """A session with Delta: the active one if there is one, else a Connect client or a new classic session.

    Raises SparkError: no Java, no jars, a session without Delta's extension, a server that cannot be reached.
    """
    _quieten_pyspark()
    _ship_package()
    from pyspark.sql import SparkSession

    if active := SparkSession.getActiveSession():
        return checked_session(active)
    if options.remote:
        return checked_session(_connect(options))
    return _classic(options)


def checked_session(spark: SparkSession) -> SparkSession:
    """``spark`` itself, if it can write Delta. Raises SparkError if not: the extension cannot be added later."""
    _quieten_pyspark()
    _ship_package()
    if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SparkError(
            "the Spark session that was provided has no Delta Lake",
            hint=f"start it with spark.sql.extensions={_EXTENSION} and spark.sql.catalog.spark_catalog={_CATALOG}",
        )
    return spark


@contextmanager
def isolated_session(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of its own on the same context, with ``conf`` set: Delta's txnAppId and similar confs are session-wide.

    Never pass an isolated session: in Connect a clone inherits what its origin has set.
    """
    # classic sessions have newSession only, Connect's have cloneSession only
    own: SparkSession = spark.cloneSession() if is_connect(spark) else spark.newSession()  # type: ignore[attr-defined]
    if is_connect(spark):
        own.release_session_on_close = True  # type: ignore[attr-defined]  # 4.2.0's clone lacks it, and stop() reads it
    for key, value in {**_RUNTIME_CONF, **conf}.items():
        own.conf.set(key, value)
    try:
        yield own
    finally:
        if is_connect(spark):
            own.stop()  # a clone's stop releases that one server-side session


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` is a Spark Connect client."""
    return "connect" in type(spark).__module__


def is_local(options: SparkOptions) -> bool:
    """Whether all of Spark runs on this machine."""
    return options.remote is None and (options.master is None or options.master.startswith("local"))


def has_executors(options: SparkOptions) -> bool:
    """Whether executors are processes of their own, and not threads of the driver."""
    return not is_local(options) or (options.master or "").startswith("local-cluster")


def _connect(options: SparkOptions) -> SparkSession:
    from pyspark.sql import SparkSession

    assert options.remote is not None
    builder = SparkSession.builder.remote(options.remote)
    for key, value in options.config:
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        # if the interpreter's shutdown closes an open channel, grpc can hang
        atexit.register(session.stop)
        return session
    except ImportError as error:
        raise SparkError("the Spark Connect client is not installed", hint="pip install 'pyspark[connect]'") from error
    except Exception as error:
        raise SparkError(
            f"no Spark Connect server answers ({_first_line(error)})", hint="check spark.remote and that it runs"
        ) from error


def _classic(options: SparkOptions) -> SparkSession:
    """Start a JVM whose own output goes to a file, and a session in it. Not for Connect."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = session_conf(options)
    master = options.master or "local[*]"
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        os.environ["JAVA_HOME"] = str(find_java().home)  # read by Spark's launcher, here and for local executors
        if python := worker_python(options, local=is_local(options)):
            os.environ["PYSPARK_PYTHON"] = python
        log = _jvm_log()
        java_options = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        conf["spark.driver.extraJavaOptions"] = f"{java_options} {conf.get('spark.driver.extraJavaOptions', '')}"
        spark_conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(conf.items()))
        # everybody on this machine can read the JVM's command line; the gateway carries the rest
        shown = [(key, value) for key, value in conf.items() if not re.search(_HIDDEN, key)]
        launched = SparkConf(loadDefaults=False).setMaster(master).setAll(shown)
        try:
            gateway = launch_gateway(launched, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext(conf=spark_conf, gateway=gateway)
        except Exception as error:
            raise SparkError(f"Spark did not start ({_reason(log, error)})", hint=f"see {log.name}") from error
    builder = SparkSession.builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return checked_session(builder.getOrCreate())


def _jvm_log() -> IO[bytes]:
    """The file for the output of the JVM and its Python workers: JVM warnings, Ivy's report, Spark's banner."""
    log = tempfile.NamedTemporaryFile(prefix="postgres-cdc-spark-", suffix=".log", delete=False)  # noqa: SIM115
    process = os.getpid()

    def remove() -> None:
        # a fork of this process must not delete the file; after a failed start it stays to be read
        if os.getpid() == process and not _failed(Path(log.name)):
            Path(log.name).unlink(missing_ok=True)

    atexit.register(remove)
    return log


def _failed(log: Path) -> bool:
    return log.is_file() and "Exception in thread" in log.read_text(errors="replace")


def _reason(log: IO[bytes], error: Exception) -> str:
    """The line of the JVM's output that gives the reason, else the first line of the exception."""
    said = Path(log.name).read_text(errors="replace")
    match = re.search(r"^(?:Exception in thread .*|Error: .*|.*unresolved dependency.*)$", said, re.MULTILINE)
    return match[0].strip() if match else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _quieten_pyspark() -> None:
    # this logger prints each failed statement again, as JSON with a stack trace
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def _ship_package() -> None:
    """Pickle functions of this package by value: executors need none of our code installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]
