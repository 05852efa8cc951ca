"""Bring every table up to the source, from Python: what `postgres-cdc sync` does.

python sync.py shop.yaml
"""

from __future__ import annotations

import sys

from cdc_assets import CdcError, SyncReport, lazy_session, load_pipeline, sync


def synced(file: str) -> SyncReport:
    """Raises CdcError for what stops the whole pipeline; a table that stops alone is among the report's ``errors``."""
    pipeline = load_pipeline(file)
    with lazy_session(pipeline.spark) as spark:  # Spark starts when something needs it
        return sync(pipeline, spark)


if __name__ == "__main__":
    try:
        report = synced(sys.argv[1])
    except CdcError as error:
        sys.exit(error.lines)
    for table in report.tables:
        print(table.name, table.outcome, table.changes.total)
    sys.exit("\n".join(error.lines for error in report.errors) or 0)
