"""Delta tables as ``deltalake`` opens and reads them, without a JVM. Nothing else opens one, so options that a storage
asks for have one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_jobs.delta.files import REACHABLE
from spark_jobs.errors import LakeError


def open_table(path: str, what: str, *, hint: str = REACHABLE, version: int | None = None) -> DeltaTable | None:
    """The table at ``path``, at its newest or another ``version``, None where there is none. Raises LakeError: ``what``
    cannot be read."""
    with table_errors(f"{what} cannot be read", hint=hint):
        try:
            return DeltaTable(path, version)
        except TableNotFoundError:
            return None


@contextmanager
def table_errors(what: str, *, hint: str = REACHABLE) -> Iterator[None]:
    """Raise what ``deltalake`` and Arrow raise, and damaged commits, as LakeError: ``what`` and its own text."""
    try:
        yield
    except (DeltaError, OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise LakeError(f"{what}: {error}", hint=hint) from None
