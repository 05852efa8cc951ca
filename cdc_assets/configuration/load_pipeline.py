"""The configuration file of the command: the Dagster component's own ``defs.yaml``, read without Dagster.

``{{ env.NAME }}`` is rendered as Dagster renders it. Any fault is one ``ConfigurationError`` with the file and line,
the field's path, and what is allowed there. Dagster's other keys (``requirements``, ``post_processing``,
``template_vars_module``, ``op``, ``translation`` of the pipeline and of a table) are accepted and ignored.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from cdc_assets.configuration.engine_form import pipeline_of
from cdc_assets.configuration.environment import EnvironmentScope, set_from_env_file, why_unreadable
from cdc_assets.configuration.field_errors import FieldError, unknown_field
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.validated_fields import validated
from cdc_assets.configuration.yaml_document import YamlDocument, documents, syntax_hint
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError

COMPONENT_TYPE = "cdc_assets.PostgresCdcComponent"
_TOP_LEVEL = ("type", "attributes", "requirements", "post_processing", "template_vars_module")
# their templates may name what only Dagster knows
FOR_DAGSTER = ("op", "translation")


def load_pipeline(path: str | Path) -> Pipeline:
    """Read a configuration file, and the project's ``.env``. A relative ``lake.path`` in it is relative to the file's
    folder.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or a field is wrong; nothing was touched.
    """
    return load_fields(path)[1]


def load_fields(path: str | Path) -> tuple[PipelineModel, Pipeline]:
    """The fields of the file itself, with their defaults; and the pipeline, which is refused where fields contradict
    each other. Raises what ``load_pipeline`` raises."""
    file = Path(path)
    model = _model(file)
    try:
        return model, pipeline_of(model, file.resolve().parent)
    except ConfigurationError as error:
        raise error.within(str(path)) from None


def _model(file: Path) -> PipelineModel:
    document = _pipeline_document(file)
    set_from_env_file(file.resolve().parent)
    ours = {name: value for name, value in document.value["attributes"].items() if name not in FOR_DAGSTER}
    try:
        return validated(PipelineModel, ours, {"env": EnvironmentScope()})
    except FieldError as error:
        raise error.at(f"{file}:{document.line(('attributes', *error.path))}") from None


def _pipeline_document(file: Path) -> YamlDocument:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "name it with --config FILE; `postgres-cdc init` writes a new one"
        raise ConfigurationError(f"{file}: no such file", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {why_unreadable(error)}") from None
    try:
        all_documents = documents(text)
    except yaml.MarkedYAMLError as error:
        # not the error's own text: it quotes the line, which may hold a password
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigurationError(f"{file}{line}: not YAML: {error.problem}", hint=syntax_hint(text, error)) from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{file}: not YAML") from None
    ours = [document for document in all_documents if document.value.get("type") == COMPONENT_TYPE]
    if not ours:
        types = ", ".join(str(document.value.get("type", "missing")) for document in all_documents) or "missing"
        raise ConfigurationError(f"{file}: type is {types}", hint=f"expected type: {COMPONENT_TYPE}")
    if len(ours) > 1:
        raise ConfigurationError(f"{file}: holds {len(ours)} pipelines", hint="give each a file of its own")
    document = ours[0]
    for key in document.value:
        if key not in _TOP_LEVEL:
            hint = f"{key} is a field of attributes: indent it below" if key in PipelineModel.model_fields else ""
            raise FieldError((key,), unknown_field(str(key), _TOP_LEVEL), hint).at(f"{file}:{document.line((key,))}")
    if not isinstance(document.value.get("attributes"), dict):
        what = "expected a mapping with name, source, lake and tables"
        raise FieldError(("attributes",), what).at(f"{file}:{document.line(('attributes',))}")
    return document
