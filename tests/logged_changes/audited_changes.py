"""Changes as they are read, against the audit log that triggers keep in the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fixtures.servers import Database
from tests.spark.audit import AUDIT, Audited, Row, audit_of, audited

# ``whole`` sends whole old rows
TABLES = ("keyed", "whole")
MADE = (
    *AUDIT,
    *(
        statement
        for name in TABLES
        for statement in (
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text, doc text, n int)",
            f"ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL",
            *audited(name),
        )
    ),
    "ALTER TABLE whole REPLICA IDENTITY FULL",
)
# each is one transaction
TRANSACTIONS: Sequence[Sequence[str]] = (
    ["INSERT INTO {t} SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g"],
    ["UPDATE {t} SET v = 'changed' WHERE id < 4", "DELETE FROM {t} WHERE id IN (6, 7)"],
    ["UPDATE {t} SET doc = repeat('y', 4000) WHERE id = 5", "UPDATE {t} SET n = NULL WHERE id = 5"],
    ["UPDATE {t} SET id = 200 WHERE id = 8", "UPDATE {t} SET id = 201, v = NULL WHERE id = 200"],
    ["DELETE FROM {t} WHERE id = 9", "INSERT INTO {t} VALUES (9, 'again', NULL, NULL)"],
    ["INSERT INTO {t} VALUES (300, '', 'life', 1)", "TRUNCATE {t}", "INSERT INTO {t} VALUES (11, 'after', 'it', 1)"],
    ["UPDATE {t} SET v = 'and on' WHERE id = 11", "INSERT INTO {t} SELECT g, 'z' FROM generate_series(50, 60) g"],
)


def commit(database: Database, statements: Sequence[str], *, prepared: bool = False) -> None:
    """One transaction for each table, in two phases if ``prepared``."""
    for name in TABLES:
        ends = (f"PREPARE TRANSACTION '{database.name}'", f"COMMIT PREPARED '{database.name}'")
        with database.connect() as connection:
            for statement in ["BEGIN", *statements, *(ends if prepared else ("COMMIT",))]:
                connection.execute(statement.format(t=name))


def assert_as_audited(rows: Sequence[Row], database: Database, table: str) -> None:
    """Every change is there once, in order; its row before and after are right as far as they were sent, and what was
    not sent is marked."""
    places = [(row["_commit_lsn"], row["_ordinal"]) for row in rows]
    assert places == sorted(set(places))
    audit = audit_of(database, table)
    assert [(row["_operation"], row["_xid"]) for row in rows] == [(change.op, change.xid) for change in audit]
    for row, change in zip(rows, audit, strict=True):
        _assert_side(row["after"], row["_after_not_sent"], change.new)
        _assert_side(row["before"], row["_before_not_sent"], _old(change, whole=table == "whole"))


def _old(change: Audited, *, whole: bool) -> Mapping[str, Any] | None:
    """The part of the old row that is sent."""
    if change.old is None or whole:
        return change.old
    moved = change.new is None or change.new["id"] != change.old["id"]
    return {"id": change.old["id"]} if moved else None


def _assert_side(side: Row | None, not_sent: Sequence[str] | None, expected: Mapping[str, Any] | None) -> None:
    if expected is None:
        assert (side, not_sent) == (None, None)
        return
    assert side is not None
    lacks = set(not_sent or ())
    assert {name: value for name, value in side.items() if name not in lacks} == {
        name: value for name, value in expected.items() if name not in lacks
    }
    assert all(side[name] is None for name in lacks)
    # a value that is stored out of line and did not change is the only one that a new row may lack
    assert lacks <= (side.keys() - expected.keys() or {"doc"})
