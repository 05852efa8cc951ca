"""The specs of all assets of a pipeline, before translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from cdc_assets.asset_specs import AssetSpecs
from cdc_assets.assets.calendars import calendar_spec
from cdc_assets.assets.change_log import change_log_spec
from cdc_assets.assets.external import source_spec
from cdc_assets.assets.maintenance import maintenance_spec
from cdc_assets.assets.messages import messages_spec
from cdc_assets.assets.snapshots import snapshot_spec
from cdc_assets.calendars import Calendar, CalendarName
from cdc_assets.configuration.automation_model import AutomationModel
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName


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
    taken_by = automation.takes_snapshots(pipeline.name)
    return AssetSpecs(
        change_log=change_log_spec(
            pipeline, [source.key for source in sources.values()], automation.adds_windows(pipeline.name)
        ),
        maintenance=maintenance_spec(pipeline.name, automation.maintains(pipeline.name)),
        messages=messages_spec(pipeline, database),
        sources=sources,
        snapshots={
            table: snapshot_spec(pipeline.name, pipeline.lake, table, source.key, taken_by)
            for table, source in pipeline.by_name(tables, sources).items()
        },
        tables=tables,
        calendars={
            name: calendar_spec(pipeline.name, name, calendar, [spec.key for spec in tables.values()])
            for name, calendar in calendars.items()
        },
    )
