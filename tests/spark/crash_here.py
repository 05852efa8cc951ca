"""A crash of work that runs in the test's own process, put in the place of one of its functions."""

from __future__ import annotations


class Crash(BaseException):
    """No handler of errors stops it."""


def crash(*_: object, **__: object) -> None:
    raise Crash
