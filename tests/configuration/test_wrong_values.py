"""Each field of the configuration with values of every kind: what is refused is refused in our own words, in one line,
without the value of a secret, and with a hint that is accepted in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from cdc_assets.configuration.environment import EnvironmentScope
from cdc_assets.configuration.field_errors import FieldError, FieldPath, model_in
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.validated_fields import validated

SECRET = "hunter2!#"
VALUES: tuple[object, ...] = (
    None,
    5,
    "",
    "x y",
    SECRET,
    [],
    ["a"],
    [None],
    {1: 2},
    {"a": 1},
    "{{ env.SHOP_DSN }}",
    "{{ 1 / 0 }}",
)
OF_LIBRARIES = ("Input should", "Keys should", "Tuple should", "List should", "validation", "[key]")


def fields_of(model: type[BaseModel], path: FieldPath = ()) -> Iterator[FieldPath]:
    for name, field in model.model_fields.items():
        yield (*path, name)
        if (inner := model_in(field.annotation)) is not None:
            # the fields of an entry, where there is a list of them
            yield from fields_of(inner, (*path, name, 0) if (*path, name) == ("tables",) else (*path, name))


def attributes() -> dict[str, Any]:
    return {
        "name": "shop",
        "source": {"dsn": "dbname=shop"},
        "lake": {"path": "s3://bucket/shop"},
        "tables": [{"name": "public.orders"}],
    }


def put(fields: dict[str, Any], path: FieldPath, value: object) -> None:
    inside: Any = fields
    for part in path[:-1]:
        inside = inside[part] if isinstance(part, int) else inside.setdefault(part, {})
    inside[path[-1]] = value


def error_of(fields: dict[str, Any]) -> FieldError | None:
    try:
        validated(PipelineModel, fields, {"env": EnvironmentScope()})
    except FieldError as error:
        return error
    return None


@pytest.mark.parametrize("path", [*fields_of(PipelineModel)], ids=lambda path: ".".join(map(str, path)))
def test_what_is_refused(monkeypatch: pytest.MonkeyPatch, path: FieldPath) -> None:
    monkeypatch.setenv("SHOP_DSN", f"dbname=shop password={SECRET}")
    for value in VALUES:
        fields = attributes()
        put(fields, path, value)
        error = error_of(fields)
        if error is None:
            continue
        line, hint = error.at("shop.yaml").what, error.hint
        assert line.startswith("shop.yaml: "), value
        assert not any(words in line for words in OF_LIBRARIES), line
        # a name that is no name of a table is shown: it may only lack its quotes
        assert (value == SECRET and error.path[-1:] == ("name",)) or SECRET not in line + hint, value
        if hint.startswith("write "):
            ((name, form),) = yaml.safe_load(hint.removeprefix("write ")).items()
            at = error.path[: len(error.path) - error.path[::-1].index(name)]
            put(fields, at, form)
            again = error_of(fields)
            assert again is None or again.path[: len(at)] != at, (line, hint, again)


def test_a_short_value_of_a_variable_is_no_part_of_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETTER", "a")
    error = error_of({**attributes(), "name": "{{ env.LETTER }}", "tables": ["{{ env.LETTER }}."]})
    assert error is not None
    assert error.what.startswith("not a table name: 'a.' (expected schema.table")
