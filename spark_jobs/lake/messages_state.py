"""Where the messages table is, and how far it has got, read from its transaction log without Spark.

No source table has its folder. But by default a *schema* called ``_messages`` has its tables in it, where VACUUM would
delete their files. So the two exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.decode.message_columns import MESSAGES_SCHEMA
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.files import WRITABLE
from spark_jobs.delta.table import open_table, table_errors
from spark_jobs.delta.written_tables import commit_properties
from spark_jobs.errors import LakeError
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState, stream_id
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.object_stores import storage_options
from spark_jobs.qualified_name import QualifiedName

# how cuts list it: no source table has an empty schema
MESSAGES_NAME = QualifiedName("", "_messages")
_FOLDER = "_messages"
_TABLE_CONFIGURATION = {"delta.dataSkippingStatsColumns": "window,commit_lsn_number,ordinal,commit_time,prefix"}


def has_messages_table(pipeline: Pipeline) -> bool:
    """Whether the pipeline keeps a messages table."""
    return bool(pipeline.source.messages)


def messages_state(lake: Lake, identity: SlotIdentity) -> TableState | None:
    """How far the table is, None before it is created. Raises LakeError if it cannot be read or is of another slot.

    There is no snapshot of messages: the generation is the Delta table's own ``id``, which changes when it is
    re-created.
    """
    path = lake.messages
    table = open_table(path, path)
    if table is None:
        return None
    ordinal = table.transaction_version(app_id(identity))
    if ordinal is None:
        raise LakeError(
            f"{path} holds a Delta table that was not written from this slot's messages",
            hint="move it away, or choose another lake.path",
        )
    return _state(table, ordinal, table.version())


def app_id(identity: SlotIdentity) -> str:
    """The identifier of the table's application transactions, whose version is a window's ordinal."""
    return f"{stream_id(*identity.stream)}messages"


def refuse_schema_in_the_folder(lake: Lake, followed: Iterable[QualifiedName]) -> None:
    """Raises LakeError if a followed table's folder would be inside this table's."""
    inside = next((name for name in followed if lake.table(name).startswith(f"{lake.messages}/")), None)
    if inside is not None:
        raise LakeError(
            f"{inside} lies in the folder of the messages table",
            hint=f"set source.messages to false, or follow {inside.nspname} into a lake of its own",
        )


def created(lake: Lake, first: WindowMarker) -> TableState:
    """Create the empty table. Its messages begin with window ``first``. Raises LakeError."""
    path, identity, ordinal = lake.messages, first.identity, max(first.ordinal - 1, 0)
    with table_errors(f"{path} cannot be created", hint=WRITABLE):
        try:
            table = DeltaTable.create(
                path,
                MESSAGES_SCHEMA,
                configuration=_TABLE_CONFIGURATION,
                name=_FOLDER,
                description="pg_logical_emit_message, in commit order",
                storage_options=storage_options(path),
                commit_properties=commit_properties(Transaction(app_id(identity), ordinal), retries=0),
            )
        except CommitFailedError:  # it is there: see ChangeLog.create
            if (state := messages_state(lake, identity)) is None:
                raise
            return state
    return _state(table, ordinal, 0)


def _state(table: DeltaTable, ordinal: int, version: int) -> TableState:
    """The table's state. Its transaction's version, the ordinal of its last window, also counts as its commits. It grew
    from no snapshot: Delta's id tells it from a table that was created anew."""
    generation = Generation(Lsn(0), str(table.metadata().id).replace("-", ""))
    return TableState(MESSAGES_NAME, generation, ordinal, version, relid=0, commits=ordinal)
