"""``verify --against``: a copy that another tool keeps is judged by rows that the source has left alone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.errors import ConfigurationError, LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location
from spark_jobs.sync import sync
from spark_jobs.verify.compare_copy import OtherCopy, compare_copy
from spark_jobs.verify.table_verified import DifferingRow, KeyValue, RowCounts, TableVerified
from tests.fixtures.background import in_background
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, BAG = QualifiedName("public", "orders"), QualifiedName("public", "bag")
NAMES = {"note": "remark", "secret": ""}


@pytest.fixture
def orders(database: Database) -> Database:
    """Without a slot, a publication, or a lake."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text, price numeric(10,2), at timestamptz, secret text)",
        "INSERT INTO orders SELECT g, 'n' || g, g + 0.25, timestamptz '2026-01-01 00:00Z' + g * interval '1 s', 's'"
        " FROM generate_series(1, 40) g",
        "UPDATE orders SET note = NULL, price = NULL WHERE id = 3",
    )
    return database


def copied(spark: SparkSession, path: Path, *, rows: str = "range(1, 41)") -> str:
    """As another tool writes it: its own names, wider types, a column of its own. Returns its name in SQL."""
    spark.sql(
        "SELECT id, IF(id = 3, NULL, concat('n', id)) AS remark, IF(id = 3, NULL, id + 0.25D) AS Price,"
        f" timestamp_seconds(unix_seconds(timestamp'2026-01-01 00:00:00Z') + id) AS at, now() AS _synced FROM {rows}"
    ).write.format("delta").save(str(path))
    return f"delta.`{path}`"


def judged(
    spark: SparkSession,
    database: Database,
    path: Path,
    name: QualifiedName = ORDERS,
    *,
    columns: dict[str, str] = NAMES,
    meanwhile: Callable[[], object] = lambda: None,
) -> TableVerified:
    """``meanwhile`` happens between the two looks."""
    pipeline = pipeline_of(database, path.parent / "no_lake", str(name))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        meanwhile()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_jobs.verify.compare_copy.sleep", sleep)
        copy = OtherCopy(Location.of(str(path)), columns, tolerance=3600)
        (table,) = compare_copy(pipeline, lambda: spark, name, copy).tables
    assert (path.parent / "no_lake").exists() is False
    with database.connect() as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall() == [(0,)]
    assert all(3000 < seconds <= 3600 for seconds in waited)
    return table


def row(difference: str, number: int, *columns: str) -> DifferingRow:
    return DifferingRow(difference, (KeyValue("id", str(number)),), columns)  # type: ignore[arg-type]


def test_other_names_and_types_are_no_difference(spark: SparkSession, orders: Database, tmp_path: Path) -> None:
    copied(spark, tmp_path / "copy")
    table = judged(spark, orders, tmp_path / "copy", meanwhile=lambda: pytest.fail("nothing differs"))
    assert (table.verdict, table.counts, table.problem) == ("equal", RowCounts(40, 40), None)


def test_planted_differences_are_told_from_rows_on_their_way(
    spark: SparkSession, orders: Database, tmp_path: Path
) -> None:
    name = copied(spark, tmp_path / "copy")
    # wrong for good
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    spark.sql(f"UPDATE {name} SET remark = '' WHERE id = 3")
    spark.sql(f"UPDATE {name} SET price = 99 WHERE id = 4")
    spark.sql(f"INSERT INTO {name} VALUES (1000, 'nobody', 1, now(), now())")
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 5")
    # late: at the source, and not in the copy yet
    orders.execute(
        "INSERT INTO orders VALUES (41, 'new', 1, now(), 's')",
        "UPDATE orders SET note = 'late' WHERE id = 6",
        "DELETE FROM orders WHERE id = 7",
    )

    def meanwhile() -> None:
        """The copy catches up with what was late; what is late now is other rows."""
        with orders.connect() as connection:
            at = connection.execute("SELECT at::text FROM orders WHERE id = 41").fetchall()[0][0]
        spark.sql(f"INSERT INTO {name} VALUES (41, 'new', 1, timestamp'{at}', now())")
        spark.sql(f"UPDATE {name} SET remark = 'late' WHERE id = 6")
        spark.sql(f"DELETE FROM {name} WHERE id = 7")
        orders.execute(
            "UPDATE orders SET note = 'later' WHERE id IN (8, 41)",
            "UPDATE orders SET price = 5 WHERE id = 4",  # wrong before, and changed since: nobody can tell
            "INSERT INTO orders VALUES (42, 'newest', 1, now(), 's')",
            "DELETE FROM orders WHERE id = 9",
        )

    table = judged(spark, orders, tmp_path / "copy", meanwhile=meanwhile)
    assert table.counts == RowCounts(40, 41, missing=1, extra=2, changed=1, in_flight=5)
    assert table.rows == (row("missing", 1), row("changed", 3, "note"), row("extra", 5), row("extra", 1000))
    assert table.problem is not None
    assert str(tmp_path / "copy") in table.problem.what


