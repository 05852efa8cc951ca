"""What a table keeps: the source's rows, or also what was there before. docs/modes.md says what each event does.

These questions are what most code needs to know of a mode. How each one's rows are made and written stands in
``schema/mode_columns.py`` (its columns), ``apply/net_change`` (its net change) and ``lake`` (its statement, and what
becomes of its rows in a new snapshot).
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["mirror", "soft_delete", "history", "append"]


def keeps_past(mode: Mode) -> bool:
    """Whether the table has more than the source's current rows, so that nothing can replace all of them."""
    return mode != "mirror"


def holds_changes(mode: Mode) -> bool:
    """Whether its rows are changes: they are only ever added to, and no key finds one."""
    return mode == "append"


def needs_key(mode: Mode) -> bool:
    """Whether it keeps the past of each row, which only a key tells from the others."""
    return mode in ("soft_delete", "history")
