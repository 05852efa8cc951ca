"""Whether the server still has the WAL that the log's last window was read from, where its slot fell behind the log.

A crash between landing and advancing leaves the slot behind, and so does a server that forgot the move in one of its
own. But a disk that was put back to an earlier state looks the same, once the WAL has grown past the end of the log:
system identifier and timeline are the old ones. What tells them apart is the window itself, whose transactions, changes
and messages would come out as they were landed. How often the server describes a table between them (Relation) says
nothing: it describes partitions more often in a whole transaction than in a streamed one, and which transactions it
streams depends on where it began to decode.
"""

from __future__ import annotations

import logging

from adbc_driver_postgresql import dbapi

from spark_jobs.capture.plugin import WindowRead, WindowReader
from spark_jobs.capture.plugins import plugin_of
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import BreakError
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.slot import NoSpareSlotError, SlotStatus, read_window

_log = logging.getLogger(__name__)


def check_landed_again(
    control: Connection, bulk: dbapi.Connection, pipeline: Pipeline, landed: WindowMarker, slot: SlotStatus
) -> None:
    """Raise BreakError when the last window, read again, holds something else than what was landed.

    With pgoutput only, which says the same whatever the tables are called now. Where no slot is free for a copy, or the
    slot stands within the window, nothing is compared.
    """
    window = landed.window
    if not pipeline.source.has_publications or not window.size or slot.confirmed_flush_lsn > window.lo:
        return
    try:
        again = _read(control, bulk, pipeline, landed)
    except NoSpareSlotError as error:
        _log.warning("%s; window %s was not compared with the log", error, window)
        return
    before = (landed.transactions, landed.logical_messages, landed.relations)
    if before != (again.transactions, again.logical_messages, again.relation_counts()):
        raise BreakError(
            f"window {landed.ordinal} {window}, read again, holds other changes than the change log: the server's disk"
            " was put back to an earlier state"
        )


def _read(control: Connection, bulk: dbapi.Connection, pipeline: Pipeline, landed: WindowMarker) -> WindowReader:
    plugin, identity = plugin_of(pipeline.source), landed.identity
    with (
        TransactionSpool(schema=plugin.spool_schema) as spool,
        read_window(bulk, identity.slot, landed.window, identity.options, output=plugin.output) as printed,
    ):
        reader = plugin.reader(WindowRead(landed.ordinal, landed.window, pipeline, control, spool))
        for _ in reader.rows(printed):
            pass
    return reader
