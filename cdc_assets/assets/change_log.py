"""``[name, change_log]``: a materialisation reads windows of the slot, lands them and advances the slot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.assets.turns import in_turn
from cdc_assets.assets.window_events import (
    catch_up_events,
    done_before,
    landed_earlier,
    remove_lost_partitions,
    require_present_chapter,
)
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failures, for_dagster
from cdc_assets.logged_progress import logged_progress
from cdc_assets.partitions import markers_in, windows_of
from cdc_assets.slot_observation import landed_chapters, markers_since
from spark_jobs.change_log.change_counts import NO_CHANGES
from spark_jobs.change_log.window_marker import WindowMarker

if TYPE_CHECKING:
    from spark_jobs.change_log.commit_times import WindowTimes


def change_log_asset(blueprint: Blueprint) -> dg.AssetsDefinition:
    """Needs no Spark and no Java."""

    @dg.multi_asset(
        name=f"{blueprint.name}_change_log",
        specs=[blueprint.specs.change_log],
        pool=blueprint.pool,
        op_tags=blueprint.op_tags,
        retry_policy=blueprint.retry_policy,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def change_log(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        blueprint.note_run(context)
        yield from in_turn(context, _capture(context, blueprint))

    return change_log


def _capture(context: dg.AssetExecutionContext, blueprint: Blueprint) -> Iterator[dg.MaterializeResult[Any]]:
    """Land the run's windows that are not landed yet; the others are only marked as done."""
    from spark_jobs.capture.capture import capture_windows
    from spark_jobs.change_log.commit_times import window_times
    from spark_jobs.change_log.log import ChangeLog
    from spark_jobs.prepare import prepare

    pipeline = blueprint.pipeline
    windows = windows_of(context)
    progress = logged_progress(context.log.info)
    started = time.monotonic()
    with failures(blueprint.remedies):
        prepared = prepare(pipeline)  # a table that was added to the configuration joins the publication
        for table in prepared.stopped:  # its own asset fails; the other tables and the slot go on
            context.log.error(for_dagster(table.error.lines, blueprint.remedies))
        chapters = landed_chapters(pipeline)
        assert chapters is not None  # prepare makes the log
        require_present_chapter(windows, chapters)
        report = capture_windows(pipeline, windows, progress=progress)
        seconds = time.monotonic() - started
        markers = markers_since(pipeline, windows[0].lo)
        read = [marker.ordinal for marker in markers if marker.window.lo < windows[-1].hi]
        times = window_times(ChangeLog(pipeline.lake.change_log), read[0], read[-1]) if read else {}
    done = (*landed_earlier(chapters), *done_before(windows, report.landed_end, chapters))
    catch_up_events(context, blueprint.change_log_key, done)
    remove_lost_partitions(context, blueprint, chapters)
    for window in windows:
        landed = markers_in(window, markers)
        metadata = {
            **marker_metadata(landed),
            **_time_metadata([times[m.ordinal] for m in landed if m.ordinal in times]),
        }
        context.add_asset_metadata(metadata, blueprint.change_log_key, window.key)
    # the seconds are those of the whole run: windows are read together
    context.add_asset_metadata({"run_seconds": round(seconds, 1)}, blueprint.change_log_key, windows[-1].key)
    yield dg.MaterializeResult(asset_key=blueprint.change_log_key)


def _time_metadata(times: Sequence[WindowTimes]) -> Mapping[str, dg.MetadataValue]:
    """When the source committed the first and the last transaction of a partition: LSNs do not show the time."""
    if not times:
        return {}
    first, last = min(each.first for each in times), max(each.last for each in times)
    return {"first_commit": dg.MetadataValue.timestamp(first), "last_commit": dg.MetadataValue.timestamp(last)}


def marker_metadata(markers: list[WindowMarker]) -> Mapping[str, int]:
    """The change log's numbers of the windows that end in a partition; the UI plots them."""
    changes = sum((relation.changes for marker in markers for relation in marker.relations), start=NO_CHANGES)
    return {
        "wal_bytes": sum(marker.window.size for marker in markers),
        "bytes": sum(marker.bytes for marker in markers),
        "transactions": sum(marker.transactions for marker in markers),
        **asdict(changes),
        "dagster/partition_row_count": changes.total,
    }
