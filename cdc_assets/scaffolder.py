"""``dg scaffold defs cdc_assets.PostgresCdcComponent NAME``: a file that loads once its variables are set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.scaffold.scaffold import Scaffolder, ScaffoldRequest
from pydantic import BaseModel

from cdc_assets.configuration.database_name import pipeline_name
from cdc_assets.configuration.new_configuration import configuration_text
from spark_jobs.errors import CdcError

if TYPE_CHECKING:
    from cdc_assets.configuration.found_database import FoundDatabase


class ScaffoldParams(BaseModel):
    """``dsn_env``: the environment variable with the connection string of the database whose tables are to be
    listed."""

    dsn_env: str | None = None


class PostgresCdcScaffolder(Scaffolder[ScaffoldParams]):
    """Writes the required fields; the pipeline's name is the folder's. With ``--dsn-env NAME`` it lists the tables of
    that database, as ``postgres-cdc init`` does."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: ScaffoldRequest[ScaffoldParams]) -> None:
        if request.scaffold_format != "yaml":
            scaffold_component(request)
            return
        folder = request.target_path
        name = pipeline_name(folder.name)
        variable, lake = request.params.dsn_env or f"{name.upper()}_DSN", f"{name.upper()}_LAKE"
        text = configuration_text(
            head=[
                f"Set {variable} (the connection string) and {lake} (a folder, or a URI such as s3://bucket/{name}),",
                "in the environment or in the project's .env. The command reads this file too:",
                f"postgres-cdc doctor --config {shlex.quote(str(_from_project(request)))}",
            ],
            type_name=request.type_name,
            name=name,
            variable=variable,
            lake="{{ env." + lake + " }}",
            database=_database(request, name),
            requires=(variable, lake),
        )
        file = _file(request)
        before = f"{file.read_text()}---\n" if request.append else ""
        file.write_text(before + text, encoding="utf-8")


def _file(request: ScaffoldRequest[ScaffoldParams]) -> Path:
    return request.target_path if request.append else request.target_path / "defs.yaml"


def _from_project(request: ScaffoldRequest[ScaffoldParams]) -> Path:
    """The file, as it is named where ``dg`` runs."""
    file = _file(request)
    root = request.project_root
    return file.relative_to(root) if root is not None and file.is_relative_to(root) else file


def _database(request: ScaffoldRequest[ScaffoldParams], name: str) -> FoundDatabase | None:
    if request.params.dsn_env is None:
        return None
    from cdc_assets.configuration.found_database import dsn_of, look_at

    try:
        return look_at(dsn_of(request.params.dsn_env), name=name)
    except CdcError as error:
        if not request.append:
            request.target_path.rmdir()  # dg has made it, and would refuse the next attempt
        raise click.ClickException(error.lines) from None
