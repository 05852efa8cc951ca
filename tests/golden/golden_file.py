"""The files of a theme: what a plugin sent (one file per way to read it), and what it must be taken for.

Where a server of some version does something else than the oldest, ``expected-VERSION.jsonl`` holds for it.

JSON lines. The first line of a recording says how it was read and on which server versions it was the same; then come
the rows ``[lsn, xid, data]``, data in hex for pgoutput, as text for test_decoding. ``[lsn, xid, data, n]`` is n equal
rows whose LSNs follow on each other. ``expected.jsonl`` has one
``ExpectedChange`` per line, and before it an ``ExpectedRelation`` where its table's columns are others than before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.golden.scenario import THEMES

LSN_STEP = 0x10  # between the renumbered LSNs of a recording
Values = dict[str, str | None]


@dataclass(frozen=True)
class Row:
    """One row of ``pg_logical_slot_*_changes``."""

    lsn: int
    xid: int
    data: bytes


@dataclass(frozen=True)
class Recording:
    """``versions``: the servers that sent exactly these rows."""

    theme: str
    plugin: str
    two_phase_slot: bool
    options: tuple[tuple[str, str], ...]
    versions: tuple[int, ...]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        return f"{self.theme}: {self.plugin} {' '.join(map('='.join, self.options))} on {self.versions}"

    def option(self, name: str) -> str | None:
        return dict(self.options).get(name)


@dataclass(frozen=True)
class ExpectedRelation:
    """The table as the catalogue had it when the change was made: (name, atttypid, atttypmod, in the identity) each.

    Every type that is not built in has the OID 16384.
    """

    relreplident: str
    columns: tuple[tuple[str, int, int, bool], ...]

    @classmethod
    def of(cls, fields: dict[str, Any]) -> ExpectedRelation:
        return cls(fields["relreplident"], tuple((n, oid, mod, key) for n, oid, mod, key in fields["columns"]))


@dataclass(frozen=True)
class ExpectedChange:
    """What one change did, as triggers on the tables saw it, in commit order.

    ``transaction`` counts the transactions that have changes; null for a message outside any. ``identity``: the columns
    of the replica identity, all columns under FULL, null under NOTHING. ``old`` and ``new`` are whole rows in
    PostgreSQL's text output. Of a message ``content`` is the text.
    """

    transaction: int | None
    kind: str
    origin: str | None = None
    table: str | None = None
    identity: tuple[str, ...] | None = None
    relation: ExpectedRelation | None = None
    old: Values | None = None
    new: Values | None = None
    prefix: str | None = None
    content: str | None = None


def write_recording(recording: Recording, slug: str) -> Path:
    header = asdict(recording)
    del header["rows"], header["theme"]
    lines = [json.dumps(header)]
    for lsn, xid, data, count in _runs(recording.rows):
        written = data.hex() if recording.plugin == "pgoutput" else data.decode()
        lines.append(json.dumps([lsn, xid, written, *([count] * (count > 1))], ensure_ascii=False))
    first, last = recording.versions[0], recording.versions[-1]
    path = THEMES / recording.theme / f"{slug}.{first}{f'-{last}' if last > first else ''}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def _runs(rows: Sequence[Row]) -> list[tuple[int, int, bytes, int]]:
    runs: list[tuple[int, int, bytes, int]] = []
    for row in rows:
        if runs:
            lsn, xid, data, count = runs[-1]
            if (row.xid, row.data, row.lsn) == (xid, data, lsn + LSN_STEP * count):
                runs[-1] = (lsn, xid, data, count + 1)
                continue
        runs.append((row.lsn, row.xid, row.data, 1))
    return runs


def recordings(theme: str | None = None) -> tuple[Recording, ...]:
    """All recordings, or those of one theme."""
    paths = sorted(THEMES.glob(f"{theme or '*'}/*.*.jsonl"))
    return tuple(map(_recording, paths))


def write_expected(theme: str, version: int | None, changes: Sequence[ExpectedChange]) -> None:
    """``version`` None: what the oldest server does, and each that has no file of its own."""
    relations: dict[str, ExpectedRelation] = {}
    lines = []
    for change in changes:
        if change.table is not None and change.relation is not None and relations.get(change.table) != change.relation:
            relations[change.table] = change.relation
            lines.append({"kind": "R", "table": change.table, **asdict(change.relation)})
        lines.append({k: v for k, v in asdict(replace(change, relation=None)).items() if v is not None})
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    _expected_path(theme, version).write_text(text)


def expected(theme: str, version: int | None = None) -> tuple[ExpectedChange, ...]:
    """What a server of this version did; None: the oldest."""
    relations: dict[str, ExpectedRelation] = {}
    changes = []
    own = _expected_path(theme, version)
    for line in (own if own.exists() else _expected_path(theme, None)).read_text().split("\n")[:-1]:
        fields = json.loads(line)
        if fields["kind"] == "R":
            relations[fields["table"]] = ExpectedRelation.of(fields)
            continue
        identity, transaction = fields.pop("identity", None), fields.pop("transaction", None)
        changes.append(
            ExpectedChange(
                transaction,
                identity=None if identity is None else tuple(identity),
                relation=relations.get(fields.get("table")),
                **fields,
            )
        )
    return tuple(changes)


def _expected_path(theme: str, version: int | None) -> Path:
    return THEMES / theme / f"expected{'' if version is None else f'-{version}'}.jsonl"


def _recording(path: Path) -> Recording:
    header, *lines = (json.loads(line) for line in path.read_text().split("\n") if line)
    plugin = header["plugin"]
    rows = tuple(
        Row(lsn + LSN_STEP * nth, xid, bytes.fromhex(data) if plugin == "pgoutput" else data.encode())
        for lsn, xid, data, *count in lines
        for nth in range(count[0] if count else 1)
    )
    options = tuple((name, value) for name, value in header["options"])
    return Recording(path.parent.name, plugin, header["two_phase_slot"], options, tuple(header["versions"]), rows)
