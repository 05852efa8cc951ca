"""What is wrong with a field of the configuration: its place, what stands there, and a form that is right.

The command and the Dagster component share this, so both say the same.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence

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
    "too_short": "at least one entry",
    "invalid_key": "text",
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
# as a part of other words in a message, it would be taken for what a template stands for
_SHORT = 3
# a field of more than these, ``warn`` say, may belong anywhere
_FEW = 2
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


def first_error(error: ValidationError, model: type[BaseModel], written: object, rendered: object = None) -> FieldError:
    """The first error only; the next run shows the next one. ``written``: the fields as they stand in the file.
    ``rendered``: the same, if templates in them are rendered: what these stand for, a password say, is not shown."""
    rendered = written if rendered is None else rendered
    errors = error.errors(include_input=False, include_url=False)
    # a misspelt field is also a missing one: name what the user wrote
    details = next((details for details in errors if details["type"] == "extra_forbidden"), errors[0])
    path = tuple(part for part in details["loc"] if part != "[key]")
    if details["type"] == "extra_forbidden":
        *parents, name = path
        allowed = _fields_at(tuple(parents), model)
        return FieldError(path, unknown_field(str(name), allowed), misplaced_hint(str(name), tuple(parents), model))
    value = _at(path, written)

    def accepts(at: FieldPath, form: object) -> bool:
        return _is_accepted(model, _with(rendered, at, form), at)

    what = _what(details, model, value)
    for template, text in _templates(written, rendered):
        if len(text) > _SHORT:
            for said in (text, repr(text)[1:-1]):
                what = what.replace(said, template)
    # a mapping may be written as one of its fields alone; of an entry of a list, the hint is this field
    is_alone = len(path) > 1 and isinstance(path[-2], str) and isinstance(_at(path[:-1], written), str)
    return FieldError(path, what, _hint(path[:-1] if is_alone else path, model, value, accepts))


def _templates(written: object, rendered: object) -> Iterator[tuple[str, str]]:
    """Each template of the fields, with what it stands for."""
    if isinstance(written, Mapping) and isinstance(rendered, Mapping):
        for name, value in written.items():
            yield from _templates(value, rendered.get(name))
    elif isinstance(written, list) and isinstance(rendered, list):
        for value, of_value in zip(written, rendered, strict=False):
            yield from _templates(value, of_value)
    elif isinstance(written, str) and isinstance(rendered, str) and written != rendered:
        yield written, rendered


def _with(fields: object, path: FieldPath, form: object) -> object:
    """A copy of the fields in which ``form`` stands at this path. An entry of ``tables`` may be its name alone."""
    if not path:
        return form
    part, *inside = path
    if isinstance(fields, list) and isinstance(part, int):
        return [_with(each, tuple(inside), form) if place == part else each for place, each in enumerate(fields)]
    before = fields if isinstance(fields, Mapping) else {}
    return {**before, part: _with(before.get(part), tuple(inside), form)}


def _is_accepted(model: type[BaseModel], fields: object, path: FieldPath) -> bool:
    """Whether what stands at this path is, alone and with what stands beside it."""
    try:
        model.model_validate(fields)
    except ValidationError as error:
        places = (details["loc"] for details in error.errors(include_input=False))
        return not any(place[: len(path)] == path[: len(place)] for place in places)
    return True


def unknown_field(name: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, allowed, n=1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown field{guess}; allowed: {', '.join(allowed)}"


def misplaced_hint(name: str, parents: FieldPath, model: type[BaseModel]) -> str:
    """Where a field belongs that stands among fields of another, most often for its indentation; empty if unknown."""
    if "." in name and parents and isinstance(parents[-1], int):
        return f"write - name: {name}, and its fields below name" if _HARMLESS.fullmatch(name) else ""
    homes = [home for home in _homes_of(name, model) if home]
    return f"{name} is a field of {' and of '.join(homes)}: indent it below" if 1 <= len(homes) <= _FEW else ""


def _homes_of(name: str, model: type[BaseModel], home: str = "") -> Iterator[str]:
    """The fields that have a field of this name."""
    if name in model.model_fields:
        yield home
    for field, info in model.model_fields.items():
        if (inner := model_in(info.annotation)) is not None:
            yield from _homes_of(name, inner, f"{home}.{field}".lstrip("."))


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


def _hint(path: FieldPath, model: type[BaseModel], value: object, accepts: Callable[[FieldPath, object], bool]) -> str:
    """The innermost field of the path that has an example, with a correction of the given value, if that would be
    accepted, or with the example."""
    for length in range(len(path), 0, -1):
        field = _field_at(path[:length], model)
        if field is not None and field.examples:
            form = _put_right(field.examples[0], path[length:], value)
            form = form if accepts(path[:length], form) else field.examples[0]
            return f"write {path[length - 1]}: {_flow(form)}"
    return ""


def _put_right(example: object, inside: FieldPath, value: object) -> object:
    names = value if isinstance(value, list) and value and all(map(_is_harmless, value)) else None
    match example:
        case list() if _is_harmless(value) and not inside:
            return [value]
        case dict() if len(example) == 1:
            ((name, right),) = example.items()
            if inside:
                return {inside[0]: right} if isinstance(inside[0], str) and not isinstance(right, list) else example
            if names:
                return {name: names} if isinstance(right, list) else dict.fromkeys(names, right)
    return example


def _is_harmless(value: object) -> bool:
    return isinstance(value, str) and _HARMLESS.fullmatch(value) is not None


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
