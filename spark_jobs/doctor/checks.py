"""One finding of the doctor: what was checked, what was found, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """A ``fail`` stops ``sync``; a ``warn`` may stop it later, or slow it down."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """``found`` is the present state; ``remedy`` says what to do, and is empty if the check is ok."""

    area: str
    what: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks in the order they were made."""

    pipeline: str
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict is Verdict.FAIL)


def ok(area: str, what: str, found: str) -> Check:
    return Check(area, what, Verdict.OK, found)


def warn(area: str, what: str, found: str, remedy: str) -> Check:
    return Check(area, what, Verdict.WARN, found, remedy)


def fail(area: str, what: str, found: str, remedy: str) -> Check:
    return Check(area, what, Verdict.FAIL, found, remedy)
