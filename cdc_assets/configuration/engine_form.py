"""The configuration in the engine's form: frozen, with all defaults filled in."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import chain
from pathlib import Path

from pydantic import SecretStr

from cdc_assets.configuration.environment import mask_salt
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.source_model import SourceModel
from cdc_assets.configuration.table_model import LayoutModel, TableModel
from spark_jobs.configuration import (
    Adopted,
    ColumnSelection,
    Lake,
    MessagePrefixes,
    Pipeline,
    Retention,
    SnapshotOptions,
    Source,
    SparkOptions,
    Table,
    TablePatterns,
    WindowLimits,
)
from spark_jobs.object_stores import spark_settings, store_of
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.folder_template import FolderTemplate
from spark_jobs.options.health_limits import HealthLimits, Threshold
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.postgres.command_dsn import CommandDsn
from spark_jobs.postgres.password_command import PasswordCommand
from spark_jobs.storage import Storage, StoreSettings

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def pipeline_of(model: PipelineModel, folder: Path) -> Pipeline:
    """The engine's frozen form; a relative ``lake.path`` is relative to ``folder``, the file's own.

    Raises ConfigurationError if columns are masked and the environment holds no salt.
    """
    source, policy = model.source, model.on_schema_change.over()
    lake = lake_of(model, folder)
    tables = None
    if not model.asks_source:
        rules = model.table_rules
        each = (_tables_of(rules.settings_of(table.qualified_name), policy, folder) for table in model.tables or ())
        tables = tuple(chain.from_iterable(each))
    return Pipeline(
        name=model.name,
        source=Source(
            dsn=_dsn_of(source),
            slot=source.slot or model.name,
            publication=source.publication or model.name,
            plugin=source.plugin,
            streaming=source.streaming,
            two_phase=source.two_phase,
            origin=source.origin,
            messages=source.messages
            if isinstance(source.messages, bool)
            else MessagePrefixes(tuple(source.messages.prefixes)),
            binary=source.binary,
            proto_version=source.proto_version,
            adopt_slot=source.adopt_slot,
        ),
        lake=lake,
        windows=WindowLimits(model.windows.max_bytes, model.windows.max_per_run),
        snapshot=SnapshotOptions(
            model.snapshot.chunk, model.snapshot.parallel, model.snapshot.rate_limit, model.snapshot.partial
        ),
        retention=Retention(timedelta(seconds=model.retention.change_log), timedelta(seconds=model.retention.cuts)),
        health=HealthLimits(**{name: Threshold(limit.warn, limit.error) for name, limit in model.health}),
        tables=tables,
        on_unrepresentable=model.on_unrepresentable,
        on_rewrite=model.on_rewrite,
        on_schema_change=policy,
        spark=SparkOptions(
            master=model.spark.master,
            remote=model.spark.remote,
            jars=model.spark.jars,
            config=tuple({**spark_settings(lake.root), **model.spark.config}.items()),
            handed_in=model.spark.resource is not None,
            store=store.scheme if (store := store_of(lake.path)) else None,
        ),
        mask_salt=mask_salt(),
        merge_engine=model.merge.engine,
        patterns=_patterns_of(model, folder),
        periods=tuple(each.periods for each in model.time_partitions.named.values()) if model.time_partitions else (),
    )


def _dsn_of(source: SourceModel) -> SecretStr:
    if not source.password_command:
        return source.dsn
    return CommandDsn(source.dsn, PasswordCommand(source.password_command))


def lake_of(model: PipelineModel, folder: Path) -> Lake:
    """A relative ``lake.path`` is relative to ``folder``."""
    lake, settings = model.lake, StoreSettings(**model.lake.storage.model_dump())
    tables = FolderTemplate(lake.tables, "" if "{schema}" in lake.tables else model.only_schema or "")
    return Lake(_absolute(lake.path, folder), Storage(settings), lake.catalog or "", tables)


def _patterns_of(model: PipelineModel, folder: Path) -> TablePatterns | None:
    """None if every table is named, or if every table of the publication is followed in the same way."""
    if not model.asks_source or not (model.tables or model.exclude or model.defaults):
        return None
    rules, policy = model.table_rules, model.on_schema_change.over()
    masking = [table.pattern for table in model.tables or () if table.mask]
    if model.defaults is not None and model.defaults.mask:
        masking.append(TablePattern.parse("*.*"))
    return TablePatterns(
        tuple(table.pattern for table in model.tables or ()),
        tuple(map(TablePattern.parse, model.exclude)),
        settings=lambda name: _tables_of(rules.settings_of(name), policy, folder),
        masking=tuple(masking),
    )


def _tables_of(model: TableModel, policy: SchemaPolicy, folder: Path) -> tuple[Table, ...]:
    """The lake's tables of one source table."""
    columns = model.columns
    selection = ColumnSelection(tuple(columns.include), tuple(columns.exclude)) if columns is not None else None
    types = ChosenTypes.of({name: ChosenType.parse(text) for name, text in model.types.items()})
    options = ColumnOptions(types, tuple(model.on_unrepresentable.items()), layout=_layout_of(model.layout))
    own = None if model.on_schema_change is None else model.on_schema_change.over(policy)
    return tuple(
        Table(
            each.qualified_name,
            each.mode,
            selection,
            tuple(model.key),
            options,
            tuple(model.mask),
            own,
            tuple(model.metadata_columns),
            shows=each.relation if each.relation != each.qualified_name else None,
            begins_empty=model.snapshot == "none",
            adopt=_adopted_of(model, folder),
        )
        for each in model.in_modes()
    )


def _adopted_of(model: TableModel, folder: Path) -> Adopted | None:
    if (adopt := model.adopt) is None:
        return None
    path = adopt.path.replace("{schema}", model.schema_name).replace("{table}", model.table_name)
    return Adopted(_absolute(path, folder).rstrip("/"), tuple(adopt.columns.items()))


def _layout_of(model: LayoutModel | None) -> TableLayout:
    if model is None:
        return NO_LAYOUT
    properties = {name: str(value) for name, value in model.properties.items()}
    return TableLayout(tuple(model.cluster_by), tuple(model.partition_by), tuple(properties.items()))


def _absolute(path: str, folder: Path) -> str:
    """The same place from any working directory: the command and Dagster have different ones."""
    if _URI.match(path):
        return path
    return str((folder / Path(path).expanduser()).resolve())
