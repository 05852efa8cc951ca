"""``postgres-cdc config show`` and ``validate``: the configuration file alone, without source and lake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import counted
from cdc_assets.configuration.load_pipeline import COMPONENT_TYPE, FOR_DAGSTER, load_fields, load_pipeline
from cdc_assets.configuration.models import PipelineModel
from spark_jobs.errors import ConfigurationError
from spark_jobs.postgres.connection import parameters_of

_HIDDEN = "**********"


@dataclass(frozen=True)
class Validated:
    """``tables``: how many the file names; None: those of the publication."""

    file: str
    pipeline: str
    tables: int | None


@click.group("config")
def command() -> None:
    """Check the configuration file, or show it with every default filled in. Needs no server.

    Whether tables exist and the source is set up is what `doctor` says.
    """


@command.command("validate")
@config_option
@output_options
def validate(config: Path) -> Outcome:
    """Check the file. Exit code 2: a field is wrong; one line says where, and what is allowed."""
    pipeline = load_pipeline(config)
    try:
        parameters_of(pipeline.source.dsn)
    except ConfigurationError as error:
        raise error.within(str(config)) from None
    named = None if pipeline.tables is None else len(pipeline.tables)
    tables = "the tables of the publication" if named is None else counted(named, "table")
    line = f"{config} is valid: pipeline {pipeline.name} with {tables}"
    return Outcome(Validated(str(config), pipeline.name, named), Text(line))


@command.command("show")
@config_option
@output_options
def show(config: Path) -> Outcome:
    """Print every field with its value, or with its default, as a file may have them.

    The connection string and Spark's settings are hidden; `op` and `translation`, which only Dagster reads, are left
    out.
    """
    model, _ = load_fields(config)
    document = _document(model)
    return Outcome(document, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _document(model: PipelineModel) -> dict[str, Any]:
    """In the form of the file. What is left out has the pipeline's name by default."""
    attributes = model.model_dump(mode="json", exclude=set(FOR_DAGSTER))
    attributes["source"]["slot"] = model.source.slot or model.name
    attributes["source"]["publication"] = attributes["source"]["publication"] or model.name
    if model.source.password_command:
        attributes["source"]["password_command"] = [_HIDDEN]
    # settings of Spark, and the URL of a Connect server, may hold tokens
    attributes["spark"]["config"] = dict.fromkeys(model.spark.config, _HIDDEN)
    attributes["spark"]["remote"] = model.spark.remote and _HIDDEN
    return {"type": COMPONENT_TYPE, "attributes": attributes}
