"""One entry of ``tables:``: what each of its fields may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from cdc_assets.configuration.fields import ChosenTypeText, OrNull, TableName, require_named_once
from cdc_assets.configuration.strict_model import StrictModel
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.table_mode import Mode


class ColumnsModel(StrictModel):
    """Which columns are followed, by their names in the catalogue: only those included, or all but those excluded."""

    include: Sequence[str] = Field(default=(), description="only these: their names as they are, without quotes")
    exclude: Sequence[str] = Field(default=(), description="all except these, which never leave the database")

    @model_validator(mode="after")
    def _one_way(self) -> ColumnsModel:
        if bool(self.include) == bool(self.exclude):
            raise ValueError("expected include or exclude, as in {exclude: [email]}")
        require_named_once([*self.include, *self.exclude])
        return self


class TableModel(StrictModel):
    """One followed table: just its name, or a mapping."""

    name: TableName = Field(description='as SQL writes it: public.orders, public."Order Items"')
    mode: Mode = "mirror"
    columns: ColumnsModel | None = Field(default=None, description="include or exclude; absent: all that are published")
    key: Sequence[str] = Field(
        default=(),
        description="the columns of a unique index, for a table with REPLICA IDENTITY FULL and no primary key",
    )
    types: dict[str, ChosenTypeText] = Field(
        default_factory=dict,
        description="other types for single columns: decimal(p,s) of a numeric, array of an array, binary of a uuid",
    )
    on_unrepresentable: dict[str, OrNull] = Field(
        default_factory=dict, description="for single columns, in place of the pipeline's policy"
    )
    mask: dict[str, Literal["sha256"]] = Field(
        default_factory=dict,
        description="columns whose values are replaced by hashes, as in {email: sha256}: their names as they are",
    )
    # for Dagster; the component's own model defines its type
    translation: Any = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("key")
    @classmethod
    def _key_of_columns(cls, key: Sequence[str]) -> Sequence[str]:
        require_named_once(key)
        return key

    @model_validator(mode="after")
    def _masks_what_comes(self) -> TableModel:
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
