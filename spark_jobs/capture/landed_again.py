"""When the slot is behind the log: check that the server still has the WAL that the log's last window was read from.

A crash of ours between landing and advancing leaves the slot behind, and so does a crash of the server, which can lose
the advance. But a disk that was restored to an earlier state looks the same once its WAL has grown past the end of the
log: system identifier and timeline are unchanged. To tell them apart, the window is read again and its transactions,
changes and logical messages are compared with the landed ones. Relation messages are not compared: the server sends
those of partitions more often in a whole transaction than in a streamed one, and which transactions it streams depends
on where it began to decode.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from adbc_driver_postgresql import dbapi

from spark_jobs.capture.masked_tables import MaskedNow
from spark_jobs.capture.plugin import CallRead, WindowReader
from spark_jobs.capture.plugins import plugin_of
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.window_marker import RelationCounts, WindowMarker
from spark_jobs.errors import BreakError
from spark_jobs.postgres.slot import NoSpareSlotError, Slot, read_window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.at_source import AtSource

_log = logging.getLogger(__name__)


def check_landed_again(at_source: AtSource, bulk: dbapi.Connection, landed: WindowMarker, slot: Slot) -> None:
    """Raise BreakError when the last window, read again, differs from what was landed.

    Only with pgoutput, whose messages do not depend on the tables' present names. Nothing is compared when no slot is
    free for a copy, or when the slot stands inside the window.
    """
    window = landed.window
    if not at_source.source.has_publications or not window.size or slot.lsn > window.lo:
        return
    try:
        again = _read(at_source, bulk, landed)
    except NoSpareSlotError as error:
        _log.warning("%s; window %s was not compared with the log", error, window)
        return
    before, now = landed.relations, again.relation_counts()
    if before != now:  # adding or removing a mask changes the length of values
        masked = _masked_at(at_source, landed)
        before, now = _without_bytes(before, masked), _without_bytes(now, masked)
    if (landed.transactions, landed.logical_messages, before) != (again.transactions, again.logical_messages, now):
        raise BreakError(
            f"window {landed.ordinal} {window}, read again, holds other changes than the change log: the server's disk"
            " was put back to an earlier state"
        )


def _masked_at(at_source: AtSource, landed: WindowMarker) -> frozenset[QualifiedName]:
    """The tables that have a mask now, or had one when the window was landed."""
    looks = at_source.log.last_look(landed)
    return frozenset([*at_source.pipeline.masks, *(look.name for look in looks if look.mask is not None)])


def _without_bytes(counts: Sequence[RelationCounts], names: Collection[QualifiedName]) -> tuple[RelationCounts, ...]:
    return tuple(replace(of, bytes=0) if of.name in names else of for of in counts)


def _read(at_source: AtSource, bulk: dbapi.Connection, landed: WindowMarker) -> WindowReader:
    plugin, identity = plugin_of(at_source.source), landed.identity
    masked = MaskedNow.of(at_source)
    tables = masked.since((), landed) if masked is not None else None
    with (
        TransactionSpool(schema=plugin.spool_schema) as spool,
        read_window(bulk, identity.slot, landed.window, identity.options, output=plugin.output) as printed,
    ):
        call = plugin.reader(CallRead(landed.window.hi, at_source, spool, tables))
        reader = call.window(landed.ordinal, landed.window)
        for _ in reader.rows(printed):
            pass
    return reader
