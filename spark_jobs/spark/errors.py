"""Spark's exceptions as ours: a typed error of an executor keeps its type; no message has a cell's value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spark_jobs import errors
from spark_jobs.delta.damaged_checkpoint import remove_damaged_checkpoint
from spark_jobs.delta.files import BUSY
from spark_jobs.errors import CdcError, LakeError, new_snapshot
from spark_jobs.spark.causes import JVM_ENDED, Cause, innermost_cause, text_of
from spark_jobs.spark.own_jvm import has_ended
from spark_jobs.storage import Location

# an executor's error arrives as the text of its traceback
_OURS = re.compile(r"^\s*spark_jobs\.errors\.(\w+): (.+?)\s*$", re.MULTILINE)
_KEPT = re.compile(r"([^\n\]]+): a change keeps a value of a row that the table does not have")
# Delta's optimistic commits: another writer was faster. The commit may be repeated as it is, thanks to its transaction
# identifier, unless the other commit has the same identifier: then it was a writer of ours
_CONCURRENT = re.compile(
    r"Concurrent(?!Transaction)\w+Exception|(Metadata|Protocol)ChangedException"
    r"|DELTA_CONCURRENT_(?!TRANSACTION)\w+|DELTA_(METADATA|PROTOCOL)_CHANGED"
)
# a missing file of the table, or a missing entry of its log
_FILE_GONE = re.compile(
    r"FileNotFoundException|FILE_NOT_EXIST|PATH_NOT_FOUND|VersionNotFoundException"
    r"|DELTA_(?:VERSION_NOT_FOUND|FILE_NOT_FOUND|LOG_FILE_NOT_FOUND|NO_RECREATABLE_HISTORY_FOUND"
    r"|TRUNCATED_TRANSACTION_LOG|VERSIONS_NOT_CONTIGUOUS|UNSUPPORTED_TIME_TRAVEL)\w*"
)
_CHECKPOINT = re.compile(r"\.checkpoint\.\S*parquet is not a Parquet file")
_REFUSED = re.compile(r"\[(DELTA_\w+)")
_OVERTAKEN = re.compile(r"ConcurrentTransactionException|DELTA_CONCURRENT_TRANSACTION")


def is_concurrent_commit(error: BaseException) -> bool:
    """Whether another writer committed in between. Classic and Connect differ in classes, not in the text."""
    return not isinstance(error, CdcError) and _CONCURRENT.search(text_of(error)) is not None


def is_overtaken(error: BaseException) -> bool:
    """Whether the other writer's commit had our transaction identifier."""
    return not isinstance(error, CdcError) and _OVERTAKEN.search(text_of(error)) is not None


def is_file_gone(error: BaseException) -> bool:
    """Whether a file that a version of a Delta table needs is no longer there."""
    texts = (text_of(error), getattr(error, "_stackTrace", None) or "", getattr(error, "_stacktrace", None) or "")
    return not isinstance(error, CdcError) and any(_FILE_GONE.search(text) for text in texts)


def refused_ddl(error: BaseException) -> str | None:
    """The class of Delta's error if the table, as it is, does not allow the statement; None for all other failures."""
    from pyspark.errors import AnalysisException, UnsupportedOperationException

    match = (
        _REFUSED.match(text_of(error)) if isinstance(error, AnalysisException | UnsupportedOperationException) else None
    )
    return match and match[1]


@contextmanager
def spark_errors(
    what: str, *, name: object = "schema.table", path: Location | None = None, hint: str = "", ours: bool = True
) -> Iterator[None]:
    """Raise the error that our code raised on an executor, else LakeError: ``what``, the innermost cause, a hint.
    ``name`` and ``path``: of the table that is read or written, for the hint. ``ours``: whether a damaged checkpoint of
    it may be removed."""
    try:
        yield
    except CdcError:
        raise
    except Exception as error:
        mends = ours and path is not None and _CHECKPOINT.search(text_of(error))
        if mends and path and (removed := remove_damaged_checkpoint(path)):
            message = f"{what}: {removed} was damaged, and has been removed: the commits of the table say the same"
            raise LakeError(message, hint="run it again") from None
        raise _typed(error, what, innermost_cause(error, name, path or "PATH"), hint) from error


def _typed(error: Exception, what: str, cause: Cause, hint: str) -> CdcError:
    text = text_of(error)
    if ours := _OURS.findall(text):
        name, said = ours[-1]  # its causes come before it
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, CdcError):
            return kind(f"{what}: {said}")
    if kept := _KEPT.search(text):
        return errors.NeedsSnapshotError(f"{what}: {kept[0].strip()}", hint=new_snapshot(kept[1].strip()))
    # a JVM that runs out of memory may still answer, with any exception
    ended = JVM_ENDED if not cause.hint and has_ended() else ""
    kind = errors.StorageBusyError if cause.hint == BUSY else LakeError
    return kind(f"{what}: {cause.said}", hint=hint or cause.hint or ended)
