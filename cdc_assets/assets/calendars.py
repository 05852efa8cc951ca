"""``[name, daily]`` and ``[name, hourly]``: a partition names the cut that shows what was committed before its end.

The cut is written by whoever brings the tables to that end. A materialisation only looks it up, and records it for
those who read the tables (``cdc_assets.at``). The sensor does the same without a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.calendars import CUT, Calendar, CalendarName
from cdc_assets.failures import failures, for_dagster

if TYPE_CHECKING:
    from spark_jobs.replay.consistent_cut import ConsistentCut

# for the event log's sake, the rest comes with the next tick
_MOST_AT_ONCE = 100


def calendar_assets(blueprint: Blueprint) -> list[dg.AssetsDefinition]:
    return [_calendar_asset(blueprint, name, calendar) for name, calendar in blueprint.calendars.items()]


def _calendar_asset(blueprint: Blueprint, name: CalendarName, calendar: Calendar) -> dg.AssetsDefinition:
    """It reads the lake only, so it needs neither the pool nor Spark."""
    spec = blueprint.specs.calendars[name]

    @dg.multi_asset(
        name=f"{blueprint.name}__{name}",
        specs=[spec],
        op_tags=blueprint.op.tags,
        retry_policy=blueprint.retry_policy,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def ended(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        return _look_up(context, blueprint, calendar, spec.key)

    return ended


def _look_up(
    context: dg.AssetExecutionContext, blueprint: Blueprint, calendar: Calendar, key: dg.AssetKey
) -> dg.MaterializeResult[Any]:
    from spark_jobs.replay.consistent_cut import Incomplete, period_cut

    events: list[dg.AssetMaterialization] = []
    for partition in context.partition_keys:
        end = calendar.end_of(partition)
        with failures(blueprint.remedies):
            cut = period_cut(blueprint.pipeline, end, waits=blueprint.waits_for_stopped)
        if isinstance(cut, Incomplete):
            for event in events:  # the complete ones of a backfill stay
                context.log_event(event)
            message = for_dagster(f"{partition}: {cut.why}\n{cut.hint}", blueprint.remedies)
            raise dg.Failure(message, allow_retries=False)
        events.append(dg.AssetMaterialization(key, partition=partition, metadata=_metadata(blueprint, cut, end)))
    for event in events:
        context.add_asset_metadata(event.metadata, key, event.partition)
    return dg.MaterializeResult(asset_key=key)


def completed(
    instance: dg.DagsterInstance, blueprint: Blueprint, settled: datetime | None
) -> list[dg.AssetMaterialization]:
    """The events of the days and hours that are complete and not materialised. ``settled``: up to when the change log
    has all ends. Costs no look at the lake while there is none to wait for. Raises LakeError."""
    if settled is None:
        return []
    waiting = {name: _not_materialised(instance, blueprint, name, settled) for name in blueprint.calendars}
    return list(islice(_completed(blueprint, waiting), _MOST_AT_ONCE)) if any(waiting.values()) else []


def _not_materialised(
    instance: dg.DagsterInstance, blueprint: Blueprint, name: CalendarName, settled: datetime
) -> list[str]:
    """In order, after the newest that is: one that is not materialised before that never will be."""
    calendar, since = blueprint.calendars[name], settled - blueprint.pipeline.retention.cuts
    marked = instance.get_materialized_partitions(blueprint.specs.calendars[name].key)
    newest_first = (calendar.key_that_ends(end) for end in reversed([*calendar.periods.ends(since, settled)]))
    waiting = [key for key in takewhile(lambda key: key not in marked, newest_first) if key is not None]
    return waiting[::-1]


def _completed(blueprint: Blueprint, waiting: dict[CalendarName, list[str]]) -> Iterator[dg.AssetMaterialization]:
    from spark_jobs.lake.cuts import shown_ends
    from spark_jobs.replay.consistent_cut import ConsistentCut, period_cut

    shown = shown_ends(blueprint.pipeline.lake)
    for name, keys in waiting.items():
        for key in keys:
            end = blueprint.calendars[name].end_of(key)
            cut = period_cut(blueprint.pipeline, end, waits=blueprint.waits_for_stopped) if end in shown else None
            if isinstance(cut, ConsistentCut):
                asset = blueprint.specs.calendars[name].key
                yield dg.AssetMaterialization(asset, partition=key, metadata=_metadata(blueprint, cut, end))


def _metadata(blueprint: Blueprint, cut: ConsistentCut, end: datetime) -> dict[str, Any]:
    tables = {str(table.name): {"path": str(table.path), "version": table.delta_version} for table in cut.tables}
    missing = [str(name) for name in blueprint.table_specs if str(name) not in tables]
    last = {} if cut.commit_time is None else {"last_commit": dg.MetadataValue.timestamp(cut.commit_time)}
    return {
        "end": dg.MetadataValue.timestamp(end),
        "lsn": str(cut.lsn),
        **last,
        **({"tables_missing": ", ".join(missing)} if missing else {}),
        CUT: dg.MetadataValue.json({"tables": tables, "storage": asdict(blueprint.pipeline.lake.storage.settings)}),
    }
