"""``binary: true`` is refused before the first window where a value could not be read, and the doctor names it."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.checks import Check
from spark_jobs.doctor.table_checks import publication_and_table_checks
from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.privileges import role_privileges
from spark_jobs.prepare import prepare
from tests.fixtures.pipelines import MakePipeline
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

PLAIN = "CREATE TABLE plain (id int PRIMARY KEY, tags text[], acl aclitem)"
ODD = "CREATE TABLE odd (id int PRIMARY KEY, kind regclass, kinds regtype[])"


def table_checks(pipeline: Pipeline) -> list[Check]:
    with connected(SecretStr(pipeline.source.dsn.get_secret_value())) as connection:
        return list(publication_and_table_checks(connection, pipeline, role_privileges(connection)))


def test_a_table_of_regclass_stops_alone_and_is_not_published(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(PLAIN, ODD)
    pipeline = make_pipeline("public.plain", "public.odd", binary=True)
    prepared = prepare(pipeline)
    (stopped,) = prepared.stopped
    assert [name.relname for name in prepared.tables] == ["plain"]
    assert str(stopped.error) == (
        "table public.odd has columns that cannot be read in binary: kind (regclass), kinds (regtype[]): set"
        " source.binary: false, or take the table out of tables:"
    )
    assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("plain",)]
    (fault,) = [check for check in table_checks(pipeline) if "binary" in check.found]
    assert (fault.what, fault.found) == (
        "public.odd",
        "has columns that cannot be read in binary: kind (regclass), kinds (regtype[])",
    )
    assert not [check for check in table_checks(make_pipeline("public.plain", "public.odd")) if "binary" in check.found]


def test_turning_binary_on_later_checks_every_table(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(PLAIN, ODD)
    prepare(make_pipeline("public.plain", "public.odd"))
    with pytest.raises(PreconditionError, match="kind"):
        prepare(make_pipeline("public.plain", "public.odd", binary=True))
    assert prepare(make_pipeline("public.plain", binary=True)).tables
