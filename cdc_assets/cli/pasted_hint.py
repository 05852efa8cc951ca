"""Hints name a command as it is called without options; what is pasted must find the same configuration."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cdc_assets.cli.commands import SUMMARIES

_WITHOUT_CONFIGURATION = ("init", "config", "demo")
_COMMAND = re.compile(
    rf"\bpostgres-cdc ({'|'.join(name for name in SUMMARIES if name not in _WITHOUT_CONFIGURATION)})(?: --config FILE)?"
    r"(?![\w-])(?! --(?:config|help))"
)


# the fields of a document that hold hints
_HINTS = ("hint", "hints", "remedy")


def pasted_hint(hint: str, configuration: Path | None) -> str:
    """``hint`` for a call that named this file; None: it found its file by itself, and so will the next one."""
    option = "" if configuration is None else f" --config {shlex.quote(str(configuration))}"
    return _COMMAND.sub(lambda command: f"postgres-cdc {command[1]}{option}", hint)


def with_pasted_hints(document: object, configuration: Path | None, *, is_hint: bool = False) -> object:
    """The JSON document of a report, with each of its hints as ``pasted_hint`` has it."""
    match document:
        case str() if is_hint:
            return pasted_hint(document, configuration)
        case dict():
            return {
                name: with_pasted_hints(value, configuration, is_hint=name in _HINTS)
                for name, value in document.items()
            }
        case list():
            return [with_pasted_hints(value, configuration, is_hint=is_hint) for value in document]
    return document
