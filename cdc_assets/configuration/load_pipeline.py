"""The configuration file of the command: the Dagster component's own ``defs.yaml``, read without Dagster.

``{{ env.NAME }}`` is rendered as Dagster renders it. Any fault is one ``ConfigurationError`` with the file and line,
the field's path, and what is allowed there. Dagster's other keys (``requirements``, ``post_processing``,
``template_vars_module``, a table's ``translation``) are accepted and ignored.
"""

from __future__ import annotations

import difflib
import typing
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cdc_assets.configuration.engine_form import pipeline_of
from cdc_assets.configuration.environment import rendered
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.yaml_document import YamlDocument, documents
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError

COMPONENT_TYPE = "cdc_assets.PostgresCdcComponent"
_TOP_LEVEL = ("type", "attributes", "requirements", "post_processing", "template_vars_module")
_DAGSTERS_OWN = "translation"

FieldPath = tuple[str | int, ...]


def load_pipeline(path: str | Path) -> Pipeline:
    """Read a configuration file. A relative ``lake.path`` in it is relative to the file's folder.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or a field is wrong; nothing was touched.
    """
    file = Path(path)
    document = _pipeline_document(file)
    attributes = _rendered(document.value["attributes"], ("attributes",), file, document)
    try:
        model = PipelineModel.model_validate(attributes)
    except ValidationError as error:
        raise _first_error(error, file, document) from None
    try:
        return pipeline_of(model, file.resolve().parent)
    except ConfigurationError as error:
        raise error.within(str(file)) from None


def _pipeline_document(file: Path) -> YamlDocument:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from None
    try:
        all_documents = documents(text)
    except yaml.MarkedYAMLError as error:
        # not the error's own text: it quotes the line, which may hold a password
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigurationError(f"{file}{line}: not YAML: {error.problem}") from None
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
            raise _wrong((key,), _unknown_field(str(key), _TOP_LEVEL), file, document)
    if not isinstance(document.value.get("attributes"), dict):
        raise _wrong(("attributes",), "expected a mapping with name, source, lake and tables", file, document)
    return document


def _rendered(value: object, path: FieldPath, file: Path, document: YamlDocument) -> object:
    if isinstance(value, dict):
        return {
            key: item if key == _DAGSTERS_OWN else _rendered(item, (*path, key), file, document)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_rendered(item, (*path, place), file, document) for place, item in enumerate(value)]
    if isinstance(value, str):
        try:
            return rendered(value)
        except ConfigurationError as error:
            raise _wrong(path, str(error), file, document) from None
    return value


def _first_error(error: ValidationError, file: Path, document: YamlDocument) -> ConfigurationError:
    """One line for the first error; the next run shows the next one."""
    errors = error.errors(include_input=False, include_url=False)
    # a misspelt field is also a missing one: name what the user wrote
    details = next((details for details in errors if details["type"] == "extra_forbidden"), errors[0])
    return _wrong(("attributes", *details["loc"]), _explained(details), file, document)


def _explained(details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        return _unknown_field(str(details["loc"][-1]), _fields_at(details["loc"][:-1]))
    if details["type"] == "missing":
        return "is missing"
    if details["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"expected a mapping with {', '.join(_fields_at(details['loc'])) or 'settings'}"
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return message if message != details["msg"] and details["type"] == "value_error" else f"expected {message}"


def _unknown_field(name: str, allowed: typing.Sequence[str]) -> str:
    near = difflib.get_close_matches(name, allowed, n=1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown field{guess}; allowed: {', '.join(allowed)}"


def _fields_at(path: FieldPath) -> tuple[str, ...]:
    """The fields that the model at this path has."""
    model: type[BaseModel] | None = PipelineModel
    for part in path:
        if isinstance(part, str) and model is not None:
            model = _model_in(model.model_fields[part].annotation) if part in model.model_fields else None
    return tuple(model.model_fields) if model is not None else ()


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := _model_in(part))), None)


def _wrong(path: FieldPath, what: str, file: Path, document: YamlDocument) -> ConfigurationError:
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    name = dotted.removeprefix("attributes.")
    return ConfigurationError(f"{file}:{document.line(path)}: {name}: {what}")
