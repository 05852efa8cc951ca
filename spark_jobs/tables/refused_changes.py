"""Changes of a table's columns that the configuration refuses: the table stops before them, and is not read again by
itself, until somebody accepts them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import RefusedChangeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.fingerprint_differences import kind_of_change
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.tables.catalogue_changes import changes_of

_ACCEPTED_BY = {"add": "follow", "drop": "follow", "retype": "snapshot"}


def accepted_windows(
    markers: Sequence[WindowMarker], state: TableState, policy: SchemaPolicy
) -> tuple[Sequence[WindowMarker], RefusedChangeError | None]:
    """The windows before the first one whose look at the catalogue found a change that ``policy`` refuses, and the
    error that names it. A look sees all DDL up to its window's end, so no row of an earlier window depends on it."""
    if not policy.refused:
        return markers, None
    for place, marker in enumerate(markers):
        said = [what for changed in changes_of(marker, state) for what in (*changed.columns, *changed.reasons)]
        if refused := list(_refused(said, policy)):
            where = f"before window {marker.ordinal} ({marker.window})"
            return markers[:place], _refusal(state.name, refused, policy, where)
    return markers, None


def refused_columns(
    lake_columns: Sequence[DeltaColumn],
    shape: TableShape,
    policy: SchemaPolicy,
    where: str,
    *,
    types: bool,
    by_number: bool = True,
    kept: Collection[int] = (),
) -> RefusedChangeError | None:
    """The changes from the columns of the lake's table to those of its ``shape`` that ``policy`` refuses. ``types``:
    whether a type that differs does so because the source's was changed. ``where``: as in "at 0/16B3748".
    ``by_number``: whether numbers mean the same in both; otherwise columns with the same name are the same. ``kept``:
    the numbers of the lake's columns that the source no longer has, even if it has others of their names."""
    by_number = by_number and all(column.attnum is not None for column in lake_columns)
    before = {column.attnum if by_number else column.name: column for column in lake_columns}
    after = {column.attnum if by_number else column.name: column for column in shape.columns}
    dropped = [column for key, column in before.items() if key not in after or column.attnum in kept]
    changes = [("add", f"column {column.name} was added") for key, column in after.items() if key not in before]
    changes += [("drop", _lost(column.name, policy)) for column in dropped]
    if types:
        changes += [
            ("retype", f"the type of column {column.name} was changed")
            for key, column in after.items()
            if key in before and before[key].sql != column.lake_type.sql
        ]
    refused = [(kind, what) for kind, what in changes if kind in policy.refused_in_snapshots]
    return _refusal(shape.name, refused, policy, where) if refused else None


def refused_snapshot(state: TableState, policy: SchemaPolicy) -> RefusedChangeError | None:
    """What ``policy`` refuses of any snapshot of a table that keeps columns."""
    lost = [("drop", _lost(column.attname, policy)) for column in state.differing.kept]
    refuses = lost and "drop" in policy.refused_in_snapshots
    return _refusal(state.name, lost, policy, f"after window {state.ordinal}") if refuses else None


def _lost(column: str, policy: SchemaPolicy) -> str:
    return f"a new snapshot would lose column {column}" if policy.drop == "keep" else f"column {column} was dropped"


def refused_since(name: QualifiedName, changes: Sequence[str], policy: SchemaPolicy) -> RefusedChangeError | None:
    """What ``policy`` refuses of ``changes`` that no window shows yet."""
    refused = list(_refused(changes, policy))
    return _refusal(name, refused, policy, "with the next window") if refused else None


def _refused(changes: Sequence[str], policy: SchemaPolicy) -> Iterator[tuple[str, str]]:
    for what in changes:
        kind = kind_of_change(what)
        if kind in policy.refused:
            yield kind, what


def _refusal(
    name: QualifiedName, refused: Sequence[tuple[str, str]], policy: SchemaPolicy, where: str
) -> RefusedChangeError:
    kinds = list(dict.fromkeys(kind for kind, _ in refused))
    settings = ", ".join(f"{kind}: {getattr(policy, kind)}" for kind in kinds)
    accepted = ", ".join(f"{kind}: {_ACCEPTED_BY[kind]}" for kind in kinds)
    return RefusedChangeError(
        f"{name} stops {where}: {'; '.join(what for _, what in refused)}, and on_schema_change says {settings}",
        hint=f"to accept it, write on_schema_change: {{{accepted}}} for this table and sync again, or"
        f" {new_snapshot(name)}",
    )
