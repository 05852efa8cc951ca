"""What is wrong with a field of the configuration: its place, what stands there, and a form that is right.

The command and the Dagster component share this, so both say the same.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping, Sequence

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spark_jobs.errors import ConfigurationError

FieldPath = tuple[str | int, ...]

_EXPECTED = {
    "sequence_str": "a list",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
}
_MAPPINGS = ("model_type", "model_attributes_type")
# any other text may be a password in the wrong place
_HARMLESS = re.compile(r"[\w .,:/*(){}\[\]'+-]{1,60}")
_SECRET = ("dsn", "password_command", "spark")


class FieldError(Exception):
    """``hint``: a form of the field that is accepted, if there is one to tell."""

    def __init__(self, path: FieldPath, what: str, hint: str = "") -> None:
        self.path, self.what, self.hint = path, what, hint
        super().__init__(path, what, hint)

    def at(self, place: str) -> ConfigurationError:
        """``place`` is the file with the line. The field is named as in ``tables[0].mode``."""
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        return ConfigurationError(": ".join(filter(None, (place, dotted, self.what))), hint=self.hint)


def first_error(error: ValidationError, model: type[BaseModel], written: object) -> FieldError:
    """The first error only; the next run shows the next one. ``written``: the fields as they stand in the file, whose
    templates are not rendered."""
    errors = error.errors(include_input=False, include_url=False)
    # a misspelt field is also a missing one: name what the user wrote
    details = next((details for details in errors if details["type"] == "extra_forbidden"), errors[0])
    path = details["loc"]
    if details["type"] == "extra_forbidden":
        return FieldError(path, unknown_field(str(path[-1]), _fields_at(path[:-1], model)))
    value = _at(path, written)
    return FieldError(path, _what(details, model, value), _hint(path, model, value))


def unknown_field(name: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, allowed, n=1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown field{guess}; allowed: {', '.join(allowed)}"


def _what(details: ErrorDetails, model: type[BaseModel], value: object) -> str:
    kind, path = details["type"], details["loc"]
    if kind == "missing":
        return "is missing"
    if kind in _MAPPINGS:
        message = f"expected a mapping with {', '.join(_fields_at(path, model))}"
    elif kind in _EXPECTED:
        message = f"expected {_EXPECTED[kind]}"
    elif kind == "value_error":
        message = details["msg"].removeprefix("Value error, ")
    else:
        message = f"expected {details['msg'].removeprefix('Input should be ')}"
    shown = "" if any(part in _SECRET for part in path) else _shown(value)
    return f"{message}, not {shown}" if message.startswith("expected") and shown else message


def _shown(value: object) -> str:
    """What stands in the file, if it is short and harmless; empty if not."""
    if value is None or isinstance(value, Mapping):
        return ""
    text = _flow(value)
    return text if _HARMLESS.fullmatch(text) else ""


def _flow(value: object) -> str:
    """As YAML writes it in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _hint(path: FieldPath, model: type[BaseModel], value: object) -> str:
    """The innermost field of the path that has an example, with the example, or with a correction of the given
    value."""
    for length in range(len(path), 0, -1):
        field = _field_at(path[:length], model)
        if field is not None and field.examples:
            form = _put_right(field.examples[0], path[length:], value)
            return f"write {path[length - 1]}: {_flow(form)}"
    return ""


def _put_right(example: object, inside: FieldPath, value: object) -> object:
    names = value if isinstance(value, list) and value and all(isinstance(each, str) for each in value) else None
    match example:
        case list() if isinstance(value, str) and not inside:
            return [value]
        case dict():
            ((name, right),) = example.items()
            if inside:
                return {inside[0]: right} if isinstance(inside[0], str) and not isinstance(right, list) else example
            if names:
                return {name: names} if isinstance(right, list) else dict.fromkeys(names, right)
    return example


def _at(path: FieldPath, written: object) -> object:
    for part in path:
        if isinstance(written, Mapping):
            written = written.get(part)
        elif isinstance(written, Sequence) and not isinstance(written, str) and isinstance(part, int):
            written = written[part] if part < len(written) else None
        else:
            # an entry of ``tables`` may be its name alone
            return written
    return written


def _field_at(path: FieldPath, model: type[BaseModel]) -> FieldInfo | None:
    """None if the path leads into a mapping or a list of a field's."""
    *parents, last = path
    inner = _model_at(tuple(parents), model)
    return inner.model_fields.get(last) if inner is not None and isinstance(last, str) else None


def _fields_at(path: FieldPath, model: type[BaseModel]) -> tuple[str, ...]:
    """The fields that the model at this path has."""
    inner = _model_at(path, model)
    return tuple(inner.model_fields) if inner is not None else ()


def _model_at(path: FieldPath, model: type[BaseModel]) -> type[BaseModel] | None:
    inner: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, str) and inner is not None:
            inner = model_in(inner.model_fields[part].annotation) if part in inner.model_fields else None
    return inner


def model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field of this type holds, also in a list or as one of several forms."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := model_in(part))), None)
