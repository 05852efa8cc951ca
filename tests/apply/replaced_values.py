"""Tables in every mode with values that the lake cannot hold, and what ``_unrepresentable`` must say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from spark_jobs.configuration import MergeEngine, Pipeline, Table
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions, OnUnrepresentable
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

MODES: tuple[Mode, ...] = ("mirror", "soft_delete", "history", "append")
COLUMNS = "id int PRIMARY KEY, day date, at timestamptz, amount numeric(10,2), days date[], wide numeric"
# what is stored in their place, under each policy
FIRST = "(1, 'infinity', '-infinity', 'NaN', '{2024-01-01,-infinity}', '123456789.005')"
OF_FIRST = {
    "day": ("infinity", None, "9999-12-31"),
    "at": ("-infinity", None, "0001-01-01 00:00:00+00"),
    "amount": ("NaN", None, None),
    "days": ("{2024-01-01,-infinity}", "{2024-01-01,NULL}", "{2024-01-01,0001-01-01}"),
    "wide": ("123456789.005", None, "99999999.99"),
}
FITTING = "'2024-01-01', '2024-01-01 00:00:00+00', 1, '{2024-01-01}', 1"
Record = tuple[str | None, str, str, str | None]


def records(pipeline: Pipeline, name: str, *, since: int = 1) -> list[Record]:
    """Key, column, what the source had, and what was stored, from a table's commit on."""
    return [
        (row["key"], row["column"], row["source_text"], row["stored"])
        for row in rows(pipeline)
        if row["table"] == name and row["commit"] >= since
    ]


def rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    path = pipeline.lake.unrepresentable
    return list(rows_of_table(DeltaTable(path)).to_pylist()) if Path(path, "_delta_log").exists() else []


def of_first(policy: OnUnrepresentable, number: int = 1) -> list[Record]:
    key, place = json.dumps({"id": str(number)}), 1 if policy == "null" else 2
    return [(key, column, stored[0], stored[place]) for column, stored in OF_FIRST.items()]


def state_of(pipeline: Pipeline, name: str) -> TableState:
    state = table_state(pipeline.lake, QualifiedName.parse(name), LandedWindows.of(pipeline).identity)
    assert state is not None
    return state


def counts(pipeline: Pipeline, name: str) -> dict[str, int]:
    return dict(state_of(pipeline, name).unrepresentable.counts)


NAMES: Mapping[Mode, str] = {mode: f"public.of_{mode}" for mode in MODES}


def in_every_mode(
    database: Database, lake: Path, policy: OnUnrepresentable, engine: MergeEngine = "auto", **source: Any
) -> Pipeline:
    for name in NAMES.values():
        database.execute(f"CREATE TABLE {name} ({COLUMNS})", f"INSERT INTO {name} VALUES {FIRST}, (2, {FITTING})")
    types = {"days": ChosenType.parse("array"), "wide": ChosenType.parse("decimal(10,2)")}
    options = ColumnOptions(ChosenTypes.of(types))
    tables = tuple(Table(QualifiedName.parse(name), mode, options=options) for mode, name in NAMES.items())
    return replace(pipeline_of(database, lake, engine=engine, **source), tables=tables, on_unrepresentable=policy)


def change_all(database: Database) -> None:
    """Each statement is a transaction."""
    for name in NAMES.values():
        database.execute(
            f"INSERT INTO {name} VALUES {FIRST.replace('(1,', '(3,')}",
            f"INSERT INTO {name} VALUES (4, '4000-01-01 BC', NULL, 2, '{{}}', 2)",
            f"UPDATE {name} SET day = '20000-02-03' WHERE id = 4",
            f"UPDATE {name} SET day = '2024-05-05' WHERE id = 1",
            f"DELETE FROM {name} WHERE id = 2",
        )


def of_changes(mode: Mode, policy: OnUnrepresentable) -> list[Record]:
    """What a later change of the same window has replaced is in no row of a mirror."""
    low, high = (None, None) if policy == "null" else ("0001-01-01", "9999-12-31")
    before, after = ('{"id": "4"}', "day", "4000-01-01 BC", low), ('{"id": "4"}', "day", "20000-02-03", high)
    again = [record for record in of_first(policy) if record[1] != "day"]
    versions = [before, after] if mode in ("history", "append") else [after]
    return sorted([*versions, *again, *of_first(policy, 3)], key=str)
