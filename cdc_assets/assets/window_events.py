"""Materialisation events of windows that an earlier run, or the command, has completed."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from cdc_assets.partitions import well_formed
from spark_jobs.logicalrep.lsn import Lsn, Window

# each event is a row in Dagster's storage; the next run marks the rest
_MOST_PER_RUN = 1000


def catch_up_events(
    context: dg.AssetExecutionContext, asset: dg.AssetKey, run_windows: Sequence[Window], done_through: Lsn
) -> None:
    """Mark completed partitions before this run's: left unmarked by a killed run, or caught up by this one."""
    partitions = context.assets_def.specs_by_key[asset].partitions_def
    if not isinstance(partitions, dg.DynamicPartitionsDefinition) or partitions.name is None:
        return  # a subclass has given the asset other partitions
    marked = context.instance.get_materialized_partitions(asset)
    earlier = [
        window
        for window in well_formed(context.instance.get_dynamic_partitions(partitions.name))
        if window.hi <= min(done_through, run_windows[0].lo) and window.key not in marked
    ]
    for window in earlier[-_MOST_PER_RUN:]:
        context.log_event(dg.AssetMaterialization(asset, partition=window.key, metadata={"caught_up": True}))
