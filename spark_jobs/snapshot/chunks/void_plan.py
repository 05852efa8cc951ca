"""Why a plan cannot be read on."""

from __future__ import annotations


class VoidPlanError(Exception):
    """What is read of the table is of no use: the reason."""


class AlteredTableError(Exception):
    """The table is another than the plan was made for. What is read may be of use for another plan."""
