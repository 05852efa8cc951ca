"""A YAML file's documents, with the line of each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """A date stays the text that it is: one that does not exist is the field's error, with its line."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)

_QUOTED_TEMPLATE = 'put a template in quotes: "{{ env.NAME }}"'
# by words of PyYAML's problem: what to write, where the words say only what the parser met
_HINTS = {
    "expected <block end>, but found '<scalar>'": "put the value in quotes; inside them, write a quote twice",
    "expected <block end>": "begin the line at the column of the lines beside it",
    "mapping values are not allowed": "begin the line at the column of the lines beside it, or put a value with a colon"
    " in quotes; a table with fields of its own begins with `- name:`",
    r"'\t' that cannot start": "indent with spaces: YAML allows no tabs there",
    "that cannot start any token": "put the value in quotes",
    "alphabetic or numeric character": "put a pattern in quotes: '*.orders'",
    "undefined alias": "put a pattern in quotes: '*.orders'",
}


@dataclass(frozen=True)
class YamlDocument:
    """One mapping of the file, and its parse tree."""

    value: dict[str, Any]
    node: yaml.MappingNode

    def line(self, path: tuple[str | int, ...]) -> int:
        """The line of the field at ``path``, or of its nearest existing parent; counted from 1."""
        node: yaml.Node = self.node
        line = node.start_mark.line
        for part in path:
            child = _child(node, part)
            if child is None:
                break
            line, node = child
        return line + 1


def documents(text: str) -> list[YamlDocument]:
    """The file's documents.

    Raises yaml.MarkedYAMLError, also for a duplicate field or a document that is not a mapping.
    """
    of_file = []
    loader = _Loader(text)
    try:
        while loader.check_node():
            node: yaml.Node = loader.get_node()  # type: ignore[assignment]  # check_node said there is one
            if not isinstance(node, yaml.MappingNode):
                raise yaml.MarkedYAMLError(problem="expected fields, as in name: value", problem_mark=node.start_mark)
            _refuse_duplicates(node)
            of_file.append(YamlDocument(loader.construct_document(node), node))
    finally:
        loader.dispose()
    return of_file


def syntax_hint(text: str, error: yaml.MarkedYAMLError) -> str:
    """What to write in place of what YAML cannot read; empty if its own words say it."""
    line = text.splitlines()[error.problem_mark.line : error.problem_mark.line + 1] if error.problem_mark else []
    if any("{{" in each for each in line):
        return _QUOTED_TEMPLATE
    return next((hint for words, hint in _HINTS.items() if words in str(error.problem)), "")


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def _refuse_duplicates(node: yaml.Node) -> None:
    """YAML forbids duplicates, but PyYAML silently keeps the last one."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} is written twice", problem_mark=key.start_mark)
                seen.add(key.value)
            _refuse_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item)
