"""Take from a Delta table the features that it does not need, so that more readers read it.

Tables of early versions were created with all of them, and a renamed column leaves column mapping behind. Delta drops a
feature in a few commits that change no row, and writes its traces out of the data files. In its place the table gets
``checkpointProtection``, which readers need not know but writers have to: the log still has versions with the dropped
feature. It is dropped by the first call after these have left the log.
https://docs.delta.io/delta-drop-feature
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.configuration import Pipeline
from spark_jobs.delta.history import History, interval
from spark_jobs.delta.table import delta_identifier
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.readable_size import size
from spark_jobs.spark.causes import text_of
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.table_features import COLUMN_MAPPING, DELETION_VECTORS, TIMESTAMP_NTZ, features_of
from spark_jobs.writers.with_spark.delta_table import set_properties

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_PROTECTION = "checkpointProtection"
# every table has them, and every reader and writer knows them
_BASE = ("appendOnly", "invariants")
_LOG_STAYS = "delta.dropFeatureTruncateHistory.retentionDuration"
_VERSIONS_ARE_LEFT = "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD"


@dataclass(frozen=True)
class FeatureKept:
    """``reason``: why the table keeps it, and what would have to change before it can be dropped."""

    name: str
    reason: str


@dataclass(frozen=True)
class TableSimplified:
    """Features of a table by their names in Delta's protocol."""

    dropped: tuple[str, ...]
    kept: tuple[FeatureKept, ...]


def simplify(pipeline: Pipeline, name: QualifiedName, spark: SparkSession) -> TableSimplified:
    """Drop the features that the table does not need. Raises Spark's own exceptions; it may be repeated then."""
    path = pipeline.lake.table(name)
    table = delta_identifier(path)
    with isolated_session(spark, {}) as own:
        detail = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        columns = [(field.name, field.dataType.simpleString()) for field in own.table(table).schema]
        reasons = {
            feature: _reason_to_keep(feature, detail, columns, pipeline.writes.whole_files_bytes)
            for feature in detail["tableFeatures"]
            if feature not in (*_BASE, _PROTECTION)
        }
        dropped = [feature for feature, reason in reasons.items() if not reason]
        for feature in dropped:
            own.sql(f"ALTER TABLE {table} DROP FEATURE {feature}")
        if DELETION_VECTORS.name in dropped and _are_unwanted(detail):  # Delta drops the property, too
            set_properties(own, path, {DELETION_VECTORS.key: "false"})
        if dropped or _PROTECTION in detail["tableFeatures"]:
            history = History.for_cuts(pipeline.retention.cuts)
            if reason := _drop_protection(own, path, history):
                reasons[_PROTECTION] = reason
            else:
                dropped.append(_PROTECTION)
    return TableSimplified(tuple(dropped), tuple(FeatureKept(*each) for each in reasons.items() if each[1]))


def _reason_to_keep(feature: str, detail: Row, columns: Sequence[tuple[str, str]], whole_files_bytes: int) -> str:
    """Empty if the table need not keep it."""
    if feature in {each.name for each in features_of(columns)}:
        return "a column needs it"
    if feature == DELETION_VECTORS.name and detail["sizeInBytes"] > whole_files_bytes and not _are_unwanted(detail):
        return (
            f"a change by Spark would add it again, as the table has {size(detail['sizeInBytes'])}. If changes may copy"
            f" whole files instead, set {DELETION_VECTORS.key} = false first"
        )
    if feature in (DELETION_VECTORS.name, COLUMN_MAPPING.name):
        return ""
    return "Delta cannot drop it" if feature == TIMESTAMP_NTZ.name else "a column needs it, or somebody has added it"


def _are_unwanted(detail: Row) -> bool:
    return str(detail["properties"].get(DELETION_VECTORS.key)) == "false"


def _drop_protection(spark: SparkSession, path: Location, history: History) -> str:
    """Why the table keeps it; empty if it is dropped. Before Delta looks which versions are left, it removes those that
    are older than the property says, by default a day: then versions that cuts name could not be read."""
    set_properties(spark, path, {_LOG_STAYS: interval(history.log)})
    try:
        spark.sql(f"ALTER TABLE {delta_identifier(path)} DROP FEATURE {_PROTECTION} TRUNCATE HISTORY")
    except Exception as error:
        if _VERSIONS_ARE_LEFT not in text_of(error):
            raise
        return f"Delta's log has older versions for {history.log.days} days: repeat this then"
    return ""
