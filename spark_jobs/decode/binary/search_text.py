"""Renders binary tsvector and tsquery as text (``src/backend/utils/adt/tsvector.c``, ``tsquery.c``)."""

from __future__ import annotations

from spark_jobs.decode.binary.scalar_text import int16
from spark_jobs.logicalrep.cursor import Cursor

_WEIGHTS = ("", "C", "B", "A")  # by the two highest bits of a position
_OPERAND, _OPERATOR = 1, 2
_NOT, _AND, _OR, _PHRASE = 1, 2, 3, 4
_PRIORITY = {_OR: 1, _AND: 2, _PHRASE: 3, _NOT: 4}
_OPERAND_PRIORITY = 5


def tsvector_text(cursor: Cursor) -> str:
    return " ".join(_lexeme(cursor) for _ in range(_count(cursor)))


def _lexeme(cursor: Cursor) -> str:
    text = _quoted(cursor.cstring("lexeme"))
    positions = [cursor.uint16("position") for _ in range(cursor.uint16("positions"))]
    if not positions:
        return text
    return f"{text}:" + ",".join(f"{position & 0x3FFF}{_WEIGHTS[position >> 14]}" for position in positions)


def tsquery_text(cursor: Cursor) -> str:
    """Items come in prefix order, the right operand before the left: read from the end, operands precede operators."""
    items = [_item(cursor) for _ in range(_count(cursor))]
    stack: list[tuple[str, int]] = []
    for item in reversed(items):
        if isinstance(item, str):
            stack.append((item, _OPERAND_PRIORITY))
            continue
        operator, distance = item
        if len(stack) < (1 if operator == _NOT else 2):
            raise ValueError("tsquery")
        priority = _PRIORITY[operator]
        if operator == _NOT:
            stack.append(("!" + _operand(stack.pop(), priority, right_of_phrase=False), priority))
            continue
        right = _operand(stack.pop(), priority, right_of_phrase=operator == _PHRASE)
        left = _operand(stack.pop(), priority, right_of_phrase=False)
        sign = {_AND: "&", _OR: "|"}.get(operator) or ("<->" if distance == 1 else f"<{distance}>")
        stack.append((f"{left} {sign} {right}", priority))
    if len(stack) > 1:
        raise ValueError("tsquery")
    return stack[0][0] if stack else ""


def _operand(operand: tuple[str, int], parent: int, *, right_of_phrase: bool) -> str:
    text, priority = operand
    in_parentheses = priority < parent or (right_of_phrase and priority == _PRIORITY[_PHRASE])
    return f"( {text} )" if in_parentheses else text


def _item(cursor: Cursor) -> str | tuple[int, int]:
    """An operand's text, or an operator and its distance."""
    kind = cursor.uint8("item")
    if kind == _OPERAND:
        weight, prefix = cursor.flags(0xF, "weight"), cursor.flags(1, "prefix")
        text = _quoted(cursor.cstring("operand"))
        marks = ("*" if prefix else "") + "".join(
            letter for bit, letter in ((8, "A"), (4, "B"), (2, "C"), (1, "D")) if weight & bit
        )
        return f"{text}:{marks}" if marks else text
    operator = cursor.uint8("operator")
    if kind != _OPERATOR or operator not in _PRIORITY:
        raise ValueError("tsquery")
    return operator, int16(cursor) if operator == _PHRASE else 0


def _count(cursor: Cursor) -> int:
    size = cursor.int32("count")
    if not 0 <= size <= cursor.left:
        raise ValueError("count")
    return size


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