def test_rows_without_a_key_are_counted(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE bag (a int, b float8)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT 1, 'NaN' FROM generate_series(1, 5)",
        "INSERT INTO bag VALUES (2, NULL), (2, NULL), (3, 0), (4, 4)",
    )
    rows = (
        "VALUES (1, double('NaN')), (1, double('NaN')), (1, double('NaN')), (2, NULL), (2, NULL), (2, NULL), (3, -0D)"
    )
    spark.sql(f"SELECT col1 AS a, col2 AS b FROM {rows}").write.format("delta").save(str(tmp_path / "copy"))

    def meanwhile() -> None:
        database.execute("DELETE FROM bag WHERE a = 4", "INSERT INTO bag VALUES (5, 5)")

    table = judged(spark, database, tmp_path / "copy", BAG, columns={}, meanwhile=meanwhile)
    assert table.counts == RowCounts(9, 7, missing=3, extra=2, in_flight=1)


def load(orders: Database) -> Generator[None]:
    """Without an end."""
    with orders.connect() as connection:
        for number in count(101):
            connection.execute("INSERT INTO orders VALUES (%s, 'x', 1, now(), 's')", [number])
            connection.execute("UPDATE orders SET price = price + 1 WHERE id = %s", [number % 40])
            connection.execute("DELETE FROM orders WHERE id = %s", [number - 7])
            yield


def test_a_copy_that_is_right_is_equal_under_load(spark: SparkSession, orders: Database, tmp_path: Path) -> None:
    """The copy is kept by a pipeline of ours, so it is as late as its last sync."""
    followed = pipeline_of(orders, tmp_path / "lake", "public.orders", engine="auto")
    assert sync(followed, lambda: spark).errors == ()
    pipeline = pipeline_of(orders, tmp_path / "no_lake", "public.orders")
    copy = OtherCopy(followed.lake.table(ORDERS), tolerance=3600)
    with in_background(load(orders)), pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_jobs.verify.compare_copy.sleep", lambda _: sync(followed, lambda: spark))
        (table,) = compare_copy(pipeline, lambda: spark, ORDERS, copy).tables
    assert table.verdict == "equal", table
    assert table.counts.source_rows > 0


def test_what_cannot_be_compared_is_refused(spark: SparkSession, orders: Database, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no Delta table at"):
        judged(spark, orders, tmp_path / "nothing")
    copied(spark, tmp_path / "copy")
    for columns, why in (
        ({}, "it has no column note"),
        ({"note": "remark", "secret": "_synced", "price": "remark"}, r"39 values of remark are no decimal\(10,2\)"),
        ({"id": ""}, "id is part of the key of public.orders"),
        ({"nothing": "x"}, "public.orders has no column nothing"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            judged(spark, orders, tmp_path / "copy", columns=columns)


def test_a_damaged_checkpoint_of_the_copy_is_left(spark: SparkSession, orders: Database, tmp_path: Path) -> None:
    """Of a table of ours it would be removed."""
    copied(spark, tmp_path / "theirs")
    log = tmp_path / "theirs" / "_delta_log"
    (log / f"{0:020}.checkpoint.parquet").write_text("no Parquet")
    (log / "_last_checkpoint").write_text('{"version":0,"size":3}')
    before = sorted(log.iterdir())
    with pytest.raises(LakeError, match="could not be compared with"):
        judged(spark, orders, tmp_path / "theirs")
    assert sorted(log.iterdir()) == before
