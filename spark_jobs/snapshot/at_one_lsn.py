"""Takes new snapshots of followed tables at one LSN, and keeps the cuts valid meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.lake.cuts import forget
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, snapshot_tables
from spark_jobs.snapshot.wanted_snapshots import WantedSnapshots, require_same_server


def snapshot_at_one_lsn(
    request: WantedSnapshots, names: Sequence[QualifiedName], exports: Exporter
) -> tuple[TableSnapshot, ...]:
    """Take new snapshots of ``names`` in one exported snapshot. A table that fails is reported with its error, and
    keeps its rows. Raises SnapshotWaitsError for a snapshot that is not exported in time; nothing was changed then."""
    # windows that were landed while the server waited may hold changes that the snapshot does not show
    run, checkpoint = request.run, exports.begin(request.checkpoint)
    with exports.exported(run.progress) as (exported, shows):
        require_same_server(run, checkpoint)  # the log's server must have exported it
        with run.guard.cuts():
            forget(run.pipeline.lake, names)
        snapshots = snapshot_tables(request.work(names, checkpoint), exported, shows)
        with run.guard.cuts():  # a concurrent run may have written a cut with the old tables
            forget(run.pipeline.lake, names)
    return snapshots
