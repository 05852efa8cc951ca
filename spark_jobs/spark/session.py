"""The Spark session: built here, or taken as it is; quiet; with workers that find this package.

With ``own_jvm`` the one file that may touch what Spark Connect does not have (marked below); all else is clean for
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
# Spark's own default, and keys of Azure's and Google's storage
_HIDDEN = r"(?i)secret|password|token|access[.]?key|account[.]key|private[.]key"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# static: fixed once a session is there
_STATIC_CONF = {
    "spark.app.name": "postgres-cdc",
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
    "spark.redaction.regex": _HIDDEN,  # what its pages and event logs show as stars
}
# what our statements rely on, whoever made the session; set again on each isolated session
_RUNTIME_CONF = {
    "spark.sql.variant.allowDuplicateKeys": "false",  # else the last one of a key would stay, unsaid
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a cast that fails raises; it never becomes null
    "spark.sql.variable.substitute": "false",  # a column or a path may be named ${x}: it would become what x is set to
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is still INT96
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",  # 4.2.0 hangs with it (SPARK-58241)
    # row groups and pages are held whole by writers and readers, and by default neither ends before it has 100 rows:
    # 200 rows of a megabyte ended in an OutOfMemoryError, with 2 GiB of heap
    "parquet.block.size": str(32 << 20),
    "parquet.block.size.row.check.min": "4",
    "parquet.page.size.row.check.min": "4",
    "spark.databricks.delta.autoCompact.minNumFiles": "8",  # see table_commit: asked for now and then only
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),  # MERGE reads whole files: 1 GB ones are slow
}
# one machine: few, larger tasks. snapshotPartitions alone takes a small MERGE from 3.6 s to 1.3 s
_LOCAL_CONF = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.sql.adaptive.enabled": "false",  # nothing to adapt with so few partitions; a MERGE took 6.3 s, with it 7.0
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # a large MERGE takes a tenth less time than with G1, whose threads compete with the tasks for few cores
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # tables are addressed by path; Spark makes the folder all the same, by default where the user stands
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "postgres-cdc-warehouse")),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def session_conf(options: SparkOptions) -> dict[str, str]:
    """Every conf of a session made for ``options``; the user's own win. Raises SparkError when jars are missing."""
    conf = {**_STATIC_CONF, **_RUNTIME_CONF}
    if is_local(options):
        conf |= _LOCAL_CONF
    conf |= dict(jars_conf(options.jars))
    own = dict(options.config)
    for key in ("spark.jars", "spark.jars.packages", "spark.sql.extensions"):  # lists: the user's are added to ours
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
    """``spark`` itself, when it can write Delta. Raises SparkError: extension and catalog are fixed at its start."""
    _quieten_pyspark()
    _ship_package()
    if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SparkError(
            "the Spark session that was handed in has no Delta Lake",
            hint=f"start it with spark.sql.extensions={_EXTENSION} and spark.sql.catalog.spark_catalog={_CATALOG}",
        )
    return spark


@contextmanager
def isolated_session(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of its own on the same context, with ``conf`` set: Delta's txnAppId and its like are session-wide.

    Never hand in an isolated session: in Connect a clone inherits what its origin has set.
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
        # an open channel that the interpreter's shutdown closes can hang in grpc
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
        # everybody on this machine can read the JVM's command line; the rest reaches it by the gateway
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
    """Where the JVM, and the Python workers it starts, print: JVM warnings, Ivy's report, Spark's banner."""
    log = tempfile.NamedTemporaryFile(prefix="postgres-cdc-spark-", suffix=".log", delete=False)  # noqa: SIM115
    process = os.getpid()

    def remove() -> None:
        # a fork of this process must leave the file; a failed start leaves it to be read
        if os.getpid() == process and not _failed(Path(log.name)):
            Path(log.name).unlink(missing_ok=True)

    atexit.register(remove)
    return log


def _failed(log: Path) -> bool:
    return log.is_file() and "Exception in thread" in log.read_text(errors="replace")


def _reason(log: IO[bytes], error: Exception) -> str:
    """The line of the JVM's output that says why, else the first line of the exception."""
    said = Path(log.name).read_text(errors="replace")
    match = re.search(r"^(?:Exception in thread .*|Error: .*|.*unresolved dependency.*)$", said, re.MULTILINE)
    return match[0].strip() if match else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _quieten_pyspark() -> None:
    # prints each failed statement again, as JSON with a stack trace
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def _ship_package() -> None:
    """Functions of this package travel whole inside the closure: executors need nothing of ours installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]
