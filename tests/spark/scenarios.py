"""What may happen to a table between two runs, each kind once: for tests that take another way to the same end."""

from __future__ import annotations

from tests.fixtures.servers import Database

# executed in order, on the table of ``make_item``; each ends in one apply
SCENARIOS: dict[str, tuple[str, ...]] = {
    "mixed changes, values kept": (
        "INSERT INTO item (id, name) SELECT g, 'new' FROM generate_series(101, 150) g",
        "UPDATE item SET price = 1 WHERE id % 3 = 0",  # keeps the TOASTed documents
        "UPDATE item SET price = 2, name = NULL WHERE id % 6 = 0",
        "UPDATE item SET doc = 'short' WHERE id = 4",
        "UPDATE item SET price = 4 WHERE id = 4",
        "DELETE FROM item WHERE id % 7 = 0",
        "INSERT INTO item (id, name) VALUES (7, 'again')",
    ),
    "rows that move with their documents, and swap": (
        (
            "BEGIN; UPDATE item SET id = -1 WHERE id = 1; UPDATE item SET id = 1 WHERE id = 2;"
            " UPDATE item SET id = 2 WHERE id = -1; COMMIT"
        ),
        "UPDATE item SET id = 5000 WHERE id = 5",
    ),
    "inserts alone": ("INSERT INTO item (id, name) SELECT g, 'later' FROM generate_series(2001, 2100) g",),
    "nothing left of it": ("INSERT INTO item (id) VALUES (-9)", "DELETE FROM item WHERE id = -9"),
    "truncated in the middle": (
        "UPDATE item SET name = 'lost'",
        "TRUNCATE item",
        "INSERT INTO item (id, name, doc) SELECT g, 'after', repeat('x', 9000) FROM generate_series(1, 20) g",
        "UPDATE item SET name = 'kept' WHERE id = 3",
    ),
    "truncated": ("TRUNCATE item",),
}


def make_item(database: Database) -> None:
    """Common types and a TOASTed column, 100 rows."""
    database.execute(
        "CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(10,2), at timestamp, doc text)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'name ' || g, g / 3.0, '2024-01-01'::timestamp + g * interval '1 min',"
        " repeat(md5(g::text), 400) FROM generate_series(1, 100) g",
    )
