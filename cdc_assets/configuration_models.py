"""The fields of the configuration file: what each may hold, and what follows from it.

The one set of models behind the Dagster component and the command. They check what a file alone can tell; whether the
table exists is for PostgreSQL to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from spark_jobs.configuration import Lake, Mode, Pipeline, Source, SparkOptions, Table, WindowLimits
from spark_jobs.qualified_name import QualifiedName

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?")
_UNIT = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SMALLEST_WINDOW = 1 << 10
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


# Dagster validates the file twice: as it stands, where "{{ env.X }}" may stand for any value, and rendered
Check = Callable[[Any], Any]


def _unless_template(check: Check) -> Check:
    return lambda value: value if isinstance(value, str) and value.lstrip().startswith("{{") else check(value)


def _slot_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", text):
        raise ValueError("expected 1 to 63 lower-case letters, digits and underscores, as in shop_1")
    return text


def _identifier(text: str) -> str:
    if not 1 <= len(text.encode()) <= 63:
        raise ValueError("expected a name of 1 to 63 bytes")
    return text


def _size(value: object) -> int:
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("expected a size such as 256MiB (units B, KiB, MiB, GiB)")
    size = int(match[1]) * _UNIT[match[2] or "B"]
    if size < _SMALLEST_WINDOW:
        raise ValueError("expected at least 1KiB")
    return size


def _positive(value: int) -> int:
    if value < 1:
        raise ValueError("expected 1 or more")
    return value


def _streaming(value: object) -> object:
    """YAML reads a bare ``off`` or ``on`` as a boolean."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


def _null(value: object) -> object:
    """YAML reads a bare ``null`` as nothing."""
    return "null" if value is None else value


def _table_name(text: str) -> str:
    QualifiedName.parse(text)
    return text


def _lake_path(text: str) -> str:
    if not text.strip().rstrip("/"):
        raise ValueError("expected a folder or a URI, as in /data/lake/shop or s3://bucket/shop")
    return text.strip().rstrip("/")


def _spark_value(value: object) -> object:
    """``spark.x: true`` and ``spark.y: 8`` are what a user writes; Spark takes text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SlotName = Annotated[str, AfterValidator(_unless_template(_slot_name))]
Identifier = Annotated[str, AfterValidator(_identifier)]
Size = Annotated[int, BeforeValidator(_unless_template(_size), json_schema_input_type=int | str)]
Count = Annotated[int, AfterValidator(_unless_template(_positive))]
Streaming = Annotated[
    Literal["off", "on", "parallel"],
    BeforeValidator(_streaming, json_schema_input_type=Literal["off", "on", "parallel"] | bool),
]
OrNull = Annotated[
    Literal["error", "null"], BeforeValidator(_null, json_schema_input_type=Literal["error", "null"] | None)
]
TableName = Annotated[str, AfterValidator(_unless_template(_table_name))]
LakePath = Annotated[str, AfterValidator(_lake_path)]
SparkValue = Annotated[str, BeforeValidator(_spark_value, json_schema_input_type=str | int | float | bool)]


class StrictModel(BaseModel):
    """Unknown fields are refused; a value never appears in an error, it may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class SourceModel(StrictModel):
    """The PostgreSQL database, and how its slot is read."""

    dsn: SecretStr = Field(description="libpq conninfo or URI; never printed, logged or stored")
    slot: SlotName | None = Field(default=None, description="replication slot; default: the pipeline's name")
    publication: Identifier | None = Field(
        default=None, description="made if missing and kept in step with tables; a user's own is used as it is"
    )
    plugin: Literal["pgoutput", "test_decoding"] = "pgoutput"
    streaming: Streaming = "off"
    two_phase: bool = False
    origin: Literal["any", "none"] = "any"
    messages: bool = False
    binary: bool = False


class LakeModel(StrictModel):
    """Where the Delta tables lie."""

    path: LakePath = Field(description="a folder or URI that driver and executors reach; relative to this file")


