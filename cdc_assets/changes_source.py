"""The changes of a table as a data source of Spark: ``spark.read`` and ``spark.readStream`` of format ``postgres_cdc``.

    spark.dataSource.register(ChangesSource)
    spark.read.format("postgres_cdc").option("config", "shop.yaml").option("table", "public.orders").load()

It reads the change log in the lake, and nothing else. Spark's driver needs this package; executors need nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.configuration import Lake
from spark_jobs.errors import ConfigurationError
from spark_jobs.logged_changes.changes import bounds, logged_table, plan_of, table_named
from spark_jobs.logged_changes.logged_table import LoggedTable
from spark_jobs.logged_changes.readers import ChangesReader, ChangesStream, ShownColumns
from spark_jobs.options.column_options import ColumnOptions, OnUnrepresentable
from spark_jobs.replay.points import Point, point
from spark_jobs.spark.session import ship_package
from spark_jobs.storage import Storage, StoreSettings

FORMAT = "postgres_cdc"
_POLICIES: tuple[OnUnrepresentable, ...] = ("error", "null", "clamp")
_RANGE = ("from", "to", "partition")
# where no configuration says it
_OF_LAKE = ("onUnrepresentable", "endpoint", "region", "pathStyle")
_OPTIONS = ("config", "path", "table", *_RANGE, *_OF_LAKE)


class ChangesSource(DataSource):
    """Options: ``config``, the pipeline's file, or ``path``, its ``lake.path``; ``table``; ``from`` and ``to``, LSNs or
    times with a zone, or ``partition``, a key of Dagster's. With ``path``: ``onUnrepresentable``, and for an object
    store ``endpoint``, ``region`` and ``pathStyle``; its credentials come from the environment only.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return self._columns.ddl

    def reader(self, schema: StructType) -> ChangesReader:
        request = self._planned()
        plan, _, _ = plan_of(request.table, request.from_, self._columns.hi if request.to is None else request.to)
        return ChangesReader(to_arrow_schema(schema, timezone="UTC"), plan)

    def streamReader(self, schema: StructType) -> ChangesStream:  # noqa: N802 - Spark's name
        request = self._planned()
        if request.to is not None:
            raise ConfigurationError(f"{FORMAT}: a stream has no end", hint="leave out to and partition, or spark.read")
        return ChangesStream(to_arrow_schema(schema, timezone="UTC"), request.table, request.from_, self._columns)

    @cached_property
    def _columns(self) -> ShownColumns:
        """Without an end, those of the log's end. A stream that continues may have begun before the oldest window that
        the log still has, so its beginning is not looked up."""
        request = _Asked.of(self.options)
        plan, _, hi = plan_of(request.table, None if request.to is None else request.from_, request.to)
        return ShownColumns(plan.shape, plan.mask, hi)

    def _planned(self) -> _Asked:
        ship_package()
        self.is_planned = True
        return _Asked.of(self.options)

    def __reduce__(self) -> tuple[object, ...]:
        """Tasks get the name only: what plans needs modules that executors lack."""
        if "is_planned" in self.__dict__:
            return DataSource, (self.options,)
        return _restored, (self.__dict__,)


def _restored(state: dict[str, Any]) -> ChangesSource:
    source = ChangesSource(state["options"])
    source.__dict__.update(state)
    return source


@dataclass(frozen=True)
class _Asked:
    """What the options ask for."""

    table: LoggedTable
    from_: Point | None
    to: Point | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Asked:
        """Raises ConfigurationError."""
        given = {name.lower(): value for name, value in options.items()}
        known = {name.lower(): name for name in _OPTIONS}
        if unknown := given.keys() - known.keys():
            raise _wrong(f"there is no option {', '.join(sorted(unknown))}; there are {', '.join(_OPTIONS)}")
        if ("config" in given) == ("path" in given) or "table" not in given:
            raise _wrong("give the options table, and either config or path")
        if "config" in given and (other := [name for name in _OF_LAKE if name.lower() in given]):
            raise _wrong(f"{', '.join(other)}: the configuration says it, leave it out")
        table = _in_pipeline(given) if "config" in given else _in_lake(given)
        if "partition" in given:
            if "from" in given or "to" in given:
                raise _wrong("give partition, or from and to")
            return cls(table, *bounds(given["partition"]))
        try:
            return cls(table, *(None if given.get(end) is None else point(given[end]) for end in ("from", "to")))
        except ValueError as error:
            raise _wrong(str(error)) from None


def _in_pipeline(given: Mapping[str, str]) -> LoggedTable:
    return logged_table(load_pipeline(Path(given["config"])), given["table"])


def _in_lake(given: Mapping[str, str]) -> LoggedTable:
    policy = next((known for known in _POLICIES if known == given.get("onunrepresentable", "error")), None)
    if policy is None:
        raise _wrong(f"onUnrepresentable is one of {', '.join(_POLICIES)}")
    style = {"true": True, "false": False}.get(given.get("pathstyle", "").lower())
    storage = Storage(StoreSettings(given.get("endpoint"), given.get("region"), style))
    return LoggedTable(
        Lake(given["path"].rstrip("/"), storage), table_named(given["table"]), ColumnOptions(policy=policy)
    )


def _wrong(what: str) -> ConfigurationError:
    return ConfigurationError(f"format {FORMAT}: {what}")
