"""A theme's scenario: the SQL that is run on a real server, with directives of the form ``-- @word …`` between it.

``@read [SINCE] PLUGIN [two_phase_slot] [OPTION=VALUE …]``  one recording; SINCE: the first server version that can
``@publish KIND …``    what the publication sends, when that is not everything: insert, update, delete, truncate
``@changes``           what stands before is made before the slots are; a statement ends at a line that ends in ``;``
                       and is not indented
``@session NAME``      the statements that follow run in this session; there is an ``a`` from the start
``@emit_now PREFIX CONTENT``  a message outside any transaction, whatever becomes of the session's own
``@after``             statements that tidy up, in session a, when everything is recorded
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

THEMES = Path(__file__).parent / "themes"
_KINDS = {"insert": "I", "update": "U", "delete": "D", "truncate": "T"}


@dataclass(frozen=True)
class Read:
    """One way to read the scenario's WAL."""

    since: int
    plugin: str
    two_phase_slot: bool
    options: tuple[tuple[str, str], ...]

    @property
    def slug(self) -> str:
        """A file name: ``pgoutput-proto2-streaming_on``."""
        words = ["two_phase_slot"] * self.two_phase_slot
        words += [
            f"{name}_{value}".replace("proto_version_", "proto").replace("-", "_") for name, value in self.options
        ]
        return "-".join([self.plugin, *words])


@dataclass(frozen=True)
class Step:
    """One statement, or with ``prefix`` one message that is emitted at once."""

    session: str
    text: str
    prefix: str | None = None


@dataclass
class Scenario:
    """``publishes`` are row kinds of the change log: I, U, D, T."""

    theme: str
    reads: list[Read] = field(default_factory=list)
    publishes: frozenset[str] = frozenset("IUDT")
    setup: list[Step] = field(default_factory=list)
    changes: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)

    @classmethod
    def of(cls, theme: str) -> Scenario:
        """Read ``themes/THEME/scenario.sql``. Raises ValueError for a directive that is not known."""
        scenario = cls(theme)
        part, session, lines = scenario.setup, "a", list[str]()
        for line in (THEMES / theme / "scenario.sql").read_text().splitlines():
            if not line.startswith("-- "):
                lines.append(line)
                if line.endswith(";") and not line.startswith(" "):
                    part.append(Step(session, "\n".join(lines)))
                    lines = []
                continue
            word, _, rest = line[3:].partition(" ")
            if word == "@read":
                scenario.reads.append(_read(rest.split()))
            elif word == "@publish":
                scenario.publishes = frozenset(_KINDS[kind] for kind in rest.split())
            elif word == "@changes":
                part = scenario.changes
            elif word == "@after":
                part, session = scenario.after, "a"
            elif word == "@session":
                session = rest
            elif word == "@emit_now":
                prefix, _, content = rest.partition(" ")
                part.append(Step(session, content, prefix))
            elif word.startswith("@"):
                raise ValueError(f"{theme}: {line}")
        return scenario


def themes() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in THEMES.glob("*/scenario.sql")))


def _read(words: list[str]) -> Read:
    since = int(words.pop(0)) if words[0].isdigit() else 14
    plugin = words.pop(0)
    options = [tuple(word.split("=", 1)) for word in words if "=" in word]
    return Read(since, plugin, "two_phase_slot" in words, tuple((name, value) for name, value in options))
