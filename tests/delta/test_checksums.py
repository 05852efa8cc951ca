"""A checksum beside a commit that it does not describe goes: Spark refuses a table with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.delta.commit import Commit
from spark_jobs.delta.transaction_log import remove_checksum_of_another
from spark_jobs.storage import Location, Storage

COMMIT = Commit(7, (b'{"commitInfo":{"txnId":"ours"}}',))


@pytest.mark.parametrize(
    ("checksum", "stays"), [('{"txnId":"ours"}', True), ('{"txnId":"theirs"}', False), ('{"txn', True), (None, False)]
)
def test_only_that_of_another_commit_goes(tmp_path: Path, checksum: str | None, stays: bool) -> None:
    file = tmp_path / "_delta_log" / f"{7:020}.crc"
    file.parent.mkdir()
    if checksum is not None:
        file.write_text(checksum)
    remove_checksum_of_another(Location(str(tmp_path), Storage()), COMMIT)
    assert file.exists() is stays
