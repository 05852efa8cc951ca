"""Reports as JSON: the fields of frozen dataclasses under their own names; LSNs and names as PostgreSQL prints them.

A field that was renamed says so where it is declared, ``field(metadata={"formerly": "old_name"})``: for one version the
document has its value under the old name too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import PurePath

from pydantic import SecretStr

from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.errors import CONTROLS, CdcError
from spark_jobs.lake.generation import Generation
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.options.folder_template import FolderTemplate
from spark_jobs.qualified_name import QualifiedName


def json_text(report: object, shown: Callable[[object], object] = lambda document: document) -> str:
    """One JSON document, indented, keys in the order of the fields. ``shown``: what is printed of the document."""
    text = json.dumps(shown(json_value(report)), indent=2, ensure_ascii=False)
    # JSON itself escapes only C0, but terminals obey other controls too. Outside strings there are none
    return "\n".join(CONTROLS.sub(_escaped, line) for line in text.split("\n"))


def json_line(document: Mapping[str, object]) -> str:
    """The document in one line, without spaces."""
    return CONTROLS.sub(_escaped, json.dumps(document, separators=(",", ":"), ensure_ascii=False))


def _escaped(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def error_document(error: Exception, what: str, hint: str) -> Mapping[str, object]:
    """``{"error": {"type", "message", "hint"}}``: the lines that were printed on stderr."""
    return {"error": {"type": type(error).__name__, "message": what, "hint": hint}}


def json_value(value: object) -> object:
    """The JSON counterpart of a report's value. Raises TypeError for a type that no report should hold."""
    if isinstance(value, Lsn | QualifiedName | FolderTemplate | Generation | SecretStr | PurePath):
        return str(value)
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return json_value(value.value)
    if isinstance(value, Window):
        return {"key": value.key, "lo": str(value.lo), "hi": str(value.hi)}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, CdcError):
        return {"type": type(value).__name__, "message": value.what, "hint": value.hint}
    if is_dataclass(value) and not isinstance(value, type):
        return _document({field: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return {str(json_value(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [json_value(item) for item in value]
    raise TypeError(f"a report holds a {type(value).__name__}, which has no JSON form here")


def _document(report: Mapping[Field[object], object]) -> dict[str, object]:
    document: dict[str, object] = {}
    for field, value in report.items():
        names = (field.name, *filter(None, [field.metadata.get("formerly")]))
        # the counts become fields of the object that they belong to
        document |= asdict(value) if isinstance(value, ChangeCounts) else dict.fromkeys(names, json_value(value))
    return document
