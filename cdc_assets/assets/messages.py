"""``[name, "_messages"]``: what ``pg_logical_emit_message`` wrote, as a Delta table. Exists if messages are on.

It is part of the tables' step: the same partitions, the same runs. It has no snapshot, and needs no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.partitions import markers_in
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.logicalrep.lsn import Window

if TYPE_CHECKING:
    from spark_jobs.apply.table_applied import TableApplied


def messages_events(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    windows: Sequence[Window],
    markers: Sequence[WindowMarker],
    applied: TableApplied,
) -> dg.MaterializeResult[Any]:
    """The events of finished windows. ``messages`` counts those of all prefixes per window, for the UI's plots."""
    for window in windows:
        messages = sum(marker.logical_messages for marker in markers_in(window, markers))
        context.add_asset_metadata({"messages": messages}, key, window.key)
    of_the_run: dict[str, object] = {"outcome": applied.outcome, "rows_written": applied.rows_written}
    if applied.delta_version is not None:
        of_the_run["delta_version"] = applied.delta_version
    context.add_asset_metadata(of_the_run, key, windows[-1].key)
    return dg.MaterializeResult(asset_key=key)
