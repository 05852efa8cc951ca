"""Staged rows lie in the lake until the commit that they are for can no longer be made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_jobs.apply.staging import staging_folder
from spark_jobs.configuration import Lake
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

STATE = TableState(QualifiedName("public", "t"), Generation(Lsn(100)), ordinal=7, version=9, commits=4)


def test_a_folder_is_removed_with_its_context(tmp_path: Path) -> None:
    with staging_folder(Lake(str(tmp_path)), STATE) as folder:
        Path(folder, "net.parquet").touch()
    assert not Path(folder).exists()


def test_what_may_still_be_committed_is_not_swept(tmp_path: Path) -> None:
    """Swept file by file under a writer who has lost his lock, what is left would be a part of his rows."""
    lake = Lake(str(tmp_path))
    with staging_folder(lake, STATE) as orphan:
        kept = Path(orphan, "net.parquet")
        kept.touch()
        with staging_folder(lake, STATE) as following:
            assert following != orphan
        assert kept.exists(), "both have read one state, and either may be the one that commits"
        with staging_folder(lake, replace(STATE, commits=5)):
            assert not kept.exists(), "the table has the commit that it was for"
