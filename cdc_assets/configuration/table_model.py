"""One entry of ``tables:``: what each of its fields may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, PrivateAttr, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cdc_assets.configuration.fields import (
    ChosenTypeText,
    OpenablePath,
    OrNull,
    SparkValue,
    TableName,
    require_named_once,
)
from cdc_assets.configuration.schema_policy_model import SchemaPolicyModel
from cdc_assets.configuration.strict_model import StrictModel
from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName

_MOST_CLUSTERED = 4
# by `retention`, and by what the transaction log and the columns of a table need
_OURS = {
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.setTransactionRetentionDuration",
    "delta.columnMapping.mode",
    "delta.appendOnly",
}


class ColumnsModel(StrictModel):
    """Which columns are replicated, by their names in the catalogue: only those included, or all but those excluded."""

    include: Sequence[str] = Field(default=(), description="Replicate only these columns.", examples=[["id", "name"]])
    exclude: Sequence[str] = Field(
        default=(),
        description="Replicate all columns except these, which never leave the database.",
        examples=[["email"]],
    )

    @model_validator(mode="after")
    def _one_way(self) -> ColumnsModel:
        if bool(self.include) == bool(self.exclude):
            raise ValueError("expected either include or exclude")
        require_named_once([*self.include, *self.exclude])
        return self


class AdoptModel(StrictModel):
    """A table that another tool has loaded: just its path, or a mapping."""

    path: OpenablePath = Field(
        description="A Delta table, or a folder of Parquet files. {schema} and {table} stand for the table's name.",
        examples=["s3://lake/airbyte/{table}"],
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="The other table's names of columns that have another name there.",
        examples=[{"placed_at": "created"}],
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A text is the path alone."""
        return {"if": {"type": "string"}, "else": super().__get_pydantic_json_schema__(core_schema, handler)}

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


class LayoutModel(StrictModel):
    """How a table's data files are arranged, and its further properties. Spark writes such a table, with `auto` too."""

    cluster_by: Sequence[str] = Field(
        default=(),
        description="Cluster the files by these columns (liquid clustering), four at most.",
        examples=[["day"]],
    )
    partition_by: Sequence[str] = Field(
        default=(),
        description="Keep the rows of each value of these columns in a folder of its own. A table that exists is"
        " partitioned by its next snapshot.",
        examples=[["region"]],
    )
    properties: dict[str, SparkValue] = Field(
        default_factory=dict,
        description="Delta's table properties, besides those that the product sets itself.",
        examples=[{"delta.enableChangeDataFeed": "true"}],
    )

    @model_validator(mode="after")
    def _fits(self) -> LayoutModel:
        if self.cluster_by and self.partition_by:
            raise ValueError("expected either cluster_by or partition_by: Delta has no tables with both")
        if len(self.cluster_by) > _MOST_CLUSTERED:
            raise ValueError(f"cluster_by: expected at most {_MOST_CLUSTERED} columns")
        require_named_once([*self.cluster_by, *self.partition_by])
        if others := sorted(name for name in self.properties if not name.startswith("delta.") or name in _OURS):
            raise ValueError(f"properties: {others[0]} is not a property of Delta's, or is set by this product")
        return self


