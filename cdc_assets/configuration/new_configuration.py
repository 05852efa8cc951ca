"""The text of a configuration file to begin with."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml

from spark_jobs.doctor.checks import Verdict
from spark_jobs.errors import one_line
from spark_jobs.readable_size import size

if TYPE_CHECKING:
    from cdc_assets.configuration.found_database import FoundDatabase, FoundTable

_FILE = """\
{head}
type: {type_name}

attributes:
  name: {name}
  source:
    dsn: "{{{{ env.{variable} }}}}"
{problems}  lake:
    path: {lake}
  merge: {{engine: auto}}  # on one machine: no JVM for what this process writes itself
{of_database}  tables:
{tables}
"""
_OF_DATABASE = """\
  # Each table with its size on disk and what identifies its rows; take out those that you do not want.
  # Those behind a "#" cannot be replicated yet: do what is said there, then remove the "#".
"""
_REQUIREMENTS = """
requirements:
  env: [{variables}]
"""
_TEMPLATE = re.compile(r"\{[{%#]")


def configuration_text(
    *,
    head: Sequence[str],
    type_name: str,
    name: str,
    variable: str,
    lake: str,
    database: FoundDatabase | None = None,
    requires: Sequence[str] = (),
) -> str:
    """The text of a configuration file. ``head``: its first lines. ``variable`` holds the connection string, which
    is never in the file. ``lake``: its path. ``database``: whose tables are listed, with the doctor's verdict as
    comments; None: a placeholder. ``requires``: the environment variables that Dagster is to ask for."""
    problems = database.problems if database else ()
    lines = (f"{check.verdict.value}: {check.what}: {check.found}: {check.remedy}" for check in problems)
    text = _FILE.format(
        head="\n".join(map(_comment, head)),
        type_name=type_name,
        name=_scalar(name),
        variable=variable,
        problems="".join(f"    {_comment(line)}\n" for line in lines),
        lake=_scalar(lake),
        of_database=_OF_DATABASE if database else "",
        tables="\n".join(map(_entry, database.tables)) if database else "    - public.orders",
    )
    return text + _REQUIREMENTS.format(variables=", ".join(requires)) if requires else text


def _entry(table: FoundTable) -> str:
    """One table, behind a ``#`` if it cannot be followed."""
    line = f"- {_scalar(_no_template(str(table.name)))}"
    parts = [f"{size(table.bytes)}; {table.found}", table.remedy]
    if table.verdict is Verdict.FAIL:
        line = f"# {line}"
    return f"    {line}  {_comment(': '.join(filter(None, parts)))}"


def _scalar(text: str) -> str:
    """In quotes where YAML needs them."""
    return yaml.safe_dump([text], allow_unicode=True, width=sys.maxsize).removeprefix("- ").removesuffix("\n")


def _no_template(text: str) -> str:
    """Values in the file are templates; a text that looks like one becomes one that yields this text."""
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if _TEMPLATE.search(text) else text


def _comment(text: str) -> str:
    """YAML refuses some characters even there."""
    return "# " + "".join(each if each.isprintable() else "?" for each in one_line(text))
