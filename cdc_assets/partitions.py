"""LSN windows as Dagster partitions: keys, their order, and which keys to add.

Dagster returns dynamic partition keys in the order in which they were added, and a range of keys is a slice of that
order. So keys are appended in LSN order, as far as none was deleted. Their order as text means nothing, and a window is
called by the key that Dagster has for it: those of the first releases are spelled in another way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import dagster as dg

from spark_jobs.change_log.chapters import Chapters
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window

# Dagster adds keys in one statement, and SQLite limits the variables of a statement
ADD_BATCH = 500


def lsn_partitions(pipeline_name: str) -> dg.DynamicPartitionsDefinition:
    """The windows of one slot, shared by its change log and its tables."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline_name}_lsn")


def windows_of(context: dg.AssetExecutionContext) -> tuple[Window, ...]:
    """A run's windows in LSN order. Keys may be typed in the UI, and a job launched without any: a run with a bad one,
    or with none, fails at once, without a retry."""
    if not context.has_partition_key and not context.has_partition_key_range:
        what = (
            "the run has no partitions, which are the windows to capture and apply: select some, or let sensor or"
            " schedule request the run; the command postgres-cdc sync needs none"
        )
        raise dg.Failure(what, allow_retries=False)
    try:
        return tuple(sorted(Window.parse(key) for key in context.partition_keys))
    except ValueError as error:
        raise dg.Failure(f"partition key: {error}", allow_retries=False) from None


def well_formed(keys: Iterable[str]) -> list[Window]:
    """The windows among ``keys``. A mistyped key fails its own run, but must not stop the sensor."""
    return [window for key in keys if (window := _parsed(key)) is not None]


def _parsed(key: str) -> Window | None:
    try:
        return Window.parse(key)
    except ValueError:
        return None


def markers_in(window: Window, markers: Iterable[WindowMarker]) -> list[WindowMarker]:
    """The landed windows that end in a partition. They need not match the keys, but each ends in exactly one."""
    return [marker for marker in markers if window.lo < marker.window.hi <= window.hi]


def uncovered(windows: Iterable[Window], known: Iterable[Window], start: Lsn) -> tuple[Window, ...]:
    """The parts of ``windows`` from ``start`` on that no known window covers, in LSN order, without overlaps."""
    parts = []
    cover = sorted(known)
    end = start
    for window in sorted(windows):
        lo = max(window.lo, end)
        for other in cover:
            if other.lo >= window.hi:
                break
            if other.lo > lo:
                parts.append(Window(lo, other.lo))
            lo = max(lo, other.hi)
        if lo < window.hi:
            parts.append(Window(lo, window.hi))
        end = max(end, window.hi)
    return tuple(parts)


def no_longer_landed(keys: Iterable[str], marked: Collection[str], chapters: Chapters) -> list[Window]:
    """The partitions whose windows retention has removed from the log. ``marked``: those that were landed once.

    A partition after the log's end may still be landed, unless it was already: then it is of an earlier chapter, whose
    LSNs were higher.
    """
    return [
        window
        for window in well_formed(keys)
        if (window.lo < chapters.present.landed.lo or window.key in marked)
        and not any(window.lo < chapter.landed.hi and chapter.landed.lo < window.hi for chapter in chapters.all)
    ]


def delete_partitions(
    instance: dg.DagsterInstance, definition: dg.DynamicPartitionsDefinition, windows: Iterable[Window]
) -> None:
    assert definition.name is not None
    for window in windows:
        instance.delete_dynamic_partition(definition.name, window.key)


def add_partitions(
    instance: dg.DagsterInstance, definition: dg.DynamicPartitionsDefinition, keys: Sequence[str]
) -> None:
    """Append keys, in the order given."""
    assert definition.name is not None
    for start in range(0, len(keys), ADD_BATCH):
        instance.add_dynamic_partitions(definition.name, list(keys[start : start + ADD_BATCH]))
