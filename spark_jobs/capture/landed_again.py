"""When the slot is behind the log: check that the server still has the WAL that the windows since were read from.

A crash of ours between landing and advancing leaves the slot behind, and so does a crash of the server, which can lose
the advance. But a disk that was restored to an earlier state looks the same once its WAL has grown past the end of the
log: system identifier and timeline are unchanged. To tell them apart, the windows are read again and their
transactions, changes and logical messages are compared with the landed ones. The last window alone may hold none.
Relation messages are not compared: the server sends those of partitions more often in a whole transaction than in a
streamed one, and which transactions it streams depends on where it began to decode.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from adbc_driver_postgresql import dbapi

from spark_jobs.capture.masked_tables import MaskedNow
from spark_jobs.capture.plugin import CallRead, WindowReader
from spark_jobs.capture.plugins import plugin_of
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import RelationCounts, WindowMarker
from spark_jobs.errors import BreakError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.slot import NoSpareSlotError, Slot, read_window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.at_source import AtSource

_log = logging.getLogger(__name__)


def check_landed_again(at_source: AtSource, bulk: dbapi.Connection, landed: WindowMarker, slot: Slot) -> None:
    """Raise BreakError when the windows that the slot is behind, read again, differ from what was landed. ``landed``:
    the last one.

    Only with pgoutput, whose messages do not depend on the tables' present names. Nothing is compared when no slot is
    free for a copy, nor of a window that the slot stands inside.
    """
    if not at_source.source.has_publications:
        return
    behind = _landed_since(at_source, landed, slot.lsn)
    for _, alike in groupby(behind, lambda marker: marker.identity.options):
        markers = tuple(alike)
        span = Window(markers[0].window.lo, markers[-1].window.hi)
        try:
            again = _read(at_source, bulk, markers[-1], span)
        except NoSpareSlotError as error:
            _log.warning("%s; window %s was not compared with the log", error, span)
            return
        if not _are_alike(at_source, markers, again):
            numbers = " to ".join(dict.fromkeys(str(marker.ordinal) for marker in (markers[0], markers[-1])))
            raise BreakError(
                f"window {numbers} {span}, read again, holds other changes than the change log: the server's disk was"
                " put back to an earlier state"
            )


def _landed_since(at_source: AtSource, landed: WindowMarker, lsn: Lsn) -> Iterator[WindowMarker]:
    """The windows of this chapter that begin at or after ``lsn``, in order, without empty ones."""
    is_last = landed.window.size and landed.window.lo <= lsn  # then the log need not be read
    markers = (landed,) if is_last else at_source.log.markers(landed.identity.chapter - 1)
    return (marker for marker in markers if marker.window.lo >= lsn and marker.window.size)


def _are_alike(at_source: AtSource, markers: Sequence[WindowMarker], again: WindowReader) -> bool:
    before, now = [of for marker in markers for of in marker.relations], again.relation_counts()
    if (sum(marker.transactions for marker in markers), sum(marker.logical_messages for marker in markers)) != (
        again.transactions,
        again.logical_messages,
    ):
        return False
    if _summed(before) == _summed(now):
        return True
    # adding or removing a mask changes the length of values
    names = _masked_at(at_source, markers[-1])
    masked = {of.relid for of in (*before, *now) if of.name in names}
    return _summed(before, masked) == _summed(now, masked)


def _masked_at(at_source: AtSource, landed: WindowMarker) -> frozenset[QualifiedName]:
    """The tables that have a mask now, or had one when the window was landed."""
    looks = at_source.log.last_look(landed)
    return frozenset([*at_source.pipeline.masks, *(look.name for look in looks if look.mask is not None)])


def _summed(
    counts: Iterable[RelationCounts], masked: Collection[int] = frozenset()
) -> dict[int, tuple[ChangeCounts, int]]:
    """By relid the number of changes, and their bytes unless it is ``masked``."""
    summed: dict[int, tuple[ChangeCounts, int]] = {}
    for of in counts:
        changes, size = summed.get(of.relid, (NO_CHANGES, 0))
        summed[of.relid] = changes + of.changes, size + (0 if of.relid in masked else of.bytes)
    return summed


def _read(at_source: AtSource, bulk: dbapi.Connection, landed: WindowMarker, span: Window) -> WindowReader:
    plugin, identity = plugin_of(at_source.source), landed.identity
    masked = MaskedNow.of(at_source)
    tables = masked.since((), landed) if masked is not None else None
    with (
        TransactionSpool(schema=plugin.spool_schema) as spool,
        read_window(bulk, identity.slot, span, identity.options, output=plugin.output) as printed,
    ):
        call = plugin.reader(CallRead(span.hi, at_source, spool, tables))
        reader = call.window(landed.ordinal, span)
        for _ in reader.rows(printed):
            pass
    return reader
