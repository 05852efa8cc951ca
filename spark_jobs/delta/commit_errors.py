"""What a failed commit means: another writer was faster, the table refuses it, or the storage cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.delta.files import WRITABLE
from spark_jobs.delta.table import delta_identifier
from spark_jobs.errors import CdcError, LakeError, OvertakenError

# statements for any Spark session with Delta: they undo what somebody has set on the table
APPENDS_ONLY = "allow other changes: ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')"


def overtaken(path: str) -> OvertakenError:
    return OvertakenError(f"another process has written {path} since its state was read", hint="run it again")


@contextmanager
def commit_errors(path: str, taken: CdcError | None = None) -> Iterator[None]:
    """Raise what ``deltalake`` raises at a commit to ``path`` as ``taken`` if another writer was faster, by default an
    OvertakenError; else as LakeError. Storage that fails is an OSError in ``deltalake``.
    """
    try:
        yield
    except CommitFailedError as error:
        if "append-only" not in str(error):
            raise taken or overtaken(path) from error
        what = f"{path} cannot be written: it has the property delta.appendOnly"
        raise LakeError(what, hint=APPENDS_ONLY.format(table=delta_identifier(path))) from None
    except (DeltaError, OSError) as error:
        raise LakeError(f"{path} cannot be written: {first_line(error)}", hint=WRITABLE) from None


def first_line(error: Exception) -> str:
    """What is safe to show: lines with rows may follow it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
