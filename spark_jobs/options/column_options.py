"""Options of single columns of a table: another type in the lake, and what becomes of values that have no counterpart
there. Columns are identified by their names in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout

OnUnrepresentable: TypeAlias = Literal["error", "null", "clamp"]

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_MAX_PRECISION = 38


@dataclass(frozen=True)
class ChosenType:
    """``decimal`` with ``precision`` and ``scale``; ``array``: an array of the lake's; ``binary``: a uuid's bytes;
    ``variant``: a JSON document."""

    name: Literal["decimal", "array", "binary", "variant"]
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> ChosenType:
        """Raises ValueError if there is no such type to choose."""
        match text:
            case "array" | "binary" | "variant":
                return cls(text)
        decimal = _DECIMAL.fullmatch(text)
        if decimal is None:
            raise ValueError("expected decimal(precision,scale), array, binary or variant")
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise ValueError(
                f"{text}: expected a precision of 1 to {_MAX_PRECISION}, and a scale of 0 to the precision"
            )
        return cls("decimal", precision, scale)

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


@dataclass(frozen=True)
class ChosenTypes:
    """The types chosen for columns of one table, sorted by column name."""

    columns: tuple[tuple[str, ChosenType], ...] = ()

    @classmethod
    def of(cls, types: Mapping[str, ChosenType]) -> ChosenTypes:
        return cls(tuple(sorted(types.items(), key=lambda item: item[0])))

    @classmethod
    def from_word(cls, word: str) -> ChosenTypes:
        """The inverse of ``word``."""
        pairs = (pair.split(":") for pair in word.split("+") if pair)
        return cls(tuple((unquote(name), ChosenType.parse(chosen)) for name, chosen in pairs))

    @property
    def word(self) -> str:
        """The types as text without hyphens, empty if there are none. It is part of the generation's name."""
        return "+".join(f"{quote(name, safe='').replace('-', '%2D')}:{chosen}" for name, chosen in self.columns)

    def changed_since(self, before: ChosenTypes) -> str:
        """What changed, as a sentence; empty if nothing did."""
        names = sorted({name for name, _ in {*self.columns} ^ {*before.columns}})
        if not names:
            return ""
        which = f"type of column {names[0]} was" if len(names) == 1 else f"types of columns {', '.join(names)} were"
        return f"the configured {which} changed"


NO_CHOSEN_TYPES = ChosenTypes()


@dataclass(frozen=True)
class ColumnOptions:
    """``types``: the chosen types. ``policies``: those of single columns; ``policy`` applies to all other columns.
    ``layout``: by which of them the table's files are arranged."""

    types: ChosenTypes = NO_CHOSEN_TYPES
    policies: tuple[tuple[str, OnUnrepresentable], ...] = ()
    policy: OnUnrepresentable = "error"
    layout: TableLayout = NO_LAYOUT


NO_OPTIONS = ColumnOptions()
