"""The Spark session: built here, or taken from the caller; quiet; with workers that find this package.

Only this file, ``classic_jvm`` and ``own_jvm`` may use what Spark Connect does not have (marked below); all other code
works with Connect.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError, first_line
from spark_jobs.spark.classic_jvm import start_jvm
from spark_jobs.spark.session_conf import CATALOG, EXTENSION, RUNTIME_CONF, session_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(options: SparkOptions, *, brief: bool = False) -> SparkSession:
    """A session with Delta: the active one if there is one, else a Connect client or a new classic session.

    ``brief``: it has little to do, and the caller ends it soon, with ``own_jvm.end_session``. Its JVM is tuned to start
    fast, not to run fast.

    Raises SparkError: no Java, no jars, a session without Delta's extension, a server that cannot be reached.
    """
    _quieten_pyspark()
    ship_package()
    from pyspark.sql import SparkSession

    if active := SparkSession.getActiveSession():
        return checked_session(active)
    if options.remote:
        return checked_session(_connect(options))
    return _classic(options, brief=brief)


def checked_session(spark: SparkSession) -> SparkSession:
    """``spark`` itself, if it can write Delta. Raises SparkError if not: the extension cannot be added later."""
    _quieten_pyspark()
    ship_package()
    if EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:  # its Delta is another one, and is there without the extension
            raise SparkError(
                "Databricks is not supported", hint="use a Spark of your own: docs/cluster.md has the reasons"
            )
        raise SparkError(
            "the Spark session that was provided has no Delta Lake",
            hint=f"start it with spark.sql.extensions={EXTENSION} and spark.sql.catalog.spark_catalog={CATALOG}",
        )
    return spark


def has_session() -> bool:
    """Whether this process has a session already."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # a classic session is active in some threads only
    return SparkContext._active_spark_context is not None or SparkSession.getActiveSession() is not None


@contextmanager
def isolated_session(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of its own on the same context, with ``conf`` set: Delta's txnAppId and similar confs are session-wide.

    Never pass an isolated session: in Connect a clone inherits what its origin has set.
    """
    # classic sessions have newSession only, Connect's have cloneSession only
    own: SparkSession = spark.cloneSession() if is_connect(spark) else spark.newSession()  # type: ignore[attr-defined]
    if is_connect(spark):
        own.release_session_on_close = True  # type: ignore[attr-defined]  # 4.2.0's clone lacks it, and stop() reads it
    for key, value in {**RUNTIME_CONF, **conf}.items():
        own.conf.set(key, value)
    try:
        yield own
    finally:
        if is_connect(spark):
            own.stop()  # a clone's stop releases that one server-side session


def is_connect(spark: SparkSession) -> bool:
    return "connect" in type(spark).__module__


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
            f"no Spark Connect server answers ({first_line(error)})", hint="check spark.remote and that it runs"
        ) from error


def _classic(options: SparkOptions, *, brief: bool) -> SparkSession:
    """A session in this process's own JVM, which is started if there is none. Not for Connect."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    started = SparkContext._active_spark_context is None and SparkContext._gateway is None
    conf = start_jvm(options, brief=brief) if started else session_conf(options)
    builder = SparkSession.builder.master(options.master or "local[*]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return checked_session(builder.getOrCreate())


def _quieten_pyspark() -> None:
    # this logger prints each failed statement again, as JSON with a stack trace
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def ship_package() -> None:
    """Pickle functions of this package by value: executors need none of our code installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(import_module("spark_jobs"))  # type: ignore[no-untyped-call]