class TableDefaultsModel(StrictModel):
    """What applies to every table whose entry does not say otherwise: each field of an entry but its name."""

    mode: Mode = Field(
        default="mirror",
        description="What the table keeps. mirror: the source's rows. soft_delete: also deleted rows. history: every"
        " version of each row (SCD type 2). append: one row for each change.",
    )
    modes: Sequence[Mode] = Field(
        default=(),
        description="Several modes, each in a table of its own, instead of mode. The first has the source table's name,"
        " the others have their mode in theirs, as public.orders__history.",
        examples=[["mirror", "history"]],
    )
    columns: ColumnsModel | None = Field(
        default=None,
        description="The columns to replicate. Needs PostgreSQL 15. Default: all columns that are published.",
        examples=[{"exclude": ["email"]}],
    )
    key: Sequence[str] = Field(
        default=(),
        description="The columns of a unique index, for a table with REPLICA IDENTITY FULL and no primary key. Default:"
        " the primary key or the replica identity.",
        examples=[["id"]],
    )
    types: dict[str, ChosenTypeText] = Field(
        default_factory=dict,
        description="Another lake type for single columns: decimal(p,s) for numeric, array for arrays, binary for uuid,"
        " variant for json and jsonb. Default: those of the page on types.",
        examples=[{"amount": "decimal(38,10)"}],
    )
    on_unrepresentable: dict[str, OrNull] = Field(
        default_factory=dict,
        description="on_unrepresentable for single columns. Default: the pipeline's.",
        examples=[{"until": "clamp"}],
    )
    on_schema_change: SchemaPolicyModel | None = Field(
        default=None,
        description="What happens when the table's columns change. Default: what the pipeline says.",
        examples=[{"add": "stop"}],
    )
    mask: dict[str, Literal["sha256"]] = Field(
        default_factory=dict,
        description="Columns whose values are replaced by hashes in change log and lake. The salt is in the environment"
        " variable POSTGRES_CDC_MASK_SALT. Default: none.",
        examples=[{"email": "sha256"}],
    )
    metadata_columns: Sequence[CommitColumn] = Field(
        default=(),
        description="Columns that say of each row which commit last wrote it: its time, its LSN, or both. Mode append"
        " always has both.",
        examples=[["_commit_time", "_commit_lsn"]],
    )
    snapshot: Literal["all", "none"] = Field(
        default="all",
        description="Which rows of the source a snapshot reads. none, in mode append: the table has only the changes"
        " from its first sync on.",
    )
    adopt: AdoptModel | None = Field(
        default=None,
        description="A table that another tool has loaded: its rows that are equal to the source's are copied when the"
        " table begins, and only the others are read. It is never changed.",
        examples=[{"path": "s3://lake/airbyte/orders"}],
    )
    layout: LayoutModel | None = Field(
        default=None,
        description="How the table's data files are arranged, and its further properties of Delta. Default: as Delta"
        " does it.",
        examples=[{"cluster_by": ["customer_id"]}],
    )
    # the component's own model defines its type
    translation: Any = Field(
        default=None,
        description="For Dagster: attributes of the table's asset.",
        examples=[{"group_name": "bronze"}],
    )

    @field_validator("key", "metadata_columns", "modes")
    @classmethod
    def _named_once(cls, names: Sequence[str]) -> Sequence[str]:
        require_named_once(names)
        return names

    @model_validator(mode="after")
    def _mode_or_modes(self) -> Self:
        if self.modes:
            if "mode" in self.model_fields_set and self.mode != self.modes[0]:
                raise ValueError("expected either mode or modes")
            self.mode = self.modes[0]
        return self


class _NamedModel(StrictModel):
    """``TableModel`` inherits this first, so that the name is the first of its fields."""

    name: TableName = Field(
        description="The table's name, with schema, as SQL writes it; or a pattern: * stands for any characters, ? for"
        " one.",
        examples=['public."Order Items"'],
    )


class TableModel(TableDefaultsModel, _NamedModel):
    """One table to replicate, or those that a pattern matches: just the name, or a mapping. If several entries match a
    table, a field has the value that the last of them gives it."""

    _shows: QualifiedName | None = PrivateAttr(default=None)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A text is the name alone, or a template."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"if": {"type": "string"}, "else": schema}

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _masks_only_what_is_followed(self) -> TableModel:
        columns = self.columns or ColumnsModel.model_construct()
        for name in self.mask:
            if name in columns.exclude or (columns.include and name not in columns.include):
                raise ValueError(f"mask: column {name} is left out by columns; take it out of one of the two")
            if name in self.types:
                raise ValueError(
                    f"types: column {name} is masked, and hashes are strings; take it out of one of the two"
                )
        return self

    @property
    def pattern(self) -> TablePattern:
        """Also of a plain name."""
        return TablePattern.parse(self.name)

    @property
    def qualified_name(self) -> QualifiedName:
        """Of a plain name."""
        return QualifiedName.parse(self.name)

    @property
    def relation(self) -> QualifiedName:
        """The source table. One of several that show it, ``in_modes``, may have another name."""
        return self._shows or self.qualified_name

    def in_modes(self) -> tuple[Self, ...]:
        """The entries of the lake's tables of this source table, one for each mode. The first has its name, the others
        have their mode in theirs."""
        name = self.qualified_name
        tables = [self.model_copy(update={"modes": ()})]
        for mode in self.modes[1:]:
            named = str(QualifiedName(name.nspname, f"{name.relname}__{mode}"))
            table = self.model_copy(update={"name": named, "mode": mode, "modes": ()})
            table._shows = name
            tables.append(table)
        return tuple(tables)

    @property
    def schema_name(self) -> str:
        """``nspname``; with ``table_name`` for templates in ``translation``."""
        return self.qualified_name.nspname

    @property
    def table_name(self) -> str:
        """``relname``."""
        return self.qualified_name.relname
