"""The partitions of windows that an earlier run, or the command, has completed, and of those that were lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import delete_partitions, well_formed
from spark_jobs.change_log.chapters import Chapters
from spark_jobs.errors import GapError
from spark_jobs.logicalrep.lsn import Lsn, Window

# each event is a row in Dagster's storage; the next run marks the rest
_MOST_PER_RUN = 1000


def require_present_chapter(windows: Iterable[Window], chapters: Chapters) -> None:
    """Raise GapError for a window that begins before the change log's present chapter: it cannot be landed any more,
    nor applied to a table, which was read again since."""
    present = chapters.present
    for window in windows:
        if chapters.is_of_earlier(window):
            why = f" after the break: {present.broke.what}" if present.broke else ""
            what = "was lost" if chapters.lost(window) else "is of an earlier chapter"
            raise GapError(
                f"the window {window} {what}: the present chapter of the change log begins at {present.landed.lo}{why}",
                hint="select partitions that begin there or later",
            )


def done_before(run_windows: Sequence[Window], done_through: Lsn, chapters: Chapters) -> tuple[Window, ...]:
    """What of the present chapter is done before this run's windows, up to ``done_through``: one range, or none."""
    begin, end = chapters.present.landed.lo, min(done_through, run_windows[0].lo)
    return (Window(begin, end),) if begin < end else ()


def landed_earlier(chapters: Chapters) -> tuple[Window, ...]:
    """What was landed in the chapters before the present one, each range in LSNs of its own."""
    return tuple(chapter.landed for chapter in chapters.all[:-1])


def catch_up_events(context: dg.AssetExecutionContext, asset: dg.AssetKey, done: Sequence[Window]) -> None:
    """Mark the partitions that lie within one of the ranges ``done`` and are not marked yet: those that a killed run
    left, or that this one has caught up."""
    partitions = context.assets_def.specs_by_key[asset].partitions_def
    if not isinstance(partitions, dg.DynamicPartitionsDefinition) or partitions.name is None:
        return  # a subclass has given the asset other partitions
    marked = context.instance.get_materialized_partitions(asset)
    unmarked = [
        window
        for window in well_formed(context.instance.get_dynamic_partitions(partitions.name))
        if window.key not in marked and any(part.lo <= window.lo and window.hi <= part.hi for part in done)
    ]
    for window in unmarked[-_MOST_PER_RUN:]:
        context.log_event(dg.AssetMaterialization(asset, partition=window.key, metadata={"caught_up": True}))


def remove_lost_partitions(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, blueprint: Blueprint, chapters: Chapters
) -> None:
    """Remove them, and say so: in the run's log, and in an observation of the change log, which outlives them.

    Left in place they would be shown as missing for ever, and every backfill of what is missing would fail for them. No
    range is planned across a break, so removing a partition between two others changes no range.
    """
    keys = context.instance.get_dynamic_partitions(f"{blueprint.name}_lsn")
    lost = [window for window in well_formed(keys) if chapters.lost(window)]
    if not lost:
        return
    broke = chapters.present.broke
    why = broke.what if broke is not None else "they end before the change log begins"
    named = ", ".join(map(str, lost))
    context.log.warning(f"{len(lost)} partitions are removed, since their windows were lost: {named} ({why})")
    context.log_event(
        dg.AssetObservation(
            blueprint.change_log_key,
            description=f"{len(lost)} windows were lost, and their partitions are removed: {why}",
            metadata={"windows_lost": len(lost), "lost": dg.MetadataValue.md("\n".join(f"- {each}" for each in lost))},
        )
    )
    delete_partitions(context.instance, blueprint.partitions, lost)
