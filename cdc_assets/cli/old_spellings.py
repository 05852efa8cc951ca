"""Options that have another name now: the old one goes on working for one version, and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OLD_SPELLING_ENDS = "the old spelling will be removed in version 0.3"
_EVERYWHERE: Mapping[str, str] = {"--debug": "--verbose"}
_LIST_ALL = {"--all": "--verbose"}
_RENAMED: Mapping[str, Mapping[str, str]] = {
    "apply": {"--upto": "--to", **_LIST_ALL},
    "capture": {"--upto": "--to"},
    "demo": {"--keep-server": "--keep"},
    "doctor": _LIST_ALL,
    "recover": _LIST_ALL,
    "replay": {"--as-of": "--at"},
    "status": {"--format": "--output", **_LIST_ALL},
    "sync": _LIST_ALL,
    "verify": _LIST_ALL,
}


def current_spelling(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command line with today's names of options, and one warning for each that had an old one.

    >>> current_spelling(["capture", "--upto=0/10"])
    (['capture', '--to=0/10'], ['--upto is called --to now; the old spelling will be removed in version 0.3'])
    """
    renamed = {**_EVERYWHERE, **_RENAMED.get(arguments[0] if arguments else "", {})}
    current, warnings = [], []
    for argument in arguments:
        old, equals, value = argument.partition("=")
        if old in renamed:
            argument = f"{renamed[old]}{equals}{value}"
            warnings.append(f"{old} is called {renamed[old]} now; {OLD_SPELLING_ENDS}")
        current.append(argument)
    return current, warnings
