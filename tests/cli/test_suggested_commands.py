"""Every command that a message or a page of the documentation suggests is one that the command line accepts."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_assets.cli.commands import SUMMARIES, postgres_cdc
from cdc_assets.cli.terminal import Terminal
from spark_jobs.errors import CdcError, new_snapshot
from spark_jobs.qualified_name import QualifiedName

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("**/*.md")))
SOURCES = tuple(
    path for folder in ("spark_jobs", "cdc_assets", "orchestration") for path in sorted((ROOT / folder).rglob("*.py"))
)
_SPAN = re.compile(r"`(postgres-cdc [^`(]+)`")
_LINE = re.compile(r"^[ #$]*(?:exec )?(postgres-cdc (?:(?! \|)[^#\n>;])+)", re.MULTILINE)  # of a block, up to a pipe
_NAMED = re.compile(r"(?<!`)(postgres-cdc snapshot --table '[^'\n]*')")  # in a hint
# in a text whose values stand between two \0: up to the end of a command, or of what belongs into the configuration
_WITH_VALUES = re.compile(rf"(?:postgres-cdc (?:{'|'.join(SUMMARIES)})\b|python -m |exclude: \[)[^`;,\n]*")
_ANY_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
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


def values_in_commands(source: str) -> Iterator[str]:
    """What the f-strings of a module put into commands, and into the configuration, except what is quoted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                f"\0{ast.unparse(each.value)}\0" if isinstance(each, ast.FormattedValue) else ast.literal_eval(each)
                for each in node.values
            )
            for command in _WITH_VALUES.findall(text):
                for value in re.findall("\0(.*?)\0", command):
                    if "quote" not in value and f"{value} = shlex.quote" not in source:
                        yield value


def test_what_a_command_is_given_is_quoted() -> None:
    assert {value for path in SOURCES for value in values_in_commands(path.read_text())} == set()


@given(st.builds(QualifiedName, _ANY_NAME, _ANY_NAME))
@example(QualifiedName("it's", "two  spaces"))
@example(QualifiedName("no\u00a0break", " at the ends "))
def test_whatever_a_name_holds_its_hint_can_be_pasted(name: QualifiedName) -> None:
    command = CdcError("", hint=new_snapshot(name)).hint.partition(": ")[2]
    assert QualifiedName.parse(shlex.split(command)[-1]) == name
