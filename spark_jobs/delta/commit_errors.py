"""What a failed commit means: another writer was faster, the table refuses it, or the storage cannot be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.delta.files import storage_error
from spark_jobs.delta.table import delta_identifier, log_errors
from spark_jobs.errors import CdcError, LakeError, OvertakenError, first_line

# statements for any Spark session with Delta: they undo what somebody has set on the table
APPENDS_ONLY = "allow other changes: ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')"


def overtaken(path: str) -> OvertakenError:
    return OvertakenError(f"another process has written {path} since its state was read", hint="run it again")


@contextmanager
def commit_errors(
    path: str, conflict: CdcError | None = None, *, is_made: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Raise what ``deltalake`` raises at a commit to ``path`` as ``conflict`` if another writer was faster, by default
    an OvertakenError; else as LakeError. Storage that fails is an OSError in ``deltalake``.

    ``is_made``: whether the commit was made all the same. A storage may do what it was asked, and its answer is lost;
    then ``deltalake`` asks again, and is told that there is such a commit. Nothing is raised then.
    """
    try:
        yield
    except CommitFailedError as error:
        if "append-only" in str(error):
            what = f"{path} cannot be written: it has the property delta.appendOnly"
            raise LakeError(what, hint=APPENDS_ONLY.format(table=delta_identifier(path))) from None
        with log_errors(f"{path} was not written", path):
            made = is_made is not None and is_made()
        if not made:
            raise conflict or overtaken(path) from error
    except (DeltaError, OSError) as error:
        # what a storage said names files; any other error may name values of rows, after its first line
        is_harmless = isinstance(error, OSError) or is_of_storage(error)
        message = str(error) if is_harmless else first_line(error)
        raise storage_error(f"{path} cannot be written", message) from None


def is_of_storage(error: DeltaError) -> bool:
    """Whether the storage has failed, and not what ``deltalake`` was to do: Spark would meet the same."""
    return re.search(r"Error performing [A-Z]+ |Generic \w+ error|necessary privileges", str(error)) is not None