class WindowsModel(StrictModel):
    """How much WAL one window spans, and how many windows one run takes."""

    max_bytes: Size = Field(default=256 << 20, description="WAL that one window spans, as in 256MiB")
    max_per_run: Count = Field(default=64, description="windows that one run takes")


class TableModel(StrictModel):
    """One followed table: its name alone, or a mapping."""

    name: TableName = Field(description='as SQL writes it: public.orders, public."Order Items"')
    mode: Mode = "mirror"
    # Dagster's; the component's own model says what it holds
    translation: Any = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @property
    def qualified_name(self) -> QualifiedName:
        return QualifiedName.parse(self.name)

    @property
    def schema_name(self) -> str:
        """``nspname``; with ``table_name`` for templates in ``translation``."""
        return self.qualified_name.nspname

    @property
    def table_name(self) -> str:
        """``relname``."""
        return self.qualified_name.relname


class SparkModel(StrictModel):
    """How to get a Spark session."""

    master: str | None = Field(default=None, description="a classic master; default: SPARK_MASTER or local[*]")
    remote: str | None = Field(default=None, description="a Spark Connect URL, sc://host:15002")
    jars: str = Field(
        default="packages", description="packages (Maven), provided (by the cluster), or a folder of jars"
    )
    config: dict[str, SparkValue] = Field(default_factory=dict, description="further Spark settings")
    resource: str | None = Field(
        default=None, description="Dagster only: the key of your own PySparkResource, used instead of ours"
    )

    @model_validator(mode="after")
    def _one_way(self) -> SparkModel:
        if self.master and self.remote:
            raise ValueError("master and remote exclude each other")
        return self


class PipelineModel(StrictModel):
    """The ``attributes`` of the file."""

    name: SlotName = Field(description="prefix of asset keys; default of slot and publication")
    source: SourceModel
    lake: LakeModel
    windows: WindowsModel = Field(default_factory=WindowsModel)
    on_unrepresentable: OrNull = Field(
        default="error", description="infinity dates, NaN in decimals, years beyond 9999"
    )
    on_rewrite: Literal["resnapshot", "error"] = Field(
        default="resnapshot", description="DDL that rewrites unsent rows"
    )
    tables: Sequence[TableModel] | None = Field(default=None, description="absent: every table of the publication")
    spark: SparkModel = Field(default_factory=SparkModel)

    @field_validator("tables")
    @classmethod
    def _distinct(cls, tables: Sequence[TableModel] | None) -> Sequence[TableModel] | None:
        if tables is None:
            return None
        if not tables:
            raise ValueError("is empty; leave it out to follow every table of the publication")
        names = [table.qualified_name for table in tables]
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"names {', '.join(twice)} twice")
        return tables


def pipeline_of(model: PipelineModel, folder: Path) -> Pipeline:
    """The engine's frozen form; a relative ``lake.path`` is taken from ``folder``, the file's own."""
    source = model.source
    tables = None if model.tables is None else tuple(Table(t.qualified_name, t.mode) for t in model.tables)
    return Pipeline(
        name=model.name,
        source=Source(
            dsn=source.dsn,
            slot=source.slot or model.name,
            publication=source.publication or model.name,
            plugin=source.plugin,
            streaming=source.streaming,
            two_phase=source.two_phase,
            origin=source.origin,
            messages=source.messages,
            binary=source.binary,
        ),
        lake=Lake(_absolute(model.lake.path, folder)),
        windows=WindowLimits(model.windows.max_bytes, model.windows.max_per_run),
        tables=tables,
        on_unrepresentable=model.on_unrepresentable,
        on_rewrite=model.on_rewrite,
        spark=SparkOptions(
            master=model.spark.master,
            remote=model.spark.remote,
            jars=model.spark.jars,
            config=tuple(model.spark.config.items()),
        ),
    )


def _absolute(path: str, folder: Path) -> str:
    """The same place from wherever it is asked: the command and Dagster have different working directories."""
    if _URI.match(path):
        return path
    return str((folder / Path(path).expanduser()).resolve())
