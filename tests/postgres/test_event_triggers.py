"""Event triggers of the database run with our DDL, as with everybody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import SourceError
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

NOTED = "CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN {} END'"
TRIGGER = "CREATE EVENT TRIGGER noted ON ddl_command_end EXECUTE FUNCTION note()"
TABLES = ("CREATE TABLE public.item (id int PRIMARY KEY)", "CREATE TABLE public.more (id int PRIMARY KEY)")


@pytest.mark.parametrize("place", ["public", "audit"])
def test_their_names_are_found_as_in_other_sessions(every_database: Database, tmp_path: Path, place: str) -> None:
    database = every_database
    if place == "audit":  # by a setting, of which there is one for the database too
        database.execute(
            "CREATE SCHEMA audit",
            f"ALTER DATABASE {database.name} SET search_path = nowhere",
            f"ALTER ROLE postgres IN DATABASE {database.name} SET search_path = audit, public",
        )
    database.execute(
        *TABLES,
        f"CREATE TABLE {place}.ddl_log (tag text)",
        NOTED.format("INSERT INTO ddl_log VALUES (tg_tag);"),
        TRIGGER,
    )
    prepare_slot(pipeline_of(database, tmp_path / "lake", "public.item"))
    prepare_slot(pipeline_of(database, tmp_path / "lake", "public.item", "public.more"))
    noted = {tag for (tag,) in database.execute(f"SELECT tag FROM {place}.ddl_log")}
    assert noted == {"CREATE PUBLICATION", "ALTER PUBLICATION", "COMMENT"}


def test_one_that_fails_is_named(database: Database, tmp_path: Path) -> None:
    database.execute(*TABLES, NOTED.format("INSERT INTO nowhere.ddl_log VALUES (tg_tag);"), TRIGGER)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    with pytest.raises(SourceError) as failed:
        prepare_slot(pipeline)
    assert failed.value.what == (
        f'publication {database.name} cannot be created: relation "nowhere.ddl_log" does not exist'
        " (in PL/pgSQL function note() line 1 at SQL statement)"
    )
    assert "pg_event_trigger" in failed.value.hint
    assert database.execute("SELECT pubname FROM pg_publication") == []
    assert database.execute(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []
    # the hint's other way
    database.execute("DROP EVENT TRIGGER noted", f"CREATE PUBLICATION {database.name} FOR TABLE item", TRIGGER)
    prepare_slot(pipeline)
