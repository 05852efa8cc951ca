"""What applies to one table: the entries of ``tables:`` that match it, over ``defaults:``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from cdc_assets.configuration.field_errors import first_error
from cdc_assets.configuration.table_model import TableDefaultsModel, TableModel
from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName

_MODES = {"mode", "modes"}


@dataclass(frozen=True)
class TableRules:
    """The entries by their place: those of single tables, looked up by name, as there may be thousands; and those with
    patterns. ``kind``: the model of a single table."""

    kind: type[TableModel]
    defaults: TableDefaultsModel | None
    single: Mapping[QualifiedName, tuple[int, TableModel]]
    patterns: Sequence[tuple[int, TablePattern, TableModel]]

    @classmethod
    def of(
        cls, kind: type[TableModel], defaults: TableDefaultsModel | None, entries: Sequence[TableModel]
    ) -> TableRules:
        placed = [(place, entry.pattern, entry) for place, entry in enumerate(entries)]
        single = {pattern.name: (place, entry) for place, pattern, entry in placed if pattern.name is not None}
        return cls(kind, defaults, single, [each for each in placed if each[1].name is None])

    def settings_of(self, name: QualifiedName) -> TableModel:
        """The entry of a table: of each field the value in the last entry that matches and names it, else the one in
        ``defaults``. Raises ConfigurationError if these contradict each other."""
        matching = {place: entry for place, pattern, entry in self.patterns if pattern.matches(name)}
        if name in self.single:
            place, entry = self.single[name]
            matching[place] = entry
        fields: dict[str, object] = {}
        for each in (self.defaults, *(matching[place] for place in sorted(matching))):
            settings = {field: getattr(each, field) for field in (each.model_fields_set if each is not None else ())}
            if settings.keys() & _MODES:  # one of them takes the place of the other
                fields = {field: value for field, value in fields.items() if field not in _MODES}
            fields |= settings
        try:
            return self.kind.model_validate({**fields, "name": str(name)})
        except ValidationError as error:
            wrong = first_error(error, self.kind, fields)
            raise ConfigurationError(f"tables: {name}: {wrong.what}", hint=wrong.hint) from None
