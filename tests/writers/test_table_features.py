"""The properties of new tables."""

from __future__ import annotations

import pytest

from spark_jobs.delta.checkpoints import CHECKPOINT_PROPERTY
from spark_jobs.writers.table_features import new_properties


@pytest.mark.parametrize(
    ("path", "interval"), [("/lake/tables/public/a", None), ("file:///lake/a", None), ("s3://lake/a", "5")]
)
def test_only_a_table_on_an_object_store_gets_checkpoints_earlier_than_by_default(
    path: str, interval: str | None
) -> None:
    assert new_properties(path, ()).get(CHECKPOINT_PROPERTY) == interval
