"""Keep the change log small: windows that are old and no longer needed go, the others are compacted by day."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc

from spark_jobs.change_log.log import LOG_CONFIGURATION, LOG_LAYOUT, NO_ORDINAL, ChangeLog, rows_of_kind
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.delta.history import FOR_READERS
from spark_jobs.delta.upkeep import CountedTable, Expiry, Upkeep, compact_in_passing, keep_small


def keep_log_small(log: ChangeLog, last: WindowMarker, age: timedelta, needed: int) -> Upkeep:
    """Remove windows that were landed longer ago than ``age`` and before the ordinal ``needed``, in whole files.

    ``last`` is the last window's marker: this window is kept, and so are the fingerprints that it refers to. Raises
    LakeError; OvertakenError when another process maintains the log.
    """
    expiry = Expiry(age, min(needed, last.ordinal), _fingerprints_of(last))
    return keep_small(_counted(log), LOG_CONFIGURATION, expiry, FOR_READERS)


def compact_log_in_passing(log: ChangeLog, ordinal: int) -> None:
    """To be called after window ``ordinal`` was landed, see ``compact_in_passing``."""
    compact_in_passing(_counted(log), ordinal)


def _counted(log: ChangeLog) -> CountedTable:
    return CountedTable(log.files, LOG_LAYOUT, apart=pc.field("ordinal") == NO_ORDINAL)


def _fingerprints_of(last: WindowMarker) -> pc.Expression | None:
    """The condition for the fingerprints, which were landed when the catalogue last changed, maybe long ago."""
    if last.catalogue is None:
        return None
    return rows_of_kind(RowKind.CATALOGUE) & (pc.field("window") == last.catalogue.window)
