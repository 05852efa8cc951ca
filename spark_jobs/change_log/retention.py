"""Keep the change log small: windows that are old and no longer needed go, the others are compacted by day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.log import LOG_CONFIGURATION, LOG_LAYOUT, NO_ORDINAL, ChangeLog, rows_of_kind
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.delta.counted_files import DataFile
from spark_jobs.delta.history import FOR_READERS
from spark_jobs.delta.upkeep import (
    Chosen,
    CountedTable,
    Expiry,
    RowsToRemove,
    Upkeep,
    compact_in_passing,
    keep_small,
    remove_rows,
)

_CHANGES = pa.array([RowKind.INSERT.value, RowKind.UPDATE.value, RowKind.DELETE.value])


def keep_log_small(log: ChangeLog, last: WindowMarker, age: timedelta, needed: int) -> Upkeep:
    """Remove windows that were landed longer ago than ``age`` and before the ordinal ``needed``, in whole files.

    ``last`` is the last window's marker: this window is kept, and so are the fingerprints that it refers to. Raises
    LakeError; OvertakenError when another process maintains the log.
    """
    expiry = Expiry(age, min(needed, last.ordinal), _fingerprints_of(last))
    return keep_small(_counted(log), LOG_CONFIGURATION, expiry, FOR_READERS)


def remove_changes(log: ChangeLog, chosen: Chosen, relids: Sequence[int]) -> None:
    """Remove ``chosen`` rows, which are changes of these relations, and everything that holds them. What is left of a
    window keeps its place, and its marker. See ``remove_rows``."""
    of_relations = partial(changes_of, relids)
    may_hold = partial(_may_hold_one, relids)
    remove_rows(_counted(log), RowsToRemove(chosen, may_hold, of_relations))


def changes_of(relids: Sequence[int], rows: pa.RecordBatch) -> pa.Array:
    """For each row of the change log, whether it is a change of a row of one of these relations."""
    of_one = pc.is_in(rows.column("relid"), pa.array(relids, pa.int64()))
    return pc.and_(of_one, pc.is_in(rows.column("kind"), _CHANGES))


def _may_hold_one(relids: Sequence[int], file: DataFile) -> bool:
    return any(file.may_hold("relid", relid) for relid in relids)


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
