"""Append Arrow batches to a Delta table without a JVM. Memory grows neither with the number of rows nor their width.

Arrow writes the Parquet files, ``deltalake`` commits them: its own writer buffers 8,192 rows per core before it writes
any, which is gigabytes for rows of a megabyte. Files of an append that fails before its commit are removed. A file
that a crash or a refused commit leaves behind is not part of the table; VACUUM removes it.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from spark_jobs.delta.data_files import DataFiles, Layout, row_groups
from spark_jobs.storage import Location

_CLEAN_UP_EVERY = 100  # transaction versions: windows, or cuts


def append(
    table: DeltaTable, path: Location, batches: Iterable[pa.RecordBatch], layout: Layout, commit: CommitProperties
) -> None:
    """Append in one commit, on the version that ``table`` is at, which it still shows then. ``batches`` are consumed
    one by one; at least one must have rows.

    Raises LakeError when files cannot be written, whatever ``batches`` raises, and whatever ``deltalake`` raises at the
    commit, such as CommitFailedError.
    """
    files = DataFiles(path, layout)
    try:
        # one group is compressed while the next is gathered
        with ThreadPoolExecutor(max_workers=1) as packer:
            packed: Future[None] | None = None
            for group in row_groups(batches):
                if packed is not None:
                    packed.result()
                packed = packer.submit(files.write, pa.Table.from_batches(group, layout.schema))
            if packed is not None:
                packed.result()
        files.close()
    except BaseException:
        files.remove()
        raise
    # an error here may come after the commit, as its answer was lost: so the files must be kept
    commit_files(table, files.actions, commit)


def commit_files(
    table: DeltaTable, files: Sequence[AddAction | RemoveAction], commit: CommitProperties, whole: Schema | None = None
) -> None:
    """Commit data files that are written already, on the version that ``table`` is at, which it still shows then.
    ``whole``: the files become all of the table, which gets this schema. Raises what ``deltalake`` raises."""
    table.create_write_transaction(
        [*files],
        "append" if whole is None else "overwrite",
        whole or table.schema(),
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    )


def after_commit(commit: CommitProperties) -> PostCommitHookProperties:
    """What ``deltalake`` does after a commit. It cleans up the log only after every hundredth transaction version, as
    that lists the whole log. ``write_checkpoint_if_due`` writes the checkpoints."""
    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=is_clean_up_due(commit))


def is_clean_up_due(commit: CommitProperties) -> bool:
    return any(txn.version % _CLEAN_UP_EVERY == 0 for txn in commit.app_transactions or ())
