"""Delta tables that somebody else has altered or damaged: the table stops alone, and its hint leads out when pasted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Storage
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

SECRET = 4711
CHANGED = (
    "UPDATE {t} SET v = 'b' WHERE id < 4",
    "DELETE FROM {t} WHERE id = 4",
    f"INSERT INTO {{t}} VALUES ({SECRET})",
)
DROPPED = ("ALTER TABLE {t} DROP COLUMN w",)


@dataclass(frozen=True)
class Alteration:
    """``by``: a statement, or what happens to the folder. ``then``: what happens to the source's table.

    If ``said`` is empty, the table is mended without anybody's help.
    """

    by: str | Callable[[Path], object]
    then: tuple[str, ...] = CHANGED
    said: str = ""


def _first_commit_is_gone(table: Path) -> None:
    for file in (table / "_delta_log").glob("*0.json"):
        file.unlink()


def _last_commit_is_torn(table: Path) -> None:
    last = max((table / "_delta_log").glob("*.json"))
    last.write_bytes(last.read_bytes()[:-9])


ALTERATIONS = {
    "append_only": Alteration("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", said="append"),
    "checked": Alteration("ALTER TABLE {t} ADD CONSTRAINT few CHECK (id < 100)", said="CHECK constraint few"),
    "checked_column": Alteration("ALTER TABLE {t} ADD CONSTRAINT some CHECK (w > 0)", DROPPED, "CHECK constraint some"),
    "fed": Alteration(
        "ALTER TABLE {t} SET TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')",
        ("ALTER TABLE {t} ALTER w TYPE text",),
        "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
    ),
    "torn": Alteration(_last_commit_is_torn, said="is damaged"),
    "headless": Alteration(_first_commit_is_gone, DROPPED, "DELTA_TRUNCATED_TRANSACTION_LOG"),
    "clustered": Alteration("ALTER TABLE {t} CLUSTER BY (w)", DROPPED),
    "unmapped": Alteration("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')", DROPPED),
    "untouched": Alteration(lambda _: None),
}
NAMES = {name: QualifiedName("public", name) for name in ALTERATIONS}
BY_DAY = ("append_only", "checked", "fed", "torn", "headless", "unmapped", "untouched")


@pytest.mark.parametrize("chosen", [BY_DAY, at_night(tuple(ALTERATIONS))], ids=["by day", "all"])
def test_each_stops_alone_and_its_hint_leads_out(
    spark: SparkSession, database: Database, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """With the engine that writes in this process what it can, so that errors of both are met."""
    names = {name: NAMES[name] for name in chosen}
    for name in chosen:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w int)",
            f"INSERT INTO {name} SELECT g, 'v', g FROM generate_series(1, 10) g",
        )
    pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names.values()))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(*(f"UPDATE {name} SET v = 'a'" for name in chosen))
    assert sync(pipeline, lambda: spark).errors == ()

    for name, alteration in ((name, ALTERATIONS[name]) for name in chosen):
        path = pipeline.lake.table(names[name])
        if isinstance(alteration.by, str):
            spark.sql(alteration.by.format(t=f"delta.`{path}`"))
        else:
            alteration.by(Path(path))
        database.execute(*(statement.format(t=name) for statement in alteration.then))
    # another process: this one still knows what a damaged log held, and would go on
    pipeline = replace(pipeline, lake=replace(pipeline.lake, storage=Storage()))
    sync(pipeline, lambda: spark)  # some are read again before they fail
    errors = sync(pipeline, lambda: spark).errors

    for name, alteration in ((name, ALTERATIONS[name]) for name in chosen):
        said = [error for error in errors if re.search(rf"\b{name}\b", str(error))]
        assert [alteration.said in str(error) for error in said] == [True] * bool(alteration.said), (name, said)
        assert str(SECRET) not in str(said)
        for error in said:
            _paste(spark, error.hint)
    assert sync(pipeline, lambda: spark).errors == ()
    assert_equal(spark, pipeline, *names.values())


def _paste(spark: SparkSession, hint: str) -> None:
    if statement := re.search(r"ALTER TABLE .+$", hint):
        spark.sql(statement[0])
    elif moved := re.search(r"move (\S+) away", hint):
        Path(moved[1]).rename(f"{moved[1]}.moved")
    else:
        pytest.fail(f"no remedy in: {hint}")
