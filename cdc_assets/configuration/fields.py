"""The types of the configuration's fields: what a text may be, and the one-line error if it is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, SecretStr

from spark_jobs.column_options import ChosenType
from spark_jobs.qualified_name import QualifiedName

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?")
_UNIT = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SMALLEST_WINDOW = 1 << 10
_DURATION = re.compile(r"(\d{1,6})\s*(h|d|w)")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_MOST_DAYS = 3650
# of two letters or more, as C:\\ is a folder; a scheme before // is checked where the storage is opened
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?!//)")
_SECONDS = re.compile(r"(\d{1,9})\s*(s|m|h|d)?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def require_named_once(names: Sequence[str]) -> None:
    """Raises ValueError with the names that occur more than once."""
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(f"names {', '.join(twice)} twice")


def _slot_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", text):
        raise ValueError("expected 1 to 63 lower-case letters, digits and underscores")
    return text


def _identifier(text: str) -> str:
    if not 1 <= len(text.encode()) <= 63:
        raise ValueError("expected a name of 1 to 63 bytes")
    return text


def _publication(value: object) -> object:
    """One name, or several."""
    if isinstance(value, str):
        return _identifier(value)
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("expected a name or a list of names")
    if len(set(value)) < len(value):
        raise ValueError("names a publication twice")
    return tuple(map(_identifier, value))


def _messages(value: object) -> object:
    """A boolean, or a mapping with prefixes; one error line covers both forms."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    prefixes = value.get("prefixes") if isinstance(value, dict) and value.keys() == {"prefixes"} else None
    wanted = isinstance(prefixes, (list, tuple)) and prefixes and all(isinstance(prefix, str) for prefix in prefixes)
    if not wanted and not isinstance(value, (bool, BaseModel)):
        raise ValueError("expected true, false or a mapping with prefixes")
    if wanted and any("*" in prefix[:-1] for prefix in prefixes or ()):
        raise ValueError("prefixes: * is allowed only at the end")
    return value


def _size(value: object) -> int:
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("expected a size (units B, KiB, MiB, GiB)")
    size = int(match[1]) * _UNIT[match[2] or "B"]
    if size < _SMALLEST_WINDOW:
        raise ValueError("expected at least 1KiB")
    return size


def _duration(value: object) -> int:
    """Returns hours, as Dagster has no type for durations."""
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("expected a duration (units h, d, w)")
    hours = int(match[1]) * _HOURS[match[2]]
    if not _HOURS["d"] <= hours <= _MOST_DAYS * _HOURS["d"]:
        raise ValueError(f"expected 1d to {_MOST_DAYS}d")
    return hours


def _seconds(value: object) -> int:
    """A plain number means seconds."""
    match = None if isinstance(value, bool) else _SECONDS.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("expected a duration (units s, m, h, d)")
    return int(match[1]) * _UNIT_SECONDS[match[2] or "s"]


def _positive(value: int) -> int:
    if value < 1:
        raise ValueError("expected 1 or more")
    return value


def _streaming(value: object) -> object:
    """YAML reads a bare ``off`` or ``on`` as a boolean."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


def _null(value: object) -> object:
    """YAML reads a bare ``null`` as None."""
    return "null" if value is None else value


def _chosen_type(text: str) -> str:
    if "(" in text and ")" not in text:  # {amount: decimal(38,10)}: the comma ends the entry
        raise ValueError("inside braces YAML splits at the comma: quote the value")
    return str(ChosenType.parse(text))


def _table_name(text: str) -> str:
    QualifiedName.parse(text)
    return text


def _lake_path(text: str) -> str:
    if not text.strip().rstrip("/"):
        raise ValueError("expected a folder or a URI")
    if (scheme := _SCHEME.match(text.strip())) and scheme[1] not in ("file",):
        raise ValueError(f"{scheme[1]}: is no scheme of a URI that this process and Spark can both open")
    if "://" in text and "%" in text:
        raise ValueError("holds a '%', which Spark and Arrow read differently in a URI; choose another folder name")
    return text.strip().rstrip("/")


def _spark_value(value: object) -> object:
    """Users write ``spark.x: true`` and ``spark.y: 8``; Spark takes text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _word(value: object) -> object:
    """Users write ``--port, 5432``, and templates render numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _dsn(value: object) -> object:
    """libpq takes an empty text for the defaults of its own environment, so a variable that is set to nothing would end
    in an error about a socket."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; its environment variable is set to nothing, say")
    return value


def _key_part(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]+", text):
        raise ValueError("expected letters, digits and underscores")
    return text


KeyPart = Annotated[str, AfterValidator(_key_part)]
Dsn = Annotated[SecretStr, BeforeValidator(_dsn)]
SlotName = Annotated[str, AfterValidator(_slot_name)]
Publication = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_publication, json_schema_input_type=str | list[str]),
]
MESSAGES = BeforeValidator(_messages)
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str)]
Seconds = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str)]
Hours = Annotated[int, BeforeValidator(_duration, json_schema_input_type=int | str)]
Count = Annotated[int, AfterValidator(_positive)]
Streaming = Annotated[
    Literal["off", "on", "parallel"],
    BeforeValidator(_streaming, json_schema_input_type=Literal["off", "on", "parallel"] | bool),
]
OrNull = Annotated[
    Literal["error", "null", "clamp"],
    BeforeValidator(_null, json_schema_input_type=Literal["error", "null", "clamp"] | None),
]
ChosenTypeText = Annotated[str, AfterValidator(_chosen_type)]
TableName = Annotated[str, AfterValidator(_table_name)]
LakePath = Annotated[str, AfterValidator(_lake_path)]
Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int)]
SparkValue = Annotated[str, BeforeValidator(_spark_value, json_schema_input_type=str | int | float | bool)]
