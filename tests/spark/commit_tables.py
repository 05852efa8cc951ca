"""Tables of every mode with commit columns, what happens to them, and what each of their rows must say then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.lake.table_state import TableState
from spark_jobs.options.table_mode import Form, Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.mode_columns import own_columns
from tests.fixtures.servers import Database
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.commit_oracle import BOTH, Copies, assert_commits, last_writers

NAMES = ("id", "v", "doc", "n")
TABLES: dict[str, Mode] = {"plain": "mirror", "softly": "soft_delete", "versions": "history", "copies": "mirror"}


# each is one range of windows
STEPS: dict[str, list[list[str]]] = {
    "each kind of change": [
        ["INSERT INTO {t} VALUES (100, 'new', repeat('x', 4000), 1)"],
        ["UPDATE {t} SET v = 'changed' WHERE id < 4"],
        ["UPDATE {t} SET n = n WHERE id = 14"],
        ["UPDATE {t} SET doc = repeat('y', 4000) WHERE id = 5", "UPDATE {t} SET n = 9 WHERE id = 5"],
        ["DELETE FROM {t} WHERE id IN (6, 7)"],
    ],
    "keys that move, keys that come again": [
        ["UPDATE {t} SET id = 200 WHERE id = 8"],
        ["UPDATE {t} SET id = 201 WHERE id = 200", "UPDATE {t} SET v = 'moved twice' WHERE id = 201"],
        ["DELETE FROM {t} WHERE id = 9", "INSERT INTO {t} VALUES (9, 'again', NULL, NULL)"],
        ["INSERT INTO {t} VALUES (300, 'short', 'life', 1)"],
        ["DELETE FROM {t} WHERE id = 300"],
        ["INSERT INTO {t} VALUES (6, 'back', 'from the dead', 2)"],
    ],
    "one of equal rows": [
        ["INSERT INTO {t} VALUES (600, 'a', 'b', 1)"],
        ["DELETE FROM {t} WHERE ctid = (SELECT min(ctid) FROM {t} WHERE id = 15)"],
        ["UPDATE {t} SET v = v WHERE ctid = (SELECT max(ctid) FROM {t} WHERE id = 16)"],
    ],
    "a column more, with a default": [
        ["UPDATE {t} SET v = 'before' WHERE id = 17"],
        ["ALTER TABLE {t} ADD w int DEFAULT 5"],
        ["UPDATE {t} SET w = 6 WHERE id = 18"],
    ],
    "emptied in the middle": [
        ["UPDATE {t} SET v = 'before it is emptied' WHERE id IN (11, 12)", "DELETE FROM {t} WHERE id = 13"],
        ["TRUNCATE {t}", "INSERT INTO {t} (id, v, doc, n) VALUES (11, 'after', 'it', 1), (500, 'was', 'emptied', 2)"],
        ["UPDATE {t} SET v = 'and on' WHERE id = 11"],
        ["DELETE FROM {t} WHERE id = 500"],
    ],
    "inserts alone": [["INSERT INTO {t} (id, v) VALUES (400, 'a'), (401, NULL)"]],
}


@dataclass(frozen=True)
class CommitTables:
    """The tables in ``database``. ``copies`` has no key, and each of its first rows twice."""

    database: Database

    @classmethod
    def created(cls, database: Database) -> CommitTables:
        statements = [*AUDIT]
        for name in TABLES:
            key, rows = ("", 2) if name == "copies" else (" PRIMARY KEY", 1)
            fill = f"INSERT INTO {name} SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g"
            statements += [
                f"CREATE TABLE {name} (id int{key}, v text, doc text, n int)",
                f"ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL",
                *[fill] * rows,
                *audited(name),
            ]
        database.execute(*statements, "ALTER TABLE copies REPLICA IDENTITY FULL")
        return cls(database)

    @property
    def configured(self) -> tuple[Table, ...]:
        return tuple(Table(QualifiedName("public", name), mode, metadata_columns=BOTH) for name, mode in TABLES.items())

    def run(self, transactions: Sequence[Sequence[str]]) -> None:
        for statements in transactions:
            with self.database.connect() as connection, connection.transaction():
                for template in statements:
                    for name in TABLES:
                        connection.execute(template.format(t=name))

    def assert_commits(
        self,
        pipeline: Pipeline,
        state: Callable[[QualifiedName], TableState],
        rows: Callable[[QualifiedName], Sequence[Row]],
    ) -> None:
        first = [{"id": g, "v": f"v{g}", "doc": "d" * (3000 + g), "n": g % 3} for g in range(1, 21)]
        for name, mode in TABLES.items():
            table = QualifiedName("public", name)
            lake_rows, changes = rows(table), audit_of(self.database, name)
            own = [column.name for column in own_columns(Form(mode, BOTH))]
            assert set(lake_rows[0]) - {"w"} == {*NAMES, *own}
            if name == "copies":
                expected = Copies.of(NAMES, first * 2, changes).written
            else:
                expected = last_writers(mode, NAMES, first, changes)
            assert_commits(pipeline, state(table), lake_rows, NAMES, expected)
