"""One row per change, of random histories: its sides are the rows that mode ``append`` makes of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings

from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.decode.ordered_changes import plain_columns
from spark_jobs.logged_changes.change_rows import DESCRIBING, ORIGIN, ChangeColumns, change_rows
from tests.histories import SHAPE, History, histories


@settings(max_examples=60)
@given(histories())
def test_the_sides_of_a_change(history: History) -> None:
    size = len(history.rows)
    rows = (
        history.rows
        if ORIGIN.net in history.rows.column_names
        else history.rows.append_column(ORIGIN.net, pa.array([f"from {n}" for n in range(size)], pa.string()))
    )
    plain = plain_columns(rows, [column.net for column in DESCRIBING])
    found = change_rows(plain, NetRules(history.shape, history.relations, "append"))
    assert found.schema == ChangeColumns(history.shape.columns).schema
    appended = net_change(history.rows, NetRules(history.shape, history.relations, mode="append")).rows.to_pylist()
    sides = {
        (row["commit_lsn"], row["ordinal"], row["operation"] in ("update_before", "delete")): row for row in appended
    }
    whole = {(row["commit_lsn"], row["ordinal"]): row for row in plain.to_pylist()}
    assert [(row["_commit_lsn"], row["_ordinal"]) for row in found.to_pylist()] == sorted(whole)
    for row in found.to_pylist():
        place = row["_commit_lsn"], row["_ordinal"]
        logged = whole[place]
        assert [row[column.name] for column in DESCRIBING] == [logged[column.net] for column in DESCRIBING]
        before, after = sides.get((*place, True)), sides.get((*place, False))
        if row["_operation"] == "truncate":
            assert (row["before"], row["after"]) == (None, None)
            continue
        assert row["_operation"] == ((after or before) or {})["operation"]
        assert (row["before"], row["_before_not_sent"]) == _side(before)
        assert (row["after"], row["_after_not_sent"]) == _side(after)


def _side(appended: dict[str, Any] | None) -> tuple[dict[str, Any] | None, list[str] | None]:
    if appended is None:
        return None, None
    return {column.name: appended[f"v{n}"] for n, column in enumerate(SHAPE.columns)}, appended["not_sent"]
