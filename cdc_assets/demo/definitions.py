"""The demo as a Dagster code location, for ``postgres-cdc demo --ui``."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import yaml

from cdc_assets.component import PostgresCdcComponent
from cdc_assets.demo.demo_folder import FOLDER_VARIABLE, configuration_of


@dg.definitions
def defs() -> dg.Definitions:
    document = yaml.safe_load(configuration_of(Path(os.environ[FOLDER_VARIABLE])).read_text())
    component = PostgresCdcComponent.from_attributes_dict(attributes=document["attributes"])
    # one process per run: capture, snapshot and apply share one Spark session
    return dg.Definitions.merge(component.definitions(), dg.Definitions(executor=dg.in_process_executor))
