"""What a table keeps: the source's rows, or also what was there before. docs/modes.md says what each event does."""

from __future__ import annotations

from typing import Literal

Mode = Literal["mirror", "soft_delete", "history", "append"]
