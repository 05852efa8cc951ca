"""The specs of all assets of a pipeline, before translation: their keys, groups and texts, and what depends on what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from cdc_assets.asset_specs import AssetSpecs
from cdc_assets.calendars import CUT, Calendar, CalendarName
from cdc_assets.configuration.automation_model import AutomationModel
from cdc_assets.configuration.table_model import TableModel
from cdc_assets.partitions import lsn_partitions
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.qualified_name import QualifiedName

_ONE = {"daily": "day", "hourly": "hour"}


def untranslated_specs(
    pipeline: Pipeline,
    database: str,
    source_prefix: Sequence[str],
    tables: Mapping[QualifiedName, dg.AssetSpec],
    comments: Mapping[QualifiedName, str],
    automation: AutomationModel,
    calendars: Mapping[CalendarName, Calendar],
) -> AssetSpecs:
    """``comments``: those on the source's tables, as far as they are known."""
    sources = {
        relation: source_spec(source_prefix, database, relation, comments.get(relation, ""))
        for relation in pipeline.relations(tables)
    }
    name, table_keys = pipeline.name, [spec.key for spec in tables.values()]
    taken_by = automation.takes_snapshots(name)
    return AssetSpecs(
        change_log=_change_log(pipeline, [source.key for source in sources.values()], automation.adds_windows(name)),
        maintenance=_maintenance(name, automation.maintains(name)),
        messages=_messages(pipeline, database) if pipeline.source.messages else None,
        sources=sources,
        snapshots={
            table: _snapshot(name, pipeline.lake, table, source.key, taken_by)
            for table, source in pipeline.by_name(tables, sources).items()
        },
        tables=tables,
        calendars={each: _calendar(name, each, calendar, table_keys) for each, calendar in calendars.items()},
    )


def table_spec(
    name: str, database: str, lake: Lake, settings: TableModel, comment: str, adds_windows: str
) -> dg.AssetSpec:
    """One table that the pipeline ``name`` follows. What all tables share is a parameter: derived here from the
    pipeline, it would be derived again for each table."""
    table, relation = settings.qualified_name, settings.relation
    mode = f" in mode {settings.mode}" if table != relation else ""
    what = f"PostgreSQL table {relation} of database {database}, replicated change by change{mode}."
    return dg.AssetSpec(
        key=dg.AssetKey([name, *_parts(table)]),
        description=_with_comment(f"{what} {adds_windows}", comment),
        group_name=name,
        kinds={"postgres", "deltalake", "spark"},
        partitions_def=lsn_partitions(name),
        deps=[_change_log_key(name), snapshot_key(name, table)],
        metadata=_in_lake(
            lake.table(table), ".".join(lake.catalog_name(table) or (name, table.nspname, table.relname))
        ),
    )


def source_spec(prefix: Sequence[str], database: str, table: QualifiedName, comment: str) -> dg.AssetSpec:
    """The external asset of one source table. ``prefix`` tells sources apart: ``postgres`` and the database, or what
    the configuration says."""
    return dg.AssetSpec(
        key=dg.AssetKey([*map(_part, prefix), *_parts(table)]),
        description=_with_comment(f"PostgreSQL table {table} of database {database}.", comment),
        kinds={"postgres", "table"},
        group_name="_".join(map(_part, prefix)),
        metadata={
            "dagster/table_name": f"{database}.{table.nspname}.{table.relname}",
            "dagster/storage_kind": "postgres",
        },
    )


def _change_log(pipeline: Pipeline, sources: Iterable[dg.AssetKey], adds_windows: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=_change_log_key(pipeline.name),
        description=f"What replication slot {pipeline.source.slot} sent, unparsed, in commit order. {adds_windows}",
        group_name=pipeline.name,
        kinds={"postgres", "deltalake"},
        partitions_def=lsn_partitions(pipeline.name),
        deps=sources,
        metadata=_in_lake(pipeline.lake.change_log, f"{pipeline.name}.change_log"),
    )


def _messages(pipeline: Pipeline, database: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=dg.AssetKey([pipeline.name, "_messages"]),
        description=f"Messages of pg_logical_emit_message in database {database}, in commit order.",
        group_name=pipeline.name,
        kinds={"postgres", "deltalake"},
        partitions_def=lsn_partitions(pipeline.name),
        deps=[_change_log_key(pipeline.name)],
        metadata=_in_lake(pipeline.lake.messages, f"{pipeline.name}._messages"),
    )


def _snapshot(name: str, lake: Lake, table: QualifiedName, source: dg.AssetKey, taken_by: str) -> dg.AssetSpec:
    """Not in the tables' group: "Materialize all" of that group is to offer their partitions, and to take no
    snapshot."""
    return dg.AssetSpec(
        key=snapshot_key(name, table),
        description=f"Table {table} read whole at one LSN. Materialise it alone to re-create"
        f" the Delta table. {taken_by}",
        group_name=f"{name}_snapshots",
        kinds={"postgres", "deltalake", "spark"},
        skippable=True,
        deps=[source],
        metadata=_in_lake(lake.table(table)),
    )


def _maintenance(name: str, done_by: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=dg.AssetKey([name, "maintenance"]),
        description=f"Removes what is older than `retention`, compacts small files, and plots what is left. {done_by}",
        group_name=f"{name}_upkeep",
        kinds={"deltalake", "spark"},
    )


def _calendar(name: str, of: CalendarName, calendar: Calendar, tables: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    one = _ONE[of]
    return dg.AssetSpec(
        key=dg.AssetKey([name, of]),
        description=f"The tables as they were at the end of each {one}: a partition names an LSN, and the Delta version"
        f" of each table that shows it. It is materialised once the {one} is complete.",
        group_name=f"{name}_days",
        kinds={"deltalake"},
        partitions_def=calendar.partitions,
        deps=[dg.AssetDep(table, partition_mapping=dg.AllPartitionMapping()) for table in tables],
        metadata={CUT: True},
    )


def snapshot_key(name: str, table: QualifiedName) -> dg.AssetKey:
    """Of the pipeline ``name``."""
    return dg.AssetKey([name, "snapshot", *_parts(table)])


def _change_log_key(name: str) -> dg.AssetKey:
    return dg.AssetKey([name, "change_log"])


def _parts(table: QualifiedName) -> tuple[str, str]:
    return _part(table.nspname), _part(table.relname)


def _part(name: str) -> str:
    """A name in an asset key. Dagster turns keys into step names, so all but letters and digits becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _with_comment(description: str, comment: str) -> str:
    """What PostgreSQL's comment on the table says comes first."""
    return f"{comment}\n\n{description}" if comment else description


def _in_lake(path: str, table_name: str | None = None) -> dict[str, str]:
    named = {} if table_name is None else {"dagster/table_name": table_name}
    return {"dagster/uri": path, "dagster/storage_kind": "deltalake", **named}
