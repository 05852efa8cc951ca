"""Coverage-guided fuzzing of the decoders with atheris: ``make fuzz``. Not collected by pytest."""

from __future__ import annotations
