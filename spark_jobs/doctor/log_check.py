"""Whether change log and slot still belong together, with no gap between them."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.capture.continuity import following_slot, slot_identity
from spark_jobs.capture.slot_owner import require_own_slot
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.errors import CdcError, SourceUnreachableError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.slot import find_slot
from spark_jobs.tables.at_source import AtSource

AREA = "change log"


def change_log_check(pipeline: Pipeline) -> Iterator[Check]:
    """The change log by itself, and against the slot; a log that does not exist yet is ok."""
    try:
        checkpoint = landed_end(pipeline.lake)
    except CdcError as error:
        yield fail(AREA, "change log", error.what, error.hint)
        return
    if checkpoint is None:
        yield ok(AREA, "change log", "does not exist yet: sync creates it")
    else:
        yield ok(AREA, "change log", f"up to {checkpoint.window.hi}, window {checkpoint.ordinal}")
    try:
        yield _against_slot(pipeline, checkpoint)
    except SourceUnreachableError:
        yield warn(AREA, "log and slot", "not compared: the source cannot be reached", "correct the connection first")
    except CdcError as error:
        yield fail(AREA, "log and slot", error.what, error.hint)


def _against_slot(pipeline: Pipeline, checkpoint: WindowMarker | None) -> Check:
    with connected(pipeline.source.dsn) as connection:
        at_source = AtSource(connection, pipeline)
        if checkpoint is not None:
            following_slot(at_source, checkpoint, slot_identity(at_source))
        elif find_slot(connection, pipeline.source.slot) is not None:
            require_own_slot(at_source)
    return ok(AREA, "log and slot", "no gap between them" if checkpoint else "no other lake is known to read the slot")
