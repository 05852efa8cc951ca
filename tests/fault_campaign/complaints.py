"""What clients have said on stderr: an error is one clear line. Less than that is a finding, and so is a traceback of
ours."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.fault_campaign.client import TOLD

# what no user should have to read: a Java class in place of a cause, the name of an error with no way out behind it
_BARE = re.compile(r"\b(java|scala|org\.apache|io\.delta)\.\w+|\b\w+(Error|Exception)$|unexpected \w+(Error|Exception)")
_TRACEBACK = "Traceback (most recent call last):"
_OURS = re.compile(r'^ +File ".*/spark_jobs/.*", line \d+, in ')
# of one kind are errors that differ in these alone
_VARIES = (
    (re.compile(r"run-\d+: "), ""),
    (re.compile(r"/[\w./%=-]{8,}"), "…"),
    (re.compile(r"\b[0-9A-F]+/[0-9A-F]+\b"), "LSN"),
    (re.compile(r"\b(test_|public\.)\w+"), r"\1…"),
    (re.compile(r"\d+"), "N"),
)


def told(errors: Path) -> Counter[str]:
    """How often each kind of error was told."""
    lines = (line for line in errors.read_text().splitlines() if line.startswith(TOLD))
    return Counter(_kind(line.removeprefix(TOLD)) for line in lines)


def unclear(errors: Path) -> list[str]:
    """The errors that say less than a user needs, and the tracebacks through our own files: each kind once, as it first
    came. Those that Spark's own Python prints when its JVM is gone are not ours: see ``foreign_tracebacks``."""
    text = errors.read_text()
    told_lines = [line for line in text.splitlines() if line.startswith(TOLD) and _BARE.search(line)]
    ours = [_last_line(traceback) for traceback in _tracebacks(text) if _is_ours(traceback)]
    return list({_kind(line): line for line in reversed([*told_lines, *ours])}.values())[::-1]


def foreign_tracebacks(errors: Path) -> int:
    """Those of threads of py4j and pyspark, which print them whatever their caller makes of the error."""
    return sum(not _is_ours(traceback) for traceback in _tracebacks(errors.read_text()))


def _tracebacks(text: str) -> list[list[str]]:
    """The lines of each."""
    tracebacks: list[list[str]] = []
    for line in text.splitlines():
        if line == _TRACEBACK:
            tracebacks.append([])
        elif tracebacks and (line.startswith(" ") or not tracebacks[-1] or tracebacks[-1][-1].startswith(" ")):
            tracebacks[-1].append(line)
    return tracebacks


def _is_ours(traceback: list[str]) -> bool:
    return any(_OURS.match(line) for line in traceback)


def _last_line(traceback: list[str]) -> str:
    """The error, and before it where it was raised."""
    frames = [line.strip() for line in traceback if _OURS.match(line)]
    return f"{traceback[-1]}, raised through {frames[-1]}"


def _kind(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line
