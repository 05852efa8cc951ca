"""The JSON Schemas of what `--json` prints, from the types of the reports.

``python -m tests.cli.json_schemas`` writes ``cdc_assets/cli/schemas`` anew; ``test_json_schemas`` compares them, and
``Answer.document`` checks each document that a test reads against its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import SecretStr

from cdc_assets.cli.changes import ChangesCounted
from cdc_assets.cli.config import Validated
from cdc_assets.cli.init import InitReport
from cdc_assets.cli.register import RegisterReport
from cdc_assets.cli.snapshot import SnapshotReport
from spark_jobs.apply.apply import CatchUpReport
from spark_jobs.capture.capture import CaptureReport
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.doctor import Diagnosis
from spark_jobs.drop.drop_report import DropPlan, DropReport
from spark_jobs.dry_run import DryRun
from spark_jobs.errors import CdcError
from spark_jobs.follow import FollowRound
from spark_jobs.forget.forget import ForgetReport
from spark_jobs.forget.traces_left import ErasureReport
from spark_jobs.lake.generation import Generation
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.maintain.maintain import MaintainReport
from spark_jobs.options.folder_template import FolderTemplate
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import RecoverReport
from spark_jobs.replay.as_of import TableAsOf
from spark_jobs.replay.consistent_cut import ConsistentCut
from spark_jobs.replay.replay import ReplayReport
from spark_jobs.status import PipelineStatus
from spark_jobs.sync import SyncReport
from spark_jobs.verify.table_verified import VerifyReport

FOLDER = Path(__file__).parents[2] / "cdc_assets" / "cli" / "schemas"
COMMAND = "python -m tests.cli.json_schemas"

# by command: what it prints, one of these; any command prints an error instead when it fails as a whole
REPORTS: Mapping[str, Sequence[type]] = {
    "apply": [CatchUpReport],
    "capture": [CaptureReport],
    "changes": [ChangesCounted],
    "config validate": [Validated],
    "cut": [ConsistentCut],
    "doctor": [Diagnosis],
    "drop": [DropReport, DropPlan],
    "follow": [FollowRound],
    "forget": [ForgetReport],
    "init": [InitReport],
    "maintain": [MaintainReport],
    "recover": [RecoverReport, DryRun],
    "register": [RegisterReport],
    "replay": [ReplayReport, TableAsOf],
    "snapshot": [SnapshotReport],
    "status": [PipelineStatus],
    "sync": [SyncReport, DryRun],
    "verify": [VerifyReport, ErasureReport],
}

_TEXT = {"type": "string"}
_ERROR = {
    "type": "object",
    "properties": {"type": _TEXT, "message": _TEXT, "hint": _TEXT},
    "required": ["type", "message", "hint"],
}
# in the order in which they are tried: bool is an int, datetime a date
_PLAIN: Sequence[tuple[tuple[type, ...], Mapping[str, object]]] = (
    ((Lsn,), {"type": "string", "pattern": "^[0-9A-F]{1,8}/[0-9A-F]{1,8}$"}),
    ((QualifiedName, FolderTemplate, Generation, SecretStr, PurePath, str), _TEXT),
    ((bool,), {"type": "boolean"}),
    ((int,), {"type": "integer"}),
    ((float, timedelta), {"type": "number"}),
    ((datetime,), {"type": "string", "format": "date-time"}),
    ((date,), {"type": "string", "format": "date"}),
    ((NoneType,), {"type": "null"}),
    ((CdcError,), {"$ref": "#/$defs/error"}),
)


def schema_file(command: str) -> Path:
    return FOLDER / f"{command.replace(' ', '-')}.json"


def schema_of(command: str) -> dict[str, Any]:
    """The schema of one command's document. Fields may be added to an object, so others are allowed."""
    definitions: dict[str, Any] = {"error": _ERROR}
    failed = {"type": "object", "properties": {"error": {"$ref": "#/$defs/error"}}, "required": ["error"]}
    forms = [_of(report, definitions) for report in REPORTS[command]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"postgres-cdc {command} --output json",
        "anyOf": [*forms, failed],
        "$defs": dict(sorted(definitions.items())),
    }


def _of(kind: Any, definitions: dict[str, Any]) -> Mapping[str, object]:
    """As ``json_value`` prints a value of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [_of(each, definitions) for each in arguments]}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [_of(each, definitions) for each in arguments]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if origin is not None:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind is Window:
        lsn = _of(Lsn, definitions)
        parts = {"key": _TEXT, "lo": lsn, "hi": lsn}
        return {"type": "object", "properties": parts, "required": list(parts)}
    for types, schema in _PLAIN:
        if issubclass(kind, types):
            return schema
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a type may hold itself
        definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: Any, definitions: dict[str, Any]) -> Mapping[str, object]:
    hints = get_type_hints(kind)
    properties: dict[str, Any] = {}
    for field in fields(kind):
        if hints[field.name] is ChangeCounts:  # printed as fields of the object that they belong to
            properties |= {count.name: _of(int, definitions) for count in fields(ChangeCounts)}
        else:
            properties |= _property(field, _of(hints[field.name], definitions))
    return {"type": "object", "properties": properties, "required": list(properties)}


def _property(field: Field[Any], schema: Mapping[str, object]) -> dict[str, Any]:
    former = field.metadata.get("formerly")
    return {field.name: schema} | ({former: {**schema, "deprecated": True}} if former else {})


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for command in REPORTS:
        schema_file(command).write_text(text_of(command))


def text_of(command: str) -> str:
    return json.dumps(schema_of(command), indent=1) + "\n"


if __name__ == "__main__":
    main()
