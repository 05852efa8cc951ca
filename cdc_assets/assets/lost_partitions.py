"""Partitions whose windows were lost at a break: they can never be landed, so they are removed, by name."""

from __future__ import annotations

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import delete_partitions, well_formed
from spark_jobs.change_log.chapters import Chapters


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
