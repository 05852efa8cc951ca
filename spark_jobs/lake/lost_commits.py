"""Commits of ours that a table has lost: another writer has put a commit of the same version in their place.

Delta's log on S3 allows that: Spark looks whether a version is there, and then writes it without a condition, so of two
writers the later one wins, and the other believes that it has committed. What was lost is applied again, as the table's
own log says how far the table is now. An older copy of a table that was put back shows itself in the same way.
"""

from __future__ import annotations

import logging

from spark_jobs.delta.files import lake_errors
from spark_jobs.delta.transaction_log import remove_checksum
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)


def note_lost_commit(path: Location, number: int, version: int) -> None:
    """Say that the table at ``path`` has lost our commit of this number, and remove what Spark has written beside it.
    ``version``: that of the commit. Raises LakeError."""
    _log.warning(
        "%s has lost commit %d of this pipeline (Delta version %d): another writer has replaced it, or an older copy of"
        " the table was put back; what it held is applied again",
        path,
        number,
        version,
    )
    with lake_errors(f"the checksum of a lost commit to {path} cannot be removed"):
        remove_checksum(path, version)
