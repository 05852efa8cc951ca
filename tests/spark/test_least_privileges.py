"""A role that has what the quick start grants, and nothing more, does all that there is to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.maintain.maintain import maintain
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.documented_grants import TABLES, documented_role, documented_statements, documented_tables
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres


def test_the_documented_statements_are_these() -> None:
    """A right that the page adds one day is a right that somebody has to give: it shows here."""
    create, *grants, publication = documented_statements()
    assert create == "CREATE ROLE cdc LOGIN REPLICATION PASSWORD '...'"
    assert grants == ["GRANT USAGE ON SCHEMA public TO cdc", "GRANT SELECT ON public.orders, public.items TO cdc"]
    assert publication == "CREATE PUBLICATION shop FOR TABLE public.orders, public.items"


def test_they_are_enough_to_capture(every_database: Database, tmp_path: Path) -> None:
    """And to look, on each version: all that is asked of a server but reading a table."""
    with documented_role(documented_tables(every_database), "pw") as dsn:
        pipeline = pipeline_of(every_database, tmp_path / "lake", *TABLES, dsn=dsn)
        prepare(pipeline)
        every_database.execute("UPDATE orders SET note = 'y' WHERE id < 9")
        assert sum(marker.changes for marker in capture(pipeline).landed) == 8
        assert pipeline_status(pipeline).errors == ()
        assert diagnose(pipeline).failures == ()


@pytest.mark.spark
def test_they_are_enough(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    documented_tables(database)
    with documented_role(database, "it's one") as dsn:
        pipeline = pipeline_of(database, tmp_path / "lake", *TABLES, dsn=dsn)
        followed = Followed(spark, database, pipeline, tuple(QualifiedName("public", table) for table in TABLES))
        assert [(c.what, c.found) for c in diagnose(pipeline).checks if c.verdict is not Verdict.OK] == []
        assert sync(pipeline, lambda: spark).errors == ()
        database.execute("UPDATE orders SET note = 'y' WHERE id < 9", "DELETE FROM items WHERE id = 1")
        assert [table.verdict for table in verify(pipeline, lambda: spark).tables] == ["equal", "equal"]
        assert maintain(pipeline, lambda: spark).errors == ()
        assert pipeline_status(pipeline).errors == ()
        database.execute(f"SELECT pg_drop_replication_slot('{database.name}')", "TRUNCATE items")
        recovered = recover(pipeline, lambda: spark)
        assert recovered.errors == ()
        assert len(recovered.snapshots) == 2
        followed.assert_equal()
        assert [(c.what, c.found) for c in diagnose(pipeline).checks if c.verdict is not Verdict.OK] == []


def test_without_one_of_them_the_doctor_says_which(database: Database, tmp_path: Path) -> None:
    """So that the test above can fail: what was granted is what mattered."""
    database.execute(*(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in TABLES))
    with documented_role(database, "pw") as dsn:
        role = dsn.split("user=")[1].split()[0]
        pipeline = pipeline_of(database, tmp_path / "lake", *TABLES, dsn=dsn)
        for revoked, said in (
            ("REVOKE SELECT ON public.items FROM {}", "no SELECT"),
            ("REVOKE USAGE ON SCHEMA public FROM {}", "no USAGE on schema public"),
            ("ALTER ROLE {} NOREPLICATION", f"{role}: no REPLICATION"),
            (
                "DROP PUBLICATION " + database.name,
                f"does not exist, and {role} does not own {', '.join(f'public.{table}' for table in TABLES)}",
            ),
        ):
            database.execute(revoked.format(role))
            assert said in [check.found for check in diagnose(pipeline).failures]
