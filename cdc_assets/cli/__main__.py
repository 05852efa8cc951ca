"""``python -m cdc_assets.cli``, for when the console script is not on the PATH."""

from __future__ import annotations

from cdc_assets.cli import main

main()
