"""The code location: everything below ``defs/``, and what holds for all of it."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    automation = dg.AutomationConditionSensorDefinition(
        "automation", target=dg.AssetSelection.all(), default_status=dg.DefaultSensorStatus.RUNNING
    )
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        # one process for each run
        dg.Definitions(executor=dg.in_process_executor, sensors=[automation]),
    )
