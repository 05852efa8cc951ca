"""A copy of a table as it was at an LSN: built from its newest version before that LSN, and from the change log.

The copy is built in the folder ``_building`` inside its target folder, then copied to the target in one commit: readers
never see a part of it. The source is not read, and the pipeline's own table is not changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.errors import CdcError, ConfigurationError, LakeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.object_stores import full_uri, store_of
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.aside import Build
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.points import Point
from spark_jobs.replay.replay import followed_tables
from spark_jobs.run import Run
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location, Storage
from spark_jobs.tables.at_source import resolved
from spark_jobs.writers.table_features import features_of, new_properties
from spark_jobs.writers.with_spark.delta_table import rows_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUILDING = "_building"


@dataclass(frozen=True)
class TableAsOf:
    """A copy of table ``name`` at ``path``, with ``rows`` rows: the table after all transactions that committed before
    ``lsn``.

    It was built from Delta version ``base_version`` of the pipeline's table, which is as of ``base_lsn``. ``windows``
    is the number of windows applied to that.
    """

    name: QualifiedName
    lsn: Lsn
    path: str
    rows: int
    base_version: int
    base_lsn: Lsn
    windows: int


def table_as_of(run: Run, name: QualifiedName, at: Point, into: str) -> TableAsOf:
    """Write the table as it was at ``at`` to ``into``, an absolute path or URI that must be empty or not exist.

    From a window that contains the LSN, only transactions that committed before it are applied. Raises
    ConfigurationError if the path is not empty or the table is not followed; GapError and LakeError if the log or the
    table's history in Delta does not reach back or forward far enough; SchemaChangeError if rows changed in between in
    a way that the log does not show.
    """
    run = run.of(resolved(run.pipeline))
    pipeline = run.pipeline
    followed_tables(pipeline, [name])
    target = _target(pipeline.lake, into)
    _require_empty(target)
    landed = LandedWindows.of(pipeline)
    lsn = landed.lsn_of(at)
    base = _newest_until(landed, name, lsn)
    ahead = landed.after(base.ordinal, max(base.ordinal, _last_with_part_before(landed, lsn)))
    build = Build(run, landed, base, ahead, before=lsn)
    with _named(f"{name} as of {lsn}"):
        build.check()
        with _building(target) as folder:
            built = build.in_folder(folder)
            rows = _publish(run.spark(), built.path, target, _origin(landed, name, lsn, base))
    return TableAsOf(name, lsn, into, rows, base.version, landed.shown_by(base), len(ahead))


def _target(lake: Lake, into: str) -> Location:
    """With the lake's settings, if it is in the same kind of store. Raises LakeError."""
    path = full_uri(into)
    same = store_of(path) is store_of(lake.path)
    return Location(path, lake.storage if same else Storage())


def _require_empty(into: Location) -> None:
    with lake_errors(f"{into} cannot be read"):
        filesystem, path = lake_filesystem(into)
        info = filesystem.get_file_info(path)
        listed = info.type == fs.FileType.Directory and filesystem.get_file_info(fs.FileSelector(path))
    if listed or info.type in (fs.FileType.File, fs.FileType.Unknown):
        raise ConfigurationError(f"{into} is not empty", hint="choose a path that is empty or does not exist")


def _last_with_part_before(landed: LandedWindows, lsn: Lsn) -> int:
    """The ordinal of the last window that begins before ``lsn``, -1 if there is none."""
    return max((marker.ordinal for marker in landed.markers if marker.window.lo < lsn), default=-1)


def _newest_until(landed: LandedWindows, name: QualifiedName, lsn: Lsn) -> TableState:
    """The table's newest state at or before ``lsn``. Raises LakeError if there is none."""
    oldest: TableState | None = None
    for past in landed.past_states(name):
        oldest = past.state
        if landed.shown_by(oldest) <= lsn:
            return oldest
    if oldest is None:
        raise LakeError(f"{name} has no snapshot yet", hint=new_snapshot(name))
    raise LakeError(f"{name}: the oldest version in Delta's log is as of {landed.shown_by(oldest)}")


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Errors begin with ``what``, the table to be built."""
    try:
        yield
    except CdcError as error:
        raise error.within(what) from error


@contextmanager
def _building(into: Location) -> Iterator[Location]:
    """A folder for the unfinished copy. It is removed when the context ends, and so is ``into`` if it is empty."""
    filesystem, path = lake_filesystem(into)
    folder = f"{path}/{_BUILDING}"
    with lake_errors(f"{into} cannot be written"):
        filesystem.create_dir(folder, recursive=True)
    try:
        yield into / _BUILDING
    finally:
        with lake_errors(f"{into}/{_BUILDING} cannot be removed"):
            filesystem.delete_dir(folder)
            if not filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
                filesystem.delete_dir(path)


def _origin(landed: LandedWindows, name: QualifiedName, lsn: Lsn, base: TableState) -> str:
    """The ``userMetadata`` of the copy's commit."""
    facts = {
        "system_identifier": landed.identity.system_identifier,
        "slot": landed.identity.slot,
        "table": str(name),
        "as_of": str(lsn),
        "base_version": base.version,
        "base_lsn": str(landed.shown_by(base)),
    }
    return json.dumps(facts, separators=(",", ":"))


def _publish(spark: SparkSession, built: str, into: Location, origin: str) -> int:
    """Copy the table to ``into`` in one commit. Returns the number of rows."""
    with spark_errors(f"{into} was not written"), isolated_session(spark, {}) as own:
        rows = own.read.format("delta").load(built)
        properties = new_properties(into, features_of(rows.dtypes))
        rows.write.format("delta").mode("error").options(**properties, userMetadata=origin).save(into)
        return rows_written(into, 0)
