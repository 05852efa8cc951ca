"""The types of the configuration's fields: what a text may be, and the one-line error if it is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainSerializer, SecretStr

from cdc_assets.configuration.units import duration_text, read_duration, read_size, seconds_text, size_text
from spark_jobs.errors import LakeError
from spark_jobs.object_stores import full_uri, store_of
from spark_jobs.options.column_options import ChosenType
from spark_jobs.options.folder_template import FolderTemplate
from spark_jobs.options.table_pattern import TablePattern

_SMALLEST_WINDOW = 1 << 10
_SHORTEST_KEPT, _LONGEST_KEPT = timedelta(days=1), timedelta(days=3650)
# of two letters or more, as C:\\ is a folder; a scheme before // is checked where the storage is opened
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?!//)")


def require_named_once(names: Sequence[str]) -> None:
    """Raises ValueError with the names that occur more than once."""
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(f"names {', '.join(twice)} twice")


def _matching(pattern: str, expected: str) -> AfterValidator:
    def matching(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(matching)


def _at_least(least: int) -> AfterValidator:
    def at_least(value: int) -> int:
        if value < least:
            raise ValueError(f"expected {least} or more")
        return value

    return AfterValidator(at_least)


def _understood_by(parse: Callable[[str], object]) -> AfterValidator:
    """A text stays as it is; ``parse`` raises ValueError if it is wrong."""

    def understood(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(understood)


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
    size = read_size(value)
    if size < _SMALLEST_WINDOW:
        raise ValueError(f"expected at least {size_text(_SMALLEST_WINDOW)}")
    return size


def _kept_for(value: object) -> int:
    """Returns seconds, as Dagster has no type for durations."""
    duration = read_duration(value, needs_unit=True)
    if not _SHORTEST_KEPT <= duration <= _LONGEST_KEPT:
        raise ValueError(f"expected {duration_text(_SHORTEST_KEPT)} to {duration_text(_LONGEST_KEPT)}")
    return _whole_seconds(duration)


def _seconds(value: object) -> int:
    """A plain number means seconds."""
    return _whole_seconds(read_duration(value))


def _whole_seconds(duration: timedelta) -> int:
    if duration % timedelta(seconds=1):
        raise ValueError("expected whole seconds")
    return int(duration.total_seconds())


def _cron(text: str) -> str:
    """Five fields, or a word such as @daily; whether the fields mean something, only Dagster knows."""
    if len(text.split()) != 5 and not re.fullmatch(r"@(hourly|daily|weekly|monthly)", text):
        raise ValueError("expected a cron expression of five fields")
    return text


def _time_zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (KeyError, OSError, ValueError):  # not found, a folder of zones, not a name
        raise ValueError("expected a time zone by its IANA name, such as Europe/Berlin") from None


def _hour(value: int) -> int:
    if not 0 <= value <= 23:
        raise ValueError("expected an hour, 0 to 23")
    return value


def _start_date(value: object) -> str:
    """YAML reads a bare ``2026-11-01`` as a date."""
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("expected a date, such as 2026-11-01") from None


def _tag(value: object) -> object:
    """Dagster keeps what is not text as JSON."""
    if value is None:
        raise ValueError("expected text, a number, a boolean, a list or a mapping")
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


def _openable(text: str) -> str:
    """As it is opened. Templates in it may stand for parts of it."""
    if not text.strip().rstrip("/"):
        raise ValueError("expected a folder or a URI")
    if (scheme := _SCHEME.match(text.strip())) and scheme[1] not in ("file",):
        raise ValueError(f"{scheme[1]}: is no scheme of a URI that this process and Spark can both open")
    try:
        path = full_uri(text.strip())
        store_of(path)
    except LakeError as error:
        raise ValueError(f"{error.what}; {error.hint}") from None
    return path.rstrip("/")


def _lake_path(text: str) -> str:
    path = _openable(text)
    if "://" in text and "%" in text:
        raise ValueError("holds a '%', which Spark and Arrow read differently in a URI; choose another folder name")
    return path


def _catalog_template(text: str) -> str:
    parts = text.split(".")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise ValueError("expected two or three names with dots between them, such as shop_{schema}.{table}")
    if "{table}" not in parts[-1]:
        raise ValueError("expected {table} in its last part: otherwise all tables would have one name")
    if others := re.findall(r"\{(?!schema\}|table\})[^}]*\}?|`", text):
        raise ValueError(f"holds {others[0]}; only {{schema}} and {{table}} stand for something")
    return text


def _endpoint(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("expected a URL that begins with http:// or https://")
    if url.username or url.password or url.query:
        raise ValueError("holds more than a host, a port and a path; credentials belong into the environment")
    return text.rstrip("/")


def _spark_value(value: object) -> object:
    """Users write ``spark.x: true`` and ``spark.y: 8``; Spark takes text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _spark_remote(text: str) -> str:
    """May hold a token."""
    if re.match(r"sc://[^/:;]*databricks[^/:;]*\.(com|net|us|cn)\b", text):
        raise ValueError("leads to Databricks, which is not supported; docs/cluster.md has the reasons")
    return text


def _word(value: object) -> object:
    """Users write ``--port, 5432``, and templates render numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _dsn(value: object) -> object:
    """libpq takes an empty text for the defaults of its own environment, so a variable that is set to nothing would end
    in an error about a socket."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; its environment variable is set to nothing, say")
    return value


KeyPart = Annotated[str, _matching(r"[A-Za-z0-9_]+", "letters, digits and underscores")]
Dsn = Annotated[SecretStr, BeforeValidator(_dsn)]
SlotName = Annotated[str, _matching(r"[a-z0-9_]{1,63}", "1 to 63 lower-case letters, digits and underscores")]
Publication = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_publication, json_schema_input_type=str | list[str]),
]
MESSAGES = BeforeValidator(_messages)
# where the file is shown again, as it is written there
_SIZE_TEXT = PlainSerializer(size_text, when_used="json")
_SECONDS_TEXT = PlainSerializer(seconds_text, when_used="json")
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str), _SIZE_TEXT]
Seconds = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str), _SECONDS_TEXT]
KeptFor = Annotated[int, BeforeValidator(_kept_for, json_schema_input_type=int | str), _SECONDS_TEXT]
Count = Annotated[int, _at_least(1)]
Cron = Annotated[str, AfterValidator(_cron)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
Hour = Annotated[int, AfterValidator(_hour)]
StartDate = Annotated[str, BeforeValidator(_start_date)]
Retries = Annotated[int, _at_least(0)]
TagValue = Annotated[Any, BeforeValidator(_tag)]
Streaming = Annotated[
    Literal["off", "on", "parallel"],
    BeforeValidator(_streaming, json_schema_input_type=Literal["off", "on", "parallel"] | bool),
]
OrNull = Annotated[
    Literal["error", "null", "clamp"],
    BeforeValidator(_null, json_schema_input_type=Literal["error", "null", "clamp"] | None),
]
ChosenTypeText = Annotated[str, AfterValidator(_chosen_type)]
TableName = Annotated[str, _understood_by(TablePattern.parse)]
LakePath = Annotated[str, AfterValidator(_lake_path)]
OpenablePath = Annotated[str, AfterValidator(_openable)]
CatalogTemplate = Annotated[str, AfterValidator(_catalog_template)]
FolderTemplateText = Annotated[str, _understood_by(FolderTemplate)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int)]
SparkRemote = Annotated[str, AfterValidator(_spark_remote)]
SparkValue = Annotated[str, BeforeValidator(_spark_value, json_schema_input_type=str | int | float | bool)]
