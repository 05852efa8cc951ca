"""Reports as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import timedelta

import pytest
from pydantic import SecretStr

from cdc_assets.cli.json_output import json_text
from cdc_assets.demo.demo_report import TableResult
from spark_jobs.errors import GapError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.health import SlotHealth
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import LogStatus, MessagesStatus, TableStatus
from spark_jobs.sync import SyncReport


@dataclass(frozen=True)
class _Report:
    value: object


@dataclass(frozen=True)
class _Renamed:
    lag_bytes: int = field(metadata={"formerly": "behind_bytes"})
    other: int = 2


def test_a_renamed_field_keeps_its_former_name() -> None:
    assert list(json.loads(json_text(_Renamed(1))).items()) == [("lag_bytes", 1), ("behind_bytes", 1), ("other", 2)]


def test_the_names_of_one_version_ago_are_in_the_documents() -> None:
    """Programs of users read them until the next version."""
    former = {
        LogStatus: {"windows", "behind_bytes", "behind_seconds"},
        TableStatus: {"behind_windows", "behind_changes", "behind_bytes"},
        MessagesStatus: {"behind_windows", "behind_messages", "behind_bytes"},
        SlotHealth: {"free_slots"},
        SyncReport: {"lag_before", "lag_after"},
        TableResult: {"lag_before", "lag_after"},
    }
    assert {kind: {field.metadata.get("formerly") for field in fields(kind)} - {None} for kind in former} == former


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
