"""What the source says about a table is what its Delta table says, written without a JVM: comments, types, the primary
key, masks. No row is read or written for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from spark_jobs.apply import apply_tables
from spark_jobs.configuration import Pipeline, PluginName, Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.run import Run
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.opened_table import opened_table
from spark_jobs.writers.with_arrow.table_metadata import MetadataChange, commit_metadata
from tests.apply.annotations import HOSTILE, IDLE, ITEM, LONG, MAKING, in_source, said, table_of
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def followed(database: Database, tmp_path: Path) -> Callable[..., Pipeline]:
    database.execute(*MAKING)

    def make(mode: Mode = "mirror", **options: Any) -> Pipeline:
        tables = Table(ITEM, mode=mode, **options), Table(IDLE)
        return replace(pipeline_of(database, tmp_path / "lake"), tables=tables, mask_salt=SecretStr("s" * 32))

    return make


def versions(pipeline: Pipeline) -> tuple[int, int]:
    return table_of(pipeline).version(), table_of(pipeline, IDLE).version()


@pytest.mark.parametrize("plugin", ["pgoutput", "test_decoding"])
def test_comments_are_followed_without_a_row_event(
    database: Database, followed: Callable[..., Pipeline], plugin: PluginName
) -> None:
    """They are in the snapshot's one commit; each change is one commit of metadata, and an idle table gets none."""
    pipeline = followed()
    pipeline = replace(pipeline, source=replace(pipeline.source, plugin=plugin))
    synced_without_spark(pipeline)
    assert said(pipeline) == in_source(database)
    assert said(pipeline)["price"] == ("in euros", "numeric(12,2)", None, None)
    assert (said(pipeline)["part"], said(pipeline)["id"]) == ((None, "integer", 1, None), (None, "bigint", 2, None))
    synced_without_spark(pipeline)
    assert versions(pipeline) == (0, 0)

    database.execute(
        "COMMENT ON TABLE item IS NULL",
        f"COMMENT ON COLUMN item.id IS $said${HOSTILE}$said$",
        "COMMENT ON COLUMN item.price IS ''",
        "ALTER TABLE item ALTER note TYPE varchar(60)",
    )
    report = synced_without_spark(pipeline)
    assert [(each.name, each.outcome) for each in report.tables if each.delta_version] == [(ITEM, "applied")]
    assert said(pipeline) == in_source(database)
    assert said(pipeline)["id"][0] == HOSTILE
    assert said(pipeline)["note"][1] == "character varying(60)"
    synced_without_spark(pipeline)
    assert versions(pipeline) == (1, 0)
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}

    database.execute(f"COMMENT ON COLUMN item.at IS '{LONG}'")
    synced_without_spark(pipeline)
    assert said(pipeline)["at"][0] == LONG[:3997] + "..."


@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_they_are_kept_whatever_happens_to_the_table(
    database: Database, followed: Callable[..., Pipeline], mode: Mode
) -> None:
    """Merges, rewrites, DDL that rewrites rows, a TRUNCATE, a new snapshot with other columns."""
    pipeline = followed(mode)
    steps = (
        ("UPDATE item SET note = 'y' WHERE id = 3", "DELETE FROM item WHERE id = 4"),
        ("UPDATE item SET note = 'z'",),
        ("ALTER TABLE item RENAME price TO cost", "INSERT INTO item VALUES (100, 1)"),
        ("ALTER TABLE item ADD filled int DEFAULT 7", "COMMENT ON COLUMN item.filled IS 'seven'"),
        ("ALTER TABLE item ADD empty uuid", "COMMENT ON COLUMN item.empty IS '-'", "UPDATE item SET part = 2"),
        ("ALTER TABLE item DROP at, ALTER cost TYPE numeric(14,2)",),
        (
            "COMMENT ON TABLE item IS 'in the middle'",
            "INSERT INTO item VALUES (101, 1)",
            "COMMENT ON TABLE item IS 'x'",
        ),
        ("TRUNCATE item", "INSERT INTO item VALUES (102, 1)"),
        ("ALTER TABLE item ALTER mood TYPE text", "COMMENT ON COLUMN item.mood IS 'was an enum'"),
    )
    for statements in ((), *steps):
        database.execute(*statements)
        synced_without_spark(pipeline)
        names = {"", *(column.name for column in opened_columns(pipeline))}
        assert {name: text for name, text in said(pipeline).items() if name in names} == in_source(database), statements
    assert said(pipeline)["cost"][0] == "in euros"
    database.execute("COMMENT ON TABLE item IS 'before a snapshot'", "COMMENT ON COLUMN item.filled IS NULL")
    snapshot(Run(pipeline, no_spark), [ITEM])
    assert (said(pipeline)[""], said(pipeline)["filled"][0]) == ("before a snapshot", None)
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}


def opened_columns(pipeline: Pipeline) -> Sequence[DeltaColumn]:
    opened = opened_table(pipeline.lake.table(ITEM), table_of(pipeline).version())
    assert opened is not None
    return opened.columns


def test_masked_columns_and_comments_of_others(database: Database, followed: Callable[..., Pipeline]) -> None:
    """What somebody has written in the lake stays where the source has no comment, and where it has one, it wins."""
    pipeline = followed(mask=("note", "price"))
    synced_without_spark(pipeline)
    assert said(pipeline) == in_source(database, ITEM, "note", "price")
    opened = opened_table(pipeline.lake.table(ITEM), 0)
    assert opened is not None
    fields: list[Any] = json.loads(table_of(pipeline).schema().to_json())["fields"]
    for field in fields:
        field["metadata"]["comment"] = "by hand"
    commit_metadata(opened, MetadataChange(fields=fields, description="by hand"))
    synced_without_spark(pipeline)
    assert set(map(itemgetter(0), list(said(pipeline).values())[1:])) == {"by hand"}
    database.execute("COMMENT ON COLUMN item.id IS 'the number'", "COMMENT ON COLUMN item.at IS NULL")
    synced_without_spark(pipeline)
    now = {name: text if name == "" else text[0] for name, text in said(pipeline).items()}
    assert now == {
        "": "what is sold",
        "id": "the number",
        "part": "by hand",
        "price": "in euros",
        "at": None,
        "mood": "by hand",
        "note": "by hand",
    }


def test_a_comment_is_not_lost_in_a_crash(
    database: Database, followed: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the rows are committed it is written; after that, nobody would write it."""
    pipeline = followed()
    synced_without_spark(pipeline)
    database.execute("UPDATE item SET note = 'y'", "COMMENT ON TABLE item IS 'sold'", "COMMENT ON TABLE idle IS NULL")
    killed: list[str] = []

    def kill(*_: object, **__: object) -> None:
        killed.append(said(pipeline)[""])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(apply_tables, "write_net", kill)
        with pytest.raises(KeyboardInterrupt):
            synced_without_spark(pipeline)
    assert killed == ["sold"]
    synced_without_spark(pipeline)
    for name in (ITEM, IDLE):
        assert said(pipeline, name) == in_source(database, name)
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}
