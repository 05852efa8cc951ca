"""The specs of one pipeline's assets, of every kind: the one place that knows their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import dagster as dg

from cdc_assets.calendars import CalendarName
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName

# what templates of ``translation`` see as ``kind``
Kind: TypeAlias = Literal["table", "snapshot", "change_log", "messages", "maintenance", "source", "daily", "hourly"]
Translate: TypeAlias = Callable[[Kind, QualifiedName | None, dg.AssetSpec], dg.AssetSpec]


@dataclass(frozen=True)
class AssetSpecs:
    """``messages`` is None if the pipeline keeps none. ``calendars``: the assets of days and hours."""

    change_log: dg.AssetSpec
    maintenance: dg.AssetSpec
    messages: dg.AssetSpec | None = None
    tables: Mapping[QualifiedName, dg.AssetSpec] = field(default_factory=dict)
    snapshots: Mapping[QualifiedName, dg.AssetSpec] = field(default_factory=dict)
    sources: Mapping[QualifiedName, dg.AssetSpec] = field(default_factory=dict)
    calendars: Mapping[CalendarName, dg.AssetSpec] = field(default_factory=dict)

    def all(self) -> Iterator[tuple[Kind, QualifiedName | None, dg.AssetSpec]]:
        yield "change_log", None, self.change_log
        yield "maintenance", None, self.maintenance
        if self.messages is not None:
            yield "messages", None, self.messages
        yield from ((name, None, spec) for name, spec in self.calendars.items())
        yield from (("snapshot", table, spec) for table, spec in self.snapshots.items())
        yield from (("source", table, spec) for table, spec in self.sources.items())
        yield from (("table", table, spec) for table, spec in self.tables.items())

    def translated(self, translate: Translate) -> AssetSpecs:
        """Every spec after ``translate``. What depended on a key follows it if that changes."""
        changed = self._each(translate)
        keys = {
            before.key: after.key
            for (_, _, before), (_, _, after) in zip(self.all(), changed.all(), strict=True)
            if before.key != after.key
        }
        return changed._each(lambda _kind, _table, spec: _with_keys(spec, keys)) if keys else changed

    def _each(self, change: Translate) -> AssetSpecs:
        return replace(
            self,
            change_log=change("change_log", None, self.change_log),
            maintenance=change("maintenance", None, self.maintenance),
            messages=None if self.messages is None else change("messages", None, self.messages),
            calendars={name: change(name, None, spec) for name, spec in self.calendars.items()},
            sources={table: change("source", table, spec) for table, spec in self.sources.items()},
            snapshots={table: change("snapshot", table, spec) for table, spec in self.snapshots.items()},
            tables={table: change("table", table, spec) for table, spec in self.tables.items()},
        )

    def require_distinct_keys(self, pipeline: str) -> None:
        """Raises ConfigurationError if two assets have one key."""
        seen: dict[dg.AssetKey, tuple[Kind, QualifiedName | None]] = {}
        for kind, table, spec in self.all():
            other, other_table = seen.setdefault(spec.key, (kind, table))
            if (other, other_table) == (kind, table):
                continue
            one_kind = kind == other  # then the tables' names suffice
            names = [
                str(name) if one_kind else f"{what} {name or ''}".rstrip()
                for what, name in ((other, other_table), (kind, table))
            ]
            raise ConfigurationError(
                f"pipeline {pipeline}: {' and '.join(names)} have the asset key {spec.key.to_user_string()} in common:"
                " in keys every character other than letters, digits and _ becomes _",
                hint="give each a key of its own in translation, as in"
                ' `key: "lake/{{ kind }}/{{ table.table_name }}"`; or rename one of the tables at the source, or'
                " follow only one of them",
            )


def _with_keys(spec: dg.AssetSpec, keys: Mapping[dg.AssetKey, dg.AssetKey]) -> dg.AssetSpec:
    if not any(dep.asset_key in keys for dep in spec.deps):
        return spec
    return spec.replace_attributes(
        deps=[
            dg.AssetDep(keys.get(dep.asset_key, dep.asset_key), partition_mapping=dep.partition_mapping)
            for dep in spec.deps
        ]
    )
