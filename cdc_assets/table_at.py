"""``cdc_assets.at``: a table as it was at the end of the day or hour that a user's own asset is built for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_assets.calendars import CUT, key_that_ends


@dataclass(frozen=True)
class TableAt:
    """The Delta table at ``path``, to be read at ``version``. ``storage_options`` are those of ``deltalake`` and
    polars, None for a folder; Spark and DuckDB have settings of their own. They hold no credentials."""

    path: str
    version: int
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)


def at(context: dg.AssetExecutionContext, table: str, *, asset: dg.AssetKey | str | None = None) -> TableAt:
    """``table`` as it was when the run's partition ended; of several partitions, when the last of them did.

    The asset of the run depends on NAME/daily or NAME/hourly, where a partition ends at the same instant; ``asset`` is
    that key, needed only if several pipelines have such a table. Raises Failure if the day is not complete, or has no
    such table.

    Example: ``orders = cdc_assets.at(context, "public.orders")``
    """
    if not context.has_partition_key and not context.has_partition_key_range:
        raise dg.Failure("cdc_assets.at: the run has no partition", allow_retries=False)
    end = context.partition_time_window.end.astimezone(UTC)
    cuts = dict(_cuts(context, end, dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset))
    holding = {key: cut for key, cut in cuts.items() if table in cut["tables"]}
    places = {cut["tables"][table]["path"] for cut in holding.values()}
    if len(places) == 1:
        return _table_at(table, next(iter(holding.values())))
    known = ", ".join(key.to_user_string() for key in cuts)
    if places:
        raise dg.Failure(f"{known} each have a table {table}; say which: at(..., asset=...)", allow_retries=False)
    raise dg.Failure(f"{known} has no table {table} at {end.isoformat()}", allow_retries=False)


def _cuts(
    context: dg.AssetExecutionContext, end: datetime, asset: dg.AssetKey | None
) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    """Of the assets of days and hours that the run's assets depend on."""
    graph = context.job_def.asset_layer.asset_graph  # a test's run has no repository
    parents = {parent for key in context.selected_asset_keys for parent in graph.get(key).parent_keys}
    followed = [key for key in sorted(parents) if CUT in graph.get(key).metadata and asset in (None, key)]
    if not followed:
        hint = 'deps=["NAME/daily"]' if asset is None else asset.to_user_string()
        raise dg.Failure(
            f"cdc_assets.at: the asset depends on no days or hours of a pipeline: {hint}", allow_retries=False
        )
    missing = []
    for key in followed:
        partitions = graph.get(key).partitions_def
        partition = (
            key_that_ends(partitions, end) if isinstance(partitions, dg.TimeWindowPartitionsDefinition) else None
        )
        cut = None if partition is None else _cut(context.instance, key, partition)
        if cut is not None:
            yield key, cut
        elif partition is None:
            missing.append(
                f"no partition of {key.to_user_string()} ends at {end.isoformat()}: both have to begin at one hour"
            )
        else:
            missing.append(f"{key.to_user_string()} is not materialised for {partition}: the day is not complete")
    if len(missing) == len(followed):
        raise dg.Failure("; ".join(missing), allow_retries=False)


def _cut(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> Mapping[str, Any] | None:
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]), limit=1
    ).records
    event = records[0].asset_materialization if records else None
    cut = event.metadata.get(CUT) if event is not None else None
    return cut.value if isinstance(cut, dg.JsonMetadataValue) and isinstance(cut.value, dict) else None


def _table_at(table: str, cut: Mapping[str, Any]) -> TableAt:
    from spark_jobs.object_stores import storage_options
    from spark_jobs.storage import Location, Storage, StoreSettings

    entry = cut["tables"][table]
    location = Location(entry["path"], Storage(StoreSettings(**cut["storage"])))
    return TableAt(entry["path"], entry["version"], storage_options(location))
