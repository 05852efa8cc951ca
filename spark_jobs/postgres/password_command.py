"""Passwords that a command prints. Also runs on executors: standard library only.

A password is cached for some minutes: tokens are valid for longer, and getting one can take a second. A refused
password is removed from the cache: it may have expired, or somebody has changed the role's password.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from spark_jobs.errors import SourceUnreachableError

Session = TypeVar("Session")

_CACHED_SECONDS = 600  # an IAM token of AWS can be used for 15 minutes
_SECONDS = 30
_SHOWN = 200


class PasswordCommand:
    """A program and its arguments, which may hold secrets. No password travels to other processes with it."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._cached: tuple[str, float] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return PasswordCommand, (self.words,)

    def cached(self) -> str | None:
        """The password that was printed some minutes ago, if any was."""
        password, until = self._cached or (None, 0)
        return password if time.monotonic() < until else None

    def printed(self) -> str:
        """The password that the command prints now. Raises SourceUnreachableError, without what it printed."""
        try:
            ran = subprocess.run(
                self.words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"has not ended within {_SECONDS} s", "run it by itself to see why") from None
        except OSError as error:
            hint = "name a program that is there; executors run it too, when they read a snapshot"
            raise self._failed(f"cannot be run: {error.strerror}", hint) from None
        password = ran.stdout.decode(errors="replace").removesuffix("\n").removesuffix("\r")
        if ran.returncode != 0:
            line = (ran.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[0][:_SHOWN]
            shown = line.replace(password, "***") if password.strip() else line
            raise self._failed(f"failed with exit code {ran.returncode}: {shown}", "run it by itself to see why")
        if not password or "\0" in password:
            raise self._failed("printed no password", "it is to print the password, and nothing else, on stdout")
        self._cached = password, time.monotonic() + _CACHED_SECONDS
        return password

    def _failed(self, how: str, hint: str) -> SourceUnreachableError:
        return SourceUnreachableError(f"source.password_command ({self.words[0]}) {how}", hint=hint)


@dataclass(frozen=True)
class CommandConninfo:
    """A connection string without a password, and the command that prints it."""

    text: str = field(repr=False)
    command: PasswordCommand

    def with_password(self, password: str) -> str:
        """https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-KEYWORD-VALUE"""
        escaped = password.replace("\\", "\\\\").replace("'", "\\'")
        return f"{self.text} password='{escaped}'"


# a connection string as it is, or one to be completed where the session is opened
Conninfo: TypeAlias = str | CommandConninfo


def opened(conninfo: Conninfo, connect: Callable[[str], Session]) -> Session:
    """What ``connect`` returns for the whole connection string; it raises SourceUnreachableError if it cannot."""
    if isinstance(conninfo, str):
        return connect(conninfo)
    if (password := conninfo.command.cached()) is not None:
        with suppress(SourceUnreachableError):  # whatever the reason, another password may be right
            return connect(conninfo.with_password(password))
    return connect(conninfo.with_password(conninfo.command.printed()))
