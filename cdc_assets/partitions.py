"""LSN windows as Dagster partitions: keys, their order, and which keys to add.

Dynamic partition keys come back in the order they were added, and a range of keys is a slice of that order. So keys
are only ever appended, in LSN order; the text order of the keys is the LSN order too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from spark_jobs.logicalrep.lsn import Lsn, Window

# SQLite has a limit on variables per statement; Dagster adds keys in one
ADD_BATCH = 500


def lsn_partitions(pipeline_name: str) -> dg.DynamicPartitionsDefinition:
    """The windows of one slot, shared by its change log and its tables."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline_name}_lsn")


def windows_of(keys: Iterable[str]) -> tuple[Window, ...]:
    """A run's windows in LSN order. Anyone can type a key in the UI: a bad one fails the run at once, unretried."""
    try:
        return tuple(sorted(Window.parse(key) for key in keys))
    except ValueError as error:
        raise dg.Failure(f"partition key: {error}", allow_retries=False) from None


def well_formed(keys: Iterable[str]) -> list[Window]:
    """The windows among ``keys``; a mistyped key fails its own run, and must not stop the sensor."""
    return [window for key in keys if (window := _parsed(key)) is not None]


def _parsed(key: str) -> Window | None:
    try:
        return Window.parse(key)
    except ValueError:
        return None


def windows_to_add(known_end: Lsn, windows: Iterable[Window]) -> tuple[Window, ...]:
    """The windows that are not partitions yet, in LSN order, each starting where the one before it ends.

    ``known_end`` is the end of the last partition, 0 before the first; what lies before it is cut off.
    """
    added = []
    end = known_end
    for window in sorted(windows):
        lo = max(end, window.lo)
        if window.hi > lo:
            added.append(Window(lo, window.hi))
            end = window.hi
    return tuple(added)


def add_partitions(
    instance: dg.DagsterInstance, definition: dg.DynamicPartitionsDefinition, keys: Sequence[str]
) -> None:
    """Append keys, in the order given."""
    assert definition.name is not None
    for start in range(0, len(keys), ADD_BATCH):
        instance.add_dynamic_partitions(definition.name, list(keys[start : start + ADD_BATCH]))
