"""Every command that a message or a page of the documentation suggests is one that the command line accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cdc_assets.cli.commands import SUMMARIES, postgres_cdc
from cdc_assets.cli.terminal import Terminal

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("**/*.md")))
SOURCES = (path for folder in ("spark_jobs", "cdc_assets", "orchestration") for path in (ROOT / folder).rglob("*.py"))
_SPAN = re.compile(r"`(postgres-cdc [^`(]+)`")
_LINE = re.compile(r"^[ #$]*(?:exec )?(postgres-cdc (?:(?! \|)[^#\n>;])+)", re.MULTILINE)  # of a block, up to a pipe
_NAMED = re.compile(r"(?<!`)(postgres-cdc snapshot --table '[^'\n]*')")  # in a hint
_OPTIONAL = re.compile(r"[\[\]…]")
MEANT = {
    "FILE": "shop.yaml",
    "NAME": "public.orders",
    "LSN": "0/16B3748",
    "TIME": "2026-11-22T13:00:00Z",
    "LSN|TIME": "0/16B3748",
    "PATH": "lake",
}


def suggested() -> Iterator[str]:
    for path in (*PAGES, *SOURCES):
        text = path.read_text().replace("\\|", "|")
        yield from _SPAN.findall(text)
        yield from _NAMED.findall(text)
        if path.suffix != ".py":
            yield from _LINE.findall(text)


def words(command: str) -> list[str]:
    """As a shell hands them over, with an example for what is to be filled in."""
    filled = re.sub(r"\{[^}]*\}", MEANT["NAME"], command)
    return [MEANT.get(word, word) for word in shlex.split(_OPTIONAL.sub("", filled))[1:]]


@pytest.mark.parametrize("command", sorted({" ".join(each.split()) for each in suggested()}))
def test_it_is_accepted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_CDC_CONFIG", "shop.yaml")  # as a user has it who pastes a hint
    name, *rest = words(command)
    assert name in SUMMARIES
    found = postgres_cdc.get_command(click.Context(postgres_cdc), name)
    assert found is not None
    found.make_context(name, rest, obj=Terminal())


def test_only_what_a_test_runs_is_shown_with_output() -> None:
    """``console`` blocks are run by test_persons_path. Other commands name a reader's own files and hosts: here they
    are parsed."""
    shown = {page.relative_to(ROOT).as_posix() for page in PAGES if "```console" in page.read_text()}
    assert shown == {"README.md", "docs/quick-start.md"}
