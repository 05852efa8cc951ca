"""A leaf whose replica identity was another for a moment: the table is read again if changes may lack its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.sync import prepare
from tests.capture.leaves import MADE, REASON
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

MOVE = "UPDATE root SET id = id + 100 WHERE id = 2"
BACK = "ALTER TABLE leaf REPLICA IDENTITY DEFAULT"
ANOTHER_INDEX = (
    "CREATE UNIQUE INDEX x ON leaf (v)",
    "ALTER TABLE leaf REPLICA IDENTITY USING INDEX x",
    MOVE,  # comes without its old key
    BACK,
    "DROP INDEX x",
)


@pytest.mark.parametrize(
    ("statements", "reasons"),
    [
        (ANOTHER_INDEX, {REASON}),
        (("ALTER TABLE ONLY root REPLICA IDENTITY FULL", *ANOTHER_INDEX), {REASON}),
        (("ALTER TABLE leaf REPLICA IDENTITY FULL", MOVE, BACK), set()),
        ((MOVE, "UPDATE leaf SET v = 'u' WHERE id = 3"), set()),
    ],
    ids=["another index", "under a FULL root", "FULL lacks nothing", "no other identity"],
)
def test_an_identity_for_a_moment(
    database: Database, tmp_path: Path, statements: tuple[str, ...], reasons: set[tuple[str, ...]]
) -> None:
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root")
    prepare(pipeline)
    capture(pipeline)
    database.execute(*statements)
    landed = capture(pipeline).landed
    found = [changed for marker in landed if marker.catalogue for changed in marker.catalogue.changed]
    assert {why for changed in found for why in (changed.reasons,) if REASON[0] in why} == reasons
