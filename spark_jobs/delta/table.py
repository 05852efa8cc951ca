"""Open Delta tables with ``deltalake``, without a JVM, and say what its errors mean. All existing tables are opened
here, so that storage options have one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from spark_jobs.delta.damaged_checkpoint import remove_damaged_checkpoint
from spark_jobs.delta.files import REACHABLE, storage_error
from spark_jobs.errors import CdcError, LakeError, OvertakenError, first_line
from spark_jobs.object_stores import storage_options
from spark_jobs.storage import Location

# statements for any Spark session with Delta: they undo what somebody has set on the table
APPENDS_ONLY = "allow other changes: ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')"


def open_table(path: Location, what: str, *, hint: str = REACHABLE, version: int | None = None) -> DeltaTable | None:
    """The table at ``path``, at ``version`` or its newest one; None if there is no table. Raises LakeError, which calls
    the table ``what``."""
    with table_errors(f"{what} cannot be read", hint=hint):
        try:
            return table_of_others(path, version)
        except TableNotFoundError:
            return None
        except DeltaError:
            if not remove_damaged_checkpoint(path):
                raise
            return table_of_others(path, version)


def table_of_others(path: Location, version: int | None) -> DeltaTable:
    """A table that is only read: a damaged checkpoint of it stays where it is. Raises what ``deltalake`` raises."""
    return DeltaTable(path, version, storage_options(path))


def table_gone(path: str) -> LakeError:
    """The error for a table that was there before."""
    return LakeError(f"there is no Delta table at {path} any more", hint="run it again")


def is_ambiguous(path: str) -> bool:
    """Whether ``deltalake`` and Spark may mean different folders: they disagree on whether it is percent-encoded."""
    return "%" in path


def delta_identifier(path: str) -> str:
    """How Spark SQL names a Delta table by its absolute path or URI."""
    return f"delta.`{path.replace('`', '``')}`"


def moved_away(path: str) -> str:
    """The hint for a table that nobody can read any more."""
    return f"move {path} away: the next sync reads the table again, into a new one"


@contextmanager
def log_errors(what: str, path: str) -> Iterator[None]:
    """Raise what reading the transaction log of ``path`` raises as LakeError: storage that fails, or a damaged log."""
    try:
        yield
    except OSError as error:
        # an error of Arrow's may name the URL with its signature
        raise storage_error(f"{what}: the transaction log of {path} cannot be read", str(error), REACHABLE) from None
    except (ValueError, KeyError) as error:
        raise LakeError(f"{what}: the transaction log of {path} is damaged", hint=moved_away(path)) from error


@contextmanager
def table_errors(what: str, *, hint: str = REACHABLE) -> Iterator[None]:
    """Raise errors of ``deltalake`` and Arrow, and those of damaged commits, as LakeError: ``what`` and their text."""
    try:
        yield
    except (DeltaError, OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise storage_error(what, str(error), hint) from None


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
