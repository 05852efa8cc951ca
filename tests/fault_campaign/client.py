"""Run as a program that carries out orders until it is killed: it is what the faults strike.

``python -m tests.fault_campaign.client [OPTIONS]``: pickled SparkOptions, for a session that is up before it says
``ready``. Without them it never starts a JVM, and each order is carried out by a child of its own, which is what is
killed then: a process that has all its imports at once. A line on its input names an order's file, ``done`` is the
answer. Its errors are what a user of the command would read: one line each, and a traceback for what is a defect.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.errors import CdcError
from spark_jobs.prepare import prepare
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import SyncReport, sync
from tests.fault_campaign.order import Order
from tests.fixtures.standby_process import DONE, READY
from tests.spark.followed_pipeline import Followed
from tests.spark.lake_differences import message_differences, table_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIFFERENCE = "difference: "
TOLD = "told: "
# rewriting DDL may cost a snapshot, and come once more while that is taken
_TRIES = 4


def main(options_file: str = "") -> None:
    faulthandler.register(signal.SIGUSR1)  # where each thread is, for a run that does not come to its end
    tempfile.gettempdir()  # tried once, by writing a file: not when its disk is full
    spark = None
    if options_file:
        spark = spark_session(pickle.loads(Path(options_file).read_bytes()))  # noqa: S301 - our own file
    _say(READY)
    for line in sys.stdin:
        order = Order.read(Path(line.strip()))
        if spark is None:
            _in_a_child(order)
        else:
            _carry_out(order, spark)
        _say(DONE)


def _in_a_child(order: Order) -> None:
    """Until it has ended, however it did. This process itself does no work, so it has no threads to lose in a fork."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        _carry_out(order, None)
    except Exception:  # noqa: BLE001 - printed as the interpreter would, which a child must not go back to
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(0)


def _carry_out(order: Order, spark: SparkSession | None) -> None:
    try:
        _tell(order, _carried_out(order, spark))
    except CdcError as error:
        _tell(order, [error])


def _carried_out(order: Order, spark: SparkSession | None) -> Iterable[CdcError]:
    pipeline = order.pipeline
    if order.verb in ("prepare", "capture"):
        prepare(pipeline)
        while order.verb == "capture" and not capture(pipeline, progress=_step).caught_up:
            pass
        return ()
    assert spark is not None, f"{order.verb} needs Spark"
    session = spark
    if order.verb == "sync":
        return sync(pipeline, lambda: session, run_id=order.run, progress=_step).errors
    if order.verb == "snapshot":
        snapshots = snapshot(Run(pipeline, lambda: session, run_id=order.run, progress=_step), order.names)
        return [table.error for table in snapshots if table.error is not None]
    for difference in _differences(order, session):
        _say(f"{DIFFERENCE}{difference}")
    return ()


def _differences(order: Order, spark: SparkSession) -> Iterator[str]:
    pipeline = order.pipeline
    for _ in range(_TRIES):
        report = sync(pipeline, lambda: spark, run_id=order.run)
        if not report.errors:
            break
        # a table that was altered again and again waits for its next snapshot, unless it is asked for
        if stopped := _stopped(report):
            snapshot(Run(pipeline, lambda: spark, run_id=order.run), stopped)
    yield from (f"the clean sync: {error}" for error in report.errors)
    followed = Followed(spark, order.database, pipeline, order.names)
    markers = ChangeLog(pipeline.lake.change_log).markers()
    for name in order.names:
        yield from table_differences(followed, name, markers)
    rows = order.database.execute("SELECT content FROM told")
    yield from message_differences(followed, [str(row[0]) for row in rows])


def _stopped(report: SyncReport) -> list[QualifiedName]:
    return list({table.name: None for table in report.tables if table.error is not None})


def _tell(order: Order, errors: Iterable[CdcError]) -> None:
    for error in errors:
        sys.stderr.write(f"{TOLD}{order.run}: {error}\n")
    sys.stderr.flush()


def _step(step: Step, /) -> None:
    _say(f"{step.what} {step.detail}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
