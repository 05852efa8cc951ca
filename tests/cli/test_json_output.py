"""Reports as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pydantic import SecretStr

from cdc_assets.cli.json_output import json_text
from spark_jobs.errors import GapError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName


@dataclass(frozen=True)
class _Report:
    value: object


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Lsn(0x16B3748), "0/16B3748"),
        (QualifiedName("public", "Order Items"), 'public."Order Items"'),
        (Window(Lsn(1), Lsn(2)), {"key": "0/1-0/2", "lo": "0/1", "hi": "0/2"}),
        (timedelta(seconds=90), 90.0),
        (SecretStr("hunter2"), "**********"),
        ((1, None, True), [1, None, True]),
        (
            GapError("lost", hint="start over"),
            {"type": "GapError", "message": "lost", "hint": "start over"},
        ),
    ],
)
def test_values(value: object, expected: object) -> None:
    assert json.loads(json_text(_Report(value))) == {"value": expected}


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        json_text(_Report(object()))
